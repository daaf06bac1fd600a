//! `runner status`.

use std::path::Path;

use runner::{Project, Result, RunView, SelectResult};
use runner_core::meta::Meta;
use runner_core::usage::{self, Usage};
use serde_json::json;

use super::{Exit, look};
use crate::out::Out;
use crate::style::{self, Tone};

/// Shows where the run is.
pub(crate) fn run(dir: &Path, out: &mut Out) -> Result<Exit> {
    let project = Project::find(dir)?;
    let view = runner::run_view(&project)?;
    if out.json {
        print_json(&view, out);
    } else {
        print_human(&view, out);
    }
    Ok(Exit::Success)
}

fn state_word(view: &RunView) -> &'static str {
    match (&view.next, view.running_pid) {
        (_, Some(_)) => "running",
        (Err(_), _) => "invalid",
        (Ok(SelectResult::Open(_)), _) => "open",
        (Ok(SelectResult::Stuck(_)), _) => "stuck",
        (Ok(SelectResult::Complete), _) => "complete",
        (Ok(SelectResult::Repair(_)), _) => "repair",
    }
}

fn metas(view: &RunView) -> impl Iterator<Item = &Meta> {
    view.iterations.iter().filter_map(|it| it.meta.as_ref())
}

fn print_json(view: &RunView, out: &mut Out) {
    let totals = Usage::of(metas(view));
    out.object(json!({
        "run_id": view.run_id,
        "branch": view.branch,
        "title": view.title,
        "state": state_word(view),
        "passed": view.progress.map(|it| it.passed),
        "leaves": view.progress.map(|it| it.leaves),
        "next": view.next.as_ref().ok().map(look::selection_value),
        "next_iter": view.state.next_iter,
        "max_iterations": view.max_iterations,
        "iterations": view.iterations.len(),
        "last": {
            "status": view.state.last_status,
            "guard": view.state.last_guard,
            "node_id": view.state.last_node_id,
            "summary": view.state.last_summary,
        },
        "running_pid": view.running_pid,
        "duration_ms": totals.duration_ms,
        "input_tokens": totals.input_tokens,
        "cached_input_tokens": totals.cached_input_tokens,
        "output_tokens": totals.output_tokens,
        "tokens_unknown": totals.tokens_unknown,
        "cost_usd": totals.cost_usd,
        "cost_unknown": totals.cost_unknown,
        "nodes": usage::by_node(metas(view)),
    }));
}

fn print_human(view: &RunView, out: &mut Out) {
    let title = style::one_line(&view.title, 100);
    out.data(&out.paint.paint(Tone::Strong, title));
    let Some(run_id) = &view.run_id else {
        out.data("no run has been started here; `runner start` begins one");
        return;
    };
    let word = state_word(view);
    let tone = match word {
        "complete" => Tone::Good,
        "stuck" | "invalid" => Tone::Bad,
        _ => Tone::Busy,
    };
    let branch = view.branch.as_deref().unwrap_or_default();
    let pid = view
        .running_pid
        .map_or_else(String::new, |pid| format!(" (pid {pid})"));
    out.data(&format!(
        "run {run_id} on {branch}: {}{pid}",
        out.paint.paint(tone, word)
    ));
    if let Some(progress) = view.progress {
        out.data(&format!(
            "leaves:     {} of {} passed  {}",
            progress.passed,
            progress.leaves,
            bar(progress.passed, progress.leaves)
        ));
    }
    match &view.next {
        Ok(SelectResult::Open(leaf)) => out.data(&format!(
            "next:       {} (attempts used: {} of {})",
            leaf.path, leaf.attempts, leaf.max_attempts
        )),
        Ok(SelectResult::Stuck(leaf)) => out.data(&format!(
            "stuck:      {} has used up its {} attempts",
            leaf.path, leaf.max_attempts
        )),
        Ok(SelectResult::Repair(_)) => out.data("next:       the tree has to be repaired"),
        Ok(SelectResult::Complete) => {}
        Err(error) => out.data(&format!(
            "tree:       {}",
            style::one_line(&error.message, 200)
        )),
    }
    out.data(&format!(
        "iterations: {} of at most {}",
        view.state.next_iter - 1,
        view.max_iterations
    ));
    if let (Some(status), Some(node)) = (view.state.last_status, &view.state.last_node_id) {
        let guard = view
            .state
            .last_guard
            .map_or_else(String::new, |guard| format!(", guard {guard}"));
        let summary = view.state.last_summary.as_deref().unwrap_or_default();
        out.data(&format!("last:       {node}: {status}{guard}"));
        out.data(&format!("            {}", style::one_line(summary, 160)));
    }
    let totals = Usage::of(metas(view));
    out.data(&format!(
        "time:       {}",
        style::duration(totals.duration_ms)
    ));
    if totals.tokens().is_some() {
        out.data(&format!("tokens:     {}", style::tokens(&totals)));
    }
    if totals.cost_usd.is_some() {
        out.data(&format!("cost:       {}", style::cost(&totals)));
    }
    if let Ok(SelectResult::Open(leaf) | SelectResult::Stuck(leaf)) = &view.next {
        let of_leaf = metas(view).filter(|meta| meta.node_id == leaf.id);
        let used = Usage::of(of_leaf);
        if used.iterations > 0 {
            out.data(&format!(
                "this leaf:  {}, {}; tokens: {}; cost: {}",
                style::counted(used.iterations, "iteration"),
                style::duration(used.duration_ms),
                style::tokens(&used),
                style::cost(&used)
            ));
        }
    }
}

/// Twenty cells.
fn bar(passed: usize, leaves: usize) -> String {
    let filled = (passed * 20).checked_div(leaves).unwrap_or(0);
    format!("{}{}", "█".repeat(filled), "░".repeat(20 - filled))
}
