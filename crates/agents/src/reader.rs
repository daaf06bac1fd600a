//! Reading what a CLI prints, and what all readers share.

use std::collections::VecDeque;

use jiff::Timestamp;
use runner_core::output::MAX_OUTPUT_BYTES;

use crate::LocalZone;
use crate::event::{AgentEvent, MAX_ERROR_CHARS, one_paragraph};
use crate::failure::{AgentFailure, classify};
use crate::usage::SessionUsage;

/// Reads the output of one session, line by line. Its memory is bounded whatever the
/// CLI prints.
pub trait AgentReader: Send {
    /// One line of stdout, without its end; any bytes. What it means: often nothing.
    fn line(&mut self, line: &[u8]) -> Vec<AgentEvent>;

    /// One line of stderr, which matters only when the session fails.
    fn stderr(&mut self, line: &[u8]);

    /// What the session has used so far, as far as it has said so. Some CLIs count
    /// only at the end.
    fn usage(&self) -> SessionUsage;

    /// Whether the CLI has said that its work is done: all it will do now is end.
    /// Some never say so.
    fn is_over(&self) -> bool {
        false
    }

    /// What the session came to. `exit` is its exit code, if it ended by itself.
    /// `now` is the time of the end and `tz` the zone of the machine: they give a
    /// meaning to times in messages (see [`crate::classify`]).
    fn finish(self: Box<Self>, exit: Option<i32>, now: Timestamp, tz: &LocalZone) -> SessionEnding;
}

/// What a session came to.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEnding {
    /// The report, where the CLI hands it over in its events; not validated. Where the
    /// CLI was told to write it to a file, the file goes first.
    pub output: Option<Vec<u8>>,
    /// What the session used.
    pub usage: SessionUsage,
    /// Why there is no report. Where there is a valid one nevertheless, because the
    /// agent itself wrote it, this is a remark.
    pub failure: Option<AgentFailure>,
}

/// How many of the last lines of stderr are kept.
const TAIL_LINES: usize = 8;
/// How much of each.
const TAIL_CHARS: usize = 500;

/// The end of stderr.
#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    lines: VecDeque<String>,
}

impl StderrTail {
    pub(crate) fn push(&mut self, line: &[u8]) {
        // A character has at most four bytes, an escape sequence a few more.
        let start = &line[..line.len().min(TAIL_CHARS * 8)];
        let line = one_paragraph(&String::from_utf8_lossy(start), TAIL_CHARS);
        if line.is_empty() {
            return;
        }
        if self.lines.len() == TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The lines as one text.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        lines.join(" ")
    }

    /// The failure of a session that said nothing but what is on stderr, if it is one.
    pub(crate) fn failure(
        &self,
        program: &str,
        exit: Option<i32>,
        now: Timestamp,
        tz: &LocalZone,
    ) -> Option<AgentFailure> {
        let end = match exit {
            Some(0) => return None,
            Some(code) => format!("{program} ended with exit code {code}"),
            None => format!("{program} did not end by itself"),
        };
        let said = self.text();
        let message = if said.is_empty() {
            end
        } else {
            format!("{end}: {said}")
        };
        // By its own words alone: ours must not tell a kind.
        let (kind, reset) = classify(&said, None, now, tz);
        Some(AgentFailure {
            kind,
            message: one_paragraph(&message, MAX_ERROR_CHARS),
            reset,
        })
    }
}

/// A text that may be the report: no longer than what will be read of it, and one
/// byte more, so that too long a one is still seen to be so.
pub(crate) fn bounded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    bytes[..bytes.len().min(MAX_OUTPUT_BYTES + 1)].to_vec()
}

/// A text of an error that is kept until the end.
pub(crate) fn kept(text: &str) -> String {
    // More than is shown, because a time may stand behind a long body.
    one_paragraph(text, 16_000)
}

/// Whether the line may be an event at all.
pub(crate) fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn the_tail_is_short_and_tells_the_failure() {
        let mut tail = StderrTail::default();
        let now = Timestamp::UNIX_EPOCH;
        let failure = |tail: &StderrTail, exit| {
            tail.failure("x", exit, now, &LocalZone::new(|| jiff::tz::TimeZone::UTC))
        };
        assert_eq!(failure(&tail, Some(0)), None);
        let silent = failure(&tail, Some(2)).unwrap();
        assert_eq!(silent.message, "x ended with exit code 2");
        assert_eq!(silent.kind, FailureKind::Other);

        tail.push(&vec![b'x'; 10_000_000]);
        tail.push(b"\xff\x1b[31mbad\n");
        tail.push(b"   ");
        assert!(tail.text().len() < 2 * TAIL_CHARS);
        for number in 0..100 {
            tail.push(format!("line {number}").as_bytes());
        }
        tail.push(b"Error: 429 Too Many Requests, retry-after: 5");
        let failure = failure(&tail, None).unwrap();
        assert_eq!(failure.kind, FailureKind::RateLimit);
        assert!(failure.reset.is_some());
        assert!(
            failure
                .message
                .starts_with("x did not end by itself: line 93 line 94")
        );
    }

    #[test]
    fn a_report_is_bounded() {
        assert_eq!(bounded("abc"), b"abc");
        let long = "x".repeat(MAX_OUTPUT_BYTES + 10);
        assert_eq!(bounded(&long).len(), MAX_OUTPUT_BYTES + 1);
    }
}
