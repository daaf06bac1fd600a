//! The ignored files of the user's checkout, copied beside a commit in a clean checkout, to see
//! whether a guard that is red there misses one of them.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use runner_core::paths;

use crate::files;

/// More is not copied: a comparison is not worth a full disk.
const MAX_BYTES: u64 = 4 << 30;

/// Those of the ignored files that matter: not the runner's own, and inside the project.
pub(super) fn wanted(names: &[String]) -> Vec<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let names = names
        .iter()
        .map(|name| PathBuf::from(name.trim_end_matches('/')));
    names
        .filter(|name| !name.starts_with(paths::ROOT) && name.components().all(is_plain))
        .collect()
}

/// Whether a name is that of a file with settings, and perhaps secrets, for production: no guard
/// gets one unasked.
pub(crate) fn is_production(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase();
    name.starts_with(".env") && (name.contains("prod") || name.contains("live"))
}

/// Copies ignored files and folders of one checkout into another. Whether there was something to
/// copy, and all of it was.
pub(super) fn add_ignored(from: &Path, to: &Path, names: &[PathBuf]) -> io::Result<bool> {
    let mut copying = Copying { left: MAX_BYTES };
    let mut copied = false;
    for name in names {
        if !leads_through_folders(to, name)? {
            continue;
        }
        match copying.copy(&from.join(name), &to.join(name)) {
            Ok(()) => copied = true,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(false),
            // What cannot be read here, the guard could not read either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(files::at(&from.join(name), error)),
        }
    }
    Ok(copied)
}

/// Makes the folders above a path. No, where the commit has something else in their place: a
/// link there would lead out of the checkout.
fn leads_through_folders(to: &Path, name: &Path) -> io::Result<bool> {
    let mut folder = to.to_owned();
    for part in name.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        match folder.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Ok(false),
            Err(_) => fs::create_dir(&folder)?,
        }
    }
    Ok(true)
}

struct Copying {
    left: u64,
}

impl Copying {
    /// Copies a file, a link or a folder. What is there already stays: it is of the commit.
    fn copy(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if is_production(from) {
            return Ok(());
        }
        let meta = from.symlink_metadata()?;
        let there = to.symlink_metadata().ok();
        if meta.is_dir() {
            match there {
                Some(there) if !there.is_dir() => return Ok(()),
                Some(_) => {}
                None => fs::create_dir(to)?,
            }
            for entry in fs::read_dir(from)? {
                let name = entry?.file_name();
                self.copy(&from.join(&name), &to.join(&name))?;
            }
            return Ok(());
        }
        if there.is_some() {
            return Ok(());
        }
        if meta.is_symlink() {
            return symlink(fs::read_link(from)?, to);
        }
        if meta.is_file() {
            self.left = self
                .left
                .checked_sub(meta.len())
                .ok_or(io::ErrorKind::FileTooLarge)?;
            fs::copy(from, to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn names(names: &[&str]) -> Vec<PathBuf> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        wanted(&names)
    }

    #[test]
    fn files_folders_and_links_are_copied_and_nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        write(&from, "node_modules/.bin/real", "tool");
        symlink("real", from.join("node_modules/.bin/jest")).unwrap();
        write(&from, "sub/.env", "A=1");
        write(&from, "sub/.env.production", "A=2");
        write(&from, "README", "mine");
        write(&from, ".runner/iterations/x", "state");
        write(&to, "README", "committed");
        let ignored = names(&[
            "node_modules/",
            "sub/",
            "README",
            ".runner/iterations/",
            "gone",
        ]);
        assert!(add_ignored(&from, &to, &ignored).unwrap());
        assert_eq!(
            fs::read(to.join("node_modules/.bin/jest")).unwrap(),
            b"tool"
        );
        assert!(to.join("node_modules/.bin/jest").is_symlink());
        assert_eq!(fs::read(to.join("sub/.env")).unwrap(), b"A=1");
        assert_eq!(fs::read(to.join("README")).unwrap(), b"committed");
        assert!(!to.join(".runner").exists());
        assert!(!to.join("sub/.env.production").exists());
    }

    #[test]
    fn a_link_of_the_commit_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let outside = folder.path().join("outside");
        write(&from, "cache/deep/x", "x");
        write(&from, "sub/y", "y");
        fs::create_dir_all(&to).unwrap();
        fs::create_dir_all(&outside).unwrap();
        symlink(&outside, to.join("cache")).unwrap();
        symlink(&outside, to.join("sub")).unwrap();
        add_ignored(&from, &to, &names(&["cache/", "sub/y", "../from/sub"])).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn nothing_to_copy_is_no_comparison() {
        let folder = tempfile::tempdir().unwrap();
        let none = add_ignored(
            folder.path(),
            folder.path(),
            &names(&[".runner/fleet/", "gone"]),
        );
        assert!(!none.unwrap());
    }
}
