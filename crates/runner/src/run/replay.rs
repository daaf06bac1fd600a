//! Deriving a recorded run again through the same pure functions.

use std::collections::BTreeSet;
use std::path::Path;

use runner_core::decide::{self, AgentTree, Outcome, StepTask, TreeAfter};
use runner_core::digest::sha256_hex;
use runner_core::ids::REPAIR_NODE;
use runner_core::journal::{self, JournalDecision, JournalRecord};
use runner_core::message;
use runner_core::meta::IterationMeta;
use runner_core::output::{AgentOutput, MAX_OUTPUT_BYTES};
use runner_core::paths;
use runner_core::run_state::RunState;
use runner_core::tree::{self, TreeFinding};

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, GitCommit};
use crate::project::Project;
use crate::state;
use crate::state::branch_record::BranchRecord;
use crate::state::log::Journal;
use crate::state::recorded_files;
use crate::state::runs;

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayReport {
    /// The run.
    pub run_id: String,
    /// Iterations that were derived again.
    pub iterations: usize,
    /// What is worth knowing but no difference.
    pub notes: Vec<String>,
    /// The first difference.
    pub difference: Option<String>,
}

/// Derives every recorded iteration of a run again (the current run's if none
/// is named) and compares byte for byte.
pub fn replay(project: &Project, run: Option<&str>) -> Result<ReplayReport> {
    let run_id = match run {
        Some(run) => run.to_owned(),
        None => state::load_run_state(project)
            .map_err(|problem| state::into_error(&[problem]))?
            .run_id
            .ok_or_else(|| {
                Error::new(ErrorCode::Identity, "no run has been started here")
                    .hint("(run 'runner start')")
            })?,
    };
    let numbers = if runner_core::goal::check_run_id(&run_id).is_ok() {
        project.iteration_numbers(&run_id)
    } else {
        Vec::new()
    };
    if numbers.is_empty() {
        return Err(Error::new(
            ErrorCode::NotFound,
            format!("there are no logs of run {run_id:?} in this clone"),
        )
        .hint("logs are local: replay where the run was made"));
    }
    let mut report = ReplayReport {
        run_id: run_id.clone(),
        iterations: 0,
        notes: Vec::new(),
        difference: None,
    };
    let record = record_of(project, &run_id);
    let mut previous: Option<(u32, String)> = None;
    let last = numbers.last().copied();
    let expected: BTreeSet<u32> = numbers
        .into_iter()
        .chain(record.iterations.keys().copied())
        .collect();
    for iter in expected {
        let folder = project.iteration(&run_id, iter);
        let commit = record.iterations.get(&iter);
        if commit.is_none() && Some(iter) == last && !has_ended(&folder) {
            report
                .notes
                .push(format!("iteration {iter} is not finished"));
            continue;
        }
        match one(project, iter, &run_id, commit) {
            Ok(done) => {
                report.iterations += 1;
                let last = previous.as_ref();
                report.notes.extend(by_hand(&record, last, iter, &done));
                if done.made_again {
                    report.notes.push(format!(
                        "the commit of iteration {iter} is not the one that was made then: somebody rewrote it"
                    ));
                }
                if done.uncommitted {
                    report.notes.push(format!(
                        "iteration {iter} is not in the run's branch (any more)"
                    ));
                }
                previous = Some((iter, done.after_sha256));
            }
            Err(difference) => {
                report.difference = Some(format!("iteration {iter}: {difference}"));
                break;
            }
        }
    }
    if report.difference.is_none() {
        report.difference = run_difference(project, &run_id);
    }
    Ok(report)
}

/// What of the run's own files is not as a command left it, or as the commits say that landed it.
fn run_difference(project: &Project, run_id: &str) -> Option<String> {
    let git = Git::open(project.root()).ok()?;
    let log_of = |commit: &str| {
        let message = git.line(&["log", "-1", "--format=%B", commit, "--"]).ok()?;
        message::trailer(&message, "Runner-Guard-Log").map(str::to_owned)
    };
    let landings = runs::landings(&git, run_id, None, None).unwrap_or_default();
    let logs: Vec<String> = landings
        .iter()
        .filter_map(|it| log_of(&it.commit))
        .collect();
    recorded_files::run_difference(&project.run_folder(run_id), log_of, &logs)
}

fn has_ended(folder: &Path) -> bool {
    Journal::read(folder).iter().any(JournalRecord::is_end)
}

struct ReplayedIteration {
    before_sha256: String,
    after_sha256: String,
    uncommitted: bool,
    made_again: bool,
}

