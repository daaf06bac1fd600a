//! A fleet that is up: roles of one process, each a task of its own, over one context, until
//! the stop sign or until there is nothing left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runner_ledger::{Ledger, LedgerClock, LedgerError, StoreNotifications};
use runner_lifecycle::{Task, TaskState};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::at_rest::is_settled;
use crate::backlog::FleetBacklog;
use crate::backlog::project::with_counts;
use crate::ledger_port::{LedgerPort, LedgerResult};
use crate::names::AgentName;
use crate::roles::cycle::{self, CycleStatistics};
use crate::roles::dispatcher::{self, WORKING_ROLES};
use crate::roles::halt::FleetHalt;
use crate::roles::judge::JudgeRole;
use crate::roles::planner::{self, PlanOutcome};
use crate::roles::red_base::{RedBaseRule, make_base_fix};
use crate::roles::worker::WorkerRole;
use crate::roles::{FleetSettings, RoleContext, SessionNotes, clear_up, watchdog};
pub use crate::rules::begin::FleetRole;
use crate::rules::begin::{AvailableWork, due};
use crate::rules::preflight::PreflightInputs;
use crate::workspaces::{BaseUpdate, BoxFuture, StopHandle, StopSign, WorkspaceError, Workspaces};

/// What a fleet is made of.
pub struct FleetContext {
    /// The ledger.
    pub ledger: Ledger,
    /// Git, guards and sessions.
    pub workspaces: Arc<dyn Workspaces>,
    /// The clock of this machine.
    pub clock: Arc<dyn LedgerClock>,
    /// What the project says.
    pub settings: FleetSettings,
    /// What sessions are told besides.
    pub notes: Arc<dyn SessionNotes>,
    /// Where work comes from.
    pub backlog: Arc<dyn FleetBacklog>,
    /// The account that sessions use.
    pub account: String,
}

/// Roles at work.
pub struct Fleet {
    context: RoleContext,
    account: String,
    stop_handle: StopHandle,
    sign: StopSign,
    giving: Giving,
    roles: JoinSet<(FleetRole, LedgerResult<()>)>,
    /// They are given back when the fleet has ended.
    names: Vec<AgentName>,
    cycles: Arc<CycleStatistics>,
    planned: Arc<Mutex<Option<PlanOutcome>>>,
    plan_news: (
        mpsc::UnboundedSender<PlanOutcome>,
        mpsc::UnboundedReceiver<PlanOutcome>,
    ),
    begun: BTreeMap<FleetRole, u32>,
}

/// Who gives out work is stopped before everybody else: what somebody gives back on leaving
/// is not given out again.
struct Giving {
    stop_handle: StopHandle,
    sign: StopSign,
    /// Held by whoever gives out work, and by the fleet until it ends.
    at_work: Option<mpsc::Sender<()>>,
    over: mpsc::Receiver<()>,
}

impl Giving {
    fn new() -> Giving {
        let (stop_handle, sign) = StopHandle::new();
        let (at_work, over) = mpsc::channel(1);
        Giving {
            stop_handle,
            sign,
            at_work: Some(at_work),
            over,
        }
    }

    async fn end(&mut self) {
        self.stop_handle.stop();
        self.at_work = None;
        // Nobody ever sends anything: this ends with the last who holds it. A store that does
        // not answer holds nobody up.
        let over = tokio::time::timeout(PATIENCE, self.over.recv());
        drop(over.await);
    }
}

/// What a fleet says while it is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetNews {
    /// A role has ended though nobody said so; why.
    RoleEnded(String),
    /// What the planner came to, where that is something else than before.
    Planner(PlanOutcome),
}

/// Who notes what is found before any role begins.
const PREFLIGHT: &str = "preflight";
/// How long the end of the others waits for those who give out work.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts fleets of this process, so that no two lives of a role name a claim alike.
static LIVES: AtomicU64 = AtomicU64::new(0);

impl Fleet {
    /// A fleet in which nobody is at work yet.
    pub fn new(context: FleetContext) -> Fleet {
        let (stop_handle, sign) = StopHandle::new();
        let started = u64::try_from(context.clock.now().0).unwrap_or(0);
        let life = started.wrapping_shl(8) | (LIVES.fetch_add(1, Ordering::Relaxed) & 0xff);
        Fleet {
            context: RoleContext {
                ledger: LedgerPort::new(context.ledger),
                workspaces: context.workspaces,
                clock: context.clock,
                settings: Arc::new(context.settings),
                notes: context.notes,
                backlog: context.backlog,
                life,
                halt: FleetHalt::default(),
                #[cfg(test)]
                without: None,
            },
            account: context.account,
            stop_handle,
            sign,
            giving: Giving::new(),
            roles: JoinSet::new(),
            names: Vec::new(),
            cycles: Arc::default(),
            planned: Arc::default(),
            plan_news: mpsc::unbounded_channel(),
            begun: BTreeMap::new(),
        }
    }

