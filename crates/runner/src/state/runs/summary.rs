//! The runs of a repository with their state, for whoever looks.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_core::message;
use runner_core::paths;
use runner_core::select::{Selection, select};
use runner_core::tree::TreeProgress;
use serde_json::Value;

use super::{
    KnownRun, LandingCommit, RunBase, base_of, full_name, known, landings, merged_by_hand, title_of,
};
use crate::error::Result;
use crate::files;
use crate::git::{Git, WorkTree};
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::recover;
use crate::state;
use crate::state::log::RUN_EDITED;

/// The end of events.jsonl that is read.
const MAX_EVENTS: u64 = 64 * 1024 * 1024;

/// One run.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// The run.
    pub run_id: String,
    /// Its branch; `None` where that was deleted.
    pub branch: Option<String>,
    /// The goal's title.
    pub title: String,
    /// Where it stands.
    pub standing: RunStanding,
    /// Leaves passed of all, if the tree can be read.
    pub progress: Option<TreeProgress>,
    /// When it was last heard of.
    pub last_activity: Timestamp,
    /// Where its branch is checked out.
    pub worktree: Option<PathBuf>,
    /// The branch that it began from.
    pub base: Option<String>,
    /// Where it, or a part of it, has landed last.
    pub landed: Option<LandedAt>,
}

/// A landing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandedAt {
    /// The branch.
    pub branch: String,
    /// The commit on it.
    pub commit: String,
    /// Whether the run has gone on since, or is to go on.
    pub in_part: bool,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStanding {
    /// A runner is at work on it.
    Running,
    /// A runner was cut off; the next one settles what it left.
    Interrupted,
    /// There is something to do, and nobody does it.
    Idle,
    /// The last loop ended with an error.
    Error,
    /// The next leaf has used up its attempts.
    Stuck,
    /// Every leaf has passed.
    Complete,
    /// All of it is on another branch.
    Landed,
    /// A person has left it; the commits are kept, with or without its branch.
    Abandoned,
    /// The tree waits to be repaired.
    Repair,
    /// The tree cannot be read.
    Invalid,
}

impl RunStanding {
    /// The word that is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStanding::Running => "running",
            RunStanding::Interrupted => "interrupted",
            RunStanding::Idle => "idle",
            RunStanding::Error => "error",
            RunStanding::Stuck => "stuck",
            RunStanding::Complete => "complete",
            RunStanding::Landed => "landed",
            RunStanding::Abandoned => "abandoned",
            RunStanding::Repair => "repair",
            RunStanding::Invalid => "invalid",
        }
    }
}

/// The runs of the repository that a folder belongs to, the one that was last
/// heard of first.
pub fn runs(start: &Path) -> Result<Vec<RunSummary>> {
    let project = Project::of_work_tree(start)?;
    let git = Git::open(project.root())?;
    let trees = git.work_trees()?;
    let mut list = known(&git)?
        .iter()
        .map(|run| summary(&git, &project, &trees, run))
        .collect::<Result<Vec<_>>>()?;
    list.sort_by(|a, b| (b.last_activity, &a.run_id).cmp(&(a.last_activity, &b.run_id)));
    Ok(list)
}

