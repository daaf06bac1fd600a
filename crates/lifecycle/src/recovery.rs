//! The recovery table: what becomes of a blocked task without a person.
//!
//! Rows are tried in order. Each says when it applies and what it does, and each has a
//! bound, a clock, or leaves the task parked.

use crate::lock::first_conflict;
use crate::policy::{Policy, Rule};
use crate::request::{Chain, Facts};
use crate::row::Task;
use crate::successor;
use crate::time::Timestamp;
use crate::words::{Kind, Origin, Phase, Reason, ReworkCause};

/// What is to be done with a blocked task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: somebody else is next.
    Stay,
    /// Nothing before that time.
    Wait(Timestamp),
    /// Nothing: a person or the outside is next. With a time, it ends by itself.
    Park(Option<Timestamp>),
    /// Go on where it was: `todo`, or `awaiting_judge` in phase judge.
    Resume,
    /// `todo` in phase work.
    Requeue(Requeue),
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
    Succeed(Origin),
}

/// How a task gets back to `todo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
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

impl Requeue {
    /// Whether the caller must hand in a new packet.
    pub fn needs_packet(&self) -> bool {
        matches!(
            self,
            Requeue::SetupPacket | Requeue::PolicyPacket | Requeue::Replan
        )
    }
}

/// What keeps a row from being followed forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A counter with a limit, or a step that cannot come twice.
    Counted,
    /// A time that comes.
    Clock,
    /// Somebody else is next: a judge, the holder of a lock, a person.
    Waits,
}

