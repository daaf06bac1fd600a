//! Children of the harness: the runner itself, `setup` and check commands. All of them run under a
//! supervisor, which ends whatever they started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner::{ChildNetwork, Error, NetworkInput, NetworkSupport, Result, TempFolder};
use runner_core::config::{ChildKind, Config, SandboxMode};
use runner_exec::{Cancel, CappedLog, Ended, Flow, Sink, SpawnFailure, Spec, Stream, Supervisor};
use runner_sandbox::{Mechanism, NetworkAccess};

/// Between SIGTERM and SIGKILL: for the runner, which settles its iteration meanwhile, and for
/// everything else.
const RUNNER_GRACE: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(2);

/// How much of a log is kept.
pub(crate) const LOG_LIMIT: usize = 1_000_000;

/// A line longer than this is no event.
const LINE_LIMIT: usize = 1 << 20;

/// The name of the runner's own variables, which a nested runner must not take over.
const OWN_PREFIX: &str = "RUNNER_";

/// How a child ended, and what it printed.
#[derive(Clone, Debug)]
pub(crate) struct ChildOutput {
    pub(crate) ended: Ended,
    /// Both streams, capped.
    pub(crate) log: Vec<u8>,
    /// stdout alone, capped.
    pub(crate) stdout: Vec<u8>,
}

impl ChildOutput {
    /// The exit code, if it ended by itself.
    pub(crate) fn exit(&self) -> Option<i32> {
        match self.ended {
            Ended::Exited(code) => Some(code),
            Ended::Signaled(signal) => Some(128 + signal),
            _ => None,
        }
    }

    /// How it ended, in words; `None` for code 0.
    pub(crate) fn failure(&self, limit_secs: u64) -> Option<String> {
        Some(match &self.ended {
            Ended::Exited(0) => return None,
            Ended::Exited(code) => format!("exit {code}"),
            Ended::Signaled(signal) => format!("ended by signal {signal}"),
            Ended::TimedOut => format!("did not end within {limit_secs} s"),
            Ended::Interrupted => "interrupted".to_owned(),
            Ended::NotStarted(failure) => failure.message.clone(),
            Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => {
                "its supervisor was killed".to_owned()
            }
        })
    }
}

/// What every child of a run shares.
#[derive(Clone, Debug)]
pub(crate) struct ChildContext<'a> {
    pub(crate) supervisor: &'a Supervisor,
    pub(crate) cancel: &'a Cancel,
    pub(crate) workspace: &'a Path,
    pub(crate) env: &'a BTreeMap<String, String>,
    /// What nothing that works there may look into.
    pub(crate) closed: &'a [PathBuf],
}

/// A command in containment.
struct WrappedCheck {
    argv: Vec<OsString>,
    /// Variables that name private folders.
    variables: Vec<(OsString, OsString)>,
}

