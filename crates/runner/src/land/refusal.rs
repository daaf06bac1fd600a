//! What `land` refused, kept for the report of the run until it is another one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::pending;
use crate::error::Result;
use crate::files;
use crate::project::Project;

const NAME: &str = "land-refused.json";
const MAX_BYTES: u64 = 1 << 20;

/// A landing that its judges refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusedLanding {
    /// The commit of the run.
    pub(crate) tip: String,
    /// The branch, and its last commit then.
    pub(crate) branch: String,
    pub(crate) branch_tip: String,
    /// Why.
    pub(crate) why: String,
    /// What the run changed about its judge.
    pub(crate) changed: Vec<String>,
    /// The command by which a person accepts that.
    pub(crate) accept: String,
}

impl RefusedLanding {
    fn path(project: &Project, run_id: &str) -> PathBuf {
        project.run_folder(run_id).join(NAME)
    }

    /// The last one of a run.
    pub(crate) fn read(project: &Project, run_id: &str) -> Option<Self> {
        let bytes = files::read_regular(&Self::path(project, run_id), MAX_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn save(&self, project: &Project, run_id: &str) -> Result<()> {
        pending::make_run_folder(project, run_id)?;
        // Strings alone: there is nothing that could fail.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        Ok(files::write_whole(&Self::path(project, run_id), &bytes)?)
    }

    /// It was accepted, or is none any more.
    pub(crate) fn remove(project: &Project, run_id: &str) -> Result<()> {
        Ok(files::remove_if_there(&Self::path(project, run_id))?)
    }
}
