//! A fleet with ten workers over some workspaces, and the tasks that it is given.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runner_core::config::FleetConfig;
use runner_fleet::backlog::NoBacklog;
use runner_fleet::names::AgentNames;
use runner_fleet::roles::red_base::RedBaseRule;
use runner_fleet::roles::{FleetSettings, NoNotes};
use runner_fleet::rules::draft::TaskDefaults;
use runner_fleet::rules::policy::PathRules;
use runner_fleet::rules::role::WORKER;
use runner_fleet::up::{Fleet, FleetContext, FleetRole};
use runner_fleet::workspaces::Workspaces;
use runner_ledger::{Ledger, LedgerCall, LedgerOptions, Store, SystemClock};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::{Request, TaskId, TaskState};

/// How many work at the same time.
pub(crate) const WORKERS: u32 = 10;
/// One merges while the other one judges.
pub(crate) const JUDGES: u32 = 2;
/// How often somebody looks whether all are done.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) async fn open(folder: &Path) -> Ledger {
    let store = Store::Sqlite(folder.join("ledger.db"));
    Ledger::open(&store, LedgerOptions::default())
        .await
        .unwrap()
}

/// Makes tasks whose scopes are apart.
pub(crate) async fn create(ledger: &Ledger, ids: impl Iterator<Item = String>) {
    let defaults = TaskDefaults::from(&FleetConfig::default());
    let calls: Vec<LedgerCall> = ids
        .map(|name| {
            let id = TaskId::parse(&name).unwrap();
            let mut new = defaults.task(id.clone(), Some(&WORKER));
            new.lock_scope = vec![Resource::parse(&name).unwrap()];
            LedgerCall::new(id, "bench", Request::Create(new))
        })
        .collect();
    ledger.create_all(&calls).await.unwrap();
}

/// Lets a whole fleet begin.
pub(crate) fn begin(ledger: &Ledger, workspaces: Arc<dyn Workspaces>, folder: &Path) -> Fleet {
    let config = FleetConfig::default();
    let mut fleet = Fleet::new(FleetContext {
        ledger: ledger.clone(),
        workspaces,
        clock: Arc::new(SystemClock),
        settings: FleetSettings {
            base: "main".to_owned(),
            objective: "a figure".to_owned(),
            paths: PathRules::new(&[], &[], 0, 0).unwrap(),
            review: false,
            models: Vec::new(),
            guard: vec!["true".to_owned()],
            host: "bench".to_owned(),
            defaults: TaskDefaults::from(&config),
            replan: false,
            staffed: vec!["worker".to_owned()],
            on_red_base: RedBaseRule::Fix,
        },
        notes: Arc::new(NoNotes),
        backlog: Arc::new(NoBacklog),
        account: "command".to_owned(),
    });
    let names = AgentNames::of_project(folder, None);
    for (fleet_role, count) in [
        (FleetRole::Watchdog, 1),
        (FleetRole::Dispatcher, 1),
        (FleetRole::Cycle, 1),
        (FleetRole::Worker, WORKERS),
        (FleetRole::Judge, JUDGES),
    ] {
        for _ in 0..count {
            fleet.begin(fleet_role, names.next(fleet_role.word()).unwrap());
        }
    }
    fleet
}

/// Waits until so many tasks are done.
pub(crate) async fn all_done(ledger: &Ledger, tasks: u64) {
    let begun = Instant::now();
    loop {
        let counts = ledger.counts().await.unwrap();
        let done = counts.iter().filter(|count| count.state == TaskState::Done);
        if done.map(|count| count.tasks).sum::<u64>() >= tasks {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(600),
            "stuck: {counts:?}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// Tasks a second through a whole fleet, all of them there from the beginning.
pub(crate) async fn rate(
    ledger: &Ledger,
    workspaces: Arc<dyn Workspaces>,
    folder: &Path,
    tasks: u32,
) -> f64 {
    create(ledger, (0..tasks).map(|n| format!("t{n}"))).await;
    let begun = Instant::now();
    let mut fleet = begin(ledger, workspaces, folder);
    all_done(ledger, u64::from(tasks)).await;
    let rate = f64::from(tasks) / begun.elapsed().as_secs_f64();
    assert!(fleet.end().await.is_empty(), "everybody ends well");
    fleet.clear_up().await.unwrap();
    rate
}
