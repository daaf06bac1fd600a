//! How a worker's lease ends: by a result, a failure, a block, or a loss.

use serde_json::{Map, Value, json};

use super::draft::{Block, Draft};
use super::{Decision, Refusal, judge, recover};
use crate::packet::{ResultPacket, check_result, evidence};
use crate::policy::{Policy, PolicyRule};
use crate::reconcile;
use crate::request::{Facts, WorkEnding};
use crate::retry::{self, RetryStep};
use crate::row::Task;
use crate::run::TaskRun;
use crate::time::Timestamp;
use crate::words::{
    BlockReason, CriterionCheck, FailureCategory, LeasePurpose, RefusalCode, ReworkCause,
    TaskPhase, TaskRunStatus, TaskState, TaskType,
};

pub(super) fn finish(
    draft: Draft<'_>,
    run_id: &str,
    ending: &WorkEnding,
) -> Result<Decision, Refusal> {
    in_progress(&draft, |purpose| purpose == LeasePurpose::Work)?;
    let running = |run: &TaskRun| run.id == run_id && run.status == TaskRunStatus::Running;
    // Without fencing an old owner would write into the run of a new one.
    let fits = draft.facts.run.as_ref().is_some_and(running);
    if !fits && draft.policy.enforces(PolicyRule::Fencing) {
        return Err(Refusal::new(
            RefusalCode::ConcurrencyConflict,
            format!(
                "run {run_id} is not the running one of task {}",
                draft.row.id
            ),
        ));
    }
    let mut draft = draft.with_receipt();
    match ending {
        WorkEnding::Success { result, packet } => success(&mut draft, result.as_deref(), packet)?,
        WorkEnding::Failed {
            category,
            signature,
            note,
        } => failure(&mut draft, *category, signature.as_deref(), note)?,
        WorkEnding::Blocked {
            code,
            reason,
            waits_for,
        } => blocked(&mut draft, *code, reason, waits_for.as_deref())?,
        WorkEnding::Quota { reset_at, account } => {
            let waits = draft.row.counters.quota_waits;
            let at =
                retry::quota_retry_at(draft.policy, &draft.row.id, waits, *reset_at, draft.now);
            draft.close_run(TaskRunStatus::Failed, None, None);
            let block = Block {
                code: BlockReason::QuotaWait,
                reason: "the quota of the account is used up",
                retry_at: Some(at),
                waits_for: Some(account),
            };
            draft.block(&block, "quota_wait", |row| row.counters.quota_waits += 1)?;
        }
        WorkEnding::Postponed { until, reason } => {
            draft.close_run(TaskRunStatus::Failed, Some(FailureCategory::Budget), None);
            let block = Block {
                retry_at: Some(*until),
                ..Block::on(BlockReason::Cooldown, reason)
            };
            draft.block(&block, "budget_postponed", |_| ())?;
        }
        WorkEnding::Lost => {
            let why = "the session was cut off";
            lose(&mut draft, "interrupted", why, Map::new(), true)?;
        }
        // A task that ends its workers comes to an end by its count; a person who stops
        // a fleet every evening says nothing about the task.
        WorkEnding::GivenBack => {
            let why = "its worker was stopped";
            lose(&mut draft, "given_back", why, Map::new(), false)?;
        }
    }
    Ok(draft.moved())
}

/// Refuses unless somebody works on the task for such a purpose.
pub(super) fn in_progress(
    draft: &Draft<'_>,
    fits: impl Fn(LeasePurpose) -> bool,
) -> Result<(), Refusal> {
    let state = draft.row.state;
    let lease = draft.facts.lease.as_ref();
    if state == TaskState::InProgress && lease.is_none_or(|lease| fits(lease.purpose)) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::InvalidTransition,
        format!("task {} is {state}, and not in such work", draft.row.id),
    )
    .detail("state", state.as_str()))
}

fn success(
    draft: &mut Draft<'_>,
    result: Option<&str>,
    packet: &ResultPacket,
) -> Result<(), Refusal> {
    let run_id = draft.facts.run.as_ref().map_or("", |run| run.id.as_str());
    check_result(packet, &draft.row, run_id)?;
    if draft.row.needs_merge() && result.is_none() {
        return Err(Refusal::new(
            RefusalCode::MissingRequiredInput,
            "a result that will be merged names its commit",
        ));
    }
    if draft.row.needs_judge() {
        accept(
            draft.policy,
            &draft.row,
            packet,
            Some(CriterionCheck::Command),
        )?;
    } else {
        may_be_done(draft.policy, &draft.row, draft.facts, packet)?;
    }
    draft.close_run(TaskRunStatus::Success, None, None);
    draft.edit_run(|run| {
        run.result = result.map(str::to_owned);
        run.packet = Some(packet.clone());
    });
    if draft.row.needs_judge() {
        let block = Block::on(BlockReason::AwaitingJudge, "a result waits for a judge");
        draft.block(&block, "run_succeeded", |row| {
            row.counters.runs += 1;
            row.phase = TaskPhase::Judge;
        })
    } else {
        draft.go(TaskState::Done, "accepted", |row| row.counters.runs += 1)
    }
}

