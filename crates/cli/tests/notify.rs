//! `[notify] command`: what it is told and when, and that nothing it does matters.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod running_support;
mod scenario;

use std::path::{Path, PathBuf};

use runner_testkit::{TestRepo, assert_no_process, write_program};
use running_support::{LONG, NO_QUOTA, wait_for_phase};
use scenario::{GOAL, bare, human_error, plan};
use serde_json::{Value, json};

const WORK: &str = "echo work >> work.txt; out done 'did it'";

/// A run whose notifications go to this script, outside of the project.
fn notifying(agent: &str, script: &str, more: impl FnOnce(&mut TestRepo)) -> TestRepo {
    let mut repo = bare();
    let program = repo.agent_dir().join("tell");
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    let told = repo.agent_dir().join("told").display().to_string();
    repo.env("TOLD", told);
    repo.config(|config| {
        config.set("notify.command", json!([program, "first argument"]));
    });
    more(&mut repo);
    repo.agent(agent);
    repo.start_run(GOAL, &["true"]);
    repo
}

/// Writes down what it got; the environment is the person's own.
const RECORD: &str = r#"cat >> "$TOLD"; printf '%s in %s\n' "$1" "$(pwd)" > "$TOLD.how""#;

fn told(repo: &TestRepo) -> Vec<Value> {
    let text = std::fs::read_to_string(repo.agent_dir().join("told")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The events `notified` of the run.
fn notified(repo: &TestRepo) -> Vec<Value> {
    let mut events = repo.events();
    events.retain(|it| it["event"] == "notified");
    events
}

#[test]
fn a_complete_tree_is_told_with_everything() {
    let repo = notifying(WORK, RECORD, |_| {});
    plan(&repo, &["a", "b"]);
    repo.runner(&["loop"]).success();
    let told = told(&repo);
    assert_eq!(told.len(), 1, "{told:?}");
    let mut event = told[0].clone();
    assert!(event["ts"].take().as_str().unwrap().ends_with('Z'));
    let root = repo.path("").display().to_string();
    let root = root.trim_end_matches('/');
    assert_eq!(
        event,
        json!({
            "schema_version": 1, "event": "complete", "ts": null, "status": "complete",
            "run_id": "demo", "branch": "runner/demo", "project": root, "title": "Ship it",
            "passed": 2, "leaves": 2, "steps": 2, "node": null,
            "message": "every leaf has passed", "code": null, "until": null,
            "next": format!("runner -C '{root}' report"),
        })
    );
    let how = std::fs::read_to_string(repo.agent_dir().join("told.how")).unwrap();
    assert_eq!(how, "first argument in /\n");
    assert_eq!(notified(&repo)[0]["ok"], true);
    assert_eq!(repo.events().last().unwrap()["event"], "finished");
    repo.assert_clean();
}

/// What is different before the run starts.
type SetUp = fn(&mut TestRepo);

#[test]
fn stuck_limit_and_error_are_told() {
    let cases: [(&str, SetUp, i32, &str, Value, &str); 3] = [
        (
            "out retry 'no'",
            |repo| {
                repo.config(|config| {
                    config.set("max_attempts_default", 1);
                });
            },
            3,
            "stuck",
            json!(null),
            "why root",
        ),
        (
            "out retry 'no'",
            |repo| {
                repo.config(|config| {
                    config.set("max_iterations", 2);
                });
            },
            1,
            "limit",
            json!("limit"),
            "report",
        ),
        (
            "exit 0",
            |repo| {
                repo.config(|config| {
                    config.set("loop.max_consecutive_errors", 0);
                });
            },
            1,
            "error",
            json!("no_output"),
            "log",
        ),
    ];
    for (agent, change, exit, name, code, next) in cases {
        let repo = notifying(agent, RECORD, change);
        repo.runner(&["loop"]).code(exit);
        let told = told(&repo);
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        let event = &told[0];
        assert_eq!(
            (&event["event"], &event["status"], &event["code"]),
            (&json!(name), &json!(name), &code)
        );
        assert_eq!(
            (&event["node"], &event["passed"], &event["leaves"]),
            (&json!("root"), &json!(0), &json!(1))
        );
        assert!(!event["message"].as_str().unwrap().is_empty());
        assert!(event["next"].as_str().unwrap().ends_with(next), "{event}");
    }
}

#[test]
fn a_quota_is_told_once_when_it_ends_the_loop_and_when_it_is_waited_for() {
    let mut repo = notifying(NO_QUOTA, RECORD, |_| {});
    repo.runner(&["loop"]).code(1);
    let event = told(&repo).pop().unwrap();
    assert_eq!(
        (&event["event"], &event["status"], &event["code"]),
        (&json!("quota"), &json!("error"), &json!("quota"))
    );
    assert!(
        event["next"]
            .as_str()
            .unwrap()
            .ends_with("loop --wait-quota")
    );
    repo.env("RUNNER_RETRY_DELAYS_SECS", "3600");
    let running = repo.spawn_runner(&["loop", "--wait-quota"]);
    wait_for_phase(&repo, "waiting");
    repo.runner(&["stop"]).success();
    running.wait_within(LONG).success();
    let told = told(&repo);
    assert_eq!(told.len(), 2, "stopping is not told: {told:?}");
    assert_eq!(told[1]["status"], "waiting");
    assert!(told[1]["until"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn whoever_stopped_the_loop_is_not_told() {
    let repo = notifying(WORK, RECORD, |_| {});
    plan(&repo, &["a", "b"]);
    repo.runner(&["loop", "--steps", "1"]).success();
    assert!(told(&repo).is_empty());
}

/// The same, with what it knows.
type Change<'a> = &'a dyn Fn(&mut TestRepo);

#[test]
fn a_failure_is_only_logged() {
    let missing = |repo: &mut TestRepo| {
        repo.config(|config| {
            config.set("notify.command", json!(["no-such-program-anywhere"]));
        });
    };
    let cases: [(&str, Change<'_>, &str); 2] = [
        (
            "echo 'no \u{1b}[31mbus' >&2; exit 4",
            &|_| {},
            "exit code 4: no  [31mbus",
        ),
        ("", &missing, "no-such-program-anywhere"),
    ];
    for (script, change, words) in cases {
        let repo = notifying(WORK, script, |repo| change(repo));
        let run = repo.runner(&["loop"]).success();
        assert!(
            run.stderr
                .contains("note: the notification (complete) failed: ")
                && run.stderr.contains(words),
            "{}",
            run.describe()
        );
        let event = notified(&repo).pop().unwrap();
        assert_eq!(
            (&event["ok"], &event["notice"]),
            (&json!(false), &json!("complete"))
        );
        assert!(
            event["message"].as_str().unwrap().contains(words),
            "{event}"
        );
        assert_eq!(repo.events().last().unwrap()["status"], "complete");
        repo.assert_clean();
    }
}

#[test]
fn one_that_hangs_and_forks_costs_ten_seconds_and_leaves_nothing() {
    let script = r#"trap '' TERM
setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &
while :; do sleep 1; done"#;
    let repo = notifying(WORK, script, |_| {});
    let run = repo.runner(&["loop"]).success();
    assert!(
        run.stderr.contains("did not end within 10 s"),
        "{}",
        run.describe()
    );
    let spent = notified(&repo)[0]["duration_ms"].as_u64().unwrap();
    // More than ten only by the time that a busy machine takes to end processes.
    assert!((9_000..20_000).contains(&spent), "{spent}");
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn what_it_leaves_behind_is_ended() {
    let script = r#"setsid sh -c 'trap "" HUP; sleep 1000' </dev/null >/dev/null 2>&1 &
echo ok"#;
    let repo = notifying(WORK, script, |_| {});
    let run = repo.runner(&["loop"]).success();
    assert!(!run.stderr.contains("failed"), "{}", run.describe());
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn nothing_that_a_session_could_change_is_run() {
    // By the config.
    let inside = |repo: &TestRepo| repo.path("tell.sh").display().to_string();
    for command in [
        |_: &TestRepo| json!(["./tell.sh"]),
        |repo: &TestRepo| json!([repo.path("tell.sh")]),
        |repo: &TestRepo| json!(["sh", repo.path("tell.sh")]),
        |repo: &TestRepo| json!(["sh", repo.agent_dir().join("link")]),
    ] {
        let mut repo = bare();
        std::os::unix::fs::symlink(inside(&repo), repo.agent_dir().join("link")).unwrap();
        repo.write("tell.sh", "exit 0\n");
        repo.commit_all("A script");
        let command = command(&repo);
        repo.config(|config| {
            config.set("notify.command", command.clone());
        });
        repo.agent(WORK);
        repo.init_run(GOAL, &["true"]);
        let run = repo.runner(&["validate"]);
        human_error(&run, "a session could change", "outside of the project");
    }
    // By a PATH that leads into the project.
    let mut repo = bare();
    repo.config(|config| {
        config.set("notify.command", json!(["tell-me"]));
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = vec![repo.path("bin")];
    folders.extend(std::env::split_paths(&path));
    repo.env("PATH", std::env::join_paths(folders).unwrap());
    let mark = repo.agent_dir().join("mark");
    std::fs::create_dir_all(repo.path("bin")).unwrap();
    let program = format!("#!/bin/sh\ntouch {}\n", mark.display());
    runner_testkit::write_program(&repo.path("bin/tell-me"), &program);
    repo.commit_all("As a run may have landed it");
    repo.agent(WORK);
    repo.start_run(GOAL, &["true"]);
    let run = repo.runner(&["loop"]).success();
    assert!(
        run.stderr.contains("lies in the project"),
        "{}",
        run.describe()
    );
    assert!(!Path::new(&mark).exists());
}
