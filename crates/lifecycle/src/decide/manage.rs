//! What an orchestrator or a person asks: create, block, replan, cancel, retry.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::draft::{Block, Draft};
use super::work::mark_refused_packet;
use super::{Answer, Decision, LeaseChange, LockChange, Refusal};
use crate::event::TaskEvent;
use crate::lock::{Resource, normalise};
use crate::policy::{Policy, PolicyRule};
use crate::request::{DependencyChain, Facts, NewPacket, NewTask, Request, TaskCall};
use crate::row::{Blocker, Lineage, Task, TaskId};
use crate::run::TaskRun;
use crate::successor;
use crate::time::Timestamp;
use crate::words::{
    BlockReason, CriterionCheck, RefusalCode, TaskKind, TaskOrigin, TaskPhase, TaskRunStatus,
    TaskState,
};

/// Makes a task: `todo`, or blocked in the same transaction.
pub(super) fn create(
    policy: &Policy,
    new: &NewTask,
    call: &TaskCall,
    facts: &Facts,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    check_new(new, facts)?;
    let row = new_row(new, now);
    let (row, mut events) = created(row, &call.actor, "created", now);
    let mut runs = Vec::new();
    let mut draft = Draft::new(policy, &row, call, facts, now);
    if let Some(head) = &new.head {
        runs.push(TaskRun::of_pull_request(&row.id, 1, head, &call.actor, now));
        let block = Block::on(
            BlockReason::AwaitingJudge,
            "a pull request waits for a judge",
        );
        draft.block(&block, "pull_request_found", |row| {
            row.phase = TaskPhase::Judge;
            row.counters.attempts = 1;
        })?;
    } else if new.role.is_empty() {
        let block = Block::on(BlockReason::IssueLinking, "the issue says no role");
        draft.block(&block, "role_unknown", |_| ())?;
    }
    let mut decision = draft.moved();
    events.append(&mut decision.events);
    decision.events = events;
    decision.runs = runs;
    decision.expected_version = None;
    Ok(decision)
}

/// The row of a new task and its first event.
pub(crate) fn created(
    mut row: Task,
    actor: &str,
    event: &str,
    now: Timestamp,
) -> (Task, Vec<TaskEvent>) {
    row.version = 1;
    let event = TaskEvent {
        task_id: row.id.clone(),
        version: 1,
        from_state: None,
        to_state: row.state,
        actor: actor.to_owned(),
        reason: event.to_owned(),
        created_at: now,
        details: Map::new(),
        changes: Task::blank(row.id.clone()).changes_to(&row),
    };
    (row, vec![event])
}

fn new_row(new: &NewTask, now: Timestamp) -> Task {
    Task {
        title: new.title.clone(),
        goal: new.goal.clone(),
        kind: new.kind,
        role: new.role.clone(),
        lane: new.lane,
        origin: new.origin,
        source: new.source.clone(),
        priority: new.priority,
        risk: new.risk,
        task_type: new.task_type,
        dependencies: new.dependencies.clone(),
        lock_scope: normalise(new.lock_scope.clone()),
        forbidden_scope: normalise(new.forbidden_scope.clone()),
        acceptance: new.acceptance.clone(),
        commands: new.commands.clone(),
        expects_change: new.expects_change,
        context: new.context.clone(),
        timeout_seconds: new.timeout_seconds,
        heartbeat_interval_seconds: new.heartbeat_interval_seconds,
        timebox_seconds: new.timebox_seconds,
        lineage: Lineage::begin(new.id.clone()),
        created_at: now,
        updated_at: now,
        ..Task::blank(new.id.clone())
    }
}

