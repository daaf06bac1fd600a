//! `runner fleet up` on real git with a scripted agent: to the end, cut off and gone on
//! with, refused, and beside a person who works in the same checkout.
#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

mod fleet_project;

use fleet_project::{BIN, WORKS, issue, merged, plan, planned_task, repo, three_issues};
use runner_testkit::{
    TestChild, TestPty, TestRepo, assert_no_process, assert_processes_end, eventually,
};
use serde_json::{Value, json};

/// Nothing of a fleet is left but its ledger and its notes.
fn assert_at_rest(repo: &TestRepo) {
    repo.runner(&["ledger", "check"]).success();
    let status = repo
        .runner(&["fleet", "status", "--all", "--json"])
        .success()
        .json();
    for task in status["tasks"].as_array().unwrap() {
        assert_ne!(task["task"]["state"], "in_progress", "{task}");
    }
    assert!(!repo.exists(".runner/fleet/worktrees"));
    let left = repo.task_run_folders();
    assert!(left.is_empty(), "{left:?}");
    assert!(repo.private_checkouts().is_empty());
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn the_repository_of_a_task_run_lies_outside_the_project() {
    let repo = repo();
    let look = "ls \"$AGENT_DIR/../repo/.runner/fleet/worktrees\" > \"$AGENT_DIR/inside\"\n\
         ls -d \"$HOME\"/.local/state/runner/*/task-runs-*/*/.git > \"$AGENT_DIR/outside\"\n";
    repo.agent(&format!("{look}{WORKS}"));
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    // What a fleet of an earlier version left when it was killed.
    let old = ".runner/fleet/worktrees/issue-9-1-4";
    repo.write(format!("{old}/file"), "left");
    let owner = json!({"task": "issue-9", "run_id": "issue-9-1", "token": 4});
    repo.write(format!("{old}.lock"), owner.to_string());
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1"]);
    let read = |name: &str| std::fs::read_to_string(repo.agent_dir().join(name)).unwrap();
    let (inside, outside) = (read("inside"), read("outside"));
    assert!(!inside.contains("issue-1-"), "{inside}");
    assert!(outside.contains("/issue-1-1-"), "{outside}");
    assert!(!repo.exists(".runner/fleet/worktrees"), "it is removed");
    assert_at_rest(&repo);
}

#[test]
fn work_for_a_role_that_nobody_has_is_not_waited_for() {
    let repo = repo();
    repo.agent(WORKS);
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    issue(&repo, 2, "Agent: tester\nAllowed paths: issue-2/**");
    let run = repo.runner(&["fleet", "up", "--until-idle", "--testers", "0"]);
    assert_eq!(run.code, Some(3), "{}", run.describe());
    assert!(run.stdout.contains("issue-1  merged"), "{}", run.describe());
    assert_eq!(merged(&repo, "main"), ["issue-1"]);
    let why = repo.runner(&["why", "issue-2"]).success();
    let words = "no agent of the role tester is there";
    assert!(why.stdout.contains(words), "{}", why.describe());
    // Until somebody is.
    repo.runner(&["fleet", "up", "--until-idle"]).success();
}

#[test]
fn issues_become_commits() {
    let repo = repo();
    repo.agent(WORKS);
    three_issues(&repo);
    let run = repo.runner(&["fleet", "up", "--until-idle"]).success();
    for words in [
        "fleet up: 2 workers, 1 tester, 1 docser, 1 judge; results are merged into main",
        "API: http://127.0.0.1:",
        "warning: Issue backlog detected (3)",
    ] {
        assert!(run.stderr.contains(words), "{words}: {}", run.describe());
    }
    assert!(
        run.stdout.contains("issue-3  merged after 1 run"),
        "{}",
        run.describe()
    );
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
    assert!(repo.exists("issue-2/file"), "the checkout follows");
    let tracked = repo.git(&["ls-files"]);
    assert!(!tracked.contains(".runner"), "{tracked}");
    assert_at_rest(&repo);
    repo.runner(&["fleet", "up"])
        .code(2)
        .says("there is nothing to do");
}

#[test]
fn cut_off_and_gone_on_with() {
    let repo = repo();
    three_issues(&repo);
    let started = repo.agent_dir().join("started");
    repo.agent("setsid sleep 600 & : > \"$AGENT_DIR/started\"; sleep 600");
    let running = repo.spawn_runner(&["fleet", "up", "--json"]);
    eventually("a session has begun", Duration::from_secs(60), || {
        started.exists()
    });

    let first = running.stdout_so_far();
    let told: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(told["event"], "started");
    let address = told["api"]
        .as_str()
        .unwrap()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    let ask = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    repo.runner(&["fleet", "up"])
        .code(1)
        .says("another `runner fleet up` is at work here");

    running.signal("INT");
    let ended = running.wait_within(Duration::from_secs(60)).code(130);
    let last = ended.json_lines().pop().unwrap();
    assert_eq!(last["status"], "interrupted", "{last}");
    assert_no_process(&repo.root().display().to_string());
    let status = repo.runner(&["fleet", "status", "--json"]).success().json();
    for task in status["tasks"].as_array().unwrap() {
        assert_eq!(task["task"]["state"], "todo", "{task}");
        let lost = &task["task"]["counters"]["lost_work"];
        assert_eq!(lost, 0, "a stop says nothing about the task: {task}");
    }

    repo.agent(WORKS);
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
    assert_at_rest(&repo);
}

#[test]
fn killed_and_gone_on_with() {
    let repo = repo();
    three_issues(&repo);
    let started = repo.agent_dir().join("started");
    repo.agent("setsid sleep 600 & : > \"$AGENT_DIR/started\"; sleep 600");
    let running = repo.spawn_runner(&["fleet", "up"]);
    eventually("a session has begun", Duration::from_secs(60), || {
        started.exists()
    });
    running.kill();
    assert_processes_end(&repo.root().display().to_string(), Duration::from_secs(30));
    // Everybody comes back under the old name, and gives back what it held.
    repo.agent(WORKS);
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
    assert_at_rest(&repo);
}

#[test]
fn a_terminal_shows_what_goes_on() {
    let mut repo = repo();
    repo.env("TERM", "xterm");
    three_issues(&repo);
    repo.agent(
        "while [ ! -e \"$AGENT_DIR/go\" ]; do sleep 0.05; done\n\
         id=${RUNNER_RUN_ID%-*}; mkdir -p \"$id\"; echo hi > \"$id/file\"; out done did",
    );
    let command = repo.runner_cmd(&["fleet", "up", "--until-idle"]);
    let mut pty = TestPty::spawn(&command, 100, 30);
    pty.wait_for("worker-1 \u{b7} ");
    pty.wait_for("2 in_progress, 1 todo");
    std::fs::write(repo.agent_dir().join("go"), "").unwrap();
    let (code, seen) = pty.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("merged after 1 run"), "{seen}");
    assert_at_rest(&repo);
}

