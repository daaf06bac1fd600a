//! What a landing has still to do once its branch has moved, written down before
//! that: a runner that is killed in between leaves it to the next one.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::work_tree::WorkTreeMove;
use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::state::runs::full_name;
use crate::step::file_image;

const NAME: &str = "land.json";
const MAX_BYTES: u64 = 1024 * 1024;

/// A landing that may not be finished.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PendingLanding {
    /// The branch that moves, without `refs/heads/`.
    pub(crate) target: String,
    /// The commit to which it does.
    pub(crate) commit: String,
    /// The work trees that go along.
    pub(crate) moves: Vec<WorkTreeMove>,
}

impl PendingLanding {
    fn path(project: &Project, run_id: &str) -> PathBuf {
        project.run_folder(run_id).join(NAME)
    }

    /// Writes it down.
    pub(crate) fn save(&self, project: &Project, run_id: &str) -> Result<()> {
        make_run_folder(project, run_id)?;
        self.save_as(&Self::path(project, run_id))
    }

    /// Writes it down under a name of the caller's.
    pub(crate) fn save_as(&self, path: &Path) -> Result<()> {
        // Strings alone: there is nothing that could fail.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        Ok(files::write_whole(path, &bytes)?)
    }

    /// Whether it names commits and branches and nothing else: a session may have
    /// written it.
    fn is_sound(&self, git: &Git) -> Result<bool> {
        let mut branches = vec![self.target.as_str()];
        let mut commits = vec![self.commit.as_str()];
        for step in &self.moves {
            branches.extend(step.branches());
            commits.extend(step.commits());
        }
        for branch in branches {
            if git
                .ask(&["check-ref-format", &full_name(branch)])?
                .is_none()
            {
                return Ok(false);
            }
        }
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(commits.iter().all(|name| name.len() >= 40 && is_name(name)))
    }

    /// It is done.
    pub(crate) fn remove(project: &Project, run_id: &str) -> Result<()> {
        Ok(files::remove_if_there(&Self::path(project, run_id))?)
    }
}

/// The folder of a run's logs, where a session cannot have put a link.
pub(crate) fn make_run_folder(project: &Project, run_id: &str) -> Result<PathBuf> {
    let folder = project.run_folder(run_id);
    let relative = folder.strip_prefix(project.root()).unwrap_or(&folder);
    file_image::make_folder_chain(project.root(), Path::new(relative))?;
    Ok(folder)
}

/// Finishes landings that were cut off after their branch had moved, and forgets
/// those before.
pub(crate) fn finish(project: &Project, git: &Git) -> Result<()> {
    for run_id in project.run_folders() {
        finish_at(&PendingLanding::path(project, &run_id), git)?;
    }
    Ok(())
}

/// The same for what was written down in one file.
pub(crate) fn finish_at(path: &Path, git: &Git) -> Result<()> {
    let Ok(bytes) = files::read_regular(path, MAX_BYTES) else {
        return Ok(());
    };
    if let Ok(pending) = serde_json::from_slice::<PendingLanding>(&bytes)
        && pending.is_sound(git)?
    {
        git.remove_stale_locks(&pending.target);
        let now = git.commit_of(&full_name(&pending.target))?;
        let there = git.commit_of(&pending.commit)?.is_some();
        let moved = match &now {
            Some(now) if there => git.is_ancestor(&pending.commit, now)?,
            _ => false,
        };
        for step in &pending.moves {
            step.remove_stale_locks(git);
        }
        if moved {
            for step in &pending.moves {
                step.go_again(git)?;
            }
        }
    }
    Ok(files::remove_if_there(path)?)
}
