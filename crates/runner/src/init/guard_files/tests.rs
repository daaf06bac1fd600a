//! Which files and values are found for the guards of made-up projects.

use runner_core::paths::PYTHON_MODULES;

use super::*;

fn check(line: &[&str], files: &[(&str, &str)], expected: &[&str]) {
    check_with_setup(line, &[], files, expected);
}

fn check_with_setup(line: &[&str], setup: &[String], files: &[(&str, &str)], expected: &[&str]) {
    let tracked: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
    let command: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
    let read = |path: &str| {
        let found = files.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned())
    };
    let project = GuardedFiles {
        read: &read,
        is_there: &|path| read(path).is_some() || path == "folder",
        has_modules: false,
        tracked: &tracked,
    };
    let found = guard_files(&command, setup, &project);
    let all: Vec<&String> = found.protected.iter().chain(&found.values).collect();
    for name in expected {
        match name.strip_prefix('!') {
            Some(name) => assert!(
                !all.iter().any(|it| *it == name),
                "{line:?}: {name} in {all:?}"
            ),
            None => assert!(
                all.iter().any(|it| it == name),
                "{line:?}: {name} not in {all:?}"
            ),
        }
    }
}

#[test]
fn each_kind_of_guard() {
    check(
        &["make", "test"],
        &[],
        &["GNUmakefile", "makefile", "Makefile"],
    );
    check(&["just", "ci"], &[], &["justfile", "Justfile", ".justfile"]);
    check(
        &["cargo", "test"],
        &[],
        &[
            ".cargo/config.toml",
            "rust-toolchain",
            ".config/nextest.toml",
            "**/Cargo.toml:/lib/test",
        ],
    );
    check(
        &["python3", "-m", "pytest"],
        &[],
        &[
            "**/pytest.ini",
            "conftest.py",
            "sitecustomize.py",
            PYTHON_MODULES,
            "pyproject.toml:/tool/pytest",
        ],
    );
    check(
        &["python3", "-m", "unittest"],
        &[],
        &["sitecustomize.py", PYTHON_MODULES],
    );
    check(
        &["go", "test", "./..."],
        &[],
        &[
            "go.work",
            "vendor/**",
            "*/**/go.mod",
            "**/go.mod:/replace",
            "!...",
        ],
    );
    check(&["sh", "ci.sh"], &[], &["ci.sh"]);
    check(&["./check", "--all"], &[], &["check"]);
}

#[test]
fn a_package_by_its_scripts() {
    let package = r#"{"scripts": {"test": "npm run unit && tsc -p .", "unit": "jest tests/"}}"#;
    check(
        &["npm", "test"],
        &[("package.json", package)],
        &[
            "**/package.json:/scripts",
            ".npmrc",
            "**/jest.config.*",
            "tsconfig.json",
            "!**/vitest.config.*",
            "!package.json",
        ],
    );
    let package = r#"{"scripts": {"test": "node scripts/run-tests.mjs && vitest run"}}"#;
    check(
        &["pnpm", "test"],
        &[("package.json", package), ("scripts/run-tests.mjs", "")],
        &["scripts/run-tests.mjs", "**/vitest.config.*"],
    );
}

#[test]
fn several_programs_get_the_union() {
    check(
        &["sh", "-c", "cargo test && npm test && sh tools/check.sh"],
        &[("tools/check.sh", "#!/bin/sh\npython3 -m pytest -q\n")],
        &[
            "**/Cargo.toml:/profile",
            "**/package.json:/scripts",
            "tools/check.sh",
            "**/pytest.ini",
        ],
    );
    check(
        &["make", "ci"],
        &[
            (
                "Makefile",
                "include rules/common.mk\n-include local.mk $(X)\nci:\n\tgo test ./...\n",
            ),
            ("rules/common.mk", "lint:\n\t./scripts/lint.sh\n"),
        ],
        &["rules/common.mk", "local.mk", "go.work", "scripts/lint.sh"],
    );
    check(
        &["just", "ci"],
        &[
            ("justfile", "import 'tools/ci.just'\nmod web\n"),
            ("tools/ci.just", "ci:\n cargo nextest run\n"),
        ],
        &[
            "tools/ci.just",
            "web.just",
            "web/mod.just",
            ".config/nextest.toml",
        ],
    );
}

