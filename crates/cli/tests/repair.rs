//! REPAIR TREE: an invalid tree is what the next session gets to mend; three
//! refusals bring the last valid one back; a clone without logs can do it, too.
#![allow(clippy::unwrap_used)] // In the helpers too: what is not there is a failure.

mod scenario;

use runner_testkit::TestRepo;
use scenario::record::check;
use scenario::{BIN, GOAL, error_code, failed_step, human_error, planned, step, subject, trailer};
use serde_json::{Value, json};

const WORK: &str = "echo work >> work.txt; out done 'did it'";
const BREAK: &str = "echo '{\"id\": \"root\"' > \"$TREE\"; echo kept > kept.txt; out done 'oh'";
/// Takes the last valid tree from the commit before and adds a child to it.
const MEND: &str = "git show HEAD~1:.runner/state/tree.json > \"$TREE\"
    add_child root new 9 New; out retry 'mended'";

/// A run with the leaves a and b whose tree the session of iteration 2 broke.
fn broken(script: &str) -> TestRepo {
    let repo = planned(&["a", "b"], "", &["true"]);
    repo.agent_at(2, script);
    let head = repo.head();
    let told = step(&repo);
    assert_eq!(
        [
            &told["node_id"],
            &told["status"],
            &told["guard"],
            &told["attempts"],
            &told["passes"]
        ],
        [
            &json!("a"),
            &json!("retry"),
            &json!("skipped"),
            &json!(0),
            &json!(false)
        ]
    );
    let meta = check(&repo, "invalid_tree", "retry", "skipped");
    assert_eq!(meta["node_id"], "a");
    assert_eq!(trailer(&repo, "Runner-Last-Valid"), Some(head));
    repo
}

/// A repair step that must be judged as this class.
#[track_caller]
fn repair(repo: &TestRepo, class: &str) -> Value {
    let told = step(repo);
    assert_eq!(
        [
            &told["node_id"],
            &told["status"],
            &told["guard"],
            &told["attempts"],
            &told["passes"]
        ],
        [
            &json!("repair-tree"),
            &json!("retry"),
            &json!("skipped"),
            &Value::Null,
            &Value::Null
        ]
    );
    let meta = check(repo, class, "retry", "skipped");
    assert_eq!(meta["mode"], "repair");
    assert!(
        repo.iteration(meta["iter"].as_u64().unwrap())
            .join("tree.valid.json")
            .is_file()
    );
    meta
}

fn prompt(repo: &TestRepo, iter: u64) -> String {
    std::fs::read_to_string(repo.iteration(iter).join("prompt.md")).expect("a prompt")
}

#[test]
fn an_invalid_tree_is_committed_as_it_is_and_then_repaired() {
    let repo = broken(BREAK);
    assert_eq!(repo.read(".runner/state/tree.json"), "{\"id\": \"root\"\n");
    assert!(repo.git(&["ls-files"]).contains("kept.txt"));
    let select = repo.runner(&["select", "--json"]).code(1);
    assert_eq!(
        select.json(),
        json!({"schema_version": 1, "status": "repair"})
    );
    repo.runner(&["select"])
        .code(1)
        .says("the next step will have it repaired");

    repo.agent_at(3, MEND);
    repair(&repo, "repaired");
    assert_eq!(
        subject(&repo),
        "chore(loop): run demo iter 3 node repair-tree status=retry guard=skipped"
    );
    let prompt = prompt(&repo, 3);
    for words in [
        "Repair the task tree",
        "line 2 column 0",
        "\"id\": \"a\"",
        "\"id\": \"b\"",
    ] {
        assert!(prompt.contains(words), "{words:?} in:\n{prompt}");
    }
    assert_eq!(repo.agent_calls()[2], "3 repair-tree");
    assert_eq!(repo.node("a")["attempts"], 0);
    assert_eq!(repo.node("new")["passes"], false);
    repo.runner(&["validate"]).success();
    repo.agent(WORK);
    assert_eq!(step(&repo)["node_id"], "a");
    repo.runner(&["replay"]).success();
}

