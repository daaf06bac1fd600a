//! `runner init`.

use std::path::Path;

use runner::{InitOptions, Result};
use serde_json::json;

use super::Exit;
use crate::args::InitArgs;
use crate::out::OutputGate;

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
    if out.json {
        out.object(json!({
            "root": report.root,
            "written": report.written,
            "replaced": report.replaced,
            "setup": report.setup.as_ref().map(|(argv, why)| json!({"command": argv, "why": why})),
            "guard": report.guard.as_ref().map(|(argv, why)| json!({"command": argv, "why": why})),
            "backend": report.backend.as_ref().map(|(name, why)| json!({"name": name, "why": why})),
            "protected": report.protected,
            "watched": report.watched,
            "missing_program": report.missing,
            "config_from": report.config_from,
        }));
        return Ok(Exit::Success);
    }
    if report.written.is_empty() {
        out.say("everything is up to date");
        return Ok(Exit::Success);
    }
    out.say(&format!(
        "wrote {} files in {}/.runner",
        report.written.len(),
        report.root.display()
    ));
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
        out.say(&format!("setup:     {} ({why})", argv.join(" ")));
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
                "agents may not change these",
            ),
            ("watched", &report.watched, "changes are pointed out to you"),
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
        let goal = if report.has_goal {
            "look over"
        } else {
            "write your goal in .runner/GOAL.md, look over"
        };
        out.say(&format!(
            "next: {goal} .runner/state/config.toml, then run `runner start`"
        ));
    }
    Ok(Exit::Success)
}
