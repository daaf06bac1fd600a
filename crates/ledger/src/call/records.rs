//! Rows of the store as what they mean, and back.

use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::lock::Resource;
use runner_lifecycle::run::{Lease, Receipt, TaskRun};
use runner_lifecycle::{
    BlockReason, LeasePurpose, Task, TaskId, TaskKind, TaskPhase, TaskState, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{StoreError, damaged};
use crate::store::engine::SqlRow;

/// Reads a stored JSON text.
pub(crate) fn parse<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(what, &error))
}

/// The text that is stored.
pub(crate) fn text<T: Serialize>(what: &str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| damaged(what, &error))
}

pub(crate) fn task(text: &str) -> Result<Task, StoreError> {
    parse("the row of a task", text)
}

pub(crate) fn run(text: &str) -> Result<TaskRun, StoreError> {
    parse("a run", text)
}

pub(crate) fn event(text: &str) -> Result<TaskEvent, StoreError> {
    parse("an event", text)
}

pub(crate) fn receipt(text: &str) -> Result<Receipt, StoreError> {
    parse("a receipt", text)
}

pub(crate) fn task_id(text: &str) -> Result<TaskId, StoreError> {
    TaskId::parse(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// A number that counts, as stores keep it.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::Damaged(format!("{number} counts something")))
}

fn seconds(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::Damaged(format!("{number} seconds")))
}

/// The columns of a lease, in the order in which [`lease`] reads them.
macro_rules! lease_columns {
    () => {
        "l.task_id, l.run_id, l.owner, l.token, l.purpose, l.claim_key, l.claimed_at, \
         l.last_heartbeat_at, l.timeout_seconds, l.heartbeat_interval_seconds, l.ends_at"
    };
}
pub(crate) use lease_columns;

/// How many columns a lease has.
pub(crate) const LEASE_COLUMNS: usize = 11;

/// Reads a lease that begins in that column; none where an outer join found none.
pub(crate) fn lease(row: &SqlRow, from: usize) -> Result<Option<Lease>, StoreError> {
    let Some(id) = row.maybe_text(from)? else {
        return Ok(None);
    };
    let purpose = row.text(from + 4)?;
    Ok(Some(Lease {
        task_id: task_id(&id)?,
        run_id: row.text(from + 1)?,
        owner: row.text(from + 2)?,
        token: count(row.int(from + 3)?)?,
        purpose: LeasePurpose::parse(&purpose)
            .ok_or_else(|| StoreError::Damaged(format!("a lease for {purpose:?}")))?,
        key: row.text(from + 5)?,
        claimed_at: Timestamp(row.int(from + 6)?),
        last_heartbeat_at: Timestamp(row.int(from + 7)?),
        timeout_seconds: seconds(row.int(from + 8)?)?,
        heartbeat_interval_seconds: seconds(row.int(from + 9)?)?,
        ends_at: Timestamp(row.int(from + 10)?),
    }))
}

/// A scope in path order, a line for each name: `=` before a resource of the scope, `+`
/// before what lies above one.
pub(crate) fn scope_lines(scope: &[Resource]) -> String {
    let mut names = std::collections::BTreeMap::new();
    for resource in scope {
        for above in resource.ancestors() {
            names.entry(above).or_insert('+');
        }
        names.insert(resource.clone(), '=');
    }
    let lines = names.iter().map(|(name, mark)| format!("{mark}{name}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Which claim may come next. The index of claims is made of this; the claim itself is
/// decided by the rules.
pub(crate) fn awaits(task: &Task, run: Option<&TaskRun>) -> Option<LeasePurpose> {
    if task.paused && task.intent.is_none() {
        return None;
    }
    match task.state {
        TaskState::Todo => {
            let work = task.phase == TaskPhase::Work && task.kind != TaskKind::Review;
            work.then_some(LeasePurpose::Work)
        }
        TaskState::Blocked if task.blocked_on() == Some(BlockReason::AwaitingJudge) => {
            let run = run?;
            if run.is_approved() {
                Some(LeasePurpose::Merge)
            } else {
                (run.is_unjudged_success() && task.intent.is_none()).then_some(LeasePurpose::Judge)
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(scope: &[&str]) -> Vec<String> {
        let scope: Vec<Resource> = scope.iter().map(|t| Resource::parse(t).unwrap()).collect();
        let lines = scope_lines(&scope);
        lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn overlapping_scopes_meet_in_a_line_that_one_takes_for_itself() {
        let meet = |one: &[&str], other: &[&str]| {
            let other = lines(other);
            lines(one).iter().any(|mine| {
                let theirs = other.iter().find(|theirs| theirs[1..] == mine[1..]);
                theirs.is_some_and(|theirs| mine.starts_with('=') || theirs.starts_with('='))
            })
        };
        assert!(meet(&["src"], &["src/x"]));
        assert!(meet(&["."], &["src/x/y"]));
        assert!(meet(&["docs", "src/x"], &["src/x"]));
        assert!(!meet(&["src/x"], &["src/y"]));
        assert!(!meet(&["."], &["@judge/t"]));
        assert!(!meet(&["src"], &["srcs"]));
    }

    #[test]
    fn every_scope_has_the_same_order() {
        assert_eq!(lines(&["b/c", "a"]), ["+.", "=a", "+b", "=b/c"]);
        assert_eq!(lines(&["b/c", "a"]), lines(&["a", "b/c"]));
        assert_eq!(lines(&["a", "a/b"]), ["+.", "=a", "=a/b"]);
    }
}
