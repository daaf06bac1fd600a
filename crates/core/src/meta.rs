//! The record of an iteration as it lies in `meta.json`, and its vocabulary.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::CheckoutKind;
pub use crate::iteration_error::{AfterError, IterationErrorKind};
use crate::output::AgentStatus;
use crate::tree::TreeChanges;

/// What the guard said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardResult {
    /// Exit code 0.
    Pass,
    /// Any other exit.
    Fail,
    /// It was not asked.
    Skipped,
}

impl GuardResult {
    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            GuardResult::Pass => "pass",
            GuardResult::Fail => "fail",
            GuardResult::Skipped => "skipped",
        }
    }
}

impl fmt::Display for GuardResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What kind of iteration it was, judged by what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IterationMode {
    /// Only the plan changed.
    Decompose,
    /// Everything else.
    Execute,
    /// The tree itself was being repaired.
    Repair,
}

impl IterationMode {
    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            IterationMode::Decompose => "decompose",
            IterationMode::Execute => "execute",
            IterationMode::Repair => "repair",
        }
    }
}

/// Which row of the table of outcomes applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeClass {
    /// The agent's word fits the tree, the guard (if asked) has spoken.
    Ok,
    /// The agent did what it may not do.
    AgentError,
    /// The tree cannot be read or breaks an invariant.
    InvalidTree,
    /// Something around the agent went wrong.
    RunnerError,
    /// A repair brought back a valid tree.
    Repaired,
    /// A repair did not.
    RepairRefused,
    /// The last allowed repair did not: the last valid tree is back.
    RepairRestored,
}

/// A recorded runner error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerError {
    /// What kind.
    pub kind: IterationErrorKind,
    /// In words.
    pub message: String,
    /// When the agent's service said that it can be used again (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
}

impl RunnerError {
    /// An error without a time.
    pub fn new(kind: IterationErrorKind, message: impl Into<String>) -> Self {
        RunnerError {
            kind,
            message: message.into(),
            retry_at: None,
        }
    }

    /// What a person can do about it, where that is known.
    pub fn advice(&self) -> Option<String> {
        Some(match (self.kind, self.retry_at.as_deref()) {
            (IterationErrorKind::Quota, Some(at)) => {
                format!("the quota is back at {at}; `runner loop --wait-quota` waits for it")
            }
            (IterationErrorKind::Quota, None) => {
                "`runner loop --wait-quota` waits and goes on when the quota is back".to_owned()
            }
            (IterationErrorKind::Auth, _) => {
                "log in with the agent's own command or set its key (`runner doctor` looks for it)"
                    .to_owned()
            }
            (IterationErrorKind::Budget, _) => {
                "raise [budget] with `runner edit config`".to_owned()
            }
            (IterationErrorKind::Spawn, _) if self.message.contains("the agent") => {
                MISSING_AGENT_ADVICE.to_owned()
            }
            _ => return None,
        })
    }
}

/// What to do where the agent cannot be started.
pub const MISSING_AGENT_ADVICE: &str =
    "install it, or name another agent with `runner edit config`; `runner doctor` checks";

/// The newest iteration, if it was an error around the agent. `metas` rise.
pub fn last_error<'m>(metas: impl Iterator<Item = &'m IterationMeta>) -> Option<&'m IterationMeta> {
    metas
        .last()
        .filter(|meta| meta.verdict() == IterationVerdict::RunnerError)
}

