//! The durable ledger: what [`runner_lifecycle::decide()`] says is written in one
//! transaction, on SQLite or PostgreSQL.
//!
//! [`Ledger`] does the work once for both stores; [`engine::Engine`] is what a store must
//! be able to do. The clock is handed in. A [`Keeper`] wakes for deadlines.

mod calls;
mod change;
mod check;
mod claims;
mod clock;
pub mod engine;
mod error;
mod facts;
mod hints;
mod keeper;
mod ledger;
mod lineage;
mod masking;
mod migrate;
mod picks;
mod portable;
mod postgres;
mod postgres_session;
mod postgres_write;
mod reads;
mod rebuild;
mod records;
mod sqlite;
mod store;
mod wakes;
mod writes;

pub use calls::{Ask, Outcome};
pub use check::Findings;
pub use claims::{Claimed, Wanted};
pub use clock::{Clock, SystemClock};
pub use error::{LedgerError, StoreError};
pub use hints::Hints;
pub use keeper::{Keeper, Woken};
pub use ledger::{Ledger, Options};
pub use migrate::SCHEMA;
pub use portable::{Exported, Imported};
pub use reads::Filter;
pub use rebuild::{Rebuilt, RowDifference};
pub use store::{Store, StoreNameError};
