//! The runner's side: one poll loop from the start of a program to its last process.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::protocol::{Control, Event, Request};
use crate::ready::Ready;
use crate::spec::{Ended, Flow, Report, Sink, SpawnFailure, Spec, Stream};
use crate::supervise::reason;
use crate::sweep::{KILL_LIMIT, Orphans};
use crate::{Cancel, os, proc};

/// One read from a pipe: all the memory that output takes here.
const BUFFER: usize = 64 * 1024;

/// After the end, a pipe without data for so long is held open by something that is not ours.
const FINAL_QUIET: Duration = Duration::from_millis(200);

/// Nor may that something keep us by writing for ever.
const FINAL_LIMIT: Duration = Duration::from_secs(2);

/// What a supervisor gets beyond the time that it should take, before it counts as lost.
const MARGIN: Duration = Duration::from_secs(5);

/// How supervisors are started.
#[derive(Debug, Clone)]
pub struct Supervisor {
    /// An absolute program and the arguments that make it call [`crate::supervise_main`].
    pub argv: Vec<OsString>,
}

impl Supervisor {
    /// This very binary, also when its file was replaced meanwhile: `/proc/self/exe __supervise`.
    pub fn this_binary() -> Self {
        Self {
            argv: vec!["/proc/self/exe".into(), "__supervise".into()],
        }
    }

    /// Runs `spec` to its end: when this returns, every process that it started is gone.
    ///
    /// An error means that the machine refused something (pipes, processes), never that the program
    /// failed. What was started is ended in that case too, and when the sink panics.
    pub fn run(&self, spec: &Spec, cancel: &Cancel, sink: &mut dyn Sink) -> io::Result<Report> {
        self.run_in(None, spec, cancel, sink)
    }

    /// The same below a supervisor that was started before, if there is one.
    pub fn run_in(
        &self,
        ready: Option<Ready>,
        spec: &Spec,
        cancel: &Cancel,
        sink: &mut dyn Sink,
    ) -> io::Result<Report> {
        let begun = Instant::now();
        let (outcome, exit) = match not_even_started(spec, cancel) {
            Some(ended) => (Outcome::of(ended), None),
            None => self.supervised(ready, spec, cancel, sink)?,
        };
        Ok(Report {
            ended: outcome.ended,
            exit,
            duration: begun.elapsed(),
            killed_leftovers: outcome.killed,
            survivors: outcome.survivors,
        })
    }

    fn supervised(
        &self,
        ready: Option<Ready>,
        spec: &Spec,
        cancel: &Cancel,
        sink: &mut dyn Sink,
    ) -> io::Result<(Outcome, Option<i32>)> {
        if let Err(failure) = check(spec) {
            return Ok((Outcome::of(Ended::NotStarted(failure)), None));
        }
        let session = self.start(ready, spec, sink)?;
        let mut watch = Watch::new(session, spec, cancel, sink);
        let outcome = watch.until_ended()?;
        let exit = match watch.program_end {
            Some(Ended::Exited(code)) => Some(code),
            _ => None,
        };
        Ok((outcome, exit))
    }

    fn start(&self, ready: Option<Ready>, spec: &Spec, sink: &mut dyn Sink) -> io::Result<Session> {
        let others = proc::own_children().iter().map(proc::Entry::key).collect();
        let announce = |ready: Ready, sink: &mut dyn Sink| {
            if let Some(pid) = ready.id() {
                sink.supervised(pid);
            }
            ready
        };
        let parts = match ready.map(|ready| announce(ready, sink).order(spec)) {
            Some(Ok(parts)) => parts,
            // None was asked for before, or somebody has killed it meanwhile.
            Some(Err(_)) | None => announce(self.prepare()?, sink).order_or_lose(spec)?,
        };
        Ok(Session {
            child: parts.child,
            control: parts.control,
            stdout: Some(parts.stdout),
            // Nothing comes through it where the streams are one.
            stderr: Some(parts.stderr).filter(|_| !spec.merge_stderr),
            mark: parts.mark,
            program: None,
            others,
            over: false,
        })
    }
}

/// What no supervisor needs to be asked for.
fn check(spec: &Spec) -> Result<(), SpawnFailure> {
    let refuse = |message: String| {
        Err(SpawnFailure {
            not_found: false,
            message,
        })
    };
    if let Some(failure) = &spec.cannot_start {
        return Err(failure.clone());
    }
    let program = spec.argv.first().cloned().unwrap_or_default();
    if program.is_empty() {
        return refuse("cannot start a program without a name".to_owned());
    }
    // Checked here because spawn's error does not tell a missing folder from a missing program.
    let cwd = std::fs::metadata(&spec.cwd).and_then(|cwd| {
        if cwd.is_dir() {
            Ok(())
        } else {
            Err(Errno::NOTDIR.into())
        }
    });
    if let Err(error) = cwd {
        let (name, cwd) = (program.to_string_lossy(), spec.cwd.display());
        let reason = reason(&error);
        return refuse(format!("cannot start `{name}` in `{cwd}`: {reason}"));
    }
    Ok(())
}

