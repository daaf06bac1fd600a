//! The rules of a task's life: pure, no I/O, no clock, no randomness.
//!
//! [`decide()`] takes a row, a request and what the caller read, and returns data: the new
//! row, its events, and the changes of locks, lease and runs, which a ledger writes in
//! one transaction. Readiness, order, retries and recovery are here too, so that one
//! model checks them all.

#[macro_use]
mod words;

pub mod decide;
pub mod event;
pub mod lock;
pub mod order;
pub mod packet;
pub mod policy;
pub mod ready;
pub mod reconcile;
pub mod recovery;
pub mod request;
pub mod retry;
pub mod row;
pub mod run;
pub mod successor;
mod time;
pub mod watchdog;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod model;

pub use decide::{Decision, Refusal, decide};
pub use policy::Policy;
pub use request::{Facts, Request, TaskCall};
pub use row::{Task, TaskId};
pub use time::Timestamp;
pub use words::{
    BasePosition, BlockReason, ContextKind, CriterionCheck, FailureCategory, JudgeVerdict, Lane,
    LeasePurpose, RefusalCode, ReworkCause, TaskKind, TaskOrigin, TaskPhase, TaskPriority,
    TaskRisk, TaskRunStatus, TaskState, TaskType,
};
