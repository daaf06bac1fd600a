//! The store of the model: it reads facts, asks the real rules, and writes all or nothing.

use super::{Body, Client, Fleet, Kept, Message, NOW, STEP_RULES, Slot, TIP, Work, World, roles};
use crate::decide::{Answer, Decision, LeaseChange, LockChange, Refusal, decide};
use crate::event::{TaskEvent, extend};
use crate::lock::{ScopeLock, first_conflict};
use crate::policy::PolicyRule;
use crate::reconcile::{ReconcileSnapshot, reconcile};
use crate::request::{Dependency, DependencyChain, Facts, Request, TaskCall, UnmergedResult};
use crate::row::{Task, TaskId};
use crate::run::{Lease, Receipt, TaskRun};
use crate::time::Timestamp;
use crate::words::{BasePosition, BlockReason, RefusalCode, TaskPhase, TaskRunStatus, TaskState};

/// What comes back to a caller.
pub(super) enum Reply {
    Answer(Answer),
    Refusal(Refusal),
    /// From git, not from the store.
    Git,
}

impl Reply {
    /// Whether it says that a lease has ended as asked.
    pub(super) fn ends_lease(&self, message: &Message) -> bool {
        let Body::Call(call) = &message.body else {
            return false;
        };
        let asked = match call.request {
            Request::Finish { .. } | Request::Judge { .. } => true,
            Request::SettleIntent { base, .. } => base == BasePosition::Merged,
            _ => false,
        };
        asked && matches!(self, Reply::Answer(_))
    }

    /// The caller hears it and goes on.
    pub(super) fn told_to(&self, client: &mut Client, message: &Message) {
        let before = match client {
            Client::Busy(work) => Some(work.clone()),
            Client::Waiting { work, .. } => work.clone(),
            Client::Idle => None,
        };
        let busy = || before.clone().map_or(Client::Idle, Client::Busy);
        *client = match (self, &message.body) {
            (Reply::Git, _) => busy(),
            (Reply::Answer(Answer::Claimed { token, .. }), Body::Call(call)) => match &call.request
            {
                Request::Claim(claim) => Client::Busy(Work {
                    slot: message.slot,
                    token: *token,
                    purpose: claim.purpose,
                }),
                _ => Client::Idle,
            },
            (Reply::Answer(_), Body::Call(call)) => match call.request {
                // These do not end the lease; only `done` does, and it says so.
                Request::Heartbeat { .. } | Request::RecordIntent { .. } => busy(),
                Request::SettleIntent { .. } => match self {
                    Reply::Answer(Answer::Moved { state, .. }) if *state == TaskState::Done => {
                        Client::Idle
                    }
                    _ => busy(),
                },
                _ => Client::Idle,
            },
            // A packet that is refused can be repaired; a lease that is gone cannot.
            (Reply::Refusal(refusal), _) if refusal.code == RefusalCode::AcceptanceFailed => busy(),
            _ => Client::Idle,
        };
    }
}

impl Fleet {
    pub(super) fn deliver(&self, world: &mut World, message: &Message) -> Reply {
        let at = message.slot;
        let call = match &message.body {
            Body::Call(call) => call,
            Body::MoveBase { from } => {
                if *from == TIP {
                    base_moves(world);
                    world.slots[at].landed = true;
                    let root = world.slots[at].task.lineage.root.clone();
                    *world.merged.entry(root).or_insert(0) += 1;
                }
                return Reply::Git;
            }
        };
        match self.decided(world, message) {
            Err(refusal) => Reply::Refusal(refusal),
            Ok(decision) => {
                self.note_followed(&call.request);
                if roles::is_detour(&call.request) && !decision.replayed {
                    world.detours_left = world.detours_left.saturating_sub(1);
                }
                write(world, at, call, &decision);
                Reply::Answer(decision.answer)
            }
        }
    }

