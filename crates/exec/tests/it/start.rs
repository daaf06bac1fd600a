//! How the program starts: environment, folder, input, signals, and what is said when it cannot.

use std::fs;
use std::path::Path;
use std::process::Command;

use runner_exec::{Ended, SESSION_VARIABLE, SpawnFailure};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Case, is_alive, supervisor, wait_until};

fn failure(case: &Case) -> SpawnFailure {
    match case.run().0.ended {
        Ended::NotStarted(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn check(case: &Case, not_found: bool, message: &str) {
    let expected = SpawnFailure {
        not_found,
        message: message.to_owned(),
    };
    assert_eq!(failure(case), expected);
}

#[test]
fn a_missing_program_is_not_found() {
    let message = "cannot start `no-such-program`: no such file or directory";
    check(&Case::argv(&["no-such-program"]), true, message);
    let message = "cannot start `./no-such`: no such file or directory";
    check(&Case::argv(&["./no-such", "x"]), true, message);
}

#[test]
fn a_file_that_is_no_program_is_refused() {
    let case = Case::argv(&["./plain"]);
    crate::write_script(&case.path("plain"), "echo\n", 0o644);
    check(&case, false, "cannot start `./plain`: permission denied");
}

#[test]
fn a_missing_interpreter_is_not_a_missing_program() {
    let case = Case::argv(&["./script"]);
    crate::write_script(&case.path("script"), "#!/no/such/interpreter\n", 0o755);
    let message = "cannot start `./script`: its interpreter was not found";
    check(&case, false, message);
}

#[test]
fn what_is_known_not_to_start_is_not_tried() {
    let known = SpawnFailure {
        not_found: true,
        message: "cannot start `x`: gone".to_owned(),
    };
    let case = Case::sh("touch tried").spec(|spec| spec.cannot_start = Some(known.clone()));
    assert_eq!(failure(&case), known);
    assert!(!case.path("tried").exists());
}

#[test]
fn the_limit_of_tasks_is_the_programs_alone() {
    let limits = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let line = text.lines().find(|line| line.starts_with("Max processes"));
        let words = line.unwrap().split_whitespace().skip(2);
        words.take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let case = Case::argv(&["cat", "/proc/self/limits"]);
    let (_, before) = case.run();
    let case = case.spec(|spec| spec.task_limit = Some(1234));
    let (_, seen) = case.run();
    assert_eq!(limits(&seen.stdout), ["1234", "1234"]);
    let own = fs::read("/proc/self/limits").unwrap();
    assert_eq!(limits(&own), limits(&before.stdout));
}

#[test]
fn a_missing_folder_is_named() {
    let case = Case::argv(&["true"]).spec(|spec| spec.cwd = "/no/such".into());
    let message = "cannot start `true` in `/no/such`: no such file or directory";
    check(&case, false, message);
}

#[test]
fn a_missing_input_is_named() {
    let case = Case::argv(&["cat"]).spec(|spec| spec.stdin = Some("/no/such".into()));
    let message = "cannot open `/no/such` as standard input: no such file or directory";
    check(&case, false, message);
}

#[test]
fn impossible_arguments_are_refused() {
    check(
        &Case::argv(&[]),
        false,
        "cannot start a program without a name",
    );
    let huge = "x".repeat(4 << 20);
    let message = "cannot start `true`: argument list too long";
    check(&Case::argv(&["true", &huge]), false, message);
    assert!(!failure(&Case::argv(&["true", "a\0b"])).not_found);
}

#[test]
fn the_environment_and_folder_are_exactly_the_given_ones() {
    let case = Case::argv(&["sh", "-c", "env -u _ -u PWD -u SHLVL | sort; pwd -P"])
        .spec(|spec| spec.env.push(("GREETING".into(), "two words".into())));
    let (report, seen) = case.run();
    assert_eq!(report.ended, Ended::Exited(0));
    let path = std::env::var("PATH").unwrap();
    let lines: Vec<&str> = seen.text().lines().collect();
    let folder = case.dir.path().canonicalize().unwrap();
    let [greeting, path_line, session, pwd] = lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(greeting, "GREETING=two words");
    assert_eq!(path_line, format!("PATH={path}"));
    assert!(session.starts_with(&format!("{SESSION_VARIABLE}=")));
    assert_eq!(Path::new(pwd), folder);
}

#[test]
fn the_program_is_found_in_its_own_path() {
    let case = Case::argv(&["hello"]);
    crate::write_script(&case.path("hello"), "#!/bin/sh\necho hello\n", 0o755);
    let dir = case.dir.path().as_os_str().to_owned();
    let case = case.spec(|spec| spec.env = vec![("PATH".into(), dir)]);
    assert_eq!(case.run().1.text(), "hello\n");
}

#[test]
fn signals_are_as_a_program_expects_them() {
    let (_, seen) = Case::argv(&["grep", "^Sig", "/proc/self/status"]).run();
    let mask = |name: &str| {
        let line = seen.text().lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    let (hup, int, pipe, term, chld) = (1, 2, 13, 15, 17);
    for signal in [hup, int, pipe, term, chld] {
        assert_eq!(mask("SigIgn:") >> (signal - 1) & 1, 0, "{signal} ignored");
    }
    assert_eq!(mask("SigBlk:"), 0);
}

#[test]
fn a_broken_pipe_ends_a_writer() {
    let script = "{ { yes; echo $? > status; } | head -n 1; } 2>/dev/null; cat status";
    let (_, seen) = Case::sh(script).run();
    assert_eq!(seen.text(), "y\n141\n");
}

#[test]
fn the_program_leads_its_own_session() {
    let (_, seen) = Case::argv(&["cat", "/proc/self/stat"]).run();
    let pid = seen.pid.unwrap().to_string();
    let fields: Vec<&str> = seen.text().split(' ').collect();
    let (group, session, terminal) = (fields[4], fields[5], fields[6]);
    assert_eq!(
        [group, session, terminal],
        [pid.as_str(), pid.as_str(), "0"]
    );
}

#[test]
fn no_file_of_ours_is_left_open_in_it() {
    let (_, seen) = Case::argv(&["ls", "/proc/self/fd"]).run();
    // Not simply 0 to 3: whoever runs these tests may have left something open in all of us.
    let plain = Command::new("ls").arg("/proc/self/fd").output().unwrap();
    assert_eq!(seen.stdout, plain.stdout);
}

#[test]
fn input_is_the_file_or_nothing() {
    assert_eq!(Case::argv(&["wc", "-c"]).run().1.text().trim(), "0");
    let case = Case::argv(&["cat"]);
    let input = case.path("input");
    fs::write(&input, "prompt\n").unwrap();
    let case = case.spec(|spec| spec.stdin = Some(input));
    assert_eq!(case.run().1.text(), "prompt\n");
}

#[test]
fn input_that_is_never_read_blocks_nobody() {
    let case = Case::sh("echo done");
    let input = case.path("input");
    fs::write(&input, vec![b'x'; 10 << 20]).unwrap();
    let case = case.spec(|spec| spec.stdin = Some(input));
    let (report, seen) = case.run();
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(seen.text(), "done\n");
}

#[test]
fn a_supervisor_that_waits_runs_it_and_is_gone_afterwards() {
    let case =
        Case::sh("echo out; echo err >&2; echo \"$GIVEN\"; pwd; cut -d' ' -f4 /proc/$$/stat");
    let case = case.spec(|spec| spec.env.push(("GIVEN".into(), "a=b\nc".into())));
    let ready = supervisor().prepare().unwrap();
    let pid = ready.id().unwrap();
    let (report, seen) = case.run_in(ready);
    assert_eq!(report.ended, Ended::Exited(0));
    let cwd = case.dir.path().canonicalize().unwrap();
    let expected = format!("out\na=b\nc\n{}\n{pid}\n", cwd.display());
    assert_eq!(seen.text(), expected);
    assert_eq!(seen.stderr, b"err\n");
    assert!(!is_alive(pid));
}

#[test]
fn one_that_waits_for_nothing_ends_when_it_is_dropped() {
    let ready = supervisor().prepare().unwrap();
    let pid = ready.id().unwrap();
    assert!(is_alive(pid));
    drop(ready);
    assert!(!is_alive(pid));
}

#[test]
fn one_that_was_killed_while_it_waited_is_replaced() {
    let ready = supervisor().prepare().unwrap();
    let pid = Pid::from_raw(i32::try_from(ready.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait_until("it is killed", || is_zombie(pid));
    let (report, seen) = Case::sh("echo ran").run_in(ready);
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(seen.text(), "ran\n");
}

fn is_zombie(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_pid());
    fs::read_to_string(path).is_ok_and(|stat| stat.contains(") Z "))
}
