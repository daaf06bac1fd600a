//! The head of the page: where the run is, in one word and in full, and what it
//! needs from a person.

use std::path::Path;

use jiff::Timestamp;
use runner::{CheckoutPosition, Project, RunActivity, RunPhase, RunSnapshot, SelectResult};
use runner_core::config::Config;
use runner_core::meta::{IterationErrorKind, IterationMeta, OutcomeClass};
use runner_core::paths;
use runner_core::run_state::RunState;

use crate::source::{self, FoundIteration, RunSource};
use crate::trees::{CheckedTree, NextSelection};
use crate::wire::{self, NeedsView, NeedsYou, RunStatusView};

/// How many notes of agents are shown, the newest ones, and how long each may be.
const MAX_NOTES: usize = 200;
const MAX_NOTE_CHARS: usize = 2000;

/// Everything that is known, before it is put into words.
struct HeadFacts {
    /// That there is nothing of a run here.
    no_run: Option<runner::Error>,
    state: Result<RunState, runner::Error>,
    tree: Option<CheckedTree>,
    now: RunActivity,
    /// The last recorded iteration of the run.
    last: Option<std::sync::Arc<IterationMeta>>,
}

impl HeadFacts {
    fn read(source: &RunSource, run: &RunSnapshot) -> Self {
        let project = &run.project;
        let state = runner::run_state_of(project);
        let now = runner::activity(project);
        let last = now.run_id.as_deref().and_then(|run| {
            let numbers = source::iterations(project.root(), run);
            numbers.into_iter().rev().take(2).find_map(|iter| {
                let run = run.to_owned();
                source.meta(project.root(), &FoundIteration { run, iter })
            })
        });
        HeadFacts {
            // Where git cannot be asked, a run may be hidden by that alone.
            no_run: match run.problem {
                None => project.need_state().err(),
                Some(_) => None,
            },
            state,
            tree: source.tree(project).ok(),
            now,
            last,
        }
    }

    fn next(&self) -> Option<&NextSelection> {
        match &self.tree {
            Some(Ok(tree)) => Some(&tree.next),
            _ => None,
        }
    }

    /// The error of the last iteration, if it was one.
    fn last_error(&self) -> Option<(&IterationMeta, IterationErrorKind)> {
        let meta = self.last.as_deref()?;
        let error = meta.error.as_ref()?;
        (meta.class == OutcomeClass::RunnerError).then_some((meta, error.kind))
    }

    /// Whether the quota is what keeps the run from going on.
    fn lacks_quota(&self) -> bool {
        match (&self.now.waiting, &self.now.last_end) {
            (Some(waiting), _) => waiting.kind == IterationErrorKind::Quota.as_str(),
            (None, Some(end)) => end.code.as_deref() == Some(IterationErrorKind::Quota.as_str()),
            (None, None) => {
                !self.now.is_running()
                    && self.last_error().is_some_and(|(meta, kind)| {
                        // A later iteration that was cut off has another story.
                        kind == IterationErrorKind::Quota
                            && self.now.iter.is_none_or(|it| it <= meta.iter)
                    })
            }
        }
    }

    fn status(&self) -> RunStatusView {
        let ended = self.now.last_end.as_ref().map(|end| end.status.as_str());
        match (self.now.is_running(), self.next()) {
            (true, _) if self.lacks_quota() => RunStatusView::Quota,
            (true, _) => RunStatusView::Running,
            _ if self.no_run.is_some() => RunStatusView::Idle,
            _ if self.state.is_err() => RunStatusView::Error,
            _ if self.now.run_id.is_none() => RunStatusView::Idle,
            (false, Some(NextSelection::Complete)) => RunStatusView::Complete,
            (false, Some(NextSelection::Stuck(_))) => RunStatusView::Stuck,
            (false, None) => RunStatusView::Error,
            _ if self.lacks_quota() => RunStatusView::Quota,
            _ if matches!(ended, Some("error" | "limit")) => RunStatusView::Error,
            _ if ended.is_none() && !self.now.cut_off && self.last_error().is_some() => {
                RunStatusView::Error
            }
            _ => RunStatusView::Idle,
        }
    }
}

