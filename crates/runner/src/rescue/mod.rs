//! `runner rescue`: the last resort where a session left what no other command gets past.
//!
//! Whatever lies in the private folders of the runs that go on is moved to a quarantine beside them,
//! and workspace and clean checkout are made anew from the branch. Nothing is judged, settled or
//! committed, and no record, reference or earlier quarantine is touched.

mod places;

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::refs::RunRefs;
use crate::run::{current, recover, refs};
use crate::state;
use places::{RescuePlaces, of_task_runs};

/// What to rescue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RescueOptions {
    /// One run; without it all that go on, and the task runs of a fleet.
    pub run: Option<String>,
    /// Only say what would be moved.
    pub dry_run: bool,
}

/// Something that was moved out of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescuedPath {
    /// The run that it belongs to.
    pub run_id: String,
    /// Where it was.
    pub from: PathBuf,
    /// Where it is.
    pub to: PathBuf,
}

/// Something that not even a rescue can move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckPath {
    /// Where it is.
    pub path: PathBuf,
    /// Why it stays there.
    pub why: String,
    /// The command that helps.
    pub remedy: String,
}

/// What a rescue did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RescueReport {
    /// What was moved, or would be.
    pub moved: Vec<RescuedPath>,
    /// Folders that were made anew from the branch, or would be.
    pub made: Vec<PathBuf>,
    /// What is in use, and stays.
    pub in_use: Vec<PathBuf>,
    /// What cannot be moved.
    pub stuck: Vec<StuckPath>,
    /// Runs whose last session was cut off: what it changed is in the quarantine alone.
    pub cut_off: Vec<String>,
}

/// Moves what cannot be handled out of the way, and makes workspaces and clean checkouts anew.
pub fn rescue(start: &Path, options: &RescueOptions) -> Result<RescueReport> {
    let project = Project::of_work_tree(start)?;
    let git = Git::open(project.root())?;
    let _lock = if options.dry_run {
        ProjectLock::refuse_if_held(&project)?;
        None
    } else {
        Some(ProjectLock::take(&project)?)
    };
    let mut report = RescueReport::default();
    for run_id in chosen(&git, options)? {
        let refs = RunRefs::read(&git, &run_id)?;
        let Some(tip) = refs.tip().map(str::to_owned) else {
            if options.run.is_some() {
                return Err(unknown(&run_id));
            }
            continue;
        };
        let places = RescuePlaces::of_run(&git, &run_id, &tip)?;
        let moved = places.rescue(options.dry_run, &mut report)?;
        if moved && recover::is_unfinished(&project, &run_id) {
            report.cut_off.push(run_id);
        }
    }
    if options.run.is_none() {
        let config = state::load_config(&project).unwrap_or_default();
        for places in of_task_runs(&git, &config, &mut report)? {
            places.rescue(options.dry_run, &mut report)?;
        }
    }
    Ok(report)
}

/// The runs of the loop that are meant.
fn chosen(git: &Git, options: &RescueOptions) -> Result<Vec<String>> {
    if let Some(run_id) = &options.run {
        return match runner_core::goal::check_run_id(run_id) {
            Ok(()) => Ok(vec![run_id.clone()]),
            Err(_) => Err(unknown(run_id)),
        };
    }
    let mut runs = refs::under_way(git)?;
    runs.extend(current::here(git)?);
    runs.sort();
    runs.dedup();
    Ok(runs)
}

fn unknown(run_id: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no run {run_id}"))
        .hint("`runner runs` lists them")
}
