//! Processes as `/proc` shows them: who is still alive, and signals to them.

use std::fs;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGHUP;

use crate::run::command;

/// A living process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProcess {
    /// Its process id.
    pub pid: u32,
    /// Its arguments, joined with spaces.
    pub cmdline: String,
}

/// The living processes, other than this one, with `marker` in their
/// environment or arguments.
///
/// Zombies do not count: they have neither.
pub fn processes_with_env(marker: &str) -> Vec<TestProcess> {
    let own_pid = std::process::id();
    let mut found: Vec<TestProcess> = fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own_pid)
        .filter_map(|pid| matching_process(pid, marker.as_bytes()))
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// Fails if a process with `marker` lives at this moment.
#[track_caller]
pub fn assert_no_process(marker: &str) {
    let found = processes_with_env(marker);
    assert!(found.is_empty(), "still alive: {found:#?}");
}

/// Fails unless every process with `marker` has ended within `limit`.
///
/// For processes that the kernel ends after their parent's death, which takes a
/// moment; what the runner itself ends is checked with [`assert_no_process`].
#[track_caller]
pub fn assert_processes_end(marker: &str, limit: Duration) {
    eventually("the processes to end", limit, || {
        processes_with_env(marker).is_empty()
    });
}

/// Waits until `holds`, and fails after `limit`, naming `what` was awaited.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets programs that are started from now on answer SIGHUP as usual, also where the tests run under
/// `nohup`: what is ignored here is ignored there, and what has a handler is not.
pub(crate) fn end_ignored_hangups() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        signal_hook::flag::register(SIGHUP, Arc::default()).expect("SIGHUP can have a handler");
    });
}

/// Sends the signal `name` (such as `INT`) to a process, or with a negative
/// number to a group. Whether it was delivered.
pub fn signal(name: &str, pid: i64) -> bool {
    // The shell's own kill, because a plain call would need unsafe code or one
    // more dependency.
    command("sh")
        .args(["-c", "kill -s \"$1\" -- \"$2\" 2>/dev/null", "sh", name])
        .arg(pid.to_string())
        .status()
        .expect("sh starts")
        .success()
}

/// The process, if it is alive and carries the marker. One that ends while it
/// is read, or belongs to someone else, is none of ours.
fn matching_process(pid: u32, marker: &[u8]) -> Option<TestProcess> {
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if !contains(&cmdline, marker) && !contains(&environ, marker) {
        return None;
    }
    let args: Vec<_> = cmdline
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    Some(TestProcess {
        pid,
        cmdline: args.join(" ").trim_end().to_owned(),
    })
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty()
        && haystack
            .windows(needle.len())
            .any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_environment_and_argument_until_the_end() {
        let marker = format!("testkit-marker-{}", std::process::id());
        let mut by_env = command("sleep")
            .arg("60")
            .env("TESTKIT_MARK", &marker)
            .spawn()
            .unwrap();
        // `:` after the sleep keeps the shell, with its argument, alive.
        let mut by_arg = command("sh")
            .args(["-c", "sleep 60; :", &marker])
            .spawn()
            .unwrap();
        eventually("both to start", Duration::from_secs(10), || {
            processes_with_env(&marker).len() == 2
        });
        let found = processes_with_env(&marker);
        assert!(found.iter().any(|process| process.cmdline == "sleep 60"));
        assert!(found.iter().any(|process| process.pid == by_arg.id()));

        assert!(signal("KILL", i64::from(by_env.id())));
        let child_of_sh = format!("/proc/{0}/task/{0}/children", by_arg.id());
        for child in fs::read_to_string(child_of_sh).unwrap().split_whitespace() {
            assert!(signal("KILL", child.parse().unwrap()));
        }
        by_env.wait().unwrap();
        by_arg.wait().unwrap();
        assert_processes_end(&marker, Duration::from_secs(10));
        assert_no_process(&marker);
        assert!(!signal("KILL", i64::from(by_env.id())));
    }

    #[test]
    #[should_panic(expected = "in vain for pigs to fly")]
    fn eventually_names_what_did_not_happen() {
        eventually("pigs to fly", Duration::from_millis(20), || false);
    }
}
