//! Preparing checkouts that are used more than once: what was done is written down beside them,
//! and done again only where its inputs have changed.

use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths::FolderGlobs;
use serde::{Deserialize, Serialize};

use super::made_files::MadeFiles;
use super::{FreshCheckout, PrepareReport, fill_submodules, prepare, setup_key};
use crate::checkout::indexed_tree::KeptFiles;
use crate::checkout::trial::{self, GuardTrial, SetupEnd, not_started};
use crate::checkout::{Checkout, MADE, beside};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, PendingProof, PendingWrite, SUBMODULE};
use crate::run_context::RunContext;
use crate::step::containment::Containment;
use crate::step::file_image;

/// The file that says what was done.
pub(crate) const PREPARED: &str = "prepared.json";

/// The largest such file.
const MAX_BYTES: u64 = 16 << 20;

/// What was done to a checkout.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PreparedState {
    /// What setup depended on; `None`: there was nothing to set up.
    setup_key: Option<String>,
    /// Whether children saw the checkout at the project's own path: what setup makes, and what is
    /// copied, may name the path.
    #[serde(default)]
    has_mounts: bool,
    /// The last commit in a workspace with which setup worked.
    #[serde(default)]
    commit: Option<String>,
    /// What lay there afterwards beside the files of the commit.
    made: Vec<String>,
    /// Submodules that were filled.
    submodules: Vec<PathBuf>,
    /// The commits that submodules were at, as `commit path`.
    #[serde(default)]
    links: Vec<String>,
    /// Files of the user's that were copied.
    #[serde(default)]
    included: Vec<PathBuf>,
}

/// What was begun for a clean checkout that is kept, while something else was done.
pub(crate) struct WarmStart {
    /// Whether the candidate is what its name says.
    proof: PendingProof,
    /// What earlier verdicts left is being removed.
    cleaned: Option<PendingWrite>,
}

/// Whoever prepares a checkout.
pub(crate) struct CheckoutPreparer<'a, 'h> {
    /// The user's project, whose ignored files and submodules are taken.
    pub(crate) user: &'a Git,
    /// The repository that has the commit.
    pub(crate) git: &'a Git,
    pub(crate) config: &'a Config,
    pub(crate) containment: &'a Containment,
    pub(crate) context: &'a mut RunContext<'h>,
    /// What setup has printed, each time that it ran.
    pub(crate) setup_log: Vec<u8>,
}

/// Takes away everything but the files of a commit; what that lacks is made again at the next use.
pub(crate) fn empty(checkout: &Checkout, commit: &str) -> Result<()> {
    files::remove_if_there(&beside(checkout.path(), MADE).join(PREPARED))?;
    checkout.tree.bring_to(commit, KeptFiles::NONE)
}

impl CheckoutPreparer<'_, '_> {
    /// Makes what a workspace at a commit lacks. What is returned is how setup failed.
    pub(crate) fn workspace(
        &mut self,
        checkout: &Checkout,
        commit: &str,
    ) -> Result<Option<GuardTrial>> {
        let has_mounts = self.containment.has_mounts();
        let mut before = read(checkout);
        if before
            .as_ref()
            .is_some_and(|it| it.has_mounts != has_mounts)
        {
            // It is seen elsewhere now, and what was made in it may name the place.
            checkout.tree.bring_to(commit, KeptFiles::NONE)?;
            before = None;
        }
        let key = setup_key(self.git, commit, self.config)?;
        let links = self.links(checkout, commit)?;
        let is_set_up = before.as_ref().is_some_and(|it| it.setup_key == key);
        if is_set_up && before.as_ref().is_some_and(|it| it.links == links) {
            return Ok(None);
        }
        let is_new = before.is_none();
        let mut state = before.unwrap_or_default();
        if is_new {
            let report = self.prepare(checkout, commit)?;
            state.submodules = report.submodules;
            state.included = report.included;
            keep_submodules(checkout, &state)?;
        } else if state.links != links {
            state.submodules =
                fill_submodules(self.user, self.config, self.fresh(checkout, commit))?;
            keep_submodules(checkout, &state)?;
        }
        state.links = links;
        state.has_mounts = has_mounts;
        if !is_set_up {
            // Whatever it leaves when it fails or is killed is not what it makes.
            state.setup_key = None;
            write(checkout, &state)?;
            if let Some(failed) = self.set_up(checkout, commit)? {
                return Ok(Some(failed));
            }
        }
        state.setup_key = key;
        state.commit = Some(commit.to_owned());
        write(checkout, &state)?;
        Ok(None)
    }

