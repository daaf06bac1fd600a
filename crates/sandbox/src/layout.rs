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
    /// Nothing is to be seen there: a folder is empty, a file has no content.
    Hidden,
}

/// Why a path is in a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedAccess {
    Writable,
    ReadOnly,
    /// Read-only where it would be hidden; elsewhere it changes nothing.
    InSight,
    Hidden,
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
    /// Folders and the places that they are mounted upon: what lies below such a place is hidden.
    pub(crate) private: &'a [(PathBuf, PathBuf)],
    /// What stays in sight below such a place, and where something around it is hidden.
    pub(crate) in_sight: &'a [PathBuf],
    /// What is not to be seen.
    pub(crate) hidden: &'a [PathBuf],
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
    for path in input.read_only {
        wanted.insert(path, WantedAccess::ReadOnly);
    }
    // What is hidden cannot be written either.
    for path in input.hidden {
        wanted.insert(path, WantedAccess::Hidden);
    }
    for path in input.in_sight {
        let entry = wanted.entry(path).or_insert(WantedAccess::InSight);
        if *entry == WantedAccess::Hidden {
            *entry = WantedAccess::InSight;
        }
    }
    for (_, place) in input.private {
        wanted.insert(place, WantedAccess::Writable);
    }
    for path in input.writable {
        let entry = wanted.entry(path).or_insert(WantedAccess::Writable);
        if *entry != WantedAccess::ReadOnly {
            *entry = WantedAccess::Writable;
        }
    }
    wanted.insert(project, WantedAccess::Writable);
    // Somebody named the very place: then it is what it is.
    let named = |place: &Path| input.writable.iter().any(|path| path == place);
    let private = |path: &Path| {
        let found = input.private.iter().find(|(_, place)| place == path);
        found.filter(|(_, place)| !named(place) && place != project)
    };

    let mut mounts: Vec<BindMount> = Vec::new();
    for (path, wanted) in wanted {
        let around = mounts
            .iter()
            .rev()
            .find(|mount| path.starts_with(&mount.path));
        let around_access = around.map_or(SandboxAccess::ReadOnly, |mount| mount.access);
        let is_hidden = around_access == SandboxAccess::Hidden
            || around.is_some_and(|mount| private(&mount.path).is_some());
        let access = match wanted {
            WantedAccess::Writable => SandboxAccess::Writable,
            WantedAccess::ReadOnly | WantedAccess::InSight => SandboxAccess::ReadOnly,
            WantedAccess::Hidden => SandboxAccess::Hidden,
        };
        let changes_nothing = match wanted {
            WantedAccess::InSight => !is_hidden,
            // Nothing is there that could be protected.
            WantedAccess::ReadOnly => is_hidden || access == around_access,
            WantedAccess::Hidden => is_hidden,
            WantedAccess::Writable => !is_hidden && access == around_access,
        };
        let source = private(path).map(|it| it.0.as_path());
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

/// The folders and files behind everything that is writable.
pub(crate) fn writable_folders(mounts: &[BindMount]) -> Vec<&Path> {
    let writable = mounts.iter();
    let writable = writable.filter(|mount| mount.access == SandboxAccess::Writable);
    writable.map(|mount| mount.source.as_path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readable;

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
                SandboxAccess::Hidden => "!",
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
            private: &[],
            in_sight: &[],
            hidden: &[],
        });
        assert_eq!(shown(&mounts), expected, "{project}: {paths}");
        let folders = writable_folders(&mounts);
        let found = readable::writable_roots(&folders, Path::new(project), &[], &|_| Vec::new());
        let found: Vec<_> = found
            .iter()
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
            private: &[("/w".into(), "/t".into())],
            in_sight: &pick(in_sight, false),
            hidden: &[],
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

    fn check_hidden(paths: &str, hidden: &str, in_sight: &str, expected: &str) {
        let mounts = layout(&LayoutInput {
            project: Path::new("/h/p"),
            writable: &pick(paths, false),
            read_only: &pick(paths, true),
            private: &[("/w".into(), "/t".into())],
            in_sight: &pick(in_sight, false),
            hidden: &pick(hidden, false),
        });
        assert_eq!(shown(&mounts), expected, "{paths}: {hidden}");
    }

    #[test]
    fn what_is_hidden_but_for_what_is_named() {
        check_hidden("", "/h/.ssh", "", "!/h/.ssh /h/p /t=/w");
        check_hidden("", "/h/.ssh /h/.ssh/id", "", "!/h/.ssh /h/p /t=/w");
        check_hidden(
            "",
            "/h/.ssh",
            "/h/.ssh/known",
            "!/h/.ssh -/h/.ssh/known /h/p /t=/w",
        );
        check_hidden("", "/h/.ssh", "/h/.ssh", "/h/p /t=/w");
        check_hidden("/h/.ssh", "/h/.ssh", "", "/h/.ssh /h/p /t=/w");
        // The runner's own folders: closed and hidden, but for the caches of the child.
        check_hidden(
            "/s/r/c -/s/r -/s/r/id",
            "/s/r",
            "",
            "/h/p !/s/r /s/r/c /t=/w",
        );
        check_hidden("/s/c -/s/c", "", "", "/h/p /t=/w");
        // Inside a folder that can be written, and in the hidden temp folder.
        check_hidden(
            "/h/.codex",
            "/h/.codex/auth",
            "",
            "/h/.codex !/h/.codex/auth /h/p /t=/w",
        );
        check_hidden("", "/t/.X11-unix", "", "/h/p /t=/w");
        // The project is seen whatever is hidden around it.
        check_hidden("", "/h", "", "!/h /h/p /t=/w");
    }

    #[test]
    fn a_private_home_folder_beside_a_private_temp_folder() {
        let mounts = layout(&LayoutInput {
            project: Path::new("/h/code/p"),
            writable: &pick("/h/.codex", false),
            read_only: &[],
            private: &[("/w/t".into(), "/t".into()), ("/w/h".into(), "/h".into())],
            in_sight: &pick("/h/code /h/.config /h/.codex", false),
            hidden: &pick("/h/.ssh /h/.config/gh", false),
        });
        assert_eq!(
            shown(&mounts),
            "/h=/w/h /h/.codex -/h/.config !/h/.config/gh -/h/code /h/code/p /t=/w/t"
        );
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
