//! One iteration: choose, prepare, let the agent work, look at what it left,
//! ask the guard, decide, record, commit.

mod agent;
mod agent_hosts;
mod base_changes;
pub(crate) mod budget;
pub(crate) mod captured_child;
mod child;
pub(crate) mod containment;
mod context;
pub(crate) mod environment;
mod evidence;
pub(crate) mod file_image;
pub(crate) mod foreign_policy;
mod guard;
pub(crate) mod head_files;
pub(crate) mod hidden_paths;
mod inspect;
mod iteration;
mod left_out;
pub(crate) mod masked_sink;
pub(crate) mod network;
mod original_tests;
mod own_guard;
mod prepare;
pub(crate) mod promises;
pub(crate) mod protected_files;
mod protected_values;
mod replaced_packages;
mod settle;
mod setup_fault;
mod stream;

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Instant;

use runner_core::decide::{self, AgentTree, Assessment, StepTask};
use runner_core::goal::Goal;
use runner_core::ids::REPAIR_NODE;
use runner_core::journal::JournalStart;
use runner_core::meta::{GuardResult, IterationErrorKind, OutcomeClass, RunnerError, StepFacts};
use runner_core::output::AgentStatus;
use runner_core::paths;
use runner_core::run_state::RunState;
use runner_core::select::{Selection, select};
use runner_core::tree;
use runner_exec::Ready;

use crate::checkout::workspace::{RunPlaces, RunWorkspace};
use crate::error::{Error, ErrorCode, Result};
use crate::files::ReadError;
use crate::git::{Git, GitStatus};
use crate::project::Project;
use crate::run::follow_branch;
use crate::run_context::{RunContext, RunProgress};
use crate::state::repair;
use crate::state::{self, ProjectState};
use crate::step::budget::RunBudget;
use crate::step::containment::ContainmentChoice;
use crate::step::protected_files::{FileSource, ProtectedFiles};

pub(crate) use child::millis;
pub(crate) use context::read_meta;
use guard::CandidateTree;
pub(crate) use inspect::after_session;
pub(crate) use iteration::{Iteration, TreeBefore, move_aside};
pub(crate) use settle::{StepRecord as SettleRecord, apply_decided, settle};

/// What one step did.
#[derive(Clone, Debug)]
pub enum StepResult {
    /// An iteration is in git.
    Recorded(StepReport),
    /// Nothing is left to do.
    Complete,
    /// The next leaf has used up its attempts.
    Stuck(StepLeaf),
}

/// A selected leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLeaf {
    /// The leaf.
    pub id: String,
    /// `root/a/b`.
    pub path: String,
    /// Attempts used.
    pub attempts: u32,
    /// Attempts allowed.
    pub max_attempts: u32,
}

/// A recorded iteration.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The run.
    pub run_id: String,
    /// The iteration.
    pub iter: u32,
    /// The leaf, or `repair-tree`.
    pub node_id: String,
    /// The recorded status.
    pub status: AgentStatus,
    /// What the guard said.
    pub guard: GuardResult,
    /// Which rule applied.
    pub class: OutcomeClass,
    /// Attempts of the node afterwards; `None` in a repair.
    pub attempts: Option<u32>,
    /// Whether the node has passed; `None` in a repair.
    pub passes: Option<bool>,
    /// What went wrong around the agent.
    pub error: Option<RunnerError>,
    /// What was wrong with the tree or the session.
    pub findings: Vec<String>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Ids that turned to passed.
    pub passed: Vec<String>,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

/// A project with its repository, locked by the caller.
pub(crate) struct StepContext<'a, 'h> {
    pub(crate) project: &'a Project,
    pub(crate) git: &'a Git,
    pub(crate) run: &'a mut RunContext<'h>,
    pub(crate) containment: &'a ContainmentChoice,
    pub(crate) places: &'a RunPlaces,
}

