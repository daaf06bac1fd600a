//! The recovery table, row by row.

mod coverage;

use super::*;
use crate::lock::{Resource, ScopeLock};
use crate::request::{Dependency, IssueFacts, PullRequest};
use crate::row::{Intent, TaskId};
use crate::run::TaskRun;
use crate::words::{FailureCategory, JudgeVerdict, TaskRunStatus, TaskType};

const NOW: Timestamp = Timestamp(100_000_000);

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn task(reason: BlockReason, phase: TaskPhase) -> Task {
    let mut task = Task {
        phase,
        state: crate::words::TaskState::Blocked,
        lock_scope: vec![Resource::parse("src").unwrap()],
        ..Task::blank(id("t"))
    };
    task.blocker = Some(task.blocker_of(reason, "why", NOW));
    task
}

fn run(status: TaskRunStatus) -> TaskRun {
    TaskRun {
        status,
        result: Some("c1".to_owned()),
        ..TaskRun::begin(&id("t"), 1, "w", 1, NOW)
    }
}

#[allow(clippy::unnecessary_wraps)] // as the field is
fn pull_request(head: &str, closed: bool) -> Option<PullRequest> {
    Some(PullRequest {
        head: head.to_owned(),
        closed,
    })
}

type Edit = fn(&mut Task, &mut Facts);

fn check(
    row: usize,
    reason: BlockReason,
    phase: TaskPhase,
    edit: Edit,
    name: &str,
    action: &RecoveryAction,
) {
    let (mut task, mut facts) = (task(reason, phase), Facts::default());
    edit(&mut task, &mut facts);
    let (found, got) = plan(&Policy::default(), &task, &facts, NOW).unwrap();
    assert_eq!(
        (found.name, &got),
        (name, action),
        "row {row}: {reason} {phase}"
    );
}

