//! Setup and guard tried once, so that what is missing shows before the first session does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_core::config::{Config, NetworkRule};
use runner_core::paths;
use runner_core::text::cut_front;

use super::{InitReport, setup};
use crate::base_trial::comparison::is_production;
use crate::base_trial::{self, BaseProblem, BaseTrial, BaseVerdict};
use crate::checkout::caches::CacheFill;
use crate::checkout::trial::{self, GuardTrial, TrialEnd};
use crate::checkout::{CleanCheckout, missing_variable};
use crate::doctor::{DoctorVerdict, breaks};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::run_context::RunContext;
use crate::step::containment::Containment;

/// Nobody waits longer for a first look.
const LIMIT_SECS: u64 = 600;

/// A guard that takes no longer is also tried with breaks planted, each for one more run.
const QUICK_MS: u64 = 3000;

/// How much of an output is shown.
const TAIL: usize = 2000;

/// So many files with secrets are tried, each with setup and guard.
const MAX_SECRETS: usize = 3;

/// What setup and guard did in a clean checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitTrial {
    /// How it ended.
    pub end: InitTrialEnd,
    /// How long the guard took.
    pub duration_ms: u64,
    /// The end of what was printed.
    pub output_tail: String,
    /// What to do, where it is not green.
    pub hint: Option<String>,
    /// Why it proves nothing although it is green, where there was time to find out.
    pub cannot_fail: Option<String>,
    /// Files that were added to `[workspace] include`, because only with them it is green.
    pub included: Vec<String>,
    /// What the guard is without the network, where that was tried.
    pub offline: Option<OfflineTrial>,
    /// What was written as `[workspace] setup`, so that a guard without the network finds
    /// dependencies that a session adds.
    pub fetch: Option<&'static str>,
}

/// What a guard that is green is without the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfflineTrial {
    /// Green too: `[sandbox.network] guard` was set to `"off"`.
    Green,
    /// Not green: it was left open.
    NeedsNetwork,
}

impl OfflineTrial {
    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            OfflineTrial::Green => "green",
            OfflineTrial::NeedsNetwork => "needs_network",
        }
    }
}

/// How a first try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitTrialEnd {
    /// The guard passes.
    Green,
    /// It ran and gave this exit code.
    Red(i32),
    /// It did not end in time: after so many seconds.
    TimedOut(u64),
    /// It could not run; a lowercase fragment says why.
    CannotRun(String),
    /// The file that defines it is missing, which a session can write; a sentence says so.
    NotThereYet(String),
    /// Nothing was tried; a lowercase fragment says why.
    Skipped(String),
}

impl InitTrialEnd {
    /// The word in `--json`.
    pub fn as_str(&self) -> &'static str {
        match self {
            InitTrialEnd::Green => "green",
            InitTrialEnd::Red(_) | InitTrialEnd::TimedOut(_) => "red",
            InitTrialEnd::CannotRun(_) => "cannot_run",
            InitTrialEnd::NotThereYet(_) => "unknown",
            InitTrialEnd::Skipped(_) => "skipped",
        }
    }
}

impl InitTrial {
    fn without_output(end: InitTrialEnd, hint: Option<String>) -> Self {
        InitTrial {
            end,
            duration_ms: 0,
            output_tail: String::new(),
            hint,
            cannot_fail: None,
            included: Vec::new(),
            offline: None,
            fetch: None,
        }
    }
}

/// Tries setup and guard at HEAD in a clean checkout, after [`super::init`]. What it finds is no
/// error, only an interrupt is. Where a file with secrets alone makes the difference, it is added
/// to the config.
pub fn try_out(report: &InitReport, context: &mut RunContext<'_>) -> Result<InitTrial> {
    match try_at_head(report, context) {
        Err(error) if error.code == ErrorCode::Interrupted => Err(Error::new(
            ErrorCode::Interrupted,
            "interrupted while setup and guard were tried; the files of .runner/ are written",
        )
        .hint("`runner doctor --run-guard` tries the guard at any time")),
        Err(error) => Ok(InitTrial::without_output(
            InitTrialEnd::CannotRun(error.message),
            error.hint,
        )),
        tried => tried,
    }
}

fn try_at_head(report: &InitReport, context: &mut RunContext<'_>) -> Result<InitTrial> {
    let git = Git::open(&report.root)?;
    let Some(commit) = git.commit_of("HEAD")? else {
        let why = "the repository has no commit yet".to_owned();
        return Ok(InitTrial::without_output(InitTrialEnd::Skipped(why), None));
    };
    let config = &report.config;
    let (trial, mut found) = once(&git, &commit, config, context)?;
    if found.end == InitTrialEnd::Green {
        if found.duration_ms <= QUICK_MS {
            found.cannot_fail = cannot_fail(&git, &commit, config, context)?;
        }
        offline(&git, &commit, (&report.root, config), &mut found, context)?;
        return Ok(found);
    }
    if !is_setup_failure(&trial.end)
        && let Some(words) = not_there_yet(&git, &commit, config)?
    {
        found.end = InitTrialEnd::NotThereYet(words);
        return Ok(found);
    }
    for secret in secrets(&git).into_iter().take(MAX_SECRETS) {
        let mut with = config.clone();
        with.workspace.include.push(secret.clone());
        let (_, with_it) = once(&git, &commit, &with, context)?;
        if with_it.end == InitTrialEnd::Green {
            add_to_include(&report.root, &with.workspace.include)?;
            let mut found = InitTrial {
                included: vec![secret],
                ..with_it
            };
            offline(&git, &commit, (&report.root, &with), &mut found, context)?;
            return Ok(found);
        }
    }
    if let InitTrialEnd::Red(code) = found.end
        && let Some(problem) = cannot_run(&git, &commit, config, (code, &trial.log), context)?
    {
        let first = problem.why.lines().next().unwrap_or_default();
        found.end = InitTrialEnd::CannotRun(first.to_owned());
        found.hint = Some(problem.hint);
        return Ok(found);
    }
    found.hint = Some(remedy(&git, config, &trial));
    Ok(found)
}

