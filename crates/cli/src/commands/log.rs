//! `runner log`: the iterations of the run, or one in full.

use std::path::Path;

use runner::{Error, ErrorCode, Project, Result};
use runner_core::meta::{ExecutorRun, IterationMeta, IterationVerdict, OutcomeClass};
use runner_core::usage::Usage;
use serde_json::{Value, json};

use super::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// More of a log than this is not printed; the file is named instead.
const SHOWN_BYTES: usize = 200_000;

/// Lists the iterations, all or those of a node, or shows one.
pub(crate) fn run(
    dir: &Path,
    iter: Option<u32>,
    node: Option<&str>,
    out: &mut OutputGate,
) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    match iter {
        Some(iter) => show(&project, iter, out),
        None => list(&project, node, out),
    }
}

fn list(project: &Project, node: Option<&str>, out: &mut OutputGate) -> Result<Exit> {
    let mut view = runner::run_view(project)?;
    if let Some(node) = node {
        // One that is not finished has not said which node it works on.
        view.iterations
            .retain(|it| it.meta.as_ref().is_some_and(|meta| meta.node_id == node));
        if view.iterations.is_empty() {
            runner::find_node(project, node)?;
        }
    }
    let used = Usage::of(view.iterations.iter().filter_map(|it| it.meta.as_ref()));
    if out.json {
        let rows: Vec<Value> = view
            .iterations
            .iter()
            .map(|it| json!({"iter": it.iter, "meta": it.meta}))
            .collect();
        out.object(json!({
            "run_id": view.run_id,
            "node_id": node,
            "iterations": rows,
            "usage": used,
        }));
        return Ok(Exit::Success);
    }
    if view.iterations.is_empty() {
        out.say(&match node {
            None => "no iterations are recorded in this clone".to_owned(),
            Some(node) => format!("no iterations of {node} are recorded in this clone"),
        });
    }
    for it in &view.iterations {
        let line = match &it.meta {
            Some(meta) => row(meta, used.tokens().is_some(), out),
            None => format!("{:>4}  (not finished)", it.iter),
        };
        out.data(&line);
    }
    if node.is_some() && used.iterations > 0 {
        out.say(&format!(
            "{}, {}; tokens: {}; cost: {}",
            style::counted(used.iterations, "iteration"),
            style::duration(used.duration_ms),
            style::tokens(&used),
            style::cost(&used)
        ));
    }
    Ok(Exit::Success)
}

/// One line an iteration; the columns are as wide as their longest words.
pub(crate) fn row(meta: &IterationMeta, with_usage: bool, out: &OutputGate) -> String {
    let tone = tone(meta);
    let usage = if with_usage {
        used(meta)
    } else {
        String::new()
    };
    let flag = match () {
        () if !meta.facts.guard_written.is_empty() => "  the agent wrote its own guard",
        () if !meta.watched_changed.is_empty() => "  watched files changed",
        () => "",
    };
    format!(
        "{:>4}  {}  {:<9} {:<10} {:<14} {:>7}{usage}{flag}",
        meta.iter,
        out.paint
            .paint(tone, format!("{:<24}", style::one_line(&meta.node_id, 24))),
        meta.mode.as_str(),
        meta.status.to_string(),
        outcome(meta),
        duration(meta),
    )
}

/// How long it took; what was cut off has no end.
fn duration(meta: &IterationMeta) -> String {
    match meta.verdict() {
        IterationVerdict::CutOff => String::new(),
        _ => style::duration(meta.duration_ms),
    }
}

fn used(meta: &IterationMeta) -> String {
    let run = meta.executor.as_ref();
    let tokens = run.and_then(ExecutorRun::tokens);
    let tokens = tokens.map_or_else(|| "? tokens".to_owned(), |it| format!("{it} tokens"));
    let cost = run.and_then(|run| run.cost_usd);
    let cost = cost.map_or_else(|| "?".to_owned(), style::dollars);
    format!("  {tokens:>15}  {cost:>8}")
}

/// The same for a narrow place.
pub(crate) fn short_row(meta: &IterationMeta) -> String {
    let status = match meta.class {
        OutcomeClass::Ok => format!("{:?}, ", meta.status).to_lowercase(),
        _ => String::new(),
    };
    let took = match duration(meta) {
        empty if empty.is_empty() => empty,
        took => format!(", {took}"),
    };
    format!(
        "{:>3} {}: {status}{}{took}",
        meta.iter,
        style::one_line(&meta.node_id, 24),
        outcome(meta),
    )
}

