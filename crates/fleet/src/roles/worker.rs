//! Workers, testers and docsers: whoever is given work does it and says how it ended.
//!
//! They differ in what they are told and what they are given, not in this code.

use runner_ledger::{
    FleetAgent, FleetAgentWork, LedgerError, NewFleetAgent, RunSpending, SpendingTotals,
};
use runner_lifecycle::decide::assignment;
use runner_lifecycle::request::WorkEnding;
use runner_lifecycle::{BlockReason, Facts, FailureCategory, LeasePurpose, RefusalCode, Task};

use super::lease::while_kept;
use super::{
    IDLE_INTERVAL_SECS, LOOK_EVERY_SECS, RoleContext, RoleRule, RoleWait, StoreBackoff, WakeReason,
    insist,
};
use crate::ledger_port::LedgerResult;
use crate::rules::{classify, policy};
use crate::workspaces::{StopHandle, StopSign, WorkOrder, WorkOutcome};

/// Who works.
#[derive(Clone, Debug)]
pub struct WorkerRole {
    /// What every role works with.
    pub context: RoleContext,
    /// Its name, the same in every life.
    pub name: String,
    /// Its role: `worker`, `tester` or `docser`.
    pub role: String,
    /// The account that its sessions use.
    pub account: String,
}

impl std::fmt::Debug for RoleContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoleContext").finish_non_exhaustive()
    }
}

/// Whether the work of a lease was begun: by an earlier life, if this one knows nothing of
/// it.
fn was_begun(given: &FleetAgentWork) -> bool {
    given.lease.last_heartbeat_at != given.lease.claimed_at
}

impl WorkerRole {
    /// Works until the sign is raised.
    pub async fn run(&self, stop: StopSign) -> LedgerResult<()> {
        let context = &self.context;
        let mut watch = RoleWait::new(context, stop).await?;
        let mut backoff = StoreBackoff::default();
        let mut registered = false;
        while !watch.stop.is_raised() {
            let turn = self.turn(&mut watch, &mut registered).await;
            backoff
                .pause_if_transient(context, &mut watch.stop, turn)
                .await?;
        }
        // If this is not heard, it counts as gone a little later.
        drop(context.ledger.leave(&self.name).await);
        self.give_back(&mut watch.stop).await
    }

