//! `runner retry`: a stuck leaf gets more attempts, as a commit, and nothing else
//! does by accident.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::time::Duration;

use runner_testkit::{TestRepo, eventually};
use scenario::{
    GOAL, WAIT_FOR_GO, assert_same, bare, changed_files, error_code, go, human_error, picture,
    plan, planned, step, subject, trailer,
};
use serde_json::json;

const DONE: &str = "echo \"$RUNNER_NODE_ID\" >> work.txt; out done 'did it'";

/// `a` has passed, `b` has used up its two attempts, `c` is open.
fn stuck() -> TestRepo {
    let mut repo = bare();
    repo.config(|config| {
        config.set("max_attempts_default", 2);
    });
    repo.agent(DONE);
    repo.start_run(GOAL, &["sh", "-c", "! grep -q b work.txt || test -e ok"]);
    plan(&repo, &["a", "b", "c"]);
    for _ in 0..3 {
        step(&repo);
    }
    repo.runner(&["select"]).code(3);
    repo
}

#[test]
fn a_stuck_leaf_is_taken_up_again() {
    let repo = stuck();
    let run = repo.runner(&["retry", "b", "--json"]).success();
    let head = repo.head();
    assert_eq!(
        run.json(),
        json!({"schema_version": 1, "run_id": "demo", "node_id": "b", "path": "root/b",
               "added": 2, "attempts": 2, "max_attempts": 4, "commit": head,
               "next": {"status": "open", "id": "b", "path": "root/b",
                        "attempts": 2, "max_attempts": 4}})
    );
    repo.assert_clean();
    assert_eq!(
        subject(&repo),
        "chore(loop): retry b: 2 more attempts (2 of 4 used)"
    );
    assert_eq!(changed_files(&repo), [".runner/state/tree.json"]);
    assert!(
        trailer(&repo, "Runner-Tree")
            .unwrap()
            .starts_with("sha256:")
    );
    assert_eq!(repo.runner(&["select"]).success().stdout, "root/b\n");

    // The next session still hears what the guard said.
    repo.agent_at(
        5,
        "cp .runner/context/failure.md \"$AGENT_DIR/heard\"; touch ok; out done 'now it is there'",
    );
    repo.runner(&["loop"]).success();
    assert!(repo.agent_dir().join("heard").exists());
    assert_eq!(repo.tree()["passes"], true);
    let replay = repo.runner(&["replay"]).success();
    assert_eq!(
        replay.stderr,
        "note: between 4 and 5: `runner retry b`\n",
        "{}",
        replay.describe()
    );
}

#[test]
fn the_number_can_be_named_and_is_said() {
    let repo = stuck();
    let run = repo.runner(&["retry", "b", "--attempts", "1"]).success();
    assert_eq!(run.stdout, "");
    assert_eq!(
        run.stderr,
        "root/b has 1 more attempt (2 of 3 used)\nnext: `runner loop` goes on with it\n"
    );
    // A leaf that is not stuck gets more only if the number is named.
    let run = repo.runner(&["retry", "c", "--attempts", "5"]).success();
    assert_eq!(
        run.stderr,
        "root/c has 5 more attempts (0 of 7 used)\nnote: root/b comes before it (`runner why b`)\n"
    );
    assert_eq!(repo.node("c")["max_attempts"], 7);
    step(&repo);
    assert_eq!(repo.node("b")["attempts"], 3);
    repo.runner(&["select"]).code(3);
    repo.runner(&["replay"]).success();
}

#[test]
fn what_is_refused_changes_nothing() {
    let repo = stuck();
    let before = picture(&repo);
    for (args, code, message, hint) in [
        (
            &["bb"][..],
            "not_found",
            "no node \"bb\"",
            "did you mean b?",
        ),
        (
            &["nobody"],
            "not_found",
            "no node \"nobody\"",
            "`runner tree` shows the ids",
        ),
        (&["a"], "refused", "node a has passed", "runner tree"),
        (
            &["root"],
            "refused",
            "node root has children",
            "stuck below it: b; `runner retry b`",
        ),
        (
            &["c"],
            "refused",
            "node c is not stuck: 2 of its 2 attempts are left",
            "`runner retry c --attempts 2`",
        ),
        (
            &["b", "--attempts", "4294967295"],
            "refused",
            "so many attempts cannot be counted",
            "smaller",
        ),
    ] {
        let args: Vec<&str> = ["retry"].iter().chain(args).copied().collect();
        human_error(&repo.runner(&args), message, hint);
        let run = repo.runner(&[&args[..], &["--json"]].concat()).code(1);
        assert_eq!(error_code(&run), code);
        assert_same(&repo, &before, message);
    }
    for wrong in [&["retry"][..], &["retry", "b", "--attempts", "0"]] {
        repo.runner(wrong).code(2);
    }
    assert_same(&repo, &before, "wrong usage");
}

