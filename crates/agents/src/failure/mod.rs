//! Why a session failed: one classifier for all CLIs, and when it may go on.

mod reset;
mod rules;
#[cfg(test)]
mod tests;

use std::cell::LazyCell;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::event::{MAX_ERROR_CHARS, one_paragraph};

/// How much of a message is looked at.
const MAX_CLASSIFIED_CHARS: usize = 16_000;

/// The zone of the machine, looked up when it is needed: that reads a thousand names, and only a
/// message with a time of day in it asks for one.
pub type LocalZone = LazyCell<TimeZone>;

/// Why a session failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFailure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// In the CLI's words: one paragraph, at most 2000 characters. It may quote
    /// anything, secrets included; [`crate::mask_text`] is for that.
    pub message: String,
    /// When it is worth to try again, if the CLI says so.
    pub reset: Option<LimitReset>,
}

/// Kinds of failure, told apart by what to do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// What the plan or the account allows is used up.
    Quota,
    /// Too many requests in a short time.
    RateLimit,
    /// There is no valid login or key.
    Auth,
    /// The conversation has become too long for the model.
    ContextFull,
    /// The provider could not be reached, or the connection broke.
    Network,
    /// The provider itself fails.
    Overloaded,
    /// The session ended without the report it was told to give.
    Malformed,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [FailureKind; 8] = [
        FailureKind::Quota,
        FailureKind::RateLimit,
        FailureKind::Auth,
        FailureKind::ContextFull,
        FailureKind::Network,
        FailureKind::Overloaded,
        FailureKind::Malformed,
        FailureKind::Other,
    ];

    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Quota => "quota",
            FailureKind::RateLimit => "rate_limit",
            FailureKind::Auth => "auth",
            FailureKind::ContextFull => "context_full",
            FailureKind::Network => "network",
            FailureKind::Overloaded => "overloaded",
            FailureKind::Malformed => "malformed",
            FailureKind::Other => "other",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// When it is worth to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitReset {
    /// At this time. It may have passed already.
    At(Timestamp),
    /// This long after the session ended.
    In(Duration),
    /// A time that could not be understood, to be shown to people.
    LocalText(String),
}

impl LimitReset {
    /// The time, if it is one.
    pub fn at(&self, ended_at: Timestamp) -> Option<Timestamp> {
        match self {
            LimitReset::At(at) => Some(*at),
            LimitReset::In(after) => ended_at.checked_add(*after).ok(),
            LimitReset::LocalText(_) => None,
        }
    }
}

/// What kind of failure a message tells of, and when it is worth to try again.
///
/// `http_status` is the provider's, where the CLI reports it apart from the text;
/// else one is looked for in the text. `now` and `tz` give times without a date, year
/// or zone their meaning: CLIs print local time.
pub fn classify(
    text: &str,
    http_status: Option<u16>,
    now: Timestamp,
    tz: &LocalZone,
) -> (FailureKind, Option<LimitReset>) {
    let text = plain(text);
    let lower = text.to_ascii_lowercase();
    let kind = rules::kind(&lower, http_status);
    // Only these pass by waiting; elsewhere a time would be a coincidence.
    let passes = matches!(
        kind,
        FailureKind::Quota | FailureKind::RateLimit | FailureKind::Overloaded
    );
    let reset = passes.then(|| reset::find(&text, &lower, now, tz));
    (kind, reset.flatten())
}

impl AgentFailure {
    /// The failure that `message` tells of. `codes` are words of the CLI's own
    /// events that help to tell its kind and are not shown.
    pub(crate) fn told(
        message: &str,
        codes: &[&str],
        http_status: Option<u16>,
        now: Timestamp,
        tz: &LocalZone,
    ) -> Self {
        let mut text = codes.join(" ");
        text.push(' ');
        text.push_str(message);
        let (kind, reset) = classify(&text, http_status, now, tz);
        AgentFailure {
            kind,
            message: one_paragraph(message, MAX_ERROR_CHARS),
            reset,
        }
    }

    /// A session that went through and did not give its report.
    pub(crate) fn malformed(message: &str) -> Self {
        AgentFailure {
            kind: FailureKind::Malformed,
            message: one_paragraph(message, MAX_ERROR_CHARS),
            reset: None,
        }
    }
}

/// One line with plain apostrophes, so that patterns and times are found however the
/// message is wrapped or escaped.
fn plain(text: &str) -> String {
    one_paragraph(text, MAX_CLASSIFIED_CHARS)
        .replace("\\u2019", "'")
        .replace("\\n", " ")
        .replace(['\u{2018}', '\u{2019}', '\u{02bc}'], "'")
        .replace(['\u{202f}', '\u{a0}'], " ")
}
