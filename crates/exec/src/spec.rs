//! What to run and how it ended: the types that callers of this crate see.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program and its arguments; not empty. Looked up in the `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The complete environment ([`crate::SESSION_VARIABLE`] is added).
    pub env: Vec<(OsString, OsString)>,
    /// A regular file to read as standard input; `None` is `/dev/null`. A file, not a pipe: a program
    /// that never reads it can block nobody.
    pub stdin: Option<PathBuf>,
    /// One pipe for both streams, so that their order is kept. All of it arrives as [`Stream::Stdout`].
    pub merge_stderr: bool,
    /// When to end it. Monotonic: a suspended machine does not eat the time.
    pub deadline: Option<Instant>,
    /// End it after so long without output.
    pub idle_timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The program only watches over those that it starts (a sandbox's wrapper): SIGTERM goes to
    /// them and not to it, for it would take them along before they had their time.
    pub monitor: bool,
    /// A lock file held until the supervisor has ended: see [`crate::wait_until_unlocked`].
    pub hold_lock: Option<PathBuf>,
    /// How many tasks (processes and threads) its user may have before it cannot start another one;
    /// nothing for root, whom the kernel does not count.
    pub task_limit: Option<u64>,
    /// Why it cannot be started, where that is known already: then nothing is tried.
    pub cannot_start: Option<SpawnFailure>,
}

/// Why it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The program ended by itself with this code.
    Exited(i32),
    /// The program was ended by this signal, which was not ours.
    Signaled(i32),
    /// The deadline came.
    TimedOut,
    /// No output for too long.
    Idle,
    /// The cancel token was raised.
    Interrupted,
    /// The sink said [`Flow::Stop`].
    StoppedBySink,
    /// The program never ran.
    NotStarted(SpawnFailure),
    /// The supervisor was killed: nobody saw how the program ended. Its processes are gone.
    SupervisorLost,
}

/// Why a program could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SpawnFailure {
    /// There is no such program (as opposed to one that cannot be run).
    pub not_found: bool,
    /// A lowercase fragment that names the program.
    pub message: String,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Why it is over.
    pub ended: Ended,
    /// The exit code if the program itself ended, also when it did so after our SIGTERM.
    pub exit: Option<i32>,
    /// From the start until the last process was gone.
    pub duration: Duration,
    /// How many processes other than the program itself had to be ended.
    pub killed_leftovers: u32,
    /// How many processes could not be ended (they changed their user, or hang in the kernel).
    pub survivors: u32,
}

/// Which pipe the bytes came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or both when merged.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Go on.
    Go,
    /// End the program: see [`Ended::StoppedBySink`].
    Stop,
    /// The same without a grace: what it does must not go on for a moment.
    Kill,
}

/// Where the output goes, as it arrives.
///
/// Called from inside the loop that also watches the deadline: what takes long here delays it. After
/// a [`Flow::Stop`] output still arrives until the program has ended.
pub trait Sink {
    /// Some bytes, cut anywhere, at most 64 KiB.
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow;

    /// Called every [`Sink::tick_every`].
    fn tick(&mut self) -> Flow {
        Flow::Go
    }

    /// How often to call [`Sink::tick`]; `None` is never.
    fn tick_every(&self) -> Option<Duration> {
        None
    }

    /// Everything will run below this process, where nothing runs yet. Said again if that one is
    /// lost before it could begin.
    fn supervised(&mut self, pid: u32) {
        let _ = pid;
    }

    /// The program runs under this process id.
    fn started(&mut self, pid: u32) {
        let _ = pid;
    }
}
