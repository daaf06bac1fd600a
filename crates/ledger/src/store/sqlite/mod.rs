//! SQLite: one file, for the processes of one machine.

mod read;
pub(crate) mod tx;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runner_lifecycle::lock::Resource;
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::{
    Sqlite, SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool,
    SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection as _, Row as _, SqliteConnection, Transaction};
use tokio::sync::{Mutex, watch};

use crate::error::StoreError;
use crate::store::engine::{
    Engine, MemoryWriteMode, SqlArg, SqlRow, SqlText, StoreAccess, StoreFuture, StoreTx,
};
use crate::store::migrate;
use crate::store::migrate::SqlDialect;
use crate::store::notifications;
use crate::store::notifications::StoreNotifications;
use crate::store::pool::ConnectionPool;
use crate::store::sqlite::tx::SqliteWriter;

/// How long a writer waits for the writers of other processes.
const BUSY: Duration = Duration::from_secs(20);

/// A file.
pub(crate) struct SqliteEngine {
    pool: SqlitePool,
    /// Keeps a connection for the writer, unless that is the only one.
    connections: Arc<ConnectionPool<Sqlite>>,
    heard: NotifyChannel,
    /// Writers of this process queue here, in order; only those of other processes wait
    /// for the file.
    writer: Arc<Mutex<()>>,
    statements: Arc<AtomicU64>,
}

/// How those who listen hear of a change.
enum NotifyChannel {
    /// By a file that every writer touches.
    Sidecar(PathBuf),
    /// Inside this process alone.
    Here(watch::Sender<u64>),
}

impl SqliteEngine {
    /// A store without a file. It is its one connection, which is never replaced.
    pub(crate) async fn in_memory() -> Result<SqliteEngine, StoreError> {
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(SqliteConnectOptions::new().in_memory(true))
            .await
            .map_err(|error| failed(&error))?;
        let heard = NotifyChannel::Here(watch::Sender::new(0));
        Ok(SqliteEngine::new(pool, heard))
    }

    fn new(pool: SqlitePool, heard: NotifyChannel) -> SqliteEngine {
        let room = usize::from(pool.options().get_max_connections() > 1);
        SqliteEngine {
            connections: ConnectionPool::new(pool.clone(), room),
            pool,
            heard,
            writer: Arc::new(Mutex::new(())),
            statements: Arc::new(AtomicU64::new(0)),
        }
    }

    pub(crate) async fn open(
        path: &Path,
        connections: u32,
        read_only: bool,
    ) -> Result<SqliteEngine, StoreError> {
        if read_only {
            return SqliteEngine::open_to_read(path, connections).await;
        }
        make_folder(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY);
        SqliteEngine::with(path, options, connections).await
    }

    async fn with(
        path: &Path,
        options: SqliteConnectOptions,
        connections: u32,
    ) -> Result<SqliteEngine, StoreError> {
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(BUSY)
            .test_before_acquire(false)
            // A transaction that SQLite ended by itself, as on a full disk, is still counted
            // as open: such a connection could begin no other one.
            .before_acquire(|open, _| Box::pin(async move { Ok(!open.is_in_transaction()) }))
            .connect_with(options)
            .await
            .map_err(|error| failed(&error))?;
        let heard = NotifyChannel::Sidecar(read::beside(path, "-hint"));
        Ok(SqliteEngine::new(pool, heard))
    }

    /// The schema that the file has; 0 for an empty one.
    async fn version(&self) -> Result<i64, sqlx::Error> {
        let there = sqlx::query("SELECT 1 FROM sqlite_master WHERE name = 'ledger_schema'")
            .fetch_optional(&self.pool)
            .await?;
        if there.is_none() {
            return Ok(0);
        }
        let row = sqlx::query(migrate::READ_VERSION)
            .fetch_one(&self.pool)
            .await?;
        Ok(row.try_get::<Option<i64>, usize>(0)?.unwrap_or(0))
    }