#[test]
fn what_settings_and_options_name() {
    check(
        &["npm", "test"],
        &[
            (
                "package.json",
                r#"{"scripts": {"test": "jest"}, "jest": {"globalSetup": "./tools/up.js"}}"#,
            ),
            (
                "jest.config.js",
                "module.exports = {\n  setupFiles: ['<rootDir>/jest.setup.js'],\n  roots: ['./src/main.js'],\n};\n",
            ),
            ("jest.setup.js", ""),
            ("src/main.js", ""),
        ],
        &["jest.setup.js", "tools/up.js", "!src/main.js"],
    );
    check(
        &[
            "sh",
            "-c",
            "python3 -m pytest -q -k fast checks/unit && echo done",
        ],
        &[
            ("pytest.ini", "[pytest]\naddopts = -p tools.plugin\n"),
            ("tools/plugin.py", ""),
        ],
        &[
            "tools/plugin.py",
            "checks/tox.ini",
            "checks/unit/setup.cfg",
            "checks/unit/pyproject.toml:/tool/pytest",
            "!fast/tox.ini",
            "!done/tox.ini",
        ],
    );
    check(
        &["make", "test"],
        &[(
            "Makefile",
            "test: unit folder\nunit:\n\t./run\n.PHONY: unit\nfolder:\n\tmkdir folder\n",
        )],
        &["test", "test/**", "!unit", "!folder/**"],
    );
}

#[test]
fn tests_stay_writable() {
    check(
        &[
            "sh",
            "-c",
            "python3 tests/run.py && node test/a.js && python3 test_all.py && node test.js",
        ],
        &[
            ("tests/run.py", ""),
            ("test/a.js", ""),
            ("test_all.py", ""),
            ("test.js", ""),
        ],
        &["!tests/run.py", "!test/a.js", "!test_all.py", "!test.js"],
    );
    check(
        &["make", "ci"],
        &[("Makefile", "ci:\n\tsh tests.sh\n"), ("tests.sh", "")],
        &["tests.sh"],
    );
}

#[test]
fn what_scripts_take_in() {
    check(
        &["sh", "scripts/ci.sh"],
        &[
            (
                "scripts/ci.sh",
                ". \"$(dirname \"$0\")/lib.sh\"\nsource \"$DIR/more.sh\"\ncd scripts; ./lint\n",
            ),
            ("scripts/lib.sh", ""),
            ("scripts/more.sh", ""),
            ("scripts/lint", ""),
        ],
        &["scripts/lib.sh", "scripts/more.sh", "scripts/lint"],
    );
    check(
        &["python3", "tools/check.py"],
        &[
            (
                "tools/check.py",
                "import os, checklib\nfrom rules import core\n",
            ),
            ("tools/checklib.py", "import deeper\n"),
            ("tools/deeper.py", ""),
            ("rules/core.py", ""),
        ],
        &[
            "tools/checklib.py",
            "tools/deeper.py",
            "rules/core.py",
            "!os.py",
        ],
    );
    let package = r#"{"scripts": {"test": "node scripts/ci.js"}}"#;
    check(
        &["npm", "test"],
        &[
            ("package.json", package),
            (
                "scripts/ci.js",
                "const lib = require(\"./lib\");\nimport x from './m/y.js'\n",
            ),
            ("scripts/lib.js", ""),
            ("scripts/m/y.js", ""),
        ],
        &["scripts/lib.js", "scripts/m/y.js"],
    );
}

#[test]
fn scripts_that_call_each_other() {
    check(
        &["sh", "a.sh"],
        &[("a.sh", "sh b.sh\n"), ("b.sh", "sh a.sh\nsh c.sh\n")],
        &["a.sh", "b.sh", "!c.sh"],
    );
}

#[test]
fn programs_and_settings_without_an_ending() {
    check(
        &["bin/ci", "answer.txt"],
        &[
            ("bin/ci", "lib/steps\n"),
            ("lib/steps", ""),
            ("answer.txt", ""),
        ],
        &["bin/ci", "lib/steps", "!answer.txt"],
    );
    check(&["bash", "bin/ci"], &[("bin/ci", "")], &["bin/ci"]);
    check(&["bin/test"], &[("bin/test", "")], &["bin/test"]);
    check(
        &["awk", "-f", "check.awk", "data.csv"],
        &[("check.awk", ""), ("data.csv", "")],
        &["check.awk", "!data.csv"],
    );
    check(
        &["make", "ci"],
        &[
            (
                "Makefile",
                "LINT := bin/lint\nci:\n\t@$(LINT) src\n\tcd tools && bash all\n\tgrep -q x src/data\n\tcp bin/app out\n",
            ),
            ("bin/lint", "#!/bin/sh\n"),
            ("bin/app", "#!/bin/sh\n"),
            ("tools/all", ""),
            ("src/data", ""),
        ],
        &["bin/lint", "tools/all", "!src/data", "!bin/app"],
    );
    // What a test tool looks at is no judge.
    for line in [
        "python3 -m pytest src/app.py",
        "pytest src/app.py",
        "node --test src/app.py",
        "ruff check src/app.py",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        check(&words, &[("src/app.py", "")], &["!src/app.py"]);
    }
    check(
        &["python3", "app.py", "--check"],
        &[("app.py", "")],
        &["app.py"],
    );
}

