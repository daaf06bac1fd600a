//! Gathers what the live view shows, and reads again only what has changed.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;

use runner::{FollowedEvent, Project, RunActivity, RunFollower, RunPhase, RunView, SelectResult};
use runner_agents::AgentEvent;
use runner_core::usage::Usage;

use super::screen::WatchModel;
use crate::commands::tree::TreeLine;
use crate::commands::{follow, log, status, tree};
use crate::style::{self, TextTone};

/// How many of the agent's words are kept.
const KEPT_MESSAGES: usize = 60;

/// How many outcomes are shown.
const OUTCOMES: usize = 8;

/// How long a line may be before the screen cuts it.
const LINE_CHARS: usize = 300;

/// What identifies the content of the files that the slow part is made of.
type Signature = Vec<Option<(u64, u64, i64, i64)>>;

/// Looks at the project, again and again.
pub(crate) struct WatchCollector {
    project: Project,
    follower: Option<RunFollower>,
    signature: Option<Signature>,
    /// What was read when the signature was that.
    view: runner::Result<RunView>,
    tree: Rc<Vec<TreeLine>>,
    doing: Option<String>,
    messages: VecDeque<(TextTone, String)>,
    /// Tokens and cost of the session under way.
    session: (u64, f64),
}

impl WatchCollector {
    pub(crate) fn new(project: &Project) -> Self {
        WatchCollector {
            project: project.clone(),
            follower: None,
            signature: None,
            view: runner::run_view(project),
            tree: Rc::default(),
            doing: None,
            messages: VecDeque::new(),
            session: (0, 0.0),
        }
    }

    /// How it is now.
    pub(crate) fn collect(&mut self) -> WatchModel {
        let now = runner::activity(&self.project);
        self.read_again(&now);
        self.listen(&now);
        self.model(&now)
    }

    fn read_again(&mut self, now: &RunActivity) {
        let mut paths = vec![self.project.tree(), self.project.state("run_state.json")];
        paths.push(self.project.state("config.toml"));
        if let Some(run) = &now.run_id {
            paths.push(runner::events_path(&self.project, run));
        }
        let signature: Signature = paths.iter().map(|path| identity(path)).collect();
        if self.signature.as_ref() == Some(&signature) {
            return;
        }
        self.signature = Some(signature);
        if let Ok(project) = self.project.looked_at() {
            self.project = project;
        }
        self.view = runner::run_view(&self.project);
        // A tree that an agent is just writing may be torn: the last good one stays.
        if let Ok(lines) = runner::load_tree(&self.project, tree::lines) {
            self.tree = Rc::new(lines);
        }
    }

    fn listen(&mut self, now: &RunActivity) {
        let same_run = |follower: &RunFollower| now.run_id.as_deref() == Some(follower.run_id());
        if !self.follower.as_ref().is_some_and(same_run) {
            self.follower = RunFollower::new(&self.project);
            self.messages.clear();
        }
        let Some(follower) = &mut self.follower else {
            return;
        };
        for it in follower.look() {
            match it {
                FollowedEvent::Agent { event, .. } => self.hear(&event),
                FollowedEvent::Loop(event) if event.event == "iteration_started" => {
                    self.messages.clear();
                    self.session = (0, 0.0);
                    self.doing = None;
                }
                FollowedEvent::Loop(event) if event.event == "agent_ended" => self.doing = None,
                // From here on it is in the record.
                FollowedEvent::Outcome(_) => self.session = (0, 0.0),
                _ => {}
            }
        }
        if !now.is_running() {
            self.doing = None;
        }
    }