    /// The same with nothing there but the files of the commit.
    pub(crate) fn workspace_anew(
        &mut self,
        checkout: &Checkout,
        commit: &str,
    ) -> Result<Option<GuardTrial>> {
        let last = last_set_up(checkout);
        empty(checkout, commit)?;
        let failed = self.workspace(checkout, commit)?;
        if failed.is_some() {
            // It is still known where it worked.
            let mut state = read(checkout).unwrap_or_default();
            state.commit = last;
            write(checkout, &state)?;
        }
        Ok(failed)
    }

    /// Sets a workspace up for a commit that is checked out only for that.
    pub(crate) fn set_up_again(
        &mut self,
        checkout: &Checkout,
        commit: &str,
    ) -> Result<Option<GuardTrial>> {
        if let Some(failed) = self.set_up(checkout, commit)? {
            return Ok(Some(failed));
        }
        let mut state = read(checkout).unwrap_or_default();
        state.setup_key = setup_key(self.git, commit, self.config)?;
        state.commit = Some(commit.to_owned());
        write(checkout, &state)?;
        Ok(None)
    }

    /// Brings a clean checkout that is kept to a commit: its files, what setup made of it, and
    /// what the config keeps of earlier verdicts; nothing else.
    pub(crate) fn warm(
        &mut self,
        checkout: &Checkout,
        commit: &str,
        begun: WarmStart,
    ) -> Result<Option<GuardTrial>> {
        let tree = &checkout.tree;
        let kept = beside(checkout.path(), MADE);
        let made = MadeFiles::new(checkout.path(), &kept);
        let key = setup_key(self.git, commit, self.config)?;
        let has_mounts = self.containment.has_mounts();
        let is_same = |it: &PreparedState| it.setup_key == key && it.has_mounts == has_mounts;
        let state = read(checkout).filter(is_same);
        begun.proof.answer()?;
        let is_cleaned = begun.cleaned.is_some_and(|it| it.end().is_ok());
        self.remove_unseen(checkout, state.as_ref())?;
        match &state {
            Some(_) if is_cleaned => tree.bring_cleaned_to(commit)?,
            // What setup made of other inputs goes, too.
            _ => {
                let made_before = state.as_ref().map_or(&[][..], |it| &it.made);
                tree.bring_to(commit, kept_files(self.config, made_before))?;
            }
        }
        if let Some(state) = state {
            self.empty_submodules(checkout, commit, &state)?;
            made.restore(&state.made)?;
            if !state.submodules.is_empty() {
                fill_submodules(self.user, self.config, self.fresh(checkout, commit))?;
            }
            tree.write_git(None, commit)?;
            return Ok(None);
        }
        files::remove_if_there(&kept.join(PREPARED))?;
        let report = self.prepare(checkout, commit)?;
        if let Some(failed) = self.set_up(checkout, commit)? {
            return Ok(Some(failed));
        }
        tree.write_git(None, commit)?;
        let others = self.others(checkout, &report)?;
        files::make_folder(&kept)?;
        made.keep(&others)?;
        let state = PreparedState {
            setup_key: key,
            has_mounts,
            commit: None,
            made: others,
            submodules: report.submodules,
            links: Vec::new(),
            included: report.included,
        };
        write(checkout, &state)?;
        Ok(None)
    }

