//! What the roles need beside the ledger: git, guards and sessions.
//!
//! Workspaces do and report; they decide nothing. Everything they say is what git and the
//! commands said, never what a session claims. Each method may be cut off anywhere and
//! asked again: what it left behind is used or swept, never trusted.

use std::pin::Pin;

use runner_lifecycle::packet::{Assignment, ResourceChange};
use runner_lifecycle::retry::LoopEnding;
use runner_lifecycle::row::{Criterion, Intent, ReviewRemark};
use runner_lifecycle::{BasePosition, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

/// Something that will be there.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The workspaces could not do what was asked, and it is nobody's fault in the task: a disk, a
/// git that does not start. A lowercase fragment for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkspaceError(pub String);

/// What workspaces answer.
pub type WorkspaceFuture<'a, T> = BoxFuture<'a, Result<T, WorkspaceError>>;

/// Tells a long piece of work to end its children and return.
#[derive(Clone, Debug)]
pub struct StopSign(tokio::sync::watch::Receiver<bool>);

/// Raises a [`StopSign`]; dropping it raises it too, so that nothing outlives its role.
#[derive(Debug)]
pub struct StopHandle(tokio::sync::watch::Sender<bool>);

impl StopHandle {
    /// A pair that belongs together.
    pub fn new() -> (StopHandle, StopSign) {
        let (sender, receiver) = tokio::sync::watch::channel(false);
        (StopHandle(sender), StopSign(receiver))
    }

    /// Says stop.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl StopSign {
    /// Whether it is time to stop.
    pub fn is_raised(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns once it is.
    pub async fn raised(&mut self) {
        // An error means that the other half is gone.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// What a worker is to do.
#[derive(Clone, Debug)]
pub struct WorkOrder {
    /// The row as it was claimed.
    pub task: Task,
    /// The attempt: `<task>-<number>`.
    pub run_id: String,
    /// The fencing token: refs and folders carry it.
    pub token: u64,
    /// The packet; it becomes part of GOAL.md.
    pub assignment: Assignment,
    /// What the session is told besides: role instructions, host and failure lines.
    pub context: String,
    /// The model of `[fleet] models` to use; none: the config's own.
    pub model: Option<String>,
    /// A result of an earlier attempt: it is the start where it merges cleanly with the
    /// base, else the base is.
    pub earlier: Option<String>,
}

/// What a loop used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopUsage {
    /// Tokens that went in, cached ones too.
    pub input_tokens: u64,
    /// Tokens that came out.
    pub output_tokens: u64,
    /// What that cost, in millionths of a dollar.
    pub cost_micros: u64,
}

/// How a worker's loop ended, as git and the guards see it.
#[derive(Clone, Debug)]
pub struct WorkOutcome {
    /// How the loop ended.
    pub ending: LoopEnding,
    /// Its result, if the branch differs from its start outside `.runner/`.
    pub result: Option<WorkResult>,
    /// The criteria that commands check, run on the result.
    pub checks: Vec<CheckOutcome>,
    /// Why it did not complete: the end of the guard's log, or the error.
    pub why: String,
    /// When the provider says the quota is there again.
    pub quota_until: Option<Timestamp>,
    /// The account that the quota is of.
    pub account: String,
    /// What it used.
    pub spent: LoopUsage,
}

/// A result is a commit, not a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkResult {
    /// The commit that work began from.
    pub start: String,
    /// The diff against the start without `.runner/`, as one commit on it.
    pub commit: String,
    /// What it changes.
    pub changes: Vec<ResourceChange>,
}

/// A command that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOutcome {
    /// The criterion, or `guard`.
    pub id: String,
    /// The end.
    pub end: CheckEnd,
    /// Exit code and log hash, or why it could not run: the evidence.
    pub evidence: String,
    /// The end of what it printed.
    pub tail: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckEnd {
    /// With 0.
    Green,
    /// With something else, or its time was up.
    Red,
    /// It could not run: that is no verdict.
    Unable,
}

/// What a reviewer is asked.
#[derive(Clone, Debug)]
pub struct ReviewOrder {
    /// The row.
    pub task: Task,
    /// The run that is judged.
    pub run_id: String,
    /// The fencing token of the judge.
    pub token: u64,
    /// The start of the work.
    pub start: String,
    /// The result.
    pub result: String,
    /// The criteria that a review answers.
    pub criteria: Vec<Criterion>,
    /// Findings that were settled: they are not raised again.
    pub settled: Vec<ReviewRemark>,
}

/// What a reviewer said.
#[derive(Clone, Debug)]
pub enum ReviewReply {
    /// A text that shall be a verdict; the caller reads it.
    Said(String),
    /// Nothing.
    Silent,
    /// The quota is used up.
    Quota {
        /// When it is there again.
        until: Option<Timestamp>,
        /// Which account.
        account: String,
    },
}

/// What a merge comes to before the judge that the base had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvertedCheck {
    /// Only product files differ, or the guard passes with the tests and settings of the base, too.
    Same,
    /// It passes only with these files of the result; why not without them.
    Changed {
        /// What the result changed about its judge.
        files: Vec<String>,
        /// Why it does not pass before the base's.
        why: String,
    },
    /// It could not be tried; why.
    Unable(String),
}

/// What merging a result came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskMergeOutcome {
    /// This commit may become the base.
    Commit(String),
    /// These paths do not fit together.
    Conflicts(Vec<String>),
    /// The result is already in the base, or changes nothing there.
    Empty,
    /// The commit of the result is not there.
    Missing,
}

