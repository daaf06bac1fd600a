//! The one module with `unsafe`, and the small calls to the kernel that are not worth one of their own.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};

/// Makes orphaned descendants children of this process instead of init. May be called again.
pub fn become_subreaper() -> io::Result<()> {
    // The kernel wants a boolean; any pid is one.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// The child is killed when its parent dies: for short helpers (git) that need no supervisor.
///
/// The kernel ties this to the *thread* that spawned the child, not to the process: spawn and wait
/// in one thread, or the child dies when that thread ends.
pub fn die_with_parent(cmd: &mut Command) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above took effect: then no signal ever comes.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(rustix::io::Errno::SRCH.into())
        }
    };
    // SAFETY: the closure runs between fork and exec and must be async-signal-safe: it makes two
    // plain system calls, allocates nothing and takes no lock (`io::Error` holds only the errno).
    unsafe { cmd.pre_exec(hook) };
}

/// The child starts in a session of its own: no controlling terminal.
pub(crate) fn own_session(cmd: &mut Command) {
    let hook = || {
        rustix::process::setsid()?;
        Ok(())
    };
    // SAFETY: as above, a single system call.
    unsafe { cmd.pre_exec(hook) };
}

/// Calls `action` inside the signal handler, for the rest of the process.
///
/// The action must be async-signal-safe: atomics and plain system calls, no allocation, no lock.
pub(crate) fn on_signal<F>(signal: i32, action: F) -> io::Result<()>
where
    F: Fn() + Sync + Send + 'static,
{
    // SAFETY: the only caller (`Cancel`) touches atomics and writes to an eventfd. `rustix` makes
    // the system call itself, so that not even `errno` changes under the interrupted code.
    unsafe { signal_hook::low_level::register(signal, action) }?;
    Ok(())
}

/// Ends this very process by SIGKILL, as a crash would (fault injection).
pub fn kill_self() -> ! {
    loop {
        // It cannot fail and does not return; the loop is for the type.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
}

/// Waits until one of `fds` is ready or `until` has come. True: look at them.
///
/// A signal may end the wait early (false): callers loop anyway.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    let timeout = until.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        // Centuries do not fit: as good as for ever, and the caller looks at the clock again.
        Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        })
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What to poll for: data, and (which poll always reports) the other end being gone.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// A process id as the kernel's tables print it. None for 0 and less, which `kill` takes for groups.
pub(crate) fn pid(raw: i32) -> Option<Pid> {
    if raw > 0 { Pid::from_raw(raw) } else { None }
}

/// This process, as the kernel's tables print it.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}
