//! What the tests of the ledger share: stores of their own, a clock that is set by hand,
//! and short words for the steps of a task.
#![allow(dead_code)] // every test binary uses its part

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use runner_ledger::{
    CallOutcome, ClaimRequest, ClaimedTask, Ledger, LedgerCall, LedgerClock, LedgerError,
    LedgerOptions, Store,
};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{Claim, JudgeEnding, NewTask, WorkEnding};
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BasePosition, LeasePurpose, Request, TaskId, Timestamp};
use runner_testkit::TestPostgres;
use tokio::sync::Notify;

/// A day in 2026.
pub(crate) const START: i64 = 1_780_000_000_000;

/// A clock that only the test moves. It remembers for when it was asked to ring.
#[derive(Default)]
pub(crate) struct ManualClock {
    now: AtomicI64,
    moved: Notify,
    pub(crate) armed: Mutex<Vec<Timestamp>>,
}

impl ManualClock {
    pub(crate) fn new() -> Arc<ManualClock> {
        let clock = ManualClock::default();
        clock.now.store(START, Ordering::SeqCst);
        Arc::new(clock)
    }

    pub(crate) fn advance_millis(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    pub(crate) fn advance_secs(&self, secs: i64) {
        self.advance_millis(secs * 1000);
    }
}

impl LedgerClock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.armed.lock().unwrap().push(at);
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                if self.now() >= at {
                    return;
                }
                moved.await;
            }
        })
    }
}

/// A store of a test's own.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) _folder: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) fn sqlite() -> World {
        let folder = tempfile::tempdir().unwrap();
        World {
            store: Store::Sqlite(folder.path().join("ledger.db")),
            clock: ManualClock::new(),
            _folder: Some(folder),
        }
    }

    pub(crate) fn postgres() -> World {
        World {
            store: Store::Postgres(server().url(&new_database())),
            clock: ManualClock::new(),
            _folder: None,
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.store, Store::Postgres(_))
    }

    pub(crate) async fn open(&self) -> Ledger {
        self.open_with(4).await
    }

    pub(crate) async fn open_with(&self, connections: u32) -> Ledger {
        Ledger::open(&self.store, self.options(connections))
            .await
            .unwrap()
    }

    pub(crate) fn options(&self, connections: u32) -> LedgerOptions {
        LedgerOptions {
            clock: self.clock.clone(),
            server_clock: false,
            connections,
            ..LedgerOptions::default()
        }
    }

    /// Runs statements behind the ledger's back.
    pub(crate) async fn raw(&self, sql: &'static str) -> Result<u64, sqlx::Error> {
        match &self.store {
            Store::Memory => unreachable!("nobody else reaches a store in memory"),
            Store::Sqlite(path) => {
                let pool = sqlx::SqlitePool::connect(path.to_str().unwrap()).await?;
                let done = sqlx::raw_sql(sql).execute(&pool).await?;
                pool.close().await;
                Ok(done.rows_affected())
            }
            Store::Postgres(url) => {
                let pool = sqlx::PgPool::connect(url).await?;
                let done = sqlx::raw_sql(sql).execute(&pool).await?;
                pool.close().await;
                Ok(done.rows_affected())
            }
        }
    }
}

/// The server of this test binary.
pub(crate) fn server() -> &'static TestPostgres {
    static SERVER: OnceLock<TestPostgres> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = TestPostgres::start(false);
        server.create_database("template", None);
        let url = server.url("template");
        // A runtime of its own, on a thread of its own: the caller may be inside one.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let ledger = Ledger::open(&Store::Postgres(url), LedgerOptions::default())
                    .await
                    .unwrap();
                ledger.close().await.unwrap();
            });
        })
        .join()
        .unwrap();
        server
    })
}

pub(crate) fn new_database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("t{}", NEXT.fetch_add(1, Ordering::SeqCst));
    server().create_database(&name, Some("template"));
    name
}

/// Runs a test body on a runtime with a few threads.
pub(crate) fn block_on<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(body)
}

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

pub(crate) fn resource(text: &str) -> Resource {
    Resource::parse(text).unwrap()
}

pub(crate) fn new_task(name: &str, scope: &str) -> NewTask {
    NewTask {
        title: format!("task {name}"),
        ..NewTask::new(id(name), resource(scope))
    }
}

