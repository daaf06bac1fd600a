//! Leaving a run: back to where it began, with everything of it kept.

use std::path::{Path, PathBuf};

use super::pending::PendingLanding;
use super::work_tree::WorkTreeMove;
use super::{check_free, enter};
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, WorkTree};
use crate::project::Project;
use crate::run::{follow_branch, refs};
use crate::run_context::RunContext;
use crate::state::runs;
use crate::state::runs::{KnownRun, RunBase, abandoned_name, full_name};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct AbandonOptions {
    /// The run; without it the one that is checked out, or the only one.
    pub run: Option<String>,
    /// Delete its branch.
    pub delete: bool,
}

/// What `abandon` did.
#[derive(Clone, Debug)]
pub struct AbandonReport {
    /// The run.
    pub run_id: String,
    /// Its branch.
    pub branch: String,
    /// Its last commit.
    pub tip: String,
    /// Where that is kept, if the branch is gone.
    pub kept_as: Option<String>,
    /// The branch that is checked out here now; `None`: a commit without one.
    pub here: Option<String>,
    /// Where the base is checked out, if it could not be checked out here.
    pub base_elsewhere: Option<PathBuf>,
}

/// Leaves a run.
pub fn abandon(
    start: &Path,
    options: &AbandonOptions,
    context: &mut RunContext<'_>,
) -> Result<AbandonReport> {
    let project = Project::of_work_tree(start)?;
    let (_lock, git) = enter(&project, context)?;
    let status = git.status()?;
    let here = status.branch.as_deref();
    let run = runs::choose(&git, options.run.as_deref(), here, "abandon")?;
    let mut kept_as = None;
    let mut base_elsewhere = None;
    if run.abandoned {
        // A second time: there is nothing left to do.
        kept_as = Some(abandoned_name(&run.run_id));
    } else {
        let trees = git.work_trees()?;
        check_free(&project, &trees, &run, &status)?;
        if here == Some(&run.branch()) {
            base_elsewhere = leave(&project, &git, &run, &trees)?;
        }
        follow_branch::end_run(&project, &git, &run.run_id)?;
        if options.delete {
            kept_as = Some(delete(&git, &run)?);
            refs::return_to(&git, &run.run_id)?;
        } else if runs::landing_of(&git, &run.run_id)?.is_none() {
            refs::leave(&git, &run.run_id, &run.tip)?;
        }
    }
    let here = git.head_ref()?;
    Ok(AbandonReport {
        branch: run.branch(),
        run_id: run.run_id,
        tip: run.tip,
        kept_as,
        here: here.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned)),
        base_elsewhere,
    })
}

/// How to get an abandoned run back.
pub(crate) fn way_back(run: &KnownRun) -> String {
    format!("`runner start {}` brings it back", run.run_id)
}

/// Goes to where the run began.
fn leave(
    project: &Project,
    git: &Git,
    run: &KnownRun,
    trees: &[WorkTree],
) -> Result<Option<PathBuf>> {
    let base = runs::base_of(git, &run.run_id, &run.tip)?.ok_or_else(|| {
        Error::new(
            ErrorCode::Identity,
            format!(
                "the first commit of run {} is not on its branch, so it is not known where it began",
                run.run_id
            ),
        )
        .hint("`git switch BRANCH` leaves it for another branch")
    })?;
    let taken = trees
        .iter()
        .find(|tree| tree.branch.as_deref() == Some(&base.branch))
        .map(|tree| tree.git.root().to_owned());
    let (tip, detach) = destination(git, &base, taken.is_some())?;
    let branch = run.branch();
    // What is checked out, which may be behind the run.
    let here = git.commit_of("HEAD")?.unwrap_or_else(|| run.tip.clone());
    let step = WorkTreeMove::switch(git, (&branch, &here), (&base.branch, &tip));
    let blockers = step.blockers(git)?;
    if !blockers.is_empty() {
        return Err(Error::new(
            ErrorCode::Dirty,
            format!(
                "going to {} would overwrite files that git ignores here:\n{}",
                base.branch,
                super::work_tree::list(&blockers)
            ),
        )
        .hint("move them away first"));
    }
    if detach {
        git.check_out(&["--detach", &tip])?;
        return Ok(taken);
    }
    // The branch is there already; only the work tree has to go to it.
    PendingLanding {
        target: base.branch,
        commit: tip,
        moves: vec![step.clone()],
    }
    .save(project, &run.run_id)?;
    step.go()?;
    PendingLanding::remove(project, &run.run_id)?;
    Ok(taken)
}

/// The commit to go to, and whether that is all there is to go to.
fn destination(git: &Git, base: &RunBase, taken: bool) -> Result<(String, bool)> {
    if base.branch == "HEAD" {
        return Ok((base.commit.clone(), true));
    }
    match git.commit_of(&full_name(&base.branch))? {
        Some(tip) => Ok((tip, taken)),
        None => Err(Error::new(
            ErrorCode::NotFound,
            format!("the branch {} that the run began from is gone", base.branch),
        )
        .hint(format!(
            "`git branch {} {}` makes it again; or leave for another branch with `git switch`",
            base.branch, base.commit
        ))),
    }
}

/// Deletes the branch once its last commit is kept elsewhere.
fn delete(git: &Git, run: &KnownRun) -> Result<String> {
    let first = abandoned_name(&run.run_id);
    let mut kept = first.clone();
    let mut number = 1;
    loop {
        match git.commit_of(&kept)? {
            Some(there) if there == run.tip => break,
            Some(_) => {
                number += 1;
                kept = format!("{first}-{number}");
            }
            None => {
                // Only if it is still not there.
                git.write(&["update-ref", &kept, &run.tip, ""])?;
                break;
            }
        }
    }
    git.write(&["update-ref", "-d", &full_name(&run.branch()), &run.tip])?;
    Ok(kept)
}
