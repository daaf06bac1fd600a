//! One call of the `runner` binary: while it runs, and what it left.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process;

/// What a finished call left behind.
#[derive(Clone, Debug)]
pub struct TestRun {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its stdout, with what is not UTF-8 replaced.
    pub stdout: String,
    /// Its stderr, with what is not UTF-8 replaced.
    pub stderr: String,
    /// Its stdout, byte for byte.
    pub stdout_bytes: Vec<u8>,
    /// Its stderr, byte for byte.
    pub stderr_bytes: Vec<u8>,
    /// The time it took.
    pub elapsed: Duration,
    label: String,
}

// A check is worth calling for its panic alone.
#[allow(clippy::return_self_not_must_use)]
impl TestRun {
    /// Fails unless the exit code is 0.
    #[track_caller]
    pub fn success(self) -> Self {
        self.code(0)
    }

    /// Fails unless the exit code is `expected`.
    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        assert!(
            self.code == Some(expected),
            "expected exit code {expected}\n{}",
            self.describe()
        );
        self
    }

    /// Fails unless stdout and stderr together contain `text`.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "expected to read {text:?}\n{}",
            self.describe()
        );
        self
    }

    /// Stdout as one JSON object.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.stdout_bytes) {
            Ok(value @ Value::Object(_)) => value,
            Ok(other) => panic!("stdout is JSON but no object: {other}\n{}", self.describe()),
            Err(error) => panic!("stdout is not JSON: {error}\n{}", self.describe()),
        }
    }

    /// Stdout as one JSON object per line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| match serde_json::from_str(line) {
            Ok(value @ Value::Object(_)) => value,
            _ => panic!(
                "a line of stdout is no JSON object: {line:?}\n{}",
                self.describe()
            ),
        };
        self.stdout.lines().map(parse).collect()
    }

    /// Everything there is to know about the call, for a failure message.
    pub fn describe(&self) -> String {
        format!(
            "$ {}\nexit code: {:?}, signal: {:?}, after {:?}\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.label, self.code, self.signal, self.elapsed, self.stdout, self.stderr
        )
    }
}

/// A running call, killed when this is dropped.
///
/// Its output goes to files, so it never blocks on a reader and can be looked at
/// while it runs.
#[derive(Debug)]
pub struct TestChild {
    child: Child,
    label: String,
    started: Instant,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
}

impl TestChild {
    /// Starts `cmd` with null stdin and its output in `<out_base>.out` and
    /// `<out_base>.err`.
    pub(crate) fn spawn(mut cmd: Command, out_base: &str) -> Self {
        let stdout_path = PathBuf::from(format!("{out_base}.out"));
        let stderr_path = PathBuf::from(format!("{out_base}.err"));
        let create = |path: &PathBuf| File::create(path).expect("an output file can be made");
        let label = label_of(&cmd);
        let child = cmd
            .stdin(Stdio::null())
            .stdout(create(&stdout_path))
            .stderr(create(&stderr_path))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {label}: {error}"));
        Self {
            child,
            label,
            started: Instant::now(),
            stdout_path,
            stderr_path,
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `INT`, to the process alone.
    pub fn signal(&self, name: &str) {
        process::signal(name, i64::from(self.pid()));
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        let status = self.child.try_wait().expect("the child can be waited for");
        status.is_none()
    }

    /// What it has printed on stdout so far.
    pub fn stdout_so_far(&self) -> String {
        read_lossy(&self.stdout_path).0
    }

    /// What it has printed on stderr so far.
    pub fn stderr_so_far(&self) -> String {
        read_lossy(&self.stderr_path).0
    }

    /// Waits for the end; fails, with the output, if that takes over two minutes.
    #[track_caller]
    pub fn wait(self) -> TestRun {
        self.wait_within(Duration::from_secs(120))
    }

    /// Waits for the end; fails, with the output, if that takes longer than `limit`.
    #[track_caller]
    pub fn wait_within(mut self, limit: Duration) -> TestRun {
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return self.finished(Some(status));
            }
            if self.started.elapsed() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let run = self.finished(None);
                panic!("did not end within {limit:?}\n{}", run.describe());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Ends it with SIGKILL, as a crash would.
    pub fn kill(mut self) -> TestRun {
        let _ = self.child.kill();
        let status = self.child.wait().expect("the child can be waited for");
        self.finished(Some(status))
    }

    fn finished(&self, status: Option<ExitStatus>) -> TestRun {
        let (stdout, stdout_bytes) = read_lossy(&self.stdout_path);
        let (stderr, stderr_bytes) = read_lossy(&self.stderr_path);
        TestRun {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout,
            stderr,
            stdout_bytes,
            stderr_bytes,
            elapsed: self.started.elapsed(),
            label: self.label.clone(),
        }
    }
}

impl Drop for TestChild {
    fn drop(&mut self) {
        // Both are harmless after the end: the child has been waited for then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command of the tests' own.
#[allow(clippy::disallowed_methods)] // the tests call the runner from outside
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// The command line as a reader would type it, without the environment.
fn label_of(cmd: &Command) -> String {
    let words = std::iter::once(cmd.get_program()).chain(cmd.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

fn read_lossy(path: &PathBuf) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap_or_default();
    (String::from_utf8_lossy(&bytes).into_owned(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> (tempfile::TempDir, TestChild) {
        let dir = tempfile::tempdir().unwrap();
        let mut cmd = command("sh");
        cmd.args(["-c", script]);
        let base = dir.path().join("run").display().to_string();
        let running = TestChild::spawn(cmd, &base);
        (dir, running)
    }

    #[test]
    fn collects_output_and_code() {
        let (_dir, running) = sh("echo '{\"a\":1}'; printf '\\377' >&2; exit 3");
        let run = running.wait().code(3);
        assert_eq!(run.json()["a"], 1);
        assert_eq!(run.json_lines().len(), 1);
        assert_eq!(run.stderr, "\u{fffd}");
        assert_eq!(run.stderr_bytes, [0xff]);
    }

    #[test]
    #[should_panic(expected = "--- stderr\nwhy it failed")]
    fn a_failed_check_shows_the_output() {
        let (_dir, running) = sh("echo why it failed >&2; exit 1");
        running.wait().success();
    }

    #[test]
    #[should_panic(expected = "did not end within")]
    fn a_call_that_hangs_fails() {
        let (_dir, running) = sh("sleep 60");
        running.wait_within(Duration::from_millis(50));
    }

    #[test]
    fn signals_and_kills() {
        // Not SIGINT: where whoever started the tests ignores it, a shell cannot trap it.
        let (_dir, mut running) = sh("trap 'echo got; exit 130' TERM; echo up; sleep 60 & wait");
        process::eventually("the trap", Duration::from_secs(10), || {
            running.stdout_so_far() == "up\n"
        });
        assert!(running.is_running());
        running.signal("TERM");
        running.wait().code(130).says("got");

        let (_dir, running) = sh("exec sleep 60");
        assert_eq!(running.kill().signal, Some(9));
    }
}
