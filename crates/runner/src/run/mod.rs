//! A run from start to end: start, loop, stop, recovery, and what looks at it again afterwards.

pub(crate) mod beginning;
pub(crate) mod current;
pub(crate) mod detach;
pub(crate) mod disk_wait;
pub(crate) mod follow_branch;
pub(crate) mod notify;
mod pauses;
pub(crate) mod position;
pub(crate) mod reader;
pub(crate) mod recover;
pub(crate) mod refs;
pub(crate) mod replay;
pub(crate) mod run_loop;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod verify;
