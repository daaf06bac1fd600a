//! What can be asked of tasks: make one, move it, call it off, try it again, hold it back.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runner_ledger::{CallOutcome, LedgerCall};
use runner_lifecycle::{Refusal, RefusalCode, Request, Task, TaskId, TaskState as Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FleetState;
use super::input::{JsonBody, KnownQuery, NoQuery, TaskPath, actor, no_such_task, request_name};
use super::new_task::NewTaskBody;
use super::refusal::{FleetFailure, FleetResult, OkReply, json};
use super::tasks::{blockers, task_id, view};
use super::wire::{BlockerView, TaskView};
use super::words::{self, AskedState};
use crate::reply;

/// What a change came to.
#[derive(Serialize, ToSchema)]
#[schema(as = Changed)]
pub(crate) struct ChangeView {
    /// The task as it is now.
    task: TaskView,
    /// The successor, if one was made.
    created: Option<TaskView>,
    /// Whether the same had been asked before.
    replayed: bool,
    blockers: Vec<BlockerView>,
}

/// Where a task shall go.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": "canceled", "reason": "it is not needed any more"}))]
pub(crate) struct TransitionBody {
    /// `blocked`: say what is in the way, with `code`. `todo`: ask the recovery table.
    /// `canceled`: call it off. `done` and `failed`: say again that it ended so.
    to: AskedState,
    /// Why.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// What is in the way, for `blocked`.
    code: Option<words::RefusalCodeView>,
    /// What it waits for, for `blocked`.
    #[schema(max_length = 2000)]
    waits_for: Option<String>,
    /// The version that was read; another one refuses the request.
    expected_version: Option<u64>,
    /// Who asks; `http` if not said.
    #[schema(pattern = "^[!-~]{1,64}$")]
    actor: Option<String>,
}

/// Why a task is called off.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "it is not needed any more"}))]
pub(crate) struct CancelBody {
    /// Why.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// The version that was read; another one refuses the request.
    expected_version: Option<u64>,
    /// Who asks; `http` if not said.
    #[schema(pattern = "^[!-~]{1,64}$")]
    actor: Option<String>,
}

/// That a result is right although it changed its own judge.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "the old test described a mistake"}))]
pub(crate) struct AcceptBody {
    /// Why.
    #[schema(min_length = 1, max_length = 2000)]
    reason: String,
    /// The version that was read; another one refuses the request.
    expected_version: Option<u64>,
    /// Who asks; `http` if not said.
    #[schema(pattern = "^[!-~]{1,64}$")]
    actor: Option<String>,
}

/// That a task shall be done after all.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(crate) struct RetryBody {
    /// The id of the new task, where one is made; made up if not said.
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    successor: Option<String>,
    /// The version that was read; another one refuses the request.
    expected_version: Option<u64>,
    /// Who asks; `http` if not said.
    #[schema(pattern = "^[!-~]{1,64}$")]
    actor: Option<String>,
}

/// Whether a task is held back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"paused": true}))]
pub(crate) struct PauseBody {
    /// Whether nothing new may start.
    paused: bool,
    /// The version that was read; another one refuses the request.
    expected_version: Option<u64>,
    /// Who asks; `http` if not said.
    #[schema(pattern = "^[!-~]{1,64}$")]
    actor: Option<String>,
}

/// Makes a task
#[utoipa::path(post, path = "/tasks", tag = "tasks", request_body = NewTaskBody,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$",
        description = "a name for this request: a repeat gets the same answer")),
    responses((status = 201, description = "made", body = ChangeView,
        headers(("Location" = String, description = "the task")))))]
pub(crate) async fn create(
    State(fleet): State<FleetState>,
    headers: HeaderMap,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<NewTaskBody>,
) -> FleetResult<Response> {
    let name = request_name(&headers)?;
    let (new, actor) = body.into_new_task(name.as_deref())?;
    let id = new.id.clone();
    let mut call = LedgerCall::new(id.clone(), &actor, Request::Create(new));
    call.outside.review_off = fleet.review_off();
    call.request_id = name;
    let outcome = fleet.ledger().call(&call).await?;
    let changed = changed(&fleet, &outcome).await?;
    let mut response = json(StatusCode::CREATED, &changed);
    reply::set(&mut response, header::LOCATION, &format!("/tasks/{id}"));
    Ok(response)
}

