//! Files that lie so deep that git, or the runner, cannot use their paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::name;
use crate::error::Result;
use crate::git::{Git, GitStatus, join_nul, split_nul, to_path};
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// The longest path that a program can use, in bytes.
const PATH_MAX: usize = 4096;

/// Up to this length a folder can still be moved, and be named to people.
const MOVED_MAX: usize = 400;

/// Takes away folders that hold paths that are too long; how they are called. `was_blind`: git
/// could not look into every folder.
pub(super) fn take(
    git: &Git,
    protected: &ProtectedFiles<'_>,
    status: &GitStatus,
    was_blind: bool,
    quarantine: &Path,
) -> Result<Vec<String>> {
    let root = git.root();
    let is_long = |path: &Path| root.as_os_str().len() + 1 + path.as_os_str().len() >= PATH_MAX;
    let seen = status.entries.iter().map(|entry| &entry.path);
    let mut found: BTreeSet<PathBuf> = seen.filter(|path| is_long(path)).cloned().collect();
    if was_blind {
        found.extend(not_ignored(git, file_image::folders_too_deep(root))?);
    }
    let is_tracked = |folder: &Path| protected.folders.contains(folder);
    let folders: BTreeSet<&Path> = found
        .iter()
        .filter_map(|path| folder_to_move(path, is_tracked))
        .collect();
    let mut taken = Vec::new();
    for folder in folders {
        // Where it is too deep even for the quarantine, nobody could look at it there.
        if file_image::move_to(root, folder, quarantine).is_err() {
            file_image::remove_closed(&root.join(folder))?;
        }
        taken.push(format!(
            "{} (it holds paths that are too long)",
            name(folder)
        ));
    }
    Ok(taken)
}

/// Those of the paths that no rule keeps out of commits.
pub(super) fn not_ignored(git: &Git, mut paths: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let input = join_nul(&paths);
    if input.is_empty() {
        return Ok(paths);
    }
    let args = ["check-ignore", "-z", "--stdin"];
    let answer = git.ask_with(&args, &input)?.unwrap_or_default();
    let ignored: BTreeSet<PathBuf> = split_nul(&answer).map(to_path).collect();
    paths.retain(|path| !ignored.contains(path));
    Ok(paths)
}

/// The innermost folder above a path that is short enough to be moved and holds no file of the
/// commit; the outermost where none is so short.
fn folder_to_move(path: &Path, is_tracked: impl Fn(&Path) -> bool) -> Option<&Path> {
    let mut last = None;
    for above in path.ancestors().take_while(|above| !is_tracked(above)) {
        last = Some(above);
        if above.as_os_str().len() <= MOVED_MAX {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_folder_is_moved() {
        let deep = "d/".repeat(3000);
        let short = format!("a/{}d", "d/".repeat(198));
        let wide = "w".repeat(255);
        let nested = format!("{wide}/{wide}/{wide}");
        let two = format!("{wide}/{wide}");
        for (path, tracked, expected) in [
            (format!("a/{deep}x"), vec!["", "a"], Some(short.clone())),
            (nested.clone(), vec![""], Some(wide.clone())),
            (nested.clone(), vec!["", wide.as_str()], Some(two.clone())),
            (
                nested.clone(),
                vec!["", wide.as_str(), two.as_str(), nested.as_str()],
                None,
            ),
        ] {
            let is_tracked = |folder: &Path| tracked.iter().any(|it| Path::new(it) == folder);
            let found = folder_to_move(Path::new(&path), is_tracked);
            assert_eq!(found, expected.as_deref().map(Path::new));
        }
    }
}
