//! Readiness: whether work on a task could begin now, and if not, why.
//!
//! These are filters. They never change a state: a task that is not ready stays `todo`.

use crate::decide::Refusal;
use crate::lock::{ScopeLock, first_conflict, overlap};
use crate::policy::{Policy, PolicyRule};
use crate::request::{DependencyChain, Facts, Reservation};
use crate::row::{Task, TaskId};
use crate::time::Timestamp;
use crate::words::{RefusalCode, TaskKind, TaskPhase, TaskState};

/// The first thing that keeps a task from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It is not `todo`, or no worker's turn.
    State(TaskState),
    /// The task is paused.
    Paused,
    /// The fleet is paused.
    FleetPaused,
    /// It is tried again at that time.
    RetryAt(Timestamp),
    /// A dependency is not done.
    Dependency(TaskId),
    /// A dependency has ended, and nobody goes on with it.
    DeadDependency(TaskId),
    /// Somebody holds an overlapping scope.
    Lock(ScopeLock),
    /// A result that overlaps waits for its merge.
    Unmerged(TaskId),
    /// The scope is kept free for somebody who waited longer.
    Reserved(TaskId),
    /// No budget until that time.
    Budget(Timestamp),
    /// The lane is full.
    LaneFull,
}

impl NotReady {
    /// Whether only the work of others on the same scope is in the way.
    pub fn is_about_locks(&self) -> bool {
        matches!(self, NotReady::Lock(_) | NotReady::Unmerged(_))
    }

    /// A short word for the reason.
    pub fn word(&self) -> &'static str {
        match self {
            NotReady::State(_) => "state",
            NotReady::Paused => "paused",
            NotReady::FleetPaused => "fleet_paused",
            NotReady::RetryAt(_) => "retry_at",
            NotReady::Dependency(_) => "dependency",
            NotReady::DeadDependency(_) => "dead_dependency",
            NotReady::Lock(_) => "lock",
            NotReady::Unmerged(_) => "unmerged_result",
            NotReady::Reserved(_) => "reserved",
            NotReady::Budget(_) => "budget",
            NotReady::LaneFull => "lane_full",
        }
    }

    /// The refusal of a claim.
    pub fn refusal(&self, task: &Task) -> Refusal {
        let id = &task.id;
        let (code, words) = match self {
            NotReady::State(state) => (
                RefusalCode::InvalidTransition,
                format!("task {id} is {state}, no worker can begin"),
            ),
            NotReady::Paused => (
                RefusalCode::InvalidTransition,
                format!("task {id} is paused"),
            ),
            NotReady::FleetPaused => (
                RefusalCode::InvalidTransition,
                "the fleet is paused".to_owned(),
            ),
            NotReady::RetryAt(_) => (
                RefusalCode::InvalidTransition,
                format!("task {id} waits for its next attempt"),
            ),
            NotReady::Dependency(other) => (
                RefusalCode::DependencyNotMet,
                format!("task {id} depends on {other}, which is not done"),
            ),
            NotReady::DeadDependency(other) => (
                RefusalCode::DependencyNotMet,
                format!("task {id} depends on {other}, which has ended without being done"),
            ),
            NotReady::Lock(lock) => return lock_refusal(lock),
            NotReady::Unmerged(other) => (
                RefusalCode::LockConflict,
                format!("a result of task {other} in the same scope waits for its merge"),
            ),
            NotReady::Reserved(other) => (
                RefusalCode::LockConflict,
                format!("the scope is kept free for task {other}, which waited longer"),
            ),
            NotReady::Budget(_) => (
                RefusalCode::InvalidTransition,
                "there is no budget".to_owned(),
            ),
            NotReady::LaneFull => (
                RefusalCode::InvalidTransition,
                format!("the lane {} is full", task.lane),
            ),
        };
        let refusal = Refusal::new(code, words).detail("not_ready", self.word());
        match self {
            NotReady::RetryAt(at) | NotReady::Budget(at) => refusal.detail("until", at.0),
            _ => refusal,
        }
    }
}

/// The refusal of a claim by a lock that somebody holds.
pub(crate) fn lock_refusal(lock: &ScopeLock) -> Refusal {
    Refusal::new(
        RefusalCode::LockConflict,
        format!("task {} holds {}", lock.task_id, lock.resource),
    )
    .detail("not_ready", "lock")
    .detail("task_id", lock.task_id.as_str())
    .detail("resource", lock.resource.as_str())
}

