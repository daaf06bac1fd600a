//! A yard that answers at once: what is left is what the fleet itself costs.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use runner_fleet::rules::answers::GUARD;
use runner_fleet::yard::{
    CheckEnd, Checked, Done, Kept, Merge, PlanOrder, Presented, ReviewOrder, Reviewed, Spent,
    StopSign, Trouble, WorkOrder, WorkResult, Worked, Yard,
};
use runner_lifecycle::packet::{ChangeAction, PacketExtra, ResourceChange};
use runner_lifecycle::retry::LoopEnding;
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BasePosition, Task};
use tokio::sync::mpsc::UnboundedSender;

const START: &str = "start";

/// Remembers where the base is, and says when work begins.
pub(crate) struct InstantYard {
    base: Mutex<String>,
    started: UnboundedSender<Instant>,
}

impl InstantYard {
    pub(crate) fn new(started: UnboundedSender<Instant>) -> InstantYard {
        InstantYard {
            base: Mutex::new(START.to_owned()),
            started,
        }
    }

    fn at(&self) -> String {
        let base = self.base.lock();
        base.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn now<'a, T: Send + 'a>(answer: T) -> Done<'a, T> {
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
pub(crate) fn green() -> Checked {
    Checked {
        id: GUARD.to_owned(),
        end: CheckEnd::Green,
        evidence: "exit 0, log 1234".to_owned(),
        tail: String::new(),
    }
}

impl Yard for InstantYard {
    fn base(&self) -> Done<'_, String> {
        now(self.at())
    }

    fn work(&self, order: WorkOrder, _: StopSign) -> Done<'_, Worked> {
        // Nobody may be counting any more.
        let _ = self.started.send(Instant::now());
        let task = order.task.id.to_string();
        now(Worked {
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
            spent: Spent::default(),
        })
    }

    fn start_of(&self, _: String) -> Done<'_, Option<String>> {
        now(Some(START.to_owned()))
    }

    fn changes(&self, _: String, result: String) -> Done<'_, Option<Vec<ResourceChange>>> {
        now(Some(changes_of(&result)))
    }

    fn diff_bytes(&self, _: String, _: String) -> Done<'_, u64> {
        now(100)
    }

    fn check(&self, _: String, _: Option<Task>, _: StopSign) -> Done<'_, Vec<Checked>> {
        now(vec![green()])
    }

    fn review(&self, _: ReviewOrder, _: StopSign) -> Done<'_, Reviewed> {
        Box::pin(std::future::ready(Err(Trouble(
            "no review here".to_owned(),
        ))))
    }

    fn merge(&self, base: String, result: String, _: Task, _: String) -> Done<'_, Merge> {
        // Long enough to be a commit, short enough not to grow.
        let seed = format!("{base}{result}");
        now(Merge::Commit(runner_core::digest::sha256_hex(
            seed.as_bytes(),
        )))
    }

    fn position(&self, intent: Intent) -> Done<'_, BasePosition> {
        let base = self.at();
        now(if base == intent.merge_commit {
            BasePosition::Merged
        } else if base == intent.old_base {
            BasePosition::Old
        } else {
            BasePosition::Elsewhere
        })
    }

    fn move_base(&self, intent: Intent) -> Done<'_, bool> {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        if *base == intent.old_base {
            base.clone_from(&intent.merge_commit);
        }
        now(*base == intent.merge_commit)
    }

    fn present(&self) -> Done<'_, Presented> {
        now(Presented::UpToDate)
    }

    fn plan(&self, _: PlanOrder, _: StopSign) -> Done<'_, String> {
        Box::pin(std::future::ready(Err(Trouble("no plan here".to_owned()))))
    }

    fn kept(&self) -> Done<'_, Vec<Kept>> {
        now(Vec::new())
    }

    fn sweep(&self, _: Vec<Kept>) -> Done<'_, ()> {
        now(())
    }
}
