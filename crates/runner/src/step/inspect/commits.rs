//! What goes into a commit, and new files that must not.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::collisions::name_collisions;
use runner_core::config::Config;
use runner_core::paths::{self, DenyList};
use runner_core::text::escape_path;

use super::{CleanupFindings, name};
use crate::checkout::indexed_tree::IndexedTree;
use crate::checkout::trial::some_of;
use crate::error::{Error, ErrorCode, Result};
use crate::git::to_path;
use crate::original_tests::TestFiles;
use crate::step::Iteration;
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// So many times its size a file of the commit may become that is larger than `[commit]` allows.
const GROWTH: u64 = 2;

/// What `[commit]` says.
pub(super) struct CommitRules<'a, 't> {
    list: DenyList,
    max_bytes: u64,
    protected: &'a ProtectedFiles<'t>,
}

impl<'a, 't> CommitRules<'a, 't> {
    pub(super) fn new(config: &Config, protected: &'a ProtectedFiles<'t>) -> Result<Self> {
        let list = DenyList::new(&config.commit.deny)
            .map_err(|error| Error::new(ErrorCode::Config, format!("[commit] deny: {error}")))?;
        Ok(CommitRules {
            list,
            max_bytes: config.commit.max_file_bytes,
            protected,
        })
    }

    /// How to call a file that must not be committed.
    fn denied(&self, path: &Path, size: Option<u64>) -> Option<String> {
        if self.list.denied_by(path.as_os_str().as_bytes()).is_some() {
            return Some(name(path));
        }
        let size = size.filter(|size| *size > self.max_bytes)?;
        Some(format!("{} ({size} bytes)", name(path)))
    }

    /// Moves those of the files to `quarantine`; how they are called.
    pub(super) fn take(
        &self,
        root: &Path,
        files: &BTreeSet<PathBuf>,
        quarantine: &Path,
    ) -> Result<Vec<String>> {
        let mut taken = Vec::new();
        for path in files.iter().filter(|path| is_new(path, self.protected)) {
            let Some(meta) = committable(root, path) else {
                continue;
            };
            let size = meta.is_file().then_some(meta.len());
            if let Some(name) = self.denied(path, size) {
                file_image::move_to(root, path, quarantine)?;
                taken.push(name);
            }
        }
        Ok(taken)
    }
}

/// Whether the path may become part of a commit, and is in none yet.
fn is_new(path: &Path, protected: &ProtectedFiles<'_>) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let state = [paths::TREE, paths::ASSUMPTIONS, paths::QUESTIONS];
    let owned = paths::is_owned(bytes) || state.iter().any(|name| name.as_bytes() == bytes);
    !owned && !paths::is_local_only(bytes) && protected.entry(path).is_none()
}

/// What lies at a path, if it is something that a commit can have.
fn committable(root: &Path, path: &Path) -> Option<Metadata> {
    let meta = root.join(path).symlink_metadata().ok()?;
    (!meta.is_dir() && file_image::parents_are_folders(root, path)).then_some(meta)
}

/// Takes away new files whose names are, but for case, those of others: on some file systems only
/// one of them could be checked out.
pub(super) fn take_collisions(
    root: &Path,
    it: &Iteration,
    protected: &ProtectedFiles<'_>,
    order: &mut CleanupFindings,
) -> Result<()> {
    let there = |path: &&PathBuf| committable(root, path).is_some();
    let changed = order.changed.iter().filter(there);
    let (new, others): (BTreeSet<&PathBuf>, BTreeSet<&PathBuf>) =
        changed.partition(|path| is_new(path, protected));
    let known = protected
        .tracked
        .iter()
        .map(|entry| &entry.path)
        .filter(|path| !order.changed.contains(*path))
        .chain(others);
    let found = name_collisions(
        known.map(|path| path.as_os_str().as_bytes()),
        &new.into_iter()
            .map(|path| path.as_os_str().as_bytes())
            .collect(),
    );
    for collision in found {
        let path = to_path(&collision.path);
        file_image::move_to(root, &path, &it.quarantine())?;
        order.changed.remove(&path);
        order.not_committable.push(format!(
            "{} (its name differs from {} in nothing but case)",
            name(&path),
            escape_path(&collision.with)
        ));
    }
    Ok(())
}

/// Tells of pipes and the like, and brings files back in whose place they were.
pub(super) fn undo_special(
    tree: &IndexedTree,
    it: &Iteration,
    order: &mut CleanupFindings,
) -> Result<()> {
    let special = std::mem::take(&mut order.special);
    // What is protected was brought back already, and told.
    let is_away = |path: &Path| tree.folder().join(path).symlink_metadata().is_err();
    let special: Vec<_> = special
        .into_iter()
        .filter(|(path, _)| is_away(path))
        .collect();
    let paths: Vec<PathBuf> = special.iter().map(|(path, _)| path.clone()).collect();
    tree.undo(&paths, &it.quarantine())?;
    for (path, shown) in special {
        order.changed.remove(&path);
        order.not_committable.push(shown);
    }
    Ok(())
}

