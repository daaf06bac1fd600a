//! `runner log --follow`: a running loop as it goes, whatever the agent does to
//! the files that are read.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod running_support;
mod scenario;

use runner_testkit::{TestChild, eventually};
use running_support::{HOLD, LONG, go, wait_for_phase, wait_for_session};
use scenario::{planned, started};
use serde_json::{Value, json};

/// Says what it does, as agents do, and then waits for the test.
fn talking() -> String {
    format!(
        r#"cat <<'END'
{{"event":"turn_started"}}
{{"event":"command","command":"make test","exit_code":null,"running":true}}
not json
{{"event":"command","command":"make test","exit_code":2,"running":false}}
{{"event":"message","text":"first line\nsecond \u001b[2J\u009bline"}}
{{"event":"file_change","path":"src/a.rs","kind":"update"}}
{{"event":"usage","input_tokens":120,"output_tokens":30,"cost_usd":0.5}}
{{"event":"error","message":"stream cut, \u001b]0;title\u0007 again","fatal":false}}
END
{HOLD}"#
    )
}

#[track_caller]
fn wait_for_text(running: &TestChild, text: &str) {
    eventually(text, LONG, || running.stdout_so_far().contains(text));
}

#[test]
fn the_running_iteration_and_the_next_until_the_end() {
    let repo = planned(&["a", "b"], HOLD, &["true"]);
    repo.agent_at(2, &talking());
    let running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 2);
    let follow = repo.spawn_runner(&["log", "--follow"]);
    wait_for_text(&follow, "again");
    go(&repo);
    running.wait_within(LONG).success();
    let run = follow.wait_within(LONG).success();
    let mut rest = run.stdout.as_str();
    for words in [
        "iteration 2: a",
        "agent: command",
        "the model is asked",
        "$ make test\n",
        "$ make test: exit code 2",
        "          first line\n          second [2Jline\n",
        "changed src/a.rs",
        "tokens so far: 120 in, 30 out, $0.5000",
        "trouble: stream cut, ]0;title again",
        "agent ended, exit code 0",
        "guard: true",
        "guard ended, exit code 0",
        "   2  a ",
        "iteration 3: b",
        "   3  b ",
        "the loop has ended: complete",
    ] {
        let at = rest
            .find(words)
            .unwrap_or_else(|| panic!("{words:?} is missing\n{}", run.describe()));
        rest = &rest[at + words.len()..];
    }
    assert!(
        !run.stdout.chars().any(|c| c.is_control() && c != '\n'),
        "{:?}",
        run.stdout
    );
}

#[test]
fn as_json() {
    let repo = started(&talking(), &["true"]);
    let running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 1);
    let follow = repo.spawn_runner(&["log", "-f", "--json"]);
    wait_for_text(&follow, "stream cut");
    go(&repo);
    running.wait_within(LONG).success();
    let lines = follow.wait_within(LONG).success().json_lines();
    assert!(lines.iter().all(|line| line["schema_version"] == 1));
    let names: Vec<&str> = lines.iter().filter_map(|it| it["event"].as_str()).collect();
    let mut expected = vec!["iteration_started", "agent_started"];
    expected.extend(["stream"; 7]);
    expected.extend([
        "agent_ended",
        "guard_started",
        "guard_ended",
        "decided",
        "committed",
        "outcome",
        "finished",
    ]);
    assert_eq!(names, expected);
    assert_eq!(
        lines[3],
        json!({"event": "stream", "iter": 1, "schema_version": 1,
            "stream": {"event": "command", "command": "make test", "exit_code": null, "running": true}})
    );
    assert_eq!(lines[14]["meta"]["node_id"], "root");
    assert_eq!(lines[15]["status"], "complete");
    assert!(lines[0]["ts"].is_string());
}

#[test]
fn where_nothing_runs_it_says_so() {
    let repo = planned(&["a"], "exit 0", &["true"]);
    repo.runner(&["log", "--follow"])
        .success()
        .says("   1  root")
        .says("nothing is running here");
    let mut lines = repo
        .runner(&["log", "--follow", "--json"])
        .success()
        .json_lines();
    let last = lines.pop().unwrap();
    assert_eq!(
        (&last["event"], &last["activity"]["phase"]),
        (&json!("not_running"), &json!("idle"))
    );
    assert_eq!(lines[0]["event"], "outcome");
    repo.runner(&["log", "1", "--follow"]).code(2);
}

