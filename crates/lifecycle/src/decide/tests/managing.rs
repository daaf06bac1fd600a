//! Creation, blocks, cancellation, ended tasks, retries.

use std::collections::BTreeMap;

use super::*;
use crate::lock::Resource;
use crate::request::{Dependency, DependencyChain, IssueFacts, IssueWork, NewPacket};
use crate::words::{Lane, TaskKind, TaskRunStatus};

fn try_create(edit: impl FnOnce(&mut NewTask, &mut Facts)) -> Option<RefusalCode> {
    let (mut new, mut facts) = (new_task(), Facts::default());
    edit(&mut new, &mut facts);
    let call = call("planner", Request::Create(new));
    let got = decide(&Policy::default(), None, &call, &facts, NOW);
    got.err().map(|refusal| refusal.code)
}

#[test]
fn what_a_new_task_must_say() {
    type Edit = fn(&mut NewTask, &mut Facts);
    let rows: &[(Edit, Option<RefusalCode>)] = &[
        (|_, _| (), None),
        (
            |n, _| n.dependencies = vec![id("t")],
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.dependencies = vec![id("u")],
            Some(RefusalCode::MissingRequiredInput),
        ),
        (
            |n, f| {
                n.dependencies = vec![id("u")];
                f.dependencies = vec![Dependency {
                    id: id("u"),
                    chain: DependencyChain::Alive,
                }];
            },
            None,
        ),
        (
            |n, f| {
                n.dependencies = vec![id("u"), id("u")];
                f.dependencies = vec![Dependency {
                    id: id("u"),
                    chain: DependencyChain::Alive,
                }];
            },
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.lock_scope.clear(),
            Some(RefusalCode::MissingRequiredInput),
        ),
        (
            |n, _| n.lock_scope.push(resource("@merge/main")),
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.lock_scope = vec![resource("@judge")],
            Some(RefusalCode::SchemaInvalid),
        ),
        (|n, _| n.lock_scope = vec![resource("@research/j/c")], None),
        (
            |n, _| n.acceptance.clear(),
            Some(RefusalCode::MissingRequiredInput),
        ),
        (
            |n, _| n.acceptance[1].id = "guard".to_owned(),
            Some(RefusalCode::SchemaInvalid),
        ),
        (|_, f| f.review_off = true, Some(RefusalCode::SchemaInvalid)),
        (
            |n, _| n.timeout_seconds = 29,
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.heartbeat_interval_seconds = 4,
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.heartbeat_interval_seconds = 90,
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.timebox_seconds = 0,
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |n, _| n.kind = TaskKind::Review,
            Some(RefusalCode::MissingRequiredInput),
        ),
        (
            |n, _| n.head = Some("h".to_owned()),
            Some(RefusalCode::MissingRequiredInput),
        ),
    ];
    for (at, (edit, expected)) in rows.iter().enumerate() {
        assert_eq!(try_create(edit), *expected, "row {at}");
    }
    assert_eq!(
        OneTaskStore::new().refused("planner", Request::Create(new_task())),
        RefusalCode::InvalidTransition
    );
    let nothing = call("x", Request::TakeBack);
    let refusal = decide(&Policy::default(), None, &nothing, &Facts::default(), NOW).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::MissingRequiredInput);
}

#[test]
fn cycles_of_dependencies() {
    for (edges, cycle) in [
        (vec![("a", "b"), ("b", "c")], 0),
        (vec![("a", "b"), ("b", "a")], 2),
        (vec![("a", "b"), ("b", "c"), ("c", "b")], 2),
        (vec![("a", "a")], 1),
        (vec![("a", "elsewhere")], 0),
        (vec![], 0),
    ] {
        let mut graph: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        for (task, needs) in &edges {
            graph.entry(id(task)).or_default().push(id(needs));
        }
        for name in ["a", "b", "c"] {
            graph.entry(id(name)).or_default();
        }
        let found = dependency_cycle(&graph);
        assert_eq!(found.map_or(0, |cycle| cycle.len()), cycle, "{edges:?}");
    }
}

#[test]
fn an_issue_without_a_role_waits_for_it() {
    let mut new = new_task();
    new.role.clear();
    let mut store = OneTaskStore::with(new);
    assert_eq!(store.stands(), "blocked(issue_linking)");
    assert!(store.recover().is_empty());
    let tests = Resource::parse("tests").unwrap();
    store.facts.issue = Some(IssueFacts {
        role: Some("tester".to_owned()),
        closed: false,
        work: Some(IssueWork {
            lock_scope: vec![tests.clone()],
            forbidden_scope: Vec::new(),
            lane: Lane::Docser,
            expects_change: false,
        }),
    });
    store.recover();
    assert_eq!(
        (store.stands().as_str(), store.task.role.as_str()),
        ("todo", "tester")
    );
    assert_eq!(store.task.lock_scope, [tests]);
    assert_eq!(store.task.lane, Lane::Docser);
    assert!(!store.task.expects_change);
}

