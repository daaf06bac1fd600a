//! Which paths are writable, as the shortest list of mounts in the order in which they are made.
//!
//! The rule: the most specific entry counts, and of two entries for the same path the read-only one.
//! Everything here is about paths as such; whether they exist was asked before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is allowed at a path and below it, down to the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxAccess {
    ReadOnly,
    Writable,
}

/// A path and what is mounted upon it, most often itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BindMount {
    pub(crate) source: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) access: SandboxAccess,
}

impl BindMount {
    pub(crate) fn upon_itself(path: PathBuf, access: SandboxAccess) -> Self {
        BindMount {
            source: path.clone(),
            path,
            access,
        }
    }
}

/// The mounts, parents first, above a root that is read-only.
///
/// A mount is also what keeps a path in its place: a folder that is one cannot be renamed or
/// removed. So the folders between a read-only file and the writable mount around it become mounts
/// too; else `mv state aside && mkdir state` would get around the file. The same for the project.
pub(crate) fn layout(
    project: &Path,
    writable: &[PathBuf],
    read_only: &[PathBuf],
) -> Vec<BindMount> {
    // Ordered by components: whatever lies below a path follows it directly.
    let mut wanted: BTreeMap<&Path, SandboxAccess> = BTreeMap::new();
    for path in writable {
        wanted.insert(path, SandboxAccess::Writable);
    }
    for path in read_only {
        wanted.insert(path, SandboxAccess::ReadOnly);
    }
    wanted.insert(project, SandboxAccess::Writable);

    let mut mounts: Vec<BindMount> = Vec::new();
    for (path, access) in wanted {
        let around = mounts
            .iter()
            .rev()
            .find(|mount| path.starts_with(&mount.path));
        let around_access = around.map_or(SandboxAccess::ReadOnly, |mount| mount.access);
        if access == around_access && path != project {
            continue;
        }
        if let Some(around) = around
            && around.access == SandboxAccess::Writable
        {
            let depth = around.path.components().count();
            let mut pins: Vec<PathBuf> = path
                .ancestors()
                .skip(1)
                .take_while(|above| above.components().count() > depth)
                .map(Path::to_owned)
                .collect();
            pins.reverse();
            let pin = |path| BindMount::upon_itself(path, SandboxAccess::Writable);
            mounts.extend(pins.into_iter().map(pin));
        }
        mounts.push(BindMount::upon_itself(path.to_owned(), access));
    }
    mounts
}

/// The writable paths of a mechanism that knows no exceptions below them.
pub(crate) fn writable_roots(mounts: &[BindMount]) -> Vec<&Path> {
    let mut roots: Vec<&Path> = Vec::new();
    for mount in mounts {
        if mount.access == SandboxAccess::Writable
            && !roots.iter().any(|root| mount.source.starts_with(root))
        {
            roots.push(&mount.source);
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `paths` and `expected` are words: `-` before a path makes it read-only.
    fn check(project: &str, paths: &str, expected: &str, roots: &str) {
        let pick = |read_only: bool| -> Vec<PathBuf> {
            paths
                .split_whitespace()
                .filter(|word| word.starts_with('-') == read_only)
                .map(|word| PathBuf::from(word.trim_start_matches('-')))
                .collect()
        };
        let mounts = layout(Path::new(project), &pick(false), &pick(true));
        let shown: Vec<String> = mounts
            .iter()
            .map(|mount| {
                let mark = if mount.access == SandboxAccess::ReadOnly {
                    "-"
                } else {
                    ""
                };
                format!("{mark}{}", mount.path.display())
            })
            .collect();
        assert_eq!(shown.join(" "), expected, "{project}: {paths}");
        let shown: Vec<_> = writable_roots(&mounts)
            .into_iter()
            .map(|root| root.display().to_string())
            .collect();
        assert_eq!(shown.join(" "), roots, "{project}: {paths}");
        assert!(mounts.is_sorted_by_key(|mount| &mount.path), "{paths}");
    }

    #[test]
    fn the_most_specific_entry_counts() {
        check("/p", "", "/p", "/p");
        check("/p", "/t", "/p /t", "/p /t");
        check("/p", "/p/x", "/p", "/p");
        check("/p", "-/p/x", "/p -/p/x", "/p");
        check("/p", "-/p/x /p/x/out", "/p -/p/x /p/x/out", "/p");
        check(
            "/p",
            "-/p/x /p/x/out -/p/x/out/f",
            "/p -/p/x /p/x/out -/p/x/out/f",
            "/p",
        );
        check("/p", "-/p/x -/p/x/y", "/p -/p/x", "/p");
        check("/p", "-/etc/passwd", "/p", "/p");
        check("/p", "/p/x -/p/x", "/p -/p/x", "/p");
        check("/p", "/c /c /c/d", "/c /p", "/c /p");
        check("/p", "/", "/ /p", "/");
    }

    #[test]
    fn the_project_is_writable_whatever_lies_around_it() {
        check("/t/p", "/t", "/t /t/p", "/t");
        check("/t/a/p", "/t", "/t /t/a /t/a/p", "/t");
        check("/h/p", "-/h", "/h/p", "/h/p");
        check("/p", "-/p", "/p", "/p");
        check("/t/p", "/t -/t/p", "/t /t/p", "/t");
        check("/h", "/h/.cache /h/.npm", "/h", "/h");
    }

    #[test]
    fn folders_above_a_read_only_file_cannot_be_moved() {
        check("/p", "-/p/a/b/c", "/p /p/a /p/a/b -/p/a/b/c", "/p");
        check(
            "/p",
            "-/p/a/b/c -/p/a/b/d",
            "/p /p/a /p/a/b -/p/a/b/c -/p/a/b/d",
            "/p",
        );
        check(
            "/p",
            "-/p/a/b -/p/a-x -/p/a/c",
            "/p /p/a -/p/a/b -/p/a/c -/p/a-x",
            "/p",
        );
        check(
            "/p",
            "-/p/a /p/a/s -/p/a/s/x/f",
            "/p -/p/a /p/a/s /p/a/s/x -/p/a/s/x/f",
            "/p",
        );
        check("/p", "/p/a -/p/a/f", "/p /p/a -/p/a/f", "/p");
    }

    #[test]
    fn a_linked_work_tree() {
        check(
            "/w/p",
            "/m/.git /m/.git/worktrees/p -/m/.git/config -/m/.git/hooks -/m/.git/worktrees/p/commondir -/w/p/.git",
            "/m/.git -/m/.git/config -/m/.git/hooks /m/.git/worktrees /m/.git/worktrees/p -/m/.git/worktrees/p/commondir /w/p -/w/p/.git",
            "/m/.git /w/p",
        );
    }
}
