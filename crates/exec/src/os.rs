//! The one module with `unsafe`, and the small calls to the kernel that are not worth one of their own.
#![allow(unsafe_code)]

pub mod seccomp;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Makes orphaned descendants children of this process instead of init. May be called again.
pub fn become_subreaper() -> io::Result<()> {
    // The kernel wants a boolean; any pid is one.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// The child is killed when its parent dies.
///
/// The kernel ties this to the *thread* that spawned the child, not to the process: spawn and wait
/// in one thread, or the child dies when that thread ends.
pub fn die_with_parent(cmd: &mut Command) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above took effect: then no signal ever comes.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(rustix::io::Errno::SRCH.into())
        }
    };
    // SAFETY: the closure runs between fork and exec and must be async-signal-safe: it makes two
    // plain system calls, allocates nothing and takes no lock (`io::Error` holds only the errno).
    unsafe { cmd.pre_exec(hook) };
}

/// The child starts in a session of its own: no controlling terminal.
pub(crate) fn own_session(cmd: &mut Command) {
    let hook = || {
        rustix::process::setsid()?;
        Ok(())
    };
    // SAFETY: as above, a single system call.
    unsafe { cmd.pre_exec(hook) };
}

/// The child, and all that it starts, cannot make another task while its user has this many. A limit
/// that is lower already stays.
pub(crate) fn limit_tasks(cmd: &mut Command, limit: u64) {
    let hook = move || {
        let now = rustix::process::getrlimit(Resource::Nproc);
        let lower = |is: Option<u64>| Some(is.map_or(limit, |is| is.min(limit)));
        let new = Rlimit {
            current: lower(now.current),
            maximum: lower(now.maximum),
        };
        Ok(rustix::process::setrlimit(Resource::Nproc, new)?)
    };
    // SAFETY: as above, two system calls.
    unsafe { cmd.pre_exec(hook) };
}

/// Calls `action` inside the signal handler, for the rest of the process.
///
/// The action must be async-signal-safe: atomics and plain system calls, no allocation, no lock.
pub(crate) fn on_signal<F>(signal: i32, action: F) -> io::Result<()>
where
    F: Fn() + Sync + Send + 'static,
{
    // SAFETY: the only caller (`Cancel`) touches atomics and writes to an eventfd. `rustix` makes
    // the system call itself, so that not even `errno` changes under the interrupted code.
    unsafe { signal_hook::low_level::register(signal, action) }?;
    Ok(())
}

/// What [`spawn_sharing_memory`] starts; made before, because nothing may be allocated after.
pub(crate) struct Image<'a> {
    /// Where the program may be, tried in turn.
    pub(crate) programs: &'a [CString],
    pub(crate) argv: &'a [CString],
    /// All of the environment, as `name=value`.
    pub(crate) env: &'a [CString],
    pub(crate) cwd: Option<&'a CStr>,
    /// What become standard input, output and error: none of them is one of these already.
    pub(crate) streams: [BorrowedFd<'a>; 3],
}

