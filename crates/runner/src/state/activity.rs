//! What is going on in a project right now: who holds the lock (the kernel's
//! word), and how far the events of the run say it is.
//!
//! One place for everybody who shows it: `status`, `watch`, `log --follow`, `stop`
//! and servers. Nothing here decides anything: `events.jsonl` lies where a session
//! without a sandbox can write, so its lines are shown, never trusted. Whether a
//! runner is alive, and which process it is, comes from the lock alone.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::lock::ProjectLock;
use crate::project::Project;
use crate::state;
use crate::state::log::EventLog;
use crate::state::tail;

/// How much of the end of `events.jsonl` is read to know the present.
const TAIL_BYTES: u64 = 256 * 1024;

/// What a runner is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// No runner is at work.
    #[default]
    Idle,
    /// A runner has the lock, and no iteration has begun.
    Starting,
    /// An iteration has begun; the prompt is made.
    Preparing,
    /// The agent works.
    Agent,
    /// The agent has ended; what it left is looked at.
    Checking,
    /// The guard runs.
    Guard,
    /// The guard has ended; the outcome is worked out.
    Deciding,
    /// The outcome is on disk and goes into git.
    Committing,
    /// The iteration is over and the next one has not begun.
    Between,
    /// The loop waits before it tries again.
    Waiting,
    /// A runner is at work, and its events do not tell what it does.
    Working,
}

impl RunPhase {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RunPhase::Idle => "idle",
            RunPhase::Starting => "starting",
            RunPhase::Preparing => "preparing",
            RunPhase::Agent => "agent",
            RunPhase::Checking => "checking",
            RunPhase::Guard => "guard",
            RunPhase::Deciding => "deciding",
            RunPhase::Committing => "committing",
            RunPhase::Between => "between",
            RunPhase::Waiting => "waiting",
            RunPhase::Working => "working",
        }
    }

    /// Whether an iteration is under way.
    pub fn in_iteration(self) -> bool {
        matches!(
            self,
            RunPhase::Preparing
                | RunPhase::Agent
                | RunPhase::Checking
                | RunPhase::Guard
                | RunPhase::Deciding
                | RunPhase::Committing
        )
    }
}

/// What the loop waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoopWait {
    /// When it tries again (RFC 3339, UTC).
    pub until: String,
    /// The kind of the error that made it wait, such as `quota`.
    pub kind: String,
    /// That error in words.
    pub why: String,
}

/// How the last loop ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastEnd {
    /// When (RFC 3339, UTC).
    pub at: String,
    /// `complete`, `stuck`, `limit`, `error`, `stopped` or `interrupted`.
    pub status: String,
    /// How many iterations that loop took.
    pub steps: u64,
    /// The code of the error that ended it, such as `quota` or `auth`.
    pub code: Option<String>,
    /// That error, or the reason, in words.
    pub message: Option<String>,
}

/// What is going on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunActivity {
    /// The current run; `None` before the first start.
    pub run_id: Option<String>,
    /// The runner that holds the lock. The kernel names it: a pid that was used
    /// again, or a file that somebody wrote, is never taken for it.
    pub pid: Option<u32>,
    /// When the loop at work began (RFC 3339, UTC); `None` for a single step.
    pub since: Option<String>,
    /// Where the loop at work writes what it would print, if it is detached.
    pub log: Option<PathBuf>,
    /// What it is doing.
    pub phase: RunPhase,
    /// Since when (RFC 3339, UTC).
    pub phase_started_at: Option<String>,
    /// The iteration under way, or the last one.
    pub iter: Option<u32>,
    /// Its node, or `repair-tree`.
    pub node_id: Option<String>,
    /// When that iteration began (RFC 3339, UTC).
    pub iteration_started_at: Option<String>,
    /// What it waits for, in phase `waiting`.
    pub waiting: Option<LoopWait>,
    /// How the last loop ended; `None` while one is at work.
    pub last_end: Option<LastEnd>,
    /// An iteration was begun and never ended, and no runner is at work: the next
    /// `step` or `loop` settles it.
    pub cut_off: bool,
}

impl RunActivity {
    /// Whether the runner that is named is alive.
    pub fn is_running(&self) -> bool {
        self.pid.is_some()
    }
}

