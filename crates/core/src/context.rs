//! The texts of `.runner/context/`: what one session is to do and what the attempts
//! before it left behind.

use std::fmt::Write as _;

use crate::text::fence;

/// `goal.md`: the selected leaf, for reading.
pub fn goal_md(title: &str, path: &str, goal: &str, acceptance: &[&str]) -> String {
    let title = if title.trim().is_empty() { path } else { title };
    let mut text = format!("# {}\n\nNode: `{path}`\n\n## Goal\n\n", one_line(title));
    push_paragraph(&mut text, goal, "(none given)");
    text.push_str("\n## Acceptance\n\n");
    if acceptance.is_empty() {
        text.push_str("(none given: the goal itself decides)\n");
    }
    for point in acceptance {
        // Further lines of a point are indented, to stay part of its bullet.
        let mut lines = point.trim().lines();
        let _ = writeln!(text, "- {}", lines.next().unwrap_or_default());
        for line in lines {
            let indented = format!("  {line}");
            let _ = writeln!(text, "{}", indented.trim_end());
        }
    }
    text
}

/// `history.md`: what the last attempt at this leaf reported.
pub fn history_md(summary: &str) -> String {
    let mut text = String::from("# The last attempt at this leaf\n\n");
    push_paragraph(&mut text, summary, "(it left no summary)");
    text
}

/// `failure.md`: how the guard failed after the last attempt.
///
/// Logs are local to the clone that made them: without one the text says so.
pub fn failure_md(log: Option<&str>, guard_command: &[String], exit_code: Option<i32>) -> String {
    let ended = match exit_code {
        Some(code) => format!("with exit code {code}"),
        None if log.is_some() => "without an exit code (a signal ended it)".to_owned(),
        None => "(its exit code is not known here)".to_owned(),
    };
    let command = argv(guard_command);
    let mut text =
        format!("# The guard failed\n\nAfter the last attempt `{command}` failed {ended}.\n\n");
    match log.map(str::trim_end) {
        None => text.push_str(
            "Its log is not in this clone. Run the command yourself to see what is wrong.\n",
        ),
        Some("") => text.push_str("It printed nothing.\n"),
        Some(log) => {
            let fence = fence(log);
            let _ = writeln!(text, "What it printed:\n\n{fence}text\n{log}\n{fence}");
        }
    }
    text
}

/// A command as it is shown to agents: a JSON array, so that words with spaces stay
/// what they are.
pub(crate) fn argv(command: &[String]) -> String {
    serde_json::Value::from(command).to_string()
}

fn push_paragraph(text: &mut String, paragraph: &str, otherwise: &str) {
    let paragraph = paragraph.trim();
    text.push_str(if paragraph.is_empty() {
        otherwise
    } else {
        paragraph
    });
    text.push('\n');
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal() {
        let points = ["ISO dates", "errors:\nwith line\n\nand column"];
        assert_eq!(
            goal_md("Parse\ndates", "root/dates", "Dates are read.\n", &points),
            "\
# Parse dates

Node: `root/dates`

## Goal

Dates are read.

## Acceptance

- ISO dates
- errors:
  with line

  and column
"
        );
        assert_eq!(
            goal_md("", "root", " ", &[]),
            "\
# root

Node: `root`

## Goal

(none given)

## Acceptance

(none given: the goal itself decides)
"
        );
    }

    #[test]
    fn history() {
        for (summary, expected) in [
            ("Did half.\n\n- the rest\n", "Did half.\n\n- the rest\n"),
            (" \n", "(it left no summary)\n"),
        ] {
            assert_eq!(
                history_md(summary),
                format!("# The last attempt at this leaf\n\n{expected}")
            );
        }
    }

    #[test]
    fn failure() {
        for (log, exit_code, expected) in [
            (
                Some("a ... FAILED\n```\n"),
                Some(1),
                "with exit code 1.\n\nWhat it printed:\n\n````text\na ... FAILED\n```\n````\n",
            ),
            (
                Some("\n"),
                None,
                "without an exit code (a signal ended it).\n\nIt printed nothing.\n",
            ),
            (
                None,
                None,
                "(its exit code is not known here).\n\nIts log is not in this clone. \
                 Run the command yourself to see what is wrong.\n",
            ),
            (
                None,
                Some(2),
                "with exit code 2.\n\nIts log is not in this clone. \
                 Run the command yourself to see what is wrong.\n",
            ),
        ] {
            let command = ["just".to_owned(), "ci".to_owned()];
            assert_eq!(
                failure_md(log, &command, exit_code),
                format!(
                    "# The guard failed\n\nAfter the last attempt `[\"just\",\"ci\"]` \
                     failed {expected}"
                )
            );
        }
    }
}
