//! What a run came to: one table over the loop's end and the checks.

use crate::case::EvalOutcome;
use crate::record::CheckResult;

/// How the loop ended, as far as it told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoopEnd {
    /// Its exit code; `None` when it did not end by itself.
    pub(crate) exit: Option<i32>,
    /// `status` of its last line.
    pub(crate) status: Option<String>,
    /// `error.code` of it.
    pub(crate) code: Option<String>,
    /// `error.message` or `reason` of it.
    pub(crate) message: Option<String>,
    /// The stuck leaf.
    pub(crate) path: Option<String>,
    /// What became of the last iteration, in words.
    pub(crate) last_verdict: Option<String>,
}

impl LoopEnd {
    /// Whether every leaf has passed.
    pub(crate) fn is_complete(&self) -> bool {
        self.exit == Some(0) && self.status.as_deref() == Some("complete")
    }

    /// A loop that never came to its own end.
    pub(crate) fn failed(code: &str, message: String) -> Self {
        LoopEnd {
            code: Some(code.to_owned()),
            message: Some(message),
            ..LoopEnd::default()
        }
    }
}

/// An outcome with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JudgedOutcome {
    pub(crate) outcome: EvalOutcome,
    pub(crate) reason: Option<String>,
    pub(crate) detail: Option<String>,
}

/// The table: exit 0 is a success or, where a check failed, a fail; 3 is stuck; all else an error.
pub(crate) fn judge(end: &LoopEnd, checks: &[CheckResult]) -> JudgedOutcome {
    match end.exit {
        Some(0) if end.is_complete() => match checks.iter().find(|check| !check.passed) {
            None => JudgedOutcome {
                outcome: EvalOutcome::Success,
                reason: None,
                detail: None,
            },
            Some(check) => JudgedOutcome {
                outcome: EvalOutcome::Fail,
                reason: Some(
                    format!("check failed: {} {}", check.kind, check.about)
                        .trim()
                        .to_owned(),
                ),
                detail: check.message.clone(),
            },
        },
        Some(3) => JudgedOutcome {
            outcome: EvalOutcome::Stuck,
            reason: Some(match &end.last_verdict {
                Some(verdict) => format!("stuck: {verdict}"),
                None => "stuck".to_owned(),
            }),
            detail: end
                .path
                .as_ref()
                .map(|path| format!("{path} has used up its attempts")),
        },
        exit => JudgedOutcome {
            outcome: EvalOutcome::Error,
            reason: Some(error_reason(end, exit)),
            detail: end.message.clone(),
        },
    }
}

fn error_reason(end: &LoopEnd, exit: Option<i32>) -> String {
    match (end.status.as_deref(), &end.code, exit) {
        (Some("limit"), ..) => "limit".to_owned(),
        (Some("interrupted"), ..) | (_, _, Some(130)) => "interrupted".to_owned(),
        (Some("stopped"), ..) => "stopped".to_owned(),
        (_, Some(code), _) => code.clone(),
        (_, None, Some(code)) => format!("exit {code}"),
        (_, None, None) => "no end".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(passed: bool) -> CheckResult {
        CheckResult {
            kind: "file_exists".to_owned(),
            about: "main.go".to_owned(),
            passed,
            message: (!passed).then(|| "there is none".to_owned()),
            output: None,
            duration_ms: 0,
        }
    }

    #[test]
    fn the_outcome_table() {
        let end = |exit: Option<i32>, status: &str| LoopEnd {
            exit,
            status: (!status.is_empty()).then(|| status.to_owned()),
            ..LoopEnd::default()
        };
        for (exit, status, passed, outcome, reason) in [
            (Some(0), "complete", true, EvalOutcome::Success, None),
            (
                Some(0),
                "complete",
                false,
                EvalOutcome::Fail,
                Some("check failed: file_exists main.go"),
            ),
            (
                Some(0),
                "stopped",
                true,
                EvalOutcome::Error,
                Some("stopped"),
            ),
            (Some(3), "stuck", true, EvalOutcome::Stuck, Some("stuck")),
            (Some(3), "stuck", false, EvalOutcome::Stuck, Some("stuck")),
            (Some(1), "limit", true, EvalOutcome::Error, Some("limit")),
            (Some(1), "error", true, EvalOutcome::Error, Some("exit 1")),
            (Some(2), "", true, EvalOutcome::Error, Some("exit 2")),
            (
                Some(130),
                "interrupted",
                true,
                EvalOutcome::Error,
                Some("interrupted"),
            ),
            (Some(130), "", true, EvalOutcome::Error, Some("interrupted")),
            (Some(137), "", true, EvalOutcome::Error, Some("exit 137")),
            (None, "", true, EvalOutcome::Error, Some("no end")),
        ] {
            let judged = judge(&end(exit, status), &[check(true), check(passed)]);
            let words = judged.reason.as_deref();
            assert_eq!(
                (judged.outcome, words),
                (outcome, reason),
                "{exit:?} {status}"
            );
        }
        let told = LoopEnd::failed("quota", "used up".to_owned());
        let judged = judge(&told, &[]);
        assert_eq!(judged.reason.as_deref(), Some("quota"));
        assert_eq!(judged.detail.as_deref(), Some("used up"));
    }
}