#[test]
fn who_may_block_what() {
    let block = |code, reason: &str| Request::Block {
        code,
        reason: reason.to_owned(),
        waits_for: None,
    };
    let mut store = OneTaskStore::new();
    assert_eq!(
        store.refused("x", block(RefusalCode::LockConflict, " ")),
        RefusalCode::MissingRequiredInput
    );
    let alive = block(RefusalCode::DependencyNotMet, "d");
    assert_eq!(
        store.refused("x", alive.clone()),
        RefusalCode::InvalidTransition
    );
    store.facts.dependencies = vec![Dependency {
        id: id("d"),
        chain: DependencyChain::Dead,
    }];
    store.ask("dispatcher", alive);
    let blockers = blockers([&store.task]);
    assert_eq!(blockers[0].code, BlockReason::DependencyNotMet);
    assert_eq!(
        blockers[0].refusal_code(),
        Some(RefusalCode::DependencyNotMet)
    );
    // A block is left for another one through todo, and only by an inconsistency.
    assert_eq!(
        store.refused("x", block(RefusalCode::LockConflict, "l")),
        RefusalCode::InvalidTransition
    );
    let decision = store.ask("check", block(RefusalCode::LedgerInconsistent, "two rows"));
    assert_eq!(decision.events.len(), 2);
    assert_eq!(decision.events[0].to_state, TaskState::Todo);
    // Live work is left alone.
    let mut store = OneTaskStore::new();
    store.claim("w", LeasePurpose::Work);
    assert_eq!(
        store.refused("x", block(RefusalCode::LockConflict, "l")),
        RefusalCode::ConcurrencyConflict
    );
}

#[test]
fn a_dead_dependency_has_a_day() {
    let mut store = OneTaskStore::new();
    store.facts.dependencies = vec![Dependency {
        id: id("d"),
        chain: DependencyChain::Dead,
    }];
    let request = Request::Block {
        code: RefusalCode::DependencyNotMet,
        reason: "d".to_owned(),
        waits_for: Some("d".to_owned()),
    };
    store.ask("dispatcher", request);
    store.later(24 * 3600 - 1);
    assert!(store.recover().is_empty());
    let mut revived = store.clone();
    revived.facts.dependencies[0].chain = DependencyChain::Alive;
    revived.recover();
    assert_eq!(revived.stands(), "todo");
    store.later(1);
    store.recover();
    assert_eq!(store.stands(), "failed");
}

#[test]
fn an_inconsistency_keeps_what_the_task_was_at() {
    for (before, after) in [
        (OneTaskStore::new as fn() -> OneTaskStore, "todo"),
        (
            || {
                let mut store = OneTaskStore::new();
                store.work();
                store
            },
            "blocked(awaiting_judge)",
        ),
        (
            || {
                let mut store = OneTaskStore::new();
                store.reject(ReworkCause::Verdict);
                store
            },
            "blocked(needs_rework)",
        ),
    ] {
        let mut store = before();
        let request = Request::Block {
            code: RefusalCode::LedgerInconsistent,
            reason: "x".to_owned(),
            waits_for: None,
        };
        store.ask("check", request);
        store.facts.repaired = Some(false);
        for repairs in 1..=3 {
            store.recover();
            assert_eq!(store.task.counters.repairs, repairs);
        }
        assert!(store.recover().is_empty(), "parked");
        store.facts.repaired = Some(true);
        store.recover();
        assert_eq!(store.stands(), after);
    }
}

#[test]
fn a_new_packet_for_a_task_nobody_works_on() {
    let packet = NewPacket {
        lock_scope: vec![resource("docs")],
        forbidden_scope: Vec::new(),
        context: Vec::new(),
        commands: Vec::new(),
    };
    let mut new = new_task();
    new.commands = vec!["just test".to_owned()];
    let mut store = OneTaskStore::with(new);
    store.ask("planner", Request::Replan(packet.clone()));
    assert_eq!(store.task.packet_revision, 2);
    assert_eq!(store.task.lock_scope, [resource("docs")]);
    assert_eq!(
        store.task.commands,
        ["just test"],
        "commands are never dropped to none"
    );
    for (lock_scope, code) in [
        (Vec::new(), RefusalCode::MissingRequiredInput),
        (vec![resource("@merge/main")], RefusalCode::SchemaInvalid),
    ] {
        let bad = NewPacket {
            lock_scope,
            ..packet.clone()
        };
        assert_eq!(store.refused("x", Request::Replan(bad.clone())), code);
        // The same holds for a packet that the recovery table asks for.
        let mut store = store.clone();
        store.ask("x", structural_block());
        let recover = Request::Recover {
            packet: Some(bad),
            successor: None,
        };
        assert_eq!(store.refused("x", recover), code);
    }
    store.claim("w", LeasePurpose::Work);
    assert_eq!(
        store.refused("x", Request::Replan(packet)),
        RefusalCode::InvalidTransition
    );
}

