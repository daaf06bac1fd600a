//! Every file that redefines a guard, whether it exists or not: an agent that may write them needs
//! no tests.
//!
//! The lists are never complete. What they miss, the verdict at `land` is for, which lays only the
//! product files over the tests and settings of the beginning.

use std::collections::BTreeSet;
use std::path::Path;

use super::detect::MAKEFILES;
use super::guard_recipes::{imported, included, targets_that_files_stand_for};
use super::guard_settings::{code_settings, pytest_plugins};
use super::guard_tools::{GuardTool, JUSTFILES, TOOLS};
use super::script_imports::{join, taken_in};

/// How deep scripts that call scripts are looked into.
const DEPTH: usize = 4;

/// Options of pytest that take the next word.
const PYTEST_OPTIONS: [&str; 8] = ["-k", "-m", "-p", "-n", "-c", "-o", "-W", "-r"];

/// What must stay as it is for a guard to mean what it meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GuardFiles {
    /// Globs for `[guard] protected`.
    pub(super) protected: Vec<String>,
    /// Entries for `[guard] protected_values`.
    pub(super) values: Vec<String>,
}

/// What can be asked about the project that a guard judges.
pub(super) struct GuardedFiles<'r> {
    /// The text of a file.
    pub(super) read: &'r dyn Fn(&str) -> Option<String>,
    /// Whether there is a file or folder.
    pub(super) is_there: &'r dyn Fn(&str) -> bool,
    /// Whether folders have a go.mod of their own.
    pub(super) has_modules: bool,
}

/// All files that redefine a guard.
pub(super) fn guard_files(command: &[String], project: &GuardedFiles<'_>) -> GuardFiles {
    let mut scan = GuardScan {
        project,
        files: GuardFiles::default(),
        seen: BTreeSet::new(),
    };
    scan.command(command);
    scan.files
}

struct GuardScan<'r> {
    project: &'r GuardedFiles<'r>,
    files: GuardFiles,
    seen: BTreeSet<String>,
}

