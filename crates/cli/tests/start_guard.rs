//! `runner start` tries setup and guard on the base first: a guard that cannot run there costs no
//! session, a red one is told.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use std::fs;
use std::time::Duration;

use agent_support::contained::{MECHANISMS, with_mechanism};
use runner_testkit::{TestRepo, assert_no_process};
use scenario::{BIN, GOAL, bare, step};
use serde_json::Value;

/// Starts with `--json`: what the guard said, and what people read about it.
#[track_caller]
fn start(repo: &TestRepo, options: &[&str]) -> (String, String) {
    let args = [&["start", "--json"], options].concat();
    let run = repo.runner(&args).success();
    repo.assert_clean();
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    let tmp = fs::read_dir(repo.root().join("tmp")).expect("the temp folder is there");
    assert_eq!(tmp.count(), 0, "something is left in the temp folder");
    match &run.json()["guard_at_base"] {
        Value::String(word) => (word.clone(), run.stderr),
        other => panic!("{other}\n{}", run.describe()),
    }
}

/// A project with this guard that has not been started.
fn fresh(guard: &[&str]) -> TestRepo {
    let mut repo = bare();
    repo.init_run(GOAL, guard);
    repo
}

/// A start that is refused: nothing has begun, and no session runs however one goes on.
#[track_caller]
fn refused(repo: &TestRepo, words: &[&str]) {
    repo.agent("out done did");
    let before = (repo.git(&["status", "--porcelain", "-uall"]), repo.head());
    let refused = repo.runner(&["start"]).code(1);
    for words in words {
        let refused = refused.describe();
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let after = (repo.git(&["status", "--porcelain", "-uall"]), repo.head());
    assert_eq!(before, after, "start has left something");
    assert_eq!(repo.git(&["branch", "--format=%(refname:short)"]), "main");
    assert!(repo.private_checkouts().is_empty());
    repo.runner(&["loop"]).code(1);
    repo.runner(&["step"]).code(1);
    assert_eq!(repo.agent_calls(), Vec::<String>::new(), "sessions");
}

#[test]
fn green_red_or_not_there_yet() {
    for (guard, expected, words) in [
        (&["test", "-e", "README.md"][..], "pass", ""),
        // What `.runner/` holds is there, as it will be for every step.
        (&["test", "-e", ".runner/GOAL.md"], "pass", ""),
        (
            &["sh", "-c", "exit 4"],
            "fail",
            "note: the guard is red at the start: `sh -c exit 4` gave exit 4 before any work",
        ),
        (
            &["./ci.sh"],
            "unknown",
            "note: the guard is not there yet: `./ci.sh` needs ci.sh",
        ),
        (
            &["sh", "ci.sh"],
            "unknown",
            "note: the guard is not there yet: `sh ci.sh` needs ci.sh",
        ),
    ] {
        let (verdict, told) = start(&fresh(guard), &[]);
        assert_eq!(verdict, expected, "{guard:?}\n{told}");
        assert!(told.contains(words), "{guard:?}\n{told}");
        assert_eq!(told.contains("guard"), !words.is_empty(), "{told}");
    }
}

#[test]
fn a_guard_whose_program_is_missing_costs_no_session() {
    let hint = "hint: install it, or change [guard] command";
    let words = "error: cannot begin a run: the guard cannot run on the base: cannot start";
    refused(&fresh(&["no-such-guard"]), &[words, hint]);
    let shell = ["sh", "-c", "no-such-guard --all"];
    let words = "the guard cannot run on the base: `sh -c no-such-guard --all` gave exit 127";
    refused(&fresh(&shell), &[words, "no-such-guard: not found"]);
    // A script that is there and cannot be executed.
    let mut repo = bare();
    repo.write("ci.sh", "true\n");
    repo.commit_all("A script");
    repo.init_run(GOAL, &["./ci.sh"]);
    refused(&repo, &["cannot start `./ci.sh`"]);
    // Whoever does not ask pays: the sessions above are counted.
    repo.runner(&["start", "--no-guard-check"]).success();
    repo.runner(&["step"]);
    assert_eq!(repo.agent_calls().len(), 1);
}

#[test]
fn a_setup_that_fails_costs_no_session() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("workspace.setup", "echo no network; exit 7");
    });
    repo.init_run(GOAL, &["true"]);
    let words = [
        "the guard cannot run on the base: setup `echo no network; exit 7` gave exit 7\n  no network",
        "hint: let [workspace] setup work in a fresh checkout",
    ];
    refused(&repo, &words);
    // A guard that is not there yet changes nothing of that.
    repo.config(|config| {
        config.set("guard.command", serde_json::json!(["./ci.sh"]));
    });
    repo.write_config();
    refused(&repo, &["setup `echo no network; exit 7` gave exit 7"]);
}