    /// What the rules say to a call, on what the store knows now.
    pub(super) fn decided(&self, world: &World, message: &Message) -> Result<Decision, Refusal> {
        let at = message.slot;
        let Body::Call(call) = &message.body else {
            return Err(Refusal::new(
                RefusalCode::InvalidTransition,
                "no call of the store",
            ));
        };
        let mut facts = facts(world, at, call.request.token());
        if matches!(
            call.request,
            Request::Finish { .. } | Request::Judge { .. } | Request::RecordIntent { .. }
        ) {
            facts.inconsistencies = inconsistencies(world, &world.slots[at..=at], false);
        }
        if call.request == Request::Repair {
            facts.inconsistencies = inconsistencies(world, &world.slots, true);
        }
        if matches!(call.request, Request::Expire { .. })
            && let Some(lease) = &mut facts.lease
            && !renews(world, at)
        {
            // Nobody renews it: time passes until it has ended.
            lease.last_heartbeat_at = Timestamp(0);
        }
        if call.request == Request::TakeBack
            && let Some(lease) = &mut facts.lease
            && !renews(world, at)
            && lease.last_heartbeat_at == lease.claimed_at
        {
            let_interval_pass(lease);
        }
        decide(&self.policy, Some(&world.slots[at].task), call, &facts, NOW)
    }

    /// Writes what was decided on an earlier reading, unless that is stale: the version
    /// is compared, and locks are tested again where they are taken.
    /// So is the lease, where it ends: a heartbeat changes no version.
    pub(super) fn commit(
        &self,
        world: &mut World,
        message: &Message,
        decision: &Decision,
        lease: Option<&Lease>,
    ) -> bool {
        let slot = &world.slots[message.slot];
        let task = &slot.task;
        let heard = decision.lease != LeaseChange::Keep && slot.lease.as_ref() != lease;
        let stale = decision.expected_version != Some(task.version) || heard;
        if stale && self.policy.enforces(PolicyRule::CompareAndSet) {
            return false;
        }
        if let LockChange::Take(scope) = &decision.locks
            && self.policy.enforces(PolicyRule::LockConflicts)
            && first_conflict(&task.id, scope, &locks(world)).is_some()
        {
            return false;
        }
        let Body::Call(call) = &message.body else {
            return false;
        };
        self.note_followed(&call.request);
        if roles::is_detour(&call.request) {
            world.detours_left = world.detours_left.saturating_sub(1);
        }
        write(world, message.slot, call, decision);
        true
    }
}

/// The lease of what a client is at.
pub(super) fn lease_of(world: &mut World, client: usize) -> Option<&mut Lease> {
    match &world.clients[client] {
        Client::Busy(work) => world.slots[work.slot].lease.as_mut(),
        _ => None,
    }
}

/// One interval goes by after a claim, without a word.
pub(super) fn let_interval_pass(lease: &mut Lease) {
    let interval = i64::from(lease.heartbeat_interval_seconds) * 1000;
    lease.claimed_at = Timestamp(NOW.0 - interval);
    lease.last_heartbeat_at = lease.claimed_at;
}

fn write(world: &mut World, at: usize, call: &TaskCall, decision: &Decision) {
    let broken = broken_rule(&world.slots[at], call, decision);
    world.broken = world.broken.or(broken);
    let slot = &mut world.slots[at];
    if decision.task.intent.is_some() && slot.task.intent.is_none() {
        slot.landed = false;
    }
    slot.task = decision.task.clone();
    match &decision.locks {
        LockChange::Keep => {}
        LockChange::Take(locks) => slot.locks.clone_from(locks),
        LockChange::Release => slot.locks.clear(),
    }
    match &decision.lease {
        LeaseChange::Keep => {}
        LeaseChange::Set(lease) => slot.lease = Some(lease.clone()),
        LeaseChange::End => slot.lease = None,
    }
    for run in &decision.runs {
        slot.run = Some(run.clone());
    }
    if decision.receipt.is_some() {
        slot.receipts.push(Kept {
            request: call.request.clone(),
            answer: decision.answer.clone(),
        });
    }
    if let Some(created) = &decision.created {
        add(world, &created.task, &created.events);
    }
}