/// What the decision used besides the trees and the agent's output: enough to
/// decide again, which is what `runner replay` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepFacts {
    /// `max_attempts_default` of the config at that time.
    pub max_attempts_default: u32,
    /// How many repairs in a row were refused before this one.
    pub refused_repairs: u32,
    /// What went wrong around the agent.
    pub runner_error: Option<RunnerError>,
    /// Why the tree the agent left could not be read as a file.
    pub tree_unusable: Option<String>,
    /// Runner-owned files that the session changed, git's own included.
    pub owned_changed: Vec<String>,
    /// Protected files that the session changed.
    pub protected_changed: Vec<String>,
    /// Folders in which the session made a git repository.
    pub nested_repositories: Vec<String>,
    /// New files that must not go into a commit.
    pub denied_files: Vec<String>,
    /// Submodules in which the session changed something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submodules_changed: Vec<String>,
    /// Files that git cannot take as they are: of a kind, a name or an encoding that cannot be, or
    /// meant for a filter that the runner does not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_committable: Vec<String>,
    /// Files that define the guard and that the session was allowed to make, because none was there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard_written: Vec<String>,
    /// Whether anything outside `.runner/` changed.
    pub changed_outside: bool,
    /// The guard's exit code (128 + n for a signal), if it ran.
    pub guard_exit: Option<i32>,
    /// The guard did not run, because setup fails with what the session changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub setup_failed: bool,
    /// Owned or protected files, or the tree, that changed while the guard ran.
    pub changed_by_guard: Vec<String>,
    /// Why a green exit code is no evidence that tests ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence_gaps: Vec<String>,
    /// Tests that ran where the run began and were not reported now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests_missing: Vec<String>,
    /// Tests that ran where the run began and were skipped now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests_skipped: Vec<String>,
    /// Test files that were changed or deleted since the run began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_files_changed: Vec<String>,
    /// What the guard did not prove with the tests as they were when the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_tests_failed: Option<String>,
    /// SHA-256 of the tree before the session.
    pub tree_before_sha256: String,
}

/// How the agent's session went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorRun {
    /// `command`, `codex`, …
    pub backend: String,
    /// The agent's own exit code; null when it did not end by itself.
    pub exit_code: Option<i32>,
    /// Wall time.
    pub duration_ms: u64,
    /// Input tokens, cached ones included.
    pub input_tokens: Option<u64>,
    /// Input tokens that came from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// US dollars; null when unknown.
    pub cost_usd: Option<f64>,
}

impl ExecutorRun {
    /// Input and output tokens together, as far as known.
    pub fn tokens(&self) -> Option<u64> {
        match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0) + output.unwrap_or(0)),
        }
    }
}

/// How the guard's run went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardRun {
    /// The argv that was run.
    pub command: Vec<String>,
    /// Exit code, 128 + n for a signal, null when it did not end by itself.
    pub exit_code: Option<i32>,
    /// Wall time.
    pub duration_ms: u64,
    /// SHA-256 of `guard.log`.
    pub log_sha256: String,
    /// In which kind of clean checkout; earlier versions had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout: Option<CheckoutKind>,
    /// The hash of what setup depended on, if the guard passed and there was a setup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_sha256: Option<String>,
}

/// `meta.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationMeta {
    /// Version of this format.
    pub schema_version: u32,
    /// The run.
    pub run_id: String,
    /// The iteration's number, from 1.
    pub iter: u32,
    /// The selected leaf, or `repair-tree`.
    pub node_id: String,
    /// What kind of iteration it was.
    pub mode: IterationMode,
    /// The recorded status.
    pub status: AgentStatus,
    /// What the guard said.
    pub guard: GuardResult,
    /// Which rule applied.
    pub class: OutcomeClass,
    /// Attempts of the node afterwards; null in a repair.
    pub attempts: Option<u32>,
    /// Whether the node has passed; null in a repair.
    pub passes: Option<bool>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub ended_at: String,
    /// Wall time of the whole step up to the decision.
    pub duration_ms: u64,
    /// The agent's session.
    pub executor: Option<ExecutorRun>,
    /// The guard's run, if it was asked.
    pub guard_run: Option<GuardRun>,
    /// What went wrong around the agent.
    pub error: Option<RunnerError>,
    /// What the session did to the plan.
    pub tree_changes: TreeChanges,
    /// Ids that turned to passed, derived parents included.
    pub passed: Vec<String>,
    /// Files matching `[guard] watched` that the session changed.
    pub watched_changed: Vec<String>,
    /// Files that the guard left behind and that were committed.
    pub guard_untracked: Vec<String>,
    /// Remarks of the runner for people.
    pub notes: Vec<String>,
    /// Sentences about the hosts that a child asked for and was refused; each is among the notes too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_refused: Vec<String>,
    /// How agent and guard were contained.
    pub sandbox: String,
    /// What the config opens of what is hidden or closed otherwise: each path, and to whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_opened: Vec<String>,
    /// HEAD when the step began.
    pub head: String,
    /// What the decision used.
    pub facts: StepFacts,
    /// The other files of the iteration's folder, by name: `sha256:` and the hash, or the name of
    /// a tree with the same bytes. Earlier versions had none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The part of `events.jsonl` since the iteration before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<RecordedEvents>,
}

