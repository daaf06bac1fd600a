//! The logs of a run: the journal of each step and the events of the whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::digest::sha256_hex;
use runner_core::journal::{self, JournalRecord};
use serde_json::{Map, Value, json};

use crate::fault;
use crate::files;

/// The journal of one step: appended and, where a crash must find it, synced.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    text: String,
}

impl Journal {
    /// Where the journal of an iteration lies.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join("journal.jsonl")
    }

    /// Reads the journal in an iteration's folder.
    pub(crate) fn read(folder: &Path) -> Vec<JournalRecord> {
        files::read_regular(&Self::path(folder), journal::MAX_BYTES as u64)
            .map(|bytes| journal::parse(&bytes))
            .unwrap_or_default()
    }

    /// Begins or continues a journal with the records it has so far.
    pub(crate) fn open(folder: &Path, records: &[JournalRecord]) -> io::Result<Self> {
        let path = Self::path(folder);
        let text: String = records.iter().map(journal::to_line).collect();
        files::write_whole(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Journal { path, file, text })
    }

    /// Adds a record that a crash may lose. After an error it is not there.
    pub(crate) fn note(&mut self, record: &JournalRecord) -> io::Result<()> {
        fault::point("journal")?;
        let before = self.text.len();
        let in_place = self.is_in_place();
        self.text.push_str(&journal::to_line(record));
        let written = if in_place {
            self.file.write_all(&self.text.as_bytes()[before..])
        } else {
            self.write_anew()
        };
        if written.is_err() {
            self.take_back(before);
        }
        written
    }

    /// Adds that the iteration is in git, and what everything before was.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let journal_sha256 = Some(sha256_hex(self.text.as_bytes()));
        self.note(&JournalRecord::Committed { journal_sha256 })
    }

    /// Adds a record that must be there after a crash. After an error it is not
    /// there: whoever goes on may decide otherwise.
    pub(crate) fn append_synced(&mut self, record: &JournalRecord) -> io::Result<()> {
        let before = self.text.len();
        self.note(record)?;
        let synced = fault::point("journal-fsync").and_then(|()| self.file.sync_data());
        if synced.is_err() {
            self.take_back(before);
        }
        synced
    }

    /// A session removed or replaced it, or a write was torn: the copy in memory
    /// is the truth.
    fn write_anew(&mut self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            files::make_folder(folder)?;
        }
        files::write_whole(&self.path, self.text.as_bytes())?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        Ok(())
    }

    fn take_back(&mut self, len: usize) {
        self.text.truncate(len);
        // If that fails too, the file is not in place, and is written anew.
        let _ = self.file.set_len(len as u64);
    }

    /// Whether the file is still ours and says what it should.
    fn is_in_place(&self) -> bool {
        let (Ok(there), Ok(ours)) = (self.path.symlink_metadata(), self.file.metadata()) else {
            return false;
        };
        there.is_file()
            && (there.dev(), there.ino()) == (ours.dev(), ours.ino())
            && there.len() == self.text.len() as u64
            && std::fs::read(&self.path).is_ok_and(|bytes| bytes == self.text.as_bytes())
    }
}

/// The event of a person's edit that became a commit of the run.
pub(crate) const RUN_EDITED: &str = "run_edited";
/// The event of a landing.
pub(crate) const RUN_LANDED: &str = "run_landed";

/// `events.jsonl` of a run: for viewers, not for decisions, so never synced.
#[derive(Clone, Debug)]
pub(crate) struct EventLog {
    path: PathBuf,
}

impl EventLog {
    /// The events of a run.
    pub(crate) fn of(run_folder: &Path) -> Self {
        EventLog {
            path: Self::path(run_folder),
        }
    }

    /// Where the events of a run lie.
    pub(crate) fn path(run_folder: &Path) -> PathBuf {
        run_folder.join("events.jsonl")
    }

    /// Notes the run's last commit, as a person made or landed it. It counts whether or not the log
    /// hears of it.
    pub(crate) fn note_commit(&self, ts: &str, event: &str, commit: &str) {
        let folder = self.path.parent().unwrap_or(&self.path);
        let noted = files::make_folder(folder)
            .and_then(|()| self.add(ts, None, event, json!({"commit": commit})));
        drop(noted);
    }

    /// Appends one event with its time.
    pub(crate) fn add(
        &self,
        ts: &str,
        iter: Option<u32>,
        event: &str,
        more: Value,
    ) -> io::Result<()> {
        let mut object = Map::new();
        object.insert("ts".into(), json!(ts));
        object.insert("iter".into(), json!(iter));
        object.insert("event".into(), json!(event));
        if let Value::Object(more) = more {
            object.extend(more);
        }
        let mut line = Value::Object(object).to_string();
        line.push('\n');
        if self.ends_torn() {
            line.insert(0, '\n');
        }
        files::append(&self.path, line.as_bytes())
    }

    /// Whether a crash cut the last line off.
    fn ends_torn(&self) -> bool {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let Ok(mut file) = files::open_no_trap(&self.path) else {
            return false;
        };
        let mut last = [b'\n'];
        let _ = file
            .seek(SeekFrom::End(-1))
            .and_then(|_| file.read_exact(&mut last));
        last != [b'\n']
    }
}
