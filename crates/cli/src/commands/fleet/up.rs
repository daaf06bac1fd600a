//! `runner fleet up`: all roles in one process, told as they go on, until somebody says
//! stop or nothing is left to do.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use runner::{Error, ErrorCode, Result};
use runner_exec::{Cancel, HangUp};
use runner_fleet::backlog::FleetBacklog as _;
use runner_fleet::backlog::project::{BacklogState, ProjectBacklog};
use runner_fleet::roles::planner::PlanOutcome;
use runner_fleet::rules::plan::MAX_TRIES;
use runner_fleet::rules::preflight::{FailedSource, PreflightInputs, PreflightReport, preflight};
use runner_fleet::up::FleetNews;
use runner_fleet::workspaces::BaseUpdate;
use runner_ledger::{Ledger, LedgerError};
use serde_json::json;
use tokio::sync::watch;

use super::api::FleetApi;
use super::base::{self, BaseStart};
use super::context;
use super::context::{CommandContext, LedgerContext};
use super::reporter;
use super::reporter::FleetReporter;
use super::role_starter::RoleStarter;
use crate::commands::Exit;
use crate::commands::ledger::refuse;
use crate::fleet_args::UpArgs;
use crate::ledger_args::StoreArgs;
use crate::out::OutputGate;
use crate::style;

/// How often a terminal is drawn, and how soon an end is noticed that nobody told.
const TICK: Duration = Duration::from_millis(500);
/// How long after a hint somebody looks at every tick: roles act on what they heard.
const LIVELY: Duration = Duration::from_secs(3);
/// How long nobody looks if nothing was heard.
const QUIET: Duration = Duration::from_secs(300);
/// The same for somebody who waits for the end.
const WAITING: Duration = Duration::from_secs(15);

/// `runner fleet up`.
pub(crate) fn run(
    dir: &Path,
    store: &StoreArgs,
    options: &UpArgs,
    out: &mut OutputGate,
) -> Result<Exit> {
    let requirement = context::requirement(options.requirement.as_deref())?;
    let mut context = CommandContext::find(dir, store)?;
    context.serve_at(&options.api);
    context.on_red_base = base::rule(&options.red_base.on_red_base);
    let fleet = &mut context.config.fleet;
    for (given, setting) in [
        (options.workers, &mut fleet.workers),
        (options.testers, &mut fleet.testers),
        (options.docsers, &mut fleet.docsers),
        (options.judges, &mut fleet.judges),
    ] {
        *setting = given.unwrap_or(*setting);
    }
    let Some(only) = context.names.take("up")? else {
        return Err(Error::new(
            ErrorCode::Locked,
            "another `runner fleet up` is at work here",
        )
        .hint(
            "`runner fleet status` shows what it does; `runner fleet worker` adds a worker to it",
        ));
    };
    // Before anything is told: who reads it may send a signal at once.
    let signals = SignalCounter::listen()?;
    let ended = runtime()?.block_on(up(&context, requirement, options.until_idle, signals, out));
    drop(only);
    finish(ended, &context, out)
}

/// A runtime for roles: they wait, and what takes time is on threads of its own.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    built.map_err(|error| Error::new(ErrorCode::Io, format!("no runtime: {error}")))
}

/// Why a fleet did not come up, or not to its end.
pub(super) enum FleetUpError {
    Ledger(LedgerError),
    Said(Error),
}

impl<E: Into<LedgerError>> From<E> for FleetUpError {
    fn from(error: E) -> FleetUpError {
        FleetUpError::Ledger(error.into())
    }
}

pub(super) fn said(error: Error) -> FleetUpError {
    FleetUpError::Said(error)
}

/// An exit of what a fleet came to.
pub(super) fn finish(
    ended: std::result::Result<Exit, FleetUpError>,
    context: &CommandContext,
    out: &mut OutputGate,
) -> Result<Exit> {
    match ended {
        Ok(exit) => Ok(exit),
        Err(FleetUpError::Said(error)) => Err(error),
        Err(FleetUpError::Ledger(error)) => {
            refuse(&error, &context.store, out);
            Ok(Exit::Error)
        }
    }
}

/// Counts signals for those who await.
#[derive(Clone)]
pub(super) struct SignalCounter(watch::Receiver<u32>);