/// The state of a run alone, for events.
pub(crate) fn status(source: &RunSource, run: &RunSnapshot) -> RunStatusView {
    HeadFacts::read(source, run).status()
}

/// The whole head.
pub(crate) fn run(source: &RunSource, run: &RunSnapshot) -> wire::RunHeadView {
    let project = &run.project;
    let known = HeadFacts::read(source, run);
    let config = runner::config_of(project);
    let goal = runner::goal_of(project);
    let of_files = known
        .state
        .as_ref()
        .err()
        .or(config.as_ref().err())
        .or(goal.as_ref().err())
        // That nothing is there needs to be said once.
        .filter(|_| known.no_run.is_none());
    let problem = run.problem.as_ref().or(of_files).cloned();
    let config = config.unwrap_or_default();
    let now = &known.now;
    let (passed, leaves) = match &known.tree {
        Some(Ok(tree)) => (Some(tree.passed), Some(tree.leaves)),
        _ => (None, None),
    };
    let note = |path: &str| notes(&runner::note_of(project, path).unwrap_or_default());
    wire::RunHeadView {
        branch: now.run_id.as_ref().map(|run| format!("runner/{run}")),
        base: now
            .run_id
            .as_deref()
            .and_then(|run| source.base(project, run)),
        goal: goal.map_or_else(
            |_| wire::GoalView::default(),
            |goal| wire::GoalView {
                title: goal.title(),
                text: goal.body().trim().to_owned(),
            },
        ),
        state: known.status(),
        pid_alive: now.is_running(),
        pid: now.pid,
        phase: now.phase.into(),
        iter: now.iter,
        node_id: now.node_id.clone(),
        phase_started_at: now.phase_started_at.clone(),
        iteration_started_at: now.iteration_started_at.clone(),
        loop_started_at: now.since.clone(),
        waiting: now.waiting.as_ref().map(|waiting| wire::WaitView {
            until: waiting.until.clone(),
            kind: waiting.kind.clone(),
            why: waiting.why.clone(),
        }),
        last_end: now.last_end.as_ref().map(|end| wire::LastEndView {
            at: end.at.clone(),
            status: end.status.clone(),
            steps: end.steps,
            code: end.code.clone(),
            message: end.message.clone(),
        }),
        cut_off: now.cut_off,
        not_running_since: not_running_since(project, now),
        next_iter: known.state.as_ref().map_or(1, |state| state.next_iter),
        next: known.next().and_then(|next| match next {
            NextSelection::Open(leaf) | NextSelection::Stuck(leaf) => Some(leaf.clone()),
            NextSelection::Complete => None,
        }),
        limits: limits(&config),
        totals: totals(source, project, now.run_id.as_deref()),
        passed,
        leaves,
        last_error: last_error(&known, problem.as_ref()),
        questions: note(paths::QUESTIONS),
        assumptions: note(paths::ASSUMPTIONS),
        needs_you: needs_you(run, &known, problem.as_ref()),
        checkout: run.position.as_ref().and_then(CheckoutPosition::words),
        run_id: now.run_id.clone(),
    }
}

fn limits(config: &Config) -> wire::LimitsView {
    wire::LimitsView {
        max_iterations: config.max_iterations,
        iteration_timeout_secs: config.iteration_timeout_secs,
        max_tokens: (config.budget.max_tokens > 0).then_some(config.budget.max_tokens),
        max_cost_usd: (config.budget.max_cost_usd > 0.0).then_some(config.budget.max_cost_usd),
    }
}

fn totals(source: &RunSource, project: &Project, run: Option<&str>) -> wire::TotalsView {
    let mut totals = wire::TotalsView::default();
    let Some(run) = run else { return totals };
    let add = |sum: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0).saturating_add(more));
        }
    };
    for iter in source::iterations(project.root(), run) {
        let it = FoundIteration {
            run: run.to_owned(),
            iter,
        };
        let Some(meta) = source.meta(project.root(), &it) else {
            continue;
        };
        totals.iterations += 1;
        totals.guard_passes += u32::from(meta.guard == runner_core::meta::GuardResult::Pass);
        totals.guard_fails += u32::from(meta.guard == runner_core::meta::GuardResult::Fail);
        totals.errors += u32::from(meta.class == OutcomeClass::RunnerError);
        totals.duration_ms += meta.duration_ms;
        totals.guard_ms += meta.guard_run.as_ref().map_or(0, |run| run.duration_ms);
        if let Some(run) = &meta.executor {
            totals.agent_ms += run.duration_ms;
            add(&mut totals.input_tokens, run.input_tokens);
            add(&mut totals.cached_input_tokens, run.cached_input_tokens);
            add(&mut totals.output_tokens, run.output_tokens);
            if let Some(cost) = run.cost_usd {
                totals.cost_usd = Some(totals.cost_usd.unwrap_or(0.0) + cost);
            }
        }
    }
    totals
}

