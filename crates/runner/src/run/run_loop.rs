//! Iterations until the tree is complete, or until something ends them.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use runner_core::config::Config;
use runner_core::meta::{AfterError, IterationErrorKind, OutcomeClass, RunnerError};
use serde_json::{Value, json};

use crate::checkout::workspace::RunPlaces;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::current;
use crate::run::notify;
use crate::run::notify::RunNotice;
use crate::run::pauses::{self, quota_pause, retry_pause};
use crate::run::recover;
use crate::run_context::{RunContext, RunProgress};
use crate::state;
use crate::state::log::EventLog;
use crate::state::recorded_files;
use crate::state::validate;
use crate::state::validate::SelectResult;
use crate::step::containment::ContainmentChoice;
use crate::step::{self, StepContext, StepLeaf, StepReport, StepResult};

/// Bounds that the caller sets.
#[derive(Clone, Debug, Default)]
pub struct LoopOptions {
    /// At most so many iterations in this call.
    pub steps: Option<u32>,
    /// No iteration begins after so long.
    pub for_duration: Option<Duration>,
    /// No iteration begins after this moment.
    pub until: Option<Timestamp>,
    /// Wait for a quota to come back instead of ending.
    pub wait_quota: bool,
    /// End when a child used up too much, instead of trying again.
    pub ends_on_resources: bool,
}

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopStatus {
    /// Every leaf has passed.
    Complete,
    /// The next leaf has used up its attempts.
    Stuck,
    /// The run's iterations are used up.
    Limit,
    /// Something went wrong.
    Error,
    /// A bound of this call was reached, or somebody asked it to stop.
    Stopped,
    /// A signal.
    Interrupted,
}

impl LoopStatus {
    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            LoopStatus::Complete => "complete",
            LoopStatus::Stuck => "stuck",
            LoopStatus::Limit => "limit",
            LoopStatus::Error => "error",
            LoopStatus::Stopped => "stopped",
            LoopStatus::Interrupted => "interrupted",
        }
    }
}

/// The end of a loop.
#[derive(Clone, Debug)]
pub struct LoopOutcome {
    /// How it ended.
    pub status: LoopStatus,
    /// Iterations of this call.
    pub steps: u32,
    /// The leaf that is stuck.
    pub stuck: Option<StepLeaf>,
    /// What went wrong.
    pub error: Option<Error>,
    /// Why it stopped, in words.
    pub reason: Option<String>,
}

/// Runs iterations; `report` hears of each.
pub fn run_loop(
    project: &Project,
    context: &mut RunContext<'_>,
    options: &LoopOptions,
    report: &mut dyn FnMut(&StepReport),
) -> LoopOutcome {
    run_loop_in(project, RunPlaces::default(), context, options, report)
}

/// The same with the run's folders in places of the caller's.
pub(crate) fn run_loop_in(
    project: &Project,
    places: RunPlaces,
    context: &mut RunContext<'_>,
    options: &LoopOptions,
    report: &mut dyn FnMut(&StepReport),
) -> LoopOutcome {
    let mut end = LoopOutcome {
        status: LoopStatus::Error,
        steps: 0,
        stuck: None,
        error: None,
        reason: None,
    };
    match run(project, places, context, options, report, &mut end) {
        Ok(status) => end.status = status,
        Err(error) => {
            end.status = status_after(&error);
            end.error = Some(error);
        }
    }
    end
}

fn run(
    project: &Project,
    places: RunPlaces,
    context: &mut RunContext<'_>,
    options: &LoopOptions,
    report: &mut dyn FnMut(&StepReport),
    end: &mut LoopOutcome,
) -> Result<LoopStatus> {
    let git = Git::open(project.root())?;
    let _lock = ProjectLock::take(project)?;
    let here = current::here(&git)?;
    let run = here.as_deref();
    tell(
        project,
        context,
        run,
        "loop_started",
        json!({"pid": std::process::id()}),
    );
    // As it was when the loop began, in case that nobody can read it at the end.
    let config = config_of(project, &git, run).unwrap_or_default();
    let mut steps = LoopSteps {
        project,
        git: &git,
        run_id: run.unwrap_or_default(),
        containment: ContainmentChoice::default(),
        places,
    };
    let result = steps.iterate(context, options, report, end);
    let (status, error) = match &result {
        Ok(status) => (*status, end.error.as_ref()),
        Err(error) => (status_after(error), Some(error)),
    };
    let config = config_of(project, &git, run).unwrap_or(config);
    notify::loop_ended(project, context, &config.notify, status, error, end);
    let mut more = json!({"status": status.as_str(), "steps": end.steps});
    if let Some(leaf) = &end.stuck {
        more["node_id"] = json!(leaf.id);
    }
    if let Some(reason) = &end.reason {
        more["reason"] = json!(reason);
    }
    if let Some(error) = error {
        more["error"] = json!({"code": error.code.as_str(), "message": error.message});
    }
    tell(project, context, run, "finished", more);
    if let Some(run_id) = run {
        recorded_files::record_run(project, run_id, None);
    }
    result
}

