//! The run's branch: still checked out, still containing where it began?

use runner_core::journal::JournalRecord;
use runner_core::meta::{IterationErrorKind, RunnerError};

use super::{Iteration, StepActor};
use crate::error::{Error, ErrorCode, Result};
use crate::git::{self, Git, GitStatus};

/// The run's branch must still be checked out and contain `base`; else
/// everything is saved and the branch goes back.
pub(super) fn put_back(
    git: &Git,
    it: &mut Iteration,
    base: &str,
    who: StepActor,
    status: &mut GitStatus,
) -> Result<Option<RunnerError>> {
    let branch = it.started.branch.clone();
    let full = format!("refs/heads/{branch}");
    if status.branch.is_none() && status.head.is_some() && status.head == git.commit_of(&full)? {
        git.write(&["symbolic-ref", "HEAD", &full])?;
        it.notes
            .push("HEAD was detached at the branch's tip; it is attached again".to_owned());
        status.branch = Some(branch.clone());
    }
    let on_branch = status.branch.as_deref() == Some(&branch);
    if on_branch && status.head.as_deref() == Some(base) {
        return Ok(None);
    }
    check_there(git, base)?;
    let kept = match &status.head {
        Some(now) => git.is_ancestor(base, now)?,
        None => false,
    };
    if on_branch && kept {
        return Ok(None);
    }
    let head = base.to_owned();
    it.journal
        .append_synced(&JournalRecord::Rescuing { head })?;
    let (run_id, iter) = (&it.started.run_id, it.started.iter);
    let lost = git::rescue(git, run_id, iter, &branch, base, &it.quarantine())?;
    it.index_signature = None;
    *status = git.status()?;
    let what = if on_branch {
        "was reset or rewritten"
    } else {
        "was left"
    };
    let when = match who {
        StepActor::Session => "during the session",
        StepActor::Guard => "while the guard ran",
    };
    Ok(Some(RunnerError::new(
        IterationErrorKind::Branch,
        format!("the branch {branch} {what} {when}; all is kept in {lost}"),
    )))
}

/// Without the commit at which it began, nothing can be settled.
pub(super) fn check_there(git: &Git, commit: &str) -> Result<()> {
    if git.commit_of(commit)?.is_some() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Git,
        format!(
            "commit {commit}, at which the iteration began, is not in the repository any more: \
             a session removed or replaced it"
        ),
    )
    .hint("bring .git back (from a clone or a backup), then run the same command again"))
}

/// Commits that contain what must not be committed: the branch goes back, the
/// files stay and become part of the iteration's commit.
pub(super) fn fold_commits(
    git: &Git,
    it: &mut Iteration,
    base: &str,
    who: StepActor,
) -> Result<()> {
    let full = format!("refs/heads/{}", it.started.branch);
    git.write(&["update-ref", "--no-deref", &full, base])?;
    base.clone_into(&mut it.parent);
    let who = match who {
        StepActor::Session => "session",
        StepActor::Guard => "guard",
    };
    it.notes.push(format!(
        "the {who} had committed files that must not go into a commit: its commits were folded into this one"
    ));
    Ok(())
}
