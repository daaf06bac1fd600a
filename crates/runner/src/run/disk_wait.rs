//! Waiting for room on a disk before the next iteration begins.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::config::Config;
use runner_core::meta::IterationErrorKind;
use serde_json::json;

use super::notify::{self, RunNotice};
use super::run_loop::{LoopOptions, LoopOutcome, LoopSteps, config_of, tell};
use crate::checkout::root::WorkspaceRoot;
use crate::error::Result;
use crate::limits::room::DiskRoom;
use crate::run_context::{RunContext, RunProgress};

/// Between two looks at the disk.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The room on the disk of the private folders, where it is too little to begin anything.
pub(crate) fn lacking_room(config: &Config, project: &Path) -> Result<Option<DiskRoom>> {
    let folder = private_folders(config, project)?;
    let room = DiskRoom::of(&folder, &config.sandbox.limits);
    Ok(room.filter(|room| room.is_full()))
}

/// Whether there is room again, after there was too little.
pub(crate) fn has_room_again(config: &Config, project: &Path) -> Result<bool> {
    let folder = private_folders(config, project)?;
    let room = DiskRoom::of(&folder, &config.sandbox.limits);
    Ok(room.is_none_or(DiskRoom::has_room_again))
}

fn private_folders(config: &Config, project: &Path) -> Result<PathBuf> {
    WorkspaceRoot::of_all_projects(config, project)
}

/// What is told while it lasts.
pub(crate) fn words(room: DiskRoom) -> String {
    format!("a full disk: {}", room.words())
}

impl LoopSteps<'_> {
    /// Waits until there is room, and says so once. False: a signal, a stop or a bound came first.
    pub(super) fn wait_for_room(
        &self,
        context: &mut RunContext<'_>,
        config: &Config,
        is_bound_reached: &dyn Fn(&RunContext<'_>) -> bool,
        end: &LoopOutcome,
    ) -> Result<bool> {
        let root = self.project.root();
        let Some(room) = lacking_room(config, root)? else {
            return Ok(true);
        };
        let why = words(room);
        let run = Some(self.run_id);
        let kind = IterationErrorKind::Resources.as_str();
        tell(
            self.project,
            context,
            run,
            "waiting",
            json!({"until": "there is room", "kind": kind, "why": why}),
        );
        context.observer.progress(&RunProgress::Waiting {
            secs: LOOK_EVERY.as_secs(),
            why: &why,
        });
        let notice = RunNotice {
            event: "disk",
            status: "waiting",
            steps: end.steps,
            node: None,
            message: &why,
            code: Some(kind),
            until: None,
        };
        notify::notify(self.project, context, &config.notify, &notice);
        loop {
            context.cancel.wait_or_stop(LOOK_EVERY);
            if context.cancel.is_cancelled()
                || context.cancel.is_stop_asked()
                || is_bound_reached(context)
            {
                return Ok(false);
            }
            // A person may have asked for less meanwhile.
            let edited = config_of(self.project, self.git, run);
            if has_room_again(edited.as_ref().unwrap_or(config), root)? {
                tell(self.project, context, run, "resumed", json!({}));
                return Ok(true);
            }
        }
    }
}

impl LoopOptions {
    /// Whether what used up too much ends the loop: its owner has other work, and another place
    /// for this one.
    pub(super) fn ends_on(&self, kind: IterationErrorKind) -> bool {
        self.ends_on_resources && kind == IterationErrorKind::Resources
    }
}
