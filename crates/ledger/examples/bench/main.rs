//! `cargo xtask bench ledger`: the ledger against floors, on the same server in the same
//! run, with everything synced.
//!
//! The floor of one life is four bare commits on one table: insert, a claim with SKIP
//! LOCKED, two updates. The ledger does the same with events, locks, leases and receipts.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::time::{Duration, Instant};

use runner_ledger::{ClaimRequest, Ledger, LedgerCall, LedgerOptions, Store};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{NewTask, WorkEnding};
use runner_lifecycle::{Request, TaskId};
use runner_testkit::TestPostgres;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};

/// Floor and ledger take turns, so that whatever else the machine does meets both alike.
/// The first turn of each is not counted: connections are made and plans learnt.
const TURNS: u32 = 5;
const TURN: Duration = Duration::from_millis(1500);
/// How many clients there are at once.
const CONNECTIONS: [u32; 3] = [1, 10, 50];
/// How many tasks are stored while a claim is measured.
const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];

mod claims;

const FLOOR_TABLE: &str = "CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT NOT NULL, \
     beat BIGINT NOT NULL, doc TEXT NOT NULL)";
const FLOOR_INDEX: &str = "CREATE INDEX jobs_todo ON jobs (id) WHERE state = 'todo'";

/// The same number of bare commits.
macro_rules! floor_turn {
    ($pool:expr, $clients:expr, $turn:expr, $claim:expr) => {{
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..$clients {
            let pool = $pool.clone();
            tasks.spawn(async move {
                let doc = "x".repeat(1200);
                let (mut made, mut done) = (0_u32, 0_u32);
                while begun.elapsed() < TURN {
                    made += 1;
                    let id = format!("c{client}-{}-{made}", $turn);
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
        (done, begun.elapsed())
    }};
}

fn main() {
    let json = std::env::args().any(|word| word == "--json");
    let check = std::env::args().any(|word| word == "--check");
    let only = std::env::args().find_map(|word| word.strip_prefix("--only=").map(str::to_owned));
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
    let figures = runtime.block_on(measure(&sizes, only.as_deref()));
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

async fn measure(sizes: &[u64], only: Option<&str>) -> Vec<Figure> {
    let server = TestPostgres::start(true);
    let claim_request = |part: &str| only.is_none_or(|only| only == part);
    let mut figures = Vec::new();
    if claim_request("lives") {
        figures.extend(all_lives(&server).await);
    }
    if claim_request("idle") {
        server.create_database("idle", None);
        figures.extend(idle_latency(&Store::Postgres(server.url("idle"))).await);
    }
    if claim_request("claims") {
        figures.extend(claims::costs(&server, sizes).await);
    }
    figures
}

async fn all_lives(server: &TestPostgres) -> Vec<Figure> {
    let mut figures = Vec::new();
    for connections in CONNECTIONS {
        let database = format!("lives{connections}");
        server.create_database(&database, None);
        let url = server.url(&database);
        let pool = floor_on_postgres(&url, connections).await;
        let ledger = open(&Store::Postgres(url), connections).await;
        let (mut floor, mut value) = (Rate::default(), Rate::default());
        for turn in 0..TURNS {
            let bare = floor_turn!(pool, connections, turn, CLAIM_FLOOR_POSTGRES);
            floor.add(turn, bare);
            value.add(turn, lives(&ledger, connections, turn).await);
        }
        let name = format!("lives/s, PostgreSQL, {connections} connections");
        figures.push(rate(&name, value.per_second(), floor.per_second()));
        ledger.close().await.unwrap();
        pool.close().await;
    }
    let folder = tempfile::tempdir().unwrap();
    let pool = floor_on_sqlite(&folder.path().join("floor.db")).await;
    let ledger = open(&Store::Sqlite(folder.path().join("ledger.db")), 4).await;
    let (mut floor, mut value) = (Rate::default(), Rate::default());
    for turn in 0..TURNS {
        floor.add(turn, floor_turn!(pool, 1, turn, CLAIM_FLOOR_SQLITE));
        value.add(turn, lives(&ledger, 1, turn).await);
    }
    let (value, floor) = (value.per_second(), floor.per_second());
    figures.push(rate("lives/s, SQLite", value, floor));
    figures
}

/// Whole lives, and how long they took.
#[derive(Default)]
struct Rate {
    lives: u32,
    took: Duration,
}

impl Rate {
    fn add(&mut self, turn: u32, (lives, took): (u32, Duration)) {
        if turn > 0 {
            self.lives += lives;
            self.took += took;
        }
    }

    fn per_second(&self) -> f64 {
        f64::from(self.lives) / self.took.as_secs_f64()
    }
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
    let options = LedgerOptions {
        connections,
        ..LedgerOptions::default()
    };
    Ledger::open(store, options).await.unwrap()
}

fn new_task(name: &str, scope: &str) -> NewTask {
    let id = TaskId::parse(name).unwrap();
    let mut new = NewTask::new(id, Resource::parse(scope).unwrap());
    new.expects_change = false;
    new
}

fn task(name: &str, scope: &str) -> LedgerCall {
    let new = new_task(name, scope);
    LedgerCall::new(new.id.clone(), "bench", Request::Create(new))
}

fn packet(task: &str, run_id: &str) -> ResultPacket {
    let text = serde_json::json!({
        "schema_version": "1.0.0", "run_id": run_id, "task_id": task, "status": "done",
        "changes": [], "worklog_path": "worklog.md", "notes_for_orchestrator": [],
        "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "exit 0"}],
    });
    ResultPacket::parse(text.to_string().as_bytes()).unwrap()
}

/// Whole lives of one turn: create, claim, heartbeat, finish.
async fn lives(ledger: &Ledger, clients: u32, turn: u32) -> (u32, Duration) {
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..clients {
        let ledger = ledger.clone();
        tasks.spawn(async move {
            let owner = format!("c{client}-{turn}");
            let (mut made, mut done) = (0_u32, 0_u32);
            while begun.elapsed() < TURN {
                made += 1;
                let name = format!("{owner}-{made}");
                ledger
                    .call(&task(&name, &format!("src/{name}")))
                    .await
                    .unwrap();
                let claim_request = ClaimRequest::work(&owner, "worker", &name);
                let Some(claimed) = ledger.claim_next(&claim_request).await.unwrap() else {
                    continue;
                };
                let id = claimed.task.id.clone();
                let token = claimed.token;
                let beat = LedgerCall::new(id.clone(), &owner, Request::Heartbeat { token });
                ledger.call(&beat).await.unwrap();
                let ending = WorkEnding::Success {
                    result: None,
                    packet: packet(id.as_str(), &claimed.run_id),
                };
                let run_id = claimed.run_id;
                let finish = Request::Finish {
                    token,
                    run_id,
                    ending,
                };
                ledger
                    .call(&LedgerCall::new(id, &owner, finish))
                    .await
                    .unwrap();
                done += 1;
            }
            done
        });
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        done += ended.unwrap();
    }
    (done, begun.elapsed())
}

const CLAIM_FLOOR_POSTGRES: &str = "UPDATE jobs SET state = 'in_progress' WHERE id = \
     (SELECT id FROM jobs WHERE state = 'todo' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) \
     RETURNING id";
const CLAIM_FLOOR_SQLITE: &str = "UPDATE jobs SET state = 'in_progress' WHERE id = \
     (SELECT id FROM jobs WHERE state = 'todo' ORDER BY id LIMIT 1) RETURNING id";

async fn floor_on_postgres(url: &str, connections: u32) -> PgPool {
    let options = PgPoolOptions::new().max_connections(connections);
    let pool: PgPool = options
        .test_before_acquire(false)
        .connect(url)
        .await
        .unwrap();
    sqlx::query(FLOOR_TABLE).execute(&pool).await.unwrap();
    sqlx::query(FLOOR_INDEX).execute(&pool).await.unwrap();
    pool
}

async fn floor_on_sqlite(path: &std::path::Path) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::query(FLOOR_TABLE).execute(&pool).await.unwrap();
    sqlx::query(FLOOR_INDEX).execute(&pool).await.unwrap();
    pool
}

/// From the end of a commit to the claim by somebody who waited for a notification.
async fn idle_latency(store: &Store) -> Vec<Figure> {
    let (writer, claimer) = (open(store, 2).await, open(store, 2).await);
    let mut notifications = claimer.listen().await.unwrap();
    let mut millis = Vec::new();
    for at in 0..200 {
        let name = format!("idle{at}");
        writer
            .call(&task(&name, &format!("src/{at}")))
            .await
            .unwrap();
        let committed = Instant::now();
        loop {
            let claim_request = ClaimRequest::work("w", "worker", &name);
            notifications.next().await;
            if claimer.claim_next(&claim_request).await.unwrap().is_some() {
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
