//! Pages that stay where they are, the sequence of events, and counts.

use std::time::{Duration, Instant};

use runner_ledger::{EventHead, Ledger, RunPage, RunPlace, Store, TaskPage};
use runner_lifecycle::request::WorkEnding;
use runner_lifecycle::{
    BlockReason, FailureCategory, LeasePurpose, Request, TaskRunStatus, TaskState,
};

use crate::support::*;

pub(crate) async fn pages_are_stable_under_writes(world: World) {
    let ledger = world.open().await;
    for name in ["b", "d", "f", "h"] {
        made(&ledger, new_task(name, name)).await;
    }
    let mut page = TaskPage {
        limit: 2,
        ..TaskPage::default()
    };
    let first = ledger.task_page(&page).await.unwrap();
    assert_eq!(names(&first), ["b", "d"]);
    // Before the place, behind it, and a change of what comes.
    made(&ledger, new_task("a", "a")).await;
    made(&ledger, new_task("g", "g")).await;
    let cancel = Request::Cancel {
        reason: "no".to_owned(),
    };
    let call = runner_ledger::LedgerCall::new(id("f"), "p", cancel);
    ledger.call(&call).await.unwrap();
    page.after = first.last().map(|task| task.id.clone());
    let second = ledger.task_page(&page).await.unwrap();
    assert_eq!(names(&second), ["f", "g"]);
    page.after = second.last().map(|task| task.id.clone());
    assert_eq!(names(&ledger.task_page(&page).await.unwrap()), ["h"]);
}

