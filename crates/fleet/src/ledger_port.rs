//! Everything that roles ask of the ledger, each call between two points.
//!
//! At a point nothing is half done: before it the call was not made, behind it it is
//! committed. A simulation stops a role there, and loses answers there.

use std::sync::Arc;

use runner_ledger::{
    CallOutcome, ClaimRequest, ClaimedTask, DispatchView, EventHead, FleetAgent, FleetAgentWork,
    JudgeQueue, Ledger, LedgerCall, LedgerError, NewFleetAgent, RedBase, RoleLeaseAttempt,
    RunSpending, StoreError, StoreNotifications, TaskCount, Watchdog, WatchdogReport,
};
use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::request::{Claim, JudgeEnding, NewTask, WorkEnding};
use runner_lifecycle::row::Intent;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{BasePosition, Facts, Request, Task, TaskId, Timestamp};

use crate::workspaces::BoxFuture;

/// What stands around every call.
pub trait CallPoints: Send + Sync {
    /// A role is there. `after`: the call is committed.
    fn reach<'a>(&'a self, call: &'static str, after: bool) -> BoxFuture<'a, ()>;

    /// Carries a call out.
    fn carry<'a>(&'a self, call: BoxFuture<'a, ()>) -> BoxFuture<'a, ()>;

    /// Whether the answer of a call gets lost on its way back.
    fn loses(&self, call: &'static str) -> bool;
}

/// No points: calls are made, and that is all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPoints;

impl CallPoints for NoPoints {
    fn reach<'a>(&'a self, _call: &'static str, _after: bool) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn carry<'a>(&'a self, call: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        call
    }

    fn loses(&self, _call: &'static str) -> bool {
        false
    }
}

/// The ledger, as roles see it. Cheap to clone.
#[derive(Clone)]
pub struct LedgerPort {
    ledger: Ledger,
    points: Arc<dyn CallPoints>,
}

/// What a call of the port comes to.
pub type LedgerResult<T> = Result<T, LedgerError>;

impl LedgerPort {
    /// A port without points.
    pub fn new(ledger: Ledger) -> LedgerPort {
        LedgerPort::with_points(ledger, Arc::new(NoPoints))
    }

    /// A port whose calls are made between these points.
    pub fn with_points(ledger: Ledger, points: Arc<dyn CallPoints>) -> LedgerPort {
        LedgerPort { ledger, points }
    }

    /// The ledger itself, for those who only look.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    async fn at<T, E>(
        &self,
        call: &'static str,
        future: impl Future<Output = Result<T, E>> + Send,
    ) -> LedgerResult<T>
    where
        T: Send,
        E: Into<LedgerError> + Send,
    {
        self.points.reach(call, false).await;
        let mut answer = None;
        let carried = Box::pin(async {
            answer = Some(future.await);
        });
        self.points.carry(carried).await;
        self.points.reach(call, true).await;
        let lost = || StoreError::Unavailable(format!("the answer to {call} was lost"));
        if self.points.loses(call) {
            return Err(lost().into());
        }
        match answer {
            Some(answer) => answer.map_err(Into::into),
            None => Err(lost().into()),
        }
    }

    /// The time that decisions go by.
    pub async fn now(&self) -> LedgerResult<Timestamp> {
        // No point: nothing is read or written.
        self.ledger.now().await.map_err(LedgerError::from)
    }

    /// Begins to listen.
    pub async fn listen(&self) -> LedgerResult<StoreNotifications> {
        self.at("listen", Box::pin(self.ledger.listen())).await
    }

    /// See [`Ledger::register`].
    pub async fn register(&self, agent: &NewFleetAgent) -> LedgerResult<()> {
        self.at("register", Box::pin(self.ledger.register(agent)))
            .await
    }

    /// See [`Ledger::seen`].
    pub async fn seen(&self, name: &str) -> LedgerResult<bool> {
        self.at("seen", Box::pin(self.ledger.seen(name))).await
    }

    /// See [`Ledger::idle`].
    pub async fn idle(&self, name: &str) -> LedgerResult<bool> {
        self.at("idle", Box::pin(self.ledger.idle(name))).await
    }

    /// See [`Ledger::leave`].
    pub async fn leave(&self, name: &str) -> LedgerResult<bool> {
        self.at("leave", Box::pin(self.ledger.leave(name))).await
    }

    /// See [`Ledger::agents`].
    pub async fn agents(&self) -> LedgerResult<Vec<FleetAgent>> {
        self.at("agents", Box::pin(self.ledger.agents())).await
    }

