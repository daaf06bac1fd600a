//! What must hold in the end, looked at in the raw ledger and the model of git alone.

mod outside;

use std::collections::{BTreeMap, BTreeSet};

use runner_ledger::{Ledger, LedgerError, TaskFilter};
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::request::{Dependency, DependencyChain};
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{
    BlockReason, Facts, JudgeVerdict, Policy, Task, TaskId, TaskKind, TaskRunStatus, TaskState,
    Timestamp, recovery,
};

use super::shared::SimShared;

/// Everything that the ledger holds.
pub(super) struct SimLedger {
    pub(super) tasks: Vec<Task>,
    runs: BTreeMap<TaskId, Vec<TaskRun>>,
    events: BTreeMap<TaskId, Vec<TaskEvent>>,
    locks: Vec<String>,
    leases: Vec<String>,
    findings: Vec<String>,
    red_base: Option<runner_ledger::RedBase>,
}

/// All rows.
pub(super) async fn tasks(ledger: &Ledger) -> Result<Vec<Task>, LedgerError> {
    let filter = TaskFilter {
        limit: 10_000,
        ..TaskFilter::default()
    };
    Ok(ledger.tasks(&filter).await?)
}

impl SimLedger {
    pub(super) async fn read(ledger: &Ledger) -> Result<SimLedger, LedgerError> {
        let tasks = tasks(ledger).await?;
        let (mut runs, mut events) = (BTreeMap::new(), BTreeMap::new());
        for task in &tasks {
            runs.insert(task.id.clone(), ledger.runs(&task.id).await?);
            events.insert(task.id.clone(), ledger.events(&task.id).await?);
        }
        let locks = ledger.locks().await?;
        let leases = ledger.leases().await?;
        let check = ledger.check().await?;
        let findings = if check.is_clean() {
            Vec::new()
        } else {
            vec![format!("{check:?}")]
        };
        Ok(SimLedger {
            tasks,
            runs,
            events,
            locks: locks
                .iter()
                .map(|lock| format!("{} of {}", lock.resource, lock.task_id))
                .collect(),
            leases: leases
                .iter()
                .map(|lease| format!("{} of {}", lease.task_id, lease.owner))
                .collect(),
            findings,
            red_base: ledger.red_base().await?,
        })
    }

    /// What does not hold.
    pub(super) fn faults(
        &self,
        shared: &SimShared,
        sleepers: &[usize],
        policy: &Policy,
        now: Timestamp,
    ) -> Vec<String> {
        let mut faults = self.findings.clone();
        for task in &self.tasks {
            let red = self.red_base.as_ref();
            if !task.state.is_terminal() && !waits_for_others(task, &self.tasks, red, policy, now) {
                faults.push(format!(
                    "{} is {}({}) and waits for nobody",
                    task.id,
                    task.state,
                    task.blocked_on().map_or("-", BlockReason::as_str)
                ));
            }
        }
        faults.extend(
            self.locks
                .iter()
                .map(|lock| format!("a lock is left: {lock}")),
        );
        faults.extend(
            self.leases
                .iter()
                .map(|lease| format!("a lease is left: {lease}")),
        );
        self.merges(shared, &mut faults);
        self.own_judges(shared, &mut faults);
        self.thrown_away(&mut faults);
        self.issues(shared, &mut faults);
        self.pulls(shared, &mut faults);
        self.plans(shared, &mut faults);
        faults.extend(shared.overlaps(sleepers));
        faults
    }

    /// The base holds what is done, once, and nothing else.
    fn merges(&self, shared: &SimShared, faults: &mut Vec<String>) {
        let merged = shared.repo.merged_results();
        let reachable = shared.repo.reachable(&shared.repo.base);
        let mut by_lineage: BTreeMap<&TaskId, u32> = BTreeMap::new();
        for task in &self.tasks {
            let count = merged.get(&task.id).copied().unwrap_or(0);
            let count = count + self.merged_heads(task, &reachable);
            *by_lineage.entry(&task.lineage.root).or_insert(0) += count;
            let due = u32::from(task.state == TaskState::Done && task.needs_merge());
            if count != due {
                faults.push(format!(
                    "{} is {} and its result is in the base {count} times",
                    task.id, task.state
                ));
            }
        }
        for (root, count) in by_lineage {
            if count > 1 {
                faults.push(format!(
                    "the lineage of {root} is in the base {count} times"
                ));
            }
        }
        let known: BTreeSet<&TaskId> = self.tasks.iter().map(|task| &task.id).collect();
        for task in merged.keys().filter(|id| !known.contains(id)) {
            faults.push(format!(
                "the base holds a result of {task}, which nobody knows"
            ));
        }
        for id in shared.pushed.iter().filter(|id| !reachable.contains(*id)) {
            faults.push(format!("{id} was pushed and is not in the base"));
        }
        for id in reachable {
            let Some(commit) = shared.repo.get(&id) else {
                continue;
            };
            if let Some((task, run_id)) = &commit.trailer
                && !self.succeeded(task, run_id, &id)
            {
                faults.push(format!(
                    "the base holds {id} of run {run_id}, whose result it is not"
                ));
            }
            let is_merge = commit.is_merge;
            if is_merge && !shared.green.contains(&id) {
                faults.push(format!(
                    "{id} is in the base, and its guard was never green"
                ));
            }
        }
    }

