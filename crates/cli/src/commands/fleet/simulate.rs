//! `runner fleet simulate`: the roles of a fleet against a ledger in memory, with crashes,
//! lost answers and bad luck, all of it by a seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use runner_fleet::simulate::{SimOptions, SimReport, simulate};
use serde_json::json;

use crate::commands::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Runs so many seeds, from that one on, on all processors. Stops when one does not hold.
pub(super) fn run(seed: u64, seeds: u32, log: bool, out: &mut OutputGate) -> Exit {
    let options = SimOptions {
        log,
        ..SimOptions::default()
    };
    if seeds == 1 {
        let report = simulate(seed, &options);
        tell(&report, out);
        return exit_of(&report);
    }
    let (reports, heard) = mpsc::channel();
    let next = AtomicU64::new(seed);
    let end = seed.saturating_add(seeds.into());
    let failed = AtomicBool::new(false);
    let first_bad = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            let (reports, next, failed, options) = (reports.clone(), &next, &failed, &options);
            scope.spawn(move || {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let report = simulate(seed, options);
                    failed.fetch_or(!report.is_clean(), Ordering::Relaxed);
                    if reports.send(report).is_err() {
                        break;
                    }
                }
            });
        }
        drop(reports);
        let mut bad: Option<SimReport> = None;
        for (ended, report) in (1u64..).zip(heard) {
            out.live_line(&format!("{ended} of {seeds} seeds have ended"));
            let is_first = bad.as_ref().is_none_or(|bad| report.seed < bad.seed);
            if !report.is_clean() && is_first {
                bad = Some(report);
            }
        }
        bad
    });
    out.clear_line();
    if let Some(report) = first_bad {
        tell(&report, out);
        return exit_of(&report);
    }
    if out.json {
        out.object(json!({"seeds": seeds, "first": seed, "clean": true}));
    } else {
        let seeds = style::counted(seeds, "seed");
        out.data(&format!("{seeds} from {seed} on: everything holds"));
    }
    Exit::Success
}

fn exit_of(report: &SimReport) -> Exit {
    if report.is_clean() {
        Exit::Success
    } else {
        Exit::Error
    }
}

fn tell(report: &SimReport, out: &mut OutputGate) {
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
        let word = out.paint.paint(TextTone::Bad, "does not hold:");
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
