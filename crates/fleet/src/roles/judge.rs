//! The judge: claims results one by one, lets evaluators look, and says what they found.
//!
//! Fail-closed: an evaluator that cannot run is no pass. Good work is never redone because
//! a judge was cut off.

use std::collections::BTreeMap;

use runner_ledger::{
    AgentWork, ClaimRequest, ClaimedTask, JudgeQueue, LedgerCall, LedgerError, NewAgent,
};
use runner_lifecycle::request::{Claim, JudgeEnding};
use runner_lifecycle::row::ReviewRemark;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{
    BlockReason, CriterionCheck, LeasePurpose, Refusal, RefusalCode, Request, Task, TaskId,
    TaskKind, Timestamp,
};

use super::lease::while_kept;
use super::{
    IDLE_INTERVAL_SECS, LOOK_EVERY_SECS, RoleContext, RoleWait, StoreBackoff, WakeReason, insist,
};
use crate::ledger_port::LedgerResult;
use crate::rules::{judge as rules, policy};
use crate::workspaces::{
    CheckEnd, CheckOutcome, ReviewOrder, StopHandle, StopSign, WorkspaceError,
};

/// Who judges, and merges what was approved.
#[derive(Clone, Debug)]
pub struct JudgeRole {
    /// What every role works with.
    pub crew: RoleContext,
    /// Its name, the same in every life.
    pub name: String,
    /// The account that its reviewers use.
    pub account: String,
}

/// How long a red base that nobody mends is left alone before the queue tries again.
const RED_RETRY_SECS: u64 = 3600;

/// What a judge keeps in mind; all of it may be forgotten.
#[derive(Default)]
pub(super) struct JudgeMemory {
    registered: bool,
    /// Whether this judge certainly holds no lease.
    clear: bool,
    /// Counts the claims of this life.
    claims: u64,
    /// Bases that the guard ran on alone, and whether it was red.
    bases: BTreeMap<String, bool>,
    /// When a base that nobody mends is tried again.
    red_retry_at: Option<Timestamp>,
}

