//! The order in which ready tasks start, and what lanes make of it.

use crate::row::{Task, TaskId};
use crate::time::Timestamp;
use crate::words::{Lane, TaskPriority, TaskRisk};

/// A quarter of an hour is half a point of age.
const MILLIS_PER_HALF_POINT: i64 = 15 * 60 * 1000;
const MILLIS_PER_HOUR: f64 = 3_600_000.0;

/// The points of a task that do not grow with its age, twice over so that they are
/// whole: `10 · priority × risk`, and 5 if its timebox is half an hour or less.
fn doubled_points(task: &Task) -> i64 {
    let priority = match task.priority {
        TaskPriority::Low => 1,
        TaskPriority::Normal => 4,
        TaskPriority::High => 6,
        TaskPriority::Critical => 9,
    };
    let doubled_risk = match task.risk {
        TaskRisk::Low => 3,
        TaskRisk::Medium => 2,
        TaskRisk::High => 1,
    };
    let short = if task.timebox_seconds <= 30 * 60 {
        10
    } else {
        0
    };
    10 * priority * doubled_risk + short
}

/// `10 · priority × risk + 2 · age in hours + 5 for a short timebox`, for people.
#[allow(clippy::cast_precision_loss)] // for people
pub fn score(task: &Task, now: Timestamp) -> f64 {
    let age_hours = now.millis_since(task.created_at) as f64 / MILLIS_PER_HOUR;
    doubled_points(task) as f64 / 2.0 + 2.0 * age_hours
}

/// The same order without the clock: lower comes first. Every task ages alike, so the
/// points are an earlier creation, and the order of two tasks never changes.
pub fn rank(task: &Task) -> i64 {
    let points = doubled_points(task);
    task.created_at.0 - points * MILLIS_PER_HALF_POINT
}

/// What tasks are sorted by: score, then creation, then id.
pub fn order_key(task: &Task) -> (i64, Timestamp, &TaskId) {
    (rank(task), task.created_at, &task.id)
}

/// How many tasks of a lane may run at once; none: as many as there are slots.
pub const fn lane_limit(lane: Lane) -> Option<usize> {
    match lane {
        Lane::Feature => None,
        Lane::ConflictRecovery => Some(2),
        Lane::Docser => Some(1),
    }
}

/// Which of the ready tasks starts next: their lanes in order, best first, the lanes of
/// the running ones, and how many slots there are. The index of the chosen one.
///
/// One slot is kept for features and lent when no feature is ready. Where the limits
/// leave nothing to start, the best one starts anyway.
pub fn pick(ready: &[Lane], running: &[Lane], slots: usize) -> Option<usize> {
    if ready.is_empty() || running.len() >= slots {
        return None;
    }
    let of_lane = |lane| running.iter().filter(|one| **one == lane).count();
    let kept =
        slots - running.len() == 1 && of_lane(Lane::Feature) == 0 && ready.contains(&Lane::Feature);
    let allowed = ready.iter().position(|lane| {
        let below = lane_limit(*lane).is_none_or(|limit| of_lane(*lane) < limit);
        below && (*lane == Lane::Feature || !kept)
    });
    Some(allowed.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(priority: TaskPriority, risk: TaskRisk, timebox_minutes: u32, created_at: i64) -> Task {
        Task {
            priority,
            risk,
            timebox_seconds: timebox_minutes * 60,
            created_at: Timestamp(created_at),
            ..Task::blank(TaskId::parse("t").unwrap())
        }
    }

    #[test]
    fn scores() {
        for (priority, risk, timebox, age_hours, expected) in [
            (TaskPriority::Low, TaskRisk::Medium, 60, 0, 10.0),
            (TaskPriority::Normal, TaskRisk::Medium, 60, 0, 40.0),
            (TaskPriority::High, TaskRisk::Medium, 60, 0, 60.0),
            (TaskPriority::Critical, TaskRisk::Medium, 60, 0, 90.0),
            (TaskPriority::Normal, TaskRisk::Low, 60, 0, 60.0),
            (TaskPriority::Normal, TaskRisk::High, 60, 0, 20.0),
            (TaskPriority::Normal, TaskRisk::Medium, 30, 0, 45.0),
            (TaskPriority::Normal, TaskRisk::Medium, 31, 0, 40.0),
            (TaskPriority::Normal, TaskRisk::Medium, 60, 100, 240.0),
        ] {
            let task = task(priority, risk, timebox, 0);
            let got = score(&task, Timestamp(age_hours * 3_600_000));
            assert!((got - expected).abs() < 1e-9, "{priority} {risk}: {got}");
        }
    }

    fn any_task() -> impl Strategy<Value = Task> {
        let words = (0..TaskPriority::ALL.len(), 0..TaskRisk::ALL.len());
        (words, 10..60u32, 0..1_000_000_000i64).prop_map(|((p, r), timebox, created)| {
            task(TaskPriority::ALL[p], TaskRisk::ALL[r], timebox, created)
        })
    }

    proptest! {
        #[test]
        fn the_rank_is_the_order_of_scores(one in any_task(), other in any_task()) {
            let now = Timestamp(1_000_000_000);
            let difference = score(&one, now) - score(&other, now);
            if difference.abs() > 1e-6 {
                prop_assert_eq!(rank(&one) < rank(&other), difference > 0.0);
            }
        }
    }

    #[test]
    fn lanes() {
        use Lane::{ConflictRecovery as C, Docser as D, Feature as F};
        // Ready, running, slots, the chosen one.
        type Case<'c> = (&'c [Lane], &'c [Lane], usize, Option<usize>);
        let rows: &[Case<'_>] = &[
            (&[F, C], &[], 4, Some(0)),
            (&[], &[], 4, None),
            (&[F], &[F, F], 2, None),
            // Limits of lanes.
            (&[C, F], &[C, C], 4, Some(1)),
            (&[D, F], &[D], 4, Some(1)),
            // The last slot is kept for a feature, unless one runs or none is ready.
            (&[C, F], &[C], 2, Some(1)),
            (&[C, F], &[F], 2, Some(0)),
            (&[C], &[C], 2, Some(0)),
            // Limits that would leave nothing to start do not hold.
            (&[D], &[D], 4, Some(0)),
            (&[C, D], &[C, C, D], 5, Some(0)),
        ];
        for (at, (ready, running, slots, expected)) in rows.iter().enumerate() {
            assert_eq!(pick(ready, running, *slots), *expected, "row {at}");
        }
    }
}
