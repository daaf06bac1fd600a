//! What the store itself guards: events, schema, and words for what goes wrong.

use runner_ledger::{Ledger, SCHEMA, StoreError};
use runner_lifecycle::TaskState;

use crate::support::*;

pub(crate) async fn events_cannot_be_changed(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let before = exported(&ledger).await;
    let mut attempts = vec![
        "UPDATE events SET to_state = 'done'",
        "UPDATE events SET doc = doc",
        "DELETE FROM events",
        "INSERT INTO events (task_id, version, to_state, created_at, doc) \
         VALUES ('a', 1, 'done', 0, '{}')",
    ];
    if world.is_postgres() {
        attempts.push("TRUNCATE events");
        attempts.push(
            "INSERT INTO events (task_id, version, to_state, created_at, doc) \
             VALUES ('a', 1, 'done', 0, '{}') \
             ON CONFLICT (task_id, version) DO UPDATE SET doc = excluded.doc",
        );
    } else {
        attempts.push(
            "INSERT OR REPLACE INTO events (task_id, version, to_state, created_at, doc) \
             VALUES ('a', 1, 'done', 0, '{}')",
        );
        attempts.push(
            "INSERT OR REPLACE INTO events (seq, task_id, version, to_state, created_at, doc) \
             VALUES (1, 'b', 1, 'done', 0, '{}')",
        );
    }
    for sql in attempts {
        assert!(world.raw(sql).await.is_err(), "{sql}");
    }
    assert_eq!(exported(&ledger).await, before);
}

pub(crate) async fn rows_are_rebuilt_from_events(world: World) {
    let ledger = world.open().await;
    let mut dependent = new_task("c", "tests");
    dependent.dependencies = vec![id("a")];
    for new in [simple("a", "src"), new_task("b", "docs"), dependent] {
        made(&ledger, new).await;
    }
    for name in ["d", "e"] {
        let mut later = new_task(name, name);
        later.priority = runner_lifecycle::TaskPriority::Low;
        made(&ledger, later).await;
    }
    let a = work(&ledger, "w", "k1").await.unwrap();
    ledger.call(&succeed(&a, "w")).await.unwrap();
    let b = work(&ledger, "w", "k2").await.unwrap();
    ledger.call(&succeed(&b, "w")).await.unwrap();
    assert_clean(&ledger.check().await.unwrap());
    let before = exported(&ledger).await;

    world
        .raw("UPDATE tasks SET doc = REPLACE(doc, '\"priority\":\"normal\"', '\"priority\":\"low\"') WHERE id = 'b'")
        .await
        .unwrap();
    world.raw("DELETE FROM tasks WHERE id = 'a'").await.unwrap();
    world
        .raw("UPDATE tasks SET state = 'done', awaits = NULL WHERE id = 'd'")
        .await
        .unwrap();
    world
        .raw("UPDATE tasks SET doc = '{}' WHERE id = 'e'")
        .await
        .unwrap();
    world
        .raw("UPDATE tasks SET unmet = 7, waits_for = 'lock:nowhere' WHERE id = 'c'")
        .await
        .unwrap();
    let found = ledger.check().await.unwrap();
    let words: Vec<&str> = found.rows.iter().map(|row| row.words.as_str()).collect();
    assert_eq!(
        words,
        [
            "there are events and no row",
            "the row differs from its events in priority",
            "its columns differ from the row in state, awaits",
            "the row cannot be read: the ledger is damaged: the row of a task: missing field \
             `id` at line 1 column 2",
        ]
    );
    assert!(!found.index.is_empty());

    let rebuilt = ledger.rebuild().await.unwrap();
    assert_eq!((rebuilt.tasks, rebuilt.repaired), (5, 4));
    assert!(rebuilt.hopeless.is_empty());
    assert_clean(&ledger.check().await.unwrap());
    assert_eq!(exported(&ledger).await, before);
    // What can be claimed is what could be before.
    let c = work(&ledger, "w", "k3").await.unwrap();
    assert_eq!(c.task.id, id("c"));
    let judged = claim(&ledger, "b", "j", runner_lifecycle::LeasePurpose::Judge).await;
    assert_eq!(judged.unwrap().task.state, TaskState::InProgress);
}

