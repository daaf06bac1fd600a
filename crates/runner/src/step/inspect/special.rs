//! Pipes, sockets and devices that a session left: no commit can have them, and git does not even
//! mention them.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use runner_core::paths;

use super::long_paths::not_ignored;
use super::{SpecialFile, name};
use crate::error::Result;
use crate::files;
use crate::git::{Git, GitStatus};
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// Takes away those that no rule keeps out of commits; how they are called, by path.
pub(super) fn take(
    git: &Git,
    protected: &ProtectedFiles<'_>,
    status: &GitStatus,
    quarantine: &Path,
) -> Result<Vec<SpecialFile>> {
    let root = git.root();
    let submodules: BTreeSet<&Path> = protected.submodules().collect();
    let mut taken = Vec::new();
    for path in not_ignored(git, find(root, &submodules, status))? {
        if !file_image::parents_are_folders(root, &path) {
            continue;
        }
        let Ok(meta) = root.join(&path).symlink_metadata() else {
            continue;
        };
        file_image::move_to(root, &path, quarantine)?;
        let shown = format!("{} ({})", name(&path), files::kind_of(&meta));
        taken.push((path, shown));
    }
    Ok(taken)
}

/// All of them outside ignored folders, submodules and the runner's own folder.
fn find(root: &Path, submodules: &BTreeSet<&Path>, status: &GitStatus) -> Vec<PathBuf> {
    let ignored: HashSet<&Path> = status.ignored.iter().map(PathBuf::as_path).collect();
    let own = [Path::new(".git"), Path::new(paths::ROOT)];
    let enters =
        |path: &Path| !own.contains(&path) && !ignored.contains(path) && !submodules.contains(path);
    file_image::find(root, &|_, _, kind| file_image::is_special(kind), &enters)
}
