//! Whether sessions of the agent get what belongs to a person: tried with the CLI itself, in a home
//! that is made up, where a hook and an MCP server leave a mark, and with a model that refuses everybody.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use runner_agents::{AgentSpec, Backend, HomeInput};
use runner_core::config::{BackendKind, Config, InheritPart};
use runner_core::schema;
use runner_exec::{Ended, Spec};
use serde_json::json;

use super::DoctorCheck;
use crate::agent_home::{lay, names_in, text_of};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::run_context::{RunContext, RunProgress};
use crate::step::captured_child::{self, CaptureOptions};

const NAME: &str = "agent_home";

/// How long a CLI may take until it asks its model.
const LIMIT: Duration = Duration::from_secs(60);

/// One that hangs gets no long farewell.
const GRACE: Duration = Duration::from_secs(1);

/// What it prints is of no interest.
const MAX_TEXT: u64 = 1 << 16;

/// How long a client of the model may be silent.
const SILENCE: Duration = Duration::from_secs(2);

/// What the planted things leave.
const MARKS: [(&str, &str); 2] = [("hook", "hook"), ("server", "MCP server")];

/// The variable with the key of the made-up model.
const KEY: &str = "RUNNER_DOCTOR_KEY";

/// What a trial came to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HermeticTrial {
    /// Whether the CLI came so far as to ask its model.
    asked: bool,
    /// What of the planted things has run, in words.
    ran: Vec<&'static str>,
}

/// Which mode the agent is in, and how that was checked.
pub(super) fn check(
    backend: &dyn Backend,
    config: &Config,
    env: &[(OsString, OsString)],
    context: &mut RunContext<'_>,
) -> Result<DoctorCheck> {
    let mode = mode(backend, config);
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, value)| value.clone()).unwrap_or_default();
    let mut run = |inherit: &[InheritPart]| {
        context.observer.progress(&RunProgress::Trying {
            what: backend.name(),
            limit_secs: LIMIT.as_secs(),
        });
        let ran = trial(backend, config.executor.backend, inherit, &path, context);
        context.observer.progress(&RunProgress::Tried);
        ran
    };
    let alone = run(&[])?;
    // Plugins of opencode would be fetched.
    let parts: &[InheritPart] = match config.executor.backend {
        BackendKind::Opencode => &[InheritPart::Mcp],
        _ => &[InheritPart::Mcp, InheritPart::Hooks],
    };
    let with = if alone.asked { Some(run(parts)?) } else { None };
    Ok(verdict(&mode, backend.name(), &alone, with.as_ref()))
}

/// In words.
fn mode(backend: &dyn Backend, config: &Config) -> String {
    let executor = &config.executor;
    let named = backend.home_variables().iter();
    let mut named = named.filter(|name| executor.env.contains_key(**name));
    if let Some(name) = named.next() {
        return format!("sessions use the folder that {name} of [executor.env] names, as it is");
    }
    if executor.inherit.is_empty() {
        return "sessions get your login, model and provider, and no hooks, plugins, MCP servers, settings \
                or instructions of yours"
            .to_owned();
    }
    let parts: Vec<&str> = executor.inherit.iter().map(|part| part.as_str()).collect();
    format!(
        "sessions get your login, model and provider, and your {}",
        parts.join(", ")
    )
}

fn verdict(
    mode: &str,
    program: &str,
    alone: &HermeticTrial,
    with: Option<&HermeticTrial>,
) -> DoctorCheck {
    if !alone.ran.is_empty() {
        return DoctorCheck::fail(
            NAME,
            format!(
                "a planted {} ran although it is not let in",
                alone.ran.join(" and a planted ")
            ),
            format!(
                "install a version of {program} that is known to work: sessions would run yours"
            ),
        );
    }
    match with {
        Some(with) if with.asked && !with.ran.is_empty() => DoctorCheck::ok(
            NAME,
            format!(
                "{mode} (tried: a planted {} ran when let in, and not otherwise)",
                with.ran.join(" and a planted ")
            ),
        ),
        Some(_) => DoctorCheck::warn(
            NAME,
            format!("{mode} (not shown: what was planted did not run when let in either)"),
            format!("install a version of {program} that is known to work"),
        ),
        None => DoctorCheck::warn(
            NAME,
            format!("{mode} (not tried: {program} ended before it asked a model)"),
            format!("start {program} by hand and see what it says"),
        ),
    }
}

