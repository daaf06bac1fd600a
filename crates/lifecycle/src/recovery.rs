//! The recovery table: what becomes of a blocked task without a person.
//!
//! Rows are tried in order. Each says when it applies and what it does, and each has a
//! bound, a clock, or leaves the task parked.

use crate::lock::first_conflict;
use crate::policy::{Policy, PolicyRule};
use crate::request::{DependencyChain, Facts};
use crate::row::Task;
use crate::successor;
use crate::time::Timestamp;
use crate::words::{BlockReason, ReworkCause, TaskKind, TaskOrigin, TaskPhase};

/// What is to be done with a blocked task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Nothing: somebody else is next.
    Stay,
    /// Nothing before that time.
    Wait(Timestamp),
    /// Nothing: a person or the outside is next. With a time, it ends by itself.
    Park(Option<Timestamp>),
    /// Go on where it was: `todo`, or `awaiting_judge` in phase judge.
    Resume,
    /// `todo` in phase work.
    Requeue(RecoveryRequeue),
    /// `awaiting_judge`, with the run unjudged again.
    Unjudge,
    /// `awaiting_judge`, with a new run at the head of the pull request.
    RestoreRun {
        /// Whether it counts: it was the ledger that had lost the run.
        counted: bool,
    },
    /// `needs_rework`.
    Rework(ReworkCause),
    /// As a failed run of category `test`.
    CountAsTest,
    /// A repair of the ledger failed; it is counted.
    CountRepair,
    /// A repair of the ledger is to be tried.
    Repair,
    /// `failed`.
    Fail(&'static str),
    /// `canceled`.
    Cancel(&'static str),
    /// `failed`, with a successor of that kind.
    Succeed(TaskOrigin),
}

/// How a task gets back to `todo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryRequeue {
    /// As it is.
    Plain,
    /// With the role its issue names.
    WithRole(String),
    /// Alone.
    Serial,
    /// It counts as a lost run.
    Lost,
    /// With a new packet after setup failures.
    SetupPacket,
    /// With a new packet after policy failures.
    PolicyPacket,
    /// With a new packet after a structural code.
    Replan,
}

impl RecoveryRequeue {
    /// Whether the caller must hand in a new packet.
    pub fn needs_packet(&self) -> bool {
        matches!(
            self,
            RecoveryRequeue::SetupPacket | RecoveryRequeue::PolicyPacket | RecoveryRequeue::Replan
        )
    }
}

/// What keeps a row from being followed forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryBound {
    /// A counter with a limit, or a step that cannot come twice.
    Counted,
    /// A time that comes.
    Clock,
    /// Somebody else is next: a judge, the holder of a lock, a person.
    Waits,
}

