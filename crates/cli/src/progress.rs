//! Shows what is going on while a step or a loop runs.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Instant;

use runner::{ProgressObserver, RunProgress};
use runner_agents::AgentEvent;
use serde_json::json;

use crate::commands::detach::DetachParent;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Draws the live line and passes remarks on.
pub(crate) struct ProgressScreen<'o> {
    out: &'o RefCell<&'o mut OutputGate>,
    /// Whether recovery and waiting are events on stdout (`loop --json`).
    events: bool,
    current: Option<CurrentStep>,
    /// What is tried out, since when and how long it may take.
    trying: Option<(String, Instant, u64)>,
    /// Notes that have been passed on: once is enough.
    said: HashSet<String>,
    /// Who waits to hear that the first session has begun.
    starter: Option<DetachParent>,
}

struct CurrentStep {
    iter: u32,
    path: String,
    passed: usize,
    leaves: usize,
    budget_secs: u64,
    phase: &'static str,
    /// The agent's current command.
    doing: Option<String>,
    since: Instant,
}

impl<'o> ProgressScreen<'o> {
    pub(crate) fn new(out: &'o RefCell<&'o mut OutputGate>, events: bool) -> Self {
        ProgressScreen {
            out,
            events,
            current: None,
            trying: None,
            said: HashSet::new(),
            starter: None,
        }
    }

    /// Tells the one who started this process when the first session begins.
    pub(crate) fn telling(mut self, starter: Option<DetachParent>) -> Self {
        self.starter = starter;
        self
    }

    fn draw(&self) {
        if let Some((what, since, limit_secs)) = &self.trying {
            let mut out = self.out.borrow_mut();
            let line = format!(
                "{} {what} {} of {}",
                out.paint_err.paint(TextTone::Busy, "▶"),
                clock(since.elapsed().as_secs()),
                clock(*limit_secs),
            );
            return out.live_line(&line);
        }
        let Some(current) = &self.current else { return };
        let mut out = self.out.borrow_mut();
        if !out.live {
            return;
        }
        let elapsed = current.since.elapsed().as_secs();
        let paint = out.paint_err;
        let line = format!(
            "{} {}/{} leaves · iteration {} · {} · {} {} of {}",
            paint.paint(TextTone::Busy, "▶"),
            current.passed,
            current.leaves,
            current.iter,
            paint.paint(TextTone::Strong, &current.path),
            current.phase,
            clock(elapsed),
            clock(current.budget_secs),
        );
        let line = match &current.doing {
            Some(command) => format!("{line} · {}", paint.paint(TextTone::Dim, command)),
            None => line,
        };
        out.live_line(&line);
    }
}

/// `1:05`.
fn clock(secs: u64) -> String {
    format!("{}:{:02}", secs / 60, secs % 60)
}

impl ProgressObserver for ProgressScreen<'_> {
    fn progress(&mut self, progress: &RunProgress<'_>) {
        match progress {
            RunProgress::Recovered { run_id, iter, how } => {
                let mut out = self.out.borrow_mut();
                if self.events && out.json {
                    out.object(
                        json!({"event": "recovered", "run_id": run_id, "iter": iter, "how": how}),
                    );
                } else {
                    let what = match *how {
                        "finished" => "was decided but not committed: it is now",
                        _ => "was cut off: it is recorded as interrupted, its edits are kept",
                    };
                    out.say(&format!(
                        "recovered: iteration {iter} of run {run_id} {what}"
                    ));
                }
            }
            RunProgress::Started {
                iter,
                path,
                passed,
                leaves,
                budget_secs,
            } => {
                self.out
                    .borrow_mut()
                    .detail(&format!("iteration {iter}: {path}"));
                self.current = Some(CurrentStep {
                    iter: *iter,
                    path: (*path).to_owned(),
                    passed: *passed,
                    leaves: *leaves,
                    budget_secs: *budget_secs,
                    phase: "preparing",
                    doing: None,
                    since: Instant::now(),
                });
                self.draw();
            }
            RunProgress::AgentStarted => {
                if let Some(starter) = self.starter.take() {
                    starter.begun();
                }
            }
            RunProgress::Agent | RunProgress::Guard => {
                if let Some(current) = &mut self.current {
                    current.phase = if matches!(progress, RunProgress::Agent) {
                        "agent"
                    } else {
                        "guard"
                    };
                }
                self.draw();
            }
            RunProgress::AgentEvent(event) => {
                if let (
                    Some(current),
                    AgentEvent::Command {
                        command, running, ..
                    },
                ) = (&mut self.current, event)
                {
                    current.doing = running.then(|| style::one_line(command, 60));
                }
                self.draw();
            }
            RunProgress::Ended(_) => {
                self.current = None;
                self.out.borrow_mut().clear_line();
            }
            RunProgress::Waiting { secs, why } => {
                let mut out = self.out.borrow_mut();
                if self.events && out.json {
                    out.object(json!({"event": "waiting", "secs": secs, "why": why}));
                } else {
                    out.say(&format!(
                        "trying again in {}: {why}",
                        style::duration(secs * 1000)
                    ));
                }
            }
            RunProgress::Trying { what, limit_secs } => {
                self.trying = Some(((*what).to_owned(), Instant::now(), *limit_secs));
                self.draw();
            }
            RunProgress::Tried => {
                self.trying = None;
                self.out.borrow_mut().clear_line();
            }
            RunProgress::Note(text) => {
                if self.said.insert((*text).to_owned()) {
                    self.out.borrow_mut().say(&format!("note: {text}"));
                }
            }
        }
    }

    fn tick(&mut self) {
        self.draw();
    }

    fn ticks(&self) -> bool {
        self.out.borrow().live
    }
}
