//! Tests of the table of outcomes.

mod precedence;
mod properties;
mod repairs;
mod rows;

use proptest::prelude::*;

pub(super) use super::*;
use crate::meta::{IterationErrorKind, RunnerError};
use crate::run_state::{self, RunState};
use crate::select::{Selection, select};
use crate::tree::tests::{any_tree, damaged, plan, sketch, take};
use crate::tree::to_bytes;
use AgentStatus::{Decomposed, Done, Retry};

/// What most cases begin with; `s` is selected.
pub(super) const BEFORE: &str = "root(p+(a+) s*1 z)";

/// One session: on `s` of [`BEFORE`] or, with `repairing`, on the tree itself.
pub(super) struct Session {
    pub(super) before: Node<'static>,
    pub(super) repairing: bool,
    pub(super) after: Node<'static>,
    pub(super) raw: Option<Vec<u8>>,
    pub(super) output: Option<AgentOutput>,
    pub(super) facts: StepFacts,
}

pub(super) fn session(status: AgentStatus) -> Session {
    Session {
        before: plan(BEFORE),
        repairing: false,
        after: plan(BEFORE),
        raw: None,
        output: Some(AgentOutput {
            status,
            summary: "words".to_owned(),
        }),
        facts: StepFacts {
            max_attempts_default: 3,
            ..StepFacts::default()
        },
    }
}

/// A repair of a tree that was [`BEFORE`] once; the status does not matter.
pub(super) fn repair(refused_repairs: u32) -> Session {
    let mut session = session(Retry);
    session.repairing = true;
    session.facts.refused_repairs = refused_repairs;
    session
}

impl Session {
    /// Leaves this tree.
    pub(super) fn leaves(mut self, sketch: &str) -> Self {
        self.after = plan(sketch);
        self
    }

    /// Leaves these bytes.
    pub(super) fn leaves_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.raw = Some(bytes.into());
        self
    }

    /// Edits a node.
    pub(super) fn edits(mut self, id: &str, edit: impl FnOnce(&mut Node<'static>)) -> Self {
        edit(self.after.find_mut(id).unwrap());
        self
    }

    pub(super) fn facts(mut self, set: impl FnOnce(&mut StepFacts)) -> Self {
        set(&mut self.facts);
        self
    }

    pub(super) fn guard_exit(self, exit: i32) -> Self {
        self.facts(|facts| facts.guard_exit = Some(exit))
    }

    pub(super) fn task(&self) -> StepTask<'_, 'static> {
        if self.repairing {
            StepTask::Repair {
                valid: &self.before,
            }
        } else {
            StepTask::Work {
                before: &self.before,
                node_id: "s",
            }
        }
    }

    /// The same bytes as before are no change in a session (a repair begins
    /// with other ones). The bytes are leaked: they must outlive the outcome.
    pub(super) fn agent_tree(&self) -> AgentTree<'static> {
        let before = to_bytes(&self.before);
        let bytes = self.raw.clone().unwrap_or_else(|| to_bytes(&self.after));
        if self.facts.tree_unusable.is_some() {
            AgentTree::Unusable
        } else if bytes == before && !self.repairing {
            AgentTree::Same
        } else {
            AgentTree::Bytes(bytes.leak())
        }
    }

    pub(super) fn outcome(&self) -> Outcome<'static> {
        decide(
            self.task(),
            self.agent_tree(),
            self.output.as_ref(),
            &self.facts,
        )
    }

    /// The outcome is this line (see [`line`]) with these findings.
    #[track_caller]
    pub(super) fn comes_to(&self, expected: &str, findings: &[&str]) -> Outcome<'static> {
        let outcome = self.outcome();
        assert_eq!(line(&outcome), expected);
        assert_eq!(outcome.findings, findings);
        outcome
    }
}

/// Class, status/guard, mode, attempts, passes and the tree afterwards.
pub(super) fn line(outcome: &Outcome<'_>) -> String {
    let owned = match (outcome.attempts, outcome.passes) {
        (Some(attempts), Some(passes)) => format!("{attempts} {passes}"),
        (None, None) => "- -".to_owned(),
        other => panic!("{other:?}"),
    };
    let tree = match &outcome.tree {
        TreeAfter::Restore => "restored".to_owned(),
        TreeAfter::AsLeft => "as left".to_owned(),
        TreeAfter::LastValid => "last valid".to_owned(),
        TreeAfter::New(root) => sketch(root),
    };
    format!(
        "{:?} {}/{} {} {owned} {tree}",
        outcome.class,
        outcome.status,
        outcome.guard,
        outcome.mode.as_str()
    )
}

pub(super) fn boom(kind: IterationErrorKind) -> RunnerError {
    RunnerError::new(kind, "boom")
}

pub(super) type Edit = fn(&mut Node<'static>);
pub(super) type List = fn(&mut StepFacts) -> &mut Vec<String>;
pub(super) type Spoil = fn(Session) -> Session;

/// What an agent hears of an error.
pub(super) fn heard(title: &str, findings: &[String]) -> String {
    format!(
        "{title}\n- {}\n\nWhat the session said of itself:\nwords",
        findings.join("\n- ")
    )
}
