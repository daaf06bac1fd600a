//! `runner loop --detach`: the same loop in a process without a terminal.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::Child;
use std::time::{Duration, Instant};

use runner::{LoopLog, Project, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::json;

use super::Exit;
use crate::args::{ColorChoice, GlobalOptions, LoopArgs};
use crate::out::OutputGate;
use crate::style;

/// The first word of a detached process, before the arguments of the loop.
pub(crate) const HIDDEN: &str = "__detached";

/// What a detached loop tells when its first session begins.
const BEGUN: &[u8] = b"begun\n";

/// How long to wait for that. A runner that was killed may still be cleaned up after.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the loop in the background and returns when it has begun.
pub(crate) fn detach(
    global: &GlobalOptions,
    args: &LoopArgs,
    out: &mut OutputGate,
) -> Result<Exit> {
    let project = Project::of_run(&global.project_dir)?;
    let log = LoopLog::open(&project)?;
    let (told, tell) = io::pipe()?;
    let words = words(global, &project, args);
    let mut child = runner_exec::spawn_detached(&words, project.root(), tell.into(), &log.file)?;
    match wait_until_begun(told, &mut child)? {
        Beginning::Ended(exit) => {
            relay(&log.since_opened(), out);
            if !out.json {
                out.say("the loop has ended already; nothing runs in the background");
            }
            Ok(exit)
        }
        Beginning::Begun => {
            print(child.id(), &log, true, out);
            Ok(Exit::Success)
        }
        Beginning::Unknown => {
            print(child.id(), &log, false, out);
            Ok(Exit::Success)
        }
    }
}

fn print(pid: u32, log: &LoopLog, begun: bool, out: &mut OutputGate) {
    if out.json {
        out.object(json!({
            "event": "detached",
            "run_id": log.run_id,
            "pid": pid,
            "log": log.path,
            "begun": begun,
        }));
        return;
    }
    out.data(&format!("pid {pid}, log {}", log.path.display()));
    if !begun {
        out.say(&format!(
            "note: no session has begun within {} s; the loop is still at it",
            PATIENCE.as_secs()
        ));
    }
    out.say("the loop runs in the background and survives this terminal:");
    for (command, does) in [
        ("runner status", "where it is"),
        ("runner watch", "the live view"),
        ("runner log --follow", "what the agent does, as it happens"),
        (
            "runner stop",
            "end it after this iteration (--now: at once)",
        ),
    ] {
        out.say(&format!("  {command:<20} {does}"));
    }
}

/// What a loop that ended at once had to say.
fn relay(text: &str, out: &mut OutputGate) {
    for line in text.lines() {
        let line = style::harmless(line);
        if out.json {
            out.data(&line);
        } else {
            out.say_always(&line);
        }
    }
}

/// The arguments of the loop again, for the process in the background.
fn words(global: &GlobalOptions, project: &Project, args: &LoopArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![HIDDEN.into(), "-C".into(), project.root().into()];
    let mut add = |word: String| words.push(word.into());
    for (wanted, word) in [
        (global.json, "--json"),
        (global.quiet, "--quiet"),
        (global.verbose, "--verbose"),
        (global.color == ColorChoice::Always, "--color=always"),
    ] {
        if wanted {
            add(word.to_owned());
        }
    }
    add("loop".to_owned());
    if let Some(steps) = args.steps {
        add(format!("--steps={steps}"));
    }
    if let Some(duration) = args.for_duration {
        add(format!("--for={}s", duration.as_secs()));
    }
    if let Some(until) = args.until {
        add(format!("--until={}", until.strftime("%H:%M")));
    }
    if args.wait_quota {
        add("--wait-quota".to_owned());
    }
    words
}

/// What became of a loop that was started.
enum Beginning {
    /// Its first session has begun.
    Begun,
    /// It ended before.
    Ended(Exit),
    /// Neither, for a long time.
    Unknown,
}

fn wait_until_begun(mut told: PipeReader, child: &mut Child) -> Result<Beginning> {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        let left = give_up_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Beginning::Unknown);
        }
        let mut fds = [PollFd::from_borrowed_fd(told.as_fd(), PollFlags::IN)];
        let ready = match rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => return Err(io::Error::from(error).into()),
        };
        if !ready {
            continue;
        }
        let mut heard = [0; BEGUN.len()];
        if told.read(&mut heard)? > 0 {
            return Ok(Beginning::Begun);
        }
        // It let go without a word: it is at its end.
        let status = child.wait()?;
        return Ok(Beginning::Ended(
            status.code().map_or(Exit::Error, Exit::of_code),
        ));
    }
}

/// The one who started this process and waits to hear that the loop has begun.
#[derive(Debug)]
pub(crate) struct DetachParent {
    tell: File,
}

impl DetachParent {
    /// Tells it. Whether it still listens does not matter.
    pub(crate) fn begun(mut self) {
        let _ = self.tell.write_all(BEGUN);
    }
}

/// In the detached process: whom to tell.
pub(crate) fn take_starter() -> Result<DetachParent> {
    let tell = runner_exec::take_stdin()?;
    Ok(DetachParent { tell })
}
