//! `runner fleet up`: all roles in one process, told as they go on, until somebody says
//! stop or nothing is left to do.

use std::path::Path;
use std::time::{Duration, Instant};

use runner::{Code, Error, Result};
use runner_exec::{Cancel, HangUp};
use runner_fleet::names::Name;
use runner_fleet::outlook::Seen;
use runner_fleet::roles::planner::Planned;
use runner_fleet::rules::preflight::{Counts, Inputs, Preflight, preflight};
use runner_fleet::up::{Fleet, Post};
use runner_fleet::yard::Presented;
use runner_ledger::{Ledger, LedgerError};
use serde_json::json;
use tokio::sync::watch;

use super::api::{self, Api};
use super::ground::{self, Ground, Roles};
use super::teller::{self, Teller};
use crate::commands::Exit;
use crate::commands::ledger::refuse;
use crate::fleet_args::UpArgs;
use crate::ledger_args::StoreArgs;
use crate::out::Out;
use crate::style::{self, Tone};

/// How often a terminal is drawn, and how soon an end is noticed that nobody told.
const TICK: Duration = Duration::from_millis(500);
/// How long after a hint somebody looks at every tick: roles act on what they heard.
const LIVELY: Duration = Duration::from_secs(3);
/// How long nobody looks if nothing was heard.
const QUIET: Duration = Duration::from_secs(300);
/// The same for somebody who waits for the end.
const WAITING: Duration = Duration::from_secs(15);

/// `runner fleet up`.
pub(crate) fn run(dir: &Path, store: &StoreArgs, options: &UpArgs, out: &mut Out) -> Result<Exit> {
    let requirement = ground::requirement(options.requirement.as_deref())?;
    let mut ground = Ground::find(dir, store)?;
    let fleet = &mut ground.config.fleet;
    for (given, setting) in [
        (options.workers, &mut fleet.workers),
        (options.testers, &mut fleet.testers),
        (options.docsers, &mut fleet.docsers),
        (options.judges, &mut fleet.judges),
    ] {
        *setting = given.unwrap_or(*setting);
    }
    fleet.port = options.port.unwrap_or(fleet.port);
    let Some(only) = ground.names.take("up")? else {
        return Err(
            Error::new(Code::Locked, "another `runner fleet up` is at work here").hint(
                "`runner fleet status` shows what it does; `runner fleet worker` adds a worker to it",
            ),
        );
    };
    // Before anything is told: who reads it may send a signal at once.
    let signals = Signals::listen()?;
    let ended = runtime()?.block_on(up(&ground, requirement, options.until_idle, signals, out));
    drop(only);
    finish(ended, &ground, out)
}

/// A runtime for roles: they wait, and what takes time is on threads of its own.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    built.map_err(|error| Error::new(Code::Io, format!("no runtime: {error}")))
}

/// Why a fleet did not come up, or not to its end.
pub(super) enum Failed {
    Ledger(LedgerError),
    Said(Error),
}

impl<E: Into<LedgerError>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::Ledger(error.into())
    }
}

pub(super) fn said(error: Error) -> Failed {
    Failed::Said(error)
}

/// An exit of what a fleet came to.
pub(super) fn finish(
    ended: std::result::Result<Exit, Failed>,
    ground: &Ground,
    out: &mut Out,
) -> Result<Exit> {
    match ended {
        Ok(exit) => Ok(exit),
        Err(Failed::Said(error)) => Err(error),
        Err(Failed::Ledger(error)) => {
            refuse(&error, &ground.store, out);
            Ok(Exit::Error)
        }
    }
}

/// Counts signals for those who await.
#[derive(Clone)]
pub(super) struct Signals(watch::Receiver<u32>);

