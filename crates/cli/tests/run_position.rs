//! What commands that look say of a run that has ended, or whose branch a person has moved.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare, step};

const AGENT: &str = "echo work >> work.txt; out done 'did it'";

fn begun() -> TestRepo {
    let mut repo = bare();
    repo.agent(AGENT);
    repo.start_run(GOAL, &["true"]);
    repo
}

/// What a command says on either stream.
fn said(repo: &TestRepo, args: &[&str]) -> String {
    let run = repo.runner(args);
    format!("{}{}", run.stdout, run.stderr)
}

#[track_caller]
fn expect(repo: &TestRepo, words: &str) {
    for args in [&["tree"][..], &["select"], &["why", "root"]] {
        let text = said(repo, args);
        assert!(
            text.contains(&format!("run demo: {words}")),
            "{args:?}: {text}"
        );
    }
    let status = said(repo, &["status"]);
    assert!(status.contains(words), "{status}");
    let json = repo.runner(&["status", "--json"]).success().json();
    let checkout = json["checkout"].as_str().unwrap_or_default();
    assert!(checkout.contains(words), "{json:#}");
}

#[test]
fn a_run_that_landed_says_so() {
    let repo = begun();
    step(&repo);
    assert!(
        !said(&repo, &["tree"]).contains("run demo"),
        "nothing to add"
    );
    repo.runner(&["land"]).success();
    expect(&repo, "landed on main (");
    assert!(said(&repo, &["status"]).contains("on runner/demo: landed"));
    // Landed is landed, whatever is abandoned afterwards.
    repo.runner(&["abandon", "demo"]).success();
    expect(&repo, "landed on main (");
}

#[test]
fn a_run_that_was_abandoned_says_so_until_somebody_goes_back() {
    let repo = begun();
    repo.agent("echo work >> work.txt; out retry 'not yet'");
    step(&repo);
    repo.runner(&["abandon"]).success();
    let words = "abandoned; `runner start demo` goes back to it";
    expect(&repo, words);
    assert!(said(&repo, &["status"]).contains("on runner/demo: abandoned"));
    assert!(said(&repo, &["runs"]).contains("demo  abandoned"));
    repo.runner(&["start", "demo"]).success();
    assert!(said(&repo, &["runs"]).contains("demo  idle"));
    assert!(said(&repo, &["status"]).contains("on runner/demo: open"));
    // Going on by hand is going on, too.
    repo.runner(&["abandon"]).success();
    repo.git(&["switch", "-q", "runner/demo"]);
    assert!(said(&repo, &["runs"]).contains("demo  idle"));
    repo.agent(AGENT);
    step(&repo);
    repo.git(&["switch", "-q", "main"]);
    assert!(said(&repo, &["runs"]).contains("demo  complete"));
    repo.runner(&["abandon", "demo"]).success();
    repo.runner(&["land", "demo"]).success();
    assert!(said(&repo, &["runs"]).contains("demo  landed"));
}

#[test]
fn a_branch_that_a_person_moved_is_told() {
    let repo = begun();
    for _ in 0..2 {
        repo.agent("echo work >> work.txt; out retry 'not yet'");
        step(&repo);
    }
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let moved = "you moved runner/demo; the next iteration goes on there";
    assert!(said(&repo, &["status"]).contains(moved));
    assert!(said(&repo, &["follow"]).contains(moved));
    assert_eq!(step(&repo)["iter"], 2);
    repo.write("mine.txt", "mine\n");
    repo.commit_all("Mine");
    let mine = "there are commits of yours on runner/demo; the next iteration takes them in";
    assert!(said(&repo, &["status"]).contains(mine));
    assert!(said(&repo, &["follow"]).contains(mine));
    step(&repo);
    assert_eq!(repo.read("mine.txt"), "mine\n");
    assert!(!said(&repo, &["status"]).contains("checkout:"));
}
