//! The roles of a fleet, written once over the ledger, workspaces and a clock.
//!
//! A role is one future and spawns nothing: dropping it is what a crash is, and what it
//! left in the ledger is all that the next one knows.

pub mod cycle;
pub mod dispatcher;
pub mod halt;
pub mod judge;
mod lease;
mod merge;
pub mod planner;
pub mod red_base;
mod role_lease;
mod sweep;
pub mod watchdog;
pub mod worker;

use std::sync::Arc;

use runner_ledger::{LedgerClock, LedgerError, StoreNotifications};
use runner_lifecycle::{Task, Timestamp};

use crate::backlog::{BacklogChanges, FleetBacklog};
use crate::ledger_port::{LedgerPort, LedgerResult};
use crate::rules::draft::TaskDefaults;
use crate::rules::policy::PathRules;
use crate::workspaces::{StopSign, Workspaces};

/// Removes from the workspaces what runs left that nobody needs any more.
pub async fn clear_up(context: &RoleContext) -> LedgerResult<()> {
    sweep::sweep(context).await
}

/// How long nobody looks if nothing was heard.
pub const LOOK_EVERY_SECS: u64 = 5 * 60;
/// How often an agent without a lease, or the holder of a role lease, says that it lives.
pub const IDLE_INTERVAL_SECS: u32 = 60;
/// The longest pause before a store that failed is asked again.
const MAX_PAUSE_SECS: u64 = 30;

/// What a project says about its fleet.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// The name of the branch that results are merged into.
    pub base: String,
    /// What the whole is for; packets carry it.
    pub objective: String,
    /// Which paths no result may touch, and how large it may be.
    pub paths: PathRules,
    /// Whether reviewers are asked.
    pub review: bool,
    /// Models to try one after the other.
    pub models: Vec<String>,
    /// The project's guard.
    pub guard: Vec<String>,
    /// The name of this machine.
    pub host: String,
    /// What every new task begins with.
    pub defaults: TaskDefaults,
    /// Whether there is a new plan once everything is done and the repo is another one.
    pub replan: bool,
    /// The roles that this fleet has agents for, or will have once there is work.
    pub staffed: Vec<String>,
    /// What begins while the base is red.
    pub on_red_base: red_base::RedBaseRule,
}

/// What sessions are told besides their packet, and what is learned from failures.
pub trait SessionNotes: Send + Sync {
    /// Role instructions, host lines and earlier failures, whole lines only.
    fn context(&self, task: &Task) -> String;

    /// A run failed so; the next sessions are told.
    fn failed(&self, task: &Task, signature: &str, note: &str, now: Timestamp);
}

/// Says nothing and remembers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNotes;

impl SessionNotes for NoNotes {
    fn context(&self, _task: &Task) -> String {
        String::new()
    }

    fn failed(&self, _task: &Task, _signature: &str, _note: &str, _now: Timestamp) {}
}

/// What every role of a process works with.
#[derive(Clone)]
pub struct RoleContext {
    /// The ledger.
    pub ledger: LedgerPort,
    /// Git, guards and sessions.
    pub workspaces: Arc<dyn Workspaces>,
    /// The clock of this machine.
    pub clock: Arc<dyn LedgerClock>,
    /// What the project says.
    pub settings: Arc<FleetSettings>,
    /// What sessions are told besides.
    pub notes: Arc<dyn SessionNotes>,
    /// Where work comes from.
    pub backlog: Arc<dyn FleetBacklog>,
    /// A number that no other life of this process had: names of claims carry it.
    pub life: u64,
    /// Hears of what nobody here can fix.
    pub halt: halt::FleetHalt,
    /// The rule that is left out, to see that the simulation notices.
    #[cfg(test)]
    pub(crate) without: Option<RoleRule>,
}

/// Rules of the roles without which work would be lost or done twice. Tests leave out
/// one at a time; builds for use have no such switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum RoleRule {
    /// The intent is recorded before the base moves.
    IntentBeforeBase,
    /// An open intent is rolled forward, not begun anew.
    RollForward,
    /// A heartbeat comes also during long work.
    Heartbeats,
    /// Whoever writes names the token of its own lease.
    Fencing,
    /// The guard runs on the merge commit.
    GuardOnMerge,
    /// A result is judged by what the base had, too.
    Inversion,
    /// A dead dependency is said.
    DeadDependency,
    /// The cycle manager looks at what needs rework.
    Recovery,
    /// Issues and pull requests become tasks.
    Import,
    /// What is known of an issue leads its task on.
    IssueFacts,
    /// A review is led on by what its pull request is now.
    NewHead,
    /// What contradicts itself is repaired.
    Repair,
    /// Who is told to stop gives back what it holds.
    GiveBack,
    /// A backlog comes before a plan.
    BacklogFirst,
}

