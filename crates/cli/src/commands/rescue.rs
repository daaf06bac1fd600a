//! `runner rescue`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner::{RescueOptions, RescueReport, Result, StuckPath};
use serde_json::{Value, json};

use super::Exit;
use crate::out::OutputGate;

/// Moves what no command gets past out of the way, and says what it did.
pub(crate) fn run(dir: &Path, options: &RescueOptions, out: &mut OutputGate) -> Result<Exit> {
    let report = runner::rescue(dir, options)?;
    if out.json {
        out.object(as_json(&report, options.dry_run));
    } else {
        tell(&report, options.dry_run, out);
    }
    let all_done = report.stuck.is_empty() && report.in_use.is_empty();
    Ok(if all_done { Exit::Success } else { Exit::Error })
}

fn as_json(report: &RescueReport, dry_run: bool) -> Value {
    let moved: Vec<Value> = report
        .moved
        .iter()
        .map(|it| json!({"run_id": it.run_id, "from": it.from, "to": it.to}))
        .collect();
    json!({
        "dry_run": dry_run,
        "moved": moved,
        "made": report.made,
        "in_use": report.in_use,
        "stuck": stuck_as_json(&report.stuck),
        "cut_off": report.cut_off,
    })
}

fn tell(report: &RescueReport, dry_run: bool, out: &mut OutputGate) {
    let mut runs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for it in &report.moved {
        runs.entry(&it.run_id).or_default().push(shortened(&it.to));
    }
    for (run_id, places) in runs {
        let did = if dry_run { "would be moved" } else { "moved" };
        let places = places.join(", ");
        let anew = if report.made.is_empty() {
            ""
        } else {
            " and made anew from the run's last commit"
        };
        out.say(&format!("run {run_id}: {did} to {places}{anew}"));
    }
    for run_id in &report.cut_off {
        out.say(&format!(
            "run {run_id}: its last session was cut off; what that changed is in the quarantine alone"
        ));
    }
    for path in &report.in_use {
        out.say(&format!("in use, left alone: {}", path.display()));
        out.say(&format!(
            "hint: `fuser {}.session {0}.lock` names who uses it; end that, then `runner rescue` again",
            path.display()
        ));
    }
    tell_stuck(&report.stuck, out);
    if report.moved.is_empty() && report.in_use.is_empty() && report.stuck.is_empty() {
        out.say("nothing to rescue: every workspace is the last commit of its run");
    } else if !dry_run && !report.moved.is_empty() {
        out.say("records, commits and references are as they were; next: `runner loop`");
    }
}

/// A path below the private folder as a person tells it from others; `--json` has all of it.
fn shortened(path: &Path) -> String {
    let names: Vec<_> = path.iter().rev().take(2).collect();
    let short: PathBuf = names.into_iter().rev().collect();
    format!("…/{}", short.display())
}

/// What cannot be moved or removed, with the command that helps.
pub(super) fn tell_stuck(stuck: &[StuckPath], out: &mut OutputGate) {
    for it in stuck {
        out.say(&format!("cannot move {}: {}", it.path.display(), it.why));
        out.say(&format!(
            "hint: `{}`, then the same command again",
            it.remedy
        ));
    }
}

pub(super) fn stuck_as_json(stuck: &[StuckPath]) -> Vec<Value> {
    stuck
        .iter()
        .map(|it| json!({"path": it.path, "why": it.why, "remedy": it.remedy}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_is_enough() {
        for (path, expected) in [
            (
                "/h/.local/state/runner/ab/workspaces/run-1.quarantine-1",
                "…/workspaces/run-1.quarantine-1",
            ),
            ("run-1", "…/run-1"),
        ] {
            assert_eq!(shortened(Path::new(path)), expected);
        }
    }
}