/// One row of the table.
pub struct Row {
    /// Its name; events carry it as their reason.
    pub name: &'static str,
    /// The reasons it is for; none: every reason.
    pub reasons: &'static [Reason],
    /// What keeps it from being followed forever.
    pub bound: Bound,
    applies: fn(&Case<'_>) -> bool,
    action: fn(&Case<'_>) -> Action,
}

/// A blocked task, and what is known of it.
struct Case<'c> {
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
) -> Option<(&'static Row, Action)> {
    task.blocker.as_ref()?;
    let case = Case {
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
    matches!(plan(policy, task, facts, now), Some((_, Action::Park(_))))
}

impl Row {
    fn matches(&self, case: &Case<'_>) -> bool {
        let reason = case.task.blocked_on();
        let named = self.reasons.is_empty() || reason.is_some_and(|r| self.reasons.contains(&r));
        named && (self.applies)(case)
    }
}

/// The rows, in the order in which they are tried.
pub static TABLE: &[Row] = &[
    Row {
        name: "open_intent_retry",
        reasons: &[],
        bound: Bound::Waits,
        applies: |case| case.task.intent.is_some(),
        action: |case| match case.task.blocked_on() {
            Some(Reason::AwaitingJudge) => Action::Stay,
            _ => Action::Resume,
        },
    },
    Row {
        name: "cooldown_retry",
        reasons: &[Reason::Cooldown, Reason::QuotaWait],
        bound: Bound::Clock,
        applies: |_| true,
        action: |case| match case.task.retry_at() {
            Some(at) if at > case.now => Action::Wait(at),
            _ => Action::Resume,
        },
    },
    Row {
        name: "task_timeout_retry",
        reasons: &[Reason::TaskTimeout],
        bound: Bound::Counted,
        applies: |_| true,
        action: |case| after_loss(case, Action::Resume),
    },
    Row {
        name: "awaiting_judge",
        reasons: &[Reason::AwaitingJudge],
        bound: Bound::Waits,
        applies: |case| {
            let run = case.facts.run.as_ref();
            run.is_some_and(|run| run.is_unjudged_success() || run.is_approved())
        },
        action: |_| Action::Stay,
    },
    Row {
        name: "awaiting_judge_unjudged_retry",
        reasons: &[Reason::AwaitingJudge],
        bound: Bound::Waits,
        applies: |case| {
            let run = case.facts.run.as_ref();
            run.is_some_and(crate::run::Run::is_claimed_without_verdict)
        },
        action: |case| {
            if case.policy.enforces(Rule::Unjudge) {
                Action::Unjudge
            } else {
                Action::Stay
            }
        },
    },
    Row {
        name: "awaiting_judge_missing_run_retry",
        reasons: &[Reason::AwaitingJudge],
        bound: Bound::Counted,
        applies: |case| case.task.kind == Kind::Review && has_no_run(case),
        action: |case| match &case.facts.pull_request {
            Some(pull) if pull.closed => Action::Cancel("pull_request_closed"),
            Some(_) if case.task.counters.restores < case.policy.max_restores => {
                Action::RestoreRun { counted: true }
            }
            _ => Action::Park(None),
        },
    },
    Row {
        name: "awaiting_judge_timeout_retry",
        reasons: &[Reason::AwaitingJudge],
        bound: Bound::Counted,
        applies: |case| case.task.kind != Kind::Review && has_no_run(case),
        action: |case| {
            let lost = case.task.counters.lost_work;
            if lost >= case.policy.max_lost {
                Action::Fail("lost_too_often")
            } else {
                Action::Requeue(Requeue::Lost)
            }
        },
    },
    Row {
        name: "pr_review_needs_rework_missing_run_retry",
        reasons: &[Reason::NeedsRework],
        bound: Bound::Counted,
        applies: has_new_head,
        action: |_| Action::RestoreRun { counted: false },
    },
    Row {
        name: "setup_packet_retry",
        reasons: &[Reason::NeedsRework],
        bound: Bound::Counted,
        applies: |case| {
            !has_new_head(case)
                && cause(case) == ReworkCause::Setup
                && case.task.counters.setup_packets < case.policy.max_packets
                && may_run_again(case)
        },
        action: |_| Action::Requeue(Requeue::SetupPacket),
    },
    Row {
        name: "policy_packet_retry",
        reasons: &[Reason::NeedsRework],
        bound: Bound::Counted,
        applies: |case| {
            !has_new_head(case)
                && cause(case) == ReworkCause::Policy
                && case.facts.safe_path
                && case.task.counters.policy_packets < case.policy.max_packets
                && may_run_again(case)
        },
        action: |_| Action::Requeue(Requeue::PolicyPacket),
    },
    Row {
        name: "policy_without_safe_path",
        reasons: &[Reason::NeedsRework],
        bound: Bound::Counted,
        applies: |case| {
            !has_new_head(case) && cause(case) == ReworkCause::Policy && !case.facts.safe_path
        },
        action: |case| {
            let tries = case.task.counters.failed(crate::words::Category::Policy);
            if tries >= case.policy.max_policy_tries || !may_run_again(case) {
                Action::Cancel("policy_without_safe_path")
            } else {
                Action::Requeue(Requeue::Plain)
            }
        },
    },
    Row {
        name: "rework",
        reasons: &[Reason::NeedsRework],
        bound: Bound::Counted,
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
            if case.task.kind == Kind::Research {
                // Its plugin makes the next task.
                return Action::Fail("research_rework");
            }
            match successor::kind(case.policy, case.task, cause(case)) {
                Some(kind) => Action::Succeed(kind),
                None => Action::Cancel("lineage_limit_reached"),
            }
        },
    },
    Row {
        name: "issue_linking_retry",
        reasons: &[Reason::IssueLinking],
        bound: Bound::Waits,
        applies: |_| true,
        action: |case| match &case.facts.issue {
            Some(issue) if issue.closed => Action::Cancel("issue_closed"),
            Some(issue) if issue.role.is_some() => {
                let role = issue.role.clone().unwrap_or_default();
                resume_or(case, Requeue::WithRole(role))
            }
            _ if !case.task.role.is_empty() => Action::Resume,
            _ => Action::Park(None),
        },
    },
    Row {
        name: "dependency_retry",
        reasons: &[Reason::DependencyNotMet],
        bound: Bound::Clock,
        applies: |_| true,
        action: |case| {
            let mut chains = case.facts.dependencies.iter().map(|one| one.chain);
            if !chains.any(|chain| chain == Chain::Dead) {
                return Action::Resume;
            }
            let since = case.task.blocker.as_ref().map_or(case.now, |b| b.since);
            let end = since.plus_secs(case.policy.dependency_grace_secs);
            if case.now >= end {
                Action::Fail("dependency_dead")
            } else {
                Action::Park(Some(end))
            }
        },
    },
    Row {
        name: "replan",
        reasons: &[
            Reason::SchemaInvalid,
            Reason::ScopeViolation,
            Reason::NonCompliant,
            Reason::MissingRequiredInput,
            Reason::UnknownSchemaVersion,
        ],
        bound: Bound::Counted,
        applies: |_| true,
        action: |case| {
            if !may_run_again(case) {
                Action::Rework(ReworkCause::Exhausted)
            } else if case.task.has_newer_packet() {
                Action::Requeue(Requeue::Plain)
            } else if case.task.counters.replans < case.policy.max_replans {
                Action::Requeue(Requeue::Replan)
            } else {
                Action::Fail("packet_refused_again")
            }
        },
    },
    Row {
        name: "conflict_serial_retry",
        reasons: &[Reason::ConcurrencyConflict],
        bound: Bound::Counted,
        applies: |_| true,
        action: |case| resume_or(case, Requeue::Serial),
    },
    Row {
        name: "lock_free_retry",
        reasons: &[Reason::LockConflict],
        bound: Bound::Waits,
        applies: |_| true,
        action: |case| {
            let scope = case.task.work_scope();
            match first_conflict(&case.task.id, &scope, &case.facts.locks) {
                Some(_) if case.task.phase == Phase::Work => Action::Stay,
                _ => Action::Resume,
            }
        },
    },
    Row {
        name: "acceptance_failed",
        reasons: &[Reason::AcceptanceFailed],
        bound: Bound::Counted,
        applies: |_| true,
        action: |_| Action::CountAsTest,
    },
    Row {
        name: "ledger_repaired_retry",
        reasons: &[Reason::LedgerInconsistent],
        bound: Bound::Counted,
        applies: |_| true,
        action: |case| match case.facts.repaired {
            Some(true) => Action::Resume,
            _ if case.task.counters.repairs >= case.policy.max_repairs => Action::Park(None),
            Some(false) => Action::CountRepair,
            None => Action::Repair,
        },
    },
    Row {
        name: "parked",
        reasons: &[Reason::InvalidTransition],
        bound: Bound::Waits,
        applies: |_| true,
        action: |_| Action::Park(None),
    },
];

/// What a loss leads to, once it is counted.
fn after_loss(case: &Case<'_>, again: Action) -> Action {
    let counters = &case.task.counters;
    let lost = match case.task.phase {
        Phase::Work => counters.lost_work,
        Phase::Judge => counters.lost_judge,
    };
    if lost <= case.policy.max_lost {
        return again;
    }
    match case.task.phase {
        Phase::Work => Action::Fail("lost_too_often"),
        Phase::Judge => Action::Rework(ReworkCause::Unjudged),
    }
}

/// In phase judge the result is good: the task goes back to a judge, not to a worker.
fn resume_or(case: &Case<'_>, requeue: Requeue) -> Action {
    match case.task.phase {
        Phase::Work => Action::Requeue(requeue),
        Phase::Judge => Action::Resume,
    }
}

fn cause(case: &Case<'_>) -> ReworkCause {
    case.task.rework_cause.unwrap_or(ReworkCause::Exhausted)
}

fn may_run_again(case: &Case<'_>) -> bool {
    case.task.counters.runs < case.policy.max_runs
}

/// Whether there is nothing that a judge could claim, or already has.
fn has_no_run(case: &Case<'_>) -> bool {
    !case.facts.run.as_ref().is_some_and(|run| {
        run.is_unjudged_success() || run.is_approved() || run.is_claimed_without_verdict()
    })
}

/// Whether the pull request of a review is another since its last judgement.
fn has_new_head(case: &Case<'_>) -> bool {
    let judged = case.facts.run.as_ref().and_then(|run| run.result.as_ref());
    case.task.kind == Kind::Review
        && case
            .facts
            .pull_request
            .as_ref()
            .is_some_and(|pull| !pull.closed && judged.is_some_and(|judged| *judged != pull.head))
}

#[cfg(test)]
mod tests;
