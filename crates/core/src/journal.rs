//! The journal of a step: what was begun and what was decided, one JSON object
//! a line, so that whoever comes after a crash can settle it.

use serde::{Deserialize, Serialize};

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case", deny_unknown_fields)]
pub enum JournalRecord {
    /// Written before anything changes.
    Started(JournalStart),
    /// The agent and all that it started are gone.
    AgentEnded {
        /// Its exit code, if it ended by itself.
        exit_code: Option<i32>,
    },
    /// The guard and all that it started are gone.
    GuardEnded {
        /// Its exit code, if it ended by itself.
        exit_code: Option<i32>,
    },
    /// Earlier versions: the session left the run's branch, everything is being saved and the
    /// branch put back.
    Rescuing {
        /// The commit that the branch is put back at.
        head: String,
    },
    /// Earlier versions, after a crash: git's own files are what they were before the session.
    GitRestored,
    /// From here on the step is finished exactly as written here.
    Decided(Box<JournalDecision>),
    /// The iteration is in git.
    Committed {
        /// SHA-256 of the journal up to here; earlier versions had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal_sha256: Option<String>,
    },
}

impl JournalRecord {
    /// Whether it says that the iteration is in git.
    pub fn is_end(&self) -> bool {
        matches!(self, JournalRecord::Committed { .. })
    }
}

/// How a step began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalStart {
    /// The run.
    pub run_id: String,
    /// The iteration.
    pub iter: u32,
    /// The leaf, or `repair-tree`.
    pub node_id: String,
    /// HEAD at that time.
    pub head: String,
    /// The run's branch, without `refs/heads/`.
    pub branch: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Earlier versions: name of the saved copy of git's own files. Their sessions worked in the
    /// project itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_files: String,
    /// In a repair: how many were refused before.
    pub refused_repairs: u32,
    /// In a repair: the commit with the last valid tree.
    pub last_valid: Option<String>,
    /// `max_attempts_default` of the config at that time.
    pub max_attempts_default: u32,
}

/// What was decided, ready to be written and committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalDecision {
    /// The commit on which the iteration's commit will stand.
    pub parent: String,
    /// That commit; earlier versions made it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// SHA-256 of `tree.after.json`; `None` when there is no tree file.
    pub tree_sha256: Option<String>,
    /// The bytes of run_state.json.
    pub run_state: String,
    /// The bytes of meta.json.
    pub meta: String,
    /// The commit message.
    pub message: String,
}

/// The largest journal that is read at all.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// One record as a line.
pub fn to_line(record: &JournalRecord) -> String {
    // Strings and integers only: there is nothing that could fail.
    let mut line = serde_json::to_string(record).unwrap_or_default();
    line.push('\n');
    line
}

/// The records of a journal up to the first line that is not whole: a torn last
/// line counts as not written, which is what it is.
pub fn parse(bytes: &[u8]) -> Vec<JournalRecord> {
    if bytes.len() > MAX_BYTES {
        return Vec::new();
    }
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map_while(|line| {
            let line = line.strip_suffix(b"\n")?;
            serde_json::from_slice(line).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn started() -> JournalRecord {
        JournalRecord::Started(JournalStart {
            run_id: "r".into(),
            iter: 3,
            node_id: "n".into(),
            head: "abc".into(),
            branch: "runner/r".into(),
            started_at: "2026-01-01T00:00:00Z".into(),
            git_files: "x".into(),
            refused_repairs: 0,
            last_valid: None,
            max_attempts_default: 3,
        })
    }

    #[test]
    fn a_torn_line_counts_as_not_written() {
        let records = vec![
            started(),
            JournalRecord::AgentEnded { exit_code: Some(0) },
            JournalRecord::Committed {
                journal_sha256: None,
            },
        ];
        let text: String = records.iter().map(to_line).collect();
        assert_eq!(parse(text.as_bytes()), records);
        for cut in 0..text.len() {
            let whole = text[..cut].matches('\n').count();
            assert_eq!(parse(&text.as_bytes()[..cut]), records[..whole]);
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
