//! `/system/…` and `/health`: what the fleet stands on.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use runner_fleet::rules::host::{HostSnapshot, SnapshotSource};
use runner_fleet::rules::preflight::{self, PreflightInputs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::input::{JsonBody, KnownQuery, NoQuery};
use super::refusal::{FleetFailure, FleetResult, OkReply, json};
use super::{FleetState, PreflightFacts};

/// What is to be launched.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"requirement": "A parser of dates."}))]
pub(crate) struct PreflightBody {
    /// The requirement text; the project's own if not said.
    requirement: Option<String>,
    /// Whether the planner shall start: refused with 409 while there is a backlog.
    #[serde(default)]
    start_planner: bool,
}

/// What would begin, and why.
#[derive(Serialize, ToSchema)]
pub(crate) struct PreflightAnswer {
    inputs: PreflightInputsView,
    recommendations: RecommendationsView,
    /// What a person should know.
    warnings: Vec<String>,
}

/// What was counted.
#[derive(Serialize, ToSchema)]
#[schema(as = PreflightInputs)]
pub(crate) struct PreflightInputsView {
    has_requirement: bool,
    /// Open issues that are no tasks yet.
    issue_backlog: u64,
    open_pull_requests: u64,
    awaiting_judge: u64,
    /// Tasks that are `todo`, `in_progress` or `blocked`, parked ones not counted.
    local_backlog: u64,
    /// Blocked tasks, parked ones included.
    blocked: u64,
    /// Whether the guard fails on the base alone.
    red_base: bool,
    failed_sources: Vec<FailedSourceView>,
}

/// A backlog source that could not be read.
#[derive(Serialize, ToSchema)]
#[schema(as = FailedSource)]
pub(crate) struct FailedSourceView {
    source: String,
    reason: String,
}

/// What begins at once.
#[derive(Serialize, ToSchema)]
#[allow(clippy::struct_excessive_bools)] // each follows a formula of its own
#[schema(as = Recommendations)]
pub(crate) struct RecommendationsView {
    start_planner: bool,
    start_execution: bool,
    start_judge: bool,
    start_cycle_manager: bool,
    counts: RoleCountsView,
}

/// How many of each role begin.
#[derive(Serialize, ToSchema)]
#[schema(as = RoleCounts)]
pub(crate) struct RoleCountsView {
    planner: u32,
    dispatcher: u32,
    worker: u32,
    tester: u32,
    docser: u32,
    judge: u32,
    cycle_manager: u32,
}

impl From<preflight::PreflightReport> for PreflightAnswer {
    fn from(said: preflight::PreflightReport) -> Self {
        let (inputs, begins) = (said.inputs, said.recommendations);
        let failed = inputs.failed_sources.into_iter();
        PreflightAnswer {
            inputs: PreflightInputsView {
                has_requirement: inputs.has_requirement,
                issue_backlog: inputs.issue_backlog,
                open_pull_requests: inputs.open_pull_requests,
                awaiting_judge: inputs.awaiting_judge,
                local_backlog: inputs.local_backlog,
                blocked: inputs.blocked,
                red_base: inputs.red_base,
                failed_sources: failed
                    .map(|one| FailedSourceView {
                        source: one.source,
                        reason: one.reason,
                    })
                    .collect(),
            },
            recommendations: RecommendationsView {
                start_planner: begins.start_planner,
                start_execution: begins.start_execution,
                start_judge: begins.start_judge,
                start_cycle_manager: begins.start_cycle_manager,
                counts: RoleCountsView {
                    planner: begins.counts.planner,
                    dispatcher: begins.counts.dispatcher,
                    worker: begins.counts.worker,
                    tester: begins.counts.tester,
                    docser: begins.counts.docser,
                    judge: begins.counts.judge,
                    cycle_manager: begins.counts.cycle_manager,
                },
            },
            warnings: said.warnings,
        }
    }
}

/// Says what would begin at once
#[utoipa::path(post, path = "/system/preflight", tag = "system", request_body = PreflightBody,
    responses(
        (status = 200, description = "what would begin", body = PreflightAnswer),
        (status = 409, description = "`PLANNER_REFUSED`: the backlog comes first; \
            `NOTHING_TO_DO`: no role would begin", body = super::refusal::FleetProblem)))]
