//! What a guard that passes shows of tests, and what it costs to land.

use runner_core::config::{Config, OriginalTests};
use runner_core::evidence::TestEvidence;

use super::DoctorCheck;
use super::guard::seconds;

/// Whether the tests that ran can be told from what the guard printed.
pub(super) fn tests_check(tests: &TestEvidence) -> DoctorCheck {
    const NAME: &str = "guard_tests";
    if tests.is_empty() {
        return DoctorCheck::warn(
            NAME,
            "its report of tests is not understood: its exit code alone says that they ran",
            "let it print the report of pytest, unittest, cargo, nextest, go, jest, vitest or `node --test`, if it uses one of them, or write one in \
             JUnit's format and name it in [guard] junit",
        );
    }
    let tools = tests.tools.iter().map(|(tool, found)| {
        let s = if found.passed == 1 { "" } else { "s" };
        format!("{}: {} test{s} passed", tool.as_str(), found.passed)
    });
    DoctorCheck::ok(NAME, tools.collect::<Vec<_>>().join(", "))
}

/// How long a landing takes, by the guard's own time.
pub(super) fn cost_check(config: &Config, millis: u64) -> DoctorCheck {
    const NAME: &str = "guard_cost";
    let guard = &config.guard;
    if guard.product.is_empty()
        && (guard.original_tests == OriginalTests::Off || guard.tests.is_empty())
    {
        let message = format!("land takes about {}: your guard, once", seconds(millis));
        return DoctorCheck::ok(NAME, message);
    }
    let leaf = if guard.original_tests == OriginalTests::Require {
        ", and so does a leaf that changes tests"
    } else {
        ""
    };
    DoctorCheck::ok(
        NAME,
        format!(
            "land takes about {}, or 2 × that where tests or settings were changed: once more with those of your \
             branch{leaf}",
            seconds(millis)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::DoctorVerdict;

    #[test]
    fn what_is_told_of_tests_and_time() {
        let check = tests_check(&TestEvidence::default());
        assert_eq!(check.verdict, DoctorVerdict::Warn);
        let log = b"running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let check = tests_check(&TestEvidence::of_log(log));
        assert_eq!(check.verdict, DoctorVerdict::Ok);
        assert_eq!(check.message, "cargo: 1 test passed");
        let mut config = Config::default();
        let said = |config: &Config| cost_check(config, 2300).message;
        config.guard.product.clear();
        assert_eq!(said(&config), "land takes about 2.3 s: your guard, once");
        config.guard.tests = vec!["tests/**".to_owned()];
        assert!(said(&config).contains("or 2 × that where tests or settings were changed"));
        config.guard.original_tests = OriginalTests::Require;
        assert!(said(&config).ends_with("so does a leaf that changes tests"));
    }
}
