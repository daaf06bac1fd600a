//! What a session is told besides its task: role instructions, host lines, and what went
//! wrong lately. Within fixed limits, and in whole lines only.

use runner_core::mask::mask_text;
use runner_core::text::{cut_chars, is_invisible};
use runner_lifecycle::{FailureCategory, Timestamp};
use serde::{Deserialize, Serialize};

use super::role::RoleProfile;

/// The most characters of host lines.
pub const HOST_CHARS: usize = 550;

/// The most characters of the failure delta.
pub const DELTA_CHARS: usize = 350;

/// The most characters of both together.
pub const BOTH_CHARS: usize = 900;

/// How many failures are remembered.
pub const MAX_SIGNATURES: usize = 12;

/// For how long.
pub const DELTA_SECS: u64 = 24 * 3600;

const HOST_HEADING: &str = "This machine:";
const DELTA_HEADING: &str = "Failures of the last day, newest first:";

/// The longest gist that is kept, in characters.
const GIST_CHARS: usize = 120;

/// What a session of the role is told, and nothing else: equal inputs give equal text.
pub fn session_context(role: Option<&RoleProfile>, host: &[String], delta: &[String]) -> String {
    let (host, delta) = injected(host, delta);
    let instructions = role.map_or("", |role| role.instructions);
    [instructions, &host, &delta]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<&str>>()
        .join("\n\n")
}

/// Host lines and failure delta with their headings, each within its limit and both
/// within theirs. What went wrong is worth more than the machine, so it takes its room
/// first.
pub fn injected(host: &[String], delta: &[String]) -> (String, String) {
    let delta = section(DELTA_HEADING, delta, DELTA_CHARS);
    // Two line ends stand between them.
    let used = match delta.chars().count() {
        0 => 0,
        chars => chars + 2,
    };
    let room = HOST_CHARS.min(BOTH_CHARS.saturating_sub(used));
    (section(HOST_HEADING, host, room), delta)
}

/// A heading and as many whole lines as fit; nothing if none does.
fn section(heading: &str, lines: &[String], max_chars: usize) -> String {
    let mut text = heading.to_owned();
    let mut chars = heading.chars().count();
    for line in lines {
        let line = one_line(line);
        let more = line.chars().count() + 1;
        if line.is_empty() || chars + more > max_chars {
            continue;
        }
        text.push('\n');
        text.push_str(&line);
        chars += more;
    }
    if text.len() == heading.len() {
        String::new()
    } else {
        text
    }
}

/// A text on one line, without characters that hide something or a secret.
pub(super) fn one_line(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .filter(|c| !is_invisible(*c))
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    mask_text(&words.join(" "), &[])
}

/// The failures of the last day: `.runner/fleet/context/context-delta.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureDelta {
    /// Newest first.
    pub failures: Vec<KnownFailure>,
}

/// One kind of failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownFailure {
    /// Its normal form.
    pub signature: String,
    /// What kind it is.
    pub category: FailureCategory,
    /// A line that says what went wrong.
    pub gist: String,
    /// How often it was seen.
    pub count: u32,
    /// When it was last seen.
    pub last_seen_at: Timestamp,
}

