//! Writing a decision: the row, its events, locks, lease, runs and receipt.

use std::collections::BTreeMap;

use runner_lifecycle::decide::{Decision, LeaseChange, LockChange};
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::order::rank;
use runner_lifecycle::request::{Dependency, DependencyChain};
use runner_lifecycle::run::{Lease, Receipt, TaskRun};
use runner_lifecycle::watchdog::{lease_deadline, next_deadline};
use runner_lifecycle::{LeasePurpose, Policy, Task, TaskId, TaskRunStatus, TaskState, Timestamp};

use crate::call::change;
use crate::call::change::{AnswerRecord, StoreChange};
use crate::call::facts;
use crate::call::facts::LoadedTask;
use crate::call::records;
use crate::call::records::int;
use crate::error::StoreError;
use crate::role::wakes;
use crate::role::wakes::WakeKey;
use crate::store::engine::{SqlArg, StoreTx, all, later, run};

/// Writes a decision about a row that was loaded, or about none.
pub(crate) async fn write(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    before: Option<&LoadedTask>,
    known: &[Dependency],
    decision: &Decision,
    request: Option<AnswerRecord>,
    now: Timestamp,
) -> Result<(), StoreError> {
    if decision.is_empty() && request.is_none() {
        return Ok(());
    }
    if tx.writes_at_once() && change::fits(before, decision) {
        let change = StoreChange::of(policy, before, decision, request, now)?;
        return tx.write_at_once(&[change]).await;
    }
    if !tx.holds() {
        // What was read may have changed, and going step by step nobody would notice.
        return Err(StoreError::Other(format!(
            "the change of task {} needs a transaction",
            decision.task.id
        )));
    }
    if let Some([name, digest, answer]) = request {
        record(tx, &decision.task.id, &name, &digest, &answer).await?;
    }
    let task = &decision.task;
    let newest = decision
        .runs
        .last()
        .or(before.and_then(|loaded| loaded.run.as_ref()));
    let mut ended = Vec::new();
    match (before, decision.expected_version) {
        _ if decision.events.is_empty() => {}
        (Some(loaded), Some(version)) => {
            update_row(tx, policy, task, newest, version).await?;
            ended.extend(wakes::keys_to_wake(loaded, task));
        }
        _ => insert_row(tx, policy, task, newest, known).await?,
    }
    append(tx, &decision.events).await?;
    for one in &decision.runs {
        put_run(tx, one, waited_millis(before, one)).await?;
    }
    match &decision.lease {
        LeaseChange::Keep => {}
        LeaseChange::Set(lease) => put_lease(tx, lease).await?,
        LeaseChange::End => {
            let id = SqlArg::Text(task.id.as_str());
            later(tx, "DELETE FROM leases WHERE task_id = $1", &[id]).await?;
        }
    }
    match &decision.locks {
        LockChange::Keep => {}
        LockChange::Take(scope) => take_locks(tx, task, scope).await?,
        LockChange::Release => ended.extend(release_locks(tx, task).await?),
    }
    ended.extend(mark_result(tx, before, task).await?);
    if let Some(receipt) = &decision.receipt {
        put_receipt(tx, receipt).await?;
    }
    if let Some(created) = &decision.created {
        let ids = &created.task.dependencies;
        facts::hold_chains(tx, ids).await?;
        let known = facts::dependencies(tx, ids).await?;
        insert_row(tx, policy, &created.task, None, &known).await?;
        append(tx, &created.events).await?;
    }
    let was_done = before.is_some_and(|loaded| loaded.task.state == TaskState::Done);
    if task.state == TaskState::Done && !was_done {
        meet_dependents(tx, task, now).await?;
    }
    wakes::wake(tx, &ended).await
}

const INSERT_ROW: &str = "INSERT INTO tasks (id, version, state, role, lane, queue, rank, \
     created_at, updated_at, blocked_on, retry_at, lineage, rework_of, superseded_by, awaits, doc, \
     due_at, scope, unmet, ready_since) VALUES \
     ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $9)";

const UPDATE_ROW: &str = "UPDATE tasks SET version = $2, state = $3, role = $4, lane = $5, \
     queue = $6, rank = $7, created_at = $8, updated_at = $9, blocked_on = $10, retry_at = $11, \
     lineage = $12, rework_of = $13, superseded_by = $14, awaits = $15, doc = $16, due_at = $17, \
     scope = $18, waits_for = NULL, \
     woken_from = CASE WHEN $15 = 'work' THEN woken_from ELSE NULL END, \
     ready_since = CASE WHEN $15 = 'work' THEN $9 ELSE ready_since END \
     WHERE id = $1 AND version = $19";

