//! Reading what a decision must know, in the transaction that writes it.

use std::collections::BTreeSet;

use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::{
    Claim, Dependency, DependencyChain, JudgeEnding, NewTask, WorkEnding,
};
use runner_lifecycle::run::{Lease, Receipt, TaskRun};
use runner_lifecycle::{
    Facts, Lane, LeasePurpose, Policy, Request, Task, TaskId, TaskRunStatus, Timestamp,
};

use crate::call::lineage::{LineageFacts, inconsistencies, to_repair};
use crate::call::memory::HeldWork;
use crate::call::records;
use crate::call::records::{LEASE_COLUMNS, lease_columns};
use crate::claim::claims::ClaimRequest;
use crate::claim::context::{claim_context, is_paused, overlapping, reserved, reserves};
use crate::error::StoreError;
use crate::read::reads;
use crate::store::engine::{SqlArg, SqlRow, SqlText, StoreTx, all, one};

/// A row with everything that hangs on it.
pub(crate) struct LoadedTask {
    pub(crate) task: Task,
    pub(crate) lease: Option<Lease>,
    pub(crate) run: Option<TaskRun>,
    pub(crate) receipt: Option<Receipt>,
    pub(crate) waits_for: Option<String>,
    pub(crate) woken_from: Option<String>,
    /// Since when nothing but locks could be in the way.
    pub(crate) ready_since: Timestamp,
    /// Its lineage, if it was read with the row.
    pub(crate) lineage: Option<LineageFacts>,
}

impl From<HeldWork> for LoadedTask {
    /// Nobody waits with what is being worked on, and it has no answer yet.
    fn from(known: HeldWork) -> LoadedTask {
        LoadedTask {
            task: known.task,
            lease: Some(known.lease),
            run: known.run,
            receipt: None,
            waits_for: None,
            woken_from: None,
            ready_since: Timestamp::default(),
            lineage: None,
        }
    }
}

/// Where there are several writers.
const LOCK_ROW: &str = "SELECT CAST(1 AS BIGINT) FROM tasks WHERE id = $1 FOR UPDATE";

macro_rules! load {
    ($now:literal, $more:literal) => {
        load!($now, $more, "$1")
    };
    ($now:literal, $more:literal, $id:expr) => {
        concat!(
            "SELECT ",
            lease_columns!(),
            ", t.doc, t.waits_for, t.woken_from, \
             (SELECT r.doc FROM runs r WHERE r.task_id = t.id ORDER BY r.number DESC LIMIT 1), \
             (SELECT p.doc FROM receipts p WHERE p.task_id = t.id AND p.token = $2), c.now, \
             t.ready_since",
            $more,
            " FROM (SELECT ",
            $now,
            " AS now) c LEFT JOIN tasks t ON t.id = ",
            $id,
            " LEFT JOIN leases l ON l.task_id = t.id"
        )
    };
}

macro_rules! load_claimable {
    ($lane:literal) => {
        load!(
            "CAST(0 AS BIGINT)",
            "",
            concat!(
                "COALESCE((SELECT s.task_id FROM leases s WHERE s.owner = $3 AND s.claim_key = $4), \
                 (SELECT r.id FROM tasks r WHERE r.awaits = 'work' AND r.unmet = 0 \
                 AND r.waits_for IS NULL AND r.role = $5",
                $lane,
                " ORDER BY r.rank, r.created_at, r.id LIMIT 1))"
            )
        )
    };
}

/// The task that a claim got before, or else the first in order. For a lone writer.
const LOAD_CLAIMABLE: &str = load_claimable!("");
const LOAD_CLAIMABLE_IN_LANE: &str = load_claimable!(" AND r.lane = $6");

/// A row with everything, if there is one, and the time of the server, where there is one.
const LOAD: SqlText = SqlText {
    sqlite: load!("CAST(0 AS BIGINT)", ""),
    postgres: load!("ledger_now()", ""),
};

