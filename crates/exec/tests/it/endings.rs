//! The ways to end: by itself, by a signal, by deadline, silence, cancel and sink.

use std::ffi::OsString;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use runner_exec::{Cancel, Ended, Flow, Report, Sink, Stream, Supervisor};

use crate::{BINARY, Case, LONG, is_alive, wait_until, with_deadline};

/// Ignores SIGTERM, says so, and never ends.
const STUBBORN: &str = "trap '' TERM; echo ready; while :; do sleep 0.05; done";

/// Notes SIGTERM in a file, and never ends.
const NOTING: &str = "trap 'echo > terminated' TERM; echo ready; while :; do sleep 0.05; done";

#[test]
fn exit_codes_are_the_programs() {
    for code in [0, 1, 7, 255] {
        let (report, _) = Case::sh(&format!("exit {code}")).run();
        assert_eq!(report.ended, Ended::Exited(code));
        assert_eq!(report.exit, Some(code));
        assert_eq!((report.killed_leftovers, report.survivors), (0, 0));
    }
}

#[test]
fn a_signal_that_is_not_ours_is_told() {
    for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11)] {
        let (report, _) = Case::sh(&format!("kill -{name} $$")).run();
        assert_eq!(report.ended, Ended::Signaled(number));
        assert_eq!(report.exit, None);
    }
}

#[test]
fn a_deadline_kills_what_ignores_the_request() {
    let case = Case::sh(STUBBORN).spec(|spec| {
        spec.deadline = Some(Instant::now() + Duration::from_secs(1));
        spec.grace = Duration::from_millis(100);
    });
    let (report, seen) = case.run();
    assert_eq!(report.ended, Ended::TimedOut);
    assert_eq!(report.exit, None);
    assert!(report.duration >= Duration::from_secs(1) && report.duration < LONG);
    assert!(!is_alive(seen.pid.unwrap()));
}

#[test]
fn a_deadline_lets_the_program_clean_up() {
    let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let (_, report, seen) = with_deadline(script, |_, seen| !seen.stdout.is_empty());
    assert_eq!(report.ended, Ended::TimedOut);
    assert_eq!(report.exit, Some(3));
    assert_eq!(seen.text(), "ready\nbye\n");
}

#[test]
fn a_stopped_program_is_ended_too() {
    let case = Case::sh("kill -STOP $$")
        .spec(|spec| spec.deadline = Some(Instant::now() + Duration::from_secs(1)));
    let (report, _) = case.run();
    assert_eq!(report.ended, Ended::TimedOut);
    assert!(report.duration < LONG, "not by SIGKILL after the grace");
}

#[test]
fn a_stopped_supervisor_is_woken() {
    let case = Case::sh("kill -STOP $PPID; exec sleep 1000")
        .spec(|spec| spec.deadline = Some(Instant::now() + Duration::from_secs(1)));
    let (report, seen) = case.run();
    assert_eq!(report.ended, Ended::TimedOut);
    assert!(report.duration < LONG);
    assert!(!is_alive(seen.pid.unwrap()));
}

#[test]
fn a_deadline_in_the_past_starts_nothing() {
    let case = Case::sh("echo > ran").spec(|spec| spec.deadline = Some(Instant::now()));
    assert_eq!(case.run().0.ended, Ended::TimedOut);
    assert!(!case.path("ran").exists());
}

#[test]
fn silence_is_ended_and_output_is_not_silence() {
    let script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.4; done; exec sleep 1000";
    let case = Case::sh(script).spec(|spec| spec.idle_timeout = Some(Duration::from_millis(2500)));
    let (report, seen) = case.run();
    assert_eq!(report.ended, Ended::Idle);
    assert_eq!(seen.text(), "1\n2\n3\n4\n5\n6\n7\n8\n");
}

#[test]
fn a_cancel_from_another_thread_ends_gracefully() {
    let case = Case::sh("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done");
    let (ready, is_ready) = mpsc::channel();
    let cancel = case.cancel.clone();
    let thread = std::thread::spawn(move || {
        is_ready.recv().unwrap();
        cancel.cancel();
    });
    let (report, _) = case.run_with(|_| {
        let _ = ready.send(());
        Flow::Go
    });
    thread.join().unwrap();
    assert_eq!(report.ended, Ended::Interrupted);
    assert_eq!(report.exit, Some(4));
}

