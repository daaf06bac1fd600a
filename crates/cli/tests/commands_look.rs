//! `status`, `tree`, `log` and `why`: before the start, while a step runs, and
//! when the run is stuck or complete.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::time::Duration;

use runner_testkit::{TestRepo, eventually};
use scenario::{GOAL, WAIT_FOR_GO, bare, error_code, failed_step, go, human_error, planned, step};
use serde_json::{Value, json};

const DONE: &str = "echo \"$RUNNER_NODE_ID\" >> work.txt; echo looking; out done 'did it'";

#[track_caller]
fn json_of(repo: &TestRepo, args: &[&str]) -> Value {
    let value = repo.runner(&[args, &["--json"]].concat()).success().json();
    assert_eq!(value["schema_version"], 1, "{value}");
    value
}

#[track_caller]
fn text_of(repo: &TestRepo, args: &[&str]) -> String {
    repo.runner(args).success().stdout
}

#[test]
fn before_the_start() {
    let mut repo = bare();
    repo.init_run("# Ship it\n\nAll.\n", &["true"]);
    let status = json_of(&repo, &["status"]);
    assert_eq!(status["run_id"], Value::Null);
    assert_eq!(status["branch"], Value::Null);
    assert_eq!(status["title"], "Ship it");
    assert_eq!(
        (&status["passed"], &status["leaves"]),
        (&json!(0), &json!(1))
    );
    assert!(text_of(&repo, &["status"]).contains("`runner start` begins one"));
    assert_eq!(text_of(&repo, &["tree"]), "▶ root  The goal\n");
    assert_eq!(json_of(&repo, &["why"])["state"], "next");
    assert_eq!(json_of(&repo, &["log"])["iterations"], json!([]));
    let run = repo.runner(&["log", "1"]);
    human_error(
        &run,
        "no run has been started here (run 'runner start')",
        "",
    );
    repo.runner(&["step"]).code(1).says("(run 'runner start')");
}

#[test]
fn after_the_start() {
    let mut repo = bare();
    repo.start_run(GOAL, &["true"]);
    let status = json_of(&repo, &["status"]);
    assert_eq!(status["run_id"], "demo");
    assert_eq!(status["branch"], "runner/demo");
    assert_eq!(status["state"], "open");
    assert_eq!(status["next"]["path"], "root");
    assert_eq!(
        (&status["next_iter"], &status["max_iterations"]),
        (&json!(1), &json!(100))
    );
    assert_eq!(status["running_pid"], Value::Null);
    assert_eq!(status["last"]["status"], Value::Null);
    let run = repo.runner(&["log"]).success();
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("no iterations"), "{}", run.describe());
    human_error(
        &repo.runner(&["log", "7"]),
        "there is no iteration 7 of run demo",
        "runner log",
    );
    let run = repo.runner(&["log", "7", "--json"]).code(1);
    assert_eq!(error_code(&run), "not_found");
}

#[test]
fn while_a_step_runs() {
    let repo = planned(&["a"], &format!("{WAIT_FOR_GO}{DONE}"), &["true"]);
    let running = repo.spawn_runner(&["step", "--json"]);
    eventually("the session", Duration::from_secs(20), || {
        repo.agent_calls().len() == 2
    });
    let status = json_of(&repo, &["status"]);
    assert_eq!(status["state"], "running");
    assert_eq!(status["running_pid"], running.pid());
    let human = text_of(&repo, &["status"]);
    assert!(
        human.contains(&format!("running (pid {})", running.pid())),
        "{human}"
    );
    let log = json_of(&repo, &["log"]);
    assert_eq!(log["iterations"][1], json!({"iter": 2, "meta": null}));
    assert!(text_of(&repo, &["log"]).contains("   2  (not finished)"));
    human_error(
        &repo.runner(&["log", "2"]),
        "iteration 2 is not finished",
        "",
    );
    // A second runner is refused at once and told who is first.
    human_error(
        &repo.runner(&["init", "--upgrade"]),
        "another runner is at work",
        "wait for it",
    );
    for command in ["step", "loop", "start"] {
        let run = repo.runner(&[command]);
        human_error(&run, &format!("pid {}", running.pid()), "wait for it");
        let run = repo.runner(&[command, "--json"]).code(1);
        assert_eq!(error_code(&run), "locked");
    }
    go(&repo);
    assert_eq!(running.wait().success().json()["guard"], "pass");
    assert_eq!(json_of(&repo, &["status"])["running_pid"], Value::Null);
    repo.assert_clean();
}

