//! The rows of "One step, exactly" in which the agent's word is taken: done,
//! retry and decomposed, with everything that the iteration leaves behind.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_core::digest::sha256_hex;
use runner_testkit::TestRepo;
use scenario::record::{check, check_state};
use scenario::{GOAL, bare, changed_files, planned, started, step, trailer};
use serde_json::{Value, json};

const WORK: &str = "echo work >> work.txt; out done 'did it'";

fn owned_fields(node: &Value) -> [&Value; 3] {
    [&node["passes"], &node["attempts"], &node["max_attempts"]]
}

/// A file that the session read.
#[track_caller]
fn context_file(repo: &TestRepo, path: &str) -> String {
    std::fs::read_to_string(repo.workspace(path)).unwrap()
}

#[test]
fn done_and_the_guard_passes() {
    let repo = started(
        WORK,
        &["sh", "-c", "echo \"all is well\"; test -e work.txt"],
    );
    let head = repo.head();
    let told = step(&repo);
    assert_eq!(
        (&told["attempts"], &told["passes"]),
        (&json!(0), &json!(true))
    );
    let meta = check(&repo, "ok", "done", "pass");
    check_state(&repo, "done", "pass", "root");
    assert_eq!(repo.run_state()["last_summary"], "did it");
    assert_eq!(
        owned_fields(&repo.node("root")),
        [&json!(true), &json!(0), &json!(3)]
    );
    assert_eq!(meta["mode"], "execute");
    assert_eq!(meta["passed"], json!(["root"]));
    assert_eq!(meta["head"], head.as_str());
    assert_eq!(meta["guard_run"]["exit_code"], 0);
    assert_eq!(meta["executor"]["exit_code"], 0);
    assert_eq!(meta["sandbox"], "none");
    assert_eq!(
        trailer(&repo, "Runner-Guard").unwrap(),
        r#"["sh","-c","echo \"all is well\"; test -e work.txt"] exit=0"#
    );
    let log = sha256_hex(b"all is well\n");
    assert_eq!(
        trailer(&repo, "Runner-Guard-Log").unwrap(),
        format!("sha256:{log}")
    );
    assert_eq!(
        changed_files(&repo),
        [
            ".runner/state/run_state.json",
            ".runner/state/tree.json",
            "work.txt"
        ]
    );
    assert_eq!(repo.git(&["rev-parse", "HEAD~1"]), head);
    assert_eq!(repo.events().len(), 8, "{:#?}", repo.events());
}

#[test]
fn done_and_the_guard_fails() {
    let repo = started(WORK, &["sh", "-c", "echo broken here; exit 7"]);
    let told = step(&repo);
    assert_eq!(
        [
            &told["status"],
            &told["guard"],
            &told["attempts"],
            &told["passes"]
        ],
        [&json!("done"), &json!("fail"), &json!(1), &json!(false)]
    );
    let meta = check(&repo, "ok", "done", "fail");
    check_state(&repo, "done", "fail", "root");
    assert_eq!(meta["guard_run"]["exit_code"], 7);
    assert_eq!(meta["passed"], json!([]));
    assert!(
        repo.git(&["ls-files"]).contains("work.txt"),
        "the work is kept"
    );
    // The next session hears the guard, not a history.
    step(&repo);
    let failure = context_file(&repo, ".runner/context/failure.md");
    assert!(
        failure.contains("broken here") && failure.contains("exit code 7"),
        "{failure}"
    );
    assert!(!repo.workspace(".runner/context/history.md").exists());
    assert_eq!(repo.node("root")["attempts"], 2);
    // A guard that a signal ends has failed, too.
    let repo = started(WORK, &["sh", "-c", "kill -9 $$"]);
    step(&repo);
    let meta = check(&repo, "ok", "done", "fail");
    assert_eq!(meta["guard_run"]["exit_code"], 137);
}

#[test]
fn retry() {
    let repo = started("echo half > work.txt; out retry 'got half way'", &["false"]);
    let told = step(&repo);
    assert_eq!(
        [
            &told["status"],
            &told["guard"],
            &told["attempts"],
            &told["passes"]
        ],
        [&json!("retry"), &json!("skipped"), &json!(1), &json!(false)]
    );
    let meta = check(&repo, "ok", "retry", "skipped");
    check_state(&repo, "retry", "skipped", "root");
    assert_eq!(meta["guard_run"], Value::Null);
    assert_eq!(meta["mode"], "execute");
    assert!(repo.git(&["ls-files"]).contains("work.txt"));
    step(&repo);
    assert!(context_file(&repo, ".runner/context/history.md").contains("got half way"));
    assert!(!repo.workspace(".runner/context/failure.md").exists());
}

