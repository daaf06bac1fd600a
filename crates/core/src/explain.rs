//! Why a node is, or is not, the one that the next step takes.

use crate::select::{Selection, select};
use crate::tree::Node;

/// The reason in words; `None` if there is no such node.
///
/// With no id the answer is about the next step itself.
pub fn why(root: &Node<'_>, id: Option<&str>) -> Option<NodeReasons> {
    let selection = select(root);
    let next = match &selection {
        Selection::Open(target) | Selection::Stuck(target) => Some(target),
        Selection::Complete => None,
    };
    let id = match id {
        Some(id) => id,
        None => match next {
            Some(target) => &target.node.id,
            None => {
                return Some(NodeReasons {
                    path: root.id.to_string(),
                    state: "complete",
                    reasons: vec!["every leaf has passed: there is nothing left to do".to_owned()],
                });
            }
        },
    };
    let lineage = root.lineage(id)?;
    let node = *lineage.last()?;
    let path = root.path_of(id)?;
    let (state, reasons) = if node.passes {
        ("passed", vec![passed_reason(node)])
    } else if let (Selection::Stuck(target), true) =
        (&selection, next.is_some_and(|t| t.node.id == id))
    {
        (
            "stuck",
            vec![
                "it is the leftmost open leaf".to_owned(),
                format!(
                    "but all {} of its attempts are used up: the loop stops here until a person acts",
                    target.node.max_attempts
                ),
            ],
        )
    } else if next.is_some_and(|target| target.node.id == id) {
        (
            "next",
            vec![
                "it is the leftmost open leaf: siblings are taken by order, then id".to_owned(),
                format!("attempts used: {} of {}", node.attempts, node.max_attempts),
            ],
        )
    } else if !node.is_leaf() {
        let progress = node.progress();
        (
            "waiting",
            vec![format!(
                "it has children and passes when all of them have ({} of {} leaves passed)",
                progress.passed, progress.leaves
            )],
        )
    } else {
        let mut reasons = Vec::new();
        if let Some(target) = next {
            reasons.push(format!(
                "{} comes first: {}",
                target.path(),
                fork(root, &target.node.id, id)
            ));
        }
        if node.attempts >= node.max_attempts {
            reasons.push(format!(
                "all {} of its attempts are used up: it would be stuck",
                node.max_attempts
            ));
        }
        ("waiting", reasons)
    };
    Some(NodeReasons {
        path,
        state,
        reasons,
    })
}

/// The answer of [`why`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReasons {
    /// `root/a/b`.
    pub path: String,
    /// `next`, `stuck`, `passed`, `waiting` or `complete`.
    pub state: &'static str,
    /// The reasons, most important first.
    pub reasons: Vec<String>,
}

fn passed_reason(node: &Node<'_>) -> String {
    if node.is_leaf() {
        "it has passed: an agent said done and the guard was green".to_owned()
    } else {
        "it has passed: all of its children have".to_owned()
    }
}

/// Where the ways to two leaves part, and which key decides there.
fn fork(root: &Node<'_>, first: &str, second: &str) -> String {
    let (Some(a), Some(b)) = (root.lineage(first), root.lineage(second)) else {
        return String::new();
    };
    let Some((x, y)) = a.iter().zip(&b).find(|(x, y)| x.id != y.id) else {
        return "it is above".to_owned();
    };
    if x.order == y.order {
        format!(
            "{} and {} have the same order {}, and ids decide",
            x.id, y.id, x.order
        )
    } else {
        format!(
            "{} has order {}, {} has order {}",
            x.id, x.order, y.id, y.order
        )
    }
}

#[cfg(test)]
mod tests;
