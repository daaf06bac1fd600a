//! What may be read, where some paths may not: Landlock cannot take rights back further down, so
//! they are granted to everything that lies beside the hidden paths.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The paths below which everything may be read, given real paths that are hidden and those that
/// are shown all the same. `entries` lists a folder: the paths in it that are no links.
pub(crate) fn readable_roots(
    hidden: &[PathBuf],
    shown: &[PathBuf],
    entries: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let mut roots = shown.to_vec();
    roots.extend(roots_below(Path::new("/"), hidden, entries));
    roots.sort();
    roots
}

/// What of these folders a child may write to: a folder with something hidden in it is granted as
/// what lies beside that, because a right to the whole would open it. The project stays whole, so
/// that files can be made in it.
pub(crate) fn writable_roots(
    folders: &[&Path],
    project: &Path,
    hidden: &[PathBuf],
    entries: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let inside = hidden.iter().filter(|it| it.starts_with(folder));
        let inside: Vec<PathBuf> = inside.filter(|it| it != folder).cloned().collect();
        if inside.is_empty() || *folder == project {
            roots.push((*folder).to_owned());
        } else {
            roots.extend(roots_below(folder, &inside, entries));
        }
    }
    roots.sort();
    roots.dedup();
    let all = roots.clone();
    roots.retain(|root| !all.iter().any(|it| it != root && root.starts_with(it)));
    roots
}

/// Whether nothing but sockets lies in a hidden place: no right to read files opens it, and
/// connections are looked at one by one.
pub(crate) fn has_sockets_alone(place: &Path) -> bool {
    let is_socket = |path: &Path| {
        let meta = path.symlink_metadata();
        meta.is_ok_and(|meta| meta.file_type().is_socket())
    };
    match fs::read_dir(place) {
        Ok(entries) => {
            let mut paths = entries.map(|entry| entry.map(|it| it.path()));
            paths.all(|path| path.is_ok_and(|path| is_socket(&path)))
        }
        Err(_) => is_socket(place),
    }
}

/// The paths from a folder on below which nothing is hidden.
fn roots_below(
    folder: &Path,
    hidden: &[PathBuf],
    entries: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    let mut waiting = vec![folder.to_owned()];
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
    fn what_may_be_written_beside_what_is_hidden() {
        let tree = |folder: &Path| {
            paths(match folder.to_str().unwrap() {
                "/h" => "/h/.ssh /h/.config /h/code",
                "/h/.config" => "/h/.config/gh /h/.config/git",
                "/h/.config/gh" => "/h/.config/gh/cache /h/.config/gh/hosts.yml",
                "/h/code" => "/h/code/p",
                _ => "",
            })
        };
        for (folders, hidden, expected) in [
            ("/h/.tool /h/code/p", "/h/.ssh", "/h/.tool /h/code/p"),
            (
                "/h /h/code/p",
                "/h/.ssh /h/.config/gh",
                "/h/.config/git /h/code",
            ),
            (
                "/h/.config /h/.config/gh/cache",
                "/h/.config/gh",
                "/h/.config/gh/cache /h/.config/git",
            ),
            ("/h/.ssh", "/h/.ssh", "/h/.ssh"),
            // The project itself stays whole.
            ("/h/code/p", "/h/code/p/.netrc", "/h/code/p"),
        ] {
            let folders = paths(folders);
            let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
            let project = Path::new("/h/code/p");
            let found = writable_roots(&folders, project, &paths(hidden), &tree);
            assert_eq!(found, paths(expected), "{folders:?} {hidden}");
        }
    }

    #[test]
    fn places_of_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("sockets")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("sockets/s")).unwrap();
        fs::write(path("file"), "").unwrap();
        for (name, expected) in [
            ("sockets", true),
            ("sockets/s", true),
            ("file", false),
            ("", false),
            ("gone", false),
        ] {
            assert_eq!(has_sockets_alone(&path(name)), expected, "{name}");
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
