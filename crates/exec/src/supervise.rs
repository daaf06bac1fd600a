//! The supervisor: starts the program, reaps it and every orphan below, lets nothing outlive it.
//!
//! Its fd 0 is the socket to the runner, fd 1 and 2 are the program's output. It has no thread and
//! sleeps in one poll, over that socket and the pipe that SIGCHLD writes to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::lock;
use crate::os;
use crate::protocol::{Control, Event, Request};
use crate::sweep::{KILL_LIMIT, ROUND, Sweep, count_alive, descendants};

/// How long to wait for the lock of an earlier session, whose supervisor needs less than this to end.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// Entry point of the hidden `__supervise` command. What to run comes through the socket.
///
/// Call it before anything else in `main`: what the process does before that is paid for every child.
pub fn supervise_main() -> ExitCode {
    let Ok(mut control) = control_on_stdin() else {
        return ExitCode::from(2);
    };
    match supervise(&mut control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            control.send(failure);
            ExitCode::FAILURE
        }
    }
}

/// A duplicate that the program does not inherit; fd 0 itself it gets replaced.
fn control_on_stdin() -> io::Result<Control> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    Control::new(UnixStream::from(socket))
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    cwd: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    merge_stderr: bool,
    stdin: Option<PathBuf>,
    hold_lock: Option<PathBuf>,
    grace: Duration,
    monitor: bool,
    task_limit: Option<u64>,
    program: OsString,
    args: Vec<OsString>,
}

/// `[--cwd DIR] [--env NAME=VALUE]… [--stdin PATH] [--merge-stderr 0|1] [--hold-lock PATH]
/// [--grace-ms N] [--monitor 0|1] [--task-limit N] -- ARGV…`
fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Options, Event> {
    let mut cwd = None;
    let mut env = Vec::new();
    let mut merge_stderr = false;
    let mut stdin = None;
    let mut hold_lock = None;
    let mut grace = Duration::from_secs(5);
    let mut monitor = false;
    let mut task_limit = None;
    while let Some(arg) = args.next() {
        if arg == "--" {
            let program = args.next().ok_or_else(|| setup("no program given"))?;
            return Ok(Options {
                cwd,
                env,
                merge_stderr,
                stdin,
                hold_lock,
                grace,
                monitor,
                task_limit,
                program,
                args: args.collect(),
            });
        }
        let name = arg.to_string_lossy().into_owned();
        let value = args
            .next()
            .ok_or_else(|| setup(format!("{name} needs a value")))?;
        match name.as_str() {
            "--cwd" => cwd = Some(PathBuf::from(value)),
            "--env" => env.push(name_and_value(value)),
            "--merge-stderr" => merge_stderr = value == "1",
            "--stdin" => stdin = Some(PathBuf::from(value)),
            "--hold-lock" => hold_lock = Some(PathBuf::from(value)),
            "--monitor" => monitor = value == "1",
            "--grace-ms" => grace = Duration::from_millis(number(&name, &value)?),
            "--task-limit" => task_limit = Some(number(&name, &value)?),
            _ => return Err(setup(format!("unknown option {name}"))),
        }
    }
    Err(setup("no program given"))
}

fn number(name: &str, value: &OsStr) -> Result<u64, Event> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| setup(format!("{name} needs a number")))
}

/// `NAME=VALUE`, where the name is never empty.
fn name_and_value(pair: OsString) -> (OsString, OsString) {
    let mut bytes = pair.into_vec();
    let mut after_first = bytes.iter().skip(1);
    let Some(at) = after_first.position(|byte| *byte == b'=') else {
        return (OsString::from_vec(bytes), OsString::new());
    };
    let value = bytes.split_off(at + 2);
    bytes.pop();
    (OsString::from_vec(bytes), OsString::from_vec(value))
}

/// A failure that is not about the program itself.
fn setup(message: impl Into<String>) -> Event {
    Event::Failed {
        errno: 0,
        message: message.into(),
    }
}

fn setup_error(what: &str) -> impl Fn(io::Error) -> Event {
    move |error| setup(format!("{what}: {}", reason(&error)))
}

/// The system's words as a fragment: lowercase, without the number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

fn supervise(control: &mut Control) -> Result<(), Event> {
    os::become_subreaper().map_err(setup_error("cannot become a subreaper"))?;
    swallow_signals().map_err(setup_error("cannot handle signals"))?;
    let child_ended = child_signals().map_err(setup_error("cannot handle SIGCHLD"))?;
    let Some(order) = control.receive_order() else {
        // Nobody needs us any more.
        return Ok(());
    };
    let options = &parse(order.into_iter())?;
    if let Some(cwd) = &options.cwd {
        let describe = format!("cannot go to `{}`", cwd.display());
        std::env::set_current_dir(cwd).map_err(setup_error(&describe))?;
    }
    let _lock = match &options.hold_lock {
        Some(path) => Some(hold(path, control)?),
        None => None,
    };
    let program = start(options)?;
    control.send(Event::Started(program.as_raw_pid().unsigned_abs()));
    Supervision {
        control,
        child_ended,
        program,
        program_ended: false,
        grace: options.grace,
        monitor: options.monitor,
        phase: Phase::Running,
        sweep: Sweep::default(),
    }
    .run();
    Ok(())
}

