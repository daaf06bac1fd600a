//! What a session must leave alone: runner-owned files, sidecars of passed
//! nodes, protected files.
//!
//! Taken down before the session and proven to be what HEAD has; compared and
//! put back afterwards. Contents are compared, never the index or ignore rules.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::digest::hex;
use runner_core::message;
use runner_core::meta::Guard;
use runner_core::paths::{self, GlobList};
use runner_core::text::escape_path;
use runner_core::tree::Node;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use crate::error::{Code, Error, Result};
use crate::git::{Git, TreeEntry};
use crate::image::{self, Image};

/// What must stay as it is.
#[derive(Debug)]
pub(crate) struct Belongings {
    owned: Vec<(PathBuf, Image)>,
    protected: Vec<(PathBuf, Image)>,
    globs: GlobList,
    passed: HashSet<String>,
    /// assumptions.md and questions.md: they may grow, and nothing else.
    notes: Vec<(PathBuf, Image)>,
    /// Every file of HEAD.
    pub(crate) tracked: Vec<TreeEntry>,
}

/// Where the content is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The work tree, which must agree with HEAD (before a session).
    WorkTree,
    /// The commit (after a crash, when the work tree proves nothing).
    Commit,
}

/// A path that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// From the root of the project.
    pub(crate) path: PathBuf,
    /// Protected rather than owned.
    pub(crate) protected: bool,
}

impl Change {
    /// The path for people.
    pub(crate) fn name(&self) -> String {
        escape_path(self.path.as_os_str().as_bytes())
    }
}

impl Belongings {
    /// Takes everything down.
    pub(crate) fn capture(
        git: &Git,
        head: &str,
        config: &Config,
        tree: Option<&Node<'_>>,
        source: Source,
    ) -> Result<Self> {
        let globs = GlobList::new(&config.guard.protected)
            .map_err(|error| Error::new(Code::Config, format!("[guard] protected: {error}")))?;
        let passed = tree
            .into_iter()
            .flat_map(Node::walk)
            .filter(|node| node.passes)
            .map(|node| node.id.to_string())
            .collect();
        let mut belongings = Belongings {
            owned: Vec::new(),
            protected: Vec::new(),
            globs,
            passed,
            notes: Vec::new(),
            tracked: git.files_of(head)?,
        };
        let reader = Reader { git, source };
        for name in paths::OWNED {
            let path = PathBuf::from(name);
            let entry = belongings.tracked.iter().find(|entry| entry.path == path);
            let image = reader.image(&path, entry)?;
            belongings.owned.push((path, image));
        }
        for name in [paths::ASSUMPTIONS, paths::QUESTIONS] {
            let path = PathBuf::from(name);
            let entry = belongings.tracked.iter().find(|entry| entry.path == path);
            let image = reader.image(&path, entry)?;
            belongings.notes.push((path, image));
        }
        for entry in &belongings.tracked {
            let bytes = entry.path.as_os_str().as_bytes();
            if belongings.is_passed_sidecar(&entry.path) {
                let image = reader.image(&entry.path, Some(entry))?;
                belongings.owned.push((entry.path.clone(), image));
            } else if belongings.globs.is_match(bytes) && !paths::is_state_path(bytes) {
                let image = reader.image(&entry.path, Some(entry))?;
                belongings.protected.push((entry.path.clone(), image));
            }
        }
        Ok(belongings)
    }

    fn is_passed_sidecar(&self, path: &Path) -> bool {
        paths::sidecar_node(path.as_os_str().as_bytes())
            .is_some_and(|node| self.passed.contains(node))
    }

