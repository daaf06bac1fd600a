//! What the evaluators of a judge came to: guard, policy, review, in this order.
//!
//! Fail-closed: an evaluator that cannot run is no pass, a criterion without evidence is
//! no answer, and an empty diff is never approved.

use runner_core::text::cut_chars;
use runner_lifecycle::packet::{ResourceChange, ResultPacket};
use runner_lifecycle::request::JudgeEnding;
use runner_lifecycle::row::ReviewRemark;
use runner_lifecycle::{CriterionCheck, ReworkCause, Task, Timestamp};

use super::answers::{command_answers, done_packet, pass, recorded_answers};
use super::classify::words_of;
use super::policy::PolicyFinding;
use super::verdict::{ReviewDecision, ReviewVerdict};
use crate::workspaces::{CheckEnd, CheckOutcome, InvertedCheck, ReviewReply};

/// The longest reason, in characters.
const REASON_CHARS: usize = 600;

/// What the guard evaluator looks at.
#[derive(Clone, Copy, Debug)]
pub enum JudgeGuard<'a> {
    /// The commands were run now.
    Ran(&'a [CheckOutcome]),
    /// The worker's packet says how they ended; the head of the merge queue runs them.
    Recorded(Option<&'a ResultPacket>),
}

/// What the review evaluator came to.
#[derive(Clone, Debug)]
pub enum ReviewOutcome {
    /// Reviews are off, or nothing asks for one.
    Off,
    /// A verdict, without what was settled.
    Said(ReviewVerdict),
    /// Nothing that can be used; why.
    Unusable(String),
    /// The quota is used up.
    Quota {
        /// When it is there again.
        until: Option<Timestamp>,
        /// Which account.
        account: String,
    },
}

impl ReviewOutcome {
    /// Reads what a reviewer said about the criteria of a task.
    pub fn read(task: &Task, said: ReviewReply, settled: &[ReviewRemark]) -> ReviewOutcome {
        match said {
            ReviewReply::Silent => ReviewOutcome::Unusable("the reviewer said nothing".to_owned()),
            ReviewReply::Quota { until, account } => ReviewOutcome::Quota { until, account },
            ReviewReply::Said(text) => {
                let asked: Vec<_> = task
                    .acceptance
                    .iter()
                    .filter(|criterion| criterion.check == CriterionCheck::Review)
                    .cloned()
                    .collect();
                match ReviewVerdict::parse(&text, &asked) {
                    Ok(verdict) => ReviewOutcome::Said(verdict.without_settled(settled)),
                    Err(error) => ReviewOutcome::Unusable(error.to_string()),
                }
            }
        }
    }
}

/// Everything that a judge looked at.
#[derive(Clone, Debug)]
pub struct JudgeEvidence<'a> {
    /// The row.
    pub task: &'a Task,
    /// The run that is judged.
    pub run_id: &'a str,
    /// What the result changes; none: a commit is missing.
    pub changes: Option<&'a [ResourceChange]>,
    /// How the commands ended.
    pub guard: JudgeGuard<'a>,
    /// What [`super::policy::findings`] found.
    pub findings: &'a [PolicyFinding],
    /// What the review came to.
    pub review: ReviewOutcome,
}

/// Whether a reviewer need not be asked: something before it decides already.
pub fn is_settled_before_review(evidence: &JudgeEvidence<'_>) -> bool {
    before_review(evidence).is_err()
}

/// The ending of a judgement.
pub fn ending(evidence: &JudgeEvidence<'_>) -> JudgeEnding {
    let answers = match before_review(evidence) {
        Ok(answers) => answers,
        Err(ending) => return *ending,
    };
    let mut answers = answers;
    match &evidence.review {
        ReviewOutcome::Off => {
            let asks = |criterion: &&_| is_review(criterion);
            if let Some(criterion) = evidence.task.acceptance.iter().find(asks) {
                return unable(&format!("criterion {} has no reviewer", criterion.id));
            }
        }
        ReviewOutcome::Unusable(why) => return unable(why),
        ReviewOutcome::Quota { until, account } => {
            return JudgeEnding::Quota {
                reset_at: *until,
                account: account.clone(),
            };
        }
        ReviewOutcome::Said(verdict) if verdict.verdict == ReviewDecision::Reject => {
            return reject(ReworkCause::Verdict, verdict.remarks(), &verdict.summary);
        }
        ReviewOutcome::Said(verdict) => {
            let given = verdict.criteria.iter();
            answers.extend(given.map(|answer| pass(&answer.id, &answer.evidence)));
        }
    }
    let changes = evidence.changes.unwrap_or_default();
    JudgeEnding::Approve {
        packet: done_packet(evidence.task, evidence.run_id, changes, answers, Vec::new()),
    }
}