/// What is told of a guard whose own file is missing, as `start` would say it.
fn not_there_yet(git: &Git, commit: &str, config: &Config) -> Result<Option<String>> {
    let containment = Containment::choose(config)?;
    let base = BaseTrial {
        git,
        config,
        containment: &containment,
        commit,
        history: commit,
        fill: CacheFill::All,
    };
    let file = base.missing_guard_file()?;
    Ok(file.map(|file| base_trial::not_there_yet(&config.guard.command, &file)))
}

fn is_setup_failure(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::NotStarted(why) if why.starts_with("cannot run: setup"))
}

/// Why no session could make the guard green, where that is so: as `start` would say.
fn cannot_run(
    git: &Git,
    commit: &str,
    config: &Config,
    (exit, log): (i32, &[u8]),
    context: &mut RunContext<'_>,
) -> Result<Option<BaseProblem>> {
    let containment = Containment::choose(config)?;
    let mut limited = config.clone();
    limited.iteration_timeout_secs = config.iteration_timeout_secs.min(LIMIT_SECS);
    let base = BaseTrial {
        git,
        config: &limited,
        containment: &containment,
        commit,
        history: commit,
        fill: CacheFill::All,
    };
    Ok(match base.verdict_after(exit, log, context)? {
        BaseVerdict::Unable(problem) => Some(problem),
        BaseVerdict::Green | BaseVerdict::Red(_) | BaseVerdict::Undefined(_) => None,
    })
}

/// Tries a guard that is green without the network, where that can be kept from it as a whole, and
/// writes down that it does without.
fn offline(
    git: &Git,
    commit: &str,
    (root, config): (&Path, &Config),
    found: &mut InitTrial,
    context: &mut RunContext<'_>,
) -> Result<()> {
    if config.sandbox.network.guard != NetworkRule::Open {
        return Ok(());
    }
    let mut without = config.clone();
    without.sandbox.network.guard = NetworkRule::Off;
    // Landlock would take its own loopback, too.
    if !Containment::choose(&without)?.has_namespace() {
        return Ok(());
    }
    // The guard of a later commit would not find what that commit adds to a manifest.
    let fetch = setup::fetch_command(git).filter(|_| config.workspace.setup.is_empty());
    if let Some(fetch) = fetch {
        without.workspace.setup = fetch.split(' ').map(str::to_owned).collect();
    }
    let (_, tried) = once(git, commit, &without, context)?;
    if tried.end != InitTrialEnd::Green {
        found.offline = Some(OfflineTrial::NeedsNetwork);
        return Ok(());
    }
    let path = root.join(paths::CONFIG);
    let text = std::fs::read_to_string(&path).map_err(|error| files::at(&path, error))?;
    let mut text = with_line(&text, "[sandbox.network]", "guard = ", "guard = \"off\"");
    if let Some(fetch) = fetch {
        let words: Vec<String> = fetch.split(' ').map(|word| format!("\"{word}\"")).collect();
        let line = format!("setup = [{}]", words.join(", "));
        text = with_line(&text, "[workspace]", "setup = ", &line);
    }
    files::write_whole(&path, text.as_bytes())?;
    found.offline = Some(OfflineTrial::Green);
    found.fetch = fetch;
    Ok(())
}

/// Whether a guard that is green stays so whatever is broken, and what was.
fn cannot_fail(
    git: &Git,
    commit: &str,
    config: &Config,
    context: &mut RunContext<'_>,
) -> Result<Option<String>> {
    let containment = Containment::choose(config)?;
    let contained = containment.is_on().then_some(&containment);
    let (check, _) = breaks::run(git, commit, config, contained, context)?;
    Ok((check.verdict == DoctorVerdict::Fail).then_some(check.message))
}

