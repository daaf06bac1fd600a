//! `cargo xtask fleet-kill`: a whole fleet killed again and again, and its recovery.

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::TaskResult;
use crate::out;

pub(crate) const HELP: &str = "\
usage: cargo xtask fleet-kill [--tasks N] [--seed S]

Lets `runner fleet up` work on real git with a scripted agent, kills the whole process
at random moments, starts it again until everything has come to an end, and checks that
nothing is lost, nothing is merged twice and nothing is left behind.

  --tasks N    how many tasks, at least 12 (default 40); a third as many kills
  --seed S     other moments (default 1); a failure names its seed";

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let tasks: u32 = args.value("--tasks")?.unwrap_or(40);
    let seed: u64 = args.value("--seed")?.unwrap_or(1);
    args.finish()?;
    let words = "test --locked --workspace --test fleet_kill -- --ignored --nocapture";
    let hint = format!("repeat with `cargo xtask fleet-kill --tasks {tasks} --seed {seed}`");
    let kill = ToolCommand::cargo(words)
        .env("RUNNER_FLEET_TASKS", tasks.to_string())
        .env("RUNNER_FLEET_SEED", seed.to_string())
        .hint(hint);
    let what = format!("a fleet with {tasks} tasks, killed again and again, seed {seed}");
    out::step(&what, || kill.run())
}
