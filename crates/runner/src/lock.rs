//! One runner per project.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::project::Project;
use crate::step::file_image;

/// How long the processes of a killed runner may take to be gone.
const ORPHANS: Duration = Duration::from_secs(15);

/// Whoever only asks who is at work holds the lock for a moment.
const ASKING: Duration = Duration::from_millis(60);

/// Held for as long as this value lives. The kernel lets go of it when the
/// process ends, however it ends: a stale lock cannot be.
#[derive(Debug)]
pub(crate) struct ProjectLock {
    /// The project's folder itself: a session may remove or replace the file.
    _root: Option<File>,
    _file: File,
}

impl ProjectLock {
    /// Takes the lock or names who has it.
    pub(crate) fn take(project: &Project) -> Result<Self> {
        let root = File::open(project.root()).map_err(|error| files::at(project.root(), error))?;
        let root = match hold(&root) {
            Ok(()) => Some(root),
            Err(Errno::WOULDBLOCK) => return Err(taken(project)),
            // Not every file system can lock folders; the file must do there.
            Err(_) => None,
        };
        let path = path(project);
        files::make_local_folder(&project.iterations())?;
        only_regular(&path)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(|error| files::at(&path, error))?;
        hold(&file).map_err(|_| taken(project))?;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        writeln!(file, "{}", std::process::id())?;
        let lock = ProjectLock {
            _root: root,
            _file: file,
        };
        wait_for_orphans(project)?;
        Ok(lock)
    }

    /// An error that names the runner at work here, if there is one.
    pub(crate) fn refuse_if_held(project: &Project) -> Result<()> {
        match Self::holder(project) {
            Some(_) => Err(taken(project)),
            None => Ok(()),
        }
    }

    /// The pid of the runner at work here, if there is one.
    pub(crate) fn holder(project: &Project) -> Option<u32> {
        if let Some(pid) = holder_of(project.root()) {
            return Some(pid);
        }
        let mut file = files::open_no_trap(&path(project)).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut text = String::new();
        // A session may have written it: then it must be searched for.
        let named = (&mut file).take(32).read_to_string(&mut text).ok();
        let named = named.and_then(|_| text.trim().parse().ok());
        named
            .filter(|pid| Self::is_held_by(project, *pid))
            .or_else(|| holder_among_all(project))
            .or(named)
    }

    /// Whether this very process holds the lock, by what the kernel shows of its files.
    pub(crate) fn is_held_by(project: &Project, pid: u32) -> bool {
        let places: Vec<_> = [project.root().to_owned(), path(project)]
            .iter()
            .filter_map(|path| path.symlink_metadata().ok())
            .map(|meta| (meta.dev(), meta.ino()))
            .collect();
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        entries.flatten().any(|entry| {
            let here = fs::metadata(entry.path())
                .is_ok_and(|meta| places.contains(&(meta.dev(), meta.ino())));
            here && fs::read_to_string(format!(
                "/proc/{pid}/fdinfo/{}",
                entry.file_name().to_string_lossy()
            ))
            .is_ok_and(|info| {
                // "lock:\t1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF"
                info.lines().any(|line| {
                    line.starts_with("lock:") && line.contains("FLOCK") && line.contains("WRITE")
                })
            })
        })
    }
}

/// The process that holds the lock, of all there are.
fn holder_among_all(project: &Project) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        ProjectLock::is_held_by(project, pid).then_some(pid)
    })
}

fn path(project: &Project) -> PathBuf {
    project.iterations().join("lock")
}

/// Locks for good, or says who is in the way with [`Errno::WOULDBLOCK`].
fn hold(file: &File) -> std::result::Result<(), Errno> {
    let give_up_at = Instant::now() + ASKING;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn taken(project: &Project) -> Error {
    let who = ProjectLock::holder(project)
        .map_or_else(|| "another process".to_owned(), |pid| pid.to_string());
    Error::new(
        ErrorCode::Locked,
        format!("another runner is at work in this project (pid {who})"),
    )
    .hint("wait for it, or end it with `runner stop`; nothing needs to be removed by hand")
}

/// Who has locked a folder, according to the kernel.
fn holder_of(folder: &Path) -> Option<u32> {
    let meta = fs::metadata(folder).ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // "1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF"
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, pid, place) = (words.get(1)?, words.get(4)?, words.get(5)?);
        let here = *kind == "FLOCK" && *place == wanted;
        pid.parse().ok().filter(|pid| here && *pid > 0)
    })
}

/// A session may have put anything in the place of a lock file: a pipe that makes
/// us wait, a link that makes us write elsewhere, a file that is closed.
fn only_regular(path: &Path) -> std::io::Result<()> {
    for folder in path.ancestors().skip(1).take(2) {
        if folder
            .symlink_metadata()
            .is_ok_and(|meta| meta.mode() & 0o700 != 0o700)
        {
            let _ = file_image::make_readable(folder);
        }
    }
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_file() => files::remove_if_there(path),
        Ok(meta) if meta.mode() & 0o600 != 0o600 => file_image::make_readable(path),
        _ => Ok(()),
    }
}

/// The file that supervisors hold locked while anything of a session is alive.
pub(crate) fn session_lock(project: &Project) -> Result<PathBuf> {
    let path = project.iterations().join("session.lock");
    only_regular(&path)?;
    Ok(path)
}

/// After a runner was killed, its supervisor ends what is left: until then
/// nothing here may be touched.
fn wait_for_orphans(project: &Project) -> Result<()> {
    let path = session_lock(project)?;
    let Ok(file) = files::open_no_trap(&path) else {
        return Ok(());
    };
    let deadline = Instant::now() + ORPHANS;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            return Err(Error::new(
                ErrorCode::Locked,
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
