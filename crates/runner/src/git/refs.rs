//! References changed all or none, also where a git that was killed left a lock.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Git;
use crate::error::{Error, Result};
use crate::files;

/// Git holds the lock of a reference for milliseconds: one that is the same for so long is
/// nobody's.
const STALE: Duration = Duration::from_secs(5);

/// How long the living may keep us waiting.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// A lock file, and what makes it this one.
#[derive(Debug, PartialEq, Eq)]
struct LockFile {
    path: PathBuf,
    inode: u64,
    changed: (i64, i64),
}

impl Git {
    /// Does what `git update-ref --stdin` is told, all or nothing.
    pub(crate) fn update_refs(&self, reason: &str, orders: &str) -> Result<()> {
        let begun = Instant::now();
        let mut seen: Option<(LockFile, Instant)> = None;
        loop {
            let args = ["update-ref", "-m", reason, "--stdin"];
            let Err(error) = self.write_with(&args, Some(orders.as_bytes()), &[]) else {
                return Ok(());
            };
            let lock = self.lock_in_the_way(&error);
            let Some(lock) = lock.filter(|_| begun.elapsed() < PATIENCE) else {
                return Err(error);
            };
            match &seen {
                Some((known, since)) if *known == lock => {
                    if since.elapsed() > STALE {
                        files::remove_if_there(&lock.path)?;
                    }
                }
                _ => seen = Some((lock, Instant::now())),
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The lock that a call complained about.
    fn lock_in_the_way(&self, error: &Error) -> Option<LockFile> {
        let path = PathBuf::from(named_lock(&error.message)?);
        let ours = path.starts_with(self.common_dir()) || path.starts_with(self.git_dir());
        let meta = path.symlink_metadata().ok().filter(|_| ours)?;
        Some(LockFile {
            inode: meta.ino(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            path,
        })
    }
}

/// "Unable to create 'PATH.lock': File exists."
fn named_lock(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Unable to create '")?;
    let (path, _) = rest.split_once("': File exists")?;
    path.strip_suffix(".lock").map(|_| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_that_git_names() {
        let words = "`git update-ref` failed: fatal: cannot lock ref 'refs/heads/x': Unable to create \
             '/p/.git/refs/heads/x.lock': File exists.\n\nAnother git process seems to be running";
        assert_eq!(named_lock(words), Some("/p/.git/refs/heads/x.lock"));
        for other in [
            "cannot lock ref 'refs/heads/x': is at 0123 but expected 4567",
            "Unable to create '/p/x': File exists.",
            "Unable to create '/p/x.lock': Permission denied",
        ] {
            assert_eq!(named_lock(other), None, "{other}");
        }
    }
}
