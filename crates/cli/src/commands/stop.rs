//! `runner stop`.

use std::path::Path;
use std::time::Duration;

use runner::{LastEnd, Project, Result, RunActivity};
use runner_exec::{Cancel, HangUp};
use serde_json::json;

use super::{Exit, status};
use crate::out::OutputGate;
use crate::style;

/// How often the line that says what is waited for is drawn again.
const LOOK: Duration = Duration::from_secs(1);

/// Asks the running loop to stop and, if wanted, waits until it has.
pub(crate) fn run(dir: &Path, now: bool, wait: bool, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::find(dir)?;
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    let before = runner::activity(&project);
    let Some(asked) = runner::ask_to_stop(&project, now)? else {
        if out.json {
            out.object(json!({"result": "not_running"}));
        } else {
            out.say("nothing is running here");
        }
        return Ok(Exit::Success);
    };
    if !out.json {
        let when = match (now, before.iter) {
            (true, _) => "at once; the next start settles its iteration".to_owned(),
            (false, Some(iter)) if before.phase.in_iteration() => {
                format!("after iteration {iter}")
            }
            (false, _) => "before the next iteration".to_owned(),
        };
        out.say(&format!(
            "asked the runner (pid {}) to end {when}",
            asked.pid
        ));
    }
    if !wait {
        if out.json {
            out.object(json!({"result": "asked", "pid": asked.pid, "now": now}));
        }
        return Ok(Exit::Success);
    }
    while !asked.wait(LOOK, &cancel)? {
        if cancel.is_cancelled() {
            out.clear_line();
            out.say("no longer waiting; the runner was asked and will end");
            return Ok(Exit::Interrupted);
        }
        draw(&runner::activity(&project), out);
    }
    out.clear_line();
    let after = runner::activity(&project);
    let end = after.last_end.as_ref().filter(|end| is_new(end, &before));
    if out.json {
        out.object(json!({"result": "ended", "pid": asked.pid, "now": now, "last_end": end}));
    } else {
        match end {
            Some(end) => {
                let why = end.message.as_deref().map_or_else(String::new, |why| {
                    format!(": {}", style::one_line(why, 160))
                });
                let status = style::one_line(&end.status, 40);
                out.say(&format!("the loop has ended ({status}){why}"));
            }
            None => out.say("the runner has ended"),
        }
        if after.cut_off {
            out.say("`runner loop` settles the iteration that was cut off and goes on");
        }
    }
    Ok(Exit::Success)
}

/// Whether this is the end that was waited for, and not that of an earlier loop.
fn is_new(end: &LastEnd, before: &RunActivity) -> bool {
    before.since.as_ref().is_none_or(|since| end.at >= *since)
}

fn draw(now: &RunActivity, out: &mut OutputGate) {
    if let Some((_, doing)) = status::describe(now).into_iter().next() {
        out.live_line(&format!("waiting: {doing}"));
    }
}
