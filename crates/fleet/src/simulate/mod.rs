//! A seeded simulation: the same roles, a real ledger in memory, a clock that only the
//! scheduler moves, and workspaces that are a model.
//!
//! One seed is one schedule: which role moves next, what crashes where, which answer is
//! lost. The same seed gives the same trace, always.

mod chance;
mod check;
mod git;
mod outside;
mod schedule;
pub mod script;
mod shared;
#[cfg(test)]
mod tests;
mod workspaces;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use runner_core::config::FleetConfig;
use runner_ledger::{Ledger, LedgerCall, LedgerClock, LedgerError, Store};
use runner_lifecycle::{Policy, Request};

use crate::backlog::project::ProjectBacklog;
use crate::backlog::source::BacklogSource;
use crate::ledger_port::LedgerPort;
use crate::roles::cycle::{self, CycleStatistics};
use crate::roles::judge::JudgeRole;
use crate::roles::red_base::RedBaseRule;
use crate::roles::worker::WorkerRole;
use crate::roles::{FleetSettings, NoNotes, RoleContext, dispatcher, planner, watchdog};
use crate::rules::draft::TaskDefaults;
use crate::rules::policy::PathRules;
use crate::workspaces::StopHandle;
use chance::SimChance;
use check::SimLedger;
use outside::{SimBacklog, SimSource};
use schedule::{PERSON, SimRest, SimScheduler, SimSleeper, SimStart};
use script::{PersonAction, SimScript};
use shared::SimShared;
use workspaces::{ACCOUNT, SimWorkspaces};
use world::{START, SimClock, SimPoints, SimWorld};

pub use world::CrashAt;

/// How long a simulated fleet gets before it counts as stalled.
const LIMIT_DAYS: i64 = 40;
/// How long nothing may change before it counts as stalled.
const STALL_SECS: i64 = 4 * 3600;
/// How often a role may move before it counts as running in circles.
const POLL_LIMIT: u64 = 400_000;

/// What is simulated.
#[derive(Clone, Debug, Default)]
pub struct SimOptions {
    /// What happens; none: by chance.
    pub script: Option<SimScript>,
    /// Crashes by chance, at most; none: by chance as well.
    pub crashes: Option<u32>,
    /// Answers that get lost, at most; none: by chance as well.
    pub losses: Option<u32>,
    /// One crash at a certain point.
    pub crash_at: Option<CrashAt>,
    /// Whether the trace is kept as words.
    pub log: bool,
    /// Runs for so long, whatever is done; none: until everything is.
    pub for_secs: Option<u64>,
    #[cfg(test)]
    pub(crate) without: Option<crate::roles::RoleRule>,
    #[cfg(test)]
    pub(crate) flaw: Option<shared::SimFlaw>,
}

/// What a simulation came to.
#[derive(Clone, Debug)]
pub struct SimReport {
    /// The seed.
    pub seed: u64,
    /// What does not hold; empty: everything does.
    pub faults: Vec<String>,
    /// The trace as a number.
    pub trace: u64,
    /// Points that roles reached.
    pub points: u64,
    /// Crashes that happened.
    pub crashes: u32,
    /// How long it took, in simulated seconds.
    pub seconds: u64,
    /// Statements that the ledger was sent.
    pub statements: u64,
    /// Questions to models.
    pub model_calls: u64,
    /// Anything that the workspaces were asked.
    pub workspace_calls: u64,
    /// How often each call was made.
    pub calls: BTreeMap<&'static str, u64>,
    /// Every event, by task.
    pub history: Vec<String>,
    /// Each task and how it ended, as words.
    pub tasks: Vec<String>,
    /// The trace as words, if it was kept.
    pub log: Vec<String>,
}

