//! Successors: which kind follows, and what it inherits.

use crate::decide::{Created, created};
use crate::policy::{Policy, PolicyRule};
use crate::row::{Lineage, Task, TaskId};
use crate::time::Timestamp;
use crate::words::{Lane, ReworkCause, TaskKind, TaskOrigin, TaskType};

/// The kind of successor that the cause asks for, or none where a limit is reached.
pub fn kind(policy: &Policy, task: &Task, cause: ReworkCause) -> Option<TaskOrigin> {
    let lineage = &task.lineage;
    if !policy.enforces(PolicyRule::LineageLimit) {
        return Some(TaskOrigin::Rework);
    }
    if lineage.tasks >= policy.max_lineage {
        return None;
    }
    let rework = (task.rework_depth < policy.max_rework_depth).then_some(TaskOrigin::Rework);
    match cause {
        ReworkCause::Verdict if lineage.auto_fixes < policy.max_auto_fixes => {
            Some(TaskOrigin::AutoFix)
        }
        ReworkCause::Conflict if lineage.conflict_fixes < policy.max_conflict_fixes => {
            Some(TaskOrigin::AutoFixConflict)
        }
        ReworkCause::Conflict => {
            (lineage.recreations < policy.max_recreations).then_some(TaskOrigin::Recreate)
        }
        ReworkCause::Verdict
        | ReworkCause::Setup
        | ReworkCause::Policy
        | ReworkCause::Exhausted
        | ReworkCause::Unjudged => rework,
    }
}

/// The successor itself. It inherits dependencies, scope, acceptance, priority and
/// findings; an `[AutoFix]` starts from the parent's result, the others from the base.
pub(crate) fn create(
    parent: &Task,
    origin: TaskOrigin,
    id: &TaskId,
    result: Option<String>,
    actor: &str,
    now: Timestamp,
) -> Created {
    let one = |kind| u32::from(origin == kind);
    let lineage = if origin == TaskOrigin::Retry {
        // A person began anew: the limits do too.
        Lineage::begin(id.clone())
    } else {
        Lineage {
            root: parent.lineage.root.clone(),
            tasks: parent.lineage.tasks + 1,
            auto_fixes: parent.lineage.auto_fixes + one(TaskOrigin::AutoFix),
            conflict_fixes: parent.lineage.conflict_fixes + one(TaskOrigin::AutoFixConflict),
            recreations: parent.lineage.recreations + one(TaskOrigin::Recreate),
        }
    };
    let conflict = matches!(origin, TaskOrigin::AutoFixConflict | TaskOrigin::Recreate);
    // A pull request is judged by a review; what fixes it is work.
    let review = parent.kind == TaskKind::Review;
    let row = Task {
        title: title(parent, origin),
        goal: parent.goal.clone(),
        kind: if review { TaskKind::Code } else { parent.kind },
        role: if parent.role.is_empty() {
            "worker".to_owned()
        } else {
            parent.role.clone()
        },
        lane: if conflict {
            Lane::ConflictRecovery
        } else {
            parent.lane
        },
        origin,
        source: parent.source.clone(),
        priority: parent.priority,
        risk: parent.risk,
        task_type: TaskType::Parallelizable,
        dependencies: parent.dependencies.clone(),
        lock_scope: parent.lock_scope.clone(),
        forbidden_scope: parent.forbidden_scope.clone(),
        acceptance: parent.acceptance.clone(),
        commands: parent.commands.clone(),
        expects_change: parent.expects_change,
        context: parent.context.clone(),
        remarks: parent.remarks.clone(),
        timeout_seconds: parent.timeout_seconds,
        heartbeat_interval_seconds: parent.heartbeat_interval_seconds,
        timebox_seconds: parent.timebox_seconds,
        start_from: result.filter(|_| origin == TaskOrigin::AutoFix),
        lineage,
        rework_of: Some(parent.id.clone()),
        rework_depth: match origin {
            TaskOrigin::Retry => 0,
            _ => parent.rework_depth + one(TaskOrigin::Rework),
        },
        created_at: now,
        updated_at: now,
        ..Task::blank(id.clone())
    };
    let (task, events) = created(row, actor, "successor_created", now);
    Created { task, events }
}

