//! From the records of iterations to what the page shows of them.

use std::path::Path;
use std::sync::Arc;

use runner::Project;
use runner_core::meta::IterationMeta;
use runner_core::output::AgentOutput;

use crate::source::{self, FoundIteration, RunSource};
use crate::trees::ValidTree;
use crate::wire;

/// How much of an error log the detail shows.
const MAX_ERROR_LOG: u64 = 64 * 1024;

/// The files of an iteration that can be asked for.
pub(crate) const FILES: [&str; 13] = [
    "guard.log",
    "executor.log",
    "stream.jsonl",
    "prompt.md",
    "output.json",
    "meta.json",
    "argv.json",
    "schema.json",
    "runner_error.log",
    "agent_error.log",
    "tree.before.json",
    "tree.agent.json",
    "tree.after.json",
];

/// Every run with its iterations, the current one first.
pub(crate) fn iterations(source: &RunSource, project: &Project) -> wire::IterationList {
    let current = runner::run_state_of(project)
        .ok()
        .and_then(|state| state.run_id);
    let mut runs: Vec<wire::RunIterations> = source::runs(project, current.as_deref())
        .into_iter()
        .map(|(run, numbers)| {
            if current.as_deref() == Some(run.as_str()) {
                return run_rows(source, project, &run, &numbers, true);
            }
            let make = || run_rows(source, project, &run, &numbers, false);
            wire::RunIterations::clone(&source.old_run(project, &run, &numbers, make))
        })
        .collect();
    let newest = |run: &wire::RunIterations| {
        let last = run.iterations.last();
        last.and_then(|row| row.started_at.clone())
    };
    runs.sort_by_cached_key(|run| std::cmp::Reverse((run.current, newest(run))));
    wire::IterationList { runs }
}

fn run_rows(
    source: &RunSource,
    project: &Project,
    run: &str,
    numbers: &[u32],
    is_current: bool,
) -> wire::RunIterations {
    let tree = newest_tree(source, project, run, numbers, is_current);
    let found = |iter: &u32| FoundIteration {
        run: run.to_owned(),
        iter: *iter,
    };
    wire::RunIterations {
        run_id: run.to_owned(),
        current: is_current,
        iterations: numbers
            .iter()
            .map(|iter| row(source, project.root(), &found(iter), tree.as_deref()))
            .collect(),
    }
}

/// The newest valid tree of a run: the project's own, or the last one recorded.
fn newest_tree(
    source: &RunSource,
    project: &Project,
    run: &str,
    numbers: &[u32],
    is_current: bool,
) -> Option<Arc<ValidTree>> {
    if is_current && let Ok(Ok(tree)) = source.tree(project) {
        return Some(tree);
    }
    // Further back than a few it is not worth the reading.
    numbers.iter().rev().take(3).find_map(|iter| {
        let it = FoundIteration {
            run: run.to_owned(),
            iter: *iter,
        };
        source
            .tree_of(project.root(), &it, "tree.after.json")
            .ok()?
            .ok()
    })
}

/// One iteration as a bar of the timeline.
pub(crate) fn row(
    source: &RunSource,
    root: &Path,
    it: &FoundIteration,
    tree: Option<&ValidTree>,
) -> wire::IterationRow {
    let meta = source.meta(root, it);
    let mut row = match meta.as_deref() {
        Some(meta) => recorded(meta),
        None => under_way(root, it),
    };
    let place = row
        .node_id
        .as_deref()
        .and_then(|id| tree.and_then(|tree| tree.place(id)));
    if let Some((title, path)) = place {
        row.title = Some(title.clone());
        row.path = Some(path.clone());
    }
    row
}

fn recorded(meta: &IterationMeta) -> wire::IterationRow {
    let executor = meta.executor.as_ref();
    let error = meta.error.as_ref();
    wire::IterationRow {
        iter: meta.iter,
        recorded: true,
        node_id: Some(meta.node_id.clone()),
        title: None,
        path: None,
        mode: Some(meta.mode.into()),
        status: Some(meta.status.into()),
        guard: Some(meta.guard.into()),
        class: Some(meta.class.into()),
        error_kind: error.map(|error| error.kind.into()),
        error_message: error.map(|error| error.message.clone()),
        started_at: Some(meta.started_at.clone()),
        ended_at: Some(meta.ended_at.clone()),
        duration_ms: Some(meta.duration_ms),
        agent_ms: executor.map(|run| run.duration_ms),
        guard_ms: meta.guard_run.as_ref().map(|run| run.duration_ms),
        input_tokens: executor.and_then(|run| run.input_tokens),
        cached_input_tokens: executor.and_then(|run| run.cached_input_tokens),
        output_tokens: executor.and_then(|run| run.output_tokens),
        cost_usd: executor.and_then(|run| run.cost_usd),
        attempts: meta.attempts,
        passes: meta.passes,
        tree_changes: wire::ChangeCounts {
            added: count(&meta.tree_changes.added),
            edited: count(&meta.tree_changes.edited),
            moved: count(&meta.tree_changes.moved),
        },
        watched_changed: count(&meta.watched_changed),
        passed: meta.passed.clone(),
    }
}