/// Starts a program in a process group of its own that is killed when this thread ends.
///
/// `fork` copies the page tables of a process that may hold a large tree, only to throw them away a
/// moment later, and lets both pay for pages that they shared in between. Here the child lives in our
/// memory, while this thread stands still, until it has become the program.
pub(crate) fn spawn_sharing_memory(image: &Image<'_>) -> io::Result<Pid> {
    const STACK: usize = 64 * 1024;
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        let ends = std::iter::once(ptr::null());
        list.iter().map(|text| text.as_ptr()).chain(ends).collect()
    };
    let mut birth = Birth {
        image,
        argv: pointers(image.argv),
        env: pointers(image.env),
        parent: rustix::process::getpid(),
        // What stays there if the child is killed before it can say anything.
        errno: libc::ESRCH,
    };
    // 128 bits at a time, so that the end is aligned as the ABI wants it.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the signal sets are filled by the first calls and are ours alone. `clone` gets the end
    // of a stack that nobody else uses and that outlives the child's use of it, since CLONE_VFORK
    // lets this thread go on only when the child has left our memory, by exec or by exit; the same
    // holds for `birth`, to which nothing here refers while the child has it. With every signal
    // blocked no handler of ours can run in the child (it takes the handlers away before it opens
    // the signals again), nor in this thread while it stands still.
    let pid = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let top = stack.as_mut_ptr().add(stack.capacity());
        let pid = libc::clone(be_born, top.cast(), flags, (&raw mut birth).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
    // SAFETY: a plain read of what the child, now gone from our memory, has written.
    match unsafe { ptr::read_volatile(&raw const birth.errno) } {
        0 => Ok(pid),
        errno => {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// A child between clone and exec.
struct Birth<'a> {
    image: &'a Image<'a>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    parent: Pid,
    /// Why it failed; 0 once the program runs.
    errno: i32,
}

/// The child's side: in the parent's memory, so that it must neither allocate nor take a lock nor
/// return.
extern "C" fn be_born(birth: *mut libc::c_void) -> libc::c_int {
    let birth = birth.cast::<Birth<'_>>();
    // SAFETY: the parent gave a pointer to a `Birth` of its own and stands still. What is called is
    // async-signal-safe; the lists end with a null pointer and their strings are alive.
    unsafe {
        // Volatile: the compiler does not know that exec lets somebody else read it.
        let errno = &raw mut (*birth).errno;
        if let Err(why) = prepare(&*birth) {
            ptr::write_volatile(errno, why.raw_os_error());
            libc::_exit(127);
        }
        open_signals();
        let mut why = libc::ENOENT;
        for program in (*birth).image.programs {
            ptr::write_volatile(errno, 0);
            libc::execve(
                program.as_ptr(),
                (*birth).argv.as_ptr(),
                (*birth).env.as_ptr(),
            );
            match *libc::__errno_location() {
                // The next folder may have it; that one may not be run is the better reason.
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => why = libc::EACCES,
                other => {
                    why = other;
                    break;
                }
            }
        }
        ptr::write_volatile(errno, why);
        libc::_exit(127);
    }
}

/// Plain system calls, made by rustix itself: no `errno`, no allocation.
fn prepare(birth: &Birth<'_>) -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect: then no signal ever comes.
    if rustix::process::getppid() != Some(birth.parent) {
        return Err(rustix::io::Errno::SRCH);
    }
    rustix::process::setpgid(None, None)?;
    let [stdin, stdout, stderr] = birth.image.streams;
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    match birth.image.cwd {
        Some(cwd) => rustix::process::chdir(cwd),
        None => Ok(()),
    }
}

/// A child starts with every signal open, none handled, and only those ignored that were ignored
/// before us: the standard library ignores SIGPIPE for us, not for others.
///
/// # Safety
///
/// Only in a process that is about to become another program.
unsafe fn open_signals() {
    // SAFETY: the structures are plain data, for which zeros are a value (`SIG_DFL`); what the kernel
    // says about a signal is written into one of ours.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in 1..=libc::SIGRTMAX() {
            let mut action: libc::sigaction = std::mem::zeroed();
            // Two numbers belong to the C library, which refuses them.
            if libc::sigaction(signal, ptr::null(), &raw mut action) == 0
                && action.sa_sigaction != libc::SIG_DFL
                && (action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE)
            {
                libc::sigaction(signal, &raw const default, ptr::null_mut());
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Writes `*` over a part of an argument of this process, so that nobody reads it in the list of
/// processes any more. Only before anything has started a thread.
pub fn blank_argument(index: usize, part: std::ops::Range<usize>) -> io::Result<()> {
    let unknown = || io::Error::other("the kernel does not say where the arguments lie");
    let shown = std::fs::read("/proc/self/cmdline")?;
    let arguments = shown.split_inclusive(|byte| *byte == 0);
    let before: usize = arguments.take(index).map(<[u8]>::len).sum();
    let argument = std::env::args_os().nth(index).ok_or_else(unknown)?;
    let argument = std::os::unix::ffi::OsStrExt::as_bytes(argument.as_os_str());
    let is_there = shown
        .get(before..)
        .is_some_and(|rest| rest.starts_with(argument) && rest.get(argument.len()) == Some(&0));
    let (start, end) = arguments_of(&String::from_utf8_lossy(&std::fs::read("/proc/self/stat")?))
        .filter(|(start, end)| is_there && end - start == shown.len())
        .ok_or_else(unknown)?;
    if part.start > part.end || part.end > argument.len() || only_thread().is_none() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for offset in part {
        let address = start + before + offset;
        debug_assert!(address < end);
        // SAFETY: the kernel says that the arguments lie there, and what it shows of them is what the
        // standard library knows. They are on the first stack, which can be written; nothing refers
        // to them but the pointers from which the library makes copies when it is asked, and no
        // other thread can ask.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(b'*') };
    }
    Ok(())
}

/// Where the arguments of a process begin and end, by its `stat`.
fn arguments_of(stat: &str) -> Option<(usize, usize)> {
    // Fields 48 and 49; the second one is a name that may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(45);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (0 < start && start < end).then_some((start, end))
}

/// Takes a variable out of the environment of this process, so that nothing that it starts has it.
/// Only before anything has started a thread; later it stays where it is.
pub fn take_variable(name: &str) -> Option<std::ffi::OsString> {
    let value = std::env::var_os(name)?;
    if only_thread().is_some() {
        // SAFETY: no other thread is there that could read or write the environment.
        unsafe { std::env::remove_var(name) };
    }
    Some(value)
}

/// Whether this thread is the only one.
fn only_thread() -> Option<()> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    (threads.count() == 1).then_some(())
}

/// Whether the kernel makes a process of this user in new namespaces (by `CLONE_NEW…` flags): one is
/// made and ends at once.
pub fn can_be_born_in(namespaces: u32) -> io::Result<()> {
    let kinds = libc::c_ulong::from(namespaces);
    let end = libc::SIGCHLD.unsigned_abs();
    let flags = kinds | libc::c_ulong::from(end);
    // SAFETY: without a stack and shared memory this is a fork; the copy makes one plain system call,
    // which does not return, so that no lock of another thread matters.
    let pid = unsafe {
        match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
            0 => libc::_exit(0),
            pid => pid,
        }
    };
    let error = io::Error::last_os_error();
    match i32::try_from(pid).ok().and_then(self::pid) {
        Some(pid) => {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Ok(())
        }
        None => Err(error),
    }
}

/// Closes the environment, the memory and the open files of this process to others of the same
/// user. What it starts is open again.
pub fn close_to_others() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Ends this very process by SIGKILL, as a crash would (fault injection).
pub fn kill_self() -> ! {
    loop {
        // It cannot fail and does not return; the loop is for the type.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
}

/// Ends this process by a signal, whatever was arranged for it here, and leaves no image of its
/// memory. Returns only for a signal that ends nothing.
pub fn end_by_signal(raw: i32) {
    let _ = close_to_others();
    // SAFETY: the structures are plain data; what happens at the signal is the kernel's matter again.
    unsafe {
        libc::signal(raw, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, raw);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, ptr::null_mut());
        libc::kill(libc::getpid(), raw);
    }
}

/// Waits until one of `fds` is ready or `until` has come. True: look at them.
///
/// A signal may end the wait early (false): callers loop anyway.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    let timeout = until.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        // Centuries do not fit: as good as for ever, and the caller looks at the clock again.
        Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        })
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What to poll for: data, and (which poll always reports) the other end being gone.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// A process id as the kernel's tables print it. None for 0 and less, which `kill` takes for groups.
pub(crate) fn pid(raw: i32) -> Option<Pid> {
    if raw > 0 { Pid::from_raw(raw) } else { None }
}

/// This process, as the kernel's tables print it.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("12 (a) b) {}", fields.join(" "));
        assert_eq!(arguments_of(&stat), Some((48, 49)));
        assert_eq!(arguments_of("12 (a) R 1 2"), None);
        let hidden = format!("12 (a) {}", ["0"; 50].join(" "));
        assert_eq!(arguments_of(&hidden), None);
    }
}
