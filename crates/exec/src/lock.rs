//! Lock files that say "processes of that session may still be there".

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Cancel;

/// flock cannot be polled: how often to ask again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Waits until no supervisor holds this lock (see [`crate::Spec::hold_lock`]): the session's
/// processes are gone. False: still held after `limit`, or cancelled. A missing file is not held.
pub fn wait_until_unlocked(path: &Path, cancel: &Cancel, limit: Duration) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let until = Instant::now().checked_add(limit);
    loop {
        // Shared: those who only ask do not get into each other's way.
        if try_flock(&file, FlockOperation::NonBlockingLockShared)? {
            return Ok(true);
        }
        let now = Instant::now();
        let left = until.map_or(ASK_AGAIN, |at| at.saturating_duration_since(now));
        if left.is_zero() || cancel.wait(left.min(ASK_AGAIN)) {
            return Ok(false);
        }
    }
}

/// The file to lock; its content means nothing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// Takes the lock if it is free. It is released when the file is closed.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    try_flock(file, FlockOperation::NonBlockingLockExclusive)
}

fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
