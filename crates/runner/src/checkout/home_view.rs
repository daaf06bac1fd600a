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
    /// (`replaced`: the content, and the place), and folders around these and around what is hidden. `cache` is seen as its `.cache`: some programs
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
            if !has_mounts {
                // Settings lie in folders that begin with a dot; others may hold very many files.
                let is_dotted = entry.file_name().as_encoded_bytes().starts_with(b".");
                if is_dotted || replaced.iter().any(|(_, it)| *it == path) {
                    link(&path, &place, hidden, replaced)?;
                } else {
                    symlink(&path, &place)?;
                }
                continue;
            }
            match fs::read_link(&path) {
                Ok(target) => symlink(target, &place)?,
                Err(_) => in_sight.push(path),
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

/// Makes something of the home folder seen in another place: a link to it, a copy of what is to be seen
/// of it, or a folder of such things where something in it is hidden or seen otherwise. A program that
/// meets a file of settings that it may not read would not start.
fn link(
    path: &Path,
    place: &Path,
    hidden: &[PathBuf],
    replaced: &[(PathBuf, PathBuf)],
) -> Result<()> {
    if hidden.iter().any(|it| it == path) {
        return Ok(());
    }
    if let Some((content, _)) = replaced.iter().find(|(_, it)| it == path) {
        fs::copy(content, place)?;
        return Ok(());
    }
    let is_there = |it: &Path| it.starts_with(path) && it.symlink_metadata().is_ok();
    let is_mixed =
        hidden.iter().any(|it| is_there(it)) || replaced.iter().any(|(_, it)| is_there(it));
    let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    if !is_mixed || !is_folder {
        symlink(path, place)?;
        return Ok(());
    }
    files::make_folder(place)?;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        link(
            &entry.path(),
            &place.join(entry.file_name()),
            hidden,
            replaced,
        )?;
    }
    Ok(())
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
        for name in [
            ".cache",
            ".config",
            ".ssh",
            ".m2/repository",
            ".local/share/keyrings",
        ] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        fs::write(home.join(".profile"), "").unwrap();
        fs::write(home.join(".m2/settings.xml"), "").unwrap();
        fs::write(home.join(".m2/security"), "").unwrap();
        symlink(".profile", home.join(".bashrc")).unwrap();
        let hidden = [
            ".ssh",
            ".m2/security",
            ".local/share/keyrings",
            ".config/gone",
        ];
        let hidden = hidden.map(|name| home.join(name));
        let cache = temp.path().join("cache");
        let mounted =
            HomeView::make(&home, (&temp.path().join("a"), &cache), &hidden, &[], true).unwrap();
        assert_eq!(
            mounted.in_sight,
            [".config", ".local", ".m2", ".profile"].map(|name| home.join(name))
        );
        let target = fs::read_link(mounted.folder.join(".bashrc")).unwrap();
        assert_eq!(target, Path::new(".profile"));
        fs::write(temp.path().join("content"), "other").unwrap();
        let replaced = [".profile", ".m2/settings.xml"]
            .map(|name| (temp.path().join("content"), home.join(name)));
        let linked = temp.path().join("b");
        let linked = HomeView::make(&home, (&linked, &cache), &hidden, &replaced, false).unwrap();
        let profile = linked.folder.join(".profile");
        assert_eq!(fs::read_to_string(profile).unwrap(), "other");
        assert!(linked.in_sight.is_empty());
        assert_eq!(fs::read_link(linked.folder.join(CACHE)).unwrap(), cache);
        assert!(linked.folder.join(".bashrc").exists());
        let target = fs::read_link(linked.folder.join(".config")).unwrap();
        assert_eq!(target, home.join(".config"));
        let maven = linked.folder.join(".m2");
        let settings = fs::read_to_string(maven.join("settings.xml")).unwrap();
        assert_eq!(settings, "other");
        assert!(maven.join("security").symlink_metadata().is_err());
        let target = fs::read_link(maven.join("repository")).unwrap();
        assert_eq!(target, home.join(".m2/repository"));
        let keyrings = linked.folder.join(".local/share/keyrings");
        assert!(keyrings.symlink_metadata().is_err());
        assert!(linked.folder.join(".ssh").symlink_metadata().is_err());
    }
}
