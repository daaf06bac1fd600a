//! OpenAI's codex.

use std::ffi::OsString;

use jiff::Timestamp;
use runner_core::config::InheritPart;
use serde::Deserialize;

use crate::LocalZone;
use crate::event::{AgentEvent, FileChangeKind};
use crate::failure::AgentFailure;
use crate::home::{self, HomeContent, HomeInput};
use crate::hosts::{self, AgentHostsInput};
use crate::lax::{LaxInt, LaxList, LaxObject, LaxText};
use crate::probe::{CliHelp, CliLogin, CliProbe, CliVersion};
use crate::reader::{AgentReader, SessionEnding, StderrTail, bounded, kept, read_event};
use crate::shell::unwrapped;
use crate::usage::SessionUsage;
use crate::{AgentSpec, Backend, Invocation, LoginFile, MovedHome, words};

/// Variables that codex reads. It takes the key for its own provider from
/// `CODEX_API_KEY` alone; `OPENAI_API_KEY` is what configured providers commonly name.
const PASSED_ENV: &[&str] = &[
    "CODEX_HOME",
    "CODEX_SQLITE_HOME",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CA_CERTIFICATE",
    "OPENAI_API_KEY",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "ALL_PROXY",
    "all_proxy",
];

const MOVED_HOMES: &[MovedHome] = &[
    MovedHome {
        variable: "CODEX_HOME",
        below: "",
        instead_of: &[".codex"],
    },
    MovedHome {
        variable: "CODEX_SQLITE_HOME",
        below: "",
        instead_of: &[],
    },
];

/// Settings of every session. They are given as configuration, because an unknown
/// feature flag ends codex at once, while an unknown setting is only remarked on.
const SETTINGS: &[&str] = &[
    // No traffic but the model's.
    "analytics.enabled=false",
    "feedback.enabled=false",
    "check_for_update_on_startup=false",
    "history.persistence=\"none\"",
    // A connection that is refused shall end the session, not be tried for ever.
    "features.unbounded_connection_retries=false",
    // Both are needed to keep the conversation from being summarised: a session that
    // does not fit is to fail instead.
    "model_context_window=100000000",
    "model_auto_compact_token_limit=9000000",
    // A goal is the runner's to pursue.
    "features.goals=false",
    // The project's instructions are told in another way: those in its files may be an earlier
    // session's.
    "project_doc_max_bytes=0",
];

/// Plugins are looked up at their vendor's and on GitHub at every start.
const NO_PLUGINS: &str = "features.plugins=false";

/// Those of the project may be an earlier session's.
const NO_SKILLS: &str = "skills.include_instructions=false";

/// The codex backend.
pub(crate) struct Codex;