#[test]
fn a_second_cancel_kills_at_once() {
    let case = Case::sh(NOTING);
    let (ready, is_ready) = mpsc::channel();
    let cancel = case.cancel.clone();
    let noted = case.path("terminated");
    let thread = std::thread::spawn(move || {
        is_ready.recv().unwrap();
        cancel.cancel();
        wait_until("the program got SIGTERM", || noted.exists());
        cancel.cancel();
    });
    let (report, _) = case.run_with(|_| {
        let _ = ready.send(());
        Flow::Go
    });
    thread.join().unwrap();
    assert_eq!(report.ended, Ended::Interrupted);
    assert_eq!(report.exit, None);
    assert!(report.duration < LONG, "the grace was not waited for");
}

#[test]
fn a_cancel_beforehand_starts_nothing() {
    let case = Case::sh("echo > ran");
    case.cancel.cancel();
    assert_eq!(case.run().0.ended, Ended::Interrupted);
    assert!(!case.path("ran").exists());
}

#[test]
fn the_sink_can_stop_it() {
    let case = Case::sh("echo enough; exec sleep 1000");
    let (report, _) = case.run_with(|_| Flow::Stop);
    assert_eq!(report.ended, Ended::StoppedBySink);
}

/// A supervisor that is none.
fn run_under(script: &str, case: &Case) -> Report {
    let supervisor = Supervisor {
        argv: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
    };
    let mut sink = Ticking(0);
    supervisor.run(&case.spec, &case.cancel, &mut sink).unwrap()
}

#[test]
fn a_supervisor_that_ends_without_a_word_is_lost() {
    let report = run_under("exit 0", &Case::sh("true"));
    assert_eq!(report.ended, Ended::SupervisorLost);
}

#[test]
#[ignore = "takes the 15 s that a supervisor is given to end"]
fn a_supervisor_that_does_not_answer_is_ended() {
    let case = Case::sh("true").spec(|spec| spec.grace = Duration::ZERO);
    // The tick stops it.
    let report = run_under("sleep 1000 & echo $! > pid; wait", &case);
    assert_eq!(report.ended, Ended::StoppedBySink);
    assert_eq!(report.survivors, 0);
    assert!(!is_alive(case.pid_in("pid")));
}

struct Ticking(u32);

impl Sink for Ticking {
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) -> Flow {
        Flow::Go
    }

    fn tick(&mut self) -> Flow {
        self.0 += 1;
        if self.0 < 3 { Flow::Go } else { Flow::Stop }
    }

    fn tick_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(10))
    }
}

#[test]
fn ticks_come_without_output_and_can_stop_it() {
    let case = Case::sh("exec sleep 1000");
    let supervisor = Supervisor {
        argv: vec![BINARY.into(), "__supervise".into()],
    };
    let mut sink = Ticking(0);
    let report = supervisor.run(&case.spec, &case.cancel, &mut sink).unwrap();
    assert_eq!(report.ended, Ended::StoppedBySink);
    assert!(sink.0 >= 3);
}

struct Panicking<'a>(&'a mut Option<u32>);

impl Sink for Panicking<'_> {
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) -> Flow {
        panic!("on purpose");
    }

    fn started(&mut self, pid: u32) {
        *self.0 = Some(pid);
    }
}

#[test]
fn a_panic_in_the_sink_leaves_nothing_behind() {
    let case = Case::sh("setsid sleep 1000 & echo $! > pid; echo ready; wait");
    let mut pid = None;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let supervisor = Supervisor {
            argv: vec![BINARY.into(), "__supervise".into()],
        };
        supervisor.run(
            &case.spec,
            &Cancel::new().unwrap(),
            &mut Panicking(&mut pid),
        )
    }));
    assert!(result.is_err());
    assert!(!is_alive(pid.unwrap()));
    assert!(!is_alive(case.pid_in("pid")));
}
