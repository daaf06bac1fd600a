//! The page as Markdown, to be kept, mailed or pasted.
//!
//! Whatever an agent or a file said stands in a code span or a fenced block that
//! it cannot close: no heading, link, mention or HTML of its making.

use std::fmt::Write as _;

use runner_core::report::{NodeHistory, RunReport};
use runner_core::text::fence;

use super::{NODE_COLUMNS, item, node_rows, outcomes, place, plan_change, proof, time};
use crate::style;

/// How long one line of what agents say may be.
const WORDS: usize = 400;

/// The whole page.
pub(crate) fn page(report: &RunReport) -> String {
    let mut text = format!("# {}\n\n", plain(&report.verdict));
    let title = code(&report.title);
    match place(report) {
        Some(place) => {
            let _ = writeln!(text, "{title}, {}", plain(&place));
        }
        None => {
            let _ = writeln!(text, "{title}");
        }
    }
    passed(report, &mut text);
    stuck(report, &mut text);
    let errors = report.errors.iter().map(|it| {
        let hint = it.hint.as_ref();
        let hint = hint.map_or_else(String::new, |hint| format!("; {}", code(hint)));
        format!("iteration {}: {}{hint}", it.iter, code(&it.message))
    });
    list("Errors", errors, &mut text);
    list(
        "Tree",
        report.tree_findings.iter().map(|it| code(it)),
        &mut text,
    );
    let changes = report.plan_changes.iter().map(|it| plan_change(it, &code));
    list("How the plan changed", changes, &mut text);
    let touched = report.touched.iter().map(|it| {
        let files: Vec<String> = it.files.iter().map(|file| code(file)).collect();
        format!(
            "iteration {} at `{}`: {} ({})",
            it.iter,
            it.node_id,
            files.join(", "),
            it.words()
        )
    });
    list("Files to look at", touched, &mut text);
    let refused = report.network_refused.iter().map(|it| code(it));
    list("Refused by the network's rules", refused, &mut text);
    let opened = report.sandbox_opened.iter().map(|it| code(it));
    list("Opened by the config", opened, &mut text);
    let landing = report.landing.iter().map(|it| {
        let files: Vec<String> = it.files().iter().map(|name| code(name)).collect();
        let accept = it.accept.as_ref().map_or_else(String::new, |accept| {
            format!("; {}: {}", it.accept_if(), code(accept))
        });
        format!("{} ({}){accept}", plain(&it.words()), files.join(", "))
    });
    list("Landing", landing, &mut text);
    list(
        "Assumptions",
        report.assumptions.iter().map(|it| code(item(it))),
        &mut text,
    );
    list(
        "Questions",
        report.questions.iter().map(|it| code(item(it))),
        &mut text,
    );
    used(report, &mut text);
    list(
        "Not known here",
        report.missing.iter().map(|it| code(it)),
        &mut text,
    );
    let next = report
        .next
        .iter()
        .map(|it| format!("{}: {}", code(&it.command), plain(&it.why)));
    list("Next", next, &mut text);
    text
}

fn list(title: &str, items: impl Iterator<Item = String>, text: &mut String) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    let _ = write!(text, "\n## {title}\n\n");
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
}

fn passed(report: &RunReport, text: &mut String) {
    let items = report.passed.iter().map(|node| {
        let name = node.path.as_deref().unwrap_or(&node.node_id);
        let words: Vec<String> = proof(node)
            .into_iter()
            .map(|(word, hash)| match hash {
                Some(hash) => format!("{word} `{hash}`"),
                None => word,
            })
            .collect();
        let title = node.title.as_deref().filter(|it| !it.trim().is_empty());
        let title = title.map_or_else(String::new, |it| format!(": {}", code(it)));
        format!("`{name}` ({}){title}", words.join(", "))
    });
    list("Passed", items, text);
}

fn stuck(report: &RunReport, text: &mut String) {
    if report.stuck.is_empty() {
        return;
    }
    text.push_str("\n## Stuck\n");
    for node in &report.stuck {
        let used = style::counted(node.attempts, "attempt");
        let _ = write!(text, "\n### `{}`, {used} used up\n\n", node.path);
        if !node.title.trim().is_empty() {
            let _ = write!(text, "{}\n\n", code(&node.title));
        }
        history(&node.history, text);
    }
}

