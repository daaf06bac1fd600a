//! Beginning a run: an id, a branch, a first commit.

mod base;
mod elsewhere;
mod filtered;
mod free_id;
mod named;
mod stay;
mod undo;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::goal::Goal;
use runner_core::message;
use runner_core::paths::{self, DenyList};
use runner_core::run_state::RunState;
use runner_core::tree::{self, Node};
use serde_json::json;

use crate::checkout::workspace::RunPlaces;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{self, Git, GitIdentity, GitStatus};
use crate::lock::ProjectLock;
use crate::programs;
use crate::project::Project;
use crate::proof_key;
use crate::run::current::{self, CurrentRun};
use crate::run::recover;
use crate::run_context::{RunContext, RunProgress};
use crate::state::log::EventLog;
use crate::state::runs::{RunBase, base_of, full_name};
use crate::state::{self, ProjectState};
use crate::step::containment::{Containment, ContainmentChoice};
use crate::step::{self, StepContext, branch_of};
pub use base::GuardAtBase;
pub(crate) use elsewhere::runs_elsewhere;
use elsewhere::{away, take_up};
use free_id::{commit_of_branch, free_id};
pub use named::go_to_run;
pub(crate) use undo::StartUndo;

/// How to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// Whether setup and guard are tried where a new run begins, which does not begin where they
    /// cannot run.
    pub check_guard: bool,
    /// Whether the checkout stays where it is instead of going to the run's branch.
    pub stay: bool,
}

/// What `start` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartReport {
    /// The run.
    pub run_id: String,
    /// Its branch.
    pub branch: String,
    /// What it began from.
    pub base: String,
    /// Whether a commit was made.
    pub committed: bool,
    /// Whether the run is a new one.
    pub new_run: bool,
    /// What the guard said where a new run begins.
    pub guard_at_base: GuardAtBase,
}

/// Begins the run that GOAL.md describes, or takes it up again.
pub fn start(
    project: &Project,
    options: StartOptions,
    context: &mut RunContext<'_>,
) -> Result<StartReport> {
    Git::check_version()?;
    Git::open(project.root())?;
    let _lock = ProjectLock::take(project)?;
    let containment = ContainmentChoice::default();
    let git = Git::open(project.root())?.without_scripts()?;
    {
        let mut context = StepContext {
            project,
            git: &git,
            run: context,
            containment: &containment,
            places: &RunPlaces::default(),
        };
        recover::recover(&mut context)?;
    }
    let runs = away(project, &git)?;
    if !runs.is_empty() {
        let report = take_up(&git, &runs, options.stay)?;
        note_current(&git, &report, options.stay)?;
        return Ok(report);
    }
    let state = state::load(project)?;
    if state.goal.is_template() {
        context.observer.progress(&RunProgress::Note(
            "GOAL.md is still the template: agents will find nothing to do in it",
        ));
    }
    let contained = containment.for_config(&state.config)?;
    if let Some(note) = contained.note(&state.config) {
        context.observer.progress(&RunProgress::Note(&note));
    }
    if let Some(note) = programs::missing_agent_in_words(&state.config, project.root()) {
        context.observer.progress(&RunProgress::Note(&note));
    }
    filtered::tell(&git, context)?;
    let tried = options.check_guard.then_some(&contained);
    let (report, nameless) = begin(project, &git, &state, tried, options.stay, context)?;
    note_current(&git, &report, options.stay)?;
    if nameless {
        context.observer.progress(&RunProgress::Note(git::NAMELESS));
    }
    if report.committed && report.new_run {
        let folder = project.run_folder(&report.run_id);
        let commit = commit_of_branch(&git, &report.branch).ok().flatten();
        let more = json!({"run_id": report.run_id, "branch": report.branch, "commit": commit});
        // The run has begun, whether or not the log of events hears of it.
        let _ = files::make_folder(&folder).and_then(|()| {
            EventLog::of(&folder).add(&context.clock.stamp(), None, "run_started", more)
        });
    }
    Ok(report)
}

