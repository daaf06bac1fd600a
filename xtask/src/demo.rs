//! `cargo xtask demo`: the release binary, and a whole run played with it.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::args::XtaskArgs;
use crate::cmd::{ToolCommand, release_bin, target_dir};
use crate::failure::{FailureContext as _, TaskResult};
use crate::{out, ui};

pub(crate) const HELP: &str = "\
usage: cargo xtask demo

Builds the page of `runner ui` (which takes Node.js; without it that is left out),
then the release binary, and plays a whole run with it, from an empty folder to a
complete tree: no model, no network, over in seconds. What the run leaves is in
the build's folder `demo`, until the next one.";

pub(crate) fn run(args: XtaskArgs) -> TaskResult<()> {
    args.finish()?;
    ui::build_if_possible();
    build_and_play()?;
    let binary = release_bin("runner");
    out::note(&format!("the binary is {}", binary.display()));
    out::note("`cargo xtask install` puts it on your PATH");
    out::note(
        "then, in a repository of yours: `runner init`, write .runner/GOAL.md, `runner start`, `runner loop`",
    );
    out::note("to see the demo's run in the browser:");
    out::note(&format!(
        "{} -C {} ui --open",
        binary.display(),
        folder().display()
    ));
    out::note("to see many agents at once, with all that goes wrong among them:");
    out::note(&format!("{} fleet demo", binary.display()));
    Ok(())
}

/// Builds what a user gets and shows it at work.
pub(crate) fn build_and_play() -> TaskResult<()> {
    let build = ToolCommand::cargo("build --release --locked --package runner-cli");
    out::step(&build.label(), || build.run())?;
    let folder = folder();
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context(format!("cannot remove {}", folder.display()));
        }
        _ => {}
    }
    out::step("runner demo", || {
        ToolCommand::new(release_bin("runner"))
            .words("demo --dir")
            .arg(&folder)
            .hint("`runner demo -v` says more")
            .run()
    })
}

/// Where the run is played, and can be looked at afterwards.
fn folder() -> PathBuf {
    target_dir().join("demo")
}
