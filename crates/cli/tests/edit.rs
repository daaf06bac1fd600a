//! `runner edit`: a person's new text, checked before it counts, committed, and
//! never lost.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::path::PathBuf;
use std::time::Duration;

use runner_testkit::{TestRepo, TestRun, eventually};
use scenario::{
    GOAL, WAIT_FOR_GO, assert_same, bare, changed_files, error_code, go, human_error, picture,
    planned, step, subject, trailer,
};
use serde_json::{Value, json};

const DONE: &str = "echo \"$RUNNER_NODE_ID\" >> work.txt; out done 'did it'";
const CONFIG: &str = ".runner/state/config.toml";
const TREE: &str = ".runner/state/tree.json";

/// Runs `runner edit WHAT` with this editor.
fn with_editor(repo: &TestRepo, editor: &str, what: &str) -> TestRun {
    let mut cmd = repo.runner_cmd(&["edit", what]);
    cmd.env("EDITOR", editor);
    repo.spawn(cmd).wait()
}

/// Runs `runner edit WHAT --file -` with this text on stdin.
fn from_stdin(repo: &TestRepo, what: &str, text: &str) -> TestRun {
    let input = repo.root().join("input");
    std::fs::write(&input, text).unwrap();
    let mut cmd = repo.hermetic("sh");
    cmd.args([
        "-c",
        "exec \"$0\" edit \"$1\" --file - < \"$2\"",
        scenario::BIN,
    ]);
    cmd.arg(what).arg(input);
    repo.spawn(cmd).wait()
}

/// The tree with a change, from a file of the person's own.
fn tree_with(repo: &TestRepo, change: impl Fn(&mut Value)) -> TestRun {
    let mut tree = repo.tree();
    change(&mut tree);
    let file = repo.root().join("my-tree.json");
    std::fs::write(&file, tree.to_string()).unwrap();
    repo.runner(&["edit", "tree", "--json", "--file", file.to_str().unwrap()])
}

/// The file that a refusal names.
#[track_caller]
fn kept(run: &TestRun) -> PathBuf {
    let rest = run.stderr.split("--file ").nth(1);
    let path = rest.and_then(|rest| rest.split('`').next());
    PathBuf::from(path.unwrap_or_else(|| panic!("no kept file\n{}", run.describe())))
}

#[test]
fn the_config_in_an_editor() {
    let repo = planned(&["a"], DONE, &["true"]);
    let run = with_editor(
        &repo,
        "sed -i s/max_iterations.=.100/max_iterations=50/",
        "config",
    );
    let run = run.success();
    assert_eq!(run.stdout, "");
    assert_eq!(run.stderr, format!("{CONFIG} is changed and committed\n"));
    assert_eq!(subject(&repo), "chore(loop): edit config");
    assert_eq!(changed_files(&repo), [CONFIG]);
    assert!(repo.read(CONFIG).contains("max_iterations=50"));
    repo.assert_clean();
    let head = repo.head();

    // An editor that changes nothing makes no commit.
    let run = with_editor(&repo, "true", "config").success();
    assert!(
        run.stderr.contains("nothing has changed"),
        "{}",
        run.describe()
    );
    assert_eq!(repo.head(), head);

    // VISUAL comes first, and its output is not ours.
    let mut cmd = repo.runner_cmd(&["edit", "config", "--json"]);
    cmd.env("VISUAL", "echo loud; sed -i s/=50/=60/")
        .env("EDITOR", "false");
    let run = repo.spawn(cmd).wait().success();
    let value = run.json();
    assert_eq!(value["what"], "config");
    assert_eq!(value["path"], CONFIG);
    assert_eq!(value["changed"], true);
    assert_eq!(value["commit"], repo.head());

    step(&repo);
    let replay = repo.runner(&["replay"]).success();
    assert_eq!(
        replay.stderr,
        "note: between 1 and 2: `runner edit config`\nnote: between 1 and 2: `runner edit config`\n"
    );
}

