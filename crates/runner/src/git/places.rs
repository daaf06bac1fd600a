//! The places in a git folder where git expects files of a certain kind: looked
//! at by plain file I/O before git itself comes along. A pipe in the place of
//! `index` would make it wait for ever, a link in the place of `COMMIT_EDITMSG`
//! would make it write elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::step::file_image;

/// Names that are files.
const FILES: &[&str] = &[
    "HEAD",
    "index",
    "packed-refs",
    "COMMIT_EDITMSG",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "shallow",
];

/// Names that are folders.
const FOLDERS: &[&str] = &["refs", "objects", "logs", "modules", "worktrees"];

/// Names that have a saved copy of their own.
const SAVED: &[&str] = &[
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "hooks",
    "info",
];

/// An operation that is under way: git would make it part of the next commit
/// (another author, another parent), or go on with it later.
const OPERATIONS: &[&str] = &[
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "MERGE_AUTOSTASH",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "SQUASH_MSG",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_TERMS",
    "BISECT_NAMES",
    "BISECT_EXPECTED_REV",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

/// Folders that are looked through to the bottom.
const DEEP: &[&str] = &["refs", "logs", "objects/info"];

/// The run whose branch must be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunBranch<'a> {
    /// Without `refs/heads/`.
    pub(crate) branch: &'a str,
    /// The commit at which the iteration began.
    pub(crate) head: &'a str,
}

/// What was out of the ordinary before a session, and so none of its doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnusualPaths {
    paths: Vec<UnusualPath>,
    /// References are not kept as files.
    reftable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UnusualPath(#[serde(with = "file_image::path_bytes")] PathBuf);

/// What was done to a git folder.
#[derive(Debug, Default)]
pub(super) struct ClearedFolder {
    /// What a session must not have put there.
    pub(super) traps: Vec<PathBuf>,
    /// Operations that were under way.
    pub(super) operations: Vec<PathBuf>,
}

impl UnusualPaths {
    /// Looks at a git folder before a session.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let mut paths: Vec<PathBuf> = traps(folder)?;
        paths.extend(operations(folder));
        Ok(UnusualPaths {
            paths: paths.into_iter().map(UnusualPath).collect(),
            reftable: folder.join("reftable").is_dir(),
        })
    }

    /// Moves what a session left in the way to `quarantine`.
    pub(super) fn clear(&self, folder: &Path, quarantine: &Path) -> io::Result<ClearedFolder> {
        open_closed(folder);
        let known: BTreeSet<&Path> = self.paths.iter().map(|path| path.0.as_path()).collect();
        let mut cleared = ClearedFolder {
            traps: traps(folder)?,
            operations: operations(folder),
        };
        for list in [&mut cleared.traps, &mut cleared.operations] {
            list.retain(|path| !known.contains(path.as_path()));
            for path in list {
                file_image::move_to(folder, path, quarantine)?;
            }
        }
        Ok(cleared)
    }

    /// HEAD and the run's branch must be something that git can read, and the
    /// branch must not be a link to another one. Returns what was not.
    pub(super) fn repair_references(
        &self,
        git_dir: &Path,
        common_dir: &Path,
        run: RunBranch<'_>,
        quarantine: &Path,
    ) -> io::Result<Vec<PathBuf>> {
        let mut repaired = Vec::new();
        if !common_dir.join("objects").is_dir() {
            let what = format!(
                "{} is gone: a session removed the repository's objects, and with them its history",
                common_dir.join("objects").display()
            );
            return Err(io::Error::other(what));
        }
        if self.reftable {
            return Ok(repaired);
        }
        if !common_dir.join("refs").is_dir() {
            fs::create_dir(common_dir.join("refs"))?;
            repaired.push(PathBuf::from("refs"));
        }
        let head = Path::new("HEAD");
        let wanted = format!("ref: refs/heads/{}\n", run.branch);
        if !reads_as(git_dir, head, |text| is_link(text) || is_name(text)) {
            replace(git_dir, head, &wanted, quarantine)?;
            repaired.push(head.to_owned());
        }
        let branch = Path::new("refs/heads").join(run.branch);
        let there = common_dir.join(&branch).symlink_metadata();
        if there.is_ok_and(|meta| !meta.is_dir()) && !reads_as(common_dir, &branch, is_name) {
            replace(common_dir, &branch, &format!("{}\n", run.head), quarantine)?;
            repaired.push(branch);
        }
        Ok(repaired)
    }
}

