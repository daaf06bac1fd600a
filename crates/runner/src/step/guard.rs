//! The guard's run.

use std::ffi::OsString;
use std::time::Instant;

use runner_core::digest::sha256_hex;
use runner_core::journal::JournalRecord;
use runner_core::meta::{GuardRun, IterationErrorKind, RunnerError};
use runner_exec::{Ended, Ready, Spec};
use serde_json::json;

use super::child::{self, GRACE, NoListener, interrupted, millis};
use super::{Iteration, StepContext};
use crate::error::Result;
use crate::lock;
use crate::run_context::RunProgress;
use crate::state::ProjectState;
use crate::step::containment::{Containment, ContainmentInput};
use crate::step::environment;

/// How the guard's run went.
pub(super) struct GuardRunOutcome {
    pub(super) run: GuardRun,
    pub(super) error: Option<RunnerError>,
}

/// Asks the guard, within what is left of the time.
pub(super) fn run_guard(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    ready: Option<Ready>,
    state: &ProjectState,
    containment: &Containment,
    deadline: Instant,
) -> Result<GuardRunOutcome> {
    let command = &state.config.guard.command;
    let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
    let env = environment::for_guard(context.project, it, &state.config);
    let mut run = GuardRun {
        command: command.clone(),
        exit_code: None,
        duration_ms: 0,
        log_sha256: sha256_hex(b""),
    };
    let contained = containment.wrap(
        &argv,
        &ContainmentInput {
            project: context.project,
            git: context.git,
            config: &state.config,
            env: &env,
            iteration: None,
            agent_homes: &[],
            closed: &[],
        },
    )?;
    let spec = Spec {
        argv: contained.argv,
        cwd: context.project.root().to_owned(),
        env,
        stdin: None,
        merge_stderr: true,
        deadline: Some(deadline),
        idle_timeout: None,
        grace: GRACE,
        monitor: contained.monitor,
        hold_lock: Some(lock::session_lock(context.project)?),
    };
    it.log_event(
        context.run.clock,
        "guard_started",
        json!({"command": command}),
    );
    context.run.observer.progress(&RunProgress::Guard);
    let cap = state.config.guard_output_limit_bytes;
    let (report, log) = child::run(context, it, ready, &spec, "guard.log", cap, &mut NoListener)?;
    run.exit_code = match report.ended {
        Ended::Signaled(signal) => Some(128 + signal),
        Ended::Exited(code) => Some(code),
        _ => None,
    };
    run.duration_ms = millis(report.duration);
    it.journal.note(&JournalRecord::GuardEnded {
        exit_code: run.exit_code,
    })?;
    it.log_event(
        context.run.clock,
        "guard_ended",
        json!({"exit_code": run.exit_code}),
    );
    run.log_sha256 = sha256_hex(&log);
    let error = match &report.ended {
        Ended::Exited(_) | Ended::Signaled(_) => {
            containment.setup_failure(run.exit_code, &log).map(|words| {
                (
                    IterationErrorKind::GuardSpawn,
                    format!("the sandbox could not be set up: {words}"),
                )
            })
        }
        Ended::NotStarted(failure) => Some((
            IterationErrorKind::GuardSpawn,
            format!("the guard {}", failure.message),
        )),
        Ended::TimedOut => Some((
            IterationErrorKind::GuardTimeout,
            format!(
                "the guard did not end within the {} s that agent and guard have together",
                state.config.iteration_timeout_secs
            ),
        )),
        Ended::Interrupted => return Err(interrupted()),
        Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => Some((
            IterationErrorKind::Io,
            "the guard's supervisor was killed; everything it had started was ended".to_owned(),
        )),
    };
    Ok(GuardRunOutcome {
        run,
        error: error.map(|(kind, message)| RunnerError::new(kind, message)),
    })
}
