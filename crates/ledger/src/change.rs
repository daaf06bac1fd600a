//! What a decision writes, as plain columns: for a store that takes all of it at once.

use runner_lifecycle::decide::{Decision, LeaseChange, LockChange};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::run::{Lease, Run};
use runner_lifecycle::watchdog::lease_deadline;
use runner_lifecycle::{Policy, State, Timestamp};

use crate::error::StoreError;
use crate::facts::Loaded;
use crate::records::{self, int};
use crate::wakes::{self, Key};
use crate::writes::{self, Columns};

/// Texts of which some are missing.
pub(crate) type Texts = Vec<Option<String>>;
/// Numbers of which some are missing.
pub(crate) type Numbers = Vec<Option<i64>>;

/// A recorded answer: its name, the digest of the request and the answer.
pub(crate) type Record = [String; 3];

/// Everything that one decision writes.
#[derive(Debug, Default)]
pub struct Change {
    pub(crate) id: String,
    pub(crate) expected: Option<i64>,
    /// The row: state, role, lane, queue, `blocked_on`, lineage, `rework_of`,
    /// `superseded_by`, awaits, doc, scope.
    pub(crate) texts: Option<Texts>,
    /// The row: version, rank, `created_at`, `updated_at`, `retry_at`, `due_at`.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) event_versions: Vec<i64>,
    pub(crate) event_states: Vec<String>,
    pub(crate) event_times: Vec<i64>,
    pub(crate) event_docs: Vec<String>,
    /// For each run its id, status and doc.
    pub(crate) runs: Vec<String>,
    /// For each run its number, start, judgements and how long its task had waited.
    pub(crate) run_numbers: Numbers,
    /// Whether some of them may be new; otherwise there is one, and it was read.
    pub(crate) new_runs: bool,
    /// `set`, `beat` or `end`.
    pub(crate) lease: Option<&'static str>,
    pub(crate) lease_texts: Option<Vec<String>>,
    pub(crate) lease_numbers: Option<Vec<i64>>,
    /// The lease that was read.
    pub(crate) was_token: Option<i64>,
    pub(crate) was_beat: Option<i64>,
    pub(crate) was_owner: Option<String>,
    pub(crate) take: Option<Vec<String>>,
    pub(crate) release: bool,
    /// `put` or `end`.
    pub(crate) result: Option<&'static str>,
    pub(crate) result_scope: Option<Vec<String>>,
    pub(crate) receipt_token: Option<i64>,
    pub(crate) receipt: Option<String>,
    pub(crate) request: Option<Vec<String>>,
    /// A word that is passed on if what it is about has ended.
    pub(crate) passed: Option<String>,
    /// What has ended besides the locks.
    pub(crate) wake: Vec<String>,
    pub(crate) done_at: Option<i64>,
    /// Decided from memory: the one resource that nobody else may hold a part of, with
    /// everything that lies above it first.
    pub(crate) alone: Option<Vec<String>>,
}

/// Whether a decision can be written as one change: dependencies of a new task and a
/// successor need more than that.
pub(crate) fn fits(before: Option<&Loaded>, decision: &Decision) -> bool {
    decision.created.is_none() && (before.is_some() || decision.task.dependencies.is_empty())
}

impl Change {
    pub(crate) fn of(
        policy: &Policy,
        before: Option<&Loaded>,
        decision: &Decision,
        request: Option<Record>,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        let task = &decision.task;
        let was = before.and_then(|loaded| loaded.lease.as_ref());
        let mut change = Change {
            id: task.id.to_string(),
            release: decision.locks == LockChange::Release,
            was_token: was.map(|lease| int(lease.token)),
            was_beat: was.map(|lease| lease.last_heartbeat_at.0),
            was_owner: was.map(|lease| lease.owner.clone()),
            request: request.map(Vec::from),
            ..Change::default()
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
        change.new_runs = match decision.runs.as_slice() {
            [run] => read.is_none_or(|read| read.id != run.id),
            _ => true,
        };
        for run in &decision.runs {
            change.run(run, writes::waited_millis(before, run))?;
        }
        match &decision.lease {
            LeaseChange::Keep => {}
            LeaseChange::Set(lease) => change.lease(lease, decision.events.is_empty()),
            LeaseChange::End => change.lease = Some("end"),
        }
        if let LockChange::Take(scope) = &decision.locks {
            change.take = Some(texts(scope));
        }
        if let Some(receipt) = &decision.receipt {
            change.receipt_token = Some(int(receipt.token));
            change.receipt = Some(records::text("a receipt", receipt)?);
        }
        let was_done = before.is_some_and(|loaded| loaded.task.state == State::Done);
        change.done_at = (task.state == State::Done && !was_done).then_some(now.0);
        Ok(change)
    }

    fn row(
        &mut self,
        policy: &Policy,
        before: Option<&Loaded>,
        decision: &Decision,
    ) -> Result<(), StoreError> {
        let task = &decision.task;
        let newest = decision.runs.last();
        let newest = newest.or(before.and_then(|loaded| loaded.run.as_ref()));
        let columns = Columns::of(policy, task, newest)?;
        self.expected = decision.expected_version.map(int);
        self.numbers = Some(columns.numbers(task));
        self.texts = Some(columns.texts(task));
        let is = records::is_unmerged(task);
        let was = before.is_some_and(|loaded| records::is_unmerged(&loaded.task));
        if is && !was {
            self.result = Some("put");
            self.result_scope = Some(texts(&task.lock_scope));
        } else if was && !is {
            self.result = Some("end");
            self.wake.push(Key::Result(task.id.clone()).text());
        }
        let passed = before.map(|loaded| wakes::passed_on(loaded, task));
        for key in passed.into_iter().flatten() {
            match key {
                Key::Stored(text) => self.passed = Some(text),
                key => self.wake.push(key.text()),
            }
        }
        Ok(())
    }

    fn run(&mut self, run: &Run, waited_millis: Option<u64>) -> Result<(), StoreError> {
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
        self.lease = Some(if beat { "beat" } else { "set" });
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

/// A resource after everything that lies above it.
pub(crate) fn with_ancestors(resource: &Resource) -> Vec<String> {
    let mut names = texts(&resource.ancestors());
    names.push(resource.as_str().to_owned());
    names
}

fn texts(scope: &[Resource]) -> Vec<String> {
    scope.iter().map(|one| one.as_str().to_owned()).collect()
}
