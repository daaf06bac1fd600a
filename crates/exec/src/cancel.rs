//! A cancel token that poll(2) can wait on.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::os;

/// Raised once: end gracefully. Raised twice: end at once. A clone is the same token.
///
/// Apart from that somebody may ask to stop when the work at hand is done: that ends nothing by
/// itself but a [`Cancel::wait_or_stop`].
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
    stop_asked: AtomicBool,
    stop: OwnedFd,
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

    /// Also runs inside a signal handler.
    fn ask_to_stop(&self) {
        if !self.stop_asked.swap(true, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        }
    }
}

/// What SIGHUP means to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangUp {
    /// The terminal is gone: end gracefully.
    Ends,
    /// Nothing: the process has no terminal and shall outlive the one it was started from.
    Ignored,
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
            stop_asked: AtomicBool::new(false),
            stop: rustix::event::eventfd(0, flags)?,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A token that every SIGINT, SIGTERM and SIGHUP raises too. Once per process: the handlers stay.
    ///
    /// A SIGHUP that was ignored when the process started (nohup) stays ignored. The other two do
    /// not: shells start background jobs with SIGINT ignored, and `kill -INT` must reach them.
    /// SIGUSR1 asks to stop.
    pub fn on_signals(hang_up: HangUp) -> io::Result<Self> {
        let token = Self::new()?;
        let inner = Arc::clone(&token.inner);
        os::on_signal(SIGUSR1, move || inner.ask_to_stop())?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            if signal == SIGHUP && hang_up == HangUp::Ignored {
                // Caught, not ignored: what is started from here shall not inherit that.
                os::on_signal(signal, || {})?;
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

    /// Asks to stop when the work at hand is done.
    pub fn ask_to_stop(&self) {
        self.inner.ask_to_stop();
    }

    /// Whether somebody asked to stop.
    pub fn is_stop_asked(&self) -> bool {
        self.inner.stop_asked.load(Ordering::SeqCst)
    }

    /// Sleeps for `duration`, less if cancelled. True: it is cancelled.
    pub fn wait(&self, duration: Duration) -> bool {
        Self::sleep(duration, &[&self.inner.first], || self.is_cancelled())
    }

    /// Sleeps until it was raised more often than `seen`, and says how often. There is
    /// nothing to wait for beyond the second time: with more it returns at once after that.
    pub fn wait_above(&self, seen: u32) -> u32 {
        let fd = match seen {
            0 => &self.inner.first,
            _ => &self.inner.second,
        };
        Self::sleep(Duration::MAX, &[fd], || self.level() > seen.min(1));
        self.level()
    }

    /// As [`Cancel::wait`], but it also ends when somebody asks to stop. True: one of the two.
    pub fn wait_or_stop(&self, duration: Duration) -> bool {
        let fds = [&self.inner.first, &self.inner.stop];
        Self::sleep(duration, &fds, || {
            self.is_cancelled() || self.is_stop_asked()
        })
    }

    fn sleep(duration: Duration, fds: &[&OwnedFd], is_over: impl Fn() -> bool) -> bool {
        let until = Instant::now().checked_add(duration);
        while !is_over() && until.is_none_or(|at| Instant::now() < at) {
            let mut fds: Vec<_> = fds.iter().map(|fd| os::readable(fd.as_fd())).collect();
            if os::poll_until(&mut fds, until).is_err() {
                // Out of kernel memory: still sleep, in small pieces.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        is_over()
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
    signal_mask(&status, "SigIgn:") >> (signal - 1) & 1 == 1
}

/// A set of signals in the text of `/proc/PID/status`: bit n - 1 is signal n.
pub(crate) fn signal_mask(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
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
    fn each_level_is_waited_for() {
        let token = Cancel::new().unwrap();
        let other = token.clone();
        let waiter = std::thread::spawn(move || {
            let first = other.wait_above(0);
            (first, other.wait_above(1), other.wait_above(5))
        });
        token.cancel();
        assert_eq!(token.wait_above(0), 1, "it is there already");
        token.cancel();
        let (first, second, later) = waiter.join().unwrap();
        assert!((1..=2).contains(&first), "{first}");
        assert_eq!((second, later), (2, 2));
    }

    #[test]
    fn asking_to_stop_cancels_nothing() {
        let token = Cancel::new().unwrap();
        assert!(!token.wait_or_stop(Duration::from_millis(1)));
        token.ask_to_stop();
        token.ask_to_stop();
        assert!(token.is_stop_asked());
        assert!(token.wait_or_stop(Duration::from_secs(3600)));
        assert!(!token.is_cancelled());
        assert!(!token.wait(Duration::from_millis(1)));
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