/// Handlers that do nothing, not SIG_IGN: exec resets the former, while the program and all below it
/// would inherit the latter. An agent's careless `pkill` must not take its supervisor away.
fn swallow_signals() -> io::Result<()> {
    let unread = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM] {
        signal_hook::flag::register(signal, Arc::clone(&unread))?;
    }
    Ok(())
}

/// A stream that becomes readable when a child changed state.
fn child_signals() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

/// Takes the lock for the life of this process, while still listening to the runner.
fn hold(path: &Path, control: &mut Control) -> Result<File, Event> {
    let name = path.display();
    let describe = format!("cannot lock `{name}`");
    let file = lock::open(path).map_err(setup_error(&describe))?;
    let give_up_at = Instant::now() + LOCK_LIMIT;
    loop {
        if lock::try_lock(&file).map_err(setup_error(&describe))? {
            return Ok(file);
        }
        let asked_to_end = !control.receive().is_empty() || control.is_closed();
        if asked_to_end || Instant::now() >= give_up_at {
            return Err(setup(format!(
                "cannot lock `{name}`: processes of an earlier session still hold it"
            )));
        }
        std::thread::sleep(lock::ASK_AGAIN);
    }
}

fn start(options: &Options) -> Result<Pid, Event> {
    let stdin = match &options.stdin {
        Some(path) => {
            let describe = format!("cannot open `{}` as standard input", path.display());
            Stdio::from(File::open(path).map_err(setup_error(&describe))?)
        }
        None => Stdio::null(),
    };
    #[allow(clippy::disallowed_methods)] // This is the place that the ban points to.
    let mut cmd = Command::new(&options.program);
    cmd.args(&options.args).stdin(stdin);
    cmd.env_clear()
        .envs(options.env.iter().map(|(name, value)| (name, value)));
    if options.merge_stderr {
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        cmd.stderr(stdout.map_err(setup_error("cannot merge the outputs"))?);
    }
    // A session, not only a group: without a terminal a password prompt fails at once, where a
    // background group of the user's terminal would be stopped by SIGTTIN and hang.
    os::own_session(&mut cmd);
    if let Some(limit) = options.task_limit {
        os::limit_tasks(&mut cmd, limit);
    }
    os::die_with_parent(&mut cmd);
    let child = cmd
        .spawn()
        .map_err(|error| spawn_failure(options, &error))?;
    // From here on it is reaped together with all others; dropping the handle changes nothing.
    i32::try_from(child.id())
        .ok()
        .and_then(os::pid)
        .ok_or_else(|| setup("the kernel gave an impossible process id"))
}

fn spawn_failure(options: &Options, error: &io::Error) -> Event {
    let name = options.program.to_string_lossy();
    let missing = error.raw_os_error() == Some(Errno::NOENT.raw_os_error());
    if missing && exists(options) {
        // A script whose `#!` line names something that is not there gives the same errno.
        return Event::Failed {
            errno: Errno::NOEXEC.raw_os_error(),
            message: format!("cannot start `{name}`: its interpreter was not found"),
        };
    }
    Event::Failed {
        errno: error.raw_os_error().unwrap_or(0),
        message: format!("cannot start `{name}`: {}", reason(error)),
    }
}

/// Whether there is such a file, where exec would have looked for it.
fn exists(options: &Options) -> bool {
    let program = &options.program;
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).is_file();
    }
    let path = options.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
    !program.is_empty() && std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// How far the end has come. It only ever moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// SIGTERM was sent.
    Ending {
        kill_at: Instant,
    },
    /// SIGKILL is sent in rounds.
    Killing {
        round_at: Instant,
        give_up_at: Instant,
    },
}

struct Supervision<'a> {
    control: &'a mut Control,
    child_ended: UnixStream,
    program: Pid,
    program_ended: bool,
    grace: Duration,
    /// The program only watches over others: SIGTERM is not for it.
    monitor: bool,
    phase: Phase,
    sweep: Sweep,
}