/// Takes one step of a run whose unfinished iterations are settled.
pub(crate) fn step(context: &mut StepContext<'_, '_>, run_id: &str) -> Result<StepResult> {
    let head = follow_branch::settle(context, run_id)?;
    let workspace = context.places.workspace(context.git, run_id, &head)?;
    let tree = &workspace.checkout.tree;
    if tree.head().as_deref() != Some(&head) {
        workspace.bring_to(&head)?;
    }
    // While git looks, the tree is read and checked; whether that counts is git's word.
    let status = tree.git.ask_status()?;
    let files = tree.git.ask_files_of(&head);
    let mut seen = look(&workspace.checkout.project);
    if let Ok(state) = &seen.0 {
        context.containment.begin(&state.config);
    }
    let status = status.answer();
    // An index that a power failure left half written is made again.
    let mut status = match status {
        Err(error) if error.code == ErrorCode::Git => {
            workspace.bring_to(&head)?;
            seen = look(&workspace.checkout.project);
            tree.git.status()?
        }
        other => other?,
    };
    if !status.is_clean() {
        // Somebody was here: only what is committed counts.
        workspace.bring_to(&head)?;
        seen = look(&workspace.checkout.project);
        status = tree.git.status()?;
    }
    let (state, bytes) = seen;
    let state = state?;
    let checked = match &bytes {
        Ok(bytes) => state::check_tree(bytes),
        Err(error) => Err(unreadable(error)),
    };
    let before = TreeBefore::new(bytes.as_ref().ok().cloned());
    before.sha256();
    status.branch = Some(branch_of(run_id));
    check_identity(&state.goal, &state.run_state, &status)?;

    let (task_root, valid_bytes);
    let job = match checked {
        Ok(root) => {
            task_root = root;
            match select(&task_root) {
                Selection::Complete => return Ok(StepResult::Complete),
                Selection::Stuck(target) => {
                    return Ok(StepResult::Stuck(StepLeaf {
                        id: target.node.id.to_string(),
                        path: target.path(),
                        attempts: target.node.attempts,
                        max_attempts: target.node.max_attempts,
                    }));
                }
                Selection::Open(target) => StepJob {
                    node_id: target.node.id.to_string(),
                    path: target.path(),
                    root: &task_root,
                    repair: None,
                    progress: task_root.progress(),
                },
            }
        }
        Err(findings) => {
            let pending = repair::pending(context.git, &head, run_id)?
                .ok_or_else(|| invalid_tree(&findings))?;
            valid_bytes = repair::valid_tree(context.git, &pending)?;
            task_root = state::check_tree(&valid_bytes).map_err(|found| invalid_tree(&found))?;
            StepJob {
                node_id: REPAIR_NODE.to_owned(),
                path: REPAIR_NODE.to_owned(),
                progress: task_root.progress(),
                root: &task_root,
                repair: Some(RepairJob {
                    pending,
                    findings: findings.iter().map(ToString::to_string).collect(),
                }),
            }
        }
    };
    check_limit(&state)?;
    let budget = RunBudget::of(context.project, run_id, &state.config);
    budget.check()?;
    context.containment.for_config(&state.config)?;
    let ready = child::prepare(context);
    let mut protected = ProtectedFiles::capture(
        (&tree.git, workspace.checkout.seen_at()),
        &head,
        &state.config,
        Some(job.root),
        FileSource::WorkTree,
        files,
    )?;
    protected.note_hidden(&tree.git, &status.ignored)?;
    before.prove(&protected)?;

    let started = JournalStart {
        run_id: run_id.to_owned(),
        iter: state.run_state.next_iter,
        node_id: job.node_id.clone(),
        head,
        branch: branch_of(run_id),
        started_at: context.run.clock.stamp(),
        git_files: String::new(),
        refused_repairs: job.repair.as_ref().map_or(0, |it| it.pending.refused),
        last_valid: job.repair.as_ref().map(|it| it.pending.last_valid.clone()),
        max_attempts_default: state.config.max_attempts_default,
    };
    context.run.observer.progress(&RunProgress::Started {
        iter: started.iter,
        path: &job.path,
        passed: job.progress.passed,
        leaves: job.progress.leaves,
        budget_secs: state.config.iteration_timeout_secs,
    });
    let mut it = Iteration::begin(context.project, started, before)?;
    it.log_event(
        context.run.clock,
        "iteration_started",
        serde_json::json!({"node_id": job.node_id}),
    );

    let input = StepInput {
        workspace: &workspace,
        state: &state,
        job: &job,
        protected: &protected,
    };
    match work(context, &mut it, ready, &input, &budget) {
        Ok(report) => Ok(StepResult::Recorded(report)),
        Err(error) if error.code == ErrorCode::Interrupted => Err(error),
        Err(error) if it.is_decided() => Err(error),
        Err(error) => {
            // Everything after the beginning is recorded, errors too; if even
            // that fails, the journal lets the next start do it.
            let kind = kind_of(&error);
            let runner_error = RunnerError::new(kind, error.message.clone());
            let recorded = crate::run::recover::roll_up(context, &mut it, runner_error);
            match recorded {
                Ok(report) => Ok(StepResult::Recorded(report)),
                Err(_) => Err(error),
            }
        }
    }
}

/// What lies in the workspace: everything that a step needs, and the tree.
fn look(project: &Project) -> (Result<ProjectState>, Result<Arc<Vec<u8>>, ReadError>) {
    (
        state::load(project),
        state::tree_bytes(project).map(Arc::new),
    )
}

/// A step under way: where, on what, and what must stay.
pub(crate) struct StepInput<'a, 't> {
    pub(crate) workspace: &'a RunWorkspace,
    pub(crate) state: &'a ProjectState,
    pub(crate) job: &'a StepJob<'t, 't>,
    pub(crate) protected: &'a ProtectedFiles<'t>,
}

