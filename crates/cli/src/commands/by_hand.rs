//! `runner retry` and `runner edit`: what a person changes between two steps.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use runner::{
    EditReport, EditTarget, EditText, Error, ErrorCode, PlanEdit, Project, Result, RetryReport,
    SelectResult,
};
use serde_json::json;

use super::{Exit, look, with_context};
use crate::args::EditWhat;
use crate::editor;
use crate::out::OutputGate;
use crate::style;

/// Gives a leaf more attempts.
pub(crate) fn retry(
    dir: &Path,
    node: &str,
    attempts: Option<u32>,
    out: &mut OutputGate,
) -> Result<Exit> {
    let project = Project::find(dir)?;
    let cell = RefCell::new(&mut *out);
    let report = with_context(&cell, false, |context| {
        runner::retry(&project, node, attempts, context)
    })?;
    if out.json {
        out.object(json!({
            "run_id": report.run_id,
            "node_id": report.node_id,
            "path": report.granted.path,
            "added": report.granted.added,
            "attempts": report.granted.attempts,
            "max_attempts": report.granted.max_attempts,
            "commit": report.commit,
            "next": look::selection_value(&report.next),
        }));
    } else {
        tell_retry(&report, out);
    }
    Ok(Exit::Success)
}

fn tell_retry(report: &RetryReport, out: &mut OutputGate) {
    let granted = &report.granted;
    out.say(&format!(
        "{} has {} ({} of {} used)",
        granted.path,
        style::counted(granted.added, "more attempt"),
        granted.attempts,
        granted.max_attempts
    ));
    match &report.next {
        SelectResult::Open(leaf) | SelectResult::Stuck(leaf) if leaf.id != report.node_id => {
            out.say(&format!(
                "note: {} comes before it (`runner why {}`)",
                leaf.path, leaf.id
            ));
        }
        _ => out.say("next: `runner loop` goes on with it"),
    }
}

/// Takes a new text for one of the files.
pub(crate) fn edit(
    dir: &Path,
    what: EditWhat,
    file: Option<&Path>,
    out: &mut OutputGate,
) -> Result<Exit> {
    let project = Project::find(dir)?;
    let target = match what {
        EditWhat::Goal => EditTarget::Goal,
        EditWhat::Config => EditTarget::Config,
        EditWhat::Tree => EditTarget::Tree,
        EditWhat::Questions => EditTarget::Questions,
    };
    let named = editor::named();
    let mut open = |path: &Path| match &named {
        Some(editor) => editor::open(editor, path),
        None => Err(no_editor(target)),
    };
    let text = match file {
        None if named.is_none() => return Err(no_editor(target)),
        None => EditText::Editor(&mut open),
        Some(path) if path == Path::new("-") => {
            EditText::Stream(read(std::io::stdin().lock(), "stdin", target)?)
        }
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path)
                .map_err(|error| Error::new(ErrorCode::Io, format!("{name}: {error}")))?;
            EditText::File(read(file, &name, target)?)
        }
    };
    let cell = RefCell::new(&mut *out);
    let report = with_context(&cell, false, |context| {
        runner::edit(&project, target, text, context)
    })?;
    if out.json {
        print_json(&report, out);
    } else {
        tell_edit(&report, out);
    }
    Ok(Exit::Success)
}

fn no_editor(target: EditTarget) -> Error {
    Error::new(
        ErrorCode::Config,
        "no editor is named: neither VISUAL nor EDITOR is set",
    )
    .hint(format!(
        "`EDITOR=nano runner edit {0}`, or give the new text: `runner edit {0} --file FILE`",
        target.as_str()
    ))
}

fn read(from: impl Read, name: &str, target: EditTarget) -> Result<Vec<u8>> {
    let wrong = |what: String| Error::new(ErrorCode::Io, format!("{name}: {what}"));
    let max = target.max_bytes();
    let mut bytes = Vec::new();
    from.take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > max {
        return Err(wrong(format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

fn print_json(report: &EditReport, out: &mut OutputGate) {
    let mut value = json!({
        "run_id": report.run_id,
        "what": report.target.as_str(),
        "path": report.target.path(),
        "changed": report.changed,
        "commit": report.commit,
        "notes": report.notes,
    });
    if let Some(plan) = &report.plan {
        value["plan"] = json!({
            "added": plan.changes.added,
            "edited": plan.changes.edited,
            "moved": plan.changes.moved,
            "removed": plan.removed,
            "max_attempts": plan.limits,
            "passed": plan.passed,
        });
    }
    out.object(value);
}

fn tell_edit(report: &EditReport, out: &mut OutputGate) {
    let path = report.target.path();
    match (report.changed, &report.commit) {
        (false, _) => out.say(&format!("nothing has changed in {path}; no commit is made")),
        (true, Some(_)) => out.say(&format!("{path} is changed and committed")),
        (true, None) => out.say(&format!("{path} is changed; `runner start` commits it")),
    }
    if let Some(plan) = &report.plan {
        for line in plan_lines(plan) {
            out.say(&format!("  {line}"));
        }
    }
    for note in &report.notes {
        out.say(&format!("note: {note}"));
    }
}

/// So many nodes are named; `--json` names all.
const MAX_IDS: usize = 20;

fn plan_lines(plan: &PlanEdit) -> Vec<String> {
    let lists = [
        ("added", &plan.changes.added),
        ("edited", &plan.changes.edited),
        ("moved", &plan.changes.moved),
        ("removed", &plan.removed),
        ("other max_attempts", &plan.limits),
    ];
    lists
        .into_iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(what, ids)| {
            let mut shown = ids.iter().take(MAX_IDS).cloned().collect::<Vec<_>>();
            if ids.len() > MAX_IDS {
                shown.push(format!("and {} more", ids.len() - MAX_IDS));
            }
            format!("{what}: {}", shown.join(", "))
        })
        .collect()
}