impl RoleContext {
    /// Whether a rule holds. Always, but for the tests of the simulation.
    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn keeps(&self, _rule: RoleRule) -> bool {
        true
    }

    /// Whether a rule holds. Always, but for the tests of the simulation.
    #[cfg(test)]
    pub(crate) fn keeps(&self, rule: RoleRule) -> bool {
        self.without != Some(rule)
    }

    /// A time of the ledger as this machine's clock will show it.
    pub(crate) async fn local(&self, at: Timestamp) -> LedgerResult<Timestamp> {
        let left = at.millis_since(self.ledger.now().await?);
        Ok(self.clock.now().plus_millis(left))
    }

    /// When somebody looks who hears nothing.
    pub(crate) fn next_look(&self) -> Timestamp {
        self.clock.now().plus_secs(LOOK_EVERY_SECS)
    }

    /// Sleeps that long, or until the sign is raised.
    pub(crate) async fn pause(&self, secs: u64, stop: &mut StopSign) {
        let until = self.clock.now().plus_secs(secs);
        tokio::select! {
            biased;
            () = stop.raised() => {}
            () = self.clock.sleep_until(until) => {}
        }
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Something was written.
    Notification,
    /// The time has come.
    Time,
    /// Something changed outside.
    Outside,
    /// Everything shall end.
    Stop,
}

/// Waits for notifications, times and the end.
pub(crate) struct RoleWait {
    notifications: StoreNotifications,
    clock: Arc<dyn LedgerClock>,
    pub(crate) stop: StopSign,
}

impl RoleWait {
    /// Begins to listen; whoever then looks misses nothing.
    pub(crate) async fn new(context: &RoleContext, mut stop: StopSign) -> LedgerResult<RoleWait> {
        let mut backoff = StoreBackoff::default();
        loop {
            match context.ledger.listen().await {
                Ok(notifications) => {
                    return Ok(RoleWait {
                        notifications,
                        clock: Arc::clone(&context.clock),
                        stop,
                    });
                }
                Err(error) if error.is_transient() && !stop.is_raised() => {
                    context.pause(backoff.next_secs(), &mut stop).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The same, or until something changes outside.
    pub(crate) async fn until_outside(
        &mut self,
        at: Timestamp,
        outside: &mut BacklogChanges,
    ) -> WakeReason {
        tokio::select! {
            biased;
            woke = self.until(at) => woke,
            () = outside.next() => WakeReason::Outside,
        }
    }

    pub(crate) async fn until(&mut self, at: Timestamp) -> WakeReason {
        tokio::select! {
            biased;
            () = self.stop.raised() => WakeReason::Stop,
            () = self.clock.sleep_until(at) => WakeReason::Time,
            () = self.notifications.next() => WakeReason::Notification,
        }
    }
}

/// How long to wait before a store that failed is asked again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreBackoff(u32);

impl StoreBackoff {
    pub(crate) fn next_secs(&mut self) -> u64 {
        let secs = 1u64.checked_shl(self.0).unwrap_or(MAX_PAUSE_SECS);
        self.0 = self.0.saturating_add(1);
        secs.min(MAX_PAUSE_SECS)
    }

    pub(crate) fn over(&mut self) {
        self.0 = 0;
    }

    /// What one turn of a role came to. None: the store failed in a way that passes, and a
    /// while was waited.
    pub(crate) async fn pause_if_transient<T>(
        &mut self,
        context: &RoleContext,
        stop: &mut StopSign,
        turn: LedgerResult<T>,
    ) -> LedgerResult<Option<T>> {
        match turn {
            Ok(done) => {
                self.over();
                Ok(Some(done))
            }
            Err(error) if error.is_transient() => {
                context.pause(self.next_secs(), stop).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Repeats one call until the store answers. None: everything shall end.
pub(crate) async fn insist<T, F, C>(
    context: &RoleContext,
    stop: &mut StopSign,
    call: C,
) -> Option<LedgerResult<T>>
where
    C: Fn() -> F,
    F: Future<Output = LedgerResult<T>>,
{
    let mut backoff = StoreBackoff::default();
    loop {
        match call().await {
            Err(error @ LedgerError::Store(_)) if !error.is_transient() => {
                return Some(Err(error));
            }
            Err(LedgerError::Store(_)) => {
                if stop.is_raised() {
                    return None;
                }
                context.pause(backoff.next_secs(), stop).await;
            }
            answer => return Some(answer),
        }
    }
}
