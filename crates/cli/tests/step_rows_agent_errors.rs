//! The rows of "One step, exactly" in which the agent did what it may not do:
//! one attempt is used up, what it touched is restored, the rest of its work is
//! kept, and the next session is told.
#![allow(clippy::unwrap_used)] // In the helpers too: what is not there is a failure.

mod scenario;

use runner_testkit::TestRepo;
use scenario::record::{check, check_state};
use scenario::{GOAL, bare, changed_files, planned, started, step};
use serde_json::{Value, json};

const WORK: &str = "echo work >> work.txt; out done 'did it'";

/// A step that must be an agent error at `node`, with these words in everything
/// that the next session and a person read; the other work is kept.
#[track_caller]
fn expect_refusal(repo: &TestRepo, node: &str, words: &[&str]) -> Value {
    let attempts = repo.node(node)["attempts"].as_u64().unwrap();
    let mut expected = repo.tree();
    let told = step(repo);
    assert_eq!(
        [
            &told["node_id"],
            &told["status"],
            &told["guard"],
            &told["passes"]
        ],
        [
            &json!(node),
            &json!("retry"),
            &json!("skipped"),
            &json!(false)
        ],
        "{told:#}"
    );
    assert_eq!(told["attempts"], attempts + 1);
    let meta = check(repo, "agent_error", "retry", "skipped");
    check_state(repo, "retry", "skipped", node);
    set_attempts(&mut expected, node, attempts + 1);
    assert_eq!(
        repo.tree(),
        expected,
        "the tree is as it was, but for the attempt"
    );
    let iter = meta["iter"].as_u64().unwrap();
    let log = std::fs::read_to_string(repo.iteration(iter).join("agent_error.log")).unwrap();
    let summary = repo.run_state()["last_summary"]
        .as_str()
        .unwrap()
        .to_owned();
    for word in words {
        assert!(log.contains(word), "{word:?} in agent_error.log:\n{log}");
        assert!(
            summary.contains(word),
            "{word:?} in the feedback:\n{summary}"
        );
    }
    meta
}

fn set_attempts(node: &mut Value, id: &str, attempts: u64) {
    if node["id"] == id {
        node["attempts"] = json!(attempts);
    }
    for child in node["children"].as_array_mut().unwrap() {
        set_attempts(child, id, attempts);
    }
}

/// A file that the session read.
#[track_caller]
fn context_file(repo: &TestRepo, path: &str) -> String {
    std::fs::read_to_string(repo.workspace(path)).unwrap()
}

#[test]
fn files_of_the_runner() {
    let repo = started("", &["true"]);
    repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
    repo.runner(&["start"]).success();
    let mut node = repo.tree();
    node["max_attempts"] = json!(30);
    repo.write(
        ".runner/state/tree.json",
        serde_json::to_string_pretty(&node).unwrap(),
    );
    repo.commit_all("more attempts");
    for file in [
        ".runner/state/config.toml",
        ".runner/state/schema.json",
        ".runner/state/run_state.json",
        ".runner/state/agent_output.schema.json",
        ".runner/GOAL.md",
        ".runner/INSTRUCTIONS.md",
        ".runner/.gitignore",
        ".runner/.gitattributes",
    ] {
        let before = repo.read(file);
        for deed in ["echo more >>", "rm -f", "chmod +x"] {
            repo.agent(&format!("{deed} {file}; echo kept >> kept.txt; {WORK}"));
            expect_refusal(&repo, "root", &[file]);
            if !file.ends_with("run_state.json") {
                assert_eq!(repo.read(file), before, "{deed} {file}");
            }
            let changed = changed_files(&repo);
            assert!(changed.contains(&"kept.txt".to_owned()), "{changed:?}");
            assert!(!changed.contains(&file.to_owned()) || file.ends_with("run_state.json"));
        }
    }
    // Also when the agent has committed it, and several at once are all named.
    repo.agent(&format!(
        "echo 1 >> .runner/GOAL.md; rm .runner/.gitignore; git add -A; git commit -q -m mine; {WORK}"
    ));
    expect_refusal(&repo, "root", &[".runner/GOAL.md", ".runner/.gitignore"]);
    assert_eq!(repo.read(".runner/GOAL.md"), GOAL);
    // The next session reads it, and then it is done.
    repo.agent(WORK);
    step(&repo);
    let history = context_file(&repo, ".runner/context/history.md");
    assert!(
        history.contains(".runner/GOAL.md") && history.contains("did it"),
        "{history}"
    );
    assert_eq!(repo.tree()["passes"], true);
}

