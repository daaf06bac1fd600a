//! `runner why TASK` and `runner fleet status`: what is in the way, and until when.
#![allow(clippy::unwrap_used)]

use runner_testkit::TestRepo;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_runner");

fn repo() -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    let store = repo.root().join("ledger.db").display().to_string();
    repo.env("RUNNER_STORE", store);
    repo
}

fn add(repo: &TestRepo, id: &str, scope: &str, more: &[&str]) {
    let mut args = vec!["task", "add", id, "--scope", scope];
    args.extend(more);
    repo.runner(&args).success();
}

fn why(repo: &TestRepo, id: &str) -> Value {
    repo.runner(&["task", "why", id, "--json"]).success().json()
}

#[test]
fn a_mistyped_store_is_no_empty_fleet() {
    let repo = TestRepo::new(BIN);
    let store = repo.root().join("mistyped.db").display().to_string();
    for words in [
        ["status"].as_slice(),
        &["pause"],
        &["cancel", "x"],
        &["retry", "x"],
    ] {
        let mut args = vec!["fleet", "--store", &store];
        args.extend(words);
        repo.runner(&args).code(1).says("there is no ledger");
    }
    assert!(!repo.exists("mistyped.db"));
}

#[test]
fn each_thing_that_a_task_waits_for() {
    let repo = repo();
    add(&repo, "base", "src", &[]);
    add(&repo, "middle", "docs", &["--depends", "base"]);
    add(&repo, "top", "lib", &["--depends", "middle"]);
    add(&repo, "beside", "src/x", &[]);
    assert_eq!(why(&repo, "base")["why"], "no_agent");
    repo.runner(&["task", "start", "base", "--owner", "me"])
        .success();

    let working = why(&repo, "base");
    assert_eq!(working["why"], "in_progress");
    assert!(working["until"].is_u64(), "{working}");
    let behind = why(&repo, "beside");
    assert_eq!(
        (&behind["why"], &behind["waits_for"]),
        (&json!("lock"), &json!("base"))
    );
    assert_eq!(
        behind["until"], working["until"],
        "until the holder must end"
    );
    let top = why(&repo, "top");
    assert_eq!(top["why"], "dependency");
    let chain: Vec<&Value> = top["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["task_id"])
        .collect();
    assert_eq!(chain, [&json!("middle"), &json!("base")], "the whole chain");
    let told = repo.runner(&["task", "why", "top"]).success();
    let told = told.stdout;
    assert!(
        told.contains("base is in_progress: me works on it"),
        "{told}"
    );

    // A failed run leaves a clock.
    repo.runner(&[
        "task", "finish", "base", "--owner", "me", "--token", "1", "--failed", "test",
    ])
    .success();
    let cooling = why(&repo, "base");
    assert_eq!(cooling["why"], "cooldown");
    assert!(cooling["until"].is_u64(), "{cooling}");
}

#[test]
fn status_and_pause_and_cancel_and_retry() {
    let repo = repo();
    add(&repo, "one", "src", &[]);
    repo.runner(&["fleet", "pause"])
        .success()
        .says("nothing new starts");
    let status = repo.runner(&["fleet", "status", "--json"]).success().json();
    assert_eq!(status["paused"], true);
    assert_eq!(status["counts"], json!({"todo": 1}));
    assert_eq!(status["tasks"][0]["why"]["why"], "fleet_paused");
    repo.runner(&["task", "start", "one", "--owner", "me"])
        .code(1)
        .says("paused");
    repo.runner(&["fleet", "resume"]).success();
    repo.runner(&["fleet", "pause", "one"]).success();
    assert_eq!(why(&repo, "one")["why"], "paused");
    repo.runner(&["fleet", "resume", "one"]).success();
    repo.runner(&["fleet", "cancel", "one", "--reason", "no longer wanted"])
        .success();
    let made = repo
        .runner(&["fleet", "retry", "one", "--json"])
        .success()
        .json();
    let next = made["created"]["id"].as_str().unwrap();
    assert_eq!(why(&repo, "one")["waits_for"], next);
    // What has ended is shown only when asked for.
    let names = |more: &[&str]| {
        let args = [&["fleet", "status", "--json"], more].concat();
        let status = repo.runner(&args).success().json();
        status["tasks"].as_array().unwrap().len()
    };
    assert_eq!((names(&[]), names(&["--all"])), (1, 2));
    repo.runner(&["fleet", "cancel", "nothing"])
        .code(1)
        .says("there is no");
}
