//! A whole night, as a person lives it: from a goal in the evening to merged work in the morning,
//! by nothing but commands of the runner.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod running_support;

use std::fs;
use std::path::Path;

use runner_testkit::{TestRepo, TestRun, eventually, signal};
use running_support::{LONG, go, wait_for_phase, wait_for_session};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// The project's own check: every greeting ends with an exclamation mark.
const CHECK: &str = "for file in *.txt; do\n\
    [ -e \"$file\" ] || exit 0\n\
    grep -q '!$' \"$file\" || { echo \"$file: no exclamation mark\"; exit 1; }\n\
    done\n";

/// Splits the goal, works on the first part, and waits at the second until it is killed or told to
/// go on. After that it gets the second part wrong.
const EVENING: &str = r#"
case $RUNNER_NODE_ID in
root)
    add_child root hello 1 'Say hello'
    add_child root bye 2 'Say goodbye'
    out decomposed 'two greetings' ;;
hello) echo 'Hello!' >hello.txt; out done 'said hello' ;;
bye)
    echo 'half a word' >draft.md
    : >"$AGENT_DIR/up-$RUNNER_ITER"
    while [ ! -e "$AGENT_DIR/go" ]; do sleep 0.05; done
    echo 'Bye' >bye.txt; out done 'said goodbye' ;;
esac"#;

/// The command, as a person in this folder types it.
#[track_caller]
fn type_in(repo: &TestRepo, folder: &Path, words: &[&str]) -> TestRun {
    let folder = folder.display().to_string();
    repo.runner(&[&["-C", &folder], words].concat())
}

#[track_caller]
fn says(run: &TestRun, words: &[&str]) {
    for words in words {
        let said = run.stdout.contains(words) || run.stderr.contains(words);
        assert!(said, "{words:?} is missing: {}", run.describe());
    }
}

/// The settings of a person who has an agent of their own.
fn settings(repo: &mut TestRepo) {
    repo.config(|config| {
        config.set("guard.command", json!(["sh", "check.sh"]));
        config.set("guard.protected", json!(["check.sh"]));
        config.set("max_attempts_default", 2);
    });
}

fn project() -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    repo.write("check.sh", CHECK);
    repo.commit_all("A project that can check itself");
    settings(&mut repo);
    repo
}

/// Waits until the loop in the background is over; how it ended.
#[track_caller]
fn ended(repo: &TestRepo) -> Value {
    wait_for_phase(repo, "idle")["last_end"].clone()
}

