//! Setup and guard tried on a base before any session, in a clean checkout: whether they can run
//! there at all, and whether the guard is green.

mod cache;
pub(crate) mod comparison;
pub(crate) mod evidence;
pub(crate) mod guard_file;
mod lack;
mod outside_paths;
mod remote_refs;
mod verdict;
mod writable_home;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::evidence::TestEvidence;

use crate::checkout::CleanCheckout;
use crate::checkout::caches::CacheFill;
use crate::checkout::missing_variable;
use crate::checkout::trial::{self, GuardCommand, GuardTrial, TrialEnd};
use crate::error::Result;
use crate::fleet_repo::FleetRepo;
use crate::git::Git;
use crate::grants::{GrantAdvice, GrantContext};
use crate::run_context::{RunContext, WallClock};
use crate::step::containment::{Containment, shared_temp_folders};
use crate::step::environment;
use cache::BaseCache;
use evidence::BaseEvidence;
use lack::BaseLack;
use remote_refs::RemoteRef;
pub(crate) use verdict::not_there_yet;
use verdict::{BaseFacts, BaseTrialEnd};
pub use verdict::{BaseProblem, BaseVerdict};
pub(crate) use writable_home::as_at_home;

/// What a guard is given of the user's, to see whether it lacks that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BaseExtras {
    /// Ignored files, beside the commit.
    ignored: Vec<PathBuf>,
    /// Variables of the shell; those that look like secrets with a stand-in for their value.
    variables: Vec<String>,
    /// Remote-tracking branches.
    remote_refs: Vec<RemoteRef>,
    /// Paths from the home folder that it may write, in a home of its own.
    home_paths: Vec<PathBuf>,
    /// What lies beside the project, by its name.
    beside: Vec<String>,
    /// Paths in the temp folder that it may see.
    temp_paths: Vec<PathBuf>,
}

impl BaseExtras {
    /// How to leave each of them out.
    const PARTS: [fn(&mut Self); 6] = [
        |it| it.variables.clear(),
        |it| it.temp_paths.clear(),
        |it| it.beside.clear(),
        |it| it.ignored.clear(),
        |it| it.remote_refs.clear(),
        |it| it.home_paths.clear(),
    ];
}

/// What a guard gets for the value of a variable that looks like a secret: the base may hold merged
/// work of agents, and no secret is handed to it unasked.
const STAND_IN: &str = "runner-stand-in";

/// Names what a guard may see in the temp folder, as far as its environment says so.
const IN_SIGHT: &str = "RUNNER_IN_SIGHT";

/// The user's home folder.
fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// Paths from the home folder, for people.
fn shown_at_home(paths: &[PathBuf]) -> Vec<String> {
    let shown = paths.iter().map(|path| format!("~/{}", path.display()));
    shown.collect()
}

/// Variables that look like secrets, and the others.
fn secrets_and_others(names: &[String]) -> (Vec<String>, Vec<String>) {
    let names = names.iter().cloned();
    names.partition(|name| missing_variable::looks_secret(name))
}

