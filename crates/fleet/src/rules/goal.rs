//! The loop's own files for a task: `GOAL.md` and the first tree.
//!
//! The same task and context give the same bytes. GOAL.md is shortened at its end where
//! room is short, so what decides stands first.

use std::borrow::Cow;
use std::fmt::Write as _;

use runner_core::digest::sha256_hex;
use runner_core::goal::check_run_id;
use runner_core::text::cut_chars;
use runner_core::tree::Node;
use runner_lifecycle::{ContextKind, CriterionCheck, Task};

use super::answers::{GUARD, planned_checks};

/// The id of the loop's run: that of the attempt, or a name made of it where a loop could
/// not have it.
pub fn loop_run_id(run_id: &str) -> String {
    if check_run_id(run_id).is_ok() {
        return run_id.to_owned();
    }
    let number = run_id.rsplit('-').next().unwrap_or_default();
    let name = format!("task-{}-{number}", &sha256_hex(run_id.as_bytes())[..16]);
    if check_run_id(&name).is_ok() {
        name
    } else {
        format!("task-{}", &sha256_hex(run_id.as_bytes())[..16])
    }
}

/// The text of `GOAL.md`. `context` is what
/// [`session_context`](super::context::session_context) gives.
pub fn goal_text(task: &Task, run_id: &str, context: &str) -> String {
    let mut text = format!("---\nid: {}\n---\n# {}\n", loop_run_id(run_id), title(task));
    let goal = task.goal.trim();
    if !goal.is_empty() && goal != title(task) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{goal}\n");
    }
    section(&mut text, "It is finished when", &criteria(task));
    section(&mut text, "Commands that must succeed", &commands(task));
    section(&mut text, "What may be changed", &allowed(task));
    section(&mut text, "What an earlier judgement found", &remarks(task));
    section(&mut text, "To know", &told(task));
    let context = context.trim();
    if !context.is_empty() {
        let _ = write!(text, "\n## How to work\n\n{context}\n");
    }
    text
}

/// Whether a task says that it may change tests which are there: by a line `Tests: may change`.
pub fn tests_may_change(task: &Task) -> bool {
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ").eq_ignore_ascii_case(TESTS_MAY_CHANGE)
    };
    task.goal.lines().any(is_it)
}

/// The line that says so.
pub const TESTS_MAY_CHANGE: &str = "Tests: may change";

/// The tree that the loop begins with: one leaf that is the task. Sessions split it where
/// it is too much for one of them.
pub fn first_tree(task: &Task, max_attempts: u32) -> Node<'static> {
    let goal = match task.goal.trim() {
        "" => title(task),
        goal => goal.to_owned(),
    };
    let mut root = Node::leaf("root", title(task), goal, max_attempts);
    root.acceptance = criteria(task).into_iter().map(Cow::Owned).collect();
    root
}

/// The title on one line.
fn title(task: &Task) -> String {
    let words: Vec<&str> = task.title.split_whitespace().collect();
    match words.join(" ") {
        title if title.is_empty() => task.id.to_string(),
        title => cut_chars(&title, 80).into_owned(),
    }
}

fn section(text: &mut String, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(text, "\n## {heading}\n\n");
    for line in lines {
        // What follows a line end belongs to the same point.
        let _ = writeln!(text, "- {}", line.trim().replace('\n', "\n  "));
    }
}

fn criteria(task: &Task) -> Vec<String> {
    task.acceptance
        .iter()
        .map(|criterion| match criterion.check {
            CriterionCheck::Review => format!("{} (a reviewer decides)", criterion.text),
            CriterionCheck::Command if criterion.id == GUARD => criterion.text.clone(),
            CriterionCheck::Command => format!("{} (a command decides)", criterion.text),
        })
        .collect()
}

fn commands(task: &Task) -> Vec<String> {
    let planned = planned_checks(task);
    planned
        .iter()
        .map(|one| format!("`{}`", one.command))
        .collect()
}

