//! What sessions on this machine are told besides their packet, and what they learn from
//! the failures of others: the file `context/context-delta.json`.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_ledger::LedgerClock;
use runner_lifecycle::{FailureCategory, Task, Timestamp};
use rustix::fs::{FlockOperation, flock};

use crate::host::HostProfile;
use crate::roles::SessionNotes;
use crate::rules::context::{FailureDelta, session_context};
use crate::rules::role;

/// The file below the fleet's folder.
pub const DELTA: &str = "context/context-delta.json";

/// More than twelve failures take.
const MAX_BYTES: u64 = 256 * 1024;

/// Notes in files of the project.
pub struct LocalNotes {
    path: PathBuf,
    host: HostProfile,
    clock: Arc<dyn LedgerClock>,
}

impl LocalNotes {
    /// Below that folder of the fleet.
    pub fn new(fleet_dir: &Path, host: HostProfile, clock: Arc<dyn LedgerClock>) -> LocalNotes {
        LocalNotes {
            path: fleet_dir.join(DELTA),
            host,
            clock,
        }
    }

    fn read(&self) -> FailureDelta {
        match runner::files::read_regular(&self.path, MAX_BYTES) {
            Ok(bytes) => FailureDelta::read(&bytes),
            Err(_) => FailureDelta::default(),
        }
    }

    fn add(
        &self,
        category: FailureCategory,
        signature: &str,
        note: &str,
        now: Timestamp,
    ) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            runner::files::make_folder(folder)?;
        }
        // Held over reading and writing: workers of other processes add theirs.
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut delta = self.read();
        delta.add(signature, category, note, now);
        runner::files::write_whole(&self.path, &delta.to_bytes())
    }
}

impl SessionNotes for LocalNotes {
    fn context(&self, task: &Task) -> String {
        let host = self.host.snapshot().map(|known| known.lines);
        let delta = self.read().lines(self.clock.now());
        let host = host.unwrap_or_default();
        session_context(role::by_name(&task.role), &host, &delta)
    }

    fn failed(&self, _task: &Task, signature: &str, note: &str, now: Timestamp) {
        // A failure that nothing tells from others teaches nothing.
        let category = signature.split_once(':').map(|(word, _)| word);
        if let Some(category) = category.and_then(FailureCategory::parse) {
            // It only helps: work does not stop for it.
            let _ = self.add(category, signature, note, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use runner_ledger::SystemClock;
    use runner_lifecycle::TaskId;

    use super::*;
    use crate::rules::host::SnapshotSource;

    fn notes(folder: &Path) -> LocalNotes {
        let clock: Arc<dyn LedgerClock> = Arc::new(SystemClock);
        let look = Box::new(|| {
            Some((
                SnapshotSource::Uname,
                "Linux 6.1 x86_64 GNU/Linux".to_owned(),
            ))
        });
        let host = HostProfile::new(folder, Arc::clone(&clock), look);
        host.refresh();
        LocalNotes::new(folder, host, clock)
    }

    #[test]
    fn failures_of_one_are_told_to_the_next() {
        let temp = tempfile::tempdir().unwrap();
        let notes = notes(temp.path());
        let mut task = Task::blank(TaskId::parse("a").unwrap());
        "tester".clone_into(&mut task.role);
        let now = SystemClock.now();
        notes.failed(&task, "test:0123", "assertion failed: left == right", now);
        notes.failed(&task, "", "nothing to tell it by", now);
        let told = notes.context(&task);
        assert!(told.starts_with("You are a tester"), "{told}");
        assert!(told.contains("\nKernel: Linux 6.1"), "{told}");
        assert!(
            told.ends_with("- test: assertion failed: left == right"),
            "{told}"
        );
    }

    #[test]
    fn nothing_is_lost_when_many_fail_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let notes = notes(temp.path());
        std::thread::scope(|scope| {
            for at in 0..8 {
                let notes = &notes;
                scope.spawn(move || {
                    notes
                        .add(
                            FailureCategory::Env,
                            &format!("env:{at}"),
                            "x",
                            Timestamp(at),
                        )
                        .unwrap();
                });
            }
        });
        assert_eq!(notes.read().failures.len(), 8);
    }
}
