//! The runner-owned fields: who passed, and how many attempts it took.

use std::collections::HashMap;

use crate::meta::GuardResult;
use crate::output::AgentStatus;
use crate::tree::Node;

/// Overwrites the runner-owned fields of a tree that an agent left: existing
/// nodes get back what they had, new ones start open with at most the default
/// number of attempts.
pub fn reset_owned_fields(before: &Node<'_>, after: &mut Node<'_>, max_attempts_default: u32) {
    let owned: HashMap<&str, (bool, u32, u32)> = before
        .walk()
        .map(|node| (&*node.id, (node.passes, node.attempts, node.max_attempts)))
        .collect();
    reset(after, &owned, max_attempts_default);
}

fn reset(node: &mut Node<'_>, owned: &HashMap<&str, (bool, u32, u32)>, default: u32) {
    (node.passes, node.attempts, node.max_attempts) =
        owned
            .get(&*node.id)
            .copied()
            .unwrap_or((false, 0, node.max_attempts.min(default)));
    for child in &mut node.children {
        reset(child, owned, default);
    }
}

/// Applies one outcome to the selected node, then derives the parents.
/// Returns the ids that turned to passed: the leaf, then parents from below.
pub fn apply(
    root: &mut Node<'_>,
    selected: &str,
    status: AgentStatus,
    guard: GuardResult,
) -> Vec<String> {
    let mut passed = Vec::new();
    if let Some(node) = root.find_mut(selected) {
        match (status, guard) {
            (AgentStatus::Done, GuardResult::Pass) => {
                node.passes = true;
                passed.push(node.id.to_string());
            }
            (AgentStatus::Done, GuardResult::Fail) | (AgentStatus::Retry, _) => use_attempt(node),
            (AgentStatus::Done, GuardResult::Skipped) | (AgentStatus::Decomposed, _) => {}
        }
    }
    derive(root, &mut passed);
    passed
}

/// Derives the parents of a tree that a person has edited; the ids that turned to
/// passed, from below.
pub fn derive_parents(root: &mut Node<'_>) -> Vec<String> {
    let mut passed = Vec::new();
    derive(root, &mut passed);
    passed
}

/// One attempt more, never beyond the maximum: that is what "stuck" means.
pub fn use_attempt(node: &mut Node<'_>) {
    node.attempts = node.attempts.saturating_add(1).min(node.max_attempts);
}

/// A parent has passed when, and only when, all of its children have.
fn derive(node: &mut Node<'_>, passed: &mut Vec<String>) {
    if node.is_leaf() {
        return;
    }
    for child in &mut node.children {
        derive(child, passed);
    }
    let all = node.children.iter().all(|child| child.passes);
    if all && !node.passes {
        passed.push(node.id.to_string());
    }
    node.passes = all;
}

#[cfg(test)]
mod tests;
