//! Decisions: a request and what is known go in, what shall be written comes out.
//!
//! Nothing is done here. A [`Decision`] is carried out by the ledger in one
//! transaction, or not at all.

mod claim;
mod draft;
mod judge;
mod manage;
mod recover;
mod repair;
mod work;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::TaskEvent;
use crate::lock::Resource;
use crate::policy::{Policy, PolicyRule};
use crate::request::{Facts, Request, TaskCall};
use crate::row::Task;
use crate::run::{Lease, Receipt, TaskRun};
use crate::time::Timestamp;
use crate::words::{BlockReason, RefusalCode, TaskState};
use draft::Draft;

pub use claim::assignment;
pub(crate) use manage::created;
pub use manage::{blockers, dependency_cycle};

/// Why a request is not followed. Nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Refusal {
    /// The one code.
    pub code: RefusalCode,
    /// The same for people.
    pub reason: String,
    /// What else is known.
    pub details: Map<String, Value>,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: RefusalCode, reason: impl Into<String>) -> Refusal {
        Refusal {
            code,
            reason: reason.into(),
            details: Map::new(),
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Refusal {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// What the caller is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The lease is yours.
    Claimed {
        /// Name it in every write.
        token: u64,
        /// The run that it is about.
        run_id: String,
        /// When it ends unless a heartbeat comes.
        expires_at: Timestamp,
    },
    /// The heartbeat was heard.
    Heard {
        /// When the lease ends unless another one comes.
        expires_at: Timestamp,
    },
    /// The task stands there now.
    Moved {
        /// Its state.
        state: TaskState,
        /// What it waits for.
        blocked_on: Option<BlockReason>,
        /// When it is tried again.
        retry_at: Option<Timestamp>,
    },
    /// There was nothing to do.
    Unchanged,
}

/// What happens to the locks of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// They stay.
    Keep,
    /// These are taken, all or none.
    Take(Vec<Resource>),
    /// All are released.
    Release,
}

/// What happens to the lease of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// It stays.
    Keep,
    /// It begins, or is renewed.
    Set(Lease),
    /// It ends.
    End,
}

/// A task that is made in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its row.
    pub task: Task,
    /// Its events.
    pub events: Vec<TaskEvent>,
}

/// What one transaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision changes nothing until it is written"]
pub struct Decision {
    /// The version the row must still have; none for a creation.
    pub expected_version: Option<u64>,
    /// The new row.
    pub task: Task,
    /// Its new events, one for each version.
    pub events: Vec<TaskEvent>,
    /// Its locks.
    pub locks: LockChange,
    /// Its lease.
    pub lease: LeaseChange,
    /// Runs that are new or changed, whole.
    pub runs: Vec<TaskRun>,
    /// The receipt for repeats of this request.
    pub receipt: Option<Receipt>,
    /// The successor.
    pub created: Option<Created>,
    /// What the caller is told.
    pub answer: Answer,
    /// Whether this request was answered before.
    pub replayed: bool,
}

impl Decision {
    /// Whether nothing at all is written.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.runs.is_empty() && self.lease == LeaseChange::Keep
    }
}

