//! The guard: can it be started, and what does it do outside and inside the
//! sandbox?

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::config::{ChildKind, Config, NetworkRule};
use runner_sandbox::ProgramError;

use super::blocked;
use super::breaks::{self, PlantedBreak};
use super::guard_report;
use super::{DoctorCheck, DoctorVerdict};
use crate::base_trial::as_at_home;
use crate::checkout::trial;
use crate::checkout::trial::{GuardTrial, TrialEnd};
use crate::checkout::{CleanCheckout, missing_variable};
use crate::error::{ErrorCode, Result};
use crate::git::Git;
use crate::grants::{self, GrantContext};
use crate::project::Project;
use crate::run_context::RunContext;
use crate::step::containment::Containment;
use crate::step::environment;

/// How much of the guard's output is shown.
const TAIL: usize = 4000;

/// The guard's two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardTrials {
    /// Its argv.
    pub command: Vec<String>,
    /// The commit that it was run at.
    pub commit: String,
    /// Without a sandbox; `None` where it works at the project's own path alone.
    pub outside: Option<DoctorGuardRun>,
    /// In the sandbox that the config asks for; `None` where there is none, or no
    /// sense in it.
    pub inside: Option<DoctorGuardRun>,
    /// With a syntax error in each source root, where it passes without.
    pub breaks: Vec<PlantedBreak>,
}

/// One run of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorGuardRun {
    /// `bubblewrap`, `landlock` or `none`.
    pub sandbox: &'static str,
    /// Its exit code; `None` when it did not start, or not end in time.
    pub exit: Option<i32>,
    /// How long it took.
    pub duration_ms: u64,
    /// What it left that git does not ignore, and what it changed.
    pub left: Vec<String>,
    /// The end of its output.
    pub output_tail: String,
}

/// Whether the guard's program can be started.
pub(super) fn resolvable(config: &Config, place: &Path) -> DoctorCheck {
    let command = &config.guard.command;
    let program = OsString::from(command.first().map_or("", String::as_str));
    let found = environment::resolve(&program, place, &environment::inherited());
    program_check(command, found.as_ref())
}

fn program_check(command: &[String], found: Result<&PathBuf, &ProgramError>) -> DoctorCheck {
    const NAME: &str = "guard";
    let shown = command.join(" ");
    let program = command.first().map_or("", String::as_str);
    match found {
        Ok(path) => DoctorCheck::ok(NAME, format!("`{shown}` ({})", path.display())),
        // An agent can make a file of the project, but no program of the machine.
        Err(error) if error.not_found && program.contains('/') && !program.starts_with('/') => {
            DoctorCheck::warn(
                NAME,
                format!("`{shown}`: {program} is not there"),
                "make it, unless it is part of the goal; no leaf can pass before it is there",
            )
        }
        Err(error) => DoctorCheck::fail(NAME, error.message.clone(), remedy_for_program(program)),
    }
}

fn remedy_for_program(program: &str) -> String {
    format!(
        "install `{program}`, put its folder on PATH, or name another [guard] command in .runner/state/config.toml"
    )
}

