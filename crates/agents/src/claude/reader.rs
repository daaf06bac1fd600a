//! What claude's lines mean.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::LocalZone;
use crate::event::{AgentEvent, FileChangeKind};
use crate::failure::{AgentFailure, LimitReset};
use crate::lax::{LaxFlag, LaxInt, LaxList, LaxNumber, LaxObject, LaxText};
use crate::reader::{AgentReader, SessionEnding, StderrTail, bounded, kept, read_event};
use crate::usage::SessionUsage;

/// How many commands may be under way at once; older ones are forgotten.
const MAX_PENDING: usize = 64;
/// How long a command is remembered.
const MAX_PENDING_CHARS: usize = 1000;

/// A line, as far as it is of interest.
#[derive(Deserialize)]
struct ClaudeLine<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: LaxText<'a>,
    #[serde(borrow, default)]
    subtype: LaxText<'a>,
    /// Of assistant and user lines.
    #[serde(borrow, default)]
    message: LaxObject<Box<Message<'a>>>,
    /// The kind of an API error, on assistant and retry lines.
    #[serde(borrow, default)]
    error: LaxText<'a>,
    // Of retry lines.
    #[serde(default)]
    error_status: LaxInt,
    #[serde(default)]
    attempt: LaxInt,
    #[serde(default)]
    max_retries: LaxInt,
    /// Of rate limit lines.
    #[serde(borrow, default)]
    rate_limit_info: LaxObject<RateLimit<'a>>,
    // Of the result line.
    #[serde(default)]
    is_error: LaxFlag,
    #[serde(borrow, default)]
    result: LaxText<'a>,
    #[serde(borrow, default)]
    errors: LaxList<LaxText<'a>>,
    #[serde(borrow, default)]
    structured_output: Option<&'a RawValue>,
    #[serde(default)]
    api_error_status: LaxInt,
    #[serde(borrow, default)]
    terminal_reason: LaxText<'a>,
    #[serde(default)]
    usage: LaxObject<Box<ClaudeTokens>>,
    #[serde(default, rename = "modelUsage")]
    model_usage: LaxObject<BTreeMap<String, LaxObject<ModelTokens>>>,
    #[serde(default)]
    total_cost_usd: LaxNumber,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: LaxText<'a>,
    #[serde(borrow, default)]
    content: LaxList<LaxObject<ClaudeBlock<'a>>>,
    #[serde(default)]
    usage: LaxObject<ClaudeTokens>,
}

#[derive(Deserialize)]
struct ClaudeBlock<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: LaxText<'a>,
    #[serde(borrow, default)]
    text: LaxText<'a>,
    // Of a tool's use.
    #[serde(borrow, default)]
    id: LaxText<'a>,
    #[serde(borrow, default)]
    name: LaxText<'a>,
    #[serde(borrow, default)]
    input: LaxObject<ClaudeInput<'a>>,
    // Of a tool's result.
    #[serde(borrow, default)]
    tool_use_id: LaxText<'a>,
    #[serde(default)]
    is_error: LaxFlag,
    #[serde(borrow, default)]
    content: LaxText<'a>,
}

#[derive(Deserialize)]
struct ClaudeInput<'a> {
    #[serde(borrow, default)]
    command: LaxText<'a>,
    #[serde(borrow, default)]
    file_path: LaxText<'a>,
    #[serde(borrow, default)]
    notebook_path: LaxText<'a>,
}

#[derive(Deserialize)]
struct RateLimit<'a> {
    #[serde(borrow, default)]
    status: LaxText<'a>,
    #[serde(default, rename = "resetsAt")]
    resets_at: LaxInt,
}

/// Tokens as the API counts them: cached ones are not part of the input.
#[derive(Clone, Copy, Default, Deserialize)]
struct ClaudeTokens {
    #[serde(default, rename = "input_tokens")]
    input: LaxInt,
    #[serde(default, rename = "cache_creation_input_tokens")]
    cache_creation: LaxInt,
    #[serde(default, rename = "cache_read_input_tokens")]
    cache_read: LaxInt,
    #[serde(default, rename = "output_tokens")]
    output: LaxInt,
}

/// The same by model, in another spelling.
#[derive(Clone, Copy, Default, Deserialize)]
struct ModelTokens {
    #[serde(default, rename = "inputTokens")]
    input: LaxInt,
    #[serde(default, rename = "cacheCreationInputTokens")]
    cache_creation: LaxInt,
    #[serde(default, rename = "cacheReadInputTokens")]
    cache_read: LaxInt,
    #[serde(default, rename = "outputTokens")]
    output: LaxInt,
}

fn counted(
    input: LaxInt,
    cache_creation: LaxInt,
    cache_read: LaxInt,
    output: LaxInt,
) -> SessionUsage {
    let mut all = SessionUsage::default();
    for part in [input, cache_creation, cache_read] {
        all.add(&SessionUsage {
            input_tokens: part.count(),
            ..SessionUsage::default()
        });
    }
    SessionUsage {
        cached_input_tokens: cache_read.count(),
        output_tokens: output.count(),
        ..all
    }
}

