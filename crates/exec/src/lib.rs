//! Child processes: started under a supervisor, watched with a deadline, ended without leftovers.
//!
//! Every agent and guard runs below a small *supervisor*, the same binary started again
//! (`runner __supervise`). It is a child subreaper: whatever the program starts, also in a session
//! of its own, stays below it and is ended with it. It holds one end of a socket whose other end
//! dies with the runner, so that nothing outlives the runner either, even after SIGKILL.
//!
//! ```text
//! runner (run) ──socket, fd 0── supervisor (supervise) ── program ── whatever it starts
//!       ▲                                                    │
//!       └───────────────────── output pipes ─────────────────┘
//! ```
//!
//! This crate knows nothing of trees, git, prompts or configuration: it is given an argv and tells
//! how it ended. It starts no thread, has no runtime and runs on Linux only.

mod cancel;
mod capped;
mod detach;
mod helper;
mod lock;
pub mod os;
mod pidfd;
mod proc;
mod protocol;
mod ready;
mod run;
mod spec;
mod supervise;
mod sweep;
mod usage;

pub use cancel::{Cancel, HangUp};
pub use capped::{CappedLog, Tail};
pub use detach::{spawn_detached, take_stdin};
pub use helper::{Helper, Input};
pub use lock::wait_until_unlocked;
pub use os::{
    become_subreaper, blank_argument, close_to_others, die_with_parent, end_by_signal, kill_self,
    take_variable,
};
pub use pidfd::{Ask, OtherProcess, understands_stop};
pub use ready::Ready;
pub use run::Supervisor;
pub use spec::{Ended, Flow, Report, Sink, SpawnFailure, Spec, Stream};
pub use supervise::supervise_main;
pub use usage::{
    HeldFiles, ProcessUsage, UsingProcess, exact_memory_below, held_below, pids_below,
    tasks_of_user, usage_below,
};

/// The variable that marks every process below a supervisor.
///
/// It names the session and, for a runner inside an agent, the sessions around it, joined by `:`.
pub const SESSION_VARIABLE: &str = "RUNNER_SESSION";
