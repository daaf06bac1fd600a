//! What was tried before on a leaf that does not pass: its last words, the guard's
//! last failure.

use runner_core::decide::MAX_FEEDBACK_BYTES;
use runner_core::meta::{GuardResult, IterationMeta, IterationVerdict, OutcomeClass};
use runner_core::output::{AgentOutput, MAX_OUTPUT_BYTES};
use runner_core::report::{GuardFailure, NodeAttempt, NodeHistory};
use runner_core::run_state::RunState;
use runner_core::text;

use crate::files;
use crate::project::Project;

/// So many tries are shown.
const TRIES: usize = 3;

/// So much of the end of a guard's log is shown.
const TAIL_LINES: usize = 12;
const TAIL_BYTES: usize = 2000;

/// A longer log is not read.
const MAX_LOG: u64 = 64 * 1024 * 1024;

/// Looks through the records of a node's iterations, rising.
pub(crate) fn of(
    project: &Project,
    node_id: &str,
    metas: &[&IterationMeta],
    run_state: &RunState,
) -> NodeHistory {
    let ours: Vec<&IterationMeta> = metas
        .iter()
        .copied()
        .filter(|meta| meta.node_id == node_id && meta.class != OutcomeClass::RunnerError)
        .collect();
    let mut tries: Vec<NodeAttempt> = ours
        .iter()
        .rev()
        .take(TRIES)
        .map(|meta| NodeAttempt {
            iter: Some(meta.iter),
            outcome: meta.verdict(),
            summary: words(project, meta),
        })
        .collect();
    tries.reverse();
    if tries.is_empty()
        && run_state.last_node_id.as_deref() == Some(node_id)
        && let (Some(status), Some(guard)) = (run_state.last_status, run_state.last_guard)
    {
        // A clone without logs: the bookkeeping has the last words.
        tries.push(NodeAttempt {
            iter: None,
            outcome: IterationVerdict::of_commit(status, guard, false),
            summary: run_state.last_summary.clone(),
        });
    }
    let red = ours
        .iter()
        .rev()
        .find(|meta| meta.guard == GuardResult::Fail);
    NodeHistory {
        tries,
        guard: red.map(|meta| failure(project, meta)),
    }
}

/// What the agent said, or what was not accepted of it.
pub(crate) fn words(project: &Project, meta: &IterationMeta) -> Option<String> {
    let folder = project.iteration(&meta.run_id, meta.iter);
    let read = |name: &str, max: u64| files::read_regular(&folder.join(name), max).ok();
    if meta.class != OutcomeClass::Ok {
        let bytes = read("agent_error.log", MAX_LOG)?;
        let log = String::from_utf8_lossy(&bytes);
        return Some(text::cut_end(log.trim_end(), MAX_FEEDBACK_BYTES).into_owned());
    }
    let bytes = read("output.json", MAX_OUTPUT_BYTES as u64)?;
    Some(AgentOutput::parse(&bytes).ok()?.summary)
}

fn failure(project: &Project, meta: &IterationMeta) -> GuardFailure {
    let run = meta.guard_run.as_ref();
    let path = project.iteration(&meta.run_id, meta.iter).join("guard.log");
    let log = files::read_regular(&path, MAX_LOG).ok();
    GuardFailure {
        iter: meta.iter,
        command: run.map(|run| run.command.clone()).unwrap_or_default(),
        exit: run.and_then(|run| run.exit_code),
        tail: log.map(|bytes| tail(&String::from_utf8_lossy(&bytes))),
    }
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    text::cut_front(&last.join("\n"), TAIL_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        assert_eq!(tail("a\nb\n\n"), "a\nb");
        let lines: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let long = lines.join("\n");
        assert!(tail(&long).starts_with("88\n") && tail(&long).ends_with("\n99"));
        assert!(tail(&"x".repeat(9000)).len() <= TAIL_BYTES);
    }
}
