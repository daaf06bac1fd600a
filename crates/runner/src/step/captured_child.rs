//! Running a child whose output is kept in memory, up to a limit.

use std::sync::LazyLock;
use std::time::Duration;

use runner_core::evidence::TestEvidence;
use runner_core::value_mask::ValueMask;
use runner_exec::{CappedLog, Flow, Report, Sink, Spec, Stream};

use super::masked_sink::MaskedSink;
use crate::error::Result;
use crate::limits::LimitWatch;
use crate::run_context::{ProgressObserver, RunContext};

/// How often an observer that wants to draw is asked to.
const TICK: Duration = Duration::from_millis(200);

/// How a child is listened to.
pub(crate) struct CaptureOptions<'a> {
    /// So many bytes of its output are kept, from both ends of it.
    pub(crate) cap: u64,
    /// What is in nothing that is kept.
    pub(crate) mask: &'a ValueMask,
    /// How much it may use up, if anybody watches.
    pub(crate) limits: Option<&'a mut LimitWatch>,
}

impl CaptureOptions<'_> {
    /// For a child that is handed no secrets and not watched.
    pub(crate) fn plain(cap: u64) -> Self {
        static NONE: LazyLock<ValueMask> = LazyLock::new(ValueMask::default);
        CaptureOptions {
            cap,
            mask: &NONE,
            limits: None,
        }
    }
}

/// Runs the child to its end. Both ends of its output are kept, and beside them all of it, for what
/// it says about tests.
pub(crate) fn run(
    spec: &Spec,
    options: CaptureOptions<'_>,
    context: &mut RunContext<'_>,
) -> Result<(Report, CapturedOutput)> {
    let mut sink = CaptureSink {
        head: Vec::new(),
        capped: CappedLog::new(usize::try_from(options.cap).unwrap_or(usize::MAX)),
        whole: WholeOutput::default(),
        limits: options.limits,
        observer: &mut *context.observer,
    };
    let mut masked = MaskedSink::new(&mut sink, options.mask);
    let report = context.supervisor.run(spec, context.cancel, &mut masked)?;
    masked.finish();
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

/// The lines that a guard prints, for what they say about tests: its log is cut in the middle far
/// earlier, and would lose the names of some.
#[derive(Debug)]
pub(crate) struct WholeOutput {
    head: Vec<u8>,
    capped: CappedLog,
    /// The line that has not ended yet.
    line: Vec<u8>,
}

impl Default for WholeOutput {
    fn default() -> Self {
        WholeOutput {
            head: Vec::new(),
            capped: CappedLog::new(Self::LIMIT),
            line: Vec::new(),
        }
    }
}

impl WholeOutput {
    /// More than most test tools print about their tests.
    const LIMIT: usize = 16 << 20;
    /// No test tool says anything in a longer line.
    const LONGEST_LINE: usize = 2000;

    pub(super) fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            // One that is too long stays too long, and takes no more room.
            let room = (Self::LONGEST_LINE + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if self.line.len() <= Self::LONGEST_LINE {
            let head = self.capped.push(&self.line);
            self.head.extend_from_slice(head);
        }
        self.line.clear();
    }

    /// What it says about tests. Where even this is cut, the names are not all there: then only
    /// the figures count.
    pub(crate) fn tests(mut self) -> TestEvidence {
        self.end_line();
        let WholeOutput {
            mut head, capped, ..
        } = self;
        let tail = capped.finish();
        head.extend_from_slice(&tail.bytes);
        let mut tests = TestEvidence::of_log(&head);
        if tail.dropped > 0 {
            for tool in tests.tools.values_mut() {
                tool.tests.clear();
            }
        }
        tests
    }
}

struct CaptureSink<'o> {
    head: Vec<u8>,
    capped: CappedLog,
    whole: WholeOutput,
    limits: Option<&'o mut LimitWatch>,
    observer: &'o mut dyn ProgressObserver,
}

impl Sink for CaptureSink<'_> {
    fn output(&mut self, _: Stream, bytes: &[u8]) -> Flow {
        self.whole.push(bytes);
        let head = self.capped.push(bytes);
        self.head.extend_from_slice(head);
        Flow::Go
    }

    fn supervised(&mut self, pid: u32) {
        if let Some(limits) = &mut self.limits {
            limits.supervised(pid);
        }
    }

    fn tick(&mut self) -> Flow {
        self.observer.tick();
        self.limits.as_mut().map_or(Flow::Go, |it| it.tick())
    }

    fn tick_every(&self) -> Option<Duration> {
        let pauses = [
            self.observer.ticks().then_some(TICK),
            self.limits.as_ref().map(|it| it.tick_every()),
        ];
        pauses.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_long_ones_left_out() {
        let mut output = WholeOutput::default();
        for part in ["test a ... o", "k\ntest b ...", " ok\n"] {
            output.push(part.as_bytes());
        }
        output.push(&vec![b'x'; 1 << 20]);
        output.push(b"\ntest result: ok. 2 passed; 0 failed");
        let tests = output.tests();
        assert_eq!(tests.passed(), 2);
        let names: Vec<_> = tests
            .tools
            .values()
            .flat_map(|it| it.tests.keys())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_flood_leaves_the_figures() {
        let mut output = WholeOutput::default();
        output.push(b"test a ... ok\n");
        for _ in 0..20_000 {
            output.push(&[b'x'; 1000]);
            output.push(b"\n");
        }
        output.push(b"test result: ok. 1 passed; 0 failed\n");
        let tests = output.tests();
        assert_eq!(tests.passed(), 1);
        assert!(tests.tools.values().all(|tool| tool.tests.is_empty()));
    }
}
