//! What is kept of a run: `meta.json` and its neighbours, written whole and read back leniently.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner::{Error, ErrorCode, Result, files};
use serde::{Deserialize, Serialize};

use crate::case::EvalOutcome;

/// The version of the files that are written here.
pub const RECORD_VERSION: u32 = 1;

/// The largest record that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// `meta.json` of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalRecord {
    /// Version of this format.
    pub schema_version: u32,
    /// The case.
    pub case: String,
    /// SHA-256 of its file.
    pub case_hash: String,
    /// The run's own id: the set and a number.
    pub run: String,
    /// The call of `eval run` that it belongs to.
    pub set: String,
    /// What that call was named.
    pub label: Option<String>,
    /// Which of the runs of its case in the set, from 1.
    pub number: u32,
    /// What it came to.
    pub outcome: EvalOutcome,
    /// What it should have come to.
    pub expect: EvalOutcome,
    /// Why it is no success, in a few words that runs have in common.
    pub reason: Option<String>,
    /// The same at length.
    pub detail: Option<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub ended_at: String,
    /// From the first command in the workspace to the last check.
    pub duration_ms: u64,
    /// The loop's exit code; null when it did not end by itself.
    pub runner_exit: Option<i32>,
    /// The status of its last line.
    pub runner_status: Option<String>,
    /// How many iterations it took.
    pub iterations: u32,
    /// Sessions that did not get there: the attempts of all nodes in the end.
    pub attempts: u32,
    /// Leaves in the end.
    pub leaves: u32,
    /// Leaves that passed.
    pub passed: u32,
    /// Checks that passed.
    pub checks_passed: u32,
    /// All checks.
    pub checks: u32,
    /// The agent's part of the time.
    pub agent_ms: u64,
    /// The guard's part of the time.
    pub guard_ms: u64,
    /// Tokens, cached ones included; null when none are known.
    pub input_tokens: Option<u64>,
    /// Tokens from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
    /// Iterations of which no tokens are known.
    pub tokens_unknown: u32,
    /// US dollars; null when no cost is known.
    pub cost_usd: Option<f64>,
    /// Iterations whose cost is not known.
    pub cost_unknown: u32,
    /// What it was made with.
    #[serde(flatten)]
    pub setup: EvalSetup,
    /// Where it worked.
    pub workspace: PathBuf,
}

/// What a run was made with: runs that differ in it are not runs of the same thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EvalSetup {
    /// What `runner --version` says.
    pub runner_version: String,
    /// The agent.
    pub backend: String,
    /// Its model; empty where the CLI chose it.
    pub model: String,
    /// SHA-256 of the workspace's config.toml.
    pub config_hash: String,
    /// SHA-256 of the first prompt; null when there was none.
    pub prompt_hash: Option<String>,
    /// SHA-256 of INSTRUCTIONS.md; null without one.
    pub instructions_hash: Option<String>,
}

impl EvalRecord {
    /// Whether it came to what it should.
    pub fn is_expected(&self) -> bool {
        self.outcome == self.expect
    }

    /// Input and output tokens together, as far as known.
    pub fn tokens(&self) -> Option<u64> {
        match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0) + output.unwrap_or(0)),
        }
    }
}

/// One result of a check, as in `checks.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The check's `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it looked at.
    pub about: String,
    /// Whether it passed.
    pub passed: bool,
    /// What was seen where it did not.
    pub message: Option<String>,
    /// The end of what a command printed.
    pub output: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Every record below a results folder, oldest first, and the folders that hold none.
#[derive(Clone, Debug, Default)]
pub struct EvalRecords {
    /// The records.
    pub all: Vec<EvalRecord>,
    /// What could not be read, in words.
    pub unreadable: Vec<String>,
}

