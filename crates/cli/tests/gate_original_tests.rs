//! Tests that sessions change: told, or judged by the tests of the run's start.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

const SUMS: &str = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return 0\n";
const TESTS: &str = "import unittest\nimport sums\n\nclass Sums(unittest.TestCase):\n    \
    def test_add(self):\n        self.assertEqual(sums.add(1, 2), 3)\n\n    \
    def test_sub(self):\n        self.assertEqual(sums.sub(3, 2), 1)\n";

/// The work that the goal asks for.
const RIGHT: &str = "sed -i 's/return 0/return a - b/' sums.py";
/// The test instead.
const WEAKENED: &str = "sed -i 's/sums.sub(3, 2), 1/sums.sub(3, 2), 0/' tests/test_sums.py";
/// A helper of the tests that makes all of them green.
const PATCHED: &str = "printf 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\n' > tests/__init__.py";

fn python(mode: &str, released: &[&str]) -> TestRepo {
    let mut repo = bare();
    repo.machine_toolchains();
    repo.write(".gitignore", "__pycache__/\n");
    repo.write("sums.py", SUMS);
    repo.write("tests/__init__.py", "");
    repo.write("tests/test_sums.py", TESTS);
    repo.commit_all("Add the project");
    repo.config(|config| {
        config
            .set("max_attempts_default", 50)
            .set("guard.protected", json!([]))
            .set("guard.tests", json!(["tests/**"]))
            .set("guard.original_tests", mode)
            .set("guard.released_tests", json!(released));
    });
    repo.init_run(GOAL, &["python3", "-m", "unittest", "-v"]);
    repo.runner(&["start"]).success();
    repo
}

fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

