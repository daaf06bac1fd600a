//! Where work comes from: a requirement to plan, and issues that wait outside.

pub(crate) mod folder;
pub mod project;
pub mod source;

use std::collections::BTreeMap;

use runner_lifecycle::request::{IssueFacts, NewTask, PullRequest};
use tokio::sync::watch;

use crate::backlog::folder::FolderWatch;
use crate::rules::preflight::FailedSource;
use crate::workspaces::WorkspaceFuture;

/// What waits outside.
#[derive(Clone, Debug, Default)]
pub struct OutsideWork {
    /// A task for each open issue and each open pull request. Its id is the same whenever
    /// it is asked for, so that each is made once.
    pub tasks: Vec<NewTask>,
    /// What is known of issues, by the `source` of their tasks.
    pub issues: BTreeMap<String, IssueFacts>,
    /// What is known of pull requests, by the `source` of their tasks.
    pub pull_requests: BTreeMap<String, PullRequest>,
    /// What could not be read: the rest is there, but nobody knows whether it is all.
    pub failures: Vec<FailedSource>,
}

impl OutsideWork {
    /// The tasks that issues become; those of pull requests are not among them.
    pub fn new_issues(&self) -> impl Iterator<Item = &NewTask> {
        self.tasks.iter().filter(|new| {
            let source = new.source.as_deref().unwrap_or_default();
            !self.pull_requests.contains_key(source)
        })
    }

    /// How many pull requests are open.
    pub fn open_pull_requests(&self) -> u64 {
        let open = self.pull_requests.values().filter(|pull| !pull.closed);
        u64::try_from(open.count()).unwrap_or(u64::MAX)
    }
}

/// A source of work. One that fails closes the gate to a new plan.
pub trait FleetBacklog: Send + Sync {
    /// What shall be so; blank: nothing is to be planned.
    fn requirement(&self) -> WorkspaceFuture<'_, String>;

    /// What waits outside now.
    fn sync(&self) -> WorkspaceFuture<'_, OutsideWork>;

    /// What hears when that may be something else, from now on.
    fn changes(&self) -> BacklogChanges {
        BacklogChanges::default()
    }
}

/// Hears when requirement or issues change. Only a notification: whoever hears nothing looks anyway, in
/// a while.
#[derive(Debug, Default)]
pub struct BacklogChanges(ChangeSource);

#[derive(Debug, Default)]
enum ChangeSource {
    #[default]
    Nothing,
    Counter(watch::Receiver<u64>),
    Folder(FolderWatch),
}

impl BacklogChanges {
    /// Of a counter of changes.
    pub fn of(counter: watch::Receiver<u64>) -> BacklogChanges {
        BacklogChanges(ChangeSource::Counter(counter))
    }

    /// Of a folder.
    pub(crate) fn in_folder(watch: FolderWatch) -> BacklogChanges {
        BacklogChanges(ChangeSource::Folder(watch))
    }

    /// Returns once something has changed since the last time.
    pub async fn next(&mut self) {
        let heard = match &mut self.0 {
            ChangeSource::Nothing => false,
            ChangeSource::Counter(counter) => counter.changed().await.is_ok(),
            ChangeSource::Folder(watch) => watch.next().await.is_ok(),
        };
        if !heard {
            self.0 = ChangeSource::Nothing;
            std::future::pending::<()>().await;
        }
    }
}

/// Nothing waits outside, and nothing is to be planned.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBacklog;

impl FleetBacklog for NoBacklog {
    fn requirement(&self) -> WorkspaceFuture<'_, String> {
        Box::pin(std::future::ready(Ok(String::new())))
    }

    fn sync(&self) -> WorkspaceFuture<'_, OutsideWork> {
        Box::pin(std::future::ready(Ok(OutsideWork::default())))
    }
}
