//! The first minutes with a project of one's own: what `init` writes works there, and each command
//! tells the next.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use runner_testkit::{TestRepo, write_program};
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// An opencode that does one thing, and reports it where the prompt says.
const AGENT: &str = r#"#!/bin/sh
prompt=$(cat)
path=$(printf '%s' "$prompt" | sed -n 's/.*write `\([^`]*output.json\)`.*/\1/p')
WORK
printf '{"status":"done","summary":"did it"}' >"$path"
"#;

/// A repository with these files, a home whose tools are the machine's, and the agent on its PATH.
fn project(files: &[(&str, &str)], work: &str) -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    for (path, text) in files {
        repo.write(path, text);
    }
    repo.commit_all("the project");
    let bin = repo.root().join("bin");
    std::fs::create_dir(&bin).unwrap();
    write_program(&bin.join("opencode"), &AGENT.replace("WORK", work));
    let path = std::env::var("PATH").unwrap();
    repo.env("PATH", format!("{}:{path}", bin.display()));
    repo.machine_toolchains();
    repo
}

/// From the files to a leaf that passed by the guard which `init` chose.
#[track_caller]
fn works(repo: &TestRepo, guard: &[&str], protected: &[&str], watched: &str) {
    let chosen = repo
        .runner(&[
            "init",
            "--json",
            "--goal",
            "Say hello",
            "--backend",
            "opencode",
        ])
        .success()
        .json();
    assert_eq!(chosen["guard"]["command"], json!(guard), "{chosen}");
    assert_eq!(chosen["protected"], json!(protected), "{chosen}");
    assert_eq!(chosen["missing_program"], json!(null), "{chosen}");
    let globs = chosen["watched"].as_array().unwrap();
    assert!(
        watched.is_empty() && globs.is_empty() || globs.contains(&json!(watched)),
        "{chosen}"
    );
    repo.runner(&["start"]).success();
    let run = repo.runner(&["loop", "--steps", "1"]);
    let meta = repo.meta(1);
    assert_eq!(run.code, Some(0), "{}\n{meta:#}", run.describe());
    assert_eq!(meta["guard"], "pass", "{}\n{meta:#}", run.describe());
    repo.assert_clean();
}

#[test]
fn in_a_rust_project() {
    let repo = project(
        &[
            (
                "Cargo.toml",
                "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
            ),
            (".gitignore", "target\nCargo.lock\n"),
            (
                "src/lib.rs",
                "pub fn hello() -> &'static str { \"hello\" }\n",
            ),
            (
                "tests/says.rs",
                "#[test]\nfn says() { assert_eq!(hello::hello(), \"hello\"); }\n",
            ),
        ],
        "echo '//! Says it.' >src/new; cat src/lib.rs >>src/new; mv src/new src/lib.rs",
    );
    let protected = [
        ".cargo/config",
        ".cargo/config.toml",
        "rust-toolchain",
        "rust-toolchain.toml",
        ".config/nextest.toml",
    ];
    works(&repo, &["cargo", "test"], &protected, "**/tests/**");
}

#[test]
fn in_a_node_project() {
    let repo = project(
        &[
            (
                "package.json",
                "{\"scripts\": {\"test\": \"node --test\"}}\n",
            ),
            (
                "hello.test.js",
                "require('node:test')('hello', () => {});\n",
            ),
        ],
        "echo 'module.exports = 1' >hello.js",
    );
    let npm = [
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        "pnpm-workspace.yaml",
        "bunfig.toml",
        "**/node_modules/**",
    ];
    works(&repo, &["npm", "test"], &npm, "**/*.test.*");
}

#[test]
fn in_a_python_project() {
    let test = "import unittest\n\n\nclass Hello(unittest.TestCase):\n    def test_it(self):\n        pass\n";
    let repo = project(
        &[
            (
                "pyproject.toml",
                "[project]\nname = \"hello\"\nversion = \"1\"\n",
            ),
            ("tests/__init__.py", ""),
            ("tests/test_hello.py", test),
            (".gitignore", "__pycache__\n"),
        ],
        "echo 'HELLO = 1' >hello.py",
    );
    let protected = [
        "**/pytest.ini",
        "**/.pytest.ini",
        "**/pytest.toml",
        "**/.pytest.toml",
        "tox.ini",
        "noxfile.py",
        "setup.cfg",
        "conftest.py",
        "sitecustomize.py",
        "usercustomize.py",
        "**/*.egg-info/entry_points.txt",
        "**/*.dist-info/entry_points.txt",
        "@python-modules",
    ];
    works(
        &repo,
        &["python3", "-m", "unittest"],
        &protected,
        "**/tests/**",
    );
}

