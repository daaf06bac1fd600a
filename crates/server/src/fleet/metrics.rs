//! `/metrics`: the figures of the fleet as Prometheus reads them.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use runner_ledger::{EventHead, SpendingTotals, TaskCount, WaitTimes};
use runner_lifecycle::TaskRunStatus;

use super::FleetState;
use super::input::{KnownQuery, NoQuery};
use super::refusal::FleetResult;
use crate::reply;

/// The bounds of the histogram of waits.
const BOUNDS_MILLIS: [u64; 10] = [
    100, 250, 500, 1000, 2500, 5000, 15_000, 60_000, 300_000, 3_600_000,
];

/// What was counted so far; the rest is counted when somebody asks.
#[derive(Debug, Default)]
pub(crate) struct ExpiryCounts {
    up_to: i64,
    count: u64,
}

/// Everything that is told.
struct Figures {
    tasks: Vec<TaskCount>,
    queue_age_secs: f64,
    waits: WaitTimes,
    runs: Vec<(TaskRunStatus, u64)>,
    spent: SpendingTotals,
    expiries: u64,
    agents_online: u64,
    agents_offline: u64,
    paused: bool,
}

/// The figures of the fleet
#[utoipa::path(get, path = "/metrics", tag = "system",
    responses((status = 200, description = "Prometheus text", body = String,
        content_type = "text/plain")))]
pub(crate) async fn metrics(
    State(fleet): State<FleetState>,
    _: KnownQuery<NoQuery>,
) -> FleetResult<Response> {
    let figures = figures(&fleet).await?;
    let mut response = Response::new(text(&figures).into());
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    reply::set(&mut response, header::CONTENT_TYPE, kind);
    reply::set(&mut response, header::CACHE_CONTROL, "no-store");
    Ok(response)
}

async fn figures(fleet: &FleetState) -> FleetResult<Figures> {
    let ledger = fleet.ledger();
    let now = ledger.now().await?;
    let oldest = ledger.oldest_ready().await?;
    let agents = ledger.agents().await?;
    let offline = agents.iter().filter(|agent| agent.is_offline(now)).count();
    let head: EventHead = ledger.event_head().await?;
    Ok(Figures {
        tasks: ledger.counts().await?,
        queue_age_secs: seconds(oldest.map_or(0, |since| now.millis_since(since))),
        waits: ledger.waits(&BOUNDS_MILLIS).await?,
        runs: ledger.runs_by_status().await?,
        spent: ledger.spent(None).await?,
        expiries: expiries(fleet, head.seq()).await?,
        agents_online: (agents.len() - offline) as u64,
        agents_offline: offline as u64,
        paused: ledger.is_paused().await?,
    })
}

/// Events are only ever appended: what was counted once stays.
async fn expiries(fleet: &FleetState, up_to: i64) -> FleetResult<u64> {
    let mut known = fleet.expiries().lock().await;
    if up_to > known.up_to {
        known.count += fleet.ledger().expiries(known.up_to, up_to).await?;
        known.up_to = up_to;
    }
    Ok(known.count)
}

#[allow(clippy::cast_precision_loss)] // for a gauge
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

#[allow(clippy::cast_precision_loss)] // cents of a fleet
fn dollars(micros: u64) -> f64 {
    micros as f64 / 1_000_000.0
}

fn text(figures: &Figures) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, String)]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (rest, value) in lines {
            let _ = writeln!(text, "{name}{rest} {value}");
        }
    };
    let one = |value: String| vec![(String::new(), value)];
    let labelled = |label: String, value: u64| (format!("{{{label}}}"), value.to_string());
    let tasks: Vec<_> = figures
        .tasks
        .iter()
        .map(|count| {
            let reason = count.blocked_on.map_or("", |reason| reason.as_str());
            let label = format!("state=\"{}\",reason=\"{reason}\"", count.state);
            labelled(label, count.tasks)
        })
        .collect();
    family(
        "runner_tasks",
        "gauge",
        "Tasks by state and, where blocked, by reason.",
        &tasks,
    );
    family(
        "runner_queue_age_seconds",
        "gauge",
        "How long the oldest task that could start waits; 0 without one.",
        &one(figures.queue_age_secs.to_string()),
    );
    let mut waits: Vec<_> = figures
        .waits
        .within
        .iter()
        .map(|(bound, count)| {
            let label = format!("_bucket{{le=\"{}\"}}", seconds(*bound));
            (label, count.to_string())
        })
        .collect();
    let all = figures.waits.runs.to_string();
    waits.push(("_bucket{le=\"+Inf\"}".to_owned(), all.clone()));
    let sum = seconds(figures.waits.sum_millis).to_string();
    waits.push(("_sum".to_owned(), sum));
    waits.push(("_count".to_owned(), all));
    family(
        "runner_dispatch_latency_seconds",
        "histogram",
        "From a task that could start to its run.",
        &waits,
    );
    let runs: Vec<_> = figures
        .runs
        .iter()
        .map(|(status, count)| labelled(format!("status=\"{status}\""), *count))
        .collect();
    family("runner_runs", "gauge", "Runs by status.", &runs);
    let spent = &figures.spent;
    let tokens = [
        ("input", spent.input_tokens),
        ("output", spent.output_tokens),
    ];
    let tokens = tokens.map(|(kind, count)| labelled(format!("kind=\"{kind}\""), count));
    family("runner_tokens_total", "counter", "Tokens used.", &tokens);
    family(
        "runner_cost_usd_total",
        "counter",
        "What that cost, in dollars.",
        &one(dollars(spent.cost_micros).to_string()),
    );
    family(
        "runner_lease_expiries_total",
        "counter",
        "Leases that ended because nothing was heard of their owner.",
        &one(figures.expiries.to_string()),
    );
    let agents = [
        ("online", figures.agents_online),
        ("offline", figures.agents_offline),
    ];
    let agents = agents.map(|(status, count)| labelled(format!("status=\"{status}\""), count));
    family("runner_agents", "gauge", "Agents by status.", &agents);
    family(
        "runner_paused",
        "gauge",
        "1 while the fleet is paused.",
        &one(u8::from(figures.paused).to_string()),
    );
    text
}
