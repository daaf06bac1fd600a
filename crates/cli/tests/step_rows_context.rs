//! What a session gets to read: `.runner/context/`, the prompt, the sidecars of
//! its node, and its environment.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare, planned, started, step};
use serde_json::json;

const WORK: &str = "echo work >> work.txt; out done 'did it'";

fn prompt(repo: &TestRepo, iter: u64) -> String {
    std::fs::read_to_string(repo.iteration(iter).join("prompt.md")).expect("a prompt")
}

/// A file that the session read.
#[track_caller]
fn context_file(repo: &TestRepo, path: &str) -> String {
    std::fs::read_to_string(repo.workspace(path)).unwrap()
}

#[test]
fn the_context_is_of_the_selected_leaf() {
    let repo = planned(&["a", "b"], "", &["true"]);
    let agent = "cat > \"$AGENT_DIR/stdin.$RUNNER_ITER\"
        cp -r .runner/context \"$AGENT_DIR/context.$RUNNER_ITER\"
        tree_edit 'n(\"b\")[\"acceptance\"] = [\"it is fast\", \"it is small\"]'; out done x";
    repo.agent(agent);
    repo.write(".runner/context/old.md", "left over");
    step(&repo);
    step(&repo);
    let seen = |name: &str| std::fs::read_to_string(repo.agent_dir().join(name)).unwrap();
    assert!(
        !repo.agent_dir().join("context.2/old.md").exists(),
        "cleared before each session"
    );
    assert_eq!(
        seen("context.2/goal.md"),
        "# Leaf a\n\nNode: `root/a`\n\n## Goal\n\nMake Leaf a true.\n\n\
         ## Acceptance\n\n(none given: the goal itself decides)\n"
    );
    let goal = seen("context.3/goal.md");
    assert!(goal.contains("Node: `root/b`"), "{goal}");
    assert!(goal.contains("- it is fast\n- it is small\n"), "{goal}");
    // The prompt comes on stdin and is kept with the logs.
    for iter in [2, 3] {
        assert_eq!(seen(&format!("stdin.{iter}")), prompt(&repo, iter));
    }
}

#[test]
fn history_and_failure_belong_to_one_node() {
    let repo = planned(
        &["a", "b"],
        "",
        &["sh", "-c", "cat verdict; grep -q good verdict"],
    );
    let keep = "mkdir -p \"$AGENT_DIR/c\"; cp -r .runner/context \"$AGENT_DIR/c/$RUNNER_ITER\"\n";
    let seen = |iter: u64, name: &str| {
        std::fs::read_to_string(repo.agent_dir().join(format!("c/{iter}/{name}.md"))).ok()
    };
    repo.agent_at(2, &format!("{keep} out retry 'a: half way'"));
    repo.agent_at(
        3,
        &format!("{keep} echo bad a > verdict; out done 'a: finished?'"),
    );
    repo.agent_at(4, &format!("{keep} echo good > verdict; out done 'a: now'"));
    repo.agent_at(
        5,
        &format!("{keep} echo bad b > verdict; out done 'b: finished?'"),
    );
    repo.agent_at(6, &format!("{keep} out retry 'b: half way'"));
    repo.agent_at(7, &format!("{keep} echo good > verdict; out done 'b: now'"));
    for _ in 2..=7 {
        step(&repo);
    }
    assert_eq!(
        (seen(2, "history"), seen(2, "failure")),
        (None, None),
        "a begins"
    );
    assert!(seen(3, "history").unwrap().contains("a: half way"));
    assert_eq!(seen(3, "failure"), None);
    assert_eq!(seen(4, "history"), None, "the last status was done");
    assert!(seen(4, "failure").unwrap().contains("bad a"));
    assert_eq!(
        (seen(5, "history"), seen(5, "failure")),
        (None, None),
        "b begins"
    );
    assert!(seen(6, "failure").unwrap().contains("bad b"));
    assert_eq!(
        seen(7, "failure"),
        None,
        "the guard's last word on b is not the failure"
    );
    assert!(seen(7, "history").unwrap().contains("b: half way"));
    assert_eq!(repo.tree()["passes"], true);
    // All of it is in the prompt, too.
    assert!(prompt(&repo, 3).contains("a: half way"));
    assert!(prompt(&repo, 4).contains("bad a"));
    assert!(!prompt(&repo, 5).contains("bad a") && !prompt(&repo, 5).contains("a: now"));
}