    /// See [`Ledger::assigned`].
    pub async fn assigned(&self, owner: &str) -> LedgerResult<Option<FleetAgentWork>> {
        self.at("assigned", Box::pin(self.ledger.assigned(owner)))
            .await
    }

    /// See [`Ledger::take_role_lease`].
    pub async fn take_role_lease(
        &self,
        role: &str,
        holder: &str,
        timeout_seconds: u32,
    ) -> LedgerResult<RoleLeaseAttempt> {
        let take_role = self.ledger.take_role_lease(role, holder, timeout_seconds);
        self.at("sit", Box::pin(take_role)).await
    }

    /// See [`Ledger::renew_role_lease`].
    pub async fn renew_role_lease(
        &self,
        role: &str,
        token: u64,
        timeout_seconds: u32,
    ) -> LedgerResult<bool> {
        let stay = self.ledger.renew_role_lease(role, token, timeout_seconds);
        self.at("stay", Box::pin(stay)).await
    }

    /// See [`Ledger::release_role_lease`].
    pub async fn release_role_lease(&self, role: &str, token: u64) -> LedgerResult<()> {
        self.at(
            "stand_up",
            Box::pin(self.ledger.release_role_lease(role, token)),
        )
        .await
    }

    /// See [`Ledger::dispatch_view`].
    pub async fn dispatch_view(&self, roles: &[&str]) -> LedgerResult<DispatchView> {
        self.at("floor", Box::pin(self.ledger.dispatch_view(roles)))
            .await
    }

    /// See [`Ledger::waits_for_dead`].
    pub async fn waits_for_dead(
        &self,
        since: Timestamp,
        limit: usize,
    ) -> LedgerResult<Vec<(TaskId, TaskId)>> {
        let dead = self.ledger.waits_for_dead(since, limit);
        self.at("waits_for_dead", Box::pin(dead)).await
    }

    /// See [`Ledger::to_recover`].
    pub async fn to_recover(&self, since: Timestamp, limit: u32) -> LedgerResult<Vec<Task>> {
        let blocked = self.ledger.to_recover(since, limit);
        self.at("to_recover", Box::pin(blocked)).await
    }

    /// See [`Ledger::judge_queue`].
    pub async fn judge_queue(&self) -> LedgerResult<JudgeQueue> {
        self.at("bench", Box::pin(self.ledger.judge_queue())).await
    }

    /// See [`Ledger::red_base`].
    pub async fn red_base(&self) -> LedgerResult<Option<RedBase>> {
        self.at("red_base", Box::pin(self.ledger.red_base())).await
    }

    /// See [`Ledger::set_red_base`].
    pub async fn set_red_base(&self, red: Option<&RedBase>) -> LedgerResult<()> {
        self.at("set_red_base", Box::pin(self.ledger.set_red_base(red)))
            .await
    }

    /// See [`Ledger::quota_met`].
    pub async fn quota_met(&self, account: &str, reset_at: Timestamp) -> LedgerResult<()> {
        self.at(
            "quota_met",
            Box::pin(self.ledger.quota_met(account, reset_at)),
        )
        .await
    }

    /// See [`Ledger::record_spending`].
    pub async fn record_spending(&self, spent: &RunSpending) -> LedgerResult<bool> {
        self.at(
            "record_spending",
            Box::pin(self.ledger.record_spending(spent)),
        )
        .await
    }

    /// See [`Ledger::event_head`].
    pub async fn event_head(&self) -> LedgerResult<EventHead> {
        self.at("head", Box::pin(self.ledger.event_head())).await
    }

    /// See [`Ledger::counts`].
    pub async fn counts(&self) -> LedgerResult<Vec<TaskCount>> {
        self.at("counts", Box::pin(self.ledger.counts())).await
    }

    /// See [`Ledger::parked`].
    pub async fn parked(&self) -> LedgerResult<u64> {
        self.at("parked", Box::pin(self.ledger.parked())).await
    }

    /// The row of a task.
    pub async fn task(&self, id: &TaskId) -> LedgerResult<Option<Task>> {
        self.at("task", Box::pin(self.ledger.task(id))).await
    }

    /// The runs of a task, oldest first.
    pub async fn runs(&self, id: &TaskId) -> LedgerResult<Vec<TaskRun>> {
        self.at("runs", Box::pin(self.ledger.runs(id))).await
    }

    /// The end of a chain of successors.
    pub async fn end_of_chain(&self, id: &TaskId) -> LedgerResult<Option<Task>> {
        let mut next = id.clone();
        loop {
            let Some(task) = self.task(&next).await? else {
                return Ok(None);
            };
            match &task.superseded_by {
                Some(successor) => next = successor.clone(),
                None => return Ok(Some(task)),
            }
        }
    }