/// Refuses everything where the condition does not hold. For a lone writer.
macro_rules! compared {
    ($condition:literal) => {
        concat!(
            "INSERT INTO ledger_compared SELECT 0 WHERE NOT (",
            $condition,
            ")"
        )
    };
}

const SAME_ROW: &str =
    compared!("EXISTS (SELECT 1 FROM tasks t WHERE t.id = $1 AND t.version = $2)");
const SAME_LEASE: &str = compared!(
    "EXISTS (SELECT 1 FROM leases l WHERE l.task_id = $1 AND l.token = $2 \
     AND l.last_heartbeat_at = $3 AND l.owner = $4)"
);
/// What ends from memory also wants that nothing contradicts itself, and that the task has
/// no relatives. `$4` has what nobody else may hold, `$3`, its one resource,
/// among them.
const ALONE: &str = compared!(
    "EXISTS (SELECT 1 FROM tasks t WHERE t.id = $1 AND t.state = 'in_progress') \
     AND EXISTS (SELECT 1 FROM runs r WHERE r.task_id = $1 AND r.status = 'running') \
     AND EXISTS (SELECT 1 FROM locks h WHERE h.task_id = $1) \
     AND COALESCE((SELECT e.version = $2 AND e.to_state = 'in_progress' FROM events e \
     WHERE e.task_id = $1 ORDER BY e.version DESC LIMIT 1), 0) \
     AND NOT EXISTS (SELECT 1 FROM locks h WHERE h.task_id <> $1 \
     AND h.resource IN (SELECT value FROM json_each($4))) \
     AND NOT EXISTS (SELECT 1 FROM locks h WHERE h.resource >= $3 || '/' \
     AND h.resource < $3 || '0' AND h.task_id <> $1) \
     AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.lineage = $1 AND t.lineage <> t.id)"
);

/// Compares what is remembered with what is there, before anything is written.
pub(crate) async fn compare(
    tx: &mut dyn StoreTx,
    loaded: &LoadedTask,
    alone: Option<&[String]>,
) -> Result<(), StoreError> {
    let id = SqlArg::Text(loaded.task.id.as_str());
    if let Some(lease) = &loaded.lease {
        let args = [
            id,
            SqlArg::Int(int(lease.token)),
            SqlArg::Int(lease.last_heartbeat_at.0),
            SqlArg::Text(&lease.owner),
        ];
        later(tx, SAME_LEASE, &args).await?;
    }
    let Some(names) = alone else {
        return Ok(());
    };
    let args = [
        id,
        SqlArg::Int(int(loaded.task.version)),
        SqlArg::MaybeText(names.last().map(String::as_str)),
        SqlArg::Texts(names),
    ];
    later(tx, ALONE, &args).await
}

/// Keeps the answer to a request that its caller has named.
pub(crate) async fn record(
    tx: &mut dyn StoreTx,
    task: &TaskId,
    name: &str,
    digest: &str,
    answer: &str,
) -> Result<(), StoreError> {
    let args = [
        SqlArg::Text(name),
        SqlArg::Text(task.as_str()),
        SqlArg::Text(digest),
        SqlArg::Text(answer),
    ];
    let sql = "INSERT INTO requests (id, task_id, digest, answer) VALUES ($1, $2, $3, $4)";
    later(tx, sql, &args).await
}

/// What a row has in columns of its own, and is not in it as such.
pub(crate) struct RowColumns {
    queue: String,
    doc: String,
    scope: String,
    awaits: Option<LeasePurpose>,
    due_at: Option<Timestamp>,
}

impl RowColumns {
    pub(crate) fn of(
        policy: &Policy,
        task: &Task,
        newest: Option<&TaskRun>,
    ) -> Result<RowColumns, StoreError> {
        Ok(RowColumns {
            queue: format!("{}/{}", task.role, task.lane),
            doc: records::text("the row of a task", task)?,
            scope: records::scope_lines(&task.work_scope()),
            awaits: records::awaits(task, newest),
            due_at: next_deadline(policy, [], [task]),
        })
    }