/// A project in the manner of Node: what the guard needs lies in a folder that git ignores.
fn with_ignored_packages(guard: &str) -> TestRepo {
    let mut repo = bare();
    repo.write(".gitignore", "node_modules/\n");
    repo.write("package.json", "{\"scripts\": {\"test\": \"check\"}}\n");
    repo.commit_all("A package");
    repo.write("node_modules/.bin/check", "test -e package.json\n");
    repo.init_run(GOAL, &["sh", "-c", guard]);
    repo
}

#[test]
fn packages_that_git_ignores_and_no_setup_cost_no_session() {
    // As npm ends when it does not find the tool, and as a test tool ends that misses a package.
    let missing = "PATH=node_modules/.bin:$PATH; check || exit 127";
    refused(
        &with_ignored_packages(missing),
        &[
            "gave exit 127",
            "hint: install what the guard calls, or let [workspace] setup make what a clean checkout lacks (node_modules/)",
        ],
    );
    let red = "test -e node_modules/.bin/check || { echo Cannot find module; exit 1; }";
    let repo = with_ignored_packages(red);
    refused(
        &repo,
        &[
            "is red in a clean checkout and green with the ignored files of yours beside it: node_modules/",
            "hint: let [workspace] setup make what a clean checkout lacks (node_modules/)",
        ],
    );
    // The remedy helps, at once: what could not run was not kept in mind.
    let mut repo = repo;
    repo.config(|config| {
        config.set(
            "workspace.setup",
            "mkdir -p node_modules/.bin; touch node_modules/.bin/check",
        );
    });
    repo.write_config();
    assert_eq!(start(&repo, &[]).0, "pass");
}

#[test]
fn a_base_that_is_red_everywhere_is_red() {
    let repo = with_ignored_packages("exit 3");
    let (verdict, told) = start(&repo, &[]);
    assert_eq!(verdict, "fail", "{told}");
    assert!(repo.private_checkouts().is_empty());
}

/// A start that is refused for a variable, and goes on once it is passed on.
#[track_caller]
fn refused_without(mut repo: TestRepo, name: &str) {
    repo.env(name, "yes");
    let words = [
        format!("is red in a clean checkout and green with variables of your shell: {name}\n"),
        format!("hint: pass {name} on with [guard] env = [\"{name}\"]"),
    ];
    refused(&repo, &words.each_ref().map(String::as_str));
    repo.config(|config| {
        config.set("guard.env", serde_json::json!([name]));
    });
    repo.write_config();
    assert_eq!(start(&repo, &[]).0, "pass");
}

#[test]
fn a_variable_of_the_shell_that_nothing_passes_on_costs_no_session() {
    // Named by the output, by the command, by a file that it calls.
    refused_without(
        fresh(&["sh", "-c", "test \"${SERVICE_URL:?}\" = yes"]),
        "SERVICE_URL",
    );
    refused_without(
        fresh(&["sh", "-c", "test \"$SERVICE_URL\" = yes"]),
        "SERVICE_URL",
    );
    let mut repo = bare();
    repo.write("check.py", "# HOME, EDITOR and SERVICE_URL\n");
    repo.write(
        "ci.sh",
        "test \"$SERVICE_URL\" = yes && test -z \"$GIT_DIR\"\n",
    );
    repo.commit_all("A guard");
    repo.init_run(GOAL, &["sh", "ci.sh"]);
    refused_without(repo, "SERVICE_URL");
}

