//! Anthropic's claude.

mod reader;

use std::ffi::OsString;

use runner_core::config::InheritPart;

use crate::home::{self, HomeContent, HomeInput};
use crate::hosts::{self, AgentHostsInput};
use crate::probe::{CliHelp, CliLogin, CliProbe, CliVersion};
use crate::reader::AgentReader;
use crate::{AgentSpec, Backend, Invocation, LoginFile, MovedHome, variables, words};

/// Variables that claude reads to find its login, its provider and its models. The
/// keys of a whole cloud account are not among them.
pub(crate) const PASSED_ENV: &[&str] = &[
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_BETAS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
    "CLAUDE_CODE_EFFORT_LEVEL",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "MAX_THINKING_TOKENS",
    "API_TIMEOUT_MS",
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_TIMEOUT_MS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "AWS_PROFILE",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_FOUNDRY_RESOURCE",
    "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY",
    "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
    "NODE_EXTRA_CA_CERTS",
    "ALL_PROXY",
    "all_proxy",
];

const MOVED_HOMES: &[MovedHome] = &[
    MovedHome {
        variable: "CLAUDE_CONFIG_DIR",
        below: "",
        instead_of: &[".claude", ".claude.json"],
    },
    MovedHome {
        variable: "CLAUDE_SECURESTORAGE_CONFIG_DIR",
        below: "",
        instead_of: &[],
    },
];

/// The claude backend.
pub(crate) struct Claude;

impl Backend for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn program(&self) -> Option<&'static str> {
        Some("claude")
    }

    fn invocation(&self, spec: &AgentSpec<'_>) -> Invocation {
        // Claude works in the folder in which it is started.
        let mut argv: Vec<OsString> = words([
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--no-session-persistence",
            "--json-schema",
            spec.schema_json,
        ])
        .collect();
        if !spec.model.is_empty() {
            argv.extend(words(["--model", spec.model]));
        }
        if spec.is_root {
            // Root is refused the flag below.
            argv.extend(words([
                "--permission-mode",
                "dontAsk",
                "--allowedTools",
                "Bash,Edit,Write,Read",
            ]));
        } else {
            argv.push("--dangerously-skip-permissions".into());
        }
        // The project's settings may be an earlier session's.
        argv.extend(words(["--setting-sources", "user"]));
        let home = spec.agent_home;
        if let Some(home) = home {
            argv.push("--strict-mcp-config".into());
            if spec.has(InheritPart::Mcp) {
                argv.push("--mcp-config".into());
                argv.push(home.join(home::claude::MCP_FILE).into());
            }
        }
        if let Some((_, text)) = spec.instructions {
            argv.extend(words(["--append-system-prompt", text]));
        }
        argv.extend(spec.extra_args.iter().map(OsString::from));
        let mut env = variables([
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_AUTO_COMPACT", "1"),
        ]);
        env.extend(home.map(|home| ("CLAUDE_CONFIG_DIR".into(), home.into())));
        let login = spec.login_folder;
        env.extend(login.map(|folder| ("CLAUDE_SECURESTORAGE_CONFIG_DIR".into(), folder.into())));
        Invocation {
            argv,
            env,
            passed_env: PASSED_ENV,
            writable_home: if home.is_some() {
                Vec::new()
            } else {
                // The second is a file.
                vec![".claude", ".claude.json", ".cache/claude-cli-nodejs"]
            },
            moved_homes: MOVED_HOMES,
        }
    }

    fn reader(&self) -> Box<dyn AgentReader> {
        Box::new(reader::ClaudeReader::default())
    }

    fn reports_tokens(&self) -> bool {
        true
    }

    fn reports_cost(&self) -> bool {
        true
    }

    fn hosts(&self, input: &AgentHostsInput<'_>) -> Vec<String> {
        hosts::claude(input)
    }

    fn home(&self, input: &HomeInput<'_>) -> Option<HomeContent> {
        Some(home::claude::content(input))
    }

    fn home_variables(&self) -> &'static [&'static str] {
        &["CLAUDE_CONFIG_DIR"]
    }

    fn login_file(&self) -> Option<LoginFile> {
        Some(home::login::CLAUDE)
    }

    fn probe(&self) -> CliProbe {
        CliProbe {
            version: &["claude", "--version"],
            known_good: Some((CliVersion::new(2, 1, 325), CliVersion::new(2, 1, u32::MAX))),
            helps: &[CliHelp {
                command: &["claude", "--help"],
                flags: &[
                    "-p",
                    "--output-format",
                    "--verbose",
                    "--no-session-persistence",
                    "--json-schema",
                    "--model",
                    "--permission-mode",
                    "--allowedTools",
                    "--dangerously-skip-permissions",
                    "--setting-sources",
                    "--strict-mcp-config",
                    "--mcp-config",
                    "--append-system-prompt",
                ],
            }],
            login: CliLogin {
                env: &[
                    "ANTHROPIC_API_KEY",
                    "ANTHROPIC_AUTH_TOKEN",
                    "CLAUDE_CODE_OAUTH_TOKEN",
                    "CLAUDE_CODE_USE_BEDROCK",
                    "CLAUDE_CODE_USE_VERTEX",
                    "CLAUDE_CODE_USE_FOUNDRY",
                ],
                files: &[".claude/.credentials.json"],
                home: Some(("CLAUDE_CONFIG_DIR", &[".credentials.json"])),
            },
        }
    }
}