/// The preconditions of `done`.
pub(super) fn may_be_done(
    policy: &Policy,
    task: &Task,
    facts: &Facts,
    packet: &ResultPacket,
) -> Result<(), Refusal> {
    accept(policy, task, packet, None)?;
    match reconcile::first_blocking(&facts.inconsistencies) {
        None => Ok(()),
        Some(found) => Err(Refusal::new(
            RefusalCode::LedgerInconsistent,
            format!("{}: {}", found.kind, found.words),
        )
        .detail("finding", found.kind.as_str())),
    }
}

/// Whether the packet answers the criteria, or those of one kind, with evidence.
pub(super) fn accept(
    policy: &Policy,
    task: &Task,
    packet: &ResultPacket,
    only: Option<CriterionCheck>,
) -> Result<(), Refusal> {
    if policy.enforces(PolicyRule::Evidence) {
        evidence(packet, task, |check| only.is_none_or(|only| only == check))
    } else {
        Ok(())
    }
}

/// A run that failed and counts.
pub(super) fn failure(
    draft: &mut Draft<'_>,
    category: FailureCategory,
    signature: Option<&str>,
    note: &str,
) -> Result<(), Refusal> {
    draft.close_run(TaskRunStatus::Failed, Some(category), signature);
    let mut counters = draft.row.counters.clone();
    retry::count_failure(
        &mut counters,
        category,
        signature,
        draft.row.owner.as_deref(),
    );
    let next = retry::after_failure(draft.policy, &counters, category);
    after_failure(draft, next, category, note, |row| row.counters = counters)
}

/// Follows what the retry policy says.
pub(super) fn after_failure(
    draft: &mut Draft<'_>,
    next: RetryStep,
    category: FailureCategory,
    note: &str,
    count: impl FnOnce(&mut Task),
) -> Result<(), Refusal> {
    let facts = draft.facts;
    let policy = draft.policy;
    let event = format!("run_failed_{category}");
    match next {
        RetryStep::Retry { delay_secs } => {
            let failures = draft.row.counters.runs;
            let delay = retry::with_jitter(&draft.row.id, failures, delay_secs);
            let block = Block {
                retry_at: Some(draft.now.plus_millis(delay)),
                ..Block::on(BlockReason::Cooldown, note)
            };
            let owner = draft.row.owner.clone();
            draft.block(&block, &event, |row| {
                count(row);
                row.phase = TaskPhase::Work;
                escalate(row, owner.as_deref(), policy, facts);
            })
        }
        RetryStep::Fail => draft.go(TaskState::Failed, &event, count),
        RetryStep::Rework(cause) => needs_rework(draft, cause, note, &event, count),
    }
}

/// After two failures of an owner: another worker, else another model, else alone.
fn escalate(row: &mut Task, owner: Option<&str>, policy: &Policy, facts: &Facts) {
    match retry::escalation(policy, row, owner, facts) {
        retry::RetryEscalation::None | retry::RetryEscalation::OtherWorker => {}
        retry::RetryEscalation::NextModel => row.model_index += 1,
        retry::RetryEscalation::Serial => row.task_type = TaskType::Serial,
    }
}

/// Leaves the rest to the cycle manager.
pub(super) fn needs_rework(
    draft: &mut Draft<'_>,
    cause: ReworkCause,
    reason: &str,
    event: &str,
    edit: impl FnOnce(&mut Task),
) -> Result<(), Refusal> {
    draft.block(&Block::on(BlockReason::NeedsRework, reason), event, |row| {
        row.phase = TaskPhase::Work;
        row.rework_cause = Some(cause);
        edit(row);
    })
}

fn blocked(
    draft: &mut Draft<'_>,
    code: RefusalCode,
    reason: &str,
    waits_for: Option<&str>,
) -> Result<(), Refusal> {
    draft.close_run(TaskRunStatus::Failed, None, None);
    let runs = draft.row.counters.runs + 1;
    if runs >= draft.policy.max_runs {
        let cause = ReworkCause::Exhausted;
        return needs_rework(draft, cause, reason, "runs_exhausted", |row| {
            row.counters.runs = runs;
        });
    }
    let block = Block {
        waits_for,
        ..Block::on(code.into(), reason)
    };
    draft.block(&block, "run_blocked", |row| {
        row.counters.runs = runs;
        mark_refused_packet(row, code);
    })
}