#[test]
fn the_table_row_by_row() {
    use BlockReason as R;
    use TaskPhase::{Judge, Work};
    let later = Timestamp(NOW.0 + 1);
    let day = NOW.plus_secs(24 * 3600);
    let rows: Vec<(BlockReason, TaskPhase, Edit, &str, RecoveryAction)> = vec![
        // any: an open intent comes first
        (
            R::TaskTimeout,
            Judge,
            |t, _| open_intent(t),
            "open_intent_retry",
            RecoveryAction::Resume,
        ),
        (
            R::AwaitingJudge,
            Judge,
            |t, _| open_intent(t),
            "open_intent_retry",
            RecoveryAction::Stay,
        ),
        // cooldown, quota_wait
        (
            R::Cooldown,
            Work,
            |t, _| retry_at(t, 1),
            "cooldown_retry",
            RecoveryAction::Wait(later),
        ),
        (
            R::Cooldown,
            Work,
            |t, _| retry_at(t, 0),
            "cooldown_retry",
            RecoveryAction::Resume,
        ),
        (
            R::QuotaWait,
            Work,
            |t, _| retry_at(t, 0),
            "cooldown_retry",
            RecoveryAction::Resume,
        ),
        (
            R::QuotaWait,
            Judge,
            |t, _| retry_at(t, 1),
            "cooldown_retry",
            RecoveryAction::Wait(later),
        ),
        // TASK_TIMEOUT
        (
            R::TaskTimeout,
            Work,
            |t, _| t.counters.lost_work = 5,
            "task_timeout_retry",
            RecoveryAction::Resume,
        ),
        (
            R::TaskTimeout,
            Work,
            |t, _| t.counters.lost_work = 6,
            "task_timeout_retry",
            RecoveryAction::Fail("lost_too_often"),
        ),
        (
            R::TaskTimeout,
            Judge,
            |t, _| t.counters.lost_judge = 5,
            "task_timeout_retry",
            RecoveryAction::Resume,
        ),
        (
            R::TaskTimeout,
            Judge,
            |t, _| t.counters.lost_judge = 6,
            "task_timeout_retry",
            RecoveryAction::Rework(ReworkCause::Unjudged),
        ),
        (
            R::TaskTimeout,
            Judge,
            |t, _| t.counters.lost_work = 9,
            "task_timeout_retry",
            RecoveryAction::Resume,
        ),
        // awaiting_judge
        (
            R::AwaitingJudge,
            Judge,
            |_, f| has_run(f, |_| ()),
            "awaiting_judge",
            RecoveryAction::Stay,
        ),
        (
            R::AwaitingJudge,
            Judge,
            |_, f| has_run(f, |run| run.verdict = Some(JudgeVerdict::Approve)),
            "awaiting_judge",
            RecoveryAction::Stay,
        ),
        (
            R::AwaitingJudge,
            Judge,
            |_, f| has_run(f, |run| run.judged_at = Some(NOW)),
            "awaiting_judge_unjudged_retry",
            RecoveryAction::Unjudge,
        ),
        (
            R::AwaitingJudge,
            Judge,
            |t, f| {
                t.kind = TaskKind::Review;
                f.pull_request = pull_request("h", false);
            },
            "awaiting_judge_missing_run_retry",
            RecoveryAction::RestoreRun { counted: true },
        ),
        (
            R::AwaitingJudge,
            Judge,
            |t, f| {
                t.kind = TaskKind::Review;
                f.pull_request = pull_request("h", true);
            },
            "awaiting_judge_missing_run_retry",
            RecoveryAction::Cancel("pull_request_closed"),
        ),
        (
            R::AwaitingJudge,
            Judge,
            |t, f| {
                t.kind = TaskKind::Review;
                t.counters.restores = 3;
                f.pull_request = pull_request("h", false);
            },
            "awaiting_judge_missing_run_retry",
            RecoveryAction::Park(None),
        ),
        (
            R::AwaitingJudge,
            Judge,
            |_, _| (),
            "awaiting_judge_timeout_retry",
            RecoveryAction::Requeue(RecoveryRequeue::Lost),
        ),
        (
            R::AwaitingJudge,
            Judge,
            |t, _| t.counters.lost_work = 5,
            "awaiting_judge_timeout_retry",
            RecoveryAction::Fail("lost_too_often"),
        ),
        (
            R::AwaitingJudge,
            Judge,
            |_, f| f.run = Some(run(TaskRunStatus::Failed)),
            "awaiting_judge_timeout_retry",
            RecoveryAction::Requeue(RecoveryRequeue::Lost),
        ),
        // needs_rework
        (
            R::NeedsRework,
            Work,
            |t, f| {
                t.kind = TaskKind::Review;
                has_run(f, |run| run.verdict = Some(JudgeVerdict::Reject));
                f.pull_request = pull_request("c2", false);
            },
            "pr_review_needs_rework_missing_run_retry",
            RecoveryAction::RestoreRun { counted: false },
        ),
        (
            R::NeedsRework,
            Work,
            |t, f| {
                t.kind = TaskKind::Review;
                t.rework_cause = Some(ReworkCause::Verdict);
                has_run(f, |run| run.verdict = Some(JudgeVerdict::Reject));
                f.pull_request = pull_request("c1", false);
            },
            "rework",
            RecoveryAction::Succeed(TaskOrigin::AutoFix),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| t.rework_cause = Some(ReworkCause::Setup),
            "setup_packet_retry",
            RecoveryAction::Requeue(RecoveryRequeue::SetupPacket),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| {
                t.rework_cause = Some(ReworkCause::Setup);
                t.counters.setup_packets = 3;
            },
            "rework",
            RecoveryAction::Succeed(TaskOrigin::Rework),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| {
                t.rework_cause = Some(ReworkCause::Setup);
                t.counters.runs = 10;
            },
            "rework",
            RecoveryAction::Succeed(TaskOrigin::Rework),
        ),
        (
            R::NeedsRework,
            Work,
            |t, f| {
                t.rework_cause = Some(ReworkCause::Policy);
                f.safe_path = true;
            },
            "policy_packet_retry",
            RecoveryAction::Requeue(RecoveryRequeue::PolicyPacket),
        ),
        (
            R::NeedsRework,
            Work,
            |t, f| {
                t.rework_cause = Some(ReworkCause::Policy);
                t.counters.policy_packets = 3;
                f.safe_path = true;
            },
            "rework",
            RecoveryAction::Succeed(TaskOrigin::Rework),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| policy_tries(t, 2),
            "policy_without_safe_path",
            RecoveryAction::Requeue(RecoveryRequeue::Plain),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| policy_tries(t, 3),
            "policy_without_safe_path",
            RecoveryAction::Cancel("policy_without_safe_path"),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| t.rework_depth = 2,
            "rework",
            RecoveryAction::Cancel("lineage_limit_reached"),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| t.lineage.tasks = 8,
            "rework",
            RecoveryAction::Cancel("lineage_limit_reached"),
        ),
        (
            R::NeedsRework,
            Work,
            |_, _| (),
            "rework",
            RecoveryAction::Succeed(TaskOrigin::Rework),
        ),
        (
            R::NeedsRework,
            Work,
            |t, _| t.kind = TaskKind::Research,
            "rework",
            RecoveryAction::Fail("research_rework"),
        ),
        // issue_linking
        (
            R::IssueLinking,
            Work,
            |_, f| f.issue = issue(Some("docser"), false),
            "issue_linking_retry",
            RecoveryAction::Requeue(RecoveryRequeue::WithRole("docser".to_owned())),
        ),
        (
            R::IssueLinking,
            Work,
            |_, f| f.issue = issue(Some("docser"), true),
            "issue_linking_retry",
            RecoveryAction::Cancel("issue_closed"),
        ),
        (
            R::IssueLinking,
            Work,
            |_, f| f.issue = issue(None, false),
            "issue_linking_retry",
            RecoveryAction::Park(None),
        ),
        // DEPENDENCY_NOT_MET
        (
            R::DependencyNotMet,
            Work,
            |_, f| chain(f, DependencyChain::Alive),
            "dependency_retry",
            RecoveryAction::Resume,
        ),
        (
            R::DependencyNotMet,
            Work,
            |_, f| chain(f, DependencyChain::Done(NOW)),
            "dependency_retry",
            RecoveryAction::Resume,
        ),
        (
            R::DependencyNotMet,
            Work,
            |_, f| chain(f, DependencyChain::Dead),
            "dependency_retry",
            RecoveryAction::Park(Some(day)),
        ),
        (
            R::DependencyNotMet,
            Work,
            |t, f| {
                chain(f, DependencyChain::Dead);
                if let Some(blocker) = &mut t.blocker {
                    blocker.since = Timestamp(NOW.0 - 24 * 3_600_000);
                }
            },
            "dependency_retry",
            RecoveryAction::Fail("dependency_dead"),
        ),
        // conflicts
        (
            R::ConcurrencyConflict,
            Work,
            |_, _| (),
            "conflict_serial_retry",
            RecoveryAction::Requeue(RecoveryRequeue::Serial),
        ),
        (
            R::LockConflict,
            Work,
            |_, f| held(f, "src/x"),
            "lock_free_retry",
            RecoveryAction::Stay,
        ),
        (
            R::LockConflict,
            Work,
            |_, f| held(f, "docs"),
            "lock_free_retry",
            RecoveryAction::Resume,
        ),
        (
            R::LockConflict,
            Work,
            |t, f| {
                t.task_type = TaskType::Serial;
                held(f, "docs");
            },
            "lock_free_retry",
            RecoveryAction::Stay,
        ),
        (
            R::AcceptanceFailed,
            Work,
            |_, _| (),
            "acceptance_failed",
            RecoveryAction::CountAsTest,
        ),
        // LEDGER_INCONSISTENT
        (
            R::LedgerInconsistent,
            Work,
            |_, f| f.repaired = Some(true),
            "ledger_repaired_retry",
            RecoveryAction::Resume,
        ),
        (
            R::LedgerInconsistent,
            Work,
            |_, f| f.repaired = Some(false),
            "ledger_repaired_retry",
            RecoveryAction::CountRepair,
        ),
        (
            R::LedgerInconsistent,
            Work,
            |_, _| (),
            "ledger_repaired_retry",
            RecoveryAction::Repair,
        ),
        (
            R::LedgerInconsistent,
            Work,
            |t, f| {
                t.counters.repairs = 3;
                f.repaired = Some(false);
            },
            "ledger_repaired_retry",
            RecoveryAction::Park(None),
        ),
        (
            R::InvalidTransition,
            Work,
            |_, _| (),
            "parked",
            RecoveryAction::Park(None),
        ),
    ];
    for (at, (reason, phase, edit, name, action)) in rows.iter().enumerate() {
        check(at, *reason, *phase, *edit, name, action);
    }
}

