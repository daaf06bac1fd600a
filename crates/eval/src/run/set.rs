//! A set: all runs of one call of `eval run`. Its record is written before the first of them, so
//! that a call that was cut off can be taken up again as it was meant.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use runner::{Error, ErrorCode, Result, WallClock, files};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::folders::EvalFolders;
use crate::record::{RECORD_VERSION, json_bytes};

const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What a set is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetRecord {
    /// Version of this format.
    pub schema_version: u32,
    /// Its name: the time and four digits.
    pub set: String,
    /// What the caller named it.
    pub label: Option<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// The cases, each with the hash of its file.
    pub cases: Vec<(String, String)>,
    /// Runs of each case.
    pub runs: u32,
    /// `[executor]` in place of those of the cases, as TOML.
    pub executor: Option<String>,
    /// `[executor]` of the project when the set began, as TOML.
    pub project_executor: Option<String>,
    /// INSTRUCTIONS.md of every workspace.
    pub instructions: Option<String>,
    /// How the runner is called, where it is not this binary.
    pub runner: Option<PathBuf>,
    /// What all runs together may cost.
    pub max_cost_usd: Option<f64>,
    /// Whether every run has been made.
    pub finished: bool,
}

/// A set in use by this process alone.
#[derive(Debug)]
pub(crate) struct OpenSet {
    pub(crate) record: SetRecord,
    path: PathBuf,
    _lock: File,
}

impl OpenSet {
    /// Writes down a new one.
    pub(crate) fn begin(
        folders: &EvalFolders,
        mut record: SetRecord,
        clock: &dyn WallClock,
    ) -> Result<Self> {
        let folder = folders.sets();
        files::make_folder(&folder)?;
        let now = clock.now();
        let time = now.strftime("%Y%m%d-%H%M%S");
        // Two calls in the same second are told apart by it.
        let digits = (now.subsec_nanosecond() / 1000).unsigned_abs() ^ std::process::id();
        record.set = format!("{time}-{:04x}", digits & 0xffff);
        record.started_at = clock.stamp();
        record.schema_version = RECORD_VERSION;
        let path = folder.join(format!("{}.json", record.set));
        let lock = lock(&path)?.ok_or_else(|| {
            Error::new(
                ErrorCode::Locked,
                format!("the set {} is in use", record.set),
            )
            .hint("try again")
        })?;
        let set = OpenSet {
            record,
            path,
            _lock: lock,
        };
        set.write()?;
        Ok(set)
    }

    /// The newest one that is not finished and that nobody works on.
    pub(crate) fn unfinished(folders: &EvalFolders) -> Result<Self> {
        let mut running = None;
        for path in records(&folders.sets())?.into_iter().rev() {
            let Some(record) = read(&path).filter(|record| !record.finished) else {
                continue;
            };
            match lock(&path)? {
                None => running = Some(record.set),
                Some(file) => {
                    // It may have been finished between the look and the lock.
                    let Some(record) = read(&path).filter(|record| !record.finished) else {
                        continue;
                    };
                    return Ok(OpenSet {
                        record,
                        path,
                        _lock: file,
                    });
                }
            }
        }
        Err(match running {
            Some(set) => Error::new(ErrorCode::Locked, format!("the set {set} is still running"))
                .hint("wait for it, or end it with Ctrl-C first"),
            None => Error::new(
                ErrorCode::NotFound,
                "there is no set of runs to take up again",
            )
            .hint("every set is finished; `runner eval run CASE` begins a new one"),
        })
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        self.record.finished = true;
        self.write()
    }

    /// Writes changes down.
    pub(crate) fn write(&self) -> Result<()> {
        Ok(files::write_whole(&self.path, &json_bytes(&self.record))?)
    }
}

fn records(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Option<SetRecord> {
    let bytes = files::read_regular(path, MAX_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The lock beside a record; `None` while another process has it. The kernel lets go of it when
/// its holder ends, however it ends.
fn lock(path: &Path) -> Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.with_extension("lock"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}
