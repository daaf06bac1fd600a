//! Real programs under a real supervisor: how they end, and that nothing of them stays.
//!
//! Tests never sleep to let something happen; they wait for it, with a generous limit.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod endings;
mod leftovers;
mod limits;
mod runner_dies;
mod start;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner_exec::{Cancel, Flow, Ready, Report, Sink, Spec, Stream, Supervisor};
use tempfile::TempDir;

/// The binary of this crate's tests.
const BINARY: &str = env!("CARGO_BIN_EXE_exec-test-supervisor");

/// Longer than anything takes on a loaded machine: reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);

/// A folder to work in and a program to run in it.
struct Case {
    dir: TempDir,
    spec: Spec,
    cancel: Cancel,
}

impl Case {
    /// A shell script, run in its own folder.
    fn sh(script: &str) -> Self {
        Self::argv(&["sh", "-c", script])
    }

    fn argv(argv: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = Spec {
            argv: argv.iter().map(OsString::from).collect(),
            cwd: dir.path().to_owned(),
            env: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
            stdin: None,
            merge_stderr: false,
            deadline: Some(Instant::now() + LONG),
            idle_timeout: None,
            grace: LONG,
            monitor: false,
            hold_lock: None,
            task_limit: None,
            cannot_start: None,
        };
        let cancel = Cancel::new().unwrap();
        Self { dir, spec, cancel }
    }

    fn spec(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        change(&mut self.spec);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs it, calling `on_output` with all that has come so far whenever more comes.
    fn run_with(&self, on_output: impl FnMut(&Seen) -> Flow) -> (Report, Seen) {
        let mut sink = Recorder {
            seen: Seen::default(),
            on_output,
        };
        let report = supervisor().run(&self.spec, &self.cancel, &mut sink);
        (report.unwrap(), sink.seen)
    }

    /// Runs it below a supervisor that was started before.
    fn run_in(&self, ready: Ready) -> (Report, Seen) {
        let mut sink = Recorder {
            seen: Seen::default(),
            on_output: |_: &Seen| Flow::Go,
        };
        let report = supervisor().run_in(Some(ready), &self.spec, &self.cancel, &mut sink);
        (report.unwrap(), sink.seen)
    }

    fn run(&self) -> (Report, Seen) {
        self.run_with(|_| Flow::Go)
    }

    /// The process id that the script wrote into this file.
    fn pid_in(&self, name: &str) -> u32 {
        pid_in(&self.path(name))
    }
}

fn supervisor() -> Supervisor {
    Supervisor {
        argv: vec![BINARY.into(), "__supervise".into()],
    }
}

/// What a sink was told.
#[derive(Debug, Default)]
struct Seen {
    pid: Option<u32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Seen {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

struct Recorder<F> {
    seen: Seen,
    on_output: F,
}

impl<F: FnMut(&Seen) -> Flow> Sink for Recorder<F> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        assert!(self.seen.pid.is_some(), "output before the start");
        match stream {
            Stream::Stdout => self.seen.stdout.extend_from_slice(bytes),
            Stream::Stderr => self.seen.stderr.extend_from_slice(bytes),
        }
        (self.on_output)(&self.seen)
    }

    fn started(&mut self, pid: u32) {
        self.seen.pid = Some(pid);
    }
}

/// Runs the script with ever later deadlines, until `is_ready` says that it had got far enough: no
/// fixed time is both short and long enough for a loaded machine.
fn with_deadline(script: &str, is_ready: impl Fn(&Case, &Seen) -> bool) -> (Case, Report, Seen) {
    for secs in [1, 4, 16, 64] {
        let deadline = Instant::now() + Duration::from_secs(secs);
        let case = Case::sh(script).spec(|spec| spec.deadline = Some(deadline));
        let (report, seen) = case.run();
        if is_ready(&case, &seen) {
            return (case, report, seen);
        }
    }
    panic!("the script never got ready");
}

fn pid_in(path: &Path) -> u32 {
    let text = std::fs::read_to_string(path).unwrap();
    text.trim().parse().unwrap()
}

/// Running, not merely a zombie that somebody has yet to reap.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < give_up_at, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a script through another process: a fork in another thread must not
/// inherit it open for writing, for then nobody could run it.
pub(crate) fn write_script(path: &std::path::Path, text: &str, mode: u32) {
    use std::io::Write as _;
    let mut writer = std::process::Command::new("sh")
        .args(["-c", r#"cat >"$1" && chmod "$2" "$1""#, "sh"])
        .arg(path)
        .arg(format!("{mode:o}"))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    assert!(writer.wait().unwrap().success());
}
