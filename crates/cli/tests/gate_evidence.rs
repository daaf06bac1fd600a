//! A green exit code without the tests that ran where the run began.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

const SUMS: &str = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return 0\n";
const TESTS: &str = "import unittest\nimport sums\n\nclass Sums(unittest.TestCase):\n    \
    def test_add(self):\n        self.assertEqual(sums.add(1, 2), 3)\n\n    \
    def test_sub(self):\n        self.assertEqual(sums.sub(3, 2), 1)\n";
const RIGHT: &str = "printf 'def add(a, b):\\n    return a + b\\n\\ndef sub(a, b):\\n    return a - b\\n' > sums.py";

/// A run whose base has a test that passes and one that fails.
fn python(verbose: bool) -> TestRepo {
    let mut repo = bare();
    repo.machine_toolchains();
    write_python(&repo);
    repo.commit_all("Add the project");
    let mut guard = vec!["python3", "-m", "unittest"];
    guard.extend(verbose.then_some("-v"));
    begin(&mut repo, &guard);
    repo
}

fn write_python(repo: &TestRepo) {
    repo.write(".gitignore", "__pycache__/\n");
    repo.write("sums.py", SUMS);
    repo.write("tests/__init__.py", "");
    repo.write("tests/test_sums.py", TESTS);
}

fn begin(repo: &mut TestRepo, guard: &[&str]) {
    repo.config(|config| {
        config
            .set("max_attempts_default", 50)
            .set("guard.protected", json!([]));
    });
    repo.init_run(GOAL, guard);
    repo.runner(&["start"]).success();
}

fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

#[track_caller]
fn refused(repo: &TestRepo, script: &str, words: &str) {
    let report = step(repo, script);
    assert_eq!(report["guard"], "fail", "{report}");
    assert_eq!(report["passes"], false);
    let iter = report["iter"].as_u64().unwrap();
    let log = std::fs::read_to_string(repo.iteration(iter).join("guard.log")).unwrap();
    assert!(log.contains(words), "{log}");
    let meta = repo.meta(iter);
    assert_eq!(meta["facts"]["guard_exit"], 0, "{meta}");
    assert!(
        meta["facts"]["evidence_gaps"][0]
            .as_str()
            .unwrap()
            .contains(words),
        "{meta}"
    );
}

#[test]
fn code_that_ends_the_test_run() {
    for verbose in [false, true] {
        let repo = python(verbose);
        refused(
            &repo,
            "printf 'import os\\nos._exit(0)\\n' > sums.py",
            "the guard printed no report of unittest",
        );
        refused(
            &repo,
            "git checkout -q HEAD~1 -- sums.py 2>/dev/null || true; printf 'X = 1\\n' > tests/test_sums.py",
            "unittest reported no test that passed",
        );
        // The same with the tests as they were and the work done.
        let text = TESTS.replace('\n', "\\n");
        let report = step(
            &repo,
            &format!("printf '{text}' > tests/test_sums.py; {RIGHT}"),
        );
        assert_eq!(report["passes"], true, "{report}");
        repo.runner(&["land"]).success();
    }
}

#[test]
fn tests_that_are_gone_or_skipped_are_told() {
    let repo = python(true);
    let gone = TESTS.replace("test_add", "test_more").replace('\n', "\\n");
    let report = step(
        &repo,
        &format!("{RIGHT}; printf '{gone}' > tests/test_sums.py"),
    );
    assert_eq!(report["passes"], true, "{report}");
    let words = "a test that ran where the run began is not reported any more: \
                 tests.test_sums.Sums.test_add";
    let notes = report["notes"].to_string();
    assert!(notes.contains(words), "{notes}");
    let log = repo.runner(&["log", "1"]).success();
    assert!(log.stdout.contains(words), "{}", log.describe());
    let page = repo.runner(&["report", "--json"]).success().json();
    assert!(
        page["touched"].to_string().contains("tests_missing"),
        "{page:#}"
    );
    repo.runner(&["land"])
        .success()
        .says("are not reported any more");
}

