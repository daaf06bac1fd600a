//! The private folders of one run: what is in the way there, and the same folders anew.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::config::Config;
use runner_exec::Cancel;

use super::{RescueReport, RescuedPath, StuckPath};
use crate::checkout::indexed_tree::{INDEX, KeptFiles, is_ours};
use crate::checkout::temp_folder::TempFolder;
use crate::checkout::workspace::{GivenPlace, RunPlaces};
use crate::checkout::{
    Checkout, CheckoutHome, LOCK, MADE, OBJECTS, SESSION, TASK_RUNS, VERDICTS, WORKSPACES, beside,
    quarantine,
};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::fleet_repo::TaskRunName;
use crate::git::{Git, StallOutcome};
use crate::mounts;
use crate::run::refs::RunRefs;
use crate::step::file_image;

/// How long processes that are about to end may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The largest file that says whose a task run is.
const MAX_OWNER: u64 = 64 << 10;

/// Where the sessions and guards of one run work.
pub(super) struct RescuePlaces {
    run_id: String,
    tip: String,
    git: Git,
    home: CheckoutHome,
    name: String,
    places: RunPlaces,
}

impl RescuePlaces {
    /// Those of a run of the loop.
    pub(super) fn of_run(git: &Git, run_id: &str, tip: &str) -> Result<Self> {
        let places = RunPlaces::default();
        let (home, name) = places.home(git, run_id, tip)?;
        Ok(RescuePlaces {
            run_id: run_id.to_owned(),
            tip: tip.to_owned(),
            git: git.clone(),
            home,
            name,
            places,
        })
    }

    /// Moves what is in the way, and makes it anew. Whether anything was moved.
    pub(super) fn rescue(&self, dry_run: bool, report: &mut RescueReport) -> Result<bool> {
        let before = report.moved.len();
        for kind in [WORKSPACES, VERDICTS] {
            match self.rescue_one(kind, dry_run, report) {
                Ok(()) => {}
                Err(error) if error.code == ErrorCode::Interrupted => return Err(error),
                Err(error) => {
                    let path = self.home.checkout_folder(kind, &self.name);
                    report.stuck.push(stuck(path, &error));
                }
            }
        }
        Ok(report.moved.len() > before)
    }

    fn rescue_one(&self, kind: &str, dry_run: bool, report: &mut RescueReport) -> Result<()> {
        let folder = self.home.checkout_folder(kind, &self.name);
        self.clear_the_way(kind, &folder, dry_run, report)?;
        let found = in_the_way(&folder);
        if found.is_empty() {
            return Ok(());
        }
        let lock = self
            .home
            .take_quiet((kind, &self.name), &Cancel::new()?, LIMIT)?;
        if lock.is_none() {
            report.in_use.push(folder);
            return Ok(());
        }
        if self.is_pristine(&folder) {
            return Ok(());
        }
        report.made.push(folder.clone());
        if !dry_run {
            mounts::take_away(&folder);
        }
        for path in found {
            // The folder comes first: without it nothing beside it counts.
            self.set_aside(&path, dry_run, report)?;
        }
        if dry_run {
            return Ok(());
        }
        TempFolder::remove_left(&folder);
        for left in TempFolder::left_of(&folder) {
            self.set_aside(&left, dry_run, report)?;
        }
        drop(lock);
        self.make_anew(kind)
    }

    fn set_aside(&self, path: &Path, dry_run: bool, report: &mut RescueReport) -> Result<()> {
        let to = if dry_run {
            quarantine::free_name(path)
        } else {
            quarantine::set_aside(path)?
        };
        report.moved.push(RescuedPath {
            run_id: self.run_id.clone(),
            from: path.to_owned(),
            to,
        });
        Ok(())
    }

    /// The folder around must be one, and locks must be files.
    fn clear_the_way(
        &self,
        kind: &str,
        folder: &Path,
        dry_run: bool,
        report: &mut RescueReport,
    ) -> Result<()> {
        let around = self.home.checkout_folder(kind, "");
        let is_folder = |path: &Path| path.symlink_metadata().map_or(true, |it| it.is_dir());
        let is_file = |path: &Path| path.symlink_metadata().map_or(true, |it| it.is_file());
        if !is_folder(&around) {
            self.set_aside(&around, dry_run, report)?;
            return Ok(());
        }
        let locks = [LOCK, SESSION].map(|ending| beside(folder, ending));
        for path in locks.into_iter().chain([self.home.lock_path().to_owned()]) {
            if !is_file(&path) {
                self.set_aside(&path, dry_run, report)?;
            }
        }
        Ok(())
    }