#[test]
fn wherever_the_checkout_is_but_not_with_a_broken_tree() {
    let repo = stuck();
    repo.write("half.txt", "half");
    repo.git(&["switch", "-q", "--detach"]);
    repo.runner(&["retry", "b"]).success();
    assert_eq!(repo.read("half.txt"), "half");
    std::fs::remove_file(repo.path("half.txt")).unwrap();
    repo.git(&["switch", "-q", "runner/demo"]);

    repo.write(".runner/state/tree.json", "{");
    repo.commit_all("break it");
    let run = repo.runner(&["retry", "b", "--json"]).code(1);
    assert_eq!(error_code(&run), "tree");
}

#[test]
fn not_while_a_step_runs() {
    let repo = planned(&["a"], &format!("{WAIT_FOR_GO}{DONE}"), &["true"]);
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", Duration::from_secs(20), || {
        repo.agent_calls().len() == 2
    });
    let head = repo.head();
    let run = repo.runner(&["retry", "a", "--attempts", "1"]);
    human_error(&run, &format!("pid {}", running.pid()), "wait for it");
    assert_eq!(repo.head(), head);
    go(&repo);
    running.wait().success();
}

#[test]
fn an_unfinished_iteration_is_settled_first() {
    let repo = planned(&["a"], &format!("{WAIT_FOR_GO}{DONE}"), &["true"]);
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", Duration::from_secs(20), || {
        repo.agent_calls().len() == 2
    });
    running.kill();
    let run = repo.runner(&["retry", "a", "--attempts", "1"]).success();
    assert!(
        run.stderr.contains("recovered: iteration 2 of run demo"),
        "{}",
        run.describe()
    );
    repo.assert_clean();
    let subjects = repo.subjects();
    let last: Vec<&str> = subjects.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(
        last,
        [
            "chore(loop): retry a: 1 more attempt (0 of 4 used)",
            "chore(loop): run demo iter 2 node a status=retry guard=skipped",
        ]
    );
    go(&repo);
    repo.runner(&["loop"]).success();
    repo.runner(&["replay"]).success();
}

#[test]
fn why_says_what_happened_and_what_helps() {
    let repo = stuck();
    let run = repo.runner(&["why"]).success();
    insta::assert_snapshot!(run.stdout, @r#"
    root/b: stuck
      it is the leftmost open leaf
      but all 2 of its attempts are used up: the loop stops here until a person acts
      iteration 3, guard failed: did it
      iteration 4, guard failed: did it
      the guard said no in iteration 4 (sh -c ! grep -q b work.txt || test -e ok, exit 1) and printed nothing
      what helps:
        runner retry b    give it more attempts
        runner edit tree  change, split or remove it
        runner log 4      its last try in full
    "#);
    let value = repo.runner(&["why", "b", "--json"]).success().json();
    assert_eq!(value["tries"][1]["iter"], 4);
    assert_eq!(value["tries"][1]["outcome"], "guard_failed");
    assert_eq!(value["guard"]["exit"], 1);
    assert_eq!(value["next"][0]["command"], "runner retry b");
    // Others have none of that.
    let value = repo.runner(&["why", "c", "--json"]).success().json();
    assert_eq!(value.get("tries"), None, "{value}");

    // Without logs the bookkeeping still has the last words.
    std::fs::remove_dir_all(repo.path(".runner/iterations")).unwrap();
    let value = repo.runner(&["why", "--json"]).success().json();
    assert_eq!(
        value["tries"],
        json!([{"iter": null, "outcome": "guard_failed", "summary": "did it"}])
    );
    assert_eq!(value["guard"], json!(null));
}
