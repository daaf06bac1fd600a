//! Claude and opencode behind the loop: stubs on the PATH replay recorded sessions
//! and refuse flags that the real CLIs do not know.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use agent_support::stub::{Scene, Stub, expected, recorded_names};
use agent_support::{
    BIN, GOAL, argv, assert_runner_error, assert_step_says, has_words, hide_program, stream,
};
use runner_testkit::model::{self, ModelServer};
use runner_testkit::{TestRepo, assert_no_process, eventually};
use serde_json::{Value, json};

const CLIS: [&str; 2] = ["claude", "opencode"];
/// Longer than anything takes on a loaded machine: reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);
/// What a session does that was to greet.
const GREET: &str = "echo hi > greeting.txt\n";
/// Opencode has no flag for the report: the agent writes it where the prompt says.
const REPORT: &str = r#"out() { path=$(sed -n 's/.*write `\([^`]*output.json\)`.*/\1/p' "$seen/prompt")
printf '%s' "$1" > "$path"; }
"#;

/// The scene of a recorded session that goes well, with the work it tells of.
fn good(cli: &str, which: &str, report: &Value, work: &str) -> Scene {
    let report = match cli {
        "opencode" => format!("out '{report}'\n"),
        _ => String::new(),
    };
    let before = format!("{REPORT}{work}\n{report}");
    Scene::recorded(&format!("{cli}-{which}")).before(&before)
}

#[test]
fn recorded_successes_count() {
    for cli in CLIS {
        let stub = Stub::started(cli, |config| {
            config
                .set("executor.model", "some/model")
                .set("executor.env.OWN", "of-the-config");
        });
        let repo = &stub.repo;
        let report = json!({"status": "done", "summary": "wrote greeting.txt"});
        stub.play(&good(cli, "success", &report, GREET));
        let run = repo.runner(&["step", "--json"]).success();
        assert_eq!(
            (&run.json()["status"], &run.json()["guard"]),
            (&json!("done"), &json!("pass"))
        );
        repo.assert_clean();

        let recorded = expected(&format!("{cli}-success"));
        let executor = &repo.meta(1)["executor"];
        for key in [
            "input_tokens",
            "cached_input_tokens",
            "output_tokens",
            "cost_usd",
        ] {
            assert_eq!(executor[key], recorded["usage"][key], "{cli} {key}");
        }
        let kept: Value =
            serde_json::from_slice(&fs::read(repo.iteration(1).join("output.json")).unwrap())
                .unwrap();
        assert_eq!(kept, report);
        let scene = Scene::recorded(&format!("{cli}-success"));
        let raw = fs::read_to_string(repo.iteration(1).join("stream.jsonl")).unwrap();
        assert_eq!(raw, scene.stream, "{cli}: the events are kept as they came");
        let status = repo.runner(&["status", "--json"]).success().json();
        assert_eq!(status["input_tokens"], recorded["usage"]["input_tokens"]);
        assert_eq!(status["cost_usd"], recorded["usage"]["cost_usd"]);
        assert!(stub.prompt(1).contains("All of it."));
        assert_eq!(stub.env(1)["OWN"], "of-the-config");
        // What is recorded is what was run.
        assert_eq!(argv(repo, 1)[1..], stub.args(1));
        assert_eq!(argv(repo, 1)[0], cli);
    }
}

/// As a tool of the session does through `/proc/$PPID/fd/1`.
#[test]
fn what_a_tool_prints_among_the_events_lowers_no_figure_and_is_told() {
    let stub = Stub::started("claude", |_| {});
    let repo = &stub.repo;
    let report = json!({"status": "done", "summary": "wrote greeting.txt"});
    let forged = json!({
        "type": "result",
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "total_cost_usd": 0.000_001,
    });
    let mut scene = good("claude", "success", &report, GREET);
    // The real result is glued to a fragment.
    let (before, result) = scene.stream.trim_end().rsplit_once('\n').unwrap();
    scene.stream = format!("{before}\n{forged}\n{{\"type\":\"result\",\"usage\":{{{result}\n");
    stub.play(&scene);
    let run = repo.runner(&["step", "--json"]).success().json();
    assert_eq!(run["guard"], "pass");
    let told = run["notes"].to_string();
    assert!(told.contains("output was disturbed"), "{run:#}");
    let recorded = expected("claude-success");
    let executor = &repo.meta(1)["executor"];
    for key in ["input_tokens", "output_tokens", "cost_usd"] {
        assert_eq!(executor[key], recorded["usage"][key], "{key}");
    }
}