/// The parent's title with one prefix in front, never two.
fn title(parent: &Task, origin: TaskOrigin) -> String {
    let mut plain = parent.title.as_str();
    for known in TaskOrigin::ALL
        .iter()
        .filter_map(|origin| origin.title_prefix())
    {
        plain = plain.strip_prefix(known).unwrap_or(plain).trim_start();
    }
    match origin.title_prefix() {
        Some(prefix) => format!("{prefix} {plain}"),
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::TaskPriority;

    fn parent() -> Task {
        let id = TaskId::parse("t").unwrap();
        Task {
            title: "[AutoFix] mend it".to_owned(),
            priority: TaskPriority::High,
            ..Task::blank(id)
        }
    }

    #[test]
    fn the_ladder_of_each_cause() {
        type Case = (ReworkCause, [u32; 5], Option<TaskOrigin>);
        let policy = Policy::default();
        let rows: [Case; 12] = [
            // tasks, auto fixes, conflict fixes, recreations, depth
            (
                ReworkCause::Verdict,
                [1, 0, 0, 0, 0],
                Some(TaskOrigin::AutoFix),
            ),
            (
                ReworkCause::Verdict,
                [3, 2, 0, 0, 0],
                Some(TaskOrigin::AutoFix),
            ),
            (
                ReworkCause::Verdict,
                [4, 3, 0, 0, 0],
                Some(TaskOrigin::Rework),
            ),
            (ReworkCause::Verdict, [6, 3, 0, 0, 2], None),
            (
                ReworkCause::Conflict,
                [1, 0, 0, 0, 0],
                Some(TaskOrigin::AutoFixConflict),
            ),
            (
                ReworkCause::Conflict,
                [4, 0, 3, 0, 0],
                Some(TaskOrigin::Recreate),
            ),
            (ReworkCause::Conflict, [5, 0, 3, 1, 0], None),
            (
                ReworkCause::Exhausted,
                [1, 0, 0, 0, 0],
                Some(TaskOrigin::Rework),
            ),
            (ReworkCause::Exhausted, [3, 0, 0, 0, 2], None),
            (
                ReworkCause::Unjudged,
                [1, 0, 0, 0, 1],
                Some(TaskOrigin::Rework),
            ),
            (ReworkCause::Verdict, [8, 0, 0, 0, 0], None),
            (
                ReworkCause::Setup,
                [7, 0, 0, 0, 0],
                Some(TaskOrigin::Rework),
            ),
        ];
        for (cause, counts, expected) in rows {
            let [tasks, auto_fixes, conflict_fixes, recreations, depth] = counts;
            let mut task = parent();
            task.lineage = Lineage {
                root: task.id.clone(),
                tasks,
                auto_fixes,
                conflict_fixes,
                recreations,
            };
            task.rework_depth = depth;
            assert_eq!(
                kind(&policy, &task, cause),
                expected,
                "{cause} {tasks} {depth}"
            );
        }
    }

    #[test]
    fn what_is_inherited() {
        let id = TaskId::parse("u").unwrap();
        for (origin, start, depth, lane) in [
            (TaskOrigin::AutoFix, Some("c1"), 0, Lane::Feature),
            (TaskOrigin::AutoFixConflict, None, 0, Lane::ConflictRecovery),
            (TaskOrigin::Recreate, None, 0, Lane::ConflictRecovery),
            (TaskOrigin::Rework, None, 1, Lane::Feature),
        ] {
            let made = create(
                &parent(),
                origin,
                &id,
                Some("c1".to_owned()),
                "cycle",
                Timestamp(7),
            );
            let row = made.task;
            assert_eq!(row.start_from.as_deref(), start, "{origin}");
            assert_eq!((row.rework_depth, row.lane), (depth, lane));
            assert_eq!((row.priority, row.lineage.tasks), (TaskPriority::High, 2));
            assert_eq!(row.lineage.root.as_str(), "t");
            assert_eq!(row.rework_of.unwrap().as_str(), "t");
            assert_eq!(
                row.title,
                format!("{} mend it", origin.title_prefix().unwrap())
            );
            assert_eq!(made.events.len(), 1);
            assert_eq!(made.events[0].from_state, None);
        }
    }
}
