//! Who begins when: at once as preflight says, later with the first work, and a planner
//! never against a backlog.
#![allow(clippy::unwrap_used)]

mod fleet_project;

use std::time::Duration;

use fleet_project::{issue, merged, plan, planned_task, repo};
use runner_testkit::{TestChild, TestRepo, eventually};
use serde_json::Value;

/// Answers a planner's question with the next of the plans `plan-1`, `plan-2`, …; else does
/// the task, of an issue or of a plan.
const PLANS_AND_WORKS: &str = "if [ \"$RUNNER_QUESTION\" = plan ]; then \
     echo x >> \"$AGENT_DIR/asked\"; n=$(wc -l < \"$AGENT_DIR/asked\")\n\
     cp \"$AGENT_DIR/plan-$n\" \"$RUNNER_OUTPUT_PATH\"; exit 0; fi\n\
     id=${RUNNER_RUN_ID%-*}; case \"$id\" in p????????-*) echo hi > \"${id#*-}.txt\";; \
     *) mkdir -p \"$id\"; echo hi > \"$id/file\";; esac; out done did";

fn plans(repo: &TestRepo, plans: &[String]) {
    for (at, plan) in plans.iter().enumerate() {
        std::fs::write(repo.agent_dir().join(format!("plan-{}", at + 1)), plan).unwrap();
    }
    repo.agent(PLANS_AND_WORKS);
}

fn says(running: &TestChild, words: &str) {
    eventually(words, Duration::from_secs(60), || {
        running.stderr_so_far().contains(words)
    });
}

fn end(running: TestChild) -> String {
    running.signal("INT");
    running
        .wait_within(Duration::from_secs(60))
        .code(130)
        .stderr
}

/// A project in which one task waits for a person, and nothing else.
fn parked() -> TestRepo {
    let repo = repo();
    repo.agent(PLANS_AND_WORKS);
    issue(&repo, 1, "Nobody says who does it.");
    repo.runner(&["fleet", "up", "--until-idle"]).code(3);
    repo
}

#[test]
fn roles_begin_with_their_first_work() {
    let repo = parked();
    let running = repo.spawn_runner(&["fleet", "up"]);
    says(&running, "Ctrl-C stops it");
    let at_once = running.stderr_so_far();
    for words in [
        "fleet up: nobody works yet; results are merged into main",
        "later, with their first work: 2 workers, 1 tester, 1 docser, 1 judge",
    ] {
        assert!(at_once.contains(words), "{words}: {at_once}");
    }
    assert!(
        !at_once.contains("begin:") && !at_once.contains("begins:"),
        "{at_once}"
    );
    repo.runner(&["task", "add", "late", "--scope", "late"])
        .success();
    for words in [
        "dispatcher begins: 1 task waits to start",
        "2 workers begin: a task for a worker is ready",
        "judge begins: 1 result waits for a judge",
        "late  merged after 1 run",
    ] {
        says(&running, words);
    }
    let said = end(running);
    assert!(
        !said.contains("tester begins"),
        "it has nothing to do: {said}"
    );
    assert_eq!(merged(&repo, "main"), ["late"]);
}

#[test]
fn a_plan_waits_for_the_backlog_and_begins_by_itself() {
    let repo = repo();
    plans(&repo, &[plan(&[planned_task("one", &[])])]);
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    let up = ["fleet", "up", "--until-idle", "--requirement", "One file."];
    let run = repo.runner(&up).success();
    for words in [
        "warning: Planner is skipped for this launch",
        "planner begins: the requirement can be planned, nothing else is open",
    ] {
        assert!(run.stderr.contains(words), "{words}: {}", run.describe());
    }
    assert!(repo.exists("issue-1/file") && repo.exists("one.txt"));
}

#[test]
fn a_plan_that_is_sent_back_is_told() {
    let repo = repo();
    let circle = plan(&[planned_task("one", &["two"]), planned_task("two", &["one"])]);
    plans(&repo, &[circle, plan(&[planned_task("one", &[])])]);
    let up = ["fleet", "up", "--until-idle", "--requirement", "One file."];
    let run = repo.runner(&up).success();
    for words in [
        "warning: plan 1 of 3 cannot be used and is sent back to the planner:",
        "  the tasks depend on each other in a circle: `one` -> `two` -> `one`",
    ] {
        assert!(run.stderr.contains(words), "{words}: {}", run.describe());
    }
    assert!(
        !run.stderr.contains("no plan could be used"),
        "{}",
        run.describe()
    );
    assert!(repo.exists("one.txt"));
}