/// What this iteration is about.
pub(crate) struct StepJob<'t, 'a> {
    pub(crate) node_id: String,
    pub(crate) path: String,
    /// The tree to work on; in a repair the last valid one.
    pub(crate) root: &'t tree::Node<'a>,
    pub(crate) repair: Option<RepairJob>,
    pub(crate) progress: tree::TreeProgress,
}

impl<'t, 'a> StepJob<'t, 'a> {
    fn task(&'t self) -> StepTask<'t, 'a> {
        match self.repair {
            Some(_) => StepTask::Repair { valid: self.root },
            None => StepTask::Work {
                before: self.root,
                node_id: &self.node_id,
            },
        }
    }
}

/// What a repair is about.
pub(crate) struct RepairJob {
    pub(crate) pending: repair::PendingRepair,
    pub(crate) findings: Vec<String>,
}

/// From the prepared iteration to the commit.
fn work(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    ready: Option<Ready>,
    step: &StepInput<'_, '_>,
    budget: &RunBudget,
) -> Result<StepReport> {
    let begun = Instant::now();
    let (state, job, workspace) = (step.state, step.job, step.workspace);
    let containment = context.containment.for_config(&state.config)?;
    it.sandbox = containment.as_str();
    it.sandbox_opened = state.config.sandbox.opened_in_words();
    let setup = prepare::workspace(context, it, workspace, &state.config, &containment)?;
    workspace.begin_session(
        &it.started.run_id,
        it.started.iter,
        &it.started.branch,
        &it.started.head,
    )?;
    context::write(context.project, workspace, it, state, job, setup.as_ref())?;
    let deadline =
        Instant::now() + std::time::Duration::from_secs(state.config.iteration_timeout_secs);

    containment.begin_layers(&workspace.checkout);
    let agent = agent::run_agent(context, it, ready, step, &containment, budget, deadline)?;
    workspace.after_agent(&it.started.head)?;
    let mut facts = StepFacts {
        max_attempts_default: it.started.max_attempts_default,
        refused_repairs: it.started.refused_repairs,
        tree_before_sha256: it.before.sha256().to_owned(),
        runner_error: agent.error.clone(),
        ..StepFacts::default()
    };
    let output = match agent::read_output(it, workspace, &state.config, agent.failure.as_ref())? {
        Ok(output) => Some(output),
        Err(error) => {
            facts.runner_error.get_or_insert(error);
            None
        }
    };
    // All references that this iteration moves are moved after this.
    let _refs = context.git.begin_ref_session("runner: iteration");
    let is_done = output
        .as_ref()
        .is_some_and(|output| output.status == AgentStatus::Done);
    let (mut ready, mut cleaned) = (None, None);
    if is_done {
        ready = child::prepare(context);
        cleaned = guard::begin_cleaning(context, it, &state.config);
    }
    let user = context.places.user_project(context.git);
    let found = inspect::after_session(
        workspace,
        &user,
        it,
        &state.config,
        step.protected,
        &mut facts,
    )?;
    let agent_bytes = found.tree;
    let agent_tree = match &agent_bytes {
        None if facts.tree_unusable.is_none() && it.before.bytes().is_none() => AgentTree::Same,
        None => AgentTree::Unusable,
        Some(bytes) if Some(bytes.as_slice()) == it.before.bytes() => AgentTree::Same,
        Some(bytes) => AgentTree::Bytes(bytes),
    };

    let task = job.task();
    let mut guard_run = None;
    let mut fills_disk = agent.fills_disk;
    let outcome = match decide::assess(task, agent_tree, output.as_ref(), &facts) {
        Assessment::Settled(outcome) => *outcome,
        Assessment::AskGuard(accepted) => {
            let candidate = CandidateTree {
                workspace,
                ignored: &found.ignored,
                tree: workspace.checkout.tree.write_tree()?,
                completes: accepted.would_complete(),
                cleaned,
            };
            let guard =
                guard::run_guard(context, it, ready, state, &containment, candidate, deadline)?;
            facts.guard_exit = guard.run.exit_code;
            facts.setup_failed = guard.setup_failed;
            facts.runner_error = guard.error;
            facts.changed_by_guard = guard.changed;
            guard.evidence.into_facts(&mut facts);
            guard.original_tests.into_facts(&mut facts);
            fills_disk |= guard.fills_disk;
            guard_run = Some(guard.run);
            decide::conclude(*accepted, task, &facts)
        }
    };
    tell_refused(context, it, containment.take_refused());
    let record = settle::StepRecord {
        outcome,
        facts,
        agent_bytes: agent_bytes.as_ref().map(|bytes| bytes.as_slice()),
        valid_bytes: job.repair.as_ref().map(|_| tree::to_bytes(job.root)),
        executor: Some(agent.run),
        guard_run,
        watched: found.watched,
        run_state: &state.run_state,
        duration: begun.elapsed(),
    };
    let report = settle(context, it, workspace, record)?;
    if fills_disk {
        prepare::sweep(context, it, workspace, &state.config);
    }
    Ok(report)
}