#[test]
fn a_wrong_text_is_refused_with_all_findings_and_kept() {
    let repo = planned(&["a"], DONE, &["true"]);
    let before = picture(&repo);
    let run = with_editor(
        &repo,
        "sed -i -e s/max_iterations/max_iteration/ -e s/protected/protect/",
        "config",
    );
    human_error(&run, "`max_iteration`: unknown key", "did you mean");
    assert!(run.stderr.contains("`guard.protect`"), "{}", run.describe());
    assert_same(&repo, &before, "a wrong config");
    let copy = kept(&run);
    let text = std::fs::read_to_string(&copy).unwrap();
    assert!(text.contains("max_iteration = 100"), "{text}");

    // Mended, it is taken from where it was kept.
    let text = text
        .replace("max_iteration =", "max_iterations =")
        .replace("protect =", "watched =");
    std::fs::write(&copy, text).unwrap();
    let args = ["edit", "config", "--file", copy.to_str().unwrap()];
    repo.runner(&args).success();
    assert_eq!(subject(&repo), "chore(loop): edit config");
    // A file of the person's own stays where it is, and no copy is made.
    std::fs::write(&copy, "nonsense").unwrap();
    let run = repo.runner(&args).code(1);
    assert!(!run.stderr.contains("is kept"), "{}", run.describe());

    let run = from_stdin(&repo, "config", "max_iterations = \"many\"\n");
    human_error(&run, "max_iterations", "your text is kept");
    let text = std::fs::read_to_string(kept(&run));
    assert_eq!(text.unwrap(), "max_iterations = \"many\"\n");
}

#[test]
fn editors_that_fail() {
    let repo = planned(&["a"], DONE, &["true"]);
    let before = picture(&repo);
    human_error(
        &repo.runner(&["edit", "goal"]),
        "neither VISUAL nor EDITOR is set",
        "EDITOR=nano runner edit goal",
    );
    for (editor, message) in [
        (
            "no-such-editor",
            "the editor `no-such-editor` was not found",
        ),
        ("exit 3;", "ended with exit code 3"),
        ("kill -9 $$;", "was ended by a signal"),
        ("rm", "cannot be read after the editor"),
    ] {
        let run = with_editor(&repo, editor, "goal");
        human_error(&run, message, "");
        assert!(!run.stderr.contains("is kept"), "{}", run.describe());
        assert_same(&repo, &before, editor);
    }
    // What was written before it failed is not lost.
    let script = repo.root().join("half-an-editor");
    runner_testkit::write_program(&script, "#!/bin/sh\necho more >> \"$1\"\nexit 1\n");
    let run = with_editor(&repo, script.to_str().unwrap(), "goal");
    assert!(
        std::fs::read_to_string(kept(&run))
            .unwrap()
            .ends_with("more\n"),
        "{}",
        run.describe()
    );
    assert_same(&repo, &before, "half an editor");
    human_error(
        &repo.runner(&["edit", "goal", "--file", "nowhere"]),
        "nowhere",
        "",
    );
    repo.runner(&["edit", "everything"]).code(2);
}

/// `a` has passed, `b` is stuck, `c` is open.
fn stuck() -> TestRepo {
    let repo = planned(
        &["a", "b", "c"],
        DONE,
        &["sh", "-c", "! grep -q b work.txt"],
    );
    for _ in 0..4 {
        step(&repo);
    }
    repo.runner(&["select"]).code(3);
    repo
}

