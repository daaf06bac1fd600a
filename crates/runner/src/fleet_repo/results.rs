//! Results are commits: what they change, and what merging them comes to.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::paths;
use runner_core::text::escape_path;

use super::FleetRepo;
use crate::error::Result;
use crate::git::{GitMergeOutcome, split_nul};

/// A diff larger than this is told to be a byte larger.
const MAX_DIFF: u64 = 64 << 20;

/// A file that a result changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultChange {
    /// From the root of the repository.
    pub path: String,
    /// What was done to it.
    pub how: ResultChangeKind,
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultChangeKind {
    /// It is new.
    Created,
    /// It is another.
    Modified,
    /// It is gone.
    Deleted,
}

/// What merging came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultMergeOutcome {
    /// This commit, on top of the base.
    Commit(String),
    /// These paths do not fit together.
    Conflicts(Vec<String>),
    /// The base has it all.
    Empty,
    /// There is no such commit.
    Missing,
}

/// Two commits to be merged, and what the new one shall say.
#[derive(Clone, Copy, Debug)]
pub struct ResultMerge<'a> {
    /// What is merged into.
    pub base: &'a str,
    /// What is merged.
    pub result: &'a str,
    /// The message, with its trailers.
    pub message: &'a str,
    /// The run that it is for: a ref with its name keeps the commit.
    pub run_id: &'a str,
}

impl FleetRepo {
    /// What differs between two commits; `None` if one of them is not there.
    pub fn changes(&self, from: &str, to: &str) -> Result<Option<Vec<ResultChange>>> {
        if !self.has(from)? || !self.has(to)? {
            return Ok(None);
        }
        let args = [
            "diff-tree",
            "-r",
            "-z",
            "--no-renames",
            "--name-status",
            from,
            to,
        ];
        let listed = self.git.read(&args)?;
        let mut words = split_nul(&listed);
        let mut found = Vec::new();
        while let (Some(how), Some(path)) = (words.next(), words.next()) {
            found.push(ResultChange {
                path: named(path),
                how: match how.first() {
                    Some(b'A') => ResultChangeKind::Created,
                    Some(b'D') => ResultChangeKind::Deleted,
                    _ => ResultChangeKind::Modified,
                },
            });
        }
        Ok(Some(found))
    }

    /// Where a result left the base: what it is measured against. `None`: it is not there.
    pub fn start_of(&self, result: &str) -> Result<Option<String>> {
        if !self.has(result)? {
            return Ok(None);
        }
        let found = self.git.ask(&["merge-base", &self.base()?, result])?;
        Ok(found.map(|bytes| String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()))
    }

    /// The size of the diff between two commits, what is binary included.
    pub fn diff_bytes(&self, from: &str, to: &str) -> Result<u64> {
        let args = [
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--no-color",
            "--binary",
            from,
            to,
            "--",
        ];
        let (bytes, _) = self.git.read_up_to(&args, MAX_DIFF)?;
        Ok(bytes.len() as u64)
    }

    /// Merges a result into a base; no branch moves, and a ref keeps what came of it. The new commit has the base as its only
    /// parent, so that a history says once what was merged; the same arguments give the same
    /// commit.
    pub fn merge(&self, merge: ResultMerge<'_>) -> Result<ResultMergeOutcome> {
        let ResultMerge {
            base,
            result,
            message,
            run_id,
        } = merge;
        let _held = self.git.hold_new_objects_for_now()?;
        if !self.has(result)? {
            return Ok(ResultMergeOutcome::Missing);
        }
        if self.git.is_ancestor(result, base)? {
            return Ok(ResultMergeOutcome::Empty);
        }
        let tree = match self.git.merge_commits(base, result)? {
            GitMergeOutcome::Clean(tree) => tree,
            GitMergeOutcome::Conflicts(paths) => {
                let paths = paths.iter().map(|path| shown(path));
                return Ok(ResultMergeOutcome::Conflicts(paths.collect()));
            }
        };
        if tree == self.git.tree_of(base)? {
            return Ok(ResultMergeOutcome::Empty);
        }
        let secs = self.git.secs_of(base)?.max(self.git.secs_of(result)?);
        let commit = self
            .git
            .commit_tree_like(result, secs, &tree, &[base], message)?;
        let orders = format!("update {} {commit}\n", self.merge_ref(run_id));
        self.git.update_refs("runner: candidate", &orders)?;
        Ok(ResultMergeOutcome::Commit(commit))
    }

    /// What a commit has beyond the base, without `.runner/`, as one commit on the base;
    /// `None` if that is nothing.
    pub(crate) fn squash(&self, base: &str, tip: &str, message: &str) -> Result<Option<String>> {
        let tree = self.git.tree_with(tip, paths::ROOT, Some(base))?;
        if tree == self.git.tree_of(base)? {
            return Ok(None);
        }
        let secs = self.git.secs_of(base)?.max(self.git.secs_of(tip)?);
        let commit = self
            .git
            .commit_tree_like(tip, secs, &tree, &[base], message)?;
        Ok(Some(commit))
    }

    pub(crate) fn has(&self, commit: &str) -> Result<bool> {
        let is_name = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(is_name && self.git.commit_of(commit)?.is_some())
    }
}

/// A path as scopes name it; escaped where it is not text.
fn named(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => escape_path(path),
    }
}

/// A path for people.
pub(crate) fn shown(path: &Path) -> String {
    escape_path(path.as_os_str().as_bytes())
}
