//! The fleet: many loops side by side over one ledger.
//!
//! Roles are written once, over what is handed in: the ledger, which holds all that is decided;
//! a clock; [`workspaces::Workspaces`], which is git, guards and sessions; and a backlog.
//! Simulations hand in others.

mod at_rest;
pub mod backlog;
pub mod explain;
pub mod host;
pub mod ledger_port;
pub mod local;
pub mod names;
pub mod notes;
pub mod roles;
pub mod rules;
pub mod simulate;
pub mod up;
pub mod workspaces;
