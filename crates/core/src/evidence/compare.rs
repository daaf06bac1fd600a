//! What is missing in one report of tests that another one has.

use serde::{Deserialize, Serialize};

use super::{TestEvidence, TestOutcome, TestTool, ToolEvidence};

/// Why a green exit code does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceGap {
    /// A tool that reported tests where the run began reported nothing.
    NoReport(TestTool),
    /// It reported, but no test passed.
    NoTests(TestTool),
    /// The guard is that tool, and it reported nothing at all.
    Silent(TestTool),
}

impl EvidenceGap {
    /// For people.
    pub fn words(&self) -> String {
        match self {
            EvidenceGap::NoReport(tool) => format!(
                "the guard printed no report of {}, as it did where the run began: nothing shows that tests ran",
                tool.as_str()
            ),
            EvidenceGap::Silent(tool) => format!(
                "the guard printed no report of {}: nothing shows that tests ran",
                tool.as_str()
            ),
            EvidenceGap::NoTests(tool) => format!(
                "{} reported no test that passed, and it reported tests where the run began",
                tool.as_str()
            ),
        }
    }
}

/// Tests that ran at the base and are not reported passed now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestDifference {
    /// No longer reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Reported as skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Reported as failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// How many fewer passed, by tools that count and do not name them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fewer: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // What serde asks for.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl TestDifference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == TestDifference::default()
    }
}

/// Compares what a guard reported with what it had reported at the base: why the report is no
/// evidence at all, and which tests are not among those that passed.
pub fn compare(base: &TestEvidence, now: &TestEvidence) -> (Vec<EvidenceGap>, TestDifference) {
    let mut gaps = Vec::new();
    let mut difference = TestDifference::default();
    for (tool, before) in &base.tools {
        // A test that failed there counts as well: a green guard is to show that it passes.
        if before.passed == 0 && before.failed == 0 {
            continue;
        }
        let Some(now) = now.tools.get(tool) else {
            gaps.push(EvidenceGap::NoReport(*tool));
            continue;
        };
        if now.passed == 0 || (names_tests(*tool, before) && !names_tests(*tool, now)) {
            gaps.push(EvidenceGap::NoTests(*tool));
            continue;
        }
        compare_tool(*tool, before, now, &mut difference);
    }
    for names in [
        &mut difference.missing,
        &mut difference.skipped,
        &mut difference.failed,
    ] {
        names.sort();
    }
    (gaps, difference)
}

/// Why a green guard is no evidence, whatever is known of the base: it is a test tool itself, and its
/// report is not there.
pub fn silence(command: &[String], now: &TestEvidence) -> Option<EvidenceGap> {
    let tool = TestTool::called_by(command)?;
    now.tools.is_empty().then_some(EvidenceGap::Silent(tool))
}

/// Whether a report of go, where a package counts as passed without any test, names single tests.
fn names_tests(tool: TestTool, evidence: &ToolEvidence) -> bool {
    // A package, a space, a test.
    tool == TestTool::Go && evidence.tests.keys().any(|name| name.contains(' '))
}

fn compare_tool(
    tool: TestTool,
    before: &ToolEvidence,
    now: &ToolEvidence,
    difference: &mut TestDifference,
) {
    let mut named = 0;
    // A flood of output may leave nothing but the figures.
    let has_names = !now.tests.is_empty();
    let is_complete = names_all(now);
    let has_details = !has_only_files(tool) || now.tests.keys().any(|name| name.contains(" > "));
    for (name, outcome) in before.tests.iter().filter(|_| has_names) {
        let passed = *outcome == TestOutcome::Passed;
        // Some tools name the tests that fail and no others.
        let counts = match outcome {
            TestOutcome::Passed => true,
            TestOutcome::Failed => is_complete && !is_placeholder(name),
            TestOutcome::Skipped => false,
        };
        if !counts || (name.contains(" > ") && !has_details) {
            continue;
        }
        named += u64::from(passed);
        match now.tests.get(name) {
            Some(TestOutcome::Skipped) => difference.skipped.push(name.clone()),
            Some(TestOutcome::Failed) if passed => difference.failed.push(name.clone()),
            Some(TestOutcome::Passed | TestOutcome::Failed) => {}
            None => difference.missing.push(name.clone()),
        }
    }
    // Where names stand for files, or there are none, only the figures tell of single tests.
    if named < before.passed || has_only_files(tool) {
        difference.fewer += ran(tool, before).saturating_sub(ran(tool, now));
    }
}

/// Whether every test that passed is named.
fn names_all(evidence: &ToolEvidence) -> bool {
    let outcomes = evidence.tests.values();
    let passed = outcomes.filter(|outcome| **outcome == TestOutcome::Passed);
    passed.count() as u64 >= evidence.passed
}

/// Whether a tool names files, and single tests only sometimes.
fn has_only_files(tool: TestTool) -> bool {
    matches!(tool, TestTool::Jest | TestTool::Vitest)
}

/// How many tests ran. Where a test that fails may be counted more than once, only those that
/// passed.
fn ran(tool: TestTool, evidence: &ToolEvidence) -> u64 {
    let failed = if has_only_files(tool) {
        evidence.failed
    } else {
        0
    };
    evidence.passed.saturating_add(failed)
}

