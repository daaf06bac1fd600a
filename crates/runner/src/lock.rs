//! One runner per project.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Code, Error, Result};
use crate::files;
use crate::project::Project;

/// How long the processes of a killed runner may take to be gone.
const ORPHANS: Duration = Duration::from_secs(15);

/// Held for as long as this value lives. The kernel lets go of it when the
/// process ends, however it ends: a stale lock cannot be.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock or names who has it.
    pub(crate) fn take(project: &Project) -> Result<Self> {
        files::make_folder(&project.iterations())?;
        let path = project.iterations().join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(|error| files::at(&path, error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            let pid = text.trim();
            let who = if pid.is_empty() {
                "another process"
            } else {
                pid
            };
            return Err(Error::new(
                Code::Locked,
                format!("another runner is at work in this project (pid {who})"),
            )
            .hint("wait for it, or end it; nothing needs to be removed by hand"));
        }
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        writeln!(file, "{}", std::process::id())?;
        let lock = Lock { _file: file };
        wait_for_orphans(project)?;
        Ok(lock)
    }

    /// The pid of the runner at work here, if there is one.
    pub(crate) fn holder(project: &Project) -> Option<u32> {
        let path = project.iterations().join("lock");
        let mut file = File::open(path).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

/// The file that supervisors hold locked while anything of a session is alive.
pub(crate) fn session_lock(project: &Project) -> std::path::PathBuf {
    project.iterations().join("session.lock")
}

/// After a runner was killed, its supervisor ends what is left: until then
/// nothing here may be touched.
fn wait_for_orphans(project: &Project) -> Result<()> {
    let path = session_lock(project);
    let Ok(file) = File::open(&path) else {
        return Ok(());
    };
    let deadline = Instant::now() + ORPHANS;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            return Err(Error::new(
                Code::Locked,
                "processes of an earlier session in this project are still alive",
            )
            .hint(format!(
                "`fuser {}` names them; end them, then try again",
                path.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
