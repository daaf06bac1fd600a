//! What stands beside a row: runs, leases and receipts.

use serde::{Deserialize, Serialize};

use crate::decide::Answer;
use crate::packet::ResultPacket;
use crate::row::TaskId;
use crate::time::Timestamp;
use crate::words::{FailureCategory, JudgeVerdict, LeasePurpose, TaskRunStatus};

/// One attempt at a task. At most one of a task is running.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRun {
    /// `<task>-<number>`.
    pub id: String,
    /// Whose attempt it is.
    pub task_id: TaskId,
    /// Counted from 1.
    pub number: u32,
    /// Who made it.
    pub owner: String,
    /// The fencing token of its lease.
    pub token: u64,
    /// What became of it.
    pub status: TaskRunStatus,
    /// Why it failed, for the retry policy; none for a lost one.
    pub category: Option<FailureCategory>,
    /// The failure in its normal form.
    pub signature: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The commit that is its result.
    pub result: Option<String>,
    /// What the worker says about it.
    pub packet: Option<ResultPacket>,
    /// When a judge claimed it.
    pub judged_at: Option<Timestamp>,
    /// How often judges claimed it.
    pub judgement_version: u32,
    /// What the judge said.
    pub verdict: Option<JudgeVerdict>,
    /// What the judge answered to each criterion.
    pub judge_packet: Option<ResultPacket>,
}

impl TaskRun {
    /// The id of a task's n-th run.
    pub fn id_of(task: &TaskId, number: u32) -> String {
        format!("{task}-{number}")
    }

    /// A run that begins now.
    pub fn begin(task: &TaskId, number: u32, owner: &str, token: u64, now: Timestamp) -> TaskRun {
        TaskRun {
            id: TaskRun::id_of(task, number),
            task_id: task.clone(),
            number,
            owner: owner.to_owned(),
            token,
            status: TaskRunStatus::Running,
            category: None,
            signature: None,
            started_at: now,
            ended_at: None,
            result: None,
            packet: None,
            judged_at: None,
            judgement_version: 0,
            verdict: None,
            judge_packet: None,
        }
    }

    /// The run of a review: its result is the head of the pull request.
    pub fn of_pull_request(
        task: &TaskId,
        number: u32,
        head: &str,
        actor: &str,
        now: Timestamp,
    ) -> TaskRun {
        TaskRun {
            status: TaskRunStatus::Success,
            ended_at: Some(now),
            result: Some(head.to_owned()),
            ..TaskRun::begin(task, number, actor, 0, now)
        }
    }

    /// Whether a judge may claim it.
    pub fn is_unjudged_success(&self) -> bool {
        self.status == TaskRunStatus::Success && self.judged_at.is_none() && self.verdict.is_none()
    }

    /// Whether a judge claimed it and never said anything.
    pub fn is_claimed_without_verdict(&self) -> bool {
        self.status == TaskRunStatus::Success && self.judged_at.is_some() && self.verdict.is_none()
    }

    /// Whether it waits in the merge queue.
    pub fn is_approved(&self) -> bool {
        self.status == TaskRunStatus::Success && self.verdict == Some(JudgeVerdict::Approve)
    }
}

/// The right to work on a task, for as long as heartbeats come.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The task.
    pub task_id: TaskId,
    /// The run that it is about.
    pub run_id: String,
    /// Who holds it.
    pub owner: String,
    /// Every write of the owner names it.
    pub token: u64,
    /// What it is for.
    pub purpose: LeasePurpose,
    /// The owner's own name for its claim: a repeat of the claim is known by it.
    pub key: String,
    /// When it began.
    pub claimed_at: Timestamp,
    /// When the owner was last heard.
    pub last_heartbeat_at: Timestamp,
    /// How long it lasts without a heartbeat.
    pub timeout_seconds: u32,
    /// How often a heartbeat is due.
    pub heartbeat_interval_seconds: u32,
    /// When its length is used up.
    pub ends_at: Timestamp,
}

impl Lease {
    /// When it ends unless a heartbeat comes.
    pub fn expires_at(&self) -> Timestamp {
        self.last_heartbeat_at
            .plus_secs(u64::from(self.timeout_seconds))
    }

    /// Whether nothing was heard in time. The boundary itself counts.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at()
    }

    /// Whether its owner never said a word after the claim, and one interval is over.
    pub fn never_began(&self, now: Timestamp) -> bool {
        let interval = u64::from(self.heartbeat_interval_seconds);
        self.last_heartbeat_at == self.claimed_at && now >= self.claimed_at.plus_secs(interval)
    }
}

/// The recorded answer to the request that ended a lease. A repeat with the same
/// content gets it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The task.
    pub task_id: TaskId,
    /// The token of the lease that it ended. With the task it is the key.
    pub token: u64,
    /// The SHA-256 of the request.
    pub digest: String,
    /// What was answered.
    pub answer: Answer,
}
