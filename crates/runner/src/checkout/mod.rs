//! Checkouts: folders outside the project in which sessions and guards work. Each has a private
//! index over it, a repository in it that borrows the project's objects, and a lock beside it that
//! says whether anybody is there.

pub(crate) mod caches;
pub(crate) mod check;
pub(crate) mod clean;
pub(crate) mod guard_changes;
pub(crate) mod home_view;
pub(crate) mod indexed_tree;
pub(crate) mod junit_reports;
pub(crate) mod known_roots;
pub(crate) mod made_files;
pub(crate) mod missing_variable;
pub(crate) mod prepare;
pub(crate) mod project_paths;
pub(crate) mod quarantine;
pub(crate) mod root;
mod setup_code;
pub(crate) mod setup_parts;
pub(crate) mod temp_folder;
pub(crate) mod trial;
pub(crate) mod workspace;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runner_core::config::Config;
use runner_exec::{Cancel, wait_until_unlocked};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::fleet_repo::TaskRunName;
use crate::fleet_repo::keys::fleet_folders;
use crate::git::{BorrowedRepo, FilterUse, Git};
use crate::lock;
use crate::project::Project;
use caches::{CacheFill, ProjectCaches};
use indexed_tree::{INDEX, IndexedTree, KeptFiles};
use project_paths::ProjectPaths;
use root::WorkspaceRoot;
use temp_folder::TempFolder;

/// How long the processes of a killed fleet may take to be gone.
pub(crate) const ORPHANS: Duration = Duration::from_secs(15);

/// The ending of the file that says who is there, and is locked while that is so.
pub(crate) const LOCK: &str = "lock";

/// The ending of the file that supervisors hold locked.
pub(crate) const SESSION: &str = "session";

/// The ending of the folder that keeps what setup made.
pub(crate) const MADE: &str = "made";

/// The ending of the folder with objects of a run that nothing leads to yet.
pub(crate) const OBJECTS: &str = "objects";

/// The ending of the folder with what a verdict changed in caches.
pub(crate) const LAYER: &str = "layer";

/// The ending of the folder with what setup changed in them, which the verdict's guard sees.
pub(crate) const SETUP_LAYER: &str = "setup-layer";

/// The ending of the folder that the agent of a session has for itself.
pub(crate) const AGENT: &str = "agent";

/// The folder of clean checkouts below a home.
pub(crate) const CHECKOUTS: &str = "checkouts";
/// How the folder begins that has the repositories of the task runs of one fleet.
pub(crate) const TASK_RUNS: &str = "task-runs-";

/// The folder of workspaces below a home, by run.
pub(crate) const WORKSPACES: &str = "workspaces";

/// The folder of clean checkouts that are kept while a run lives, by run.
pub(crate) const VERDICTS: &str = "verdicts";

/// A checkout that is in use, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Checkout {
    pub(crate) project: Project,
    pub(crate) tree: IndexedTree,
    /// What supervisors hold while anything of theirs is alive.
    pub(crate) session_lock: PathBuf,
    /// What nothing that runs in it may write to: the project that it was made of, and the
    /// folders around it.
    pub(crate) closed: Vec<PathBuf>,
    /// What nothing that runs in it may look into, where that can be: workspaces, checkouts and keys
    /// of this and of other projects, and what belongs to fleets.
    pub(crate) hidden: Vec<PathBuf>,
    /// Where the project lies.
    pub(crate) project_paths: ProjectPaths,
    /// The caches of the project.
    pub(crate) caches: ProjectCaches,
    /// Whether what runs in it may fill the cache of verdicts.
    pub(crate) cache_fill: Cell<CacheFill>,
    /// Whether sessions work in it.
    pub(crate) is_workspace: bool,
    seen_at: PathBuf,
    checkout_lock: CheckoutLock,
}

impl Checkout {
    /// The index over a folder as it lies there; no lock is taken, and nothing is looked at.
    pub(crate) fn look(git: &Git, folder: &Path) -> Result<IndexedTree> {
        IndexedTree::open(BorrowedRepo::of(git)?, folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.project.root()
    }

    /// The path of the project that it was made of, at which it is mounted where that can be.
    pub(crate) fn seen_at(&self) -> &Path {
        &self.seen_at
    }
}

/// A repository of its own for a task run of a fleet, for as long as this lives.
#[derive(Debug)]
pub(crate) struct TaskRunFolder {
    pub(crate) project: Project,
    _lock: CheckoutLock,
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

/// A folder in which checkouts are made, by kind and name.
#[derive(Clone, Debug)]
pub(crate) struct CheckoutHome {
    folder: PathBuf,
    lock: PathBuf,
}

impl CheckoutHome {
    /// The home in a folder, whose moments are ordered by a lock.
    pub(crate) fn new(folder: PathBuf, lock: PathBuf) -> Self {
        CheckoutHome { folder, lock }
    }

