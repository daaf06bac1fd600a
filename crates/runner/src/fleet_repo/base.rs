//! The base: where results go, and how the user's own branch comes along.
//!
//! Where a checkout holds the user's branch, results go to `fleet/<branch>` and the branch
//! follows with its checkout as soon as nothing of the user's is in the way.

use std::path::{Path, PathBuf};

use super::FleetRepo;
use super::taken_back::{TakenIn, results_on};
use crate::checkout::trial::some_of;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, GitMergeOutcome, WorkTree};
use crate::land::{PendingLanding, WorkTreeMove, finish_at};
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::state::runs::full_name;

/// How often a branch that somebody else moves is tried again.
const TRIES: usize = 5;

/// Where the base stands, seen from an intended move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseAt {
    /// The new commit is in it.
    New,
    /// It did not move.
    Old,
    /// It moved to something else.
    Elsewhere,
}

/// What became of the user's own branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchUpdate {
    /// It is where the base is, with its checkout.
    UpToDate,
    /// It stays behind; why.
    Behind(String),
}

/// Where results go.
struct BaseTarget {
    branch: String,
    /// It is not there before the first result is: until then the user's own branch is the base.
    is_there: bool,
}

impl FleetRepo {
    /// The commit that results are merged into, with what the user has committed since.
    pub fn base(&self) -> Result<String> {
        Ok(self.with_users_commits()?.0)
    }

    /// Where the base stands.
    pub fn position(&self, old: &str, new: &str) -> Result<BaseAt> {
        let tip = self.target_tip(&self.target()?)?;
        if self.git.commit_of(new)?.is_some() && self.git.is_ancestor(new, &tip)? {
            return Ok(BaseAt::New);
        }
        Ok(if tip == old {
            BaseAt::Old
        } else {
            BaseAt::Elsewhere
        })
    }

    /// Moves the base if it is at `old`. Whether it is at `new` now.
    pub fn move_base(&self, old: &str, new: &str) -> Result<bool> {
        let target = self.target()?;
        let moved = if target.is_there {
            self.move_branch(&target.branch, old, new, "runner: merge")
        } else {
            let order = format!(
                "verify {} {old}\ncreate {} {new}\nupdate {} {old}\n",
                full_name(&self.base),
                full_name(&target.branch),
                self.seen_ref(),
            );
            self.git.update_refs("runner: merge", &order)
        };
        let tip = self.target_tip(&self.target()?)?;
        match moved {
            Err(error) if tip == old => Err(error),
            _ => Ok(tip == new),
        }
    }

    /// Fast-forwards the user's branch, with its checkouts, to where the base is.
    pub fn update_user_branch(&self) -> Result<BranchUpdate> {
        let _lock = self.lock()?;
        let pending = self.fleet_folder().join("present.json");
        if let Err(error) = finish_at(&pending, &self.git) {
            return match error.code {
                ErrorCode::Dirty => Ok(BranchUpdate::Behind(error.message)),
                _ => Err(error),
            };
        }
        let target = self.target()?;
        if !target.is_there || target.branch == self.base {
            return Ok(BranchUpdate::UpToDate);
        }
        let (tip, conflicts) = self.with_users_commits()?;
        if let Some(paths) = conflicts {
            return Ok(BranchUpdate::Behind(self.words_about(&paths)));
        }
        let from = self.tip(&self.base)?;
        if from == tip {
            return Ok(BranchUpdate::UpToDate);
        }
        let trees = self.git.work_trees()?;
        if let Some(place) = trees.iter().find_map(|tree| self.is_busy(tree)) {
            return Ok(BranchUpdate::Behind(format!(
                "a merge or rebase is under way in {}",
                place.display()
            )));
        }
        let mut moves = Vec::new();
        let mut locks = Vec::new();
        for tree in trees.iter().filter(|tree| self.holds_base(tree)) {
            match Self::lock_checkout(&tree.git)? {
                Ok(lock) => locks.extend(lock),
                Err(words) => return Ok(BranchUpdate::Behind(words)),
            }
            let step = WorkTreeMove::follow(&tree.git, &self.base, &from, &tip);
            let blockers = step.blockers(&self.git)?;
            if !blockers.is_empty() {
                return Ok(BranchUpdate::Behind(format!(
                    "{} is checked out in {}, and these files there are in the way: {}",
                    self.base,
                    step.root().display(),
                    some_of(&blockers)
                )));
            }
            moves.push(step);
        }
        let landing = PendingLanding {
            target: self.base.clone(),
            commit: tip.clone(),
            moves,
        };
        landing.save_as(&pending)?;
        for step in &landing.moves {
            // A file that was touched and not changed is no reason for git to stop halfway.
            Git::open(step.root())?.write(&["update-index", "-q", "--refresh"])?;
        }
        let order = format!(
            "update {} {tip} {from}\nupdate {} {tip}\n",
            full_name(&self.base),
            self.seen_ref()
        );
        if let Err(error) = self.git.update_refs("runner: fleet", &order) {
            files::remove_if_there(&pending)?;
            return Ok(BranchUpdate::Behind(error.message));
        }
        for step in &landing.moves {
            if let Err(error) = step.go() {
                let place = step.root().display();
                let why = error.message;
                return Ok(BranchUpdate::Behind(format!(
                    "{place} could not be brought along: {why}"
                )));
            }
        }
        files::remove_if_there(&pending)?;
        Ok(BranchUpdate::UpToDate)
    }

