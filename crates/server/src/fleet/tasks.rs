//! Looking at tasks: a page of them, one with why nobody works on it, and its events.

use axum::extract::State;
use runner_ledger::TaskPage;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::FleetState;
use super::input::{KnownQuery, NoQuery, TaskPath, limit, no_such_task};
use super::refusal::{FleetFailure, FleetResult, OkReply};
use super::wire::{BlockerView, EventView, TaskView};
use super::words::{AskedReason, AskedState, LeasePurposeView};

/// The largest whole number that every JSON reader keeps as it is.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// Which tasks.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TaskQuery {
    /// In that state; `queued`, `running` and `cancelled` are understood too.
    #[param(inline)]
    state: Option<AskedState>,
    /// Blocked with that reason; `needs_human` is understood too.
    #[param(inline)]
    reason: Option<AskedReason>,
    /// Of that role.
    #[param(pattern = "^[a-z][a-z0-9_-]{0,31}$")]
    role: Option<String>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    cursor: Option<String>,
    /// How many, 1 to 200; 50 if not said.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// A page of tasks, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct TaskList {
    tasks: Vec<TaskView>,
    /// What the blocked ones among them wait for.
    blockers: Vec<BlockerView>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// A task with what hangs on it.
#[derive(Serialize, ToSchema)]
pub(crate) struct TaskDetail {
    task: TaskView,
    blockers: Vec<BlockerView>,
    /// Who holds it, while somebody does.
    lease: Option<LeaseView>,
    /// Why nobody works on it though it is `todo`; null if somebody could begin at once.
    not_ready: Option<NotReadyView>,
}

/// The right to work on a task.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseView {
    run_id: String,
    owner: String,
    purpose: LeasePurposeView,
    claimed_at: i64,
    last_heartbeat_at: i64,
    /// When it ends unless a heartbeat comes.
    expires_at: i64,
    /// When its length is used up.
    ends_at: i64,
}

impl From<&Lease> for LeaseView {
    fn from(lease: &Lease) -> Self {
        LeaseView {
            run_id: lease.run_id.clone(),
            owner: lease.owner.clone(),
            purpose: lease.purpose.into(),
            claimed_at: lease.claimed_at.0,
            last_heartbeat_at: lease.last_heartbeat_at.0,
            expires_at: lease.expires_at().0,
            ends_at: lease.ends_at.0,
        }
    }
}

/// What keeps a task from starting.
#[derive(Serialize, ToSchema)]
#[schema(as = NotReady)]
pub(crate) struct NotReadyView {
    /// A word for it: `dependency`, `lock`, `paused`, …
    word: String,
    /// The same for people.
    message: String,
}

/// Which events of a task.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// The `next_cursor` of the page before: the last version that was told.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    cursor: Option<u64>,
    /// How many, 1 to 200; 50 if not said.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// A page of events, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventList {
    events: Vec<EventView>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<u64>,
}

/// Lists tasks
#[utoipa::path(get, path = "/tasks", tag = "tasks", params(TaskQuery),
    responses((status = 200, description = "a page", body = TaskList)))]
pub(crate) async fn list(
    State(fleet): State<FleetState>,
    KnownQuery(query): KnownQuery<TaskQuery>,
) -> FleetResult<OkReply<TaskList>> {
    let limit = limit(query.limit)?;
    let after = query.cursor.as_deref().map(task_id).transpose()?;
    if let Some(role) = &query.role {
        super::new_task::check_role(role)?;
    }
    let page = TaskPage {
        state: query.state.map(|word| word.0),
        blocked_on: query.reason.map(|word| word.0),
        role: query.role,
        after,
        // One more, to know whether it is the last page.
        limit: limit + 1,
    };
    let mut tasks = fleet.ledger().task_page(&page).await?;
    let next_cursor = cut(&mut tasks, limit).map(|task| task.id.to_string());
    let waiting: Vec<TaskId> = tasks
        .iter()
        .filter(|task| task.retry_at().is_some())
        .map(|task| task.id.clone())
        .collect();
    let newest = fleet.ledger().newest_runs(&waiting).await?;
    let now = fleet.ledger().now().await?;
    Ok(OkReply(TaskList {
        blockers: blockers(&tasks),
        tasks: tasks
            .iter()
            .map(|task| view(&fleet, task, &newest, now))
            .collect(),
        next_cursor,
    }))
}

/// Cuts what is more than a page; the last item of the page, if there was more.
pub(crate) fn cut<T>(items: &mut Vec<T>, limit: u32) -> Option<&T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if items.len() <= limit {
        return None;
    }
    items.truncate(limit);
    items.last()
}

pub(crate) fn blockers(tasks: &[Task]) -> Vec<BlockerView> {
    let all = runner_lifecycle::decide::blockers(tasks);
    all.into_iter().map(BlockerView::from).collect()
}

pub(crate) fn view(
    fleet: &FleetState,
    task: &Task,
    newest: &[TaskRun],
    now: Timestamp,
) -> TaskView {
    let run = newest.iter().find(|run| run.task_id == task.id);
    TaskView::of(fleet.ledger().policy(), task, run, now)
}

pub(crate) fn task_id(text: &str) -> FleetResult<TaskId> {
    TaskId::parse(text).map_err(|error| FleetFailure::input(error.to_string()))
}

/// Shows a task, and why nobody works on it
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks",
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task")),
    responses((status = 200, description = "the task", body = TaskDetail)))]
pub(crate) async fn show(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    _: KnownQuery<NoQuery>,
) -> FleetResult<OkReply<TaskDetail>> {
    let ledger = fleet.ledger();
    let task = ledger.task(&id).await?.ok_or_else(no_such_task)?;
    let lease = ledger.lease(&id).await?;
    let not_ready = ledger.why(&id).await?;
    let newest = ledger.newest_runs(std::slice::from_ref(&id)).await?;
    let now = ledger.now().await?;
    let not_ready = not_ready.map(|not| NotReadyView {
        word: not.word().to_owned(),
        message: not.refusal(&task).reason,
    });
    Ok(OkReply(TaskDetail {
        blockers: blockers(std::slice::from_ref(&task)),
        lease: lease.as_ref().map(LeaseView::from),
        not_ready,
        task: view(&fleet, &task, &newest, now),
    }))
}

/// Lists the events of a task
#[utoipa::path(get, path = "/tasks/{id}/events", tag = "tasks",
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task"),
        EventQuery),
    responses((status = 200, description = "a page", body = EventList)))]
pub(crate) async fn events(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    KnownQuery(query): KnownQuery<EventQuery>,
) -> FleetResult<OkReply<EventList>> {
    let limit = limit(query.limit)?;
    let after = query.cursor.unwrap_or(0);
    if after > MAX_EXACT {
        return Err(FleetFailure::input(
            "cursor is the next_cursor of an earlier page",
        ));
    }
    let mut events = fleet.ledger().event_page(&id, after, limit + 1).await?;
    // Every task has events: only where none came may there be no task.
    if events.is_empty() && fleet.ledger().task(&id).await?.is_none() {
        return Err(no_such_task());
    }
    let next_cursor = cut(&mut events, limit).map(|event| event.version);
    Ok(OkReply(EventList {
        events: events.iter().map(EventView::from).collect(),
        next_cursor,
    }))
}
