//! What waits to be done in a project: its requirement, its issues, and what the ledger
//! holds. Preflight and the roles are fed from here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::paths::FLEET_DIR;
use runner_ledger::{Count, Filter, Ledger, StoreError};
use runner_lifecycle::{Reason, State, TaskId, request};

use crate::backlog::{BacklogSource, LocalIssues};
use crate::roles::backlog::{Backlog, Outside};
use crate::rules::draft::{Defaults, pull_request_source, review_task};
use crate::rules::issue::{Issue, import};
use crate::rules::plan::plan_signature;
use crate::rules::preflight::{FailedSource, Inputs};
use crate::yard::{Done, Trouble};

/// The requirement below the fleet's folder.
pub const REQUIREMENT: &str = "requirement.md";

/// The longest requirement.
const MAX_REQUIREMENT: u64 = 1 << 20;

/// What a project says is to be done.
#[derive(Clone)]
pub struct ProjectBacklog {
    ledger: Ledger,
    requirement: Requirement,
    sources: Vec<Arc<dyn BacklogSource>>,
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
    /// Open pull requests.
    pub open_pull_requests: u64,
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
            sources: vec![Arc::new(LocalIssues::of_project(root))],
            defaults,
        }
    }

    /// With other sources in place of the project's.
    pub(crate) fn with_sources(
        requirement: String,
        sources: Vec<Arc<dyn BacklogSource>>,
        ledger: Ledger,
        defaults: Defaults,
    ) -> ProjectBacklog {
        ProjectBacklog {
            ledger,
            requirement: Requirement::Text(requirement),
            sources,
            defaults,
        }
    }

    /// Looks once.
    pub async fn look(&self) -> Result<Seen, StoreError> {
        let outside = self.outside().await?;
        let mut seen = Seen {
            new_issues: outside.new_issues().count().try_into().unwrap_or(u64::MAX),
            open_pull_requests: outside.open_pull_requests(),
            failures: outside.failures,
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
            open_pull_requests: seen.open_pull_requests,
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

    /// What all sources hold: tasks that are not there yet, what the recovery asks about
    /// the others, and what is wrong.
    async fn outside(&self) -> Result<Outside, StoreError> {
        let mut outside = Outside::default();
        for source in &self.sources {
            let backlog = source.look().await;
            let name = source.name();
            outside.failures.extend(backlog.failures);
            let mut known = BTreeSet::new();
            for issue in &backlog.issues {
                let task = issue.task(name, &self.defaults);
                let needs = task.map(|task| task.dependencies).unwrap_or_default();
                let own = Issue::task_id(name, issue.number);
                for id in own.into_iter().chain(needs) {
                    if !known.contains(&id) && self.ledger.task(&id).await?.is_some() {
                        known.insert(id);
                    }
                }
                let key = Issue::source_of(name, issue.number);
                outside.issues.insert(key, issue.facts());
            }
            let made = import(name, &backlog.issues, &known, &self.defaults);
            outside.tasks.extend(made.tasks);
            let refused = made.refused.iter().map(|(number, why)| FailedSource {
                source: name.to_owned(),
                reason: format!("issue {number}: {why}"),
            });
            outside.failures.extend(refused);
            for pull in backlog.pull_requests {
                let (number, head, closed) = (pull.number, pull.head, pull.closed);
                let task = review_task(name, number, &pull.title, &head, &self.defaults);
                if let Some(task) = task
                    && !closed
                    && self.ledger.task(&task.id).await?.is_none()
                {
                    outside.tasks.push(task);
                }
                let known = request::PullRequest { head, closed };
                let key = pull_request_source(name, number);
                outside.pull_requests.insert(key, known);
            }
        }
        Ok(outside)
    }
}

fn trouble(error: &StoreError) -> Trouble {
    Trouble(error.to_string())
}

impl Backlog for ProjectBacklog {
    /// Blank, too, once it was planned.
    fn requirement(&self) -> Done<'_, String> {
        Box::pin(async {
            let text = self.text()?;
            match self.is_planned(&text).await {
                Ok(true) => Ok(String::new()),
                Ok(false) => Ok(text),
                Err(error) => Err(trouble(&error)),
            }
        })
    }

    fn sync(&self) -> Done<'_, Outside> {
        Box::pin(async { self.outside().await.map_err(|error| trouble(&error)) })
    }
}

/// Adds what the ledger counts.
pub async fn counted(ledger: &Ledger, inputs: Inputs) -> Result<Inputs, StoreError> {
    let counts = ledger.counts().await?;
    let parked = ledger.parked().await?;
    let red_base = ledger.red_base().await?.is_some();
    Ok(with_counts(inputs, &counts, parked, red_base))
}

/// The same, of what was counted.
pub(crate) fn with_counts(
    mut inputs: Inputs,
    counts: &[Count],
    parked: u64,
    red_base: bool,
) -> Inputs {
    for count in counts {
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
    inputs.local_backlog = inputs.local_backlog.saturating_sub(parked);
    inputs.red_base |= red_base;
    inputs
}
