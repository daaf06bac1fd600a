//! Commands run on a commit, in a checkout of their own.

use std::time::Duration;

use runner_core::config::Config;
use runner_core::digest::sha256_hex;

use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::CleanCheckout;
use crate::checkout::guard_changes::{self, about_changes};
use crate::checkout::trial;
use crate::checkout::trial::TrialEnd;
use crate::error::Result;
use crate::fleet_repo::FleetRepo;
use crate::run_context::RunContext;
use crate::step::containment::Containment;

/// The exit code of a guard that is green about something else than the commit.
const CHANGED: i32 = 1;

/// A command that was to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRun {
    /// How it ended.
    pub end: CommandEnd,
    /// What it printed, capped.
    pub log: Vec<u8>,
    /// SHA-256 of that.
    pub log_sha256: String,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// With this code (128 and more: by a signal).
    Exited(i32),
    /// It was ended, because its time was up.
    TimedOut,
    /// It could not run; a lowercase fragment says why.
    Unable(String),
}

impl CommandRun {
    fn unable(why: &str) -> Self {
        CommandRun {
            end: CommandEnd::Unable(why.to_owned()),
            log: Vec::new(),
            log_sha256: sha256_hex(b""),
        }
    }
}

impl FleetRepo {
    /// Runs commands one after the other in one checkout of a commit, contained as the
    /// config says. `None`: the commit is not there.
    pub fn check(
        &self,
        commit: &str,
        commands: &[Vec<String>],
        config: &Config,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Vec<CommandRun>>> {
        if !self.has(commit)? {
            return Ok(None);
        }
        if commands.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let containment = match Containment::choose(config) {
            Ok(containment) => containment,
            Err(error) => {
                let unable = commands.iter().map(|_| CommandRun::unable(&error.message));
                return Ok(Some(unable.collect()));
            }
        };
        let checkout = CleanCheckout::of(&self.git, config, commit)?;
        let limit = Duration::from_secs(config.iteration_timeout_secs);
        let mut runs = Vec::new();
        for command in commands {
            let contained = containment.is_on().then_some(&containment);
            let trial = trial::run(&checkout, command, config, contained, limit, context)?;
            let changed = if trial.end == TrialEnd::Exited(0) && *command == config.guard.command {
                self.changed_by_guard(commit, config, trial.changed, context)?
            } else {
                Vec::new()
            };
            let mut log = trial.log;
            let end = match trial.end {
                TrialEnd::Exited(_) if !changed.is_empty() => {
                    log.extend_from_slice(about_changes(&changed).as_bytes());
                    CommandEnd::Exited(CHANGED)
                }
                TrialEnd::Exited(code) => CommandEnd::Exited(code),
                TrialEnd::TimedOut => CommandEnd::TimedOut,
                TrialEnd::NotStarted(why) => {
                    runs.push(CommandRun::unable(&why));
                    continue;
                }
            };
            runs.push(CommandRun {
                end,
                log_sha256: sha256_hex(&log),
                log,
            });
        }
        Ok(Some(runs))
    }

    /// Which files of a commit its guard changes that the commit before it leaves alone; of a commit
    /// that is a base itself they are known.
    fn changed_by_guard(
        &self,
        commit: &str,
        config: &Config,
        changed: Vec<String>,
        context: &mut RunContext<'_>,
    ) -> Result<Vec<String>> {
        if changed.is_empty() {
            return Ok(changed);
        }
        let before = self.git.commit_of(&format!("{commit}^"))?;
        let is_base = BaseEvidence::at(&self.git, config, commit)?
            .changed()
            .is_some();
        let base = before
            .filter(|_| !is_base)
            .unwrap_or_else(|| commit.to_owned());
        guard_changes::beyond_base(&self.git, &base, config, changed, context)
    }
}
