//! `runner start` tries the guard once where a new run begins, and only tells.

mod scenario;

use std::fs;
use std::time::Duration;

use runner_testkit::{TestRepo, assert_no_process};
use scenario::{BIN, GOAL, bare};
use serde_json::Value;

/// Starts with `--json`: what the guard said, and what people read about it.
#[track_caller]
fn start(repo: &TestRepo, options: &[&str]) -> (String, String) {
    let args = [&["start", "--json"], options].concat();
    let run = repo.runner(&args).success();
    repo.assert_clean();
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    let tmp = fs::read_dir(repo.root().join("tmp")).expect("the temp folder is there");
    assert_eq!(tmp.count(), 0, "something is left in the temp folder");
    match &run.json()["guard_at_base"] {
        Value::String(word) => (word.clone(), run.stderr),
        other => panic!("{other}\n{}", run.describe()),
    }
}

/// A project with this guard that has not been started.
fn fresh(guard: &[&str]) -> TestRepo {
    let mut repo = bare();
    repo.init_run(GOAL, guard);
    repo
}

#[test]
fn green_red_or_not_known() {
    for (guard, expected, words) in [
        (&["test", "-e", "README.md"][..], "pass", ""),
        // The state of the run is there, as it will be for every step.
        (&["test", "-e", ".runner/state/tree.json"], "pass", ""),
        (
            &["sh", "-c", "exit 4"],
            "fail",
            "note: the guard is red at the start: `sh -c exit 4` gave exit 4 before any work",
        ),
        (
            &["no-such-guard"],
            "unknown",
            "not known: it cannot start `no-such-guard`",
        ),
    ] {
        let (verdict, told) = start(&fresh(guard), &[]);
        assert_eq!(verdict, expected, "{guard:?}\n{told}");
        assert!(told.contains(words), "{guard:?}\n{told}");
        assert_eq!(told.contains("guard"), !words.is_empty(), "{told}");
    }
}

#[test]
fn a_slow_guard_holds_up_no_start() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("iteration_timeout_secs", 1);
    });
    repo.init_run(GOAL, &["sleep", "600"]);
    let (verdict, told) = start(&repo, &[]);
    assert_eq!(verdict, "unknown");
    assert!(
        told.contains("`sleep 600` did not end within 1 s"),
        "{told}"
    );
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn asked_once_and_only_if_wanted() {
    let guard = ["sh", "-c", "echo run >> \"$TMPDIR/../agent/guard-runs\""];
    let runs = |repo: &TestRepo| fs::read_to_string(repo.agent_dir().join("guard-runs")).is_ok();
    let mut repo = bare();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.init_run(GOAL, &guard);
    assert_eq!(start(&repo, &["--no-guard-check"]).0, "skipped");
    // A second start has nothing to begin.
    assert_eq!(start(&repo, &[]).0, "skipped");
    repo.write(".runner/INSTRUCTIONS.md", "Be kind.\n");
    assert_eq!(start(&repo, &[]).0, "skipped");
    assert!(!runs(&repo), "the guard ran");

    repo.git(&["switch", "--quiet", "main"]);
    assert_eq!(start(&repo, &[]).0, "skipped", "back to the run");
    assert!(!runs(&repo), "the guard ran");
}

#[test]
fn nothing_is_recorded_and_nothing_left() {
    let repo = fresh(&[
        "sh",
        "-c",
        "echo x > left-by-guard; echo y >> README.md; exit 1",
    ]);
    assert_eq!(start(&repo, &[]).0, "fail");
    assert!(!repo.exists("left-by-guard"));
    let events: Vec<Value> = repo.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(repo.subjects().len(), 2);
    // Quiet is quiet.
    let repo = fresh(&["false"]);
    assert_eq!(repo.runner(&["start", "--quiet"]).success().stderr, "");
}

#[test]
fn a_repository_without_a_commit() {
    let mut repo = TestRepo::empty(BIN);
    repo.write("ci.sh", "test -e ci.sh\n");
    repo.init_run(GOAL, &["sh", "ci.sh"]);
    assert_eq!(start(&repo, &[]).0, "pass");
}

#[test]
fn an_interrupt_leaves_the_run_begun() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.init_run(GOAL, &["sh", "-c", "touch \"$HOME/up\"; sleep 600"]);
    let running = repo.spawn_runner(&["start"]);
    let up = repo.root().join("home/up");
    runner_testkit::eventually("the guard", Duration::from_secs(20), || up.exists());
    running.signal("TERM");
    running
        .wait()
        .code(130)
        .says("the run has begun on runner/demo");
    assert_no_process(&repo.root().display().to_string());
    assert_eq!(start(&repo, &[]).0, "skipped");
    assert_eq!(repo.run_id(), "demo");
}
