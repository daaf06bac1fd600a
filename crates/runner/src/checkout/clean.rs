//! `runner clean`: removes what crashes left in the private folders of projects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::config::Config;
use runner_core::paths;
use runner_exec::Cancel;

use super::indexed_tree::INDEX;
use super::root::{self, WorkspaceRoot};
use super::temp_folder::TempFolder;
use super::{
    CHECKOUTS, CheckoutHome, LOCK, MADE, OBJECTS, SESSION, TASK_RUNS, VERDICTS, WORKSPACES, beside,
    quarantine,
};
use crate::error::Result;
use crate::files;
use crate::fleet_repo::OLD_TASK_RUNS;
use crate::git::Git;
use crate::project::Project;
use crate::rescue::StuckPath;
use crate::run::refs;
use crate::state::{self, runs};

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
    /// Quarantines of runs that have ended which this user may not remove.
    pub stuck: Vec<StuckPath>,
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
    let limit = config.sandbox.cache_limit;
    let mut report = WorkspaceCleanReport::default();
    if !options.all {
        let git = Git::open(project?.root())?;
        let living = living(&git)?;
        // Where earlier versions kept the repositories of a fleet's task runs.
        let old = git.root().join(paths::FLEET_DIR);
        let old = CheckoutHome::new(old.clone(), old.join("yard.lock"));
        let names = old.names_in(OLD_TASK_RUNS).into_iter();
        let ended = names.filter(|name| !living.contains(name));
        let ended = ended.map(|name| (OLD_TASK_RUNS.to_owned(), name)).collect();
        remove_checkouts(&old, ended, options.dry_run, &mut report)?;
        for folder in folders_of(&git, &config)? {
            clean_home(
                &folder,
                Some(&living),
                (limit, options.dry_run),
                &mut report,
            )?;
        }
        return Ok(report);
    }
    let base = project.as_ref().map_or(start, Project::root);
    let all = WorkspaceRoot::of_all_projects(&config, base)?;
    for folder in root::project_folders(&all) {
        let (busy, freed) = (report.in_use.len(), report.freed_bytes());
        let is_gone = root::project_is_gone(&folder);
        let living = match root::project_of(&folder) {
            Some(git) => living(&git).ok(),
            None => is_gone.then(Vec::new),
        };
        clean_home(
            &folder,
            living.as_deref(),
            (limit, options.dry_run),
            &mut report,
        )?;
        if is_gone && report.in_use.len() == busy {
            // What is in it was counted a moment ago, and only said to be removed.
            let counted = report.freed_bytes() - freed;
            let counted = if options.dry_run { counted } else { 0 };
            remove(&folder, counted, options.dry_run, &mut report)?;
        }
    }
    Ok(report)
}

/// Removes clean checkouts, and the folders of runs that are none of `living`: in those of a run
/// that goes on, a session may have left what is not settled yet.
fn clean_home(
    folder: &Path,
    living: Option<&[String]>,
    (cache_limit, dry_run): (u64, bool),
    report: &mut WorkspaceCleanReport,
) -> Result<()> {
    let home = CheckoutHome::new(folder.to_owned(), folder.join(LOCK));
    for (path, bytes) in home.caches().shrink(cache_limit, dry_run)? {
        report.removed.push(RemovedFolder { path, bytes });
    }
    let kinds = [WORKSPACES, VERDICTS].map(str::to_owned).into_iter();
    let of_runs = kinds.chain(home.kinds(TASK_RUNS)).flat_map(|kind| {
        let names = home.names_in(&kind).into_iter();
        names.map(move |name| (kind.clone(), name))
    });
    let (going_on, ended): (Vec<_>, Vec<_>) =
        of_runs.partition(|(_, name)| living.is_none_or(|living| living.contains(name)));
    for (kind, name) in going_on {
        clean_temp(&home, (&kind, &name), dry_run, report)?;
    }
    let checkouts = home.names_in(CHECKOUTS).into_iter();
    let all = checkouts.map(|name| (CHECKOUTS.to_owned(), name));
    remove_checkouts(&home, all.chain(ended).collect(), dry_run, report)
}

