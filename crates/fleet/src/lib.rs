//! The fleet: many loops side by side over one ledger.
//!
//! Roles are written once, over three things that are handed in: the ledger, which holds
//! all that is decided; a clock; and a [`workspaces::Workspaces`], which is git, guards and sessions.
//! Simulations hand in others.

pub mod backlog;
pub mod explain;
pub mod host;
pub mod ledger_port;
pub mod local;
pub mod names;
pub mod notes;
pub mod roles;
pub mod rules;
mod settled;
pub mod simulate;
pub mod up;
pub mod workspaces;
