//! The small common vocabulary of what happens in a session.

use runner_core::text::cut_chars;
use serde::{Deserialize, Serialize};

use crate::usage::SessionUsage;

/// How much of a command is shown.
const MAX_COMMAND_CHARS: usize = 1000;
/// How much of a message is shown.
const MAX_MESSAGE_CHARS: usize = 4000;
/// How much of a path is shown.
const MAX_PATH_CHARS: usize = 500;
/// How much of an error is shown.
pub(crate) const MAX_ERROR_CHARS: usize = 2000;

/// Something that happened in a session. Texts are cut to what a viewer can show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The model was asked.
    TurnStarted,
    /// A command of the agent began or ended. CLIs that report only its end send one
    /// event, with `running` false.
    Command {
        /// The command line, without the shell around it.
        command: String,
        /// How it ended, if that is known.
        exit_code: Option<i32>,
        /// Whether it has only begun.
        running: bool,
    },
    /// The agent said something.
    Message {
        /// What it said.
        text: String,
    },
    /// The agent changed a file with its editing tool. What its commands change is
    /// not seen here.
    FileChange {
        /// Which one.
        path: String,
        /// What was done to it.
        kind: FileChangeKind,
    },
    /// What the session has used so far, all of it.
    Usage(SessionUsage),
    /// Something went wrong.
    Error {
        /// What, in the CLI's words.
        message: String,
        /// Whether the session fails by it; else the CLI tries on.
        fatal: bool,
    },
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It was written whole.
    Add,
    /// Parts of it were changed.
    Update,
    /// It was removed.
    Delete,
}

impl AgentEvent {
    pub(crate) fn command(command: &str, exit_code: Option<i32>, running: bool) -> Self {
        AgentEvent::Command {
            command: cut(command, MAX_COMMAND_CHARS),
            exit_code,
            running,
        }
    }

    pub(crate) fn message(text: &str) -> Self {
        AgentEvent::Message {
            text: cut(text, MAX_MESSAGE_CHARS),
        }
    }

    pub(crate) fn file_change(path: &str, kind: FileChangeKind) -> Self {
        AgentEvent::FileChange {
            path: cut(path, MAX_PATH_CHARS),
            kind,
        }
    }

    pub(crate) fn error(message: &str, fatal: bool) -> Self {
        AgentEvent::Error {
            message: one_paragraph(message, MAX_ERROR_CHARS),
            fatal,
        }
    }
}

fn cut(text: &str, max_chars: usize) -> String {
    // Most texts are short: so many bytes are no more characters.
    if text.len() <= max_chars {
        return text.to_owned();
    }
    cut_chars(text, max_chars).into_owned()
}

/// The text on one line: every run of white space is one space, and what would move
/// a terminal's cursor is gone.
pub(crate) fn one_paragraph(text: &str, max_chars: usize) -> String {
    let mut short = String::new();
    let mut chars = 0;
    let mut gap = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            skip_escape(&mut rest);
        } else if c.is_whitespace() {
            gap = !short.is_empty();
        } else if !c.is_control() {
            if gap {
                short.push(' ');
                chars += 1;
                gap = false;
            }
            short.push(c);
            chars += 1;
        }
        // One more than allowed, so that the cut below can tell.
        if chars > max_chars {
            break;
        }
    }
    cut_chars(&short, max_chars).into_owned()
}

/// Skips the rest of an escape sequence such as a colour.
fn skip_escape(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    if ahead.next() != Some('[') {
        return;
    }
    *rest = ahead;
    for c in rest.by_ref() {
        if ('@'..='~').contains(&c) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_one_short_line() {
        for (text, expected) in [
            ("", ""),
            (" a\n\n b\t c ", "a b c"),
            ("\x1b[31mred\x1b[0m \x07bell", "red bell"),
            ("\x1bM x", "M x"),
            ("123456789 123", "123456789…"),
            ("1234567890", "1234567890"),
            ("ä ö ü ß é è", "ä ö ü ß é…"),
        ] {
            assert_eq!(one_paragraph(text, 10), expected, "{text:?}");
        }
    }

    #[test]
    fn events_are_flat_objects_with_a_tag() {
        let usage = AgentEvent::Usage(SessionUsage {
            input_tokens: Some(5),
            ..SessionUsage::default()
        });
        for (event, expected) in [
            (AgentEvent::TurnStarted, r#"{"event":"turn_started"}"#),
            (
                AgentEvent::command("ls", None, true),
                r#"{"event":"command","command":"ls","exit_code":null,"running":true}"#,
            ),
            (
                AgentEvent::message("hi"),
                r#"{"event":"message","text":"hi"}"#,
            ),
            (
                AgentEvent::file_change("a", FileChangeKind::Add),
                r#"{"event":"file_change","path":"a","kind":"add"}"#,
            ),
            (
                usage,
                r#"{"event":"usage","input_tokens":5,"cached_input_tokens":null,"output_tokens":null,"cost_usd":null}"#,
            ),
            (
                AgentEvent::error("no\nway", true),
                r#"{"event":"error","message":"no way","fatal":true}"#,
            ),
        ] {
            let json = serde_json::to_string(&event).unwrap();
            assert_eq!(json, expected);
            assert_eq!(serde_json::from_str::<AgentEvent>(&json).unwrap(), event);
        }
    }

    #[test]
    fn texts_are_cut() {
        let long = "x".repeat(100_000);
        for event in [
            AgentEvent::command(&long, None, true),
            AgentEvent::message(&long),
            AgentEvent::file_change(&long, FileChangeKind::Update),
            AgentEvent::error(&long, false),
        ] {
            assert!(serde_json::to_string(&event).unwrap().len() < 5000);
        }
    }
}
