//! `GOAL.md`: what a run is for, in Markdown, with the run's id in its front matter.
//!
//! The file is the user's: setting the id changes nothing else in it.

use std::ops::Range;

use crate::text::{cut_chars, escape_path};

/// What `runner init` writes.
pub const TEMPLATE: &str = "\
<!--
Say here what shall be true when the run is finished, in your own words.

- The first heading becomes the title of the root task.
- Describe results rather than steps: the agents plan the steps themselves.
- Say how one can see that it works, and what must not change.
- Everything in this file is shown to every agent session.

When it says what you want, replace the heading below and type: runner start
-->

# Describe the goal here
";

/// The longest title, in characters.
const MAX_TITLE_CHARS: usize = 80;

/// The longest run id.
const MAX_RUN_ID: usize = 64;

/// A parsed `GOAL.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    text: String,
    id: Option<String>,
    body_start: usize,
    slot: Slot,
}

/// Where the id stands in the text, or where one would be put.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    /// The value of the `id` line, its quotes included.
    Value(Range<usize>),
    /// Right after the colon of an `id` line without a value.
    AfterColon(usize),
    /// The start of the line after the opening `---`.
    NewLine(usize),
    /// There is no front matter: here one would start.
    FrontMatter(usize),
}

/// Why a `GOAL.md` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// Front matter that never ends.
    #[error("line 1: the front matter that begins here has no closing `---` line")]
    Unterminated,
    /// Two `id` lines.
    #[error("line {line}: the front matter has a second id (the first is on line {first})")]
    DuplicateId {
        /// Where the first one is.
        first: usize,
        /// Where the second one is.
        line: usize,
    },
    /// An id that cannot name a branch and a folder.
    #[error("line {line}: the id `{id}` cannot be used: {reason}")]
    InvalidId {
        /// Where it is.
        line: usize,
        /// The id, made fit for showing.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl GoalError {
    /// The line of the finding, from 1.
    pub fn line(&self) -> usize {
        match self {
            GoalError::Unterminated => 1,
            GoalError::DuplicateId { line, .. } | GoalError::InvalidId { line, .. } => *line,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            GoalError::Unterminated => {
                "add a `---` line after the front matter, or remove the one in line 1"
            }
            GoalError::DuplicateId { .. } => "keep one of the two id lines",
            GoalError::InvalidId { .. } => {
                "choose another id, or remove the line to have one made by 'runner start'"
            }
        }
    }
}

impl Goal {
    /// Reads the text of a `GOAL.md`.
    pub fn parse(text: &str) -> Result<Goal, GoalError> {
        let start = if text.starts_with('\u{feff}') {
            '\u{feff}'.len_utf8()
        } else {
            0
        };
        let mut lines = GoalLines::new(text, start);
        let mut goal = Goal {
            text: text.to_owned(),
            id: None,
            body_start: start,
            slot: Slot::FrontMatter(start),
        };
        if !lines.next().is_some_and(|line| is_fence(line.text)) {
            return Ok(goal);
        }

        goal.slot = Slot::NewLine(lines.position);
        let mut first = None;
        loop {
            let line = lines.next().ok_or(GoalError::Unterminated)?;
            if is_fence(line.text) {
                goal.body_start = lines.position;
                return Ok(goal);
            }
            let Some(colon) = id_colon(line.text) else {
                continue;
            };
            if let Some(first) = first {
                return Err(GoalError::DuplicateId {
                    first,
                    line: line.number,
                });
            }
            first = Some(line.number);
            let value = value_range(line.text, colon);
            let id = unquoted(&line.text[value.clone()]);
            if value.is_empty() {
                goal.slot = Slot::AfterColon(line.start + colon + 1);
                continue;
            }
            goal.slot = Slot::Value(line.start + value.start..line.start + value.end);
            if matches!(id, "" | "~" | "null") {
                continue;
            }
            check_run_id(id).map_err(|reason| GoalError::InvalidId {
                line: line.number,
                id: escape_path(cut_chars(id, 80).as_bytes()),
                reason,
            })?;
            goal.id = Some(id.to_owned());
        }
    }

    /// The run id in the front matter.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The whole file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Everything after the front matter.
    pub fn body(&self) -> &str {
        &self.text[self.body_start..]
    }

    /// The first heading, else the first line that says something, else nothing.
    /// Comments and code blocks do not count.
    pub fn title(&self) -> String {
        let lines = visible_lines(self.body());
        let title = lines
            .iter()
            .find_map(|line| heading(line))
            .or_else(|| lines.first().copied())
            .unwrap_or_default();
        cut_chars(title, MAX_TITLE_CHARS).into_owned()
    }

    /// Whether the file says nothing at all.
    pub fn is_blank(&self) -> bool {
        self.title().is_empty()
    }

    /// Whether the body is still what `runner init` wrote.
    pub fn is_template(&self) -> bool {
        self.body()
            .trim()
            .lines()
            .map(str::trim_end)
            .eq(TEMPLATE.trim().lines().map(str::trim_end))
    }