/// Whether a worker could begin now.
pub fn ready(policy: &Policy, task: &Task, facts: &Facts, now: Timestamp) -> Result<(), NotReady> {
    let fits = task.state == TaskState::Todo
        && task.phase == TaskPhase::Work
        && task.kind != TaskKind::Review;
    if !fits {
        return Err(NotReady::State(task.state));
    }
    not_held_back(policy, task, facts, now)?;
    dependencies(policy, task, facts)?;
    scope(policy, task, facts)?;
    if let Some(until) = facts.no_budget_until.filter(|until| *until > now) {
        return Err(NotReady::Budget(until));
    }
    if facts.lane_full {
        return Err(NotReady::LaneFull);
    }
    Ok(())
}

/// Pause and clock, which hold back workers and judges alike.
pub(crate) fn not_held_back(
    policy: &Policy,
    task: &Task,
    facts: &Facts,
    now: Timestamp,
) -> Result<(), NotReady> {
    if task.paused && policy.enforces(PolicyRule::Pause) {
        return Err(NotReady::Paused);
    }
    if facts.fleet_paused {
        return Err(NotReady::FleetPaused);
    }
    match task.retry_at() {
        Some(at) if at > now => Err(NotReady::RetryAt(at)),
        _ => Ok(()),
    }
}

/// Every dependency is done, at the end of its chain of successors. One that the caller
/// does not know of is not done.
fn dependencies(policy: &Policy, task: &Task, facts: &Facts) -> Result<(), NotReady> {
    let chain_of = |id: &TaskId| {
        let known = facts.dependencies.iter().find(|known| known.id == *id);
        known.map_or(DependencyChain::Alive, |known| known.chain)
    };
    let dead = task
        .dependencies
        .iter()
        .find(|id| chain_of(id) == DependencyChain::Dead);
    if let Some(dead) = dead.filter(|_| policy.enforces(PolicyRule::DeadDependency)) {
        return Err(NotReady::DeadDependency(dead.clone()));
    }
    let open = task
        .dependencies
        .iter()
        .find(|id| !matches!(chain_of(id), DependencyChain::Done(_)));
    match open {
        Some(id) => Err(NotReady::Dependency(id.clone())),
        None => Ok(()),
    }
}

/// Nobody is, or will soon be, in the same place.
fn scope(policy: &Policy, task: &Task, facts: &Facts) -> Result<(), NotReady> {
    let mine = task.work_scope();
    if let Some(lock) = first_conflict(&task.id, &mine, &facts.locks)
        && policy.enforces(PolicyRule::LockConflicts)
    {
        return Err(NotReady::Lock(lock.clone()));
    }
    // What fixes the base comes before everything that waits for it.
    if task.fixes_base() {
        return Ok(());
    }
    let unmerged = facts.unmerged.iter().find(|other| {
        other.task_id != task.id
            && other.lineage != task.lineage.root
            && overlap(&mine, &other.scope)
    });
    if let Some(other) = unmerged {
        return Err(NotReady::Unmerged(other.task_id.clone()));
    }
    let reserved = facts
        .reservations
        .iter()
        .find(|other| other.task_id != task.id && overlap(&mine, &other.scope));
    match reserved {
        Some(other) => Err(NotReady::Reserved(other.task_id.clone())),
        None => Ok(()),
    }
}

/// The scope that the first task in order keeps free, once it has waited long enough for
/// locks and for nothing else.
pub fn reservation(
    policy: &Policy,
    task: &Task,
    facts: &Facts,
    now: Timestamp,
) -> Option<Reservation> {
    let waits = ready(policy, task, facts, now).err()?;
    let waited = now.millis_since(waiting_since(task, facts));
    let long_enough = waited >= policy.reserve_after_secs.saturating_mul(1000);
    (waits.is_about_locks() && long_enough).then(|| Reservation {
        task_id: task.id.clone(),
        scope: task.work_scope(),
    })
}

