//! Repairs: what the table of contradictions says, as one decision.

use serde_json::{Map, json};

use super::draft::Draft;
use super::work::lose;
use super::{Answer, Decision, LeaseChange, LockChange, Refusal};
use crate::policy::PolicyRule;
use crate::reconcile::{Inconsistency, InconsistencyRepair};
use crate::run::TaskRun;
use crate::words::{TaskRunStatus, TaskState};

/// The event that a repair leaves.
const EVENT: &str = "ledger_repaired";

/// Mends what the facts say about this very task. Rows are made anew from their events
/// before, and what a person must look at stays.
pub(super) fn repair(mut draft: Draft<'_>) -> Result<Decision, Refusal> {
    let own: Vec<&Inconsistency> = draft
        .facts
        .inconsistencies
        .iter()
        .filter(|one| one.task_id == draft.row.id)
        .collect();
    let wants = |repair: InconsistencyRepair| own.iter().any(|one| one.kind.repair() == repair);
    let names: Vec<&str> = own.iter().map(|one| one.kind.as_str()).collect();
    let details = Map::from_iter([("findings".to_owned(), json!(names))]);

    let time_out =
        wants(InconsistencyRepair::TimeOut) || wants(InconsistencyRepair::TimeOutYounger);
    if time_out && draft.policy.enforces(PolicyRule::RepairOfWork) {
        close_runs(&mut draft, None);
        let why = "the ledger contradicted itself about this work";
        lose(&mut draft, EVENT, why, details, true)?;
        return Ok(draft.moved());
    }
    let release = wants(InconsistencyRepair::ReleaseLocks);
    let end = wants(InconsistencyRepair::EndLease);
    let close = wants(InconsistencyRepair::CloseRuns);
    if !(release || end || close) {
        return Ok(draft.decided(Answer::Unchanged));
    }
    if release {
        draft.locks = LockChange::Release;
    }
    if end {
        draft.lease = LeaseChange::End;
    }
    if close {
        let kept = kept_run(&draft);
        close_runs(&mut draft, kept.as_deref());
    }
    draft.note_beside(EVENT, details);
    Ok(draft.moved())
}

/// The run that somebody works on: that of the lease, else the newest.
fn kept_run(draft: &Draft<'_>) -> Option<String> {
    if draft.row.state != TaskState::InProgress {
        return None;
    }
    let running = &draft.facts.running;
    let leased = draft.facts.lease.as_ref();
    let leased = leased.and_then(|lease| running.iter().find(|run| run.id == lease.run_id));
    leased.or(running.last()).map(|run| run.id.clone())
}