    /// The branch that results are merged into.
    fn target(&self) -> Result<BaseTarget> {
        let ours = format!("fleet/{}", self.base);
        let is_there = self.git.commit_of(&full_name(&ours))?.is_some();
        let trees = self.git.work_trees()?;
        if !is_there && !trees.iter().any(|tree| self.holds_base(tree)) {
            return Ok(BaseTarget {
                branch: self.base.clone(),
                is_there: true,
            });
        }
        if !is_there && self.git.commit_of("refs/heads/fleet")?.is_some() {
            return Err(Error::new(
                ErrorCode::Git,
                format!("a branch `fleet` is in the way: git cannot have {ours} beside it"),
            )
            .hint("rename it: `git branch -m fleet something-else`"));
        }
        Ok(BaseTarget {
            branch: ours,
            is_there,
        })
    }

    fn target_tip(&self, target: &BaseTarget) -> Result<String> {
        let branch = if target.is_there {
            &target.branch
        } else {
            &self.base
        };
        self.tip(branch)
    }

    /// Where the user's branch was when it was last taken in.
    fn seen_ref(&self) -> String {
        format!("refs/runner/seen/{}", self.base)
    }

    fn holds_base(&self, tree: &WorkTree) -> bool {
        tree.branch.as_deref() == Some(&self.base)
    }

    fn tip(&self, branch: &str) -> Result<String> {
        self.git.commit_of(&full_name(branch))?.ok_or_else(|| {
            Error::new(
                ErrorCode::NotFound,
                format!("there is no branch {branch:?} any more"),
            )
            .hint("name another one in [fleet] base, or make it again")
        })
    }

    fn move_branch(&self, branch: &str, old: &str, new: &str, reason: &str) -> Result<()> {
        let order = format!("update {} {new} {old}\n", full_name(branch));
        self.git.update_refs(reason, &order)
    }