fn last_error(known: &HeadFacts, problem: Option<&runner::Error>) -> Option<wire::LastError> {
    if let Some(problem) = problem {
        return Some(wire::LastError {
            iter: None,
            kind: None,
            message: problem.message.clone(),
            hint: problem.hint.clone(),
            at: None,
            retry_at: None,
        });
    }
    let (meta, kind) = known.last_error()?;
    let error = meta.error.as_ref()?;
    Some(wire::LastError {
        iter: Some(meta.iter),
        kind: Some(kind.into()),
        message: error.message.clone(),
        hint: None,
        at: Some(meta.ended_at.clone()),
        retry_at: error.retry_at.clone(),
    })
}

/// When the run was last heard of, if nobody is at work.
fn not_running_since(project: &Project, now: &RunActivity) -> Option<String> {
    let run = now.run_id.as_deref()?;
    if now.is_running() || now.phase != RunPhase::Idle {
        return None;
    }
    if !now.cut_off
        && let Some(end) = &now.last_end
    {
        return Some(end.at.clone());
    }
    let mut files = vec![runner::events_path(project, run)];
    if let Some(iter) = now.iter.filter(|_| now.cut_off) {
        let folder = project.iteration(run, iter);
        files.extend(["executor.log", "stream.jsonl", "guard.log"].map(|name| folder.join(name)));
    }
    files
        .iter()
        .filter_map(|path| modified(path))
        .max()
        .map(|at| at.to_string())
}

fn modified(path: &Path) -> Option<Timestamp> {
    let meta = path.symlink_metadata().ok()?;
    let at = Timestamp::try_from(meta.modified().ok()?).ok()?;
    at.round(jiff::Unit::Millisecond).ok()
}

