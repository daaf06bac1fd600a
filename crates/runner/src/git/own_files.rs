//! Git's own settings, saved before a session and put back after it.
//!
//! A `filter.*.clean` in `.git/config` runs on a plain `git status`, so these
//! files are compared and restored by plain file I/O before the first git call
//! after a session or a guard run.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::digest::sha256_hex;
use runner_core::text::escape_path;
use serde::{Deserialize, Serialize};

use super::Git;
use super::places::{RunBranch, UnusualPaths};
use crate::error::Result;
use crate::files;
use crate::step::file_image;
use crate::step::file_image::FileImage;

/// How deep repositories of submodules are looked for below `modules/`.
const MODULE_DEPTH: usize = 6;

/// A saved copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnFiles {
    dot_git: DotGit,
    git_dir: Folder,
    unusual: UnusualPaths,
    /// The folder that all work trees share, where that is another one.
    common_dir: Option<Folder>,
    common_unusual: Option<UnusualPaths>,
    /// Those of submodules.
    modules: Vec<Folder>,
    /// The `.git` of submodules.
    links: Vec<Saved>,
    /// The saved form, made once: a copy never changes.
    #[serde(skip)]
    stored: OnceCell<(String, Vec<u8>)>,
}

/// What `.git` is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DotGit {
    /// A folder; its device and inode.
    Folder(u64, u64),
    /// A file or a link that says where the folder is.
    Pointer(FileImage),
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    #[serde(with = "file_image::path_bytes")]
    path: PathBuf,
    image: FileImage,
}

/// The settings in one git folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Folder {
    #[serde(with = "file_image::path_bytes")]
    root: PathBuf,
    files: Vec<Saved>,
}

/// What had to be put back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoreReport {
    /// The names of what had changed, sorted.
    pub(crate) changed: Vec<String>,
    /// Operations (a merge, a rebase) that were under way and are so no more.
    pub(crate) operations: Vec<String>,
}

impl OwnFiles {
    /// Takes down what is there now.
    pub(crate) fn capture(git: &Git) -> Result<Self> {
        let dot_git = match FileImage::of(git.root(), Path::new(".git"))? {
            FileImage::Other => {
                let meta = git.git_dir().symlink_metadata()?;
                DotGit::Folder(meta.dev(), meta.ino())
            }
            pointer => DotGit::Pointer(pointer),
        };
        let linked = git.common_dir() != git.git_dir();
        let common = linked.then(|| git.common_dir().to_owned());
        let mut modules = Vec::new();
        find_modules(
            &git.common_dir().join("modules"),
            MODULE_DEPTH,
            &mut modules,
        );
        let mut links = Vec::new();
        // An index that cannot be read is dealt with later.
        for path in git.submodules().unwrap_or_default() {
            let path = path.join(".git");
            match FileImage::of(git.root(), &path)? {
                // The submodule's repository lies in its work tree.
                FileImage::Other => modules.push(git.root().join(path)),
                image => links.push(Saved { path, image }),
            }
        }
        Ok(OwnFiles {
            dot_git,
            git_dir: Folder::capture(git.git_dir().to_owned())?,
            unusual: UnusualPaths::of(git.git_dir())?,
            common_unusual: common.as_deref().map(UnusualPaths::of).transpose()?,
            common_dir: common.map(Folder::capture).transpose()?,
            modules: modules
                .into_iter()
                .map(Folder::capture)
                .collect::<io::Result<_>>()?,
            links,
            stored: OnceCell::new(),
        })
    }

    /// The saved form and the name under which it is kept.
    pub(crate) fn stored(&self) -> &(String, Vec<u8>) {
        self.stored.get_or_init(|| {
            // Strings and numbers only: there is nothing that could fail.
            let bytes = serde_json::to_vec(self).unwrap_or_default();
            (stored_name(&bytes), bytes)
        })
    }

    /// Reads a saved form; `None` if it is not the one of that name.
    pub(crate) fn from_stored(name: &str, bytes: &[u8]) -> Option<Self> {
        if stored_name(bytes) != name {
            return None;
        }
        serde_json::from_slice(bytes).ok()
    }

