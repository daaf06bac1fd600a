//! `cargo xtask bench ledger`: the ledger against floors, on the same server in the same
//! run, with everything synced.
//!
//! The floor of one life is four bare commits on one table: insert, a claim with SKIP
//! LOCKED, two updates. The ledger does the same with events, locks, leases and receipts.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::time::{Duration, Instant};

use runner_ledger::{Ask, Ledger, Options, Store, Wanted};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{Ending, NewTask};
use runner_lifecycle::{Request, TaskId};
use runner_testkit::Postgres;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};

const SECS: u64 = 4;
/// How many tasks are stored while a claim is measured.
const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];

fn main() {
    let json = std::env::args().any(|word| word == "--json");
    let check = std::env::args().any(|word| word == "--check");
    let sizes: Vec<u64> = std::env::args()
        .find_map(|word| word.strip_prefix("--sizes=").map(str::to_owned))
        .map_or(SIZES.to_vec(), |list| {
            list.split(',').map(|size| size.parse().unwrap()).collect()
        });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let figures = runtime.block_on(measure(&sizes));
    let mut missed = 0;
    for figure in &figures {
        missed += u32::from(!figure.met);
        let mark = if figure.met { " " } else { "!" };
        if json {
            println!(
                "{}",
                serde_json::json!({"name": figure.name, "value": figure.value,
                    "floor": figure.floor, "aim": figure.aim, "met": figure.met})
            );
        } else {
            let floor = figure.floor.map_or(String::new(), |floor| {
                format!("  floor {floor:.0}, {:.2} of it", figure.value / floor)
            });
            println!(
                "{mark} {:<44} {:>9.2}{floor}  aim {}",
                figure.name, figure.value, figure.aim
            );
        }
    }
    if check && missed > 0 {
        std::process::exit(1);
    }
}

struct Figure {
    name: String,
    value: f64,
    floor: Option<f64>,
    aim: &'static str,
    met: bool,
}