#[test]
fn half_way_through() {
    let repo = planned(
        &["a", "b", "c"],
        DONE,
        &["sh", "-c", "echo guarded; grep -q b work.txt"],
    );
    // The guard fails for a once, then an attempt of b is thrown away.
    step(&repo);
    repo.agent_at(3, "echo b >> work.txt; out done 'now b is there'");
    step(&repo);
    repo.agent_at(4, "out retry 'could not decide\nsecond line'");
    step(&repo);

    let status = json_of(&repo, &["status"]);
    assert_eq!(
        (&status["passed"], &status["leaves"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(status["iterations"], 4);
    assert_eq!(
        status["last"],
        json!({"status": "retry", "guard": "skipped", "node_id": "b",
               "summary": "could not decide\nsecond line"})
    );
    let human = text_of(&repo, &["status"]);
    for words in [
        "run demo on runner/demo: open",
        "1 of 3 passed",
        "root/b (attempts used: 1 of 3)",
        "iterations: 4 of at most 100",
        "b: retry, guard skipped",
        "could not decide",
    ] {
        assert!(human.contains(words), "{words:?} in:\n{human}");
    }

    insta::assert_snapshot!(text_of(&repo, &["tree"]), @r"
    ○ root  Ship it  1 of 3
    ├─ ✓ a  Leaf a
    ├─ ▶ b  Leaf b  1 of 3 attempts used
    └─ ○ c  Leaf c
    ");
    assert_eq!(json_of(&repo, &["tree"])["tree"], repo.tree());

    let rows: Vec<String> = text_of(&repo, &["log"])
        .lines()
        .map(|line| {
            line.split_whitespace()
                .take(5)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        rows,
        [
            "1 root decompose decomposed guard",
            "2 a execute done guard",
            "3 a execute done guard",
            "4 b execute retry guard",
        ]
    );

    insta::assert_snapshot!(text_of(&repo, &["why"]), @r"
    root/b: next
      it is the leftmost open leaf: siblings are taken by order, then id
      attempts used: 1 of 3
    ");
    insta::assert_snapshot!(text_of(&repo, &["why", "a"]), @r"
    root/a: passed
      it has passed: an agent said done and the guard was green
    ");
    insta::assert_snapshot!(text_of(&repo, &["why", "c"]), @r"
    root/c: waiting
      root/b comes first: b has order 2, c has order 3
    ");
    insta::assert_snapshot!(text_of(&repo, &["why", "root"]), @r"
    root: waiting
      it has children and passes when all of them have (1 of 3 leaves passed)
    ");
    human_error(
        &repo.runner(&["why", "nobody"]),
        "no node \"nobody\"",
        "runner tree",
    );
    let run = repo.runner(&["why", "nobody", "--json"]).code(1);
    assert_eq!(error_code(&run), "not_found");
}

#[test]
fn one_iteration_in_full() {
    let repo = planned(
        &["a"],
        DONE,
        &["sh", "-c", "echo guarded; grep -q b work.txt"],
    );
    step(&repo);
    let value = json_of(&repo, &["log", "2"]);
    assert_eq!(value["run_id"], "demo");
    assert_eq!(value["iter"], 2);
    assert_eq!(value["meta"], repo.meta(2));
    assert_eq!(
        value["output"],
        json!({"status": "done", "summary": "did it"})
    );
    assert_eq!(value["guard_log"], "guarded\n");
    assert_eq!(value["executor_log"], "looking\n");
    assert_eq!(value["commit"], repo.head());
    assert!(value["diff"].as_str().unwrap().contains("+a"), "{value}");
    assert!(
        !value["diff"].as_str().unwrap().contains(".runner"),
        "{value}"
    );
    assert_eq!(value["runner_error"], Value::Null);
    let human = text_of(&repo, &["log", "2"]);
    for words in [
        "iteration 2 of run demo: a",
        "guard fail",
        "did it",
        "guarded",
        "work.txt",
        &repo.head(),
    ] {
        assert!(human.contains(words), "{words:?} in:\n{human}");
    }

    repo.agent("exit 3");
    failed_step(&repo);
    let human = text_of(&repo, &["log", "3"]);
    assert!(
        human.contains("the agent ended without writing output.json"),
        "{human}"
    );
    repo.agent("echo x > .runner/GOAL.md; out done x");
    step(&repo);
    let human = text_of(&repo, &["log", "4"]);
    assert!(
        human.contains("what was not accepted\n.runner/GOAL.md belongs to"),
        "{human}"
    );
}

#[test]
fn a_dot_in_a_runs_id_is_a_dot() {
    let mut repo = bare();
    repo.agent("echo \"$RUNNER_RUN_ID\" > who.txt; out done x");
    repo.start_run("---\nid: v1.0\n---\n# One\n", &["true"]);
    step(&repo);
    let first = repo.head();
    repo.write(".runner/GOAL.md", "---\nid: v1x0\n---\n# Two\n");
    repo.runner(&["start"]).success();
    step(&repo);
    repo.git(&["branch", "-f", "runner/v1.0", "HEAD"]);
    repo.git(&["switch", "-q", "--detach"]);
    repo.write(
        ".runner/state/run_state.json",
        repo.git(&["show", &format!("{first}:.runner/state/run_state.json")]),
    );
    assert_eq!(json_of(&repo, &["log", "1"])["commit"], first);
}

#[test]
fn what_agents_say_cannot_move_the_cursor() {
    let repo = planned(
        &["a"],
        "",
        &["sh", "-c", "printf '\\033[2Jgone\\n'; exit 1"],
    );
    repo.agent("tree_edit 'n(\"a\")[\"title\"] = \"x\\x1b[2Jy\"'; out done \"$(printf 'a\\tb')\"");
    step(&repo);
    for args in [
        &["tree"][..],
        &["status"],
        &["log"],
        &["log", "2"],
        &["why", "a"],
    ] {
        let run = repo.runner(args).success();
        assert!(!run.stdout.contains('\x1b'), "{}", run.describe());
        assert!(!run.stderr.contains('\x1b'), "{}", run.describe());
    }
}

#[test]
fn when_stuck() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("max_attempts_default", 1);
    });
    repo.agent("out retry 'no idea'");
    repo.start_run(GOAL, &["true"]);
    step(&repo);
    assert_eq!(json_of(&repo, &["status"])["state"], "stuck");
    let human = text_of(&repo, &["status"]);
    assert!(human.contains("run demo on runner/demo: stuck"), "{human}");
    assert_eq!(
        text_of(&repo, &["tree"]),
        "✗ root  Ship it  stuck: 1 of 1 attempts used\n"
    );
    assert_eq!(json_of(&repo, &["why"])["state"], "stuck");
    insta::assert_snapshot!(text_of(&repo, &["why"]), @r"
    root: stuck
      it is the leftmost open leaf
      but all 1 of its attempts are used up: the loop stops here until a person acts
      iteration 1, wants another try: no idea
      what helps:
        runner retry root  give it more attempts
        runner edit tree   change, split or remove it
        runner log 1       its last try in full
    ");
}

#[test]
fn when_complete() {
    let repo = planned(&["a"], DONE, &["true"]);
    step(&repo);
    let status = json_of(&repo, &["status"]);
    assert_eq!(status["state"], "complete");
    assert_eq!(status["next"], json!({"status": "complete"}));
    assert_eq!(
        (&status["passed"], &status["leaves"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        text_of(&repo, &["tree"]),
        "✓ root  Ship it  1 of 1\n└─ ✓ a  Leaf a\n"
    );
    assert_eq!(json_of(&repo, &["why"])["state"], "complete");
    insta::assert_snapshot!(text_of(&repo, &["why"]), @r"
    root: complete
      every leaf has passed: there is nothing left to do
    ");
    insta::assert_snapshot!(text_of(&repo, &["why", "root"]), @r"
    root: passed
      it has passed: all of its children have
    ");
}

#[test]
fn while_a_repair_is_pending() {
    let repo = planned(&["a"], "echo broken > \"$TREE\"; out done x", &["true"]);
    step(&repo);
    let status = json_of(&repo, &["status"]);
    assert_eq!(status["state"], "repair");
    assert_eq!(status["next"], json!({"status": "repair"}));
    assert_eq!(status["passed"], Value::Null);
    assert!(text_of(&repo, &["status"]).contains("the tree has to be repaired"));
    // There is no tree to show; the words say what comes next.
    for args in [&["tree"][..], &["why"], &["why", "a"]] {
        let run = repo.runner(args);
        human_error(&run, "tree.json", "the next step will have it repaired");
    }
    assert_eq!(
        json_of(&repo, &["log"])["iterations"][1]["meta"]["class"],
        "invalid_tree"
    );
}

/// Every path of the repository, git's folder included, with its size and the
/// time of its last change.
fn everything(repo: &TestRepo) -> Vec<String> {
    let mut find = repo.hermetic("find");
    find.args([".", "-printf", "%p %s %T@ %C@\n"]);
    let listing = find.output().expect("find starts").stdout;
    let mut lines: Vec<String> = String::from_utf8_lossy(&listing)
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

#[test]
fn looking_changes_nothing() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    step(&repo);
    // A file that git would love to note in its index as unchanged.
    repo.write("README.md", "# A project\n");
    let before = everything(&repo);
    for args in [
        &["validate"][..],
        &["select"],
        &["status"],
        &["tree"],
        &["log"],
        &["log", "2"],
        &["why"],
        &["why", "a"],
        &["report"],
        &["report", "--md"],
        &["schema", "tree"],
        &["replay"],
    ] {
        repo.runner(args).success();
        assert_eq!(everything(&repo), before, "{args:?}");
    }
}

#[test]
fn in_a_clone_without_logs() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    step(&repo);
    std::fs::remove_dir_all(repo.path(".runner/iterations")).unwrap();
    let status = json_of(&repo, &["status"]);
    assert_eq!(
        (&status["next_iter"], &status["iterations"]),
        (&json!(3), &json!(0))
    );
    assert!(text_of(&repo, &["status"]).contains("iterations: 2 of at most 100"));
    repo.runner(&["log"])
        .success()
        .says("no iterations are recorded in this clone");
    assert_eq!(step(&repo)["iter"], 3);
}
