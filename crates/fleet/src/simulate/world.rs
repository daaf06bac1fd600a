//! What everything in a simulation shares: time, chance, the trace, and who crashes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use runner_ledger::LedgerClock;
use runner_lifecycle::Timestamp;

use super::chance::SimChance;
use crate::ledger_port::CallPoints;
use crate::workspaces::BoxFuture;

/// A day in 2026.
pub(super) const START: i64 = 1_780_000_000_000;

/// Who crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimCrash {
    /// One role.
    One(usize),
    /// The process with all of them.
    All,
}

/// A crash that a test asks for: at the n-th arrival at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashAt {
    /// The call.
    pub call: &'static str,
    /// Behind it, or before it.
    pub after: bool,
    /// Counted from 1.
    pub arrival: u32,
    /// Whether the whole process crashes.
    pub all: bool,
}

pub(super) struct SimState {
    pub(super) now: i64,
    timers: BTreeMap<(i64, u64), Waker>,
    next_timer: u64,
    pub(super) chance: SimChance,
    trace: u64,
    /// Points that were reached.
    pub(super) points: u64,
    /// How often each call was made.
    pub(super) calls: BTreeMap<&'static str, u64>,
    pub(super) crash: Option<SimCrash>,
    /// Crashes that happened.
    pub(super) crashes: u32,
    pub(super) crashes_left: u32,
    pub(super) losses_left: u32,
    /// Roles that are told to stop, and how long each is away.
    pub(super) stops: Vec<(String, u64)>,
    crash_at: Option<CrashAt>,
    /// The last lines of the trace, for people.
    log: Option<Vec<String>>,
}

/// One for each simulation.
#[derive(Clone)]
pub(super) struct SimWorld(Arc<Mutex<SimState>>);

