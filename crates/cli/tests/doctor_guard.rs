//! `runner doctor --run-guard`: the guard outside and inside the sandbox.

mod doctor_support;
mod scenario;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use doctor_support::{bin, check, doctor, expect, project, real, with_tools};
use runner_testkit::{TestRepo, assert_no_process, write_program};
use scenario::{BIN, GOAL, assert_same, picture};
use serde_json::{Value, json};

/// No work tree and no temporary folder is left behind.
#[track_caller]
fn assert_nothing_left(repo: &TestRepo) {
    assert!(repo.private_checkouts().is_empty());
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    let tmp = fs::read_dir(repo.root().join("tmp")).expect("the temp folder is there");
    assert_eq!(tmp.count(), 0, "something is left in the temp folder");
}

#[test]
fn a_guard_that_passes() {
    let mut repo = project(&["test", "-e", "README.md"]);
    symlink(real("test").unwrap(), bin(&repo).join("test")).unwrap();
    let before = picture(&repo);
    let value = doctor(&repo, &["--run-guard"], 0);
    expect(&value, "guard_outside", "ok", "passes at HEAD");
    expect(&value, "guard_inside", "ok", "");
    expect(&value, "guard_leaves", "ok", "nothing");
    expect(&value, "guard_tests", "warn", "its exit code alone says");
    expect(&value, "guard_cost", "ok", "land takes about 0.");
    let ran = &value["run_guard"];
    assert_eq!(ran["commit"], repo.head());
    assert_eq!(ran["command"], json!(["test", "-e", "README.md"]));
    let outside = &ran["outside"];
    assert_eq!(
        (&outside["exit"], &outside["sandbox"]),
        (&json!(0), &json!("none"))
    );
    assert!(outside["duration_ms"].is_u64(), "{ran}");
    assert_same(&repo, &before, "the user's tree is not touched");
    assert_nothing_left(&repo);

    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    let value = doctor(&repo, &["--run-guard"], 0);
    expect(&value, "guard_inside", "ok", "not run");
    assert_eq!(value["run_guard"]["inside"], Value::Null);
}

#[test]
fn a_guard_that_fails_shows_why() {
    let repo = project(&["sh", "-c", "echo no such luck; exit 3"]);
    repo.write(".git/info/exclude", "build/\n");
    repo.write("build/x", "");
    let value = doctor(&repo, &["--run-guard"], 1);
    expect(&value, "guard_outside", "fail", "gives exit 3 at HEAD");
    expect(&value, "guard_outside", "fail", "without build/");
    assert_eq!(
        value["run_guard"]["outside"]["output_tail"],
        "no such luck\n"
    );
    let human = repo.runner(&["doctor", "--run-guard"]).code(1);
    assert!(
        human.stderr.contains("  no such luck\n"),
        "{}",
        human.describe()
    );
    assert_nothing_left(&repo);
}

#[test]
fn what_a_guard_leaves_is_told() {
    let script = "echo made > made-by-guard; echo changed >> README.md; echo fine > ignored";
    let repo = project(&["sh", "-c", script]);
    repo.write(".gitignore", "ignored\n");
    repo.commit_all("Ignore");
    let value = doctor(&repo, &["--run-guard"], 0);
    expect(&value, "guard_leaves", "warn", "README.md, made-by-guard");
    assert_eq!(
        value["run_guard"]["outside"]["left"],
        json!(["README.md", "made-by-guard"])
    );
    assert!(!repo.exists("made-by-guard"));
    repo.assert_clean();
}

#[test]
fn a_guard_that_fails_in_the_sandbox_alone() {
    for with_bwrap in [true, false] {
        let mut repo = project(&["sh", "-c", "echo x > \"$HOME/.made/x\""]);
        if let (true, Some(bwrap)) = (with_bwrap, real("bwrap")) {
            symlink(bwrap, bin(&repo).join("bwrap")).unwrap();
        }
        fs::create_dir(repo.root().join("home/.made")).unwrap();
        let run = repo.runner(&["doctor", "--run-guard", "--json"]);
        let value = run.json();
        if value["run_guard"]["inside"].is_null() {
            continue; // This machine has no such sandbox.
        }
        run.code(1);
        expect(&value, "guard_outside", "ok", "passes");
        expect(
            &value,
            "guard_inside",
            "fail",
            "passes outside, but gives exit",
        );
        expect(
            &value,
            "guard_inside",
            "fail",
            "could not write to ~/.made;",
        );
        assert_nothing_left(&repo);

        // Doing what it says mends it.
        let remedy = check(&value, "guard_inside")["remedy"].as_str().unwrap();
        let (_, list) = remedy.split_once("writable = ").unwrap();
        let (list, _) = list.split_once(']').unwrap();
        let list: Value = serde_json::from_str(&format!("{list}]")).unwrap();
        repo.config(|config| {
            config.set("sandbox.guard.writable", list);
        });
        repo.write_config();
        let value = doctor(&repo, &["--run-guard"], 0);
        expect(&value, "guard_inside", "ok", "too");
    }
}

