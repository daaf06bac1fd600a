//! `runner stop`: after the iteration, out of a pause, at once; and whom it asks.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod running_support;
mod scenario;

use std::fs;

use runner_testkit::{assert_no_process, eventually};
use running_support::{
    Detached, HOLD, LONG, NO_QUOTA, activity, go, wait_for_phase, wait_for_session,
};
use scenario::{planned, started};
use serde_json::json;

const WORK: &str = "echo work >> work.txt; out done 'did it'";

#[test]
fn nothing_to_stop_is_fine() {
    let repo = planned(&["a"], WORK, &["true"]);
    repo.runner(&["stop"])
        .success()
        .says("nothing is running here");
    let run = repo.runner(&["stop", "--now", "--json"]).success();
    assert_eq!(
        run.json(),
        json!({"result": "not_running", "schema_version": 1})
    );
}

#[test]
fn the_loop_ends_after_its_iteration() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    repo.agent_at(2, HOLD);
    let running = repo.spawn_runner(&["loop", "--json"]);
    wait_for_session(&repo, 2);
    let asked = repo.runner(&["stop", "--no-wait"]).success();
    assert!(
        asked
            .stderr
            .contains(&format!("pid {}) to end after iteration 2", running.pid())),
        "{}",
        asked.describe()
    );
    // Asked twice is asked.
    let mut stop = repo.spawn_runner(&["stop", "--json"]);
    assert_eq!(activity(&repo)["phase"], "agent", "the session goes on");
    assert!(stop.is_running(), "it waits");
    go(&repo);
    let run = running.wait_within(LONG).success();
    let last = run.json_lines().pop().unwrap();
    assert_eq!(
        (&last["status"], &last["steps"]),
        (&json!("stopped"), &json!(1))
    );
    assert!(last["reason"].as_str().unwrap().contains("runner stop"));
    let said = stop.wait_within(LONG).success().json();
    assert_eq!(said["result"], "ended");
    assert_eq!(said["last_end"]["status"], "stopped", "{said}");
    assert_eq!(repo.node("a")["passes"], true);
    assert_eq!(repo.node("b")["passes"], false);
    repo.assert_clean();
    assert!(!activity(&repo)["cut_off"].as_bool().unwrap());
    repo.runner(&["loop"]).success();
}

#[test]
fn a_loop_that_waits_is_woken() {
    let mut repo = planned(&["a"], "exit 0", &["true"]);
    repo.env("RUNNER_RETRY_DELAYS_SECS", "3600");
    for (script, kind, detached) in [("exit 0", "no_output", false), (NO_QUOTA, "quota", true)] {
        repo.agent(script);
        let (mut own, mut loop_) = (None, None);
        if detached {
            loop_ = Some(Detached::start(&repo, &["--wait-quota"]));
        } else {
            own = Some(repo.spawn_runner(&["loop"]));
        }
        let now = wait_for_phase(&repo, "waiting");
        assert_eq!(now["waiting"]["kind"], kind, "{now}");
        assert!(now["waiting"]["until"].is_string());
        repo.runner(&["status"])
            .success()
            .says("waiting:    until ");
        let run = repo.runner(&["stop"]).success();
        assert!(
            run.stderr.contains("before the next iteration")
                && run.stderr.contains("the loop has ended (stopped)"),
            "{}",
            run.describe()
        );
        assert!(run.elapsed < LONG);
        if let Some(own) = own {
            own.wait_within(LONG)
                .success()
                .says("stopped: it was asked");
        }
        drop(loop_);
        let now = activity(&repo);
        assert_eq!((&now["pid"], &now["waiting"]), (&json!(null), &json!(null)));
        repo.assert_clean();
    }
}

#[test]
fn now_ends_it_at_once_and_loses_nothing() {
    let repo = planned(&["a"], HOLD, &["true"]);
    let running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 2);
    let run = repo.runner(&["stop", "--now"]).success();
    assert!(
        run.stderr.contains("the loop has ended (interrupted)")
            && run.stderr.contains("settles the iteration"),
        "{}",
        run.describe()
    );
    running.wait_within(LONG).code(130);
    assert_no_process(&repo.root().display().to_string());
    assert!(activity(&repo)["cut_off"].as_bool().unwrap());
    go(&repo);
    repo.runner(&["loop"])
        .success()
        .says("recovered: iteration 2");
    assert_eq!(repo.node("a")["attempts"], 0);
    assert_eq!(repo.meta(2)["error"]["kind"], "interrupted");
}

#[test]
fn a_single_step_is_asked_too() {
    let repo = started(HOLD, &["true"]);
    let running = repo.spawn_runner(&["step"]);
    wait_for_session(&repo, 1);
    let now = activity(&repo);
    assert_eq!(
        (&now["phase"], &now["since"]),
        (&json!("agent"), &json!(null))
    );
    let stop = repo.spawn_runner(&["stop"]);
    go(&repo);
    running.wait_within(LONG).success();
    stop.wait_within(LONG)
        .success()
        .says("the runner has ended");
    assert_eq!(repo.node("root")["passes"], true);
}

#[test]
fn only_the_holder_of_the_lock_is_asked() {
    let repo = planned(&["a"], WORK, &["true"]);
    // Somebody wrote a pid into the file; nobody holds the lock.
    let mut sleeper = {
        let mut cmd = repo.hermetic("sleep");
        cmd.arg("1000");
        repo.spawn(cmd)
    };
    let lock = repo.path(".runner/iterations/lock");
    fs::write(&lock, format!("{}\n", sleeper.pid())).unwrap();
    for args in [&["stop"][..], &["stop", "--now"]] {
        repo.runner(args).success().says("nothing is running here");
    }
    assert!(sleeper.is_running());
    // Nor is it asked while a runner is at work.
    repo.agent_at(2, HOLD);
    let running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 2);
    fs::write(&lock, format!("{}\n", sleeper.pid())).unwrap();
    assert_eq!(activity(&repo)["pid"], running.pid());
    repo.runner(&["stop", "--now"]).success();
    running.wait_within(LONG).code(130);
    assert!(sleeper.is_running());
}

#[test]
fn one_that_would_die_of_the_question_is_not_asked() {
    let repo = planned(&["a"], WORK, &["true"]);
    // It holds the lock and has no handler, like an older runner.
    let mut cmd = repo.hermetic("flock");
    cmd.args(["--no-fork", ".", "sleep", "1000"]);
    let mut holder = repo.spawn(cmd);
    eventually("the lock", LONG, || activity(&repo)["pid"] == holder.pid());
    repo.runner(&["stop"])
        .code(1)
        .says("cannot be asked")
        .says("runner stop --now");
    assert!(holder.is_running());
    repo.runner(&["stop", "--now"])
        .success()
        .says("the runner has ended");
    assert!(!holder.is_running());
}
