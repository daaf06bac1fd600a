//! Every recorded session is read as expected.
//!
//! Those of codex were recorded from the binary (see `real_codex.rs`), those of the
//! other two are written after the shapes that were measured. With
//! `RUNNER_BLESS=1` the expectations are written anew, to be looked at.

// A test may fail by it, its helpers too.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;

use jiff::tz::TimeZone;
use runner_agents::LocalZone;
use runner_core::config::BackendKind;
use runner_core::output::AgentOutput;

/// What each session is about: the kind of failure, or what becomes of its report.
const SESSIONS: &[(&str, Outcome)] = &[
    ("codex-success", Outcome::Report),
    ("codex-success-default-model", Outcome::Report),
    ("codex-decomposed", Outcome::Report),
    ("codex-not-json", Outcome::BadReport),
    ("codex-schema-violation", Outcome::BadReport),
    ("codex-401", Outcome::Failure("auth")),
    ("codex-no-key", Outcome::Failure("auth")),
    ("codex-429", Outcome::Failure("rate_limit")),
    ("codex-stream-rate-limit", Outcome::Failure("rate_limit")),
    ("codex-usage-limit", Outcome::Failure("quota")),
    ("codex-quota", Outcome::Failure("quota")),
    ("codex-500", Outcome::Failure("overloaded")),
    ("codex-refused", Outcome::Failure("network")),
    ("codex-cut", Outcome::Failure("network")),
    ("codex-context-full", Outcome::Failure("context_full")),
    ("claude-success", Outcome::Report),
    ("claude-decomposed", Outcome::Report),
    ("claude-schema-violation", Outcome::BadReport),
    ("claude-no-structured-output", Outcome::Failure("malformed")),
    ("claude-401", Outcome::Failure("auth")),
    ("claude-429", Outcome::Failure("rate_limit")),
    ("claude-usage-limit", Outcome::Failure("quota")),
    ("claude-usage-limit-text", Outcome::Failure("quota")),
    ("claude-billing", Outcome::Failure("quota")),
    ("claude-500", Outcome::Failure("overloaded")),
    ("claude-refused", Outcome::Failure("network")),
    ("claude-context-full", Outcome::Failure("context_full")),
    ("claude-cut", Outcome::Failure("other")),
    ("claude-interrupted", Outcome::Failure("other")),
    ("claude-refused-flag", Outcome::Failure("other")),
    ("opencode-success", Outcome::OwnReport),
    ("opencode-decomposed", Outcome::OwnReport),
    ("opencode-no-report", Outcome::OwnReport),
    ("opencode-recovered", Outcome::OwnReport),
    ("opencode-401", Outcome::Failure("auth")),
    ("opencode-429", Outcome::Failure("rate_limit")),
    ("opencode-usage-limit", Outcome::Failure("quota")),
    ("opencode-quota", Outcome::Failure("quota")),
    ("opencode-500", Outcome::Failure("overloaded")),
    ("opencode-refused", Outcome::Failure("network")),
    ("opencode-context-full", Outcome::Failure("context_full")),
    ("opencode-unknown", Outcome::Failure("other")),
    ("opencode-cut", Outcome::Failure("other")),
    ("opencode-stderr-only", Outcome::Failure("other")),
];

/// What a session comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// A valid report in the events.
    Report,
    /// One that does not count.
    BadReport,
    /// None in the events: the agent writes it itself, or not.
    OwnReport,
    /// A failure of this kind.
    Failure(&'static str),
}

fn backend_of(name: &str) -> BackendKind {
    let (word, _) = name.split_once('-').unwrap();
    BackendKind::from_word(word).unwrap()
}

#[test]
fn sessions_are_read_as_expected() {
    let bless = std::env::var_os("RUNNER_BLESS").is_some();
    for (name, outcome) in SESSIONS {
        let stdout = fs::read(support::stream_path(name)).unwrap();
        let expected = support::expected(name);
        let read = support::read(backend_of(name), &stdout, &expected.stderr, expected.exit);
        if bless {
            support::write_expected(name, &read);
        } else {
            assert_eq!(read, expected, "{name}");
        }
        let found = match (&read.failure, &read.output) {
            (Some(failure), None) => Outcome::Failure(failure_word(&failure.kind)),
            (None, Some(output)) if AgentOutput::parse(output.as_bytes()).is_ok() => {
                Outcome::Report
            }
            (None, Some(_)) => Outcome::BadReport,
            (None, None) => Outcome::OwnReport,
            (Some(_), Some(_)) => panic!("{name}: a failure and a report"),
        };
        assert_eq!(found, *outcome, "{name}");
    }
}

fn failure_word(kind: &str) -> &'static str {
    let all = runner_agents::FailureKind::ALL;
    let kind = all.into_iter().find(|known| known.as_str() == kind);
    kind.unwrap().as_str()
}

#[test]
fn every_recording_is_used() {
    let mut names: Vec<String> = fs::read_dir(support::streams())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|file| Some(file.strip_suffix(".jsonl")?.to_owned()))
        .collect();
    names.sort();
    let mut used: Vec<&str> = SESSIONS.iter().map(|(name, _)| *name).collect();
    used.sort_unstable();
    assert_eq!(names, used);
}

#[test]
fn a_session_that_is_cut_anywhere_does_not_count() {
    for (name, outcome) in SESSIONS {
        if !matches!(outcome, Outcome::Report) {
            continue;
        }
        let stdout = fs::read(support::stream_path(name)).unwrap();
        for end in 0..stdout.len() - 1 {
            let mut reader = runner_agents::backend(backend_of(name)).reader();
            for line in stdout[..end].split(|byte| *byte == b'\n') {
                reader.line(line);
            }
            // Killed: whatever it had said by then, it is not a result.
            let ending = reader.finish(None, support::now(), &LocalZone::new(|| TimeZone::UTC));
            assert!(
                ending.output.is_none() && ending.failure.is_some(),
                "{name} {end}"
            );
        }
    }
}