#[test]
fn the_flags_are_what_unattended_sessions_need() {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    for cli in CLIS {
        let stub = Stub::started(cli, |config| {
            config.set("executor.model", "some/model");
        });
        stub.play(&Scene::recorded(&format!("{cli}-401")));
        let run = stub.repo.runner(&["step", "--json"]);
        assert_runner_error(&stub.repo, &run, 1, "auth");
        let (args, env) = (stub.args(1), stub.env(1));
        if cli == "claude" {
            for words in [
                &["-p"][..],
                &["--output-format", "stream-json"],
                &["--verbose"],
                &["--no-session-persistence"],
                &["--model", "some/model"],
                &["--setting-sources", "user"],
                &["--strict-mcp-config"],
            ] {
                assert!(has_words(&args, words), "{words:?} in {args:?}");
            }
            let schema = args
                .iter()
                .position(|word| word == "--json-schema")
                .unwrap();
            let schema: Value = serde_json::from_str(&args[schema + 1]).unwrap();
            assert_eq!(schema["required"], json!(["status", "summary"]));
            let skip = args.contains(&"--dangerously-skip-permissions".to_owned());
            let ask_not = has_words(&args, &["--permission-mode", "dontAsk"]);
            assert_eq!((skip, ask_not), (!root, root), "{args:?}");
        } else {
            let dir = stub.repo.path("").display().to_string();
            let dir = dir.trim_end_matches('/');
            let words = [
                "run",
                "--format",
                "json",
                "--dir",
                dir,
                "-m",
                "some/model",
                "--auto",
            ];
            assert_eq!(args, words);
        }
        let quiet: &[&str] = if cli == "claude" {
            &[
                "DISABLE_TELEMETRY",
                "DISABLE_AUTOUPDATER",
                "DISABLE_AUTO_COMPACT",
            ]
        } else {
            &[
                "OPENCODE_DISABLE_AUTOCOMPACT",
                "OPENCODE_DISABLE_AUTOUPDATE",
                "OPENCODE_DISABLE_PROJECT_CONFIG",
                "OPENCODE_PURE",
            ]
        };
        for name in quiet {
            assert_eq!(env.get(*name).map(String::as_str), Some("1"), "{name}");
        }
    }
}

#[test]
fn recorded_failures_have_their_kind_and_cost_no_attempt() {
    for cli in CLIS {
        let stub = Stub::started(cli, |_| {});
        let repo = &stub.repo;
        let mut iter = 0;
        for name in recorded_names(cli) {
            let recorded = expected(&name);
            let Some(kind) = recorded["failure"]["kind"].as_str() else {
                continue;
            };
            // The runner's words for the reader's.
            let kind = match kind {
                "malformed" => "malformed_output",
                "other" => "agent",
                same => same,
            };
            iter += 1;
            let scene = Scene::recorded(&name);
            stub.play(&scene);
            let run = repo.runner(&["step", "--json"]);
            let meta = assert_runner_error(repo, &run, iter, kind);
            assert_step_says(&run, kind, &format!("runner log {iter}"));
            let executor = &meta["executor"];
            for key in ["input_tokens", "output_tokens", "cost_usd"] {
                assert_eq!(executor[key], recorded["usage"][key], "{name} {key}");
            }
            let retry_at = meta["error"]["retry_at"].as_str();
            match recorded["failure"]["reset"].as_str() {
                None => assert_eq!(retry_at, None, "{name}"),
                // Dates without a year and durations depend on the day.
                Some(at) if name.ends_with("-text") => {
                    assert_eq!(retry_at.unwrap()[4..], at[4..], "{name}");
                }
                Some(at) if at.starts_with("in ") => assert!(retry_at.is_some(), "{name}"),
                Some(at) => assert_eq!(retry_at, Some(at), "{name}"),
            }
            // A last line that was cut is no event.
            let lines = scene.stream.lines();
            let whole = lines.filter(|line| serde_json::from_str::<Value>(line).is_ok());
            assert_eq!(stream(repo, iter).len(), whole.count(), "{name}");
        }
        assert!(iter > 5, "{cli}");
        repo.runner(&["replay"]).success();
    }
}

