//! The thread whose call waits: its memory, its files, its user, and what the paths in its calls mean.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use runner_exec::os::seccomp::{self, WaitingCall};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::call::CallTarget;

/// The longest path that the kernel takes, and the longest name of an attribute fits in.
const TEXT_LIMIT: usize = 4096;

/// As much as is read of a text at once.
const TEXT_PART: usize = 256;

/// Something that the broker has opened in the caller's place.
pub(crate) struct OpenedTarget {
    pub(crate) fd: OwnedFd,
    /// Where it lies now. Not absolute: it has no path.
    pub(crate) path: PathBuf,
    pub(crate) is_link: bool,
}

impl OpenedTarget {
    fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let is_link = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).is_symlink();
        let opened = Self {
            path: PathBuf::new(),
            fd,
            is_link,
        };
        let path = fs::read_link(opened.proc_path()).map_err(errno)?;
        Ok(Self { path, ..opened })
    }

    /// A path that leads to what is open, wherever it lies.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

/// The thread.
pub(crate) struct CallingThread {
    thread: u32,
    process: u32,
    memory: File,
    user: u32,
    group: u32,
}

impl CallingThread {
    /// Looks it up, and makes sure that it is the one that waits.
    pub(crate) fn find(waiting: &WaitingCall, listener: BorrowedFd<'_>) -> Result<Self, Errno> {
        let folder = PathBuf::from(format!("/proc/{}", waiting.thread));
        let memory = File::open(folder.join("mem")).map_err(errno)?;
        let status = fs::read_to_string(folder.join("status")).map_err(errno)?;
        // A path from another root means something else here.
        let root = fs::read_link(folder.join("root")).map_err(errno)?;
        if root != Path::new("/") {
            return Err(Errno::PERM);
        }
        let found = thread_ids(&status).ok_or(Errno::IO)?;
        if !seccomp::still_waits(listener, waiting.id) {
            return Err(Errno::SRCH);
        }
        Ok(Self {
            thread: waiting.thread,
            memory,
            process: found.process,
            user: found.user,
            group: found.group,
        })
    }

    /// Whether it has the rights that this process has.
    pub(crate) fn is_of_this_user(&self) -> bool {
        rustix::process::geteuid().as_raw() == self.user
            && rustix::process::getegid().as_raw() == self.group
    }

    /// Gives this thread the rights of the caller, for good.
    pub(crate) fn become_its_user(&self) -> Result<(), Errno> {
        if self.is_of_this_user() {
            return Ok(());
        }
        seccomp::become_in_this_thread(self.user, self.group).map_err(errno)
    }

    /// Bytes of its memory.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        let read = self.memory.read_exact_at(&mut bytes, address);
        read.map(|()| bytes).map_err(|_| Errno::FAULT)
    }

    /// A text in its memory, up to the zero at its end.
    pub(crate) fn text(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        let mut part = [0; TEXT_PART];
        while text.len() < TEXT_LIMIT {
            // Not beyond the end of a page: the next one may not be there.
            let at = address.wrapping_add(text.len() as u64);
            let left = TEXT_PART - usize::try_from(at % TEXT_PART as u64).unwrap_or(0);
            let read = self.memory.read_at(&mut part[..left], at);
            let read = read.ok().filter(|read| *read > 0).ok_or(Errno::FAULT)?;
            let new = &part[..read];
            if let Some(end) = new.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&new[..end]);
                return Ok(text);
            }
            text.extend_from_slice(new);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// A descriptor of its, as one of ours: what is done with it is done with its own.
    pub(crate) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        let process = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        let process =
            rustix::process::pidfd_open(process.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        rustix::process::pidfd_getfd(&process, number, PidfdGetfdFlags::empty())
    }

    /// Opens what a call names, without any right to what is in it.
    pub(crate) fn open(&self, target: &CallTarget) -> Result<OpenedTarget, Errno> {
        match *target {
            CallTarget::Descriptor(number) => self.reopen(number),
            CallTarget::Path {
                folder,
                address,
                follows_links,
                may_be_empty,
            } => {
                let path = self.text(address)?;
                if path.is_empty() && may_be_empty {
                    return if folder == libc::AT_FDCWD {
                        self.open_path(folder, b".", true)
                    } else {
                        self.reopen(folder)
                    };
                }
                self.open_path(folder, &path, follows_links)
            }
        }
    }

    /// The same for a path that was read.
    pub(crate) fn open_path(
        &self,
        folder: i32,
        path: &[u8],
        follows_links: bool,
    ) -> Result<OpenedTarget, Errno> {
        if let (Some(number), true) = (descriptor_in(path), follows_links) {
            return self.reopen(number);
        }
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !follows_links {
            flags |= OFlags::NOFOLLOW;
        }
        // Links of /proc/self would be those of this process.
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let open_in =
            |base: BorrowedFd<'_>| rustix::fs::openat2(base, path, flags, Mode::empty(), resolve);
        let fd = if path.starts_with(b"/") {
            open_in(CWD)
        } else {
            let name = match folder {
                libc::AT_FDCWD => "cwd".to_owned(),
                number => format!("fd/{number}"),
            };
            let base = self.open_own(&name, OFlags::DIRECTORY)?;
            open_in(rustix::fd::AsFd::as_fd(&base))
        };
        OpenedTarget::new(fd?)
    }

    fn reopen(&self, number: i32) -> Result<OpenedTarget, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let opened = self.open_own(&format!("fd/{number}"), OFlags::empty());
        OpenedTarget::new(opened.map_err(|error| match error {
            Errno::NOENT => Errno::BADF,
            other => other,
        })?)
    }

    /// Opens what a link in its folder of /proc leads to.
    fn open_own(&self, name: &str, more: OFlags) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/{}/{name}", self.thread);
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty())
    }
}

/// The descriptor that a path names; programs take this way to what they have open.
fn descriptor_in(path: &[u8]) -> Option<i32> {
    let path = std::str::from_utf8(path).ok()?;
    let folders = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"];
    let number = folders.iter().find_map(|it| path.strip_prefix(it))?;
    number.parse().ok().filter(|number| *number >= 0)
}

struct ThreadIds {
    process: u32,
    user: u32,
    group: u32,
}

/// The process of a thread, and the user and group that its calls on files count for.
fn thread_ids(status: &str) -> Option<ThreadIds> {
    let field = |name: &str, index: usize| -> Option<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(index)?.parse().ok()
    };
    Some(ThreadIds {
        process: field("Tgid:", 0)?,
        user: field("Uid:", 3)?,
        group: field("Gid:", 3)?,
    })
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` hands it over.
fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_by_their_paths() {
        for (path, expected) in [
            ("/proc/self/fd/7", Some(7)),
            ("/dev/fd/0", Some(0)),
            ("/proc/self/fd/7/x", None),
            ("/proc/self/fd/-1", None),
            ("/proc/1/fd/7", None),
            ("fd/7", None),
        ] {
            assert_eq!(descriptor_in(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn ids_in_a_status() {
        let status = "Name:\tx\nTgid:\t12\nPid:\t13\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
        let found = thread_ids(status).unwrap();
        assert_eq!((found.process, found.user, found.group), (12, 4, 8));
        assert!(thread_ids("Tgid:\t1\n").is_none());
    }
}