impl ChildContext<'_> {
    /// Runs the runner in the workspace, with the whole environment of the harness, as from a
    /// shell. Each line of its stdout is handed over as it comes.
    pub(crate) fn runner(
        &self,
        argv: Vec<OsString>,
        limit: Duration,
        on_line: &mut dyn FnMut(&[u8]),
    ) -> Result<ChildOutput> {
        let delays = "RUNNER_RETRY_DELAYS_SECS";
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os()
            .filter(|(name, _)| name == delays || !is_own(name))
            .collect();
        self.add_to(&mut env);
        // Not for the case to say.
        env.retain(|(name, _)| name != runner::CLOSED_PATHS);
        env.push((runner::CLOSED_PATHS.into(), closed_list(self.closed)?));
        self.run(argv, env, limit, RUNNER_GRACE, false, on_line)
    }

    /// Runs a command that may run what an agent wrote, contained as the config says.
    pub(crate) fn contained(
        &self,
        argv: &[String],
        config: &Config,
        limit: Duration,
    ) -> Result<ChildOutput> {
        let mut env = runner::inherited();
        self.add_to(&mut env);
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let program = argv.first().map(OsString::as_os_str).unwrap_or_default();
        // Inside a wrapper a program that is missing would look like one that failed.
        if let Err(error) = runner::resolve(program, self.workspace, &env) {
            return Ok(ChildOutput {
                ended: Ended::NotStarted(SpawnFailure {
                    not_found: error.not_found,
                    message: error.message,
                }),
                log: Vec::new(),
                stdout: Vec::new(),
            });
        }
        let mechanism = mechanism(config)?;
        let temp = TempFolder::make(self.workspace)?;
        let env = runner::with_temp_folder(&env, temp.path());
        let mut network = match mechanism {
            Mechanism::None => ChildNetwork::open(),
            _ => Self::network(&mechanism, config, &temp)?,
        };
        let env = network.environment(env);
        let access = network.access.clone();
        let WrappedCheck { argv, variables } =
            self.wrap(&mechanism, &argv, config, (&temp, access))?;
        let env = runner::with_private(&env, variables);
        let monitor = mechanism.has_monitor();
        let mut output = self.run(argv, env, limit, GRACE, monitor, &mut |_| {})?;
        for sentence in network.end() {
            let line = format!("runner: {sentence}\n");
            output.log.extend_from_slice(line.as_bytes());
        }
        Ok(output)
    }

    /// The rule for guards is that of checks, too: both run code that an agent wrote.
    fn network(mechanism: &Mechanism, config: &Config, temp: &TempFolder) -> Result<ChildNetwork> {
        let support = SUPPORT.get_or_init(|| runner_sandbox::detect(runner::own_search_path()));
        let support = NetworkSupport::find(mechanism, support, &config.sandbox.network);
        support.check(config)?;
        ChildNetwork::begin(NetworkInput {
            kind: ChildKind::Guard,
            config,
            support,
            socket_folder: temp.path().with_file_name("net"),
            refused: None,
        })
    }

    fn add_to(&self, env: &mut Vec<(OsString, OsString)>) {
        let added = self.env.iter();
        env.extend(added.map(|(name, value)| (name.into(), value.into())));
    }

    fn wrap(
        &self,
        mechanism: &Mechanism,
        argv: &[OsString],
        config: &Config,
        (temp, network): (&TempFolder, NetworkAccess),
    ) -> Result<WrappedCheck> {
        let made = runner::foreign_policy(self.workspace, argv, config, temp)?;
        let (mut policy, variables) = made;
        policy.network = network;
        policy.hidden.extend_from_slice(self.closed);
        // What the case names as the check itself can be read wherever it lies.
        let words = argv.iter().map(PathBuf::from);
        let named = words.filter(|path| path.is_absolute() && path.is_file());
        policy.in_sight.extend(named);
        // The run is over: its records are not for the code that it wrote.
        policy.read_only = vec![self.workspace.join(".git"), self.workspace.join(".runner")];
        let launcher: [OsString; 2] = ["/proc/self/exe".into(), "__landlock".into()];
        let argv = runner_sandbox::wrap(mechanism, &policy, &launcher, argv).map_err(refused)?;
        Ok(WrappedCheck { argv, variables })
    }

    fn run(
        &self,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        limit: Duration,
        grace: Duration,
        monitor: bool,
        on_line: &mut dyn FnMut(&[u8]),
    ) -> Result<ChildOutput> {
        let spec = Spec {
            argv,
            cwd: self.workspace.to_owned(),
            env,
            stdin: None,
            merge_stderr: false,
            deadline: Some(Instant::now() + limit),
            idle_timeout: None,
            grace,
            monitor,
            hold_lock: None,
            task_limit: None,
            cannot_start: None,
        };
        let mut sink = ChildSink {
            log: CappedOutput::new(),
            stdout: CappedOutput::new(),
            line: Vec::new(),
            on_line,
        };
        let report = self.supervisor.run(&spec, self.cancel, &mut sink)?;
        let ChildSink {
            log, stdout, line, ..
        } = sink;
        if !line.is_empty() {
            on_line(&line);
        }
        Ok(ChildOutput {
            ended: report.ended,
            log: log.finish(),
            stdout: stdout.finish(),
        })
    }
}

/// The paths as the runner takes them.
fn closed_list(paths: &[PathBuf]) -> Result<OsString> {
    std::env::join_paths(paths).map_err(|_| {
        Error::new(
            runner::ErrorCode::Layout,
            "the folders of an eval cannot have a colon in their paths",
        )
        .hint("name others with --cases, --results and --workspaces")
    })
}

fn is_own(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(OWN_PREFIX.as_bytes())
}

/// Looking takes some milliseconds and always finds the same.
static SUPPORT: std::sync::OnceLock<runner_sandbox::SandboxSupport> = std::sync::OnceLock::new();

fn mechanism(config: &Config) -> Result<Mechanism> {
    if config.sandbox.mode == SandboxMode::Off {
        return Ok(Mechanism::None);
    }
    let support = SUPPORT.get_or_init(|| runner_sandbox::detect(runner::own_search_path()));
    runner_sandbox::choose(config.sandbox.mode, support).map_err(refused)
}

#[allow(clippy::needless_pass_by_value)] // So that it fits `map_err`.
fn refused(refusal: runner_sandbox::SandboxRefusal) -> Error {
    Error::new(runner::ErrorCode::Config, refusal.message).hint(refusal.hint)
}

/// A log that forgets its middle.
struct CappedOutput {
    head: Vec<u8>,
    capped: CappedLog,
}

impl CappedOutput {
    fn new() -> Self {
        CappedOutput {
            head: Vec::new(),
            capped: CappedLog::new(LOG_LIMIT),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let head = self.capped.push(bytes);
        self.head.extend_from_slice(head);
    }

    fn finish(mut self) -> Vec<u8> {
        self.head.extend(self.capped.finish().bytes);
        self.head
    }
}

struct ChildSink<'f> {
    log: CappedOutput,
    stdout: CappedOutput,
    line: Vec<u8>,
    on_line: &'f mut dyn FnMut(&[u8]),
}

impl Sink for ChildSink<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        self.log.push(bytes);
        if stream == Stream::Stdout {
            self.stdout.push(bytes);
            for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                self.line.extend_from_slice(part);
                if part.ends_with(b"\n") {
                    (self.on_line)(&self.line);
                    self.line.clear();
                }
            }
            self.line.truncate(LINE_LIMIT);
        }
        Flow::Go
    }
}
