//! A git that may wait for ever, because a session left a pipe where git expects
//! a file: noticed, ended, and left to the caller to clear the way.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::error::Result;

/// How a call in an untrusted work tree went.
#[derive(Debug)]
pub(crate) enum Patience<T> {
    /// It ended.
    Ended(T),
    /// It did nothing at all for a while and was ended.
    Stalled,
    /// It ended, but there are folders that it could not look into.
    Blind,
}

/// So long nobody looks whether it does anything.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Between two looks at what it has done.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// So many looks without any work in between: it waits for something.
const IDLE_LOOKS: u32 = 3;

/// Runs a command with null stdin; ends it when it does nothing.
pub(super) fn run(mut command: Command) -> Result<Patience<Output>> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| super::call::cannot_start(&error))?;
    let mut pipes = Pipes::of(&mut child);
    let mut watch = Watch::new();
    while !pipes.read_for(LOOK_EVERY)? {
        if watch.sees_no_work(child.id()) {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(Patience::Stalled);
        }
    }
    // Both pipes are closed: it ends, or has ended. Nothing that git starts here keeps running.
    Ok(Patience::Ended(Output {
        status: child.wait()?,
        stdout: pipes.stdout,
        stderr: pipes.stderr,
    }))
}

/// What the child prints, on either pipe as it comes: each may fill up.
struct Pipes {
    open: Vec<(bool, File)>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Pipes {
    fn of(child: &mut Child) -> Self {
        let out = child.stdout.take().map(|pipe| (true, OwnedFd::from(pipe)));
        let err = child.stderr.take().map(|pipe| (false, OwnedFd::from(pipe)));
        let pipes = out.into_iter().chain(err);
        Self {
            open: pipes.map(|(is_out, fd)| (is_out, File::from(fd))).collect(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }

    /// Reads what comes, until both are closed (true) or nothing came for so long (false).
    fn read_for(&mut self, limit: Duration) -> Result<bool> {
        let timeout = Timespec::try_from(limit).unwrap_or_default();
        let mut buffer = [0; 1 << 14];
        while !self.open.is_empty() {
            let mut fds: Vec<_> = self
                .open
                .iter()
                .map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN))
                .collect();
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok(false),
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(std::io::Error::from)?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for at in (0..ready.len()).rev().filter(|at| ready[*at]) {
                let (is_out, pipe) = &mut self.open[at];
                match pipe.read(&mut buffer) {
                    Ok(0) => drop(self.open.remove(at)),
                    Ok(count) if *is_out => self.stdout.extend_from_slice(&buffer[..count]),
                    Ok(count) => self.stderr.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(true)
    }
}

/// Whether a process that prints nothing does anything else.
struct Watch {
    begun: Instant,
    worked: Option<(u64, u64)>,
    idle: u32,
}

impl Watch {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            worked: None,
            idle: 0,
        }
    }

    /// One look; true after several of them without any work in between.
    fn sees_no_work(&mut self, pid: u32) -> bool {
        if self.begun.elapsed() < UNWATCHED {
            return false;
        }
        let work = work_done(pid);
        self.idle = if work.is_some() && work == self.worked {
            self.idle + 1
        } else {
            0
        };
        self.worked = work;
        self.idle >= IDLE_LOOKS
    }
}

/// The processor time that a process has used, if it sleeps without waiting for
/// a disk; `None` while it runs.
fn work_done(pid: u32) -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_whitespace();
    let asleep = fields.next()? == "S";
    let user = fields.nth(10)?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    asleep.then_some((user, system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods)] // a stand-in for git
    fn sh(script: &str) -> Patience<Output> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        run(command).unwrap()
    }

    #[test]
    fn a_process_that_waits_for_nobody_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let script = format!("mkfifo {0}; exec cat {0}", pipe.display());
        assert!(matches!(sh(&script), Patience::Stalled));
        let Patience::Ended(output) = sh("head -c 300000 /dev/zero; echo x >&2; exit 3") else {
            panic!("it ended by itself");
        };
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 2));
    }
}
