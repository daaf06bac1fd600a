//! A checkout: a folder with a repository of its own that borrows the project's
//! objects, and a lock beside it that says whether anybody is there.

pub(crate) mod check;
pub(crate) mod trial;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runner_exec::{Cancel, wait_until_unlocked};
use rustix::fs::{FlockOperation, flock};

use super::fleet_repo::{CHECKOUTS, FleetRepo, TaskRunName, open_lock};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::lock;
use crate::project::Project;

/// How long the processes of a killed fleet may take to be gone.
pub(crate) const ORPHANS: Duration = Duration::from_secs(15);

/// The ending of the file that says who is there, and is locked while that is so.
pub(crate) const LOCK: &str = "lock";

/// The ending of the file that supervisors hold locked.
pub(crate) const SESSION: &str = "session";

/// A checkout that is in use, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Checkout {
    pub(crate) project: Project,
    pub(crate) git: Git,
    /// What supervisors hold while anything of theirs is alive.
    pub(crate) session_lock: PathBuf,
    checkout_lock: CheckoutLock,
}

/// The lock of a checkout; the folder itself may not be there yet, or no more.
#[derive(Debug)]
pub(crate) struct CheckoutLock {
    folder: PathBuf,
    _lock: File,
}

impl CheckoutLock {
    /// Whether nothing of an earlier owner is alive in it.
    pub(crate) fn is_quiet(&self, cancel: &Cancel, limit: Duration) -> Result<bool> {
        let project = Project::at(self.folder.clone());
        let mut locks = vec![beside(&self.folder, SESSION)];
        if project.iterations().is_dir() {
            locks.push(lock::session_lock(&project)?);
        }
        for path in locks {
            if !wait_until_unlocked(&path, cancel, limit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl FleetRepo {
    /// A commit in a checkout that is removed with this value.
    pub(crate) fn clean_checkout(&self, commit: &str) -> Result<CleanCheckout<'_>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        self.sweep_checkouts(&Cancel::new()?, Duration::ZERO)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        Ok(CleanCheckout {
            checkout: self.checkout(CHECKOUTS, &name, None, commit)?,
            repo: self,
        })
    }

    /// A commit in a new checkout; whatever a dead owner left there is removed.
    pub(crate) fn checkout(
        &self,
        kind: &str,
        name: &str,
        owner: Option<&TaskRunName>,
        commit: &str,
    ) -> Result<Checkout> {
        let folder = self.checkout_folder(kind, name);
        let Some(checkout_lock) = self.take_checkout_lock(&folder)? else {
            return Err(Error::new(
                ErrorCode::Locked,
                format!("somebody is at work in {}", folder.display()),
            ));
        };
        if let Some(owner) = owner {
            // Strings and a number: there is nothing that could fail.
            let text = serde_json::to_vec(owner).unwrap_or_default();
            std::fs::write(beside(&folder, LOCK), text)?;
        }
        if !checkout_lock.is_quiet(&Cancel::new()?, ORPHANS)? {
            return Err(Error::new(
                ErrorCode::Locked,
                format!("processes are still alive in {}", folder.display()),
            ));
        }
        files::remove_if_there(&folder)?;
        files::make_folder(&folder)?;
        let git = self.git.borrow_into(&folder, commit)?;
        Ok(Checkout {
            session_lock: beside(&folder, SESSION),
            project: Project::at(folder),
            git,
            checkout_lock,
        })
    }

    pub(crate) fn checkout_folder(&self, kind: &str, name: &str) -> PathBuf {
        self.fleet_folder().join(kind).join(name)
    }

    /// Takes the lock of a checkout if it is free.
    pub(crate) fn take_checkout_lock(&self, folder: &Path) -> Result<Option<CheckoutLock>> {
        let _lock = self.lock()?;
        if let Some(kind) = folder.parent() {
            files::make_folder(kind)?;
        }
        let file = open_lock(&beside(folder, LOCK))?;
        let free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(free.then(|| CheckoutLock {
            folder: folder.to_owned(),
            _lock: file,
        }))
    }

    /// Removes a checkout and all that is beside it.
    pub(crate) fn clear(&self, checkout_lock: &CheckoutLock) -> Result<()> {
        files::remove_if_there(&checkout_lock.folder)?;
        // Whoever opens a lock does so while holding this one: nobody is left with a file
        // that has no name any more.
        let _lock = self.lock()?;
        for ending in [SESSION, LOCK] {
            files::remove_if_there(&beside(&checkout_lock.folder, ending))?;
        }
        Ok(())
    }
}

/// A checkout that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct CleanCheckout<'w> {
    repo: &'w FleetRepo,
    pub(crate) checkout: Checkout,
}

impl Drop for CleanCheckout<'_> {
    fn drop(&mut self) {
        // What stays is for the next sweep.
        let _ = self.repo.clear(&self.checkout.checkout_lock);
    }
}

/// A file beside a folder, named after it.
pub(crate) fn beside(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    folder.with_file_name(name)
}
