//! What is outside of a simulated fleet: issues and pull requests that come, change and
//! go while it runs, and a source that cannot be read at times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use runner_lifecycle::Timestamp;
use tokio::sync::watch;

use super::git::SimCommit;
use super::shared::SimShared;
use super::world::{START, SimWorld, reach};
use crate::backlog::project::ProjectBacklog;
use crate::backlog::source::{BacklogSource, FoundPullRequest};
use crate::backlog::{BacklogChanges, FleetBacklog, OutsideWork};
use crate::rules::issue::SourceIssue;
use crate::rules::preflight::FailedSource;
use crate::workspaces::{BoxFuture, WorkspaceFuture};

/// The name of the source; ids of tasks are made of it.
pub(super) const SOURCE: &str = "local";

/// A pull request as it is now.
#[derive(Clone, Debug, Default)]
pub(super) struct SimPullRequest {
    /// Its heads, and since when each is there.
    pub(super) heads: Vec<(Timestamp, String)>,
    pub(super) closed: bool,
}

/// Issues and pull requests by number.
#[derive(Debug)]
pub(super) struct SimOutside {
    pub(super) issues: BTreeMap<u64, String>,
    pub(super) pulls: BTreeMap<u64, SimPullRequest>,
    changes: watch::Sender<u64>,
}

impl SimOutside {
    pub(super) fn new() -> SimOutside {
        SimOutside {
            issues: BTreeMap::new(),
            pulls: BTreeMap::new(),
            changes: watch::Sender::new(0),
        }
    }

    /// Lets everybody hear that something is different.
    pub(super) fn announce(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// The issues that can be read.
    pub(super) fn issues(&self) -> Vec<SourceIssue> {
        let all = self.issues.iter();
        all.filter_map(|(number, text)| issue(*number, text).ok())
            .collect()
    }
}

impl SimShared {
    /// Opens a pull request or pushes another head of it: a commit on the base as it is.
    pub(super) fn pull(&mut self, number: u64, path: &str, content: &str, now: Timestamp) {
        let base = self.repo.base.clone();
        let mut tree = self.repo.tree(&base);
        tree.insert(path.to_owned(), content.to_owned());
        let head = self.repo.commit(SimCommit {
            parents: vec![base],
            tree,
            trailer: None,
            is_merge: false,
        });
        let pull = self.outside.pulls.entry(number).or_default();
        pull.heads.push((now, head));
    }
}

fn issue(number: u64, text: &str) -> Result<SourceIssue, String> {
    let name = format!("{number}-x.md");
    SourceIssue::parse(text.as_bytes(), &name).map_err(|all| {
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.join(", ")
    })
}

/// The source.
pub(super) struct SimSource {
    pub(super) world: SimWorld,
    pub(super) shared: Arc<Mutex<SimShared>>,
}

impl BacklogSource for SimSource {
    fn name(&self) -> &'static str {
        SOURCE
    }

    fn look(&self) -> BoxFuture<'_, crate::backlog::source::BacklogContents> {
        let mut found = crate::backlog::source::BacklogContents::default();
        let failed = |reason: String| FailedSource {
            source: SOURCE.to_owned(),
            reason,
        };
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = u64::try_from((self.world.time().0 - START) / 1000).unwrap_or(0);
        let mut outages = shared.script.outages.iter();
        if outages.any(|(from, to)| (*from..*to).contains(&seconds)) {
            found.failures.push(failed("nobody answers".to_owned()));
            return Box::pin(std::future::ready(found));
        }
        for (number, text) in &shared.outside.issues {
            match issue(*number, text) {
                Ok(issue) => found.issues.push(issue),
                Err(why) => found.failures.push(failed(why)),
            }
        }
        for (number, pull) in &shared.outside.pulls {
            found.pull_requests.push(FoundPullRequest {
                number: *number,
                title: format!("pull {number}"),
                head: pull
                    .heads
                    .last()
                    .map(|head| head.1.clone())
                    .unwrap_or_default(),
                body: String::new(),
                closed: pull.closed,
            });
        }
        Box::pin(std::future::ready(found))
    }
}

/// The same reading of requirement and source as in a project, between points.
pub(super) struct SimBacklog {
    pub(super) world: SimWorld,
    pub(super) actor: usize,
    pub(super) runtime: Arc<tokio::runtime::Runtime>,
    pub(super) shared: Arc<Mutex<SimShared>>,
    pub(super) inner: ProjectBacklog,
}

impl FleetBacklog for SimBacklog {
    fn requirement(&self) -> WorkspaceFuture<'_, String> {
        Box::pin(async { self.runtime.block_on(self.inner.requirement()) })
    }

    fn sync(&self) -> WorkspaceFuture<'_, OutsideWork> {
        Box::pin(async {
            reach(&self.world, self.actor, "sync", false).await;
            let outside = self.runtime.block_on(self.inner.sync());
            reach(&self.world, self.actor, "sync", true).await;
            outside
        })
    }

    fn changes(&self) -> BacklogChanges {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        BacklogChanges::of(shared.outside.changes.subscribe())
    }
}
