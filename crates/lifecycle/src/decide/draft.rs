//! A decision in the making: every step of the row becomes an event.

use serde_json::{Map, Value};

use super::{Answer, Created, Decision, LeaseChange, LockChange, Refusal};
use crate::event::TaskEvent;
use crate::policy::{Policy, PolicyRule};
use crate::request::{Facts, TaskCall};
use crate::row::Task;
use crate::run::{Receipt, TaskRun};
use crate::time::Timestamp;
use crate::words::{BlockReason, FailureCategory, RefusalCode, TaskRunStatus, TaskState};

pub(super) struct Draft<'d> {
    pub(super) policy: &'d Policy,
    pub(super) call: &'d TaskCall,
    pub(super) facts: &'d Facts,
    pub(super) now: Timestamp,
    pub(super) row: Task,
    before: u64,
    events: Vec<TaskEvent>,
    pub(super) locks: LockChange,
    pub(super) lease: LeaseChange,
    pub(super) run: Option<TaskRun>,
    /// Older runs that end.
    pub(super) closed: Vec<TaskRun>,
    pub(super) created: Option<Created>,
    receipt: bool,
}

/// A block: the word, what people read, and when or for what it ends.
pub(super) struct Block<'b> {
    pub(super) code: BlockReason,
    pub(super) reason: &'b str,
    pub(super) retry_at: Option<Timestamp>,
    pub(super) waits_for: Option<&'b str>,
}

impl<'b> Block<'b> {
    pub(super) fn on(code: BlockReason, reason: &'b str) -> Block<'b> {
        Block {
            code,
            reason,
            retry_at: None,
            waits_for: None,
        }
    }
}

impl<'d> Draft<'d> {
    pub(super) fn new(
        policy: &'d Policy,
        task: &Task,
        call: &'d TaskCall,
        facts: &'d Facts,
        now: Timestamp,
    ) -> Draft<'d> {
        Draft {
            policy,
            call,
            facts,
            now,
            row: task.clone(),
            before: task.version,
            events: Vec::new(),
            locks: LockChange::Keep,
            lease: LeaseChange::Keep,
            run: None,
            closed: Vec::new(),
            created: None,
            receipt: false,
        }
    }

    /// Goes to another state.
    pub(super) fn go(
        &mut self,
        to: TaskState,
        event: &str,
        edit: impl FnOnce(&mut Task),
    ) -> Result<(), Refusal> {
        self.go_with(to, event, Map::new(), edit)
    }

    /// Goes to another state, with details in the event.
    pub(super) fn go_with(
        &mut self,
        to: TaskState,
        event: &str,
        details: Map<String, Value>,
        edit: impl FnOnce(&mut Task),
    ) -> Result<(), Refusal> {
        let from = self.row.state;
        if !from.may_become(to) && self.policy.enforces(PolicyRule::TerminalStates) {
            return Err(Refusal::new(
                RefusalCode::InvalidTransition,
                format!("task {} cannot go from {from} to {to}", self.row.id),
            )
            .detail("from_state", from.as_str())
            .detail("to_state", to.as_str()));
        }
        if from == TaskState::InProgress {
            self.lease = LeaseChange::End;
            if self.policy.enforces(PolicyRule::LockRelease) {
                self.locks = LockChange::Release;
            }
        }
        self.record(event, details, |row| {
            row.state = to;
            if to != TaskState::Blocked {
                row.blocker = None;
            }
            if matches!(to, TaskState::Todo | TaskState::Blocked) {
                row.owner = None;
            }
            edit(row);
        });
        Ok(())
    }

    /// Changes fields without going anywhere.
    pub(super) fn note(&mut self, event: &str, edit: impl FnOnce(&mut Task)) {
        self.record(event, Map::new(), edit);
    }

    /// Notes that something beside the row has changed. A task that has ended says so
    /// again.
    pub(super) fn note_beside(&mut self, event: &str, details: Map<String, Value>) {
        if self.row.state.is_terminal() {
            self.self_loop(event, details, |_| ());
        } else {
            self.record(event, details, |_| ());
        }
    }

    fn record(&mut self, event: &str, details: Map<String, Value>, edit: impl FnOnce(&mut Task)) {
        let old = self.row.clone();
        self.row.updated_at = self.now;
        edit(&mut self.row);
        self.append(&old, event, details);
    }

