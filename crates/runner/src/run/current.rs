//! Which run a command is about: the one whose branch is checked out, or the one that was last
//! started here.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use runner_core::paths;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::run::refs::RunRefs;
use crate::run::start::runs_elsewhere;
use crate::state;
use crate::step::{self, branch_of, check_identity, identity_error};

/// The file in the git folder of a work tree.
const FILE: &str = "runner/current.json";

/// The largest such file.
const MAX_BYTES: u64 = 64 << 10;

/// The run that was last started in a work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CurrentRun {
    pub(crate) run_id: String,
    /// Its branch is not checked out, on purpose (`start --stay`).
    pub(crate) stay: bool,
}

impl CurrentRun {
    fn path(git: &Git) -> PathBuf {
        git.git_dir().join(FILE)
    }

    /// Reads what was written down.
    pub(crate) fn read(git: &Git) -> Option<Self> {
        let bytes = files::read_regular(&Self::path(git), MAX_BYTES).ok()?;
        let found: CurrentRun = serde_json::from_slice(&bytes).ok()?;
        runner_core::goal::check_run_id(&found.run_id).ok()?;
        Some(found)
    }

    /// Writes it down.
    pub(crate) fn save(&self, git: &Git) -> Result<()> {
        if Self::read(git).as_ref() == Some(self) {
            return Ok(());
        }
        files::make_folder(&git.git_dir().join("runner"))?;
        // Strings alone: there is nothing that could fail.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        Ok(files::write_whole(&Self::path(git), &bytes)?)
    }
}

/// A run that there may be something to see of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunCandidate {
    pub(crate) run_id: String,
    /// Its branch is checked out.
    pub(crate) on_branch: bool,
    /// Steps of it may be taken here.
    pub(crate) can_step: bool,
}

/// The run whose branch is checked out.
pub(crate) fn on_branch(git: &Git) -> Result<Option<String>> {
    Ok(run_of(git.head_ref()?.as_deref()))
}

/// The run that a full name of a branch belongs to.
pub(crate) fn run_of(head: Option<&str>) -> Option<String> {
    head?.strip_prefix("refs/heads/runner/").map(str::to_owned)
}

/// The run that a loop would be of, if it may begin at all.
pub(crate) fn here(git: &Git) -> Result<Option<String>> {
    let stays = || CurrentRun::read(git).filter(|current| current.stay);
    Ok(on_branch(git)?.or_else(|| stays().map(|current| current.run_id)))
}

/// The run of which steps may be taken here; who wants to take one anywhere else is told why not.
pub(crate) fn checked_out(project: &Project, git: &Git) -> Result<String> {
    if let Some(run_id) = on_branch(git)? {
        refuse_edits(project, git)?;
        return Ok(run_id);
    }
    if let Some(current) = CurrentRun::read(git)
        && current.stay
        && RunRefs::read(git, &current.run_id)?.tip().is_some()
    {
        return Ok(current.run_id);
    }
    let state = state::load(project).map_err(|error| {
        if error.code != ErrorCode::Layout {
            return error;
        }
        // Not the missing files are the problem, but the branch.
        match runs_elsewhere(project, git) {
            Ok(Some(runs)) => identity_error(&format!(
                "this branch has nothing of a run; there is {}",
                runs.join(", ")
            )),
            _ => error,
        }
    })?;
    let status = git.status()?;
    let run_id = check_identity(&state.goal, &state.run_state, &status)?;
    Err(identity_error(&format!(
        "run {run_id} lives on branch {}",
        branch_of(&run_id)
    )))
}

/// Changes in `.runner/` that no commit has would not count, and nobody would notice: whoever
/// begins is told. A run that is under way goes on without them.
fn refuse_edits(project: &Project, git: &Git) -> Result<()> {
    let mut status = git.without_filters()?.status_below(paths::ROOT)?;
    status
        .entries
        .retain(|entry| paths::is_state_path(entry.path.as_os_str().as_bytes()));
    if status.is_clean() {
        return Ok(());
    }
    // What is wrong with them is the better answer.
    state::load(project)?;
    step::check_clean(&status)
}

/// The run to look at here, if any has begun.
pub(crate) fn to_look_at(project: &Project, git: &Git) -> Result<Option<String>> {
    let head = git.head_ref()?;
    let Some(found) = candidate(project, git, head.as_deref()) else {
        return Ok(None);
    };
    if found.on_branch {
        return Ok(Some(found.run_id));
    }
    let refs = RunRefs::read(git, &found.run_id)?;
    Ok(refs.tip().is_some().then_some(found.run_id))
}

/// The run that would be looked at if it has anything, where this is what HEAD is on. It asks
/// nothing of git.
pub(crate) fn candidate(project: &Project, git: &Git, head: Option<&str>) -> Option<RunCandidate> {
    if let Some(run_id) = run_of(head) {
        return Some(RunCandidate {
            run_id,
            on_branch: true,
            can_step: true,
        });
    }
    let current = CurrentRun::read(git);
    let stays = current.as_ref().is_some_and(|current| current.stay);
    let run_id = if project.has_state() && !stays {
        // A commit of the run, perhaps; or another goal.
        let goal = state::load_goal(project).ok();
        let goal_id = goal.and_then(|goal| goal.id().map(str::to_owned));
        let run_state = state::load_run_state(project).ok();
        run_state
            .and_then(|it| it.run_id)
            .filter(|id| Some(id) == goal_id.as_ref())
    } else {
        current.map(|current| current.run_id)
    };
    run_id.map(|run_id| RunCandidate {
        run_id,
        on_branch: false,
        can_step: stays,
    })
}

/// The project as the last commit of a run has it; logs are where they are.
pub(crate) fn at_run(project: &Project, git: &Git, run_id: &str) -> Result<Project> {
    let refs = RunRefs::read(git, run_id)?;
    match refs.tip() {
        Some(tip) => project.at_commit(git, tip),
        None => Ok(project.clone()),
    }
}

/// The project for whoever only looks: what its run says, wherever the checkout is. Before the
/// first step that is what lies in the checkout.
pub(crate) fn view(project: Project) -> Result<Project> {
    let Ok(git) = Git::open(project.root()) else {
        return Ok(project);
    };
    match commit_to_view(&project, &git)? {
        Some(commit) => project.at_commit(&git, &commit),
        None => Ok(project),
    }
}

/// The commit that says what there is to see; `None` where the checkout does.
pub(crate) fn commit_to_view(project: &Project, git: &Git) -> Result<Option<String>> {
    let Some(run_id) = to_look_at(project, git)? else {
        return Ok(None);
    };
    let refs = RunRefs::read(git, &run_id)?;
    let is_new = refs.run.is_none() && project.has_state();
    Ok(refs.tip().filter(|_| !is_new).map(str::to_owned))
}
