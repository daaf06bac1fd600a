//! Many issues at once: which become tasks, in which order, and what is wrong.

use std::collections::{BTreeMap, BTreeSet};

use runner_lifecycle::request::NewTask;
use runner_lifecycle::row::TaskId;

use super::super::draft::TaskDefaults;
use super::{IssueFinding, SourceIssue};

/// What an import comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssueImport {
    /// New tasks, dependencies first.
    pub tasks: Vec<NewTask>,
    /// Issues that cannot become tasks, with why.
    pub refused: Vec<(u64, IssueFinding)>,
}

/// Makes tasks of the open issues that are none yet. `known` are the ids that the ledger
/// has. A dependency on a closed issue is met.
pub fn import(
    source: &str,
    issues: &[SourceIssue],
    known: &BTreeSet<TaskId>,
    defaults: &TaskDefaults,
) -> IssueImport {
    let mut import = IssueImport::default();
    let mut waiting: BTreeMap<u64, NewTask> = BTreeMap::new();
    let closed: BTreeSet<TaskId> = issues
        .iter()
        .filter(|issue| issue.closed)
        .filter_map(|issue| SourceIssue::task_id(source, issue.number))
        .filter(|id| !known.contains(id))
        .collect();
    for issue in issues.iter().filter(|issue| !issue.closed) {
        let id = SourceIssue::task_id(source, issue.number);
        if id.is_some_and(|id| known.contains(&id)) {
            continue;
        }
        match issue.task(source, defaults) {
            Ok(mut task) => {
                task.dependencies.retain(|need| !closed.contains(need));
                waiting.insert(issue.number, task);
            }
            Err(findings) => {
                let all = findings.into_iter().map(|finding| (issue.number, finding));
                import.refused.extend(all);
            }
        }
    }
    let mut there = known.clone();
    loop {
        let free = waiting
            .iter()
            .find(|(_, task)| task.dependencies.iter().all(|need| there.contains(need)))
            .map(|(number, _)| *number);
        let Some(task) = free.and_then(|number| waiting.remove(&number)) else {
            break;
        };
        there.insert(task.id.clone());
        import.tasks.push(task);
    }
    // What is left waits for an issue that is not there, or for itself in a circle.
    for (number, task) in &waiting {
        let missing = task.dependencies.iter().find(|need| {
            !there.contains(*need) && !waiting.values().any(|other| other.id == **need)
        });
        let words = match missing {
            Some(need) => format!("it depends on {need}, which is no issue that can be imported"),
            None => "it depends on issues that wait for it, or cannot be imported".to_owned(),
        };
        import.refused.push((*number, IssueFinding::whole(words)));
    }
    import
}
