//! `check`: whether everything in the ledger fits together.

use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::reconcile::{Inconsistency, ReconcileSnapshot, reconcile};
use runner_lifecycle::{Task, TaskId};

use crate::call::records;
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::maintain::rebuild;
use crate::maintain::rebuild::RowDifference;
use crate::read::reads;
use crate::store::engine::{SqlArg, StoreAccess, StoreTx, all};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckFindings {
    /// How many tasks were looked at.
    pub tasks: u64,
    /// How many events.
    pub events: u64,
    /// Rows that are not what their events add up to.
    pub rows: Vec<RowDifference>,
    /// What contradicts itself.
    pub inconsistencies: Vec<Inconsistency>,
    /// What is wrong with the index of ready tasks.
    pub index: Vec<String>,
}

impl CheckFindings {
    /// Whether there is nothing to say.
    pub fn is_clean(&self) -> bool {
        self.rows.is_empty() && self.inconsistencies.is_empty() && self.index.is_empty()
    }
}

impl Ledger {
    /// Compares everything with everything, at one point in time.
    pub async fn check(&self) -> Result<CheckFindings, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut findings = rebuild::compare(&mut *tx).await?;
        let snapshot = read_all(&mut *tx).await?;
        findings.inconsistencies = reconcile_by_lineage(&snapshot);
        findings.index = index_faults(&mut *tx).await?;
        Ok(findings)
    }
}

/// Everything that is compared.
struct CheckData {
    tasks: Vec<Task>,
    last_events: Vec<runner_lifecycle::event::TaskEvent>,
    locks: Vec<ScopeLock>,
    leases: Vec<runner_lifecycle::run::Lease>,
    runs: Vec<runner_lifecycle::run::TaskRun>,
}

async fn read_all(tx: &mut dyn StoreTx) -> Result<CheckData, LedgerError> {
    let tasks = "SELECT doc FROM tasks ORDER BY id";
    let events = "SELECT e.doc FROM events e JOIN (SELECT task_id, MAX(version) AS version \
         FROM events GROUP BY task_id) m ON m.task_id = e.task_id AND m.version = e.version \
         ORDER BY e.task_id";
    let runs = "SELECT doc FROM runs ORDER BY task_id, number";
    Ok(CheckData {
        tasks: readable(tx, tasks, records::task).await?,
        last_events: readable(tx, events, records::event).await?,
        locks: reads::locks(tx).await?,
        leases: reads::leases(tx, &[SqlArg::Int(i64::MAX), SqlArg::Int(i64::MAX)]).await?,
        runs: readable(tx, runs, records::run).await?,
    })
}