    /// Puts back whatever differs and clears away what would trap git.
    pub(crate) fn restore(
        &self,
        root: &Path,
        run: RunBranch<'_>,
        quarantine: &Path,
    ) -> io::Result<RestoreReport> {
        let mut put_back = RestoreReport::default();
        let aside = quarantine.join("git");
        self.restore_dot_git(root, quarantine, &mut put_back)?;
        let name = |path: &Path| named(&Path::new(".git").join(path));
        let common = self.common_dir.as_ref().zip(self.common_unusual.as_ref());
        for (folder, unusual) in [(&self.git_dir, &self.unusual)].into_iter().chain(common) {
            let cleared = unusual.clear(&folder.root, &aside)?;
            let traps = cleared.traps.iter().map(|path| name(path));
            put_back.changed.extend(traps);
            let operations = cleared.operations.iter().map(|path| name(path));
            put_back.operations.extend(operations);
            folder.restore(&aside, Path::new(".git"), &mut put_back.changed)?;
        }
        let common_root = common.map_or(&self.git_dir.root, |(folder, _)| &folder.root);
        for folder in &self.modules {
            if folder.root.is_dir() {
                let shown = folder
                    .root
                    .strip_prefix(common_root)
                    .map_or_else(|_| folder.root.clone(), |path| Path::new(".git").join(path));
                folder.restore(&aside, &shown, &mut put_back.changed)?;
            }
        }
        for saved in &self.links {
            let there = root.join(&saved.path).symlink_metadata().is_ok();
            // A submodule that was removed is one that was removed.
            if there && !saved.image.is_at(root, &saved.path)? {
                saved.image.restore(root, &saved.path, quarantine)?;
                put_back.changed.push(named(&saved.path));
            }
        }
        let references = common.map_or(&self.unusual, |(_, unusual)| unusual);
        let repaired =
            references.repair_references(&self.git_dir.root, common_root, run, &aside)?;
        put_back
            .changed
            .extend(repaired.iter().map(|path| name(path)));
        put_back.changed.sort();
        put_back.changed.dedup();
        Ok(put_back)
    }

    fn restore_dot_git(
        &self,
        root: &Path,
        quarantine: &Path,
        put_back: &mut RestoreReport,
    ) -> io::Result<()> {
        let path = Path::new(".git");
        let full = root.join(path);
        match &self.dot_git {
            DotGit::Pointer(image) => {
                if image.is_at(root, path)? {
                    return Ok(());
                }
                image.restore(root, path, quarantine)?;
            }
            DotGit::Folder(device, inode) => {
                if full.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                    return Ok(());
                }
                // `git init --separate-git-dir` leaves a pointer to where it went.
                let moved = target_of(&full).filter(|target| {
                    target
                        .symlink_metadata()
                        .is_ok_and(|meta| (meta.dev(), meta.ino()) == (*device, *inode))
                });
                let Some(moved) = moved else {
                    let what = format!(
                        "{} is gone: a session removed or replaced the repository",
                        full.display()
                    );
                    return Err(io::Error::other(what));
                };
                file_image::move_to(root, path, quarantine)?;
                fs::rename(&moved, &full).map_err(|error| files::at(&moved, error))?;
            }
        }
        put_back.changed.push(".git".to_owned());
        Ok(())
    }

    /// The names of what differs now, without changing anything.
    pub(crate) fn differing(&self, root: &Path) -> io::Result<Vec<String>> {
        let mut changed = Vec::new();
        let dot_git = match &self.dot_git {
            DotGit::Pointer(image) => image.is_at(root, Path::new(".git"))?,
            DotGit::Folder(..) => root
                .join(".git")
                .symlink_metadata()
                .is_ok_and(|meta| meta.is_dir()),
        };
        if !dot_git {
            changed.push(".git".to_owned());
        }
        for folder in [Some(&self.git_dir), self.common_dir.as_ref()]
            .into_iter()
            .flatten()
        {
            changed.extend(
                folder
                    .differing()?
                    .iter()
                    .map(|path| named(&Path::new(".git").join(path))),
            );
        }
        Ok(changed)
    }
}

fn stored_name(bytes: &[u8]) -> String {
    format!("git-files-{}.json", &sha256_hex(bytes)[..32])
}

fn named(path: &Path) -> String {
    escape_path(path.as_os_str().as_bytes())
}

/// Where a `.git` that is a file or a link leads.
fn target_of(dot_git: &Path) -> Option<PathBuf> {
    if dot_git.is_symlink() {
        return dot_git.canonicalize().ok();
    }
    let text = files::read_regular(dot_git, 4096).ok()?;
    let target = text.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    let target = Path::new(std::ffi::OsStr::from_bytes(target));
    dot_git.parent()?.join(target).canonicalize().ok()
}

impl Folder {
    fn capture(root: PathBuf) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in present(&root)? {
            let image = FileImage::of(&root, &path)?;
            files.push(Saved { path, image });
        }
        Ok(Folder { root, files })
    }

    /// What is there and was not, or is not as it was.
    fn differing(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = self.newcomers()?;
        for saved in &self.files {
            if !saved.image.is_at(&self.root, &saved.path)? {
                found.push(saved.path.clone());
            }
        }
        Ok(found)
    }

    fn newcomers(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = present(&self.root)?;
        found.retain(|path| !self.files.iter().any(|saved| saved.path == *path));
        Ok(found)
    }

    fn restore(
        &self,
        quarantine: &Path,
        shown: &Path,
        changed: &mut Vec<String>,
    ) -> io::Result<()> {
        for path in self.newcomers()? {
            file_image::move_to(&self.root, &path, quarantine)?;
            changed.push(named(&shown.join(path)));
        }
        for Saved { path, image } in &self.files {
            if !image.is_at(&self.root, path)? {
                image.restore(&self.root, path, quarantine)?;
                changed.push(named(&shown.join(path)));
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
    // A planted replacement would change what commits say to everyone else.
    for folder in ["hooks", "info", "refs/replace"] {
        match root.join(folder).symlink_metadata() {
            Ok(meta) if meta.is_dir() => paths.extend(file_image::list(root, Path::new(folder))?),
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
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)
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
