//! The workspaces of a simulation: git is a model, sessions follow a script, and everything
//! takes time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runner_ledger::LedgerClock as _;
use runner_lifecycle::packet::ResourceChange;
use runner_lifecycle::retry::LoopEnding;
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BasePosition, Task, Timestamp};
use serde_json::json;

use super::git::{SimCommit, SimMergeOutcome};
use super::script::{HEALTH, OWN_JUDGE};
use super::shared::{SimFlaw, SimSession, SimShared};
use super::world::{START, SimClock, SimWorld, reach};
use crate::workspaces::{
    BaseUpdate, CheckEnd, CheckOutcome, InvertedCheck, LeftoverRun, LoopUsage, PlanOrder,
    ReviewOrder, ReviewReply, StopSign, TaskMergeOutcome, WorkOrder, WorkOutcome, WorkResult,
    WorkspaceError, WorkspaceFuture, Workspaces,
};

/// The account of every session.
pub(super) const ACCOUNT: &str = "acct";

/// The workspaces of one role.
#[derive(Clone)]
pub(super) struct SimWorkspaces {
    pub(super) world: SimWorld,
    pub(super) actor: usize,
    pub(super) shared: Arc<Mutex<SimShared>>,
}

/// Notes the end of a session, whatever ends it.
struct SimRunning {
    workspaces: SimWorkspaces,
    at: usize,
}

impl Drop for SimRunning {
    fn drop(&mut self) {
        let now = self.workspaces.world.time().0;
        if let Some(session) = self.workspaces.shared().sessions.get_mut(self.at) {
            session.ended = Some(now);
        }
    }
}

impl SimWorkspaces {
    pub(super) fn shared(&self) -> MutexGuard<'_, SimShared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many seconds, unless it is told to stop. Whether it was.
    async fn take(&self, secs: u64, stop: &mut StopSign) -> bool {
        let until = self.world.time().plus_secs(secs);
        let clock = SimClock(self.world.clone());
        tokio::select! {
            biased;
            () = stop.raised() => true,
            () = clock.sleep_until(until) => false,
        }
    }

    async fn point(&self, call: &'static str, after: bool) {
        if !after {
            self.shared().calls += 1;
        }
        reach(&self.world, self.actor, call, after).await;
    }

    fn odds(&self) -> super::script::SimOdds {
        self.shared().script.odds
    }

    fn error(&self) -> Result<(), WorkspaceError> {
        let odds = self.odds().error;
        if self.world.draw(|chance| chance.one_in(odds)) {
            return Err(WorkspaceError("the disk is slow today".to_owned()));
        }
        Ok(())
    }

    /// Until when the quota is used up now.
    fn storm(&self) -> Option<Timestamp> {
        let seconds = u64::try_from((self.world.time().0 - START) / 1000).unwrap_or(0);
        let shared = self.shared();
        let mut storms = shared.script.storms.iter();
        let storm = storms.find(|(from, to)| (*from..*to).contains(&seconds))?;
        Some(Timestamp(START).plus_secs(storm.1))
    }

    /// What a session makes of an order.
    fn result(&self, order: &WorkOrder, attempt: u32) -> WorkOutcome {
        let task = &order.task;
        let mut shared = self.shared();
        let behaviour = shared.script.behaviours.get(&task.lineage.root).cloned();
        let behaviour = behaviour.unwrap_or_default();
        let mut worked = WorkOutcome {
            ending: LoopEnding::Complete,
            result: None,
            checks: Vec::new(),
            why: String::new(),
            quota_until: None,
            account: ACCOUNT.to_owned(),
            spent: LoopUsage {
                input_tokens: 100,
                output_tokens: 10,
                cost_micros: 5,
            },
        };
        if let Some((often, ending)) = behaviour.fails
            && attempt <= often
        {
            worked.ending = ending;
            worked.why = format!("error in attempt {attempt}");
            return worked;
        }
        worked.checks = vec![checked(CheckEnd::Green)];
        if attempt <= behaviour.no_change || !task.expects_change {
            return worked;
        }
        let start = shared.repo.base.clone();
        let mut tree = shared.repo.tree(&start);
        // What an earlier attempt made is carried over where it fits.
        if let Some(earlier) = &order.earlier
            && let Some(parent) = shared.repo.get(earlier).and_then(|c| c.parents.first())
        {
            for change in shared.repo.changes(parent, earlier).unwrap_or_default() {
                let then = shared.repo.tree(parent).get(&change.resource).cloned();
                let new = shared.repo.tree(earlier).get(&change.resource).cloned();
                if tree.get(&change.resource) == then.as_ref()
                    && let Some(new) = new
                {
                    tree.insert(change.resource, new);
                }
            }
        }
        if attempt > behaviour.empty {
            let clash = behaviour.clash.filter(|_| attempt == 1);
            let tag = clash.map_or(String::new(), |letter| format!(" clash-{letter}"));
            let own = if behaviour.own_judge { OWN_JUDGE } else { "" };
            let content = format!("{} {}{tag}{own}", order.run_id, order.token);
            if task.fixes_base() {
                tree.insert(HEALTH.to_owned(), format!("good by {}", order.run_id));
            } else {
                let scope = task.lock_scope.first().map_or("a", |scope| scope.as_str());
                let folder = if scope == "." { "all" } else { scope };
                tree.insert(format!("{folder}/file"), content.clone());
            }
            if attempt <= behaviour.outside {
                tree.insert("far/away".to_owned(), content);
            }
        }
        let commit = shared.repo.commit(SimCommit {
            parents: vec![start.clone()],
            tree,
            trailer: Some((task.id.clone(), order.run_id.clone())),
            is_merge: false,
        });
        let changes = shared.repo.changes(&start, &commit).unwrap_or_default();
        let missing = attempt <= behaviour.missing;
        worked.result = (attempt > behaviour.empty || behaviour.empty > 0).then(|| WorkResult {
            start,
            commit: if missing {
                format!("gone-{}", order.run_id)
            } else {
                commit
            },
            changes,
        });
        worked
    }
}

