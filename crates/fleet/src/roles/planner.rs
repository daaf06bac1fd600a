//! The planner: a requirement becomes tasks, once.
//!
//! A backlog always comes first. A plan that cannot be used is sent back with what is
//! wrong, three times at most; then nothing is asked again before something changes.

use runner_ledger::{LedgerCall, LedgerError};
use runner_lifecycle::{BlockReason, Facts, Request, TaskState};

use super::red_base::RedBaseRule;
use super::role_lease::while_role_lease_held;
use super::{LOOK_EVERY_SECS, RoleContext, RoleRule, RoleWait, StoreBackoff};
use crate::backlog::project::with_counts;
use crate::ledger_port::LedgerResult;
use crate::rules::plan::{self, MAX_TRIES, plan_signature};
use crate::rules::preflight::{FailedSource, PreflightInputs};
use crate::workspaces::{PlanOrder, StopSign};

/// What a look of the planner came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    /// There is nothing to plan.
    NoRequirement,
    /// A backlog comes first, or a source could not be read; why.
    BacklogFirst(String),
    /// This requirement was planned for this repo before.
    Before,
    /// So many tasks were made.
    Tasks(usize),
    /// A plan could not be used, and another one is asked for.
    SentBack {
        /// Which try it was, from 1.
        attempt: u32,
        /// What was wrong with it.
        findings: Vec<String>,
    },
    /// No plan could be used; what was wrong with the last one.
    Refused(Vec<String>),
}

/// Hears what the planner comes to, as it happens.
pub type PlanListener<'a> = &'a (dyn Fn(&PlanOutcome) + Send + Sync);

/// Plans while it holds its role lease, until the sign is raised.
pub async fn run(context: &RoleContext, name: &str, stop: StopSign) -> LedgerResult<()> {
    run_telling(context, name, stop, &|_| {}).await
}

/// The same, telling what each look came to.
pub async fn run_telling(
    context: &RoleContext,
    name: &str,
    stop: StopSign,
    tell: PlanListener<'_>,
) -> LedgerResult<()> {
    let body = |_| {
        let stop = stop.clone();
        async move {
            let mut watch = RoleWait::new(context, stop).await?;
            let mut backoff = StoreBackoff::default();
            let mut outside = context.backlog.changes();
            let mut settled: Option<String> = None;
            while !watch.stop.is_raised() {
                let turn = look(context, name, &mut settled, &watch.stop, tell).await;
                if let Some(planned) = backoff
                    .pause_if_transient(context, &mut watch.stop, turn)
                    .await?
                {
                    tell(&planned);
                    let next = context.clock.now().plus_secs(LOOK_EVERY_SECS);
                    watch.until_outside(next, &mut outside).await;
                }
            }
            Ok(())
        }
    };
    while_role_lease_held(context, "planner", name, stop.clone(), body).await
}

/// Looks once. `settled` is the signature that needs no further look.
async fn look(
    context: &RoleContext,
    name: &str,
    settled: &mut Option<String>,
    stop: &StopSign,
    tell: PlanListener<'_>,
) -> LedgerResult<PlanOutcome> {
    let requirement = match context.backlog.requirement().await {
        Ok(text) if PreflightInputs::says_something(&text) => text,
        Ok(_) => return Ok(PlanOutcome::NoRequirement),
        Err(error) => return Ok(PlanOutcome::BacklogFirst(error.0)),
    };
    let head = if context.settings.replan {
        match context.workspaces.base().await {
            Ok(head) => head,
            Err(error) => return Ok(PlanOutcome::BacklogFirst(error.0)),
        }
    } else {
        String::new()
    };
    let signature = plan_signature(&requirement, &head);
    if settled.as_ref() == Some(&signature) {
        return Ok(PlanOutcome::Before);
    }
    if context.keeps(RoleRule::BacklogFirst)
        && let Err(why) = inputs(context, true).await?.may_plan()
    {
        return Ok(PlanOutcome::BacklogFirst(why));
    }
    let planned = call(context, name, &requirement, &signature, stop, tell).await?;
    if !stop.is_raised() {
        *settled = Some(signature);
    }
    Ok(planned)
}

