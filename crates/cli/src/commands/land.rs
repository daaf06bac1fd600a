//! `runner land` and `runner abandon`: a run comes home, or is left.

use std::cell::RefCell;
use std::path::Path;

use runner::{AbandonOptions, ChangedJudge, LandOptions, LandOutcome, LandReport, Result};
use serde_json::{Value, json};

use super::{Exit, with_context};
use crate::args::LandArgs;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Brings a run home.
pub(crate) fn land(dir: &Path, args: &LandArgs, out: &mut OutputGate) -> Result<Exit> {
    // `--squash` is what happens without `--merge`.
    let options = LandOptions {
        run: args.run.clone(),
        into: args.into.clone(),
        merge: args.merge,
        keep_state: args.keep_state,
        partial: args.partial,
        changed_judge: if args.accept_changed_judge {
            ChangedJudge::Accept
        } else {
            ChangedJudge::Refuse
        },
    };
    let cell = RefCell::new(&mut *out);
    let report = with_context(&cell, false, |context| runner::land(dir, &options, context))?;
    if out.json {
        print_json(&report, args.merge, out);
    } else {
        print_human(&report, args.merge, out);
    }
    Ok(Exit::Success)
}

fn word(landed: LandOutcome) -> &'static str {
    match landed {
        LandOutcome::Now => "now",
        LandOutcome::Before => "before",
        LandOutcome::NothingNew => "nothing_new",
    }
}

fn print_json(report: &LandReport, merge: bool, out: &mut OutputGate) {
    let ids = |leaves: &[runner_core::landing::LandedLeaf]| -> Vec<String> {
        leaves.iter().map(|leaf| leaf.id.clone()).collect()
    };
    let guard = report.guard.as_ref().map(|guard| {
        let log = guard.log.display().to_string();
        json!({"command": guard.command, "exit": 0, "log": log})
    });
    let followed: Vec<Value> = report
        .followed
        .iter()
        .map(|path| json!(path.display().to_string()))
        .collect();
    out.object(json!({
        "run_id": report.run_id,
        "branch": report.branch,
        "into": report.into,
        "landed": word(report.landed),
        "commit": report.commit,
        "tip": report.tip,
        "how": if merge { "merge" } else { "squash" },
        "partial": report.partial,
        "passed": ids(&report.passed),
        "open": ids(&report.open),
        "left_out": report.left_out,
        "guard": guard,
        "accepted": report.accepted,
        "here": report.here,
        "followed": followed,
    }));
}

fn print_human(report: &LandReport, merge: bool, out: &mut OutputGate) {
    let LandReport {
        run_id,
        into,
        branch,
        ..
    } = report;
    let commit = report.commit.get(..12).unwrap_or(&report.commit);
    match report.landed {
        LandOutcome::Now => {
            let word = out.paint.paint(TextTone::Good, "landed");
            let how = if merge { "a merge" } else { "one commit" };
            let part = if report.partial { " in part" } else { "" };
            out.data(&format!(
                "run {run_id} has {word}{part} on {into} as {how}: {commit}"
            ));
        }
        LandOutcome::Before => out.data(&format!(
            "run {run_id} has landed on {into} already: {commit}; nothing to do"
        )),
        LandOutcome::NothingNew => out.data(&format!(
            "{into} has everything of run {run_id} already; nothing to do"
        )),
    }
    if report.landed == LandOutcome::Now {
        out.say(&format!(
            "{} of {} leaves are in it; the guard passed on the result",
            report.passed.len(),
            report.passed.len() + report.open.len()
        ));
        for leaf in &report.passed {
            out.say(&format!("  in:      {}", leaf_line(leaf)));
        }
        for leaf in &report.open {
            out.say(&format!("  not in:  {}", leaf_line(leaf)));
        }
        if !report.accepted.is_empty() {
            out.say(&format!(
                "accepted by you: it passes only with what the run changed in {}",
                report.accepted.join(", ")
            ));
        }
        if report.left_out > 0 {
            out.say(&format!(
                "left out: {} later commits of {branch}, which no guard has passed",
                report.left_out
            ));
        }
    }
    for place in &report.followed {
        out.say(&format!(
            "the work tree {} was brought along",
            place.display()
        ));
    }
    if report.partial {
        out.say("next: `runner loop` goes on with the run");
        return;
    }
    let home = report.here.as_ref() == Some(into);
    if home {
        out.say(&format!(
            "you are on {into}; {branch} stays until `runner abandon --delete {run_id}`"
        ));
        out.say("next: `git show` to look at it, `runner init` for another goal");
    } else {
        let here = report.here.as_deref().unwrap_or("no branch");
        out.say(&format!("this work tree is still on {here}"));
    }
}

fn leaf_line(leaf: &runner_core::landing::LandedLeaf) -> String {
    style::one_line(&format!("{}: {}", leaf.id, leaf.title), 100)
}

/// Leaves a run.
pub(crate) fn abandon(
    dir: &Path,
    run: Option<&str>,
    delete: bool,
    out: &mut OutputGate,
) -> Result<Exit> {
    let options = AbandonOptions {
        run: run.map(str::to_owned),
        delete,
    };
    let cell = RefCell::new(&mut *out);
    let report = with_context(&cell, false, |context| {
        runner::abandon(dir, &options, context)
    })?;
    if out.json {
        out.object(json!({
            "run_id": report.run_id,
            "branch": report.branch,
            "tip": report.tip,
            "kept_as": report.kept_as,
            "here": report.here,
        }));
        return Ok(Exit::Success);
    }
    let (run_id, branch) = (&report.run_id, &report.branch);
    let here = report
        .here
        .as_ref()
        .map_or_else(|| "no branch".to_owned(), Clone::clone);
    out.data(&format!("run {run_id} is left; you are on {here}"));
    if let Some(place) = &report.base_elsewhere {
        out.say(&format!(
            "the branch that it began from is checked out in {}, so only its commit is here",
            place.display()
        ));
    }
    match &report.kept_as {
        Some(kept) => {
            out.say(&format!(
                "{branch} is deleted; its last commit is kept as {kept}"
            ));
            let kept_id = kept.rsplit('/').next().unwrap_or(run_id);
            out.say(&format!("to have it back: `runner start {kept_id}`"));
        }
        None => out.say(&format!(
            "{branch} stays: `runner start {run_id}` goes back to it"
        )),
    }
    out.say("next: `runner init` for another goal");
    Ok(Exit::Success)
}
