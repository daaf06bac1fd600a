//! Carrying out what the recovery table says.

use super::draft::{Block, Draft};
use super::work::{after_failure, needs_rework};
use super::{Answer, Decision, Refusal};
use crate::recovery::{self, Action, Requeue};
use crate::request::NewPacket;
use crate::retry;
use crate::row::{Task, TaskId};
use crate::run::Run;
use crate::successor;
use crate::words::{Category, Code, Phase, Reason, State, TaskType};

use super::manage::{apply_packet, check_scope};

pub(super) fn recover(
    mut draft: Draft<'_>,
    packet: Option<&NewPacket>,
    successor: Option<&TaskId>,
) -> Result<Decision, Refusal> {
    let Some((row, action)) = recovery::plan(draft.policy, &draft.row, draft.facts, draft.now)
    else {
        return Err(Refusal::new(
            Code::InvalidTransition,
            format!("task {} is {}, not blocked", draft.row.id, draft.row.state),
        ));
    };
    if matches!(
        action,
        Action::Stay | Action::Wait(_) | Action::Park(_) | Action::Repair
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
    action: Action,
    packet: Option<&NewPacket>,
    successor: Option<&TaskId>,
) -> Result<(), Refusal> {
    match action {
        Action::Stay | Action::Wait(_) | Action::Park(_) | Action::Repair => Ok(()),
        Action::Resume => resume(draft, event),
        Action::Requeue(requeue) => requeue_work(draft, event, &requeue, packet),
        Action::Unjudge => {
            draft.edit_run(|run| run.judged_at = None);
            draft.note(event, |_| ());
            Ok(())
        }
        Action::RestoreRun { counted } => restore_run(draft, event, counted),
        Action::Rework(cause) => {
            needs_rework(draft, cause, "its attempts are used up", event, |_| ())
        }
        Action::CountAsTest => count_as_test(draft, event),
        Action::CountRepair => {
            draft.note(event, |row| row.counters.repairs += 1);
            Ok(())
        }
        Action::Fail(why) => draft.go(State::Failed, why, |_| ()),
        Action::Cancel(why) => draft.go(State::Canceled, why, |_| ()),
        Action::Succeed(origin) => {
            let id = successor.ok_or_else(|| {
                Refusal::new(
                    Code::MissingRequiredInput,
                    format!("task {} gets a successor: name its id", draft.row.id),
                )
            })?;
            let result = draft.facts.run.as_ref().and_then(|run| run.result.clone());
            let created =
                successor::create(&draft.row, origin, id, result, &draft.call.actor, draft.now);
            draft.created = Some(created);
            draft.go(State::Failed, "superseded", |row| {
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
    draft.go(State::Todo, event, |_| ())?;
    if draft.row.phase == Phase::Judge {
        let block = Block::on(Reason::AwaitingJudge, "a result waits for a judge");
        draft.block(&block, event, |_| ())?;
    }
    Ok(())
}

fn requeue_work(
    draft: &mut Draft<'_>,
    event: &str,
    requeue: &Requeue,
    packet: Option<&NewPacket>,
) -> Result<(), Refusal> {
    if requeue.needs_packet() {
        let packet = packet.ok_or_else(|| {
            Refusal::new(
                Code::MissingRequiredInput,
                format!("task {} needs a new packet: name its scope", draft.row.id),
            )
        })?;
        check_scope(&packet.lock_scope)?;
    }
    draft.go(State::Todo, event, |row: &mut Task| {
        row.phase = Phase::Work;
        row.rework_cause = None;
        match requeue {
            Requeue::Plain => {}
            Requeue::WithRole(role) => row.role.clone_from(role),
            Requeue::Serial => row.task_type = TaskType::Serial,
            Requeue::Lost => row.counters.lost_work += 1,
            Requeue::SetupPacket => row.counters.setup_packets += 1,
            Requeue::PolicyPacket => row.counters.policy_packets += 1,
            Requeue::Replan => row.counters.replans += 1,
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
            Code::MissingRequiredInput,
            "the pull request is unknown",
        ));
    };
    let number = draft.row.counters.attempts + 1;
    let actor = &draft.call.actor;
    let run = Run::of_pull_request(&draft.row.id, number, &pull.head, actor, draft.now);
    draft.run = Some(run);
    let edit = |row: &mut Task| {
        row.counters.attempts = number;
        row.counters.restores += u32::from(counted);
        row.phase = Phase::Judge;
        row.rework_cause = None;
    };
    if draft.row.blocked_on() == Some(Reason::AwaitingJudge) {
        draft.note(event, edit);
        return Ok(());
    }
    let block = Block::on(Reason::AwaitingJudge, "the pull request has a new head");
    draft.block(&block, event, edit)
}

/// The run itself was counted when it ended; here its category is.
fn count_as_test(draft: &mut Draft<'_>, event: &str) -> Result<(), Refusal> {
    let mut counters = draft.row.counters.clone();
    retry::count_category(&mut counters, Category::Test, Some(event));
    let next = retry::after_failure(draft.policy, &counters, Category::Test);
    after_failure(
        draft,
        next,
        Category::Test,
        "a criterion does not hold",
        |row| {
            row.counters = counters;
        },
    )
}
