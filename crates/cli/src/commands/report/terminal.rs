//! The page for a terminal: readable in ten seconds, and without colours too.

use runner_core::report::{NextCommand, NodeHistory, RunReport};

use super::{NODE_COLUMNS, item, node_rows, outcomes, place, plan_change, proof, time};
use crate::style::{self, TextPaint, TextTone};

/// More of a list than this is cut, with the count of the rest.
const SHOWN: usize = 30;

/// How long one line of what agents say may be.
const WORDS: usize = 160;

/// The lines of the page.
pub(crate) fn page(report: &RunReport, paint: TextPaint) -> Vec<String> {
    let tone = match report.state {
        "complete" => TextTone::Good,
        "stuck" | "invalid" | "error" => TextTone::Bad,
        _ => TextTone::Busy,
    };
    let mut page = ReportPage {
        paint,
        lines: vec![paint.paint(tone, style::one_line(&report.verdict, 400))],
    };
    let title = style::one_line(&report.title, 100);
    page.lines.push(match place(report) {
        Some(place) => format!("{title} · {place}"),
        None => title,
    });
    page.passed(report);
    page.stuck(report);
    page.errors(report);
    page.section("tree", &page.bullets(&report.tree_findings));
    let changes: Vec<String> = report
        .plan_changes
        .iter()
        .map(|it| plan_change(it, &str::to_owned))
        .collect();
    page.section("how the plan changed", &page.bullets(&changes));
    page.touched(report);
    page.landing(report);
    page.section("assumptions", &page.bullets(&report.assumptions));
    page.section("questions", &page.bullets(&report.questions));
    page.used(report);
    page.section("not known here", &page.bullets(&report.missing));
    let next = commands(&report.next, paint, "  ");
    page.section("next", &next);
    page.lines
}

/// What went before on a leaf.
pub(crate) fn history(history: &NodeHistory, paint: TextPaint, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for one in &history.tries {
        let iter = one
            .iter
            .map_or_else(|| "last try".to_owned(), |iter| format!("iteration {iter}"));
        let words = one.summary.as_deref().unwrap_or("(no words are known)");
        let outcome = paint.paint(TextTone::Busy, one.outcome.words());
        lines.push(format!(
            "{indent}{iter}, {outcome}: {}",
            style::one_line(words, WORDS)
        ));
    }
    if let Some(guard) = &history.guard {
        let exit = guard
            .exit
            .map_or_else(|| "no exit code".to_owned(), |exit| format!("exit {exit}"));
        let head = format!(
            "{indent}the guard said no in iteration {} ({}, {exit})",
            guard.iter,
            style::one_line(&guard.command.join(" "), 80)
        );
        match guard.tail.as_deref() {
            None => lines.push(format!("{head}; its log is not in this clone")),
            Some("") => lines.push(format!("{head} and printed nothing")),
            Some(tail) => {
                lines.push(format!("{head}:"));
                for line in style::harmless(tail).lines() {
                    let bar = paint.paint(TextTone::Dim, "│");
                    lines.push(format!("{indent}  {bar} {line}"));
                }
            }
        }
    }
    lines
}

/// Commands with what they do, in two columns.
pub(crate) fn commands(list: &[NextCommand], paint: TextPaint, indent: &str) -> Vec<String> {
    let width = list.iter().map(|it| it.command.len()).max().unwrap_or(0);
    list.iter()
        .map(|it| {
            let command = paint.paint(TextTone::Strong, format!("{:width$}", it.command));
            format!("{indent}{command}  {}", it.why)
        })
        .collect()
}

struct ReportPage {
    paint: TextPaint,
    lines: Vec<String>,
}

impl ReportPage {
    fn section(&mut self, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.lines.push(String::new());
        self.lines.push(self.paint.paint(TextTone::Strong, title));
        self.lines.extend_from_slice(lines);
    }

    #[allow(clippy::unused_self)] // Beside what it is used with.
    fn bullets(&self, list: &[String]) -> Vec<String> {
        let mut lines: Vec<String> = list
            .iter()
            .take(SHOWN)
            .map(|text| format!("  - {}", item(&style::one_line(text, WORDS))))
            .collect();
        if list.len() > SHOWN {
            lines.push(format!("  and {} more", list.len() - SHOWN));
        }
        lines
    }

