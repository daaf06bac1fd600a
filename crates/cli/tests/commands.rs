//! The commands as scripts meet them: the shapes of `--json`, the exit codes,
//! errors for people and for programs, and the options of every command.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare, error_code, human_error, planned, started, step};
use serde_json::{Value, json};

const DONE: &str = "echo work >> work.txt; out done 'did it'";
const RETRY: &str = "out retry 'not yet'";

/// `select --json`, whose exit code must be this one.
#[track_caller]
fn select(repo: &TestRepo, code: i32) -> Value {
    repo.runner(&["select", "--json"]).code(code).json()
}

#[test]
fn select_says_open_complete_stuck() {
    let repo = planned(&["b", "a"], DONE, &["true"]);
    assert_eq!(
        select(&repo, 0),
        json!({"schema_version": 1, "status": "open", "id": "b", "path": "root/b",
               "attempts": 0, "max_attempts": 3})
    );
    step(&repo);
    assert_eq!(select(&repo, 0)["path"], "root/a");
    repo.agent(RETRY);
    step(&repo);
    assert_eq!(select(&repo, 0)["attempts"], 1);
    step(&repo);
    step(&repo);
    let stuck = json!({"schema_version": 1, "status": "stuck", "id": "a", "path": "root/a",
                       "attempts": 3, "max_attempts": 3});
    assert_eq!(select(&repo, 3), stuck);
    // A step says the same where there is nothing to do, and leaves no trace.
    let head = repo.head();
    assert_eq!(repo.runner(&["step", "--json"]).code(3).json(), stuck);
    let human = repo.runner(&["select"]).code(3);
    assert_eq!(human.stdout, "root/a\n");
    assert!(
        human
            .stderr
            .contains("stuck: root/a has used up its 3 attempts")
    );
    repo.runner(&["step"]).code(3).says("stuck: root/a");
    assert_eq!(repo.head(), head);
    assert_eq!(repo.agent_calls().len(), 5);
}

#[test]
fn select_and_step_on_a_complete_tree() {
    let repo = started(DONE, &["true"]);
    step(&repo);
    let head = repo.head();
    let complete = json!({"schema_version": 1, "status": "complete"});
    assert_eq!(select(&repo, 2), complete);
    assert_eq!(repo.runner(&["step", "--json"]).code(2).json(), complete);
    let human = repo.runner(&["step"]).code(2);
    assert_eq!(human.stdout, "");
    assert!(human.stderr.contains("complete"), "{}", human.describe());
    assert_eq!(repo.head(), head);
}

#[test]
fn a_step_tells_scripts_what_they_rely_on() {
    let repo = started(DONE, &["true"]);
    let value = step(&repo);
    for (key, expected) in [
        ("schema_version", json!(1)),
        ("run_id", json!("demo")),
        ("iter", json!(1)),
        ("node_id", json!("root")),
        ("status", json!("done")),
        ("guard", json!("pass")),
        ("attempts", json!(0)),
        ("passes", json!(true)),
    ] {
        assert_eq!(value[key], expected, "{key} in {value}");
    }
    assert_eq!(value.get("error"), None);
}

