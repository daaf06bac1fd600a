//! The live web view of a run: a read-only HTTP API over the files of a project,
//! a stream of events, and the page that shows them.

pub mod wire;
