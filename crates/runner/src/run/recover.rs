//! After a crash or a signal: the unfinished iteration is settled, once.

use std::sync::Arc;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::decide::{self, AgentTree, StepTask};
use runner_core::ids::REPAIR_NODE;
use runner_core::journal::{JournalDecision, JournalRecord, JournalStart};
use runner_core::meta::{ExecutorRun, IterationErrorKind, RunnerError, StepFacts};
use runner_core::paths;
use runner_core::run_state::RunState;
use runner_core::tree as task_tree;
use serde_json::json;

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::land;
use crate::project::Project;
use crate::run::follow_branch;
use crate::run::refs::{self, RunRefs};
use crate::run_context::RunProgress;
use crate::state::log::Journal;
use crate::step::budget::RunBudget;
use crate::step::protected_files::{FileSource, ProtectedFiles};
use crate::step::{self, Iteration, StepContext, StepReport, TreeBefore};

/// An iteration without an end.
struct Unfinished {
    started: JournalStart,
    records: Vec<JournalRecord>,
}

impl Unfinished {
    fn decided(&self) -> Option<&JournalDecision> {
        self.records.iter().rev().find_map(|record| match record {
            JournalRecord::Decided(decided) => Some(&**decided),
            _ => None,
        })
    }
}

/// Settles what an earlier runner left unfinished; `true` if there was anything.
pub(crate) fn recover(context: &mut StepContext<'_, '_>) -> Result<bool> {
    // First: a work tree that a landing did not bring along looks changed.
    land::finish(context.project, context.git)?;
    follow_branch::finish(context)?;
    let mut any = false;
    for unfinished in find(context.project) {
        any |= settle_one(context, &unfinished)?;
    }
    for run_id in refs::under_way(context.git)? {
        let tip = follow_branch::settle(context, &run_id)?;
        follow_branch::follow(context, &run_id, &tip)?;
    }
    Ok(any)
}

fn settle_one(context: &mut StepContext<'_, '_>, unfinished: &Unfinished) -> Result<bool> {
    let started = &unfinished.started;
    if !started.git_files.is_empty() {
        return Ok(tell_of_earlier(context, started));
    }
    let refs = RunRefs::read(context.git, &started.run_id)?;
    let mut decided = unfinished.decided();
    if let Some(tip) = refs.run.as_deref() {
        context
            .places
            .find_new_objects(context.git, &started.run_id, tip)?;
    }
    if let Some(commit) = decided.and_then(|it| it.commit.as_deref())
        && context.git.commit_of(commit)?.is_none()
    {
        // It was cleaned away, or the disk never had it. What the session left is still there.
        decided = None;
    }
    let commit = decided.and_then(|it| it.commit.as_deref());
    let is_here = refs
        .run
        .as_deref()
        .is_some_and(|run| run == started.head || Some(run) == commit);
    if !is_here {
        // Moved by hand since: the folder makes way when its number comes again.
        return Ok(false);
    }
    let before = TreeBefore::new(None);
    let mut it = Iteration::reopen(
        context.project,
        started.clone(),
        &unfinished.records,
        before,
    )?;
    let how = if let Some(decided) = decided {
        it.set_decided();
        step::apply_decided(context, &mut it, decided)?;
        "finished"
    } else {
        let error = RunnerError::new(
            IterationErrorKind::Interrupted,
            "the runner was interrupted before the iteration was decided",
        );
        roll_up(context, &mut it, error)?;
        "rolled_up"
    };
    it.log_event(context.run.clock, "recovered", json!({"how": how}));
    context.run.observer.progress(&RunProgress::Recovered {
        run_id: &started.run_id,
        iter: started.iter,
        how,
    });
    Ok(true)
}

/// An iteration that was cut off under an earlier version: its session worked in the user's own
/// checkout, and what it left there is the user's to look at. The iteration begins again.
fn tell_of_earlier(context: &mut StepContext<'_, '_>, started: &JournalStart) -> bool {
    let words = format!(
        "iteration {} was cut off under an earlier version, and begins again; what its session changed is in \
         your checkout, uncommitted: commit what is good, and look at .git/config and .git/hooks",
        started.iter
    );
    context.run.observer.progress(&RunProgress::Note(&words));
    let folder = context.project.iteration(&started.run_id, started.iter);
    // Where it stays in place, the next iteration moves it aside.
    let _ = step::move_aside(&folder);
    false
}

/// Whether the newest iteration of a run has a beginning and no end.
pub(crate) fn is_unfinished(project: &Project, run_id: &str) -> bool {
    let open = find(project);
    open.iter().any(|it| it.started.run_id == run_id)
}

