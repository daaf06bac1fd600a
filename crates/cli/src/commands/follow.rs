//! `runner log --follow`: the running loop as it goes.

use std::path::Path;
use std::time::Duration;

use runner::{FollowedEvent, LoopEvent, Project, Result, RunActivity, RunFollower};
use runner_agents::{AgentEvent, FileChangeKind, SessionUsage};
use runner_exec::{Cancel, HangUp};
use serde_json::{Value, json};

use super::{Exit, log, status};
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// How often to look for something new.
const LOOK: Duration = Duration::from_millis(250);

/// How much of one thing that the agent said is shown.
const SHOWN_CHARS: usize = 2000;

/// Shows what happens until the loop ends.
pub(crate) fn run(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    let running = runner::activity(&project).is_running();
    let (true, Some(mut follower)) = (running, RunFollower::new(&project)) else {
        idle(&project, out)?;
        return Ok(Exit::Success);
    };
    loop {
        // Asked before the look: what a runner wrote last is still shown.
        let alive = follower.activity().is_running();
        let mut ended = false;
        for it in follower.look() {
            ended |= matches!(&it, FollowedEvent::Loop(event) if event.event == "finished");
            print(&it, out);
        }
        if ended {
            return Ok(Exit::Success);
        }
        if !alive {
            gone(&follower.activity(), out);
            return Ok(Exit::Success);
        }
        if cancel.wait(LOOK) {
            return Ok(Exit::Interrupted);
        }
    }
}

/// Nothing runs: how the last iteration ended, and that.
fn idle(project: &Project, out: &mut OutputGate) -> Result<()> {
    let view = runner::run_view(project)?;
    let now = &view.activity;
    let last = view.iterations.iter().rev().find_map(|it| it.meta.as_ref());
    if out.json {
        if let Some(meta) = last {
            out.object(json!({"event": "outcome", "iter": meta.iter, "meta": meta}));
        }
        out.object(json!({"event": "not_running", "activity": now}));
        return Ok(());
    }
    if let Some(meta) = last {
        out.data(&log::row(meta, false, out));
    }
    for (label, text) in status::describe(now) {
        out.say(&format!("{label} {text}"));
    }
    out.say("nothing is running here; `runner log ITER` shows an iteration in full");
    Ok(())
}

/// The runner has let go of the lock without the event of an end.
fn gone(now: &RunActivity, out: &mut OutputGate) {
    if out.json {
        out.object(json!({"event": "not_running", "activity": now}));
    } else if now.cut_off {
        out.say("the runner is gone and its iteration was cut off; `runner loop` settles it");
    } else {
        out.say("the runner has ended");
    }
}

fn print(it: &FollowedEvent, out: &mut OutputGate) {
    if out.json {
        out.object(match it {
            FollowedEvent::Loop(event) => event.to_value(),
            FollowedEvent::Agent { iter, event } => {
                json!({"event": "stream", "iter": iter, "stream": event})
            }
            FollowedEvent::Outcome(meta) => {
                json!({"event": "outcome", "iter": meta.iter, "meta": meta})
            }
            FollowedEvent::Skipped(bytes) => json!({"event": "skipped", "bytes": bytes}),
        });
        return;
    }
    match it {
        FollowedEvent::Loop(event) => {
            if let Some((tone, text)) = loop_words(event) {
                let time = out.paint.paint(TextTone::Dim, clock(&event.ts));
                let text = out.paint.paint(tone, style::one_line(&text, 300));
                out.data(&format!("{time}  {text}"));
            }
        }
        FollowedEvent::Agent { event, .. } => {
            let (tone, text) = agent_words(event);
            for line in text.lines() {
                out.data(&format!("          {}", out.paint.paint(tone, line)));
            }
        }
        FollowedEvent::Outcome(meta) => out.data(&log::row(meta, false, out)),
        FollowedEvent::Skipped(bytes) => {
            let text = format!("({bytes} bytes are not shown)");
            out.data(&format!(
                "          {}",
                out.paint.paint(TextTone::Dim, text)
            ));
        }
    }
}

/// The time of day here.
fn clock(stamp: &str) -> String {
    stamp.parse::<jiff::Timestamp>().map_or_else(
        |_| "--:--:--".to_owned(),
        |at| {
            at.to_zoned(jiff::tz::TimeZone::system())
                .strftime("%H:%M:%S")
                .to_string()
        },
    )
}

