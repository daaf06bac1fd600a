//! Claims and heartbeats: how a lease begins and stays.

use serde_json::Value;

use super::draft::Draft;
use super::{Answer, Decision, LeaseChange, LockChange, Refusal};
use crate::lock::{Resource, ScopeLock, first_conflict};
use crate::packet::{
    AcceptanceCriterion, ActiveLock, AssignedTask, Assignment, ContextEntry, PacketExtra,
    RESULT_SCHEMA_ID, SCHEMA_VERSION, check_assignment,
};
use crate::policy::PolicyRule;
use crate::ready;
use crate::request::{Claim, Facts};
use crate::row::Task;
use crate::run::{Lease, TaskRun};
use crate::words::{BlockReason, LeasePurpose, RefusalCode, TaskKind, TaskPhase, TaskState};

/// The answer that a claim with the same key got.
pub(super) fn repeat(claim: &Claim, facts: &Facts) -> Option<Answer> {
    let lease = facts.lease.as_ref()?;
    (lease.key == claim.key && lease.owner == claim.owner).then(|| Answer::Claimed {
        token: lease.token,
        run_id: lease.run_id.clone(),
        expires_at: lease.expires_at(),
    })
}

pub(super) fn claim(mut draft: Draft<'_>, claim: &Claim) -> Result<Decision, Refusal> {
    if claim.owner.is_empty() {
        return Err(Refusal::new(
            RefusalCode::MissingRequiredInput,
            "a claim names its owner",
        ));
    }
    let scope = match claim.purpose {
        LeasePurpose::Work => check_work(&draft)?,
        LeasePurpose::Judge => check_judge(&draft)?,
        LeasePurpose::Merge => check_merge(&draft, claim)?,
    };
    if draft.policy.enforces(PolicyRule::LockConflicts)
        && let Some(lock) = first_conflict(&draft.row.id, &scope, &draft.facts.locks)
    {
        return Err(ready::lock_refusal(lock));
    }
    let now = draft.now;
    let token = draft.row.token + 1;
    let run = match claim.purpose {
        LeasePurpose::Work => open_run(&draft, claim, token),
        LeasePurpose::Judge => judged_run(&draft)?,
        LeasePurpose::Merge => newest_run(&draft)?.clone(),
    };
    check_assignment(&assignment(&draft.row, &run.id, "", &draft.facts.locks))?;
    let event = match claim.purpose {
        LeasePurpose::Work => "claimed",
        LeasePurpose::Judge => "judge_claimed",
        LeasePurpose::Merge => "merge_claimed",
    };
    draft.go(TaskState::InProgress, event, |row| {
        row.owner = Some(claim.owner.clone());
        row.token = token;
        if claim.purpose == LeasePurpose::Work {
            row.counters.attempts = run.number;
            row.rework_cause = None;
        }
    })?;
    let lease = Lease {
        task_id: draft.row.id.clone(),
        run_id: run.id.clone(),
        owner: claim.owner.clone(),
        token,
        purpose: claim.purpose,
        key: claim.key.clone(),
        claimed_at: now,
        last_heartbeat_at: now,
        timeout_seconds: draft.row.timeout_seconds,
        heartbeat_interval_seconds: draft.row.heartbeat_interval_seconds,
        ends_at: now.plus_secs(u64::from(draft.row.timebox_seconds)),
    };
    let answer = Answer::Claimed {
        token,
        run_id: run.id.clone(),
        expires_at: lease.expires_at(),
    };
    draft.locks = LockChange::Take(scope);
    draft.lease = LeaseChange::Set(lease);
    if claim.purpose != LeasePurpose::Merge {
        draft.run = Some(run);
    }
    Ok(draft.decided(answer))
}

fn check_work(draft: &Draft<'_>) -> Result<Vec<Resource>, Refusal> {
    let task = &draft.row;
    let fits = task.state == TaskState::Todo
        && task.phase == TaskPhase::Work
        && task.kind != TaskKind::Review;
    if !fits {
        return Err(not_claimable(task, LeasePurpose::Work));
    }
    ready::ready(draft.policy, task, draft.facts, draft.now).map_err(|not| not.refusal(task))?;
    Ok(task.work_scope())
}

fn check_judge(draft: &Draft<'_>) -> Result<Vec<Resource>, Refusal> {
    let task = &draft.row;
    let awaits = task.blocked_on() == Some(BlockReason::AwaitingJudge) && task.intent.is_none();
    if !awaits || !newest_run(draft)?.is_unjudged_success() {
        return Err(not_claimable(task, LeasePurpose::Judge));
    }
    may_start(draft)?;
    Ok(vec![Resource::judge(&task.id)])
}