    /// The texts that are written at once, in the order of a [`crate::call::change::StoreChange`].
    pub(crate) fn texts(self, task: &Task) -> Vec<Option<String>> {
        let id = |id: &Option<TaskId>| id.as_ref().map(ToString::to_string);
        vec![
            Some(task.state.as_str().to_owned()),
            Some(task.role.clone()),
            Some(task.lane.as_str().to_owned()),
            Some(self.queue),
            task.blocked_on().map(|reason| reason.as_str().to_owned()),
            Some(task.lineage.root.to_string()),
            id(&task.rework_of),
            id(&task.superseded_by),
            self.awaits.map(|purpose| purpose.as_str().to_owned()),
            Some(self.doc),
            Some(self.scope),
        ]
    }

    /// The numbers, likewise.
    pub(crate) fn numbers(&self, task: &Task) -> Vec<Option<i64>> {
        vec![
            Some(int(task.version)),
            Some(rank(task)),
            Some(task.created_at.0),
            Some(task.updated_at.0),
            task.retry_at().map(|at| at.0),
            self.due_at.map(|at| at.0),
        ]
    }

    /// The arguments of both statements; the last is the expected version, or the number
    /// of dependencies that are not done.
    fn args<'a>(&'a self, task: &'a Task, last: i64) -> [SqlArg<'a>; 19] {
        [
            SqlArg::Text(task.id.as_str()),
            SqlArg::Int(int(task.version)),
            SqlArg::Text(task.state.as_str()),
            SqlArg::Text(&task.role),
            SqlArg::Text(task.lane.as_str()),
            SqlArg::Text(&self.queue),
            SqlArg::Int(rank(task)),
            SqlArg::Int(task.created_at.0),
            SqlArg::Int(task.updated_at.0),
            SqlArg::MaybeText(task.blocked_on().map(runner_lifecycle::BlockReason::as_str)),
            SqlArg::MaybeInt(task.retry_at().map(|at| at.0)),
            SqlArg::Text(task.lineage.root.as_str()),
            SqlArg::MaybeText(task.rework_of.as_ref().map(TaskId::as_str)),
            SqlArg::MaybeText(task.superseded_by.as_ref().map(TaskId::as_str)),
            SqlArg::MaybeText(self.awaits.map(LeasePurpose::as_str)),
            SqlArg::Text(&self.doc),
            SqlArg::MaybeInt(self.due_at.map(|at| at.0)),
            SqlArg::Text(&self.scope),
            SqlArg::Int(last),
        ]
    }
}

async fn update_row(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    task: &Task,
    newest: Option<&TaskRun>,
    version: u64,
) -> Result<(), StoreError> {
    let columns = RowColumns::of(policy, task, newest)?;
    let args = columns.args(task, int(version));
    if tx.is_lone_writer() {
        let row = [SqlArg::Text(task.id.as_str()), SqlArg::Int(int(version))];
        later(tx, SAME_ROW, &row).await?;
        return later(tx, UPDATE_ROW, &args).await;
    }
    let changed = run(tx, UPDATE_ROW, &args).await?;
    if changed == 1 {
        return Ok(());
    }
    Err(StoreError::Contention(format!(
        "task {} has no longer version {version}",
        task.id
    )))
}

pub(crate) async fn insert_row(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    task: &Task,
    newest: Option<&TaskRun>,
    known: &[Dependency],
) -> Result<(), StoreError> {
    let is_met = |id: &TaskId| {
        known
            .iter()
            .any(|one| one.id == *id && matches!(one.chain, DependencyChain::Done(_)))
    };
    let unmet = task.dependencies.iter().filter(|id| !is_met(id)).count();
    let columns = RowColumns::of(policy, task, newest)?;
    let unmet = i64::try_from(unmet).unwrap_or(i64::MAX);
    later(tx, INSERT_ROW, &columns.args(task, unmet)).await?;
    for id in &task.dependencies {
        let args = [
            SqlArg::Text(task.id.as_str()),
            SqlArg::Text(id.as_str()),
            SqlArg::Int(i64::from(is_met(id))),
        ];
        let sql = "INSERT INTO dependencies (task_id, dependency, met) VALUES ($1, $2, $3)";
        later(tx, sql, &args).await?;
    }
    if task.has_unmerged_result() {
        put_result(tx, task).await?;
    }
    Ok(())
}

const APPEND: &str = "INSERT INTO events (task_id, version, to_state, created_at, doc) \
     VALUES ($1, $2, $3, $4, $5)";