/// An event of the loop in words; those that say nothing to a person in none.
fn loop_words(event: &LoopEvent) -> Option<(TextTone, String)> {
    let text = |name: &str| event.text(name).unwrap_or_default();
    let exit = || match event.more.get("exit_code").and_then(Value::as_i64) {
        Some(code) => format!("exit code {code}"),
        None => "no exit code".to_owned(),
    };
    let iter = event.iter.unwrap_or_default();
    Some(match event.event.as_str() {
        "loop_started" => (TextTone::Dim, "the loop has begun".to_owned()),
        "iteration_started" => (
            TextTone::Strong,
            format!("iteration {iter}: {}", text("node_id")),
        ),
        "agent_started" => (TextTone::Busy, format!("agent: {}", text("backend"))),
        "agent_ended" => (TextTone::Busy, format!("agent ended, {}", exit())),
        "guard_started" => {
            let words = event.more.get("command").and_then(|it| it.as_array());
            let words = words.into_iter().flatten().filter_map(|it| it.as_str());
            let words: Vec<&str> = words.collect();
            (TextTone::Busy, format!("guard: {}", words.join(" ")))
        }
        "guard_ended" => (TextTone::Busy, format!("guard ended, {}", exit())),
        "recovered" => (TextTone::Busy, format!("iteration {iter} was settled")),
        "waiting" => (
            TextTone::Busy,
            format!(
                "waiting until {}: {}",
                status::local_time(text("until")),
                text("why")
            ),
        ),
        "resumed" => (TextTone::Dim, "waiting is over".to_owned()),
        "notified" => (TextTone::Dim, format!("notification: {}", text("notice"))),
        "finished" => {
            let status = text("status");
            let error = event.more.get("error").and_then(|it| it.get("message"));
            let why = error.and_then(|it| it.as_str()).unwrap_or(text("reason"));
            let tone = match status {
                "complete" => TextTone::Good,
                "stopped" => TextTone::Busy,
                _ => TextTone::Bad,
            };
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            (tone, format!("the loop has ended: {status}{why}"))
        }
        // The outcome says it.
        _ => return None,
    })
}

/// Something of the session in words, made harmless.
pub(crate) fn agent_words(event: &AgentEvent) -> (TextTone, String) {
    match event {
        AgentEvent::TurnStarted => (TextTone::Dim, "the model is asked".to_owned()),
        AgentEvent::Command {
            command,
            exit_code,
            running,
        } => {
            let command = style::one_line(command, 300);
            match (running, exit_code) {
                (true, _) => (TextTone::Strong, format!("$ {command}")),
                (false, Some(0)) => (TextTone::Good, format!("$ {command}: exit code 0")),
                (false, Some(code)) => (TextTone::Bad, format!("$ {command}: exit code {code}")),
                (false, None) => (TextTone::Dim, format!("$ {command}: ended")),
            }
        }
        AgentEvent::Message { text } => {
            let text = runner_core::text::cut_chars(text.trim(), SHOWN_CHARS);
            let words = style::harmless(&text);
            (TextTone::Plain, words)
        }
        AgentEvent::FileChange { path, kind } => {
            let what = match kind {
                FileChangeKind::Add => "wrote",
                FileChangeKind::Update => "changed",
                FileChangeKind::Delete => "removed",
            };
            (
                TextTone::Busy,
                format!("{what} {}", style::one_line(path, 300)),
            )
        }
        AgentEvent::Usage(usage) => (TextTone::Dim, usage_words(usage)),
        AgentEvent::Error { message, fatal } => {
            let word = if *fatal { "error" } else { "trouble" };
            (
                TextTone::Bad,
                format!("{word}: {}", style::one_line(message, 500)),
            )
        }
    }
}

fn usage_words(usage: &SessionUsage) -> String {
    let count = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), |it| it.to_string());
    let cost = usage
        .cost_usd
        .map_or_else(String::new, |usd| format!(", ${usd:.4}"));
    format!(
        "tokens so far: {} in, {} out{cost}",
        count(usage.input_tokens),
        count(usage.output_tokens)
    )
}
