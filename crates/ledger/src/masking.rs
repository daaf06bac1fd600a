//! Secrets stay out of the ledger: the words of sessions are masked before they are
//! stored, so that no event, run or receipt ever holds them.

use runner_core::mask::mask_text;
use runner_lifecycle::Request;
use runner_lifecycle::packet::{Extra, ResultPacket};
use runner_lifecycle::request::{Ending, JudgeEnding};
use serde_json::Value;

use crate::calls::Ask;

/// The same call with whatever looks like a secret masked.
pub(crate) fn masked(ask: &Ask) -> Ask {
    let mut ask = ask.clone();
    match &mut ask.call.request {
        Request::Finish { ending, .. } => mask_ending(ending),
        Request::Judge { ending, .. } => mask_judge(ending),
        Request::RecordIntent { packet, .. } => mask_packet(packet),
        Request::Block {
            reason, waits_for, ..
        } => {
            mask(reason);
            waits_for.iter_mut().for_each(mask);
        }
        Request::Cancel { reason } | Request::Reassert { reason, .. } => mask(reason),
        _ => {}
    }
    ask
}

fn mask(text: &mut String) {
    *text = mask_text(text, &[]);
}

fn mask_ending(ending: &mut Ending) {
    match ending {
        Ending::Success { packet, .. } => mask_packet(packet),
        Ending::Failed {
            signature, note, ..
        } => {
            mask(note);
            signature.iter_mut().for_each(mask);
        }
        Ending::Blocked {
            reason, waits_for, ..
        } => {
            mask(reason);
            waits_for.iter_mut().for_each(mask);
        }
        Ending::Postponed { reason, .. } => mask(reason),
        Ending::Quota { .. } | Ending::Lost => {}
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
        JudgeEnding::Unable { reason } | JudgeEnding::StepBack { reason } => mask(reason),
        JudgeEnding::Quota { .. } => {}
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

fn mask_extra(extra: &mut Extra) {
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
