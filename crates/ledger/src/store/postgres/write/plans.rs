//! What the server makes of the statements, on tables of some size.

use runner_testkit::TestPostgres;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::*;
use crate::ledger::{Ledger, LedgerOptions};
use crate::store::Store;
use crate::store::postgres::SETTINGS;

/// The end of work that was decided from memory.
const END: ChangeShape = ChangeShape {
    own: Own::Update,
    events: true,
    runs: Some(RunsWrite::Change),
    lease: Some(LeaseWrite::End),
    leased: true,
    take: false,
    release: true,
    result: None,
    receipt: true,
    request: false,
    ends: true,
    alone: true,
};
const BEAT_ONCE: ChangeShape = ChangeShape {
    own: Own::Beat,
    events: false,
    runs: None,
    lease: Some(LeaseWrite::Beat),
    release: false,
    receipt: false,
    ends: false,
    alone: false,
    ..END
};
const CREATE: ChangeShape = ChangeShape {
    own: Own::Insert,
    runs: None,
    lease: None,
    leased: false,
    take: false,
    ..ChangeShape::CLAIM
};

/// Some of them go on, most have ended.
const FILLED: &str = "INSERT INTO tasks (id, version, state, role, lane, queue, rank, created_at, \
     updated_at, lineage, scope, doc, ready_since) \
     SELECT 't' || i, 2, CASE WHEN i % 50 = 0 THEN 'in_progress' ELSE 'done' END, 'worker', 'l', \
     'q', 0, i, i, 't' || i, '', '{}', i FROM generate_series(1, 5000) i; \
     INSERT INTO runs (id, task_id, number, status, doc, started_at, judgement_version) \
     SELECT id || '-1', id, 1, CASE state WHEN 'done' THEN 'done' ELSE 'running' END, '{}', 0, 0 \
     FROM tasks; \
     INSERT INTO events (task_id, version, to_state, created_at, doc) \
     SELECT id, 2, state, 0, '{}' FROM tasks; \
     INSERT INTO locks (resource, task_id) SELECT 'src/' || id, id FROM tasks \
     WHERE state = 'in_progress'; \
     INSERT INTO leases (task_id, run_id, owner, token, purpose, claim_key, claimed_at, \
     last_heartbeat_at, timeout_seconds, heartbeat_interval_seconds, ends_at, due_at) \
     SELECT id, id || '-1', 'w', 1, 'work', id, 0, 0, 60, 20, 0, 0 FROM tasks \
     WHERE state = 'in_progress'; ANALYZE";

/// By these a row is found that has a name.
const BY_NAME: [&str; 8] = [
    "tasks_pkey",
    "tasks_lineage",
    "runs_pkey",
    "runs_task_id_number_key",
    "leases_pkey",
    "locks_pkey",
    "locks_task",
    "events_task_id_version_key",
];

#[tokio::test]
async fn every_row_is_found_by_its_name() {
    let server = TestPostgres::start(false);
    server.create_database("plans", None);
    let store = Store::Postgres(server.url("plans"));
    let ledger = Ledger::open(&store, LedgerOptions::default())
        .await
        .unwrap();
    let url = server.url("plans");
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    for text in [SETTINGS, FILLED] {
        connection.execute(sqlx::raw_sql(text)).await.unwrap();
    }
    for shape in [ChangeShape::CLAIM, END, BEAT_ONCE, CREATE] {
        for many in [false, true] {
            let statement = ChangeStatement::of(shape, many);
            let values = vec!["'{}'"; statement.arguments.len()].join(",");
            let texts = [
                "DEALLOCATE ALL".to_owned(),
                format!("PREPARE asked AS {}", statement.sql),
                format!("EXPLAIN EXECUTE asked({values})"),
            ];
            let mut plan = String::new();
            for text in texts {
                let rows = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&mut connection);
                for row in rows.await.unwrap() {
                    plan.push_str(&row.get::<String, usize>(0));
                    plan.push('\n');
                }
            }
            assert!(!plan.contains("Seq Scan"), "{shape:?}\n{plan}");
            for line in plan.lines() {
                let scanned = line.split(" using ").nth(1);
                let scanned = scanned.or(line.split("Bitmap Index Scan on ").nth(1));
                let index = scanned.and_then(|rest| rest.split_whitespace().next());
                let by_name = index.is_none_or(|index| BY_NAME.contains(&index));
                assert!(by_name, "{shape:?}, {index:?}\n{plan}");
            }
        }
    }
    ledger.close().await.unwrap();
}
