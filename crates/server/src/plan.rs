//! What a session did to the plan: two trees, node by node.

use std::collections::HashMap;

use runner_core::tree::{Node, TreeOrder, parse_and_check};

use crate::wire::{PlanChangeKind, PlanChangeView, PlanNode, PlanView};

/// The differences between two tree files; none if one of them is not valid.
pub(crate) fn changes(before: &[u8], after: &[u8]) -> PlanView {
    let (Ok(before), Ok(after)) = (
        parse_and_check(before, TreeOrder::Sorted),
        parse_and_check(after, TreeOrder::Sorted),
    ) else {
        return PlanView {
            changes: Vec::new(),
        };
    };
    let before = in_order(&before);
    let after = in_order(&after);
    let by_id = |list: &[(String, PlanNode)]| -> HashMap<String, PlanNode> {
        list.iter().cloned().collect()
    };
    let (old, new) = (by_id(&before), by_id(&after));
    let removed = before.iter().filter(|(id, _)| !new.contains_key(id));
    let mut changes: Vec<PlanChangeView> = removed
        .map(|(id, node)| PlanChangeView {
            id: id.clone(),
            kinds: vec![PlanChangeKind::Removed],
            before: Some(node.clone()),
            after: None,
        })
        .collect();
    for (id, node) in after {
        let known = old.get(&id);
        let kinds = kinds(known, &node);
        if !kinds.is_empty() {
            changes.push(PlanChangeView {
                id,
                kinds,
                before: known.cloned(),
                after: Some(node),
            });
        }
    }
    PlanView { changes }
}

fn kinds(before: Option<&PlanNode>, after: &PlanNode) -> Vec<PlanChangeKind> {
    let Some(before) = before else {
        return vec![PlanChangeKind::Added];
    };
    let mut kinds = Vec::new();
    if before.parent != after.parent {
        kinds.push(PlanChangeKind::Moved);
    }
    let says = |node: &PlanNode| PlanNode {
        parent: None,
        ..node.clone()
    };
    if says(before) != says(after) {
        kinds.push(PlanChangeKind::Edited);
    }
    kinds
}

fn in_order(root: &Node<'_>) -> Vec<(String, PlanNode)> {
    fn add(node: &Node<'_>, parent: Option<&str>, list: &mut Vec<(String, PlanNode)>) {
        let plan = PlanNode {
            parent: parent.map(str::to_owned),
            order: node.order,
            title: node.title.to_string(),
            goal: node.goal.to_string(),
            acceptance: node.acceptance.iter().map(ToString::to_string).collect(),
        };
        list.push((node.id.to_string(), plan));
        for child in &node.children {
            add(child, Some(&node.id), list);
        }
    }
    let mut list = Vec::new();
    add(root, None, &mut list);
    list
}

#[cfg(test)]
mod tests {
    use runner_core::tree::to_bytes;

    use super::*;

    fn tree(children: &[(&'static str, &'static str, &[&'static str])]) -> Vec<u8> {
        let mut root = Node::leaf("root", "Root", "g", 3);
        root.children = children
            .iter()
            .map(|(id, title, below)| {
                let mut node = Node::leaf(*id, *title, "g", 3);
                node.children = below
                    .iter()
                    .map(|id| Node::leaf(*id, "t", "g", 3))
                    .collect();
                node
            })
            .collect();
        root.sort();
        to_bytes(&root)
    }

    #[test]
    fn tells_what_happened_to_each_node() {
        let before = tree(&[("a", "A", &["x", "y"]), ("b", "B", &["z"])]);
        let after = tree(&[("a", "A!", &["x"]), ("b", "B", &["y", "z", "new"])]);
        let plan = changes(&before, &after);
        let told: Vec<_> = plan
            .changes
            .iter()
            .map(|it| (it.id.as_str(), it.kinds.clone()))
            .collect();
        assert_eq!(
            told,
            [
                ("a", vec![PlanChangeKind::Edited]),
                ("new", vec![PlanChangeKind::Added]),
                ("y", vec![PlanChangeKind::Moved]),
            ]
        );
        let back = changes(&after, &before);
        assert_eq!(back.changes[0].id, "new");
        assert_eq!(back.changes[0].kinds, [PlanChangeKind::Removed]);
        assert!(changes(&before, &before).changes.is_empty());
        assert!(changes(&before, b"{").changes.is_empty());
    }
}
