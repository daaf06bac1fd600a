//! The two children of a step: the agent's session and the guard's run.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use runner_core::digest::sha256_hex;
use runner_core::journal::Record;
use runner_core::meta::{ErrorKind, ExecutorRun, GuardRun, RunnerError};
use runner_core::output::{AgentOutput, MAX_OUTPUT_BYTES};
use runner_exec::{CappedLog, Ended, Flow, Report, Sink, Spec, Stream};
use serde_json::json;

use super::iteration::has_content;
use super::{Iteration, Workplace};
use crate::environment;
use crate::error::{Code, Error, Result};
use crate::executor;
use crate::fault;
use crate::files::{self, ReadError};
use crate::host::{Observer, Progress};
use crate::lock;
use crate::state::State;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// How the agent's session went.
pub(super) struct AgentSession {
    pub(super) run: ExecutorRun,
    pub(super) error: Option<RunnerError>,
}

/// How the guard's run went.
pub(super) struct GuardSession {
    pub(super) run: GuardRun,
    pub(super) error: Option<RunnerError>,
}

/// Lets the agent work until it ends or its time is up.
pub(super) fn run_agent(
    place: &mut Workplace<'_, '_>,
    it: &mut Iteration,
    state: &State,
    deadline: Instant,
) -> Result<AgentSession> {
    let backend = executor::backend(&state.config);
    // A stale output never counts, whatever lies there.
    files::remove_if_there(&it.output_path())?;
    let idle = state.config.executor.idle_timeout_secs;
    let mut spec = Spec {
        argv: backend.argv(),
        cwd: place.project.root().to_owned(),
        env: environment::for_agent(place.project, it, &state.config),
        stdin: Some(it.folder.join("prompt.md")),
        merge_stderr: false,
        deadline: Some(deadline),
        idle_timeout: (idle > 0).then(|| Duration::from_secs(idle)),
        grace: GRACE,
        hold_lock: Some(lock::session_lock(place.project)?),
    };
    spec.env.extend(backend.env());
    it.log_event(
        place.host.clock,
        "agent_started",
        json!({"backend": backend.name()}),
    );
    place.host.observer.progress(&Progress::Agent);
    let cap = state.config.executor_output_limit_bytes;
    let (report, _) = run(place, it, &spec, "executor.log", cap)?;
    let exit_code = report.exit;
    it.journal.note(&Record::AgentEnded { exit_code })?;
    it.log_event(
        place.host.clock,
        "agent_ended",
        json!({"exit_code": exit_code}),
    );
    if report.killed_leftovers > 0 {
        it.notes.push(format!(
            "the agent left {} process(es) running; they were ended",
            report.killed_leftovers
        ));
    }
    let error = match &report.ended {
        Ended::Exited(_) | Ended::Signaled(_) | Ended::StoppedBySink => None,
        Ended::NotStarted(failure) => {
            Some((ErrorKind::Spawn, format!("the agent {}", failure.message)))
        }
        Ended::TimedOut => Some((
            ErrorKind::Timeout,
            format!(
                "the agent did not end within {} s",
                state.config.iteration_timeout_secs
            ),
        )),
        Ended::Idle => Some((
            ErrorKind::Idle,
            format!("the agent printed nothing for {idle} s ([executor] idle_timeout_secs)"),
        )),
        Ended::SupervisorLost => Some((
            ErrorKind::Io,
            "the agent's supervisor was killed; everything it had started was ended".to_owned(),
        )),
        Ended::Interrupted => return Err(interrupted()),
    };
    Ok(AgentSession {
        run: ExecutorRun {
            backend: backend.name().to_owned(),
            exit_code,
            duration_ms: millis(report.duration),
            ..ExecutorRun::default()
        },
        error: error.map(|(kind, message)| RunnerError { kind, message }),
    })
}

/// Reads what the agent said; anything but a valid answer is a runner error.
pub(super) fn read_output(it: &Iteration) -> Result<AgentOutput, RunnerError> {
    let malformed = |message: String| RunnerError {
        kind: ErrorKind::MalformedOutput,
        message: format!("output.json: {message}"),
    };
    match files::read_regular(&it.output_path(), MAX_OUTPUT_BYTES as u64) {
        Ok(bytes) => AgentOutput::parse(&bytes).map_err(|error| malformed(error.to_string())),
        Err(ReadError::Absent) => Err(RunnerError {
            kind: ErrorKind::NoOutput,
            message: "the agent ended without writing output.json".to_owned(),
        }),
        Err(error) => Err(malformed(error.to_string())),
    }
}

