//! What people see of a fleet that is up, as data: a line for each thing that is new, and
//! a few that are drawn again and again.

use std::collections::BTreeMap;

use runner_lifecycle::run::Lease;
use runner_lifecycle::{LeasePurpose, TaskId, TaskState, Timestamp};

use crate::style;

/// What was said of each task: nobody is told the same twice.
#[derive(Debug, Default)]
pub(super) struct TaskBoard {
    said: BTreeMap<TaskId, String>,
}

impl TaskBoard {
    /// The line about a task, if it says something new.
    pub(super) fn news(&mut self, id: &TaskId, state: TaskState, words: &str) -> Option<String> {
        let line = format!("{:<11} {id}  {words}", state.as_str());
        if self.said.get(id) == Some(&line) {
            return None;
        }
        self.said.insert(id.clone(), line.clone());
        Some(line)
    }
}

/// Everything that goes on and how much is left, each in a line that fits.
pub(super) fn live_lines(
    leases: &[Lease],
    doing: &BTreeMap<String, String>,
    counts: &BTreeMap<TaskState, u64>,
    now: Timestamp,
    size: (usize, usize),
) -> Vec<String> {
    let (width, height) = size;
    let room = height.saturating_sub(3).max(1);
    let mut lines: Vec<String> = leases
        .iter()
        .take(room)
        .map(|lease| {
            let elapsed = style::duration(now.millis_since(lease.claimed_at) / 1000 * 1000 + 1000);
            let word = doing.get(&lease.run_id).map_or("", String::as_str);
            let what = match (lease.purpose, word) {
                (LeasePurpose::Work, "") => "prepares".to_owned(),
                (LeasePurpose::Work, word) => word.to_owned(),
                (LeasePurpose::Judge, "") => "judges".to_owned(),
                (LeasePurpose::Judge, word) => format!("judges, {word}"),
                (LeasePurpose::Merge, _) => "merges".to_owned(),
            };
            format!("▶ {}  {} · {elapsed} · {what}", lease.task_id, lease.owner)
        })
        .collect();
    if leases.len() > room {
        lines.push(format!("  and {} more", leases.len() - room));
    }
    lines.push(counted(counts));
    let fit = |line: &String| style::one_line(line, width.saturating_sub(1));
    lines.iter().map(fit).collect()
}

/// `3 done, 2 in_progress, 1 todo`.
pub(super) fn counted(counts: &BTreeMap<TaskState, u64>) -> String {
    let order = [
        TaskState::Done,
        TaskState::InProgress,
        TaskState::Todo,
        TaskState::Blocked,
        TaskState::Failed,
        TaskState::Canceled,
    ];
    let parts: Vec<String> = order
        .iter()
        .filter_map(|state| Some((state, counts.get(state)?)))
        .filter(|(_, count)| **count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    if parts.is_empty() {
        "no tasks yet".to_owned()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> TaskId {
        TaskId::parse(text).unwrap()
    }

    #[test]
    fn nothing_is_said_twice() {
        let mut board = TaskBoard::default();
        let said = board.news(&id("a"), TaskState::Todo, "waits for its turn");
        assert_eq!(said.as_deref(), Some("todo        a  waits for its turn"));
        assert_eq!(
            board.news(&id("a"), TaskState::Todo, "waits for its turn"),
            None
        );
        assert!(board.news(&id("a"), TaskState::Done, "merged").is_some());
        assert!(board.news(&id("b"), TaskState::Done, "merged").is_some());
    }

    #[test]
    fn lines_fit_whatever_goes_on() {
        let lease = |n: u32, purpose| Lease {
            task_id: id(&format!("task-{n}")),
            run_id: format!("task-{n}-1"),
            owner: format!("worker-{n}"),
            token: 1,
            purpose,
            key: String::new(),
            claimed_at: Timestamp(0),
            last_heartbeat_at: Timestamp(0),
            timeout_seconds: 90,
            heartbeat_interval_seconds: 15,
            ends_at: Timestamp(0),
        };
        let leases: Vec<Lease> = (1..=9).map(|n| lease(n, LeasePurpose::Work)).collect();
        let doing = [("task-1-1".to_owned(), "cargo test".to_owned())].into();
        let counts = [(TaskState::InProgress, 9), (TaskState::Done, 2)].into();
        let lines = live_lines(&leases, &doing, &counts, Timestamp(65_000), (60, 8));
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0], "▶ task-1  worker-1 · 1m06s · cargo test");
        assert_eq!(lines[1], "▶ task-2  worker-2 · 1m06s · prepares");
        assert_eq!(lines[5], "and 4 more");
        assert_eq!(lines[6], "2 done, 9 in_progress");
        let narrow = live_lines(&leases, &doing, &counts, Timestamp(65_000), (12, 30));
        assert!(
            narrow.iter().all(|line| line.chars().count() < 12),
            "{narrow:?}"
        );
        let merge = live_lines(
            &[lease(1, LeasePurpose::Merge)],
            &doing,
            &counts,
            Timestamp(0),
            (60, 9),
        );
        assert_eq!(merge[0], "▶ task-1  worker-1 · 1.0s · merges");
        assert_eq!(
            live_lines(&[], &doing, &BTreeMap::new(), Timestamp(0), (60, 9)),
            ["no tasks yet"]
        );
    }
}
