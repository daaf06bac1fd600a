//! Any other agent, by a command of the user's.

use std::ffi::OsString;

use jiff::Timestamp;
use serde::Deserialize;

use crate::LocalZone;
use crate::event::{AgentEvent, FileChangeKind};
use crate::failure::AgentFailure;
use crate::hosts::AgentHostsInput;
use crate::lax::{LaxFlag, LaxInt, LaxNumber, LaxText};
use crate::probe::{CliLogin, CliProbe};
use crate::reader::{AgentReader, SessionEnding, StderrTail, kept, read_event};
use crate::usage::SessionUsage;
use crate::{AgentSpec, Backend, Invocation};

/// The backend `command`.
///
/// The command learns from its environment where to write the report. It may print
/// [`AgentEvent`]s as JSON lines on stdout, in the form in which they are serialised: then
/// it is shown and accounted for like the agents that are built in.
pub(crate) struct AnyCommand;

impl Backend for AnyCommand {
    fn name(&self) -> &'static str {
        "command"
    }

    fn program(&self) -> Option<&'static str> {
        None
    }

    fn invocation(&self, spec: &AgentSpec<'_>) -> Invocation {
        let words = spec.command.iter().chain(spec.extra_args);
        Invocation {
            argv: words.map(OsString::from).collect(),
            env: Vec::new(),
            passed_env: &[],
            writable_home: Vec::new(),
            moved_homes: &[],
        }
    }

    fn reader(&self) -> Box<dyn AgentReader> {
        Box::new(CommandReader::default())
    }

    fn reports_tokens(&self) -> bool {
        false
    }

    fn reports_cost(&self) -> bool {
        false
    }

    /// Nobody knows where it goes; the config is refused before.
    fn hosts(&self, _: &AgentHostsInput<'_>) -> Vec<String> {
        Vec::new()
    }

    fn probe(&self) -> CliProbe {
        CliProbe {
            version: &[],
            known_good: None,
            helps: &[],
            login: CliLogin {
                env: &[],
                files: &[],
                home: None,
            },
        }
    }
}

/// An event in its serialised form, read as leniently as those of the other agents.
#[derive(Deserialize)]
struct CommandLine<'a> {
    #[serde(borrow, default)]
    event: LaxText<'a>,
    #[serde(borrow, default)]
    command: LaxText<'a>,
    #[serde(default)]
    exit_code: LaxInt,
    #[serde(default)]
    running: LaxFlag,
    #[serde(borrow, default)]
    text: LaxText<'a>,
    #[serde(borrow, default)]
    path: LaxText<'a>,
    #[serde(borrow, default)]
    kind: LaxText<'a>,
    #[serde(default)]
    input_tokens: LaxInt,
    #[serde(default)]
    cached_input_tokens: LaxInt,
    #[serde(default)]
    output_tokens: LaxInt,
    #[serde(default)]
    cost_usd: LaxNumber,
    #[serde(borrow, default)]
    message: LaxText<'a>,
    #[serde(default)]
    fatal: LaxFlag,
}

#[derive(Default)]
struct CommandReader {
    usage: SessionUsage,
    failed: Option<String>,
    stderr: StderrTail,
}

impl AgentReader for CommandReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let Some(line) = read_event::<CommandLine<'_>>(line) else {
            return Vec::new();
        };
        let event = match line.event.get() {
            "turn_started" => AgentEvent::TurnStarted,
            "command" => AgentEvent::command(
                line.command.get(),
                line.exit_code.exit_code(),
                line.running.0.unwrap_or_default(),
            ),
            "message" => AgentEvent::message(line.text.get()),
            "file_change" => {
                let kind = match line.kind.get() {
                    "add" => FileChangeKind::Add,
                    "delete" => FileChangeKind::Delete,
                    _ => FileChangeKind::Update,
                };
                AgentEvent::file_change(line.path.get(), kind)
            }
            "usage" => {
                self.usage.merge(&SessionUsage {
                    input_tokens: line.input_tokens.count(),
                    cached_input_tokens: line.cached_input_tokens.count(),
                    output_tokens: line.output_tokens.count(),
                    cost_usd: line.cost_usd.0.filter(|cost| *cost >= 0.0),
                });
                AgentEvent::Usage(self.usage)
            }
            "error" => {
                let fatal = line.fatal.0.unwrap_or_default();
                if fatal {
                    self.failed = Some(kept(line.message.get()));
                }
                AgentEvent::error(line.message.get(), fatal)
            }
            _ => return Vec::new(),
        };
        vec![event]
    }

    fn stderr(&mut self, line: &[u8]) {
        self.stderr.push(line);
    }

    fn usage(&self) -> SessionUsage {
        self.usage
    }

    fn finish(self: Box<Self>, exit: Option<i32>, now: Timestamp, tz: &LocalZone) -> SessionEnding {
        let this = *self;
        let failure = match this.failed {
            Some(message) => Some(AgentFailure::told(&message, &[], None, now, tz)),
            None => this.stderr.failure("the command", exit, now, tz),
        };
        SessionEnding {
            output: None,
            usage: this.usage,
            failure,
        }
    }
}
