//! Things that belong to other users, cannot be changed, or are mounted: a service that a session
//! talked to left them, or a session with all rights.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use runner_core::meta::StepFacts;

use super::name;
use crate::checkout::indexed_tree::{IndexedTree, KeptFiles};
use crate::checkout::quarantine;
use crate::error::Result;
use crate::step::protected_files::ProtectedFiles;

/// No more of them are told.
const MAX_TOLD: usize = 20;

/// Makes the workspace anew of what can be taken back, and says what could not. Files of the commit
/// among that are as the commit has them.
pub(super) fn take_back(
    tree: &IndexedTree,
    protected: &ProtectedFiles<'_>,
    facts: &mut StepFacts,
) -> Result<()> {
    let root = tree.folder();
    if root.symlink_metadata().is_err() {
        // Nothing is left of the session: a folder that is gone says nothing about its files.
        quarantine::make_anew(root)?;
        return tree.bring_to(protected.head(), KeptFiles::Ignored);
    }
    let taken = quarantine::take_back(root)?;
    let is_left = |path: &Path| taken.left.iter().any(|left| path.starts_with(left));
    let tracked = protected.tracked.iter().map(|entry| &entry.path);
    let lost: BTreeSet<PathBuf> = tracked.filter(|path| is_left(path)).cloned().collect();
    if !lost.is_empty() {
        tree.write_files(&lost)?;
    }
    let shown = taken.left.iter().take(MAX_TOLD).map(|path| {
        if path.as_os_str().is_empty() {
            "the workspace".to_owned()
        } else {
            name(path)
        }
    });
    let place = taken.quarantine.display();
    facts.not_committable.extend(
        shown.map(|shown| format!("{shown} (you may not read or move it; it is in {place})")),
    );
    Ok(())
}
