//! `runner start`.

use std::cell::RefCell;
use std::path::Path;

use runner::{Project, Result, StartOptions};
use serde_json::json;

use super::{Exit, with_context};
use crate::out::OutputGate;

/// Begins the run, or takes it up again.
pub(crate) fn run(
    dir: &Path,
    named: Option<&str>,
    options: StartOptions,
    out: &mut OutputGate,
) -> Result<Exit> {
    let project = match named {
        Some(_) => Project::of_work_tree(dir)?,
        None => Project::find(dir)?,
    };
    let cell = RefCell::new(&mut *out);
    let report = with_context(&cell, false, |context| match named {
        Some(run) => runner::go_to_run(&project, run, options.stay, context),
        None => runner::start(&project, options, context),
    })?;
    if out.json {
        out.object(json!({
            "run_id": report.run_id,
            "branch": report.branch,
            "base": report.base,
            "committed": report.committed,
            "new_run": report.new_run,
            "guard_at_base": report.guard_at_base.as_str(),
        }));
        return Ok(Exit::Success);
    }
    let what = match (report.new_run, report.committed) {
        (true, _) => format!(
            "run {} begins on branch {} (from {})",
            report.run_id, report.branch, report.base
        ),
        (false, true) => format!(
            "run {}: your changes in .runner/ are committed",
            report.run_id
        ),
        (false, false) if options.stay => format!(
            "run {} is on branch {}; the checkout stays where it is",
            report.run_id, report.branch
        ),
        (false, false) if named.is_some() => {
            format!("you are on run {}, branch {}", report.run_id, report.branch)
        }
        (false, false) => format!(
            "run {} is on branch {}; nothing to do",
            report.run_id, report.branch
        ),
    };
    out.say(&what);
    out.say("next: `runner step` for one iteration, `runner loop` until it is done");
    Ok(Exit::Success)
}