impl SignalCounter {
    /// Listens from now on, once per process.
    pub(super) fn listen() -> Result<SignalCounter> {
        let cancel = Cancel::on_signals(HangUp::Ends)?;
        let (sender, receiver) = watch::channel(0);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                // After the second nobody waits for more.
                let mut seen = 0;
                while seen < 2 {
                    seen = cancel.wait_above(seen);
                    if sender.send(seen).is_err() {
                        return;
                    }
                }
            })?;
        Ok(SignalCounter(receiver))
    }

    /// Returns once there were so many.
    pub(super) async fn reached(&mut self, count: u32) {
        if self.0.wait_for(|seen| *seen >= count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn up(
    context: &CommandContext,
    requirement: Option<String>,
    until_idle: bool,
    mut signals: SignalCounter,
    out: &mut OutputGate,
) -> std::result::Result<Exit, FleetUpError> {
    let ledger = context.open().await?;
    let mut roles = context.roles(ledger.clone(), requirement).map_err(said)?;
    let (seen, inputs) = roles.backlog.inputs().await?;
    let ready = preflight(inputs, context.settings());
    let nothing = ready.check();
    if let Err(nothing) = nothing {
        // An earlier life may have been cut off right after its last deed.
        roles.fleet.clear_up().await?;
        drop(roles.fleet.present().await);
        return Ok(refuse_to_start(context, &seen, &ready, &nothing.0, out));
    }
    context.check_programs(true, true).map_err(said)?;
    let base = base::try_first(context, &roles.fleet, &mut signals, out).await?;
    let ready = match &base {
        BaseStart::Interrupted => return Ok(Exit::Interrupted),
        BaseStart::Green => preflight(roles.backlog.inputs().await?.1, context.settings()),
        BaseStart::Red { .. } => {
            let (_, mut inputs) = roles.backlog.inputs().await?;
            inputs.red_base = true;
            preflight(inputs, context.settings())
        }
    };
    let api = FleetApi::start(context, &ledger, &roles).map_err(said)?;
    let mut reporter = FleetReporter::new(&ledger, &context.doing).await?;
    let mut starter = RoleStarter::begin(&mut roles.fleet, context, &ready.recommendations.counts)?;
    base.tell(context, out);
    say_what_begins(context, &ready, &starter, &api, &ledger, out).await?;
    let mut watch = Watching {
        roles: &mut roles,
        starter: &mut starter,
        reporter: &mut reporter,
        signals: &mut signals,
        complaints: Complaints::told(&ready),
        until_idle,
    };
    let ended = watch.run(out).await;
    out.clear_line();
    let stopped = matches!(ended, Ok(End::Signal));
    if stopped {
        out.say("stopping: sessions are ended, and what they held is given back");
    }
    let errors = tokio::select! {
        errors = roles.fleet.end() => errors,
        () = signals.reached(2) => {
            out.say("stopped at once: what was held is given back when its time is up");
            return Ok(Exit::Interrupted);
        }
    };
    api.end().await;
    reporter.tell(out).await?;
    out.clear_line();
    let exit = match ended? {
        End::Signal => {
            say_how_to_go_on(&ledger, out).await?;
            Exit::Interrupted
        }
        End::Idle => {
            roles.fleet.clear_up().await?;
            say_the_end(context, &roles, &ledger, out).await?
        }
        End::Role(words) => return Err(said(Error::new(ErrorCode::Io, words))),
    };
    ledger.close().await?;
    match errors.into_iter().next() {
        Some(error) if exit == Exit::Success => Err(error.into()),
        _ => Ok(exit),
    }
}

/// Why a fleet ends.
enum End {
    Signal,
    Idle,
    Role(String),
}

/// Who looks after a fleet that is up.
struct Watching<'u, 'g> {
    roles: &'u mut LedgerContext,
    starter: &'u mut RoleStarter<'g>,
    reporter: &'u mut FleetReporter,
    signals: &'u mut SignalCounter,
    complaints: Complaints,
    until_idle: bool,
}

/// What was said about sources that cannot be read.
struct Complaints(BTreeSet<String>);

impl Complaints {
    /// Those that preflight told of.
    fn told(ready: &PreflightReport) -> Complaints {
        let failed = ready.inputs.failed_sources.iter();
        Complaints(failed.map(|failed| failed.reason.clone()).collect())
    }

    /// Tells what is wrong with what was written since.
    async fn tell(
        &mut self,
        backlog: &ProjectBacklog,
        out: &mut OutputGate,
    ) -> std::result::Result<(), FleetUpError> {
        let now = backlog.look().await?.failures;
        for failed in &now {
            if self.0.contains(&failed.reason) {
                continue;
            }
            if out.json {
                out.object(json!({
                    "event": "source_failed", "source": failed.source, "reason": failed.reason,
                }));
            } else {
                let FailedSource { source, reason } = failed;
                warn(&format!("Backlog source {source} failed: {reason}"), out);
            }
        }
        self.0 = now.into_iter().map(|failed| failed.reason).collect();
        Ok(())
    }
}

impl Watching<'_, '_> {
    /// Tells what happens, and lets roles begin, until there is a reason to end.
    async fn run(&mut self, out: &mut OutputGate) -> std::result::Result<End, FleetUpError> {
        let fleet = &mut self.roles.fleet;
        let mut notifications = fleet.listen().await?;
        let mut outside = self.roles.backlog.changes();
        let quiet = if self.until_idle { WAITING } else { QUIET };
        let mut heard = Instant::now();
        let mut looked = None;
        loop {
            // Shortly after something happened, and seldom while nothing does.
            if looked.is_none_or(|at: Instant| heard.elapsed() < LIVELY || at.elapsed() > quiet) {
                self.reporter.tell(out).await?;
                self.starter.look(fleet, out).await?;
                if self.until_idle && fleet.is_idle().await? {
                    return Ok(End::Idle);
                }
                looked = Some(Instant::now());
            }
            self.reporter.draw(out);
            let awake = out.live || self.until_idle || heard.elapsed() < LIVELY;
            let tick = tokio::time::sleep(if awake { TICK } else { quiet });
            tokio::select! {
                biased;
                () = self.signals.reached(1) => return Ok(End::Signal),
                news = fleet.news() => match news {
                    FleetNews::RoleEnded(words) => return Ok(End::Role(words)),
                    FleetNews::Planner(planned) => {
                        say_planned(&planned, out);
                        heard = Instant::now();
                    }
                },
                () = notifications.next() => heard = Instant::now(),
                () = outside.next() => {
                    self.complaints.tell(&self.roles.backlog, out).await?;
                    heard = Instant::now();
                }
                () = tick => {}
            }
        }
    }
}

fn refuse_to_start(
    context: &CommandContext,
    seen: &BacklogState,
    ready: &PreflightReport,
    words: &str,
    out: &mut OutputGate,
) -> Exit {
    let words = if seen.planned {
        "there is nothing to do: the requirement was planned before, and every task has ended"
    } else {
        words
    };
    let hint = "for example: runner fleet up --requirement 'What shall be true in the end', or an \
                issue in .runner/fleet/issues/1-title.md";
    if out.json {
        out.object(json!({"error": {
            "code": "NOTHING_TO_DO", "message": words, "hint": hint, "warnings": ready.warnings,
        }}));
        return Exit::NothingToDo;
    }
    context.tell_guess(out);
    for warning in &ready.warnings {
        warn(warning, out);
    }
    out.problem(words, Some(hint));
    Exit::NothingToDo
}

pub(super) fn warn(words: &str, out: &mut OutputGate) {
    out.warning(words);
}

async fn say_what_begins(
    context: &CommandContext,
    ready: &PreflightReport,
    starter: &RoleStarter<'_>,
    api: &FleetApi,
    ledger: &Ledger,
    out: &mut OutputGate,
) -> std::result::Result<(), FleetUpError> {
    let paused = ledger.is_paused().await?;
    if out.json {
        out.object(json!({
            "event": "started", "base": context.base(), "store": context.store.to_string(),
            "api": api.url, "token_file": api.token_file, "preflight": ready, "paused": paused,
            "config_written": context.guessed.as_ref().map(|_| runner_core::paths::FLEET_CONFIG),
        }));
        return Ok(());
    }
    let (there, wait) = starter.told();
    let there = if there.is_empty() {
        "nobody works yet".to_owned()
    } else {
        there
    };
    let base = context.base();
    out.say(&format!(
        "fleet up: {there}; results are merged into {base}"
    ));
    if !wait.is_empty() {
        out.say(&format!("later, with their first work: {wait}"));
    }
    context.tell_guess(out);
    api.say(out);
    for warning in &ready.warnings {
        warn(warning, out);
    }
    if paused {
        warn(
            "the fleet is paused: nothing starts before `runner fleet resume`",
            out,
        );
    }
    if ready.recommendations.start_planner {
        out.say("planning: the requirement becomes tasks");
    }
    out.say("Ctrl-C stops it; the same command goes on later");
    Ok(())
}

/// Says what the planner came to, where the tasks do not say it themselves.
pub(super) fn say_planned(planned: &PlanOutcome, out: &mut OutputGate) {
    let (words, findings) = match planned {
        PlanOutcome::SentBack { attempt, findings } => {
            if out.json {
                out.object(json!({
                    "event": "plan_sent_back", "attempt": attempt, "findings": findings,
                }));
                return;
            }
            let words = format!(
                "plan {attempt} of {MAX_TRIES} cannot be used and is sent back to the planner:"
            );
            (words, findings)
        }
        PlanOutcome::Refused(findings) => {
            if out.json {
                out.object(json!({"event": "no_plan", "findings": findings}));
                return;
            }
            let words = "no plan could be used, and nobody asks again before something changes:";
            (words.to_owned(), findings)
        }
        PlanOutcome::BacklogFirst(why) => {
            if out.json {
                out.object(json!({"event": "plan_waits", "why": why}));
            } else {
                let why = style::one_line(why, 200);
                out.say(&format!("the planner waits: {why}"));
            }
            return;
        }
        PlanOutcome::NoRequirement | PlanOutcome::Before | PlanOutcome::Tasks(_) => return,
    };
    warn(&words, out);
    for finding in findings {
        out.say(&format!("  {}", style::one_line(finding, 200)));
    }
}

async fn say_how_to_go_on(
    ledger: &Ledger,
    out: &mut OutputGate,
) -> std::result::Result<(), FleetUpError> {
    let counts = reporter::counts(ledger).await?;
    if out.json {
        let counts: serde_json::Map<_, _> = counts
            .iter()
            .map(|(state, count)| (state.as_str().to_owned(), json!(count)))
            .collect();
        out.object(json!({"event": "finished", "status": "interrupted", "counts": counts}));
        return Ok(());
    }
    out.say(&format!(
        "stopped: {}; `runner fleet up` goes on, `runner fleet status` shows why each task is where it is",
        super::board::counted(&counts)
    ));
    Ok(())
}

async fn say_the_end(
    context: &CommandContext,
    roles: &LedgerContext,
    ledger: &Ledger,
    out: &mut OutputGate,
) -> std::result::Result<Exit, FleetUpError> {
    let told = reporter::everything_told(ledger).await?;
    let undone = reporter::undone(&told);
    let left_out = left_out(roles).await?;
    let done = undone.is_empty() && left_out.is_empty();
    let exit = if done { Exit::Success } else { Exit::Stuck };
    let presented = roles.fleet.present().await;
    let behind = match &presented {
        Ok(BaseUpdate::UpToDate) => None,
        Ok(BaseUpdate::Behind(why)) => Some(why.clone()),
        Err(error) => Some(error.0.clone()),
    };
    if out.json {
        let status = if done { "done" } else { "stuck" };
        out.object(json!({
            "event": "finished", "status": status, "tasks": reporter::values(&told),
            "base_behind": behind, "left_out": left_out,
        }));
        return Ok(exit);
    }
    reporter::print(&told, out);
    if let Some(why) = behind {
        warn(
            &format!(
                "{base} stays where it is: {why}; the results are in fleet/{base}, and {base} \
                 follows once that is out of the way",
                base = context.base()
            ),
            out,
        );
    }
    for words in &left_out {
        warn(&format!("no task was made of it: {words}"), out);
    }
    if !undone.is_empty() {
        out.say(&format!(
            "{} not done; `runner why TASK` tells more, `runner fleet retry TASK` tries a failed one again",
            style::counted(u32::try_from(undone.len()).unwrap_or(u32::MAX), "task"),
        ));
    }
    Ok(exit)
}

/// What somebody asked for and no task came of: issues that cannot be read, and a
/// requirement without a plan.
async fn left_out(roles: &LedgerContext) -> std::result::Result<Vec<String>, FleetUpError> {
    let seen = roles.backlog.look().await?;
    let mut words: Vec<String> = seen
        .failures
        .iter()
        .map(|failed| failed.reason.clone())
        .collect();
    if PreflightInputs::says_something(&seen.requirement) && !seen.planned {
        words.push("the requirement: there is no plan for it".to_owned());
    }
    Ok(words)
}
