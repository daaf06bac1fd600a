//! Every sentence.

use runner_lifecycle::row::Intent;
use runner_lifecycle::{JudgeVerdict, TaskRunStatus, Timestamp};
use serde_json::{Map, json};

use super::super::fixtures::{id, task};
use super::*;

fn event(task: &Task, to: TaskState, reason: &str) -> TaskEvent {
    TaskEvent {
        task_id: task.id.clone(),
        version: 9,
        from_state: Some(TaskState::Blocked),
        to_state: to,
        actor: "cycle".to_owned(),
        reason: reason.to_owned(),
        created_at: Timestamp(1),
        details: Map::new(),
        changes: Vec::new(),
    }
}

fn blocked_event(
    task: &Task,
    code: BlockReason,
    reason: &str,
    waits_for: Option<&str>,
) -> TaskEvent {
    let mut blocker = task.blocker_of(code, reason, Timestamp(1));
    blocker.waits_for = waits_for.map(str::to_owned);
    TaskEvent {
        changes: vec![FieldChange::blocker(Some(blocker))],
        ..event(task, TaskState::Blocked, "blocked")
    }
}

fn runs_of(task: &Task, count: u32) -> Vec<TaskRun> {
    (1..=count)
        .map(|number| TaskRun::begin(&task.id, number, "w", 1, Timestamp(0)))
        .collect()
}

fn told(task: &Task, runs: u32, events: &[TaskEvent], successors: &[Task]) -> String {
    summary(&SummaryInput {
        task,
        runs: &runs_of(task, runs),
        events,
        successors,
        parked: false,
    })
}

fn in_state(state: TaskState) -> Task {
    Task { state, ..task() }
}

#[test]
fn done() {
    let mut task = in_state(TaskState::Done);
    assert_eq!(told(&task, 1, &[], &[]), "merged after 1 run");
    task.counters.failures.insert(FailureCategory::Test, 2);
    task.counters.failures.insert(FailureCategory::Env, 1);
    task.counters.lost_work = 1;
    task.counters.quota_waits = 1;
    assert_eq!(
        told(&task, 6, &[], &[]),
        "merged after 6 runs (3 failed: env, test; 1 lost; 1 stopped by a quota)"
    );
    let tester = Task {
        expects_change: false,
        ..in_state(TaskState::Done)
    };
    assert_eq!(told(&tester, 1, &[], &[]), "done after 1 run");
    for (origin, expected) in [
        (
            TaskOrigin::AutoFix,
            "merged after 1 run, mending the result of p",
        ),
        (
            TaskOrigin::AutoFixConflict,
            "merged after 1 run, solving the conflicts of p with the base",
        ),
        (TaskOrigin::Rework, "merged after 1 run, in place of p"),
    ] {
        let task = Task {
            rework_of: Some(id("p")),
            origin,
            ..in_state(TaskState::Done)
        };
        assert_eq!(told(&task, 1, &[], &[]), expected);
    }
}

#[test]
fn failed() {
    let task = in_state(TaskState::Failed);
    let dependency = blocked_event(&task, BlockReason::DependencyNotMet, "dead", Some("d"));
    let refused = blocked_event(
        &task,
        BlockReason::ScopeViolation,
        "docs/a is outside",
        None,
    );
    for (before, reason, expected) in [
        (
            None,
            "run_failed_no_change",
            "nothing was changed though a change was asked for",
        ),
        (None, "run_failed_permission", "something is not allowed"),
        (None, "run_failed_budget", "its budget was used up"),
        (None, "lost_too_often", "its workers were lost too often"),
        (
            None,
            "dependency_dead",
            "a task that it depends on ended without being done",
        ),
        (
            Some(&dependency),
            "dependency_dead",
            "d, which it depends on, ended without being done",
        ),
        (
            Some(&refused),
            "packet_refused_again",
            "its packet was refused again (docs/a is outside)",
        ),
        (None, "some_other_thing", "some other thing"),
    ] {
        let mut events: Vec<TaskEvent> = before.cloned().into_iter().collect();
        events.push(event(&task, TaskState::Failed, reason));
        // Saying it again changes nothing.
        events.push(TaskEvent {
            from_state: Some(TaskState::Failed),
            ..event(&task, TaskState::Failed, "replay")
        });
        let sentence = told(&task, 1, &events, &[]);
        assert_eq!(
            sentence,
            format!("failed after 1 run: {expected}"),
            "{reason}"
        );
    }
    for category in FailureCategory::ALL {
        assert!(!category_words(*category).is_empty());
    }
}

