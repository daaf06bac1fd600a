//! Which task starts next, and which never start together.

use std::sync::{Arc, Mutex};

use runner_ledger::{Ledger, LedgerCall, Store};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::WorkEnding;
use runner_lifecycle::{RefusalCode, Request, TaskPriority, TaskState};
use sqlx::Row as _;

use crate::support::*;

/// The plan of a query, in the words of the engine.
async fn plan(world: &World, sql: &'static str) -> String {
    match &world.store {
        Store::Memory => unreachable!("nobody else reaches a store in memory"),
        Store::Sqlite(path) => {
            let pool = sqlx::SqlitePool::connect(path.to_str().unwrap())
                .await
                .unwrap();
            let text: &'static str = Box::leak(format!("EXPLAIN QUERY PLAN {sql}").into());
            let rows = sqlx::query(text).fetch_all(&pool).await.unwrap();
            let lines: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
            lines.join("\n")
        }
        Store::Postgres(url) => {
            let pool = sqlx::PgPool::connect(url).await.unwrap();
            let text: &'static str = Box::leak(format!("EXPLAIN {sql}").into());
            let rows = sqlx::query(text).fetch_all(&pool).await.unwrap();
            let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            lines.join("\n")
        }
    }
}

pub(crate) async fn claims_use_the_index(world: World) {
    let ledger = world.open().await;
    let mut new = Vec::new();
    for at in 0..300 {
        let mut one = new_task(&format!("t{at}"), &format!("src/{at}"));
        if at >= 50 {
            one.dependencies = vec![id("t0")];
        }
        new.push(create(one));
    }
    ledger.create_all(&new).await.unwrap();
    world.raw("ANALYZE").await.unwrap();
    let locked = if world.is_postgres() {
        " FOR UPDATE SKIP LOCKED"
    } else {
        ""
    };
    let ready = "SELECT id FROM tasks WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NULL \
         AND role = 'worker' ";
    for (query, index) in [
        (
            format!("{ready} ORDER BY rank, created_at, id LIMIT 1{locked}"),
            "tasks_ready",
        ),
        (
            format!("{ready} AND lane = 'feature' ORDER BY rank, created_at, id LIMIT 1{locked}"),
            "tasks_ready",
        ),
        (
            format!(
                "SELECT id FROM tasks WHERE awaits = 'judge' AND (retry_at IS NULL \
                 OR retry_at <= 5) ORDER BY rank, created_at, id LIMIT 1{locked}"
            ),
            "tasks_judge",
        ),
        (
            "SELECT id FROM tasks WHERE waits_for = 'lock:src' AND queue = 'worker/feature' \
             ORDER BY rank, created_at, id LIMIT 1"
                .to_owned(),
            "tasks_waits",
        ),
    ] {
        let plan = plan(&world, Box::leak(query.clone().into_boxed_str())).await;
        assert!(plan.contains(index), "{query}\n{plan}");
        assert!(
            !plan.contains("Seq Scan") && !plan.contains("SCAN tasks\n"),
            "{plan}"
        );
        assert!(
            !plan.contains("Sort") && !plan.contains("TEMP B-TREE"),
            "{plan}"
        );
    }
}

pub(crate) async fn the_order_is_that_of_the_rules(world: World) {
    let ledger = world.open().await;
    for (name, priority) in [
        ("low", TaskPriority::Low),
        ("first", TaskPriority::Normal),
        ("second", TaskPriority::Normal),
        ("critical", TaskPriority::Critical),
    ] {
        let mut new = new_task(name, &format!("src/{name}"));
        new.priority = priority;
        made(&ledger, new).await;
        world.clock.advance_secs(1);
    }
    let mut order = Vec::new();
    while let Some(claimed) = work(&ledger, "w", &format!("k{}", order.len())).await {
        order.push(claimed.task.id.to_string());
    }
    assert_eq!(order, ["critical", "first", "second", "low"]);
    let mut other = new_task("docs", "docs");
    "docser".clone_into(&mut other.role);
    made(&ledger, other).await;
    assert!(work(&ledger, "w", "another-role").await.is_none());
}

pub(crate) async fn dependencies_open_the_way(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("a", "src")).await;
    let mut second = simple("b", "docs");
    second.dependencies = vec![id("a")];
    made(&ledger, second).await;
    let a = work(&ledger, "w", "k1").await.unwrap();
    assert_eq!(a.task.id, id("a"));
    assert!(work(&ledger, "w", "k2").await.is_none());
    let refused = claim(&ledger, "b", "w", runner_lifecycle::LeasePurpose::Work)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(RefusalCode::DependencyNotMet));
    let why = ledger.why(&id("b")).await.unwrap().unwrap();
    assert_eq!(why.word(), "dependency");
    ledger.call(&succeed(&a, "w")).await.unwrap();
    assert_eq!(ledger.why(&id("b")).await.unwrap(), None);
    let b = work(&ledger, "w", "k3").await.unwrap();
    assert_eq!(b.task.id, id("b"));
    // One that is made when everything is done already is ready at once.
    let mut third = simple("c", "tests");
    third.dependencies = vec![id("a")];
    made(&ledger, third).await;
    assert!(work(&ledger, "w", "k4").await.is_some());
}

