//! The agent's session: started, followed, and what it came to.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner_agents::{AgentFailure, AgentSpec, FailureKind, LimitReset};
use runner_core::config::{BackendKind, ChildKind, Config};
use runner_core::journal::JournalRecord;
use runner_core::meta::{ExecutorRun, IterationErrorKind, RunnerError};
use runner_core::output::{AgentOutput, MAX_OUTPUT_BYTES};
use runner_core::schema;
use runner_exec::{Ended, Ready, Spec};
use serde_json::json;

use super::child::{self, GRACE, interrupted, millis};
use super::stream::EventStream;
use super::{Iteration, StepContext, StepInput};
use crate::agent_home::{SessionOutfit, instructions};
use crate::checkout::Checkout;
use crate::checkout::workspace::RunWorkspace;
use crate::error::Result;
use crate::files::{self, ReadError};
use crate::limits::room::DiskRoom;
use crate::limits::{LimitBreach, LimitWatch, task_limit};
use crate::lock;
use crate::programs;
use crate::run::beginning::RunBeginning;
use crate::run_context::RunProgress;
use crate::step::budget::RunBudget;
use crate::step::containment;
use crate::step::containment::{Containment, ContainmentInput};
use crate::step::environment;
use crate::step::file_image;
use crate::step::masked_sink::passed_values;

/// The name of a session's report.
const OUTPUT: &str = "output.json";

/// The paths that a session is told, as it sees them.
pub(crate) struct SessionPaths {
    pub(crate) project: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) schema: PathBuf,
}

impl SessionPaths {
    fn of(folder: &Path, checkout: &Checkout, containment: &Containment) -> Self {
        let seen = containment.seen(checkout);
        let folder = seen.join(folder.strip_prefix(checkout.path()).unwrap_or(folder));
        SessionPaths {
            project: seen.to_owned(),
            output: folder.join(OUTPUT),
            schema: folder.join("schema.json"),
        }
    }
}

/// How the agent's session went.
pub(super) struct AgentSession {
    pub(super) run: ExecutorRun,
    pub(super) error: Option<RunnerError>,
    /// What it left takes room that others need.
    pub(super) fills_disk: bool,
    /// Why there may be no report, in the CLI's words.
    pub(super) failure: Option<RunnerError>,
}

