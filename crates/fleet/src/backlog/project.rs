//! What waits to be done in a project: its requirement, its issues, and what the ledger
//! holds. Preflight and the roles are fed from here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::paths::FLEET_DIR;
use runner_ledger::{Ledger, StoreError, TaskCount, TaskFilter};
use runner_lifecycle::{BlockReason, TaskId, TaskState, request};

use crate::backlog::folder::FolderWatch;
use crate::backlog::source::{BacklogSource, ISSUES, LocalIssues};
use crate::backlog::{BacklogChanges, FleetBacklog, OutsideWork};
use crate::rules::draft::{TaskDefaults, pull_request_source, review_task};
use crate::rules::issue::{SourceIssue, import};
use crate::rules::plan::plan_signature;
use crate::rules::preflight::{FailedSource, PreflightInputs};
use crate::workspaces::{WorkspaceError, WorkspaceFuture};

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
    defaults: TaskDefaults,
    /// The fleet's folder, if requirement and issues are files in it.
    folder: Option<PathBuf>,
}

#[derive(Clone)]
enum Requirement {
    Text(String),
    File(PathBuf),
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct BacklogState {
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
        defaults: TaskDefaults,
    ) -> ProjectBacklog {
        let folder = root.join(FLEET_DIR);
        let file = folder.join(REQUIREMENT);
        ProjectBacklog {
            ledger,
            requirement: requirement.map_or(Requirement::File(file), Requirement::Text),
            sources: vec![Arc::new(LocalIssues::of_project(root))],
            defaults,
            folder: Some(folder),
        }
    }

    /// With other sources in place of the project's.
    pub(crate) fn with_sources(
        requirement: String,
        sources: Vec<Arc<dyn BacklogSource>>,
        ledger: Ledger,
        defaults: TaskDefaults,
    ) -> ProjectBacklog {
        ProjectBacklog {
            ledger,
            requirement: Requirement::Text(requirement),
            sources,
            defaults,
            folder: None,
        }
    }

    /// Looks once.
    pub async fn look(&self) -> Result<BacklogState, StoreError> {
        let outside = self.outside().await?;
        let mut seen = BacklogState {
            new_issues: outside.new_issues().count().try_into().unwrap_or(u64::MAX),
            open_pull_requests: outside.open_pull_requests(),
            failures: outside.failures,
            ..BacklogState::default()
        };
        match self.text() {
            Ok(text) => seen.requirement = text,
            Err(workspace_error) => seen.failures.push(FailedSource {
                source: "requirement".to_owned(),
                reason: workspace_error.0,
            }),
        }
        seen.planned = self.is_planned(&seen.requirement).await?;
        Ok(seen)
    }

    /// What preflight needs.
    pub async fn inputs(&self) -> Result<(BacklogState, PreflightInputs), StoreError> {
        let seen = self.look().await?;
        let inputs = PreflightInputs {
            has_requirement: PreflightInputs::says_something(&seen.requirement) && !seen.planned,
            issue_backlog: seen.new_issues,
            open_pull_requests: seen.open_pull_requests,
            failed_sources: seen.failures.clone(),
            ..PreflightInputs::default()
        };
        Ok((seen, counted(&self.ledger, inputs).await?))
    }

    fn text(&self) -> Result<String, WorkspaceError> {
        use runner::files::ReadError;
        let path = match &self.requirement {
            Requirement::Text(text) => return Ok(text.clone()),
            Requirement::File(path) => path,
        };
        match runner::files::read_regular(path, MAX_REQUIREMENT) {
            Ok(bytes) => String::from_utf8(bytes)
                .map_err(|_| WorkspaceError(format!("{REQUIREMENT} is not UTF-8"))),
            Err(ReadError::Absent) => Ok(String::new()),
            Err(error) => Err(WorkspaceError(format!("{REQUIREMENT}: {error}"))),
        }
    }

    /// Whether the requirement has become tasks before: their ids begin with its signature.
    async fn is_planned(&self, requirement: &str) -> Result<bool, StoreError> {
        if requirement.trim().is_empty() {
            return Ok(false);
        }
        let signature = plan_signature(requirement, "");
        let prefix = format!("p{}", &signature[..8]);
        let page = TaskFilter {
            after: TaskId::parse(&prefix).ok(),
            limit: 1,
            ..TaskFilter::default()
        };
        let next = self.ledger.tasks(&page).await?;
        Ok(next
            .first()
            .is_some_and(|task| task.id.as_str().starts_with(&format!("{prefix}-"))))
    }

