//! The judge: claims results one by one, lets evaluators look, and says what they found.
//!
//! Fail-closed: an evaluator that cannot run is no pass. Good work is never redone because
//! a judge was cut off.

use runner_ledger::{
    ClaimRequest, ClaimedTask, FleetAgentWork, JudgeQueue, LedgerCall, LedgerError, NewFleetAgent,
};
use runner_lifecycle::request::{Claim, JudgeEnding};
use runner_lifecycle::row::ReviewRemark;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{
    BlockReason, CriterionCheck, LeasePurpose, Refusal, RefusalCode, Request, Task, TaskId,
    TaskKind, TaskState, Timestamp,
};

use super::lease::while_kept;
use super::red_base::{BaseMemory, RED_RETRY_SECS, RedBaseRule};
use super::{
    IDLE_INTERVAL_SECS, LOOK_EVERY_SECS, RoleContext, RoleWait, StoreBackoff, WakeReason, insist,
};
use crate::ledger_port::LedgerResult;
use crate::rules::{judge as rules, policy};
use crate::workspaces::{CheckOutcome, ReviewOrder, StopHandle, StopSign, WorkspaceError};

/// Who judges, and merges what was approved.
#[derive(Clone, Debug)]
pub struct JudgeRole {
    /// What every role works with.
    pub context: RoleContext,
    /// Its name, the same in every life.
    pub name: String,
    /// The account that its reviewers use.
    pub account: String,
}

/// What a judge keeps in mind; all of it may be forgotten.
#[derive(Default)]
pub(super) struct JudgeMemory {
    registered: bool,
    /// Whether this judge certainly holds no lease.
    clear: bool,
    /// Counts the claims of this life.
    claims: u64,
    pub(super) bases: BaseMemory,
    /// When a base that nobody fixes is tried again.
    red_retry_at: Option<Timestamp>,
}

fn awaits_judge(task: &Task) -> bool {
    task.blocked_on() == Some(BlockReason::AwaitingJudge)
}

/// What a claim of a judge is about.
pub(super) struct JudgeCase {
    pub(super) task: Task,
    pub(super) run: TaskRun,
    pub(super) lease: Lease,
}

impl JudgeRole {
    /// Judges until the sign is raised.
    pub async fn run(&self, stop: StopSign) -> LedgerResult<()> {
        let context = &self.context;
        let mut watch = RoleWait::new(context, stop).await?;
        let mut backoff = StoreBackoff::default();
        let mut memory = JudgeMemory::default();
        while !watch.stop.is_raised() {
            let turn = self.turn(&mut watch, &mut memory).await;
            backoff
                .pause_if_transient(context, &mut watch.stop, turn)
                .await?;
        }
        // If this is not heard, it counts as gone a little later.
        drop(context.ledger.leave(&self.name).await);
        Ok(())
    }

    async fn turn(&self, watch: &mut RoleWait, memory: &mut JudgeMemory) -> LedgerResult<()> {
        let context = &self.context;
        if !memory.registered {
            context.ledger.register(&self.agent()).await?;
            memory.registered = true;
        }
        if !memory.clear
            && let Some(left) = context.ledger.assigned(&self.name).await?
        {
            self.end_leftover(left, &mut watch.stop).await?;
        }
        // Whatever goes wrong from here on may leave a lease behind.
        memory.clear = false;
        let judge_queue = loop {
            let judge_queue = context.ledger.judge_queue().await?;
            let Some(case) = self.claim(&judge_queue, memory, &mut watch.stop).await? else {
                break judge_queue;
            };
            Box::pin(self.attend(case, memory, &mut watch.stop)).await?;
            if watch.stop.is_raised() {
                return Ok(());
            }
        };
        memory.clear = true;
        let look = context.clock.now().plus_secs(LOOK_EVERY_SECS);
        let next = match judge_queue.next_at {
            Some(at) => look.min(context.local(at).await?),
            None => look,
        };
        loop {
            let beat = context.clock.now().plus_secs(u64::from(IDLE_INTERVAL_SECS));
            if watch.until(beat.min(next)).await != WakeReason::Time || context.clock.now() >= next
            {
                return Ok(());
            }
            memory.registered = context.ledger.seen(&self.name).await?;
        }
    }

    fn agent(&self) -> NewFleetAgent {
        NewFleetAgent {
            name: self.name.clone(),
            role: "judge".to_owned(),
            host: self.context.settings.host.clone(),
            account: self.account.clone(),
            interval_seconds: IDLE_INTERVAL_SECS,
        }
    }

