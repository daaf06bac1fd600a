//! What can be asked of a task, and what the caller knows when it asks.

use serde::{Deserialize, Serialize};

use crate::lock::{Resource, ScopeLock};
use crate::packet::ResultPacket;
use crate::reconcile::Inconsistency;
use crate::row::{ContextItem, Criterion, Intent, ReviewRemark, TaskId};
use crate::run::{Lease, Receipt, TaskRun};
use crate::time::Timestamp;
use crate::words::{
    BasePosition, FailureCategory, Lane, LeasePurpose, RefusalCode, ReworkCause, TaskKind,
    TaskOrigin, TaskPriority, TaskRisk, TaskState, TaskType,
};

/// A request, who makes it, and the version of the row it was made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskCall {
    /// Who asks.
    pub actor: String,
    /// The version that the caller read; another one refuses the request.
    pub expected_version: Option<u64>,
    /// What is asked.
    pub request: Request,
}

/// Everything that can be asked of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Make it.
    Create(NewTask),
    /// Begin to work, judge or merge.
    Claim(Claim),
    /// The owner lives.
    Heartbeat {
        /// The token of its lease.
        token: u64,
    },
    /// A worker's run ended.
    Finish {
        /// The token of its lease.
        token: u64,
        /// The run.
        run_id: String,
        /// How it ended.
        ending: WorkEnding,
    },
    /// A judge, or the head of the merge queue, is through.
    Judge {
        /// The token of its lease.
        token: u64,
        /// How it ended.
        ending: JudgeEnding,
    },
    /// Everything that `done` takes holds: the base may move.
    RecordIntent {
        /// The token of the lease.
        token: u64,
        /// From where to where.
        intent: Intent,
        /// The answers, made on the merge commit itself.
        packet: ResultPacket,
    },
    /// Roll an open intent forward.
    SettleIntent {
        /// The token of the lease.
        token: u64,
        /// Which one: a late repeat must not be taken for a word about the next.
        intent: Intent,
        /// Where the base stands.
        base: BasePosition,
    },
    /// Say what is in the way.
    Block {
        /// The code.
        code: RefusalCode,
        /// The same for people.
        reason: String,
        /// What it waits for.
        waits_for: Option<String>,
    },
    /// Nothing was heard of the owner in time.
    Expire {
        /// No sooner than this, if the watchdog itself was late.
        not_before: Option<Timestamp>,
    },
    /// The owner never began: nothing is counted.
    TakeBack,
    /// The length of the run is used up.
    EndTimebox,
    /// Do what the recovery table says.
    Recover {
        /// The new packet, if the table asks for one.
        packet: Option<NewPacket>,
        /// The id of the successor, if the table asks for one.
        successor: Option<TaskId>,
    },
    /// Mend what contradicts itself about it, as the table of contradictions says.
    Repair,
    /// Correct the packet of a task that is not in progress.
    Replan(NewPacket),
    /// A person wants an ended task done after all.
    Retry {
        /// The id of the new task.
        successor: TaskId,
    },
    /// Call it off.
    Cancel {
        /// Why.
        reason: String,
    },
    /// A person takes a result that passes only with tests or settings that it changed itself.
    AcceptJudge {
        /// Why.
        reason: String,
    },
    /// Say again that it ended so.
    Reassert {
        /// How it ended.
        state: TaskState,
        /// Why this is said again.
        reason: String,
    },
    /// Hold it back, or let it go.
    Pause {
        /// Whether nothing new may start.
        paused: bool,
    },
}

