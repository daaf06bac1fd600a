//! Questions that git works on while the runner does something else: most of a short step is
//! waiting for git, and most machines have a second core.

use std::path::PathBuf;
use std::process::Command;

use runner_exec::{Helper, Input};

use super::call::{begin, describe, failed};
use super::{
    Git, GitAccess, GitStatus, LS_TREE, STATUS, StallOutcome, TreeEntry, parse_tree_listing, stall,
};
use crate::error::Result;
use crate::files;

/// A call that only reads and is under way. Git is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct PendingCall {
    command: Command,
    child: Helper,
}

impl PendingCall {
    fn begin(git: &Git, args: &[&str]) -> Result<Self> {
        let mut command = git.command(GitAccess::Read);
        command.args(args);
        let child = begin(&command, Input::Nothing)?;
        Ok(PendingCall { command, child })
    }

    fn answer(self) -> Result<Vec<u8>> {
        let output = self.child.output()?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(failed(&describe(&self.command), &output))
        }
    }
}

/// The state of branch, index and work tree, asked for.
#[derive(Debug)]
pub(crate) struct PendingStatus(PendingCall);

impl PendingStatus {
    /// The answer.
    pub(crate) fn answer(self) -> Result<GitStatus> {
        Ok(GitStatus::parse(&self.0.answer()?))
    }

    /// The same where a session may have left traps: see [`StallOutcome`].
    pub(crate) fn answer_unless_stalled(self) -> Result<StallOutcome<GitStatus>> {
        let PendingCall { command, child } = self.0;
        Ok(match stall::watch(child)? {
            StallOutcome::Ended(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stderr);
                if text.contains("could not open directory") {
                    return Ok(StallOutcome::Blind);
                }
                StallOutcome::Ended(GitStatus::parse(&output.stdout))
            }
            StallOutcome::Ended(output) => return Err(failed(&describe(&command), &output)),
            StallOutcome::Stalled => StallOutcome::Stalled,
            StallOutcome::Blind => StallOutcome::Blind,
        })
    }
}

/// The files of a commit, asked for.
#[derive(Debug)]
pub(crate) struct PendingFiles {
    commit: String,
    asked: PendingCall,
}

impl PendingFiles {
    /// The answer; `None` if the question was about another commit.
    pub(crate) fn answer(self, commit: &str) -> Result<Option<Vec<TreeEntry>>> {
        if self.commit != commit {
            return Ok(None);
        }
        Ok(Some(parse_tree_listing(&self.asked.answer()?)))
    }
}

impl Git {
    /// Begins to look at everything.
    pub(crate) fn ask_status(&self) -> Result<PendingStatus> {
        PendingCall::begin(self, STATUS).map(PendingStatus)
    }

    /// Begins to list the files of what is most likely the commit at HEAD; `None` where that cannot
    /// be told without git. Nothing is wrong then.
    pub(crate) fn ask_files_at_head(&self) -> Option<PendingFiles> {
        let commit = self.probable_head()?;
        let args: Vec<&str> = LS_TREE.iter().copied().chain([commit.as_str()]).collect();
        let asked = PendingCall::begin(self, &args).ok()?;
        Some(PendingFiles { commit, asked })
    }

    /// The commit at HEAD where it is on a branch that is kept as a file of its own, which the branch
    /// of a run is after every iteration.
    fn probable_head(&self) -> Option<String> {
        let line = |path: PathBuf| {
            let bytes = files::read_regular(&path, 4096).ok()?;
            String::from_utf8(bytes.trim_ascii_end().to_vec()).ok()
        };
        let head = line(self.git_dir.join("HEAD"))?;
        let branch = head.strip_prefix("ref: ")?;
        let is_plain = branch.starts_with("refs/heads/") && !branch.contains("..");
        let commit = line(self.common_dir.join(is_plain.then_some(branch)?))?;
        let is_name =
            matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_name.then_some(commit)
    }
}