/// Those that can be read. What cannot is told of when rows and events are compared.
async fn readable<T>(
    tx: &mut dyn StoreTx,
    sql: &'static str,
    read: impl Fn(&str) -> Result<T, StoreError>,
) -> Result<Vec<T>, LedgerError> {
    let mut found = Vec::new();
    for row in all(tx, sql, &[]).await? {
        match read(&row.text(0)?) {
            Ok(one) => found.push(one),
            Err(StoreError::Damaged(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The rules compare everything with everything; a lineage at a time that is quick.
fn reconcile_by_lineage(all: &CheckData) -> Vec<Inconsistency> {
    use std::collections::{BTreeMap, BTreeSet};
    let ids: BTreeSet<&TaskId> = all.tasks.iter().map(|task| &task.id).collect();
    let mut groups: BTreeMap<&TaskId, Vec<&Task>> = BTreeMap::new();
    for task in &all.tasks {
        groups.entry(&task.lineage.root).or_default().push(task);
    }
    let mut found = Vec::new();
    let events = by_task(&all.last_events, |event| &event.task_id);
    let leases = by_task(&all.leases, |lease| &lease.task_id);
    let runs = by_task(&all.runs, |run| &run.task_id);
    let locks = by_task(&all.locks, |lock| &lock.task_id);
    for group in groups.values() {
        let tasks: Vec<Task> = group.iter().map(|task| (*task).clone()).collect();
        let mine = |id: &TaskId| tasks.iter().any(|task| task.id == *id);
        let own = reconcile(&ReconcileSnapshot {
            last_events: &of_group(&events, &tasks),
            leases: &of_group(&leases, &tasks),
            runs: &of_group(&runs, &tasks),
            locks: &of_group(&locks, &tasks),
            tasks: &tasks,
            complete: false,
        });
        found.extend(own.into_iter().filter(|one| mine(&one.task_id)));
        for task in &tasks {
            let missing = task.dependencies.iter().filter(|id| !ids.contains(id));
            found.extend(missing.map(|id| Inconsistency {
                kind: runner_lifecycle::reconcile::InconsistencyKind::UnknownDependency,
                task_id: task.id.clone(),
                other: None,
                words: format!("depends on {id}, which does not exist"),
            }));
        }
    }
    // Locks of different lineages.
    let empty = ReconcileSnapshot {
        tasks: &[],
        last_events: &[],
        locks: &all.locks,
        leases: &all.leases,
        runs: &[],
        complete: false,
    };
    found.extend(reconcile(&empty));
    found.sort_by(|one, other| (&one.task_id, one.kind).cmp(&(&other.task_id, other.kind)));
    found.dedup();
    found
}

fn by_task<'a, T>(
    all: &'a [T],
    id: impl Fn(&'a T) -> &'a TaskId,
) -> std::collections::BTreeMap<&'a TaskId, Vec<&'a T>> {
    let mut map = std::collections::BTreeMap::<&TaskId, Vec<&T>>::new();
    for one in all {
        map.entry(id(one)).or_default().push(one);
    }
    map
}

fn of_group<T: Clone>(
    map: &std::collections::BTreeMap<&TaskId, Vec<&T>>,
    tasks: &[Task],
) -> Vec<T> {
    let of_task = |task: &Task| map.get(&task.id).cloned().unwrap_or_default();
    tasks.iter().flat_map(of_task).cloned().collect()
}

/// Each query names tasks for which the index of ready tasks is wrong.
const INDEX_FAULTS: &[(&str, &str)] = &[
    (
        "counts its open dependencies wrongly",
        "SELECT t.id FROM tasks t WHERE t.unmet <> \
         (SELECT COUNT(*) FROM dependencies d WHERE d.task_id = t.id AND d.met = 0)",
    ),
    (
        "waits for a lock that nobody holds, and nobody was woken for it",
        "SELECT t.id FROM tasks t WHERE t.waits_for LIKE 'lock:%' \
         AND NOT EXISTS (SELECT 1 FROM locks k WHERE 'lock:' || k.resource = t.waits_for) \
         AND NOT EXISTS (SELECT 1 FROM tasks w WHERE w.woken_from = t.waits_for \
         AND w.queue = t.queue)",
    ),
    (
        "waits for a result that is merged or gone, and nobody was woken for it",
        "SELECT t.id FROM tasks t WHERE t.waits_for LIKE 'result:%' \
         AND NOT EXISTS (SELECT 1 FROM unmerged u WHERE 'result:' || u.task_id = t.waits_for) \
         AND NOT EXISTS (SELECT 1 FROM tasks w WHERE w.woken_from = t.waits_for \
         AND w.queue = t.queue)",
    ),
    (
        "waits in the index and is not waiting to be worked on",
        "SELECT t.id FROM tasks t WHERE (t.waits_for IS NOT NULL OR t.woken_from IS NOT NULL) \
         AND (t.awaits IS NULL OR t.awaits <> 'work')",
    ),
    (
        "holds a lock and does not exist",
        "SELECT k.task_id FROM locks k \
         WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = k.task_id)",
    ),
    (
        "has a lease and does not exist",
        "SELECT l.task_id FROM leases l \
         WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = l.task_id)",
    ),
    (
        "is met as a dependency and not done",
        "SELECT d.task_id FROM dependencies d WHERE d.met = 1 AND NOT EXISTS ( \
         WITH RECURSIVE chain(id, state, next) AS ( \
         SELECT id, state, superseded_by FROM tasks WHERE id = d.dependency UNION ALL \
         SELECT t.id, t.state, t.superseded_by FROM chain c JOIN tasks t ON t.id = c.next) \
         SELECT 1 FROM chain WHERE state = 'done')",
    ),
];

async fn index_faults(tx: &mut dyn StoreTx) -> Result<Vec<String>, LedgerError> {
    let mut faults = Vec::new();
    for (words, sql) in INDEX_FAULTS {
        for row in all(tx, *sql, &[]).await? {
            faults.push(format!("task {} {words}", row.text(0)?));
        }
    }
    Ok(faults)
}
