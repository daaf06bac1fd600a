//! The durable ledger: what [`runner_lifecycle::decide()`] says is written in one
//! transaction, on SQLite or PostgreSQL.
//!
//! [`Ledger`] does the work once for both stores; [`engine::Engine`] is what a store must
//! be able to do. The clock is handed in. A [`Keeper`] wakes for deadlines.

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

pub use agents::{Agent, Assigned, NewAgent};
pub use calls::{Ask, Outcome};
pub use check::Findings;
pub use claims::{Claimed, Wanted};
pub use clock::{Clock, SystemClock};
pub use dispatch::{AccountView, Bench, Busy, Floor, ReadyTask, RedBase};
pub use error::{LedgerError, StoreError};
pub use figures::{Count, RunSpending, Spending};
pub use hints::Hints;
pub use keeper::{Keeper, Woken};
pub use ledger::{Ledger, Options};
pub use migrate::SCHEMA;
pub use pages::{EventHead, HeldLock, NumberedEvent, RunPage, RunPlace, TaskPage};
pub use portable::{Exported, Imported};
pub use reads::Filter;
pub use rebuild::{Rebuilt, RowDifference};
pub use seats::{Seat, SeatTry};
pub use store::{Store, StoreNameError};
pub use tallies::Waits;