    /// What all sources hold: tasks that are not there yet, what the recovery asks about
    /// the others, and what is wrong.
    async fn outside(&self) -> Result<OutsideWork, StoreError> {
        let mut outside = OutsideWork::default();
        for source in &self.sources {
            let backlog = source.look().await;
            let name = source.name();
            outside.failures.extend(backlog.failures);
            let mut known = BTreeSet::new();
            for issue in &backlog.issues {
                let task = issue.task(name, &self.defaults);
                let needs = task.map(|task| task.dependencies).unwrap_or_default();
                let own = SourceIssue::task_id(name, issue.number);
                for id in own.into_iter().chain(needs) {
                    if !known.contains(&id) && self.ledger.task(&id).await?.is_some() {
                        known.insert(id);
                    }
                }
                let key = SourceIssue::source_of(name, issue.number);
                outside
                    .issues
                    .insert(key, issue.facts(name, &self.defaults));
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

fn workspace_error(error: &StoreError) -> WorkspaceError {
    WorkspaceError(error.to_string())
}

impl FleetBacklog for ProjectBacklog {
    /// Blank, too, once it was planned.
    fn requirement(&self) -> WorkspaceFuture<'_, String> {
        Box::pin(async {
            let text = self.text()?;
            match self.is_planned(&text).await {
                Ok(true) => Ok(String::new()),
                Ok(false) => Ok(text),
                Err(error) => Err(workspace_error(&error)),
            }
        })
    }

    fn sync(&self) -> WorkspaceFuture<'_, OutsideWork> {
        Box::pin(async {
            self.outside()
                .await
                .map_err(|error| workspace_error(&error))
        })
    }

    fn changes(&self) -> BacklogChanges {
        let folder = self.folder.as_deref();
        let watch = folder.map(|folder| FolderWatch::new(folder, ISSUES, &[REQUIREMENT]));
        // What cannot be watched is looked at every few minutes.
        watch
            .and_then(Result::ok)
            .map_or_else(BacklogChanges::default, BacklogChanges::in_folder)
    }
}

/// Adds what the ledger counts.
pub async fn counted(
    ledger: &Ledger,
    inputs: PreflightInputs,
) -> Result<PreflightInputs, StoreError> {
    let counts = ledger.counts().await?;
    let parked = ledger.parked().await?;
    let red_base = ledger.red_base().await?.is_some();
    Ok(with_counts(inputs, &counts, parked, red_base))
}

/// The same, of what was counted.
pub(crate) fn with_counts(
    mut inputs: PreflightInputs,
    counts: &[TaskCount],
    parked: u64,
    red_base: bool,
) -> PreflightInputs {
    for count in counts {
        match count.state {
            TaskState::Todo | TaskState::InProgress => inputs.local_backlog += count.tasks,
            TaskState::Blocked => {
                inputs.blocked += count.tasks;
                inputs.local_backlog += count.tasks;
                if count.blocked_on == Some(BlockReason::AwaitingJudge) {
                    inputs.awaiting_judge += count.tasks;
                }
            }
            TaskState::Done | TaskState::Failed | TaskState::Canceled => {}
        }
    }
    inputs.local_backlog = inputs.local_backlog.saturating_sub(parked);
    inputs.red_base |= red_base;
    inputs
}

#[cfg(test)]
mod tests {
    use std::fs;

    use runner_core::config::FleetConfig;
    use runner_ledger::{LedgerCall, LedgerOptions, Store};
    use runner_lifecycle::Request;

    use super::*;

    #[tokio::test]
    async fn tasks_facts_and_failures_of_a_project() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join(FLEET_DIR);
        fs::create_dir_all(folder.join(ISSUES)).unwrap();
        for (name, text) in [
            (
                "1-a.md",
                "---\nlabels: role:worker\n---\n# A\nDepends on: #2\n",
            ),
            ("2-b.md", "# B"),
            ("3-c.md", "---\nstate: closed\n---\n# C\n"),
            ("4-d.md", "# D\nDepends on: #9\n"),
            ("x.md", "# X"),
        ] {
            fs::write(folder.join(ISSUES).join(name), text).unwrap();
        }
        let ledger = Ledger::open(&Store::Memory, LedgerOptions::default())
            .await
            .unwrap();
        let defaults = TaskDefaults::from(&FleetConfig::default());
        let backlog = ProjectBacklog::new(temp.path(), None, ledger.clone(), defaults);
        assert_eq!(backlog.requirement().await, Ok(String::new()));
        fs::write(folder.join(REQUIREMENT), "make it").unwrap();
        assert_eq!(backlog.requirement().await, Ok("make it".to_owned()));

        let outside = backlog.sync().await.unwrap();
        let ids: Vec<&str> = outside.tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["issue-2", "issue-1"], "what others need comes first");
        assert_eq!(outside.issues["local#1"].role.as_deref(), Some("worker"));
        assert_eq!(outside.issues["local#2"].role, None);
        assert!(outside.issues["local#3"].closed);
        let reasons: Vec<&str> = outside.failures.iter().map(|one| &*one.reason).collect();
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(
            reasons[0].starts_with("x.md: it has no number"),
            "{reasons:?}"
        );
        assert!(
            reasons[1].starts_with("issue 4: it depends on issue-9"),
            "{reasons:?}"
        );

        // Whatever is a task is not made again, and counts no longer as an issue.
        let (_, inputs) = backlog.inputs().await.unwrap();
        assert_eq!((inputs.issue_backlog, inputs.local_backlog), (2, 0));
        let new = outside.tasks[0].clone();
        let call = LedgerCall::new(new.id.clone(), "cycle", Request::Create(new));
        ledger.call(&call).await.unwrap();
        let again = backlog.sync().await.unwrap();
        assert_eq!(again.tasks, outside.tasks[1..]);
        let (_, inputs) = backlog.inputs().await.unwrap();
        // Without a role it is parked, and no backlog.
        let counted = (inputs.issue_backlog, inputs.blocked, inputs.local_backlog);
        assert_eq!(counted, (1, 1, 0));
        assert!(inputs.may_plan().unwrap_err().contains("it has no number"));
    }
}
