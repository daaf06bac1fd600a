//! What the tests of running loops share: sessions that wait for the test, and
//! loops in the background that do not outlive it.
#![allow(dead_code)] // Each test file uses what it needs.

use std::fs;
use std::time::Duration;

use runner_testkit::{TestRepo, TestRun, eventually, signal};
use serde_json::Value;

/// Nothing here takes so long.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A session that says that it is there, waits until it may go on, and does its work.
pub(crate) const HOLD: &str = r#"
: > "$AGENT_DIR/up-$RUNNER_ITER"
while [ ! -e "$AGENT_DIR/go" ]; do sleep 0.05; done
echo "iteration $RUNNER_ITER" >> work.txt
out done 'did it'
"#;

/// A session that is refused because its quota is used up.
pub(crate) const NO_QUOTA: &str =
    "echo 'Quota exceeded. Check your plan and billing details.' >&2; exit 1";

/// Waits until the session of this iteration is at work.
#[track_caller]
pub(crate) fn wait_for_session(repo: &TestRepo, iter: u64) {
    let up = repo.agent_dir().join(format!("up-{iter}"));
    eventually("the session", LONG, || up.exists());
}

/// Lets every session go on.
pub(crate) fn go(repo: &TestRepo) {
    fs::write(repo.agent_dir().join("go"), "").unwrap();
}

/// `activity` of `status --json`.
#[track_caller]
pub(crate) fn activity(repo: &TestRepo) -> Value {
    repo.runner(&["status", "--json"]).success().json()["activity"].take()
}

/// Waits until the loop is in this phase.
#[track_caller]
pub(crate) fn wait_for_phase(repo: &TestRepo, phase: &str) -> Value {
    let mut now = Value::Null;
    eventually(&format!("phase {phase}"), LONG, || {
        now = activity(repo);
        now["phase"] == phase
    });
    now
}

/// A loop in the background, which ends with the test.
pub(crate) struct Detached {
    pub(crate) pid: i64,
    pub(crate) said: TestRun,
}

impl Detached {
    /// Starts one with these further arguments.
    #[track_caller]
    pub(crate) fn start(repo: &TestRepo, args: &[&str]) -> Self {
        let said = repo
            .runner(&[&["loop", "--detach", "--json"], args].concat())
            .success();
        let pid = said.json()["pid"].as_i64().unwrap();
        Detached { pid, said }
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        signal("KILL", self.pid);
    }
}
