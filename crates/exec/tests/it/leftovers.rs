//! Whatever a program leaves behind is gone when `run` returns.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use runner_exec::Ended;

use crate::{BINARY, Case, LONG, is_alive, with_deadline};

/// Two processes that do not want to be found: one in a session of its own, one more fork below
/// another, orphaned. Both are running when the script goes on.
const HIDE: &str = "
    setsid sleep 1000 &
    echo $! > pid1
    (setsid sh -c 'sleep 1000 & echo $! > pid2.new; mv pid2.new pid2; wait' &)
    while [ ! -e pid2 ]; do sleep 0.01; done
";

fn assert_gone(case: &Case) {
    for name in ["pid1", "pid2"] {
        let pid = case.pid_in(name);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        assert!(stat.is_err(), "{name} is left: {stat:?}");
    }
}

#[test]
fn after_a_normal_end() {
    let case = Case::sh(&format!("{HIDE} exit 5"));
    let (report, _) = case.run();
    assert_eq!(report.ended, Ended::Exited(5));
    // Both sleeps and the shell between.
    assert_eq!(report.killed_leftovers, 3);
    assert_eq!(report.survivors, 0);
    assert_gone(&case);
    assert!(report.duration < LONG, "SIGTERM was enough");
}

#[test]
fn after_a_normal_end_though_they_ignore_sigterm() {
    let case = Case::sh(&format!("trap '' TERM; {HIDE} exit 0"))
        .spec(|spec| spec.grace = Duration::from_millis(100));
    let (report, _) = case.run();
    assert_eq!(report.ended, Ended::Exited(0));
    assert_gone(&case);
}

#[test]
fn after_the_deadline() {
    let script = format!("{HIDE} exec sleep 1000");
    let (case, report, _) = with_deadline(&script, |case, _| case.path("pid2").exists());
    assert_eq!(report.ended, Ended::TimedOut);
    assert_gone(&case);
}

#[test]
fn without_environment_after_a_normal_end() {
    let case = Case::sh("env -i setsid sleep 1000 & echo $! > pid; exit 0");
    case.run();
    assert!(!is_alive(case.pid_in("pid")));
}

#[test]
fn after_the_supervisor_was_killed() {
    // Not related: must survive.
    let mut bystander = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let script = format!("{HIDE} env -i sleep 1000 & echo $! > pid3; kill -KILL $PPID; sleep 1000");
    let case = Case::sh(&script);
    let (report, seen) = case.run();
    assert_eq!(report.ended, Ended::SupervisorLost);
    assert_eq!(report.exit, None);
    assert_eq!(report.survivors, 0);
    assert_gone(&case);
    assert!(!is_alive(seen.pid.unwrap()));
    assert!(!is_alive(case.pid_in("pid3")), "no mark, but its session");
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn of_a_runner_inside_the_program() {
    // All three between the innermost process and us are killed, from the inside outwards; stopped
    // first, the outer supervisor cannot tell of it.
    let inside = "setsid sleep 1000 & echo $! > pid
        s=$(cat supervisor) r=$(cat runner)
        setsid sh -c \"kill -STOP $s; kill -KILL $PPID $r $s\"";
    let script = format!(
        "echo $PPID > supervisor; echo $$ > runner; exec {BINARY} run 1000 lock sh -c '{inside}'"
    );
    let case = Case::sh(&script);
    let (report, _) = case.run();
    assert_eq!(report.ended, Ended::SupervisorLost);
    assert!(!is_alive(case.pid_in("pid")), "marked by both runners");
}

#[test]
fn after_a_careless_pkill() {
    let script = "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; kill -USR1 $PPID; exit 6";
    let (report, _) = Case::sh(script).run();
    assert_eq!(report.ended, Ended::Exited(6));
}

#[test]
fn that_are_many() {
    let script = "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; exit 0";
    let (report, _) = Case::sh(script).run();
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(report.killed_leftovers, 200);
    assert_eq!(report.survivors, 0);
}

#[test]
fn that_fork_faster_than_the_table_is_read() {
    // Each starts the next one and ends.
    let case = Case::sh("trap '' TERM; f() { f & }; f").spec(|spec| spec.grace = Duration::ZERO);
    let (report, _) = case.run();
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(report.survivors, 0);
}

#[test]
fn that_change_their_session_all_the_time() {
    let case = Case::argv(&["./comet"]).spec(|spec| spec.grace = Duration::ZERO);
    let script = "#!/bin/sh\ntrap '' TERM\nsetsid ./comet &\n";
    crate::write_script(&case.path("comet"), script, 0o755);
    let (report, _) = case.run();
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(report.survivors, 0);
}
