//! What the fleet's API answers: rows of the ledger as its clients see them. Points in
//! time are milliseconds since the Unix epoch.

use std::collections::BTreeMap;

use runner_ledger::HeldLock;
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{Policy, Task, Timestamp, row};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::retry::{RetryView, retry_of};
use super::words::{
    BlockReasonView, ContextKindView, CriterionCheckView, FailureCategoryView, JudgeVerdictView,
    LaneView, LeasePurposeView, ReworkCauseView, TaskKindView, TaskOriginView, TaskPhaseView,
    TaskPriorityView, TaskRiskView, TaskRunStatusView, TaskStateView, TaskTypeView,
};

/// What a blocked task waits for.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Blocker)]
pub(crate) struct BlockerView {
    task_id: String,
    code: BlockReasonView,
    /// The same for people.
    reason: String,
    since: i64,
    /// When it is tried again, if a clock decides that.
    retry_at: Option<i64>,
    /// What it waits for: a task, a resource, an account.
    waits_for: Option<String>,
}

impl From<&row::Blocker> for BlockerView {
    fn from(blocker: &row::Blocker) -> Self {
        BlockerView {
            task_id: blocker.task_id.to_string(),
            code: blocker.code.into(),
            reason: blocker.reason.clone(),
            since: blocker.since.0,
            retry_at: blocker.retry_at.map(|at| at.0),
            waits_for: blocker.waits_for.clone(),
        }
    }
}

/// One condition of `done`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Criterion)]
pub(crate) struct CriterionView {
    id: String,
    text: String,
    check: CriterionCheckView,
}

/// Something a session is told.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ContextItem)]
pub(crate) struct ContextItemView {
    kind: ContextKindView,
    value: String,
}

/// What a judge found.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Remark)]
pub(crate) struct RemarkView {
    id: String,
    text: String,
}

/// A merge that is under way.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Intent)]
pub(crate) struct IntentView {
    old_base: String,
    merge_commit: String,
}

/// How often each thing happened.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Counters)]
pub(crate) struct CountersView {
    /// Failed runs by category.
    failures: BTreeMap<String, u32>,
    /// Runs that count.
    runs: u32,
    /// Runs ever begun.
    attempts: u32,
    quota_waits: u32,
    lost_work: u32,
    lost_judge: u32,
    /// Judgements that could not be made.
    judge: u32,
}

/// A task.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TaskView {
    id: String,
    /// Counts the changes of the row; give it as `expected_version` to change just this.
    version: u64,
    title: String,
    goal: String,
    kind: TaskKindView,
    role: String,
    lane: LaneView,
    origin: TaskOriginView,
    source: Option<String>,
    phase: TaskPhaseView,
    state: TaskStateView,
    blocker: Option<BlockerView>,
    /// When and how it is tried again, if it is.
    retry: Option<RetryView>,
    owner: Option<String>,
    priority: TaskPriorityView,
    risk: TaskRiskView,
    #[serde(rename = "type")]
    task_type: TaskTypeView,
    dependencies: Vec<String>,
    lock_scope: Vec<String>,
    forbidden_scope: Vec<String>,
    acceptance: Vec<CriterionView>,
    commands: Vec<String>,
    expects_change: bool,
    context: Vec<ContextItemView>,
    remarks: Vec<RemarkView>,
    packet_revision: u32,
    timeout_seconds: u32,
    heartbeat_interval_seconds: u32,
    timebox_seconds: u32,
    paused: bool,
    counters: CountersView,
    rework_cause: Option<ReworkCauseView>,
    intent: Option<IntentView>,
    start_from: Option<String>,
    /// The first task of its lineage.
    lineage: String,
    rework_of: Option<String>,
    superseded_by: Option<String>,
    rework_depth: u32,
    created_at: i64,
    updated_at: i64,
}

fn texts<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

