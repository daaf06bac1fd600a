//! A cancel token that poll(2) can wait on.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::os;

/// Raised once: end gracefully. Raised twice: end at once. A clone is the same token.
#[derive(Debug, Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
}

/// One file descriptor per level, readable for ever once the level is reached: any number of
/// waiters sees it, and one that has already seen level 1 does not spin while it waits for level 2.
#[derive(Debug)]
struct Inner {
    level: AtomicU32,
    last_signal: AtomicI32,
    first: OwnedFd,
    second: OwnedFd,
}

impl Inner {
    /// Also runs inside a signal handler: atomics and one write.
    fn raise(&self) {
        let fd = match self.level.fetch_add(1, Ordering::SeqCst) {
            0 => &self.first,
            1 => &self.second,
            _ => return,
        };
        // An eventfd takes 2^64 - 2 such writes before it would block.
        let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
    }
}

impl Cancel {
    /// A token that is raised by [`Cancel::cancel`] alone.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let inner = Inner {
            level: AtomicU32::new(0),
            last_signal: AtomicI32::new(0),
            first: rustix::event::eventfd(0, flags)?,
            second: rustix::event::eventfd(0, flags)?,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A token that every SIGINT, SIGTERM and SIGHUP raises too. Once per process: the handlers stay.
    ///
    /// A SIGHUP that was ignored when the process started (nohup) stays ignored. The other two do
    /// not: shells start background jobs with SIGINT ignored, and `kill -INT` must reach them.
    pub fn on_signals() -> io::Result<Self> {
        let token = Self::new()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            let inner = Arc::clone(&token.inner);
            os::on_signal(signal, move || {
                inner.last_signal.store(signal, Ordering::SeqCst);
                inner.raise();
            })?;
        }
        Ok(token)
    }

    /// Raises the level by one.
    pub fn cancel(&self) {
        self.inner.raise();
    }

    /// How often it was raised.
    pub fn level(&self) -> u32 {
        self.inner.level.load(Ordering::SeqCst)
    }

    /// Whether it was raised at all.
    pub fn is_cancelled(&self) -> bool {
        self.level() > 0
    }

    /// The signal that raised it last, if one did.
    pub fn last_signal(&self) -> Option<i32> {
        match self.inner.last_signal.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }

    /// Sleeps for `duration`, less if cancelled. True: it is cancelled.
    pub fn wait(&self, duration: Duration) -> bool {
        let until = Instant::now().checked_add(duration);
        while !self.is_cancelled() && until.is_none_or(|at| Instant::now() < at) {
            let mut fds = [os::readable(self.inner.first.as_fd())];
            if os::poll_until(&mut fds, until).is_err() {
                // Out of kernel memory: still sleep, in small pieces.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        self.is_cancelled()
    }

    /// Becomes readable when the level exceeds `seen`; `None` if there is nothing further to wait for.
    pub(crate) fn fd_above(&self, seen: u32) -> Option<BorrowedFd<'_>> {
        match seen {
            0 => Some(self.inner.first.as_fd()),
            1 => Some(self.inner.second.as_fd()),
            _ => None,
        }
    }
}

/// Read from /proc, since asking the kernel directly needs `unsafe` and libc.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_count_and_clones_share() {
        let token = Cancel::new().unwrap();
        let other = token.clone();
        assert!(!token.is_cancelled());
        assert!(!token.wait(Duration::from_millis(1)));
        other.cancel();
        assert_eq!(token.level(), 1);
        assert!(token.wait(Duration::from_secs(3600)));
        other.cancel();
        other.cancel();
        assert_eq!(token.level(), 3);
        assert_eq!(token.last_signal(), None);
    }

    #[test]
    fn each_level_has_its_own_wakeup() {
        let token = Cancel::new().unwrap();
        let ready = |seen| {
            let mut fds = [os::readable(token.fd_above(seen).unwrap())];
            os::poll_until(&mut fds, Some(Instant::now())).unwrap()
        };
        assert!(!ready(0));
        token.cancel();
        assert!(ready(0));
        assert!(!ready(1));
        token.cancel();
        assert!(ready(1));
        assert!(token.fd_above(2).is_none());
    }

    #[test]
    fn a_wait_ends_when_another_thread_cancels() {
        let token = Cancel::new().unwrap();
        let other = token.clone();
        let thread = std::thread::spawn(move || other.cancel());
        assert!(token.wait(Duration::from_secs(3600)));
        thread.join().unwrap();
    }
}
