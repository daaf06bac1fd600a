//! What a process remembers saves it questions, and never makes it err.

use runner_ledger::{ClaimedTask, Ledger, LedgerCall};
use runner_lifecycle::request::NewTask;
use runner_lifecycle::{LeasePurpose, RefusalCode, Request, TaskState};

use crate::support::*;

/// Made and claimed by somebody who remembers it.
async fn held(ledger: &Ledger, new: NewTask, owner: &str) -> ClaimedTask {
    let name = new.id.to_string();
    made(ledger, new).await;
    let task = claim(ledger, &name, owner, LeasePurpose::Work)
        .await
        .unwrap()
        .task;
    ClaimedTask {
        token: task.token,
        run_id: format!("{name}-1"),
        expires_at: runner_lifecycle::Timestamp(0),
        replayed: false,
        task,
    }
}

pub(crate) async fn whoever_holds_work_asks_nothing(world: World) {
    let ledger = world.open().await;
    let a = held(&ledger, simple("a", "src"), "w").await;
    ledger.flush().await.unwrap();
    let before = ledger.statements();
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    assert_eq!(ledger.statements() - before, 1);
    let done = ledger.call(&succeed(&a, "w")).await.unwrap();
    assert_eq!(done.task.state, TaskState::Done);
    assert!(ledger.locks().await.unwrap().is_empty());
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn what_others_did_meanwhile_is_noticed(world: World) {
    let (ledger, other) = (world.open().await, world.open().await);
    // A heartbeat that came another way.
    let a = held(&ledger, simple("a", "src"), "w").await;
    world.clock.advance_secs(1);
    other.call(&heartbeat(&a, "w")).await.unwrap();
    world.clock.advance_secs(1);
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    // An end that came another way: this one is a repeat.
    let first = other.call(&succeed(&a, "w")).await.unwrap();
    let again = ledger.call(&succeed(&a, "w")).await.unwrap();
    assert!(again.replayed && again.answer == first.answer);
    // Canceled.
    let b = held(&ledger, simple("b", "src"), "w").await;
    let cancel = Request::Cancel {
        reason: "no longer wanted".to_owned(),
    };
    let canceled = other
        .call(&LedgerCall::new(id("b"), "person", cancel))
        .await;
    assert_eq!(canceled.unwrap().task.state, TaskState::Canceled);
    assert!(ledger.call(&heartbeat(&b, "w")).await.is_err());
    assert!(ledger.call(&succeed(&b, "w")).await.is_err());
    // Lost, and somebody else's.
    let c = held(&ledger, simple("c", "src"), "w").await;
    world.clock.advance_secs(90);
    let expire = Request::Expire { not_before: None };
    let expired = other
        .call(&LedgerCall::new(id("c"), "watchdog", expire))
        .await;
    expired.unwrap();
    claim(&other, "c", "w2", LeasePurpose::Work).await.unwrap();
    for stale in [heartbeat(&c, "w"), succeed(&c, "w")] {
        let refused = ledger.call(&stale).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Some(RefusalCode::ConcurrencyConflict),
            "{refused}"
        );
    }
    // A name that is taken.
    let taken = ledger.call(&create(simple("c", "docs"))).await.unwrap_err();
    assert_eq!(
        taken.code(),
        Some(RefusalCode::InvalidTransition),
        "{taken}"
    );
    assert_clean(&ledger.check().await.unwrap());
}

/// Whoever remembers is told what somebody is told who does not.
pub(crate) async fn damage_is_found_behind_a_memory(world: World) {
    let damages = [
        (
            "a lock inside the scope",
            "INSERT INTO locks (resource, task_id) VALUES ('a0/x', 'z'), ('b0/x', 'z')",
            Some(RefusalCode::LedgerInconsistent),
        ),
        (
            "a lock above the scope",
            "INSERT INTO locks (resource, task_id) VALUES ('a1', 'z'), ('b1', 'z')",
            Some(RefusalCode::LedgerInconsistent),
        ),
        (
            "an event too many",
            "INSERT INTO events (task_id, version, to_state, created_at, doc) \
             SELECT task_id, 9, 'done', created_at, REPLACE(doc, '\"version\":2', '\"version\":9') \
             FROM events WHERE version = 2 AND task_id IN ('a2', 'b2')",
            Some(RefusalCode::LedgerInconsistent),
        ),
        (
            "a lease of somebody else",
            "UPDATE leases SET owner = 'z' || task_id WHERE task_id IN ('a3', 'b3')",
            Some(RefusalCode::ConcurrencyConflict),
        ),
        (
            "no lock",
            "DELETE FROM locks WHERE task_id IN ('a4', 'b4')",
            None,
        ),
    ];
    let (ledger, fresh) = (world.open().await, world.open().await);
    for (at, (what, sql, expected)) in damages.into_iter().enumerate() {
        let deep = if at == 1 { "/x" } else { "" };
        let names = [format!("a{at}"), format!("b{at}")];
        let mut claims = Vec::new();
        for name in &names {
            let new = simple(name, &format!("{name}{deep}"));
            claims.push(held(&ledger, new, "w").await);
        }
        let sound = held(&ledger, simple(&format!("c{at}"), &format!("c{at}")), "w").await;
        world.raw(sql).await.unwrap();
        // Together with one that is sound.
        let (remembered, sound) = (succeed(&claims[0], "w"), succeed(&sound, "w"));
        let (sound, remembered) = tokio::join!(ledger.call(&sound), ledger.call(&remembered));
        assert_eq!(
            sound.unwrap().task.state,
            TaskState::Done,
            "{what}, beside it"
        );
        let read = fresh.call(&succeed(&claims[1], "w")).await;
        assert_eq!(read.err().and_then(|e| e.code()), expected, "{what}, read");
        let code = remembered.err().and_then(|error| error.code());
        assert_eq!(code, expected, "{what}, remembered");
    }
}