    fn make_anew(&self, kind: &str) -> Result<()> {
        let (git, run_id, tip) = (&self.git, &self.run_id, &self.tip);
        if kind == WORKSPACES {
            return self.places.workspace(git, run_id, tip)?.bring_to(tip);
        }
        let verdicts = self.places.verdicts(git, run_id, tip)?;
        verdicts.tree.bring_to(tip, KeptFiles::NONE)
    }

    /// Whether a folder is the run's last commit and nothing else, as a rescue leaves it.
    fn is_pristine(&self, folder: &Path) -> bool {
        let index = beside(folder, INDEX);
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_dir());
        if !is_folder(folder)
            || !is_folder(&index)
            || !is_ours(&index)
            || quarantine::holds_foreign(folder)
            || quarantine::holds_foreign(&index)
            || beside(folder, MADE).symlink_metadata().is_ok()
            || !TempFolder::left_of(folder).is_empty()
        {
            return false;
        }
        let mut any_special = false;
        file_image::walk(folder, Path::new(""), &mut |_, kind| {
            any_special |= file_image::is_special(kind);
        });
        !any_special && self.is_at_tip(folder).unwrap_or(false)
    }

    fn is_at_tip(&self, folder: &Path) -> Result<bool> {
        let checkout = Checkout::look(&self.git, folder)?;
        if checkout.head().as_deref() != Some(&self.tip) {
            return Ok(false);
        }
        let asked = checkout.git.ask_status()?;
        Ok(match asked.answer_unless_stalled()? {
            StallOutcome::Ended(status) => status.is_clean() && status.ignored.is_empty(),
            StallOutcome::Stalled | StallOutcome::Blind => false,
        })
    }
}

/// What there is of a checkout, in the order in which it is moved.
fn in_the_way(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    found.extend(quarantine::cut_off_of(folder));
    found.extend([INDEX, MADE].map(|ending| beside(folder, ending)));
    // A decision that is not in the project yet needs its objects.
    let objects = beside(folder, OBJECTS);
    if !quarantine::are_folders(&objects, &["info", "pack"]) {
        found.push(objects);
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    found
}

fn stuck(path: PathBuf, error: &Error) -> StuckPath {
    let remedy = error
        .hint
        .as_deref()
        .and_then(|hint| hint.split('`').nth(1));
    StuckPath {
        remedy: remedy.map_or_else(|| quarantine::remedy(&path), str::to_owned),
        why: error.message.clone(),
        path,
    }
}

/// Those of the task runs of fleets. One that somebody works on is told and left alone, and so is
/// one whose repository cannot be read: its next attempt has another.
pub(super) fn of_task_runs(
    git: &Git,
    config: &Config,
    report: &mut RescueReport,
) -> Result<Vec<RescuePlaces>> {
    let home = CheckoutHome::of_project(git, config)?;
    let mut found = Vec::new();
    for kind in home.kinds(TASK_RUNS) {
        for name in home.names_in(&kind) {
            let folder = home.checkout_folder(&kind, &name);
            let owner = files::read_regular(&beside(&folder, LOCK), MAX_OWNER).unwrap_or_default();
            let Ok(owner) = serde_json::from_slice::<TaskRunName>(&owner) else {
                continue;
            };
            if owner.folder() != name || folder.symlink_metadata().is_err() {
                continue;
            }
            if !home.is_free((&kind, &name), &Cancel::new()?, LIMIT)? {
                report.in_use.push(folder);
                continue;
            }
            let run_id = owner.loop_run();
            let opened = Git::open(&folder).ok();
            let tip = opened.as_ref().and_then(|git| {
                let refs = RunRefs::read(git, &run_id).ok()?;
                refs.tip().map(str::to_owned)
            });
            let (Some(own), Some(tip)) = (opened, tip) else {
                continue;
            };
            found.push(RescuePlaces {
                run_id,
                tip,
                git: own,
                home: home.clone(),
                name: name.clone(),
                places: RunPlaces::given(GivenPlace {
                    home: home.clone(),
                    name,
                    project: git.clone(),
                    base: None,
                }),
            });
        }
    }
    Ok(found)
}
