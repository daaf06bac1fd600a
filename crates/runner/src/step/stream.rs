//! The agent's events as they come: recorded, understood, counted.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use runner_agents::{AgentReader, EventLine, SessionEnding, SessionUsage};
use runner_exec::{Flow, Stream};

use super::child::OutputListener;
use crate::files;
use crate::run_context::{ProgressObserver, RunProgress};
use crate::step::budget::RunBudget;

/// A line longer than this is not an event that anybody reads.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Splits the agent's output into lines, keeps those that are JSON in
/// `stream.jsonl` and passes them to the backend's reader.
pub(super) struct EventStream<'b> {
    reader: Box<dyn AgentReader>,
    budget: &'b RunBudget,
    stdout: LineBuffer,
    stderr: LineBuffer,
    path: PathBuf,
    file: Option<File>,
    broken: bool,
    bytes_left: u64,
    pending: Vec<u8>,
    speaks: bool,
    /// Whether somebody else than the agent's CLI wrote to its output.
    disturbed: bool,
    /// Which budget was reached while the session ran.
    pub(super) exceeded: Option<String>,
}

impl<'b> EventStream<'b> {
    /// A stream that records at most `cap` bytes. Of an agent that is known to
    /// print events there is a file from the beginning, for viewers to follow.
    pub(super) fn new(
        reader: Box<dyn AgentReader>,
        budget: &'b RunBudget,
        path: &Path,
        cap: u64,
        speaks: bool,
    ) -> Self {
        let file = if speaks {
            files::create_new(path).ok()
        } else {
            None
        };
        EventStream {
            reader,
            budget,
            stdout: LineBuffer::default(),
            stderr: LineBuffer::default(),
            path: path.to_owned(),
            file,
            broken: false,
            bytes_left: cap,
            pending: Vec::new(),
            speaks,
            disturbed: false,
            exceeded: None,
        }
    }

    /// What a person should know of the output.
    pub(super) fn note(&self) -> Option<&'static str> {
        let words = "the agent's output was disturbed: something other than its CLI wrote to it, or a line was cut off; \
                     its figures are the largest that were told";
        self.disturbed.then_some(words)
    }

    /// What the session came to.
    pub(super) fn finish(
        mut self,
        exit: Option<i32>,
        now: jiff::Timestamp,
        tz: &runner_agents::LocalZone,
        observer: &mut dyn ProgressObserver,
    ) -> (SessionEnding, Option<String>) {
        let rest = self.stdout.take_rest();
        self.line(&rest, observer);
        self.flush();
        let rest = self.stderr.take_rest();
        self.reader.stderr(&rest);
        (self.reader.finish(exit, now, tz), self.exceeded)
    }

    fn line(&mut self, line: &[u8], observer: &mut dyn ProgressObserver) {
        if line.is_empty() {
            return;
        }
        let event = EventLine::of(line);
        self.disturbed |= self.speaks && event.is_disturbed();
        let line = event.object().unwrap_or(line);
        for event in self.reader.line(line) {
            observer.progress(&RunProgress::AgentEvent(&event));
        }
        let roots = usize::try_from(self.bytes_left).unwrap_or(usize::MAX);
        if line.len() < roots && event.object().is_some() {
            self.bytes_left -= line.len() as u64 + 1;
            self.pending.extend_from_slice(line);
            self.pending.push(b'\n');
        }
    }

    /// Viewers miss lines if they cannot be written; the log has everything.
    fn flush(&mut self) {
        if self.pending.is_empty() || self.broken {
            self.pending.clear();
            return;
        }
        if self.file.is_none() {
            self.file = files::create_new(&self.path).ok();
        }
        let written = self.file.as_mut().map(|file| file.write_all(&self.pending));
        self.broken = !matches!(written, Some(Ok(())));
        self.pending.clear();
    }
}

impl OutputListener for EventStream<'_> {
    fn started(&mut self, observer: &mut dyn ProgressObserver) {
        observer.progress(&RunProgress::AgentStarted);
    }

    fn output(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        observer: &mut dyn ProgressObserver,
    ) -> Flow {
        if stream == Stream::Stderr {
            let reader = &mut self.reader;
            self.stderr.push(bytes, |line| reader.stderr(line));
            return Flow::Go;
        }
        let mut lines = std::mem::take(&mut self.stdout);
        lines.push(bytes, |line| self.line(line, observer));
        self.stdout = lines;
        self.flush();
        let usage: SessionUsage = self.reader.usage();
        if self.exceeded.is_none() {
            self.exceeded = self.budget.exceeded_by(&usage);
        }
        // A session that is about to end by itself has been paid for: its report counts,
        // and the next one is not begun.
        if self.exceeded.is_some() && !self.reader.is_over() {
            Flow::Stop
        } else {
            Flow::Go
        }
    }
}

/// Puts lines together from pieces; a line that is too long is passed over.
#[derive(Default)]
struct LineBuffer {
    partial: Vec<u8>,
    overlong: bool,
}

impl LineBuffer {
    fn push(&mut self, mut bytes: &[u8], mut use_line: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.overlong {
                self.overlong = false;
            } else if self.partial.is_empty() {
                use_line(line);
            } else {
                self.partial.extend_from_slice(line);
                use_line(&self.partial);
            }
            self.partial.clear();
            bytes = rest;
        }
        if self.overlong {
            return;
        }
        if self.partial.len() + bytes.len() > MAX_LINE {
            self.overlong = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let text = b"one\n\ntwo\nthree".to_vec();
        for piece in 1..text.len() {
            let mut lines = LineBuffer::default();
            let mut found = Vec::new();
            for bytes in text.chunks(piece) {
                lines.push(bytes, |line| found.push(line.to_vec()));
            }
            found.push(lines.take_rest());
            assert_eq!(found, [&b"one"[..], b"", b"two", b"three"], "{piece}");
        }
    }

    #[test]
    fn an_overlong_line_is_passed_over_in_bounded_memory() {
        let mut lines = LineBuffer::default();
        let mut found = Vec::new();
        let block = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            lines.push(&block, |line| found.push(line.len()));
            assert!(lines.partial.capacity() <= 2 * MAX_LINE);
        }
        lines.push(b"\nshort\n", |line| found.push(line.len()));
        assert_eq!(found, [5]);
    }
}
