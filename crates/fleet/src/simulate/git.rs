//! A model of git: commits as maps from path to content, one base branch.

use std::collections::{BTreeMap, BTreeSet};

use runner_lifecycle::TaskId;
use runner_lifecycle::packet::{ChangeAction, PacketExtra, ResourceChange};

/// Contents by path.
pub(super) type SimTree = BTreeMap<String, String>;

/// A commit.
#[derive(Clone, Debug)]
pub(super) struct SimCommit {
    pub(super) parents: Vec<String>,
    pub(super) tree: SimTree,
    /// The task and run that its trailers name, if it is a result.
    pub(super) trailer: Option<(TaskId, String)>,
    /// Whether the fleet merged something with it.
    pub(super) is_merge: bool,
}

/// What merging came to.
pub(super) enum SimMergeOutcome {
    Commit(String),
    Conflicts(Vec<String>),
    Empty,
    Missing,
}

/// A repository.
#[derive(Debug)]
pub(super) struct SimRepo {
    commits: BTreeMap<String, SimCommit>,
    pub(super) base: String,
    /// Merges that were made before, by what was asked: the same question, the same commit.
    merges: BTreeMap<(String, String, String), String>,
    next: u64,
}

impl SimRepo {
    pub(super) fn new(tree: SimTree) -> SimRepo {
        let mut repo = SimRepo {
            commits: BTreeMap::new(),
            base: String::new(),
            merges: BTreeMap::new(),
            next: 0,
        };
        repo.base = repo.commit(SimCommit {
            parents: Vec::new(),
            tree,
            trailer: None,
            is_merge: false,
        });
        repo
    }

    pub(super) fn commit(&mut self, commit: SimCommit) -> String {
        let id = format!("c{:04}", self.next);
        self.next += 1;
        self.commits.insert(id.clone(), commit);
        id
    }

    pub(super) fn get(&self, id: &str) -> Option<&SimCommit> {
        self.commits.get(id)
    }

    pub(super) fn tree(&self, id: &str) -> SimTree {
        self.get(id)
            .map(|commit| commit.tree.clone())
            .unwrap_or_default()
    }

    /// Everything that can be reached from a commit, itself included.
    pub(super) fn reachable(&self, from: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut left = vec![from.to_owned()];
        while let Some(id) = left.pop() {
            if let Some(commit) = self.get(&id)
                && seen.insert(id)
            {
                left.extend(commit.parents.iter().cloned());
            }
        }
        seen
    }

    pub(super) fn changes(&self, start: &str, result: &str) -> Option<Vec<ResourceChange>> {
        let (old, new) = (&self.get(start)?.tree, &self.get(result)?.tree);
        let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed = paths.into_iter().filter_map(|path| {
            let action = match (old.get(path), new.get(path)) {
                (None, _) => ChangeAction::Created,
                (_, None) => ChangeAction::Deleted,
                (before, after) if before != after => ChangeAction::Modified,
                _ => return None,
            };
            Some(ResourceChange {
                resource: path.clone(),
                action,
                evidence: None,
                extra: PacketExtra::new(),
            })
        });
        Some(changed.collect())
    }

    /// Three ways: the result against its parent, brought into the base.
    pub(super) fn merge(&mut self, base: &str, result: &str, run_id: &str) -> SimMergeOutcome {
        let key = (base.to_owned(), result.to_owned(), run_id.to_owned());
        if let Some(commit) = self.merges.get(&key) {
            return SimMergeOutcome::Commit(commit.clone());
        }
        let (Some(ours), Some(theirs)) = (self.get(base), self.get(result)) else {
            return SimMergeOutcome::Missing;
        };
        let start = theirs.parents.first().map(|id| self.tree(id));
        let start = start.unwrap_or_default();
        let mut tree = ours.tree.clone();
        let mut conflicts = Vec::new();
        let changes = theirs
            .parents
            .first()
            .and_then(|id| self.changes(id, result));
        for change in changes.unwrap_or_default() {
            let path = change.resource;
            let (now, then) = (ours.tree.get(&path), start.get(&path));
            let new = theirs.tree.get(&path);
            if now != then && now != new {
                conflicts.push(path);
                continue;
            }
            match new {
                Some(content) => tree.insert(path, content.clone()),
                None => tree.remove(&path),
            };
        }
        if !conflicts.is_empty() {
            return SimMergeOutcome::Conflicts(conflicts);
        }
        if tree == ours.tree {
            return SimMergeOutcome::Empty;
        }
        let commit = self.commit(SimCommit {
            parents: vec![base.to_owned(), result.to_owned()],
            tree,
            trailer: None,
            is_merge: true,
        });
        self.merges.insert(key, commit.clone());
        SimMergeOutcome::Commit(commit)
    }

    /// What a person pushes to the base.
    pub(super) fn push(&mut self, path: &str, content: &str) -> String {
        let mut tree = self.tree(&self.base);
        tree.insert(path.to_owned(), content.to_owned());
        self.base = self.commit(SimCommit {
            parents: vec![self.base.clone()],
            tree,
            trailer: None,
            is_merge: false,
        });
        self.base.clone()
    }

    /// How often the base holds a result of each task.
    pub(super) fn merged_results(&self) -> BTreeMap<TaskId, u32> {
        let mut counts = BTreeMap::new();
        for id in self.reachable(&self.base) {
            if let Some((task, _)) = self.get(&id).and_then(|commit| commit.trailer.clone()) {
                *counts.entry(task).or_insert(0) += 1;
            }
        }
        counts
    }
}
