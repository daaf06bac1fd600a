//! A git that may wait for ever, because a session left a pipe where git expects
//! a file: noticed, ended, and left to the caller to clear the way.

use std::io::Read as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

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
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = std::thread::scope(|scope| {
        // Both at once, because either pipe may fill up.
        scope.spawn(|| out.map(|mut pipe| pipe.read_to_end(&mut stdout)));
        scope.spawn(|| err.map(|mut pipe| pipe.read_to_end(&mut stderr)));
        wait(&mut child)
    })?;
    Ok(match ended {
        Some(status) => Patience::Ended(Output {
            status,
            stdout,
            stderr,
        }),
        None => Patience::Stalled,
    })
}

/// Waits for the end; `None` if it had to be ended.
fn wait(child: &mut Child) -> Result<Option<std::process::ExitStatus>> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(200);
    let (mut worked, mut idle, mut looked) = (None, 0, begun);
    loop {
        if let Some(status) = child.try_wait().map_err(Error::from)? {
            return Ok(Some(status));
        }
        let now = Instant::now();
        if now - begun > UNWATCHED && now - looked > LOOK_EVERY {
            looked = now;
            let work = work_done(child.id());
            idle = if work.is_some() && work == worked {
                idle + 1
            } else {
                0
            };
            worked = work;
            if idle >= IDLE_LOOKS {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
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
