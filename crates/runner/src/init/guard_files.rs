//! Every file that redefines a guard, whether it exists or not: an agent that may write them needs
//! no tests.
//!
//! The lists are never complete. What they miss, the verdict at `land` is for, which lays only the
//! product files over the tests and settings of the beginning.

use std::collections::BTreeSet;
use std::path::Path;

use runner_core::paths::PYTHON_MODULES;

use super::detect::MAKEFILES;

/// How deep scripts that call scripts are looked into.
const DEPTH: usize = 4;

const JUSTFILES: &[&str] = &["justfile", "Justfile", "JUSTFILE", ".justfile", ".Justfile"];

/// A tool that a guard runs tests with, and what says how.
struct GuardTool {
    /// Words that give it away.
    words: &'static [&'static str],
    protected: &'static [&'static str],
    values: &'static [&'static str],
}

const TOOLS: &[GuardTool] = &[
    GuardTool {
        words: &["cargo"],
        protected: &[
            ".cargo/config",
            ".cargo/config.toml",
            "rust-toolchain",
            "rust-toolchain.toml",
            ".config/nextest.toml",
        ],
        values: &[
            "Cargo.toml:/profile",
            "Cargo.toml:/lib/test",
            "Cargo.toml:/lib/doctest",
            "Cargo.toml:/lib/harness",
            "Cargo.toml:/lib/path",
            "Cargo.toml:/bin/*/test",
            "Cargo.toml:/bin/*/harness",
            "Cargo.toml:/test",
            "Cargo.toml:/package/autotests",
            "Cargo.toml:/package/build",
            "Cargo.toml:/workspace/members",
            "Cargo.toml:/workspace/default-members",
            "Cargo.toml:/workspace/exclude",
            "Cargo.toml:/patch",
        ],
    },
    GuardTool {
        words: &["pytest", "py.test", "unittest", "tox", "nox"],
        protected: &[
            "pytest.ini",
            ".pytest.ini",
            "pytest.toml",
            ".pytest.toml",
            "tox.ini",
            "noxfile.py",
            "setup.cfg",
            "conftest.py",
            "sitecustomize.py",
            "usercustomize.py",
            PYTHON_MODULES,
        ],
        values: &[
            "pyproject.toml:/tool/pytest",
            "pyproject.toml:/tool/tox",
            "pyproject.toml:/project/entry-points/pytest11",
        ],
    },
    GuardTool {
        words: &["npm", "pnpm", "yarn", "bun", "npx"],
        protected: &[
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pnpmfile.cjs",
            "pnpm-workspace.yaml",
            "bunfig.toml",
        ],
        values: &[
            "package.json:/scripts",
            "package.json:/workspaces",
            "package.json:/overrides",
            "package.json:/resolutions",
            "package.json:/pnpm",
            "package.json:/packageManager",
        ],
    },
    GuardTool {
        words: &["jest"],
        protected: &["jest.config.*", "babel.config.*", ".babelrc", ".babelrc.*"],
        values: &["package.json:/jest", "package.json:/babel"],
    },
    GuardTool {
        words: &["vitest"],
        protected: &["vitest.config.*", "vitest.workspace.*", "vite.config.*"],
        values: &[],
    },
    GuardTool {
        words: &["mocha"],
        protected: &[".mocharc.*"],
        values: &["package.json:/mocha"],
    },
    GuardTool {
        words: &["ava"],
        protected: &["ava.config.*"],
        values: &["package.json:/ava"],
    },
    GuardTool {
        words: &["tsc", "ts-node", "tsx", "ts-jest", "vue-tsc"],
        protected: &["tsconfig.json", "tsconfig.*.json"],
        values: &[],
    },
    GuardTool {
        words: &["turbo"],
        protected: &["turbo.json"],
        values: &[],
    },
    GuardTool {
        words: &["nx"],
        protected: &["nx.json"],
        values: &[],
    },
    GuardTool {
        words: &["go"],
        protected: &["go.work", "vendor/**"],
        values: &[],
    },
    GuardTool {
        words: &["make", "gmake"],
        protected: &MAKEFILES,
        values: &[],
    },
    GuardTool {
        words: &["just"],
        protected: JUSTFILES,
        values: &[],
    },
    GuardTool {
        words: &["mvn", "mvnw"],
        protected: &["mvnw", ".mvn/**"],
        values: &[],
    },
    GuardTool {
        words: &["gradle", "gradlew"],
        protected: &["gradlew", "gradle/wrapper/**", "gradle.properties"],
        values: &[],
    },
    GuardTool {
        words: &["rspec", "rake", "rails", "bundle"],
        protected: &[".rspec", "Rakefile", ".bundle/config"],
        values: &[],
    },
    GuardTool {
        words: &["phpunit", "composer"],
        protected: &["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"],
        values: &["composer.json:/scripts"],
    },
];

/// What must stay as it is for a guard to mean what it meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GuardFiles {
    /// Globs for `[guard] protected`.
    pub(super) protected: Vec<String>,
    /// Entries for `[guard] protected_values`.
    pub(super) values: Vec<String>,
}

/// All files that redefine a guard. `read`: the text of a file of the project.
pub(super) fn guard_files(command: &[String], read: &dyn Fn(&str) -> Option<String>) -> GuardFiles {
    let mut scan = GuardScan {
        read,
        files: GuardFiles::default(),
        seen: BTreeSet::new(),
    };
    scan.command(command);
    scan.files
}

