//! `cargo xtask demo`: the release binary, and a whole run played with it.

use crate::args::Args;
use crate::cmd::{Cmd, release_bin};
use crate::failure::Result;
use crate::out;

pub(crate) const HELP: &str = "\
usage: cargo xtask demo

Builds the release binary and plays a whole run with it, from an empty folder to
a complete tree: no model, no network, over in seconds.";

pub(crate) fn run(args: Args) -> Result<()> {
    args.finish()?;
    build_and_play()?;
    let binary = release_bin("runner");
    out::note(&format!("the binary is {}", binary.display()));
    out::note("`cargo xtask install` puts it on your PATH");
    out::note(
        "then, in a repository of yours: `runner init`, write .runner/GOAL.md, `runner start`, `runner loop`",
    );
    Ok(())
}

/// Builds what a user gets and shows it at work.
pub(crate) fn build_and_play() -> Result<()> {
    let build = Cmd::cargo("build --release --locked --package runner-cli");
    out::step(&build.label(), || build.run())?;
    out::step("runner demo", || {
        Cmd::new(release_bin("runner"))
            .arg("demo")
            .hint("`runner demo -v` says more")
            .run()
    })
}