#[test]
fn superseded() {
    let task = Task {
        superseded_by: Some(id("n1")),
        ..in_state(TaskState::Failed)
    };
    let events = [
        blocked_event(&task, BlockReason::NeedsRework, "names are unclear", None),
        event(&task, TaskState::Failed, "superseded"),
    ];
    let next = |name: &str, state| Task {
        id: id(name),
        ..in_state(state)
    };
    for (successors, expected) in [
        (vec![], "superseded by n1, because names are unclear"),
        (
            vec![next("n1", TaskState::Done)],
            "superseded by n1, which was merged, because names are unclear",
        ),
        (
            vec![
                next("n1", TaskState::Failed),
                next("n2", TaskState::Canceled),
            ],
            "superseded by n1, and in the end n2, which was canceled, because names are unclear",
        ),
        (
            vec![next("n1", TaskState::Blocked)],
            "superseded by n1, which is still open, because names are unclear",
        ),
    ] {
        assert_eq!(told(&task, 1, &events, &successors), expected);
    }
}

#[test]
fn canceled() {
    let task = in_state(TaskState::Canceled);
    let mut by_hand = event(&task, TaskState::Canceled, "canceled");
    by_hand
        .details
        .insert("why".to_owned(), json!("not needed"));
    let rework = blocked_event(&task, BlockReason::NeedsRework, "still red", None);
    for (events, expected) in [
        (vec![by_hand], "not needed"),
        (
            vec![event(&task, TaskState::Canceled, "canceled")],
            "somebody called it off",
        ),
        (
            vec![event(&task, TaskState::Canceled, "issue_closed")],
            "its issue was closed",
        ),
        (
            vec![event(&task, TaskState::Canceled, "pull_request_closed")],
            "its pull request was closed",
        ),
        (
            vec![event(
                &task,
                TaskState::Canceled,
                "policy_without_safe_path",
            )],
            "it could not be done within what it may change",
        ),
        (
            vec![
                rework,
                event(&task, TaskState::Canceled, "lineage_limit_reached"),
            ],
            "it was reworked as often as is allowed (still red)",
        ),
        (vec![], "nobody wrote down why"),
    ] {
        assert_eq!(
            told(&task, 1, &events, &[]),
            format!("canceled: {expected}")
        );
    }
}

#[test]
fn open_ones() {
    let blocked = |code, reason: &str, parked| {
        let mut task = in_state(TaskState::Blocked);
        task.blocker = Some(task.blocker_of(code, reason, Timestamp(1)));
        summary(&SummaryInput {
            task: &task,
            runs: &runs_of(&task, 2),
            events: &[],
            successors: &[],
            parked,
        })
    };
    for (sentence, expected) in [
        (
            blocked(BlockReason::Cooldown, "the guard is red", false),
            "tried again later, after 2 runs: the guard is red",
        ),
        (
            blocked(BlockReason::QuotaWait, "x", false),
            "waits for the quota of its account",
        ),
        (
            blocked(
                BlockReason::AwaitingJudge,
                "approved, waits for its merge",
                false,
            ),
            "approved, waits for its merge",
        ),
        (
            blocked(
                BlockReason::AwaitingJudge,
                "a result waits for a judge",
                false,
            ),
            "a result waits for a judge",
        ),
        (
            blocked(BlockReason::IssueLinking, "the issue says no role", true),
            "parked, waits for a person: the issue says no role; write a line `Agent: worker`, \
             `Agent: tester` or `Agent: docser` in it",
        ),
        (
            blocked(BlockReason::NeedsRework, "x", false),
            "needs rework: x",
        ),
        (
            blocked(BlockReason::IssueLinking, "x", false),
            "waits for its issue to name a role",
        ),
        (
            blocked(BlockReason::LockConflict, "src is held", false),
            "blocked with LOCK_CONFLICT: src is held",
        ),
        (
            blocked(BlockReason::InvalidTransition, "", true),
            "parked, waits for a person: INVALID_TRANSITION",
        ),
    ] {
        assert_eq!(sentence, expected);
    }
    let task = in_state(TaskState::Failed);
    let never = "never ran: nobody wrote down why";
    assert_eq!(told(&task, 0, &[], &[]), never);
    let mut task = in_state(TaskState::Todo);
    assert_eq!(told(&task, 0, &[], &[]), "waits for its turn");
    assert_eq!(told(&task, 1, &[], &[]), "waits for its turn, after 1 run");
    task.paused = true;
    assert_eq!(
        told(&task, 0, &[], &[]),
        "paused: nothing starts before it is resumed"
    );
    let mut task = in_state(TaskState::InProgress);
    task.owner = Some("worker-1".to_owned());
    task.counters.attempts = 2;
    assert_eq!(told(&task, 2, &[], &[]), "worker-1 works on it (run 2)");
    task.phase = TaskPhase::Judge;
    assert_eq!(told(&task, 2, &[], &[]), "worker-1 judges it");
    let mut approved = runs_of(&task, 1).remove(0);
    approved.status = TaskRunStatus::Success;
    approved.verdict = Some(JudgeVerdict::Approve);
    let input = SummaryInput {
        task: &task,
        runs: &[approved],
        events: &[],
        successors: &[],
        parked: false,
    };
    assert_eq!(summary(&input), "worker-1 merges it");
    task.intent = Some(Intent {
        old_base: "a".to_owned(),
        merge_commit: "b".to_owned(),
    });
    assert_eq!(told(&task, 2, &[], &[]), "worker-1 merges it");
}
