//! Which leaf is next: the leftmost open one, always.

use crate::tree::Node;

/// What the next step would do with this tree.
#[derive(Debug, PartialEq, Eq)]
pub enum Selection<'t, 'a> {
    /// Work on this leaf.
    Open(SelectedLeaf<'t, 'a>),
    /// This leaf is next, but its attempts are used up.
    Stuck(SelectedLeaf<'t, 'a>),
    /// No open leaf is left.
    Complete,
}

/// A selected leaf and the way to it.
#[derive(Debug, PartialEq, Eq)]
pub struct SelectedLeaf<'t, 'a> {
    /// The leaf.
    pub node: &'t Node<'a>,
    /// From the root down to the leaf's parent.
    pub ancestors: Vec<&'t Node<'a>>,
}

impl SelectedLeaf<'_, '_> {
    /// `root/a/b`.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for ancestor in &self.ancestors {
            path.push_str(&ancestor.id);
            path.push('/');
        }
        path.push_str(&self.node.id);
        path
    }
}

/// Depth first through children sorted by `(order, id)` to the first open leaf.
///
/// The tree must have passed its checks: children are taken as they stand.
pub fn select<'t, 'a>(root: &'t Node<'a>) -> Selection<'t, 'a> {
    let mut ancestors = Vec::new();
    match first_open(root, &mut ancestors) {
        None => Selection::Complete,
        Some(node) => {
            let target = SelectedLeaf { node, ancestors };
            if node.attempts >= node.max_attempts {
                Selection::Stuck(target)
            } else {
                Selection::Open(target)
            }
        }
    }
}

fn first_open<'t, 'a>(
    node: &'t Node<'a>,
    ancestors: &mut Vec<&'t Node<'a>>,
) -> Option<&'t Node<'a>> {
    if node.passes {
        return None;
    }
    if node.is_leaf() {
        return Some(node);
    }
    ancestors.push(node);
    for child in &node.children {
        if let Some(found) = first_open(child, ancestors) {
            return Some(found);
        }
    }
    ancestors.pop();
    None
}

#[cfg(test)]
mod tests;
