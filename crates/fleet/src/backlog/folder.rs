//! Hears when the requirement or an issue of a project is written. Only a notification: whoever listens
//! looks by itself, too, so a folder that cannot be watched costs time and nothing else.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// Watches the fleet's folder of a project for these files, and a folder in it.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    fd: AsyncFd<OwnedFd>,
    /// The number of the watch of the fleet's folder; all others are of the inner one.
    outer: i32,
    folder: PathBuf,
    inner: &'static str,
    files: &'static [&'static str],
}

impl FolderWatch {
    /// Begins to watch, in the runtime that this is called in.
    pub(crate) fn new(
        folder: &Path,
        inner: &'static str,
        files: &'static [&'static str],
    ) -> std::io::Result<FolderWatch> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        // A folder is told of when it is made. A file is not: it is told of when it is
        // whole, so that nobody reads half of it.
        let outer = inotify::add_watch(&fd, folder, written() | WatchFlags::CREATE)?;
        // Its successor is unsafe for descriptors that may be closed elsewhere; this one
        // is owned and never leaves.
        #[allow(deprecated)]
        let fd = AsyncFd::new(fd)?;
        let watch = FolderWatch {
            fd,
            outer,
            folder: folder.to_owned(),
            inner,
            files,
        };
        watch.watch_inner();
        Ok(watch)
    }

    fn watch_inner(&self) {
        let inner = self.folder.join(self.inner);
        // It is not there yet, or cannot be watched.
        let _ = inotify::add_watch(self.fd.get_ref(), inner, written());
    }

    /// Waits until something was written. An error: nothing will be heard any more.
    pub(crate) async fn next(&mut self) -> std::io::Result<()> {
        loop {
            let mut ready = self.fd.readable().await?;
            let heard = self.drain();
            ready.clear_ready();
            if heard {
                return Ok(());
            }
        }
    }

    /// Takes everything that was heard. Whether it was about one of ours.
    fn drain(&self) -> bool {
        let (mut heard, mut made) = (false, false);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.fd.get_ref(), &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(CStr::to_bytes).unwrap_or_default();
            let is_inner = name == self.inner.as_bytes();
            let is_file = self.files.iter().any(|file| name == file.as_bytes());
            if event.wd() != self.outer {
                heard = true;
            } else if is_inner {
                (heard, made) = (true, true);
            } else if is_file {
                heard |= !event.events().contains(inotify::ReadFlags::CREATE);
            }
        }
        if made {
            self.watch_inner();
        }
        heard
    }
}

fn written() -> WatchFlags {
    WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The kernel tells at once of what was written: no test waits for nothing.
    #[tokio::test]
    async fn what_is_written_is_heard_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path();
        let mut watch = FolderWatch::new(folder, "issues", &["requirement.md"]).unwrap();
        assert!(!watch.drain());

        fs::write(folder.join("ledger.db-hint"), "x").unwrap();
        assert!(!watch.drain(), "that is no business of ours");
        fs::write(folder.join("requirement.md"), "x").unwrap();
        watch.next().await.unwrap();

        let issues = folder.join("issues");
        fs::create_dir(&issues).unwrap();
        assert!(watch.drain(), "the folder is there now");
        let half = fs::File::create(issues.join("1-x.md")).unwrap();
        assert!(!watch.drain(), "it is not whole");
        drop(half);
        assert!(watch.drain());
        fs::write(folder.join("new"), "x").unwrap();
        fs::rename(folder.join("new"), issues.join("1-x.md")).unwrap();
        assert!(watch.drain());
        fs::remove_dir_all(&issues).unwrap();
        assert!(watch.drain());
        assert!(!watch.drain());

        // Made again, it is watched again.
        fs::create_dir(&issues).unwrap();
        assert!(watch.drain());
        fs::write(issues.join("2-x.md"), "x").unwrap();
        assert!(watch.drain());
        assert!(FolderWatch::new(&folder.join("none"), "issues", &[]).is_err());
    }
}
