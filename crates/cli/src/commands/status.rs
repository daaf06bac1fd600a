//! `runner status`.

use std::path::Path;

use runner::{CheckoutPosition, Project, Result, RunActivity, RunPhase, RunView, SelectResult};
use runner_core::meta::{self, IterationMeta};
use runner_core::usage::{self, Usage};
use serde_json::json;

use super::{Exit, look};
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Shows where the run is.
pub(crate) fn run(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let view = runner::run_view(&project)?;
    let position = runner::checkout_position(&project)?;
    if out.json {
        print_json(&view, position.as_ref(), out);
    } else {
        print_human(&view, position.as_ref(), out);
        if let Some(words) = position.and_then(|position| position.words()) {
            out.data(&format!("checkout:   {words}"));
        }
    }
    Ok(Exit::Success)
}

/// The state of the run in a word.
pub(crate) fn state_word(view: &RunView, now: &RunActivity) -> &'static str {
    match (&view.next, now.pid) {
        (_, Some(_)) => "running",
        (Err(_), _) => "invalid",
        (Ok(SelectResult::Open(_)), _) => "open",
        (Ok(SelectResult::Stuck(_)), _) => "stuck",
        (Ok(SelectResult::Complete), _) => "complete",
        (Ok(SelectResult::Repair(_)), _) => "repair",
    }
}

/// The same, and what became of a run that has ended.
fn word_of(view: &RunView, position: Option<&CheckoutPosition>) -> &'static str {
    match position {
        Some(CheckoutPosition::Landed { .. }) => "landed",
        Some(CheckoutPosition::Left(_)) => "abandoned",
        _ => state_word(view, &view.activity),
    }
}

/// Says where the run is, for commands that show something else of it than what is checked out.
pub(crate) fn tell_position(project: &Project, out: &mut OutputGate) -> Result<()> {
    if !project.is_at_commit() || out.json {
        return Ok(());
    }
    if let Some(words) = runner::position_words(project)? {
        out.say(&words);
    }
    Ok(())
}

/// What is recorded of the run.
pub(crate) fn metas(view: &RunView) -> impl Iterator<Item = &IterationMeta> {
    view.iterations.iter().filter_map(|it| it.meta.as_ref())
}

fn print_json(view: &RunView, position: Option<&CheckoutPosition>, out: &mut OutputGate) {
    let totals = Usage::of(metas(view));
    out.object(json!({
        "run_id": view.run_id,
        "branch": view.branch,
        "title": view.title,
        "state": word_of(view, position),
        "checkout": position.and_then(CheckoutPosition::words),
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
        "last_error": last_error(view).map(|(iter, message)| json!({"iter": iter, "message": message})),
        "running_pid": view.activity.pid,
        "activity": view.activity,
        "duration_ms": totals.duration_ms,
        "input_tokens": totals.input_tokens,
        "cached_input_tokens": totals.cached_input_tokens,
        "output_tokens": totals.output_tokens,
        "tokens_unknown": totals.tokens_unknown,
        "cost_usd": totals.cost_usd,
        "cost_unknown": totals.cost_unknown,
        "nodes": usage::by_node(metas(view)),
        "network_refused": meta::network_refused(metas(view)),
    }));
}

