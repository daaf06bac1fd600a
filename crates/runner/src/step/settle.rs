//! From a decision to a commit, so that a crash in between changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::decide::{Outcome, TreeAfter};
use runner_core::digest::sha256_hex;
use runner_core::journal::{JournalDecision, JournalRecord};
use runner_core::message::{GuardProof, IterationMessage};
use runner_core::meta::{
    ExecutorRun, GuardResult, GuardRun, IterationMeta, META_VERSION, OutcomeClass, StepFacts,
};
use runner_core::paths;
use runner_core::run_state::RunState;
use runner_core::tree;
use serde_json::json;

use super::child::millis;
use super::iteration::has_content;
use super::{Iteration, StepContext, StepReport};
use crate::checkout::workspace::RunWorkspace;
use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, FileBatch};
use crate::git::{self, GitIdentity};
use crate::proof_key;
use crate::run::{follow_branch, refs};
use crate::run_context::RunProgress;
use crate::state::recorded_files;
use crate::step::file_image;

/// Everything that is to be recorded.
pub(crate) struct StepRecord<'a> {
    pub(crate) outcome: Outcome<'a>,
    pub(crate) facts: StepFacts,
    pub(crate) agent_bytes: Option<&'a [u8]>,
    pub(crate) valid_bytes: Option<Vec<u8>>,
    pub(crate) executor: Option<ExecutorRun>,
    pub(crate) guard_run: Option<GuardRun>,
    pub(crate) watched: Vec<String>,
    pub(crate) run_state: &'a RunState,
    pub(crate) duration: Duration,
}

/// Writes the decision down, carries it out and commits.
pub(crate) fn settle(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    workspace: &RunWorkspace,
    record: StepRecord<'_>,
) -> Result<StepReport> {
    follow_branch::begin_look(context, &it.started.run_id);
    let outcome = &record.outcome;
    let before = it.before.clone();
    let new_bytes;
    let after: Option<&[u8]> = match &outcome.tree {
        TreeAfter::Restore => before.bytes(),
        TreeAfter::AsLeft => record.agent_bytes,
        TreeAfter::LastValid => record.valid_bytes.as_deref(),
        TreeAfter::New(root) => {
            new_bytes = tree::to_bytes(root);
            Some(&new_bytes)
        }
    };
    save_trees(it, record.agent_bytes, after)?;
    let mut meta = IterationMeta {
        schema_version: META_VERSION,
        run_id: it.started.run_id.clone(),
        iter: it.started.iter,
        node_id: it.started.node_id.clone(),
        mode: outcome.mode,
        status: outcome.status,
        guard: outcome.guard,
        class: outcome.class,
        attempts: outcome.attempts,
        passes: outcome.passes,
        started_at: it.started.started_at.clone(),
        ended_at: context.run.clock.stamp(),
        duration_ms: millis(record.duration),
        executor: record.executor,
        guard_run: record.guard_run,
        error: record.facts.runner_error.clone(),
        tree_changes: outcome.changes.clone(),
        passed: outcome.passed.clone(),
        watched_changed: record.watched,
        guard_untracked: Vec::new(),
        notes: it.notes.clone(),
        network_refused: it.network_refused.clone(),
        sandbox: it.sandbox.to_owned(),
        sandbox_opened: it.sandbox_opened.clone(),
        head: it.started.head.clone(),
        facts: record.facts,
        files: BTreeMap::new(),
        events: None,
    };
    let tree_sha256 = after.map(sha256_hex);
    let run_state = record.run_state.after(&it.started.node_id, outcome);
    let message = IterationMessage {
        run_id: &meta.run_id,
        iter: meta.iter,
        node_id: &meta.node_id,
        status: meta.status,
        guard: meta.guard,
        mode: meta.mode,
        tree_sha256: tree_sha256.as_deref(),
        proof: meta.guard_run.as_ref().and_then(|run| {
            Some(GuardProof {
                command: &run.command,
                exit: run.exit_code?,
                log_sha256: &run.log_sha256,
                checkout: run.checkout,
                setup_sha256: run.setup_sha256.as_deref(),
            })
        }),
        last_valid: (meta.class == OutcomeClass::InvalidTree).then_some(&*it.started.head),
        repair: match meta.class {
            OutcomeClass::Repaired => Some("accepted"),
            OutcomeClass::RepairRefused => Some("refused"),
            OutcomeClass::RepairRestored => Some("restored"),
            _ => None,
        },
        session_head: None,
    }
    .text();
    let tree = write_commit_tree(it, workspace, after, &run_state)?;
    let message = signed(it, &tree, meta.guard, message);
    meta.notes.clone_from(&it.notes);
    let commit = make_commit(context, it, &tree, &message)?;
    write_error_log(it, meta.class, &outcome.findings)?;
    meta.files = recorded_files::record(&it.folder);
    meta.events = it.record_events(context.project);
    let decided = JournalDecision {
        parent: it.started.head.clone(),
        commit: Some(commit),
        tree_sha256,
        run_state: String::from_utf8_lossy(&run_state.to_bytes()).into_owned(),
        meta: meta_text(&meta)?,
        message,
    };
    it.journal
        .append_synced(&JournalRecord::Decided(Box::new(decided.clone())))?;
    it.set_decided();
    it.log_event(
        context.run.clock,
        "decided",
        json!({"node_id": meta.node_id, "status": meta.status, "guard": meta.guard, "class": meta.class}),
    );

    let report = StepReport {
        run_id: meta.run_id.clone(),
        iter: meta.iter,
        node_id: meta.node_id.clone(),
        status: meta.status,
        guard: meta.guard,
        class: meta.class,
        attempts: meta.attempts,
        passes: meta.passes,
        error: meta.error.clone(),
        findings: outcome.findings.clone(),
        notes: meta.notes.clone(),
        passed: meta.passed.clone(),
        duration_ms: meta.duration_ms,
    };
    apply_decided(context, it, &decided)?;
    if let Some(commit) = &decided.commit {
        workspace.checkout.tree.note_commit(commit)?;
    }
    context.run.observer.progress(&RunProgress::Ended(&report));
    Ok(report)
}

