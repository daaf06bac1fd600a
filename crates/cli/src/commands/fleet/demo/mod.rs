//! `runner fleet demo`: a requirement becomes a plan, four worker processes do it, and all
//! that usually goes wrong goes wrong. Only the agent is scripted; the fleet is the real one.

pub(crate) mod agent;
mod check;
mod script;
mod workers;

use std::path::Path;
use std::time::{Duration, Instant};

use runner::fleet_repo::FleetRepo;
use runner::{Error, ErrorCode, Result};
use runner_core::paths;
use runner_fleet::rules::preflight::RoleCounts;
use runner_ledger::{Ledger, StoreNotifications};
use runner_lifecycle::run::Lease;
use runner_lifecycle::{LeasePurpose, Task};
use serde_json::json;

use super::context::{CommandContext, LedgerContext};
use super::reporter;
use super::reporter::{FleetReporter, TaskNews};
use super::role_starter::RoleStarter;
use super::up::{FleetUpError, SignalCounter, finish, runtime, said};
use crate::commands::Exit;
use crate::demo::make_folder;
use crate::ledger_args::StoreArgs;
use crate::out::OutputGate;
use crate::style::{self, TextTone};
use workers::WorkerProcess;

const WORKERS: u32 = 4;
/// How long a failed task waits: this is a demo, nobody wants to.
const COOLDOWN_SECS: u64 = 1;
/// When something is wrong with the demo itself.
const LIMIT: Duration = Duration::from_secs(300);
/// How often a look is due without a hint.
const TICK: Duration = Duration::from_millis(300);

/// Plays it all and says where to look.
pub(super) fn run(dir: Option<&Path>, out: &mut OutputGate) -> Result<Exit> {
    let folder = make_folder(dir)?;
    let folder = folder.canonicalize()?;
    prepare(&folder)?;
    let mut context = CommandContext::find(&folder, &StoreArgs { store: None })?;
    context.cooldown_secs = Some(COOLDOWN_SECS);
    if out.json {
        out.object(json!({"event": "started", "folder": folder}));
    } else {
        out.say(&format!(
            "A whole fleet in {}, with a scripted agent: no model, no network.",
            folder.display()
        ));
        out.say("Plans, runs and results fail, a quota is used up, a worker is killed, somebody else commits.");
        out.say("");
    }
    let signals = SignalCounter::listen()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(play(&context, signals, out));
    finish(ended, &context, out)
}

/// A repository with a guard, and a config that only the fleet sees.
fn prepare(folder: &Path) -> Result<()> {
    runner::Git::init(folder)?;
    std::fs::write(folder.join("ci.sh"), script::GUARD)?;
    by_user(folder, &["add", "ci.sh"])?;
    by_user(
        folder,
        &["commit", "-q", "-m", "A guard that runs every test"],
    )?;
    // Opening it makes the fleet's folder, which ignores itself.
    FleetRepo::open(folder, None)?;
    let me = json!(std::env::current_exe()?.display().to_string());
    let config = format!(
        "max_attempts_default = 2\n\n[guard]\ncommand = [\"sh\", \"ci.sh\"]\nprotected = [\"ci.sh\"]\n\n\
         [executor]\nbackend = \"command\"\ncommand = [{me}, \"__fleet-demo-agent\"]\n\n\
         [fleet]\nworkers = {WORKERS}\njudges = 2\nreview = true\ntimeout_seconds = 30\n\
         heartbeat_interval_seconds = 5\ndependency_grace_hours = 0\n"
    );
    std::fs::write(folder.join(paths::FLEET_CONFIG), config)?;
    let requirement = folder.join(paths::FLEET_DIR).join("requirement.md");
    Ok(std::fs::write(requirement, script::REQUIREMENT)?)
}

