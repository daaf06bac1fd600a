//! A ledger with something of everything in it, and the fleet's API over it.

#![allow(dead_code)] // Each user takes its part.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use runner_core::config::FleetConfig;
use runner_fleet::rules::host::{HostSnapshot, SnapshotSource};
use runner_ledger::{
    CallOutcome, ClaimedTask, Ledger, LedgerCall, LedgerClock, LedgerOptions, NewFleetAgent,
    RunSpending,
};
use runner_ledger::{ClaimRequest, SpendingTotals, Store};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{Claim, JudgeEnding, NewTask, WorkEnding};
use runner_lifecycle::{FailureCategory, LeasePurpose, Request, TaskId, Timestamp};
use runner_server::fleet::{FleetFacts, FleetOptions, FleetState, PreflightFacts};

/// A day in 2026.
pub(crate) const START: i64 = 1_780_000_000_000;
/// What writes bear.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A clock that only the test moves.
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn new() -> Arc<ManualClock> {
        Arc::new(ManualClock(AtomicI64::new(START)))
    }

    pub(crate) fn advance_secs(&self, secs: i64) {
        self.0.fetch_add(secs * 1000, Ordering::SeqCst);
    }
}

impl LedgerClock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// A fleet that says what it was told.
pub(crate) struct Told {
    pub(crate) outside: Mutex<PreflightFacts>,
    pub(crate) host: Mutex<Option<HostSnapshot>>,
}

impl Told {
    pub(crate) fn new() -> Arc<Told> {
        let text = "Linux 6.1.0 x86_64 GNU/Linux";
        Arc::new(Told {
            outside: Mutex::default(),
            host: Mutex::new(HostSnapshot::parse(
                SnapshotSource::Uname,
                text,
                Timestamp(START),
            )),
        })
    }
}

impl FleetFacts for Told {
    fn outside(&self) -> Pin<Box<dyn Future<Output = PreflightFacts> + Send + '_>> {
        let outside = self.outside.lock().unwrap().clone();
        Box::pin(std::future::ready(outside))
    }

    fn host(&self) -> Option<HostSnapshot> {
        self.host.lock().unwrap().clone()
    }
}

pub(crate) async fn open(folder: &Path, clock: Arc<dyn LedgerClock>) -> Ledger {
    let options = LedgerOptions {
        clock,
        ..LedgerOptions::default()
    };
    Ledger::open(&Store::Sqlite(folder.join("ledger.db")), options)
        .await
        .unwrap()
}

/// The name of the server, for which links are made.
pub(crate) const INSTANCE: &str = "here";

/// As where no child reaches the API.
pub(crate) fn options(beyond_loopback: bool) -> FleetOptions {
    FleetOptions {
        token: TOKEN.to_owned(),
        beyond_loopback,
        open_reads: true,
        instance: INSTANCE.to_owned(),
        version: "0.0.0".to_owned(),
        config: FleetConfig {
            review: true,
            ..FleetConfig::default()
        },
    }
}

pub(crate) fn state(ledger: &Ledger, told: &Arc<Told>, beyond_loopback: bool) -> FleetState {
    FleetState::new(ledger.clone(), told.clone(), options(beyond_loopback))
}

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

pub(crate) fn new_task(name: &str) -> NewTask {
    NewTask {
        title: format!("Task {name}"),
        goal: format!("That {name} is so."),
        ..NewTask::new(id(name), Resource::parse(&format!("src/{name}")).unwrap())
    }
}

pub(crate) async fn ask(ledger: &Ledger, task: &str, actor: &str, request: Request) -> CallOutcome {
    ledger
        .call(&LedgerCall::new(id(task), actor, request))
        .await
        .unwrap()
}

pub(crate) async fn make(ledger: &Ledger, new: NewTask) {
    let name = new.id.to_string();
    ask(ledger, &name, "planner", Request::Create(new)).await;
}

/// Claims the first task that can start, which must be that one.
pub(crate) async fn work(ledger: &Ledger, task: &str, owner: &str) -> ClaimedTask {
    let claim_request = ClaimRequest::work(owner, "worker", &format!("{owner}-{task}"));
    let claimed = ledger.claim_next(&claim_request).await.unwrap().unwrap();
    assert_eq!(claimed.task.id.as_str(), task);
    claimed
}

