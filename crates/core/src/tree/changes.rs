//! What a session did to the tree, and which of it is not allowed.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Node;

/// The ids that a session added, edited or moved, each list in tree order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeChanges {
    /// Nodes that were not there before.
    pub added: Vec<String>,
    /// Open nodes whose title, goal, acceptance or order changed.
    pub edited: Vec<String>,
    /// Open nodes that hang under another parent now.
    pub moved: Vec<String>,
}

impl TreeChanges {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.edited.is_empty() && self.moved.is_empty()
    }
}

/// A change that no session may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeViolation {
    /// The node.
    pub id: String,
    /// What happened to it, as a fragment that follows the id.
    pub what: String,
}

impl fmt::Display for TreeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: {}", self.id, self.what)
    }
}

/// Compares the tree before a session with the one after it, whose runner-owned
/// fields have been overwritten and whose children have been sorted already.
pub fn compare(before: &Node<'_>, after: &Node<'_>) -> (TreeChanges, Vec<TreeViolation>) {
    let places_after = places(after);
    let places_before = places(before);
    let mut changes = TreeChanges::default();
    let mut violations = Vec::new();
    let mut forbid = |id: &str, what: String| {
        violations.push(TreeViolation {
            id: id.to_owned(),
            what,
        });
    };

    if before.id != after.id {
        forbid(&before.id, "the root must stay the root".to_owned());
    }
    for old in before.walk() {
        let Some(place) = places_after.get(&*old.id) else {
            let kind = if old.passes { "a passed" } else { "an open" };
            forbid(&old.id, format!("{kind} node must not vanish"));
            continue;
        };
        let moved = place.parent != places_before.get(&*old.id).and_then(|p| p.parent);
        let edits = edited_fields(old, place.node);
        if !old.passes {
            continue;
        }
        if moved {
            forbid(&old.id, "a passed node must keep its parent".to_owned());
        }
        if !edits.is_empty() {
            forbid(
                &old.id,
                format!("a passed node must not change ({})", edits.join(", ")),
            );
        }
        for child in &place.node.children {
            if places_before.get(&*child.id).and_then(|p| p.parent) != Some(&*old.id) {
                forbid(
                    &old.id,
                    format!("a passed node must not gain children ({})", child.id),
                );
            }
        }
    }
    for new in after.walk() {
        let Some(old) = places_before.get(&*new.id) else {
            changes.added.push(new.id.to_string());
            continue;
        };
        if old.node.passes {
            continue;
        }
        if !edited_fields(old.node, new).is_empty() {
            changes.edited.push(new.id.to_string());
        }
        if places_after.get(&*new.id).and_then(|p| p.parent) != old.parent {
            changes.moved.push(new.id.to_string());
        }
    }
    (changes, violations)
}

struct TreePlace<'t, 'a> {
    node: &'t Node<'a>,
    parent: Option<&'t str>,
}

fn places<'t, 'a>(root: &'t Node<'a>) -> HashMap<&'t str, TreePlace<'t, 'a>> {
    let mut map = HashMap::new();
    map.insert(
        &*root.id,
        TreePlace {
            node: root,
            parent: None,
        },
    );
    for parent in root.walk() {
        for node in &parent.children {
            map.insert(
                &*node.id,
                TreePlace {
                    node,
                    parent: Some(&*parent.id),
                },
            );
        }
    }
    map
}

/// The names of the agent-editable fields that differ.
fn edited_fields(old: &Node<'_>, new: &Node<'_>) -> Vec<&'static str> {
    let mut fields = Vec::new();
    if old.order != new.order {
        fields.push("order");
    }
    if old.title != new.title {
        fields.push("title");
    }
    if old.goal != new.goal {
        fields.push("goal");
    }
    if old.acceptance != new.acceptance {
        fields.push("acceptance");
    }
    fields
}