#[test]
fn what_one_node_was_told_is_not_told_to_another() {
    // The tree changes between two sessions, so that another leaf comes first.
    let repo = planned(&["b"], "", &["false"]);
    repo.agent("out retry 'only for b'");
    step(&repo);
    repo.agent_at(3, "out retry 'x'");
    let mut tree = repo.tree();
    let mut first = tree["children"][0].clone();
    first["id"] = json!("a");
    first["order"] = json!(0);
    first["attempts"] = json!(0);
    tree["children"].as_array_mut().unwrap().insert(0, first);
    repo.write(".runner/state/tree.json", format!("{tree:#}\n"));
    repo.commit_all("a first");
    assert_eq!(step(&repo)["node_id"], "a");
    assert!(!repo.workspace(".runner/context/history.md").exists());
    assert!(!prompt(&repo, 3).contains("only for b"));
}

#[test]
fn a_clone_without_logs_says_that_the_guards_words_are_elsewhere() {
    let repo = started(WORK, &["sh", "-c", "echo the $(printf details); exit 4"]);
    step(&repo);
    std::fs::remove_dir_all(repo.path(".runner/iterations")).unwrap();
    step(&repo);
    let failure = context_file(&repo, ".runner/context/failure.md");
    assert!(failure.contains("not in this clone"), "{failure}");
    assert!(!failure.contains("the details"), "{failure}");
}

#[test]
fn the_prompt_says_everything_a_session_must_know() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("guard.protected", json!(["ci/**", "justfile"]));
        config.set("iteration_timeout_secs", 120);
    });
    repo.agent("out retry 'first words'");
    repo.init_run(GOAL, &["sh", "-c", "exit 0"]);
    repo.write(".runner/INSTRUCTIONS.md", "Always write in verse.\n");
    repo.runner(&["start"]).success();
    step(&repo);
    step(&repo);
    let text = prompt(&repo, 2);
    for words in [
        "All of it.",
        "Always write in verse.",
        "first words",
        "attempt 2 of 3",
        "2 minutes",
        r#"["sh","-c","exit 0"]"#,
        "`ci/**`",
        "`justfile`",
        ".runner/state/config.toml",
        "Never wait for a person",
        "`passes`, `attempts` and `max_attempts`",
        "decomposed",
        ".runner/iterations/demo/2/output.json",
    ] {
        assert!(text.contains(words), "{words:?} in:\n{text}");
    }
    // The order of the parts.
    let order = [
        "# Runner contract",
        "(`.runner/GOAL.md`)",
        "(`.runner/INSTRUCTIONS.md`)",
        "(`.runner/context/goal.md`)",
        "(`.runner/context/history.md`)",
        "## Selected leaf",
        "## Output contract",
    ];
    let places: Vec<Option<usize>> = order.iter().map(|part| text.find(part)).collect();
    assert!(places.iter().all(Option::is_some), "{places:?}");
    assert!(places.is_sorted(), "{places:?}");
    assert!(
        !text.contains(&repo.root().display().to_string()),
        "the same in every clone"
    );
}

#[test]
fn the_prompt_never_exceeds_its_budget() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("prompt_budget_bytes", 8000);
    });
    repo.agent(
        "head -c 30000 /dev/zero | tr '\\0' q >> .runner/state/questions.md
        out retry \"$(head -c 15000 /dev/zero | tr '\\0' s) the end\"",
    );
    let goal = format!("{GOAL}{}", "word ".repeat(5000));
    repo.start_run(&goal, &["true"]);
    step(&repo);
    step(&repo);
    for iter in [1, 2] {
        let text = prompt(&repo, iter);
        assert!(text.len() <= 8000, "{} bytes", text.len());
        assert!(text.contains("## Output contract"), "{text}");
        assert!(text.contains(&format!(".runner/iterations/demo/{iter}/output.json")));
    }
}