#[test]
fn cargo_without_its_tests() {
    let mut repo = bare();
    repo.machine_toolchains();
    repo.write(".gitignore", "target/\n");
    repo.write(
        "Cargo.toml",
        "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    repo.write(
        "src/lib.rs",
        "pub fn add(a: u32, b: u32) -> u32 {\n    a + b\n}\n",
    );
    repo.write(
        "tests/sums.rs",
        "#[test]\nfn adds() {\n    assert_eq!(sums::add(1, 2), 3);\n}\n\n#[test]\nfn zero() {\n    \
         assert_eq!(sums::add(0, 0), 0);\n}\n",
    );
    repo.commit_all("Add the project");
    begin(&mut repo, &["cargo", "test", "--offline"]);
    refused(
        &repo,
        "sed -i 's/#.test./#[test]\\n#[ignore]/' tests/sums.rs",
        "cargo reported no test that passed",
    );
    refused(
        &repo,
        "git checkout -q -- . ; printf '#![cfg(any())]\\n' > tests/sums.rs",
        "cargo reported no test that passed",
    );
    let report = step(
        &repo,
        "printf '#[test]\\nfn adds() {\\n    assert_eq!(sums::add(1, 2), 3);\\n}\\n\\n#[test]\\n#[ignore]\\n\
         fn zero() {}\\n' > tests/sums.rs",
    );
    assert_eq!(report["passes"], true, "{report}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("is skipped now: sums zero"), "{notes}");
}

/// What no tool reports is told once, at the end.
#[test]
fn a_guard_that_says_nothing_about_tests() {
    let mut repo = bare();
    repo.write("product", "wrong\n");
    repo.commit_all("Add the project");
    begin(&mut repo, &["grep", "-q", "right", "product"]);
    let report = step(&repo, "echo right > product");
    assert_eq!(report["passes"], true, "{report}");
    repo.runner(&["land"])
        .success()
        .says("the guard's report of tests is not understood");
}

/// Build outputs that are kept may tell a tool that there is nothing to do: judged once more, cold.
#[test]
fn kept_build_outputs_make_no_honest_change_red() {
    let mut repo = bare();
    repo.machine_toolchains();
    write_python(&repo);
    repo.write(
        "Makefile",
        "test: build/stamp\nbuild/stamp: sums.py\n\tpython3 -m unittest && mkdir -p build && touch build/stamp\n",
    );
    repo.write("sums.py", SUMS.replace("return 0", "return a - b"));
    repo.write(".gitignore", "__pycache__/\nbuild/\n");
    repo.commit_all("Build with make");
    repo.config(|config| {
        config.set("guard.keep", json!(["build"]));
    });
    begin(&mut repo, &["make", "test"]);
    repo.agent(
        "for leaf in a b c; do add_child root $leaf 1 $leaf; done; out decomposed 'in three'",
    );
    repo.runner(&["step"]).success();
    for iter in 0..2 {
        let report = step(&repo, &format!("echo {iter} > notes.txt"));
        assert_eq!(report["passes"], true, "{report}");
    }
}

/// A commit that was rewritten to name another guard than its own config proves nothing.
#[test]
fn a_proof_that_contradicts_its_config() {
    let mut repo = bare();
    repo.write("product", "right\n");
    repo.commit_all("Add the project");
    begin(&mut repo, &["grep", "-q", "right", "product"]);
    assert_eq!(step(&repo, "echo x > notes.txt")["passes"], true);
    repo.runner(&["verify", "root"]).success();
    let message = repo.git(&["log", "-1", "--format=%B"]);
    let forged = message.replace("[\"grep\",\"-q\",\"right\",\"product\"]", "[\"true\"]");
    assert_ne!(message, forged);
    repo.git(&["commit", "--quiet", "--amend", "-m", &forged]);
    let run = repo.runner(&["verify", "root"]).code(1);
    assert!(
        run.stderr.contains("the config of the same commit"),
        "{}",
        run.describe()
    );
}

#[test]
fn a_guard_that_a_person_changed_is_measured_anew() {
    let mut repo = python(true);
    repo.config(|config| {
        config.set(
            "guard.command",
            json!(["python3", "-W", "ignore", "-m", "unittest", "-v"]),
        );
    });
    repo.write_config();
    repo.commit_all("Another guard");
    refused(
        &repo,
        "printf 'import os\\nos._exit(0)\\n' > sums.py",
        "the guard printed no report of unittest",
    );
    let report = step(&repo, RIGHT);
    assert_eq!(report["passes"], true, "{report}");
}

/// Tells nothing but in a report on disk.
const CHECK: &str = "import os, sys\nimport sums\nos.makedirs('reports', exist_ok=True)\nfailed = []\ncases = ''\n\
    for name, right in [('add', sums.add(1, 2) == 3), ('sub', sums.sub(3, 2) == 1)]:\n    \
    cases += f'<testcase classname=\"sums\" name=\"{name}\">' + ('' if right else '<failure/>') + '</testcase>'\n    \
    failed += [] if right else [name]\nopen('reports/junit.xml', 'w').write(f'<testsuite>{cases}</testsuite>')\nsys.exit(bool(failed))\n";

#[test]
fn reports_on_disk() {
    let mut repo = bare();
    repo.machine_toolchains();
    repo.write(".gitignore", "__pycache__/\n");
    repo.write("sums.py", SUMS);
    repo.write("check.py", CHECK);
    repo.commit_all("Add the project");
    repo.config(|config| {
        config
            .set("guard.junit", json!(["reports/**/*.xml"]))
            // What an earlier verdict left there does not count either.
            .set("guard.keep", json!(["reports"]));
    });
    begin(&mut repo, &["python3", "check.py"]);
    let words = "the guard printed no report of junit";
    let exit = "printf 'import os\\nos._exit(0)\\n' > sums.py";
    refused(&repo, exit, words);
    let report = "<testsuite><testcase classname=\"sums\" name=\"add\"/><testcase classname=\"sums\" name=\"sub\"/></testsuite>";
    let committed = format!("{exit}; mkdir -p reports; echo '{report}' > reports/junit.xml");
    refused(&repo, &committed, words);
    let linked = format!(
        "rm -rf reports; echo '{report}' > fake.xml; printf 'import os\\nos.makedirs(\"reports\")\\n\
         os.symlink(\"../fake.xml\", \"reports/junit.xml\")\\nos._exit(0)\\n' > sums.py"
    );
    refused(&repo, &linked, words);
    let to_a_folder = format!(
        "mkdir more; echo '{report}' > more/junit.xml; printf 'import os\\nos.symlink(\"more\", \"reports\")\\nos._exit(0)\\n' > sums.py"
    );
    refused(&repo, &to_a_folder, words);
    let empty = "printf 'import os\\nos.makedirs(\"reports\", exist_ok=True)\\nopen(\"reports/a.xml\", \"w\").write(\"<testsuite/>\")\\nos._exit(0)\\n' > sums.py";
    refused(&repo, empty, "junit reported no test that passed");

    repo.agent("for leaf in a b; do add_child root $leaf 1 $leaf; done; out decomposed 'in two'");
    repo.runner(&["step"]).success();
    let one = "s/('add', sums.add(1, 2) == 3), //";
    let report = step(&repo, &format!("{RIGHT}; sed -i \"{one}\" check.py"));
    assert_eq!(report["passes"], true, "{report:#}");
    let told = "a test that ran where the run began is not reported any more: sums add";
    assert!(report["notes"].to_string().contains(told), "{report:#}");
    let base = repo.git(&["rev-parse", "main"]);
    let report = step(
        &repo,
        &format!("git checkout -q {} -- check.py", base.trim()),
    );
    assert_eq!(report["passes"], true, "{report:#}");
    assert!(
        !report["notes"].to_string().contains("the run began"),
        "{report:#}"
    );
    repo.runner(&["land"]).success();
}
