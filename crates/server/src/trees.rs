//! A tree that was read and checked, kept until its file is another one: a tree
//! of 10,000 nodes is parsed, hashed and compressed once, not for each answer.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::body::Bytes;
use runner::{ContentId, FileId};
use runner_core::select::{Selection, select};
use runner_core::tree::{self, Node, TreeOrder};

use crate::beneath;
use crate::reply;
use crate::wire::{LeafView, TreeFindingView};

/// How many trees are kept: the current one, and some of the past.
const KEPT: usize = 6;

/// A tree file: what it says, or what is wrong with it.
pub(crate) type CheckedTree = Result<Arc<ValidTree>, Arc<Vec<TreeFindingView>>>;

/// A valid tree.
pub(crate) struct ValidTree {
    /// The file as it is.
    pub(crate) bytes: Bytes,
    /// Its name among all contents.
    pub(crate) etag: String,
    /// Leaves that passed.
    pub(crate) passed: u32,
    /// All leaves.
    pub(crate) leaves: u32,
    /// What the next step would take.
    pub(crate) next: NextSelection,
    /// Title and path by id.
    places: HashMap<String, (String, String)>,
    gzip: OnceLock<Bytes>,
}

/// What the next step would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextSelection {
    Open(LeafView),
    Stuck(LeafView),
    Complete,
}

impl ValidTree {
    /// Title and path of a node.
    pub(crate) fn place(&self, id: &str) -> Option<&(String, String)> {
        self.places.get(id)
    }

    /// The file, compressed once.
    pub(crate) fn gzip(&self) -> Bytes {
        self.gzip.get_or_init(|| reply::gzip(&self.bytes)).clone()
    }

    fn new(bytes: Vec<u8>) -> CheckedTree {
        let root = match tree::parse_and_check(&bytes, TreeOrder::Sorted) {
            Ok(root) => root,
            Err(findings) => {
                let findings = findings.into_iter().map(|finding| TreeFindingView {
                    place: finding.place,
                    message: finding.message,
                });
                return Err(Arc::new(findings.collect()));
            }
        };
        let progress = root.progress();
        let leaf = |target: &runner_core::select::SelectedLeaf<'_, '_>| LeafView {
            id: target.node.id.to_string(),
            path: target.path(),
            attempts: target.node.attempts,
            max_attempts: target.node.max_attempts,
        };
        let next = match select(&root) {
            Selection::Complete => NextSelection::Complete,
            Selection::Open(target) => NextSelection::Open(leaf(&target)),
            Selection::Stuck(target) => NextSelection::Stuck(leaf(&target)),
        };
        let mut places = HashMap::new();
        note_places(&root, "", &mut places);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (passed, leaves) = (count(progress.passed), count(progress.leaves));
        drop(root);
        Ok(Arc::new(ValidTree {
            etag: reply::etag_of(&bytes),
            bytes: bytes.into(),
            passed,
            leaves,
            next,
            places,
            gzip: OnceLock::new(),
        }))
    }
}

fn note_places(node: &Node<'_>, above: &str, places: &mut HashMap<String, (String, String)>) {
    let path = if above.is_empty() {
        node.id.to_string()
    } else {
        format!("{above}/{}", node.id)
    };
    for child in &node.children {
        note_places(child, &path, places);
    }
    places.insert(node.id.to_string(), (node.title.to_string(), path));
}

/// The trees that were asked for last.
#[derive(Default)]
pub(crate) struct TreeCache {
    kept: Mutex<Vec<(ContentId, CheckedTree)>>,
}

impl TreeCache {
    /// Reads and checks a tree file below the root, or remembers having done so.
    pub(crate) fn get(&self, root: &Path, parts: &[&str]) -> io::Result<CheckedTree> {
        let file = beneath::open(root, parts)?;
        let id = ContentId::File(FileId::of(&file.metadata()?));
        drop(file);
        self.remember(&id, || {
            let (id, bytes) = beneath::read(root, parts, tree::MAX_BYTES)?;
            Ok((ContentId::File(id), bytes))
        })
    }

    /// The tree with this id; `read` says which one it then was.
    pub(crate) fn remember(
        &self,
        id: &ContentId,
        read: impl FnOnce() -> io::Result<(ContentId, Vec<u8>)>,
    ) -> io::Result<CheckedTree> {
        // Held while it is read: many who ask at once cause one reading.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| known == id)
            && !id.is_fresh()
        {
            let found = kept.remove(at);
            let checked = found.1.clone();
            kept.push(found);
            return Ok(checked);
        }
        let (id, bytes) = read()?;
        let etag = reply::etag_of(&bytes);
        // The same content as before, though perhaps in another file.
        let same = kept
            .iter()
            .find(|(_, checked)| checked.as_ref().is_ok_and(|tree| tree.etag == etag));
        let checked = match same {
            Some((_, checked)) => checked.clone(),
            None => ValidTree::new(bytes),
        };
        kept.retain(|(known, _)| *known != id);
        kept.push((id, checked.clone()));
        if kept.len() > KEPT {
            drop(kept.remove(0));
        }
        Ok(checked)
    }
}