/// One row of the table.
pub struct RecoveryRow {
    /// Its name; events carry it as their reason.
    pub name: &'static str,
    /// The reasons it is for; none: every reason.
    pub reasons: &'static [BlockReason],
    /// What keeps it from being followed forever.
    pub bound: RecoveryBound,
    applies: fn(&RecoveryCase<'_>) -> bool,
    action: fn(&RecoveryCase<'_>) -> RecoveryAction,
}

/// A blocked task, and what is known of it.
struct RecoveryCase<'c> {
    policy: &'c Policy,
    task: &'c Task,
    facts: &'c Facts,
    now: Timestamp,
}

/// The row that applies to a blocked task, and what it does. None if the task is not
/// blocked.
pub fn plan(
    policy: &Policy,
    task: &Task,
    facts: &Facts,
    now: Timestamp,
) -> Option<(&'static RecoveryRow, RecoveryAction)> {
    task.blocker.as_ref()?;
    let case = RecoveryCase {
        policy,
        task,
        facts,
        now,
    };
    let row = TABLE.iter().find(|row| row.matches(&case))?;
    Some((row, (row.action)(&case)))
}

/// Whether the task waits for a person or the outside.
pub fn is_parked(policy: &Policy, task: &Task, facts: &Facts, now: Timestamp) -> bool {
    matches!(
        plan(policy, task, facts, now),
        Some((_, RecoveryAction::Park(_)))
    )
}

impl RecoveryRow {
    fn matches(&self, case: &RecoveryCase<'_>) -> bool {
        let reason = case.task.blocked_on();
        let named = self.reasons.is_empty() || reason.is_some_and(|r| self.reasons.contains(&r));
        named && (self.applies)(case)
    }
}

/// The rows, in the order in which they are tried.
pub static TABLE: &[RecoveryRow] = &[
    RecoveryRow {
        name: "open_intent_retry",
        reasons: &[],
        bound: RecoveryBound::Waits,
        applies: |case| case.task.intent.is_some(),
        action: |case| match case.task.blocked_on() {
            Some(BlockReason::AwaitingJudge) => RecoveryAction::Stay,
            _ => RecoveryAction::Resume,
        },
    },
    RecoveryRow {
        name: "cooldown_retry",
        reasons: &[BlockReason::Cooldown, BlockReason::QuotaWait],
        bound: RecoveryBound::Clock,
        applies: |_| true,
        action: |case| match case.task.retry_at() {
            Some(at) if at > case.now => RecoveryAction::Wait(at),
            _ => RecoveryAction::Resume,
        },
    },
    RecoveryRow {
        name: "task_timeout_retry",
        reasons: &[BlockReason::TaskTimeout],
        bound: RecoveryBound::Counted,
        applies: |_| true,
        action: |case| after_loss(case, RecoveryAction::Resume),
    },
    RecoveryRow {
        name: "awaiting_judge",
        reasons: &[BlockReason::AwaitingJudge],
        bound: RecoveryBound::Waits,
        applies: |case| {
            let run = case.facts.run.as_ref();
            run.is_some_and(|run| run.is_unjudged_success() || run.is_approved())
        },
        action: |_| RecoveryAction::Stay,
    },
    RecoveryRow {
        name: "awaiting_judge_unjudged_retry",
        reasons: &[BlockReason::AwaitingJudge],
        bound: RecoveryBound::Waits,
        applies: |case| {
            let run = case.facts.run.as_ref();
            run.is_some_and(crate::run::TaskRun::is_claimed_without_verdict)
        },
        action: |case| {
            if case.policy.enforces(PolicyRule::Unjudge) {
                RecoveryAction::Unjudge
            } else {
                RecoveryAction::Stay
            }
        },
    },
    RecoveryRow {
        name: "awaiting_judge_missing_run_retry",
        reasons: &[BlockReason::AwaitingJudge],
        bound: RecoveryBound::Counted,
        applies: |case| case.task.kind == TaskKind::Review && has_no_run(case),
        action: |case| match &case.facts.pull_request {
            Some(pull) if pull.closed => RecoveryAction::Cancel("pull_request_closed"),
            Some(_) if case.task.counters.restores < case.policy.max_restores => {
                RecoveryAction::RestoreRun { counted: true }
            }
            _ => RecoveryAction::Park(None),
        },
    },
    RecoveryRow {
        name: "awaiting_judge_timeout_retry",
        reasons: &[BlockReason::AwaitingJudge],
        bound: RecoveryBound::Counted,
        applies: |case| case.task.kind != TaskKind::Review && has_no_run(case),
        action: |case| {
            let lost = case.task.counters.lost_work;
            if lost >= case.policy.max_lost {
                RecoveryAction::Fail("lost_too_often")
            } else {
                RecoveryAction::Requeue(RecoveryRequeue::Lost)
            }
        },
    },
    RecoveryRow {
        name: "pr_review_needs_rework_missing_run_retry",
        reasons: &[BlockReason::NeedsRework],
        bound: RecoveryBound::Counted,
        applies: has_new_head,
        action: |_| RecoveryAction::RestoreRun { counted: false },
    },
    RecoveryRow {
        name: "setup_packet_retry",
        reasons: &[BlockReason::NeedsRework],
        bound: RecoveryBound::Counted,
        applies: |case| {
            !has_new_head(case)
                && cause(case) == ReworkCause::Setup
                && case.task.counters.setup_packets < case.policy.max_packets
                && may_run_again(case)
        },
        action: |_| RecoveryAction::Requeue(RecoveryRequeue::SetupPacket),
    },
    RecoveryRow {
        name: "policy_packet_retry",
        reasons: &[BlockReason::NeedsRework],
        bound: RecoveryBound::Counted,
        applies: |case| {
            !has_new_head(case)
                && cause(case) == ReworkCause::Policy
                && case.facts.safe_path
                && case.task.counters.policy_packets < case.policy.max_packets
                && may_run_again(case)
        },
        action: |_| RecoveryAction::Requeue(RecoveryRequeue::PolicyPacket),
    },
    RecoveryRow {
        name: "policy_without_safe_path",
        reasons: &[BlockReason::NeedsRework],
        bound: RecoveryBound::Counted,
        applies: |case| {
            !has_new_head(case) && cause(case) == ReworkCause::Policy && !case.facts.safe_path
        },
        action: |case| {
            let tries = case
                .task
                .counters
                .failed(crate::words::FailureCategory::Policy);
            if tries >= case.policy.max_policy_tries || !may_run_again(case) {
                RecoveryAction::Cancel("policy_without_safe_path")
            } else {
                RecoveryAction::Requeue(RecoveryRequeue::Plain)
            }
        },
    },
    RecoveryRow {
        name: "rework",
        reasons: &[BlockReason::NeedsRework],
        bound: RecoveryBound::Counted,
        applies: |case| {
            let packet_left = |used: u32| used < case.policy.max_packets && may_run_again(case);
            !has_new_head(case)
                && match cause(case) {
                    ReworkCause::Setup => !packet_left(case.task.counters.setup_packets),
                    ReworkCause::Policy => {
                        case.facts.safe_path && !packet_left(case.task.counters.policy_packets)
                    }
                    _ => true,
                }
        },
        action: |case| {
            if case.task.kind == TaskKind::Research {
                // Its plugin makes the next task.
                return RecoveryAction::Fail("research_rework");
            }
            match successor::kind(case.policy, case.task, cause(case)) {
                Some(kind) => RecoveryAction::Succeed(kind),
                None => RecoveryAction::Cancel("lineage_limit_reached"),
            }
        },
    },
    RecoveryRow {
        name: "issue_linking_retry",
        reasons: &[BlockReason::IssueLinking],
        bound: RecoveryBound::Waits,
        applies: |_| true,
        action: |case| match &case.facts.issue {
            Some(issue) if issue.closed => RecoveryAction::Cancel("issue_closed"),
            Some(issue) if issue.role.is_some() => {
                let role = issue.role.clone().unwrap_or_default();
                resume_or(case, RecoveryRequeue::WithRole(role))
            }
            _ if !case.task.role.is_empty() => RecoveryAction::Resume,
            _ => RecoveryAction::Park(None),
        },
    },
    RecoveryRow {
        name: "dependency_retry",
        reasons: &[BlockReason::DependencyNotMet],
        bound: RecoveryBound::Clock,
        applies: |_| true,
        action: |case| {
            let mut chains = case.facts.dependencies.iter().map(|one| one.chain);
            if !chains.any(|chain| chain == DependencyChain::Dead) {
                return RecoveryAction::Resume;
            }
            let since = case.task.blocker.as_ref().map_or(case.now, |b| b.since);
            let end = since.plus_secs(case.policy.dependency_grace_secs);
            if case.now >= end {
                RecoveryAction::Fail("dependency_dead")
            } else {
                RecoveryAction::Park(Some(end))
            }
        },
    },
    RecoveryRow {
        name: "replan",
        reasons: &[
            BlockReason::SchemaInvalid,
            BlockReason::ScopeViolation,
            BlockReason::NonCompliant,
            BlockReason::MissingRequiredInput,
            BlockReason::UnknownSchemaVersion,
        ],
        bound: RecoveryBound::Counted,
        applies: |_| true,
        action: |case| {
            if !may_run_again(case) {
                RecoveryAction::Rework(ReworkCause::Exhausted)
            } else if case.task.has_newer_packet() {
                RecoveryAction::Requeue(RecoveryRequeue::Plain)
            } else if case.task.counters.replans < case.policy.max_replans {
                RecoveryAction::Requeue(RecoveryRequeue::Replan)
            } else {
                RecoveryAction::Fail("packet_refused_again")
            }
        },
    },
    RecoveryRow {
        name: "conflict_serial_retry",
        reasons: &[BlockReason::ConcurrencyConflict],
        bound: RecoveryBound::Counted,
        applies: |_| true,
        action: |case| resume_or(case, RecoveryRequeue::Serial),
    },
    RecoveryRow {
        name: "lock_free_retry",
        reasons: &[BlockReason::LockConflict],
        bound: RecoveryBound::Waits,
        applies: |_| true,
        action: |case| {
            let scope = case.task.work_scope();
            match first_conflict(&case.task.id, &scope, &case.facts.locks) {
                Some(_) if case.task.phase == TaskPhase::Work => RecoveryAction::Stay,
                _ => RecoveryAction::Resume,
            }
        },
    },
    RecoveryRow {
        name: "acceptance_failed",
        reasons: &[BlockReason::AcceptanceFailed],
        bound: RecoveryBound::Counted,
        applies: |_| true,
        action: |_| RecoveryAction::CountAsTest,
    },
    RecoveryRow {
        name: "ledger_repaired_retry",
        reasons: &[BlockReason::LedgerInconsistent],
        bound: RecoveryBound::Counted,
        applies: |_| true,
        action: |case| match case.facts.repaired {
            Some(true) => RecoveryAction::Resume,
            _ if case.task.counters.repairs >= case.policy.max_repairs => {
                RecoveryAction::Park(None)
            }
            Some(false) => RecoveryAction::CountRepair,
            None => RecoveryAction::Repair,
        },
    },
    RecoveryRow {
        name: "parked",
        reasons: &[BlockReason::InvalidTransition, BlockReason::ChangedJudge],
        bound: RecoveryBound::Waits,
        applies: |_| true,
        action: |_| RecoveryAction::Park(None),
    },
];

/// What a loss leads to, once it is counted.
fn after_loss(case: &RecoveryCase<'_>, again: RecoveryAction) -> RecoveryAction {
    let counters = &case.task.counters;
    let lost = match case.task.phase {
        TaskPhase::Work => counters.lost_work,
        TaskPhase::Judge => counters.lost_judge,
    };
    if lost <= case.policy.max_lost {
        return again;
    }
    match case.task.phase {
        TaskPhase::Work => RecoveryAction::Fail("lost_too_often"),
        TaskPhase::Judge => RecoveryAction::Rework(ReworkCause::Unjudged),
    }
}

/// In phase judge the result is good: the task goes back to a judge, not to a worker.
fn resume_or(case: &RecoveryCase<'_>, requeue: RecoveryRequeue) -> RecoveryAction {
    match case.task.phase {
        TaskPhase::Work => RecoveryAction::Requeue(requeue),
        TaskPhase::Judge => RecoveryAction::Resume,
    }
}

fn cause(case: &RecoveryCase<'_>) -> ReworkCause {
    case.task.rework_cause.unwrap_or(ReworkCause::Exhausted)
}

fn may_run_again(case: &RecoveryCase<'_>) -> bool {
    case.task.counters.runs < case.policy.max_runs
}

/// Whether there is nothing that a judge could claim, or already has.
fn has_no_run(case: &RecoveryCase<'_>) -> bool {
    !case.facts.run.as_ref().is_some_and(|run| {
        run.is_unjudged_success() || run.is_approved() || run.is_claimed_without_verdict()
    })
}

/// Whether the pull request of a review is another since its last judgement.
fn has_new_head(case: &RecoveryCase<'_>) -> bool {
    let judged = case.facts.run.as_ref().and_then(|run| run.result.as_ref());
    case.task.kind == TaskKind::Review
        && case
            .facts
            .pull_request
            .as_ref()
            .is_some_and(|pull| !pull.closed && judged.is_some_and(|judged| *judged != pull.head))
}

#[cfg(test)]
mod tests;
