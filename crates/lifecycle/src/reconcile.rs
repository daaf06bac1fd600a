//! Reconciliation: where rows, events, locks, leases and runs contradict each other.

use crate::event::TaskEvent;
use crate::lock::ScopeLock;
use crate::row::{Task, TaskId};
use crate::run::{Lease, TaskRun};
use crate::words::{TaskRunStatus, TaskState};

words! {
    /// How bad a contradiction is.
    InconsistencySeverity {
        /// Nothing becomes `done` before it is repaired.
        Blocking = "blocking",
        /// It should not be, and does no harm.
        Warning = "warning",
    }
}

words! {
    /// What contradicts what.
    InconsistencyKind {
        /// A lock of a task that nobody works on.
        LockWithoutWork = "lock_without_work",
        /// Two tasks hold overlapping locks.
        OverlappingLocks = "overlapping_locks",
        /// Somebody works without having locked anything.
        WorkWithoutLock = "work_without_lock",
        /// Somebody works without a lease.
        WorkWithoutLease = "work_without_lease",
        /// A lease of a task that nobody works on.
        LeaseWithoutWork = "lease_without_work",
        /// The lease and the row name different owners or tokens.
        LeaseNotOfOwner = "lease_not_of_owner",
        /// The row has another state than its last event.
        StateNotLastEvent = "state_not_last_event",
        /// The row has another version than its last event.
        VersionNotLastEvent = "version_not_last_event",
        /// A blocked row without a blocker, or the other way round.
        BlockerMismatch = "blocker_mismatch",
        /// A run is running, and nobody works.
        RunWithoutWork = "run_without_work",
        /// Two runs of a task are running.
        TwoRunningRuns = "two_running_runs",
        /// An ended task has an open merge intent.
        IntentOfEnded = "intent_of_ended",
        /// A superseded task that has not ended, or whose successor says otherwise.
        BrokenLineage = "broken_lineage",
        /// A `done` task without a run that succeeded.
        DoneWithoutRun = "done_without_run",
        /// A dependency that does not exist.
        UnknownDependency = "unknown_dependency",
    }
}

words! {
    /// What repairs a contradiction.
    InconsistencyRepair {
        /// The locks of the task end.
        ReleaseLocks = "release the lock",
        /// Whoever claimed later is timed out.
        TimeOutYounger = "time out the younger of the two claims",
        /// Whoever works is timed out.
        TimeOut = "time out the work",
        /// The lease ends.
        EndLease = "end the lease",
        /// The row is made anew.
        Rebuild = "rebuild the row from its events",
        /// Runs that nobody works on end.
        CloseRuns = "close the run as lost",
        /// The rules do not know which side is right.
        Person = "none: a person looks",
    }
}

impl InconsistencyKind {
    /// How bad it is.
    pub const fn severity(self) -> InconsistencySeverity {
        match self {
            InconsistencyKind::WorkWithoutLock
            | InconsistencyKind::UnknownDependency
            | InconsistencyKind::RunWithoutWork => InconsistencySeverity::Warning,
            _ => InconsistencySeverity::Blocking,
        }
    }

    /// What repairs it.
    pub const fn repair(self) -> InconsistencyRepair {
        match self {
            InconsistencyKind::LockWithoutWork => InconsistencyRepair::ReleaseLocks,
            InconsistencyKind::OverlappingLocks => InconsistencyRepair::TimeOutYounger,
            InconsistencyKind::WorkWithoutLock
            | InconsistencyKind::WorkWithoutLease
            | InconsistencyKind::LeaseNotOfOwner => InconsistencyRepair::TimeOut,
            InconsistencyKind::LeaseWithoutWork => InconsistencyRepair::EndLease,
            InconsistencyKind::StateNotLastEvent
            | InconsistencyKind::VersionNotLastEvent
            | InconsistencyKind::BlockerMismatch
            | InconsistencyKind::IntentOfEnded => InconsistencyRepair::Rebuild,
            InconsistencyKind::RunWithoutWork | InconsistencyKind::TwoRunningRuns => {
                InconsistencyRepair::CloseRuns
            }
            InconsistencyKind::BrokenLineage
            | InconsistencyKind::DoneWithoutRun
            | InconsistencyKind::UnknownDependency => InconsistencyRepair::Person,
        }
    }
}