impl ClaudeTokens {
    fn usage(self) -> SessionUsage {
        counted(
            self.input,
            self.cache_creation,
            self.cache_read,
            self.output,
        )
    }
}

impl ModelTokens {
    fn usage(self) -> SessionUsage {
        counted(
            self.input,
            self.cache_creation,
            self.cache_read,
            self.output,
        )
    }
}

/// What the result line said.
#[derive(Default)]
struct ClaudeOutcome {
    is_error: bool,
    output: Option<Vec<u8>>,
    text: String,
    codes: Vec<String>,
    status: Option<u16>,
}

#[derive(Default)]
pub(super) struct ClaudeReader {
    /// Of the messages before the last one, or of the whole session at its end.
    usage: SessionUsage,
    /// The last message and its count: each of its blocks repeats it.
    last_message: Option<(String, SessionUsage)>,
    /// Commands under way, by the tool call's id.
    pending: VecDeque<(String, String)>,
    /// Kind and words of the last API error that the assistant's lines told of.
    api_error: Option<(String, String)>,
    /// Whether a limit was hit.
    rejected: bool,
    /// When that limit ends.
    limit_ends: Option<Timestamp>,
    outcome: Option<ClaudeOutcome>,
    /// Whether nothing came after it.
    over: bool,
    stderr: StderrTail,
}

impl ClaudeReader {
    fn assistant(&mut self, line: &ClaudeLine<'_>) -> Vec<AgentEvent> {
        let Some(message) = &line.message.0 else {
            return Vec::new();
        };
        let mut events = Vec::new();
        for block in message
            .content
            .0
            .iter()
            .filter_map(|block| block.0.as_ref())
        {
            match block.kind.get() {
                "text" if line.error.get().is_empty() => {
                    events.push(AgentEvent::message(block.text.get()));
                }
                "text" => {
                    let text = block.text.get();
                    self.api_error = Some((kept(line.error.get()), kept(text)));
                    events.push(AgentEvent::error(text, false));
                }
                "tool_use" => events.extend(self.tool_use(block)),
                _ => {}
            }
        }
        // An error is told by a made-up message, which cost nothing.
        if line.error.get().is_empty() {
            events.extend(self.count(message));
        }
        events
    }

    fn tool_use(&mut self, block: &ClaudeBlock<'_>) -> Option<AgentEvent> {
        let input = block.input.0.as_ref()?;
        let kind = match block.name.get() {
            "Bash" => {
                let command = input.command.get();
                if self.pending.len() == MAX_PENDING {
                    self.pending.pop_front();
                }
                let short: String = command.chars().take(MAX_PENDING_CHARS).collect();
                self.pending.push_back((short_id(block.id.get()), short));
                return Some(AgentEvent::command(command, None, true));
            }
            "Write" => FileChangeKind::Add,
            "Edit" | "MultiEdit" | "NotebookEdit" => FileChangeKind::Update,
            _ => return None,
        };
        let path = match input.file_path.get() {
            "" => input.notebook_path.get(),
            path => path,
        };
        Some(AgentEvent::file_change(path, kind))
    }

    /// The end of a command, in a line of the user's.
    fn tool_results(&mut self, line: &ClaudeLine<'_>) -> Vec<AgentEvent> {
        let Some(message) = &line.message.0 else {
            return Vec::new();
        };
        let blocks = message
            .content
            .0
            .iter()
            .filter_map(|block| block.0.as_ref());
        blocks
            .filter(|block| block.kind.get() == "tool_result")
            .filter_map(|block| {
                let id = short_id(block.tool_use_id.get());
                let at = self
                    .pending
                    .iter()
                    .position(|(pending, _)| *pending == id)?;
                let (_, command) = self.pending.remove(at)?;
                let exit_code = if block.is_error.0 == Some(true) {
                    exit_code(block.content.get())
                } else {
                    Some(0)
                };
                Some(AgentEvent::command(&command, exit_code, false))
            })
            .collect()
    }

    /// Counts a message once, however many lines it has.
    fn count(&mut self, message: &Message<'_>) -> Option<AgentEvent> {
        let usage = message.usage.0?.usage();
        let id = short_id(message.id.get());
        match &mut self.last_message {
            Some((last, counted)) if *last == id => {
                counted.raise(&usage);
                return None;
            }
            last => {
                if let Some((_, counted)) = last.replace((id, usage)) {
                    self.usage.add(&counted);
                }
            }
        }
        Some(AgentEvent::Usage(AgentReader::usage(self)))
    }

