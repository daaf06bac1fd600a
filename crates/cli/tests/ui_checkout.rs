//! `runner ui` shows the run, wherever the user's checkout is, and what became of it.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;
mod ui_support;

use std::fs;
use std::path::PathBuf;

use runner_testkit::{TestRepo, eventually, write_program};
use scenario::{GOAL, bare, plan};
use serde_json::{Value, json};
use ui_support::{PATIENCE, Ui};

/// Each session waits for the user to have done something.
const WAITS: &str = ": > \"$AGENT_DIR/at-$RUNNER_ITER\"
while [ ! -e \"$AGENT_DIR/go-$RUNNER_ITER\" ]; do sleep 0.02; done
echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done x";

const WORKS: &str = "echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done x";

fn wait_for(repo: &TestRepo, iter: u64) {
    let there = repo.agent_dir().join(format!("at-{iter}"));
    eventually("the session", PATIENCE, || there.exists());
}

fn go(repo: &TestRepo, iter: u64) {
    fs::write(repo.agent_dir().join(format!("go-{iter}")), "").unwrap();
}

/// A run whose tree has the leaves `a` and `b`, and a file of the user's.
fn two_leaves(agent: &str) -> TestRepo {
    let mut repo = bare();
    repo.write("mine.txt", "mine\n");
    repo.commit_all("Mine");
    repo.agent(agent);
    repo.start_run(GOAL, &["true"]);
    plan(&repo, &["a", "b"]);
    repo
}

/// Waits until the page says this of the run.
#[track_caller]
fn says(ui: &Ui, field: &str, expected: &Value) -> Value {
    let mut run = Value::Null;
    eventually(&format!("{field}: {expected}"), PATIENCE, || {
        let (status, body) = ui.get("/api/run");
        assert_eq!(status, 200, "{body}");
        run = serde_json::from_str(&body).unwrap();
        run[field] == *expected
    });
    run
}

/// Which leaves have passed by the page's tree.
#[track_caller]
fn passed(ui: &Ui) -> Vec<String> {
    let tree = ui.json("/api/tree");
    let leaves = tree["children"].as_array().unwrap().iter();
    leaves
        .filter(|leaf| leaf["passes"] == true)
        .map(|leaf| leaf["id"].as_str().unwrap().to_owned())
        .collect()
}

/// What `runner status` says of the checkout.
#[track_caller]
fn told_of_checkout(repo: &TestRepo) -> Value {
    let status = repo.runner(&["status"]).success();
    let line = status
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("checkout:"));
    line.map_or(Value::Null, |line| json!(line.trim()))
}

