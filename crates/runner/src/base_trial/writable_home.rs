//! A home folder in which a guard may write what it could not write in the user's: where it is
//! green with that one, the sandbox is what made it red.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use crate::checkout::temp_folder::PRIVATE_PREFIX;
use crate::grants;

/// Where it lies in a checkout: nothing there is of the commit.
pub(super) const FOLDER: &str = ".git/runner-home";

/// So many paths are looked at.
const MAX_PATHS: usize = 8;

/// A larger file is not copied.
const MAX_BYTES: u64 = 16 << 20;

/// A log in which a private home folder (without mounts, it has a path of its own) is the user's.
/// `temp`: the machine's temp folder, where private ones are.
pub(crate) fn as_at_home(log: &str, temp: &Path, home: &Path) -> String {
    let (Some(temp), Some(home)) = (temp.to_str(), home.to_str()) else {
        return log.to_owned();
    };
    let begin = format!("{}/{PRIVATE_PREFIX}", temp.trim_end_matches('/'));
    let mut parts = log.split(&begin);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A name, and the folder in it.
        match part.split_once('/') {
            Some((name, rest))
                if rest.starts_with("home/") && !name.contains(char::is_whitespace) =>
            {
                text.push_str(home);
                text.push_str(&rest["home".len()..]);
            }
            _ => {
                text.push_str(&begin);
                text.push_str(part);
            }
        }
    }
    text
}

/// The paths in the home folder that a log says could not be written, from the home folder.
pub(super) fn refused_in(log: &str, home: &Path) -> Vec<PathBuf> {
    if home.parent().is_none() {
        return Vec::new();
    }
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let found: BTreeSet<PathBuf> = grants::denied_paths(log)
        .iter()
        .filter_map(|path| path.strip_prefix(home).ok())
        .filter(|path| path.components().next().is_some() && path.components().all(is_plain))
        .map(Path::to_owned)
        .collect();
    found.into_iter().take(MAX_PATHS).collect()
}

/// Makes such a home: links to everything in the user's, but for the folders that lead to these
/// paths, which are real.
pub(super) fn make(home: &Path, at: &Path, refused: &[PathBuf]) -> io::Result<()> {
    let refused: Vec<&Path> = refused.iter().map(PathBuf::as_path).collect();
    make_level(home, at, &refused)
}

fn make_level(real: &Path, at: &Path, refused: &[&Path]) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let entries = match fs::read_dir(real) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let (from, to) = (real.join(&name), at.join(&name));
        let below: Vec<&Path> = refused
            .iter()
            .filter_map(|path| path.strip_prefix(&name).ok())
            .collect();
        match from.metadata() {
            Ok(meta) if !below.is_empty() && meta.is_dir() => {
                let deeper: Vec<&Path> = below
                    .into_iter()
                    .filter(|path| path.components().next().is_some())
                    .collect();
                make_level(&from, &to, &deeper)?;
            }
            Ok(meta) if !below.is_empty() && meta.is_file() && meta.len() <= MAX_BYTES => {
                fs::copy(&from, &to)?;
            }
            _ => symlink(&from, &to)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_not_be_written() {
        let home = Path::new("/users/u");
        for (line, expected) in [
            (
                "sh: 1: cannot create /users/u/.tool/state: Read-only file system",
                &[".tool/state"][..],
            ),
            (
                "OSError: [Errno 30] Read-only file system: '/users/u/.tool'",
                &[".tool"],
            ),
            (
                "Error: EACCES: permission denied, mkdir '/users/u/.cache/x/'",
                &[".cache/x"],
            ),
            (
                "mkdir: cannot create directory ‘/users/u/.tool’: Read-only file system",
                &[".tool"],
            ),
            ("mkdir /users/u2/.x: read-only file system", &[]),
            ("cannot create /etc/x: Read-only file system", &[]),
            ("/users/u/.tool was written", &[]),
            ("/users/u/../x: Permission denied", &[]),
        ] {
            let found = refused_in(line, home);
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{line}");
        }
        assert!(refused_in("/x: Permission denied", Path::new("/")).is_empty());
    }

    #[test]
    fn private_homes_are_the_users() {
        let (temp, home) = (Path::new("/t"), Path::new("/users/u"));
        for (log, expected) in [
            (
                "cannot create /t/runner-0a1b/home/.tool/x: Permission denied",
                "cannot create /users/u/.tool/x: Permission denied",
            ),
            ("/t/runner-0a1b/other/x", "/t/runner-0a1b/other/x"),
            ("/t/runner-a b/home/x", "/t/runner-a b/home/x"),
            ("/t/x, /t/runner-", "/t/x, /t/runner-"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(as_at_home(log, temp, home), expected);
        }
    }

    #[test]
    fn a_home_of_links_with_folders_that_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let (home, at) = (folder.path().join("home"), folder.path().join("at"));
        for path in [".tool/deep/old", ".tool/other/x", ".config/y", "file"] {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "old").unwrap();
        }
        let refused = [".tool/deep/new", "file", ".gone/z"].map(PathBuf::from);
        make(&home, &at, &refused).unwrap();
        for (path, is_link) in [
            (".tool", false),
            (".tool/deep", false),
            (".tool/deep/old", true),
            (".tool/other", true),
            (".config", true),
            ("file", false),
        ] {
            assert_eq!(at.join(path).is_symlink(), is_link, "{path}");
        }
        fs::write(at.join("file"), "new").unwrap();
        fs::write(at.join(".tool/deep/new"), "new").unwrap();
        assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "old");
        assert!(!home.join(".tool/deep/new").exists());
        assert!(!at.join(".gone").exists());
    }
}