/// One contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// What contradicts what.
    pub kind: InconsistencyKind,
    /// The task it is about, and that a repair changes.
    pub task_id: TaskId,
    /// The other one, where two contradict each other.
    pub other: Option<TaskId>,
    /// The same for people.
    pub words: String,
}

impl Inconsistency {
    /// Whether it is about the task, or about another one in its relation to it.
    pub fn concerns(&self, id: &TaskId) -> bool {
        self.task_id == *id || self.other.as_ref() == Some(id)
    }
}

/// What is compared: some tasks and all that belongs to them.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileSnapshot<'s> {
    /// The rows.
    pub tasks: &'s [Task],
    /// The last event of each.
    pub last_events: &'s [TaskEvent],
    /// The locks that are held, those of overlapping scopes included.
    pub locks: &'s [ScopeLock],
    /// The leases.
    pub leases: &'s [Lease],
    /// The runs.
    pub runs: &'s [TaskRun],
    /// Whether these are all tasks: only then can one be missing.
    pub complete: bool,
}

/// The first contradiction that keeps a task from being done.
pub fn first_blocking(found: &[Inconsistency]) -> Option<&Inconsistency> {
    found
        .iter()
        .find(|one| one.kind.severity() == InconsistencySeverity::Blocking)
}

/// Everything that does not fit together.
pub fn reconcile(snapshot: &ReconcileSnapshot<'_>) -> Vec<Inconsistency> {
    let mut found = Vec::new();
    for task in snapshot.tasks {
        of_row(task, snapshot, &mut found);
        of_work(task, snapshot, &mut found);
        of_runs(task, snapshot, &mut found);
        of_lineage(task, snapshot, &mut found);
    }
    of_locks(snapshot, &mut found);
    found
}

fn report(
    found: &mut Vec<Inconsistency>,
    holds: bool,
    kind: InconsistencyKind,
    task: &Task,
    words: impl FnOnce() -> String,
) {
    if !holds {
        found.push(Inconsistency {
            kind,
            task_id: task.id.clone(),
            other: None,
            words: words(),
        });
    }
}

fn of_row(task: &Task, snapshot: &ReconcileSnapshot<'_>, found: &mut Vec<Inconsistency>) {
    use InconsistencyKind as K;
    let mut events = snapshot.last_events.iter();
    if let Some(event) = events.find(|event| event.task_id == task.id) {
        let same = event.to_state == task.state;
        report(found, same, K::StateNotLastEvent, task, || {
            format!(
                "the row says {}, its last event {}",
                task.state, event.to_state
            )
        });
        let same = event.version == task.version;
        report(found, same, K::VersionNotLastEvent, task, || {
            format!(
                "the row has version {}, its last event {}",
                task.version, event.version
            )
        });
    }
    let fits = task.blocker.is_some() == (task.state == TaskState::Blocked);
    report(found, fits, K::BlockerMismatch, task, || {
        format!("{}, and its blocker does not fit", task.state)
    });
    let fits = task.intent.is_none() || !task.state.is_terminal();
    report(found, fits, K::IntentOfEnded, task, || {
        format!("{} with an open merge intent", task.state)
    });
}

