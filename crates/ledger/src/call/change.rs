//! What a decision writes, as plain columns: for a store that takes all of it at once.

use runner_lifecycle::decide::{Decision, LeaseChange, LockChange};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::watchdog::lease_deadline;
use runner_lifecycle::{Policy, TaskId, TaskState, Timestamp};

use crate::call::facts::LoadedTask;
use crate::call::records;
use crate::call::records::int;
use crate::call::writes;
use crate::call::writes::RowColumns;
use crate::error::StoreError;
use crate::role::wakes;
use crate::role::wakes::WakeKey;

/// Texts of which some are missing.
pub(crate) type OptionalTexts = Vec<Option<String>>;
/// Numbers of which some are missing.
pub(crate) type OptionalNumbers = Vec<Option<i64>>;

/// A recorded answer: its name, the digest of the request and the answer.
pub(crate) type AnswerRecord = [String; 3];

/// What becomes of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RunsWrite {
    /// There is one, and it is the first or follows the one that was read.
    Add,
    /// There is one, and it was read.
    Change,
    /// Some may be new.
    Put,
}

/// What becomes of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LeaseWrite {
    Set,
    Beat,
    End,
}

/// What becomes of a result that waits for its merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResultWrite {
    Put,
    End,
}

/// Everything that one decision writes.
#[derive(Debug, Default)]
pub struct StoreChange {
    pub(crate) id: String,
    pub(crate) expected: Option<i64>,
    /// The row: state, role, lane, queue, `blocked_on`, lineage, `rework_of`,
    /// `superseded_by`, awaits, doc, scope.
    pub(crate) texts: Option<OptionalTexts>,
    /// The row: version, rank, `created_at`, `updated_at`, `retry_at`, `due_at`.
    pub(crate) numbers: Option<OptionalNumbers>,
    pub(crate) event_versions: Vec<i64>,
    pub(crate) event_states: Vec<String>,
    pub(crate) event_times: Vec<i64>,
    pub(crate) event_docs: Vec<String>,
    /// For each run its id, status and doc.
    pub(crate) runs: Vec<String>,
    /// For each run its number, start, judgements and how long its task had waited.
    pub(crate) run_numbers: OptionalNumbers,
    /// None: nothing becomes of any.
    pub(crate) runs_write: Option<RunsWrite>,
    pub(crate) lease: Option<LeaseWrite>,
    pub(crate) lease_texts: Option<Vec<String>>,
    pub(crate) lease_numbers: Option<Vec<i64>>,
    /// The lease that was read.
    pub(crate) was_token: Option<i64>,
    pub(crate) was_beat: Option<i64>,
    pub(crate) was_owner: Option<String>,
    pub(crate) take: Option<Vec<String>>,
    pub(crate) release: bool,
    pub(crate) result: Option<ResultWrite>,
    pub(crate) result_scope: Option<Vec<String>>,
    pub(crate) receipt_token: Option<i64>,
    pub(crate) receipt: Option<String>,
    pub(crate) request: Option<Vec<String>>,
    /// A word that is passed on if what it is about has ended.
    pub(crate) passed: Option<String>,
    /// What has ended besides the locks.
    pub(crate) wake: Vec<String>,
    pub(crate) done_at: Option<i64>,
    /// Decided from memory: the one resource that nobody else may hold a part of, after
    /// whatever else nobody may hold: what its judge would, and all that lies above it.
    pub(crate) alone: Option<Vec<String>>,
}

/// Whether a decision can be written as one change: dependencies of a new task and a
/// successor need more than that.
pub(crate) fn fits(before: Option<&LoadedTask>, decision: &Decision) -> bool {
    decision.created.is_none() && (before.is_some() || decision.task.dependencies.is_empty())
}