fn check_new(new: &NewTask, facts: &Facts) -> Result<(), Refusal> {
    let refuse = |code, words: String| Err(Refusal::new(code, words));
    for (at, dependency) in new.dependencies.iter().enumerate() {
        if *dependency == new.id {
            return refuse(
                RefusalCode::SchemaInvalid,
                "a task cannot depend on itself".to_owned(),
            );
        }
        if new.dependencies[..at].contains(dependency) {
            return refuse(
                RefusalCode::SchemaInvalid,
                format!("dependency {dependency} is named twice"),
            );
        }
        if !facts
            .dependencies
            .iter()
            .any(|known| known.id == *dependency)
        {
            return refuse(
                RefusalCode::MissingRequiredInput,
                format!("dependency {dependency} does not exist"),
            );
        }
    }
    check_scope(&new.lock_scope)?;
    if new.acceptance.is_empty() {
        return refuse(
            RefusalCode::MissingRequiredInput,
            "there is no criterion".to_owned(),
        );
    }
    for (at, criterion) in new.acceptance.iter().enumerate() {
        let same = |other: &&crate::row::Criterion| other.id == criterion.id;
        if criterion.id.is_empty() || new.acceptance[..at].iter().any(|c| same(&c)) {
            return refuse(
                RefusalCode::SchemaInvalid,
                format!("criterion {:?} needs an id of its own", criterion.id),
            );
        }
        if criterion.check == CriterionCheck::Review && facts.review_off {
            return refuse(
                RefusalCode::SchemaInvalid,
                format!(
                    "criterion {} is for a review, and reviews are off",
                    criterion.id
                ),
            );
        }
    }
    let (timeout, interval) = (new.timeout_seconds, new.heartbeat_interval_seconds);
    if timeout < 30 || interval < 5 || interval >= timeout {
        return refuse(
            RefusalCode::SchemaInvalid,
            format!(
                "timeout {timeout} s with a heartbeat every {interval} s: the timeout is 30 s or \
                 more, the interval 5 s or more and less than the timeout"
            ),
        );
    }
    if new.timebox_seconds == 0 {
        return refuse(RefusalCode::SchemaInvalid, "the timebox is 0".to_owned());
    }
    if (new.kind == TaskKind::Review) != new.head.is_some() {
        return refuse(
            RefusalCode::MissingRequiredInput,
            "a review, and nothing else, names the head of its pull request".to_owned(),
        );
    }
    Ok(())
}

/// A scope names something, and nothing that judges lock.
pub(super) fn check_scope(scope: &[Resource]) -> Result<(), Refusal> {
    if scope.is_empty() {
        return Err(Refusal::new(
            RefusalCode::MissingRequiredInput,
            "lock_scope is empty",
        ));
    }
    match scope.iter().find(|one| one.is_of_judges()) {
        None => Ok(()),
        Some(one) => Err(Refusal::new(
            RefusalCode::SchemaInvalid,
            format!("resource {one}: only judges and the merge queue lock that"),
        )),
    }
}

/// The tasks of a cycle, if these edges (task to what it depends on) contain one.
pub fn dependency_cycle(edges: &BTreeMap<TaskId, Vec<TaskId>>) -> Option<Vec<TaskId>> {
    let mut left: BTreeMap<&TaskId, Vec<&TaskId>> = edges
        .iter()
        .map(|(task, needs)| {
            let inner = needs.iter().filter(|need| edges.contains_key(need));
            (task, inner.collect())
        })
        .collect();
    loop {
        let free: Vec<&TaskId> = left
            .iter()
            .filter(|(_, needs)| needs.is_empty())
            .map(|(task, _)| *task)
            .collect();
        if free.is_empty() {
            break;
        }
        for task in &free {
            left.remove(task);
        }
        for needs in left.values_mut() {
            needs.retain(|need| !free.contains(need));
        }
    }
    // Every task that is left needs another one of them: walking leads in a circle.
    let mut walk: Vec<&TaskId> = vec![left.keys().next()?];
    loop {
        let next = *left.get(walk.last()?)?.first()?;
        if let Some(start) = walk.iter().position(|seen| *seen == next) {
            return Some(walk[start..].iter().map(|task| (*task).clone()).collect());
        }
        walk.push(next);
    }
}

/// An orchestrator says what is in the way of a task that nobody works on.
pub(super) fn block(
    mut draft: Draft<'_>,
    code: RefusalCode,
    reason: &str,
    waits_for: Option<&str>,
) -> Result<Decision, Refusal> {
    let refuse = |code, words: String| Err(Refusal::new(code, words));
    let id = &draft.row.id;
    if reason.trim().is_empty() {
        return refuse(
            RefusalCode::MissingRequiredInput,
            "a blocker says its reason".to_owned(),
        );
    }
    match draft.row.state {
        TaskState::Todo => {}
        TaskState::Blocked if code == RefusalCode::LedgerInconsistent => {}
        TaskState::InProgress => {
            return refuse(
                RefusalCode::ConcurrencyConflict,
                format!("somebody works on task {id}: its owner says what is in the way"),
            );
        }
        state => {
            return refuse(
                RefusalCode::InvalidTransition,
                format!("task {id} is {state} and cannot be blocked"),
            );
        }
    }
    let dead = |facts: &Facts| {
        facts
            .dependencies
            .iter()
            .any(|d| d.chain == DependencyChain::Dead)
    };
    if code == RefusalCode::DependencyNotMet && !dead(draft.facts) {
        return refuse(
            RefusalCode::InvalidTransition,
            format!("task {id} waits for its dependencies as todo: none of them is dead"),
        );
    }
    let block = Block {
        waits_for,
        ..Block::on(code.into(), reason)
    };
    draft.block(&block, "blocked", |row| mark_refused_packet(row, code))?;
    Ok(draft.moved())
}

