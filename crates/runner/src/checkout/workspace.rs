//! Workspaces: where the sessions of a run work, and beside each the clean checkout that the
//! run's guard judges candidates in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::paths;
use runner_exec::Cancel;

use super::indexed_tree::KeptFiles;
use super::{
    Checkout, CheckoutHome, CleanCheckout, OBJECTS, VERDICTS, WORKSPACES, beside, quarantine,
};
use crate::error::Result;
use crate::files;
use crate::git::{BorrowedRepo, Git, PendingStatus};
use crate::run::refs::RunRefs;
use crate::step::file_image;

/// How long processes that are about to end may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The folders of the runs of a project, opened when they are needed and held while this lives.
#[derive(Debug, Default)]
pub(crate) struct RunPlaces {
    /// The folders of a fleet's task run lie with those of the fleet's project.
    given: Option<GivenPlace>,
    source: RefCell<Option<BorrowedRepo>>,
    /// Where the folders of a run are: they stay there while this lives.
    homes: RefCell<BTreeMap<String, CheckoutHome>>,
    workspaces: RefCell<BTreeMap<String, Rc<RunWorkspace>>>,
    verdicts: RefCell<BTreeMap<String, Rc<Checkout>>>,
    /// Whether the user's checkout could not follow, which is told once.
    is_behind: Cell<bool>,
    /// The user's repository without filters, and what was last seen of a run's references.
    quiet_git: RefCell<Option<Git>>,
    /// A look at the user's checkout that was begun, for when it is to follow.
    asked_status: RefCell<Option<PendingStatus>>,
    seen_refs: RefCell<Option<(String, RunRefs)>>,
}

/// A place that was chosen by the caller.
#[derive(Clone, Debug)]
pub(crate) struct GivenPlace {
    pub(crate) home: CheckoutHome,
    /// Instead of the run's id.
    pub(crate) name: String,
    /// The project at whose path the folders are seen.
    pub(crate) project: Git,
    /// The commit whose tests are the original ones: an earlier attempt may have changed those that
    /// the run begins with.
    pub(crate) base: Option<String>,
}

/// A folder in which sessions work.
#[derive(Debug)]
pub(crate) struct RunWorkspace {
    pub(crate) checkout: Checkout,
}

impl RunPlaces {
    /// Places that the caller has chosen.
    pub(crate) fn given(place: GivenPlace) -> Self {
        RunPlaces {
            given: Some(place),
            ..RunPlaces::default()
        }
    }

    /// The workspace of a run, as it was left, or empty.
    pub(crate) fn workspace(&self, git: &Git, run_id: &str, tip: &str) -> Result<Rc<RunWorkspace>> {
        if let Some(open) = self.workspaces.borrow().get(run_id) {
            return Ok(open.clone());
        }
        let checkout = self.open(git, WORKSPACES, run_id, tip)?;
        let opened = Rc::new(RunWorkspace { checkout });
        let mut known = self.workspaces.borrow_mut();
        known.insert(run_id.to_owned(), opened.clone());
        Ok(opened)
    }

    /// The clean checkout that is kept for a run, as it was left, or empty.
    pub(crate) fn verdicts(&self, git: &Git, run_id: &str, tip: &str) -> Result<Rc<Checkout>> {
        if let Some(open) = self.verdicts.borrow().get(run_id) {
            return Ok(open.clone());
        }
        let opened = Rc::new(self.open(git, VERDICTS, run_id, tip)?);
        let mut known = self.verdicts.borrow_mut();
        known.insert(run_id.to_owned(), opened.clone());
        Ok(opened)
    }

    /// The same, unless no verdict has been made in it yet.
    pub(crate) fn verdicts_if_made(
        &self,
        git: &Git,
        run_id: &str,
        tip: &str,
    ) -> Option<Rc<Checkout>> {
        let (home, name) = self.home(git, run_id, tip).ok()?;
        let folder = home.checkout_folder(VERDICTS, &name);
        folder.symlink_metadata().ok()?;
        self.verdicts(git, run_id, tip).ok()
    }

