//! What a worker's loop came to: the ending of its run, from git and the checks alone.

use runner_core::text::{cut_chars, cut_front};
use runner_lifecycle::request::WorkEnding;
use runner_lifecycle::retry::{LoopEnding, RunEnding};
use runner_lifecycle::{FailureCategory, RefusalCode, Task};

use super::answers::{command_answers, done_packet, planned_checks};
use super::policy::{PolicyFinding, could_not_run, paths_of};
use super::signature::{gist, signature};
use crate::workspaces::{CheckEnd, CheckOutcome, WorkOutcome};

/// The longest note of a failure, in characters.
const NOTE_CHARS: usize = 600;

/// Words of a system that refuses.
const REFUSED: [&str; 6] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "eacces",
    "eperm",
    "unauthorized",
];

/// Words of whoever noticed that a model repeats itself.
const CIRCLES: [&str; 4] = [
    "in circles",
    "repeating itself",
    "repeats the same",
    "doom loop",
];

/// The ending of a run. `findings` are those of [`super::policy::findings`] over the
/// result.
///
/// | loop | and | ending |
/// |---|---|---|
/// | interrupted | | lost |
/// | quota | | quota |
/// | stuck, limit, budget, timeout, error | | failed, by the contract's category |
/// | iteration limit | the same failure as before, or words | failed, model_loop |
/// | runner error | words of a refusing system | failed, permission |
/// | complete | a check that could not run | failed, setup or permission |
/// | | a red check | failed, test |
/// | | a criterion nothing answers | failed, env |
/// | | no change where one is expected | failed, no_change |
/// | | a path outside the scope | blocked, SCOPE_VIOLATION |
/// | | another finding | failed, policy |
/// | | else | success |
pub fn ending(
    task: &Task,
    run_id: &str,
    worked: &WorkOutcome,
    findings: &[PolicyFinding],
) -> WorkEnding {
    match worked.ending.run_ending() {
        RunEnding::Lost => WorkEnding::Lost,
        RunEnding::Quota => WorkEnding::Quota {
            reset_at: worked.quota_until,
            account: worked.account.clone(),
        },
        RunEnding::Failed(category) => unfinished(task, worked, category),
        RunEnding::Success => complete(task, run_id, worked, findings),
    }
}

/// A failed run with its signature and a note for people. A failure that says nothing has
/// no signature: nobody knows whether it is the same again.
pub fn failed(category: FailureCategory, note: &str, text: &str) -> WorkEnding {
    WorkEnding::Failed {
        category,
        signature: (!gist(text).is_empty()).then(|| signature(category, text)),
        note: cut_chars(note.trim(), NOTE_CHARS).into_owned(),
    }
}

/// A loop that ended before its goal.
fn unfinished(task: &Task, worked: &WorkOutcome, category: FailureCategory) -> WorkEnding {
    let category = match worked.ending {
        LoopEnding::IterationLimit if goes_in_circles(task, worked) => FailureCategory::ModelLoop,
        // The runner's own words; a guard's log may speak of permissions for other reasons.
        LoopEnding::RunnerError if is_refusal(&worked.why) => FailureCategory::Permission,
        _ => category,
    };
    let gist = gist(&worked.why);
    let what = match worked.ending {
        LoopEnding::Stuck => "a leaf used up its attempts",
        LoopEnding::IterationLimit => "the iterations are used up",
        LoopEnding::Budget => "the budget is used up",
        LoopEnding::Timeout => "the time is used up",
        _ => "the loop could not go on",
    };
    let note = if gist.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {gist}")
    };
    failed(category, &note, &worked.why)
}

/// Whether the last attempt ended in the very same way, or somebody says so.
fn goes_in_circles(task: &Task, worked: &WorkOutcome) -> bool {
    let lower = worked.why.to_lowercase();
    let said = CIRCLES.iter().any(|words| lower.contains(words));
    let before = task.counters.signature.as_deref();
    let alike = [FailureCategory::Model, FailureCategory::ModelLoop]
        .iter()
        .any(|category| before == Some(signature(*category, &worked.why).as_str()));
    said || (alike && !gist(&worked.why).is_empty())
}

