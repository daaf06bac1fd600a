//! What the tests of real agents and of containment share: a step that ends in a
//! runner error, looks at what a session left, and a PATH that lacks a program.
#![allow(dead_code)] // Each test file uses what it needs.

pub(crate) mod contained;
pub(crate) mod stub;

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use runner_testkit::{TestRepo, TestRun};
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// A goal with a fixed id, so that names and messages are known beforehand.
pub(crate) const GOAL: &str = "---\nid: demo\n---\n# Ship it\n\nAll of it.\n";

/// Fails unless the call recorded the iteration as a runner error of that kind: no
/// attempt used, nothing passed, everything committed. Its `meta.json`.
#[track_caller]
pub(crate) fn assert_runner_error(repo: &TestRepo, run: &TestRun, iter: u64, kind: &str) -> Value {
    let meta = repo.meta(iter);
    let about = format!("{}\n{meta:#}", run.describe());
    assert_eq!(run.code, Some(1), "{about}");
    assert_eq!(meta["error"]["kind"], kind, "{about}");
    assert_eq!(meta["class"], "runner_error", "{about}");
    assert_eq!(
        (&meta["status"], &meta["guard"], &meta["attempts"]),
        (&json!("retry"), &json!("skipped"), &json!(0)),
        "{about}"
    );
    assert_eq!(repo.node("root")["attempts"], 0, "{about}");
    assert_eq!(repo.node("root")["passes"], false, "{about}");
    let said = repo.iteration(iter).join("runner_error.log");
    assert!(said.is_file(), "no runner_error.log\n{about}");
    repo.assert_clean();
    meta
}

/// The object that `step --json` prints for a runner error says the same.
#[track_caller]
pub(crate) fn assert_step_says(run: &TestRun, kind: &str, hint: &str) {
    let value = run.json();
    assert_eq!(value["error"]["code"], kind, "{}", run.describe());
    let told = value["error"]["hint"].as_str().unwrap_or_default();
    assert!(told.contains(hint), "no {hint:?}\n{}", run.describe());
}

/// The lines of an iteration's `stream.jsonl`; every one is a JSON object.
#[track_caller]
pub(crate) fn stream(repo: &TestRepo, iter: u64) -> Vec<Value> {
    let path = repo.iteration(iter).join("stream.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .inspect(|value: &Value| assert!(value.is_object(), "{value}"))
        .collect()
}

/// The recorded argv of an iteration.
#[track_caller]
pub(crate) fn argv(repo: &TestRepo, iter: u64) -> Vec<String> {
    let bytes = fs::read(repo.iteration(iter).join("argv.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Whether the words follow each other in the argv.
pub(crate) fn has_words(argv: &[String], words: &[&str]) -> bool {
    argv.windows(words.len()).any(|window| window == words)
}

/// Everything below the iteration's folder that holds this text.
#[track_caller]
pub(crate) fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(&path)
                && bytes
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            {
                found.push(path);
            }
        }
    }
    found
}

/// Takes a program away from the PATH of everything that the repository starts, and
/// nothing else: folders that have it are replaced by folders of links.
pub(crate) fn hide_program(repo: &mut TestRepo, name: &str) {
    let path = path_of(repo);
    let folders = std::env::split_paths(&path).map(|folder| {
        if folder.join(name).symlink_metadata().is_ok() {
            links_without(&folder, name)
        } else {
            folder
        }
    });
    let path: OsString = std::env::join_paths(folders).unwrap();
    repo.env("PATH", path);
}

/// A folder of links to all entries of another but one. There may be thousands, so it
/// is kept for all tests, by a name that tells what is in it.
fn links_without(folder: &Path, name: &str) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.retain(|other| other != name);
    names.sort();
    let mut hasher = DefaultHasher::new();
    (folder, &names).hash(&mut hasher);
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kept = base.join(format!("without-{name}-{:016x}", hasher.finish()));
    if !kept.exists() {
        let new = tempfile::tempdir_in(base).unwrap();
        for name in &names {
            symlink(folder.join(name), new.path().join(name)).unwrap();
        }
        // Another test may have been faster.
        if fs::rename(new.path(), &kept).is_ok() {
            let _ = new.keep();
        }
    }
    kept
}

/// Lets everything that the repository starts find the programs of a folder first.
pub(crate) fn put_first_on_path(repo: &mut TestRepo, folder: &Path) {
    let path = path_of(repo);
    let folders = [folder.to_owned()];
    let folders = folders.into_iter().chain(std::env::split_paths(&path));
    repo.env("PATH", std::env::join_paths(folders).unwrap());
}

/// The PATH of everything that the repository starts.
pub(crate) fn path_of(repo: &TestRepo) -> OsString {
    let command = repo.hermetic("env");
    let mut variables = command.get_envs();
    let path = variables.find(|(name, _)| *name == "PATH");
    path.and_then(|(_, value)| value).unwrap().to_owned()
}