#[test]
fn a_requirement_is_planned_once() {
    let repo = repo();
    let plan = plan(&[planned_task("one", &[]), planned_task("two", &["one"])]);
    std::fs::write(repo.agent_dir().join("plan"), plan).unwrap();
    repo.agent(
        "if [ \"$RUNNER_QUESTION\" = plan ]; then echo x >> \"$AGENT_DIR/asked\"\n\
         cp \"$AGENT_DIR/plan\" \"$RUNNER_OUTPUT_PATH\"; exit 0; fi\n\
         id=${RUNNER_RUN_ID%-*}; echo hi > \"${id#*-}.txt\"; out done did",
    );
    let up = ["fleet", "up", "--until-idle", "--requirement", "Two files."];
    let run = repo.runner(&up).success();
    assert!(
        run.stderr
            .contains("planning: the requirement becomes tasks"),
        "{}",
        run.describe()
    );
    assert!(repo.exists("one.txt") && repo.exists("two.txt"));
    assert_at_rest(&repo);
    repo.runner(&up)
        .code(2)
        .says("the requirement was planned before");
    let asked = std::fs::read_to_string(repo.agent_dir().join("asked")).unwrap();
    assert_eq!(asked, "x\n");
}

#[test]
fn a_requirement_without_a_plan_is_not_done() {
    let repo = repo();
    repo.agent("echo x >> \"$AGENT_DIR/asked\"; echo '{\"tasks\":[]}' > \"$RUNNER_OUTPUT_PATH\"");
    let up = ["fleet", "up", "--until-idle", "--requirement", "Two files."];
    repo.runner(&up)
        .code(3)
        .says("no task was made of it: the requirement: there is no plan for it");
    let asked = std::fs::read_to_string(repo.agent_dir().join("asked")).unwrap();
    assert_eq!(asked, "x\nx\nx\n");
}

