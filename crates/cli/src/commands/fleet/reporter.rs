//! Follows the ledger of a fleet that is up and tells what happens: sentences for people,
//! events for scripts, and at the end what became of each task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Instant;

use runner_fleet::explain::{is_called_off, sentence, successors};
use runner_ledger::{EventHead, Ledger, LedgerError};
use runner_lifecycle::run::Lease;
use runner_lifecycle::{Task, TaskId, TaskState, Timestamp};
use serde_json::{Value, json};

use super::board::{TaskBoard, live_lines};
use super::context::SessionActivities;
use super::status::everything;
use crate::commands::task::show;
use crate::out::OutputGate;
use crate::style;

/// How many events are read in one go.
const PAGE: u32 = 500;

/// Tells what is new since it was made.
pub(super) struct FleetReporter {
    ledger: Ledger,
    doing: SessionActivities,
    head: EventHead,
    told: i64,
    board: TaskBoard,
    shown: ShownState,
}

/// What was seen last, and when: drawing asks nobody.
struct ShownState {
    leases: Vec<Lease>,
    counts: BTreeMap<TaskState, u64>,
    now: Timestamp,
    at: Instant,
}

/// What became of one task.
pub(super) struct TaskNews {
    pub(super) task: Task,
    pub(super) words: String,
    /// Whether what it was for is done, by itself or by a successor, or called off by a person.
    pub(super) good: bool,
}

impl FleetReporter {
    /// Begins here.
    pub(super) async fn new(
        ledger: &Ledger,
        doing: &SessionActivities,
    ) -> Result<FleetReporter, LedgerError> {
        let head = ledger.event_head().await?;
        let shown = ShownState::look(ledger).await?;
        Ok(FleetReporter {
            shown,
            ledger: ledger.clone(),
            doing: SessionActivities::clone(doing),
            told: head.seq(),
            head,
            board: TaskBoard::default(),
        })
    }

    /// Says what is new, then draws what goes on.
    pub(super) async fn tell(&mut self, out: &mut OutputGate) -> Result<(), LedgerError> {
        self.ledger.follow(&mut self.head).await?;
        let mut touched: Vec<TaskId> = Vec::new();
        while self.told < self.head.seq() {
            let events = self
                .ledger
                .events_between(self.told, self.head.seq(), PAGE)
                .await?;
            let Some(last) = events.last() else {
                self.told = self.head.seq();
                break;
            };
            self.told = last.seq;
            for numbered in &events {
                if out.json {
                    let mut value = serde_json::to_value(&numbered.event).unwrap_or(Value::Null);
                    value["event"] = json!("task");
                    value["seq"] = json!(numbered.seq);
                    out.object(value);
                }
                let id = &numbered.event.task_id;
                touched.retain(|one| one != id);
                touched.push(id.clone());
            }
        }
        if out.json {
            return Ok(());
        }
        for id in touched {
            let Some(task) = self.ledger.task(&id).await? else {
                continue;
            };
            let words = words(&self.ledger, &task).await?;
            if let Some(line) = self.board.news(&id, task.state, &words) {
                let (state, rest) = line.split_at(task.state.as_str().len());
                let state = out.paint_err.paint(show::tone(task.state), state);
                out.say(&format!("{state}{}", style::harmless(rest)));
            }
        }
        if out.live {
            self.shown = ShownState::look(&self.ledger).await?;
            self.draw(out);
        }
        Ok(())
    }

    /// Draws what was seen last; only the clocks go on.
    pub(super) fn draw(&self, out: &mut OutputGate) {
        if !out.live {
            return;
        }
        let size = crossterm::terminal::size().map_or((80, 24), |(columns, rows)| {
            (usize::from(columns), usize::from(rows))
        });
        let doing = self.doing.lock();
        let doing = doing.unwrap_or_else(PoisonError::into_inner).clone();
        let ShownState {
            leases,
            counts,
            now,
            at,
        } = &self.shown;
        let passed = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        out.live_lines(&live_lines(
            leases,
            &doing,
            counts,
            now.plus_millis(passed),
            size,
        ));
    }
}

impl ShownState {
    async fn look(ledger: &Ledger) -> Result<ShownState, LedgerError> {
        Ok(ShownState {
            leases: ledger.leases().await?,
            counts: counts(ledger).await?,
            now: ledger.now().await?,
            at: Instant::now(),
        })
    }
}

/// Tasks by state.
pub(super) async fn counts(ledger: &Ledger) -> Result<BTreeMap<TaskState, u64>, LedgerError> {
    let mut all: BTreeMap<TaskState, u64> = BTreeMap::new();
    for count in ledger.counts().await? {
        *all.entry(count.state).or_default() += count.tasks;
    }
    Ok(all)
}

/// One sentence about a task, on one line.
async fn words(ledger: &Ledger, task: &Task) -> Result<String, LedgerError> {
    Ok(style::one_line(&sentence(ledger, task).await?, 200))
}

/// What became of every task, in the order in which they were made.
pub(super) async fn everything_told(ledger: &Ledger) -> Result<Vec<TaskNews>, LedgerError> {
    let mut tasks = everything(ledger).await?;
    tasks.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let mut all = Vec::new();
    for task in tasks {
        let last = successors(ledger, &task).await?.pop();
        let last = last.as_ref().unwrap_or(&task);
        let good = last.state == TaskState::Done || is_called_off(ledger, last).await?;
        let words = words(ledger, &task).await?;
        all.push(TaskNews { task, words, good });
    }
    Ok(all)
}

/// Prints what became of every task; for scripts as a list.
pub(super) fn print(told: &[TaskNews], out: &mut OutputGate) {
    let width = told.iter().map(|one| one.task.id.as_str().len()).max();
    for one in told {
        let state = out.paint.paint(
            show::tone(one.task.state),
            format!("{:<11}", one.task.state),
        );
        out.data(&format!(
            "{state} {:<width$}  {}",
            one.task.id.as_str(),
            one.words,
            width = width.unwrap_or(0)
        ));
    }
}

/// The same as values.
pub(super) fn values(told: &[TaskNews]) -> Vec<Value> {
    told.iter()
        .map(|one| {
            json!({
                "id": one.task.id, "title": one.task.title, "state": one.task.state,
                "summary": one.words, "superseded_by": one.task.superseded_by,
            })
        })
        .collect()
}

/// The ids of those that are not done, in the end.
pub(super) fn undone(told: &[TaskNews]) -> BTreeSet<&TaskId> {
    let open = told
        .iter()
        .filter(|one| !one.good && one.task.rework_of.is_none());
    open.map(|one| &one.task.id).collect()
}
