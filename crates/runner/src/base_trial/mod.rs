//! Setup and guard tried on a base before any session, in a clean checkout: whether they can run
//! there at all, and whether the guard is green.

mod cache;
mod comparison;
pub(crate) mod evidence;
pub(crate) mod guard_file;
mod verdict;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::evidence::TestEvidence;

use crate::checkout::CleanCheckout;
use crate::checkout::missing_variable;
use crate::checkout::trial::{self, TrialEnd};
use crate::error::Result;
use crate::fleet_repo::FleetRepo;
use crate::git::Git;
use crate::run_context::{RunContext, WallClock};
use crate::step::containment::Containment;
use crate::step::environment;
use cache::BaseCache;
use evidence::BaseEvidence;
use verdict::{BaseFacts, BaseLack, BaseTrialEnd};
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
        let checkout = self.checkout()?;
        let (end, log, tests) = self.try_in(&checkout, self.config, context)?;
        let evidence = self.evidence()?;
        evidence.write(&tests)?;
        if let BaseTrialEnd::Exited(_) = end {
            evidence.write_changed(&checkout.checkout.tree.changed_files()?)?;
        }
        drop(checkout);
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
        ) && let Some(lack) = self.lack(&log, &lacking, context)?
        {
            verdict = BaseVerdict::Unable(verdict::green_elsewhere(command, &lack));
        }
        // The next trial is as good as what could not be kept.
        let _ = cache.put(&key, &verdict, context.clock.now());
        Ok(verdict)
    }

    /// What the guard showed there, once it was tried.
    pub(crate) fn evidence(&self) -> Result<BaseEvidence> {
        BaseEvidence::at(self.git, self.config, self.history)
    }

    fn checkout(&self) -> Result<CleanCheckout> {
        CleanCheckout::of(self.git, self.config, self.commit)
    }

    fn try_in(
        &self,
        checkout: &CleanCheckout,
        config: &Config,
        context: &mut RunContext<'_>,
    ) -> Result<(BaseTrialEnd, Vec<u8>, TestEvidence)> {
        let none = TestEvidence::default();
        let contained = self.containment.is_on().then_some(self.containment);
        if let Some(failed) = trial::make_ready(checkout, config, contained, context)? {
            let why = match failed.end {
                TrialEnd::NotStarted(why) => why,
                TrialEnd::Exited(_) | TrialEnd::TimedOut => "setup failed".to_owned(),
            };
            let why = why.strip_prefix("cannot run: ").unwrap_or(&why).to_owned();
            return Ok((BaseTrialEnd::SetupFailed(why), failed.log, none));
        }
        let command = &config.guard.command;
        let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        let env = environment::for_checkout(checkout.path(), config);
        if let Some(why) = environment::cannot_start(&argv, checkout.path(), &env) {
            return Ok((BaseTrialEnd::NoProgram(why), Vec::new(), none));
        }
        let limit = Duration::from_secs(config.iteration_timeout_secs);
        let trial = trial::run(checkout, command, config, contained, limit, context)?;
        let end = match trial.end {
            TrialEnd::Exited(code) => BaseTrialEnd::Exited(code),
            TrialEnd::TimedOut => BaseTrialEnd::TimedOut,
            TrialEnd::NotStarted(why) => BaseTrialEnd::Lost(why),
        };
        Ok((end, trial.log, trial.tests))
    }

    /// Whether a file is in the commit, or lies in the user's checkout.
    fn has_file(&self, path: &str) -> bool {
        let committed = self.git.file_at(self.commit, path);
        !matches!(committed, Ok(None)) || self.git.root().join(path).symlink_metadata().is_ok()
    }

    /// What a red guard lacks in a clean checkout: with these things of the user's it is green.
    /// `None`: it is red all the same. The guard never runs in the user's checkout itself: nobody
    /// knows what it would do there.
    fn lack(
        &self,
        log: &[u8],
        lacking: &[String],
        context: &mut RunContext<'_>,
    ) -> Result<Option<BaseLack>> {
        let ignored = comparison::wanted(&self.git.ignored().unwrap_or_default());
        // The base may hold merged work of agents, so only what it asks for by name is handed to it,
        // and no secrets.
        let mut variables = self.named(log, &missing_variable::unpassed(self.config))?;
        variables.retain(|name| !missing_variable::looks_secret(name));
        // Most often it is red with everything, too: that takes one more run and no more.
        if !self.is_green_with(&ignored, &variables, context)? {
            return Ok(None);
        }
        let files = lacking.to_vec();
        if variables.is_empty() || self.is_green_with(&ignored, &[], context)? {
            let variables = Vec::new();
            return Ok(Some(BaseLack { files, variables }));
        }
        let alone = self.is_green_with(&[], &variables, context)?;
        Ok(Some(BaseLack {
            files: if alone { Vec::new() } else { files },
            variables,
        }))
    }

    /// Whether the guard is green with these ignored files of the user's checkout beside the
    /// commit, and these variables of the user's shell.
    fn is_green_with(
        &self,
        ignored: &[PathBuf],
        variables: &[String],
        context: &mut RunContext<'_>,
    ) -> Result<bool> {
        if ignored.is_empty() && variables.is_empty() {
            return Ok(false);
        }
        let checkout = self.checkout()?;
        let is_copied = ignored.is_empty()
            || comparison::add_ignored(self.git.root(), checkout.path(), ignored)?;
        if !is_copied {
            // More than a comparison is worth.
            return self.is_green_with(&[], variables, context);
        }
        let mut config = self.config.clone();
        config.guard.env.extend_from_slice(variables);
        let (end, ..) = self.try_in(&checkout, &config, context)?;
        Ok(end == BaseTrialEnd::Exited(0))
    }

    /// Those of the variables that the guard's output names, or else its command and the files of
    /// the commit.
    fn named(&self, log: &[u8], variables: &[String]) -> Result<Vec<String>> {
        let told = verdict::named_in(&String::from_utf8_lossy(log), variables);
        if !told.is_empty() {
            return Ok(told);
        }
        let mut args = ["grep", "--no-color", "-h", "-o", "-I", "-w", "-F"]
            .map(str::to_owned)
            .to_vec();
        for name in variables {
            args.extend(["-e".to_owned(), name.clone()]);
        }
        let paths = ["--", ".", ":(exclude).runner"].map(str::to_owned);
        args.push(self.commit.to_owned());
        args.extend(paths);
        let found = self.git.ask(&args)?.unwrap_or_default();
        let mut text = self.config.guard.command.join(" ");
        text.push('\n');
        text.push_str(&String::from_utf8_lossy(&found));
        Ok(verdict::named_in(&text, variables))
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