    /// A clean checkout of a commit, for once.
    pub(crate) fn clean_checkout(
        &self,
        git: &Git,
        run_id: &str,
        commit: &str,
    ) -> Result<CleanCheckout> {
        let (home, name) = self.home(git, run_id, commit)?;
        self.hold_new_objects(git, &home, &name)?;
        home.clean_checkout(&self.user_project(git), self.source(git)?, commit)
    }

    /// Removes the folders of a run that has ended.
    pub(crate) fn remove(&self, git: &Git, run_id: &str, tip: &str) -> Result<()> {
        self.workspaces.borrow_mut().remove(run_id);
        self.verdicts.borrow_mut().remove(run_id);
        let (home, name) = self.home(git, run_id, tip)?;
        git.forget_new_objects();
        *self.source.borrow_mut() = None;
        let text = git.file_at(tip, paths::CONFIG)?.unwrap_or_default();
        let config = Config::parse(&String::from_utf8_lossy(&text)).unwrap_or_default();
        home.caches().shrink(config.sandbox.cache_limit, false)?;
        for kind in [WORKSPACES, VERDICTS] {
            home.remove_checkout((kind, &name), &Cancel::new()?, LIMIT)?;
        }
        Ok(())
    }

    /// The project that the user works in: the one of these runs, or the fleet's.
    pub(crate) fn user_project(&self, git: &Git) -> Git {
        let given = self.given.as_ref().map(|given| &given.project);
        given.unwrap_or(git).clone()
    }

    /// The commit whose tests are the original ones, where that is not the one that began the run.
    pub(crate) fn base_of_tests(&self) -> Option<String> {
        self.given.as_ref().and_then(|given| given.base.clone())
    }

    /// The repository for calls that look at the user's checkout (see [`Git::without_filters`]).
    pub(crate) fn quiet_git(&self, git: &Git) -> Result<Git> {
        if let Some(known) = &*self.quiet_git.borrow()
            && known.root() == git.root()
        {
            return Ok(known.clone());
        }
        let quiet = git.without_filters()?;
        *self.quiet_git.borrow_mut() = Some(quiet.clone());
        Ok(quiet)
    }

    /// Keeps in mind where the references of a run stood a moment ago.
    pub(crate) fn note_refs(&self, run_id: &str, refs: RunRefs) {
        *self.seen_refs.borrow_mut() = Some((run_id.to_owned(), refs));
    }

    /// The same, once.
    pub(crate) fn take_refs(&self, run_id: &str) -> Option<RunRefs> {
        let seen = self.seen_refs.borrow_mut().take();
        seen.filter(|(of, _)| of == run_id).map(|(_, refs)| refs)
    }

    /// Begins to look at the user's checkout. What is seen is used a moment later, or not at all.
    pub(crate) fn begin_look(&self, git: &Git) {
        let asked = self.quiet_git(git).and_then(|quiet| quiet.ask_status());
        *self.asked_status.borrow_mut() = asked.ok();
    }

    /// The look that was begun, once.
    pub(crate) fn take_look(&self) -> Option<PendingStatus> {
        self.asked_status.borrow_mut().take()
    }

    /// Whether the user's checkout was last seen behind its run.
    pub(crate) fn was_behind(&self) -> bool {
        self.is_behind.get()
    }

    /// Takes note of that.
    pub(crate) fn note_behind(&self, is_behind: bool) {
        self.is_behind.set(is_behind);
    }

    fn open(&self, git: &Git, kind: &str, run_id: &str, tip: &str) -> Result<Checkout> {
        let (home, name) = self.home(git, run_id, tip)?;
        self.hold_new_objects(git, &home, &name)?;
        // A fleet's task run is not seen where it lies, but where its project does.
        let seen = self.given.as_ref().map_or(git, |given| &given.project);
        let mut checkout = home.open(seen, (kind, &name), self.source(git)?)?;
        checkout.closed.push(git.root().to_owned());
        Ok(checkout)
    }

