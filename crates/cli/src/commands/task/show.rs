//! Tasks for people: lines, a timeline, and why nothing happens.

use runner_fleet::explain::{FleetSnapshot, TaskExplanation};
use runner_ledger::{Ledger, TaskFilter};
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::lock::Resource;
use runner_lifecycle::row::FieldChange;
use runner_lifecycle::{Refusal, RefusalCode, Task, TaskId, TaskState, Timestamp};
use serde_json::{Value, json};

use super::TaskEnd;
use crate::commands::Exit;
use crate::commands::ledger::LedgerCommandError;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

pub(super) fn unknown(id: &TaskId) -> LedgerCommandError {
    Refusal::new(
        RefusalCode::MissingRequiredInput,
        format!("there is no task {id} in this ledger"),
    )
    .into()
}

/// A point in time, for people.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(stamp) => stamp
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string(),
        Err(_) => at.0.to_string(),
    }
}

pub(crate) fn tone(state: TaskState) -> TextTone {
    match state {
        TaskState::Done => TextTone::Good,
        TaskState::InProgress => TextTone::Busy,
        TaskState::Failed | TaskState::Blocked => TextTone::Bad,
        TaskState::Todo | TaskState::Canceled => TextTone::Dim,
    }
}

/// One task in one line.
pub(super) fn line(task: &Task, out: &OutputGate) -> String {
    let state = out.paint.paint(tone(task.state), task.state.as_str());
    let blocked = task.blocker.as_ref().map(|blocker| {
        let until = blocker
            .retry_at
            .map_or(String::new(), |at| format!(" until {}", time(at)));
        format!(" ({}{until})", blocker.code)
    });
    let owner = task
        .owner
        .as_deref()
        .filter(|_| task.state == TaskState::InProgress);
    let owner = owner.map(|owner| format!(" by {}", style::one_line(owner, 40)));
    format!(
        "{}: {state}{}{}  {}",
        task.id,
        blocked.unwrap_or_default(),
        owner.unwrap_or_default(),
        style::one_line(&task.title, 60)
    )
    .trim_end()
    .to_owned()
}

/// What tasks wait for, as every answer carries it.
pub(super) fn blockers(tasks: &[Task]) -> Value {
    json!(runner_lifecycle::decide::blockers(tasks))
}

pub(super) async fn list(ledger: &Ledger, filter: &TaskFilter, out: &mut OutputGate) -> TaskEnd {
    let tasks = ledger.tasks(filter).await?;
    if out.json {
        out.object(json!({"tasks": tasks, "blockers": blockers(&tasks)}));
        return Ok(Exit::Success);
    }
    for task in &tasks {
        out.data(&line(task, out));
    }
    if tasks.is_empty() {
        let some = filter.state.is_some() || filter.role.is_some() || filter.after.is_some();
        out.say(if some {
            "no such tasks"
        } else {
            "no tasks; `runner task add` makes one"
        });
    }
    Ok(Exit::Success)
}

pub(super) async fn show(ledger: &Ledger, id: &TaskId, out: &mut OutputGate) -> TaskEnd {
    let task = ledger.task(id).await?.ok_or_else(|| unknown(id))?;
    let (events, runs) = (ledger.events(id).await?, ledger.runs(id).await?);
    let lease = ledger.lease(id).await?;
    if out.json {
        out.object(json!({
            "task": task, "events": events, "runs": runs, "lease": lease,
            "blockers": blockers(std::slice::from_ref(&task)),
        }));
        return Ok(Exit::Success);
    }
    out.data(&line(&task, out));
    let scope: Vec<&str> = task.lock_scope.iter().map(Resource::as_str).collect();
    out.data(&format!("  scope: {}", style::harmless(&scope.join(", "))));
    if !task.dependencies.is_empty() {
        let names: Vec<&str> = task.dependencies.iter().map(TaskId::as_str).collect();
        out.data(&format!("  depends on: {}", names.join(", ")));
    }
    if let Some(blocker) = &task.blocker {
        out.data(&format!("  waits: {}", style::harmless(&blocker.reason)));
    }
    for (word, other) in [
        ("succeeds", &task.rework_of),
        ("superseded by", &task.superseded_by),
    ] {
        if let Some(other) = other {
            out.data(&format!("  {word}: {other}"));
        }
    }
    if let Some(lease) = &lease {
        let owner = style::one_line(&lease.owner, 40);
        let until = time(lease.expires_at());
        out.data(&format!(
            "  lease: {owner}, token {}, until {until}",
            lease.token
        ));
    }
    out.data("");
    timeline(&events, out);
    Ok(Exit::Success)
}

/// The history, one line for each event, with how long each state lasted.
fn timeline(events: &[TaskEvent], out: &mut OutputGate) {
    for (at, event) in events.iter().enumerate() {
        let last = at + 1 == events.len();
        let mark = if last { "└" } else { "├" };
        let state = out
            .paint
            .paint(tone(event.to_state), format!("{:<11}", event.to_state));
        let lasted = events
            .get(at + 1)
            .map(|next| style::duration(next.created_at.millis_since(event.created_at)));
        let why = said(event).map(|why| format!(": {}", style::one_line(why, 60)));
        out.data(&format!(
            "{mark} {}  {state}  {} by {}{}{}",
            time(event.created_at),
            style::one_line(&event.reason, 60),
            style::one_line(&event.actor, 40),
            why.unwrap_or_default(),
            lasted.map_or(String::new(), |lasted| format!("  ({lasted})")),
        ));
    }
}

/// What was said about an event in words: by whoever called it off, or blocked it.
fn said(event: &TaskEvent) -> Option<&str> {
    let blocked = event.changes.iter().find_map(|change| match change {
        FieldChange::blocker(Some(blocker)) => Some(blocker.reason.as_str()),
        _ => None,
    });
    let why = event.details.get("why").and_then(Value::as_str);
    why.or(blocked).filter(|words| !words.trim().is_empty())
}

pub(super) async fn events(ledger: &Ledger, id: &TaskId, out: &mut OutputGate) -> TaskEnd {
    let events = ledger.events(id).await?;
    if events.is_empty() {
        return Err(unknown(id));
    }
    if out.json {
        out.object(json!({"events": events}));
    } else {
        timeline(&events, out);
    }
    Ok(Exit::Success)
}

pub(super) async fn why(ledger: &Ledger, id: &TaskId, out: &mut OutputGate) -> TaskEnd {
    let task = ledger.task(id).await?.ok_or_else(|| unknown(id))?;
    let chain = FleetSnapshot::of(ledger).await?.chain(&task).await?;
    let Some((first, behind)) = chain.split_first() else {
        return Err(unknown(id));
    };
    if out.json {
        out.object(json!({
            "task_id": id, "state": task.state, "why": first.why, "words": first.words,
            "until": first.until, "waits_for": first.waits_for, "chain": behind,
            "blockers": blockers(std::slice::from_ref(&task)),
        }));
        return Ok(Exit::Success);
    }
    out.data(&line(&task, out));
    out.data(&format!("  {}: {}", first.why, because(first)));
    for (depth, one) in behind.iter().enumerate() {
        let indent = "  ".repeat(depth + 2);
        out.data(&format!(
            "{indent}{} is {}: {}",
            one.task_id,
            one.state,
            because(one)
        ));
    }
    Ok(Exit::Success)
}

fn because(explained: &TaskExplanation) -> String {
    let until = explained.until.map(|at| format!(", until {}", time(at)));
    let words = style::harmless(&explained.words);
    format!("{words}{}", until.unwrap_or_default())
}
