//! Every endpoint: what it answers, and what it answers when there is nothing.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use serde_json::json;
use support::{Project, Server, node, tree};

const HOST: (&str, &str) = ("host", "127.0.0.1");

#[test]
fn the_head_of_a_run() {
    let project = Project::new();
    let run = project.server().get("/api/run").is(200, "").json();
    assert_eq!(run["run_id"], "run-1");
    assert_eq!(run["branch"], "runner/run-1");
    assert_eq!(run["goal"]["title"], "A goal");
    assert_eq!(run["goal"]["text"], "# A goal\n\nIn words.");
    assert_eq!(
        (&run["state"], &run["phase"]),
        (&json!("idle"), &json!("idle"))
    );
    assert_eq!(run["pid_alive"], false);
    assert_eq!((&run["passed"], &run["leaves"]), (&json!(0), &json!(2)));
    assert_eq!(run["next"]["path"], "root/a");
    assert_eq!(run["limits"]["max_iterations"], 7);
    assert_eq!(run["totals"]["iterations"], 1);
    assert_eq!(run["totals"]["input_tokens"], 100);
    assert_eq!(run["totals"]["cost_usd"], 0.25);
    assert_eq!(run["questions"], json!(["Which one?"]));
    assert_eq!(run["assumptions"], json!([]));
    assert_eq!(run["needs_you"]["kind"], "not_running");
    let command = run["needs_you"]["command"].as_str().unwrap();
    assert!(
        command.starts_with("runner -C ") && command.ends_with(" loop"),
        "{command}"
    );
    assert!(run["not_running_since"].is_string());
}

/// The state and what it needs.
#[track_caller]
fn check(server: &Server, state: &str, needs: &str) {
    let run = server.get("/api/run").is(200, "").json();
    let kind = run["needs_you"]["kind"].as_str().unwrap_or("nothing");
    assert_eq!(
        (run["state"].as_str().unwrap(), kind),
        (state, needs),
        "{run}"
    );
    let words = run["needs_you"]["words"].as_str().unwrap_or("x");
    assert!(!words.is_empty());
}