pub(crate) async fn a_dependency_is_met_by_its_successor(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("a", "src")).await;
    let mut dependent = simple("d", "docs");
    dependent.dependencies = vec![id("a")];
    made(&ledger, dependent).await;
    let reason = "no".to_owned();
    let cancel = LedgerCall::new(id("a"), "person", Request::Cancel { reason });
    ledger.call(&cancel).await.unwrap();
    let why = ledger.why(&id("d")).await.unwrap().unwrap();
    assert_eq!(why.word(), "dead_dependency");
    assert_eq!(ledger.dependents(&id("a")).await.unwrap(), [id("d")]);
    let successor = id("a2");
    let retry = LedgerCall::new(id("a"), "person", Request::Retry { successor });
    ledger.call(&retry).await.unwrap();
    assert_eq!(
        ledger.why(&id("d")).await.unwrap().unwrap().word(),
        "dependency"
    );
    let a2 = work(&ledger, "w", "k1").await.unwrap();
    assert_eq!(a2.task.id, id("a2"));
    ledger.call(&succeed(&a2, "w")).await.unwrap();
    let d = work(&ledger, "w", "k2").await.unwrap();
    assert_eq!(d.task.id, id("d"));
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn dependencies_that_end_at_the_same_time(world: World) {
    let ledger = world.open_with(10).await;
    let names: Vec<String> = (0..8).map(|at| format!("a{at}")).collect();
    for name in &names {
        made(&ledger, simple(name, &format!("src/{name}"))).await;
    }
    let mut last = simple("last", "docs");
    last.dependencies = names.iter().map(|name| id(name)).collect();
    made(&ledger, last).await;
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..8 {
        let ledger = ledger.clone();
        tasks.spawn(async move {
            let owner = format!("w{at}");
            let claimed = work(&ledger, &owner, "k").await.unwrap();
            // Made while its dependency ends: seen by one side or the other.
            let mut beside = simple(&format!("beside{at}"), &format!("tests/{at}"));
            beside.dependencies = vec![claimed.task.id.clone()];
            let (beside, done) = (create(beside), succeed(&claimed, &owner));
            let (one, other) = tokio::join!(ledger.call(&beside), ledger.call(&done));
            one.unwrap();
            other.unwrap();
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    for at in 0..9 {
        assert!(
            work(&ledger, "w", &format!("end{at}")).await.is_some(),
            "{at}"
        );
    }
    assert_clean(&ledger.check().await.unwrap());
}

/// What clients hold, as they see it themselves.
#[derive(Default)]
struct Held(Mutex<Vec<(String, Resource)>>);

impl Held {
    fn take(&self, owner: &str, scope: &[Resource]) {
        let mut held = self.0.lock().unwrap();
        for mine in scope {
            for (other, theirs) in held.iter() {
                assert!(
                    !mine.conflicts_with(theirs),
                    "{owner} {mine}, {other} {theirs}"
                );
            }
        }
        held.extend(scope.iter().map(|one| (owner.to_owned(), one.clone())));
    }

    fn give_back(&self, owner: &str) {
        self.0.lock().unwrap().retain(|(other, _)| other != owner);
    }
}

pub(crate) async fn overlapping_scopes_are_never_both_held(world: World) {
    let scopes = [
        "src", "src/x", "src/x/y", "src/z", "docs", ".", "srcs", "src/x",
    ];
    let ledger = world.open_with(13).await;
    for round in 0..6 {
        for (at, scope) in scopes.iter().enumerate() {
            made(&ledger, simple(&format!("t{round}-{at}"), scope)).await;
        }
    }
    let held = Arc::new(Held::default());
    let mut clients = tokio::task::JoinSet::new();
    for at in 0..12 {
        let (ledger, held) = (ledger.clone(), Arc::clone(&held));
        clients.spawn(async move {
            let owner = format!("w{at}");
            let (mut done, mut empty) = (0, 0);
            while empty < 400 {
                let key = format!("{owner}-{done}-{empty}");
                let Some(claimed) = work(&ledger, &owner, &key).await else {
                    empty += 1;
                    tokio::task::yield_now().await;
                    continue;
                };
                held.take(&owner, &claimed.task.work_scope());
                tokio::task::yield_now().await;
                held.give_back(&owner);
                ledger.call(&succeed(&claimed, &owner)).await.unwrap();
                done += 1;
                empty = 0;
                if is_over(&ledger).await {
                    break;
                }
            }
            done
        });
    }
    let mut done = 0;
    while let Some(ended) = clients.join_next().await {
        done += ended.unwrap();
    }
    assert_eq!(done, scopes.len() * 6, "every task ended, once");
    assert_clean(&ledger.check().await.unwrap());
}

async fn is_over(ledger: &Ledger) -> bool {
    let filter = runner_ledger::TaskFilter {
        state: Some(TaskState::Todo),
        limit: 1,
        ..runner_ledger::TaskFilter::default()
    };
    ledger.tasks(&filter).await.unwrap().is_empty()
}

pub(crate) async fn a_hot_lock_is_looked_at_once_for_each_release(world: World) {
    let ledger = world.open().await;
    for at in 0..40 {
        made(&ledger, simple(&format!("hot{at:02}"), "src")).await;
        world.clock.advance_millis(10);
    }
    let mut claimed = work(&ledger, "w", "k0").await.unwrap();
    assert!(work(&ledger, "w2", "none").await.is_none());
    // Everybody else was put aside once. From now on a claim looks at one task, however
    // many wait.
    let mut most = 0;
    for at in 1..40 {
        ledger.call(&succeed(&claimed, "w")).await.unwrap();
        let before = ledger.statements();
        claimed = work(&ledger, "w", &format!("k{at}")).await.unwrap();
        most = most.max(ledger.statements() - before);
        assert_eq!(claimed.task.id.as_str(), format!("hot{at:02}"));
        assert!(work(&ledger, "w2", &format!("none{at}")).await.is_none());
    }
    assert!(most <= 40, "{most} statements for a claim");
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn a_released_scope_lets_everybody_start_who_fits(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("all", "src")).await;
    world.clock.advance_secs(1);
    for at in 0..6 {
        made(&ledger, simple(&format!("part{at}"), &format!("src/{at}"))).await;
        made(&ledger, simple(&format!("same{at}"), "src/same")).await;
    }
    let all = work(&ledger, "w", "k").await.unwrap();
    assert!(work(&ledger, "w", "none").await.is_none());
    ledger.call(&succeed(&all, "w")).await.unwrap();
    let mut started = 0;
    while work(&ledger, "w", &format!("k{started}")).await.is_some() {
        started += 1;
    }
    assert_eq!(
        started, 7,
        "six parts, and one of those with the same scope"
    );
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn an_unmerged_result_keeps_its_scope(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    world.clock.advance_secs(1);
    made(&ledger, new_task("b", "src/x")).await;
    let a = work(&ledger, "w", "k1").await.unwrap();
    ledger.call(&succeed(&a, "w")).await.unwrap();
    assert!(work(&ledger, "w", "k2").await.is_none());
    let why = ledger.why(&id("b")).await.unwrap().unwrap();
    assert_eq!(why.word(), "unmerged_result");
    judge_and_merge(&ledger, "a", "a-1").await;
    let b = work(&ledger, "w", "k3").await.unwrap();
    assert_eq!(b.task.id, id("b"));
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn the_first_in_order_reserves_its_scope(world: World) {
    let ledger = world.open().await;
    let long = |name: &str, scope: &str| {
        let mut new = simple(name, scope);
        new.timeout_seconds = 100_000;
        new
    };
    made(&ledger, long("part", "src/a")).await;
    let part = work(&ledger, "w", "k1").await.unwrap();
    world.clock.advance_secs(1);
    made(&ledger, long("whole", "src")).await;
    assert!(work(&ledger, "w", "k2").await.is_none());
    world.clock.advance_secs(1);
    made(&ledger, long("other", "src/b")).await;
    world.clock.advance_secs(15 * 60);
    assert!(work(&ledger, "w", "k3").await.is_none());
    assert_eq!(
        ledger.why(&id("other")).await.unwrap().unwrap().word(),
        "reserved"
    );
    ledger.call(&succeed(&part, "w")).await.unwrap();
    let whole = work(&ledger, "w", "k4").await.unwrap();
    assert_eq!(whole.task.id, id("whole"));
    assert!(work(&ledger, "w", "k5").await.is_none());
    ledger.call(&succeed(&whole, "w")).await.unwrap();
    assert_eq!(work(&ledger, "w", "k6").await.unwrap().task.id, id("other"));
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn nothing_starts_while_the_fleet_is_paused(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("a", "src")).await;
    ledger.set_paused(true).await.unwrap();
    assert!(work(&ledger, "w", "k1").await.is_none());
    assert_eq!(
        ledger.why(&id("a")).await.unwrap().unwrap().word(),
        "fleet_paused"
    );
    ledger.set_paused(false).await.unwrap();
    let pause = |paused| LedgerCall::new(id("a"), "person", Request::Pause { paused });
    ledger.call(&pause(true)).await.unwrap();
    assert!(work(&ledger, "w", "k2").await.is_none());
    ledger.call(&pause(false)).await.unwrap();
    let a = work(&ledger, "w", "k3").await.unwrap();
    // What runs goes on.
    ledger.set_paused(true).await.unwrap();
    ledger.call(&heartbeat(&a, "w")).await.unwrap();
    ledger
        .call(&finish(&a, "w", WorkEnding::Lost))
        .await
        .unwrap();
    assert!(work(&ledger, "w", "k4").await.is_none());
}
