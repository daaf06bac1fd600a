//! Another process by a handle that cannot come to mean a different one.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal};

use crate::{Cancel, os};

/// How often to look whether the wait was cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A process. Its number may be used again after its end: this handle still means the first one.
#[derive(Debug)]
pub struct OtherProcess {
    fd: OwnedFd,
}

/// What to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Stop when the work at hand is done (SIGUSR1, see [`Cancel::is_stop_asked`]).
    Stop,
    /// End gracefully (SIGTERM).
    End,
}

impl OtherProcess {
    /// The process that has this number now; `None` if there is none.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(os::pid) else {
            return Ok(None);
        };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self { fd })),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the signal. False: it has ended already.
    pub fn ask(&self, ask: Ask) -> io::Result<bool> {
        let signal = match ask {
            Ask::Stop => Signal::USR1,
            Ask::End => Signal::TERM,
        };
        match rustix::process::pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end. False: it goes on after `limit`, or the wait was cancelled.
    pub fn wait(&self, limit: Duration, cancel: &Cancel) -> io::Result<bool> {
        let until = Instant::now() + limit;
        loop {
            let look_at = until.min(Instant::now() + LOOK_AGAIN);
            let mut fds = [os::readable(self.fd.as_fd())];
            if os::poll_until(&mut fds, Some(look_at))? {
                return Ok(true);
            }
            if cancel.is_cancelled() || Instant::now() >= until {
                return Ok(false);
            }
        }
    }
}

/// Whether a process has a handler for [`Ask::Stop`]: without one the signal would kill it.
pub fn understands_stop(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let signal = Signal::USR1.as_raw();
    crate::cancel::signal_mask(&status, "SigCgt:") >> (signal - 1) & 1 == 1
}
