//! What waits to be done in a project: its requirement, its issues, and what the ledger
//! holds. Preflight and the roles are fed from here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use runner_core::paths::FLEET_DIR;
use runner_ledger::{Filter, Ledger, StoreError};
use runner_lifecycle::{Reason, State, TaskId, request};

use crate::backlog::LocalIssues;
use crate::roles::backlog::{Backlog, Outside};
use crate::rules::draft::Defaults;
use crate::rules::issue::{Import, Issue, import};
use crate::rules::plan::plan_signature;
use crate::rules::preflight::{FailedSource, Inputs};
use crate::yard::{Done, Trouble};

/// The requirement below the fleet's folder.
pub const REQUIREMENT: &str = "requirement.md";

/// The longest requirement.
const MAX_REQUIREMENT: u64 = 1 << 20;

/// The name of the source of local issues; ids of tasks are made of it.
const LOCAL: &str = "local";

/// What a project says is to be done.
#[derive(Clone)]
pub struct ProjectBacklog {
    ledger: Ledger,
    requirement: Requirement,
    issues: LocalIssues,
    defaults: Defaults,
}

#[derive(Clone)]
enum Requirement {
    Text(String),
    File(PathBuf),
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The requirement, blank if there is none.
    pub requirement: String,
    /// Whether it was planned before.
    pub planned: bool,
    /// Issues that can become tasks, and are none.
    pub new_issues: u64,
    /// What could not be read or used.
    pub failures: Vec<FailedSource>,
}

impl ProjectBacklog {
    /// Of the project at that root. The requirement is that text, or the project's file.
    pub fn new(
        root: &Path,
        requirement: Option<String>,
        ledger: Ledger,
        defaults: Defaults,
    ) -> ProjectBacklog {
        let file = root.join(FLEET_DIR).join(REQUIREMENT);
        ProjectBacklog {
            ledger,
            requirement: requirement.map_or(Requirement::File(file), Requirement::Text),
            issues: LocalIssues::of_project(root),
            defaults,
        }
    }

    /// Looks once.
    pub async fn look(&self) -> Result<Seen, StoreError> {
        let (import, failures) = self.import().await?.0;
        let mut seen = Seen {
            new_issues: u64::try_from(import.tasks.len()).unwrap_or(u64::MAX),
            failures,
            ..Seen::default()
        };
        match self.text() {
            Ok(text) => seen.requirement = text,
            Err(trouble) => seen.failures.push(FailedSource {
                source: "requirement".to_owned(),
                reason: trouble.0,
            }),
        }
        seen.planned = self.is_planned(&seen.requirement).await?;
        Ok(seen)
    }

    /// What preflight needs.
    pub async fn inputs(&self) -> Result<(Seen, Inputs), StoreError> {
        let seen = self.look().await?;
        let inputs = Inputs {
            has_requirement: Inputs::says_something(&seen.requirement) && !seen.planned,
            issue_backlog: seen.new_issues,
            failed_sources: seen.failures.clone(),
            ..Inputs::default()
        };
        Ok((seen, counted(&self.ledger, inputs).await?))
    }

    fn text(&self) -> Result<String, Trouble> {
        use runner::files::ReadError;
        let path = match &self.requirement {
            Requirement::Text(text) => return Ok(text.clone()),
            Requirement::File(path) => path,
        };
        match runner::files::read_regular(path, MAX_REQUIREMENT) {
            Ok(bytes) => {
                String::from_utf8(bytes).map_err(|_| Trouble(format!("{REQUIREMENT} is not UTF-8")))
            }
            Err(ReadError::Absent) => Ok(String::new()),
            Err(error) => Err(Trouble(format!("{REQUIREMENT}: {error}"))),
        }
    }

