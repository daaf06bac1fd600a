//! `runner loop`: how it ends, what it tries again, its bounds, and the lines
//! and events that it leaves.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::{TestRepo, TestRun};
use scenario::{GOAL, bare, human_error, planned, started};
use serde_json::{Value, json};

const WORK: &str = "echo work >> work.txt; out done 'did it'";

/// The lines of `loop --json`: the steps, and the last one.
#[track_caller]
fn lines(run: &TestRun) -> (Vec<Value>, Value) {
    let mut lines = run.json_lines();
    assert!(
        lines.iter().all(|line| line["schema_version"] == 1),
        "{}",
        run.describe()
    );
    let last = lines.pop().unwrap_or_default();
    assert_eq!(last["event"], "finished", "{}", run.describe());
    lines.retain(|line| line["event"] == "step");
    assert_eq!(last["steps"], lines.len(), "{}", run.describe());
    (lines, last)
}

#[track_caller]
fn finished(repo: &TestRepo, code: i32, args: &[&str]) -> (Vec<Value>, Value) {
    let run = repo
        .runner(&[&["loop", "--json"], args].concat())
        .code(code);
    repo.assert_clean();
    let (steps, last) = lines(&run);
    let events = repo.events();
    let event = events.last().cloned().unwrap_or_default();
    assert_eq!(
        (&event["event"], &event["status"], &event["steps"]),
        (&json!("finished"), &last["status"], &last["steps"])
    );
    (steps, last)
}

#[test]
fn until_the_tree_is_complete() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    repo.agent_at(3, "out retry 'again'");
    let (steps, last) = finished(&repo, 0, &[]);
    assert_eq!(last["status"], "complete");
    let told: Vec<_> = steps
        .iter()
        .map(|it| {
            (
                it["iter"].as_u64().unwrap(),
                it["node_id"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [(2, "a"), (3, "b"), (4, "b")]);
    for key in [
        "run_id", "iter", "node_id", "status", "guard", "attempts", "passes",
    ] {
        assert!(
            steps.iter().all(|it| it.get(key).is_some()),
            "{key} in {steps:?}"
        );
    }
    // Again: nothing to do is not an error here.
    let (steps, last) = finished(&repo, 0, &[]);
    assert_eq!(
        (steps.len(), &last["status"], &last["steps"]),
        (0, &json!("complete"), &json!(0))
    );
    let run = repo.runner(&["loop"]).success();
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("complete"), "{}", run.describe());
}

#[test]
fn until_it_is_stuck() {
    let repo = planned(&["a", "b"], "out retry 'cannot'", &["true"]);
    let (steps, last) = finished(&repo, 3, &[]);
    assert_eq!((steps.len(), &last["status"]), (3, &json!("stuck")));
    assert_eq!(
        (&last["node_id"], &last["path"]),
        (&json!("a"), &json!("root/a"))
    );
    let (steps, last) = finished(&repo, 3, &[]);
    assert_eq!((steps.len(), &last["status"]), (0, &json!("stuck")));
    repo.runner(&["loop"])
        .code(3)
        .says("stuck: root/a has used up its 3 attempts");
}

#[test]
fn until_the_limit_of_the_run() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("max_iterations", 2);
    });
    repo.agent("out retry 'x'");
    repo.start_run(GOAL, &["true"]);
    let (steps, last) = finished(&repo, 1, &[]);
    assert_eq!((steps.len(), &last["status"]), (2, &json!("limit")));
    assert_eq!(last["error"]["code"], "limit");
    let (steps, last) = finished(&repo, 1, &[]);
    assert_eq!((steps.len(), &last["status"]), (0, &json!("limit")));
    human_error(
        &repo.runner(&["loop"]),
        "the run has had its 2 iterations",
        "max_iterations",
    );
}

#[test]
fn passing_troubles_are_tried_again_and_then_end_it() {
    for (script, kind) in [
        ("exit 0", "no_output"),
        ("echo x > \"$RUNNER_OUTPUT_PATH\"", "malformed_output"),
    ] {
        let repo = started(script, &["true"]);
        let run = repo.runner(&["loop", "--json"]).code(1);
        let (steps, last) = lines(&run);
        assert_eq!(
            (steps.len(), &last["status"]),
            (4, &json!("error")),
            "one and three more"
        );
        assert!(
            steps.iter().all(|it| it["error"]["code"] == kind),
            "{steps:?}"
        );
        assert_eq!(last["error"]["code"], kind);
        let waits: Vec<Value> = run
            .json_lines()
            .into_iter()
            .filter(|line| line["event"] == "waiting")
            .collect();
        assert_eq!(waits.len(), 3);
        assert_eq!(repo.node("root")["attempts"], 0);
        assert_eq!(repo.run_state()["next_iter"], 5);
    }
}