#[test]
fn leaving_it_is_130_and_does_not_touch_the_loop() {
    let repo = started(HOLD, &["true"]);
    let mut running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 1);
    let follow = repo.spawn_runner(&["log", "-f"]);
    wait_for_text(&follow, "iteration 1");
    follow.signal("INT");
    follow.wait_within(LONG).code(130);
    assert!(running.is_running());
    // A runner that is killed ends it too.
    let follow = repo.spawn_runner(&["log", "-f"]);
    wait_for_text(&follow, "iteration 1");
    running.kill();
    follow
        .wait_within(LONG)
        .success()
        .says("the runner is gone and its iteration was cut off");
}

#[test]
fn a_wait_is_shown() {
    let mut repo = started("exit 0", &["true"]);
    repo.env("RUNNER_RETRY_DELAYS_SECS", "3600");
    let running = repo.spawn_runner(&["loop"]);
    wait_for_phase(&repo, "waiting");
    let follow = repo.spawn_runner(&["log", "-f"]);
    wait_for_text(&follow, "waiting until ");
    repo.runner(&["stop"]).success();
    running.wait_within(LONG).success();
    follow
        .wait_within(LONG)
        .success()
        .says("the loop has ended: stopped: it was asked to stop");
}

#[test]
fn nothing_that_the_agent_does_to_the_files_stops_or_floods_it() {
    // It floods its stream, cuts the events short, replaces them, and forges some.
    let script = format!(
        r#"run="$AGENT_DIR/../repo/.runner/iterations/demo"
awk 'BEGIN {{ for (i = 0; i < 200000; i++) print "{{\"event\":\"message\",\"text\":\"flood " i "\"}}" }}' \
    >> "$run/1/stream.jsonl"
printf '{{"event":"message","text":"' >> "$run/1/stream.jsonl"
head -c 3000000 /dev/zero | tr '\0' 'x' >> "$run/1/stream.jsonl"
printf '\n{{"event":"message","text":"after the flood"}}\n' >> "$run/1/stream.jsonl"
: > "$AGENT_DIR/flooded"
{HOLD}
"#
    );
    let repo = started(&script, &["true"]);
    let running = repo.spawn_runner(&["loop"]);
    eventually("the session", LONG, || {
        repo.exists(".runner/iterations/demo/1/executor.log")
    });
    let follow = repo.spawn_runner(&["log", "-f"]);
    wait_for_text(&follow, "after the flood");
    wait_for_text(&follow, "bytes are not shown");
    wait_for_session(&repo, 1);
    let events = repo.path(".runner/iterations/demo/events.jsonl");
    std::fs::write(&events, "garbage\n{\"ts\":1}\n").unwrap();
    std::fs::rename(&events, events.with_extension("old")).unwrap();
    let forged = json!({"ts": "x\u{1b}[2J", "iter": 7, "event": "iteration_started", "node_id": "for\u{1b}[31mged"});
    std::fs::write(&events, format!("{forged}\n")).unwrap();
    wait_for_text(&follow, "iteration 7: for [31mged");
    go(&repo);
    running.wait_within(LONG).success();
    let run = follow.wait_within(LONG).success();
    assert!(
        run.stdout.contains("the loop has ended: complete"),
        "{}",
        run.describe()
    );
    // 200,000 messages were written; most of them are passed over.
    assert!(run.stdout.len() < 4_000_000, "{}", run.stdout.len());
    assert!(!run.stdout.contains('\u{1b}'));
}

#[test]
fn the_agent_of_a_known_kind_is_understood() {
    // The stream of codex, by the backend that the events name.
    let repo = started(HOLD, &["true"]);
    let running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 1);
    let folder = repo.path(".runner/iterations/demo");
    let events = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
    std::fs::write(
        folder.join("events.jsonl"),
        events.replace("\"backend\":\"command\"", "\"backend\":\"codex\""),
    )
    .unwrap();
    let item: Value = json!({"type": "item.started", "item": {"id": "1", "type": "command_execution", "command": "cargo test", "status": "in_progress"}});
    std::fs::write(folder.join("1/stream.jsonl"), format!("{item}\n")).unwrap();
    let follow = repo.spawn_runner(&["log", "-f"]);
    wait_for_text(&follow, "$ cargo test");
    go(&repo);
    running.wait_within(LONG).success();
    follow.wait_within(LONG).success();
}