pub(crate) async fn append(tx: &mut dyn StoreTx, events: &[TaskEvent]) -> Result<(), StoreError> {
    for event in events {
        let doc = records::text("an event", event)?;
        let args = [
            SqlArg::Text(event.task_id.as_str()),
            SqlArg::Int(int(event.version)),
            SqlArg::Text(event.to_state.as_str()),
            SqlArg::Int(event.created_at.0),
            SqlArg::Text(&doc),
        ];
        later(tx, APPEND, &args).await?;
    }
    Ok(())
}

/// How long a task could have started before this run began, if it just did.
pub(crate) fn waited_millis(before: Option<&LoadedTask>, one: &TaskRun) -> Option<u64> {
    let loaded = before.filter(|loaded| loaded.task.state == TaskState::Todo)?;
    (one.status == TaskRunStatus::Running).then(|| one.started_at.millis_since(loaded.ready_since))
}

const PUT_RUN: &str = "INSERT INTO runs (id, task_id, number, status, doc, started_at, \
     judgement_version, waited_millis) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
     ON CONFLICT (id) DO UPDATE SET status = excluded.status, doc = excluded.doc, \
     judgement_version = excluded.judgement_version";

pub(crate) async fn put_run(
    tx: &mut dyn StoreTx,
    one: &TaskRun,
    waited_millis: Option<u64>,
) -> Result<(), StoreError> {
    let doc = records::text("a run", one)?;
    let args = [
        SqlArg::Text(&one.id),
        SqlArg::Text(one.task_id.as_str()),
        SqlArg::Int(i64::from(one.number)),
        SqlArg::Text(one.status.as_str()),
        SqlArg::Text(&doc),
        SqlArg::Int(one.started_at.0),
        SqlArg::Int(i64::from(one.judgement_version)),
        SqlArg::MaybeInt(waited_millis.map(int)),
    ];
    later(tx, PUT_RUN, &args).await
}

const PUT_LEASE: &str = "INSERT INTO leases (task_id, run_id, owner, token, purpose, claim_key, \
     claimed_at, last_heartbeat_at, timeout_seconds, heartbeat_interval_seconds, ends_at, due_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
     ON CONFLICT (task_id) DO UPDATE SET run_id = excluded.run_id, owner = excluded.owner, \
     token = excluded.token, purpose = excluded.purpose, claim_key = excluded.claim_key, \
     claimed_at = excluded.claimed_at, last_heartbeat_at = excluded.last_heartbeat_at, \
     timeout_seconds = excluded.timeout_seconds, \
     heartbeat_interval_seconds = excluded.heartbeat_interval_seconds, \
     ends_at = excluded.ends_at, due_at = excluded.due_at";

pub(crate) async fn put_lease(tx: &mut dyn StoreTx, lease: &Lease) -> Result<(), StoreError> {
    let args = [
        SqlArg::Text(lease.task_id.as_str()),
        SqlArg::Text(&lease.run_id),
        SqlArg::Text(&lease.owner),
        SqlArg::Int(int(lease.token)),
        SqlArg::Text(lease.purpose.as_str()),
        SqlArg::Text(&lease.key),
        SqlArg::Int(lease.claimed_at.0),
        SqlArg::Int(lease.last_heartbeat_at.0),
        SqlArg::Int(i64::from(lease.timeout_seconds)),
        SqlArg::Int(i64::from(lease.heartbeat_interval_seconds)),
        SqlArg::Int(lease.ends_at.0),
        SqlArg::Int(lease_deadline(lease).0),
    ];
    later(tx, PUT_LEASE, &args).await
}

async fn take_locks(
    tx: &mut dyn StoreTx,
    task: &Task,
    scope: &[runner_lifecycle::lock::Resource],
) -> Result<(), StoreError> {
    for resource in scope {
        put_lock(tx, task.id.as_str(), resource.as_str()).await?;
    }
    Ok(())
}

pub(crate) async fn put_lock(
    tx: &mut dyn StoreTx,
    task: &str,
    resource: &str,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO locks (resource, task_id) VALUES ($1, $2)";
    later(tx, sql, &[SqlArg::Text(resource), SqlArg::Text(task)]).await
}

/// Ends all locks of a task; those who waited for one of them may be next.
async fn release_locks(tx: &mut dyn StoreTx, task: &Task) -> Result<Vec<WakeKey>, StoreError> {
    if tx.is_lone_writer() {
        let id = [SqlArg::Text(task.id.as_str())];
        wakes::wake_for_locks(tx, &task.id).await?;
        later(tx, "DELETE FROM locks WHERE task_id = $1", &id).await?;
        return Ok(Vec::new());
    }
    let sql = "DELETE FROM locks WHERE task_id = $1 RETURNING resource";
    let rows = all(tx, sql, &[SqlArg::Text(task.id.as_str())]).await?;
    rows.iter()
        .map(|row| Ok(WakeKey::Lock(row.text(0)?)))
        .collect()
}

