//! Places where tests make a run die or a disk fill up.
//!
//! Debug builds read `RUNNER_FAULT`; release builds contain none of it.
//! - `trace:FILE` appends the name of every point that is passed to FILE
//! - `kill@N` kills this process (SIGKILL) at the N-th point
//! - `interrupt@N` interrupts it (SIGINT) there, as Ctrl-C would
//! - `enospc@N` lets the N-th point fail as a full disk would, once
//! - `erofs@N` lets the N-th point and all after it fail as a read-only disk would
//! - `suspend@SECS` lets the wall clock jump by so much whenever it is read, as it does when a
//!   machine wakes up

use std::io;

/// Passes a point; fails or does not return if a fault is planned here.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn point(_name: &str) -> io::Result<()> {
    Ok(())
}

/// Passes a point; fails or does not return if a fault is planned here.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) -> io::Result<()> {
    planned::point(name)
}

/// The wall clock, as it is or as planned.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn wall_clock(now: jiff::Timestamp) -> jiff::Timestamp {
    now
}

/// The wall clock, as it is or as planned.
#[cfg(debug_assertions)]
pub(crate) fn wall_clock(now: jiff::Timestamp) -> jiff::Timestamp {
    planned::wall_clock(now)
}

#[cfg(debug_assertions)]
mod planned {
    use std::io::{self, Write as _};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    enum Plan {
        None,
        Trace(String),
        Kill(u64),
        Interrupt(u64),
        Enospc(u64),
        Erofs(u64),
        Suspend(u64),
    }

    static PLAN: OnceLock<Plan> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    fn plan() -> Plan {
        let Ok(text) = std::env::var("RUNNER_FAULT") else {
            return Plan::None;
        };
        if let Some(file) = text.strip_prefix("trace:") {
            return Plan::Trace(file.to_owned());
        }
        match text.split_once('@').map(|(kind, n)| (kind, n.parse())) {
            Some(("kill", Ok(n))) => Plan::Kill(n),
            Some(("interrupt", Ok(n))) => Plan::Interrupt(n),
            Some(("enospc", Ok(n))) => Plan::Enospc(n),
            Some(("erofs", Ok(n))) => Plan::Erofs(n),
            Some(("suspend", Ok(n))) => Plan::Suspend(n),
            _ => Plan::None,
        }
    }

    pub(super) fn wall_clock(now: jiff::Timestamp) -> jiff::Timestamp {
        static READ: AtomicU64 = AtomicU64::new(0);
        let Plan::Suspend(secs) = PLAN.get_or_init(plan) else {
            return now;
        };
        let jumps = READ.fetch_add(1, Ordering::SeqCst) + 1;
        now + std::time::Duration::from_secs(secs * jumps)
    }

    pub(super) fn point(name: &str) -> io::Result<()> {
        let number = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
        match PLAN.get_or_init(plan) {
            Plan::Trace(file) => {
                let mut log = std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(file)?;
                writeln!(log, "{name}")
            }
            Plan::Kill(n) if *n == number => runner_exec::os::kill_self(),
            Plan::Interrupt(n) if *n == number => {
                use rustix::process::{Signal, getpid, kill_process};
                Ok(kill_process(getpid(), Signal::INT)?)
            }
            Plan::Enospc(n) if *n == number => Err(io::ErrorKind::StorageFull.into()),
            Plan::Erofs(n) if *n <= number => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            _ => Ok(()),
        }
    }
}
