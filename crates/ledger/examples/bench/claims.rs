//! What a claim costs with many tasks stored: one percent ready, the rest done, waiting for
//! a dependency or for one hot lock.
//!
//! The tasks are copies of four that went their way through the ledger, with their events,
//! runs and receipts; a check of the smallest store says that they fit together.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use runner_ledger::{
    ClaimRequest, ClaimedTask, Ledger, LedgerCall, LedgerClock, LedgerOptions, Store,
};
use runner_lifecycle::request::{NewTask, WorkEnding};
use runner_lifecycle::{Request, TaskId, Timestamp};
use runner_testkit::TestPostgres;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;

use crate::{Figure, new_task, open, packet, task};

/// How many claims are measured in each store.
const CLAIMS: usize = 200;

/// The clock stands still while the copied tasks are made, so that every time in their
/// rows and events is the same number.
struct Still(Timestamp);

impl LedgerClock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// The numbers, and which task each one copies.
macro_rules! numbered {
    () => {
        "WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL \
         SELECT i + 1 FROM n WHERE i < $1), \
         c(i, id, of, at) AS (SELECT i, 'n' || CAST(i AS TEXT), \
         CASE WHEN i % 100 = 1 THEN 'copied-ready' WHEN i % 3 = 0 THEN 'copied-done' \
         WHEN i % 3 = 1 THEN 'copied-waiting' ELSE 'copied-hot' END, \
         CAST(CAST($2 AS BIGINT) + i AS TEXT) FROM n) "
    };
}

/// A text of the copied task with the copy's name and time.
macro_rules! own {
    ($column:literal) => {
        concat!(
            "replace(replace(",
            $column,
            ", c.of, c.id), CAST(CAST($2 AS BIGINT) AS TEXT), c.at)"
        )
    };
}

const FILL: [&str; 5] = [
    concat!(
        "INSERT INTO tasks (id, version, state, role, lane, queue, rank, created_at, \
         updated_at, lineage, awaits, scope, doc, unmet, waits_for, ready_since) ",
        numbered!(),
        "SELECT c.id, t.version, t.state, t.role, t.lane, t.queue, t.rank + c.i, \
         t.created_at + c.i, t.updated_at + c.i, c.id, t.awaits, ",
        own!("t.scope"),
        ", ",
        own!("t.doc"),
        ", t.unmet, t.waits_for, t.ready_since + c.i FROM c JOIN tasks t ON t.id = c.of"
    ),
    concat!(
        "INSERT INTO events (task_id, version, to_state, created_at, doc) ",
        numbered!(),
        "SELECT c.id, e.version, e.to_state, e.created_at + c.i, ",
        own!("e.doc"),
        " FROM c JOIN events e ON e.task_id = c.of"
    ),
    concat!(
        "INSERT INTO runs (id, task_id, number, status, doc) ",
        numbered!(),
        "SELECT ",
        own!("r.id"),
        ", c.id, r.number, r.status, ",
        own!("r.doc"),
        " FROM c JOIN runs r ON r.task_id = c.of"
    ),
    concat!(
        "INSERT INTO receipts (task_id, token, doc) ",
        numbered!(),
        "SELECT c.id, r.token, ",
        own!("r.doc"),
        " FROM c JOIN receipts r ON r.task_id = c.of"
    ),
    concat!(
        "INSERT INTO dependencies (task_id, dependency, met) ",
        numbered!(),
        "SELECT c.id, d.dependency, d.met FROM c JOIN dependencies d ON d.task_id = c.of"
    ),
];

/// Makes the tasks that are copied: in each state that the copies shall have.
async fn make_copied(store: &Store, at: Timestamp) {
    let options = LedgerOptions {
        clock: Arc::new(Still(at)),
        server_clock: false,
        ..LedgerOptions::default()
    };
    let ledger = Ledger::open(store, options).await.unwrap();
    let long = |name: &str, scope: &str| {
        let mut new = new_task(name, scope);
        new.timeout_seconds = 1_000_000;
        new
    };
    make(&ledger, long("holder", "hot")).await;
    claim(&ledger, "holder").await.unwrap();
    make(&ledger, long("copied-done", "src/copied-done")).await;
    let done = claim(&ledger, "copied-done").await.unwrap();
    let finish = Request::Finish {
        token: done.token,
        ending: WorkEnding::Success {
            result: None,
            packet: packet("copied-done", &done.run_id),
        },
        run_id: done.run_id,
    };
    let finish = LedgerCall::new(done.task.id, "w", finish);
    ledger.call(&finish).await.unwrap();
    make(&ledger, long("copied-hot", "hot")).await;
    assert!(claim(&ledger, "copied-hot").await.is_none());
    let mut waiting = long("copied-waiting", "src/copied-waiting");
    waiting.dependencies = vec![TaskId::parse("holder").unwrap()];
    make(&ledger, waiting).await;
    make(&ledger, long("copied-ready", "src/copied-ready")).await;
    ledger.close().await.unwrap();
}