/// What children asked for and were refused goes to people, into the events and into the record.
fn tell_refused(context: &mut StepContext<'_, '_>, it: &mut Iteration, refused: Vec<String>) {
    if refused.is_empty() {
        return;
    }
    it.log_event(
        context.run.clock,
        "network_refused",
        serde_json::json!({"refused": refused}),
    );
    it.notes.extend(refused.iter().cloned());
    it.network_refused = refused;
}

/// `runner/<id>`.
pub(crate) fn branch_of(run_id: &str) -> String {
    format!("runner/{run_id}")
}

/// Goal, bookkeeping and branch must belong to the same run.
pub(crate) fn check_identity(
    goal: &Goal,
    run_state: &RunState,
    status: &GitStatus,
) -> Result<String> {
    let branch = status.branch.as_deref();
    if let Some(branch @ ("main" | "master")) = branch {
        return Err(identity_error(&format!(
            "no step is ever taken on {branch}"
        )));
    }
    let goal_id = goal
        .id()
        .ok_or_else(|| identity_error(&format!("{} has no id", paths::GOAL)))?;
    match run_state.run_id.as_deref() {
        Some(run_id) if run_id == goal_id => {}
        Some(run_id) => {
            return Err(identity_error(&format!(
                "{} says run {goal_id}, {} says run {run_id}",
                paths::GOAL,
                paths::RUN_STATE
            )));
        }
        None => {
            return Err(identity_error(&format!(
                "run {goal_id} has not been started"
            )));
        }
    }
    let wanted = branch_of(goal_id);
    if branch != Some(&wanted) {
        let here = branch.map_or_else(
            || "a detached HEAD".to_owned(),
            |name| format!("branch {name}"),
        );
        return Err(identity_error(&format!(
            "run {goal_id} lives on branch {wanted}, but this is {here}"
        )));
    }
    Ok(goal_id.to_owned())
}

pub(crate) fn identity_error(message: &str) -> Error {
    Error::new(
        ErrorCode::Identity,
        format!("{message} (run 'runner start')"),
    )
    .hint("(run 'runner start')")
}

/// Nothing uncommitted, nothing untracked.
pub(crate) fn check_clean(status: &GitStatus) -> Result<()> {
    if status.is_clean() {
        return Ok(());
    }
    let only_ours = status
        .entries
        .iter()
        .all(|entry| paths::is_state_path(entry.path.as_os_str().as_bytes()));
    Err(Error::new(
        ErrorCode::Dirty,
        format!(
            "the work tree has uncommitted changes:\n{}",
            list_entries(status)
        ),
    )
    .hint(if only_ours {
        "`runner start` commits changes in .runner/; or take them back with git"
    } else {
        "commit, stash or remove them, then try again"
    }))
}

/// The first few changed paths, one a line.
pub(crate) fn list_entries(status: &GitStatus) -> String {
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = status
        .entries
        .iter()
        .take(SHOWN)
        .map(|entry| {
            format!(
                "  {}",
                runner_core::text::escape_path(entry.path.as_os_str().as_bytes())
            )
        })
        .collect();
    if status.entries.len() > SHOWN {
        lines.push(format!("  and {} more", status.entries.len() - SHOWN));
    }
    lines.join("\n")
}

fn check_limit(state: &ProjectState) -> Result<()> {
    if state.run_state.next_iter <= state.config.max_iterations {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Limit,
        format!(
            "the run has had its {} iterations",
            state.config.max_iterations
        ),
    )
    .hint("raise max_iterations with `runner edit config`"))
}

/// Why a tree file could not be read, as findings.
pub(crate) fn unreadable(error: &ReadError) -> Vec<tree::TreeFinding> {
    vec![tree::TreeFinding {
        place: "tree.json".to_owned(),
        message: error.to_string(),
    }]
}

/// The tree on disk is invalid and no session is to blame.
pub(crate) fn invalid_tree(findings: &[tree::TreeFinding]) -> Error {
    let mut error = state::into_error(&state::tree_problems(findings));
    error.code = ErrorCode::Tree;
    error.hint("mend it with `runner edit tree`, or bring it back with git and commit it")
}

fn kind_of(error: &Error) -> IterationErrorKind {
    match error.code {
        ErrorCode::Step(kind) => kind,
        ErrorCode::Git => IterationErrorKind::Git,
        ErrorCode::Io if error.message.contains("space") => IterationErrorKind::Disk,
        _ => IterationErrorKind::Io,
    }
}
