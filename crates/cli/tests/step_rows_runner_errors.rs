//! The first two rows of "One step, exactly": whatever goes wrong around the
//! agent is recorded and committed, costs no attempt, is never told to the
//! agent, and the next step just works.
#![allow(clippy::unwrap_used)] // In the helpers too: what is not there is a failure.

mod scenario;

use runner_testkit::TestRepo;
use scenario::record::check;
use scenario::{GOAL, bare, changed_files, error_code, failed_step, planned, started, step};
use serde_json::{Value, json};

const WORK: &str = "echo work >> work.txt; out done 'did it'";

/// A step of a fresh run that must be this runner error; afterwards a step with
/// a good agent must pass.
#[track_caller]
fn expect_error(repo: &TestRepo, kind: &str) -> Value {
    let (tree, state) = (repo.tree(), repo.run_state());
    let run = repo.runner(&["step", "--json"]).code(1);
    assert_eq!(error_code(&run), kind, "{}", run.describe());
    let told = run.json();
    assert_eq!(
        [
            &told["status"],
            &told["guard"],
            &told["attempts"],
            &told["passes"]
        ],
        [&json!("retry"), &json!("skipped"), &json!(0), &json!(false)]
    );
    let meta = check(repo, "runner_error", "retry", "skipped");
    assert_eq!(meta["error"]["kind"], kind);
    assert_eq!(meta["error"]["message"], told["error"]["message"]);
    assert_eq!(repo.tree(), tree, "the tree is as it was");
    let iter = meta["iter"].as_u64().unwrap();
    let mut expected = state;
    expected["next_iter"] = json!(iter + 1);
    assert_eq!(repo.run_state(), expected, "only next_iter moves");
    let log = std::fs::read_to_string(repo.iteration(iter).join("runner_error.log")).unwrap();
    assert_eq!(log.trim_end(), meta["error"]["message"].as_str().unwrap());
    assert!(!repo.iteration(iter).join("agent_error.log").exists());
    meta
}

/// A file that the session read.
#[track_caller]
fn context_file(repo: &TestRepo, path: &str) -> String {
    std::fs::read_to_string(repo.workspace(path)).unwrap()
}

