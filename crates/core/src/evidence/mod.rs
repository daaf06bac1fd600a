//! Evidence that tests ran, read out of what test tools print.
//!
//! An exit code says nothing about what was run. Where a tool names its tests, or counts them, the
//! ones that passed where a run began are expected to pass again.

mod cargo;
mod compare;
mod go;
mod javascript;
mod junit;
mod nextest;
mod node;
mod pytest;
#[cfg(test)]
mod recorded;
mod unittest;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use compare::{EvidenceGap, TestDifference, compare, silence};

/// Finds the report of one tool in the output of a guard.
type LogReader = fn(&str) -> Option<ToolEvidence>;

/// A test tool whose output is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestTool {
    /// `cargo test`.
    Cargo,
    /// `cargo nextest run`.
    Nextest,
    /// pytest.
    Pytest,
    /// Python's unittest.
    Unittest,
    /// `go test`.
    Go,
    /// jest.
    Jest,
    /// vitest.
    Vitest,
    /// `node --test`.
    Node,
    /// A report in JUnit's format.
    Junit,
}

impl TestTool {
    /// All of them.
    pub const ALL: [TestTool; 9] = [
        TestTool::Cargo,
        TestTool::Nextest,
        TestTool::Pytest,
        TestTool::Unittest,
        TestTool::Go,
        TestTool::Jest,
        TestTool::Vitest,
        TestTool::Node,
        TestTool::Junit,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            TestTool::Cargo => "cargo",
            TestTool::Nextest => "nextest",
            TestTool::Pytest => "pytest",
            TestTool::Unittest => "unittest",
            TestTool::Go => "go",
            TestTool::Jest => "jest",
            TestTool::Vitest => "vitest",
            TestTool::Node => "node",
            TestTool::Junit => "junit",
        }
    }
}

impl TestTool {
    /// The tool that a guard's command calls by itself, where it always reports something. A script may
    /// call others, or none.
    pub fn called_by(command: &[String]) -> Option<Self> {
        let names = command
            .iter()
            .map(|word| word.rsplit('/').next().unwrap_or(word));
        let names: Vec<&str> = names.collect();
        let is_shell = matches!(names.first(), Some(&("sh" | "bash" | "dash" | "zsh")));
        let is_quiet = |word: &&str| {
            matches!(
                *word,
                "--collect-only" | "--co" | "--no-run" | "no:terminal"
            )
        };
        if is_shell || names.iter().any(is_quiet) {
            return None;
        }
        let after = |first: &str| {
            let mut rest = names.iter().skip_while(|name| **name != first).skip(1);
            rest.find(|name| !name.starts_with(['-', '+'])).copied()
        };
        match () {
            () if names
                .iter()
                .any(|name| matches!(*name, "pytest" | "py.test")) =>
            {
                Some(TestTool::Pytest)
            }
            () if names.windows(2).any(|pair| pair == ["-m", "unittest"]) => {
                Some(TestTool::Unittest)
            }
            () if matches!(after("cargo"), Some("test" | "t")) => Some(TestTool::Cargo),
            () if after("cargo") == Some("nextest") => Some(TestTool::Nextest),
            () if names.contains(&"jest") => Some(TestTool::Jest),
            () if names.contains(&"vitest") => Some(TestTool::Vitest),
            () => None,
        }
    }
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestOutcome {
    /// It ran and passed.
    Passed,
    /// It did not run, or its failure was expected.
    Skipped,
    /// It failed.
    Failed,
}

/// What one tool reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolEvidence {
    /// Tests by name, or the files and packages that hold them where the tool names only those.
    pub tests: BTreeMap<String, TestOutcome>,
    /// How many passed, as the tool counted them.
    pub passed: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were skipped.
    pub skipped: u64,
    /// How often a name came, while a report is read.
    #[serde(skip)]
    repeats: BTreeMap<String, u64>,
}

#[cfg(test)]
impl ToolEvidence {
    /// The tests with their outcomes.
    fn listed(&self) -> Vec<(&str, TestOutcome)> {
        let tests = self.tests.iter();
        tests
            .map(|(name, outcome)| (name.as_str(), *outcome))
            .collect()
    }

