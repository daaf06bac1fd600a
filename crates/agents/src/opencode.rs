//! opencode.

use std::ffi::OsString;
use std::fmt::Write as _;

use jiff::Timestamp;
use runner_core::config::InheritPart;
use serde::Deserialize;

use crate::LocalZone;
use crate::event::{AgentEvent, FileChangeKind};
use crate::failure::AgentFailure;
use crate::home::{self, HomeContent, HomeInput};
use crate::hosts::{self, AgentHostsInput};
use crate::lax::{LaxInt, LaxNumber, LaxObject, LaxText};
use crate::probe::{CliHelp, CliLogin, CliProbe, CliVersion};
use crate::reader::{AgentReader, SessionEnding, StderrTail, kept, read_event};
use crate::usage::SessionUsage;
use crate::{AgentSpec, Backend, Invocation, LoginFile, MovedHome, variables, words};

/// Variables with the keys of the providers that opencode knows best, and with its
/// configuration. Others can be named in `[executor.env]`.
const PASSED_ENV: &[&str] = &[
    "OPENCODE_API_KEY",
    "OPENCODE_ENABLE_EXPERIMENTAL_MODELS",
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "XAI_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "AWS_PROFILE",
    "NODE_EXTRA_CA_CERTS",
    "ALL_PROXY",
    "all_proxy",
];

const MOVED_HOMES: &[MovedHome] = &[
    MovedHome {
        variable: "XDG_DATA_HOME",
        below: "opencode",
        instead_of: &[".local/share/opencode"],
    },
    MovedHome {
        variable: "XDG_STATE_HOME",
        below: "opencode",
        instead_of: &[".local/state/opencode"],
    },
    MovedHome {
        variable: "XDG_CONFIG_HOME",
        below: "opencode",
        instead_of: &[".config/opencode"],
    },
    MovedHome {
        variable: "XDG_CACHE_HOME",
        below: "opencode",
        instead_of: &[".cache/opencode"],
    },
];

/// The opencode backend.
pub(crate) struct Opencode;

impl Backend for Opencode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn program(&self) -> Option<&'static str> {
        Some("opencode")
    }

    /// There is no flag for the schema: the prompt asks the agent for the report.
    fn invocation(&self, spec: &AgentSpec<'_>) -> Invocation {
        let mut argv: Vec<OsString> =
            words(["opencode", "run", "--format", "json", "--dir"]).collect();
        argv.push(spec.project_dir.into());
        if !spec.model.is_empty() {
            argv.extend(words(["-m", spec.model]));
        }
        argv.push("--auto".into());
        argv.extend(spec.extra_args.iter().map(OsString::from));
        // The list of models is still fetched: without it a new installation knows none.
        let mut env = variables([
            ("OPENCODE_DISABLE_AUTOCOMPACT", "1"),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_SHARE", "1"),
            // What is in the project may be an earlier session's.
            ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
            ("OPENCODE_DISABLE_CLAUDE_CODE", "1"),
            ("OPENCODE_DISABLE_EXTERNAL_SKILLS", "1"),
        ]);
        let home = spec.agent_home;
        if let Some(home) = home {
            let folders = home::opencode::FOLDERS.iter();
            let folders = folders.map(|(name, _, folder)| (*name, *folder));
            let known = [("OPENCODE_TEST_HOME", home::opencode::HOME)];
            env.extend(
                folders
                    .chain(known)
                    .map(|(name, folder)| (name.into(), home.join(folder).into())),
            );
            if !spec.has(InheritPart::Hooks) {
                env.extend(variables([("OPENCODE_PURE", "1")]));
            }
        }
        if let Some((path, _)) = spec.instructions {
            let content = serde_json::json!({"instructions": [path.to_string_lossy()]});
            let content = content.to_string();
            env.push(("OPENCODE_CONFIG_CONTENT".into(), content.into()));
        }
        Invocation {
            argv,
            env,
            passed_env: PASSED_ENV,
            writable_home: if home.is_some() {
                Vec::new()
            } else {
                vec![
                    ".local/share/opencode",
                    ".local/state/opencode",
                    ".config/opencode",
                    ".cache/opencode",
                ]
            },
            moved_homes: MOVED_HOMES,
        }
    }

    fn reader(&self) -> Box<dyn AgentReader> {
        Box::new(OpencodeReader::default())
    }

    fn reports_tokens(&self) -> bool {
        true
    }

    fn reports_cost(&self) -> bool {
        true
    }

    fn hosts(&self, input: &AgentHostsInput<'_>) -> Vec<String> {
        hosts::opencode(input)
    }

    fn home(&self, input: &HomeInput<'_>) -> Option<HomeContent> {
        Some(home::opencode::content(input))
    }

    fn home_variables(&self) -> &'static [&'static str] {
        &[
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
        ]
    }

    fn login_file(&self) -> Option<LoginFile> {
        Some(home::login::OPENCODE)
    }

    fn probe(&self) -> CliProbe {
        CliProbe {
            version: &["opencode", "--version"],
            known_good: Some((CliVersion::new(1, 18, 33), CliVersion::new(1, 18, u32::MAX))),
            helps: &[CliHelp {
                command: &["opencode", "run", "--help"],
                flags: &["--format", "--dir", "-m", "--auto"],
            }],
            login: CliLogin {
                env: &[
                    "OPENCODE_API_KEY",
                    "ANTHROPIC_API_KEY",
                    "OPENAI_API_KEY",
                    "OPENROUTER_API_KEY",
                    "GEMINI_API_KEY",
                    "GOOGLE_API_KEY",
                    "GOOGLE_GENERATIVE_AI_API_KEY",
                    "GROQ_API_KEY",
                    "MISTRAL_API_KEY",
                    "DEEPSEEK_API_KEY",
                    "XAI_API_KEY",
                    "AWS_BEARER_TOKEN_BEDROCK",
                ],
                files: &[".local/share/opencode/auth.json"],
                home: Some(("XDG_DATA_HOME", &["opencode/auth.json"])),
            },
        }
    }
}