    /// Takes away what git does not clean up: earlier guards ran code of sessions.
    fn remove_unseen(&self, checkout: &Checkout, state: Option<&PreparedState>) -> Result<()> {
        let keep = FolderGlobs::new(&self.config.guard.keep).ok();
        let made = state.map_or(&[][..], |it| &it.made);
        checkout.tree.remove_unseen(&|path| {
            let is_made = made.iter().any(|it| Path::new(it) == path);
            let name = path.to_string_lossy();
            is_made
                || keep
                    .as_ref()
                    .is_some_and(|globs| globs.is_match(name.as_bytes()))
        })
    }

    /// Nothing lies in the folder of a submodule that was not filled.
    fn empty_submodules(
        &self,
        checkout: &Checkout,
        commit: &str,
        state: &PreparedState,
    ) -> Result<()> {
        if checkout
            .path()
            .join(".gitmodules")
            .symlink_metadata()
            .is_err()
        {
            return Ok(());
        }
        let files = self.git.files_of(commit)?;
        for link in files.iter().filter(|entry| entry.mode == SUBMODULE) {
            let is_filled = state.submodules.contains(&link.path);
            if !is_filled && file_image::parents_are_folders(checkout.path(), &link.path) {
                let folder = checkout.path().join(&link.path);
                file_image::remove_closed(&folder)?;
                files::make_folder(&folder)?;
            }
        }
        Ok(())
    }

    /// The submodules of a commit that is checked out.
    fn links(&self, checkout: &Checkout, commit: &str) -> Result<Vec<String>> {
        let listed = checkout.path().join(".gitmodules");
        if !self.config.workspace.submodules || listed.symlink_metadata().is_err() {
            return Ok(Vec::new());
        }
        let files = self.git.files_of(commit)?;
        let links = files.iter().filter(|entry| entry.mode == SUBMODULE);
        Ok(links
            .map(|link| format!("{} {}", link.oid, link.path.display()))
            .collect())
    }

    fn prepare(&self, checkout: &Checkout, commit: &str) -> Result<PrepareReport> {
        let has_mounts = self.containment.has_mounts();
        prepare(
            self.user,
            self.config,
            has_mounts,
            self.fresh(checkout, commit),
        )
    }

    fn fresh<'c>(&'c self, checkout: &'c Checkout, commit: &'c str) -> FreshCheckout<'c> {
        FreshCheckout {
            git: self.git,
            commit,
            folder: checkout.path(),
        }
    }

    /// Makes what a clean checkout that was just made lacks.
    pub(crate) fn cold(&mut self, checkout: &Checkout, commit: &str) -> Result<Option<GuardTrial>> {
        self.prepare(checkout, commit)?;
        let failed = self.set_up(checkout, commit)?;
        checkout.tree.write_git(None, commit)?;
        Ok(failed)
    }

    fn set_up(&mut self, checkout: &Checkout, commit: &str) -> Result<Option<GuardTrial>> {
        if self.config.workspace.setup.is_empty() {
            return Ok(None);
        }
        checkout.tree.write_git(None, commit)?;
        let contained = self.containment.is_on().then_some(self.containment);
        match trial::set_up(checkout, self.user, self.config, contained, self.context)? {
            SetupEnd::Done(log) => self.setup_log.extend(log),
            SetupEnd::Failed(failed) => {
                self.setup_log.extend(&failed.log);
                return Ok(Some(failed));
            }
        }
        Ok(trial::changed_by_setup(checkout, self.config)?.map(not_started))
    }

    /// What lies in a checkout that is neither of the commit nor kept by the config.
    fn others(&self, checkout: &Checkout, report: &PrepareReport) -> Result<Vec<String>> {
        let has_any = !self.config.workspace.setup.is_empty() || !report.included.is_empty();
        if !has_any {
            return Ok(Vec::new());
        }
        let status = checkout.tree.status()?;
        let untracked = status.entries.iter().filter(|entry| entry.untracked);
        let untracked = untracked.map(|entry| &entry.path);
        let keep = FolderGlobs::new(&self.config.guard.keep)
            .map_err(|error| Error::new(ErrorCode::Config, format!("[guard] keep: {error}")))?;
        let is_kept = |path: &str| keep.is_match(path.as_bytes());
        let names = untracked
            .chain(&status.ignored)
            .filter_map(|it| it.to_str());
        Ok(names
            .filter(|path| !is_kept(path) && *path != ".git")
            .map(str::to_owned)
            .collect())
    }
}