/// Derives one iteration again; the first difference as the error.
fn one(
    project: &Project,
    iter: u32,
    run_id: &str,
    commit: Option<&GitCommit>,
) -> Result<ReplayedIteration, String> {
    let folder = &project.iteration(run_id, iter);
    if folder.symlink_metadata().is_err() {
        let commit = commit.map_or("", |commit| commit.id.as_str());
        return Err(format!(
            "there are no logs of it in this clone, although it is in the run's branch ({})",
            commit.get(..12).unwrap_or(commit)
        ));
    }
    let has_hash = compare_end(folder)?;
    let read = |name: &str| files::read_regular(&folder.join(name), tree::MAX_BYTES).ok();
    let meta_bytes = read("meta.json").ok_or("meta.json is missing")?;
    let meta: IterationMeta =
        serde_json::from_slice(&meta_bytes).map_err(|error| format!("meta.json: {error}"))?;
    // Whoever records files has written the hash, too.
    if !has_hash && !meta.files.is_empty() {
        return Err("journal.jsonl does not say in its last line what was before".to_owned());
    }
    if meta.run_id != run_id || meta.iter != iter {
        return Err(format!(
            "meta.json is of run {} iteration {}",
            meta.run_id, meta.iter
        ));
    }
    let (before, agent, valid) = (
        read("tree.before.json"),
        read("tree.agent.json"),
        read("tree.valid.json"),
    );
    let after = read("tree.after.json");
    let before_sha256 = before.as_deref().map(sha256_hex).unwrap_or_default();
    if before_sha256 != meta.facts.tree_before_sha256 {
        return Err("tree.before.json is not the tree that the step began with".to_owned());
    }
    let output = files::read_regular(&folder.join("output.json"), MAX_OUTPUT_BYTES as u64)
        .ok()
        .and_then(|bytes| AgentOutput::parse(&bytes).ok());

    let repairing = meta.node_id == REPAIR_NODE;
    let root_bytes = if repairing { &valid } else { &before };
    let root = tree::parse(root_bytes.as_deref().unwrap_or_default())
        .map_err(|findings| first(&findings))?;
    let task = if repairing {
        StepTask::Repair { valid: &root }
    } else {
        StepTask::Work {
            before: &root,
            node_id: &meta.node_id,
        }
    };
    let agent_tree = match &agent {
        _ if meta.facts.tree_unusable.is_some() => AgentTree::Unusable,
        Some(bytes) if Some(bytes) == before.as_ref() => AgentTree::Same,
        Some(bytes) => AgentTree::Bytes(bytes),
        None if before.is_none() => AgentTree::Same,
        None => return Err("tree.agent.json is missing".to_owned()),
    };
    let outcome = decide::decide(task, agent_tree, output.as_ref(), &meta.facts);
    let derived = match &outcome.tree {
        TreeAfter::Restore => before.clone(),
        TreeAfter::AsLeft => agent.clone().filter(|_| meta.facts.tree_unusable.is_none()),
        TreeAfter::LastValid => valid.clone(),
        TreeAfter::New(root) => Some(tree::to_bytes(root)),
    };
    if derived != after {
        return Err(format!(
            "tree.after.json differs {}",
            where_differs(derived.as_deref(), after.as_deref())
        ));
    }
    compare_meta(&meta, &outcome)?;
    if let Some(run) = &meta.guard_run {
        let log = read("guard.log").unwrap_or_default();
        if sha256_hex(&log) != run.log_sha256 {
            return Err("guard.log is not the one that was recorded".to_owned());
        }
    }
    if let Some(difference) = recorded_files::difference(folder, &meta.files) {
        return Err(difference);
    }
    let run_folder = project.run_folder(run_id);
    if let Some(events) = &meta.events
        && !recorded_files::has_events(&run_folder, events)
    {
        return Err("events.jsonl is not what was recorded up to here".to_owned());
    }
    let decided = compare_journal(folder, &meta, &meta_bytes, &outcome)?;
    if let Some(commit) = commit
        && decided.message.trim_end() != commit.message.trim_end()
    {
        return Err("the commit's message is not what the journal promised".to_owned());
    }
    let after_sha256 = after.as_deref().map(sha256_hex).unwrap_or_default();
    if let Some(commit) = commit {
        let recorded = message::trailer(&commit.message, "Runner-Tree")
            .and_then(|value| value.strip_prefix("sha256:"));
        if recorded.unwrap_or_default() != after_sha256 {
            return Err(format!(
                "tree.after.json is not the tree in the commit ({})",
                paths::TREE
            ));
        }
    }
    Ok(ReplayedIteration {
        before_sha256,
        after_sha256,
        uncommitted: commit.is_none(),
        made_again: commit
            .zip(decided.commit.as_ref())
            .is_some_and(|(commit, made)| commit.id != *made),
    })
}

