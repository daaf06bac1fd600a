//! Where everything lies.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::paths;

use crate::error::{Error, ErrorCode, Result};
use crate::file_id::{ContentId, FileId};
use crate::files::{self, ReadError};
use crate::git::{CommittedFile, Git};

/// A project folder: the root of a git work tree that has (or will have) a `.runner/`.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    /// What `.runner/` says, where that is not what lies in the folder.
    state: Option<Arc<StateFiles>>,
}

/// The files of `.runner/` in a commit.
#[derive(Debug, Default)]
struct StateFiles(BTreeMap<PathBuf, CommittedFile>);

impl Project {
    /// The project that a folder belongs to: it, or the nearest one above it
    /// that has a `.runner/`, but never beyond the git repository it is in.
    pub fn find(start: &Path) -> Result<Self> {
        let start = start.canonicalize().map_err(|error| {
            Error::new(ErrorCode::Layout, format!("{}: {error}", start.display()))
        })?;
        let is_repository = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
        let outermost = start.ancestors().position(is_repository);
        start
            .ancestors()
            .take(outermost.map_or(usize::MAX, |depth| depth + 1))
            .find(|folder| folder.join(".runner").is_dir())
            .map(|root| Project::at(root.to_owned()))
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::Layout,
                    format!("no .runner/ in {} or above it", start.display()),
                )
                .hint("make one with `runner init`")
            })
    }

    /// The project that a folder belongs to, for whoever looks at its run: what `.runner/` says is
    /// what the run's last commit says, wherever the checkout is.
    pub fn of_run(start: &Path) -> Result<Self> {
        crate::run::current::view(Self::find(start)?)
    }

    /// The same again, for whoever looks once more.
    pub fn looked_at(&self) -> Result<Self> {
        crate::run::current::view(Project::at(self.root.clone()))
    }

    /// A project at exactly this folder, whether or not it has a `.runner/`.
    pub fn at(root: PathBuf) -> Self {
        Project { root, state: None }
    }

    /// The same project with what a commit says in `.runner/`. Its logs are where they are.
    pub(crate) fn at_commit(&self, git: &Git, commit: &str) -> Result<Self> {
        let state = git.files_below(commit, paths::ROOT)?;
        Ok(Project {
            root: self.root.clone(),
            state: Some(Arc::new(StateFiles(state))),
        })
    }

    /// Whether what `.runner/` says is not what lies in the folder.
    pub fn is_at_commit(&self) -> bool {
        self.state.is_some()
    }

    /// A file of `.runner/`.
    pub(crate) fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, ReadError> {
        let Some(state) = &self.state else {
            return files::read_regular(&self.root.join(path), max);
        };
        let file = state.0.get(Path::new(path)).ok_or(ReadError::Absent)?;
        let bytes = match &file.content {
            Some(bytes) => bytes.clone(),
            None => Git::open(&self.root)
                .and_then(|git| git.proven_blob(&file.oid))
                .map_err(|error| ReadError::Io(std::io::Error::other(error.message)))?,
        };
        if bytes.len() as u64 > max {
            return Err(ReadError::TooLarge(max));
        }
        Ok(bytes)
    }

    /// Which content a file of `.runner/` has, if it is there.
    pub fn content_id(&self, path: &str) -> Option<ContentId> {
        match &self.state {
            None => FileId::at(&self.root.join(path)).map(ContentId::File),
            Some(state) => {
                let file = state.0.get(Path::new(path))?;
                Some(ContentId::Blob(file.oid.clone()))
            }
        }
    }

    /// The git work tree that a folder belongs to, whether or not it has a
    /// `.runner/`.
    pub fn of_work_tree(start: &Path) -> Result<Self> {
        let start = start.canonicalize().map_err(|error| {
            Error::new(ErrorCode::Layout, format!("{}: {error}", start.display()))
        })?;
        start
            .ancestors()
            .find(|folder| folder.join(".git").symlink_metadata().is_ok())
            .map(|root| Project::at(root.to_owned()))
            .ok_or_else(|| no_work_tree(&start))
    }

    /// Whether anything of a run is here but the logs, which stay behind when a
    /// branch without a run is checked out.
    pub(crate) fn has_state(&self) -> bool {
        match &self.state {
            None => {
                self.goal().symlink_metadata().is_ok() || self.state("").symlink_metadata().is_ok()
            }
            Some(state) => !state.0.is_empty(),
        }
    }

    /// Says what to do where there is nothing but logs.
    pub fn need_state(&self) -> Result<()> {
        if self.has_state() {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Layout,
            "the branch that is checked out has nothing of a run",
        )
        .hint(
            "`runner runs` lists the runs on other branches, `runner start RUN` goes back to one, \
             `runner init` begins anew",
        ))
    }

    /// The project's root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.runner`.
    pub fn runner_dir(&self) -> PathBuf {
        self.root.join(".runner")
    }

    /// `.runner/state/NAME`.
    pub fn state(&self, name: &str) -> PathBuf {
        self.root.join(".runner/state").join(name)
    }

    /// `.runner/state/tree.json`.
    pub fn tree(&self) -> PathBuf {
        self.state("tree.json")
    }

    /// `.runner/GOAL.md`.
    pub fn goal(&self) -> PathBuf {
        self.root.join(".runner/GOAL.md")
    }

    /// `.runner/context`.
    pub fn context(&self) -> PathBuf {
        self.root.join(".runner/context")
    }

    /// `.runner/iterations`.
    pub fn iterations(&self) -> PathBuf {
        self.root.join(".runner/iterations")
    }

    /// `.runner/iterations/RUN`.
    pub fn run_folder(&self, run: &str) -> PathBuf {
        self.iterations().join(run)
    }

    /// The runs that have logs here, sorted.
    pub(crate) fn run_folders(&self) -> Vec<String> {
        let mut runs: Vec<String> = std::fs::read_dir(self.iterations())
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        runs.sort();
        runs
    }

    /// `.runner/iterations/RUN/ITER`.
    pub fn iteration(&self, run: &str, iter: u32) -> PathBuf {
        self.run_folder(run).join(iter.to_string())
    }

    /// The numbers of the recorded iterations of a run, rising. Folders that
    /// were moved aside do not count.
    pub fn iteration_numbers(&self, run: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> = std::fs::read_dir(self.run_folder(run))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| iteration_number(&entry.file_name()))
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

/// The iteration whose folder has this name.
pub(crate) fn iteration_number(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    let number: u32 = name.parse().ok()?;
    (number.to_string() == name).then_some(number)
}

fn no_work_tree(start: &Path) -> Error {
    let place = start.display();
    if start.join("HEAD").is_file() && start.join("objects").is_dir() {
        return Error::new(
            ErrorCode::Git,
            format!("{place} is a git repository without a work tree"),
        )
        .hint("clone it, and run the command in the clone");
    }
    Error::new(
        ErrorCode::Git,
        format!("{place} is not in a git repository"),
    )
    .hint("make it one with `git init`")
}
