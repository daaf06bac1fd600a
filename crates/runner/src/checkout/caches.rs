//! Caches of package managers and compilers that the runner owns: one folder for the sessions of a
//! project, another one for its verdicts. A verdict that judges a session's work sees the second as
//! base trials left it, and what it writes there is thrown away: no code of an agent can leave
//! anything in a cache for a later verdict. What setup wrote, such as packages that the candidate
//! asks for, stays beside the checkout for its guard until setup runs there again. The user's own
//! caches are read to fill new ones, never written.

mod tools;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runner_core::config::ChildKind;
use runner_sandbox::LayeredFolder;
use rustix::fs::{FlockOperation, flock};

use super::{LAYER, SETUP_LAYER, beside, open_lock};
use crate::error::Result;
use crate::files;
use crate::step::file_image;
use tools::{TOOLS, make_ready};

/// The folder of caches in a project's private folder.
pub(crate) const CACHES: &str = "caches";

/// The cache that sessions and setup in workspaces share.
const SESSIONS: &str = "sessions";

/// The cache of verdicts.
const VERDICTS: &str = "verdicts";

/// What is larger, or has more files, is not copied: filling it again is not slower.
const MAX_COPY_BYTES: u64 = 512 << 20;
const MAX_COPY_FILES: usize = 20_000;

/// Which trials fill the cache of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CacheFill {
    /// Those of a session's work do not.
    #[default]
    Nothing,
    /// Setup with what the base asks for does.
    Setup,
    /// A base that a person begins with does as a whole.
    All,
}

/// What a child is to do with caches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheRequest<'a> {
    pub(crate) kind: ChildKind,
    /// Whether it works in a workspace, and not in a clean checkout.
    pub(crate) in_workspace: bool,
    pub(crate) fill: CacheFill,
    /// Whether changes can be laid over a folder.
    pub(crate) has_layers: bool,
    /// The folder in which it works.
    pub(crate) checkout: &'a Path,
}

impl CacheRequest<'_> {
    /// Sessions share a cache with setup in workspaces.
    fn is_of_session(&self) -> bool {
        self.kind == ChildKind::Session || (self.in_workspace && self.kind == ChildKind::Setup)
    }

    /// Whether what the child writes stays for others: nothing is kept apart then.
    pub(crate) fn writes_for_others(&self) -> bool {
        let fills = match self.fill {
            CacheFill::All => true,
            CacheFill::Setup => self.kind == ChildKind::Setup,
            CacheFill::Nothing => false,
        };
        fills || self.is_of_session()
    }
}

/// The caches of one child, for as long as this lives.
#[derive(Debug)]
pub(crate) struct ChildCaches {
    /// The folder that the variables lead to, which the child may write to.
    pub(crate) folder: PathBuf,
    /// How its changes are kept apart, where they are laid over.
    pub(crate) layered: Option<LayeredFolder>,
    /// Where they go, or the copy that it works with.
    changes: Option<PathBuf>,
    /// Whether they stay for the guard of the same verdict.
    is_kept: bool,
    /// What a person should know.
    pub(crate) note: Option<String>,
    /// Nobody clears caches that are in use.
    _in_use: File,
}

impl ChildCaches {
    /// The one for programs that are not named here.
    pub(crate) fn for_programs(&self) -> PathBuf {
        self.folder.join(TOOLS[0].folder)
    }

    /// Where its changes go, if nobody else shares them.
    pub(crate) fn own_folder(&self) -> Option<PathBuf> {
        self.changes.clone()
    }

    /// Variables that lead to them.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let variables = TOOLS.iter().map(|tool| {
            let folder = self.folder.join(tool.folder);
            (tool.variable.into(), folder.into())
        });
        variables.collect()
    }
}

impl Drop for ChildCaches {
    fn drop(&mut self) {
        if let Some(folder) = self.changes.as_ref().filter(|_| !self.is_kept) {
            // What stays is removed before the next child begins, or with the checkout.
            let _ = file_image::remove_closed(folder);
        }
    }
}

/// The caches of a project.
#[derive(Clone, Debug)]
pub(crate) struct ProjectCaches {
    folder: PathBuf,
}

impl ProjectCaches {
    /// Those in a project's private folder.
    pub(crate) fn at(home: &Path) -> Self {
        ProjectCaches {
            folder: home.join(CACHES),
        }
    }