/// The config of a run, as its last commit has it.
pub(super) fn config_of(project: &Project, git: &Git, run_id: Option<&str>) -> Option<Config> {
    let project = current::at_run(project, git, run_id?).ok()?;
    state::load_config(&project).ok()
}

/// Adds to the events of the run; viewers miss a line if that fails, nothing else.
pub(super) fn tell(
    project: &Project,
    context: &RunContext<'_>,
    run_id: Option<&str>,
    event: &str,
    more: Value,
) {
    let Some(run_id) = run_id else { return };
    let folder = project.run_folder(run_id);
    let _ = files::make_folder(&folder)
        .and_then(|()| EventLog::of(&folder).add(&context.clock.stamp(), None, event, more));
}

/// The steps of one loop.
pub(super) struct LoopSteps<'a> {
    pub(super) project: &'a Project,
    pub(super) git: &'a Git,
    pub(super) run_id: &'a str,
    containment: ContainmentChoice,
    places: RunPlaces,
}

impl LoopSteps<'_> {
    fn step_context<'c, 'h>(&'c self, context: &'c mut RunContext<'h>) -> StepContext<'c, 'h> {
        StepContext {
            project: self.project,
            git: self.git,
            run: context,
            containment: &self.containment,
            places: &self.places,
        }
    }

    /// The project as the run's last commit has it.
    fn at_run(&self) -> Result<Project> {
        current::at_run(self.project, self.git, self.run_id)
    }

    fn iterate(
        &mut self,
        context: &mut RunContext<'_>,
        options: &LoopOptions,
        report: &mut dyn FnMut(&StepReport),
        end: &mut LoopOutcome,
    ) -> Result<LoopStatus> {
        let project = self.project;
        let run = Some(self.run_id);
        let begun = Instant::now();
        let delays = pauses::retry_delays();
        let mut errors: u32 = 0;
        let mut quotas: u32 = 0;
        recover::recover(&mut self.step_context(context))?;
        // Only now: what was cut off may look like a change of the user's.
        current::checked_out(project, self.git)?;
        let at_start = config_of(project, self.git, run);
        if let Some(config) = &at_start
            && let Some(note) = self.containment.for_config(config)?.note(config)
        {
            context.observer.progress(&RunProgress::Note(&note));
        }
        loop {
            if context.cancel.is_cancelled() {
                return Ok(LoopStatus::Interrupted);
            }
            let asked = context
                .cancel
                .is_stop_asked()
                .then(|| "it was asked to stop (`runner stop`)".to_owned());
            if let Some(reason) = asked
                .or_else(|| bound_reached(options, end.steps, begun.elapsed(), context.clock.now()))
            {
                return Ok(stopped(&self.at_run()?, reason, end));
            }
            let is_late = |context: &RunContext<'_>| {
                let now = context.clock.now();
                bound_reached(options, end.steps, begun.elapsed(), now).is_some()
            };
            if let Some(config) = &at_start
                && !self.wait_for_room(context, config, &is_late, end)?
            {
                // Why is said where that is asked anyway.
                continue;
            }
            let step = match step::step(&mut self.step_context(context), self.run_id)? {
                StepResult::Complete => return Ok(LoopStatus::Complete),
                StepResult::Stuck(leaf) => {
                    end.stuck = Some(leaf);
                    return Ok(LoopStatus::Stuck);
                }
                StepResult::Recorded(step) => step,
            };
            end.steps += 1;
            report(&step);
            if step.class != OutcomeClass::RunnerError {
                (errors, quotas) = (0, 0);
                continue;
            }
            let Some(error) = &step.error else { continue };
            let whole = state::load(&self.at_run()?)?.config;
            let config = &whole.run_loop;
            let pause = match error.kind.after(config.on_timeout) {
                AfterError::Limit => {
                    end.error = Some(step_error(&step));
                    return Ok(LoopStatus::Limit);
                }
                AfterError::WaitForQuota if options.wait_quota || config.wait_quota => {
                    quotas += 1;
                    quota_pause(error, quotas, &delays, context.clock.now())
                }
                AfterError::Retry
                    if errors < config.max_consecutive_errors && !options.ends_on(error.kind) =>
                {
                    errors += 1;
                    retry_pause(error, errors, &delays, context.clock.now())
                }
                AfterError::Retry | AfterError::WaitForQuota | AfterError::End => {
                    end.error = Some(step_error(&step));
                    return Ok(LoopStatus::Error);
                }
            };
            // No use in waiting for a step that will not be taken.
            let later = context
                .clock
                .now()
                .saturating_add(pause)
                .unwrap_or(Timestamp::MAX);
            if bound_reached(options, end.steps, begun.elapsed() + pause, later).is_some() {
                end.reason =
                    Some("the next try would come after the bound that was asked for".to_owned());
                return Ok(LoopStatus::Stopped);
            }
            let since = Instant::now();
            let kind = error.kind.as_str();
            let until = format!("{later:.0}");
            tell(
                project,
                context,
                run,
                "waiting",
                json!({"until": until, "kind": kind, "why": error.message}),
            );
            context.observer.progress(&RunProgress::Waiting {
                secs: pause.as_secs(),
                why: &error.message,
            });
            // Once: while it lasts there is nothing new to tell.
            if error.kind == IterationErrorKind::Quota && quotas == 1 {
                let notice = RunNotice {
                    event: "quota",
                    status: "waiting",
                    steps: end.steps,
                    node: Some(&step.node_id),
                    message: &error.message,
                    code: Some(kind),
                    until: Some(&until),
                };
                notify::notify(project, context, &whole.notify, &notice);
            }
            context
                .cancel
                .wait_or_stop(pause.saturating_sub(since.elapsed()));
            tell(project, context, run, "resumed", json!({}));
        }
    }
}

