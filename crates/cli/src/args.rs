//! The arguments, with their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0    success: a leaf was selected, an iteration was recorded, the loop completed the tree
       or stopped where you asked
  1    error: layout, config, tree, identity, git, agent, guard could not run, iteration limit;
       a difference in replay, a proof that does not hold in verify, findings in validate or
       doctor, a change that retry or edit refuses, an outcome of eval run that is not expected
  2    select, step, fleet up: nothing to do (and wrong usage)
  3    stuck: the next leaf has used up its attempts and has not passed; fleet up --until-idle:
       a task is not done
  130  interrupted: children ended, state consistent, nothing lost

Environment:
  RUNNER_RETRY_DELAYS_SECS  pauses of the loop before it tries again after an error (10,60,300)
  RUNNER_STORE              the ledger of `fleet`, `task`, `ledger` (.runner/fleet/ledger.db)
  RUNNER_FLEET_COOLDOWN_SECS  how long a task waits after its first failed run (30)
  NO_COLOR                  no colours
  VISUAL, EDITOR            the editor of `runner edit`; VISUAL comes first

stdout is data, everything else goes to stderr.";

/// Drives a coding agent to a goal: one task tree, one leaf at a time, and a
/// guard that alone decides what passed.
#[derive(Debug, Parser)]
#[command(
    name = "runner",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("RUNNER_COMMIT"), ")"),
    after_help = EXIT_CODES,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    /// Whether this is the process that `loop --detach` started.
    #[arg(skip)]
    pub(crate) detached: bool,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GlobalOptions {
    /// The project: a folder with a .runner/, or one below it
    #[arg(
        short = 'C',
        long,
        global = true,
        default_value = ".",
        value_name = "DIR",
        hide_default_value = true
    )]
    pub(crate) project_dir: PathBuf,
    /// Print JSON: one object, for `loop`, `log --follow`, `eval run`, `fleet up` and `fleet demo` one a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", hide_default_value = true)]
    pub(crate) color: ColorChoice,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal
    Auto,
    /// Everywhere
    Always,
    /// Nowhere
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Make a .runner/ here and say what was chosen
    Init(InitArgs),
    /// Begin the run that .runner/GOAL.md describes, on a branch of its own
    Start {
        /// Go to this run instead, from wherever you are; also to one that was abandoned
        run: Option<String>,
        /// Begin without trying setup and guard on the base first; a run whose guard cannot run
        /// there is refused otherwise
        #[arg(long)]
        no_guard_check: bool,
        /// Leave the checkout where it is instead of going to the run's branch
        #[arg(long)]
        stay: bool,
    },
    /// Bring the checkout of the run's branch to where the run is
    Follow,
    /// Check layout, config, tree and run identity; all findings at once
    Validate,
    /// Print the leaf that the next step would take
    Select,
    /// Take one step: one session, one decision, one commit
    Step,
    /// Take steps until the tree is complete, stuck, or something ends them
    Loop(LoopArgs),
    /// Ask the running loop to end after its iteration
    Stop {
        /// End it at once, as Ctrl-C would: the next start settles its iteration
        #[arg(long)]
        now: bool,
        /// Do not wait for its end
        #[arg(long)]
        no_wait: bool,
    },
    /// Show where the run is
    Status,
    /// Draw the task tree
    Tree,
    /// List the iterations, show one in full, or follow the running one
    Log {
        /// The iteration's number
        iter: Option<u32>,
        /// Only those of this node, and what they used together
        #[arg(long, value_name = "NODE", conflicts_with = "iter")]
        node: Option<String>,
        /// Show what happens as it happens, until the loop ends
        #[arg(short, long, conflicts_with_all = ["iter", "node"])]
        follow: bool,
    },
    /// Show the morning page: passed, stuck and why, changes, time, cost, what to type next
    Report {
        /// Print Markdown
        #[arg(long, conflicts_with = "json")]
        md: bool,
    },
    /// Give a stuck leaf more attempts, as a commit
    Retry {
        /// The leaf's id
        node: String,
        /// How many more (default: `max_attempts_default` of the config)
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        attempts: Option<u32>,
    },
    /// Change goal, config, tree or questions in your editor: checked, then committed
    Edit {
        /// What to change
        #[arg(value_enum)]
        what: EditWhat,
        /// Take the new text from this file instead ('-': from stdin)
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List the runs of this repository
    Runs,
    /// Bring the result of a complete run home: one commit without .runner/
    Land(LandArgs),
    /// Leave a run and go back to the branch that it began from
    Abandon {
        /// The run; without it: the one that is checked out, or the only one
        run: Option<String>,
        /// Delete its branch too; its commits are kept under refs/runner/abandoned/
        #[arg(long)]
        delete: bool,
    },
    /// Remove private checkouts that a crash left behind, and say how much that freed
    Clean {
        /// Those of all projects, and everything of projects that are gone
        #[arg(long)]
        all: bool,
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Move out of the way what a session left and no command gets past, and make workspaces anew
    ///
    /// The last resort: the workspace and the clean checkout of each run that goes on, and of the
    /// task runs of a fleet, go to a quarantine beside them and are made anew from the branch. Every
    /// record, commit and reference stays as it is. What git ignores is made again by setup.
    Rescue {
        /// One run; without it: all that go on
        run: Option<String>,
        /// Only say what would be moved
        #[arg(long)]
        dry_run: bool,
    },
    /// Watch the run live in the terminal: j, k, g, G move, q leaves
    Watch,
    /// Say why a node is, or is not, next, or why a task of the fleet is not running
    Why {
        /// A node's id, or a task's; without it: the next leaf
        node: Option<String>,
    },
    /// Derive every recorded iteration again and compare byte for byte
    Replay {
        /// The run; without it: the current one
        run: Option<String>,
    },
    /// Run the guard again at the commit that passed a node, and say who signed it
    Verify {
        /// A node's id
        node: String,
    },
    /// Check git, guard, agent, sandbox, disk and clock; each finding with its remedy
    Doctor {
        /// Also run the guard at HEAD, outside and inside the sandbox, and with planted breaks
        #[arg(long)]
        run_guard: bool,
    },
    /// Show the run in the browser, live; only looks, never writes
    Ui(UiArgs),
    /// Run loops on declared cases and learn, with numbers, how good they are
    Eval(crate::commands::eval::EvalArgs),
    /// Many tasks at once, each in a repository of its own: up, status, pause, cancel, demo
    Fleet(Box<crate::fleet_args::FleetArgs>),
    /// The tasks of a fleet, step by step: by hand, from a script or by an agent
    Task(Box<crate::ledger_args::TaskArgs>),
    /// Check, rebuild, export or import the ledger of a fleet
    Ledger(crate::ledger_args::LedgerArgs),
    /// Play a whole run in a temporary repository: no model, no network
    Demo {
        /// Where to make the repository (default: a new temporary folder)
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print a published JSON schema: `tree`, `agent_output`, `assignment` or `result`
    Schema {
        /// tree, agent_output, assignment or result
        name: String,
    },
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What `edit` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EditWhat {
    /// .runner/GOAL.md; its id stays
    Goal,
    /// .runner/state/config.toml
    Config,
    /// .runner/state/tree.json; what has passed stays
    Tree,
    /// .runner/state/questions.md, to answer them
    Questions,
}

/// Options of `init`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Replace what is there (a copy is kept)
    #[arg(long, conflicts_with = "upgrade")]
    pub(crate) force: bool,
    /// Renew the runner's own files and add missing ones; keep everything else
    #[arg(long)]
    pub(crate) upgrade: bool,
    /// The guard: the command that decides what passed, e.g. 'cargo test'
    #[arg(long, value_name = "CMD", conflicts_with = "upgrade")]
    pub(crate) guard: Option<String>,
    /// The agent: codex, claude, opencode or command
    #[arg(long, value_name = "NAME", conflicts_with = "upgrade")]
    pub(crate) backend: Option<String>,
    /// What shall be true in the end: written to GOAL.md, its first line as the title
    #[arg(long, value_name = "TEXT", conflicts_with = "upgrade")]
    pub(crate) goal: Option<String>,
    /// Do not try setup and guard in a clean checkout
    #[arg(long)]
    pub(crate) no_try: bool,
}

/// Options of `land`.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Options of the command line, as they are.
pub(crate) struct LandArgs {
    /// The run; without it: the one that is checked out, or the only one
    pub(crate) run: Option<String>,
    /// The branch to land on; without it: the one that the run began from
    #[arg(long, value_name = "BRANCH")]
    pub(crate) into: Option<String>,
    /// Make a commit with two parents, which brings the run's history along
    #[arg(long, conflicts_with = "squash")]
    pub(crate) merge: bool,
    /// Make one commit of it (the default)
    #[arg(long)]
    pub(crate) squash: bool,
    /// Take .runner/ along
    #[arg(long)]
    pub(crate) keep_state: bool,
    /// The run is not complete: land what the guard has passed so far
    #[arg(long)]
    pub(crate) partial: bool,
    /// The result passes only with tests or settings that the run changed: land it all the same, and
    /// record that
    #[arg(long)]
    pub(crate) accept_changed_judge: bool,
}

/// Options of `ui`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UiArgs {
    /// The port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 7878)]
    pub(crate) port: u16,
    /// The address to listen on; beyond this machine a token is asked for
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub(crate) bind: std::net::IpAddr,
    /// Open the page in the browser
    #[arg(long)]
    pub(crate) open: bool,
}

/// Options of `loop`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoopArgs {
    /// At most N iterations in this call
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u32>,
    /// Begin no iteration after this long, e.g. 90m or 8h
    #[arg(long = "for", value_name = "DUR", value_parser = parse_duration)]
    pub(crate) for_duration: Option<Duration>,
    /// Begin no iteration after this time of day, e.g. 07:30
    #[arg(long, value_name = "HH:MM", value_parser = parse_time)]
    pub(crate) until: Option<jiff::civil::Time>,
    /// When the agent's quota is used up, wait for it instead of ending
    #[arg(long)]
    pub(crate) wait_quota: bool,
    /// Run in the background, with a log file; it survives this terminal
    #[arg(long)]
    pub(crate) detach: bool,
}