impl TaskView {
    /// A row; `newest` is its newest run, where it is known.
    pub(crate) fn of(
        policy: &Policy,
        task: &Task,
        newest: Option<&TaskRun>,
        now: Timestamp,
    ) -> Self {
        let counters = &task.counters;
        let failures = counters.failures.iter();
        TaskView {
            id: task.id.to_string(),
            version: task.version,
            title: task.title.clone(),
            goal: task.goal.clone(),
            kind: task.kind.into(),
            role: task.role.clone(),
            lane: task.lane.into(),
            origin: task.origin.into(),
            source: task.source.clone(),
            phase: task.phase.into(),
            state: task.state.into(),
            blocker: task.blocker.as_ref().map(BlockerView::from),
            retry: retry_of(policy, task, newest, now),
            owner: task.owner.clone(),
            priority: task.priority.into(),
            risk: task.risk.into(),
            task_type: task.task_type.into(),
            dependencies: texts(&task.dependencies),
            lock_scope: scope(&task.lock_scope),
            forbidden_scope: scope(&task.forbidden_scope),
            acceptance: task.acceptance.iter().map(CriterionView::from).collect(),
            commands: task.commands.clone(),
            expects_change: task.expects_change,
            context: task.context.iter().map(ContextItemView::from).collect(),
            remarks: task.remarks.iter().map(RemarkView::from).collect(),
            packet_revision: task.packet_revision,
            timeout_seconds: task.timeout_seconds,
            heartbeat_interval_seconds: task.heartbeat_interval_seconds,
            timebox_seconds: task.timebox_seconds,
            paused: task.paused,
            counters: CountersView {
                failures: failures.map(|(key, n)| (key.to_string(), *n)).collect(),
                runs: counters.runs,
                attempts: counters.attempts,
                quota_waits: counters.quota_waits,
                lost_work: counters.lost_work,
                lost_judge: counters.lost_judge,
                judge: counters.judge,
            },
            rework_cause: task.rework_cause.map(ReworkCauseView::from),
            intent: task.intent.as_ref().map(IntentView::from),
            start_from: task.start_from.clone(),
            lineage: task.lineage.root.to_string(),
            rework_of: task.rework_of.as_ref().map(ToString::to_string),
            superseded_by: task.superseded_by.as_ref().map(ToString::to_string),
            rework_depth: task.rework_depth,
            created_at: task.created_at.0,
            updated_at: task.updated_at.0,
        }
    }
}

fn scope(resources: &[runner_lifecycle::lock::Resource]) -> Vec<String> {
    resources.iter().map(|r| r.as_str().to_owned()).collect()
}

impl From<&row::Criterion> for CriterionView {
    fn from(one: &row::Criterion) -> Self {
        CriterionView {
            id: one.id.clone(),
            text: one.text.clone(),
            check: one.check.into(),
        }
    }
}

impl From<&row::ContextItem> for ContextItemView {
    fn from(item: &row::ContextItem) -> Self {
        ContextItemView {
            kind: item.kind.into(),
            value: item.value.clone(),
        }
    }
}

impl From<&row::ReviewRemark> for RemarkView {
    fn from(remark: &row::ReviewRemark) -> Self {
        RemarkView {
            id: remark.id.clone(),
            text: remark.text.clone(),
        }
    }
}

impl From<&row::Intent> for IntentView {
    fn from(intent: &row::Intent) -> Self {
        IntentView {
            old_base: intent.old_base.clone(),
            merge_commit: intent.merge_commit.clone(),
        }
    }
}

/// One change of one task.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    task_id: String,
    /// The version that the row has after it.
    version: u64,
    /// The state before; null for the creation.
    from_state: Option<TaskStateView>,
    to_state: TaskStateView,
    /// Who did it.
    actor: String,
    /// A word for what happened.
    reason: String,
    created_at: i64,
    details: Map<String, Value>,
    /// The fields that changed, with their new values.
    changes: Map<String, Value>,
}

impl From<&TaskEvent> for EventView {
    fn from(event: &TaskEvent) -> Self {
        let mut value = serde_json::to_value(event).unwrap_or_default();
        let changes = match value["changes"].take() {
            Value::Object(changes) => changes,
            _ => Map::new(),
        };
        EventView {
            task_id: event.task_id.to_string(),
            version: event.version,
            from_state: event.from_state.map(TaskStateView::from),
            to_state: event.to_state.into(),
            actor: event.actor.clone(),
            reason: event.reason.clone(),
            created_at: event.created_at.0,
            details: event.details.clone(),
            changes,
        }
    }
}