#[test]
fn without_a_plan_that_can_be_used_it_ends() {
    let repo = repo();
    let empty = || plan(&[]);
    plans(&repo, &[empty(), empty(), empty()]);
    let up = [
        "fleet",
        "up",
        "--until-idle",
        "--json",
        "--requirement",
        "One.",
    ];
    let told = repo.runner(&up).json_lines();
    let events: Vec<&str> = told
        .iter()
        .filter_map(|one| one["event"].as_str())
        .collect();
    let expected = [
        "started",
        "plan_sent_back",
        "plan_sent_back",
        "no_plan",
        "finished",
    ];
    assert_eq!(events, expected);
    assert_eq!(told[1]["attempt"], 1);
    assert!(!told[1]["findings"].as_array().unwrap().is_empty());
}

#[test]
fn a_planner_alone() {
    let repo = repo();
    plans(&repo, &[plan(&[planned_task("one", &[])])]);
    let planner = ["fleet", "planner", "--requirement", "One file."];
    repo.runner(&planner[..2])
        .code(2)
        .says("there is no requirement to plan");
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    repo.runner(&planner)
        .code(2)
        .says("the backlog comes first: 1 open issue");
    let refused = repo.runner(&["fleet", "planner", "--json", "--requirement", "One file."]);
    assert_eq!(refused.code(2).json()["error"]["code"], "PLANNER_REFUSED");
    std::fs::remove_file(repo.path(".runner/fleet/issues/1-x.md")).unwrap();

    let running = repo.spawn_runner(&planner);
    says(&running, "planner-1 is at work");
    says(&running, "planned: 1 task");
    end(running);
    repo.runner(&planner)
        .code(2)
        .says("the requirement was planned before");
    repo.runner(&["fleet", "planner", "--requirement", "Two files."])
        .code(2)
        .says("the backlog comes first: 1 open task");
    let tasks = repo.runner(&["task", "list", "--json"]).success().json();
    let tasks = tasks["tasks"].as_array().map_or(0, Vec::len);
    assert_eq!(tasks, 1);
}

#[test]
fn a_source_that_fails_while_a_planner_waits_keeps_it_from_planning() {
    let repo = repo();
    plans(&repo, &[plan(&[planned_task("one", &[])])]);
    repo.write(".runner/fleet/issues/plain.md", "# No number\n");
    // It may start, with a warning at preflight; while it runs, the gate is closed.
    let running = repo.spawn_runner(&["fleet", "planner", "--requirement", "One file."]);
    says(
        &running,
        "the planner waits: backlog source local failed: plain.md: it has no number",
    );
    end(running);
    let tasks = repo.runner(&["task", "list", "--json"]).success().json();
    assert_eq!(tasks["tasks"], Value::Array(Vec::new()));
    assert!(!repo.agent_dir().join("asked").exists());
}

#[test]
fn what_is_written_while_it_runs_is_seen_at_once() {
    let repo = parked();
    plans(&repo, &[plan(&[planned_task("one", &[])])]);
    let running = repo.spawn_runner(&["fleet", "up"]);
    says(&running, "Ctrl-C stops it");
    issue(&repo, 2, "Agent: worker\nAllowed paths: issue-2/**");
    says(&running, "issue-2  merged after 1 run");
    repo.write(".runner/fleet/issues/plain.md", "# No number\n");
    says(
        &running,
        "warning: Backlog source local failed: plain.md: it has no number",
    );
    std::fs::remove_file(repo.path(".runner/fleet/issues/plain.md")).unwrap();
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    says(&running, "issue-1  merged after 1 run");
    repo.write(".runner/fleet/requirement.md", "One file.\n");
    says(&running, "planner begins: the requirement can be planned");
    says(&running, "-one  merged after 1 run");
    end(running);
    assert!(repo.exists("one.txt"));
}