/// The same with what its end must know: its last event, its runs, its locks, and whether
/// that is all. It is not if it has relatives, a scope of several parts, or if somebody
/// else holds a part of its scope.
const LOAD_FOR_END: SqlText = SqlText {
    sqlite: LOAD.sqlite,
    postgres: load!(
        "ledger_now()",
        ", (SELECT e.doc FROM events e WHERE e.task_id = t.id ORDER BY e.version DESC LIMIT 1), \
         (SELECT string_agg(r.doc, ',') FROM runs r WHERE r.task_id = t.id), \
         (SELECT string_agg(h.resource, E'\\n') FROM locks h WHERE h.task_id = t.id), \
         CASE WHEN t.id <> t.lineage OR (SELECT s.many \
         OR EXISTS (SELECT 1 FROM locks h WHERE h.task_id <> t.id \
         AND h.resource = ANY (s.names || ('@judge/' || t.id))) \
         OR EXISTS (SELECT 1 FROM locks h WHERE h.task_id <> t.id \
         AND h.resource >= s.own || '/' AND h.resource < s.own || '0') \
         FROM ledger_scope(t.scope) s) \
         OR EXISTS (SELECT 1 FROM tasks o WHERE o.lineage = t.id AND o.lineage <> o.id) \
         THEN CAST(0 AS BIGINT) ELSE CAST(1 AS BIGINT) END"
    ),
};

/// Locks a row until the end of the transaction.
pub(crate) async fn lock_row(tx: &mut dyn StoreTx, id: &TaskId) -> Result<(), StoreError> {
    if !tx.holds() || tx.is_lone_writer() {
        return Ok(());
    }
    all(tx, LOCK_ROW, &[SqlArg::Text(id.as_str())])
        .await
        .map(drop)
}

/// Reads a row.
pub(crate) async fn load(
    tx: &mut dyn StoreTx,
    id: &TaskId,
    token: Option<u64>,
) -> Result<Option<LoadedTask>, StoreError> {
    Ok(look(tx, id, token, false).await?.0)
}

/// Reads a row and the time of the server, which means something if decisions go by it. A
/// statement of its own: one that had to wait for the lock of the row would see the row as
/// it is and everything else as it was.
pub(crate) async fn look(
    tx: &mut dyn StoreTx,
    id: &TaskId,
    token: Option<u64>,
    for_end: bool,
) -> Result<(Option<LoadedTask>, Timestamp), StoreError> {
    let token = token.map_or(-1, records::int);
    let args = [SqlArg::Text(id.as_str()), SqlArg::Int(token)];
    let for_end = for_end && tx.writes_at_once();
    let sql = if for_end { LOAD_FOR_END } else { LOAD };
    parse_loaded(one(tx, sql, &args).await?, for_end)
}

/// Reads the task that a claim for work got before, or else the first in order. For a lone
/// writer: it needs no lock.
pub(crate) async fn look_for_work(
    tx: &mut dyn StoreTx,
    claim_request: &ClaimRequest,
) -> Result<Option<LoadedTask>, StoreError> {
    let lane = claim_request.lane.map(Lane::as_str);
    let sql = lane.map_or(LOAD_CLAIMABLE, |_| LOAD_CLAIMABLE_IN_LANE);
    let args = [
        SqlArg::MaybeText(None),
        SqlArg::Int(-1),
        SqlArg::Text(&claim_request.owner),
        SqlArg::Text(&claim_request.key),
        SqlArg::Text(&claim_request.role),
        SqlArg::MaybeText(lane),
    ];
    Ok(parse_loaded(one(tx, sql, &args).await?, false)?.0)
}

fn parse_loaded(
    row: Option<SqlRow>,
    for_end: bool,
) -> Result<(Option<LoadedTask>, Timestamp), StoreError> {
    let Some(row) = row else {
        return Err(StoreError::Other("the store does not answer".to_owned()));
    };
    let at = LEASE_COLUMNS;
    let now = Timestamp(row.int(at + 5)?);
    let Some(doc) = row.maybe_text(at)? else {
        return Ok((None, now));
    };
    let run = row.maybe_text(at + 3)?;
    let receipt = row.maybe_text(at + 4)?;
    let mut loaded = LoadedTask {
        lineage: None,
        lease: records::lease(&row, 0)?,
        task: records::task(&doc)?,
        waits_for: row.maybe_text(at + 1)?,
        woken_from: row.maybe_text(at + 2)?,
        run: run.as_deref().map(records::run).transpose()?,
        receipt: receipt.as_deref().map(records::receipt).transpose()?,
        ready_since: Timestamp(row.int(at + 6)?),
    };
    if for_end && row.int(at + 10)? == 1 {
        loaded.lineage = Some(LineageFacts::alone(&loaded, &row, at + 7)?);
    }
    Ok((Some(loaded), now))
}

