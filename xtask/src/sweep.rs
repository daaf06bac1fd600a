//! `cargo xtask sweep`: the runner killed at every write, and its recovery.

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::{TaskFailure, TaskResult};
use crate::out;

pub(crate) const HELP: &str = "\
usage: cargo xtask sweep [--sample N] [--seed S] [--all]

Kills the runner at every write, rename, fsync and spawn of a step, of start,
land and abandon, lets it recover, and checks that nothing is lost or done twice.

  --sample N   only N fault points, chosen by the seed
  --seed S     another choice (default 1); a failure names its seed
  --all        every fault point (the default)";

/// The seed unless one is named: fixed, so that a red sample stays red.
const DEFAULT_SEED: u64 = 1;

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let sample: Option<u32> = args.value("--sample")?;
    let seed = args.value("--seed")?.unwrap_or(DEFAULT_SEED);
    let all = args.flag("--all");
    args.finish()?;
    if all && sample.is_some() {
        return Err(TaskFailure::usage("--all and --sample exclude each other"));
    }
    let what = match sample {
        Some(sample) => format!("sweep over {sample} fault points, seed {seed}"),
        None => "sweep over all fault points".to_owned(),
    };
    out::step(&what, || command(sample, seed).run())
}

/// The test that sweeps; all fault points where no sample size is given.
pub(crate) fn command(sample: Option<u32>, seed: u64) -> ToolCommand {
    // Over the workspace, though only one crate has such a test: the same choice
    // of features as `cargo test --workspace`, so nothing is built twice.
    let words = "test --locked --workspace --test sweep -- --ignored --nocapture";
    let hint = format!("repeat with `cargo xtask sweep --seed {seed}` and the same --sample");
    let cmd = ToolCommand::cargo(words)
        .env("RUNNER_SWEEP_SEED", seed.to_string())
        .hint(hint);
    match sample {
        Some(sample) => cmd.env("RUNNER_SWEEP_SAMPLE", sample.to_string()),
        None => cmd,
    }
}