    fn append(&mut self, old: &Task, event: &str, details: Map<String, Value>) {
        self.row.version += 1;
        self.events.push(TaskEvent {
            task_id: self.row.id.clone(),
            version: self.row.version,
            from_state: Some(old.state),
            to_state: self.row.state,
            actor: self.call.actor.clone(),
            reason: event.to_owned(),
            created_at: self.now,
            details,
            changes: old.changes_to(&self.row),
        });
    }

    /// Blocks the task. Another block is left through `todo`: there is no transition
    /// from `blocked` to `blocked`.
    pub(super) fn block(
        &mut self,
        block: &Block<'_>,
        event: &str,
        edit: impl FnOnce(&mut Task),
    ) -> Result<(), Refusal> {
        self.block_with(block, event, Map::new(), edit)
    }

    pub(super) fn block_with(
        &mut self,
        block: &Block<'_>,
        event: &str,
        details: Map<String, Value>,
        edit: impl FnOnce(&mut Task),
    ) -> Result<(), Refusal> {
        if self.row.state == TaskState::Blocked {
            self.go(TaskState::Todo, event, |_| ())?;
        }
        let now = self.now;
        self.go_with(TaskState::Blocked, event, details, |row| {
            let mut blocker = row.blocker_of(block.code, block.reason, now);
            blocker.retry_at = block.retry_at;
            blocker.waits_for = block.waits_for.map(str::to_owned);
            row.blocker = Some(blocker);
            edit(row);
        })
    }

    /// Edits the newest run.
    pub(super) fn edit_run(&mut self, edit: impl FnOnce(&mut TaskRun)) {
        if self.run.is_none() {
            self.run.clone_from(&self.facts.run);
        }
        if let Some(run) = &mut self.run {
            edit(run);
        }
    }

    /// Ends the newest run, if it is running.
    pub(super) fn close_run(
        &mut self,
        status: TaskRunStatus,
        category: Option<FailureCategory>,
        signature: Option<&str>,
    ) {
        let now = self.now;
        let running = |run: &TaskRun| run.status == TaskRunStatus::Running;
        if self.facts.run.as_ref().is_some_and(running) {
            self.edit_run(|run| {
                run.status = status;
                run.category = category;
                run.signature = signature.map(str::to_owned);
                run.ended_at = Some(now);
            });
        }
    }

    /// Keeps the answer for repeats: this request ends a lease.
    pub(super) fn with_receipt(mut self) -> Self {
        self.receipt = true;
        self
    }

    /// The decision, with where the task stands as the answer.
    pub(super) fn moved(self) -> Decision {
        let answer = self.where_it_stands();
        self.decided(answer)
    }

    /// Where the task stands, as an answer.
    pub(super) fn where_it_stands(&self) -> Answer {
        Answer::Moved {
            state: self.row.state,
            blocked_on: self.row.blocked_on(),
            retry_at: self.row.retry_at(),
        }
    }

    /// The decision, with that answer.
    pub(super) fn decided(self, answer: Answer) -> Decision {
        let token = self.call.request.token().filter(|_| self.receipt);
        Decision {
            expected_version: Some(self.before),
            receipt: token.map(|token| Receipt {
                task_id: self.row.id.clone(),
                token,
                digest: self.call.request.digest(),
                answer: answer.clone(),
            }),
            task: self.row,
            events: self.events,
            locks: self.locks,
            lease: self.lease,
            runs: self.closed.into_iter().chain(self.run).collect(),
            created: self.created,
            answer,
            replayed: false,
        }
    }

    /// The decision to give an earlier answer again. On a terminal task the replay
    /// itself is an event; nothing but the version changes.
    pub(super) fn replay(mut self, answer: Answer) -> Decision {
        if self.row.state.is_terminal() {
            self.self_loop("replayed", Map::new(), |_| ());
        }
        let mut decision = self.decided(answer);
        decision.replayed = true;
        decision
    }

    /// Says again that the task ended so.
    pub(super) fn self_loop(
        &mut self,
        event: &str,
        details: Map<String, Value>,
        edit: impl FnOnce(&mut Task),
    ) {
        let old = self.row.clone();
        edit(&mut self.row);
        self.append(&old, event, details);
    }
}
