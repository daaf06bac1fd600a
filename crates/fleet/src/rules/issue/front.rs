//! The front matter of an issue file: a few keys, strictly.

use runner_core::goal::{is_fence, unquoted};
use runner_core::text::{ALIKE, nearest};

use super::super::draft::shown;
use super::{IssueFinding, SourceIssue};

const KEYS: [&str; 4] = ["number", "title", "state", "labels"];

pub(super) fn parse(text: &str, file_name: &str) -> Result<SourceIssue, Vec<IssueFinding>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut front = Front::default();
    let mut lines_before = 0;
    if lines.first().is_some_and(|line| is_fence(line)) {
        let end = lines.iter().skip(1).position(|line| is_fence(line));
        let Some(end) = end else {
            let words = "the front matter that begins here has no closing `---` line";
            return Err(vec![IssueFinding::at(1, words)]);
        };
        for (at, line) in lines[1..=end].iter().enumerate() {
            front.line(at + 2, line);
        }
        lines_before = end + 2;
    }
    let body = lines[lines_before..].join("\n");
    let number = front.number.or_else(|| number_in(file_name));
    if number.is_none() && front.findings.is_empty() {
        let words = "it has no number: add `number: N` to its front matter, or name it N-words.md";
        front.findings.push(IssueFinding::whole(words));
    }
    let title = front.title.or_else(|| heading(&body));
    if title.is_none() {
        let words = "it has no title: add `title: words` to its front matter, or a heading";
        front.findings.push(IssueFinding::whole(words));
    }
    match (number, title) {
        (Some(number), Some(title)) if front.findings.is_empty() => Ok(SourceIssue {
            number,
            title,
            closed: front.closed,
            labels: front.labels,
            body,
            lines_before,
        }),
        _ => Err(front.findings),
    }
}

#[derive(Default)]
struct Front {
    number: Option<u64>,
    title: Option<String>,
    closed: bool,
    labels: Vec<String>,
    seen: Vec<String>,
    findings: Vec<IssueFinding>,
}

impl Front {
    fn line(&mut self, number: usize, line: &str) {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with('#') {
            return;
        }
        let item = plain
            .strip_prefix("- ")
            .filter(|_| self.seen.last().is_some_and(|key| key == "labels"));
        if let Some(item) = item {
            self.labels.push(unquoted(item).to_owned());
            return;
        }
        let Some((key, value)) = plain.split_once(':') else {
            let words = "the front matter has lines `key: value` only";
            self.findings.push(IssueFinding::at(number, words));
            return;
        };
        let (key, value) = (key.trim(), value.trim());
        if self.seen.iter().any(|seen| seen == key) {
            let words = format!("{} is there twice", shown(key));
            self.findings.push(IssueFinding::at(number, words));
        }
        self.seen.push(key.to_owned());
        match key {
            "number" => {
                self.number = unquoted(value).trim_start_matches('#').parse().ok();
                if self.number.is_none() {
                    let words = format!("number {} is none", shown(value));
                    self.findings.push(IssueFinding::at(number, words));
                }
            }
            "title" => self.title = Some(unquoted(value).to_owned()).filter(|t| !t.is_empty()),
            "state" => match unquoted(value) {
                "open" => self.closed = false,
                "closed" => self.closed = true,
                other => {
                    let words = format!("state {} is not one of open, closed", shown(other));
                    self.findings.push(IssueFinding::at(number, words));
                }
            },
            "labels" => {
                let inner = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
                let labels = inner
                    .unwrap_or(value)
                    .split(',')
                    .map(|label| unquoted(label.trim()));
                let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
                self.labels.extend(labels);
            }
            _ => {
                let (likeness, meant) = nearest(key, &KEYS);
                let hint = if likeness >= ALIKE {
                    format!(" (did you mean `{meant}`?)")
                } else {
                    format!(" (known are {})", KEYS.join(", "))
                };
                let words = format!("unknown key {}{hint}", shown(key));
                self.findings.push(IssueFinding::at(number, words));
            }
        }
    }
}

/// The digits that a file name begins with.
fn number_in(file_name: &str) -> Option<u64> {
    let end = file_name
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(file_name.len());
    file_name[..end].parse().ok()
}

fn heading(body: &str) -> Option<String> {
    body.lines()
        .find_map(|line| line.strip_prefix("# "))
        .map(|title| title.trim().to_owned())
        .filter(|title| !title.is_empty())
}
