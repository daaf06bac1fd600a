//! jest and vitest.

use super::{TestOutcome, ToolEvidence, figures};

/// Reads `PASS tests/sums.test.js` with the names below it where they are printed, and the closing
/// figures.
pub(super) fn read_jest(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    let mut has_figures = false;
    let mut file = String::new();
    let mut groups: Vec<(usize, String)> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        if let Some(counted) = line.strip_prefix("Tests:  ") {
            has_figures |= counted.trim_end().ends_with(" total");
            count(&mut evidence, counted);
        } else if let Some((name, outcome)) = jest_file(line) {
            name.clone_into(&mut file);
            groups.clear();
            evidence.note_again(&file, outcome);
        } else if !file.is_empty() {
            let indent = line.len() - line.trim_start().len();
            let line = line.trim_start();
            if line.is_empty() {
                continue;
            }
            groups.retain(|(depth, _)| *depth < indent);
            match marked(line) {
                Some((name, outcome)) => {
                    let above = groups.iter().map(|(_, name)| name.as_str());
                    let names: Vec<&str> = std::iter::once(file.as_str())
                        .chain(above)
                        .chain([name])
                        .collect();
                    evidence.note(&names.join(" > "), outcome);
                }
                None if indent > 0 => groups.push((indent, line.to_owned())),
                // Whatever follows is not a list of tests.
                None => file.clear(),
            }
        }
    }
    has_figures.then_some(evidence)
}

/// Reads ` ✓ tests/sums.test.ts (3 tests) 4ms`, the same with the names of tests, and the closing figures.
pub(super) fn read_vitest(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    let mut has_figures = false;
    for line in text.lines().map(str::trim) {
        if let Some(counted) = line.strip_prefix("Tests  ") {
            has_figures |= counted.trim_end().ends_with(')');
            let counted = counted.rsplit_once('(').map_or(counted, |(it, _)| it);
            count(&mut evidence, counted);
        } else if let Some((name, outcome)) = vitest_line(line) {
            evidence.note_again(&name, outcome);
        } else if line == "No test files found, exiting with code 0" {
            has_figures = true;
        }
    }
    has_figures.then_some(evidence)
}

fn count(evidence: &mut ToolEvidence, counted: &str) {
    for (number, word) in figures(counted) {
        match word {
            "passed" => evidence.count(TestOutcome::Passed, number),
            "failed" => evidence.count(TestOutcome::Failed, number),
            "skipped" | "todo" | "pending" => evidence.count(TestOutcome::Skipped, number),
            _ => {}
        }
    }
}

/// `PASS tests/sums.test.js (5.1 s)`.
fn jest_file(line: &str) -> Option<(&str, TestOutcome)> {
    let (word, rest) = line.trim_start().split_once(' ')?;
    let outcome = match word {
        "PASS" => TestOutcome::Passed,
        "FAIL" => TestOutcome::Failed,
        _ => return None,
    };
    let rest = match rest.rsplit_once(" (") {
        Some((path, time)) if time.ends_with("s)") => path,
        _ => rest,
    };
    // The name of a project may stand before the path.
    let path = rest.trim().rsplit(' ').next()?;
    let is_script = path.rsplit_once('.').is_some_and(|(_, ending)| {
        ["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue"].contains(&ending)
    });
    is_script.then_some((path, outcome))
}

/// `✓ adds (2 ms)`.
fn marked(line: &str) -> Option<(&str, TestOutcome)> {
    let mut letters = line.chars();
    let outcome = match letters.next()? {
        '✓' | '√' => TestOutcome::Passed,
        '○' | '✎' | '↓' | '□' => TestOutcome::Skipped,
        '✕' | '×' | '✗' | '❯' => TestOutcome::Failed,
        _ => return None,
    };
    let name = letters.as_str().strip_prefix(' ')?.trim();
    let name = match name.rsplit_once(" (") {
        Some((name, time)) if time.ends_with("s)") => name,
        _ => name,
    };
    let name = match outcome {
        TestOutcome::Skipped => name.strip_prefix("skipped ").unwrap_or(name),
        _ => name,
    };
    Some((name, outcome))
}