    async fn upgrade(&self) -> Result<(), StoreError> {
        let found = self.version().await.map_err(|error| failed(&error))?;
        if migrate::pending(found, SqlDialect::Sqlite)?.is_empty() {
            return Ok(());
        }
        let fail = |error: sqlx::Error| match failed(&error) {
            StoreError::ReadOnly(words) => StoreError::ReadOnly(format!(
                "{words}; its schema is {found}, this program needs {}: use it once where it can \
                 be written",
                migrate::SCHEMA
            )),
            other => other,
        };
        let mut open = self
            .pool
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(fail)?;
        migrate::upgrade_in!(&mut open, SqlDialect::Sqlite, fail);
        open.commit().await.map_err(fail)
    }
}

impl Engine for SqliteEngine {
    fn begin(&self, access: StoreAccess) -> StoreFuture<'_, Box<dyn StoreTx>> {
        Box::pin(async move {
            let statements = Arc::clone(&self.statements);
            if access != StoreAccess::Read {
                let turn = Arc::clone(&self.writer).lock_owned().await;
                let open = self.connections.acquire().await.map_err(|e| failed(&e))?;
                let tx: Box<dyn StoreTx> = Box::new(SqliteWriter::new(open, statements, turn));
                return Ok(tx);
            }
            if matches!(self.heard, NotifyChannel::Here(_)) {
                // The one connection belongs to this reader until it is through.
                let open = self.pool.acquire().await.map_err(|e| failed(&e))?;
                let tx: Box<dyn StoreTx> = Box::new(LoneReader { open, statements });
                return Ok(tx);
            }
            self.statements.fetch_add(1, Ordering::Relaxed);
            let open = self
                .pool
                .begin_with("BEGIN")
                .await
                .map_err(|e| failed(&e))?;
            let tx: Box<dyn StoreTx> = Box::new(SqliteReader { open, statements });
            Ok(tx)
        })
    }

    fn migrate(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.upgrade())
    }

    fn announce(&self) {
        // A notification that cannot be given is none: everybody looks regularly.
        match &self.heard {
            NotifyChannel::Sidecar(path) => drop(notifications::touch(path)),
            NotifyChannel::Here(changes) => changes.send_modify(|count| *count += 1),
        }
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn listen(&self) -> StoreFuture<'_, StoreNotifications> {
        Box::pin(async move {
            match &self.heard {
                NotifyChannel::Sidecar(path) => StoreNotifications::sidecar(path),
                NotifyChannel::Here(changes) => Ok(StoreNotifications::here(changes.subscribe())),
            }
        })
    }

    fn memory_writes(&self) -> MemoryWriteMode {
        MemoryWriteMode::StepByStep
    }

    fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.connections.close().await;
            Ok(())
        })
    }
}

fn make_folder(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent().filter(|one| !one.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|error| {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
        let words = format!("{}: {error}", folder.display());
        match error.kind() {
            StorageFull => StoreError::Full(words),
            ReadOnlyFilesystem | PermissionDenied => StoreError::ReadOnly(words),
            _ => StoreError::Unavailable(words),
        }
    })
}

/// Reads, all of it at one point in time.
struct SqliteReader {
    open: Transaction<'static, Sqlite>,
    statements: Arc<AtomicU64>,
}

impl StoreTx for SqliteReader {
    fn run<'a>(&'a mut self, _sql: SqlText, _args: &'a [SqlArg<'a>]) -> StoreFuture<'a, u64> {
        Box::pin(async { Err(StoreError::ReadOnly("a reader".to_owned())) })
    }

    fn rows<'a>(
        &'a mut self,
        sql: SqlText,
        args: &'a [SqlArg<'a>],
    ) -> StoreFuture<'a, Vec<SqlRow>> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        Box::pin(rows_of(&mut self.open, sql, args))
    }

    fn serialise_scope<'a>(&'a mut self, _scope: &'a [Resource]) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn commit(self: Box<Self>) -> StoreFuture<'static, ()> {
        self.rollback()
    }

    fn rollback(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move { self.open.rollback().await.map_err(|error| failed(&error)) })
    }
}

/// Reads from the one connection of a store in memory: nobody else can, so that this is
/// one point in time without a transaction.
struct LoneReader {
    open: PoolConnection<Sqlite>,
    statements: Arc<AtomicU64>,
}