fn check_merge(draft: &Draft<'_>, claim: &Claim) -> Result<Vec<Resource>, Refusal> {
    let task = &draft.row;
    let awaits = task.blocked_on() == Some(BlockReason::AwaitingJudge);
    if !awaits || !newest_run(draft)?.is_approved() {
        return Err(not_claimable(task, LeasePurpose::Merge));
    }
    if task.intent.is_none() {
        may_start(draft)?;
        // What fixes the base does not queue behind those who wait for that.
        if !draft.facts.is_merge_head && !task.fixes_base() {
            return Err(Refusal::new(
                RefusalCode::LockConflict,
                format!("task {} is not the first of the merge queue", task.id),
            ));
        }
    }
    let base = claim
        .base
        .as_deref()
        .ok_or_else(|| Refusal::new(RefusalCode::MissingRequiredInput, "a merge names its base"))?;
    let queue = Resource::merge(base)
        .map_err(|error| Refusal::new(RefusalCode::SchemaInvalid, error.to_string()))?;
    Ok(vec![Resource::judge(&task.id), queue])
}

/// A judge waits for the clock and the pause as a worker does. An open intent does not:
/// it is the end of something that began before.
fn may_start(draft: &Draft<'_>) -> Result<(), Refusal> {
    let facts = draft.facts;
    ready::not_held_back(draft.policy, &draft.row, facts, draft.now)
        .map_err(|not| not.refusal(&draft.row))
}

fn not_claimable(task: &Task, purpose: LeasePurpose) -> Refusal {
    let waits = task
        .blocked_on()
        .map_or(String::new(), |r| format!("({r})"));
    Refusal::new(
        RefusalCode::InvalidTransition,
        format!(
            "task {} is {}{waits}: no {purpose} can begin",
            task.id, task.state
        ),
    )
    .detail("state", task.state.as_str())
}

fn newest_run<'r>(draft: &'r Draft<'_>) -> Result<&'r TaskRun, Refusal> {
    draft.facts.run.as_ref().ok_or_else(|| {
        Refusal::new(
            RefusalCode::MissingRequiredInput,
            format!("task {} has no run to judge", draft.row.id),
        )
    })
}

fn open_run(draft: &Draft<'_>, claim: &Claim, token: u64) -> TaskRun {
    let number = draft.row.counters.attempts + 1;
    TaskRun::begin(&draft.row.id, number, &claim.owner, token, draft.now)
}

fn judged_run(draft: &Draft<'_>) -> Result<TaskRun, Refusal> {
    let mut run = newest_run(draft)?.clone();
    run.judged_at = Some(draft.now);
    run.judgement_version += 1;
    Ok(run)
}

pub(super) fn heartbeat(mut draft: Draft<'_>) -> Result<Decision, Refusal> {
    let Some(lease) = &draft.facts.lease else {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            "there is no lease",
        ));
    };
    let mut lease = lease.clone();
    // Whoever spoke has begun, also in the very moment of the claim.
    let begun = lease.claimed_at.plus_millis(1);
    lease.last_heartbeat_at = lease.last_heartbeat_at.max(draft.now).max(begun);
    let expires_at = lease.expires_at();
    draft.lease = LeaseChange::Set(lease);
    Ok(draft.decided(Answer::Heard { expires_at }))
}

/// The packet that a claim of the task hands out.
pub fn assignment(task: &Task, run_id: &str, objective: &str, locks: &[ScopeLock]) -> Assignment {
    let texts = |scope: &[Resource]| scope.iter().map(|one| one.as_str().to_owned()).collect();
    let active_locks = locks
        .iter()
        .filter(|lock| lock.task_id != task.id)
        .map(|lock| ActiveLock {
            task_id: lock.task_id.as_str().to_owned(),
            resource: lock.resource.as_str().to_owned(),
            active: true,
            extra: PacketExtra::new(),
        });
    Assignment {
        schema_version: SCHEMA_VERSION.to_owned(),
        run_id: run_id.to_owned(),
        packet_type: "assignment".to_owned(),
        global_objective: objective.to_owned(),
        task: AssignedTask {
            task_id: task.id.as_str().to_owned(),
            title: task.title.clone(),
            task_type: task.task_type,
            dependencies: task.dependencies.iter().map(ToString::to_string).collect(),
            lock_scope: texts(&task.lock_scope),
            forbidden_scope: texts(&task.forbidden_scope),
            acceptance_criteria: task.acceptance.iter().map(criterion).collect(),
            worklog_path: format!(".runner/fleet/worklogs/{run_id}.md"),
            timeout_seconds: task.timeout_seconds,
            heartbeat_interval_seconds: task.heartbeat_interval_seconds,
            priority: task.priority,
            extra: PacketExtra::new(),
        },
        active_locks: active_locks.collect(),
        context_package: task.context.iter().map(ContextEntry::from).collect(),
        required_output_schema: Value::String(RESULT_SCHEMA_ID.to_owned()),
        extra: PacketExtra::new(),
    }
}

fn criterion(one: &crate::row::Criterion) -> AcceptanceCriterion {
    AcceptanceCriterion {
        id: one.id.clone(),
        text: one.text.clone(),
        check: one.check,
        extra: PacketExtra::new(),
    }
}
