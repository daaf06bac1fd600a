//! The dispatcher: gives ready tasks to agents that live and have nothing to do.
//!
//! It claims on the agent's behalf. An agent that does not say a word within one interval
//! loses the task again, and nothing is counted.

use std::collections::BTreeMap;

use runner_ledger::{ClaimRequest, DispatchView, FleetAgent, LedgerCall, LedgerError, ReadyTask};
use runner_lifecycle::order::pick;
use runner_lifecycle::request::Claim;
use runner_lifecycle::{
    Lane, LeasePurpose, RefusalCode, Request, Task, TaskId, TaskState, Timestamp,
};

use super::red_base::{BaseHold, BaseWatch};
use super::role_lease::while_role_lease_held;
use super::{RoleContext, RoleRule, RoleWait, StoreBackoff};
use crate::ledger_port::LedgerResult;
use crate::workspaces::StopSign;

/// The roles that are given work.
pub const WORKING_ROLES: [&str; 3] = ["worker", "tester", "docser"];
/// Failures of an owner before another one is preferred.
const OWNER_FAILURES: u32 = 2;
/// How many dead tasks are looked at in one go.
const PAGE_SIZE: usize = 100;
/// How far back the dead are looked at again: a store of several machines may show a
/// change after a later one.
const MARGIN_MILLIS: i64 = 5 * 60 * 1000;

/// Who starts next, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchChoice {
    /// The agent.
    pub agent: String,
    /// Its role.
    pub role: String,
    /// The lane to take from.
    pub lane: Lane,
    /// The task that is expected; somebody may be faster.
    pub task: TaskId,
}

/// Agents that were given something and never said a word since, with the time of that.
pub type SilentAgents = BTreeMap<String, Timestamp>;

/// Chooses the next start. None: nothing can start now.
pub fn choose(dispatch_view: &DispatchView, silent: &SilentAgents) -> Option<DispatchChoice> {
    if dispatch_view.paused {
        return None;
    }
    let running: Vec<Lane> = dispatch_view
        .busy
        .iter()
        .filter(|busy| busy.purpose == LeasePurpose::Work)
        .map(|busy| busy.lane)
        .collect();
    let mut roles: Vec<&str> = Vec::new();
    for (role, _) in &dispatch_view.ready {
        if !roles.contains(&role.as_str()) {
            roles.push(role);
        }
    }
    roles
        .iter()
        .find_map(|role| choose_for(dispatch_view, silent, role, &running))
}

fn choose_for(
    dispatch_view: &DispatchView,
    silent: &SilentAgents,
    role: &str,
    running: &[Lane],
) -> Option<DispatchChoice> {
    let idle: Vec<&FleetAgent> = dispatch_view
        .agents
        .iter()
        .filter(|agent| agent.role == role && is_free(dispatch_view, silent, agent))
        .collect();
    let ready: Vec<&ReadyTask> = dispatch_view
        .ready
        .iter()
        .filter(|(of, _)| of == role)
        .map(|(_, one)| one)
        .collect();
    let lanes: Vec<Lane> = ready.iter().map(|one| one.lane).collect();
    let at = pick(&lanes, running, running.len() + idle.len())?;
    let first = ready.get(at)?;
    let agent = idle
        .iter()
        .min_by_key(|agent| (failed_often(&first.task, &agent.name), &agent.name))?;
    Some(DispatchChoice {
        agent: agent.name.clone(),
        role: role.to_owned(),
        lane: first.lane,
        task: first.task.id.clone(),
    })
}

/// Whether another owner is preferred. That orders, it does not ban.
fn failed_often(task: &Task, owner: &str) -> bool {
    let failures = task.counters.failures_by_owner.get(owner);
    failures.copied().unwrap_or(0) >= OWNER_FAILURES
}

/// Whether an agent may be given something.
fn is_free(dispatch_view: &DispatchView, silent: &SilentAgents, agent: &FleetAgent) -> bool {
    let asleep = silent
        .get(&agent.name)
        .is_some_and(|given_at| agent.last_seen_at <= *given_at);
    agent.works_on.is_none()
        && !agent.is_offline(dispatch_view.now)
        && !asleep
        && has_quota(dispatch_view, &agent.account)
}

/// While tasks wait for the quota of an account, it runs one task at a time, and none
/// before the time at which all its workers expect the quota.
fn has_quota(dispatch_view: &DispatchView, account: &str) -> bool {
    let Some(view) = dispatch_view.accounts.get(account) else {
        return true;
    };
    let runs = |agent: &&FleetAgent| agent.account == account && agent.works_on.is_some();
    let waits = view.reset_at.is_some_and(|at| at > dispatch_view.now);
    !waits && !dispatch_view.agents.iter().any(|agent| runs(&agent))
}

/// Until when accounts are closed that a ready task may need.
fn next_quota(dispatch_view: &DispatchView) -> Option<Timestamp> {
    let resets = dispatch_view
        .accounts
        .values()
        .filter_map(|view| view.reset_at);
    resets.filter(|at| *at > dispatch_view.now).min()
}

/// Dispatches while it holds its role lease, until the sign is raised.
pub async fn run(context: &RoleContext, name: &str, stop: StopSign) -> LedgerResult<()> {
    let body = |token| {
        let stop = stop.clone();
        async move {
            let mut watch = RoleWait::new(context, stop).await?;
            let mut dispatcher = Dispatcher {
                context,
                name,
                token,
                claims: 0,
                silent: SilentAgents::new(),
                given: SilentAgents::new(),
                dead_since: Timestamp(0),
                whole_look_at: context.clock.now(),
                base_watch: BaseWatch::default(),
            };
            dispatcher.dispatch(&mut watch).await
        }
    };
    while_role_lease_held(context, "dispatcher", name, stop.clone(), body).await
}

