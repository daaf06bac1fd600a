//! A task with its relatives: what must fit together before it may end.

use runner_lifecycle::Task;
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::lock::{Resource, ScopeLock};
use runner_lifecycle::reconcile::{Inconsistency, ReconcileSnapshot, reconcile};
use runner_lifecycle::run::{Lease, TaskRun};

use crate::call::facts::LoadedTask;
use crate::call::records;
use crate::call::records::{LEASE_COLUMNS, lease_columns};
use crate::claim::context;
use crate::error::StoreError;
use crate::read::reads;
use crate::store::engine::{SqlArg, SqlRow, StoreTx, all};

macro_rules! of_lineage {
    () => {
        "IN (SELECT $1 UNION ALL SELECT id FROM tasks WHERE lineage = $1 AND lineage <> id)"
    };
}

const LINEAGE: &str = concat!(
    "SELECT ",
    lease_columns!(),
    ", CAST(5 AS BIGINT), t.doc, (SELECT e.doc FROM events e WHERE e.task_id = t.id \
     ORDER BY e.version DESC LIMIT 1) \
     FROM tasks t LEFT JOIN leases l ON l.task_id = t.id WHERE t.id ",
    of_lineage!()
);
const RUNS_OF_LINEAGE: &str = concat!("SELECT r.doc FROM runs r WHERE r.task_id ", of_lineage!());

/// What is known about a lineage.
#[derive(Default)]
pub(crate) struct LineageFacts {
    tasks: Vec<Task>,
    last_events: Vec<TaskEvent>,
    leases: Vec<Lease>,
    runs: Vec<TaskRun>,
    locks: Vec<ScopeLock>,
}

impl LineageFacts {
    /// A member, with its lease and its last event.
    fn member(&mut self, row: &SqlRow) -> Result<(), StoreError> {
        self.leases.extend(records::lease(row, 0)?);
        self.tasks
            .push(records::task(&row.text(LEASE_COLUMNS + 1)?)?);
        let event = row.maybe_text(LEASE_COLUMNS + 2)?;
        self.last_events
            .extend(event.as_deref().map(records::event).transpose()?);
        Ok(())
    }

    /// Of a task without relatives, from that column on: its last event, its runs and its
    /// locks.
    pub(crate) fn alone(
        loaded: &LoadedTask,
        row: &SqlRow,
        from: usize,
    ) -> Result<LineageFacts, StoreError> {
        let event = row.maybe_text(from)?;
        let runs = row.maybe_text(from + 1)?.unwrap_or_default();
        let locks = row.maybe_text(from + 2)?.unwrap_or_default();
        let lock = |line: &str| {
            let task_id = loaded.task.id.clone();
            context::resource(line).map(|resource| ScopeLock { task_id, resource })
        };
        Ok(LineageFacts {
            tasks: vec![loaded.task.clone()],
            last_events: event
                .as_deref()
                .map(records::event)
                .into_iter()
                .collect::<Result<_, _>>()?,
            leases: loaded.lease.clone().into_iter().collect(),
            runs: records::parse("runs", &format!("[{runs}]"))?,
            locks: locks.lines().map(lock).collect::<Result<_, _>>()?,
        })
    }

    /// From the one answer of a store that knows how.
    fn of(rows: &[SqlRow]) -> Result<LineageFacts, StoreError> {
        let mut lineage = LineageFacts::default();
        let at = LEASE_COLUMNS;
        for row in rows {
            match row.int(at)? {
                5 => lineage.member(row)?,
                6 => lineage.runs.push(records::run(&row.text(at + 1)?)?),
                _ if row.maybe_text(at + 3)?.is_none() => lineage.locks.push(ScopeLock {
                    task_id: records::task_id(&row.text(at + 1)?)?,
                    resource: context::resource(&row.text(at + 2)?)?,
                }),
                _ => {}
            }
        }
        Ok(lineage)
    }

    async fn step_by_step(
        tx: &mut dyn StoreTx,
        loaded: &LoadedTask,
    ) -> Result<LineageFacts, StoreError> {
        let mut lineage = LineageFacts::default();
        let root = [SqlArg::Text(loaded.task.lineage.root.as_str())];
        for row in all(tx, LINEAGE, &root).await? {
            lineage.member(&row)?;
        }
        for row in all(tx, RUNS_OF_LINEAGE, &root).await? {
            lineage.runs.push(records::run(&row.text(0)?)?);
        }
        let mut scope = loaded.task.work_scope();
        scope.push(Resource::judge(&loaded.task.id));
        lineage.locks = context::overlapping(tx, &scope).await?.0;
        Ok(lineage)
    }

    fn contradictions(&self, loaded: &LoadedTask) -> Result<Vec<Inconsistency>, StoreError> {
        let own = self.tasks.iter().find(|task| task.id == loaded.task.id);
        if own.is_none_or(|task| task.version != loaded.task.version) {
            return Err(StoreError::Contention(format!(
                "task {} has no longer version {}",
                loaded.task.id, loaded.task.version
            )));
        }
        let mut found = reconcile(&ReconcileSnapshot {
            tasks: &self.tasks,
            last_events: &self.last_events,
            locks: &self.locks,
            leases: &self.leases,
            runs: &self.runs,
            complete: false,
        });
        // Locks of other tasks that overlap each other are those tasks' own problem.
        found.retain(|found| self.tasks.iter().any(|task| found.concerns(&task.id)));
        Ok(found)
    }
}

/// What contradicts itself about the task, its lineage and overlapping locks.
pub(crate) async fn inconsistencies(
    tx: &mut dyn StoreTx,
    loaded: &LoadedTask,
) -> Result<Vec<Inconsistency>, StoreError> {
    let read;
    let lineage = match &loaded.lineage {
        Some(lineage) => lineage,
        None if tx.writes_at_once() => {
            read = LineageFacts::of(&tx.lineage(loaded.task.id.as_str()).await?)?;
            &read
        }
        None => {
            read = LineageFacts::step_by_step(tx, loaded).await?;
            &read
        }
    };
    lineage.contradictions(loaded)
}

/// The same for a repair, which must see every lock of the task, wherever it is, and who
/// claimed before whom.
pub(crate) async fn to_repair(
    tx: &mut dyn StoreTx,
    loaded: &LoadedTask,
) -> Result<Vec<Inconsistency>, StoreError> {
    let mut lineage = LineageFacts::step_by_step(tx, loaded).await?;
    lineage.locks = reads::locks(tx).await?;
    let everything = [SqlArg::Int(i64::MAX), SqlArg::Int(i64::MAX)];
    lineage.leases = reads::leases(tx, &everything).await?;
    lineage.contradictions(loaded)
}
