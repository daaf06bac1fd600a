//! `cargo xtask attack`: tries the attacks on containment and writes the table of docs/containment.md.

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::TaskResult;
use crate::out;

pub(crate) const HELP: &str = "\
usage: cargo xtask attack [--check]

Lets sessions, setups and guards try every attack of crates/cli/tests/attack_support/list.rs
under bubblewrap, Landlock and no sandbox, as root (where this is root) and as an ordinary
user, and writes the table of docs/containment.md.

  --check   writes nothing; fails where an attack gets further than the table says
            (`cargo xtask ci` does this, too)";

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let only_checks = args.flag("--check");
    args.finish()?;
    let test = ToolCommand::cargo("test --locked --quiet --package runner-cli --test attacks");
    let test = if only_checks {
        test
    } else {
        test.env("RUNNER_ATTACK_WRITE", "1")
    };
    out::step("attacks", || {
        test.hint("crates/cli/tests/attacks.rs says how it is found out")
            .run()
    })
}
