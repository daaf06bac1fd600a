//! A user who goes on working in the checkout while a loop runs: nothing of theirs is touched,
//! nothing is charged to a leaf, and the loop goes on.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runner_testkit::{TestRepo, eventually};
use scenario::{GOAL, bare, human_error, plan, planned};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

/// Each session waits for the user to have done something.
const AGENT: &str = ": > \"$AGENT_DIR/at-$RUNNER_ITER\"
while [ ! -e \"$AGENT_DIR/go-$RUNNER_ITER\" ]; do sleep 0.02; done
echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done x";

fn wait_for(repo: &TestRepo, iter: u64) {
    let there = repo.agent_dir().join(format!("at-{iter}"));
    eventually("the session", PATIENCE, || there.exists());
}

fn go(repo: &TestRepo, iter: u64) {
    fs::write(repo.agent_dir().join(format!("go-{iter}")), "").unwrap();
}

#[test]
fn twenty_iterations_beside_a_busy_user() {
    let leaves: Vec<String> = (1..=20).map(|n| format!("leaf{n:02}")).collect();
    let names: Vec<&str> = leaves.iter().map(String::as_str).collect();
    let mut repo = bare();
    repo.write("mine.txt", "mine\n");
    repo.commit_all("Mine");
    repo.start_run(GOAL, &["sh", "-c", "test -e README.md"]);
    plan(&repo, &names);
    repo.agent(AGENT);
    let running = repo.spawn_runner(&["loop"]);
    let branch = "runner/demo";
    for iter in 2..=21 {
        wait_for(&repo, iter);
        match iter {
            // An edit on the run's branch: the checkout stays, and so does the edit.
            2 => repo.write("mine.txt", "edited\n"),
            4 => {
                assert_eq!(repo.read("mine.txt"), "edited\n");
                assert!(!repo.exists("leaf01.txt"), "both stay");
                repo.runner(&["status"]).success().says("iterations behind");
                repo.runner(&["follow"]).code(1).says("mine.txt");
                repo.git(&["stash", "-q"]);
                repo.runner(&["follow"]).success();
                assert_eq!(repo.read("leaf01.txt"), "leaf01\n");
            }
            5 => {
                repo.git(&["stash", "pop", "-q"]);
                repo.git(&["checkout", "-q", "--", "mine.txt"]);
                repo.git(&["switch", "-q", "main"]);
            }
            7 => {
                repo.write("on-main.txt", "main\n");
                repo.git(&["add", "on-main.txt"]);
                repo.git(&["commit", "-qm", "On main"]);
                repo.runner(&["status"])
                    .success()
                    .says("your checkout is on main");
            }
            9 => {
                repo.git(&["reflog", "expire", "--expire=now", "--all"]);
                repo.git(&["gc", "-q", "--prune=now"]);
            }
            10 => {
                repo.git(&["switch", "-q", "-c", "topic"]);
                repo.write("topic.txt", "untracked\n");
            }
            12 => drop(repo.git(&["stash", "-q", "-u"])),
            13 | 18 => drop(repo.git(&["switch", "-q", branch])),
            // A commit on the run's branch is taken in.
            14 => {
                repo.write("by-hand.txt", "by hand\n");
                repo.git(&["add", "by-hand.txt"]);
                repo.git(&["commit", "-qm", "By hand"]);
            }
            16 => {
                assert_eq!(repo.read("by-hand.txt"), "by hand\n");
                repo.git(&["checkout", "-q", "--detach"]);
                repo.git(&["gc", "-q", "--prune=now"]);
            }
            _ => {}
        }
        go(&repo, iter);
    }
    running.wait_within(PATIENCE).success();
    assert_eq!(repo.git(&["branch", "--show-current"]), branch);
    repo.runner(&["follow"]).success();
    repo.assert_clean();
    for leaf in &leaves {
        let node = repo.node(leaf);
        assert_eq!(
            (&node["passes"], &node["attempts"]),
            (&json!(true), &json!(0)),
            "{leaf}"
        );
        assert_eq!(repo.read(format!("{leaf}.txt")), format!("{leaf}\n"));
    }
    assert_eq!(repo.read("by-hand.txt"), "by hand\n");
    assert_eq!(repo.git(&["show", "main:on-main.txt"]), "main");
    assert_eq!(repo.git(&["stash", "list"]).lines().count(), 1);
    assert_eq!(repo.git(&["show", "stash@{0}^3:topic.txt"]), "untracked");
    repo.git(&["fsck", "--strict"]);
    repo.runner(&["replay"]).success();
    repo.runner(&["land"]).success();
    assert_eq!(repo.read("on-main.txt"), "main\n");
    let left = repo.git(&["for-each-ref", "refs/runner/"]);
    assert_eq!(left, "", "a run that landed has its branch alone");
    assert!(
        !repo
            .root()
            .join("home/.local/state/runner")
            .read_dir()
            .unwrap()
            .flatten()
            .any(|it| {
                ["workspaces", "verdicts"].iter().any(|kind| {
                    it.path()
                        .join(kind)
                        .read_dir()
                        .is_ok_and(|mut list| list.next().is_some())
                })
            })
    );
    repo.runner(&["status"]).success().says("landed on main");
}

#[test]
fn what_a_person_did_to_the_branch_is_taken_in_or_kept() {
    let done = "echo \"$RUNNER_NODE_ID\" >> \"$RUNNER_NODE_ID.txt\"; out done x";
    let repo = planned(&["a", "b", "c", "d"], done, &["true"]);
    repo.runner(&["step"]).success();

    // Behind, because something is in the way; then a commit on the old tip: merged.
    repo.write("README.md", "edited\n");
    repo.runner(&["step"]).success().says("stays as it is");
    repo.git(&["commit", "-qam", "Edited"]);
    repo.runner(&["step"]).success();
    let log = repo.git(&["log", "--format=%s", "runner/demo"]);
    assert!(
        log.contains("Merge what was committed on runner/demo"),
        "{log}"
    );
    assert_eq!(repo.git(&["show", "runner/demo:README.md"]), "edited");
    assert_eq!(repo.git(&["show", "runner/demo:b.txt"]), "b");
    repo.runner(&["follow"]).success();

    // Moved back: the run goes on there, and where it was is kept.
    let tip = repo.head();
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let run = repo.runner(&["step", "--json"]).success();
    assert_eq!(run.json()["node_id"], "c", "{}", run.describe());
    assert!(
        run.stderr.contains("refs/runner/lost/demo/"),
        "{}",
        run.describe()
    );
    let kept = repo.git(&[
        "for-each-ref",
        "--format=%(objectname)",
        "refs/runner/lost/demo/",
    ]);
    assert_eq!(kept, tip);
    assert_eq!(repo.node("c")["attempts"], 0);

    // A commit that does not fit what the run has done since: kept, and told.
    repo.write("d.txt", "mine\n");
    repo.runner(&["step"]).success().says("stays as it is");
    repo.git(&["add", "d.txt"]);
    repo.git(&["commit", "-qm", "Another d"]);
    let mine = repo.head();
    let run = repo.runner(&["loop"]).success();
    assert!(run.stderr.contains("does not fit"), "{}", run.describe());
    let kept = repo.git(&[
        "for-each-ref",
        "--format=%(objectname)",
        "refs/runner/lost/demo/",
    ]);
    assert!(kept.contains(&mine), "{kept}");
    assert_eq!(repo.git(&["show", "runner/demo:d.txt"]), "d");
}

#[test]
fn a_run_whose_checkout_stays_where_it_is() {
    let mut repo = bare();
    repo.agent("echo work > work.txt; out done x");
    repo.init_run(GOAL, &["test", "-e", "work.txt"]);
    repo.write("mine.txt", "committed\n");
    repo.git(&["add", "mine.txt"]);
    repo.git(&["commit", "-qm", "Mine"]);
    repo.runner(&["start", "--stay"]).success();
    let branch = || repo.git(&["branch", "--show-current"]);
    assert_eq!(branch(), "main");
    repo.assert_clean();
    assert!(!repo.exists(".runner/GOAL.md"), "the run has it now");
    repo.write("mine.txt", "edited\n");
    repo.runner(&["loop"]).success();
    assert_eq!(
        (branch(), repo.read("mine.txt")),
        ("main".to_owned(), "edited\n".to_owned())
    );
    assert!(!repo.exists("work.txt"));
    repo.runner(&["status"])
        .success()
        .says("complete")
        .says("your checkout is on main");
    for command in [&["tree"][..], &["log"], &["report"], &["why", "root"]] {
        repo.runner(command).success();
    }
    assert_eq!(repo.git(&["show", "runner/demo:work.txt"]), "work");
    let refused = repo.runner(&["land"]);
    human_error(&refused, "mine.txt", "");
    repo.git(&["checkout", "-q", "--", "mine.txt"]);
    repo.runner(&["land"]).success();
    assert_eq!(repo.read("work.txt"), "work\n");
}

#[test]
fn a_run_of_an_earlier_version_goes_on() {
    let done = "echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done x";
    let repo = planned(&["a", "b"], done, &["true"]);
    repo.runner(&["step"]).success();
    // What that version had: a branch, and a session that was cut off in the checkout itself.
    for name in repo
        .git(&["for-each-ref", "--format=%(refname)", "refs/runner/"])
        .lines()
    {
        repo.git(&["update-ref", "-d", name]);
    }
    fs::remove_dir_all(repo.root().join("home/.local/state/runner")).unwrap();
    let folder = repo.run_dir().join("3");
    fs::create_dir_all(&folder).unwrap();
    let started = json!({
        "phase": "started", "run_id": "demo", "iter": 3, "node_id": "b", "head": repo.head(),
        "branch": "runner/demo", "started_at": "2026-01-01T00:00:00Z", "git_files": "git-files-x.json",
        "refused_repairs": 0, "last_valid": null, "max_attempts_default": 3
    });
    fs::write(folder.join("journal.jsonl"), format!("{started}\n")).unwrap();
    repo.write("half.txt", "half\n");
    let run = repo.runner(&["loop"]).success();
    assert!(run.stderr.contains("earlier version"), "{}", run.describe());
    assert_eq!(repo.read("half.txt"), "half\n");
    assert_eq!(repo.node("b")["passes"], true);
    assert!(repo.run_dir().join("3.stale-1/journal.jsonl").is_file());
}

/// Whoever cleans the repository up all the time takes nothing away: neither from the run, nor from
/// what it commits, nor from a landing.
#[test]
fn a_clean_up_at_any_moment_takes_nothing_away() {
    let leaves: Vec<String> = (1..=12).map(|n| format!("leaf{n:02}")).collect();
    let names: Vec<&str> = leaves.iter().map(String::as_str).collect();
    let mut repo = bare();
    repo.commit_all("Mine");
    repo.start_run(
        GOAL,
        &["sh", "-c", "git rev-parse HEAD && git status --short"],
    );
    plan(&repo, &names);
    repo.agent("echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done x");
    let stop = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| {
            let mut times = 0;
            while !stop.load(Ordering::SeqCst) {
                repo.git(&["reflog", "expire", "--expire=now", "--all"]);
                repo.git(&["gc", "-q", "--prune=now"]);
                times += 1;
            }
            times
        });
        let ended = [repo.runner(&["loop"]), repo.runner(&["land"])];
        stop.store(true, Ordering::SeqCst);
        for run in ended {
            run.success();
        }
        cleaner.join().unwrap()
    });
    assert!(times > 2, "{times} clean-ups");
    repo.git(&["fsck", "--strict", "--no-dangling"]);
    for name in names {
        assert_eq!(repo.git(&["show", &format!("main:{name}.txt")]), name);
    }
    repo.git(&["gc", "-q", "--prune=now"]);
    let packs = repo.git(&["count-objects", "-v"]);
    assert!(packs.contains("packs: 1\n"), "{packs}");
}