    /// An earlier life of this judge claimed it. A place in the queue costs nothing, a
    /// judgement is an attempt: a result that kills its judges must come to an end.
    async fn end_leftover(&self, left: FleetAgentWork, stop: &mut StopSign) -> LedgerResult<()> {
        let reason = "its judge was cut off".to_owned();
        let ending = match left.lease.purpose {
            LeasePurpose::Merge => JudgeEnding::StepBack { reason },
            _ => JudgeEnding::Unable { reason },
        };
        self.end(&left.lease, ending, stop).await.map(drop)
    }

    /// Claims the head of the merge queue, else the first result without a verdict.
    async fn claim(
        &self,
        judge_queue: &JudgeQueue,
        memory: &mut JudgeMemory,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<JudgeCase>> {
        memory.claims += 1;
        let context = &self.context;
        let key = format!("{}/{}/{}", self.name, context.life, memory.claims);
        if judge_queue.to_merge
            && let Some(case) = self.claim_merge(judge_queue, &key, memory, stop).await?
        {
            return Ok(Some(case));
        }
        if !judge_queue.to_judge {
            return Ok(None);
        }
        match &judge_queue.red_base {
            // What is built on a red base is red: its judge would blame the work.
            Some(red) if context.settings.on_red_base == RedBaseRule::Fix => {
                let base_fix = context.ledger.end_of_chain(&red.task).await?;
                let Some(base_fix) = base_fix.filter(awaits_judge) else {
                    return Ok(None);
                };
                self.claim_fix(&base_fix, LeasePurpose::Judge, &key, stop)
                    .await
            }
            _ => self.claim_next(LeasePurpose::Judge, &key, stop).await,
        }
    }

    /// While the base is red, only what fixes it is merged.
    async fn claim_merge(
        &self,
        judge_queue: &JudgeQueue,
        key: &str,
        memory: &mut JudgeMemory,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<JudgeCase>> {
        let context = &self.context;
        let Some(red) = &judge_queue.red_base else {
            return self.claim_next(LeasePurpose::Merge, key, stop).await;
        };
        let Some(base_fix) = context.ledger.end_of_chain(&red.task).await? else {
            return Ok(None);
        };
        // What fixed it was merged with a green guard. Where somebody else moved the base, the
        // dispatcher tries it.
        let is_known =
            base_fix.state == TaskState::Done || context.settings.on_red_base == RedBaseRule::Work;
        match context.workspaces.base().await {
            Ok(base) if base != red.commit && is_known => {
                context.ledger.set_red_base(None).await?;
                return self.claim_next(LeasePurpose::Merge, key, stop).await;
            }
            _ => {}
        }
        if base_fix.state.is_terminal() {
            // Nobody fixes it any longer. Perhaps the guard is not always red.
            let now = context.clock.now();
            if memory.red_retry_at.is_some_and(|at| now < at) {
                return Ok(None);
            }
            memory.red_retry_at = Some(now.plus_secs(RED_RETRY_SECS));
            memory.bases.clear();
            return self.claim_next(LeasePurpose::Merge, key, stop).await;
        }
        if !awaits_judge(&base_fix) {
            return Ok(None);
        }
        self.claim_fix(&base_fix, LeasePurpose::Merge, key, stop)
            .await
    }

    /// Claims the task that fixes the base.
    async fn claim_fix(
        &self,
        base_fix: &Task,
        purpose: LeasePurpose,
        key: &str,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<JudgeCase>> {
        let context = &self.context;
        let claim = Claim {
            owner: self.name.clone(),
            purpose,
            key: key.to_owned(),
            base: (purpose == LeasePurpose::Merge).then(|| context.settings.base.clone()),
        };
        let claimed = insist(context, stop, || {
            context.ledger.claim(&base_fix.id, claim.clone())
        })
        .await;
        match claimed {
            Some(Ok(_)) => self.case(&base_fix.id).await,
            Some(Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    async fn claim_next(
        &self,
        purpose: LeasePurpose,
        key: &str,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<JudgeCase>> {
        let context = &self.context;
        let mut claim_request = ClaimRequest::work(&self.name, "", key);
        claim_request.purpose = purpose;
        claim_request.base =
            (purpose == LeasePurpose::Merge).then(|| context.settings.base.clone());
        // A repeat under the same name gets the lease that a lost answer was about.
        let claimed = insist(context, stop, || context.ledger.claim_next(&claim_request)).await;
        match claimed {
            Some(Ok(Some(ClaimedTask { task, .. }))) => self.case(&task.id).await,
            Some(Ok(None) | Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    /// The case of a claim that succeeded. None: it is over already.
    async fn case(&self, id: &TaskId) -> LedgerResult<Option<JudgeCase>> {
        let given = self.context.ledger.assigned(&self.name).await?;
        let given = given.filter(|given| given.task.id == *id);
        Ok(given.and_then(|given| {
            given.run.map(|run| JudgeCase {
                task: given.task,
                run,
                lease: given.lease,
            })
        }))
    }

    /// Judges or merges, while the lease is kept.
    async fn attend(
        &self,
        case: JudgeCase,
        memory: &mut JudgeMemory,
        stop: &mut StopSign,
    ) -> LedgerResult<()> {
        let (stop_handle, sign) = StopHandle::new();
        let work = async {
            match case.lease.purpose {
                LeasePurpose::Merge => {
                    Box::pin(self.merge(&case, memory, sign, stop.clone())).await
                }
                _ => Box::pin(self.judge(&case, sign, stop.clone())).await,
            }
        };
        let work = while_kept(&self.context, &case.lease, &stop_handle, work);
        let mut work = std::pin::pin!(work);
        let mut outer = stop.clone();
        let ended = tokio::select! {
            biased;
            ended = &mut work => Some(ended),
            () = outer.raised() => None,
        };
        if let Some(ended) = ended {
            return ended;
        }
        stop_handle.stop();
        work.await
    }

    async fn judge(
        &self,
        case: &JudgeCase,
        sign: StopSign,
        mut stop: StopSign,
    ) -> LedgerResult<()> {
        let ending = if sign.is_raised() {
            cut_off()
        } else {
            match self.evaluate(case, sign.clone()).await {
                Ok(_) | Err(JudgeError::Workspaces(_)) if sign.is_raised() => cut_off(),
                Ok(ending) => ending,
                Err(JudgeError::Workspaces(error)) => self.error(error, &mut stop).await,
                Err(JudgeError::Ledger(error)) => return Err(error),
            }
        };
        let quota = match &ending {
            JudgeEnding::Quota { account, .. } => Some(account.clone()),
            _ => None,
        };
        let ended = self.end(&case.lease, ending, &mut stop).await?;
        if let (Some(account), Some(task)) = (quota, ended)
            && let Some(at) = task.retry_at()
        {
            self.context.ledger.quota_met(&account, at).await?;
        }
        Ok(())
    }

    /// A result is not to blame where there is no base to merge it into.
    pub(super) async fn error(&self, error: WorkspaceError, stop: &mut StopSign) -> JudgeEnding {
        let reason = error.0;
        if self.context.is_every_tasks_error(stop).await {
            JudgeEnding::StepBack { reason }
        } else {
            JudgeEnding::Unable { reason }
        }
    }

    /// Lets guard, policy and review look, in this order.
    async fn evaluate(&self, case: &JudgeCase, sign: StopSign) -> Result<JudgeEnding, JudgeError> {
        let (context, task) = (&self.context, &case.task);
        let result = case.run.result.clone();
        let needs = task.needs_merge();
        let mut start = None;
        if let Some(result) = result.clone().filter(|_| needs) {
            start = context.workspaces.start_of(result).await?;
        }
        let mut findings = Vec::new();
        let changes = match (&start, &result) {
            (Some(start), Some(result)) if needs => {
                let (start, result) = (start.clone(), result.clone());
                let changes = context
                    .workspaces
                    .changes(start.clone(), result.clone())
                    .await?;
                if let Some(changes) = &changes {
                    let bytes = context.workspaces.diff_bytes(start, result).await?;
                    let paths = &context.settings.paths;
                    findings = policy::findings(task, paths, changes, bytes);
                }
                changes
            }
            // Nothing will be merged, so there is nothing to look at.
            _ if !needs => Some(Vec::new()),
            _ => None,
        };
        let ran: Option<Vec<CheckOutcome>> = match (&result, task.kind) {
            // Nobody ran anything on a pull request yet.
            (Some(result), TaskKind::Review) if changes.is_some() => {
                let checks =
                    context
                        .workspaces
                        .check(result.clone(), Some(task.clone()), sign.clone());
                Some(checks.await?)
            }
            _ => None,
        };
        let guard = match &ran {
            Some(checks) => rules::JudgeGuard::Ran(checks),
            None => rules::JudgeGuard::Recorded(case.run.packet.as_ref()),
        };
        let mut evidence = rules::JudgeEvidence {
            task,
            run_id: &case.run.id,
            changes: changes.as_deref(),
            guard,
            findings: &findings,
            review: rules::ReviewOutcome::Off,
        };
        let calls = task
            .acceptance
            .iter()
            .any(|one| one.check == CriterionCheck::Review);
        if (context.settings.review || calls) && !rules::is_settled_before_review(&evidence) {
            let settled = self
                .closed_remarks(task)
                .await
                .map_err(JudgeError::Ledger)?;
            let order = ReviewOrder {
                task: task.clone(),
                run_id: case.run.id.clone(),
                token: case.lease.token,
                start: start.unwrap_or_default(),
                result: result.unwrap_or_default(),
                criteria: review_criteria(task),
                settled: settled.clone(),
            };
            let said = context.workspaces.review(order, sign).await?;
            evidence.review = rules::ReviewOutcome::read(task, said, &settled);
        }
        Ok(rules::ending(&evidence))
    }

    /// What an earlier judgement of the lineage raised and the last one did not.
    async fn closed_remarks(&self, task: &Task) -> LedgerResult<Vec<ReviewRemark>> {
        let ledger = &self.context.ledger;
        let Some(parent) = &task.rework_of else {
            return Ok(Vec::new());
        };
        let parent = ledger.task(parent).await?;
        let Some(grandparent) = parent.and_then(|parent| parent.rework_of) else {
            return Ok(Vec::new());
        };
        let before = ledger.task(&grandparent).await?;
        // A successor begins with its parent's remarks, and judgements add theirs.
        let before = before.map_or(0, |task| task.remarks.len());
        let (old, last) = task.remarks.split_at(before.min(task.remarks.len()));
        let open = |remark: &&ReviewRemark| !last.iter().any(|one| one.id == remark.id);
        Ok(old.iter().filter(open).cloned().collect())
    }

    /// Says how it ended, until the ledger has heard it. None: the lease is not ours any
    /// longer, or everything ends.
    pub(super) async fn end(
        &self,
        lease: &Lease,
        ending: JudgeEnding,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<Task>> {
        let context = &self.context;
        let say = |ending: JudgeEnding| async move { context.ledger.judge(lease, ending).await };
        let refusal = match insist(context, stop, || say(ending.clone())).await {
            None => return Ok(None),
            Some(Ok(outcome)) => return Ok(Some(outcome.task)),
            Some(Err(LedgerError::Refused(refusal))) => refusal,
            Some(Err(error)) => return Err(error),
        };
        if matches!(
            refusal.code,
            RefusalCode::ConcurrencyConflict | RefusalCode::InvalidTransition
        ) {
            return Ok(None);
        }
        if refusal.code == RefusalCode::LedgerInconsistent {
            return self.leave_to_repair(lease, &refusal, stop).await;
        }
        // The rules do not take this verdict, so there is none.
        let unable = JudgeEnding::Unable {
            reason: refusal.to_string(),
        };
        match insist(context, stop, || say(unable.clone())).await {
            Some(Ok(outcome)) => Ok(Some(outcome.task)),
            Some(Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }
}

impl JudgeRole {
    /// The ledger contradicts itself about the task: no judge can change that, and none has
    /// failed. The task goes back, and waits for the cycle manager to fix it.
    pub(crate) async fn leave_to_repair(
        &self,
        lease: &Lease,
        refusal: &Refusal,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<Task>> {
        let context = &self.context;
        let back = || {
            let reason = refusal.to_string();
            context
                .ledger
                .judge(lease, JudgeEnding::StepBack { reason })
        };
        let block = Request::Block {
            code: refusal.code,
            reason: refusal.reason.clone(),
            waits_for: None,
        };
        let block = LedgerCall::new(lease.task_id.clone(), &self.name, block);
        let left = match insist(context, stop, back).await {
            Some(Ok(_)) => insist(context, stop, || context.ledger.call("block", &block)).await,
            other => other,
        };
        match left {
            Some(Ok(outcome)) => Ok(Some(outcome.task)),
            Some(Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }
}

fn review_criteria(task: &Task) -> Vec<runner_lifecycle::row::Criterion> {
    let asked = task.acceptance.iter();
    asked
        .filter(|one| one.check == CriterionCheck::Review)
        .cloned()
        .collect()
}

fn cut_off() -> JudgeEnding {
    JudgeEnding::StepBack {
        reason: "the judge was stopped".to_owned(),
    }
}

/// Why an evaluation did not come to an end.
pub(super) enum JudgeError {
    /// The workspaces could not do what was asked.
    Workspaces(WorkspaceError),
    /// The ledger could not.
    Ledger(LedgerError),
}

impl From<WorkspaceError> for JudgeError {
    fn from(error: WorkspaceError) -> JudgeError {
        JudgeError::Workspaces(error)
    }
}

impl From<LedgerError> for JudgeError {
    fn from(error: LedgerError) -> JudgeError {
        JudgeError::Ledger(error)
    }
}
