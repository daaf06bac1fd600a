//! `runner init`.

use std::cell::RefCell;
use std::path::Path;

use runner::{InitOptions, InitReport, InitTrial, InitTrialEnd, OfflineTrial, Result};
use serde_json::{Value, json};

use super::{Exit, with_context};
use crate::args::InitArgs;
use crate::out::OutputGate;
use crate::style;

/// Makes a `.runner/` and says what was chosen and what comes next.
pub(crate) fn run(dir: &Path, args: &InitArgs, out: &mut OutputGate) -> Result<Exit> {
    let report = runner::init(
        dir,
        &InitOptions {
            force: args.force,
            upgrade: args.upgrade,
            guard: args.guard.clone(),
            backend: args.backend.clone(),
            goal: args.goal.clone(),
        },
    )?;
    let is_tried = !args.upgrade && !args.no_try;
    if out.json {
        let trial = if is_tried {
            Some(try_out(&report, out)?)
        } else {
            None
        };
        out.object(json!({
            "root": report.root,
            "written": report.written,
            "replaced": report.replaced,
            "setup": report.setup.as_ref().map(|(argv, why)| json!({"command": argv, "why": why})),
            "include": report.include,
            "guard": report.guard.as_ref().map(|(argv, why)| json!({"command": argv, "why": why})),
            "backend": report.backend.as_ref().map(|(name, why)| json!({"name": name, "why": why})),
            "protected": report.protected,
            "protected_values": report.protected_values,
            "watched": report.watched,
            "tests": report.tests,
            "keep": report.keep,
            "missing_program": report.missing,
            "missing_agent": report.missing_agent,
            "needs_command": report.needs_command,
            "config_from": report.config_from,
            "notes": report.notes,
            "trial": trial.as_ref().map_or(Value::Null, trial_json),
        }));
        return Ok(Exit::Success);
    }
    if report.written.is_empty() {
        out.say("everything is up to date");
    } else {
        out.say(&format!(
            "wrote {} files in {}/.runner",
            report.written.len(),
            report.root.display()
        ));
    }
    for path in &report.written {
        out.detail(&format!("  {path}"));
    }
    if let Some(folder) = &report.replaced {
        out.say(&format!("what was there before is kept in {folder}"));
    }
    if let Some(run) = &report.config_from {
        out.say(&format!(
            "config.toml and INSTRUCTIONS.md (if there is one) are those of run {run}; \
             `--guard`, `--backend` or `--force` begin with new ones"
        ));
    }
    if let Some((argv, why)) = &report.setup {
        let shown = match argv.as_slice() {
            [shell, option, script] if shell == "sh" && option == "-c" => script.clone(),
            words => words.join(" "),
        };
        out.say(&format!("setup:     {shown} ({why})"));
    }
    if !report.include.is_empty() {
        out.say(&format!(
            "include:   {} (checkouts get copies, as no lock file makes them)",
            report.include.join(" ")
        ));
    }
    if let Some((argv, why)) = &report.guard {
        out.say(&format!("guard:     {} ({why})", argv.join(" ")));
        if let Some(program) = &report.missing {
            out.say(&format!(
                "           `{program}` cannot be started here: install it, or choose another guard"
            ));
        }
        for (name, globs, what) in [
            (
                "protected",
                &report.protected,
                "agents may neither change nor make these",
            ),
            (
                "values",
                &report.protected_values,
                "agents may not change these values, but the rest of their files",
            ),
            ("watched", &report.watched, "changes are pointed out to you"),
            ("keep", &report.keep, "stays from one verdict to the next"),
        ] {
            if !globs.is_empty() {
                out.say(&format!(
                    "{:10} {} ({what})",
                    format!("{name}:"),
                    globs.join(" ")
                ));
            }
        }
    }
    if let Some((name, why)) = &report.backend {
        out.say(&format!("backend:   {name} ({why})"));
        for note in &report.notes {
            out.say(&format!("note: {note}"));
        }
        if is_tried {
            let trial = try_out(&report, out)?;
            tell(&trial, out);
            if trial.offline.is_some() && name != "command" {
                out.say(&format!(
                    "           session = \"agent\" there keeps sessions to the hosts of {name}"
                ));
            }
        }
        let goal = if report.has_goal {
            "look over"
        } else {
            "write your goal in .runner/GOAL.md, look over"
        };
        let goal = if report.needs_command {
            let program = "name your program in [executor] command of .runner/state/config.toml";
            if report.has_goal {
                program.to_owned()
            } else {
                format!("{program}, write your goal in .runner/GOAL.md")
            }
        } else {
            format!("{goal} .runner/state/config.toml")
        };
        if let Some(words) = &report.missing_agent {
            out.warning(words);
        }
        out.say(&format!("next: {goal}, then run `runner start`"));
    }
    Ok(Exit::Success)
}