async fn changed(fleet: &FleetState, outcome: &CallOutcome) -> FleetResult<ChangeView> {
    let newest = fleet
        .ledger()
        .newest_runs(std::slice::from_ref(&outcome.task.id))
        .await?;
    let now = fleet.ledger().now().await?;
    let all: Vec<Task> = std::iter::once(&outcome.task)
        .chain(&outcome.created)
        .cloned()
        .collect();
    Ok(ChangeView {
        task: view(fleet, &outcome.task, &newest, now),
        created: outcome
            .created
            .as_ref()
            .map(|task| view(fleet, task, &[], now)),
        replayed: outcome.replayed,
        blockers: blockers(&all),
    })
}

/// Who asks something of a task, and how it shall be known.
struct Asking {
    id: TaskId,
    name: Option<String>,
    actor: Option<String>,
    expected_version: Option<u64>,
}

impl Asking {
    /// Asks it.
    async fn of(self, fleet: &FleetState, request: Request) -> FleetResult<CallOutcome> {
        let mut call = LedgerCall::new(self.id, &actor(self.actor)?, request);
        call.call.expected_version = self.expected_version;
        call.request_id = self.name;
        Ok(fleet.ledger().call(&call).await?)
    }
}

async fn known(fleet: &FleetState, id: &TaskId) -> FleetResult<Task> {
    fleet.ledger().task(id).await?.ok_or_else(no_such_task)
}

fn reason(text: String) -> FleetResult<String> {
    if text.trim().is_empty() || text.chars().count() > 2000 {
        return Err(FleetFailure::input("reason has 1 to 2000 characters"));
    }
    Ok(text)
}

/// Moves a task
#[utoipa::path(post, path = "/tasks/{id}/transition", tag = "tasks",
    request_body = TransitionBody,
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$",
        description = "a name for this request: a repeat gets the same answer")),
    responses((status = 200, description = "where it stands now", body = ChangeView)))]
pub(crate) async fn transition(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<TransitionBody>,
) -> FleetResult<Response> {
    known(&fleet, &id).await?;
    let to = body.to.0;
    let request = wanted(to, reason(body.reason)?, body.code, body.waits_for)?;
    let asking = Asking {
        id,
        name: request_name(&headers)?,
        actor: body.actor,
        expected_version: body.expected_version,
    };
    let outcome = asking.of(&fleet, request).await?;
    let untouched = outcome.events.is_empty() && !outcome.replayed;
    if untouched && outcome.task.state != to {
        let task = &outcome.task;
        let waits = task
            .blocked_on()
            .map_or(String::new(), |r| format!("({r})"));
        let words = format!("task {} stays {}{waits} for now", task.id, task.state);
        let mut refusal = Refusal::new(RefusalCode::InvalidTransition, words);
        if let Some(at) = task.retry_at() {
            refusal = refusal.detail("retry_at", at.0);
        }
        return Err(refusal.into());
    }
    Ok(OkReply(changed(&fleet, &outcome).await?).into_response())
}

/// The request that leads to a state.
fn wanted(
    to: Standing,
    reason: String,
    code: Option<words::RefusalCodeView>,
    waits_for: Option<String>,
) -> FleetResult<Request> {
    if to != Standing::Blocked && (code.is_some() || waits_for.is_some()) {
        return Err(FleetFailure::input(
            "code and waits_for are for `blocked` alone",
        ));
    }
    match to {
        Standing::Blocked => {
            let code = code.ok_or_else(|| {
                let words = "`blocked` takes a code that says what is in the way";
                FleetFailure::from(Refusal::new(RefusalCode::MissingRequiredInput, words))
            })?;
            Ok(Request::Block {
                code: code.0,
                reason,
                waits_for,
            })
        }
        Standing::Todo => Ok(Request::Recover {
            packet: None,
            successor: None,
        }),
        Standing::Canceled => Ok(Request::Cancel { reason }),
        Standing::Done | Standing::Failed => Ok(Request::Reassert { state: to, reason }),
        Standing::InProgress => Err(Refusal::new(
            RefusalCode::InvalidTransition,
            "a task begins when an agent claims it; nobody else can say so",
        )
        .into()),
    }
}

