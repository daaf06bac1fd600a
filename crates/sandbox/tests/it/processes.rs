//! Starting, ending, signals and what is left behind.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Case, Ran, each, wait_for, with};

#[test]
fn exit_codes_pass() {
    each(|case| {
        for code in [0, 1, 2, 7, 126, 127, 255] {
            let ran = case.sh(&format!("exit {code}"));
            assert_eq!(ran.code, Some(code), "{case}: {ran:?}");
            assert_eq!(
                case.chosen().setup_failure(code, ran.stderr.as_bytes()),
                None
            );
        }
    });
}

/// Landlock's monitor ends as the program did; bubblewrap's tells it as a shell would.
#[test]
fn deaths_by_signal_pass() {
    each(|case| {
        for signal in [1, 6, 9, 13, 15] {
            let ran = case.sh(&format!("kill -{signal} $$"));
            let expected = if case.is_bubblewrap() {
                (Some(128 + signal), None)
            } else {
                (None, Some(signal))
            };
            assert_eq!((ran.code, ran.signal), expected, "{case}: {ran:?}");
        }
    });
}

#[test]
fn the_three_streams_pass() {
    each(|case| {
        let mut child = case
            .contained(&["sh", "-c", "cat; echo err >&2"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"from stdin")
            .unwrap();
        let ran = Ran::of(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{case}: {ran:?}");
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str()),
            ("from stdin", "err\n")
        );
    });
}

/// No signal ignored or blocked that was not before: std ignores SIGPIPE in its own programs.
#[test]
fn signals_are_as_any_program_has_them() {
    const SIGPIPE: u64 = 1 << 12;
    let bits_of = |line: &str| {
        let digits = line.split_whitespace().last().unwrap();
        u64::from_str_radix(digits, 16).unwrap()
    };
    // Whoever started the tests may have ignored some: a shell does so with SIGINT and SIGQUIT for
    // what it runs in the background.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("SigIgn"));
    let inherited = bits_of(own.unwrap()) & !SIGPIPE;
    each(|case| {
        let inside = case.works("grep -E 'SigIgn|SigBlk' /proc/self/status");
        for line in inside.lines() {
            // 32 and 33 are the C library's own, which it may hand on ignored.
            let bits = bits_of(line) & !(3 << 31) & !inherited;
            assert_eq!(bits, 0, "{case}: {inside}");
        }
    });
}

#[test]
fn a_program_that_cannot_be_started_shows() {
    each(|case| {
        case.write("project/data", "");
        case.write("project/script", "#!/no/such/interpreter\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(case.path("project/script"), mode).unwrap();
        for program in ["no-such-program", "./absent", "./data", "./script"] {
            let ran = case.run(&[program]);
            assert!(matches!(ran.code, Some(1 | 126 | 127)), "{case}: {ran:?}");
            let words = case
                .chosen()
                .setup_failure(ran.code.unwrap(), ran.stderr.as_bytes());
            assert!(
                words.is_some_and(|words| words.contains(program)),
                "{case}: {ran:?}"
            );
        }
    });
}

/// The children of a process, theirs, and so on, by their numbers out here.
fn descendants(root: u32) -> Vec<u32> {
    let mut parents: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let rest = &stat[stat.rfind(')').unwrap() + 1..];
        let parent = rest.split_whitespace().nth(1).unwrap().parse().unwrap();
        parents.entry(parent).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(parents.remove(pid).unwrap_or_default());
        next += 1;
    }
    found.remove(0);
    found
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // One that has ended by itself meanwhile is fine too.
    let _ = kill_process(pid, signal);
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let rest = &stat[stat.rfind(')').unwrap() + 1..];
        !rest.trim_start().starts_with(['Z', 'X'])
    })
}

