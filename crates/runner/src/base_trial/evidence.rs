//! What the guard reported of tests where runs begin, and which files of the commit it changed: what
//! later verdicts are compared with. Kept in
//! the project's private folder, which no session can write to.

use std::fmt::Write as _;
use std::path::PathBuf;

use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use runner_core::evidence::{EvidenceGap, TestDifference, TestEvidence, compare};

use super::cache::FOLDER;
use crate::checkout::make_real_folder;
use crate::checkout::root::WorkspaceRoot;
use crate::error::Result;
use crate::files;
use crate::git::Git;

/// Names of some hundred thousand tests.
const MAX_BYTES: u64 = 64 << 20;

/// How the names of the files end.
const TESTS: &str = "tests";
const CHANGED: &str = "changed";

/// Where the report of a base is kept.
pub(crate) struct BaseEvidence {
    path: PathBuf,
    /// There where the base was tried with any guard.
    tried: PathBuf,
}

impl BaseEvidence {
    /// The report of a guard at a commit that runs begin from.
    pub(crate) fn at(project: &Git, config: &Config, base: &str) -> Result<Self> {
        let root = WorkspaceRoot::of(project, config)?;
        let mut name = format!(
            "{base} {:?} {:?}",
            config.guard.command, config.workspace.setup
        );
        if !config.guard.junit.is_empty() {
            let _ = write!(name, " {:?}", config.guard.junit);
        }
        let name = format!("{}.{TESTS}", sha256_hex(name.as_bytes()));
        let tried = format!("{}.tried", sha256_hex(base.as_bytes()));
        Ok(BaseEvidence {
            path: root.folder().join(FOLDER).join(name),
            tried: root.folder().join(FOLDER).join(tried),
        })
    }

    /// The report, where the base was tried.
    pub(crate) fn read(&self) -> Option<TestEvidence> {
        let bytes = files::read_regular(&self.path, MAX_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The files of the commit that the guard changes there, where that is known.
    pub(crate) fn changed(&self) -> Option<Vec<String>> {
        let bytes = files::read_regular(&self.path.with_extension(CHANGED), MAX_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Keeps them.
    pub(crate) fn write_changed(&self, changed: &[String]) -> Result<()> {
        self.put(CHANGED, &serde_json::to_vec(changed).unwrap_or_default())
    }

    /// Whether the base was tried, with another guard or setup: then it is to be tried again.
    pub(crate) fn is_outdated(&self) -> bool {
        self.tried.exists() && self.read().is_none()
    }

    /// Keeps a report.
    pub(crate) fn write(&self, tests: &TestEvidence) -> Result<()> {
        // Names and numbers: there is nothing that could fail.
        self.put(TESTS, &serde_json::to_vec(tests).unwrap_or_default())?;
        Ok(files::write_shared(&self.tried, b"")?)
    }

    fn put(&self, kind: &str, bytes: &[u8]) -> Result<()> {
        if let Some(folder) = self.path.parent() {
            make_real_folder(folder)?;
        }
        Ok(files::write_shared(&self.path.with_extension(kind), bytes)?)
    }

    /// Compares a report with that of the base; nothing is missing where that is unknown.
    pub(crate) fn compare(&self, now: &TestEvidence) -> (Vec<EvidenceGap>, TestDifference) {
        self.read()
            .map_or_else(Default::default, |base| compare(&base, now))
    }
}
