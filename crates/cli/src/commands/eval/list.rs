//! `runner eval init` and `runner eval list`.

use std::path::Path;

use runner::Result;
use runner_eval::EvalFolders;
use runner_eval::case::{CaseLibrary, CaseProblem, EvalCase, EvalOutcome};
use serde_json::{Value, json};

use crate::commands::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Makes `eval/`.
pub(crate) fn init(folders: &EvalFolders, out: &mut OutputGate) -> Result<Exit> {
    let begun = runner_eval::init(folders)?;
    if out.json {
        out.object(json!({"written": begun.written, "kept": begun.kept}));
        return Ok(Exit::Success);
    }
    for path in &begun.written {
        out.say(&format!("wrote {}", path.display()));
    }
    for path in &begun.kept {
        out.say(&format!("kept {}, which was there", path.display()));
    }
    out.say("next: `runner eval run hello`, then `runner eval report`");
    Ok(Exit::Success)
}

/// Lists the cases; anything that is wrong with one is an error.
pub(crate) fn list(folders: &EvalFolders, out: &mut OutputGate) -> Result<Exit> {
    let library = CaseLibrary::load(&folders.cases)?;
    let exit = if library.problems.is_empty() {
        Exit::Success
    } else {
        Exit::Error
    };
    if out.json {
        let cases: Vec<Value> = library.cases.values().map(value).collect();
        let problems: Vec<Value> = library.problems.iter().map(problem_value).collect();
        out.object(json!({
            "folder": library.folder,
            "cases": cases,
            "problems": problems,
            "valid": library.problems.is_empty(),
        }));
        return Ok(exit);
    }
    let width = library.cases.keys().map(String::len).max().unwrap_or(0);
    for case in library.cases.values() {
        let expects = match case.expect {
            EvalOutcome::Success => String::new(),
            other => format!("  expects {other}"),
        };
        let checks = style::counted(
            u32::try_from(case.checks.len()).unwrap_or(u32::MAX),
            "check",
        );
        let more = out.paint.paint(TextTone::Dim, format!("{checks}{expects}"));
        let title = style::one_line(case.title(), 60);
        out.data(&format!("{:width$}  {title}  {more}", case.id));
    }
    for problem in &library.problems {
        out.problem(&shown(problem), problem.hint.as_deref());
    }
    Ok(exit)
}

fn value(case: &EvalCase) -> Value {
    json!({
        "id": case.id,
        "title": case.title(),
        "file": case.file,
        "expect": case.expect,
        "checks": case.checks.iter().map(runner_eval::case::CaseCheck::kind).collect::<Vec<_>>(),
        "requires": case.requires,
    })
}

fn problem_value(problem: &CaseProblem) -> Value {
    json!({
        "file": problem.file,
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
        "hint": problem.hint,
    })
}

/// A problem with its file as seen from here.
fn shown(problem: &CaseProblem) -> String {
    let text = problem.to_string();
    let here = std::env::current_dir().unwrap_or_default();
    let short = problem.file.strip_prefix(&here).unwrap_or(&problem.file);
    let long = problem.file.display().to_string();
    match text.strip_prefix(&long) {
        Some(rest) if short != Path::new("") => format!("{}{rest}", short.display()),
        _ => text,
    }
}
