//! `runner step` and `runner loop`.

use std::cell::RefCell;
use std::path::Path;

use runner::{
    Error, ErrorCode, LoopOptions, LoopOutcome, LoopStatus, Project, Result, SelectResult,
    StepReport, StepResult,
};
use runner_core::meta::{GuardResult, OutcomeClass};
use runner_core::output::AgentStatus;
use runner_exec::HangUp;
use serde_json::{Value, json};

use super::{Exit, look, with_context, with_screen};
use crate::args::LoopArgs;
use crate::out::{OutputGate, error_value};
use crate::progress::ProgressScreen;
use crate::style::{self, TextTone};

/// Takes one step.
pub(crate) fn step(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::find(dir)?;
    let cell = RefCell::new(&mut *out);
    let result = with_context(&cell, false, |context| runner::step_once(&project, context))?;
    let report = match result {
        StepResult::Complete => return Ok(look::print_selection(&SelectResult::Complete, out)),
        StepResult::Stuck(leaf) => {
            return Ok(look::print_selection(&SelectResult::Stuck(leaf), out));
        }
        StepResult::Recorded(report) => report,
    };
    let error = report.as_error();
    if out.json {
        let mut value = step_value(&report);
        if let Some(error) = &error {
            value["error"] = error_value(error);
        }
        out.object(value);
    } else {
        print_step(&report, out);
        if let Some(error) = &error {
            out.error(error);
        }
    }
    Ok(if error.is_some() {
        Exit::Error
    } else {
        Exit::Success
    })
}

/// Takes steps until something ends them.
pub(crate) fn run_loop(
    dir: &Path,
    args: &LoopArgs,
    detached: bool,
    out: &mut OutputGate,
) -> Result<Exit> {
    let end = match loop_steps(dir, args, detached, out) {
        Ok(end) => end,
        // Whoever reads the lines waits for the last one, also when nothing began.
        Err(error) if out.json => LoopOutcome {
            status: LoopStatus::Error,
            steps: 0,
            stuck: None,
            error: Some(error),
            reason: None,
        },
        Err(error) => return Err(error),
    };
    Ok(print_end(end, out))
}

fn loop_steps(
    dir: &Path,
    args: &LoopArgs,
    detached: bool,
    out: &mut OutputGate,
) -> Result<LoopOutcome> {
    let starter = detached.then(super::detach::take_starter).transpose()?;
    let project = Project::find(dir)?;
    let options = LoopOptions {
        ends_on_resources: false,
        steps: args.steps,
        for_duration: args.for_duration,
        until: args.until.map(next_occurrence).transpose()?,
        wait_quota: args.wait_quota,
    };
    if detached && !out.json {
        let now = style::clock().strftime("%Y-%m-%d %H:%M:%S %Z");
        out.say(&format!("loop, pid {}, {now}", std::process::id()));
    }
    let cell = RefCell::new(&mut *out);
    let hang_up = if detached {
        HangUp::Ignored
    } else {
        HangUp::Ends
    };
    let screen = ProgressScreen::new(&cell, true).telling(starter);
    with_screen(screen, hang_up, |context| {
        Ok(runner::run_loop(
            &project,
            context,
            &options,
            &mut |report| {
                print_in_loop(report, &mut cell.borrow_mut());
            },
        ))
    })
}

/// An iteration of a loop, as it is recorded.
pub(crate) fn print_in_loop(report: &StepReport, out: &mut OutputGate) {
    if !out.json {
        return print_step(report, out);
    }
    let mut value = step_value(report);
    value["event"] = json!("step");
    if let Some(error) = report.as_error() {
        value["error"] = error_value(&error);
    }
    out.object(value);
}