/// The base may hold work of agents: what looks like a secret is never handed to it unasked. It gets
/// a stand-in, to see whether it asks for it.
#[test]
fn secrets_are_not_tried() {
    let script = "env >> \"$HOME/../out/env\"; test \"$SERVICE_TOKEN$DATABASE_URL\" != \"\"";
    let mut repo = fresh(&["sh", "-c", script]);
    let address = "postgres://me:hidden@host/db";
    repo.env("SERVICE_TOKEN", "hidden")
        .env("UNNAMED", "hidden")
        .env("DATABASE_URL", address);
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    refused(
        &repo,
        &[
            "green with a stand-in for variables of your shell that look like secrets: DATABASE_URL, SERVICE_TOKEN\n",
            "hint: pass DATABASE_URL, SERVICE_TOKEN on with [guard] env = [\"DATABASE_URL\", \"SERVICE_TOKEN\"]",
        ],
    );
    let seen = fs::read_to_string(repo.root().join("out/env")).unwrap();
    assert!(seen.contains("SERVICE_TOKEN="), "{seen}");
    assert!(!seen.contains("hidden"), "{seen}");
}

/// A stand-in is no good to this one: what it says itself counts.
#[test]
fn a_secret_that_the_guard_says_is_missing_costs_no_session() {
    let script = ": \"${SERVICE_TOKEN:?must be set}\"; test \"$SERVICE_TOKEN\" = yes";
    let mut repo = fresh(&["sh", "-c", script]);
    repo.env("SERVICE_TOKEN", "yes");
    refused(
        &repo,
        &[
            "and says that a variable is missing which your shell has and which is not tried, because it looks like a secret: SERVICE_TOKEN\n",
            "hint: pass SERVICE_TOKEN on with [guard] env = [\"SERVICE_TOKEN\"]",
        ],
    );
    repo.config(|config| {
        config.set("guard.env", serde_json::json!(["SERVICE_TOKEN"]));
    });
    repo.write_config();
    assert_eq!(start(&repo, &[]).0, "pass");
}

#[test]
fn files_and_variables_may_both_be_missing() {
    let guard = "test -e node_modules/.bin/check && test \"$SERVICE_URL\" = yes";
    let mut repo = with_ignored_packages(guard);
    repo.env("SERVICE_URL", "yes");
    let words = "the ignored files of yours beside it: node_modules/, and variables of your shell: SERVICE_URL";
    refused(
        &repo,
        &[words, "(node_modules/)", "[guard] env = [\"SERVICE_URL\"]"],
    );
}

#[test]
fn a_variable_that_a_red_guard_names_is_told() {
    let mut repo = bare();
    repo.env("DATABASE_URL", "x");
    repo.init_run(GOAL, &["sh", "-c", "${DATABASE_URL:?}; exit 1"]);
    let (verdict, told) = start(&repo, &[]);
    assert_eq!(verdict, "fail");
    let words = "its output names DATABASE_URL: your shell has it, [guard] env does not pass it on";
    assert!(told.contains(words), "{told}");
}