/// A new packet for a task that nobody works on. Where a structural code blocks it, the
/// recovery table sees the newer revision.
pub(super) fn replan(mut draft: Draft<'_>, packet: &NewPacket) -> Result<Decision, Refusal> {
    let plannable = matches!(draft.row.state, TaskState::Todo | TaskState::Blocked);
    let idle = plannable && draft.row.phase != TaskPhase::Judge;
    if !idle && draft.policy.enforces(PolicyRule::ReplanIdle) {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!(
                "task {} cannot be replanned while it is worked on or judged",
                draft.row.id
            ),
        ));
    }
    check_scope(&packet.lock_scope)?;
    draft.note("replanned", |row| apply_packet(row, packet));
    Ok(draft.moved())
}

pub(super) fn apply_packet(row: &mut Task, packet: &NewPacket) {
    row.lock_scope = normalise(packet.lock_scope.clone());
    row.forbidden_scope = normalise(packet.forbidden_scope.clone());
    row.context.clone_from(&packet.context);
    // A command may be replaced, never dropped to none.
    if !packet.commands.is_empty() {
        row.commands.clone_from(&packet.commands);
    }
    row.packet_revision += 1;
}

/// From every state that has not ended. Locks, lease and run end with it.
pub(super) fn cancel(mut draft: Draft<'_>, reason: &str) -> Result<Decision, Refusal> {
    draft.close_run(TaskRunStatus::Canceled, None, None);
    let details = Map::from_iter([("why".to_owned(), json!(reason))]);
    draft.go_with(TaskState::Canceled, "canceled", details, |_| ())?;
    Ok(draft.moved())
}

/// A person has read what a result changed about its own judge: it goes back to the merge queue.
pub(super) fn accept_judge(mut draft: Draft<'_>, reason: &str) -> Result<Decision, Refusal> {
    let run = draft.facts.run.as_ref().filter(|run| run.is_approved());
    let run = run.map(|run| run.id.clone());
    let waits = draft.row.blocked_on() == Some(BlockReason::ChangedJudge);
    let Some(run) = run.filter(|_| waits) else {
        return Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!(
                "task {} does not wait for a person to accept a changed judge",
                draft.row.id
            ),
        ));
    };
    let block = Block::on(
        BlockReason::AwaitingJudge,
        "its changed judge was accepted, waits for its merge",
    );
    let details = Map::from_iter([("why".to_owned(), json!(reason))]);
    draft.block_with(&block, "judge_accepted", details, |row| {
        row.accepted_judge = Some(run);
    })?;
    Ok(draft.moved())
}

pub(super) fn pause(mut draft: Draft<'_>, paused: bool) -> Decision {
    if draft.row.paused == paused {
        return draft.replay(Answer::Unchanged);
    }
    let event = if paused { "paused" } else { "unpaused" };
    draft.note(event, |row| row.paused = paused);
    draft.moved()
}

/// What can still be said of a task that has ended: that it has, or, for a person, that
/// it shall be done after all, by another task.
pub(super) fn terminal(mut draft: Draft<'_>) -> Result<Decision, Refusal> {
    let state = draft.row.state;
    let why = |reason: &str| Map::from_iter([("why".to_owned(), json!(reason))]);
    match &draft.call.request {
        Request::Cancel { reason } if state == TaskState::Canceled => {
            draft.self_loop("replayed", why(reason), |_| ());
        }
        Request::Reassert {
            state: said,
            reason,
        } if *said == state => {
            draft.self_loop("replayed", why(reason), |_| ());
        }
        Request::Retry { successor }
            if state != TaskState::Done
                && (draft.row.superseded_by.is_none()
                    || !draft.policy.enforces(PolicyRule::OneSuccessor)) =>
        {
            let actor = draft.call.actor.clone();
            let made = successor::create(
                &draft.row,
                TaskOrigin::Retry,
                successor,
                None,
                &actor,
                draft.now,
            );
            draft.created = Some(made);
            draft.self_loop("retried", Map::new(), |row| {
                row.superseded_by = Some(successor.clone());
            });
        }
        _ => {
            return Err(Refusal::new(
                RefusalCode::InvalidTransition,
                format!(
                    "task {} is {state}: there is no way out of that",
                    draft.row.id
                ),
            )
            .detail("state", state.as_str()));
        }
    }
    debug_assert!(draft.locks == LockChange::Keep && draft.lease == LeaseChange::Keep);
    Ok(draft.moved())
}

/// The blockers of an orchestrator's answer.
pub fn blockers<'t>(tasks: impl IntoIterator<Item = &'t Task>) -> Vec<&'t Blocker> {
    tasks
        .into_iter()
        .filter_map(|task| task.blocker.as_ref())
        .collect()
}