/// The runs of a task that say they are running, oldest first: one, unless something is
/// wrong.
async fn running(tx: &mut dyn StoreTx, id: &TaskId) -> Result<Vec<TaskRun>, StoreError> {
    let sql = "SELECT doc FROM runs WHERE task_id = $1 ORDER BY number";
    let mut runs = reads::docs(tx, sql, &[SqlArg::Text(id.as_str())], records::run).await?;
    runs.retain(|run| run.status == TaskRunStatus::Running);
    Ok(runs)
}

/// The newest result of a task's runs.
pub(crate) async fn earlier_result(
    tx: &mut dyn StoreTx,
    id: &TaskId,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT doc FROM runs WHERE task_id = $1 AND status = 'success' \
         ORDER BY number DESC LIMIT 1";
    let row = one(tx, sql, &[SqlArg::Text(id.as_str())]).await?;
    let run = row.map(|row| records::run(&row.text(0)?)).transpose()?;
    Ok(run.and_then(|run| run.result))
}

/// Makes sure that nobody else claims an overlapping scope before this transaction ends.
/// Once for each transaction: two scopes one after the other would not be locked in the
/// order that everybody keeps, and two transactions would wait for each other.
pub(crate) async fn serialise(
    tx: &mut dyn StoreTx,
    loaded: Option<&LoadedTask>,
    request: &Request,
) -> Result<(), StoreError> {
    match (loaded, request) {
        (Some(loaded), Request::Claim(claim)) => {
            tx.serialise_scope(&claim_scope(&loaded.task, claim)).await
        }
        _ => Ok(()),
    }
}

/// What a claim locks.
fn claim_scope(task: &Task, claim: &Claim) -> Vec<Resource> {
    if claim.purpose == LeasePurpose::Work {
        return task.work_scope();
    }
    let base = claim.base.as_deref().map(Resource::merge);
    std::iter::once(Resource::judge(&task.id))
        .chain(base.and_then(Result::ok))
        .collect()
}

/// Adds what the store knows to what the caller knows.
pub(crate) async fn gather(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    loaded: &LoadedTask,
    request: &Request,
    outside: &Facts,
    now: Timestamp,
) -> Result<Facts, StoreError> {
    let task = &loaded.task;
    let mut facts = Facts {
        lease: loaded.lease.clone(),
        run: loaded.run.clone(),
        receipt: loaded.receipt.clone(),
        ..outside.clone()
    };
    match request {
        Request::Claim(claim) if claim.purpose == LeasePurpose::Work && tx.is_lone_writer() => {
            facts.dependencies = dependencies(tx, &task.dependencies).await?;
            let claim_context = claim_context(tx, &claim_scope(task, claim)).await?;
            (facts.locks, facts.unmerged) = claim_context.overlapping;
            facts.fleet_paused = claim_context.paused;
            if let Some(waiting) = claim_context.first_waiting {
                facts.reservations = reserves(tx, policy, task, waiting, outside, now).await?;
            }
        }
        Request::Claim(claim) => {
            facts.fleet_paused = is_paused(tx).await?;
            let scope = claim_scope(task, claim);
            match claim.purpose {
                LeasePurpose::Work => {
                    facts.dependencies = dependencies(tx, &task.dependencies).await?;
                    (facts.locks, facts.unmerged) = overlapping(tx, &scope).await?;
                    facts.reservations = reserved(tx, policy, task, outside, now).await?;
                }
                LeasePurpose::Judge | LeasePurpose::Merge => {
                    facts.locks = overlapping(tx, &scope).await?.0;
                    facts.is_merge_head = is_merge_head(tx, task, now).await?;
                }
            }
        }
        Request::Block { .. } | Request::Recover { .. } => {
            facts.dependencies = dependencies(tx, &task.dependencies).await?;
            facts.locks = overlapping(tx, &task.work_scope()).await?.0;
        }
        Request::Repair => {
            facts.inconsistencies = to_repair(tx, loaded).await?;
            facts.running = running(tx, &task.id).await?;
        }
        request if may_end_done(task, request) => {
            facts.inconsistencies = inconsistencies(tx, loaded).await?;
        }
        _ => {}
    }
    Ok(facts)
}

