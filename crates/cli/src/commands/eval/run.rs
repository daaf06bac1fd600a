//! `runner eval run`.

use std::cell::RefCell;

use runner::{Error, ErrorCode, Result, SystemWallClock};
use runner_eval::case::parse_executor;
use runner_eval::{EvalContext, EvalFolders, EvalRunReport, RunOptions};
use runner_exec::{Cancel, HangUp, Supervisor};
use serde_json::{Value, json};

use super::args::RunArgs;
use super::progress::EvalScreen;
use crate::commands::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Makes the runs and says what they came to.
pub(crate) fn run(folders: &EvalFolders, args: &RunArgs, out: &mut OutputGate) -> Result<Exit> {
    let options = RunOptions {
        cases: args.names.clone(),
        runs: args.runs,
        jobs: args.jobs,
        executor: args.executor.as_deref().map(parse_executor).transpose()?,
        runner: args.runner.clone(),
        max_cost_usd: args.max_cost,
        instructions: args.instructions.clone(),
        label: args.label.clone(),
        resume: args.resume,
    };
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    let world = EvalContext {
        clock: &SystemWallClock,
        cancel: &cancel,
        supervisor: &Supervisor::this_binary(),
    };
    let cell = RefCell::new(&mut *out);
    let mut screen = EvalScreen::new(&cell);
    let report = runner_eval::run(folders, &options, &world, &mut screen)?;
    out.clear_line();
    let exit = if report.interrupted {
        Exit::Interrupted
    } else if report.is_expected() {
        Exit::Success
    } else {
        Exit::Error
    };
    if out.json {
        out.object(value(&report));
    } else {
        print(&report, out);
    }
    Ok(exit)
}

fn value(report: &EvalRunReport) -> Value {
    let unexpected: Vec<&str> = report
        .records
        .iter()
        .filter(|record| !record.is_expected())
        .map(|record| record.run.as_str())
        .collect();
    let skipped: Vec<Value> = report
        .skipped
        .iter()
        .map(|(case, tool)| json!({"case": case, "tool": tool}))
        .collect();
    json!({
        "event": "finished",
        "set": report.set.set,
        "label": report.set.label,
        "runs": report.records.len(),
        "unexpected": unexpected,
        "skipped": skipped,
        "lost": report.lost,
        "unaffordable": report.unaffordable,
        "interrupted": report.interrupted,
        "ok": report.is_expected(),
    })
}

fn print(report: &EvalRunReport, out: &mut OutputGate) {
    let expected = report
        .records
        .iter()
        .filter(|record| record.is_expected())
        .count();
    let all = report.records.len();
    let tone = if expected == all {
        TextTone::Good
    } else {
        TextTone::Bad
    };
    let share = out
        .paint_err
        .paint(tone, format!("{expected} of {all} runs as expected"));
    if all == 0 {
        out.say("no run was made");
    } else {
        out.say(&format!("{share}, set {}", report.set.set));
    }
    if !report.skipped.is_empty() {
        let names: Vec<String> = report
            .skipped
            .iter()
            .map(|(case, tool)| format!("{case} (no `{tool}`)"))
            .collect();
        out.say(&format!("skipped: {}", names.join(", ")));
    }
    if report.unaffordable > 0 {
        let limit = style::dollars(report.set.max_cost_usd.unwrap_or(0.0));
        out.problem(
            &format!(
                "{} not begun: --max-cost {limit} is used up",
                style::counted(report.unaffordable, "run")
            ),
            Some("`runner eval run --resume --max-cost USD` makes them"),
        );
    }
    if report.lost > 0 {
        let lost = style::counted(report.lost, "run");
        out.problem(
            &format!("{lost} could not be recorded"),
            Some("`runner eval run --resume` makes what is missing again"),
        );
    }
    if report.interrupted {
        out.error(
            &Error::new(
                ErrorCode::Interrupted,
                "interrupted; what is recorded stays",
            )
            .hint("`runner eval run --resume` makes the rest"),
        );
    } else if all > 0 {
        out.say("next: `runner eval report`");
    }
}
