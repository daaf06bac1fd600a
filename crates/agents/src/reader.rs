//! Reading what a CLI prints, and what all readers share.

use std::collections::VecDeque;

use jiff::Timestamp;
use runner_core::output::MAX_OUTPUT_BYTES;
use serde::Deserialize;
use serde::de::IgnoredAny;

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

/// The event of a line, as far as it is of interest; it may end a line that begins with something else.
pub(crate) fn read_event<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    let begins = line.trim_ascii_start().first() == Some(&b'{');
    let whole = begins.then(|| serde_json::from_slice(line).ok()).flatten();
    whole.or_else(|| match EventLine::of(line) {
        EventLine::Glued(object) => serde_json::from_slice(object).ok(),
        _ => None,
    })
}

/// A line longer than this is not searched for an event.
const MAX_SEARCHED: usize = 1 << 20;

/// How many places in a line may be where an event begins.
const MAX_PLACES: usize = 64;

/// How the events of the CLIs begin.
const BEGINNING: &[u8] = b"{\"type\"";

/// What a line of a CLI that prints events is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLine<'a> {
    /// One JSON object.
    Whole(&'a [u8]),
    /// Something, and an object that ends the line: whatever a tool writes to the CLI's output
    /// stands in front of what the CLI prints next.
    Glued(&'a [u8]),
    /// The beginning of an object, and none that is whole.
    Broken,
    /// No event, such as a warning.
    Other,
}

impl<'a> EventLine<'a> {
    /// Looks at a line.
    pub fn of(line: &'a [u8]) -> Self {
        let is_object = |text: &[u8]| serde_json::from_slice::<IgnoredAny>(text).is_ok();
        let line = line.trim_ascii();
        let begins = line.first() == Some(&b'{');
        if begins && is_object(line) {
            return EventLine::Whole(line);
        }
        // From the end: what stands in front may be anything. No two places fit, for an object
        // that is part of another one ends before it.
        let ends = line.last() == Some(&b'}') && line.len() <= MAX_SEARCHED;
        let windows = ends.then(|| line.windows(BEGINNING.len()).enumerate().rev());
        let places = windows.into_iter().flatten();
        let mut places = places
            .filter(|(_, text)| *text == BEGINNING)
            .take(MAX_PLACES);
        let found = places.find(|(at, _)| *at > 0 && is_object(&line[*at..]));
        match found {
            Some((at, _)) => EventLine::Glued(&line[at..]),
            None if begins => EventLine::Broken,
            None => EventLine::Other,
        }
    }

    /// The object.
    pub fn object(self) -> Option<&'a [u8]> {
        match self {
            EventLine::Whole(object) | EventLine::Glued(object) => Some(object),
            EventLine::Broken | EventLine::Other => None,
        }
    }

    /// Whether somebody else than the CLI had a hand in it, or it was cut off.
    pub fn is_disturbed(self) -> bool {
        matches!(self, EventLine::Glued(_) | EventLine::Broken)
    }
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
    fn an_event_behind_what_a_tool_wrote() {
        use EventLine::{Broken, Glued, Other, Whole};
        let event = r#"{"type":"result","usage":{"type":"x"},"a":"{\"type\":1}"}"#;
        let event = event.as_bytes();
        let fragments = "{\"type\":[".repeat(200);
        for (before, expected) in [
            ("", Whole(event)),
            ("  ", Whole(event)),
            ("Warning: ", Glued(event)),
            ("{\"type\":\"result\",\"usage\":{", Glued(event)),
            ("{\"x\":\"", Glued(event)),
            ("{\"type\":\"result\"}", Glued(event)),
            (&fragments, Glued(event)),
        ] {
            let line = [before.as_bytes(), event].concat();
            assert_eq!(EventLine::of(&line), expected, "{before}");
            assert_eq!(EventLine::of(&line).object(), Some(event));
        }
        for (line, expected) in [
            ("", Other),
            ("a warning", Other),
            ("in {braces}", Other),
            ("{\"type\":\"result\"", Broken),
            ("{\"type\":1} and more", Broken),
            ("{not json}", Broken),
        ] {
            assert_eq!(EventLine::of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_report_is_bounded() {
        assert_eq!(bounded("abc"), b"abc");
        let long = "x".repeat(MAX_OUTPUT_BYTES + 10);
        assert_eq!(bounded(&long).len(), MAX_OUTPUT_BYTES + 1);
    }
}