/// Reads what is going on. Never fails: what cannot be read is not known.
pub fn activity(project: &Project) -> RunActivity {
    let run_id = state::load_run_state(project)
        .ok()
        .and_then(|state| state.run_id);
    // Asked first: a runner that ends meanwhile is shown with its last events, and
    // not as one that vanished in the middle.
    let pid = ProjectLock::holder(project);
    let mut trail = ActivityTrail::default();
    if let Some(run) = &run_id {
        let path = EventLog::path(&project.run_folder(run));
        for line in tail::last_lines(&path, TAIL_BYTES) {
            if let Some(event) = LoopEvent::parse(&line) {
                trail.push(&event);
            }
        }
    }
    let mut now = trail.activity(pid);
    now.log = pid.zip(run_id.as_deref()).and_then(|(pid, run)| {
        let log = loop_log(project, run);
        // Its own standard output, whatever anybody wrote down about it.
        let out = std::fs::read_link(format!("/proc/{pid}/fd/1")).ok()?;
        (out == log).then_some(log)
    });
    now.run_id = run_id;
    now
}

/// Where a detached loop of a run writes what it would print.
pub fn loop_log(project: &Project, run: &str) -> PathBuf {
    project.run_folder(run).join("loop.log")
}

/// Where the events of a run lie.
pub fn events_path(project: &Project, run: &str) -> PathBuf {
    EventLog::path(&project.run_folder(run))
}

/// One line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopEvent {
    /// When (RFC 3339, UTC).
    pub ts: String,
    /// The iteration that it belongs to.
    pub iter: Option<u32>,
    /// What happened.
    pub event: String,
    /// Everything else.
    pub more: Map<String, Value>,
}

impl LoopEvent {
    /// Reads one line; `None` if it is none of ours.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let Value::Object(mut more) = serde_json::from_slice(line).ok()? else {
            return None;
        };
        let (Value::String(ts), Value::String(event)) = (more.remove("ts")?, more.remove("event")?)
        else {
            return None;
        };
        let iter = more.remove("iter").and_then(|iter| iter.as_u64());
        Some(LoopEvent {
            ts,
            iter: iter.and_then(|iter| u32::try_from(iter).ok()),
            event,
            more,
        })
    }

    /// A field that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.more.get(name)?.as_str()
    }

    /// The object that the line was.
    pub fn to_value(&self) -> Value {
        let mut object = self.more.clone();
        object.insert("ts".to_owned(), self.ts.as_str().into());
        object.insert("iter".to_owned(), self.iter.into());
        object.insert("event".to_owned(), self.event.as_str().into());
        Value::Object(object)
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }
}

/// Follows the events of a run, one by one, in their order.
#[derive(Clone, Debug, Default)]
pub struct ActivityTrail {
    now: RunActivity,
    /// Whether any event was seen.
    any: bool,
}

impl ActivityTrail {
    /// Takes the next event in.
    pub fn push(&mut self, event: &LoopEvent) {
        self.any = true;
        let now = &mut self.now;
        let phase = match event.event.as_str() {
            "run_started" => {
                *now = RunActivity::default();
                RunPhase::Idle
            }
            "loop_started" => {
                now.since = Some(event.ts.clone());
                now.last_end = None;
                RunPhase::Starting
            }
            "iteration_started" => {
                now.iter = event.iter;
                now.node_id = event.owned("node_id");
                now.iteration_started_at = Some(event.ts.clone());
                // Of an iteration that was settled by a single step.
                now.last_end = None;
                RunPhase::Preparing
            }
            "agent_started" => RunPhase::Agent,
            "agent_ended" => RunPhase::Checking,
            "guard_started" => RunPhase::Guard,
            "guard_ended" => RunPhase::Deciding,
            "decided" => RunPhase::Committing,
            "committed" | "recovered" | "resumed" => RunPhase::Between,
            "waiting" => RunPhase::Waiting,
            "finished" => {
                now.since = None;
                now.last_end = Some(last_end(event));
                // A loop that was interrupted leaves its iteration as it is.
                if now.phase.in_iteration() {
                    now.phase
                } else {
                    RunPhase::Idle
                }
            }
            // A viewer of today with the events of tomorrow.
            _ => return,
        };
        now.waiting = (phase == RunPhase::Waiting).then(|| LoopWait {
            until: event.owned("until").unwrap_or_default(),
            kind: event.owned("kind").unwrap_or_default(),
            why: event.owned("why").unwrap_or_default(),
        });
        if phase != now.phase {
            now.phase = phase;
            now.phase_started_at = Some(event.ts.clone());
        }
    }

    /// What is going on if this runner is at work, or none is.
    pub fn activity(&self, pid: Option<u32>) -> RunActivity {
        let mut now = self.now.clone();
        now.pid = pid;
        match pid {
            None => {
                now.cut_off = now.phase.in_iteration();
                now.phase = RunPhase::Idle;
                now.phase_started_at = None;
                now.since = None;
                now.waiting = None;
            }
            Some(_) if !self.any => now.phase = RunPhase::Working,
            // The end that was written is that of an earlier one.
            Some(_) if now.last_end.is_some() || now.phase == RunPhase::Idle => {
                now.phase = RunPhase::Starting;
                now.phase_started_at = None;
                now.last_end = None;
            }
            Some(_) => {}
        }
        now
    }
}

