//! Where a run is: `/api/run`, `/api/run-state`, `/api/server`.

use serde::Serialize;

use super::iteration::{GuardVerdict, IterationErrorKindView, SessionStatus};

/// `GET /api/run`: everything that the head of the page shows. Elapsed times are
/// counted by the page; the `Date` header of the answer tells the server's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Run"))]
pub struct RunHeadView {
    /// The run; null before `runner start`.
    pub run_id: Option<String>,
    /// Its branch, such as `runner/run-b008ab9f`.
    pub branch: Option<String>,
    /// The branch that it began on.
    pub base: Option<String>,
    /// What it is for.
    pub goal: GoalView,
    /// The one word for the whole.
    pub state: RunStatusView,
    /// Whether a runner is at work in this project right now.
    pub pid_alive: bool,
    /// Its process, while it is at work.
    pub pid: Option<u32>,
    /// What it is doing.
    pub phase: RunPhaseView,
    /// The iteration that is under way, or the last one.
    pub iter: Option<u32>,
    /// Its node, or `repair-tree`.
    pub node_id: Option<String>,
    /// When the phase began.
    pub phase_started_at: Option<String>,
    /// When the iteration began.
    pub iteration_started_at: Option<String>,
    /// When the loop at work began; null for a single step.
    pub loop_started_at: Option<String>,
    /// In phase `waiting`: what the loop waits for.
    pub waiting: Option<WaitView>,
    /// How the last loop ended; null while one is at work.
    pub last_end: Option<LastEndView>,
    /// An iteration was begun and never ended, and no runner is at work.
    pub cut_off: bool,
    /// No runner is at work: the last sign of life of the run.
    pub not_running_since: Option<String>,
    /// The number that the next iteration will have.
    pub next_iter: u32,
    /// The leaf that the next step would take; null if there is none, or if the tree is invalid.
    pub next: Option<LeafView>,
    /// What the run may use.
    pub limits: LimitsView,
    /// What the recorded iterations used.
    pub totals: TotalsView,
    /// Leaves that passed; null if the tree is invalid.
    pub passed: Option<u32>,
    /// All leaves; null if the tree is invalid.
    pub leaves: Option<u32>,
    /// The newest iteration's runner error, or why the project cannot be read.
    pub last_error: Option<LastError>,
    /// What agents would have asked, oldest first.
    pub questions: Vec<String>,
    /// What agents took for granted, oldest first.
    pub assumptions: Vec<String>,
    /// What a person should do now; null if nothing.
    pub needs_you: Option<NeedsYou>,
    /// Where the checkout stands, or where the run has landed, as `runner status` says it; null
    /// if the checkout shows what the run has.
    pub checkout: Option<String>,
}

/// What a run is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Goal"))]
pub struct GoalView {
    /// The first heading or line.
    pub title: String,
    /// GOAL.md without its front matter, Markdown.
    pub text: String,
}

/// The state of a run in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, ts(rename = "RunStatus"))]
pub enum RunStatusView {
    /// A runner is at work.
    Running,
    /// No runner is at work, and one could go on (or begin).
    Idle,
    /// The next leaf has used up its attempts.
    Stuck,
    /// Every leaf has passed.
    Complete,
    /// It ended with an error, or the project cannot be read.
    Error,
    /// The account's quota is used up: a runner waits for it, or has ended because of it.
    Quota,
}

super::words! {
    /// What a runner that is at work does.
    #[cfg_attr(test, ts(rename = "Phase"))]
    RunPhaseView of runner::RunPhase {
        /// No runner is at work.
        Idle,
        /// A runner has the lock, and no iteration has begun.
        Starting,
        /// An iteration has begun; the prompt is made.
        Preparing,
        /// The agent works.
        Agent,
        /// The agent has ended; what it left is looked at.
        Checking,
        /// The guard runs.
        Guard,
        /// The guard has ended; the outcome is worked out.
        Deciding,
        /// The outcome is on disk and goes into git.
        Committing,
        /// The iteration is over and the next one has not begun.
        Between,
        /// The loop waits before it tries again.
        Waiting,
        /// A runner is at work, and its events do not tell what it does.
        Working,
    }
}

