//! Before the first git call after a session that was cut off: what it planted in
//! git's own files is taken out again, by plain file I/O.
//!
//! A runner that was killed could not do so itself. Those who only look
//! ([`open_to_look`]) refuse to call git as long as that has not been done.

use std::path::PathBuf;

use runner_core::journal::{JournalRecord, JournalStart};

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, OwnFiles, RunBranch};
use crate::project::Project;
use crate::run_context::{RunContext, RunProgress};
use crate::state::log::Journal;
use crate::step::branch_of;
use crate::step::file_image;

/// The largest saved copy that is read.
const MAX_SAVED: u64 = 1 << 30;

/// A session after which nobody has cleaned up.
struct CutOff {
    started: JournalStart,
    records: Vec<JournalRecord>,
    folder: PathBuf,
}

/// Opens the repository for whoever holds the lock of the project.
pub(crate) fn open(project: &Project, context: &mut RunContext<'_>) -> Result<Git> {
    for session in cut_off(project) {
        session.disarm(project, context)?;
    }
    // Only now: `.git` itself may have been among what was planted.
    Git::open(project.root())
}

/// Opens the repository for whoever only looks and changes nothing.
pub(crate) fn open_to_look(project: &Project) -> Result<Git> {
    for session in cut_off(project) {
        let changed = match session.saved(project) {
            Some(own_files) => own_files.differing(project.root())?,
            None => return Err(session.no_saved_copy(project)),
        };
        if !changed.is_empty() {
            return Err(Error::new(
                ErrorCode::Git,
                format!(
                    "the session of iteration {} changed files of git itself, which may run code: {}",
                    session.started.iter,
                    changed.join(", ")
                ),
            )
            .hint("wait for its end; if it was cut off, `runner step` puts them back"));
        }
    }
    Git::open(project.root())
}

/// The newest iteration of each run, if its session may have left something.
fn cut_off(project: &Project) -> Vec<CutOff> {
    let runs = project.run_folders();
    runs.iter()
        .filter_map(|run| {
            let iter = *project.iteration_numbers(run).last()?;
            let folder = project.iteration(run, iter);
            let records = Journal::read(&folder);
            let Some(JournalRecord::Started(started)) = records.first().cloned() else {
                return None;
            };
            let over = |record: &JournalRecord| {
                matches!(
                    record,
                    JournalRecord::Decided(_)
                        | JournalRecord::Committed
                        | JournalRecord::GitRestored
                )
            };
            let open = !records.iter().any(over);
            let ours =
                started.run_id == *run && started.iter == iter && started.branch == branch_of(run);
            (ours && open).then_some(CutOff {
                started,
                records,
                folder,
            })
        })
        .collect()
}

impl CutOff {
    fn saved(&self, project: &Project) -> Option<OwnFiles> {
        let name = &self.started.git_files;
        let path = project.run_folder(&self.started.run_id).join(name);
        let bytes = files::read_regular(&path, MAX_SAVED).ok()?;
        OwnFiles::from_stored(name, &bytes)
    }

    /// Puts everything back, once: later changes are a person's.
    fn disarm(&self, project: &Project, context: &mut RunContext<'_>) -> Result<()> {
        let own_files = self
            .saved(project)
            .ok_or_else(|| self.no_saved_copy(project))?;
        let relative = self.folder.strip_prefix(project.root());
        file_image::make_folder_chain(project.root(), relative.unwrap_or(&self.folder))?;
        let quarantine = self.folder.join("quarantine");
        let run = RunBranch {
            branch: &self.started.branch,
            head: &self.started.head,
        };
        let put_back = own_files.restore(project.root(), run, &quarantine)?;
        if !put_back.changed.is_empty() {
            context.observer.progress(&RunProgress::Note(&format!(
                "put back as they were when iteration {} began: {} (the changed ones are in {})",
                self.started.iter,
                put_back.changed.join(", "),
                quarantine.display()
            )));
        }
        Journal::open(&self.folder, &self.records)?.append_synced(&JournalRecord::GitRestored)?;
        Ok(())
    }

    fn no_saved_copy(&self, project: &Project) -> Error {
        let saved = project.run_folder(&self.started.run_id);
        let saved = saved.join(&self.started.git_files);
        Error::new(
            ErrorCode::Git,
            format!(
                "{} is missing or has been changed, so it cannot be told whether the session of \
                 iteration {} planted something in .git",
                saved.display(),
                self.started.iter
            ),
        )
        .hint(format!(
            "look at .git/config, .git/hooks and .git/info, then remove {} and try again",
            Journal::path(&self.folder).display()
        ))
    }
}