/// Notes that a result begins, or no longer has, to wait for its merge.
async fn mark_result(
    tx: &mut dyn StoreTx,
    before: Option<&LoadedTask>,
    task: &Task,
) -> Result<Option<WakeKey>, StoreError> {
    let Some(loaded) = before else {
        return Ok(None);
    };
    let was = loaded.task.has_unmerged_result();
    let is = task.has_unmerged_result();
    if is && !was {
        put_result(tx, task).await?;
    } else if was && !is {
        let sql = "DELETE FROM unmerged WHERE task_id = $1";
        later(tx, sql, &[SqlArg::Text(task.id.as_str())]).await?;
        return Ok(Some(WakeKey::Result(task.id.clone())));
    }
    Ok(None)
}

async fn put_result(tx: &mut dyn StoreTx, task: &Task) -> Result<(), StoreError> {
    for resource in &task.lock_scope {
        let args = [
            SqlArg::Text(task.id.as_str()),
            SqlArg::Text(resource.as_str()),
            SqlArg::Text(task.lineage.root.as_str()),
        ];
        let sql = "INSERT INTO unmerged (task_id, resource, lineage) VALUES ($1, $2, $3)";
        later(tx, sql, &args).await?;
    }
    Ok(())
}

pub(crate) async fn put_receipt(tx: &mut dyn StoreTx, receipt: &Receipt) -> Result<(), StoreError> {
    let doc = records::text("a receipt", receipt)?;
    let args = [
        SqlArg::Text(receipt.task_id.as_str()),
        SqlArg::Int(int(receipt.token)),
        SqlArg::Text(&doc),
    ];
    let sql = "INSERT INTO receipts (task_id, token, doc) VALUES ($1, $2, $3)";
    later(tx, sql, &args).await
}

/// The task itself and everybody whom it succeeds: a dependency on any of them is met.
macro_rules! chain {
    () => {
        "WITH RECURSIVE chain(id, rework_of) AS ( \
         SELECT id, rework_of FROM tasks WHERE id = $1 UNION ALL \
         SELECT t.id, t.rework_of FROM chain c JOIN tasks t ON t.id = c.rework_of) "
    };
}

const MEET: &str = concat!(
    chain!(),
    "UPDATE dependencies SET met = 1 WHERE met = 0 AND dependency IN (SELECT id FROM chain) \
     RETURNING task_id"
);
const COUNT_DOWN: &str = concat!(
    chain!(),
    "UPDATE tasks SET ready_since = $2, unmet = unmet - (SELECT COUNT(*) FROM dependencies d \
     WHERE d.task_id = tasks.id AND d.met = 0 AND d.dependency IN (SELECT id FROM chain)) \
     WHERE id IN (SELECT d.task_id FROM dependencies d \
     WHERE d.met = 0 AND d.dependency IN (SELECT id FROM chain))"
);
const MEET_LATER: &str = concat!(
    chain!(),
    "UPDATE dependencies SET met = 1 WHERE met = 0 AND dependency IN (SELECT id FROM chain)"
);

async fn meet_dependents(
    tx: &mut dyn StoreTx,
    task: &Task,
    now: Timestamp,
) -> Result<(), StoreError> {
    if tx.is_lone_writer() {
        let id = SqlArg::Text(task.id.as_str());
        later(tx, COUNT_DOWN, &[id, SqlArg::Int(now.0)]).await?;
        return later(tx, MEET_LATER, &[id]).await;
    }
    // In the order of their ids, so that two transactions do not wait for each other.
    let mut met = BTreeMap::<String, i64>::new();
    for row in all(tx, MEET, &[SqlArg::Text(task.id.as_str())]).await? {
        *met.entry(row.text(0)?).or_insert(0) += 1;
    }
    // Counted down and not counted anew: two dependencies may be met at the same time,
    // and neither transaction sees what the other has done.
    let sql = "UPDATE tasks SET unmet = unmet - $2, ready_since = $3 WHERE id = $1";
    for (id, count) in &met {
        let args = [SqlArg::Text(id), SqlArg::Int(*count), SqlArg::Int(now.0)];
        run(tx, sql, &args).await?;
    }
    Ok(())
}
