//! The watchdog: deadlines, notifications, and how quiet it is in between.

use std::time::Duration;

use runner_ledger::{LedgerCall, Watchdog};
use runner_lifecycle::request::WorkEnding;
use runner_lifecycle::{FailureCategory, Request, TaskState, Timestamp};

use crate::support::*;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn at(secs: i64) -> Timestamp {
    Timestamp(START + secs * 1000)
}

pub(crate) async fn the_armed_deadline_is_the_boundary(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let a = work(&ledger, "w", "k1").await.unwrap();
    let mut watchdog = Watchdog::new(ledger.clone(), "keeper").await.unwrap();
    // An owner that never says a word is noticed after one interval, else after the whole.
    assert_eq!(watchdog.look().await.unwrap().armed, at(15));
    world.clock.advance_secs(1);
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    assert_eq!(watchdog.look().await.unwrap().armed, at(91));
    // A heartbeat moves the boundary; the old one is looked at, and nothing ends.
    world.clock.advance_secs(19);
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    world.clock.advance_secs(71);
    let report = watchdog.look().await.unwrap();
    assert!(report.ended.is_empty());
    assert_eq!(report.armed, at(110));
    world.clock.advance_millis(18_999);
    assert!(
        watchdog.look().await.unwrap().ended.is_empty(),
        "a moment too soon"
    );
    world.clock.advance_millis(1);
    let report = watchdog.look().await.unwrap();
    assert_eq!(report.ended, [id("a")]);
    assert_eq!(
        report.armed,
        at(110 + 300),
        "nothing is due: the regular look"
    );
    let row = ledger.task(&id("a")).await.unwrap().unwrap();
    assert_eq!((row.state, row.counters.lost_work), (TaskState::Todo, 1));
    // The length of a run is the other clock.
    let mut new = new_task("b", "docs");
    new.timebox_seconds = 40;
    made(&ledger, new).await;
    claim(&ledger, "b", "w", runner_lifecycle::LeasePurpose::Work)
        .await
        .unwrap();
    world.clock.advance_secs(1);
    let token = 1;
    let alive = LedgerCall::new(id("b"), "w", Request::Heartbeat { token });
    ledger.call(&alive).await.unwrap();
    assert_eq!(watchdog.look().await.unwrap().armed, at(150));
    world.clock.advance_secs(39);
    assert_eq!(watchdog.look().await.unwrap().ended, [id("b")]);
    let row = ledger.task(&id("b")).await.unwrap().unwrap();
    assert_eq!(row.counters.failed(FailureCategory::Flaky), 1);
}

pub(crate) async fn a_cooldown_ends_at_its_time(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let a = work(&ledger, "w", "k1").await.unwrap();
    let ending = WorkEnding::Failed {
        category: FailureCategory::Env,
        signature: None,
        note: "no network".to_owned(),
    };
    let failed = ledger.call(&finish(&a, "w", ending)).await.unwrap();
    let retry_at = failed.task.retry_at().unwrap();
    let mut watchdog = Watchdog::new(ledger.clone(), "keeper").await.unwrap();
    assert_eq!(watchdog.look().await.unwrap().armed, retry_at);
    let left = retry_at.0 - START;
    world.clock.advance_millis(left - 1);
    assert!(watchdog.look().await.unwrap().resumed.is_empty());
    world.clock.advance_millis(1);
    assert_eq!(watchdog.look().await.unwrap().resumed, [id("a")]);
    assert!(work(&ledger, "w", "k2").await.is_some());
}