fn last_end(event: &LoopEvent) -> LastEnd {
    let error = event.more.get("error");
    let of_error = |name: &str| {
        let text = error?.get(name)?.as_str()?;
        Some(text.to_owned())
    };
    LastEnd {
        at: event.ts.clone(),
        status: event.owned("status").unwrap_or_default(),
        steps: event
            .more
            .get("steps")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        code: of_error("code"),
        message: of_error("message").or_else(|| event.owned("reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(lines: &[&str]) -> ActivityTrail {
        let mut trail = ActivityTrail::default();
        for (second, line) in lines.iter().enumerate() {
            let line = line.replacen('{', &format!("{{\"ts\":\"t{second}\","), 1);
            trail.push(&LoopEvent::parse(line.as_bytes()).unwrap());
        }
        trail
    }

    #[test]
    fn phases_follow_the_events() {
        let lines = [
            (r#"{"event":"run_started"}"#, RunPhase::Starting),
            (r#"{"event":"loop_started"}"#, RunPhase::Starting),
            (
                r#"{"event":"iteration_started","iter":3,"node_id":"a"}"#,
                RunPhase::Preparing,
            ),
            (r#"{"event":"agent_started","iter":3}"#, RunPhase::Agent),
            (r#"{"event":"agent_ended","iter":3}"#, RunPhase::Checking),
            (r#"{"event":"guard_started","iter":3}"#, RunPhase::Guard),
            (r#"{"event":"guard_ended","iter":3}"#, RunPhase::Deciding),
            (r#"{"event":"decided","iter":3}"#, RunPhase::Committing),
            (r#"{"event":"committed","iter":3}"#, RunPhase::Between),
            (
                r#"{"event":"waiting","until":"u","kind":"quota","why":"w"}"#,
                RunPhase::Waiting,
            ),
            (r#"{"event":"resumed"}"#, RunPhase::Between),
            (r#"{"event":"unheard_of"}"#, RunPhase::Between),
        ];
        for end in 1..=lines.len() {
            let texts: Vec<&str> = lines[..end].iter().map(|(line, _)| *line).collect();
            let now = trail(&texts).activity(Some(7));
            assert_eq!(now.phase, lines[end - 1].1, "{end}");
            assert_eq!(now.waiting.is_some(), now.phase == RunPhase::Waiting);
            if end > 3 {
                assert_eq!((now.iter, now.node_id.as_deref()), (Some(3), Some("a")));
                assert_eq!(now.iteration_started_at.as_deref(), Some("t2"));
                assert_eq!(now.since.as_deref(), Some("t1"));
            }
        }
    }

    #[test]
    fn without_a_runner_it_is_idle_or_cut_off() {
        let started = [
            r#"{"event":"loop_started"}"#,
            r#"{"event":"iteration_started","iter":1,"node_id":"a"}"#,
            r#"{"event":"agent_started","iter":1}"#,
        ];
        let now = trail(&started).activity(None);
        assert!(now.cut_off && now.phase == RunPhase::Idle && now.since.is_none());
        // Interrupted: it said so itself.
        let mut lines = started.to_vec();
        lines.push(r#"{"event":"finished","status":"interrupted","steps":0}"#);
        let now = trail(&lines).activity(None);
        assert!(now.cut_off);
        assert_eq!(now.last_end.unwrap().status, "interrupted");
        lines.push(r#"{"event":"recovered","iter":1}"#);
        assert!(!trail(&lines).activity(None).cut_off);
    }

    #[test]
    fn the_end_of_an_earlier_loop_is_not_the_present() {
        let lines = [
            r#"{"event":"loop_started"}"#,
            r#"{"event":"finished","status":"error","steps":2,"error":{"code":"auth","message":"log in"}}"#,
        ];
        let end = trail(&lines).activity(None).last_end.unwrap();
        assert_eq!(
            (end.status.as_str(), end.steps, end.code.as_deref()),
            ("error", 2, Some("auth"))
        );
        let now = trail(&lines).activity(Some(1));
        assert_eq!((now.phase, now.last_end), (RunPhase::Starting, None));
        assert_eq!(
            ActivityTrail::default().activity(Some(1)).phase,
            RunPhase::Working,
            "no events at all"
        );
    }

    #[test]
    fn other_lines_are_none_of_ours() {
        for line in [
            "",
            "[]",
            "{}",
            "{\"ts\":1,\"event\":\"x\"}",
            "{\"ts\":\"x\"",
        ] {
            assert_eq!(LoopEvent::parse(line.as_bytes()), None, "{line}");
        }
    }
}