/// How good an outcome is.
pub(crate) fn tone(meta: &IterationMeta) -> TextTone {
    match meta.class {
        OutcomeClass::Ok if meta.passes == Some(true) => TextTone::Good,
        OutcomeClass::Ok | OutcomeClass::Repaired => TextTone::Busy,
        _ => TextTone::Bad,
    }
}

fn outcome(meta: &IterationMeta) -> String {
    match meta.class {
        OutcomeClass::Ok => format!("guard {}", meta.guard),
        _ if meta.verdict() == IterationVerdict::CutOff => meta.verdict().words().to_owned(),
        class => class_word(class).to_owned(),
    }
}

fn class_word(class: OutcomeClass) -> &'static str {
    match class {
        OutcomeClass::Ok => "ok",
        OutcomeClass::AgentError => "agent error",
        OutcomeClass::InvalidTree => "invalid tree",
        OutcomeClass::RunnerError => "runner error",
        OutcomeClass::Repaired => "repaired",
        OutcomeClass::RepairRefused => "repair refused",
        OutcomeClass::RepairRestored => "tree restored",
    }
}

fn show(project: &Project, iter: u32, out: &mut OutputGate) -> Result<Exit> {
    let (run, folder) = runner::iteration_folder(project, iter)?;
    let meta = runner::meta_of(project, &run, iter).ok_or_else(|| {
        Error::new(
            ErrorCode::NotFound,
            format!("iteration {iter} is not finished"),
        )
    })?;
    let read = |name: &str| {
        std::fs::read(folder.join(name))
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let patch = runner::patch_of(project, &run, iter, u64::MAX)?;
    let output: Option<Value> =
        read("output.json").and_then(|text| serde_json::from_str(&text).ok());
    if out.json {
        out.object(json!({
            "run_id": run,
            "iter": iter,
            "folder": folder,
            "meta": meta,
            "output": output,
            "guard_log": read("guard.log"),
            "executor_log": read("executor.log"),
            "runner_error": read("runner_error.log"),
            "agent_error": read("agent_error.log"),
            "commit": patch.as_ref().map(|it| &it.commit),
            "diff": patch.as_ref().map(|it| &it.text),
        }));
        return Ok(Exit::Success);
    }
    let head = format!("iteration {iter} of run {run}: {}", meta.node_id);
    out.data(&out.paint.paint(TextTone::Strong, head));
    out.data(&row(&meta, false, out));
    out.data(&format!("     {} to {}", meta.started_at, meta.ended_at));
    if let Some(patch) = &patch {
        out.data(&format!("     commit {}", patch.commit));
    }
    out.data(&format!("     contained by: {}", meta.sandbox));
    if let Some(run) = &meta.executor
        && let Some(tokens) = run.tokens()
    {
        let cost = run
            .cost_usd
            .map_or_else(|| "unknown".to_owned(), style::dollars);
        out.data(&format!("     tokens: {tokens}, cost: {cost}"));
    }
    for note in &meta.notes {
        out.data(&format!("     note: {}", style::harmless(note)));
    }
    for file in &meta.facts.guard_written {
        out.data(&format!("     the agent wrote its own guard: {file}"));
    }
    for file in &meta.watched_changed {
        out.data(&format!("     watched file changed: {file}"));
    }
    let summary = output
        .as_ref()
        .and_then(|value| value["summary"].as_str())
        .map(str::to_owned);
    section("summary", summary, out);
    section("runner error", read("runner_error.log"), out);
    section("what was not accepted", read("agent_error.log"), out);
    section("guard", read("guard.log"), out);
    section("diff", patch.map(|it| it.text), out);
    out.say(&format!("everything else is in {}", folder.display()));
    Ok(Exit::Success)
}

fn section(title: &str, text: Option<String>, out: &mut OutputGate) {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return;
    };
    out.data("");
    out.data(&out.paint.paint(TextTone::Strong, title));
    let text = style::harmless(text.trim_end());
    out.data(&runner_core::text::cut_middle(&text, SHOWN_BYTES, 70));
}
