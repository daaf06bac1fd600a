//! Damage in the raw tables, and how the cycle manager's way fixes it.

use runner_ledger::{Ledger, LedgerCall};
use runner_lifecycle::reconcile::{InconsistencyKind, InconsistencyRepair};
use runner_lifecycle::request::{Claim, JudgeEnding, WorkEnding};
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BlockReason, LeasePurpose, RefusalCode, Request, TaskState, Timestamp};

use crate::support::*;

/// What is done behind the ledger's back, and what becomes of whom.
struct Damage {
    kind: InconsistencyKind,
    sql: &'static str,
    /// The task that is fixed, and where it stands then.
    repaired: (&'static str, TaskState),
}

const BLOCKER: &str = "UPDATE tasks SET doc = REPLACE(doc, '\"blocker\":null', \
     '\"blocker\":{\"task_id\":\"b\",\"code\":\"cooldown\",\"reason\":\"x\",\"since\":0,\
     \"retry_at\":null,\"waits_for\":null}') WHERE id = 'b'";
const INTENT: &str = "UPDATE tasks SET doc = REPLACE(doc, '\"intent\":null', \
     '\"intent\":{\"old_base\":\"o\",\"merge_commit\":\"m\"}') WHERE id = 'd'";
const RUN_OF_B: &str = "INSERT INTO runs (id, task_id, number, status, doc, started_at, \
     judgement_version) SELECT 'b-9', 'b', 9, 'running', REPLACE(REPLACE(REPLACE(doc, \
     '\"a-1\"', '\"b-9\"'), '\"number\":1', '\"number\":9'), '\"task_id\":\"a\"', \
     '\"task_id\":\"b\"'), started_at, 0 FROM runs WHERE id = 'a-1'";
const SECOND_RUN_OF_A: &str = "DROP INDEX runs_running; \
     INSERT INTO runs (id, task_id, number, status, doc, started_at, judgement_version) \
     SELECT 'a-0', 'a', 0, 'running', REPLACE(REPLACE(doc, '\"a-1\"', '\"a-0\"'), \
     '\"number\":1', '\"number\":0'), started_at, 0 FROM runs WHERE id = 'a-1'";

/// `a` and `c` are worked on, `c` since a second later; `b` is to do, `d` called off.
const DAMAGES: &[Damage] = &[
    Damage {
        kind: InconsistencyKind::LockWithoutWork,
        sql: "INSERT INTO locks (resource, task_id) VALUES ('elsewhere', 'b')",
        repaired: ("b", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::LockWithoutWork,
        sql: "INSERT INTO locks (resource, task_id) VALUES ('elsewhere', 'd')",
        repaired: ("d", TaskState::Canceled),
    },
    Damage {
        kind: InconsistencyKind::OverlappingLocks,
        sql: "INSERT INTO locks (resource, task_id) VALUES ('src/x', 'c')",
        repaired: ("c", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::OverlappingLocks,
        sql: "INSERT INTO locks (resource, task_id) VALUES ('tests/x', 'a')",
        repaired: ("c", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::WorkWithoutLock,
        sql: "DELETE FROM locks WHERE task_id = 'a'",
        repaired: ("a", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::WorkWithoutLease,
        sql: "DELETE FROM leases WHERE task_id = 'a'",
        repaired: ("a", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::LeaseWithoutWork,
        sql: "UPDATE leases SET task_id = 'b' WHERE task_id = 'a'",
        repaired: ("b", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::LeaseNotOfOwner,
        sql: "UPDATE leases SET owner = 'somebody' WHERE task_id = 'a'",
        repaired: ("a", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::LeaseNotOfOwner,
        sql: "UPDATE leases SET token = 7 WHERE task_id = 'a'",
        repaired: ("a", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::StateNotLastEvent,
        sql: "UPDATE tasks SET state = 'failed', awaits = NULL, \
              doc = REPLACE(doc, '\"state\":\"todo\"', '\"state\":\"failed\"') WHERE id = 'b'",
        repaired: ("b", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::VersionNotLastEvent,
        sql: "UPDATE tasks SET version = 7, doc = REPLACE(doc, '\"version\":1', '\"version\":7') \
              WHERE id = 'b'",
        repaired: ("b", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::BlockerMismatch,
        sql: BLOCKER,
        repaired: ("b", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::IntentOfEnded,
        sql: INTENT,
        repaired: ("d", TaskState::Canceled),
    },
    Damage {
        kind: InconsistencyKind::RunWithoutWork,
        sql: RUN_OF_B,
        repaired: ("b", TaskState::Todo),
    },
    Damage {
        kind: InconsistencyKind::TwoRunningRuns,
        sql: SECOND_RUN_OF_A,
        repaired: ("a", TaskState::InProgress),
    },
];

/// Another store of the same kind.
fn another(world: &World) -> World {
    if world.is_postgres() {
        World::postgres()
    } else {
        World::sqlite()
    }
}

async fn block(ledger: &Ledger, task: &str) {
    let block = Request::Block {
        code: RefusalCode::LedgerInconsistent,
        reason: "something does not fit".to_owned(),
        waits_for: None,
    };
    ledger
        .call(&LedgerCall::new(id(task), "judge", block))
        .await
        .unwrap();
}

/// What the cycle manager does with tasks that are blocked so; whether each went on.
async fn cycle(ledger: &Ledger) -> Vec<bool> {
    let mut went_on = Vec::new();
    for task in ledger.to_recover(Timestamp(0), 100).await.unwrap() {
        assert_eq!(task.blocked_on(), Some(BlockReason::LedgerInconsistent));
        let request = Request::Recover {
            packet: None,
            successor: None,
        };
        let mut call = LedgerCall::new(task.id.clone(), "cycle", request);
        let repaired = ledger.repair(&task.id).await.unwrap();
        call.outside.repaired = Some(repaired);
        let recovered = ledger.call(&call).await.unwrap();
        went_on.push(recovered.task.blocked_on() != Some(BlockReason::LedgerInconsistent));
    }
    went_on
}

async fn reasons(ledger: &Ledger, task: &str) -> Vec<String> {
    let events = ledger.events(&id(task)).await.unwrap();
    events.into_iter().map(|event| event.reason).collect()
}

pub(crate) async fn each_contradiction_is_mended(first: World) {
    for damage in DAMAGES {
        let world = another(&first);
        let ledger = world.open().await;
        for (name, scope) in [
            ("a", "src"),
            ("b", "docs"),
            ("c", "tests"),
            ("d", "old"),
            ("w", "witness"),
        ] {
            made(&ledger, new_task(name, scope)).await;
        }
        let cancel = Request::Cancel {
            reason: "not wanted".to_owned(),
        };
        ledger
            .call(&LedgerCall::new(id("d"), "person", cancel))
            .await
            .unwrap();
        claim(&ledger, "a", "w1", LeasePurpose::Work).await.unwrap();
        world.clock.advance_secs(1);
        claim(&ledger, "c", "w2", LeasePurpose::Work).await.unwrap();
        block(&ledger, "w").await;
        assert_clean(&ledger.check().await.unwrap());

        let kind = damage.kind;
        world.raw(damage.sql).await.unwrap();
        let found = ledger.check().await.unwrap();
        let names: Vec<_> = found.inconsistencies.iter().map(|one| one.kind).collect();
        assert!(names.contains(&kind), "{kind} in {found:#?}");

        assert_eq!(cycle(&ledger).await, [true], "{kind}");
        assert_clean(&ledger.check().await.unwrap());
        let (name, state) = damage.repaired;
        let repaired = ledger.task(&id(name)).await.unwrap().unwrap();
        assert_eq!(repaired.state, state, "{kind}: {name}");
        // A row that is made anew is what its events say; anything else is one of them.
        let told = reasons(&ledger, name).await;
        let told = told.iter().any(|reason| reason == "ledger_repaired");
        assert_eq!(
            told,
            kind.repair() != InconsistencyRepair::Rebuild,
            "{kind}: {name}"
        );
        // Nobody else was touched, and everybody can go on.
        for (other, owner) in [("a", "w1"), ("c", "w2")] {
            let task = ledger.task(&id(other)).await.unwrap().unwrap();
            if task.state != TaskState::InProgress {
                claim(&ledger, other, "w3", LeasePurpose::Work)
                    .await
                    .unwrap();
                continue;
            }
            let ending = success(other, &format!("{other}-1"));
            let run_id = format!("{other}-1");
            let finish = Request::Finish {
                token: task.token,
                run_id,
                ending,
            };
            let finished = ledger
                .call(&LedgerCall::new(id(other), owner, finish))
                .await;
            let state = finished.unwrap().task.blocked_on();
            assert_eq!(state, Some(BlockReason::AwaitingJudge), "{kind}");
        }
        assert_clean(&ledger.check().await.unwrap());
        ledger.close().await.unwrap();
    }
    let tried = |kind: &InconsistencyKind| DAMAGES.iter().any(|damage| damage.kind == *kind);
    for kind in InconsistencyKind::ALL {
        let person = kind.repair() == InconsistencyRepair::Person;
        assert_eq!(tried(kind), !person, "{kind} is never tried");
    }
}

/// What stands where a claim wants to write looks like somebody who is always faster.
pub(crate) async fn what_is_in_the_way_of_a_claim_is_mended(first: World) {
    for (sql, kind) in [
        (
            "INSERT INTO locks (resource, task_id) VALUES ('docs', 'b')",
            "lock_without_work",
        ),
        (RUN_OF_B, "run_without_work"),
    ] {
        let world = another(&first);
        let ledger = world.open().await;
        made(&ledger, new_task("a", "src")).await;
        claim(&ledger, "a", "w1", LeasePurpose::Work).await.unwrap();
        made(&ledger, new_task("b", "docs")).await;
        world.raw(sql).await.unwrap();
        let claim_request = runner_ledger::ClaimRequest::work("w2", "worker", "k");
        let refused = ledger.claim_next(&claim_request).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Some(RefusalCode::ConcurrencyConflict),
            "{refused}"
        );
        let blocked = ledger.task(&id("b")).await.unwrap().unwrap();
        let blocker = blocked.blocker.unwrap();
        assert_eq!(blocker.code, BlockReason::LedgerInconsistent, "{kind}");
        assert!(blocker.reason.starts_with(kind), "{}", blocker.reason);
        assert_eq!(cycle(&ledger).await, [true]);
        assert_clean(&ledger.check().await.unwrap());
        let claimed = ledger.claim_next(&claim_request).await.unwrap().unwrap();
        assert_eq!(claimed.task.id, id("b"));
        ledger.close().await.unwrap();
    }
}

/// The older of two claims is not done either while the younger one is there.
pub(crate) async fn nothing_is_done_over_an_overlap(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("a", "src")).await;
    made(&ledger, simple("b", "docs")).await;
    let a = work(&ledger, "w1", "k1").await.unwrap();
    world.clock.advance_secs(1);
    let b = work(&ledger, "w2", "k2").await.unwrap();
    world
        .raw("INSERT INTO locks (resource, task_id) VALUES ('src/x', 'b')")
        .await
        .unwrap();
    let refused = ledger.call(&succeed(&a, "w1")).await.unwrap_err();
    assert_eq!(
        refused.code(),
        Some(RefusalCode::LedgerInconsistent),
        "{refused}"
    );
    // As a worker says it then.
    let ending = WorkEnding::Blocked {
        code: RefusalCode::LedgerInconsistent,
        reason: refused.to_string(),
        waits_for: None,
    };
    ledger.call(&finish(&a, "w1", ending)).await.unwrap();
    assert_eq!(cycle(&ledger).await, [true]);
    assert_clean(&ledger.check().await.unwrap());
    // With the work of `a` its lock had ended, so that nothing overlapped any longer.
    ledger.call(&succeed(&b, "w2")).await.unwrap();
}

/// The head of the merge queue meets one, leaves the task to the repair, and the result
/// that was approved is merged afterwards.
pub(crate) async fn a_merge_goes_on_after_the_repair(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let a = work(&ledger, "w", "k").await.unwrap();
    ledger.call(&succeed(&a, "w")).await.unwrap();
    let judged = claim(&ledger, "a", "j", LeasePurpose::Judge).await.unwrap();
    let judge = |token: u64, ending: JudgeEnding| {
        let request = Request::Judge { token, ending };
        LedgerCall::new(id("a"), "j", request)
    };
    let approve = JudgeEnding::Approve {
        packet: packet("a", "a-1"),
    };
    let approve = judge(judged.task.token, approve);
    ledger.call(&approve).await.unwrap();
    let merge = |key: &str| {
        let request = Request::Claim(Claim {
            owner: "j".to_owned(),
            purpose: LeasePurpose::Merge,
            key: key.to_owned(),
            base: Some("main".to_owned()),
        });
        LedgerCall::new(id("a"), "j", request)
    };
    let record = |token: u64| {
        let request = Request::RecordIntent {
            token,
            intent: Intent {
                old_base: "o".to_owned(),
                merge_commit: "m".to_owned(),
            },
            packet: packet("a", "a-1"),
        };
        LedgerCall::new(id("a"), "j", request)
    };
    let token = ledger.call(&merge("m1")).await.unwrap().task.token;
    let damage = "UPDATE tasks SET doc = REPLACE(doc, '\"blocker\":null', \
         '\"blocker\":{\"task_id\":\"a\",\"code\":\"cooldown\",\"reason\":\"x\",\"since\":0,\
         \"retry_at\":null,\"waits_for\":null}') WHERE id = 'a'";
    world.raw(damage).await.unwrap();
    let refused = ledger.call(&record(token)).await.unwrap_err();
    assert_eq!(
        refused.code(),
        Some(RefusalCode::LedgerInconsistent),
        "{refused}"
    );
    let reason = refused.to_string();
    let back = judge(token, JudgeEnding::StepBack { reason });
    ledger.call(&back).await.unwrap();
    block(&ledger, "a").await;
    assert_eq!(cycle(&ledger).await, [true]);
    assert_clean(&ledger.check().await.unwrap());
    // No judge has failed, and nothing is judged again.
    let waits = ledger.task(&id("a")).await.unwrap().unwrap();
    assert_eq!(waits.blocked_on(), Some(BlockReason::AwaitingJudge));
    assert_eq!((waits.counters.judge, waits.counters.repairs), (0, 0));
    let token = ledger.call(&merge("m2")).await.unwrap().task.token;
    let recorded = ledger.call(&record(token)).await.unwrap();
    assert!(recorded.task.intent.is_some());
}

/// What only a person can fix is counted, and then left to one.
pub(crate) async fn what_cannot_be_mended_is_parked(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    block(&ledger, "a").await;
    let break_lineage = if world.is_postgres() {
        "ALTER TABLE events DISABLE TRIGGER USER"
    } else {
        "DROP TRIGGER events_no_update"
    };
    world.raw(break_lineage).await.unwrap();
    for sql in [
        "UPDATE tasks SET superseded_by = 'a', \
         doc = REPLACE(doc, '\"superseded_by\":null', '\"superseded_by\":\"a\"') WHERE id = 'a'",
        "UPDATE events SET doc = REPLACE(doc, '\"changes\":{', \
         '\"changes\":{\"superseded_by\":\"a\",') WHERE task_id = 'a' AND version = 2",
    ] {
        world.raw(sql).await.unwrap();
    }
    for tries in 1..=3 {
        assert_eq!(cycle(&ledger).await, [false]);
        let task = ledger.task(&id("a")).await.unwrap().unwrap();
        assert_eq!(task.counters.repairs, tries);
    }
    let before = exported(&ledger).await;
    assert_eq!(cycle(&ledger).await, [false]);
    assert_eq!(exported(&ledger).await, before, "parked");
}