pub(crate) async fn preflight(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
    JsonBody(body): JsonBody<PreflightBody>,
) -> FleetResult<OkReply<PreflightAnswer>> {
    let outside = fleet.known().outside().await;
    let inputs = counted(&fleet, outside, body.requirement.as_deref()).await?;
    let said = preflight::preflight(inputs, fleet.config());
    let conflict = |code, words| FleetFailure::new(StatusCode::CONFLICT, code, words);
    if body.start_planner {
        let running = fleet.planners().await?;
        said.inputs
            .may_start_planner(running)
            .map_err(|refused| conflict("PLANNER_REFUSED", refused.0))?;
    }
    said.check()
        .map_err(|nothing| conflict("NOTHING_TO_DO", nothing.0))?;
    Ok(OkReply(said.into()))
}

/// What the ledger counts, with what only the fleet knows.
async fn counted(
    fleet: &FleetState,
    outside: PreflightFacts,
    requirement: Option<&str>,
) -> FleetResult<PreflightInputs> {
    let inputs = PreflightInputs {
        has_requirement: PreflightInputs::says_something(
            requirement.unwrap_or(&outside.requirement),
        ),
        issue_backlog: outside.issue_backlog,
        open_pull_requests: outside.open_pull_requests,
        red_base: outside.red_base,
        failed_sources: outside.failed_sources,
        ..PreflightInputs::default()
    };
    Ok(runner_fleet::backlog::project::counted(fleet.ledger(), inputs).await?)
}

/// What is known of the machine.
#[derive(Serialize, ToSchema)]
pub(crate) struct HostAnswer {
    /// Null until the first look at the machine is through: ask again.
    snapshot: Option<HostSnapshotView>,
}

/// A snapshot of the machine.
#[derive(Serialize, ToSchema)]
#[schema(as = HostSnapshot)]
pub(crate) struct HostSnapshotView {
    source: HostSource,
    lines: Vec<String>,
    /// The SHA-256 of what stays the same.
    fingerprint: String,
    taken_at: i64,
}

/// Where a snapshot comes from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostSource {
    /// `neofetch --stdout`
    Neofetch,
    /// What `uname -srmo` says.
    Uname,
}

impl From<HostSnapshot> for HostSnapshotView {
    fn from(snapshot: HostSnapshot) -> Self {
        HostSnapshotView {
            source: match snapshot.source {
                SnapshotSource::Neofetch => HostSource::Neofetch,
                SnapshotSource::Uname => HostSource::Uname,
            },
            lines: snapshot.lines,
            fingerprint: snapshot.fingerprint,
            taken_at: snapshot.taken_at.0,
        }
    }
}

/// Shows the machine
#[utoipa::path(get, path = "/system/host/neofetch", tag = "system",
    responses((status = 200, description = "what is known", body = HostAnswer)))]
pub(crate) async fn neofetch(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<OkReply<HostAnswer>> {
    let snapshot = fleet.known().host().map(HostSnapshotView::from);
    Ok(OkReply(HostAnswer { snapshot }))
}

/// What a session is told of the machine.
#[derive(Serialize, ToSchema)]
pub(crate) struct HostContext {
    /// Whole lines, 550 characters at most; empty until the machine was looked at.
    #[schema(max_length = 550)]
    context: String,
}

/// Shows what sessions are told of the machine
#[utoipa::path(get, path = "/system/host/context", tag = "system",
    responses((status = 200, description = "the text", body = HostContext)))]
pub(crate) async fn host_context(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<OkReply<HostContext>> {
    let lines = fleet.known().host().map_or(Vec::new(), |one| one.lines);
    let (context, _) = runner_fleet::rules::context::injected(&lines, &[]);
    Ok(OkReply(HostContext { context }))
}

/// That the process lives.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthView {
    /// Always `ok`.
    status: &'static str,
    /// The version of the runner.
    version: String,
}

/// Says that the process lives
#[utoipa::path(get, path = "/health", tag = "system",
    responses((status = 200, description = "it lives", body = HealthView)))]
pub(crate) async fn health(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<OkReply<HealthView>> {
    let version = fleet.version().to_owned();
    Ok(OkReply(HealthView {
        status: "ok",
        version,
    }))
}

/// Whether work can be done.
#[derive(Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessView {
    /// Whether the ledger answers.
    ready: bool,
    /// Whether the fleet is paused: nothing new starts.
    paused: bool,
}

/// Says whether the ledger answers
#[utoipa::path(get, path = "/health/ready", tag = "system",
    responses((status = 200, description = "it does", body = ReadinessView)))]
pub(crate) async fn ready(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<Response> {
    let paused = fleet.ledger().is_paused().await?;
    let ready = ReadinessView {
        ready: true,
        paused,
    };
    Ok(json(StatusCode::OK, &ready).into_response())
}