impl Backend for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn program(&self) -> Option<&'static str> {
        Some("codex")
    }

    fn invocation(&self, spec: &AgentSpec<'_>) -> Invocation {
        let mut argv: Vec<OsString> = words([
            "codex",
            "exec",
            "--json",
            "--ephemeral",
            "--skip-git-repo-check",
            "--color",
            "never",
            "-C",
        ])
        .collect();
        argv.push(spec.project_dir.into());
        argv.push("--output-schema".into());
        argv.push(spec.schema_path.into());
        argv.push("-o".into());
        argv.push(spec.output_path.into());
        if !spec.model.is_empty() {
            argv.extend(words(["-m", spec.model]));
        }
        if spec.contained {
            argv.push("--dangerously-bypass-approvals-and-sandbox".into());
        } else {
            argv.extend(words(["-s", "workspace-write"]));
        }
        for setting in SETTINGS {
            argv.extend(words(["-c", setting]));
        }
        // An earlier session may have written `.codex` there.
        let project = toml::Value::String(spec.project_dir.to_string_lossy().into_owned());
        let distrust = format!("projects={{{project}={{trust_level=\"untrusted\"}}}}");
        argv.extend(words(["-c", &distrust]));
        if spec.has(InheritPart::Hooks) {
            // Which of them somebody trusts is noted by the path where they usually are.
            argv.push("--dangerously-bypass-hook-trust".into());
        } else {
            argv.extend(words(["-c", NO_PLUGINS]));
        }
        if !spec.has(InheritPart::Instructions) {
            argv.extend(words(["-c", NO_SKILLS]));
        }
        if let Some((_, text)) = spec.instructions {
            let text = toml::Value::String(text.to_owned());
            let setting = format!("developer_instructions={text}");
            argv.extend(words(["-c", &setting]));
        }
        argv.extend(spec.extra_args.iter().map(OsString::from));
        // The prompt is on stdin.
        argv.push("-".into());
        let home = spec.agent_home;
        Invocation {
            argv,
            env: home
                .into_iter()
                .flat_map(|home| {
                    let database = home.join("sqlite");
                    [
                        ("CODEX_HOME".into(), home.into()),
                        ("CODEX_SQLITE_HOME".into(), database.into()),
                    ]
                })
                .collect(),
            passed_env: PASSED_ENV,
            writable_home: if home.is_some() {
                Vec::new()
            } else {
                vec![".codex"]
            },
            moved_homes: MOVED_HOMES,
        }
    }

    fn reader(&self) -> Box<dyn AgentReader> {
        Box::new(CodexReader::default())
    }

    fn reports_tokens(&self) -> bool {
        true
    }

    fn reports_cost(&self) -> bool {
        false
    }

    fn hosts(&self, input: &AgentHostsInput<'_>) -> Vec<String> {
        hosts::codex(input)
    }

    fn home(&self, input: &HomeInput<'_>) -> Option<HomeContent> {
        Some(home::codex::content(input))
    }

    fn home_variables(&self) -> &'static [&'static str] {
        &["CODEX_HOME"]
    }

    fn login_file(&self) -> Option<LoginFile> {
        Some(home::login::CODEX)
    }

    fn probe(&self) -> CliProbe {
        CliProbe {
            version: &["codex", "--version"],
            known_good: Some((
                CliVersion::new(0, 166, 0),
                CliVersion::new(0, 166, u32::MAX),
            )),
            helps: &[CliHelp {
                command: &["codex", "exec", "--help"],
                flags: &[
                    "--json",
                    "--ephemeral",
                    "--skip-git-repo-check",
                    "--color",
                    "-C",
                    "--output-schema",
                    "-o",
                    "-m",
                    "-c",
                    "-s",
                    "--dangerously-bypass-approvals-and-sandbox",
                ],
            }],
            login: CliLogin {
                env: &["CODEX_API_KEY", "CODEX_ACCESS_TOKEN"],
                files: &[".codex/auth.json"],
                home: Some(("CODEX_HOME", &["auth.json"])),
            },
        }
    }
}

/// A line, as far as it is of interest.
#[derive(Deserialize)]
struct CodexLine<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: LaxText<'a>,
    /// On the heap, because moving it around costs more than that.
    #[serde(borrow, default)]
    item: LaxObject<Box<CodexItem<'a>>>,
    #[serde(default)]
    usage: LaxObject<CodexTokens>,
    #[serde(borrow, default)]
    error: LaxObject<CodexErrorBody<'a>>,
    #[serde(borrow, default)]
    message: LaxText<'a>,
}

#[derive(Deserialize)]
struct CodexItem<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: LaxText<'a>,
    #[serde(borrow, default)]
    text: LaxText<'a>,
    #[serde(borrow, default)]
    message: LaxText<'a>,
    #[serde(borrow, default)]
    command: LaxText<'a>,
    #[serde(default)]
    exit_code: LaxInt,
    #[serde(borrow, default)]
    status: LaxText<'a>,
    #[serde(borrow, default)]
    changes: LaxList<LaxObject<CodexChange<'a>>>,
}

#[derive(Deserialize)]
struct CodexChange<'a> {
    #[serde(borrow, default)]
    path: LaxText<'a>,
    #[serde(borrow, default)]
    kind: LaxText<'a>,
}

#[derive(Clone, Copy, Deserialize)]
struct CodexTokens {
    #[serde(default, rename = "input_tokens")]
    input: LaxInt,
    #[serde(default, rename = "cached_input_tokens")]
    cached_input: LaxInt,
    #[serde(default, rename = "output_tokens")]
    output: LaxInt,
}

#[derive(Deserialize)]
struct CodexErrorBody<'a> {
    #[serde(borrow, default)]
    message: LaxText<'a>,
}

/// Where an item is in its life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodexStage {
    Started,
    Completed,
}

