//! Is everything there that a run needs? Findings, each with its remedy.
//!
//! Looking and judging are apart: what was seen goes into functions that touch
//! nothing and return a [`DoctorCheck`].

mod agent;
mod blocked;
pub(crate) mod breaks;
mod guard;
mod guard_report;
mod hermetic;
mod limits;
mod login;
mod machine;
mod network;
mod outside;
mod project;
mod promises;
mod sandbox;

use std::path::{Path, PathBuf};

use runner_core::config::{Config, SandboxMode};
use runner_core::paths;

use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::grants;
use crate::project::Project;
use crate::run_context::RunContext;
use crate::search_path::own_search_path;
use crate::{state, step};

pub use breaks::PlantedBreak;
pub use guard::{DoctorGuardRun, GuardTrials};

/// What to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Also run the guard, outside and inside the sandbox.
    pub run_guard: bool,
}

/// How a check turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoctorVerdict {
    /// Fine.
    Ok,
    /// A run works, but somebody should know.
    Warn,
    /// A run does not work like this.
    Fail,
}

impl DoctorVerdict {
    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            DoctorVerdict::Ok => "ok",
            DoctorVerdict::Warn => "warn",
            DoctorVerdict::Fail => "fail",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorCheck {
    /// What was looked at: a word that stays the same.
    pub name: &'static str,
    /// How it turned out.
    pub verdict: DoctorVerdict,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl DoctorCheck {
    fn new(name: &'static str, verdict: DoctorVerdict, message: impl Into<String>) -> Self {
        DoctorCheck {
            name,
            verdict,
            message: message.into(),
            remedy: None,
        }
    }

    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        DoctorCheck::new(name, DoctorVerdict::Ok, message)
    }

    fn warn(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        DoctorCheck::new(name, DoctorVerdict::Warn, message).remedy(remedy)
    }

    fn fail(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        DoctorCheck::new(name, DoctorVerdict::Fail, message).remedy(remedy)
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// The findings, in the order in which they are best read.
    pub checks: Vec<DoctorCheck>,
    /// How the guard's runs went, if it was to be run and there was something to
    /// run it at.
    pub guard: Option<GuardTrials>,
}

impl Diagnosis {
    /// Whether nothing failed.
    pub fn is_ok(&self) -> bool {
        self.checks
            .iter()
            .all(|check| check.verdict != DoctorVerdict::Fail)
    }
}

/// Looks at the machine, and at the project that the folder belongs to, if any.
pub fn doctor(
    dir: &Path,
    options: DoctorOptions,
    context: &mut RunContext<'_>,
) -> Result<Diagnosis> {
    let dir = dir
        .canonicalize()
        .map_err(|error| Error::new(ErrorCode::Layout, format!("{}: {error}", dir.display())))?;
    let found = Project::find(&dir);
    if options.run_guard
        && let Err(error) = found
    {
        return Err(error);
    }
    let found = found.ok();
    let place = found.as_ref().map_or(dir.as_path(), Project::root);
    let config = found.as_ref().and_then(config_of);

    let mut checks = Vec::new();
    let version = Git::check_version();
    let has_git = version.is_ok();
    checks.push(machine::git(version));
    if has_git {
        checks.push(machine::identity(&Git::knows_a_name(place)));
    }
    match &found {
        Some(project) => checks.extend(project::checks(project)),
        None => checks.push(project::none(place)),
    }
    if let Some(config) = &config {
        checks.push(guard::resolvable(config, place));
        checks.extend(agent::checks(config, place, context)?);
    } else if found.is_none() {
        checks.push(agent::installed(place));
    }
    // Without a config that can be read, as if there were the usual one.
    let usual = Config::default();
    let effective = config.as_ref().unwrap_or(&usual);
    let sandbox = &effective.sandbox;
    let support = runner_sandbox::detect(own_search_path());
    checks.extend(sandbox::checks(sandbox, &support));
    let chosen = runner_sandbox::choose(sandbox.mode, &support).ok();
    let gaps = chosen.as_ref().map_or_else(Vec::new, |mechanism| {
        step::promises::gaps(effective, mechanism, &support)
    });
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let hidden = home.as_deref().map_or_else(Vec::new, |home| {
        step::hidden_paths::hidden_places(home, &|name| std::env::var_os(name))
    });
    let entries = grants::opened_entries(sandbox, home.as_deref(), place);
    checks.extend(promises::checks(promises::PromiseFacts {
        mechanism: chosen.as_ref(),
        gaps: &gaps,
        has_bubblewrap: support.bubblewrap.is_ok(),
        is_required: sandbox.mode == SandboxMode::Required,
        has_layers: promises::has_layers(chosen.as_ref()),
        opened: &sandbox::opened_here(sandbox, place),
        hidden: &sandbox.hidden,
        secrets: &grants::opened_secrets(&entries, &hidden),
    }));
    checks.extend(sandbox::setup_token(effective, place));
    checks.extend(sandbox::entries(sandbox, place));
    checks.extend(network::checks(effective, &support));
    let means = crate::limits::GroupMeans::of_this_process();
    checks.push(limits::check(&sandbox.limits, means));
    if let Some(config) = &config {
        checks.extend(outside::checks(config, &support, place));
    }
    checks.push(machine::disk_space(machine::look_at_disk(place).as_ref()));
    let time = machine::time_of_files(found.as_ref());
    checks.push(machine::clock(context.clock.now(), time));

    let mut trials = None;
    if let (true, Some(project), Some(config)) = (options.run_guard, &found, &config) {
        let (found, ran) = guard::run(project, config, context)?;
        checks.extend(found);
        trials = ran;
    }
    Ok(Diagnosis {
        checks,
        guard: trials,
    })
}

/// The config as far as it can be read; what is wrong with it is `validate`'s to say.
fn config_of(project: &Project) -> Option<Config> {
    let text = state::optional_text(project, paths::CONFIG).ok()??;
    Config::parse(&text).ok()
}