    /// The private home of the project that a repository belongs to.
    pub(crate) fn of_project(git: &Git, config: &Config) -> Result<Self> {
        let root = WorkspaceRoot::of(git, config)?;
        let folder = root.folder().to_owned();
        let lock = folder.join(LOCK);
        Ok(CheckoutHome::new(folder, lock))
    }

    /// The caches of the project.
    pub(crate) fn caches(&self) -> ProjectCaches {
        ProjectCaches::at(&self.folder)
    }

    /// Held for moments in which folders change hands, by whichever process.
    fn take_lock(&self) -> Result<File> {
        let file = open_lock(&self.lock)?;
        flock(&file, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        Ok(file)
    }

    /// A commit, and nothing else, in a checkout that is removed with this value. What dead
    /// processes left is removed on the way.
    pub(crate) fn clean_checkout(
        &self,
        git: &Git,
        source: BorrowedRepo,
        commit: &str,
    ) -> Result<CleanCheckout> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        self.sweep_checkouts(&Cancel::new()?, Duration::ZERO)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let checkout = self.open(git, (CHECKOUTS, &name), source)?;
        let clean = CleanCheckout {
            checkout,
            home: self.clone(),
            project: git.clone(),
            commit: commit.to_owned(),
            is_set_up: Cell::new(false),
        };
        let tree = &clean.checkout.tree;
        tree.ask_proof(commit, None)?.answer()?;
        tree.bring_to(commit, KeptFiles::NONE)?;
        tree.write_git(None, commit)?;
        Ok(clean)
    }

    /// A checkout of a kind and a name as it is, or an empty one.
    pub(crate) fn open(
        &self,
        git: &Git,
        (kind, name): (&str, &str),
        source: BorrowedRepo,
    ) -> Result<Checkout> {
        let (folder, checkout_lock) = self.take_folder(kind, name)?;
        quarantine::finish(&folder)?;
        if folder
            .symlink_metadata()
            .is_ok_and(|meta| !is_own_folder(&meta))
        {
            // Nothing but a session puts anything else in its place.
            quarantine::make_anew(&folder)?;
        }
        make_real_folder(&folder)?;
        let root = git.root();
        Ok(Checkout {
            closed: self.closed_for(git),
            hidden: self.hidden(git),
            project_paths: root::project_paths(git, &self.folder),
            caches: self.caches(),
            cache_fill: Cell::default(),
            is_workspace: kind == WORKSPACES,
            session_lock: beside(&folder, SESSION),
            seen_at: root
                .canonicalize()
                .map_err(|error| files::at(root, error))?,
            tree: IndexedTree::open(source, &folder)?,
            project: Project::at(folder),
            checkout_lock,
        })
    }

    /// The private folders of this and of all other projects, and what belongs to fleets.
    fn hidden(&self, git: &Git) -> Vec<PathBuf> {
        let mut hidden = known_roots::closed_to_children(self.folder.parent(), git.root());
        hidden.push(self.folder.clone());
        hidden.extend(fleet_folders(&[git.common_dir().to_owned()]));
        hidden
    }

    /// What nothing that runs in a checkout may write to: the project, and the home around the
    /// checkout with those of other projects.
    fn closed_for(&self, git: &Git) -> Vec<PathBuf> {
        let mut closed = vec![
            git.root().to_owned(),
            git.common_dir().to_owned(),
            self.folder.clone(),
        ];
        closed.extend(self.folder.parent().map(Path::to_owned));
        closed
    }

    /// A repository of its own for a task run, with a commit checked out; whatever a dead owner
    /// left there is removed.
    pub(crate) fn task_run_folder(
        &self,
        git: &Git,
        (kind, name): (&str, &str),
        owner: &TaskRunName,
        commit: &str,
    ) -> Result<TaskRunFolder> {
        let (folder, checkout_lock) = self.take_folder(kind, name)?;
        // Strings and a number: there is nothing that could fail.
        let text = serde_json::to_vec(owner).unwrap_or_default();
        std::fs::write(beside(&folder, LOCK), text)?;
        quarantine::remove_or_set_aside(&folder)?;
        files::make_folder(&folder)?;
        git.borrow_into(&folder, commit, FilterUse::Kept)?;
        Ok(TaskRunFolder {
            project: Project::at(folder),
            _lock: checkout_lock,
        })
    }

