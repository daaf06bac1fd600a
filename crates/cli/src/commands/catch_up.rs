//! `runner follow`.

use std::path::Path;

use runner::{Project, Result};
use serde_json::json;

use super::Exit;
use crate::out::OutputGate;

/// Brings the checkout of the run's branch to where the run is.
pub(crate) fn run(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::find(dir)?;
    let report = runner::catch_up(&project)?;
    if out.json {
        out.object(json!({
            "run_id": report.run_id,
            "behind": report.behind,
            "in_the_way": report.in_the_way,
            "note": report.note,
        }));
    } else if let Some(note) = &report.note {
        out.say(&format!("run {}: {note}", report.run_id));
    } else if report.in_the_way.is_empty() {
        out.say(&format!(
            "run {}: branch and checkout are up to date",
            report.run_id
        ));
    } else {
        out.say(&format!("run {}: these are in the way:", report.run_id));
        for name in &report.in_the_way {
            out.say(&format!("  {name}"));
        }
        out.say("commit, stash or remove them, then run `runner follow` again");
    }
    Ok(if report.in_the_way.is_empty() {
        Exit::Success
    } else {
        Exit::Error
    })
}
