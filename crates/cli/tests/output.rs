//! What people see: on a terminal, through a pipe, and when nobody listens.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::{TestRepo, TestRun};
use scenario::{WAIT_FOR_GO, go, planned, started};

const WORK: &str = "echo work >> work.txt; out done 'did it'";

/// Runs a command on a terminal of its own; what it shows is in `stdout`.
fn on_a_terminal(repo: &TestRepo, args: &[&str], env: &[(&str, &str)]) -> TestRun {
    let python = std::fs::read_to_string(repo.agent_dir().join("python")).expect("an agent is set");
    let mut cmd = repo.hermetic(python.trim());
    let script = "import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], lambda fd: os.read(fd, 65536))))";
    cmd.args(["-I", "-S", "-c", script, scenario::BIN])
        .args(args);
    cmd.env("TERM", "xterm").envs(env.iter().copied());
    repo.spawn(cmd).wait()
}

/// The colours of the terminal, and its bold and dim.
fn has_colours(text: &str) -> bool {
    text.split("\x1b[").skip(1).any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
        end.is_some_and(|end| rest[end..].starts_with('m'))
    })
}

const CLEARED: &str = "\r\x1b[2K";

#[test]
fn a_loop_on_a_terminal_shows_how_far_it_is() {
    let repo = planned(&["a", "b"], WORK, &["true"]);
    let run = on_a_terminal(&repo, &["loop"], &[]).success();
    let shown = &run.stdout;
    for words in [
        "0/2 leaves",
        "1/2 leaves",
        "root/a",
        "root/b",
        "agent",
        "of 1:00",
        CLEARED,
    ] {
        assert!(shown.contains(words), "{words:?} in {shown:?}");
    }
    assert!(has_colours(shown), "{shown:?}");
    // What stays on the screen is whole lines: the live one is cleared before each.
    let kept: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.rsplit("\x1b[2K").next())
        .filter(|line| line.contains("guard passed"))
        .collect();
    assert_eq!(kept.len(), 2, "{shown:?}");
    assert!(kept.iter().all(|line| !line.contains("leaves")), "{kept:?}");
}

#[test]
fn colours_and_the_live_line_can_be_had_without_each_other() {
    let repo = planned(&["a"], WORK, &["true"]);
    let run = on_a_terminal(&repo, &["tree"], &[]).success();
    assert!(has_colours(&run.stdout), "{:?}", run.stdout);
    for (args, env) in [
        (&["tree", "--color", "never"][..], &[][..]),
        (&["tree"], &[("NO_COLOR", "1")]),
        (&["status"], &[("NO_COLOR", "1")]),
    ] {
        let run = on_a_terminal(&repo, args, env).success();
        assert!(
            !has_colours(&run.stdout),
            "{args:?} {env:?}: {:?}",
            run.stdout
        );
    }
    let run = on_a_terminal(&repo, &["loop"], &[("NO_COLOR", "1")]).success();
    assert!(
        run.stdout.contains(CLEARED) && !has_colours(&run.stdout),
        "{:?}",
        run.stdout
    );
}

#[test]
fn no_live_line_where_it_would_be_in_the_way() {
    for (args, env) in [
        (&["loop", "--quiet"][..], &[][..]),
        (&["loop", "--json"], &[]),
        (&["loop"], &[("TERM", "dumb")]),
    ] {
        let repo = started(WORK, &["true"]);
        let run = on_a_terminal(&repo, args, env).success();
        assert!(
            !run.stdout.contains("\x1b[2K"),
            "{args:?}: {:?}",
            run.stdout
        );
        assert!(
            !run.stdout.contains("leaves ·"),
            "{args:?}: {:?}",
            run.stdout
        );
    }
}

