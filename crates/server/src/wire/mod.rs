//! What goes over the wire: one type for each answer and each event.
//!
//! These types are the contract with the page. They are apart from the core's, so
//! that a file format can change alone; `ui/src/api/types.ts` is generated from
//! them, and a test fails where it is stale. Times are RFC 3339 in UTC, durations
//! are in milliseconds, `null` means unknown or not there.

mod event;
mod iteration;
mod run;
mod tree;
#[cfg(test)]
mod typescript;

pub use event::{
    IterationAdded, IterationChanged, PhaseChanged, ProjectChanged, RunStateChanged, ServerEvent,
    StreamLine, TreeChanged,
};
pub use iteration::{
    AgentReport, ChangeCounts, Class, Diff, ErrorKind, GuardVerdict, IterationDetail, IterationRow,
    Iterations, LogFile, LogMatch, LogMatches, Meta, MetaError, Mode, RunIterations, SessionStatus,
};
pub use run::{
    Goal, LastError, Leaf, Limits, Needs, NeedsYou, Phase, Run, RunState, RunStatus, ServerInfo,
    Totals,
};
pub use tree::{ChangeKind, Finding, Plan, PlanChange, PlanNode, Problem, ProblemBody, TreeNode};
