//! The temp folder of one child: nothing that another one left is in it, and nothing stays.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use runner_core::digest::sha256_hex;

use crate::error::{Error, ErrorCode, Result};
use crate::fault;
use crate::step::file_image;

/// How the name of each begins.
pub(crate) const PRIVATE_PREFIX: &str = "runner-";

/// How many names are tried before giving up: what a child made unremovable keeps one.
const NAMES: u32 = 8;

/// A folder in the machine's temp folder, removed with this value.
///
/// Its name is short, because sockets are made in such folders, and follows from the checkout, so
/// that what a crash left is found. The outer folder can be entered but not listed, and the inner
/// one is for everybody who knows it: the users that root may become in a guard.
#[derive(Debug)]
pub struct TempFolder(TempPaths);

impl TempFolder {
    /// An empty one for a child in a checkout.
    pub fn make(checkout: &Path) -> Result<Self> {
        let mut refused = None;
        for number in 0..NAMES {
            let paths = TempPaths::of(checkout, number);
            match paths.make_empty() {
                Ok(()) => {
                    let folder = TempFolder(paths);
                    fault::point("temp-folder")?;
                    return Ok(folder);
                }
                Err(error) => {
                    refused.get_or_insert((paths.outer, error));
                }
            }
        }
        let (path, error) =
            refused.unwrap_or_else(|| (PathBuf::new(), io::Error::other("no name is free")));
        Err(Error::new(
            ErrorCode::Io,
            format!("cannot make the temp folder {}: {error}", path.display()),
        )
        .hint("make room there, or set TMPDIR to a folder that you can write to"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.inner
    }

    /// A path beside it that goes away with it, and that no child sees below its temp folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.0.outer.join(name)
    }

    /// What a crash left of the temp folders of a checkout.
    pub(crate) fn left_of(checkout: &Path) -> Vec<PathBuf> {
        let own = Self::own_of(checkout);
        own.map(|paths| paths.outer).collect()
    }

    /// Removes that.
    pub(crate) fn remove_left(checkout: &Path) {
        for paths in Self::own_of(checkout) {
            drop(TempFolder(paths));
        }
    }

    fn own_of(checkout: &Path) -> impl Iterator<Item = TempPaths> {
        let all = (0..NAMES).map(|number| TempPaths::of(checkout, number));
        all.filter(TempPaths::is_own)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // What stays is removed before the next child begins.
        let _ = file_image::remove_closed(&self.0.outer);
    }
}

/// Where a temp folder is, or would be.
#[derive(Debug)]
struct TempPaths {
    outer: PathBuf,
    inner: PathBuf,
}

impl TempPaths {
    fn of(checkout: &Path, number: u32) -> Self {
        let text = format!("{number} {}", checkout.display());
        let hash = sha256_hex(text.as_bytes());
        let (name, inner) = (&hash[..10], &hash[10..20]);
        let outer = std::env::temp_dir().join(format!("{PRIVATE_PREFIX}{name}"));
        TempPaths {
            inner: outer.join(inner),
            outer,
        }
    }

    /// Whether it is there and not somebody else's.
    fn is_own(&self) -> bool {
        let meta = self.outer.symlink_metadata();
        meta.is_ok_and(|it| it.is_dir() && it.uid() == rustix::process::geteuid().as_raw())
    }

    fn make_empty(&self) -> io::Result<()> {
        if self.is_own() {
            file_image::remove_closed(&self.outer)?;
        }
        DirBuilder::new().mode(0o711).create(&self.outer)?;
        DirBuilder::new().mode(0o700).create(&self.inner)?;
        // The mask does not count for these.
        std::fs::set_permissions(&self.outer, Permissions::from_mode(0o711))?;
        std::fs::set_permissions(&self.inner, Permissions::from_mode(0o1777))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_one_is_empty_and_nothing_stays() {
        let checkout = tempfile::tempdir().unwrap();
        let folder = TempFolder::make(checkout.path()).unwrap();
        let path = folder.path().to_owned();
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::set_permissions(path.join("a"), Permissions::from_mode(0o000)).unwrap();
        // As a crash leaves it.
        std::mem::forget(folder);
        let again = TempFolder::make(checkout.path()).unwrap();
        assert_eq!(again.path(), path);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        std::mem::forget(again);
        TempFolder::remove_left(checkout.path());
        assert!(!path.exists());
        assert!(!path.parent().unwrap().exists());
    }

    /// Somebody else's file at the very name.
    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let checkout = tempfile::tempdir().unwrap();
        let taken = TempPaths::of(checkout.path(), 0);
        std::fs::write(&taken.outer, "x").unwrap();
        let folder = TempFolder::make(checkout.path()).unwrap();
        assert_ne!(folder.path(), taken.inner);
        assert_eq!(std::fs::read_to_string(&taken.outer).unwrap(), "x");
        std::fs::remove_file(&taken.outer).unwrap();
    }
}