fn names(tasks: &[runner_lifecycle::Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

pub(crate) async fn tasks_are_filtered(world: World) {
    let ledger = world.open().await;
    let mut tester = new_task("c", "c");
    "tester".clone_into(&mut tester.role);
    let mut lost = new_task("d", "d");
    lost.role = String::new();
    for new in [new_task("a", "a"), new_task("b", "b"), tester, lost] {
        made(&ledger, new).await;
    }
    work(&ledger, "w", "k").await.unwrap();
    // Nobody knows a role for d; the others go on by themselves.
    assert_eq!(ledger.parked().await.unwrap(), 1);
    for (state, reason, role, expected) in [
        (None, None, None, &["a", "b", "c", "d"][..]),
        (Some(TaskState::InProgress), None, None, &["a"]),
        (Some(TaskState::Todo), None, Some("worker"), &["b"]),
        (None, None, Some("tester"), &["c"]),
        (None, Some(BlockReason::IssueLinking), None, &["d"]),
        (
            Some(TaskState::Blocked),
            Some(BlockReason::IssueLinking),
            None,
            &["d"],
        ),
        (
            Some(TaskState::Blocked),
            Some(BlockReason::Cooldown),
            None,
            &[],
        ),
        (
            Some(TaskState::Todo),
            Some(BlockReason::IssueLinking),
            None,
            &[],
        ),
    ] {
        let page = TaskPage {
            state,
            blocked_on: reason,
            role: role.map(str::to_owned),
            after: None,
            limit: 10,
        };
        let tasks = ledger.task_page(&page).await.unwrap();
        assert_eq!(names(&tasks), expected, "{page:?}");
    }
}

pub(crate) async fn runs_come_newest_first(world: World) {
    let ledger = world.open().await;
    for name in ["a", "b", "c"] {
        made(&ledger, new_task(name, name)).await;
        world.clock.advance_millis(10);
    }
    world.clock.advance_secs(2);
    let mut claims = Vec::new();
    for key in ["k1", "k2", "k3"] {
        claims.push(work(&ledger, "w", key).await.unwrap());
        world.clock.advance_secs(1);
    }
    ledger.call(&succeed(&claims[0], "w")).await.unwrap();
    let failed = WorkEnding::Failed {
        category: FailureCategory::Test,
        signature: None,
        note: "red".to_owned(),
    };
    ledger.call(&finish(&claims[1], "w", failed)).await.unwrap();
    claim(&ledger, "a", "judge", LeasePurpose::Judge)
        .await
        .unwrap();

    let ids = async |page: RunPage| -> Vec<String> {
        let page = RunPage { limit: 2, ..page };
        let runs = ledger.run_page(&page).await.unwrap();
        runs.into_iter().map(|run| run.id).collect()
    };
    assert_eq!(ids(RunPage::default()).await, ["c-1", "b-1"]);
    let last = ledger.run("b-1").await.unwrap().unwrap();
    let next = RunPage {
        before: Some(RunPlace::of(&last)),
        ..RunPage::default()
    };
    assert_eq!(ids(next).await, ["a-1"]);
    let judged = RunPage {
        judged: true,
        ..RunPage::default()
    };
    assert_eq!(ids(judged.clone()).await, ["a-1"]);
    for (task, status, expected) in [
        (Some("b"), None, &["b-1"][..]),
        (Some("b"), Some(TaskRunStatus::Success), &[]),
        (None, Some(TaskRunStatus::Running), &["c-1"]),
        (None, Some(TaskRunStatus::Failed), &["b-1"]),
    ] {
        let page = RunPage {
            task: task.map(id),
            status,
            ..RunPage::default()
        };
        assert_eq!(ids(page).await, expected, "{task:?} {status:?}");
        let page = RunPage {
            task: task.map(id),
            status,
            ..judged.clone()
        };
        assert!(ids(page).await.is_empty());
    }

    let by_status = ledger.runs_by_status().await.unwrap();
    let expected = [
        (TaskRunStatus::Running, 1),
        (TaskRunStatus::Success, 1),
        (TaskRunStatus::Failed, 1),
        (TaskRunStatus::Canceled, 0),
    ];
    assert_eq!(by_status, expected);
    // a waited 2.03 s, b 3.02 s, c 4.01 s.
    let waits = ledger.waits(&[1000, 3000, 10_000]).await.unwrap();
    assert_eq!((waits.runs, waits.sum_millis), (3, 9060));
    assert_eq!(waits.within, [(1000, 0), (3000, 1), (10_000, 3)]);
    let newest = ledger.newest_runs(&[id("b"), id("none")]).await.unwrap();
    assert_eq!(newest.len(), 1);
    assert_eq!(newest[0].category, Some(FailureCategory::Test));
}

/// Looks until nothing is missing: other databases of the server have writers as well.
async fn catch_up(ledger: &Ledger, head: &mut EventHead) {
    let until = Instant::now() + Duration::from_secs(30);
    ledger.follow(head).await.unwrap();
    while head.is_behind() {
        assert!(Instant::now() < until, "{head:?}");
        tokio::task::yield_now().await;
        ledger.follow(head).await.unwrap();
    }
}

pub(crate) async fn the_sequence_of_events_is_followed(world: World) {
    let ledger = world.open().await;
    let mut head = ledger.event_head().await.unwrap();
    assert_eq!(head.seq(), 0);
    assert!(!ledger.follow(&mut head).await.unwrap());
    made(&ledger, new_task("a", "a")).await;
    // A number that was given out for nothing.
    let again = ledger.call(&create(new_task("a", "a"))).await;
    assert!(again.is_err());
    made(&ledger, new_task("b", "b")).await;
    catch_up(&ledger, &mut head).await;
    let mut fresh = ledger.event_head().await.unwrap();
    catch_up(&ledger, &mut fresh).await;
    assert_eq!(fresh.seq(), head.seq());
    let events = ledger.events_between(0, head.seq(), 10).await.unwrap();
    let tasks: Vec<&str> = events
        .iter()
        .map(|one| one.event.task_id.as_str())
        .collect();
    assert_eq!(tasks, ["a", "b"]);
    let one = ledger.events_between(events[0].seq, head.seq(), 10).await;
    assert_eq!(one.unwrap().len(), 1);
    let limited = ledger.events_between(0, head.seq(), 1).await.unwrap();
    assert_eq!(limited.len(), 1);

    let claimed = work(&ledger, "w", "k").await.unwrap();
    let page = ledger.event_page(&claimed.task.id, 1, 10).await.unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].to_state, TaskState::InProgress);
    let held = ledger.held_locks().await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].lease.as_ref().unwrap().owner, "w");

    assert_eq!(ledger.expiries(0, i64::MAX).await.unwrap(), 0);
    world.clock.advance_secs(200);
    let expire = Request::Expire { not_before: None };
    let call = runner_ledger::LedgerCall::new(claimed.task.id.clone(), "keeper", expire);
    ledger.call(&call).await.unwrap();
    assert_eq!(ledger.expiries(0, i64::MAX).await.unwrap(), 1);
}

