//! System calls of a process about which another one decides (seccomp's notifications).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::process::Pid;

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingCall {
    /// Names the call as long as it waits.
    pub id: u64,
    /// The thread that makes it.
    pub thread: u32,
    /// Which one it is.
    pub number: i64,
    /// What it is given.
    pub args: [u64; 6],
}

/// Puts this thread, and all that it starts from now on, behind a filter of system calls. Returns
/// where the calls arrive that the filter hands on. `no_new_privs` must be set.
pub fn install_filter(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let listening = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // Without the other flag (before Linux 5.19) a signal ends the wait of a call that was answered
    // meanwhile, and it is made twice.
    let killable = set_filter(
        program,
        listening | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
    );
    let raw = match killable {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set_filter(program, listening),
        other => other,
    }?;
    // SAFETY: the kernel has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// The same for a filter that hands nothing on.
pub fn install_own_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// What the kernel answers: the number of a listener, where one was asked for.
fn set_filter(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<i32> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program and its steps are alive during the call, and the kernel only reads them.
    let answer = unsafe {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program)
    };
    match i32::try_from(answer) {
        Ok(number @ 0..) => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next call that waits; `None`: it went away before it was read.
pub fn next_call(listener: BorrowedFd<'_>) -> io::Result<Option<WaitingCall>> {
    // SAFETY: plain numbers, for which zeros are a value and which the kernel wants to be zeros; it
    // writes no more than the structure it is told about.
    let (told, call) = unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        let told = libc::ioctl(listener.as_raw_fd(), request, &raw mut call);
        (told, call)
    };
    if told == 0 {
        return Ok(Some(WaitingCall {
            id: call.id,
            thread: call.pid,
            number: call.data.nr.into(),
            args: call.data.args,
        }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR) => Ok(None),
        _ => Err(error),
    }
}

/// Whether the call still waits: what was opened by the number of its thread before is really its.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one number.
    let told = unsafe {
        let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
        libc::ioctl(listener.as_raw_fd(), request, &raw const id)
    };
    told == 0
}

/// Ends the wait: the call returns 0, or fails with this error. That it is gone is no error.
pub fn answer_call(listener: BorrowedFd<'_>, id: u64, result: Result<(), i32>) {
    let answer = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: result.err().map_or(0, |errno| -errno),
        flags: 0,
    };
    // SAFETY: the kernel only reads the structure.
    unsafe {
        let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
        libc::ioctl(listener.as_raw_fd(), request, &raw const answer);
    }
}

/// Connects a socket to an address as a program has written it down.
pub fn connect_to(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(address.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel copies that many bytes and checks what they mean.
    let told = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    if told == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// This process a second time; `None` in the new one. Only before anything has started a thread.
pub fn fork_alone() -> io::Result<Option<Pid>> {
    super::only_thread().ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: with one thread there is no lock that another one could hold in the copy.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Lets this thread, and no other, act as this user for good.
pub fn become_in_this_thread(user: u32, group: u32) -> io::Result<()> {
    // The C library would change all threads: these are the kernel's own calls.
    // SAFETY: they take numbers and touch no memory.
    let told = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, 0),
            libc::syscall(libc::SYS_setresgid, group, group, group),
            libc::syscall(libc::SYS_setresuid, user, user, user),
        ]
    };
    if told == [0; 3] {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
