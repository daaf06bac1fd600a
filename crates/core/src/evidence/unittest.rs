//! Python's unittest.

use super::{TestOutcome, ToolEvidence};

/// Reads the lines of `-v`, and `Ran 3 tests in 0.001s` with the verdict after it.
pub(super) fn read(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    // A description in a line of its own comes between a test and its outcome.
    let mut described: Option<String> = None;
    let mut ran: Option<u64> = None;
    let mut has_verdict = false;
    for line in text.lines().map(str::trim_end) {
        if let Some(number) = ran_line(line) {
            ran = Some(number);
            continue;
        }
        if let Some(all) = ran
            && let Some(others) = verdict_line(line)
        {
            let rest = others.iter().map(|(_, number)| *number);
            let rest = rest.fold(0, u64::saturating_add);
            evidence.count(TestOutcome::Passed, all.saturating_sub(rest));
            for (outcome, number) in others {
                evidence.count(outcome, number);
            }
            ran = None;
            has_verdict = true;
            continue;
        }
        let (before, outcome) = match line.rsplit_once(" ... ") {
            Some((before, word)) => (before, outcome_of(word)),
            None => (line, None),
        };
        let name = test_name(before);
        match (name, outcome) {
            (Some(name), Some(outcome)) => evidence.note_again(&name, outcome),
            (None, Some(outcome)) => {
                if let Some(name) = described.take() {
                    evidence.note_again(&name, outcome);
                }
            }
            (Some(name), None) => described = Some(name),
            (None, None) => {}
        }
    }
    has_verdict.then_some(evidence)
}

fn ran_line(line: &str) -> Option<u64> {
    let (number, rest) = line.strip_prefix("Ran ")?.split_once(' ')?;
    let is_count = rest.starts_with("test in ") || rest.starts_with("tests in ");
    number.parse().ok().filter(|_| is_count)
}

/// `OK`, `OK (skipped=1)`, `FAILED (failures=1, errors=2)`: what did not pass.
fn verdict_line(line: &str) -> Option<Vec<(TestOutcome, u64)>> {
    if line == "NO TESTS RAN" || line.starts_with("NO TESTS RAN (") {
        return Some(Vec::new());
    }
    let rest = line
        .strip_prefix("OK")
        .or_else(|| line.strip_prefix("FAILED"))?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let inner = rest.strip_prefix(" (")?.strip_suffix(')')?;
    let counted = inner.split(", ").filter_map(|part| {
        let (word, number) = part.split_once('=')?;
        let outcome = match word {
            "failures" | "errors" => TestOutcome::Failed,
            _ => TestOutcome::Skipped,
        };
        Some((outcome, number.parse().ok()?))
    });
    Some(counted.collect())
}

fn outcome_of(word: &str) -> Option<TestOutcome> {
    Some(match word {
        "ok" => TestOutcome::Passed,
        "FAIL" | "ERROR" => TestOutcome::Failed,
        "expected failure" | "unexpected success" => TestOutcome::Skipped,
        word if word.starts_with("skipped") => TestOutcome::Skipped,
        _ => return None,
    })
}

/// `test_adds (tests.test_sums.Sums.test_adds)`, without the name at the end in older versions.
fn test_name(text: &str) -> Option<String> {
    let (method, rest) = text.split_once(" (")?;
    let path = rest.strip_suffix(')')?;
    let is_word = |word: &str| {
        let letters = word.chars();
        !word.is_empty() && letters.clone().all(|it| it.is_alphanumeric() || it == '_')
    };
    if !is_word(method) || !path.contains('.') || !path.split('.').all(is_word) {
        return None;
    }
    let class = path
        .strip_suffix(method)
        .and_then(|it| it.strip_suffix('.'));
    Some(format!("{}.{method}", class.unwrap_or(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_figures() {
        let text = "test_adds (tests.test_sums.Sums.test_adds) ... ok\n\
                    test_old (tests.test_sums.Sums) ... skipped 'not here'\n\
                    test_told (tests.test_sums.Sums.test_told)\nWhat it is about. ... ok\n\
                    test_broken (tests.test_sums.Sums.test_broken) ... FAIL\n\n\
                    ======\nFAIL: test_broken (tests.test_sums.Sums.test_broken)\n------\n\
                    Ran 4 tests in 0.001s\n\nFAILED (failures=1, skipped=1)\n";
        let found = read(text).unwrap();
        assert_eq!(
            found.listed(),
            [
                ("tests.test_sums.Sums.test_adds", TestOutcome::Passed),
                ("tests.test_sums.Sums.test_broken", TestOutcome::Failed),
                ("tests.test_sums.Sums.test_old", TestOutcome::Skipped),
                ("tests.test_sums.Sums.test_told", TestOutcome::Passed),
            ]
        );
        assert_eq!((found.passed, found.failed, found.skipped), (2, 1, 1));
    }

    #[test]
    fn figures_alone() {
        for (text, passed) in [
            ("...\nRan 3 tests in 0.001s\n\nOK\n", 3),
            ("Ran 1 test in 0.001s\n\nOK (skipped=1)\n", 0),
            ("Ran 2 tests in 0.0s\n\nOK\nRan 1 test in 0.0s\n\nOK\n", 3),
            ("Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", 0),
            ("Ran 0 tests in 0.000s\n\nOK\n", 0),
        ] {
            assert_eq!(read(text).map(|found| found.passed), Some(passed), "{text}");
        }
        for text in ["OK\n", "Ran 3 miles in 0.1s\nOK\n", "Ran 3 tests in 0.1s\n"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
