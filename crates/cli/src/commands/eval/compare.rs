//! `runner eval compare`.

use runner::{Error, ErrorCode, Result};
use runner_eval::EvalFolders;
use runner_eval::report::{
    self, CaseComparison, ComparisonVerdict, EvalComparison, StatisticalTest,
};

use super::report::{millis, percent, read};
use crate::commands::Exit;
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Compares two sets.
pub(crate) fn compare(
    folders: &EvalFolders,
    (a, b): (&str, &str),
    case: Option<&str>,
    out: &mut OutputGate,
) -> Result<Exit> {
    let records = read(folders, case, out)?;
    let (side_a, side_b) = (records.select(a)?, records.select(b)?);
    let comparison = report::compare((a, &side_a), (b, &side_b)).ok_or_else(|| {
        Error::new(
            ErrorCode::NotFound,
            format!("{a} and {b} have no case in common"),
        )
        .hint("run the same cases for both, with `runner eval run CASE --label NAME`")
    })?;
    if out.json {
        let mut value = serde_json::to_value(&comparison).map_err(std::io::Error::from)?;
        value["says"] = verdict_words(&comparison).into();
        out.object(value);
        return Ok(Exit::Success);
    }
    print(&comparison, out);
    Ok(Exit::Success)
}

fn print(comparison: &EvalComparison, out: &mut OutputGate) {
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        let (low, high) = side.interval;
        out.data(&format!(
            "{letter}  {}: {} of {} {}, 95% interval {} to {}",
            style::one_line(&side.name, 60),
            side.passed,
            side.runs,
            percent(side.rate),
            percent(low),
            percent(high)
        ));
    }
    for (name, a, b) in &comparison.changed {
        let line = format!("   {name}: {a} → {b}");
        out.data(&out.paint.paint(TextTone::Dim, style::harmless(&line)));
    }
    let width = comparison
        .cases
        .iter()
        .map(|it| it.a.case.len())
        .max()
        .unwrap_or(0);
    for case in &comparison.cases {
        print_case(case, width, out);
    }
    for (names, side) in [(&comparison.only_a, "A"), (&comparison.only_b, "B")] {
        if !names.is_empty() {
            out.say(&format!(
                "note: left out, since {side} alone has it: {}",
                names.join(", ")
            ));
        }
    }
    for name in &comparison.mixed {
        out.say(&format!(
            "note: the runs of {name} were made with more than one setup; `runner eval report` shows which"
        ));
    }
    let tone = match comparison.verdict {
        ComparisonVerdict::Better => TextTone::Good,
        ComparisonVerdict::Worse => TextTone::Bad,
        ComparisonVerdict::NoDifference | ComparisonVerdict::TooFew => TextTone::Busy,
    };
    let how = match comparison.test {
        StatisticalTest::PairedSign => format!(
            "sign test over {} pairs: B alone passed {}, A alone {}",
            comparison.pairs, comparison.b_alone, comparison.a_alone
        ),
        StatisticalTest::FisherExact => "Fisher's exact test".to_owned(),
    };
    let (points, low, high) = comparison.difference;
    let words = out.paint.paint(tone, verdict_words(comparison));
    out.data(&words);
    let more = format!(
        "   {how}, p = {:.3}; difference {:+.0} points, 95% interval {:+.0} to {:+.0}",
        comparison.p_value,
        points * 100.0,
        low * 100.0,
        high * 100.0
    );
    out.data(&out.paint.paint(TextTone::Dim, more));
}

fn print_case(case: &CaseComparison, width: usize, out: &mut OutputGate) {
    let number = |it: Option<f64>| it.map_or_else(|| "–".to_owned(), |it| format!("{it:.0}"));
    let cost = |it: Option<f64>| it.map_or_else(|| "–".to_owned(), style::dollars);
    let time = |it: Option<f64>| it.map_or_else(|| "–".to_owned(), millis);
    let (a, b) = (&case.a, &case.b);
    out.data(&format!(
        "   {:width$}  {}/{} → {}/{}  iterations {} → {}  duration {} → {}  cost {} → {}",
        a.case,
        a.passed,
        a.runs,
        b.passed,
        b.runs,
        number(a.iterations.median),
        number(b.iterations.median),
        time(a.duration_ms.median),
        time(b.duration_ms.median),
        cost(a.cost_usd.median),
        cost(b.cost_usd.median),
    ));
}

fn verdict_words(comparison: &EvalComparison) -> String {
    match comparison.verdict {
        ComparisonVerdict::Better => "B is better".to_owned(),
        ComparisonVerdict::Worse => "B is worse".to_owned(),
        ComparisonVerdict::NoDifference => "no difference of ten points or more".to_owned(),
        ComparisonVerdict::TooFew => match comparison.runs_needed {
            Some(needed) => {
                let of_each = if comparison.cases.len() > 1 {
                    "runs of each case on each side"
                } else {
                    "runs on each side"
                };
                format!("too few runs to tell (need about {needed} {of_each})")
            }
            None => "too few runs to tell".to_owned(),
        },
    }
}
