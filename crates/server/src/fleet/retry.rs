//! When and how a task is tried again, as `GET /tasks` tells it.

use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{self as law, Policy, Task, TaskPhase, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::words::{BlockReasonView, FailureCategoryView};

/// The next attempt at a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Retry)]
pub(crate) struct RetryView {
    /// What the task waits with.
    reason: BlockReasonView,
    /// When it is tried again.
    retry_at: i64,
    /// The same, from now; 0 if it may be at any moment.
    retry_in_seconds: u64,
    /// What happened to the last run; null for a quota and for judgements.
    category: Option<FailureCategoryView>,
    /// How often that happened.
    attempts: u32,
    /// How often that is tried again; null: without limit.
    limit: Option<u32>,
}

/// The next attempt, if a clock decides when it is.
pub(crate) fn retry_of(
    policy: &Policy,
    task: &Task,
    newest: Option<&TaskRun>,
    now: Timestamp,
) -> Option<RetryView> {
    let blocker = task.blocker.as_ref()?;
    let retry_at = blocker.retry_at?;
    let counters = &task.counters;
    let category = newest.and_then(|run| run.category);
    let (category, attempts, limit) = match (blocker.code, task.phase, category) {
        (law::BlockReason::QuotaWait, _, _) => (None, counters.quota_waits, None),
        (_, TaskPhase::Judge, _) => (None, counters.judge, Some(policy.max_judge_attempts)),
        (_, TaskPhase::Work, Some(category)) => {
            let limit = policy.retries.get(&category).copied();
            (Some(category), counters.failed(category), limit)
        }
        (_, TaskPhase::Work, None) => (None, counters.runs, Some(policy.max_runs)),
    };
    Some(RetryView {
        reason: blocker.code.into(),
        retry_at: retry_at.0,
        // Rounded up: whoever comes then is not too early.
        retry_in_seconds: retry_at.millis_since(now).div_ceil(1000),
        category: category.map(FailureCategoryView::from),
        attempts,
        limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_lifecycle::TaskId;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn blocked(reason: law::BlockReason, phase: TaskPhase, retry_at: Option<i64>) -> Task {
        let mut task = Task::blank(TaskId::parse("t").unwrap());
        let mut blocker = task.blocker_of(reason, "words", NOW);
        blocker.retry_at = retry_at.map(Timestamp);
        task.blocker = Some(blocker);
        task.phase = phase;
        task.counters.failures.insert(law::FailureCategory::Test, 2);
        task.counters.runs = 4;
        task.counters.quota_waits = 7;
        task.counters.judge = 1;
        task
    }

    #[test]
    fn each_reason_counts_its_own() {
        let policy = Policy::default();
        let mut run = TaskRun::begin(&TaskId::parse("t").unwrap(), 1, "w", 1, NOW);
        run.category = Some(law::FailureCategory::Test);
        let cases = [
            (
                law::BlockReason::Cooldown,
                TaskPhase::Work,
                Some(&run),
                Some("test"),
                2,
                Some(3),
            ),
            (
                law::BlockReason::Cooldown,
                TaskPhase::Work,
                None,
                None,
                4,
                Some(10),
            ),
            (
                law::BlockReason::QuotaWait,
                TaskPhase::Work,
                Some(&run),
                None,
                7,
                None,
            ),
            (
                law::BlockReason::QuotaWait,
                TaskPhase::Judge,
                Some(&run),
                None,
                7,
                None,
            ),
            (
                law::BlockReason::AwaitingJudge,
                TaskPhase::Judge,
                Some(&run),
                None,
                1,
                Some(5),
            ),
        ];
        for (reason, phase, newest, category, attempts, limit) in cases {
            let task = blocked(reason, phase, Some(NOW.0 + 78_001));
            let retry = retry_of(&policy, &task, newest, NOW).unwrap();
            assert_eq!(retry.reason.0, reason);
            assert_eq!(retry.retry_in_seconds, 79);
            assert_eq!(retry.category.map(|word| word.0.as_str()), category);
            assert_eq!((retry.attempts, retry.limit), (attempts, limit), "{reason}");
        }
        let due = blocked(law::BlockReason::Cooldown, TaskPhase::Work, Some(NOW.0 - 5));
        assert_eq!(
            retry_of(&policy, &due, None, NOW).unwrap().retry_in_seconds,
            0
        );
        let parked = blocked(law::BlockReason::IssueLinking, TaskPhase::Work, None);
        assert_eq!(retry_of(&policy, &parked, None, NOW), None);
        assert_eq!(
            retry_of(&policy, &Task::blank(due.id.clone()), None, NOW),
            None
        );
    }
}