    fn passed(&mut self, report: &RunReport) {
        let of = |list: &[_]| list.len().saturating_sub(SHOWN);
        let hidden = of(&report.passed);
        let name = |node: &runner_core::report::PassedNode| {
            node.path.clone().unwrap_or_else(|| node.node_id.clone())
        };
        let newest = &report.passed[hidden..];
        let width = newest
            .iter()
            .map(|node| name(node).len())
            .max()
            .unwrap_or(0);
        let mut lines: Vec<String> = Vec::new();
        if hidden > 0 {
            lines.push(format!(
                "  {hidden} earlier ones (`runner report --json` has all)"
            ));
        }
        for node in newest {
            let words: Vec<String> = proof(node)
                .into_iter()
                .map(|(word, hash)| match hash {
                    Some(hash) => format!("{word} {hash}"),
                    None => word,
                })
                .collect();
            let title = style::one_line(node.title.as_deref().unwrap_or_default(), 60);
            let mark = self.paint.paint(TextTone::Good, "✓");
            let line = format!(
                "  {mark} {:width$}  {}  {title}",
                name(node),
                words.join(", ")
            );
            lines.push(line.trim_end().to_owned());
        }
        self.section("passed", &lines);
    }

    fn stuck(&mut self, report: &RunReport) {
        let mut lines = Vec::new();
        for node in &report.stuck {
            let mark = self.paint.paint(TextTone::Bad, "✗");
            let used = style::counted(node.attempts, "attempt");
            lines.push(format!(
                "  {mark} {}  {used} used up  {}",
                node.path,
                style::one_line(&node.title, 60)
            ));
            lines.extend(history(&node.history, self.paint, "      "));
        }
        self.section("stuck", &lines);
    }

    fn touched(&mut self, report: &RunReport) {
        let list: Vec<String> = report
            .touched
            .iter()
            .map(|it| {
                let files = it.files.join(", ");
                format!(
                    "iteration {} at {}: {files} ({})",
                    it.iter,
                    it.node_id,
                    it.words()
                )
            })
            .collect();
        let lines = self.bullets(&list);
        self.section("files to look at", &lines);
        let lines = self.bullets(&report.network_refused);
        self.section("refused by the network's rules", &lines);
        let lines = self.bullets(&report.sandbox_opened);
        self.section("opened by the config", &lines);
    }

    fn errors(&mut self, report: &RunReport) {
        let mut lines = Vec::new();
        for error in &report.errors {
            let message = style::one_line(&error.message, 400);
            lines.push(format!("  - iteration {}: {message}", error.iter));
            let hint = error.hint.iter();
            lines.extend(hint.map(|hint| format!("    {}", style::one_line(hint, 400))));
        }
        self.section("errors", &lines);
    }

    fn landing(&mut self, report: &RunReport) {
        let mut lines = Vec::new();
        for it in &report.landing {
            lines.push(format!("  - {}", style::one_line(&it.words(), 400)));
            let files = it.files();
            let hidden = files.len().saturating_sub(SHOWN);
            let shown = files.iter().take(SHOWN);
            lines.extend(shown.map(|name| format!("      {}", style::one_line(name, WORDS))));
            if hidden > 0 {
                lines.push(format!("      and {hidden} more"));
            }
            if let Some(accept) = &it.accept {
                let accept = style::one_line(accept, WORDS);
                lines.push(format!("    {}: {accept}", it.accept_if()));
            }
        }
        self.section("landing", &lines);
    }

    fn used(&mut self, report: &RunReport) {
        if report.run_id.is_none() {
            return;
        }
        let lines = [
            format!("  {}", outcomes(report)),
            format!("  time:   {}", time(report)),
            format!("  tokens: {}", style::tokens(&report.usage)),
            format!("  cost:   {}", style::cost(&report.usage)),
        ];
        self.section("what it took", &lines);
        let rows = node_rows(report);
        if rows.is_empty() {
            return;
        }
        let hidden = rows.len().saturating_sub(SHOWN);
        let mut rows: Vec<[String; 5]> = rows.into_iter().take(SHOWN).collect();
        rows.insert(0, NODE_COLUMNS.map(str::to_owned));
        let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4].map(width);
        for (index, row) in rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(at, (cell, width))| match at {
                    0 => format!("{cell:width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            let line = format!("    {}", cells.join("  "));
            self.lines.push(if index == 0 {
                self.paint.paint(TextTone::Dim, line)
            } else {
                line
            });
        }
        if hidden > 0 {
            self.lines.push(format!("    and {hidden} more"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_say_cannot_move_the_cursor_or_make_lines() {
        let report = super::super::hostile("x\x1b[2Jy\u{202e}\r\nerror: forged");
        let lines = page(&report, TextPaint { on: false });
        for line in &lines {
            assert!(
                !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{line:?}"
            );
        }
        // Only the guard's log has more than one line, and those stand behind a bar.
        let forged: Vec<&String> = lines.iter().filter(|it| it.contains("forged")).collect();
        assert!(forged.iter().all(|it| it.contains('│')), "{forged:?}");
    }
}
