//! Files that agents may change and people want to know about.

use std::path::Path;

use runner_core::paths::GlobList;
use runner_core::product::USUAL_TESTS;

use super::detect::{PYTHON_PROJECT, has};

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
                "**/*-test.*",
                "**/test-*.*",
                "**/__tests__/**",
                "**/__mocks__/**",
                "**/test/**",
                "**/tests/**",
            ],
        ),
        (
            &PYTHON_PROJECT,
            &[
                "**/tests/**",
                "**/test/**",
                "**/test*.py",
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

/// Folders of tests by what lies in them, where no kind of project tells.
pub(super) fn other_tests(tracked: &[String]) -> Vec<String> {
    const MARKS: [(&str, &str); 5] = [
        ("t/**/*.t", "t/**"),
        ("**/*_spec.*", "spec/**"),
        ("features/**/*.feature", "features/**"),
        ("e2e/**", "e2e/**"),
        ("**/*.bats", "**/*.bats"),
    ];
    let is_there = |mark: &str| {
        GlobList::new(&[mark]).is_ok_and(|globs| tracked.iter().any(|path| globs.is_match(path)))
    };
    let found = MARKS.iter().filter(|(mark, _)| is_there(mark));
    found.map(|(_, glob)| (*glob).to_owned()).collect()
}

/// Those of the watched globs that are about tests, and not about files in which they can be
/// switched off among other things.
///
/// Where nothing says what kind of project it is, the usual names.
pub(super) fn tests_of(watched: &[String]) -> Vec<String> {
    if watched.is_empty() {
        return USUAL_TESTS.iter().map(|glob| (*glob).to_owned()).collect();
    }
    let is_manifest =
        |glob: &&String| glob.ends_with("pyproject.toml") || glob.ends_with("pom.xml");
    let tests = watched.iter().filter(|glob| !is_manifest(glob));
    tests.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_by_what_lies_there() {
        for (path, expected) in [
            ("t/basic.t", &["t/**"][..]),
            ("t/notes.md", &[]),
            ("features/login.feature", &["features/**"]),
            ("features/login.rb", &[]),
            ("e2e/login.ts", &["e2e/**"]),
            ("checks/a.bats", &["**/*.bats"]),
            ("spec/a_spec.lua", &["spec/**"]),
            ("src/spec/a.lua", &[]),
        ] {
            assert_eq!(other_tests(&[path.to_owned()]), expected, "{path}");
        }
    }

    #[test]
    fn tests_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(watched(dir.path()), Vec::<String>::new());
        assert!(tests_of(&[]).contains(&"**/tests/**".to_owned()));
        for name in ["package.json", "pyproject.toml"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let globs = watched(dir.path());
        assert!(globs.contains(&"**/*.test.*".to_owned()), "{globs:?}");
        assert!(globs.contains(&"**/test*.py".to_owned()), "{globs:?}");
        let twice = globs.iter().filter(|glob| *glob == "**/tests/**").count();
        assert_eq!(twice, 1, "{globs:?}");
        assert!(globs.contains(&"pyproject.toml".to_owned()), "{globs:?}");
        assert_eq!(tests_of(&globs).len() + 1, globs.len());
    }
}
