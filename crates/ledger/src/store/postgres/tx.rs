//! A transaction on PostgreSQL, in as few messages as it can be said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runner_lifecycle::lock::Resource;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::call::change::StoreChange;
use crate::call::records;
use crate::error::StoreError;
use crate::store::engine::{
    BatchPick, ClaimPick, SqlArg, SqlRow, SqlText, StoreAccess, StoreFuture, StoreTx,
};
use crate::store::pool::PooledConnection;
use crate::store::postgres::arguments::literal;
use crate::store::postgres::write;
use crate::store::postgres::write::{ChangeShape, ChangeStatement};

const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// One line after the other, in their order.
const SERIALISE: &str =
    "SELECT COUNT(ledger_lock_line(l.line)) FROM unnest(string_to_array($1, E'\\n')) l(line)";
const LINEAGE: &str = "SELECT l_task_id, l_run_id, l_owner, l_token, l_purpose, l_claim_key, \
     l_claimed_at, l_last_heartbeat_at, l_timeout_seconds, l_heartbeat_interval_seconds, \
     l_ends_at, kind, a, b, c FROM ledger_lineage($1)";

type Rows = Result<Vec<SqlRow>, StoreError>;

pub(crate) struct PostgresTx {
    /// None once it is given back.
    connection: Option<PooledConnection<Postgres>>,
    access: StoreAccess,
    /// Whether a transaction is open, or may be: said before the server is told.
    begun: bool,
    /// Whether the next write ends it.
    last: bool,
    statements: Arc<AtomicU64>,
}

/// Asks the connection something, and notes that it has answered.
macro_rules! ask {
    ($tx:expr, $connection:ident => $question:expr) => {{
        $tx.statements.fetch_add(1, Ordering::Relaxed);
        let pooled = $tx.connection.as_mut();
        let pooled =
            pooled.ok_or_else(|| StoreError::Other("the transaction is over".to_owned()))?;
        let gone = || StoreError::Other("the connection is gone".to_owned());
        let $connection = pooled.ask().ok_or_else(gone)?;
        let answer = $question.await;
        pooled.answered(&answer);
        answer.map_err(|error| failed(&error))
    }};
}

impl PostgresTx {
    pub(crate) fn new(
        connection: PooledConnection<Postgres>,
        access: StoreAccess,
        statements: Arc<AtomicU64>,
    ) -> PostgresTx {
        PostgresTx {
            connection: Some(connection),
            access,
            begun: false,
            last: false,
            statements,
        }
    }

    /// Opens a transaction, where one is wanted.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let how = match self.access {
            StoreAccess::Read => BEGIN_READ,
            StoreAccess::Write => BEGIN_WRITE,
            StoreAccess::Once => return Ok(()),
        };
        if !self.begun {
            self.begun = true;
            ask!(self, connection => connection.execute(how))?;
        }
        Ok(())
    }

    async fn end(mut self: Box<Self>, how: &'static str) -> Result<(), StoreError> {
        if self.begun {
            ask!(self, connection => connection.execute(how))?;
            self.begun = false;
        }
        Ok(())
    }

    /// Something that the connection knows by name, in one message with the beginning.
    async fn execute(&mut self, call: &str) -> Rows {
        let begin = if self.begun { "" } else { BEGIN_WRITE };
        let query = sqlx::raw_sql(AssertSqlSafe(format!("{begin}; EXECUTE {call}")));
        self.begun = true;
        let rows = ask!(self, connection => query.fetch_all(connection))?;
        Ok(rows.into_iter().map(SqlRow::Postgres).collect())
    }

    async fn fetch(&mut self, query: Query<'_, Postgres, PgArguments>) -> Rows {
        self.begin().await?;
        let rows = ask!(self, connection => query.fetch_all(connection))?;
        Ok(rows.into_iter().map(SqlRow::Postgres).collect())
    }
}