impl StoreTx for LoneReader {
    fn run<'a>(&'a mut self, _sql: SqlText, _args: &'a [SqlArg<'a>]) -> StoreFuture<'a, u64> {
        Box::pin(async { Err(StoreError::ReadOnly("a reader".to_owned())) })
    }

    fn rows<'a>(
        &'a mut self,
        sql: SqlText,
        args: &'a [SqlArg<'a>],
    ) -> StoreFuture<'a, Vec<SqlRow>> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        Box::pin(rows_of(&mut self.open, sql, args))
    }

    fn serialise_scope<'a>(&'a mut self, _scope: &'a [Resource]) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn commit(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async { Ok(()) })
    }

    fn rollback(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async { Ok(()) })
    }
}

async fn rows_of(
    open: &mut SqliteConnection,
    sql: SqlText,
    args: &[SqlArg<'_>],
) -> Result<Vec<SqlRow>, StoreError> {
    let rows = bound(sql.sqlite, args).fetch_all(open).await;
    rows.map(|rows| rows.into_iter().map(SqlRow::Sqlite).collect())
        .map_err(|error| failed(&error))
}

fn bound<'q>(sql: &'static str, args: &[SqlArg<'_>]) -> Query<'q, Sqlite, SqliteArguments> {
    args.iter().fold(sqlx::query(sql), |query, arg| match *arg {
        SqlArg::Int(number) => query.bind(number),
        SqlArg::MaybeInt(number) => query.bind(number),
        SqlArg::Text(text) => query.bind(text.to_owned()),
        SqlArg::MaybeText(text) => query.bind(text.map(str::to_owned)),
        SqlArg::Texts(texts) => query.bind(json(texts)),
        SqlArg::Ints(numbers) => query.bind(json(numbers)),
    })
}

pub(crate) fn json<T: serde::Serialize>(list: &[T]) -> String {
    serde_json::to_string(list).unwrap_or_default()
}

/// What an error of SQLite means.
pub(crate) fn failed(error: &sqlx::Error) -> StoreError {
    let words = error.to_string();
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    let code: Option<i32> = code.and_then(|code| code.parse().ok());
    match (error, code) {
        (sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed, _) => {
            StoreError::Unavailable(words)
        }
        (_, Some(code)) => of_code(code, words),
        _ => StoreError::Other(words),
    }
}

/// What a result code of SQLite means; its low byte is the primary one.
fn of_code(code: i32, words: String) -> StoreError {
    match code & 0xff {
        // BUSY, LOCKED, and PROTOCOL: too many races for the log were lost in a row.
        5 | 6 | 15 => StoreError::Contention(words),
        // CONSTRAINT: of a primary key, or unique, or of what is compared before it is
        // written.
        19 if matches!(code, 1555 | 2067 | 275) => StoreError::Contention(words),
        13 => StoreError::Full(words),
        8 => StoreError::ReadOnly(words),
        // CANTOPEN, PERM
        14 | 3 => StoreError::Unavailable(words),
        // CORRUPT, NOTADB
        11 | 26 => StoreError::Damaged(words),
        _ => StoreError::Other(words),
    }
}

#[cfg(test)]
mod tests {
    use runner_lifecycle::lock::Resource;
    use runner_lifecycle::request::NewTask;
    use runner_lifecycle::{Request, TaskId};

    use super::*;
    use crate::{Ledger, LedgerCall, LedgerError, LedgerOptions};

    #[test]
    fn what_others_are_the_cause_of_is_tried_again() {
        // BUSY, BUSY_RECOVERY, BUSY_SNAPSHOT, LOCKED, PROTOCOL, a key that is there by now,
        // what is no longer so
        for code in [5, 261, 517, 6, 15, 1555, 2067, 275] {
            let meant = of_code(code, String::new());
            assert_eq!(meant, StoreError::Contention(String::new()), "{code}");
        }
        // READONLY_DIRECTORY, a column that may not be empty
        assert_eq!(
            of_code(1544, String::new()),
            StoreError::ReadOnly(String::new())
        );
        assert_eq!(
            of_code(1299, String::new()),
            StoreError::Other(String::new())
        );
    }

    /// What an older program wrote is there after the upgrade.
    #[tokio::test]
    async fn an_older_file_is_brought_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let run = |text: String| {
            let pool = pool.clone();
            async move {
                let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(text));
                sql.execute(&pool).await.map(drop).unwrap();
            }
        };
        run(migrate::CREATE_VERSION_TABLE.to_owned()).await;
        for (version, text) in migrate::pending(0, SqlDialect::Sqlite).unwrap() {
            if version > 3 {
                break;
            }
            run(text).await;
            run(format!("INSERT INTO ledger_schema VALUES ({version})")).await;
        }
        for text in [
            "INSERT INTO events (task_id, version, to_state, created_at, doc) \
             VALUES ('t', 1, 'todo', 7, '{}'), ('t', 2, 'in_progress', 8, '{}')",
            "INSERT INTO leases VALUES ('t', 't-1', 'w', 3, 'work', 'k', 1, 2, 90, 15, 4, 5)",
            "INSERT INTO locks VALUES ('src', 't')",
            "INSERT INTO receipts VALUES ('t', 2, '{}')",
        ] {
            run(text.to_owned()).await;
        }
        let engine = SqliteEngine::open(&path, 1, false).await.unwrap();
        engine.migrate().await.unwrap();
        let mut tx = engine.begin(StoreAccess::Read).await.unwrap();
        let sql = "SELECT l.owner || l.token || l.due_at || h.resource || r.doc || e.seq \
             || e.to_state FROM leases l JOIN locks h ON h.task_id = l.task_id \
             JOIN receipts r ON r.task_id = l.task_id JOIN events e ON e.task_id = l.task_id \
             ORDER BY e.seq";
        let rows = tx.rows(sql.into(), &[]).await.unwrap();
        let texts: Vec<String> = rows.iter().map(|row| row.text(0).unwrap()).collect();
        assert_eq!(texts, ["w35src{}1todo", "w35src{}2in_progress"]);
        drop(tx);
        let gone = sqlx::query("DELETE FROM events").execute(&pool).await;
        assert!(gone.is_err(), "events are still guarded");
    }

    /// As SQLite does it on a full disk or a failing one.
    #[tokio::test]
    async fn a_transaction_that_sqlite_ends_by_itself_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let engine = SqliteEngine::open(&path, 1, false).await.unwrap();
        let end = SqlText {
            sqlite: "ROLLBACK",
            postgres: "",
        };
        for access in [StoreAccess::Read, StoreAccess::Write] {
            let mut tx = engine.begin(access).await.unwrap();
            tx.rows(end, &[]).await.unwrap();
            assert!(tx.commit().await.is_err());
            let mut tx = engine.begin(access).await.unwrap();
            tx.rows(end, &[]).await.unwrap();
            drop(tx);
        }
        engine.begin(StoreAccess::Write).await.unwrap();
    }

    /// A disk that is full, at the size of this file.
    #[tokio::test]
    async fn a_full_disk_leaves_nothing_half_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let plain = Ledger::open(
            &crate::Store::Sqlite(path.clone()),
            LedgerOptions::default(),
        )
        .await
        .unwrap();
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .pragma("max_page_count", "80");
        let engine = SqliteEngine::with(&path, options, 1).await.unwrap();
        let full = Ledger::on(Arc::new(engine), false, LedgerOptions::default())
            .await
            .unwrap();
        let mut made = 0;
        let error = loop {
            let id = TaskId::parse(&format!("t{made}")).unwrap();
            let mut new = NewTask::new(id.clone(), Resource::parse("src").unwrap());
            new.goal = "x".repeat(3000);
            match full
                .call(&LedgerCall::new(id, "planner", Request::Create(new)))
                .await
            {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 1000, "the disk is never full");
        };
        assert!(
            matches!(error, LedgerError::Store(StoreError::Full(_))),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("disk is full, nothing was written")
        );
        let findings = plain.check().await.unwrap();
        assert!(findings.is_clean(), "{findings:#?}");
        assert_eq!((findings.tasks, findings.events), (made, made));
    }
}