    /// Lets a role begin, in the runtime of the caller.
    pub fn begin(&mut self, fleet_role: FleetRole, name: AgentName) {
        let (context, stop) = (self.context.clone(), self.sign.clone());
        let (account, word) = (self.account.clone(), name.as_str().to_owned());
        let (cycles, planned) = (Arc::clone(&self.cycles), Arc::clone(&self.planned));
        let news = self.plan_news.0.clone();
        let role: BoxFuture<'static, LedgerResult<()>> = match fleet_role {
            FleetRole::Dispatcher => {
                let (stop, at_work) = (self.giving.sign.clone(), self.giving.at_work.clone());
                Box::pin(async move {
                    let ended = dispatcher::run(&context, &word, stop).await;
                    drop(at_work);
                    ended
                })
            }
            FleetRole::Cycle => {
                Box::pin(async move { cycle::run(&context, &word, &cycles, stop).await })
            }
            FleetRole::Watchdog => {
                Box::pin(async move { watchdog::run(&context, &word, stop).await })
            }
            FleetRole::Planner => Box::pin(async move {
                let tell = |look: &PlanOutcome| {
                    let mut last = planned.lock().unwrap_or_else(PoisonError::into_inner);
                    if is_news(last.as_ref(), look) {
                        // Whoever could hear it may be gone, and that is all right.
                        let _ = news.send(look.clone());
                    }
                    *last = Some(look.clone());
                };
                planner::run_telling(&context, &word, stop, &tell).await
            }),
            FleetRole::Judge => Box::pin(async move {
                let name = word;
                JudgeRole {
                    context,
                    name,
                    account,
                }
                .run(stop)
                .await
            }),
            FleetRole::Worker | FleetRole::Tester | FleetRole::Docser => Box::pin(async move {
                let worker = WorkerRole {
                    context,
                    name: word,
                    role: fleet_role.word().to_owned(),
                    account,
                };
                worker.run(stop).await
            }),
        };
        self.roles.spawn(async move { (fleet_role, role.await) });
        self.names.push(name);
        *self.begun.entry(fleet_role).or_default() += 1;
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        self.context.ledger.ledger()
    }

    /// What hears when something changes.
    pub async fn listen(&self) -> LedgerResult<StoreNotifications> {
        self.context.ledger.listen().await
    }

    /// Which of those that wait begin now, because their first work is there; why.
    pub async fn due(
        &self,
        waiting: &BTreeSet<FleetRole>,
    ) -> LedgerResult<Vec<(FleetRole, String)>> {
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = &self.context.ledger;
        let counts = ledger.counts().await?;
        let in_state = |state: TaskState| -> u64 {
            let of_it = counts.iter().filter(|count| count.state == state);
            of_it.map(|count| count.tasks).sum()
        };
        // Asked is only what somebody waits for: this is looked at whenever something
        // happens. The parked matter to the planner alone, and only once nothing goes on.
        let mut work = AvailableWork {
            inputs: with_counts(PreflightInputs::default(), &counts, 0, false),
            todo: in_state(TaskState::Todo),
            ..AvailableWork::default()
        };
        let quiet = work.todo == 0 && in_state(TaskState::InProgress) == 0;
        if quiet
            && waiting.contains(&FleetRole::Planner)
            && planner::has_requirement(&self.context).await
        {
            work.inputs = planner::inputs(&self.context, true).await?;
        }
        let mut working = [FleetRole::Worker, FleetRole::Tester, FleetRole::Docser].iter();
        if work.todo > 0 && working.any(|fleet_role| waiting.contains(fleet_role)) {
            let dispatch_view = ledger.dispatch_view(&WORKING_ROLES).await?;
            work.ready = dispatch_view
                .ready
                .into_iter()
                .map(|(role, _)| role)
                .collect();
        }
        Ok(due(waiting, &work))
    }

    /// Whether everything is at an end or waits for a person, and nothing new comes: issues
    /// were brought in, and the planner has nothing to plan.
    pub async fn is_idle(&self) -> LedgerResult<bool> {
        let cycles = self.begun.get(&FleetRole::Cycle).map(|_| &*self.cycles);
        fleet_is_at_rest(&self.context, cycles, self.gave_up()).await
    }

    /// Whether the planner asks no more before something changes.
    fn gave_up(&self) -> bool {
        let planned = self.planned.lock();
        let planned = planned.unwrap_or_else(PoisonError::into_inner);
        matches!(
            *planned,
            Some(PlanOutcome::Before | PlanOutcome::Refused(_))
        )
    }

    /// Waits for what the fleet has to say.
    pub async fn news(&mut self) -> FleetNews {
        tokio::select! {
            biased;
            // This process holds a sender too, so there is always a next one.
            Some(planned) = self.plan_news.1.recv() => FleetNews::Planner(planned),
            words = ended(&mut self.roles, &self.context.halt) => FleetNews::RoleEnded(words),
        }
    }

    /// Waits for a role that ends though nobody said so, or says that nobody can go on, and
    /// says why.
    pub async fn role_ended(&mut self) -> String {
        ended(&mut self.roles, &self.context.halt).await
    }

    /// Says stop, and waits until everybody has ended their children and given back what
    /// they held. Errors: what some could not give back is lost when its lease ends.
    pub async fn end(&mut self) -> Vec<LedgerError> {
        self.giving.end().await;
        self.stop_handle.stop();
        let mut errors = Vec::new();
        while let Some(ended) = self.roles.join_next().await {
            if let Ok((_, Err(error))) = ended {
                errors.push(error);
            }
        }
        self.names.clear();
        errors
    }

    /// Notes what trying the base showed. The task that fixes it, where nothing else begins
    /// before it is green.
    pub async fn note_base(&self, base: &str, is_red: bool) -> LedgerResult<Option<Task>> {
        let context = &self.context;
        if !is_red {
            if context.ledger.red_base().await?.is_some() {
                context.ledger.set_red_base(None).await?;
            }
            return Ok(None);
        }
        if context.settings.on_red_base == RedBaseRule::Work {
            return Ok(None);
        }
        let mut stop = self.sign.clone();
        make_base_fix(context, PREFLIGHT, base, &mut stop).await?;
        match context.ledger.red_base().await? {
            Some(red) => context.ledger.end_of_chain(&red.task).await,
            None => Ok(None),
        }
    }

    /// Removes folders and refs of runs that nobody needs any more.
    pub async fn clear_up(&self) -> LedgerResult<()> {
        clear_up(&self.context).await
    }

    /// Fast-forwards the user's branch where that is clean.
    pub async fn present(&self) -> Result<BaseUpdate, WorkspaceError> {
        self.context.workspaces.update_user_branch().await
    }
}