#[test]
fn a_slow_guard_is_red() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("iteration_timeout_secs", 1);
    });
    repo.init_run(GOAL, &["sleep", "600"]);
    let (verdict, told) = start(&repo, &[]);
    assert_eq!(verdict, "fail");
    assert!(
        told.contains("`sleep 600` did not end within 1 s"),
        "{told}"
    );
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn a_verdict_is_kept_for_its_commit_and_config() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    let count = "echo run >> \"$HOME/guard-runs\"; exit";
    let runs = |repo: &TestRepo| {
        let runs = fs::read_to_string(repo.root().join("home/guard-runs"));
        runs.unwrap_or_default().lines().count()
    };
    let again = |repo: &TestRepo| {
        let verdict = start(repo, &[]).0;
        repo.git(&["switch", "--quiet", "main"]);
        repo.git(&["branch", "-D", "runner/demo"]);
        verdict
    };
    repo.init_run(GOAL, &["sh", "-c", &format!("{count} 0")]);
    repo.commit_all("The state");
    assert_eq!((again(&repo).as_str(), runs(&repo)), ("pass", 1));
    assert_eq!((again(&repo).as_str(), runs(&repo)), ("pass", 1), "known");
    repo.write("new", "x\n");
    repo.commit_all("Another commit");
    assert_eq!((again(&repo).as_str(), runs(&repo)), ("pass", 2));
    let red = serde_json::json!(["sh", "-c", format!("{count} 1")]);
    repo.config(|config| {
        config.set("guard.command", red);
    });
    repo.write_config();
    repo.commit_all("Another guard");
    assert_eq!((again(&repo).as_str(), runs(&repo)), ("fail", 3));
    assert_eq!((again(&repo).as_str(), runs(&repo)), ("fail", 3), "known");
}

#[test]
fn asked_once_and_only_if_wanted() {
    let guard = ["sh", "-c", "echo run >> \"$HOME/../agent/guard-runs\""];
    let runs = |repo: &TestRepo| fs::read_to_string(repo.agent_dir().join("guard-runs")).is_ok();
    let mut repo = bare();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.init_run(GOAL, &guard);
    assert_eq!(start(&repo, &["--no-guard-check"]).0, "skipped");
    // A second start has nothing to begin.
    assert_eq!(start(&repo, &[]).0, "skipped");
    repo.write(".runner/INSTRUCTIONS.md", "Be kind.\n");
    assert_eq!(start(&repo, &[]).0, "skipped");
    assert!(!runs(&repo), "the guard ran");

    repo.git(&["switch", "--quiet", "main"]);
    assert_eq!(start(&repo, &[]).0, "skipped", "back to the run");
    assert!(!runs(&repo), "the guard ran");
}

#[test]
fn nothing_is_recorded_and_nothing_left() {
    let repo = fresh(&[
        "sh",
        "-c",
        "echo x > left-by-guard; echo y >> README.md; exit 1",
    ]);
    assert_eq!(start(&repo, &[]).0, "fail");
    assert!(!repo.exists("left-by-guard"));
    let events: Vec<Value> = repo.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(repo.subjects().len(), 2);
    // Quiet is quiet.
    let repo = fresh(&["false"]);
    assert_eq!(repo.runner(&["start", "--quiet"]).success().stderr, "");
}

#[test]
fn a_repository_without_a_commit() {
    let mut repo = TestRepo::empty(BIN);
    repo.write("ci.sh", "test -e ci.sh\n");
    repo.init_run(GOAL, &["sh", "ci.sh"]);
    assert_eq!(start(&repo, &[]).0, "pass");
}

#[test]
fn an_interrupt_or_a_kill_leaves_nothing_begun() {
    for signal in ["TERM", "KILL"] {
        let mut repo = bare();
        repo.config(|config| {
            config.set("sandbox.mode", "off");
        });
        repo.init_run(GOAL, &["sh", "-c", "touch \"$HOME/up\"; sleep 600"]);
        let before = (repo.git(&["status", "--porcelain", "-uall"]), repo.head());
        let running = repo.spawn_runner(&["start"]);
        let up = repo.root().join("home/up");
        runner_testkit::eventually("the guard", Duration::from_secs(20), || up.exists());
        // What a person does meanwhile stays.
        repo.write("README.md", "mine\n");
        repo.git(&["add", "README.md"]);
        running.signal(signal);
        if signal == "TERM" {
            running
                .wait()
                .code(130)
                .says("interrupted while the guard was tried: no run has begun");
        } else {
            running.wait();
        }
        runner_testkit::assert_processes_end(
            &repo.root().display().to_string(),
            Duration::from_secs(20),
        );
        assert_eq!(repo.git(&["diff", "--cached", "--name-only"]), "README.md");
        repo.git(&["reset", "--quiet", "--hard"]);
        let after = (repo.git(&["status", "--porcelain", "-uall"]), repo.head());
        assert_eq!(before, after, "{signal}");
        repo.runner(&["clean"]).success();
        assert_eq!(start(&repo, &["--no-guard-check"]).0, "skipped");
        assert_eq!(repo.run_id(), "demo");
    }
}