fn checked(end: CheckEnd) -> CheckOutcome {
    CheckOutcome {
        id: "guard".to_owned(),
        end,
        evidence: "exit 0, log 1234".to_owned(),
        tail: "the guard said so".to_owned(),
    }
}

impl Workspaces for SimWorkspaces {
    fn base(&self) -> WorkspaceFuture<'_, String> {
        Box::pin(async move {
            self.point("base", false).await;
            Ok(self.shared().repo.base.clone())
        })
    }

    fn work(&self, order: WorkOrder, mut stop: StopSign) -> WorkspaceFuture<'_, WorkOutcome> {
        Box::pin(async move {
            self.point("work", false).await;
            let root = order.task.lineage.root.clone();
            let (running, attempt, poison) = {
                let mut shared = self.shared();
                shared.model_calls += 1;
                let attempt = shared.attempts.entry(root.clone()).or_insert(0);
                *attempt += 1;
                let attempt = *attempt;
                let behaviour = shared.script.behaviours.get(&root);
                let poison = behaviour.map_or(0, |behaviour| behaviour.poison);
                shared.kept.insert(LeftoverRun {
                    task: order.task.id.clone(),
                    run_id: order.run_id.clone(),
                    token: order.token,
                });
                shared.sessions.push(SimSession {
                    actor: self.actor,
                    task: order.task.id.clone(),
                    token: order.token,
                    interval: i64::from(order.task.heartbeat_interval_seconds) * 1000,
                    began: self.world.time().0,
                    ended: None,
                });
                (shared.sessions.len() - 1, attempt, attempt <= poison)
            };
            let running = SimRunning {
                workspaces: self.clone(),
                at: running,
            };
            let secs = self.world.draw(|chance| match chance.below(4) {
                0 => chance.between(1, 10),
                1 => chance.between(100, 300),
                _ => chance.between(20, 120),
            });
            let stopped = self.take(secs, &mut stop).await;
            if stopped {
                return Ok(WorkOutcome {
                    ending: LoopEnding::Interrupted,
                    result: None,
                    checks: Vec::new(),
                    why: "stopped".to_owned(),
                    quota_until: None,
                    account: ACCOUNT.to_owned(),
                    spent: LoopUsage::default(),
                });
            }
            if poison {
                self.world.kill(self.actor);
                std::future::pending::<()>().await;
            }
            self.error()?;
            let worked = if let Some(until) = self.storm() {
                let says = self.world.draw(|chance| chance.one_in(2));
                let mut worked = self.result(&order, u32::MAX);
                (worked.ending, worked.result) = (LoopEnding::Quota, None);
                worked.quota_until = says.then_some(until);
                worked
            } else {
                self.result(&order, attempt)
            };
            drop(running);
            self.point("work", true).await;
            Ok(worked)
        })
    }

    fn start_of(&self, result: String) -> WorkspaceFuture<'_, Option<String>> {
        Box::pin(async move {
            let shared = self.shared();
            let commit = shared.repo.get(&result);
            Ok(commit.and_then(|commit| commit.parents.first().cloned()))
        })
    }

    fn changes(
        &self,
        start: String,
        result: String,
    ) -> WorkspaceFuture<'_, Option<Vec<ResourceChange>>> {
        Box::pin(async move { Ok(self.shared().repo.changes(&start, &result)) })
    }

    fn diff_bytes(&self, _start: String, _result: String) -> WorkspaceFuture<'_, u64> {
        Box::pin(async { Ok(1) })
    }

    fn check(
        &self,
        commit: String,
        task: Option<Task>,
        mut stop: StopSign,
    ) -> WorkspaceFuture<'_, Vec<CheckOutcome>> {
        Box::pin(async move {
            self.point("check", false).await;
            self.error()?;
            let odds = self.odds();
            let secs = self.world.draw(|chance| {
                if chance.one_in(odds.slow) {
                    chance.between(120, 400)
                } else {
                    chance.between(1, 60)
                }
            });
            let stopped = self.take(secs, &mut stop).await;
            if stopped || self.world.draw(|chance| chance.one_in(odds.unable)) {
                return Ok(vec![checked(CheckEnd::Unable)]);
            }
            let flaky = self.world.draw(|chance| chance.one_in(odds.flaky));
            let green = {
                let mut shared = self.shared();
                let green = shared.is_green(&commit) && !flaky;
                if green && task.is_some() {
                    shared.green.insert(commit.clone());
                }
                green
            };
            self.point("check", true).await;
            let end = if green {
                CheckEnd::Green
            } else {
                CheckEnd::Red
            };
            Ok(vec![checked(end)])
        })
    }

    fn check_inverted(
        &self,
        base: String,
        merge: String,
        _task: Task,
        mut stop: StopSign,
    ) -> WorkspaceFuture<'_, InvertedCheck> {
        Box::pin(async move {
            self.point("check_inverted", false).await;
            self.error()?;
            let odds = self.odds();
            let secs = self.world.draw(|chance| chance.between(1, 60));
            let stopped = self.take(secs, &mut stop).await;
            if stopped || self.world.draw(|chance| chance.one_in(odds.unable)) {
                return Ok(InvertedCheck::Unable("the guard does not start".to_owned()));
            }
            let files: Vec<String> = {
                let shared = self.shared();
                let (before, after) = (shared.repo.tree(&base), shared.repo.tree(&merge));
                let changed = after.iter().filter(|(path, content)| {
                    content.contains(OWN_JUDGE) && before.get(*path) != Some(*content)
                });
                changed.map(|(path, _)| path.clone()).collect()
            };
            self.point("check_inverted", true).await;
            if files.is_empty() {
                return Ok(InvertedCheck::Same);
            }
            let why = "the guard gave exit 1".to_owned();
            Ok(InvertedCheck::Changed { files, why })
        })
    }

    fn review(&self, order: ReviewOrder, mut stop: StopSign) -> WorkspaceFuture<'_, ReviewReply> {
        Box::pin(async move {
            self.point("review", false).await;
            self.shared().model_calls += 1;
            let secs = self.world.draw(|chance| chance.between(5, 100));
            if self.take(secs, &mut stop).await {
                return Ok(ReviewReply::Silent);
            }
            let odds = self.odds();
            let (silent, malformed, quota) = self.world.draw(|chance| {
                (
                    chance.one_in(odds.silent),
                    chance.one_in(odds.malformed),
                    chance.one_in(odds.review_quota),
                )
            });
            if quota {
                let account = ACCOUNT.to_owned();
                return Ok(ReviewReply::Quota {
                    until: None,
                    account,
                });
            }
            if silent {
                return Ok(ReviewReply::Silent);
            }
            if malformed {
                return Ok(ReviewReply::Said("looks good to me".to_owned()));
            }
            let root = order.task.lineage.root.clone();
            let rejects = {
                let mut shared = self.shared();
                let behaviour = shared.script.behaviours.get(&root);
                let limit = behaviour.map_or(0, |behaviour| behaviour.rejections);
                let count = shared.rejections.entry(root).or_insert(0);
                let rejects = *count < limit;
                *count += u32::from(rejects);
                rejects
            };
            let criteria: Vec<_> = order
                .criteria
                .iter()
                .map(|one| json!({"id": one.id, "status": "pass", "evidence": "seen"}))
                .collect();
            let findings = if rejects {
                json!([{"id": format!("f-{}", order.run_id), "text": "not good enough"}])
            } else {
                json!([])
            };
            let word = if rejects { "reject" } else { "approve" };
            let verdict = json!({
                "verdict": word, "summary": "as I see it",
                "findings": findings, "criteria": criteria,
            });
            self.point("review", true).await;
            Ok(ReviewReply::Said(verdict.to_string()))
        })
    }

    fn merge(
        &self,
        base: String,
        result: String,
        task: Task,
        run_id: String,
    ) -> WorkspaceFuture<'_, TaskMergeOutcome> {
        Box::pin(async move {
            self.point("merge", false).await;
            self.error()?;
            let merged = {
                let mut shared = self.shared();
                match shared.repo.merge(&base, &result, &run_id) {
                    SimMergeOutcome::Commit(commit) => TaskMergeOutcome::Commit(commit),
                    SimMergeOutcome::Conflicts(paths) => TaskMergeOutcome::Conflicts(paths),
                    SimMergeOutcome::Empty => TaskMergeOutcome::Empty,
                    SimMergeOutcome::Missing => TaskMergeOutcome::Missing,
                }
            };
            self.world
                .say(|| format!("merge of {} is {merged:?}", task.id));
            self.point("merge", true).await;
            Ok(merged)
        })
    }

    fn position(&self, intent: Intent) -> WorkspaceFuture<'_, BasePosition> {
        Box::pin(async move {
            self.point("position", false).await;
            let shared = self.shared();
            let base = &shared.repo.base;
            if *base == intent.old_base {
                return Ok(BasePosition::Old);
            }
            let merged = shared.repo.reachable(base).contains(&intent.merge_commit);
            let lies = shared.flaw == Some(SimFlaw::LiesAboutPosition);
            Ok(if merged && !lies {
                BasePosition::Merged
            } else {
                BasePosition::Elsewhere
            })
        })
    }

    fn move_base(&self, intent: Intent) -> WorkspaceFuture<'_, bool> {
        Box::pin(async move {
            self.point("move_base", false).await;
            let millis = self.world.draw(|chance| chance.below(2000));
            let until = self.world.time().plus_millis(millis);
            SimClock(self.world.clone()).sleep_until(until).await;
            let moved = {
                let mut shared = self.shared();
                let blind = shared.flaw == Some(SimFlaw::NoCompareAndSet);
                if shared.repo.base == intent.old_base || blind {
                    shared.repo.base.clone_from(&intent.merge_commit);
                }
                shared.repo.base == intent.merge_commit
            };
            self.world
                .say(|| format!("base to {}: {moved}", intent.merge_commit));
            self.point("move_base", true).await;
            Ok(moved)
        })
    }

    fn update_user_branch(&self) -> WorkspaceFuture<'_, BaseUpdate> {
        Box::pin(async move {
            self.point("present", false).await;
            Ok(BaseUpdate::UpToDate)
        })
    }

    fn plan(&self, order: PlanOrder, mut stop: StopSign) -> WorkspaceFuture<'_, String> {
        Box::pin(async move {
            self.point("plan", false).await;
            {
                let mut shared = self.shared();
                shared.model_calls += 1;
                if order.attempt == 1 {
                    shared.planned_at.push(self.world.time());
                }
            }
            let secs = self.world.draw(|chance| chance.between(10, 200));
            if self.take(secs, &mut stop).await {
                return Err(WorkspaceError("stopped".to_owned()));
            }
            if order.attempt == 1 && self.world.draw(|chance| chance.one_in(2)) {
                return Ok(r#"{"tasks": []}"#.to_owned());
            }
            self.point("plan", true).await;
            Ok(a_plan())
        })
    }

    fn leftover_runs(&self) -> WorkspaceFuture<'_, Vec<LeftoverRun>> {
        Box::pin(async move {
            self.point("kept", false).await;
            Ok(self.shared().kept.iter().cloned().collect())
        })
    }

    fn sweep(&self, gone: Vec<LeftoverRun>) -> WorkspaceFuture<'_, ()> {
        Box::pin(async move {
            self.point("sweep", false).await;
            let mut shared = self.shared();
            for one in &gone {
                shared.kept.remove(one);
            }
            Ok(())
        })
    }
}

/// Two tasks, one after the other.
fn a_plan() -> String {
    let task = |id: &str, path: &str, needs: &[&str]| {
        json!({
            "id": id, "title": id, "goal": "it is better", "role": "worker",
            "allowed_paths": [path], "forbidden_paths": [], "depends_on": needs,
            "acceptance": [{"id": "guard", "text": "green", "check": "command"}],
            "commands": [], "priority": "normal", "risk": "medium", "expects_change": true,
        })
    };
    json!({"tasks": [task("one", "p", &[]), task("two", "q", &["one"])]}).to_string()
}
