//! `runner rescue`.

use std::path::Path;

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
    for it in &report.moved {
        out.say(&format!(
            "run {}: {} {} to {}",
            it.run_id,
            if dry_run { "would move" } else { "moved" },
            it.from.display(),
            it.to.display()
        ));
    }
    for path in &report.made {
        let path = path.display();
        out.say(&if dry_run {
            format!("would make {path} anew from the branch")
        } else {
            format!("made {path} anew from the branch")
        });
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
