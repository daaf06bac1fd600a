//! What there is to see of a run, read from its files.

use std::path::PathBuf;

use runner_core::config::{BudgetConfig, Config};
use runner_core::goal::Goal;
use runner_core::message;
use runner_core::meta::IterationMeta;
use runner_core::run_state::RunState;
use runner_core::tree::{Node, TreeProgress};

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::refs::RunRefs;
use crate::run::start;
use crate::state;
use crate::state::activity;
use crate::state::activity::RunActivity;
use crate::state::validate;
use crate::state::validate::SelectResult;
use crate::step;

/// Where a run is.
#[derive(Debug)]
pub struct RunView {
    /// The run; `None` before the first start.
    pub run_id: Option<String>,
    /// Its branch.
    pub branch: Option<String>,
    /// The goal's title.
    pub title: String,
    /// What comes next, or why that cannot be said.
    pub next: Result<SelectResult>,
    /// Leaves passed of all, if the tree can be read.
    pub progress: Option<TreeProgress>,
    /// The bookkeeping.
    pub state: RunState,
    /// The iteration limit.
    pub max_iterations: u32,
    /// The time that agent and guard have together in one iteration.
    pub iteration_timeout_secs: u64,
    /// What the run may use: 0 is no limit.
    pub budget: BudgetConfig,
    /// What is going on, and the runner at work if there is one.
    pub activity: RunActivity,
    /// The recorded iterations, oldest first.
    pub iterations: Vec<IterationView>,
}

/// One iteration.
#[derive(Debug)]
pub struct IterationView {
    /// Its number.
    pub iter: u32,
    /// Its record; `None` while it runs or after a crash.
    pub meta: Option<IterationMeta>,
}

/// Reads where the run is.
pub fn run_view(project: &Project) -> Result<RunView> {
    project.need_state()?;
    let goal: Goal = state::load_goal(project).map_err(|problem| state::into_error(&[problem]))?;
    let run_state =
        state::load_run_state(project).map_err(|problem| state::into_error(&[problem]))?;
    let config = state::load_config(project).unwrap_or_default();
    let run_id = run_state.run_id.clone();
    let iterations = run_id
        .as_deref()
        .map(|run| iterations(project, run))
        .unwrap_or_default();
    Ok(RunView {
        branch: run_id.as_deref().map(step::branch_of),
        title: goal.title(),
        next: validate::select_next(project),
        progress: progress(project),
        max_iterations: config.max_iterations,
        iteration_timeout_secs: config.iteration_timeout_secs,
        budget: config.budget,
        activity: activity::activity(project),
        run_id,
        state: run_state,
        iterations,
    })
}

/// Leaves passed of all, if the tree can be read.
pub(crate) fn progress(project: &Project) -> Option<TreeProgress> {
    let bytes = state::tree_bytes(project).ok()?;
    Some(state::check_tree(&bytes).ok()?.progress())
}

fn iterations(project: &Project, run: &str) -> Vec<IterationView> {
    project
        .iteration_numbers(run)
        .into_iter()
        .map(|iter| IterationView {
            iter,
            meta: meta_of(project, run, iter),
        })
        .collect()
}

/// The record of one iteration.
pub fn meta_of(project: &Project, run: &str, iter: u32) -> Option<IterationMeta> {
    step::read_meta(&project.iteration(run, iter))
}

/// The folder of an iteration of a run (the current run's if none is named).
pub fn iteration_folder(project: &Project, iter: u32) -> Result<(String, PathBuf)> {
    project.need_state()?;
    let run = state::load_run_state(project)
        .map_err(|problem| state::into_error(&[problem]))?
        .run_id
        .ok_or_else(|| step::identity_error("no run has been started here"))?;
    let folder = project.iteration(&run, iter);
    if folder.is_dir() {
        Ok((run, folder))
    } else {
        Err(Error::new(
            ErrorCode::NotFound,
            format!("there is no iteration {iter} of run {run} in this clone"),
        )
        .hint("`runner log` lists those that there are"))
    }
}

