//! The project that is shown, looked up anew for each answer: it may not be there
//! yet, vanish, come back, or be another one behind the same link.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use runner::files::ReadError;
use runner::{ContentId, FileId, Project, RunReader, RunSnapshot};
use runner_core::journal::{self, JournalRecord, JournalStart};
use runner_core::meta::IterationMeta;
use runner_core::paths;

use crate::beneath;
use crate::reply::ApiRefusal;
use crate::trees::{CheckedTree, TreeCache};
use crate::wire::RunIterations;

/// The largest meta.json that is read.
const MAX_META: u64 = 32 * 1024 * 1024;

/// How much of a journal is read: its first line tells how the step began.
const MAX_JOURNAL: u64 = 1024 * 1024;

/// How many records of other runs are kept.
const MAX_RECORDS: usize = 20_000;

/// How many timelines of other runs are kept.
const MAX_OLD_RUNS: usize = 200;

/// Where answers come from.
pub(crate) struct RunSource {
    dir: PathBuf,
    reader: RunReader,
    trees: TreeCache,
    /// Apart, so that looking back does not cost the tree of today.
    past: TreeCache,
    records: Mutex<HashMap<PathBuf, (FileId, Arc<IterationMeta>)>>,
    bases: Mutex<HashMap<(PathBuf, String), String>>,
    old_runs: Mutex<HashMap<PathBuf, (RunId, Arc<RunIterations>)>>,
}

/// The folder of a run, and the record of its last iteration.
type RunId = (Option<FileId>, Option<FileId>);

/// An iteration that is there.
#[derive(Clone, Debug)]
pub(crate) struct FoundIteration {
    pub(crate) run: String,
    pub(crate) iter: u32,
}

impl FoundIteration {
    /// The folder below the project's root.
    fn parts(&self) -> [String; 4] {
        [
            ".runner".to_owned(),
            "iterations".to_owned(),
            self.run.clone(),
            self.iter.to_string(),
        ]
    }

    /// A file of it, below the project's root.
    pub(crate) fn open(&self, root: &Path, file: &str) -> io::Result<std::fs::File> {
        let parts = self.parts();
        let mut parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        parts.push(file);
        beneath::open(root, &parts)
    }

    /// The whole content of a file of it.
    pub(crate) fn read(&self, root: &Path, file: &str, max: u64) -> io::Result<Vec<u8>> {
        let parts = self.parts();
        let mut parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        parts.push(file);
        beneath::read(root, &parts, max).map(|(_, bytes)| bytes)
    }

    /// How it began, if its journal says so.
    pub(crate) fn started(&self, root: &Path) -> Option<JournalStart> {
        use std::io::Read as _;
        let file = self.open(root, "journal.jsonl").ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_JOURNAL).read_to_end(&mut bytes).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        match journal::parse(&bytes[..=end]).pop()? {
            JournalRecord::Started(started) => Some(started),
            _ => None,
        }
    }
}

impl RunSource {
    /// A source for the project at or around a folder.
    pub(crate) fn new(dir: PathBuf) -> Self {
        RunSource {
            dir: std::path::absolute(&dir).unwrap_or(dir),
            reader: RunReader::default(),
            trees: TreeCache::default(),
            past: TreeCache::default(),
            old_runs: Mutex::default(),
            records: Mutex::default(),
            bases: Mutex::default(),
        }
    }

    /// The folder as it was given.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The project as it lies there, if there is one right now. One whose folders are
    /// links, which may lead anywhere, is none.
    pub(crate) fn folder(&self) -> Option<Project> {
        let project = Project::find(&self.dir).ok()?;
        let folders = [
            project.runner_dir(),
            project.state(""),
            project.iterations(),
        ];
        let is_link = |path: &PathBuf| {
            // Without the slash at its end, which would follow it.
            let path: PathBuf = path.components().collect();
            path.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
        };
        (!folders.iter().any(is_link)).then_some(project)
    }

    /// The project as its run has it, wherever the checkout is.
    pub(crate) fn run(&self) -> Option<RunSnapshot> {
        Some(self.reader.read(&self.folder()?))
    }

    /// The same without what is known of the checkout, or the refusal.
    pub(crate) fn need_project(&self) -> Result<Project, ApiRefusal> {
        self.need_run().map(|run| run.project)
    }

    /// The same, or the refusal.
    pub(crate) fn need_run(&self) -> Result<RunSnapshot, ApiRefusal> {
        self.run().ok_or_else(|| {
            ApiRefusal::new(
                StatusCode::NOT_FOUND,
                "no_project",
                format!("there is no project in {} yet", self.dir.display()),
            )
            .hint("`runner init` makes one; this page follows by itself")
        })
    }

    /// The tree of the project.
    pub(crate) fn tree(&self, project: &Project) -> io::Result<CheckedTree> {
        let Some(id @ ContentId::Blob(_)) = project.content_id(paths::TREE) else {
            let parts = [".runner", "state", "tree.json"];
            return self.trees.get(project.root(), &parts);
        };
        let read = || runner::tree_bytes(project).map_err(io_error);
        self.trees.remember(&id, || Ok((id.clone(), read()?)))
    }

