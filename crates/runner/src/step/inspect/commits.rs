//! New files that must not go into a commit, in the work tree and in commits
//! that were made meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths::{self, DenyList};

use super::name;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{self, Git};
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// What `[commit]` says.
pub(super) struct CommitRules<'a, 't> {
    list: DenyList,
    max_bytes: u64,
    protected: &'a ProtectedFiles<'t>,
}

impl<'a, 't> CommitRules<'a, 't> {
    pub(super) fn new(config: &Config, protected: &'a ProtectedFiles<'t>) -> Result<Self> {
        let list = DenyList::new(&config.commit.deny)
            .map_err(|error| Error::new(ErrorCode::Config, format!("[commit] deny: {error}")))?;
        Ok(CommitRules {
            list,
            max_bytes: config.commit.max_file_bytes,
            protected,
        })
    }

    /// Whether the path may become part of a commit at all.
    fn is_open(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let state = [paths::TREE, paths::ASSUMPTIONS, paths::QUESTIONS];
        let owned = paths::is_owned(bytes) || state.iter().any(|name| name.as_bytes() == bytes);
        !owned && !paths::is_local_only(bytes) && self.protected.entry(path).is_none()
    }

    /// How to call a file that must not be committed.
    fn denied(&self, path: &Path, size: Option<u64>) -> Option<String> {
        if self.list.denied_by(path.as_os_str().as_bytes()).is_some() {
            return Some(name(path));
        }
        let size = size.filter(|size| *size > self.max_bytes)?;
        Some(format!("{} ({size} bytes)", name(path)))
    }

    /// Moves those of the files to `quarantine`; how they are called.
    pub(super) fn take(
        &self,
        root: &Path,
        files: &BTreeSet<PathBuf>,
        quarantine: &Path,
    ) -> Result<Vec<String>> {
        let mut taken = Vec::new();
        for path in files.iter().filter(|path| self.is_open(path)) {
            let Ok(meta) = root.join(path).symlink_metadata() else {
                continue;
            };
            if meta.is_dir() || !file_image::parents_are_folders(root, path) {
                continue;
            }
            let size = meta.is_file().then_some(meta.len());
            if let Some(name) = self.denied(path, size) {
                file_image::move_to(root, path, quarantine)?;
                taken.push(name);
            }
        }
        Ok(taken)
    }

    /// Those that were in a commit of the range, be it only for a moment: copies
    /// go to `quarantine`.
    pub(super) fn in_commits(
        &self,
        git: &Git,
        from: &str,
        to: &str,
        quarantine: &Path,
    ) -> Result<Vec<String>> {
        let range = format!("{from}..{to}");
        let log = git.read(&[
            "log",
            "-m",
            "--raw",
            "-z",
            "--no-renames",
            "--no-abbrev",
            "--no-ext-diff",
            "--no-textconv",
            "--diff-filter=AMT",
            "--format=",
            &range,
            "--",
        ])?;
        let mut blobs: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
        for (mode, blob, path) in raw_changes(&log) {
            if mode != git::SUBMODULE && self.is_open(&path) {
                blobs.entry(path).or_default().insert(blob);
            }
        }
        if blobs.is_empty() {
            return Ok(Vec::new());
        }
        let sizes = sizes(git, blobs.values().flatten())?;
        let mut found = Vec::new();
        for (path, blobs) in &blobs {
            for blob in blobs {
                if let Some(name) = self.denied(path, sizes.get(blob).copied()) {
                    keep_copy(git, blob, path, quarantine)?;
                    found.push(name);
                }
            }
        }
        Ok(found)
    }
}

/// The new side of each change: mode, object, path.
fn raw_changes(log: &[u8]) -> impl Iterator<Item = (String, String, PathBuf)> {
    // ":oldmode newmode oldblob newblob A\0path\0"
    let mut records = log.split(|byte| *byte == 0);
    std::iter::from_fn(move || {
        loop {
            let record = records.next()?;
            let Some(head) = record.trim_ascii_start().strip_prefix(b":") else {
                continue;
            };
            let head = String::from_utf8_lossy(head).into_owned();
            let path = git::to_path(records.next()?);
            let mut words = head.split(' ').skip(1);
            let (mode, blob) = (words.next()?.to_owned(), words.nth(1)?.to_owned());
            return Some((mode, blob, path));
        }
    })
}

fn sizes<'b>(git: &Git, blobs: impl Iterator<Item = &'b String>) -> Result<BTreeMap<String, u64>> {
    let input: String = blobs.flat_map(|blob| [blob.as_str(), "\n"]).collect();
    let args = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
    let output = git.ask_with(&args, input.as_bytes())?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&output)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(blob, size)| Some((blob.to_owned(), size.parse().ok()?)))
        .collect())
}

/// The commits go; what was in them stays.
fn keep_copy(git: &Git, blob: &str, path: &Path, quarantine: &Path) -> Result<()> {
    let target = quarantine.join("commits").join(blob).join(path);
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    let bytes = git.read(&["cat-file", "blob", blob])?;
    if let Some(folder) = target.parent() {
        files::make_folder(folder)?;
    }
    Ok(files::write_whole(&target, &bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_records() {
        let log = b":000000 100644 000 abc A\0a b\nc\0:100644 160000 abc def M\0sub\0";
        let found: Vec<_> = raw_changes(log).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], ("100644".into(), "abc".into(), "a b\nc".into()));
        assert_eq!(found[1], ("160000".into(), "def".into(), "sub".into()));
    }
}
