//! Recorded sessions: what a CLI printed, how it ended, and what we make of it.
//!
//! `streams/NAME.jsonl` is the CLI's stdout, `streams/NAME.expected.json` its exit
//! code and stderr and what the reader says to it all.

// Each test file uses its own part of this.
#![allow(dead_code)]

use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_agents::{AgentEvent, LimitReset, LocalZone, SessionEnding, SessionUsage};
use runner_core::config::BackendKind;
use serde::{Deserialize, Serialize};

/// When every recorded session is said to have ended.
pub(crate) fn now() -> Timestamp {
    "2026-11-15T14:30:00Z".parse().unwrap()
}

/// A session as a test sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// How the CLI ended; null when a signal ended it.
    pub(crate) exit: Option<i32>,
    pub(crate) stderr: Vec<String>,
    pub(crate) events: Vec<AgentEvent>,
    /// The report as text.
    pub(crate) output: Option<String>,
    pub(crate) usage: SessionUsage,
    pub(crate) failure: Option<RecordedFailure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedFailure {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) reset: Option<String>,
}

/// Reads a session as the runner does.
pub(crate) fn read(
    backend: BackendKind,
    stdout: &[u8],
    stderr: &[String],
    exit: Option<i32>,
) -> Recorded {
    let mut reader = runner_agents::backend(backend).reader();
    let mut events = Vec::new();
    for line in stdout.split(|byte| *byte == b'\n') {
        events.extend(reader.line(line));
    }
    for line in stderr {
        reader.stderr(line.as_bytes());
    }
    let so_far = reader.usage();
    let SessionEnding {
        output,
        usage,
        failure,
    } = reader.finish(exit, now(), &LocalZone::new(|| TimeZone::UTC));
    assert_eq!(so_far, usage, "the last count is the final one");
    Recorded {
        exit,
        stderr: stderr.to_vec(),
        events,
        output: output.map(|output| String::from_utf8(output).unwrap()),
        usage,
        failure: failure.map(|failure| RecordedFailure {
            kind: failure.kind.to_string(),
            message: failure.message,
            reset: failure.reset.map(|reset| match reset {
                LimitReset::At(at) => at.to_string(),
                LimitReset::In(after) => format!("in {after:?}"),
                LimitReset::LocalText(text) => format!("text {text}"),
            }),
        }),
    }
}

pub(crate) fn stream_path(name: &str) -> PathBuf {
    streams().join(format!("{name}.jsonl"))
}

pub(crate) fn expected_path(name: &str) -> PathBuf {
    streams().join(format!("{name}.expected.json"))
}

pub(crate) fn streams() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/streams")
}

pub(crate) fn expected(name: &str) -> Recorded {
    let text = fs::read_to_string(expected_path(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn write_expected(name: &str, recorded: &Recorded) {
    let mut text = serde_json::to_string_pretty(recorded).unwrap();
    text.push('\n');
    fs::write(expected_path(name), text).unwrap();
}