async fn make(ledger: &Ledger, new: NewTask) {
    let call = LedgerCall::new(new.id.clone(), "bench", Request::Create(new));
    ledger.call(&call).await.unwrap();
}

async fn claim(ledger: &Ledger, key: &str) -> Option<ClaimedTask> {
    let claim_request = ClaimRequest::work("w", "worker", key);
    ledger.claim_next(&claim_request).await.unwrap()
}

/// Runs statements behind the ledger's back. What filling left to do is done before the
/// clock runs.
async fn fill(store: &Store, size: i64, at: Timestamp) {
    match store {
        Store::Postgres(url) => {
            let pool = PgPool::connect(url).await.unwrap();
            for sql in FILL {
                let filled = sqlx::query(sql).bind(size).bind(at.0).execute(&pool).await;
                filled.unwrap();
            }
            for sql in ["VACUUM ANALYZE", "CHECKPOINT"] {
                sqlx::raw_sql(sql).execute(&pool).await.unwrap();
            }
            pool.close().await;
        }
        Store::Sqlite(path) => {
            let pool = SqlitePool::connect(path.to_str().unwrap()).await.unwrap();
            for sql in FILL {
                let filled = sqlx::query(sql).bind(size).bind(at.0).execute(&pool).await;
                filled.unwrap();
            }
            for sql in ["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"] {
                sqlx::raw_sql(sql).execute(&pool).await.unwrap();
            }
            pool.close().await;
        }
        Store::Memory => unreachable!("what is measured is on a disk"),
    }
}

/// The cost of a claim in stores of each size, on both engines.
pub(crate) async fn costs(server: &TestPostgres, sizes: &[u64]) -> Vec<Figure> {
    let folder = tempfile::tempdir().unwrap();
    let mut figures = Vec::new();
    let on_postgres = |size: &u64| {
        let database = format!("claims{size}");
        server.create_database(&database, None);
        Store::Postgres(server.url(&database))
    };
    let stores: Vec<Store> = sizes.iter().map(on_postgres).collect();
    figures.extend(compare("PostgreSQL", sizes, &stores).await);
    let on_sqlite = |size: &u64| Store::Sqlite(folder.path().join(format!("{size}.db")));
    let stores: Vec<Store> = sizes.iter().map(on_sqlite).collect();
    figures.extend(compare("SQLite", sizes, &stores).await);
    figures
}

/// Claims in turn from all stores, so that whatever else the machine does meets each of
/// them alike.
async fn compare(engine: &str, sizes: &[u64], stores: &[Store]) -> Vec<Figure> {
    let mut ledgers = Vec::new();
    for (size, store) in sizes.iter().zip(stores) {
        // Two hours ago: whoever waits has waited long enough to keep its scope free.
        let at = Timestamp(runner_ledger::SystemClock.now().0 - 2 * 3_600_000);
        make_copied(store, at).await;
        fill(store, i64::try_from(*size).unwrap(), at).await;
        let ledger = open(store, 2).await;
        if *size <= 1000 {
            let findings = ledger.check().await.unwrap();
            assert!(findings.is_clean(), "{findings:#?}");
        }
        ledgers.push(ledger);
    }
    let mut millis = vec![Vec::new(); ledgers.len()];
    for at in 0..CLAIMS {
        for (ledger, millis) in ledgers.iter().zip(&mut millis) {
            // As many ready ones as before.
            let name = format!("next{at}");
            let next = task(&name, &format!("src/{name}"));
            ledger.call(&next).await.unwrap();
            let begun = Instant::now();
            let claimed = claim(ledger, &name).await.unwrap();
            millis.push(begun.elapsed().as_secs_f64() * 1000.0);
            let reason = "measured".to_owned();
            let cancel = LedgerCall::new(claimed.task.id, "bench", Request::Cancel { reason });
            ledger.call(&cancel).await.unwrap();
        }
    }
    let mut figures: Vec<Figure> = Vec::new();
    for ((size, mut millis), ledger) in sizes.iter().zip(millis).zip(ledgers) {
        ledger.close().await.unwrap();
        millis.sort_by(f64::total_cmp);
        let value = millis[millis.len() / 2];
        let first = figures.first().map_or(value, |first| first.value);
        figures.push(Figure {
            name: format!("claim, ms, {engine}, {size} tasks stored"),
            value,
            floor: None,
            aim: "<= 1.5 times the smallest",
            met: value <= 1.5 * first,
        });
    }
    figures
}
