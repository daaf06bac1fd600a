//! The arguments of `fleet`, with their help.

use std::path::PathBuf;

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
    /// Plan, work, judge and merge until Ctrl-C: all roles in one process, the API on
    /// loopback. The same command goes on where the last one ended
    Up(UpArgs),
    /// Play a whole fleet in a temporary repository: failures, a quota, conflicts, a killed
    /// worker; no model, no network
    Demo {
        /// A new or empty folder to keep it in (default: a temporary one)
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
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
    /// Accept a result that passes only with tests or settings that it changed itself
    Accept {
        /// The task
        id: String,
        /// Why
        #[arg(long, default_value = "read and accepted by a person")]
        reason: String,
    },
    /// Go on with a blocked task, or make a successor of one that has ended
    Retry(RetryArgs),
    /// Let the roles of a fleet run in memory with crashes, lost answers and bad luck, by a
    /// seed: the same one gives the same, and a failing one is told
    Simulate {
        /// The first seed
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// How many, on all processors
        #[arg(long, default_value_t = 1, value_name = "N")]
        seeds: u32,
        /// Print everything that happens
        #[arg(long)]
        log: bool,
    },
    /// Print the token of the API, which lies outside the project where no session can read it
    Token(TokenArgs),
    /// Ask the API that `up` or `serve` serves here, over its socket, and print the answer
    Api(AskArgs),
    /// Serve the API alone
    Serve {
        #[command(flatten)]
        at: ApiArgs,
    },
    /// Give ready tasks to agents, alone, and watch over leases
    Dispatcher {
        #[command(flatten)]
        red_base: RedBaseArgs,
    },
    /// Work on tasks, alone: on this machine or another one that reaches store and repo
    Worker {
        /// worker, tester or docser
        #[arg(long, default_value = "worker", value_parser = ["worker", "tester", "docser"])]
        role: String,
        /// Its name in every life (default: the first that nobody has here, such as worker-1)
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        red_base: RedBaseArgs,
    },
    /// Judge and merge, alone
    Judge {
        /// Its name in every life (default: the first that nobody has here, such as judge-1)
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        red_base: RedBaseArgs,
    },
    /// Lead on blocked tasks and bring in issues, alone, and watch over leases
    Cycle,
    /// Make tasks of the requirement, alone
    Planner {
        /// What shall be true in the end, or @FILE (default: .runner/fleet/requirement.md)
        #[arg(long, value_name = "TEXT|@FILE")]
        requirement: Option<String>,
    },
}

/// What to print.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TokenArgs {
    /// As the header that requests take: `runner fleet token --header | curl -H @- …` shows it to no
    /// list of processes
    #[arg(long, conflicts_with = "link")]
    pub(crate) header: bool,
    /// A link for a browser instead, which works once and within five minutes
    #[arg(long)]
    pub(crate) link: bool,
}

/// One request.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// What to ask, such as /tasks or '/events?after=0'
    pub(crate) path: String,
    /// The body, or @FILE; @- is standard input
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) data: Option<String>,
    /// The method (default: GET, with a body POST)
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
}

/// Where the API is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// The port of the API; 0 takes a free one (default: `[fleet] port`)
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// The address that the API listens on; beyond this machine /health takes the token too
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub(crate) bind: std::net::IpAddr,
}

/// What to do while the guard is red on the base.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RedBaseArgs {
    /// While the guard is red on the base: `fix` lets only the task begin that fixes it, `work`
    /// lets everything begin
    #[arg(long, value_name = "WHAT", default_value = "fix", value_parser = ["fix", "work"])]
    pub(crate) on_red_base: String,
}

/// `runner fleet up`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// What shall be true in the end, or @FILE: it becomes tasks, once (default:
    /// .runner/fleet/requirement.md). Issues in .runner/fleet/issues/*.md come first
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) requirement: Option<String>,
    /// How many workers (default: `[fleet] workers`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) workers: Option<u32>,
    /// How many testers (default: `[fleet] testers`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) testers: Option<u32>,
    /// How many docsers (default: `[fleet] docsers`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) docsers: Option<u32>,
    /// How many judges (default: `[fleet] judges`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) judges: Option<u32>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) red_base: RedBaseArgs,
    /// End when every task has ended or waits for a person
    #[arg(long)]
    pub(crate) until_idle: bool,
}
