//! A fleet tries its base first: a guard that cannot run costs no session, and a red base is
//! fixed before anything else begins.
#![allow(clippy::unwrap_used)]

mod fleet_project;

use std::time::Duration;

use fleet_project::{merged, repo, three_issues};
use runner_testkit::{TestRepo, TestRun, assert_no_process, eventually};
use serde_json::{Value, json};

/// Fixes a red base, or does the work of an issue; says which session that was, and whether the
/// base was red then.
const FIXES_AND_WORKS: &str = "id=${RUNNER_RUN_ID%-*}; echo \"$id\" >> \"$AGENT_DIR/sessions\"\n\
     case $id in fix-base-*) echo yes > fixed;; \
     *) test -e fixed || echo \"$id\" >> \"$AGENT_DIR/early\"\n\
     mkdir -p \"$id\"; echo hi > \"$id/file\";; esac; out done did";

const UP: [&str; 3] = ["fleet", "up", "--until-idle"];

/// A project with three issues and this guard.
fn with_guard(guard: &Value) -> TestRepo {
    let mut repo = repo();
    set_guard(&mut repo, guard);
    repo.agent(FIXES_AND_WORKS);
    three_issues(&repo);
    repo
}

fn set_guard(repo: &mut TestRepo, guard: &Value) {
    repo.config(|config| {
        config.set("guard.command", guard.clone());
    });
    repo.write_config();
}

