//! PostgreSQL: a server, for several machines.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runner_lifecycle::lock::Resource;
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgListener, PgPool, PgPoolOptions, Postgres,
};
use sqlx::query::Query;
use sqlx::{Connection as _, Row as _, Transaction};
use tokio::sync::Notify;

use crate::engine::{Access, Arg, Engine, Later, Row, Session, Sql};
use crate::error::StoreError;
use crate::hints::Hints;
use crate::migrate::{self, Dialect};

const CHANNEL: &str = "runner_ledger";
/// The advisory lock of the upgrade: the first letters of the crate's name.
const UPGRADE_LOCK: i64 = 0x7275_6e6c;
/// How long a caller waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(20);

/// A connection that was idle for longer is tested before it is used.
const STALE: Duration = Duration::from_secs(1);

/// A database on a server.
pub(crate) struct PostgresEngine {
    pool: PgPool,
    options: PgConnectOptions,
    announcer: Arc<Announcer>,
    statements: Arc<AtomicU64>,
}

impl PostgresEngine {
    pub(crate) async fn open(
        url: &str,
        connections: u32,
        read_only: bool,
    ) -> Result<PostgresEngine, StoreError> {
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|error| failed(&error))?
            .application_name("runner");
        if read_only {
            options = options.options([("default_transaction_read_only", "on")]);
        }
        // A pool tries again until its time is over; a server that is not there should be
        // told at once, and in its own words.
        let first = PgConnection::connect_with(&options).await;
        first.map_err(|error| failed(&error))?.close().await.ok();
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    // What was used a moment ago need not be asked whether it lives.
                    if meta.idle_for > STALE {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(options.clone())
            .await
            .map_err(|error| failed(&error))?;
        let voice = PgPoolOptions::new()
            .max_connections(1)
            .idle_timeout(Some(Duration::from_secs(60)))
            .connect_lazy_with(options.clone());
        Ok(PostgresEngine {
            pool,
            options,
            announcer: Arc::new(Announcer {
                voice,
                state: Mutex::new(Telling::Nothing),
                told: Notify::new(),
            }),
            statements: Arc::new(AtomicU64::new(0)),
        })
    }

    async fn version(&self) -> Result<i64, sqlx::Error> {
        let row = sqlx::query("SELECT to_regclass('ledger_schema') IS NOT NULL")
            .fetch_one(&self.pool)
            .await?;
        if !row.try_get::<bool, usize>(0)? {
            return Ok(0);
        }
        let row = sqlx::query(migrate::READ_VERSION)
            .fetch_one(&self.pool)
            .await?;
        Ok(row.try_get::<Option<i64>, usize>(0)?.unwrap_or(0))
    }

    async fn upgrade(&self) -> Result<(), StoreError> {
        let fail = |error: sqlx::Error| failed(&error);
        let found = self.version().await.map_err(fail)?;
        if migrate::pending(found, Dialect::Postgres)?.is_empty() {
            return Ok(());
        }
        let mut open = self.pool.begin().await.map_err(fail)?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(UPGRADE_LOCK)
            .execute(&mut *open)
            .await
            .map_err(fail)?;
        migrate::upgrade_in!(&mut open, Dialect::Postgres, fail);
        open.commit().await.map_err(fail)
    }
}