/// The newest iteration of each run, where its journal has a beginning and no
/// end.
fn find(project: &Project) -> Vec<Unfinished> {
    let runs = project.run_folders();
    let unfinished = runs.iter().filter_map(|run| {
        let iter = *project.iteration_numbers(run).last()?;
        let records = Journal::read(&project.iteration(run, iter));
        let Some(JournalRecord::Started(started)) = records.first().cloned() else {
            return None;
        };
        let ours = started.run_id == *run
            && started.iter == iter
            && started.branch == step::branch_of(run);
        let ended = records.iter().any(JournalRecord::is_end);
        (ours && !ended).then_some(Unfinished { started, records })
    });
    unfinished.collect()
}

/// Records an iteration that could not be finished as a runner error: the tree
/// and the runner's files as in the recorded HEAD, the agent's other edits kept.
pub(crate) fn roll_up(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    error: RunnerError,
) -> Result<StepReport> {
    let head = it.started.head.clone();
    let read = |path: &str| context.git.proven_file_at(&head, path);
    let tree_bytes = read(paths::TREE)?;
    let run_state = read(paths::RUN_STATE)?
        .and_then(|bytes| RunState::parse(&bytes).ok())
        .ok_or_else(|| missing(&head, paths::RUN_STATE))?;
    let config = read(paths::CONFIG)?
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| Config::parse(&text).ok())
        .ok_or_else(|| missing(&head, paths::CONFIG))?;
    it.before = TreeBefore::new(tree_bytes.clone().map(Arc::new));
    it.save_before(context.project)?;

    let repairing = it.started.node_id == REPAIR_NODE;
    let valid_bytes = match (&it.started.last_valid, repairing) {
        (Some(commit), true) => context.git.proven_file_at(commit, paths::TREE)?,
        _ => None,
    };
    let root_bytes = if repairing {
        valid_bytes.as_deref()
    } else {
        tree_bytes.as_deref()
    };
    let root = task_tree::parse(root_bytes.unwrap_or_default())
        .map_err(|findings| step::invalid_tree(&findings))?;
    let workspace = context
        .places
        .workspace(context.git, &it.started.run_id, &head)?;
    let tree = &workspace.checkout.tree;
    // Without it there is nothing left of the session.
    let is_there = tree.head().as_deref() == Some(&head);
    if !is_there {
        workspace.bring_to(&head)?;
    }
    let protected = ProtectedFiles::capture(
        (&tree.git, workspace.checkout.seen_at()),
        &head,
        &config,
        Some(&root),
        FileSource::Commit,
        None,
    )?;
    let mut facts = StepFacts {
        max_attempts_default: it.started.max_attempts_default,
        refused_repairs: it.started.refused_repairs,
        tree_before_sha256: it.before.sha256().to_owned(),
        runner_error: Some(error),
        ..StepFacts::default()
    };
    let user = context.places.user_project(context.git);
    let found = step::after_session(&workspace, &user, it, &config, &protected, &mut facts)?;
    let node_id = it.started.node_id.clone();
    let task = if repairing {
        StepTask::Repair { valid: &root }
    } else {
        StepTask::Work {
            before: &root,
            node_id: &node_id,
        }
    };
    let agent_tree = match &found.tree {
        Some(bytes) if Some(bytes.as_slice()) == it.before.bytes() => AgentTree::Same,
        Some(bytes) => AgentTree::Bytes(bytes),
        None if it.before.bytes().is_none() => AgentTree::Same,
        None => AgentTree::Unusable,
    };
    let outcome = decide::decide(task, agent_tree, None, &facts);
    step::settle(
        context,
        it,
        &workspace,
        step::SettleRecord {
            outcome,
            facts,
            agent_bytes: found.tree.as_ref().map(|bytes| bytes.as_slice()),
            valid_bytes: valid_bytes.clone(),
            executor: Some(used_so_far(context.project, it, &config)),
            guard_run: None,
            watched: found.watched,
            run_state: &run_state,
            duration: Duration::ZERO,
        },
    )
}

/// What the session that was cut off had used, by the events that were kept of it.
fn used_so_far(project: &Project, it: &Iteration, config: &Config) -> ExecutorRun {
    let mut run = ExecutorRun {
        backend: config.executor.backend.as_str().to_owned(),
        ..ExecutorRun::default()
    };
    let path = it.folder.join("stream.jsonl");
    if let Ok(events) = files::read_regular(&path, config.executor_output_limit_bytes) {
        let mut reader = runner_agents::backend(config.executor.backend).reader();
        for line in events.split(|byte| *byte == b'\n') {
            reader.line(line);
        }
        RunBudget::of(project, &it.started.run_id, config).record(&reader.usage(), &mut run);
    }
    run
}

fn missing(head: &str, path: &str) -> Error {
    Error::new(
        ErrorCode::Layout,
        format!(
            "{path} in commit {head} cannot be read: the unfinished iteration cannot be settled"
        ),
    )
}
