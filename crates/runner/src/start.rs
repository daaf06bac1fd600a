//! Beginning a run: an id, a branch, a first commit.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use runner_core::digest::sha256_hex;
use runner_core::goal::Goal;
use runner_core::message;
use runner_core::paths::{self, DenyList};
use runner_core::run_state::RunState;
use runner_core::tree::{self, Node};
use serde_json::json;

use crate::error::{Code, Error, Result};
use crate::files;
use crate::git::{Git, Identity, Status};
use crate::host::{Host, Progress};
use crate::image::Image;
use crate::lock::Lock;
use crate::log::Events;
use crate::project::Project;
use crate::recover;
use crate::state::{self, State};
use crate::step::{self, Workplace, branch_of};

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
}

/// Begins the run that GOAL.md describes, or takes it up again.
pub fn start(project: &Project, host: &mut Host<'_>) -> Result<StartReport> {
    Git::check_version()?;
    let git = Git::open(project.root())?;
    let _lock = Lock::take(project)?;
    {
        let mut place = Workplace {
            project,
            git: &git,
            host,
        };
        recover::recover(&mut place)?;
    }
    let state = state::load(project)?;
    if state.goal.is_template() {
        host.observer.progress(&Progress::Note(
            "GOAL.md is still the template: agents will find nothing to do in it",
        ));
    }
    let mut status = git.status()?;
    if status.head.is_none() {
        first_commit(&git, &state, &status, host)?;
        status = git.status()?;
    }
    check_outside(&status)?;
    let head = status.head.clone().unwrap_or_default();
    let here = status.branch.clone();
    let run_id = match state.goal.id() {
        Some(id) => id.to_owned(),
        None => free_id(&git, &head, &state)?,
    };
    let branch = branch_of(&run_id);
    let started = Begin {
        project,
        git: &git,
        state: &state,
        run_id: &run_id,
        branch: &branch,
        head: &head,
    };
    let exists = git.commit_of(&format!("refs/heads/{branch}"))?;
    let report = match exists {
        _ if here.as_deref() == Some(&branch) => started.on_its_branch(&status)?,
        Some(tip) => started.go_to_branch(&tip, &status)?,
        None => {
            let base = here.clone().unwrap_or_else(|| "HEAD".to_owned());
            started.new_branch(&base)?
        }
    };
    if report.committed && report.new_run {
        let events = Events::of(&project.run_folder(&run_id));
        files::make_folder(&project.run_folder(&run_id))?;
        let _ = events.add(
            &host.clock.stamp(),
            None,
            "run_started",
            json!({"run_id": run_id, "branch": branch}),
        );
    }
    Ok(report)
}

/// `run-<sha8>`, with a number where that branch exists already.
fn free_id(git: &Git, head: &str, state: &State) -> Result<String> {
    let sha = if head.is_empty() {
        sha256_hex(state.goal.body().as_bytes())
    } else {
        head.to_owned()
    };
    let base = format!("run-{}", &sha[..8.min(sha.len())]);
    let mut number = 1;
    loop {
        let id = if number == 1 {
            base.clone()
        } else {
            format!("{base}-{number}")
        };
        if git
            .commit_of(&format!("refs/heads/{}", branch_of(&id)))?
            .is_none()
        {
            return Ok(id);
        }
        number += 1;
    }
}

/// A repository without a commit gets one with everything that is not ignored
/// and not the runner's.
fn first_commit(git: &Git, state: &State, status: &Status, host: &mut Host<'_>) -> Result<()> {
    let deny = DenyList::new(&state.config.commit.deny)
        .map_err(|error| Error::new(Code::Config, format!("[commit] deny: {error}")))?;
    let denied: Vec<String> = status
        .entries
        .iter()
        .filter(|entry| !paths::is_state_path(entry.path.as_os_str().as_bytes()))
        .filter(|entry| {
            let large = git
                .root()
                .join(&entry.path)
                .symlink_metadata()
                .is_ok_and(|meta| {
                    meta.is_file() && meta.len() > state.config.commit.max_file_bytes
                });
            large || deny.denied_by(entry.path.as_os_str().as_bytes()).is_some()
        })
        .map(|entry| format!("  {}", entry.name()))
        .collect();
    if !denied.is_empty() {
        return Err(Error::new(
            Code::Dirty,
            format!(
                "the repository has no commit yet, and these files must not go into the first one:\n{}",
                denied.join("\n")
            ),
        )
        .hint("add them to .gitignore or move them away ([commit] in the config says which files)"));
    }
    let index = SavedIndex::take(git)?;
    let result = git
        .write(&["add", "--all", "--", ".", ":(exclude).runner"])
        .and_then(|_| git.commit("chore: first commit\n"));
    match result {
        Ok(identity) => {
            if identity == Identity::Runner {
                host.observer.progress(&Progress::Note(
                    "git knows no name and email here: committed as runner <runner@localhost>",
                ));
            }
            Ok(())
        }
        Err(error) => {
            index.put_back(git);
            Err(error)
        }
    }
}

