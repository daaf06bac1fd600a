//! Work trees that go along when a branch moves: only where nothing of the user's
//! can be lost, and finished by the next command if this one is killed.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::text::escape_path;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, GitStatus, TreeEntry};
use crate::state::runs::full_name;
use crate::step::file_image;

/// The largest file that is compared to see whether it is half written.
const MAX_COMPARED: u64 = 1 << 30;

/// A work tree that goes from one commit to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkTreeMove {
    #[serde(with = "file_image::path_bytes")]
    root: PathBuf,
    /// The branch that is checked out there before.
    from_branch: String,
    from: String,
    /// And after; often the same.
    to_branch: String,
    to: String,
}

impl WorkTreeMove {
    /// A work tree whose branch stays checked out and moves.
    pub(crate) fn follow(git: &Git, branch: &str, from: &str, to: &str) -> Self {
        Self::switch(git, (branch, from), (branch, to))
    }

    /// A work tree that goes to another branch.
    pub(crate) fn switch(git: &Git, from: (&str, &str), to: (&str, &str)) -> Self {
        WorkTreeMove {
            root: git.root().to_owned(),
            from_branch: from.0.to_owned(),
            from: from.1.to_owned(),
            to_branch: to.0.to_owned(),
            to: to.1.to_owned(),
        }
    }

    /// Where it is.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The branches before and after.
    pub(crate) fn branches(&self) -> [&str; 2] {
        [&self.from_branch, &self.to_branch]
    }

    /// The commits before and after.
    pub(crate) fn commits(&self) -> [&str; 2] {
        [&self.from, &self.to]
    }

    /// What of the user's is in the way: names for people, empty if there is
    /// nothing.
    /// `known`: the repository that has both commits, which may be new.
    pub(crate) fn blockers(&self, known: &Git) -> Result<Vec<String>> {
        let git = Git::open(&self.root)?.with_new_objects_of(known);
        let git = git.without_filters()?;
        self.blockers_in(&git, &git.status()?)
    }

    /// The same with the repository as it is seen from there, without filters, and its state of a
    /// moment ago.
    pub(crate) fn blockers_in(&self, git: &Git, status: &GitStatus) -> Result<Vec<String>> {
        let changed = git.changed_between(&self.from, &self.to)?;
        let untracked = |path: &&PathBuf| changed.iter().any(|other| collide(path, other));
        let mut found: Vec<&PathBuf> = Vec::new();
        for entry in &status.entries {
            let is_in_the_way = if entry.untracked {
                untracked(&&entry.path)
            } else {
                // Without its filter a file may look changed that is not, and stays as it is.
                changed.contains(&entry.path) || !git.lacks_filter(&entry.path)?
            };
            if is_in_the_way {
                found.push(&entry.path);
            }
        }
        // Git would overwrite what is ignored without a word.
        found.extend(status.ignored.iter().filter(untracked));
        Ok(found.into_iter().map(|path| shown(path)).collect())
    }

    /// Goes there. Nothing was in the way a moment ago.
    pub(crate) fn go(&self) -> Result<()> {
        let git = Git::open(&self.root)?;
        if self.from_branch == self.to_branch {
            return self.go_in(&git.without_filters()?);
        }
        git.check_out(&[&self.to_branch])
    }

    /// Goes along with its branch, with the repository as it is seen from there, without filters.
    pub(crate) fn go_in(&self, git: &Git) -> Result<()> {
        let go = ["read-tree", "-m", "-u", &self.from, &self.to];
        // A file that was touched and not changed is no reason for git to stop halfway.
        git.write(&go)
            .or_else(|_| {
                git.write(&["update-index", "-q", "--refresh"])?;
                git.write(&go)
            })
            .map(drop)
    }

    /// Removes the locks that a git which was killed on the way left there.
    pub(crate) fn remove_stale_locks(&self, repository: &Git) {
        if let Ok(git) = Git::open(&self.root)
            && git.common_dir() == repository.common_dir()
        {
            git.remove_stale_locks(&self.to_branch);
        }
    }