#[test]
fn sidecars_of_the_node_and_its_ancestors_are_in_the_prompt() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    for (id, text) in [
        ("root", "for all"),
        ("a", "for a alone"),
        ("b", "for b alone"),
    ] {
        repo.write(format!(".runner/nodes/{id}/context.md"), text);
    }
    repo.write(".runner/nodes/a/tools.json", "{\"browser\": true}\n");
    repo.write(".runner/nodes/b/tools.json", "[1]\n");
    repo.runner(&["validate"])
        .code(1)
        .says("nodes/b/tools.json");
    repo.write(".runner/nodes/b/tools.json", "{}\n");
    repo.runner(&["start"]).success();
    repo.agent(
        "printf '%s' \"$RUNNER_NODE_TOOLS\" > \"$AGENT_DIR/tools.$RUNNER_ITER\"; out done x",
    );
    step(&repo);
    step(&repo);
    let tools = |iter: u64| {
        std::fs::read_to_string(repo.agent_dir().join(format!("tools.{iter}"))).unwrap()
    };
    for (iter, node, other) in [(2, "a", "b"), (3, "b", "a")] {
        let text = prompt(&repo, iter);
        assert!(
            text.contains("for all") && text.contains(&format!("for {node} alone")),
            "{text}"
        );
        assert!(!text.contains(&format!("for {other} alone")), "{text}");
        let path = repo.workspace(format!(".runner/nodes/{node}/tools.json"));
        assert_eq!(tools(iter), path.display().to_string());
        let leaf = text.find("## Selected leaf").unwrap();
        assert!(
            text.find("for all").unwrap() > leaf,
            "they follow the selected leaf"
        );
    }
}

#[test]
fn the_environment_is_what_the_contract_names() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("executor.env.EXTRA", "a \"b\" c");
        config.set("executor.env.RUNNER_ITER", "99");
    });
    repo.agent("env > \"$AGENT_DIR/env\"; pwd > \"$AGENT_DIR/pwd\"; out done x");
    repo.start_run(GOAL, &["true"]);
    let mut cmd = repo.runner_cmd(&["step"]);
    cmd.env("UNRELATED", "1")
        .env("AWS_SECRET_ACCESS_KEY", "1")
        .env("GIT_DIR", "/nowhere")
        .env("RUNNER_NODE_TOOLS", "/nowhere")
        .env("LC_TIME", "C");
    repo.spawn(cmd).wait().success();
    repo.assert_clean();
    let text = std::fs::read_to_string(repo.agent_dir().join("env")).unwrap();
    let value = |name: &str| {
        let prefix = format!("{name}=");
        text.lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .map(str::to_owned)
    };
    // Without a sandbox a session sees its workspace where it is.
    let root = repo.workspace("").display().to_string();
    let root = root.trim_end_matches('/');
    for (name, expected) in [
        ("RUNNER_PROJECT_DIR", root.to_owned()),
        (
            "RUNNER_OUTPUT_PATH",
            format!("{root}/.runner/iterations/demo/1/output.json"),
        ),
        (
            "RUNNER_OUTPUT_SCHEMA",
            format!("{root}/.runner/state/agent_output.schema.json"),
        ),
        ("RUNNER_RUN_ID", "demo".to_owned()),
        ("RUNNER_ITER", "1".to_owned()),
        ("RUNNER_NODE_ID", "root".to_owned()),
        ("EXTRA", "a \"b\" c".to_owned()),
        ("LC_TIME", "C".to_owned()),
        ("HOME", repo.root().join("home").display().to_string()),
    ] {
        assert_eq!(value(name), Some(expected), "{name} in\n{text}");
    }
    for name in [
        "UNRELATED",
        "AWS_SECRET_ACCESS_KEY",
        "GIT_DIR",
        "RUNNER_NODE_TOOLS",
    ] {
        assert_eq!(value(name), None, "{name} in\n{text}");
    }
    let cwd = std::fs::read_to_string(repo.agent_dir().join("pwd")).unwrap();
    assert_eq!(cwd.trim_end(), root);
}
