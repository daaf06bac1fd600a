//! Workers of the demo as real processes, so that one of them can be killed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use runner::Result;
use runner_exec::{Cancel, Flow, Sink, Spec, Stream, Supervisor};
use serde_json::Value;

/// How long a worker may take to end its session and give back what it holds.
const GRACE: Duration = Duration::from_secs(20);

/// A worker process.
pub(super) struct WorkerProcess {
    pub(super) name: String,
    pid: Arc<AtomicI32>,
    cancel: Cancel,
    thread: JoinHandle<()>,
}

/// Hears the process number that a worker tells when it begins.
struct PidReader {
    pid: Arc<AtomicI32>,
    line: Vec<u8>,
}

impl Sink for PidReader {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        if stream == Stream::Stdout && self.pid.load(Ordering::SeqCst) == 0 {
            self.line.extend_from_slice(bytes);
            let first = self.line.split(|byte| *byte == b'\n').next();
            let told = first.and_then(|line| serde_json::from_slice::<Value>(line).ok());
            let pid = told.and_then(|told| told["pid"].as_i64());
            if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
                self.pid.store(pid, Ordering::SeqCst);
            }
        }
        Flow::Go
    }
}

impl WorkerProcess {
    /// Starts one. Whatever it starts ends with it, and it with us.
    pub(super) fn start(folder: &Path, name: &str, cooldown_secs: u64) -> Result<WorkerProcess> {
        let me = std::env::current_exe()?;
        let words: [OsString; 8] = [
            me.into(),
            "-C".into(),
            folder.into(),
            "--json".into(),
            "fleet".into(),
            "worker".into(),
            "--name".into(),
            name.into(),
        ];
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let cooldown = cooldown_secs.to_string();
        env.push((
            super::super::context::COOLDOWN_VARIABLE.into(),
            cooldown.into(),
        ));
        let spec = Spec {
            argv: words.into(),
            cwd: PathBuf::from(folder),
            env,
            stdin: None,
            merge_stderr: false,
            deadline: None,
            idle_timeout: None,
            grace: GRACE,
            monitor: false,
            hold_lock: None,
            task_limit: None,
            cannot_start: None,
        };
        let (cancel, pid) = (Cancel::new()?, Arc::new(AtomicI32::new(0)));
        let mut ear = PidReader {
            pid: Arc::clone(&pid),
            line: Vec::new(),
        };
        let ended = cancel.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // How it ended is seen in the ledger.
                let _ = Supervisor::this_binary().run(&spec, &ended, &mut ear);
            })?;
        Ok(WorkerProcess {
            name: name.to_owned(),
            pid,
            cancel,
            thread,
        })
    }

    /// `kill -9`. False: it has not told its number yet, or is gone.
    pub(super) fn kill(&self) -> bool {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = Pid::from_raw(self.pid.load(Ordering::SeqCst));
        pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }

    /// Waits until it is gone, with all that it started.
    pub(super) fn join(self) {
        // A thread that has panicked is gone, too.
        let _ = self.thread.join();
    }

    /// Says stop.
    pub(super) fn stop(&self) {
        self.cancel.cancel();
    }
}
