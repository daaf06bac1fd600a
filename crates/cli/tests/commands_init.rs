//! `runner init`: the layout, what it finds out about a project, and what it
//! does where a `.runner/` is already.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::os::unix::fs::PermissionsExt as _;

use runner_testkit::TestRepo;
use scenario::{
    BIN, GOAL, STATE_FILES, assert_same, bare, error_code, human_error, picture, started, step,
};
use serde_json::{Value, json};

/// Every file below `.runner/`, sorted; folders end with `/`.
fn layout(repo: &TestRepo) -> Vec<String> {
    fn visit(folder: &std::path::Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let name = format!("{prefix}{}", entry.file_name().display());
            if entry.path().is_dir() {
                let before = found.len();
                visit(&entry.path(), &format!("{name}/"), found);
                if found.len() == before {
                    found.push(format!("{name}/"));
                }
            } else {
                found.push(name);
            }
        }
    }
    let mut found = Vec::new();
    visit(&repo.path(".runner"), ".runner/", &mut found);
    found.sort();
    found
}

fn init(repo: &TestRepo, more: &[&str]) -> Value {
    let value = repo
        .runner(&[&["init", "--json"], more].concat())
        .success()
        .json();
    assert_eq!(value["schema_version"], 1, "{value}");
    value
}

/// A key of the config that was written.
fn config(repo: &TestRepo, table: &str, key: &str) -> String {
    let text = repo.read(".runner/state/config.toml");
    let section = text
        .split_once(&format!("\n[{table}]\n"))
        .map_or_else(|| panic!("no [{table}] in\n{text}"), |(_, rest)| rest);
    let prefix = format!("{key} = ");
    let value = section.lines().find_map(|line| line.strip_prefix(&prefix));
    value
        .unwrap_or_else(|| panic!("no {key} in\n{section}"))
        .to_owned()
}

