//! Rows from events: what was changed is enough to say what is.

use runner_lifecycle::decide::Answer;
use runner_lifecycle::event::fold;
use runner_lifecycle::order::rank;
use runner_lifecycle::reconcile::{Inconsistency, InconsistencyRepair, InconsistencySeverity};
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{Policy, Request, Task, TaskId};

use crate::call::calls::LedgerCall;
use crate::call::facts;
use crate::call::lineage;
use crate::call::records;
use crate::call::writes;
use crate::claim::claims;
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::maintain::check::CheckFindings;
use crate::read::reads::{all_ids, events_of};
use crate::store::engine::{SqlArg, StoreAccess, StoreTx, all, one, run};

/// A row that is not what its events add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDifference {
    /// Which.
    pub task_id: TaskId,
    /// What is wrong.
    pub words: String,
    /// Whether the row can be made anew.
    pub repairable: bool,
}

/// What a rebuild did.
#[derive(Clone, Debug, Default)]
pub struct RebuildReport {
    /// How many rows were compared.
    pub tasks: u64,
    /// How many were made anew.
    pub repaired: u64,
    /// Those that could not be: their events contradict themselves.
    pub hopeless: Vec<RowDifference>,
    /// How many locks and leases of tasks that do not exist were ended.
    pub released: u64,
    /// Tasks about which something else was repaired.
    pub repaired_tasks: Vec<TaskId>,
}

/// What claims and lists go by, besides the document of a row.
const COLUMNS: [&str; 10] = [
    "version",
    "rank",
    "state",
    "role",
    "lane",
    "blocked_on",
    "retry_at",
    "rework_of",
    "superseded_by",
    "awaits",
];
const STORED: &str = "SELECT doc, CAST(version AS TEXT), CAST(rank AS TEXT), state, role, lane, \
     blocked_on, CAST(retry_at AS TEXT), rework_of, superseded_by, awaits \
     FROM tasks WHERE id = $1";

/// A row as it is stored.
struct Stored {
    task: Result<Task, StoreError>,
    columns: Vec<Option<String>>,
}

async fn stored(tx: &mut dyn StoreTx, id: &TaskId) -> Result<Option<Stored>, StoreError> {
    let Some(row) = one(tx, STORED, &[SqlArg::Text(id.as_str())]).await? else {
        return Ok(None);
    };
    let columns: Result<_, StoreError> = (1..=COLUMNS.len()).map(|at| row.maybe_text(at)).collect();
    Ok(Some(Stored {
        task: records::task(&row.text(0)?),
        columns: columns?,
    }))
}

/// What the columns of a row should say.
fn columns_of(task: &Task, newest: Option<&TaskRun>) -> [Option<String>; 10] {
    let text = |text: &str| Some(text.to_owned());
    [
        Some(task.version.to_string()),
        Some(rank(task).to_string()),
        text(task.state.as_str()),
        text(&task.role),
        text(task.lane.as_str()),
        task.blocked_on().and_then(|reason| text(reason.as_str())),
        task.retry_at().map(|at| at.0.to_string()),
        task.rework_of.as_ref().and_then(|id| text(id.as_str())),
        task.superseded_by.as_ref().and_then(|id| text(id.as_str())),
        records::awaits(task, newest).and_then(|purpose| text(purpose.as_str())),
    ]
}

async fn newest_run(tx: &mut dyn StoreTx, id: &TaskId) -> Result<Option<TaskRun>, StoreError> {
    let sql = "SELECT doc FROM runs WHERE task_id = $1 ORDER BY number DESC LIMIT 1";
    let row = one(tx, sql, &[SqlArg::Text(id.as_str())]).await?;
    row.map(|row| records::run(&row.text(0)?)).transpose()
}

