//! The real codex binary behind the loop: it talks to a scripted model in a network
//! of its own, with an empty home and a made-up key.
//!
//! `RUNNER_CODEX` names the binary; `cargo xtask ci` sets it.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use agent_support::{
    BIN, GOAL, argv, assert_runner_error, assert_step_says, files_with, has_words, hide_program,
    put_first_on_path, stream,
};
use runner_testkit::model::{self, ModelServer, ModelTurn};
use runner_testkit::{TestChild, TestRepo, TestRun, assert_no_process, eventually};
use serde_json::{Value, json};

const DONE: &str = r#"{"status":"done","summary":"wrote greeting.txt"}"#;
/// Longer than anything takes on a loaded machine: reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);
/// A key of no provider's shape: only its name in the configuration tells.
const KEY: &str = "made-up-7f3a9c";
/// 2030-01-02T03:04:00Z.
const LIMIT_ENDS: u64 = 1_893_553_440;

/// A started run whose agent is codex, and the model behind it.
struct Stage {
    repo: TestRepo,
    server: ModelServer,
    wrapper: PathBuf,
}

impl Stage {
    /// The model plays `turns`; the guard wants `greeting.txt`.
    fn new(turns: Vec<ModelTurn>) -> Self {
        Self::prepared(turns, |_| {})
    }

    fn prepared(turns: Vec<ModelTurn>, change: impl FnOnce(&mut TestRepo)) -> Self {
        let server = ModelServer::start(turns);
        let mut repo = TestRepo::new(BIN);
        repo.config(|config| {
            config
                .set("sandbox.mode", "auto")
                .set("executor.backend", "codex")
                .set("executor.command", json!([]))
                .set("executor.model", "scripted")
                .set(
                    "executor.extra_args",
                    json!(model::codex_provider_args(model::ISOLATED_BASE_URL)),
                )
                .set(&format!("executor.env.{}", model::KEY_VARIABLE), KEY);
        });
        change(&mut repo);
        // A folder of its own, so that nothing else of the binary's is on the PATH.
        let bin = repo.root().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(codex(), bin.join("codex")).unwrap();
        put_first_on_path(&mut repo, &bin);
        repo.start_run(GOAL, &["test", "-f", "greeting.txt"]);
        let wrapper = repo.root().join("in-a-network-of-its-own");
        server.write_wrapper(&wrapper, BIN.as_ref());
        Self {
            repo,
            server,
            wrapper,
        }
    }

    /// Starts the runner where there is no network but the model.
    fn spawn(&self, args: &[&str]) -> TestChild {
        let mut command = self.repo.hermetic(&self.wrapper);
        command.args(args);
        self.repo.spawn(command)
    }

    fn run(&self, args: &[&str]) -> TestRun {
        self.spawn(args).wait()
    }

    /// One step that must fail with this kind: its `meta.json`.
    #[track_caller]
    fn fails(&self, kind: &str, hint: &str) -> Value {
        let run = self.run(&["step", "--json"]);
        let meta = assert_runner_error(&self.repo, &run, 1, kind);
        assert_step_says(&run, kind, hint);
        assert_eq!(self.server.turns_left(), 0, "{}", run.describe());
        assert_eq!(meta["executor"]["backend"], "codex");
        meta
    }
}

/// Where codex is.
fn codex() -> PathBuf {
    let Some(path) = std::env::var_os("RUNNER_CODEX") else {
        panic!(
            "RUNNER_CODEX does not name the codex binary: `cargo xtask setup` installs it and prints the variable, `cargo xtask ci` sets it"
        );
    };
    fs::canonicalize(&path)
        .unwrap_or_else(|error| panic!("RUNNER_CODEX={}: {error}", path.display()))
}