#[test]
fn decomposed() {
    let script = "add_child root b 2 Second\nadd_child root a 1 First\nout decomposed 'two parts'";
    let repo = started(script, &["false"]);
    let told = step(&repo);
    assert_eq!(
        [
            &told["status"],
            &told["guard"],
            &told["attempts"],
            &told["passes"]
        ],
        [
            &json!("decomposed"),
            &json!("skipped"),
            &json!(0),
            &json!(false)
        ]
    );
    let meta = check(&repo, "ok", "decomposed", "skipped");
    check_state(&repo, "decomposed", "skipped", "root");
    assert_eq!(meta["mode"], "decompose");
    assert_eq!(meta["tree_changes"]["added"], json!(["a", "b"]));
    assert_eq!(
        changed_files(&repo),
        [".runner/state/run_state.json", ".runner/state/tree.json"]
    );
    let ids: Vec<Value> = repo.tree()["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    assert_eq!(ids, ["a", "b"]);
    repo.agent(WORK);
    assert_eq!(step(&repo)["node_id"], "a");
}

#[test]
fn the_mode_is_judged_by_what_changed() {
    let cases = [
        ("add_child root a 1 A; out decomposed x", "decompose"),
        // Sidecars and notes are the runner's folder: still only planning.
        (
            "add_child root a 1 A; echo q >> .runner/state/questions.md; out decomposed x",
            "decompose",
        ),
        (
            "add_child root a 1 A; echo 1 > code.txt; out decomposed x",
            "execute",
        ),
        ("echo 1 > code.txt; out retry x", "execute"),
        ("out retry x", "execute"),
        (
            "tree_edit 'n(\"root\")[\"title\"] = \"T\"'; out retry x",
            "decompose",
        ),
    ];
    for (script, mode) in cases {
        let repo = started(script, &["true"]);
        step(&repo);
        assert_eq!(repo.meta(1)["mode"], mode, "{script}");
        assert_eq!(
            trailer(&repo, "Runner-Mode").as_deref(),
            Some(mode),
            "{script}"
        );
    }
}

#[test]
fn parents_pass_when_all_their_children_have() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    repo.agent_at(
        2,
        "add_child a a1 1 A1; add_child a a2 2 A2; out decomposed x",
    );
    step(&repo);
    step(&repo);
    assert_eq!(repo.meta(3)["passed"], json!(["a1"]));
    step(&repo);
    assert_eq!(repo.meta(4)["passed"], json!(["a2", "a"]));
    assert_eq!(repo.node("a")["passes"], true);
    assert_eq!(repo.node("root")["passes"], false);
    let told = step(&repo);
    assert_eq!(
        (&told["node_id"], &told["passed"]),
        (&json!("b"), &json!(["b", "root"]))
    );
    assert_eq!(repo.node("root")["passes"], true);
    repo.runner(&["step"]).code(2);
}

#[test]
fn the_last_attempt_exits_0_and_the_next_step_3() {
    for (script, guard) in [("out retry 'no'", "true"), (WORK, "false")] {
        let repo = started(script, &[guard]);
        for attempts in 1..=3 {
            assert_eq!(step(&repo)["attempts"], attempts);
        }
        let head = repo.head();
        repo.runner(&["step"]).code(3);
        repo.runner(&["step"]).code(3);
        assert_eq!(repo.head(), head);
        assert_eq!(repo.agent_calls().len(), 3);
        assert_eq!(repo.node("root")["attempts"], 3);
    }
}

