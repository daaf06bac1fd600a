//! What the black-box tests of the commands share: ready-made runs, and short
//! ways to look at what a call said and what it left in git.
#![allow(dead_code)] // Each test file uses what it needs.

pub(crate) mod record;

use std::fmt::Write as _;

use runner_testkit::{TestRepo, TestRun};
use serde_json::Value;

/// The binary under test.
pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// A goal with a fixed id, so that names and messages are known beforehand.
pub(crate) const GOAL: &str = "---\nid: demo\n---\n# Ship it\n\nAll of it.\n";

/// The project's own commit before the run: the branch that it starts from.
pub(crate) const BASE: &str = "main";

/// A repository with one commit and no `.runner/`.
pub(crate) fn bare() -> TestRepo {
    TestRepo::new(BIN)
}

/// A started run `demo` with this agent and guard.
pub(crate) fn started(agent: &str, guard: &[&str]) -> TestRepo {
    let mut repo = bare();
    repo.agent(agent);
    repo.start_run(GOAL, guard);
    repo
}

/// A started run whose tree has the leaves `a`, `b`, … below the root; planning
/// them took iteration 1.
pub(crate) fn planned(leaves: &[&str], agent: &str, guard: &[&str]) -> TestRepo {
    let repo = started(agent, guard);
    plan(&repo, leaves);
    repo
}

/// Takes iteration 1: the root is split into these leaves.
pub(crate) fn plan(repo: &TestRepo, leaves: &[&str]) {
    let mut script = String::new();
    for (order, leaf) in leaves.iter().enumerate() {
        let order = order + 1;
        let _ = writeln!(script, "add_child root {leaf} {order} 'Leaf {leaf}'");
    }
    script.push_str("out decomposed 'split it'\n");
    repo.agent_at(1, &script);
    repo.runner(&["step"]).success();
}

/// One step that is recorded without an error: what `--json` says of it.
#[track_caller]
pub(crate) fn step(repo: &TestRepo) -> Value {
    let run = repo.runner(&["step", "--json"]).success();
    repo.assert_clean();
    run.json()
}

/// One step that is recorded as a runner error.
#[track_caller]
pub(crate) fn failed_step(repo: &TestRepo) -> Value {
    let run = repo.runner(&["step", "--json"]).code(1);
    repo.assert_clean();
    run.json()
}

/// Runs a piece of shell in the repository, as a person would.
#[track_caller]
pub(crate) fn sh(repo: &TestRepo, script: &str) {
    let mut cmd = repo.hermetic("sh");
    cmd.args(["-ec", script]);
    repo.spawn(cmd).wait().success();
}

/// The message of a commit.
#[track_caller]
pub(crate) fn message(repo: &TestRepo, revision: &str) -> String {
    repo.git(&["log", "-1", "--format=%B", revision])
}

/// The subject of the newest commit.
#[track_caller]
pub(crate) fn subject(repo: &TestRepo) -> String {
    repo.git(&["log", "-1", "--format=%s"])
}

/// The value of a trailer of the newest commit.
#[track_caller]
pub(crate) fn trailer(repo: &TestRepo, name: &str) -> Option<String> {
    let message = message(repo, "HEAD");
    let prefix = format!("{name}: ");
    let mut values = message
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix));
    let value = values.next().map(str::to_owned);
    assert_eq!(values.next(), None, "{name} is there twice:\n{message}");
    value
}

/// The files of the newest commit that changed.
#[track_caller]
pub(crate) fn changed_files(repo: &TestRepo) -> Vec<String> {
    let names = repo.git(&["show", "--format=", "--name-only", "HEAD"]);
    names.lines().map(str::to_owned).collect()
}

/// `error.code` of what a call printed with `--json`.
#[track_caller]
pub(crate) fn error_code(run: &TestRun) -> String {
    let value = run.json();
    match value["error"]["code"].as_str() {
        Some(code) => code.to_owned(),
        None => panic!("no error code\n{}", run.describe()),
    }
}

/// Fails unless the call ended like an error for people should: exit code 1,
/// nothing on stdout, `error: …` and (if any) `hint: …` on stderr.
#[track_caller]
pub(crate) fn human_error(run: &TestRun, message: &str, hint: &str) {
    assert_eq!(run.code, Some(1), "{}", run.describe());
    assert_eq!(run.stdout, "", "{}", run.describe());
    let error = run
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("error: "));
    assert!(error.is_some(), "no error line\n{}", run.describe());
    assert!(
        run.stderr.contains(message),
        "expected {message:?}\n{}",
        run.describe()
    );
    let told = hint.is_empty()
        || run
            .stderr
            .lines()
            .any(|line| line.starts_with("hint: ") && line.contains(hint));
    assert!(told, "expected the hint {hint:?}\n{}", run.describe());
}

/// Everything of the repository that a failed command must leave as it was:
/// HEAD, refs, status and the files of `.runner/` outside the logs.
#[track_caller]
pub(crate) fn picture(repo: &TestRepo) -> String {
    let head = std::fs::read_to_string(repo.path(".git/HEAD")).unwrap_or_default();
    let refs = repo.git(&["for-each-ref"]);
    let status = repo.git(&["--no-optional-locks", "status", "--porcelain", "-uall"]);
    let index = repo.git(&["ls-files", "--stage"]);
    let mut text = format!("{head}\n{refs}\n{status}\n{index}\n");
    for name in STATE_FILES {
        let content = std::fs::read_to_string(repo.path(name)).unwrap_or_default();
        let _ = write!(text, "== {name}\n{content}\n");
    }
    text
}

/// Fails with the first difference unless everything is as the picture shows.
#[track_caller]
pub(crate) fn assert_same(repo: &TestRepo, before: &str, what: &str) {
    let now = picture(repo);
    if now != before {
        let mut pairs = before.lines().zip(now.lines());
        let (old, new) = pairs.find(|(old, new)| old != new).unwrap_or_default();
        panic!("{what}\nbefore: {old}\nnow:    {new}");
    }
}

/// Every file that `init` makes.
pub(crate) const STATE_FILES: [&str; 10] = [
    ".runner/.gitattributes",
    ".runner/.gitignore",
    ".runner/GOAL.md",
    ".runner/state/agent_output.schema.json",
    ".runner/state/assumptions.md",
    ".runner/state/config.toml",
    ".runner/state/questions.md",
    ".runner/state/run_state.json",
    ".runner/state/schema.json",
    ".runner/state/tree.json",
];

/// Lets a script wait until the test has made the file `go` in the agent's folder.
pub(crate) const WAIT_FOR_GO: &str = "while [ ! -e \"$AGENT_DIR/go\" ]; do sleep 0.02; done\n";

/// Ends the wait of [`WAIT_FOR_GO`].
pub(crate) fn go(repo: &TestRepo) {
    std::fs::write(repo.agent_dir().join("go"), "").expect("a file can be written");
}