/// `90`, `45s`, `90m`, `8h`, `1h30m`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration like 45s, 90m, 8h or 1h30m");
    let mut total: u64 = 0;
    let mut digits = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit: u64 = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        digits.clear();
        total = number
            .checked_mul(unit)
            .and_then(|secs| total.checked_add(secs))
            .ok_or_else(wrong)?;
    }
    if !digits.is_empty() {
        if total > 0 {
            return Err(wrong());
        }
        total = digits.parse().map_err(|_| wrong())?;
    } else if text.is_empty() {
        return Err(wrong());
    }
    Ok(Duration::from_secs(total))
}

fn parse_time(text: &str) -> Result<jiff::civil::Time, String> {
    let parse = || {
        let (hours, minutes) = text.split_once(':')?;
        if minutes.len() != 2 {
            return None;
        }
        jiff::civil::Time::new(hours.parse().ok()?, minutes.parse().ok()?, 0, 0).ok()
    };
    parse().ok_or_else(|| format!("{text:?} is not a time of day like 07:30"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations() {
        for (text, secs) in [
            ("90", Some(90)),
            ("45s", Some(45)),
            ("90m", Some(5400)),
            ("8h", Some(28800)),
            ("1h30m", Some(5400)),
            ("", None),
            ("h", None),
            ("1h30", None),
            ("1.5h", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(
                parse_duration(text).ok().map(|d| d.as_secs()),
                secs,
                "{text}"
            );
        }
    }

    #[test]
    fn times_of_day() {
        for (text, good) in [
            ("07:30", true),
            ("7:05", true),
            ("24:00", false),
            ("12:7", false),
            ("noon", false),
        ] {
            assert_eq!(parse_time(text).is_ok(), good, "{text}");
        }
    }
}
