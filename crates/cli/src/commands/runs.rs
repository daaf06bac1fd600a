//! `runner runs`.

use std::path::Path;

use jiff::tz::TimeZone;
use runner::{Result, RunStanding, RunSummary};
use serde_json::{Value, json};

use super::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Lists the runs of the repository.
pub(crate) fn run(dir: &Path, out: &mut OutputGate) -> Result<Exit> {
    let runs = runner::runs(dir)?;
    if out.json {
        let list: Vec<Value> = runs.iter().map(value).collect();
        out.object(json!({"runs": list}));
    } else if runs.is_empty() {
        out.say("this repository has no run; `runner init`, then `runner start` begins one");
    } else {
        print(&runs, out);
    }
    Ok(Exit::Success)
}

fn value(run: &RunSummary) -> Value {
    json!({
        "run_id": run.run_id,
        "branch": run.branch,
        "title": run.title,
        "state": run.standing.as_str(),
        "passed": run.progress.map(|it| it.passed),
        "leaves": run.progress.map(|it| it.leaves),
        "last_activity": format!("{:.0}", run.last_activity),
        "worktree": run.worktree.as_ref().map(|path| path.display().to_string()),
        "base": run.base,
        "landed": run.landed.as_ref().map(|landed| json!({
            "branch": landed.branch,
            "commit": landed.commit,
            "in_part": landed.in_part,
        })),
    })
}

fn print(runs: &[RunSummary], out: &mut OutputGate) {
    let id_width = width(runs.iter().map(|run| run.run_id.as_str()));
    let state_width = width(runs.iter().map(|run| run.standing.as_str()));
    for run in runs {
        let word = run.standing.as_str();
        let tone = match run.standing {
            RunStanding::Complete | RunStanding::Landed => TextTone::Good,
            RunStanding::Stuck | RunStanding::Error | RunStanding::Invalid => TextTone::Bad,
            RunStanding::Abandoned => TextTone::Dim,
            _ => TextTone::Busy,
        };
        let word = out.paint.paint(tone, format!("{word:state_width$}"));
        let progress = run.progress.map_or_else(
            || "-".to_owned(),
            |it| format!("{}/{}", it.passed, it.leaves),
        );
        let when = run.last_activity.to_zoned(TimeZone::system());
        out.data(&format!(
            "{:id_width$}  {word}  {progress:>7}  {}  {}",
            run.run_id,
            when.strftime("%Y-%m-%d %H:%M"),
            style::one_line(&run.title, 60),
        ));
        for line in details(run) {
            let line = format!("{:id_width$}  {line}", "");
            out.data(&out.paint.paint(TextTone::Dim, line));
        }
    }
}

/// Where it is, and where it has landed.
fn details(run: &RunSummary) -> Vec<String> {
    let mut lines = Vec::new();
    match (&run.branch, &run.worktree) {
        (Some(branch), Some(place)) => {
            lines.push(format!("{branch}, checked out in {}", place.display()));
        }
        (Some(branch), None) => lines.push(format!("{branch}, not checked out")),
        (None, _) => lines.push(format!(
            "its branch was deleted; kept as refs/runner/abandoned/{}",
            run.run_id
        )),
    }
    if let Some(landed) = &run.landed {
        let part = if landed.in_part { "in part " } else { "" };
        let commit = landed.commit.get(..12).unwrap_or(&landed.commit);
        lines.push(format!("landed {part}on {} as {commit}", landed.branch));
    }
    lines
}

fn width<'a>(words: impl Iterator<Item = &'a str>) -> usize {
    words.map(str::len).max().unwrap_or_default()
}
