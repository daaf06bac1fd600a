//! Verdicts, and the way of an approved result into its base.

use super::draft::{Block, Draft};
use super::work::{accept, in_progress, may_be_done, needs_rework};
use super::{Decision, Refusal};
use crate::packet::{ResultPacket, check_result};
use crate::policy::PolicyRule;
use crate::request::JudgeEnding;
use crate::retry;
use crate::row::Intent;
use crate::words::{
    BasePosition, BlockReason, FailureCategory, JudgeVerdict, LeasePurpose, RefusalCode,
    ReworkCause, TaskState,
};

/// Whether a judge may end so while an intent is open: the intent stays.
pub(super) fn keeps_intent(ending: &JudgeEnding) -> bool {
    matches!(
        ending,
        JudgeEnding::Quota { .. } | JudgeEnding::StepBack { .. }
    )
}

pub(super) fn end(draft: Draft<'_>, ending: &JudgeEnding) -> Result<Decision, Refusal> {
    in_progress(&draft, |purpose| purpose != LeasePurpose::Work)?;
    let mut draft = draft.with_receipt();
    match ending {
        JudgeEnding::Approve { packet } => approve(&mut draft, packet)?,
        JudgeEnding::Reject {
            cause,
            remarks,
            reason,
        } => {
            draft.edit_run(|run| run.verdict = Some(JudgeVerdict::Reject));
            needs_rework(&mut draft, *cause, reason, "rejected", |row| {
                row.remarks.extend(remarks.iter().cloned());
                if *cause == ReworkCause::Policy {
                    *row.counters
                        .failures
                        .entry(FailureCategory::Policy)
                        .or_insert(0) += 1;
                }
            })?;
        }
        JudgeEnding::Unable { reason } => unable(&mut draft, reason)?,
        JudgeEnding::Quota { reset_at, account } => {
            unjudge(&mut draft);
            let waits = draft.row.counters.quota_waits;
            let at =
                retry::quota_retry_at(draft.policy, &draft.row.id, waits, *reset_at, draft.now);
            let block = Block {
                code: BlockReason::AwaitingJudge,
                reason: "the quota of the judge's account is used up",
                retry_at: Some(at),
                waits_for: Some(account),
            };
            draft.block(&block, "judge_quota_wait", |row| {
                row.counters.quota_waits += 1;
            })?;
        }
        JudgeEnding::ChangedJudge { reason } => {
            in_progress(&draft, |purpose| purpose == LeasePurpose::Merge)?;
            let block = Block::on(BlockReason::ChangedJudge, reason);
            draft.block(&block, "judge_changed", |_| ())?;
        }
        JudgeEnding::StepBack { reason } => step_back(&mut draft, reason)?,
    }
    Ok(draft.moved())
}

/// Leaves the task to another judge, and nothing is counted.
pub(super) fn step_back(draft: &mut Draft<'_>, reason: &str) -> Result<(), Refusal> {
    unjudge(draft);
    let block = Block::on(BlockReason::AwaitingJudge, reason);
    draft.block(&block, "stepped_back", |_| ())
}

/// A run that a judge leaves without a verdict can be claimed by another one.
pub(super) fn unjudge(draft: &mut Draft<'_>) {
    let claimed = draft
        .facts
        .run
        .as_ref()
        .is_some_and(crate::run::TaskRun::is_claimed_without_verdict);
    if claimed && draft.policy.enforces(PolicyRule::Unjudge) {
        draft.edit_run(|run| run.judged_at = None);
    }
}

fn approve(draft: &mut Draft<'_>, packet: &ResultPacket) -> Result<(), Refusal> {
    // The packet of a judge names the run that it judged.
    let run_id = draft.facts.run.as_ref().map_or("", |run| run.id.as_str());
    check_result(packet, &draft.row, run_id)?;
    if draft.row.needs_merge() {
        accept(draft.policy, &draft.row, packet, None)?;
    } else {
        may_be_done(draft.policy, &draft.row, draft.facts, packet)?;
    }
    draft.edit_run(|run| {
        run.verdict = Some(JudgeVerdict::Approve);
        run.judge_packet = Some(packet.clone());
    });
    if draft.row.needs_merge() {
        let block = Block::on(BlockReason::AwaitingJudge, "approved, waits for its merge");
        draft.block(&block, "approved", |_| ())
    } else {
        draft.go(TaskState::Done, "accepted", |_| ())
    }
}