/// Calls a task off
#[utoipa::path(post, path = "/tasks/{id}/cancel", tag = "tasks", request_body = CancelBody,
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$",
        description = "a name for this request: a repeat gets the same answer")),
    responses((status = 200, description = "where it stands now", body = ChangeView)))]
pub(crate) async fn cancel(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<CancelBody>,
) -> FleetResult<Response> {
    known(&fleet, &id).await?;
    let reason = reason(body.reason)?;
    let asking = Asking {
        id,
        name: request_name(&headers)?,
        actor: body.actor,
        expected_version: body.expected_version,
    };
    asked(&fleet, asking, Request::Cancel { reason }).await
}

/// Asks something of a task, and says where it stands then.
async fn asked(fleet: &FleetState, asking: Asking, request: Request) -> FleetResult<Response> {
    let outcome = asking.of(fleet, request).await?;
    Ok(OkReply(changed(fleet, &outcome).await?).into_response())
}

/// Accepts a result that passes only with tests or settings that it changed itself
#[utoipa::path(post, path = "/tasks/{id}/accept", tag = "tasks", request_body = AcceptBody,
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$",
        description = "a name for this request: a repeat gets the same answer")),
    responses((status = 200, description = "where it stands now", body = ChangeView)))]
pub(crate) async fn accept(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<AcceptBody>,
) -> FleetResult<Response> {
    known(&fleet, &id).await?;
    let reason = reason(body.reason)?;
    let asking = Asking {
        id,
        name: request_name(&headers)?,
        actor: body.actor,
        expected_version: body.expected_version,
    };
    asked(&fleet, asking, Request::AcceptJudge { reason }).await
}

/// Tries a task again: an ended one by a new task, another one as the recovery table says
#[utoipa::path(post, path = "/tasks/{id}/retry", tag = "tasks", request_body = RetryBody,
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$",
        description = "a name for this request: a repeat gets the same answer")),
    responses((status = 200, description = "where it stands now", body = ChangeView)))]
pub(crate) async fn retry(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<RetryBody>,
) -> FleetResult<Response> {
    let task = known(&fleet, &id).await?;
    let name = request_name(&headers)?;
    // The same for every repeat, whatever became of the task meanwhile.
    let made_up = match &name {
        Some(name) => super::new_task::id_from(name),
        None => format!("{id}-r{}", task.version),
    };
    let successor = task_id(&body.successor.unwrap_or(made_up))?;
    let request = if task.state.is_terminal() {
        Request::Retry { successor }
    } else {
        Request::Recover {
            packet: None,
            successor: Some(successor),
        }
    };
    let asking = Asking {
        id,
        name,
        actor: body.actor,
        expected_version: body.expected_version,
    };
    asked(&fleet, asking, request).await
}

/// Holds a task back, or lets it go
#[utoipa::path(post, path = "/tasks/{id}/pause", tag = "tasks", request_body = PauseBody,
    params(("id" = String, Path, pattern = "^[A-Za-z0-9._-]{1,64}$", description = "the task"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,128}$",
        description = "a name for this request: a repeat gets the same answer")),
    responses((status = 200, description = "where it stands now", body = ChangeView)))]
pub(crate) async fn pause(
    State(fleet): State<FleetState>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<PauseBody>,
) -> FleetResult<Response> {
    known(&fleet, &id).await?;
    let asking = Asking {
        id,
        name: request_name(&headers)?,
        actor: body.actor,
        expected_version: body.expected_version,
    };
    let paused = body.paused;
    asked(&fleet, asking, Request::Pause { paused }).await
}
