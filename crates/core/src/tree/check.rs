//! What must hold between the nodes of a tree.

use std::collections::HashSet;

use super::{Node, TreeFinding};
use crate::ids::REPAIR_NODE;

/// Which tree is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrder {
    /// One that lies on disk between steps: sorted, its parents derived.
    Sorted,
    /// One that an agent just left: the runner sorts it and derives its parents,
    /// and what happened to passed nodes is for [`super::compare`] to say.
    Any,
}

/// Every breach of the invariants; an empty list is a valid tree.
pub fn check(root: &Node<'_>, order: TreeOrder) -> Vec<TreeFinding> {
    let mut checker = Checker {
        order,
        seen: HashSet::new(),
        path: Vec::new(),
        findings: Vec::new(),
    };
    checker.visit(root);
    checker.findings
}

struct Checker<'t> {
    order: TreeOrder,
    seen: HashSet<&'t str>,
    path: Vec<&'t str>,
    findings: Vec<TreeFinding>,
}

impl<'t> Checker<'t> {
    fn visit(&mut self, node: &'t Node<'_>) {
        self.path.push(&node.id);
        if !self.seen.insert(&node.id) {
            self.report("this id is used by another node too");
        }
        if node.id == REPAIR_NODE {
            self.report("this id is reserved for the runner");
        }
        if node.attempts > node.max_attempts {
            self.report(&format!(
                "attempts is {}, more than max_attempts {}",
                node.attempts, node.max_attempts
            ));
        }
        if self.order == TreeOrder::Sorted
            && node.passes
            && node.children.iter().any(|child| !child.passes)
        {
            self.report("it is marked as passed, but not all of its children are");
        }
        if self.order == TreeOrder::Sorted
            && !node
                .children
                .is_sorted_by(|a, b| (a.order, &a.id) <= (b.order, &b.id))
        {
            self.report("its children are not sorted by order, then id");
        }
        for child in &node.children {
            self.visit(child);
        }
        self.path.pop();
    }

    fn report(&mut self, message: &str) {
        self.findings
            .push(TreeFinding::new(self.path.join("/"), message));
    }
}