fn lines(repo: &TestRepo, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repo.agent_dir().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn tasks(repo: &TestRepo) -> Vec<String> {
    let status = repo.runner(&["fleet", "status", "--all", "--json"]);
    let status = status.success().json();
    let tasks = status["tasks"].as_array().unwrap().iter();
    tasks
        .map(|told| told["task"]["id"].as_str().unwrap().to_owned())
        .collect()
}

/// A fleet that does not begin: no task, no session, nothing merged.
#[track_caller]
fn refused(repo: &TestRepo, words: &[&str]) {
    for command in [&UP[..], &["fleet", "worker"], &["fleet", "judge"]] {
        let run = repo.runner(command).code(1);
        for words in words {
            assert!(run.stderr.contains(words), "{words}: {}", run.describe());
        }
    }
    assert_eq!(repo.agent_calls(), Vec::<String>::new(), "sessions");
    assert_eq!(tasks(repo), Vec::<String>::new());
    assert_eq!(merged(repo, "main"), Vec::<String>::new());
    let branches = repo.git(&["branch", "--format=%(refname:short)"]);
    assert_eq!(branches, "main", "a refused fleet leaves nothing");
    assert!(repo.private_checkouts().is_empty());
}

#[test]
fn a_guard_whose_program_is_missing_costs_no_session() {
    let mut repo = with_guard(&json!(["no-such-guard"]));
    refused(
        &repo,
        &["cannot start the guard `no-such-guard`", "hint: install it"],
    );
    set_guard(&mut repo, &json!(["sh", "-c", "no-such-guard --all"]));
    refused(
        &repo,
        &[
            "error: cannot begin: the guard cannot run on main: `sh -c no-such-guard --all` gave exit 127",
            "no-such-guard: not found",
        ],
    );
}

#[test]
fn the_branch_of_a_run_is_no_base() {
    let mut repo = TestRepo::new(fleet_project::BIN);
    repo.start_run("---\nid: demo\n---\n# A goal\n", &["true"]);
    repo.write(".runner/fleet/issues/1-x.md", "# X\n\nAgent: worker\n");
    let tip = repo.git(&["rev-parse", "runner/demo"]);
    for command in [&UP[..], &["fleet", "worker"]] {
        let run = repo.runner(command).code(1);
        run.says("cannot merge results into runner/demo: it is the branch of run demo")
            .says("hint: `git switch main`, or name the branch in [fleet] base");
    }
    assert_eq!(repo.git(&["rev-parse", "runner/demo"]), tip);
    assert_eq!(repo.agent_calls(), Vec::<String>::new());
}

#[test]
fn a_setup_that_fails_costs_no_session() {
    let mut repo = with_guard(&json!(["true"]));
    repo.config(|config| {
        config.set("workspace.setup", "echo no network; exit 7");
    });
    repo.write_config();
    refused(
        &repo,
        &[
            "the guard cannot run on main: setup `echo no network; exit 7` gave exit 7\n  no network",
            "hint: let [workspace] setup work in a fresh checkout",
        ],
    );
}

#[test]
fn packages_that_git_ignores_and_no_setup_cost_no_session() {
    let guard = "test -e node_modules/.bin/check || { echo Cannot find module; exit 1; }";
    let mut repo = with_guard(&json!(["sh", "-c", guard]));
    repo.write(".gitignore", "node_modules/\n.runner/\n");
    repo.write("package.json", "{}\n");
    repo.git(&["add", ".gitignore", "package.json"]);
    repo.git(&["commit", "--quiet", "-m", "A package"]);
    repo.write("node_modules/.bin/check", "");
    let lacks = "let [workspace] setup make what a clean checkout lacks (node_modules/)";
    refused(
        &repo,
        &[
            "is red in a clean checkout and green with the ignored files of yours beside it",
            lacks,
        ],
    );
    // The remedy helps, and the agents begin.
    repo.config(|config| {
        let setup = "mkdir -p node_modules/.bin; touch node_modules/.bin/check";
        config.set("workspace.setup", setup);
    });
    repo.write_config();
    repo.runner(&UP).success();
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
    assert_eq!(repo.agent_calls().len(), 3);
}

#[test]
fn a_variable_of_the_shell_that_nothing_passes_on_costs_no_session() {
    let mut repo = with_guard(&json!(["sh", "-c", "test \"$SERVICE_URL\" = yes"]));
    repo.env("SERVICE_URL", "yes");
    let hint = "hint: pass SERVICE_URL on with [guard] env = [\"SERVICE_URL\"]";
    let words = "is red in a clean checkout and green with variables of your shell: SERVICE_URL";
    refused(&repo, &[words, hint]);
    repo.config(|config| {
        config.set("guard.env", json!(["SERVICE_URL"]));
    });
    repo.write_config();
    repo.runner(&UP).success();
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
}

/// The one task that fixes the base.
#[track_caller]
fn base_fix(repo: &TestRepo) -> String {
    let fixes: Vec<String> = tasks(repo)
        .into_iter()
        .filter(|id| id.starts_with("fix-base-"))
        .collect();
    assert_eq!(fixes.len(), 1, "{fixes:?}");
    fixes[0].clone()
}

#[test]
fn a_red_base_is_fixed_alone_and_then_everything_goes_on() {
    let repo = with_guard(&json!(["test", "-e", "fixed"]));
    let run = repo.runner(&UP).success();
    let fix = base_fix(&repo);
    let words = format!(
        "warning: the guard is red on main: `test -e fixed` gave exit 1; nothing but {fix} begins before it is green"
    );
    assert!(run.stderr.contains(&words), "{}", run.describe());
    let mut sessions = lines(&repo, "sessions");
    assert_eq!(sessions.remove(0), fix);
    sessions.sort();
    assert_eq!(sessions, ["issue-1", "issue-2", "issue-3"]);
    assert_eq!(lines(&repo, "early"), Vec::<String>::new());
    assert_eq!(merged(&repo, "main").len(), 4);
    repo.runner(&["ledger", "check"]).success();
}

#[test]
fn a_guard_that_is_not_there_yet_is_written_first() {
    let repo = with_guard(&json!(["sh", "ci.sh"]));
    repo.agent(&FIXES_AND_WORKS.replace("fixed;;", "fixed; echo true > ci.sh;;"));
    let run = repo.runner(&UP).success();
    let words = "the guard is red on main: ci.sh, which defines it, is not there yet";
    assert!(run.stderr.contains(words), "{}", run.describe());
    assert_eq!(lines(&repo, "early"), Vec::<String>::new());
    assert_eq!(merged(&repo, "main").len(), 4);
}

#[test]
fn a_person_may_say_that_work_begins_on_a_red_base() {
    let mut repo = repo();
    set_guard(&mut repo, &json!(["test", "-e", "issue-1/file"]));
    repo.agent(FIXES_AND_WORKS);
    fleet_project::issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    let run = repo.runner(&[&UP[..], &["--on-red-base", "work"]].concat());
    let run = run.success();
    let words = "gave exit 1; work begins all the same";
    assert!(run.stderr.contains(words), "{}", run.describe());
    assert_eq!(lines(&repo, "sessions"), ["issue-1"]);
    assert_eq!(tasks(&repo), ["issue-1"]);
}

#[test]
fn a_base_that_nobody_fixes_any_longer_waits_for_a_person() {
    let repo = with_guard(&json!(["test", "-e", "fixed"]));
    let stuck = |run: TestRun, words: &str| {
        assert_eq!(run.code, Some(3), "{}", run.describe());
        assert!(run.stderr.contains(words), "{}", run.describe());
    };
    // Somebody made the task, and nobody was there to work on it.
    let none = [&UP[..], &["--json"]].concat();
    repo.runner(&["fleet", "pause"]).success();
    let running = repo.spawn_runner(&none);
    eventually("the tasks", Duration::from_secs(60), || {
        running.stdout_so_far().contains("started") && tasks(&repo).len() == 4
    });
    running.signal("INT");
    running.wait().code(130);
    let fix = base_fix(&repo);
    repo.runner(&["fleet", "resume"]).success();
    let why = repo.runner(&["why", "issue-1"]).success();
    let words = "the guard is red on the base: what fixes it begins first";
    assert!(why.stdout.contains(words), "{}", why.describe());
    assert!(why.stdout.contains(&fix), "{}", why.describe());
    repo.runner(&["fleet", "cancel", &fix]).success();
    let words = format!("{fix} has ended: fix it, or `runner fleet retry {fix}`");
    stuck(repo.runner(&UP), &words);
    assert_eq!(repo.agent_calls(), Vec::<String>::new(), "sessions");
    // A person fixes it.
    repo.write("fixed", "yes\n");
    repo.git(&["add", "fixed"]);
    repo.git(&["commit", "--quiet", "-m", "Fix it"]);
    // The task that somebody called off has ended.
    repo.runner(&UP).success();
    let mut sessions = lines(&repo, "sessions");
    sessions.sort();
    assert_eq!(sessions, ["issue-1", "issue-2", "issue-3"]);
}

/// What a person calls off has ended.
#[test]
fn a_task_that_is_called_off_is_not_left_to_do() {
    let repo = with_guard(&json!(["true"]));
    repo.runner(&["fleet", "pause"]).success();
    // Somebody makes the tasks, and nobody may work on them.
    repo.runner(&UP).code(3);
    repo.runner(&["fleet", "cancel", "issue-2", "--reason", "no longer wanted"])
        .success();
    repo.runner(&["fleet", "resume"]).success();
    let run = repo.runner(&UP).success();
    assert!(
        run.stdout.contains("no longer wanted"),
        "{}",
        run.describe()
    );
    assert!(!run.stderr.contains("not done"), "{}", run.describe());
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-3"]);
}

#[test]
fn a_trial_that_is_interrupted_leaves_nothing() {
    let mut repo = with_guard(&json!(["sh", "-c", "touch \"$HOME/up\"; sleep 600"]));
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    let running = repo.spawn_runner(&UP);
    let up = repo.root().join("home/up");
    eventually("the guard", Duration::from_secs(60), || up.exists());
    running.signal("INT");
    running.wait_within(Duration::from_secs(60)).code(130);
    assert_no_process(&repo.root().display().to_string());
    assert_eq!(tasks(&repo), Vec::<String>::new());
    assert!(repo.private_checkouts().is_empty());
}

#[test]
fn a_base_is_tried_once_for_each_commit() {
    let mut repo = with_guard(&json!(["sh", "-c", "echo run >> \"$HOME/guard-runs\""]));
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    let runs = |repo: &TestRepo| {
        let text = std::fs::read_to_string(repo.root().join("home/guard-runs"));
        text.unwrap_or_default().lines().count()
    };
    // A paused fleet does nothing but that.
    repo.runner(&["fleet", "pause"]).success();
    for _ in 0..2 {
        let running = repo.spawn_runner(&["fleet", "up"]);
        eventually("the start", Duration::from_secs(60), || {
            running.stderr_so_far().contains("Ctrl-C stops it")
        });
        running.signal("INT");
        running.wait_within(Duration::from_secs(60)).code(130);
        assert_eq!(runs(&repo), 1);
    }
    repo.runner(&["fleet", "resume"]).success();
    repo.runner(&UP).success();
    let before = runs(&repo);
    // The merge has run the guard on what is the base now.
    fleet_project::issue(&repo, 4, "Nobody says who does it.");
    repo.runner(&UP).code(3);
    assert_eq!(runs(&repo), before);
}
