//! The task tree: one node type, borrowed from the bytes it was read from.

mod changes;
mod check;
mod parse;
mod summary;
mod write;

use std::borrow::Cow;
use std::fmt;

pub use changes::{TreeChanges, TreeViolation, compare};
pub use check::{TreeOrder, check};
pub use parse::{parse, parse_and_check};
pub use summary::summary;
pub use write::{to_bytes, to_json};

/// The deepest valid tree, the root being level 1.
pub const MAX_LEVELS: usize = 64;

/// The largest tree file that is read at all.
pub const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// A task: a leaf is worked on, an inner node passes when all its children have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Unique in the whole tree.
    pub id: Cow<'a, str>,
    /// First sorting key among siblings; ties are broken by `id`.
    pub order: i64,
    /// One line for people.
    pub title: Cow<'a, str>,
    /// What shall be true in the end.
    pub goal: Cow<'a, str>,
    /// What to look at to see that it is.
    pub acceptance: Vec<Cow<'a, str>>,
    /// Runner-owned: proven by a green guard.
    pub passes: bool,
    /// Runner-owned: how many sessions did not get there.
    pub attempts: u32,
    /// How many may.
    pub max_attempts: u32,
    /// Parts of this task, sorted by `(order, id)`.
    pub children: Vec<Node<'a>>,
}

impl<'a> Node<'a> {
    /// An open leaf without acceptance criteria.
    pub fn leaf(
        id: impl Into<Cow<'a, str>>,
        title: impl Into<Cow<'a, str>>,
        goal: impl Into<Cow<'a, str>>,
        max_attempts: u32,
    ) -> Self {
        Node {
            id: id.into(),
            order: 0,
            title: title.into(),
            goal: goal.into(),
            acceptance: Vec::new(),
            passes: false,
            attempts: 0,
            max_attempts,
            children: Vec::new(),
        }
    }

    /// Whether this node has no parts.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Whether this is a leaf that has used up its attempts and has not passed.
    pub fn is_stuck(&self) -> bool {
        self.is_leaf() && !self.passes && self.attempts >= self.max_attempts
    }

    /// Every node of this subtree, parents before children, in order.
    pub fn walk(&self) -> TreeWalk<'_, 'a> {
        TreeWalk { stack: vec![self] }
    }

    /// The node with this id, if it is in this subtree.
    pub fn find(&self, id: &str) -> Option<&Node<'a>> {
        self.walk().find(|node| node.id == id)
    }

    /// The node with this id, to change it.
    pub fn find_mut(&mut self, id: &str) -> Option<&mut Node<'a>> {
        if self.id == id {
            return Some(self);
        }
        self.children
            .iter_mut()
            .find_map(|child| child.find_mut(id))
    }

    /// The nodes from this one down to the one with the id, both included.
    pub fn lineage(&self, id: &str) -> Option<Vec<&Node<'a>>> {
        if self.id == id {
            return Some(vec![self]);
        }
        self.children.iter().find_map(|child| {
            let mut below = child.lineage(id)?;
            below.insert(0, self);
            Some(below)
        })
    }

    /// `root/a/b`: the ids from the root down to the node.
    pub fn path_of(&self, id: &str) -> Option<String> {
        let ids: Vec<&str> = self.lineage(id)?.iter().map(|node| &*node.id).collect();
        Some(ids.join("/"))
    }

    /// Sorts the children of every node by `(order, id)`.
    pub fn sort(&mut self) {
        self.children
            .sort_by(|a, b| (a.order, &a.id).cmp(&(b.order, &b.id)));
        for child in &mut self.children {
            child.sort();
        }
    }

    /// How many leaves there are and how many of them passed.
    pub fn progress(&self) -> TreeProgress {
        let mut progress = TreeProgress::default();
        for node in self.walk().filter(|node| node.is_leaf()) {
            progress.leaves += 1;
            progress.passed += usize::from(node.passes);
        }
        progress
    }
}

/// Leaves passed of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeProgress {
    /// Leaves that passed.
    pub passed: usize,
    /// All leaves.
    pub leaves: usize,
}

/// Iterator of [`Node::walk`].
pub struct TreeWalk<'t, 'a> {
    stack: Vec<&'t Node<'a>>,
}

impl<'t, 'a> Iterator for TreeWalk<'t, 'a> {
    type Item = &'t Node<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.stack.pop()?;
        self.stack.extend(node.children.iter().rev());
        Some(node)
    }
}

/// One thing that is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFinding {
    /// The node's path, or the place in the file.
    pub place: String,
    /// What is wrong there, as a lowercase fragment.
    pub message: String,
}

impl TreeFinding {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        TreeFinding {
            place: place.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for TreeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

#[cfg(test)]
pub(crate) mod tests;
