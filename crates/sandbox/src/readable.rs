//! What may be read, where some paths may not: Landlock cannot take rights back further down, so
//! they are granted to everything that lies beside the hidden paths.

use std::fs;
use std::path::{Path, PathBuf};

/// The paths below which everything may be read, given real paths that are hidden and those that
/// are shown all the same. `entries` lists a folder: the paths in it that are no links.
pub(crate) fn readable_roots(
    hidden: &[PathBuf],
    shown: &[PathBuf],
    entries: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = shown.to_vec();
    let mut waiting = vec![PathBuf::from("/")];
    while let Some(path) = waiting.pop() {
        if hidden.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        if hidden.iter().any(|it| it.starts_with(&path)) {
            waiting.extend(entries(&path));
        } else {
            roots.push(path);
        }
    }
    roots.sort();
    roots
}

/// What lies in a folder. A link grants nothing: whatever it leads to is granted where it really
/// is, or is hidden there.
pub(crate) fn entries_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<PathBuf> {
        text.split_whitespace().map(PathBuf::from).collect()
    }

    #[test]
    fn siblings_are_granted() {
        let tree = |folder: &Path| {
            paths(match folder.to_str().unwrap() {
                "/" => "/usr /users /proc",
                "/users" => "/users/u /users/v",
                "/users/u" => "/users/u/.ssh /users/u/.config /users/u/code",
                "/users/u/.config" => "/users/u/.config/gh /users/u/.config/git",
                _ => "",
            })
        };
        for (hidden, shown, expected) in [
            ("", "", "/"),
            (
                "/users/u/.ssh",
                "",
                "/proc /users/u/.config /users/u/code /users/v /usr",
            ),
            (
                "/users/u/.ssh /users/u/.config/gh",
                "/users/u/.ssh/known",
                "/proc /users/u/.config/git /users/u/.ssh/known /users/u/code /users/v /usr",
            ),
            ("/users", "", "/proc /usr"),
            ("/users /users/u/.ssh", "", "/proc /usr"),
        ] {
            let found = readable_roots(&paths(hidden), &paths(shown), &tree);
            assert_eq!(found, paths(expected), "{hidden}");
        }
    }

    #[test]
    fn links_grant_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("b")).unwrap();
        assert_eq!(entries_of(dir.path()), [dir.path().join("a")]);
    }
}
