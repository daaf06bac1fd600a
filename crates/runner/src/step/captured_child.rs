//! Running a child whose output is kept in memory, up to a limit.

use std::time::Duration;

use runner_exec::{CappedLog, Flow, Report, Sink, Spec, Stream};

use crate::error::Result;
use crate::run_context::{ProgressObserver, RunContext};

/// How often an observer that wants to draw is asked to.
const TICK: Duration = Duration::from_millis(200);

/// Runs the child to its end; at most `cap` bytes of its output are kept, from
/// both ends of it.
pub(crate) fn run(
    spec: &Spec,
    cap: u64,
    context: &mut RunContext<'_>,
) -> Result<(Report, Vec<u8>)> {
    let mut sink = CaptureSink {
        head: Vec::new(),
        capped: CappedLog::new(usize::try_from(cap).unwrap_or(usize::MAX)),
        observer: &mut *context.observer,
    };
    let report = context.supervisor.run(spec, context.cancel, &mut sink)?;
    let CaptureSink {
        mut head, capped, ..
    } = sink;
    head.extend(capped.finish().bytes);
    Ok((report, head))
}

struct CaptureSink<'o> {
    head: Vec<u8>,
    capped: CappedLog,
    observer: &'o mut dyn ProgressObserver,
}

impl Sink for CaptureSink<'_> {
    fn output(&mut self, _: Stream, bytes: &[u8]) -> Flow {
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
