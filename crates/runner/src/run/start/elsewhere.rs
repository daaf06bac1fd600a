//! `start` where nothing of a run is checked out: back to the run that there is.

use runner_core::paths;

use super::{GuardAtBase, StartReport, base_at, check_outside};
use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::project::Project;
use crate::state::runs;
use crate::state::runs::KnownRun;

/// The branches of this repository's runs, if the one that is checked out has
/// nothing of a run but the logs that git does not know.
pub(crate) fn runs_elsewhere(project: &Project, git: &Git) -> Result<Option<Vec<String>>> {
    let runs: Vec<String> = away(project, git)?.iter().map(KnownRun::branch).collect();
    Ok((!runs.is_empty()).then_some(runs))
}

/// The same as what is known of them.
pub(crate) fn away(project: &Project, git: &Git) -> Result<Vec<KnownRun>> {
    if project.has_state() || git.status()?.head.is_none() {
        return Ok(Vec::new());
    }
    let mut runs = runs::known(git)?;
    runs.retain(|run| !run.abandoned);
    runs.sort_by(|a, b| a.run_id.cmp(&b.run_id));
    Ok(runs)
}

/// Goes back to the only run that has not landed yet.
pub(crate) fn take_up(git: &Git, runs: &[KnownRun], stay: bool) -> Result<StartReport> {
    let mut open = Vec::new();
    for run in runs {
        if !runs::has_landed(git, run)? {
            open.push(run);
        }
    }
    let run = match open.as_slice() {
        [only] => *only,
        [] => return Err(all_home(runs)),
        several => return Err(which(several)),
    };
    let branch = run.branch();
    let status = git.status()?;
    check_outside(&status)?;
    if !stay {
        git.check_out(&[&branch])?;
    }
    let base = base_at(git, &run.run_id, &run.tip);
    Ok(StartReport {
        run_id: run.run_id.clone(),
        base: base.map_or_else(|| branch.clone(), |base| base.branch),
        branch,
        committed: false,
        new_run: false,
        guard_at_base: GuardAtBase::Skipped,
    })
}

fn all_home(runs: &[KnownRun]) -> Error {
    let ids: Vec<&str> = runs.iter().map(|run| run.run_id.as_str()).collect();
    Error::new(
        ErrorCode::Identity,
        format!(
            "there is no {} on this branch, and every run has landed: {}",
            paths::GOAL,
            ids.join(", ")
        ),
    )
    .hint("`runner init` begins another goal, with the config of the last run")
}

fn which(runs: &[&KnownRun]) -> Error {
    let branches: Vec<String> = runs.iter().map(|run| run.branch()).collect();
    Error::new(
        ErrorCode::Identity,
        format!(
            "there is no {} on this branch, and this repository has {} runs: {}",
            paths::GOAL,
            runs.len(),
            branches.join(", ")
        ),
    )
    .hint(format!("choose one: `runner start {}`", runs[0].run_id))
}
