//! What of a project must be looked after while agents work in it.

use std::path::Path;

use super::detect::{JUSTFILES, MAKEFILES, has, program};

/// The files that say what the guard does: an agent that may change them needs no tests.
pub(super) fn protected(guard: &[String]) -> Vec<String> {
    let program = program(guard).unwrap_or_default();
    let own: &[&str] = match program {
        "just" => &JUSTFILES,
        "make" => &MAKEFILES,
        "npm" | "pnpm" | "yarn" | "bun" => &["package.json"],
        "bundle" => &["Rakefile", ".rspec"],
        "composer" => &["composer.json", "phpunit.xml", "phpunit.xml.dist"],
        "vendor/bin/phpunit" => &["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"],
        // Which program runs the tests, and with which flags, is said there too.
        "cargo" => &[
            ".cargo/config.toml",
            ".cargo/config",
            "rust-toolchain.toml",
            "rust-toolchain",
        ],
        "python" | "python3" | "uv" | "poetry" | "pipenv" | "pytest" => {
            &["pytest.ini", "tox.ini", "conftest.py"]
        }
        "sh" | "bash" | "go" | "node" | "mvn" | "./mvnw" | "gradle" | "./gradlew" => &[],
        _ => &["justfile", "Justfile", ".justfile", "Makefile"],
    };
    let mut files: Vec<String> = own.iter().map(|&name| name.to_owned()).collect();
    // A script of the project that is called as the guard, or by a shell.
    for word in guard.iter().take(2) {
        let script = word.trim_start_matches("./");
        if (word.starts_with("./") || Path::new(script).extension().is_some())
            && !script.starts_with('/')
            && !script.contains("...")
        {
            files.push(script.to_owned());
        }
    }
    files
}

/// Tests, and files where they can be switched off: agents write them, and people want to know.
pub(super) fn watched(root: &Path) -> Vec<String> {
    let kinds: [(&[&'static str], &[&str]); 7] = [
        (
            &["Cargo.toml"],
            &["**/tests/**", "**/tests.rs", "**/*_test.rs"],
        ),
        (
            &["package.json"],
            &[
                "**/*.test.*",
                "**/*.spec.*",
                "**/__tests__/**",
                "test/**",
                "tests/**",
            ],
        ),
        (
            &[
                "pyproject.toml",
                "setup.cfg",
                "setup.py",
                "requirements.txt",
                "Pipfile",
                "pytest.ini",
                "tox.ini",
            ],
            &[
                "tests/**",
                "test/**",
                "**/test_*.py",
                "**/*_test.py",
                "**/conftest.py",
                "pyproject.toml",
            ],
        ),
        (&["go.mod", "go.work"], &["**/*_test.go", "**/testdata/**"]),
        (
            &["Gemfile"],
            &["**/*_test.rb", "**/*_spec.rb", "test/**", "spec/**"],
        ),
        (&["composer.json"], &["**/*Test.php", "tests/**"]),
        (
            &["pom.xml", "build.gradle", "build.gradle.kts"],
            &["**/src/test/**", "pom.xml"],
        ),
    ];
    let mut globs: Vec<String> = Vec::new();
    for (marks, own) in kinds {
        if has(root, marks).is_none() {
            continue;
        }
        for glob in own {
            if !globs.iter().any(|known| known == glob) {
                globs.push((*glob).to_owned());
            }
        }
    }
    globs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_the_guard_consists_of() {
        for (line, expected) in [
            ("sh ci.sh", &["ci.sh"][..]),
            ("make ci", &MAKEFILES),
            ("npm test", &["package.json"]),
            ("go test ./...", &[]),
            ("bundle exec rake test", &["Rakefile", ".rspec"]),
            (
                "env A=b pipenv run pytest",
                &["pytest.ini", "tox.ini", "conftest.py"],
            ),
            ("./gradlew test", &["gradlew"]),
            (
                "python3 check.py",
                &["pytest.ini", "tox.ini", "conftest.py", "check.py"],
            ),
        ] {
            assert_eq!(protected(&words(line)), expected, "{line}");
        }
        for line in ["just ci", "make ci", "sh ci.sh"] {
            assert!(!protected(&words(line)).is_empty(), "{line}");
        }
        assert_eq!(protected(&words("./check --all")).last().unwrap(), "check");
    }

    #[test]
    fn tests_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(watched(dir.path()), Vec::<String>::new());
        for name in ["package.json", "pyproject.toml"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let globs = watched(dir.path());
        assert!(globs.contains(&"**/*.test.*".to_owned()), "{globs:?}");
        assert!(globs.contains(&"**/test_*.py".to_owned()), "{globs:?}");
        let twice = globs.iter().filter(|glob| *glob == "tests/**").count();
        assert_eq!(twice, 1, "{globs:?}");
    }
}
