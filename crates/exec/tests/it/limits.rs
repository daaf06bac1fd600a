//! Output: complete, in order, whatever its bytes, bounded in memory, and never waited for in vain.
//! And the lock that is held meanwhile.

use std::fs::{File, OpenOptions};
use std::process::Command;
use std::time::Duration;

use runner_exec::{Cancel, Ended, Flow, wait_until_unlocked};

use crate::{BINARY, Case, LONG};

#[test]
fn streams_are_apart() {
    let (_, seen) = Case::sh("echo out; echo err >&2").run();
    assert_eq!(
        (&seen.stdout[..], &seen.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
}

#[test]
fn merged_streams_keep_their_order() {
    let script = "for i in 1 2 3 4; do echo o$i; echo e$i >&2; done";
    let case = Case::sh(script).spec(|spec| spec.merge_stderr = true);
    let (_, seen) = case.run();
    assert_eq!(seen.text(), "o1\ne1\no2\ne2\no3\ne3\no4\ne4\n");
    assert!(seen.stderr.is_empty());
}

#[test]
fn bytes_are_not_touched() {
    let (_, seen) = Case::sh(r"printf '\377\376\000\303x'").run();
    assert_eq!(seen.stdout, b"\xff\xfe\0\xc3x");
}

#[test]
fn the_last_words_of_a_fast_end_arrive() {
    let case = Case::sh("head -c 1000000 /dev/zero; echo end >&2");
    for _ in 0..5 {
        let (_, seen) = case.run();
        assert_eq!(
            (seen.stdout.len(), &seen.stderr[..]),
            (1_000_000, &b"end\n"[..])
        );
    }
}

#[test]
fn a_flood_on_both_streams_takes_little_memory() {
    let flood = "head -c 104857600 /dev/zero & head -c 104857600 /dev/zero >&2; wait";
    let output = Command::new(BINARY)
        .args(["flood", "1000000", "sh", "-c", flood])
        .output()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let (facts, grown) = line.trim().split_once(" grown_kib ").unwrap();
    let marker = "\n[... 208715200 bytes dropped ...]\n".len();
    let expected = format!(
        "Exited(0) head 500000 tail {} dropped 208715200",
        500_000 + marker
    );
    assert_eq!(facts, expected);
    let grown: u64 = grown.parse().unwrap();
    assert!(grown < 8 * 1024, "{grown} KiB for a cap of 1 MB");
}

#[test]
fn a_stranger_that_holds_the_pipe_is_not_waited_for() {
    let case = Case::sh("echo ready; while [ ! -e go ]; do sleep 0.01; done; echo last");
    let mut held: Option<File> = None;
    let (report, seen) = case.run_with(|seen| {
        if held.is_none() {
            let pipe = format!("/proc/{}/fd/1", seen.pid.unwrap());
            held = Some(OpenOptions::new().write(true).open(pipe).unwrap());
            File::create(case.path("go")).unwrap();
        }
        Flow::Go
    });
    assert!(held.is_some());
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(seen.text(), "ready\nlast\n");
    assert!(report.duration < LONG);
}

#[test]
fn the_lock_is_held_while_it_runs() {
    let case = Case::sh("echo ready; while [ ! -e go ]; do sleep 0.01; done");
    let lock = case.path("lock");
    let case = case.spec(|spec| spec.hold_lock = Some(lock.clone()));
    let other = Cancel::new().unwrap();
    let is_free = || wait_until_unlocked(&lock, &other, Duration::ZERO).unwrap();
    assert!(is_free(), "there is no such file yet");
    let mut free_inside = None;
    let (report, _) = case.run_with(|_| {
        free_inside = Some(is_free());
        File::create(case.path("go")).unwrap();
        Flow::Go
    });
    assert_eq!(report.ended, Ended::Exited(0));
    assert_eq!(free_inside, Some(false));
    assert!(is_free());
}

#[test]
fn a_start_waits_for_the_lock_and_can_be_cancelled() {
    let case = Case::sh("echo > ran");
    let lock = case.path("lock");
    let holder = File::create(&lock).unwrap();
    holder.lock().unwrap();
    let case = case.spec(|spec| spec.hold_lock = Some(lock));
    let cancel = case.cancel.clone();
    let thread = std::thread::spawn(move || cancel.cancel());
    let (report, _) = case.run();
    thread.join().unwrap();
    assert_eq!(report.ended, Ended::Interrupted);
    assert!(!case.path("ran").exists());
    drop(holder);
}