pub(crate) async fn a_check_finds_what_does_not_fit(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    made(&ledger, new_task("b", "docs")).await;
    work(&ledger, "w", "k1").await.unwrap();
    world
        .raw("INSERT INTO locks (resource, task_id) VALUES ('src/x', 'b')")
        .await
        .unwrap();
    world
        .raw("DELETE FROM leases WHERE task_id = 'a'")
        .await
        .unwrap();
    let found = ledger.check().await.unwrap();
    let names: Vec<&str> = found
        .inconsistencies
        .iter()
        .map(|one| one.kind.as_str())
        .collect();
    for name in [
        "work_without_lease",
        "lock_without_work",
        "overlapping_locks",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    world
        .raw("INSERT INTO locks (resource, task_id) VALUES ('x', 'nobody')")
        .await
        .unwrap();
    let found = ledger.check().await.unwrap();
    assert_eq!(
        found.index,
        ["task nobody holds a lock and does not exist"],
        "{found:#?}"
    );
    let rebuilt = ledger.rebuild().await.unwrap();
    assert_eq!(
        (rebuilt.released, rebuilt.repaired_tasks),
        (1, vec![id("a"), id("b")])
    );
    assert_clean(&ledger.check().await.unwrap());
    let again = work(&ledger, "w", "k2").await.unwrap();
    assert_eq!((again.task.id, again.token), (id("a"), 2));
}

pub(crate) async fn a_check_reads_on_where_something_cannot_be_read(world: World) {
    let ledger = world.open().await;
    for name in ["a", "b"] {
        made(&ledger, new_task(name, name)).await;
        work(&ledger, "w", name).await.unwrap();
    }
    world
        .raw("UPDATE runs SET doc = 'x' WHERE task_id = 'a'")
        .await
        .unwrap();
    let drop = if world.is_postgres() {
        "ALTER TABLE events DISABLE TRIGGER USER"
    } else {
        "DROP TRIGGER events_no_update"
    };
    world.raw(drop).await.unwrap();
    world
        .raw("UPDATE events SET doc = 'x' WHERE task_id = 'b' AND version = 2")
        .await
        .unwrap();
    let found = ledger.check().await.unwrap();
    let names: Vec<&str> = found.rows.iter().map(|row| row.task_id.as_str()).collect();
    assert_eq!(names, ["a", "b"], "{found:#?}");
    assert_eq!(ledger.rebuild().await.unwrap().hopeless.len(), 2);
}

pub(crate) async fn a_newer_schema_is_refused(world: World) {
    world.open().await.close().await.unwrap();
    world
        .raw("INSERT INTO ledger_schema (version) VALUES (99)")
        .await
        .unwrap();
    let Err(refused) = Ledger::open(&world.store, world.options(1)).await else {
        panic!("a newer schema was opened");
    };
    let newer = StoreError::Newer {
        found: 99,
        known: SCHEMA,
    };
    assert_eq!(refused, newer);
    let words = refused.to_string();
    assert!(
        words.contains("schema 99") && words.contains("newer runner"),
        "{words}"
    );
}

pub(crate) async fn opening_again_changes_nothing(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let before = exported(&ledger).await;
    // Several at once, as when a fleet comes up.
    let again = tokio::join!(world.open(), world.open(), world.open());
    assert_eq!(exported(&again.2).await, before);
}

pub(crate) async fn a_read_only_store_says_so(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let before = exported(&ledger).await;
    ledger.close().await.unwrap();
    let read_only = if world.is_postgres() {
        let name = world.store.to_string();
        let name = name.rsplit('/').next().unwrap();
        // The statement takes no parameter; the name is one that the test made.
        let sql: &'static str = Box::leak(
            format!("ALTER DATABASE {name} SET default_transaction_read_only = on")
                .into_boxed_str(),
        );
        world.raw(sql).await.unwrap();
        world.open().await
    } else {
        // As a file of a read-only system: nobody, root included, may write it.
        let options = runner_ledger::LedgerOptions {
            read_only: true,
            ..world.options(1)
        };
        Ledger::open(&world.store, options).await.unwrap()
    };
    let refused = read_only
        .call(&create(new_task("b", "docs")))
        .await
        .unwrap_err();
    let words = refused.to_string();
    assert!(words.contains("read-only, nothing was written"), "{words}");
    assert_eq!(exported(&read_only).await, before);
}
