//! `go test`, in words and as JSON.

use serde::Deserialize;

use super::{TestOutcome, ToolEvidence};

/// Reads `ok  package  0.01s` and, where the output is verbose, the tests before it.
pub(super) fn read(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    let mut tests: Vec<(String, TestOutcome)> = Vec::new();
    let mut has_package = false;
    // Else only tests that failed are named.
    let is_verbose = text.lines().any(|line| line.starts_with("=== RUN "));
    for line in text.lines().map(str::trim_end) {
        if let Some(event) = json_event(line) {
            has_package |= event.test.is_none();
            if let Some((name, outcome)) = event.named() {
                evidence.note_again(&name, outcome);
            }
        } else if let Some((name, outcome)) = test_line(line).filter(|_| is_verbose) {
            tests.push((name.to_owned(), outcome));
        } else if let Some((package, outcome)) = package_line(line) {
            has_package = true;
            for (name, outcome) in tests.drain(..) {
                evidence.note_again(&format!("{package} {name}"), outcome);
            }
            if let Some(outcome) = outcome {
                evidence.note_again(package, outcome);
            }
        }
    }
    if !has_package {
        return None;
    }
    evidence.count_tests();
    Some(evidence)
}

/// `--- PASS: TestAdds (0.00s)`, indented for tests inside of tests.
fn test_line(line: &str) -> Option<(&str, TestOutcome)> {
    let rest = line.trim_start().strip_prefix("--- ")?;
    let (word, rest) = rest.split_once(": ")?;
    let outcome = match word {
        "PASS" => TestOutcome::Passed,
        "SKIP" => TestOutcome::Skipped,
        "FAIL" => TestOutcome::Failed,
        _ => return None,
    };
    let (name, time) = rest.rsplit_once(" (")?;
    time.ends_with("s)").then_some((name, outcome))
}

/// A package, and how it ended; nothing where it has no tests.
fn package_line(line: &str) -> Option<(&str, Option<TestOutcome>)> {
    let mut fields = line.split('\t').map(str::trim);
    let word = fields.next()?;
    let package = fields.next().filter(|it| !it.is_empty())?;
    if package.contains(char::is_whitespace) {
        return None;
    }
    let rest: Vec<&str> = fields.collect();
    let is_empty = rest
        .iter()
        .any(|it| it.contains("[no tests to run]") || it.contains("[no test files]"));
    let outcome = match word {
        "ok" if !rest.is_empty() => Some(TestOutcome::Passed),
        "FAIL" => Some(TestOutcome::Failed),
        "?" if is_empty => None,
        // With coverage a package without tests has neither word.
        "" if rest.iter().any(|it| it.starts_with("coverage: ")) => None,
        _ => return None,
    };
    Some((package, outcome.filter(|_| !is_empty)))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoEvent {
    action: String,
    package: Option<String>,
    test: Option<String>,
}

impl GoEvent {
    fn named(&self) -> Option<(String, TestOutcome)> {
        let outcome = match self.action.as_str() {
            "pass" => TestOutcome::Passed,
            "skip" => TestOutcome::Skipped,
            "fail" => TestOutcome::Failed,
            _ => return None,
        };
        let package = self.package.as_ref()?;
        let name = match &self.test {
            Some(test) => format!("{package} {test}"),
            // A package that is skipped has no tests.
            None if outcome == TestOutcome::Skipped => return None,
            None => package.clone(),
        };
        Some((name, outcome))
    }
}

fn json_event(line: &str) -> Option<GoEvent> {
    if !line.starts_with('{') || !line.contains("\"Action\"") {
        return None;
    }
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found = read(text).unwrap();
        assert_eq!(found.marked(), expected, "{text}");
    }

    #[test]
    fn packages_and_tests() {
        check(
            "ok  \texample.test/sums\t0.003s\n?   \texample.test/cmd\t[no test files]\n\
             ok  \texample.test/none\t0.002s [no tests to run]\n\
             ok  \texample.test/old\t(cached)\tcoverage: 80.0% of statements\n",
            &["example.test/old", "example.test/sums"],
        );
        check(
            "=== RUN   TestAdds\n=== RUN   TestAdds/small\n--- PASS: TestAdds (0.00s)\n    \
             --- PASS: TestAdds/small (0.00s)\n--- SKIP: TestSlow (0.00s)\n--- FAIL: TestBroken (0.00s)\n\
             FAIL\nFAIL\texample.test/sums\t0.003s\nFAIL\n",
            &[
                "!example.test/sums",
                "example.test/sums TestAdds",
                "example.test/sums TestAdds/small",
                "!example.test/sums TestBroken",
                "~example.test/sums TestSlow",
            ],
        );
        check("?   \texample.test/cmd\t[no test files]\n", &[]);
    }

    #[test]
    fn events() {
        check(
            "{\"Action\":\"run\",\"Package\":\"p\",\"Test\":\"TestAdds\"}\n\
             {\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"TestAdds\",\"Elapsed\":0}\n\
             {\"Action\":\"pass\",\"Package\":\"p\",\"Elapsed\":0.1}\n\
             {\"Action\":\"skip\",\"Package\":\"q\",\"Elapsed\":0}\n",
            &["p", "p TestAdds"],
        );
    }

    #[test]
    fn something_else() {
        for text in [
            "ok\n",
            "FAIL\n",
            "ok all 3 checks\n",
            "--- PASS: TestAdds (0.00s)\n",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
