//! The tree in a few lines for people and agents.

use std::fmt::Write as _;

use super::Node;
use crate::text::cut_chars;

/// No more lines than this; what is left out is counted.
const MAX_LINES: usize = 300;

/// One line a node, children below their parent; the selected leaf is marked.
pub fn summary(root: &Node<'_>, selected: &str) -> String {
    let mut lines = Vec::new();
    let total = write(root, selected, 0, &mut lines);
    let mut text = lines.join("\n");
    if total > lines.len() {
        let _ = write!(text, "\n… and {} more nodes", total - lines.len());
    }
    text
}

fn write(node: &Node<'_>, selected: &str, level: usize, lines: &mut Vec<String>) -> usize {
    if lines.len() < MAX_LINES {
        let mark = match (node.passes, node.id == selected) {
            (true, _) => "x",
            (false, true) => ">",
            (false, false) => " ",
        };
        let title = cut_chars(node.title.lines().next().unwrap_or_default(), 100);
        lines.push(format!(
            "{}- [{mark}] {}: {title}",
            "  ".repeat(level),
            node.id
        ));
    }
    1 + node
        .children
        .iter()
        .map(|child| write(child, selected, level + 1, lines))
        .sum::<usize>()
}