impl StoreTx for PostgresTx {
    fn run<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            self.begin().await?;
            let query = bound(sql.postgres, args);
            let done = ask!(self, connection => query.execute(connection))?;
            Ok(done.rows_affected())
        })
    }

    fn rows<'a>(
        &'a mut self,
        sql: SqlText,
        args: &'a [SqlArg<'a>],
    ) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(self.fetch(bound(sql.postgres, args)))
    }

    fn serialise_scope<'a>(&'a mut self, scope: &'a [Resource]) -> StoreFuture<'a, ()> {
        let query = sqlx::query(SERIALISE).bind(records::scope_lines(scope));
        Box::pin(async move { self.fetch(query).await.map(drop) })
    }

    fn holds(&self) -> bool {
        self.access != StoreAccess::Once
    }

    fn writes_at_once(&self) -> bool {
        true
    }

    fn pick<'a>(&'a mut self, wanted: ClaimPick<'a>) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(async move {
            let call = format!(
                "ledger_look({}, {}, {}, {}, {}, {}, {})",
                literal(wanted.owner)?,
                literal(wanted.key)?,
                literal(wanted.role)?,
                wanted.lane.map_or(Ok("NULL".to_owned()), literal)?,
                wanted.now.map_or("NULL".to_owned(), |now| now.to_string()),
                wanted.reserve_after,
                wanted.repeated
            );
            self.execute(&call).await
        })
    }

    fn pick_some<'a>(&'a mut self, wanted: BatchPick<'a>) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(async move {
            let call = format!(
                "ledger_look_around({}, {}, {}, {}, {})",
                literal(wanted.role)?,
                wanted.lane.map_or(Ok("NULL".to_owned()), literal)?,
                wanted.now.map_or("NULL".to_owned(), |now| now.to_string()),
                wanted.reserve_after,
                wanted.most
            );
            self.execute(&call).await
        })
    }

    fn lineage<'a>(&'a mut self, task: &'a str) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(self.fetch(sqlx::query(LINEAGE).bind(task)))
    }

    fn last_write(&mut self) {
        self.last = true;
    }

    fn write_at_once<'a>(&'a mut self, changes: &'a [StoreChange]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let Some(shape) = changes.first().map(ChangeShape::of) else {
                return Ok(());
            };
            if self.begun
                && self.last
                && let Some(message) = write::claim_and_commit(changes)?
            {
                let query = sqlx::raw_sql(AssertSqlSafe(message));
                ask!(self, connection => query.execute(connection))?;
                self.begun = false;
                return Ok(());
            }
            self.begin().await?;
            let query = ChangeStatement::of(shape, changes.len() > 1).query(changes);
            ask!(self, connection => query.execute(connection)).map(drop)
        })
    }

    fn commit(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(self.end("COMMIT"))
    }

    fn rollback(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(self.end("ROLLBACK"))
    }
}

impl Drop for PostgresTx {
    /// A connection with an open transaction is not given back before that is undone.
    fn drop(&mut self) {
        let Some(mut pooled) = self.connection.take().filter(|_| self.begun) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Nobody is left who could wait for it: the server undoes it.
            pooled.cut();
            return;
        };
        runtime.spawn(async move {
            let undone = match pooled.ask() {
                Some(connection) => connection.execute("ROLLBACK").await,
                None => return,
            };
            pooled.answered(&undone);
            if undone.is_err() {
                pooled.close();
            }
        });
    }
}

fn bound<'q>(sql: &'static str, args: &[SqlArg<'_>]) -> Query<'q, Postgres, PgArguments> {
    args.iter().fold(sqlx::query(sql), |query, arg| match *arg {
        SqlArg::Int(number) => query.bind(number),
        SqlArg::MaybeInt(number) => query.bind(number),
        SqlArg::Text(text) => query.bind(text.to_owned()),
        SqlArg::MaybeText(text) => query.bind(text.map(str::to_owned)),
        SqlArg::Texts(texts) => query.bind(texts.to_vec()),
        SqlArg::Ints(numbers) => query.bind(numbers.to_vec()),
    })
}

/// What an error of PostgreSQL means.
pub(crate) fn failed(error: &sqlx::Error) -> StoreError {
    let words = error.to_string();
    let Some(database) = error.as_database_error() else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::Damaged(words),
            sqlx::Error::Configuration(_) => StoreError::Other(words),
            _ => StoreError::Unavailable(words),
        };
    };
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