    /// Finds what a run has written and nothing leads to yet.
    pub(crate) fn find_new_objects(&self, git: &Git, run_id: &str, tip: &str) -> Result<()> {
        let (home, name) = self.home(git, run_id, tip)?;
        self.hold_new_objects(git, &home, &name)
    }

    /// Candidates are written to a folder that lives as long as the workspace: the index over that
    /// leads to them.
    fn hold_new_objects(&self, git: &Git, home: &CheckoutHome, name: &str) -> Result<()> {
        let folder = beside(&home.checkout_folder(WORKSPACES, name), OBJECTS);
        if !quarantine::are_folders(&folder, &["info", "pack"]) {
            quarantine::set_aside(&folder)?;
        }
        if git.hold_new_objects(&folder)? {
            // What was looked at before does not know of it.
            *self.source.borrow_mut() = None;
        }
        Ok(())
    }

    /// The home of a run's folders, and what they are called there.
    pub(crate) fn home(
        &self,
        git: &Git,
        run_id: &str,
        tip: &str,
    ) -> Result<(CheckoutHome, String)> {
        if let Some(given) = &self.given {
            return Ok((given.home.clone(), given.name.clone()));
        }
        if let Some(known) = self.homes.borrow().get(run_id) {
            return Ok((known.clone(), run_id.to_owned()));
        }
        let text = git.file_at(tip, paths::CONFIG)?.unwrap_or_default();
        let config = Config::parse(&String::from_utf8_lossy(&text)).unwrap_or_default();
        let home = CheckoutHome::of_project(git, &config)?;
        let mut known = self.homes.borrow_mut();
        known.insert(run_id.to_owned(), home.clone());
        Ok((home, run_id.to_owned()))
    }

    /// The same for all folders: what the project's repository says changes rarely.
    fn source(&self, git: &Git) -> Result<BorrowedRepo> {
        if let Some(source) = &*self.source.borrow() {
            return Ok(source.clone());
        }
        let source = BorrowedRepo::of(git)?;
        *self.source.borrow_mut() = Some(source.clone());
        Ok(source)
    }
}

impl RunWorkspace {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.checkout.path()
    }

    /// Makes the files those of a commit; what git ignores stays for the agent.
    pub(crate) fn bring_to(&self, commit: &str) -> Result<()> {
        self.checkout.tree.bring_to(commit, KeptFiles::Ignored)
    }

    /// The folder in which a session finds what only it needs, and leaves its report.
    pub(crate) fn session_folder(&self, run_id: &str, iter: u32) -> PathBuf {
        self.checkout.project.iteration(run_id, iter)
    }

    /// Clears away what an earlier session left for the runner, and writes `.git` anew. Where that
    /// cannot be done, the workspace is made anew of what can be taken back.
    pub(crate) fn begin_session(
        &self,
        run_id: &str,
        iter: u32,
        branch: &str,
        tip: &str,
    ) -> Result<()> {
        let begun = self.make_ready(run_id, iter, branch, tip);
        let own = self.path().join(paths::ROOT);
        let is_odd = match &begun {
            Ok(()) => quarantine::holds_foreign(&own),
            Err(_) => quarantine::holds_foreign(self.path()),
        };
        if !is_odd {
            return begun;
        }
        quarantine::take_back(self.path())?;
        self.bring_to(tip)?;
        self.make_ready(run_id, iter, branch, tip)
    }

    /// After a session that removed the workspace itself, or put something else in its place: a
    /// folder that is gone says nothing about its files.
    pub(crate) fn after_agent(&self, commit: &str) -> Result<()> {
        let meta = self.path().symlink_metadata();
        if meta.is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        quarantine::make_anew(self.path())?;
        self.bring_to(commit)
    }

    fn make_ready(&self, run_id: &str, iter: u32, branch: &str, tip: &str) -> Result<()> {
        let project = &self.checkout.project;
        let iterations = project.iterations();
        file_image::remove_closed(&iterations)?;
        files::make_local_folder(&iterations)?;
        files::make_folder(&self.session_folder(run_id, iter))?;
        files::make_folder(&project.root().join(paths::NODES_DIR))?;
        self.checkout.tree.write_git(Some(branch), tip)
    }
}