    /// The file with this id, which must be valid: added or replaced, every other byte
    /// as it was.
    pub fn with_id(&self, id: &str) -> String {
        if self.id() == Some(id) {
            return self.text.clone();
        }
        let newline = match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let (range, new) = match &self.slot {
            Slot::Value(range) => (range.clone(), id.to_owned()),
            Slot::AfterColon(at) => (*at..*at, format!(" {id}")),
            Slot::NewLine(at) => (*at..*at, format!("id: {id}{newline}")),
            Slot::FrontMatter(at) => (
                *at..*at,
                format!("---{newline}id: {id}{newline}---{newline}"),
            ),
        };
        [&self.text[..range.start], &new, &self.text[range.end..]].concat()
    }
}

/// Whether `id` can name a run: it becomes the branch `runner/<id>` and a folder.
pub fn check_run_id(id: &str) -> Result<(), String> {
    let odd = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if id.is_empty() {
        Err("it is empty".to_owned())
    } else if let Some(c) = id.chars().find(odd) {
        let mut bytes = [0; 4];
        let shown = escape_path(c.encode_utf8(&mut bytes).as_bytes());
        Err(format!(
            "it contains `{shown}`, but only letters A-Z and a-z, digits, `.`, `_` and `-` are allowed"
        ))
    } else if id.len() > MAX_RUN_ID {
        Err(format!(
            "it has {} characters, more than the {MAX_RUN_ID} allowed",
            id.len()
        ))
    } else if id.starts_with(['.', '-']) {
        Err("it must not begin with `.` or `-`".to_owned())
    } else if id.contains("..") {
        Err("it must not contain `..`".to_owned())
    } else if id.ends_with('.') || id.strip_suffix(".lock").is_some() {
        Err("it must not end with `.` or `.lock`".to_owned())
    } else if id == "lock" {
        // `.runner/iterations/lock` is a file.
        Err("it is reserved for the runner".to_owned())
    } else {
        Ok(())
    }
}

struct GoalLine<'t> {
    /// From 1.
    number: usize,
    /// Offset of the line in the whole text.
    start: usize,
    /// Without its line end.
    text: &'t str,
}

/// Lines with their offsets; both kinds of line ends.
struct GoalLines<'t> {
    text: &'t str,
    position: usize,
    number: usize,
}

impl<'t> GoalLines<'t> {
    fn new(text: &'t str, position: usize) -> Self {
        GoalLines {
            text,
            position,
            number: 0,
        }
    }
}

impl<'t> Iterator for GoalLines<'t> {
    type Item = GoalLine<'t>;

    fn next(&mut self) -> Option<GoalLine<'t>> {
        let start = self.position;
        let line = self.text[start..].split_inclusive('\n').next()?;
        self.position += line.len();
        self.number += 1;
        let text = line.strip_suffix('\n').unwrap_or(line);
        Some(GoalLine {
            number: self.number,
            start,
            text: text.strip_suffix('\r').unwrap_or(text),
        })
    }
}

/// Whether a line begins or ends front matter.
pub fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

/// The offset of the colon when the line is `id: …`. Indented lines belong to some
/// other key.
fn id_colon(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("id")?;
    let spaces = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    rest[spaces..].starts_with(':').then_some(2 + spaces)
}

/// Where the value after the colon stands, without surrounding space and comment.
fn value_range(line: &str, colon: usize) -> Range<usize> {
    let after = &line[colon + 1..];
    let start = colon + 1 + (after.len() - after.trim_start().len());
    let value = &line[start..];
    let comment = value
        .match_indices('#')
        .map(|(at, _)| at)
        .find(|&at| line[..start + at].ends_with([' ', '\t']));
    let value = value[..comment.unwrap_or(value.len())].trim_end();
    start..start + value.len()
}

/// A value of front matter without its quotes.
pub fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        let inner = value
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner.trim();
        }
    }
    value
}

/// The lines that a reader of the rendered page sees as text, trimmed, without blank
/// ones: no comments, no code blocks.
fn visible_lines(body: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut in_comment = false;
    let mut code_fence: Option<&str> = None;
    for line in body.lines() {
        let mut rest = line.trim();
        if let Some(fence) = code_fence {
            if rest.starts_with(fence) {
                code_fence = None;
            }
            continue;
        }
        loop {
            if in_comment {
                let Some(end) = rest.find("-->") else {
                    break;
                };
                in_comment = false;
                rest = rest[end + 3..].trim();
            }
            let (before, comment) = match rest.find("<!--") {
                Some(start) => (rest[..start].trim(), Some(&rest[start + 4..])),
                None => (rest, None),
            };
            if before.starts_with("```") || before.starts_with("~~~") {
                code_fence = Some(&before[..3]);
                break;
            }
            if !before.is_empty() {
                lines.push(before);
            }
            let Some(comment) = comment else {
                break;
            };
            in_comment = true;
            rest = comment;
        }
    }
    lines
}

/// The text of a `#` heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    if !(1..=6).contains(&level) || !text.starts_with([' ', '\t']) {
        return None;
    }
    let text = text.trim();
    // `# Title #` is the same heading as `# Title`.
    let open = text.trim_end_matches('#');
    let text = if open.is_empty() || open.ends_with([' ', '\t']) {
        open.trim_end()
    } else {
        text
    };
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