impl GuardScan<'_> {
    fn read(&self, path: &str) -> Option<String> {
        (self.project.read)(path)
    }

    fn command(&mut self, command: &[String]) {
        match command {
            [shell, option, script] if is_shell(shell) && option.starts_with('-') => {
                self.text(script, DEPTH);
            }
            words => self.words(words.iter().map(String::as_str), DEPTH),
        }
    }

    /// The words of a script, of a recipe or of a command line.
    fn text(&mut self, text: &str, depth: usize) {
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or(line);
            for command in line.split([';', '|', '&']) {
                let words = command.split(|letter: char| {
                    letter.is_whitespace() || "\"'`()<>{}$,=@".contains(letter)
                });
                self.words(words.filter(|word| !word.is_empty()), depth);
            }
        }
    }

    /// One command line.
    fn words<'w>(&mut self, words: impl Iterator<Item = &'w str>, depth: usize) {
        let words: Vec<&str> = words.collect();
        for (at, word) in words.iter().enumerate() {
            let name = word.rsplit('/').next().unwrap_or(word);
            for tool in TOOLS.iter().filter(|tool| tool.words.contains(&name)) {
                self.tool(tool, name, &words[at + 1..], depth);
            }
            self.script(word, depth);
        }
    }

    /// A tool with the words behind it.
    fn tool(&mut self, tool: &GuardTool, name: &str, rest: &[&str], depth: usize) {
        for glob in tool.protected {
            add(&mut self.files.protected, glob);
        }
        for value in tool.values {
            add(&mut self.files.values, value);
        }
        match name {
            "make" | "gmake" => {
                self.definitions(&MAKEFILES, depth, included);
                self.make_targets(rest);
            }
            "just" => self.definitions(JUSTFILES, depth, imported),
            "npm" | "pnpm" | "yarn" | "bun" => self.package(depth),
            "jest" => self.settings("jest.config", Some("jest"), depth),
            "vitest" => {
                self.settings("vitest.config", None, depth);
                self.settings("vite.config", None, depth);
            }
            "pytest" | "py.test" => self.pytest(rest, depth),
            // A folder with one of its own is left out of `./...`.
            "go" if !self.project.has_modules => add(&mut self.files.protected, "*/**/go.mod"),
            _ => {}
        }
    }

    /// Files that would stand for the targets that make is asked for.
    fn make_targets(&mut self, rest: &[&str]) {
        let wanted: Vec<&str> = rest
            .iter()
            .copied()
            .filter(|word| !word.starts_with('-') && !word.contains('='))
            .collect();
        let found = MAKEFILES.iter().find_map(|name| self.read(name));
        let mut text = found.unwrap_or_default();
        for path in included(&text) {
            text.push('\n');
            text.push_str(&self.read(&path).unwrap_or_default());
        }
        for name in targets_that_files_stand_for(&text, &wanted) {
            if !(self.project.is_there)(&name) {
                add(&mut self.files.protected, &format!("{name}/**"));
                add(&mut self.files.protected, &name);
            }
        }
    }

    /// Code that the settings of jest or vitest name, in a file of their own or in package.json.
    fn settings(&mut self, name: &str, key: Option<&str>, depth: usize) {
        if depth == 0 || !self.seen.insert(name.to_owned()) {
            return;
        }
        let endings = ["js", "cjs", "mjs", "ts", "cts", "mts", "json"];
        let files = endings.map(|ending| self.read(&format!("{name}.{ending}")));
        let mut texts: Vec<String> = files.into_iter().flatten().collect();
        if let Some(key) = key {
            let package = self.read("package.json").unwrap_or_default();
            let package: serde_json::Value = serde_json::from_str(&package).unwrap_or_default();
            texts.push(package[key].to_string());
        }
        for value in texts.iter().flat_map(|text| code_settings(text)) {
            self.text(&value, depth - 1);
        }
    }

    /// Plugins of the project, and settings beside tests that the command names.
    fn pytest(&mut self, rest: &[&str], depth: usize) {
        let settings = [
            "pytest.ini",
            "pyproject.toml",
            "setup.cfg",
            "tox.ini",
            "conftest.py",
        ];
        let files = settings.map(|name| self.read(name));
        let mut texts: Vec<String> = files.into_iter().flatten().collect();
        texts.push(rest.join(" "));
        for path in texts.iter().flat_map(|text| pytest_plugins(text)) {
            if self.read(&path).is_some() {
                add(&mut self.files.protected, &path);
                self.file(&path, depth, None);
            }
        }
        let before = [""].iter().chain(rest);
        let named = rest.iter().zip(before).filter(|(word, before)| {
            let is_value = before.starts_with("--") || PYTEST_OPTIONS.contains(before);
            is_inside(word) && !is_value
        });
        for path in named.map(|(word, _)| word.trim_end_matches('/')) {
            for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
                let folder = &path[..at];
                add(&mut self.files.protected, &format!("{folder}/tox.ini"));
                add(&mut self.files.protected, &format!("{folder}/setup.cfg"));
                let value = format!("{folder}/pyproject.toml:/tool/pytest");
                add(&mut self.files.values, &value);
            }
        }
    }

    /// Files of recipes, with those that they take in.
    fn definitions(&mut self, names: &[&str], depth: usize, others: fn(&str) -> Vec<String>) {
        for name in names {
            self.file(name, depth, Some(others));
        }
    }

    /// The scripts that a package has.
    fn package(&mut self, depth: usize) {
        if !self.seen.insert("package.json".to_owned()) || depth == 0 {
            return;
        }
        let text = self.read("package.json").unwrap_or_default();
        let package: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let scripts = package["scripts"].as_object().into_iter().flatten();
        let texts: Vec<String> = scripts
            .filter_map(|(_, script)| script.as_str().map(str::to_owned))
            .collect();
        for script in texts {
            self.text(&script, depth - 1);
        }
    }

    /// A word that names a script of the project.
    fn script(&mut self, word: &str, depth: usize) {
        let path = word.strip_prefix("./").unwrap_or(word);
        let is_called = word.starts_with("./");
        let has_ending = path.rsplit_once('.').is_some_and(|(_, ending)| {
            [
                "sh", "bash", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "mk", "just",
            ]
            .contains(&ending)
        });
        if !is_inside(path) || !(is_called || has_ending) {
            return;
        }
        // Tests that a command names are for agents to write; a shell script is how it calls them.
        let is_shell = Path::new(path)
            .extension()
            .is_some_and(|ending| ending == "sh" || ending == "bash");
        let is_test = !is_shell
            && path.split('/').any(|part| {
                let stem = part.split(['.', '_', '-']).next().unwrap_or(part);
                matches!(stem, "test" | "tests" | "spec" | "specs")
                    || part == "__tests__"
                    || [".test.", ".spec.", "_test."]
                        .iter()
                        .any(|it| part.contains(it))
            });
        if !is_test && (self.read(path).is_some() || is_called || depth == DEPTH) {
            add(&mut self.files.protected, path);
            self.file(path, depth, None);
        }
    }

    /// Looks into a file once.
    fn file(&mut self, path: &str, depth: usize, others: Option<fn(&str) -> Vec<String>>) {
        if depth == 0 || !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(text) = self.read(path) else {
            return;
        };
        for other in others.map(|others| others(&text)).unwrap_or_default() {
            add(&mut self.files.protected, &other);
            self.file(&other, depth - 1, others);
        }
        self.beside(path, &text, depth - 1);
        self.text(&text, depth - 1);
    }

    /// What a script takes in from its own folder, or from the root: by a path behind a variable or
    /// `dirname`, by `import`, by `require`.
    fn beside(&mut self, script: &str, text: &str, depth: usize) {
        let folder = script.rsplit_once('/').map_or("", |(folder, _)| folder);
        for name in taken_in(script, text) {
            for place in [join(folder, &name), name.clone()] {
                if is_inside(&place) && self.read(&place).is_some() {
                    add(&mut self.files.protected, &place);
                    self.file(&place, depth, None);
                }
            }
        }
    }
}

fn add(list: &mut Vec<String>, entry: &str) {
    if !list.iter().any(|known| known == entry) {
        list.push(entry.to_owned());
    }
}

/// Whether a word can be the path of a file of the project.
fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with(['/', '-', '~'])
        && !path.contains(['*', ':', '[', '{', '?'])
        && path
            .trim_end_matches('/')
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".." | "..."))
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "sh" | "bash" | "dash" | "zsh")
}

#[cfg(test)]
mod tests {
    use runner_core::paths::PYTHON_MODULES;

    use super::*;

    fn check(line: &[&str], files: &[(&str, &str)], expected: &[&str]) {
        let command: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let project = GuardedFiles {
            read: &read,
            is_there: &|path| read(path).is_some() || path == "folder",
            has_modules: false,
        };
        let found = guard_files(&command, &project);
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
}