    fn hear(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::TurnStarted => return,
            AgentEvent::Usage(usage) => {
                let tokens = usage.input_tokens.unwrap_or_default()
                    + usage.output_tokens.unwrap_or_default();
                self.session = (tokens, usage.cost_usd.unwrap_or_default());
                return;
            }
            AgentEvent::Command {
                command,
                running: true,
                ..
            } => {
                self.doing = Some(style::one_line(command, LINE_CHARS));
                return;
            }
            AgentEvent::Command { .. } => self.doing = None,
            _ => {}
        }
        let (tone, text) = follow::agent_words(event);
        for line in text.lines().filter(|line| !line.trim().is_empty()).take(20) {
            if self.messages.len() == KEPT_MESSAGES {
                self.messages.pop_front();
            }
            self.messages
                .push_back((tone, style::one_line(line, LINE_CHARS)));
        }
    }

    fn model(&self, now: &RunActivity) -> WatchModel {
        let mut model = WatchModel {
            tree: Rc::clone(&self.tree),
            doing: self.doing.clone(),
            messages: self.messages.iter().cloned().collect(),
            ..WatchModel::default()
        };
        let view = match &self.view {
            Ok(view) => view,
            Err(error) => {
                model.state = ("invalid", Some(TextTone::Bad));
                model.notice = Some((TextTone::Bad, style::one_line(&error.message, LINE_CHARS)));
                return model;
            }
        };
        model.title = style::one_line(&view.title, 200);
        model.branch = view.branch.clone().unwrap_or_default();
        model.progress = view.progress.map(|it| (it.passed, it.leaves));
        let recorded = view.state.next_iter - 1;
        let iteration = now.iter.filter(|_| now.phase.in_iteration());
        model.iteration = (iteration.unwrap_or(recorded), view.max_iterations);
        model.state = state(view, now);
        model.notice = notice(view, now);
        if now.is_running() {
            status::phase_words(now.phase).clone_into(&mut model.phase);
        }
        if now.phase.in_iteration() {
            let age = now.iteration_started_at.as_deref().and_then(status::age_ms);
            model.elapsed = age.map(|ms| (ms / 1000, view.iteration_timeout_secs));
        }
        self.add_totals(view, &mut model);
        let current = now
            .node_id
            .as_deref()
            .filter(|_| now.phase.in_iteration())
            .and_then(|id| self.tree.iter().position(|line| line.id == id));
        let next = || self.tree.iter().position(|line| line.is_next);
        model.current = current.or_else(next);
        model.outcomes = view
            .iterations
            .iter()
            .rev()
            .filter_map(|it| it.meta.as_ref())
            .take(OUTCOMES)
            .map(|meta| (log::tone(meta), log::short_row(meta)))
            .collect();
        model
    }

    fn add_totals(&self, view: &RunView, model: &mut WatchModel) {
        let totals = Usage::of(status::metas(view));
        model.spent_ms = totals.duration_ms;
        let (tokens, cost) = self.session;
        let recorded = totals.input_tokens.zip(totals.output_tokens);
        let recorded = recorded.map(|(input, output)| input + output);
        if recorded.is_some() || tokens > 0 {
            let all = recorded.unwrap_or_default() + tokens;
            model.tokens = Some((all, view.budget.max_tokens));
        }
        if totals.cost_usd.is_some() || cost > 0.0 {
            let all = totals.cost_usd.unwrap_or_default() + cost;
            model.cost = Some((all, view.budget.max_cost_usd));
        }
    }
}

/// The state in a word.
fn state(view: &RunView, now: &RunActivity) -> (&'static str, Option<TextTone>) {
    if view.run_id.is_none() {
        return ("not started", Some(TextTone::Dim));
    }
    if let Some(waiting) = &now.waiting {
        let word = if waiting.kind == "quota" {
            "quota"
        } else {
            "waiting"
        };
        return (word, Some(TextTone::Busy));
    }
    let word = status::state_word(view, now);
    let tone = match word {
        "complete" => TextTone::Good,
        "stuck" | "invalid" => TextTone::Bad,
        _ => TextTone::Busy,
    };
    (word, Some(tone))
}

/// What a person should know now.
fn notice(view: &RunView, now: &RunActivity) -> Option<(TextTone, String)> {
    if view.run_id.is_none() {
        return Some((TextTone::Busy, "`runner start` begins a run".to_owned()));
    }
    if let Some(waiting) = &now.waiting {
        let until = status::local_time(&waiting.until);
        let why = style::one_line(&waiting.why, LINE_CHARS);
        return Some((TextTone::Busy, format!("until {until}: {why}")));
    }
    if now.phase != RunPhase::Idle {
        return None;
    }
    if let Ok(SelectResult::Stuck(leaf)) = &view.next {
        return Some((
            TextTone::Bad,
            format!(
                "{} has used up its attempts: `runner why {}`",
                leaf.path, leaf.id
            ),
        ));
    }
    if now.cut_off {
        return Some((
            TextTone::Bad,
            "the last iteration was cut off: `runner loop` settles it".to_owned(),
        ));
    }
    let end = now.last_end.as_ref()?;
    let message = end.message.as_deref().unwrap_or_default();
    let message = style::one_line(message, LINE_CHARS);
    match end.status.as_str() {
        "complete" => None,
        "stopped" => Some((
            TextTone::Busy,
            format!("stopped: {message}; `runner loop` goes on"),
        )),
        status => Some((
            TextTone::Bad,
            format!("{}: {message}", style::one_line(status, 20)),
        )),
    }
}

/// Which file lies at a path, and how new it is.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}