/// Lets the agent work until it ends or its time is up.
pub(super) fn run_agent(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    ready: Option<Ready>,
    step: &StepInput<'_, '_>,
    containment: &Containment,
    budget: &RunBudget,
    deadline: Instant,
) -> Result<AgentSession> {
    let config = &step.state.config;
    let checkout = &step.workspace.checkout;
    it.backend = config.executor.backend;
    let backend = runner_agents::backend(it.backend);
    let folder = session_folder(it, step.workspace);
    let places = SessionPaths::of(&folder, checkout, containment);
    if backend.program().is_some() {
        let schema = schema::AGENT_OUTPUT_FOR_MODELS.as_bytes();
        files::write_whole(&folder.join("schema.json"), schema)?;
    }
    let instructions = base_instructions(context, it, step.workspace)?;
    let outfit = SessionOutfit::make(
        &*backend,
        checkout,
        config,
        &instructions,
        (&folder, places.output.parent().unwrap_or(&folder)),
    )?;
    let login_folder = outfit.login_folder();
    let invocation = backend.invocation(&AgentSpec {
        project_dir: &places.project,
        output_path: &places.output,
        schema_path: &places.schema,
        schema_json: schema::AGENT_OUTPUT_FOR_MODELS,
        model: &config.executor.model,
        extra_args: &config.executor.extra_args,
        command: &config.executor.command,
        contained: containment.is_on(),
        is_root: rustix::process::geteuid().is_root(),
        agent_home: outfit.home(),
        login_folder: login_folder.as_deref(),
        inherit: &config.executor.inherit,
        instructions: outfit.instructions(),
    });
    let env = environment::for_agent(&places, checkout, it, config, &invocation);
    record_argv(it, &invocation.argv, config)?;
    let mut homes = containment::agent_homes(&invocation, &env);
    homes.extend(outfit.writable());
    if containment.is_on() {
        containment::make_homes(&homes);
    }
    let mut contained = containment.wrap(
        &invocation.argv,
        &ContainmentInput {
            kind: ChildKind::Session,
            checkout,
            config,
            env: &env,
            report: Some(&folder),
            agent_homes: &homes,
        },
    )?;
    for note in contained.notes {
        it.notes.push(note);
    }
    let idle = config.executor.idle_timeout_secs;
    let spec = Spec {
        argv: contained.argv,
        cwd: checkout.path().to_owned(),
        env: contained.env,
        stdin: Some(it.folder.join("prompt.md")),
        merge_stderr: false,
        deadline: Some(deadline),
        idle_timeout: (idle > 0).then(|| Duration::from_secs(idle)),
        grace: GRACE,
        monitor: contained.monitor,
        hold_lock: Some(lock::session_lock(context.project)?),
        task_limit: task_limit(config),
        cannot_start: contained.cannot_start,
    };
    it.log_event(
        context.run.clock,
        "agent_started",
        json!({
            "backend": backend.name(),
            "sandbox": containment.as_str(),
            "sandbox_opened": it.sandbox_opened,
        }),
    );
    context.run.observer.progress(&RunProgress::Agent);
    let cap = config.executor_output_limit_bytes;
    let mut stream = EventStream::new(
        backend.reader(),
        budget,
        &it.folder.join("stream.jsonl"),
        cap,
        backend.program().is_some(),
    );
    let written = contained.held.written_in(checkout.path());
    let mut limits = LimitWatch::begin(config, ChildKind::Session, written);
    let watched = (&spec, &mut limits);
    let (report, log) = child::run(
        context,
        it,
        ready,
        watched,
        ("executor.log", cap),
        &passed_values(config),
        &mut stream,
    )?;
    let breach = limits.finish();
    contained.network.end();
    it.notes.extend(outfit.finish());
    let by_itself = matches!(report.ended, Ended::Exited(_) | Ended::Signaled(_));
    // What ended because it was told to has no code of its own.
    let exit_code = report.exit.filter(|_| by_itself);
    let tz = runner_agents::LocalZone::new(jiff::tz::TimeZone::system);
    it.notes.extend(stream.note().map(str::to_owned));
    let (ending, exceeded) = stream.finish(
        exit_code,
        context.run.clock.now(),
        &tz,
        context.run.observer,
    );
    it.journal.note(&JournalRecord::AgentEnded { exit_code })?;
    it.log_event(
        context.run.clock,
        "agent_ended",
        json!({"exit_code": exit_code}),
    );
    // A sandbox with a pid namespace ends what is left by itself, and is counted too.
    if report.killed_leftovers > 0 && by_itself && !spec.monitor {
        it.notes.push(format!(
            "the agent left {} process(es) running; they were ended",
            report.killed_leftovers
        ));
    }
    hand_over_output(&folder, ending.output)?;
    let error = match &report.ended {
        Ended::Interrupted => return Err(interrupted()),
        _ if breach.is_some() => breach
            .as_ref()
            .map(|it| (IterationErrorKind::Resources, it.words.clone())),
        Ended::Exited(_) | Ended::Signaled(_) => None,
        Ended::StoppedBySink => Some((IterationErrorKind::Budget, exceeded.unwrap_or_default())),
        Ended::NotStarted(failure) => Some((
            IterationErrorKind::Spawn,
            programs::not_started("agent", &failure.message),
        )),
        Ended::TimedOut => Some((
            IterationErrorKind::Timeout,
            format!(
                "the agent did not end within {} s",
                config.iteration_timeout_secs
            ),
        )),
        Ended::Idle => Some((
            IterationErrorKind::Idle,
            format!("the agent printed nothing for {idle} s ([executor] idle_timeout_secs)"),
        )),
        Ended::SupervisorLost => Some((
            IterationErrorKind::Io,
            "the agent's supervisor was killed; everything it had started was ended".to_owned(),
        )),
    };
    let error = error.or_else(|| {
        let words = containment.setup_failure(exit_code, &log)?;
        Some((
            IterationErrorKind::Spawn,
            format!("the sandbox could not be set up: {words}"),
        ))
    });
    // Whoever cannot write its report for want of room says something else, if anything.
    let unwritten = match &error {
        None if by_itself => lacking_room(&folder, checkout, config),
        _ => None,
    };
    let fills_disk = unwritten.is_some() || breach.as_ref().is_some_and(LimitBreach::fills_disk);
    let error = error.or(unwritten);
    let mut run = ExecutorRun {
        backend: backend.name().to_owned(),
        exit_code,
        duration_ms: millis(report.duration),
        ..ExecutorRun::default()
    };
    budget.record(&ending.usage, &mut run);
    Ok(AgentSession {
        run,
        error: error.map(|(kind, message)| RunnerError::new(kind, message)),
        fills_disk,
        failure: ending
            .failure
            .as_ref()
            .map(|failure| runner_error(failure, config, context.run.clock.now())),
    })
}

/// Why a session that ended by itself left no whole report, where the disk is full by then: before
/// anybody looked, and so without having been ended.
fn lacking_room(
    folder: &Path,
    checkout: &Checkout,
    config: &Config,
) -> Option<(IterationErrorKind, String)> {
    let room = DiskRoom::of(checkout.path(), &config.sandbox.limits)?;
    let report = || files::read_regular(&folder.join(OUTPUT), MAX_OUTPUT_BYTES as u64);
    let is_whole = || report().is_ok_and(|bytes| AgentOutput::parse(&bytes).is_ok());
    if !room.is_full() || is_whole() {
        return None;
    }
    let words = format!(
        "the disk is full: {}, and the session ended without a whole output.json",
        room.words()
    );
    Some((IterationErrorKind::Resources, words))
}