/// Writes down which run commands in this work tree are about.
fn note_current(git: &Git, report: &StartReport, stay: bool) -> Result<()> {
    let on_branch = current::on_branch(git)?.as_deref() == Some(&report.run_id);
    let current = CurrentRun {
        run_id: report.run_id.clone(),
        stay: stay && !on_branch,
    };
    current.save(git)
}

/// Makes the run's branch and commit; on the way out of an error everything is
/// put back as it was. Also says whether git knew no name to commit with.
fn begin(
    project: &Project,
    git: &Git,
    state: &ProjectState,
    tried: Option<&Containment>,
    stay: bool,
    context: &mut RunContext<'_>,
) -> Result<(StartReport, bool)> {
    let status = git.status()?;
    let chosen = state.goal.id();
    loop {
        let run_id = match chosen {
            Some(id) => id.to_owned(),
            None => free_id(git, status.head.as_deref(), state)?,
        };
        let branch = branch_of(&run_id);
        let mut begin = Begin {
            project,
            git,
            state,
            status: &status,
            branch: &branch,
            run_id: &run_id,
            undo: StartUndo::take(git)?,
            nameless: false,
            stay,
            tried,
            guard_at_base: GuardAtBase::Skipped,
            is_refused: false,
            context: &mut *context,
        };
        match begin.run() {
            Ok(report) => return Ok((report, begin.nameless)),
            Err(error) => {
                if !begin.is_refused {
                    begin.undo.undo(project, git);
                }
                // A run that began at the same moment in another work tree took the name.
                let taken = chosen.is_none() && commit_of_branch(git, &branch)?.is_some();
                if !taken {
                    return Err(error);
                }
            }
        }
    }
}

/// Only `.runner/` may have uncommitted changes.
fn check_outside(status: &GitStatus) -> Result<()> {
    let mut outside = status.clone();
    outside
        .entries
        .retain(|entry| !paths::is_state_path(entry.path.as_os_str().as_bytes()));
    if outside.is_clean() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Dirty,
        format!(
            "there are uncommitted changes outside .runner/:\n{}",
            step::list_entries(&outside)
        ),
    )
    .hint("commit, stash or ignore them first: a run begins from a clean work tree"))
}

/// Branch and commit that a run began from, if that can be told.
pub(crate) fn base_at(git: &Git, run_id: &str, tip: &str) -> Option<RunBase> {
    base_of(git, run_id, tip).ok().flatten()
}

struct Begin<'a, 'c> {
    project: &'a Project,
    git: &'a Git,
    state: &'a ProjectState,
    /// Before anything was done.
    status: &'a GitStatus,
    branch: &'a str,
    run_id: &'a str,
    undo: StartUndo,
    nameless: bool,
    /// The checkout stays where it is.
    stay: bool,
    /// The containment to try the guard in, if it is to be tried.
    tried: Option<&'a Containment>,
    guard_at_base: GuardAtBase,
    /// Whether it ends before anything was written: then there is nothing to put back, and what
    /// a person did meanwhile stays.
    is_refused: bool,
    context: &'a mut RunContext<'c>,
}

impl Begin<'_, '_> {
    fn run(&mut self) -> Result<StartReport> {
        let here = self.status.branch.as_deref();
        let Some(head) = &self.status.head else {
            return self.first_branch();
        };
        check_outside(self.status)?;
        let tip = commit_of_branch(self.git, self.branch)?;
        match tip {
            _ if here == Some(self.branch) => self.on_its_branch(head),
            // Free when it was chosen: another work tree has just begun the run of that name.
            Some(_) if self.state.goal.id().is_none() => {
                self.is_refused = true;
                Err(Error::new(
                    ErrorCode::Identity,
                    format!("another start took the name {} meanwhile", self.branch),
                )
                .hint("run `runner start` again"))
            }
            Some(tip) => self.go_to_branch(head, &tip),
            None => self.new_branch(here.unwrap_or("HEAD"), head),
        }
    }

