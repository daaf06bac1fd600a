//! What is told, when: each change once and in time, also when the project comes,
//! goes, or is another one.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::{PATIENCE, Project, Server, put, tree};

/// Longer than the gathering of changes takes.
const QUIET: Duration = Duration::from_secs(1);

fn names(events: &[support::Event]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn a_file_that_is_renamed_into_its_place_is_told_once() {
    let project = Project::new();
    let server = project.server();
    let mut events = server.listen("/events", None);
    assert!(events.until_quiet(QUIET).is_empty());
    let begun = Instant::now();
    project.put_tree(&tree(true));
    assert_eq!(events.wait_for("tree_changed"), json!({"there": true}));
    assert!(
        begun.elapsed() >= Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
    assert!(events.until_quiet(QUIET).is_empty());
    project.put_run_state(3);
    assert_eq!(events.wait_for("run_state_changed"), json!({"there": true}));
    project.write(".runner/state/questions.md", "- One.\n- Two.\n");
    events.wait_for("phase_changed");
    // A file on its way is nothing yet.
    events.until_quiet(QUIET);
    fs::write(project.path(".runner/state/.tree.json.runner-tmp"), "half").unwrap();
    assert!(events.until_quiet(QUIET).is_empty());
}

#[test]
fn a_steady_stream_of_other_writes_holds_nothing_back() {
    let project = Project::new();
    project.iteration(2, false);
    let server = project.server();
    let mut events = server.listen("/events", None);
    let log = project.path(".runner/iterations/run-1/2/executor.log");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
                .unwrap();
            while !done.load(Ordering::Relaxed) {
                file.write_all(b"busy\n").unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for passes in [true, false, true] {
            let begun = Instant::now();
            project.put_tree(&tree(passes));
            let told = events.next_within(PATIENCE).map(|event| event.name);
            let after = begun.elapsed();
            assert_eq!(told.as_deref(), Some("tree_changed"));
            // Generous for a busy machine; a debounce that starts anew with each
            // write would never end.
            assert!(after < Duration::from_secs(15), "{after:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn iterations_are_told_when_they_begin_and_when_they_are_recorded() {
    let project = Project::new();
    let server = project.server();
    let mut events = server.listen("/events", None);
    project.iteration(2, false);
    assert_eq!(
        events.wait_for("iteration_added"),
        json!({"run_id": "run-1", "iter": 2})
    );
    project.record(2);
    assert_eq!(
        events.wait_for("iteration_changed"),
        json!({"run_id": "run-1", "iter": 2})
    );
    fs::remove_dir_all(project.path(".runner/iterations/run-1/2")).unwrap();
    assert_eq!(
        events.wait_for("iteration_changed"),
        json!({"run_id": "run-1", "iter": 2})
    );
    // Of another run, too.
    put(
        &project.path(".runner/iterations/run-2/1/journal.jsonl"),
        "",
    );
    assert_eq!(
        events.wait_for("iteration_added"),
        json!({"run_id": "run-2", "iter": 1})
    );
}

#[test]
fn phases_come_from_the_events_and_life_from_the_lock() {
    let project = Project::new();
    let server = project.server();
    let mut events = server.listen("/events", None);
    // A runner holds the lock of the folder.
    let folder = fs::File::open(project.root()).unwrap();
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let told = events.wait_for("phase_changed");
    assert_eq!(told["state"], "running");
    let log = project.path(".runner/iterations/run-1/events.jsonl");
    let mut log = OpenOptions::new().append(true).open(log).unwrap();
    let mut add = |more: &str| {
        writeln!(log, "{{\"ts\":\"2026-01-01T00:00:05Z\",{more}}}").unwrap();
    };
    add(r#""event":"iteration_started","iter":2,"node_id":"b""#);
    let told = events.wait_for("phase_changed");
    assert_eq!(
        told,
        json!({"state": "running", "phase": "preparing", "iter": 2, "node_id": "b"})
    );
    add(r#""event":"guard_started","iter":2"#);
    assert_eq!(events.wait_for("phase_changed")["phase"], "guard");
    add(r#""event":"waiting","until":"2026-01-01T01:00:00Z","kind":"quota","why":"used up""#);
    assert_eq!(events.wait_for("phase_changed")["state"], "quota");
    let run = server.get("/api/run").json();
    assert_eq!(
        (&run["state"], &run["pid_alive"]),
        (&json!("quota"), &json!(true))
    );
    assert_eq!(run["waiting"]["why"], "used up");
    assert_eq!(run["pid"], std::process::id());
    add(r#""event":"iteration_started","iter":3,"node_id":"b""#);
    assert_eq!(events.wait_for("phase_changed")["phase"], "preparing");
    // It is killed: nothing is written, and yet it is told.
    drop(folder);
    let told = events.wait_for("phase_changed");
    assert_eq!(
        (&told["state"], &told["phase"]),
        (&json!("idle"), &json!("idle"))
    );
    let run = server.get("/api/run").json();
    assert_eq!(
        (&run["cut_off"], &run["needs_you"]["kind"]),
        (&json!(true), &json!("cut_off"))
    );
}

#[test]
fn a_project_that_comes_goes_and_comes_back() {
    let project = Project::absent();
    // Not even the folders above it are there.
    let dir = project.root().join("deep/er");
    let server = Server::new(&dir, None);
    let mut events = server.listen("/events", None);
    let make = |passes| {
        put(
            &dir.join(".runner/state/tree.json"),
            tree(passes).to_string(),
        );
    };
    for _ in 0..2 {
        make(false);
        assert_eq!(events.wait_for("project_changed"), json!({"there": true}));
        events.until_quiet(QUIET);
        // Its files are followed.
        make(true);
        events.wait_for("tree_changed");
        fs::remove_dir_all(project.root()).unwrap();
        while events.wait_for("project_changed")["there"] == true {}
    }
    // Moved away and another one in its place, at once.
    make(false);
    events.wait_for("project_changed");
    events.until_quiet(QUIET);
    let away = project.root().join("away");
    fs::rename(&dir, &away).unwrap();
    make(true);
    while events.wait_for("project_changed")["there"] == false {}
    events.until_quiet(QUIET);
    make(false);
    events.wait_for("tree_changed");
    // What happens to the old one is of no interest.
    events.until_quiet(QUIET);
    put(
        &away.join(".runner/state/tree.json"),
        tree(false).to_string(),
    );
    assert!(events.until_quiet(QUIET).is_empty());
}

#[test]
fn a_link_that_is_pointed_elsewhere() {
    let project = Project::absent();
    let top = project.root();
    let make = |name: &str, passes| {
        put(
            &top.join(name).join(".runner/state/tree.json"),
            tree(passes).to_string(),
        );
    };
    make("one", false);
    make("two", true);
    let point = |name: &str| {
        let temp = top.join("new-link");
        symlink(name, &temp).unwrap();
        fs::rename(temp, top.join("case_latest")).unwrap();
    };
    point("one");
    let server = Server::new(&top.join("case_latest"), None);
    let mut events = server.listen("/events", None);
    let passes = || server.get("/api/tree").json()["children"][0]["passes"].clone();
    assert_eq!(passes(), false);
    point("two");
    assert_eq!(events.wait_for("project_changed"), json!({"there": true}));
    assert_eq!(passes(), true);
    events.until_quiet(QUIET);
    // The new one is followed, the old one not any more.
    make("one", true);
    assert!(events.until_quiet(QUIET).is_empty());
    make("two", false);
    events.wait_for("tree_changed");
    assert_eq!(passes(), false);
    fs::remove_file(top.join("case_latest")).unwrap();
    while events.wait_for("project_changed")["there"] == true {}
    point("one");
    while events.wait_for("project_changed")["there"] == false {}
}

#[test]
fn who_comes_back_gets_what_it_missed() {
    let project = Project::new();
    let server = project.server();
    let mut events = server.listen("/events", None);
    project.put_tree(&tree(true));
    events.wait_for("tree_changed");
    events.until_quiet(QUIET);
    let id = events.last_id.clone().unwrap();
    drop(events);
    // Nobody listens, and yet it is kept.
    project.put_tree(&tree(false));
    project.iteration(2, false);
    let mut back = server.listen("/events", Some(&id));
    back.wait_for("iteration_added");
    let mut again = server.listen("/events", Some(&id));
    let told = again.until_quiet(QUIET);
    assert!(names(&told).contains(&"tree_changed"), "{told:?}");
    assert!(names(&told).contains(&"iteration_added"), "{told:?}");
    // Up to date: nothing is told twice.
    let mut last = server.listen("/events", again.last_id.as_deref());
    assert!(last.until_quiet(QUIET).is_empty());
    // Another server: one of each, so that everything is fetched.
    let restarted = project.server();
    let mut fresh = restarted.listen("/events", Some(&id));
    let told = fresh.until_quiet(QUIET);
    assert_eq!(
        names(&told),
        [
            "iteration_added",
            "iteration_changed",
            "phase_changed",
            "project_changed",
            "run_state_changed",
            "tree_changed"
        ]
    );
    assert_eq!(told.len(), 6);
    // And from there on it knows its place.
    let place = fresh.last_id.clone().unwrap();
    let mut next = restarted.listen("/events", Some(&place));
    assert!(next.until_quiet(QUIET).is_empty());
}

#[test]
fn lines_of_the_agent_go_to_those_who_ask() {
    let project = Project::new();
    project.iteration(2, false);
    let stream = project.path(".runner/iterations/run-1/2/stream.jsonl");
    fs::write(&stream, "{\"early\":1}\n").unwrap();
    let server = project.server();
    let mut with = server.listen("/events?stream=1", None);
    let mut without = server.listen("/events", None);
    let mut file = OpenOptions::new().append(true).open(&stream).unwrap();
    file.write_all(b"{\"text\":\"hi\"}\n{\"half\":").unwrap();
    let line = with.wait_for("stream");
    assert_eq!(
        line,
        json!({"run_id": "run-1", "iter": 2, "offset": 12, "line": "{\"text\":\"hi\"}", "next_offset": 26})
    );
    file.write_all(b"2}\n").unwrap();
    assert_eq!(with.wait_for("stream")["line"], "{\"half\":2}");
    let told = without.until_quiet(QUIET);
    assert!(!names(&told).contains(&"stream"), "{told:?}");
}

#[test]
fn nothing_of_the_project_is_written() {
    let project = Project::new();
    let listing = || {
        let mut all = Vec::new();
        let mut folders = vec![project.root()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let meta = entry.metadata().unwrap();
                all.push((entry.path(), meta.modified().unwrap(), meta.len()));
                if meta.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        all.sort();
        all
    };
    let before = listing();
    let server = project.server();
    let mut events = server.listen("/events?stream=1", None);
    for path in [
        "/api/run",
        "/api/tree",
        "/api/run-state",
        "/api/iterations",
        "/api/iterations/run-1/1",
        "/api/iterations/run-1/1/tree",
        "/api/iterations/run-1/1/plan",
        "/api/iterations/run-1/1/diff",
        "/api/iterations/run-1/1/guard.log",
    ] {
        server.get(path);
    }
    assert!(events.until_quiet(QUIET).is_empty());
    assert_eq!(listing(), before);
}
