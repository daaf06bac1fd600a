//! What the runner needs from the world around it, passed in by the caller:
//! the clock, a way to cancel, a way to start children, someone who watches.

use jiff::Timestamp;
use runner_exec::{Cancel, Supervisor};

/// The wall clock. It goes into records and into the loop's bounds and pauses, never into what an
/// iteration comes to.
pub trait WallClock {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Now as RFC 3339 in UTC, to the millisecond.
    fn stamp(&self) -> String {
        let now = self.now();
        let millis = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        format!("{millis:.3}")
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWallClock;

impl WallClock for SystemWallClock {
    fn now(&self) -> Timestamp {
        #[allow(clippy::disallowed_methods)] // this is the one place
        crate::fault::wall_clock(Timestamp::now())
    }
}

/// What happens while a command runs, for whoever shows it.
#[derive(Clone, Debug)]
pub enum RunProgress<'a> {
    /// An iteration that a crash or a signal cut off has been settled.
    Recovered {
        /// The run.
        run_id: &'a str,
        /// The iteration.
        iter: u32,
        /// `rolled_up` or `finished`.
        how: &'static str,
    },
    /// An iteration begins.
    Started {
        /// The iteration.
        iter: u32,
        /// `root/a/b`, or `repair-tree`.
        path: &'a str,
        /// Leaves passed so far.
        passed: usize,
        /// All leaves.
        leaves: usize,
        /// The time that agent and guard have together.
        budget_secs: u64,
    },
    /// The agent is about to run.
    Agent,
    /// The agent's program has been started.
    AgentStarted,
    /// Something happened in the agent's session.
    AgentEvent(&'a runner_agents::AgentEvent),
    /// The guard runs.
    Guard,
    /// The iteration is in git.
    Ended(&'a crate::step::StepReport),
    /// The loop waits before it tries again.
    Waiting {
        /// How long.
        secs: u64,
        /// What for.
        why: &'a str,
    },
    /// Something is tried out that may take a while.
    Trying {
        /// What, as a word or two.
        what: &'a str,
        /// How long it may take.
        limit_secs: u64,
    },
    /// That has ended.
    Tried,
    /// Something a person should know.
    Note(&'a str),
}

/// Shows progress.
pub trait ProgressObserver {
    /// Something happened.
    fn progress(&mut self, progress: &RunProgress<'_>);

    /// Called a few times a second while a child runs, if [`ProgressObserver::ticks`].
    fn tick(&mut self) {}

    /// Whether `tick` is wanted.
    fn ticks(&self) -> bool {
        false
    }
}

/// An observer that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl ProgressObserver for NoObserver {
    fn progress(&mut self, _: &RunProgress<'_>) {}
}

/// Everything from outside, in one place.
pub struct RunContext<'h> {
    /// The clock.
    pub clock: &'h dyn WallClock,
    /// Ends what is going on.
    pub cancel: &'h Cancel,
    /// Starts agents and guards.
    pub supervisor: &'h Supervisor,
    /// Watches.
    pub observer: &'h mut dyn ProgressObserver,
}
