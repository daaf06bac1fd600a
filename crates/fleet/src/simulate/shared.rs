//! What all roles of a simulation share: the repository, the script, and what was done.

use std::collections::{BTreeMap, BTreeSet};

use runner_lifecycle::{TaskId, Timestamp};

use super::git::SimRepo;
use super::outside::SimOutside;
use super::script::{HEALTH, SimScript};
use crate::workspaces::LeftoverRun;

/// A session that goes on, or has ended.
#[derive(Clone, Debug)]
pub(super) struct SimSession {
    pub(super) actor: usize,
    pub(super) task: TaskId,
    pub(super) token: u64,
    pub(super) interval: i64,
    pub(super) began: i64,
    pub(super) ended: Option<i64>,
}

/// What all roles of a simulation share; it outlives every crash.
pub(super) struct SimShared {
    pub(super) repo: SimRepo,
    pub(super) script: SimScript,
    /// Attempts so far, by lineage.
    pub(super) attempts: BTreeMap<TaskId, u32>,
    /// Rejections so far, by lineage.
    pub(super) rejections: BTreeMap<TaskId, u32>,
    pub(super) sessions: Vec<SimSession>,
    /// Commits on which the guard was green for a task.
    pub(super) green: BTreeSet<String>,
    /// What a person pushed.
    pub(super) pushed: Vec<String>,
    /// Issues and pull requests.
    pub(super) outside: SimOutside,
    /// When a planner was asked for a plan for the first time.
    pub(super) planned_at: Vec<Timestamp>,
    /// Runs that left something.
    pub(super) kept: BTreeSet<LeftoverRun>,
    /// Questions to models.
    pub(super) model_calls: u64,
    /// Anything that was asked.
    pub(super) calls: u64,
    /// Breaks of the workspaces, for tests of the checkers.
    pub(super) flaw: Option<SimFlaw>,
}

/// Ways in which workspaces could be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum SimFlaw {
    /// The base moves wherever it stands.
    NoCompareAndSet,
    /// The base is said to be elsewhere although the merge is in it.
    LiesAboutPosition,
}

impl SimShared {
    pub(super) fn new(script: SimScript, flaw: Option<SimFlaw>) -> SimShared {
        let tree = [(HEALTH, "good"), ("a/file", "0"), ("README", "0")];
        let tree = tree.map(|(path, content)| (path.to_owned(), content.to_owned()));
        SimShared {
            repo: SimRepo::new(tree.into()),
            script,
            attempts: BTreeMap::new(),
            rejections: BTreeMap::new(),
            sessions: Vec::new(),
            green: BTreeSet::new(),
            pushed: Vec::new(),
            outside: SimOutside::new(),
            planned_at: Vec::new(),
            kept: BTreeSet::new(),
            model_calls: 0,
            calls: 0,
            flaw,
        }
    }

    /// Sessions of one task that ran beside a newer one for longer than one interval. Those
    /// of a machine that sleeps do not run.
    pub(super) fn overlaps(&self, sleepers: &[usize]) -> Vec<String> {
        let mut found = Vec::new();
        let awake = |session: &&SimSession| !sleepers.contains(&session.actor);
        for old in self.sessions.iter().filter(awake) {
            for new in &self.sessions {
                let beside = new.task == old.task && new.token > old.token;
                let end = old.ended.unwrap_or(i64::MAX);
                let since = old.began.max(new.began);
                if beside && end.saturating_sub(since) > old.interval {
                    found.push(format!(
                        "a session of {} with token {} ran beside that with token {}",
                        old.task, old.token, new.token
                    ));
                }
            }
        }
        found
    }

    /// Whether the guard is green on a commit.
    pub(super) fn is_green(&self, commit: &str) -> bool {
        let tree = self.repo.tree(commit);
        let has = |word: &str| tree.values().any(|content| content.contains(word));
        let sick = tree.get(HEALTH).is_some_and(|health| health == "bad");
        let clash = has("clash-a") && has("clash-b");
        !sick && !clash
    }
}