/// The one thing that a person should do, if there is one.
fn needs_you(
    run: &RunSnapshot,
    known: &HeadFacts,
    problem: Option<&runner::Error>,
) -> Option<NeedsYou> {
    let now = &known.now;
    let project = &run.project;
    let need = |kind, mut words: String, command: &str| {
        let mut command = command.to_owned();
        if !run.can_step
            && command.starts_with("loop")
            && let Some(run_id) = &now.run_id
        {
            words.push_str(" A loop begins only on the branch of its run: go back to it first.");
            command = format!("start {run_id}");
        }
        Some(NeedsYou {
            kind,
            words,
            command: Some(command_line(project.root(), &command)),
        })
    };
    if now.is_running() {
        return None;
    }
    if let Some(problem) = problem {
        return need(NeedsView::Unreadable, problem.message.clone(), "validate");
    }
    if let Some(no_run) = &known.no_run {
        let hint = no_run.hint.as_deref().unwrap_or_default();
        let words = format!("{}: {hint}", no_run.message);
        return need(NeedsView::NoRun, words, "runs");
    }
    if now.run_id.is_none() {
        let words = "No run has been started here.";
        return need(NeedsView::NotStarted, words.to_owned(), "start");
    }
    match known.next() {
        Some(NextSelection::Complete)
            if matches!(run.position, Some(CheckoutPosition::Landed { .. })) =>
        {
            return None;
        }
        Some(NextSelection::Complete) => {
            let words = "Every leaf has passed. Look at the result and bring it home: the guard runs \
                         once more, then your branch moves.";
            return need(NeedsView::Land, words.to_owned(), "land");
        }
        Some(NextSelection::Stuck(leaf)) => {
            let words = format!(
                "{} has used up its {} attempts. See what was tried, then give it more attempts, or \
                 change its task with `runner edit tree`, and let the loop go on.",
                leaf.path, leaf.max_attempts
            );
            return need(NeedsView::Stuck, words, &format!("retry {}", leaf.id));
        }
        Some(NextSelection::Open(_)) => {}
        None => {
            if !matches!(runner::select_next(project), Ok(SelectResult::Repair(_))) {
                let words = "The tree is not valid: mend .runner/state/tree.json and commit it.";
                return need(NeedsView::InvalidTree, words.to_owned(), "validate");
            }
        }
    }
    if known.lacks_quota() {
        let until = known
            .last_error()
            .and_then(|(meta, _)| meta.error.as_ref()?.retry_at.clone())
            .map_or_else(String::new, |at| format!(" It comes back at {at}."));
        let words = format!("The quota of the agent's account is used up.{until}");
        return need(NeedsView::Quota, words, "loop --wait-quota");
    }
    if now.cut_off {
        let iter = now.iter.map_or_else(String::new, |iter| format!(" {iter}"));
        let words = format!(
            "The runner was cut off in the middle of iteration{iter}. Nothing is lost: the next \
             one settles it and goes on."
        );
        return need(NeedsView::CutOff, words, "loop");
    }
    let end = now.last_end.as_ref();
    let message = end
        .and_then(|end| end.message.clone())
        .or_else(|| {
            let (meta, _) = known.last_error()?;
            Some(meta.error.as_ref()?.message.clone())
        })
        .unwrap_or_else(|| "it does not say why".to_owned());
    match (known.status(), end.map(|end| end.status.as_str())) {
        (_, Some("limit")) => need(
            NeedsView::Limit,
            format!("A limit of the run is reached: {message}"),
            "loop",
        ),
        (RunStatusView::Error, _) => {
            let command = match end.and_then(|end| end.code.as_deref()) {
                Some("auth" | "spawn" | "guard_spawn" | "setup" | "config") => "doctor",
                _ => "loop",
            };
            let words = format!("The loop ended with an error: {message}");
            need(NeedsView::Error, words, command)
        }
        _ => need(
            NeedsView::NotRunning,
            "There is work left, and no runner is at work.".to_owned(),
            "loop",
        ),
    }
}

/// A command that works from any folder.
fn command_line(root: &Path, command: &str) -> String {
    let root = root.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    let root = if root.chars().all(plain) {
        root
    } else {
        format!("'{}'", root.replace('\'', r"'\''"))
    };
    format!("runner -C {root} {command}")
}

/// The entries of a file that agents append to: one for each item of a list and
/// for each paragraph. Headings and comments are no entries.
fn notes(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    let mut open = false;
    let mut comment = false;
    for line in text.lines() {
        let words = line.trim();
        comment |= words.starts_with("<!--");
        if comment {
            comment = !words.ends_with("-->");
            open = false;
            continue;
        }
        if words.is_empty() || words.starts_with('#') {
            open = false;
            continue;
        }
        let item = ["- ", "* ", "+ "]
            .iter()
            .find_map(|mark| words.strip_prefix(mark));
        match (item, entries.last_mut()) {
            (None, Some(entry)) if open => {
                entry.push(' ');
                entry.push_str(words);
            }
            (item, _) => entries.push(item.unwrap_or(words).to_owned()),
        }
        open = true;
    }
    let skip = entries.len().saturating_sub(MAX_NOTES);
    entries
        .into_iter()
        .skip(skip)
        .map(|entry| runner_core::text::cut_chars(&entry, MAX_NOTE_CHARS).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_items_and_paragraphs() {
        let text = "# Questions\n<!-- none\nyet -->\n- Which one?\n  It matters.\n* Why?\n\nA \
                    paragraph\nof two lines.\n\n## More\nLast";
        assert_eq!(
            notes(text),
            [
                "Which one? It matters.",
                "Why?",
                "A paragraph of two lines.",
                "Last"
            ]
        );
        assert_eq!(notes(&"- x\n".repeat(500)).len(), MAX_NOTES);
        assert!(notes("").is_empty());
    }

    #[test]
    fn commands_can_be_copied() {
        let line = |root: &str| command_line(Path::new(root), "loop");
        assert_eq!(line("/a/b-c"), "runner -C /a/b-c loop");
        assert_eq!(line("/a b/it's"), r"runner -C '/a b/it'\''s' loop");
    }
}
