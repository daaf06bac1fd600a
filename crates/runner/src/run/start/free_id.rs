//! The id of a new run, and what a branch is at.

use runner_core::digest::sha256_hex;

use crate::error::Result;
use crate::git::Git;
use crate::state::ProjectState;
use crate::state::runs::{abandoned_name, full_name};
use crate::step::branch_of;

/// `run-<sha8>`, with a number where that branch exists already, or did until it
/// was abandoned.
pub(super) fn free_id(git: &Git, head: Option<&str>, state: &ProjectState) -> Result<String> {
    let sha = match head {
        Some(head) => head.to_owned(),
        None => sha256_hex(state.goal.body().as_bytes()),
    };
    let base = format!("run-{}", &sha[..8.min(sha.len())]);
    let mut number = 1;
    loop {
        let id = if number == 1 {
            base.clone()
        } else {
            format!("{base}-{number}")
        };
        let taken = commit_of_branch(git, &branch_of(&id))?.is_some()
            || git.commit_of(&abandoned_name(&id))?.is_some();
        if !taken {
            return Ok(id);
        }
        number += 1;
    }
}

pub(super) fn commit_of_branch(git: &Git, branch: &str) -> Result<Option<String>> {
    git.commit_of(&full_name(branch))
}
