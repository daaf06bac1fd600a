//! Guard and commands on a commit.

use std::time::Duration;

use runner_testkit::{assert_no_process, eventually};
use serde_json::json;

use crate::{ask, project, refused, text};

#[test]
fn guard_and_commands_run_on_the_commit_and_nowhere_else() {
    let mut repo = project();
    repo.config(|config| {
        config.set(
            "guard.command",
            json!(["sh", "-c", "cat a/one.txt; echo g > made"]),
        );
    });
    repo.write_config();
    let commit = repo.head();
    repo.write("a/one.txt", "changed by the user\n");
    let order =
        json!({"commit": commit, "commands": ["test -f made", "echo no >&2; exit 4", "no-such"]});
    let checks = ask(&repo, "check", &order);
    let ends: Vec<(String, String)> = checks
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (text(&it["id"]), text(&it["end"])))
        .collect();
    let expected = [
        ("guard", "green"),
        ("command-1", "green"),
        ("command-2", "red"),
        ("command-3", "unable"),
    ];
    assert_eq!(
        ends,
        expected.map(|(id, end)| (id.to_owned(), end.to_owned()))
    );
    assert_eq!(checks[0]["tail"], "one");
    // `printf 'one\n' | sha256sum`
    let hash = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806";
    assert_eq!(checks[0]["evidence"], format!("exit 0, log sha256:{hash}"));
    assert_eq!(checks[2]["tail"], "no");
    assert!(text(&checks[2]["evidence"]).starts_with("exit 4, log sha256:"));
    assert!(!repo.exists("made"));
    assert_eq!(repo.private_checkouts(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_could_not_run_is_no_verdict() {
    let mut repo = project();
    let order = json!({"commit": "1234567890123456789012345678901234567890"});
    let checks = ask(&repo, "check", &order);
    assert_eq!(checks[0]["end"], "unable");
    assert!(text(&checks[0]["evidence"]).contains("is not there"));
    repo.config(|config| {
        config.set("guard.command", json!(["no-such-guard", "x"]));
    });
    repo.write_config();
    let checks = ask(&repo, "check", &json!({"commit": repo.head()}));
    assert_eq!(checks[0]["end"], "unable", "{checks}");
    assert!(text(&checks[0]["evidence"]).contains("no-such-guard"));
    std::fs::remove_file(repo.path(".runner/state/config.toml")).unwrap();
    let words = refused(&repo, "check", &json!({"commit": repo.head()}));
    assert!(words.contains("runner init"), "{words}");
}

#[test]
fn the_guard_is_the_bases_own_whatever_the_checkout_says() {
    let mut repo = project();
    repo.git(&["add", "-f", ".runner/state/config.toml"]);
    let commit = repo.commit_all("The guard");
    repo.config(|config| {
        config.set("guard.command", json!(["false"]));
    });
    repo.write_config();
    assert_eq!(
        ask(&repo, "check", &json!({"commit": commit}))[0]["end"],
        "green"
    );
}

#[test]
fn a_check_is_ended_with_all_that_it_started() {
    let mut repo = project();
    let started = repo.root().join("started");
    let script = format!("setsid sleep 600 & : > {}; sleep 600", started.display());
    repo.config(|config| {
        config.set("guard.command", json!(["sh", "-c", script]));
    });
    repo.write_config();
    let order = json!({"commit": repo.head(), "stop_when": started});
    let words = refused(&repo, "check", &order);
    assert!(words.contains("interrupted"), "{words}");
    assert_no_process(&repo.root().display().to_string());
    assert_eq!(repo.private_checkouts(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn the_checkout_of_a_killed_check_is_swept() {
    let mut repo = project();
    let started = repo.root().join("started");
    let script = format!(": > {}; sleep 600", started.display());
    repo.config(|config| {
        config.set("guard.command", json!(["sh", "-c", script]));
    });
    repo.write_config();
    let order = json!({"commit": repo.head()}).to_string();
    let running = repo.spawn_runner(&["check", &order]);
    eventually("the guard", Duration::from_secs(30), || started.exists());
    // A sweep leaves the living alone.
    ask(&repo, "sweep", &json!({}));
    // The folder, its git folder, and two locks.
    assert_eq!(repo.private_checkouts().len(), 4);
    drop(running);
    ask(&repo, "sweep", &json!({}));
    assert_eq!(repo.private_checkouts(), Vec::<std::path::PathBuf>::new());
    assert_no_process(&repo.root().display().to_string());
}