#[test]
fn a_weakened_test_decides_nothing_where_the_old_ones_are_required() {
    let repo = python("require", &[]);
    let by_the_old = "with the tests as they were when the run began, the guard gave exit 1:";
    let gone = "tests that ran where the run began were not reported: tests.test_sums.Sums.test_add, tests.test_sums.Sums.test_sub";
    for (script, failed, words) in [
        (WEAKENED.to_owned(), "the guard gave exit 1", by_the_old),
        (
            format!("git checkout -q HEAD -- .; {PATCHED}"),
            "the guard gave exit 1",
            by_the_old,
        ),
        (
            "git checkout -q HEAD -- .; rm -r tests; mkdir tests; touch tests/__init__.py; \
             printf 'import unittest\\nclass A(unittest.TestCase):\\n    def test_it(self):\\n        pass\\n' > tests/test_new.py"
                .to_owned(),
            gone,
            gone,
        ),
    ] {
        let told = step(&repo, &script);
        assert_eq!(
            (&told["guard"], &told["passes"]),
            (&json!("fail"), &json!(false)),
            "{told:#}"
        );
        let iter = told["iter"].as_u64().unwrap();
        let meta = repo.meta(iter);
        assert_eq!(meta["facts"]["guard_exit"], 0, "{meta:#}");
        assert_eq!(meta["facts"]["original_tests_failed"], failed, "{meta:#}");
        let log = std::fs::read_to_string(repo.iteration(iter).join("guard.log")).unwrap();
        assert!(log.contains(words), "{log}");
        let told = repo.runner(&["report", "--json"]).success().json();
        let landing = told["landing"].as_array().unwrap();
        let refused = landing.iter().find(|it| it["accept"] == "runner edit config");
        let why = refused.unwrap()["why"].to_string();
        assert!(why.contains(failed), "{told:#}");
        assert!(why.contains("released_tests"), "{told:#}");
        // What the session did is left to the next one, which hears why it was not enough.
        repo.agent("git checkout -q HEAD~1 -- . 2>/dev/null; out retry 'undone'");
        repo.runner(&["step"]).success();
        let prompt = std::fs::read_to_string(repo.iteration(iter + 1).join("prompt.md")).unwrap();
        assert!(prompt.contains(words), "{prompt}");
    }
    let told = step(
        &repo,
        &format!("rm -rf tests/test_new.py; git checkout -q HEAD~6 -- tests; {RIGHT}"),
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    let told = repo.runner(&["report", "--json"]).success().json();
    assert_eq!(told["landing"], json!([]), "{told:#}");
    repo.runner(&["replay"]).success();
}

/// Where the run changed no product, the second verdict is the one about the base.
#[test]
fn a_run_that_changed_nothing_but_tests_is_told_that_it_will_not_land() {
    let repo = python("report", &[]);
    let told = step(&repo, WEAKENED);
    assert_eq!(told["guard"], "pass", "{told:#}");
    let told = repo.runner(&["report", "--json"]).success().json();
    let expected = json!([{
        "expect": "refused",
        "why": "the run changed no product file, and tests failed where it began",
        "changed": ["tests/test_sums.py"],
        "added": [],
        "accept": "runner land --accept-changed-judge",
    }]);
    assert_eq!(told["landing"], expected, "{told:#}");
    let next: Vec<&str> = told["next"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["command"].as_str())
        .collect();
    assert_eq!(next[1], "runner land --accept-changed-judge");
    repo.runner(&["land"])
        .code(1)
        .says("the result passes only with tests or settings that the run changed");
}

#[test]
fn product_code_cannot_take_old_tests_out() {
    let repo = python("require", &[]);
    let told = step(
        &repo,
        "printf '\nimport unittest\nraise unittest.SkipTest(1)\n' >> sums.py",
    );
    assert_eq!(told["guard"], "fail", "{told:#}");
    let skip = "printf 'import unittest\ndef add(a, b):\n    raise unittest.SkipTest(1)\n\ndef sub(a, b):\n    return a - b\n' > sums.py";
    let told = step(&repo, skip);
    assert_eq!(told["guard"], "fail", "{told:#}");
    let failed = repo.meta(2)["facts"]["original_tests_failed"].clone();
    let words = "tests that ran where the run began were skipped: tests.test_sums.Sums.test_add";
    assert_eq!(failed, words);
}

#[test]
fn more_tests_and_a_helper_are_no_offence() {
    let repo = python("require", &[]);
    let told = step(
        &repo,
        &format!(
            "{RIGHT}; printf 'TWO = 2\\n' > tests/helper.py; \
             printf '\\n    def test_more(self):\\n        self.assertEqual(sums.sub(2, 2), 0)\\n' >> tests/test_sums.py"
        ),
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    let words = "tests are not as they were when the run began: tests/test_sums.py";
    assert!(told["notes"].to_string().contains(words), "{told:#}");
    let landed = repo.runner(&["land"]).success();
    let also = "the guard also passes with the tests and settings of main";
    assert!(
        landed.stderr.contains(words) && landed.stderr.contains(also),
        "{}",
        landed.describe()
    );
}

#[test]
fn what_a_person_releases_may_change_with_the_behaviour() {
    let other = "sed -i 's/return 0/return b - a/' sums.py; \
                 sed -i 's/sums.sub(3, 2), 1/sums.sub(3, 2), -1/; s/test_sub/test_taken_from/' tests/test_sums.py";
    let repo = python("require", &[]);
    assert_eq!(step(&repo, other)["guard"], "fail");
    let repo = python("require", &["tests/test_sums.py"]);
    assert_eq!(step(&repo, other)["guard"], "pass");
    repo.runner(&["land"]).success();
}

#[test]
fn without_the_requirement_it_is_told_everywhere() {
    let repo = python("report", &[]);
    let told = step(&repo, &format!("{WEAKENED}; touch tests/gone.txt"));
    assert_eq!(told["guard"], "pass", "{told:#}");
    let words = "tests are not as they were when the run began: tests/test_sums.py";
    assert!(told["notes"].to_string().contains(words), "{told:#}");
    repo.runner(&["log", "1"]).success().says(words);
    let report = repo.runner(&["report"]).success();
    let says = "tests, not as they were where the run began";
    assert!(report.stdout.contains(says), "{}", report.describe());
    let refused = repo.runner(&["land"]).code(1);
    let says =
        "with the tests as they were when the run began it would not pass: the guard gave exit 1";
    assert!(refused.stderr.contains(says), "{}", refused.describe());
    let says = "passes only with tests or settings that the run changed: with those of main, the guard gave exit 1";
    assert!(refused.stderr.contains(says), "{}", refused.describe());
    let trials = refused.stderr.matches("trying the guard").count();
    assert!(
        trials <= 2,
        "one verdict serves both: {}",
        refused.describe()
    );

    let repo = python("off", &[]);
    let told = step(&repo, WEAKENED);
    assert!(
        !told["notes"].to_string().contains("tests are not"),
        "{told:#}"
    );
    let landed = repo.runner(&["land"]).success();
    assert!(
        !landed.stderr.contains("when the run began"),
        "{}",
        landed.describe()
    );
}

#[test]
fn what_does_not_pass_by_the_old_tests_does_not_land() {
    let mut repo = python("report", &[]);
    assert_eq!(step(&repo, WEAKENED)["guard"], "pass");
    repo.config(|config| {
        config.set("guard.original_tests", "require");
    });
    repo.write_config();
    repo.commit_all("Want both");
    let refused = repo.runner(&["land"]).code(1);
    for words in [
        "does not pass with the tests as they were when the run began: the guard gave exit 1",
        "[guard] released_tests",
    ] {
        assert!(refused.stderr.contains(words), "{}", refused.describe());
    }
}

/// The guard runs them as they are now; whoever reads the pass knows.
#[test]
fn tests_inside_product_files_are_told() {
    const LIB: &str = "pub fn one() -> u32 {\n    1\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    \
        fn is_one() {\n        assert_eq!(super::one(), 1);\n    }\n}\n";
    let mut repo = bare();
    repo.write("src/lib.rs", LIB);
    repo.commit_all("Add the project");
    repo.config(|config| {
        config
            .set("guard.tests", json!(["tests/**"]))
            .set("guard.original_tests", "report");
    });
    repo.start_run(GOAL, &["true"]);
    scenario::plan(&repo, &["a", "b", "c"]);
    for (script, is_told) in [
        // One more is no offence.
        (
            "sed -i 's/    #\\[test\\]/    #[test]\\n    fn more() {}\\n\\n    #[test]/; s/    1$/    2 - 1/' src/lib.rs",
            false,
        ),
        (
            "sed -i 's/::one(), 1/::one(), super::one()/' src/lib.rs",
            true,
        ),
    ] {
        let told = step(&repo, script);
        assert_eq!(told["guard"], "pass", "{told:#}");
        let words = "tests are not as they were when the run began: src/lib.rs (tests inside it)";
        let notes = told["notes"].to_string();
        assert_eq!(notes.contains(words), is_told, "{script}: {told:#}");
    }
    let report = repo.runner(&["report", "--json"]).success().stdout;
    assert!(report.contains("src/lib.rs (tests inside it)"), "{report}");
}