/// Compares every row with its events.
pub(crate) async fn compare(tx: &mut dyn StoreTx) -> Result<CheckFindings, StoreError> {
    let mut findings = CheckFindings::default();
    for id in &all_ids(tx).await? {
        let (events, folded) = folded(tx, id).await?;
        findings.tasks += 1;
        findings.events += events;
        let row = stored(tx, id).await?;
        let newest = match newest_run(tx, id).await {
            Err(StoreError::Damaged(words)) => {
                findings.rows.push(RowDifference {
                    task_id: id.clone(),
                    words: format!("its newest run cannot be read: {words}"),
                    repairable: false,
                });
                continue;
            }
            newest => newest?,
        };
        let folded = folded.as_ref();
        let found = difference(id, row.as_ref(), folded, newest.as_ref());
        findings.rows.extend(found);
    }
    let orphans = "SELECT id FROM tasks t \
         WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.task_id = t.id) ORDER BY id";
    for row in all(tx, orphans, &[]).await? {
        findings.rows.push(RowDifference {
            task_id: records::task_id(&row.text(0)?)?,
            words: "the row has no event".to_owned(),
            repairable: false,
        });
    }
    Ok(findings)
}

async fn folded(
    tx: &mut dyn StoreTx,
    id: &TaskId,
) -> Result<(u64, Result<Task, String>), StoreError> {
    let events = match events_of(tx, id).await {
        Err(StoreError::Damaged(words)) => return Ok((0, Err(words))),
        events => events?,
    };
    let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
    Ok((count, fold(&events).map_err(|error| error.to_string())))
}

fn difference(
    id: &TaskId,
    row: Option<&Stored>,
    folded: Result<&Task, &String>,
    newest: Option<&TaskRun>,
) -> Option<RowDifference> {
    let (words, repairable) = match (row, folded) {
        (_, Err(words)) => (format!("its events do not add up: {words}"), false),
        (None, Ok(_)) => ("there are events and no row".to_owned(), true),
        (Some(row), Ok(folded)) => match &row.task {
            Err(error) => (format!("the row cannot be read: {error}"), true),
            Ok(task) if task != folded => (what_differs(task, folded), true),
            Ok(task) => {
                let should = columns_of(task, newest);
                let pairs = COLUMNS.iter().zip(row.columns.iter().zip(&should));
                let names: Vec<&str> = pairs
                    .filter(|(_, (is, should))| is != should)
                    .map(|(name, _)| *name)
                    .collect();
                if names.is_empty() {
                    return None;
                }
                let names = names.join(", ");
                (format!("its columns differ from the row in {names}"), true)
            }
        },
    };
    Some(RowDifference {
        task_id: id.clone(),
        words,
        repairable,
    })
}

fn what_differs(row: &Task, folded: &Task) -> String {
    let changes = serde_json::to_value(row.changes_to(folded)).unwrap_or_default();
    let fields = changes.as_array().into_iter().flatten();
    let mut names: Vec<String> = fields
        .filter_map(|change| change.as_object()?.keys().next().cloned())
        .collect();
    if row.version != folded.version {
        names.push("version".to_owned());
    }
    format!("the row differs from its events in {}", names.join(", "))
}

const COUNT_UNMET: &str = "UPDATE tasks SET waits_for = NULL, woken_from = NULL, \
     unmet = (SELECT COUNT(*) FROM dependencies d WHERE d.task_id = tasks.id AND d.met = 0) \
     WHERE id = $1";

const LOCKS_OF_NOBODY: &str =
    "DELETE FROM locks WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = locks.task_id)";
const LEASES_OF_NOBODY: &str =
    "DELETE FROM leases WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = leases.task_id)";