#[test]
fn nothing_to_do_in_a_project_without_a_config() {
    let repo = TestRepo::new(BIN);
    repo.runner(&["fleet", "up"])
        .code(2)
        .says("no config here, so the fleet goes by .runner/fleet/config.toml");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert!(repo.exists(".runner/fleet/config.toml"));
    assert!(!repo.exists(".runner/state"));
    let said = repo.runner(&["fleet", "up", "--json"]).code(2).json();
    assert_eq!(said["error"]["code"], "NOTHING_TO_DO", "{said}");
    repo.runner(&["fleet", "status"])
        .success()
        .says("no tasks yet");
}

#[test]
fn what_is_wrong_with_the_backlog_is_told_and_the_rest_is_done() {
    let repo = repo();
    repo.agent(WORKS);
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    issue(&repo, 2, "Nobody says who does it.");
    repo.write(".runner/fleet/issues/plain.md", "# No number\n");
    let up = ["fleet", "up", "--until-idle", "--requirement", "More."];
    let run = repo.runner(&up).code(3);
    for words in [
        "warning: Issue backlog detected (2)",
        "warning: Planner is skipped for this launch",
        "warning: Backlog source local failed: plain.md: it has no number",
        "1 task not done",
        "warning: no task was made of it: plain.md: it has no number",
    ] {
        assert!(run.stderr.contains(words), "{words}: {}", run.describe());
    }
    assert_eq!(merged(&repo, "main"), ["issue-1"]);
    let status = repo.runner(&["fleet", "status", "--json"]).success().json();
    assert_eq!(
        status["tasks"][0]["why"]["why"], "issue_linking",
        "{status}"
    );
}

#[test]
fn a_bare_repository_is_refused_as_one() {
    let repo = TestRepo::new(BIN);
    repo.git(&["init", "-q", "--bare", "bare.git"]);
    let bare = repo.path("bare.git").display().to_string();
    // The checkout around it is another repository's.
    let outside = tempfile::tempdir().unwrap();
    let moved = outside.path().join("bare.git");
    std::fs::rename(&bare, &moved).unwrap();
    repo.runner(&["-C", &moved.display().to_string(), "fleet", "up"])
        .code(1)
        .says("is a git repository without a work tree");
}

#[test]
fn nobody_begins_without_an_agent_or_a_guard() {
    for (what, key) in [("agent", "executor.command"), ("guard", "guard.command")] {
        let mut repo = repo();
        repo.config(|config| {
            config.set(key, json!(["no-such"]));
        });
        repo.write_config();
        three_issues(&repo);
        let words = format!("cannot start the {what} `no-such`: ");
        for role in ["up", "worker"] {
            repo.runner(&["fleet", role]).code(1).says(&words);
        }
        let status = ["fleet", "status", "--all", "--json"];
        let status = repo.runner(&status).success();
        assert_eq!(status.json()["tasks"], json!([]), "{}", status.describe());
    }
}

#[test]
fn a_session_cannot_reach_the_project_around_it() {
    // The project lies in the temp folder, in which sessions may write.
    let repo = repo();
    repo.agent(&format!(
        "for file in .git/evil .runner/fleet/evil evil; do touch \"{root}/$file\" || :; done\n{WORKS}",
        root = repo.root().display()
    ));
    three_issues(&repo);
    let run = repo.runner(&["fleet", "up", "--until-idle"]).success();
    for file in [".git/evil", ".runner/fleet/evil", "evil"] {
        assert!(!repo.exists(file), "{file}: {}", run.describe());
    }
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
}

#[test]
fn why_a_task_was_given_up_is_told_in_the_words_of_what_happened() {
    let mut repo = repo();
    repo.config(|config| {
        config.set("guard.protected", json!(["guard.sh"]));
    });
    repo.write_config();
    repo.agent("echo 'exit 0' > guard.sh; out done did");
    repo.write("guard.sh", "true\n");
    repo.commit_all("A guard");
    issue(&repo, 1, "Agent: worker\nAllowed paths: guard.sh");
    let run = repo.runner(&["fleet", "up", "--until-idle"]).code(3);
    let words = "a leaf used up its attempts: guard.sh is protected: what the session did to it has been undone";
    assert!(run.stderr.contains(words), "{}", run.describe());
}