    /// The same in words: `~` before one that was skipped, `!` before one that failed.
    fn marked(&self) -> Vec<String> {
        let tests = self.tests.iter();
        tests
            .map(|(name, outcome)| match outcome {
                TestOutcome::Passed => name.clone(),
                TestOutcome::Skipped => format!("~{name}"),
                TestOutcome::Failed => format!("!{name}"),
            })
            .collect()
    }
}

impl ToolEvidence {
    /// Notes a test. The second of the same name gets a number.
    fn note(&mut self, name: &str, outcome: TestOutcome) {
        if !self.tests.contains_key(name) {
            self.tests.insert(name.to_owned(), outcome);
            return;
        }
        let number = self.repeats.entry(name.to_owned()).or_insert(1);
        *number += 1;
        self.tests.insert(format!("{name} #{number}"), outcome);
    }

    /// Notes a test that tools may report more than once: the worst counts.
    fn note_again(&mut self, name: &str, outcome: TestOutcome) {
        let known = self.tests.entry(name.to_owned()).or_insert(outcome);
        *known = outcome.max(*known);
    }

    fn count(&mut self, outcome: TestOutcome, number: u64) {
        let count = match outcome {
            TestOutcome::Passed => &mut self.passed,
            TestOutcome::Skipped => &mut self.skipped,
            TestOutcome::Failed => &mut self.failed,
        };
        // Code under test prints whatever it likes.
        *count = count.saturating_add(number);
    }

    /// Counts the tests that were noted, for a tool that gives no figures.
    fn count_tests(&mut self) {
        for outcome in self.tests.values().copied().collect::<Vec<_>>() {
            self.count(outcome, 1);
        }
    }
}

/// What the output of a guard says about tests, by tool. Empty: no tool was recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TestEvidence {
    /// By tool.
    pub tools: BTreeMap<TestTool, ToolEvidence>,
}

impl TestEvidence {
    /// Reads the output of a guard.
    pub fn of_log(log: &[u8]) -> Self {
        let text = String::from_utf8_lossy(log);
        let text = without_colours(&text);
        let readers: [(TestTool, LogReader); 8] = [
            (TestTool::Cargo, cargo::read),
            (TestTool::Nextest, nextest::read),
            (TestTool::Pytest, pytest::read),
            (TestTool::Unittest, unittest::read),
            (TestTool::Go, go::read),
            (TestTool::Jest, javascript::read_jest),
            (TestTool::Vitest, javascript::read_vitest),
            (TestTool::Node, node::read),
        ];
        let found = readers
            .into_iter()
            .filter_map(|(tool, read)| Some((tool, read(&text)?)));
        let mut evidence = TestEvidence {
            tools: found.collect(),
        };
        for tool in evidence.tools.values_mut() {
            tool.repeats.clear();
        }
        evidence
    }

    /// Adds a report in JUnit's format. Whether it was one.
    pub fn add_junit(&mut self, report: &[u8]) -> bool {
        let Some(read) = junit::read(&String::from_utf8_lossy(report)) else {
            return false;
        };
        let evidence = self.tools.entry(TestTool::Junit).or_default();
        for (name, outcome) in read {
            evidence.note(&name, outcome);
            evidence.count(outcome, 1);
        }
        true
    }

    /// How many tests passed, by all tools.
    pub fn passed(&self) -> u64 {
        let counts = self.tools.values().map(|tool| tool.passed);
        counts.fold(0, u64::saturating_add)
    }

    /// Whether no tool was recognised.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

/// A text without the escape sequences of terminals, and with plain line ends.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{1b}' => match rest.next() {
                // Most end with a letter, the choice of a character set has one more, and a link
                // or a title ends with a bell or another sequence.
                Some('[') => {
                    rest.by_ref().find(|letter| ('@'..='~').contains(letter));
                }
                Some('(' | ')') => {
                    rest.next();
                }
                Some(']') => {
                    rest.by_ref()
                        .find(|letter| matches!(letter, '\u{7}' | '\\' | '\n'));
                }
                _ => {}
            },
            '\r' => {}
            letter => plain.push(letter),
        }
    }
    plain
}

