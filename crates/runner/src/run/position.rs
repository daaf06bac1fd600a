//! Where the user's checkout stands, seen from the run.

use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::project::Project;
use crate::run::current;
use crate::run::follow_branch::{self, FollowOutcome};
use crate::run::refs::RunRefs;
use crate::state::runs;

/// Where a checkout stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckoutPosition {
    /// It shows what the run has.
    UpToDate,
    /// It is on the run's branch, so many commits behind.
    Behind(usize),
    /// It is on this branch, or on none.
    Elsewhere(Option<String>),
    /// It is elsewhere, and the run has ended.
    Landed {
        /// The branch that has it all.
        branch: String,
        /// The commit on it.
        commit: String,
    },
}

impl CheckoutPosition {
    /// What a person should know about their checkout, in a line.
    pub fn words(&self) -> Option<String> {
        match self {
            CheckoutPosition::UpToDate => None,
            CheckoutPosition::Behind(1) => {
                Some("your checkout is 1 commit behind; `runner follow` brings it along".to_owned())
            }
            CheckoutPosition::Behind(count) => Some(format!(
                "your checkout is {count} commits behind; `runner follow` brings it along"
            )),
            CheckoutPosition::Elsewhere(Some(branch)) => {
                Some(format!("your checkout is on {branch}"))
            }
            CheckoutPosition::Elsewhere(None) => Some("your checkout is on no branch".to_owned()),
            CheckoutPosition::Landed { branch, commit } => {
                let short = commit.get(..12).unwrap_or(commit);
                Some(format!("landed on {branch} ({short})"))
            }
        }
    }
}

/// What `runner follow` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpReport {
    /// The run.
    pub run_id: String,
    /// So many commits the checkout is behind now.
    pub behind: usize,
    /// What keeps it from following, as names for people.
    pub in_the_way: Vec<String>,
}

/// Where the checkout of a project stands; `None` where no run has begun.
pub fn checkout_position(project: &Project) -> Result<Option<CheckoutPosition>> {
    let git = Git::open(project.root())?;
    let Some(run_id) = current::to_look_at(&Project::at(project.root().to_owned()), &git)? else {
        return Ok(None);
    };
    if current::on_branch(&git)?.as_deref() == Some(&run_id) {
        return Ok(Some(match behind(&git, &run_id)? {
            0 => CheckoutPosition::UpToDate,
            count => CheckoutPosition::Behind(count),
        }));
    }
    if let Some(landing) = runs::landing_of(&git, &run_id)? {
        return Ok(Some(CheckoutPosition::Landed {
            branch: landing.branch,
            commit: landing.commit,
        }));
    }
    let head = git.head_ref()?;
    let branch = head.and_then(|it| it.strip_prefix("refs/heads/").map(str::to_owned));
    Ok(Some(CheckoutPosition::Elsewhere(branch)))
}

/// How many commits a branch is behind its run.
fn behind(git: &Git, run_id: &str) -> Result<usize> {
    let refs = RunRefs::read(git, run_id)?;
    let (Some(run), Some(branch)) = (&refs.run, &refs.branch) else {
        return Ok(0);
    };
    if run == branch {
        return Ok(0);
    }
    let range = format!("{branch}..{run}");
    let count = git.line(&["rev-list", "--count", "--first-parent", &range, "--"])?;
    Ok(count.parse().unwrap_or(0))
}

/// Brings the checkout of the current run's branch to where the run is.
pub fn catch_up(project: &Project) -> Result<CatchUpReport> {
    let git = Git::open(project.root())?;
    let run_id = current::to_look_at(project, &git)?.ok_or_else(|| {
        Error::new(ErrorCode::Identity, "no run has been started here")
            .hint("`runner runs` lists the runs of this repository")
    })?;
    let in_the_way = match follow_branch::try_follow(project, &git, &run_id)? {
        FollowOutcome::UpToDate => Vec::new(),
        FollowOutcome::Behind(names) => names,
    };
    Ok(CatchUpReport {
        behind: behind(&git, &run_id)?,
        in_the_way,
        run_id,
    })
}
