//! `runner ui`: on a socket, beside a real loop, and how it begins and ends.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;
mod ui_support;

use std::time::{Duration, Instant};

use runner_testkit::{TestRepo, eventually};
use scenario::{BIN, GOAL, bare, human_error, planned};
use serde_json::json;
use ui_support::{PATIENCE, Ui, ask};

#[test]
fn a_loop_is_seen_while_it_runs() {
    let mut repo = bare();
    repo.agent_at(
        1,
        "add_child root a 1 'Leaf a'; add_child root b 2 'Leaf b'; out decomposed 'split it'",
    );
    // The session of `a` waits until it has been seen.
    repo.agent_at(
        2,
        "echo '{\"type\":\"hello\",\"n\":1}'; echo 'more work' >> work.txt
         while [ ! -e \"$AGENT_DIR/seen\" ]; do sleep 0.05; done; out done 'did a'",
    );
    repo.agent("echo work >> work.txt; out done 'did b'");
    repo.start_run(GOAL, &["sh", "-c", "echo guard says fine"]);
    let ui = Ui::start(&repo);
    let events = ui.listen("/events?stream=1");
    assert_eq!(ui.json("/api/run")["needs_you"]["kind"], "not_running");
    let mut seen = Vec::new();
    let running = repo.spawn_runner(&["loop"]);

    let is = |name: &'static str, iter: u32| {
        move |event: &str, data: &serde_json::Value| event == name && data["iter"] == iter
    };
    // One look may find all three at once: their order says nothing.
    let (mut line, mut is_added, mut is_agent) = (json!(null), false, false);
    events.wait(&mut seen, |event, data| {
        if event == "stream" {
            line = data["line"].clone();
        }
        is_added |= event == "iteration_added" && data["iter"] == 2;
        is_agent |= event == "phase_changed" && data["iter"] == 2 && data["phase"] == "agent";
        is_added && is_agent && line.is_string()
    });
    assert_eq!(line, "{\"type\":\"hello\",\"n\":1}");
    let run = ui.json("/api/run");
    assert_eq!(
        (&run["state"], &run["phase"]),
        (&json!("running"), &json!("agent"))
    );
    assert_eq!(
        (&run["pid"], &run["node_id"]),
        (&json!(running.pid()), &json!("a"))
    );
    assert_eq!(
        (&run["base"], &run["needs_you"]),
        (&json!("main"), &json!(null))
    );
    let detail = ui.json("/api/iterations/demo/2");
    assert_eq!(
        (&detail["meta"], &detail["phase"]),
        (&json!(null), &json!("agent"))
    );
    assert_eq!(detail["row"]["node_id"], "a");
    std::fs::write(repo.agent_dir().join("seen"), "").unwrap();

    events.wait(&mut seen, is("iteration_changed", 2));
    events.wait(&mut seen, is("iteration_changed", 3));
    running.wait().success();
    events.wait(&mut seen, |event, data| {
        event == "phase_changed" && data["state"] == "complete"
    });
    for name in ["tree_changed", "run_state_changed", "iteration_added"] {
        assert!(seen.iter().any(|it| it == name), "{name} in {seen:?}");
    }
    let run = ui.json("/api/run");
    assert_eq!((&run["passed"], &run["leaves"]), (&json!(2), &json!(2)));
    assert_eq!(ui.json("/api/tree"), repo.tree());
    let rows = ui.json("/api/iterations")["runs"][0]["iterations"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 3);
    assert_eq!(
        ui.get("/api/iterations/demo/2/guard.log"),
        (200, "guard says fine\n".into())
    );
    let diff = ui.json("/api/iterations/demo/2/diff");
    assert!(
        diff["text"].as_str().unwrap().contains("+more work"),
        "{diff}"
    );
    assert_eq!(diff["commit"], repo.git(&["rev-parse", "HEAD~1"]));
    let plan = ui.json("/api/iterations/demo/1/plan");
    assert_eq!(plan["changes"].as_array().unwrap().len(), 2);
    repo.assert_clean();
}

#[test]
fn a_record_that_names_options_instead_of_a_commit_gives_git_none() {
    let repo = planned(&["a"], "echo work > work.txt; out done 'x'", &["true"]);
    repo.runner(&["step"]).success();
    let path = repo.iteration(2).join("meta.json");
    let mut meta = repo.meta(2);
    meta["head"] = json!("--output=planted");
    std::fs::write(path, meta.to_string()).unwrap();
    let diff = Ui::start(&repo).json("/api/iterations/demo/2/diff");
    assert!(diff["text"].as_str().unwrap().contains("+work"), "{diff}");
    assert!(!repo.exists("planted"));
}