    /// Everything that is not as it was taken down. `untracked`: what git calls
    /// untracked now (for patterns that begin with `**`, which would otherwise
    /// mean walking through every build folder).
    pub(crate) fn changes(&self, root: &Path, untracked: &[PathBuf]) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for (list, protected) in [(&self.owned, false), (&self.protected, true)] {
            for (path, image) in list {
                if Image::of(root, path)? != *image {
                    changes.push(Change {
                        path: path.clone(),
                        protected,
                    });
                }
            }
        }
        for path in self.new_sidecars(root)? {
            changes.push(Change {
                path,
                protected: false,
            });
        }
        for path in self.new_protected(root, untracked)? {
            changes.push(Change {
                path,
                protected: true,
            });
        }
        Ok(changes)
    }

    fn new_sidecars(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let found = image::list(root, Path::new(paths::NODES_DIR))?;
        Ok(found
            .into_iter()
            .filter(|path| self.is_passed_sidecar(path) && !known(&self.owned, path))
            .collect())
    }

    fn new_protected(&self, root: &Path, untracked: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut candidates: Vec<PathBuf> = untracked.to_vec();
        for pattern in self.globs.patterns() {
            let prefix = paths::plain_prefix(pattern);
            if paths::is_literal(pattern) {
                candidates.push(PathBuf::from(pattern));
            } else if !prefix.is_empty() {
                candidates.extend(image::list(root, Path::new(prefix))?);
            } else if !paths::starts_with_double_star(pattern) {
                let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
                candidates.extend(entries.map(|entry| PathBuf::from(entry.file_name())));
            }
        }
        candidates.sort();
        candidates.dedup();
        let mut found = Vec::new();
        for path in candidates {
            let bytes = path.as_os_str().as_bytes();
            if self.globs.is_match(bytes)
                && !paths::is_state_path(bytes)
                && !known(&self.protected, &path)
                && !matches!(Image::of(root, &path)?, Image::Absent | Image::Other)
            {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// The files that only grow, with what they contained.
    pub(crate) fn notes(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.notes.iter().filter_map(|(path, image)| match image {
            Image::File { bytes, .. } => Some((path.as_path(), bytes.as_slice())),
            _ => None,
        })
    }

    /// Puts back one path; what is there now goes to the quarantine.
    pub(crate) fn restore(&self, root: &Path, change: &Change, quarantine: &Path) -> Result<()> {
        let list = if change.protected {
            &self.protected
        } else {
            &self.owned
        };
        let image = list
            .iter()
            .find(|(path, _)| *path == change.path)
            .map_or(&Image::Absent, |(_, image)| image);
        image.restore(root, &change.path, quarantine)?;
        Ok(())
    }

    /// Those of the changes that are not allowed. A protected entry that never
    /// matched anything (not when the run began, nor at any green iteration)
    /// may still be filled.
    pub(crate) fn forbidden(
        &self,
        git: &Git,
        run_id: &str,
        head: &str,
        changes: Vec<Change>,
    ) -> Result<Vec<Change>> {
        if !changes.iter().any(|change| change.protected) {
            return Ok(changes);
        }
        let settled = self.settled_patterns(git, run_id, head)?;
        Ok(changes
            .into_iter()
            .filter(|change| {
                !change.protected
                    || self
                        .globs
                        .matches(change.path.as_os_str().as_bytes())
                        .iter()
                        .any(|pattern| settled[*pattern])
            })
            .collect())
    }

    /// Which protected entries matched something at the start of the run or at
    /// its latest green iteration (protected files cannot vanish in between).
    fn settled_patterns(&self, git: &Git, run_id: &str, head: &str) -> Result<Vec<bool>> {
        let log = git.read(&[
            "log",
            "-z",
            "--first-parent",
            "--format=%H %s",
            "--grep=^chore(loop): ",
            head,
        ])?;
        let log = String::from_utf8_lossy(&log);
        let mut commits = Vec::new();
        for (commit, subject) in log.split('\0').filter_map(|line| line.split_once(' ')) {
            let green = message::parse_subject(subject)
                .is_some_and(|it| it.run_id == run_id && it.guard == Guard::Pass);
            if green && commits.is_empty() {
                commits.push(commit.to_owned());
            }
            if subject == format!("chore(loop): start run {run_id}") {
                commits.push(commit.to_owned());
                break;
            }
        }
        let mut settled = vec![false; self.globs.patterns().len()];
        for commit in commits {
            for entry in git.files_of(&commit)? {
                for pattern in self.globs.matches(entry.path.as_os_str().as_bytes()) {
                    settled[pattern] = true;
                }
            }
        }
        Ok(settled)
    }
}

fn known(list: &[(PathBuf, Image)], path: &Path) -> bool {
    list.iter().any(|(known, _)| known == path)
}

struct Reader<'g> {
    git: &'g Git,
    source: Source,
}

impl Reader<'_> {
    fn image(&self, path: &Path, entry: Option<&TreeEntry>) -> Result<Image> {
        match (self.source, entry) {
            (Source::WorkTree, _) => {
                let image = Image::of(self.git.root(), path)?;
                if let Some(entry) = entry {
                    self.prove(&image, entry)?;
                }
                Ok(image)
            }
            (Source::Commit, None) => Ok(Image::Absent),
            (Source::Commit, Some(entry)) => self.from_commit(entry),
        }
    }

    /// Refuses content that is not HEAD's although git calls it clean.
    fn prove(&self, image: &Image, entry: &TreeEntry) -> Result<()> {
        let same = match image {
            // Not checked out (sparse), or a submodule.
            Image::Absent | Image::Other => true,
            Image::Link(target) => {
                blob_name(target.as_os_str().as_bytes(), entry.oid.len()) == entry.oid
            }
            Image::File { bytes, .. } => {
                blob_name(bytes, entry.oid.len()) == entry.oid
                    || self.filtered_name(&entry.path)? == entry.oid
            }
        };
        if same {
            return Ok(());
        }
        let name = escape_path(entry.path.as_os_str().as_bytes());
        Err(Error::new(
            Code::Dirty,
            format!("{name} differs from HEAD, although git does not show it"),
        )
        .hint(format!(
            "git update-index --no-assume-unchanged --no-skip-worktree {name}, then look at `git diff`"
        )))
    }

    /// The object name after line-ending conversion and the user's filters.
    fn filtered_name(&self, path: &Path) -> Result<String> {
        self.git.line(&[
            Path::new("hash-object").as_os_str(),
            Path::new("--").as_os_str(),
            path.as_os_str(),
        ])
    }

    fn from_commit(&self, entry: &TreeEntry) -> Result<Image> {
        let mode = entry.mode.as_str();
        if mode == "160000" {
            return Ok(Image::Other);
        }
        if mode == "120000" {
            let target = self.git.read(&["cat-file", "blob", &entry.oid])?;
            return Ok(Image::Link(crate::git::to_path(&target)));
        }
        let mut path = std::ffi::OsString::from("--path=");
        path.push(&entry.path);
        let bytes = self.git.read(&[
            "cat-file".as_ref(),
            "--filters".as_ref(),
            path.as_os_str(),
            entry.oid.as_ref(),
        ])?;
        Ok(Image::File {
            bytes,
            executable: mode == "100755",
        })
    }
}

/// The name git gives to a blob, in the hash that names of this length use.
pub(crate) fn blob_name(bytes: &[u8], name_len: usize) -> String {
    let header = format!("blob {}\0", bytes.len());
    if name_len == 64 {
        hex(&Sha256::new_with_prefix(header)
            .chain_update(bytes)
            .finalize())
    } else {
        hex(&Sha1::new_with_prefix(header).chain_update(bytes).finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_names_are_gits() {
        assert_eq!(
            blob_name(b"hello\n", 40),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert_eq!(blob_name(b"", 64).len(), 64);
    }
}