#[test]
fn no_output() {
    let repo = started("echo kept > kept.txt; exit 5", &["true"]);
    let meta = expect_error(&repo, "no_output");
    assert_eq!(meta["executor"]["exit_code"], 5);
    assert!(
        changed_files(&repo).contains(&"kept.txt".to_owned()),
        "the work is kept"
    );
    repo.agent(WORK);
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn output_that_is_not_what_the_schema_asks_for() {
    let cases = [
        ("printf '' > \"$RUNNER_OUTPUT_PATH\"", "empty"),
        ("printf 'done' > \"$RUNNER_OUTPUT_PATH\"", "JSON"),
        ("printf '[]' > \"$RUNNER_OUTPUT_PATH\"", "object"),
        ("printf '{}' > \"$RUNNER_OUTPUT_PATH\"", "missing"),
        (
            "printf '{\"status\":\"done\"}' > \"$RUNNER_OUTPUT_PATH\"",
            "summary",
        ),
        (
            "printf '{\"status\":\"great\",\"summary\":\"x\"}' > \"$RUNNER_OUTPUT_PATH\"",
            "great",
        ),
        (
            "printf '{\"status\":\"stuck\",\"summary\":\"x\"}' > \"$RUNNER_OUTPUT_PATH\"",
            "stuck",
        ),
        (
            "printf '{\"status\":\"done\",\"summary\":\"\"}' > \"$RUNNER_OUTPUT_PATH\"",
            "empty",
        ),
        (
            "printf '{\"status\":\"done\",\"summary\":1}' > \"$RUNNER_OUTPUT_PATH\"",
            "string",
        ),
        (
            "printf '{\"status\":\"done\",\"summary\":\"x\",\"more\":1}' > \"$RUNNER_OUTPUT_PATH\"",
            "more",
        ),
        (
            "printf '{\"status\":\"done\",\"status\":\"retry\",\"summary\":\"x\"}' > \"$RUNNER_OUTPUT_PATH\"",
            "more than once",
        ),
        (
            "printf '{\"status\":\"done\",\"summ' > \"$RUNNER_OUTPUT_PATH\"",
            "JSON",
        ),
        ("printf '\\377\\376' > \"$RUNNER_OUTPUT_PATH\"", "JSON"),
        (
            "out done \"$(head -c 20001 /dev/zero | tr '\\0' a)\"",
            "20001",
        ),
        (
            "head -c 1048577 /dev/zero | tr '\\0' ' ' > \"$RUNNER_OUTPUT_PATH\"",
            "1048576",
        ),
        ("mkdir \"$RUNNER_OUTPUT_PATH\"", "a folder"),
        ("mkfifo \"$RUNNER_OUTPUT_PATH\"", "pipe"),
    ];
    let repo = started("", &["true"]);
    for (script, words) in cases {
        repo.agent(script);
        let meta = expect_error(&repo, "malformed_output");
        let message = meta["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("output.json: "), "{message}");
        assert!(message.contains(words), "{script}: {message}");
        // What the agent really wrote is kept as it was.
        let iter = meta["iter"].as_u64().unwrap();
        let kept = ["output.json", "quarantine"];
        let kept = kept.map(|name| repo.iteration(iter).join(name).symlink_metadata().is_ok());
        assert!(kept[0] || kept[1], "{script}");
    }
    repo.agent("out done \"$(head -c 20000 /dev/zero | tr '\\0' a)\"");
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn an_output_that_is_a_link_never_counts() {
    let script = "out done x; mv \"$RUNNER_OUTPUT_PATH\" o.json
        ln -s \"$PWD/o.json\" \"$RUNNER_OUTPUT_PATH\"";
    let repo = started(script, &["true"]);
    let meta = expect_error(&repo, "malformed_output");
    let message = meta["error"]["message"].as_str().unwrap();
    assert!(message.contains("symbolic link"), "{message}");
}

#[test]
fn a_large_output_with_much_space_around_it_counts() {
    let script = "out done x; head -c 1048000 /dev/zero | tr '\\0' ' ' >> \"$RUNNER_OUTPUT_PATH\"";
    let repo = started(script, &["true"]);
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn a_stale_output_never_counts() {
    let repo = started(WORK, &["false"]);
    step(&repo);
    // The branch goes back, the folder of iteration 1 stays: its number comes again.
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    repo.agent("exit 0");
    expect_error(&repo, "no_output");
    assert!(
        repo.run_dir().join("1.stale-1/output.json").is_file(),
        "moved aside, not lost"
    );
    assert!(repo.run_dir().join("1.stale-1/meta.json").is_file());
    // A session that writes the output of the next one ahead.
    repo.agent_at(
        2,
        "mkdir -p ../x; f=$(dirname \"$RUNNER_OUTPUT_PATH\"); mkdir -p \"$f/../3\"
        echo '{\"status\":\"done\",\"summary\":\"ahead\"}' > \"$f/../3/output.json\"; exit 0",
    );
    expect_error(&repo, "no_output");
    expect_error(&repo, "no_output");
    assert_eq!(repo.run_state()["next_iter"], 4);
}

#[test]
fn an_agent_that_cannot_be_started() {
    for (argv, words) in [
        (json!(["/nowhere/agent"]), "/nowhere/agent"),
        (json!(["no-such-agent-anywhere"]), "no-such-agent-anywhere"),
        (json!(["./README.md"]), "README.md"),
    ] {
        let mut repo = bare();
        repo.config(|config| {
            config.set("executor.command", argv);
        });
        repo.start_run(GOAL, &["true"]);
        let meta = expect_error(&repo, "spawn");
        assert!(
            meta["error"]["message"].as_str().unwrap().contains(words),
            "{meta:#}"
        );
        assert_eq!(meta["executor"]["exit_code"], Value::Null);
        // The config is mended by hand and the run goes on.
        let text = repo.read(".runner/state/config.toml");
        let line = text
            .lines()
            .find(|line| line.starts_with("command = "))
            .unwrap()
            .to_owned();
        let argv = format!(
            "command = [\"sh\", \"{}/agent.sh\"]",
            repo.agent_dir().display()
        );
        repo.write(".runner/state/config.toml", text.replacen(&line, &argv, 1));
        repo.agent(WORK);
        repo.runner(&["start"]).success();
        assert_eq!(step(&repo)["guard"], "pass");
    }
}

#[test]
fn an_agent_that_takes_too_long() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("iteration_timeout_secs", 3);
    });
    repo.agent("echo kept > kept.txt; echo begun; out done 'too early'; sleep 600");
    repo.start_run(GOAL, &["true"]);
    let meta = expect_error(&repo, "timeout");
    assert_eq!(meta["executor"]["exit_code"], Value::Null);
    assert!(
        meta["error"]["message"].as_str().unwrap().contains("3 s"),
        "{meta:#}"
    );
    assert!(changed_files(&repo).contains(&"kept.txt".to_owned()));
    let log = std::fs::read_to_string(repo.iteration(1).join("executor.log")).unwrap();
    assert!(log.starts_with("begun"), "{log}");
    runner_testkit::assert_no_process(&repo.agent_dir().display().to_string());
    repo.agent(WORK);
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn an_agent_that_falls_silent() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("executor.idle_timeout_secs", 1);
    });
    repo.agent("echo begun; sleep 600");
    repo.start_run(GOAL, &["true"]);
    expect_error(&repo, "idle");
}