fn print_human(view: &RunView, position: Option<&CheckoutPosition>, out: &mut OutputGate) {
    let title = style::one_line(&view.title, 100);
    out.data(&out.paint.paint(TextTone::Strong, title));
    let Some(run_id) = &view.run_id else {
        out.data("no run has been started here; `runner start` begins one");
        return;
    };
    let word = word_of(view, position);
    let tone = match word {
        "complete" | "landed" => TextTone::Good,
        "stuck" | "invalid" => TextTone::Bad,
        _ => TextTone::Busy,
    };
    let branch = view.branch.as_deref().unwrap_or_default();
    let now = &view.activity;
    let pid = match (now.pid, &now.since) {
        (Some(pid), Some(since)) => format!(" (pid {pid}, since {})", local_time(since)),
        (Some(pid), None) => format!(" (pid {pid})"),
        (None, _) => String::new(),
    };
    out.data(&format!(
        "run {run_id} on {branch}: {}{pid}",
        out.paint.paint(tone, word)
    ));
    for (label, text) in describe(now) {
        out.data(&format!("{label:<12}{text}"));
    }
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
    if let Some((iter, message)) = last_error(view) {
        let message = style::one_line(message, 200);
        out.data(&format!("last error: iteration {iter}: {message}"));
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
    for sentence in meta::network_refused(metas(view)) {
        out.data(&format!("refused:    {}", style::one_line(&sentence, 160)));
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

/// What went wrong around the agent in the newest iteration.
fn last_error(view: &RunView) -> Option<(u32, &str)> {
    let meta = meta::last_error(metas(view))?;
    let error = meta.error.as_ref()?;
    Some((meta.iter, &error.message))
}

/// What is going on, as labelled lines for people.
pub(crate) fn describe(now: &RunActivity) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let node = now.node_id.as_deref().unwrap_or_default();
    let iteration = now
        .iter
        .map(|iter| format!("iteration {iter} ({})", style::one_line(node, 64)));
    if now.is_running() {
        let mut text = phase_words(now.phase).to_owned();
        if let (true, Some(iteration)) = (now.phase.in_iteration(), &iteration) {
            text = format!("{iteration}: {text}");
        }
        if let Some(since) = now.phase_started_at.as_deref().and_then(age_ms) {
            text = format!("{text} for {}", style::duration(since));
        }
        lines.push(("doing:", text));
    } else if let (true, Some(iteration)) = (now.cut_off, iteration) {
        lines.push((
            "cut off:",
            format!("{iteration}; `runner loop` settles it and goes on"),
        ));
    }
    if let Some(waiting) = &now.waiting {
        lines.push((
            "waiting:",
            format!(
                "until {}: {}",
                local_time(&waiting.until),
                style::one_line(&waiting.why, 160)
            ),
        ));
    }
    if let Some(log) = &now.log {
        lines.push(("log:", log.display().to_string()));
    }
    if let Some(end) = &now.last_end {
        let why = end.message.as_deref().unwrap_or_default();
        let why = match style::one_line(why, 160) {
            empty if empty.is_empty() => empty,
            why => format!(": {why}"),
        };
        let status = style::one_line(&end.status, 40);
        lines.push((
            "last loop:",
            format!("{status} at {}{why}", local_time(&end.at)),
        ));
    }
    lines
}

/// A phase as a person would say it.
pub(crate) fn phase_words(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Idle => "nothing",
        RunPhase::Starting => "starting",
        RunPhase::Preparing => "preparing",
        RunPhase::Agent => "the agent works",
        RunPhase::Checking => "looking at what the agent left",
        RunPhase::Guard => "the guard runs",
        RunPhase::Deciding => "deciding",
        RunPhase::Committing => "committing",
        RunPhase::Between => "between two iterations",
        RunPhase::Waiting => "waiting before the next try",
        RunPhase::Working => "at work",
    }
}

/// A time of the records as clocks here show it: with its day if that is not today.
pub(crate) fn local_time(stamp: &str) -> String {
    let Ok(at) = stamp.parse::<jiff::Timestamp>() else {
        return style::one_line(stamp, 40);
    };
    let at = at.to_zoned(jiff::tz::TimeZone::system());
    let today = style::clock().date() == at.date();
    at.strftime(if today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" })
        .to_string()
}

/// How long ago a time of the records is.
pub(crate) fn age_ms(stamp: &str) -> Option<u64> {
    let at: jiff::Timestamp = stamp.parse().ok()?;
    let age = style::clock().timestamp().as_millisecond() - at.as_millisecond();
    u64::try_from(age).ok()
}

/// Twenty cells.
fn bar(passed: usize, leaves: usize) -> String {
    let filled = (passed * 20).checked_div(leaves).unwrap_or(0);
    format!("{}{}", "█".repeat(filled), "░".repeat(20 - filled))
}
