//! The arguments of `runner eval`, with their help.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `runner eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    pub(crate) command: EvalCommand,
    #[command(flatten)]
    pub(crate) folders: FolderArgs,
}

/// Where everything lies.
#[derive(Clone, Debug, Args)]
pub(crate) struct FolderArgs {
    /// Where the case files are (default: eval/cases)
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,
    /// Where the results are (default: eval/results)
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Where the workspaces and the links to them are (default: the workspaces in the cache
    /// folder, the links in eval/workspaces)
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) workspaces: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum EvalCommand {
    /// Make eval/ with a sample case
    Init,
    /// Check every case file and list the cases
    List,
    /// Run loops on cases; with no CASE on all of them
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Show success rates with their intervals, costs, durations and why runs failed
    Report {
        /// The case; without it: all
        case: Option<String>,
        /// Only this set: its label, its name, `latest`, `previous`, or the beginning of a
        /// config's or prompt's hash
        #[arg(long, value_name = "SET")]
        set: Option<String>,
        /// Write a page with charts to this file
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Say whether set B is better than set A, worse, or whether the runs are too few to tell
    Compare {
        /// A set: its label, its name, `latest`, `previous`, or the beginning of a config's or
        /// prompt's hash
        a: String,
        /// The other one
        b: String,
        /// Only this case
        #[arg(long, value_name = "CASE")]
        case: Option<String>,
    },
    /// Make cases from commits of this repository that changed both source and tests
    ///
    /// A commit becomes a case when its tests fail on the commit before it and pass on it; both
    /// are tried. The workspace is the commit before it with the new tests, the goal is the
    /// commit's message, the check is the tests.
    FromGit(FromGitArgs),
    /// Remove workspaces and results of cases
    Clean {
        /// The cases
        #[arg(value_name = "CASE", required_unless_present = "all")]
        names: Vec<String>,
        /// All cases that have results
        #[arg(long, conflicts_with = "names")]
        all: bool,
        /// Remove the workspaces alone
        #[arg(long)]
        keep_results: bool,
    },
}

const RUN_HELP: &str = "\
Exit codes:
  0    every outcome is the expected one (cases whose tools are missing are skipped)
  1    another outcome, a run that could not be recorded, or --max-cost was reached
  130  interrupted: what is recorded stays, `runner eval run --resume` makes the rest";

/// Options of `eval run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// The cases, by id
    #[arg(value_name = "CASE", conflicts_with = "resume")]
    pub(crate) names: Vec<String>,
    /// How many runs of each case
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, conflicts_with = "resume", value_parser = clap::value_parser!(u32).range(1..=9999))]
    pub(crate) runs: u32,
    /// How many at a time
    #[arg(long, value_name = "J", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) jobs: u32,
    /// The agent, in place of the one of the cases: BACKEND[:MODEL], 'command:CMD', or a TOML
    /// file with [executor]
    #[arg(long, value_name = "AGENT", conflicts_with = "resume")]
    pub(crate) executor: Option<String>,
    /// The runner to drive (default: this one)
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) runner: Option<PathBuf>,
    /// Begin no run once all together have cost this much, and let none cost more than is left
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    pub(crate) max_cost: Option<f64>,
    /// INSTRUCTIONS.md of every workspace (default: the project's own)
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) instructions: Option<PathBuf>,
    /// A name for this set of runs, for `report --set` and `compare`
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub(crate) label: Option<String>,
    /// Make the runs that the newest unfinished set still lacks
    #[arg(long)]
    pub(crate) resume: bool,
}

/// Options of `eval from-git`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FromGitArgs {
    /// The commits, such as v1.0..main
    #[arg(value_name = "REV..REV")]
    pub(crate) range: String,
    /// The command that runs the tests (default: as `runner init` finds a guard)
    #[arg(long, value_name = "CMD")]
    pub(crate) check: Option<String>,
    /// Which files are tests; may be given more than once
    #[arg(long, value_name = "GLOB")]
    pub(crate) tests: Vec<String>,
    /// A command that makes a checkout ready, such as 'npm ci'
    #[arg(long, value_name = "CMD")]
    pub(crate) setup: Option<String>,
    /// Try everything, write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn parse_usd(text: &str) -> Result<f64, String> {
    text.trim_start_matches('$')
        .parse()
        .ok()
        .filter(|usd: &f64| usd.is_finite() && *usd > 0.0)
        .ok_or_else(|| format!("{text:?} is not an amount like 2.50"))
}
