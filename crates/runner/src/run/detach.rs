//! The log of a loop that has no terminal.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use crate::error::Result;
use crate::files;
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::state;
use crate::state::activity::loop_log;
use crate::step;

/// A log that has grown beyond this makes way for a new one; one older is kept.
const ROTATE_BYTES: u64 = 1024 * 1024;

/// The log that a detached loop is about to write.
#[derive(Debug)]
pub struct LoopLog {
    /// The run.
    pub run_id: String,
    /// Where it lies.
    pub path: PathBuf,
    /// To append to.
    pub file: File,
    /// How long it was when it was opened.
    begin: u64,
}

impl LoopLog {
    /// Opens the log of the current run; refused while a runner is at work.
    pub fn open(project: &Project) -> Result<Self> {
        project.need_state()?;
        let run_id = state::load_run_state(project)
            .map_err(|problem| state::into_error(&[problem]))?
            .run_id
            .ok_or_else(|| step::identity_error("no run has been started here"))?;
        // The log of a loop at work is its own.
        ProjectLock::refuse_if_held(project)?;
        files::make_folder(&project.run_folder(&run_id))?;
        let path = loop_log(project, &run_id);
        match path.symlink_metadata() {
            // A session may have put anything there.
            Ok(meta) if !meta.is_file() => files::remove_if_there(&path)?,
            Ok(meta) if meta.len() > ROTATE_BYTES => {
                files::rename(&path, &path.with_extension("log.1"))?;
            }
            _ => {}
        }
        let file = files::open_to_append(&path)?;
        let begin = file.metadata()?.len();
        Ok(LoopLog {
            run_id,
            path,
            file,
            begin,
        })
    }

    /// What has been written since it was opened; the end of it, if that is much.
    pub fn since_opened(&self) -> String {
        let mut bytes = Vec::new();
        let mut file = &self.file;
        let from = file
            .metadata()
            .map_or(self.begin, |meta| meta.len().saturating_sub(ROTATE_BYTES))
            .max(self.begin);
        let read = file
            .seek(SeekFrom::Start(from))
            .and_then(|_| file.take(ROTATE_BYTES).read_to_end(&mut bytes));
        // What cannot be read cannot be shown; the path is told anyway.
        let _ = read;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
