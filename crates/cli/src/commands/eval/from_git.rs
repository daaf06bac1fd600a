//! `runner eval from-git`.

use std::path::Path;

use runner::{Result, SystemWallClock};
use runner_eval::{EvalContext, EvalFolders, FromGitOptions, MinedCommit};
use runner_exec::{Cancel, HangUp, Supervisor};
use serde_json::{Value, json};

use super::args::FromGitArgs;
use crate::commands::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Makes cases from commits.
pub(crate) fn run(
    dir: &Path,
    folders: &EvalFolders,
    args: &FromGitArgs,
    out: &mut OutputGate,
) -> Result<Exit> {
    let words = |line: &Option<String>| line.as_deref().map(runner::split_words).transpose();
    let options = FromGitOptions {
        range: args.range.clone(),
        check: words(&args.check)?,
        tests: args.tests.clone(),
        setup: words(&args.setup)?.unwrap_or_default(),
        dry_run: args.dry_run,
    };
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    let world = EvalContext {
        clock: &SystemWallClock,
        cancel: &cancel,
        supervisor: &Supervisor::this_binary(),
    };
    let mined = runner_eval::from_git(dir, folders, &options, &world, &mut |commit| {
        if !out.json {
            print(commit, args.dry_run, out);
        }
    })?;
    let made = mined.commits.iter().filter(|it| it.result.is_ok()).count();
    let left_out = mined.left_out();
    if out.json {
        let commits: Vec<Value> = mined.commits.iter().map(value).collect();
        let reasons: Vec<Value> = left_out
            .iter()
            .map(|(why, count)| json!({"reason": why, "commits": count}))
            .collect();
        out.object(json!({
            "commits": commits,
            "cases": made,
            "left_out": reasons,
            "dry_run": args.dry_run,
        }));
        return Ok(Exit::Success);
    }
    let looked_at = style::counted(
        u32::try_from(mined.commits.len()).unwrap_or(u32::MAX),
        "commit",
    );
    let cases = style::counted(u32::try_from(made).unwrap_or(u32::MAX), "case");
    let dry = if args.dry_run { ", none written" } else { "" };
    out.say(&format!("{looked_at}: {cases}{dry}"));
    for (why, count) in left_out {
        out.say(&format!("  {count} left out: {why}"));
    }
    Ok(Exit::Success)
}

fn print(commit: &MinedCommit, dry_run: bool, out: &mut OutputGate) {
    let short = &commit.commit[..commit.commit.len().min(8)];
    let subject = style::one_line(&commit.subject, 60);
    match &commit.result {
        Ok(file) => {
            let mark = out.paint.paint(TextTone::Good, "✓");
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let would = if dry_run { "would write " } else { "wrote " };
            out.data(&format!("{mark} {short}  {subject}  {would}{name}"));
        }
        Err(why) => {
            let mark = out.paint.paint(TextTone::Dim, "–");
            let more = why.detail().map_or_else(String::new, |detail| {
                format!(": {}", style::one_line(detail, 120))
            });
            let words = out
                .paint
                .paint(TextTone::Dim, format!("{}{more}", why.words()));
            out.data(&format!("{mark} {short}  {subject}  {words}"));
        }
    }
}

fn value(commit: &MinedCommit) -> Value {
    let (file, reason, detail) = match &commit.result {
        Ok(file) => (Some(file), None, None),
        Err(why) => (None, Some(why.words()), why.detail()),
    };
    json!({
        "commit": commit.commit,
        "subject": commit.subject,
        "file": file,
        "left_out": reason,
        "detail": detail,
    })
}