#[test]
fn from_the_goal_to_merged_work() {
    let repo = project();

    // Evening: a goal, and the loop in the background.
    let run = repo.runner(&["init", "--goal", "Greet people", "--backend", "command"]);
    says(&run.success(), &["next: ", "runner start"]);
    repo.write_config();
    says(
        &repo.runner(&["start"]).success(),
        &["begins on branch", "runner loop"],
    );
    let first = repo.run_id();
    repo.agent(EVENING);
    let run = repo.runner(&["loop", "--detach"]).success();
    says(
        &run,
        &[
            "pid ",
            "runner status",
            "runner watch",
            "runner log --follow",
            "runner stop",
        ],
    );
    wait_for_session(&repo, 3);

    // Night: the machine goes down in the middle of a session.
    let pid = running_support::activity(&repo)["pid"].as_i64().unwrap();
    assert!(signal("KILL", pid));
    wait_for_phase(&repo, "idle");
    says(
        &repo.runner(&["report"]).success(),
        &["1 of 2 leaves", "runner loop"],
    );

    // Somebody starts it again, and it gets stuck.
    go(&repo);
    repo.runner(&["loop", "--detach"]).success();
    assert_eq!(ended(&repo)["status"], "stuck");
    assert_eq!(repo.meta(3)["error"]["kind"], "interrupted");
    assert_eq!(repo.read("draft.md"), "half a word\n", "nothing is lost");

    // Morning: what happened, and what helps.
    let run = repo.runner(&["report"]).success();
    says(
        &run,
        &[
            "stuck at root/bye",
            "✓ root/hello",
            "bye.txt: no exclamation mark",
            "how the plan changed",
            "runner retry bye",
        ],
    );
    says(
        &repo.runner(&["report", "--md"]).success(),
        &["root/bye", "`runner retry bye`"],
    );
    let page = repo.runner(&["report", "--json"]).success().json();
    assert_eq!(page["state"], "stuck", "{page}");
    says(
        &repo.runner(&["why", "bye"]).success(),
        &["said goodbye", "no exclamation mark", "runner retry bye"],
    );
    says(&repo.runner(&["retry", "bye"]).success(), &["bye"]);
    repo.agent("echo 'Bye!' >bye.txt; rm -f draft.md; out done 'now with a mark'");
    repo.runner(&["loop", "--detach"]).success();
    assert_eq!(ended(&repo)["status"], "complete");
    says(
        &repo.runner(&["report"]).success(),
        &["complete", "✓ root/bye", "runner land"],
    );
    repo.runner(&["replay"]).success();

    // Home.
    let before = repo.git(&["rev-list", "--count", "main"]);
    says(&repo.runner(&["land"]).success(), &["main"]);
    assert_eq!(repo.git(&["branch", "--show-current"]), "main");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.read("bye.txt"), "Bye!\n");
    let tracked = repo.git(&["ls-tree", "-r", "--name-only", "main"]);
    assert!(!tracked.contains(".runner"), "{tracked}");
    let after: u32 = repo.git(&["rev-list", "--count", "main"]).parse().unwrap();
    assert_eq!(after, before.parse::<u32>().unwrap() + 1);
    says(&repo.runner(&["land"]).success(), &["already"]);

    // A second goal, from main, without saying again what the first one knew.
    let run = repo
        .runner(&["init", "--goal", "Greet in French"])
        .success();
    says(&run, &[&first, "guard:     sh check.sh"]);
    repo.runner(&["start"]).success();
    let second = repo.run_id();
    assert_ne!(first, second);
    repo.agent("echo 'Salut!' >fr.txt; out done 'in French'");
    repo.runner(&["loop", "--steps", "1"]).success();
    assert!(repo.exists("bye.txt") && repo.exists("fr.txt"));

    // It was a bad idea.
    says(&repo.runner(&["abandon"]).success(), &["main", &second]);
    assert_eq!(repo.git(&["branch", "--show-current"]), "main");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert!(!repo.exists("fr.txt"));
    let branch = format!("runner/{second}");
    assert_eq!(repo.git(&["show", &format!("{branch}:fr.txt")]), "Salut!");

    let runs = repo.runner(&["runs", "--json"]).success().json();
    let states: Vec<(&str, &str)> = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            (
                run["run_id"].as_str().unwrap(),
                run["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(states.contains(&(&first, "landed")), "{states:?}");
    assert!(states.contains(&(&second, "abandoned")), "{states:?}");
}

/// Two goals at the same time, each in a work tree of its own: neither waits for the other.
#[test]
fn two_goals_at_once() {
    let mut repo = project();
    // Each session waits for the other: only together they can go on.
    repo.agent(
        r#"me=${RUNNER_RUN_ID#greet-}
case $me in one) other=two ;; *) other=one ;; esac
: >"$AGENT_DIR/there-$me"
while [ ! -e "$AGENT_DIR/there-$other" ]; do sleep 0.05; done
echo "I am $me!" >"$me.txt"
out done "greeted as $me""#,
    );
    settings(&mut repo);
    let trees = ["one", "two"].map(|name| repo.root().join(name));
    for tree in &trees {
        repo.git(&[
            "worktree",
            "add",
            "--quiet",
            "--detach",
            &tree.display().to_string(),
        ]);
        let name = tree.file_name().unwrap().to_str().unwrap();
        let goal = format!("Greet as {name}");
        type_in(
            &repo,
            tree,
            &["init", "--goal", &goal, "--backend", "command"],
        )
        .success();
        repo.write_config();
        let config = repo.path(".runner/state/config.toml");
        fs::rename(&config, tree.join(".runner/state/config.toml")).unwrap();
        fs::remove_dir_all(repo.path(".runner")).unwrap();
        let goal = format!("---\nid: greet-{name}\n---\n# {goal}\n");
        fs::write(tree.join(".runner/GOAL.md"), goal).unwrap();
        type_in(&repo, tree, &["start"]).success();
    }
    for tree in &trees {
        type_in(&repo, tree, &["loop", "--detach"]).success();
    }
    for tree in &trees {
        eventually("the end", LONG, || {
            let status = type_in(&repo, tree, &["status", "--json"]).success().json();
            status["activity"]["phase"] == "idle" && status["state"] == "complete"
        });
    }
    // One after the other comes home: for the second the base has moved.
    for tree in &trees {
        let run = type_in(&repo, tree, &["land", "--into", "main"]);
        says(&run.success(), &["main"]);
    }
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.read("one.txt"), "I am one!\n");
    assert_eq!(repo.read("two.txt"), "I am two!\n");
    let runs = repo.runner(&["runs"]).success();
    says(&runs, &["greet-one", "greet-two", "landed"]);
}