#[test]
fn a_command_writes_a_file_and_the_leaf_passes() {
    let stage = Stage::prepared(
        vec![
            ModelTurn::shell("echo hi > greeting.txt && cat greeting.txt").tokens(1000, 0, 50),
            ModelTurn::shell("test -e nothing; exit 3"),
            ModelTurn::message(DONE).tokens(1100, 1000, 30),
        ],
        |repo| {
            repo.config(|config| {
                let mut args = model::codex_provider_args(model::ISOLATED_BASE_URL);
                let header =
                    format!("model_providers.scripted.http_headers={{X-Made-Up=\"{KEY}\"}}");
                args.extend(["-c".to_owned(), header]);
                config.set("executor.extra_args", json!(args));
            });
        },
    );
    let repo = &stage.repo;
    let run = stage.run(&["step", "--json"]).success();
    assert_eq!(run.json()["status"], "done");
    assert_eq!(run.json()["guard"], "pass");
    assert_eq!(repo.read("greeting.txt"), "hi\n");
    assert_eq!(repo.node("root")["passes"], true);
    repo.assert_clean();

    let meta = repo.meta(1);
    let executor = &meta["executor"];
    assert_eq!(executor["exit_code"], 0);
    assert_eq!(executor["input_tokens"], 1000 + 100 + 1100);
    assert_eq!(executor["cached_input_tokens"], 40 + 1000);
    assert_eq!(executor["output_tokens"], 50 + 20 + 30);
    assert_eq!(executor["cost_usd"], Value::Null, "nobody knows the price");
    assert_eq!(meta["error"], Value::Null);
    assert_eq!(meta["sandbox"], "bubblewrap");
    let status = repo.runner(&["status", "--json"]).success().json();
    assert_eq!(status["input_tokens"], 2200);
    assert_eq!(status["output_tokens"], 100);
    repo.runner(&["status"])
        .success()
        .says("2200 in (1040 cached), 100 out");
    let log = repo.runner(&["log", "1"]).success();
    log.says("tokens: 2300, cost: unknown").says("bubblewrap");

    let events = stream(repo, 1);
    let types: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(types.first(), Some(&"thread.started"), "{types:?}");
    assert_eq!(types.last(), Some(&"turn.completed"), "{types:?}");
    let ended: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "item.completed")
        .map(|event| &event["item"])
        .filter(|item| item["type"] == "command_execution")
        .map(|item| &item["exit_code"])
        .collect();
    assert_eq!(ended, [0, 3]);
    let report = fs::read_to_string(repo.iteration(1).join("output.json")).unwrap();
    assert_eq!(report, DONE);

    let argv = argv(repo, 1);
    assert!(has_words(&argv, &["codex", "exec", "--json"]), "{argv:?}");
    assert!(has_words(&argv, &["-m", "scripted"]), "{argv:?}");
    assert!(argv.contains(&"--dangerously-bypass-approvals-and-sandbox".to_owned()));
    assert!(
        argv.iter()
            .any(|word| word.contains("X-Made-Up") && word.contains("***")),
        "{argv:?}"
    );
    assert_eq!(files_with(&repo.iteration(1), KEY), Vec::<PathBuf>::new());
    // What the model was sent: our prompt and the schema of the report.
    let requests = stage.server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0]["text"]["format"]["strict"], true);
    assert!(requests[0]["input"].to_string().contains("All of it."));
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn a_loop_decomposes_by_editing_the_tree_and_does_the_parts() {
    let python = r#"python3 - <<'END'
import json
path = ".runner/state/tree.json"
tree = json.load(open(path))
for order, name in enumerate(["a", "b"]):
    tree["children"].append(dict(tree, id=name, order=order, title=name, children=[]))
json.dump(tree, open(path, "w"))
END"#;
    let stage = Stage::new(vec![
        ModelTurn::shell(python),
        ModelTurn::message(r#"{"status":"decomposed","summary":"two parts"}"#).tokens(500, 0, 10),
        ModelTurn::shell("echo hi > greeting.txt"),
        ModelTurn::message(DONE).tokens(700, 500, 11),
        ModelTurn::message(r#"{"status":"done","summary":"b was there already"}"#)
            .tokens(900, 0, 12),
    ]);
    let repo = &stage.repo;
    let run = stage.run(&["loop", "--json"]).success();
    let lines = run.json_lines();
    assert_eq!(
        lines.last().unwrap()["status"],
        "complete",
        "{}",
        run.describe()
    );
    assert_eq!(repo.meta(1)["status"], "decomposed");
    assert_eq!(repo.meta(1)["mode"], "decompose");
    assert_eq!(repo.meta(1)["tree_changes"]["added"], json!(["a", "b"]));
    assert_eq!(
        (&repo.meta(2)["node_id"], &repo.meta(3)["node_id"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(repo.node("root")["passes"], true);
    // Each iteration has its own count, the run the sum.
    let tokens = |iter| repo.meta(iter)["executor"]["output_tokens"].clone();
    assert_eq!([tokens(1), tokens(2), tokens(3)], [20 + 10, 20 + 11, 12]);
    let status = repo.runner(&["status", "--json"]).success().json();
    assert_eq!(status["output_tokens"], 30 + 31 + 12);
    repo.runner(&["replay"]).success();
    repo.assert_clean();
}

#[test]
fn a_report_that_is_no_json_never_counts() {
    let stage = Stage::new(vec![
        ModelTurn::shell("echo hi > greeting.txt"),
        ModelTurn::message("not json at all"),
    ]);
    let meta = stage.fails("malformed_output", "runner log 1");
    // The work is kept, the guard was not asked, and the words are there to be read.
    assert_eq!(stage.repo.read("greeting.txt"), "hi\n");
    assert_eq!(meta["executor"]["exit_code"], 0, "codex itself is content");
    assert_eq!(meta["executor"]["output_tokens"], 40);
    let kept = fs::read_to_string(stage.repo.iteration(1).join("output.json")).unwrap();
    assert_eq!(kept, "not json at all");
}

#[test]
fn a_report_against_the_schema_never_counts() {
    for report in [
        r#"{"status":"finished","summary":"x"}"#,
        r#"{"status":"done","summary":"x","extra":1}"#,
        r#"{"status":"done","summary":""}"#,
        r#"[{"status":"done","summary":"x"}]"#,
    ] {
        let stage = Stage::new(vec![ModelTurn::message(report)]);
        let meta = stage.fails("malformed_output", "runner log 1");
        assert!(
            meta["error"]["message"]
                .as_str()
                .unwrap()
                .contains("output.json"),
            "{meta:#}"
        );
    }
}

#[test]
fn a_refused_key_ends_the_loop() {
    // Providers quote what they refuse.
    let body = json!({"error": {"message": format!("Incorrect API key provided: {KEY}.")}});
    let refused = || ModelTurn::status(401, &body.to_string());
    let stage = Stage::new(vec![refused()]);
    let meta = stage.fails("auth", "log in");
    let message = meta["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("401") && message.contains("***"),
        "{message}"
    );
    assert!(!meta.to_string().contains(KEY), "{meta:#}");
    let history = stage.repo.git(&[
        "log",
        "-p",
        "--format=%B",
        "main..HEAD",
        "--",
        ".",
        ":!.runner/state/config.toml",
    ]);
    assert!(!history.contains(KEY), "{history}");
    assert_eq!(meta["executor"]["exit_code"], 1);
    assert_eq!(meta["executor"]["input_tokens"], Value::Null);
    let last = stream(&stage.repo, 1).pop().unwrap();
    assert_eq!(last["type"], "turn.failed");

    stage.server.push(refused());
    let run = stage.run(&["loop", "--json"]).code(1);
    let end = run.json_lines().pop().unwrap();
    assert_eq!(
        (&end["status"], &end["steps"]),
        (&json!("error"), &json!(1))
    );
    assert_eq!(end["error"]["code"], "auth");
}

#[test]
fn a_quota_is_told_from_a_rate_limit() {
    let stage = Stage::new(vec![ModelTurn::failed(
        "insufficient_quota",
        "You exceeded your current quota",
    )]);
    let meta = stage.fails("quota", "--wait-quota");
    assert_eq!(meta["error"].get("retry_at"), None);

    let stage = Stage::new(vec![ModelTurn::status(
        429,
        r#"{"error":{"message":"slow down"}}"#,
    )]);
    stage.fails("rate_limit", "");
}

#[test]
fn a_usage_limit_says_when_it_ends() {
    let limit = json!({"error": {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": "plus",
        "resets_at": LIMIT_ENDS,
    }});
    let stage = Stage::new(vec![ModelTurn::status(429, &limit.to_string())]);
    let meta = stage.fails("quota", "2030-01-02T03:04:00Z");
    assert_eq!(meta["error"]["retry_at"], "2030-01-02T03:04:00Z");
    stage
        .server
        .push(ModelTurn::status(429, &limit.to_string()));
    let run = stage.run(&["loop", "--json"]).code(1);
    let end = run.json_lines().pop().unwrap();
    assert_eq!(end["error"]["code"], "quota", "{}", run.describe());
    let hint = end["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("2030-01-02T03:04:00Z") && hint.contains("--wait-quota"),
        "{hint}"
    );
}

#[test]
fn one_failure_of_the_service_does_not_end_the_loop() {
    let stage = Stage::new(vec![
        ModelTurn::status(500, "oops"),
        ModelTurn::shell("echo hi > greeting.txt"),
        ModelTurn::Cut,
        ModelTurn::message(DONE),
    ]);
    let run = stage.run(&["loop", "--json"]).success();
    let repo = &stage.repo;
    let kinds: Vec<Value> = (1..=3)
        .map(|iter| repo.meta(iter)["error"]["kind"].clone())
        .collect();
    assert_eq!(
        kinds,
        [json!("overloaded"), json!("network"), Value::Null],
        "{}",
        run.describe()
    );
    assert_eq!(repo.node("root")["attempts"], 0);
    assert_eq!(repo.node("root")["passes"], true);
    // What the cut session did is kept: its commands ran.
    assert_eq!(repo.read("greeting.txt"), "hi\n");
    assert_eq!(run.json_lines().last().unwrap()["steps"], 3);
}

#[test]
fn a_refused_connection_ends_the_session() {
    let stage = Stage::prepared(Vec::new(), |repo| {
        repo.config(|config| {
            let args = model::codex_provider_args(model::REFUSED_BASE_URL);
            config.set("executor.extra_args", json!(args));
        });
    });
    let meta = stage.fails("network", "runner log 1");
    assert!(meta["executor"]["duration_ms"].as_u64().unwrap() < 30_000);
}

#[test]
fn without_our_sandbox_codex_uses_its_own_and_its_folder_can_be_moved() {
    let done = ModelTurn::message(r#"{"status":"done","summary":"nothing to do"}"#);
    for mode in ["off", "auto"] {
        let stage = Stage::prepared(vec![done.clone()], |repo| {
            let moved = repo.root().join("moved");
            // The person's own is not written; one that the configuration names is the agent's.
            let own = repo.root().join("own");
            fs::create_dir(&own).unwrap();
            repo.env("CODEX_HOME", own);
            repo.config(|config| {
                config.set("sandbox.mode", mode);
                config.set("executor.env.CODEX_HOME", moved.to_str().unwrap());
            });
            repo.write("greeting.txt", "hi\n");
            repo.commit_all("greet");
        });
        let repo = &stage.repo;
        if mode == "off" {
            // Codex itself wants it to be there.
            fs::create_dir(repo.root().join("moved")).unwrap();
        }
        stage.run(&["step"]).success();
        assert!(!repo.root().join("home/.codex").exists());
        let written = fs::read_dir(repo.root().join("moved")).unwrap();
        assert!(written.count() > 0);
        let own = fs::read_dir(repo.root().join("own")).unwrap();
        assert_eq!(own.count(), 0);
        let argv = argv(repo, 1);
        let own = has_words(&argv, &["-s", "workspace-write"]);
        let none = argv.contains(&"--dangerously-bypass-approvals-and-sandbox".to_owned());
        assert_eq!((own, none), (mode == "off", mode == "auto"), "{argv:?}");
        let sandbox = if mode == "off" { "none" } else { "bubblewrap" };
        assert_eq!(repo.meta(1)["sandbox"], sandbox);
    }
}

#[test]
fn a_model_that_says_nothing_is_waited_for_until_the_deadline() {
    let stage = Stage::prepared(vec![ModelTurn::Hang], |repo| {
        repo.config(|config| {
            config.set("iteration_timeout_secs", 8);
        });
    });
    let meta = stage.fails("timeout", "");
    assert_eq!(meta["executor"]["exit_code"], Value::Null);
    let ms = meta["executor"]["duration_ms"].as_u64().unwrap();
    // What comes before the session counts, too.
    assert!((7_000..30_000).contains(&ms), "{ms}");
    assert_no_process(&stage.repo.root().display().to_string());
}

#[test]
fn a_signal_in_the_middle_of_a_command_leaves_no_process() {
    for hidden in ["", "bwrap"] {
        // The tool that codex starts lives in a session of its own.
        let stage = Stage::prepared(
            vec![ModelTurn::shell(
                "echo half > greeting.txt; sleep 1000 & echo $! > child; wait",
            )],
            |repo| {
                if !hidden.is_empty() {
                    hide_program(repo, hidden);
                }
            },
        );
        let repo = &stage.repo;
        let running = stage.spawn(&["loop"]);
        eventually("the command", LONG, || repo.workspace("child").exists());
        running.signal("TERM");
        let run = running.wait_within(LONG).code(130);
        assert_no_process(&repo.root().display().to_string());
        run.says("interrupted");

        // The next call settles it: no attempt, the edit kept.
        stage.server.push(ModelTurn::message(DONE));
        let run = stage.run(&["loop", "--json"]).success();
        assert_eq!(
            run.json_lines()[0]["event"],
            "recovered",
            "{}",
            run.describe()
        );
        assert_eq!(repo.meta(1)["error"]["kind"], "interrupted");
        assert_eq!(repo.meta(1)["attempts"], 0);
        assert_eq!(repo.read("greeting.txt"), "half\n");
        assert_eq!(repo.node("root")["passes"], true);
    }
}
