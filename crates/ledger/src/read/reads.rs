//! Looking at the ledger without changing it.

use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{Task, TaskId, TaskState, Timestamp};

use crate::call::facts;
use crate::call::records;
use crate::call::records::lease_columns;
use crate::claim::context;
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::store::engine::{SqlArg, SqlText, StoreAccess, StoreTx, all, run};

/// Which tasks are listed.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// In that state.
    pub state: Option<TaskState>,
    /// Of that role.
    pub role: Option<String>,
    /// After that id, for the next page.
    pub after: Option<TaskId>,
    /// At most so many; 0: a hundred.
    pub limit: u32,
}

const LIST: SqlText = SqlText {
    sqlite: "SELECT doc FROM tasks WHERE id > $1 AND ($2 IS NULL OR state = $2) \
             AND ($3 IS NULL OR role = $3) ORDER BY id LIMIT $4",
    postgres: "SELECT doc FROM tasks WHERE id > $1 AND ($2::text IS NULL OR state = $2) \
               AND ($3::text IS NULL OR role = $3) ORDER BY id LIMIT $4",
};
const LIST_STATE: &str = "SELECT doc FROM tasks WHERE state = $2 AND id > $1 \
     AND (CAST($3 AS TEXT) IS NULL OR role = $3) ORDER BY id LIMIT $4";
pub(crate) const LEASES: &str = concat!(
    "SELECT ",
    lease_columns!(),
    " FROM leases l WHERE l.due_at <= $1 ORDER BY l.due_at, l.task_id LIMIT $2"
);
const DUE_BLOCKS: &str = "SELECT doc FROM tasks WHERE due_at IS NOT NULL AND due_at <= $1 \
     ORDER BY due_at, id LIMIT $2";
const DEADLINE: &str = "SELECT MIN(due_at) FROM leases UNION ALL \
     SELECT MIN(due_at) FROM tasks WHERE due_at IS NOT NULL AND due_at > $1";
const PUT_FLAG: &str = "INSERT INTO flags (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl Ledger {
    /// A row.
    pub async fn task(&self, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let loaded = facts::load(&mut *tx, id, None).await?;
        Ok(loaded.map(|loaded| loaded.task))
    }

    /// The lease of a task.
    pub async fn lease(&self, id: &TaskId) -> Result<Option<Lease>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let loaded = facts::load(&mut *tx, id, None).await?;
        Ok(loaded.and_then(|loaded| loaded.lease))
    }

    /// Rows, in the order of their ids.
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let limit = if filter.limit == 0 { 100 } else { filter.limit };
        let after = filter.after.as_ref().map_or("", |id| id.as_str());
        let args = [
            SqlArg::Text(after),
            SqlArg::MaybeText(filter.state.map(TaskState::as_str)),
            SqlArg::MaybeText(filter.role.as_deref()),
            SqlArg::Int(i64::from(limit)),
        ];
        let sql = if filter.state.is_some() {
            LIST_STATE.into()
        } else {
            LIST
        };
        docs(&mut *tx, sql, &args, records::task).await
    }

    /// The events of a task, oldest first.
    pub async fn events(&self, id: &TaskId) -> Result<Vec<TaskEvent>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        events_of(&mut *tx, id).await
    }

    /// The runs of a task, oldest first.
    pub async fn runs(&self, id: &TaskId) -> Result<Vec<TaskRun>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let sql = "SELECT doc FROM runs WHERE task_id = $1 ORDER BY number";
        docs(&mut *tx, sql, &[SqlArg::Text(id.as_str())], records::run).await
    }

    /// The locks that are held.
    pub async fn locks(&self) -> Result<Vec<ScopeLock>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        locks(&mut *tx).await
    }

    /// The leases that somebody must look at by then, the first ones first.
    pub async fn due_leases(&self, now: Timestamp, limit: u32) -> Result<Vec<Lease>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let args = [SqlArg::Int(now.0), SqlArg::Int(i64::from(limit))];
        leases(&mut *tx, &args).await
    }

    /// The blocked tasks whose clock has run out, the first ones first.
    pub async fn due_blocks(&self, now: Timestamp, limit: u32) -> Result<Vec<Task>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let args = [SqlArg::Int(now.0), SqlArg::Int(i64::from(limit))];
        docs(&mut *tx, DUE_BLOCKS, &args, records::task).await
    }

    /// When the next thing is due, a lease or a block that ends after that time. None: nothing
    /// before somebody writes.
    pub async fn next_deadline(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut first: Option<i64> = None;
        for row in all(&mut *tx, DEADLINE, &[SqlArg::Int(now.0)]).await? {
            let at = row.maybe_int(0)?;
            first = first.into_iter().chain(at).min();
        }
        Ok(first.map(Timestamp))
    }

    /// Whether nothing new may start in the whole fleet.
    pub async fn is_paused(&self) -> Result<bool, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        context::is_paused(&mut *tx).await
    }

    /// Lets nothing new start, or lets it start again.
    pub async fn set_paused(&self, paused: bool) -> Result<(), LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        put_flag(&mut *tx, "paused", if paused { "true" } else { "false" }).await?;
        tx.commit().await?;
        self.engine.announce();
        Ok(())
    }
}

pub(crate) async fn put_flag(
    tx: &mut dyn StoreTx,
    name: &str,
    value: &str,
) -> Result<(), StoreError> {
    run(tx, PUT_FLAG, &[SqlArg::Text(name), SqlArg::Text(value)])
        .await
        .map(drop)
}

/// Reads one column of JSON texts.
pub(crate) async fn docs<T>(
    tx: &mut dyn StoreTx,
    sql: impl Into<SqlText>,
    args: &[SqlArg<'_>],
    read: impl Fn(&str) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let rows = all(tx, sql, args).await?;
    rows.iter().map(|row| read(&row.text(0)?)).collect()
}

pub(crate) async fn events_of(
    tx: &mut dyn StoreTx,
    id: &TaskId,
) -> Result<Vec<TaskEvent>, StoreError> {
    let sql = "SELECT doc FROM events WHERE task_id = $1 ORDER BY version";
    docs(tx, sql, &[SqlArg::Text(id.as_str())], records::event).await
}

pub(crate) async fn locks(tx: &mut dyn StoreTx) -> Result<Vec<ScopeLock>, StoreError> {
    let sql = "SELECT task_id, resource FROM locks ORDER BY resource";
    let rows = all(tx, sql, &[]).await?;
    let lock = |row: &crate::store::engine::SqlRow| {
        Ok(ScopeLock {
            task_id: records::task_id(&row.text(0)?)?,
            resource: context::resource(&row.text(1)?)?,
        })
    };
    rows.iter().map(lock).collect()
}

pub(crate) async fn leases(
    tx: &mut dyn StoreTx,
    args: &[SqlArg<'_>],
) -> Result<Vec<Lease>, StoreError> {
    let rows = all(tx, LEASES, args).await?;
    let mut leases = Vec::new();
    for row in &rows {
        leases.extend(records::lease(row, 0)?);
    }
    Ok(leases)
}

/// The ids of all tasks that have events, in order.
pub(crate) async fn all_ids(tx: &mut dyn StoreTx) -> Result<Vec<TaskId>, StoreError> {
    let sql = "SELECT DISTINCT task_id FROM events ORDER BY task_id";
    let rows = all(tx, sql, &[]).await?;
    rows.iter()
        .map(|row| records::task_id(&row.text(0)?))
        .collect()
}