/// `tree.agent.json` and `tree.after.json`; equal contents are one file.
fn save_trees(it: &Iteration, agent: Option<&[u8]>, after: Option<&[u8]>) -> Result<()> {
    let before_path = it.folder.join("tree.before.json");
    let agent_path = it.folder.join("tree.agent.json");
    let mut batch = FileBatch::new();
    let before = it
        .before
        .bytes()
        .filter(|bytes| has_content(&before_path, bytes));
    if let Some(bytes) = agent {
        if before == Some(bytes) {
            batch.same_as(&before_path, &agent_path, bytes)?;
        } else {
            batch.write(&agent_path, bytes)?;
        }
    }
    let after_path = it.folder.join("tree.after.json");
    if let Some(bytes) = after {
        if before == Some(bytes) {
            batch.same_as(&before_path, &after_path, bytes)?;
        } else if agent == Some(bytes) {
            batch.same_as(&agent_path, &after_path, bytes)?;
        } else {
            batch.write(&after_path, bytes)?;
        }
    }
    Ok(batch.commit()?)
}

fn write_error_log(it: &Iteration, class: OutcomeClass, findings: &[String]) -> Result<()> {
    let name = match class {
        OutcomeClass::RunnerError => "runner_error.log",
        OutcomeClass::AgentError
        | OutcomeClass::InvalidTree
        | OutcomeClass::RepairRefused
        | OutcomeClass::RepairRestored => "agent_error.log",
        OutcomeClass::Ok | OutcomeClass::Repaired => return Ok(()),
    };
    let mut text = findings.join("\n");
    text.push('\n');
    Ok(files::write_whole(&it.folder.join(name), text.as_bytes())?)
}

fn meta_text(meta: &IterationMeta) -> Result<String> {
    let mut text = serde_json::to_string_pretty(meta)
        .map_err(|error| Error::new(ErrorCode::Io, format!("meta.json: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// The files of the commit that the decision will be.
fn write_commit_tree(
    it: &Iteration,
    workspace: &RunWorkspace,
    after: Option<&[u8]>,
    run_state: &RunState,
) -> Result<String> {
    let run_state = run_state.to_bytes();
    let state = [(paths::TREE, after), (paths::RUN_STATE, Some(&*run_state))];
    write_state(workspace.path(), it, &state)?;
    let tree = &workspace.checkout.tree;
    tree.take(&state.iter().map(|(path, _)| PathBuf::from(path)).collect())?;
    tree.write_tree()
}

/// The message of a pass is signed. Where there is no key it is not, and a person is told.
fn signed(it: &mut Iteration, tree: &str, guard: GuardResult, mut message: String) -> String {
    if guard != GuardResult::Pass {
        return message;
    }
    match proof_key::of_machine() {
        Ok(key) => key.sign(&it.started.head, tree, &mut message),
        Err(error) => it
            .notes
            .push(format!("the proof is not signed: {}", error.message)),
    }
    message
}

/// The commit that the decision will be. Nothing leads to it yet.
fn make_commit(
    context: &mut StepContext<'_, '_>,
    it: &Iteration,
    tree: &str,
    message: &str,
) -> Result<String> {
    let parents = [it.started.head.as_str()];
    let (identity, commit) = context.git.commit_tree(tree, &parents, message)?;
    if identity == GitIdentity::Runner {
        context
            .run
            .observer
            .progress(&RunProgress::Note(git::NAMELESS));
    }
    Ok(commit)
}

/// Carries out a decision that is in the journal, of this runner or an earlier one. May be
/// done again from any point.
pub(crate) fn apply_decided(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    decided: &JournalDecision,
) -> Result<()> {
    let run_id = it.started.run_id.clone();
    let commit = decided.commit.as_deref().unwrap_or_default();
    if let Err(error) = refs::advance(context.git, &run_id, Some(&decided.parent), commit, None)
        && context.git.commit_of(&refs::run_ref(&run_id))?.as_deref() != Some(commit)
    {
        return Err(error);
    }
    record_commit(context, it, decided)?;
    follow_branch::follow(context, &run_id, commit)
}

fn record_commit(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    decided: &JournalDecision,
) -> Result<()> {
    files::write_whole(&it.folder.join("meta.json"), decided.meta.as_bytes())?;
    it.journal.end()?;
    it.log_event(
        context.run.clock,
        "committed",
        json!({"node_id": it.started.node_id}),
    );
    Ok(())
}

/// Lays the runner's own files down in the workspace.
fn write_state(root: &Path, it: &Iteration, state: &[(&str, Option<&[u8]>)]) -> Result<()> {
    let mut batch = FileBatch::new();
    for (path, bytes) in state {
        let (path, target) = (Path::new(path), root.join(path));
        file_image::make_parents(root, path, &it.quarantine())?;
        let there = target.symlink_metadata().ok();
        let in_the_way = there.is_some_and(|meta| bytes.is_none() || !meta.is_file());
        if in_the_way {
            file_image::move_to(root, path, &it.quarantine())?;
        }
        if let Some(bytes) = bytes
            && !has_content(&target, bytes)
        {
            batch.write(&target, bytes)?;
        }
    }
    Ok(batch.commit()?)
}
