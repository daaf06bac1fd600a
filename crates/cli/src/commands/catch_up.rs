//! `runner follow`.

use std::path::Path;

use runner::{CheckoutPosition, Project, Result};
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
        }));
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

/// What a person should know about their checkout, in a line.
pub(crate) fn about(position: &CheckoutPosition) -> Option<String> {
    match position {
        CheckoutPosition::UpToDate => None,
        CheckoutPosition::Behind(1) => {
            Some("your checkout is 1 commit behind; `runner follow` brings it along".to_owned())
        }
        CheckoutPosition::Behind(count) => Some(format!(
            "your checkout is {count} commits behind; `runner follow` brings it along"
        )),
        CheckoutPosition::Elsewhere(Some(branch)) => Some(format!("your checkout is on {branch}")),
        CheckoutPosition::Elsewhere(None) => Some("your checkout is on no branch".to_owned()),
        CheckoutPosition::Landed { branch, commit } => {
            let short = commit.get(..12).unwrap_or(commit);
            Some(format!("landed on {branch} ({short})"))
        }
    }
}