    /// Goes there after a runner was killed, which may have come half the way.
    pub(crate) fn go_again(&self, repository: &Git) -> Result<()> {
        let Ok(git) = Git::open(&self.root) else {
            // The work tree is gone.
            return Ok(());
        };
        let git = git.without_filters()?;
        if git.common_dir() != repository.common_dir() {
            return Ok(());
        }
        let here = git.head_ref()?;
        let there = here.as_deref() == Some(&full_name(&self.to_branch));
        if !there && here.as_deref() != Some(&full_name(&self.from_branch)) {
            // A person has gone elsewhere since.
            return Ok(());
        }
        let Some(to) = git.commit_of(&full_name(&self.to_branch))? else {
            return Ok(());
        };
        let foreign = self.foreign(&git, &to)?;
        if !foreign.is_empty() {
            return Err(Error::new(
                ErrorCode::Dirty,
                format!(
                    "{} has moved to {}, but its work tree {} was not brought along, and there are \
                     changes in it:\n{}",
                    self.to_branch,
                    to.get(..12).unwrap_or(&to),
                    self.root.display(),
                    list(&foreign)
                ),
            )
            .hint("save those files elsewhere, then run the same command again"));
        }
        if there {
            git.write(&["read-tree", "--reset", "-u", &to]).map(drop)
        } else {
            // Half written files of its own are overwritten; what is ignored and foreign was found.
            git.check_out(&["--force", &self.to_branch])
        }
    }

    /// What in the work tree is neither as before nor as it shall be.
    fn foreign(&self, git: &Git, to: &str) -> Result<Vec<String>> {
        let status = git.status()?;
        let changed = git.changed_between(&self.from, to)?;
        let before = entries_of(git, &self.from)?;
        let after = entries_of(git, to)?;
        let mut found = Vec::new();
        let untracked = status
            .entries
            .iter()
            .filter(|entry| entry.untracked)
            .map(|entry| &entry.path)
            .chain(&status.ignored)
            .filter(|path| changed.iter().any(|other| collide(path, other)));
        let tracked = status
            .entries
            .iter()
            .filter(|entry| !entry.untracked)
            .map(|entry| &entry.path);
        for path in tracked.chain(untracked) {
            let ours =
                changed.contains(path) && is_between(git, path, before.get(path), after.get(path))?;
            if !ours {
                found.push(shown(path));
            }
        }
        Ok(found)
    }
}

/// The files that are in the way, one a line.
pub(crate) fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("  {name}"))
        .collect();
    if names.len() > SHOWN {
        lines.push(format!("  and {} more", names.len() - SHOWN));
    }
    lines.join("\n")
}

/// Whether two paths cannot both be there.
fn collide(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

pub(crate) fn shown(path: &Path) -> String {
    escape_path(path.as_os_str().as_bytes())
}

fn entries_of(git: &Git, commit: &str) -> Result<BTreeMap<PathBuf, TreeEntry>> {
    let files = git.files_of(commit)?;
    Ok(files
        .into_iter()
        .map(|entry| (entry.path.clone(), entry))
        .collect())
}

/// Whether what lies at a path can be what git left on its way from one file to
/// the other: either of them, nothing, or the beginning of the second.
fn is_between(
    git: &Git,
    path: &Path,
    before: Option<&TreeEntry>,
    after: Option<&TreeEntry>,
) -> Result<bool> {
    let full = git.root().join(path);
    let Ok(meta) = full.symlink_metadata() else {
        return Ok(true);
    };
    let bytes = if meta.is_symlink() {
        std::fs::read_link(&full)?
            .into_os_string()
            .as_bytes()
            .to_vec()
    } else if meta.is_file() {
        match files::read_regular(&full, MAX_COMPARED) {
            Ok(bytes) => bytes,
            Err(_) => return Ok(false),
        }
    } else {
        return Ok(false);
    };
    for (entry, whole) in [(before, true), (after, false)] {
        let Some(entry) = entry else { continue };
        let blob = git.read(&["cat-file", "blob", &entry.oid])?;
        let same = if whole {
            blob == bytes
        } else {
            blob.starts_with(&bytes)
        };
        if same || (meta.is_file() && filtered(git, path)?.as_deref() == Some(&*entry.oid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name of the object that git would make of a file, line ends and all.
fn filtered(git: &Git, path: &Path) -> Result<Option<String>> {
    let found = git.ask(&["hash-object".as_ref(), "--".as_ref(), path.as_os_str()])?;
    Ok(found.map(|bytes| String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_paths_collide() {
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "a/b", true),
            ("a/b", "a", true),
            ("a", "ab", false),
            ("a/b", "a/c", false),
        ] {
            assert_eq!(collide(Path::new(one), Path::new(other)), expected);
        }
    }
}
