//! A project with a fleet's config, issues, plans, and what was merged.
#![allow(dead_code)] // each test file uses some of it

use runner_testkit::TestRepo;
use serde_json::{Value, json};

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// Writes a file named after the task, in the folder that belongs to it.
pub(crate) const WORKS: &str =
    "id=${RUNNER_RUN_ID%-*}; mkdir -p \"$id\"; echo hi > \"$id/file\"; out done did";

/// A project with a config and a guard that is always green.
pub(crate) fn repo() -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    repo.env("RUNNER_FLEET_COOLDOWN_SECS", "0");
    repo.write("a/one.txt", "one\n");
    repo.commit_all("A file");
    repo.write_config();
    repo
}

pub(crate) fn issue(repo: &TestRepo, number: u32, text: &str) {
    let path = format!(".runner/fleet/issues/{number}-x.md");
    repo.write(path, format!("# Issue {number}\n\n{text}\n"));
}

pub(crate) fn three_issues(repo: &TestRepo) {
    for number in 1..=3 {
        let paths = format!("Agent: worker\nAllowed paths: issue-{number}/**");
        issue(repo, number, &paths);
    }
}

/// How often each task is in a branch.
pub(crate) fn merged(repo: &TestRepo, branch: &str) -> Vec<String> {
    let format = "--format=%(trailers:key=Runner-Task,valueonly)";
    let log = repo.git(&["log", format, branch]);
    let ids = log.lines().filter(|line| !line.trim().is_empty());
    let mut ids: Vec<String> = ids.map(str::to_owned).collect();
    ids.sort();
    ids
}

/// A task of a plan that changes a file named after it.
pub(crate) fn planned_task(id: &str, needs: &[&str]) -> Value {
    json!({
        "id": id, "title": "T", "goal": "G", "role": "worker",
        "allowed_paths": [format!("{id}.txt")], "forbidden_paths": [], "depends_on": needs,
        "commands": [], "priority": "normal", "risk": "low", "expects_change": true,
        "acceptance": [{"id": "guard", "text": "green", "check": "command"}],
    })
}

/// The answer of a planner.
pub(crate) fn plan(tasks: &[Value]) -> String {
    json!({ "tasks": tasks }).to_string()
}
