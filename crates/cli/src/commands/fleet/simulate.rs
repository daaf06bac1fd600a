//! `runner fleet simulate`: the roles of a fleet against a ledger in memory, with crashes,
//! lost answers and bad luck, all of it by a seed.

use runner_fleet::simulate::{Options, Report, simulate};
use serde_json::json;

use crate::commands::Exit;
use crate::out::Out;
use crate::style::{self, Tone};

/// Runs so many seeds, from that one on. Stops at the first that does not hold.
pub(super) fn run(seed: u64, seeds: u32, log: bool, out: &mut Out) -> Exit {
    let options = Options {
        log,
        ..Options::default()
    };
    let mut ended = 0;
    for seed in (seed..).take(usize::try_from(seeds).unwrap_or(usize::MAX)) {
        let report = simulate(seed, &options);
        ended += 1;
        if seeds == 1 || !report.is_clean() {
            tell(&report, out);
        } else {
            out.live_line(&format!("{ended} of {seeds} seeds hold"));
        }
        if !report.is_clean() {
            return Exit::Error;
        }
    }
    out.clear_line();
    if seeds != 1 {
        if out.json {
            out.object(json!({"seeds": ended, "first": seed, "clean": true}));
        } else {
            let seeds = style::counted(ended, "seed");
            out.data(&format!("{seeds} from {seed} on: everything holds"));
        }
    }
    Exit::Success
}

fn tell(report: &Report, out: &mut Out) {
    if out.json {
        out.object(json!({
            "seed": report.seed, "clean": report.is_clean(), "faults": report.faults,
            "tasks": report.tasks, "crashes": report.crashes, "points": report.points,
            "seconds": report.seconds, "statements": report.statements,
            "model_calls": report.model_calls, "log": report.log,
        }));
        return;
    }
    for line in report.log.iter().chain(&report.tasks) {
        out.data(&style::one_line(line, 300));
    }
    out.data(&format!(
        "seed {}: {} simulated seconds, {} points, {} crashes, {} statements",
        report.seed, report.seconds, report.points, report.crashes, report.statements
    ));
    for fault in &report.faults {
        let word = out.paint.paint(Tone::Bad, "does not hold:");
        out.data(&format!("{word} {fault}"));
    }
    if report.is_clean() {
        out.data("everything holds");
    } else {
        out.say(&format!(
            "again, with everything that happened: runner fleet simulate --seed {} --log",
            report.seed
        ));
    }
}
