//! Every contradiction, made by hand.

use super::*;
use crate::lock::Resource;
use crate::row::Intent;
use crate::time::Timestamp;
use crate::words::{BlockReason, LeasePurpose};

struct Store {
    tasks: Vec<Task>,
    events: Vec<TaskEvent>,
    locks: Vec<ScopeLock>,
    leases: Vec<Lease>,
    runs: Vec<TaskRun>,
}

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn lock(task: &str, resource: &str) -> ScopeLock {
    ScopeLock {
        task_id: id(task),
        resource: Resource::parse(resource).unwrap(),
    }
}

/// Two tasks, the first of which somebody works on.
fn sound() -> Store {
    let mut working = Task::blank(id("a"));
    working.version = 2;
    working.state = TaskState::InProgress;
    working.owner = Some("w".to_owned());
    working.token = 1;
    let mut todo = Task::blank(id("b"));
    todo.version = 1;
    let event = |task: &Task| TaskEvent {
        task_id: task.id.clone(),
        version: task.version,
        from_state: None,
        to_state: task.state,
        actor: "x".to_owned(),
        reason: "x".to_owned(),
        created_at: Timestamp(0),
        details: serde_json::Map::new(),
        changes: Vec::new(),
    };
    let run = TaskRun::begin(&id("a"), 1, "w", 1, Timestamp(0));
    Store {
        events: vec![event(&working), event(&todo)],
        locks: vec![lock("a", "src")],
        leases: vec![Lease {
            task_id: id("a"),
            run_id: "a-1".to_owned(),
            owner: "w".to_owned(),
            token: 1,
            purpose: LeasePurpose::Work,
            key: "k".to_owned(),
            claimed_at: Timestamp(0),
            last_heartbeat_at: Timestamp(0),
            timeout_seconds: 90,
            heartbeat_interval_seconds: 15,
            ends_at: Timestamp(9),
        }],
        runs: vec![run],
        tasks: vec![working, todo],
    }
}

fn kinds(store: &Store) -> Vec<&'static str> {
    let found = reconcile(&ReconcileSnapshot {
        tasks: &store.tasks,
        last_events: &store.events,
        locks: &store.locks,
        leases: &store.leases,
        runs: &store.runs,
        complete: true,
    });
    assert!(found.iter().all(|one| !one.words.is_empty()));
    found.iter().map(|one| one.kind.as_str()).collect()
}

#[test]
fn each_contradiction_is_found() {
    type Row = (fn(&mut Store), Vec<&'static str>);
    let rows: Vec<Row> = vec![
        (|_| (), vec![]),
        (
            |s| s.locks.push(lock("b", "docs")),
            vec!["lock_without_work"],
        ),
        (
            |s| s.locks.push(lock("b", "src/x")),
            vec!["lock_without_work", "overlapping_locks"],
        ),
        (|s| s.locks.clear(), vec!["work_without_lock"]),
        (|s| s.leases.clear(), vec!["work_without_lease"]),
        (
            |s| s.leases[0].task_id = id("b"),
            vec!["work_without_lease", "lease_without_work"],
        ),
        (|s| s.leases[0].token = 2, vec!["lease_not_of_owner"]),
        (
            |s| s.leases[0].owner = "v".to_owned(),
            vec!["lease_not_of_owner"],
        ),
        (
            |s| s.tasks[1].state = TaskState::Canceled,
            vec!["state_not_last_event"],
        ),
        (|s| s.tasks[1].version = 7, vec!["version_not_last_event"]),
        (
            |s| {
                let blocker = s.tasks[1].blocker_of(BlockReason::Cooldown, "x", Timestamp(0));
                s.tasks[1].blocker = Some(blocker);
            },
            vec!["blocker_mismatch"],
        ),
        (
            |s| {
                let mut run = s.runs[0].clone();
                run.task_id = id("b");
                s.runs.push(run);
            },
            vec!["run_without_work"],
        ),
        (|s| s.runs.push(s.runs[0].clone()), vec!["two_running_runs"]),
        (
            |s| {
                s.tasks[1].intent = Some(Intent {
                    old_base: "b".to_owned(),
                    merge_commit: "m".to_owned(),
                });
                s.tasks[1].state = TaskState::Failed;
                s.events[1].to_state = TaskState::Failed;
            },
            vec!["intent_of_ended"],
        ),
        (
            |s| s.tasks[1].superseded_by = Some(id("a")),
            vec!["broken_lineage"],
        ),
        (
            |s| {
                s.tasks[1].state = TaskState::Done;
                s.events[1].to_state = TaskState::Done;
            },
            vec!["done_without_run"],
        ),
        (
            |s| s.tasks[1].dependencies = vec![id("nowhere")],
            vec!["unknown_dependency"],
        ),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (at, (edit, expected)) in rows.into_iter().enumerate() {
        let mut store = sound();
        edit(&mut store);
        assert_eq!(kinds(&store), expected, "row {at}");
        seen.extend(expected);
    }
    for kind in InconsistencyKind::ALL {
        assert!(seen.contains(kind.as_str()), "{kind} is never tested");
    }
}

#[test]
fn of_two_overlapping_claims_the_younger_is_named() {
    let mut store = sound();
    store.tasks[1].state = TaskState::InProgress;
    store.events[1].to_state = TaskState::InProgress;
    store.tasks[1].owner = Some("v".to_owned());
    store.locks.push(lock("b", "src/x"));
    let claimed = |task: &str, at: i64| {
        let mut lease = sound().leases.remove(0);
        lease.task_id = id(task);
        lease.claimed_at = Timestamp(at);
        lease
    };
    for (leases, younger) in [
        (vec![claimed("a", 1), claimed("b", 2)], "b"),
        (vec![claimed("a", 2), claimed("b", 1)], "a"),
        (vec![claimed("a", 1), claimed("b", 1)], "b"),
        (vec![claimed("b", 1)], "a"),
        (vec![], "b"),
    ] {
        store.leases = leases;
        let found = reconcile(&ReconcileSnapshot {
            tasks: &[],
            last_events: &[],
            locks: &store.locks,
            leases: &store.leases,
            runs: &[],
            complete: false,
        });
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].task_id, id(younger));
        assert!(found[0].concerns(&id("a")) && found[0].concerns(&id("b")));
    }
}

#[test]
fn only_blocking_ones_keep_a_task_from_being_done() {
    let of = |kind| Inconsistency {
        kind,
        task_id: id("a"),
        other: None,
        words: "x".to_owned(),
    };
    let warning = of(InconsistencyKind::RunWithoutWork);
    let blocking = of(InconsistencyKind::OverlappingLocks);
    assert_eq!(first_blocking(&[]), None);
    assert_eq!(first_blocking(std::slice::from_ref(&warning)), None);
    assert_eq!(
        first_blocking(&[warning, blocking.clone()]),
        Some(&blocking)
    );
}
