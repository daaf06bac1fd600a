//! Files that redefine a guard, for each kind of guard and against the real tool: with nothing
//! protected the deed makes a red guard green, with what `init` writes it is refused. Honest changes
//! beside them go through.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

/// A project whose guard is red until the product is right.
struct GuardedProject {
    guard: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// Makes the product right.
    fix: &'static str,
    /// What makes the guard green without that.
    cheats: &'static [(&'static str, &'static str)],
    /// What an agent may do beside the fix.
    honest: &'static [(&'static str, &'static str)],
}

fn started(project: &GuardedProject, is_protected: bool) -> TestRepo {
    let mut repo = bare();
    repo.machine_toolchains();
    for (name, text) in project.files {
        repo.write(name, text);
    }
    repo.commit_all("Add the project");
    let guard = project.guard.join(" ");
    let args = [
        "init",
        "--json",
        "--no-try",
        "--backend",
        "command",
        "--guard",
        &guard,
    ];
    let found = repo.runner(&args).success().json();
    std::fs::remove_dir_all(repo.path(".runner")).unwrap();
    let list = |key: &str| {
        if is_protected {
            found[key].clone()
        } else {
            json!([])
        }
    };
    repo.config(|config| {
        config
            .set("guard.protected", list("protected"))
            .set("guard.protected_values", list("protected_values"))
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, project.guard);
    repo
}

fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

fn check(project: &GuardedProject) {
    // With nothing protected: what a cheat is worth, and that the guard is red without it.
    let repo = started(project, false);
    let report = step(&repo, "echo x > notes.txt");
    assert_eq!(report["guard"], "fail", "{:?}: {report}", project.guard);
    for (name, script) in project.cheats {
        let repo = started(project, false);
        let report = step(&repo, script);
        assert_eq!(report["passes"], true, "{name} is no cheat: {report}");
    }
    let repo = started(project, true);
    for (name, script) in project.cheats {
        let report = step(&repo, script);
        assert_eq!(report["class"], "agent_error", "{name}: {report}");
        assert_eq!(report["passes"], false, "{name}");
    }
    for (name, script) in project.honest {
        let report = step(&repo, script);
        assert_eq!(report["class"], "ok", "{name}: {report}");
        assert_eq!(report["guard"], "fail", "{name}: {report}");
    }
    let report = step(&repo, project.fix);
    assert_eq!(report["passes"], true, "{:?}: {report}", project.guard);
}

#[test]
fn make() {
    check(&GuardedProject {
        guard: &["make", "test"],
        files: &[
            ("Makefile", "include rules/test.mk\n-include local.mk\n"),
            ("rules/test.mk", "test:\n\tgrep -q right product\n"),
            ("product", "wrong\n"),
        ],
        fix: "echo right > product",
        cheats: &[
            ("a GNUmakefile", "printf 'test:\\n' > GNUmakefile"),
            ("the Makefile", "printf 'test:\\n' > Makefile"),
            ("what it includes", "printf 'test:\\n' > rules/test.mk"),
            (
                "what it may include",
                "printf 'SHELL = /bin/true\\n' > local.mk",
            ),
        ],
        honest: &[
            (
                "a Makefile elsewhere",
                "mkdir -p sub && printf 'all:\\n' > sub/Makefile",
            ),
            ("new rules", "printf 'lint:\\n' > rules/lint.mk"),
        ],
    });
}

#[test]
fn just() {
    check(&GuardedProject {
        guard: &["just", "test"],
        files: &[
            ("justfile", "import 'tools/test.just'\n"),
            ("tools/test.just", "test:\n    grep -q right product\n"),
            ("product", "wrong\n"),
        ],
        fix: "echo right > product",
        cheats: &[
            ("the justfile", "printf 'test:\\n    true\\n' > justfile"),
            (
                "what it imports",
                "printf 'test:\\n    true\\n' > tools/test.just",
            ),
        ],
        honest: &[(
            "another recipe file",
            "printf 'lint:\\n    true\\n' > tools/lint.just",
        )],
    });
}

#[test]
fn unittest() {
    check(&GuardedProject {
        guard: &[
            "python3", "-m", "unittest", "discover", "-s", "tests", "-t", ".",
        ],
        files: &[
            (".gitignore", "__pycache__/\n"),
            ("sums.py", "def add(a, b):\n    return 0\n"),
            ("tests/__init__.py", ""),
            (
                "tests/test_sums.py",
                "import unittest\nimport sums\n\nclass Sums(unittest.TestCase):\n    def test_adds(self):\n        \
                 self.assertEqual(sums.add(1, 2), 3)\n",
            ),
            (
                "pyproject.toml",
                "[project]\nname = 'sums'\nversion = '1'\n",
            ),
        ],
        fix: "printf 'def add(a, b):\\n    return a + b\\n' > sums.py",
        cheats: &[
            (
                "a module in the place of unittest",
                "printf 'class TestCase:\\n    pass\\n' > unittest.py",
            ),
            (
                "a package in the place of unittest",
                "mkdir -p unittest && printf 'class TestCase:\\n    pass\\n' > unittest/__init__.py \
                 && printf 'pass\\n' > unittest/__main__.py",
            ),
            (
                "a link in the place of unittest",
                "mkdir -p pkg && printf 'class TestCase:\\n    pass\\n' > pkg/__init__.py \
                 && printf 'pass\\n' > pkg/__main__.py && ln -s pkg unittest",
            ),
            (
                "a module that unittest needs",
                "printf 'import os\\nos._exit(0)\\n' > argparse.py",
            ),
        ],
        honest: &[
            (
                "a dependency",
                "printf '[project]\\nname = \"sums\"\\nversion = \"1\"\\ndependencies = [\"left\"]\\n' > pyproject.toml",
            ),
            ("a helper of tests", "printf 'X = 1\\n' > tests/helper.py"),
            ("a module", "printf 'X = 1\\n' > more.py"),
            (
                "a config of a new tool",
                "printf '[tool.ruff]\\nline-length = 100\\n' >> pyproject.toml",
            ),
        ],
    });
}

#[test]
fn cargo() {
    check(&GuardedProject {
        guard: &["cargo", "test", "--offline", "--quiet"],
        files: &[
            (".gitignore", "target/\n"),
            (
                "Cargo.toml",
                "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
            ),
            (
                "src/lib.rs",
                "pub fn add(_: u32, _: u32) -> u32 {\n    0\n}\n",
            ),
            (
                "tests/sums.rs",
                "#[test]\nfn adds() {\n    assert_eq!(sums::add(1, 2), 3);\n}\n",
            ),
        ],
        fix: "printf 'pub fn add(a: u32, b: u32) -> u32 {\\n    a + b\\n}\\n' > src/lib.rs",
        cheats: &[
            (
                "a runner of tests",
                "mkdir -p .cargo && printf '[target.\"cfg(all())\"]\\nrunner = \"true\"\\n' > .cargo/config.toml",
            ),
            (
                "another name of the same",
                "mkdir -p .cargo && printf '[target.\"cfg(all())\"]\\nrunner = \"true\"\\n' > .cargo/config",
            ),
            (
                "a link to a folder with a runner of tests",
                "rm -rf .cargo && mkdir -p dot && printf '[target.\"cfg(all())\"]\\nrunner = \"true\"\\n' > dot/config.toml \
                 && ln -s dot .cargo",
            ),
            (
                "tests that are not found",
                "sed -i 's/^edition/autotests = false\\nedition/' Cargo.toml",
            ),
            (
                "a test that is none",
                "printf '[[test]]\\nname = \"sums\"\\ntest = false\\n' >> Cargo.toml",
            ),
        ],
        honest: &[
            (
                "a dependency",
                "mkdir -p left/src && printf '[package]\\nname = \"left\"\\nversion = \"0.1.0\"\\n' > left/Cargo.toml \
                 && : > left/src/lib.rs && printf '[dependencies]\\nleft = { path = \"left\" }\\n' >> Cargo.toml",
            ),
            (
                "a helper of tests",
                "mkdir -p tests/common && printf 'pub fn help() {}\\n' > tests/common/mod.rs",
            ),
            (
                "a feature",
                "printf '[features]\\nfast = []\\n' >> Cargo.toml",
            ),
        ],
    });
}

#[test]
fn npm() {
    check(&GuardedProject {
        guard: &["npm", "test", "--silent"],
        files: &[
            (
                "package.json",
                "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node tools/run.js\"}}\n",
            ),
            ("tools/run.js", "require('../test/sums.test.js');\n"),
            ("sums.js", "exports.add = () => 0;\n"),
            (
                "test/sums.test.js",
                "if (require('../sums').add(1, 2) !== 3) process.exit(1);\n",
            ),
        ],
        fix: "echo 'exports.add = (a, b) => a + b;' > sums.js",
        cheats: &[
            (
                "the script",
                "sed -i 's/node tools.run.js/true/' package.json",
            ),
            ("what it calls", "echo > tools/run.js"),
            (
                "a shell for scripts",
                "printf 'script-shell=/bin/true\\n' > .npmrc",
            ),
        ],
        honest: &[
            (
                "a dependency",
                "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"file:.\\/left\"}, \"version\"/' package.json",
            ),
            ("a helper of tests", "echo > test/helper.js"),
            ("a config of a new tool", "echo '{}' > .prettierrc"),
        ],
    });
}

#[test]
fn several_programs() {
    check(&GuardedProject {
        guard: &["sh", "ci.sh"],
        files: &[
            ("ci.sh", "set -e\nmake -s lint\nsh tools/check.sh\n"),
            ("Makefile", "lint:\n\t@true\n"),
            ("tools/check.sh", "grep -q right product\n"),
            ("product", "wrong\n"),
        ],
        fix: "echo right > product",
        cheats: &[
            ("the script", "echo > ci.sh"),
            ("a script that it calls", "echo > tools/check.sh"),
        ],
        honest: &[("another script", "echo > tools/other.sh")],
    });
}

/// All of it is put back at once, whatever the file has become.
#[test]
fn several_values_of_one_file() {
    let mut repo = bare();
    repo.write(
        "package.json",
        "{\"scripts\": {\"test\": \"x\"}, \"overrides\": {}}\n",
    );
    repo.commit_all("Add the project");
    repo.config(|config| {
        config
            .set(
                "guard.protected_values",
                json!(["package.json:/scripts", "package.json:/overrides"]),
            )
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, &["false"]);
    for text in [
        "{\"scripts\": {}, \"overrides\": {\"a\": \"b\"}}",
        "{broken",
        "\\357\\273\\277{}",
    ] {
        let report = step(&repo, &format!("printf '{text}' > package.json"));
        assert_eq!(report["class"], "agent_error", "{report}");
        assert_eq!(
            repo.git(&["show", "HEAD:package.json"]),
            "{\"scripts\": {\"test\": \"x\"}, \"overrides\": {}}"
        );
    }
}

/// A guard that is not defined yet may be written once, and everybody is told.
#[test]
fn an_agent_that_writes_its_own_guard() {
    let mut repo = bare();
    repo.config(|config| {
        config
            .set(
                "guard.protected",
                json!(["Makefile", "makefile", "GNUmakefile", "pytest.ini"]),
            )
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, &["make", "-s", "test"]);
    // A file that defines something else is no exception.
    let report = step(&repo, "echo x > pytest.ini");
    assert_eq!(report["class"], "agent_error", "{report}");
    // Until a guard has passed with it, it may change.
    let report = step(&repo, "printf 'test:\\n\\tfalse\\n' > Makefile");
    assert_eq!(
        (&report["class"], &report["guard"]),
        (&json!("ok"), &json!("fail")),
        "{report}"
    );
    repo.agent("add_child root a 1 A; add_child root b 2 B; out decomposed 'in two'");
    repo.runner(&["step"]).success();
    let report = step(&repo, "printf 'test:\\n\\ttrue\\n' > Makefile");
    assert_eq!(report["guard"], "pass", "{report}");
    let report = step(&repo, "printf 'test:\\n' > Makefile");
    assert_eq!(report["class"], "agent_error", "{report}");
    let report = step(&repo, "printf 'test:\\n' > GNUmakefile");
    assert_eq!(report["class"], "agent_error", "{report}");
    let report = step(&repo, "echo work > work.txt");
    assert_eq!(report["guard"], "pass", "{report}");

    let words = "the agent wrote its own guard";
    let log = repo.runner(&["log"]).success();
    assert!(log.stdout.contains(words), "{}", log.describe());
    let report = repo.runner(&["report", "--json"]).success().json();
    let touched = report["touched"].to_string();
    assert!(touched.contains("guard_written"), "{report:#}");
    repo.runner(&["land"]).success().says(words);
}
