//! What follows a failed run, a met quota, or a lost race.

use crate::policy::Policy;
use crate::request::Facts;
use crate::row::{Task, TaskCounters, TaskId};
use crate::time::Timestamp;
use crate::words::{FailureCategory, ReworkCause, TaskType};

words! {
    /// How a loop that worked on a task ended.
    LoopEnding {
        /// Every leaf passes.
        Complete = "complete",
        /// A leaf used up its attempts.
        Stuck = "stuck",
        /// The iterations are used up.
        IterationLimit = "iteration_limit",
        /// The budget is used up.
        Budget = "budget",
        /// The time is used up.
        Timeout = "timeout",
        /// The quota of the account is used up.
        Quota = "quota",
        /// The runner itself could not go on.
        RunnerError = "runner_error",
        /// Somebody or something ended it from outside.
        Interrupted = "interrupted",
    }
}

/// What the ending of a loop is to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnding {
    /// There is a result.
    Success,
    /// It failed, and that counts.
    Failed(FailureCategory),
    /// It waits for the quota, and nothing is counted.
    Quota,
    /// It was lost.
    Lost,
}

impl LoopEnding {
    /// What it is to the run.
    pub const fn run_ending(self) -> RunEnding {
        match self {
            LoopEnding::Complete => RunEnding::Success,
            LoopEnding::Stuck => RunEnding::Failed(FailureCategory::Test),
            LoopEnding::IterationLimit => RunEnding::Failed(FailureCategory::Model),
            LoopEnding::Budget => RunEnding::Failed(FailureCategory::Budget),
            LoopEnding::Timeout => RunEnding::Failed(FailureCategory::Flaky),
            LoopEnding::Quota => RunEnding::Quota,
            LoopEnding::RunnerError => RunEnding::Failed(FailureCategory::Env),
            LoopEnding::Interrupted => RunEnding::Lost,
        }
    }
}

/// What follows a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryStep {
    /// Another attempt after a while.
    Retry {
        /// How long, before jitter.
        delay_secs: u64,
    },
    /// The end.
    Fail,
    /// The cycle manager decides.
    Rework(ReworkCause),
}

/// Counts a failed run: the run, its category, its owner, its signature.
pub fn count_failure(
    counters: &mut TaskCounters,
    category: FailureCategory,
    signature: Option<&str>,
    owner: Option<&str>,
) {
    counters.runs += 1;
    if let Some(owner) = owner {
        *counters
            .failures_by_owner
            .entry(owner.to_owned())
            .or_insert(0) += 1;
    }
    count_category(counters, category, signature);
}

/// Counts a category and a signature of a run that is counted already.
pub fn count_category(
    counters: &mut TaskCounters,
    category: FailureCategory,
    signature: Option<&str>,
) {
    *counters.failures.entry(category).or_insert(0) += 1;
    let same = signature.is_some() && counters.signature.as_deref() == signature;
    counters.signature_streak = if same {
        counters.signature_streak + 1
    } else {
        u32::from(signature.is_some())
    };
    counters.signature = signature.map(str::to_owned);
}

/// The retry policy, for a failure that was just counted.
pub fn after_failure(
    policy: &Policy,
    counters: &TaskCounters,
    category: FailureCategory,
) -> RetryStep {
    let limit = policy.retries.get(&category).copied().unwrap_or(0);
    let failed = counters.failed(category);
    if failed > limit && is_final(category) {
        return RetryStep::Fail;
    }
    let repeats = counters.signature_streak >= policy.signature_streak;
    if failed > limit || repeats || counters.runs >= policy.max_runs {
        return RetryStep::Rework(match category {
            FailureCategory::Setup => ReworkCause::Setup,
            FailureCategory::Policy => ReworkCause::Policy,
            _ => ReworkCause::Exhausted,
        });
    }
    RetryStep::Retry {
        delay_secs: cooldown_secs(policy, failed),
    }
}

/// Whether no other attempt, by whomever, could end otherwise.
fn is_final(category: FailureCategory) -> bool {
    matches!(
        category,
        FailureCategory::Permission | FailureCategory::NoChange | FailureCategory::Budget
    )
}

/// The wait after the n-th failure: doubled each time, up to a limit.
pub fn cooldown_secs(policy: &Policy, failures: u32) -> u64 {
    doubled(
        policy.cooldown_base_secs,
        failures.saturating_sub(1),
        policy.cooldown_max_secs,
    )
}

