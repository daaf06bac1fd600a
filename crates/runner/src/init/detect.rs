//! Which guard and which agent a project most likely wants.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::BackendKind;

/// A way to check a project of a certain kind.
type InitProbe = fn(&Path) -> Option<(&'static str, String)>;

/// The first that has an answer. What a project has made for this very purpose comes before what
/// its language has in general.
const PROBES: [InitProbe; 12] = [
    just_ci, make, script, just_test, rust, ruby, php, node, go, python, maven, gradle,
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
    let argv = by_manager(words(line), |name| root.join(name).is_file());
    Some((argv, why))
}

/// A guard started by the package manager whose lock file is there: its packages are where only
/// it finds them.
pub(super) fn by_manager(argv: Vec<String>, has: impl Fn(&str) -> bool) -> Vec<String> {
    let plain: Vec<&str> = argv.iter().map(String::as_str).collect();
    let (managers, rest): (&[(&str, &str)], &[&str]) = match plain.as_slice() {
        ["npm", rest @ ..] => (NODE_MANAGERS, rest),
        // A program of its own in the environment.
        ["python3", "-m", "pytest"] => (PYTHON_MANAGERS, &["pytest"]),
        ["python3", rest @ ..] => (PYTHON_MANAGERS, rest),
        _ => return argv,
    };
    let Some((_, start)) = managers.iter().find(|(lock, _)| has(lock)) else {
        return argv;
    };
    let python = (plain[0] == "python3" && rest[0] != "pytest").then_some("python");
    let start = start.split(' ').chain(python);
    start
        .chain(rest.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// Lock files, and how what wrote them starts a script of the package.
const NODE_MANAGERS: &[(&str, &str)] = &[
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun run"),
    ("bun.lockb", "bun run"),
];

/// Lock files, and how what wrote them starts a program of the environment.
const PYTHON_MANAGERS: &[(&str, &str)] = &[
    ("uv.lock", "uv run"),
    ("poetry.lock", "poetry run"),
    // Of itself it makes a folder for environments in the home, even where there is one beside it.
    ("Pipfile.lock", "env PIPENV_VENV_IN_PROJECT=1 pipenv run"),
];

/// The program that an argv starts, behind an `env` with its variables.
pub(super) fn program(argv: &[String]) -> Option<&str> {
    let mut words = argv.iter().map(String::as_str);
    words.find(|word| *word != "env" && !word.contains('='))
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

/// A script with the name that the fallback would have: started as its mode allows.
fn script(root: &Path) -> Option<(&'static str, String)> {
    let file = has(root, &["ci.sh"])?;
    let mode = root
        .join(file)
        .metadata()
        .map(|meta| meta.permissions().mode());
    let line = if mode.is_ok_and(|mode| mode & 0o111 != 0) {
        "./ci.sh"
    } else {
        "sh ci.sh"
    };
    Some((line, format!("there is a {file}")))
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
    Some(("npm test", "package.json has a script `test`".to_owned()))
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

/// Files of which a Python project has one.
pub(super) const PYTHON_PROJECT: [&str; 7] = [
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "requirements.txt",
    "Pipfile",
    "pytest.ini",
    "tox.ini",
];

fn python(root: &Path) -> Option<(&'static str, String)> {
    let project = has(root, &PYTHON_PROJECT)?;
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
                "Pipfile",
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
    Some(("python3 -m pytest", why))
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

/// Only where it tells how it is tested: packages of other languages have a Gemfile for a tool.
fn ruby(root: &Path) -> Option<(&'static str, String)> {
    let file = has(root, &["Gemfile"])?;
    let says = |name: &str, word: &str| {
        fs::read_to_string(root.join(name)).is_ok_and(|text| text.contains(word))
    };
    if root.join(".rspec").is_file() || (says(file, "rspec") && root.join("spec").is_dir()) {
        return Some(("bundle exec rspec", format!("there is a {file} with rspec")));
    }
    if let (Some(program), Some(folder)) = (has(root, &["bin/rails"]), has_folder(root, &["test"]))
    {
        let why = format!("there is a {program}, and a folder {folder}/");
        return Some(("bundle exec rails test", why));
    }
    let rakefile = has(root, &["Rakefile", "rakefile", "Rakefile.rb"])?;
    let is_tested = ["TestTask", ":test", "test:"]
        .iter()
        .any(|word| says(rakefile, word));
    is_tested.then(|| {
        let why = format!("there is a {file}, and {rakefile} has a task `test`");
        ("bundle exec rake test", why)
    })
}

fn php(root: &Path) -> Option<(&'static str, String)> {
    let text = fs::read(root.join("composer.json")).ok()?;
    let package: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    if !package["scripts"]["test"].is_null() {
        let why = "composer.json has a script `test`".to_owned();
        return Some(("composer test", why));
    }
    let file = has(
        root,
        &["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"],
    )?;
    Some(("vendor/bin/phpunit", format!("there is a {file}")))
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

pub(super) const JUSTFILES: [&str; 3] = ["justfile", "Justfile", ".justfile"];
pub(super) const MAKEFILES: [&str; 3] = ["Makefile", "makefile", "GNUmakefile"];

pub(super) fn has(root: &Path, names: &[&'static str]) -> Option<&'static str> {
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
             your own with `runner init --backend command`"
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
            (
                &[("Pipfile", "pytest = '*'"), ("Pipfile.lock", "")],
                "env PIPENV_VENV_IN_PROJECT=1 pipenv run pytest",
            ),
            (
                &[
                    ("pyproject.toml", ""),
                    ("tests/test_a.py", "import unittest"),
                    ("uv.lock", ""),
                ],
                "uv run python -m unittest discover -s tests",
            ),
            (&[("Gemfile", "gem 'fastlane'")], "just ci"),
            (&[("Gemfile", ""), (".rspec", "")], "bundle exec rspec"),
            (
                &[("Gemfile", "gem 'rspec'"), ("spec/a_spec.rb", "")],
                "bundle exec rspec",
            ),
            (
                &[
                    ("Gemfile", ""),
                    ("Rakefile", "Rake::TestTask.new"),
                    ("package.json", TEST),
                ],
                "bundle exec rake test",
            ),
            (
                &[
                    ("Gemfile", ""),
                    ("Rakefile", "Rails.application.load_tasks"),
                    ("bin/rails", ""),
                    ("test/a_test.rb", ""),
                ],
                "bundle exec rails test",
            ),
            (
                &[("composer.json", r#"{"scripts": {"test": ["x", "y"]}}"#)],
                "composer test",
            ),
            (
                &[("composer.json", "{}"), ("phpunit.xml.dist", "")],
                "vendor/bin/phpunit",
            ),
            (&[("composer.json", "{}")], "just ci"),
            (&[("pom.xml", "")], "mvn -q test"),
            (&[("pom.xml", ""), ("mvnw", "")], "./mvnw -q test"),
            (&[("build.gradle", ""), ("gradlew", "")], "./gradlew test"),
            (&[("README", "")], "just ci"),
            (&[("ci.sh", "true\n")], "sh ci.sh"),
            (&[("ci.sh", ""), ("Cargo.toml", "")], "sh ci.sh"),
            (&[("ci.sh", ""), ("Makefile", "ci:\n")], "make ci"),
            (&[("ci", ""), ("README", "")], "just ci"),
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
        }
    }
}
