//! `runner tree`.

use std::path::Path;

use runner::{Project, Result};
use runner_core::select::{Selection, select};
use runner_core::tree::Node;
use serde_json::json;

use super::{Exit, status};
use crate::out::OutputGate;
use crate::style::{self, TextPaint, TextTone};

/// Draws the tree.
pub(crate) fn run(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    status::tell_position(&project, out)?;
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

/// One node of the tree as it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeLine {
    /// The branches before it.
    pub(crate) lead: String,
    /// Its state as a sign.
    pub(crate) mark: &'static str,
    /// The same as a tone.
    pub(crate) tone: TextTone,
    /// Its id.
    pub(crate) id: String,
    /// Its title, harmless and short.
    pub(crate) title: String,
    /// Progress or attempts, if there is something to say.
    pub(crate) more: String,
    /// The tone of that.
    pub(crate) more_tone: TextTone,
    /// Whether it is the leaf that the next step takes.
    pub(crate) is_next: bool,
}

/// The tree, a line a node.
pub(crate) fn lines(root: &Node<'_>) -> Vec<TreeLine> {
    let selection = select(root);
    let next = match &selection {
        Selection::Open(target) | Selection::Stuck(target) => Some(target.node.id.as_ref()),
        Selection::Complete => None,
    };
    let mut lines = Vec::new();
    add_node(root, next, "", "", &mut lines);
    lines
}

/// The tree with a mark for the state of each node.
fn draw(root: &Node<'_>, paint: TextPaint) -> String {
    let draw = |line: &TreeLine| {
        let id = if line.is_next {
            paint.paint(TextTone::Strong, &line.id)
        } else {
            line.id.clone()
        };
        let mut text = format!(
            "{}{} {id}  {}",
            paint.paint(TextTone::Dim, &line.lead),
            paint.paint(line.tone, line.mark),
            line.title
        );
        if !line.more.is_empty() {
            text.push_str(&paint.paint(line.more_tone, format!("  {}", line.more)));
        }
        text
    };
    let drawn: Vec<String> = lines(root).iter().map(draw).collect();
    drawn.join("\n")
}

fn add_node(
    node: &Node<'_>,
    next: Option<&str>,
    lead: &str,
    below: &str,
    lines: &mut Vec<TreeLine>,
) {
    let is_next = next == Some(&node.id);
    let stuck = node.is_stuck();
    let (mark, tone) = match (node.passes, stuck, is_next) {
        (true, ..) => ("✓", TextTone::Good),
        (_, true, _) => ("✗", TextTone::Bad),
        (_, _, true) => ("▶", TextTone::Busy),
        _ => ("○", TextTone::Dim),
    };
    let (more, more_tone) = if !node.is_leaf() {
        let progress = node.progress();
        (
            format!("{} of {}", progress.passed, progress.leaves),
            TextTone::Dim,
        )
    } else if node.attempts > 0 && !node.passes {
        let word = if stuck { "stuck: " } else { "" };
        (
            format!(
                "{word}{} of {} attempts used",
                node.attempts, node.max_attempts
            ),
            tone,
        )
    } else {
        (String::new(), tone)
    };
    lines.push(TreeLine {
        lead: lead.to_owned(),
        mark,
        tone,
        id: node.id.to_string(),
        title: style::one_line(&node.title, 80),
        more,
        more_tone,
        is_next,
    });
    let last = node.children.len().saturating_sub(1);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, trunk) = if index == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        add_node(
            child,
            next,
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
            draw(&root, TextPaint { on: false }),
            "○ root  The goal  1 of 3\n\
             ├─ ✓ a  First\n\
             └─ ○ b  Second [2J  0 of 2\n\
             \u{20}  ├─ ▶ b1  Part\n\
             \u{20}  └─ ✗ b2  Part  stuck: 3 of 3 attempts used"
        );
    }
}
