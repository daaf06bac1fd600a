//! What the text of an issue says about its work: `IssueKey: value` lines, and lists below a
//! key or a heading. Everything else is the goal.

use runner_lifecycle::{TaskPriority, TaskRisk};

use super::super::draft::shown;
use super::{IssueFinding, MAX_ENTRIES, SourceIssue};

/// What was found in a body.
#[derive(Debug, Default)]
pub(super) struct IssueBody {
    /// The text without what was understood.
    pub(super) goal: String,
    /// Of an `Agent:` line, with its line.
    pub(super) agent: Option<(usize, String)>,
    pub(super) priority: Option<TaskPriority>,
    pub(super) risk: Option<TaskRisk>,
    pub(super) allowed: IssueList,
    pub(super) forbidden: IssueList,
    /// Numbers of issues, with their lines.
    pub(super) needs: Vec<(usize, u64)>,
    pub(super) acceptance: IssueList,
    pub(super) commands: IssueList,
}

/// Texts with their lines.
#[derive(Debug, Default)]
pub(super) struct IssueList {
    pub(super) entries: Vec<(usize, String)>,
}

impl IssueList {
    pub(super) fn texts(&self) -> Vec<String> {
        self.entries.iter().map(|(_, text)| text.clone()).collect()
    }
}

/// A key that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IssueKey {
    Agent,
    Priority,
    Risk,
    Needs,
    Allowed,
    Forbidden,
    Acceptance,
    Commands,
}

impl IssueKey {
    fn of(name: &str) -> Option<IssueKey> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "agent" => IssueKey::Agent,
            "priority" => IssueKey::Priority,
            "risk" => IssueKey::Risk,
            "depends on" | "dependencies" => IssueKey::Needs,
            "allowed paths" => IssueKey::Allowed,
            "forbidden paths" => IssueKey::Forbidden,
            "acceptance" | "acceptance criteria" => IssueKey::Acceptance,
            "commands" => IssueKey::Commands,
            _ => return None,
        })
    }

    /// Whether it may have a list below it.
    fn has_list(self) -> bool {
        !matches!(self, IssueKey::Agent | IssueKey::Priority | IssueKey::Risk)
    }
}

struct IssueReader {
    body: IssueBody,
    goal: Vec<String>,
    /// Whose list the next points belong to.
    open: Option<IssueKey>,
    findings: Vec<IssueFinding>,
}

impl IssueBody {
    pub(super) fn read(issue: &SourceIssue) -> Result<IssueBody, Vec<IssueFinding>> {
        let mut reader = IssueReader {
            body: IssueBody::default(),
            goal: Vec::new(),
            open: None,
            findings: Vec::new(),
        };
        let mut fence: Option<&str> = None;
        for (at, line) in issue.body.lines().enumerate() {
            let number = issue.lines_before + at + 1;
            let plain = line.trim();
            let is_fence = plain.starts_with("```") || plain.starts_with("~~~");
            match fence {
                Some(open) if plain.starts_with(open) => {
                    fence = None;
                    reader.fence_line(line);
                }
                Some(_) => reader.code(number, line),
                None if is_fence => {
                    fence = Some(&plain[..3]);
                    reader.fence_line(line);
                }
                None => reader.line(number, line),
            }
        }
        reader.finish()
    }
}

impl IssueReader {
    fn find(&mut self, line: usize, message: String) {
        self.findings.push(IssueFinding::at(line, message));
    }

    /// The line that begins or ends code: a part of the goal, unless commands stand in it.
    fn fence_line(&mut self, line: &str) {
        if self.open != Some(IssueKey::Commands) {
            self.open = None;
            self.goal.push(line.to_owned());
        }
    }

    fn code(&mut self, number: usize, line: &str) {
        if self.open == Some(IssueKey::Commands) {
            self.add(IssueKey::Commands, number, line);
        } else {
            self.goal.push(line.to_owned());
        }
    }

    fn line(&mut self, number: usize, line: &str) {
        let plain = line.trim();
        if let Some(heading) = plain.strip_prefix('#') {
            let name = heading.trim_start_matches('#').trim().trim_end_matches(':');
            self.open = IssueKey::of(name).filter(|key| key.has_list());
            if self.open.is_none() {
                self.goal.push(line.to_owned());
            }
            return;
        }
        if let Some((key, value)) = key_line(plain) {
            self.open = key.has_list().then_some(key);
            for value in values(key, value) {
                self.add(key, number, value);
            }
            return;
        }
        match (self.open, point(plain)) {
            (Some(key), Some(text)) => self.add(key, number, text),
            (Some(_), None) if plain.is_empty() => {}
            _ => {
                self.open = None;
                self.goal.push(line.to_owned());
            }
        }
    }

