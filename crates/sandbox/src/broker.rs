//! The process above a program under Landlock that makes some system calls in the program's place:
//! those that change modes, times, owners and attributes, and connections.
//!
//! It opens what a call names by itself and decides about what it has open, so that nothing can be put
//! in its place in between.

mod call;
mod caller;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runner_exec::os::seccomp::{self, WaitingCall};
use rustix::fs::{AtFlags, CWD, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::process::Gid;

use call::{AttributeChange, BrokeredCall, CallTarget};
use caller::{CallingThread, OpenedTarget};

/// How many connections may be under way at once.
const CONNECTIONS: usize = 256;

/// The longest address that there is, and a bit.
const ADDRESS_LIMIT: usize = 128;

/// What a program may do through its broker. All paths are real.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerRules {
    /// Below these it may change modes, times, owners and attributes.
    pub(crate) writable: Vec<PathBuf>,
    /// Below these and below `writable` it may connect to sockets, and nowhere else: whoever listens
    /// elsewhere does things that the program may not do.
    pub(crate) shown: Vec<PathBuf>,
    /// Places in these that are closed all the same.
    pub(crate) hidden: Vec<PathBuf>,
}

impl BrokerRules {
    fn may_change(&self, path: &Path) -> bool {
        // What is in memory alone has no path, and terminals are the program's own.
        let own = ["/dev/pts", "/memfd:"];
        !path.is_absolute()
            || own.iter().any(|it| path.to_string_lossy().starts_with(it))
            || self.writable.iter().any(|root| path.starts_with(root))
    }

    fn may_connect(&self, path: &Path) -> bool {
        // Of what lies around it the nearest counts: a folder that may be written opens no place in
        // it that is hidden.
        let nearest = |roots: &[PathBuf]| {
            let around = roots.iter().filter(|root| path.starts_with(root));
            around.map(|root| root.components().count()).max()
        };
        let open = nearest(&self.writable).max(nearest(&self.shown));
        open.is_some_and(|open| nearest(&self.hidden).is_none_or(|hidden| open >= hidden))
    }
}

/// Answers calls until there are none any more; the process ends otherwise.
pub(crate) fn answer_calls(listener: OwnedFd, rules: BrokerRules) -> io::Error {
    let shared = Arc::new(Broker {
        listener,
        rules,
        connections: AtomicUsize::new(0),
    });
    loop {
        match seccomp::next_call(shared.listener.as_fd()) {
            Ok(Some(waiting)) => serve(&shared, &waiting),
            Ok(None) => {}
            Err(error) => return error,
        }
    }
}

struct Broker {
    listener: OwnedFd,
    rules: BrokerRules,
    connections: AtomicUsize,
}

/// Answers a call: at once, or in a thread of its own where it may take its time or is to be made
/// with the rights of another user.
fn serve(broker: &Arc<Broker>, waiting: &WaitingCall) {
    let refuse = |errno: Errno| {
        let result = Err(errno.raw_os_error());
        seccomp::answer_call(broker.listener.as_fd(), waiting.id, result);
    };
    let Some(call) = BrokeredCall::of(waiting) else {
        return refuse(Errno::NOSYS);
    };
    let caller = match CallingThread::find(waiting, broker.listener.as_fd()) {
        Ok(caller) => caller,
        Err(errno) => return refuse(errno),
    };
    let connects = matches!(call, BrokeredCall::Connect { .. });
    if !connects && caller.is_of_this_user() {
        return broker.answer(waiting.id, &call, &caller);
    }
    if broker.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
        broker.connections.fetch_sub(1, Ordering::Relaxed);
        return refuse(Errno::AGAIN);
    }
    let id = waiting.id;
    let in_thread = Arc::clone(broker);
    let spawned = std::thread::Builder::new().spawn(move || {
        match caller.become_its_user() {
            Ok(()) => in_thread.answer(id, &call, &caller),
            Err(errno) => {
                let result = Err(errno.raw_os_error());
                seccomp::answer_call(in_thread.listener.as_fd(), id, result);
            }
        }
        in_thread.connections.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        broker.connections.fetch_sub(1, Ordering::Relaxed);
        refuse(Errno::AGAIN);
    }
}

impl Broker {
    fn answer(&self, id: u64, call: &BrokeredCall, caller: &CallingThread) {
        let made = match call {
            BrokeredCall::Change { target, change } => self.change(caller, target, change),
            BrokeredCall::Connect {
                socket,
                address,
                length,
            } => self.connect(caller, *socket, *address, *length),
        };
        let result = made.map_err(Errno::raw_os_error);
        seccomp::answer_call(self.listener.as_fd(), id, result);
    }

    fn change(
        &self,
        caller: &CallingThread,
        target: &CallTarget,
        change: &AttributeChange,
    ) -> Result<(), Errno> {
        let opened = caller.open(target)?;
        if !self.rules.may_change(&opened.path) {
            return Err(Errno::PERM);
        }
        make_change(caller, &opened, change)
    }

