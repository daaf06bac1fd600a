//! Following a run as it goes: the events of the loop and, within each iteration,
//! what the agent's session says.
//!
//! It reads only what is new, and of a flood only the end: see [`crate::state::tail`].

use runner_agents::{AgentEvent, AgentReader};
use runner_core::config::BackendKind;
use runner_core::meta::IterationMeta;

use crate::lock::ProjectLock;
use crate::project::Project;
use crate::state;
use crate::state::activity::{ActivityTrail, LoopEvent, RunActivity, events_path};
use crate::state::tail::FileTail;
use crate::state::view;

/// How much of each file one look reads.
const PIECE: u64 = 256 * 1024;

/// How much of a session that is under way is shown when somebody begins to follow.
const BACKLOG: u64 = 64 * 1024;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum FollowedEvent {
    /// A line of `events.jsonl`.
    Loop(LoopEvent),
    /// Something in the session of an iteration.
    Agent {
        /// The iteration.
        iter: u32,
        /// What.
        event: AgentEvent,
    },
    /// An iteration is recorded.
    Outcome(Box<IterationMeta>),
    /// So many bytes of a log were too many to show.
    Skipped(u64),
}

/// Follows the current run.
pub struct RunFollower {
    project: Project,
    run_id: String,
    events: FileTail,
    session: Option<FollowSession>,
    trail: ActivityTrail,
    /// What is under way, from its beginning; told with the first look.
    backlog: Vec<LoopEvent>,
}

struct FollowSession {
    iter: u32,
    tail: FileTail,
    reader: Box<dyn AgentReader>,
}

impl RunFollower {
    /// From the beginning of the iteration that is under way, or the last one of the
    /// loop that is. `None` before the first start.
    pub fn new(project: &Project) -> Option<Self> {
        let run_id = state::load_run_state(project).ok()?.run_id?;
        let mut events = FileTail::new(events_path(project, &run_id));
        events.skip_to_last(PIECE);
        let mut trail = ActivityTrail::default();
        let mut backlog: Vec<LoopEvent> = Vec::new();
        for line in events.read(PIECE).lines {
            let Some(event) = LoopEvent::parse(&line) else {
                continue;
            };
            trail.push(&event);
            if matches!(event.event.as_str(), "iteration_started" | "loop_started") {
                backlog.clear();
            }
            let is_end = event.event == "finished";
            backlog.push(event);
            if is_end {
                // That loop is over.
                backlog.clear();
            }
        }
        Some(RunFollower {
            project: project.clone(),
            run_id,
            events,
            session: None,
            trail,
            backlog,
        })
    }

    /// The run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// What is going on, by the events so far.
    pub fn activity(&self) -> RunActivity {
        let mut now = self.trail.activity(ProjectLock::holder(&self.project));
        now.run_id = Some(self.run_id.clone());
        now
    }

    /// What is new since the last look.
    pub fn look(&mut self) -> Vec<FollowedEvent> {
        let mut found = Vec::new();
        for event in std::mem::take(&mut self.backlog) {
            self.take_in(event, true, &mut found);
        }
        let chunk = self.events.read(PIECE);
        if chunk.skipped > 0 {
            found.push(FollowedEvent::Skipped(chunk.skipped));
        }
        for line in chunk.lines {
            if let Some(event) = LoopEvent::parse(&line) {
                self.trail.push(&event);
                self.take_in(event, false, &mut found);
            }
        }
        self.listen(&mut found);
        found
    }

    fn take_in(&mut self, event: LoopEvent, is_old: bool, found: &mut Vec<FollowedEvent>) {
        let recorded = matches!(event.event.as_str(), "committed" | "recovered");
        match (event.event.as_str(), event.iter) {
            ("agent_started", Some(iter)) => {
                let word = event.text("backend").unwrap_or_default();
                let kind = BackendKind::from_word(word).unwrap_or(BackendKind::Command);
                let folder = self.project.iteration(&self.run_id, iter);
                let mut tail = FileTail::new(folder.join("stream.jsonl"));
                let skipped = if is_old {
                    tail.skip_to_last(BACKLOG)
                } else {
                    0
                };
                self.session = Some(FollowSession {
                    iter,
                    tail,
                    reader: runner_agents::backend(kind).reader(),
                });
                found.push(FollowedEvent::Loop(event));
                if skipped > 0 {
                    found.push(FollowedEvent::Skipped(skipped));
                }
                return;
            }
            ("agent_ended", _) => {
                // What it said comes before its end. A flood is passed over, so this ends.
                while self.listen(found) {}
                self.session = None;
            }
            _ => {}
        }
        let iter = event.iter;
        found.push(FollowedEvent::Loop(event));
        if let (true, Some(iter)) = (recorded, iter)
            && let Some(meta) = view::meta_of(&self.project, &self.run_id, iter)
        {
            found.push(FollowedEvent::Outcome(Box::new(meta)));
        }
    }

    /// What the session said since the last look. False: nothing.
    fn listen(&mut self, found: &mut Vec<FollowedEvent>) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let chunk = session.tail.read(PIECE);
        let any = !chunk.lines.is_empty() || chunk.skipped > 0;
        if chunk.skipped > 0 {
            found.push(FollowedEvent::Skipped(chunk.skipped));
        }
        for line in chunk.lines {
            let iter = session.iter;
            let events = session.reader.line(&line).into_iter();
            found.extend(events.map(|event| FollowedEvent::Agent { iter, event }));
        }
        any
    }
}