/// Keeps a copy of the files of submodules, to compare with what a session leaves.
fn keep_submodules(checkout: &Checkout, state: &PreparedState) -> Result<()> {
    if state.submodules.is_empty() {
        return Ok(());
    }
    let kept = submodule_copies(checkout);
    files::make_folder(&kept)?;
    Ok(MadeFiles::new(checkout.path(), &kept).keep(&names(&state.submodules))?)
}

/// The last commit with which setup worked in a workspace.
pub(crate) fn last_set_up(checkout: &Checkout) -> Option<String> {
    read(checkout)?.commit
}

/// The submodules that were filled in a checkout.
pub(super) fn filled_submodules(checkout: &Checkout) -> Vec<PathBuf> {
    read(checkout).unwrap_or_default().submodules
}

impl WarmStart {
    /// Begins for a candidate that was just made. `known`: the run's last commit, whose objects
    /// were looked through before if anything was. Not the last candidate: nothing keeps that one.
    pub(crate) fn new(
        checkout: &Checkout,
        commit: &str,
        known: &str,
        cleaned: Option<PendingWrite>,
    ) -> Result<Self> {
        let tree = &checkout.tree;
        let proof = tree.ask_proof(commit, tree.head().map(|_| known))?;
        Ok(WarmStart { proof, cleaned })
    }
}

/// Begins to remove what earlier verdicts left in a clean checkout, for a candidate that is still
/// to come. Only when nothing runs any more that could leave something there. `None`: it is
/// removed later.
pub(crate) fn begin_cleaning(checkout: &Checkout, config: &Config) -> Option<PendingWrite> {
    checkout.tree.head()?;
    let state = read(checkout)?;
    let kept = kept_files(config, &state.made);
    checkout.tree.begin_cleaning(kept).ok()
}

/// What stays in a clean checkout beside the files of a commit.
fn kept_files<'a>(config: &'a Config, made: &'a [String]) -> KeptFiles<'a> {
    KeptFiles::Only {
        globs: &config.guard.keep,
        paths: made,
    }
}

/// Undoes what a session changed in submodules; which of them.
pub(super) fn restore_submodules(checkout: &Checkout) -> Result<Vec<String>> {
    let state = read(checkout).unwrap_or_default();
    let kept = submodule_copies(checkout);
    let made = MadeFiles::new(checkout.path(), &kept);
    let mut changed = Vec::new();
    for name in names(&state.submodules) {
        if made.differs(std::slice::from_ref(&name))? {
            changed.push(name);
        }
    }
    if !changed.is_empty() {
        made.make_way(&names(&state.submodules))?;
        made.restore(&names(&state.submodules))?;
    }
    Ok(changed)
}

/// Files of the user's that were copied into a checkout: they belong into no commit.
pub(crate) fn included_files(checkout: &Checkout) -> Vec<PathBuf> {
    read(checkout).unwrap_or_default().included
}

fn submodule_copies(checkout: &Checkout) -> PathBuf {
    beside(checkout.path(), MADE).join("submodules")
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    let names = paths.iter().filter_map(|path| path.to_str());
    names.map(str::to_owned).collect()
}

fn read(checkout: &Checkout) -> Option<PreparedState> {
    let path = beside(checkout.path(), MADE).join(PREPARED);
    let bytes = files::read_regular(&path, MAX_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn write(checkout: &Checkout, state: &PreparedState) -> Result<()> {
    let folder = beside(checkout.path(), MADE);
    files::make_folder(&folder)?;
    // Strings alone: there is nothing that could fail.
    let bytes = serde_json::to_vec(state).unwrap_or_default();
    Ok(files::write_whole(&folder.join(PREPARED), &bytes)?)
}
