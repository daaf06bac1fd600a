//! What every role of a fleet needs: the project, its config, the ledger and the workspaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use runner::fleet_repo::FleetRepo;
use runner::{Error, ErrorCode, Project, Result, RunProgress};
use runner_agents::AgentEvent;
use runner_core::config::{Config, FleetConfig};
use runner_core::paths;
use runner_exec::Supervisor;
use runner_fleet::backlog::project::ProjectBacklog;
use runner_fleet::host::{HostProfile, system_look};
use runner_fleet::local::{LocalWorkspaces, WorkspaceContext};
use runner_fleet::names::AgentNames;
use runner_fleet::notes::LocalNotes;
use runner_fleet::roles::FleetSettings;
use runner_fleet::roles::red_base::RedBaseRule;
use runner_fleet::rules::draft::TaskDefaults;
use runner_fleet::rules::policy::PathRules;
use runner_fleet::up::{Fleet, FleetContext};
use runner_fleet::workspaces::WorkspaceError;
use runner_ledger::{Ledger, LedgerClock, LedgerOptions, Store, StoreError, SystemClock};
use runner_lifecycle::policy::Policy;

use crate::commands::ledger::store;
use crate::fleet_args::ApiArgs;
use crate::ledger_args::StoreArgs;
use crate::out::OutputGate;
use crate::style;

/// How many seconds a task waits after its first failed run, for tests and demos.
pub(super) const COOLDOWN_VARIABLE: &str = "RUNNER_FLEET_COOLDOWN_SECS";

/// What the sessions of runs do right now, by the id of the run.
pub(super) type SessionActivities = Arc<Mutex<BTreeMap<String, String>>>;

/// What a fleet stands on before its ledger is open.
pub(super) struct CommandContext {
    pub(super) root: PathBuf,
    pub(super) fleet_dir: PathBuf,
    /// Where the keys of the API are: outside the project.
    pub(super) keys: PathBuf,
    pub(super) config: Config,
    pub(super) store: Store,
    pub(super) names: AgentNames,
    /// What was found out because there was no config.
    pub(super) guessed: Option<runner::InitGuess>,
    pub(super) doing: SessionActivities,
    /// The address that the API listens on.
    pub(super) bind: IpAddr,
    /// How long a task waits after its first failed run, if not as always.
    pub(super) cooldown_secs: Option<u64>,
    /// What begins while the base is red.
    pub(super) on_red_base: RedBaseRule,
    workspaces: Arc<LocalWorkspaces>,
    host: String,
}

/// What roles share once the ledger is open.
pub(super) struct LedgerContext {
    pub(super) fleet: Fleet,
    pub(super) backlog: ProjectBacklog,
    pub(super) host: HostProfile,
}

impl CommandContext {
    /// Goes by what was said about the API.
    pub(super) fn serve_at(&mut self, at: &ApiArgs) {
        self.bind = at.bind;
        if let Some(port) = at.port {
            self.config.fleet.port = port;
        }
    }

    /// Looks at the project. The only thing written is in the fleet's own folder.
    pub(super) fn find(dir: &Path, args: &StoreArgs) -> Result<CommandContext> {
        let (root, repo) = open_repo(dir)?;
        let mut guessed = None;
        if let Err(error) = repo.config_text() {
            if error.code != ErrorCode::Layout {
                return Err(error);
            }
            let guess = runner::guess(&root)?;
            runner::files::write_whole(&root.join(paths::FLEET_CONFIG), guess.config.as_bytes())?;
            guessed = Some(guess);
        }
        let config = repo.config()?;
        let base = &config.fleet.base;
        if base.is_empty() {
            repo.refuse_branch_of_run()?;
        }
        let doing = SessionActivities::default();
        let workspaces = LocalWorkspaces::open(WorkspaceContext {
            root: root.clone(),
            base: (!base.is_empty()).then(|| base.clone()),
            supervisor: Supervisor::this_binary(),
            watcher: Some(watcher(&doing)),
        })
        .map_err(|error| in_words(&error))?;
        let store = store(dir, args)?;
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let fleet_dir = root.join(paths::FLEET_DIR);
        let shared = matches!(store, Store::Postgres(_));
        Ok(CommandContext {
            names: AgentNames::of_project(&fleet_dir, shared.then_some(host.as_str())),
            on_red_base: RedBaseRule::default(),
            workspaces: Arc::new(workspaces),
            root,
            fleet_dir,
            keys: repo.key_folder()?,
            config,
            store,
            guessed,
            doing,
            bind: Ipv4Addr::LOCALHOST.into(),
            cooldown_secs: std::env::var(COOLDOWN_VARIABLE)
                .ok()
                .and_then(|text| text.parse().ok()),
            host,
        })
    }

    /// Refuses to begin where everybody would fail: a task that is given up because a program
    /// was not installed needs a person to come back.
    pub(super) fn check_programs(&self, agent: bool, guard: bool) -> Result<()> {
        if agent {
            runner::agent_is_there(&self.config, &self.root)?;
        }
        if guard {
            runner::guard_is_there(&self.config, &self.root)?;
        }
        Ok(())
    }

    /// Git, guards and sessions of the project.
    pub(super) fn workspaces(&self) -> &LocalWorkspaces {
        &self.workspaces
    }

    /// The branch that results are merged into.
    pub(super) fn base(&self) -> &str {
        self.workspaces.base_branch()
    }

    /// `[fleet]`.
    pub(super) fn settings(&self) -> &FleetConfig {
        &self.config.fleet
    }

