//! `/runs`, `/judgements`, `/agents` and `/locks`.

use axum::extract::State;
use runner_ledger::{FleetAgent, RunPage, RunPlace};
use runner_lifecycle::{TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::FleetState;
use super::input::{KnownQuery, NoQuery, limit};
use super::refusal::{FleetFailure, FleetResult, OkReply};
use super::tasks::cut;
use super::wire::{JudgementView, LockView, TaskRunView};
use super::words::TaskRunStatusView;

/// Which runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunQuery {
    /// Of that task.
    #[param(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    task: Option<String>,
    /// With that status.
    #[param(inline)]
    status: Option<TaskRunStatusView>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^[0-9]{1,18}~[A-Za-z0-9._-]{1,80}$")]
    cursor: Option<String>,
    /// How many, 1 to 200; 50 if not said.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// Which judgements.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JudgementQuery {
    /// Of that task.
    #[param(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    task: Option<String>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^[0-9]{1,18}~[A-Za-z0-9._-]{1,80}$")]
    cursor: Option<String>,
    /// How many, 1 to 200; 50 if not said.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// A page of runs, the newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunList {
    runs: Vec<TaskRunView>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// A page of judgements, those of the newest runs first.
#[derive(Serialize, ToSchema)]
pub(crate) struct JudgementList {
    judgements: Vec<JudgementView>,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// Every agent that was ever there, by name.
#[derive(Serialize, ToSchema)]
pub(crate) struct AgentList {
    agents: Vec<AgentView>,
}

/// An agent.
#[derive(Serialize, ToSchema)]
pub(crate) struct AgentView {
    name: String,
    role: String,
    host: String,
    /// Whether it gets nothing new: it left, or was not heard for three intervals.
    offline: bool,
    registered_at: i64,
    last_seen_at: i64,
    left_at: Option<i64>,
    /// The task that it works on.
    works_on: Option<String>,
}

impl AgentView {
    fn of(agent: &FleetAgent, now: Timestamp) -> Self {
        AgentView {
            name: agent.name.clone(),
            role: agent.role.clone(),
            host: agent.host.clone(),
            offline: agent.is_offline(now),
            registered_at: agent.registered_at.0,
            last_seen_at: agent.last_seen_at.0,
            left_at: agent.left_at.map(|at| at.0),
            works_on: agent.works_on.as_ref().map(ToString::to_string),
        }
    }
}

/// The locks that are held, by their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct LockList {
    locks: Vec<LockView>,
}

fn place(cursor: &str) -> FleetResult<RunPlace> {
    let parts = cursor.split_once('~').and_then(|(at, id)| {
        let plain = at.len() <= 18 && id.len() <= 80 && has_letters_of_ids(id);
        let at = at.bytes().all(|byte| byte.is_ascii_digit()).then_some(at)?;
        Some((plain.then(|| at.parse::<i64>().ok())??, id))
    });
    match parts {
        Some((at, id)) => Ok(RunPlace {
            started_at: Timestamp(at),
            id: id.to_owned(),
        }),
        None => Err(FleetFailure::input(
            "cursor is the next_cursor of an earlier page",
        )),
    }
}

/// Only letters that ids have.
fn has_letters_of_ids(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !id.is_empty() && id.bytes().all(plain)
}

fn cursor(place: &RunPlace) -> String {
    format!("{}~{}", place.started_at.0, place.id)
}

fn task_of(text: Option<String>) -> FleetResult<Option<TaskId>> {
    let parse =
        |text: String| TaskId::parse(&text).map_err(|error| FleetFailure::input(error.to_string()));
    text.map(parse).transpose()
}

/// Lists runs
#[utoipa::path(get, path = "/runs", tag = "runs", params(RunQuery),
    responses((status = 200, description = "a page", body = RunList)))]
pub(crate) async fn runs(
    State(fleet): State<FleetState>,
    KnownQuery(query): KnownQuery<RunQuery>,
) -> FleetResult<OkReply<RunList>> {
    let limit = limit(query.limit)?;
    let page = RunPage {
        task: task_of(query.task)?,
        status: query.status.map(|word| word.0),
        judged: false,
        before: query.cursor.as_deref().map(place).transpose()?,
        limit: limit + 1,
    };
    let mut runs = fleet.ledger().run_page(&page).await?;
    let next_cursor = cut(&mut runs, limit).map(|run| cursor(&RunPlace::of(run)));
    Ok(OkReply(RunList {
        runs: runs.iter().map(TaskRunView::from).collect(),
        next_cursor,
    }))
}

/// Lists what judges said
#[utoipa::path(get, path = "/judgements", tag = "runs", params(JudgementQuery),
    responses((status = 200, description = "a page", body = JudgementList)))]
pub(crate) async fn judgements(
    State(fleet): State<FleetState>,
    KnownQuery(query): KnownQuery<JudgementQuery>,
) -> FleetResult<OkReply<JudgementList>> {
    let limit = limit(query.limit)?;
    let page = RunPage {
        task: task_of(query.task)?,
        status: None,
        judged: true,
        before: query.cursor.as_deref().map(place).transpose()?,
        limit: limit + 1,
    };
    let mut runs = fleet.ledger().run_page(&page).await?;
    let next_cursor = cut(&mut runs, limit).map(|run| cursor(&RunPlace::of(run)));
    Ok(OkReply(JudgementList {
        judgements: runs.iter().map(JudgementView::from).collect(),
        next_cursor,
    }))
}

/// Lists agents
#[utoipa::path(get, path = "/agents", tag = "agents",
    responses((status = 200, description = "all of them", body = AgentList)))]
pub(crate) async fn agents(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<OkReply<AgentList>> {
    let agents = fleet.ledger().agents().await?;
    let now = fleet.ledger().now().await?;
    Ok(OkReply(AgentList {
        agents: agents.iter().map(|one| AgentView::of(one, now)).collect(),
    }))
}

/// Lists the locks that are held
#[utoipa::path(get, path = "/locks", tag = "tasks",
    responses((status = 200, description = "all of them", body = LockList)))]
pub(crate) async fn locks(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<OkReply<LockList>> {
    let held = fleet.ledger().held_locks().await?;
    Ok(OkReply(LockList {
        locks: held.iter().map(LockView::from).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_nothing_else_is_one() {
        let at = place("1780000000000~a.b-1").unwrap();
        assert_eq!(at.started_at, Timestamp(1_780_000_000_000));
        assert_eq!(cursor(&at), "1780000000000~a.b-1");
        for wrong in ["", "~", "1~", "~a", "x~a", "-1~a", "1~a b", "1~\0", "1-a"] {
            assert!(place(wrong).is_err(), "{wrong:?}");
        }
        let long = format!("{}~a", "9".repeat(19));
        assert!(place(&long).is_err());
    }
}
