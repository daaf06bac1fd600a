//! What several tests make in the same way.

use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::{ChangeAction, PacketExtra, ResourceChange};
use runner_lifecycle::retry::LoopEnding;
use runner_lifecycle::row::Criterion;
use runner_lifecycle::{CriterionCheck, Task, TaskId};

use crate::workspaces::{CheckEnd, CheckOutcome, LoopUsage, WorkOutcome, WorkResult};

/// A task that may change `src`, checked by the guard and by one command.
pub(super) fn task() -> Task {
    Task {
        title: "add a parser".to_owned(),
        goal: "there is a parser".to_owned(),
        role: "worker".to_owned(),
        lock_scope: scope(&["src"]),
        acceptance: vec![
            criterion("guard", CriterionCheck::Command),
            criterion("parses", CriterionCheck::Command),
        ],
        commands: vec!["cargo test parser".to_owned()],
        ..Task::blank(id("t"))
    }
}

pub(super) fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

pub(super) fn scope(paths: &[&str]) -> Vec<Resource> {
    paths
        .iter()
        .map(|path| Resource::parse(path).unwrap())
        .collect()
}

pub(super) fn criterion(id: &str, check: CriterionCheck) -> Criterion {
    Criterion {
        id: id.to_owned(),
        text: format!("{id} holds"),
        check,
    }
}

pub(super) fn change(path: &str, action: ChangeAction) -> ResourceChange {
    ResourceChange {
        resource: path.to_owned(),
        action,
        evidence: None,
        extra: PacketExtra::new(),
    }
}

pub(super) fn checked(id: &str, end: CheckEnd, tail: &str) -> CheckOutcome {
    CheckOutcome {
        id: id.to_owned(),
        end,
        evidence: format!("evidence of {id}"),
        tail: tail.to_owned(),
    }
}

/// A loop that is complete, with a change inside the scope and green checks.
pub(super) fn worked() -> WorkOutcome {
    WorkOutcome {
        ending: LoopEnding::Complete,
        result: Some(WorkResult {
            start: "s0".to_owned(),
            commit: "c1".to_owned(),
            changes: vec![change("src/parser.rs", ChangeAction::Created)],
        }),
        checks: vec![
            checked("guard", CheckEnd::Green, ""),
            checked("parses", CheckEnd::Green, ""),
        ],
        why: String::new(),
        quota_until: None,
        account: "codex".to_owned(),
        spent: LoopUsage::default(),
    }
}
