//! What a fresh checkout gets beside the files of its commit: ignored files of the user's
//! checkout, the files of submodules, and what setup makes. Whoever makes a workspace or a clean
//! checkout calls these; none of them starts a session or a guard.

mod ignored_before;
mod include;
mod made_files;
mod moved_submodules;
mod pinned_path;
mod prepared;
mod setup_key;
mod setup_scope;
mod start_rules;
mod submodules;

use std::path::{Path, PathBuf};

use runner_core::config::Config;

pub(crate) use include::copy_included;
pub(crate) use moved_submodules::settle_submodules;
pub(crate) use prepared::{
    CheckoutPreparer, PREPARED, WarmStart, begin_cleaning, empty, included_files, last_set_up,
};
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

/// A folder in which a commit was just checked out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreshCheckout<'a> {
    /// The repository that has the commit.
    pub(crate) git: &'a Git,
    pub(crate) commit: &'a str,
    pub(crate) folder: &'a Path,
}

/// Gives a fresh checkout what its commit lacks, from the user's project. `has_mounts`: programs
/// in it will see it at the project's own path.
pub(crate) fn prepare(
    project: &Git,
    config: &Config,
    has_mounts: bool,
    fresh: FreshCheckout<'_>,
) -> Result<PrepareReport> {
    Ok(PrepareReport {
        submodules: fill_submodules(project, config, fresh)?,
        included: copy_included(project, config, has_mounts, fresh.folder)?,
    })
}