/// Brings files of the commit back that have grown beyond every limit: reading one of a terabyte
/// that holds nothing takes hours.
pub(super) fn undo_grown(
    tree: &IndexedTree,
    it: &Iteration,
    config: &Config,
    order: &mut CleanupFindings,
) -> Result<()> {
    let max = config.commit.max_file_bytes;
    let mut grown = Vec::new();
    for path in &order.changed {
        let meta = committable(tree.folder(), path).filter(Metadata::is_file);
        let Some(size) = meta.map(|meta| meta.len()).filter(|size| *size > max) else {
            continue;
        };
        // A person may have committed a larger one.
        let allowed = tree.size_in_index(path)?.saturating_mul(GROWTH);
        if size > max.max(allowed) {
            grown.push((path.clone(), format!("{} ({size} bytes)", name(path))));
        }
    }
    let paths: Vec<PathBuf> = grown.iter().map(|(path, _)| path.clone()).collect();
    tree.undo(&paths, &it.quarantine())?;
    for (path, shown) in grown {
        order.changed.remove(&path);
        order.denied.push(shown);
    }
    Ok(())
}

/// The list of submodules must be one that git can read.
pub(super) fn take_submodule_list(
    tree: &IndexedTree,
    it: &Iteration,
    order: &mut CleanupFindings,
) -> Result<()> {
    let path = PathBuf::from(".gitmodules");
    let full = tree.folder().join(&path);
    let Ok(meta) = full.symlink_metadata() else {
        return Ok(());
    };
    if !order.changed.contains(&path) || meta.is_file() && tree.git.reads_config(&full)? {
        return Ok(());
    }
    tree.undo(std::slice::from_ref(&path), &it.quarantine())?;
    order.changed.remove(&path);
    order
        .not_committable
        .push(".gitmodules (git cannot read it)".to_owned());
    Ok(())
}

/// Attributes must leave protected files as they are.
pub(super) fn undo_attributes(
    tree: &IndexedTree,
    it: &Iteration,
    (config, protected, project): (&Config, &ProtectedFiles<'_>, &Path),
    order: &mut CleanupFindings,
) -> Result<()> {
    let is_one = |path: &&PathBuf| path.file_name().is_some_and(|it| it == ".gitattributes");
    let changed: Vec<PathBuf> = order.changed.iter().filter(is_one).cloned().collect();
    if changed.is_empty() {
        return Ok(());
    }
    let tests = TestFiles::of(config)?
        .seen_at(project)
        .through_links_of(&tree.git, protected.head())?;
    let recoded = protected.recoded(&tree.git, &tests, tree.source.filters())?;
    if recoded.is_empty() {
        return Ok(());
    }
    tree.undo(&changed, &it.quarantine())?;
    for path in changed {
        order.not_committable.push(format!(
            "{} (it changes how files are checked out that are protected, tests, or meant for a filter: {})",
            name(&path),
            some_of(&recoded)
        ));
        order.changed.remove(&path);
    }
    Ok(())
}

/// Takes what has changed into the index. A file that git cannot take goes to the quarantine, and is
/// told like one that must not be committed.
pub(super) fn take(tree: &IndexedTree, it: &Iteration, order: &mut CleanupFindings) -> Result<()> {
    let local = |path: &&PathBuf| !paths::is_local_only(path.as_os_str().as_bytes());
    let filtered = tree.source.filtered(&tree.git, &order.changed)?;
    tree.undo(&filtered, &it.quarantine())?;
    for path in &filtered {
        order.changed.remove(path);
        order.not_committable.push(format!(
            "{} (it is meant for a filter of yours, which no session may run)",
            name(path)
        ));
    }
    let wanted: BTreeSet<PathBuf> = order.changed.iter().filter(local).cloned().collect();
    let before = order.not_committable.len();
    let failed = take_or_split(tree, it, wanted, &mut order.not_committable)?;
    match failed {
        // Every file can be taken by itself: it is not because of one of them.
        Some(error) if order.not_committable.len() == before => Err(error),
        _ => Ok(()),
    }
}

/// Takes files, and takes away those that cannot be taken, found by halves. What is returned is an
/// error that came of none of them.
fn take_or_split(
    tree: &IndexedTree,
    it: &Iteration,
    mut paths: BTreeSet<PathBuf>,
    refused: &mut Vec<String>,
) -> Result<Option<Error>> {
    let error = match tree.take(&paths) {
        Ok(()) => return Ok(None),
        Err(error) if error.code != ErrorCode::Git || error.hint.is_some() => return Err(error),
        Err(error) => error,
    };
    let Some(middle) = paths.iter().nth(paths.len() / 2).cloned() else {
        return Ok(Some(error));
    };
    if paths.len() > 1 {
        let second = paths.split_off(&middle);
        let first = take_or_split(tree, it, paths, refused)?;
        let second = take_or_split(tree, it, second, refused)?;
        return Ok(first.or(second));
    }
    // Whether it helped shows at once.
    let _ = file_image::make_readable(&tree.folder().join(&middle));
    if tree.take(&paths).is_err() {
        file_image::move_to(tree.folder(), &middle, &it.quarantine())?;
        refused.push(name(&middle));
        tree.take(&paths)?;
    }
    Ok(None)
}
