//! Keeping tasks that cannot start out of the way of those that can.
//!
//! A task that meets a lock is taken out of the index of ready tasks and waits for that
//! lock by name. When the lock ends, the first of each queue that waits for it is put
//! back. It passes the word on when it leaves the index again, so that thousands may
//! wait for one lock and nobody ever looks at more than one of them.

use runner_lifecycle::ready::NotReady;
use runner_lifecycle::{Task, TaskId};

use crate::call::facts::LoadedTask;
use crate::error::StoreError;
use crate::store::engine::{SqlArg, SqlText, StoreTx, later, one};

/// What a task waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WakeKey {
    /// A lock on that resource.
    Lock(String),
    /// The merge of that task's result.
    Result(TaskId),
    /// The start of that task, which keeps its scope free.
    Reserved(TaskId),
    /// As it was stored.
    Stored(String),
}

impl WakeKey {
    pub(crate) fn text(&self) -> String {
        match self {
            WakeKey::Lock(resource) => format!("lock:{resource}"),
            WakeKey::Result(task) => format!("result:{task}"),
            WakeKey::Reserved(task) => format!("reserved:{task}"),
            WakeKey::Stored(text) => text.clone(),
        }
    }

    /// What ends, and then lets the task go on.
    pub(crate) fn of(not_ready: &NotReady) -> Option<WakeKey> {
        match not_ready {
            NotReady::Lock(lock) => Some(WakeKey::Lock(lock.resource.as_str().to_owned())),
            NotReady::Unmerged(task) => Some(WakeKey::Result(task.clone())),
            NotReady::Reserved(task) => Some(WakeKey::Reserved(task.clone())),
            _ => None,
        }
    }
}

const LOCK_HELD: SqlText = SqlText {
    sqlite: "SELECT 1 FROM locks WHERE resource = $1",
    postgres: "SELECT CAST(1 AS BIGINT) WHERE ledger_held('lock:' || $1)",
};
const RESULT_WAITS: SqlText = SqlText {
    sqlite: "SELECT 1 FROM unmerged WHERE task_id = $1",
    postgres: "SELECT CAST(1 AS BIGINT) WHERE ledger_held('result:' || $1)",
};
const RESERVER_WAITS: SqlText = SqlText {
    sqlite: "SELECT 1 FROM tasks WHERE id = $1 AND waits_for IS NOT NULL",
    postgres: "SELECT CAST(1 AS BIGINT) WHERE ledger_held('reserved:' || $1)",
};

/// Whether it is still there; then it cannot end before this transaction does, and
/// whoever ends it sees what this transaction wrote.
async fn is_held(tx: &mut dyn StoreTx, key: &WakeKey) -> Result<bool, StoreError> {
    let text = key.text();
    let (sql, name) = match text.split_once(':') {
        Some(("lock", resource)) => (LOCK_HELD, resource),
        Some(("result", task)) => (RESULT_WAITS, task),
        Some(("reserved", task)) => (RESERVER_WAITS, task),
        _ => return Ok(false),
    };
    Ok(one(tx, sql, &[SqlArg::Text(name)]).await?.is_some())
}

/// Takes a task out of the index until the key ends, unless it has just ended.
pub(crate) async fn put_aside(
    tx: &mut dyn StoreTx,
    loaded: &LoadedTask,
    key: &WakeKey,
) -> Result<(), StoreError> {
    if !is_held(tx, key).await? {
        return Ok(());
    }
    let text = key.text();
    let args = [SqlArg::Text(loaded.task.id.as_str()), SqlArg::Text(&text)];
    let sql = "UPDATE tasks SET waits_for = $2, woken_from = NULL WHERE id = $1";
    later(tx, sql, &args).await?;
    let word = loaded.woken_from.clone().map(WakeKey::Stored);
    wake(tx, &word.into_iter().collect::<Vec<_>>()).await
}

/// Who must be told when this row changes.
pub(crate) fn keys_to_wake(before: &LoadedTask, after: &Task) -> Vec<WakeKey> {
    let mut keys = Vec::new();
    let still_ready =
        crate::call::records::awaits(after, None) == Some(runner_lifecycle::LeasePurpose::Work);
    if !still_ready {
        keys.extend(before.woken_from.clone().map(WakeKey::Stored));
    }
    if before.waits_for.is_some() || before.woken_from.is_some() {
        keys.push(WakeKey::Reserved(before.task.id.clone()));
    }
    keys
}

const WAKE: SqlText = SqlText {
    sqlite: "WITH RECURSIVE q(queue) AS ( \
         SELECT (SELECT MIN(queue) FROM tasks WHERE waits_for = $1) UNION ALL \
         SELECT (SELECT MIN(t.queue) FROM tasks t \
         WHERE t.waits_for = $1 AND t.queue > q.queue) FROM q WHERE q.queue IS NOT NULL) \
         UPDATE tasks SET waits_for = NULL, woken_from = $1 WHERE waits_for = $1 AND id IN ( \
         SELECT (SELECT t.id FROM tasks t WHERE t.waits_for = $1 AND t.queue = q.queue \
         ORDER BY t.rank, t.created_at, t.id LIMIT 1) FROM q WHERE q.queue IS NOT NULL)",
    postgres: "SELECT ledger_wake($1)",
};

/// The same for whatever a task has locked, for a lone writer.
const WAKE_FOR_LOCKS: &str = "WITH RECURSIVE q(key, queue) AS ( \
     SELECT 'lock:' || h.resource, (SELECT MIN(t.queue) FROM tasks t \
     WHERE t.waits_for = 'lock:' || h.resource) FROM locks h WHERE h.task_id = $1 UNION ALL \
     SELECT q.key, (SELECT MIN(t.queue) FROM tasks t \
     WHERE t.waits_for = q.key AND t.queue > q.queue) FROM q WHERE q.queue IS NOT NULL) \
     UPDATE tasks SET waits_for = NULL, woken_from = waits_for \
     WHERE waits_for IS NOT NULL AND id IN ( \
     SELECT (SELECT t.id FROM tasks t WHERE t.waits_for = q.key AND t.queue = q.queue \
     ORDER BY t.rank, t.created_at, t.id LIMIT 1) FROM q WHERE q.queue IS NOT NULL)";

/// Puts the first of each queue that waits for a lock of the task back into the index.
pub(crate) async fn wake_for_locks(tx: &mut dyn StoreTx, task: &TaskId) -> Result<(), StoreError> {
    later(tx, WAKE_FOR_LOCKS, &[SqlArg::Text(task.as_str())]).await
}

/// Puts the first of each queue that waits for one of the keys back into the index.
pub(crate) async fn wake(tx: &mut dyn StoreTx, keys: &[WakeKey]) -> Result<(), StoreError> {
    for key in keys {
        let passed = matches!(key, WakeKey::Stored(_));
        if passed && is_held(tx, key).await? {
            continue;
        }
        let text = key.text();
        later(tx, WAKE, &[SqlArg::Text(&text)]).await?;
    }
    Ok(())
}
