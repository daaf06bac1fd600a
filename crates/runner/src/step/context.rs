//! What the agent reads: `.runner/context/` and the prompt.

use runner_core::context::{self, FailedVerdict};
use runner_core::ids::REPAIR_NODE;
use runner_core::meta::{GuardResult, IterationMeta, OutcomeClass};
use runner_core::paths;
use runner_core::prompt::{self, PromptInput, PromptMode};
use runner_core::tree::{self, Node};

use super::prepare::SetupFailure;
use super::{Iteration, StepJob};
use crate::checkout::workspace::RunWorkspace;
use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, FileBatch};
use crate::project::Project;
use crate::state::{self, ProjectState};
use crate::step::file_image;
use crate::step::masked_sink::passed_values;

/// More of a guard's log than this is never shown to an agent.
const MAX_LOG: u64 = 64 * 1024 * 1024;

/// Clears and writes `.runner/context/` in the workspace, and writes the prompt into the
/// iteration's folder.
pub(super) fn write(
    records: &Project,
    workspace: &RunWorkspace,
    it: &Iteration,
    state: &ProjectState,
    job: &StepJob<'_, '_>,
    setup: Option<&SetupFailure>,
) -> Result<()> {
    let goal = context_goal(job);
    let history = state
        .run_state
        .history_for(&job.node_id)
        .map(context::history_md);
    let failure = match setup {
        Some(setup) => Some(setup.words(&state.config)),
        None if job.repair.is_some() => None,
        None => failure(records, it, state, job),
    };
    let project = &workspace.checkout.project;

    let folder = project.context();
    file_image::make_parents(
        project.root(),
        std::path::Path::new(".runner/context/x"),
        &it.quarantine(),
    )?;
    for entry in std::fs::read_dir(&folder)?.flatten() {
        if entry.file_name() != files::IGNORE_FILE {
            files::remove_if_there(&entry.path())?;
        }
    }
    files::ignore_itself(&folder)?;
    let mut batch = FileBatch::new();
    batch.write(&folder.join("goal.md"), goal.as_bytes())?;
    if let Some(history) = &history {
        batch.write(&folder.join("history.md"), history.as_bytes())?;
    }
    if let Some(failure) = &failure {
        batch.write(&folder.join("failure.md"), failure.as_bytes())?;
    }

    let text = |path: &str| {
        state::optional_text(project, path)
            .map_err(|error| Error::new(ErrorCode::Layout, format!("{path}: {error}")))
    };
    let instructions = text(paths::INSTRUCTIONS)?;
    let assumptions = text(paths::ASSUMPTIONS)?.unwrap_or_default();
    let questions = text(paths::QUESTIONS)?.unwrap_or_default();
    let sidecars = sidecars(project, job);
    let selected = job.root.find(&job.node_id);
    let valid_tree = job.repair.as_ref().map(|_| tree::to_json(job.root));
    let selected_json = selected.map(tree::to_json).unwrap_or_default();
    let tree_summary = tree::summary(job.root, &job.node_id);
    let output_path = project_path(records, it);
    let mode = match (&job.repair, &valid_tree) {
        (Some(repair), Some(valid_tree)) => PromptMode::Repair {
            findings: &repair.findings,
            valid_tree,
            refused_before: state.run_state.history_for(REPAIR_NODE),
        },
        _ => PromptMode::Work,
    };
    let prompt = prompt::build(&PromptInput {
        goal_md: state.goal.body(),
        instructions: instructions.as_deref(),
        guard_command: &state.config.guard.command,
        protected: &state.config.guard.protected,
        protected_values: &state.config.guard.protected_values,
        attempt: selected.map_or(1, |node| node.attempts + 1),
        max_attempts: selected.map_or(1, |node| node.max_attempts),
        timeout_secs: state.config.iteration_timeout_secs,
        context_goal: &goal,
        context_history: history.as_deref(),
        context_failure: failure.as_deref(),
        selected_path: &job.path,
        selected_json: &selected_json,
        sidecars: &sidecars,
        tree_summary: &tree_summary,
        assumptions: &assumptions,
        questions: &questions,
        output_path: &output_path,
        budget_bytes: state.config.prompt_budget_bytes,
        mode,
    });
    // A session may have written down what it was handed.
    let prompt = passed_values(&state.config).hide_in(prompt.as_bytes());
    batch.write(&it.folder.join("prompt.md"), &prompt)?;
    if job.repair.is_some() {
        let session = workspace.session_folder(&it.started.run_id, it.started.iter);
        for folder in [&it.folder, &session] {
            batch.write(&folder.join("tree.valid.json"), &tree::to_bytes(job.root))?;
        }
    }
    batch.commit()?;
    Ok(())
}