#[test]
fn a_checkout_elsewhere_while_the_loop_goes_on() {
    let repo = two_leaves(WAITS);
    let ui = Ui::start(&repo);
    let events = ui.listen("/events?stream=1");
    let mut seen = Vec::new();
    let running = repo.spawn_runner(&["loop"]);
    wait_for(&repo, 2);
    assert_eq!(ui.json("/api/run")["checkout"], json!(null));
    repo.git(&["switch", "-q", "main"]);
    assert!(!repo.exists(".runner/state/tree.json"));
    says(&ui, "checkout", &json!("your checkout is on main"));
    assert_eq!(ui.json("/api/run")["checkout"], told_of_checkout(&repo));
    go(&repo, 2);
    wait_for(&repo, 3);
    // What the loop does there is told and seen.
    events.wait(&mut seen, |event, _| event == "tree_changed");
    events.wait(&mut seen, |event, data| {
        event == "phase_changed" && data["iter"] == 3 && data["state"] == "running"
    });
    let run = says(&ui, "passed", &json!(1));
    assert_eq!(
        (&run["run_id"], &run["goal"]["title"], &run["phase"]),
        (&json!("demo"), &json!("Ship it"), &json!("agent"))
    );
    assert_eq!(passed(&ui), ["a"]);
    assert_eq!(ui.json("/api/run-state")["next_iter"], 3);
    let runs = ui.json("/api/iterations");
    assert_eq!(runs["runs"][0]["current"], true);
    assert_eq!(runs["runs"][0]["iterations"].as_array().unwrap().len(), 3);
    // Detached, and with the references packed.
    repo.git(&["switch", "-q", "--detach", "main"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    says(&ui, "checkout", &json!("your checkout is on no branch"));
    go(&repo, 3);
    running.wait().success();
    events.wait(&mut seen, |event, data| {
        event == "phase_changed" && data["state"] == "complete"
    });
    assert_eq!(passed(&ui), ["a", "b"]);
    let run = ui.json("/api/run");
    assert_eq!(run["needs_you"]["kind"], "land");
    assert_eq!(run["checkout"], told_of_checkout(&repo));
}

#[test]
fn a_loop_that_cannot_begin_here_is_not_proposed() {
    let repo = two_leaves(WORKS);
    let ui = Ui::start(&repo);
    let command = || ui.json("/api/run")["needs_you"]["command"].clone();
    let ends = |command: &Value, end: &str| command.as_str().unwrap().ends_with(end);
    assert!(ends(&command(), " loop"), "{}", command());
    repo.git(&["switch", "-q", "main"]);
    says(&ui, "checkout", &json!("your checkout is on main"));
    assert!(ends(&command(), " start demo"), "{}", command());
    repo.runner(&["start", "demo"]).success();
    says(&ui, "checkout", &json!(null));
    assert!(ends(&command(), " loop"), "{}", command());
}

#[test]
fn a_checkout_that_stays_where_it_is() {
    let mut repo = bare();
    repo.agent(WORKS);
    repo.init_run(GOAL, &["true"]);
    let ui = Ui::start(&repo);
    let run = ui.json("/api/run");
    assert_eq!(
        (&run["needs_you"]["kind"], &run["checkout"]),
        (&json!("not_started"), &json!(null))
    );
    repo.runner(&["start", "--stay"]).success();
    assert!(!repo.exists(".runner/GOAL.md"));
    let run = says(&ui, "run_id", &json!("demo"));
    let command = run["needs_you"]["command"].as_str().unwrap();
    assert!(command.ends_with(" loop"), "{command}");
    repo.runner(&["loop"]).success();
    let run = says(&ui, "state", &json!("complete"));
    assert_eq!((&run["passed"], &run["leaves"]), (&json!(1), &json!(1)));
    assert_eq!(run["checkout"], "your checkout is on main");
    assert_eq!(run["checkout"], told_of_checkout(&repo));
    assert_eq!(ui.json("/api/tree")["passes"], true);
    assert_eq!(ui.json("/api/run-state")["last_status"], "done");
}

#[test]
fn a_checkout_with_changes_that_is_behind() {
    let repo = two_leaves(WORKS);
    let ui = Ui::start(&repo);
    repo.write("mine.txt", "edited\n");
    repo.runner(&["loop"]).success();
    assert_eq!(repo.node("a")["passes"], false, "the checkout is behind");
    let words = "your checkout is 2 iterations behind; `runner follow` brings it along";
    says(&ui, "checkout", &json!(words));
    assert_eq!(told_of_checkout(&repo), words);
    let run = ui.json("/api/run");
    assert_eq!(
        (&run["state"], &run["passed"], &run["needs_you"]["kind"]),
        (&json!("complete"), &json!(2), &json!("land"))
    );
    assert_eq!(passed(&ui), ["a", "b"]);
    // What no commit has does not count.
    let tree = repo.read(".runner/state/tree.json");
    repo.write(".runner/state/tree.json", tree.replace("Leaf a", "Other"));
    assert_eq!(ui.json("/api/tree")["children"][0]["title"], "Leaf a");
    repo.git(&["checkout", "-q", "--", "."]);
    repo.runner(&["follow"]).success();
    says(&ui, "checkout", &json!(null));
    assert_eq!(passed(&ui), ["a", "b"]);
}

#[test]
fn what_became_of_a_run_and_the_next_goal() {
    let mut repo = two_leaves(WORKS);
    let ui = Ui::start(&repo);
    let events = ui.listen("/events");
    let mut seen = Vec::new();
    repo.runner(&["loop"]).success();
    assert_eq!(
        says(&ui, "state", &json!("complete"))["checkout"],
        json!(null)
    );
    repo.runner(&["land"]).success();
    assert!(!repo.exists(".runner/state"));
    let commit = repo.git(&["rev-parse", "main"]);
    let words = json!(format!("landed on main ({})", &commit[..12]));
    assert_eq!(told_of_checkout(&repo), words);
    let run = says(&ui, "checkout", &words);
    assert_eq!(
        (&run["run_id"], &run["state"], &run["needs_you"]),
        (&json!("demo"), &json!("complete"), &json!(null))
    );
    assert_eq!(
        (&run["passed"], &run["last_error"]),
        (&json!(2), &json!(null))
    );
    assert_eq!(passed(&ui), ["a", "b"]);
    let runs = ui.json("/api/iterations");
    assert_eq!(runs["runs"][0]["current"], true);
    // It landed on that branch, which has gone on since.
    repo.write("later.txt", "later\n");
    repo.commit_all("Later");
    repo.git(&["switch", "-q", "-c", "topic"]);
    says(&ui, "checkout", &words);

    // Another goal: what lies there, until it is a run.
    repo.git(&["switch", "-q", "main"]);
    repo.init_run(
        "---\nid: next\n---\n# The next one\n\nAll of it.\n",
        &["true"],
    );
    let run = says(&ui, "run_id", &json!(null));
    assert_eq!(
        (
            &run["goal"]["title"],
            &run["needs_you"]["kind"],
            &run["checkout"]
        ),
        (&json!("The next one"), &json!("not_started"), &json!(null))
    );
    repo.runner(&["start"]).success();
    says(&ui, "run_id", &json!("next"));
    repo.git(&["switch", "-q", "main"]);
    repo.runner(&["start", "next", "--stay"]).success();
    repo.runner(&["loop"]).success();
    events.wait(&mut seen, |event, data| {
        event == "phase_changed" && data["state"] == "complete"
    });
    let run = says(&ui, "state", &json!("complete"));
    assert_eq!(
        (&run["run_id"], &run["checkout"]),
        (&json!("next"), &json!("your checkout is on main"))
    );
    assert_eq!(ui.json("/api/tree")["passes"], true);

    // A run whose branch is gone.
    repo.runner(&["abandon", "next", "--delete"]).success();
    let run = says(&ui, "run_id", &json!(null));
    let told = repo.runner(&["status", "--json"]).code(1).json();
    let message = told["error"]["message"].as_str().unwrap();
    assert_eq!(
        (&run["needs_you"]["kind"], &run["state"]),
        (&json!("no_run"), &json!("idle"))
    );
    let words = run["needs_you"]["words"].as_str().unwrap();
    assert!(words.starts_with(message), "{words}");
    assert_eq!(run["last_error"], json!(null));
}

/// A git that notes each of its calls.
fn counted_git(repo: &mut TestRepo) -> PathBuf {
    let folder = repo.root().join("counted");
    let calls = repo.root().join("git-calls");
    fs::create_dir_all(&folder).unwrap();
    fs::write(&calls, "").unwrap();
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> '{}'\nPATH='{path}' exec git \"$@\"\n",
        calls.display()
    );
    write_program(&folder.join("git"), &script);
    repo.env("PATH", format!("{}:{path}", folder.display()));
    calls
}

#[test]
fn git_is_not_asked_while_nothing_changes() {
    let mut repo = two_leaves(WORKS);
    repo.runner(&["step"]).success();
    let calls = counted_git(&mut repo);
    let count = || fs::read_to_string(&calls).unwrap().lines().count();
    let ui = Ui::start(&repo);
    for place in ["runner/demo", "main"] {
        repo.git(&["switch", "-q", place]);
        let words = match place {
            "main" => json!("your checkout is on main"),
            _ => Value::Null,
        };
        says(&ui, "checkout", &words);
        assert!(count() > 0, "it is this git that is asked");
        // A change that was just made is looked at until it has settled.
        let mut before = count();
        eventually("nothing to ask", PATIENCE, || {
            let same = count() == before;
            before = count();
            for _ in 0..20 {
                assert_eq!(ui.json("/api/run")["passed"], 1);
                assert_eq!(passed(&ui), ["a"]);
            }
            same && count() == before
        });
    }
}