async fn measure(sizes: &[u64]) -> Vec<Figure> {
    let server = Postgres::start(true);
    let mut figures = Vec::new();
    for connections in [1, 10, 50] {
        let database = format!("lives{connections}");
        server.create_database(&database, None);
        let url = server.url(&database);
        let floor = floor_on_postgres(&url, connections).await;
        let ledger = open(&Store::Postgres(url), connections).await;
        let value = lives(&ledger, connections).await;
        figures.push(rate(
            &format!("lives/s, PostgreSQL, {connections} connections"),
            value,
            floor,
        ));
        ledger.close().await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let floor = floor_on_sqlite(&folder.path().join("floor.db")).await;
    let ledger = open(&Store::Sqlite(folder.path().join("ledger.db")), 4).await;
    figures.push(rate("lives/s, SQLite", lives(&ledger, 1).await, floor));
    server.create_database("idle", None);
    let store = Store::Postgres(server.url("idle"));
    figures.extend(idle_latency(&store).await);
    figures.extend(claim_costs(&server, sizes).await);
    figures
}

fn rate(name: &str, value: f64, floor: f64) -> Figure {
    Figure {
        name: name.to_owned(),
        value,
        floor: Some(floor),
        aim: ">= 0.5 of the floor",
        met: value >= 0.5 * floor,
    }
}

async fn open(store: &Store, connections: u32) -> Ledger {
    let options = Options {
        connections,
        ..Options::default()
    };
    Ledger::open(store, options).await.unwrap()
}

fn task(name: &str, scope: &str) -> Ask {
    let id = TaskId::parse(name).unwrap();
    let mut new = NewTask::new(id.clone(), Resource::parse(scope).unwrap());
    new.expects_change = false;
    Ask::new(id, "bench", Request::Create(new))
}

fn packet(task: &str, run_id: &str) -> ResultPacket {
    let text = serde_json::json!({
        "schema_version": "1.0.0", "run_id": run_id, "task_id": task, "status": "done",
        "changes": [], "worklog_path": "worklog.md", "notes_for_orchestrator": [],
        "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "exit 0"}],
    });
    ResultPacket::parse(text.to_string().as_bytes()).unwrap()
}

/// Whole lives for each second: create, claim, heartbeat, finish.
async fn lives(ledger: &Ledger, clients: u32) -> f64 {
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..clients {
        let ledger = ledger.clone();
        tasks.spawn(async move {
            let owner = format!("c{client}");
            let (mut made, mut done) = (0_u32, 0_u32);
            while begun.elapsed() < Duration::from_secs(SECS) {
                made += 1;
                let name = format!("{owner}-{made}");
                ledger
                    .call(&task(&name, &format!("src/{name}")))
                    .await
                    .unwrap();
                let wanted = Wanted::work(&owner, "worker", &name);
                let Some(claimed) = ledger.claim_next(&wanted).await.unwrap() else {
                    continue;
                };
                let id = claimed.task.id.clone();
                let token = claimed.token;
                let beat = Ask::new(id.clone(), &owner, Request::Heartbeat { token });
                ledger.call(&beat).await.unwrap();
                let ending = Ending::Success {
                    result: None,
                    packet: packet(id.as_str(), &claimed.run_id),
                };
                let run_id = claimed.run_id;
                let finish = Request::Finish {
                    token,
                    run_id,
                    ending,
                };
                ledger.call(&Ask::new(id, &owner, finish)).await.unwrap();
                done += 1;
            }
            done
        });
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        done += ended.unwrap();
    }
    f64::from(done) / begun.elapsed().as_secs_f64()
}

const FLOOR_TABLE: &str = "CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT NOT NULL, \
     beat BIGINT NOT NULL, doc TEXT NOT NULL)";
const FLOOR_INDEX: &str = "CREATE INDEX jobs_todo ON jobs (id) WHERE state = 'todo'";

macro_rules! floor_lives {
    ($pool:expr, $clients:expr, $claim:literal) => {{
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..$clients {
            let pool = $pool.clone();
            tasks.spawn(async move {
                let doc = "x".repeat(1200);
                let (mut made, mut done) = (0_u32, 0_u32);
                while begun.elapsed() < Duration::from_secs(SECS) {
                    made += 1;
                    let id = format!("c{client}-{made}");
                    let sql = "INSERT INTO jobs (id, state, beat, doc) VALUES ($1, 'todo', 0, $2)";
                    sqlx::query(sql)
                        .bind(&id)
                        .bind(&doc)
                        .execute(&pool)
                        .await
                        .unwrap();
                    let row = sqlx::query($claim).fetch_optional(&pool).await.unwrap();
                    let Some(row) = row else { continue };
                    let id: String = sqlx::Row::get(&row, 0);
                    let sql = "UPDATE jobs SET beat = beat + 1 WHERE id = $1";
                    sqlx::query(sql).bind(&id).execute(&pool).await.unwrap();
                    let sql = "UPDATE jobs SET state = 'done' WHERE id = $1";
                    sqlx::query(sql).bind(&id).execute(&pool).await.unwrap();
                    done += 1;
                }
                done
            });
        }
        let mut done = 0;
        while let Some(ended) = tasks.join_next().await {
            done += ended.unwrap();
        }
        f64::from(done) / begun.elapsed().as_secs_f64()
    }};
}

async fn floor_on_postgres(url: &str, connections: u32) -> f64 {
    let options = PgPoolOptions::new().max_connections(connections);
    let pool: PgPool = options
        .test_before_acquire(false)
        .connect(url)
        .await
        .unwrap();
    sqlx::query(FLOOR_TABLE).execute(&pool).await.unwrap();
    sqlx::query(FLOOR_INDEX).execute(&pool).await.unwrap();
    let rate = floor_lives!(
        pool,
        connections,
        "UPDATE jobs SET state = 'in_progress' WHERE id = (SELECT id FROM jobs \
         WHERE state = 'todo' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
    );
    pool.close().await;
    rate
}

async fn floor_on_sqlite(path: &std::path::Path) -> f64 {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query(FLOOR_TABLE).execute(&pool).await.unwrap();
    sqlx::query(FLOOR_INDEX).execute(&pool).await.unwrap();
    floor_lives!(
        pool,
        1,
        "UPDATE jobs SET state = 'in_progress' WHERE id = (SELECT id FROM jobs \
         WHERE state = 'todo' ORDER BY id LIMIT 1) RETURNING id"
    )
}

/// From the end of a commit to the claim by somebody who waited for a hint.
async fn idle_latency(store: &Store) -> Vec<Figure> {
    let (writer, claimer) = (open(store, 2).await, open(store, 2).await);
    let mut hints = claimer.listen().await.unwrap();
    let mut millis = Vec::new();
    for at in 0..200 {
        let name = format!("idle{at}");
        writer
            .call(&task(&name, &format!("src/{at}")))
            .await
            .unwrap();
        let committed = Instant::now();
        loop {
            let wanted = Wanted::work("w", "worker", &name);
            hints.next().await;
            if claimer.claim_next(&wanted).await.unwrap().is_some() {
                break;
            }
        }
        millis.push(committed.elapsed().as_secs_f64() * 1000.0);
        // Until everything is quiet again.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    millis.sort_by(f64::total_cmp);
    [(50, "-", f64::MAX), (95, "<= 15 ms", 15.0)]
        .map(|(percent, aim, limit)| {
            let value = millis[millis.len() * percent / 100];
            Figure {
                name: format!("idle, commit to claimed, ms, p{percent}"),
                value,
                floor: None,
                aim,
                met: value <= limit,
            }
        })
        .into()
}

/// One percent ready, the rest done, waiting for a dependency or for one hot lock.
const FILL: &str = "INSERT INTO tasks (id, version, state, role, lane, queue, rank, created_at, \
     updated_at, lineage, awaits, doc, unmet, waits_for, ready_since) \
     SELECT 'n' || i, 1, CASE WHEN i % 3 = 0 THEN 'done' ELSE 'todo' END, 'worker', 'feature', \
     'worker/feature', i, i, i, 'n' || i, CASE WHEN i % 3 = 0 THEN NULL ELSE 'work' END, \
     replace(t.doc, '\"filler\"', '\"n' || i || '\"'), \
     CASE WHEN i % 3 = 1 AND i % 100 <> 1 THEN 1 ELSE 0 END, \
     CASE WHEN i % 3 = 2 AND i % 100 <> 1 THEN 'lock:hot' END, 0 \
     FROM generate_series(1, $1) i, (SELECT doc FROM tasks WHERE id = 'filler') t";

async fn claim_costs(server: &Postgres, sizes: &[u64]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for size in sizes {
        let database = format!("claims{size}");
        server.create_database(&database, None);
        let url = server.url(&database);
        let ledger = open(&Store::Postgres(url.clone()), 2).await;
        ledger.call(&task("filler", "src/filler")).await.unwrap();
        let pool = PgPool::connect(&url).await.unwrap();
        let size_arg = i32::try_from(*size).unwrap();
        sqlx::query(FILL)
            .bind(size_arg)
            .execute(&pool)
            .await
            .unwrap();
        let hot = "INSERT INTO locks (resource, task_id) VALUES ('hot', 'filler')";
        sqlx::query(hot).execute(&pool).await.unwrap();
        // Whatever filling left to do is done before the clock runs.
        for sql in ["VACUUM ANALYZE", "CHECKPOINT"] {
            sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        }
        let mut millis = Vec::new();
        // The tasks share one scope: each claim is given back, so that the next is free.
        for at in 0..200 {
            let wanted = Wanted::work("w", "worker", &format!("k{at}"));
            let begun = Instant::now();
            let claimed = ledger.claim_next(&wanted).await.unwrap().unwrap();
            millis.push(begun.elapsed().as_secs_f64() * 1000.0);
            let reason = "measured".to_owned();
            let cancel = Ask::new(claimed.task.id, "bench", Request::Cancel { reason });
            ledger.call(&cancel).await.unwrap();
            if at + 2 > i64::try_from(size / 100).unwrap() {
                break;
            }
        }
        millis.sort_by(f64::total_cmp);
        let value = millis[millis.len() / 2];
        let first = figures.first().map_or(value, |first| first.value);
        figures.push(Figure {
            name: format!("claim, ms, {size} tasks stored"),
            value,
            floor: None,
            aim: "<= 1.5 times the smallest",
            met: value <= 1.5 * first,
        });
        pool.close().await;
        ledger.close().await.unwrap();
    }
    figures
}