    /// The locks that are held.
    pub async fn locks(&self) -> LedgerResult<Vec<ScopeLock>> {
        self.at("locks", Box::pin(self.ledger.locks())).await
    }

    /// Every lease.
    pub async fn leases(&self) -> LedgerResult<Vec<Lease>> {
        self.at("leases", Box::pin(self.ledger.leases())).await
    }

    /// Claims the first in order.
    pub async fn claim_next(
        &self,
        claim_request: &ClaimRequest,
    ) -> LedgerResult<Option<ClaimedTask>> {
        self.at("claim", Box::pin(self.ledger.claim_next(claim_request)))
            .await
    }

    /// Claims one task.
    pub async fn claim(&self, id: &TaskId, claim: Claim) -> LedgerResult<CallOutcome> {
        let owner = claim.owner.clone();
        let call = LedgerCall::new(id.clone(), &owner, Request::Claim(claim));
        self.at("claim", Box::pin(self.ledger.call(&call))).await
    }

    /// Says that the owner of a lease lives.
    pub async fn heartbeat(&self, lease: &Lease) -> LedgerResult<CallOutcome> {
        let request = Request::Heartbeat { token: lease.token };
        let call = LedgerCall::new(lease.task_id.clone(), &lease.owner, request);
        self.at("heartbeat", Box::pin(self.ledger.call(&call)))
            .await
    }

    /// Ends a worker's run.
    pub async fn finish(
        &self,
        lease: &Lease,
        ending: WorkEnding,
        outside: Facts,
    ) -> LedgerResult<CallOutcome> {
        let request = Request::Finish {
            token: lease.token,
            run_id: lease.run_id.clone(),
            ending,
        };
        let mut call = LedgerCall::new(lease.task_id.clone(), &lease.owner, request);
        call.outside = outside;
        self.at("finish", Box::pin(self.ledger.call(&call))).await
    }

    /// Ends a judgement, or a place at the head of the merge queue.
    pub async fn judge(&self, lease: &Lease, ending: JudgeEnding) -> LedgerResult<CallOutcome> {
        let token = lease.token;
        let request = Request::Judge { token, ending };
        let call = LedgerCall::new(lease.task_id.clone(), &lease.owner, request);
        self.at("judge", Box::pin(self.ledger.call(&call))).await
    }

    /// Promises to move the base.
    pub async fn record_intent(
        &self,
        lease: &Lease,
        intent: &Intent,
        packet: runner_lifecycle::packet::ResultPacket,
    ) -> LedgerResult<CallOutcome> {
        let request = Request::RecordIntent {
            token: lease.token,
            intent: intent.clone(),
            packet,
        };
        let call = LedgerCall::new(lease.task_id.clone(), &lease.owner, request);
        self.at("intent", Box::pin(self.ledger.call(&call))).await
    }

    /// Rolls an intent forward.
    pub async fn settle_intent(
        &self,
        lease: &Lease,
        intent: &Intent,
        base: BasePosition,
    ) -> LedgerResult<CallOutcome> {
        let request = Request::SettleIntent {
            token: lease.token,
            intent: intent.clone(),
            base,
        };
        let call = LedgerCall::new(lease.task_id.clone(), &lease.owner, request);
        self.at("settle", Box::pin(self.ledger.call(&call))).await
    }

    /// Asks whatever else can be asked of a task.
    pub async fn call(&self, name: &'static str, call: &LedgerCall) -> LedgerResult<CallOutcome> {
        self.at(name, Box::pin(self.ledger.call(call))).await
    }

    /// Makes a task.
    pub async fn create(
        &self,
        actor: &str,
        new: NewTask,
        outside: Facts,
    ) -> LedgerResult<CallOutcome> {
        let mut call = LedgerCall::new(new.id.clone(), actor, Request::Create(new));
        call.outside = outside;
        self.at("create", Box::pin(self.ledger.call(&call))).await
    }

    /// Makes several, all or none.
    pub async fn create_all(&self, asks: &[LedgerCall]) -> LedgerResult<Vec<CallOutcome>> {
        self.at("create_all", Box::pin(self.ledger.create_all(asks)))
            .await
    }

    /// Mends what contradicts itself. Whether nothing is in the way of the task any
    /// longer.
    pub async fn repair(&self, id: &TaskId) -> LedgerResult<bool> {
        self.at("repair", Box::pin(self.ledger.repair(id))).await
    }

    /// One look of a watchdog.
    pub async fn watchdog_look(&self, watchdog: &mut Watchdog) -> LedgerResult<WatchdogReport> {
        self.at("keep", Box::pin(watchdog.look())).await
    }
}
