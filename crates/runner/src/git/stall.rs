//! A git that may wait for ever, because a session left a pipe where git expects
//! a file: noticed, ended, and left to the caller to clear the way.

use std::process::Output;
use std::time::{Duration, Instant};

use runner_exec::Helper;

use crate::error::Result;

/// How a call in an untrusted work tree went.
#[derive(Debug)]
pub(crate) enum StallOutcome<T> {
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

/// Waits for it to end; ends it when it does nothing.
pub(super) fn watch(mut child: Helper) -> Result<StallOutcome<Output>> {
    let mut watch = StallWatch::new();
    while !child.read_for(Some(LOOK_EVERY))? {
        if watch.sees_no_work(child.id()) {
            // Dropped, which ends it.
            return Ok(StallOutcome::Stalled);
        }
    }
    // Both pipes are closed: it ends, or has ended. Nothing that git starts here keeps running.
    Ok(StallOutcome::Ended(child.output()?))
}

/// Whether a process that prints nothing does anything else.
struct StallWatch {
    begun: Instant,
    worked: Option<(u64, u64)>,
    idle: u32,
}

impl StallWatch {
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
    fn sh(script: &str) -> StallOutcome<Output> {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]);
        watch(Helper::spawn(&command, runner_exec::Input::Nothing).unwrap()).unwrap()
    }

    #[test]
    fn a_process_that_waits_for_nobody_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let script = format!("mkfifo {0}; exec cat {0}", pipe.display());
        assert!(matches!(sh(&script), StallOutcome::Stalled));
        let StallOutcome::Ended(output) = sh("head -c 300000 /dev/zero; echo x >&2; exit 3") else {
            panic!("it ended by itself");
        };
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 2));
    }
}