    fn report(&self, base: &str, committed: bool, new_run: bool) -> StartReport {
        StartReport {
            run_id: self.run_id.to_owned(),
            branch: self.branch.to_owned(),
            base: base.to_owned(),
            committed,
            new_run,
            guard_at_base: self.guard_at_base,
        }
    }

    /// A repository without a commit gets one with everything that is not
    /// ignored and not the runner's; both branches appear at once.
    fn first_branch(&mut self) -> Result<StartReport> {
        let denied = self.denied_files()?;
        if !denied.is_empty() {
            return Err(Error::new(
                ErrorCode::Dirty,
                format!(
                    "the repository has no commit yet, and these files must not go into the first one:\n{}",
                    denied.join("\n")
                ),
            )
            .hint("add them to .gitignore or move them away ([commit] in the config says which files)"));
        }
        let first = self.with_index(Self::first_commit)?;
        self.try_base(&first)?;
        self.write_files(true)?;
        let base = self.status.branch.as_deref().unwrap_or("HEAD");
        let commit = self.make_commit(base, &first)?;
        // First the index: a start that is killed from here on finds it fitting,
        // whether it finds a commit or not.
        let here = if self.stay { &first } else { &commit };
        self.git.write(&["read-tree", here])?;
        let mut refs = vec![(full_name(self.branch), commit)];
        if base != self.branch {
            refs.push((full_name(base), first));
        }
        self.check_out(&refs)?;
        Ok(self.report(base, true, true))
    }

    fn first_commit(&mut self, index: &Path) -> Result<String> {
        // What the user has staged goes in, also what is ignored.
        if let Some(staged) = &self.undo.index {
            files::write_whole(index, staged)?;
        }
        let env = [("GIT_INDEX_FILE", index.as_os_str())];
        let add = ["add", "--all", "--", ".", ":(exclude).runner"];
        self.git.write_with(&add, None, &env)?;
        let forget = [
            "rm",
            "-r",
            "-q",
            "--cached",
            "--ignore-unmatch",
            "--",
            ".runner",
        ];
        self.git.write_with(&forget, None, &env)?;
        self.commit_index(index, None, "chore: first commit\n")
    }

    fn denied_files(&self) -> Result<Vec<String>> {
        let rules = &self.state.config.commit;
        let deny = DenyList::new(&rules.deny)
            .map_err(|error| Error::new(ErrorCode::Config, format!("[commit] deny: {error}")))?;
        let is_large = |path: &Path| {
            let meta = self.git.root().join(path).symlink_metadata();
            meta.is_ok_and(|meta| meta.is_file() && meta.len() > rules.max_file_bytes)
        };
        Ok(self
            .status
            .entries
            .iter()
            .filter(|entry| {
                let bytes = entry.path.as_os_str().as_bytes();
                !paths::is_state_path(bytes)
                    && (deny.denied_by(bytes).is_some() || is_large(&entry.path))
            })
            .map(|entry| format!("  {}", entry.name()))
            .collect())
    }

    /// A new run from what is checked out.
    fn new_branch(&mut self, base: &str, head: &str) -> Result<StartReport> {
        self.check_name()?;
        self.try_base(head)?;
        self.write_files(true)?;
        let _held = self.git.hold_new_objects_for_now()?;
        let commit = self.make_commit(base, head)?;
        self.check_out(&[(full_name(self.branch), commit)])?;
        Ok(self.report(base, true, true))
    }

    /// Makes these branches, all or none, and attaches HEAD to the first.
    fn check_out(&mut self, refs: &[(String, String)]) -> Result<()> {
        let orders: Vec<String> = refs
            .iter()
            .map(|(name, commit)| format!("create {name} {commit}\n"))
            .collect();
        let orders = orders.concat();
        let made = self.git.update_refs("runner: start", &orders);
        // Where git says no it has made none; then a branch of that name is not ours.
        if made
            .as_ref()
            .err()
            .is_none_or(|error| error.code != ErrorCode::Git)
        {
            for (name, commit) in refs {
                self.undo.made_ref(name, commit);
            }
        }
        made?;
        let full = full_name(self.branch);
        if self.stay {
            return stay::leave(self.project, self.git, &full);
        }
        self.git.write(&["symbolic-ref", "HEAD", &full])?;
        self.git.write(&["reset", "--quiet"])?;
        Ok(())
    }