#[test]
fn a_base_that_is_gone_is_no_failure_of_any_task() {
    let repo = repo();
    three_issues(&repo);
    let started = repo.agent_dir().join("started");
    repo.agent(&format!(
        ": > \"$AGENT_DIR/started\"\n\
         while [ ! -e \"$AGENT_DIR/go\" ]; do sleep 0.05; done\n{WORKS}"
    ));
    let running = repo.spawn_runner(&["fleet", "up", "--until-idle"]);
    eventually("a session has begun", Duration::from_secs(60), || {
        started.exists()
    });
    repo.git(&["checkout", "-q", "-b", "other"]);
    repo.git(&["branch", "-D", "main"]);
    std::fs::write(repo.agent_dir().join("go"), "").unwrap();
    running
        .wait_within(Duration::from_secs(60))
        .code(1)
        .says("nobody can go on: there is no branch \"main\" any more");
    let list = ["fleet", "status", "--all", "--json"];
    let status = repo.runner(&list).success().json();
    for task in status["tasks"].as_array().unwrap() {
        assert_eq!(task["task"]["counters"]["failures"], json!({}), "{task}");
        assert_ne!(task["task"]["state"], "in_progress", "{task}");
    }

    repo.git(&["checkout", "-q", "-b", "main"]);
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
    assert_at_rest(&repo);
}

#[test]
fn a_dirty_checkout_is_left_alone() {
    let repo = repo();
    repo.agent("echo theirs > a/one.txt; out done did");
    issue(&repo, 1, "Agent: worker\nAllowed paths: a/**");
    repo.write("a/one.txt", "mine\n");
    let head = repo.head();
    let run = repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert!(
        run.stderr.contains("main stays where it is"),
        "{}",
        run.describe()
    );
    assert_eq!(repo.read("a/one.txt"), "mine\n");
    assert_eq!(repo.head(), head);
    assert_eq!(merged(&repo, "fleet/main"), ["issue-1"]);
    // Once it is out of the way, the next one brings it.
    repo.git(&["checkout", "--", "a/one.txt"]);
    issue(&repo, 2, "Agent: worker\nAllowed paths: b/**");
    repo.agent("mkdir b; echo b > b/x; out done did");
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(repo.read("a/one.txt"), "theirs\n");
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2"]);
}

#[test]
fn roles_alone_do_what_they_do_together() {
    let repo = repo();
    repo.agent(WORKS);
    three_issues(&repo);
    let roles: Vec<_> = ["dispatcher", "cycle", "worker", "judge"]
        .iter()
        .map(|role| repo.spawn_runner(&["fleet", role]))
        .collect();
    let all = ["issue-1", "issue-2", "issue-3"];
    let is_merged = || {
        let there = ["rev-parse", "-q", "--verify", "fleet/main"];
        repo.git_try(&there).is_ok() && merged(&repo, "fleet/main") == all
    };
    let until = Instant::now() + Duration::from_secs(120);
    while !is_merged() {
        if Instant::now() > until {
            let status = repo.runner(&["fleet", "status", "--all"]).describe();
            let said: Vec<String> = roles.iter().map(TestChild::stderr_so_far).collect();
            panic!("not everything is merged: {status}\n{said:#?}");
        }
        std::thread::yield_now();
    }
    for role in roles {
        role.signal("TERM");
        role.wait_within(Duration::from_secs(60)).code(130);
    }
    repo.runner(&["ledger", "check"]).success();
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn sessions_and_checks_get_copies_and_submodules() {
    let mut repo = repo();
    let library = repo.root().join("library").display().to_string();
    repo.git(&["init", "--quiet", &library]);
    repo.write("../library/lib.txt", "shared\n");
    repo.git(&["-C", &library, "add", "--all"]);
    repo.git(&["-C", &library, "commit", "--quiet", "-m", "Add it"]);
    let local = ["-c", "protocol.file.allow=always"];
    repo.git(
        &[
            &local[..],
            &["submodule", "add", "--quiet", &library, "lib"],
        ]
        .concat(),
    );
    repo.write(".gitignore", ".env\n");
    repo.write(".env", "SERVICE=here\n");
    repo.git(&["add", ".gitignore", ".gitmodules", "lib"]);
    repo.git(&["commit", "--quiet", "-m", "Add the library"]);
    let check = "grep -q here .env && grep -q shared lib/lib.txt";
    repo.config(|config| {
        config
            .set("guard.command", json!(["sh", "-c", check]))
            .set("workspace.include", json!([".env"]));
    });
    repo.write_config();
    repo.agent(&format!("{check} || exit 9\n{WORKS}"));
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1"]);
    assert!(!repo.git(&["ls-files"]).contains(".env"));
    assert_eq!(repo.read("lib/lib.txt"), "shared\n");
    assert_at_rest(&repo);
}