/// Removes checkouts, by kind and name, in which nobody is at work.
fn remove_checkouts(
    home: &CheckoutHome,
    named: Vec<(String, String)>,
    dry_run: bool,
    report: &mut WorkspaceCleanReport,
) -> Result<()> {
    for (kind, name) in named {
        let path = home.checkout_folder(&kind, &name);
        let bytes = files::folder_bytes(&path);
        let is_there = [LOCK, SESSION, INDEX, MADE, OBJECTS]
            .into_iter()
            .map(|ending| beside(&path, ending))
            .chain([path.clone()])
            .any(|path| path.symlink_metadata().is_ok());
        let is_free = if dry_run {
            home.is_free((&kind, &name), &Cancel::new()?, LIMIT)?
        } else {
            home.remove_checkout((&kind, &name), &Cancel::new()?, LIMIT)?
        };
        if !is_free {
            report.in_use.push(path);
            continue;
        }
        remove_quarantines(&path, dry_run, report);
        if is_there {
            report.removed.push(RemovedFolder { path, bytes });
        }
    }
    Ok(())
}

/// Removes the quarantines of a checkout whose run has ended; what cannot be removed is told with
/// the command that does it.
fn remove_quarantines(checkout: &Path, dry_run: bool, report: &mut WorkspaceCleanReport) {
    let kept = quarantine::kept_of(checkout);
    let mut sizes: BTreeMap<PathBuf, u64> = kept
        .into_iter()
        .map(|path| (path.clone(), files::folder_bytes(&path)))
        .collect();
    let stuck = if dry_run {
        Vec::new()
    } else {
        quarantine::remove_kept(checkout)
    };
    for (path, error) in stuck {
        sizes.remove(&path);
        report.stuck.push(StuckPath {
            remedy: quarantine::remedy(&path),
            why: error.to_string(),
            path,
        });
    }
    let removed = sizes.into_iter();
    report
        .removed
        .extend(removed.map(|(path, bytes)| RemovedFolder { path, bytes }));
}

/// Removes the temp folder that a child in the folder of a run left when it was killed, unless
/// anything runs there.
fn clean_temp(
    home: &CheckoutHome,
    (kind, name): (&str, &str),
    dry_run: bool,
    report: &mut WorkspaceCleanReport,
) -> Result<()> {
    let checkout = home.checkout_folder(kind, name);
    let left = TempFolder::left_of(&checkout);
    if left.is_empty() || !home.is_free((kind, name), &Cancel::new()?, LIMIT)? {
        return Ok(());
    }
    for path in left {
        let bytes = files::folder_bytes(&path);
        report.removed.push(RemovedFolder { path, bytes });
    }
    if !dry_run {
        TempFolder::remove_left(&checkout);
    }
    Ok(())
}

/// The private folders of a project: as the checkout's config says, and as those of its runs do.
fn folders_of(git: &Git, config: &Config) -> Result<BTreeSet<PathBuf>> {
    let mut folders = BTreeSet::from([WorkspaceRoot::of(git, config)?.folder().to_owned()]);
    for run in runs::known(git)? {
        let text = git.file_at(&run.tip, paths::CONFIG)?.unwrap_or_default();
        let Ok(config) = Config::parse(&String::from_utf8_lossy(&text)) else {
            continue;
        };
        // A place that is not there any more has nothing to be removed.
        let root = WorkspaceRoot::of(git, &config);
        folders.extend(root.ok().map(|root| root.folder().to_owned()));
    }
    Ok(folders)
}

/// The names of folders that belong to runs, or to task runs of a fleet, that have not ended.
fn living(git: &Git) -> Result<Vec<String>> {
    let mut names = refs::under_way(git)?;
    let listed = git.line(&["for-each-ref", "--format=%(refname)", "refs/fleet/"])?;
    let of_fleets = listed.lines().filter_map(|name| name.rsplit('/').next());
    names.extend(of_fleets.map(str::to_owned));
    Ok(names)
}

/// Removes a folder, of which so many bytes are counted already.
fn remove(
    folder: &Path,
    counted: u64,
    dry_run: bool,
    report: &mut WorkspaceCleanReport,
) -> Result<()> {
    let bytes = files::folder_bytes(folder).saturating_sub(counted);
    if !dry_run {
        files::remove_if_there(folder)?;
    }
    report.removed.push(RemovedFolder {
        path: folder.to_owned(),
        bytes,
    });
    Ok(())
}