#[test]
fn a_person_may_change_what_is_open() {
    let repo = stuck();
    let run = tree_with(&repo, |tree| {
        let children = tree["children"].as_array_mut().unwrap();
        children[2]["title"] = json!("Another C");
        children.remove(1);
        let mut new = children[1].clone();
        new["id"] = json!("new");
        new["order"] = json!(0);
        // In no order: the runner sorts.
        children.push(new);
    });
    let value = run.success().json();
    assert_eq!(
        value["plan"],
        json!({"added": ["new"], "edited": ["c"], "moved": [], "removed": ["b"],
               "max_attempts": [], "passed": []})
    );
    assert_eq!(subject(&repo), "chore(loop): edit tree");
    assert!(
        trailer(&repo, "Runner-Tree")
            .unwrap()
            .starts_with("sha256:")
    );
    assert_eq!(repo.tree()["children"][0]["id"], "new");
    repo.runner(&["validate"]).success();
    repo.assert_clean();
    assert_eq!(repo.runner(&["select"]).success().stdout, "root/new\n");
    let run = tree_with(&repo, |_| {});
    assert_eq!(run.success().json()["changed"], false);
    // What is left can be finished, and the whole of it derives again.
    repo.agent("true > work.txt; out done x");
    repo.runner(&["loop"]).success();
    let replay = repo.runner(&["replay"]).success();
    assert_eq!(replay.stderr, "note: between 5 and 6: `runner edit tree`\n");
}

#[test]
fn removing_the_last_open_leaf_completes_the_tree() {
    let repo = stuck();
    let run = tree_with(&repo, |tree| {
        tree["children"].as_array_mut().unwrap().truncate(1);
    });
    assert_eq!(run.success().json()["plan"]["passed"], json!(["root"]));
    assert_eq!(repo.tree()["passes"], true);
    repo.runner(&["select"]).code(2);
    repo.runner(&["validate"]).success();
}

type Change<'c> = &'c dyn Fn(&mut Value);