/// Ends every run that says it is running, but for one. The newest run comes last, as in
/// every decision, also if it does not change.
fn close_runs(draft: &mut Draft<'_>, kept: Option<&str>) {
    let newest = draft.facts.run.as_ref().map(|run| run.id.clone());
    let now = draft.now;
    let close = |run: &mut TaskRun| {
        run.status = TaskRunStatus::Failed;
        run.ended_at = Some(now);
    };
    for run in &draft.facts.running {
        if Some(run.id.as_str()) == kept {
            continue;
        }
        if Some(&run.id) == newest.as_ref() {
            draft.edit_run(close);
        } else {
            let mut run = run.clone();
            close(&mut run);
            draft.closed.push(run);
        }
    }
    draft.edit_run(|_| ());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::decide;
    use crate::policy::Policy;
    use crate::reconcile::InconsistencyKind as K;
    use crate::request::{Facts, Request, TaskCall};
    use crate::row::{Task, TaskId};
    use crate::time::Timestamp;
    use crate::words::BlockReason;

    fn id(text: &str) -> TaskId {
        TaskId::parse(text).unwrap()
    }

    fn task(state: TaskState) -> Task {
        let mut task = Task::blank(id("t"));
        task.version = 5;
        task.state = state;
        if state == TaskState::Blocked {
            task.blocker =
                Some(task.blocker_of(BlockReason::LedgerInconsistent, "x", Timestamp(0)));
        }
        task
    }

    fn run(number: u32) -> TaskRun {
        TaskRun::begin(&id("t"), number, "w", 1, Timestamp(0))
    }

    fn decided(task: &Task, kind: K, about: &str, running: &[u32]) -> Decision {
        let running: Vec<TaskRun> = running.iter().map(|number| run(*number)).collect();
        let facts = Facts {
            inconsistencies: vec![Inconsistency {
                kind,
                task_id: id(about),
                other: None,
                words: "x".to_owned(),
            }],
            run: running.last().cloned(),
            running,
            ..Facts::default()
        };
        let call = TaskCall {
            actor: "cycle".to_owned(),
            expected_version: Some(5),
            request: Request::Repair,
        };
        decide(&Policy::default(), Some(task), &call, &facts, Timestamp(9)).unwrap()
    }

    #[test]
    fn what_each_repair_writes() {
        use LeaseChange::{End, Keep};
        use LockChange::Release;
        let kept = LockChange::Keep;
        for (kind, from, to, locks, lease) in [
            (
                K::LockWithoutWork,
                TaskState::Blocked,
                TaskState::Blocked,
                Release,
                Keep,
            ),
            (
                K::LockWithoutWork,
                TaskState::Done,
                TaskState::Done,
                Release,
                Keep,
            ),
            (
                K::LeaseWithoutWork,
                TaskState::Todo,
                TaskState::Todo,
                kept,
                End,
            ),
            (
                K::OverlappingLocks,
                TaskState::InProgress,
                TaskState::Todo,
                Release,
                End,
            ),
            (
                K::WorkWithoutLock,
                TaskState::InProgress,
                TaskState::Todo,
                Release,
                End,
            ),
            (
                K::WorkWithoutLease,
                TaskState::InProgress,
                TaskState::Todo,
                Release,
                End,
            ),
            (
                K::LeaseNotOfOwner,
                TaskState::InProgress,
                TaskState::Todo,
                Release,
                End,
            ),
        ] {
            let before = task(from);
            let decision = decided(&before, kind, "t", &[]);
            assert_eq!(decision.task.state, to, "{kind}");
            assert_eq!((decision.locks, decision.lease), (locks, lease), "{kind}");
            let first = &decision.events[0];
            assert_eq!(first.reason, EVENT);
            assert_eq!(first.details["findings"], json!([kind.as_str()]));
            let mut rebuilt = before;
            for event in &decision.events {
                crate::event::extend(&mut rebuilt, event).unwrap();
            }
            assert_eq!(rebuilt, decision.task, "{kind}");
        }
    }

    #[test]
    fn runs_are_closed_but_for_the_one_that_is_worked_on() {
        let statuses = |decision: &Decision| -> Vec<(u32, TaskRunStatus)> {
            let runs = decision.runs.iter();
            runs.map(|run| (run.number, run.status)).collect()
        };
        let (failed, running) = (TaskRunStatus::Failed, TaskRunStatus::Running);
        let two = decided(
            &task(TaskState::InProgress),
            K::TwoRunningRuns,
            "t",
            &[1, 2],
        );
        assert_eq!(statuses(&two), [(1, failed), (2, running)]);
        assert_eq!(two.task.state, TaskState::InProgress);
        let none = decided(&task(TaskState::Todo), K::RunWithoutWork, "t", &[1, 2]);
        assert_eq!(statuses(&none), [(1, failed), (2, failed)]);
    }

    #[test]
    fn what_is_about_others_or_for_a_person_stays() {
        for (kind, about) in [
            (K::LockWithoutWork, "other"),
            (K::BrokenLineage, "t"),
            (K::StateNotLastEvent, "t"),
        ] {
            let decision = decided(&task(TaskState::Todo), kind, about, &[]);
            assert!(decision.is_empty(), "{kind}");
            assert_eq!(decision.answer, Answer::Unchanged);
        }
    }
}
