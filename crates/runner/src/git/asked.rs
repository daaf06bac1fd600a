//! Questions that git works on while the runner does something else: most of a short step is
//! waiting for git, and most machines have a second core.

use std::path::PathBuf;
use std::process::Command;

use runner_exec::{Helper, Input};

use super::call::{begin, describe, failed};
use super::{Access, Git, LS_TREE, Patience, STATUS, Status, TreeEntry, parse_tree_listing, stall};
use crate::error::Result;
use crate::files;

/// A call that only reads and is under way. Git is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    command: Command,
    child: Helper,
}

impl Asked {
    fn begin(git: &Git, args: &[&str]) -> Result<Self> {
        let mut command = git.command(Access::Read);
        command.args(args);
        let child = begin(&command, Input::Nothing)?;
        Ok(Asked { command, child })
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
pub(crate) struct AskedStatus(Asked);

impl AskedStatus {
    /// The answer.
    pub(crate) fn answer(self) -> Result<Status> {
        Ok(Status::parse(&self.0.answer()?))
    }

    /// The same where a session may have left traps: see [`Patience`].
    pub(crate) fn answer_unless_stalled(self) -> Result<Patience<Status>> {
        let Asked { command, child } = self.0;
        Ok(match stall::watch(child)? {
            Patience::Ended(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stderr);
                if text.contains("could not open directory") {
                    return Ok(Patience::Blind);
                }
                Patience::Ended(Status::parse(&output.stdout))
            }
            Patience::Ended(output) => return Err(failed(&describe(&command), &output)),
            Patience::Stalled => Patience::Stalled,
            Patience::Blind => Patience::Blind,
        })
    }
}

/// The files of a commit, asked for.
#[derive(Debug)]
pub(crate) struct AskedFiles {
    commit: String,
    asked: Asked,
}

impl AskedFiles {
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
    pub(crate) fn ask_status(&self) -> Result<AskedStatus> {
        Asked::begin(self, STATUS).map(AskedStatus)
    }

    /// Begins to list the files of what is most likely the commit at HEAD; `None` where that cannot
    /// be told without git. Nothing is wrong then.
    pub(crate) fn ask_files_at_head(&self) -> Option<AskedFiles> {
        let commit = self.probable_head()?;
        let args: Vec<&str> = LS_TREE.iter().copied().chain([commit.as_str()]).collect();
        let asked = Asked::begin(self, &args).ok()?;
        Some(AskedFiles { commit, asked })
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