    fn result(&mut self, line: &ClaudeLine<'_>) -> Vec<AgentEvent> {
        let mut usage = SessionUsage::default();
        // By model it includes what helpers used; the other count does not.
        for model in line.model_usage.0.iter().flat_map(BTreeMap::values) {
            usage.add(&model.0.unwrap_or_default().usage());
        }
        if usage.total_tokens().is_none_or(|tokens| tokens == 0) {
            usage.merge(&line.usage.0.as_deref().copied().unwrap_or_default().usage());
        }
        usage.cost_usd = line.total_cost_usd.0.filter(|cost| *cost >= 0.0);
        let usage = usage.without_false_zero();
        if usage.is_known() {
            // Of several results, and what was counted until now, the largest figures.
            let mut most = AgentReader::usage(self);
            most.raise(&usage);
            self.usage = most;
            self.last_message = None;
        }
        self.over = true;

        let is_error = line.is_error.0.unwrap_or_default() || line.api_error_status.0.is_some();
        let errors = line.errors.0.iter().map(LaxText::get);
        let texts: Vec<&str> = std::iter::once(line.result.get())
            .chain(errors)
            .filter(|text| !text.is_empty())
            .collect();
        let text = kept(&texts.join(" "));
        let mut events = Vec::new();
        if usage.is_known() {
            events.push(AgentEvent::Usage(self.usage));
        }
        if is_error {
            events.push(AgentEvent::error(&text, true));
        }
        let output = line
            .structured_output
            .filter(|output| output.get() != "null")
            .map(|output| bounded(output.get()));
        self.outcome = Some(ClaudeOutcome {
            is_error,
            output,
            text,
            codes: vec![kept(line.subtype.get()), kept(line.terminal_reason.get())],
            status: line.api_error_status.status(),
        });
        events
    }

    fn retry(line: &ClaudeLine<'_>) -> AgentEvent {
        let what = match (line.error.get(), line.error_status.0) {
            ("", None) => "the model did not answer".to_owned(),
            (error, None) => error.to_owned(),
            (error, Some(status)) => format!("{error} (HTTP {status})"),
        };
        let attempt = line.attempt.0.unwrap_or_default();
        let of = line.max_retries.0.unwrap_or_default();
        AgentEvent::error(&format!("{what}, attempt {attempt} of {of}"), false)
    }
}

impl AgentReader for ClaudeReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let Some(line) = read_event::<ClaudeLine<'_>>(line) else {
            return Vec::new();
        };
        // Whatever said that it is over, it goes on.
        self.over &= !matches!(line.kind.get(), "assistant" | "user");
        match (line.kind.get(), line.subtype.get()) {
            ("system", "init") => vec![AgentEvent::TurnStarted],
            ("system", "api_retry") => vec![Self::retry(&line)],
            ("assistant", _) => self.assistant(&line),
            ("user", _) => self.tool_results(&line),
            ("result", _) => self.result(&line),
            ("rate_limit_event", _) => {
                // Every session has such a line; only this status is a refusal.
                if let Some(limit) = &line.rate_limit_info.0
                    && limit.status.get() == "rejected"
                {
                    let at = limit.resets_at.0;
                    self.rejected = true;
                    self.limit_ends = at.and_then(|at| Timestamp::from_second(at).ok());
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn stderr(&mut self, line: &[u8]) {
        self.stderr.push(line);
    }

    fn usage(&self) -> SessionUsage {
        let mut usage = self.usage;
        if let Some((_, last)) = &self.last_message {
            usage.add(last);
        }
        usage
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn finish(self: Box<Self>, exit: Option<i32>, now: Timestamp, tz: &LocalZone) -> SessionEnding {
        let usage = AgentReader::usage(&*self);
        let this = *self;
        let (error_code, error_text) = this.api_error.unwrap_or_default();
        let failed = |text: &str, codes: &[String], status: Option<u16>| {
            let mut codes: Vec<&str> = codes.iter().map(String::as_str).collect();
            codes.push(&error_code);
            if this.rejected {
                codes.push("usage_limit_reached");
            }
            let mut failure = AgentFailure::told(text, &codes, status, now, tz);
            if let Some(at) = this.limit_ends {
                failure.reset = Some(LimitReset::At(at));
            }
            failure
        };
        let (output, failure) = match this.outcome {
            Some(outcome) if outcome.is_error => {
                let text = match (outcome.text.as_str(), error_text.as_str()) {
                    ("", "") => "claude ended with an error that it did not name",
                    ("", text) | (text, _) => text,
                };
                (None, Some(failed(text, &outcome.codes, outcome.status)))
            }
            Some(outcome) if outcome.output.is_none() => {
                let text = format!("claude ended without structured output: {}", outcome.text);
                (None, Some(AgentFailure::malformed(&text)))
            }
            Some(outcome) => (outcome.output, this.stderr.failure("claude", exit, now, tz)),
            None if !error_text.is_empty() => (None, Some(failed(&error_text, &[], None))),
            None if exit == Some(0) => {
                let text = "claude ended without a result";
                (None, Some(AgentFailure::malformed(text)))
            }
            None => (None, this.stderr.failure("claude", exit, now, tz)),
        };
        SessionEnding {
            output: output.filter(|_| failure.is_none()),
            usage,
            failure,
        }
    }
}

/// Ids are short; what is not one need not be told apart.
fn short_id(id: &str) -> String {
    id.chars().take(100).collect()
}

/// The number at the beginning of a failed command's result.
fn exit_code(content: &str) -> Option<i32> {
    let content = content.strip_prefix("Error: ").unwrap_or(content);
    let rest = content.strip_prefix("Exit code ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}
