//! `cargo xtask model`: the rules of the lifecycle in every state a small fleet can reach.

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::TaskResult;
use crate::out;

pub(crate) const HELP: &str = "\
usage: cargo xtask model [--all]

Explores every state that a small fleet of workers, judges, a watchdog and a cycle
manager can reach over the rules of crates/lifecycle, with crashes, lost answers and
calls that come late or twice, and prints how many states there are. Smaller spaces ask
whatever else can be asked, and damage the store. Then it leaves out one rule at a time
and shows that this is noticed.

  --all   larger spaces too, with more faults: many minutes";

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let all = args.flag("--all");
    args.finish()?;
    let words = "test --locked -p runner-lifecycle --lib model:: -- --nocapture --test-threads=1";
    let cmd = ToolCommand::cargo(words).hint("a failure names the steps that lead to it");
    let cmd = if all {
        cmd.arg("--include-ignored")
    } else {
        cmd
    };
    out::step("model", || cmd.run())
}
