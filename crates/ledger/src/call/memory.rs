//! What a process remembers of the work that it holds itself: what it wrote last.
//!
//! A decision about such work need not read it again. It is written only where the store
//! still has what is remembered; where it has not, it is forgotten, read and decided anew.
//! Nobody is refused from memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runner_lifecycle::decide::{Decision, LeaseChange};
use runner_lifecycle::lock::{Resource, WHOLE_REPO};
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{Task, TaskId, TaskState, Timestamp};

/// How many tasks are remembered: more than one process works on at a time.
const ROOM: usize = 4096;
/// How long the clock of a server is believed to go on as it did.
const BELIEVED: Duration = Duration::from_secs(60);
/// A clock that was read anew may go back by as little as it was told late.
const SETTLED: Duration = Duration::from_secs(5);
/// Clocks of this machine that drift apart by more: it was asleep.
const ASLEEP: Duration = Duration::from_secs(1);

/// Work that goes on.
#[derive(Clone, Debug)]
pub(crate) struct HeldWork {
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    pub(crate) run: Option<TaskRun>,
}

impl HeldWork {
    /// The one resource that it locked, if all that its end must know besides is that
    /// nobody else has a part of it: it has no relatives, and its scope is one path.
    pub(crate) fn alone(&self) -> Option<Resource> {
        let task = &self.task;
        let relatives = task.lineage.root != task.id || task.superseded_by.is_some();
        let mut scope = task.work_scope();
        let one = scope.pop().filter(|one| one.as_str() != WHOLE_REPO)?;
        (scope.is_empty() && !relatives && self.run.is_some()).then_some(one)
    }
}

/// When a server told its time.
#[derive(Clone, Copy)]
struct ServerTime {
    server: Timestamp,
    at: Instant,
    wall: Timestamp,
}

impl ServerTime {
    /// The time there when it is `at` here.
    fn then(&self, at: Instant) -> Timestamp {
        let passed = at.saturating_duration_since(self.at).as_millis();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        Timestamp(self.server.0.saturating_add(passed))
    }
}

/// What one process remembers.
#[derive(Default)]
pub(crate) struct LedgerMemory {
    work: Mutex<HashMap<TaskId, HeldWork>>,
    heard: Mutex<Option<ServerTime>>,
}

fn held<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LedgerMemory {
    pub(crate) fn get(&self, id: &TaskId) -> Option<HeldWork> {
        held(&self.work).get(id).cloned()
    }

    pub(crate) fn forget(&self, id: &TaskId) {
        held(&self.work).remove(id);
    }

    /// Remembers what was written, once it is.
    pub(crate) fn note(&self, decision: &Decision) {
        let task = &decision.task;
        let mut work = held(&self.work);
        let run = match (&decision.lease, decision.runs.last()) {
            _ if task.state != TaskState::InProgress => None,
            (LeaseChange::Set(lease), Some(run)) => Some((lease, Some(run.clone()))),
            (LeaseChange::Set(lease), None) => {
                work.get(&task.id).map(|known| (lease, known.run.clone()))
            }
            _ => None,
        };
        let Some((lease, run)) = run else {
            work.remove(&task.id);
            return;
        };
        if work.len() >= ROOM && !work.contains_key(&task.id) {
            work.clear();
        }
        let known = HeldWork {
            task: task.clone(),
            lease: lease.clone(),
            run,
        };
        work.insert(task.id.clone(), known);
    }

    /// A server told its time, `at` this moment or a little earlier.
    pub(crate) fn heard(&self, server: Timestamp, at: Instant, wall: Timestamp) {
        let mut heard = held(&self.heard);
        let fresh = ServerTime { server, at, wall };
        let late = |before: &ServerTime| {
            let age = at.saturating_duration_since(before.at);
            age < SETTLED && before.then(at) > server
        };
        if !heard.as_ref().is_some_and(late) {
            *heard = Some(fresh);
        }
    }

    /// The time of the server, if it told it a moment ago.
    pub(crate) fn server_time(&self, at: Instant, wall: Timestamp) -> Option<Timestamp> {
        let heard = (*held(&self.heard))?;
        let passed = at.saturating_duration_since(heard.at);
        let on_the_wall = u64::try_from(wall.0.saturating_sub(heard.wall.0)).ok()?;
        let on_the_wall = Duration::from_millis(on_the_wall);
        (passed < BELIEVED && passed.abs_diff(on_the_wall) < ASLEEP).then(|| heard.then(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_server_goes_on_for_a_while() {
        let memory = LedgerMemory::default();
        let (at, wall) = (Instant::now(), 50_000_i64);
        assert_eq!(
            memory.server_time(at, Timestamp(wall)),
            None,
            "nobody told it"
        );
        memory.heard(Timestamp(1000), at, Timestamp(wall));
        let after = |seconds: u64| Duration::from_secs(seconds);
        let cases = [
            ("goes on", 7, 7, Some(8000)),
            ("is too old", 60, 60, None),
            ("the machine slept", 7, 20, None),
            ("the clock on the wall was set back", 7, 2, None),
        ];
        for (why, passed, on_the_wall, expected) in cases {
            let wall = Timestamp(wall + on_the_wall * 1000);
            let time = memory.server_time(at + after(passed), wall);
            assert_eq!(time, expected.map(Timestamp), "{why}");
        }
    }

    #[test]
    fn a_time_that_was_told_late_does_not_turn_the_clock_back() {
        let memory = LedgerMemory::default();
        let (at, wall) = (Instant::now(), 50_000_i64);
        let after = |seconds: u64| Duration::from_secs(seconds);
        let wall = |seconds: u64| Timestamp(wall + i64::try_from(seconds).unwrap() * 1000);
        memory.heard(Timestamp(10_000), at, wall(0));
        memory.heard(Timestamp(10_500), at + after(1), wall(1));
        let time = |seconds| memory.server_time(at + after(seconds), wall(seconds));
        assert_eq!(time(2), Some(Timestamp(12_000)));
        // A server whose clock was set back is believed after a while.
        memory.heard(Timestamp(9_000), at + after(6), wall(6));
        assert_eq!(time(7), Some(Timestamp(10_000)));
    }
}