#[test]
fn makes_exactly_this_layout() {
    let repo = bare();
    let value = init(&repo, &["--backend", "command", "--guard", "true"]);
    let mut written: Vec<&str> = value["written"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    written.sort_unstable();
    assert_eq!(written, STATE_FILES);
    let mut expected: Vec<String> = STATE_FILES.map(str::to_owned).into();
    // It ignores itself: on another branch nothing else would.
    expected.push(".runner/iterations/.gitignore".to_owned());
    expected.sort();
    assert_eq!(layout(&repo), expected);

    for ignored in ["iterations/", "context/", "fleet/"] {
        assert!(
            repo.read(".runner/.gitignore")
                .lines()
                .any(|line| line == ignored),
            "{ignored}"
        );
    }
    assert_eq!(
        repo.read(".runner/.gitattributes"),
        "* -text !eol -ident -filter !working-tree-encoding -diff\n"
    );
    assert_eq!(repo.read(".runner/state/assumptions.md"), "");
    assert_eq!(repo.read(".runner/state/questions.md"), "");
    assert_eq!(
        repo.run_state(),
        json!({"run_id": null, "next_iter": 1, "last_status": null, "last_summary": null,
               "last_guard": null, "last_node_id": null})
    );
    let tree = repo.tree();
    assert_eq!(
        (&tree["id"], &tree["children"]),
        (&json!("root"), &json!([]))
    );
    assert_eq!(
        (&tree["passes"], &tree["attempts"]),
        (&json!(false), &json!(0))
    );
    for (name, file) in [
        ("tree", "schema.json"),
        ("agent_output", "agent_output.schema.json"),
    ] {
        let known = repo.runner(&["schema", name]).success().stdout;
        assert_eq!(repo.read(format!(".runner/state/{file}")), known);
    }
    // Nothing is committed, and nothing but .runner/ is new.
    assert_eq!(repo.subjects(), ["Begin"]);
    assert_eq!(repo.git(&["status", "--porcelain"]), "?? .runner/");
}

#[test]
fn the_files_are_valid_and_say_what_is_left_to_do() {
    let repo = bare();
    let run = repo
        .runner(&["init", "--backend", "command", "--guard", "true"])
        .success();
    assert_eq!(run.stdout, "");
    for words in [
        "guard:     true (as you said)",
        "backend:   command (as you said)",
        "GOAL.md",
    ] {
        assert!(run.stderr.contains(words), "{words:?}: {}", run.describe());
    }
    // Only the agent's command is still missing, and the words name the key.
    let run = repo.runner(&["validate"]).code(1);
    assert_eq!(
        run.stderr.matches("error:").count(),
        1,
        "{}",
        run.describe()
    );
    assert!(
        run.stderr.contains("executor.command"),
        "{}",
        run.describe()
    );
}

#[test]
fn refuses_to_overwrite_and_changes_nothing() {
    let repo = started("out done x", &["true"]);
    let before = picture(&repo);
    let run = repo.runner(&["init"]);
    human_error(&run, ".runner exists already", "--force");
    assert!(run.stderr.contains("--upgrade"), "{}", run.describe());
    assert_eq!(
        error_code(&repo.runner(&["init", "--json"]).code(1)),
        "layout"
    );
    assert_same(&repo, &before, "a failed command");
}

#[test]
fn force_replaces_and_keeps_a_copy() {
    let mut repo = started("out retry 'half'", &["true"]);
    step(&repo);
    repo.write(".runner/.gitignore", "iterations/\n# mine\n");
    let old: Vec<(&str, String)> = ["config.toml", "tree.json", "run_state.json"]
        .map(|name| (name, repo.read(format!(".runner/state/{name}"))))
        .into();
    let value = init(
        &repo,
        &["--force", "--backend", "command", "--guard", "true"],
    );
    let folder = value["replaced"].as_str().unwrap().to_owned();
    for (name, text) in old {
        assert_eq!(repo.read(format!("{folder}/{name}")), text, "{name}");
        assert_ne!(repo.read(format!(".runner/state/{name}")), text, "{name}");
    }
    assert_eq!(repo.read(format!("{folder}/GOAL.md")), GOAL);
    assert_eq!(
        repo.read(format!("{folder}/.gitignore")),
        "iterations/\n# mine\n"
    );
    assert_eq!(repo.run_state()["run_id"], Value::Null);
    assert!(
        repo.exists(".runner/iterations/demo/1/meta.json"),
        "logs stay"
    );
    // The copies are local: git does not see them.
    assert!(
        !repo
            .git(&["status", "--porcelain", "-uall"])
            .contains("replaced")
    );

    // A second copy goes beside the first.
    repo.write(".runner/GOAL.md", "# Another\n");
    let value = init(
        &repo,
        &["--force", "--backend", "command", "--guard", "false"],
    );
    assert_ne!(value["replaced"], folder.as_str());
    // And a new run can begin from here.
    repo.config(|config| {
        config.set("max_iterations", 5);
    });
    repo.write_config();
    repo.write(".runner/GOAL.md", "---\nid: again\n---\n# Again\n");
    repo.runner(&["start"]).success();
    assert_eq!(repo.run_id(), "again");
    repo.assert_clean();
}

#[test]
fn upgrade_renews_what_is_the_runners_and_keeps_the_rest() {
    let repo = started("out retry 'half'", &["true"]);
    step(&repo);
    repo.write(".runner/state/schema.json", "{\"an\": \"older one\"}\n");
    repo.write(".runner/.gitignore", "iterations/\n");
    std::fs::remove_file(repo.path(".runner/.gitattributes")).unwrap();
    std::fs::remove_file(repo.path(".runner/state/questions.md")).unwrap();
    repo.commit_all("an older runner was here");
    let kept = [
        ".runner/GOAL.md",
        ".runner/state/config.toml",
        ".runner/state/tree.json",
    ]
    .map(|name| (name, repo.read(name)));

    // The drift is refused by everything that would work with it.
    for command in ["step", "loop", "start", "validate"] {
        let run = repo.runner(&[command]);
        human_error(&run, "schema.json", "runner init --upgrade");
    }
    assert_eq!(repo.agent_calls().len(), 1);

    let value = init(&repo, &["--upgrade"]);
    let mut written: Vec<&str> = value["written"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    written.sort_unstable();
    assert_eq!(
        written,
        [
            ".runner/.gitattributes",
            ".runner/.gitignore",
            ".runner/state/questions.md",
            ".runner/state/schema.json",
        ]
    );
    assert_eq!(value["replaced"], Value::Null);
    for (name, text) in kept {
        assert_eq!(repo.read(name), text, "{name}");
    }
    repo.runner(&["validate"]).success();
    // Start commits it, and the run goes on where it was.
    repo.runner(&["start"]).success();
    repo.assert_clean();
    assert_eq!(step(&repo)["iter"], 2);

    let run = repo.runner(&["init", "--upgrade"]).success();
    assert!(run.stderr.contains("up to date"), "{}", run.describe());
    assert_eq!(init(&repo, &["--upgrade"])["written"], json!([]));
}

#[test]
fn upgrade_fills_an_empty_or_missing_folder() {
    let repo = bare();
    assert_eq!(
        init(&repo, &["--upgrade"])["written"]
            .as_array()
            .unwrap()
            .len(),
        10
    );
    std::fs::remove_dir_all(repo.path(".runner/state")).unwrap();
    repo.write(".runner/GOAL.md", GOAL);
    human_error(&repo.runner(&["validate"]), "config.toml", "init --upgrade");
    init(&repo, &["--upgrade"]);
    assert_eq!(repo.read(".runner/GOAL.md"), GOAL);
    assert!(repo.exists(".runner/state/tree.json"));
}

#[test]
fn needs_a_git_repository() {
    let repo = bare();
    let outside = repo.root().join("tmp");
    let mut cmd = repo.runner_cmd(&["init"]);
    cmd.current_dir(&outside);
    human_error(
        &repo.spawn(cmd).wait(),
        "is not in a git repository",
        "git init",
    );
    assert!(!outside.join(".runner").exists());
    let missing = repo.root().join("nowhere").display().to_string();
    human_error(&repo.runner(&["-C", &missing, "init"]), "nowhere", "");
}

#[test]
fn goes_to_the_root_of_the_work_tree() {
    let repo = bare();
    repo.write("a/b/c", "");
    let deep = repo.path("a/b");
    let mut cmd = repo.runner_cmd(&["init", "--json"]);
    cmd.current_dir(&deep);
    let value = repo.spawn(cmd).wait().success().json();
    assert_eq!(
        value["root"],
        repo.path("").display().to_string().trim_end_matches('/')
    );
    assert!(repo.exists(".runner/state/tree.json"));
    assert!(!deep.join(".runner").exists());
    // Also in a linked work tree, where `.git` is a file.
    repo.git(&["worktree", "add", "-q", "../linked"]);
    let linked = repo.root().join("linked").display().to_string();
    repo.runner(&["-C", &linked, "init"]).success();
    assert!(repo.root().join("linked/.runner/state/tree.json").is_file());
}

#[test]
fn finds_the_guard() {
    let cases: [(&str, &str, &str, &str); 10] = [
        (
            "justfile",
            "ci:\n\ttrue\n",
            "[\"just\", \"ci\"]",
            "justfile",
        ),
        (
            ".justfile",
            "[private]\nci target='x':\n\ttrue\n",
            "[\"just\", \"ci\"]",
            ".justfile",
        ),
        (
            "Makefile",
            ".PHONY: ci\nci: lint\n\ttrue\n",
            "[\"make\", \"ci\"]",
            "Makefile",
        ),
        (
            "Makefile",
            "test:\n\ttrue\n",
            "[\"make\", \"test\"]",
            "Makefile",
        ),
        (
            "Cargo.toml",
            "[package]\n",
            "[\"cargo\", \"test\"]",
            "Cargo.toml",
        ),
        (
            "package.json",
            "{\"scripts\": {\"test\": \"x\"}}",
            "[\"npm\", \"test\"]",
            "package.json",
        ),
        (
            "go.mod",
            "module x\n",
            "[\"go\", \"test\", \"./...\"]",
            "go.mod",
        ),
        (
            "pyproject.toml",
            "",
            "[\"python3\", \"-m\", \"pytest\"]",
            "pyproject.toml",
        ),
        (
            "justfile",
            "build:\n\ttrue\n\ntest:\n\ttrue\n",
            "[\"just\", \"test\"]",
            "recipe `test`",
        ),
        ("README", "", " \"ci\"]", "nothing was found"),
    ];
    for (file, text, guard, why) in cases {
        let repo = bare();
        repo.write(file, text);
        let run = repo.runner(&["init"]).success();
        let chosen = config(&repo, "guard", "command");
        assert!(chosen.ends_with(guard), "{file} {text:?}: {chosen}");
        assert!(run.stderr.contains("guard: "), "{}", run.describe());
        assert!(run.stderr.contains(why), "{file}: {}", run.describe());
        let protected = config(&repo, "guard", "protected");
        if guard.contains("just") {
            assert!(protected.contains("\"justfile\""), "{protected}");
        } else if guard.contains("make") {
            assert!(protected.contains("\"Makefile\""), "{protected}");
        }
    }
}

#[test]
fn takes_the_guard_and_the_backend_that_it_is_told() {
    let repo = bare();
    repo.write("justfile", "ci:\n\ttrue\n");
    let line = "sh -c 'echo \"a b\" && ./check.sh'";
    let value = init(&repo, &["--guard", line, "--backend", "claude"]);
    let argv = json!(["sh", "-c", "echo \"a b\" && ./check.sh"]);
    assert_eq!(value["guard"]["command"], argv);
    assert_eq!(value["backend"]["name"], "claude");
    let written = config(&repo, "guard", "command").replace('\'', "\"");
    assert!(written.contains("check.sh"), "{written}");
    assert_eq!(config(&repo, "executor", "backend"), "\"claude\"");

    // The guard's own script is protected.
    for (line, script) in [
        ("./scripts/check.sh --all", "scripts/check.sh"),
        ("sh ci.sh", "ci.sh"),
    ] {
        init(&repo, &["--force", "--guard", line]);
        let protected = config(&repo, "guard", "protected");
        assert!(protected.contains(&format!("\"{script}\"")), "{protected}");
    }

    let before = picture(&repo);
    for wrong in [["--guard", ""], ["--guard", "'open"], ["--backend", "gpt"]] {
        let run = repo.runner(&[&["init", "--force"], &wrong[..]].concat());
        human_error(&run, wrong[1], "");
        assert!(run.stderr.contains("hint: "), "{}", run.describe());
    }
    assert_same(&repo, &before, "a failed command");
}

#[test]
fn finds_an_installed_agent() {
    let mut repo = TestRepo::new(BIN);
    for (name, backend) in [
        ("opencode", "opencode"),
        ("claude", "claude"),
        ("codex", "codex"),
    ] {
        // Found one after the other: the later ones in this list come first.
        let bin = repo.root().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bin.join(name), mode).unwrap();
        repo.env("PATH", &bin);
        let value = init(&repo, &["--force"]);
        assert_eq!(value["backend"]["name"], backend);
        assert!(
            value["backend"]["why"]
                .as_str()
                .unwrap()
                .contains("installed"),
            "{value}"
        );
    }
}
