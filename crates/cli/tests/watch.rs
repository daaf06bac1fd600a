//! `runner watch` in a real terminal, and where there is none.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod running_support;
mod scenario;

use runner_testkit::{TestPty, TestRepo};
use running_support::{HOLD, LONG, go, wait_for_session};
use scenario::{bare, planned, started};

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
const REVERSED: &str = "\u{1b}[7m";

fn watch(repo: &TestRepo, columns: u16, rows: u16) -> TestPty {
    let mut cmd = repo.runner_cmd(&["watch"]);
    cmd.env("TERM", "xterm-256color");
    TestPty::spawn(&cmd, columns, rows)
}

#[test]
fn keys_resizing_and_the_terminal_restored() {
    let leaves: Vec<String> = (1..=30).map(|n| format!("leaf{n:02}")).collect();
    let names: Vec<&str> = leaves.iter().map(String::as_str).collect();
    let repo = planned(&names, HOLD, &["true"]);
    let mut pty = watch(&repo, 80, 24);
    let before = pty.modes();
    pty.wait_for("leaf05");
    assert!(pty.take_seen().contains(ENTER));
    assert_ne!(pty.modes(), before, "raw while it is drawn");
    pty.press("j");
    pty.wait_for(REVERSED);
    pty.take_seen();
    pty.press("G");
    pty.wait_for("leaf30");
    pty.take_seen();
    pty.press("\u{1b}[A");
    pty.wait_for(REVERSED);
    pty.take_seen();
    pty.press("g");
    // Only what differs is drawn: the first line is where it goes.
    pty.wait_for("root");
    pty.take_seen();
    // A smaller window is drawn anew, to its size.
    pty.resize(40, 12);
    pty.wait_for("of 31");
    pty.resize(120, 40);
    pty.wait_for("tree 1-");
    pty.press("q");
    let (code, rest) = pty.wait();
    assert_eq!(code, Some(0), "{rest:?}");
    assert!(
        rest.contains(LEAVE) && rest.contains(SHOW_CURSOR),
        "{rest:?}"
    );
    assert_eq!(pty.modes(), before);
}

#[test]
fn a_running_loop_is_followed_to_its_end() {
    let say = "echo '{\"event\":\"command\",\"command\":\"make \\u001b[31mtest\",\"exit_code\":null,\"running\":true}'";
    let repo = started(&format!("{say}\n{HOLD}"), &["true"]);
    let running = repo.spawn_runner(&["loop"]);
    wait_for_session(&repo, 1);
    let mut pty = watch(&repo, 100, 30);
    pty.wait_for("$ make  [31mtest");
    // Blanks are not drawn where the screen is empty.
    pty.wait_for("works");
    pty.take_seen();
    go(&repo);
    running.wait_within(LONG).success();
    pty.wait_for("complete");
    pty.wait_for("guard pass");
    // Ctrl-C is how to leave, too.
    pty.press("\u{3}");
    let (code, _) = pty.wait();
    assert_eq!(code, Some(130));
}

#[test]
fn a_signal_restores_the_terminal() {
    let repo = planned(&["a"], HOLD, &["true"]);
    for signal in ["TERM", "HUP", "INT"] {
        let mut pty = watch(&repo, 80, 24);
        let before = pty.modes();
        pty.wait_for("Leaf");
        pty.take_seen();
        pty.signal(signal);
        let (code, rest) = pty.wait();
        assert_eq!(code, Some(130), "{signal}");
        assert!(
            rest.contains(LEAVE) && rest.contains(SHOW_CURSOR),
            "{rest:?}"
        );
        assert_eq!(pty.modes(), before, "{signal}");
    }
}

#[test]
fn without_a_terminal_it_is_the_status_once() {
    let repo = planned(&["a"], HOLD, &["true"]);
    let watched = repo.runner(&["watch"]).success();
    assert_eq!(watched.stdout, repo.runner(&["status"]).success().stdout);
    assert!(!watched.stdout.contains('\u{1b}'));
    let json = repo.runner(&["watch", "--json"]).success().json();
    assert_eq!(json["run_id"], "demo");
    // What can be said in words does not take the screen.
    let nothing = bare();
    let mut cmd = nothing.runner_cmd(&["watch"]);
    cmd.env("TERM", "xterm");
    let mut pty = TestPty::spawn(&cmd, 80, 24);
    let (code, said) = pty.wait();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("runner init") && !said.contains(ENTER),
        "{said:?}"
    );
}
