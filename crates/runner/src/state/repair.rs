//! Whether the tree waits to be repaired, found in the commits alone: a fresh
//! clone without logs can repair.

use runner_core::message::{self, ByHand};
use runner_core::paths;

use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitHistory};

/// A repair that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingRepair {
    /// The commit with the last valid tree.
    pub(crate) last_valid: String,
    /// Repairs that were refused since.
    pub(crate) refused: u32,
}

/// Looks back from `head`: is the newest word of the runner about the tree
/// "invalid", and how often has a repair been refused since?
pub(crate) fn pending(git: &Git, head: &str, run_id: &str) -> Result<Option<PendingRepair>> {
    let mut refused = 0;
    for commit in GitHistory::from(git, head) {
        let commit = commit?;
        let (subject, message) = (commit.subject(), &*commit.message);
        if !subject.starts_with("chore(loop): ") {
            // A person's.
            continue;
        }
        if subject == message::start_subject(run_id) {
            // A person changed something in .runner/ meanwhile: the tree still waits.
            continue;
        }
        match ByHand::parse(subject) {
            // A person has repaired the tree, or found it in order.
            Some(by_hand) if by_hand.settles_tree() => return Ok(None),
            Some(_) => continue,
            None => {}
        }
        let Some(subject) = message::parse_subject(subject) else {
            return Ok(None);
        };
        if subject.run_id != run_id {
            return Ok(None);
        }
        if let Some(commit) = message::trailer(message, "Runner-Last-Valid") {
            return Ok(Some(PendingRepair {
                last_valid: commit.to_owned(),
                refused,
            }));
        }
        match message::trailer(message, "Runner-Repair") {
            Some("refused") => refused += 1,
            // A repair that was a runner error neither helped nor harmed.
            None if message::trailer(message, "Runner-Mode") == Some("repair") => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// The last valid tree, from its commit.
pub(crate) fn valid_tree(git: &Git, pending: &PendingRepair) -> Result<Vec<u8>> {
    git.file_at(&pending.last_valid, paths::TREE)?
        .ok_or_else(|| {
            Error::new(
                ErrorCode::Tree,
                format!(
                    "the last valid tree (commit {}) cannot be found",
                    pending.last_valid
                ),
            )
            .hint("mend .runner/state/tree.json by hand and commit it")
        })
}
