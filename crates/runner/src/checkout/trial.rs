//! The guard run at a commit, in a clean checkout: nothing of the user's is touched and
//! nothing is recorded.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use runner_core::config::{ChildKind, Config};
use runner_core::evidence::TestEvidence;
use runner_core::meta::IterationErrorKind;
use runner_core::paths::FolderGlobs;
use runner_exec::{Ended, Spec};

use crate::base_trial::guard_file;
use crate::checkout::caches::ProjectCaches;
use crate::checkout::junit_reports::JunitReports;
use crate::checkout::made_files::changed_by_guard;
use crate::checkout::missing_variable::looks_secret;
use crate::checkout::{Checkout, CleanCheckout, setup_code, setup_parts};
use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::limits::{LimitWatch, task_limit};
use crate::run_context::{RunContext, RunProgress};
use crate::step::captured_child::{self, CaptureOptions, CapturedOutput};
use crate::step::containment::{Containment, ContainmentInput};
use crate::step::environment;
use crate::step::masked_sink::passed_values;
use crate::step::millis;
use crate::step::network;

/// What a guard without the file that defines it comes to: what make says where it finds no rule.
const UNDEFINED: i32 = 2;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// How a guard's run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrialEnd {
    /// With this code (128 and more: by a signal).
    Exited(i32),
    /// It was ended, because its time was up.
    TimedOut,
    /// It did not run; a lowercase fragment says why.
    NotStarted(String),
}

/// What trying the guard showed.
#[derive(Clone, Debug)]
pub(crate) struct GuardTrial {
    pub(crate) end: TrialEnd,
    pub(crate) duration_ms: u64,
    /// What it printed, capped.
    pub(crate) log: Vec<u8>,
    /// What it said about tests.
    pub(crate) tests: TestEvidence,
    /// It was ended because it used up too much.
    pub(crate) is_over_limit: bool,
    /// Files of the commit that it changed.
    pub(crate) changed: Vec<String>,
}

/// A command to run in a checkout.
struct CheckoutCommand<'a> {
    kind: ChildKind,
    argv: &'a [String],
    env: Vec<(OsString, OsString)>,
    limit: Duration,
}

/// A guard to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardCommand<'a> {
    pub(crate) argv: &'a [String],
    /// Variables beside those that every guard has; these win.
    pub(crate) more_env: &'a [(OsString, OsString)],
}

/// Runs a guard in a clean checkout, contained or not, after the setup of the checkout.
pub(crate) fn run(
    checkout: &CleanCheckout,
    command: &[String],
    config: &Config,
    containment: Option<&Containment>,
    limit: Duration,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    let guard = GuardCommand {
        argv: command,
        more_env: &[],
    };
    run_with(checkout, guard, config, containment, limit, context)
}

/// The same with variables of the caller's.
pub(crate) fn run_with(
    checkout: &CleanCheckout,
    guard: GuardCommand<'_>,
    config: &Config,
    containment: Option<&Containment>,
    limit: Duration,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    if let Some(failed) = make_ready(checkout, config, containment, context)? {
        return Ok(failed);
    }
    let mut env = environment::for_checkout(seen(&checkout.checkout, containment), config);
    env.retain(|(name, _)| !guard.more_env.iter().any(|(other, _)| other == name));
    env.extend_from_slice(guard.more_env);
    let guard = CheckoutCommand {
        kind: ChildKind::Guard,
        argv: guard.argv,
        env,
        limit,
    };
    let seen = seen(&checkout.checkout, containment);
    let reports = JunitReports::begin(&checkout.checkout, seen, config)?;
    let undefined = guard_file::undefined(guard.argv, checkout.path());
    let mut trial = run_command(&checkout.checkout, guard, config, containment, context)?;
    reports.add_to(&mut trial.tests)?;
    if let TrialEnd::Exited(_) = trial.end {
        trial.changed = changed_by_guard(&checkout.checkout, config)?;
    }
    if let (TrialEnd::Exited(0), Some(why)) = (&trial.end, undefined) {
        trial.end = TrialEnd::Exited(UNDEFINED);
        trial
            .log
            .extend_from_slice(format!("\nrunner: {why}\n").as_bytes());
    }
    Ok(trial)
}

/// Runs the setup of a clean checkout, once. What is returned is why the guard cannot run.
pub(crate) fn make_ready(
    checkout: &CleanCheckout,
    config: &Config,
    containment: Option<&Containment>,
    context: &mut RunContext<'_>,
) -> Result<Option<GuardTrial>> {
    if checkout.is_set_up() {
        return Ok(None);
    }
    checkout.prepare(config, containment.is_some_and(Containment::has_mounts))?;
    let user = checkout.user();
    if let SetupEnd::Failed(failed) =
        set_up(&checkout.checkout, user, config, containment, context)?
    {
        return Ok(Some(failed));
    }
    if let Some(why) = changed_by_setup(&checkout.checkout, config)? {
        return Ok(Some(not_started(why)));
    }
    checkout.note_setup();
    Ok(None)
}

