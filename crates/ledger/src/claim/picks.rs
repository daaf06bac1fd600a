//! Claims on a store that finds a task and what its claim must know in one go.

use runner_lifecycle::{Facts, Lane, Timestamp};

use crate::batch::claims::ClaimKind;
use crate::call::facts;
use crate::call::facts::LoadedTask;
use crate::call::records;
use crate::call::records::int;
use crate::claim::claims::{ClaimCandidate, ClaimRequest};
use crate::claim::context;
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::store::engine::{BatchPick, ClaimPick, SqlRow, StoreTx};

/// The task that this claim got before or else the first in order, its row locked and its
/// scope serialised.
pub(crate) async fn pick(
    ledger: &Ledger,
    tx: &mut dyn StoreTx,
    claim_request: &ClaimRequest,
    repeated: bool,
) -> Result<Option<ClaimCandidate>, LedgerError> {
    let rows = tx
        .pick(ClaimPick {
            owner: &claim_request.owner,
            key: &claim_request.key,
            role: &claim_request.role,
            lane: claim_request.lane.map(Lane::as_str),
            now: own_clock(ledger),
            repeated,
            reserve_after: reserve_after(ledger),
        })
        .await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    if let Some(before) = row.maybe_text(0)? {
        let id = records::task_id(&before)?;
        return ledger
            .look_at(tx, claim_request, &claim_request.call(), &id)
            .await;
    }
    let picked = PickedTask::from(ledger, row)?;
    let (mut facts, now) = (picked.facts(claim_request), picked.now);
    let (loaded, more) = (picked.loaded, picked.more);
    let task = &loaded.task;
    if more & OVERLAPS != 0 {
        (facts.locks, facts.unmerged) = context::overlapping(tx, &task.work_scope()).await?;
    }
    if !task.dependencies.is_empty() {
        facts.dependencies = facts::dependencies(tx, &task.dependencies).await?;
    }
    if more & RESERVED != 0 {
        let (policy, outside) = (&ledger.policy, &claim_request.outside);
        facts.reservations = context::reserved(tx, policy, task, outside, now).await?;
    }
    Ok(Some(ClaimCandidate { loaded, facts, now }))
}

/// The first tasks in order, at most so many, their rows locked and their scopes serialised.
pub(crate) async fn pick_some(
    ledger: &Ledger,
    tx: &mut dyn StoreTx,
    (role, lane): &ClaimKind,
    most: usize,
) -> Result<Vec<PickedTask>, LedgerError> {
    let rows = tx
        .pick_some(BatchPick {
            role,
            lane: lane.map(Lane::as_str),
            now: own_clock(ledger),
            reserve_after: reserve_after(ledger),
            most,
        })
        .await?;
    let picked = rows.iter().map(|row| Ok(PickedTask::from(ledger, row)?));
    picked.collect()
}

fn own_clock(ledger: &Ledger) -> Option<i64> {
    (!ledger.server_clock).then(|| ledger.clock.now().0)
}

fn reserve_after(ledger: &Ledger) -> i64 {
    int(ledger.policy.reserve_after_secs.saturating_mul(1000))
}

/// A task that a worker may try.
pub(crate) struct PickedTask {
    pub(crate) loaded: LoadedTask,
    pub(crate) now: Timestamp,
    paused: bool,
    more: i64,
}

impl PickedTask {
    fn from(ledger: &Ledger, row: &SqlRow) -> Result<PickedTask, StoreError> {
        Ok(PickedTask {
            loaded: loaded(row)?,
            now: ledger.time(Timestamp(row.int(5)?)),
            paused: row.int(6)? != 0,
            more: row.int(7)?,
        })
    }

    /// Whether there is nothing more to know.
    pub(crate) fn is_plain(&self) -> bool {
        self.more == 0 && self.loaded.task.dependencies.is_empty()
    }

    /// What a claim must know, if there is nothing more.
    pub(crate) fn facts(&self, claim_request: &ClaimRequest) -> Facts {
        Facts {
            lease: None,
            run: self.loaded.run.clone(),
            receipt: None,
            fleet_paused: self.paused,
            dependencies: Vec::new(),
            locks: Vec::new(),
            unmerged: Vec::new(),
            reservations: Vec::new(),
            ..claim_request.outside.clone()
        }
    }
}

/// What there is more to know, as `ledger_pick` says it: something overlaps the scope,
/// somebody who comes before it waited for long.
const OVERLAPS: i64 = 1;
const RESERVED: i64 = 4;

fn loaded(row: &SqlRow) -> Result<LoadedTask, StoreError> {
    let run = row.maybe_text(4)?;
    Ok(LoadedTask {
        task: records::task(&row.text(1)?)?,
        // Nobody holds a task that may be claimed.
        lease: None,
        run: run.as_deref().map(records::run).transpose()?,
        receipt: None,
        waits_for: row.maybe_text(2)?,
        woken_from: row.maybe_text(3)?,
        ready_since: Timestamp(row.int(8)?),
        lineage: None,
    })
}