/// A new task.
pub(super) fn add(world: &mut World, task: &Task, events: &[TaskEvent]) {
    let mut rebuilt = Task::blank(task.id.clone());
    let mut events = events.iter();
    let folded = events.try_for_each(|event| extend(&mut rebuilt, event));
    if folded.is_err() || rebuilt != *task {
        world.broken = world.broken.or(Some(STEP_RULES[1]));
    }
    world.slots.push(Slot::of(task));
}

/// What a transaction may never do, whatever was asked.
fn broken_rule(slot: &Slot, call: &TaskCall, decision: &Decision) -> Option<&'static str> {
    let (before, after) = (&slot.task, &decision.task);
    if let Some(token) = call.request.token().filter(|_| !decision.replayed) {
        let lease = slot.lease.as_ref();
        if !lease.is_some_and(|lease| lease.token == token && lease.owner == call.actor) {
            return Some(STEP_RULES[0]);
        }
    }
    let lease = slot.lease.as_ref();
    let begun = |lease: &Lease| lease.last_heartbeat_at > lease.claimed_at;
    if call.request == Request::TakeBack && lease.is_some_and(begun) {
        return Some(STEP_RULES[5]);
    }
    let starts = matches!(call.request, Request::Claim(_)) && !decision.replayed;
    if starts && before.paused && before.intent.is_none() {
        return Some(STEP_RULES[6]);
    }
    // A repair changes what stands beside the row.
    if before.state.is_terminal() && call.request != Request::Repair {
        let kept = after.state == before.state
            && after.owner == before.owner
            && decision.locks == LockChange::Keep
            && decision.lease == LeaseChange::Keep
            && decision.runs.is_empty()
            && decision.events.len() == 1;
        if !kept {
            return Some(STEP_RULES[3]);
        }
    }
    let mut rebuilt = before.clone();
    let folded = decision
        .events
        .iter()
        .try_for_each(|event| extend(&mut rebuilt, event));
    if folded.is_err() || rebuilt != *after {
        return Some(STEP_RULES[1]);
    }
    let rewritten = |run: &TaskRun| {
        slot.run.as_ref().is_some_and(|old| {
            old.id == run.id
                && old.status != TaskRunStatus::Running
                && (old.status, old.category, &old.result)
                    != (run.status, run.category, &run.result)
        })
    };
    decision.runs.iter().any(rewritten).then_some(STEP_RULES[2])
}

/// The base moves: what was its tip is its past.
pub(super) fn base_moves(world: &mut World) {
    let past = |call: &mut TaskCall| {
        if let Request::RecordIntent { intent, .. } | Request::SettleIntent { intent, .. } =
            &mut call.request
        {
            intent.old_base = roles::moved(&intent.old_base).to_owned();
        }
    };
    let rename = |message: &mut Message| match &mut message.body {
        Body::Call(call) => past(call),
        Body::MoveBase { from } => *from = roles::moved(from),
    };
    world.network.iter_mut().for_each(rename);
    for client in &mut world.clients {
        if let Client::Waiting { message, .. } = client {
            rename(message);
        }
    }
    for slot in &mut world.slots {
        let kept = slot
            .receipts
            .iter_mut()
            .filter_map(|kept| match &mut kept.request {
                Request::SettleIntent { intent, .. } => Some(intent),
                _ => None,
            });
        for intent in slot.task.intent.iter_mut().chain(kept) {
            intent.old_base = roles::moved(&intent.old_base).to_owned();
        }
    }
}

