//! The arguments of `task` and `ledger`, with their help.

use std::path::PathBuf;

use clap::Subcommand;

/// Which ledger.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// The ledger: a file, or postgres://user@host/database (default: what
    /// `RUNNER_STORE` says, else .runner/fleet/ledger.db of the project)
    #[arg(long, global = true, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

/// `runner task …`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TaskArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Who asks, as events name it
    #[arg(long, global = true, default_value = "person", value_name = "NAME")]
    pub(crate) actor: String,
    /// A name for this request: a repeat with the same name gets the same answer (for
    /// `start`: its key)
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) request_id: Option<String>,
    #[command(subcommand)]
    pub(crate) command: TaskCommand,
}

/// What to do with a task.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Make a task
    Add(AddArgs),
    /// List tasks in the order of their ids
    List {
        /// Only those in that state: todo, `in_progress`, blocked, done, failed, canceled
        #[arg(long)]
        state: Option<String>,
        /// Only those of that role
        #[arg(long)]
        role: Option<String>,
        /// Only those after that id: the next page
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show a task and its history
    Show {
        /// The task
        id: String,
    },
    /// Claim a task, or the first that can start
    Start(StartArgs),
    /// Say that the owner of a lease lives
    Heartbeat {
        /// The task
        id: String,
        #[command(flatten)]
        lease: LeaseArgs,
    },
    /// Say how a lease ended
    Finish(FinishArgs),
    /// Say what is in the way of a task
    Block {
        /// The task
        id: String,
        /// The code, such as `LOCK_CONFLICT`
        #[arg(long)]
        code: String,
        /// The same in words
        #[arg(long)]
        reason: String,
        /// What it waits for
        #[arg(long, value_name = "WHAT")]
        waits_for: Option<String>,
        /// The token of your lease, if you work on it
        #[arg(long, requires = "owner")]
        token: Option<u64>,
        /// Who you are, if you work on it
        #[arg(long, requires = "token")]
        owner: Option<String>,
    },
    /// Call a task off
    Cancel {
        /// The task
        id: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Accept a result that passes only with tests or settings that it changed itself
    Accept {
        /// The task
        id: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Go on with a blocked task, or make a successor of one that has ended
    Retry(RetryArgs),
    /// Print the events of a task, oldest first
    Events {
        /// The task
        id: String,
    },
    /// Say why a task is not running
    Why {
        /// The task
        id: String,
    },
}

/// A new task.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Its id: letters, digits, `.`, `_` and `-`, as a git ref may have them
    pub(crate) id: String,
    /// What it may change: a path of the repo, or a glob; several are possible
    #[arg(long, required = true, value_name = "PATH")]
    pub(crate) scope: Vec<String>,
    /// What it may not change, though it lies inside
    #[arg(long, value_name = "PATH")]
    pub(crate) forbid: Vec<String>,
    /// A few words
    #[arg(long, default_value = "")]
    pub(crate) title: String,
    /// What shall be so
    #[arg(long, default_value = "")]
    pub(crate) goal: String,
    /// Which agents get it
    #[arg(long, default_value = "worker")]
    pub(crate) role: String,
    /// low, normal, high or critical
    #[arg(long, default_value = "normal")]
    pub(crate) priority: String,
    /// low, medium or high
    #[arg(long, default_value = "medium")]
    pub(crate) risk: String,
    /// A task that must be done first; several are possible
    #[arg(long, value_name = "ID")]
    pub(crate) depends: Vec<String>,
    /// A criterion that a command checks, as ID=TEXT (default: guard)
    #[arg(long, value_name = "ID=TEXT")]
    pub(crate) accept: Vec<String>,
    /// A criterion that a judge checks, as ID=TEXT
    #[arg(long, value_name = "ID=TEXT")]
    pub(crate) review: Vec<String>,
    /// It changes nothing in the repo, and ends without a merge
    #[arg(long)]
    pub(crate) no_change: bool,
    /// How many seconds nothing may be heard of its owner
    #[arg(long, default_value_t = 90, value_name = "SECS")]
    pub(crate) timeout: u32,
    /// Every how many seconds the owner says that it lives
    #[arg(long, default_value_t = 15, value_name = "SECS")]
    pub(crate) heartbeat: u32,
    /// How many seconds a run may take
    #[arg(long, default_value_t = 3600, value_name = "SECS")]
    pub(crate) timebox: u32,
}

/// A claim.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// The task; without it: the first that can start
    pub(crate) id: Option<String>,
    /// Who shall hold the lease
    #[arg(long)]
    pub(crate) owner: String,
    /// What for: work, judge or merge
    #[arg(long, default_value = "work")]
    pub(crate) purpose: String,
    /// Whose tasks, without an ID
    #[arg(long, default_value = "worker")]
    pub(crate) role: String,
    /// The base of the merge queue, for a merge
    #[arg(long)]
    pub(crate) base: Option<String>,
    /// Your own name for this claim: a repeat gets the same lease (default: a new one)
    #[arg(long)]
    pub(crate) key: Option<String>,
}

