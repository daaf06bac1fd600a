//! Small projects of several kinds, and their way from `runner init` to `runner land` with the
//! real tools. What they need comes from the repository itself or from folders beside it.
#![allow(dead_code)] // Each test file uses what it needs.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use runner_testkit::TestRepo;
use serde_json::Value;

use crate::agent_support::{hide_program, put_first_on_path};
use crate::scenario::{GOAL, bare, plan};

/// A repository with these files, committed but for what its `.gitignore` names.
pub(crate) fn project(files: &[(&str, &str)]) -> TestRepo {
    let repo = bare();
    for (name, text) in files {
        repo.write(name, text);
    }
    repo.commit_all("Add the project");
    repo
}

pub(crate) fn init(repo: &TestRepo, more: &[&str]) -> Value {
    let args = [&["init", "--json"], more].concat();
    let value = repo.runner(&args).success().json();
    assert!(repo.private_checkouts().is_empty());
    value
}

#[track_caller]
pub(crate) fn expect(value: &Value, result: &str) {
    assert_eq!(value["trial"]["result"], result, "{value:#}");
}

/// Fails unless init proposed this setup and this guard, each as one line.
#[track_caller]
pub(crate) fn expect_proposed(value: &Value, setup: &str, guard: &str) {
    let line = |argv: &Value| {
        let words = argv.as_array().into_iter().flatten();
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        words.join(" ")
    };
    let found = (
        line(&value["setup"]["command"]),
        line(&value["guard"]["command"]),
    );
    assert_eq!(found, (setup.to_owned(), guard.to_owned()), "{value:#}");
}

/// Runs a program in a folder of the repository, as the user does.
#[track_caller]
pub(crate) fn run(repo: &TestRepo, folder: &str, argv: &[&str]) {
    let mut command = repo.hermetic(argv[0]);
    command.args(&argv[1..]).current_dir(repo.path(folder));
    repo.spawn(command).wait().success();
}

/// The folder of something that `cargo xtask setup` installs for tests.
pub(crate) fn installed(name: &str) -> PathBuf {
    let Some(all) = std::env::var_os("RUNNER_MANAGERS") else {
        panic!(
            "RUNNER_MANAGERS does not name the folder of the package managers: `cargo xtask setup` installs them and prints the variable, `cargo xtask ci` sets it"
        );
    };
    let folder = PathBuf::from(all).join(name);
    assert!(
        folder.join("installed").is_file(),
        "{name} is not in {}: run `cargo xtask setup`",
        folder.display()
    );
    folder
}

/// Puts a package manager of ours first on the PATH of everything that the repository starts.
pub(crate) fn take(repo: &mut TestRepo, name: &str) {
    let bin = installed(name).join("bin");
    put_first_on_path(repo, &bin);
}

/// Fails unless the system has this program.
pub(crate) fn need(program: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(is_there, "there is no {program}: run `cargo xtask setup`");
}

/// What confines the sessions and guards of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoryBox {
    Bubblewrap,
    Landlock,
    Off,
}

impl StoryBox {
    /// The word in `meta.json`.
    fn word(self) -> &'static str {
        match self {
            StoryBox::Bubblewrap => "bubblewrap",
            StoryBox::Landlock => "landlock",
            StoryBox::Off => "none",
        }
    }
}