type Answers = Vec<runner_lifecycle::packet::AcceptanceAnswer>;

/// Guard and policy: the answers to the command criteria, or the ending.
fn before_review(evidence: &JudgeEvidence<'_>) -> Result<Answers, Box<JudgeEnding>> {
    let task = evidence.task;
    let Some(changes) = evidence.changes else {
        return Err(Box::new(unable("the commit of the result is not there")));
    };
    if task.needs_merge() && changes.is_empty() {
        let remark = ReviewRemark {
            id: "empty-diff".to_owned(),
            text: "the result changes nothing".to_owned(),
        };
        let reason = "an empty diff is never approved";
        return Err(Box::new(reject(ReworkCause::Verdict, vec![remark], reason)));
    }
    let answers = match evidence.guard {
        JudgeGuard::Ran(checks) => {
            if let Some(ending) = not_green(checks) {
                return Err(Box::new(ending));
            }
            command_answers(task, checks)
        }
        JudgeGuard::Recorded(packet) => recorded_answers(task, packet, CriterionCheck::Command),
    };
    let answers = answers
        .map_err(|criterion| Box::new(unable(&format!("criterion {criterion} was not checked"))))?;
    if evidence.findings.is_empty() {
        return Ok(answers);
    }
    let remarks: Vec<ReviewRemark> = evidence.findings.iter().map(ReviewRemark::from).collect();
    let reason = joined(&remarks);
    Err(Box::new(reject(ReworkCause::Policy, remarks, &reason)))
}

/// What checks that are not all green come to; a command that could not run says nothing
/// about the work.
pub fn not_green(checks: &[CheckOutcome]) -> Option<JudgeEnding> {
    if let Some(check) = checks.iter().find(|check| check.end == CheckEnd::Unable) {
        let why = format!("{} could not run: {}", check.id, check.evidence);
        return Some(unable(&why));
    }
    let remarks: Vec<ReviewRemark> = checks
        .iter()
        .filter(|check| check.end == CheckEnd::Red)
        .map(|check| ReviewRemark {
            id: format!("check:{}", check.id),
            text: format!("{} is red: {}", check.id, words_of(check)),
        })
        .collect();
    let reason = joined(&remarks);
    (!remarks.is_empty()).then(|| reject(ReworkCause::Verdict, remarks, &reason))
}

/// What a verdict before the base's own judge comes to; none: nothing is against it. `result`: the
/// commit that a person reads.
pub fn changed_judge(verdict: &InvertedCheck, result: &str) -> Option<JudgeEnding> {
    match verdict {
        InvertedCheck::Same => None,
        InvertedCheck::Unable(why) => Some(unable(why)),
        InvertedCheck::Changed { files, why } => {
            let reason = format!(
                "it passes only with tests or settings that it changed itself ({why}); read `git show {}`: {}",
                result.get(..12).unwrap_or(result),
                files.join(", ")
            );
            Some(JudgeEnding::ChangedJudge {
                reason: cut_chars(&reason, REASON_CHARS).into_owned(),
            })
        }
    }
}

/// The ending for a result that does not merge with the base.
pub fn conflict(paths: &[String]) -> JudgeEnding {
    let remarks: Vec<ReviewRemark> = paths
        .iter()
        .map(|path| ReviewRemark {
            id: format!("conflict:{path}"),
            text: format!("{path} does not merge with the base"),
        })
        .collect();
    let reason = format!("conflicts with the base: {}", paths.join(", "));
    reject(ReworkCause::Conflict, remarks, &reason)
}

fn is_review(criterion: &runner_lifecycle::row::Criterion) -> bool {
    criterion.check == CriterionCheck::Review
}

fn joined(remarks: &[ReviewRemark]) -> String {
    let texts: Vec<&str> = remarks.iter().map(|remark| remark.text.as_str()).collect();
    texts.join("; ")
}

fn reject(cause: ReworkCause, remarks: Vec<ReviewRemark>, reason: &str) -> JudgeEnding {
    JudgeEnding::Reject {
        cause,
        remarks,
        reason: cut_chars(reason, REASON_CHARS).into_owned(),
    }
}

fn unable(reason: &str) -> JudgeEnding {
    JudgeEnding::Unable {
        reason: cut_chars(reason, REASON_CHARS).into_owned(),
    }
}

#[cfg(test)]
mod tests;