/// What makes a start pointless.
fn not_even_started(spec: &Spec, cancel: &Cancel) -> Option<Ended> {
    if cancel.is_cancelled() {
        return Some(Ended::Interrupted);
    }
    let late = spec.deadline.is_some_and(|at| Instant::now() >= at);
    late.then_some(Ended::TimedOut)
}

/// How it ended, and what that took.
struct Outcome {
    ended: Ended,
    killed: u32,
    survivors: u32,
}

impl Outcome {
    fn of(ended: Ended) -> Self {
        Self {
            ended,
            killed: 0,
            survivors: 0,
        }
    }
}

/// A running supervisor and our ends of its pipes.
struct Session {
    child: Child,
    control: Control,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    mark: String,
    program: Option<i32>,
    /// The children that this process had before.
    others: HashSet<(i32, u64)>,
    over: bool,
}

impl Session {
    fn pipe(&mut self, stream: Stream) -> &mut Option<PipeReader> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn ask(&self, request: Request) {
        self.control.send(request);
        // In case that the agent stopped its supervisor.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(os::pid) {
            let _ = rustix::process::kill_process(pid, Signal::CONT);
        }
    }

    /// The supervisor said that all is over: it has nothing more to do.
    fn reap(&mut self) {
        self.over = true;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The supervisor is gone or does not answer: what was below it is for us to end.
    fn reclaim(&mut self) -> (u32, u32) {
        self.reap();
        let own = self.mark.rsplit(':').next().unwrap_or_default();
        Orphans {
            mark: own,
            program: self.program,
            others: &self.others,
        }
        .end()
    }
}

impl Drop for Session {
    /// Left early, by an error or a panic: still nothing may stay behind.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // The supervisor knows best what is below it; we come second.
        self.ask(Request::Kill);
        let give_up_at = Instant::now() + KILL_LIMIT + MARGIN;
        while !self.control.is_closed() && Instant::now() < give_up_at {
            let mut fds = [os::readable(self.control.as_fd())];
            if os::poll_until(&mut fds, Some(give_up_at)).is_err() {
                break;
            }
            self.control.receive();
        }
        self.reclaim();
    }
}

/// What the poll found ready.
#[derive(Debug, Clone, Copy)]
enum Awake {
    Control,
    Output(Stream),
    Cancel,
}