#[test]
fn a_guard_that_takes_too_long() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("iteration_timeout_secs", 3);
    });
    repo.agent(WORK);
    repo.start_run(
        GOAL,
        &["sh", "-c", "echo guarding; [ -e fast ] || sleep 600"],
    );
    let meta = expect_error(&repo, "guard_timeout");
    assert_eq!(meta["guard_run"]["exit_code"], Value::Null);
    assert_eq!(meta["guard"], "skipped");
    assert_eq!(scenario::trailer(&repo, "Runner-Guard"), None);
    assert!(changed_files(&repo).contains(&"work.txt".to_owned()));
    repo.agent("touch fast; out done x");
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn a_guard_that_cannot_be_started() {
    for guard in ["/nowhere/guard", "no-such-guard-anywhere", "./README.md"] {
        let repo = started(WORK, &[guard]);
        let meta = expect_error(&repo, "guard_spawn");
        assert!(
            meta["error"]["message"].as_str().unwrap().contains(guard),
            "{meta:#}"
        );
        assert!(changed_files(&repo).contains(&"work.txt".to_owned()));
    }
}

#[test]
fn a_guard_that_ends_with_127_was_started() {
    // The shell's own word for a missing program is a failure like any other.
    let repo = started(WORK, &["sh", "-c", "no-such-guard-anywhere"]);
    assert_eq!(step(&repo)["guard"], "fail");
    assert_eq!(repo.node("root")["attempts"], 1);
}

#[test]
fn a_head_that_is_merely_detached_is_attached_again() {
    let repo = started(
        "git switch -q --detach; echo 1 > x.txt; out done x",
        &["true"],
    );
    assert_eq!(step(&repo)["guard"], "pass");
    assert_eq!(repo.git(&["branch", "--show-current"]), "runner/demo");
    check(&repo, "ok", "done", "pass");
}

#[test]
fn the_first_thing_that_went_wrong_is_not_the_agents_fault() {
    // A runner error comes before an agent error and an invalid tree.
    let repo = planned(&["a"], "", &["true"]);
    repo.agent("echo mine > .runner/GOAL.md; echo broken > \"$TREE\"; exit 0");
    expect_error(&repo, "no_output");
    assert_eq!(
        repo.read(".runner/GOAL.md"),
        GOAL,
        "restored in every class"
    );
    repo.runner(&["validate"]).success();
    repo.agent("tree_edit 't[\"children\"] = []'; exit 0");
    expect_error(&repo, "no_output");
    assert_eq!(repo.node("a")["attempts"], 0);
}

#[test]
fn what_the_agent_was_to_hear_stays_as_it_was() {
    let repo = planned(
        &["a", "b"],
        "",
        &["sh", "-c", "echo the guard says no; exit 1"],
    );
    repo.agent_at(2, "out retry 'half of it'");
    step(&repo);
    repo.agent("exit 0");
    failed_step(&repo);
    let history = context_file(&repo, ".runner/context/history.md");
    assert!(history.contains("half of it"), "{history}");
    failed_step(&repo);
    assert_eq!(context_file(&repo, ".runner/context/history.md"), history);
    assert!(!repo.workspace(".runner/context/failure.md").exists());

    repo.agent_at(5, WORK);
    step(&repo);
    failed_step(&repo);
    let failure = context_file(&repo, ".runner/context/failure.md");
    assert!(failure.contains("the guard says no"), "{failure}");
    assert!(!repo.workspace(".runner/context/history.md").exists());
    failed_step(&repo);
    assert_eq!(context_file(&repo, ".runner/context/failure.md"), failure);
    // None of it speaks of the runner's own trouble.
    let prompt = std::fs::read_to_string(repo.iteration(7).join("prompt.md")).unwrap();
    assert!(!prompt.contains("without writing output.json"), "{prompt}");
}

#[test]
fn the_limit_of_iterations_counts_the_whole_run() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("max_iterations", 2);
    });
    repo.agent("exit 0");
    repo.start_run(GOAL, &["true"]);
    failed_step(&repo);
    failed_step(&repo);
    let run = repo.runner(&["step"]);
    scenario::human_error(&run, "the run has had its 2 iterations", "max_iterations");
    assert_eq!(
        error_code(&repo.runner(&["step", "--json"]).code(1)),
        "limit"
    );
    assert_eq!(repo.agent_calls().len(), 2);
    // Raising it by hand goes on where the run was.
    let config = repo.read(".runner/state/config.toml");
    let config = config.replace("max_iterations = 2", "max_iterations = 3");
    repo.write(".runner/state/config.toml", config);
    repo.commit_all("one more");
    repo.agent(WORK);
    assert_eq!(step(&repo)["iter"], 3);
    // A tree that is complete says so, limit or not.
    repo.runner(&["step"]).code(2);
}