    /// A branch `runner` leaves no room for `runner/<id>`.
    fn check_name(&self) -> Result<()> {
        if commit_of_branch(self.git, "runner")?.is_none() {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Git,
            format!(
                "a branch `runner` is in the way: git cannot have {} beside it",
                self.branch
            ),
        )
        .hint("rename it: `git branch -m runner something-else`"))
    }

    /// `start` on the run's own branch: commits what a person changed in
    /// `.runner/`, or does nothing.
    fn on_its_branch(&mut self, head: &str) -> Result<StartReport> {
        let new_run = self.state.run_state.run_id.as_deref() != Some(self.run_id);
        let begun = base_at(self.git, self.run_id, head);
        let base = begun.map_or_else(|| self.branch.to_owned(), |base| base.branch);
        if self.status.is_clean() && !new_run {
            return Ok(self.report(&base, false, false));
        }
        if new_run {
            self.try_base(head)?;
        }
        self.write_files(new_run)?;
        let full = full_name(self.branch);
        let _held = self.git.hold_new_objects_for_now()?;
        let commit = self.make_commit(&base, head)?;
        let nothing_new = self.git.tree_of(&commit)? == self.git.tree_of(head)?;
        if !nothing_new {
            self.undo.moved_ref(&full, &commit, head);
            let orders = format!("update {full} {commit} {head}\n");
            self.git.update_refs("runner: start", &orders)?;
        }
        // A start that was killed may have left no more than an old index.
        self.git.write(&["reset", "--quiet"])?;
        Ok(self.report(&base, !nothing_new, new_run))
    }

    /// The run exists on another branch: go there.
    fn go_to_branch(&mut self, head: &str, tip: &str) -> Result<StartReport> {
        let base = base_at(self.git, self.run_id, tip)
            .map(|base| base.branch)
            .unwrap_or_default();
        let full = full_name(self.branch);
        let just_begun = self.git.line(&["log", "-1", "--format=%P", tip])? == head;
        if just_begun && self.same_as(tip)? {
            // A start that was killed after it had made the branch.
            self.git.write(&["symbolic-ref", "HEAD", &full])?;
            self.git.write(&["reset", "--quiet"])?;
            return Ok(self.report(&base, true, true));
        }
        if self.stay {
            return Ok(self.report(&base, false, false));
        }
        let words = format!(
            "run {} exists already on branch {}",
            self.run_id, self.branch
        );
        if !self.status.is_clean() {
            return Err(Error::new(
                ErrorCode::Identity,
                format!("{words}, and .runner/ here has changes that going there would lose"),
            )
            .hint(format!(
                "to take that run up again: `runner start {}`; \
                 for a new run: remove the id from .runner/GOAL.md",
                self.run_id
            )));
        }
        self.git.check_out(&[self.branch]).map_err(|error| {
            Error::new(
                ErrorCode::Identity,
                format!("{words}, but it cannot be checked out: {}", error.message),
            )
            .hint("for a new run: remove the id from .runner/GOAL.md")
        })?;
        Ok(self.report(&base, false, false))
    }

    /// Whether `.runner/` in the work tree is what the commit has.
    fn same_as(&self, commit: &str) -> Result<bool> {
        for path in [paths::GOAL, paths::RUN_STATE, paths::TREE, paths::CONFIG] {
            let there = self.git.file_at(commit, path)?;
            let here = files::read_regular(&self.project.root().join(path), tree::MAX_BYTES).ok();
            if there != here {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the id, and for a new run a fresh tree and bookkeeping.
    fn write_files(&mut self, new_run: bool) -> Result<()> {
        if self.state.goal.id() != Some(self.run_id) {
            let goal = self.state.goal.with_id(self.run_id);
            self.put(paths::GOAL, goal.as_bytes())?;
        }
        if new_run {
            let tree = self.first_tree()?;
            self.put(paths::TREE, &tree)?;
            let run_state = RunState::new(Some(self.run_id.to_owned()));
            self.put(paths::RUN_STATE, &run_state.to_bytes())?;
        }
        Ok(())
    }

    fn put(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.undo.keep_file(self.project, path)?;
        Ok(files::write_whole(&self.project.root().join(path), bytes)?)
    }

    /// One open leaf from GOAL.md; a plan that a person wrote before the first
    /// start is kept, and one that is invalid is not thrown away in silence.
    fn first_tree(&self) -> Result<Vec<u8>> {
        if self.state.run_state.run_id.is_none()
            && let Ok(bytes) = state::tree_bytes(self.project)
        {
            let root =
                state::check_tree(&bytes).map_err(|findings| step::invalid_tree(&findings))?;
            if !root.is_leaf() {
                return Ok(tree::to_bytes(&root));
            }
        }
        let root = root_of(&self.state.goal, self.state.config.max_attempts_default);
        Ok(tree::to_bytes(&root))
    }

    /// The commit of `.runner/` on top of `parent`.
    fn make_commit(&mut self, base: &str, parent: &str) -> Result<String> {
        // For a second start: where the first one began.
        let begun = base_at(self.git, self.run_id, parent)
            .map_or_else(|| parent.to_owned(), |base| base.commit);
        let key = proof_key::of_machine().ok().map(|key| key.public().value());
        let message = message::start_message(self.run_id, base, &begun, key.as_deref());
        self.commit_state(parent, &message)
    }

    /// A commit of `.runner/` as it lies there; no branch moves.
    fn commit_state(&mut self, parent: &str, message: &str) -> Result<String> {
        self.with_index(|begin, index| {
            let env = [("GIT_INDEX_FILE", index.as_os_str())];
            let git = begin.git;
            git.write_with(&["read-tree", parent], None, &env)?;
            git.write_with(
                &[
                    "add",
                    "--all",
                    "--force",
                    "--sparse",
                    "--",
                    ".runner",
                    ":(exclude).runner/iterations",
                    ":(exclude).runner/context",
                    ":(exclude).runner/fleet",
                    ":(exclude,glob).runner/**/*.runner-tmp",
                ],
                None,
                &env,
            )?;
            begin.commit_index(index, Some(parent), message)
        })
    }

    /// Does something with an index of its own: the user's is not touched
    /// before everything is settled.
    fn with_index(
        &mut self,
        act: impl FnOnce(&mut Self, &Path) -> Result<String>,
    ) -> Result<String> {
        let index = self.git.git_dir().join("runner-start-index");
        let _ = std::fs::remove_file(&index);
        let made = act(self, &index);
        let _ = std::fs::remove_file(&index);
        made
    }

    /// A commit of what an index holds; no branch moves.
    fn commit_index(
        &mut self,
        index: &Path,
        parent: Option<&str>,
        message: &str,
    ) -> Result<String> {
        let env = [("GIT_INDEX_FILE", index.as_os_str())];
        let tree = self.git.write_with(&["write-tree"], None, &env)?;
        let tree = String::from_utf8_lossy(tree.trim_ascii_end()).into_owned();
        let parents: Vec<&str> = parent.into_iter().collect();
        let (identity, commit) = self.git.commit_tree(&tree, &parents, message)?;
        self.nameless |= identity == GitIdentity::Runner;
        Ok(commit)
    }
}

/// The first tree of a run.
pub(crate) fn root_of(goal: &Goal, max_attempts: u32) -> Node<'static> {
    Node::leaf(
        "root",
        goal.title(),
        goal.body().trim().to_owned(),
        max_attempts,
    )
}
