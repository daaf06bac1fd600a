//! The report as one page that needs nothing else: no script, no font, no address.

use std::fmt::Write as _;

use super::chart::{self, escape, percent};
use super::{CaseReport, EvalReport, NumberSpread};
use crate::case::EvalOutcome;

const STYLE: &str = include_str!("page.css");

/// The page.
pub fn page(report: &EvalReport, made_at: &str) -> String {
    let mut body = String::new();
    header(&mut body, report, made_at);
    if report.cases.is_empty() {
        body.push_str("<p class=\"empty\">There are no runs yet. <code>runner eval run CASE</code> makes some.</p>");
    } else {
        charts(&mut body, report);
        table(&mut body, report);
        for case in &report.cases {
            details(&mut body, case);
        }
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Eval report: {} of {} runs as expected</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        report.passed, report.runs
    )
}

fn header(body: &mut String, report: &EvalReport, made_at: &str) {
    let sets: Vec<String> = report
        .sets
        .iter()
        .map(|(set, label)| match label {
            Some(label) => format!("<b>{}</b> {}", escape(label), escape(set)),
            None => escape(set),
        })
        .collect();
    let _ = writeln!(
        body,
        "<header><h1>Eval report</h1><p class=\"sub\">{} &middot; {}</p></header>",
        escape(made_at),
        match sets.len() {
            0 => "no sets".to_owned(),
            1..=4 => sets.join(", "),
            more => format!("{more} sets"),
        }
    );
    let rate = crate::stats::rate(report.passed, report.runs);
    let (low, high) = crate::stats::wilson(report.passed, report.runs);
    let cards = [
        (
            "As expected",
            percent(rate),
            format!(
                "{} of {} runs, {} to {}",
                report.passed,
                report.runs,
                percent(low),
                percent(high)
            ),
        ),
        ("Cases", report.cases.len().to_string(), {
            let all = report.cases.iter().filter(|it| it.passed == it.runs);
            format!("{} without a miss", all.count())
        }),
        (
            "Time",
            millis(super::lossy(report.duration_ms)),
            "of all runs together".to_owned(),
        ),
        (
            "Cost",
            report
                .cost_usd
                .map_or_else(|| "unknown".to_owned(), dollars),
            "as far as agents tell".to_owned(),
        ),
    ];
    body.push_str("<section class=\"cards\">");
    for (name, number, more) in cards {
        let _ = write!(
            body,
            "<div class=\"card\"><span>{name}</span><strong>{}</strong><small>{}</small></div>",
            escape(&number),
            escape(&more)
        );
    }
    body.push_str("</section>\n");
}

fn charts(body: &mut String, report: &EvalReport) {
    let cases = &report.cases;
    let mut figure = |title: &str, note: &str, svg: String| {
        let _ = writeln!(
            body,
            "<figure><figcaption><h2>{title}</h2><p>{note}</p></figcaption>{svg}</figure>"
        );
    };
    figure(
        "How often it works",
        "The bar is the share of runs that came to what they should; the line is where the true share lies, with 95% confidence.",
        chart::rates(cases),
    );
    figure("What the runs came to", LEGEND, chart::outcomes(cases));
    let note = "A dot for each run, a line at the median.";
    let duration = chart::dots(
        cases,
        "Duration of the runs",
        |it| Some(super::lossy(it.duration_ms)),
        time_unit,
        millis,
    );
    let iterations = chart::dots(
        cases,
        "Iterations of the runs",
        |it| Some(f64::from(it.iterations)),
        |_| 1.0,
        whole,
    );
    let cost = chart::dots(
        cases,
        "Cost of the runs",
        |it| it.cost_usd,
        |_| 1.0,
        dollars,
    );
    for (title, svg) in [
        ("How long it takes", duration),
        ("How many iterations", iterations),
        ("What it costs", cost),
    ] {
        if let Some(svg) = svg {
            figure(title, note, svg);
        }
    }
}

const LEGEND: &str = "<span class=\"key success\"></span>success \
    <span class=\"key fail\"></span>fail: complete, but a check did not pass \
    <span class=\"key stuck\"></span>stuck <span class=\"key error\"></span>error";