fn summary(git: &Git, project: &Project, trees: &[WorkTree], run: &KnownRun) -> Result<RunSummary> {
    let branch = run.branch();
    let tree = trees
        .iter()
        .find(|tree| !run.abandoned && tree.branch.as_deref() == Some(&branch));
    // Its logs are where it is worked on.
    let place = tree.map_or_else(
        || project.clone(),
        |tree| Project::at(tree.git.root().to_owned()),
    );
    let base = base_of(git, &run.run_id, &run.tip)?;
    let bytes = git.file_at(&run.tip, paths::TREE)?.unwrap_or_default();
    let root = state::check_tree(&bytes).ok();
    let by_tree = match root.as_ref().map(select) {
        Some(Selection::Open(_)) => RunStanding::Idle,
        Some(Selection::Stuck(_)) => RunStanding::Stuck,
        Some(Selection::Complete) => RunStanding::Complete,
        None => unreadable(git, run)?,
    };
    let complete = by_tree == RunStanding::Complete;
    let landed = last_landing(git, run, base.as_ref())?.map(|landing| LandedAt {
        in_part: landing.tip != run.tip || !complete,
        branch: landing.branch,
        commit: landing.commit,
    });
    let is_home = landed.as_ref().is_some_and(|landed| !landed.in_part);
    let standing = if run.abandoned && is_home {
        // Its branch was only in the way.
        RunStanding::Landed
    } else if run.abandoned || run.left && tree.is_none() {
        RunStanding::Abandoned
    } else if tree.is_some() && ProjectLock::holder(&place).is_some() {
        RunStanding::Running
    } else if recover::is_unfinished(&place, &run.run_id) {
        RunStanding::Interrupted
    } else if is_home {
        RunStanding::Landed
    } else if by_tree == RunStanding::Idle && ended_with_error(&place, &run.run_id) {
        RunStanding::Error
    } else {
        by_tree
    };
    Ok(RunSummary {
        run_id: run.run_id.clone(),
        branch: (!run.abandoned).then_some(branch),
        title: title_of(git, &run.tip)?,
        standing,
        progress: root.as_ref().map(runner_core::tree::Node::progress),
        last_activity: last_activity(&place, run),
        worktree: tree.map(|tree| tree.git.root().to_owned()),
        base: base.map(|base| base.branch),
        landed,
    })
}

/// Where it landed last: on its base if it did there, for other branches may have
/// begun from that since.
fn last_landing(
    git: &Git,
    run: &KnownRun,
    base: Option<&RunBase>,
) -> Result<Option<LandingCommit>> {
    let home = base.map(|base| base.branch.as_str());
    let mut found = Vec::new();
    if let Some(branch) = home
        && git.commit_of(&full_name(branch))?.is_some()
    {
        found = landings(git, &run.run_id, base, Some(branch))?;
    }
    if found.is_empty() {
        found = landings(git, &run.run_id, base, None)?;
    }
    let is_home = found.first().is_some_and(|landing| landing.tip == run.tip);
    if let Some(branch) = home
        && !is_home
        && merged_by_hand(git, run, base)?
    {
        return Ok(Some(LandingCommit {
            commit: run.tip.clone(),
            branch: branch.to_owned(),
            tip: run.tip.clone(),
        }));
    }
    Ok(found.into_iter().next())
}

/// A tree that cannot be read may be about to be repaired.
fn unreadable(git: &Git, run: &KnownRun) -> Result<RunStanding> {
    let text = git.line(&["log", "-1", "--format=%B", &run.tip, "--"])?;
    let waits = message::trailer(&text, "Runner-Last-Valid").is_some();
    Ok(if waits {
        RunStanding::Repair
    } else {
        RunStanding::Invalid
    })
}

fn events(place: &Project, run_id: &str) -> PathBuf {
    place.run_folder(run_id).join("events.jsonl")
}

/// Whether the last thing that its log of events says is that a loop failed, or that a person has
/// changed something since.
fn ended_with_error(place: &Project, run_id: &str) -> bool {
    let bytes = files::read_regular(&events(place, run_id), MAX_EVENTS).unwrap_or_default();
    let mut events = bytes
        .split(|byte| *byte == b'\n')
        .rev()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).unwrap_or_default());
    let last = events.find(|event| event["event"] != RUN_EDITED);
    last.is_some_and(|event| event["event"] == "finished" && event["status"] == "error")
}

/// The newest commit or event.
fn last_activity(place: &Project, run: &KnownRun) -> Timestamp {
    let committed = Timestamp::from_second(run.tip_secs).unwrap_or_default();
    let heard = events(place, &run.run_id)
        .symlink_metadata()
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok());
    heard.map_or(committed, |heard| heard.max(committed))
}