#[test]
fn a_forged_tree_gains_nothing_and_breaks_nothing() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    let forge = "tree_edit '
n(\"a\")[\"passes\"] = True
n(\"a\")[\"attempts\"] = 0
n(\"b\")[\"passes\"] = True
n(\"b\")[\"attempts\"] = 2
n(\"b\")[\"max_attempts\"] = 99
t[\"passes\"] = True
child(n(\"b\"), \"new\", 1, \"New\", passes=True, attempts=2, max_attempts=50)
child(n(\"b\"), \"low\", 2, \"Low\", max_attempts=1)
'; out retry 'forged'";
    repo.agent_at(2, forge);
    step(&repo);
    let meta = check(&repo, "ok", "retry", "skipped");
    assert_eq!(meta["passed"], json!([]));
    for (id, attempts, max) in [("a", 1, 3), ("b", 0, 3), ("new", 0, 3), ("low", 0, 1)] {
        assert_eq!(
            owned_fields(&repo.node(id)),
            [&json!(false), &json!(attempts), &json!(max)],
            "{id}"
        );
    }
    assert_eq!(repo.node("root")["passes"], false);
    // Attempts that were used cannot be wiped away either.
    repo.agent_at(3, "tree_edit 'n(\"a\")[\"attempts\"] = 0'; out retry x");
    step(&repo);
    assert_eq!(repo.node("a")["attempts"], 2);
}

#[test]
fn open_nodes_may_be_edited_moved_and_added() {
    let repo = planned(&["a", "b", "c"], WORK, &["true"]);
    let script = "tree_edit '
n(\"b\")[\"title\"] = \"Better\"
n(\"b\")[\"goal\"] = \"Changed\"
moved = n(\"c\"); t[\"children\"].remove(moved); n(\"b\")[\"children\"].append(moved)
child(t, \"d\", 9, \"Late\")
t[\"children\"].reverse()
'; echo x > x.txt; out done 'a is done'";
    repo.agent_at(2, script);
    let told = step(&repo);
    assert_eq!(
        (&told["node_id"], &told["guard"]),
        (&json!("a"), &json!("pass"))
    );
    let meta = check(&repo, "ok", "done", "pass");
    let changes = &meta["tree_changes"];
    assert_eq!(changes["added"], json!(["d"]), "{changes}");
    assert_eq!(changes["edited"], json!(["b"]), "{changes}");
    assert_eq!(changes["moved"], json!(["c"]), "{changes}");
    assert_eq!(repo.node("b")["children"][0]["id"], "c");
    let ids: Vec<Value> = repo.tree()["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    assert_eq!(ids, ["a", "b", "d"], "sorted again");
    assert_eq!(step(&repo)["node_id"], "c");
}

#[test]
fn the_tree_is_written_in_one_form() {
    let repo = started("", &["true"]);
    // One line, keys in another order, no newline at the end.
    repo.agent(
        "tree_edit 'child(t, \"a\", 1, \"ä \\U0001F600\")'
        tr -d '\\n' < \"$TREE\" > \"$TREE.x\"; mv \"$TREE.x\" \"$TREE\"; out decomposed x",
    );
    step(&repo);
    let text = repo.read(".runner/state/tree.json");
    let expected = "{
  \"id\": \"root\",
  \"order\": 0,
  \"title\": \"Ship it\",
  \"goal\": \"# Ship it\\n\\nAll of it.\",
  \"acceptance\": [],
  \"passes\": false,
  \"attempts\": 0,
  \"max_attempts\": 3,
  \"children\": [
    {
      \"id\": \"a\",
      \"order\": 1,
      \"title\": \"ä 😀\",
      \"goal\": \"Make ä 😀 true.\",
      \"acceptance\": [],
      \"passes\": false,
      \"attempts\": 0,
      \"max_attempts\": 3,
      \"children\": []
    }
  ]
}
";
    assert_eq!(text, expected);
}

#[test]
fn the_agent_may_commit_by_itself() {
    let script = "echo one > one.txt; git add -A; git commit -q -m 'agent: one'
echo two > two.txt; git add two.txt; git commit -q -m 'agent: two'
echo three > three.txt; out done 'three files'";
    let repo = started(script, &["sh", "-c", "cat one.txt two.txt three.txt"]);
    let head = repo.head();
    step(&repo);
    let meta = check(&repo, "ok", "done", "pass");
    assert_eq!(meta["head"], head.as_str(), "where the step began");
    assert_eq!(meta["mode"], "execute");
    // Its commits count for nothing, its files do.
    assert_eq!(repo.subjects().len(), 3);
    assert_eq!(repo.git(&["rev-parse", "HEAD~1"]), head);
    let diff = repo.runner(&["log", "1", "--json"]).success().json()["diff"].to_string();
    for file in ["one.txt", "two.txt", "three.txt"] {
        assert!(diff.contains(file), "{file} in {diff}");
    }
}

#[test]
fn an_agent_that_changes_nothing_and_exits_badly_is_still_believed() {
    let repo = started("out done 'nothing was to be done'; exit 3", &["true"]);
    step(&repo);
    let meta = check(&repo, "ok", "done", "pass");
    assert_eq!(meta["executor"]["exit_code"], 3);
    assert_eq!(meta["mode"], "execute");
}

#[test]
fn a_person_may_edit_between_the_steps() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    let mut tree = repo.tree();
    tree["children"].as_array_mut().unwrap().remove(0);
    tree["children"][0]["max_attempts"] = json!(7);
    repo.write(
        ".runner/state/tree.json",
        serde_json::to_string_pretty(&tree).unwrap(),
    );
    repo.commit_all("a is not needed");
    let told = step(&repo);
    assert_eq!(
        (&told["node_id"], &told["passes"]),
        (&json!("b"), &json!(true))
    );
    assert_eq!(repo.node("b")["max_attempts"], 7);
    repo.runner(&["replay"]).success().says("edited by hand");
    repo.runner(&["step"]).code(2);
}

#[test]
fn new_leaves_get_the_configured_number_of_attempts() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("max_attempts_default", 2);
    });
    repo.agent("add_child root a 1 A; out decomposed x");
    repo.start_run(GOAL, &["true"]);
    assert_eq!(repo.node("root")["max_attempts"], 2);
    step(&repo);
    assert_eq!(repo.node("a")["max_attempts"], 2, "3 was asked for");
    assert_eq!(repo.meta(1)["facts"]["max_attempts_default"], 2);
}

#[test]
fn the_same_run_again_replays_and_verifies() {
    let repo = planned(&["a", "b"], WORK, &["sh", "-c", "test -e work.txt"]);
    repo.agent_at(2, "out retry 'not yet'");
    for _ in 0..3 {
        step(&repo);
    }
    let replay = repo.runner(&["replay", "--json"]).success().json();
    assert_eq!(
        (&replay["iterations"], &replay["difference"]),
        (&json!(4), &Value::Null)
    );
    let proof = repo.runner(&["verify", "a", "--json"]).success().json();
    assert_eq!((&proof["holds"], &proof["iter"]), (&json!(true), &json!(3)));
    let other: &TestRepo = &repo;
    other.assert_clean();
}
