//! Many clients, and everything that can break does: clients, connections, the server,
//! clocks, acknowledgements. Afterwards checkers that know nothing of the ledger's code
//! read the raw tables.
//!
//! `RUNNER_FAULT_SEED` and `RUNNER_FAULT_SECS` choose the run; a failure prints its seed.
// The bodies are tests, though no attribute says so.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod faults {
    pub(crate) mod checker;
    pub(crate) mod client;
    pub(crate) mod settle;
}
mod support;

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faults::client::{Acks, Client, FastClock, Rng, Shared};
use runner_ledger::{Ledger, LedgerOptions, Store, StoreError};
use runner_testkit::TestPostgres;

/// Runs with this many seconds of faults in CI.
const SHORT_SECS: u64 = 8;
const LONG_SECS: u64 = 120;
const CLIENTS: usize = 200;
/// A server has so many connections for all clients: each of a dozen handles has some.
const HANDLES: usize = 20;
const PROCESSES: usize = 8;

fn seed() -> u64 {
    let given = std::env::var("RUNNER_FAULT_SEED").ok();
    let seed = given
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_261_115);
    println!("RUNNER_FAULT_SEED={seed}");
    seed
}

fn length(default: u64) -> Duration {
    let given = std::env::var("RUNNER_FAULT_SECS").ok();
    Duration::from_secs(given.and_then(|text| text.parse().ok()).unwrap_or(default))
}

#[test]
fn two_hundred_clients_on_postgres() {
    support::block_on(on_postgres(seed(), length(SHORT_SECS)));
}

#[test]
#[ignore = "two minutes; run it by name"]
fn two_hundred_clients_on_postgres_for_long() {
    support::block_on(on_postgres(seed(), length(LONG_SECS)));
}

#[test]
fn eight_processes_on_one_file() {
    on_sqlite(seed(), length(SHORT_SECS));
}

#[test]
#[ignore = "two minutes; run it by name"]
fn eight_processes_on_one_file_for_long() {
    on_sqlite(seed(), length(LONG_SECS));
}

async fn on_postgres(seed: u64, length: Duration) {
    let server = Arc::new(TestPostgres::start(true));
    server.create_database("faults", None);
    let store = Store::Postgres(server.url("faults"));
    let clock = FastClock::new();
    let open = |skew: i64| LedgerOptions {
        clock: clock.skewed(skew),
        server_clock: false,
        connections: u32::try_from(CLIENTS / HANDLES).unwrap(),
        ..LedgerOptions::default()
    };
    let mut rng = Rng::new(seed);
    let mut ledgers = Vec::new();
    for _ in 0..HANDLES {
        let skew = rng.below(4000);
        let skew = i64::try_from(skew).unwrap() - 2000;
        ledgers.push(Ledger::open(&store, open(skew)).await.unwrap());
    }
    let shared = Shared::default();
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |at: usize, name: String, seed: u64| {
        let client = Client::new(ledgers[at % HANDLES].clone(), &name, seed, shared.clone());
        tokio::spawn(client.run(Arc::clone(&stop)))
    };
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|at| spawn(at, format!("c{at}"), rng.next()))
        .collect();
    let (mut kills, mut cuts, mut crashes, mut jumps) = (0, 0, 0, 0);
    let begun = Instant::now();
    while begun.elapsed() < length {
        tokio::time::sleep(Duration::from_millis(5 + rng.below(20))).await;
        match rng.below(100) {
            0..60 => {
                let at = usize::try_from(rng.below(CLIENTS as u64)).unwrap();
                clients[at].abort();
                kills += 1;
                clients[at] = spawn(at, format!("c{at}r{kills}"), rng.next());
            }
            60..90 => cuts += u32::from(cut_a_connection(&server).await),
            90..97 => {
                jumps += 1;
                clock.jump(i64::try_from(rng.below(240_000)).unwrap() - 60_000);
            }
            _ if begun.elapsed() > length.mul_f64(f64::from(crashes + 1) / 4.0) => {
                crashes += 1;
                let server = Arc::clone(&server);
                tokio::task::spawn_blocking(move || {
                    server.stop_immediately();
                    server.start_again();
                })
                .await
                .unwrap();
            }
            _ => {}
        }
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        match client.await {
            Ok(()) => {}
            Err(error) if error.is_cancelled() => {}
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    let (acks, failures) = shared.take();
    assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    println!(
        "postgres, {CLIENTS} clients, {length:?}: {} acknowledged, {kills} clients killed, \
         {cuts} connections cut, {crashes} server crashes, {jumps} clock jumps",
        acks.len()
    );
    assert!(
        acks.len() > 50 && crashes > 0 && cuts > 0,
        "too little happened"
    );
    let ledger = &ledgers[0];
    verify(&store, ledger, &acks, seed).await;
    let steps = faults::settle::settle(ledger, &clock).await;
    println!("settled in {steps} steps");
    verify(&store, ledger, &acks, seed).await;
}

async fn cut_a_connection(server: &TestPostgres) -> bool {
    use sqlx::Connection as _;
    let Ok(mut connection) = sqlx::PgConnection::connect(&server.url("faults")).await else {
        return false;
    };
    let cut = sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = 'faults' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1",
    );
    cut.execute(&mut connection).await.is_ok()
}