impl SimReport {
    /// Whether everything holds.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Simulates one seed.
pub fn simulate(seed: u64, options: &SimOptions) -> SimReport {
    let mut chance = SimChance::new(seed);
    let script = match &options.script {
        Some(script) => script.clone(),
        None => SimScript::random(&mut chance),
    };
    let world = SimWorld::new(chance.next(), options.crash_at, options.log);
    {
        let mut state = world.state();
        state.crashes_left = options
            .crashes
            .unwrap_or_else(|| u32::try_from(chance.below(8)).unwrap_or(0));
        state.losses_left = options
            .losses
            .unwrap_or_else(|| u32::try_from(chance.below(4)).unwrap_or(0));
    }
    match Simulation::new(world.clone(), script, options) {
        Ok(simulation) => simulation.run(seed, options),
        Err(error) => SimReport {
            seed,
            faults: vec![format!("the simulation could not begin: {error}")],
            trace: world.trace(),
            points: 0,
            crashes: 0,
            seconds: 0,
            statements: 0,
            model_calls: 0,
            workspace_calls: 0,
            calls: BTreeMap::new(),
            history: Vec::new(),
            tasks: Vec::new(),
            log: world.log(),
        },
    }
}

struct Simulation {
    world: SimWorld,
    script: SimScript,
    policy: Policy,
    runtime: Arc<tokio::runtime::Runtime>,
    ledger: Ledger,
    shared: Arc<Mutex<SimShared>>,
    scheduler: SimScheduler,
}

impl Simulation {
    fn new(
        world: SimWorld,
        script: SimScript,
        options: &SimOptions,
    ) -> Result<Simulation, LedgerError> {
        let policy = Policy {
            dependency_grace_secs: script.dependency_grace_secs,
            ..Policy::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.map_err(|error| {
            LedgerError::from(runner_ledger::StoreError::Other(error.to_string()))
        })?;
        let clock: Arc<dyn LedgerClock> = Arc::new(SimClock(world.clone()));
        let ledger = runtime.block_on(Ledger::open(
            &Store::Memory,
            runner_ledger::LedgerOptions {
                policy: policy.clone(),
                clock,
                server_clock: false,
                ..runner_ledger::LedgerOptions::default()
            },
        ))?;
        for new in &script.tasks {
            let call = LedgerCall::new(new.id.clone(), "planner", Request::Create(new.clone()));
            runtime.block_on(ledger.call(&call))?;
        }
        #[cfg(test)]
        let flaw = options.flaw;
        #[cfg(not(test))]
        let flaw = None;
        let shared = Arc::new(Mutex::new(SimShared::new(script.clone(), flaw)));
        let mut simulation = Simulation {
            scheduler: SimScheduler::new(world.clone()),
            world,
            policy,
            runtime: Arc::new(runtime),
            ledger,
            shared,
            script,
        };
        let second = |at: u64| START + i64::try_from(at * 1000).unwrap_or(0);
        let sleepers = simulation.script.sleepers.iter();
        simulation.scheduler.sleepers = sleepers
            .map(|(name, from, to)| SimSleeper {
                name: name.clone(),
                from: second(*from),
                to: second(*to),
            })
            .collect();
        simulation.cast(options);
        Ok(simulation)
    }

    fn workspaces(&self, actor: usize) -> SimWorkspaces {
        SimWorkspaces {
            world: self.world.clone(),
            actor,
            shared: Arc::clone(&self.shared),
        }
    }

    fn context(&self, actor: usize, options: &SimOptions) -> RoleContext {
        let points = SimPoints {
            world: self.world.clone(),
            actor,
            runtime: Arc::clone(&self.runtime),
        };
        let paths = PathRules::new(&[], &[], 0, 0);
        let config = FleetConfig {
            review: self.script.review,
            ..FleetConfig::default()
        };
        let _ = options;
        RoleContext {
            halt: crate::roles::halt::FleetHalt::default(),
            ledger: LedgerPort::with_points(self.ledger.clone(), Arc::new(points)),
            workspaces: Arc::new(self.workspaces(actor)),
            clock: Arc::new(SimClock(self.world.clone())),
            settings: Arc::new(FleetSettings {
                base: "main".to_owned(),
                objective: String::new(),
                paths: paths.unwrap_or_else(|_| unreachable!("no globs, no fault")),
                review: self.script.review,
                models: vec!["small".to_owned(), "large".to_owned()],
                guard: vec!["true".to_owned()],
                host: "here".to_owned(),
                defaults: TaskDefaults::from(&config),
                replan: false,
                staffed: dispatcher::WORKING_ROLES.map(str::to_owned).to_vec(),
                on_red_base: RedBaseRule::Fix,
            }),
            notes: Arc::new(NoNotes),
            backlog: Arc::new(self.backlog(actor, TaskDefaults::from(&config))),
            life: 0,
            #[cfg(test)]
            without: options.without,
        }
    }

    fn backlog(&self, actor: usize, defaults: TaskDefaults) -> SimBacklog {
        let source = SimSource {
            world: self.world.clone(),
            shared: Arc::clone(&self.shared),
        };
        let requirement = self.script.requirement.clone();
        let ledger = self.ledger.clone();
        let sources: Vec<Arc<dyn BacklogSource>> = vec![Arc::new(source)];
        SimBacklog {
            world: self.world.clone(),
            actor,
            runtime: Arc::clone(&self.runtime),
            shared: Arc::clone(&self.shared),
            inner: ProjectBacklog::with_sources(requirement, sources, ledger, defaults),
        }
    }

    /// Puts everybody in place.
    fn cast(&mut self, options: &SimOptions) {
        self.role("keeper", options, |context, stop| async move {
            watchdog::run(&context, "keeper", stop).await
        });
        for at in 1..=self.script.role_leases {
            let name = format!("dispatcher-{at}");
            let own = name.clone();
            self.role(&name, options, move |context, stop| {
                let name = own.clone();
                async move { dispatcher::run(&context, &name, stop).await }
            });
            let name = format!("cycle-{at}");
            let own = name.clone();
            self.role(&name, options, move |context, stop| {
                let name = own.clone();
                async move { cycle::run(&context, &name, &CycleStatistics::default(), stop).await }
            });
        }
        let workers = (1..=self.script.workers).map(|at| (format!("worker-{at}"), "worker"));
        let others = ["tester", "docser"].map(|role| (format!("{role}-1"), role));
        for (name, role) in workers.chain(others).collect::<Vec<_>>() {
            let own = name.clone();
            self.role(&name, options, move |context, stop| {
                let worker = WorkerRole {
                    context,
                    name: own.clone(),
                    role: role.to_owned(),
                    account: ACCOUNT.to_owned(),
                };
                async move { worker.run(stop).await }
            });
        }
        for at in 1..=self.script.judges {
            let name = format!("judge-{at}");
            let own = name.clone();
            self.role(&name, options, move |context, stop| {
                let judge = JudgeRole {
                    context,
                    name: own.clone(),
                    account: ACCOUNT.to_owned(),
                };
                async move { judge.run(stop).await }
            });
        }
        if !self.script.requirement.is_empty() {
            self.role("planner", options, |context, stop| async move {
                planner::run(&context, "planner", stop).await
            });
        }
        self.person();
    }

    fn role<F, R>(&mut self, name: &str, options: &SimOptions, run: R)
    where
        R: Fn(RoleContext, crate::workspaces::StopSign) -> F + 'static,
        F: Future<Output = Result<(), LedgerError>> + 'static,
    {
        let context = self.context(self.scheduler.next_actor(), options);
        let start: SimStart = Box::new(move |life| {
            let context = RoleContext {
                life,
                ..context.clone()
            };
            let (stop_handle, stop) = StopHandle::new();
            let running = run(context, stop);
            let role = async move { running.await.map_err(|error| error.to_string()) };
            (Box::pin(role), Some(stop_handle))
        });
        self.scheduler.add(name, start);
    }

    /// A person who pushes, cancels and pauses.
    fn person(&mut self) {
        let (world, shared) = (self.world.clone(), Arc::clone(&self.shared));
        let (ledger, runtime) = (self.ledger.clone(), Arc::clone(&self.runtime));
        let mut actions = self.script.actions.clone();
        actions.sort_by_key(|(at, _)| *at);
        let start: SimStart = Box::new(move |_| {
            let (world, shared) = (world.clone(), Arc::clone(&shared));
            let (ledger, runtime) = (ledger.clone(), Arc::clone(&runtime));
            let actions = actions.clone();
            let person = async move {
                let clock = SimClock(world.clone());
                let begin = runner_lifecycle::Timestamp(START);
                for (at, action) in actions {
                    let at = begin.plus_secs(at);
                    clock.sleep_until(at).await;
                    world.say(|| format!("a person: {action:?}"));
                    match action {
                        PersonAction::Push { path, content } => {
                            let mut shared = shared
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner);
                            let commit = shared.repo.push(&path, &content);
                            shared.pushed.push(commit);
                        }
                        PersonAction::Cancel(id) => {
                            let reason = "not needed".to_owned();
                            let call = LedgerCall::new(id, "person", Request::Cancel { reason });
                            // It may have ended, or be in the middle of its merge.
                            drop(runtime.block_on(ledger.call(&call)));
                        }
                        PersonAction::Accept(id) => {
                            let reason = "read and right".to_owned();
                            let accept = Request::AcceptJudge { reason };
                            // It may not wait for that, or not yet.
                            let call = LedgerCall::new(id, "person", accept);
                            drop(runtime.block_on(ledger.call(&call)));
                        }
                        PersonAction::Pause(paused) => {
                            drop(runtime.block_on(ledger.set_paused(paused)));
                        }
                        PersonAction::Distrust(id) => {
                            let block = Request::Block {
                                code: runner_lifecycle::RefusalCode::LedgerInconsistent,
                                reason: "something does not fit".to_owned(),
                                waits_for: None,
                            };
                            // Somebody may be at it, or it has ended.
                            drop(
                                runtime
                                    .block_on(ledger.call(&LedgerCall::new(id, "person", block))),
                            );
                        }
                        PersonAction::Stop { name, secs } => world.state().stops.push((name, secs)),
                        PersonAction::Issue { .. }
                        | PersonAction::Pull { .. }
                        | PersonAction::ClosePull(_) => {
                            outside(&shared, action, world.time());
                        }
                    }
                }
                Ok(())
            };
            (Box::pin(person), None)
        });
        self.scheduler.add(PERSON, start);
    }

