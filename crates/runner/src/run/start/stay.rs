//! `start --stay`: the run begins, the checkout stays where it is.

use std::os::unix::ffi::OsStrExt as _;

use runner_core::paths;

use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::step::head_files::blob_name;

/// Takes what the run's first commit has of `.runner/` out of the checkout, where that is not what
/// is checked out: the run has it now, and nothing is lost.
pub(super) fn leave(project: &Project, git: &Git, run: &str) -> Result<()> {
    let tracked = git.files_of("HEAD")?;
    for entry in git.files_of(run)? {
        let is_ours = paths::is_state_path(entry.path.as_os_str().as_bytes());
        if !is_ours || tracked.iter().any(|it| it.path == entry.path) {
            continue;
        }
        let full = project.root().join(&entry.path);
        let same = files::read_regular(&full, paths::MAX_STATE_BYTES)
            .is_ok_and(|bytes| blob_name(&bytes, entry.oid.len()) == entry.oid);
        if same {
            files::remove_if_there(&full)?;
        }
        for folder in entry.path.ancestors().skip(1) {
            if folder.as_os_str().is_empty()
                || std::fs::remove_dir(project.root().join(folder)).is_err()
            {
                break;
            }
        }
    }
    Ok(())
}
