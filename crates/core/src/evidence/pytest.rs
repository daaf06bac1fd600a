//! pytest.

use super::{TestOutcome, ToolEvidence, figures};

/// Reads the short summary of `-rA`, the lines of `-v`, and the closing line.
pub(super) fn read(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    let mut has_end = false;
    let mut has_summary = false;
    for line in text.lines().map(str::trim_end) {
        has_summary |= line.trim_matches('=') == " short test summary info ";
        if let Some(counted) = closing_line(line) {
            has_end = true;
            for (number, word) in figures(counted) {
                match word {
                    "passed" => evidence.count(TestOutcome::Passed, number),
                    "failed" | "error" | "errors" => evidence.count(TestOutcome::Failed, number),
                    "skipped" | "xfailed" | "xpassed" => {
                        evidence.count(TestOutcome::Skipped, number);
                    }
                    _ => {}
                }
            }
        } else if let Some((name, outcome)) = summary_line(line).or_else(|| verbose_line(line)) {
            evidence.note_again(name, outcome);
        }
    }
    if has_summary && !has_end {
        // With `-qq` there is no closing line.
        evidence.count_tests();
    }
    (has_end || has_summary).then_some(evidence)
}

/// `==== 3 passed, 1 skipped in 0.02s ====`, without the frame when it is quiet.
fn closing_line(line: &str) -> Option<&str> {
    let inner = line.trim_matches('=').trim();
    let (counted, time) = inner.rsplit_once(" in ")?;
    let seconds = time.split_whitespace().next()?.strip_suffix('s')?;
    seconds.parse::<f64>().ok()?;
    let is_count = counted.starts_with(|letter: char| letter.is_ascii_digit());
    let known = [
        "passed",
        "failed",
        "skipped",
        "error",
        "xfailed",
        "xpassed",
        "deselected",
        "warning",
    ];
    let counts = is_count && known.iter().any(|word| counted.contains(word));
    (counts || counted == "no tests ran").then_some(counted)
}

fn outcome_of(word: &str) -> Option<TestOutcome> {
    Some(match word {
        "PASSED" => TestOutcome::Passed,
        "FAILED" | "ERROR" => TestOutcome::Failed,
        "SKIPPED" | "XFAIL" | "XPASS" => TestOutcome::Skipped,
        _ => return None,
    })
}

/// `PASSED tests/test_sums.py::test_adds`.
fn summary_line(line: &str) -> Option<(&str, TestOutcome)> {
    let (word, rest) = line.split_once(' ')?;
    let outcome = outcome_of(word)?;
    // A skipped one is named by its place alone.
    let name = match outcome {
        TestOutcome::Passed => rest,
        _ => rest.split(" - ").next()?,
    };
    name.contains("::").then_some((name.trim(), outcome))
}

/// `tests/test_sums.py::test_adds PASSED [ 50%]`.
fn verbose_line(line: &str) -> Option<(&str, TestOutcome)> {
    let line = match line.rsplit_once(" [") {
        Some((before, percent)) if percent.ends_with("%]") => before.trim_end(),
        _ => line,
    };
    // Reasons stand in brackets behind the word.
    let line = match line.split_once(" SKIPPED (") {
        Some((name, _)) => return name.contains("::").then_some((name, TestOutcome::Skipped)),
        None => line,
    };
    let (name, word) = line.rsplit_once(' ')?;
    let name = name.trim_end();
    let is_name = name.contains("::") && !name.starts_with(|letter: char| letter.is_whitespace());
    is_name.then_some((name, outcome_of(word)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_summary() {
        let text = "============ test session starts ============\ncollected 4 items\n\n\
                    tests/test_sums.py .Fsx    [100%]\n\n\
                    ======== short test summary info ========\n\
                    PASSED tests/test_sums.py::test_adds[1 - 2]\n\
                    SKIPPED [1] tests/test_sums.py:7: not here\n\
                    XFAIL tests/test_sums.py::test_known - later\n\
                    FAILED tests/test_sums.py::test_broken - assert 1 == 2\n\
                    ====== 1 failed, 1 passed, 1 skipped, 1 xfailed in 0.02s ======\n";
        let found = read(text).unwrap();
        assert_eq!(
            found.listed(),
            [
                ("tests/test_sums.py::test_adds[1 - 2]", TestOutcome::Passed),
                ("tests/test_sums.py::test_broken", TestOutcome::Failed),
                ("tests/test_sums.py::test_known", TestOutcome::Skipped),
            ]
        );
        assert_eq!((found.passed, found.failed, found.skipped), (1, 1, 2));
    }

    #[test]
    fn verbose_and_quiet() {
        let text = "tests/test_sums.py::test_adds PASSED                [ 50%]\n\
                    tests/test_sums.py::Case::test_b SKIPPED (not here)     [100%]\n\n\
                    ===== 1 passed, 1 skipped in 0.01s =====\n";
        let found = read(text).unwrap();
        assert_eq!(
            found.listed(),
            [
                ("tests/test_sums.py::Case::test_b", TestOutcome::Skipped),
                ("tests/test_sums.py::test_adds", TestOutcome::Passed),
            ]
        );
        let found = read("..                    [100%]\n2 passed in 0.01s\n").unwrap();
        assert_eq!((found.passed, found.tests.len()), (2, 0));
        let found = read("2 passed, 1 warning in 75.31s (0:01:15)\n").unwrap();
        assert_eq!(found.passed, 2);
    }

    #[test]
    fn nothing_ran() {
        for text in [
            "===== no tests ran in 0.00s =====\n",
            "no tests ran in 0.01s\n",
            "== 5 deselected in 0.01s ==\n",
        ] {
            assert_eq!(read(text), Some(ToolEvidence::default()), "{text}");
        }
        assert_eq!(read("PASSED tests/a.py::test_x\n"), None);
        assert_eq!(read("built 3 files in 0.3s\n"), None);
    }
}