/// An evaluator could not run: that is no verdict, and there is a limit to it.
pub(super) fn unable(draft: &mut Draft<'_>, reason: &str) -> Result<(), Refusal> {
    let tries = draft.row.counters.judge + 1;
    if tries > draft.policy.max_judge_attempts {
        draft.edit_run(|run| run.verdict = Some(JudgeVerdict::Reject));
        let cause = ReworkCause::Unjudged;
        return needs_rework(draft, cause, reason, "judge_exhausted", |row| {
            row.counters.judge = tries;
        });
    }
    unjudge(draft);
    let delay = retry::cooldown_secs(draft.policy, tries);
    let delay = retry::with_jitter(&draft.row.id, tries, delay);
    let block = Block {
        retry_at: Some(draft.now.plus_millis(delay)),
        ..Block::on(BlockReason::AwaitingJudge, reason)
    };
    draft.block(&block, "judge_retry", |row| row.counters.judge = tries)
}

/// Everything that `done` takes is checked here; afterwards nothing is decided again.
pub(super) fn record_intent(
    mut draft: Draft<'_>,
    intent: &Intent,
    packet: &ResultPacket,
) -> Result<Decision, Refusal> {
    in_progress(&draft, |purpose| purpose == LeasePurpose::Merge)?;
    if let Some(open) = &draft.row.intent {
        let recorded = draft.facts.run.as_ref();
        let recorded = recorded.and_then(|run| run.judge_packet.as_ref());
        if open == intent && recorded == Some(packet) {
            let answer = draft.where_it_stands();
            return Ok(draft.replay(answer));
        }
        return Err(Refusal::new(
            RefusalCode::ConcurrencyConflict,
            format!(
                "task {} has another open intent: settle that first",
                draft.row.id
            ),
        ));
    }
    let Some(run) = draft.facts.run.as_ref().filter(|run| run.is_approved()) else {
        return Err(Refusal::new(
            RefusalCode::AcceptanceFailed,
            format!("task {} has no approved run", draft.row.id),
        ));
    };
    check_result(packet, &draft.row, &run.id)?;
    may_be_done(draft.policy, &draft.row, draft.facts, packet)?;
    draft.edit_run(|run| run.judge_packet = Some(packet.clone()));
    draft.note("merge_intent", |row| row.intent = Some(intent.clone()));
    Ok(draft.moved())
}

/// Rolls an intent forward. Where the base has not moved, the caller moves it and asks
/// again.
pub(super) fn settle_intent(
    draft: Draft<'_>,
    intent: &Intent,
    base: BasePosition,
) -> Result<Decision, Refusal> {
    in_progress(&draft, |purpose| purpose == LeasePurpose::Merge)?;
    let same = draft.row.intent.as_ref() == Some(intent);
    if draft.row.intent.is_none() || !same && draft.policy.enforces(PolicyRule::IntentNamed) {
        return Err(Refusal::new(
            RefusalCode::ConcurrencyConflict,
            format!("task {} has no such open intent", draft.row.id),
        ));
    }
    let base = match base {
        BasePosition::Merged if !draft.policy.enforces(PolicyRule::IntentRollForward) => {
            BasePosition::Elsewhere
        }
        other => other,
    };
    match base {
        BasePosition::Merged => {
            let mut draft = draft.with_receipt();
            draft.go(TaskState::Done, "merged", |row| row.intent = None)?;
            Ok(draft.moved())
        }
        BasePosition::Old => Err(Refusal::new(
            RefusalCode::ConcurrencyConflict,
            "the base has not moved yet: move it from old to new, then settle",
        )),
        BasePosition::Elsewhere => {
            let mut draft = draft;
            draft.note("merge_intent_void", |row| row.intent = None);
            Ok(draft.moved())
        }
    }
}