fn trial(
    backend: &dyn Backend,
    kind: BackendKind,
    inherit: &[InheritPart],
    path: &OsString,
    context: &mut RunContext<'_>,
) -> Result<HermeticTrial> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    for name in ["home", "project", "marks", "tmp", "private"] {
        files::make_folder(&at(name))?;
    }
    let model = RefusingModel::start()?;
    plant(kind, &at("home"), &at("marks"), model.address)?;
    let content = backend.home(&HomeInput {
        user_home: &at("home"),
        var: &|_| None,
        read: &text_of,
        names: &names_in,
        inherit,
        instructions: "",
    });
    let private = at("private");
    for entry in content.unwrap_or_default().entries {
        lay(&private, &entry)?;
    }
    let schema = schema::AGENT_OUTPUT_FOR_MODELS;
    files::write_whole(&at("schema.json"), schema.as_bytes())?;
    files::write_whole(&at("prompt.md"), b"Say hello.\n")?;
    let invocation = backend.invocation(&AgentSpec {
        project_dir: &at("project"),
        output_path: &at("output.json"),
        schema_path: &at("schema.json"),
        schema_json: schema,
        model: "",
        extra_args: &[],
        command: &[],
        contained: true,
        is_root: rustix::process::geteuid().is_root(),
        agent_home: Some(&private),
        login_folder: None,
        inherit,
        instructions: None,
    });
    let mut env: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), path.clone()),
        ("HOME".into(), at("home").into()),
        ("TMPDIR".into(), at("tmp").into()),
    ];
    for (name, value) in [
        (KEY, "made-up"),
        ("ANTHROPIC_API_KEY", "made-up"),
        ("CLAUDE_CODE_MAX_RETRIES", "0"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ] {
        env.push((name.into(), value.into()));
    }
    env.extend(invocation.env);
    let spec = Spec {
        argv: invocation.argv,
        cwd: at("project"),
        env,
        stdin: Some(at("prompt.md")),
        merge_stderr: true,
        deadline: Some(Instant::now() + LIMIT),
        idle_timeout: None,
        grace: GRACE,
        monitor: false,
        hold_lock: None,
        task_limit: None,
        cannot_start: None,
    };
    let (report, _) = captured_child::run(&spec, CaptureOptions::plain(MAX_TEXT), context)?;
    if report.ended == Ended::Interrupted {
        return Err(Error::new(ErrorCode::Interrupted, "interrupted"));
    }
    let marks = at("marks");
    let ran = MARKS.iter().filter(|(name, _)| marks.join(name).exists());
    Ok(HermeticTrial {
        asked: model.was_asked(),
        ran: ran.map(|(_, words)| *words).collect(),
    })
}

/// A person's settings, with a model of ours and with things that leave marks.
fn plant(kind: BackendKind, home: &Path, marks: &Path, model: SocketAddr) -> Result<()> {
    let write = |path: &str, text: String| -> Result<()> {
        let path = home.join(path);
        if let Some(folder) = path.parent() {
            files::make_folder(folder)?;
        }
        Ok(files::write_whole(&path, text.as_bytes())?)
    };
    let mark = |name: &str| marks.join(name).display().to_string();
    let command = format!("touch '{}'", mark("hook"));
    let hook = json!([{"hooks": [{"type": "command", "command": command}]}]);
    let hooks = json!({"SessionStart": hook});
    let url = format!("http://{model}/v1");
    match kind {
        BackendKind::Codex => {
            write(
                ".codex/config.toml",
                format!(
                    "model_provider = \"made-up\"\nmodel = \"made-up\"\n[model_providers.made-up]\nname = \"made-up\"\n\
                     base_url = \"{url}\"\nenv_key = \"{KEY}\"\nwire_api = \"responses\"\nrequest_max_retries = 0\n\
                     stream_max_retries = 0\nsupports_websockets = false\n[mcp_servers.planted]\ncommand = \"touch\"\n\
                     args = ['{}']\n",
                    mark("server")
                ),
            )?;
            write(".codex/hooks.json", json!({"hooks": hooks}).to_string())
        }
        BackendKind::Claude => {
            let root = format!("http://{model}");
            let settings = json!({"hooks": hooks, "env": {"ANTHROPIC_BASE_URL": root}});
            write(".claude/settings.json", settings.to_string())?;
            let servers = json!({"planted": {"command": "touch", "args": [mark("server")]}});
            write(".claude.json", json!({"mcpServers": servers}).to_string())
        }
        BackendKind::Opencode => {
            let provider = json!({
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": url, "apiKey": "made-up"},
                "models": {"made-up": {"name": "made-up"}},
            });
            let server = json!({"type": "local", "command": ["touch", mark("server")]});
            let config = json!({
                "model": "made-up/made-up",
                "provider": {"made-up": provider},
                "mcp": {"planted": server},
            });
            write(".config/opencode/opencode.json", config.to_string())?;
            let plugin = format!(
                "import {{ writeFileSync }} from \"fs\"\nexport const Planted = async () => {{ writeFileSync({}, \"\"); return {{}} }}\n",
                json!(mark("hook"))
            );
            for folder in [".config/opencode/plugin", ".opencode/plugin"] {
                write(&format!("{folder}/planted.js"), plugin.clone())?;
            }
            Ok(())
        }
        BackendKind::Command => Ok(()),
    }
}