/// A line, as far as it is of interest.
#[derive(Deserialize)]
struct OpencodeLine<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: LaxText<'a>,
    #[serde(borrow, default)]
    part: LaxObject<Box<OpencodePart<'a>>>,
    #[serde(borrow, default)]
    error: LaxObject<Box<OpencodeErrorBody<'a>>>,
}

#[derive(Deserialize)]
struct OpencodePart<'a> {
    #[serde(borrow, default)]
    text: LaxText<'a>,
    #[serde(borrow, default)]
    tool: LaxText<'a>,
    #[serde(borrow, default)]
    state: LaxObject<ToolState<'a>>,
    #[serde(default)]
    tokens: LaxObject<OpencodeTokens>,
    #[serde(default)]
    cost: LaxNumber,
    #[serde(borrow, default)]
    reason: LaxText<'a>,
}

#[derive(Deserialize)]
struct ToolState<'a> {
    #[serde(borrow, default)]
    status: LaxText<'a>,
    #[serde(borrow, default)]
    input: LaxObject<OpencodeInput<'a>>,
    #[serde(default)]
    metadata: LaxObject<Metadata>,
}

#[derive(Deserialize)]
struct OpencodeInput<'a> {
    #[serde(borrow, default)]
    command: LaxText<'a>,
    #[serde(borrow, default, rename = "filePath")]
    file_path: LaxText<'a>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    exit: LaxInt,
}

/// Tokens of one step: neither cached nor thinking ones are part of the others.
#[derive(Clone, Copy, Deserialize)]
struct OpencodeTokens {
    #[serde(default)]
    input: LaxInt,
    #[serde(default)]
    output: LaxInt,
    #[serde(default)]
    reasoning: LaxInt,
    #[serde(default)]
    cache: LaxObject<Cache>,
}

#[derive(Clone, Copy, Deserialize)]
struct Cache {
    #[serde(default)]
    read: LaxInt,
    #[serde(default)]
    write: LaxInt,
}

#[derive(Deserialize)]
struct OpencodeErrorBody<'a> {
    #[serde(borrow, default)]
    name: LaxText<'a>,
    #[serde(borrow, default)]
    message: LaxText<'a>,
    #[serde(borrow, default)]
    data: LaxObject<ErrorData<'a>>,
}

#[derive(Deserialize)]
struct ErrorData<'a> {
    #[serde(borrow, default)]
    message: LaxText<'a>,
    #[serde(default, rename = "statusCode")]
    status_code: LaxInt,
    #[serde(borrow, default, rename = "responseBody")]
    response_body: LaxText<'a>,
    #[serde(borrow, default, rename = "responseHeaders")]
    response_headers: LaxObject<Headers<'a>>,
}

#[derive(Deserialize)]
struct Headers<'a> {
    #[serde(borrow, default, rename = "retry-after")]
    retry_after: LaxText<'a>,
    #[serde(borrow, default, rename = "retry-after-ms")]
    retry_after_ms: LaxText<'a>,
}

