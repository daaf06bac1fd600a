//! `runner tree`.

use std::path::Path;

use runner::{Project, Result};
use runner_core::select::{Selection, select};
use runner_core::tree::Node;
use serde_json::json;

use super::Exit;
use crate::out::Out;
use crate::style::{self, Paint, Tone};

/// Draws the tree.
pub(crate) fn run(dir: &Path, out: &mut Out) -> Result<Exit> {
    let project = Project::find(dir)?;
    let paint = out.paint;
    if out.json {
        let value = runner::load_tree(&project, |root| json!({"tree": root}))?;
        out.object(value);
    } else {
        let text = runner::load_tree(&project, |root| draw(root, paint))?;
        out.data(&text);
    }
    Ok(Exit::Success)
}

/// The tree with a mark for the state of each node.
fn draw(root: &Node<'_>, paint: Paint) -> String {
    let selection = select(root);
    let next = match &selection {
        Selection::Open(target) | Selection::Stuck(target) => Some(target.node.id.as_ref()),
        Selection::Complete => None,
    };
    let mut lines = Vec::new();
    draw_node(root, next, paint, "", "", &mut lines);
    lines.join("\n")
}

fn draw_node(
    node: &Node<'_>,
    next: Option<&str>,
    paint: Paint,
    lead: &str,
    below: &str,
    lines: &mut Vec<String>,
) {
    let is_next = next == Some(&node.id);
    let stuck = node.is_stuck();
    let (mark, tone) = match (node.passes, stuck, is_next) {
        (true, ..) => ("✓", Tone::Good),
        (_, true, _) => ("✗", Tone::Bad),
        (_, _, true) => ("▶", Tone::Busy),
        _ => ("○", Tone::Dim),
    };
    let mut line = format!(
        "{}{} {}  {}",
        paint.paint(Tone::Dim, lead),
        paint.paint(tone, mark),
        if is_next {
            paint.paint(Tone::Strong, &node.id)
        } else {
            node.id.to_string()
        },
        style::one_line(&node.title, 80),
    );
    if !node.is_leaf() {
        let progress = node.progress();
        line.push_str(&paint.paint(
            Tone::Dim,
            format!("  {} of {}", progress.passed, progress.leaves),
        ));
    } else if node.attempts > 0 && !node.passes {
        let word = if stuck { "stuck: " } else { "" };
        line.push_str(&paint.paint(
            tone,
            format!(
                "  {word}{} of {} attempts used",
                node.attempts, node.max_attempts
            ),
        ));
    }
    lines.push(line);
    let last = node.children.len().saturating_sub(1);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, trunk) = if index == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        draw_node(
            child,
            next,
            paint,
            &format!("{below}{branch}"),
            &format!("{below}{trunk}"),
            lines,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_drawn_with_marks() {
        let mut root = Node::leaf("root", "The goal", "", 3);
        let mut a = Node::leaf("a", "First", "", 3);
        a.passes = true;
        let mut b = Node::leaf("b", "Second\x1b[2J", "", 3);
        b.children = vec![
            Node::leaf("b1", "Part", "", 3),
            Node::leaf("b2", "Part", "", 3),
        ];
        b.children[1].attempts = 3;
        root.children = vec![a, b];
        assert_eq!(
            draw(&root, Paint { on: false }),
            "○ root  The goal  1 of 3\n\
             ├─ ✓ a  First\n\
             └─ ○ b  Second [2J  0 of 2\n\
             \u{20}  ├─ ▶ b1  Part\n\
             \u{20}  └─ ✗ b2  Part  stuck: 3 of 3 attempts used"
        );
    }
}