pub(crate) async fn a_watchdog_that_was_asleep_gives_grace(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    made(&ledger, new_task("b", "docs")).await;
    let a = work(&ledger, "w", "k1").await.unwrap();
    let b = work(&ledger, "w", "k2").await.unwrap();
    world.clock.advance_millis(1);
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    ledger.call(&heartbeat(&b, "w")).await.unwrap();
    world.clock.advance_millis(-1);
    let mut watchdog = Watchdog::new(ledger.clone(), "keeper").await.unwrap();
    watchdog.look().await.unwrap();
    // The lid was closed for an hour, far beyond the deadline of 90 s.
    world.clock.advance_secs(3000);
    let report = watchdog.look().await.unwrap();
    assert!(report.ended.is_empty(), "{report:?}");
    assert_eq!(report.armed, at(3015), "one interval of grace");
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    world.clock.advance_secs(15);
    assert_eq!(watchdog.look().await.unwrap().ended, [id("b")]);
    assert!(ledger.lease(&id("a")).await.unwrap().is_some());
}

pub(crate) async fn an_idle_watchdog_asks_nothing(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("a", "src")).await;
    let a = work(&ledger, "w", "k1").await.unwrap();
    ledger.call(&succeed(&a, "w")).await.unwrap();
    ledger.flush().await.unwrap();
    let mut watchdog = Watchdog::new(ledger.clone(), "keeper").await.unwrap();
    watchdog.look().await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let clock = world.clock.clone();
    let quiet = ledger.statements();
    let watching = tokio::spawn(async move {
        let mut stopped = stopped;
        let mut looks = 0;
        while watchdog
            .wait(async { drop((&mut stopped).await) })
            .await
            .unwrap()
        {
            watchdog.look().await.unwrap();
            looks += 1;
        }
        looks
    });
    until(|| !world.clock.armed.lock().unwrap().is_empty()).await;
    assert_eq!(*world.clock.armed.lock().unwrap(), [at(300)]);
    // A minute, second by second: nothing is asked.
    for _ in 0..60 {
        clock.advance_secs(1);
        tokio::task::yield_now().await;
    }
    assert_eq!(ledger.statements(), quiet);
    // After five minutes everybody looks once.
    clock.advance_secs(240);
    until(|| world.clock.armed.lock().unwrap().len() == 2).await;
    let asked = ledger.statements() - quiet;
    assert!((1..=12).contains(&asked), "{asked} statements for one look");
    stop.send(()).unwrap();
    assert_eq!(watching.await.unwrap(), 1);
}

async fn until(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "waited in vain");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn a_watchdog_hears_and_can_be_stopped(world: World) {
    let ledger = world.open().await;
    let mut watchdog = Watchdog::new(ledger.clone(), "keeper").await.unwrap();
    watchdog.look().await.unwrap();
    assert_eq!(watchdog.armed(), at(300));
    // Another handle, as another process has one.
    let other = world.open().await;
    made(&other, new_task("a", "src")).await;
    work(&other, "w", "k1").await.unwrap();
    let heard = tokio::time::timeout(LIMIT, watchdog.wait(std::future::pending()));
    assert!(heard.await.unwrap().unwrap());
    until_armed(&mut watchdog, at(15)).await;
    assert!(
        !watchdog.wait(std::future::ready(())).await.unwrap(),
        "canceled"
    );
}

/// Hints come one by one; the last one has it.
async fn until_armed(watchdog: &mut Watchdog, at: Timestamp) {
    while watchdog.look().await.unwrap().armed != at {
        let heard = tokio::time::timeout(LIMIT, watchdog.wait(std::future::pending()));
        assert!(heard.await.unwrap().unwrap());
    }
}

pub(crate) async fn other_processes_hear_of_a_change(world: World) {
    let ledger = world.open().await;
    let mut notifications = ledger.listen().await.unwrap();
    let other = world.open().await;
    for name in ["a", "b"] {
        made(&other, new_task(name, name)).await;
        tokio::time::timeout(LIMIT, notifications.next())
            .await
            .unwrap();
    }
    if let runner_ledger::Store::Sqlite(path) = &world.store {
        // The sidecar may be removed by whoever tidies up.
        std::fs::remove_file(format!("{}-hint", path.display())).unwrap();
        tokio::time::timeout(LIMIT, notifications.next())
            .await
            .unwrap();
        made(&other, new_task("c", "c")).await;
        tokio::time::timeout(LIMIT, notifications.next())
            .await
            .unwrap();
    }
}