/// One attempt at a task.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = RunView)]
pub(crate) struct TaskRunView {
    /// `<task>-<number>`.
    id: String,
    task_id: String,
    number: u32,
    owner: String,
    status: TaskRunStatusView,
    /// Why it failed; null for a lost one.
    category: Option<FailureCategoryView>,
    /// The failure in its normal form.
    signature: Option<String>,
    started_at: i64,
    ended_at: Option<i64>,
    /// The commit that is its result.
    result: Option<String>,
    judged_at: Option<i64>,
    judgement_version: u32,
    verdict: Option<JudgeVerdictView>,
    notes: Vec<String>,
}

impl From<&TaskRun> for TaskRunView {
    fn from(run: &TaskRun) -> Self {
        TaskRunView {
            id: run.id.clone(),
            task_id: run.task_id.to_string(),
            number: run.number,
            owner: run.owner.clone(),
            status: run.status.into(),
            category: run.category.map(FailureCategoryView::from),
            signature: run.signature.clone(),
            started_at: run.started_at.0,
            ended_at: run.ended_at.map(|at| at.0),
            result: run.result.clone(),
            judged_at: run.judged_at.map(|at| at.0),
            judgement_version: run.judgement_version,
            verdict: run.verdict.map(JudgeVerdictView::from),
            notes: notes(run.packet.as_ref()),
        }
    }
}

fn notes(packet: Option<&ResultPacket>) -> Vec<String> {
    packet.map_or(Vec::new(), |packet| packet.notes_for_orchestrator.clone())
}

/// What judges said about a run, the last time one claimed it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct JudgementView {
    run_id: String,
    task_id: String,
    /// How often judges claimed the run.
    version: u32,
    /// When the last one did; null once that was cut off and another may.
    judged_at: Option<i64>,
    /// Null until there is one.
    verdict: Option<JudgeVerdictView>,
    checks: Vec<CriterionAnswerView>,
    notes: Vec<String>,
}

/// What a judge answered to a criterion.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = CriterionAnswer)]
pub(crate) struct CriterionAnswerView {
    criterion: String,
    /// `pass` or `fail`.
    status: String,
    evidence: String,
}

impl From<&TaskRun> for JudgementView {
    fn from(run: &TaskRun) -> Self {
        let packet = run.judge_packet.as_ref();
        let checks = packet.map_or(&[][..], |packet| &packet.acceptance_check);
        let answer = |check: &runner_lifecycle::packet::AcceptanceAnswer| CriterionAnswerView {
            criterion: check.criterion.clone(),
            status: check.status.to_string(),
            evidence: check.evidence.clone(),
        };
        JudgementView {
            run_id: run.id.clone(),
            task_id: run.task_id.to_string(),
            version: run.judgement_version,
            judged_at: run.judged_at.map(|at| at.0),
            verdict: run.verdict.map(JudgeVerdictView::from),
            checks: checks.iter().map(answer).collect(),
            notes: notes(packet),
        }
    }
}

/// A lock that is held.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LockView {
    /// A path of the repo, or a name that begins with `@`.
    resource: String,
    task_id: String,
    owner: Option<String>,
    purpose: Option<LeasePurposeView>,
    since: Option<i64>,
    /// When it ends unless a heartbeat comes.
    until: Option<i64>,
}

impl From<&HeldLock> for LockView {
    fn from(held: &HeldLock) -> Self {
        let lease = held.lease.as_ref();
        LockView {
            resource: held.lock.resource.as_str().to_owned(),
            task_id: held.lock.task_id.to_string(),
            owner: lease.map(|lease| lease.owner.clone()),
            purpose: lease.map(|lease| lease.purpose.into()),
            since: lease.map(|lease| lease.claimed_at.0),
            until: lease.map(|lease| lease.expires_at().0),
        }
    }
}