fn print_end(end: LoopOutcome, out: &mut OutputGate) -> Exit {
    let exit = match end.status {
        LoopStatus::Complete | LoopStatus::Stopped => Exit::Success,
        LoopStatus::Stuck => Exit::Stuck,
        LoopStatus::Limit | LoopStatus::Error => Exit::Error,
        LoopStatus::Interrupted => Exit::Interrupted,
    };
    if out.json {
        let mut value =
            json!({"event": "finished", "status": end.status.as_str(), "steps": end.steps});
        if let Some(leaf) = &end.stuck {
            value["node_id"] = json!(leaf.id);
            value["path"] = json!(leaf.path);
        }
        if let Some(reason) = &end.reason {
            value["reason"] = json!(reason);
        }
        if let Some(error) = &end.error {
            value["error"] = error_value(error);
        }
        out.object(value);
        return exit;
    }
    match end.status {
        LoopStatus::Complete => {
            let word = out.paint_err.paint(TextTone::Good, "complete");
            out.say(&format!(
                "{word}: every leaf has passed ({})",
                style::counted(end.steps, "step")
            ));
            out.say("next: `runner report` tells what was done, `runner land` brings it home");
        }
        LoopStatus::Stuck => {
            if let Some(leaf) = end.stuck {
                look::print_selection(&SelectResult::Stuck(leaf), out);
            }
        }
        LoopStatus::Stopped => {
            let reason = end.reason.unwrap_or_default();
            out.say(&format!("stopped: {reason}; `runner loop` goes on"));
        }
        LoopStatus::Interrupted => {
            let error = end.error.unwrap_or_else(|| {
                Error::new(ErrorCode::Interrupted, "interrupted between two steps")
            });
            out.error(&error);
        }
        LoopStatus::Limit | LoopStatus::Error => {
            if let Some(error) = &end.error {
                out.error(error);
            }
        }
    }
    exit
}

/// The next moment at which clocks here show this time.
fn next_occurrence(time: jiff::civil::Time) -> Result<jiff::Timestamp> {
    let wrong = |error: jiff::Error| Error::new(ErrorCode::Config, format!("--until: {error}"));
    let now = style::clock();
    let today = now
        .date()
        .to_datetime(time)
        .to_zoned(now.time_zone().clone())
        .map_err(wrong)?;
    if today > now {
        return Ok(today.timestamp());
    }
    let tomorrow = now.date().tomorrow().map_err(wrong)?;
    let at = tomorrow
        .to_datetime(time)
        .to_zoned(now.time_zone().clone())
        .map_err(wrong)?;
    Ok(at.timestamp())
}

/// The JSON form of an iteration.
fn step_value(report: &StepReport) -> Value {
    json!({
        "run_id": report.run_id,
        "iter": report.iter,
        "node_id": report.node_id,
        "status": report.status,
        "guard": report.guard,
        "attempts": report.attempts,
        "passes": report.passes,
        "class": report.class,
        "passed": report.passed,
        "findings": report.findings,
        "notes": report.notes,
        "duration_ms": report.duration_ms,
    })
}

/// One line an iteration, and what a person should know below it.
fn print_step(report: &StepReport, out: &mut OutputGate) {
    let (mark, tone) = match (report.class, report.status, report.guard) {
        (OutcomeClass::Ok, AgentStatus::Done, GuardResult::Pass) | (OutcomeClass::Repaired, ..) => {
            ("✓", TextTone::Good)
        }
        (OutcomeClass::Ok, AgentStatus::Decomposed, _) => ("◆", TextTone::Busy),
        (OutcomeClass::Ok, AgentStatus::Retry, _) => ("↻", TextTone::Busy),
        _ => ("✗", TextTone::Bad),
    };
    let mark = out.paint.paint(tone, mark);
    let what = describe(report);
    let time = out
        .paint
        .paint(TextTone::Dim, style::duration(report.duration_ms));
    let line = format!(
        "{mark} {:>3}  {}  {what}  {time}",
        report.iter, report.node_id
    );
    out.data(&line);
    if report.class != OutcomeClass::RunnerError {
        for finding in &report.findings {
            out.say(&format!("       {}", style::one_line(finding, 200)));
        }
    }
    for note in &report.notes {
        out.say(&format!("       note: {}", style::one_line(note, 200)));
    }
}

fn describe(report: &StepReport) -> String {
    let attempts = report
        .attempts
        .map_or_else(String::new, |n| format!(", attempts used: {n}"));
    match report.class {
        OutcomeClass::Ok => match (report.status, report.guard) {
            (AgentStatus::Done, GuardResult::Pass) => "done, guard passed".to_owned(),
            (AgentStatus::Done, _) => format!("done, but the guard failed{attempts}"),
            (AgentStatus::Retry, _) => format!("wants another try{attempts}"),
            (AgentStatus::Decomposed, _) => "decomposed".to_owned(),
        },
        OutcomeClass::AgentError => format!("not accepted{attempts}"),
        OutcomeClass::InvalidTree => "left an invalid tree; it will be repaired".to_owned(),
        OutcomeClass::RunnerError => "runner error, no attempt used".to_owned(),
        OutcomeClass::Repaired => "tree repaired".to_owned(),
        OutcomeClass::RepairRefused => "repair refused".to_owned(),
        OutcomeClass::RepairRestored => "repair refused; the last valid tree is back".to_owned(),
    }
}
