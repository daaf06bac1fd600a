//! Git's own settings, saved before a session and put back after it.
//!
//! A `filter.*.clean` in `.git/config` runs on a plain `git status`, so these
//! files are compared and restored by plain file I/O before the first git call
//! after a session or a guard run.

use std::io;
use std::path::{Path, PathBuf};

use runner_core::digest::sha256_hex;
use serde::{Deserialize, Serialize};

use super::Git;
use crate::files;
use crate::image::{self, Image};

/// How deep repositories of submodules are looked for below `modules/`.
const MODULE_DEPTH: usize = 6;

/// A saved copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnFiles {
    /// The content of a `.git` that is a file (a linked work tree).
    link: Option<Image>,
    folders: Vec<Folder>,
}

/// The settings in one git folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Folder {
    root: PathBuf,
    files: Vec<(PathBuf, Image)>,
}

impl OwnFiles {
    /// Takes down what is there now.
    pub(crate) fn capture(git: &Git) -> io::Result<Self> {
        let link = Image::of(git.root(), Path::new(".git"))?;
        let mut roots = vec![git.git_dir().to_owned()];
        if git.common_dir() != git.git_dir() {
            roots.push(git.common_dir().to_owned());
        }
        find_modules(&git.common_dir().join("modules"), MODULE_DEPTH, &mut roots);
        let folders = roots
            .into_iter()
            .map(Folder::capture)
            .collect::<io::Result<_>>()?;
        Ok(OwnFiles {
            link: (link != Image::Other).then_some(link),
            folders,
        })
    }

    /// The saved form and the name under which it is kept.
    pub(crate) fn to_stored(&self) -> (String, Vec<u8>) {
        // Paths that are not UTF-8 cannot be saved this way; the copy in memory
        // still protects the session, and after a crash git itself complains.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        (
            format!("git-files-{}.json", &sha256_hex(&bytes)[..16]),
            bytes,
        )
    }

    /// Reads a saved form.
    pub(crate) fn from_stored(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Puts back whatever differs; returns the names of what did.
    pub(crate) fn restore(&self, root: &Path, quarantine: &Path) -> io::Result<Vec<String>> {
        let mut changed = Vec::new();
        if let Some(link) = &self.link
            && Image::of(root, Path::new(".git"))? != *link
        {
            link.restore(root, Path::new(".git"), quarantine)?;
            changed.push(".git".to_owned());
        }
        for folder in &self.folders {
            folder.restore(quarantine, &mut changed)?;
        }
        changed.sort();
        changed.dedup();
        Ok(changed)
    }
}

impl Folder {
    fn capture(root: PathBuf) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in present(&root)? {
            let image = Image::of(&root, &path)?;
            files.push((path, image));
        }
        Ok(Folder { root, files })
    }

    fn restore(&self, quarantine: &Path, changed: &mut Vec<String>) -> io::Result<()> {
        let name = |path: &Path| Path::new(".git").join(path).display().to_string();
        for path in present(&self.root)? {
            if !self.files.iter().any(|(known, _)| *known == path) {
                image::move_to(&self.root, &path, &quarantine.join("git"))?;
                changed.push(name(&path));
            }
        }
        for (path, image) in &self.files {
            if Image::of(&self.root, path)? != *image {
                image.restore(&self.root, path, &quarantine.join("git"))?;
                changed.push(name(path));
            }
        }
        Ok(())
    }
}

/// The settings that exist in a git folder, sorted.
fn present(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for name in ["config", "config.worktree", "commondir", "gitdir"] {
        if root.join(name).symlink_metadata().is_ok() {
            paths.push(PathBuf::from(name));
        }
    }
    for folder in ["hooks", "info"] {
        match root.join(folder).symlink_metadata() {
            Ok(meta) if meta.is_dir() => paths.extend(image::list(root, Path::new(folder))?),
            Ok(_) => paths.push(PathBuf::from(folder)),
            Err(error) if files::is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Written by `git gc`, and read by nobody who works with files.
    paths.retain(|path| path != Path::new("info/refs"));
    paths.sort();
    Ok(paths)
}

/// The git folders of submodules: they have a HEAD.
fn find_modules(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Some(deeper) = depth.checked_sub(1) else {
        return;
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    for folder in folders {
        if folder.join("HEAD").is_file() {
            find_modules(&folder.join("modules"), deeper, found);
            found.push(folder);
        } else {
            find_modules(&folder, deeper, found);
        }
    }
}
