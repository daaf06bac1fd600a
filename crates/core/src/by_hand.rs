//! What a person may do to the tree between two steps: give a leaf more attempts,
//! edit and remove open nodes. What has passed stays as it is.

use std::collections::HashMap;

use crate::text::{ALIKE, nearest};
use crate::transition::derive_parents;
use crate::tree::{Node, TreeChanges, TreeFinding, TreeOrder, check, compare};

/// A leaf that got more attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetriedLeaf {
    /// `root/a/b`.
    pub path: String,
    /// So many more.
    pub added: u32,
    /// Attempts used.
    pub attempts: u32,
    /// Attempts allowed now.
    pub max_attempts: u32,
}

/// Why a node gets no more attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryError {
    /// There is no such node.
    Unknown {
        /// The id that was probably meant.
        nearest: Option<String>,
    },
    /// It has passed.
    Passed,
    /// It has children: they are what is worked on.
    NotALeaf {
        /// Those below it that have used up their attempts.
        stuck: Vec<String>,
    },
    /// It has attempts left, and nobody said how many more it shall get.
    NotStuck {
        /// How many are left.
        left: u32,
        /// Of how many.
        max_attempts: u32,
    },
    /// More than can be counted.
    TooMany,
}

/// Raises `max_attempts` of a leaf. Without a number only a leaf that has used up
/// its attempts gets more: `default` of them.
pub fn retry(
    root: &mut Node<'_>,
    id: &str,
    attempts: Option<u32>,
    default: u32,
) -> Result<RetriedLeaf, RetryError> {
    let path = root.path_of(id);
    let nearest = nearest_id(root, id);
    let (Some(path), Some(node)) = (path, root.find_mut(id)) else {
        return Err(RetryError::Unknown { nearest });
    };
    if node.passes {
        return Err(RetryError::Passed);
    }
    if !node.is_leaf() {
        let stuck = stuck_leaves(node).map(|leaf| leaf.id.to_string());
        return Err(RetryError::NotALeaf {
            stuck: stuck.collect(),
        });
    }
    let left = node.max_attempts.saturating_sub(node.attempts);
    let added = match attempts {
        Some(attempts) => attempts,
        None if left == 0 => default,
        None => {
            return Err(RetryError::NotStuck {
                left,
                max_attempts: node.max_attempts,
            });
        }
    };
    node.max_attempts = node
        .max_attempts
        .checked_add(added)
        .ok_or(RetryError::TooMany)?;
    Ok(RetriedLeaf {
        path,
        added,
        attempts: node.attempts,
        max_attempts: node.max_attempts,
    })
}

/// The leaves that have used up their attempts and have not passed, in order.
pub fn stuck_leaves<'t, 'a>(root: &'t Node<'a>) -> impl Iterator<Item = &'t Node<'a>> {
    root.walk().filter(|node| node.is_stuck())
}

/// The id that was probably meant.
pub fn nearest_id(root: &Node<'_>, id: &str) -> Option<String> {
    let ids: Vec<&str> = root.walk().map(|node| &*node.id).collect();
    let (likeness, nearest) = nearest(id, &ids);
    (likeness >= ALIKE).then(|| nearest.to_owned())
}

/// A tree that a person has edited, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEdit<'a> {
    /// Sorted, its parents derived.
    pub tree: Node<'a>,
    /// What was added, edited and moved.
    pub changes: TreeChanges,
    /// Open nodes that are gone.
    pub removed: Vec<String>,
    /// Open nodes with another `max_attempts`.
    pub limits: Vec<String>,
    /// Parents of which nothing open is left: they have passed.
    pub passed: Vec<String>,
}

/// Judges an edited tree by the one before it, or says all that is wrong.
pub fn edit<'a>(before: &Node<'_>, after: Node<'a>) -> Result<TreeEdit<'a>, Vec<TreeFinding>> {
    let old: HashMap<&str, &Node<'_>> = before.walk().map(|node| (&*node.id, node)).collect();
    let mut tree = after;
    tree.sort();
    let written: HashMap<String, bool> = tree
        .walk()
        .map(|node| (node.id.to_string(), node.passes))
        .collect();
    let mut findings = Vec::new();
    let mut limits = Vec::new();
    for node in tree.walk() {
        let was = old.get(&*node.id);
        findings.extend(owned_field(node, was.copied()).map(|what| finding(&node.id, what)));
        if was.is_some_and(|was| !was.passes && was.max_attempts != node.max_attempts) {
            limits.push(node.id.to_string());
        }
    }
    let proven = |id: &str| old.get(id).is_some_and(|was| was.passes);
    set_passes(&mut tree, &proven);
    let passed = derive_parents(&mut tree);
    for node in tree.walk().filter(|node| !node.passes) {
        if written.get(&*node.id) == Some(&true) && !proven(&node.id) {
            let what = "passes cannot be set by hand: only a green guard does that";
            findings.push(finding(&node.id, what.to_owned()));
        }
    }
    let (changes, violations) = compare(before, &tree);
    // Open nodes may go; the root may not, nor what has passed.
    let mut root_told = tree.id == before.id;
    for violation in violations {
        let is_root = violation.id == before.id;
        if proven(&violation.id) || (is_root && !root_told) {
            root_told |= is_root;
            findings.push(finding(&violation.id, violation.what));
        }
    }
    findings.extend(check(&tree, TreeOrder::Sorted));
    if !findings.is_empty() {
        return Err(findings);
    }
    let removed = before
        .walk()
        .filter(|node| !written.contains_key(&*node.id))
        .map(|node| node.id.to_string())
        .collect();
    Ok(TreeEdit {
        tree,
        changes,
        removed,
        limits,
        passed,
    })
}

/// What is wrong with the runner's own fields of an edited node.
fn owned_field(node: &Node<'_>, was: Option<&Node<'_>>) -> Option<String> {
    match was {
        Some(was) if was.passes => {
            if !node.passes {
                return Some("it has passed, and that cannot be taken back by hand".to_owned());
            }
            let same = (was.attempts, was.max_attempts) == (node.attempts, node.max_attempts);
            (!same).then(|| "a passed node must not change (attempts, max_attempts)".to_owned())
        }
        Some(was) if was.attempts != node.attempts => Some(format!(
            "attempts is the runner's count and was {}: raise max_attempts, or use `runner retry {}`",
            was.attempts, node.id
        )),
        None if node.attempts != 0 => Some("a new node begins with attempts 0".to_owned()),
        _ => None,
    }
}

fn set_passes(node: &mut Node<'_>, proven: &dyn Fn(&str) -> bool) {
    node.passes = proven(&node.id);
    for child in &mut node.children {
        set_passes(child, proven);
    }
}

fn finding(id: &str, what: String) -> TreeFinding {
    TreeFinding {
        place: format!("node {id}"),
        message: what,
    }
}

#[cfg(test)]
mod tests;