#[test]
fn a_slow_step_keeps_its_clock_moving() {
    let repo = started(&format!("{WAIT_FOR_GO}{WORK}"), &["true"]);
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| on_a_terminal(&repo, &["step"], &[]));
        let session = || repo.agent_calls().len() == 1;
        runner_testkit::eventually("the session", std::time::Duration::from_secs(20), session);
        // More than a second passes by the terminal's own clock.
        let begun = std::time::Instant::now();
        runner_testkit::eventually("a second", std::time::Duration::from_secs(20), || {
            begun.elapsed() > std::time::Duration::from_millis(1300)
        });
        go(&repo);
        let shown = shown.join().expect("no panic").success().stdout;
        assert!(shown.contains("agent 0:00 of 1:00"), "{shown:?}");
        assert!(shown.contains("agent 0:01 of 1:00"), "{shown:?}");
    });
}

#[test]
fn a_reader_that_has_seen_enough_breaks_nothing() {
    let repo = planned(&["a", "b", "c"], WORK, &["true"]);
    let mut cmd = repo.hermetic("sh");
    cmd.args([
        "-c",
        "\"$0\" loop --json | true; \"$0\" tree | head -n 1; \"$0\" log | true",
    ]);
    cmd.arg(scenario::BIN);
    let run = repo.spawn(cmd).wait().success();
    assert!(run.stdout.contains("root"), "{}", run.describe());
    assert!(!run.stderr.contains("panicked"), "{}", run.describe());
    repo.assert_clean();
    assert_eq!(repo.tree()["passes"], true, "the loop went on to its end");
}

#[test]
fn verbose_says_more() {
    let repo = started(WORK, &["true"]);
    repo.runner(&["step", "-v"])
        .success()
        .says("iteration 1: root");
    let repo = scenario::bare();
    let run = repo.runner(&["init", "-v"]).success();
    assert!(
        run.stderr.contains("  .runner/state/tree.json"),
        "{}",
        run.describe()
    );
    repo.runner(&["status", "-v", "-q"]).code(2);
}

#[test]
fn a_step_tells_people_what_was_not_accepted() {
    let repo = started("echo x >> .runner/GOAL.md; out done x", &["true"]);
    let run = repo.runner(&["step"]).success();
    assert!(
        run.stdout
            .starts_with("✗   1  root  not accepted, attempts used: 1")
    );
    assert!(
        run.stderr.contains(".runner/GOAL.md belongs to the runner"),
        "{}",
        run.describe()
    );
    let quiet = repo.runner(&["step", "-q"]).success();
    assert_eq!(quiet.stderr, "", "{}", quiet.describe());
    repo.agent("exit 0");
    let run = repo.runner(&["step"]).code(1);
    assert!(
        run.stdout.contains("runner error, no attempt used"),
        "{}",
        run.describe()
    );
    repo.agent("echo > \"$TREE\"; out done x");
    repo.runner(&["step"])
        .success()
        .says("left an invalid tree; it will be repaired");
    repo.runner(&["step"]).success().says("repair refused");
}

#[test]
fn that_nobody_is_named_is_said_once_in_a_loop() {
    let mut repo = TestRepo::empty(scenario::BIN);
    repo.agent(WORK);
    repo.write("README.md", "# A project\n");
    repo.start_run(scenario::GOAL, &["true"]);
    repo.agent_at(1, "out retry x");
    repo.agent_at(2, "out retry x");
    let run = repo.runner(&["loop"]).success();
    let said = run.stderr.matches("committed as runner").count();
    assert_eq!(said, 1, "{}", run.describe());
}

#[test]
fn the_demo_speaks_json_only_where_it_is_asked_to() {
    let repo = scenario::bare();
    let run = repo.runner(&["demo", "--json"]).success();
    assert_eq!(run.stderr, "", "{}", run.describe());
    let lines = run.json_lines();
    let (last, steps) = lines.split_last().unwrap();
    assert!(
        steps.iter().all(|line| line["event"] == "step"),
        "{}",
        run.stdout
    );
    assert_eq!(
        (&last["event"], &last["status"]),
        (&"finished".into(), &"complete".into())
    );
    assert_eq!(last["steps"], steps.len());
    assert_eq!(last["replayed"], steps.len());
    let folder = last["folder"].as_str().unwrap();
    assert!(std::path::Path::new(folder).join(".runner").is_dir());
    std::fs::remove_dir_all(folder).unwrap();
}
