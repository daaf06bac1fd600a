//! What is in the index.

use std::path::PathBuf;

use super::{Git, SUBMODULE, TreeEntry, split_nul, to_path};
use crate::error::Result;

/// A file in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// As in [`TreeEntry`].
    pub(crate) mode: String,
    /// Marked `assume-unchanged`.
    pub(crate) assumed: bool,
    /// Marked `skip-worktree`.
    pub(crate) skipped: bool,
    /// From the root of the repository.
    pub(crate) path: PathBuf,
}

impl Git {
    /// Keeps the submodules of a commit in mind.
    pub(crate) fn remember_submodules(&self, files: &[TreeEntry]) {
        let found = files.iter().filter(|entry| entry.mode == SUBMODULE);
        let found = found.map(|entry| entry.path.clone()).collect();
        *self.submodules.borrow_mut() = Some(found);
    }

    /// The submodules in the index, or those that were kept in mind.
    pub(crate) fn submodules(&self) -> Result<Vec<PathBuf>> {
        if let Some(known) = &*self.submodules.borrow() {
            return Ok(known.clone());
        }
        let found: Vec<PathBuf> = self
            .index_entries()?
            .into_iter()
            .filter(|entry| entry.mode == SUBMODULE)
            .map(|entry| entry.path)
            .collect();
        *self.submodules.borrow_mut() = Some(found.clone());
        Ok(found)
    }

    /// Everything in the index.
    pub(crate) fn index_entries(&self) -> Result<Vec<IndexEntry>> {
        let listing = self.read(&["ls-files", "-v", "--stage", "-z"])?;
        Ok(split_nul(&listing)
            .filter_map(|record| {
                // "H 100644 0123… 0\tpath"
                let tab = record.iter().position(|byte| *byte == b'\t')?;
                let mut words = record[..tab].split(|byte| *byte == b' ');
                let tag = *words.next()?.first()?;
                let mode = String::from_utf8_lossy(words.next()?).into_owned();
                Some(IndexEntry {
                    mode,
                    assumed: tag.is_ascii_lowercase(),
                    skipped: tag.eq_ignore_ascii_case(&b'S'),
                    path: to_path(&record[tab + 1..]),
                })
            })
            .collect())
    }
}