fn allowed(task: &Task) -> Vec<String> {
    let paths = |scope: &[runner_lifecycle::lock::Resource]| {
        let names: Vec<String> = scope.iter().map(|one| format!("`{one}`")).collect();
        names.join(", ")
    };
    let whole = task.lock_scope.iter().any(|one| one.as_str() == ".");
    let mut lines = vec![if whole {
        "Anything in this repository.".to_owned()
    } else {
        format!(
            "Only these, and what lies below them: {}. A change elsewhere is refused as a whole.",
            paths(&task.lock_scope)
        )
    }];
    if !task.forbidden_scope.is_empty() {
        lines.push(format!("Never these: {}.", paths(&task.forbidden_scope)));
    }
    if !task.expects_change {
        lines.push("No change is expected: what counts is what you find out.".to_owned());
    }
    lines
}

fn remarks(task: &Task) -> Vec<String> {
    let remarks = task.remarks.iter();
    remarks
        .map(|one| format!("{}: {}", one.id, one.text))
        .collect()
}

fn told(task: &Task) -> Vec<String> {
    task.context
        .iter()
        .map(|item| match item.kind {
            ContextKind::File => format!("Read `{}`.", item.value),
            ContextKind::Command => format!("Run `{}`.", item.value),
            ContextKind::Note | ContextKind::Constraint => item.value.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use runner_core::goal::Goal;
    use runner_core::tree;
    use runner_lifecycle::row::{ContextItem, ReviewRemark};

    use super::super::fixtures::{criterion, scope, task};
    use super::*;

    #[test]
    fn a_whole_goal() {
        let mut task = task();
        task.acceptance
            .push(criterion("clear", CriterionCheck::Review));
        task.forbidden_scope = scope(&["src/gen"]);
        task.remarks = vec![ReviewRemark {
            id: "naming".to_owned(),
            text: "x is no name".to_owned(),
        }];
        task.context = vec![
            ContextItem {
                kind: ContextKind::File,
                value: "docs/syntax.md".to_owned(),
            },
            ContextItem {
                kind: ContextKind::Note,
                value: "two lines\nof a note".to_owned(),
            },
        ];
        let text = goal_text(&task, "t-1", "You are a worker.\n");
        assert_eq!(
            text,
            "---\nid: t-1\n---\n# add a parser\n\nthere is a parser\n\n\
             ## It is finished when\n\n- guard holds\n- parses holds (a command decides)\n\
             - clear holds (a reviewer decides)\n\n\
             ## Commands that must succeed\n\n- `cargo test parser`\n\n\
             ## What may be changed\n\n- Only these, and what lies below them: `src`. \
             A change elsewhere is refused as a whole.\n- Never these: `src/gen`.\n\n\
             ## What an earlier judgement found\n\n- naming: x is no name\n\n\
             ## To know\n\n- Read `docs/syntax.md`.\n- two lines\n  of a note\n\n\
             ## How to work\n\nYou are a worker.\n"
        );
        let goal = Goal::parse(&text).unwrap();
        assert_eq!(goal.id(), Some("t-1"));
        assert_eq!(goal.title(), "add a parser");
        assert!(!goal.is_template());
    }

    #[test]
    fn the_first_tree_is_valid() {
        let root = first_tree(&task(), 3);
        assert!(root.children.is_empty());
        assert_eq!(root.acceptance.len(), 2);
        let bytes = tree::to_bytes(&root);
        let parsed = tree::parse(&bytes).unwrap();
        assert_eq!(parsed, root);
    }

    #[test]
    fn run_ids_that_a_loop_can_have() {
        assert_eq!(loop_run_id("t-1"), "t-1");
        for odd in [
            format!("{}-12", "x".repeat(64)),
            ".a-3".to_owned(),
            "a..b-1".to_owned(),
        ] {
            let name = loop_run_id(&odd);
            check_run_id(&name).unwrap();
            assert!(name.starts_with("task-"));
            assert_eq!(name.rsplit('-').next(), odd.rsplit('-').next());
        }
        assert_ne!(loop_run_id(".a-3"), loop_run_id(".b-3"));
    }

    proptest! {
        #[test]
        fn any_words_make_a_goal(title in "(?s).{0,60}", goal in "(?s).{0,120}") {
            let task = Task { title, goal, ..task() };
            let text = goal_text(&task, "t-1", "");
            let parsed = Goal::parse(&text).unwrap();
            prop_assert_eq!(parsed.id(), Some("t-1"));
            let root = first_tree(&task, 3);
            prop_assert!(tree::parse(&tree::to_bytes(&root)).is_ok());
        }
    }
}