#[test]
fn every_way_a_tree_can_be_invalid() {
    let cases = [
        ("rm \"$TREE\"; out done x", "missing"),
        (": > \"$TREE\"; out done x", "EOF"),
        ("printf '\\377' > \"$TREE\"; out done x", "line 1"),
        ("tree_edit 't[\"more\"] = 1'; out done x", "more"),
        ("tree_edit 'del t[\"goal\"]'; out done x", "goal"),
        (
            "tree_edit 'n(\"b\")[\"id\"] = \"a\"'; out done x",
            "used by another node",
        ),
        ("tree_edit 'child(t, \"x/y\", 1, \"X\")'; out done x", "x/y"),
        (
            "tree_edit 'child(t, \"repair-tree\", 1, \"X\")'; out done x",
            "reserved",
        ),
        (
            "tree_edit 'child(t, \"x\", 1, \"X\", max_attempts=0)'; out done x",
            "max_attempts",
        ),
        ("tree_edit 'child(t, \"x\", 1.5, \"X\")'; out done x", "1.5"),
        (
            "ln -sf /etc/hostname \"$TREE\"; out done x",
            "symbolic link",
        ),
        ("rm \"$TREE\"; mkdir \"$TREE\"; out done x", "folder"),
    ];
    for (script, words) in cases {
        let repo = planned(&["a", "b"], "", &["true"]);
        repo.agent_at(2, script);
        let told = step(&repo);
        assert_eq!(told["class"], "invalid_tree", "{script}: {told:#}");
        assert_eq!(told["attempts"], 0, "{script}");
        assert!(
            told["findings"].to_string().contains(words),
            "{script}: {told:#}"
        );
        assert!(trailer(&repo, "Runner-Last-Valid").is_some());
        repo.agent_at(3, MEND);
        assert_eq!(step(&repo)["class"], "repaired", "{script}");
        repo.runner(&["validate"]).success();
    }
}

#[test]
fn all_findings_are_listed_for_the_repair() {
    let repo = broken(
        "tree_edit 'child(t, \"x/y\", 1, \"X\"); n(\"b\")[\"id\"] = \"a\"; \
         child(t, \"repair-tree\", 2, \"R\")'; out done x",
    );
    repo.agent_at(3, MEND);
    repair(&repo, "repaired");
    let prompt = prompt(&repo, 3);
    for words in ["x/y", "used by another node", "reserved"] {
        assert!(prompt.contains(words), "{words:?} in:\n{prompt}");
    }
}

#[test]
fn three_refusals_bring_the_last_valid_tree_back() {
    let repo = broken(BREAK);
    let broken_bytes = repo.read(".runner/state/tree.json");
    let valid = repo.git(&["show", "HEAD~1:.runner/state/tree.json"]);
    // Not touched, still invalid, and valid but without a node that must not vanish.
    repo.agent_at(3, "out retry 'gave up'");
    let meta = repair(&repo, "repair_refused");
    assert_eq!(meta["facts"]["refused_repairs"], 0);
    assert_eq!(repo.read(".runner/state/tree.json"), broken_bytes);
    repo.agent_at(4, "echo worse > \"$TREE\"; out done 'done'");
    repair(&repo, "repair_refused");
    assert_eq!(repo.read(".runner/state/tree.json"), broken_bytes);
    assert!(
        prompt(&repo, 4).contains("was not changed"),
        "{}",
        prompt(&repo, 4)
    );
    let select = repo.runner(&["select", "--json"]).code(1);
    assert_eq!(select.json()["status"], "repair");

    let script = "git show HEAD~3:.runner/state/tree.json > \"$TREE\"
        tree_edit 't[\"children\"].remove(n(\"b\"))'; echo more > more.txt; out retry x";
    repo.agent_at(5, script);
    let meta = repair(&repo, "repair_restored");
    assert_eq!(meta["facts"]["refused_repairs"], 2);
    assert!(prompt(&repo, 5).contains("worse") || prompt(&repo, 5).contains("expected value"));
    assert_eq!(
        repo.read(".runner/state/tree.json").trim_end(),
        valid,
        "in that same commit"
    );
    assert!(
        repo.git(&["ls-files"]).contains("more.txt"),
        "the rest is kept"
    );
    repo.agent(WORK);
    assert_eq!(step(&repo)["node_id"], "a");
    repo.runner(&["replay"]).success();

    // The count begins anew with the next invalid tree.
    repo.agent_at(7, BREAK);
    assert_eq!(step(&repo)["class"], "invalid_tree");
    repo.agent("out retry x");
    for class in ["repair_refused", "repair_refused", "repair_restored"] {
        repair(&repo, class);
    }
    repo.agent(WORK);
    assert_eq!(step(&repo)["node_id"], "b");
    repo.runner(&["step"]).code(2);
}

