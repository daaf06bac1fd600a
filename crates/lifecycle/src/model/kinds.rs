//! Every request there is, by name, so that none is forgotten in the model.

use crate::request::{JudgeEnding, Request, WorkEnding};

/// The names and the match that gives them. The match has no arm for the rest: a new
/// request, or a new ending, must be named here, and then asked in some space.
macro_rules! kinds {
    ($($pattern:pat => $name:literal),+ $(,)?) => {
        pub(super) const ALL: &[&str] = &[$($name),+];

        pub(super) fn kind(request: &Request) -> &'static str {
            match request {
                $($pattern => $name,)+
            }
        }
    };
}

kinds! {
    Request::Create(_) => "create",
    Request::Claim(_) => "claim",
    Request::Heartbeat { .. } => "heartbeat",
    Request::Finish { ending: WorkEnding::Success { .. }, .. } => "finish: success",
    Request::Finish { ending: WorkEnding::Failed { .. }, .. } => "finish: failed",
    Request::Finish { ending: WorkEnding::Blocked { .. }, .. } => "finish: blocked",
    Request::Finish { ending: WorkEnding::Quota { .. }, .. } => "finish: quota",
    Request::Finish { ending: WorkEnding::Postponed { .. }, .. } => "finish: postponed",
    Request::Finish { ending: WorkEnding::Lost, .. } => "finish: lost",
    Request::Finish { ending: WorkEnding::GivenBack, .. } => "finish: given back",
    Request::Judge { ending: JudgeEnding::Approve { .. }, .. } => "judge: approve",
    Request::Judge { ending: JudgeEnding::Reject { .. }, .. } => "judge: reject",
    Request::Judge { ending: JudgeEnding::Unable { .. }, .. } => "judge: unable",
    Request::Judge { ending: JudgeEnding::Quota { .. }, .. } => "judge: quota",
    Request::Judge { ending: JudgeEnding::StepBack { .. }, .. } => "judge: step back",
    Request::Judge { ending: JudgeEnding::ChangedJudge { .. }, .. } => "judge: changed judge",
    Request::RecordIntent { .. } => "record intent",
    Request::SettleIntent { .. } => "settle intent",
    Request::Block { .. } => "block",
    Request::Expire { .. } => "expire",
    Request::TakeBack => "take back",
    Request::EndTimebox => "end timebox",
    Request::Recover { .. } => "recover",
    Request::Repair => "repair",
    Request::Replan(_) => "replan",
    Request::Retry { .. } => "retry",
    Request::Cancel { .. } => "cancel",
    Request::AcceptJudge { .. } => "accept judge",
    Request::Reassert { .. } => "reassert",
    Request::Pause { .. } => "pause",
}
