//! `runner watch`.

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::Path;

use runner::{Project, Result};
use runner_exec::{Cancel, HangUp};

use super::{Exit, status};
use crate::out::OutputGate;
use crate::watch;

/// The live view on a terminal; elsewhere what `runner status` prints, once.
pub(crate) fn run(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if out.json || dumb || !stdin().is_terminal() || !stdout().is_terminal() {
        return status::run(dir, out);
    }
    let project = Project::of_run(dir)?;
    // What can be said in words is said before the screen is taken over.
    runner::run_view(&project)?;
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    Ok(match watch::watch(&project, &cancel, out.paint)? {
        watch::WatchExit::ByKey => Exit::Success,
        watch::WatchExit::Interrupted => Exit::Interrupted,
    })
}
