//! `cargo xtask simulate`: the fleet's roles in memory, with everything going wrong, by seeds.

use crate::args::XtaskArgs;
use crate::cmd::{ToolCommand, release_bin};
use crate::failure::TaskResult;
use crate::out;

pub(crate) const HELP: &str = "\
usage: cargo xtask simulate [--seeds N] [--seed S]

Lets the roles of a fleet run in memory with crashes at every point, lost answers, slow
guards, quotas and conflicts, and checks what is left of each seed. A seed that does not
hold is printed: `runner fleet simulate --seed S --log` plays it again.

  --seeds N   how many (default 2000)
  --seed S    the first (default 1)";

/// How many seeds every run of ci has.
const SEEDS: u32 = 2000;

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let seeds = args.value("--seeds")?.unwrap_or(SEEDS);
    let seed = args.value("--seed")?.unwrap_or(1);
    args.finish()?;
    play(seeds, seed)
}

/// What every run of ci does.
pub(crate) fn play_for_ci() -> TaskResult<()> {
    play(SEEDS, 1)
}

fn play(seeds: u32, seed: u64) -> TaskResult<()> {
    ToolCommand::cargo("build --release --locked --package runner-cli").run()?;
    out::step("runner fleet simulate", || {
        ToolCommand::new(release_bin("runner"))
            .words("fleet simulate --seeds")
            .arg(seeds.to_string())
            .arg("--seed")
            .arg(seed.to_string())
            .hint("play the seed that it names again: `runner fleet simulate --seed S --log`")
            .run()
    })
}