impl SimWorld {
    pub(super) fn new(seed: u64, crash_at: Option<CrashAt>, keep_log: bool) -> SimWorld {
        SimWorld(Arc::new(Mutex::new(SimState {
            now: START,
            timers: BTreeMap::new(),
            next_timer: 0,
            chance: SimChance::new(seed),
            trace: 0xcbf2_9ce4_8422_2325,
            points: 0,
            calls: BTreeMap::new(),
            crash: None,
            crashes: 0,
            crashes_left: 0,
            losses_left: 0,
            stops: Vec::new(),
            crash_at,
            log: keep_log.then(Vec::new),
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SimState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn time(&self) -> Timestamp {
        Timestamp(self.state().now)
    }

    /// Draws from chance.
    pub(super) fn draw<T>(&self, how: impl FnOnce(&mut SimChance) -> T) -> T {
        how(&mut self.state().chance)
    }

    /// What happened so far, as a number: the same for the same seed.
    pub(super) fn trace(&self) -> u64 {
        self.state().trace
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.state().log.clone().unwrap_or_default()
    }

    pub(super) fn say(&self, words: impl FnOnce() -> String) {
        let mut state = self.state();
        let now = state.now;
        if let Some(log) = &mut state.log {
            let seconds = (now - START) / 1000;
            log.push(format!("{seconds:>7} s  {}", words()));
        }
    }

    /// A role is at a point. Whether it crashes there.
    pub(super) fn arrive(&self, actor: usize, call: &'static str, after: bool) -> bool {
        let mut state = self.state();
        state.points += 1;
        *state.calls.entry(call).or_insert(0) += u64::from(!after);
        state.note(actor, call, after);
        if let Some(at) = &mut state.crash_at
            && at.call == call
            && at.after == after
        {
            at.arrival = at.arrival.saturating_sub(1);
            if at.arrival == 0 {
                let all = at.all;
                state.crash_at = None;
                state.crash_now(actor, all);
                return true;
            }
        }
        if state.crashes_left > 0 && state.chance.one_in(rarity(call)) {
            state.crashes_left -= 1;
            let all = state.chance.one_in(3);
            state.crash_now(actor, all);
            return true;
        }
        false
    }

    /// The role ends here, whatever it is doing.
    pub(super) fn kill(&self, actor: usize) {
        self.state().crash_now(actor, false);
    }

    pub(super) fn loses(&self, call: &'static str) -> bool {
        let mut state = self.state();
        if state.losses_left > 0 && state.chance.one_in(2 * rarity(call)) {
            state.losses_left -= 1;
            return true;
        }
        false
    }

    /// When the next timer rings.
    pub(super) fn next_timer(&self) -> Option<i64> {
        self.state().timers.keys().next().map(|(at, _)| *at)
    }

    /// Lets time pass, and wakes whoever waited for it.
    pub(super) fn advance(&self, to: i64) {
        let mut due = Vec::new();
        {
            let mut state = self.state();
            state.now = state.now.max(to);
            let now = state.now;
            let later = state.timers.split_off(&(now + 1, 0));
            due.extend(std::mem::replace(&mut state.timers, later).into_values());
        }
        due.into_iter().for_each(Waker::wake);
    }
}

impl SimState {
    fn crash_now(&mut self, actor: usize, all: bool) {
        self.crashes += 1;
        self.crash = Some(if all {
            SimCrash::All
        } else {
            SimCrash::One(actor)
        });
    }

    /// FNV-1a over everything that happens, in its order.
    fn note(&mut self, actor: usize, call: &str, after: bool) {
        let numbers = [
            u64::try_from(actor).unwrap_or(0),
            u64::from(after),
            u64::try_from(self.now).unwrap_or(0),
        ];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        for byte in bytes.chain(call.bytes()) {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(log) = &mut self.log {
            let seconds = (self.now - START) / 1000;
            let side = if after { "after" } else { "before" };
            log.push(format!("{seconds:>7} s  actor {actor} {side} {call}"));
        }
    }
}

/// How seldom a role crashes at a point: where much depends on it, more often.
fn rarity(call: &str) -> u64 {
    match call {
        "intent" | "move_base" | "settle" | "create" | "create_all" | "set_red_base" => 6,
        "finish" | "judge" | "claim" | "recover" | "merge" | "bury" => 12,
        "work" | "check" | "check_inverted" | "review" | "keep" | "record_spending"
        | "register" => 40,
        _ => 250,
    }
}

/// The clock of a simulation.
pub(super) struct SimClock(pub(super) SimWorld);

impl LedgerClock for SimClock {
    fn now(&self) -> Timestamp {
        self.0.time()
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Sleep {
            world: self.0.clone(),
            at: at.0,
            timer: None,
        })
    }
}

/// Rings at its time. Dropped, it is as if it had never been asked for.
struct Sleep {
    world: SimWorld,
    at: i64,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        let mut state = world.state();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let timer = self.timer.unwrap_or(state.next_timer);
        if self.timer.is_none() {
            state.next_timer += 1;
            self.timer = Some(timer);
        }
        state
            .timers
            .insert((self.at, timer), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.world.state().timers.remove(&(self.at, timer));
        }
    }
}

/// Lets others go first.
pub(super) struct SimYield(bool);

impl SimYield {
    pub(super) fn once() -> SimYield {
        SimYield(false)
    }
}

impl Future for SimYield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The points of one role. A call runs to its end alone, so that the order of everything
/// is the scheduler's choice.
pub(super) struct SimPoints {
    pub(super) world: SimWorld,
    pub(super) actor: usize,
    pub(super) runtime: Arc<tokio::runtime::Runtime>,
}

impl CallPoints for SimPoints {
    fn reach<'a>(&'a self, call: &'static str, after: bool) -> BoxFuture<'a, ()> {
        Box::pin(reach(&self.world, self.actor, call, after))
    }

    fn carry<'a>(&'a self, call: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.runtime.block_on(call) })
    }

    fn loses(&self, call: &'static str) -> bool {
        self.world.loses(call)
    }
}

/// A point: others go first, or the role ends here.
pub(super) async fn reach(world: &SimWorld, actor: usize, call: &'static str, after: bool) {
    if world.arrive(actor, call, after) {
        std::future::pending::<()>().await;
    }
    SimYield::once().await;
}