/// What unittest reports for a file that cannot be imported.
fn is_placeholder(name: &str) -> bool {
    name.contains("unittest.loader._FailedTest")
        || name.contains("unittest.loader.ModuleImportFailure")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(log: &str) -> TestEvidence {
        TestEvidence::of_log(log.as_bytes())
    }

    fn cargo(lines: &str, passed: u64) -> TestEvidence {
        evidence(&format!(
            "{lines}\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured\n"
        ))
    }

    #[test]
    fn all_of_them_again() {
        let base = cargo("test a ... ok\ntest b ... FAILED", 1);
        let now = cargo("test a ... ok\ntest b ... ok\ntest c ... ok", 3);
        assert_eq!(
            compare(&base, &now),
            (Vec::new(), TestDifference::default())
        );
        let none = TestEvidence::default();
        assert_eq!(
            compare(&none, &now),
            (Vec::new(), TestDifference::default())
        );
    }

    #[test]
    fn missing_and_skipped_ones() {
        let base = cargo(
            "test a ... ok\ntest b ... ok\ntest c ... ok\ntest d ... ok",
            4,
        );
        let now = cargo("test a ... ok\ntest b ... ignored\ntest d ... FAILED", 1);
        let (gaps, difference) = compare(&base, &now);
        assert!(gaps.is_empty());
        assert_eq!(difference.missing, ["c"]);
        assert_eq!(difference.skipped, ["b"]);
        assert_eq!(difference.failed, ["d"]);
        assert_eq!(difference.fewer, 0);
    }

    #[test]
    fn no_report_and_no_tests() {
        let base = cargo("test a ... ok", 1);
        let silent = evidence("all fine\n");
        assert_eq!(
            compare(&base, &silent).0,
            [EvidenceGap::NoReport(TestTool::Cargo)]
        );
        let none = cargo("", 0);
        assert_eq!(
            compare(&base, &none).0,
            [EvidenceGap::NoTests(TestTool::Cargo)]
        );
        let red =
            evidence("test a ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n");
        assert_eq!(
            compare(&red, &silent).0,
            [EvidenceGap::NoReport(TestTool::Cargo)]
        );
        // Where there were none before, there need be none.
        assert!(compare(&none, &silent).0.is_empty());
    }

    #[test]
    fn tests_that_failed_and_do_not_run_any_more() {
        let base = cargo("test a ... ok\ntest b ... FAILED\ntest c ... FAILED", 1);
        let now = cargo("test a ... ok\ntest c ... ignored", 1);
        let (gaps, difference) = compare(&base, &now);
        assert!(gaps.is_empty());
        assert_eq!(difference.missing, ["b"]);
        assert_eq!(difference.skipped, ["c"]);
        assert_eq!(difference.fewer, 0);
        let base = evidence(
            "tests.test_sums (unittest.loader._FailedTest.tests.test_sums) ... ERROR\n\nRan 1 test in 0.1s\n\nFAILED (errors=1)\n",
        );
        let now = evidence("test_a (t.A.test_a) ... ok\n\nRan 1 test in 0.1s\n\nOK\n");
        assert_eq!(
            compare(&base, &now),
            (Vec::new(), TestDifference::default())
        );
    }

    #[test]
    fn a_package_of_go_is_no_test() {
        let base =
            evidence("=== RUN   TestAdds\n--- FAIL: TestAdds (0.00s)\nFAIL\nFAIL\tp\t0.003s\n");
        let exited = evidence("ok  \tp\t0.003s\n");
        assert_eq!(
            compare(&base, &exited).0,
            [EvidenceGap::NoTests(TestTool::Go)]
        );
        let quiet = evidence("ok  \tp\t0.003s\nok  \tq\t0.003s\n");
        assert!(compare(&exited, &quiet).0.is_empty());
        // Without `-v` the tests that fail are named, and after the fix nothing is.
        let red = evidence("--- FAIL: TestAdds (0.00s)\nFAIL\nFAIL\tp\t0.003s\n");
        assert_eq!(
            compare(&red, &exited),
            (Vec::new(), TestDifference::default())
        );
    }

    /// jest names single tests where there is one file, and files where there are more.
    #[test]
    fn names_that_a_tool_gives_up() {
        let one = evidence(
            "PASS a.test.js\n  ✓ adds\n  ✕ subs\n\nTests:       1 failed, 1 passed, 2 total\n",
        );
        let two = evidence("PASS a.test.js\nPASS b.test.js\n\nTests:       3 passed, 3 total\n");
        assert_eq!(compare(&one, &two), (Vec::new(), TestDifference::default()));
        let vitest = "   × sums > subs 3ms\n ❯ a.test.ts (1 test | 1 failed) 7ms\n      Tests  1 failed (1)\n";
        let fixed = " ✓ a.test.ts (1 test) 7ms\n      Tests  1 passed (1)\n";
        assert_eq!(
            compare(&evidence(vitest), &evidence(fixed)),
            (Vec::new(), TestDifference::default())
        );
    }

    #[test]
    fn figures_alone() {
        let base = evidence("Ran 5 tests in 0.1s\n\nOK\n");
        let now = evidence("Ran 3 tests in 0.1s\n\nOK\n");
        assert_eq!(compare(&base, &now).1.fewer, 2);
        let jest = |passed: u64| {
            evidence(&format!(
                "PASS a.test.js\nTests:       {passed} passed, {passed} total\n"
            ))
        };
        assert_eq!(compare(&jest(5), &jest(2)).1.fewer, 3);
        let red = evidence("FAIL a.test.js\nTests:       1 failed, 4 passed, 5 total\n");
        assert_eq!(compare(&red, &jest(4)).1.fewer, 1);
    }
}