#[test]
fn what_has_passed_stays_and_the_runners_fields_too() {
    let repo = stuck();
    let before = picture(&repo);
    let cases: [(&str, Change<'_>, &[&str]); 6] = [
        (
            "a passed node vanishes",
            &|tree| {
                tree["children"].as_array_mut().unwrap().remove(0);
            },
            &["node a: a passed node must not vanish"],
        ),
        (
            "a passed node changes, an open one passes",
            &|tree| {
                tree["children"][0]["goal"] = json!("less");
                tree["children"][2]["passes"] = json!(true);
            },
            &[
                "node a: a passed node must not change (goal)",
                "node c: passes cannot be set by hand",
            ],
        ),
        (
            "passes is taken back",
            &|tree| tree["children"][0]["passes"] = json!(false),
            &["node a: it has passed, and that cannot be taken back by hand"],
        ),
        (
            "attempts are forgotten",
            &|tree| tree["children"][1]["attempts"] = json!(0),
            &["node b: attempts is the runner's count", "`runner retry b`"],
        ),
        (
            "an id twice",
            &|tree| tree["children"][2]["id"] = json!("b"),
            &["this id is used by another node too"],
        ),
        (
            "a field is missing",
            &|tree| {
                tree["children"][2].as_object_mut().unwrap().remove("goal");
            },
            &["missing field `goal`"],
        ),
    ];
    for (what, change, words) in cases {
        let run = tree_with(&repo, change).code(1);
        assert_eq!(error_code(&run), "tree", "{what}");
        for word in words {
            assert!(run.stdout.contains(word), "{what}: {}", run.describe());
        }
        assert_same(&repo, &before, what);
    }
    // More attempts are a person's to give.
    let run = tree_with(&repo, |tree| {
        tree["children"][1]["max_attempts"] = json!(9);
    });
    assert_eq!(run.success().json()["plan"]["max_attempts"], json!(["b"]));
    assert_eq!(repo.runner(&["select"]).success().stdout, "root/b\n");
}

#[test]
fn the_goal_keeps_its_id() {
    let repo = planned(&["a"], DONE, &["true"]);
    let before = picture(&repo);
    for (text, code, words) in [
        (GOAL.replace("demo", "other"), "identity", "must stay demo"),
        ("---\nid: demo\n# no end\n".to_owned(), "layout", "closing"),
        (
            "---\nid: demo\n---\n\n".to_owned(),
            "layout",
            "says nothing",
        ),
    ] {
        let run = from_stdin(&repo, "goal", &text);
        human_error(&run, words, "");
        assert_same(&repo, &before, words);
        let file = kept(&run);
        let args = ["edit", "goal", "--json", "--file", file.to_str().unwrap()];
        assert_eq!(error_code(&repo.runner(&args).code(1)), code);
    }
    let run = from_stdin(&repo, "goal", "# Ship more\n\nAll of it, and more.\n").success();
    assert!(
        run.stderr
            .contains("the id demo is in the front matter again"),
        "{}",
        run.describe()
    );
    assert_eq!(
        repo.read(".runner/GOAL.md"),
        "---\nid: demo\n---\n# Ship more\n\nAll of it, and more.\n"
    );
    assert_eq!(subject(&repo), "chore(loop): edit goal");
    step(&repo);
    assert!(
        std::fs::read_to_string(repo.iteration(2).join("prompt.md"))
            .unwrap()
            .contains("All of it, and more.")
    );
}

#[test]
fn questions_can_be_answered() {
    let repo = planned(&["a"], "", &["true"]);
    repo.agent("echo '- which one?' >> .runner/state/questions.md; out retry x");
    step(&repo);
    let answered = "- which one?\n  The second.\n";
    from_stdin(&repo, "questions", answered).success();
    assert_eq!(subject(&repo), "chore(loop): edit questions");
    repo.agent(DONE);
    step(&repo);
    assert_eq!(repo.read(".runner/state/questions.md"), answered);
    let prompt = std::fs::read_to_string(repo.iteration(3).join("prompt.md")).unwrap();
    assert!(prompt.contains("The second."), "{prompt}");
}

#[test]
fn not_while_something_else_is_in_the_way() {
    let repo = planned(&["a"], &format!("{WAIT_FOR_GO}{DONE}"), &["true"]);
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", Duration::from_secs(20), || {
        repo.agent_calls().len() == 2
    });
    // The editor is not even opened.
    let opened = repo.root().join("opened");
    let run = with_editor(&repo, &format!("touch {};", opened.display()), "tree");
    human_error(&run, "another runner is at work", "wait for it");
    assert!(!opened.exists());
    go(&repo);
    running.wait().success();

    // Where the checkout is, and what is changed there, is no matter.
    repo.write("half.txt", "half");
    repo.git(&["switch", "-q", "--detach"]);
    for what in ["goal", "tree"] {
        with_editor(&repo, "true", what).success();
    }
    assert_eq!(repo.read("half.txt"), "half");
}

#[test]
fn no_step_begins_while_the_editor_is_open() {
    let repo = planned(&["a"], DONE, &["true"]);
    let go_file = repo.agent_dir().join("go");
    let mut cmd = repo.runner_cmd(&["edit", "goal"]);
    let wait = format!(
        "touch \"$1.opened\"; while [ ! -e {} ]; do sleep 0.02; done; echo more >>",
        go_file.display()
    );
    let script = repo.root().join("slow-editor");
    runner_testkit::write_program(
        &script,
        &format!(
            "#!/bin/sh\ntouch {0}.opened\n{wait} \"$1\"\n",
            script.display()
        ),
    );
    cmd.env("EDITOR", &script);
    let editing = repo.spawn(cmd);
    eventually("the editor", Duration::from_secs(20), || {
        repo.root().join("slow-editor.opened").exists()
    });
    let run = repo.runner(&["step"]);
    human_error(&run, &format!("pid {}", editing.pid()), "wait for it");
    go(&repo);
    editing.wait().success();
    assert!(repo.read(".runner/GOAL.md").ends_with("more\n"));
    step(&repo);
}

