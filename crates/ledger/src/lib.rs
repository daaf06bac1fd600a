//! The durable ledger: what [`runner_lifecycle::decide()`] says is written in one
//! transaction, on SQLite or PostgreSQL.
//!
//! [`Ledger`] does the work once for both stores; [`store::engine::Engine`] is what a store must
//! be able to do. The clock is handed in. A [`Watchdog`] wakes for deadlines.

mod batch;
mod call;
mod claim;
mod clock;
mod error;
mod ledger;
mod maintain;
mod read;
mod role;
pub mod store;

pub use call::calls::{CallOutcome, LedgerCall};
pub use claim::claims::{ClaimRequest, ClaimedTask};
pub use clock::{LedgerClock, SystemClock};
pub use error::{LedgerError, StoreError};
pub use ledger::{Ledger, LedgerOptions};
pub use maintain::check::CheckFindings;
pub use maintain::portable::{ExportReport, ImportReport};
pub use maintain::rebuild::{RebuildReport, RowDifference};
pub use read::dispatch::{AccountView, DispatchView, JudgeQueue, OngoingWork, ReadyTask, RedBase};
pub use read::figures::{RunSpending, SpendingTotals, TaskCount};
pub use read::pages::{EventHead, HeldLock, NumberedEvent, RunPage, RunPlace, TaskPage};
pub use read::reads::TaskFilter;
pub use read::tallies::WaitTimes;
pub use role::agents::{FleetAgent, FleetAgentWork, NewFleetAgent};
pub use role::role_leases::{RoleLease, RoleLeaseAttempt};
pub use role::watchdog::{Watchdog, WatchdogReport};
pub use store::migrate::SCHEMA;
pub use store::notifications::StoreNotifications;
pub use store::{Store, StoreNameError};
