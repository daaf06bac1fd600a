//! The workspaces of one machine on real git, with scripted agents.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod base;
mod checks;
mod questions;
mod sweep;
mod work;

use runner_testkit::TestRepo;
use serde_json::{Value, json};

/// A project with a config, a guard that is always green, and two folders.
fn project() -> TestRepo {
    let repo = TestRepo::new(env!("CARGO_BIN_EXE_fleet-test-workspaces"));
    repo.write("a/one.txt", "one\n");
    repo.write("b/two.txt", "two\n");
    repo.commit_all("Folders");
    repo.write_config();
    repo
}

/// Gives it an agent that only says that its quota is used up.
fn without_quota(repo: &mut TestRepo) {
    let bin = repo.root().join("bin");
    std::fs::create_dir(&bin).unwrap();
    runner_testkit::write_program(
        &bin.join("codex"),
        "#!/bin/sh\n\
         echo '{\"type\":\"turn.failed\",\"error\":{\"message\":\"You'\\''ve hit your usage limit. \
         Try again in 2 hours.\"}}'\nexit 1\n",
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    repo.env("PATH", path);
    repo.config(|config| {
        config.set("executor.backend", "codex");
        config.unset("executor.command");
    });
    repo.write_config();
}

/// What the workspaces answer.
#[track_caller]
fn ask(repo: &TestRepo, op: &str, order: &Value) -> Value {
    let run = repo.runner(&[op, &order.to_string()]).success();
    serde_json::from_str(&run.stdout).unwrap()
}

/// Why it does not.
#[track_caller]
fn refused(repo: &TestRepo, op: &str, order: &Value) -> String {
    let run = repo.runner(&[op, &order.to_string()]);
    assert_eq!(run.code, Some(1), "{run:?}");
    run.stderr
}

/// Works on a task to its end.
#[track_caller]
fn work(repo: &TestRepo, task: &str, token: u64) -> Value {
    let order = json!({"task": task, "run_id": format!("{task}-1"), "token": token});
    ask(repo, "work", &order)
}

/// The same with success; the result.
#[track_caller]
fn worked(repo: &TestRepo, task: &str) -> String {
    let worked = work(repo, task, 1);
    assert_eq!(worked["ending"], "complete", "{worked}");
    text(&worked["commit"])
}

/// Merges a result into the base as it is, and moves the base there.
#[track_caller]
fn merge(repo: &TestRepo, task: &str, result: &str) -> String {
    let base = ask(repo, "base", &json!({}));
    let run_id = format!("{task}-1");
    let order = json!({"base": base, "result": result, "task": task, "run_id": run_id});
    let merged = text(&ask(repo, "merge", &order)["commit"]);
    let moved = ask(repo, "move", &json!({"old": base, "new": merged}));
    assert_eq!(moved, true);
    merged
}

#[track_caller]
fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value}"))
        .to_owned()
}

/// All refs with one of these beginnings, without it.
fn refs(repo: &TestRepo, prefix: &str) -> Vec<String> {
    let listed = repo.git(&["for-each-ref", "--format=%(refname)", prefix]);
    let names = listed.lines().filter_map(|it| it.strip_prefix(prefix));
    names.map(str::to_owned).collect()
}

/// The files of a commit.
fn files(repo: &TestRepo, commit: &str) -> Vec<String> {
    let listed = repo.git(&["ls-tree", "-r", "--name-only", commit]);
    listed.lines().map(str::to_owned).collect()
}

/// What lies among the repositories of task runs: folders and locks.
fn task_run_folders(repo: &TestRepo) -> Vec<String> {
    let folders = repo.task_run_folders();
    let names = folders.iter().filter_map(|path| path.file_name()?.to_str());
    names.map(str::to_owned).collect()
}