impl Ledger {
    /// Makes every row that differs anew from its events, in one transaction, and with it
    /// what the index of ready tasks says about every task. Then repairs every contradiction
    /// that has a repair, each task in a transaction of its own, with an event.
    pub async fn rebuild(&self) -> Result<RebuildReport, LedgerError> {
        let mut rebuilt = self.rebuild_rows().await?;
        let found = self.check().await?.inconsistencies;
        let mut ids: Vec<&TaskId> = found.iter().map(|one| &one.task_id).collect();
        ids.dedup();
        for id in ids {
            let repair = LedgerCall::new(id.clone(), "rebuild", Request::Repair);
            match self.call(&repair).await {
                Ok(outcome) if outcome.answer == Answer::Unchanged => {}
                Ok(_) => rebuilt.repaired_tasks.push(id.clone()),
                // Somebody was faster, or nothing can be said of it before it is repaired.
                Err(LedgerError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(rebuilt)
    }

    /// Mends whatever can be. Whether nothing keeps this task from going on any longer:
    /// neither its row, nor a contradiction about it, its lineage or overlapping locks.
    pub async fn repair(&self, id: &TaskId) -> Result<bool, LedgerError> {
        let rebuilt = self.rebuild().await?;
        if rebuilt.hopeless.iter().any(|row| row.task_id == *id) {
            return Ok(false);
        }
        Ok(self.contradictions(id).await?.is_empty())
    }

    /// What keeps a task from going on: contradictions that keep one from being done, and
    /// others that can be repaired, about it, its lineage and overlapping locks.
    pub(crate) async fn contradictions(
        &self,
        id: &TaskId,
    ) -> Result<Vec<Inconsistency>, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let Some(loaded) = facts::load(&mut *tx, id, None).await? else {
            return Err(claims::unknown(id).into());
        };
        let mut found = lineage::to_repair(&mut *tx, &loaded).await?;
        found.retain(|one| {
            let kind = one.kind;
            kind.severity() == InconsistencySeverity::Blocking
                || kind.repair() != InconsistencyRepair::Person
        });
        Ok(found)
    }

    async fn rebuild_rows(&self) -> Result<RebuildReport, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let findings = compare(&mut *tx).await?;
        let mut rebuilt = RebuildReport {
            tasks: findings.tasks,
            ..RebuildReport::default()
        };
        for found in findings.rows {
            if !found.repairable {
                rebuilt.hopeless.push(found);
                continue;
            }
            let (_, row) = folded(&mut *tx, &found.task_id).await?;
            if let Ok(task) = row {
                replace_row(&mut *tx, &self.policy, &task).await?;
                rebuilt.repaired += 1;
            }
        }
        for sql in [LOCKS_OF_NOBODY, LEASES_OF_NOBODY] {
            rebuilt.released += run(&mut *tx, sql, &[]).await?;
        }
        refresh_index(&mut *tx).await?;
        tx.commit().await?;
        self.engine.announce();
        Ok(rebuilt)
    }
}

/// Puts a row in the place of whatever is there.
pub(crate) async fn replace_row(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    task: &Task,
) -> Result<(), StoreError> {
    let id = [SqlArg::Text(task.id.as_str())];
    for sql in [
        "DELETE FROM tasks WHERE id = $1",
        "DELETE FROM dependencies WHERE task_id = $1",
        "DELETE FROM unmerged WHERE task_id = $1",
    ] {
        run(tx, sql, &id).await?;
    }
    let newest = newest_run(tx, &task.id).await?;
    writes::insert_row(tx, policy, task, newest.as_ref(), &[]).await
}

/// Counts open dependencies anew and lets everybody who waits look again.
pub(crate) async fn refresh_index(tx: &mut dyn StoreTx) -> Result<(), StoreError> {
    let open = "SELECT DISTINCT dependency FROM dependencies WHERE met = 0 ORDER BY dependency";
    for row in all(tx, open, &[]).await? {
        let id = records::task_id(&row.text(0)?)?;
        let ends = facts::dependencies(tx, std::slice::from_ref(&id)).await?;
        let done = |one: &runner_lifecycle::request::Dependency| {
            matches!(
                one.chain,
                runner_lifecycle::request::DependencyChain::Done(_)
            )
        };
        if ends.iter().any(done) {
            let sql = "UPDATE dependencies SET met = 1 WHERE dependency = $1";
            run(tx, sql, &[SqlArg::Text(id.as_str())]).await?;
        }
    }
    let touched = "SELECT id FROM tasks WHERE waits_for IS NOT NULL OR woken_from IS NOT NULL \
         OR unmet <> (SELECT COUNT(*) FROM dependencies d \
         WHERE d.task_id = tasks.id AND d.met = 0) ORDER BY id";
    for row in all(tx, touched, &[]).await? {
        run(tx, COUNT_UNMET, &[SqlArg::Text(&row.text(0)?)]).await?;
    }
    Ok(())
}
