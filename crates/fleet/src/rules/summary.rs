//! What happened to a task, in one plain sentence.

use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::row::{Blocker, FieldChange};
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{
    BlockReason, FailureCategory, Task, TaskOrigin, TaskPhase, TaskRunStatus, TaskState,
};

/// What is known of a task when it is summed up.
#[derive(Clone, Copy, Debug)]
pub struct SummaryInput<'a> {
    /// The row.
    pub task: &'a Task,
    /// Its runs.
    pub runs: &'a [TaskRun],
    /// Its events, oldest first.
    pub events: &'a [TaskEvent],
    /// Its successors, along `superseded_by`.
    pub successors: &'a [Task],
    /// Whether it waits for a person or the outside.
    pub parked: bool,
}

/// One sentence without the name of the task: "merged after 2 runs (1 failed: test)".
pub fn summary(input: &SummaryInput<'_>) -> String {
    let task = input.task;
    match task.state {
        TaskState::Done => {
            let how = if task.needs_merge() { "merged" } else { "done" };
            format!("{how} after {}{}", runs(input), origin(task))
        }
        TaskState::Failed => match task.superseded_by {
            Some(_) => superseded(input),
            None if input.runs.is_empty() => format!("never ran: {}", why_failed(input)),
            None => format!("failed after {}: {}", runs(input), why_failed(input)),
        },
        TaskState::Canceled => match &task.superseded_by {
            Some(next) => format!("canceled: {}; {next} goes on", why_canceled(input)),
            None => format!("canceled: {}", why_canceled(input)),
        },
        TaskState::Blocked => blocked(input),
        TaskState::InProgress => in_progress(input),
        TaskState::Todo if task.paused => "paused: nothing starts before it is resumed".to_owned(),
        TaskState::Todo => match input.runs.len() {
            0 => "waits for its turn".to_owned(),
            _ => format!("waits for its turn, after {}", runs(input)),
        },
    }
}

/// "1 run", "3 runs (2 failed: test, env; 1 lost)".
fn runs(input: &SummaryInput<'_>) -> String {
    let counters = &input.task.counters;
    let mut details = Vec::new();
    let failed: u32 = counters.failures.values().sum();
    if failed > 0 {
        let names: Vec<&str> = counters.failures.keys().map(|one| one.as_str()).collect();
        details.push(format!("{failed} failed: {}", names.join(", ")));
    }
    let stopped = input.runs.iter();
    let stopped = stopped.filter(|run| run.status == TaskRunStatus::Canceled);
    for (count, word) in [
        (counters.lost_work, "lost"),
        (
            u32::try_from(stopped.count()).unwrap_or(u32::MAX),
            "stopped",
        ),
        (counters.quota_waits, "stopped by a quota"),
    ] {
        if count > 0 {
            details.push(format!("{count} {word}"));
        }
    }
    let all = match input.runs.len() {
        0 => "no run".to_owned(),
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    if details.is_empty() {
        all
    } else {
        format!("{all} ({})", details.join("; "))
    }
}

/// Whose work it went on with.
fn origin(task: &Task) -> String {
    match (&task.rework_of, task.origin) {
        (None, _) => String::new(),
        (Some(parent), TaskOrigin::AutoFix) => format!(", mending the result of {parent}"),
        (Some(parent), TaskOrigin::AutoFixConflict) => {
            format!(", solving the conflicts of {parent} with the base")
        }
        (Some(parent), _) => format!(", in place of {parent}"),
    }
}

fn superseded(input: &SummaryInput<'_>) -> String {
    let task = input.task;
    let next = task.superseded_by.as_ref();
    let next = next.map_or(String::new(), ToString::to_string);
    let why = reason_before_end(input).unwrap_or_else(|| "it needed rework".to_owned());
    let end = match input.successors.last() {
        None => String::new(),
        Some(last) => {
            let name = if last.id.as_str() == next {
                "which".to_owned()
            } else {
                format!("and in the end {}, which", last.id)
            };
            format!(", {name} {}", state_of(last))
        }
    };
    format!("superseded by {next}{end}, because {why}")
}

fn state_of(task: &Task) -> &'static str {
    match task.state {
        TaskState::Done if task.needs_merge() => "was merged",
        TaskState::Done => "is done",
        TaskState::Failed => "failed",
        TaskState::Canceled => "was canceled",
        TaskState::Todo | TaskState::InProgress | TaskState::Blocked => "is still open",
    }
}

/// What the task was last blocked with.
fn last_blocker<'s>(input: &SummaryInput<'s>) -> Option<&'s Blocker> {
    let newest = input.events.iter().rev();
    newest
        .flat_map(|event| event.changes.iter())
        .find_map(|change| match change {
            FieldChange::blocker(blocker) => blocker.as_ref(),
            _ => None,
        })
}

/// The words of whoever blocked it last.
fn reason_before_end(input: &SummaryInput<'_>) -> Option<String> {
    last_blocker(input)
        .map(|blocker| blocker.reason.clone())
        .filter(|reason| !reason.trim().is_empty())
}

