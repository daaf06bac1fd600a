//! `runner clean`: removes what crashes left in the private folders of projects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::config::Config;
use runner_exec::Cancel;

use super::root::{self, WorkspaceRoot};
use super::{CHECKOUTS, CheckoutHome, LOCK};
use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::state;

/// How long processes that are about to end may take.
const LIMIT: Duration = Duration::from_secs(1);

/// What to clean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceCleanOptions {
    /// The private folders of all projects, and those of projects that are gone.
    pub all: bool,
    /// Only say what would be removed.
    pub dry_run: bool,
}

/// A folder that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedFolder {
    /// Where it was.
    pub path: PathBuf,
    /// How much it held.
    pub bytes: u64,
}

/// What cleaning did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceCleanReport {
    /// What was removed, or would be.
    pub removed: Vec<RemovedFolder>,
    /// What is in use, and stays.
    pub in_use: Vec<PathBuf>,
}

impl WorkspaceCleanReport {
    /// How much was freed, or would be.
    pub fn freed_bytes(&self) -> u64 {
        self.removed.iter().map(|folder| folder.bytes).sum()
    }
}

/// Removes the checkouts that nobody uses any more.
pub fn clean(start: &Path, options: WorkspaceCleanOptions) -> Result<WorkspaceCleanReport> {
    let project = Project::of_work_tree(start);
    let config = match &project {
        Ok(project) => state::load_config(project).unwrap_or_default(),
        Err(_) => Config::default(),
    };
    let mut report = WorkspaceCleanReport::default();
    if !options.all {
        let git = Git::open(project?.root())?;
        let root = WorkspaceRoot::of(&git, &config)?;
        clean_home(root.folder(), options.dry_run, &mut report)?;
        return Ok(report);
    }
    let base = project.as_ref().map_or(start, Project::root);
    let all = WorkspaceRoot::of_all_projects(&config, base)?;
    for folder in root::project_folders(&all) {
        let busy = report.in_use.len();
        let is_gone = root::project_is_gone(&folder);
        clean_home(&folder, options.dry_run, &mut report)?;
        if is_gone && report.in_use.len() == busy {
            remove(&folder, options.dry_run, &mut report)?;
        }
    }
    Ok(report)
}

fn clean_home(folder: &Path, dry_run: bool, report: &mut WorkspaceCleanReport) -> Result<()> {
    let home = CheckoutHome::new(folder.to_owned(), folder.join(LOCK));
    for name in home.names_in(CHECKOUTS) {
        let path = home.checkout_folder(CHECKOUTS, &name);
        let bytes = files::folder_bytes(&path);
        let is_free = if dry_run {
            home.is_free((CHECKOUTS, &name), &Cancel::new()?, LIMIT)?
        } else {
            home.remove_checkout((CHECKOUTS, &name), &Cancel::new()?, LIMIT)?
        };
        if is_free {
            report.removed.push(RemovedFolder { path, bytes });
        } else {
            report.in_use.push(path);
        }
    }
    Ok(())
}

fn remove(folder: &Path, dry_run: bool, report: &mut WorkspaceCleanReport) -> Result<()> {
    let bytes = files::folder_bytes(folder);
    if !dry_run {
        files::remove_if_there(folder)?;
    }
    report.removed.push(RemovedFolder {
        path: folder.to_owned(),
        bytes,
    });
    Ok(())
}
