//! `run_state.json`: which run this is and what the next session is to hear.

use serde::{Deserialize, Serialize};

use crate::decide::Outcome;
use crate::meta::{GuardResult, OutcomeClass};
use crate::output::AgentStatus;

/// The bookkeeping of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// The run; null before `runner start`.
    pub run_id: Option<String>,
    /// The number of the next iteration.
    pub next_iter: u32,
    /// Status of the last iteration that was not a runner error.
    pub last_status: Option<AgentStatus>,
    /// Its summary, or what the agent did wrong.
    pub last_summary: Option<String>,
    /// What the guard said of it.
    pub last_guard: Option<GuardResult>,
    /// The node it worked on.
    pub last_node_id: Option<String>,
}

/// The largest `run_state.json` that is read at all.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

impl RunState {
    /// The state of a run that has not begun.
    pub fn new(run_id: Option<String>) -> Self {
        RunState {
            run_id,
            next_iter: 1,
            last_status: None,
            last_summary: None,
            last_guard: None,
            last_node_id: None,
        }
    }

    /// Reads the file strictly.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("larger than {MAX_BYTES} bytes"));
        }
        let state: RunState = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if state.next_iter == 0 {
            return Err("next_iter must be at least 1".to_owned());
        }
        Ok(state)
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and integers only: there is nothing that could fail.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The state after an iteration. A runner error moves the counter alone, so
    /// that what the agent was to hear stays as it was.
    #[must_use]
    pub fn after(&self, node_id: &str, outcome: &Outcome<'_>) -> Self {
        let mut next = self.clone();
        next.next_iter = next.next_iter.saturating_add(1);
        if outcome.class != OutcomeClass::RunnerError {
            next.last_status = Some(outcome.status);
            next.last_summary = Some(outcome.feedback.clone());
            next.last_guard = Some(outcome.guard);
            next.last_node_id = Some(node_id.to_owned());
        }
        next
    }

    /// What the agent said last about this node, if it is to try again.
    pub fn history_for(&self, node_id: &str) -> Option<&str> {
        let same = self.last_node_id.as_deref() == Some(node_id);
        (same && self.last_status == Some(AgentStatus::Retry))
            .then_some(self.last_summary.as_deref())
            .flatten()
    }

    /// Whether the guard's last word on this node was no.
    pub fn failed_for(&self, node_id: &str) -> bool {
        self.last_node_id.as_deref() == Some(node_id) && self.last_guard == Some(GuardResult::Fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_the_rest() {
        let mut state = RunState::new(Some("r".into()));
        state.last_status = Some(AgentStatus::Retry);
        state.last_summary = Some("half way\n\"there\"".into());
        state.last_node_id = Some("a".into());
        assert_eq!(RunState::parse(&state.to_bytes()).unwrap(), state);
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"run_id":null,"next_iter":0,"last_status":null,"last_summary":null,"last_guard":null,"last_node_id":null}"#,
            r#"{"run_id":null,"next_iter":1,"last_status":"great","last_summary":null,"last_guard":null,"last_node_id":null}"#,
            r#"{"run_id":null,"next_iter":1,"more":1,"last_status":null,"last_summary":null,"last_guard":null,"last_node_id":null}"#,
        ] {
            assert!(RunState::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn history_belongs_to_one_node() {
        let mut state = RunState::new(Some("r".into()));
        state.last_status = Some(AgentStatus::Retry);
        state.last_summary = Some("s".into());
        state.last_node_id = Some("a".into());
        assert_eq!(state.history_for("a"), Some("s"));
        assert_eq!(state.history_for("b"), None);
        state.last_status = Some(AgentStatus::Done);
        state.last_guard = Some(GuardResult::Fail);
        assert_eq!(state.history_for("a"), None);
        assert!(state.failed_for("a") && !state.failed_for("b"));
    }
}