fn last_reason<'s>(input: &SummaryInput<'s>) -> &'s str {
    let ended = |event: &&TaskEvent| {
        event.to_state == input.task.state && event.from_state != Some(event.to_state)
    };
    let last = input.events.iter().rev().find(ended);
    last.map_or("", |event| event.reason.as_str())
}

fn why_failed(input: &SummaryInput<'_>) -> String {
    let reason = last_reason(input);
    if let Some(category) = reason
        .strip_prefix("run_failed_")
        .and_then(FailureCategory::parse)
    {
        return category_words(category).to_owned();
    }
    match reason {
        "lost_too_often" => "its workers were lost too often".to_owned(),
        "dependency_dead" => match dead_dependency(input) {
            Some(id) => format!("{id}, which it depends on, ended without being done"),
            None => "a task that it depends on ended without being done".to_owned(),
        },
        "packet_refused_again" => match reason_before_end(input) {
            Some(why) => format!("its packet was refused again ({why})"),
            None => "its packet was refused again".to_owned(),
        },
        "research_rework" => "its result was not good enough".to_owned(),
        "" => "nobody wrote down why".to_owned(),
        other => other.replace('_', " "),
    }
}

fn dead_dependency(input: &SummaryInput<'_>) -> Option<String> {
    last_blocker(input)?.waits_for.clone()
}

/// Why a run of the category ends a task, or what its failures were.
fn category_words(category: FailureCategory) -> &'static str {
    match category {
        FailureCategory::Env => "the machine or the network did not let it",
        FailureCategory::Setup => "the project could not be set up",
        FailureCategory::Permission => "something is not allowed",
        FailureCategory::NoChange => "nothing was changed though a change was asked for",
        FailureCategory::Policy => "it changed what it may not",
        FailureCategory::Test => "its checks stayed red",
        FailureCategory::Flaky => "its time was used up",
        FailureCategory::Model => "the model did not get there",
        FailureCategory::ModelLoop => "the model went in circles",
        FailureCategory::Budget => "its budget was used up",
    }
}

fn why_canceled(input: &SummaryInput<'_>) -> String {
    match last_reason(input) {
        "canceled" => {
            let newest = input.events.iter().rev();
            newest
                .filter_map(|event| event.details.get("why"))
                .find_map(|why| why.as_str())
                .filter(|why| !why.trim().is_empty())
                .unwrap_or("somebody called it off")
                .to_owned()
        }
        "pull_request_closed" => "its pull request was closed".to_owned(),
        "issue_closed" => "its issue was closed".to_owned(),
        "policy_without_safe_path" => "it could not be done within what it may change".to_owned(),
        "lineage_limit_reached" => match reason_before_end(input) {
            Some(why) => format!("it was reworked as often as is allowed ({why})"),
            None => "it was reworked as often as is allowed".to_owned(),
        },
        "" => "nobody wrote down why".to_owned(),
        other => other.replace('_', " "),
    }
}

fn blocked(input: &SummaryInput<'_>) -> String {
    let Some(blocker) = &input.task.blocker else {
        return "blocked, and nobody wrote down why".to_owned();
    };
    let reason = if blocker.reason.trim().is_empty() {
        blocker.code.as_str()
    } else {
        blocker.reason.as_str()
    };
    if input.parked && blocker.code == BlockReason::ChangedJudge {
        let id = &input.task.id;
        return format!(
            "parked, waits for a person (right: `runner fleet accept {id}`, wrong: `runner fleet cancel {id}`): {reason}"
        );
    }
    if input.parked && blocker.code == BlockReason::IssueLinking {
        return format!(
            "parked, waits for a person: {reason}; write a line `Agent: worker`, `Agent: tester` or `Agent: docser` in it"
        );
    }
    if input.parked {
        return format!("parked, waits for a person: {reason}");
    }
    match blocker.code {
        BlockReason::Cooldown => format!("tried again later, after {}: {reason}", runs(input)),
        BlockReason::QuotaWait => "waits for the quota of its account".to_owned(),
        BlockReason::AwaitingJudge if reason.contains("waits for ") => reason.to_owned(),
        BlockReason::AwaitingJudge => format!("waits for a judge: {reason}"),
        BlockReason::NeedsRework => format!("needs rework: {reason}"),
        BlockReason::IssueLinking => "waits for its issue to name a role".to_owned(),
        code => format!("blocked with {code}: {reason}"),
    }
}

fn in_progress(input: &SummaryInput<'_>) -> String {
    let task = input.task;
    let owner = task.owner.as_deref().unwrap_or("somebody");
    match task.phase {
        TaskPhase::Work => format!("{owner} works on it (run {})", task.counters.attempts),
        TaskPhase::Judge if task.intent.is_some() || is_approved(input) => {
            format!("{owner} merges it")
        }
        TaskPhase::Judge => format!("{owner} judges it"),
    }
}

/// Whether its last result was approved: whoever has it now is at its merge.
fn is_approved(input: &SummaryInput<'_>) -> bool {
    input.runs.last().is_some_and(TaskRun::is_approved)
}

#[cfg(test)]
mod tests;