    /// A tree file of an iteration.
    pub(crate) fn tree_of(
        &self,
        root: &Path,
        it: &FoundIteration,
        file: &str,
    ) -> io::Result<CheckedTree> {
        let parts = it.parts();
        let mut parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        parts.push(file);
        self.past.get(root, &parts)
    }

    /// The timeline of a run that is not the current one, made once as long as the
    /// run's folder and its last record are the same.
    pub(crate) fn old_run(
        &self,
        project: &Project,
        run: &str,
        numbers: &[u32],
        make: impl FnOnce() -> RunIterations,
    ) -> Arc<RunIterations> {
        let folder = project.run_folder(run);
        let last = numbers.last().map(|iter| folder.join(iter.to_string()));
        let id = (
            FileId::at(&folder),
            last.and_then(|last| FileId::at(&last.join("meta.json"))),
        );
        let known = |runs: &HashMap<PathBuf, (RunId, Arc<RunIterations>)>| {
            let (known, rows) = runs.get(&folder)?;
            (*known == id && id.0.is_some_and(|folder| !folder.is_fresh())).then(|| rows.clone())
        };
        if let Some(rows) = known(&self.old_runs.lock().unwrap_or_else(PoisonError::into_inner)) {
            return rows;
        }
        let rows = Arc::new(make());
        let mut runs = self.old_runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= MAX_OLD_RUNS {
            runs.clear();
        }
        runs.insert(folder, (id, rows.clone()));
        rows
    }

    /// The record of an iteration; `None` while it is under way or after a crash.
    pub(crate) fn meta(&self, root: &Path, it: &FoundIteration) -> Option<Arc<IterationMeta>> {
        let path = root
            .join(".runner/iterations")
            .join(&it.run)
            .join(it.iter.to_string())
            .join("meta.json");
        let id = FileId::at(&path)?;
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, meta)) = records.get(&path)
            && *known == id
        {
            return Some(meta.clone());
        }
        let bytes = it.read(root, "meta.json", MAX_META).ok()?;
        let meta: IterationMeta = serde_json::from_slice(&bytes).ok()?;
        // What lies in the folder of one iteration cannot speak for another.
        if meta.iter != it.iter || meta.run_id != it.run {
            return None;
        }
        if records.len() >= MAX_RECORDS {
            records.clear();
        }
        let meta = Arc::new(meta);
        records.insert(path, (id, meta.clone()));
        Some(meta)
    }

    /// The branch that a run began on; asked of git once.
    pub(crate) fn base(&self, project: &Project, run: &str) -> Option<String> {
        let key = (project.root().to_owned(), run.to_owned());
        let known = |bases: &HashMap<_, String>| bases.get(&key).cloned();
        if let Some(base) = known(&self.bases.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Some(base);
        }
        let base = runner::base_of(project, run).ok().flatten()?;
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if bases.len() > 100 {
            bases.clear();
        }
        bases.insert(key, base.clone());
        Some(base)
    }
}

/// What keeps a file of a commit from being read, as if it lay there.
fn io_error(error: ReadError) -> io::Error {
    let kind = match error {
        ReadError::Io(error) => return error,
        ReadError::Absent => io::ErrorKind::NotFound,
        ReadError::NotRegular(_) => io::ErrorKind::InvalidInput,
        ReadError::TooLarge(_) => io::ErrorKind::FileTooLarge,
    };
    io::Error::new(kind, error.to_string())
}

/// The runs of a project with the numbers of their iterations, by name. The
/// current one is there even before its first iteration.
pub(crate) fn runs(project: &Project, current: Option<&str>) -> Vec<(String, Vec<u32>)> {
    beneath::folders(project.root(), &[".runner", "iterations"])
        .into_iter()
        .map(|run| {
            let iterations = iterations(project.root(), &run);
            (run, iterations)
        })
        .filter(|(run, iterations)| !iterations.is_empty() || current == Some(run))
        .collect()
}

/// The numbers of the iterations of a run, rising.
pub(crate) fn iterations(root: &Path, run: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = beneath::folders(root, &[".runner", "iterations", run])
        .iter()
        .filter_map(|name| {
            let number: u32 = name.parse().ok()?;
            (number.to_string() == *name).then_some(number)
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The iteration that a request names, matched against those that are there.
pub(crate) fn find(project: &Project, run: &str, iter: &str) -> Result<FoundIteration, ApiRefusal> {
    let known = beneath::folders(project.root(), &[".runner", "iterations"])
        .into_iter()
        .find(|known| known == run);
    let Some(known) = known else {
        return Err(ApiRefusal::not_found("there is no such run in this clone"));
    };
    let number = iterations(project.root(), &known)
        .into_iter()
        .find(|number| number.to_string() == iter);
    match number {
        Some(iter) => Ok(FoundIteration { run: known, iter }),
        None => Err(ApiRefusal::not_found(format!(
            "there is no such iteration of run {known} in this clone"
        ))),
    }
}
