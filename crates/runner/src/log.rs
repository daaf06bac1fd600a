//! The logs of a run: the journal of each step and the events of the whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::journal::{self, Record};
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
    pub(crate) fn read(folder: &Path) -> Vec<Record> {
        files::read_regular(&Self::path(folder), journal::MAX_BYTES as u64)
            .map(|bytes| journal::parse(&bytes))
            .unwrap_or_default()
    }

    /// Begins or continues a journal with the records it has so far.
    pub(crate) fn open(folder: &Path, records: &[Record]) -> io::Result<Self> {
        let path = Self::path(folder);
        let text: String = records.iter().map(journal::to_line).collect();
        files::write_whole(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Journal { path, file, text })
    }

    /// Adds a record that a crash may lose.
    pub(crate) fn note(&mut self, record: &Record) -> io::Result<()> {
        fault::point("journal")?;
        let line = journal::to_line(record);
        self.text.push_str(&line);
        if self.is_in_place() {
            self.file.write_all(line.as_bytes())
        } else {
            // A session removed or replaced it: the copy in memory is the truth.
            if let Some(folder) = self.path.parent() {
                files::make_folder(folder)?;
            }
            files::write_whole(&self.path, self.text.as_bytes())?;
            self.file = OpenOptions::new().append(true).open(&self.path)?;
            Ok(())
        }
    }

    /// Adds a record that must be there after a crash.
    pub(crate) fn promise(&mut self, record: &Record) -> io::Result<()> {
        self.note(record)?;
        fault::point("journal-fsync")?;
        self.file.sync_data()
    }

    fn is_in_place(&self) -> bool {
        let (Ok(there), Ok(ours)) = (self.path.symlink_metadata(), self.file.metadata()) else {
            return false;
        };
        there.is_file()
            && (there.dev(), there.ino()) == (ours.dev(), ours.ino())
            && std::fs::read(&self.path).is_ok_and(|bytes| {
                self.text.len() >= bytes.len() && self.text.as_bytes().starts_with(&bytes)
            })
    }
}

/// `events.jsonl` of a run: for viewers, not for decisions, so never synced.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    path: PathBuf,
}

impl Events {
    /// The events of a run.
    pub(crate) fn of(run_folder: &Path) -> Self {
        Events {
            path: run_folder.join("events.jsonl"),
        }
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