#[test]
fn a_person_who_checks_something_else_out_meanwhile_is_asked_again() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    let guard = "touch \"$HOME/up\"; while ! test -e \"$HOME/go\"; do sleep 0.05; done";
    repo.init_run(GOAL, &["sh", "-c", guard]);
    let running = repo.spawn_runner(&["start"]);
    let home = repo.root().join("home");
    let up = home.join("up");
    runner_testkit::eventually("the guard", Duration::from_secs(20), || up.exists());
    repo.git(&["switch", "--quiet", "-c", "other"]);
    fs::write(home.join("go"), "").expect("the home is there");
    running
        .wait()
        .code(1)
        .says("another commit was checked out while the guard was tried");
    assert_eq!(repo.git(&["symbolic-ref", "--short", "HEAD"]), "other");
    assert_eq!(start(&repo, &[]).0, "pass");
}

#[test]
fn what_the_guard_changes_on_the_base_is_told_at_the_start() {
    let mut repo = bare();
    repo.write("count.txt", "0\n");
    repo.write("other.txt", "0\n");
    repo.commit_all("files");
    let script = "echo 1 > count.txt; test ! -e spoil || echo 1 > other.txt";
    repo.init_run(GOAL, &["sh", "-c", script]);
    let (word, told) = start(&repo, &[]);
    let words = "the guard changes files of the commit that it judges: count.txt; in these";
    assert!(word == "pass" && told.contains(words), "{told}");
    repo.agent("touch spoil; out done x");
    let told = step(&repo);
    assert_eq!(told["guard"], "fail", "{told:#}");
    assert_eq!(
        repo.meta(1)["facts"]["changed_by_guard"],
        serde_json::json!(["other.txt"])
    );
    let prompt =
        |iter| fs::read_to_string(repo.iteration(iter).join("prompt.md")).expect("a prompt");
    repo.agent("rm spoil; out done x");
    let told = step(&repo);
    assert_eq!(told["guard"], "pass", "{told:#}");
    assert!(
        told["notes"]
            .to_string()
            .contains("where the run began, too: count.txt")
    );
    let words = "ended with exit code 0, but that did not count";
    assert!(prompt(2).contains(words), "{}", prompt(2));
}

#[test]
fn a_script_that_may_not_be_executed() {
    let mut repo = bare();
    repo.write("ci.sh", "#!/bin/sh\nexit 0\n");
    repo.commit_all("a guard");
    repo.init_run(GOAL, &["./ci.sh"]);
    refused(&repo, &["permission denied", "chmod +x ./ci.sh"]);
}

/// A guard that compares with the branch that was last fetched.
#[test]
fn remote_tracking_branches_that_a_clean_checkout_lacks_are_named() {
    let mut repo = bare();
    let (from, name) = (repo.head(), "refs/remotes/origin/main");
    repo.git(&["update-ref", name, &from]);
    repo.init_run(
        GOAL,
        &["sh", "-c", "git diff --quiet origin/main -- README.md"],
    );
    refused(
        &repo,
        &[
            "is red in a clean checkout and green with remote-tracking branches of yours: origin/main\n",
            "hint: let the guard do without origin/main: a clean checkout has no remotes",
        ],
    );

    // It is red with them, too: then that is what is told.
    let mut repo = bare();
    repo.git(&["update-ref", name, &repo.head()]);
    repo.init_run(GOAL, &["sh", "-c", "git log -1 origin/main; exit 3"]);
    let (word, told) = start(&repo, &[]);
    assert_eq!(word, "fail");
    let words = "its output names origin/main: a clean checkout has no remote-tracking branches";
    assert!(told.contains(words), "{told}");
}

