//! References changed all or none, also where a git that was killed left a lock; and several such
//! changes by one git, because it takes longer to start than to change them.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use runner_exec::{Helper, Input};

use super::call::begin;
use super::{Git, GitAccess};
use crate::error::{Error, Result};
use crate::fault;
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

/// What git says about a change that is made. The end of the last line is not waited for.
const DONE: &[u8] = b"start: ok\ncommit: ok";

/// A git that waits for changes of references, for as long as this lives.
#[derive(Debug)]
struct RefWriter(Helper);

impl RefWriter {
    /// Makes one change, all or nothing; whether git said so. After a no it is of no more use.
    fn make(&mut self, orders: &str) -> bool {
        let Some(stdin) = &mut self.0.stdin else {
            return false;
        };
        let text = format!("start\n{orders}commit\n");
        stdin.write_all(text.as_bytes()).is_ok()
            && matches!(self.0.read_up_to(DONE.len()), Ok((said, true)) if said == DONE)
    }
}

/// References are changed by one and the same git until this is dropped.
#[derive(Debug)]
pub(crate) struct RefSession {
    writer: Arc<Mutex<Option<RefWriter>>>,
}

impl Drop for RefSession {
    fn drop(&mut self) {
        *locked(&self.writer) = None;
    }
}

/// What git waits for the changes of a session, if one is open.
#[derive(Clone, Debug, Default)]
pub(super) struct RefSessionSlot(Arc<Mutex<Option<RefWriter>>>);

fn locked(writer: &Mutex<Option<RefWriter>>) -> MutexGuard<'_, Option<RefWriter>> {
    // Whoever panicked with it left a git of which nothing is known.
    writer.lock().unwrap_or_else(|poisoned| {
        let mut guard = poisoned.into_inner();
        *guard = None;
        guard
    })
}

impl Git {
    /// Starts a git for several changes of references, while something else is done. Where that
    /// cannot be, each starts its own.
    pub(crate) fn begin_ref_session(&self, reason: &str) -> RefSession {
        let mut command = self.command(GitAccess::Write);
        command.args(["update-ref", "-m", reason, "--stdin"]);
        let writer = begin(&command, Input::Pipe).ok().map(RefWriter);
        *locked(&self.ref_session.0) = writer;
        RefSession {
            writer: self.ref_session.0.clone(),
        }
    }

    /// Tries a change in the session that is open, if any. Where git says no it is asked again by
    /// itself, which tells why.
    fn update_in_session(&self, orders: &str) -> Result<bool> {
        let mut open = locked(&self.ref_session.0);
        let Some(writer) = &mut *open else {
            return Ok(false);
        };
        fault::point("git")?;
        let is_made = writer.make(orders);
        if !is_made {
            *open = None;
        }
        fault::point("git-done")?;
        Ok(is_made)
    }

    /// Does what `git update-ref --stdin` is told, all or nothing. Objects that nothing led to so
    /// far come along.
    pub(crate) fn update_refs(&self, reason: &str, orders: &str) -> Result<()> {
        let Some(pack) = self.bring_new_objects()? else {
            return self.change_refs(reason, orders);
        };
        match self.change_refs(reason, orders) {
            Ok(()) => self.release(pack),
            Err(error) => {
                Git::give_up(&pack);
                Err(error)
            }
        }
    }

    fn change_refs(&self, reason: &str, orders: &str) -> Result<()> {
        if self.update_in_session(orders)? {
            return Ok(());
        }
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
    fn one_git_makes_several_changes_and_another_says_what_was_wrong() {
        let root = tempfile::tempdir().unwrap();
        Git::init(root.path()).unwrap();
        let git = Git::open(root.path()).unwrap();
        git.commit("one").unwrap();
        let one = git.commit_of("HEAD").unwrap().unwrap();
        git.commit("two").unwrap();
        let two = git.commit_of("HEAD").unwrap().unwrap();
        let session = git.begin_ref_session("test");
        let update = |orders: String| git.update_refs("test", &orders);
        update(format!("create refs/x/a {one}\ncreate refs/x/b {one}\n")).unwrap();
        update(format!("update refs/x/a {two} {one}\n")).unwrap();
        assert!(locked(&git.ref_session.0).is_some());
        let at = |name: &str| git.commit_of(name).unwrap();
        assert_eq!(at("refs/x/a"), Some(two.clone()));
        // Not from there: neither of them moves.
        let orders = format!("update refs/x/b {two}\nupdate refs/x/a {one} {one}\n");
        let error = update(orders).unwrap_err();
        assert!(error.message.contains("refs/x/a"), "{error}");
        assert_eq!(at("refs/x/b"), Some(one.clone()));
        update(format!("update refs/x/b {two}\n")).unwrap();
        assert_eq!(at("refs/x/b"), Some(two));
        drop(session);
        assert!(locked(&git.ref_session.0).is_none());
    }

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