pub(crate) fn packet(task: &str, run_id: &str, note: &str) -> ResultPacket {
    let text = serde_json::json!({
        "schema_version": "1.0.0", "run_id": run_id, "task_id": task, "status": "done",
        "changes": [], "worklog_path": "worklog.md", "notes_for_orchestrator": [note],
        "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "exit 0"}],
    });
    ResultPacket::parse(text.to_string().as_bytes()).unwrap()
}

pub(crate) async fn finish(
    ledger: &Ledger,
    claimed: &ClaimedTask,
    owner: &str,
    ending: WorkEnding,
) {
    let request = Request::Finish {
        token: claimed.token,
        run_id: claimed.run_id.clone(),
        ending,
    };
    ask(ledger, claimed.task.id.as_str(), owner, request).await;
}

pub(crate) fn failed(category: FailureCategory) -> WorkEnding {
    WorkEnding::Failed {
        category,
        signature: Some("red".to_owned()),
        note: "the guard is red".to_owned(),
    }
}

pub(crate) async fn succeed(ledger: &Ledger, claimed: &ClaimedTask, owner: &str) {
    let task = claimed.task.id.as_str();
    let ending = WorkEnding::Success {
        result: Some("c0ffee".to_owned()),
        packet: packet(task, &claimed.run_id, "did it"),
    };
    finish(ledger, claimed, owner, ending).await;
}

/// One task for each place where one can stand: `approved` and `judged` wait for their
/// merge and verdict, `canceled` is, `cooling` waits, `lost` expired once, `parked` has no
/// role, `running` runs, `todo-1` could start, `todo-2` depends on it.
pub(crate) async fn seed(ledger: &Ledger, advance_secs: impl Fn(i64)) {
    for name in ["approved", "judged", "cooling", "lost"] {
        make(ledger, new_task(name)).await;
        advance_secs(1);
    }
    let approved = work(ledger, "approved", "w1").await;
    let judged = work(ledger, "judged", "w1").await;
    let cooling = work(ledger, "cooling", "w1").await;
    work(ledger, "lost", "w1").await;
    succeed(ledger, &approved, "w1").await;
    succeed(ledger, &judged, "w1").await;
    finish(ledger, &cooling, "w1", failed(FailureCategory::Test)).await;
    let spent = RunSpending {
        run_id: cooling.run_id.clone(),
        task_id: cooling.task.id.clone(),
        agent: "w1".to_owned(),
        account: "account".to_owned(),
        spending: SpendingTotals {
            input_tokens: 1200,
            output_tokens: 34,
            cost_micros: 1_250_000,
        },
    };
    ledger.record_spending(&spent).await.unwrap();
    for task in ["approved", "judged"] {
        let claim = Request::Claim(Claim {
            owner: "j1".to_owned(),
            purpose: LeasePurpose::Judge,
            key: format!("j1-{task}"),
            base: None,
        });
        let outcome = ask(ledger, task, "j1", claim).await;
        if task == "approved" {
            let verdict = Request::Judge {
                token: outcome.task.token,
                ending: JudgeEnding::Approve {
                    packet: packet(task, &approved.run_id, "fine"),
                },
            };
            ask(ledger, task, "j1", verdict).await;
        }
    }
    advance_secs(100);
    // Nothing was heard of two of them.
    for task in ["lost", "judged"] {
        let expire = Request::Expire { not_before: None };
        ask(ledger, task, "keeper", expire).await;
    }
    let lost = Request::Cancel {
        reason: "nobody wants it any more".to_owned(),
    };
    ask(ledger, "lost", "a person", lost).await;
    for name in ["canceled", "running", "todo-1", "todo-2", "parked"] {
        let mut new = new_task(name);
        if name == "todo-2" {
            new.dependencies = vec![id("todo-1")];
        }
        if name == "parked" {
            new.role = String::new();
        }
        make(ledger, new).await;
        advance_secs(1);
        if name == "canceled" {
            let reason = "no".to_owned();
            ask(ledger, name, "a person", Request::Cancel { reason }).await;
        }
        if name == "running" {
            work(ledger, name, "w2").await;
        }
    }
    for (name, role) in [("w1", "worker"), ("w2", "worker"), ("j1", "judge")] {
        let agent = NewFleetAgent {
            name: name.to_owned(),
            role: role.to_owned(),
            host: "here".to_owned(),
            account: "account".to_owned(),
            interval_seconds: 60,
        };
        ledger.register(&agent).await.unwrap();
    }
}
