//! PostgreSQL: a server, for several machines.

pub(crate) mod arguments;
pub(crate) mod tx;
pub(crate) mod write;

use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPool, PgPoolOptions, Postgres};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::batch::changes::ChangeWriter;
use crate::call::change::StoreChange;
use crate::error::StoreError;
use crate::store::engine::{Engine, MemoryWriteMode, StoreAccess, StoreFuture, StoreTx};
use crate::store::migrate;
use crate::store::migrate::SqlDialect;
use crate::store::notifications::StoreNotifications;
use crate::store::pool::ConnectionPool;
use crate::store::postgres::tx::{PostgresTx, failed};

const CHANNEL: &str = "runner_ledger";
/// The advisory lock of the upgrade: the first letters of the crate's name.
const UPGRADE_LOCK: i64 = 0x7275_6e6c;
/// How long a caller waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(20);

/// How far apart notifications are at least.
const NOTIFICATION_INTERVAL: Duration = Duration::from_millis(10);

/// Whatever the server's defaults are: each statement, also of a function, sees what was
/// committed before it began. A statement is planned once, not once for each value, for
/// large tables even while they are small; nothing here is worth a compiler.
pub(crate) const SETTINGS: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL \
     READ COMMITTED; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
     SET jit = off";
/// A notification that a crash loses need not be on disk before it is heard.
const NOT_DURABLE: &str = "SET synchronous_commit = off";

/// A database on a server.
pub(crate) struct PostgresEngine {
    connections: Arc<ConnectionPool<Postgres>>,
    writer: ChangeWriter,
    options: PgConnectOptions,
    announcer: Arc<Announcer>,
    statements: Arc<AtomicU64>,
}

impl PostgresEngine {
    pub(crate) fn open(
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
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            .test_before_acquire(false)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute(SETTINGS).await?;
                    let prepared = sqlx::raw_sql(AssertSqlSafe(write::prepared()));
                    connection.execute(prepared).await.map(drop)
                })
            })
            .connect_lazy_with(options.clone());
        let notify_pool = PgPoolOptions::new()
            .max_connections(1)
            .idle_timeout(Some(Duration::from_secs(60)))
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(NOT_DURABLE).await.map(drop) })
            })
            .connect_lazy_with(options.clone());
        let room = usize::try_from(connections).unwrap_or(usize::MAX);
        let connections = ConnectionPool::new(pool, room);
        let statements = Arc::new(AtomicU64::new(0));
        Ok(PostgresEngine {
            writer: ChangeWriter::new(Arc::clone(&connections), Arc::clone(&statements)),
            connections,
            options,
            announcer: Arc::new(Announcer {
                notify_pool,
                state: Mutex::new(AnnounceState::Nothing),
                next: Mutex::new(Instant::now()),
                told: Notify::new(),
            }),
            statements,
        })
    }

    /// On a connection of its own: those of the pool prepare what needs the schema.
    async fn upgrade(&self) -> Result<(), StoreError> {
        let fail = |error: sqlx::Error| failed(&error);
        let mut connection = PgConnection::connect_with(&self.options)
            .await
            .map_err(fail)?;
        connection.execute(SETTINGS).await.map_err(fail)?;
        let found = version(&mut connection).await.map_err(fail)?;
        if !migrate::pending(found, SqlDialect::Postgres)?.is_empty() {
            let mut open = connection.begin().await.map_err(fail)?;
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(UPGRADE_LOCK)
                .execute(&mut *open)
                .await
                .map_err(fail)?;
            migrate::upgrade_in!(&mut open, SqlDialect::Postgres, fail);
            open.commit().await.map_err(fail)?;
        }
        connection.close().await.ok();
        Ok(())
    }
}

async fn version(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let row = sqlx::query("SELECT to_regclass('ledger_schema') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !row.try_get::<bool, usize>(0)? {
        return Ok(0);
    }
    let row = sqlx::query(migrate::READ_VERSION)
        .fetch_one(connection)
        .await?;
    Ok(row.try_get::<Option<i64>, usize>(0)?.unwrap_or(0))
}

impl Engine for PostgresEngine {
    fn begin(&self, access: StoreAccess) -> StoreFuture<'_, Box<dyn StoreTx>> {
        Box::pin(async move {
            let got = self.connections.acquire().await;
            let connection = got.map_err(|error| failed(&error))?;
            let statements = Arc::clone(&self.statements);
            let tx: Box<dyn StoreTx> = Box::new(PostgresTx::new(connection, access, statements));
            Ok(tx)
        })
    }

    fn migrate(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.upgrade())
    }

    fn announce(&self) {
        Announcer::tell(&self.announcer, &self.statements);
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.announcer.wait().await;
            Ok(())
        })
    }

    fn listen(&self) -> StoreFuture<'_, StoreNotifications> {
        Box::pin(async move {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .connect_lazy_with(self.options.clone());
            let fail = |error: sqlx::Error| failed(&error);
            let mut listener = PgListener::connect_with(&pool).await.map_err(fail)?;
            listener.listen(CHANNEL).await.map_err(fail)?;
            Ok(StoreNotifications::postgres(listener))
        })
    }

    fn memory_writes(&self) -> MemoryWriteMode {
        MemoryWriteMode::AtOnce
    }

    fn write(&self, change: StoreChange) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.write(change))
    }

    fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.announcer.wait().await;
            self.announcer.notify_pool.close().await;
            self.connections.close().await;
            Ok(())
        })
    }
}

/// Tells listeners after a commit, on a connection of its own.
///
/// NOTIFY inside the transaction would queue all commits one behind the other: the
/// server holds a lock from the notification until the commit is on disk. Told
/// afterwards, several changes become one notification, and a busy ledger is not kept busy by its
/// notifications.
struct Announcer {
    notify_pool: PgPool,
    state: Mutex<AnnounceState>,
    /// When the next notification may be given.
    next: Mutex<Instant>,
    told: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AnnounceState {
    Nothing,
    Once,
    /// Something changed after the notification that is on its way.
    Again,
}

impl Announcer {
    fn state(&self) -> std::sync::MutexGuard<'_, AnnounceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a notification may be given: at once, if none was given a moment ago.
    fn next_notification_at(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(Instant::now());
        *next = at + NOTIFICATION_INTERVAL;
        at
    }

    fn tell(this: &Arc<Announcer>, statements: &Arc<AtomicU64>) {
        let mut state = this.state();
        if *state != AnnounceState::Nothing {
            *state = AnnounceState::Again;
            return;
        }
        *state = AnnounceState::Once;
        drop(state);
        let (this, statements) = (Arc::clone(this), Arc::clone(statements));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(this.next_notification_at()).await;
                *this.state() = AnnounceState::Once;
                statements.fetch_add(1, Ordering::Relaxed);
                // A notification that cannot be given is none: everybody looks regularly.
                let _ = sqlx::query("SELECT pg_notify($1, '')")
                    .bind(CHANNEL)
                    .execute(&this.notify_pool)
                    .await;
                let mut state = this.state();
                if *state == AnnounceState::Again {
                    continue;
                }
                *state = AnnounceState::Nothing;
                this.told.notify_waiters();
                break;
            }
        });
    }

    async fn wait(&self) {
        loop {
            let told = self.told.notified();
            if *self.state() == AnnounceState::Nothing {
                return;
            }
            told.await;
        }
    }
}
