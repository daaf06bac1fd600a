//! Setup and guard tried on a base before any session, in a clean checkout: whether they can run
//! there at all, and whether the guard is green.

mod cache;
mod comparison;
mod guard_file;
mod verdict;

use std::ffi::OsString;
use std::time::Duration;

use runner_core::config::Config;

use crate::checkout::CleanCheckout;
use crate::checkout::trial::{self, TrialEnd};
use crate::error::Result;
use crate::fleet_repo::FleetRepo;
use crate::git::Git;
use crate::run_context::{RunContext, WallClock};
use crate::step::containment::Containment;
use crate::step::environment;
use cache::BaseCache;
use verdict::{BaseFacts, BaseTrialEnd};
pub use verdict::{BaseProblem, BaseVerdict};

/// A base to try.
pub(crate) struct BaseTrial<'a> {
    pub(crate) git: &'a Git,
    pub(crate) config: &'a Config,
    pub(crate) containment: &'a Containment,
    /// What is checked out.
    pub(crate) commit: &'a str,
    /// The commit that its history is of: the same, or its parent where the runner made it.
    pub(crate) history: &'a str,
}

impl BaseTrial<'_> {
    /// Tries it, unless the answer is known. Errors: an interrupt, and what keeps a clean
    /// checkout from being made.
    pub(crate) fn run(&self, context: &mut RunContext<'_>) -> Result<BaseVerdict> {
        let cache = BaseCache::of(self.git, self.config)?;
        let tree = self.git.tree_of(self.commit)?;
        let key = cache::key(self.history, &tree, self.config);
        if let Some(known) = cache.get(&key, context.clock.now()) {
            return Ok(known);
        }
        let (end, log) = self.try_in(&self.checkout()?, context)?;
        let lacking = trial::lacking(self.git);
        let command = &self.config.guard.command;
        let mut verdict = verdict::judge(&BaseFacts {
            end: &end,
            log: &log,
            config: self.config,
            guard_file: guard_file::missing(command, |path| self.has_file(path)),
            lacking: &lacking,
            unpassed: &verdict::unpassed(&log, self.config),
        });
        if matches!(
            (&verdict, &end),
            (BaseVerdict::Red(_), BaseTrialEnd::Exited(_))
        ) && self.is_green_with_ignored(context)?
        {
            verdict = BaseVerdict::Unable(verdict::green_elsewhere(command, &lacking));
        }
        // The next trial is as good as what could not be kept.
        let _ = cache.put(&key, &verdict, context.clock.now());
        Ok(verdict)
    }

    fn checkout(&self) -> Result<CleanCheckout> {
        CleanCheckout::of(self.git, self.config, self.commit)
    }

    fn try_in(
        &self,
        checkout: &CleanCheckout,
        context: &mut RunContext<'_>,
    ) -> Result<(BaseTrialEnd, Vec<u8>)> {
        let config = self.config;
        let contained = self.containment.is_on().then_some(self.containment);
        if let Some(failed) = trial::make_ready(checkout, config, contained, context)? {
            let why = match failed.end {
                TrialEnd::NotStarted(why) => why,
                TrialEnd::Exited(_) | TrialEnd::TimedOut => "setup failed".to_owned(),
            };
            let why = why.strip_prefix("cannot run: ").unwrap_or(&why).to_owned();
            return Ok((BaseTrialEnd::SetupFailed(why), failed.log));
        }
        let command = &config.guard.command;
        let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        let env = environment::for_checkout(checkout.path(), config);
        if let Some(why) = environment::cannot_start(&argv, checkout.path(), &env) {
            return Ok((BaseTrialEnd::NoProgram(why), Vec::new()));
        }
        let limit = Duration::from_secs(config.iteration_timeout_secs);
        let trial = trial::run(checkout, command, config, contained, limit, context)?;
        let end = match trial.end {
            TrialEnd::Exited(code) => BaseTrialEnd::Exited(code),
            TrialEnd::TimedOut => BaseTrialEnd::TimedOut,
            TrialEnd::NotStarted(why) => BaseTrialEnd::Lost(why),
        };
        Ok((end, trial.log))
    }

    /// Whether a file is in the commit, or lies in the user's checkout.
    fn has_file(&self, path: &str) -> bool {
        let committed = self.git.file_at(self.commit, path);
        !matches!(committed, Ok(None)) || self.git.root().join(path).symlink_metadata().is_ok()
    }

    /// Tries it once more with the ignored files of the user's checkout beside the commit. The
    /// guard never runs in that checkout itself: nobody knows what it would do there.
    fn is_green_with_ignored(&self, context: &mut RunContext<'_>) -> Result<bool> {
        let ignored = comparison::wanted(&self.git.ignored().unwrap_or_default());
        if ignored.is_empty() {
            return Ok(false);
        }
        let checkout = self.checkout()?;
        if !comparison::add_ignored(self.git.root(), checkout.path(), &ignored)? {
            return Ok(false);
        }
        let (end, _) = self.try_in(&checkout, context)?;
        Ok(end == BaseTrialEnd::Exited(0))
    }
}

impl FleetRepo {
    /// Tries setup and guard on a commit of the base, unless the answer is known.
    pub fn try_base(
        &self,
        commit: &str,
        config: &Config,
        context: &mut RunContext<'_>,
    ) -> Result<BaseVerdict> {
        let containment = match Containment::choose(config) {
            Ok(containment) => containment,
            Err(error) => return Ok(BaseVerdict::Unable(BaseProblem::of(error))),
        };
        let trial = BaseTrial {
            git: &self.git,
            config,
            containment: &containment,
            commit,
            history: commit,
        };
        trial.run(context)
    }

    /// Keeps in mind that the guard is green on a commit: it ran there in a clean checkout.
    pub fn note_green(&self, commit: &str, config: &Config, clock: &dyn WallClock) -> Result<()> {
        let tree = self.git.tree_of(commit)?;
        let key = cache::key(commit, &tree, config);
        BaseCache::of(&self.git, config)?.put(&key, &BaseVerdict::Green, clock.now())
    }
}