/// The numbers in a summary such as `3 passed, 1 skipped`, each with the word that follows it.
fn figures(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.split([',', ';', '|', '('])
        .filter_map(|part| part.trim().split_once(' '))
        .filter_map(|(number, word)| {
            let word = word.split_whitespace().next()?;
            Some((number.parse().ok()?, word.trim_end_matches(['.', ')'])))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_tool_a_command_calls() {
        for (line, expected) in [
            ("python3 -m pytest -q", Some(TestTool::Pytest)),
            (".venv/bin/pytest", Some(TestTool::Pytest)),
            ("uv run --frozen pytest tests", Some(TestTool::Pytest)),
            ("pytest --collect-only", None),
            ("python3 -m unittest -v", Some(TestTool::Unittest)),
            ("cargo +nightly test --all", Some(TestTool::Cargo)),
            ("cargo nextest run", Some(TestTool::Nextest)),
            ("cargo build", None),
            ("npx jest", Some(TestTool::Jest)),
            ("npm test", None),
            ("go test ./...", None),
            ("make test", None),
            ("sh -c pytest", None),
        ] {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(TestTool::called_by(&command), expected, "{line}");
            let silent = silence(&command, &TestEvidence::default());
            assert_eq!(silent, expected.map(EvidenceGap::Silent), "{line}");
        }
    }

    #[test]
    fn colours_are_taken_away() {
        assert_eq!(without_colours("\u{1b}[1;32mok\u{1b}[0m\r\n"), "ok\n");
        assert_eq!(without_colours("\u{1b}[32mok\u{1b}(B\u{1b}[m\n"), "ok\n");
        assert_eq!(
            without_colours("\u{1b}]8;;file\u{1b}\\a.rs\u{1b}]8;;\u{7} x\n"),
            "a.rs x\n"
        );
        assert_eq!(without_colours("\u{1b}[2K\u{1b}[1Gx"), "x");
    }

    #[test]
    fn ordinary_output_is_no_evidence() {
        for log in [
            "",
            "all good\n",
            "ok\n",
            "make: Nothing to be done for 'test'.\n",
            "PASS\n",
            "checked 3 files, 3 passed\n",
            "Compiling foo v0.1.0\n    Finished `dev` profile\n",
        ] {
            assert!(TestEvidence::of_log(log.as_bytes()).is_empty(), "{log}");
        }
    }

    #[test]
    fn one_guard_may_run_several_tools() {
        let log = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; \
                   0 measured; 0 filtered out; finished in 0.00s\n\
                   ....\nRan 4 tests in 0.002s\n\nOK\n";
        let found = TestEvidence::of_log(log.as_bytes());
        let tools: Vec<&str> = found.tools.keys().map(|tool| tool.as_str()).collect();
        assert_eq!(tools, ["cargo", "unittest"]);
        assert_eq!(found.passed(), 5);
    }

    /// What code under test may print as well.
    #[test]
    fn floods_and_figures_that_cannot_be() {
        let mut log = "test a ... ok\n".repeat(100_000);
        for _ in 0..2 {
            log.push_str("test result: ok. 18446744073709551615 passed; 0 failed\n");
            log.push_str("Ran 18446744073709551615 tests in 0.1s\nFAILED (failures=18446744073709551615, errors=1)\n");
        }
        let found = TestEvidence::of_log(log.as_bytes());
        assert_eq!(found.passed(), u64::MAX);
        assert_eq!(found.tools[&TestTool::Cargo].tests.len(), 100_000);
    }

    #[test]
    fn it_can_be_kept() {
        let mut found = TestEvidence::of_log(b"Ran 4 tests in 0.002s\n\nOK\n");
        assert!(found.add_junit(b"<testsuite><testcase classname='a' name='b'/></testsuite>"));
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<TestEvidence>(&text).unwrap(), found);
    }
}