fn table(body: &mut String, report: &EvalReport) {
    body.push_str(
        "<section><h2>All numbers</h2><div class=\"wide\"><table><thead><tr><th>case</th><th>as expected</th>\
         <th>95% interval</th><th>iterations</th><th>attempts</th><th>tokens</th>\
         <th>cost</th><th>duration</th></tr></thead><tbody>",
    );
    for case in &report.cases {
        let expects = match case.expect {
            EvalOutcome::Success => String::new(),
            other => format!(" <small>expects {other}</small>"),
        };
        let _ = write!(
            body,
            "<tr><th scope=\"row\">{}{expects}</th><td>{}/{}</td><td>{} – {}</td>",
            escape(&case.case),
            case.passed,
            case.runs,
            percent(case.interval.0),
            percent(case.interval.1),
        );
        for (spread, shown) in spreads(case) {
            let _ = write!(body, "<td>{}</td>", two(&spread, shown));
        }
        body.push_str("</tr>");
    }
    body.push_str(
        "</tbody></table></div><p class=\"sub\">Two numbers are the median and the 95th percentile.</p></section>\n",
    );
}

fn ks(case: &CaseReport, pick: fn(&super::PassK) -> f64) -> String {
    let words: Vec<String> = case
        .pass_k
        .iter()
        .map(|it| {
            format!(
                "<span title=\"k = {0}\">{0}: {1}</span>",
                it.k,
                percent(pick(it))
            )
        })
        .collect();
    words.join(" &middot; ")
}

type ShownNumber = fn(f64) -> String;

fn spreads(case: &CaseReport) -> [(NumberSpread, ShownNumber); 5] {
    [
        (case.iterations, whole),
        (case.attempts, whole),
        (case.tokens, whole),
        (case.cost_usd, dollars),
        (case.duration_ms, millis),
    ]
}

fn two(spread: &NumberSpread, shown: ShownNumber) -> String {
    match (spread.median, spread.p95) {
        (Some(median), Some(p95)) => format!("{} / {}", shown(median), shown(p95)),
        _ => "–".to_owned(),
    }
}

fn details(body: &mut String, case: &CaseReport) {
    let _ = writeln!(
        body,
        "<section><h2>{}</h2><p class=\"sub\">pass@k, at least one of k runs passes: {}<br>pass^k, all of k runs pass: {}</p>",
        escape(&case.case),
        ks(case, |it| it.at),
        ks(case, |it| it.all),
    );
    if case.reasons.is_empty() {
        body.push_str("<p>Every run was a success.</p>");
    } else {
        body.push_str("<h3>Why runs were no success</h3><ul class=\"reasons\">");
        for reason in &case.reasons {
            let detail = reason.detail.as_deref().unwrap_or_default();
            let _ = write!(
                body,
                "<li><b>{}</b> &times; {} <span>{}</span><code>{}</code></li>",
                reason.count,
                escape(&reason.reason),
                escape(runner_core::text::cut_chars(detail, 300).as_ref()),
                escape(&reason.run),
            );
        }
        body.push_str("</ul>");
    }
    body.push_str("<h3>Made with</h3><ul class=\"setups\">");
    for it in &case.setups {
        let short = |hash: &str| escape(&hash.chars().take(12).collect::<String>());
        let model = if it.setup.model.is_empty() {
            "its own model"
        } else {
            &it.setup.model
        };
        let _ = write!(
            body,
            "<li>runner {}, {} with {}; config <code>{}</code>, prompt <code>{}</code>: {} of {} as expected</li>",
            escape(&it.setup.runner_version),
            escape(&it.setup.backend),
            escape(model),
            short(&it.setup.config_hash),
            it.setup
                .prompt_hash
                .as_deref()
                .map_or("none".to_owned(), short),
            it.passed,
            it.runs
        );
    }
    body.push_str("</ul></section>\n");
}

/// A whole number as one, others with one digit.
fn whole(number: f64) -> String {
    if number.fract().abs() < 0.05 {
        format!("{number:.0}")
    } else {
        format!("{number:.1}")
    }
}

/// In which unit an axis of times has round numbers.
fn time_unit(largest: f64) -> f64 {
    match largest {
        n if n < 1000.0 => 1.0,
        n if n < 90_000.0 => 1000.0,
        n if n < 5_400_000.0 => 60_000.0,
        _ => 3_600_000.0,
    }
}

/// `850 ms`, `42 s`, `3 min`, `2.1 h`.
fn millis(number: f64) -> String {
    match number {
        n if n <= 0.0 => "0".to_owned(),
        n if n < 1000.0 => format!("{n:.0} ms"),
        n if n < 90_000.0 => format!("{} s", whole(n / 1000.0)),
        n if n < 5_400_000.0 => format!("{} min", whole(n / 60_000.0)),
        n => format!("{} h", whole(n / 3_600_000.0)),
    }
}

fn dollars(usd: f64) -> String {
    if usd < 1.0 {
        format!("${usd:.3}")
    } else {
        format!("${usd:.2}")
    }
}