/// The loop and what it has seen so far.
struct Watch<'a> {
    session: Session,
    spec: &'a Spec,
    cancel: &'a Cancel,
    sink: &'a mut dyn Sink,
    buffer: Vec<u8>,
    /// Why we asked for the end; the first reason stays.
    cause: Option<Ended>,
    /// How the program itself ended.
    program_end: Option<Ended>,
    asked: Option<Request>,
    cancel_seen: u32,
    last_output: Instant,
    last_tick: Instant,
    /// When a supervisor that should be done counts as lost.
    give_up_at: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(session: Session, spec: &'a Spec, cancel: &'a Cancel, sink: &'a mut dyn Sink) -> Self {
        let now = Instant::now();
        Self {
            session,
            spec,
            cancel,
            sink,
            buffer: vec![0; BUFFER],
            cause: None,
            program_end: None,
            asked: None,
            cancel_seen: 0,
            last_output: now,
            last_tick: now,
            give_up_at: None,
        }
    }

    fn until_ended(&mut self) -> io::Result<Outcome> {
        let outcome = loop {
            for ready in self.wait()? {
                match ready {
                    Awake::Control => {}
                    Awake::Output(stream) => self.read(stream)?,
                    Awake::Cancel => self.cancelled(),
                }
            }
            // Always, and before the clock: an end that has happened beats a deadline that has come.
            if let Some(outcome) = self.listen() {
                break outcome;
            }
            let now = Instant::now();
            if self.give_up_at.is_some_and(|at| now >= at) {
                break self.lost();
            }
            self.look_at_the_clock(now);
        };
        self.drain()?;
        Ok(outcome)
    }

    fn wait(&self) -> io::Result<Vec<Awake>> {
        let mut sources = vec![Awake::Control];
        let mut fds = vec![os::readable(self.session.control.as_fd())];
        let pipes = [
            (Stream::Stdout, &self.session.stdout),
            (Stream::Stderr, &self.session.stderr),
        ];
        for (stream, pipe) in pipes {
            // Not before the supervisor said so: the sink hears of the start before any output.
            if let Some(pipe) = pipe
                && self.session.program.is_some()
            {
                sources.push(Awake::Output(stream));
                fds.push(os::readable(pipe.as_fd()));
            }
        }
        if let Some(fd) = self.cancel.fd_above(self.cancel_seen) {
            sources.push(Awake::Cancel);
            fds.push(os::readable(fd));
        }
        os::poll_until(&mut fds, self.next_timer())?;
        let ready = sources.into_iter().zip(&fds);
        Ok(ready
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect())
    }

    fn next_timer(&self) -> Option<Instant> {
        let mut timers = vec![self.give_up_at, self.tick_at()];
        if self.is_running() {
            timers.extend([self.spec.deadline, self.idle_at()]);
        }
        timers.into_iter().flatten().min()
    }

    fn idle_at(&self) -> Option<Instant> {
        self.last_output.checked_add(self.spec.idle_timeout?)
    }

    fn tick_at(&self) -> Option<Instant> {
        self.last_tick.checked_add(self.sink.tick_every()?)
    }

    /// Neither ended nor asked to: only then do deadlines mean anything.
    fn is_running(&self) -> bool {
        self.cause.is_none() && self.program_end.is_none()
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        let is_past = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if self.is_running() && is_past(self.spec.deadline) {
            self.end_because(Ended::TimedOut);
        }
        if self.is_running() && is_past(self.idle_at()) {
            self.end_because(Ended::Idle);
        }
        if is_past(self.tick_at()) {
            self.last_tick = now;
            let flow = self.sink.tick();
            self.follow(flow);
        }
    }

    fn follow(&mut self, flow: Flow) {
        if flow != Flow::Go && self.is_running() {
            self.end_because(Ended::StoppedBySink);
        }
        if flow == Flow::Kill {
            self.ask(Request::Kill);
        }
    }

    fn cancelled(&mut self) {
        self.cancel_seen = self.cancel.level();
        if self.is_running() {
            self.end_because(Ended::Interrupted);
        }
        if self.cancel_seen > 1 {
            self.ask(Request::Kill);
        }
    }

    fn end_because(&mut self, cause: Ended) {
        self.cause = Some(cause);
        self.ask(Request::End);
    }

    fn ask(&mut self, request: Request) {
        if self.asked < Some(request) {
            self.asked = Some(request);
            self.session.ask(request);
            self.expect_end(request);
        }
    }

    fn expect_end(&mut self, request: Request) {
        let grace = match request {
            Request::End => self.spec.grace,
            Request::Kill => Duration::ZERO,
        };
        self.give_up_at = Instant::now().checked_add(grace.saturating_add(KILL_LIMIT + MARGIN));
    }

    fn read(&mut self, stream: Stream) -> io::Result<()> {
        let Some(pipe) = self.session.pipe(stream) else {
            return Ok(());
        };
        match pipe.read(&mut self.buffer) {
            Ok(0) => *self.session.pipe(stream) = None,
            Ok(len) => {
                self.last_output = Instant::now();
                let flow = self.sink.output(stream, &self.buffer[..len]);
                self.follow(flow);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// What the supervisor says. Some: it is over.
    fn listen(&mut self) -> Option<Outcome> {
        for line in self.session.control.receive() {
            let Some(event) = Event::parse(&line) else {
                continue;
            };
            match event {
                Event::Started(pid) => {
                    self.session.program = i32::try_from(pid).ok();
                    self.sink.started(pid);
                }
                Event::Failed { errno, message } => {
                    self.session.reap();
                    let failure = SpawnFailure {
                        not_found: errno == Errno::NOENT.raw_os_error(),
                        message,
                    };
                    // A supervisor that was asked to end while it waited for a lock fails too.
                    let ended = self.cause.take().unwrap_or(Ended::NotStarted(failure));
                    return Some(Outcome::of(ended));
                }
                Event::Exited(code) => self.program_ended(Ended::Exited(code)),
                Event::Signaled(signal) => self.program_ended(Ended::Signaled(signal)),
                Event::Ended { killed, survivors } => {
                    self.session.reap();
                    return Some(Outcome {
                        ended: self.why(),
                        killed,
                        survivors,
                    });
                }
            }
        }
        self.session.control.is_closed().then(|| self.lost())
    }

    fn program_ended(&mut self, how: Ended) {
        self.program_end = Some(how);
        // What it left behind gets the same grace.
        if self.give_up_at.is_none() {
            self.expect_end(Request::End);
        }
    }

    fn lost(&mut self) -> Outcome {
        let (killed, survivors) = self.session.reclaim();
        Outcome {
            ended: self.why(),
            killed,
            survivors,
        }
    }

    /// Our own reason first: a program that we told to end did not end by itself.
    fn why(&self) -> Ended {
        let known = self.cause.clone().or_else(|| self.program_end.clone());
        known.unwrap_or(Ended::SupervisorLost)
    }

    /// What is still in the pipes. Normally they are closed at once; only a process that is none of
    /// ours can hold them open, and it is not waited for.
    fn drain(&mut self) -> io::Result<()> {
        let stop_at = Instant::now() + FINAL_LIMIT;
        for stream in [Stream::Stdout, Stream::Stderr] {
            while let Some(pipe) = self.session.pipe(stream) {
                let quiet_at = Instant::now() + FINAL_QUIET;
                let mut fds = [os::readable(pipe.as_fd())];
                let ready = os::poll_until(&mut fds, Some(quiet_at.min(stop_at)))?;
                if ready {
                    self.read(stream)?;
                }
                let now = Instant::now();
                if now >= stop_at || (!ready && now >= quiet_at) {
                    break;
                }
            }
        }
        Ok(())
    }
}
