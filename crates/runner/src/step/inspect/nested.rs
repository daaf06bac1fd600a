//! Repositories that were made inside the work tree.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::paths;

use super::name;
use crate::error::Result;
use crate::git::{Git, GitStatus};
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// A nested repository's `.git` is taken away; its files stay. Returns where
/// there were any.
pub(super) fn take(
    root: &Path,
    protected: &ProtectedFiles<'_>,
    status: &mut GitStatus,
    git: &Git,
    quarantine: &Path,
) -> Result<Vec<String>> {
    let mut nested = Vec::new();
    let submodules: BTreeSet<&Path> = protected.submodules().collect();
    let mut folders = protected.folders.clone();
    loop {
        // On another branch nothing may ignore the logs, where those repositories
        // are that were taken away before.
        let local = |path: &Path| paths::is_local_only(path.as_os_str().as_bytes());
        for entry in status.entries.iter().filter(|entry| !local(&entry.path)) {
            // Folders too: a repository that git shows as one path, or an entry
            // for a submodule that nobody has seen before.
            folders.extend(entry.path.ancestors().map(Path::to_owned));
        }
        let mut found = false;
        for folder in &folders {
            let dot_git = folder.join(".git");
            if folder.as_os_str().is_empty()
                || folder.ancestors().any(|above| submodules.contains(above))
                || root.join(&dot_git).symlink_metadata().is_err()
                || !file_image::parents_are_folders(root, &dot_git)
            {
                continue;
            }
            file_image::move_to(root, &dot_git, quarantine)?;
            nested.push(name(folder));
            found = true;
        }
        if !found {
            return Ok(nested);
        }
        // Its files are visible now, and so may be repositories inside it.
        *status = git.status()?;
    }
}