/// What became of the user's own base branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseUpdate {
    /// It is where the fleet's base is, with its checkout.
    UpToDate,
    /// It stays behind; why.
    Behind(String),
}

/// What a planner is asked.
#[derive(Clone, Debug)]
pub struct PlanOrder {
    /// The requirement.
    pub requirement: String,
    /// What was wrong with the plan before.
    pub findings: Vec<String>,
    /// Counts the tries from 1.
    pub attempt: u32,
}

/// A run that left folders or refs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftoverRun {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub run_id: String,
    /// Its fencing token.
    pub token: u64,
}

/// Git, guards and sessions.
pub trait Workspaces: Send + Sync {
    /// The commit that results are merged into.
    fn base(&self) -> WorkspaceFuture<'_, String>;

    /// Works: a worktree and branch from the start, GOAL.md, the loop, the result commit
    /// and the commands. The sign ends its children before it returns.
    fn work(&self, order: WorkOrder, stop: StopSign) -> WorkspaceFuture<'_, WorkOutcome>;

    /// The commit that a result is measured against: its parent, if the fleet made it, else
    /// where it left the base. None: it is not there.
    fn start_of(&self, result: String) -> WorkspaceFuture<'_, Option<String>>;

    /// What a result changes against its start. None: one of the commits is not there.
    fn changes(
        &self,
        start: String,
        result: String,
    ) -> WorkspaceFuture<'_, Option<Vec<ResourceChange>>>;

    /// The size in bytes of the diff of a result.
    fn diff_bytes(&self, start: String, result: String) -> WorkspaceFuture<'_, u64>;

    /// Runs the project's guard, then the task's commands, in a checkout of a commit.
    fn check(
        &self,
        commit: String,
        task: Option<Task>,
        stop: StopSign,
    ) -> WorkspaceFuture<'_, Vec<CheckOutcome>>;

    /// Runs the guard on a base with only the product files of a merge, and everything else as the base
    /// has it.
    fn check_inverted(
        &self,
        base: String,
        merge: String,
        task: Task,
        stop: StopSign,
    ) -> WorkspaceFuture<'_, InvertedCheck>;

    /// Asks a reviewer.
    fn review(&self, order: ReviewOrder, stop: StopSign) -> WorkspaceFuture<'_, ReviewReply>;

    /// Merges a result into a base; no branch moves. The same arguments give the same
    /// commit.
    fn merge(
        &self,
        base: String,
        result: String,
        task: Task,
        run_id: String,
    ) -> WorkspaceFuture<'_, TaskMergeOutcome>;

    /// Where the base stands, seen from an intent.
    fn position(&self, intent: Intent) -> WorkspaceFuture<'_, BasePosition>;

    /// Moves the base from old to new, if it is at old. Says whether it is at new now.
    fn move_base(&self, intent: Intent) -> WorkspaceFuture<'_, bool>;

    /// Fast-forwards the user's base branch with its checkout, where that is clean.
    fn update_user_branch(&self) -> WorkspaceFuture<'_, BaseUpdate>;

    /// Asks a planner; the caller reads the text.
    fn plan(&self, order: PlanOrder, stop: StopSign) -> WorkspaceFuture<'_, String>;

    /// The runs whose folders or refs are there, proof refs of merged runs left out. The
    /// caller asks the ledger about each afterwards, so that none is swept that begins now.
    fn leftover_runs(&self) -> WorkspaceFuture<'_, Vec<LeftoverRun>>;

    /// Removes folders and refs of these runs. Proof refs of merged runs stay.
    fn sweep(&self, gone: Vec<LeftoverRun>) -> WorkspaceFuture<'_, ()>;
}