/// Git, as somebody who works here, too: while the fleet moves the checkout, it is said again.
fn by_user(folder: &Path, words: &[&str]) -> Result<String> {
    let mut all = vec!["-c", "user.name=A user", "-c", "user.email=user@localhost"];
    all.extend([
        "-c",
        "commit.gpgsign=false",
        "-c",
        "core.hooksPath=/dev/null",
    ]);
    all.extend(words);
    let until = Instant::now() + check::PATIENCE;
    loop {
        match check::git(folder, &all) {
            Err(error) if is_at_work(&error.to_string()) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Whether another git was at work on the same.
fn is_at_work(said: &str) -> bool {
    said.contains(".lock': File exists") || said.contains("cannot lock ref")
}

/// What the demo does besides letting the fleet work.
#[derive(Default)]
struct Mishaps {
    killed: bool,
    committed: bool,
}

async fn play(
    context: &CommandContext,
    mut signals: SignalCounter,
    out: &mut OutputGate,
) -> std::result::Result<Exit, FleetUpError> {
    let begun = Instant::now();
    let ledger = context.open().await?;
    let mut roles = context.roles(ledger.clone(), None).map_err(said)?;
    let mut reporter = FleetReporter::new(&ledger, &context.doing).await?;
    // Workers are processes of their own here, so that one can be killed.
    let counts = RoleCounts {
        worker: 0,
        ..RoleCounts::from(context.settings())
    };
    RoleStarter::begin(&mut roles.fleet, context, &counts)?;
    let mut workers = Vec::new();
    for number in 1..=WORKERS {
        workers.push(hire(context, &format!("worker-{number}"))?);
    }
    let mut notifications = roles.fleet.listen().await?;
    let mut mishaps = Mishaps::default();
    let ended = loop {
        reporter.tell(out).await?;
        mishaps.come(context, &ledger, &mut workers, out).await?;
        if roles.fleet.is_idle().await? {
            break Ok(true);
        }
        if begun.elapsed() > LIMIT {
            break Err(Error::new(ErrorCode::Io, "the demo did not come to an end"));
        }
        match wait(&mut roles, &mut notifications, &mut signals).await {
            Waited::On => {}
            Waited::Signal => break Ok(false),
            Waited::Broken(words) => break Err(Error::new(ErrorCode::Io, words)),
        }
    };
    out.clear_line();
    for hand in &workers {
        hand.stop();
    }
    // They write to the ledger once more, while this waits.
    let gone =
        tokio::task::spawn_blocking(move || workers.into_iter().for_each(WorkerProcess::join));
    let errors = roles.fleet.end().await;
    let _ = gone.await;
    reporter.tell(out).await?;
    out.clear_line();
    if !ended.map_err(said)? {
        return Ok(Exit::Interrupted);
    }
    if let Some(error) = errors.into_iter().next() {
        return Err(error.into());
    }
    roles.fleet.clear_up().await?;
    let behind = roles.fleet.present().await;
    let told = reporter::everything_told(&ledger).await?;
    let mut wrong = check::ledger(&ledger).await?;
    ledger.close().await?;
    let tasks: Vec<&Task> = told.iter().map(|one| &one.task).collect();
    let merged = check::merges(&context.root, context.base()).map_err(said)?;
    wrong.extend(check::wrong_merges(&tasks, &merged));
    wrong.extend(check::leftovers(&context.root));
    wrong.extend(unexpected(&told));
    if let Err(error) = behind {
        wrong.push(error.0);
    }
    Ok(tell(context, &told, &wrong, begun.elapsed(), out))
}

fn hire(context: &CommandContext, name: &str) -> std::result::Result<WorkerProcess, FleetUpError> {
    WorkerProcess::start(&context.root, name, COOLDOWN_SECS).map_err(said)
}

/// Why a wait ended.
enum Waited {
    On,
    Signal,
    Broken(String),
}

async fn wait(
    roles: &mut LedgerContext,
    notifications: &mut StoreNotifications,
    signals: &mut SignalCounter,
) -> Waited {
    tokio::select! {
        biased;
        () = signals.reached(1) => Waited::Signal,
        words = roles.fleet.role_ended() => Waited::Broken(words),
        () = notifications.next() => Waited::On,
        () = tokio::time::sleep(TICK) => Waited::On,
    }
}

impl Mishaps {
    /// Lets happen what the fleet cannot foresee, once its time has come.
    async fn come(
        &mut self,
        context: &CommandContext,
        ledger: &Ledger,
        workers: &mut Vec<WorkerProcess>,
        out: &mut OutputGate,
    ) -> std::result::Result<(), FleetUpError> {
        if self.killed && self.committed {
            return Ok(());
        }
        let repo = FleetRepo::reopen(&context.root, context.base()).map_err(said)?;
        for lease in ledger.leases().await? {
            if !self.killed && is_first(&lease, script::KILLED) {
                self.killed = kill(context, &lease, workers, out)?;
            }
            if !self.committed
                && is_first(&lease, script::CONFLICT)
                && repo.has_begun(&lease.run_id)
            {
                self.committed = true;
                commit(context, out)?;
            }
        }
        Ok(())
    }
}

/// Whether work on that task of the plan has begun for the first time.
fn is_first(lease: &Lease, name: &str) -> bool {
    lease.purpose == LeasePurpose::Work
        && lease.last_heartbeat_at != lease.claimed_at
        && script::parts(&lease.run_id) == Some((name, 1, 1))
}

/// `kill -9` of whoever works there, and another one under its name.
fn kill(
    context: &CommandContext,
    lease: &Lease,
    workers: &mut Vec<WorkerProcess>,
    out: &mut OutputGate,
) -> std::result::Result<bool, FleetUpError> {
    let Some(at) = workers.iter().position(|hand| hand.name == lease.owner) else {
        return Ok(false);
    };
    if !workers[at].kill() {
        return Ok(false);
    }
    happened(
        "killed",
        &format!(
            "{} is killed (kill -9) while it works on {}; another one starts",
            lease.owner, lease.task_id
        ),
        out,
    );
    let dead = workers.swap_remove(at);
    let name = dead.name.clone();
    dead.join();
    workers.push(hire(context, &name)?);
    Ok(true)
}

/// Somebody commits to a file that a worker writes at the same time.
fn commit(context: &CommandContext, out: &mut OutputGate) -> std::result::Result<(), FleetUpError> {
    let tools = context.root.join("tools");
    let written = std::fs::create_dir_all(&tools)
        .and_then(|()| std::fs::write(tools.join("sort.sh"), script::BY_HAND));
    written.map_err(|error| said(error.into()))?;
    let words = ["commit", "-q", "-m", "Sort, by hand", "--", "tools/sort.sh"];
    by_user(&context.root, &["add", "tools/sort.sh"]).map_err(said)?;
    by_user(&context.root, &words).map_err(said)?;
    // The session that writes to the same file sees the project's objects, and waits for this one.
    let sign = script::SIGN_FILE;
    std::fs::write(context.root.join(sign), script::SIGN).map_err(|error| said(error.into()))?;
    by_user(&context.root, &["hash-object", "-w", sign]).map_err(said)?;
    std::fs::remove_file(context.root.join(sign)).map_err(|error| said(error.into()))?;
    happened(
        "committed",
        "the user commits tools/sort.sh to the base by hand",
        out,
    );
    Ok(())
}

fn happened(event: &str, words: &str, out: &mut OutputGate) {
    if out.json {
        out.object(json!({"event": event, "words": words}));
    } else {
        let mark = out.paint_err.paint(TextTone::Strong, "!");
        out.say(&format!("{mark} {words}"));
    }
}

/// What ended otherwise than a demo should.
fn unexpected(told: &[TaskNews]) -> Vec<String> {
    let plain = |one: &TaskNews| one.task.rework_of.is_none();
    let mut wrong = Vec::new();
    for one in told.iter().filter(|one| plain(one)) {
        let name = one
            .task
            .id
            .as_str()
            .split_once('-')
            .map_or("", |(_, name)| name);
        if one.good == script::UNDONE.contains(&name) {
            wrong.push(format!(
                "{} is {}: {}",
                one.task.id, one.task.state, one.words
            ));
        }
    }
    wrong
}

fn tell(
    context: &CommandContext,
    told: &[TaskNews],
    wrong: &[String],
    took: Duration,
    out: &mut OutputGate,
) -> Exit {
    let exit = if wrong.is_empty() {
        Exit::Success
    } else {
        Exit::Error
    };
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if out.json {
        let status = if wrong.is_empty() { "clean" } else { "broken" };
        out.object(json!({
            "event": "finished", "status": status, "folder": context.root, "base": context.base(),
            "duration_ms": millis, "tasks": reporter::values(told), "findings": wrong,
        }));
        return exit;
    }
    out.say("");
    out.say(&format!(
        "What happened to each task, in {}:",
        style::duration(millis)
    ));
    reporter::print(told, out);
    out.say("");
    for finding in wrong {
        out.problem(finding, None);
    }
    if wrong.is_empty() {
        let word = out.paint_err.paint(TextTone::Good, "clean");
        out.say(&format!(
            "{word}: every task that is done is in {} exactly once, nothing else is, and nothing is left behind.",
            context.base()
        ));
    }
    say_where_to_look(&context.root, told, out);
    exit
}

fn say_where_to_look(folder: &Path, told: &[TaskNews], out: &mut OutputGate) {
    let runner = format!("runner -C {}", folder.display());
    let dead = told
        .iter()
        .find(|one| !one.good)
        .map(|one| one.task.id.to_string());
    out.say("");
    out.say("Look at it:");
    out.say(&format!(
        "  {runner} fleet status --all     every task, with why"
    ));
    if let Some(id) = dead {
        out.say(&format!("  {runner} why {id}    the chain behind one"));
        out.say(&format!(
            "  {runner} task show {id}    all that happened to it"
        ));
    }
    out.say(&format!(
        "  git -C {} log --stat          what was merged",
        folder.display()
    ));
    out.say("");
    out.say("With your own project and agent (codex, claude or opencode on PATH), in its folder:");
    out.say("  runner fleet up --requirement 'What shall be true in the end'");
    out.say("  or write issues to .runner/fleet/issues/1-title.md, and then: runner fleet up");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_git_is_known_by_what_git_says() {
        let cases = [
            (
                "fatal: Unable to create '/p/.git/index.lock': File exists.",
                true,
            ),
            (
                "fatal: cannot lock ref 'HEAD': is at 12 but expected 34",
                true,
            ),
            ("error: pathspec 'x' did not match any file(s)", false),
            (
                "fatal: Unable to create '/p/.git/index.lock': Permission denied",
                false,
            ),
        ];
        for (said, expected) in cases {
            assert_eq!(is_at_work(said), expected, "{said}");
        }
    }
}
