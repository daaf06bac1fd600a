//! Any other agent, by a command of the user's.

use std::ffi::OsString;

use jiff::Timestamp;
use serde::Deserialize;

use crate::LocalZone;
use crate::event::{ChangeKind, Event};
use crate::failure::Failure;
use crate::lax::{Flag, Int, Number, Text};
use crate::probe::{Login, Probe};
use crate::reader::{Ending, Reader, Tail, is_object, kept};
use crate::usage::Usage;
use crate::{Backend, Invocation, Session};

/// The backend `command`.
///
/// The command learns from its environment where to write the report. It may print
/// [`Event`]s as JSON lines on stdout, in the form in which they are serialised: then
/// it is shown and accounted for like the agents that are built in.
pub(crate) struct AnyCommand;

impl Backend for AnyCommand {
    fn name(&self) -> &'static str {
        "command"
    }

    fn program(&self) -> Option<&'static str> {
        None
    }

    fn invocation(&self, session: &Session<'_>) -> Invocation {
        let words = session.command.iter().chain(session.extra_args);
        Invocation {
            argv: words.map(OsString::from).collect(),
            env: Vec::new(),
            passed_env: &[],
            writable_home: Vec::new(),
            moved_homes: &[],
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(CommandReader::default())
    }

    fn reports_tokens(&self) -> bool {
        false
    }

    fn reports_cost(&self) -> bool {
        false
    }

    fn probe(&self) -> Probe {
        Probe {
            version: &[],
            known_good: None,
            helps: &[],
            login: Login {
                env: &[],
                files: &[],
                home: None,
            },
        }
    }
}

/// An event in its serialised form, read as leniently as those of the other agents.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    event: Text<'a>,
    #[serde(borrow, default)]
    command: Text<'a>,
    #[serde(default)]
    exit_code: Int,
    #[serde(default)]
    running: Flag,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    path: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(default)]
    input_tokens: Int,
    #[serde(default)]
    cached_input_tokens: Int,
    #[serde(default)]
    output_tokens: Int,
    #[serde(default)]
    cost_usd: Number,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(default)]
    fatal: Flag,
}

#[derive(Default)]
struct CommandReader {
    usage: Usage,
    failed: Option<String>,
    stderr: Tail,
}

impl Reader for CommandReader {
    fn line(&mut self, line: &[u8]) -> Vec<Event> {
        if !is_object(line) {
            return Vec::new();
        }
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else {
            return Vec::new();
        };
        let event = match line.event.get() {
            "turn_started" => Event::TurnStarted,
            "command" => Event::command(
                line.command.get(),
                line.exit_code.exit_code(),
                line.running.0.unwrap_or_default(),
            ),
            "message" => Event::message(line.text.get()),
            "file_change" => {
                let kind = match line.kind.get() {
                    "add" => ChangeKind::Add,
                    "delete" => ChangeKind::Delete,
                    _ => ChangeKind::Update,
                };
                Event::file_change(line.path.get(), kind)
            }
            "usage" => {
                self.usage.merge(&Usage {
                    input_tokens: line.input_tokens.count(),
                    cached_input_tokens: line.cached_input_tokens.count(),
                    output_tokens: line.output_tokens.count(),
                    cost_usd: line.cost_usd.0.filter(|cost| *cost >= 0.0),
                });
                Event::Usage(self.usage)
            }
            "error" => {
                let fatal = line.fatal.0.unwrap_or_default();
                if fatal {
                    self.failed = Some(kept(line.message.get()));
                }
                Event::error(line.message.get(), fatal)
            }
            _ => return Vec::new(),
        };
        vec![event]
    }

    fn stderr(&mut self, line: &[u8]) {
        self.stderr.push(line);
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn finish(self: Box<Self>, exit: Option<i32>, now: Timestamp, tz: &LocalZone) -> Ending {
        let this = *self;
        let failure = match this.failed {
            Some(message) => Some(Failure::told(&message, &[], None, now, tz)),
            None => this.stderr.failure("the command", exit, now, tz),
        };
        Ending {
            output: None,
            usage: this.usage,
            failure,
        }
    }
}