#[test]
fn a_repair_must_keep_what_has_passed() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    step(&repo);
    repo.agent_at(3, BREAK);
    step(&repo);
    repo.agent_at(
        4,
        "git show HEAD~1:.runner/state/tree.json > \"$TREE\"
        tree_edit 'n(\"a\")[\"title\"] = \"Other\"'; out retry x",
    );
    repair(&repo, "repair_refused");
    repo.agent_at(
        5,
        "git show HEAD~2:.runner/state/tree.json > \"$TREE\"
        tree_edit 'n(\"a\")[\"passes\"] = False; n(\"b\")[\"passes\"] = True'; out retry x",
    );
    repair(&repo, "repaired");
    assert_eq!(
        (&repo.node("a")["passes"], &repo.node("b")["passes"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn a_repair_that_touches_the_runners_files_is_refused() {
    let repo = broken(BREAK);
    repo.agent_at(3, &format!("echo x >> .runner/GOAL.md; {MEND}"));
    let meta = repair(&repo, "repair_refused");
    assert_eq!(meta["facts"]["owned_changed"], json!([".runner/GOAL.md"]));
    assert_eq!(repo.read(".runner/GOAL.md"), GOAL);
}

#[test]
fn a_runner_error_in_a_repair_neither_helps_nor_harms() {
    let repo = broken(BREAK);
    let bytes = repo.read(".runner/state/tree.json");
    for iter in 3..7 {
        repo.agent_at(iter, "echo x > \"$TREE\"; exit 0");
        let told = failed_step(&repo);
        assert_eq!(
            (&told["node_id"], &told["attempts"]),
            (&json!("repair-tree"), &Value::Null)
        );
        assert_eq!(told["error"]["code"], "no_output");
        assert_eq!(repo.read(".runner/state/tree.json"), bytes);
        assert_eq!(trailer(&repo, "Runner-Mode").as_deref(), Some("repair"));
    }
    repo.agent_at(
        7,
        "git show HEAD~5:.runner/state/tree.json > \"$TREE\"; out retry x",
    );
    repair(&repo, "repaired");
}

#[test]
fn a_fresh_clone_without_logs_can_repair() {
    let repo = broken(BREAK);
    repo.agent_at(3, "out retry 'gave up'");
    repair(&repo, "repair_refused");
    let clone = repo.root().join("clone");
    repo.git(&["clone", "-q", ".", &clone.display().to_string()]);
    let git = |args: &[&str]| {
        let folder = clone.display().to_string();
        repo.git(&[&["-C", &folder], args].concat())
    };
    git(&["checkout", "-q", "runner/demo"]);
    assert!(!clone.join(".runner/iterations").exists());
    let runner = |args: &[&str]| {
        let mut cmd = repo.hermetic(BIN);
        cmd.args(args).current_dir(&clone);
        repo.spawn(cmd).wait()
    };
    assert_eq!(
        runner(&["select", "--json"]).code(1).json()["status"],
        "repair"
    );
    // The refusal before the clone counts: one more, then the last valid tree.
    repo.agent_at(4, "out retry 'gave up again'");
    assert_eq!(
        runner(&["step", "--json"]).success().json()["class"],
        "repair_refused"
    );
    repo.agent_at(5, "out retry 'and again'");
    assert_eq!(
        runner(&["step", "--json"]).success().json()["class"],
        "repair_restored"
    );
    assert_eq!(git(&["status", "--porcelain"]), "");
    repo.agent(WORK);
    assert_eq!(
        runner(&["loop", "--json"])
            .success()
            .json_lines()
            .last()
            .unwrap()["status"],
        "complete"
    );
}

#[test]
fn a_persons_invalid_tree_is_an_error_and_not_repaired() {
    let repo = planned(&["a"], WORK, &["true"]);
    repo.write(".runner/state/tree.json", "{}\n");
    repo.commit_all("oops");
    let head = repo.head();
    for command in ["step", "loop", "select"] {
        human_error(
            &repo.runner(&[command]),
            "tree.json",
            "mend it with `runner edit tree`",
        );
        let run = repo.runner(&[command, "--json"]).code(1);
        assert_eq!(error_code(&run), "tree");
    }
    assert_eq!(repo.head(), head);
    assert_eq!(repo.agent_calls().len(), 1);
    repo.git(&["revert", "--no-edit", "HEAD"]);
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn a_person_may_mend_what_a_session_broke() {
    let repo = broken(BREAK);
    let valid = repo.git(&["show", "HEAD~1:.runner/state/tree.json"]);
    repo.write(".runner/state/tree.json", format!("{valid}\n"));
    repo.commit_all("mended by hand");
    repo.agent(WORK);
    assert_eq!(step(&repo)["node_id"], "a");
    repo.runner(&["replay"]).success();
}

#[test]
fn a_start_in_between_does_not_forget_the_repair() {
    let repo = broken(BREAK);
    repo.write(".runner/INSTRUCTIONS.md", "Be careful with the tree.\n");
    repo.runner(&["start"]).success();
    assert_eq!(
        repo.runner(&["select", "--json"]).code(1).json()["status"],
        "repair"
    );
    repo.agent("git show HEAD~2:.runner/state/tree.json > \"$TREE\"; out retry x");
    repair(&repo, "repaired");
}

#[test]
fn a_loop_repairs_and_goes_on() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    repo.agent_at(2, BREAK);
    repo.agent_at(3, MEND);
    let lines = repo.runner(&["loop", "--json"]).success().json_lines();
    let classes: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["class"].as_str())
        .collect();
    assert_eq!(classes, ["invalid_tree", "repaired", "ok", "ok", "ok"]);
    assert_eq!(lines.last().unwrap()["status"], "complete");
}