impl OpencodeTokens {
    fn usage(self) -> SessionUsage {
        let cache = self.cache.0.unwrap_or(Cache {
            read: LaxInt(None),
            write: LaxInt(None),
        });
        let mut usage = SessionUsage::default();
        for input in [self.input, cache.read, cache.write] {
            usage.add(&SessionUsage {
                input_tokens: input.count(),
                ..SessionUsage::default()
            });
        }
        for output in [self.output, self.reasoning] {
            usage.add(&SessionUsage {
                output_tokens: output.count(),
                ..SessionUsage::default()
            });
        }
        usage.cached_input_tokens = cache.read.count();
        usage
    }
}

/// An error that may end the session.
struct OpencodeError {
    message: String,
    /// What helps to tell its kind but is not for people.
    details: String,
    status: Option<u16>,
}

#[derive(Default)]
struct OpencodeReader {
    usage: SessionUsage,
    last_error: Option<OpencodeError>,
    over: bool,
    stderr: StderrTail,
}

impl OpencodeReader {
    fn error(&mut self, error: Option<&OpencodeErrorBody<'_>>) -> Vec<AgentEvent> {
        let Some(error) = error else {
            self.last_error = Some(OpencodeError {
                message: "opencode reported an error that it did not name".to_owned(),
                details: String::new(),
                status: None,
            });
            return Vec::new();
        };
        let name = error.name.get();
        let data = error.data.0.as_ref();
        let message = [
            data.map(|data| data.message.get()).unwrap_or_default(),
            error.message.get(),
            name,
        ]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default();
        let mut details = name.to_owned();
        if let Some(data) = data {
            details.push(' ');
            details.push_str(data.response_body.get());
            if let Some(headers) = &data.response_headers.0 {
                let waits = [
                    ("retry-after-ms", headers.retry_after_ms.get()),
                    ("retry-after", headers.retry_after.get()),
                ];
                for (header, value) in waits.iter().filter(|(_, value)| !value.is_empty()) {
                    // Writing to a string cannot fail.
                    let _ = write!(details, " {header}: {value}");
                }
            }
        }
        self.last_error = Some(OpencodeError {
            message: kept(message),
            details: kept(&details),
            status: data.and_then(|data| data.status_code.status()),
        });
        vec![AgentEvent::error(message, true)]
    }

    fn tool(part: &OpencodePart<'_>) -> Option<AgentEvent> {
        let state = part.state.0.as_ref()?;
        let input = state.input.0.as_ref()?;
        let failed = state.status.get() == "error";
        let kind = match part.tool.get() {
            "bash" => {
                let exit = state
                    .metadata
                    .0
                    .as_ref()
                    .and_then(|data| data.exit.exit_code());
                return Some(AgentEvent::command(input.command.get(), exit, false));
            }
            _ if failed || input.file_path.get().is_empty() => return None,
            "write" => FileChangeKind::Add,
            "edit" | "multiedit" | "patch" | "apply_patch" => FileChangeKind::Update,
            _ => return None,
        };
        Some(AgentEvent::file_change(input.file_path.get(), kind))
    }
}

impl AgentReader for OpencodeReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let Some(line) = read_event::<OpencodeLine<'_>>(line) else {
            return Vec::new();
        };
        match (line.kind.get(), &line.part.0) {
            ("step_start", _) => {
                // It goes on: whatever was wrong is over.
                self.last_error = None;
                self.over = false;
                vec![AgentEvent::TurnStarted]
            }
            ("text", Some(part)) => vec![AgentEvent::message(part.text.get())],
            ("tool_use", Some(part)) => Self::tool(part).into_iter().collect(),
            ("step_finish", Some(part)) => {
                self.over = part.reason.get() == "stop";
                if let Some(tokens) = part.tokens.0 {
                    self.usage.add(&tokens.usage());
                }
                self.usage.add(&SessionUsage {
                    cost_usd: part.cost.0.filter(|cost| *cost >= 0.0),
                    ..SessionUsage::default()
                });
                vec![AgentEvent::Usage(self.usage())]
            }
            ("error", _) => self.error(line.error.0.as_deref()),
            _ => Vec::new(),
        }
    }

    fn stderr(&mut self, line: &[u8]) {
        self.stderr.push(line);
    }

    fn usage(&self) -> SessionUsage {
        self.usage.without_false_zero()
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn finish(self: Box<Self>, exit: Option<i32>, now: Timestamp, tz: &LocalZone) -> SessionEnding {
        let usage = AgentReader::usage(&*self);
        let this = *self;
        let failure = match this.last_error {
            Some(last_error) => {
                let details = [last_error.details.as_str()];
                let status = last_error.status;
                Some(AgentFailure::told(
                    &last_error.message,
                    &details,
                    status,
                    now,
                    tz,
                ))
            }
            None => this.stderr.failure("opencode", exit, now, tz),
        };
        SessionEnding {
            output: None,
            usage,
            failure,
        }
    }
}
