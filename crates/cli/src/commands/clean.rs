//! `runner clean`.

use std::path::Path;

use runner::{Result, WorkspaceCleanOptions};
use serde_json::{Value, json};

use super::{Exit, rescue};
use crate::out::OutputGate;

/// Removes private checkouts that nobody uses any more.
pub(crate) fn run(
    dir: &Path,
    options: WorkspaceCleanOptions,
    out: &mut OutputGate,
) -> Result<Exit> {
    let report = runner::clean(dir, options)?;
    if out.json {
        let removed: Vec<Value> = report
            .removed
            .iter()
            .map(|folder| json!({"path": folder.path, "bytes": folder.bytes}))
            .collect();
        out.object(json!({
            "dry_run": options.dry_run,
            "removed": removed,
            "in_use": report.in_use,
            "stuck": rescue::stuck_as_json(&report.stuck),
            "freed_bytes": report.freed_bytes(),
        }));
        return Ok(Exit::Success);
    }
    for folder in &report.removed {
        out.detail(&format!("  {}", folder.path.display()));
    }
    for path in &report.in_use {
        out.say(&format!("in use, left alone: {}", path.display()));
    }
    rescue::tell_stuck(&report.stuck, out);
    let folders = match report.removed.len() {
        0 if !report.stuck.is_empty() => return Ok(Exit::Success),
        0 => {
            out.say("nothing to remove");
            return Ok(Exit::Success);
        }
        1 => "1 folder".to_owned(),
        count => format!("{count} folders"),
    };
    let freed = size(report.freed_bytes());
    out.say(&if options.dry_run {
        format!("would remove {folders} and free {freed}")
    } else {
        format!("removed {folders} and freed {freed}")
    });
    Ok(Exit::Success)
}

/// `1.5 MB`.
fn size(bytes: u64) -> String {
    let mut whole = bytes;
    let mut rest = 0;
    let mut units = ["kB", "MB", "GB", "TB"].into_iter();
    let mut unit = "bytes";
    while whole >= 1000
        && let Some(next) = units.next()
    {
        (whole, rest, unit) = (whole / 1000, whole % 1000, next);
    }
    match unit {
        "bytes" => format!("{whole} bytes"),
        _ => format!("{whole}.{} {unit}", rest / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_for_people() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (1_549_999, "1.5 MB"),
            (12_345_678_901, "12.3 GB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
