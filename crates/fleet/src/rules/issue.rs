//! Issues: Markdown with front matter, what it says about a task, and the task.
//!
//! The front matter has `number`, `title`, `state` and `labels`; everything about the
//! work is in the body, so that an issue of another source reads alike.

mod body;
mod front;
mod import;

use runner_lifecycle::request::{IssueFacts, IssueWork, NewTask};
use runner_lifecycle::row::{Criterion, TaskId};
use runner_lifecycle::{CriterionCheck, TaskOrigin};

use super::draft::{TaskDefaults, check_text, guard_criterion, scope_of, shown};
use super::role::{self, RoleProfile};
use body::IssueBody;
pub use import::{IssueImport, import};

/// The longest issue that is read.
pub const MAX_BYTES: usize = 256 * 1024;

/// The longest title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// The longest text of a criterion or a command, in characters.
const MAX_LINE_CHARS: usize = 1000;

/// The most criteria, commands, paths or dependencies.
const MAX_ENTRIES: usize = 50;

/// An issue as its source has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceIssue {
    /// Its number, unique in its source.
    pub number: u64,
    /// A few words.
    pub title: String,
    /// Whether nothing is to be done any more.
    pub closed: bool,
    /// Its labels.
    pub labels: Vec<String>,
    /// Its text.
    pub body: String,
    /// How many lines stand before the body, so that findings can name a line.
    pub lines_before: usize,
}

/// Something wrong with an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueFinding {
    /// Where, from 1, if it is at one place.
    pub line: Option<usize>,
    /// What is wrong, as a lowercase fragment.
    pub message: String,
}

impl IssueFinding {
    fn at(line: usize, message: impl Into<String>) -> IssueFinding {
        IssueFinding {
            line: Some(line),
            message: message.into(),
        }
    }

