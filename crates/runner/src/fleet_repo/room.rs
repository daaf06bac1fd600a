//! A worker of a fleet begins nothing on a full disk.

use runner_core::config::Config;
use runner_core::meta::IterationErrorKind;

use super::FleetRepo;
use crate::error::{Error, ErrorCode, Result};
use crate::project::Project;
use crate::run::disk_wait::{LOOK_EVERY, has_room_again, lacking_room, words};
use crate::run::notify::{self, RunNotice};
use crate::run_context::{RunContext, RunProgress};

impl FleetRepo {
    /// Waits until the disk of the private folders has room, and tells a person once. A signal
    /// ends the wait, too.
    pub fn wait_for_room(&self, run_id: &str, context: &mut RunContext<'_>) -> Result<()> {
        let config = Config::parse(&self.config_text()?).map_err(|_| {
            Error::new(ErrorCode::Config, "the config of the fleet is wrong")
                .hint("`runner doctor` says where")
        })?;
        let root = self.git.root();
        let Some(room) = lacking_room(&config, root)? else {
            return Ok(());
        };
        let why = words(room);
        context.observer.progress(&RunProgress::Waiting {
            secs: LOOK_EVERY.as_secs(),
            why: &why,
        });
        let notice = RunNotice {
            event: "disk",
            status: "waiting",
            steps: 0,
            node: None,
            message: &why,
            code: Some(IterationErrorKind::Resources.as_str()),
            until: None,
        };
        let project = Project::at(root.to_owned());
        notify::notify_of_run(&project, context, &config.notify, (run_id, None), &notice);
        while !context.cancel.is_cancelled() && !has_room_again(&config, root)? {
            context.cancel.wait_or_stop(LOOK_EVERY);
        }
        Ok(())
    }
}