/// What the project tells agents, as the run began with it.
fn base_instructions(
    context: &StepContext<'_, '_>,
    it: &Iteration,
    workspace: &RunWorkspace,
) -> Result<String> {
    if it.backend == BackendKind::Command {
        return Ok(String::new());
    }
    let run_id = &it.started.run_id;
    let begun = RunBeginning::of(context.git, run_id, workspace.path())?;
    match context.places.base_of_tests().or(begun.start) {
        Some(commit) => instructions::of_commit(context.git, &commit, it.backend),
        None => Ok(String::new()),
    }
}

/// The exact argv of the session, secrets masked.
fn record_argv(it: &Iteration, argv: &[std::ffi::OsString], config: &Config) -> Result<()> {
    let mut text = json!(runner_agents::masked(argv, &secrets(config))).to_string();
    text.push('\n');
    Ok(files::write_whole(
        &it.folder.join("argv.json"),
        text.as_bytes(),
    )?)
}

/// What is in the session's environment by configuration is nobody's to read.
fn secrets(config: &Config) -> Vec<&str> {
    config.executor.env.values().map(String::as_str).collect()
}

/// A report that the CLI printed instead of writing it; what the agent itself
/// wrote goes first and stays as it is.
fn hand_over_output(folder: &Path, output: Option<Vec<u8>>) -> Result<()> {
    let path = folder.join(OUTPUT);
    match output {
        Some(bytes) if path.symlink_metadata().is_err() => Ok(files::write_whole(&path, &bytes)?),
        _ => Ok(()),
    }
}

fn runner_error(failure: &AgentFailure, config: &Config, now: jiff::Timestamp) -> RunnerError {
    let kind = match failure.kind {
        FailureKind::Quota => IterationErrorKind::Quota,
        FailureKind::RateLimit => IterationErrorKind::RateLimit,
        FailureKind::Auth => IterationErrorKind::Auth,
        FailureKind::ContextFull => IterationErrorKind::ContextFull,
        FailureKind::Network => IterationErrorKind::Network,
        FailureKind::Overloaded => IterationErrorKind::Overloaded,
        FailureKind::Malformed => IterationErrorKind::MalformedOutput,
        FailureKind::Other => IterationErrorKind::Agent,
    };
    let retry_at = match &failure.reset {
        Some(LimitReset::At(time)) => Some(*time),
        Some(LimitReset::In(duration)) => now.checked_add(*duration).ok(),
        Some(LimitReset::LocalText(_)) | None => None,
    };
    RunnerError {
        kind,
        message: runner_agents::mask_text(&failure.message, &secrets(config)),
        retry_at: retry_at.map(|time| format!("{time:.0}")),
    }
}

/// Where a session leaves its report.
fn session_folder(it: &Iteration, workspace: &RunWorkspace) -> PathBuf {
    workspace.session_folder(&it.started.run_id, it.started.iter)
}

/// Reads what the agent said, and keeps it with the records of the iteration; anything but a
/// valid answer is a runner error, of the kind that the CLI's own words tell if they tell one.
pub(super) fn read_output(
    it: &Iteration,
    workspace: &RunWorkspace,
    config: &Config,
    failure: Option<&RunnerError>,
) -> Result<Result<AgentOutput, RunnerError>> {
    let path = session_folder(it, workspace).join(OUTPUT);
    let is_real = file_image::parents_are_folders(
        workspace.path(),
        path.strip_prefix(workspace.path()).unwrap_or(&path),
    );
    let found = if is_real {
        files::read_regular(&path, MAX_OUTPUT_BYTES as u64)
    } else {
        Err(ReadError::Absent)
    };
    let (kind, message) = match found {
        Ok(bytes) => {
            let bytes = passed_values(config).hide_in(&bytes);
            files::write_whole(&it.output_path(), &bytes)?;
            match AgentOutput::parse(&bytes) {
                Ok(output) => return Ok(Ok(output)),
                Err(error) => (
                    IterationErrorKind::MalformedOutput,
                    format!("output.json: {error}"),
                ),
            }
        }
        Err(ReadError::Absent) => (
            IterationErrorKind::NoOutput,
            "the agent ended without writing output.json".to_owned(),
        ),
        Err(error) => {
            // Whatever it is, it is kept.
            file_image::move_to(
                &session_folder(it, workspace),
                Path::new(OUTPUT),
                &it.quarantine(),
            )?;
            (
                IterationErrorKind::MalformedOutput,
                format!("output.json: {error}"),
            )
        }
    };
    let own = RunnerError::new(kind, message);
    Ok(Err(match failure {
        None => own,
        // Any program may end with any code: what counts is what it left.
        Some(said)
            if said.kind == IterationErrorKind::Agent && it.backend == BackendKind::Command =>
        {
            RunnerError::new(kind, format!("{} ({})", own.message, said.message))
        }
        Some(said) => said.clone(),
    }))
}
