//! What must hold when a fleet has come to rest, seen from outside: git, the ledger, the
//! folders and the processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use runner::{Error, ErrorCode, Result};
use runner_exec::{Cancel, Ended, Flow, Sink, Spec, Stream, Supervisor};
use runner_ledger::{Ledger, LedgerError};
use runner_lifecycle::{Task, TaskState};

/// How long git may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

struct DemoText(Vec<u8>);

impl Sink for DemoText {
    fn output(&mut self, _: Stream, bytes: &[u8]) -> Flow {
        self.0.extend_from_slice(bytes);
        Flow::Go
    }
}

/// What git says, as the user of a checkout would hear it.
pub(super) fn git(folder: &Path, words: &[&str]) -> Result<String> {
    let argv = std::iter::once("git").chain(words.iter().copied());
    let spec = Spec {
        argv: argv.map(Into::into).collect(),
        cwd: folder.to_owned(),
        env: std::env::vars_os().collect(),
        stdin: None,
        merge_stderr: true,
        deadline: Some(Instant::now() + PATIENCE),
        idle_timeout: None,
        grace: Duration::from_secs(1),
        monitor: false,
        hold_lock: None,
        task_limit: None,
        cannot_start: None,
    };
    let mut text = DemoText(Vec::new());
    let report = Supervisor::this_binary().run(&spec, &Cancel::new()?, &mut text)?;
    let said = String::from_utf8_lossy(&text.0).into_owned();
    match report.ended {
        Ended::Exited(0) => Ok(said),
        ended => Err(Error::new(
            ErrorCode::Git,
            format!(
                "git {} ended with {ended:?}: {}",
                words.join(" "),
                said.trim()
            ),
        )),
    }
}

/// How often each task was merged into a branch.
pub(super) fn merges(folder: &Path, branch: &str) -> Result<BTreeMap<String, u32>> {
    let format = "--format=%(trailers:key=Runner-Task,valueonly)";
    let mut count: BTreeMap<String, u32> = BTreeMap::new();
    for id in git(folder, &["log", format, branch])?.lines() {
        if !id.trim().is_empty() {
            *count.entry(id.trim().to_owned()).or_default() += 1;
        }
    }
    Ok(count)
}

/// What the trailers of the base say against the states of the tasks.
pub(super) fn wrong_merges(tasks: &[&Task], merged: &BTreeMap<String, u32>) -> Vec<String> {
    let mut wrong = Vec::new();
    for task in tasks {
        let times = merged.get(task.id.as_str()).copied().unwrap_or(0);
        let expected = u32::from(task.state == TaskState::Done && task.needs_merge());
        if times != expected {
            wrong.push(format!(
                "{} is {} and was merged {times} times, not {expected}",
                task.id, task.state
            ));
        }
    }
    wrong
}

/// What the ledger still holds though nobody works.
pub(super) async fn ledger(ledger: &Ledger) -> std::result::Result<Vec<String>, LedgerError> {
    let mut wrong = Vec::new();
    let found = ledger.check().await?;
    if !found.is_clean() {
        wrong.push("the ledger contradicts itself: see `runner ledger check`".to_owned());
    }
    let locks = ledger.locks().await?.into_iter();
    wrong.extend(locks.map(|lock| format!("{} still locks {}", lock.task_id, lock.resource)));
    let leases = ledger.leases().await?.into_iter();
    wrong.extend(leases.map(|lease| format!("{} still holds {}", lease.owner, lease.task_id)));
    Ok(wrong)
}

/// Folders and processes that are left.
pub(super) fn leftovers(folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for kind in ["worktrees", "checkouts"] {
        let path = folder.join(runner_core::paths::FLEET_DIR).join(kind);
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            wrong.push(format!("{} is left", entry.path().display()));
        }
    }
    let me = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if name != me && name != "self" && name != "thread-self" && cwd.starts_with(folder) {
            wrong.push(format!("process {name} still runs in {}", cwd.display()));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use runner_lifecycle::TaskId;

    use super::*;

    #[test]
    fn merged_once_if_done_and_never_otherwise() {
        let task = |id: &str, state, expects_change| {
            let mut task = Task::blank(TaskId::parse(id).unwrap());
            task.state = state;
            task.expects_change = expects_change;
            task
        };
        let tasks = [
            task("once", TaskState::Done, true),
            task("twice", TaskState::Done, true),
            task("never", TaskState::Done, true),
            task("dead", TaskState::Failed, true),
            task("looked", TaskState::Done, false),
        ];
        let merged = [("once", 1), ("twice", 2), ("dead", 1)];
        let merged = merged.map(|(id, times)| (id.to_owned(), times)).into();
        let wrong = wrong_merges(&tasks.iter().collect::<Vec<_>>(), &merged);
        assert_eq!(
            wrong,
            [
                "twice is done and was merged 2 times, not 1",
                "never is done and was merged 0 times, not 1",
                "dead is failed and was merged 1 times, not 0",
            ]
        );
    }
}
