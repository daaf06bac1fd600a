//! What a store must be able to do. Two do: SQLite and PostgreSQL.
//!
//! Everything above these traits is written once. Statements have the same text for
//! both where they can (`$1` is understood by both), and are a [`SqlText`] pair where not.

use std::pin::Pin;

use runner_lifecycle::lock::Resource;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use crate::call::change::StoreChange;
use crate::error::StoreError;
use crate::store::notifications::StoreNotifications;

/// A result that comes later.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A statement, as each engine wants it.
#[derive(Clone, Copy, Debug)]
pub struct SqlText {
    /// For SQLite.
    pub sqlite: &'static str,
    /// For PostgreSQL.
    pub postgres: &'static str,
}

impl From<&'static str> for SqlText {
    fn from(both: &'static str) -> SqlText {
        SqlText {
            sqlite: both,
            postgres: both,
        }
    }
}

/// A value for a statement.
#[derive(Clone, Copy, Debug)]
pub enum SqlArg<'a> {
    /// A number.
    Int(i64),
    /// A number, or nothing.
    MaybeInt(Option<i64>),
    /// A text.
    Text(&'a str),
    /// A text, or nothing.
    MaybeText(Option<&'a str>),
    /// A list of texts: an array on PostgreSQL, its JSON on SQLite.
    Texts(&'a [String]),
    /// A list of numbers, likewise.
    Ints(&'a [i64]),
}

/// One row of an answer.
#[derive(Debug)]
pub enum SqlRow {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of PostgreSQL.
    Postgres(PgRow),
}

macro_rules! getter {
    ($(#[$meta:meta])* $name:ident, $type:ty) => {
        $(#[$meta])*
        pub fn $name(&self, at: usize) -> Result<$type, StoreError> {
            let got = match self {
                SqlRow::Sqlite(row) => row.try_get::<$type, usize>(at),
                SqlRow::Postgres(row) => row.try_get::<$type, usize>(at),
            };
            got.map_err(|error| StoreError::Damaged(error.to_string()))
        }
    };
}

impl SqlRow {
    getter!(
        /// The number in that column.
        int,
        i64
    );
    getter!(
        /// The number in that column, if there is one.
        maybe_int,
        Option<i64>
    );
    getter!(
        /// The text in that column.
        text,
        String
    );
    getter!(
        /// The text in that column, if there is one.
        maybe_text,
        Option<String>
    );
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAccess {
    /// Reading, all of it at one point in time.
    Read,
    /// Changing something.
    Write,
    /// Reading, and then writing at once what was decided. A store that can compare what
    /// was read with what is there when it writes opens no transaction for it.
    Once,
}

/// Which task a worker wants.
#[derive(Clone, Copy, Debug)]
pub struct ClaimPick<'a> {
    /// Who claims.
    pub owner: &'a str,
    /// The owner's name for the claim.
    pub key: &'a str,
    /// The role whose tasks it gets.
    pub role: &'a str,
    /// The one lane to take from.
    pub lane: Option<&'a str>,
    /// The time; none: that of the server.
    pub now: Option<i64>,
    /// After how many milliseconds of waiting a scope is kept free.
    pub reserve_after: i64,
    /// Whether the claim may have been made before: what it got is looked for first.
    pub repeated: bool,
}

/// Which tasks several workers want.
#[derive(Clone, Copy, Debug)]
pub struct BatchPick<'a> {
    /// The role whose tasks they get.
    pub role: &'a str,
    /// The one lane to take from.
    pub lane: Option<&'a str>,
    /// The time; none: that of the server.
    pub now: Option<i64>,
    /// After how many milliseconds of waiting a scope is kept free.
    pub reserve_after: i64,
    /// How many they are.
    pub most: usize,
}

/// How a store writes what was decided from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryWriteMode {
    /// Not at all: what is there is read first.
    Never,
    /// In a transaction that compares first, and then writes step by step.
    StepByStep,
    /// By [`Engine::write`], which compares and writes at once.
    AtOnce,
}

/// A store.
pub trait Engine: Send + Sync {
    /// Begins a transaction.
    fn begin(&self, access: StoreAccess) -> StoreFuture<'_, Box<dyn StoreTx>>;

    /// Creates what is missing, refuses what is newer.
    fn migrate(&self) -> StoreFuture<'_, ()>;

    /// Tells everybody who listens that something has changed. A notification: it may be lost.
    fn announce(&self);

    /// Waits until everything that was announced is told.
    fn flush(&self) -> StoreFuture<'_, ()>;

    /// Begins to listen.
    fn listen(&self) -> StoreFuture<'_, StoreNotifications>;

    /// How a decision is written from memory: all of it, where the store still has what it
    /// was decided by.
    fn memory_writes(&self) -> MemoryWriteMode {
        MemoryWriteMode::Never
    }

    /// Writes a decision where the store still has what it was decided by, together with
    /// those of others who come at the same time.
    fn write(&self, _change: StoreChange) -> StoreFuture<'_, ()> {
        Box::pin(async { Err(unknown_to_the_store()) })
    }

    /// How many statements were sent so far.
    fn statements(&self) -> u64;

    /// Closes every connection.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// An open transaction. Dropped without [`StoreTx::commit`] it leaves nothing.
pub trait StoreTx: Send {
    /// Runs a statement; how many rows it changed.
    fn run<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, u64>;

    /// Runs a query.
    fn rows<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>])
    -> StoreFuture<'a, Vec<SqlRow>>;

    /// Runs a statement that nobody waits for: now, or together with the next one. What is
    /// wrong with it is told then.
    fn later<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.run(sql, args).await.map(drop) })
    }

    /// Waits until everything that was put off is done.
    fn finish_deferred(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Whether nobody else writes before its end: no row needs a lock, and what must still
    /// be so is compared by statements of its own.
    fn is_lone_writer(&self) -> bool {
        false
    }

    /// Makes sure that nobody else tests or takes an overlapping scope before the end of
    /// this transaction.
    fn serialise_scope<'a>(&'a mut self, scope: &'a [Resource]) -> StoreFuture<'a, ()>;

    /// Whether what was read stays as it is until the end.
    fn holds(&self) -> bool {
        true
    }

    /// Whether it knows [`StoreTx::pick`], [`StoreTx::lineage`] and
    /// [`StoreTx::write_at_once`]. Otherwise all of that is done step by step.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// The first task in order with what its claim must know, its row locked and its scope
    /// serialised: the rows of `ledger_pick`.
    fn pick<'a>(&'a mut self, _wanted: ClaimPick<'a>) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(async { Err(unknown_to_the_store()) })
    }

    /// The first tasks in order, likewise.
    fn pick_some<'a>(&'a mut self, _wanted: BatchPick<'a>) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(async { Err(unknown_to_the_store()) })
    }

    /// What the end of a task must know about its lineage: the rows of `ledger_lineage`.
    fn lineage<'a>(&'a mut self, _task: &'a str) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(async { Err(unknown_to_the_store()) })
    }

    /// Says that the next decision is the last: it may be written and committed at once.
    fn last_write(&mut self) {}

    /// Writes whole decisions, all of which have the same parts.
    fn write_at_once<'a>(&'a mut self, _changes: &'a [StoreChange]) -> StoreFuture<'a, ()> {
        Box::pin(async { Err(unknown_to_the_store()) })
    }

    /// Ends it, and everything is written.
    fn commit(self: Box<Self>) -> StoreFuture<'static, ()>;

    /// Ends it, and nothing is written. Dropped it would end, too, a little later.
    fn rollback(self: Box<Self>) -> StoreFuture<'static, ()>;
}

fn unknown_to_the_store() -> StoreError {
    StoreError::Other("this store goes step by step".to_owned())
}

/// The first row, if there is one.
pub(crate) async fn one(
    tx: &mut dyn StoreTx,
    sql: impl Into<SqlText>,
    args: &[SqlArg<'_>],
) -> Result<Option<SqlRow>, StoreError> {
    Ok(tx.rows(sql.into(), args).await?.into_iter().next())
}

/// All rows.
pub(crate) async fn all(
    tx: &mut dyn StoreTx,
    sql: impl Into<SqlText>,
    args: &[SqlArg<'_>],
) -> Result<Vec<SqlRow>, StoreError> {
    tx.rows(sql.into(), args).await
}

/// Runs a statement that nobody waits for.
pub(crate) async fn later(
    tx: &mut dyn StoreTx,
    sql: impl Into<SqlText>,
    args: &[SqlArg<'_>],
) -> Result<(), StoreError> {
    tx.later(sql.into(), args).await
}

/// Runs a statement.
pub(crate) async fn run(
    tx: &mut dyn StoreTx,
    sql: impl Into<SqlText>,
    args: &[SqlArg<'_>],
) -> Result<u64, StoreError> {
    tx.run(sql.into(), args).await
}
