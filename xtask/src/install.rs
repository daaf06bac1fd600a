//! `cargo xtask install`: the `runner` command for this user.

use std::path::PathBuf;

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::TaskResult;
use crate::{out, ui};

pub(crate) const HELP: &str = "\
usage: cargo xtask install [--root DIR]

Builds the page of `runner ui` (which takes Node.js; without it that is left out)
and the runner command, and installs that for you.

  --root DIR   into DIR/bin (default: where cargo install puts programs)";

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let root: Option<PathBuf> = args.value("--root")?;
    args.finish()?;
    let mut install = ToolCommand::cargo("install --locked --path crates/cli");
    if let Some(root) = &root {
        // Relative to where the user is, not to the workspace.
        let here = std::env::current_dir().unwrap_or_default();
        install = install.arg("--root").arg(here.join(root));
    }
    ui::build_if_possible();
    out::step(&install.label(), || install.run())?;
    out::note("try `runner demo`, then `runner init` in a project of yours");
    Ok(())
}