/// Remembers which packet a structural code was about.
pub(super) fn mark_refused_packet(row: &mut Task, code: RefusalCode) {
    if code.needs_new_packet() {
        row.refused_revision = Some(row.packet_revision);
    }
}

/// The watchdog: the lease has ended, or there is none.
pub(super) fn expire(
    mut draft: Draft<'_>,
    not_before: Option<Timestamp>,
) -> Result<Decision, Refusal> {
    in_progress(&draft, |_| true)?;
    let mut details = Map::new();
    details.insert("task_id".to_owned(), json!(draft.row.id.as_str()));
    details.insert(
        "timeout_seconds".to_owned(),
        json!(draft.row.timeout_seconds),
    );
    if let Some(lease) = &draft.facts.lease {
        let early = not_before.is_some_and(|grace| draft.now < grace);
        if early || !lease.is_expired(draft.now) {
            return Err(Refusal::new(
                RefusalCode::InvalidTransition,
                format!("the lease of task {} has not ended", draft.row.id),
            )
            .detail("expires_at", lease.expires_at().0));
        }
        details.insert(
            "last_heartbeat_at".to_owned(),
            json!(lease.last_heartbeat_at.0),
        );
    } else {
        details.insert("last_heartbeat_at".to_owned(), Value::Null);
    }
    let why = "nothing was heard of the owner";
    lose(&mut draft, "task_timeout", why, details, true)?;
    Ok(draft.moved())
}

/// The owner never said a word: the claim is undone, nothing is counted.
pub(super) fn take_back(mut draft: Draft<'_>) -> Result<Decision, Refusal> {
    in_progress(&draft, |_| true)?;
    let never = |lease: &crate::run::Lease| lease.never_began(draft.now);
    let never = draft.facts.lease.as_ref().is_some_and(never);
    if !never && draft.policy.enforces(PolicyRule::NeverBegan) {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!("the owner of task {} has begun", draft.row.id),
        ));
    }
    let why = "the owner never began";
    lose(&mut draft, "taken_back", why, Map::new(), false)?;
    Ok(draft.moved())
}

/// Ends a lease whose owner is gone: `in_progress -> blocked(TASK_TIMEOUT)`, and on at
/// once as the recovery table says, in the same transaction.
pub(super) fn lose(
    draft: &mut Draft<'_>,
    event: &str,
    why: &str,
    details: Map<String, Value>,
    counted: bool,
) -> Result<(), Refusal> {
    let status = if counted {
        TaskRunStatus::Failed
    } else {
        TaskRunStatus::Canceled
    };
    draft.close_run(status, None, None);
    judge::unjudge(draft);
    let purpose = draft.facts.lease.as_ref().map(|lease| lease.purpose);
    // A place in the merge queue costs no attempt.
    let counted = counted
        && purpose != Some(LeasePurpose::Merge)
        && draft.row.intent.is_none()
        && draft.policy.enforces(PolicyRule::LostCount);
    let block = Block::on(BlockReason::TaskTimeout, why);
    draft.block_with(&block, event, details, |row| match row.phase {
        _ if !counted => {}
        TaskPhase::Work => row.counters.lost_work += 1,
        TaskPhase::Judge => row.counters.lost_judge += 1,
    })?;
    recover::at_once(draft)
}

/// The length of a run, or of a judgement, is used up.
pub(super) fn end_timebox(mut draft: Draft<'_>) -> Result<Decision, Refusal> {
    in_progress(&draft, |_| true)?;
    let Some(lease) = draft.facts.lease.as_ref() else {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            "there is no lease",
        ));
    };
    if draft.now < lease.ends_at {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!("the time of task {} is not used up", draft.row.id),
        )
        .detail("ends_at", lease.ends_at.0));
    }
    let words = "the time of the run is used up";
    match lease.purpose {
        LeasePurpose::Work => failure(&mut draft, FailureCategory::Flaky, Some("timebox"), words)?,
        _ if draft.row.intent.is_some()
            && draft.policy.enforces(PolicyRule::TimeboxKeepsIntent) =>
        {
            judge::step_back(&mut draft, words)?;
        }
        LeasePurpose::Judge | LeasePurpose::Merge => judge::unable(&mut draft, words)?,
    }
    Ok(draft.moved())
}
