//! The work trees of a repository.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::Git;
use crate::error::Result;
use crate::files;

/// A work tree that is really there.
#[derive(Clone, Debug)]
pub(crate) struct WorkTree {
    /// The repository as seen from it.
    pub(crate) git: Git,
    /// The branch that is checked out in it, without `refs/heads/`.
    pub(crate) branch: Option<String>,
}

/// What a checkout in the middle of something has in its git folder, and what that is called.
const OPERATIONS: &[(&str, &str)] = &[
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("BISECT_LOG", "a bisect"),
];

impl Git {
    /// What a person is in the middle of in this work tree.
    pub(crate) fn operations(&self) -> Vec<String> {
        let there = OPERATIONS
            .iter()
            .filter(|(name, _)| self.git_dir.join(name).symlink_metadata().is_ok());
        there.map(|(_, what)| (*what).to_owned()).collect()
    }

    /// Whether a branch is being rebased here: HEAD is on none meanwhile. `full`: with
    /// `refs/heads/`.
    pub(crate) fn is_rebasing(&self, full: &str) -> bool {
        ["rebase-merge/head-name", "rebase-apply/head-name"]
            .iter()
            .filter_map(|name| files::read_regular(&self.git_dir.join(name), 4096).ok())
            .any(|text| text.trim_ascii_end() == full.as_bytes())
    }

    /// All work trees of the repository. What git knows of them may be a session's
    /// invention: only those count that lead back to this repository.
    pub(crate) fn work_trees(&self) -> Result<Vec<WorkTree>> {
        let list = self.read(&["worktree", "list", "--porcelain"])?;
        let mut found: Vec<WorkTree> = Vec::new();
        let mut open = None;
        for line in list.split(|byte| *byte == b'\n') {
            if let Some(path) = line.strip_prefix(b"worktree ") {
                open = self.work_tree_at(Path::new(OsStr::from_bytes(path)));
                found.extend(open.clone());
            } else if let Some(name) = line.strip_prefix(b"branch refs/heads/")
                && open.take().is_some()
                && let Some(last) = found.last_mut()
            {
                last.branch = Some(String::from_utf8_lossy(name).into_owned());
            }
        }
        // Where the git folder lies elsewhere, git does not know the first of them.
        if !found.iter().any(|tree| tree.git.root == self.root) {
            let head = self.head_ref()?;
            found.push(WorkTree {
                git: self.clone(),
                branch: head.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned)),
            });
        }
        Ok(found)
    }

    fn work_tree_at(&self, path: &Path) -> Option<WorkTree> {
        let mut git = Git::open(&path.canonicalize().ok()?).ok()?;
        // Where none are off here, those of that tree are looked for there.
        git.drivers_off = self.drivers_off.clone().filter(|it| !it.is_empty());
        (git.common_dir == self.common_dir).then_some(WorkTree { git, branch: None })
    }
}
