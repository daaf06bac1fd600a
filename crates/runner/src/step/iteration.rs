//! An iteration under way: its folder, its journal, what was there before.

use std::cell::OnceCell;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::config::BackendKind;
use runner_core::digest::sha256_hex;
use runner_core::journal::{JournalRecord, JournalStart};
use runner_core::meta::RecordedEvents;
use runner_core::paths;
use serde_json::Value;

use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, FileBatch};
use crate::project::Project;
use crate::run_context::WallClock;
use crate::state::log::{EventLog, Journal};
use crate::state::recorded_files;
use crate::step::context::read_meta;
use crate::step::head_files::blob_name;
use crate::step::protected_files::ProtectedFiles;

/// tree.json as HEAD has it.
#[derive(Clone, Debug)]
pub(crate) struct TreeBefore {
    bytes: Option<Arc<Vec<u8>>>,
    sha256: OnceCell<String>,
}

impl TreeBefore {
    /// `None`: there is no such file.
    pub(crate) fn new(bytes: Option<Arc<Vec<u8>>>) -> Self {
        TreeBefore {
            bytes,
            sha256: OnceCell::new(),
        }
    }

    /// The bytes, if there is a file.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_ref().map(|bytes| bytes.as_slice())
    }

    /// The same, shared.
    pub(crate) fn shared(&self) -> Option<Arc<Vec<u8>>> {
        self.bytes.clone()
    }

    /// SHA-256, or nothing where there is no file.
    pub(crate) fn sha256(&self) -> &str {
        self.sha256
            .get_or_init(|| self.bytes().map(sha256_hex).unwrap_or_default())
    }

    /// Refuses a tree in the work tree that is not HEAD's.
    pub(crate) fn prove(&self, protected: &ProtectedFiles<'_>) -> Result<()> {
        let entry = protected.entry(Path::new(paths::TREE));
        let same = match (self.bytes(), entry) {
            (Some(bytes), Some(entry)) => blob_name(bytes, entry.oid.len()) == entry.oid,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if same {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Dirty,
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
    pub(crate) started: JournalStart,
    pub(crate) folder: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) before: TreeBefore,
    /// Which backend its agent has.
    pub(crate) backend: BackendKind,
    /// How its children are contained.
    pub(crate) sandbox: &'static str,
    /// What the config opens to its children beside the usual.
    pub(crate) sandbox_opened: Vec<String>,
    /// Remarks for people.
    pub(crate) notes: Vec<String>,
    /// What its children asked for and were refused.
    pub(crate) network_refused: Vec<String>,
    events: EventLog,
    decided: bool,
}

impl Iteration {
    /// Makes the folder and writes down that and how the step began. Nothing
    /// else has been touched before this returns.
    pub(crate) fn begin(
        project: &Project,
        started: JournalStart,
        before: TreeBefore,
    ) -> Result<Self> {
        let run_folder = project.run_folder(&started.run_id);
        let folder = project.iteration(&started.run_id, started.iter);
        files::make_folder(&run_folder)?;
        move_aside(&folder)?;
        // After a reset by hand there may be more of them.
        for later in project.iteration_numbers(&started.run_id) {
            if later > started.iter {
                move_aside(&project.iteration(&started.run_id, later))?;
            }
        }
        files::make_folder(&folder)?;
        let journal = Journal::open(&folder, &[JournalRecord::Started(started.clone())])?;
        files::sync_folder(&run_folder)?;
        let it = Iteration::assemble(project, started, folder, journal, before);
        it.save_before(project)?;
        Ok(it)
    }

    /// Takes an unfinished iteration up again.
    pub(crate) fn reopen(
        project: &Project,
        started: JournalStart,
        records: &[JournalRecord],
        before: TreeBefore,
    ) -> Result<Self> {
        let folder = project.iteration(&started.run_id, started.iter);
        let journal = Journal::open(&folder, records)?;
        Ok(Iteration::assemble(
            project, started, folder, journal, before,
        ))
    }

    fn assemble(
        project: &Project,
        started: JournalStart,
        folder: PathBuf,
        journal: Journal,
        before: TreeBefore,
    ) -> Self {
        Iteration {
            events: EventLog::of(&project.run_folder(&started.run_id)),
            started,
            folder,
            journal,
            before,
            backend: BackendKind::Command,
            sandbox: "unknown",
            sandbox_opened: Vec::new(),
            notes: Vec::new(),
            network_refused: Vec::new(),
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
        let mut batch = FileBatch::new();
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

    /// What was added to `events.jsonl` since the iteration before was decided.
    pub(crate) fn record_events(&self, project: &Project) -> Option<RecordedEvents> {
        let run_id = &self.started.run_id;
        let earlier = self.started.iter.checked_sub(1);
        let earlier = earlier.and_then(|iter| read_meta(&project.iteration(run_id, iter)));
        let earlier = earlier.and_then(|meta| meta.events);
        recorded_files::record_events(&project.run_folder(run_id), earlier.as_ref())
    }

    /// Adds to `events.jsonl`; viewers miss a line if that fails, nothing else.
    pub(crate) fn log_event(&self, clock: &dyn WallClock, event: &str, more: Value) {
        let _ = self
            .events
            .add(&clock.stamp(), Some(self.started.iter), event, more);
    }
}

/// Whether a file has exactly this content; read in pieces, for it may be large.
pub(crate) fn has_content(path: &Path, mut bytes: &[u8]) -> bool {
    let same_size = |meta: fs::Metadata| meta.is_file() && meta.len() == bytes.len() as u64;
    if !fs::symlink_metadata(path).is_ok_and(same_size) {
        return false;
    }
    let Ok(mut file) = fs::File::open(path) else {
        return false;
    };
    // Not so large that every call would be given fresh pages.
    let mut piece = vec![0; (64 * 1024).min(bytes.len() + 1)];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return bytes.is_empty(),
            Ok(read) if bytes.len() >= read && bytes[..read] == piece[..read] => {
                bytes = &bytes[read..];
            }
            _ => return false,
        }
    }
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