/// Whether the request may check the preconditions of `done`, whatever the task is.
pub(crate) fn is_for_end(request: &Request) -> bool {
    let success = |ending: &WorkEnding| matches!(ending, WorkEnding::Success { .. });
    let approval = |ending: &JudgeEnding| matches!(ending, JudgeEnding::Approve { .. });
    match request {
        Request::Finish { ending, .. } => success(ending),
        Request::Judge { ending, .. } => approval(ending),
        Request::RecordIntent { .. } => true,
        _ => false,
    }
}

/// Whether the request checks the preconditions of `done`.
pub(crate) fn may_end_done(task: &Task, request: &Request) -> bool {
    let can = match request {
        Request::Finish { .. } => !task.needs_judge(),
        Request::Judge { .. } => !task.needs_merge(),
        _ => true,
    };
    can && is_for_end(request)
}

/// What a creation must know: which dependencies exist, and how they stand. They cannot
/// end before the new task is written.
pub(crate) async fn for_creation(
    tx: &mut dyn StoreTx,
    new: &NewTask,
    outside: &Facts,
) -> Result<Facts, StoreError> {
    hold_chains(tx, &new.dependencies).await?;
    Ok(Facts {
        dependencies: dependencies(tx, &new.dependencies).await?,
        ..outside.clone()
    })
}

macro_rules! chains {
    ($in_list:literal) => {
        concat!(
            "WITH RECURSIVE chain(root, id, state, next, ended_at) AS ( \
             SELECT t.id, t.id, t.state, t.superseded_by, t.updated_at FROM tasks t WHERE t.id ",
            $in_list,
            " UNION ALL \
             SELECT c.root, t.id, t.state, t.superseded_by, t.updated_at \
             FROM chain c JOIN tasks t ON t.id = c.next) \
             SELECT root, id, state, next, ended_at FROM chain"
        )
    };
}

const CHAINS: SqlText = SqlText {
    sqlite: chains!("IN (SELECT value FROM json_each($1))"),
    postgres: chains!("= ANY($1)"),
};

/// What became of these tasks, each at the end of its chain of successors.
pub(crate) async fn dependencies(
    tx: &mut dyn StoreTx,
    ids: &[TaskId],
) -> Result<Vec<Dependency>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut ends = Vec::new();
    for row in all(tx, CHAINS, &[SqlArg::Texts(&texts(ids))]).await? {
        if row.maybe_text(3)?.is_some() {
            continue;
        }
        let chain = match row.text(2)?.as_str() {
            "done" => DependencyChain::Done(Timestamp(row.int(4)?)),
            "failed" | "canceled" => DependencyChain::Dead,
            _ => DependencyChain::Alive,
        };
        ends.push(Dependency {
            id: records::task_id(&row.text(0)?)?,
            chain,
        });
    }
    Ok(ends)
}

/// Where there are several writers.
const HOLD: &str = "SELECT CAST(1 AS BIGINT) FROM tasks WHERE id = ANY($1) ORDER BY id FOR SHARE";

/// Keeps chains as they are until the end of the transaction: otherwise one could become
/// done unseen between the look and the write, and its dependent would wait forever.
pub(crate) async fn hold_chains(tx: &mut dyn StoreTx, ids: &[TaskId]) -> Result<(), StoreError> {
    if ids.is_empty() || tx.is_lone_writer() {
        return Ok(());
    }
    let mut held = BTreeSet::new();
    loop {
        let mut members = BTreeSet::new();
        for row in all(tx, CHAINS, &[SqlArg::Texts(&texts(ids))]).await? {
            members.insert(row.text(1)?);
        }
        if members.is_subset(&held) {
            return Ok(());
        }
        let list: Vec<String> = members.iter().cloned().collect();
        all(tx, HOLD, &[SqlArg::Texts(&list)]).await?;
        held.append(&mut members);
    }
}

fn texts(ids: &[TaskId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

const MERGE_HEAD: &str = "SELECT id FROM tasks WHERE awaits = 'merge' \
     AND (retry_at IS NULL OR retry_at <= $1) ORDER BY rank, created_at, id LIMIT 1";

async fn is_merge_head(
    tx: &mut dyn StoreTx,
    task: &Task,
    now: Timestamp,
) -> Result<bool, StoreError> {
    match one(tx, MERGE_HEAD, &[SqlArg::Int(now.0)]).await? {
        Some(row) => Ok(row.text(0)? == task.id.as_str()),
        None => Ok(false),
    }
}