    /// Forgets what an earlier setup of a checkout wrote: another one begins.
    pub(crate) fn begin_setup(checkout: &Path) -> Result<()> {
        Ok(file_image::remove_closed(&beside(checkout, SETUP_LAYER))?)
    }

    /// What a child gets.
    pub(crate) fn for_child(&self, request: CacheRequest<'_>) -> Result<ChildCaches> {
        let name = if request.is_of_session() {
            SESSIONS
        } else {
            VERDICTS
        };
        let in_use = self.lock(FlockOperation::LockShared)?;
        let folder = self.folder.join(name);
        make_ready(&folder, request.checkout)?;
        let mut caches = ChildCaches {
            folder,
            layered: None,
            changes: None,
            is_kept: false,
            note: None,
            _in_use: in_use,
        };
        if request.writes_for_others() {
            return Ok(caches);
        }
        let mut of_setup = beside(request.checkout, SETUP_LAYER);
        if !request.has_layers {
            // Whole, not as changes.
            of_setup.push("copy");
        }
        let has_earlier = of_setup.is_dir();
        caches.is_kept = request.kind == ChildKind::Setup;
        let (changes, earlier) = if caches.is_kept {
            (of_setup.clone(), None)
        } else {
            let changes = beside(request.checkout, LAYER);
            file_image::remove_closed(&changes)?;
            (changes, has_earlier.then_some(of_setup.clone()))
        };
        files::make_folder(&changes)?;
        caches.changes = Some(changes.clone());
        if request.has_layers {
            caches.layered = Some(LayeredFolder {
                folder: caches.folder.clone(),
                earlier,
                changes,
            });
            return Ok(caches);
        }
        if caches.is_kept && has_earlier {
            // Another part of the same setup goes on with what the one before has left.
            caches.folder = changes;
            return Ok(caches);
        }
        // A copy has all of what setup saw.
        let source = earlier.as_ref().unwrap_or(&caches.folder);
        if is_small(source, MAX_COPY_BYTES, MAX_COPY_FILES) {
            files::copy_files(source, &changes, u64::MAX)?;
        } else {
            caches.note = Some(
                "the cache of verdicts is too large to be copied, and this sandbox cannot lay changes over it: \
                 this verdict begins with an empty one"
                    .to_owned(),
            );
        }
        caches.folder = changes;
        Ok(caches)
    }

    /// Removes the caches of the tools that were not used for longest, until no more than a limit is
    /// left. While a child uses them, nothing happens. How much that freed.
    pub(crate) fn shrink(&self, limit: u64, dry_run: bool) -> Result<Vec<(PathBuf, u64)>> {
        if !self.folder.is_dir() {
            return Ok(Vec::new());
        }
        let Ok(_alone) = self.lock(FlockOperation::NonBlockingLockExclusive) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for name in [SESSIONS, VERDICTS] {
            let entries = fs::read_dir(self.folder.join(name)).into_iter().flatten();
            for entry in entries.flatten() {
                let path = entry.path();
                let (bytes, used) = size_and_age(&path);
                found.push((used, bytes, path));
            }
        }
        found.sort();
        let mut total: u64 = found.iter().map(|(_, bytes, _)| bytes).sum();
        let mut removed = Vec::new();
        for (_, bytes, path) in found {
            if total <= limit {
                break;
            }
            total -= bytes;
            if !dry_run {
                file_image::remove_closed(&path)?;
            }
            removed.push((path, bytes));
        }
        Ok(removed)
    }

    /// Removes what sessions have cached, for the room that it takes. While a child uses any of
    /// the caches, nothing happens.
    pub(crate) fn forget_sessions(&self) -> Result<()> {
        if !self.folder.is_dir() {
            return Ok(());
        }
        let Ok(_alone) = self.lock(FlockOperation::NonBlockingLockExclusive) else {
            return Ok(());
        };
        Ok(file_image::remove_closed(&self.folder.join(SESSIONS))?)
    }

    fn lock(&self, how: FlockOperation) -> Result<File> {
        files::make_folder(&self.folder)?;
        let file = open_lock(&self.folder.join("lock"))?;
        flock(&file, how).map_err(io::Error::from)?;
        Ok(file)
    }
}

/// Whether a folder has at most so many bytes and files.
fn is_small(folder: &Path, max_bytes: u64, max_files: usize) -> bool {
    let (mut bytes, mut count) = (0, 0);
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                waiting.push(entry.path());
                continue;
            }
            bytes += meta.len();
            count += 1;
            if bytes > max_bytes || count > max_files {
                return false;
            }
        }
    }
    true
}