    /// Takes the lock of a folder in which nobody is at work any more.
    fn take_folder(&self, kind: &str, name: &str) -> Result<(PathBuf, CheckoutLock)> {
        let folder = self.checkout_folder(kind, name);
        let Some(checkout_lock) = self.take_checkout_lock(&folder)? else {
            return Err(Error::new(
                ErrorCode::Locked,
                format!("somebody is at work in {}", folder.display()),
            )
            .hint(format!(
                "`fuser {}` names them; wait, or end them, then try again",
                beside(&folder, LOCK).display()
            )));
        };
        if !checkout_lock.is_quiet(&Cancel::new()?, ORPHANS)? {
            return Err(Error::new(
                ErrorCode::Locked,
                format!("processes are still alive in {}", folder.display()),
            )
            .hint(format!(
                "`fuser {}` names them; end them, then try again",
                beside(&folder, SESSION).display()
            )));
        }
        Ok((folder, checkout_lock))
    }

    pub(crate) fn checkout_folder(&self, kind: &str, name: &str) -> PathBuf {
        self.folder.join(kind).join(name)
    }

    /// Takes the lock of a checkout if it is free.
    fn take_checkout_lock(&self, folder: &Path) -> Result<Option<CheckoutLock>> {
        let _lock = self.take_lock()?;
        if let Some(kind) = folder.parent() {
            make_real_folder(kind)?;
        }
        // A session that nothing contains reaches them; what is no file was never locked.
        for ending in [LOCK, SESSION] {
            quarantine::only_file(&beside(folder, ending))?;
        }
        let file = open_lock(&beside(folder, LOCK))?;
        let free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(free.then(|| CheckoutLock {
            folder: folder.to_owned(),
            _lock: file,
        }))
    }

    /// Removes a checkout and all that is beside it.
    fn clear(&self, checkout_lock: &CheckoutLock) -> Result<()> {
        for folder in [
            checkout_lock.folder.clone(),
            beside(&checkout_lock.folder, INDEX),
            beside(&checkout_lock.folder, MADE),
            beside(&checkout_lock.folder, OBJECTS),
            beside(&checkout_lock.folder, LAYER),
            beside(&checkout_lock.folder, SETUP_LAYER),
            beside(&checkout_lock.folder, AGENT),
        ] {
            quarantine::remove_or_set_aside(&folder)?;
        }
        TempFolder::remove_left(&checkout_lock.folder);
        // Whoever opens a lock does so while holding this one: nobody is left with a file
        // that has no name any more.
        let _lock = self.take_lock()?;
        for ending in [SESSION, LOCK] {
            files::remove_if_there(&beside(&checkout_lock.folder, ending))?;
        }
        Ok(())
    }

    /// The file whose lock orders moments.
    pub(crate) fn lock_path(&self) -> &Path {
        &self.lock
    }

    /// The lock of a checkout in which nobody, and nothing that somebody started, is at work.
    pub(crate) fn take_quiet(
        &self,
        (kind, name): (&str, &str),
        cancel: &Cancel,
        limit: Duration,
    ) -> Result<Option<CheckoutLock>> {
        let checkout_lock = self.take_checkout_lock(&self.checkout_folder(kind, name))?;
        match checkout_lock {
            Some(checkout_lock) if checkout_lock.is_quiet(cancel, limit)? => {
                Ok(Some(checkout_lock))
            }
            _ => Ok(None),
        }
    }

    /// Removes a checkout unless somebody is at work there. Whether it is gone.
    pub(crate) fn remove_checkout(
        &self,
        named: (&str, &str),
        cancel: &Cancel,
        limit: Duration,
    ) -> Result<bool> {
        let Some(checkout_lock) = self.take_quiet(named, cancel, limit)? else {
            return Ok(false);
        };
        self.clear(&checkout_lock)?;
        Ok(true)
    }

    /// Whether nobody is at work in a checkout.
    pub(crate) fn is_free(
        &self,
        named: (&str, &str),
        cancel: &Cancel,
        limit: Duration,
    ) -> Result<bool> {
        Ok(self.take_quiet(named, cancel, limit)?.is_some())
    }

    /// Removes the clean checkouts of processes that are no more.
    pub(crate) fn sweep_checkouts(&self, cancel: &Cancel, limit: Duration) -> Result<()> {
        for name in self.names_in(CHECKOUTS) {
            if self.remove_checkout((CHECKOUTS, &name), cancel, limit)? {
                // Those hold nothing of a session's; what stays is for `runner clean` to tell.
                quarantine::remove_kept(&self.checkout_folder(CHECKOUTS, &name));
            }
        }
        Ok(())
    }

