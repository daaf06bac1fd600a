//! What `runner clean` finds: places that only a run's own config names, and temp folders.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::fs;
use std::time::Duration;

use runner_testkit::eventually;
use scenario::{GOAL, bare, step};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_place_that_only_the_runs_config_names() {
    let mut repo = bare();
    let place = repo.root().join("elsewhere");
    fs::create_dir(&place).unwrap();
    repo.config(|config| {
        config.set("workspace.root", place.display().to_string());
    });
    repo.agent("echo work >> work.txt; out retry 'not yet'");
    repo.start_run(GOAL, &["true"]);
    step(&repo);
    let workspaces = || {
        let project = fs::read_dir(&place).unwrap().flatten().next().unwrap();
        let names = fs::read_dir(project.path().join("workspaces"));
        names.map_or(0, |it| it.flatten().filter(|it| it.path().is_dir()).count())
    };
    assert!(workspaces() > 0);
    // A crash on the way to the end of the run: nothing leads to the folders any more.
    repo.git(&["switch", "-q", "main"]);
    for kind in ["run", "keep", "branch"] {
        repo.git(&["update-ref", "-d", &format!("refs/runner/{kind}/demo")]);
    }
    let look = repo
        .runner(&["clean", "--dry-run", "--json"])
        .success()
        .json();
    assert!(!look["removed"].as_array().unwrap().is_empty(), "{look}");
    repo.runner(&["clean"]).success();
    assert_eq!(workspaces(), 0);
}

#[test]
fn the_temp_folder_of_a_killed_session() {
    let mut repo = bare();
    repo.config(|config| {
        config
            .set("sandbox.mode", "off")
            .set("sandbox.writable", json!([]));
    });
    let told = repo.root().join("temp");
    let waits = format!(
        "echo x > \"$TMPDIR/left\"; echo \"$TMPDIR\" > {0}.new; mv {0}.new {0}; sleep 600",
        told.display()
    );
    repo.agent(&waits);
    repo.start_run(GOAL, &["true"]);
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", PATIENCE, || told.exists());
    let temp = fs::read_to_string(&told).unwrap();
    let temp = std::path::Path::new(temp.trim());
    assert_eq!(
        repo.runner(&["clean", "--json"]).success().json()["removed"],
        json!([])
    );
    assert!(temp.exists());
    drop(running);
    eventually("its end", PATIENCE, || {
        repo.runner(&["clean"]).success();
        !temp.exists()
    });
}

#[test]
fn repositories_of_task_runs_that_a_killed_fleet_left() {
    let mut repo = bare();
    repo.agent("out retry 'not yet'");
    repo.start_run(GOAL, &["true"]);
    step(&repo);
    let state = repo.root().join("home/.local/state/runner");
    let mut projects = fs::read_dir(state).unwrap().flatten();
    let private = projects.find(|it| it.path().is_dir()).unwrap().path();
    let old = repo.path(".runner/fleet/worktrees");
    let new = private.join("task-runs-0123456789ab");
    for folder in [&old, &new] {
        for name in ["a-1-2", "kept-1-2"] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("file"), "left").unwrap();
        }
    }
    // One whose result is still needed.
    let head = repo.head();
    repo.git(&["update-ref", "refs/fleet/0123456789ab/kept/kept-1-2", &head]);
    repo.runner(&["clean"]).success();
    for folder in [&old, &new] {
        assert!(!folder.join("a-1-2").exists(), "{}", folder.display());
        assert!(folder.join("kept-1-2/file").exists());
    }
}
