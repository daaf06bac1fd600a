//! The workspaces of one machine: real git, real guards, real sessions.
//!
//! Everything that takes time happens on threads of its own, since children die with the
//! thread that started them; what is awaited here is only their end.

mod check_outcomes;
mod commands;
mod config;
mod questions;
mod threads;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner::fleet_repo::{
    BaseAt, BranchUpdate as Shown, FleetRepo, ResultMerge, ResultMergeOutcome, TaskRunName,
};
use runner::{BaseVerdict, ProgressObserver, Project, RunContext, RunProgress, SystemWallClock};
use runner_core::landing::TaskMessage;
use runner_exec::{Cancel, Supervisor};
use runner_lifecycle::packet::ResourceChange;
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BasePosition, Task, TaskId};

use crate::workspaces::{
    BaseUpdate, CheckOutcome, InvertedCheck, LeftoverRun, PlanOrder, ReviewOrder, ReviewReply,
    StopSign, TaskMergeOutcome, WorkOrder, WorkOutcome, WorkspaceError, WorkspaceFuture,
    Workspaces,
};
use threads::{on_thread, supervised};

/// Hears what the loops of the runs do.
pub type RunWatcher = Arc<dyn Fn(&str, &RunProgress<'_>) + Send + Sync>;

/// What workspaces are made of.
#[derive(Clone)]
pub struct WorkspaceContext {
    /// A folder of the project's work tree.
    pub root: PathBuf,
    /// The branch that results are merged into; none: that of `[fleet] base`, or the one
    /// that is checked out.
    pub base: Option<String>,
    /// Starts children.
    pub supervisor: Supervisor,
    /// Hears what goes on.
    pub watcher: Option<RunWatcher>,
}

impl std::fmt::Debug for WorkspaceContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkspaceContext")
            .field("root", &self.root)
            .field("base", &self.base)
            .field("supervisor", &self.supervisor)
            .finish_non_exhaustive()
    }
}

/// A base that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedBase {
    /// The commit.
    pub commit: String,
    /// What setup and guard said there.
    pub verdict: BaseVerdict,
}

/// Git, guards and sessions of one project on this machine.
#[derive(Clone, Debug)]
pub struct LocalWorkspaces {
    context: Arc<WorkspaceContext>,
    base: String,
}

impl LocalWorkspaces {
    /// Opens a project. It blocks for a few calls of git.
    pub fn open(context: WorkspaceContext) -> Result<Self, WorkspaceError> {
        let named = context
            .base
            .clone()
            .or_else(|| configured_base(&context.root));
        let repo = FleetRepo::open(&context.root, named.as_deref()).map_err(error)?;
        Ok(LocalWorkspaces {
            base: repo.base_branch().to_owned(),
            context: Arc::new(WorkspaceContext {
                root: repo.root().to_owned(),
                ..context
            }),
        })
    }

    /// The branch of the user's that everything is for.
    pub fn base_branch(&self) -> &str {
        &self.base
    }

    /// The root of the project's work tree.
    pub fn root(&self) -> &Path {
        &self.context.root
    }

    /// Tries setup and guard on the base, unless the answer is known.
    pub fn try_base(&self, stop: StopSign) -> WorkspaceFuture<'static, TriedBase> {
        let workspaces = self.clone();
        Box::pin(supervised(stop, None, move |call| {
            let commit = workspaces.repo()?.base().map_err(error)?;
            let verdict = workspaces.try_commit(&commit, call)?;
            Ok(TriedBase { commit, verdict })
        }))
    }

    fn repo(&self) -> Result<FleetRepo, WorkspaceError> {
        FleetRepo::reopen(&self.context.root, &self.base).map_err(error)
    }

    /// Does something with git on a thread of its own.
    fn with_git<T: Send + 'static>(
        &self,
        act: impl FnOnce(&FleetRepo) -> runner::Result<T> + Send + 'static,
    ) -> WorkspaceFuture<'static, T> {
        let workspaces = self.clone();
        Box::pin(async move { on_thread(move || act(&workspaces.repo()?).map_err(error)).await? })
    }

    /// Calls a function with a `RunContext` whose observer tells the watcher about a run.
    fn with_context<T>(
        &self,
        about: &str,
        cancel: &Cancel,
        act: impl FnOnce(&mut RunContext<'_>) -> T,
    ) -> T {
        let mut observer = RunObserver {
            about,
            watcher: self.context.watcher.as_ref(),
        };
        act(&mut RunContext {
            clock: &SystemWallClock,
            cancel,
            supervisor: &self.context.supervisor,
            observer: &mut observer,
        })
    }
}

/// `[fleet] base`, if the config of the work tree has it.
fn configured_base(root: &Path) -> Option<String> {
    let project = Project::of_work_tree(root).ok()?;
    let base = runner::config_of(&project).ok()?.fleet.base;
    (!base.is_empty()).then_some(base)
}

struct RunObserver<'a> {
    about: &'a str,
    watcher: Option<&'a RunWatcher>,
}

impl ProgressObserver for RunObserver<'_> {
    fn progress(&mut self, progress: &RunProgress<'_>) {
        if let Some(watcher) = self.watcher {
            watcher(self.about, progress);
        }
    }
}

/// An error of the loop's library in the words of the workspaces.
fn error(error: runner::Error) -> WorkspaceError {
    let mut words = error.message;
    if let Some(hint) = error.hint {
        words.push_str("; ");
        words.push_str(&hint);
    }
    WorkspaceError(words)
}