    fn connect(
        &self,
        caller: &CallingThread,
        socket: i32,
        address: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let length = usize::try_from(length)
            .ok()
            .filter(|it| *it <= ADDRESS_LIMIT);
        let address = caller.bytes(address, length.ok_or(Errno::INVAL)?)?;
        let socket = caller.descriptor(socket)?;
        let connected = match path_of(&address) {
            None => seccomp::connect_to(socket.as_fd(), &address),
            Some(path) => {
                let opened = caller.open_path(libc::AT_FDCWD, path, true)?;
                if !self.rules.may_connect(&opened.path) {
                    return Err(Errno::ACCESS);
                }
                connect_opened(socket.as_fd(), &opened)
            }
        };
        connected.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// The path in the address of a socket, if it has one.
fn path_of(address: &[u8]) -> Option<&[u8]> {
    let (family, rest) = address.split_first_chunk::<2>()?;
    let is_local = i32::from(u16::from_ne_bytes(*family)) == libc::AF_UNIX;
    let path = rest.split(|byte| *byte == 0).next()?;
    (is_local && !path.is_empty()).then_some(path)
}

fn connect_opened(socket: BorrowedFd<'_>, opened: &OpenedTarget) -> io::Result<()> {
    let address = rustix::net::SocketAddrUnix::new(opened.proc_path())?;
    Ok(rustix::net::connect(socket, &address)?)
}

fn make_change(
    caller: &CallingThread,
    opened: &OpenedTarget,
    change: &AttributeChange,
) -> Result<(), Errno> {
    let place = opened.proc_path();
    let nothing = AtFlags::empty();
    // A link has neither a mode nor attributes of its own; the path would lead past it.
    let has_attributes = if opened.is_link {
        Err(Errno::OPNOTSUPP)
    } else {
        Ok(())
    };
    match *change {
        AttributeChange::Mode(mode) => {
            has_attributes?;
            rustix::fs::chmodat(CWD, &place, Mode::from_raw_mode(mode), nothing)
        }
        AttributeChange::Owner(user, group) => {
            // The greatest number stands for "as it is".
            let user = (user != u32::MAX).then(|| Uid::from_raw(user));
            let group = (group != u32::MAX).then(|| Gid::from_raw(group));
            rustix::fs::chownat(&opened.fd, "", user, group, AtFlags::EMPTY_PATH)
        }
        AttributeChange::Times(ref source) => {
            let times = source.read(|address, length| caller.bytes(address, length))?;
            if opened.is_link {
                rustix::fs::utimensat(&opened.fd, "", &times, AtFlags::EMPTY_PATH)
            } else {
                rustix::fs::utimensat(CWD, &place, &times, nothing)
            }
        }
        AttributeChange::Set {
            name,
            value,
            length,
            flags,
        } => {
            has_attributes?;
            let name = caller.text(name)?;
            let length = usize::try_from(length).ok().filter(|it| *it <= 65_536);
            let value = caller.bytes(value, length.ok_or(Errno::TOOBIG)?)?;
            let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
            rustix::fs::setxattr(&place, name.as_slice(), &value, flags)
        }
        AttributeChange::Remove { name } => {
            has_attributes?;
            let name = caller.text(name)?;
            rustix::fs::removexattr(&place, name.as_slice())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_programs_own() {
        let rules = BrokerRules {
            writable: vec!["/w".into(), "/run/user/1/mine".into()],
            hidden: vec!["/run/user/1".into(), "/w/closed".into()],
            shown: vec!["/run/user/1/shown".into()],
        };
        for (path, change, connect) in [
            ("/w/a", true, true),
            ("/wa", false, false),
            ("/w/closed/s", true, false),
            ("/elsewhere/x", false, false),
            ("/dev/pts/3", true, false),
            ("/dev/null", false, false),
            ("/memfd:x (deleted)", true, false),
            ("pipe:[12]", true, false),
            ("/run/user/1/bus", false, false),
            ("/run/user/1/shown/s", false, true),
            ("/run/user/1/mine/s", true, true),
        ] {
            let path = Path::new(path);
            let found = (rules.may_change(path), rules.may_connect(path));
            assert_eq!(found, (change, connect), "{}", path.display());
        }
    }

    #[test]
    fn paths_of_sockets() {
        let unix = u16::try_from(libc::AF_UNIX).unwrap().to_ne_bytes();
        let inet = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes();
        for (family, rest, expected) in [
            (unix, &b"/run/s\0rest"[..], Some(&b"/run/s"[..])),
            (unix, b"/run/s", Some(b"/run/s")),
            (unix, b"\0name", None),
            (unix, b"", None),
            (inet, b"/run/s", None),
        ] {
            let address = [&family[..], rest].concat();
            assert_eq!(path_of(&address), expected);
        }
        assert_eq!(path_of(b"x"), None);
    }
}
