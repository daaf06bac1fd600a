//! Rows from events: what was changed is enough to say what is.

use runner_lifecycle::event::fold;
use runner_lifecycle::{Policy, Task, TaskId};

use crate::check::Findings;
use crate::engine::{Access, Arg, Session, all, run};
use crate::error::{LedgerError, StoreError};
use crate::facts;
use crate::ledger::Ledger;
use crate::reads::{all_ids, events_of, stored_row};
use crate::records;
use crate::writes;

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
pub struct Rebuilt {
    /// How many rows were compared.
    pub tasks: u64,
    /// How many were made anew.
    pub repaired: u64,
    /// Those that could not be: their events contradict themselves.
    pub hopeless: Vec<RowDifference>,
}

/// Compares every row with its events.
pub(crate) async fn compare(session: &mut dyn Session) -> Result<Findings, StoreError> {
    let mut findings = Findings::default();
    for id in &all_ids(session).await? {
        let (events, folded) = folded(session, id).await?;
        findings.tasks += 1;
        findings.events += events;
        let row = stored_row(session, id).await?;
        findings
            .rows
            .extend(difference(id, row.as_ref(), folded.as_ref()));
    }
    let orphans = "SELECT id FROM tasks t \
         WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.task_id = t.id) ORDER BY id";
    for row in all(session, orphans, &[]).await? {
        findings.rows.push(RowDifference {
            task_id: records::task_id(&row.text(0)?)?,
            words: "the row has no event".to_owned(),
            repairable: false,
        });
    }
    Ok(findings)
}

async fn folded(
    session: &mut dyn Session,
    id: &TaskId,
) -> Result<(u64, Result<Task, String>), StoreError> {
    let events = events_of(session, id).await?;
    let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
    Ok((count, fold(&events).map_err(|error| error.to_string())))
}

fn difference(
    id: &TaskId,
    row: Option<&Task>,
    folded: Result<&Task, &String>,
) -> Option<RowDifference> {
    let (words, repairable) = match (row, folded) {
        (_, Err(words)) => (format!("its events do not add up: {words}"), false),
        (None, Ok(_)) => ("there are events and no row".to_owned(), true),
        (Some(row), Ok(folded)) if row == folded => return None,
        (Some(row), Ok(folded)) => (what_differs(row, folded), true),
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

impl Ledger {
    /// Makes every row that differs anew from its events, in one transaction, and with it
    /// what the index of ready tasks says about every task.
    pub async fn rebuild(&self) -> Result<Rebuilt, LedgerError> {
        let mut session = self.engine.begin(Access::Write).await?;
        let findings = compare(&mut *session).await?;
        let mut rebuilt = Rebuilt {
            tasks: findings.tasks,
            ..Rebuilt::default()
        };
        for found in findings.rows {
            if !found.repairable {
                rebuilt.hopeless.push(found);
                continue;
            }
            let (_, row) = folded(&mut *session, &found.task_id).await?;
            if let Ok(task) = row {
                replace_row(&mut *session, &self.policy, &task).await?;
                rebuilt.repaired += 1;
            }
        }
        refresh_index(&mut *session).await?;
        session.commit().await?;
        self.engine.announce();
        Ok(rebuilt)
    }
}

/// Puts a row in the place of whatever is there.
pub(crate) async fn replace_row(
    session: &mut dyn Session,
    policy: &Policy,
    task: &Task,
) -> Result<(), StoreError> {
    let id = [Arg::Text(task.id.as_str())];
    for sql in [
        "DELETE FROM tasks WHERE id = $1",
        "DELETE FROM dependencies WHERE task_id = $1",
        "DELETE FROM unmerged WHERE task_id = $1",
    ] {
        run(session, sql, &id).await?;
    }
    let newest = "SELECT doc FROM runs WHERE task_id = $1 ORDER BY number DESC LIMIT 1";
    let newest = crate::engine::one(session, newest, &id).await?;
    let newest = newest.map(|row| records::run(&row.text(0)?)).transpose()?;
    writes::insert_row(session, policy, task, newest.as_ref(), &[]).await
}

/// Counts open dependencies anew and lets everybody who waits look again.
pub(crate) async fn refresh_index(session: &mut dyn Session) -> Result<(), StoreError> {
    let open = "SELECT DISTINCT dependency FROM dependencies WHERE met = 0 ORDER BY dependency";
    for row in all(session, open, &[]).await? {
        let id = records::task_id(&row.text(0)?)?;
        let ends = facts::dependencies(session, std::slice::from_ref(&id)).await?;
        let done = |one: &runner_lifecycle::request::Dependency| {
            matches!(one.chain, runner_lifecycle::request::Chain::Done(_))
        };
        if ends.iter().any(done) {
            let sql = "UPDATE dependencies SET met = 1 WHERE dependency = $1";
            run(session, sql, &[Arg::Text(id.as_str())]).await?;
        }
    }
    let touched = "SELECT id FROM tasks WHERE waits_for IS NOT NULL OR woken_from IS NOT NULL \
         OR unmet <> (SELECT COUNT(*) FROM dependencies d \
         WHERE d.task_id = tasks.id AND d.met = 0) ORDER BY id";
    for row in all(session, touched, &[]).await? {
        run(session, COUNT_UNMET, &[Arg::Text(&row.text(0)?)]).await?;
    }
    Ok(())
}