/// How much a folder holds, and when anything in it was last written.
fn size_and_age(folder: &Path) -> (u64, SystemTime) {
    let (mut bytes, mut newest) = (0, SystemTime::UNIX_EPOCH);
    let is_real = folder.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let mut waiting: Vec<PathBuf> = is_real.then(|| folder.to_owned()).into_iter().collect();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                waiting.push(entry.path());
            }
            bytes += meta.len();
            newest = newest.max(meta.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        }
    }
    (bytes, newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(checkout: &Path, kind: ChildKind, in_workspace: bool) -> CacheRequest<'_> {
        CacheRequest {
            kind,
            in_workspace,
            fill: CacheFill::Nothing,
            has_layers: false,
            checkout,
        }
    }

    #[test]
    fn sessions_share_one_and_verdicts_begin_with_another() {
        let temp = tempfile::tempdir().unwrap();
        let checkout = temp.path().join("checkouts/a");
        fs::create_dir_all(&checkout).unwrap();
        let caches = ProjectCaches::at(temp.path());
        let session = caches
            .for_child(request(&checkout, ChildKind::Session, true))
            .unwrap();
        fs::write(session.folder.join("npm/x"), "session").unwrap();
        let folder = session.folder.clone();
        drop(session);
        let setup = caches
            .for_child(request(&checkout, ChildKind::Setup, true))
            .unwrap();
        assert_eq!(setup.folder, folder);
        assert!(folder.join("npm/x").exists());
        drop(setup);

        let base = CacheRequest {
            fill: CacheFill::Setup,
            ..request(&checkout, ChildKind::Setup, false)
        };
        let base = caches.for_child(base).unwrap();
        assert_ne!(base.folder, folder);
        fs::write(base.folder.join("npm/y"), "base").unwrap();
        drop(base);
        let verdict = |kind, before: &str, now: &str| {
            let verdict = caches.for_child(request(&checkout, kind, false)).unwrap();
            let place = verdict.folder.join("npm/y");
            assert_eq!(fs::read_to_string(&place).unwrap(), before);
            assert!(!verdict.folder.join("npm/x").exists());
            fs::write(&place, now).unwrap();
            drop(verdict);
            assert_eq!(place.exists(), kind == ChildKind::Setup);
        };
        verdict(ChildKind::Guard, "base", "guard");
        // What setup writes is there for the guards that follow, and for no other setup.
        verdict(ChildKind::Setup, "base", "setup");
        verdict(ChildKind::Guard, "setup", "guard");
        verdict(ChildKind::Guard, "setup", "guard");
        verdict(ChildKind::Setup, "setup", "its second part");
        ProjectCaches::begin_setup(&checkout).unwrap();
        verdict(ChildKind::Setup, "base", "setup again");
        assert_eq!(
            fs::read_to_string(temp.path().join("caches/verdicts/npm/y")).unwrap(),
            "base"
        );
    }

    #[test]
    fn the_oldest_go_first_and_nothing_while_in_use() {
        let temp = tempfile::tempdir().unwrap();
        let checkout = temp.path().join("c");
        fs::create_dir(&checkout).unwrap();
        let caches = ProjectCaches::at(temp.path());
        let session = caches
            .for_child(request(&checkout, ChildKind::Session, true))
            .unwrap();
        for (name, age) in [("npm", 300), ("pip", 200), ("uv", 100)] {
            let path = session.folder.join(name).join("x");
            fs::write(&path, vec![0; 100_000]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 - age);
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let in_use = caches.shrink(0, false).unwrap();
        assert!(in_use.is_empty(), "{in_use:?}");
        caches.forget_sessions().unwrap();
        assert!(session.folder.exists());
        let folder = session.folder.clone();
        drop(session);
        let limit = 250_000;
        let removed = caches.shrink(limit, true).unwrap();
        assert!(folder.join("npm/x").exists());
        assert!(
            removed.iter().any(|(path, _)| path.ends_with("npm")),
            "{removed:?}"
        );
        caches.shrink(limit, false).unwrap();
        assert!(!folder.join("npm").exists());
        assert!(folder.join("uv/x").exists());
        caches.forget_sessions().unwrap();
        assert!(!folder.exists());
    }
}
