//! An iteration under way: its folder, its journal, what was there before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::digest::sha256_hex;
use runner_core::journal::{Record, Started};
use runner_core::paths;
use serde_json::Value;

use crate::belongings::{Belongings, blob_name};
use crate::error::{Code, Error, Result};
use crate::files::{self, Batch};
use crate::git::{Git, IndexSignature, OwnFiles};
use crate::host::Clock;
use crate::log::{Events, Journal};
use crate::project::Project;

/// tree.json as HEAD has it.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    bytes: Option<Arc<Vec<u8>>>,
}

impl Before {
    /// `None`: there is no such file.
    pub(crate) fn new(bytes: Option<Arc<Vec<u8>>>) -> Self {
        Before { bytes }
    }

    /// The bytes, if there is a file.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_ref().map(|bytes| bytes.as_slice())
    }

    /// SHA-256, or nothing where there is no file.
    pub(crate) fn sha256(&self) -> String {
        self.bytes().map(sha256_hex).unwrap_or_default()
    }

    /// Refuses a tree in the work tree that is not HEAD's.
    pub(crate) fn prove(&self, belongings: &Belongings) -> Result<()> {
        let entry = belongings
            .tracked
            .iter()
            .find(|entry| entry.path == Path::new(paths::TREE));
        let same = match (self.bytes(), entry) {
            (Some(bytes), Some(entry)) => blob_name(bytes, entry.oid.len()) == entry.oid,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if same {
            return Ok(());
        }
        Err(Error::new(
            Code::Dirty,
            format!(
                "{} differs from HEAD, although git does not show it",
                paths::TREE
            ),
        )
        .hint("commit it with `git add -f .runner/state/tree.json && git commit`"))
    }
}

/// An iteration under way.
#[derive(Debug)]
pub(crate) struct Iteration {
    pub(crate) started: Started,
    pub(crate) folder: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) before: Before,
    /// Git's own files as they were; in recovery read from the saved copy.
    pub(crate) own_files: Option<OwnFiles>,
    /// Git's index as it was when it was last looked through; `None` after a crash.
    pub(crate) index_signature: Option<IndexSignature>,
    /// What the guard left untracked.
    pub(crate) guard_untracked: Vec<String>,
    /// Remarks for people.
    pub(crate) notes: Vec<String>,
    /// The commit the iteration's commit will stand on.
    pub(crate) parent: String,
    events: Events,
    decided: bool,
}

impl Iteration {
    /// Makes the folder and writes down that and how the step began. Nothing
    /// else has been touched before this returns.
    pub(crate) fn begin(
        project: &Project,
        git: &Git,
        started: Started,
        git_files: &[u8],
        before: Before,
    ) -> Result<Self> {
        let run_folder = project.run_folder(&started.run_id);
        let folder = project.iteration(&started.run_id, started.iter);
        files::make_folder(&run_folder)?;
        move_aside(&folder)?;
        let saved = run_folder.join(&started.git_files);
        if saved.symlink_metadata().is_err() {
            files::write_whole(&saved, git_files)?;
        }
        files::make_folder(&folder)?;
        let journal = Journal::open(&folder, &[Record::Started(started.clone())])?;
        files::sync_folder(&run_folder)?;
        let mut it = Iteration::assemble(project, started, folder, journal, before);
        it.index_signature = git.index_signature();
        it.save_before(project)?;
        Ok(it)
    }

    /// Takes an unfinished iteration up again.
    pub(crate) fn reopen(
        project: &Project,
        started: Started,
        records: &[Record],
        before: Before,
    ) -> Result<Self> {
        let folder = project.iteration(&started.run_id, started.iter);
        let journal = Journal::open(&folder, records)?;
        let mut it = Iteration::assemble(project, started, folder, journal, before);
        let saved = project
            .run_folder(&it.started.run_id)
            .join(&it.started.git_files);
        it.own_files = files::read_regular(&saved, 64 << 20)
            .ok()
            .and_then(|bytes| OwnFiles::from_stored(&bytes));
        Ok(it)
    }

    fn assemble(
        project: &Project,
        started: Started,
        folder: PathBuf,
        journal: Journal,
        before: Before,
    ) -> Self {
        Iteration {
            events: Events::of(&project.run_folder(&started.run_id)),
            parent: started.head.clone(),
            started,
            folder,
            journal,
            before,
            own_files: None,
            index_signature: None,
            guard_untracked: Vec::new(),
            notes: Vec::new(),
            decided: false,
        }
    }

    /// `tree.before.json`: the same file as the last `tree.after.json` where
    /// they say the same, for it never changes again.
    pub(crate) fn save_before(&self, project: &Project) -> io::Result<()> {
        let target = self.folder.join("tree.before.json");
        let Some(bytes) = self.before.bytes() else {
            return Ok(());
        };
        let previous = self.started.iter.checked_sub(1).map(|iter| {
            project
                .iteration(&self.started.run_id, iter)
                .join("tree.after.json")
        });
        let mut batch = Batch::new();
        match previous {
            Some(previous) if has_content(&previous, bytes) => {
                batch.same_as(&previous, &target, bytes)?;
            }
            _ => batch.write(&target, bytes)?,
        }
        batch.commit()
    }

    /// Where the agent's output is expected.
    pub(crate) fn output_path(&self) -> PathBuf {
        self.folder.join("output.json")
    }

    /// Where things go that must not stay in the project.
    pub(crate) fn quarantine(&self) -> PathBuf {
        self.folder.join("quarantine")
    }

    /// From here on an error is not rolled up but finished later.
    pub(crate) fn set_decided(&mut self) {
        self.decided = true;
    }

    /// Whether the decision is in the journal.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided
    }

    /// Adds to `events.jsonl`; viewers miss a line if that fails, nothing else.
    pub(crate) fn log_event(&self, clock: &dyn Clock, event: &str, more: Value) {
        let _ = self
            .events
            .add(&clock.stamp(), Some(self.started.iter), event, more);
    }

    /// Puts git's own files back; the names of those that had changed.
    pub(crate) fn restore_git_files(&self, project: &Project) -> Result<Vec<String>> {
        match &self.own_files {
            Some(own_files) => Ok(own_files.restore(project.root(), &self.quarantine())?),
            None => Ok(Vec::new()),
        }
    }
}

/// Whether a file has exactly this content.
pub(crate) fn has_content(path: &Path, bytes: &[u8]) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == bytes.len() as u64)
        && fs::read(path).is_ok_and(|found| found == bytes)
}

/// A folder that is in the way is kept as `<n>.stale-<k>`.
pub(crate) fn move_aside(folder: &Path) -> io::Result<()> {
    // An empty one is what a crash right after its making leaves.
    if folder.symlink_metadata().is_err() || fs::remove_dir(folder).is_ok() {
        return Ok(());
    }
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let free = (1..).map(|k| folder.with_file_name(format!("{name}.stale-{k}")));
    for target in free {
        if target.symlink_metadata().is_err() {
            return fs::rename(folder, &target).map_err(|error| files::at(folder, error));
        }
    }
    Ok(())
}
