//! What goes over the wire: one type for each answer and each event.
//!
//! These types are the contract with the page. They are apart from the core's, so
//! that a file format can change alone; `ui/src/api/types.ts` is generated from
//! them, and a test fails where it is stale. Times are RFC 3339 in UTC, durations
//! are in milliseconds, `null` means unknown or not there.

/// Gives a wire word for every word of the core, one to one.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident of $core:ty { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
        #[cfg_attr(test, derive(ts_rs::TS))]
        #[serde(rename_all = "snake_case")]
        $(#[$doc])*
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl From<$core> for $name {
            fn from(word: $core) -> Self {
                match word {
                    $(<$core>::$variant => $name::$variant,)*
                }
            }
        }
    };
}

use words;

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
    AgentReport, ChangeCounts, DiffView, GuardVerdict, IterationDetail, IterationErrorKindView,
    IterationList, IterationMetaView, IterationModeView, IterationRow, LogFile, LogMatch,
    LogMatches, MetaError, OutcomeClassView, RunIterations, SessionStatus,
};
pub use run::{
    GoalView, LastEndView, LastError, LeafView, LimitsView, NeedsView, NeedsYou, RunHeadView,
    RunPhaseView, RunStateView, RunStatusView, ServerInfo, TotalsView, WaitView,
};
pub use tree::{
    ApiProblem, ApiProblemBody, PlanChangeKind, PlanChangeView, PlanNode, PlanView,
    TreeFindingView, TreeNode,
};
