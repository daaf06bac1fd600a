//! `runner doctor`: is everything there that a run needs?

use std::cell::RefCell;
use std::path::Path;

use runner::{
    Diagnosis, DoctorCheck, DoctorGuardRun, DoctorOptions, DoctorVerdict, GuardTrials,
    PlantedBreak, Result,
};
use serde_json::{Value, json};

use super::{Exit, with_context};
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Looks, and prints what was found.
pub(crate) fn run(dir: &Path, run_guard: bool, out: &mut OutputGate) -> Result<Exit> {
    let cell = RefCell::new(&mut *out);
    let options = DoctorOptions { run_guard };
    let found = with_context(&cell, false, |context| {
        runner::doctor(dir, options, context)
    })?;
    if out.json {
        out.object(value(&found));
    } else {
        print(&found, out);
    }
    Ok(if found.is_ok() {
        Exit::Success
    } else {
        Exit::Error
    })
}

fn value(found: &Diagnosis) -> Value {
    let checks: Vec<Value> = found
        .checks
        .iter()
        .map(|check| {
            json!({
                "name": check.name,
                "verdict": check.verdict.as_str(),
                "message": check.message,
                "remedy": check.remedy,
            })
        })
        .collect();
    let mut value = json!({"ok": found.is_ok(), "checks": checks});
    if let Some(guard) = &found.guard {
        value["run_guard"] = json!({
            "command": guard.command,
            "commit": guard.commit,
            "outside": guard.outside.as_ref().map(run_value),
            "inside": guard.inside.as_ref().map(run_value),
            "breaks": guard.breaks.iter().map(break_value).collect::<Vec<_>>(),
        });
    }
    value
}

fn run_value(run: &DoctorGuardRun) -> Value {
    json!({
        "sandbox": run.sandbox,
        "exit": run.exit,
        "duration_ms": run.duration_ms,
        "left": run.left,
        "output_tail": run.output_tail,
    })
}

fn break_value(planted: &PlantedBreak) -> Value {
    json!({"file": planted.file, "language": planted.language, "exit": planted.exit})
}

fn print(found: &Diagnosis, out: &mut OutputGate) {
    let titles: Vec<String> = found.checks.iter().map(title).collect();
    let width = titles.iter().map(String::len).max().unwrap_or_default();
    for (check, title) in found.checks.iter().zip(&titles) {
        for line in lines(check, title, width, out) {
            out.data(&line);
        }
    }
    if let Some(guard) = &found.guard {
        print_output(guard, out);
    }
    let count = |verdict: DoctorVerdict| {
        let matching = found.checks.iter().filter(|it| it.verdict == verdict);
        matching.count()
    };
    out.say(&format!(
        "{} ok, {} to know about, {} to mend",
        count(DoctorVerdict::Ok),
        count(DoctorVerdict::Warn),
        count(DoctorVerdict::Fail)
    ));
}

fn title(check: &DoctorCheck) -> String {
    check.name.replace('_', " ")
}

/// One finding: the mark, the title, what was found; below it what to do.
fn lines(check: &DoctorCheck, title: &str, width: usize, out: &OutputGate) -> Vec<String> {
    let (mark, tone) = match check.verdict {
        DoctorVerdict::Ok => ("✓", TextTone::Good),
        DoctorVerdict::Warn => ("!", TextTone::Busy),
        DoctorVerdict::Fail => ("✗", TextTone::Bad),
    };
    let indent = " ".repeat(width + 4);
    let message = style::harmless(&check.message).replace('\n', &format!("\n{indent}"));
    let mut lines = vec![format!(
        "{} {title:width$}  {message}",
        out.paint.paint(tone, mark)
    )];
    if let Some(remedy) = &check.remedy {
        let remedy = style::harmless(remedy).replace('\n', &format!("\n{indent}  "));
        let arrow = out.paint.paint(TextTone::Dim, "→");
        lines.push(format!("{indent}{arrow} {remedy}"));
    }
    lines
}

/// What a guard printed that did not pass.
fn print_output(guard: &GuardTrials, out: &mut OutputGate) {
    let inside = guard.inside.as_ref().map(|run| ("inside", run));
    let outside = guard.outside.as_ref().map(|run| ("outside", run));
    let red = [outside, inside]
        .into_iter()
        .flatten()
        .find(|(_, run)| run.exit != Some(0) && !run.output_tail.trim().is_empty());
    if let Some((place, run)) = red {
        out.say(&format!(
            "the guard's output {place} the sandbox ends with:"
        ));
        for line in style::harmless(run.output_tail.trim_end()).lines() {
            out.say(&format!("  {line}"));
        }
    }
}
