//! `runner fleet demo` ends by itself, and what it claims is true seen from outside.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use runner_testkit::{TestRepo, assert_no_process};
use serde_json::Value;

#[test]
fn everything_goes_wrong_and_everything_ends() {
    let repo = TestRepo::empty(env!("CARGO_BIN_EXE_runner"));
    let folder = repo.root().join("demo");
    let dir = folder.display().to_string();
    let run = repo
        .runner(&["fleet", "demo", "--json", "--dir", &dir])
        .success();
    let lines = run.json_lines();
    let last = lines.last().unwrap();
    assert_eq!(last["status"], "clean", "{last}");
    assert_eq!(last["findings"].as_array().map(Vec::len), Some(0), "{last}");
    for event in ["killed", "committed"] {
        assert!(lines.iter().any(|line| line["event"] == event), "{event}");
    }

    let tasks = last["tasks"].as_array().unwrap();
    let about = |name: &str| -> &Value {
        let is = |task: &&Value| {
            let id = task["id"].as_str().unwrap();
            id.split_once('-').unwrap().1 == name
        };
        tasks
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("{name}: {last}"))
    };
    for (name, state, words) in [
        ("count", "done", "1 failed: test"),
        ("upper", "done", "stopped by a quota"),
        ("reverse", "done", "1 lost"),
        ("sort", "failed", "conflicts with the base: tools/sort.sh"),
        ("sort.2", "done", "solving the conflicts"),
        ("unique", "failed", "the order of the lines is lost"),
        ("unique.2", "done", "mending the result"),
        ("legacy", "failed", "nothing was changed"),
        (
            "migrate",
            "failed",
            "which it depends on, ended without being done",
        ),
        ("check", "done", "done after 1 run"),
        ("docs", "done", "merged after 1 run"),
    ] {
        let task = about(name);
        assert_eq!(task["state"], state, "{task}");
        assert!(task["summary"].as_str().unwrap().contains(words), "{task}");
    }
    // The reason of the lost run is the kill, and nothing else.
    assert_eq!(about("reverse")["summary"], "merged after 2 runs (1 lost)");

    let git = |words: &[&str]| {
        let all: Vec<&str> = ["-C", &dir].iter().chain(words).copied().collect();
        repo.git(&all)
    };
    let mut merged: BTreeMap<String, u32> = BTreeMap::new();
    for id in git(&[
        "log",
        "--format=%(trailers:key=Runner-Task,valueonly)",
        "main",
    ])
    .lines()
    {
        if !id.trim().is_empty() {
            *merged.entry(id.to_owned()).or_default() += 1;
        }
    }
    for task in tasks {
        let times = merged.get(task["id"].as_str().unwrap()).copied();
        let is_merged = task["summary"].as_str().unwrap().starts_with("merged");
        assert_eq!(times, is_merged.then_some(1), "{task}");
    }
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert!(!git(&["ls-files"]).contains(".runner"));
    assert_eq!(git(&["for-each-ref", "refs/fleet"]), "");
    repo.runner(&["-C", &dir, "ledger", "check"]).success();
    assert_no_process(&dir);
}

#[test]
fn a_seed_gives_the_same_twice() {
    let repo = TestRepo::empty(env!("CARGO_BIN_EXE_runner"));
    let simulate = || {
        repo.runner(&["fleet", "simulate", "--seed", "7", "--log"])
            .success()
    };
    let first = simulate();
    assert!(first.stdout.contains("seed 7: "), "{}", first.describe());
    assert_eq!(first.stdout, simulate().stdout);
    let many = ["fleet", "simulate", "--seed", "1", "--seeds", "3"];
    let many = repo.runner(&many).success();
    assert_eq!(many.stdout, "3 seeds from 1 on: everything holds\n");
}