/// What was refused in these iterations, each sentence once.
pub fn network_refused<'a>(metas: impl Iterator<Item = &'a IterationMeta>) -> Vec<String> {
    each_once(metas.flat_map(|meta| &meta.network_refused))
}

/// What the config opened in these iterations, each path once.
pub fn sandbox_opened<'a>(metas: impl Iterator<Item = &'a IterationMeta>) -> Vec<String> {
    each_once(metas.flat_map(|meta| &meta.sandbox_opened))
}

fn each_once<'a>(sentences: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for sentence in sentences {
        if !all.contains(sentence) {
            all.push(sentence.clone());
        }
    }
    all
}

/// A part of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEvents {
    /// Its first byte.
    pub from: u64,
    /// The byte after its last.
    pub to: u64,
    /// Its hash.
    pub sha256: String,
}

/// The version of `meta.json` that this code writes.
pub const META_VERSION: u32 = 1;

/// What an iteration came to, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IterationVerdict {
    /// Done, and the guard was green.
    Passed,
    /// Done, but the guard was red.
    GuardFailed,
    /// The agent wants another try.
    Retry,
    /// The leaf was split.
    Decomposed,
    /// The agent did what it may not do.
    NotAccepted,
    /// It left an invalid tree.
    InvalidTree,
    /// It was a repair of the tree.
    Repair,
    /// Something around the agent went wrong.
    RunnerError,
    /// A signal or a crash ended the runner before anything was decided.
    CutOff,
}

impl IterationVerdict {
    /// In words for people.
    pub fn words(self) -> &'static str {
        match self {
            IterationVerdict::Passed => "passed",
            IterationVerdict::GuardFailed => "guard failed",
            IterationVerdict::Retry => "wants another try",
            IterationVerdict::Decomposed => "decomposed",
            IterationVerdict::NotAccepted => "not accepted",
            IterationVerdict::InvalidTree => "invalid tree",
            IterationVerdict::Repair => "repair",
            IterationVerdict::RunnerError => "runner error",
            IterationVerdict::CutOff => "cut off",
        }
    }

    /// As far as a commit's subject and mode tell it: what was not accepted and
    /// what was a runner error looks like a retry there.
    pub fn of_commit(status: AgentStatus, guard: GuardResult, repair: bool) -> Self {
        match (status, guard) {
            _ if repair => IterationVerdict::Repair,
            (AgentStatus::Done, GuardResult::Pass) => IterationVerdict::Passed,
            (AgentStatus::Done, _) => IterationVerdict::GuardFailed,
            (AgentStatus::Decomposed, _) => IterationVerdict::Decomposed,
            (AgentStatus::Retry, _) => IterationVerdict::Retry,
        }
    }
}

impl IterationMeta {
    fn is_cut_off(&self) -> bool {
        let error = self.error.as_ref();
        error.is_some_and(|error| error.kind == IterationErrorKind::Interrupted)
    }

