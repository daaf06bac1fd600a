//! What must hold of issues, pull requests and plans.

use std::collections::BTreeSet;

use runner_core::config::FleetConfig;
use runner_lifecycle::{BlockReason, Task, TaskId, TaskKind, TaskState, Timestamp};

use super::super::outside::SOURCE;
use super::super::script::pull_id;
use super::super::shared::SimShared;
use super::SimLedger;
use crate::rules::draft::TaskDefaults;
use crate::rules::issue::{SourceIssue, import};

impl SimLedger {
    /// Every issue that can be one is a task, once, and is led on by what it says.
    pub(super) fn issues(&self, shared: &SimShared, faults: &mut Vec<String>) {
        let issues = shared.outside.issues();
        let known: BTreeSet<TaskId> = self.tasks.iter().map(|task| task.id.clone()).collect();
        let defaults = TaskDefaults::from(&FleetConfig::default());
        for left in import(SOURCE, &issues, &known, &defaults).tasks {
            faults.push(format!("{} waits outside and is no task", left.id));
        }
        for issue in &issues {
            let key = SourceIssue::source_of(SOURCE, issue.number);
            let is_first = |task: &&Task| task.source.as_ref() == Some(&key);
            let is_first = |task: &&Task| is_first(task) && task.rework_of.is_none();
            let tasks: Vec<&Task> = self.tasks.iter().filter(is_first).collect();
            if tasks.len() > 1 {
                faults.push(format!("{key} became {} tasks", tasks.len()));
            }
            let facts = issue.facts(SOURCE, &defaults);
            let told = facts.closed || facts.role.is_some();
            let waits = |task: &&&Task| task.blocked_on() == Some(BlockReason::IssueLinking);
            if told && tasks.iter().any(|task| waits(&task)) {
                faults.push(format!("{key} says how to go on, and nobody does"));
            }
        }
    }

    /// Every open pull request is judged as it is.
    pub(super) fn pulls(&self, shared: &SimShared, faults: &mut Vec<String>) {
        for (number, pull) in &shared.outside.pulls {
            let id = pull_id(*number);
            let Some(task) = self.tasks.iter().find(|task| task.id == id) else {
                if !pull.closed {
                    faults.push(format!("{id} waits outside and is no task"));
                }
                continue;
            };
            let ended = task.updated_at;
            let mut heads = pull.heads.iter().rev();
            let head = heads.find(|(since, _)| *since < ended);
            let head = head.map(|(_, head)| head);
            let runs = self.runs.get(&id).into_iter().flatten();
            let judged = runs.last().and_then(|run| run.result.as_ref());
            if task.state == TaskState::Failed && !pull.closed && head != judged {
                faults.push(format!("{id} was given to a worker, and has another head"));
            }
        }
    }

    /// How often the base holds a head of the pull request that a review is of.
    pub(super) fn merged_heads(&self, task: &Task, reachable: &BTreeSet<String>) -> u32 {
        if task.kind != TaskKind::Review {
            return 0;
        }
        let runs = self.runs.get(&task.id).into_iter().flatten();
        let heads: BTreeSet<&String> = runs.filter_map(|run| run.result.as_ref()).collect();
        let merged = heads.iter().filter(|head| reachable.contains(**head));
        u32::try_from(merged.count()).unwrap_or(u32::MAX)
    }

    /// Nobody plans while something is to be done or goes on.
    pub(super) fn plans(&self, shared: &SimShared, faults: &mut Vec<String>) {
        for at in &shared.planned_at {
            let open = self.tasks.iter().find(|task| self.was_open(&task.id, *at));
            if let Some(task) = open {
                faults.push(format!("a plan was asked for while {} was open", task.id));
            }
        }
    }

    /// Whether a task was todo or in progress right before and right after that time.
    fn was_open(&self, id: &TaskId, at: Timestamp) -> bool {
        let state = |until: Timestamp| {
            let mut events = self.events.get(id)?.iter().rev();
            let last = events.find(|event| event.created_at <= until);
            last.map(|event| event.to_state)
        };
        let is_open = |state| matches!(state, Some(TaskState::Todo | TaskState::InProgress));
        is_open(state(Timestamp(at.0 - 1))) && is_open(state(at))
    }
}