/// Whether nothing is left that a fleet could do: with the tasks that it has, with issues, or
/// with a plan, unless the planner gave up. Several looks are one only if nobody wrote
/// meanwhile: an issue that becomes a task must not be missed as both. And a task that waits for
/// a person does so only once the cycle manager of this fleet, if it has one, has looked at it: a new
/// issue's task is made first and led on by what the issue says right after.
pub(crate) async fn fleet_is_at_rest(
    context: &RoleContext,
    cycles: Option<&CycleStatistics>,
    gave_up: bool,
) -> LedgerResult<bool> {
    let ledger = context.ledger.ledger();
    let head = ledger.event_head().await?;
    if cycles.is_some_and(|cycles| !cycles.has_settled(head.seq())) {
        return Ok(false);
    }
    let settings = &context.settings;
    if !is_settled(&context.ledger, &settings.staffed, settings.on_red_base).await? {
        return Ok(false);
    }
    let has_requirement = planner::has_requirement(context).await && !gave_up;
    let inputs = planner::inputs(context, has_requirement).await?;
    let rests = inputs.issue_backlog == 0 && inputs.may_plan().is_err();
    Ok(rests && ledger.event_head().await?.seq() == head.seq())
}

/// Whether a look of the planner says something else than the one before. How much of a
/// backlog is left is none.
fn is_news(last: Option<&PlanOutcome>, look: &PlanOutcome) -> bool {
    let waits = |look: &PlanOutcome| matches!(look, PlanOutcome::BacklogFirst(_));
    last.is_none_or(|last| last != look && !(waits(last) && waits(look)))
}

async fn ended(roles: &mut JoinSet<(FleetRole, LedgerResult<()>)>, halt: &FleetHalt) -> String {
    let ended = tokio::select! {
        biased;
        words = halt.called() => return format!("nobody can go on: {words}"),
        ended = roles.join_next() => ended,
    };
    match ended {
        None => std::future::pending().await,
        Some(Ok((fleet_role, Ok(())))) => format!("the {} has ended", fleet_role.word()),
        Some(Ok((fleet_role, Err(error)))) => {
            format!("the {} cannot go on: {error}", fleet_role.word())
        }
        Some(Err(error)) => format!("a role has crashed: {error}"),
    }
}
