//! Questions that git works on while the runner does something else: most of a short step is
//! waiting for git, and most machines have a second core.

use std::ffi::OsStr;
use std::process::{Command, Output};

use runner_exec::{Helper, Input};

use super::call::{begin, describe, failed};
use super::{
    Git, GitAccess, GitStatus, LS_TREE, STATUS, StallOutcome, TreeEntry, parse_tree_listing, stall,
};
use crate::error::Result;
use crate::fault;

/// A call that is under way. Git is ended when this is dropped.
#[derive(Debug)]
pub(super) struct PendingCall {
    command: Command,
    child: Helper,
}

impl PendingCall {
    pub(super) fn begin<S: AsRef<OsStr>>(git: &Git, args: &[S]) -> Result<Self> {
        Self::begin_as(git, GitAccess::Read, args)
    }

    fn begin_as<S: AsRef<OsStr>>(git: &Git, access: GitAccess, args: &[S]) -> Result<Self> {
        let command = git.command_of(access, args)?;
        let child = begin(&command, Input::Nothing)?;
        Ok(PendingCall { command, child })
    }

    /// What it printed, however it ended.
    pub(super) fn output(self) -> Result<Output> {
        Ok(self.child.output()?)
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

/// A call that changes something and is under way. Git is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct PendingWrite(PendingCall);

impl PendingWrite {
    /// Waits for its end.
    pub(crate) fn end(self) -> Result<()> {
        let result = self.0.answer().map(drop);
        fault::point("git-done")?;
        result
    }
}

/// The objects of a commit, to be compared with their names.
#[derive(Debug)]
pub(crate) struct PendingProof {
    pub(super) commit: String,
    pub(super) asked: PendingCall,
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
    /// Begins a call that changes the repository.
    pub(crate) fn begin_write<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<PendingWrite> {
        fault::point("git")?;
        PendingCall::begin_as(self, GitAccess::Write, args).map(PendingWrite)
    }

    /// Begins to look at everything.
    pub(crate) fn ask_status(&self) -> Result<PendingStatus> {
        PendingCall::begin(self, STATUS).map(PendingStatus)
    }

    /// What differs below one folder.
    pub(crate) fn status_below(&self, folder: &str) -> Result<GitStatus> {
        let args: Vec<&str> = STATUS.iter().copied().chain(["--", folder]).collect();
        PendingStatus(PendingCall::begin(self, &args)?).answer()
    }

    /// Begins to list the files of a commit; `None` where that cannot be: nothing is wrong then.
    pub(crate) fn ask_files_of(&self, commit: &str) -> Option<PendingFiles> {
        let args: Vec<&str> = LS_TREE.iter().copied().chain([commit]).collect();
        let asked = PendingCall::begin(self, &args).ok()?;
        let commit = commit.to_owned();
        Some(PendingFiles { commit, asked })
    }
}