    fn run(mut self, seed: u64, options: &SimOptions) -> SimReport {
        let limit = START + LIMIT_DAYS * 24 * 3600 * 1000;
        let until = options
            .for_secs
            .map(|secs| START + i64::try_from(secs * 1000).unwrap_or(0));
        let mut faults = Vec::new();
        let mut changes = self.runtime.block_on(self.ledger.listen()).ok();
        let mut changed = true;
        let mut last_change = self.world.time().0;
        loop {
            if self.scheduler.settle() == SimRest::Still {
                break;
            }
            if self.scheduler.polls > POLL_LIMIT {
                faults.push("it runs in circles".to_owned());
                break;
            }
            for name in std::mem::take(&mut self.scheduler.stopped) {
                faults.extend(self.left_by(&name));
            }
            let now = self.world.time().0;
            if changes.as_mut().is_none_or(has_heard) {
                (changed, last_change) = (true, now);
            }
            if until.is_none() && now - last_change > STALL_SECS * 1000 {
                faults.push("nothing moves any longer".to_owned());
                break;
            }
            if until.is_none() && changed {
                match self.is_over() {
                    Ok(Some(true)) => break,
                    Ok(Some(false)) => changed = false,
                    Ok(None) => {}
                    Err(error) => {
                        faults.push(error.to_string());
                        break;
                    }
                }
            }
            let Some(next) = self.scheduler.next_time() else {
                break;
            };
            if until.is_some_and(|until| next > until) {
                break;
            }
            if next > limit {
                faults.push(format!("it does not end within {LIMIT_DAYS} days"));
                break;
            }
            self.world.advance(next.max(now));
        }
        self.report(seed, faults)
    }