#[derive(Default)]
struct CodexReader {
    usage: SessionUsage,
    /// The last thing that the agent said is its report.
    last_message: Option<Vec<u8>>,
    /// Why the turn failed: final.
    failed: Option<String>,
    /// What may have been only a remark about a new attempt.
    last_error: Option<String>,
    completed: bool,
    /// Whether nothing came after its end.
    over: bool,
    stderr: StderrTail,
}

impl CodexReader {
    fn item(&mut self, item: &CodexItem<'_>, stage: CodexStage) -> Vec<AgentEvent> {
        match (item.kind.get(), stage) {
            ("command_execution", _) => {
                let running = stage == CodexStage::Started;
                let command = unwrapped(item.command.get());
                let exit_code = item.exit_code.exit_code().filter(|_| !running);
                vec![AgentEvent::command(&command, exit_code, running)]
            }
            ("agent_message", CodexStage::Completed) => {
                let text = item.text.get();
                self.last_message = Some(bounded(text));
                vec![AgentEvent::message(text)]
            }
            ("file_change", CodexStage::Completed) if item.status.get() != "failed" => item
                .changes
                .0
                .iter()
                .filter_map(|change| change.0.as_ref())
                .map(|change| {
                    let kind = match change.kind.get() {
                        "add" => FileChangeKind::Add,
                        "delete" => FileChangeKind::Delete,
                        _ => FileChangeKind::Update,
                    };
                    AgentEvent::file_change(change.path.get(), kind)
                })
                .collect(),
            ("error", CodexStage::Completed) => vec![AgentEvent::error(item.message.get(), false)],
            _ => Vec::new(),
        }
    }
}

impl AgentReader for CodexReader {
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let Some(line) = read_event::<CodexLine<'_>>(line) else {
            return Vec::new();
        };
        // Whatever said that it is over, it goes on where something follows.
        self.over = match line.kind.get() {
            "turn.completed" | "turn.failed" => true,
            "turn.started" | "item.started" | "item.completed" => false,
            _ => self.over,
        };
        match (line.kind.get(), &line.item.0) {
            ("turn.started", _) => {
                self.completed = false;
                vec![AgentEvent::TurnStarted]
            }
            ("item.started", Some(item)) => self.item(item, CodexStage::Started),
            ("item.completed", Some(item)) => self.item(item, CodexStage::Completed),
            ("turn.completed", _) => {
                self.completed = true;
                self.failed = None;
                let Some(tokens) = line.usage.0 else {
                    return Vec::new();
                };
                // The count is of the whole session, also in a second turn.
                self.usage.raise(&SessionUsage {
                    input_tokens: tokens.input.count(),
                    cached_input_tokens: tokens.cached_input.count(),
                    output_tokens: tokens.output.count(),
                    cost_usd: None,
                });
                vec![AgentEvent::Usage(self.usage)]
            }
            ("turn.failed", _) => {
                let message = match &line.error.0 {
                    Some(error) => error.message.get(),
                    None => line.message.get(),
                };
                let message = if message.is_empty() {
                    "the turn failed"
                } else {
                    message
                };
                self.completed = false;
                self.failed = Some(kept(message));
                vec![AgentEvent::error(message, true)]
            }
            ("error", _) => {
                let message = line.message.get();
                self.last_error = Some(kept(message));
                vec![AgentEvent::error(message, false)]
            }
            _ => Vec::new(),
        }
    }

    fn stderr(&mut self, line: &[u8]) {
        self.stderr.push(line);
    }

    fn usage(&self) -> SessionUsage {
        self.usage
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn finish(self: Box<Self>, exit: Option<i32>, now: Timestamp, tz: &LocalZone) -> SessionEnding {
        let this = *self;
        let error = this.failed.or_else(|| {
            // Remarks of a session that went through in the end are over.
            let failed = !this.completed && exit != Some(0);
            this.last_error.filter(|_| failed)
        });
        let failure = match error {
            Some(message) => Some(AgentFailure::told(&message, &[], None, now, tz)),
            None if exit == Some(0) && this.last_message.is_none() => Some(
                AgentFailure::malformed("codex ended without a final message"),
            ),
            None => this.stderr.failure("codex", exit, now, tz),
        };
        SessionEnding {
            output: this.last_message.filter(|_| failure.is_none()),
            usage: this.usage,
            failure,
        }
    }
}