#[test]
fn a_new_standing_instruction_is_not_the_agents_to_give() {
    let repo = started(
        &format!("echo 'obey me' > .runner/INSTRUCTIONS.md; {WORK}"),
        &["true"],
    );
    expect_refusal(&repo, "root", &[".runner/INSTRUCTIONS.md"]);
    assert!(!repo.exists(".runner/INSTRUCTIONS.md"));
}

#[test]
fn a_repository_in_the_repository() {
    let repo = started(
        &format!("mkdir sub; cd sub; git init -q; echo 1 > in.txt; cd ..; {WORK}"),
        &["true"],
    );
    expect_refusal(&repo, "root", &["sub"]);
    assert!(!repo.exists("sub/.git"));
    assert_eq!(
        repo.git(&["ls-files", "sub"]),
        "sub/in.txt",
        "its files stay"
    );
    assert!(repo.iteration(1).join("quarantine/sub/.git/HEAD").is_file());
}

#[test]
fn passed_nodes_are_finished() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    step(&repo);
    let deeds = [
        "n(\"a\")[\"title\"] = \"Other\"",
        "n(\"a\")[\"goal\"] = \"Other\"",
        "n(\"a\")[\"acceptance\"] = [\"more\"]",
        "n(\"a\")[\"order\"] = 7",
    ];
    for deed in &deeds[..2] {
        repo.agent(&format!("tree_edit '{deed}'; {WORK}"));
        expect_refusal(&repo, "b", &["a"]);
    }
    let repo = planned(&["a", "b"], WORK, &["true"]);
    step(&repo);
    for deed in &deeds[2..] {
        repo.agent(&format!("tree_edit '{deed}'; {WORK}"));
        expect_refusal(&repo, "b", &["a"]);
    }
    // Moved, removed, and given a child.
    for deed in [
        "it = n(\"a\"); t[\"children\"].remove(it); n(\"b\")[\"children\"].append(it)",
        "t[\"children\"].remove(n(\"a\"))",
        "child(n(\"a\"), \"a1\", 1, \"More\")",
    ] {
        let repo = planned(&["a", "b"], WORK, &["true"]);
        step(&repo);
        repo.agent(&format!("tree_edit '{deed}'; {WORK}"));
        expect_refusal(&repo, "b", &["a"]);
        repo.agent(WORK);
        assert_eq!(step(&repo)["guard"], "pass", "{deed}");
    }
}

#[test]
fn work_may_not_shrink() {
    for deed in [
        "t[\"children\"].remove(n(\"b\"))",
        "t[\"children\"] = []",
        "n(\"b\")[\"id\"] = \"renamed\"",
    ] {
        let repo = planned(&["a", "b"], "", &["true"]);
        repo.agent(&format!(
            "tree_edit '{deed}'; echo kept > kept.txt; out retry x"
        ));
        expect_refusal(&repo, "a", &["b"]);
        assert!(repo.git(&["ls-files"]).contains("kept.txt"));
    }
}

#[test]
fn the_status_must_fit_the_tree() {
    let cases = [
        ("add_child a x 1 X; out done d", "done"),
        ("add_child a x 1 X; out retry d", "retry"),
        ("out decomposed d", "decomposed"),
        // Children elsewhere do not make the selected leaf decomposed.
        ("add_child b x 1 X; out decomposed d", "decomposed"),
        (
            "tree_edit 'n(\"a\")[\"goal\"] = \"easier\"'; out done d",
            "goal",
        ),
        (
            "tree_edit 'n(\"a\")[\"acceptance\"] = [\"nothing\"]'; out done d",
            "acceptance",
        ),
        (
            "tree_edit 'n(\"a\")[\"acceptance\"] = []; n(\"a\")[\"goal\"] = \"\"'; out done d",
            "goal",
        ),
    ];
    for (script, words) in cases {
        let repo = planned(&["a", "b"], "", &["true"]);
        repo.agent(script);
        expect_refusal(&repo, "a", &[words]);
        assert!(
            repo.git_try(&["log", "--grep=guard=pass", "--format=%s"])
                .unwrap()
                .is_empty()
        );
    }
    // With another status the same edit of the goal is allowed, and so is a title.
    let repo = planned(&["a", "b"], "", &["true"]);
    repo.agent("tree_edit 'n(\"a\")[\"goal\"] = \"clearer\"'; out retry d");
    step(&repo);
    check(&repo, "ok", "retry", "skipped");
    assert_eq!(repo.node("a")["goal"], "clearer");
    repo.agent("tree_edit 'n(\"a\")[\"title\"] = \"T\"'; out done d");
    assert_eq!(step(&repo)["guard"], "pass");
    // Children may be added elsewhere while the selected leaf is done.
    repo.agent("add_child b b1 1 B1; add_child root c 9 C; out decomposed d");
    assert_eq!(step(&repo)["status"], "decomposed");
}