#[test]
fn a_good_step_forgets_the_troubles_before() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("loop.max_consecutive_errors", 1);
    });
    repo.start_run(GOAL, &["true"]);
    repo.agent(WORK);
    repo.agent_at(1, "exit 0");
    repo.agent_at(2, "out retry x");
    repo.agent_at(3, "exit 0");
    let (steps, last) = finished(&repo, 0, &[]);
    assert_eq!((steps.len(), &last["status"]), (4, &json!("complete")));

    let mut repo = bare();
    repo.config(|config| {
        config.set("loop.max_consecutive_errors", 0);
    });
    repo.agent("exit 0");
    repo.start_run(GOAL, &["true"]);
    let (steps, last) = finished(&repo, 1, &[]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("error")));
    human_error_after(&repo.runner(&["loop"]), "without writing output.json");
}

/// The error of a loop that took a step: the step is on stdout.
#[track_caller]
fn human_error_after(run: &TestRun, message: &str) {
    assert_eq!(run.code, Some(1), "{}", run.describe());
    assert!(run.stdout.contains("runner error"), "{}", run.describe());
    let told = run
        .stderr
        .lines()
        .any(|it| it.starts_with("error: ") && it.contains(message));
    assert!(told, "{}", run.describe());
    assert!(run.stderr.contains("\nhint: "), "{}", run.describe());
}

#[test]
fn lasting_troubles_end_it_at_once() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("executor.command", json!(["/nowhere/agent"]));
    });
    repo.start_run(GOAL, &["true"]);
    let (steps, last) = finished(&repo, 1, &[]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("error")));
    assert_eq!(last["error"]["code"], "spawn");

    let repo = started(WORK, &["/nowhere/guard"]);
    let (steps, last) = finished(&repo, 1, &[]);
    assert_eq!(
        (steps.len(), &last["error"]["code"]),
        (1, &json!("guard_spawn"))
    );
}

#[test]
fn a_timeout_ends_it_or_is_tried_again() {
    for (on_timeout, code, iterations) in [("stop", 1, 1), ("retry", 0, 2)] {
        let mut repo = bare();
        repo.config(|config| {
            config.set("iteration_timeout_secs", 3);
            config.set("loop.on_timeout", on_timeout);
        });
        repo.agent(WORK);
        repo.agent_at(1, "sleep 600");
        repo.start_run(GOAL, &["true"]);
        let (steps, last) = finished(&repo, code, &[]);
        assert_eq!(steps.len(), iterations, "{on_timeout}");
        assert_eq!(steps[0]["error"]["code"], "timeout");
        assert_eq!(last["status"], if code == 0 { "complete" } else { "error" });
    }
}

#[test]
fn agent_errors_and_invalid_trees_do_not_end_it() {
    let repo = planned(&["a"], WORK, &["true"]);
    repo.agent_at(2, "echo x >> .runner/GOAL.md; out done x");
    repo.agent_at(3, "echo x > \"$TREE\"; out done x");
    repo.agent_at(
        4,
        "git show HEAD~1:.runner/state/tree.json > \"$TREE\"; out retry x",
    );
    let (steps, last) = finished(&repo, 0, &[]);
    let classes: Vec<&str> = steps.iter().filter_map(|it| it["class"].as_str()).collect();
    assert_eq!(classes, ["agent_error", "invalid_tree", "repaired", "ok"]);
    assert_eq!(last["status"], "complete");
    assert_eq!(repo.node("a")["attempts"], 1);
}