/// A model on loopback that knows nobody: a CLI that is told so ends at once.
struct RefusingModel {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RefusingModel {
    fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let count = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (counted, over) = (count.clone(), is_over.clone());
        let thread = thread::spawn(move || {
            while let Ok((connection, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                // Who goes away has been answered enough.
                if refuse(connection).is_ok_and(|is_question| is_question) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Ok(RefusingModel {
            address,
            count,
            is_over,
            thread: Some(thread),
        })
    }

    fn was_asked(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }
}

impl Drop for RefusingModel {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Nothing else wakes a thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request. Whether it was a question to the model.
fn refuse(mut connection: TcpStream) -> io::Result<bool> {
    const MAX: usize = 16 << 20;
    connection.set_read_timeout(Some(SILENCE))?;
    connection.set_write_timeout(Some(SILENCE))?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    while !is_whole(&bytes) && bytes.len() < MAX {
        match connection.read(&mut buffer)? {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    let body = r#"{"type":"error","error":{"type":"authentication_error","message":"nobody is known here"}}"#;
    let answer = format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(answer.as_bytes())?;
    Ok(bytes.starts_with(b"POST "))
}

/// Whether a request has come to its end.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0_usize);
    bytes.len() >= end + 4 + length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::DoctorVerdict;

    #[test]
    fn modes() {
        let backend = runner_agents::backend(BackendKind::Claude);
        for (toml, words) in [
            ("", "no hooks, plugins, MCP servers"),
            (
                "[executor]\ninherit = [\"mcp\", \"hooks\"]",
                "and your mcp, hooks",
            ),
            (
                "[executor]\ninherit = [\"mcp\"]\n[executor.env]\nCLAUDE_CONFIG_DIR = \"/c\"",
                "that CLAUDE_CONFIG_DIR of [executor.env] names",
            ),
        ] {
            let config = Config::parse(toml).unwrap();
            assert!(mode(&*backend, &config).contains(words), "{toml}");
        }
    }

    #[test]
    fn what_trials_show() {
        let trial = |asked, ran: &[&'static str]| HermeticTrial {
            asked,
            ran: ran.to_vec(),
        };
        for (alone, with, verdict_of, words) in [
            (
                trial(true, &[]),
                Some(trial(true, &["hook", "MCP server"])),
                DoctorVerdict::Ok,
                "alone (tried: a planted hook and a planted MCP server ran when let in, and not otherwise)",
            ),
            (
                trial(true, &[]),
                Some(trial(true, &[])),
                DoctorVerdict::Warn,
                "not shown",
            ),
            (
                trial(false, &[]),
                None,
                DoctorVerdict::Warn,
                "not tried: x ended before it asked a model",
            ),
            (
                trial(false, &["hook"]),
                None,
                DoctorVerdict::Fail,
                "a planted hook ran although",
            ),
        ] {
            let check = verdict("alone", "x", &alone, with.as_ref());
            assert_eq!(check.verdict, verdict_of, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
        }
    }

    #[test]
    fn requests_come_to_an_end() {
        for (text, expected) in [
            ("", false),
            ("GET / HTTP/1.1\r\n", false),
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\na", false),
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", true),
        ] {
            assert_eq!(is_whole(text.as_bytes()), expected, "{text:?}");
        }
    }
}