/// Only `.runner/` may have uncommitted changes.
fn check_outside(status: &Status) -> Result<()> {
    let mut outside = status.clone();
    outside
        .entries
        .retain(|entry| !paths::is_state_path(entry.path.as_os_str().as_bytes()));
    if outside.is_clean() {
        return Ok(());
    }
    Err(Error::new(
        Code::Dirty,
        format!(
            "there are uncommitted changes outside .runner/:\n{}",
            step::list_entries(&outside)
        ),
    )
    .hint("commit, stash or ignore them first: a run begins from a clean work tree"))
}

struct Begin<'a> {
    project: &'a Project,
    git: &'a Git,
    state: &'a State,
    run_id: &'a str,
    branch: &'a str,
    head: &'a str,
}

impl Begin<'_> {
    fn report(&self, base: &str, committed: bool, new_run: bool) -> StartReport {
        StartReport {
            run_id: self.run_id.to_owned(),
            branch: self.branch.to_owned(),
            base: base.to_owned(),
            committed,
            new_run,
        }
    }

    /// A new run from what is checked out.
    fn new_branch(&self, base: &str) -> Result<StartReport> {
        let written = self.write_files(true)?;
        let index = SavedIndex::take(self.git)?;
        let full = format!("refs/heads/{}", self.branch);
        let old_head = std::fs::read(self.git.git_dir().join("HEAD")).unwrap_or_default();
        let result = self
            .make_commit(base, self.head)
            .and_then(|commit| {
                self.git
                    .write(&["update-ref", &full, &commit, &zeros(&commit)])
            })
            .and_then(|_| self.git.write(&["symbolic-ref", "HEAD", &full]))
            .and_then(|_| self.git.write(&["reset", "--quiet"]));
        if let Err(error) = result {
            // As it was: files, HEAD, branch, index.
            let _ = std::fs::write(self.git.git_dir().join("HEAD"), old_head);
            let _ = self.git.write(&["update-ref", "-d", &full]);
            index.put_back(self.git);
            written.undo(self.project);
            return Err(error);
        }
        Ok(self.report(base, true, true))
    }

    /// `start` on the run's own branch: commits what a person changed in
    /// `.runner/`, or does nothing.
    fn on_its_branch(&self, status: &Status) -> Result<StartReport> {
        let new_run = self.state.run_state.run_id.as_deref() != Some(self.run_id);
        let base = self
            .base_at(self.head)
            .map_or_else(|| self.branch.to_owned(), |(branch, _)| branch);
        let written = self.write_files(new_run)?;
        if !status.is_clean() && !new_run {
            // A start that was killed may have left an index without .runner/;
            // nothing outside it is staged (that was checked).
            self.git.write(&["reset", "--quiet"])?;
        }
        if !new_run && (status.is_clean() || self.git.status()?.is_clean()) {
            return Ok(self.report(&base, false, false));
        }
        let index = SavedIndex::take(self.git)?;
        let full = format!("refs/heads/{}", self.branch);
        let result = self
            .make_commit(&base, self.head)
            .and_then(|commit| self.git.write(&["update-ref", &full, &commit, self.head]))
            .and_then(|_| self.git.write(&["reset", "--quiet"]));
        if let Err(error) = result {
            let _ = self.git.write(&["update-ref", &full, self.head]);
            index.put_back(self.git);
            written.undo(self.project);
            return Err(error);
        }
        Ok(self.report(&base, true, new_run))
    }

    /// The run exists on another branch: go there.
    fn go_to_branch(&self, tip: &str, status: &Status) -> Result<StartReport> {
        let base = self
            .base_at(tip)
            .map(|(branch, _)| branch)
            .unwrap_or_default();
        let full = format!("refs/heads/{}", self.branch);
        let just_begun = self.git.line(&["log", "-1", "--format=%P", tip])? == self.head;
        if just_begun && self.same_as(tip)? {
            // A start that was killed after it had made the branch.
            self.git.write(&["symbolic-ref", "HEAD", &full])?;
            self.git.write(&["reset", "--quiet"])?;
            return Ok(self.report(&base, true, true));
        }
        let words = format!(
            "run {} exists already on branch {}",
            self.run_id, self.branch
        );
        if !status.is_clean() {
            return Err(Error::new(
                Code::Identity,
                format!("{words}, and .runner/ here has changes that going there would lose"),
            )
            .hint(format!(
                "to take that run up again: `git stash -u -- .runner && git switch {}`; \
                 for a new run: remove the id from .runner/GOAL.md",
                self.branch
            )));
        }
        self.git
            .write(&["checkout", "--quiet", self.branch])
            .map_err(|error| {
                Error::new(
                    Code::Identity,
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

    /// Branch and commit that the run began from, by its first commit.
    fn base_at(&self, tip: &str) -> Option<(String, String)> {
        let subject = format!("--grep=^chore(loop): start run {}$", self.run_id);
        let log = self
            .git
            .read(&["log", "-z", "--first-parent", "--format=%B", &subject, tip])
            .ok()?;
        let log = String::from_utf8_lossy(&log).into_owned();
        log.split('\0')
            .find_map(|text| message::trailer(text, "Runner-Base"))
            .and_then(|value| value.split_once(' '))
            .map(|(branch, commit)| (branch.to_owned(), commit.to_owned()))
    }

    /// Writes the id, and for a new run a fresh tree and bookkeeping.
    fn write_files(&self, new_run: bool) -> Result<Written> {
        let mut written = Written::default();
        let mut put = |path: &str, bytes: &[u8]| -> Result<()> {
            let path = PathBuf::from(path);
            let image = Image::of(self.project.root(), &path)?;
            written.images.push((path.clone(), image));
            Ok(files::write_whole(&self.project.root().join(path), bytes)?)
        };
        let mut write = || -> Result<()> {
            if self.state.goal.id() != Some(self.run_id) {
                put(paths::GOAL, self.state.goal.with_id(self.run_id).as_bytes())?;
            }
            if new_run {
                let tree = self.first_tree();
                put(paths::TREE, &tree)?;
                put(
                    paths::RUN_STATE,
                    &RunState::new(Some(self.run_id.to_owned())).to_bytes(),
                )?;
            }
            Ok(())
        };
        match write() {
            Ok(()) => Ok(written),
            Err(error) => {
                written.undo(self.project);
                Err(error)
            }
        }
    }

    /// One open leaf from GOAL.md; a plan that a person wrote before the first
    /// start is kept.
    fn first_tree(&self) -> Vec<u8> {
        if self.state.run_state.run_id.is_none()
            && let Ok(bytes) = state::tree_bytes(self.project)
            && let Ok(root) = state::check_tree(&bytes)
            && !root.is_leaf()
        {
            return tree::to_bytes(&root);
        }
        tree::to_bytes(&root_of(
            &self.state.goal,
            self.state.config.max_attempts_default,
        ))
    }

    /// The commit of `.runner/` on top of `parent`, through an index of its own.
    fn make_commit(&self, base: &str, parent: &str) -> Result<String> {
        let index = self.git.git_dir().join("runner-start-index");
        let _ = std::fs::remove_file(&index);
        let env = [("GIT_INDEX_FILE", index.as_os_str())];
        let made = (|| {
            self.git.write_with(&["read-tree", parent], None, &env)?;
            self.git.write_with(
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
            let tree = self.git.write_with(&["write-tree"], None, &env)?;
            let tree = String::from_utf8_lossy(tree.trim_ascii_end()).into_owned();
            // For a second start: where the first one began.
            let begun = self
                .base_at(parent)
                .map_or_else(|| parent.to_owned(), |(_, commit)| commit);
            let message = message::start_message(self.run_id, base, &begun);
            let (_, commit) = self.git.as_someone(|who: &[(&str, &OsStr)]| {
                self.git.write_with(
                    &["commit-tree", &tree, "-p", parent],
                    Some(message.as_bytes()),
                    who,
                )
            })?;
            Ok(String::from_utf8_lossy(commit.trim_ascii_end()).into_owned())
        })();
        let _ = std::fs::remove_file(&index);
        made
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

fn zeros(like: &str) -> String {
    "0".repeat(like.len())
}

/// Files that were replaced, with what was there.
#[derive(Debug, Default)]
struct Written {
    images: Vec<(PathBuf, Image)>,
}

impl Written {
    fn undo(&self, project: &Project) {
        for (path, image) in &self.images {
            let full = project.root().join(path);
            // Best effort: this already is the way out of an error.
            let _ = match image {
                Image::File { bytes, .. } => files::write_whole(&full, bytes),
                _ => files::remove_if_there(&full),
            };
        }
    }
}

/// The index file as it was.
struct SavedIndex {
    bytes: Option<Vec<u8>>,
}

impl SavedIndex {
    fn take(git: &Git) -> Result<Self> {
        let path = git.git_dir().join("index");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if files::is_absent(&error) => None,
            Err(error) => return Err(files::at(&path, error).into()),
        };
        Ok(SavedIndex { bytes })
    }

    fn put_back(&self, git: &Git) {
        let path = git.git_dir().join("index");
        let _ = std::fs::remove_file(git.git_dir().join("index.lock"));
        let _ = match &self.bytes {
            Some(bytes) => std::fs::write(&path, bytes),
            None => files::remove_if_there(&path),
        };
    }
}
