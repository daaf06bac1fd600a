//! Sessions that change what setup reads: a lock file that names a package which does not exist.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use std::fs;

use agent_support::contained::with_mechanism;
use agent_support::{hide_program, put_first_on_path};
use runner_testkit::{TestRepo, write_program};
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

/// A step that is an error of kind `setup`: no session ran, and no attempt is used.
#[track_caller]
fn assert_charged_to_nobody(repo: &TestRepo, sessions: usize, says: &[&str]) {
    let attempts = repo.node("root")["attempts"].clone();
    let told = repo.runner(&["step", "--json"]).code(1).json();
    assert_eq!(told["class"], "runner_error", "{told:#}");
    assert_eq!(told["error"]["code"], "setup", "{told:#}");
    for words in says {
        assert!(told["error"].to_string().contains(words), "{told:#}");
    }
    assert_eq!(repo.agent_calls().len(), sessions, "{told:#}");
    assert_eq!(repo.node("root")["attempts"], attempts, "{told:#}");
}

#[test]
fn setup_that_a_person_broke_is_charged_to_no_session() {
    let repo = with_lock_file();
    repo.agent("echo work > work.txt; out retry 'more to do'");
    step(&repo);
    repo.write("deps.lock", "one\nfour\n");
    repo.commit_all("Add four");
    let commit: String = repo.head().chars().take(12).collect();
    let by = format!("{commit} (Add four), which a person committed on the run's branch");
    // However often.
    for _ in 0..2 {
        assert_charged_to_nobody(&repo, 1, &["no such package: four", &by]);
    }
    repo.write("deps.lock", "one\ntwo\n");
    repo.commit_all("Take it back");
    repo.agent("out done 'there it is'");
    assert_eq!(step(&repo)["guard"], "pass");
    repo.runner(&["replay", "demo"]).success();
}

#[test]
fn who_broke_setup_is_told_where_both_have_changed_what_it_reads() {
    // The session, and a person changed another line of it since.
    let repo = with_lock_file();
    repo.agent("echo three >> deps.lock; out retry 'more to do'");
    step(&repo);
    repo.write("deps.lock", "one\ntwo\nthree\n");
    repo.commit_all("Add two");
    repo.agent("printf 'one\\ntwo\\n' > deps.lock; touch work.txt; out done 'mended'");
    assert_eq!(step(&repo)["guard"], "pass");

    // A person, after a session had changed it rightly.
    let repo = with_lock_file();
    repo.agent("echo two >> deps.lock; out retry 'more to do'");
    step(&repo);
    repo.write("deps.lock", "one\ntwo\nfour\n");
    repo.commit_all("Add four");
    assert_charged_to_nobody(&repo, 1, &["no such package: four", "(Add four)"]);
}

#[test]
fn a_file_in_the_way_of_setup_that_a_person_committed_is_charged_to_no_session() {
    let repo = with_lock_file();
    repo.agent("echo work > work.txt; out retry 'more to do'");
    step(&repo);
    // Setup does not read it, so the workspace is not set up again; the verdict is.
    repo.write(".gitignore", "other\n");
    repo.write("made/junk", "junk\n");
    repo.commit_all("Slip");
    repo.agent("out done 'there it is'");
    assert_charged_to_nobody(&repo, 2, &["(Slip), which a person committed"]);
}

#[test]
fn what_setup_fetches_into_a_cache_is_there_for_every_guard_that_follows() {
    for mechanism in ["bubblewrap", "landlock"] {
        let mut repo = with_mechanism(mechanism);
        repo.write("deps.lock", "one\n");
        repo.commit_all("files");
        repo.config(|config| {
            config
                .set(
                    "workspace.setup",
                    "echo fetched; cp deps.lock \"$XDG_CACHE_HOME/deps\"",
                )
                .set("workspace.setup_inputs", json!(["deps.lock"]))
                .set("max_attempts_default", 9);
        });
        let guard = "cmp deps.lock \"$XDG_CACHE_HOME/deps\" && echo cached; \
             echo spoilt > \"$XDG_CACHE_HOME/deps\"; test -e work.txt";
        repo.agent("echo two >> deps.lock; out done 'a dependency'");
        repo.start_run(GOAL, &["sh", "-c", guard]);
        // The candidate's own setup, twice what it made before, and a setup for a cold verdict.
        for (iter, agent) in [
            (1, "echo more > more.txt; out done 'more'"),
            (2, "echo again > more.txt; out done 'again'"),
            (3, "touch work.txt; out done 'all of it'"),
            (4, "out done nothing"),
        ] {
            let told = step(&repo);
            let passes = if iter == 4 { "pass" } else { "fail" };
            assert_eq!(told["guard"], passes, "{mechanism} {told:#}");
            let log = file_of(&repo, iter, "guard.log");
            assert!(log.contains("cached"), "{mechanism} {iter} {log}");
            repo.agent(agent);
        }
        assert_eq!(
            repo.runner(&["verify", "root"]).code,
            Some(0),
            "{mechanism}"
        );
    }
}

/// A tool that fetches runs what some files of the project name, and setup has a token then.
#[test]
fn a_session_names_no_code_that_has_the_token_of_setup() {
    let mut repo = bare();
    let bin = repo.root().join("stand-ins");
    fs::create_dir(&bin).unwrap();
    write_program(&bin.join("cargo"), "#!/bin/sh\necho fetching\n");
    put_first_on_path(&mut repo, &bin);
    repo.write(".cargo/config.toml", "[term]\ncolor = \"never\"\n");
    repo.commit_all("files");
    repo.env("REGISTRY_TOKEN", "not-to-be-had");
    repo.config(|config| {
        config
            .set("workspace.setup", json!(["cargo", "fetch"]))
            .set("workspace.env", json!(["REGISTRY_TOKEN"]))
            .set("max_attempts_default", 9);
    });
    repo.start_run(GOAL, &["test", "-e", "work.txt"]);
    let wrapper = "[build]\\nrustc-wrapper = \\\"./steal\\\"\\n";
    repo.agent(&format!(
        "touch work.txt; printf '{wrapper}' > .cargo/config.toml; out done 'it works'"
    ));
    let told = step(&repo);
    assert_eq!(
        (&told["class"], &told["guard"]),
        (&json!("ok"), &json!("fail")),
        "{told:#}"
    );
    let log = file_of(&repo, 1, "guard.log");
    assert!(
        log.contains(".cargo/config.toml, which can name code"),
        "{log}"
    );
    assert!(!log.contains("fetching"), "{log}");
    // With the person's own it passes.
    repo.agent("printf '[term]\\ncolor = \"never\"\\n' > .cargo/config.toml; out done mended");
    assert_eq!(step(&repo)["guard"], "pass");
}
