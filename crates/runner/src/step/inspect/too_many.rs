//! More new files than a commit can sensibly take: git makes an object of each.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::paths;

use super::name;
use crate::error::Result;
use crate::git::GitStatus;
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// So many new files one session may leave.
const MAX_NEW: usize = 100_000;

/// Takes away the folders with most new files until few enough are left; how they are called.
pub(super) fn take(
    root: &Path,
    protected: &ProtectedFiles<'_>,
    status: &GitStatus,
    quarantine: &Path,
) -> Result<Vec<String>> {
    // The usual case costs nothing.
    if status.entries.len() <= MAX_NEW {
        return Ok(Vec::new());
    }
    let is_new = |path: &&Path| {
        !paths::is_local_only(path.as_os_str().as_bytes()) && protected.entry(path).is_none()
    };
    let new = status.entries.iter().map(|entry| entry.path.as_path());
    let new: Vec<&Path> = new.filter(is_new).collect();
    let is_tracked = |folder: &Path| protected.folders.contains(folder);
    let mut taken = Vec::new();
    for (folder, files) in groups_to_take(&new, is_tracked, MAX_NEW) {
        if is_tracked(folder) {
            for file in &files {
                file_image::move_to(root, file, quarantine)?;
            }
        } else {
            file_image::move_to(root, folder, quarantine)?;
        }
        let shown = if folder.as_os_str().is_empty() {
            "the project's folder".to_owned()
        } else {
            name(folder)
        };
        taken.push(format!(
            "{shown} ({} new files: one session may leave {MAX_NEW} in all)",
            files.len()
        ));
    }
    Ok(taken)
}

/// The outermost new folders, or tracked folders with new files in them, the largest first, until
/// at most `max` files are in the others.
fn groups_to_take<'a>(
    new: &[&'a Path],
    is_tracked: impl Fn(&Path) -> bool,
    max: usize,
) -> Vec<(&'a Path, Vec<&'a Path>)> {
    let mut groups: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for path in new {
        let mut folder = path.parent().unwrap_or(Path::new(""));
        while !is_tracked(folder)
            && let Some(above) = folder.parent()
            && !is_tracked(above)
        {
            folder = above;
        }
        groups.entry(folder).or_default().push(path);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
    let mut left = new.len();
    groups
        .into_iter()
        .take_while(|(_, files)| {
            let goes = left > max;
            left = left.saturating_sub(files.len());
            goes
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_go_first() {
        let new = [
            "a/b/1",
            "a/b/2",
            "a/c/3",
            "src/x",
            "src/y",
            "src/new/z",
            "top",
        ];
        let new: Vec<&Path> = new.iter().map(Path::new).collect();
        let is_tracked = |folder: &Path| ["", "src"].iter().any(|it| Path::new(it) == folder);
        for (max, expected) in [
            (7, vec![]),
            (6, vec![("a", 3)]),
            (4, vec![("a", 3)]),
            (3, vec![("a", 3), ("src", 2)]),
            (0, vec![("a", 3), ("src", 2), ("", 1), ("src/new", 1)]),
        ] {
            let found: Vec<(&Path, usize)> = groups_to_take(&new, is_tracked, max)
                .into_iter()
                .map(|(folder, files)| (folder, files.len()))
                .collect();
            let expected: Vec<(&Path, usize)> = expected
                .into_iter()
                .map(|(folder, count)| (Path::new(folder), count))
                .collect();
            assert_eq!(found, expected, "{max}");
        }
    }
}
