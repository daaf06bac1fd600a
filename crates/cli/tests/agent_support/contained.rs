//! Runs whose agent and guard are contained by one mechanism.

use std::fs;

use runner_testkit::{TestConfig, TestRepo};
use serde_json::Value;

use super::{BIN, GOAL, hide_program};

/// Everything that can contain.
pub(crate) const MECHANISMS: [&str; 2] = ["bubblewrap", "landlock"];

/// `try NAME COMMAND`: notes in `$TMPDIR/NAME` whether the command worked.
pub(crate) const TRY: &str = r#"try() { name=$1; shift; if sh -c "$*" 2>/dev/null; then echo yes; else echo no; fi >"$TMPDIR/$name"; }
"#;

/// A repository in which this mechanism is the best there is.
pub(crate) fn with_mechanism(mechanism: &str) -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    repo.config(|config| {
        config.set("sandbox.mode", "auto");
    });
    if mechanism == "landlock" {
        hide_program(&mut repo, "bwrap");
    }
    repo
}

/// A started run with this agent and guard.
pub(crate) fn started(
    mechanism: &str,
    agent: &str,
    guard: &[&str],
    change: impl FnOnce(&mut TestConfig),
) -> TestRepo {
    let mut repo = with_mechanism(mechanism);
    repo.agent(&format!("{TRY}{agent}"));
    repo.config(change);
    repo.start_run(GOAL, guard);
    repo
}

/// One step that is recorded without an error and says by what it was contained.
#[track_caller]
pub(crate) fn step(repo: &TestRepo, mechanism: &str) -> Value {
    let run = repo.runner(&["step", "--json"]).success();
    assert_eq!(repo.meta(1)["sandbox"], mechanism, "{}", run.describe());
    repo.assert_clean();
    run.json()
}

/// What `try` noted.
#[track_caller]
pub(crate) fn tried(repo: &TestRepo, name: &str) -> bool {
    let path = repo.root().join("tmp").join(name);
    match fs::read_to_string(&path).unwrap_or_default().trim() {
        "yes" => true,
        "no" => false,
        other => panic!("{name} was not tried: {other:?}"),
    }
}