#[test]
fn packets_that_were_refused_are_replanned_once() {
    for code in [
        BlockReason::SchemaInvalid,
        BlockReason::ScopeViolation,
        BlockReason::NonCompliant,
        BlockReason::MissingRequiredInput,
        BlockReason::UnknownSchemaVersion,
    ] {
        let rows: [(Edit, RecoveryAction); 4] = [
            (|_, _| (), RecoveryAction::Requeue(RecoveryRequeue::Replan)),
            (
                |t, _| t.counters.replans = 1,
                RecoveryAction::Fail("packet_refused_again"),
            ),
            (
                |t, _| {
                    t.counters.replans = 1;
                    t.packet_revision += 1;
                },
                RecoveryAction::Requeue(RecoveryRequeue::Plain),
            ),
            (
                |t, _| t.counters.runs = 10,
                RecoveryAction::Rework(ReworkCause::Exhausted),
            ),
        ];
        for (at, (edit, action)) in rows.into_iter().enumerate() {
            let (mut task, mut facts) = (task(code, TaskPhase::Work), Facts::default());
            task.refused_revision = Some(task.packet_revision);
            edit(&mut task, &mut facts);
            let (row, got) = plan(&Policy::default(), &task, &facts, NOW).unwrap();
            assert_eq!((row.name, got), ("replan", action), "{code} {at}");
        }
    }
}