fn is_refusal(text: &str) -> bool {
    let lower = text.to_lowercase();
    REFUSED.iter().any(|words| lower.contains(words))
}

/// A loop that says it is through.
fn complete(
    task: &Task,
    run_id: &str,
    worked: &WorkOutcome,
    findings: &[PolicyFinding],
) -> WorkEnding {
    if let Some(check) = with_end(&worked.checks, CheckEnd::Unable) {
        return unable(task, check);
    }
    if let Some(check) = with_end(&worked.checks, CheckEnd::Red) {
        let note = format!("{} is red: {}", shown(task, check), words_of(check));
        return failed(FailureCategory::Test, &note, &check.tail);
    }
    let answers = match command_answers(task, &worked.checks) {
        Ok(answers) => answers,
        Err(criterion) => {
            let note = format!("criterion {criterion} was not checked");
            return failed(FailureCategory::Env, &note, &note);
        }
    };
    let mut notes = Vec::new();
    let (result, changes) = match &worked.result {
        None if task.needs_merge() => {
            let note = "nothing was changed though a change was asked for";
            return failed(FailureCategory::NoChange, note, note);
        }
        None => (None, &[][..]),
        Some(result) if task.needs_merge() => {
            if let Some(ending) = against_policy(findings) {
                return ending;
            }
            (Some(result.commit.clone()), result.changes.as_slice())
        }
        Some(result) => {
            // Nothing of it goes into the base, so the packet names no change either.
            notes.push(format!(
                "it changed {} files though no change was asked for; they are not merged (commit {})",
                result.changes.len(),
                result.commit
            ));
            (None, &[][..])
        }
    };
    let packet = done_packet(task, run_id, changes, answers, notes);
    WorkEnding::Success { result, packet }
}

fn with_end(checks: &[CheckOutcome], end: CheckEnd) -> Option<&CheckOutcome> {
    checks.iter().find(|check| check.end == end)
}

/// A check that could not run: the project is not set up, or something is not allowed.
fn unable(task: &Task, check: &CheckOutcome) -> WorkEnding {
    let text = format!("{}\n{}", check.evidence, check.tail);
    let category = if is_refusal(&text) {
        FailureCategory::Permission
    } else {
        FailureCategory::Setup
    };
    let why = cut_chars(check.evidence.trim(), NOTE_CHARS / 2);
    let note = match planned_checks(task).iter().find(|one| one.id == check.id) {
        Some(planned) => could_not_run(&planned.command, &why),
        None => format!("{} could not run: {why}", check.id),
    };
    failed(category, &note, &cut_front(&text, 20_000))
}

/// Why a check is red: what it printed, or where it printed nothing how it ended.
pub(super) fn words_of(check: &CheckOutcome) -> String {
    let gist = gist(&check.tail);
    if gist.is_empty() {
        check.evidence.clone()
    } else {
        gist
    }
}

/// The command of a check, for people.
fn shown(task: &Task, check: &CheckOutcome) -> String {
    match planned_checks(task).iter().find(|one| one.id == check.id) {
        Some(planned) => format!("`{}`", planned.command),
        None => format!("the {}", check.id),
    }
}

/// The ending that findings lead to: those about the scope first, since the packet may be
/// wrong there.
fn against_policy(findings: &[PolicyFinding]) -> Option<WorkEnding> {
    findings.first()?;
    let mut texts: Vec<&str> = findings.iter().map(|one| one.text.as_str()).collect();
    texts.dedup();
    let note = texts.join("; ");
    if findings.iter().any(|one| one.breach.is_scope()) {
        return Some(WorkEnding::Blocked {
            code: RefusalCode::ScopeViolation,
            reason: cut_chars(&note, NOTE_CHARS).into_owned(),
            waits_for: paths_of(findings),
        });
    }
    let ids: Vec<String> = findings.iter().map(PolicyFinding::id).collect();
    let category = FailureCategory::Policy;
    Some(failed(category, &note, &ids.join("\n")))
}

#[cfg(test)]
mod tests;
