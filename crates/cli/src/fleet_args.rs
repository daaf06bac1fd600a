//! The arguments of `fleet`, with their help.

use clap::Subcommand;

use crate::ledger_args::{RetryArgs, StoreArgs};

/// `runner fleet …`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

/// What to do with a fleet.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show every task that has not ended, with why, and who does what
    Status {
        /// Those that have ended too
        #[arg(long)]
        all: bool,
    },
    /// Let nothing new start: in the whole fleet, or of one task
    Pause {
        /// The task; without it: the fleet
        id: Option<String>,
    },
    /// Let what was paused start again
    Resume {
        /// The task; without it: the fleet
        id: Option<String>,
    },
    /// Call a task off
    Cancel {
        /// The task
        id: String,
        /// Why
        #[arg(long, default_value = "called off by a person")]
        reason: String,
    },
    /// Go on with a blocked task, or make a successor of one that has ended
    Retry(RetryArgs),
}
