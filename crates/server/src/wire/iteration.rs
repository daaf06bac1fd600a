//! Iterations: the timeline and the detail of one.

use serde::Serialize;

use super::run::RunPhaseView;

/// `GET /api/iterations`: every run in this clone, the current one first, then
/// the others by their newest iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Iterations"))]
pub struct IterationList {
    /// The runs.
    pub runs: Vec<RunIterations>,
}

/// The iterations of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RunIterations {
    /// The run.
    pub run_id: String,
    /// Whether it is the run that run_state.json names.
    pub current: bool,
    /// Its iterations, oldest first.
    pub iterations: Vec<IterationRow>,
}

/// One bar of the timeline: all that it needs, without another request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct IterationRow {
    /// Its number, from 1.
    pub iter: u32,
    /// Whether it is recorded. If not, it is under way or was cut off, and
    /// everything that is known at the end only is null.
    pub recorded: bool,
    /// The node, or `repair-tree`; null if the journal does not say.
    pub node_id: Option<String>,
    /// The node's title in the newest tree of the run that has it.
    pub title: Option<String>,
    /// The ids from the root to the node in that tree, `root/a/b`.
    pub path: Option<String>,
    /// What kind of iteration it was.
    pub mode: Option<IterationModeView>,
    /// What became of the leaf.
    pub status: Option<SessionStatus>,
    /// What the guard said.
    pub guard: Option<GuardVerdict>,
    /// Which rule applied.
    pub class: Option<OutcomeClassView>,
    /// The kind of runner error.
    pub error_kind: Option<IterationErrorKindView>,
    /// The runner error in words.
    pub error_message: Option<String>,
    /// When it began.
    pub started_at: Option<String>,
    /// When it was decided.
    pub ended_at: Option<String>,
    /// Wall time up to the decision.
    pub duration_ms: Option<u64>,
    /// Wall time of the agent's session.
    pub agent_ms: Option<u64>,
    /// Wall time of the guard; null if it was not asked.
    pub guard_ms: Option<u64>,
    /// Input tokens, cached ones included.
    pub input_tokens: Option<u64>,
    /// Input tokens that came from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Attempts of the node afterwards; null in a repair.
    pub attempts: Option<u32>,
    /// Whether the node has passed; null in a repair.
    pub passes: Option<bool>,
    /// How many nodes the session added, edited and moved.
    pub tree_changes: ChangeCounts,
    /// How many watched files it changed.
    pub watched_changed: u32,
    /// Ids that turned to passed, derived parents included.
    pub passed: Vec<String>,
}

/// Numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ChangeCounts {
    /// That were not there before.
    pub added: u32,
    /// Whose title, goal, acceptance or order changed.
    pub edited: u32,
    /// That hang under another parent now.
    pub moved: u32,
}

/// `GET /api/iterations/{run}/{iter}`: one iteration in full, but for its logs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct IterationDetail {
    /// The run.
    pub run_id: String,
    /// The same as in the timeline.
    pub row: IterationRow,
    /// The record; null while it is under way, and after a crash.
    pub meta: Option<IterationMetaView>,
    /// What is being done; null unless a runner works on this iteration right now.
    pub phase: Option<RunPhaseView>,
    /// When that began.
    pub phase_started_at: Option<String>,
    /// What the agent reported; null if it did not, or not in the right form.
    pub output: Option<AgentReport>,
    /// What went wrong around the agent (runner_error.log, its first 64 KiB).
    pub runner_error: Option<String>,
    /// What was not accepted (agent_error.log, its first 64 KiB).
    pub agent_error: Option<String>,
    /// The files that can be read at `/api/iterations/{run}/{iter}/{file}`.
    pub files: Vec<LogFile>,
}

/// A file of an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LogFile {
    /// Its name, such as `guard.log`.
    pub name: String,
    /// Its size in bytes; the file of an iteration that is under way may grow.
    pub bytes: u64,
}

/// `GET /api/iterations/{run}/{iter}/{file}?find=TEXT`: lines that contain the
/// text, whatever the case of its letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LogMatches {
    /// At most 200 lines, in their order.
    pub matches: Vec<LogMatch>,
    /// Where to go on (`&offset=`) if there may be more; null at the end of the file.
    pub next_offset: Option<u64>,
}