    /// What a role holds that was told to stop and did.
    fn left_by(&self, name: &str) -> Vec<String> {
        let leases = self.runtime.block_on(self.ledger.leases());
        let leases = leases.unwrap_or_default().into_iter();
        // What it is given in the moment in which it leaves is taken back by itself.
        let now = self.world.time();
        leases
            .filter(|lease| lease.owner == name && lease.claimed_at < now)
            .map(|lease| format!("{name} has stopped and holds {}", lease.task_id))
            .collect()
    }

    /// Whether every task has ended, or waits for somebody outside. None: it is too soon to
    /// say.
    fn is_over(&self) -> Result<Option<bool>, LedgerError> {
        let seconds = (self.world.time().0 - START) / 1000;
        if seconds <= i64::try_from(self.script.last_action()).unwrap_or(0) {
            return Ok(None);
        }
        if !self.script.requirement.is_empty() && seconds < 600 {
            return Ok(None);
        }
        let tasks = self.runtime.block_on(check::tasks(&self.ledger))?;
        if tasks
            .iter()
            .any(|task| task.state == runner_lifecycle::TaskState::InProgress)
        {
            return Ok(Some(false));
        }
        let red = self.runtime.block_on(self.ledger.red_base())?;
        let now = self.world.time();
        Ok(Some(tasks.iter().all(|task| {
            task.state.is_terminal()
                || check::waits_for_others(task, &tasks, red.as_ref(), &self.policy, now)
        })))
    }