struct GuardScan<'r> {
    read: &'r dyn Fn(&str) -> Option<String>,
    files: GuardFiles,
    seen: BTreeSet<String>,
}

impl GuardScan<'_> {
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
            let words = line.split(|letter: char| {
                letter.is_whitespace() || "\"'`;|&()<>{}$,=@".contains(letter)
            });
            self.words(words.filter(|word| !word.is_empty()), depth);
        }
    }

    fn words<'w>(&mut self, words: impl Iterator<Item = &'w str>, depth: usize) {
        for word in words {
            let name = word.rsplit('/').next().unwrap_or(word);
            for tool in TOOLS.iter().filter(|tool| tool.words.contains(&name)) {
                self.tool(tool, name, depth);
            }
            self.script(word, depth);
        }
    }

    fn tool(&mut self, tool: &GuardTool, name: &str, depth: usize) {
        for glob in tool.protected {
            add(&mut self.files.protected, glob);
        }
        for value in tool.values {
            add(&mut self.files.values, value);
        }
        match name {
            "make" | "gmake" => self.definitions(&MAKEFILES, depth, included),
            "just" => self.definitions(JUSTFILES, depth, imported),
            "npm" | "pnpm" | "yarn" | "bun" => self.package(depth),
            _ => {}
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
        let text = (self.read)("package.json").unwrap_or_default();
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
        let is_inside = !path.is_empty()
            && !path.starts_with(['/', '-', '~'])
            && path
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".." | "..."));
        let is_called = word.starts_with("./");
        let has_ending = path.rsplit_once('.').is_some_and(|(_, ending)| {
            [
                "sh", "bash", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "mk", "just",
            ]
            .contains(&ending)
        });
        if !is_inside || !(is_called || has_ending) || path.contains('*') {
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
        if !is_test && ((self.read)(path).is_some() || is_called || depth == DEPTH) {
            add(&mut self.files.protected, path);
            self.file(path, depth, None);
        }
    }

    /// Looks into a file once.
    fn file(&mut self, path: &str, depth: usize, others: Option<fn(&str) -> Vec<String>>) {
        if depth == 0 || !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(text) = (self.read)(path) else {
            return;
        };
        for other in others.map(|others| others(&text)).unwrap_or_default() {
            add(&mut self.files.protected, &other);
            self.file(&other, depth - 1, others);
        }
        self.text(&text, depth - 1);
    }
}

fn add(list: &mut Vec<String>, entry: &str) {
    if !list.iter().any(|known| known == entry) {
        list.push(entry.to_owned());
    }
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "sh" | "bash" | "dash" | "zsh")
}

/// The files that a Makefile includes, as far as they are named.
fn included(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        ["include ", "-include ", "sinclude "]
            .iter()
            .find_map(|word| line.strip_prefix(word))
    });
    lines
        .flat_map(str::split_whitespace)
        .filter(|path| !path.contains('$') && !path.starts_with(['/', '.']))
        .map(str::to_owned)
        .collect()
}

/// The files that a justfile imports.
fn imported(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let named = lines.clone().filter_map(|line| {
        let rest = line
            .strip_prefix("import? ")
            .or_else(|| line.strip_prefix("import "))?;
        let path = rest.trim().trim_matches(['\'', '"']);
        Some(path.strip_prefix("./").unwrap_or(path).to_owned())
    });
    let modules = lines.filter_map(|line| {
        let rest = line
            .strip_prefix("mod? ")
            .or_else(|| line.strip_prefix("mod "))?;
        let name = rest.split_whitespace().next()?;
        Some([
            format!("{name}.just"),
            format!("{name}/mod.just"),
            format!("{name}/justfile"),
        ])
    });
    let modules: Vec<String> = modules.flatten().collect();
    named.chain(modules).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &[&str], files: &[(&str, &str)], expected: &[&str]) {
        let command: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let found = guard_files(&command, &read);
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
                "Cargo.toml:/lib/test",
            ],
        );
        check(
            &["python3", "-m", "pytest"],
            &[],
            &[
                "pytest.ini",
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
            &["go.work", "vendor/**", "!..."],
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
                "package.json:/scripts",
                ".npmrc",
                "jest.config.*",
                "tsconfig.json",
                "!vitest.config.*",
                "!package.json",
            ],
        );
        let package = r#"{"scripts": {"test": "node scripts/run-tests.mjs && vitest run"}}"#;
        check(
            &["pnpm", "test"],
            &[("package.json", package), ("scripts/run-tests.mjs", "")],
            &["scripts/run-tests.mjs", "vitest.config.*"],
        );
    }

    #[test]
    fn several_programs_get_the_union() {
        check(
            &["sh", "-c", "cargo test && npm test && sh tools/check.sh"],
            &[("tools/check.sh", "#!/bin/sh\npython3 -m pytest -q\n")],
            &[
                "Cargo.toml:/profile",
                "package.json:/scripts",
                "tools/check.sh",
                "pytest.ini",
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
    fn scripts_that_call_each_other() {
        check(
            &["sh", "a.sh"],
            &[("a.sh", "sh b.sh\n"), ("b.sh", "sh a.sh\nsh c.sh\n")],
            &["a.sh", "b.sh", "!c.sh"],
        );
    }
}