/// When a task that met a quota is tried again. What the provider says wins.
pub fn quota_retry_at(
    policy: &Policy,
    task: &TaskId,
    waits_before: u32,
    reset_at: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    reset_at.filter(|at| *at > now).unwrap_or_else(|| {
        let secs = doubled(policy.quota_base_secs, waits_before, policy.quota_max_secs);
        now.plus_millis(with_jitter(task, waits_before, secs))
    })
}

fn doubled(base: u64, times: u32, most: u64) -> u64 {
    let factor = 1u64.checked_shl(times).unwrap_or(u64::MAX);
    base.saturating_mul(factor).min(most)
}

/// Milliseconds, lengthened by up to a fifth: always the same for the same task and
/// count, so that two readers agree, and different for different tasks, so that they do
/// not all come back at once.
pub fn with_jitter(task: &TaskId, count: u32, secs: u64) -> u64 {
    let text = format!("{task}/{count}");
    // FNV-1a: small, and the same everywhere.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let millis = secs.saturating_mul(1000);
    millis + (millis / 5).saturating_mul(hash % 1001) / 1000
}

/// What to prefer for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryEscalation {
    /// Nothing special.
    None,
    /// Another live worker.
    OtherWorker,
    /// The next configured model.
    NextModel,
    /// Alone in the fleet.
    Serial,
}

/// After two failures of an owner: another live worker, else the next model, else alone.
/// It orders, it does not ban.
pub fn escalation(
    policy: &Policy,
    task: &Task,
    owner: Option<&str>,
    facts: &Facts,
) -> RetryEscalation {
    let failures = owner.and_then(|owner| task.counters.failures_by_owner.get(owner));
    if failures.copied().unwrap_or(0) < policy.owner_failures {
        RetryEscalation::None
    } else if facts.other_worker {
        RetryEscalation::OtherWorker
    } else if task.model_index + 1 < facts.models {
        RetryEscalation::NextModel
    } else if task.task_type == TaskType::Parallelizable {
        RetryEscalation::Serial
    } else {
        RetryEscalation::None
    }
}

/// Whether this worker should leave the task to another one, if there is one.
pub fn prefers_another(policy: &Policy, task: &Task, worker: &str) -> bool {
    let failures = task.counters.failures_by_owner.get(worker);
    failures.copied().unwrap_or(0) >= policy.owner_failures
}

