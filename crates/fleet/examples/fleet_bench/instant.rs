//! Workspaces that answer at once: what is left is what the fleet itself costs.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use runner_fleet::rules::answers::GUARD;
use runner_fleet::workspaces::{
    BaseUpdate, CheckEnd, CheckOutcome, InvertedCheck, LeftoverRun, LoopUsage, PlanOrder,
    ReviewOrder, ReviewReply, StopSign, TaskMergeOutcome, WorkOrder, WorkOutcome, WorkResult,
    WorkspaceError, WorkspaceFuture, Workspaces,
};
use runner_lifecycle::packet::{ChangeAction, PacketExtra, ResourceChange};
use runner_lifecycle::retry::LoopEnding;
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BasePosition, Task};
use tokio::sync::mpsc::UnboundedSender;

const START: &str = "start";

/// Remembers where the base is, and says when work begins.
pub(crate) struct InstantWorkspaces {
    base: Mutex<String>,
    started: UnboundedSender<Instant>,
}

impl InstantWorkspaces {
    pub(crate) fn new(started: UnboundedSender<Instant>) -> InstantWorkspaces {
        InstantWorkspaces {
            base: Mutex::new(START.to_owned()),
            started,
        }
    }

    fn at(&self) -> String {
        let base = self.base.lock();
        base.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn now<'a, T: Send + 'a>(answer: T) -> WorkspaceFuture<'a, T> {
    Box::pin(std::future::ready(Ok(answer)))
}

/// The one file that a task changes; results are named after their task.
pub(crate) fn changes_of(task: &str) -> Vec<ResourceChange> {
    vec![ResourceChange {
        resource: format!("{task}/file"),
        action: ChangeAction::Created,
        evidence: None,
        extra: PacketExtra::new(),
    }]
}

/// A guard that was green.
pub(crate) fn green() -> CheckOutcome {
    CheckOutcome {
        id: GUARD.to_owned(),
        end: CheckEnd::Green,
        evidence: "exit 0, log 1234".to_owned(),
        tail: String::new(),
    }
}

impl Workspaces for InstantWorkspaces {
    fn base(&self) -> WorkspaceFuture<'_, String> {
        now(self.at())
    }

    fn work(&self, order: WorkOrder, _: StopSign) -> WorkspaceFuture<'_, WorkOutcome> {
        // Nobody may be counting any more.
        let _ = self.started.send(Instant::now());
        let task = order.task.id.to_string();
        now(WorkOutcome {
            ending: LoopEnding::Complete,
            result: Some(WorkResult {
                start: START.to_owned(),
                changes: changes_of(&task),
                commit: task,
            }),
            checks: vec![green()],
            why: String::new(),
            quota_until: None,
            account: String::new(),
            spent: LoopUsage::default(),
        })
    }

    fn start_of(&self, _: String) -> WorkspaceFuture<'_, Option<String>> {
        now(Some(START.to_owned()))
    }

    fn changes(
        &self,
        _: String,
        result: String,
    ) -> WorkspaceFuture<'_, Option<Vec<ResourceChange>>> {
        now(Some(changes_of(&result)))
    }

    fn diff_bytes(&self, _: String, _: String) -> WorkspaceFuture<'_, u64> {
        now(100)
    }

    fn check(
        &self,
        _: String,
        _: Option<Task>,
        _: StopSign,
    ) -> WorkspaceFuture<'_, Vec<CheckOutcome>> {
        now(vec![green()])
    }

    fn check_inverted(
        &self,
        _: String,
        _: String,
        _: Task,
        _: StopSign,
    ) -> WorkspaceFuture<'_, InvertedCheck> {
        now(InvertedCheck::Same)
    }

    fn review(&self, _: ReviewOrder, _: StopSign) -> WorkspaceFuture<'_, ReviewReply> {
        Box::pin(std::future::ready(Err(WorkspaceError(
            "no review here".to_owned(),
        ))))
    }

    fn merge(
        &self,
        base: String,
        result: String,
        _: Task,
        _: String,
    ) -> WorkspaceFuture<'_, TaskMergeOutcome> {
        // Long enough to be a commit, short enough not to grow.
        let seed = format!("{base}{result}");
        now(TaskMergeOutcome::Commit(runner_core::digest::sha256_hex(
            seed.as_bytes(),
        )))
    }

    fn position(&self, intent: Intent) -> WorkspaceFuture<'_, BasePosition> {
        let base = self.at();
        now(if base == intent.merge_commit {
            BasePosition::Merged
        } else if base == intent.old_base {
            BasePosition::Old
        } else {
            BasePosition::Elsewhere
        })
    }

    fn move_base(&self, intent: Intent) -> WorkspaceFuture<'_, bool> {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        if *base == intent.old_base {
            base.clone_from(&intent.merge_commit);
        }
        now(*base == intent.merge_commit)
    }

    fn update_user_branch(&self) -> WorkspaceFuture<'_, BaseUpdate> {
        now(BaseUpdate::UpToDate)
    }

    fn plan(&self, _: PlanOrder, _: StopSign) -> WorkspaceFuture<'_, String> {
        Box::pin(std::future::ready(Err(WorkspaceError(
            "no plan here".to_owned(),
        ))))
    }

    fn leftover_runs(&self) -> WorkspaceFuture<'_, Vec<LeftoverRun>> {
        now(Vec::new())
    }

    fn sweep(&self, _: Vec<LeftoverRun>) -> WorkspaceFuture<'_, ()> {
        now(())
    }
}
