//! Names that an agent has in every life, and nobody else at the same time: whoever comes
//! back under its old name gives back at once what its earlier life held.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long whoever was killed may still hold its name.
const LETTING_GO: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The most agents of one role on one machine.
const MAX_NUMBER: u32 = 1000;

/// A name, for as long as this lives.
#[derive(Debug)]
pub struct AgentName {
    text: String,
    _lock: File,
}

impl AgentName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Where the names of a project's agents are given out.
#[derive(Clone, Debug)]
pub struct AgentNames {
    folder: PathBuf,
    /// What every name ends with, where several machines share a store.
    suffix: String,
}

impl AgentNames {
    /// Of that project. `host`: names carry it, since other machines give out names too.
    pub fn of_project(fleet_dir: &Path, host: Option<&str>) -> AgentNames {
        AgentNames {
            folder: fleet_dir.join("agents"),
            suffix: host.map_or(String::new(), |host| format!("@{host}")),
        }
    }

    /// The first free name of a role: `worker-1`, `worker-2`.
    pub fn next(&self, role: &str) -> io::Result<AgentName> {
        for number in 1..=MAX_NUMBER {
            if let Some(name) = self.try_take(&format!("{role}-{number}"))? {
                return Ok(name);
            }
        }
        Err(io::Error::other(format!("{MAX_NUMBER} names are taken")))
    }

    /// One name, if it is free or becomes so in a moment: of somebody who was killed while
    /// starting a program, the name is held until that program has begun.
    pub fn take(&self, word: &str) -> io::Result<Option<AgentName>> {
        let give_up_at = Instant::now() + LETTING_GO;
        loop {
            let taken = self.try_take(word)?;
            if taken.is_some() || Instant::now() >= give_up_at {
                return Ok(taken);
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }

    fn try_take(&self, word: &str) -> io::Result<Option<AgentName>> {
        let path = self.folder.join(format!("{word}.lock"));
        runner::files::make_folder(&self.folder)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        // Whoever may not write here wants to know where.
        let file = file.map_err(|error| {
            let words = format!("{}: {error}", path.display());
            io::Error::new(error.kind(), words)
        })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(AgentName {
                text: format!("{word}{}", self.suffix),
                _lock: file,
            })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_free() {
        let temp = tempfile::tempdir().unwrap();
        let names = AgentNames::of_project(temp.path(), None);
        let first = names.next("worker").unwrap();
        let second = names.next("worker").unwrap();
        assert_eq!([first.as_str(), second.as_str()], ["worker-1", "worker-2"]);
        drop(first);
        assert_eq!(names.next("worker").unwrap().as_str(), "worker-1");
        assert!(names.take("worker-2").unwrap().is_none());
        // Given back while somebody asks for it.
        let asked = std::thread::spawn({
            let names = names.clone();
            move || names.take("worker-2").unwrap().is_some()
        });
        drop(second);
        assert!(asked.join().unwrap());
        std::fs::create_dir(temp.path().join("agents/taken.lock")).unwrap();
        let error = names.take("taken").unwrap_err().to_string();
        assert!(error.contains("agents/taken.lock: "), "{error}");
        let far = AgentNames::of_project(temp.path(), Some("oak"));
        assert_eq!(far.next("judge").unwrap().as_str(), "judge-1@oak");
    }
}