    fn add(&mut self, key: IssueKey, line: usize, value: &str) {
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        let bare = value.trim_matches('`').trim();
        let list = match key {
            IssueKey::Agent => return self.agent(line, bare),
            IssueKey::Priority => return self.priority(line, bare),
            IssueKey::Risk => return self.risk(line, bare),
            IssueKey::Needs => return self.need(line, value),
            IssueKey::Allowed => &mut self.body.allowed,
            IssueKey::Forbidden => &mut self.body.forbidden,
            IssueKey::Acceptance => &mut self.body.acceptance,
            IssueKey::Commands => &mut self.body.commands,
        };
        let text = if key == IssueKey::Acceptance {
            value
        } else {
            bare
        };
        if list.entries.len() == MAX_ENTRIES {
            self.find(line, format!("more than {MAX_ENTRIES} of them"));
        } else if !text.is_empty() && list.entries.len() < MAX_ENTRIES {
            list.entries.push((line, text.to_owned()));
        }
    }

    fn agent(&mut self, line: usize, name: &str) {
        if self.body.agent.is_some() {
            self.find(line, "a second agent".to_owned());
        } else {
            self.body.agent = Some((line, name.to_ascii_lowercase()));
        }
    }

    fn priority(&mut self, line: usize, word: &str) {
        self.body.priority = TaskPriority::parse(&word.to_ascii_lowercase());
        if self.body.priority.is_none() {
            let words: Vec<&str> = TaskPriority::ALL.iter().map(|one| one.as_str()).collect();
            let words = words.join(", ");
            self.find(
                line,
                format!("priority {} is not one of {words}", shown(word)),
            );
        }
    }

    fn risk(&mut self, line: usize, word: &str) {
        self.body.risk = TaskRisk::parse(&word.to_ascii_lowercase());
        if self.body.risk.is_none() {
            let words: Vec<&str> = TaskRisk::ALL.iter().map(|one| one.as_str()).collect();
            let words = words.join(", ");
            self.find(line, format!("risk {} is not one of {words}", shown(word)));
        }
    }

    fn need(&mut self, line: usize, value: &str) {
        if matches!(value.to_ascii_lowercase().as_str(), "none" | "-") {
            return;
        }
        let number = value
            .strip_prefix('#')
            .and_then(|digits| digits.parse().ok());
        match number {
            Some(number) if self.body.needs.len() < MAX_ENTRIES => {
                self.body.needs.push((line, number));
            }
            Some(_) => self.find(line, format!("more than {MAX_ENTRIES} of them")),
            None => self.find(line, format!("{} is no issue such as #3", shown(value))),
        }
    }

    fn finish(mut self) -> Result<IssueBody, Vec<IssueFinding>> {
        if !self.findings.is_empty() {
            return Err(self.findings);
        }
        let goal = self.goal.join("\n");
        goal.trim().clone_into(&mut self.body.goal);
        Ok(self.body)
    }
}

/// `IssueKey: value`, also with the key in bold.
fn key_line(line: &str) -> Option<(IssueKey, &str)> {
    let (name, value) = line.split_once(':')?;
    let word = name.trim_start_matches('*');
    let stars = &name[..name.len() - word.len()];
    let key = IssueKey::of(word.trim_end_matches('*'))?;
    // `**IssueKey:** value` closes behind the colon, `**IssueKey**: **` before it: there the stars
    // of the value are a glob.
    let value = if word.ends_with('*') {
        value
    } else {
        value.strip_prefix(stars).unwrap_or(value)
    };
    Some((key, value.trim()))
}

/// The values on the line of a key. A command and a criterion may have commas in them.
fn values(key: IssueKey, value: &str) -> Vec<&str> {
    match key {
        IssueKey::Acceptance | IssueKey::Commands => vec![value],
        _ => value.split(',').collect(),
    }
}

/// The text of a point of a list, also of one with a box.
fn point(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("- ")
        .or_else(|| line.strip_prefix("* "))?;
    let rest = rest.trim_start();
    let boxed = ["[ ] ", "[x] ", "[X] "];
    Some(
        boxed
            .iter()
            .find_map(|mark| rest.strip_prefix(mark))
            .unwrap_or(rest),
    )
}