/// Runs the guard at HEAD, outside and inside the sandbox.
pub(super) fn run(
    project: &Project,
    config: &Config,
    context: &mut RunContext<'_>,
) -> Result<(Vec<DoctorCheck>, Option<GuardTrials>)> {
    let git = Git::open(project.root())?;
    let Some(commit) = git.commit_of("HEAD")? else {
        let check = DoctorCheck::fail(
            "guard_outside",
            "the repository has no commit to run the guard at",
            "make one, or let `runner start` make it",
        );
        return Ok((vec![check], None));
    };
    let lacking = lacking(&git, config);
    let limit = Duration::from_secs(config.iteration_timeout_secs);
    let mut once =
        |config: &Config, containment: Option<&Containment>| -> Result<DoctorRunOutput> {
            let checkout = CleanCheckout::of(&git, config, &commit)?;
            let command = &config.guard.command;
            let trial = trial::run(&checkout, command, config, containment, limit, context)?;
            let left = left_in(checkout.path());
            let place = checkout.path().to_owned();
            Ok(DoctorRunOutput { trial, left, place })
        };
    // Refused: the check of the sandbox has said so.
    let containment = Containment::choose(config).ok().filter(Containment::is_on);
    let has_mounts = containment.as_ref().is_some_and(Containment::has_mounts);
    let outside = match once(config, None) {
        // What is copied may work at the project's own path alone, where the sandbox shows it.
        Err(error) if has_mounts && error.code == ErrorCode::Config => Err(error.message),
        other => Ok(other?),
    };
    let mut checks = vec![match &outside {
        Ok(ran) => outside_check(config, &ran.trial, &lacking),
        Err(why) => DoctorCheck::ok(
            "guard_outside",
            format!(
                "not run: it works at the project's own path alone, where the sandbox shows it ({why})"
            ),
        ),
    }];
    let mut inside = None;
    let outside_end = outside.as_ref().map(|ran| &ran.trial.end);
    match (&containment, outside_end) {
        (None, _) => checks.push(DoctorCheck::ok(
            "guard_inside",
            "not run: there is no sandbox, or [sandbox] does not want one",
        )),
        (Some(_), Ok(TrialEnd::Exited(_)) | Err(_)) => {
            let ran = once(config, containment.as_ref())?;
            let word = containment.as_ref().map_or("none", Containment::as_str);
            let compared = outside.as_ref().unwrap_or(&ran);
            let lacks_network = compared.is_green()
                && matches!(ran.trial.end, TrialEnd::Exited(code) if code != 0)
                && match with_network(config) {
                    Some(open) => {
                        let containment = Containment::choose(&open)?;
                        once(&open, Some(&containment))?.is_green()
                    }
                    None => false,
                };
            let remedy = || {
                if lacks_network {
                    NETWORK_REMEDY.to_owned()
                } else {
                    remedy_inside(config, &git, &ran)
                }
            };
            checks.push(inside_check(word, &compared.trial, &ran.trial, remedy));
            inside = Some((word, ran));
        }
        (Some(_), _) => {}
    }
    let outside = outside.ok();
    let mut left = outside
        .as_ref()
        .map_or_else(Vec::new, |ran| ran.left.clone());
    left.extend(inside.iter().flat_map(|(_, ran)| ran.left.clone()));
    left.sort();
    left.dedup();
    checks.push(left_check(&left));
    let runs = [outside.as_ref(), inside.as_ref().map(|(_, ran)| ran)];
    let red = runs.into_iter().flatten().find(|ran| !ran.is_green());
    checks.extend(red.and_then(|ran| variables_check(&ran.trial.log, config)));
    let mut planted = Vec::new();
    if red.is_none() {
        if let Some(ran) = runs.into_iter().flatten().last() {
            checks.push(guard_report::tests_check(&ran.trial.tests));
            checks.push(guard_report::cost_check(config, ran.trial.duration_ms));
        }
        let (check, breaks) = breaks::run(&git, &commit, config, containment.as_ref(), context)?;
        checks.push(check);
        planted = breaks;
    }
    let trials = GuardTrials {
        command: config.guard.command.clone(),
        commit,
        outside: outside.map(|ran| ran.report("none")),
        inside: inside.map(|(word, ran)| ran.report(word)),
        breaks: planted,
    };
    Ok((checks, Some(trials)))
}

/// What helps a guard that passes with a network and not without.
const NETWORK_REMEDY: &str =
    "the guard passes with a network: set [sandbox.network] guard = \"open\", or list the host";

/// The same config with everything in the guard's reach, where that is not so already.
fn with_network(config: &Config) -> Option<Config> {
    if config.sandbox.network.guard == NetworkRule::Open {
        return None;
    }
    let mut open = config.clone();
    open.sandbox.network.guard = NetworkRule::Open;
    Some(open)
}

/// A run and what it left.
struct DoctorRunOutput {
    trial: GuardTrial,
    left: Vec<String>,
    /// Where it was run; gone by now.
    place: PathBuf,
}

impl DoctorRunOutput {
    fn is_green(&self) -> bool {
        self.trial.end == TrialEnd::Exited(0)
    }

    fn report(&self, sandbox: &'static str) -> DoctorGuardRun {
        let text = String::from_utf8_lossy(&self.trial.log);
        DoctorGuardRun {
            sandbox,
            exit: match self.trial.end {
                TrialEnd::Exited(code) => Some(code),
                _ => None,
            },
            duration_ms: self.trial.duration_ms,
            left: self.left.clone(),
            output_tail: runner_core::text::cut_front(&text, TAIL).into_owned(),
        }
    }
}

/// What differs from the commit after a run.
fn left_in(place: &Path) -> Vec<String> {
    let status = Git::open(place).and_then(|git| git.status());
    let entries = status.map(|status| status.entries).unwrap_or_default();
    entries
        .iter()
        .map(crate::git::GitStatusEntry::name)
        .collect()
}

/// What a checkout of HEAD lacks of the work tree.
fn lacking(git: &Git, config: &Config) -> Vec<String> {
    let mut names = trial::lacking_under(git, config);
    let is_outside = |path: &Path| !path.starts_with(".runner");
    if git
        .status()
        .is_ok_and(|status| status.entries.iter().any(|it| is_outside(&it.path)))
    {
        names.insert(0, "your uncommitted changes".to_owned());
    }
    names
}

/// `0.3 s`.
pub(super) fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}