#[test]
fn signals_end_it_also_while_somebody_listens() {
    let repo = planned(&["a"], "out retry 'x'", &["true"]);
    for signal in ["INT", "TERM"] {
        let ui = Ui::start(&repo);
        let _events = ui.listen("/events");
        assert_eq!(ui.get("/api/run").0, 200);
        let begun = Instant::now();
        ui.running.signal(signal);
        let run = ui.running.wait().success();
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(run.stdout.lines().count(), 1, "{}", run.describe());
    }
}

#[test]
fn a_port_that_is_taken() {
    let repo = bare();
    let ui = Ui::start(&repo);
    let port = ui.host.rsplit(':').next().unwrap().to_owned();
    let run = repo.runner(&["ui", "--port", &port]);
    human_error(&run, &format!("port {port} is in use"), "--port 0");
    let run = repo.runner(&["ui", "--port", "0", "--bind", "192.0.2.1"]);
    human_error(&run, "cannot listen on 192.0.2.1:0", "--bind");
    repo.runner(&["ui", "--bind", "nonsense"]).code(2);
}

#[test]
fn a_folder_that_has_no_project_yet() {
    let mut repo = bare();
    repo.agent("out retry 'x'");
    let ui = Ui::start(&repo);
    eventually("the note", PATIENCE, || {
        let said = ui.running.stderr_so_far();
        said.contains("there is no project in")
    });
    assert_eq!(ui.get("/api/run").0, 404);
    let events = ui.listen("/events");
    let mut seen = Vec::new();
    repo.start_run(GOAL, &["true"]);
    events.wait(&mut seen, |event, data| {
        event == "project_changed" && data["there"] == true
    });
    eventually("the run", PATIENCE, || {
        ui.get("/api/run").1.contains("\"run_id\":\"demo\"")
    });
    // Not even the folder is there.
    let gone = repo.root().join("not/there").display().to_string();
    let ui = Ui::of(repo.spawn_runner(&["-C", &gone, "ui", "--port", "0"]));
    assert_eq!(ui.get("/api/run").0, 404);
}

#[test]
fn beyond_this_machine_a_token_is_asked_for() {
    let repo = planned(&["a"], "out retry 'x'", &["true"]);
    let running = repo.spawn_runner(&["ui", "--port", "0", "--bind", "0.0.0.0", "--json"]);
    let mut told = serde_json::Value::Null;
    eventually("the address", PATIENCE, || {
        let text = running.stdout_so_far();
        told = text
            .lines()
            .next()
            .and_then(|line| serde_json::from_str(line).ok())
            .unwrap_or_default();
        told.is_object()
    });
    let token = told["token"].as_str().unwrap();
    assert!(token.len() >= 32);
    assert!(
        told["url"]
            .as_str()
            .unwrap()
            .ends_with(&format!("/?token={token}"))
    );
    let host = format!("127.0.0.1:{}", told["port"]);
    assert_eq!(ask(&host, "GET", "/api/run", "").0, 401);
    assert_eq!(ask(&host, "GET", "/", "").0, 401);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(ask(&host, "GET", "/api/run", &bearer).0, 200);
    assert_eq!(ask(&host, "GET", &format!("/?token={token}"), "").0, 200);
    drop(running);
    // Bound to this machine there is none.
    let ui = Ui::start(&repo);
    assert_eq!(ui.get("/api/run").0, 200);
    assert_eq!(ask(&ui.host, "DELETE", "/api/run", "").0, 405);
}

/// Everything of the file system is read-only but /dev and /proc.
#[test]
fn it_works_on_a_read_only_mount() {
    let repo = planned(&["a"], "echo work > work.txt; out done 'x'", &["true"]);
    repo.runner(&["step"]).success();
    let mut cmd = repo.hermetic("bwrap");
    cmd.args([
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--die-with-parent",
    ]);
    cmd.args([BIN, "ui", "--port", "0"]);
    let ui = Ui::of(repo.spawn(cmd));
    for path in [
        "/api/run",
        "/api/tree",
        "/api/run-state",
        "/api/iterations",
        "/api/iterations/demo/2",
        "/api/iterations/demo/2/diff",
        "/api/iterations/demo/2/tree",
        "/api/iterations/demo/2/plan",
    ] {
        let (status, body) = ui.get(path);
        assert_eq!(status, 200, "{path}: {body}");
    }
    // From there it still sees what happens here.
    let events = ui.listen("/events");
    let mut seen = Vec::new();
    edit_tree(&repo);
    events.wait(&mut seen, |event, _| event == "tree_changed");
}

/// On the run's branch, as a person does it: only what is committed counts.
fn edit_tree(repo: &TestRepo) {
    let tree = repo.read(".runner/state/tree.json");
    repo.write(".runner/state/tree.json", tree.replace("Leaf a", "Leaf A"));
    repo.commit_all("Another title");
}