/// A guard that keeps something in the home folder, which it can only where no sandbox is.
#[test]
fn files_of_the_home_folder_that_cannot_be_written_are_named() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        fs::write(repo.root().join("home/.settings"), "colour=never\n").expect("a file");
        // What is not there yet can be made in the private home.
        fs::create_dir(repo.root().join("home/.tool")).expect("a folder");
        let guard = "grep -q never ~/.settings && mkdir -p ~/.new && echo x > ~/.new/state && echo x > ~/.tool/state";
        repo.init_run(GOAL, &["sh", "-c", guard]);
        refused(
            &repo,
            &[
                "is red in a clean checkout and green with a home folder in which it can write ~/.tool",
                "hint: make the folder and name it with [sandbox.guard] writable = [\"~/.tool\"]",
            ],
        );
        for left in ["home/.tool/state", "home/.new"] {
            let left = repo.root().join(left);
            assert!(!left.exists(), "{mechanism}: nothing is written there");
        }

        // With the folder that the hint names it is green.
        let mut repo = with_mechanism(mechanism);
        let home = repo.root().join("home");
        fs::write(home.join(".settings"), "colour=never\n").expect("a file");
        fs::create_dir(home.join(".tool")).expect("a folder");
        repo.config(|config| {
            config.set("sandbox.writable", serde_json::json!(["~/.tool"]));
        });
        repo.init_run(GOAL, &["sh", "-c", guard]);
        assert_eq!(start(&repo, &[]).0, "pass", "{mechanism}");
    }
}

/// What is proposed opens neither a folder of secrets nor the guard itself.
#[test]
fn a_guard_that_makes_a_folder_beside_secrets_is_proposed_that_folder_alone() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        let home = repo.root().join("home");
        fs::create_dir_all(home.join(".config/gh")).expect("a folder");
        let guard = "mkdir -p ~/.config/newtool && echo x > ~/.config/newtool/cache";
        repo.init_run(GOAL, &["sh", "-c", guard]);
        if mechanism == "landlock" {
            // There a folder with secrets in it is one of the private home's own.
            assert_eq!(start(&repo, &[]).0, "pass");
            assert!(!home.join(".config/newtool").exists());
            continue;
        }
        let words = "[sandbox.guard] writable = [\"~/.config/newtool\"]";
        refused(&repo, &[words]);
    }
}

#[test]
fn a_config_that_makes_the_guards_own_file_writable_is_refused() {
    for (entry, key) in [
        ("~/judge", "sandbox.guard.writable"),
        ("~/judge/check.sh", "sandbox.writable"),
        ("~", "sandbox.session.writable"),
        ("~/linked", "sandbox.setup.writable"),
    ] {
        let mut repo = bare();
        let home = repo.root().join("home");
        fs::create_dir(home.join("judge")).expect("a folder");
        std::os::unix::fs::symlink("judge", home.join("linked")).expect("a link");
        let guard = home.join("judge/check.sh");
        fs::write(&guard, "exit 0\n").expect("a file");
        let guard = guard.display().to_string();
        repo.config(|config| {
            config.set(key, serde_json::json!([entry]));
        });
        repo.init_run(GOAL, &["sh", &guard]);
        let (table, _) = key.rsplit_once('.').expect("a key");
        let words = format!("[{table}] writable = [\"{entry}\"] opens `{guard}`");
        refused(&repo, &[&words, "hint: name a narrower folder"]);
        let told = repo.runner(&["validate"]).code(1).describe();
        assert!(told.contains(&words), "{told}");

        repo.config(|config| {
            config.set(key, serde_json::json!(["~/other"]));
        });
        repo.write_config();
        assert!(!repo.runner(&["validate"]).describe().contains(&words));
    }
}
