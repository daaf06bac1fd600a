//! Running one child of a step with its output going to a capped log.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use runner_core::value_mask::ValueMask;
use runner_exec::{CappedLog, Ended, Flow, Ready, Report, Sink, Spec, Stream};

use super::iteration::has_content;
use super::masked_sink::MaskedSink;
use super::{Iteration, StepContext};
use crate::error::{Error, ErrorCode, Result};
use crate::fault;
use crate::files;
use crate::limits::LimitWatch;
use crate::run_context::ProgressObserver;

/// Between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Starts a supervisor for a child that will most likely run soon. That there is none costs time
/// later and nothing else.
pub(super) fn prepare(context: &StepContext<'_, '_>) -> Option<Ready> {
    context.run.supervisor.prepare().ok()
}

/// Who else hears what a child prints.
pub(super) trait OutputListener {
    /// Bytes of one of its streams. `Stop` ends the child.
    fn output(&mut self, stream: Stream, bytes: &[u8], observer: &mut dyn ProgressObserver)
    -> Flow;

    /// The child's program runs.
    fn started(&mut self, _observer: &mut dyn ProgressObserver) {}
}

/// Runs a child with its output in a log of the iteration: the head of it goes
/// there as it comes, the tail at the end. Masked values are not in it. How it went, and the log's
/// bytes.
pub(super) fn run(
    context: &mut StepContext<'_, '_>,
    it: &Iteration,
    ready: Option<Ready>,
    (spec, limits): (&Spec, &mut LimitWatch),
    (name, cap): (&str, u64),
    mask: &ValueMask,
    listener: &mut dyn OutputListener,
) -> Result<(Report, Vec<u8>)> {
    fault::point("spawn")?;
    let path = it.folder.join(name);
    files::remove_if_there(&path)?;
    let mut sink = LogSink {
        file: File::create(&path).map_err(|error| files::at(&path, error))?,
        head: Vec::new(),
        capped: CappedLog::new(usize::try_from(cap).unwrap_or(usize::MAX)),
        failed: None,
        limits,
        listener,
        observer: &mut *context.run.observer,
    };
    let mut masked = MaskedSink::new(&mut sink, mask);
    let report = context
        .run
        .supervisor
        .run_in(ready, spec, context.run.cancel, &mut masked)?;
    masked.finish();
    let LogSink {
        mut file,
        head: mut log,
        capped,
        failed,
        ..
    } = sink;
    let tail = capped.finish().bytes;
    let written = failed.map_or_else(|| file.write_all(&tail), Err);
    if written.is_err() && matches!(report.ended, Ended::Interrupted) {
        return Err(interrupted());
    }
    written.map_err(|error| files::at(&path, error))?;
    log.extend_from_slice(&tail);
    // Without a sandbox the child could write there too: what it said is what came out of its
    // pipes.
    replace_log(it, name, &log)?;
    fault::point("spawn-done")?;
    Ok((report, log))
}

/// Makes a log of the iteration these bytes.
pub(super) fn replace_log(it: &Iteration, name: &str, log: &[u8]) -> Result<()> {
    let path = it.folder.join(name);
    if !has_content(&path, log) {
        files::remove_if_there(&path)?;
        files::write_whole(&path, log)?;
    }
    Ok(())
}

struct LogSink<'o> {
    file: File,
    head: Vec<u8>,
    capped: CappedLog,
    failed: Option<std::io::Error>,
    limits: &'o mut LimitWatch,
    listener: &'o mut dyn OutputListener,
    observer: &'o mut dyn ProgressObserver,
}

impl Sink for LogSink<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        let head = self.capped.push(bytes);
        self.head.extend_from_slice(head);
        if self.failed.is_none()
            && let Err(error) = self.file.write_all(head)
        {
            // The child goes on undisturbed; the step reports it afterwards.
            self.failed = Some(error);
        }
        self.listener.output(stream, bytes, self.observer)
    }

    fn supervised(&mut self, pid: u32) {
        self.limits.supervised(pid);
    }

    fn started(&mut self, _pid: u32) {
        self.listener.started(self.observer);
    }

    fn tick(&mut self) -> Flow {
        self.observer.tick();
        self.limits.tick()
    }

    fn tick_every(&self) -> Option<Duration> {
        let pause = self.limits.tick_every();
        Some(if self.observer.ticks() {
            pause.min(Duration::from_millis(200))
        } else {
            pause
        })
    }
}

/// A signal ended the children: the next start settles the iteration.
pub(crate) fn interrupted() -> Error {
    Error::new(
        ErrorCode::Interrupted,
        "interrupted: children ended, nothing lost",
    )
    .hint("the next `runner step` or `runner loop` settles the iteration and goes on")
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