/// Whether there is a requirement that can be read and was not planned yet.
pub(crate) async fn has_requirement(context: &RoleContext) -> bool {
    let text = context.backlog.requirement().await;
    text.is_ok_and(|text| PreflightInputs::says_something(&text))
}

/// What preflight goes by, as it is now. Fail-closed: a source that cannot be read has
/// failed, and nobody plans before it can.
pub(crate) async fn inputs(
    context: &RoleContext,
    has_requirement: bool,
) -> LedgerResult<PreflightInputs> {
    let mut inputs = PreflightInputs {
        has_requirement,
        ..PreflightInputs::default()
    };
    match context.backlog.sync().await {
        Ok(outside) => {
            for new in outside.new_issues() {
                inputs.issue_backlog += u64::from(context.ledger.task(&new.id).await?.is_none());
            }
            inputs.open_pull_requests = outside.open_pull_requests();
            inputs.failed_sources = outside.failures;
        }
        Err(error) => inputs.failed_sources.push(FailedSource {
            source: "backlog".to_owned(),
            reason: error.0,
        }),
    }
    let counts = context.ledger.counts().await?;
    let parked = context.ledger.parked().await?;
    // Where a person said that work goes on, planning does too.
    let red_base = context.settings.on_red_base == RedBaseRule::Fix
        && context.ledger.red_base().await?.is_some();
    Ok(with_counts(inputs, &counts, parked, red_base))
}

/// Whether a task with that blocker waits for a person or the outside, as far as a count
/// can tell.
pub fn is_parked(state: TaskState, blocked_on: Option<BlockReason>) -> bool {
    state == TaskState::Blocked
        && matches!(
            blocked_on,
            Some(
                BlockReason::IssueLinking
                    | BlockReason::DependencyNotMet
                    | BlockReason::LedgerInconsistent
                    | BlockReason::InvalidTransition
                    | BlockReason::ChangedJudge
            )
        )
}

async fn call(
    context: &RoleContext,
    name: &str,
    requirement: &str,
    signature: &str,
    stop: &StopSign,
    tell: PlanListener<'_>,
) -> LedgerResult<PlanOutcome> {
    let mut findings: Vec<String> = Vec::new();
    for attempt in 1..=MAX_TRIES {
        let order = PlanOrder {
            requirement: requirement.to_owned(),
            findings: findings.clone(),
            attempt,
        };
        let answer = context.workspaces.plan(order, stop.clone()).await;
        if stop.is_raised() {
            break;
        }
        let read = match answer {
            Ok(text) => plan::read(&text, signature, &context.settings.defaults)
                .map_err(|found| found.iter().map(ToString::to_string).collect()),
            Err(error) => Err(vec![error.0]),
        };
        match read {
            Ok(tasks) => return save(context, name, signature, tasks).await,
            Err(found) => findings = found,
        }
        if attempt < MAX_TRIES {
            let findings = findings.clone();
            tell(&PlanOutcome::SentBack { attempt, findings });
        }
    }
    Ok(PlanOutcome::Refused(findings))
}

/// Saves a plan in one transaction, once for each signature.
async fn save(
    context: &RoleContext,
    name: &str,
    signature: &str,
    tasks: Vec<runner_lifecycle::request::NewTask>,
) -> LedgerResult<PlanOutcome> {
    let count = tasks.len();
    let mut calls = Vec::new();
    for (at, new) in tasks.into_iter().enumerate() {
        let mut call = LedgerCall::new(new.id.clone(), name, Request::Create(new));
        call.outside = Facts {
            review_off: !context.settings.defaults.review,
            ..Facts::default()
        };
        if at == 0 {
            // Another plan under the same name is refused, with all of its tasks.
            call = call.named(&format!("plan/{signature}"));
        }
        calls.push(call);
    }
    match context.ledger.create_all(&calls).await {
        Ok(_) => Ok(PlanOutcome::Tasks(count)),
        Err(LedgerError::Refused(_)) => Ok(PlanOutcome::Before),
        Err(error) => Err(error),
    }
}
