//! `start RUN`: to a run that there is, from wherever one is.

use std::path::{Path, PathBuf};

use runner_core::goal::Goal;
use runner_core::paths;

use super::{GuardAtBase, StartReport, base_at, check_outside, commit_of_branch};
use crate::checkout::workspace::RunPlaces;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, GitStatus};
use crate::init;
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::recover;
use crate::run::refs;
use crate::run_context::{RunContext, RunProgress};
use crate::state::runs;
use crate::state::runs::{KnownRun, full_name};
use crate::step::containment::ContainmentChoice;
use crate::step::{self, StepContext, branch_of};

/// Goes to the branch of a run, which is made again if `abandon` deleted it. What of
/// another goal lies in `.runner/` and is in no commit is kept aside.
pub fn go_to_run(
    project: &Project,
    name: &str,
    stay: bool,
    context: &mut RunContext<'_>,
) -> Result<StartReport> {
    Git::check_version()?;
    Git::open(project.root())?;
    let _lock = ProjectLock::take(project)?;
    let containment = ContainmentChoice::default();
    let git = Git::open(project.root())?.without_scripts()?;
    let mut context = StepContext {
        project,
        git: &git,
        run: context,
        containment: &containment,
        places: &RunPlaces::default(),
    };
    recover::recover(&mut context)?;
    let status = git.status()?;
    let run = runs::choose(&git, Some(name), status.branch.as_deref(), "start")?;
    let run_id = own_id(&git, &run)?;
    let branch = branch_of(&run_id);
    if stay && run.abandoned {
        bring_back(&git, &run, &branch)?;
    }
    if status.branch.as_deref() != Some(&branch) && !stay {
        check_elsewhere(&git, &run_id, &branch)?;
        check_outside(&status)?;
        let aside = Aside::plan(project, &status)?;
        if run.abandoned {
            bring_back(&git, &run, &branch)?;
        }
        if let Some(note) = aside.go(|| git.check_out(&[&branch]))? {
            context.run.observer.progress(&RunProgress::Note(&note));
        }
        // What was cut off there waited for this.
        recover::recover(&mut context)?;
    }
    let base = base_at(&git, &run_id, &run.tip);
    let report = StartReport {
        run_id,
        base: base.map_or_else(|| branch.clone(), |base| base.branch),
        branch,
        committed: false,
        new_run: false,
        guard_at_base: GuardAtBase::Skipped,
    };
    refs::return_to(&git, &report.run_id)?;
    super::note_current(&git, &report, stay)?;
    Ok(report)
}

/// The id that the run knows itself by: a second one of the same name is kept under
/// another when it is abandoned.
fn own_id(git: &Git, run: &KnownRun) -> Result<String> {
    if !run.abandoned {
        return Ok(run.run_id.clone());
    }
    let bytes = git.file_at(&run.tip, paths::GOAL)?.unwrap_or_default();
    let goal = Goal::parse(&String::from_utf8_lossy(&bytes)).ok();
    let id = goal.and_then(|goal| goal.id().map(str::to_owned));
    Ok(id.unwrap_or_else(|| run.run_id.clone()))
}

fn check_elsewhere(git: &Git, run_id: &str, branch: &str) -> Result<()> {
    let trees = git.work_trees()?;
    let taken = trees
        .iter()
        .find(|tree| tree.branch.as_deref() == Some(branch));
    let Some(tree) = taken else { return Ok(()) };
    let place = tree.git.root().display();
    Err(Error::new(
        ErrorCode::Identity,
        format!("run {run_id} is checked out in {place}"),
    )
    .hint(format!("work on it there: `runner -C {place} loop`")))
}

fn bring_back(git: &Git, run: &KnownRun, branch: &str) -> Result<()> {
    match commit_of_branch(git, branch)? {
        Some(there) if there == run.tip => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::Identity,
            format!("there is another run on {branch}, so this one cannot be brought back"),
        )
        .hint(format!(
            "`runner abandon --delete {}` puts that one away first",
            branch.trim_start_matches("runner/")
        ))),
        None => git
            .write(&["update-ref", &full_name(branch), &run.tip, ""])
            .map(drop),
    }
}

/// Files of `.runner/` that are in no commit and would be in the way.
struct Aside<'p> {
    project: &'p Project,
    files: Vec<PathBuf>,
}

impl<'p> Aside<'p> {
    fn plan(project: &'p Project, status: &GitStatus) -> Result<Self> {
        let mut changed = status.clone();
        changed.entries.retain(|entry| !entry.untracked);
        if !changed.is_clean() {
            return Err(Error::new(
                ErrorCode::Dirty,
                format!(
                    "going there would lose uncommitted changes:\n{}",
                    step::list_entries(&changed)
                ),
            )
            .hint("commit them, or take them back with git"));
        }
        // Outside of .runner/ there is nothing: that was looked at before.
        let files = status.entries.iter().map(|entry| entry.path.clone());
        Ok(Aside {
            project,
            files: files.collect(),
        })
    }

    /// Does it with the files out of the way; where it fails they come back.
    fn go<T>(self, act: impl FnOnce() -> Result<T>) -> Result<Option<String>> {
        if self.files.is_empty() {
            return act().map(|_| None);
        }
        let (name, folder) = init::new_replaced_folder(self.project)?;
        let mut moved = Vec::new();
        let done = self.move_to(&folder, &mut moved).and_then(|()| act());
        if let Err(error) = done {
            for (from, to) in moved.iter().rev() {
                // Git may have come so far that the run's own file is there.
                if from.symlink_metadata().is_err() {
                    let _ = files::rename(to, from);
                }
            }
            return Err(error);
        }
        Ok(Some(format!(
            "the goal that was begun here and not started is kept in {name}"
        )))
    }

    fn move_to(&self, folder: &Path, moved: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
        for path in &self.files {
            let from = self.project.root().join(path);
            let to = folder.join(path.strip_prefix(paths::ROOT).unwrap_or(path));
            files::make_folder(to.parent().unwrap_or(folder))?;
            files::rename(&from, &to)?;
            moved.push((from, to));
        }
        Ok(())
    }
}
