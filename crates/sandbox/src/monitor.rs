//! The process between the supervisor and a program under Landlock: it hands on how the program
//! ended, and is its broker where the kernel lets it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;

use runner_exec::os::seccomp;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions, WaitStatus};
use rustix::thread::UnshareFlags;

use crate::broker::{self, BrokerRules};
use crate::call_filter::{self, CallRules};
use crate::landlock::{self, LandlockPaths};
use crate::namespaces;
use crate::network::NetworkLimits;

/// What the program's side says where there is no filter of calls.
const NO_FILTER: i32 = -1;

/// Lets a second process confine itself and become the program, and watches over it. Returns only
/// if it failed, with the exit code and the words.
pub(crate) fn watch_over(
    paths: &LandlockPaths,
    network: &NetworkLimits,
    become_program: impl FnOnce() -> (u8, String),
) -> (u8, String) {
    // Else what System V and POSIX queues keep would outlive the program, for the next one to find.
    // Where that cannot be had, `doctor` says so.
    let _ = namespaces::enter(UnshareFlags::NEWIPC);
    // Connections are made here in the program's place, and so under its rules.
    let own = NetworkLimits {
        no_abstract: true,
        ..network.clone()
    };
    let begun = own.restrict().and_then(|()| {
        let pair = UnixStream::pair().map_err(|error| format!("cannot make a pipe: {error}"))?;
        let program = seccomp::fork_alone();
        Ok((
            pair,
            program.map_err(|error| format!("cannot fork: {error}"))?,
        ))
    });
    match begun {
        Err(message) => (126, message),
        Ok(((_, there), None)) => match confine(paths, network, there) {
            Ok(()) => become_program(),
            Err(message) => (126, message),
        },
        Ok(((here, there), Some(program))) => {
            drop(there);
            watch(program, here, paths)
        }
    }
}

/// The program's side: everything that it must not do any more. The filter comes last, since calls
/// that it hands on wait for the monitor.
fn confine(
    paths: &LandlockPaths,
    network: &NetworkLimits,
    mut monitor: UnixStream,
) -> Result<(), String> {
    let kill = Some(Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)
        .map_err(|error| format!("cannot tie it to its monitor: {error}"))?;
    landlock::restrict(paths, network)?;
    landlock::drop_privileges()?;
    let rules = CallRules {
        has_broker: true,
        no_tcp: network.no_tcp,
    };
    let steps = call_filter::steps(rules);
    let listener = steps.and_then(|steps| seccomp::install_filter(&steps).ok());
    let number = listener.as_ref().map_or(NO_FILTER, AsRawFd::as_raw_fd);
    let mut taken = [0];
    monitor
        .write_all(&number.to_ne_bytes())
        .and_then(|()| monitor.read_exact(&mut taken))
        .map_err(|error| format!("the monitor is gone: {error}"))
}

/// The monitor's side. It does not return where the program has begun.
fn watch(program: Pid, mut from_program: UnixStream, paths: &LandlockPaths) -> (u8, String) {
    let _ = landlock::drop_privileges();
    // Orphans stay below, so that the kernel lets their calls be looked at.
    let _ = runner_exec::become_subreaper();
    let listener = take_listener(program, &mut from_program);
    let _ = from_program.write_all(&[0]);
    drop(from_program);
    leave_streams();
    if let Some(listener) = listener {
        let rules = BrokerRules {
            writable: paths.writable.clone(),
            shown: paths.shown.clone(),
            hidden: paths.hidden.clone(),
        };
        // Without it calls that are handed on fail, which is safe.
        let _ = std::thread::Builder::new().spawn(move || broker::answer_calls(listener, rules));
    }
    end_as(wait_for(program))
}

/// The listener of the filter, copied from the program before it begins.
fn take_listener(program: Pid, from_program: &mut UnixStream) -> Option<OwnedFd> {
    let mut number = [0; 4];
    from_program.read_exact(&mut number).ok()?;
    let number = i32::from_ne_bytes(number);
    if number == NO_FILTER {
        return None;
    }
    let handle = rustix::process::pidfd_open(program, PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_getfd(handle, number, PidfdGetfdFlags::empty()).ok()
}

/// The program alone holds its streams: else nobody would see that it has closed them.
fn leave_streams() {
    let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(&nothing);
    let _ = rustix::stdio::dup2_stdout(&nothing);
    let _ = rustix::stdio::dup2_stderr(&nothing);
}

/// Reaps what ends below until it is the program; `None`: it cannot be told how it ended.
fn wait_for(program: Pid) -> Option<WaitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => return Some(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Ends this process as the program has ended.
fn end_as(status: Option<WaitStatus>) -> ! {
    if let Some(raw) = status.and_then(WaitStatus::terminating_signal) {
        runner_exec::end_by_signal(raw);
        process::exit(128 + raw);
    }
    process::exit(status.and_then(WaitStatus::exit_status).unwrap_or(126))
}

/// Whether the kernel hands calls on, found out by having it do so for a thread that then ends.
pub(crate) fn probe() -> bool {
    let tried = std::thread::Builder::new().spawn(|| {
        let rules = CallRules {
            has_broker: true,
            no_tcp: true,
        };
        rustix::thread::set_no_new_privs(true).is_ok()
            && call_filter::steps(rules)
                .is_some_and(|steps| seccomp::install_filter(&steps).is_ok())
    });
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}