/// The task that fixes the base as all that is ready.
fn first_ready(base_fix: Option<Box<Task>>) -> Vec<(String, ReadyTask)> {
    let todo = base_fix.filter(|task| task.state == TaskState::Todo);
    todo.map(|task| {
        let (role, lane) = (task.role.clone(), task.lane);
        (role, ReadyTask { lane, task: *task })
    })
    .into_iter()
    .collect()
}

struct Dispatcher<'c> {
    context: &'c RoleContext,
    name: &'c str,
    token: u64,
    /// Counts the claims of this holder.
    claims: u64,
    silent: SilentAgents,
    /// Who was given something, and when.
    given: SilentAgents,
    /// The dead before that were looked at.
    dead_since: Timestamp,
    /// When all of them are looked at again: what was blocked when one died, and is `todo`
    /// again, was not found with it.
    whole_look_at: Timestamp,
    base_watch: BaseWatch,
}

impl Dispatcher<'_> {
    async fn dispatch(&mut self, watch: &mut RoleWait) -> LedgerResult<()> {
        let context = self.context;
        let mut backoff = StoreBackoff::default();
        while !watch.stop.is_raised() {
            let turn = self.turn(&mut watch.stop).await;
            if let Some(next) = backoff
                .pause_if_transient(context, &mut watch.stop, turn)
                .await?
            {
                watch.until(next).await;
            }
        }
        Ok(())
    }

    /// Starts all that can start; when to look again.
    async fn turn(&mut self, stop: &mut StopSign) -> LedgerResult<Timestamp> {
        let context = self.context;
        self.block_dependents_of_dead().await?;
        loop {
            let dispatch_view = context.ledger.dispatch_view(&WORKING_ROLES).await?;
            self.notice(&dispatch_view);
            let red = dispatch_view.red_base.as_ref();
            let hold = self.base_watch.hold(context, self.name, red, stop).await?;
            if let BaseHold::Only(base_fix) = hold {
                self.start_fix(dispatch_view, base_fix).await?;
                return Ok(context.next_look());
            }
            let Some(choice) = choose(&dispatch_view, &self.silent) else {
                let mut next = context.next_look();
                if let Some(at) = next_quota(&dispatch_view) {
                    next = next.min(context.local(at).await?);
                }
                return Ok(next);
            };
            let key = self.claim_key();
            let mut claim_request = ClaimRequest::work(&choice.agent, &choice.role, &key);
            claim_request.lane = Some(choice.lane);
            // Nothing: those that looked ready wait for a lock, and are out of the way now.
            match context.ledger.claim_next(&claim_request).await {
                Ok(Some(_)) => {
                    self.given.insert(choice.agent, dispatch_view.now);
                }
                Ok(None) | Err(LedgerError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The name of a claim that no other one has.
    fn claim_key(&mut self) -> String {
        self.claims += 1;
        format!("{}/{}/{}", self.name, self.token, self.claims)
    }

    /// Gives the task that fixes the base, the only one that is ready, to somebody.
    async fn start_fix(
        &mut self,
        mut dispatch_view: DispatchView,
        base_fix: Option<Box<Task>>,
    ) -> LedgerResult<()> {
        dispatch_view.ready = first_ready(base_fix);
        let Some(choice) = choose(&dispatch_view, &self.silent) else {
            return Ok(());
        };
        let claim = Claim {
            owner: choice.agent.clone(),
            purpose: LeasePurpose::Work,
            key: self.claim_key(),
            base: None,
        };
        match self.context.ledger.claim(&choice.task, claim).await {
            Ok(_) => {
                self.given.insert(choice.agent, dispatch_view.now);
                Ok(())
            }
            // It waits for a lock or a time.
            Err(LedgerError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Remembers who was given something and never said a word.
    fn notice(&mut self, dispatch_view: &DispatchView) {
        if dispatch_view.ready.is_empty() {
            // Nobody was looked at.
            return;
        }
        for agent in &dispatch_view.agents {
            let Some(at) = self.given.get(&agent.name).copied() else {
                continue;
            };
            if agent.works_on.is_some() {
                continue;
            }
            self.given.remove(&agent.name);
            if agent.last_seen_at <= at {
                self.silent.insert(agent.name.clone(), at);
            }
        }
        let agents = &dispatch_view.agents;
        self.silent.retain(|name, at| {
            let known = agents.iter().find(|agent| agent.name == *name);
            known.is_some_and(|agent| agent.last_seen_at <= *at)
        });
    }

    /// Says of tasks that wait for a dead one that they do.
    async fn block_dependents_of_dead(&mut self) -> LedgerResult<()> {
        if !self.context.keeps(RoleRule::DeadDependency) {
            return Ok(());
        }
        if self.context.clock.now() >= self.whole_look_at {
            self.dead_since = Timestamp(0);
            self.whole_look_at = self.context.next_look();
        }
        let now = self.context.ledger.now().await?;
        let dead = self
            .context
            .ledger
            .waits_for_dead(self.dead_since, PAGE_SIZE)
            .await?;
        for (task, dependency) in &dead {
            let request = Request::Block {
                code: RefusalCode::DependencyNotMet,
                reason: format!("{dependency} has ended without being done"),
                waits_for: Some(dependency.to_string()),
            };
            let call = LedgerCall::new(task.clone(), self.name, request);
            match self.context.ledger.call("bury", &call).await {
                // Somebody was faster, or it lives again.
                Ok(_) | Err(LedgerError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if dead.is_empty() {
            self.dead_since = Timestamp(now.0 - MARGIN_MILLIS);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