/// Opens the folders of a git folder if a session has closed them.
fn open_closed(folder: &Path) {
    let closed = ["", "objects", "refs", "refs/heads", "logs", "info", "hooks"]
        .iter()
        .any(|name| {
            fs::symlink_metadata(folder.join(name))
                .is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o700 != 0o700)
                || fs::symlink_metadata(folder.join(name))
                    .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        });
    if closed {
        file_image::walk(folder, Path::new(""), &mut |path, _| {
            // Objects are never written to again.
            if !path.starts_with("objects") {
                let _ = file_image::make_readable(&folder.join(path));
            }
        });
    }
}

/// What lies in a git folder and is neither a plain file nor a plain folder, or
/// one where git expects the other.
fn traps(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (name, kind) in entries(folder, Path::new(""))? {
        let wrong = match name.to_str() {
            Some(text) if FILES.contains(&text) => !kind.is_file(),
            Some(text) if FOLDERS.contains(&text) => !kind.is_dir(),
            Some(text) if SAVED.contains(&text) => false,
            _ => !kind.is_file() && !kind.is_dir(),
        };
        if wrong {
            found.push(name);
        }
    }
    let mut folders: Vec<PathBuf> = DEEP.iter().map(PathBuf::from).collect();
    while let Some(next) = folders.pop() {
        if !fs::symlink_metadata(folder.join(&next)).is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        for (path, kind) in entries(folder, &next)? {
            if kind.is_dir() {
                folders.push(path);
            } else if !kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The files of operations that are under way.
fn operations(folder: &Path) -> Vec<PathBuf> {
    let there = |name: &&&str| folder.join(name).symlink_metadata().is_ok();
    OPERATIONS.iter().filter(there).map(PathBuf::from).collect()
}

/// What is in `root/folder`, as paths from `root`.
fn entries(root: &Path, folder: &Path) -> io::Result<Vec<(PathBuf, fs::FileType)>> {
    let full = root.join(folder);
    let list = match fs::read_dir(&full) {
        Ok(list) => list,
        Err(error) if files::is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(files::at(&full, error)),
    };
    list.map(|entry| {
        let entry = entry?;
        Ok((folder.join(entry.file_name()), entry.file_type()?))
    })
    .collect()
}

/// Whether a file is there and its text is of a kind.
fn reads_as(root: &Path, path: &Path, kind: impl Fn(&[u8]) -> bool) -> bool {
    let path = root.join(path);
    if path.is_symlink() {
        // Git's own old way to write HEAD; it was there before the session.
        return fs::read_link(path).is_ok_and(|to| to.as_os_str().as_bytes().starts_with(b"refs/"));
    }
    files::read_regular(&path, 4096).is_ok_and(|bytes| kind(bytes.trim_ascii_end()))
}

fn is_link(text: &[u8]) -> bool {
    text.strip_prefix(b"ref:")
        .is_some_and(|name| name.trim_ascii().starts_with(b"refs/"))
}

fn is_name(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

fn replace(root: &Path, path: &Path, text: &str, quarantine: &Path) -> io::Result<()> {
    let full = root.join(path);
    if full.symlink_metadata().is_ok() {
        file_image::move_to(root, path, quarantine)?;
    }
    files::write_whole(&full, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_can_read() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        for (text, link, is) in [
            ("ref: refs/heads/x", true, false),
            ("ref:refs/heads/x", true, false),
            ("ref: ../../etc", false, false),
            ("", false, false),
            (name, false, true),
            (&name[1..], false, false),
        ] {
            assert_eq!(is_link(text.as_bytes()), link, "{text}");
            assert_eq!(is_name(text.as_bytes()), is, "{text}");
        }
    }
}
