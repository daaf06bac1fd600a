//! Things that would make git wait for ever or give up: pipes in the place of
//! files, folders that nobody may look into.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::paths;

use crate::git::GitStatus;
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// Files that git reads wherever it finds them.
const RULES: [&str; 4] = [".gitignore", ".gitattributes", ".gitmodules", ".mailmap"];

/// `.runner/` and its folders must be folders, whatever a session made of them.
pub(super) fn make_state_folders(root: &Path, quarantine: &Path) -> io::Result<()> {
    for folder in [".runner/state", paths::CONTEXT_DIR, paths::ITERATIONS_DIR] {
        file_image::make_parents(root, &Path::new(folder).join("x"), quarantine)?;
    }
    Ok(())
}

/// Takes away pipes in the place of files that git reads, and opens closed
/// folders, wherever there are files of HEAD. Returns what was taken away.
pub(super) fn remove(
    root: &Path,
    protected: &ProtectedFiles<'_>,
    quarantine: &Path,
) -> io::Result<Vec<PathBuf>> {
    let mut taken = Vec::new();
    // Sorted: a folder is opened before those in it are looked at.
    for folder in &protected.folders {
        let full = root.join(folder);
        let closed = full
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o700 != 0o700);
        if closed {
            // Whether it helped shows below, or when git comes along.
            let _ = file_image::make_readable(&full);
        }
        for file in RULES {
            let path = folder.join(file);
            if is_special(&root.join(&path)) && file_image::parents_are_folders(root, &path) {
                file_image::move_to(root, &path, quarantine)?;
                taken.push(path);
            }
        }
    }
    Ok(taken)
}

/// The same in the whole work tree: git was stuck or could not look everywhere.
pub(super) fn clear_the_way(root: &Path, quarantine: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    file_image::walk(root, Path::new(""), &mut |path, _| {
        let local = paths::is_local_only(path.as_os_str().as_bytes());
        let rules = RULES.iter().any(|rules| path.ends_with(rules));
        if rules && !local && is_special(&root.join(&path)) {
            found.push(path);
        }
    });
    for path in &found {
        file_image::move_to(root, path, quarantine)?;
    }
    Ok(found)
}

/// What is about to be added must be something that can be: a pipe in the place
/// of a file of the runner's goes away, a file that its owner may not read is opened.
pub(super) fn make_addable(root: &Path, status: &GitStatus, quarantine: &Path) -> io::Result<()> {
    let local = |path: &Path| paths::is_local_only(path.as_os_str().as_bytes());
    for entry in status.entries.iter().filter(|entry| !local(&entry.path)) {
        let full = root.join(&entry.path);
        let Ok(meta) = full.symlink_metadata() else {
            continue;
        };
        if is_special(&full) {
            if file_image::parents_are_folders(root, &entry.path) {
                file_image::move_to(root, &entry.path, quarantine)?;
            }
        } else if meta.is_file() && meta.mode() & 0o400 == 0 {
            // Git says it if it does not help.
            let _ = file_image::make_readable(&full);
        }
    }
    Ok(())
}

/// A pipe, a socket, a device.
fn is_special(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|meta| file_image::is_special(meta.file_type()))
}