/// Since when nothing but locks can be in the way: the task is `todo` and its
/// dependencies are done.
fn waiting_since(task: &Task, facts: &Facts) -> Timestamp {
    let done = facts.dependencies.iter().filter_map(|one| match one.chain {
        DependencyChain::Done(at) => Some(at),
        DependencyChain::Alive | DependencyChain::Dead => None,
    });
    done.fold(task.updated_at, Timestamp::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Resource;
    use crate::request::{Dependency, UnmergedResult};
    use crate::words::{TaskOrigin, TaskType};

    const NOW: Timestamp = Timestamp(10_000_000);

    fn id(text: &str) -> TaskId {
        TaskId::parse(text).unwrap()
    }

    fn scope_of(texts: &[&str]) -> Vec<Resource> {
        texts.iter().map(|t| Resource::parse(t).unwrap()).collect()
    }

    fn task() -> Task {
        Task {
            lock_scope: scope_of(&["src"]),
            dependencies: vec![id("d")],
            updated_at: NOW,
            ..Task::blank(id("t"))
        }
    }

    fn facts() -> Facts {
        Facts {
            dependencies: vec![Dependency {
                id: id("d"),
                chain: DependencyChain::Done(Timestamp(5)),
            }],
            ..Facts::default()
        }
    }

    type Edit = fn(&mut Task, &mut Facts);

    #[test]
    fn each_thing_that_can_be_in_the_way() {
        let rows: &[(Edit, Option<&str>)] = &[
            (|_, _| (), None),
            (|t, _| t.state = TaskState::InProgress, Some("state")),
            (|t, _| t.phase = TaskPhase::Judge, Some("state")),
            (|t, _| t.kind = TaskKind::Review, Some("state")),
            (|t, _| t.paused = true, Some("paused")),
            (|_, f| f.fleet_paused = true, Some("fleet_paused")),
            (
                |_, f| f.dependencies[0].chain = DependencyChain::Alive,
                Some("dependency"),
            ),
            (
                |_, f| f.dependencies[0].chain = DependencyChain::Dead,
                Some("dead_dependency"),
            ),
            (|_, f| f.dependencies.clear(), Some("dependency")),
            (|_, f| f.locks = lock("o", "src/x"), Some("lock")),
            (|_, f| f.locks = lock("t", "src/x"), None),
            (|_, f| f.locks = lock("o", "docs"), None),
            (|_, f| f.locks = lock("o", "@judge/t"), None),
            (
                |t, f| {
                    t.task_type = TaskType::Serial;
                    f.locks = lock("o", "docs");
                },
                Some("lock"),
            ),
            (
                |_, f| f.unmerged = unmerged("o", "o"),
                Some("unmerged_result"),
            ),
            (|_, f| f.unmerged = unmerged("o", "t"), None),
            (
                |t, f| {
                    t.origin = TaskOrigin::FixBase;
                    f.unmerged = unmerged("o", "o");
                },
                None,
            ),
            (
                |t, f| {
                    // A successor of such a task.
                    t.source = Some("base:c0".to_owned());
                    f.unmerged = unmerged("o", "o");
                },
                None,
            ),
            (|_, f| f.reservations = reserved("o"), Some("reserved")),
            (|_, f| f.reservations = reserved("t"), None),
            (
                |_, f| f.no_budget_until = Some(Timestamp(NOW.0 + 1)),
                Some("budget"),
            ),
            (|_, f| f.no_budget_until = Some(NOW), None),
            (|_, f| f.lane_full = true, Some("lane_full")),
        ];
        for (at, (edit, expected)) in rows.iter().enumerate() {
            let (mut task, mut facts) = (task(), facts());
            edit(&mut task, &mut facts);
            let got = ready(&Policy::default(), &task, &facts, NOW).err();
            assert_eq!(got.as_ref().map(NotReady::word), *expected, "row {at}");
            if let Some(not_ready) = got {
                let refusal = not_ready.refusal(&task);
                assert_eq!(refusal.details["not_ready"], expected.unwrap());
            }
        }
    }

    fn lock(task: &str, resource: &str) -> Vec<ScopeLock> {
        vec![ScopeLock {
            task_id: id(task),
            resource: Resource::parse(resource).unwrap(),
        }]
    }

    fn unmerged(task: &str, lineage: &str) -> Vec<UnmergedResult> {
        vec![UnmergedResult {
            task_id: id(task),
            lineage: id(lineage),
            scope: scope_of(&["src/x"]),
        }]
    }

    fn reserved(task: &str) -> Vec<Reservation> {
        vec![Reservation {
            task_id: id(task),
            scope: scope_of(&["src/x"]),
        }]
    }

    #[test]
    fn a_scope_is_reserved_after_a_quarter_of_an_hour() {
        let policy = Policy::default();
        let minutes = |n: i64| Timestamp(NOW.0 + n * 60_000);
        let mut facts = facts();
        facts.locks = lock("o", "src/x");
        let kept = |facts: &Facts, now| reservation(&policy, &task(), facts, now);
        assert_eq!(kept(&facts, minutes(14)), None);
        let kept_free = kept(&facts, minutes(15)).unwrap();
        assert_eq!(kept_free.scope, scope_of(&["src"]));
        facts.dependencies[0].chain = DependencyChain::Done(minutes(10));
        assert_eq!(
            kept(&facts, minutes(15)),
            None,
            "it waited for more than locks"
        );
        assert!(kept(&facts, minutes(25)).is_some());
        facts.fleet_paused = true;
        assert_eq!(kept(&facts, minutes(25)), None);
    }
}