fn once(
    git: &Git,
    commit: &str,
    config: &Config,
    context: &mut RunContext<'_>,
) -> Result<(GuardTrial, InitTrial)> {
    let containment = Containment::choose(config)?;
    let checkout = CleanCheckout::of(git, config, commit)?;
    checkout.checkout.cache_fill.set(CacheFill::All);
    let limit_secs = config.iteration_timeout_secs.min(LIMIT_SECS);
    let limit = Duration::from_secs(limit_secs);
    let contained = containment.is_on().then_some(&containment);
    let command = &config.guard.command;
    let trial = trial::run(&checkout, command, config, contained, limit, context)?;
    let text = String::from_utf8_lossy(&trial.log);
    let found = InitTrial {
        end: end_of(&trial.end, limit_secs),
        duration_ms: trial.duration_ms,
        output_tail: cut_front(text.trim_end(), TAIL).into_owned(),
        hint: None,
        cannot_fail: None,
        included: Vec::new(),
        offline: None,
        fetch: None,
    };
    Ok((trial, found))
}

fn end_of(end: &TrialEnd, limit_secs: u64) -> InitTrialEnd {
    match end {
        TrialEnd::Exited(0) => InitTrialEnd::Green,
        // What a shell says of a program that it cannot start or find.
        TrialEnd::Exited(code @ (126 | 127)) => InitTrialEnd::CannotRun(format!(
            "gave exit {code}: a program of it is not there, or cannot be started"
        )),
        TrialEnd::Exited(code) => InitTrialEnd::Red(*code),
        TrialEnd::TimedOut => InitTrialEnd::TimedOut(limit_secs),
        TrialEnd::NotStarted(why) => InitTrialEnd::CannotRun(why.clone()),
    }
}

/// What to do about a guard that is not green.
fn remedy(git: &Git, config: &Config, trial: &GuardTrial) -> String {
    if let Some(variables) = missing_variable::remedy_for(&trial.log, config) {
        return variables;
    }
    let lacking: Vec<String> = trial::lacking_under(git, config)
        .into_iter()
        .filter(|name| !is_production(Path::new(name)))
        .collect();
    let fresh = if lacking.is_empty() {
        String::new()
    } else {
        format!(
            "; the checkout lacks {} of yours: [workspace] setup makes, include copies",
            trial::some_of(&lacking)
        )
    };
    match &trial.end {
        end if is_setup_failure(end) => {
            format!("correct [workspace] setup in .runner/state/config.toml{fresh}")
        }
        TrialEnd::NotStarted(_) | TrialEnd::Exited(126 | 127) => {
            format!("install what it needs, or name another [guard] command{fresh}")
        }
        TrialEnd::TimedOut => "make it faster: every leaf that is done waits for it".to_owned(),
        TrialEnd::Exited(_) => {
            format!("fix it, unless that is the goal: no leaf passes until it is green{fresh}")
        }
    }
}

/// Ignored files of the checkout that hold settings, and perhaps secrets, the plainest first.
fn secrets(git: &Git) -> Vec<String> {
    let mut found: Vec<PathBuf> = git
        .ignored()
        .unwrap_or_default()
        .into_iter()
        .map(PathBuf::from)
        .filter(|path| is_secret(path) && git.root().join(path).is_file())
        .collect();
    found.sort_by_key(|path| (path.components().count(), path.as_os_str().len()));
    let shown = found.iter().map(|path| path.display().to_string());
    shown.collect()
}

/// Whether a name is that of a file with settings which is not for production.
fn is_secret(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_example = [".example", ".sample", ".template", ".dist"]
        .iter()
        .any(|ending| name.ends_with(ending));
    (name == ".env" || name.starts_with(".env.")) && !is_example && !is_production(path)
}

/// Writes another list into the config that was just written.
fn add_to_include(root: &Path, include: &[String]) -> Result<()> {
    let path = root.join(paths::CONFIG);
    let text = std::fs::read_to_string(&path).map_err(|error| files::at(&path, error))?;
    Ok(files::write_whole(
        &path,
        with_include(&text, include).as_bytes(),
    )?)
}

/// The text of a config with another list of what is copied.
fn with_include(text: &str, include: &[String]) -> String {
    let list: Vec<String> = include.iter().map(|glob| format!("{glob:?}")).collect();
    let line = format!("include = [{}]", list.join(", "));
    with_line(text, "[workspace]", "include = ", &line)
}

/// A text in which another line begins so in a table.
fn with_line(text: &str, table: &str, begin: &str, line: &str) -> String {
    let mut is_inside = false;
    let lines = text.lines().map(|old| {
        if old.starts_with('[') {
            is_inside = old == table;
        }
        if is_inside && old.starts_with(begin) {
            line
        } else {
            old
        }
    });
    let mut text = lines.collect::<Vec<_>>().join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_secrets() {
        for (path, expected) in [
            (".env", true),
            (".env.local", true),
            (".env.test", true),
            ("web/.env", true),
            (".env.production", false),
            (".env.production.local", false),
            (".env.prod", false),
            (".env.PROD.eu", false),
            (".env.live", false),
            (".env.example", false),
            (".envrc", false),
            ("env", false),
        ] {
            assert_eq!(is_secret(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn the_list_in_the_config() {
        let text =
            "include = 1\n[workspace]\n# x\ninclude = []\nroot = \"\"\n[guard]\ninclude = []\n";
        assert_eq!(
            with_include(text, &[".env".to_owned()]),
            "include = 1\n[workspace]\n# x\ninclude = [\".env\"]\nroot = \"\"\n[guard]\ninclude = []\n"
        );
    }
}
