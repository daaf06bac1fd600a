//! `node --test`, in TAP and in the words of its spec reporter.

use super::{TestOutcome, ToolEvidence};

/// Reads the tests by name, each below the suites that it is in, and makes sure of the closing
/// figures.
pub(super) fn read(text: &str) -> Option<ToolEvidence> {
    let mut report = NodeReport::default();
    for line in text.lines().map(str::trim_end) {
        report.line(line);
    }
    if !report.has_figures {
        return None;
    }
    let mut evidence = report.evidence;
    evidence.count_tests();
    Some(evidence)
}

#[derive(Default)]
struct NodeReport {
    evidence: ToolEvidence,
    /// What is open, from the outside.
    groups: Vec<OpenGroup>,
    /// Inside the details of a test in TAP, which ends at this line.
    details: Option<String>,
    /// The failures are told once more at the end.
    is_repeating: bool,
    has_figures: bool,
}

/// A suite, or a test that may have tests inside.
struct OpenGroup {
    indent: usize,
    name: String,
    has_tests: bool,
}

impl NodeReport {
    fn line(&mut self, line: &str) {
        if let Some(end) = &self.details {
            if line == end {
                self.details = None;
            }
            return;
        }
        let words = line.trim_start();
        let indent = line.len() - words.len();
        if words == "---" {
            self.details = Some(format!("{}...", &line[..indent]));
        } else if is_figure(words) {
            self.has_figures = true;
        } else if words == "✖ failing tests:" {
            self.is_repeating = true;
        } else if let Some(name) = words.strip_prefix("# Subtest: ") {
            self.open(indent, name);
        } else if let Some((name, outcome)) = tap_line(words) {
            self.test(indent, name, outcome);
        } else if let Some(name) = words.strip_prefix("▶ ") {
            self.is_repeating = false;
            // Earlier versions end a group with the same sign.
            match timed(name) {
                Some(name) => self.test(indent, name, TestOutcome::Passed),
                None => self.open(indent, name),
            }
        } else if let Some((name, outcome)) = spec_line(words) {
            // Another run of the tool begins with anything else.
            self.is_repeating &= words.starts_with('✖');
            if !self.is_repeating {
                self.test(indent, name, outcome);
            }
        }
    }

    fn open(&mut self, indent: usize, name: &str) {
        self.groups.retain(|group| group.indent < indent);
        self.groups.push(OpenGroup {
            indent,
            name: name.to_owned(),
            has_tests: false,
        });
    }

    /// A test has ended, or a group of tests.
    fn test(&mut self, indent: usize, name: &str, outcome: TestOutcome) {
        let own = self.groups.iter().find(|group| group.indent == indent);
        let is_group = own.is_some_and(|group| group.has_tests && group.name == name);
        self.groups.retain(|group| group.indent < indent);
        if let Some(group) = self.groups.last_mut() {
            group.has_tests = true;
        } else if is_file(name) {
            // One that ended without a test.
            return;
        }
        if is_group {
            return;
        }
        let above = self.groups.iter().map(|group| group.name.as_str());
        let names: Vec<&str> = above.chain([name]).collect();
        self.evidence.note(&names.join(" > "), outcome);
    }
}

/// `# pass 3` or `ℹ pass 3`.
fn is_figure(words: &str) -> bool {
    let rest = words.strip_prefix("# ").or(words.strip_prefix("ℹ "));
    let number = rest.and_then(|rest| rest.strip_prefix("pass "));
    number.is_some_and(|number| number.trim().parse::<u64>().is_ok())
}

/// `ok 1 - adds` or `not ok 2 - later # TODO`.
fn tap_line(words: &str) -> Option<(&str, TestOutcome)> {
    let (outcome, rest) = match words.strip_prefix("not ok ") {
        Some(rest) => (TestOutcome::Failed, rest),
        None => (TestOutcome::Passed, words.strip_prefix("ok ")?),
    };
    let (number, name) = rest.split_once(" - ")?;
    number.parse::<u64>().ok()?;
    Some(directed(name, outcome))
}

/// `✔ adds (0.2ms)` or `﹣ later (0.1ms) # SKIP`.
fn spec_line(words: &str) -> Option<(&str, TestOutcome)> {
    let mut letters = words.chars();
    let outcome = match letters.next()? {
        '✔' => TestOutcome::Passed,
        '✖' => TestOutcome::Failed,
        '﹣' | '⚠' => TestOutcome::Skipped,
        _ => return None,
    };
    let (name, outcome) = directed(letters.as_str().strip_prefix(' ')?, outcome);
    Some((timed(name)?, outcome))
}

/// What stands before ` # SKIP` or ` # TODO`, with what that means.
fn directed(name: &str, outcome: TestOutcome) -> (&str, TestOutcome) {
    for mark in [" # SKIP", " # TODO"] {
        if let Some((name, _)) = name.split_once(mark) {
            return (name, TestOutcome::Skipped);
        }
    }
    (name, outcome)
}

/// The name before ` (0.2ms)`.
fn timed(text: &str) -> Option<&str> {
    let (name, time) = text.rsplit_once(" (")?;
    let number = time.strip_suffix("ms)")?;
    number.parse::<f64>().ok()?;
    Some(name)
}

fn is_file(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    matches!(ending, Some("js" | "cjs" | "mjs" | "ts" | "cts" | "mts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 8] = [
        "adds",
        "other",
        "outer > inner",
        "!subs",
        "sums > adds",
        "~sums > later",
        "~sums > not yet",
        "sums > small # ones > are - added",
    ];

    #[test]
    fn tap() {
        let text = include_str!("recorded/node_tap.txt");
        let found = read(text).unwrap();
        let names: Vec<String> = found
            .marked()
            .iter()
            .map(|name| name.replace("\\#", "#"))
            .collect();
        assert_eq!(names, NAMES);
        assert_eq!((found.passed, found.failed, found.skipped), (5, 1, 2));
    }

    #[test]
    fn spec() {
        let text = include_str!("recorded/node_spec.txt");
        let found = read(text).unwrap();
        assert_eq!(found.marked(), NAMES);
        let older = "▶ sums\n  ✔ adds (0.2ms)\n▶ sums (1.4ms)\n\nℹ tests 1\nℹ pass 1\n";
        assert_eq!(read(older).unwrap().marked(), ["sums > adds"]);
    }

    #[test]
    fn a_file_that_ends_early_is_no_test() {
        let text = "TAP version 13\n# Subtest: /p/test/sums.test.js\nok 1 - /p/test/sums.test.js\n  ---\n  \
                    duration_ms: 1\n  ...\n1..1\n# tests 1\n# pass 1\n# fail 0\n";
        assert_eq!(read(text), Some(ToolEvidence::default()));
        let text = "✔ /p/test/sums.test.js (101.7ms)\nℹ tests 1\nℹ pass 1\n";
        assert_eq!(read(text), Some(ToolEvidence::default()));
    }

    #[test]
    fn something_else() {
        for text in ["ok 1 - a\n", "✔ built (3ms)\n", "# pass the salt\n"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