impl JudgeMemory {
    /// Whether the guard is red on the base alone. An answer that is not certain is no.
    pub(super) async fn is_red(
        &mut self,
        judge: &JudgeRole,
        base: &str,
        sign: &StopSign,
    ) -> Result<bool, JudgeStop> {
        if let Some(red) = self.bases.get(base) {
            return Ok(*red);
        }
        let yard = &judge.crew.yard;
        let checks = yard.check(base.to_owned(), None, sign.clone()).await?;
        let certain = checks.iter().all(|check| check.end != CheckEnd::Unable);
        let red = checks.iter().any(|check| check.end == CheckEnd::Red);
        if !sign.is_raised() && certain {
            self.bases.insert(base.to_owned(), red);
        }
        Ok(!sign.is_raised() && red)
    }
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
        let crew = &self.crew;
        let mut watch = RoleWait::new(crew, stop).await?;
        let mut patience = StoreBackoff::default();
        let mut desk = JudgeMemory::default();
        while !watch.stop.is_raised() {
            let turn = self.turn(&mut watch, &mut desk).await;
            patience.bear(crew, &mut watch.stop, turn).await?;
        }
        // If this is not heard, it counts as gone a little later.
        drop(crew.book.leave(&self.name).await);
        Ok(())
    }

    async fn turn(&self, watch: &mut RoleWait, desk: &mut JudgeMemory) -> LedgerResult<()> {
        let crew = &self.crew;
        if !desk.registered {
            crew.book.register(&self.agent()).await?;
            desk.registered = true;
        }
        if !desk.clear
            && let Some(left) = crew.book.assigned(&self.name).await?
        {
            self.end_leftover(left, &mut watch.stop).await?;
        }
        // Whatever goes wrong from here on may leave a lease behind.
        desk.clear = false;
        let bench = loop {
            let bench = crew.book.bench().await?;
            let Some(case) = self.claim(&bench, desk, &mut watch.stop).await? else {
                break bench;
            };
            Box::pin(self.attend(case, desk, &mut watch.stop)).await?;
            if watch.stop.is_raised() {
                return Ok(());
            }
        };
        desk.clear = true;
        let look = crew.clock.now().plus_secs(LOOK_EVERY_SECS);
        let next = match bench.next_at {
            Some(at) => look.min(crew.local(at).await?),
            None => look,
        };
        loop {
            let beat = crew.clock.now().plus_secs(u64::from(IDLE_INTERVAL_SECS));
            if watch.until(beat.min(next)).await != WakeReason::Time || crew.clock.now() >= next {
                return Ok(());
            }
            desk.registered = crew.book.seen(&self.name).await?;
        }
    }

    fn agent(&self) -> NewAgent {
        NewAgent {
            name: self.name.clone(),
            role: "judge".to_owned(),
            host: self.crew.settings.host.clone(),
            account: self.account.clone(),
            interval_seconds: IDLE_INTERVAL_SECS,
        }
    }

    /// An earlier life of this judge claimed it. A place in the queue costs nothing, a
    /// judgement is an attempt: a result that kills its judges must come to an end.
    async fn end_leftover(&self, left: AgentWork, stop: &mut StopSign) -> LedgerResult<()> {
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
        bench: &JudgeQueue,
        desk: &mut JudgeMemory,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<JudgeCase>> {
        desk.claims += 1;
        let key = format!("{}/{}/{}", self.name, self.crew.life, desk.claims);
        if bench.to_merge
            && let Some(case) = self.claim_merge(bench, &key, desk, stop).await?
        {
            return Ok(Some(case));
        }
        if !bench.to_judge {
            return Ok(None);
        }
        self.claim_next(LeasePurpose::Judge, &key, stop).await
    }

    /// While the base is red, only what mends it is merged.
    async fn claim_merge(
        &self,
        bench: &JudgeQueue,
        key: &str,
        desk: &mut JudgeMemory,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<JudgeCase>> {
        let crew = &self.crew;
        let Some(red) = &bench.red_base else {
            return self.claim_next(LeasePurpose::Merge, key, stop).await;
        };
        match crew.yard.base().await {
            Ok(base) if base != red.commit => {
                crew.book.set_red_base(None).await?;
                return self.claim_next(LeasePurpose::Merge, key, stop).await;
            }
            _ => {}
        }
        let Some(mending) = crew.book.end_of_chain(&red.task).await? else {
            return Ok(None);
        };
        if mending.state.is_terminal() {
            // Nobody mends it any longer. Perhaps the guard is not always red.
            let now = crew.clock.now();
            if desk.red_retry_at.is_some_and(|at| now < at) {
                return Ok(None);
            }
            desk.red_retry_at = Some(now.plus_secs(RED_RETRY_SECS));
            desk.bases.clear();
            return self.claim_next(LeasePurpose::Merge, key, stop).await;
        }
        if mending.blocked_on() != Some(BlockReason::AwaitingJudge) {
            return Ok(None);
        }
        let claim = Claim {
            owner: self.name.clone(),
            purpose: LeasePurpose::Merge,
            key: key.to_owned(),
            base: Some(crew.settings.base.clone()),
        };
        let claimed = insist(crew, stop, || crew.book.claim(&mending.id, claim.clone())).await;
        match claimed {
            Some(Ok(_)) => self.case(&mending.id).await,
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
        let crew = &self.crew;
        let mut wanted = ClaimRequest::work(&self.name, "", key);
        wanted.purpose = purpose;
        wanted.base = (purpose == LeasePurpose::Merge).then(|| crew.settings.base.clone());
        // A repeat under the same name gets the lease that a lost answer was about.
        let claimed = insist(crew, stop, || crew.book.claim_next(&wanted)).await;
        match claimed {
            Some(Ok(Some(ClaimedTask { task, .. }))) => self.case(&task.id).await,
            Some(Ok(None) | Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    /// The case of a claim that succeeded. None: it is over already.
    async fn case(&self, id: &TaskId) -> LedgerResult<Option<JudgeCase>> {
        let given = self.crew.book.assigned(&self.name).await?;
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
        desk: &mut JudgeMemory,
        stop: &mut StopSign,
    ) -> LedgerResult<()> {
        let (stopper, sign) = StopHandle::new();
        let work = async {
            match case.lease.purpose {
                LeasePurpose::Merge => Box::pin(self.merge(&case, desk, sign, stop.clone())).await,
                _ => Box::pin(self.judge(&case, sign, stop.clone())).await,
            }
        };
        let work = while_kept(&self.crew, &case.lease, &stopper, work);
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
        stopper.stop();
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
                Ok(_) | Err(JudgeStop::Yard(_)) if sign.is_raised() => cut_off(),
                Ok(ending) => ending,
                Err(JudgeStop::Yard(trouble)) => self.trouble(trouble, &mut stop).await,
                Err(JudgeStop::Ledger(error)) => return Err(error),
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
            self.crew.book.quota_met(&account, at).await?;
        }
        Ok(())
    }

    /// A result is not to blame where there is no base to merge it into.
    pub(super) async fn trouble(
        &self,
        trouble: WorkspaceError,
        stop: &mut StopSign,
    ) -> JudgeEnding {
        let reason = trouble.0;
        if self.crew.is_everybodys_trouble(stop).await {
            JudgeEnding::StepBack { reason }
        } else {
            JudgeEnding::Unable { reason }
        }
    }

    /// Lets guard, policy and review look, in this order.
    async fn evaluate(&self, case: &JudgeCase, sign: StopSign) -> Result<JudgeEnding, JudgeStop> {
        let (crew, task) = (&self.crew, &case.task);
        let result = case.run.result.clone();
        let needs = task.needs_merge();
        let mut start = None;
        if let Some(result) = result.clone().filter(|_| needs) {
            start = crew.yard.start_of(result).await?;
        }
        let mut findings = Vec::new();
        let changes = match (&start, &result) {
            (Some(start), Some(result)) if needs => {
                let (start, result) = (start.clone(), result.clone());
                let changes = crew.yard.changes(start.clone(), result.clone()).await?;
                if let Some(changes) = &changes {
                    let bytes = crew.yard.diff_bytes(start, result).await?;
                    let paths = &crew.settings.paths;
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
                let checks = crew
                    .yard
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
        let asks = task
            .acceptance
            .iter()
            .any(|one| one.check == CriterionCheck::Review);
        if (crew.settings.review || asks) && !rules::is_settled_before_review(&evidence) {
            let settled = self.settled(task).await.map_err(JudgeStop::Ledger)?;
            let order = ReviewOrder {
                task: task.clone(),
                run_id: case.run.id.clone(),
                token: case.lease.token,
                start: start.unwrap_or_default(),
                result: result.unwrap_or_default(),
                criteria: review_criteria(task),
                settled: settled.clone(),
            };
            let said = crew.yard.review(order, sign).await?;
            evidence.review = rules::ReviewOutcome::read(task, said, &settled);
        }
        Ok(rules::ending(&evidence))
    }

    /// What an earlier judgement of the lineage raised and the last one did not.
    async fn settled(&self, task: &Task) -> LedgerResult<Vec<ReviewRemark>> {
        let book = &self.crew.book;
        let Some(parent) = &task.rework_of else {
            return Ok(Vec::new());
        };
        let parent = book.task(parent).await?;
        let Some(grandparent) = parent.and_then(|parent| parent.rework_of) else {
            return Ok(Vec::new());
        };
        let before = book.task(&grandparent).await?;
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
        let crew = &self.crew;
        let say = |ending: JudgeEnding| async move { crew.book.judge(lease, ending).await };
        let refusal = match insist(crew, stop, || say(ending.clone())).await {
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
        match insist(crew, stop, || say(unable.clone())).await {
            Some(Ok(outcome)) => Ok(Some(outcome.task)),
            Some(Err(LedgerError::Refused(_))) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }
}

impl JudgeRole {
    /// The ledger contradicts itself about the task: no judge can change that, and none has
    /// failed. The task goes back, and waits for the cycle manager to mend it.
    pub(crate) async fn leave_to_repair(
        &self,
        lease: &Lease,
        refusal: &Refusal,
        stop: &mut StopSign,
    ) -> LedgerResult<Option<Task>> {
        let crew = &self.crew;
        let back = || {
            let reason = refusal.to_string();
            crew.book.judge(lease, JudgeEnding::StepBack { reason })
        };
        let block = Request::Block {
            code: refusal.code,
            reason: refusal.reason.clone(),
            waits_for: None,
        };
        let block = LedgerCall::new(lease.task_id.clone(), &self.name, block);
        let left = match insist(crew, stop, back).await {
            Some(Ok(_)) => insist(crew, stop, || crew.book.ask("block", &block)).await,
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
pub(super) enum JudgeStop {
    /// The yard could not do what was asked.
    Yard(WorkspaceError),
    /// The ledger could not.
    Ledger(LedgerError),
}

impl From<WorkspaceError> for JudgeStop {
    fn from(trouble: WorkspaceError) -> JudgeStop {
        JudgeStop::Yard(trouble)
    }
}

impl From<LedgerError> for JudgeStop {
    fn from(error: LedgerError) -> JudgeStop {
        JudgeStop::Ledger(error)
    }
}
