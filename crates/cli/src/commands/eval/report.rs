//! `runner eval report` and `runner eval clean`.

use std::path::Path;

use runner::{Error, ErrorCode, Result, SystemWallClock, WallClock as _};
use runner_eval::case::EvalOutcome;
use runner_eval::report::{self, CaseReport, EvalReport, NumberSpread};
use runner_eval::{EvalFolders, EvalRecords};
use serde_json::json;

use crate::commands::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Shows the numbers of recorded runs.
pub(crate) fn report(
    folders: &EvalFolders,
    case: Option<&str>,
    set: Option<&str>,
    html: Option<&Path>,
    out: &mut OutputGate,
) -> Result<Exit> {
    let records = read(folders, case, out)?;
    let chosen = match set {
        Some(word) => records.select(word)?,
        None => records.all.clone(),
    };
    if chosen.is_empty() {
        let of = case.map_or_else(String::new, |case| format!(" of the case {case}"));
        return Err(Error::new(
            ErrorCode::NotFound,
            format!("there are no results{of} in {}", folders.results.display()),
        )
        .hint("`runner eval run CASE` makes some"));
    }
    let report = EvalReport::of(&chosen);
    if let Some(path) = html {
        let page = report::page(&report, &SystemWallClock.stamp()[..16].replace('T', " "));
        if let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            runner::files::make_folder(folder)?;
        }
        runner::files::write_whole(path, page.as_bytes())?;
    }
    if out.json {
        let mut value = serde_json::to_value(&report).map_err(std::io::Error::from)?;
        value["html"] = json!(html);
        value["unreadable"] = json!(records.unreadable);
        out.object(value);
        return Ok(Exit::Success);
    }
    for case in &report.cases {
        print_case(case, out);
    }
    if report.cases.len() > 1 {
        let cost = report
            .cost_usd
            .map_or_else(String::new, |usd| format!(", {}", style::dollars(usd)));
        out.data(&format!(
            "all: {} of {} runs as expected, {}{cost}",
            report.passed,
            report.runs,
            style::duration(report.duration_ms)
        ));
    }
    if let Some(path) = html {
        out.say(&format!("wrote {}", path.display()));
    }
    Ok(Exit::Success)
}

/// The records, and what could not be read of them.
pub(super) fn read(
    folders: &EvalFolders,
    case: Option<&str>,
    out: &mut OutputGate,
) -> Result<EvalRecords> {
    let records = EvalRecords::read(&folders.results, case)?;
    for why in &records.unreadable {
        out.say(&format!("note: left out: {}", style::harmless(why)));
    }
    Ok(records)
}

fn print_case(case: &CaseReport, out: &mut OutputGate) {
    let tone = match case.passed {
        0 => TextTone::Bad,
        passed if passed == case.runs => TextTone::Good,
        _ => TextTone::Busy,
    };
    let expects = match case.expect {
        EvalOutcome::Success => String::new(),
        other => format!(" (expects {other})"),
    };
    let name = out.paint.paint(TextTone::Strong, &case.case);
    let share = out.paint.paint(
        tone,
        format!("{} of {} {}", case.passed, case.runs, percent(case.rate)),
    );
    let (low, high) = case.interval;
    out.data(&format!(
        "{name}{expects}  {share}  95% interval {} to {}",
        percent(low),
        percent(high)
    ));
    let ks = |pick: fn(&report::PassK) -> f64| -> String {
        let words: Vec<String> = case
            .pass_k
            .iter()
            .map(|it| format!("{}: {}", it.k, percent(pick(it))))
            .collect();
        words.join("  ")
    };
    let outcomes: Vec<String> = case
        .outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    let whole = |number: f64| format!("{number:.0}");
    let total = case.total_cost_usd.map_or_else(String::new, |usd| {
        format!(", {} in all", style::dollars(usd))
    });
    let rows = [
        ("pass@k", ks(|it| it.at)),
        ("pass^k", ks(|it| it.all)),
        ("outcomes", outcomes.join(", ")),
        ("iterations", two(&case.iterations, whole)),
        ("attempts", two(&case.attempts, whole)),
        ("tokens", two(&case.tokens, whole)),
        (
            "cost",
            format!("{}{total}", two(&case.cost_usd, style::dollars)),
        ),
        ("duration", two(&case.duration_ms, millis)),
    ];
    for (name, value) in rows {
        let name = out.paint.paint(TextTone::Dim, format!("{name:<11}"));
        out.data(&format!("  {name} {value}"));
    }
    for reason in &case.reasons {
        let name = out
            .paint
            .paint(TextTone::Dim, format!("{:<11}", "failures"));
        out.data(&format!(
            "  {name} {} × {} ({})",
            reason.count,
            style::one_line(&reason.reason, 100),
            reason.run
        ));
    }
    out.data("");
}

/// `42%`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// The median, and the 95th percentile.
pub(super) fn two(spread: &NumberSpread, shown: impl Fn(f64) -> String) -> String {
    match (spread.median, spread.p95) {
        (Some(median), Some(p95)) => format!("median {}, p95 {}", shown(median), shown(p95)),
        _ => "unknown".to_owned(),
    }
}

pub(super) fn millis(number: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a duration
    let number = number.max(0.0) as u64;
    style::duration(number)
}

/// Removes what runs left.
pub(crate) fn clean(
    folders: &EvalFolders,
    names: &[String],
    all: bool,
    keep_results: bool,
    out: &mut OutputGate,
) -> Result<Exit> {
    let mut names = names.to_vec();
    if all {
        let records = EvalRecords::read(&folders.results, None)?;
        names = records.all.iter().map(|it| it.case.clone()).collect();
        names.sort();
        names.dedup();
    }
    let (mut workspaces, mut results) = (Vec::new(), Vec::new());
    for name in &names {
        runner_core::goal::check_run_id(name).map_err(|why| {
            Error::new(
                ErrorCode::NotFound,
                format!("{name:?} is no name of a case: {why}"),
            )
            .hint("`runner eval list` shows the cases")
        })?;
        let cleaned = runner_eval::clean(folders, name, keep_results)?;
        workspaces.extend(cleaned.workspaces);
        results.extend(cleaned.results);
    }
    if out.json {
        out.object(json!({"workspaces": workspaces, "results": results}));
    } else {
        let count = |paths: &[std::path::PathBuf], what: &str| {
            style::counted(u32::try_from(paths.len()).unwrap_or(u32::MAX), what)
        };
        out.say(&format!(
            "removed {} and {}",
            count(&workspaces, "workspace"),
            count(&results, "result")
        ));
    }
    Ok(Exit::Success)
}
