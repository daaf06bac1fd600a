//! A writing transaction on SQLite, in as few messages as it can be said.
//!
//! Every statement is a message to the thread that owns the connection, and an answer. What
//! nobody waits for, the beginning included, is kept until something is asked, and then said
//! together with that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runner_lifecycle::lock::Resource;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::sync::OwnedMutexGuard;

use crate::error::StoreError;
use crate::store::engine::{SqlArg, SqlRow, SqlText, StoreFuture, StoreTx};
use crate::store::pool::PooledConnection;
use crate::store::sqlite::{failed, json};

/// A write lock from the beginning: one that is taken later can fail.
const BEGIN: &str = "BEGIN IMMEDIATE";
/// How many values wait at most.
const ROOM: usize = 500;

/// A value that waits.
enum SqlValue {
    Int(Option<i64>),
    Text(Option<String>),
}

impl From<&SqlArg<'_>> for SqlValue {
    fn from(arg: &SqlArg<'_>) -> SqlValue {
        match *arg {
            SqlArg::Int(number) => SqlValue::Int(Some(number)),
            SqlArg::MaybeInt(number) => SqlValue::Int(number),
            SqlArg::Text(text) => SqlValue::Text(Some(text.to_owned())),
            SqlArg::MaybeText(text) => SqlValue::Text(text.map(str::to_owned)),
            SqlArg::Texts(texts) => SqlValue::Text(Some(json(texts))),
            SqlArg::Ints(numbers) => SqlValue::Text(Some(json(numbers))),
        }
    }
}

/// Statements that are said together.
#[derive(Default)]
struct SqlScript {
    text: String,
    values: Vec<SqlValue>,
}

impl SqlScript {
    fn push(&mut self, sql: &str, args: &[SqlArg<'_>]) {
        if !self.text.is_empty() {
            self.text.push_str("; ");
        }
        renumber(&mut self.text, sql, self.values.len());
        self.values.extend(args.iter().map(SqlValue::from));
    }

    fn query<'q>(self) -> Query<'q, Sqlite, SqliteArguments> {
        let query = sqlx::query(AssertSqlSafe(self.text));
        self.values
            .into_iter()
            .fold(query, |query, value| match value {
                SqlValue::Int(number) => query.bind(number),
                SqlValue::Text(text) => query.bind(text),
            })
    }
}

/// Adds a statement whose first value, `$1`, comes after so many others.
fn renumber(to: &mut String, sql: &str, after: usize) {
    let mut parts = sql.split('$');
    to.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        match number.parse::<usize>() {
            Ok(number) => {
                to.push('$');
                to.push_str(&(number + after).to_string());
            }
            // Not a value: a path inside a document.
            Err(_) => to.push('$'),
        }
        to.push_str(rest);
    }
}

/// Says what waits, and notes that the connection has answered.
macro_rules! ask {
    ($tx:expr, $how:ident) => {{
        $tx.begun = true;
        $tx.statements.fetch_add(1, Ordering::Relaxed);
        let gone = || StoreError::Other("the transaction is over".to_owned());
        let pooled = $tx.connection.as_mut().ok_or_else(gone)?;
        let connection = pooled.ask().ok_or_else(gone)?;
        let script = std::mem::take(&mut $tx.waiting);
        let answer = script.query().$how(connection).await;
        pooled.answered(&answer);
        answer.map_err(|error| failed(&error))
    }};
}

pub(crate) struct SqliteWriter {
    /// None once it is given back.
    connection: Option<PooledConnection<Sqlite>>,
    waiting: SqlScript,
    /// Whether a transaction is open, or may be: said before the thread is told.
    begun: bool,
    statements: Arc<AtomicU64>,
    /// Nobody else of this process writes before it is given back.
    turn: Option<OwnedMutexGuard<()>>,
}

impl SqliteWriter {
    pub(crate) fn new(
        connection: PooledConnection<Sqlite>,
        statements: Arc<AtomicU64>,
        turn: OwnedMutexGuard<()>,
    ) -> SqliteWriter {
        let mut waiting = SqlScript::default();
        waiting.push(BEGIN, &[]);
        SqliteWriter {
            connection: Some(connection),
            waiting,
            begun: false,
            statements,
            turn: Some(turn),
        }
    }

    async fn send(&mut self) -> Result<(), StoreError> {
        if self.waiting.text.is_empty() {
            return Ok(());
        }
        ask!(self, execute).map(drop)
    }
}

impl StoreTx for SqliteWriter {
    fn run<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            // Alone: together with others it would be counted together with them.
            self.send().await?;
            self.waiting.push(sql.sqlite, args);
            Ok(ask!(self, execute)?.rows_affected())
        })
    }

    fn rows<'a>(
        &'a mut self,
        sql: SqlText,
        args: &'a [SqlArg<'a>],
    ) -> StoreFuture<'a, Vec<SqlRow>> {
        Box::pin(async move {
            self.waiting.push(sql.sqlite, args);
            let rows = ask!(self, fetch_all)?;
            Ok(rows.into_iter().map(SqlRow::Sqlite).collect())
        })
    }

    fn later<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if self.waiting.values.len() + args.len() > ROOM {
                self.send().await?;
            }
            self.waiting.push(sql.sqlite, args);
            Ok(())
        })
    }

    fn finish_deferred(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.send())
    }

    fn is_lone_writer(&self) -> bool {
        true
    }

    fn serialise_scope<'a>(&'a mut self, _scope: &'a [Resource]) -> StoreFuture<'a, ()> {
        // There is one writer at a time.
        Box::pin(async { Ok(()) })
    }

    fn commit(mut self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move {
            if !self.begun && self.waiting.text == BEGIN {
                return Ok(());
            }
            self.waiting.push("COMMIT", &[]);
            self.send().await?;
            self.begun = false;
            Ok(())
        })
    }

    fn rollback(mut self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move {
            if self.begun
                && let Some(connection) = self.connection.take()
            {
                undo(connection).await;
            }
            Ok(())
        })
    }
}

/// Ends what is open, if anything is.
async fn undo(mut pooled: PooledConnection<Sqlite>) {
    let Some(connection) = pooled.ask() else {
        return;
    };
    let undone = connection.execute("ROLLBACK").await;
    pooled.answered(&undone);
    // What could not begin, or was undone by the failure itself, is over.
    let over = |error: &sqlx::Error| error.to_string().contains("no transaction is active");
    if undone.is_err_and(|error| !over(&error)) {
        pooled.close();
    }
}

impl Drop for SqliteWriter {
    /// A connection with an open transaction is not given back before that is undone, and
    /// nobody else's turn comes before.
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(|_| self.begun) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Nobody is left who could wait for it: closed it is undone.
            connection.cut();
            return;
        };
        let turn = self.turn.take();
        runtime.spawn(async move {
            undo(connection).await;
            drop(turn);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_next_statement_are_counted_on() {
        let mut script = SqlScript::default();
        script.push(
            "UPDATE a SET x = $2 WHERE id = $1",
            &[SqlArg::Int(1), SqlArg::Int(2)],
        );
        script.push(
            "SELECT json_extract(doc, '$.x'), $1, $12",
            &[SqlArg::Text("t")],
        );
        assert_eq!(
            script.text,
            "UPDATE a SET x = $2 WHERE id = $1; SELECT json_extract(doc, '$.x'), $3, $14"
        );
        assert_eq!(script.values.len(), 3);
    }
}