impl StoreChange {
    pub(crate) fn of(
        policy: &Policy,
        before: Option<&LoadedTask>,
        decision: &Decision,
        request: Option<AnswerRecord>,
        now: Timestamp,
    ) -> Result<StoreChange, StoreError> {
        let task = &decision.task;
        let was = before.and_then(|loaded| loaded.lease.as_ref());
        let mut change = StoreChange {
            id: task.id.to_string(),
            release: decision.locks == LockChange::Release,
            was_token: was.map(|lease| int(lease.token)),
            was_beat: was.map(|lease| lease.last_heartbeat_at.0),
            was_owner: was.map(|lease| lease.owner.clone()),
            request: request.map(Vec::from),
            ..StoreChange::default()
        };
        if !decision.events.is_empty() {
            change.row(policy, before, decision)?;
        }
        for event in &decision.events {
            change.event_versions.push(int(event.version));
            change.event_states.push(event.to_state.as_str().to_owned());
            change.event_times.push(event.created_at.0);
            change.event_docs.push(records::text("an event", event)?);
        }
        let read = before.and_then(|loaded| loaded.run.as_ref());
        change.runs_write = match (decision.runs.as_slice(), read) {
            ([], _) => None,
            ([_], None) => Some(RunsWrite::Add),
            ([run], Some(read)) if run.id == read.id => Some(RunsWrite::Change),
            ([run], Some(read)) if run.number > read.number => Some(RunsWrite::Add),
            _ => Some(RunsWrite::Put),
        };
        for run in &decision.runs {
            change.run(run, writes::waited_millis(before, run))?;
        }
        match &decision.lease {
            LeaseChange::Keep => {}
            LeaseChange::Set(lease) => change.lease(lease, decision.events.is_empty()),
            LeaseChange::End => change.lease = Some(LeaseWrite::End),
        }
        if let LockChange::Take(scope) = &decision.locks {
            change.take = Some(texts(scope));
        }
        if let Some(receipt) = &decision.receipt {
            change.receipt_token = Some(int(receipt.token));
            change.receipt = Some(records::text("a receipt", receipt)?);
        }
        let was_done = before.is_some_and(|loaded| loaded.task.state == TaskState::Done);
        change.done_at = (task.state == TaskState::Done && !was_done).then_some(now.0);
        Ok(change)
    }

    fn row(
        &mut self,
        policy: &Policy,
        before: Option<&LoadedTask>,
        decision: &Decision,
    ) -> Result<(), StoreError> {
        let task = &decision.task;
        let newest = decision.runs.last();
        let newest = newest.or(before.and_then(|loaded| loaded.run.as_ref()));
        let columns = RowColumns::of(policy, task, newest)?;
        self.expected = decision.expected_version.map(int);
        self.numbers = Some(columns.numbers(task));
        self.texts = Some(columns.texts(task));
        let is = task.has_unmerged_result();
        let was = before.is_some_and(|loaded| loaded.task.has_unmerged_result());
        if is && !was {
            self.result = Some(ResultWrite::Put);
            self.result_scope = Some(texts(&task.lock_scope));
        } else if was && !is {
            self.result = Some(ResultWrite::End);
            self.wake.push(WakeKey::Result(task.id.clone()).text());
        }
        let passed = before.map(|loaded| wakes::keys_to_wake(loaded, task));
        for key in passed.into_iter().flatten() {
            match key {
                WakeKey::Stored(text) => self.passed = Some(text),
                key => self.wake.push(key.text()),
            }
        }
        Ok(())
    }

    fn run(&mut self, run: &TaskRun, waited_millis: Option<u64>) -> Result<(), StoreError> {
        let doc = records::text("a run", run)?;
        let status = run.status.as_str().to_owned();
        self.runs.extend([run.id.clone(), status, doc]);
        self.run_numbers.extend([
            Some(i64::from(run.number)),
            Some(run.started_at.0),
            Some(i64::from(run.judgement_version)),
            waited_millis.map(int),
        ]);
        Ok(())
    }

    fn lease(&mut self, lease: &Lease, beat: bool) {
        let write = if beat {
            LeaseWrite::Beat
        } else {
            LeaseWrite::Set
        };
        self.lease = Some(write);
        self.lease_texts = Some(vec![
            lease.run_id.clone(),
            lease.owner.clone(),
            lease.purpose.as_str().to_owned(),
            lease.key.clone(),
        ]);
        self.lease_numbers = Some(vec![
            int(lease.token),
            lease.claimed_at.0,
            lease.last_heartbeat_at.0,
            i64::from(lease.timeout_seconds),
            i64::from(lease.heartbeat_interval_seconds),
            lease.ends_at.0,
            lease_deadline(lease).0,
        ]);
    }
}

/// What nobody else may hold when a task ends: what its judge would lock, everything above
/// its one resource, and that.
pub(crate) fn nobody_elses(task: &TaskId, resource: &Resource) -> Vec<String> {
    let mut names = vec![Resource::judge(task).as_str().to_owned()];
    names.extend(texts(&resource.ancestors()));
    names.push(resource.as_str().to_owned());
    names
}

fn texts(scope: &[Resource]) -> Vec<String> {
    scope.iter().map(|one| one.as_str().to_owned()).collect()
}
