//! The record of an iteration as it lies in `meta.json`, and its vocabulary.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::OnTimeout;
use crate::output::Status;
use crate::tree::TreeChanges;

/// What the guard said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guard {
    /// Exit code 0.
    Pass,
    /// Any other exit.
    Fail,
    /// It was not asked.
    Skipped,
}

impl Guard {
    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            Guard::Pass => "pass",
            Guard::Fail => "fail",
            Guard::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What kind of iteration it was, judged by what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Only the plan changed.
    Decompose,
    /// Everything else.
    Execute,
    /// The tree itself was being mended.
    Repair,
}

impl Mode {
    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Decompose => "decompose",
            Mode::Execute => "execute",
            Mode::Repair => "repair",
        }
    }
}

/// Which row of the table of outcomes applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
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

/// What went wrong around the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The agent's program could not be started.
    Spawn,
    /// The agent did not end in time.
    Timeout,
    /// The agent fell silent for too long.
    Idle,
    /// There is no `output.json`.
    NoOutput,
    /// `output.json` is not what the schema asks for.
    MalformedOutput,
    /// The guard's program could not be started.
    GuardSpawn,
    /// The guard did not end in time.
    GuardTimeout,
    /// The run's branch was left, reset or rewritten.
    Branch,
    /// A git command failed.
    Git,
    /// Reading or writing failed.
    Io,
    /// No space is left.
    Disk,
    /// A signal or a crash.
    Interrupted,
    /// The account's quota is used up.
    Quota,
    /// Too many requests in too short a time.
    RateLimit,
    /// No or a wrong key.
    Auth,
    /// The session filled the model's context.
    ContextFull,
    /// The model could not be reached.
    Network,
    /// The model's service is overloaded or broken.
    Overloaded,
    /// The agent failed for another reason.
    Agent,
    /// The budget of the run is used up.
    Budget,
}

/// What the loop does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// Try again after a pause.
    Retry,
    /// Wait until the quota is there again, if that is wanted.
    WaitForQuota,
    /// End with status `limit`.
    Limit,
    /// End with status `error`.
    End,
}

impl ErrorKind {
    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Spawn => "spawn",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Idle => "idle",
            ErrorKind::NoOutput => "no_output",
            ErrorKind::MalformedOutput => "malformed_output",
            ErrorKind::GuardSpawn => "guard_spawn",
            ErrorKind::GuardTimeout => "guard_timeout",
            ErrorKind::Branch => "branch",
            ErrorKind::Git => "git",
            ErrorKind::Io => "io",
            ErrorKind::Disk => "disk",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Quota => "quota",
            ErrorKind::RateLimit => "rate_limit",
            ErrorKind::Auth => "auth",
            ErrorKind::ContextFull => "context_full",
            ErrorKind::Network => "network",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Agent => "agent",
            ErrorKind::Budget => "budget",
        }
    }

    /// Whether the loop tries again: passing troubles yes, lasting ones no.
    pub fn after(self, on_timeout: OnTimeout) -> AfterError {
        match self {
            ErrorKind::NoOutput
            | ErrorKind::MalformedOutput
            | ErrorKind::RateLimit
            | ErrorKind::ContextFull
            | ErrorKind::Network
            | ErrorKind::Overloaded
            | ErrorKind::Agent => AfterError::Retry,
            ErrorKind::Quota => AfterError::WaitForQuota,
            ErrorKind::Budget => AfterError::Limit,
            ErrorKind::Timeout | ErrorKind::Idle | ErrorKind::GuardTimeout => match on_timeout {
                OnTimeout::Retry => AfterError::Retry,
                OnTimeout::Stop => AfterError::End,
            },
            ErrorKind::Spawn
            | ErrorKind::GuardSpawn
            | ErrorKind::Branch
            | ErrorKind::Git
            | ErrorKind::Io
            | ErrorKind::Disk
            | ErrorKind::Auth
            | ErrorKind::Interrupted => AfterError::End,
        }
    }
}

/// A recorded runner error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerError {
    /// What kind.
    pub kind: ErrorKind,
    /// In words.
    pub message: String,
    /// When the agent's service said that it can be used again (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
}

impl RunnerError {
    /// An error without a time.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        RunnerError {
            kind,
            message: message.into(),
            retry_at: None,
        }
    }
}

/// What the decision used besides the trees and the agent's output: enough to
/// decide again, which is what `runner replay` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
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
    /// Whether anything outside `.runner/` changed.
    pub changed_outside: bool,
    /// The guard's exit code (128 + n for a signal), if it ran.
    pub guard_exit: Option<i32>,
    /// Owned or protected files, or the tree, that changed while the guard ran.
    pub changed_by_guard: Vec<String>,
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
}