impl Engine for PostgresEngine {
    fn begin(&self, access: Access) -> Later<'_, Box<dyn Session>> {
        Box::pin(async move {
            let how = match access {
                Access::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                Access::Write => "BEGIN ISOLATION LEVEL READ COMMITTED",
            };
            self.statements.fetch_add(1, Ordering::Relaxed);
            // On a task of its own: a caller that is gone in the middle would leave a
            // connection with an open transaction that nobody knows of.
            let pool = self.pool.clone();
            let begun = tokio::spawn(async move { pool.begin_with(how).await }).await;
            let begun = begun.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            let open = begun.map_err(|error| failed(&error))?;
            let session: Box<dyn Session> = Box::new(PostgresSession {
                open,
                statements: Arc::clone(&self.statements),
            });
            Ok(session)
        })
    }

    fn migrate(&self) -> Later<'_, ()> {
        Box::pin(self.upgrade())
    }

    fn announce(&self) {
        Announcer::tell(&self.announcer, &self.statements);
    }

    fn flush(&self) -> Later<'_, ()> {
        Box::pin(async move {
            self.announcer.wait().await;
            Ok(())
        })
    }

    fn listen(&self) -> Later<'_, Hints> {
        Box::pin(async move {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .connect_lazy_with(self.options.clone());
            let fail = |error: sqlx::Error| failed(&error);
            let mut listener = PgListener::connect_with(&pool).await.map_err(fail)?;
            listener.listen(CHANNEL).await.map_err(fail)?;
            Ok(Hints::postgres(listener))
        })
    }

    fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    fn close(&self) -> Later<'_, ()> {
        Box::pin(async move {
            self.announcer.wait().await;
            self.announcer.voice.close().await;
            self.pool.close().await;
            Ok(())
        })
    }
}

/// Tells listeners after a commit, on a connection of its own.
///
/// NOTIFY inside the transaction would queue all commits one behind the other: the
/// server holds a lock from the notification until the commit is on disk. Told
/// afterwards, several changes become one hint.
struct Announcer {
    voice: PgPool,
    state: Mutex<Telling>,
    told: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    Nothing,
    Once,
    /// Something changed after the hint that is on its way.
    Again,
}

impl Announcer {
    fn state(&self) -> std::sync::MutexGuard<'_, Telling> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(this: &Arc<Announcer>, statements: &Arc<AtomicU64>) {
        let mut state = this.state();
        if *state != Telling::Nothing {
            *state = Telling::Again;
            return;
        }
        *state = Telling::Once;
        drop(state);
        let (this, statements) = (Arc::clone(this), Arc::clone(statements));
        tokio::spawn(async move {
            loop {
                statements.fetch_add(1, Ordering::Relaxed);
                // A hint that cannot be given is none: everybody looks regularly.
                let _ = sqlx::query("SELECT pg_notify($1, '')")
                    .bind(CHANNEL)
                    .execute(&this.voice)
                    .await;
                let mut state = this.state();
                if *state == Telling::Again {
                    *state = Telling::Once;
                    continue;
                }
                *state = Telling::Nothing;
                this.told.notify_waiters();
                break;
            }
        });
    }

    async fn wait(&self) {
        loop {
            let told = self.told.notified();
            if *self.state() == Telling::Nothing {
                return;
            }
            told.await;
        }
    }
}

struct PostgresSession {
    open: Transaction<'static, Postgres>,
    statements: Arc<AtomicU64>,
}

impl Session for PostgresSession {
    fn run<'a>(&'a mut self, sql: Sql, args: &'a [Arg<'a>]) -> Later<'a, u64> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let done = bound(sql.postgres, args).execute(&mut *self.open).await;
            done.map(|done| done.rows_affected())
                .map_err(|error| failed(&error))
        })
    }

    fn rows<'a>(&'a mut self, sql: Sql, args: &'a [Arg<'a>]) -> Later<'a, Vec<Row>> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let rows = bound(sql.postgres, args).fetch_all(&mut *self.open).await;
            rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
                .map_err(|error| failed(&error))
        })
    }

    fn serialise_scope<'a>(&'a mut self, scope: &'a [Resource]) -> Later<'a, ()> {
        Box::pin(async move {
            let (keys, exclusive) = advisory_locks(scope);
            self.statements.fetch_add(1, Ordering::Relaxed);
            // One row after the other, in the order of the arrays.
            sqlx::query(
                "SELECT CASE WHEN exclusive THEN pg_advisory_xact_lock(key) \
                 ELSE pg_advisory_xact_lock_shared(key) END \
                 FROM unnest($1::bigint[], $2::bool[]) AS wanted(key, exclusive)",
            )
            .bind(keys)
            .bind(exclusive)
            .execute(&mut *self.open)
            .await
            .map(drop)
            .map_err(|error| failed(&error))
        })
    }

    fn commit(self: Box<Self>) -> Later<'static, ()> {
        Box::pin(async move {
            self.statements.fetch_add(1, Ordering::Relaxed);
            self.open.commit().await.map_err(|error| failed(&error))
        })
    }
}

