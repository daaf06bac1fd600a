//! What every recorded iteration must have left behind, whatever came out of it.

use runner_core::digest::sha256_hex;
use runner_testkit::TestRepo;
use serde_json::{Value, json};

use super::{message, subject, trailer};

/// The fields of meta.json that the contract names.
const META: [&str; 16] = [
    "run_id",
    "iter",
    "node_id",
    "mode",
    "status",
    "guard",
    "started_at",
    "ended_at",
    "duration_ms",
    "executor",
    "guard_run",
    "error",
    "tree_changes",
    "passed",
    "facts",
    "sandbox",
];

const EXECUTOR: [&str; 7] = [
    "backend",
    "exit_code",
    "duration_ms",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "cost_usd",
];

/// Checks the newest iteration against its commit, its logs and the bookkeeping,
/// and that it was judged as `class` with this status and guard. Its meta.json.
#[track_caller]
pub(crate) fn check(repo: &TestRepo, class: &str, status: &str, guard: &str) -> Value {
    repo.assert_clean();
    let iter = repo.run_state()["next_iter"].as_u64().unwrap_or_default() - 1;
    let meta = repo.meta(iter);
    let judged = [&meta["class"], &meta["status"], &meta["guard"]];
    assert_eq!(judged, [class, status, guard], "{meta:#}");
    check_meta(&meta);
    check_commit(repo, &meta);
    check_folder(repo, iter, &meta);
    check_events(repo, iter, &meta);
    meta
}

#[track_caller]
fn check_meta(meta: &Value) {
    for key in META {
        assert!(meta.get(key).is_some(), "{key} is missing in {meta:#}");
    }
    for key in EXECUTOR {
        assert!(
            meta["executor"].get(key).is_some(),
            "executor.{key} is missing in {meta:#}"
        );
    }
    assert_eq!(meta["executor"]["backend"], "command");
    assert_eq!(meta["executor"]["cost_usd"], Value::Null, "unknown is null");
    if !meta["guard_run"].is_null() {
        for key in ["command", "exit_code", "duration_ms", "log_sha256"] {
            assert!(
                meta["guard_run"].get(key).is_some(),
                "guard_run.{key} in {meta:#}"
            );
        }
    }
    if !meta["error"].is_null() {
        assert!(meta["error"]["kind"].is_string() && meta["error"]["message"].is_string());
    }
    assert_eq!(
        meta["error"].is_null(),
        meta["class"] != "runner_error",
        "{meta:#}"
    );
    for key in ["started_at", "ended_at"] {
        let stamp = meta[key].as_str().unwrap_or_default();
        let form: String = stamp
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        assert!(
            form.starts_with("0000-00-00T00:00:00") && form.ends_with('Z'),
            "{key}: {stamp}"
        );
    }
    let ordered = meta["started_at"].as_str() <= meta["ended_at"].as_str();
    assert!(ordered, "{meta:#}");
}

#[track_caller]
fn check_commit(repo: &TestRepo, meta: &Value) {
    let text = |key: &str| meta[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        subject(repo),
        format!(
            "chore(loop): run {} iter {} node {} status={} guard={}",
            text("run_id"),
            meta["iter"],
            text("node_id"),
            text("status"),
            text("guard")
        )
    );
    assert_eq!(trailer(repo, "Runner-Mode"), Some(text("mode")));
    let tree = std::fs::read(repo.path(".runner/state/tree.json")).ok();
    let tree = tree.map(|bytes| format!("sha256:{}", sha256_hex(&bytes)));
    assert_eq!(trailer(repo, "Runner-Tree"), tree);
    let run = &meta["guard_run"];
    let ran = !run.is_null() && !run["exit_code"].is_null();
    let guard = ran.then(|| format!("{} exit={}", run["command"], run["exit_code"]));
    assert_eq!(trailer(repo, "Runner-Guard"), guard);
    let iter = meta["iter"].as_u64().unwrap_or_default();
    let log = ran.then(|| {
        let bytes = std::fs::read(repo.iteration(iter).join("guard.log")).unwrap_or_default();
        assert_eq!(run["log_sha256"], sha256_hex(&bytes));
        format!("sha256:{}", sha256_hex(&bytes))
    });
    assert_eq!(trailer(repo, "Runner-Guard-Log"), log);
    let invalid = meta["class"] == "invalid_tree";
    assert_eq!(
        trailer(repo, "Runner-Last-Valid"),
        invalid.then(|| text("head"))
    );
    let body = message(repo, "HEAD");
    let lines: Vec<&str> = body.trim_end().lines().skip(2).collect();
    assert!(
        lines.iter().all(|line| line.starts_with("Runner-")),
        "{body}"
    );
}

#[track_caller]
fn check_folder(repo: &TestRepo, iter: u64, meta: &Value) {
    let folder = repo.iteration(iter);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the iteration's folder")
        .flatten()
        .map(|entry| entry.file_name().display().to_string())
        .collect();
    names.sort();
    let mut expected = vec!["executor.log", "journal.jsonl", "meta.json", "prompt.md"];
    expected.extend(["tree.after.json", "tree.before.json"]);
    match meta["class"].as_str().unwrap_or_default() {
        "runner_error" => expected.push("runner_error.log"),
        "ok" | "repaired" => {}
        _ => expected.push("agent_error.log"),
    }
    if !meta["guard_run"].is_null() {
        expected.push("guard.log");
    }
    for name in &expected {
        assert!(
            names.iter().any(|it| it == name),
            "{name} is missing in {names:?}"
        );
    }
    for name in &names {
        let optional = [
            "argv.json",
            "output.json",
            "stream.jsonl",
            "tree.agent.json",
            "tree.valid.json",
            "quarantine",
        ];
        let known = expected.contains(&name.as_str()) || optional.contains(&name.as_str());
        assert!(known, "{name} should not be in the folder");
    }
    let after = std::fs::read(folder.join("tree.after.json")).expect("tree.after.json");
    let there = std::fs::read(repo.path(".runner/state/tree.json")).expect("tree.json");
    assert_eq!(after, there, "tree.after.json is what is committed");
}

#[track_caller]
fn check_events(repo: &TestRepo, iter: u64, meta: &Value) {
    let mut events: Vec<Value> = repo
        .events()
        .into_iter()
        .filter(|event| event["iter"] == iter)
        .collect();
    // After a reset of the branch a number comes again: the newest one counts.
    let begun = events
        .iter()
        .rposition(|event| event["event"] == "iteration_started");
    events.drain(..begun.unwrap_or_default());
    let names: Vec<&str> = events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    let mut expected = vec!["iteration_started", "agent_started", "agent_ended"];
    if !meta["guard_run"].is_null() {
        expected.extend(["guard_started", "guard_ended"]);
    }
    expected.extend(["decided", "committed"]);
    assert_eq!(names, expected);
    assert_eq!(events[0]["node_id"], meta["node_id"]);
    assert!(
        events.iter().all(|event| event["ts"].is_string()),
        "{events:?}"
    );
    let stamps: Vec<&str> = events
        .iter()
        .filter_map(|event| event["ts"].as_str())
        .collect();
    assert!(stamps.is_sorted(), "{stamps:?}");
}

/// Checks what run_state.json says of the last iteration.
#[track_caller]
pub(crate) fn check_state(repo: &TestRepo, status: &str, guard: &str, node: &str) {
    let state = repo.run_state();
    let told = [
        &state["last_status"],
        &state["last_guard"],
        &state["last_node_id"],
    ];
    assert_eq!(
        told,
        [&json!(status), &json!(guard), &json!(node)],
        "{state:#}"
    );
}