impl Workspaces for LocalWorkspaces {
    fn base(&self) -> WorkspaceFuture<'_, String> {
        self.with_git(FleetRepo::base)
    }

    fn work(&self, order: WorkOrder, stop: StopSign) -> WorkspaceFuture<'_, WorkOutcome> {
        let workspaces = self.clone();
        let timebox = std::time::Duration::from_secs(order.task.timebox_seconds.into());
        Box::pin(supervised(stop, Some(timebox), move |call| {
            workspaces.work_on(&order, call)
        }))
    }

    fn start_of(&self, result: String) -> WorkspaceFuture<'_, Option<String>> {
        self.with_git(move |repo| repo.start_of(&result))
    }

    fn changes(
        &self,
        start: String,
        result: String,
    ) -> WorkspaceFuture<'_, Option<Vec<ResourceChange>>> {
        self.with_git(move |repo| {
            let changes = repo.changes(&start, &result)?;
            Ok(changes.map(check_outcomes::resource_changes))
        })
    }

    fn diff_bytes(&self, start: String, result: String) -> WorkspaceFuture<'_, u64> {
        self.with_git(move |repo| repo.diff_bytes(&start, &result))
    }

    fn check(
        &self,
        commit: String,
        task: Option<Task>,
        stop: StopSign,
    ) -> WorkspaceFuture<'_, Vec<CheckOutcome>> {
        let workspaces = self.clone();
        Box::pin(supervised(stop, None, move |call| {
            workspaces.check_at(&commit, task.as_ref(), call)
        }))
    }

    fn check_inverted(
        &self,
        base: String,
        merge: String,
        task: Task,
        stop: StopSign,
    ) -> WorkspaceFuture<'_, InvertedCheck> {
        let workspaces = self.clone();
        Box::pin(supervised(stop, None, move |call| {
            workspaces.check_inverted_at(&base, &merge, &task, call)
        }))
    }

    fn review(&self, order: ReviewOrder, stop: StopSign) -> WorkspaceFuture<'_, ReviewReply> {
        let workspaces = self.clone();
        Box::pin(supervised(stop, None, move |call| {
            workspaces.ask_reviewer(&order, call)
        }))
    }

    fn merge(
        &self,
        base: String,
        result: String,
        task: Task,
        run_id: String,
    ) -> WorkspaceFuture<'_, TaskMergeOutcome> {
        self.with_git(move |repo| {
            let message = TaskMessage {
                title: &task.title,
                task_id: task.id.as_str(),
                run_id: &run_id,
                result: Some(&result),
                guard: None,
                accepted: task.accepted_judge.as_ref() == Some(&run_id),
            };
            let merged = repo.merge(ResultMerge {
                base: &base,
                result: &result,
                message: &message.text(),
                run_id: &run_id,
            })?;
            Ok(match merged {
                ResultMergeOutcome::Commit(commit) => TaskMergeOutcome::Commit(commit),
                ResultMergeOutcome::Conflicts(paths) => TaskMergeOutcome::Conflicts(paths),
                ResultMergeOutcome::Empty => TaskMergeOutcome::Empty,
                ResultMergeOutcome::Missing => TaskMergeOutcome::Missing,
            })
        })
    }

    fn position(&self, intent: Intent) -> WorkspaceFuture<'_, BasePosition> {
        self.with_git(move |repo| {
            let at = repo.position(&intent.old_base, &intent.merge_commit)?;
            Ok(match at {
                BaseAt::New => BasePosition::Merged,
                BaseAt::Old => BasePosition::Old,
                BaseAt::Elsewhere => BasePosition::Elsewhere,
            })
        })
    }

    fn move_base(&self, intent: Intent) -> WorkspaceFuture<'_, bool> {
        self.with_git(move |repo| repo.move_base(&intent.old_base, &intent.merge_commit))
    }

    fn update_user_branch(&self) -> WorkspaceFuture<'_, BaseUpdate> {
        self.with_git(|repo| {
            Ok(match repo.update_user_branch()? {
                Shown::UpToDate => BaseUpdate::UpToDate,
                Shown::Behind(why) => BaseUpdate::Behind(why),
            })
        })
    }

    fn plan(&self, order: PlanOrder, stop: StopSign) -> WorkspaceFuture<'_, String> {
        let workspaces = self.clone();
        Box::pin(supervised(stop, None, move |call| {
            workspaces.ask_planner(&order, call)
        }))
    }

    fn leftover_runs(&self) -> WorkspaceFuture<'_, Vec<LeftoverRun>> {
        self.with_git(|repo| {
            let kept = repo.leftover_runs()?.into_iter();
            let kept = kept.filter_map(|run| {
                Some(LeftoverRun {
                    task: TaskId::parse(&run.task).ok()?,
                    run_id: run.run_id,
                    token: run.token,
                })
            });
            Ok(kept.collect())
        })
    }

    fn sweep(&self, gone: Vec<LeftoverRun>) -> WorkspaceFuture<'_, ()> {
        self.with_git(move |repo| {
            let gone = gone.into_iter().map(|run| TaskRunName {
                task: run.task.into(),
                run_id: run.run_id,
                token: run.token,
            });
            repo.sweep(&gone.collect::<Vec<_>>(), &Cancel::new()?)
        })
    }
}