    /// The base's commit, after the user's own commits were taken in; the files in which
    /// they do not fit, if so. No file: they have no commit in common.
    fn with_users_commits(&self) -> Result<(String, Option<Vec<String>>)> {
        let target = self.target()?;
        if !target.is_there || target.branch == self.base {
            return Ok((self.target_tip(&target)?, None));
        }
        let target = target.branch;
        let _held = self.git.hold_new_objects_for_now()?;
        for _ in 0..TRIES {
            // Read first: whoever writes it has moved the branch before.
            let seen = self.git.commit_of(&self.seen_ref())?;
            let ours = self.tip(&target)?;
            let theirs = self.tip(&self.base)?;
            let is_seen = seen.as_ref() == Some(&theirs);
            if ours == theirs || (is_seen && self.git.is_ancestor(&theirs, &ours)?) {
                self.note_seen(seen.as_deref(), &theirs);
                return Ok((ours, None));
            }
            if self.git.ask(&["merge-base", &ours, &theirs])?.is_none() {
                return Ok((ours, Some(Vec::new())));
            }
            let taken_back = match &seen {
                Some(seen) if !self.git.is_ancestor(seen, &theirs)? => Some(seen),
                _ => None,
            };
            let taken_in = match taken_back {
                Some(seen) => results_on(&self.git, seen, &ours, &theirs)?,
                None => self.merged(&target, &ours, &theirs)?,
            };
            let new = match taken_in {
                TakenIn::Clean(new) => new,
                TakenIn::Conflicts(paths) => return Ok((ours, Some(paths))),
            };
            let mut orders = Vec::new();
            if taken_back.is_some() {
                let short = ours.get(..12).unwrap_or(&ours);
                orders.push(format!("update refs/runner/lost/fleet/{short} {ours}\n"));
            }
            if new != ours {
                orders.push(format!("update {} {new} {ours}\n", full_name(&target)));
            }
            if orders.is_empty()
                || self
                    .git
                    .update_refs("runner: the user's commits", &orders.concat())
                    .is_ok()
            {
                self.note_seen(seen.as_deref(), &theirs);
                return Ok((new, None));
            }
        }
        Err(Error::new(
            ErrorCode::Git,
            format!("{target} keeps being moved by somebody else"),
        ))
    }

    /// Both branches in one commit.
    fn merged(&self, target: &str, ours: &str, theirs: &str) -> Result<TakenIn> {
        if self.git.is_ancestor(theirs, ours)? {
            return Ok(TakenIn::Clean(ours.to_owned()));
        }
        if self.git.is_ancestor(ours, theirs)? {
            return Ok(TakenIn::Clean(theirs.to_owned()));
        }
        Ok(match self.git.merge_commits(ours, theirs)? {
            GitMergeOutcome::Clean(tree) => {
                let secs = self.git.secs_of(ours)?.max(self.git.secs_of(theirs)?);
                let message = format!("Merge branch '{}' into {target}\n", self.base);
                let parents = [ours, theirs];
                TakenIn::Clean(
                    self.git
                        .commit_tree_like(theirs, secs, &tree, &parents, &message)?,
                )
            }
            GitMergeOutcome::Conflicts(paths) => TakenIn::of_conflicts(&paths),
        })
    }

    /// Writes down where the user's branch was. Somebody else may have done so at the same moment.
    fn note_seen(&self, before: Option<&str>, commit: &str) {
        if before != Some(commit) {
            let before = before.map_or_else(|| "0".repeat(commit.len()), str::to_owned);
            let order = format!("update {} {commit} {before}\n", self.seen_ref());
            let _ = self.git.update_refs("runner: taken note of", &order);
        }
    }

    fn words_about(&self, paths: &[String]) -> String {
        if paths.is_empty() {
            return format!(
                "{0} was begun anew and has no commit in common with fleet/{0}; rename \
                 fleet/{0} to begin there: `git branch -m fleet/{0} fleet-{0}-before`",
                self.base
            );
        }
        format!(
            "{0} and fleet/{0} both changed {1}; merge them by hand: \
             `git switch {0} && git merge fleet/{0}`",
            self.base,
            some_of(paths)
        )
    }

    /// Where somebody is in the middle of something with the base.
    fn is_busy(&self, tree: &WorkTree) -> Option<PathBuf> {
        let busy = tree.git.is_rebasing(&full_name(&self.base))
            || (self.holds_base(tree) && !tree.git.operations().is_empty());
        busy.then(|| tree.git.root().to_owned())
    }

    /// A runner may be at work where the base is checked out.
    fn lock_checkout(git: &Git) -> Result<std::result::Result<Option<ProjectLock>, String>> {
        let project = Project::at(git.root().to_owned());
        if !Path::new(&project.runner_dir()).is_dir() {
            return Ok(Ok(None));
        }
        match ProjectLock::take(&project) {
            Ok(lock) => Ok(Ok(Some(lock))),
            Err(error) if error.code == ErrorCode::Locked => Ok(Err(error.message)),
            Err(error) => Err(error),
        }
    }
}