    /// Opens the ledger with the numbers of the config.
    pub(super) async fn open(&self) -> std::result::Result<Ledger, StoreError> {
        let options = LedgerOptions {
            policy: self.policy(),
            ..LedgerOptions::default()
        };
        Ledger::open(&self.store, options).await
    }

    /// The numbers of the rules, as the config has them.
    fn policy(&self) -> Policy {
        let default = Policy::default();
        let hours = self.settings().dependency_grace_hours;
        Policy {
            dependency_grace_secs: u64::from(hours) * 3600,
            cooldown_base_secs: self.cooldown_secs.unwrap_or(default.cooldown_base_secs),
            ..default
        }
    }

    /// Puts roles together; nobody is at work yet.
    pub(super) fn roles(
        &self,
        ledger: Ledger,
        requirement: Option<String>,
    ) -> Result<LedgerContext> {
        let clock: Arc<dyn LedgerClock> = Arc::new(SystemClock);
        let look = system_look(Supervisor::this_binary(), std::env::var_os("PATH"));
        let host = HostProfile::new(&self.fleet_dir, Arc::clone(&clock), look);
        let defaults = TaskDefaults::from(self.settings());
        let backlog = ProjectBacklog::new(&self.root, requirement, ledger.clone(), defaults);
        let notes = LocalNotes::new(&self.fleet_dir, host.clone(), Arc::clone(&clock));
        let fleet = Fleet::new(FleetContext {
            ledger,
            workspaces: Arc::clone(&self.workspaces) as Arc<_>,
            clock,
            settings: self.role_settings(defaults)?,
            notes: Arc::new(notes),
            backlog: Arc::new(backlog.clone()),
            account: self.config.executor.backend.as_str().to_owned(),
        });
        Ok(LedgerContext {
            fleet,
            backlog,
            host,
        })
    }

    fn role_settings(&self, defaults: TaskDefaults) -> Result<FleetSettings> {
        let (config, fleet) = (&self.config, self.settings());
        let paths = PathRules::new(
            &config.guard.protected,
            &config.commit.deny,
            fleet.max_changed_files,
            fleet.max_changed_bytes,
        )
        .map_err(|error| Error::new(ErrorCode::Config, error.to_string()))?;
        Ok(FleetSettings {
            base: self.base().to_owned(),
            objective: format!(
                "everything that is asked for is merged into {}",
                self.base()
            ),
            paths,
            review: fleet.review,
            models: fleet.models.clone(),
            guard: config.guard.command.clone(),
            host: self.host.clone(),
            defaults,
            replan: false,
            on_red_base: self.on_red_base,
            staffed: [
                ("worker", fleet.workers),
                ("tester", fleet.testers),
                ("docser", fleet.docsers),
            ]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(role, _)| role.to_owned())
            .collect(),
        })
    }

    /// Says what was found out in place of a config.
    pub(super) fn tell_guess(&self, out: &mut OutputGate) {
        let Some(guess) = &self.guessed else { return };
        let (guard, why) = &guess.guard;
        out.say(&format!(
            "no config here, so the fleet goes by {} (git ignores it); `runner init` makes one to keep",
            paths::FLEET_CONFIG
        ));
        out.say(&format!("  guard:   {} ({why})", guard.join(" ")));
        if let Some(program) = &guess.missing {
            out.say(&format!(
                "           `{program}` cannot be started here: install it, or change the guard"
            ));
        }
        let (backend, why) = &guess.backend;
        out.say(&format!("  agent:   {backend} ({why})"));
    }
}

/// The project around a folder, with the branch that is checked out or the one that its config names.
pub(super) fn open_repo(dir: &Path) -> Result<(PathBuf, FleetRepo)> {
    let project = Project::of_work_tree(dir)?;
    let root = project.root().to_owned();
    // The first look makes the fleet's folder, which ignores itself.
    let repo = FleetRepo::open(&root, None).or_else(|error| match base_of(&root) {
        Some(base) => FleetRepo::open(&root, Some(&base)),
        None => Err(error),
    })?;
    Ok((root, repo))
}

/// The requirement that was given, from the file that it names.
pub(super) fn requirement(given: Option<&str>) -> Result<Option<String>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let text = match given.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Error::new(ErrorCode::NotFound, format!("{path}: {error}")))?,
        None => given.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Error::new(ErrorCode::Config, "--requirement says nothing")
            .hint("for example: --requirement 'The parser accepts comments'"));
    }
    Ok(Some(text))
}

/// An error of the workspaces as one of the command line.
pub(super) fn in_words(error: &WorkspaceError) -> Error {
    Error::new(ErrorCode::Git, error.0.clone())
}

/// `[fleet] base` of a checkout in which no branch is checked out.
fn base_of(root: &Path) -> Option<String> {
    let project = Project::of_work_tree(root).ok()?;
    let base = runner::config_of(&project).ok()?.fleet.base;
    (!base.is_empty()).then_some(base)
}

/// Keeps the last word of every session.
fn watcher(doing: &SessionActivities) -> runner_fleet::local::RunWatcher {
    let doing = Arc::clone(doing);
    Arc::new(move |run, progress| {
        let word = match progress {
            RunProgress::Agent => "agent".to_owned(),
            RunProgress::Guard => "guard".to_owned(),
            RunProgress::AgentEvent(AgentEvent::Command {
                command,
                running: true,
                ..
            }) => style::one_line(command, 60),
            RunProgress::Ended(_) => String::new(),
            _ => return,
        };
        let mut doing = doing.lock().unwrap_or_else(PoisonError::into_inner);
        if word.is_empty() {
            doing.remove(run);
        } else {
            doing.insert(run.to_owned(), word);
        }
    })
}