/// A line that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LogMatch {
    /// Where the line begins in the file.
    pub offset: u64,
    /// The line, at most 400 bytes of it.
    pub line: String,
}

/// What the agent reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AgentReport {
    /// What it says became of the leaf.
    pub status: SessionStatus,
    /// What was done or tried.
    pub summary: String,
}

/// The record of an iteration, without what only `runner replay` needs (which is
/// in the file `meta.json`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Meta"))]
pub struct IterationMetaView {
    /// The agent CLI, such as `codex`; null if no session began.
    pub backend: Option<String>,
    /// The agent's own exit code; null when it did not end by itself.
    pub agent_exit_code: Option<i32>,
    /// The guard's argv; null if it was not asked.
    pub guard_command: Option<Vec<String>>,
    /// The guard's exit code, 128 + n for a signal.
    pub guard_exit_code: Option<i32>,
    /// SHA-256 of guard.log.
    pub guard_log_sha256: Option<String>,
    /// The runner error.
    pub error: Option<MetaError>,
    /// Ids that the session added.
    pub added: Vec<String>,
    /// Ids that it edited.
    pub edited: Vec<String>,
    /// Ids that it moved.
    pub moved: Vec<String>,
    /// Watched files that it changed.
    pub watched_changed: Vec<String>,
    /// Files that the guard left behind and that were committed.
    pub guard_untracked: Vec<String>,
    /// Runner-owned files that it changed, and that were put back.
    pub owned_changed: Vec<String>,
    /// Protected files that it changed, and that were put back.
    pub protected_changed: Vec<String>,
    /// Files that define the guard and that the session was allowed to make, because none was there.
    pub guard_written: Vec<String>,
    /// New files that did not go into the commit.
    pub denied_files: Vec<String>,
    /// Remarks of the runner.
    pub notes: Vec<String>,
    /// How agent and guard were contained.
    pub sandbox: String,
    /// HEAD when the step began.
    pub head: String,
}

/// A recorded runner error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MetaError {
    /// What kind.
    pub kind: IterationErrorKindView,
    /// In words.
    pub message: String,
    /// When the agent's service said that it can be used again.
    pub retry_at: Option<String>,
}

/// `GET /api/iterations/{run}/{iter}/diff`: what the iteration changed, without
/// the runner's own files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Diff"))]
pub struct DiffView {
    /// The iteration's commit.
    pub commit: String,
    /// A unified diff, at most 2 MiB of it, cut at the end of a line.
    pub text: String,
    /// Whether `text` is only its beginning.
    pub truncated: bool,
}

super::words! {
    /// What kind of iteration it was, judged by what changed.
    #[cfg_attr(test, ts(rename = "Mode"))]
    IterationModeView of runner_core::meta::IterationMode {
        /// Only the plan changed.
        Decompose,
        /// Everything else.
        Execute,
        /// The tree itself was being mended.
        Repair,
    }
}

super::words! {
    /// What became of the leaf.
    SessionStatus of runner_core::output::AgentStatus {
        /// Its goal is reached, says the agent.
        Done,
        /// Not finished.
        Retry,
        /// It has been split into children.
        Decomposed,
    }
}

super::words! {
    /// What the guard said.
    GuardVerdict of runner_core::meta::GuardResult {
        /// Exit code 0.
        Pass,
        /// Any other exit.
        Fail,
        /// It was not asked.
        Skipped,
    }
}

super::words! {
    /// Which rule applied.
    #[cfg_attr(test, ts(rename = "Class"))]
    OutcomeClassView of runner_core::meta::OutcomeClass {
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
}

super::words! {
    /// What went wrong around the agent.
    #[cfg_attr(test, ts(rename = "ErrorKind"))]
    IterationErrorKindView of runner_core::meta::IterationErrorKind {
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
        /// What a workspace or a clean checkout needs could not be made.
        Setup,
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
        /// A child used up more than `[sandbox.limits]` allows, or a disk is full.
        Resources,
    }
}
