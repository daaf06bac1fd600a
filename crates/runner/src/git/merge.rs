//! Trees put together without a work tree: one folder exchanged, or two changes
//! merged.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::call::{describe, failed, require_version, spawn};
use super::{Git, GitAccess, GitIdentity, RUNNER_IDENTITY, split_nul, to_path};
use crate::error::Result;
use crate::fault;

/// The oldest git with `merge-tree --write-tree`.
const MERGE_TREE_VERSION: (u32, u32) = (2, 38);

/// What two changes came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GitMergeOutcome {
    /// This tree.
    Clean(String),
    /// Both changed these in ways that do not fit together.
    Conflicts(Vec<PathBuf>),
}

impl Git {
    /// The top of a commit's tree with the entry of this name exchanged for the one
    /// that `other` has, or removed where that has none.
    pub(crate) fn tree_with(
        &self,
        commit: &str,
        name: &str,
        other: Option<&str>,
    ) -> Result<String> {
        let mut listing = Vec::new();
        let mut take = |from: &str, wanted: bool| -> Result<()> {
            let entries = self.read(&["ls-tree", "-z", "--full-tree", from])?;
            for entry in split_nul(&entries) {
                let tab = entry.iter().position(|byte| *byte == b'\t');
                let is_it = tab.is_some_and(|tab| &entry[tab + 1..] == name.as_bytes());
                if is_it == wanted {
                    listing.extend_from_slice(entry);
                    listing.push(0);
                }
            }
            Ok(())
        };
        take(commit, false)?;
        if let Some(other) = other {
            take(other, true)?;
        }
        let tree = self.write_with(&["mktree", "-z"], Some(&listing), &[])?;
        Ok(String::from_utf8_lossy(tree.trim_ascii_end()).into_owned())
    }

    /// The tree of a commit.
    pub(crate) fn tree_of(&self, commit: &str) -> Result<String> {
        self.line(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")])
    }

    /// Merges the changes from `base` to two other trees. Nothing is checked out.
    pub(crate) fn merge_trees(
        &self,
        base: &str,
        ours: &str,
        theirs: &str,
    ) -> Result<GitMergeOutcome> {
        require_version(MERGE_TREE_VERSION, "landing on a branch that has moved")?;
        // Commits, because that is what can be merged; they stay unreachable.
        let (_, base) = self.commit_tree(base, &[], "base\n")?;
        let (_, ours) = self.commit_tree(ours, &[&base], "ours\n")?;
        let (_, theirs) = self.commit_tree(theirs, &[&base], "theirs\n")?;
        self.merge_tree(&ours, &theirs)
    }

    /// Merges two commits by what they have in common. Nothing is checked out.
    pub(crate) fn merge_commits(&self, ours: &str, theirs: &str) -> Result<GitMergeOutcome> {
        require_version(MERGE_TREE_VERSION, "merging results")?;
        self.merge_tree(ours, theirs)
    }

    fn merge_tree(&self, ours: &str, theirs: &str) -> Result<GitMergeOutcome> {
        let mut command = self.without_filters()?.command(GitAccess::Write);
        command.args(["merge-tree", "--write-tree", "-z", "--name-only"]);
        command.args(["--no-messages", ours, theirs]);
        let described = describe(&command);
        fault::point("git")?;
        let output = spawn(&command, None)?;
        fault::point("git-done")?;
        let mut parts = split_nul(&output.stdout);
        let tree = parts.next().map(String::from_utf8_lossy);
        match (output.status.code(), tree) {
            (Some(0), Some(tree)) => Ok(GitMergeOutcome::Clean(tree.trim().to_owned())),
            (Some(1), Some(_)) => {
                let mut paths: Vec<PathBuf> = parts.map(to_path).collect();
                paths.dedup();
                Ok(GitMergeOutcome::Conflicts(paths))
            }
            _ => Err(failed(&described, &output)),
        }
    }

    /// The tree of a commit with some files exchanged, or removed where there are no bytes.
    pub(crate) fn tree_with_files(
        &self,
        commit: &str,
        files: &[(&str, Option<&[u8]>)],
    ) -> Result<String> {
        let temp = tempfile::Builder::new().prefix("runner-tree-").tempdir()?;
        let index = temp.path().join("index");
        let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
        self.write_with(&["read-tree", commit], None, &env)?;
        let mut orders = Vec::new();
        for (path, bytes) in files {
            let (mode, blob) = match bytes {
                Some(bytes) => ("100644", self.write_blob(bytes)?),
                None => ("0", "0".repeat(commit.len())),
            };
            orders.extend(format!("{mode} {blob}\t{path}\0").into_bytes());
        }
        let args = ["update-index", "-z", "--index-info"];
        self.write_with(&args, Some(&orders), &env)?;
        let tree = self.write_with(&["write-tree"], None, &env)?;
        Ok(String::from_utf8_lossy(tree.trim_ascii_end()).into_owned())
    }

    fn write_blob(&self, bytes: &[u8]) -> Result<String> {
        let args = ["hash-object", "-w", "--no-filters", "--stdin"];
        let blob = self.write_with(&args, Some(bytes), &[])?;
        Ok(String::from_utf8_lossy(blob.trim_ascii_end()).into_owned())
    }

    /// A commit of a tree that is the same whenever and by whomever it is made: author and
    /// committer are those of another commit, and the time is given.
    pub(crate) fn commit_tree_like(
        &self,
        like: &str,
        secs: i64,
        tree: &str,
        parents: &[&str],
        message: &str,
    ) -> Result<String> {
        let format = "--format=%an%x00%ae%x00%cn%x00%ce";
        let who = self.read(&["log", "-1", format, like, "--"])?;
        let who = String::from_utf8_lossy(who.trim_ascii_end()).into_owned();
        let date = OsString::from(format!("@{secs} +0000"));
        let mut env: Vec<(&str, OsString)> = RUNNER_IDENTITY
            .iter()
            .zip(who.split('\0').chain(std::iter::repeat("")))
            // Git refuses to name nobody.
            .map(|((name, nobody), who)| (*name, if who.is_empty() { *nobody } else { who }.into()))
            .collect();
        env.push(("GIT_AUTHOR_DATE", date.clone()));
        env.push(("GIT_COMMITTER_DATE", date));
        let env: Vec<(&str, &OsStr)> = env.iter().map(|(name, value)| (*name, &**value)).collect();
        let mut args = vec!["commit-tree", tree];
        args.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        let commit = self.write_with(&args, Some(message.as_bytes()), &env)?;
        Ok(String::from_utf8_lossy(commit.trim_ascii_end()).into_owned())
    }

    /// When a commit was made, in seconds since 1970.
    pub(crate) fn secs_of(&self, commit: &str) -> Result<i64> {
        let secs = self.line(&["log", "-1", "--format=%ct", commit, "--"])?;
        Ok(secs.parse().unwrap_or_default())
    }

    /// A commit of a tree; no branch moves. Says who was named as author.
    pub(crate) fn commit_tree(
        &self,
        tree: &str,
        parents: &[&str],
        message: &str,
    ) -> Result<(GitIdentity, String)> {
        let mut args = vec!["commit-tree", tree];
        args.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        let (identity, commit) =
            self.as_someone(|env| self.write_with(&args, Some(message.as_bytes()), env))?;
        let commit = String::from_utf8_lossy(commit.trim_ascii_end()).into_owned();
        Ok((identity, commit))
    }
}