/// Asks the guard, within what is left of the time.
pub(super) fn run_guard(
    place: &mut Workplace<'_, '_>,
    it: &mut Iteration,
    state: &State,
    deadline: Instant,
) -> Result<GuardSession> {
    let command = &state.config.guard.command;
    let spec = Spec {
        argv: command.iter().map(OsString::from).collect(),
        cwd: place.project.root().to_owned(),
        env: environment::for_guard(place.project, it),
        stdin: None,
        merge_stderr: true,
        deadline: Some(deadline),
        idle_timeout: None,
        grace: GRACE,
        hold_lock: Some(lock::session_lock(place.project)?),
    };
    it.log_event(
        place.host.clock,
        "guard_started",
        json!({"command": command}),
    );
    place.host.observer.progress(&Progress::Guard);
    let cap = state.config.guard_output_limit_bytes;
    let (report, log) = run(place, it, &spec, "guard.log", cap)?;
    let exit_code = match report.ended {
        Ended::Signaled(signal) => Some(128 + signal),
        Ended::Exited(code) => Some(code),
        _ => None,
    };
    it.journal.note(&Record::GuardEnded { exit_code })?;
    it.log_event(
        place.host.clock,
        "guard_ended",
        json!({"exit_code": exit_code}),
    );
    let error = match &report.ended {
        Ended::Exited(_) | Ended::Signaled(_) => None,
        Ended::NotStarted(failure) => Some((
            ErrorKind::GuardSpawn,
            format!("the guard {}", failure.message),
        )),
        Ended::TimedOut => Some((
            ErrorKind::GuardTimeout,
            format!(
                "the guard did not end within the {} s that agent and guard have together",
                state.config.iteration_timeout_secs
            ),
        )),
        Ended::Interrupted => return Err(interrupted()),
        Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => Some((
            ErrorKind::Io,
            "the guard's supervisor was killed; everything it had started was ended".to_owned(),
        )),
    };
    Ok(GuardSession {
        run: GuardRun {
            command: command.clone(),
            exit_code,
            duration_ms: millis(report.duration),
            log_sha256: sha256_hex(&log),
        },
        error: error.map(|(kind, message)| RunnerError { kind, message }),
    })
}

/// Runs a child with its output in a log of the iteration; how it went, and the
/// log's bytes.
fn run(
    place: &mut Workplace<'_, '_>,
    it: &Iteration,
    spec: &Spec,
    name: &str,
    cap: u64,
) -> Result<(Report, Vec<u8>)> {
    fault::point("spawn")?;
    let path = it.folder.join(name);
    files::remove_if_there(&path)?;
    let mut sink = LogSink {
        file: File::create(&path).map_err(|error| files::at(&path, error))?,
        head: Vec::new(),
        capped: CappedLog::new(usize::try_from(cap).unwrap_or(usize::MAX)),
        failed: None,
        observer: &mut *place.host.observer,
    };
    let report = place
        .host
        .supervisor
        .run(spec, place.host.cancel, &mut sink)?;
    let LogSink {
        mut file,
        head: mut log,
        capped,
        failed,
        ..
    } = sink;
    let tail = capped.finish().bytes;
    let written = failed.map_or_else(|| file.write_all(&tail), Err);
    if written.is_err() && matches!(report.ended, Ended::Interrupted) {
        return Err(interrupted());
    }
    written.map_err(|error| files::at(&path, error))?;
    log.extend_from_slice(&tail);
    // The child could write there too: what it said is what came out of its pipes.
    it.make_folder_again(place.project)?;
    if !has_content(&path, &log) {
        files::remove_if_there(&path)?;
        files::write_whole(&path, &log)?;
    }
    fault::point("spawn-done")?;
    Ok((report, log))
}

/// The head of the output goes to the log as it comes, the tail at the end.
struct LogSink<'o> {
    file: File,
    head: Vec<u8>,
    capped: CappedLog,
    failed: Option<std::io::Error>,
    observer: &'o mut dyn Observer,
}

impl Sink for LogSink<'_> {
    fn output(&mut self, _: Stream, bytes: &[u8]) -> Flow {
        let head = self.capped.push(bytes);
        self.head.extend_from_slice(head);
        if self.failed.is_none()
            && let Err(error) = self.file.write_all(head)
        {
            // The child goes on undisturbed; the step reports it afterwards.
            self.failed = Some(error);
        }
        Flow::Go
    }

    fn tick(&mut self) -> Flow {
        self.observer.tick();
        Flow::Go
    }

    fn tick_every(&self) -> Option<Duration> {
        self.observer.ticks().then_some(Duration::from_millis(200))
    }
}

/// A signal ended the children: the next start settles the iteration.
pub(crate) fn interrupted() -> Error {
    Error::new(
        Code::Interrupted,
        "interrupted: children ended, nothing lost",
    )
    .hint("the next `runner step` or `runner loop` settles the iteration and goes on")
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