fn history(history: &NodeHistory, text: &mut String) {
    for one in &history.tries {
        let iter = one
            .iter
            .map_or_else(|| "last try".to_owned(), |iter| format!("iteration {iter}"));
        let words = one.summary.as_deref().unwrap_or("(no words are known)");
        let _ = writeln!(text, "- {iter}, {}: {}", one.outcome.words(), code(words));
    }
    let Some(guard) = &history.guard else { return };
    let exit = guard
        .exit
        .map_or_else(|| "no exit code".to_owned(), |exit| format!("exit {exit}"));
    let _ = write!(
        text,
        "\nThe guard said no in iteration {} ({}, {exit})",
        guard.iter,
        code(&guard.command.join(" "))
    );
    match guard.tail.as_deref() {
        None => text.push_str("; its log is not in this clone.\n"),
        Some("") => text.push_str(" and printed nothing.\n"),
        Some(tail) => {
            let tail = style::harmless(tail);
            let fence = fence(&tail);
            let _ = write!(text, ":\n\n{fence}text\n{tail}\n{fence}\n");
        }
    }
}

fn used(report: &RunReport, text: &mut String) {
    if report.run_id.is_none() {
        return;
    }
    let items = [
        outcomes(report),
        format!("time: {}", time(report)),
        format!("tokens: {}", style::tokens(&report.usage)),
        format!("cost: {}", style::cost(&report.usage)),
    ];
    list("What it took", items.into_iter(), text);
    let rows = node_rows(report);
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\n| {} |\n|---|--:|--:|--:|--:|\n",
        NODE_COLUMNS.join(" | ")
    );
    for [node, rest @ ..] in rows {
        let _ = writeln!(text, "| `{node}` | {} |", rest.join(" | "));
    }
}

/// A text as a code span that it cannot close.
fn code(text: &str) -> String {
    let line = style::one_line(text, WORDS);
    let longest = line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    match line.as_str() {
        "" => "(nothing)".to_owned(),
        // A span that begins or ends with a backtick needs room around it.
        _ if line.starts_with('`') || line.ends_with('`') => format!("{ticks} {line} {ticks}"),
        _ => format!("{ticks}{line}{ticks}"),
    }
}

/// A text of the runner's own, in which there may be foreign words.
fn plain(text: &str) -> String {
    let mut escaped = String::new();
    for c in style::one_line(text, WORDS).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // A mention would call somebody.
            '@' => escaped.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cannot_be_closed() {
        for (text, expected) in [
            ("plain", "`plain`"),
            ("a `b` c", "``a `b` c``"),
            ("`all`", "`` `all` ``"),
            ("```", "```` ``` ````"),
            ("two\nlines", "`two`"),
            (" ", "(nothing)"),
        ] {
            assert_eq!(code(text), expected, "{text:?}");
        }
        assert_eq!(
            plain("<b> [x](y) @team #1 `c`"),
            "&lt;b&gt; \\[x\\](y) &#64;team \\#1 \\`c\\`"
        );
    }

    #[test]
    fn nothing_that_an_agent_says_is_more_than_text() {
        let text = "```\n</details><script>x</script> @team\n# Heading\n[a](http://b)\n```";
        let page = page(&super::super::hostile(text));
        // Outside code there is none of its markup.
        let mut block: Option<&str> = None;
        for line in page.lines() {
            if let Some(fence) = block {
                if line == fence {
                    block = None;
                }
                continue;
            }
            if let Some(fence) = line.strip_suffix("text").filter(|it| it.starts_with("```")) {
                block = Some(fence);
                continue;
            }
            let outside: String = line.split("````").step_by(2).collect();
            for word in ["<script", "@team", "[a]", "# Heading"] {
                assert!(!outside.contains(word), "{word} in {line:?}");
            }
        }
        assert_eq!(block, None, "{page}");
    }
}
