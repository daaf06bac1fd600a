//! The cycle manager: leads on what is blocked, brings in what waits outside, and cleans
//! up. It never touches live work.

use std::sync::atomic::{AtomicU64, Ordering};

use runner_core::digest::sha256_hex;
use runner_ledger::{LedgerCall, LedgerError};
use runner_lifecycle::decide::Answer;
use runner_lifecycle::request::NewPacket;
use runner_lifecycle::{
    BlockReason, Facts, RefusalCode, Request, ReworkCause, Task, TaskId, TaskKind, TaskState,
    Timestamp,
};

use super::role_lease::while_role_lease_held;
use super::sweep::sweep;
use super::{LOOK_EVERY_SECS, RoleContext, RoleRule, RoleWait, StoreBackoff, WakeReason};
use crate::backlog::OutsideWork;
use crate::ledger_port::LedgerResult;
use crate::rules::policy::{has_safe_path, policy_packet, replan_packet, setup_packet};
use crate::workspaces::StopSign;

/// How much is looked at in one go.
const PAGE_SIZE: u32 = 100;
/// How far back changes are looked at again: a store of several machines may show one
/// after a later one.
const MARGIN_MILLIS: i64 = 60 * 1000;
/// The longest id of a task.
const MAX_ID: usize = 64;

/// What the cycle manager did so far in this life.
#[derive(Debug, Default)]
pub struct CycleStatistics {
    /// The events before which it has done all that there was to do, plus one; 0: it has not looked
    /// yet.
    pub settled: AtomicU64,
    /// Tasks that it led on.
    pub recovered: AtomicU64,
    /// Successors that it made.
    pub successors: AtomicU64,
    /// Tasks that it brought in.
    pub imported: AtomicU64,
}

impl CycleStatistics {
    /// Takes note that a look that began after this event has ended.
    fn note_settled(&self, seq: i64) {
        let seq = u64::try_from(seq).unwrap_or(0);
        self.settled.store(seq + 1, Ordering::Relaxed);
    }

    /// Whether nothing has happened since a whole look began: while one goes on, a task that waits
    /// for a person may be about to be led on.
    pub(crate) fn has_settled(&self, seq: i64) -> bool {
        let seq = u64::try_from(seq).unwrap_or(0);
        self.settled.load(Ordering::Relaxed) > seq
    }
}

/// The id of the successor of a task: the same for everybody who makes it.
pub fn successor_id(task: &Task) -> TaskId {
    let suffix = format!(".{}", task.lineage.tasks + 1);
    let root = task.lineage.root.as_str();
    let plain = format!("{root}{suffix}");
    let text = if plain.len() <= MAX_ID {
        plain
    } else {
        let hash = &sha256_hex(root.as_bytes())[..8];
        let room = MAX_ID - suffix.len() - hash.len() - 1;
        format!("{}-{hash}{suffix}", &root[..room.min(root.len())])
    };
    // Made of an id, digits and dots, and not too long.
    TaskId::parse(&text).unwrap_or_else(|_| task.id.clone())
}

/// The packet that the recovery table may ask for.
pub fn packet_for(task: &Task, guard: &[String]) -> Option<NewPacket> {
    match (task.blocked_on()?, task.rework_cause) {
        (BlockReason::NeedsRework, Some(ReworkCause::Setup)) => {
            let note = task.blocker.as_ref().map_or("", |b| b.reason.as_str());
            Some(setup_packet(task, note, guard))
        }
        (BlockReason::NeedsRework, Some(ReworkCause::Policy)) => policy_packet(task),
        (reason, _) if reason.code().is_some_and(RefusalCode::needs_new_packet) => {
            Some(replan_packet(task))
        }
        _ => None,
    }
}

/// Recovers while it holds its role lease, until the sign is raised.
pub async fn run(
    context: &RoleContext,
    name: &str,
    statistics: &CycleStatistics,
    stop: StopSign,
) -> LedgerResult<()> {
    let body = |_| {
        let stop = stop.clone();
        async move {
            let mut watch = RoleWait::new(context, stop).await?;
            let mut cycle = Cycle {
                context,
                name,
                statistics,
                since: Timestamp(0),
                whole_look_at: Timestamp(0),
                ended: None,
            };
            cycle.turn_around(&mut watch).await
        }
    };
    while_role_lease_held(context, "cycle", name, stop.clone(), body).await
}

/// Whether what becomes of a task depends on what its pull request is now: it may have
/// another head, and nobody works on what is out of date.
fn needs_pull_request(task: &Task) -> bool {
    let on = task.blocked_on();
    task.kind == TaskKind::Review
        && matches!(
            on,
            Some(BlockReason::NeedsRework | BlockReason::AwaitingJudge)
        )
}

struct Cycle<'c> {
    context: &'c RoleContext,
    name: &'c str,
    statistics: &'c CycleStatistics,
    /// Changes before that were looked at.
    since: Timestamp,
    /// When everything is looked at again.
    whole_look_at: Timestamp,
    /// How many tasks had ended when the workspaces were swept.
    ended: Option<u64>,
}