async fn verify(store: &Store, ledger: &Ledger, acks: &[faults::client::Ack], seed: u64) {
    let raw = faults::checker::Raw::read(store).await;
    let wrong = raw.check(acks);
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    let findings = ledger.check().await.unwrap();
    assert!(findings.is_clean(), "seed {seed}: {findings:#?}");
}

fn on_sqlite(seed: u64, length: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let clock = FastClock::new();
    let mut rng = Rng::new(seed);
    let mut started = 0_u32;
    let mut spawn = |rng: &mut Rng| {
        started += 1;
        start_child(&path, started, rng.next(), &clock)
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| spawn(&mut rng)).collect();
    let mut kills = 0;
    let begun = Instant::now();
    while begun.elapsed() < length {
        std::thread::sleep(Duration::from_millis(100 + rng.below(200)));
        let at = usize::try_from(rng.below(PROCESSES as u64)).unwrap();
        // Some end on their own because the test failed inside.
        if let Some(status) = children[at].try_wait().unwrap() {
            panic!("seed {seed}: a client ended by itself: {status}");
        }
        children[at].kill().unwrap();
        children[at].wait().unwrap();
        kills += 1;
        children[at] = spawn(&mut rng);
    }
    // The last ones end when their pipe does.
    for child in &mut children {
        drop(child.stdin.take());
    }
    for mut child in children {
        let status = child.wait().unwrap();
        assert!(status.success(), "seed {seed}: a client failed: {status}");
    }
    let acks = Acks::read(folder.path());
    println!(
        "sqlite, {PROCESSES} processes, {length:?}: {} acknowledged, {kills} processes killed",
        acks.len()
    );
    assert!(acks.len() > 50 && kills > 0, "too little happened");
    support::block_on(async {
        let store = Store::Sqlite(path);
        let options = LedgerOptions {
            clock: clock.skewed(0),
            ..LedgerOptions::default()
        };
        let ledger = Ledger::open(&store, options).await.unwrap();
        verify(&store, &ledger, &acks, seed).await;
        let steps = faults::settle::settle(&ledger, &clock).await;
        println!("settled in {steps} steps");
        verify(&store, &ledger, &acks, seed).await;
    });
}

/// This very program, as one client of the file.
#[allow(clippy::disallowed_methods)] // the child is this test itself
fn start_child(path: &std::path::Path, number: u32, seed: u64, clock: &FastClock) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "one_process",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("LEDGER_CHILD", path)
        .env("LEDGER_CHILD_NAME", format!("p{number}"))
        .env("LEDGER_CHILD_SEED", seed.to_string())
        .env("LEDGER_CHILD_CLOCK", clock.base().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a part of eight_processes_on_one_file"]
fn one_process() {
    let Some(path) = std::env::var_os("LEDGER_CHILD") else {
        return;
    };
    let text = |name: &str| std::env::var(name).unwrap();
    let path = std::path::PathBuf::from(path);
    let name = text("LEDGER_CHILD_NAME");
    let seed: u64 = text("LEDGER_CHILD_SEED").parse().unwrap();
    let clock = FastClock::at(text("LEDGER_CHILD_CLOCK").parse().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut nothing = Vec::new();
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut nothing);
        stopping.store(true, Ordering::SeqCst);
    });
    let shared = Shared::to_file(path.with_file_name(format!("acks-{name}")));
    support::block_on(async {
        let skew = i64::try_from(seed % 4000).unwrap() - 2000;
        let options = LedgerOptions {
            clock: clock.skewed(skew),
            connections: 2,
            ..LedgerOptions::default()
        };
        let ledger = open_patiently(&Store::Sqlite(path), &options).await;
        Client::new(ledger, &name, seed, shared.clone())
            .run(stop)
            .await;
    });
    let (_, failures) = shared.take();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A start in the middle of all that may be told to come again, as any call may.
async fn open_patiently(store: &Store, options: &LedgerOptions) -> Ledger {
    for _ in 0..200 {
        match Ledger::open(store, options.clone()).await {
            Ok(ledger) => return ledger,
            Err(StoreError::Contention(_) | StoreError::Unavailable(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the file cannot be opened");
}