/// Runs `init`, which must be green, takes its proposals, and goes on until the work of a session
/// has landed and its proof holds. The session and each verdict need what setup makes. What
/// `init` said.
pub(crate) fn from_init_to_land(mut repo: TestRepo, inside: StoryBox, init_args: &[&str]) -> Value {
    if inside == StoryBox::Landlock {
        hide_program(&mut repo, "bwrap");
    }
    let value = repo
        .runner(&[init_args, &["init", "--json"]].concat())
        .success()
        .json();
    expect(&value, "green");
    let guard = &value["guard"]["command"];
    repo.config(|config| {
        config.set("guard.command", guard.clone());
        config.set("guard.keep", value["keep"].clone());
        config.set("workspace.include", value["include"].clone());
        let setup = &value["setup"]["command"];
        if !setup.is_null() {
            config.set("workspace.setup", setup.clone());
        }
        if inside != StoryBox::Off {
            config.set("sandbox.mode", "auto");
        }
    });
    repo.write_config();
    repo.write(".runner/GOAL.md", GOAL);
    repo.agent(&format!(
        "{}\necho done > \"$RUNNER_NODE_ID.txt\"; out done 'wrote it'",
        tried_by_agent(guard)
    ));
    // One story of each tool is whole: the base is tried, and a first leaf passes in a checkout that
    // stays warm for the next.
    if inside == StoryBox::Bubblewrap {
        repo.runner(&["start"]).success();
        plan(&repo, &["a", "b"]);
    } else {
        repo.runner(&["start", "--no-guard-check"]).success();
        plan(&repo, &["a"]);
    }
    let run = repo.runner(&["loop"]);
    assert_eq!(
        run.code,
        Some(0),
        "{}\n{}",
        run.describe(),
        last_words(&repo)
    );
    assert_eq!(repo.meta(2)["sandbox"], inside.word());
    repo.runner(&["land"]).success();
    assert_eq!(repo.git(&["show", "HEAD:a.txt"]), "done");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert!(repo.private_checkouts().is_empty());
    repo.runner(&["verify", "a"]).success();
    value
}

/// What agent, setup and guard of the first session printed.
fn last_words(repo: &TestRepo) -> String {
    let mut words = String::new();
    for name in ["stderr.log", "setup.log", "guard.log"] {
        let path = repo.iteration(2).join(name);
        let text = fs::read_to_string(path).unwrap_or_default();
        let _ = writeln!(words, "--- {name}\n{text}");
    }
    words
}

/// The part of an agent's script in which it runs the guard itself; without it, nothing is done.
pub(crate) fn tried_by_agent(guard: &Value) -> String {
    let words = guard.as_array().into_iter().flatten();
    let quoted = words
        .filter_map(Value::as_str)
        .map(|word| format!("'{word}'"));
    let line = quoted.collect::<Vec<_>>().join(" ");
    format!("said=$({line} 2>&1) || {{ echo \"$said\" >&2; exit 3; }}")
}

// --- Node

pub(crate) const PACKAGE: &str = r#"{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"},
    "dependencies": {"left": "file:./left"}}"#;
pub(crate) const LEFT: &str = r#"{"name": "left", "version": "1.0.0", "main": "index.js"}"#;
pub(crate) const TEST: &str = "if (require('left') !== 1) process.exit(3);\n";

/// A package in a folder that needs another one.
pub(crate) fn node(prefix: &str) -> TestRepo {
    let at = |name: &str| format!("{prefix}{name}");
    let files = [
        (".gitignore".to_owned(), "node_modules/\n"),
        (at("package.json"), PACKAGE),
        (at("left/package.json"), LEFT),
        (at("left/index.js"), "module.exports = 1;\n"),
        (at("test.js"), TEST),
    ];
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), *text))
        .collect();
    project(&files)
}

pub(crate) const NPM: &[&str] = &["npm", "install", "--no-audit", "--no-fund", "--offline"];

// --- Python

/// Where the package of [`write_wheel`] lies.
pub(crate) const WHEEL: &str = "wheels/thing-1.0-py3-none-any.whl";

/// A package as pip takes it without building anything.
pub(crate) fn write_wheel(repo: &TestRepo) {
    let script = "import sys, zipfile\n\
        wheel = zipfile.ZipFile(sys.argv[1], 'w')\n\
        wheel.writestr('thing.py', 'VALUE = 1\\n')\n\
        info = 'thing-1.0.dist-info/'\n\
        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n')\n\
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        wheel.writestr(info + 'RECORD', '')\n\
        wheel.close()\n";
    fs::create_dir_all(repo.path(WHEEL).parent().unwrap()).unwrap();
    run(repo, "", &["python3", "-c", script, WHEEL]);
}

pub(crate) const PYTHON_TEST: &str = "import unittest, thing\n\
    class T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(thing.VALUE, 1)\n";

/// A project that needs the package of [`write_wheel`], with its tests and these files.
pub(crate) fn python(files: &[(&str, &str)]) -> TestRepo {
    let repo = project(&[files, &[("tests/test_thing.py", PYTHON_TEST)]].concat());
    write_wheel(&repo);
    repo.commit_all("Add what it needs");
    repo
}