/// With a stand-in for go, which is not everywhere: it wants the words, and a test file.
#[test]
fn in_a_go_project() {
    let repo = project(
        &[
            ("go.mod", "module hello\n"),
            ("hello_test.go", "package hello\n"),
        ],
        "echo 'package hello' >hello.go",
    );
    write_program(
        &repo.root().join("bin/go"),
        "#!/bin/sh\n[ \"$*\" = 'test ./...' ] && [ -f hello_test.go ]\n",
    );
    works(
        &repo,
        &["go", "test", "./..."],
        &["go.work", "vendor/**", "*/**/go.mod"],
        "**/*_test.go",
    );
}

/// Nothing to check yet: the session that first passes may write how it is done.
#[test]
fn in_an_empty_project() {
    let mut repo = project(
        &[],
        "printf 'ci:\\n\\ttest -f hello.txt\\n' >Makefile; echo hello >hello.txt",
    );
    // Of the programs that could be chosen, only make is there.
    let bin = repo.root().join("bin");
    for tool in ["make", "sh", "cat", "sed", "test", "git", "mv", "bwrap"] {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(tool))
            .find(|file| file.is_file());
        if let Some(found) = found {
            std::os::unix::fs::symlink(found, bin.join(tool)).unwrap();
        }
    }
    repo.env("PATH", bin.display().to_string());
    let makefiles = ["Makefile", "makefile", "GNUmakefile"];
    works(&repo, &["make", "ci"], &makefiles, "");
}

/// Four commands, each telling the next.
#[test]
fn from_a_clone_to_the_first_iteration() {
    let origin = project(&[("Makefile", "ci:\n\ttrue\n")], "echo hi >hi.txt");
    let clone = origin.root().join("clone");
    let here = clone.display().to_string();
    origin.git(&["clone", "--quiet", ".", &here]);
    let run = |words: &[&str]| origin.runner(&[&["-C", &here], words].concat()).success();

    let told = run(&["init", "--goal", "Say hello"]);
    for words in [
        "guard:     make ci (Makefile has a recipe `ci`)",
        "protected: Makefile makefile GNUmakefile",
        "opencode is installed",
        "then run `runner start`",
    ] {
        assert!(told.stderr.contains(words), "{words}: {}", told.describe());
    }
    let told = run(&["start"]);
    assert!(told.stderr.contains("`runner loop`"), "{}", told.describe());
    let told = run(&["loop"]);
    assert!(told.stderr.contains("complete"), "{}", told.describe());
    assert!(told.stderr.contains("runner report"), "{}", told.describe());
    assert!(clone.join("hi.txt").is_file());
}

#[test]
fn a_goal_of_several_lines_and_none() {
    let repo = project(&[], "true");
    repo.runner(&["init", "--goal", "Say hello\nIn every language.\n"])
        .success();
    assert_eq!(
        repo.read(".runner/GOAL.md"),
        "# Say hello\n\nIn every language.\n"
    );
    let run = repo.runner(&["init", "--force", "--goal", " "]).code(1);
    assert!(
        run.stderr.contains("--goal says nothing"),
        "{}",
        run.describe()
    );
    // A guard that cannot be started is said at once.
    let run = repo
        .runner(&["init", "--force", "--guard", "no-such-check"])
        .success();
    assert!(
        run.stderr
            .contains("`no-such-check` cannot be started here"),
        "{}",
        run.describe()
    );
}

/// The example of docs/agents.md, word for word.
#[test]
fn the_agent_of_the_documentation() {
    let page = include_str!("../../../docs/agents.md");
    let page = &page[page.find("## Any other program").unwrap()..];
    let block = |language: &str| {
        let begin = page.find(&format!("```{language}\n")).unwrap() + language.len() + 4;
        let length = page[begin..].find("```").unwrap();
        &page[begin..begin + length]
    };
    let script = block("sh");
    assert!(script.contains("RUNNER_OUTPUT_PATH"), "{script}");
    assert!(
        script.lines().count() <= 12,
        "ten lines, a head and a remark"
    );
    let repo = project(&[("agent.sh", script)], "true");
    repo.runner(&["init", "--goal", "Write the file hello.txt"])
        .success();
    repo.write(".runner/state/config.toml", block("toml"));
    repo.runner(&["start"]).success();
    let run = repo.runner(&["loop", "--json"]).success();
    assert_eq!(run.json_lines().last().unwrap()["status"], "complete");
    assert!(repo.read("hello.txt").ends_with("for root\n"));
    let stream = std::fs::read_to_string(repo.iteration(1).join("stream.jsonl")).unwrap();
    assert!(stream.contains("write hello.txt"), "{stream}");
}
