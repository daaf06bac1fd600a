//! What the tests of `runner eval` share: a repository with case files, and short ways to look at
//! results.
#![allow(dead_code)] // Each test file uses what it needs.

use std::fs;
use std::path::{Path, PathBuf};

use runner_testkit::{TestRepo, TestRun};
use serde_json::Value;

/// The binary under test.
pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// The cases that come with the project.
pub(crate) fn shipped_cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../eval/cases")
        .canonicalize()
        .expect("the project has cases")
}

/// A repository with `eval/`, as `eval init` makes it.
pub(crate) fn with_eval() -> TestRepo {
    let repo = TestRepo::new(BIN);
    repo.runner(&["eval", "init"]).success();
    repo
}

/// Writes a case with a scripted agent; `agent` is shell, `guard` too, and `more` is TOML.
pub(crate) fn write_case(repo: &TestRepo, id: &str, agent: &str, guard: &str, more: &str) {
    let text = format!(
        "[case]\nid = \"{id}\"\ngoal = \"Do it.\"\n{more}\n\
         [config]\nmax_iterations = 5\nmax_attempts_default = 2\n\
         [config.guard]\ncommand = [\"sh\", \"-c\", '''{guard}''']\nprotected = [\"agent.sh\"]\n\
         [config.loop]\nmax_consecutive_errors = 0\n\
         [executor]\nbackend = \"command\"\ncommand = [\"sh\", \"agent.sh\"]\n\
         [files]\n\"agent.sh\" = '''\n{agent}\n'''\n"
    );
    let text = if text.contains("[[checks]]") {
        // Tables of checks come last.
        let (checks, rest): (Vec<_>, Vec<_>) = split_checks(&text);
        format!("{}\n{}", rest.join("\n"), checks.join("\n"))
    } else {
        format!("{text}[[checks]]\ntype = \"runner_completed\"\n")
    };
    repo.write(format!("eval/cases/{id}.toml"), text);
}

/// The lines of `[[checks]]` tables, and the others.
fn split_checks(text: &str) -> (Vec<&str>, Vec<&str>) {
    let mut in_checks = false;
    text.lines().partition(|line| {
        if line.starts_with('[') {
            in_checks = *line == "[[checks]]";
        }
        in_checks
    })
}

/// A session that does its work and says so.
pub(crate) const DOES_IT: &str = "echo x >made\necho '{\"status\": \"done\", \"summary\": \"made it\"}' >\"$RUNNER_OUTPUT_PATH\"";

/// Runs `eval run` with `--json`.
#[track_caller]
pub(crate) fn run_json(repo: &TestRepo, args: &[&str]) -> TestRun {
    let mut words = vec!["eval", "run", "--json"];
    words.extend(args);
    repo.runner(&words)
}

/// The records among the lines of `eval run --json`.
pub(crate) fn records(run: &TestRun) -> Vec<Value> {
    let lines = run.json_lines();
    lines
        .into_iter()
        .filter(|it| it["event"] == "run")
        .collect()
}

/// The last line of `eval run --json`.
pub(crate) fn summary(run: &TestRun) -> Value {
    run.json_lines().pop().expect("there is a line")
}

/// The folders of a case's results, sorted.
pub(crate) fn results(repo: &TestRepo, case: &str) -> Vec<PathBuf> {
    let folder = repo.path(format!("eval/results/{case}"));
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("meta.json").is_file())
        .collect();
    found.sort();
    found
}

/// A JSON file.
#[track_caller]
pub(crate) fn read_json(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
