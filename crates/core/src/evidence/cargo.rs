//! `cargo test`.

use super::{TestOutcome, ToolEvidence, figures};

/// Reads lines such as `test tests::adds ... ok`, with the target that `Running` named before them.
pub(super) fn read(text: &str) -> Option<ToolEvidence> {
    let mut evidence = ToolEvidence::default();
    let mut target = "";
    let mut has_result = false;
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(named) = target_of(line) {
            target = named;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            has_result = true;
            let (_, counted) = result.split_once(". ").unwrap_or_default();
            for (number, word) in figures(counted) {
                match word {
                    "passed" => evidence.count(TestOutcome::Passed, number),
                    "failed" => evidence.count(TestOutcome::Failed, number),
                    "ignored" => evidence.count(TestOutcome::Skipped, number),
                    _ => {}
                }
            }
        } else if let Some((name, outcome)) = test_of(line) {
            let name = name.split(" (line ").next().unwrap_or(name);
            let name = if target.is_empty() {
                name.to_owned()
            } else {
                format!("{target} {name}")
            };
            evidence.note(&name, outcome);
        }
    }
    has_result.then_some(evidence)
}

/// `Running unittests src/lib.rs (target/debug/deps/name-0123)`: the path says which target it is,
/// the name of the binary, which package.
fn target_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(package);
    }
    let rest = line.strip_prefix("Running ")?;
    let binary = rest.split_once('(')?.1.strip_suffix(')')?;
    let name = binary.rsplit('/').next()?;
    Some(name.rsplit_once('-').map_or(name, |(name, _)| name))
}

fn test_of(line: &str) -> Option<(&str, TestOutcome)> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let outcome = match end.split([',', ' ']).next()? {
        "ok" => TestOutcome::Passed,
        "FAILED" => TestOutcome::Failed,
        "ignored" => TestOutcome::Skipped,
        _ => return None,
    };
    Some((name, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_target() {
        let text = "   Compiling sums v0.1.0\n    Finished `test` profile\n     \
                    Running unittests src/lib.rs (target/debug/deps/sums-7d0c5b1c0a2f1a11)\n\n\
                    running 3 tests\ntest tests::adds ... ok\ntest tests::slow ... ignored, takes long\n\
                    test tests::broken - should panic ... FAILED\n\nfailures:\n\n\
                    test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n     \
                    Running tests/it.rs (target/debug/deps/it-0d)\n\nrunning 1 test\ntest tests::adds ... ok\n\n\
                    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n   \
                    Doc-tests sums\n\nrunning 2 tests\ntest src/lib.rs - add (line 3) ... ok\n\
                    test src/lib.rs - add (line 9) ... ok\n\n\
                    test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";
        let found = read(text).unwrap();
        assert_eq!(
            found.listed(),
            [
                ("it tests::adds", TestOutcome::Passed),
                ("sums src/lib.rs - add", TestOutcome::Passed),
                ("sums src/lib.rs - add #2", TestOutcome::Passed),
                ("sums tests::adds", TestOutcome::Passed),
                ("sums tests::broken", TestOutcome::Failed),
                ("sums tests::slow", TestOutcome::Skipped),
            ]
        );
        assert_eq!((found.passed, found.failed, found.skipped), (4, 1, 1));
    }

    #[test]
    fn quiet_output_has_figures_only() {
        let text = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; \
                    0 filtered out; finished in 0.00s\n";
        let found = read(text).unwrap();
        assert!(found.tests.is_empty());
        assert_eq!(found.passed, 2);
    }

    #[test]
    fn nothing_ran() {
        let text = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; \
                    0 filtered out; finished in 0.00s\n";
        assert_eq!(read(text), Some(ToolEvidence::default()));
        assert_eq!(read("    Finished `test` profile\n"), None);
    }
}
