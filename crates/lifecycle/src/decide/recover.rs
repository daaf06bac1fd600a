//! Carrying out what the recovery table says.

use super::draft::{Block, Draft};
use super::work::{after_failure, needs_rework};
use super::{Answer, Decision, Refusal};
use crate::recovery::{self, RecoveryAction, RecoveryRequeue};
use crate::request::NewPacket;
use crate::retry;
use crate::row::{Task, TaskId};
use crate::run::TaskRun;
use crate::successor;
use crate::words::{BlockReason, FailureCategory, RefusalCode, TaskPhase, TaskState, TaskType};

use super::manage::{apply_packet, check_scope};

pub(super) fn recover(
    mut draft: Draft<'_>,
    packet: Option<&NewPacket>,
    successor: Option<&TaskId>,
) -> Result<Decision, Refusal> {
    let Some((row, action)) = recovery::plan(draft.policy, &draft.row, draft.facts, draft.now)
    else {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!("task {} is {}, not blocked", draft.row.id, draft.row.state),
        ));
    };
    if matches!(
        action,
        RecoveryAction::Stay
            | RecoveryAction::Wait(_)
            | RecoveryAction::Park(_)
            | RecoveryAction::Repair
    ) {
        return Ok(draft.decided(Answer::Unchanged));
    }
    act(&mut draft, row.name, action, packet, successor)?;
    Ok(draft.moved())
}

/// Follows the table for a task that was blocked in this very transaction.
pub(super) fn at_once(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    match recovery::plan(draft.policy, &draft.row, draft.facts, draft.now) {
        Some((row, action)) => act(draft, row.name, action, None, None),
        None => Ok(()),
    }
}

fn act(
    draft: &mut Draft<'_>,
    event: &str,
    action: RecoveryAction,
    packet: Option<&NewPacket>,
    successor: Option<&TaskId>,
) -> Result<(), Refusal> {
    match action {
        RecoveryAction::Stay
        | RecoveryAction::Wait(_)
        | RecoveryAction::Park(_)
        | RecoveryAction::Repair => Ok(()),
        RecoveryAction::Resume => resume(draft, event),
        RecoveryAction::Requeue(requeue) => requeue_work(draft, event, &requeue, packet),
        RecoveryAction::Unjudge => {
            draft.edit_run(|run| run.judged_at = None);
            draft.note(event, |_| ());
            Ok(())
        }
        RecoveryAction::RestoreRun { counted } => restore_run(draft, event, counted),
        RecoveryAction::Rework(cause) => {
            needs_rework(draft, cause, "its attempts are used up", event, |_| ())
        }
        RecoveryAction::CountAsTest => count_as_test(draft, event),
        RecoveryAction::CountRepair => {
            draft.note(event, |row| row.counters.repairs += 1);
            Ok(())
        }
        RecoveryAction::Fail(why) => draft.go(TaskState::Failed, why, |_| ()),
        RecoveryAction::Cancel(why) => draft.go(TaskState::Canceled, why, |_| ()),
        RecoveryAction::Succeed(origin) => {
            let id = successor.ok_or_else(|| {
                Refusal::new(
                    RefusalCode::MissingRequiredInput,
                    format!("task {} gets a successor: name its id", draft.row.id),
                )
            })?;
            let result = draft.facts.run.as_ref().and_then(|run| run.result.clone());
            let created =
                successor::create(&draft.row, origin, id, result, &draft.call.actor, draft.now);
            draft.created = Some(created);
            draft.go(TaskState::Failed, "superseded", |row| {
                row.superseded_by = Some(id.clone());
            })
        }
    }
}

/// `todo` in phase work, `awaiting_judge` in phase judge; what waited for rework still
/// does.
fn resume(draft: &mut Draft<'_>, event: &str) -> Result<(), Refusal> {
    if let Some(cause) = draft.row.rework_cause {
        return needs_rework(draft, cause, "it still needs rework", event, |_| ());
    }
    draft.go(TaskState::Todo, event, |_| ())?;
    if draft.row.phase == TaskPhase::Judge {
        let block = Block::on(BlockReason::AwaitingJudge, "a result waits for a judge");
        draft.block(&block, event, |_| ())?;
    }
    Ok(())
}

fn requeue_work(
    draft: &mut Draft<'_>,
    event: &str,
    requeue: &RecoveryRequeue,
    packet: Option<&NewPacket>,
) -> Result<(), Refusal> {
    if requeue.needs_packet() {
        let packet = packet.ok_or_else(|| {
            Refusal::new(
                RefusalCode::MissingRequiredInput,
                format!("task {} needs a new packet: name its scope", draft.row.id),
            )
        })?;
        check_scope(&packet.lock_scope)?;
    }
    let work = draft
        .facts
        .issue
        .as_ref()
        .and_then(|issue| issue.work.clone());
    draft.go(TaskState::Todo, event, |row: &mut Task| {
        row.phase = TaskPhase::Work;
        row.rework_cause = None;
        match requeue {
            RecoveryRequeue::Plain => {}
            RecoveryRequeue::WithRole(role) => {
                row.role.clone_from(role);
                if let Some(work) = work {
                    row.lock_scope = work.lock_scope;
                    row.forbidden_scope = work.forbidden_scope;
                    row.lane = work.lane;
                    row.expects_change = work.expects_change;
                }
            }
            RecoveryRequeue::Serial => row.task_type = TaskType::Serial,
            RecoveryRequeue::Lost => row.counters.lost_work += 1,
            RecoveryRequeue::SetupPacket => row.counters.setup_packets += 1,
            RecoveryRequeue::PolicyPacket => row.counters.policy_packets += 1,
            RecoveryRequeue::Replan => row.counters.replans += 1,
        }
        if let Some(packet) = packet.filter(|_| requeue.needs_packet()) {
            apply_packet(row, packet);
        }
    })
}

/// A success run at the head of the pull request, as if it had just been found.
fn restore_run(draft: &mut Draft<'_>, event: &str, counted: bool) -> Result<(), Refusal> {
    let Some(pull) = &draft.facts.pull_request else {
        return Err(Refusal::new(
            RefusalCode::MissingRequiredInput,
            "the pull request is unknown",
        ));
    };
    let number = draft.row.counters.attempts + 1;
    let actor = &draft.call.actor;
    let run = TaskRun::of_pull_request(&draft.row.id, number, &pull.head, actor, draft.now);
    draft.run = Some(run);
    let edit = |row: &mut Task| {
        row.counters.attempts = number;
        row.counters.restores += u32::from(counted);
        row.phase = TaskPhase::Judge;
        row.rework_cause = None;
    };
    if draft.row.blocked_on() == Some(BlockReason::AwaitingJudge) {
        draft.note(event, edit);
        return Ok(());
    }
    let block = Block::on(
        BlockReason::AwaitingJudge,
        "the pull request has a new head",
    );
    draft.block(&block, event, edit)
}

/// The run itself was counted when it ended; here its category is.
fn count_as_test(draft: &mut Draft<'_>, event: &str) -> Result<(), Refusal> {
    let mut counters = draft.row.counters.clone();
    retry::count_category(&mut counters, FailureCategory::Test, Some(event));
    let next = retry::after_failure(draft.policy, &counters, FailureCategory::Test);
    after_failure(
        draft,
        next,
        FailureCategory::Test,
        "a criterion does not hold",
        |row| {
            row.counters = counters;
        },
    )
}