/// `✓ tests/sums.test.ts (3 tests | 1 skipped) 4ms`, or `✓ tests/sums.test.ts > sums > adds 2ms`.
fn vitest_line(line: &str) -> Option<(String, TestOutcome)> {
    let (rest, outcome) = marked(line)?;
    let mut rest = rest;
    // The name of a project may stand before the path.
    if let Some(after) = rest.strip_prefix('|')
        && let Some((_, after)) = after.split_once("| ")
    {
        rest = after;
    }
    if let Some((path, figures)) = rest.split_once(" (")
        && figures.contains(" test")
    {
        return Some((path.trim().to_owned(), outcome));
    }
    if !rest.contains(" > ") {
        return None;
    }
    let name = match rest.rsplit_once(' ') {
        Some((name, time)) if time.ends_with("ms") || time.ends_with('s') => {
            let digits = time.trim_end_matches(['m', 's']);
            if digits.parse::<f64>().is_ok() {
                name.trim_end()
            } else {
                rest
            }
        }
        _ => rest,
    };
    Some((name.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jest() {
        let text = "> test\n> jest\n\nPASS tests/sums.test.js\nFAIL unit tests/other.test.ts (5.1 s)\n  \
                    ● other › broken\n\n    expect(received).toBe(expected)\n\n\
                    Test Suites: 1 failed, 1 passed, 2 total\n\
                    Tests:       1 failed, 1 skipped, 3 passed, 5 total\nTime: 1 s\n";
        let found = read_jest(text).unwrap();
        assert_eq!(
            found.marked(),
            ["!tests/other.test.ts", "tests/sums.test.js"]
        );
        assert_eq!((found.passed, found.failed, found.skipped), (3, 1, 1));
    }

    #[test]
    fn jest_with_names() {
        let text = "PASS tests/sums.test.js\n  sums\n    ✓ adds (2 ms)\n    small ones\n      ✓ adds\n    \
                    ○ skipped later\n  ✓ outside\n\nTests:       1 skipped, 3 passed, 4 total\n";
        let found = read_jest(text).unwrap();
        assert_eq!(
            found.marked(),
            [
                "tests/sums.test.js",
                "tests/sums.test.js > outside",
                "tests/sums.test.js > sums > adds",
                "~tests/sums.test.js > sums > later",
                "tests/sums.test.js > sums > small ones > adds",
            ]
        );
    }

    #[test]
    fn vitest() {
        let text = " RUN  v2.1.8 project\n\n ✓ tests/sums.test.ts (3 tests) 4ms\n \
                    ❯ tests/other.test.ts (2 tests | 1 failed) 7ms\n   × other > broken 3ms\n \
                    ✓ |unit| tests/third.test.ts  (1 test)\n ↓ tests/later.test.ts (1 test | 1 skipped)\n\n \
                    Test Files  1 failed | 2 passed | 1 skipped (4)\n      \
                    Tests  1 failed | 5 passed | 1 skipped (7)\n   Start at  10:00:00\n";
        let found = read_vitest(text).unwrap();
        assert_eq!(
            found.marked(),
            [
                "!other > broken",
                "~tests/later.test.ts",
                "!tests/other.test.ts",
                "tests/sums.test.ts",
                "tests/third.test.ts"
            ]
        );
        assert_eq!((found.passed, found.failed, found.skipped), (5, 1, 1));
        let text = " ✓ tests/sums.test.ts > sums > adds 2ms\n ✓ tests/sums.test.ts > sums > twice\n\n      \
                    Tests  2 passed (2)\n";
        let found = read_vitest(text).unwrap();
        assert_eq!(
            found.marked(),
            [
                "tests/sums.test.ts > sums > adds",
                "tests/sums.test.ts > sums > twice"
            ]
        );
    }

    #[test]
    fn each_is_told_from_the_other() {
        let jest = "PASS a.test.js\nTests:       1 passed, 1 total\n";
        let vitest = " ✓ a.test.ts (1 test) 1ms\n      Tests  1 passed (1)\n";
        assert!(read_jest(jest).is_some() && read_vitest(jest).is_none());
        assert!(read_vitest(vitest).is_some() && read_jest(vitest).is_none());
    }
}