#[test]
fn at_most_so_many_steps() {
    let repo = planned(&["a", "b", "c"], WORK, &["true"]);
    let (steps, last) = finished(&repo, 0, &["--steps", "1"]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("stopped")));
    assert!(last["reason"].is_string(), "{last}");
    let (steps, last) = finished(&repo, 0, &["--steps", "0"]);
    assert_eq!((steps.len(), &last["status"]), (0, &json!("stopped")));
    let run = repo.runner(&["loop", "--steps", "1"]).success();
    assert!(run.stderr.contains("stopped: 1 step"), "{}", run.describe());
    // The step that was asked for last may be the one that completes the tree.
    let (steps, last) = finished(&repo, 0, &["--steps", "1"]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("complete")));
    let (_, last) = finished(&repo, 0, &["--steps", "0"]);
    assert_eq!(last["status"], "complete");

    // Or the one that uses up the last attempt.
    let repo = started("out retry x", &["true"]);
    let (steps, last) = finished(&repo, 3, &["--steps", "3"]);
    assert_eq!((steps.len(), &last["status"]), (3, &json!("stuck")));
}

#[test]
fn no_waiting_for_a_step_that_will_not_be_taken() {
    let mut repo = bare();
    repo.env("RUNNER_RETRY_DELAYS_SECS", "600");
    repo.agent("exit 0");
    repo.start_run(GOAL, &["true"]);
    for args in [["--steps", "1"], ["--for", "5m"]] {
        let (steps, last) = finished(&repo, 0, &args);
        assert_eq!(
            (steps.len(), &last["status"]),
            (1, &json!("stopped")),
            "{args:?}"
        );
    }
}

#[test]
fn for_a_while_and_until_an_hour() {
    let repo = planned(&["a", "b", "c"], WORK, &["true"]);
    let (steps, last) = finished(&repo, 0, &["--for", "0s"]);
    assert_eq!((steps.len(), &last["status"]), (0, &json!("stopped")));
    // A bound that is far away does not show: the hour is tomorrow's if it has passed.
    let (steps, last) = finished(&repo, 0, &["--for", "8h", "--steps", "1"]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("stopped")));
    let (steps, last) = finished(&repo, 0, &["--until", "00:00", "--steps", "1"]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("stopped")));
    let (steps, last) = finished(&repo, 0, &["--until", "23:59"]);
    assert_eq!((steps.len(), &last["status"]), (1, &json!("complete")));
}

#[test]
fn errors_before_the_first_step_are_the_last_line() {
    let repo = started(WORK, &["true"]);
    repo.write(".runner/state/questions.md", "dirty");
    let run = repo.runner(&["loop", "--json"]).code(1);
    let (steps, last) = lines(&run);
    assert_eq!((steps.len(), &last["status"]), (0, &json!("error")));
    assert_eq!(last["error"]["code"], "dirty");
    assert!(last["error"]["hint"].is_string());
    assert_eq!(repo.events().last().unwrap()["event"], "finished");
}

#[test]
fn people_get_one_line_a_step() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    repo.agent_at(2, "out retry 'again'");
    let run = repo.runner(&["loop"]).success();
    let rows: Vec<String> = run
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| words[..words.len() - 1].join(" "))
        .collect();
    assert_eq!(
        rows,
        [
            "↻ 2 a wants another try, attempts used: 1",
            "✓ 3 a done, guard passed",
            "✓ 4 b done, guard passed",
        ]
    );
    assert!(
        run.stderr
            .contains("complete: every leaf has passed (3 steps)"),
        "{}",
        run.describe()
    );
    assert!(
        !run.stdout.contains('\x1b') && !run.stdout.contains('\r'),
        "plain off a terminal"
    );
}

#[test]
fn a_signal_between_and_during_steps_is_130() {
    for signal in ["INT", "TERM", "HUP"] {
        let repo = planned(
            &["a"],
            &format!("{}{WORK}", scenario::WAIT_FOR_GO),
            &["true"],
        );
        let running = repo.spawn_runner(&["loop", "--json"]);
        runner_testkit::eventually("the session", std::time::Duration::from_secs(20), || {
            repo.agent_calls().len() == 2
        });
        running.signal(signal);
        let run = running.wait().code(130);
        let (steps, last) = lines(&run);
        assert_eq!(
            (steps.len(), &last["status"]),
            (0, &json!("interrupted")),
            "{signal}"
        );
        runner_testkit::assert_no_process(&repo.agent_dir().display().to_string());
        assert_eq!(repo.events().last().unwrap()["status"], "interrupted");
        // The next start settles it and goes on.
        scenario::go(&repo);
        let run = repo.runner(&["loop", "--json"]).success();
        assert_eq!(
            run.json_lines()[0]["event"],
            "recovered",
            "{}",
            run.describe()
        );
        assert_eq!(repo.node("a")["attempts"], 0);
        repo.assert_clean();
    }
}