#[test]
fn modules_that_python_runs() {
    check(
        &["python3", "-m", "checks.run"],
        &[
            ("checks/run.py", "from checks import rules\n"),
            ("checks/rules.py", ""),
        ],
        &[
            "checks/run.py",
            "checks/__init__.py",
            "checks/rules.py",
            PYTHON_MODULES,
        ],
    );
    check(
        &["sh", "ci.sh"],
        &[
            ("ci.sh", "PYTHONPATH=tools python3 -m gate\n"),
            ("tools/gate/__main__.py", ""),
            ("tools/gate/__init__.py", ""),
        ],
        &[
            "tools/gate/__main__.py",
            "tools/gate/__init__.py",
            "tools/@python-modules",
            "tools/sitecustomize.py",
        ],
    );
}

#[test]
fn search_paths_and_loops() {
    check(
        &["make", "ci"],
        &[
            (
                "Makefile",
                "export PATH := $(CURDIR)/tools:$(PATH)\nci:\n\tmycheck\n",
            ),
            ("tools/mycheck", ""),
        ],
        &["tools/**", "tools/mycheck"],
    );
    check(
        &["sh", "ci.sh"],
        &[("ci.sh", "PATH=$PWD/folder:$PATH run\n")],
        // It was installed there.
        &["!folder/**"],
    );
    let loops =
        "for f in checks/*.sh; do sh $f || exit 1; done\nfor f in src/*.c; do cc -c $f; done\n";
    check(
        &["sh", "ci.sh"],
        &[
            ("ci.sh", loops),
            ("checks/a.sh", "sh steps\n"),
            ("steps", ""),
            ("src/a.c", ""),
        ],
        &["checks/*.sh", "steps", "!src/*.c"],
    );
    check(
        &["sh", "ci.sh"],
        &[
            ("ci.sh", "for t in tests/*.sh; do sh $t; done\n"),
            ("tests/a.sh", ""),
        ],
        &["!tests/*.sh"],
    );
}

#[test]
fn makes_own_rules_and_names_by_variables() {
    check(
        &["make", "ci"],
        &[(
            "Makefile",
            "-include local.mk $(OBJS:.o=.d)\nci:\n\t$(MAKE) -C sub check\n",
        )],
        &[
            "local.mk",
            "!local.mk,v",
            "!Makefile,v",
            "**/*.d",
            "!**/*.o",
            "sub/GNUmakefile",
        ],
    );
}

#[test]
fn scripts_of_setup() {
    let setup = ["sh", "bin/setup"].map(str::to_owned);
    check_with_setup(
        &["make", "ci"],
        &setup,
        &[("bin/setup", "npm ci\nsh bin/more\n"), ("bin/more", "")],
        &["bin/setup", "bin/more", "!.npmrc"],
    );
}

#[test]
fn what_a_project_is_about_is_no_judge() {
    let check_py = ("check.py", "import app, rules, sys\nfrom pkg import core\n");
    let app = [
        ("app.py", "import deep\n"),
        ("deep.py", ""),
        ("pkg/core.py", ""),
    ];
    check(
        &["python3", "check.py"],
        &[
            check_py,
            ("rules.py", ""),
            ("data", ""),
            app[0],
            app[1],
            app[2],
        ],
        &[
            "check.py",
            "rules.py",
            "!app.py",
            "!deep.py",
            "!pkg/core.py",
            PYTHON_MODULES,
        ],
    );
    // Without it there would be nothing to work on.
    check(
        &["python3", "check.py"],
        &[
            ("check.py", "import sums\n"),
            ("sums.py", ""),
            ("README.md", ""),
        ],
        &["check.py", "!sums.py"],
    );
    check(
        &["python3", "check.py"],
        &[
            ("check.py", "import rules\n"),
            ("rules.py", ""),
            ("answer.txt", ""),
        ],
        &["rules.py"],
    );
    // What tests and manifests name.
    check(
        &["python3", "check.py"],
        &[
            ("check.py", "import sums, words\n"),
            ("sums.py", ""),
            ("words.py", ""),
            ("other.py", ""),
            ("tests/test_sums.py", "from sums import add\n"),
            ("pyproject.toml", "py-modules = [\"words\"]\n"),
        ],
        &["!sums.py", "!words.py"],
    );
    let package = r#"{"main": "./sums.js", "scripts": {"test": "node check.js"}}"#;
    check(
        &["npm", "test"],
        &[
            ("package.json", package),
            ("check.js", "require('./sums'); require('./rules');\n"),
            ("sums.js", ""),
            ("rules.js", ""),
            ("data.txt", ""),
        ],
        &["check.js", "rules.js", "!sums.js"],
    );
}