/// `meta.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of this format.
    pub schema_version: u32,
    /// The run.
    pub run_id: String,
    /// The iteration's number, from 1.
    pub iter: u32,
    /// The selected leaf, or `repair-tree`.
    pub node_id: String,
    /// What kind of iteration it was.
    pub mode: Mode,
    /// The recorded status.
    pub status: Status,
    /// What the guard said.
    pub guard: Guard,
    /// Which rule applied.
    pub class: Class,
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
    /// How agent and guard were contained.
    pub sandbox: String,
    /// HEAD when the step began.
    pub head: String,
    /// What the decision used.
    pub facts: Facts,
}

/// The version of `meta.json` that this code writes.
pub const META_VERSION: u32 = 1;

/// What an iteration came to, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
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
}

impl Verdict {
    /// In words for people.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::GuardFailed => "guard failed",
            Verdict::Retry => "wants another try",
            Verdict::Decomposed => "decomposed",
            Verdict::NotAccepted => "not accepted",
            Verdict::InvalidTree => "invalid tree",
            Verdict::Repair => "repair",
            Verdict::RunnerError => "runner error",
        }
    }

    /// As far as a commit's subject and mode tell it: what was not accepted and
    /// what was a runner error looks like a retry there.
    pub fn of_commit(status: Status, guard: Guard, repair: bool) -> Self {
        match (status, guard) {
            _ if repair => Verdict::Repair,
            (Status::Done, Guard::Pass) => Verdict::Passed,
            (Status::Done, _) => Verdict::GuardFailed,
            (Status::Decomposed, _) => Verdict::Decomposed,
            (Status::Retry, _) => Verdict::Retry,
        }
    }
}

impl Meta {
    /// What the iteration came to.
    pub fn verdict(&self) -> Verdict {
        match self.class {
            Class::Ok => Verdict::of_commit(self.status, self.guard, false),
            Class::AgentError => Verdict::NotAccepted,
            Class::InvalidTree => Verdict::InvalidTree,
            Class::RunnerError => Verdict::RunnerError,
            Class::Repaired | Class::RepairRefused | Class::RepairRestored => Verdict::Repair,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record in which nothing happened yet.
    pub(crate) fn meta(iter: u32, node_id: &str) -> Meta {
        Meta {
            schema_version: META_VERSION,
            run_id: "demo".to_owned(),
            iter,
            node_id: node_id.to_owned(),
            mode: Mode::Execute,
            status: Status::Retry,
            guard: Guard::Skipped,
            class: Class::Ok,
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
            sandbox: "none".to_owned(),
            head: "0".repeat(40),
            facts: Facts::default(),
        }
    }

    #[test]
    fn one_word_for_each_class() {
        let mut it = meta(1, "a");
        for (class, status, guard, word) in [
            (Class::Ok, Status::Done, Guard::Pass, "passed"),
            (Class::Ok, Status::Done, Guard::Fail, "guard failed"),
            (
                Class::Ok,
                Status::Retry,
                Guard::Skipped,
                "wants another try",
            ),
            (Class::Ok, Status::Decomposed, Guard::Skipped, "decomposed"),
            (
                Class::AgentError,
                Status::Retry,
                Guard::Skipped,
                "not accepted",
            ),
            (
                Class::InvalidTree,
                Status::Retry,
                Guard::Skipped,
                "invalid tree",
            ),
            (
                Class::RepairRefused,
                Status::Retry,
                Guard::Skipped,
                "repair",
            ),
            (
                Class::RunnerError,
                Status::Retry,
                Guard::Skipped,
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
            (ErrorKind::Spawn, End, End),
            (ErrorKind::Timeout, End, Retry),
            (ErrorKind::Idle, End, Retry),
            (ErrorKind::NoOutput, Retry, Retry),
            (ErrorKind::MalformedOutput, Retry, Retry),
            (ErrorKind::GuardSpawn, End, End),
            (ErrorKind::GuardTimeout, End, Retry),
            (ErrorKind::Branch, End, End),
            (ErrorKind::Git, End, End),
            (ErrorKind::Io, End, End),
            (ErrorKind::Disk, End, End),
            (ErrorKind::Interrupted, End, End),
            (ErrorKind::Quota, WaitForQuota, WaitForQuota),
            (ErrorKind::RateLimit, Retry, Retry),
            (ErrorKind::Auth, End, End),
            (ErrorKind::ContextFull, Retry, Retry),
            (ErrorKind::Network, Retry, Retry),
            (ErrorKind::Overloaded, Retry, Retry),
            (ErrorKind::Agent, Retry, Retry),
            (ErrorKind::Budget, Limit, Limit),
        ] {
            assert_eq!(kind.after(OnTimeout::Stop), stop, "{kind:?}");
            assert_eq!(kind.after(OnTimeout::Retry), retry, "{kind:?}");
            let word = serde_json::to_string(&kind).unwrap();
            assert_eq!(word, format!("\"{}\"", kind.as_str()));
        }
    }
}