impl EvalRecords {
    /// Reads those of all cases, or of one.
    pub fn read(results: &Path, case: Option<&str>) -> Result<Self> {
        let mut records = EvalRecords::default();
        for folder in subfolders(results)? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || case.is_some_and(|case| case != name) {
                continue;
            }
            for run in subfolders(&folder)? {
                let hidden = run
                    .file_name()
                    .is_some_and(|it| it.as_encoded_bytes().starts_with(b"."));
                if hidden {
                    continue;
                }
                match read_record(&run.join("meta.json")) {
                    Ok(record) => records.all.push(record),
                    Err(why) => records.unreadable.push(format!("{}: {why}", run.display())),
                }
            }
        }
        let key = |it: &EvalRecord| (it.set.clone(), it.case.clone(), it.number);
        records.all.sort_by_key(key);
        Ok(records)
    }

    /// The sets in the order in which they were made, each with its label.
    pub fn sets(&self) -> Vec<(String, Option<String>)> {
        let mut sets = BTreeMap::new();
        for record in &self.all {
            sets.insert(record.set.clone(), record.label.clone());
        }
        sets.into_iter().collect()
    }

    /// The records that a word selects: `latest`, `previous`, a label, a set or the beginning of
    /// one, or the beginning of a config's or prompt's hash.
    pub fn select(&self, word: &str) -> Result<Vec<EvalRecord>> {
        let sets = self.sets();
        let by = |keep: &dyn Fn(&EvalRecord) -> bool| -> Vec<EvalRecord> {
            self.all.iter().filter(|it| keep(it)).cloned().collect()
        };
        let from_end = match word {
            "latest" => Some(1),
            "previous" => Some(2),
            _ => None,
        };
        if let Some(back) = from_end {
            let at = sets.len().checked_sub(back);
            let Some((set, _)) = at.and_then(|at| sets.get(at)) else {
                return Err(self.nothing_for(word));
            };
            return Ok(by(&|it| it.set == *set));
        }
        let labelled = by(&|it| it.label.as_deref() == Some(word));
        if !labelled.is_empty() {
            return Ok(labelled);
        }
        let begun: Vec<&String> = sets
            .iter()
            .map(|(set, _)| set)
            .filter(|set| set.starts_with(word))
            .collect();
        match begun.as_slice() {
            [set] => return Ok(by(&|it| it.set == **set)),
            [] => {}
            [first, .., last] => {
                return Err(Error::new(
                    ErrorCode::NotFound,
                    format!("{word:?} is the beginning of more than one set: {first} … {last}"),
                )
                .hint("give more of its name"));
            }
        }
        let hash = |hash: &str| word.len() >= 6 && hash.starts_with(word);
        let hashed = by(&|it| {
            hash(&it.setup.config_hash)
                || it.setup.prompt_hash.as_deref().is_some_and(hash)
                || it.setup.instructions_hash.as_deref().is_some_and(hash)
        });
        if hashed.is_empty() {
            return Err(self.nothing_for(word));
        }
        Ok(hashed)
    }

    fn nothing_for(&self, word: &str) -> Error {
        let sets = self.sets();
        let shown: Vec<String> = sets
            .iter()
            .rev()
            .take(5)
            .map(|(set, label)| match label {
                Some(label) => format!("{label} ({set})"),
                None => set.clone(),
            })
            .collect();
        let error = Error::new(
            ErrorCode::NotFound,
            format!("there are no runs for {word:?}"),
        );
        if shown.is_empty() {
            error.hint("there are no results yet: `runner eval run CASE`")
        } else {
            error.hint(format!("the newest sets are {}", shown.join(", ")))
        }
    }
}

fn read_record(path: &Path) -> Result<EvalRecord, String> {
    let bytes = files::read_regular(path, MAX_BYTES).map_err(|error| error.to_string())?;
    let record: EvalRecord = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if record.schema_version > RECORD_VERSION {
        return Err(format!(
            "it is of version {}, newer than this runner",
            record.schema_version
        ));
    }
    Ok(record)
}

/// The folders in a folder, sorted; none where there is no such folder.
pub(crate) fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// JSON as files have it.
pub(crate) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    // Plain data with string keys: there is nothing that could fail.
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
