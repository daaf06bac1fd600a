//! Python without a lock file: an environment of its own for each checkout, because one that is
//! copied leads back to the folder that it was made in.

use std::path::Path;

use super::setup::SetupInput;
use crate::files;

/// Folders in which people keep the environment of a project.
const ENVIRONMENTS: &[&str] = &[".venv", "venv", "env"];

/// Lists of packages, in the order in which they are installed.
const LISTS: &[&str] = &[
    "requirements.txt",
    "requirements-dev.txt",
    "requirements_dev.txt",
    "dev-requirements.txt",
    "requirements-test.txt",
    "test-requirements.txt",
    "requirements/dev.txt",
    "requirements/test.txt",
];

/// Files by which other tools make the environment.
const LOCKS: &[&str] = &["uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock"];

/// Extras of a package that its tests need.
const EXTRAS: &[&str] = &["dev", "test", "tests", "testing"];

/// The largest file that is looked into.
const MAX_BYTES: u64 = 1 << 20;

/// What is proposed for a Python project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PythonGuess {
    /// The line of setup, and the reason.
    pub(super) setup: Option<(String, String)>,
    /// What is copied.
    pub(super) include: Option<String>,
    /// The guard with the environment's own interpreter.
    pub(super) guard: Option<Vec<String>>,
    /// What a person should know.
    pub(super) note: Option<String>,
}

pub(super) fn propose(input: &SetupInput<'_>) -> Option<PythonGuess> {
    let folder = input.root.join(input.folder);
    let is_locked = |above: &Path| {
        LOCKS
            .iter()
            .any(|name| input.root.join(above).join(name).is_file())
    };
    if input.folder.ancestors().any(is_locked) {
        return None;
    }
    let has = |name: &&&str| folder.join(name).join("pyvenv.cfg").is_file();
    let existing = ENVIRONMENTS.iter().find(has);
    let environment = existing.unwrap_or(&ENVIRONMENTS[0]);
    let guard = through(environment, input);
    if guard.is_none() && !uses(environment, input.guard, &folder) {
        return None;
    }
    let lists: Vec<&str> = LISTS
        .iter()
        .copied()
        .filter(|name| names_packages(&text(&folder.join(name))))
        .collect();
    let path = input.folder.join(environment);
    let install = match (lists.as_slice(), existing) {
        ([], None) => return None,
        ([], Some(_)) if input.has_mounts => {
            return input.is_ignored(&path).then(|| PythonGuess {
                include: Some(path.display().to_string()),
                guard,
                ..PythonGuess::default()
            });
        }
        ([], Some(_)) => match installs_itself(&folder) {
            Some(install) => install,
            None => return Some(unlisted(&path)),
        },
        (lists, _) => lists
            .iter()
            .map(|name| format!("-r {name}"))
            .collect::<Vec<_>>()
            .join(" "),
    };
    if !input.is_ignored(&path) {
        let path = path.display();
        return Some(PythonGuess {
            note: Some(format!(
                "add {path}/ to .gitignore and run `runner init --force` for a setup that installs the packages there"
            )),
            ..PythonGuess::default()
        });
    }
    let why = match lists.as_slice() {
        [] => format!("{}/", path.display()),
        names => {
            let names = names
                .iter()
                .map(|name| input.folder.join(name).display().to_string());
            names.collect::<Vec<_>>().join(", ")
        }
    };
    let line = format!("python3 -m venv {environment} && {environment}/bin/pip install {install}");
    Some(PythonGuess {
        setup: Some((line, why)),
        guard,
        ..PythonGuess::default()
    })
}

/// An environment whose packages no file names.
fn unlisted(environment: &Path) -> PythonGuess {
    let environment = environment.display();
    PythonGuess {
        note: Some(format!(
            "no file says what {environment}/ holds, and a copy of it would use your own checkout: write a list with \
             `{environment}/bin/pip freeze > requirements.txt` and run `runner init --force` for a setup"
        )),
        ..PythonGuess::default()
    }
}

/// A guessed guard as the environment's own interpreter starts it.
fn through(environment: &str, input: &SetupInput<'_>) -> Option<Vec<String>> {
    match input.guard {
        [program, rest @ ..] if input.may_change_guard && program == "python3" => {
            let own = format!("{environment}/bin/python");
            Some([&[own], rest].concat())
        }
        _ => None,
    }
}