/// Starts the script and waits for the word `ready`.
fn start(case: &Case, script: &str) -> Child {
    let mut child = case
        .contained(&["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{case}");
    child
}

/// One in a session of its own, one that ignores what it can.
const LEAVES_OTHERS: &str = "setsid sleep 1000 & (trap '' TERM HUP INT; sleep 1000 & wait) & ";

#[test]
fn nothing_outlives_a_killed_bubblewrap() {
    with("bubblewrap", |case| {
        let script = format!("{LEAVES_OTHERS} echo ready; wait");
        let mut child = start(&case, &script);
        wait_for("all to run", || descendants(child.id()).len() >= 5);
        let inside = descendants(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("the end of all", || {
            !inside.iter().any(|pid| is_alive(*pid))
        });
    });
}

#[test]
fn nothing_outlives_a_program_that_ended() {
    with("bubblewrap", |case| {
        let script = format!("{LEAVES_OTHERS} echo ready; read line; exit 7");
        let mut child = case
            .contained(&["sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("all to run", || descendants(child.id()).len() >= 5);
        let inside = descendants(child.id());
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(7), "{case}");
        wait_for("the end of all", || {
            !inside.iter().any(|pid| is_alive(*pid))
        });
    });
}

/// The supervisor is killed: bubblewrap and all inside it go too.
#[test]
fn bubblewrap_dies_with_its_parent() {
    with("bubblewrap", |case| {
        let inner = case.contained(&["sh", "-c", "setsid sleep 1000 & sleep 1000"]);
        let mut argv = vec![inner.get_program().to_owned()];
        argv.extend(inner.get_args().map(ToOwned::to_owned));
        let mut parent = case.plain(&["sh", "-c", "\"$@\" & wait", "sh"]);
        let mut parent = parent.args(argv).spawn().unwrap();
        wait_for("all to run", || descendants(parent.id()).len() >= 4);
        let inside = descendants(parent.id());
        // The monitor lets its child run before it binds its own life to that of its parent;
        // the signals that it watches come after that.
        wait_for("the monitor to watch", || watches_signals(inside[0]));
        parent.kill().unwrap();
        parent.wait().unwrap();
        wait_for("the end of all", || {
            !inside.iter().any(|pid| is_alive(*pid))
        });
    });
}

/// Whether a process waits for signals by a descriptor, as far as that can be seen.
fn watches_signals(pid: u32) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return true;
    };
    descriptors
        .flatten()
        .filter_map(|one| std::fs::read_link(one.path()).ok())
        .any(|to| to.to_string_lossy().contains("signalfd"))
}

const TIDIES_UP: &str = "trap 'sleep 0.3; echo tidied > log; exit 7' TERM; echo ready; \
                         while :; do sleep 0.05; done";

/// SIGTERM to all but the monitor: the program has its time, and its exit code arrives.
#[test]
fn a_program_that_is_asked_to_end_can_tidy_up() {
    each(|case| {
        let mut child = start(&case, TIDIES_UP);
        let mut asked = descendants(child.id());
        if !case.chosen().has_monitor() {
            asked.push(child.id());
        }
        for pid in asked {
            send(pid, Signal::TERM);
        }
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(7), "{case}: {status}");
        assert_eq!(case.read("project/log"), "tidied\n", "{case}");
    });
}

/// Why the monitor must be left out: it dies of SIGTERM, and the namespace with it.
#[test]
fn a_monitor_that_is_asked_to_end_takes_all_along() {
    with("bubblewrap", |case| {
        let mut child = start(&case, TIDIES_UP);
        let inside = descendants(child.id());
        for pid in inside.iter().copied().chain([child.id()]) {
            send(pid, Signal::TERM);
        }
        assert_eq!(child.wait().unwrap().signal(), Some(15), "{case}");
        wait_for("the end of all", || {
            !inside.iter().any(|pid| is_alive(*pid))
        });
        assert!(!case.path("project/log").exists(), "{case}");
    });
}

/// A careless `pkill` hits nothing outside.
#[test]
fn signals_do_not_leave() {
    each(|case| {
        if !case.is_bubblewrap() && crate::detect().landlock.is_ok_and(|abi| abi < 6) {
            return;
        }
        let mut victim = case.plain(&["sleep", "1000"]).spawn().unwrap();
        let ran = case.sh(&format!("kill -9 {}", victim.id()));
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
        assert!(victim.try_wait().unwrap().is_none(), "{case}");
        case.works("sleep 100 & kill -9 $!");
        victim.kill().unwrap();
        victim.wait().unwrap();
    });
}

/// Processes inside are numbered on their own, and the dead are taken away.
#[test]
fn the_pid_namespace_is_tended() {
    with("bubblewrap", |case| {
        case.works("test $$ -lt 10 && kill -0 1");
        case.works(
            "for i in 1 2 3; do (sleep 0.01 &) ; done; sleep 0.2; ! ps -e -o stat= | grep -q Z",
        );
    });
}