/// Going on.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// The task
    pub(crate) id: String,
    /// The id of the successor, if there is one (default: the first task of the lineage,
    /// -r and a number)
    #[arg(long = "as", value_name = "ID")]
    pub(crate) successor: Option<String>,
    /// Another scope, for a task whose packet was wrong; several are possible
    #[arg(long, value_name = "PATH")]
    pub(crate) scope: Vec<String>,
    /// What it may not change inside that (default: as before)
    #[arg(long, value_name = "PATH", requires = "scope")]
    pub(crate) forbid: Vec<String>,
    /// Which agents get it, for a task that waits for that to be known
    #[arg(long)]
    pub(crate) role: Option<String>,
}

/// Whose lease.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LeaseArgs {
    /// Who holds the lease
    #[arg(long)]
    pub(crate) owner: String,
    /// The token that `start` printed
    #[arg(long)]
    pub(crate) token: u64,
}

/// How a lease ended.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("ending").required(true))]
#[allow(clippy::struct_excessive_bools)] // options of the command line, as they are
pub(crate) struct FinishArgs {
    /// The task
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// Work: there is a result
    #[arg(long, group = "ending", requires = "packet")]
    pub(crate) success: bool,
    /// Work: it failed; env, setup, permission, `no_change`, policy, test, flaky, model,
    /// `model_loop` or budget
    #[arg(long, group = "ending", value_name = "CATEGORY")]
    pub(crate) failed: Option<String>,
    /// Work: it was cut off
    #[arg(long, group = "ending")]
    pub(crate) lost: bool,
    /// Work: it was stopped in order; nothing is counted
    #[arg(long, group = "ending")]
    pub(crate) give_back: bool,
    /// Work, judge, merge: the quota of that account is used up; nothing is counted
    #[arg(long, group = "ending", value_name = "ACCOUNT")]
    pub(crate) quota: Option<String>,
    /// When the quota is there again, as 2026-01-31T18:00:00Z (default: later each time)
    #[arg(long, value_name = "TIME", requires = "quota")]
    pub(crate) until: Option<String>,
    /// Judge: every criterion holds
    #[arg(long, group = "ending", requires = "packet")]
    pub(crate) approve: bool,
    /// Judge: more is needed; verdict, conflict, setup or policy
    #[arg(long, group = "ending", value_name = "CAUSE")]
    pub(crate) reject: Option<String>,
    /// Judge: an evaluator could not run
    #[arg(long, group = "ending")]
    pub(crate) unable: bool,
    /// Judge, merge: it keeps its place, and nothing is counted
    #[arg(long, group = "ending")]
    pub(crate) step_back: bool,
    /// Merge: the base shall move from OLD to NEW
    #[arg(long, group = "ending", num_args = 2, value_names = ["OLD", "NEW"], requires = "packet")]
    pub(crate) intent: Option<Vec<String>>,
    /// Merge: where the base stands now; merged, old or elsewhere
    #[arg(long, group = "ending", value_name = "BASE")]
    pub(crate) settle: Option<String>,
    /// The result packet, a JSON file, or - for stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) packet: Option<PathBuf>,
    /// The commit that is the result
    #[arg(long, value_name = "COMMIT")]
    pub(crate) result: Option<String>,
    /// The failure in its normal form
    #[arg(long, value_name = "TEXT")]
    pub(crate) signature: Option<String>,
    /// Why, in words
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) note: String,
}

/// `runner ledger …`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LedgerArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

/// What to do with a ledger.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Compare everything with everything
    Check,
    /// Make every row that differs from its events anew, and end what nobody works on
    Rebuild {
        /// Only say which rows would be
        #[arg(long)]
        check: bool,
    },
    /// Write everything as lines of JSON
    Export {
        /// Where to (default: stdout)
        file: Option<PathBuf>,
    },
    /// Read an export into an empty ledger
    Import {
        /// The export, or - for stdin
        file: PathBuf,
    },
}
