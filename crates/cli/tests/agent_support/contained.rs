//! Runs whose agent and guard are contained by one mechanism.

use std::fs;
use std::path::Path;

use runner_testkit::{TestConfig, TestRepo};
use serde_json::Value;

use super::{BIN, GOAL, hide_program};

/// Everything that can contain.
pub(crate) const MECHANISMS: [&str; 2] = ["bubblewrap", "landlock"];

/// Everything that a session can run under.
pub(crate) const ALL: [&str; 3] = ["bubblewrap", "landlock", "none"];

/// `try NAME COMMAND`: prints whether the command worked.
pub(crate) const TRY: &str = r#"try() { name=$1; shift; if sh -c "$*" >/dev/null 2>&1; then echo "tried $name: yes"; else echo "tried $name: no"; fi; }
"#;

/// A repository in which this mechanism is the best there is; for `none`, one without any.
pub(crate) fn with_mechanism(mechanism: &str) -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    let mode = if mechanism == "none" { "off" } else { "auto" };
    repo.config(|config| {
        config.set("sandbox.mode", mode);
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

/// What `try` printed, by the folder of the iteration.
#[track_caller]
pub(crate) fn tried_in(iteration: &Path, name: &str) -> bool {
    let logs = ["executor.log", "guard.log"]
        .map(|log| fs::read_to_string(iteration.join(log)).unwrap_or_default());
    let said = |word: &str| {
        let line = format!("tried {name}: {word}");
        logs.iter().flat_map(|log| log.lines()).any(|it| it == line)
    };
    match (said("yes"), said("no")) {
        (true, false) => true,
        (false, true) => false,
        _ => panic!("{name} was not tried once: {logs:?}"),
    }
}

/// What `try` printed in the first one.
#[track_caller]
pub(crate) fn tried(repo: &TestRepo, name: &str) -> bool {
    tried_in(&repo.iteration(1), name)
}
