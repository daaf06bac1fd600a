//! What lies around a scope: who holds a part of it, who keeps it free, whether anything may
//! start at all.

use std::collections::BTreeSet;

use runner_lifecycle::lock::{Resource, ScopeLock, WHOLE_REPO};
use runner_lifecycle::ready;
use runner_lifecycle::request::{Reservation, UnmergedResult};
use runner_lifecycle::{Facts, Policy, Task, Timestamp};

use crate::call::facts::dependencies;
use crate::call::records;
use crate::error::StoreError;
use crate::store::engine::{SqlArg, SqlRow, SqlText, StoreTx, all, one};

const IS_PAUSED: &str = "SELECT value FROM flags WHERE name = 'paused'";

/// Whether the fleet is paused.
pub(crate) async fn is_paused(tx: &mut dyn StoreTx) -> Result<bool, StoreError> {
    let row = one(tx, IS_PAUSED, &[]).await?;
    Ok(row.is_some_and(|row| row.text(0).is_ok_and(|value| value == "true")))
}

macro_rules! overlapping_on_sqlite {
    () => {
        "SELECT h.task_id, h.resource, NULL FROM locks h \
         WHERE h.resource IN (SELECT value FROM json_each($1)) \
         UNION ALL SELECT h.task_id, h.resource, NULL \
         FROM json_each($2) f CROSS JOIN json_each($3) u ON f.key = u.key \
         CROSS JOIN locks h ON h.resource >= f.value AND h.resource < u.value \
         UNION ALL SELECT h.task_id, h.resource, h.lineage FROM unmerged h \
         WHERE h.resource IN (SELECT value FROM json_each($1)) \
         UNION ALL SELECT h.task_id, h.resource, h.lineage \
         FROM json_each($2) f CROSS JOIN json_each($3) u ON f.key = u.key \
         CROSS JOIN unmerged h ON h.resource >= f.value AND h.resource < u.value"
    };
}
const OVERLAPPING: SqlText = SqlText {
    sqlite: overlapping_on_sqlite!(),
    postgres: "SELECT h.task_id, h.resource, NULL FROM locks h WHERE h.resource = ANY($1) \
               UNION ALL SELECT h.task_id, h.resource, NULL \
               FROM unnest($2::text[], $3::text[]) AS r(f, u) \
               JOIN locks h ON h.resource >= r.f AND h.resource < r.u \
               UNION ALL SELECT h.task_id, h.resource, h.lineage FROM unmerged h \
               WHERE h.resource = ANY($1) \
               UNION ALL SELECT h.task_id, h.resource, h.lineage \
               FROM unnest($2::text[], $3::text[]) AS r(f, u) \
               JOIN unmerged h ON h.resource >= r.f AND h.resource < r.u",
};

/// The names of a scope and of everything above it, and the ranges of names inside it.
struct ScopeNames([Vec<String>; 3]);

impl ScopeNames {
    fn of(scope: &[Resource]) -> ScopeNames {
        let mut named = BTreeSet::new();
        let (mut from, mut until) = (Vec::new(), Vec::new());
        for resource in scope {
            let text = resource.as_str();
            if text == WHOLE_REPO {
                // Every name but those that begin with `@`.
                from.extend([String::new(), "A".to_owned()]);
                until.extend(["@".to_owned(), char::MAX.to_string()]);
                continue;
            }
            named.insert(text.to_owned());
            named.extend(resource.ancestors().into_iter().map(String::from));
            from.push(format!("{text}/"));
            until.push(format!("{text}0")); // `0` follows `/`
        }
        ScopeNames([named.into_iter().collect(), from, until])
    }

    fn args(&self) -> [SqlArg<'_>; 3] {
        self.0.each_ref().map(|names| SqlArg::Texts(names))
    }
}

/// The locks and the unmerged results that overlap a scope.
pub(crate) type ScopeOverlaps = (Vec<ScopeLock>, Vec<UnmergedResult>);