fn structural_block() -> Request {
    Request::Block {
        code: RefusalCode::SchemaInvalid,
        reason: "x".to_owned(),
        waits_for: None,
    }
}

#[test]
fn cancellation_from_every_state() {
    let cancel = || Request::Cancel {
        reason: "not wanted".to_owned(),
    };
    let mut todo = OneTaskStore::new();
    todo.ask("person", cancel());
    let mut working = OneTaskStore::new();
    working.claim("w", LeasePurpose::Work);
    working.ask("person", cancel());
    assert_eq!(
        working.facts.run.as_ref().unwrap().status,
        TaskRunStatus::Canceled
    );
    let mut blocked = OneTaskStore::new();
    blocked.work();
    blocked.ask("person", cancel());
    for store in [&mut todo, &mut working, &mut blocked] {
        assert_eq!(store.stands(), "canceled");
        let owner = store.task.owner.clone();
        let again = store.ask("person", cancel());
        assert_eq!(again.events.len(), 1);
        assert_eq!(store.task.owner, owner);
    }
}

/// A task that has ended in each way.
fn ended() -> [OneTaskStore; 3] {
    let mut done = OneTaskStore::new();
    let token = done.intend();
    done.ask("j", settle(token, crate::words::BasePosition::Merged));
    let mut failed = OneTaskStore::new();
    failed.reject(ReworkCause::Verdict);
    failed.recover();
    let mut canceled = OneTaskStore::new();
    canceled.ask(
        "person",
        Request::Cancel {
            reason: "x".to_owned(),
        },
    );
    [done, failed, canceled]
}

#[test]
fn there_is_no_way_out_of_an_end() {
    for mut store in ended() {
        let state = store.task.state;
        for request in [
            claim("w", LeasePurpose::Work, "k"),
            claim("w", LeasePurpose::Judge, "k"),
            recovery(&store.task),
            Request::Expire { not_before: None },
            Request::TakeBack,
            Request::EndTimebox,
            Request::Pause { paused: true },
            Request::Heartbeat { token: 99 },
            Request::Create(new_task()),
            store_block(),
        ] {
            assert_eq!(
                store.refused("x", request.clone()),
                RefusalCode::InvalidTransition,
                "{request:?}"
            );
        }
        for said in TaskState::ALL {
            let request = Request::Reassert {
                state: *said,
                reason: "recovery".to_owned(),
            };
            let before = store.task.clone();
            match store.try_ask("x", request) {
                Ok(decision) => {
                    assert_eq!(*said, state);
                    assert_eq!(decision.events[0].details["why"], "recovery");
                    assert_eq!(
                        store.task,
                        Task {
                            version: before.version + 1,
                            ..before
                        }
                    );
                }
                Err(refusal) => {
                    assert_ne!(*said, state);
                    assert_eq!(refusal.code, RefusalCode::InvalidTransition);
                }
            }
        }
    }
}

fn store_block() -> Request {
    Request::Block {
        code: RefusalCode::LedgerInconsistent,
        reason: "x".to_owned(),
        waits_for: None,
    }
}

#[test]
fn a_person_retries_what_failed_by_a_new_task() {
    let [mut done, mut superseded, mut canceled] = ended();
    let retry = || Request::Retry {
        successor: id("again"),
    };
    assert_eq!(
        done.refused("person", retry()),
        RefusalCode::InvalidTransition
    );
    assert_eq!(
        superseded.refused("person", retry()),
        RefusalCode::InvalidTransition
    );
    canceled.ask("person", retry());
    assert_eq!(canceled.stands(), "canceled");
    assert_eq!(canceled.task.superseded_by, Some(id("again")));
    let made = canceled.created.clone().unwrap().task;
    assert_eq!((made.lineage.tasks, made.rework_depth), (1, 0));
    assert_eq!(made.rework_of, Some(id("t")));
    assert_eq!(
        canceled.refused("person", retry()),
        RefusalCode::InvalidTransition
    );
    assert_eq!(
        OneTaskStore::new().refused("person", retry()),
        RefusalCode::InvalidTransition
    );
}