fn under_way(root: &Path, it: &FoundIteration) -> wire::IterationRow {
    let started = it.started(root);
    wire::IterationRow {
        iter: it.iter,
        recorded: false,
        node_id: started.as_ref().map(|started| started.node_id.clone()),
        title: None,
        path: None,
        mode: None,
        status: None,
        guard: None,
        class: None,
        error_kind: None,
        error_message: None,
        started_at: started.map(|started| started.started_at),
        ended_at: None,
        duration_ms: None,
        agent_ms: None,
        guard_ms: None,
        input_tokens: None,
        cached_input_tokens: None,
        output_tokens: None,
        cost_usd: None,
        attempts: None,
        passes: None,
        tree_changes: wire::ChangeCounts::default(),
        watched_changed: 0,
        passed: Vec::new(),
    }
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

/// One iteration in full.
pub(crate) fn detail(
    source: &RunSource,
    project: &Project,
    it: &FoundIteration,
) -> wire::IterationDetail {
    let root = project.root();
    let current = runner::run_state_of(project)
        .ok()
        .and_then(|state| state.run_id);
    let is_current = current.as_deref() == Some(it.run.as_str());
    let numbers = source::iterations(root, &it.run);
    let tree = newest_tree(source, project, &it.run, &numbers, is_current);
    let row = row(source, root, it, tree.as_deref());
    let activity = (!row.recorded && is_current)
        .then(|| runner::activity(project))
        .filter(|now| now.is_running() && now.iter == Some(it.iter));
    let output = it
        .read(root, "output.json", 2 * 1024 * 1024)
        .ok()
        .and_then(|bytes| AgentOutput::parse(&bytes).ok());
    let text = |file: &str| {
        use std::io::Read as _;
        let file = it.open(root, file).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_ERROR_LOG).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    wire::IterationDetail {
        run_id: it.run.clone(),
        meta: source.meta(root, it).map(|meta| full(&meta)),
        row,
        phase: activity.as_ref().map(|now| now.phase.into()),
        phase_started_at: activity.and_then(|now| now.phase_started_at),
        output: output.map(|output| wire::AgentReport {
            status: output.status.into(),
            summary: output.summary,
        }),
        runner_error: text("runner_error.log"),
        agent_error: text("agent_error.log"),
        files: FILES
            .iter()
            .filter_map(|name| {
                let meta = it.open(root, name).ok()?.metadata().ok()?;
                Some(wire::LogFile {
                    name: (*name).to_owned(),
                    bytes: meta.len(),
                })
            })
            .collect(),
    }
}

fn full(meta: &IterationMeta) -> wire::IterationMetaView {
    let guard = meta.guard_run.as_ref();
    wire::IterationMetaView {
        backend: meta.executor.as_ref().map(|run| run.backend.clone()),
        agent_exit_code: meta.executor.as_ref().and_then(|run| run.exit_code),
        guard_command: guard.map(|run| run.command.clone()),
        guard_exit_code: guard.and_then(|run| run.exit_code),
        guard_log_sha256: guard.map(|run| run.log_sha256.clone()),
        error: meta.error.as_ref().map(|error| wire::MetaError {
            kind: error.kind.into(),
            message: error.message.clone(),
            retry_at: error.retry_at.clone(),
        }),
        added: meta.tree_changes.added.clone(),
        edited: meta.tree_changes.edited.clone(),
        moved: meta.tree_changes.moved.clone(),
        watched_changed: meta.watched_changed.clone(),
        guard_untracked: meta.guard_untracked.clone(),
        owned_changed: meta.facts.owned_changed.clone(),
        protected_changed: meta.facts.protected_changed.clone(),
        guard_written: meta.facts.guard_written.clone(),
        denied_files: meta.facts.denied_files.clone(),
        notes: meta.notes.clone(),
        sandbox: meta.sandbox.clone(),
        head: meta.head.clone(),
    }
}
