//! The clock, handed in so that tests can be anywhere in time.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runner_lifecycle::Timestamp;

/// Tells the time and waits.
pub trait LedgerClock: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Milliseconds that only grow, also while the machine sleeps, and never jump. What they
    /// are counted from means nothing.
    fn steady_millis(&self) -> u64 {
        u64::try_from(self.now().0).unwrap_or(0)
    }

    /// Waits until then; at once if that is over.
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl LedgerClock for SystemClock {
    fn now(&self) -> Timestamp {
        #[allow(clippy::disallowed_methods)] // This is the clock that others are handed.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since.map_or(0, |since| since.as_millis());
        Timestamp(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    fn steady_millis(&self) -> u64 {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let millis = since.tv_sec.saturating_mul(1000) + since.tv_nsec / 1_000_000;
        u64::try_from(millis).unwrap_or(0)
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let millis = at.millis_since(self.now());
        Box::pin(tokio::time::sleep(Duration::from_millis(millis)))
    }
}
