//! `runner fleet status`: every task with why it is where it is, at a glance.

use std::collections::BTreeMap;

use runner_fleet::explain::{FleetSnapshot, TaskExplanation};
use runner_ledger::{FleetAgent, Ledger, TaskFilter};
use runner_lifecycle::{Task, TaskId, TaskState};
use serde_json::json;

use crate::commands::Exit;
use crate::commands::task::{TaskEnd, show};
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// How many rows are read in one go.
const PAGE: u32 = 500;

pub(super) async fn run(ledger: &Ledger, all: bool, out: &mut OutputGate) -> TaskEnd {
    let snapshot = FleetSnapshot::of(ledger).await?;
    let tasks = everything(ledger).await?;
    let mut counts: BTreeMap<TaskState, usize> = BTreeMap::new();
    for task in &tasks {
        *counts.entry(task.state).or_default() += 1;
    }
    let mut shown = Vec::new();
    for task in tasks.iter().filter(|task| all || !task.state.is_terminal()) {
        shown.push((task, snapshot.explain(task).await?));
    }
    if out.json {
        let agents: Vec<_> = snapshot
            .agents
            .iter()
            .map(|agent| agent_value(agent, &snapshot))
            .collect();
        let tasks: Vec<_> = shown
            .iter()
            .map(|(task, explained)| json!({"task": task, "why": explained}))
            .collect();
        let counts: BTreeMap<&str, usize> = counts.iter().map(|(s, n)| (s.as_str(), *n)).collect();
        out.object(json!({
            "paused": snapshot.paused, "counts": counts, "agents": agents, "tasks": tasks,
            "blockers": runner_lifecycle::decide::blockers(
                &shown.iter().map(|(task, _)| (*task).clone()).collect::<Vec<_>>()),
        }));
        return Ok(Exit::Success);
    }
    print(&snapshot, &counts, &shown, out);
    Ok(Exit::Success)
}

pub(super) async fn everything(ledger: &Ledger) -> Result<Vec<Task>, runner_ledger::StoreError> {
    let mut tasks: Vec<Task> = Vec::new();
    loop {
        let after: Option<TaskId> = tasks.last().map(|task| task.id.clone());
        let page = ledger
            .tasks(&TaskFilter {
                after,
                limit: PAGE,
                ..TaskFilter::default()
            })
            .await?;
        let last = page.len() < PAGE as usize;
        tasks.extend(page);
        if last {
            return Ok(tasks);
        }
    }
}

fn agent_value(agent: &FleetAgent, snapshot: &FleetSnapshot) -> serde_json::Value {
    json!({
        "name": agent.name, "role": agent.role, "host": agent.host, "account": agent.account,
        "offline": agent.is_offline(snapshot.now()), "works_on": agent.works_on,
        "last_seen_at": agent.last_seen_at,
    })
}

fn print(
    snapshot: &FleetSnapshot,
    counts: &BTreeMap<TaskState, usize>,
    shown: &[(&Task, TaskExplanation)],
    out: &mut OutputGate,
) {
    if snapshot.paused {
        let word = out.paint.paint(TextTone::Bad, "paused");
        out.data(&format!(
            "{word}: nothing new starts; `runner fleet resume` lets it go on"
        ));
    }
    if counts.is_empty() {
        out.say(
            "no tasks yet; `runner fleet up` plans and starts, `runner task add` makes one by hand",
        );
        return;
    }
    let parts: Vec<String> = TaskState::ALL
        .iter()
        .filter_map(|state| {
            let n = counts.get(state)?;
            let word = out.paint.paint(show::tone(*state), state.as_str());
            Some(format!("{n} {word}"))
        })
        .collect();
    out.data(&parts.join(", "));
    let width = shown.iter().map(|(task, _)| task.id.as_str().len()).max();
    for (task, explained) in shown {
        let until = explained
            .until
            .map_or(String::new(), |at| format!(", until {}", show::time(at)));
        let word = out
            .paint
            .paint(show::tone(task.state), format!("{:<11}", task.state));
        out.data(&format!(
            "  {:<width$}  {word}  {}{until}",
            task.id.as_str(),
            style::one_line(&explained.words, 100),
            width = width.unwrap_or(0),
        ));
    }
    let idle = |agent: &FleetAgent| {
        if agent.is_offline(snapshot.now()) {
            "away".to_owned()
        } else {
            let works = agent.works_on.as_ref();
            works.map_or("free".to_owned(), |task| format!("on {task}"))
        }
    };
    for agent in &snapshot.agents {
        out.data(&format!(
            "  {} ({}): {}",
            style::one_line(&agent.name, 40),
            style::one_line(&agent.role, 20),
            idle(agent)
        ));
    }
}