/// How setup went.
pub(crate) enum SetupEnd {
    /// It worked, and printed this; or there was nothing to do.
    Done(Vec<u8>),
    /// The guard cannot run.
    Failed(GuardTrial),
}

/// Makes what a checkout lacks, as the config says: in two parts where it has a token and its tool
/// can. `user`: the project, whose branches say what people wrote.
pub(crate) fn set_up(
    checkout: &Checkout,
    user: &Git,
    config: &Config,
    containment: Option<&Containment>,
    context: &mut RunContext<'_>,
) -> Result<SetupEnd> {
    let setup = &config.workspace.setup;
    ProjectCaches::begin_setup(checkout.path())?;
    if setup.is_empty() {
        return Ok(SetupEnd::Done(Vec::new()));
    }
    let tokens = setup_parts::tokens(config, looks_secret);
    let parts = (!tokens.is_empty()).then(|| setup_parts::parts(setup));
    if let Some(Some(_)) = &parts
        && let Some(path) = setup_code::of_a_session(user, checkout.path(), setup)?
    {
        let words = format!(
            "setup `{}` has {}, and {path}, which can name code that it runs, is not as on any of your branches: \
             take the change back, or let a person commit it to a branch",
            setup.join(" "),
            some_of(&tokens)
        );
        return Ok(SetupEnd::Failed(GuardTrial {
            log: format!("runner: {words}\n").into_bytes(),
            ..not_started(format!("cannot run: {words}"))
        }));
    }
    let (first, second) = match parts.flatten() {
        Some(parts) => (parts.fetch, parts.build),
        None => (setup.clone(), None),
    };
    let fetched = run_setup(checkout, &first, config, containment, context)?;
    let (mut log, build) = match (fetched, second) {
        (SetupEnd::Done(log), Some(build)) => (log, build),
        (fetched, _) => return Ok(fetched),
    };
    let config = setup_parts::without_tokens(config, &tokens);
    let without_network = match containment {
        Some(_) => Some(Containment::choose(&config)?),
        None => None,
    };
    let built = run_setup(checkout, &build, &config, without_network.as_ref(), context)?;
    Ok(match built {
        SetupEnd::Done(rest) => {
            log.extend_from_slice(&rest);
            SetupEnd::Done(log)
        }
        SetupEnd::Failed(mut failed) => {
            let about = "\nrunner: this part of setup has neither the token nor a network\n";
            failed.log.extend_from_slice(about.as_bytes());
            SetupEnd::Failed(failed)
        }
    })
}

fn run_setup(
    checkout: &Checkout,
    argv: &[String],
    config: &Config,
    containment: Option<&Containment>,
    context: &mut RunContext<'_>,
) -> Result<SetupEnd> {
    let setup = CheckoutCommand {
        kind: ChildKind::Setup,
        argv,
        env: environment::for_setup(seen(checkout, containment), config),
        limit: Duration::from_secs(config.workspace.setup_timeout_secs),
    };
    let ran = run_command(checkout, setup, config, containment, context)?;
    let why = match &ran.end {
        TrialEnd::Exited(0) => return Ok(SetupEnd::Done(ran.log)),
        TrialEnd::Exited(code) => format!("gave exit {code}"),
        TrialEnd::TimedOut => format!(
            "did not end within {} s",
            config.workspace.setup_timeout_secs
        ),
        TrialEnd::NotStarted(why) => why.clone(),
    };
    let shown = match argv {
        [shell, option, script] if shell == "sh" && option == "-c" => script.clone(),
        words => words.join(" "),
    };
    Ok(SetupEnd::Failed(GuardTrial {
        end: TrialEnd::NotStarted(format!("cannot run: setup `{shown}` {why}")),
        ..ran
    }))
}

/// Where a child sees a checkout.
fn seen<'a>(checkout: &'a Checkout, containment: Option<&Containment>) -> &'a Path {
    containment.map_or(checkout.path(), |it| it.seen(checkout))
}

/// What setup did to the commit itself: then the guard would judge something else.
pub(crate) fn changed_by_setup(checkout: &Checkout, config: &Config) -> Result<Option<String>> {
    if config.workspace.setup.is_empty() {
        return Ok(None);
    }
    let names = checkout.tree.changed_files()?;
    Ok((!names.is_empty()).then(|| {
        let names = some_of(&names);
        format!("cannot run: setup changed files of the commit: {names}")
    }))
}

