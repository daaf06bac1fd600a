//! Runs: what is left of them, and how they end.

use std::time::Duration;

use runner_testkit::{assert_no_process, eventually, processes_with_env};
use serde_json::json;

use crate::{
    ask, files, merge, project, refs, refused, task_run_folders, text, without_quota, work, worked,
};

#[test]
fn two_tasks_side_by_side_merge_cleanly_and_leave_nothing_of_the_runner_in_the_base() {
    let repo = project();
    repo.agent(
        "case $RUNNER_RUN_ID in\n\
         left-1) echo left > a/left.txt ;;\n\
         right-1) echo right > b/right.txt ;;\nesac\nout done did",
    );
    let both = ask(
        &repo,
        "works",
        &json!({"all": [
            {"task": "left", "run_id": "left-1", "token": 3},
            {"task": "right", "run_id": "right-1", "token": 4},
        ]}),
    );
    assert_eq!(both[0]["ending"], "complete", "{both}");
    assert_eq!(both[1]["ending"], "complete", "{both}");
    assert_eq!(both[0]["changes"], json!(["created a/left.txt"]));
    assert_eq!(both[1]["changes"], json!(["created b/right.txt"]));
    assert_eq!(both[0]["start"], both[1]["start"]);
    assert_eq!(both[0]["checks"][0]["id"], "guard");
    assert_eq!(both[0]["checks"][0]["end"], "green");

    merge(&repo, "left", &text(&both[0]["commit"]));
    let base = merge(&repo, "right", &text(&both[1]["commit"]));
    assert_eq!(
        files(&repo, &base),
        [
            "README.md",
            "a/left.txt",
            "a/one.txt",
            "b/right.txt",
            "b/two.txt"
        ]
    );
    // Each task once, also for those who look at everything.
    let tasks = repo.git(&[
        "log",
        "--format=%(trailers:key=Runner-Task,valueonly)",
        &base,
    ]);
    let tasks: Vec<&str> = tasks.split_whitespace().collect();
    assert_eq!(tasks, ["right", "left"]);
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    assert_eq!(repo.head(), base);
    assert_eq!(repo.read("a/left.txt"), "left\n");
    // Nothing of the runs is in the user's way.
    assert_eq!(refs(&repo, "refs/heads/"), ["fleet/main", "main"]);
    assert_eq!(
        repo.git(&["status", "--porcelain", "--", ".runner/fleet"]),
        ""
    );
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_result_is_one_commit_with_its_trailers_and_the_loop_is_kept_for_proof() {
    let repo = project();
    repo.agent_at(1, "echo half > a/new.txt; out retry more");
    repo.agent_at(
        2,
        "echo whole > a/new.txt; rm b/two.txt; echo x >> a/one.txt; out done did",
    );
    let base = repo.head();
    let done = work(&repo, "task", 9);
    assert_eq!(done["ending"], "complete", "{done}");
    assert_eq!(
        done["changes"],
        json!([
            "created a/new.txt",
            "modified a/one.txt",
            "deleted b/two.txt"
        ])
    );
    let commit = text(&done["commit"]);
    assert_eq!(repo.git(&["rev-parse", &format!("{commit}^")]), base);
    let message = repo.git(&["log", "-1", "--format=%B", &commit]);
    let mut lines = message.lines();
    assert_eq!(lines.next(), Some("Do task"));
    for trailer in [
        "Runner-Task: task",
        "Runner-Run: task-1",
        "Runner-Guard: [\"true\"] exit=0",
        "Runner-Guard-Log: sha256:",
    ] {
        assert!(
            lines.clone().any(|line| line.starts_with(trailer)),
            "{message}"
        );
    }
    // The same commits give the same commit: nothing of it comes from a clock.
    let proof = "refs/runner/task/task-1";
    let proof_date = repo.git(&["log", "-1", "--format=%ct %cn", proof]);
    assert_eq!(
        repo.git(&["log", "-1", "--format=%ct %cn", &commit]),
        proof_date
    );
    assert_eq!(
        repo.git(&["log", "-1", "--format=%at %an", &commit]),
        proof_date
    );
    assert!(files(&repo, proof).contains(&".runner/GOAL.md".to_owned()));
    let goal = repo.git(&["show", &format!("{proof}:.runner/GOAL.md")]);
    assert!(
        goal.contains("# Do task") && goal.contains("Be careful."),
        "{goal}"
    );
    let kept = refs(&repo, "refs/fleet/");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].ends_with("/task/task-1-9"), "{kept:?}");
    assert_eq!(task_run_folders(&repo), ["task-1-9", "task-1-9.lock"]);
}