#[test]
fn a_session_without_a_valid_report_never_counts() {
    let greet = |report: &str| format!("{REPORT}{GREET}{report}");
    let cases = [
        // The CLI is content, exit code 0, and the field is not there.
        (
            "claude",
            "no-structured-output",
            greet(""),
            "malformed_output",
        ),
        ("claude", "schema-violation", greet(""), "malformed_output"),
        ("opencode", "no-report", greet(""), "no_output"),
        (
            "opencode",
            "no-report",
            greet("out 'not json at all'"),
            "malformed_output",
        ),
        (
            "opencode",
            "success",
            greet(r#"out '{"status":"finished","extra":1}'"#),
            "malformed_output",
        ),
    ];
    for (cli, which, before, kind) in cases {
        let stub = Stub::started(cli, |_| {});
        stub.play(&Scene::recorded(&format!("{cli}-{which}")).before(&before));
        let run = stub.repo.runner(&["step", "--json"]);
        let meta = assert_runner_error(&stub.repo, &run, 1, kind);
        assert_eq!(meta["executor"]["exit_code"], 0, "{cli} {which}");
        // The work is kept, for the next session to find.
        assert_eq!(stub.repo.read("greeting.txt"), "hi\n");
    }
}

#[test]
fn a_loop_decomposes_and_does_the_parts() {
    let split = r#"python3 - <<'END'
import json
path = ".runner/state/tree.json"
tree = json.load(open(path))
for order, name in enumerate(["a", "b"]):
    tree["children"].append(dict(tree, id=name, order=order, title=name, children=[]))
json.dump(tree, open(path, "w"))
END"#;
    for cli in CLIS {
        let stub = Stub::started(cli, |_| {});
        let report = json!({"status": "decomposed", "summary": "split in two"});
        stub.play_at(1, &good(cli, "decomposed", &report, split));
        let report = json!({"status": "done", "summary": "wrote greeting.txt"});
        stub.play(&good(cli, "success", &report, GREET));
        let repo = &stub.repo;
        let run = repo.runner(&["loop", "--json"]).success();
        assert_eq!(
            run.json_lines().last().unwrap()["steps"],
            3,
            "{}",
            run.describe()
        );
        assert_eq!(repo.meta(1)["tree_changes"]["added"], json!(["a", "b"]));
        assert_eq!(repo.node("root")["passes"], true);
        let usage =
            |which: &str| expected(&format!("{cli}-{which}"))["usage"]["output_tokens"].as_u64();
        let sum = usage("decomposed").unwrap() + 2 * usage("success").unwrap();
        let status = repo.runner(&["status", "--json"]).success().json();
        assert_eq!(status["output_tokens"], sum);
    }
}

#[test]
fn one_overload_and_one_cut_do_not_end_the_loop() {
    for cli in CLIS {
        let stub = Stub::started(cli, |_| {});
        stub.play_at(1, &Scene::recorded(&format!("{cli}-500")));
        stub.play_at(2, &Scene::recorded(&format!("{cli}-cut")));
        stub.play_at(3, &Scene::recorded(&format!("{cli}-refused")));
        let report = json!({"status": "done", "summary": "wrote greeting.txt"});
        stub.play(&good(cli, "success", &report, GREET));
        let run = stub.repo.runner(&["loop", "--json"]).success();
        let kinds: Vec<Value> = (1..=4)
            .map(|iter| stub.repo.meta(iter)["error"]["kind"].clone())
            .collect();
        assert_eq!(
            kinds,
            [
                json!("overloaded"),
                json!("agent"),
                json!("network"),
                Value::Null
            ],
            "{}",
            run.describe()
        );
        assert_eq!(stub.repo.node("root")["attempts"], 0);
    }
}

#[test]
fn silence_ends_a_session() {
    ended_sessions("executor.idle_timeout_secs", "idle");
}

#[test]
fn the_deadline_ends_a_session() {
    ended_sessions("iteration_timeout_secs", "timeout");
}

/// A session that has put its tool into a session of its own, and hangs.
fn ended_sessions(limit: &str, kind: &str) {
    for cli in CLIS {
        let stub = Stub::started(cli, |config| {
            config.set(limit, 3);
        });
        let hang = "setsid sleep 1000 & wait\n";
        stub.play(&Scene::recorded(&format!("{cli}-cut")).after(hang));
        let run = stub.repo.runner(&["step", "--json"]);
        let meta = assert_runner_error(&stub.repo, &run, 1, kind);
        assert_eq!(meta["executor"]["exit_code"], Value::Null);
        // What was used until then is not lost.
        let used = &expected(&format!("{cli}-cut"))["usage"]["input_tokens"];
        assert_eq!(meta["executor"]["input_tokens"], *used, "{cli} {kind}");
        assert_no_process(&stub.repo.root().display().to_string());
    }
}

#[test]
fn a_signal_in_the_middle_of_a_command_leaves_no_process() {
    for hidden in ["", "bwrap"] {
        for cli in CLIS {
            let mut stub = Stub::started(cli, |_| {});
            if !hidden.is_empty() {
                hide_program(&mut stub.repo, hidden);
            }
            let tool = "setsid sleep 1000 & echo $! > child; wait\n";
            stub.play(&Scene::recorded(&format!("{cli}-cut")).after(tool));
            let repo = &stub.repo;
            let running = repo.spawn_runner(&["loop"]);
            eventually("the command", LONG, || repo.workspace("child").exists());
            running.signal("TERM");
            running.wait_within(LONG).code(130).says("interrupted");
            assert_no_process(&repo.root().display().to_string());

            let report = json!({"status": "done", "summary": "wrote greeting.txt"});
            stub.play(&good(cli, "success", &report, GREET));
            let run = repo.runner(&["loop", "--json"]).success();
            assert_eq!(run.json_lines()[0]["event"], "recovered");
            assert_eq!(repo.meta(1)["error"]["kind"], "interrupted");
            assert_eq!(repo.node("root")["attempts"], 0);
        }
    }
}

#[test]
fn a_cli_that_is_not_installed_is_named() {
    for cli in CLIS {
        let stub = Stub::started(cli, |_| {});
        fs::remove_file(stub.repo.root().join("bin").join(cli)).unwrap();
        let run = stub.repo.runner(&["step", "--json"]);
        let meta = assert_runner_error(&stub.repo, &run, 1, "spawn");
        assert!(
            meta["error"]["message"].as_str().unwrap().contains(cli),
            "{meta:#}"
        );
    }
}

/// The real CLI against an address where nobody listens, with a made-up key and no
/// other network: it takes our flags, and we understand how it fails.
fn real_cli_without_a_model(cli: &str, change: impl FnOnce(&mut TestRepo)) {
    let server = ModelServer::start(Vec::new());
    let mut repo = TestRepo::new(BIN);
    repo.config(|config| {
        config
            .set("sandbox.mode", "auto")
            .set("executor.backend", cli)
            .set("executor.command", json!([]));
    });
    change(&mut repo);
    repo.start_run(GOAL, &["true"]);
    let wrapper = repo.root().join("in-a-network-of-its-own");
    server.write_wrapper(&wrapper, BIN.as_ref());
    let mut command = repo.hermetic(&wrapper);
    command.args(["step", "--json"]);
    let run = repo.spawn(command).wait();
    let meta = assert_runner_error(&repo, &run, 1, "network");
    assert!(!stream(&repo, 1).is_empty(), "{meta:#}");
    assert_no_process(&repo.root().display().to_string());
}

#[test]
#[ignore = "needs claude on the PATH"]
fn the_real_claude_takes_our_flags() {
    real_cli_without_a_model("claude", |repo| {
        let base = model::REFUSED_BASE_URL.trim_end_matches("/v1");
        repo.env("ANTHROPIC_API_KEY", "made-up")
            .env("ANTHROPIC_BASE_URL", base)
            .env("CLAUDE_CODE_MAX_RETRIES", "0");
    });
}

#[test]
#[ignore = "needs opencode on the PATH"]
fn the_real_opencode_takes_our_flags() {
    real_cli_without_a_model("opencode", |repo| {
        let provider = json!({"provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": model::REFUSED_BASE_URL, "apiKey": "made-up"},
            "models": {"m": {"name": "m"}},
        }}});
        repo.env("OPENCODE_CONFIG_CONTENT", provider.to_string())
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1");
        repo.config(|config| {
            config
                .set("executor.model", "scripted/m")
                .set("executor.idle_timeout_secs", 100)
                .set("iteration_timeout_secs", 100);
        });
    });
}