impl Supervision<'_> {
    /// Until nothing is left below this process.
    fn run(mut self) {
        loop {
            self.drain_child_signals();
            if self.reap() {
                return self.say_ended(0);
            }
            if self.program_ended && self.phase == Phase::Running {
                self.end();
            }
            if self.advance(Instant::now()) {
                return self.say_ended(count_alive(&descendants()));
            }
            self.wait();
            self.obey();
        }
    }

    /// What the phase demands at this time. True: give up.
    fn advance(&mut self, now: Instant) -> bool {
        if matches!(self.phase, Phase::Ending { kill_at } if now >= kill_at) {
            self.kill();
        }
        if let Phase::Killing {
            round_at,
            give_up_at,
        } = self.phase
            && now >= round_at
        {
            self.sweep.kill(descendants);
            self.phase = Phase::Killing {
                round_at: Instant::now() + ROUND,
                give_up_at,
            };
            return now >= give_up_at;
        }
        false
    }

    fn wait(&self) {
        let until = match self.phase {
            Phase::Running => None,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killing { round_at, .. } => Some(round_at),
        };
        let mut fds = vec![os::readable(self.child_ended.as_fd())];
        if !self.control.is_closed() {
            fds.push(os::readable(self.control.as_fd()));
        }
        if os::poll_until(&mut fds, until).is_err() {
            // Out of kernel memory. There is nobody to tell: go on, slowly.
            std::thread::sleep(ROUND);
        }
    }

    /// What the runner asks for; that it is gone asks for the most.
    fn obey(&mut self) {
        let lines = self.control.receive();
        let mut asked = lines.iter().filter_map(|line| Request::parse(line)).max();
        if self.control.is_closed() {
            asked = Some(Request::Kill);
        }
        match asked {
            Some(Request::End) if self.phase == Phase::Running => self.end(),
            Some(Request::Kill) => self.kill(),
            Some(Request::End) | None => {}
        }
    }

    fn end(&mut self) {
        let mut found = descendants();
        if self.monitor {
            // It would take the others along before they had their time.
            let program = self.program.as_raw_pid();
            found.retain(|entry| entry.pid != program);
        }
        if found.is_empty() && !self.program_ended {
            // No /proc to read: at least the program and what stayed in its group.
            let _ = rustix::process::kill_process_group(self.program, Signal::TERM);
        }
        self.sweep.terminate(&found);
        self.phase = Phase::Ending {
            kill_at: Instant::now() + self.grace,
        };
    }

    fn kill(&mut self) {
        if matches!(self.phase, Phase::Killing { .. }) {
            return;
        }
        if !self.program_ended {
            // As above, and the quickest way where there is one.
            let _ = rustix::process::kill_process_group(self.program, Signal::KILL);
        }
        let now = Instant::now();
        self.phase = Phase::Killing {
            round_at: now,
            give_up_at: now + KILL_LIMIT,
        };
    }

    /// Before reaping, so that what ends in between wakes the next poll.
    fn drain_child_signals(&self) {
        let mut buffer = [0; 256];
        while matches!(
            rustix::io::read(&self.child_ended, &mut buffer[..]),
            Ok(1..)
        ) {}
    }

    /// Takes away all that have ended. True: there is no child left, and since orphans become our
    /// children before their parent can be reaped, there is no descendant left either.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => self.say_how(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn say_how(&mut self, status: WaitStatus) {
        self.program_ended = true;
        if let Some(code) = status.exit_status() {
            self.control.send(Event::Exited(code));
        } else if let Some(signal) = status.terminating_signal() {
            self.control.send(Event::Signaled(signal));
        }
    }

    fn say_ended(&self, survivors: u32) {
        let program = self.program.as_raw_pid();
        self.control.send(Event::Ended {
            killed: self.sweep.hit_besides(Some(program)),
            survivors,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> impl Iterator<Item = OsString> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        words.into_iter()
    }

    #[test]
    fn options_end_at_the_dashes() {
        let line = "--cwd d --env A=b=c --stdin a --grace-ms 70 --hold-lock b --task-limit 9 -- x --stdin y";
        let options = parse(args(line)).unwrap();
        let expected = Options {
            cwd: Some("d".into()),
            env: vec![("A".into(), "b=c".into())],
            merge_stderr: false,
            stdin: Some("a".into()),
            hold_lock: Some("b".into()),
            monitor: false,
            task_limit: Some(9),
            grace: Duration::from_millis(70),
            program: "x".into(),
            args: vec!["--stdin".into(), "y".into()],
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn bad_options_are_named() {
        let check = |line: &str, expected: &str| {
            assert_eq!(parse(args(line)).unwrap_err(), setup(expected), "{line}");
        };
        check("", "no program given");
        check("--", "no program given");
        check("--stdin", "--stdin needs a value");
        check("--grace-ms soon -- x", "--grace-ms needs a number");
        check("--task-limit many", "--task-limit needs a number");
        check("--other x -- y", "unknown option --other");
    }

    #[test]
    fn reasons_are_fragments() {
        let error = io::Error::from_raw_os_error(Errno::NOENT.raw_os_error());
        assert_eq!(reason(&error), "no such file or directory");
    }
}
