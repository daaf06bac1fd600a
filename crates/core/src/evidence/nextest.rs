//! `cargo nextest run`.

use super::{TestOutcome, ToolEvidence, figures};

/// Reads lines such as `PASS [   0.005s] package tests::adds`, and the summary.
pub(super) fn read(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    let mut has_summary = false;
    for line in text.lines().map(str::trim) {
        if let Some(summary) = line.strip_prefix("Summary [")
            && let Some((_, counted)) = summary.split_once("run:")
        {
            has_summary = true;
            for (number, word) in figures(counted) {
                match word {
                    "passed" => evidence.count(TestOutcome::Passed, number),
                    "failed" | "exec" | "timed" => evidence.count(TestOutcome::Failed, number),
                    "skipped" => evidence.count(TestOutcome::Skipped, number),
                    _ => {}
                }
            }
        } else if let Some((name, outcome)) = test_of(line) {
            evidence.note_again(&name, outcome);
        }
    }
    has_summary.then_some(evidence)
}

fn test_of(line: &str) -> Option<(String, TestOutcome)> {
    let (status, rest) = line.split_once(" [")?;
    let mut words = status.split_whitespace();
    let outcome = match words.next()? {
        // A test that passed in the end is printed as flaky then; a failed try is no verdict.
        "PASS" | "LEAK" | "FLAKY" | "SLOW" => TestOutcome::Passed,
        "FAIL" | "SIGABRT" | "SIGSEGV" | "SIGKILL" | "TIMEOUT" | "ABORT" | "XFAIL" => {
            TestOutcome::Failed
        }
        "SKIP" => TestOutcome::Skipped,
        _ => return None,
    };
    if status.starts_with("SLOW") {
        return None;
    }
    let (time, name) = rest.split_once(']')?;
    if !time.trim().ends_with('s') && !time.trim().is_empty() {
        return None;
    }
    // `(3/20)` before the name in newer versions.
    let mut name = name.trim();
    if let Some(after) = name.strip_prefix('(')
        && let Some((count, rest)) = after.split_once(')')
        && count.contains('/')
    {
        name = rest.trim();
    }
    // The package or binary, and the test in it.
    name.contains(' ').then(|| (name.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_figures() {
        let text = "    Starting 4 tests across 2 binaries (1 test skipped)\n        \
                    PASS [   0.005s] sums tests::adds\n        \
                    PASS [   0.005s] (2/4) sums::it adds\n        \
                    FAIL [   0.011s] sums tests::broken\n   \
                    TRY 1 FAIL [   0.004s] sums tests::flaky\n  \
                    FLAKY 2/3 [   0.004s] sums tests::flaky\n        \
                    SLOW [> 60.000s] sums tests::slow\n------------\n     \
                    Summary [   0.020s] 4 tests run: 3 passed (1 flaky), 1 failed, 1 skipped\n        \
                    FAIL [   0.011s] sums tests::broken\nerror: test run failed\n";
        let found = read(text).unwrap();
        let names: Vec<&str> = found.tests.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "sums tests::adds",
                "sums tests::broken",
                "sums tests::flaky",
                "sums::it adds"
            ]
        );
        assert_eq!(found.tests["sums tests::broken"], TestOutcome::Failed);
        assert_eq!(found.tests["sums tests::flaky"], TestOutcome::Passed);
        assert_eq!((found.passed, found.failed, found.skipped), (3, 1, 1));
    }

    #[test]
    fn nothing_ran() {
        let text = "     Summary [   0.000s] 0 tests run: 0 passed, 0 skipped\n";
        assert_eq!(read(text), Some(ToolEvidence::default()));
        assert_eq!(read("PASS [ 0.1s] a b\n"), None);
    }
}
