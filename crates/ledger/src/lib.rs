//! The durable ledger: what [`runner_lifecycle::decide()`] says is written in one
//! transaction, on SQLite or PostgreSQL.
//!
//! [`Ledger`] does the work once for both stores; [`engine::Engine`] is what a store must
//! be able to do. The clock is handed in. A [`Watchdog`] wakes for deadlines.

mod agents;
mod around;
mod calls;
mod change;
mod check;
mod claims;
mod claims_together;
mod clock;
mod company;
mod dispatch;
pub mod engine;
mod error;
mod facts;
mod figures;
mod hints;
mod keeper;
mod ledger;
mod lending;
mod lineage;
mod masking;
mod memory;
mod migrate;
mod pages;
mod picks;
mod portable;
mod postgres;
mod postgres_arguments;
mod postgres_session;
mod postgres_write;
mod reads;
mod rebuild;
mod records;
mod seats;
mod sqlite;
mod sqlite_session;
mod store;
mod tallies;
mod together;
mod wakes;
mod writes;

pub use agents::{AgentWork, FleetAgent, NewAgent};
pub use calls::{CallOutcome, LedgerCall};
pub use check::CheckFindings;
pub use claims::{ClaimRequest, ClaimedTask};
pub use clock::{LedgerClock, SystemClock};
pub use dispatch::{AccountView, DispatchView, JudgeQueue, OngoingWork, ReadyTask, RedBase};
pub use error::{LedgerError, StoreError};
pub use figures::{RunSpending, SpendingTotals, TaskCount};
pub use hints::StoreNotifications;
pub use keeper::{Watchdog, WatchdogReport};
pub use ledger::{Ledger, LedgerOptions};
pub use migrate::SCHEMA;
pub use pages::{EventHead, HeldLock, NumberedEvent, RunPage, RunPlace, TaskPage};
pub use portable::{ExportReport, ImportReport};
pub use reads::TaskFilter;
pub use rebuild::{RebuildReport, RowDifference};
pub use seats::{RoleLease, RoleLeaseAttempt};
pub use store::{Store, StoreNameError};
pub use tallies::WaitTimes;
