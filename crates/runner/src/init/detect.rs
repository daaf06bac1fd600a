//! Which guard and which agent a project most likely wants, and what of it must be looked after.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use runner_core::config::BackendKind;

/// A way to check a project of a certain kind.
type InitProbe = fn(&Path) -> Option<(&'static str, String)>;

/// The first that has an answer. What a project has made for this very purpose comes before what
/// its language has in general.
const PROBES: [InitProbe; 9] = [
    just_ci, make, just_test, rust, node, go, python, maven, gradle,
];

/// The guard's argv, and why. `is_there`: whether a program is installed.
pub(super) fn guard(root: &Path, is_there: impl Fn(&str) -> bool) -> (Vec<String>, String) {
    if let Some(found) = found(root) {
        return found;
    }
    let (line, why) = {
        let line = match () {
            () if is_there("just") => "just ci",
            () if is_there("make") => "make ci",
            () => "sh ci.sh",
        };
        let why = "nothing was found that tells how this project is checked: the first session whose \
                   guard passes may write it, from then on it is protected";
        (line, why.to_owned())
    };
    (words(line), why)
}

/// What the project itself tells.
pub(super) fn found(root: &Path) -> Option<(Vec<String>, String)> {
    let (line, why) = PROBES.iter().find_map(|probe| probe(root))?;
    Some((words(line), why))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn just_ci(root: &Path) -> Option<(&'static str, String)> {
    recipe(root, &JUSTFILES, &[("ci", "just ci")])
}

fn just_test(root: &Path) -> Option<(&'static str, String)> {
    recipe(root, &JUSTFILES, &[("test", "just test")])
}

fn make(root: &Path) -> Option<(&'static str, String)> {
    recipe(
        root,
        &MAKEFILES,
        &[("ci", "make ci"), ("test", "make test")],
    )
}

fn rust(root: &Path) -> Option<(&'static str, String)> {
    let file = has(root, &["Cargo.toml"])?;
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    // A package that is the root of a workspace would be tested alone.
    Some(if text.contains("[workspace") {
        ("cargo test --workspace", format!("{file} has a workspace"))
    } else {
        ("cargo test", format!("there is a {file}"))
    })
}

fn go(root: &Path) -> Option<(&'static str, String)> {
    has(root, &["go.mod", "go.work"]).map(|file| ("go test ./...", format!("there is a {file}")))
}

fn node(root: &Path) -> Option<(&'static str, String)> {
    let text = fs::read(root.join("package.json")).ok()?;
    let package: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let script = package["scripts"]["test"].as_str();
    // What `npm init` writes, which always fails.
    if script.is_none_or(|script| script.contains("no test specified")) {
        let folder = node_tests(root)?;
        let why =
            format!("there is a package.json without a script `test`, and a folder {folder}/");
        return Some(("node --test", why));
    }
    let line = match has(
        root,
        &["pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"],
    ) {
        Some("pnpm-lock.yaml") => "pnpm test",
        Some("yarn.lock") => "yarn test",
        Some(_) => "bun run test",
        None => "npm test",
    };
    Some((line, "package.json has a script `test`".to_owned()))
}

/// A folder in which `node --test` finds something by itself: all of `test/`, elsewhere only files
/// with a certain name. Where it finds nothing it is green.
fn node_tests(root: &Path) -> Option<&'static str> {
    let is_test = |name: &str| {
        name.starts_with("test-")
            || [".test.", "-test.", "_test."]
                .iter()
                .any(|it| name.contains(it))
    };
    has_folder(root, &["test"]).or_else(|| {
        has_folder(root, &["tests"])
            .filter(|folder| files_in(&root.join(folder)).any(|path| is_test(&name_of(&path))))
    })
}

fn python(root: &Path) -> Option<(&'static str, String)> {
    let project = has(
        root,
        &[
            "pyproject.toml",
            "setup.cfg",
            "setup.py",
            "requirements.txt",
            "pytest.ini",
            "tox.ini",
        ],
    )?;
    let says_pytest =
        |name: &&str| fs::read_to_string(root.join(name)).is_ok_and(|text| text.contains("pytest"));
    let pytest = ["pytest.ini", "conftest.py", "tests/conftest.py"]
        .into_iter()
        .find(|name| root.join(name).is_file())
        .or_else(|| {
            [
                "pyproject.toml",
                "setup.cfg",
                "tox.ini",
                "requirements.txt",
                "requirements-dev.txt",
            ]
            .into_iter()
            .find(says_pytest)
        });
    if let (None, Some((folder, line))) = (pytest, unittest(root)) {
        let why = format!("there is a {project}, and the tests in {folder}/ say unittest");
        return Some((line, why));
    }
    let why = match pytest {
        Some(file) if file == project => format!("{file} says pytest"),
        Some(file) => format!("there is a {project}, and {file} says pytest"),
        None => format!("there is a {project}"),
    };
    let line = match has(root, &["uv.lock", "poetry.lock"]) {
        Some("uv.lock") => "uv run pytest",
        Some(_) => "poetry run pytest",
        None => "python3 -m pytest",
    };
    Some((line, why))
}

/// The folder whose tests are written for unittest, and how they are found: of itself it looks
/// into packages only, and where it finds nothing it may be green.
fn unittest(root: &Path) -> Option<(&'static str, &'static str)> {
    let folder = has_folder(root, &["tests", "test"])?;
    let is_written_for_it = files_in(&root.join(folder)).any(|path| {
        path.extension() == Some(OsStr::new("py"))
            && fs::read_to_string(&path).is_ok_and(|text| text.contains("unittest"))
    });
    let is_package = root.join(folder).join("__init__.py").is_file();
    is_written_for_it.then_some((
        folder,
        match (is_package, folder) {
            (true, _) => "python3 -m unittest",
            (false, "tests") => "python3 -m unittest discover -s tests",
            (false, _) => "python3 -m unittest discover -s test",
        },
    ))
}

fn maven(root: &Path) -> Option<(&'static str, String)> {
    let file = has(root, &["pom.xml"])?;
    let line = match has(root, &["mvnw"]) {
        Some(_) => "./mvnw -q test",
        None => "mvn -q test",
    };
    Some((line, format!("there is a {file}")))
}

fn gradle(root: &Path) -> Option<(&'static str, String)> {
    let file = has(root, &["build.gradle", "build.gradle.kts"])?;
    let line = match has(root, &["gradlew"]) {
        Some(_) => "./gradlew test",
        None => "gradle test",
    };
    Some((line, format!("there is a {file}")))
}

const JUSTFILES: [&str; 3] = ["justfile", "Justfile", ".justfile"];
const MAKEFILES: [&str; 3] = ["Makefile", "makefile", "GNUmakefile"];

fn has(root: &Path, names: &[&'static str]) -> Option<&'static str> {
    let mut names = names.iter().copied();
    names.find(|name| root.join(name).is_file())
}

fn has_folder(root: &Path, names: &[&'static str]) -> Option<&'static str> {
    let mut names = names.iter().copied();
    names.find(|name| root.join(name).is_dir())
}

/// The files that lie in a folder itself.
fn files_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The first recipe that one of the files has.
fn recipe(
    root: &Path,
    files: &[&str],
    recipes: &[(&str, &'static str)],
) -> Option<(&'static str, String)> {
    for (target, line) in recipes {
        for file in files {
            if has_recipe(root, file, target) {
                return Some((line, format!("{file} has a recipe `{target}`")));
            }
        }
    }
    None
}

/// Whether a justfile or Makefile has a recipe of this name.
fn has_recipe(root: &Path, file: &str, target: &str) -> bool {
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return false;
    };
    text.lines().any(|line| {
        // `@ci:` is a quiet recipe of a justfile.
        let line = line.strip_prefix('@').unwrap_or(line);
        line.strip_prefix(target).is_some_and(|rest| {
            rest.starts_with(':') && !rest.starts_with(":=")
                || rest.starts_with(' ') && rest.contains(':') && !rest.contains(":=")
        })
    })
}

/// The files that say what the guard does: an agent that may change them needs no tests.
pub(super) fn protected(guard: &[String]) -> Vec<String> {
    let program = guard.first().map(String::as_str).unwrap_or_default();
    let own: &[&str] = match program {
        "just" => &JUSTFILES,
        "make" => &MAKEFILES,
        "npm" | "pnpm" | "yarn" | "bun" => &["package.json"],
        // Which program runs the tests, and with which flags, is said there too.
        "cargo" => &[
            ".cargo/config.toml",
            ".cargo/config",
            "rust-toolchain.toml",
            "rust-toolchain",
        ],
        "python" | "python3" | "uv" | "poetry" | "pytest" => {
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
    let kinds: [(&[&'static str], &[&str]); 5] = [
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

/// The agent backend, and why.
pub(super) fn backend(is_there: impl Fn(&str) -> bool) -> (BackendKind, String) {
    let known = [
        BackendKind::Codex,
        BackendKind::Claude,
        BackendKind::Opencode,
    ];
    match known.into_iter().find(|backend| is_there(backend.as_str())) {
        Some(backend) => (backend, format!("{backend} is installed")),
        None => (
            BackendKind::Codex,
            "no agent was found on PATH: install codex, claude or opencode, or name a program of \
             your own with --backend command"
                .to_owned(),
        ),
    }
}

/// Whether a program can be started here.
pub(super) fn is_there(root: &Path, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    runner_sandbox::resolve_program(OsStr::new(program), root, &path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn what_is_chosen_for_which_project() {
        const TEST: &str = r#"{"scripts": {"test": "vitest run"}}"#;
        const NONE: &str =
            r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("justfile", "ci: test\n")], "just ci"),
            (&[("justfile", "@ci:\n")], "just ci"),
            (&[("justfile", "test:\n")], "just test"),
            (&[("justfile", "test:\n"), ("Makefile", "ci:\n")], "make ci"),
            (&[("Makefile", "ci := x\ntest: a\n")], "make test"),
            (&[("Makefile", "ci: a\ntest: a\n")], "make ci"),
            (&[("GNUmakefile", "test: a\n")], "make test"),
            (
                &[("Makefile", "build: a\n"), ("Cargo.toml", "")],
                "cargo test",
            ),
            (&[("Cargo.toml", "")], "cargo test"),
            (
                &[("Cargo.toml", "[package]\n[workspace]\n")],
                "cargo test --workspace",
            ),
            (&[("package.json", TEST)], "npm test"),
            (
                &[("package.json", TEST), ("pnpm-lock.yaml", "")],
                "pnpm test",
            ),
            (&[("package.json", TEST), ("yarn.lock", "")], "yarn test"),
            (&[("package.json", TEST), ("bun.lock", "")], "bun run test"),
            (&[("package.json", NONE)], "just ci"),
            (&[("package.json", NONE), ("test/a.js", "")], "node --test"),
            (&[("package.json", NONE), ("tests/a.js", "")], "just ci"),
            (
                &[("package.json", NONE), ("tests/a.test.js", "")],
                "node --test",
            ),
            (&[("package.json", "not json")], "just ci"),
            (&[("go.mod", "")], "go test ./..."),
            (&[("pyproject.toml", "")], "python3 -m pytest"),
            (&[("pyproject.toml", "[tool.pytest]")], "python3 -m pytest"),
            (
                &[("setup.py", ""), ("tests/test_a.py", "import unittest")],
                "python3 -m unittest discover -s tests",
            ),
            (
                &[
                    ("setup.py", ""),
                    ("tests/test_a.py", "import unittest"),
                    ("tests/__init__.py", ""),
                ],
                "python3 -m unittest",
            ),
            (
                &[("setup.py", ""), ("tests/test_a.py", "def test_a(): ...")],
                "python3 -m pytest",
            ),
            (
                &[("setup.py", ""), ("tests/conftest.py", "")],
                "python3 -m pytest",
            ),
            (
                &[("pyproject.toml", "pytest"), ("uv.lock", "")],
                "uv run pytest",
            ),
            (
                &[("pyproject.toml", "pytest"), ("poetry.lock", "")],
                "poetry run pytest",
            ),
            (&[("pom.xml", "")], "mvn -q test"),
            (&[("pom.xml", ""), ("mvnw", "")], "./mvnw -q test"),
            (&[("build.gradle", ""), ("gradlew", "")], "./gradlew test"),
            (&[("README", "")], "just ci"),
        ];
        for (files, expected) in cases {
            let dir = project(files);
            let (argv, why) = guard(dir.path(), |_| true);
            assert_eq!(argv.join(" "), *expected, "{files:?}: {why}");
        }
    }

    #[test]
    fn an_empty_project_gets_what_the_machine_has() {
        let dir = project(&[]);
        for (there, expected) in [
            (&["just", "make"][..], "just ci"),
            (&["make"], "make ci"),
            (&[], "sh ci.sh"),
        ] {
            let (argv, _) = guard(dir.path(), |program| there.contains(&program));
            assert_eq!(argv.join(" "), expected);
            assert!(!protected(&argv).is_empty(), "{expected}");
        }
        assert_eq!(watched(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn what_the_guard_consists_of() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, expected) in [
            ("sh ci.sh", &["ci.sh"][..]),
            ("make ci", &MAKEFILES),
            ("npm test", &["package.json"]),
            ("go test ./...", &[]),
            ("./gradlew test", &["gradlew"]),
            (
                "python3 check.py",
                &["pytest.ini", "tox.ini", "conftest.py", "check.py"],
            ),
        ] {
            assert_eq!(protected(&words(line)), expected, "{line}");
        }
        assert_eq!(protected(&words("./check --all")).last().unwrap(), "check");
    }

    #[test]
    fn tests_are_watched() {
        let dir = project(&[("package.json", ""), ("pyproject.toml", "")]);
        let globs = watched(dir.path());
        assert!(globs.contains(&"**/*.test.*".to_owned()), "{globs:?}");
        assert!(globs.contains(&"**/test_*.py".to_owned()), "{globs:?}");
        let twice = globs.iter().filter(|glob| *glob == "tests/**").count();
        assert_eq!(twice, 1, "{globs:?}");
    }
}
