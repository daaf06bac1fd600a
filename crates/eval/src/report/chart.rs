//! Charts as inline SVG. Colours are classes of the page, so that it decides between light and dark.

use std::fmt::Write as _;

use super::{CaseReport, ChartPoint};
use crate::case::EvalOutcome;

const WIDTH: f64 = 760.0;
const LABELS: f64 = 190.0;
const RIGHT: f64 = 96.0;
const ROW: f64 = 34.0;
const TOP: f64 = 26.0;

/// Text as HTML shows it.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() && c != '\n' => escaped.push(' '),
            c if runner_core::text::is_invisible(c) => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// `42%`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// The share that passed, with its interval, of each case.
pub(super) fn rates(cases: &[CaseReport]) -> String {
    let plot = WIDTH - LABELS - RIGHT;
    let x = |share: f64| LABELS + share * plot;
    let mut body = axis(cases.len(), &[0.0, 0.25, 0.5, 0.75, 1.0], x, percent);
    for (index, case) in cases.iter().enumerate() {
        let y = row(index);
        label(&mut body, y, &case.case);
        let (low, high) = case.interval;
        let _ = write!(
            body,
            "<g><title>{}: {} of {} as expected, 95% interval {} to {}</title>\
             <rect class=\"track\" x=\"{:.1}\" y=\"{:.1}\" width=\"{plot:.1}\" height=\"14\" rx=\"7\"/>\
             <rect class=\"good\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"7\"/>\
             <path class=\"whisker\" d=\"M{:.1} {y:.1}H{:.1}M{:.1} {:.1}v10M{:.1} {:.1}v10\"/></g>",
            escape(&case.case),
            case.passed,
            case.runs,
            percent(low),
            percent(high),
            x(0.0),
            y - 7.0,
            x(0.0),
            y - 7.0,
            (case.rate * plot).max(if case.passed > 0 { 14.0 } else { 0.0 }),
            x(low),
            x(high),
            x(low),
            y - 5.0,
            x(high),
            y - 5.0,
        );
        let text = format!("{} ({}/{})", percent(case.rate), case.passed, case.runs);
        value(&mut body, y, &text);
    }
    svg(
        cases.len(),
        "Share of runs that came to what they should, with its 95% interval",
        &body,
    )
}

/// What the runs of each case came to.
pub(super) fn outcomes(cases: &[CaseReport]) -> String {
    let plot = WIDTH - LABELS - RIGHT;
    let mut body = String::new();
    for (index, case) in cases.iter().enumerate() {
        let y = row(index);
        label(&mut body, y, &case.case);
        let mut left = LABELS;
        for outcome in EvalOutcome::ALL {
            let Some(number) = case.outcomes.get(&outcome) else {
                continue;
            };
            let width = plot * f64::from(*number) / f64::from(case.runs.max(1));
            let _ = write!(
                body,
                "<g><title>{}: {number} {outcome}</title>\
                 <rect class=\"{outcome}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"18\" rx=\"3\"/>",
                escape(&case.case),
                y - 9.0,
                (width - 2.0).max(1.0),
            );
            if width > 26.0 {
                let _ = write!(
                    body,
                    "<text class=\"inside\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{number}</text>",
                    left + width / 2.0,
                    y + 4.0
                );
            }
            body.push_str("</g>");
            left += width;
        }
        let runs = if case.runs == 1 { "run" } else { "runs" };
        value(&mut body, y, &format!("{} {runs}", case.runs));
    }
    svg(cases.len(), "Outcomes of the runs", &body)
}

/// A dot for each run: where it lies on an axis that begins at 0 and ends at a round number of
/// units.
pub(super) fn dots(
    cases: &[CaseReport],
    title: &str,
    pick: impl Fn(&ChartPoint) -> Option<f64>,
    unit: impl Fn(f64) -> f64,
    shown: impl Fn(f64) -> String,
) -> Option<String> {
    let all = cases.iter().flat_map(|case| &case.points);
    let largest = all.filter_map(&pick).reduce(f64::max)?;
    let unit = unit(largest);
    let end = nice(largest / unit) * unit;
    let plot = WIDTH - LABELS - RIGHT;
    let x = |number: f64| LABELS + number / end * plot;
    let marks: Vec<f64> = [0.0, 0.25, 0.5, 0.75, 1.0].map(|it| it * end).to_vec();
    let mut body = axis(cases.len(), &marks, x, &shown);
    for (index, case) in cases.iter().enumerate() {
        let y = row(index);
        label(&mut body, y, &case.case);
        let numbers: Vec<f64> = case.points.iter().filter_map(&pick).collect();
        for (at, point) in case.points.iter().enumerate() {
            let Some(number) = pick(point) else {
                continue;
            };
            // Spread a little, so that runs alike are told apart.
            let offset = [0.0, -5.0, 5.0, -2.5, 2.5][at % 5];
            let _ = write!(
                body,
                "<circle class=\"{} dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: {}, {}</title></circle>",
                point.outcome,
                x(number),
                y + offset,
                escape(&point.run),
                point.outcome,
                escape(&shown(number)),
            );
        }
        if let Some(median) = crate::stats::median(&numbers) {
            let _ = write!(
                body,
                "<path class=\"median\" d=\"M{:.1} {:.1}v22\"><title>median {}</title></path>",
                x(median),
                y - 11.0,
                escape(&shown(median))
            );
            value(&mut body, y, &shown(median));
        }
    }
    Some(svg(cases.len(), title, &body))
}

/// The next round number: where an axis ends.
fn nice(number: f64) -> f64 {
    if number <= 0.0 {
        return 1.0;
    }
    let power = 10.0_f64.powf(number.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    let fits = |step: &&f64| **step * power >= number * 0.999_999;
    steps.iter().find(fits).unwrap_or(&10.0) * power
}

fn row(index: usize) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a few cases
    let index = index as f64;
    TOP + ROW * index + ROW / 2.0
}

fn label(body: &mut String, y: f64, text: &str) {
    let short = runner_core::text::cut_chars(text, 26);
    let _ = write!(
        body,
        "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        LABELS - 12.0,
        y + 4.0,
        escape(&short)
    );
}

fn value(body: &mut String, y: f64, text: &str) {
    let _ = write!(
        body,
        "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        WIDTH - RIGHT + 10.0,
        y + 4.0,
        escape(text)
    );
}

fn axis(
    rows: usize,
    marks: &[f64],
    x: impl Fn(f64) -> f64,
    shown: impl Fn(f64) -> String,
) -> String {
    let mut body = String::new();
    for mark in marks {
        let _ = write!(
            body,
            "<path class=\"grid\" d=\"M{:.1} {TOP}V{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(*mark),
            height(rows) - 6.0,
            x(*mark),
            TOP - 8.0,
            escape(&shown(*mark))
        );
    }
    body
}

fn height(rows: usize) -> f64 {
    row(rows) - ROW / 2.0 + 10.0
}

fn svg(rows: usize, title: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">{body}</svg>",
        height(rows),
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (number, end) in [
            (0.0, 1.0),
            (0.9, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (3.0, 4.0),
            (41.0, 50.0),
            (62_000.0, 80_000.0),
            (0.013, 0.02),
        ] {
            assert!(
                (nice(number) - end).abs() < 1e-9,
                "{number}: {}",
                nice(number)
            );
        }
    }

    #[test]
    fn nothing_in_a_name_becomes_markup() {
        assert_eq!(
            escape("<b a='1'>&\"\u{202e}"),
            "&lt;b a=&#39;1&#39;&gt;&amp;&quot;"
        );
    }
}