impl FailureDelta {
    /// Reads the file. One that cannot be read is as good as none: it only helps.
    pub fn read(bytes: &[u8]) -> FailureDelta {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Text and numbers only, so this cannot fail.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Adds a failure: one of the same signature is counted, what is older than a day or
    /// beyond the limit is forgotten.
    pub fn add(&mut self, signature: &str, category: FailureCategory, gist: &str, now: Timestamp) {
        let same = |failure: &KnownFailure| failure.signature == signature;
        let before = self
            .failures
            .iter()
            .find(|one| same(one))
            .map_or(0, |one| one.count);
        self.failures.retain(|one| !same(one));
        self.failures.insert(
            0,
            KnownFailure {
                signature: signature.to_owned(),
                category,
                gist: cut_chars(&one_line(gist), GIST_CHARS).into_owned(),
                count: before.saturating_add(1),
                last_seen_at: now,
            },
        );
        self.forget(now);
    }

    /// Drops what is older than a day, and the oldest beyond the limit.
    pub fn forget(&mut self, now: Timestamp) {
        self.failures
            .retain(|one| now.millis_since(one.last_seen_at) < DELTA_SECS * 1000);
        self.failures
            .sort_by_key(|one| std::cmp::Reverse(one.last_seen_at));
        self.failures.truncate(MAX_SIGNATURES);
    }

    /// The lines for a session.
    pub fn lines(&self, now: Timestamp) -> Vec<String> {
        let mut fresh = self.clone();
        fresh.forget(now);
        fresh
            .failures
            .iter()
            .filter(|one| !one.gist.is_empty())
            .map(|one| match one.count {
                1 => format!("- {}: {}", one.category, one.gist),
                count => format!("- {} ({count} times): {}", one.category, one.gist),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::role::{DOCSER, TESTER, WORKER};
    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;

    fn lines(count: usize, chars: usize) -> Vec<String> {
        (0..count).map(|_| "x".repeat(chars)).collect()
    }

    #[test]
    fn limits_in_whole_lines() {
        for (host, delta) in [
            (lines(0, 0), lines(0, 0)),
            (lines(3, 20), lines(2, 20)),
            (lines(40, 30), lines(40, 30)),
            (lines(1, 535), lines(1, 309)),
            (lines(1, 600), lines(1, 600)),
            (lines(500, 1), lines(500, 1)),
        ] {
            let (host_text, delta_text) = injected(&host, &delta);
            let count = |text: &str| text.chars().count();
            assert!(count(&host_text) <= HOST_CHARS);
            assert!(count(&delta_text) <= DELTA_CHARS);
            let whole = session_context(None, &host, &delta);
            assert!(count(&whole) <= BOTH_CHARS, "{}", count(&whole));
            for line in whole.lines().filter(|line| line.starts_with('x')) {
                assert!(host.iter().chain(&delta).any(|full| full == line));
            }
        }
        let (host, _) = injected(&lines(1, 600), &[]);
        assert_eq!(host, "", "a heading alone says nothing");
    }

    #[test]
    fn a_session_is_told_its_role() {
        for role in [&WORKER, &TESTER, &DOCSER] {
            let text = session_context(
                Some(role),
                &["Kernel: Linux".to_owned()],
                &["- test: boom".to_owned()],
            );
            assert!(text.starts_with(role.instructions));
            assert!(text.ends_with(
                "\n\nThis machine:\nKernel: Linux\n\n\
                 Failures of the last day, newest first:\n- test: boom"
            ));
        }
    }

    #[test]
    fn failures_are_counted_and_forgotten() {
        let mut delta = FailureDelta::default();
        delta.add("a", FailureCategory::Test, "error: a\nsecond", Timestamp(0));
        delta.add("b", FailureCategory::Env, "", Timestamp(5));
        delta.add("a", FailureCategory::Test, "error: a", Timestamp(10));
        let seen: Vec<(&str, u32)> = delta
            .failures
            .iter()
            .map(|one| (one.signature.as_str(), one.count))
            .collect();
        assert_eq!(seen, [("a", 2), ("b", 1)]);
        assert_eq!(delta.lines(Timestamp(11)), ["- test (2 times): error: a"]);
        for (now, left) in [(DAY + 4, 2), (DAY + 5, 1), (DAY + 9, 1), (DAY + 10, 0)] {
            let mut later = delta.clone();
            later.forget(Timestamp(now));
            assert_eq!(later.failures.len(), left, "{now}");
        }
        for n in 0..30 {
            delta.add(
                &format!("s{n}"),
                FailureCategory::Flaky,
                "x",
                Timestamp(20 + n),
            );
        }
        assert_eq!(delta.failures.len(), MAX_SIGNATURES);
        assert_eq!(delta.failures[0].signature, "s29");
        assert_eq!(FailureDelta::read(&delta.to_bytes()), delta);
        assert_eq!(FailureDelta::read(b"{"), FailureDelta::default());
    }

    #[test]
    fn no_secret_is_passed_on() {
        let mut delta = FailureDelta::default();
        let key = format!("ghp_{}", "a1".repeat(12));
        delta.add(
            "a",
            FailureCategory::Env,
            &format!("401 with {key}"),
            Timestamp(0),
        );
        assert_eq!(delta.failures[0].gist, "401 with ***");
    }

    proptest! {
        #[test]
        fn limits_hold_for_any_lines(
            host in prop::collection::vec("(?s).{0,90}", 0..20),
            delta in prop::collection::vec("(?s).{0,90}", 0..20),
        ) {
            let text = session_context(None, &host, &delta);
            prop_assert!(text.chars().count() <= BOTH_CHARS);
        }
    }
}
