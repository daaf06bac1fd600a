//! Reports in JUnit's format that a guard writes into the checkout: evidence of tests where a tool
//! prints none.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::evidence::TestEvidence;
use runner_core::paths::{GlobList, is_state_path, plain_prefix};

use super::Checkout;
use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, ReadError};
use crate::git::{split_nul, to_path};
use crate::step::file_image;

/// The largest report that is read, and how much of all of them.
const MAX_REPORT_BYTES: u64 = 32 << 20;
const MAX_ALL_BYTES: u64 = 256 << 20;

/// The files that `[guard] junit` means in one checkout.
pub(crate) struct JunitReports {
    folder: PathBuf,
    /// Where it is for those who write the reports.
    seen: PathBuf,
    globs: GlobList,
    /// Files of the commit: whatever they say, no guard has written it.
    committed: BTreeSet<PathBuf>,
}

impl JunitReports {
    /// Before the guard runs: what is there already goes, so that whatever is there afterwards is
    /// the guard's.
    pub(crate) fn begin(checkout: &Checkout, seen: &Path, config: &Config) -> Result<Self> {
        let globs = GlobList::new(&config.guard.junit)
            .map_err(|error| Error::new(ErrorCode::Config, format!("[guard] junit: {error}")))?;
        let mut reports = JunitReports {
            folder: checkout.path().to_owned(),
            seen: seen.to_owned(),
            globs,
            committed: BTreeSet::new(),
        };
        if reports.globs.is_empty() {
            return Ok(reports);
        }
        let listed = checkout.tree.git.read(&["ls-files", "-z"])?;
        reports.committed = split_nul(&listed).map(to_path).collect();
        for path in reports.found() {
            files::remove_if_there(&reports.folder.join(path))?;
        }
        Ok(reports)
    }

    /// After it has ended: adds what its reports say.
    pub(crate) fn add_to(&self, tests: &mut TestEvidence) -> Result<()> {
        let mut room = MAX_ALL_BYTES;
        let folder = format!("{}/", self.seen.display());
        for path in self.found() {
            let limit = room.min(MAX_REPORT_BYTES);
            let bytes = match files::read_regular(&self.folder.join(&path), limit) {
                Ok(bytes) => bytes,
                Err(ReadError::Io(error)) => {
                    return Err(files::at(&self.folder.join(&path), error).into());
                }
                // Not what a test tool leaves.
                Err(_) => continue,
            };
            room = room.saturating_sub(bytes.len() as u64);
            // The same tests have the same names in every checkout.
            let text = String::from_utf8_lossy(&bytes).replace(&folder, "");
            tests.add_junit(text.as_bytes());
        }
        Ok(())
    }

    /// Files that a glob means and that are not of the commit; links are not followed.
    fn found(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let starts: BTreeSet<&str> = self
            .globs
            .patterns()
            .iter()
            .map(|pattern| plain_prefix(pattern))
            .collect();
        for start in starts.into_iter().map(Path::new) {
            if !file_image::parents_are_folders(&self.folder, &start.join("x")) {
                continue;
            }
            file_image::walk(&self.folder, start, &mut |path, kind| {
                let bytes = path.as_os_str().as_bytes();
                let is_meant = self.globs.is_match(bytes) && !is_state_path(bytes);
                if is_meant && kind.is_file() && !self.committed.contains(&path) {
                    found.insert(path);
                }
            });
        }
        found
    }
}