#[test]
fn a_ctrl_c_is_for_the_editor_alone() {
    let repo = planned(&["a"], DONE, &["true"]);
    let script = repo.root().join("deaf-editor");
    // The whole foreground hears of it, as from a terminal.
    runner_testkit::write_program(
        &script,
        "#!/bin/sh\ntrap 'echo heard >&2' INT\nkill -INT 0\necho more >> \"$1\"\n",
    );
    let mut cmd = repo.hermetic("setsid");
    cmd.args(["--wait", scenario::BIN, "edit", "goal"]);
    cmd.env("EDITOR", &script);
    let run = repo.spawn(cmd).wait().success();
    assert!(run.stderr.contains("heard"), "{}", run.describe());
    assert_eq!(subject(&repo), "chore(loop): edit goal");
}

#[test]
fn before_the_first_start_the_file_is_written_and_start_commits_it() {
    let mut repo = bare();
    repo.agent(DONE);
    repo.init_run("# Draft\n", &["true"]);
    let run = from_stdin(&repo, "goal", GOAL).success();
    assert_eq!(
        run.stderr,
        ".runner/GOAL.md is changed; `runner start` commits it\n"
    );
    let run = from_stdin(&repo, "goal", "");
    human_error(&run, "says nothing", "write down");
    repo.runner(&["start", "--no-guard-check"]).success();
    assert_eq!(repo.run_id(), "demo");
}

#[test]
fn a_broken_config_can_be_mended() {
    let repo = planned(&["a"], DONE, &["true"]);
    let good = repo.read(CONFIG);
    repo.write(CONFIG, "nonsense = 1\n");
    repo.commit_all("break it");
    repo.runner(&["step"]).code(1);
    from_stdin(&repo, "config", &good).success();
    step(&repo);
}

#[test]
fn a_broken_tree_can_be_mended_instead_of_repaired() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    step(&repo);
    let good = repo.read(TREE);
    repo.agent("echo broken > \"$TREE\"; out retry x");
    step(&repo);
    assert_eq!(
        repo.runner(&["select", "--json"]).code(1).json()["status"],
        "repair"
    );
    // Another file does not end the wait for a repair.
    from_stdin(&repo, "questions", "- none\n").success();
    assert_eq!(
        repo.runner(&["select", "--json"]).code(1).json()["status"],
        "repair"
    );
    // What had passed in the last valid tree cannot be left out.
    let without: Value = {
        let mut tree: Value = serde_json::from_str(&good).unwrap();
        tree["children"].as_array_mut().unwrap().remove(0);
        tree
    };
    let run = from_stdin(&repo, "tree", &without.to_string());
    human_error(&run, "node a: a passed node must not vanish", "");
    from_stdin(&repo, "tree", &good).success();
    assert_eq!(repo.runner(&["select"]).success().stdout, "root/b\n");
    repo.agent(DONE);
    assert_eq!(step(&repo)["node_id"], "b");
    repo.runner(&["replay"]).success();
    // And a tree that a person breaks after that is a person's to mend.
    repo.write(TREE, "{");
    repo.commit_all("break it");
    assert_eq!(
        error_code(&repo.runner(&["step", "--json"]).code(1)),
        "tree"
    );
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let repo = planned(&["a"], DONE, &["true"]);
    let file = repo.root().join("config.toml");
    let before = picture(&repo);
    for point in 1.. {
        assert!(point < 100, "the command never ends well");
        let text = repo
            .read(CONFIG)
            .replace("max_iterations = 100", "max_iterations = 70");
        std::fs::write(&file, text).unwrap();
        let mut cmd = repo.runner_cmd(&["edit", "config", "--file", file.to_str().unwrap()]);
        cmd.env("RUNNER_FAULT", format!("enospc@{point}"));
        let run = repo.spawn(cmd).wait();
        if run.code == Some(0) {
            break;
        }
        assert_same(&repo, &before, &format!("a full disk at point {point}"));
        repo.assert_clean();
    }
    let subject = repo.git(&["log", "-1", "--format=%s", "refs/runner/run/demo"]);
    assert_eq!(subject, "chore(loop): edit config");
    step(&repo);
}
