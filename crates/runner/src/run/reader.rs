//! The run of a project, looked at again and again: git is asked only where something changed
//! that its answer depends on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::run::current::{self, RunCandidate};
use crate::run::position::{CheckoutPosition, checkout_position};
use crate::run::refs::{mark_ref, run_ref};
use crate::state::runs::full_name;
use crate::step::branch_of;

/// The largest small file of git that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Looks at the run of a project.
#[derive(Debug, Default)]
pub struct RunReader {
    known: Mutex<Option<KnownSnapshot>>,
}

/// A run as it was seen.
#[derive(Clone, Debug)]
pub struct RunSnapshot {
    /// What `.runner/` says is what the run's last commit says, wherever the checkout is.
    pub project: Project,
    /// Where the checkout stands; `None` where no run has begun.
    pub position: Option<CheckoutPosition>,
    /// Whether `step` and `loop` would begin, as far as it is the checkout's branch that decides.
    pub can_step: bool,
    /// Why git could not be asked; then the project is as it was last seen.
    pub problem: Option<Error>,
}

#[derive(Debug)]
struct KnownSnapshot {
    stamp: RunStamp,
    /// The commit that the project was read from.
    commit: Option<String>,
    snapshot: RunSnapshot,
}

/// All that the answers of git depend on: equal stamps, equal answers.
#[derive(Debug, Default, PartialEq)]
struct RunStamp {
    root: PathBuf,
    head: HeadStamp,
    candidate: Option<RunCandidate>,
    /// Whether the checkout has anything of a run.
    has_state: bool,
    /// The run's references, where they are files.
    refs: Vec<Option<Vec<u8>>>,
    /// The others. Git puts another file in its place, so that its times need not tell.
    packed: Option<FileId>,
    /// Where the run may have landed; empty while its branch is checked out.
    branches: BTreeMap<PathBuf, BranchFolder>,
}

/// Where HEAD is.
#[derive(Debug, Default, PartialEq)]
struct HeadStamp {
    file: Option<Vec<u8>>,
    /// Which tables hold the references, where they are not files.
    tables: [Option<Vec<u8>>; 2],
    branch: Option<String>,
}

/// The branches in one folder of git.
#[derive(Clone, Debug)]
struct BranchFolder {
    /// Git writes a reference beside its place and renames it, so the folder changes with it.
    id: FileId,
    commits: BTreeMap<PathBuf, Option<Vec<u8>>>,
    folders: Vec<PathBuf>,
}

impl PartialEq for BranchFolder {
    fn eq(&self, other: &Self) -> bool {
        (&self.commits, &self.folders) == (&other.commits, &other.folders)
    }
}

impl RunReader {
    /// Looks at the run of a project that was just found. Many who look at once cause one reading.
    pub fn read(&self, project: &Project) -> RunSnapshot {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.take().filter(|it| it.stamp.root == project.root());
        match look(project, before.as_ref()) {
            Ok(now) => known.insert(now).snapshot.clone(),
            Err(error) => {
                let last = before.as_ref().map(|it| &it.snapshot);
                let snapshot = RunSnapshot {
                    project: last.map_or(project, |it| &it.project).clone(),
                    position: last.and_then(|it| it.position.clone()),
                    can_step: last.is_none_or(|it| it.can_step),
                    problem: Some(error),
                };
                *known = before;
                snapshot
            }
        }
    }
}