#[test]
fn each_state_in_one_word_with_what_it_needs() {
    let project = Project::new();
    let server = project.server();
    let events = ".runner/iterations/run-1/events.jsonl";
    let line = |more: &str| format!("{{\"ts\":\"2026-01-01T00:00:09Z\",{more}}}\n");
    project.write(
        events,
        line(r#""event":"finished","status":"stopped","steps":1"#),
    );
    check(&server, "idle", "not_running");
    project.write(
        events,
        line(r#""event":"finished","status":"error","steps":1,"error":{"code":"auth","message":"log in"}"#),
    );
    check(&server, "error", "error");
    project.write(
        events,
        line(r#""event":"finished","status":"limit","steps":1,"error":{"code":"limit","message":"7 had"}"#),
    );
    check(&server, "error", "limit");
    project.write(
        events,
        line(r#""event":"finished","status":"error","steps":1,"error":{"code":"quota","message":"used up"}"#),
    );
    check(&server, "quota", "quota");
    project.write(
        events,
        line(r#""event":"iteration_started","iter":2,"node_id":"a""#),
    );
    check(&server, "idle", "cut_off");
    project.put_tree(&json!({"id": "root"}));
    check(&server, "error", "invalid_tree");
    let mut stuck = tree(false);
    stuck["children"][0]["attempts"] = json!(3);
    project.put_tree(&stuck);
    check(&server, "stuck", "stuck");
    project.put_tree(&node("root", 0, true, &[]));
    check(&server, "complete", "land");
    project.write(".runner/state/run_state.json", "{");
    check(&server, "error", "unreadable");
    project.write(
        ".runner/state/run_state.json",
        r#"{"run_id":null,"next_iter":1,"last_status":null,"last_summary":null,"last_guard":null,"last_node_id":null}"#,
    );
    project.put_tree(&tree(false));
    check(&server, "idle", "not_started");
}

#[test]
fn the_tree_is_the_file_or_its_findings() {
    let project = Project::new();
    let server = project.server();
    let there = fs::read(project.path(".runner/state/tree.json")).unwrap();
    let answer = server.get("/api/tree").is(200, "");
    assert_eq!(answer.body, there);
    assert_eq!(answer.header("content-type"), "application/json");

    let twice = node(
        "root",
        0,
        false,
        &[node("a", 1, false, &[]), node("a", 2, false, &[])],
    );
    project.put_tree(&twice);
    let findings = server.get("/api/tree").is(422, "invalid_tree").json();
    assert!(
        !findings["findings"].as_array().unwrap().is_empty(),
        "{findings}"
    );
    project.write(".runner/state/tree.json", "{\"id\": \"ro");
    server.get("/api/tree").is(422, "invalid_tree");
    fs::remove_file(project.path(".runner/state/tree.json")).unwrap();
    server.get("/api/tree").is(404, "no_tree");
    project.put_tree(&tree(true));
    server.get("/api/tree").is(200, "");
}

#[test]
fn bookkeeping_and_server() {
    let project = Project::new();
    let server = project.server();
    let state = server.get("/api/run-state").is(200, "").json();
    assert_eq!(
        (&state["next_iter"], &state["last_guard"]),
        (&json!(2), &json!("pass"))
    );
    project.write(".runner/state/run_state.json", "{}");
    server.get("/api/run-state").is(422, "invalid_state");
    fs::remove_file(project.path(".runner/state/run_state.json")).unwrap();
    server.get("/api/run-state").is(404, "no_state");
    let info = server.get("/api/server").json();
    assert_eq!(
        (&info["version"], &info["project_there"]),
        (&json!("0.0.0"), &json!(true))
    );
}

#[test]
fn the_timeline_has_all_runs_with_all_that_a_bar_needs() {
    let project = Project::new();
    project.iteration(2, false);
    project.write(".runner/iterations/run-old/1/journal.jsonl", "");
    project.write(".runner/iterations/run-1/2.stale-1/meta.json", "{}");
    project.write(".runner/iterations/replaced-1/GOAL.md", "");
    let timeline = project.server().get("/api/iterations").is(200, "").json();
    let runs = timeline["runs"].as_array().unwrap();
    let names: Vec<_> = runs
        .iter()
        .map(|run| (&run["run_id"], &run["current"]))
        .collect();
    assert_eq!(
        names,
        [
            (&json!("run-1"), &json!(true)),
            (&json!("run-old"), &json!(false))
        ]
    );
    let rows = runs[0]["iterations"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let expected = json!({
        "iter": 1, "recorded": true, "node_id": "a", "title": "Title of a", "path": "root/a",
        "mode": "execute", "status": "done", "guard": "pass", "class": "ok", "error_kind": null,
        "error_message": null, "started_at": "2026-01-01T00:00:01Z",
        "ended_at": "2026-01-01T00:00:03Z", "duration_ms": 2000, "agent_ms": 1500, "guard_ms": 300,
        "input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 10, "cost_usd": 0.25,
        "attempts": 0, "passes": true, "tree_changes": {"added": 1, "edited": 0, "moved": 0},
        "watched_changed": 1, "passed": ["a"],
    });
    assert_eq!(rows[0], expected);
    assert_eq!(
        (
            &rows[1]["recorded"],
            &rows[1]["node_id"],
            &rows[1]["path"],
            &rows[1]["status"]
        ),
        (&json!(false), &json!("a"), &json!("root/a"), &json!(null))
    );
}

#[test]
fn one_iteration_in_full() {
    let project = Project::new();
    project.iteration(2, false);
    let server = project.server();
    let one = server.get("/api/iterations/run-1/1").is(200, "").json();
    assert_eq!(
        one["output"],
        json!({"status": "done", "summary": "did it"})
    );
    assert_eq!(one["meta"]["guard_command"], json!(["just", "ci"]));
    assert_eq!(one["meta"]["notes"], json!(["a note"]));
    let files = one["files"].as_array().unwrap();
    assert!(
        files.contains(&json!({"name": "guard.log", "bytes": 25})),
        "{files:?}"
    );
    assert!(files.iter().all(|file| file["name"] != "journal.jsonl"));
    let two = server.get("/api/iterations/run-1/2").is(200, "").json();
    assert_eq!((&two["meta"], &two["phase"]), (&json!(null), &json!(null)));

    // Trees and plans of the past.
    let then = server
        .get("/api/iterations/run-1/1/tree")
        .is(200, "")
        .json();
    assert_eq!(then["children"][0]["passes"], true);
    let before = server
        .get("/api/iterations/run-1/2/tree")
        .is(200, "")
        .json();
    assert_eq!(before["children"][1]["title"], "Old");
    let plan = server
        .get("/api/iterations/run-1/1/plan")
        .is(200, "")
        .json();
    assert_eq!(plan["changes"][0]["kinds"], json!(["edited"]));
    assert_eq!(plan["changes"][0]["before"]["title"], "Old");
    server
        .get("/api/iterations/run-1/2/plan")
        .is(404, "not_found");
    // Not a repository.
    server.get("/api/iterations/run-1/1/diff").is(409, "git");
    for gone in [
        "/api/iterations/run-1/3",
        "/api/iterations/run-2/1",
        "/api/iterations/run-1/01",
    ] {
        server.get(gone).is(404, "not_found");
    }
}

#[test]
fn a_record_that_speaks_for_another_iteration_is_none() {
    let project = Project::new();
    project.iteration(2, false);
    let meta = fs::read(project.path(".runner/iterations/run-1/1/meta.json")).unwrap();
    project.write(".runner/iterations/run-1/2/meta.json", meta);
    let two = project.server().get("/api/iterations/run-1/2").json();
    assert_eq!(two["row"]["recorded"], false);
}

#[test]
fn logs_by_pages() {
    let project = Project::new();
    let server = project.server();
    let log = "/api/iterations/run-1/1/guard.log";
    let whole = server.get(log).is(200, "");
    assert_eq!(whole.text(), "line one\nERROR two\nthree\n");
    assert_eq!(whole.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(
        (whole.header("x-log-size"), whole.header("x-log-next")),
        ("25", "")
    );
    let page = server.get(&format!("{log}?offset=9&limit=12"));
    assert_eq!(page.text(), "ERROR two\n");
    assert_eq!(
        (page.header("x-log-offset"), page.header("x-log-next")),
        ("9", "19")
    );
    assert_eq!(server.get(&format!("{log}?offset=-7")).text(), "three\n");
    let found = server.get(&format!("{log}?find=error%20t")).json();
    assert_eq!(
        found["matches"],
        json!([{"offset": 9, "line": "ERROR two"}])
    );
    for query in ["offset=x", "limit=-1", "limit=0", "offset=1&offset=2"] {
        server.get(&format!("{log}?{query}")).is(400, "bad_request");
    }
    server
        .get("/api/iterations/run-1/1/executor.log")
        .is(404, "not_found");
    // A line that is not whole yet is not shown.
    project.write(
        ".runner/iterations/run-1/1/stream.jsonl",
        "{\"a\":1}\n{\"b\":",
    );
    let stream = server.get("/api/iterations/run-1/1/stream.jsonl");
    assert_eq!(stream.text(), "{\"a\":1}\n");
}

#[test]
fn a_log_of_100_mb_is_never_loaded() {
    let project = Project::new();
    let path = project.path(".runner/iterations/run-1/1/guard.log");
    let mut file = fs::File::create(&path).unwrap();
    let size = 100 * 1024 * 1024;
    // Mostly a hole: nothing of it is read.
    file.seek(SeekFrom::Start(size)).unwrap();
    file.write_all(b"\nthe needle\nthe end\n").unwrap();
    let server = project.server();
    let log = "/api/iterations/run-1/1/guard.log";
    let first = server.get(log).is(200, "");
    assert_eq!(first.body.len(), 256 * 1024);
    assert_eq!(first.header("x-log-next"), "262144");
    assert_eq!(first.header("x-log-size"), (size + 20).to_string());
    let most = server.get(&format!("{log}?limit=999999999"));
    assert_eq!(most.body.len(), 4 * 1024 * 1024);
    let end = server.get(&format!("{log}?offset=-10"));
    assert_eq!(end.text(), "the end\n");
    let found = server
        .get(&format!("{log}?find=needle&offset={}", size - 1000))
        .json();
    assert_eq!(found["matches"][0]["offset"], size + 1);
}

#[test]
fn what_did_not_change_is_not_sent_again() {
    let project = Project::new();
    let server = project.server();
    for path in [
        "/api/run",
        "/api/tree",
        "/api/run-state",
        "/api/iterations",
        "/api/iterations/run-1/1",
        "/api/iterations/run-1/1/tree",
        "/api/iterations/run-1/1/guard.log",
        "/api/server",
        "/",
    ] {
        let first = server.get(path).is(200, "");
        let etag = first.header("etag").to_owned();
        assert!(!etag.is_empty(), "{path}");
        let again = server.ask("GET", path, &[HOST, ("if-none-match", &etag)]);
        assert_eq!(
            (again.status.as_u16(), again.body.len()),
            (304, 0),
            "{path}"
        );
        assert_eq!(again.header("etag"), etag);
        let other = server.ask("GET", path, &[HOST, ("if-none-match", "\"x\"")]);
        assert_eq!(other.status, 200, "{path}");
        let head = server.ask("HEAD", path, &[HOST]);
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0), "{path}");
    }
    let etag = server.get("/api/tree").header("etag").to_owned();
    project.put_tree(&tree(true));
    let changed = server.ask("GET", "/api/tree", &[HOST, ("if-none-match", &etag)]);
    assert_eq!(changed.status, 200);
}

#[test]
fn a_tree_that_is_changed_in_its_place_at_once_is_seen() {
    // Within one tick of the file system's clock, with the same size.
    let project = Project::new();
    let server = project.server();
    let path = project.path(".runner/state/tree.json");
    let text = fs::read_to_string(&path).unwrap();
    for letter in 'A'..='Z' {
        let text = text.replace("Title of b", &format!("{letter}itle of b"));
        fs::write(&path, &text).unwrap();
        assert_eq!(server.get("/api/tree").text(), text);
    }
}

#[test]
fn bodies_are_compressed_for_those_who_take_it() {
    let project = Project::new();
    let leaves: Vec<_> = (0..500)
        .map(|n| node(&format!("n{n:03}"), n, false, &[]))
        .collect();
    project.put_tree(&node("root", 0, false, &leaves));
    project.write(
        ".runner/iterations/run-1/1/guard.log",
        "again and again\n".repeat(1000),
    );
    let server = project.server();
    for path in ["/api/tree", "/api/iterations/run-1/1/guard.log"] {
        let plain = server.get(path).is(200, "");
        assert_eq!(plain.header("content-encoding"), "");
        let gzip = server.ask("GET", path, &[HOST, ("accept-encoding", "br, gzip")]);
        assert_eq!(gzip.header("content-encoding"), "gzip", "{path}");
        assert_eq!(gzip.header("etag"), plain.header("etag"));
        assert!(gzip.body.len() * 5 < plain.body.len(), "{path}");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&gzip.body[..])
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(text, plain.body);
    }
    let small = server.ask("GET", "/api/server", &[HOST, ("accept-encoding", "gzip")]);
    assert_eq!(small.header("content-encoding"), "");
}

#[test]
fn without_a_project_it_says_so_and_follows() {
    let project = Project::absent();
    let server = project.server();
    for path in [
        "/api/run",
        "/api/tree",
        "/api/iterations",
        "/api/iterations/run-1/1",
    ] {
        let answer = server.get(path).is(404, "no_project");
        assert!(answer.json()["error"]["hint"].is_string());
    }
    assert_eq!(server.get("/api/server").json()["project_there"], false);
    project.make();
    server.get("/api/run").is(200, "");
    fs::remove_dir_all(project.root()).unwrap();
    server.get("/api/run").is(404, "no_project");
}

#[test]
fn the_page_or_how_to_build_it() {
    let project = Project::new();
    let server = project.server();
    let page = server.get("/").is(200, "");
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    if server.get("/api/server").json()["page"] == false {
        assert!(
            page.text().contains("npm --prefix ui run build"),
            "{}",
            page.text()
        );
    }
    // A place inside the page is the page, a file that is not there is not.
    assert_eq!(server.get("/fleet").text(), page.text());
    server.get("/assets/none.js").is(404, "not_found");
    server.get("/api/none").is(404, "not_found");
    server.get("/api").is(404, "not_found");
}