    /// Gives back what the dispatcher gave while this one was about to leave. What it gives
    /// even later is taken back by itself, as from everybody who never says a word.
    async fn give_back(&self, stop: &mut StopSign) -> LedgerResult<()> {
        if !self.context.keeps(RoleRule::GiveBack) {
            return Ok(());
        }
        match self.context.ledger.assigned(&self.name).await {
            Ok(Some(given)) => self
                .finish(&given, WorkEnding::GivenBack, stop)
                .await
                .map(drop),
            Ok(None) => Ok(()),
            Err(error) if error.is_transient() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does what it was given, or waits for something.
    async fn turn(&self, watch: &mut RoleWait, registered: &mut bool) -> LedgerResult<()> {
        let context = &self.context;
        if !*registered {
            context.ledger.register(&self.agent()).await?;
            *registered = true;
        }
        if let Some(given) = context.ledger.assigned(&self.name).await? {
            Box::pin(self.work(given, &mut watch.stop)).await?;
            if !watch.stop.is_raised() {
                // Whoever waits for somebody with nothing to do hears of it.
                *registered = context.ledger.idle(&self.name).await?;
            }
            return Ok(());
        }
        let look = context.clock.now().plus_secs(LOOK_EVERY_SECS);
        loop {
            let beat = context.clock.now().plus_secs(u64::from(IDLE_INTERVAL_SECS));
            if watch.until(beat.min(look)).await != WakeReason::Time || context.clock.now() >= look
            {
                return Ok(());
            }
            *registered = context.ledger.seen(&self.name).await?;
        }
    }

    fn agent(&self) -> NewFleetAgent {
        NewFleetAgent {
            name: self.name.clone(),
            role: self.role.clone(),
            host: self.context.settings.host.clone(),
            account: self.account.clone(),
            interval_seconds: IDLE_INTERVAL_SECS,
        }
    }

    /// Works on what it was given, to the end of the lease.
    async fn work(&self, given: FleetAgentWork, stop: &mut StopSign) -> LedgerResult<()> {
        let context = &self.context;
        let (stop_handle, sign) = StopHandle::new();
        if given.lease.purpose != LeasePurpose::Work || was_begun(&given) {
            // An earlier life of this worker began it, and is gone with all it knew.
            return Box::pin(self.finish(&given, WorkEnding::Lost, stop))
                .await
                .map(drop);
        }
        let attempt = Box::pin(self.attempt(&given, sign, stop.clone()));
        let work = while_kept(context, &given.lease, &stop_handle, attempt);
        let mut work = std::pin::pin!(work);
        let ended = tokio::select! {
            biased;
            ended = &mut work => Some(ended),
            () = stop.raised() => None,
        };
        if let Some(ended) = ended {
            return ended;
        }
        if !context.keeps(RoleRule::GiveBack) {
            return Ok(());
        }
        stop_handle.stop();
        work.await
    }

    async fn attempt(
        &self,
        given: &FleetAgentWork,
        sign: StopSign,
        stop: StopSign,
    ) -> LedgerResult<()> {
        let context = &self.context;
        let mut stop = stop;
        let Some(order) = self.order(given, &mut stop).await? else {
            return Ok(());
        };
        let worked = context.workspaces.work(order, sign.clone()).await;
        let ending = match &worked {
            Ok(worked) => self.ending(given, worked).await,
            // Told to end while it began: that is no error of the machine's.
            Err(_) if sign.is_raised() => WorkEnding::Lost,
            Err(_) if context.is_every_tasks_error(&mut stop).await => WorkEnding::GivenBack,
            Err(error) => classify::failed(FailureCategory::Env, &error.0, &error.0),
        };
        // Everybody is told to stop, and this one is still there to say so.
        let ending = match ending {
            WorkEnding::Lost if stop.is_raised() => WorkEnding::GivenBack,
            other => other,
        };
        if let Ok(worked) = &worked {
            self.charge(given, worked, &mut stop).await?;
        }
        let failure = match &ending {
            WorkEnding::Failed {
                signature, note, ..
            } => Some((signature.clone().unwrap_or_default(), note.clone())),
            _ => None,
        };
        if let Some(task) = Box::pin(self.finish(given, ending, &mut stop)).await? {
            if task.blocked_on() == Some(BlockReason::QuotaWait) {
                let account = task.blocker.as_ref().and_then(|b| b.waits_for.clone());
                if let (Some(account), Some(at)) = (account, task.retry_at()) {
                    context.ledger.quota_met(&account, at).await?;
                }
            }
            if let Some((signature, note)) = failure {
                let now = context.clock.now();
                context.notes.failed(&task, &signature, &note, now);
            }
        }
        Ok(())
    }

    async fn order(
        &self,
        given: &FleetAgentWork,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<WorkOrder>> {
        let context = &self.context;
        let task = &given.task;
        let settings = &context.settings;
        let Some(locks) = insist(context, stop, || context.ledger.locks()).await else {
            return Ok(None);
        };
        let locks = locks?;
        let at = usize::try_from(task.model_index).unwrap_or(usize::MAX);
        let model = settings.models.get(at).or(settings.models.last());
        Ok(Some(WorkOrder {
            task: task.clone(),
            run_id: given.lease.run_id.clone(),
            token: given.lease.token,
            assignment: assignment(task, &given.lease.run_id, &settings.objective, &locks),
            context: context.notes.context(task),
            model: model.cloned(),
            earlier: given.earlier.clone().or(task.start_from.clone()),
        }))
    }

    /// What git and the guards say about it.
    async fn ending(&self, given: &FleetAgentWork, worked: &WorkOutcome) -> WorkEnding {
        let task = &given.task;
        let mut findings = Vec::new();
        if let Some(result) = &worked.result {
            let (start, commit) = (result.start.clone(), result.commit.clone());
            let bytes = match self.context.workspaces.diff_bytes(start, commit).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    return classify::failed(FailureCategory::Env, &error.0, &error.0);
                }
            };
            let paths = &self.context.settings.paths;
            findings = policy::findings(task, paths, &result.changes, bytes);
        }
        classify::ending(task, &given.lease.run_id, worked, &findings)
    }

    async fn charge(
        &self,
        given: &FleetAgentWork,
        worked: &WorkOutcome,
        stop: &mut StopSign,
    ) -> LedgerResult<()> {
        let spending = SpendingTotals {
            input_tokens: worked.spent.input_tokens,
            output_tokens: worked.spent.output_tokens,
            cost_micros: worked.spent.cost_micros,
        };
        if spending == SpendingTotals::default() {
            return Ok(());
        }
        let account = if worked.account.is_empty() {
            &self.account
        } else {
            &worked.account
        };
        let spent = RunSpending {
            run_id: given.lease.run_id.clone(),
            task_id: given.task.id.clone(),
            agent: self.name.clone(),
            account: account.clone(),
            spending,
        };
        let context = &self.context;
        let noted = insist(context, stop, || context.ledger.record_spending(&spent)).await;
        noted.map_or(Ok(()), |noted| noted.map(drop))
    }

    /// Says how it ended, until the ledger has heard it. None: the lease is not ours any
    /// longer, or everything ends.
    async fn finish(
        &self,
        given: &FleetAgentWork,
        mut ending: WorkEnding,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<Task>> {
        let context = &self.context;
        let outside = self.outside(given, &ending).await?;
        let mut lease = given.lease.clone();
        if !context.keeps(RoleRule::Fencing) {
            let mut leases = context.ledger.leases().await?.into_iter();
            let current = leases.find(|current| current.task_id == lease.task_id);
            lease = current.unwrap_or(lease);
            if let WorkEnding::Success { packet, .. } = &mut ending {
                packet.run_id.clone_from(&lease.run_id);
            }
        }
        let lease = &lease;
        let say = |ending: WorkEnding| {
            let (ledger, outside) = (&context.ledger, outside.clone());
            async move { ledger.finish(lease, ending, outside).await }
        };
        let Some(answer) = insist(context, stop, || say(ending.clone())).await else {
            return Ok(None);
        };
        let refusal = match answer {
            Ok(outcome) => return Ok(Some(outcome.task)),
            Err(LedgerError::Refused(refusal)) => refusal,
            Err(error) => return Err(error),
        };
        if matches!(
            refusal.code,
            RefusalCode::ConcurrencyConflict | RefusalCode::InvalidTransition
        ) {
            return Ok(None);
        }
        // The rules do not take this result: that is what is in the way.
        let blocked = WorkEnding::Blocked {
            code: refusal.code,
            reason: refusal.reason,
            waits_for: None,
        };
        match insist(context, stop, || say(blocked.clone())).await {
            Some(Ok(outcome)) => Ok(Some(outcome.task)),
            Some(Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    /// What is in no ledger and decides what is tried next.
    async fn outside(&self, given: &FleetAgentWork, ending: &WorkEnding) -> LedgerResult<Facts> {
        let failures = &given.task.counters.failures_by_owner;
        let mine = failures.get(&self.name).copied().unwrap_or(0) + 1;
        let mut facts = Facts {
            models: u32::try_from(self.context.settings.models.len()).unwrap_or(u32::MAX),
            ..Facts::default()
        };
        if mine >= 2 && matches!(ending, WorkEnding::Failed { .. }) {
            let now = self.context.ledger.now().await?;
            let better = |agent: &FleetAgent| {
                agent.role == self.role
                    && agent.name != self.name
                    && !agent.is_offline(now)
                    && failures.get(&agent.name).copied().unwrap_or(0) < mine
            };
            // It only orders what is tried next: no reason to wait for a store.
            let agents = self.context.ledger.agents().await.unwrap_or_default();
            facts.other_worker = agents.iter().any(better);
        }
        Ok(facts)
    }
}