/// The bytes of the tree and what they say, handed to `use_tree`.
pub fn load_tree<T>(project: &Project, use_tree: impl FnOnce(&Node<'_>) -> T) -> Result<T> {
    project.need_state()?;
    let bytes = match state::tree_bytes(project) {
        Ok(bytes) => bytes,
        Err(files::ReadError::Io(error)) => return Err(error.into()),
        Err(error) => return Err(validate::no_tree(project, &step::unreadable(&error))),
    };
    let root =
        state::check_tree(&bytes).map_err(|findings| validate::no_tree(project, &findings))?;
    Ok(use_tree(&root))
}

/// The change that an iteration made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationPatch {
    /// The iteration's commit.
    pub commit: String,
    /// Its diff, without the runner's own files.
    pub text: String,
    /// Whether there is more of it than was asked for.
    pub truncated: bool,
}

/// The diff of an iteration's commit, at most `max` bytes of it; `None` if the
/// branch does not have it.
pub fn patch_of(
    project: &Project,
    run: &str,
    iter: u32,
    max: u64,
) -> Result<Option<IterationPatch>> {
    let git = Git::open(project.root())?;
    let refs = RunRefs::read(&git, run)?;
    let Some(tip) = refs.tip() else {
        return Ok(None);
    };
    let subject = format!("--grep=^chore(loop): run {run} iter {iter} node ");
    let log = git.read(&[
        "log",
        "-z",
        "--first-parent",
        "--format=%H%x09%P%x09%s",
        &subject,
        tip,
        "--",
    ])?;
    let log = String::from_utf8_lossy(&log);
    let found = log.split('\0').find_map(|line| {
        let (commit, rest) = line.split_once('\t')?;
        let (parents, subject) = rest.split_once('\t')?;
        // A dot in a run's id is any character to grep.
        let subject = message::parse_subject(subject)?;
        (subject.run_id == run && subject.iter == iter).then_some((commit, parents))
    });
    let Some((commit, parents)) = found else {
        return Ok(None);
    };
    // A session without a sandbox can write there: nothing but a commit's name may
    // get between the arguments of git.
    let head = meta_of(project, run, iter)
        .map(|meta| meta.head)
        .filter(|head| !head.is_empty() && head.bytes().all(|byte| byte.is_ascii_hexdigit()));
    // From where the step began: the session may have committed by itself.
    let from = head.unwrap_or_else(|| parents.split(' ').next().unwrap_or_default().to_owned());
    let diff = [
        "diff",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        &from,
        commit,
        "--",
        ".",
        ":(exclude).runner",
    ];
    let (mut text, truncated) = git.read_up_to(&diff, max)?;
    if truncated && let Some(end) = text.iter().rposition(|byte| *byte == b'\n') {
        text.truncate(end + 1);
    }
    Ok(Some(IterationPatch {
        commit: commit.to_owned(),
        text: String::from_utf8_lossy(&text).into_owned(),
        truncated,
    }))
}

/// The goal alone.
pub fn goal_of(project: &Project) -> Result<Goal> {
    state::load_goal(project).map_err(|problem| state::into_error(&[problem]))
}

/// The bookkeeping alone.
pub fn run_state_of(project: &Project) -> Result<RunState> {
    state::load_run_state(project).map_err(|problem| state::into_error(&[problem]))
}

/// The config alone.
pub fn config_of(project: &Project) -> Result<Config> {
    state::load_config(project).map_err(|problems| state::into_error(&problems))
}

/// A text that sessions append to, such as `questions.md`, if it can be read.
pub fn note_of(project: &Project, path: &str) -> Option<String> {
    state::optional_text(project, path).ok().flatten()
}

/// The branch that a run began on, as its first commit says.
pub fn base_of(project: &Project, run: &str) -> Result<Option<String>> {
    let git = Git::open(project.root())?;
    let refs = RunRefs::read(&git, run)?;
    let base = refs.tip().and_then(|tip| start::base_at(&git, run, tip));
    Ok(base.map(|base| base.branch))
}

/// The runner that is at work in a project, by the kernel's word.
pub fn running_pid(project: &Project) -> Option<u32> {
    ProjectLock::holder(project)
}
