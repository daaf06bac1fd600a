//! A machine made of stand-ins: only the programs that a test puts there are on
//! its PATH.
#![allow(dead_code)] // each test file uses its own part
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use runner_testkit::{TestRepo, TestRun, write_program};
use serde_json::Value;

use crate::scenario::{GOAL, bare};

/// A key that must not be seen anywhere.
pub(crate) const KEY: &str = "made-up-key-0123456789-never-shown";

/// Every flag that the runner passes to codex.
pub(crate) const FLAGS: &str = "--json --ephemeral --skip-git-repo-check --color -C --output-schema -o -m -c \
                     -s --dangerously-bypass-approvals-and-sandbox";

/// What the stand-ins and the guards are made of.
pub(crate) const TOOLS: [&str; 7] = ["git", "sh", "sleep", "touch", "mkdir", "true", "false"];

/// The real place of a program of this machine.
pub(crate) fn real(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

pub(crate) fn bin(repo: &TestRepo) -> PathBuf {
    repo.root().join("bin")
}

/// A repository whose PATH is one folder with the tools alone.
pub(crate) fn with_tools(mut repo: TestRepo) -> TestRepo {
    let bin = bin(&repo);
    fs::create_dir(&bin).unwrap();
    for name in TOOLS {
        let program = real(name).unwrap_or_else(|| panic!("{name} is not on PATH"));
        symlink(program, bin.join(name)).unwrap();
    }
    repo.env("PATH", bin);
    repo
}

/// Puts a program of the test's own on the PATH.
pub(crate) fn program(repo: &TestRepo, name: &str, script: &str) {
    let file = bin(repo).join(name);
    write_program(&file, &format!("#!/bin/sh\n{script}\n"));
}

/// A codex that says of itself what a test wants.
pub(crate) fn codex(repo: &TestRepo, version: &str, flags: &str) {
    let script = format!(
        "case \"$*\" in --version) echo 'codex-cli {version}';; 'exec --help') echo '{flags}';; *) exit 9;; esac"
    );
    program(repo, "codex", &script);
}

/// A started run on such a machine, with codex as the agent and logged in.
pub(crate) fn project(guard: &[&str]) -> TestRepo {
    let mut repo = with_tools(bare());
    codex(&repo, "0.166.0", FLAGS);
    repo.env("CODEX_API_KEY", KEY);
    repo.config(|config| {
        config
            .set("executor.backend", "codex")
            .unset("executor.command");
    });
    repo.start_run(GOAL, guard);
    repo
}

/// Runs `doctor --json`; the key is nowhere in what it says.
#[track_caller]
pub(crate) fn doctor(repo: &TestRepo, options: &[&str], code: i32) -> Value {
    let args = [&["doctor", "--json"], options].concat();
    let run = repo.runner(&args).code(code);
    assert_no_key(&run);
    let value = run.json();
    assert_eq!(value["schema_version"], 1, "{value}");
    assert_eq!(value["ok"], code == 0, "{value}");
    for check in value["checks"].as_array().unwrap() {
        let keys: Vec<&String> = check.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["message", "name", "remedy", "verdict"]);
        let verdict = check["verdict"].as_str().unwrap();
        assert!(["ok", "warn", "fail"].contains(&verdict), "{check}");
        assert_eq!(verdict == "ok", check["remedy"].is_null(), "{check}");
    }
    value
}

#[track_caller]
pub(crate) fn assert_no_key(run: &TestRun) {
    assert!(!run.describe().contains(KEY), "{}", run.describe());
}

/// The first finding of that name.
#[track_caller]
pub(crate) fn check<'v>(value: &'v Value, name: &str) -> &'v Value {
    let mut checks = value["checks"].as_array().unwrap().iter();
    let found = checks.find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name} in {value:#}"))
}

/// Fails unless the finding has this verdict and says these words.
#[track_caller]
pub(crate) fn expect(value: &Value, name: &str, verdict: &str, words: &str) {
    let found = check(value, name);
    let said = format!("{} {}", found["message"], found["remedy"]);
    assert_eq!(found["verdict"], verdict, "{found:#}");
    assert!(said.contains(words), "{words:?} in {found:#}");
}

pub(crate) fn names(value: &Value) -> Vec<&str> {
    let checks = value["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect()
}
