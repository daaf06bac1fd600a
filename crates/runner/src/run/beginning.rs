//! Where a run began. Its history says so, and that does not change: it is read once, and kept
//! beside the workspace.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkout::{MADE, beside};
use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::state::branch_record::BranchRecord;

/// The file, beside the workspace of the run.
const FILE: &str = "beginning.json";

/// The largest such file.
const MAX_BYTES: u64 = 64 << 10;

/// Where a run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunBeginning {
    run_id: String,
    /// The commit that began it.
    pub(crate) start: Option<String>,
    /// The commit that it began from.
    pub(crate) base: Option<String>,
}

impl RunBeginning {
    /// Of a run whose sessions work in this folder.
    pub(crate) fn of(git: &Git, run_id: &str, workspace: &Path) -> Result<Self> {
        let folder = beside(workspace, MADE);
        let path = folder.join(FILE);
        let known = files::read_regular(&path, MAX_BYTES).ok();
        let known = known.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        if let Some(known) = known.filter(|known| known.run_id == run_id) {
            return Ok(known);
        }
        let record = BranchRecord::read(git, run_id)?;
        let found = RunBeginning {
            run_id: run_id.to_owned(),
            start: record.start,
            base: record.base.map(|(_, commit)| commit),
        };
        if found.start.is_some() {
            files::make_folder(&folder)?;
            // Strings alone: there is nothing that could fail.
            let bytes = serde_json::to_vec(&found).unwrap_or_default();
            files::write_whole(&path, &bytes)?;
        }
        Ok(found)
    }
}