impl Cycle<'_> {
    async fn turn_around(&mut self, watch: &mut RoleWait) -> LedgerResult<()> {
        let context = self.context;
        let mut backoff = StoreBackoff::default();
        let mut outside = context.backlog.changes();
        while !watch.stop.is_raised() {
            let turn = self.turn().await;
            if backoff
                .pause_if_transient(context, &mut watch.stop, turn)
                .await?
                .is_some()
            {
                let woke = watch.until_outside(self.whole_look_at, &mut outside);
                if woke.await == WakeReason::Outside {
                    self.whole_look_at = context.clock.now();
                }
            }
        }
        Ok(())
    }

    async fn turn(&mut self) -> LedgerResult<()> {
        let head = self.context.ledger.event_head().await?;
        let whole = self.context.clock.now() >= self.whole_look_at;
        let now = self.context.ledger.now().await?;
        let mut outside = None;
        if whole {
            self.since = Timestamp(0);
            outside = self.context.backlog.sync().await.ok();
            if let Some(outside) = &outside {
                self.bring_in(outside).await?;
            }
        }
        if self.context.keeps(RoleRule::Recovery) {
            self.recover_all(outside).await?;
        }
        self.since = Timestamp(now.0 - MARGIN_MILLIS);
        if whole {
            self.clean_up().await?;
            self.whole_look_at = self.context.clock.now().plus_secs(LOOK_EVERY_SECS);
        }
        self.statistics.note_settled(head.seq());
        Ok(())
    }

    /// Follows the recovery table for everything that changed, and for what that changes.
    async fn recover_all(&mut self, mut outside: Option<OutsideWork>) -> LedgerResult<()> {
        let mut since = self.since;
        loop {
            let blocked = self.context.ledger.to_recover(since, PAGE_SIZE).await?;
            let mut moved = false;
            for task in &blocked {
                if needs_pull_request(task) && outside.is_none() {
                    outside = self.context.backlog.sync().await.ok();
                }
                moved |= self.recover(task, outside.as_ref()).await?;
            }
            let full = u32::try_from(blocked.len()).is_ok_and(|count| count >= PAGE_SIZE);
            let last = blocked.last().map(|task| task.updated_at);
            match last {
                // Whoever was led on is not among them again, unless changed again.
                Some(last) if full && (moved || last > since) => since = last,
                _ => return Ok(()),
            }
        }
    }

    /// Whether the table had something to do for the task.
    async fn recover(&self, task: &Task, outside: Option<&OutsideWork>) -> LedgerResult<bool> {
        let context = self.context;
        let source = task.source.as_deref().unwrap_or_default();
        let issue = outside.and_then(|outside| outside.issues.get(source));
        let pull_request = outside.and_then(|outside| outside.pull_requests.get(source));
        let unread = outside.is_none_or(|outside| !outside.failures.is_empty());
        if needs_pull_request(task)
            && pull_request.is_none()
            && unread
            && context.keeps(RoleRule::NewHead)
        {
            return Ok(false);
        }
        let mut facts = Facts {
            safe_path: has_safe_path(task),
            issue: issue
                .filter(|_| context.keeps(RoleRule::IssueFacts))
                .cloned(),
            pull_request: pull_request
                .filter(|_| context.keeps(RoleRule::NewHead))
                .cloned(),
            ..Facts::default()
        };
        let mut version = task.version;
        if task.blocked_on() == Some(BlockReason::LedgerInconsistent)
            && context.keeps(RoleRule::Repair)
        {
            facts.repaired = Some(context.ledger.repair(&task.id).await?);
            // The repair itself may have been an event of this task.
            let repaired = context.ledger.task(&task.id).await?;
            version = repaired.map_or(version, |task| task.version);
        }
        let request = Request::Recover {
            packet: packet_for(task, &context.settings.guard),
            successor: (task.kind != TaskKind::Research).then(|| successor_id(task)),
        };
        let mut call = LedgerCall::new(task.id.clone(), self.name, request).for_version(version);
        call.outside = facts;
        let outcome = match context.ledger.call("recover", &call).await {
            Ok(outcome) => outcome,
            // Somebody was faster, or it lives again.
            Err(LedgerError::Refused(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        if outcome.created.is_some() {
            self.statistics.successors.fetch_add(1, Ordering::Relaxed);
        }
        let moved = outcome.answer != Answer::Unchanged;
        if moved {
            self.statistics.recovered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(moved)
    }

    /// Makes tasks of what waits outside. A source that fails says so at preflight and
    /// keeps the planner from planning; what it would have said is not known.
    async fn bring_in(&self, outside: &OutsideWork) -> LedgerResult<()> {
        let context = self.context;
        if !context.keeps(RoleRule::Import) {
            return Ok(());
        }
        let review_off = Facts {
            review_off: !context.settings.review,
            ..Facts::default()
        };
        for new in &outside.tasks {
            if context.ledger.task(&new.id).await?.is_some() {
                continue;
            }
            let made = context
                .ledger
                .create(self.name, new.clone(), review_off.clone());
            match made.await {
                Ok(_) => {
                    self.statistics.imported.fetch_add(1, Ordering::Relaxed);
                }
                // It is there by now, or cannot be one: nothing here can fix that.
                Err(LedgerError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sweeps the workspaces when tasks have ended since the last time.
    async fn clean_up(&mut self) -> LedgerResult<()> {
        let counts = self.context.ledger.counts().await?;
        let ended = counts
            .iter()
            .filter(|count| {
                matches!(
                    count.state,
                    TaskState::Done | TaskState::Failed | TaskState::Canceled
                )
            })
            .map(|count| count.tasks)
            .sum();
        if self.ended != Some(ended) {
            sweep(self.context).await?;
            self.ended = Some(ended);
        }
        Ok(())
    }
}