fn of_work(task: &Task, snapshot: &ReconcileSnapshot<'_>, found: &mut Vec<Inconsistency>) {
    use InconsistencyKind as K;
    let working = task.state == TaskState::InProgress;
    let lease = snapshot.leases.iter().find(|one| one.task_id == task.id);
    let locked = snapshot.locks.iter().any(|lock| lock.task_id == task.id);
    report(
        found,
        !working || lease.is_some(),
        K::WorkWithoutLease,
        task,
        || "in progress without a lease".to_owned(),
    );
    report(
        found,
        working || lease.is_none(),
        K::LeaseWithoutWork,
        task,
        || format!("{} with a lease", task.state),
    );
    report(found, working || !locked, K::LockWithoutWork, task, || {
        format!("{} with a lock", task.state)
    });
    report(found, !working || locked, K::WorkWithoutLock, task, || {
        "in progress without a lock".to_owned()
    });
    let fits = lease.is_none_or(|lease| {
        !working || lease.token == task.token && Some(&lease.owner) == task.owner.as_ref()
    });
    report(found, fits, K::LeaseNotOfOwner, task, || {
        "the lease names another owner or token than the row".to_owned()
    });
}

fn of_runs(task: &Task, snapshot: &ReconcileSnapshot<'_>, found: &mut Vec<Inconsistency>) {
    use InconsistencyKind as K;
    let mine = || snapshot.runs.iter().filter(|run| run.task_id == task.id);
    let running = mine()
        .filter(|run| run.status == TaskRunStatus::Running)
        .count();
    report(found, running <= 1, K::TwoRunningRuns, task, || {
        format!("{running} runs are running")
    });
    let working = task.state == TaskState::InProgress;
    report(
        found,
        working || running == 0,
        K::RunWithoutWork,
        task,
        || format!("{} with a running run", task.state),
    );
    let succeeded = mine().any(|run| run.status == TaskRunStatus::Success);
    let fits = task.state != TaskState::Done || succeeded;
    report(found, fits, K::DoneWithoutRun, task, || {
        "done without a run that succeeded".to_owned()
    });
}

fn of_lineage(task: &Task, snapshot: &ReconcileSnapshot<'_>, found: &mut Vec<Inconsistency>) {
    use InconsistencyKind as K;
    let by_id = |id: &TaskId| snapshot.tasks.iter().find(|other| other.id == *id);
    if let Some(next) = &task.superseded_by {
        let ended = matches!(task.state, TaskState::Failed | TaskState::Canceled);
        let successor = by_id(next);
        let agrees = successor.is_none_or(|next| next.rework_of.as_ref() == Some(&task.id));
        let there = successor.is_some() || !snapshot.complete;
        report(
            found,
            ended && agrees && there,
            K::BrokenLineage,
            task,
            || {
                format!(
                    "{} and superseded by {next}, which does not fit",
                    task.state
                )
            },
        );
    }
    for id in &task.dependencies {
        let there = by_id(id).is_some() || !snapshot.complete;
        report(found, there, K::UnknownDependency, task, || {
            format!("depends on {id}, which does not exist")
        });
    }
}

fn of_locks(snapshot: &ReconcileSnapshot<'_>, found: &mut Vec<Inconsistency>) {
    for (at, one) in snapshot.locks.iter().enumerate() {
        for other in &snapshot.locks[at + 1..] {
            if one.task_id != other.task_id && one.resource.conflicts_with(&other.resource) {
                let (older, younger) = by_age(one, other, snapshot.leases);
                found.push(Inconsistency {
                    kind: InconsistencyKind::OverlappingLocks,
                    task_id: younger.task_id.clone(),
                    other: Some(older.task_id.clone()),
                    words: format!(
                        "{} of task {} and {} of task {}",
                        older.resource, older.task_id, younger.resource, younger.task_id
                    ),
                });
            }
        }
    }
}

/// Two locks, that of the older claim first. A claim whose lease is gone is the younger
/// one: nobody can say that it was there before.
fn by_age<'l>(
    one: &'l ScopeLock,
    other: &'l ScopeLock,
    leases: &[Lease],
) -> (&'l ScopeLock, &'l ScopeLock) {
    let age = |lock: &'l ScopeLock| {
        let lease = leases.iter().find(|lease| lease.task_id == lock.task_id);
        let since = lease.map(|lease| lease.claimed_at);
        (since.is_none(), since, &lock.task_id)
    };
    if age(other) < age(one) {
        (other, one)
    } else {
        (one, other)
    }
}

#[cfg(test)]
mod tests;