fn timed_out(name: &'static str, command: &str, config: &Config) -> DoctorCheck {
    DoctorCheck::fail(
        name,
        format!(
            "`{command}` did not end within {} s",
            config.iteration_timeout_secs
        ),
        "make it faster, or raise iteration_timeout_secs, which agent and guard share",
    )
}

fn outside_check(config: &Config, trial: &GuardTrial, lacking: &[String]) -> DoctorCheck {
    const NAME: &str = "guard_outside";
    let command = config.guard.command.join(" ");
    let took = seconds(trial.duration_ms);
    let fresh = if lacking.is_empty() {
        String::new()
    } else {
        format!(
            "; it was run in a fresh checkout, without {}",
            trial::some_of(lacking)
        )
    };
    match &trial.end {
        TrialEnd::Exited(0) => {
            let message = format!("`{command}` passes at HEAD in {took}");
            let half_secs = config.iteration_timeout_secs / 2;
            if trial.duration_ms / 1000 >= half_secs.max(1) {
                let all = config.iteration_timeout_secs;
                return DoctorCheck::warn(
                    NAME,
                    format!("{message}, and agent and guard share {all} s"),
                    "make it faster, or raise iteration_timeout_secs",
                );
            }
            DoctorCheck::ok(NAME, message)
        }
        TrialEnd::Exited(code) => DoctorCheck::fail(
            NAME,
            format!("`{command}` gives exit {code} at HEAD after {took}"),
            format!("mend it, unless that is the goal: no leaf passes until it is green{fresh}"),
        ),
        TrialEnd::TimedOut => timed_out(NAME, &command, config),
        TrialEnd::NotStarted(message) => DoctorCheck::fail(
            NAME,
            format!("the guard {message}"),
            format!("{}{fresh}", remedy_for_program(&config.guard.command[0])),
        ),
    }
}

fn inside_check(
    sandbox: &str,
    outside: &GuardTrial,
    inside: &GuardTrial,
    remedy: impl FnOnce() -> String,
) -> DoctorCheck {
    const NAME: &str = "guard_inside";
    let took = seconds(inside.duration_ms);
    match (&outside.end, &inside.end) {
        (TrialEnd::Exited(0), TrialEnd::Exited(0)) => {
            DoctorCheck::ok(NAME, format!("it passes in {sandbox} too, in {took}"))
        }
        (_, TrialEnd::Exited(0)) => DoctorCheck::warn(
            NAME,
            format!("it passes in {sandbox} in {took}, but not outside"),
            "a guard that does not give the same answer twice cannot judge: look why",
        ),
        (TrialEnd::Exited(0), TrialEnd::Exited(code)) => DoctorCheck::fail(
            NAME,
            format!("it passes outside, but gives exit {code} in {sandbox} after {took}"),
            remedy(),
        ),
        (_, TrialEnd::Exited(code)) => DoctorCheck::fail(
            NAME,
            format!("it gives exit {code} in {sandbox} after {took}"),
            "mend it outside first",
        ),
        (_, TrialEnd::TimedOut) => DoctorCheck::fail(
            NAME,
            format!("it does not end in time in {sandbox}, after {took}"),
            "it may wait for something that it cannot write to or reach there",
        ),
        (_, TrialEnd::NotStarted(message)) => DoctorCheck::fail(
            NAME,
            format!("the guard {message}"),
            "set [sandbox] mode = \"off\", or mend the sandbox",
        ),
    }
}

/// What to do, found out from what the guard printed.
fn remedy_inside(config: &Config, git: &Git, ran: &DoctorRunOutput) -> String {
    let log = String::from_utf8_lossy(&ran.trial.log);
    let context = GrantContext::of(config, git.root(), &[&ran.place]);
    // Without mounts a private home has a path of its own.
    let log = match &context.home {
        Some(home) => as_at_home(&log, &std::env::temp_dir(), home),
        None => log.into_owned(),
    };
    let denied = grants::denied_paths(&log);
    let own = [git.git_dir(), git.common_dir()];
    let runner_dir = ran.place.join(".runner");
    let closed = |path: &PathBuf| {
        own.iter().any(|folder| path.starts_with(folder)) || path.starts_with(&runner_dir)
    };
    if let Some(path) = denied.iter().find(|path| closed(path)) {
        return format!(
            "it changes {}: git's settings and the runner's files are closed to guards, so let it leave them alone",
            path.display()
        );
    }
    // Writable in any run, or never.
    let settled = [&ran.place, git.root()]
        .into_iter()
        .chain(["/proc", "/sys", "/dev"].map(Path::new));
    let settled: Vec<&Path> = settled.collect();
    let is_settled = |path: &Path| settled.iter().any(|folder| path.starts_with(folder));
    let wanted: Vec<PathBuf> = denied
        .into_iter()
        .filter(|path| path.starts_with(grants::SHARED_MEMORY) || !is_settled(path))
        .collect();
    let guard = config.sandbox.opened(ChildKind::Guard);
    blocked::remedy(&wanted, (&guard.writable, &guard.readable), &context)
}