#[test]
fn what_decides_a_verdict_or_is_secret_is_never_proposed() {
    for with_bwrap in [true, false] {
        let mut repo = project(&["true"]);
        if let (true, Some(bwrap)) = (with_bwrap, real("bwrap")) {
            symlink(bwrap, bin(&repo).join("bwrap")).unwrap();
        }
        let home = repo.root().join("home");
        for folder in ["judge", ".config/gh", ".kube"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        fs::write(home.join(".kube/config"), "").unwrap();
        let judge = home.join("judge/check.sh");
        for (script, expected, never) in [
            // A shell names its script in every error.
            (
                "mkdir -p \"$HOME/.config/newtool\" && echo x > \"$HOME/.config/newtool/cache\"",
                "[sandbox.guard] writable = [\"~/.config/newtool\"]",
                "judge",
            ),
            (
                "echo '#' >> \"$HOME/judge/check.sh\"",
                "it was refused ~/judge/check.sh, which stays closed",
                "[sandbox",
            ),
            (
                "echo x >> \"$HOME/.kube/config\" || { echo \"$HOME/.kube/config: Permission denied\"; exit 1; }",
                "~/.kube/config is hidden: open it with [sandbox.guard] readable = [\"~/.kube/config\"]",
                "writable",
            ),
        ] {
            write_program(&judge, &format!("#!/bin/sh\n{script}\n"));
            repo.config(|config| {
                config.set("guard.command", json!(["sh", judge]));
            });
            repo.write_config();
            let value = repo.runner(&["doctor", "--run-guard", "--json"]).json();
            if value["run_guard"]["inside"].is_null() {
                continue; // This machine has no such sandbox.
            }
            expect(&value, "guard_inside", "fail", "passes outside");
            let told = check(&value, "guard_inside")["remedy"].as_str().unwrap();
            assert!(told.contains(expected), "{with_bwrap}: {told}");
            assert!(!told.contains(never), "{with_bwrap}: {told}");
        }
    }
}

#[test]
fn a_guard_that_cannot_be_run() {
    let repo = project(&["no-such-guard"]);
    let value = doctor(&repo, &["--run-guard"], 1);
    expect(
        &value,
        "guard_outside",
        "fail",
        "cannot start `no-such-guard`",
    );
    assert_eq!(value["run_guard"]["outside"]["exit"], Value::Null);

    let mut repo = project(&["sleep", "600"]);
    repo.config(|config| {
        config.set("iteration_timeout_secs", 1);
    });
    repo.write_config();
    let value = doctor(&repo, &["--run-guard"], 1);
    expect(&value, "guard_outside", "fail", "did not end within 1 s");
    assert_nothing_left(&repo);

    let mut repo = with_tools(TestRepo::empty(BIN));
    repo.init_run(GOAL, &["true"]);
    let value = doctor(&repo, &["--run-guard"], 1);
    expect(&value, "guard_outside", "fail", "no commit");
}

#[test]
fn an_interrupt_ends_the_guard_and_leaves_nothing() {
    let mut repo = project(&["sh", "-c", "touch \"$HOME/up\"; sleep 600"]);
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    let running = repo.spawn_runner(&["doctor", "--run-guard"]);
    let up: &Path = &repo.root().join("home/up");
    runner_testkit::eventually("the guard", Duration::from_secs(20), || up.exists());
    running.signal("INT");
    running.wait().code(130);
    assert_no_process(&repo.root().display().to_string());
    assert_nothing_left(&repo);
}

#[test]
fn what_a_killed_runner_left_is_removed_by_the_next() {
    let mut repo = project(&["sh", "-c", "touch \"$HOME/up\"; sleep \"$(cat nap)\""]);
    symlink(real("cat").unwrap(), bin(&repo).join("cat")).unwrap();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    repo.write("nap", "600");
    repo.commit_all("A long nap");
    let running = repo.spawn_runner(&["doctor", "--run-guard"]);
    let up: &Path = &repo.root().join("home/up");
    runner_testkit::eventually("the guard", Duration::from_secs(20), || up.exists());
    running.kill();
    assert!(!repo.private_checkouts().is_empty());
    repo.write("nap", "0");
    repo.commit_all("No nap");
    doctor(&repo, &["--run-guard"], 0);
    assert_nothing_left(&repo);
}

/// A project with two source roots under a guard; `PROJECT` in it is the user's checkout.
fn sources(guard: &str) -> TestRepo {
    let mut repo = with_tools(TestRepo::new(BIN));
    for name in ["node", "rm", "ln"] {
        let program = real(name).expect("it is on PATH");
        symlink(program, bin(&repo).join(name)).expect("a link");
    }
    repo.write("src/index.js", "module.exports = 1;\n");
    repo.write("src/index.test.js", "require('./index.js');\n");
    repo.write("lib/index.js", "module.exports = 2;\n");
    repo.commit_all("Add the sources");
    let guard = guard.replace("PROJECT", &repo.path("").display().to_string());
    repo.start_run(GOAL, &["sh", "-c", &guard]);
    repo
}

fn run_guard(repo: &TestRepo) -> Value {
    let value = repo.runner(&["doctor", "--run-guard", "--json"]).json();
    repo.assert_clean();
    assert_eq!(repo.read("lib/index.js"), "module.exports = 2;\n");
    assert_eq!(repo.read("src/index.js"), "module.exports = 1;\n");
    assert_nothing_left(repo);
    value
}

#[test]
fn a_break_in_each_source_root_turns_a_good_guard_red() {
    let repo = sources("node --check src/index.js && node --check lib/index.js");
    let value = run_guard(&repo);
    expect(&value, "guard_breaks", "ok", "turns it red");
    let breaks = value["run_guard"]["breaks"].as_array().unwrap();
    assert_eq!(breaks.len(), 2, "{value:#}");
    for planted in breaks {
        assert_eq!(planted["exit"], 1, "{planted}");
        assert_eq!(planted["language"], "JavaScript");
    }
}

#[test]
fn a_guard_that_cannot_fail_is_told() {
    let repo = sources("node --check src/index.js");
    let value = run_guard(&repo);
    let words = "it stays green with a syntax error in lib/index.js (JavaScript)";
    expect(&value, "guard_breaks", "warn", words);
    for guard in [
        "true",
        // It looks at the user's checkout, whatever it is started in.
        "node --check PROJECT/src/index.js && node --check PROJECT/lib/index.js",
    ] {
        let value = run_guard(&sources(guard));
        expect(&value, "guard_breaks", "fail", "it cannot fail");
    }
    // One that is red anyway shows nothing by a break.
    let value = run_guard(&sources("false"));
    assert!(!doctor_support::names(&value).contains(&"guard_breaks"));
}

#[test]
fn no_break_is_planted_through_a_link() {
    let link = "for name in lib src; do rm -rf $name; ln -s PROJECT/$name $name; done";
    let mut repo = sources(link);
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    repo.commit_all("Without a sandbox");
    let value = run_guard(&repo);
    assert_eq!(
        value["run_guard"]["breaks"].as_array().unwrap().len(),
        1,
        "{value:#}"
    );
}

#[test]
fn a_variable_that_only_the_shell_has_is_named() {
    let mut repo = project(&["sh", "-c", ": \"${SERVICE_URL:?not set}\""]);
    repo.env("SERVICE_URL", "here");
    let value = doctor(&repo, &["--run-guard"], 1);
    expect(
        &value,
        "guard_variables",
        "warn",
        "does not get SERVICE_URL",
    );
    expect(
        &value,
        "guard_variables",
        "warn",
        "[guard] env = [\\\"SERVICE_URL\\\"]",
    );
    repo.config(|config| {
        config.set("guard.env", json!(["SERVICE_URL"]));
    });
    repo.write_config();
    let value = doctor(&repo, &["--run-guard"], 0);
    expect(&value, "guard_breaks", "warn", "none planted");
}
