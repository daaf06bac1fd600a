//! Where the user's checkout stands, seen from the run.

use runner_core::message;

use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::project::Project;
use crate::run::current;
use crate::run::follow_branch::{self, FollowOutcome};
use crate::run::refs::{self, BranchFinding, RunRefs};
use crate::state::runs;
use crate::step::branch_of;

/// Where a checkout stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckoutPosition {
    /// It shows what the run has.
    UpToDate,
    /// It is on the run's branch, and behind.
    Behind {
        /// So many iterations.
        iterations: usize,
        /// So many commits.
        commits: usize,
    },
    /// A person has put commits on the run's branch.
    Ahead(String),
    /// A person has moved the run's branch back, or rewritten it.
    Rewritten(String),
    /// It is on this branch, or on none.
    Elsewhere(Option<String>),
    /// It is elsewhere, and the run was abandoned.
    Left(String),
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
            CheckoutPosition::Behind {
                iterations,
                commits,
            } => {
                let behind = match (iterations, commits) {
                    (0, 1) => "1 commit".to_owned(),
                    (0, count) => format!("{count} commits"),
                    (1, _) => "1 iteration".to_owned(),
                    (count, _) => format!("{count} iterations"),
                };
                Some(format!(
                    "your checkout is {behind} behind; `runner follow` brings it along"
                ))
            }
            CheckoutPosition::Ahead(branch) => Some(format!(
                "there are commits of yours on {branch}; the next iteration takes them in"
            )),
            CheckoutPosition::Rewritten(branch) => Some(format!(
                "you moved {branch}; the next iteration goes on there, and keeps what it had under \
                 refs/runner/lost/"
            )),
            CheckoutPosition::Left(run_id) => Some(format!(
                "abandoned; `runner start {run_id}` goes back to it"
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
    /// What else there is to know about the branch.
    pub note: Option<String>,
}

/// Where the checkout of a project stands; `None` where no run has begun.
pub fn checkout_position(project: &Project) -> Result<Option<CheckoutPosition>> {
    let git = Git::open(project.root())?;
    let Some(run_id) = current::to_look_at(&Project::at(project.root().to_owned()), &git)? else {
        return Ok(None);
    };
    position_of(&git, &run_id).map(Some)
}

/// The same in a line that names the run.
pub fn position_words(project: &Project) -> Result<Option<String>> {
    let git = Git::open(project.root())?;
    let Some(run_id) = current::to_look_at(&Project::at(project.root().to_owned()), &git)? else {
        return Ok(None);
    };
    let words = position_of(&git, &run_id)?.words();
    Ok(words.map(|words| format!("run {run_id}: {words}")))
}

/// Where a checkout stands, seen from a run.
fn position_of(git: &Git, run_id: &str) -> Result<CheckoutPosition> {
    if current::on_branch(git)?.as_deref() == Some(run_id) {
        return match on_branch(git, run_id)? {
            CheckoutPosition::UpToDate => {
                Ok(landed(git, run_id)?.unwrap_or(CheckoutPosition::UpToDate))
            }
            position => Ok(position),
        };
    }
    if refs::is_left(git, run_id)? {
        return Ok(CheckoutPosition::Left(run_id.to_owned()));
    }
    if let Some(landed) = landed(git, run_id)? {
        return Ok(landed);
    }
    let head = git.head_ref()?;
    let branch = head.and_then(|it| it.strip_prefix("refs/heads/").map(str::to_owned));
    Ok(CheckoutPosition::Elsewhere(branch))
}

/// Where a run has landed, if all of it has.
fn landed(git: &Git, run_id: &str) -> Result<Option<CheckoutPosition>> {
    let landing = runs::landing_of(git, run_id)?;
    Ok(landing.map(|landing| CheckoutPosition::Landed {
        branch: landing.branch,
        commit: landing.commit,
    }))
}

/// Where a checkout of the run's branch stands.
fn on_branch(git: &Git, run_id: &str) -> Result<CheckoutPosition> {
    let refs = RunRefs::read(git, run_id)?;
    let branch = branch_of(run_id);
    match refs.finding(git)? {
        BranchFinding::Untouched => {}
        BranchFinding::Ahead(_) | BranchFinding::Beside(_) => {
            return Ok(CheckoutPosition::Ahead(branch));
        }
        BranchFinding::Rewritten(_) => return Ok(CheckoutPosition::Rewritten(branch)),
    }
    let (Some(run), Some(tip)) = (&refs.run, &refs.branch) else {
        return Ok(CheckoutPosition::UpToDate);
    };
    if run == tip {
        return Ok(CheckoutPosition::UpToDate);
    }
    let range = format!("{tip}..{run}");
    let subjects = git.line(&["log", "--first-parent", "--format=%s", &range, "--"])?;
    let iterations = subjects
        .lines()
        .filter(|line| message::parse_subject(line).is_some_and(|it| it.run_id == run_id));
    Ok(CheckoutPosition::Behind {
        iterations: iterations.count(),
        commits: subjects.lines().count(),
    })
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
    let position = on_branch(&git, &run_id)?;
    let is_moved = matches!(
        position,
        CheckoutPosition::Ahead(_) | CheckoutPosition::Rewritten(_)
    );
    let note = if is_moved {
        position.words()
    } else {
        landed(&git, &run_id)?.and_then(|landed| landed.words())
    };
    Ok(CatchUpReport {
        behind: match position {
            CheckoutPosition::Behind { commits, .. } => commits,
            _ => 0,
        },
        // What a person did to the branch is taken in, and in nobody's way.
        in_the_way: if is_moved { Vec::new() } else { in_the_way },
        note,
        run_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_behind() {
        for (iterations, commits, expected) in [
            (0, 1, "1 commit"),
            (0, 3, "3 commits"),
            (1, 3, "1 iteration"),
            (2, 2, "2 iterations"),
        ] {
            let position = CheckoutPosition::Behind {
                iterations,
                commits,
            };
            assert_eq!(
                position.words().unwrap_or_default(),
                format!("your checkout is {expected} behind; `runner follow` brings it along")
            );
        }
    }
}