    fn whole(message: impl Into<String>) -> IssueFinding {
        IssueFinding {
            line: None,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for IssueFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl SourceIssue {
    /// Reads a file. Its name says the number where the front matter does not: `12-x.md`.
    pub fn parse(bytes: &[u8], file_name: &str) -> Result<SourceIssue, Vec<IssueFinding>> {
        if bytes.len() > MAX_BYTES {
            let words = format!("it has {} bytes, {MAX_BYTES} at most", bytes.len());
            return Err(vec![IssueFinding::whole(words)]);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            vec![IssueFinding::at(line, "it is not UTF-8")]
        })?;
        front::parse(text, file_name)
    }

    /// The id of its task, the same for every import.
    pub fn task_id(source: &str, number: u64) -> Option<TaskId> {
        let name = if source == "local" { "issue" } else { source };
        TaskId::parse(&format!("{name}-{number}")).ok()
    }

    /// What tasks made for it name as their source.
    pub fn source_of(source: &str, number: u64) -> String {
        format!("{source}#{number}")
    }

    /// What the recovery table wants to know of it.
    pub fn facts(&self, source: &str, defaults: &TaskDefaults) -> IssueFacts {
        // An issue that cannot be read names no role: nothing begins with a scope that nobody meant.
        let task = self.task(source, defaults).ok();
        let task = task.filter(|task| !task.role.is_empty());
        IssueFacts {
            role: task.as_ref().map(|task| task.role.clone()),
            closed: self.closed,
            work: task.map(|task| IssueWork {
                lock_scope: task.lock_scope,
                forbidden_scope: task.forbidden_scope,
                lane: task.lane,
                expects_change: task.expects_change,
            }),
        }
    }

    /// The task that it asks for. Without a role the ledger blocks it until one is known.
    pub fn task(
        &self,
        source: &str,
        defaults: &TaskDefaults,
    ) -> Result<NewTask, Vec<IssueFinding>> {
        let body = IssueBody::read(self)?;
        let mut findings = Vec::new();
        let role = self.role(&body).unwrap_or_else(|finding| {
            findings.push(finding);
            None
        });
        if let Err(why) = check_text(&self.title, MAX_TITLE_CHARS) {
            findings.push(IssueFinding::whole(format!("its title {why}")));
        }
        if self
            .body
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        {
            findings.push(IssueFinding::whole("its text contains a control character"));
        }
        let mut scope = |paths: &body::IssueList| {
            let texts: Vec<&str> = paths
                .entries
                .iter()
                .map(|(_, text)| text.as_str())
                .collect();
            scope_of(&texts).unwrap_or_else(|why| {
                let line = paths.entries.first().map(|(line, _)| *line);
                findings.push(IssueFinding { line, message: why });
                Vec::new()
            })
        };
        let allowed = scope(&body.allowed);
        let forbidden_scope = scope(&body.forbidden);
        let acceptance = criteria(&body, defaults, &mut findings);
        let dependencies = self.dependencies(source, &body, &mut findings);
        let id = SourceIssue::task_id(source, self.number);
        let (Some(id), true) = (id, findings.is_empty()) else {
            findings.sort_by_key(|finding| finding.line.unwrap_or(0));
            return Err(findings);
        };
        let plain = defaults.task(id, role);
        Ok(NewTask {
            title: self.title.trim().to_owned(),
            goal: body.goal,
            origin: TaskOrigin::Issue,
            source: Some(SourceIssue::source_of(source, self.number)),
            priority: body.priority.unwrap_or(plain.priority),
            risk: body.risk.unwrap_or(plain.risk),
            dependencies,
            lock_scope: if allowed.is_empty() {
                plain.lock_scope.clone()
            } else {
                allowed
            },
            forbidden_scope,
            acceptance,
            commands: body.commands.texts(),
            ..plain
        })
    }

    /// From a `role:x` label, else from an `Agent:` line.
    fn role(&self, body: &IssueBody) -> Result<Option<&'static RoleProfile>, IssueFinding> {
        let mut labelled: Vec<&str> = self
            .labels
            .iter()
            .filter_map(|label| label.trim().strip_prefix("role:"))
            .map(str::trim)
            .collect();
        labelled.dedup();
        let (name, line) = match (labelled.as_slice(), &body.agent) {
            ([], None) => return Ok(None),
            ([], Some((line, name))) => (name.as_str(), Some(*line)),
            ([name], _) => (*name, None),
            _ => return Err(IssueFinding::whole("it has labels of several roles")),
        };
        match role::by_name(name) {
            Some(role) => Ok(Some(role)),
            None => Err(IssueFinding {
                line,
                message: format!("role {} is unknown: {}", shown(name), role::names()),
            }),
        }
    }

    fn dependencies(
        &self,
        source: &str,
        body: &IssueBody,
        findings: &mut Vec<IssueFinding>,
    ) -> Vec<TaskId> {
        let mut ids: Vec<TaskId> = Vec::new();
        for (line, number) in &body.needs {
            if *number == self.number {
                findings.push(IssueFinding::at(*line, "it depends on itself"));
            }
            if let Some(id) = SourceIssue::task_id(source, *number)
                && !ids.contains(&id)
            {
                ids.push(id);
            }
        }
        ids
    }
}

/// The guard, then what the issue lists. A point that says `(review)` is for a
/// reviewer, and where reviews are on so is one that no command is left for.
fn criteria(
    body: &IssueBody,
    defaults: &TaskDefaults,
    findings: &mut Vec<IssueFinding>,
) -> Vec<Criterion> {
    let mut criteria = vec![guard_criterion()];
    let mut commands = body.commands.entries.len();
    for (at, (line, text)) in body.acceptance.entries.iter().enumerate() {
        let (text, reviewed) = match text.strip_suffix("(review)") {
            Some(text) => (text.trim(), true),
            None => (text.as_str(), false),
        };
        if let Err(why) = check_text(text, MAX_LINE_CHARS) {
            findings.push(IssueFinding::at(*line, format!("a criterion {why}")));
        }
        if reviewed && !defaults.review {
            let words = "it asks for a review, and reviews are off ([fleet] review)";
            findings.push(IssueFinding::at(*line, words));
        }
        let check = if reviewed || (defaults.review && commands == 0) {
            CriterionCheck::Review
        } else {
            commands = commands.saturating_sub(1);
            CriterionCheck::Command
        };
        criteria.push(Criterion {
            id: format!("a{}", at + 1),
            text: text.to_owned(),
            check,
        });
    }
    for (line, command) in &body.commands.entries {
        if let Err(why) = check_text(command, MAX_LINE_CHARS) {
            findings.push(IssueFinding::at(*line, format!("a command {why}")));
        }
    }
    criteria
}

#[cfg(test)]
mod tests;
