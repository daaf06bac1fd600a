//! What git ignored in the user's checkout when it was copied last. The checkout follows a run, so
//! its ignore rules are those of sessions: what a session takes off them is still copied.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::files;
use crate::git::{Git, split_nul, to_path};

/// The file in the git folder, where no session can write.
const FILE: &str = "runner/ignored";

/// The largest such file.
const MAX_BYTES: u64 = 1 << 20;

/// Files and folders that were ignored as a whole, from the root.
#[derive(Debug, Default)]
pub(super) struct IgnoredBefore(BTreeSet<PathBuf>);

impl IgnoredBefore {
    pub(super) fn read(project: &Git) -> Self {
        let path = project.common_dir().join(FILE);
        let bytes = files::read_regular(&path, MAX_BYTES).unwrap_or_default();
        IgnoredBefore(split_nul(&bytes).map(to_path).collect())
    }

    /// Whether a path is one of them, or in one.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.ancestors().any(|it| self.0.contains(it))
    }

    /// The files that lie there and are not tracked, as git lists them.
    pub(super) fn files(&self, project: &Git) -> Result<Vec<u8>> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = ["ls-files", "--others", "-z", "--"]
            .map(OsString::from)
            .to_vec();
        args.extend(self.0.iter().map(|path| {
            let mut literal = OsString::from(":(top,literal)");
            literal.push(path);
            literal
        }));
        project.read(&args)
    }

    /// Writes down what of these files is ignored now, or was, and is still there.
    pub(super) fn update(&self, project: &Git, found: &BTreeSet<PathBuf>) -> Result<()> {
        if found.is_empty() && self.0.is_empty() {
            return Ok(());
        }
        let now = project.ignored()?;
        let now = now
            .iter()
            .map(|name| PathBuf::from(name.trim_end_matches('/')));
        let ignored: BTreeSet<PathBuf> = now.chain(self.0.iter().cloned()).collect();
        let is_there = |path: &Path| found.contains(path) || ignored.contains(path);
        let used: BTreeSet<PathBuf> = found
            .iter()
            .filter_map(|path| path.ancestors().filter(|it| is_there(it)).last())
            .filter(|path| ignored.contains(*path))
            .map(Path::to_owned)
            .collect();
        if used == self.0 {
            return Ok(());
        }
        let names: Vec<&[u8]> = used.iter().map(|it| it.as_os_str().as_bytes()).collect();
        let path = project.common_dir().join(FILE);
        if let Some(folder) = path.parent() {
            files::make_folder(folder)?;
        }
        Ok(files::write_whole(&path, &names.join(&0))?)
    }
}