    /// The kinds whose names begin like this.
    pub(crate) fn kinds(&self, beginning: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.starts_with(beginning)).collect()
    }

    /// The checkouts of a kind that have a folder or a lock.
    pub(crate) fn names_in(&self, kind: &str) -> BTreeSet<String> {
        let folder = self.folder.join(kind);
        let is_real = folder.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let entries = is_real.then(|| std::fs::read_dir(folder).ok()).flatten();
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| {
                if let Some(checkout) = quarantine::checkout_of(&name) {
                    return checkout.to_owned();
                }
                let ending = name.rsplit_once('.');
                match ending {
                    Some((
                        folder,
                        LOCK | SESSION | INDEX | MADE | OBJECTS | LAYER | SETUP_LAYER | AGENT,
                    )) => folder.to_owned(),
                    _ => name,
                }
            })
            .collect()
    }
}

/// A checkout of a commit that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct CleanCheckout {
    pub(crate) checkout: Checkout,
    home: CheckoutHome,
    /// The project that it was made of.
    project: Git,
    commit: String,
    is_set_up: Cell<bool>,
}

impl CleanCheckout {
    /// A clean checkout in the private home of a project.
    pub(crate) fn of(git: &Git, config: &Config, commit: &str) -> Result<Self> {
        let source = BorrowedRepo::of(git)?;
        CheckoutHome::of_project(git, config)?.clean_checkout(git, source, commit)
    }

    /// The project that it was made of.
    pub(crate) fn user(&self) -> &Git {
        &self.project
    }

    /// Gives it what its commit lacks beside what setup makes.
    fn prepare(&self, config: &Config, has_mounts: bool) -> Result<()> {
        let fresh = prepare::FreshCheckout {
            git: &self.project,
            commit: &self.commit,
            folder: self.path(),
        };
        prepare::prepare(&self.project, config, has_mounts, fresh).map(drop)
    }

    /// Makes a link to somewhere else beside it. `None`: something is there.
    pub(crate) fn link_beside(&self, name: &str, to: &Path) -> Result<Option<BesideLink>> {
        let path = self.home.checkout_folder(CHECKOUTS, name);
        let Some(lock) = self.home.take_checkout_lock(&path)? else {
            return Ok(None);
        };
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let link = BesideLink {
            home: self.home.clone(),
            lock,
        };
        std::os::unix::fs::symlink(to, &path).map_err(|error| files::at(&path, error))?;
        Ok(Some(link))
    }

    /// Whether its setup has succeeded.
    fn is_set_up(&self) -> bool {
        self.is_set_up.get()
    }

    fn note_setup(&self) {
        self.is_set_up.set(true);
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.checkout.project.root()
    }
}

/// A link beside a clean checkout, for as long as this lives.
#[derive(Debug)]
pub(crate) struct BesideLink {
    home: CheckoutHome,
    lock: CheckoutLock,
}

impl Drop for BesideLink {
    fn drop(&mut self) {
        // What stays is for the next sweep.
        let _ = self.home.clear(&self.lock);
    }
}

impl Drop for CleanCheckout {
    fn drop(&mut self) {
        // What stays is for the next sweep.
        let _ = self.home.clear(&self.checkout.checkout_lock);
    }
}

/// A file beside a folder, named after it.
pub(crate) fn beside(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    folder.with_file_name(name)
}

/// The file to lock. A link or a pipe in its place is neither followed nor waited for.
pub(crate) fn open_lock(path: &Path) -> Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(
        path,
        flags,
        Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH,
    )
    .map(File::from)
    .map_err(io::Error::from);
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Err(error) if is_plain(path) => Err(files::at(path, error).into()),
        _ => Err(not_ours(path, "a regular file")),
    }
}

/// Whether a file or nothing is there, or something that cannot even be looked at.
fn is_plain(path: &Path) -> bool {
    path.symlink_metadata().map_or(true, |meta| meta.is_file())
}

/// Makes a folder if there is none; refuses what is none, such as a link to one.
pub(crate) fn make_real_folder(folder: &Path) -> Result<()> {
    match folder.symlink_metadata() {
        Ok(meta) if is_own_folder(&meta) => Ok(()),
        Ok(_) => Err(not_ours(folder, "a folder of yours")),
        Err(_) => Ok(files::make_folder(folder)?),
    }
}

/// Whether this is a folder, and not a link to one, of this user.
fn is_own_folder(meta: &Metadata) -> bool {
    meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw()
}

fn not_ours(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorCode::Layout,
        format!("{} is not {what}", path.display()),
    )
    .hint(format!(
        "look at what it is, and move it away (`mv '{0}' '{0}.aside'`): the runner makes it again",
        path.display()
    ))
}
