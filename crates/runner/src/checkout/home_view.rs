//! The home folder that a child sees: its own, for what it writes there, with everything of the
//! user's in it that is not hidden, read-only.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::files;

/// Where programs keep caches in a home, unless they are told another place.
pub(crate) const CACHE: &str = ".cache";

/// A private home.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HomeView {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The user's home, where it is seen if there are mounts.
    pub(crate) seen_at: PathBuf,
    /// What of the user's is shown there.
    pub(crate) in_sight: Vec<PathBuf>,
}

impl HomeView {
    /// Makes one. `hidden` is left out. With mounts, what is no link is shown in its place;
    /// without, all of it is links, but for copies of what the child sees another content of
    /// (`replaced`: the content, and the place). `cache` is seen as its `.cache`: some programs
    /// know no other place.
    pub(crate) fn make(
        home: &Path,
        (folder, cache): (&Path, &Path),
        hidden: &[PathBuf],
        replaced: &[(PathBuf, PathBuf)],
        has_mounts: bool,
    ) -> Result<Self> {
        files::make_folder(folder)?;
        if !has_mounts {
            symlink(cache, folder.join(CACHE))?;
        }
        let mut in_sight = Vec::new();
        for entry in fs::read_dir(home).into_iter().flatten().flatten() {
            let path = entry.path();
            if hidden.contains(&path) || entry.file_name() == CACHE {
                continue;
            }
            let place = folder.join(entry.file_name());
            let other = replaced.iter().find(|(_, it)| *it == path);
            if let Some((content, _)) = other.filter(|_| !has_mounts) {
                fs::copy(content, &place)?;
                continue;
            }
            match fs::read_link(&path) {
                Ok(target) if has_mounts => symlink(target, &place)?,
                Err(_) if has_mounts => in_sight.push(path),
                _ => symlink(&path, &place)?,
            }
        }
        in_sight.sort();
        Ok(HomeView {
            folder: folder.to_owned(),
            seen_at: home.to_owned(),
            in_sight,
        })
    }
}

/// The user's home, unless it cannot be another folder: one that lies in the temp folder is taken
/// as it is, and so is one that is the project itself or part of it.
pub(crate) fn replaceable(home: &Path, project: &Path, temp: &Path) -> Option<PathBuf> {
    let home = home.canonicalize().ok()?;
    let is_wide = home.parent().is_none();
    let temp = temp.canonicalize().unwrap_or_else(|_| temp.to_owned());
    let is_taken = home.starts_with(temp) || home.starts_with(project);
    (!is_wide && !is_taken).then_some(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_that_stay() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let none = Path::new("/nowhere");
        assert_eq!(replaceable(&home, none, none), Some(home.clone()));
        assert_eq!(replaceable(&home, &home, none), None);
        assert_eq!(replaceable(&home, none, temp.path()), None);
        assert_eq!(replaceable(&home, &home.join("code/p"), none), Some(home));
        assert_eq!(replaceable(Path::new("/"), none, none), None);
        assert_eq!(replaceable(none, none, none), None);
    }

    #[test]
    fn what_is_shown() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("home");
        for name in [".cache", ".config", ".ssh"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        fs::write(home.join(".profile"), "").unwrap();
        symlink(".profile", home.join(".bashrc")).unwrap();
        let hidden = [home.join(".ssh")];
        let cache = temp.path().join("cache");
        let mounted =
            HomeView::make(&home, (&temp.path().join("a"), &cache), &hidden, &[], true).unwrap();
        assert_eq!(
            mounted.in_sight,
            [home.join(".config"), home.join(".profile")]
        );
        let target = fs::read_link(mounted.folder.join(".bashrc")).unwrap();
        assert_eq!(target, Path::new(".profile"));
        fs::write(temp.path().join("content"), "other").unwrap();
        let replaced = [(temp.path().join("content"), home.join(".profile"))];
        let linked = temp.path().join("b");
        let linked = HomeView::make(&home, (&linked, &cache), &hidden, &replaced, false).unwrap();
        let profile = linked.folder.join(".profile");
        assert_eq!(fs::read_to_string(profile).unwrap(), "other");
        assert!(linked.in_sight.is_empty());
        assert_eq!(fs::read_link(linked.folder.join(CACHE)).unwrap(), cache);
        assert!(linked.folder.join(".bashrc").exists());
        let target = fs::read_link(linked.folder.join(".config")).unwrap();
        assert_eq!(target, home.join(".config"));
        assert!(linked.folder.join(".ssh").symlink_metadata().is_err());
    }
}
