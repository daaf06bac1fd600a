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

/// Why a path is in a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedAccess {
    Writable,
    ReadOnly,
    /// Read-only where it would be hidden; elsewhere it changes nothing.
    InSight,
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

/// What a layout is made of: real paths.
#[derive(Debug)]
pub(crate) struct LayoutInput<'a> {
    /// Where the child sees the project.
    pub(crate) project: &'a Path,
    pub(crate) writable: &'a [PathBuf],
    pub(crate) read_only: &'a [PathBuf],
    /// A folder and the place that it is mounted upon: what lies below that place is hidden.
    pub(crate) temp: Option<(&'a Path, &'a Path)>,
    /// What stays in sight below that place.
    pub(crate) in_sight: &'a [PathBuf],
}

/// The mounts, parents first, above a root that is read-only.
///
/// A mount is also what keeps a path in its place: a folder that is one cannot be renamed or
/// removed. So the folders between a read-only file and the writable mount around it become mounts
/// too; else `mv state aside && mkdir state` would get around the file. The same for the project.
/// The folders that lie above a mount in a private temp folder are empty ones that nobody else
/// has: those may be moved.
pub(crate) fn layout(input: &LayoutInput<'_>) -> Vec<BindMount> {
    let LayoutInput { project, .. } = *input;
    // Ordered by components: whatever lies below a path follows it directly. Later ones win.
    let mut wanted: BTreeMap<&Path, WantedAccess> = BTreeMap::new();
    for path in input.in_sight {
        wanted.insert(path, WantedAccess::InSight);
    }
    let place = input.temp.map(|(_, place)| place);
    if let Some(place) = place {
        wanted.insert(place, WantedAccess::Writable);
    }
    for path in input.writable {
        wanted.insert(path, WantedAccess::Writable);
    }
    for path in input.read_only {
        wanted.insert(path, WantedAccess::ReadOnly);
    }
    wanted.insert(project, WantedAccess::Writable);
    // Somebody named the very place: then it is what it is.
    let named = |place: &Path| input.writable.iter().any(|path| path == place);
    let temp = input
        .temp
        .filter(|(_, place)| !named(place) && *place != project);

    let mut mounts: Vec<BindMount> = Vec::new();
    for (path, wanted) in wanted {
        let around = mounts
            .iter()
            .rev()
            .find(|mount| path.starts_with(&mount.path));
        let around_access = around.map_or(SandboxAccess::ReadOnly, |mount| mount.access);
        let is_hidden = around.is_some_and(|mount| temp.is_some_and(|it| it.1 == mount.path));
        let access = match wanted {
            WantedAccess::Writable => SandboxAccess::Writable,
            WantedAccess::ReadOnly | WantedAccess::InSight => SandboxAccess::ReadOnly,
        };
        let changes_nothing = match wanted {
            WantedAccess::InSight => !is_hidden,
            // Nothing is there that could be protected.
            WantedAccess::ReadOnly => is_hidden || access == around_access,
            WantedAccess::Writable => !is_hidden && access == around_access,
        };
        let source = temp.filter(|it| it.1 == path).map(|it| it.0);
        if changes_nothing && path != project && source.is_none() {
            continue;
        }
        if let Some(around) = around
            && around.access == SandboxAccess::Writable
            && !is_hidden
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
        mounts.push(BindMount {
            source: source.unwrap_or(path).to_owned(),
            path: path.to_owned(),
            access,
        });
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

    /// The paths among words; `-` before one makes it read-only.
    fn pick(text: &str, read_only: bool) -> Vec<PathBuf> {
        text.split_whitespace()
            .filter(|word| word.starts_with('-') == read_only)
            .map(|word| PathBuf::from(word.trim_start_matches('-')))
            .collect()
    }

    /// Mounts as such words, with what comes from elsewhere.
    fn shown(mounts: &[BindMount]) -> String {
        let words = mounts.iter().map(|mount| {
            let mark = match mount.access {
                SandboxAccess::ReadOnly => "-",
                SandboxAccess::Writable => "",
            };
            let source = if mount.source == mount.path {
                String::new()
            } else {
                format!("={}", mount.source.display())
            };
            format!("{mark}{}{source}", mount.path.display())
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// `paths` and `expected` are words.
    fn check(project: &str, paths: &str, expected: &str, roots: &str) {
        let mounts = layout(&LayoutInput {
            project: Path::new(project),
            writable: &pick(paths, false),
            read_only: &pick(paths, true),
            temp: None,
            in_sight: &[],
        });
        assert_eq!(shown(&mounts), expected, "{project}: {paths}");
        let found: Vec<_> = writable_roots(&mounts)
            .into_iter()
            .map(|root| root.display().to_string())
            .collect();
        assert_eq!(found.join(" "), roots, "{project}: {paths}");
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

    /// The temp folder `/w` is mounted at `/t`; `expected` tells what comes from elsewhere.
    fn check_temp(project: &str, paths: &str, in_sight: &str, expected: &str) {
        let mounts = layout(&LayoutInput {
            project: Path::new(project),
            writable: &pick(paths, false),
            read_only: &pick(paths, true),
            temp: Some((Path::new("/w"), Path::new("/t"))),
            in_sight: &pick(in_sight, false),
        });
        assert_eq!(shown(&mounts), expected, "{project}: {paths}");
    }

    #[test]
    fn a_private_temp_folder_hides_the_shared_one() {
        check_temp("/p", "", "", "/p /t=/w");
        check_temp("/p", "-/t/x", "", "/p /t=/w");
        check_temp("/p", "", "/t/x /h", "/p /t=/w -/t/x");
        check_temp("/p", "/t/x/y", "/t/x", "/p /t=/w -/t/x /t/x/y");
        check_temp("/p", "/t/x", "", "/p /t=/w /t/x");
        check_temp("/p", "/t", "/t/x", "/p /t");
    }

    #[test]
    fn a_project_in_the_hidden_temp_folder() {
        check_temp("/t/a/p", "", "", "/t=/w /t/a/p");
        check_temp(
            "/t/a/p",
            "-/t/a/p/x/y",
            "",
            "/t=/w /t/a/p /t/a/p/x -/t/a/p/x/y",
        );
        check_temp("/t/a/p", "", "/t/a/p/x /t/a/h", "/t=/w -/t/a/h /t/a/p");
        check_temp("/t/a/p", "-/t/a", "/t/a/p", "/t=/w /t/a/p");
        check_temp(
            "/t/a/p",
            "/t/a/h/.c",
            "/t/a/h",
            "/t=/w -/t/a/h /t/a/h/.c /t/a/p",
        );
        check_temp("/t", "", "", "/t");
    }
}