#[test]
fn a_runner_error_adds_the_error_to_the_step() {
    let repo = started("exit 0", &["true"]);
    let run = repo.runner(&["step", "--json"]).code(1);
    let value = run.json();
    assert_eq!(value["schema_version"], 1);
    assert_eq!(
        (
            &value["status"],
            &value["guard"],
            &value["attempts"],
            &value["passes"]
        ),
        (&json!("retry"), &json!("skipped"), &json!(0), &json!(false))
    );
    assert_eq!(error_code(&run), "no_output");
    assert!(
        value["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("runner log 1")
    );
    let human = repo.runner(&["step"]).code(1);
    assert!(
        human
            .stderr
            .contains("error: the agent ended without writing output.json")
    );
    assert!(human.stderr.contains("hint: "), "{}", human.describe());
}

#[test]
fn every_command_says_that_there_is_no_project() {
    let repo = bare();
    let commands: [&[&str]; 11] = [
        &["start"],
        &["validate"],
        &["select"],
        &["step"],
        &["loop"],
        &["status"],
        &["tree"],
        &["log"],
        &["why"],
        &["replay"],
        &["verify", "root"],
    ];
    for command in commands {
        human_error(&repo.runner(command), "no .runner/ in", "runner init");
        let with_json = [command, &["--json"]].concat();
        let run = repo.runner(&with_json).code(1);
        assert_eq!(run.stderr, "", "{}", run.describe());
        let value = run.json();
        assert_eq!(value["schema_version"], 1, "{value}");
        assert_eq!(error_code(&run), "layout");
        assert!(value["error"]["message"].is_string(), "{value}");
        assert_eq!(value["error"]["hint"], "make one with `runner init`");
        if command == ["loop"] {
            assert_eq!(
                (&value["event"], &value["status"], &value["steps"]),
                (&json!("finished"), &json!("error"), &json!(0)),
                "the last line of a loop is always the same: {value}"
            );
        }
    }
}

#[test]
fn a_folder_that_is_not_there_is_an_error_with_its_name() {
    let repo = bare();
    for option in ["-C", "--project-dir"] {
        let run = repo.runner(&[option, "nowhere", "status"]);
        human_error(&run, "nowhere", "");
    }
}

#[test]
fn commands_work_from_below_and_from_outside_the_project() {
    let repo = started(DONE, &["test", "-e", "work.txt"]);
    repo.write("deep/er/x", "");
    repo.commit_all("a folder");
    let deep = repo.path("deep/er");
    let (deep, root) = (
        deep.display().to_string(),
        repo.path("").display().to_string(),
    );
    for args in [
        ["-C", deep.as_str()],
        ["--project-dir", deep.as_str()],
        ["-C", root.as_str()],
    ] {
        let mut cmd = repo.runner_cmd(&args);
        cmd.args(["select", "--json"]).current_dir("/");
        assert_eq!(repo.spawn(cmd).wait().success().json()["id"], "root");
    }
    // Also after the command, and from a folder below without any option.
    let mut cmd = repo.runner_cmd(&["select"]);
    cmd.args(["-C", &deep]).current_dir("/");
    assert_eq!(repo.spawn(cmd).wait().success().stdout, "root\n");
    let mut cmd = repo.runner_cmd(&["step", "--json"]);
    cmd.current_dir(&deep);
    assert_eq!(repo.spawn(cmd).wait().success().json()["guard"], "pass");
    // The agent worked in the project's root, wherever the command was typed.
    assert!(repo.exists("work.txt"));
    repo.assert_clean();
}

#[test]
fn another_repository_inside_the_project_is_another_project() {
    let repo = started(DONE, &["true"]);
    repo.write(".git/info/exclude", "vendor/\n");
    repo.write("vendor/other/src/x", "");
    repo.git(&["init", "-q", "vendor/other"]);
    let run = repo.runner(&["-C", "vendor/other/src", "status"]);
    human_error(&run, "no .runner/ in", "runner init");
    repo.runner(&["-C", "vendor", "status"]).success();
}

#[test]
fn quiet_leaves_errors_alone_on_stderr() {
    let mut repo = bare();
    repo.agent(DONE);
    repo.init_run(GOAL, &["true"]);
    let run = repo.runner(&["start", "--quiet"]).success();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    let run = repo.runner(&["-q", "loop"]).success();
    assert_eq!(run.stderr, "");
    assert!(
        run.stdout.contains("root"),
        "data stays: {}",
        run.describe()
    );
    repo.write(".runner/state/config.toml", "max_iteration = 3\n");
    human_error(
        &repo.runner(&["validate", "--quiet"]),
        "max_iteration",
        "max_iterations",
    );
    human_error(
        &repo.runner(&["step", "--quiet"]),
        "max_iteration",
        "max_iterations",
    );
}

#[test]
fn colours_only_when_asked_for() {
    let mut repo = started(DONE, &["true"]);
    for args in [
        &["tree"][..],
        &["tree", "--color", "auto"],
        &["tree", "--color", "never"],
    ] {
        let run = repo.runner(args).success();
        assert!(
            !run.stdout.contains('\x1b'),
            "not a terminal: {}",
            run.describe()
        );
    }
    let coloured = repo.runner(&["tree", "--color", "always"]).success();
    assert!(coloured.stdout.contains('\x1b'), "{}", coloured.describe());
    let coloured = repo.runner(&["--color=always", "verify", "nobody"]).code(1);
    assert!(coloured.stderr.contains('\x1b'), "{}", coloured.describe());
    repo.env("NO_COLOR", "1");
    let run = repo.runner(&["status", "--color", "auto"]).success();
    assert!(!run.stdout.contains('\x1b'));
    // What is typed wins over what is set for everything.
    let run = repo.runner(&["tree", "--color", "always"]).success();
    assert!(run.stdout.contains('\x1b'));
    repo.runner(&["tree", "--color", "sometimes"]).code(2);
}

#[test]
fn version_and_help() {
    let repo = bare();
    let version = repo.runner(&["--version"]).success().stdout;
    let commit = version
        .trim()
        .strip_prefix("runner ")
        .and_then(|rest| rest.split_once(" ("))
        .and_then(|(_, commit)| commit.strip_suffix(')'))
        .unwrap_or_else(|| panic!("{version:?}"));
    assert!(
        commit == "unknown" || commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{version:?}"
    );
    for flag in ["--help", "-h"] {
        let help = repo.runner(&[flag]).success().stdout;
        for code in ["0 ", "1 ", "2 ", "3 ", "130 "] {
            let listed = help.lines().any(|line| line.trim_start().starts_with(code));
            assert!(listed, "exit code {code} in:\n{help}");
        }
        for command in [
            "init",
            "start",
            "validate",
            "select",
            "step",
            "loop",
            "status",
            "tree",
            "log",
            "report",
            "retry",
            "edit",
            "why",
            "replay",
            "verify",
            "doctor",
            "demo",
            "schema",
            "completions",
        ] {
            let listed = help
                .lines()
                .any(|line| line.trim_start().starts_with(command));
            assert!(listed, "{command} in:\n{help}");
        }
        assert!(!help.contains("__"), "hidden commands stay hidden:\n{help}");
    }
}

#[test]
fn wrong_usage_is_exit_2_and_touches_nothing() {
    let repo = started(DONE, &["true"]);
    let head = repo.head();
    let wrong: [&[&str]; 12] = [
        &[],
        &["bogus"],
        &["step", "--bogus"],
        &["step", "extra"],
        &["loop", "--steps"],
        &["loop", "--steps", "-1"],
        &["loop", "--for", "soon"],
        &["loop", "--until", "25:00"],
        &["log", "first"],
        &["completions", "cobol"],
        &["init", "--force", "--upgrade"],
        &["init", "--upgrade", "--guard", "true"],
    ];
    for args in wrong {
        let run = repo.runner(args).code(2);
        assert_eq!(run.stdout, "", "{}", run.describe());
        assert!(
            run.stderr.contains("--help") || args.is_empty(),
            "{}",
            run.describe()
        );
    }
    assert_eq!(repo.head(), head);
    assert!(repo.agent_calls().is_empty());
}

#[test]
fn schemas_and_completions_go_to_stdout() {
    let repo = bare();
    for (name, file) in [
        ("tree", "../../schemas/tree.schema.json"),
        ("agent_output", "../../schemas/agent_output.schema.json"),
        ("assignment", "../../schemas/assignment.schema.json"),
        ("result", "../../schemas/result.schema.json"),
    ] {
        let run = repo.runner(&["schema", name]).success();
        let published = std::fs::read_to_string(file).unwrap();
        assert_eq!(run.stdout.trim_end(), published.trim_end());
        assert!(run.json()["$schema"].is_string());
        let value = repo.runner(&["schema", name, "--json"]).success().json();
        assert_eq!(value["schema"], run.json());
        assert_eq!(
            (&value["name"], &value["schema_version"]),
            (&json!(name), &json!(1))
        );
    }
    let run = repo.runner(&["schema", "nothing", "--json"]).code(1);
    assert_eq!(error_code(&run), "not_found");
    assert!(
        run.json()["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("agent_output")
    );
    for shell in ["bash", "zsh", "fish"] {
        let run = repo.runner(&["completions", shell]).success();
        assert!(run.stdout.contains("validate"), "{shell}");
        assert!(!run.stdout.contains("__supervise"), "{shell}");
        let value = repo
            .runner(&["completions", shell, "--json"])
            .success()
            .json();
        assert_eq!(value["shell"], shell);
        assert_eq!(
            value["script"].as_str().unwrap().trim_end(),
            run.stdout.trim_end()
        );
    }
}

#[test]
fn an_unknown_config_key_names_the_nearest_one() {
    let mut repo = started(DONE, &["true"]);
    for (text, unknown, nearest) in [
        ("max_itterations = 5\n", "max_itterations", "max_iterations"),
        ("\n[guard]\ncomand = [\"true\"]\n", "comand", "command"),
        ("\n[lop]\nwait_quota = false\n", "lop", "loop"),
        (
            "\n[loop]\non_timeut = \"stop\"\n",
            "on_timeut",
            "on_timeout",
        ),
    ] {
        repo.write(".runner/state/config.toml", text);
        for command in ["validate", "step", "start"] {
            let run = repo.runner(&[command, "--json"]).code(1);
            assert!(run.stdout.contains(unknown), "{text:?}: {}", run.describe());
            assert!(run.stdout.contains(nearest), "{text:?}: {}", run.describe());
        }
    }
    repo.config(|config| {
        config.set("loop.on_timeout", "sometimes");
    });
    repo.write_config();
    repo.runner(&["validate"])
        .code(1)
        .says("on_timeout")
        .says("retry");
}

#[test]
fn what_cannot_be_honoured_is_refused_with_words() {
    for (key, value, word) in [
        ("budget.max_tokens", json!(5), "budget"),
        ("budget.max_cost_usd", json!(0.5), "budget"),
        ("notify.command", json!(["./tell.sh"]), "notify"),
    ] {
        let mut repo = bare();
        repo.config(|config| {
            config.set(key, value);
        });
        repo.agent(DONE);
        repo.init_run(GOAL, &["true"]);
        for command in ["validate", "start", "step", "loop"] {
            let run = repo.runner(&[command]);
            human_error(&run, word, "");
            assert!(run.stderr.contains("hint: "), "{}", run.describe());
        }
        assert_eq!(repo.subjects(), ["Begin"], "{key}");
    }
}

#[test]
fn validate_reports_everything_at_once() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    assert_eq!(
        repo.runner(&["validate", "--json"]).success().json(),
        json!({"schema_version": 1, "valid": true, "problems": []})
    );
    repo.runner(&["validate"])
        .success()
        .says("everything is in order");

    // Config, two nodes of the tree, a schema, a sidecar and the identity, all at once.
    let config = repo.read(".runner/state/config.toml");
    repo.write(
        ".runner/state/config.toml",
        format!("max_iteratons = 1\n{config}\n[gard]\n"),
    );
    let mut tree = repo.tree();
    tree["children"][0]["attempts"] = json!(9);
    tree["children"][1]["id"] = json!("not/an/id");
    repo.write(".runner/state/tree.json", tree.to_string());
    repo.write(".runner/state/schema.json", "{}");
    repo.write(".runner/nodes/a/tools.json", "[]");
    repo.write(".runner/GOAL.md", GOAL.replace("demo", "other"));
    let run = repo.runner(&["validate", "--json"]).code(1);
    let value = run.json();
    assert_eq!(value["valid"], false);
    let problems = value["problems"].as_array().unwrap();
    let codes: Vec<&str> = problems
        .iter()
        .map(|it| it["code"].as_str().unwrap())
        .collect();
    for (code, least) in [("config", 2), ("tree", 2), ("layout", 2), ("identity", 1)] {
        let count = codes.iter().filter(|it| **it == code).count();
        assert!(
            count >= least,
            "{least} × {code} expected: {}",
            run.describe()
        );
    }
    let human = repo.runner(&["validate"]).code(1);
    assert_eq!(human.stdout, "");
    for words in [
        "max_iteratons",
        "gard",
        "attempts",
        "not/an/id",
        "init --upgrade",
        "tools.json",
        "other",
    ] {
        assert!(
            human.stderr.contains(words),
            "{words}: {}",
            human.describe()
        );
    }
    assert!(
        human.stderr.contains("(run 'runner start')"),
        "{}",
        human.describe()
    );
}

#[test]
fn validate_before_and_after_the_start() {
    let mut repo = bare();
    repo.init_run("# A goal\n", &["true"]);
    repo.runner(&["validate"]).success();
    // An id that the user chose, before the run has begun, is no problem either.
    repo.write(".runner/GOAL.md", GOAL);
    repo.runner(&["validate"]).success();
    repo.runner(&["start"]).success();
    repo.runner(&["validate"]).success();
    // Children in the wrong order are a finding when a person wrote them.
    let mut tree = repo.tree();
    let mut leaf = tree.clone();
    leaf["id"] = json!("second");
    leaf["order"] = json!(2);
    let mut first = leaf.clone();
    first["id"] = json!("first");
    first["order"] = json!(1);
    tree["children"] = json!([leaf, first]);
    repo.write(
        ".runner/state/tree.json",
        serde_json::to_string_pretty(&tree).unwrap(),
    );
    repo.runner(&["validate"]).code(1).says("order");
    repo.runner(&["select", "--json"])
        .code(1)
        .says("\"code\":\"tree\"");
}

#[test]
fn a_tree_of_64_levels_is_shown_and_one_of_65_refused() {
    for (levels, code) in [(64, 0), (65, 1)] {
        let repo = started(DONE, &["true"]);
        let mut tree = Value::Null;
        for level in (1..=levels).rev() {
            let id = if level == 1 {
                "root".to_owned()
            } else {
                format!("n{level}")
            };
            let children = if tree.is_null() {
                json!([])
            } else {
                json!([tree])
            };
            tree = json!({"id": id, "order": 0, "title": "t", "goal": "g", "acceptance": [],
                "passes": false, "attempts": 0, "max_attempts": 3, "children": children});
        }
        repo.write(".runner/state/tree.json", format!("{tree:#}\n"));
        repo.commit_all("by hand");
        repo.runner(&["validate"]).code(code);
        repo.runner(&["tree"]).code(code);
        let run = repo.runner(&["tree", "--json"]).code(code);
        assert!(
            run.stdout.contains("\"schema_version\":1"),
            "{}",
            run.describe()
        );
        if code == 0 {
            assert!(run.stdout.contains("n64"), "{}", run.describe());
            assert_eq!(step(&repo)["node_id"], "n64");
        } else {
            repo.runner(&["step"]).code(1).says("64");
        }
    }
}
