//! `cargo xtask bench`: measurements against floors taken in the same run.
//!
//! Absolute times say little about a program on somebody else's machine. So each
//! figure stands beside a floor, the least that any program must do for the
//! same result, and both are measured by turns in the same run.

mod checkouts;
mod events;
mod floor;
mod r#loop;
mod measure;
mod project;
mod report;
mod stream;
mod stream_report;
mod tree;
mod ui;
mod ui_client;
mod ui_report;

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::{TaskFailure, TaskResult};

const BENCHMARKS: &str = "the benchmarks are: loop, stream, ui, ledger, fleet, proxy";

pub(crate) const HELP: &str = "\
usage: cargo xtask bench loop [--runs N] [--nodes N,N,...] [--files N,N,...] [--json] [--check]
       cargo xtask bench stream [--runs N] [--lines N] [--json] [--check]
       cargo xtask bench ui [--runs N] [--json]
       cargo xtask bench ledger [--only PART] [--sizes N,N,...] [--json] [--check]
       cargo xtask bench fleet [--tasks N] [--json]
       cargo xtask bench proxy [--runs N] [--json] [--check]

loop: on generated trees, `runner select` and `runner validate` against a bare
typed parse of the same bytes, and `runner step` against the same git commands
and durable writes, with the agent and the guard alone; the same in repositories of
different size, with and without a guard, without a sandbox, by Landlock and by
bubblewrap; and the folders that steps work in against `git read-tree -u` and
`git worktree add`.

stream: `runner step` with a session that prints a million events, against reading
the same pipe and parsing every line into typed values; the memory of that beside
the memory of a tenth of it; and what each sandbox adds to a step.

ui: `runner ui` on a tree of 10,000 nodes: from the rename of a file to its event
in a client; answers of /api/tree a second, against a thread that only sends the
same bytes; memory with 500 listeners.

ledger: whole lives of tasks on PostgreSQL and SQLite, synced, against the same number
of bare commits on the same store; commit to claim when idle; what a claim costs with
up to a million tasks stored.

fleet: tasks a second through dispatcher, ten workers and judges: without git against the
ledger's calls alone, with worktrees and merges against bare git that makes the same; from
`todo` to started when idle.

proxy: throughput of the proxy of a list of hosts, and the time to the first byte, against
a bare relay that only passes bytes on.

  --runs N        measurements of each, at least 7 (default 9); medians count;
                  stream: at least 5 (default 7); ui: at least 20 (default 60);
                  proxy: default 7
  --lines N       how many events (default 1000000)
  --nodes LIST    sizes of the trees (default 1000,10000,100000)
  --files LIST    how many files the repositories have (default 10,2000,20000)
  --only PART     of the ledger: lives, idle or claims
  --sizes LIST    how many tasks are stored (default 1000,100000,1000000)
  --tasks N       how many tasks a fleet is given (default 60)
  --json          the figures as JSON on stdout
  --check         fail where an aim is missed";

/// A mode in which this program is started by itself.
type BenchHelper = fn(&[String]) -> TaskResult<()>;

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    match args.positional().as_deref() {
        Some("loop") => r#loop::run(args),
        Some("stream") => stream::run(args),
        Some("ui") => ui::run(args),
        Some("ledger") => ledger(args),
        Some("fleet") => fleet(args),
        Some("proxy") => proxy(args),
        Some(other) => {
            Err(TaskFailure::usage(format!("there is no benchmark `{other}`")).hint(BENCHMARKS))
        }
        None => Err(TaskFailure::usage("which benchmark?").hint(BENCHMARKS)),
    }
}

/// A program of the ledger's own: it speaks to its stores as the ledger does.
fn ledger(mut args: XtaskArgs) -> TaskResult<()> {
    let sizes: Option<String> = args.value("--sizes")?;
    let only: Option<String> = args.value("--only")?;
    if let Some(part) = &only
        && !["lives", "idle", "claims"].contains(&part.as_str())
    {
        return Err(
            TaskFailure::usage(format!("the ledger has no part `{part}`"))
                .hint("the parts are: lives, idle, claims"),
        );
    }
    let (json, check) = (args.flag("--json"), args.flag("--check"));
    args.finish()?;
    let mut bench =
        ToolCommand::cargo("run --release --locked -q -p runner-ledger --example bench --");
    if let Some(sizes) = sizes {
        bench = bench.arg(format!("--sizes={sizes}"));
    }
    if let Some(part) = only {
        bench = bench.arg(format!("--only={part}"));
    }
    for (given, flag) in [(json, "--json"), (check, "--check")] {
        if given {
            bench = bench.arg(flag);
        }
    }
    bench.run()
}

/// A program of the fleet's own: it puts roles together as the command line does.
fn fleet(mut args: XtaskArgs) -> TaskResult<()> {
    let tasks: Option<u32> = args.value("--tasks")?;
    let json = args.flag("--json");
    args.finish()?;
    let mut bench =
        ToolCommand::cargo("run --release --locked -q -p runner-fleet --example fleet_bench --");
    if let Some(tasks) = tasks {
        bench = bench.arg(format!("--tasks={tasks}"));
    }
    if json {
        bench = bench.arg("--json");
    }
    bench.run()
}

/// A program of the proxy's own: it serves in its own process.
fn proxy(mut args: XtaskArgs) -> TaskResult<()> {
    let runs: Option<u32> = args.value("--runs")?;
    let (json, check) = (args.flag("--json"), args.flag("--check"));
    args.finish()?;
    let mut bench =
        ToolCommand::cargo("run --release --locked -q -p runner-proxy --example proxy_bench --");
    if let Some(runs) = runs {
        bench = bench.arg(format!("--runs={runs}"));
    }
    for (given, flag) in [(json, "--json"), (check, "--check")] {
        if given {
            bench = bench.arg(flag);
        }
    }
    bench.run()
}

/// The hidden mode of that name.
pub(crate) fn helper(name: &str) -> Option<BenchHelper> {
    match name {
        "__measure" => Some(measure::helper),
        "__parse" => Some(tree::helper),
        "__floor" => Some(floor::helper),
        "__events" => Some(events::helper),
        "__read" => Some(stream::read_helper),
        _ => None,
    }
}