/// What a caller does after a `CONCURRENCY_CONFLICT`, each time after reading the row
/// again: how long to wait before the n-th retry (counted from 1). None: a blocker.
pub fn conflict_delay_millis(retry: u32) -> Option<u64> {
    [0, 100, 250, 500]
        .get(usize::try_from(retry).ok()?.checked_sub(1)?)
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> TaskId {
        TaskId::parse("t").unwrap()
    }

    #[test]
    fn each_category_is_retried_that_often() {
        use FailureCategory as C;
        let rework = RetryStep::Rework(ReworkCause::Exhausted);
        for (category, retries, end) in [
            (C::Env, 5, rework),
            (C::Setup, 3, RetryStep::Rework(ReworkCause::Setup)),
            (C::Permission, 0, RetryStep::Fail),
            (C::NoChange, 0, RetryStep::Fail),
            (C::Policy, 3, RetryStep::Rework(ReworkCause::Policy)),
            (C::Test, 3, rework),
            (C::Flaky, 6, rework),
            (C::Model, 3, rework),
            (C::ModelLoop, 1, rework),
            (C::Budget, 0, RetryStep::Fail),
        ] {
            let mut counters = TaskCounters::default();
            for n in 0..retries {
                count_failure(&mut counters, category, Some(&n.to_string()), None);
                let next = after_failure(&Policy::default(), &counters, category);
                assert!(matches!(next, RetryStep::Retry { .. }), "{category} {n}");
            }
            count_failure(&mut counters, category, None, None);
            let next = after_failure(&Policy::default(), &counters, category);
            assert_eq!(next, end, "{category}");
        }
    }

    #[test]
    fn ten_runs_in_all_and_four_equal_signatures() {
        let policy = Policy::default();
        let mut counters = TaskCounters::default();
        for n in 1..=9 {
            let category = [FailureCategory::Env, FailureCategory::Flaky][n % 2];
            count_failure(&mut counters, category, None, None);
            let next = after_failure(&policy, &counters, category);
            assert!(matches!(next, RetryStep::Retry { .. }), "{n}");
        }
        count_failure(&mut counters, FailureCategory::Test, None, None);
        let rework = RetryStep::Rework(ReworkCause::Exhausted);
        assert_eq!(
            after_failure(&policy, &counters, FailureCategory::Test),
            rework
        );

        let mut counters = TaskCounters::default();
        for (signature, streak) in [("a", 1), ("a", 2), ("b", 1), ("a", 1), ("a", 2), ("a", 3)] {
            count_failure(&mut counters, FailureCategory::Flaky, Some(signature), None);
            assert_eq!(counters.signature_streak, streak);
            let next = after_failure(&policy, &counters, FailureCategory::Flaky);
            assert!(matches!(next, RetryStep::Retry { .. }));
        }
        count_category(&mut counters, FailureCategory::Env, Some("a"));
        assert_eq!(
            after_failure(&policy, &counters, FailureCategory::Env),
            rework
        );
    }

    #[test]
    fn waits_double_and_end() {
        let policy = Policy::default();
        let secs: Vec<u64> = (1..=7).map(|n| cooldown_secs(&policy, n)).collect();
        assert_eq!(secs, [30, 60, 120, 240, 480, 900, 900]);
        let now = Timestamp(1_000_000);
        for (waits, secs) in [
            (0, 120),
            (1, 240),
            (2, 480),
            (3, 960),
            (4, 1800),
            (90, 1800),
        ] {
            let at = quota_retry_at(&policy, &id(), waits, None, now);
            let millis = at.millis_since(now);
            assert!(
                (secs * 1000..=secs * 1200).contains(&millis),
                "{waits} {millis}"
            );
            assert_eq!(at, quota_retry_at(&policy, &id(), waits, None, now));
        }
        let reset = Some(now.plus_secs(5));
        assert_eq!(Some(quota_retry_at(&policy, &id(), 3, reset, now)), reset);
        let past = quota_retry_at(&policy, &id(), 0, Some(Timestamp(3)), now);
        assert!(past > now);
    }

    #[test]
    fn jitter_differs_between_tasks() {
        let all: std::collections::BTreeSet<u64> = (0..50)
            .map(|n| with_jitter(&TaskId::parse(&format!("t{n}")).unwrap(), 1, 100))
            .collect();
        assert!(all.len() > 40, "{all:?}");
    }

    #[test]
    fn escalation_in_order() {
        let policy = Policy::default();
        for (failures, other_worker, models, index, serial, expected) in [
            (1, false, 1, 0, false, RetryEscalation::None),
            (2, true, 3, 0, false, RetryEscalation::OtherWorker),
            (2, false, 3, 0, false, RetryEscalation::NextModel),
            (3, false, 3, 1, false, RetryEscalation::NextModel),
            (4, false, 3, 2, false, RetryEscalation::Serial),
            (2, false, 0, 0, false, RetryEscalation::Serial),
            (5, false, 1, 0, true, RetryEscalation::None),
        ] {
            let mut task = Task::blank(id());
            task.model_index = index;
            if serial {
                task.task_type = TaskType::Serial;
            }
            task.counters
                .failures_by_owner
                .insert("w".to_owned(), failures);
            let facts = Facts {
                other_worker,
                models,
                ..Facts::default()
            };
            let got = escalation(&policy, &task, Some("w"), &facts);
            assert_eq!(got, expected, "{failures} {other_worker} {models}");
            assert_eq!(prefers_another(&policy, &task, "w"), failures >= 2);
            assert!(!prefers_another(&policy, &task, "v"));
        }
    }

    #[test]
    fn endings_of_a_loop() {
        let rows = [
            ("complete", RunEnding::Success),
            ("stuck", RunEnding::Failed(FailureCategory::Test)),
            ("iteration_limit", RunEnding::Failed(FailureCategory::Model)),
            ("budget", RunEnding::Failed(FailureCategory::Budget)),
            ("timeout", RunEnding::Failed(FailureCategory::Flaky)),
            ("quota", RunEnding::Quota),
            ("runner_error", RunEnding::Failed(FailureCategory::Env)),
            ("interrupted", RunEnding::Lost),
        ];
        for (word, expected) in rows {
            let ending = LoopEnding::parse(word).unwrap();
            assert_eq!(ending.run_ending(), expected, "{word}");
        }
        assert_eq!(LoopEnding::ALL.len(), rows.len());
    }

    #[test]
    fn the_ladder_of_conflicts() {
        let ladder: Vec<Option<u64>> = (0..=6).map(conflict_delay_millis).collect();
        assert_eq!(
            ladder,
            [None, Some(0), Some(100), Some(250), Some(500), None, None]
        );
    }
}