/// What the loop waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Waiting"))]
pub struct WaitView {
    /// When it tries again.
    pub until: String,
    /// The kind of the error that made it wait, such as `quota`.
    pub kind: String,
    /// That error in words.
    pub why: String,
}

/// How a loop ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "LastEnd"))]
pub struct LastEndView {
    /// When.
    pub at: String,
    /// `complete`, `stuck`, `limit`, `error`, `stopped` or `interrupted`.
    pub status: String,
    /// How many iterations that loop took.
    pub steps: u64,
    /// The code of the error that ended it, such as `quota` or `auth`.
    pub code: Option<String>,
    /// That error, or the reason, in words.
    pub message: Option<String>,
}

/// A leaf that is next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Leaf"))]
pub struct LeafView {
    /// Its id.
    pub id: String,
    /// The ids from the root to it, `root/a/b`.
    pub path: String,
    /// Attempts that did not get there.
    pub attempts: u32,
    /// How many it may have.
    pub max_attempts: u32,
}

/// What a run may use.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Limits"))]
pub struct LimitsView {
    /// Iterations of the run.
    pub max_iterations: u32,
    /// Seconds of one iteration, agent and guard together.
    pub iteration_timeout_secs: u64,
    /// Tokens of the run; null is no limit.
    pub max_tokens: Option<u64>,
    /// US dollars of the run; null is no limit.
    pub max_cost_usd: Option<f64>,
}

/// Sums over the recorded iterations of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Totals"))]
pub struct TotalsView {
    /// Recorded iterations.
    pub iterations: u32,
    /// Those with a green guard.
    pub guard_passes: u32,
    /// Those with a red guard.
    pub guard_fails: u32,
    /// Those that were a runner error.
    pub errors: u32,
    /// Wall time.
    pub duration_ms: u64,
    /// Wall time of the agents' sessions.
    pub agent_ms: u64,
    /// Wall time of the guards.
    pub guard_ms: u64,
    /// Input tokens, cached ones included; null when no session told.
    pub input_tokens: Option<u64>,
    /// Input tokens that came from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LastError {
    /// The iteration that it is recorded in; null if it is of the project as a whole.
    pub iter: Option<u32>,
    /// The kind of a recorded error; null if it is of the project as a whole.
    pub kind: Option<IterationErrorKindView>,
    /// In words.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// When.
    pub at: Option<String>,
    /// When the agent's service said that it can be used again.
    pub retry_at: Option<String>,
}

/// What a person should do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct NeedsYou {
    /// Why.
    pub kind: NeedsView,
    /// The same in a sentence or two.
    pub words: String,
    /// A command to copy.
    pub command: Option<String>,
}

/// Why a person is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, ts(rename = "Needs"))]
pub enum NeedsView {
    /// No run has been started here.
    NotStarted,
    /// There is work left and no runner at work.
    NotRunning,
    /// A runner was cut off in the middle of an iteration.
    CutOff,
    /// The next leaf has used up its attempts.
    Stuck,
    /// The loop ended with an error.
    Error,
    /// The quota is used up and nobody waits for it.
    Quota,
    /// The run has had its iterations, or its budget.
    Limit,
    /// Everything has passed: the result can be brought home.
    Land,
    /// The tree is invalid, and no repair is pending.
    InvalidTree,
    /// Files of `.runner/` cannot be read.
    Unreadable,
    /// The branch that is checked out has nothing of a run, and no run was started here that is
    /// still there.
    NoRun,
}

/// `GET /api/run-state`: the bookkeeping, as in run_state.json.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "RunState"))]
pub struct RunStateView {
    /// The run; null before `runner start`.
    pub run_id: Option<String>,
    /// The number of the next iteration.
    pub next_iter: u32,
    /// Status of the last iteration that was not a runner error.
    pub last_status: Option<SessionStatus>,
    /// Its summary, or what the agent did wrong.
    pub last_summary: Option<String>,
    /// What the guard said of it.
    pub last_guard: Option<GuardVerdict>,
    /// The node it worked on.
    pub last_node_id: Option<String>,
}

/// `GET /api/server`: who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ServerInfo {
    /// The runner's version.
    pub version: String,
    /// The folder that is shown, as it was given.
    pub project_dir: String,
    /// Whether there is a project in it right now.
    pub project_there: bool,
    /// Whether the page is built into this binary.
    pub page: bool,
}