/// Whether the owner of the lease lives and its heartbeats come through.
fn renews(world: &World, at: usize) -> bool {
    let Some(lease) = &world.slots[at].lease else {
        return false;
    };
    let holds = |work: &Work| work.slot == at && work.token == lease.token;
    let lives = world.clients.iter().any(|client| match client {
        Client::Idle => false,
        Client::Busy(work) => holds(work),
        Client::Waiting { work, .. } => work.as_ref().is_some_and(holds),
    });
    lives && !lease.is_expired(NOW)
}

/// What the store knows about a task.
pub(super) fn facts(world: &World, at: usize, token: Option<u64>) -> Facts {
    let slot = &world.slots[at];
    let receipt = slot
        .receipts
        .iter()
        .find(|kept| token.is_some() && kept.request.token() == token);
    Facts {
        lease: slot.lease.clone(),
        run: slot.run.clone(),
        receipt: receipt.map(|kept| Receipt {
            task_id: slot.task.id.clone(),
            token: token.unwrap_or(0),
            digest: kept.request.digest(),
            answer: kept.answer.clone(),
        }),
        dependencies: slot
            .task
            .dependencies
            .iter()
            .map(|id| Dependency {
                id: id.clone(),
                chain: chain(world, id),
            })
            .collect(),
        locks: locks(world),
        unmerged: unmerged(world),
        is_merge_head: is_merge_head(world, at),
        repaired: (slot.task.blocked_on() == Some(BlockReason::LedgerInconsistent))
            .then_some(!world.damaged),
        ..Facts::default()
    }
}

pub(super) fn chain(world: &World, id: &TaskId) -> DependencyChain {
    let find = |id: &TaskId| world.slots.iter().find(|slot| slot.task.id == *id);
    let mut next = find(id);
    while let Some(slot) = next {
        match (&slot.task.superseded_by, slot.task.state) {
            (Some(successor), _) => next = find(successor),
            (None, TaskState::Done) => return DependencyChain::Done(NOW),
            (None, TaskState::Failed | TaskState::Canceled) => return DependencyChain::Dead,
            _ => return DependencyChain::Alive,
        }
    }
    DependencyChain::Dead
}

pub(super) fn locks(world: &World) -> Vec<ScopeLock> {
    let of_slot = |slot: &Slot| {
        let id = slot.task.id.clone();
        let locks = slot.locks.clone().into_iter();
        locks.map(move |resource| ScopeLock {
            task_id: id.clone(),
            resource,
        })
    };
    world.slots.iter().flat_map(of_slot).collect()
}

fn unmerged(world: &World) -> Vec<UnmergedResult> {
    let waits = |slot: &&Slot| slot.task.has_unmerged_result();
    let result = |slot: &Slot| UnmergedResult {
        task_id: slot.task.id.clone(),
        lineage: slot.task.lineage.root.clone(),
        scope: slot.task.lock_scope.clone(),
    };
    world.slots.iter().filter(waits).map(result).collect()
}

/// The first approved result in the order of the tasks.
pub(super) fn is_merge_head(world: &World, at: usize) -> bool {
    let queued = |slot: &Slot| {
        !slot.task.state.is_terminal()
            && slot.task.phase == TaskPhase::Judge
            && slot.task.blocked_on() != Some(BlockReason::ChangedJudge)
            && (!slot.task.paused || slot.task.intent.is_some())
            && slot.run.as_ref().is_some_and(TaskRun::is_approved)
    };
    world.slots.iter().position(queued) == Some(at)
}

pub(super) fn inconsistencies(
    world: &World,
    slots: &[Slot],
    complete: bool,
) -> Vec<crate::reconcile::Inconsistency> {
    let tasks: Vec<Task> = slots.iter().map(|slot| slot.task.clone()).collect();
    let leases: Vec<_> = slots.iter().filter_map(|slot| slot.lease.clone()).collect();
    let runs: Vec<_> = slots.iter().filter_map(|slot| slot.run.clone()).collect();
    reconcile(&ReconcileSnapshot {
        tasks: &tasks,
        last_events: &[],
        locks: &locks(world),
        leases: &leases,
        runs: &runs,
        complete,
    })
}
