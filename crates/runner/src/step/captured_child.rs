//! Running a child whose output is kept in memory, up to a limit.

use std::time::Duration;

use runner_core::evidence::TestEvidence;
use runner_exec::{CappedLog, Flow, Report, Sink, Spec, Stream};

use crate::error::Result;
use crate::run_context::{ProgressObserver, RunContext};

/// How often an observer that wants to draw is asked to.
const TICK: Duration = Duration::from_millis(200);

/// Runs the child to its end; at most `cap` bytes of its output are kept, from
/// both ends of it, and beside them all of it, for what it says about tests.
pub(crate) fn run(
    spec: &Spec,
    cap: u64,
    context: &mut RunContext<'_>,
) -> Result<(Report, CapturedOutput)> {
    let mut sink = CaptureSink {
        head: Vec::new(),
        capped: CappedLog::new(usize::try_from(cap).unwrap_or(usize::MAX)),
        whole: WholeOutput::default(),
        observer: &mut *context.observer,
    };
    let report = context.supervisor.run(spec, context.cancel, &mut sink)?;
    let CaptureSink {
        mut head,
        capped,
        whole,
        ..
    } = sink;
    head.extend(capped.finish().bytes);
    Ok((report, CapturedOutput { log: head, whole }))
}

/// What a child printed.
pub(crate) struct CapturedOutput {
    /// Both ends of it.
    pub(crate) log: Vec<u8>,
    pub(crate) whole: WholeOutput,
}

/// All that a guard prints: a log that is cut in the middle would lose the names of tests.
#[derive(Debug, Default)]
pub(crate) struct WholeOutput {
    bytes: Vec<u8>,
}

impl WholeOutput {
    /// More than any test tool prints about its tests.
    const LIMIT: usize = 64 << 20;

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = Self::LIMIT.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// What it says about tests.
    pub(crate) fn tests(&self) -> TestEvidence {
        TestEvidence::of_log(&self.bytes)
    }
}

struct CaptureSink<'o> {
    head: Vec<u8>,
    capped: CappedLog,
    whole: WholeOutput,
    observer: &'o mut dyn ProgressObserver,
}

impl Sink for CaptureSink<'_> {
    fn output(&mut self, _: Stream, bytes: &[u8]) -> Flow {
        self.whole.push(bytes);
        let head = self.capped.push(bytes);
        self.head.extend_from_slice(head);
        Flow::Go
    }

    fn tick(&mut self) -> Flow {
        self.observer.tick();
        Flow::Go
    }

    fn tick_every(&self) -> Option<Duration> {
        self.observer.ticks().then_some(TICK)
    }
}