    /// Whether the requirement has become tasks before: their ids begin with its signature.
    async fn is_planned(&self, requirement: &str) -> Result<bool, StoreError> {
        if requirement.trim().is_empty() {
            return Ok(false);
        }
        let signature = plan_signature(requirement, "");
        let prefix = format!("p{}", &signature[..8]);
        let page = Filter {
            after: TaskId::parse(&prefix).ok(),
            limit: 1,
            ..Filter::default()
        };
        let next = self.ledger.tasks(&page).await?;
        Ok(next
            .first()
            .is_some_and(|task| task.id.as_str().starts_with(&format!("{prefix}-"))))
    }

    /// What becomes of the issues, with what is wrong, and what the recovery asks about them.
    #[allow(clippy::type_complexity)] // two answers of one look
    async fn import(
        &self,
    ) -> Result<
        (
            (Import, Vec<FailedSource>),
            BTreeMap<String, request::Issue>,
        ),
        StoreError,
    > {
        let backlog = self.issues.read();
        let mut known = BTreeSet::new();
        let mut facts = BTreeMap::new();
        for issue in &backlog.issues {
            let task = issue.task(LOCAL, &self.defaults);
            let needs = task.as_ref().map(|task| task.dependencies.clone());
            let own = Issue::task_id(LOCAL, issue.number);
            for id in own.into_iter().chain(needs.unwrap_or_default()) {
                if !known.contains(&id) && self.ledger.task(&id).await?.is_some() {
                    known.insert(id);
                }
            }
            let role = task
                .ok()
                .map(|task| task.role)
                .filter(|role| !role.is_empty());
            let fact = request::Issue {
                role,
                closed: issue.closed,
            };
            facts.insert(Issue::source_of(LOCAL, issue.number), fact);
        }
        let import = import(LOCAL, &backlog.issues, &known, &self.defaults);
        let mut failures = backlog.failures;
        failures.extend(import.refused.iter().map(|(number, why)| FailedSource {
            source: LOCAL.to_owned(),
            reason: format!("issue {number}: {why}"),
        }));
        Ok(((import, failures), facts))
    }
}

fn trouble(error: &StoreError) -> Trouble {
    Trouble(error.to_string())
}

impl Backlog for ProjectBacklog {
    /// Blank, too, once it was planned. An error where an issue cannot be read: nobody
    /// plans while something may be hidden.
    fn requirement(&self) -> Done<'_, String> {
        Box::pin(async {
            let text = self.text()?;
            if text.trim().is_empty() {
                return Ok(String::new());
            }
            if self
                .is_planned(&text)
                .await
                .map_err(|error| trouble(&error))?
            {
                return Ok(String::new());
            }
            let ((_, failures), _) = self.import().await.map_err(|error| trouble(&error))?;
            match failures.first() {
                Some(failed) => Err(Trouble(failed.reason.clone())),
                None => Ok(text),
            }
        })
    }

    /// What can be read; the rest is said at preflight.
    fn sync(&self) -> Done<'_, Outside> {
        Box::pin(async {
            let ((import, _), issues) = self.import().await.map_err(|error| trouble(&error))?;
            Ok(Outside {
                tasks: import.tasks,
                issues,
                ..Outside::default()
            })
        })
    }
}

/// Adds what the ledger counts.
pub async fn counted(ledger: &Ledger, mut inputs: Inputs) -> Result<Inputs, StoreError> {
    for count in ledger.counts().await? {
        match count.state {
            State::Todo | State::InProgress => inputs.local_backlog += count.tasks,
            State::Blocked => {
                inputs.blocked += count.tasks;
                inputs.local_backlog += count.tasks;
                if count.blocked_on == Some(Reason::AwaitingJudge) {
                    inputs.awaiting_judge += count.tasks;
                }
            }
            State::Done | State::Failed | State::Canceled => {}
        }
    }
    let parked = ledger.parked().await?;
    inputs.local_backlog = inputs.local_backlog.saturating_sub(parked);
    inputs.red_base |= ledger.red_base().await?.is_some();
    Ok(inputs)
}