#[test]
fn the_projects_own_state_neither_leaks_in_nor_out() {
    let mut repo = project();
    repo.config(|config| {
        config.set("fleet.workers", 3);
        config.set(
            "notify.command",
            json!(["sh", "-c", "touch $HOME/notified"]),
        );
    });
    repo.write_config();
    repo.write(".runner/GOAL.md", "# The user's own goal\n");
    repo.write(".runner/nodes/x/note.md", "private\n");
    repo.write(".runner/INSTRUCTIONS.md", "Use tabs.\n");
    repo.git(&["add", "-f", ".runner"]);
    let base = repo.commit_all("State in the base");
    repo.agent(
        "test ! -e .runner/nodes/x && grep -q tabs .runner/INSTRUCTIONS.md || exit 9\n\
         mkdir -p .runner/nodes/root; echo n > .runner/nodes/root/note.md\n\
         echo hi > a/hi.txt; out done did",
    );
    let result = worked(&repo, "task");
    assert_eq!(
        repo.git(&["diff", "--name-only", &base, &result]),
        "a/hi.txt"
    );
    let config = repo.git(&["show", "refs/runner/task/task-1:.runner/state/config.toml"]);
    assert!(
        !config.contains("fleet") && !config.contains("notify"),
        "{config}"
    );
    assert!(!repo.root().join("home/notified").exists());
}

#[test]
fn a_run_without_a_change_has_no_result() {
    let repo = project();
    repo.agent("out done nothing");
    let done = work(&repo, "task", 1);
    assert_eq!(done["ending"], "complete", "{done}");
    assert!(done["commit"].is_null());
    assert_eq!(refs(&repo, "refs/runner/"), ["task/task-1"]);
}

#[test]
fn what_a_result_changes_outside_its_scope_is_seen() {
    let repo = project();
    repo.agent("echo x > a/x; echo y > b/y; out done did");
    let done = work(&repo, "task", 1);
    assert_eq!(done["changes"], json!(["created a/x", "created b/y"]));
    let order = json!({"start": done["start"], "result": done["commit"]});
    assert_eq!(ask(&repo, "changes", &order), done["changes"]);
    assert_eq!(ask(&repo, "start_of", &order), done["start"]);
    let bytes = ask(&repo, "diff_bytes", &order).as_u64().unwrap();
    assert!((100..2000).contains(&bytes), "{bytes}");
}

#[test]
fn a_retry_goes_on_from_the_result_before_and_its_result_is_all_of_it() {
    let repo = project();
    repo.agent("echo one > a/x; out done did");
    let first = worked(&repo, "task");
    repo.write("b/user.txt", "by hand\n");
    repo.git(&["add", "b"]);
    repo.git(&["commit", "-qm", "Mine"]);
    let base = repo.head();
    repo.agent("test -f a/x && test -f b/user.txt || exit 9; echo two > a/y; out done did");
    let order = json!({"run_id": "task-2", "token": 2, "earlier": first});
    let second = ask(&repo, "work", &order);
    assert_eq!(second["ending"], "complete", "{second}");
    assert_eq!(second["start"], json!(base));
    assert_eq!(second["changes"], json!(["created a/x", "created a/y"]));

    // One that does not fit the base any more is left out.
    repo.write("a/x", "mine\n");
    repo.git(&["add", "a"]);
    repo.git(&["commit", "-qm", "Mine too"]);
    repo.agent("grep -q mine a/x && test ! -e a/y || exit 9; echo 3 > a/z; out done did");
    let order = json!({"run_id": "task-3", "token": 3, "earlier": second["commit"]});
    let third = ask(&repo, "work", &order);
    assert_eq!(third["changes"], json!(["created a/z"]), "{third}");
}

#[test]
fn how_runs_end_that_do_not_complete() {
    let mut repo = project();
    repo.config(|config| {
        config.set("guard.command", json!(["sh", "-c", "echo broken; exit 3"]));
        config.set("max_attempts_default", 2);
    });
    repo.write_config();
    repo.agent("echo x > a/x; out done did");
    let stuck = work(&repo, "task", 1);
    assert_eq!(stuck["ending"], "stuck", "{stuck}");
    assert_eq!(stuck["why"], "broken", "{stuck}");
    assert_eq!(stuck["changes"], json!(["created a/x"]));
    assert_eq!(stuck["checks"], json!([]));
    let message = repo.git(&["log", "-1", "--format=%B", &text(&stuck["commit"])]);
    assert!(!message.contains("Runner-Guard"), "{message}");

    repo.config(|config| {
        config.set("max_iterations", 1);
    });
    repo.write_config();
    repo.agent("out retry more");
    let order = json!({"run_id": "task-2", "token": 2});
    let limited = ask(&repo, "work", &order);
    assert_eq!(limited["ending"], "iteration_limit");
    assert_eq!(limited["why"], "more", "the session's last words");

    repo.config(|config| {
        config.set("guard.command", json!(["no-such-guard"]));
    });
    repo.write_config();
    repo.agent("echo x > a/x; out done did");
    let order = json!({"run_id": "task-3", "token": 3});
    let error = ask(&repo, "work", &order);
    assert_eq!(error["ending"], "runner_error", "{error}");
    assert!(text(&error["why"]).contains("no-such-guard"), "{error}");
}