/// Adds one that overlaps: a lock, or a result, which has a lineage.
fn add(to: &mut ScopeOverlaps, row: &SqlRow) -> Result<(), StoreError> {
    let task_id = records::task_id(&row.text(0)?)?;
    let resource = resource(&row.text(1)?)?;
    let Some(lineage) = row.maybe_text(2)? else {
        to.0.push(ScopeLock { task_id, resource });
        return Ok(());
    };
    // In the order of their ids, whatever order the store has.
    match to.1.binary_search_by(|result| result.task_id.cmp(&task_id)) {
        Ok(at) => to.1[at].scope.push(resource),
        Err(at) => {
            let result = UnmergedResult {
                task_id,
                lineage: records::task_id(&lineage)?,
                scope: vec![resource],
            };
            to.1.insert(at, result);
        }
    }
    Ok(())
}

/// What overlaps a scope: the resource itself and everything above it by name, everything
/// inside it as a range of names.
pub(crate) async fn overlapping(
    tx: &mut dyn StoreTx,
    scope: &[Resource],
) -> Result<ScopeOverlaps, StoreError> {
    let mut found = ScopeOverlaps::default();
    for row in &all(tx, OVERLAPPING, &ScopeNames::of(scope).args()).await? {
        add(&mut found, row)?;
    }
    Ok(found)
}

/// All that a claim for work must know, in one answer: what overlaps its scope, whether the
/// fleet is paused, and the first of those that wait for locks.
pub(crate) struct ClaimContext {
    pub(crate) overlapping: ScopeOverlaps,
    pub(crate) paused: bool,
    pub(crate) first_waiting: Option<(Timestamp, Task)>,
}

/// The first in order of those that wait for locks.
macro_rules! first_waiting {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM tasks WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NOT NULL \
             ORDER BY rank, created_at, id LIMIT 1"
        )
    };
}

const AROUND: &str = concat!(
    overlapping_on_sqlite!(),
    " UNION ALL SELECT NULL, value, NULL FROM flags WHERE name = 'paused' \
     UNION ALL SELECT * FROM (",
    first_waiting!("NULL, doc, CAST(ready_since AS TEXT)"),
    ")"
);

pub(crate) async fn claim_context(
    tx: &mut dyn StoreTx,
    scope: &[Resource],
) -> Result<ClaimContext, StoreError> {
    let mut claim_context = ClaimContext {
        overlapping: ScopeOverlaps::default(),
        paused: false,
        first_waiting: None,
    };
    for row in &all(tx, AROUND, &ScopeNames::of(scope).args()).await? {
        match (row.maybe_text(0)?, row.maybe_text(2)?) {
            (Some(_), _) => add(&mut claim_context.overlapping, row)?,
            (None, None) => claim_context.paused = row.text(1)? == "true",
            (None, Some(since)) => {
                let since = records::parse("a time", &since)?;
                claim_context.first_waiting = Some((since, records::task(&row.text(1)?)?));
            }
        }
    }
    Ok(claim_context)
}

pub(crate) fn resource(text: &str) -> Result<Resource, StoreError> {
    Resource::parse(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

const FIRST_WAITING: &str = first_waiting!("ready_since, doc");

/// The scope that the first of those that wait for locks keeps free, if it waited long
/// enough and comes before the task in question.
pub(crate) async fn reserved(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    task: &Task,
    outside: &Facts,
    now: Timestamp,
) -> Result<Vec<Reservation>, StoreError> {
    let Some(row) = one(tx, FIRST_WAITING, &[]).await? else {
        return Ok(Vec::new());
    };
    let waiting = (Timestamp(row.int(0)?), records::task(&row.text(1)?)?);
    reserves(tx, policy, task, waiting, outside, now).await
}

pub(crate) async fn reserves(
    tx: &mut dyn StoreTx,
    policy: &Policy,
    task: &Task,
    (since, first): (Timestamp, Task),
    outside: &Facts,
    now: Timestamp,
) -> Result<Vec<Reservation>, StoreError> {
    if now.millis_since(since) < policy.reserve_after_secs.saturating_mul(1000) {
        return Ok(Vec::new());
    }
    if runner_lifecycle::order::order_key(task) <= runner_lifecycle::order::order_key(&first) {
        return Ok(Vec::new());
    }
    let (locks, unmerged) = overlapping(tx, &first.work_scope()).await?;
    let facts = Facts {
        dependencies: dependencies(tx, &first.dependencies).await?,
        locks,
        unmerged,
        lane_full: false,
        ..outside.clone()
    };
    Ok(ready::reservation(policy, &first, &facts, now)
        .into_iter()
        .collect())
}
