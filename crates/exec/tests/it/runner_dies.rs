//! The runner itself in a process of its own: killed, or told by signals to end.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use runner_exec::{Cancel, wait_until_unlocked};
use rustix::process::{Pid, Signal, kill_process};

use crate::{BINARY, LONG, is_alive, pid_in, wait_until};

struct Runner {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Runner {
    fn start(dir: &Path, grace_ms: u32, script: &str) -> Self {
        // Whoever runs the tests may ignore a hangup, and so would this.
        let mut child = Command::new("env")
            .args(["--default-signal", BINARY, "run", &grace_ms.to_string()])
            .args(["lock", "sh", "-c", script])
            .current_dir(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    fn started(&mut self) -> u32 {
        let line = self.line();
        line.strip_prefix("started ").unwrap().parse().unwrap()
    }
}

#[test]
fn killed_it_takes_everything_along() {
    let dir = tempfile::tempdir().unwrap();
    let script = "
        trap '' TERM
        setsid sleep 1000 &
        echo $! > pid1
        (env -i setsid sleep 1000 & echo $! > pid2)
        echo ready
        wait";
    let mut runner = Runner::start(dir.path(), 3_600_000, script);
    let program = runner.started();
    assert_eq!(runner.line(), "output ready");
    runner.child.kill().unwrap();
    runner.child.wait().unwrap();

    let lock = dir.path().join("lock");
    let cancel = Cancel::new().unwrap();
    assert!(wait_until_unlocked(&lock, &cancel, LONG).unwrap());
    // This is what the lock is for: once it is free there is nothing to wait for.
    for pid in [
        program,
        pid_in(&dir.path().join("pid1")),
        pid_in(&dir.path().join("pid2")),
    ] {
        assert!(!is_alive(pid), "{pid}");
    }
}

#[test]
fn killed_together_with_the_supervisor_the_program_dies_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = Runner::start(dir.path(), 1, "echo $PPID; exec sleep 1000");
    let program = runner.started();
    let line = runner.line();
    let supervisor: i32 = line.strip_prefix("output ").unwrap().parse().unwrap();
    // Stopped, the runner cannot clean up after its supervisor before it dies as well.
    runner.signal(Signal::STOP);
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    runner.child.kill().unwrap();
    runner.child.wait().unwrap();
    wait_until("the program is gone", || !is_alive(program));
}

#[test]
fn a_crash_takes_helpers_and_waiting_supervisors_along() {
    for args in [["crash", "sleep", "1000"].as_slice(), &["crash-ready"]] {
        let output = Command::new(BINARY).args(args).output().unwrap();
        assert_eq!(output.status.signal(), Some(9));
        let line = String::from_utf8(output.stdout).unwrap();
        let pid = line.trim().strip_prefix("started ").unwrap();
        let pid: u32 = pid.parse().unwrap();
        wait_until("it is gone", || !is_alive(pid));
    }
}

#[test]
fn signals_end_it_gracefully() {
    let cases = [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)];
    for (signal, number) in cases {
        let dir = tempfile::tempdir().unwrap();
        // Without the shell's own words on a `sleep` that was ended.
        let script =
            "exec 2> /dev/null; trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
        let mut runner = Runner::start(dir.path(), 3_600_000, script);
        runner.started();
        assert_eq!(runner.line(), "output ready");
        runner.signal(signal);
        let expected = format!("ended Interrupted exit Some(9) level 1 signal Some({number})");
        assert_eq!(runner.line(), expected);
        assert!(runner.child.wait().unwrap().success());
    }
}

#[test]
fn a_second_signal_kills_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "exec 2> /dev/null; trap 'echo terminated' TERM; echo ready; while :; do sleep 0.05; done";
    let mut runner = Runner::start(dir.path(), 3_600_000, script);
    runner.started();
    assert_eq!(runner.line(), "output ready");
    runner.signal(Signal::INT);
    assert_eq!(runner.line(), "output terminated");
    runner.signal(Signal::TERM);
    assert_eq!(
        runner.line(),
        "ended Interrupted exit None level 2 signal Some(15)"
    );
    assert!(runner.child.wait().unwrap().success());
}

#[test]
fn under_nohup_a_hangup_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo ready; while [ ! -e go ]; do sleep 0.01; done";
    let mut child = Command::new("nohup")
        .args([BINARY, "run", "1000", "lock", "sh", "-c", script])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut runner = Runner { child, lines };
    runner.started();
    assert_eq!(runner.line(), "output ready");
    runner.signal(Signal::HUP);
    File::create(dir.path().join("go")).unwrap();
    assert_eq!(
        runner.line(),
        "ended Exited(0) exit Some(0) level 0 signal None"
    );
    assert!(runner.child.wait().unwrap().success());
}