    fn report(self, seed: u64, mut faults: Vec<String>) -> SimReport {
        let now = self.world.time();
        let statements = self.ledger.statements();
        let everything = self.runtime.block_on(SimLedger::read(&self.ledger));
        let shared = self.workspaces(0);
        let shared = shared.shared();
        let (mut tasks, mut history) = (Vec::new(), Vec::new());
        let sleepers = self.script.sleepers.iter();
        let sleepers: Vec<usize> = sleepers
            .filter_map(|(name, ..)| self.scheduler.actor(name))
            .collect();
        match everything {
            Ok(everything) => {
                history = everything.history();
                faults.extend(everything.faults(&shared, &sleepers, &self.policy, now));
                tasks.extend(everything.tasks.iter().map(|task| {
                    let reason = task.blocked_on().map_or("-", |reason| reason.as_str());
                    format!("{} {} {reason}: {}", task.id, task.state, task.title)
                }));
            }
            Err(error) => faults.push(error.to_string()),
        }
        faults.extend(self.scheduler.ends.iter().cloned());
        let state = self.world.state();
        let (points, crashes) = (state.points, state.crashes);
        let calls = state.calls.clone();
        drop(state);
        SimReport {
            seed,
            faults,
            trace: self.world.trace(),
            points,
            crashes,
            seconds: now.millis_since(runner_lifecycle::Timestamp(START)) / 1000,
            statements,
            model_calls: shared.model_calls,
            workspace_calls: shared.calls,
            calls,
            history,
            tasks,
            log: self.world.log(),
        }
    }
}

/// Whether something was written since the last time.
fn has_heard(notifications: &mut runner_ledger::StoreNotifications) -> bool {
    let mut next = std::pin::pin!(notifications.next());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    next.as_mut().poll(&mut context).is_ready()
}

/// Something changes outside.
fn outside(shared: &Mutex<SimShared>, action: PersonAction, now: runner_lifecycle::Timestamp) {
    let mut shared = shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match action {
        PersonAction::Issue { number, text } => {
            shared.outside.issues.insert(number, text);
        }
        PersonAction::Pull {
            number,
            path,
            content,
        } => shared.pull(number, &path, &content, now),
        PersonAction::ClosePull(number) => {
            if let Some(pull) = shared.outside.pulls.get_mut(&number) {
                pull.closed = true;
            }
        }
        _ => {}
    }
    shared.outside.announce();
}
