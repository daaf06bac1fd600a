//! `runner validate`, `runner select`, `runner why`: looking, not touching.

use std::path::Path;

use runner::{Project, Result, SelectResult, StepLeaf};
use serde_json::{Value, json};

use super::report::terminal;
use super::{Exit, status};
use crate::out::OutputGate;
use crate::style::TextTone;

/// Reports everything that is wrong.
pub(crate) fn validate(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::find(dir)?;
    let problems = runner::validate(&project);
    if out.json {
        let list: Vec<Value> = problems
            .iter()
            .map(|it| json!({"code": it.code.as_str(), "place": it.place, "message": it.message, "hint": it.hint}))
            .collect();
        out.object(json!({"valid": problems.is_empty(), "problems": list}));
    } else if problems.is_empty() {
        out.say("everything is in order");
    } else {
        for problem in &problems {
            out.problem(
                &format!("{}: {}", problem.place, problem.message),
                problem.hint.as_deref(),
            );
        }
    }
    Ok(if problems.is_empty() {
        Exit::Success
    } else {
        Exit::Error
    })
}

/// Prints the leaf that comes next.
pub(crate) fn select(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let result = runner::select_next(&project)?;
    status::tell_position(&project, out)?;
    Ok(print_selection(&result, out))
}

/// What `select` prints, also for `step` where there is nothing to do.
pub(crate) fn print_selection(result: &SelectResult, out: &mut OutputGate) -> Exit {
    if out.json {
        out.object(selection_value(result));
    }
    let human = !out.json;
    match result {
        SelectResult::Open(leaf) => {
            if human {
                out.data(&leaf.path);
            }
            Exit::Success
        }
        SelectResult::Stuck(leaf) => {
            if human {
                out.data(&leaf.path);
                out.say(&format!(
                    "stuck: {} has used up its {} attempts and has not passed",
                    leaf.path, leaf.max_attempts
                ));
                out.say(&format!(
                    "hint: `runner why {0}` shows what happened and what helps; `runner retry {0}` gives it more attempts",
                    leaf.id
                ));
            }
            Exit::Stuck
        }
        SelectResult::Complete => {
            if human {
                out.say("complete: every leaf has passed");
            }
            Exit::NothingToDo
        }
        SelectResult::Repair(findings) => {
            if human {
                out.say("the tree is invalid: the next step will have it repaired");
                for finding in findings {
                    out.say(&format!("  {finding}"));
                }
            }
            Exit::Error
        }
    }
}

/// The JSON form of a selection.
pub(crate) fn selection_value(result: &SelectResult) -> Value {
    let with = |status: &str, leaf: &StepLeaf| {
        json!({
            "status": status,
            "id": leaf.id,
            "path": leaf.path,
            "attempts": leaf.attempts,
            "max_attempts": leaf.max_attempts,
        })
    };
    match result {
        SelectResult::Open(leaf) => with("open", leaf),
        SelectResult::Stuck(leaf) => with("stuck", leaf),
        SelectResult::Complete => json!({"status": "complete"}),
        SelectResult::Repair(_) => json!({"status": "repair"}),
    }
}

/// Says why a node is, or is not, next, and what helps where it is stuck.
pub(crate) fn why(dir: &Path, node: Option<&str>, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let explained = runner::why(&project, node)?;
    status::tell_position(&project, out)?;
    let why = &explained.why;
    if out.json {
        let mut value = json!({"path": why.path, "state": why.state, "reasons": why.reasons});
        if let Some(history) = &explained.history {
            value["tries"] = json!(history.tries);
            value["guard"] = json!(history.guard);
            value["next"] = json!(explained.next);
        }
        out.object(value);
        return Ok(Exit::Success);
    }
    let tone = match why.state {
        "passed" | "complete" => TextTone::Good,
        "stuck" => TextTone::Bad,
        "next" => TextTone::Busy,
        _ => TextTone::Dim,
    };
    let state = out.paint.paint(tone, why.state);
    out.data(&format!("{}: {state}", why.path));
    for reason in &why.reasons {
        out.data(&format!("  {reason}"));
    }
    if let Some(history) = &explained.history {
        for line in terminal::history(history, out.paint, "  ") {
            out.data(&line);
        }
        out.data("  what helps:");
        for line in terminal::commands(&explained.next, out.paint, "    ") {
            out.data(&line);
        }
    }
    Ok(Exit::Success)
}