    /// What the iteration came to.
    pub fn verdict(&self) -> IterationVerdict {
        match self.class {
            OutcomeClass::Ok => IterationVerdict::of_commit(self.status, self.guard, false),
            OutcomeClass::AgentError => IterationVerdict::NotAccepted,
            OutcomeClass::InvalidTree => IterationVerdict::InvalidTree,
            OutcomeClass::RunnerError if self.is_cut_off() => IterationVerdict::CutOff,
            OutcomeClass::RunnerError => IterationVerdict::RunnerError,
            OutcomeClass::Repaired | OutcomeClass::RepairRefused | OutcomeClass::RepairRestored => {
                IterationVerdict::Repair
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::config::OnTimeout;

    use super::*;

    /// A record in which nothing happened yet.
    pub(crate) fn meta(iter: u32, node_id: &str) -> IterationMeta {
        IterationMeta {
            schema_version: META_VERSION,
            run_id: "demo".to_owned(),
            iter,
            node_id: node_id.to_owned(),
            mode: IterationMode::Execute,
            status: AgentStatus::Retry,
            guard: GuardResult::Skipped,
            class: OutcomeClass::Ok,
            attempts: Some(1),
            passes: Some(false),
            started_at: "2026-01-01T00:00:00.000Z".to_owned(),
            ended_at: "2026-01-01T00:01:00.000Z".to_owned(),
            duration_ms: 0,
            executor: None,
            guard_run: None,
            error: None,
            tree_changes: TreeChanges::default(),
            passed: Vec::new(),
            watched_changed: Vec::new(),
            guard_untracked: Vec::new(),
            notes: Vec::new(),
            network_refused: Vec::new(),
            sandbox: "none".to_owned(),
            sandbox_opened: Vec::new(),
            head: "0".repeat(40),
            facts: StepFacts::default(),
            files: std::collections::BTreeMap::new(),
            events: None,
        }
    }

    #[test]
    fn one_word_for_each_class() {
        use super::OutcomeClass as Class;
        let mut it = meta(1, "a");
        for (class, status, guard, word) in [
            (Class::Ok, AgentStatus::Done, GuardResult::Pass, "passed"),
            (
                Class::Ok,
                AgentStatus::Done,
                GuardResult::Fail,
                "guard failed",
            ),
            (
                Class::Ok,
                AgentStatus::Retry,
                GuardResult::Skipped,
                "wants another try",
            ),
            (
                Class::Ok,
                AgentStatus::Decomposed,
                GuardResult::Skipped,
                "decomposed",
            ),
            (
                Class::AgentError,
                AgentStatus::Retry,
                GuardResult::Skipped,
                "not accepted",
            ),
            (
                Class::InvalidTree,
                AgentStatus::Retry,
                GuardResult::Skipped,
                "invalid tree",
            ),
            (
                Class::RepairRefused,
                AgentStatus::Retry,
                GuardResult::Skipped,
                "repair",
            ),
            (
                Class::RunnerError,
                AgentStatus::Retry,
                GuardResult::Skipped,
                "runner error",
            ),
        ] {
            (it.class, it.status, it.guard) = (class, status, guard);
            assert_eq!(it.verdict().words(), word);
        }
    }

    #[test]
    fn what_the_loop_does_after_each_kind_of_error() {
        use AfterError::{End, Limit, Retry, WaitForQuota};
        for (kind, stop, retry) in [
            (IterationErrorKind::Spawn, End, End),
            (IterationErrorKind::Timeout, End, Retry),
            (IterationErrorKind::Idle, End, Retry),
            (IterationErrorKind::NoOutput, Retry, Retry),
            (IterationErrorKind::MalformedOutput, Retry, Retry),
            (IterationErrorKind::GuardSpawn, End, End),
            (IterationErrorKind::GuardTimeout, End, Retry),
            (IterationErrorKind::Branch, End, End),
            (IterationErrorKind::Git, End, End),
            (IterationErrorKind::Io, End, End),
            (IterationErrorKind::Disk, End, End),
            (IterationErrorKind::Interrupted, End, End),
            (IterationErrorKind::Quota, WaitForQuota, WaitForQuota),
            (IterationErrorKind::RateLimit, Retry, Retry),
            (IterationErrorKind::Auth, End, End),
            (IterationErrorKind::ContextFull, Retry, Retry),
            (IterationErrorKind::Network, Retry, Retry),
            (IterationErrorKind::Overloaded, Retry, Retry),
            (IterationErrorKind::Agent, Retry, Retry),
            (IterationErrorKind::Budget, Limit, Limit),
            (IterationErrorKind::Resources, Retry, Retry),
        ] {
            assert_eq!(kind.after(OnTimeout::Stop), stop, "{kind:?}");
            assert_eq!(kind.after(OnTimeout::Retry), retry, "{kind:?}");
            let word = serde_json::to_string(&kind).unwrap();
            assert_eq!(word, format!("\"{}\"", kind.as_str()));
        }
    }
}