impl Request {
    /// The fencing token, where the request is one of a lease's owner.
    pub fn token(&self) -> Option<u64> {
        match self {
            Request::Heartbeat { token }
            | Request::Finish { token, .. }
            | Request::Judge { token, .. }
            | Request::RecordIntent { token, .. }
            | Request::SettleIntent { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// The SHA-256 of the content: two requests with the same one are a repeat.
    pub fn digest(&self) -> String {
        // Maps of these types have text keys only, so this cannot fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        runner_core::digest::sha256_hex(text.as_bytes())
    }
}

/// A task to make.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NewTask {
    /// Its id, chosen by the caller.
    pub id: TaskId,
    /// A few words.
    pub title: String,
    /// What shall be so.
    pub goal: String,
    /// What kind of work it is.
    pub kind: TaskKind,
    /// Which agents get it; empty: it waits for that to be known.
    pub role: String,
    /// Which slots it competes for.
    pub lane: Lane,
    /// Where it comes from.
    pub origin: TaskOrigin,
    /// The issue or pull request.
    pub source: Option<String>,
    /// How much it matters.
    pub priority: TaskPriority,
    /// How likely it breaks something.
    pub risk: TaskRisk,
    /// Whether it runs beside others.
    pub task_type: TaskType,
    /// What must be done first.
    pub dependencies: Vec<TaskId>,
    /// What it may change.
    pub lock_scope: Vec<Resource>,
    /// What it may not.
    pub forbidden_scope: Vec<Resource>,
    /// The conditions of `done`.
    pub acceptance: Vec<Criterion>,
    /// The commands that check it.
    pub commands: Vec<String>,
    /// Whether a result without a change is none.
    pub expects_change: bool,
    /// What a session is told.
    pub context: Vec<ContextItem>,
    /// How long nothing may be heard of the owner.
    pub timeout_seconds: u32,
    /// How often it says that it lives.
    pub heartbeat_interval_seconds: u32,
    /// How long a run may take.
    pub timebox_seconds: u32,
    /// The head of the pull request, for a review.
    pub head: Option<String>,
}

impl NewTask {
    /// A task with the defaults, one scope and one command criterion.
    pub fn new(id: TaskId, scope: Resource) -> NewTask {
        NewTask {
            id,
            title: String::new(),
            goal: String::new(),
            kind: TaskKind::Code,
            role: "worker".to_owned(),
            lane: Lane::Feature,
            origin: TaskOrigin::Planned,
            source: None,
            priority: TaskPriority::Normal,
            risk: TaskRisk::Medium,
            task_type: TaskType::Parallelizable,
            dependencies: Vec::new(),
            lock_scope: vec![scope],
            forbidden_scope: Vec::new(),
            acceptance: vec![Criterion {
                id: "guard".to_owned(),
                text: "the guard is green".to_owned(),
                check: crate::words::CriterionCheck::Command,
            }],
            commands: Vec::new(),
            expects_change: true,
            context: Vec::new(),
            timeout_seconds: 90,
            heartbeat_interval_seconds: 15,
            timebox_seconds: 3600,
            head: None,
        }
    }
}

/// A claim of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Who shall hold the lease.
    pub owner: String,
    /// What for.
    pub purpose: LeasePurpose,
    /// The owner's own name for this claim, never used twice.
    pub key: String,
    /// The base of the merge queue, for a merge.
    pub base: Option<String>,
}

/// How a worker's run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkEnding {
    /// There is a result.
    Success {
        /// The commit, for a task that changes the repo.
        result: Option<String>,
        /// What the worker answers to the command criteria.
        packet: ResultPacket,
    },
    /// There is none, and it counts.
    Failed {
        /// For the retry policy.
        category: FailureCategory,
        /// The failure in its normal form.
        signature: Option<String>,
        /// The same for people.
        note: String,
    },
    /// Something is in the way.
    Blocked {
        /// The code.
        code: RefusalCode,
        /// The same for people.
        reason: String,
        /// What it waits for.
        waits_for: Option<String>,
    },
    /// The quota of the account is used up; nothing is counted.
    Quota {
        /// When the provider says it is there again.
        reset_at: Option<Timestamp>,
        /// Which account.
        account: String,
    },
    /// A budget of the day or the fleet is used up; nothing is counted.
    Postponed {
        /// When the next period begins.
        until: Timestamp,
        /// The same for people.
        reason: String,
    },
    /// The session was cut off.
    Lost,
    /// Somebody stopped the worker, which ended its session in order; nothing is counted.
    GivenBack,
}