fn open_intent(task: &mut Task) {
    task.intent = Some(Intent {
        old_base: "b".to_owned(),
        merge_commit: "m".to_owned(),
    });
}

fn retry_at(task: &mut Task, millis: i64) {
    if let Some(blocker) = &mut task.blocker {
        blocker.retry_at = Some(Timestamp(NOW.0 + millis));
    }
}

fn has_run(facts: &mut Facts, edit: fn(&mut TaskRun)) {
    let mut run = run(TaskRunStatus::Success);
    edit(&mut run);
    facts.run = Some(run);
}

#[allow(clippy::unnecessary_wraps)] // as the field is
fn issue(role: Option<&str>, closed: bool) -> Option<IssueFacts> {
    Some(IssueFacts {
        role: role.map(str::to_owned),
        closed,
        work: None,
    })
}

fn policy_tries(task: &mut Task, tries: u32) {
    task.rework_cause = Some(ReworkCause::Policy);
    task.counters
        .failures
        .insert(FailureCategory::Policy, tries);
}

fn chain(facts: &mut Facts, chain: DependencyChain) {
    facts.dependencies = vec![Dependency { id: id("d"), chain }];
}

fn held(facts: &mut Facts, resource: &str) {
    facts.locks = vec![ScopeLock {
        task_id: id("o"),
        resource: Resource::parse(resource).unwrap(),
    }];
}