/// A task that a worker ends without a judge.
pub(crate) fn simple(name: &str, scope: &str) -> NewTask {
    NewTask {
        expects_change: false,
        ..new_task(name, scope)
    }
}

pub(crate) fn create(new: NewTask) -> LedgerCall {
    LedgerCall::new(new.id.clone(), "planner", Request::Create(new))
}

pub(crate) async fn made(ledger: &Ledger, new: NewTask) -> CallOutcome {
    ledger.call(&create(new)).await.unwrap()
}

pub(crate) async fn work(ledger: &Ledger, owner: &str, key: &str) -> Option<ClaimedTask> {
    let claim_request = ClaimRequest::work(owner, "worker", key);
    ledger.claim_next(&claim_request).await.unwrap()
}

pub(crate) async fn claim(
    ledger: &Ledger,
    task: &str,
    owner: &str,
    purpose: LeasePurpose,
) -> Result<CallOutcome, LedgerError> {
    let request = Request::Claim(Claim {
        owner: owner.to_owned(),
        purpose,
        key: format!("{owner}-{task}-{purpose}"),
        base: (purpose == LeasePurpose::Merge).then(|| "main".to_owned()),
    });
    ledger
        .call(&LedgerCall::new(id(task), owner, request))
        .await
}

pub(crate) fn packet(task: &str, run_id: &str) -> ResultPacket {
    let text = serde_json::json!({
        "schema_version": "1.0.0", "run_id": run_id, "task_id": task, "status": "done",
        "changes": [], "worklog_path": "worklog.md", "notes_for_orchestrator": [],
        "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "exit 0"}],
    });
    ResultPacket::parse(text.to_string().as_bytes()).unwrap()
}

pub(crate) fn success(task: &str, run_id: &str) -> WorkEnding {
    WorkEnding::Success {
        result: Some("c0ffee".to_owned()),
        packet: packet(task, run_id),
    }
}

pub(crate) fn finish(claimed: &ClaimedTask, owner: &str, ending: WorkEnding) -> LedgerCall {
    let request = Request::Finish {
        token: claimed.token,
        run_id: claimed.run_id.clone(),
        ending,
    };
    LedgerCall::new(claimed.task.id.clone(), owner, request)
}

pub(crate) fn succeed(claimed: &ClaimedTask, owner: &str) -> LedgerCall {
    let ending = success(claimed.task.id.as_str(), &claimed.run_id);
    finish(claimed, owner, ending)
}

pub(crate) fn heartbeat(claimed: &ClaimedTask, owner: &str) -> LedgerCall {
    let request = Request::Heartbeat {
        token: claimed.token,
    };
    LedgerCall::new(claimed.task.id.clone(), owner, request)
}

/// Judges, merges and ends a task that awaits its judge.
pub(crate) async fn judge_and_merge(ledger: &Ledger, task: &str, run_id: &str) {
    let judged = claim(ledger, task, "judge", LeasePurpose::Judge)
        .await
        .unwrap();
    let ending = JudgeEnding::Approve {
        packet: packet(task, run_id),
    };
    let token = judged.task.token;
    let approve = LedgerCall::new(id(task), "judge", Request::Judge { token, ending });
    ledger.call(&approve).await.unwrap();
    let merged = claim(ledger, task, "judge", LeasePurpose::Merge)
        .await
        .unwrap();
    let token = merged.task.token;
    let intent = Intent {
        old_base: "0ld".to_owned(),
        merge_commit: format!("merge-{task}"),
    };
    let record = Request::RecordIntent {
        token,
        intent: intent.clone(),
        packet: packet(task, run_id),
    };
    ledger
        .call(&LedgerCall::new(id(task), "judge", record))
        .await
        .unwrap();
    let settle = Request::SettleIntent {
        token,
        intent,
        base: BasePosition::Merged,
    };
    ledger
        .call(&LedgerCall::new(id(task), "judge", settle))
        .await
        .unwrap();
}

pub(crate) async fn exported(ledger: &Ledger) -> String {
    let mut bytes = Vec::new();
    ledger.export(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
pub(crate) fn assert_clean(findings: &runner_ledger::CheckFindings) {
    assert!(findings.is_clean(), "{findings:#?}");
}