fn compare_meta(meta: &IterationMeta, outcome: &Outcome<'_>) -> Result<(), String> {
    let differs = |what: &str, derived: String, recorded: String| {
        if derived == recorded {
            Ok(())
        } else {
            Err(format!(
                "{what} comes out as {derived}, but {recorded} is recorded"
            ))
        }
    };
    differs(
        "status",
        outcome.status.to_string(),
        meta.status.to_string(),
    )?;
    differs("guard", outcome.guard.to_string(), meta.guard.to_string())?;
    differs(
        "mode",
        outcome.mode.as_str().to_owned(),
        meta.mode.as_str().to_owned(),
    )?;
    differs(
        "class",
        format!("{:?}", outcome.class),
        format!("{:?}", meta.class),
    )?;
    differs(
        "attempts",
        format!("{:?}", outcome.attempts),
        format!("{:?}", meta.attempts),
    )?;
    differs(
        "passes",
        format!("{:?}", outcome.passes),
        format!("{:?}", meta.passes),
    )?;
    differs(
        "tree_changes",
        format!("{:?}", outcome.changes),
        format!("{:?}", meta.tree_changes),
    )?;
    differs(
        "passed",
        format!("{:?}", outcome.passed),
        format!("{:?}", meta.passed),
    )
}

/// The journal is whole, and what its last line says of the others. Whether it says anything.
fn compare_end(folder: &Path) -> Result<bool, String> {
    let bytes = files::read_regular(&Journal::path(folder), journal::MAX_BYTES as u64)
        .map_err(|error| format!("journal.jsonl: {error}"))?;
    let records = journal::parse(&bytes);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if records.len() < lines.len() {
        return Err(format!(
            "journal.jsonl cannot be read from line {}",
            records.len() + 1
        ));
    }
    let Some(JournalRecord::Committed { journal_sha256 }) = records.last() else {
        return Err("journal.jsonl has no end".to_owned());
    };
    let before: usize = lines.iter().rev().skip(1).map(|line| line.len()).sum();
    match journal_sha256 {
        Some(recorded) if *recorded != sha256_hex(&bytes[..before]) => {
            Err("journal.jsonl is not what its last line says".to_owned())
        }
        recorded => Ok(recorded.is_some()),
    }
}

/// The journal promised these very bytes.
fn compare_journal(
    folder: &Path,
    meta: &IterationMeta,
    meta_bytes: &[u8],
    outcome: &Outcome<'_>,
) -> Result<Box<JournalDecision>, String> {
    let records = Journal::read(folder);
    let decided = records.into_iter().rev().find_map(|record| match record {
        JournalRecord::Decided(decided) => Some(decided),
        _ => None,
    });
    let Some(decided) = decided else {
        return Err("the journal holds no decision".to_owned());
    };
    if decided.meta.as_bytes() != meta_bytes {
        return Err("meta.json is not what the journal promised".to_owned());
    }
    let promised = RunState::parse(decided.run_state.as_bytes())?;
    let begun = RunState {
        next_iter: meta.iter,
        ..promised.clone()
    };
    let derived = begun.after(&meta.node_id, outcome);
    if derived != promised {
        return Err(
            "run_state.json comes out differently from what the journal promised".to_owned(),
        );
    }
    Ok(decided)
}

fn first(findings: &[TreeFinding]) -> String {
    findings
        .first()
        .map(|finding| format!("the tree before: {finding}"))
        .unwrap_or_default()
}

fn where_differs(derived: Option<&[u8]>, recorded: Option<&[u8]>) -> String {
    match (derived, recorded) {
        (Some(derived), Some(recorded)) => {
            let at = derived
                .iter()
                .zip(recorded)
                .position(|(a, b)| a != b)
                .unwrap_or(derived.len().min(recorded.len()));
            let line = derived[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("at byte {at} (line {line})")
        }
        (None, _) => "(there should be none)".to_owned(),
        (_, None) => "(it is missing)".to_owned(),
    }
}

/// The commits of the run, as far as git has them.
fn record_of(project: &Project, run_id: &str) -> BranchRecord {
    let read = || BranchRecord::read(&Git::open(project.root())?, run_id);
    read().unwrap_or_default()
}

/// What people did between two iterations: through the runner, or else by hand.
fn by_hand(
    record: &BranchRecord,
    previous: Option<&(u32, String)>,
    iter: u32,
    done: &ReplayedIteration,
) -> Vec<String> {
    let last = previous.map_or(0, |(last, _)| *last);
    let made = record
        .by_hand
        .iter()
        .filter(|(after, ..)| (last..iter).contains(after));
    let mut tree = previous.map(|(_, after)| after.as_str());
    let mut notes = Vec::new();
    for (_, what, commit) in made {
        let left = message::trailer(&commit.message, "Runner-Tree");
        if let Some(sha256) = left.and_then(|value| value.strip_prefix("sha256:")) {
            tree = Some(sha256);
        }
        let place = match last {
            0 => format!("before iteration {iter}"),
            last => format!("between {last} and {iter}"),
        };
        notes.push(format!("{place}: `{}`", what.command()));
    }
    if tree.is_some_and(|tree| tree != done.before_sha256) {
        notes.push(format!(
            "the tree was edited by hand between {last} and {iter}"
        ));
    }
    notes
}