fn run_command(
    checkout: &Checkout,
    command: CheckoutCommand<'_>,
    config: &Config,
    containment: Option<&Containment>,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    let folder = checkout.project.root();
    let argv: Vec<OsString> = command.argv.iter().map(OsString::from).collect();
    let env = command.env;
    if let Some(error) = environment::cannot_start(&argv, folder, &env) {
        return Ok(not_started(error));
    }
    let input = ContainmentInput {
        kind: command.kind,
        checkout,
        config,
        env: &env,
        report: None,
        agent_homes: &[],
    };
    let mut contained = containment
        .unwrap_or(&Containment::NONE)
        .wrap(&argv, &input)?;
    let spec = Spec {
        argv: contained.argv,
        cwd: folder.to_owned(),
        env: contained.env,
        stdin: None,
        merge_stderr: true,
        deadline: Some(Instant::now() + command.limit),
        idle_timeout: None,
        grace: GRACE,
        monitor: contained.monitor,
        hold_lock: Some(checkout.session_lock.clone()),
        task_limit: task_limit(config),
        cannot_start: contained.cannot_start,
    };
    context.observer.progress(&RunProgress::Trying {
        what: command.kind.as_str(),
        limit_secs: command.limit.as_secs(),
    });
    let written = contained.held.written_in(folder);
    let mut limits = LimitWatch::begin(config, command.kind, written);
    let cap = config.guard_output_limit_bytes;
    let watched = CaptureOptions {
        cap,
        mask: &passed_values(config),
        limits: Some(&mut limits),
    };
    let ran = captured_child::run(&spec, watched, context);
    let breach = limits.finish();
    let refused = contained.network.end();
    drop(contained.held);
    context.observer.progress(&RunProgress::Tried);
    let (report, CapturedOutput { log, whole }) = ran?;
    if let Some(breach) = &breach
        && breach.is_shared
        && report.ended != Ended::Interrupted
    {
        let kind = ErrorCode::Step(IterationErrorKind::Resources);
        return Err(Error::new(kind, breach.words.clone())
            .hint("run the command again when there is room: what was begun is not lost"));
    }
    let is_over_limit = breach.is_some();
    let end = match report.ended {
        Ended::Interrupted => return Err(Error::new(ErrorCode::Interrupted, "interrupted")),
        _ if is_over_limit => {
            let words = breach.map(|it| it.words).unwrap_or_default();
            TrialEnd::NotStarted(format!("was ended: {words}"))
        }
        Ended::Exited(code) => TrialEnd::Exited(code),
        Ended::Signaled(signal) => TrialEnd::Exited(128 + signal),
        Ended::TimedOut => TrialEnd::TimedOut,
        Ended::NotStarted(failure) => TrialEnd::NotStarted(failure.message),
        Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => {
            TrialEnd::NotStarted("was lost: its supervisor was killed".to_owned())
        }
    };
    let wrapper = match (&end, containment) {
        (TrialEnd::Exited(code), Some(it)) => it.setup_failure(Some(*code), &log),
        _ => None,
    };
    if let Some(words) = wrapper {
        return Ok(not_started(format!(
            "cannot be contained: the sandbox could not be set up: {words}"
        )));
    }
    let mut log = log;
    log.extend_from_slice(network::about_refused(&refused).as_bytes());
    Ok(GuardTrial {
        end,
        duration_ms: millis(report.duration),
        log,
        tests: whole.tests(),
        is_over_limit,
        changed: Vec::new(),
    })
}

/// Runs a guard at a commit, in a clean checkout, contained as the config says.
pub(crate) fn run_at_commit(
    git: &Git,
    commit: &str,
    command: &[String],
    config: &Config,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    let containment = Containment::choose(config)?;
    let checkout = CleanCheckout::of(git, config, commit)?;
    let limit = Duration::from_secs(config.iteration_timeout_secs);
    let contained = containment.is_on().then_some(&containment);
    run(&checkout, command, config, contained, limit, context)
}

pub(crate) fn not_started(message: String) -> GuardTrial {
    GuardTrial {
        end: TrialEnd::NotStarted(message),
        duration_ms: 0,
        log: Vec::new(),
        tests: TestEvidence::default(),
        is_over_limit: false,
        changed: Vec::new(),
    }
}

/// What a fresh checkout lacks of the work tree, as names for people: files that
/// git ignores, and the content of submodules.
pub(crate) fn lacking(git: &Git) -> Vec<String> {
    let mut names = git.ignored().unwrap_or_default();
    let submodules = git.submodules().unwrap_or_default();
    names.extend(submodules.iter().map(|path| path.display().to_string()));
    names.retain(|name| !name.starts_with(".runner/"));
    names
}

/// The same under a config: what it copies or fills is there.
pub(crate) fn lacking_under(git: &Git, config: &Config) -> Vec<String> {
    let copied = FolderGlobs::new(&config.workspace.include).ok();
    let is_copied = |name: &str| copied.as_ref().is_some_and(|globs| globs.is_match(name));
    let is_filled =
        |name: &str| config.workspace.submodules && Git::open(&git.root().join(name)).is_ok();
    let mut names = lacking(git);
    names.retain(|name| {
        let path = name.trim_end_matches('/');
        !is_copied(path) && !is_filled(path)
    });
    names
}

/// Names for a sentence: the first few, and how many more there are.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    match names.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_names() {
        let names: Vec<String> = ('a'..='g').map(String::from).collect();
        for (count, expected) in [
            (0, ""),
            (1, "a"),
            (5, "a, b, c, d, e"),
            (6, "a, b, c, d, e and 1 more"),
            (7, "a, b, c, d, e and 2 more"),
        ] {
            assert_eq!(some_of(&names[..count]), expected);
        }
    }
}
