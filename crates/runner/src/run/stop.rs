//! Asking the runner at work to stop: a signal to the process that holds the lock.
//!
//! A signal and not a file: a session may write files here, but whether it can send
//! signals to the runner is the sandbox's matter, and a runner that sleeps wakes up
//! by it at once.

use std::time::Duration;

use runner_exec::{Ask, Cancel, OtherProcess};

use crate::error::{Error, ErrorCode, Result};
use crate::lock::ProjectLock;
use crate::project::Project;

/// A runner that was asked to stop.
#[derive(Debug)]
pub struct StopRequest {
    /// Its pid.
    pub pid: u32,
    process: OtherProcess,
}

impl StopRequest {
    /// Waits for its end. False: it goes on after `limit`, or the wait was cancelled.
    pub fn wait(&self, limit: Duration, cancel: &Cancel) -> Result<bool> {
        Ok(self.process.wait(limit, cancel)?)
    }
}

/// Asks the runner at work in this project to stop after its iteration, or to end
/// at once. `None`: no runner is at work.
pub fn ask_to_stop(project: &Project, at_once: bool) -> Result<Option<StopRequest>> {
    let Some(pid) = ProjectLock::holder(project) else {
        return Ok(None);
    };
    let Some(process) = OtherProcess::open(pid)? else {
        return Ok(None);
    };
    // Only now: from here on the handle means the process that was looked at.
    if !ProjectLock::is_held_by(project, pid) {
        return if ProjectLock::holder(project).is_none() {
            Ok(None)
        } else {
            Err(Error::new(
                ErrorCode::Locked,
                format!("a runner is at work here, but it cannot be told whether it is pid {pid}"),
            )
            .hint("if it belongs to another user, that user must stop it"))
        };
    }
    let ask = if at_once { Ask::End } else { Ask::Stop };
    if ask == Ask::Stop && !runner_exec::understands_stop(pid) {
        return Err(Error::new(
            ErrorCode::Locked,
            format!("the runner at work (pid {pid}) cannot be asked to stop after its iteration"),
        )
        .hint("wait for its end, or end it with `runner stop --now`"));
    }
    Ok(process.ask(ask)?.then_some(StopRequest { pid, process }))
}