/// Names variables that the guard says it lacks, and that the user's shell has.
fn variables_check(log: &[u8], config: &Config) -> Option<DoctorCheck> {
    let names = missing_variable::find(log, config);
    let remedy = missing_variable::remedy(&names)?;
    let message = format!("the guard does not get {}", names.join(", "));
    Some(DoctorCheck::warn("guard_variables", message, remedy))
}

fn left_check(left: &[String]) -> DoctorCheck {
    const NAME: &str = "guard_leaves";
    if left.is_empty() {
        return DoctorCheck::ok(NAME, "nothing that git would see");
    }
    DoctorCheck {
        name: NAME,
        verdict: DoctorVerdict::Warn,
        message: format!("files that git sees: {}", trial::some_of(left)),
        remedy: Some(
            "add them to .gitignore, or let the guard write below $TMPDIR: they lie in a clean checkout and come into no commit"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(end: TrialEnd, duration_ms: u64) -> GuardTrial {
        GuardTrial {
            end,
            duration_ms,
            log: Vec::new(),
            tests: runner_core::evidence::TestEvidence::default(),
            is_over_limit: false,
            changed: Vec::new(),
        }
    }

    #[test]
    fn programs() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let error = |not_found: bool| ProgramError {
            not_found,
            message: "cannot start it".to_owned(),
        };
        for (command, found, verdict) in [
            (
                "just ci",
                Ok(PathBuf::from("/usr/bin/just")),
                DoctorVerdict::Ok,
            ),
            ("just ci", Err(error(true)), DoctorVerdict::Fail),
            ("./ci.sh", Err(error(true)), DoctorVerdict::Warn),
            ("./ci.sh", Err(error(false)), DoctorVerdict::Fail),
            ("/opt/ci", Err(error(true)), DoctorVerdict::Fail),
        ] {
            let check = program_check(&words(command), found.as_ref());
            assert_eq!(check.verdict, verdict, "{command} {check:?}");
            assert_eq!(check.remedy.is_none(), verdict == DoctorVerdict::Ok);
        }
    }

    #[test]
    fn outside() {
        let config = Config::parse("iteration_timeout_secs = 60\n").unwrap();
        let lacking = ["target/".to_owned()];
        for (end, millis, verdict, words) in [
            (
                TrialEnd::Exited(0),
                1250,
                DoctorVerdict::Ok,
                "passes at HEAD in 1.2 s",
            ),
            (
                TrialEnd::Exited(0),
                30_000,
                DoctorVerdict::Warn,
                "share 60 s",
            ),
            (
                TrialEnd::Exited(3),
                10,
                DoctorVerdict::Fail,
                "gives exit 3 at HEAD",
            ),
            (
                TrialEnd::TimedOut,
                60_000,
                DoctorVerdict::Fail,
                "within 60 s",
            ),
            (
                TrialEnd::NotStarted("cannot start `x`".to_owned()),
                0,
                DoctorVerdict::Fail,
                "the guard cannot start `x`",
            ),
        ] {
            let red = matches!(end, TrialEnd::Exited(3));
            let check = outside_check(&config, &trial(end, millis), &lacking);
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
            let remedy = check.remedy.unwrap_or_default();
            assert_eq!(remedy.is_empty(), verdict == DoctorVerdict::Ok, "{remedy}");
            assert!(!red || remedy.contains("without target/"), "{remedy}");
        }
    }

    #[test]
    fn inside() {
        let (green, red) = (TrialEnd::Exited(0), TrialEnd::Exited(1));
        for (outside, inside, verdict, words) in [
            (&green, &green, DoctorVerdict::Ok, "passes in landlock too"),
            (
                &green,
                &red,
                DoctorVerdict::Fail,
                "passes outside, but gives exit 1",
            ),
            (&red, &green, DoctorVerdict::Warn, "but not outside"),
            (&red, &red, DoctorVerdict::Fail, "gives exit 1 in landlock"),
            (&green, &TrialEnd::TimedOut, DoctorVerdict::Fail, "in time"),
        ] {
            let (outside, inside) = (trial(outside.clone(), 1), trial(inside.clone(), 1));
            let check = inside_check("landlock", &outside, &inside, || "add x".to_owned());
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
        }
        assert_eq!(left_check(&[]).verdict, DoctorVerdict::Ok);
        assert_eq!(left_check(&["a".to_owned()]).verdict, DoctorVerdict::Warn);
    }
}