fn look(project: &Project, before: Option<&KnownSnapshot>) -> Result<KnownSnapshot> {
    let Ok(git) = Git::open(project.root()) else {
        return Ok(KnownSnapshot::plain(project));
    };
    let stamp = RunStamp::of(project, &git, before.map(|it| &it.stamp))?;
    if let Some(before) = before.filter(|it| it.stamp == stamp) {
        return Ok(KnownSnapshot {
            stamp,
            commit: before.commit.clone(),
            snapshot: before.snapshot.clone(),
        });
    }
    let commit = current::commit_to_view(project, &git)?;
    let same = before.filter(|it| it.commit.is_some() && it.commit == commit);
    let seen = match (same, &commit) {
        (Some(same), _) => same.snapshot.project.clone(),
        (None, Some(commit)) => project.at_commit(&git, commit)?,
        (None, None) => project.clone(),
    };
    let can_step = stamp.candidate.as_ref().is_none_or(|it| it.can_step);
    Ok(KnownSnapshot {
        stamp,
        commit,
        snapshot: RunSnapshot {
            project: seen,
            position: checkout_position(project)?,
            can_step,
            problem: None,
        },
    })
}

impl KnownSnapshot {
    /// Of a folder that has no git.
    fn plain(project: &Project) -> Self {
        KnownSnapshot {
            stamp: RunStamp {
                root: project.root().to_owned(),
                ..RunStamp::default()
            },
            commit: None,
            snapshot: RunSnapshot {
                project: project.clone(),
                position: None,
                can_step: true,
                problem: None,
            },
        }
    }
}

impl RunStamp {
    fn of(project: &Project, git: &Git, before: Option<&RunStamp>) -> Result<Self> {
        let head = HeadStamp::of(git, before.map(|it| &it.head))?;
        let candidate = current::candidate(project, git, head.branch.as_deref());
        let refs = candidate.as_ref().map(|it| {
            let run = &it.run_id;
            let names = [run_ref(run), mark_ref(run), full_name(&branch_of(run))];
            names.map(|name| content(&git.common_dir().join(name)))
        });
        let mut branches = BTreeMap::new();
        if candidate.as_ref().is_some_and(|it| !it.on_branch) {
            let heads = git.common_dir().join("refs/heads");
            let known = before.map(|it| &it.branches);
            add_branches(&heads, &heads.join("runner"), known, &mut branches);
        }
        Ok(RunStamp {
            root: project.root().to_owned(),
            head,
            candidate,
            has_state: project.has_state(),
            refs: refs.map_or_else(Vec::new, Vec::from),
            packed: FileId::at(&git.common_dir().join("packed-refs")),
            branches,
        })
    }
}

impl HeadStamp {
    fn of(git: &Git, before: Option<&HeadStamp>) -> Result<Self> {
        let file = content(&git.git_dir().join("HEAD"));
        let tables = [git.git_dir(), git.common_dir()]
            .map(|folder| content(&folder.join("reftable/tables.list")));
        let same = before.filter(|it| it.file == file && it.tables == tables);
        let branch = match same {
            Some(same) => same.branch.clone(),
            None => git.head_ref()?,
        };
        Ok(HeadStamp {
            file,
            tables,
            branch,
        })
    }
}

/// The branches below a folder, but for those of runs; read again where the folder is another.
fn add_branches(
    folder: &Path,
    but: &Path,
    known: Option<&BTreeMap<PathBuf, BranchFolder>>,
    found: &mut BTreeMap<PathBuf, BranchFolder>,
) {
    let Some(id) = FileId::at(folder) else { return };
    let same = known
        .and_then(|known| known.get(folder))
        .filter(|it| it.id == id && !id.is_fresh());
    let now = match same {
        Some(same) => same.clone(),
        None => BranchFolder::read(folder, id),
    };
    for below in now.folders.iter().filter(|below| *below != but) {
        add_branches(below, but, known, found);
    }
    found.insert(folder.to_owned(), now);
}

impl BranchFolder {
    fn read(folder: &Path, id: FileId) -> Self {
        let mut commits = BTreeMap::new();
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_none_or(|it| it != "lock") {
                let commit = content(&path);
                commits.insert(path, commit);
            }
        }
        folders.sort();
        BranchFolder {
            id,
            commits,
            folders,
        }
    }
}

/// A small file, if it can be read.
fn content(path: &Path) -> Option<Vec<u8>> {
    files::read_regular(path, MAX_BYTES).ok()
}
