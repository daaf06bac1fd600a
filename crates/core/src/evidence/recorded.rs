//! What the tools print, recorded from real runs: quiet and verbose, with colours and without.

use super::TestEvidence;

/// A log, and what it says: the tool, how many passed, failed and were skipped, and the names of
/// tests where it has any.
macro_rules! check {
    ($tool:literal, $counts:expr, $names:expr, [$($file:literal),+]) => {
        $({
            let log = include_str!(concat!("recorded/", $file));
            let found = TestEvidence::of_log(log.as_bytes());
            let tools: Vec<&str> = found.tools.keys().map(|tool| tool.as_str()).collect();
            assert_eq!(tools, [$tool], "{}", $file);
            let tool = found.tools.values().next().unwrap();
            assert_eq!((tool.passed, tool.failed, tool.skipped), $counts, "{}", $file);
            let names: [&str; _] = $names;
            assert_eq!(tool.marked(), names, "{}", $file);
        })+
    };
}

#[test]
fn cargo() {
    check!(
        "cargo",
        (3, 1, 1),
        [
            "!it broken",
            "it works",
            "sums src/lib.rs - add",
            "sums tests::adds",
            "~sums tests::later"
        ],
        ["cargo.txt", "cargo_colours.txt"]
    );
    check!("cargo", (3, 1, 1), [], ["cargo_quiet.txt"]);
}

#[test]
fn go() {
    check!(
        "go",
        (2, 2, 1),
        [
            "!example.test/project/sums",
            "example.test/project/sums TestAdds",
            "example.test/project/sums TestAdds/small",
            "!example.test/project/sums TestBroken",
            "~example.test/project/sums TestLater"
        ],
        ["go.txt", "go_json.txt"]
    );
    check!(
        "go",
        (0, 1, 0),
        ["!example.test/project/sums"],
        ["go_quiet.txt"]
    );
}

#[test]
fn jest() {
    check!(
        "jest",
        (2, 1, 2),
        ["src/other.test.js", "!src/sums.test.js"],
        ["jest.txt", "jest_colours.txt", "jest_json.txt"]
    );
    check!("jest", (2, 1, 2), [], ["jest_summary.txt"]);
    check!(
        "jest",
        (2, 1, 2),
        [
            "src/other.test.js",
            "src/other.test.js > other",
            "!src/sums.test.js",
            "src/sums.test.js > sums > adds",
            "!src/sums.test.js > sums > broken",
            "~src/sums.test.js > sums > later",
            "~src/sums.test.js > sums > todo not yet"
        ],
        ["jest_verbose.txt", "jest_verbose_colours.txt"]
    );
}

#[test]
fn nextest() {
    check!(
        "nextest",
        (2, 1, 1),
        ["sums tests::adds", "!sums::it broken", "sums::it works"],
        ["nextest.txt", "nextest_colours.txt"]
    );
    check!("nextest", (2, 1, 1), [], ["nextest_quiet.txt"]);
}

#[test]
fn node() {
    check!(
        "node",
        (5, 1, 2),
        [
            "adds",
            "other",
            "outer > inner",
            "!subs",
            "sums > adds",
            "~sums > later",
            "~sums > not yet",
            "sums > small # ones > are - added"
        ],
        ["node_spec.txt", "node_spec_colours.txt"]
    );
    check!(
        "node",
        (5, 1, 2),
        [
            "adds",
            "other",
            "outer > inner",
            "!subs",
            "sums > adds",
            "~sums > later",
            "~sums > not yet",
            "sums > small \\# ones > are - added"
        ],
        ["node_tap.txt"]
    );
}

#[test]
fn pytest() {
    check!(
        "pytest",
        (4, 1, 2),
        [
            "tests/test_sums.py::Case::test_method",
            "tests/test_sums.py::test_adds",
            "!tests/test_sums.py::test_broken",
            "tests/test_sums.py::test_each[1]",
            "tests/test_sums.py::test_each[2]",
            "~tests/test_sums.py::test_known"
        ],
        ["pytest.txt", "pytest_colours.txt", "pytest_quiet.txt"]
    );
    check!(
        "pytest",
        (4, 1, 2),
        ["!tests/test_sums.py::test_broken"],
        ["pytest_figures.txt"]
    );
    check!(
        "pytest",
        (4, 1, 1),
        [
            "tests/test_sums.py::Case::test_method",
            "tests/test_sums.py::test_adds",
            "!tests/test_sums.py::test_broken",
            "tests/test_sums.py::test_each[1]",
            "tests/test_sums.py::test_each[2]",
            "~tests/test_sums.py::test_known"
        ],
        ["pytest_quieter.txt"]
    );
    check!(
        "pytest",
        (4, 1, 2),
        [
            "tests/test_sums.py::Case::test_method",
            "tests/test_sums.py::test_adds",
            "!tests/test_sums.py::test_broken",
            "tests/test_sums.py::test_each[1]",
            "tests/test_sums.py::test_each[2]",
            "~tests/test_sums.py::test_known",
            "~tests/test_sums.py::test_later"
        ],
        ["pytest_verbose.txt", "pytest_verbose_colours.txt"]
    );
}

#[test]
fn unittest() {
    check!(
        "unittest",
        (2, 1, 2),
        [],
        ["unittest.txt", "unittest_quiet.txt"]
    );
    check!(
        "unittest",
        (2, 1, 2),
        [
            "tests.test_sums.Sums.test_adds",
            "!tests.test_sums.Sums.test_broken",
            "tests.test_sums.Sums.test_each",
            "~tests.test_sums.Sums.test_known",
            "~tests.test_sums.Sums.test_later"
        ],
        ["unittest_verbose.txt"]
    );
}

#[test]
fn vitest() {
    check!(
        "vitest",
        (2, 1, 2),
        ["src/other.test.js", "!src/sums.test.js"],
        ["vitest.txt", "vitest_colours.txt", "vitest_silent.txt"]
    );
    check!("vitest", (2, 1, 2), [], ["vitest_dot.txt"]);
    check!(
        "vitest",
        (2, 1, 2),
        [
            "src/other.test.js > other",
            "src/sums.test.js > sums > adds",
            "!src/sums.test.js > sums > broken",
            "~src/sums.test.js > sums > later",
            "~src/sums.test.js > sums > not yet"
        ],
        ["vitest_verbose.txt", "vitest_verbose_colours.txt"]
    );
}
