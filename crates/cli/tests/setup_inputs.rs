//! Sessions that change what setup reads: a lock file that names a package which does not exist.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use std::fs;

use agent_support::contained::with_mechanism;
use agent_support::hide_program;
use runner_testkit::TestRepo;
use scenario::{GOAL, bare, step};
use serde_json::json;

/// Installs what `deps.lock` names, and only `one` and `two` exist.
const SETUP: &str = "test ! -e \"$HOME/../gone\" || exit 9; echo installing; rm -rf made; mkdir made; while read -r name; do \
     case $name in one|two) echo $name >> made/names;; *) echo no such package: $name; exit 4;; esac; \
     done < deps.lock";

/// The guard needs what setup makes.
const GUARD: [&str; 3] = ["sh", "-c", "test -s made/names && test -e work.txt"];

fn with_lock_file() -> TestRepo {
    let mut repo = bare();
    repo.write(".gitignore", "made/\n");
    repo.write("deps.lock", "one\n");
    repo.commit_all("files");
    repo.config(|config| {
        config
            .set("workspace.setup", SETUP)
            .set("workspace.setup_inputs", json!(["deps.lock"]))
            .set("max_attempts_default", 9);
    });
    repo.start_run(GOAL, &GUARD);
    repo
}

fn file_of(repo: &TestRepo, iter: u64, name: &str) -> String {
    fs::read_to_string(repo.iteration(iter).join(name)).unwrap()
}

#[test]
fn a_broken_lock_file_is_the_sessions_to_mend() {
    let repo = with_lock_file();
    // A change that works: later sessions need it, too.
    repo.agent("echo two >> deps.lock; out retry 'more to do'");
    step(&repo);
    repo.agent(
        "grep -q two made/names; echo three >> deps.lock; touch work.txt; out done 'it works'",
    );
    let told = step(&repo);
    assert_eq!(
        (&told["class"], &told["guard"]),
        (&json!("ok"), &json!("fail")),
        "{told:#}"
    );
    let meta: serde_json::Value = serde_json::from_str(&file_of(&repo, 2, "meta.json")).unwrap();
    assert_eq!(meta["guard_run"]["exit_code"], json!(null), "no guard ran");
    assert_eq!(meta["facts"]["setup_failed"], json!(true));
    let log = file_of(&repo, 2, "guard.log");
    assert!(log.contains("no such package: three"), "{log}");

    // Twice without mending it: each is an attempt of its own, and none an error of the runner.
    for iter in [3, 4] {
        repo.agent(
            "test \"$(cat made/names)\" = \"one\ntwo\" && grep -q three deps.lock && \
             git diff --quiet HEAD && cat .runner/context/failure.md >&2; out done again",
        );
        let told = step(&repo);
        assert_eq!(
            (&told["class"], &told["guard"]),
            (&json!("ok"), &json!("fail")),
            "{told:#}"
        );
        assert!(
            told["notes"]
                .to_string()
                .contains("setup fails with the files"),
            "{told:#}"
        );
        for name in ["prompt.md", "executor.log"] {
            let text = file_of(&repo, iter, name);
            assert!(text.contains("# Setup fails"), "{text}");
            assert!(text.contains("no such package: three"), "{text}");
        }
        let log = file_of(&repo, iter, "setup.log");
        let parts: Vec<&str> = log
            .lines()
            .filter(|it| it.starts_with("runner: "))
            .collect();
        assert_eq!(parts.len(), 4, "{log}");
    }
    repo.agent("echo one > deps.lock; out done mended");
    assert_eq!(step(&repo)["guard"], "pass");
    repo.runner(&["replay", "demo"]).success();
}

#[test]
fn a_setup_that_fails_with_what_worked_is_an_error_of_the_runner() {
    let repo = with_lock_file();
    repo.agent("echo three >> deps.lock; out retry 'more to do'");
    step(&repo);
    repo.write("../gone", "");
    let told = repo.runner(&["step", "--json"]).code(1).json();
    assert_eq!(told["class"], "runner_error", "{told:#}");
    assert!(told.to_string().contains("gave exit 9"), "{told:#}");
    assert_eq!(repo.agent_calls().len(), 1, "no session was spent on it");
}

#[test]
fn what_was_made_where_it_was_seen_elsewhere_is_made_again() {
    let mut repo = with_mechanism("bubblewrap");
    repo.write(".gitignore", "made\n");
    repo.commit_all("files");
    repo.config(|config| {
        config
            .set("workspace.setup", "pwd > made")
            .set("max_attempts_default", 9);
    });
    let check = "test \"$(cat made)\" = \"$(pwd)\"";
    repo.agent(&format!(
        "{check} && echo x >> work.txt && out retry 'as it should'"
    ));
    repo.start_run(GOAL, &["sh", "-c", &format!("{check} && test -e work.txt")]);
    assert_eq!(step(&repo)["class"], "ok");
    hide_program(&mut repo, "bwrap");
    assert_eq!(step(&repo)["class"], "ok");
    repo.agent(&format!("{check} && out done 'as it should'"));
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn what_a_session_left_in_the_way_of_setup_goes() {
    let repo = with_lock_file();
    repo.agent(
        "echo two >> deps.lock; rm -rf made; mkdir made; chmod 0 made; out retry 'left a mess'",
    );
    step(&repo);
    repo.agent(
        "test \"$(cat made/names)\" = \"one\ntwo\" && touch work.txt && out done 'all there'",
    );
    let told = step(&repo);
    assert_eq!(told["guard"], "pass", "{told:#}");
}

#[test]
fn setup_that_a_session_broke_by_another_file_is_its_own_fault() {
    let mut repo = with_lock_file();
    repo.config(|config| {
        config.set("max_attempts_default", 9);
    });
    // A file that setup is about to make, in the commit.
    repo.agent(
        "echo other > .gitignore; echo junk > made/junk; touch work.txt; out done 'slipped'",
    );
    for _ in 0..2 {
        let told = step(&repo);
        assert_eq!(
            (&told["class"], &told["guard"]),
            (&json!("ok"), &json!("fail")),
            "{told:#}"
        );
    }
    repo.agent("echo made/ > .gitignore; rm -rf made; out done 'undone'");
    assert_eq!(step(&repo)["guard"], "pass");
}
