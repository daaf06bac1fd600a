//! Removing what ended runs left in the workspaces.

use std::collections::BTreeMap;

use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{Task, TaskId, TaskRunStatus};

use super::RoleContext;
use crate::ledger_port::LedgerResult;
use crate::workspaces::LeftoverRun;

/// Whether anybody may still need what a run left.
pub(super) fn is_needed(
    task: &Task,
    runs: &[TaskRun],
    kept: &LeftoverRun,
    starts_from: Option<&str>,
) -> bool {
    let Some(run) = runs.iter().find(|run| run.id == kept.run_id) else {
        return false;
    };
    // Its successor starts from this result.
    let start = run.result.is_some() && run.result.as_deref() == starts_from;
    if task.state.is_terminal() {
        return start;
    }
    let current = run.status == TaskRunStatus::Running && run.token == kept.token;
    let last_result = runs
        .iter()
        .rev()
        .find(|run| run.status == TaskRunStatus::Success)
        .is_some_and(|last| last.id == run.id && last.token == kept.token);
    current || last_result || start
}

/// Asks the ledger about each run that left something, and removes what nobody needs.
pub(super) async fn sweep(context: &RoleContext) -> LedgerResult<()> {
    // Workspaces that cannot be swept now are swept later.
    let Ok(kept) = context.workspaces.leftover_runs().await else {
        return Ok(());
    };
    let mut known: BTreeMap<TaskId, Option<SweptTask>> = BTreeMap::new();
    let mut gone = Vec::new();
    for one in kept {
        if !known.contains_key(&one.task) {
            let look = look(context, &one.task).await?;
            known.insert(one.task.clone(), look);
        }
        let needed = match known.get(&one.task) {
            Some(Some((task, runs, starts))) => is_needed(task, runs, &one, starts.as_deref()),
            _ => false,
        };
        if !needed {
            gone.push(one);
        }
    }
    if !gone.is_empty() {
        drop(context.workspaces.sweep(gone).await);
    }
    Ok(())
}

/// A task, its runs, and the commit that its successor starts from.
type SweptTask = (Task, Vec<TaskRun>, Option<String>);

async fn look(context: &RoleContext, id: &TaskId) -> LedgerResult<Option<SweptTask>> {
    let Some(task) = context.ledger.task(id).await? else {
        return Ok(None);
    };
    let runs = context.ledger.runs(id).await?;
    let successor = match &task.superseded_by {
        Some(successor) => context.ledger.task(successor).await?,
        None => None,
    };
    let starts = successor
        .filter(|successor| !successor.state.is_terminal())
        .and_then(|successor| successor.start_from);
    Ok(Some((task, runs, starts)))
}
