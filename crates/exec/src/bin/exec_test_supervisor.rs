//! For the tests of runner-exec only, never shipped: the supervisor, and the scenarios that need a
//! runner in a process of its own (to be killed, to get signals, to have its memory measured).
//!
//! ```text
//! exec-test-supervisor __supervise …              the supervisor
//! exec-test-supervisor run GRACE_MS LOCK ARGV…    runs ARGV until it ends or a signal comes
//! exec-test-supervisor flood CAP ARGV…            runs ARGV, its output through a CappedLog
//! exec-test-supervisor crash ARGV…                starts ARGV as a helper, then kills itself
//! exec-test-supervisor crash-ready                lets a supervisor wait, then kills itself
//! exec-test-supervisor time COUNT ARGV…           what a supervised ARGV costs against a plain one
//! ```

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use runner_exec::{
    Cancel, CappedLog, Flow, HangUp, Helper, Input, Report, Sink, Spec, Stream, Supervisor,
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mode = args.next().unwrap_or_default();
    if mode == "__supervise" {
        return runner_exec::supervise_main();
    }
    let result = match mode.to_str() {
        Some("run") => run(args),
        Some("flood") => flood(args),
        Some("crash") => crash(args),
        Some("crash-ready") => crash_ready(),
        Some("time") => time(args),
        _ => Err(io::Error::other("unknown mode")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn number(arg: Option<OsString>) -> io::Result<u64> {
    arg.and_then(|arg| arg.to_str()?.parse().ok())
        .ok_or_else(|| io::Error::other("a number is missing"))
}

fn supervised(spec: &Spec, cancel: &Cancel, sink: &mut dyn Sink) -> io::Result<Report> {
    Supervisor::this_binary().run(spec, cancel, sink)
}

fn spec(argv: Vec<OsString>) -> io::Result<Spec> {
    Ok(Spec {
        argv,
        cwd: std::env::current_dir()?,
        env: std::env::vars_os().collect(),
        stdin: None,
        merge_stderr: false,
        deadline: None,
        idle_timeout: None,
        grace: Duration::from_secs(5),
        monitor: false,
        hold_lock: None,
        task_limit: None,
        cannot_start: None,
    })
}

struct Echo;

impl Sink for Echo {
    fn output(&mut self, _stream: Stream, bytes: &[u8]) -> Flow {
        let _ = say(&format!(
            "output {}",
            String::from_utf8_lossy(bytes).trim_end()
        ));
        Flow::Go
    }

    fn started(&mut self, pid: u32) {
        let _ = say(&format!("started {pid}"));
    }
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let grace = Duration::from_millis(number(args.next())?);
    let lock = args.next().map(PathBuf::from);
    let spec = Spec {
        grace,
        monitor: false,
        hold_lock: lock,
        ..spec(args.collect())?
    };
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    let report = supervised(&spec, &cancel, &mut Echo)?;
    let signal = cancel.last_signal();
    say(&format!(
        "ended {:?} exit {:?} level {} signal {signal:?}",
        report.ended,
        report.exit,
        cancel.level()
    ))
}

struct Capped {
    log: CappedLog,
    head: u64,
}

impl Sink for Capped {
    fn output(&mut self, _stream: Stream, bytes: &[u8]) -> Flow {
        self.head += self.log.push(bytes).len() as u64;
        Flow::Go
    }
}

fn flood(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let cap = usize::try_from(number(args.next())?).map_err(io::Error::other)?;
    let mut sink = Capped {
        log: CappedLog::new(cap),
        head: 0,
    };
    let before = peak_kib()?;
    let spec = spec(args.collect())?;
    let report = supervised(&spec, &Cancel::new()?, &mut sink)?;
    let tail = sink.log.finish();
    say(&format!(
        "{:?} head {} tail {} dropped {} grown_kib {}",
        report.ended,
        sink.head,
        tail.bytes.len(),
        tail.dropped,
        peak_kib()? - before
    ))
}

/// The most memory that this process ever had.
fn peak_kib() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    number(line.and_then(|line| Some(line.split_whitespace().next()?.into())))
}

fn crash(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    #[allow(clippy::disallowed_methods)] // As git is started.
    let mut cmd = Command::new(args.next().unwrap_or_default());
    let child = Helper::spawn(cmd.args(args), Input::Nothing)?;
    say(&format!("started {}", child.id()))?;
    runner_exec::kill_self()
}

fn crash_ready() -> io::Result<()> {
    let ready = Supervisor::this_binary().prepare()?;
    say(&format!("started {}", ready.id().unwrap_or_default()))?;
    runner_exec::kill_self()
}

struct Quiet;

impl Sink for Quiet {
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) -> Flow {
        Flow::Go
    }
}

fn time(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let count = u32::try_from(number(args.next())?).map_err(io::Error::other)?;
    let command: Vec<OsString> = args.collect();
    let (program, rest) = command
        .split_first()
        .ok_or_else(|| io::Error::other("no program"))?;
    let begun = Instant::now();
    for _ in 0..count {
        #[allow(clippy::disallowed_methods)] // The plain way, to compare with.
        Command::new(program).args(rest).status()?;
    }
    let plain = begun.elapsed() / count;
    let spec = spec(command.clone())?;
    let cancel = Cancel::new()?;
    let begun = Instant::now();
    for _ in 0..count {
        supervised(&spec, &cancel, &mut Quiet)?;
    }
    let supervised = begun.elapsed() / count;
    say(&format!("plain {plain:?} supervised {supervised:?}"))
}
