//! What a fresh checkout gets beside the files of its commit: ignored files of the user's
//! checkout, the files of submodules, and what setup makes. Whoever makes a workspace or a clean
//! checkout calls these; none of them starts a session or a guard.

mod include;
mod pinned_path;
// Checkouts that outlive one verdict ask whether setup must run again.
#[allow(dead_code)]
mod setup_key;
#[allow(dead_code)]
mod setup_scope;
mod submodules;

use std::path::{Path, PathBuf};

use runner_core::config::Config;

pub(crate) use include::copy_included;
#[allow(unused_imports)] // See above.
pub(crate) use setup_key::setup_key;
pub(crate) use submodules::fill_submodules;

use crate::error::Result;
use crate::git::Git;

/// What a checkout got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrepareReport {
    /// Ignored files that were copied, from the root. They belong into no commit.
    pub(crate) included: Vec<PathBuf>,
    /// Submodules that were filled, from the root.
    pub(crate) submodules: Vec<PathBuf>,
}

/// Gives a folder, in which a commit of the project was just checked out, what that lacks.
/// `has_mounts`: programs in it will see it at the project's own path.
pub(crate) fn prepare(
    project: &Git,
    config: &Config,
    commit: &str,
    has_mounts: bool,
    folder: &Path,
) -> Result<PrepareReport> {
    Ok(PrepareReport {
        submodules: fill_submodules(project, config, commit, folder)?,
        included: copy_included(project, config, has_mounts, folder)?,
    })
}