/// Decides a request. `task` is the row as the caller read it, none if there is none.
pub fn decide(
    policy: &Policy,
    task: Option<&Task>,
    call: &TaskCall,
    facts: &Facts,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let Some(task) = task else {
        return match &call.request {
            Request::Create(new) => manage::create(policy, new, call, facts, now),
            _ => Err(Refusal::new(
                RefusalCode::MissingRequiredInput,
                "there is no such task",
            )),
        };
    };
    let draft = Draft::new(policy, task, call, facts, now);
    if policy.enforces(PolicyRule::Receipts)
        && let Some(repeat) = repeat(task, call, facts)?
    {
        return Ok(draft.replay(repeat));
    }
    if let Request::Claim(claim) = &call.request
        && let Some(repeat) = claim::repeat(claim, facts)
    {
        return Ok(draft.replay(repeat));
    }
    // What stands beside a task that has ended can be repaired all the same.
    let ended = task.state.is_terminal() && call.request != Request::Repair;
    if ended && policy.enforces(PolicyRule::TerminalStates) {
        return manage::terminal(draft);
    }
    check_version(policy, task, call)?;
    check_token(policy, call, facts)?;
    check_intent(policy, task, call)?;
    match &call.request {
        Request::Create(_) => Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!("task {} exists already", task.id),
        )),
        Request::Claim(claim) => claim::claim(draft, claim),
        Request::Heartbeat { .. } => claim::heartbeat(draft),
        Request::Finish { run_id, ending, .. } => work::finish(draft, run_id, ending),
        Request::Judge { ending, .. } => judge::end(draft, ending),
        Request::RecordIntent { intent, packet, .. } => judge::record_intent(draft, intent, packet),
        Request::SettleIntent { intent, base, .. } => judge::settle_intent(draft, intent, *base),
        Request::Block {
            code,
            reason,
            waits_for,
        } => manage::block(draft, *code, reason, waits_for.as_deref()),
        Request::Expire { not_before } => work::expire(draft, *not_before),
        Request::TakeBack => work::take_back(draft),
        Request::EndTimebox => work::end_timebox(draft),
        Request::Recover { packet, successor } => {
            recover::recover(draft, packet.as_ref(), successor.as_ref())
        }
        Request::Replan(packet) => manage::replan(draft, packet),
        Request::Cancel { reason } => manage::cancel(draft, reason),
        Request::AcceptJudge { reason } => manage::accept_judge(draft, reason),
        Request::Pause { paused } => Ok(manage::pause(draft, *paused)),
        Request::Repair => repair::repair(draft),
        Request::Retry { .. } | Request::Reassert { .. } => Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!("task {} is {}, it has not ended", task.id, task.state),
        )),
    }
}

/// The recorded answer, if the request ended a lease before; a refusal, if another
/// request did.
fn repeat(task: &Task, call: &TaskCall, facts: &Facts) -> Result<Option<Answer>, Refusal> {
    let Some(receipt) = &facts.receipt else {
        return Ok(None);
    };
    if call.request.token() != Some(receipt.token) || receipt.task_id != task.id {
        return Ok(None);
    }
    if receipt.digest == call.request.digest() {
        return Ok(Some(receipt.answer.clone()));
    }
    Err(Refusal::new(
        RefusalCode::ConcurrencyConflict,
        format!(
            "the lease with token {} has ended with another request",
            receipt.token
        ),
    ))
}

fn check_version(policy: &Policy, task: &Task, call: &TaskCall) -> Result<(), Refusal> {
    match call.expected_version {
        Some(expected)
            if expected != task.version && policy.enforces(PolicyRule::CompareAndSet) =>
        {
            Err(Refusal::new(
                RefusalCode::ConcurrencyConflict,
                format!("task {} has version {} by now", task.id, task.version),
            )
            .detail("expected_version", expected)
            .detail("version", task.version))
        }
        _ => Ok(()),
    }
}

/// Only the holder of the current lease writes for it.
fn check_token(policy: &Policy, call: &TaskCall, facts: &Facts) -> Result<(), Refusal> {
    let Some(token) = call.request.token() else {
        return Ok(());
    };
    let current = facts.lease.as_ref();
    let holds = current.is_some_and(|lease| lease.token == token && lease.owner == call.actor);
    if holds || !policy.enforces(PolicyRule::Fencing) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::ConcurrencyConflict,
        format!("token {token} is not that of the current lease: stop the work"),
    )
    .detail("token", token))
}

/// An open intent is rolled forward before anything else.
fn check_intent(policy: &Policy, task: &Task, call: &TaskCall) -> Result<(), Refusal> {
    let forward = match &call.request {
        Request::Heartbeat { .. }
        | Request::SettleIntent { .. }
        | Request::RecordIntent { .. }
        | Request::Claim(_)
        | Request::Expire { .. }
        | Request::TakeBack
        | Request::EndTimebox
        | Request::Repair
        | Request::Recover { .. } => true,
        // The head of the queue may be cut off by a quota or step back.
        Request::Judge { ending, .. } => judge::keeps_intent(ending),
        _ => false,
    };
    if task.intent.is_none() || forward || !policy.enforces(PolicyRule::IntentFirst) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::ConcurrencyConflict,
        format!(
            "task {} is being merged; try again when that is through",
            task.id
        ),
    ))
}

#[cfg(test)]
mod tests;
