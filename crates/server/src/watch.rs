//! Follows the files of a project: whatever the kernel reports is a reason to look,
//! 100 ms after the first report and not later, however many follow.

use std::collections::HashMap;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::agent_stream::AgentStream;
use crate::hub::Hub;
use crate::look::Look;
use crate::source::RunSource;

/// How long changes are gathered, from the first of them on.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(100);

/// How often to look when nothing is reported: a runner that dies changes no file,
/// and not every file system reports.
const TICK: Duration = Duration::from_secs(1);

/// The same when the kernel has no watches left for us.
const TICK_BLIND: Duration = Duration::from_millis(250);

/// Half-written files of the runner have this ending; they are of no interest
/// before they have their name.
const TEMPORARY: &[u8] = b".runner-tmp";

/// Follows until nobody holds the hub any more.
pub(crate) fn spawn(source: Arc<RunSource>, hub: &Arc<Hub>) -> std::io::Result<()> {
    let hub = Arc::downgrade(hub);
    // The first look happens here: what changes after this call is told.
    let mut watcher = FileWatcher::new(source);
    watcher.look();
    watcher.seen.settle(&watcher.source);
    watcher.stream.skip(watcher.seen.talking());
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || watcher.run(&hub))?;
    Ok(())
}

struct FileWatcher {
    source: Arc<RunSource>,
    inotify: Option<OwnedFd>,
    /// What is watched, and which names in it matter (all, if none is given).
    watched: HashMap<i32, Option<OsString>>,
    blind: bool,
    seen: Look,
    stream: AgentStream,
}

impl FileWatcher {
    fn new(source: Arc<RunSource>) -> Self {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        FileWatcher {
            source,
            inotify: inotify::init(flags).ok(),
            watched: HashMap::new(),
            blind: false,
            seen: Look::default(),
            stream: AgentStream::default(),
        }
    }

    fn run(mut self, hub: &Weak<Hub>) {
        loop {
            self.wait_for_change();
            let Some(hub) = hub.upgrade() else { return };
            let before = self.look();
            // The last lines of an iteration, then its end, then those of the next.
            self.stream.read_on(&mut |line| hub.publish(&line));
            for event in self.seen.events_since(&before) {
                hub.publish(&event);
            }
            self.seen.settle(&self.source);
            if let Some(event) = self.seen.phase_since(&before) {
                hub.publish(&event);
            }
            let talking = self.seen.talking();
            self.stream.follow(talking, &mut |line| hub.publish(&line));
        }
    }

    /// Returns 100 ms after the first change, or after a tick without any.
    fn wait_for_change(&mut self) {
        let tick = if self.blind { TICK_BLIND } else { TICK };
        let mut until = Instant::now() + tick;
        let mut changed = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if changed {
                // What else is reported meanwhile is part of the same look, so it
                // need not be read one by one.
                std::thread::sleep(left);
                self.drain();
                return;
            }
            if !self.poll(left) {
                return;
            }
            if self.drain() {
                changed = true;
                until = Instant::now() + DEBOUNCE;
            }
        }
    }

    /// Waits for a report; false if there was none.
    fn poll(&self, timeout: Duration) -> bool {
        let Some(fd) = &self.inotify else {
            std::thread::sleep(timeout);
            return false;
        };
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        !matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(0))
    }

    /// Takes all reports; whether one of them matters.
    fn drain(&mut self) -> bool {
        let Some(fd) = &self.inotify else {
            return false;
        };
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(fd.as_fd(), &mut buffer);
        let mut matters = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(std::ffi::CStr::to_bytes);
                    let wanted = match (self.watched.get(&event.wd()), name) {
                        // Of the folder itself, or that reports were lost.
                        (_, None) => !event.events().contains(ReadFlags::IGNORED),
                        (Some(Some(only)), Some(name)) => only.as_bytes() == name,
                        (_, Some(name)) => !name.ends_with(TEMPORARY),
                    };
                    matters |= wanted;
                }
                Err(Errno::INTR) => {}
                Err(_) => return matters,
            }
        }
    }

    /// Looks, and watches what is there; the look before.
    fn look(&mut self) -> Look {
        let before = self.seen.clone();
        // A folder that appeared is watched before it is looked at again, so that
        // nothing happens in it between the two.
        for _ in 0..4 {
            let folders = self.seen.folders(self.source.dir());
            self.watch(&folders);
            self.seen = Look::at(&self.source, &self.seen);
            if self.seen.folders(self.source.dir()) == folders {
                break;
            }
        }
        before
    }

    /// Watches exactly these folders. Adding one again finds out whether it is
    /// another folder by now.
    fn watch(&mut self, folders: &[PathBuf]) {
        let Some(fd) = &self.inotify else {
            self.blind = true;
            return;
        };
        self.blind = false;
        let mut now = HashMap::new();
        for folder in folders {
            let only = only_name(folder, self.source.dir());
            let mut flags = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            if only.is_none() {
                flags |= WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
            }
            match inotify::add_watch(fd, folder, flags) {
                Ok(wd) => {
                    now.insert(wd, only);
                }
                Err(Errno::NOSPC | Errno::NOMEM) => self.blind = true,
                // It is not there, or not any more: its parent will tell.
                Err(_) => {}
            }
        }
        for wd in self.watched.keys().filter(|wd| !now.contains_key(wd)) {
            // It may be gone already.
            let _ = inotify::remove_watch(fd, *wd);
        }
        self.watched = now;
    }
}

/// In a folder that is not the runner's own, one name alone matters: what else
/// happens there is other people's work.
fn only_name(folder: &Path, dir: &Path) -> Option<OsString> {
    if folder
        .components()
        .any(|part| part.as_os_str() == ".runner")
    {
        return None;
    }
    match dir.strip_prefix(folder) {
        // On the way to a project: the next part of the way.
        Ok(rest) => match rest.components().next() {
            Some(next) => Some(next.as_os_str().to_owned()),
            None => Some(".runner".into()),
        },
        Err(_) => Some(".runner".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_names_matter() {
        let only = |folder: &str, dir: &str| {
            only_name(Path::new(folder), Path::new(dir)).map(|name| name.into_string().unwrap())
        };
        assert_eq!(only("/a/b", "/a/b").as_deref(), Some(".runner"));
        assert_eq!(only("/a", "/a/b/c").as_deref(), Some("b"));
        assert_eq!(only("/real", "/link").as_deref(), Some(".runner"));
        assert_eq!(only("/a/b/.runner/state", "/a/b"), None);
    }
}