/// The advisory locks of a scope in path order: shared on everything above a resource,
/// exclusive on the resource itself. Two overlapping scopes share one of them.
fn advisory_locks(scope: &[Resource]) -> (Vec<i64>, Vec<bool>) {
    let mut wanted = std::collections::BTreeMap::new();
    for resource in scope {
        for above in resource.ancestors() {
            wanted.entry(above).or_insert(false);
        }
        wanted.insert(resource.clone(), true);
    }
    wanted
        .into_iter()
        .map(|(resource, exclusive)| (advisory_key(resource.as_str()), exclusive))
        .unzip()
}

fn advisory_key(resource: &str) -> i64 {
    let digest = runner_core::digest::sha256_hex(format!("scope:{resource}").as_bytes());
    let head = digest.get(..16).unwrap_or_default();
    u64::from_str_radix(head, 16)
        .unwrap_or_default()
        .cast_signed()
}

fn bound<'q>(sql: &'static str, args: &[Arg<'_>]) -> Query<'q, Postgres, PgArguments> {
    args.iter().fold(sqlx::query(sql), |query, arg| match *arg {
        Arg::Int(number) => query.bind(number),
        Arg::MaybeInt(number) => query.bind(number),
        Arg::Text(text) => query.bind(text.to_owned()),
        Arg::MaybeText(text) => query.bind(text.map(str::to_owned)),
        Arg::Texts(texts) => query.bind(texts.to_vec()),
        Arg::Ints(numbers) => query.bind(numbers.to_vec()),
    })
}

/// What an error of PostgreSQL means.
fn failed(error: &sqlx::Error) -> StoreError {
    let words = error.to_string();
    let Some(database) = error.as_database_error() else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::Damaged(words),
            sqlx::Error::Configuration(_) => StoreError::Other(words),
            _ => StoreError::Unavailable(words),
        };
    };
    let words = database.message().to_owned();
    let code = database.code().unwrap_or_default();
    match code.as_ref() {
        // Serialisation, deadlock, lock not available, uniqueness.
        "40001" | "40P01" | "55P03" | "23505" => StoreError::Contention(words),
        "53100" => StoreError::Full(words),
        "25006" => StoreError::ReadOnly(words),
        // The server shuts down, starts up or has no connection left.
        "57P01" | "57P02" | "57P03" | "53300" => StoreError::Unavailable(words),
        "XX001" | "XX002" => StoreError::Damaged(words),
        code if code.starts_with("08") => StoreError::Unavailable(words),
        _ => StoreError::Other(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(scope: &[&str]) -> Vec<(i64, bool)> {
        let scope: Vec<Resource> = scope.iter().map(|t| Resource::parse(t).unwrap()).collect();
        let (keys, exclusive) = advisory_locks(&scope);
        keys.into_iter().zip(exclusive).collect()
    }

    #[test]
    fn overlapping_scopes_meet_in_an_exclusive_lock() {
        let meet = |one: &[&str], other: &[&str]| {
            let other = locks(other);
            locks(one)
                .iter()
                .any(|(key, exclusive)| other.iter().any(|(k, e)| k == key && (*e || *exclusive)))
        };
        assert!(meet(&["src"], &["src/x"]));
        assert!(meet(&["."], &["src/x/y"]));
        assert!(meet(&["docs", "src/x"], &["src/x"]));
        assert!(!meet(&["src/x"], &["src/y"]));
        assert!(!meet(&["."], &["@judge/t"]));
        assert!(!meet(&["src"], &["srcs"]));
    }

    #[test]
    fn every_scope_is_locked_in_the_same_order() {
        let keys = |scope: &[&str]| locks(scope).into_iter().map(|l| l.0).collect::<Vec<_>>();
        assert_eq!(keys(&["b/c", "a"]), keys(&["a", "b/c"]));
        assert_eq!(
            locks(&["a/b"]).iter().map(|l| l.1).collect::<Vec<_>>(),
            [false, false, true]
        );
    }
}