/// How a judgement, or a place at the head of the merge queue, ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeEnding {
    /// Every criterion holds: to the merge queue, or done where nothing is merged.
    Approve {
        /// The answers to all criteria.
        packet: ResultPacket,
    },
    /// More work is needed.
    Reject {
        /// Of which kind.
        cause: ReworkCause,
        /// What was found.
        remarks: Vec<ReviewRemark>,
        /// The same for people.
        reason: String,
    },
    /// An evaluator could not run.
    Unable {
        /// Why.
        reason: String,
    },
    /// The quota of the account is used up.
    Quota {
        /// When the provider says it is there again.
        reset_at: Option<Timestamp>,
        /// Which account.
        account: String,
    },
    /// The result passes only with tests or settings that it changed itself: a person decides.
    ChangedJudge {
        /// What it changed, for people.
        reason: String,
    },
    /// It is not this task's turn, or not its fault: it keeps its place.
    StepBack {
        /// Why.
        reason: String,
    },
}

/// A correction of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NewPacket {
    /// What it may change.
    pub lock_scope: Vec<Resource>,
    /// What it may not.
    pub forbidden_scope: Vec<Resource>,
    /// What a session is told.
    pub context: Vec<ContextItem>,
    /// The commands that check it.
    pub commands: Vec<String>,
}

/// What became of a dependency, at the end of its chain of successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DependencyChain {
    /// Done at that time.
    Done(Timestamp),
    /// Not ended.
    Alive,
    /// Failed or canceled, without a successor.
    Dead,
}

/// A dependency of the task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// Which.
    pub id: TaskId,
    /// What became of it.
    pub chain: DependencyChain,
}

/// A result that waits for its merge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnmergedResult {
    /// Whose.
    pub task_id: TaskId,
    /// The first task of its lineage.
    pub lineage: TaskId,
    /// What it may have changed.
    pub scope: Vec<Resource>,
}

/// A scope that is kept free for a task that waited long enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// For whom.
    pub task_id: TaskId,
    /// What is kept free.
    pub scope: Vec<Resource>,
}

/// What is known of the pull request of a review.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PullRequest {
    /// Its head.
    pub head: String,
    /// Whether it is closed.
    pub closed: bool,
}

/// What is known of the issue of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IssueFacts {
    /// The role, once it is known.
    pub role: Option<String>,
    /// Whether it is closed.
    pub closed: bool,
    /// What it asks for with that role; `None`: what its task says already.
    pub work: Option<IssueWork>,
}

/// What an issue asks for, as its task would have it if it were made now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IssueWork {
    /// What may be changed.
    pub lock_scope: Vec<Resource>,
    /// What may not.
    pub forbidden_scope: Vec<Resource>,
    /// Which slots it competes for.
    pub lane: Lane,
    /// Whether a result without a change is none.
    pub expects_change: bool,
}

/// What the caller read, in the same transaction as the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // facts are independent of each other
pub struct Facts {
    /// The lease of the task.
    pub lease: Option<Lease>,
    /// Its newest run.
    pub run: Option<TaskRun>,
    /// The receipt of the lease that the request names.
    pub receipt: Option<Receipt>,
    /// Its dependencies, each at the end of its chain. At creation: those that exist.
    pub dependencies: Vec<Dependency>,
    /// The locks that are held.
    pub locks: Vec<ScopeLock>,
    /// The results that wait for their merge.
    pub unmerged: Vec<UnmergedResult>,
    /// The scopes that are kept free.
    pub reservations: Vec<Reservation>,
    /// What is wrong with the task, its lineage and overlapping locks.
    pub inconsistencies: Vec<Inconsistency>,
    /// Its runs that say they are running, oldest first: for a repair.
    pub running: Vec<TaskRun>,
    /// Whether it is the head of the merge queue of its base.
    pub is_merge_head: bool,
    /// Whether the fleet is paused.
    pub fleet_paused: bool,
    /// Until when there is no budget.
    pub no_budget_until: Option<Timestamp>,
    /// Whether its lane is full.
    pub lane_full: bool,
    /// Whether reviews are off.
    pub review_off: bool,
    /// Whether another live worker of the role failed less often.
    pub other_worker: bool,
    /// How many models are configured.
    pub models: u32,
    /// The pull request of a review.
    pub pull_request: Option<PullRequest>,
    /// The issue of the task.
    pub issue: Option<IssueFacts>,
    /// Whether the policy can be kept by another scope.
    pub safe_path: bool,
    /// How a repair of the ledger went, if one was tried now.
    pub repaired: Option<bool>,
}
