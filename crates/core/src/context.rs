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

/// Why the guard said no after the last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedVerdict<'a> {
    /// It ran and ended with this code, if it is known.
    Guard {
        /// Its argv.
        command: &'a [String],
        /// Its exit code; 0 where that did not count.
        exit_code: Option<i32>,
    },
    /// It could not run, because setup failed.
    Setup {
        /// The argv of setup.
        command: &'a [String],
    },
}

/// `failure.md`: how the guard failed after the last attempt.
///
/// Logs are local to the clone that made them: without one the text says so.
pub fn failure_md(log: Option<&str>, failure: FailedVerdict<'_>) -> String {
    let mut text = match failure {
        FailedVerdict::Guard { command, exit_code } => {
            let ended = match exit_code {
                Some(0) => {
                    "ended with exit code 0, but that did not count: the end of its log says why"
                        .to_owned()
                }
                Some(code) => format!("failed with exit code {code}"),
                None if log.is_some() => {
                    "failed without an exit code (a signal ended it)".to_owned()
                }
                None => "failed (its exit code is not known here)".to_owned(),
            };
            let command = argv(command);
            format!("# The guard failed\n\nAfter the last attempt `{command}` {ended}.\n\n")
        }
        FailedVerdict::Setup { command } => format!(
            "# Setup failed\n\nAfter the last attempt the guard could not run: setup, `{}`, failed \
             with what that attempt changed.\n\n",
            argv(command)
        ),
    };
    match log.map(str::trim_end) {
        None => text.push_str(
            "Its log is not in this clone. Run the command yourself to see what is wrong.\n",
        ),
        Some("") => text.push_str("It printed nothing.\n"),
        Some(log) => push_log(&mut text, log),
    }
    text
}

/// `failure.md` where setup fails with the files that the session finds. `commit`: with the files
/// of this one it works.
pub fn setup_failure_md(command: &[String], commit: &str, log: &str) -> String {
    let mut text = format!(
        "# Setup fails\n\nSetup, `{}`, fails with the files that are committed now. This workspace was set \
         up with those of commit {commit}, where it works. What has changed since in the files that \
         setup reads is the reason. Mend it first: until setup works, no guard can run and nothing \
         passes.\n\n",
        argv(command)
    );
    push_log(&mut text, log.trim_end());
    text
}

fn push_log(text: &mut String, log: &str) {
    let fence = fence(log);
    let _ = writeln!(text, "What it printed:\n\n{fence}text\n{log}\n{fence}");
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
                "failed with exit code 1.\n\nWhat it printed:\n\n````text\na ... FAILED\n```\n````\n",
            ),
            (
                Some("\n"),
                None,
                "failed without an exit code (a signal ended it).\n\nIt printed nothing.\n",
            ),
            (
                None,
                None,
                "failed (its exit code is not known here).\n\nIts log is not in this clone. \
                 Run the command yourself to see what is wrong.\n",
            ),
            (
                Some("ok"),
                Some(0),
                "ended with exit code 0, but that did not count: the end of its log says why.\n\n\
                 What it printed:\n\n```text\nok\n```\n",
            ),
            (
                None,
                Some(2),
                "failed with exit code 2.\n\nIts log is not in this clone. \
                 Run the command yourself to see what is wrong.\n",
            ),
        ] {
            let command = &["just".to_owned(), "ci".to_owned()];
            assert_eq!(
                failure_md(log, FailedVerdict::Guard { command, exit_code }),
                format!(
                    "# The guard failed\n\nAfter the last attempt `[\"just\",\"ci\"]` {expected}"
                )
            );
        }
    }

    #[test]
    fn setup() {
        let command = &["npm".to_owned(), "ci".to_owned()];
        let log = "no such package\n";
        let before = failure_md(Some(log), FailedVerdict::Setup { command });
        let now = setup_failure_md(command, "ab12", log);
        for (text, title) in [(before, "# Setup failed\n"), (now, "# Setup fails\n")] {
            assert!(text.starts_with(title), "{text}");
            assert!(text.contains("`[\"npm\",\"ci\"]`"), "{text}");
            assert!(text.ends_with("```text\nno such package\n```\n"), "{text}");
        }
    }
}