#[test]
fn a_used_up_quota_is_told_with_its_clock() {
    let mut repo = project();
    without_quota(&mut repo);
    let waits = work(&repo, "task", 1);
    assert_eq!(waits["ending"], "quota", "{waits}");
    assert_eq!(waits["account"], "codex");
    assert!(waits["quota_until"].as_i64().unwrap() > 1_700_000_000_000);
}

#[test]
fn the_stop_sign_ends_the_whole_process_tree() {
    let repo = project();
    let started = repo.agent_dir().join("started");
    repo.agent("setsid sh -c 'sleep 600 & sleep 600' & : > \"$AGENT_DIR/started\"; sleep 600");
    let order = json!({"stop_when": started});
    let stopped = ask(&repo, "work", &order);
    assert_eq!(stopped["ending"], "interrupted", "{stopped}");
    assert!(stopped["commit"].is_null());
    assert_no_process(&repo.root().display().to_string());
    assert_eq!(refs(&repo, "refs/runner/"), Vec::<String>::new());
}

#[test]
fn the_timebox_ends_the_run() {
    let repo = project();
    repo.agent_at(1, "echo x > a/x; out retry more");
    repo.agent_at(2, "echo y > a/y; sleep 600");
    let ended = ask(&repo, "work", &json!({"timebox": 2}));
    assert_eq!(ended["ending"], "timeout", "{ended}");
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn an_old_owner_cannot_write_into_a_new_ones_refs() {
    let repo = project();
    repo.agent("echo old > a/x; out done did");
    let marker = repo.root().display().to_string();
    // The old owner works and is slow.
    repo.agent_at(1, ": > \"$AGENT_DIR/slow\"; while test ! -e \"$AGENT_DIR/go\"; do sleep 0.02; done; echo old > a/x; out done did");
    let order = json!({"token": 5}).to_string();
    let old = repo.spawn_runner(&["work", &order]);
    let slow = repo.agent_dir().join("slow");
    eventually("the old owner", Duration::from_secs(30), || slow.exists());
    repo.agent_at(1, "echo new > a/x; out done did");
    let new = ask(&repo, "work", &json!({"token": 7}));
    assert_eq!(new["ending"], "complete", "{new}");
    let proof = repo.git(&["rev-parse", "refs/runner/task/task-1"]);
    std::fs::write(repo.agent_dir().join("go"), "").unwrap();
    let old = old.wait();
    assert_eq!(old.code, Some(1), "{old:?}");
    assert!(old.stderr.contains("token 7"), "{old:?}");
    assert_eq!(repo.git(&["rev-parse", "refs/runner/task/task-1"]), proof);
    let kept = refs(&repo, "refs/fleet/");
    assert_eq!(kept.len(), 1, "{kept:?}");
    // Nor can it begin again.
    let words = refused(&repo, "work", &json!({"token": 6}));
    assert!(words.contains("token 7"), "{words}");
    assert!(processes_with_env(&marker).is_empty());
}

#[test]
fn a_session_can_move_no_ref_of_the_project() {
    let repo = project();
    repo.git(&["tag", "v1"]);
    repo.git(&["branch", "other"]);
    let before = repo.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
    repo.agent(
        "git tag -f v1 HEAD; git branch -f main HEAD; git update-ref refs/heads/other HEAD\n\
         git update-ref -d refs/heads/fleet/main; echo s > a/one.txt; git stash -q\n\
         git config core.hooksPath /tmp/x; git worktree prune; git gc -q --prune=now\n\
         echo x > a/x; out done did",
    );
    let done = work(&repo, "task", 1);
    assert_eq!(done["account"], "command", "{done}");
    let after = repo.git(&[
        "for-each-ref",
        "--format=%(refname) %(objectname)",
        "refs/heads/main",
        "refs/heads/other",
        "refs/tags",
        "refs/stash",
    ]);
    assert_eq!(after, before);
    assert_eq!(repo.git(&["fsck", "--connectivity-only"]), "");
}

#[test]
fn a_session_that_makes_its_repository_point_at_the_project_reaches_nothing() {
    let repo = project();
    repo.git(&["branch", "other"]);
    // The first makes its git folder a part of the project's, the second its refs.
    repo.agent(
        "project=$(cd ../../../.. && pwd)\n\
         case $RUNNER_RUN_ID in\n\
         common-1) echo \"$project/.git\" > .git/commondir ;;\n\
         refs-1) rm -rf .git/refs; ln -s \"$project/.git/refs\" .git/refs ;;\n\
         alternates-1) : > .git/objects/info/alternates ;;\nesac\n\
         echo x > a/x; out done did",
    );
    let before = repo.git(&["for-each-ref", "refs/heads/main", "refs/heads/other"]);
    for task in ["common", "refs", "alternates"] {
        let done = work(&repo, task, 1);
        assert_ne!(done["ending"], "interrupted", "{task}: {done}");
        let after = repo.git(&["for-each-ref", "refs/heads/main", "refs/heads/other"]);
        assert_eq!(after, before, "{task}");
        assert_eq!(repo.git(&["fsck", "--connectivity-only"]), "", "{task}");
    }
    assert_eq!(refs(&repo, "refs/heads/"), ["main", "other"]);
}

#[test]
fn in_a_sandbox_a_session_cannot_even_reach_the_project() {
    let mut repo = project();
    repo.config(|config| {
        config.set("sandbox.mode", "required");
    });
    repo.write_config();
    // It sees its workspace where the project is, and nothing of the project.
    let project = repo.path("");
    let project = project.to_str().unwrap().trim_end_matches('/');
    repo.agent(&format!(
        "test \"$PWD\" = '{project}' || exit 9; test ! -e .runner/fleet || exit 8\n\
         mine() {{ if ( : > \"$1\" ) 2>/dev/null; then echo \"${{2:-$1}}\" >> a/wrote; fi; }}\n\
         mine .git/refs/heads/planted; mine ~/planted home; mine a/inside\n\
         for real in ~/.local/state/runner/*/workspaces/*; do mine \"$real/planted\" real; done\n\
         git commit -q --allow-empty -m mine && echo committed >> a/wrote; out done did"
    ));
    let head = repo.head();
    let done = work(&repo, "task", 1);
    assert_eq!(done["ending"], "complete", "{done}");
    let wrote = repo.git(&["show", &format!("{}:a/wrote", text(&done["commit"]))]);
    let wrote: Vec<&str> = wrote.lines().collect();
    // The home folder is a private one.
    let expected = [".git/refs/heads/planted", "home", "a/inside", "committed"];
    assert_eq!(wrote, expected);
    assert!(!repo.root().join("home/planted").exists());
    assert_eq!(repo.head(), head);
    assert!(!repo.exists(".git/refs/heads/planted"));
}

#[test]
fn many_at_once_do_not_get_into_each_others_way() {
    let repo = project();
    repo.agent("echo x > a/$RUNNER_RUN_ID; out done did");
    let all: Vec<_> = (0..6)
        .map(|at| json!({"task": format!("t{at}"), "run_id": format!("t{at}-1"), "commands": ["true"]}))
        .collect();
    let done = ask(&repo, "works", &json!({"all": all}));
    for (at, one) in done.as_array().unwrap().iter().enumerate() {
        assert_eq!(one["ending"], "complete", "{one}");
        assert_eq!(one["changes"], json!([format!("created a/t{at}-1")]));
        assert_eq!(one["checks"][1]["end"], "green", "{one}");
    }
}

#[test]
fn a_linked_work_tree_can_be_the_project() {
    let repo = project();
    let linked = repo.root().join("linked");
    let linked_text = linked.display().to_string();
    repo.git(&["worktree", "add", "-q", "-b", "topic", &linked_text]);
    std::fs::create_dir_all(linked.join(".runner/state")).unwrap();
    std::fs::copy(
        repo.path(".runner/state/config.toml"),
        linked.join(".runner/state/config.toml"),
    )
    .unwrap();
    repo.agent("echo x > a/x; out done did");
    let ask = |op: &str, order: &serde_json::Value| -> serde_json::Value {
        let mut cmd = repo.runner_cmd(&[op, &order.to_string()]);
        cmd.current_dir(&linked);
        let run = repo.spawn(cmd).wait().success();
        serde_json::from_str(&run.stdout).unwrap()
    };
    let done = ask("work", &json!({}));
    assert_eq!(done["changes"], json!(["created a/x"]), "{done}");
    let order = json!({"base": done["start"], "result": done["commit"]});
    let merged = ask("merge", &order)["commit"].clone();
    let moved = ask("move", &json!({"old": done["start"], "new": merged}));
    assert_eq!(moved, true);
    assert_eq!(ask("present", &json!({})), "up to date");
    assert_eq!(std::fs::read_to_string(linked.join("a/x")).unwrap(), "x\n");
    assert_eq!(json!(repo.git(&["rev-parse", "topic"])), merged);
    assert!(!repo.exists("a/x"));
    assert_eq!(refs(&repo, "refs/heads/"), ["fleet/topic", "main", "topic"]);
}
