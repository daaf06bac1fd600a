//! The watchdog: ends leases that nobody renewed and wakes tasks whose time has come.
//!
//! It sleeps until the next deadline, a notification or a cancel, and asks the store nothing in
//! between. A notification may be lost, so it also looks every five minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use runner_lifecycle::watchdog::{LeaseCheck, look};
use runner_lifecycle::{BlockReason, Facts, Request, Task, TaskId, Timestamp};

use crate::call::calls::LedgerCall;
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::store::notifications::StoreNotifications;

/// How long nobody looks if nothing is due.
const LOOK_EVERY_SECS: u64 = 5 * 60;
/// How much is looked at in one go.
const PAGE_SIZE: u32 = 100;

/// Why the watchdog woke, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchdogReport {
    /// Tasks whose lease or length had ended.
    pub ended: Vec<TaskId>,
    /// Tasks whose time to be tried again had come.
    pub resumed: Vec<TaskId>,
    /// When it looks next.
    pub armed: Timestamp,
}

/// Watches one ledger.
pub struct Watchdog {
    ledger: Ledger,
    notifications: StoreNotifications,
    name: String,
    armed: Timestamp,
    /// Leases that get time because this watchdog was late, by their token.
    grace: BTreeMap<(TaskId, u64), Timestamp>,
}

impl Watchdog {
    /// Begins to watch.
    pub async fn new(ledger: Ledger, name: &str) -> Result<Watchdog, StoreError> {
        let notifications = ledger.listen().await?;
        let armed = ledger.now().await?;
        Ok(Watchdog {
            ledger,
            notifications,
            name: name.to_owned(),
            armed,
            grace: BTreeMap::new(),
        })
    }

    /// When it looks next.
    pub fn armed(&self) -> Timestamp {
        self.armed
    }

    /// Does what is due and arms the next look.
    pub async fn look(&mut self) -> Result<WatchdogReport, LedgerError> {
        let now = self.ledger.now().await?;
        let mut report = WatchdogReport::default();
        self.end_leases(now, &mut report).await?;
        self.resume(now, &mut report).await?;
        let next = self.ledger.next_deadline(now).await?;
        let latest = now.plus_secs(LOOK_EVERY_SECS);
        self.grace.retain(|_, until| *until > now);
        let grace = self.grace.values().min().copied();
        // A lease that is due now and gets grace is looked at when that is over.
        let next = next.filter(|at| *at > now).into_iter().chain(grace).min();
        self.armed = next.map_or(latest, |next| next.min(latest));
        report.armed = self.armed;
        Ok(report)
    }

    async fn end_leases(
        &mut self,
        now: Timestamp,
        report: &mut WatchdogReport,
    ) -> Result<(), LedgerError> {
        for lease in self.ledger.due_leases(now, PAGE_SIZE).await? {
            let key = (lease.task_id.clone(), lease.token);
            let armed = self.grace.get(&key).copied().unwrap_or(self.armed);
            if now < armed && self.grace.contains_key(&key) {
                continue;
            }
            let request = match look(&lease, armed, now) {
                LeaseCheck::Later(_) => continue,
                LeaseCheck::Grace(until) => {
                    self.grace.insert(key, until);
                    continue;
                }
                LeaseCheck::Expired => Request::Expire {
                    not_before: self.grace.get(&key).copied(),
                },
                LeaseCheck::TimeboxOver => Request::EndTimebox,
                LeaseCheck::NeverBegan => Request::TakeBack,
            };
            if self.ask(&lease.task_id, request, Facts::default()).await? {
                report.ended.push(lease.task_id);
            }
        }
        Ok(())
    }

    async fn resume(
        &mut self,
        now: Timestamp,
        report: &mut WatchdogReport,
    ) -> Result<(), LedgerError> {
        for task in self.ledger.due_blocks(now, PAGE_SIZE).await? {
            if !by_clock_alone(&task) {
                continue;
            }
            let request = Request::Recover {
                packet: None,
                successor: None,
            };
            if self.ask(&task.id, request, Facts::default()).await? {
                report.resumed.push(task.id);
            }
        }
        Ok(())
    }

    /// Whether the request was followed. A refusal means that somebody was faster.
    async fn ask(
        &self,
        id: &TaskId,
        request: Request,
        outside: Facts,
    ) -> Result<bool, LedgerError> {
        let mut ask = LedgerCall::new(id.clone(), &self.name, request);
        ask.outside = outside;
        match self.ledger.call(&ask).await {
            Ok(outcome) => Ok(!outcome.events.is_empty()),
            Err(LedgerError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until something is due, somebody writes, or `cancel` is ready. False: it
    /// was canceled.
    pub async fn wait(&mut self, cancel: impl Future<Output = ()>) -> Result<bool, StoreError> {
        let clock = Arc::clone(&self.ledger.clock);
        // The deadline is one of the store's clock; what is slept is measured here.
        let at = if self.ledger.server_clock {
            let left = self.armed.millis_since(self.ledger.now().await?);
            clock.now().plus_millis(left)
        } else {
            self.armed
        };
        tokio::select! {
            biased;
            () = cancel => Ok(false),
            () = clock.sleep_until(at) => Ok(true),
            () = self.notifications.next() => {
                // Whatever was written may be due before that, and is no reason to be
                // late for it.
                self.armed = self.armed.min(self.ledger.now().await?);
                Ok(true)
            }
        }
    }
}

/// Only the clock is in the way: whatever else a task waits for is for the cycle manager.
fn by_clock_alone(task: &Task) -> bool {
    matches!(
        task.blocked_on(),
        Some(BlockReason::Cooldown | BlockReason::QuotaWait | BlockReason::DependencyNotMet)
    )
}