/// The output path from the project's root: the same in every clone, so that
/// the same state makes the same prompt.
fn project_path(project: &Project, it: &Iteration) -> String {
    let path = it.output_path();
    let path = path.strip_prefix(project.root()).unwrap_or(&path);
    path.display().to_string()
}

fn context_goal(job: &StepJob<'_, '_>) -> String {
    if let Some(repair) = &job.repair {
        return context::goal_md(
            "Repair the task tree",
            REPAIR_NODE,
            "Make .runner/state/tree.json a valid tree again, with every node of the last valid one.",
            &repair
                .findings
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
    }
    job.root
        .find(&job.node_id)
        .map_or_else(String::new, |node| {
            let acceptance: Vec<&str> = node.acceptance.iter().map(|text| &**text).collect();
            context::goal_md(&node.title, &job.path, &node.goal, &acceptance)
        })
}

/// The guard's last word on this node, if it was no. Iterations that were
/// runner errors are passed over: they say nothing of the node.
fn failure(
    project: &Project,
    it: &Iteration,
    state: &ProjectState,
    job: &StepJob<'_, '_>,
) -> Option<String> {
    if !state.run_state.failed_for(&job.node_id) {
        return None;
    }
    let command = &state.config.guard.command;
    let last = (1..it.started.iter).rev().find_map(|iter| {
        let folder = project.iteration(&it.started.run_id, iter);
        let meta = read_meta(&folder)?;
        (meta.class != OutcomeClass::RunnerError).then_some((folder, meta))
    });
    let Some((folder, meta)) =
        last.filter(|(_, meta)| meta.node_id == job.node_id && meta.guard == GuardResult::Fail)
    else {
        let failure = FailedVerdict::Guard {
            command,
            exit_code: None,
        };
        return Some(context::failure_md(None, failure));
    };
    let failure = if meta.facts.setup_failed {
        FailedVerdict::Setup {
            command: &state.config.workspace.setup,
        }
    } else {
        FailedVerdict::Guard {
            exit_code: meta.guard_run.as_ref().and_then(|run| run.exit_code),
            command: meta.guard_run.as_ref().map_or(command, |run| &run.command),
        }
    };
    let log = files::read_regular(&folder.join("guard.log"), MAX_LOG).ok();
    let log = log.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Some(context::failure_md(log.as_deref(), failure))
}

/// Reads the record of an iteration.
pub(crate) fn read_meta(folder: &std::path::Path) -> Option<IterationMeta> {
    let bytes = files::read_regular(&folder.join("meta.json"), MAX_LOG).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The sidecar notes of the selected node's ancestors and of itself.
fn sidecars(project: &Project, job: &StepJob<'_, '_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if job.repair.is_some() {
        return found;
    }
    let mut lineage: Vec<&Node<'_>> = job.root.lineage(&job.node_id).unwrap_or_default();
    // Nearest first: the farthest are the first to give way.
    lineage.reverse();
    for node in lineage {
        let path = format!("{}/{}/context.md", paths::NODES_DIR, node.id);
        if let Ok(Some(text)) = state::optional_text(project, &path) {
            found.push((path, text));
        }
    }
    found
}