/// A number is given out before its event is there: nobody may pass it meanwhile.
pub(crate) async fn an_event_that_is_being_written_is_waited_for(world: World) {
    let Store::Postgres(url) = &world.store else {
        panic!("only a server has several writers");
    };
    let ledger = world.open().await;
    made(&ledger, new_task("a", "a")).await;
    let mut head = ledger.event_head().await.unwrap();
    let first = head.seq();
    let pool = sqlx::PgPool::connect(url).await.unwrap();
    for (name, is_written) in [("slow", true), ("given-up", false)] {
        let before = head.seq();
        let mut open = pool.begin().await.unwrap();
        // As the ledger does: first a row, so that the transaction has its number, then
        // the event.
        let flag = sqlx::query("INSERT INTO flags (name, value) VALUES ($1, '')").bind(name);
        flag.execute(&mut *open).await.unwrap();
        let append = "INSERT INTO events (task_id, version, to_state, created_at, doc) \
             SELECT $1, version, to_state, created_at, REPLACE(doc, '\"a\"', '\"' || $1 || '\"') \
             FROM events WHERE task_id = 'a'";
        let append = sqlx::query(append).bind(name);
        append.execute(&mut *open).await.unwrap();
        made(&ledger, new_task(&format!("after-{name}"), name)).await;
        assert!(!ledger.follow(&mut head).await.unwrap());
        assert!(head.is_behind());
        assert_eq!(ledger.event_head().await.unwrap().seq(), before);
        if is_written {
            open.commit().await.unwrap();
        } else {
            open.rollback().await.unwrap();
        }
        catch_up(&ledger, &mut head).await;
        assert!(head.seq() > before);
    }
    let events = ledger.events_between(first, head.seq(), 10).await.unwrap();
    let tasks: Vec<&str> = events
        .iter()
        .map(|one| one.event.task_id.as_str())
        .collect();
    assert_eq!(tasks, ["slow", "after-slow", "after-given-up"]);
    pool.close().await;
}

/// The lock that two tasks wait for ends, and the first of them is woken, while somebody is
/// about to cancel that one: then the second hears of it.
pub(crate) async fn a_task_that_is_canceled_while_it_is_woken_passes_the_word_on(world: World) {
    let Store::Postgres(url) = &world.store else {
        panic!("only a server has several writers");
    };
    let ledger = world.open().await;
    for name in ["a", "b", "c"] {
        made(&ledger, new_task(name, "same")).await;
    }
    let holder = work(&ledger, "w", "k").await.unwrap();
    assert_eq!(holder.task.id, id("a"));
    assert!(work(&ledger, "v", "l").await.is_none(), "they wait now");

    let pool = sqlx::PgPool::connect(url).await.unwrap();
    let mut ends = pool.begin().await.unwrap();
    let lock_row = sqlx::query("SELECT id FROM tasks WHERE id = 'b' FOR UPDATE");
    lock_row.execute(&mut *ends).await.unwrap();
    let other = ledger.clone();
    let canceled = tokio::spawn(async move {
        let cancel = Request::Cancel {
            reason: String::new(),
        };
        let call = runner_ledger::LedgerCall::new(id("b"), "p", cancel);
        other.call(&call).await
    });
    // Until it waits for the row, whatever it has read by then.
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock'";
    loop {
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&pool).await.unwrap();
        if count > 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    // As the end of the work does it.
    for sql in [
        "DELETE FROM locks WHERE task_id = 'a'",
        "UPDATE tasks SET waits_for = NULL, woken_from = waits_for WHERE id = 'b'",
    ] {
        sqlx::query(sql).execute(&mut *ends).await.unwrap();
    }
    ends.commit().await.unwrap();
    canceled.await.unwrap().unwrap();
    let woken = "SELECT COUNT(*) FROM tasks WHERE id = 'c' AND waits_for IS NULL";
    let woken: i64 = sqlx::query_scalar(woken).fetch_one(&pool).await.unwrap();
    assert_eq!(woken, 1, "nobody was woken for the lock that has ended");
}