fn try_out(report: &InitReport, out: &mut OutputGate) -> Result<InitTrial> {
    let out = RefCell::new(out);
    with_context(&out, false, |context| runner::try_out(report, context))
}

/// Says how the first try ended.
fn tell(trial: &InitTrial, out: &mut OutputGate) {
    let millis = trial.duration_ms;
    let took = format!("{}.{} s", millis / 1000, millis % 1000 / 100);
    out.say(&match &trial.end {
        InitTrialEnd::Green => {
            format!("tried:     the guard is green in a clean checkout, in {took}")
        }
        InitTrialEnd::Red(code) => {
            format!("tried:     the guard is red in a clean checkout: exit {code} after {took}")
        }
        InitTrialEnd::TimedOut(secs) => {
            format!("tried:     the guard did not end within {secs} s in a clean checkout")
        }
        InitTrialEnd::CannotRun(why) => {
            let why = why.strip_prefix("cannot run: ").unwrap_or(why);
            format!("tried:     the guard cannot run in a clean checkout: {why}")
        }
        InitTrialEnd::NotThereYet(words) => format!("tried:     {words}"),
        InitTrialEnd::Skipped(why) => format!("tried:     nothing: {why}"),
    });
    if let Some(why) = &trial.cannot_fail {
        out.say(&format!("warning:   the guard proves nothing: {why}"));
    }
    for name in &trial.included {
        out.say(&format!(
            "include:   {name} (the guard is green with it and not without; checkouts get a copy)"
        ));
    }
    match trial.offline {
        Some(OfflineTrial::Green) => out.say(
            "network:   the guard is green without one, too: [sandbox.network] guard = \"off\" is written",
        ),
        Some(OfflineTrial::NeedsNetwork) => out.say(
            "network:   the guard is not green without one: it keeps it ([sandbox.network] guard = \"open\")",
        ),
        None => {}
    }
    if let Some(fetch) = trial.fetch {
        out.say(&format!(
            "setup:     {fetch} is written, too: the guard finds dependencies that a session adds"
        ));
    }
    // Of a program that lacks its file there is nothing else to say.
    let is_plain = matches!(
        trial.end,
        InitTrialEnd::Green | InitTrialEnd::NotThereYet(_)
    );
    let tail = style::harmless(&trial.output_tail);
    for line in tail.lines().filter(|_| !is_plain) {
        out.say(&format!("  | {line}"));
    }
    if let Some(hint) = &trial.hint {
        out.say(&format!("hint: {hint}"));
    }
}

fn trial_json(trial: &InitTrial) -> Value {
    json!({
        "result": trial.end.as_str(),
        "exit": match trial.end {
            InitTrialEnd::Green => Some(0),
            InitTrialEnd::Red(code) => Some(code),
            _ => None,
        },
        "why": match &trial.end {
            InitTrialEnd::CannotRun(why)
            | InitTrialEnd::NotThereYet(why)
            | InitTrialEnd::Skipped(why) => Some(why),
            _ => None,
        },
        "duration_ms": trial.duration_ms,
        "output_tail": trial.output_tail,
        "hint": trial.hint,
        "cannot_fail": trial.cannot_fail,
        "included": trial.included,
        "offline": trial.offline.map(OfflineTrial::as_str),
        "fetch": trial.fetch,
    })
}