impl Signals {
    /// Listens from now on, once per process.
    pub(super) fn listen() -> Result<Signals> {
        let cancel = Cancel::on_signals(HangUp::Ends)?;
        let (sender, receiver) = watch::channel(0);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    cancel.wait(Duration::from_secs(3600));
                    if cancel.is_cancelled() && sender.send(cancel.level()).is_err() {
                        return;
                    }
                    if cancel.is_cancelled() {
                        // A raised token no longer sleeps: from here on somebody looks.
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            })?;
        Ok(Signals(receiver))
    }

    /// Returns once there were so many.
    pub(super) async fn reached(&mut self, count: u32) {
        if self.0.wait_for(|seen| *seen >= count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn up(
    ground: &Ground,
    requirement: Option<String>,
    until_idle: bool,
    mut signals: Signals,
    out: &mut Out,
) -> std::result::Result<Exit, Failed> {
    let ledger = ground.open().await?;
    let mut roles = ground.roles(ledger.clone(), requirement).map_err(said)?;
    let (seen, inputs) = roles.backlog.inputs().await?;
    let ready = preflight(inputs, ground.settings());
    let nothing = ready.check();
    if let Err(nothing) = nothing {
        // An earlier life may have been cut off right after its last deed.
        roles.fleet.clear_up().await?;
        drop(roles.fleet.present().await);
        return Ok(refuse_to_start(ground, &seen, &ready, &nothing.0, out));
    }
    ground.check_programs(true, true).map_err(said)?;
    let api = Api::start(ground, &ledger, &roles).map_err(said)?;
    let mut teller = Teller::new(&ledger, &ground.doing).await?;
    say_what_begins(ground, &ready, &api, &ledger, out).await?;
    staff(&mut roles.fleet, ground, counts(ground))?;
    let ended = run_until(&mut roles, &mut teller, until_idle, &mut signals, out).await;
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
    teller.tell(out).await?;
    out.clear_line();
    let exit = match ended? {
        End::Signal => {
            say_how_to_go_on(&ledger, out).await?;
            Exit::Interrupted
        }
        End::Idle => {
            roles.fleet.clear_up().await?;
            say_the_end(ground, &roles, &ledger, out).await?
        }
        End::Role(words) => return Err(said(Error::new(Code::Io, words))),
    };
    ledger.close().await?;
    match errors.into_iter().next() {
        Some(error) if exit == Exit::Success => Err(error.into()),
        _ => Ok(exit),
    }
}

/// Why a fleet ends.
pub(super) enum End {
    Signal,
    Idle,
    Role(String),
}

/// Tells what happens until there is a reason to end.
pub(super) async fn run_until(
    roles: &mut Roles,
    teller: &mut Teller,
    until_idle: bool,
    signals: &mut Signals,
    out: &mut Out,
) -> std::result::Result<End, Failed> {
    let mut hints = roles.fleet.listen().await?;
    let quiet = if until_idle { WAITING } else { QUIET };
    let mut planned = None;
    let mut heard = Instant::now();
    let mut looked = None;
    loop {
        // Shortly after something happened, and seldom while nothing does.
        if looked.is_none_or(|at: Instant| heard.elapsed() < LIVELY || at.elapsed() > quiet) {
            teller.tell(out).await?;
            if until_idle && roles.fleet.is_idle().await? {
                return Ok(End::Idle);
            }
            looked = Some(Instant::now());
        }
        teller.draw(out);
        let says = roles.fleet.planned();
        if says != planned {
            if let Some(Planned::Refused(findings)) = &says {
                say_no_plan(findings, out);
            }
            planned = says;
            heard = Instant::now();
        }
        let awake = out.live || until_idle || heard.elapsed() < LIVELY;
        let tick = tokio::time::sleep(if awake { TICK } else { quiet });
        tokio::select! {
            biased;
            () = signals.reached(1) => return Ok(End::Signal),
            words = roles.fleet.role_ended() => return Ok(End::Role(words)),
            () = hints.next() => heard = Instant::now(),
            () = tick => {}
        }
    }
}

/// How many of each role there are.
pub(super) fn counts(ground: &Ground) -> Counts {
    let config = ground.settings();
    Counts {
        planner: 1,
        dispatcher: 1,
        worker: config.workers,
        tester: config.testers,
        docser: config.docsers,
        judge: config.judges,
        cycle_manager: 1,
    }
}

/// Lets everybody begin; whoever has nothing to do waits and costs nothing.
pub(super) fn staff(
    fleet: &mut Fleet,
    ground: &Ground,
    counts: Counts,
) -> std::result::Result<(), Failed> {
    for (post, count) in [
        (Post::Keeper, 1),
        (Post::Dispatcher, counts.dispatcher),
        (Post::Cycle, counts.cycle_manager),
        (Post::Planner, counts.planner),
        (Post::Worker, counts.worker),
        (Post::Tester, counts.tester),
        (Post::Docser, counts.docser),
        (Post::Judge, counts.judge),
    ] {
        for _ in 0..count {
            let name = name(ground, post).map_err(said)?;
            fleet.begin(post, name);
        }
    }
    Ok(())
}

fn name(ground: &Ground, post: Post) -> Result<Name> {
    Ok(ground.names.next(post.word())?)
}

fn refuse_to_start(
    ground: &Ground,
    seen: &Seen,
    ready: &Preflight,
    words: &str,
    out: &mut Out,
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
    ground.tell_guess(out);
    for warning in &ready.warnings {
        warn(warning, out);
    }
    out.problem(words, Some(hint));
    Exit::NothingToDo
}

fn warn(words: &str, out: &mut Out) {
    let label = out.paint_err.paint(Tone::Busy, "warning:");
    out.say(&format!("{label} {}", style::harmless(words)));
}

async fn say_what_begins(
    ground: &Ground,
    ready: &Preflight,
    api: &Api,
    ledger: &Ledger,
    out: &mut Out,
) -> std::result::Result<(), Failed> {
    let config = ground.settings();
    let paused = ledger.is_paused().await?;
    if out.json {
        out.object(json!({
            "event": "started", "base": ground.base(), "store": ground.store.to_string(),
            "api": api.url, "token_file": api.token_file, "preflight": ready, "paused": paused,
            "config_written": ground.guessed.as_ref().map(|_| runner_core::paths::FLEET_CONFIG),
        }));
        return Ok(());
    }
    out.say(&format!(
        "fleet up: {}, {}, {}, {}; results are merged into {}",
        style::counted(config.workers, "worker"),
        style::counted(config.testers, "tester"),
        style::counted(config.docsers, "docser"),
        style::counted(config.judges, "judge"),
        ground.base(),
    ));
    ground.tell_guess(out);
    out.say(&format!("API: {} (token in {})", api.url, api::TOKEN_SHOWN));
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

fn say_no_plan(findings: &[String], out: &mut Out) {
    if out.json {
        out.object(json!({"event": "no_plan", "findings": findings}));
        return;
    }
    warn(
        "no plan could be used, and nobody asks again before something changes:",
        out,
    );
    for finding in findings {
        out.say(&format!("  {}", style::one_line(finding, 200)));
    }
}

async fn say_how_to_go_on(ledger: &Ledger, out: &mut Out) -> std::result::Result<(), Failed> {
    let counts = teller::counts(ledger).await?;
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
    ground: &Ground,
    roles: &Roles,
    ledger: &Ledger,
    out: &mut Out,
) -> std::result::Result<Exit, Failed> {
    let told = teller::everything_told(ledger).await?;
    let undone = teller::undone(&told);
    let left_out = left_out(roles).await?;
    let done = undone.is_empty() && left_out.is_empty();
    let exit = if done { Exit::Success } else { Exit::Stuck };
    let presented = roles.fleet.present().await;
    let behind = match &presented {
        Ok(Presented::UpToDate) => None,
        Ok(Presented::Behind(why)) => Some(why.clone()),
        Err(trouble) => Some(trouble.0.clone()),
    };
    if out.json {
        let status = if done { "done" } else { "stuck" };
        out.object(json!({
            "event": "finished", "status": status, "tasks": teller::values(&told),
            "base_behind": behind, "left_out": left_out,
        }));
        return Ok(exit);
    }
    teller::print(&told, out);
    if let Some(why) = behind {
        warn(
            &format!(
                "{base} stays where it is: {why}; the results are in fleet/{base}, and {base} \
                 follows once that is out of the way",
                base = ground.base()
            ),
            out,
        );
    }
    for words in &left_out {
        warn(&format!("no task was made of it: {words}"), out);
    }
    if !undone.is_empty() {
        out.say(&format!(
            "{} not done; `runner why TASK` tells more, `runner fleet retry TASK` tries again",
            style::counted(u32::try_from(undone.len()).unwrap_or(u32::MAX), "task"),
        ));
    }
    Ok(exit)
}

/// What somebody asked for and no task came of: issues that cannot be read, and a
/// requirement without a plan.
async fn left_out(roles: &Roles) -> std::result::Result<Vec<String>, Failed> {
    let seen = roles.backlog.look().await?;
    let mut words: Vec<String> = seen
        .failures
        .iter()
        .map(|failed| failed.reason.clone())
        .collect();
    if Inputs::says_something(&seen.requirement) && !seen.planned {
        words.push("the requirement: there is no plan for it".to_owned());
    }
    Ok(words)
}