/// A base to try.
pub(crate) struct BaseTrial<'a> {
    pub(crate) git: &'a Git,
    pub(crate) config: &'a Config,
    pub(crate) containment: &'a Containment,
    /// What is checked out.
    pub(crate) commit: &'a str,
    /// The commit that its history is of: the same, or its parent where the runner made it.
    pub(crate) history: &'a str,
    /// What of the trial may fill the cache of verdicts.
    pub(crate) fill: CacheFill,
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
        let (end, tried) = self.try_in(&checkout, self.config, &[], context)?;
        let evidence = self.evidence()?;
        evidence.write(&tried.tests)?;
        if let BaseTrialEnd::Exited(_) = end {
            evidence.write_changed(&tried.changed)?;
        }
        drop(checkout);
        let verdict = self.verdict_of(&end, &tried.log, context)?;
        // The next trial is as good as what could not be kept.
        let _ = cache.put(&key, &verdict, context.clock.now());
        Ok(verdict)
    }

    /// What an exit code of the guard says about the base, after it was tried there.
    pub(crate) fn verdict_after(
        &self,
        exit: i32,
        log: &[u8],
        context: &mut RunContext<'_>,
    ) -> Result<BaseVerdict> {
        self.verdict_of(&BaseTrialEnd::Exited(exit), log, context)
    }

    /// The file that defines the guard, if it can be told and is missing everywhere.
    pub(crate) fn missing_guard_file(&self) -> Result<Option<String>> {
        let command = &self.config.guard.command;
        // What git ignores is installed, and no session can write it into a commit.
        Ok(
            match guard_file::missing(command, |path| self.has_file(path)) {
                Some(file) if self.git.ignores(&file)? => None,
                file => file,
            },
        )
    }

    fn verdict_of(
        &self,
        end: &BaseTrialEnd,
        log: &[u8],
        context: &mut RunContext<'_>,
    ) -> Result<BaseVerdict> {
        let lacking = trial::lacking(self.git);
        let named = self.named_lacks(log)?;
        let remote_refs: Vec<String> = named.remote_refs.into_iter().map(|it| it.name).collect();
        let guard_file = self.missing_guard_file()?;
        let mut verdict = verdict::judge(&BaseFacts {
            end,
            log,
            config: self.config,
            guard_file,
            lacking: &lacking,
            unpassed: &verdict::unpassed(log, self.config),
            remote_refs: &remote_refs,
            home_paths: &shown_at_home(&named.home_paths),
        });
        if matches!(
            (&verdict, end),
            (BaseVerdict::Red(_), BaseTrialEnd::Exited(_))
        ) && let Some(problem) = self.red_here_alone(log, &lacking, context)?
        {
            verdict = BaseVerdict::Unable(problem);
        }
        Ok(verdict)
    }

    /// What the guard showed there, once it was tried.
    pub(crate) fn evidence(&self) -> Result<BaseEvidence> {
        BaseEvidence::at(self.git, self.config, self.history)
    }

    fn checkout(&self) -> Result<CleanCheckout> {
        let made = CleanCheckout::of(self.git, self.config, self.commit)?;
        made.checkout.cache_fill.set(self.fill);
        Ok(made)
    }

    fn try_in(
        &self,
        checkout: &CleanCheckout,
        config: &Config,
        more_env: &[(OsString, OsString)],
        context: &mut RunContext<'_>,
    ) -> Result<(BaseTrialEnd, GuardTrial)> {
        let contained = self.containment.is_on().then_some(self.containment);
        if let Some(failed) = trial::make_ready(checkout, config, contained, context)? {
            let why = match &failed.end {
                TrialEnd::NotStarted(why) => why.clone(),
                TrialEnd::Exited(_) | TrialEnd::TimedOut => "setup failed".to_owned(),
            };
            let why = why.strip_prefix("cannot run: ").unwrap_or(&why).to_owned();
            // What setup printed is no evidence of the guard's.
            let tests = TestEvidence::default();
            return Ok((
                BaseTrialEnd::SetupFailed(why),
                GuardTrial { tests, ..failed },
            ));
        }
        let command = &config.guard.command;
        let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        let env = environment::for_checkout(checkout.path(), config);
        if let Some(why) = environment::cannot_start(&argv, checkout.path(), &env) {
            let tried = trial::not_started(why.clone());
            return Ok((BaseTrialEnd::NoProgram(why), tried));
        }
        let limit = Duration::from_secs(config.iteration_timeout_secs);
        let guard = GuardCommand {
            argv: command,
            more_env,
        };
        let trial = trial::run_with(checkout, guard, config, contained, limit, context)?;
        let end = match &trial.end {
            TrialEnd::Exited(code) => BaseTrialEnd::Exited(*code),
            TrialEnd::TimedOut => BaseTrialEnd::TimedOut,
            TrialEnd::NotStarted(why) => BaseTrialEnd::Lost(why.clone()),
        };
        Ok((end, trial))
    }

    /// Whether a file is in the commit, or lies in the user's checkout.
    fn has_file(&self, path: &str) -> bool {
        let committed = self.git.file_at(self.commit, path);
        !matches!(committed, Ok(None)) || self.git.root().join(path).symlink_metadata().is_ok()
    }

    /// Why a guard is red in a clean checkout and would not be in the user's own. `None`: it is red
    /// all the same.
    fn red_here_alone(
        &self,
        log: &[u8],
        lacking: &[String],
        context: &mut RunContext<'_>,
    ) -> Result<Option<BaseProblem>> {
        let command = &self.config.guard.command;
        if let Some(lack) = self.lack(log, lacking, context)? {
            return Ok(Some(lack::green_elsewhere(command, &lack)));
        }
        let mut secrets = missing_variable::find(log, self.config);
        secrets.retain(|name| missing_variable::looks_secret(name));
        Ok((!secrets.is_empty()).then(|| lack::lacks_secrets(command, &secrets)))
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
        // The base may hold merged work of agents, so only what it asks for by name is handed to it.
        let variables = self.named(log, &missing_variable::unpassed(self.config))?;
        let named = self.named_lacks(log)?;
        let mut given = BaseExtras {
            ignored: comparison::wanted(&self.git.ignored().unwrap_or_default()),
            variables,
            ..named
        };
        self.add_outside(log, &mut given)?;
        // Most often it is red with everything, too: that takes one more run and no more.
        if !self.is_green_with(&given, context)? {
            return Ok(None);
        }
        // Whatever it is green without is not what it lacks.
        for leave_out in BaseExtras::PARTS {
            let mut fewer = given.clone();
            leave_out(&mut fewer);
            if fewer != given && self.is_green_with(&fewer, context)? {
                given = fewer;
            }
        }
        let files = if given.ignored.is_empty() {
            Vec::new()
        } else {
            lacking.to_vec()
        };
        let (secrets, variables) = secrets_and_others(&given.variables);
        let temp_paths = given.temp_paths.iter();
        Ok(Some(BaseLack {
            files,
            variables,
            secrets,
            remote_refs: given.remote_refs.into_iter().map(|it| it.name).collect(),
            home_folders: self.home_folders(&given.home_paths),
            home_paths: shown_at_home(&given.home_paths),
            beside: given.beside.iter().map(|it| format!("../{it}")).collect(),
            temp_paths: temp_paths.map(|it| it.display().to_string()).collect(),
        }))
    }

    /// What may be opened to the guard.
    fn grants(&self) -> GrantContext<'static> {
        GrantContext::of(self.config, self.git.root(), &[])
    }

    /// The folders to open, so that these paths in the home folder can be written.
    fn home_folders(&self, paths: &[PathBuf]) -> Vec<String> {
        let Some(home) = home().filter(|_| !paths.is_empty()) else {
            return Vec::new();
        };
        let context = self.grants();
        let advised = paths.iter().map(|path| context.advise(&home.join(path)));
        let folders: BTreeSet<String> = advised
            .filter_map(|advice| match advice {
                GrantAdvice::Writable(folder) => Some(context.shown(&folder)),
                GrantAdvice::Hidden(_) | GrantAdvice::Closed(_) => None,
            })
            .collect();
        folders.into_iter().collect()
    }

    /// Adds what lies outside the project, where the guard, the files of the commit or ignored
    /// links name it and it cannot be seen in a clean checkout.
    fn add_outside(&self, log: &[u8], given: &mut BaseExtras) -> Result<()> {
        let mut text = String::from_utf8_lossy(log).into_owned();
        let links = given.ignored.iter();
        let links = links.filter_map(|name| std::fs::read_link(self.git.root().join(name)).ok());
        let links: Vec<String> = links.map(|to| to.display().to_string()).collect();
        let mut temp_folders = shared_temp_folders();
        // What lies around the project is named by everybody.
        temp_folders.retain(|temp| !self.git.root().starts_with(temp));
        for words in [
            self.config.guard.command.join(" "),
            self.committed_words(&outside_paths::patterns(&temp_folders))?,
            links.join("\n"),
        ] {
            text.push('\n');
            text.push_str(&words);
        }
        if self.containment.has_mounts() {
            let named = temp_folders.iter();
            given.temp_paths = named
                .flat_map(|temp| outside_paths::below(&text, temp))
                .collect();
        } else {
            given.beside = outside_paths::beside(&text, self.git.root());
        }
        Ok(())
    }

    /// What of the files of the commit matches any of these expressions.
    fn committed_words(&self, expressions: &[String]) -> Result<String> {
        let mut args = ["grep", "--no-color", "-h", "-o", "-I", "-E"]
            .map(str::to_owned)
            .to_vec();
        for expression in expressions {
            args.extend(["-e".to_owned(), expression.clone()]);
        }
        args.push(self.commit.to_owned());
        args.extend(["--", ".", ":(exclude).runner"].map(str::to_owned));
        let found = self.git.ask(&args)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&found).into_owned())
    }

    /// What the output of a guard names that only the user's own checkout, or the world outside
    /// the sandbox, has.
    fn named_lacks(&self, log: &[u8]) -> Result<BaseExtras> {
        let mut text = String::from_utf8_lossy(log).into_owned();
        let home_paths = match home().filter(|_| self.containment.is_on()) {
            Some(home) => {
                text = writable_home::as_at_home(&text, &std::env::temp_dir(), &home);
                let refused = writable_home::refused_in(&text, &home).into_iter();
                let context = self.grants();
                // What is hidden or decides verdicts is neither handed to it nor proposed.
                let is_open = |path: &PathBuf| {
                    matches!(context.advise(&home.join(path)), GrantAdvice::Writable(_))
                };
                refused.filter(is_open).collect()
            }
            None => Vec::new(),
        };
        text.push_str(&self.config.guard.command.join(" "));
        Ok(BaseExtras {
            remote_refs: remote_refs::named_in(self.git, &text)?,
            home_paths,
            ..BaseExtras::default()
        })
    }

    /// Whether the guard is green with these things of the user's.
    fn is_green_with(&self, given: &BaseExtras, context: &mut RunContext<'_>) -> Result<bool> {
        if *given == BaseExtras::default() {
            return Ok(false);
        }
        let checkout = self.checkout()?;
        let is_copied = given.ignored.is_empty()
            || comparison::add_ignored(self.git.root(), checkout.path(), &given.ignored)?;
        if !is_copied {
            // More than a comparison is worth.
            let ignored = Vec::new();
            let fewer = BaseExtras {
                ignored,
                ..given.clone()
            };
            return self.is_green_with(&fewer, context);
        }
        remote_refs::add(checkout.path(), &given.remote_refs)?;
        let mut env = Vec::new();
        if let Some(home) = home().filter(|_| !given.home_paths.is_empty()) {
            let folder = checkout.path().join(writable_home::FOLDER);
            writable_home::make(&home, &folder, &given.home_paths)?;
            let seen = self.containment.seen(&checkout.checkout);
            let seen = seen.join(writable_home::FOLDER);
            env.push(("HOME".into(), seen.into()));
        }
        if !given.temp_paths.is_empty() {
            let paths = std::env::join_paths(&given.temp_paths);
            env.push((IN_SIGHT.into(), paths.unwrap_or_default()));
        }
        let beside = given.beside.iter();
        let links: Result<Vec<_>> = beside
            .map(|name| checkout.link_beside(name, &self.git.root().join("..").join(name)))
            .collect();
        let _links = links?;
        let (secrets, variables) = secrets_and_others(&given.variables);
        env.extend(secrets.iter().map(|name| (name.into(), STAND_IN.into())));
        let mut config = self.config.clone();
        config.guard.env.extend(variables);
        let (end, ..) = self.try_in(&checkout, &config, &env, context)?;
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
            // It may hold merged work of agents.
            fill: CacheFill::Setup,
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
