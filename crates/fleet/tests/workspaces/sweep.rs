//! What is left behind, and what stays.

use std::time::Duration;

use runner_testkit::{assert_no_process, eventually, signal};
use serde_json::json;

use crate::{ask, merge, project, refs, task_run_folders, work, worked};

#[test]
fn after_a_kill_a_sweep_leaves_no_folder_no_ref_and_no_process() {
    let repo = project();
    repo.agent(": > \"$AGENT_DIR/started\"; trap '' TERM; setsid sleep 600 & sleep 600");
    let order = json!({"token": 4}).to_string();
    let running = repo.spawn_runner(&["work", &order]);
    let started = repo.agent_dir().join("started");
    eventually("the session", Duration::from_secs(30), || started.exists());
    assert_eq!(task_run_folders(&repo).len(), 2);
    assert!(signal("KILL", i64::from(running.pid())));
    running.wait();
    // It waits for those who are still being ended.
    ask(&repo, "sweep", &json!({}));
    assert_eq!(task_run_folders(&repo), Vec::<String>::new());
    assert_no_process(&repo.root().display().to_string());
    assert_eq!(refs(&repo, "refs/runner/"), Vec::<String>::new());
    assert_eq!(refs(&repo, "refs/fleet/"), Vec::<String>::new());
    // The same owner, or the next, can begin again.
    repo.agent("echo x > a/x; out done did");
    assert_eq!(work(&repo, "task", 4)["ending"], "complete");
}

#[test]
fn a_run_that_is_killed_anywhere_can_be_made_again() {
    let mut repo = project();
    repo.agent("echo x > a/x; out done did");
    // What is made once is not made again.
    work(&repo, "first", 1);
    let trace = repo.root().join("points");
    repo.env("RUNNER_FAULT", format!("trace:{}", trace.display()));
    work(&repo, "traced", 1);
    let points = std::fs::read_to_string(&trace).unwrap().lines().count();
    assert!(points > 50, "{points}");
    // Some of them; all of them take minutes.
    for at in (3..=points).step_by(points / 6) {
        let task = format!("at{at}");
        let order = json!({"task": task, "run_id": format!("{task}-1")}).to_string();
        repo.env("RUNNER_FAULT", format!("kill@{at}"));
        let run = repo.runner(&["work", &order]);
        assert!(run.signal.is_some(), "{at}: {run:?}");
        repo.env_remove("RUNNER_FAULT");
        let again = work(&repo, &task, 1);
        assert_eq!(again["ending"], "complete", "{at}: {again}");
        assert_eq!(again["changes"], json!(["created a/x"]), "{at}");
    }
    ask(&repo, "sweep", &json!({}));
    assert_eq!(task_run_folders(&repo), Vec::<String>::new());
    assert_eq!(refs(&repo, "refs/runner/"), Vec::<String>::new());
    assert_eq!(refs(&repo, "refs/fleet/"), Vec::<String>::new());
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn what_is_in_use_stays_and_so_does_the_proof_of_what_was_merged() {
    let repo = project();
    repo.agent("echo $RUNNER_RUN_ID > a/$RUNNER_RUN_ID; out done did");
    let merged = worked(&repo, "merged");
    worked(&repo, "waiting");
    worked(&repo, "dropped");
    merge(&repo, "merged", &merged);
    let in_use = json!({"in_use": [["waiting", "waiting-1", 1]]});
    for _ in 0..2 {
        ask(&repo, "sweep", &in_use);
        assert_eq!(task_run_folders(&repo), ["waiting-1-1", "waiting-1-1.lock"]);
        assert_eq!(
            refs(&repo, "refs/runner/"),
            ["merged/merged-1", "seen/main", "waiting/waiting-1"]
        );
        let kept = refs(&repo, "refs/fleet/");
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(kept[0].ends_with("/waiting/waiting-1-1"), "{kept:?}");
    }
    ask(&repo, "sweep", &json!({}));
    assert_eq!(
        refs(&repo, "refs/runner/"),
        ["merged/merged-1", "seen/main"]
    );
    assert_eq!(refs(&repo, "refs/fleet/"), Vec::<String>::new());
    assert_eq!(task_run_folders(&repo), Vec::<String>::new());
}

#[test]
fn an_old_token_of_a_run_goes_and_the_new_one_stays() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    work(&repo, "task", 1);
    work(&repo, "task", 2);
    ask(&repo, "sweep", &json!({"in_use": [["task", "task-1", 2]]}));
    assert_eq!(task_run_folders(&repo), ["task-1-2", "task-1-2.lock"]);
    assert_eq!(refs(&repo, "refs/runner/"), ["task/task-1"]);
    assert_eq!(refs(&repo, "refs/fleet/").len(), 1);
}

#[test]
fn the_living_are_left_alone() {
    let repo = project();
    repo.agent(
        ": > \"$AGENT_DIR/started\"; while test ! -e \"$AGENT_DIR/go\"; do sleep 0.02; done\n\
         echo x > a/x; out done did",
    );
    let running = repo.spawn_runner(&["work", "{}"]);
    let started = repo.agent_dir().join("started");
    eventually("the session", Duration::from_secs(30), || started.exists());
    ask(&repo, "sweep", &json!({}));
    assert_eq!(task_run_folders(&repo).len(), 2);
    std::fs::write(repo.agent_dir().join("go"), "").unwrap();
    let done = running.wait().success();
    assert!(done.stdout.contains("\"complete\""), "{done:?}");
}

#[test]
fn names_that_mean_something_to_git() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    for task in ["lost", "HEAD", "a.b"] {
        let order = json!({"task": task, "run_id": format!("{task}-1")});
        let done = ask(&repo, "work", &order);
        assert_eq!(done["ending"], "complete", "{done}");
    }
    assert_eq!(refs(&repo, "refs/fleet/").len(), 3);
    ask(&repo, "sweep", &json!({}));
    assert_eq!(refs(&repo, "refs/fleet/"), Vec::<String>::new());
    assert_eq!(refs(&repo, "refs/runner/"), Vec::<String>::new());
}