    /// Whether the ledger knows the commit as the result of that run.
    fn succeeded(&self, task: &TaskId, run_id: &str, commit: &str) -> bool {
        let mut runs = self.runs.get(task).into_iter().flatten();
        runs.any(|run| run.id == run_id && run.result.as_deref() == Some(commit))
    }

    /// Nothing that changed its own judge is in the base without a person.
    fn own_judges(&self, shared: &SimShared, faults: &mut Vec<String>) {
        let merged = |task: &&Task| {
            let behaviour = shared.script.behaviours.get(&task.lineage.root);
            let own_judge = behaviour.is_some_and(|behaviour| behaviour.own_judge);
            let is_fix = task.fixes_base() || task.kind == TaskKind::Review;
            own_judge && !is_fix && task.state == TaskState::Done && task.needs_merge()
        };
        for task in self.tasks.iter().filter(merged) {
            let run = self.runs.get(&task.id).and_then(|runs| runs.last());
            if task.accepted_judge.as_ref() != run.map(|run| &run.id) {
                faults.push(format!(
                    "{} changed its own judge, is merged, and nobody accepted that",
                    task.id
                ));
            }
        }
    }

    /// Every event, by task.
    pub(super) fn history(&self) -> Vec<String> {
        let events = self.events.values().flatten();
        events
            .map(|event| format!("{} {}", event.task_id, event.reason))
            .collect()
    }

    /// No result is thrown away before somebody judged it.
    fn thrown_away(&self, faults: &mut Vec<String>) {
        for task in self.tasks.iter().filter(|task| task.needs_judge()) {
            let runs = self.runs.get(&task.id).map_or(&[][..], Vec::as_slice);
            let by_person = self.events.get(&task.id).is_some_and(|events| {
                let canceled = |event: &TaskEvent| event.reason == "canceled";
                events.iter().any(canceled)
            });
            for (at, run) in runs.iter().enumerate() {
                let over = task.state.is_terminal() || at + 1 < runs.len();
                let unjudged = run.status == TaskRunStatus::Success && run.verdict.is_none();
                if over && unjudged && !by_person {
                    faults.push(format!("{} succeeded and nobody judged it", run.id));
                }
                let approved = run.verdict == Some(JudgeVerdict::Approve);
                if approved && at + 1 < runs.len() {
                    faults.push(format!("{} was approved and worked on again", run.id));
                }
            }
        }
    }
}

/// Whether nobody in the fleet has anything to do for the task.
pub(super) fn waits_for_others(
    task: &Task,
    all: &[Task],
    red: Option<&runner_ledger::RedBase>,
    policy: &Policy,
    now: Timestamp,
) -> bool {
    let by_id = |id: &TaskId| all.iter().find(|one| one.id == *id);
    let end = |id: &TaskId| {
        let mut task = by_id(id)?;
        while let Some(next) = task.superseded_by.as_ref().and_then(by_id) {
            task = next;
        }
        Some(task)
    };
    let dependencies = task.dependencies.iter().filter_map(|id| {
        let chain = match end(id)?.state {
            TaskState::Done => DependencyChain::Done(now),
            TaskState::Failed | TaskState::Canceled => DependencyChain::Dead,
            _ => DependencyChain::Alive,
        };
        Some(Dependency {
            id: id.clone(),
            chain,
        })
    });
    let facts = Facts {
        dependencies: dependencies.collect(),
        ..Facts::default()
    };
    if task.blocker.is_some() && recovery::is_parked(policy, task, &facts, now) {
        // A grace that ends by itself is no end.
        return task.blocked_on() != Some(BlockReason::DependencyNotMet);
    }
    // Behind one that waits for a person, everybody does.
    let waits_behind = |id: &TaskId| {
        end(id).is_some_and(|other| {
            !other.state.is_terminal() && waits_for_others(other, all, red, policy, now)
        })
    };
    if task.state == TaskState::Todo && task.dependencies.iter().any(waits_behind) {
        return true;
    }
    // A red base that nobody fixes any longer: a person must, and nothing begins before.
    let stuck = red
        .and_then(|red| end(&red.task))
        .is_some_and(|base_fix| matches!(base_fix.state, TaskState::Failed | TaskState::Canceled));
    let is_held =
        task.state == TaskState::Todo || task.blocked_on() == Some(BlockReason::AwaitingJudge);
    stuck && is_held
}
