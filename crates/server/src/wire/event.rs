//! What `/events` tells: each event names what to fetch again.

use serde::Serialize;

use super::run::{RunPhaseView, RunStatusView};

/// One event of the stream. On the wire the name is the SSE `event` field and
/// the content is its `data`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum ServerEvent {
    /// tree.json is another: fetch `/api/tree`, and `/api/run` for the progress.
    TreeChanged(TreeChanged),
    /// run_state.json is another: fetch `/api/run-state` and `/api/run`.
    RunStateChanged(RunStateChanged),
    /// An iteration has begun: fetch `/api/iterations`.
    IterationAdded(IterationAdded),
    /// An iteration is recorded: fetch `/api/iterations`, and its detail if it is shown.
    IterationChanged(IterationChanged),
    /// The answer of `/api/run` is another in something else than the tree or the bookkeeping:
    /// phase, whether a runner is at work, goal, limits, questions, assumptions.
    PhaseChanged(PhaseChanged),
    /// The project appeared, vanished, or is another one: fetch everything.
    ProjectChanged(ProjectChanged),
    /// A line of the agent's own events; only with `/events?stream=1`.
    Stream(StreamLine),
}

/// Of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TreeChanged {
    /// Whether there is a tree.json.
    pub there: bool,
}

/// Of the bookkeeping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RunStateChanged {
    /// Whether there is a run_state.json.
    pub there: bool,
}

/// Of an iteration that has begun. Without names in the events that a client gets
/// when its place in the stream is not known: fetch all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct IterationAdded {
    /// The run.
    pub run_id: Option<String>,
    /// The iteration.
    pub iter: Option<u32>,
}

/// Of an iteration that is recorded; without names as in `IterationAdded`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct IterationChanged {
    /// The run.
    pub run_id: Option<String>,
    /// The iteration.
    pub iter: Option<u32>,
}

/// Of what the runner does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PhaseChanged {
    /// The state of the run; null if there is no project.
    pub state: Option<RunStatusView>,
    /// What the runner does.
    pub phase: RunPhaseView,
    /// The iteration that is under way.
    pub iter: Option<u32>,
    /// The node it works on.
    pub node_id: Option<String>,
}

/// Of the folder as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ProjectChanged {
    /// Whether there is a project now.
    pub there: bool,
}

/// A line of stream.jsonl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct StreamLine {
    /// The run.
    pub run_id: String,
    /// The iteration.
    pub iter: u32,
    /// Where the line begins in stream.jsonl. A gap between this and the end of the line
    /// before it can be fetched from there.
    pub offset: u64,
    /// The line itself, a JSON object as the agent printed it. Longer ones than 64 KiB are
    /// left out: null, to be read from the file.
    pub line: Option<String>,
    /// Where the next line begins.
    pub next_offset: u64,
}