/// A bound of this call is reached; but a tree that is complete or stuck by now
/// is the better answer.
fn stopped(project: &Project, reason: String, end: &mut LoopOutcome) -> LoopStatus {
    match validate::select_next(project) {
        Ok(SelectResult::Complete) => LoopStatus::Complete,
        Ok(SelectResult::Stuck(leaf)) => {
            end.stuck = Some(leaf);
            LoopStatus::Stuck
        }
        _ => {
            end.reason = Some(reason);
            LoopStatus::Stopped
        }
    }
}

/// What an error that ended the loop makes of it.
fn status_after(error: &Error) -> LoopStatus {
    match error.code {
        ErrorCode::Interrupted => LoopStatus::Interrupted,
        ErrorCode::Limit => LoopStatus::Limit,
        _ => LoopStatus::Error,
    }
}

/// Which bound of this call ends it before the next iteration.
fn bound_reached(
    options: &LoopOptions,
    steps: u32,
    elapsed: Duration,
    now: Timestamp,
) -> Option<String> {
    if options.steps.is_some_and(|max| steps >= max) {
        return Some(match steps {
            1 => "1 step was taken, as asked".to_owned(),
            _ => format!("{steps} steps were taken, as asked"),
        });
    }
    if options.for_duration.is_some_and(|max| elapsed >= max) {
        return Some("the time that was asked for is over".to_owned());
    }
    if options.until.is_some_and(|until| now >= until) {
        return Some("the hour that was asked for has come".to_owned());
    }
    None
}

/// A recorded runner error as the error that the command reports.
pub(crate) fn step_error(step: &StepReport) -> Error {
    let message = step.error.as_ref().map_or_else(
        || "the iteration was a runner error".to_owned(),
        |error| error.message.clone(),
    );
    let kind = step
        .error
        .as_ref()
        .map_or(IterationErrorKind::Io, |error| error.kind);
    let advice = step.error.as_ref().and_then(RunnerError::advice);
    let advice = advice.map_or_else(String::new, |advice| format!("{advice}; "));
    Error::new(ErrorCode::Step(kind), message).hint(format!(
        "{advice}it is recorded as iteration {} (`runner log {}`); no attempt was used, run the command again",
        step.iter, step.iter
    ))
}

impl StepReport {
    /// The runner error of this iteration as an error, if it was one.
    pub fn as_error(&self) -> Option<Error> {
        (self.class == OutcomeClass::RunnerError).then(|| step_error(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let second = Duration::from_secs(1);
        let t = |s| Timestamp::from_second(s).unwrap();
        let none = LoopOptions::default();
        assert!(bound_reached(&none, 1000, second * 100_000, t(1 << 33)).is_none());
        for (options, steps, elapsed, now, ends) in [
            (
                LoopOptions {
                    steps: Some(2),
                    ..none.clone()
                },
                1,
                0,
                0,
                false,
            ),
            (
                LoopOptions {
                    steps: Some(2),
                    ..none.clone()
                },
                2,
                0,
                0,
                true,
            ),
            (
                LoopOptions {
                    steps: Some(0),
                    ..none.clone()
                },
                0,
                0,
                0,
                true,
            ),
            (
                LoopOptions {
                    for_duration: Some(second * 5),
                    ..none.clone()
                },
                0,
                4,
                0,
                false,
            ),
            (
                LoopOptions {
                    for_duration: Some(second * 5),
                    ..none.clone()
                },
                0,
                5,
                0,
                true,
            ),
            (
                LoopOptions {
                    until: Some(t(10)),
                    ..none.clone()
                },
                0,
                0,
                9,
                false,
            ),
            (
                LoopOptions {
                    until: Some(t(10)),
                    ..none.clone()
                },
                0,
                0,
                10,
                true,
            ),
        ] {
            assert_eq!(
                bound_reached(&options, steps, second * elapsed, t(now)).is_some(),
                ends,
                "{options:?}"
            );
        }
    }
}
