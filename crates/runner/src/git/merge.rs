//! Trees put together without a work tree: one folder exchanged, or two changes
//! merged.

use std::path::PathBuf;

use super::call::{describe, failed, require_version, spawn};
use super::{Access, Git, Identity, split_nul, to_path};
use crate::error::Result;
use crate::fault;

/// The oldest git with `merge-tree --write-tree`.
const MERGE_TREE_VERSION: (u32, u32) = (2, 38);

/// What two changes came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
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
    pub(crate) fn merge_trees(&self, base: &str, ours: &str, theirs: &str) -> Result<Merge> {
        require_version(MERGE_TREE_VERSION, "landing on a branch that has moved")?;
        // Commits, because that is what can be merged; they stay unreachable.
        let (_, base) = self.commit_tree(base, &[], "base\n")?;
        let (_, ours) = self.commit_tree(ours, &[&base], "ours\n")?;
        let (_, theirs) = self.commit_tree(theirs, &[&base], "theirs\n")?;
        let mut command = self.command(Access::Write);
        command.args(["merge-tree", "--write-tree", "-z", "--name-only"]);
        command.args(["--no-messages", &ours, &theirs]);
        let described = describe(&command);
        fault::point("git")?;
        let output = spawn(&command, None)?;
        fault::point("git-done")?;
        let mut parts = split_nul(&output.stdout);
        let tree = parts.next().map(String::from_utf8_lossy);
        match (output.status.code(), tree) {
            (Some(0), Some(tree)) => Ok(Merge::Clean(tree.trim().to_owned())),
            (Some(1), Some(_)) => {
                let mut paths: Vec<PathBuf> = parts.map(to_path).collect();
                paths.dedup();
                Ok(Merge::Conflicts(paths))
            }
            _ => Err(failed(&described, &output)),
        }
    }

    /// A commit of a tree; no branch moves. Says who was named as author.
    pub(crate) fn commit_tree(
        &self,
        tree: &str,
        parents: &[&str],
        message: &str,
    ) -> Result<(Identity, String)> {
        let mut args = vec!["commit-tree", tree];
        args.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        let (identity, commit) =
            self.as_someone(|env| self.write_with(&args, Some(message.as_bytes()), env))?;
        let commit = String::from_utf8_lossy(commit.trim_ascii_end()).into_owned();
        Ok((identity, commit))
    }
}
