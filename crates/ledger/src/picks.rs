//! Claims on a store that finds a task and what its claim must know in one go.

use runner_lifecycle::{Facts, Lane, Timestamp};

use crate::claims::{Found, Wanted};
use crate::engine::{Pick, Row, Session};
use crate::error::{LedgerError, StoreError};
use crate::facts::{self, Loaded, Overlapping};
use crate::ledger::Ledger;
use crate::records::{self, int};

/// The task that this claim got before or else the first in order, its row locked and its
/// scope serialised.
pub(crate) async fn pick(
    ledger: &Ledger,
    session: &mut dyn Session,
    wanted: &Wanted,
    repeated: bool,
) -> Result<Option<Found>, LedgerError> {
    let own_clock = (!ledger.server_clock).then(|| ledger.clock.now().0);
    let rows = session
        .pick(Pick {
            owner: &wanted.owner,
            key: &wanted.key,
            role: &wanted.role,
            lane: wanted.lane.map(Lane::as_str),
            now: own_clock,
            repeated,
            reserve_after: int(ledger.policy.reserve_after_secs.saturating_mul(1000)),
        })
        .await?;
    let Some((task, rest)) = rows.split_first() else {
        return Ok(None);
    };
    if task.int(0)? == 0 {
        let id = records::task_id(&task.text(1)?)?;
        return ledger.look_at(session, wanted, &wanted.call(), &id).await;
    }
    let (loaded, now) = (loaded(task)?, Timestamp(task.int(5)?));
    let mut facts = Facts {
        lease: None,
        run: loaded.run.clone(),
        receipt: None,
        fleet_paused: task.int(6)? != 0,
        dependencies: Vec::new(),
        reservations: Vec::new(),
        ..wanted.outside.clone()
    };
    let mut overlapping = Overlapping::default();
    let mut first = None;
    for row in rest {
        match row.int(0)? {
            2 => overlapping.add(row, 1)?,
            3 => facts.dependencies.extend(facts::end_of_chain(row, 1)?),
            _ => first = Some(row.text(1)?),
        }
    }
    (facts.locks, facts.unmerged) = overlapping.sorted();
    if let Some(first) = first {
        let (policy, task) = (&ledger.policy, &loaded.task);
        facts.reservations =
            facts::reserved_by(session, policy, task, &first, &wanted.outside, now).await?;
    }
    Ok(Some(Found { loaded, facts, now }))
}

fn loaded(row: &Row) -> Result<Loaded, StoreError> {
    let run = row.maybe_text(4)?;
    Ok(Loaded {
        task: records::task(&row.text(1)?)?,
        // Nobody holds a task that may be claimed.
        lease: None,
        run: run.as_deref().map(records::run).transpose()?,
        receipt: None,
        waits_for: row.maybe_text(2)?,
        woken_from: row.maybe_text(3)?,
        lineage: None,
    })
}