/// Whether a guard names the environment, or a recipe that does.
fn uses(environment: &str, guard: &[String], folder: &Path) -> bool {
    let named = format!("{environment}/");
    let recipes: &[&str] = match guard.first().map(String::as_str) {
        Some("make") => &["Makefile", "makefile", "GNUmakefile"],
        Some("just") => &["justfile", "Justfile", ".justfile"],
        _ => &[],
    };
    let scripts = guard
        .iter()
        .map(String::as_str)
        .chain(recipes.iter().copied());
    guard.iter().any(|word| word.contains(&named))
        || scripts
            .filter(|name| !name.starts_with('/') && !name.starts_with('-'))
            .any(|name| text(&folder.join(name)).contains(&named))
}

fn text(path: &Path) -> String {
    let bytes = files::read_regular(path, MAX_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a list has more than comments.
fn names_packages(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What pip is told to install a package that says itself what it needs.
fn installs_itself(folder: &Path) -> Option<String> {
    let project = text(&folder.join("pyproject.toml"));
    let is_package = project.contains("[project]") || folder.join("setup.py").is_file();
    let table = project
        .split_once("[project.optional-dependencies]")
        .map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or(""));
    let has = |name: &&&str| {
        let mut lines = table.lines();
        lines.any(|line| {
            line.split('=')
                .next()
                .is_some_and(|key| key.trim() == **name)
        })
    };
    let extras: Vec<&str> = EXTRAS.iter().filter(has).copied().collect();
    is_package.then(|| match extras.as_slice() {
        [] => "-e .".to_owned(),
        names => format!("-e '.[{}]'", names.join(",")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Git;

    fn check(files: &[(&str, &str)], guard: &str, may_change: bool, expected: &str) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        Git::init(root).unwrap();
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let git = Git::open(root).unwrap();
        let guard: Vec<String> = guard.split(' ').map(str::to_owned).collect();
        let guess = propose(&SetupInput {
            root,
            git: Some(&git),
            folder: Path::new(""),
            guard: &guard,
            may_change_guard: may_change,
            has_mounts: false,
        });
        let guess = guess.unwrap_or_default();
        let found = [
            guess.setup.map(|(line, _)| line),
            guess.guard.map(|words| words.join(" ")),
            guess.note.map(|_| "note".to_owned()),
        ];
        let found: Vec<String> = found.into_iter().flatten().collect();
        assert_eq!(found.join("; "), expected, "{files:?}");
    }

    #[test]
    fn environments() {
        const IGNORED: (&str, &str) = (".gitignore", ".venv/\nvenv/\n");
        const LIST: (&str, &str) = ("requirements.txt", "# tools\npytest\n");
        const MADE: (&str, &str) = (".venv/pyvenv.cfg", "");
        let pip = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt";
        let own = ".venv/bin/python -m pytest";
        let both = format!("{pip}; {own}");
        check(&[IGNORED, LIST], "python3 -m pytest", true, &both);
        check(&[LIST], "python3 -m pytest", true, "note");
        check(&[IGNORED, LIST], "python3 -m pytest", false, "");
        check(&[IGNORED, LIST], own, false, pip);
        check(&[IGNORED, LIST], "make test", true, "");
        let recipe = ("Makefile", "test:\n\t.venv/bin/pytest\n");
        check(&[IGNORED, LIST, recipe], "make test", true, pip);
        check(&[IGNORED, LIST, ("uv.lock", "")], "uv run pytest", true, "");
        check(
            &[IGNORED, ("requirements.txt", "\n# none\n")],
            "python3 -m pytest",
            true,
            "",
        );
        check(
            &[
                IGNORED,
                LIST,
                ("requirements-dev.txt", "mypy\n"),
                ("venv/pyvenv.cfg", ""),
            ],
            "python3 -m pytest",
            true,
            "python3 -m venv venv && venv/bin/pip install -r requirements.txt -r \
             requirements-dev.txt; venv/bin/python -m pytest",
        );
        let project = "[project]\nname = \"a\"\n[project.optional-dependencies]\ndev = [\"pytest\"]\n[tool.x]\ntest = 1\n";
        check(
            &[IGNORED, MADE, ("pyproject.toml", project)],
            "python3 -m pytest",
            true,
            "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]'; .venv/bin/python -m pytest",
        );
        check(
            &[IGNORED, ("pyproject.toml", project)],
            "python3 -m pytest",
            true,
            "",
        );
        check(&[IGNORED, MADE], "python3 -m pytest", true, "note");
    }
}
