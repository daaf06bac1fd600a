//! Commits that the user took off the base branch: the fleet goes on where the user left it, with
//! the results that came after them.

use std::path::PathBuf;

use crate::error::Result;
use crate::git::{Git, GitMergeOutcome};

/// What taking in the user's branch came to.
pub(super) enum TakenIn {
    /// This commit.
    Clean(String),
    /// These files do not fit.
    Conflicts(Vec<String>),
}

impl TakenIn {
    pub(super) fn of_conflicts(paths: &[PathBuf]) -> Self {
        let paths = paths.iter().map(|it| super::results::shown(it));
        TakenIn::Conflicts(paths.collect())
    }
}

/// The results that the base has beyond `seen`, where the user's branch was, once more on `onto`,
/// where it is now. What was merged into them of the user's is not theirs.
pub(super) fn results_on(git: &Git, seen: &str, base: &str, onto: &str) -> Result<TakenIn> {
    let range = format!("{seen}..{base}");
    let listed = git.line(&[
        "rev-list",
        "--reverse",
        "--first-parent",
        "--no-merges",
        &range,
    ])?;
    let mut tip = onto.to_owned();
    for commit in listed.lines() {
        let before = git.tree_of(&format!("{commit}^"))?;
        let (after, now) = (git.tree_of(commit)?, git.tree_of(&tip)?);
        match git.merge_trees(&before, &now, &after)? {
            GitMergeOutcome::Clean(tree) => {
                let message = git.read(&["log", "-1", "--format=%B", commit, "--"])?;
                let message = String::from_utf8_lossy(&message);
                let message = format!("{}\n", message.trim_end());
                let secs = git.secs_of(commit)?;
                tip = git.commit_tree_like(commit, secs, &tree, &[&tip], &message)?;
            }
            GitMergeOutcome::Conflicts(paths) => return Ok(TakenIn::of_conflicts(&paths)),
        }
    }
    Ok(TakenIn::Clean(tip))
}
