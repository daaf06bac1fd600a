//! Case files: what they may say, and what is said about those that say something else.

use std::path::Path;

use super::*;

const GOOD: &str = "[case]\nid = \"a\"\ngoal = \"# Do it\\n\\nAll of it.\"\n";
const CHECKS: &str = "[[checks]]\ntype = \"runner_completed\"\n";

fn read(text: &str) -> Result<EvalCase, Vec<CaseProblem>> {
    parse(Path::new("a.toml"), text)
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let problems = read(text).expect_err(text);
    let words: Vec<String> = problems
        .iter()
        .map(|it| format!("{it} ({})", it.hint.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(words, expected, "{text}");
}

#[test]
fn the_sample_is_a_case() {
    let case = read(sample_case()).unwrap();
    assert_eq!((&*case.id, case.title()), ("hello", "A greeting"));
    assert_eq!(case.checks.len(), 2);
    let (text, config) = case.settings.resolve(&CaseOverrides::default()).unwrap();
    assert_eq!(config.max_iterations, 5);
    assert_eq!(config.guard.command, ["sh", "ci.sh"]);
    assert!(text.contains("[executor]"), "{text}");
}

#[test]
fn every_key_is_read() {
    let text = r#"
[case]
id = "all"
goal = "g"
expect = "stuck"
justfile = "ci:\n\ttrue\n"
requires = ["go"]
setup = ["sh", "-c", "true"]
timeout_secs = 7
[config]
max_iterations = 3
[config.guard]
command = ["just", "ci"]
[executor]
backend = "claude"
model = "m"
[env]
A = "1"
[files]
"src/a b" = "x"
[source]
repository = "../.."
commit = "abc"
tests_from = "def"
tests = ["tests/a"]
[[checks]]
type = "file_exists"
path = "a"
[[checks]]
type = "file_contains"
path = "b/c"
text = "t"
[[checks]]
type = "command_succeeds"
cmd = ["true"]
[[checks]]
type = "command_output"
cmd = ["echo", "1"]
equals = "1"
timeout_secs = 5
[[checks]]
type = "tree"
node = "n"
passes = false
min_depth = 3
"#;
    let case = parse(Path::new("/p/eval/cases/all.toml"), text).unwrap();
    assert_eq!(case.expect, EvalOutcome::Stuck);
    assert_eq!(case.files["src/a b"], "x");
    assert_eq!((case.timeout_secs, case.requires.len()), (7, 1));
    let source = case.source.as_ref().unwrap();
    assert_eq!(source.repository, Path::new("/p/eval/cases/../.."));
    assert_eq!(
        case.checks[2],
        CaseCheck::CommandSucceeds {
            cmd: vec!["true".to_owned()],
            timeout_secs: CHECK_TIMEOUT_SECS
        }
    );
    let kinds: Vec<&str> = case.checks.iter().map(CaseCheck::kind).collect();
    assert_eq!(
        kinds,
        [
            "file_exists",
            "file_contains",
            "command_succeeds",
            "command_output",
            "tree"
        ]
    );
    let overrides = CaseOverrides {
        executor: Some(parse_executor("codex:other").unwrap()),
        ..CaseOverrides::default()
    };
    let (text, config) = case.settings.resolve(&overrides).unwrap();
    assert_eq!(config.executor.model, "other");
    assert_eq!(config.executor.env["A"], "1", "{text}");
}

#[test]
fn what_is_wrong_is_said_with_line_and_remedy() {
    refused(
        &format!("{GOOD}reqires = []\n{CHECKS}"),
        &["a.toml:4: case.reqires: unknown key (did you mean `case.requires`?)"],
    );
    refused(
        &format!("{GOOD}[cheks]\n{CHECKS}"),
        &["a.toml:4: cheks: unknown key (did you mean `checks`?)"],
    );
    refused(
        GOOD,
        &[
            "a.toml: checks: there are none: every outcome would be a success (add at least one, such as\n[[checks]]\ntype = \"runner_completed\")",
        ],
    );
    refused(
        &format!("checks = []\n{GOOD}"),
        &[
            "a.toml:1: checks: must not be empty (add at least one, such as\n[[checks]]\ntype = \"runner_completed\")",
        ],
    );
    refused(
        &format!("{GOOD}[[checks]]\ntype = \"file_exists\"\npath = \"../secret\"\n"),
        &[
            "a.toml:6: checks[0].path: `../secret` leads out of the workspace (name a file below the workspace, such as `src/main.rs`)",
        ],
    );
    refused(
        &format!(
            "{GOOD}[files]\n\"/etc/passwd\" = \"\"\n\".runner/GOAL.md\" = \"\"\n\".git/config\" = \"\"\n{CHECKS}"
        ),
        &[
            "a.toml:5: files./etc/passwd: `/etc/passwd` leads out of the workspace (name a file below the workspace, such as `src/main.rs`)",
            "a.toml:6: files..runner/GOAL.md: the files in .runner/ are made by `runner init` (use [config] and [executor] for what they say)",
            "a.toml:7: files..git/config: `.git/config` is inside git's own folder (leave .git to git)",
        ],
    );
    refused(
        &format!("{GOOD}[[checks]]\ntype = \"command_succeeds\"\ncmd = []\n"),
        &[
            "a.toml:6: checks[0].cmd: must not be empty (an argv, such as [\"go\", \"build\", \".\"])",
        ],
    );
    refused(
        &format!("{GOOD}[[checks]]\ntype = \"file_exist\"\npath = \"a\"\n"),
        &[
            "a.toml:5: checks[0].type: `file_exist` is not one of file_exists, file_contains, command_succeeds, command_output, runner_completed, tree (did you mean `file_exists`?)",
        ],
    );
    refused(
        &format!("{GOOD}[[checks]]\ntype = \"runner_completed\"\npath = \"a\"\n"),
        &[
            "a.toml:6: checks[0].path: unknown key for `runner_completed` (it takes none but `type`)",
        ],
    );
    refused(
        &format!("{GOOD}[[checks]]\ntype = \"tree\"\n"),
        &[
            "a.toml:5: checks[0].type: says nothing about the tree (for example: passes = true, or min_depth = 3)",
        ],
    );
    refused(
        &format!("[case]\nid = \"a b\"\ngoal = \"g\"\nexpect = \"succes\"\n{CHECKS}"),
        &[
            "a.toml:2: case.id: `a b` cannot name a case: it contains ` `, but only letters A-Z and a-z, digits, `.`, `_` and `-` are allowed (it names a folder and a branch: letters, digits, `.`, `_` and `-`)",
            "a.toml:4: case.expect: `succes` is not one of success, fail, stuck, error (did you mean `success`?)",
        ],
    );
    refused(
        "[case]\nid = \"a_latest\"\n[[checks]]\ntype = \"runner_completed\"\n",
        &[
            "a.toml:2: case.id: `a_latest` cannot name a case: it must not end with `_latest`, as the links to workspaces do (it names a folder and a branch: letters, digits, `.`, `_` and `-`)",
            "a.toml:2: case.goal: is missing (what shall be true in the end, in words)",
        ],
    );
    refused(
        &format!("{GOOD}[config]\nmax_iteration = 3\n[config.guard]\ncommand = []\n{CHECKS}"),
        &[
            "a.toml:5: config.max_iteration: unknown key (did you mean `max_iterations`?)",
            "a.toml:7: config.guard.command: must not be empty (name the command that proves the work, for example [\"just\", \"ci\"])",
        ],
    );
    refused(
        &format!("{GOOD}[executor]\nbackend = \"command\"\n{CHECKS}"),
        &["a.toml:4: executor.command: must not be empty when backend is `command` ()"],
    );
    refused(
        "[case\n",
        &[
            "a.toml:1: not valid TOML: unclosed table, expected `]` (a case begins with [case], an id and a goal; `runner eval init` writes one)",
        ],
    );
}

#[test]
fn executors_on_the_command_line() {
    let shown = |text: &str| match parse_executor(text) {
        Ok(table) => toml::Value::Table(table).to_string(),
        Err(error) => error.message,
    };
    for (text, expected) in [
        ("codex", r#"{ backend = "codex" }"#),
        ("claude:a:b", r#"{ backend = "claude", model = "a:b" }"#),
        (
            "command:sh 'my agent'",
            r#"{ backend = "command", command = ["sh", "my agent"] }"#,
        ),
        (
            "command",
            "--executor command: it does not say which command",
        ),
        ("gpt", "--executor: there is no backend \"gpt\""),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn two_cases_of_one_id_are_refused_and_all_problems_are_told() {
    let temp = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
    write("a.toml", &format!("{GOOD}{CHECKS}"));
    write("b.toml", &format!("\n{GOOD}{CHECKS}"));
    write("c.toml", "x = 1\n");
    write("notes.md", "no case");
    let library = CaseLibrary::load(temp.path()).unwrap();
    assert_eq!(library.cases.len(), 1);
    let words: Vec<String> = library
        .problems
        .iter()
        .map(|it| it.message.clone())
        .collect();
    assert_eq!(words[0], "the id `a` is used by a.toml too");
    assert_eq!(library.problems[0].line, Some(3));
    assert!(library.named(&[]).is_err());
    assert_eq!(library.named(&["a".to_owned()]).unwrap().len(), 1);
    let error = library.named(&["c".to_owned()]).unwrap_err();
    assert!(error.message.contains("c.toml"), "{error}");
    let error = library.named(&["aa".to_owned()]).unwrap_err();
    assert!(error.hint.unwrap().contains("did you mean `a`?"));
}