#[test]
fn an_agent_error_at_the_last_attempt() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("max_attempts_default", 1);
    });
    repo.agent("echo 1 >> .runner/GOAL.md; out done x");
    repo.start_run(GOAL, &["true"]);
    expect_refusal(&repo, "root", &["GOAL.md"]);
    repo.runner(&["step"]).code(3);
}

#[test]
fn secrets_and_large_files_go_to_the_quarantine() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("commit.max_file_bytes", 1000);
        config.set("max_attempts_default", 20);
    });
    repo.write("deploy/server.pem", "an old one");
    repo.commit_all("a key that was there before");
    repo.start_run(GOAL, &["true"]);
    for (file, content) in [
        (".env", "echo SECRET > .env"),
        (
            "conf/.env.local",
            "mkdir -p conf; echo SECRET > conf/.env.local",
        ),
        ("a b.pem", "echo k > 'a b.pem'"),
        ("id_rsa.old", "echo k > id_rsa.old"),
        ("id_ed25519", "echo k > id_ed25519"),
        ("x/y.key", "mkdir -p x; echo k > x/y.key"),
        ("huge.bin", "head -c 1001 /dev/zero > huge.bin"),
    ] {
        repo.agent(&format!("{content}; echo kept >> kept.txt; {WORK}"));
        let meta = expect_refusal(&repo, "root", &[file]);
        let iter = meta["iter"].as_u64().unwrap();
        assert!(!repo.exists(file), "{file}");
        assert!(
            repo.iteration(iter).join("quarantine").join(file).is_file(),
            "{file}"
        );
        assert!(
            changed_files(&repo).contains(&"kept.txt".to_owned()),
            "{file}"
        );
    }
    // Committed by the agent itself: it is not in the history either.
    repo.agent(&format!(
        "echo SECRET > .env; git add -f .env; git commit -q -m x; {WORK}"
    ));
    expect_refusal(&repo, "root", &[".env"]);
    assert_eq!(repo.git(&["log", "--all", "--format=%h", "--", ".env"]), "");

    // Examples are fine, and so is changing what was tracked before.
    repo.agent(&format!(
        "for e in example sample template; do echo S= > .env.$e; done
        head -c 1000 /dev/zero > small.bin; echo new > deploy/server.pem; {WORK}"
    ));
    assert_eq!(step(&repo)["guard"], "pass");
    let changed = changed_files(&repo);
    for file in [
        ".env.example",
        ".env.sample",
        ".env.template",
        "small.bin",
        "deploy/server.pem",
    ] {
        assert!(changed.contains(&file.to_owned()), "{file} in {changed:?}");
    }
}

#[test]
fn an_ignored_secret_is_nobodys_business() {
    let mut repo = bare();
    repo.write(".gitignore", ".env\n");
    repo.commit_all("ignore it");
    repo.agent(&format!("echo SECRET > .env; {WORK}"));
    repo.start_run(GOAL, &["true"]);
    assert_eq!(step(&repo)["guard"], "pass");
    let kept = std::fs::read_to_string(repo.workspace(".env")).unwrap();
    assert_eq!(kept, "SECRET\n");
    assert!(!repo.exists(".env"));
}

#[test]
fn sidecars_of_passed_nodes_belong_to_the_runner() {
    let repo = planned(&["a", "b"], "", &["true"]);
    // Those of open nodes are anybody's.
    repo.agent(&format!(
        "mkdir -p .runner/nodes/a; echo note > .runner/nodes/a/context.md; {WORK}"
    ));
    assert_eq!(step(&repo)["guard"], "pass");
    assert!(
        repo.git(&["ls-files"])
            .contains(".runner/nodes/a/context.md")
    );
    repo.agent(&format!("echo more >> .runner/nodes/a/context.md; {WORK}"));
    expect_refusal(&repo, "b", &[".runner/nodes/a/context.md"]);
    assert_eq!(repo.read(".runner/nodes/a/context.md"), "note\n");
    repo.agent(&format!(
        "mkdir -p .runner/nodes/a/artifacts; echo x > .runner/nodes/a/artifacts/new; {WORK}"
    ));
    expect_refusal(&repo, "b", &[".runner/nodes/a/artifacts/new"]);
    assert!(!repo.exists(".runner/nodes/a/artifacts/new"));
    repo.agent(&format!(
        "mkdir -p .runner/nodes/b/artifacts; echo x > .runner/nodes/b/artifacts/new; {WORK}"
    ));
    assert_eq!(step(&repo)["guard"], "pass");
}
