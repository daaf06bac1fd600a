//! Secrets stay out of the ledger: the words of sessions are masked before they are
//! stored, so that no event, run or receipt ever holds them.

use runner_core::mask::mask_text;
use runner_lifecycle::packet::{PacketExtra, ResultPacket};
use runner_lifecycle::request::{JudgeEnding, WorkEnding};
use runner_lifecycle::row::ContextItem;
use runner_lifecycle::{ContextKind, Request};
use serde_json::Value;

use crate::call::calls::LedgerCall;

/// The same call with whatever looks like a secret masked.
pub(crate) fn masked(ledger_call: &LedgerCall) -> LedgerCall {
    let mut ledger_call = ledger_call.clone();
    ledger_call.request_id.iter_mut().for_each(mask);
    match &mut ledger_call.call.request {
        Request::Create(new) => {
            mask(&mut new.title);
            mask(&mut new.goal);
            for criterion in &mut new.acceptance {
                mask(&mut criterion.text);
            }
            mask_context(&mut new.context);
        }
        Request::Replan(packet)
        | Request::Recover {
            packet: Some(packet),
            ..
        } => mask_context(&mut packet.context),
        Request::Finish { ending, .. } => mask_ending(ending),
        Request::Judge { ending, .. } => mask_judge(ending),
        Request::RecordIntent { packet, .. } => mask_packet(packet),
        Request::Block {
            reason, waits_for, ..
        } => {
            mask(reason);
            waits_for.iter_mut().for_each(mask);
        }
        Request::Cancel { reason }
        | Request::AcceptJudge { reason }
        | Request::Reassert { reason, .. } => mask(reason),
        _ => {}
    }
    ledger_call
}

/// The words among it. Paths and commands must stay what they are.
fn mask_context(context: &mut [ContextItem]) {
    for item in context {
        if matches!(item.kind, ContextKind::Note | ContextKind::Constraint) {
            mask(&mut item.value);
        }
    }
}

fn mask(text: &mut String) {
    *text = mask_text(text, &[]);
}

fn mask_ending(ending: &mut WorkEnding) {
    match ending {
        WorkEnding::Success { packet, .. } => mask_packet(packet),
        WorkEnding::Failed {
            signature, note, ..
        } => {
            mask(note);
            signature.iter_mut().for_each(mask);
        }
        WorkEnding::Blocked {
            reason, waits_for, ..
        } => {
            mask(reason);
            waits_for.iter_mut().for_each(mask);
        }
        WorkEnding::Postponed { reason, .. } => mask(reason),
        WorkEnding::Quota { account, .. } => mask(account),
        WorkEnding::Lost | WorkEnding::GivenBack => {}
    }
}

fn mask_judge(ending: &mut JudgeEnding) {
    match ending {
        JudgeEnding::Approve { packet } => mask_packet(packet),
        JudgeEnding::Reject {
            remarks, reason, ..
        } => {
            mask(reason);
            for remark in remarks {
                mask(&mut remark.text);
            }
        }
        JudgeEnding::Unable { reason }
        | JudgeEnding::ChangedJudge { reason }
        | JudgeEnding::StepBack { reason } => mask(reason),
        JudgeEnding::Quota { account, .. } => mask(account),
    }
}

fn mask_packet(packet: &mut ResultPacket) {
    packet.notes_for_orchestrator.iter_mut().for_each(mask);
    mask_extra(&mut packet.extra);
    for change in &mut packet.changes {
        change.evidence.iter_mut().for_each(mask);
        mask_extra(&mut change.extra);
    }
    for answer in &mut packet.acceptance_check {
        mask(&mut answer.evidence);
        mask_extra(&mut answer.extra);
    }
}

fn mask_extra(extra: &mut PacketExtra) {
    extra.values_mut().for_each(mask_value);
}

fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => mask(text),
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(fields) => fields.values_mut().for_each(mask_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
