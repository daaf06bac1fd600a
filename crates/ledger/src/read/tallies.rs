//! Counts over runs and events, for those who watch a fleet from outside.

use runner_lifecycle::recovery::is_parked;
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{Facts, Request, TaskId, TaskRunStatus};

use crate::call::facts;
use crate::call::records;
use crate::call::records::int;
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::read::reads::docs;
use crate::store::engine::{SqlArg, SqlText, StoreAccess, all, one};

/// How long tasks that could have started waited until they did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// How many runs that is known of.
    pub runs: u64,
    /// All of their waits together.
    pub sum_millis: u64,
    /// For each bound in milliseconds, how many waited no longer.
    pub within: Vec<(u64, u64)>,
}

const BY_STATUS: &str = "SELECT status, COUNT(*) FROM runs GROUP BY status";
const WAITED: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(waited_millis), 0) AS BIGINT) FROM runs \
     WHERE waited_millis IS NOT NULL";
const WAITED_WITHIN: &str = "SELECT COUNT(*) FROM runs \
     WHERE waited_millis IS NOT NULL AND waited_millis <= $1";
const EXPIRED: SqlText = SqlText {
    sqlite: "SELECT COUNT(*) FROM events WHERE seq > $1 AND seq <= $2 AND to_state = 'blocked' \
             AND json_extract(doc, '$.reason') = 'task_timeout'",
    postgres: "SELECT COUNT(*) FROM events WHERE seq > $1 AND seq <= $2 AND to_state = 'blocked' \
               AND CAST(doc AS json) ->> 'reason' = 'task_timeout'",
};
const NEWEST: SqlText = SqlText {
    sqlite: "SELECT (SELECT r.doc FROM runs r WHERE r.task_id = t.value \
             ORDER BY r.number DESC LIMIT 1) FROM json_each($1) t \
             WHERE EXISTS (SELECT 1 FROM runs r WHERE r.task_id = t.value)",
    postgres: "SELECT r.doc FROM unnest($1::text[]) AS t(id) CROSS JOIN LATERAL ( \
               SELECT doc FROM runs WHERE task_id = t.id ORDER BY number DESC LIMIT 1) r",
};

const NEITHER_CLOCK_NOR_JUDGE: &str = "SELECT id FROM tasks WHERE blocked_on IS NOT NULL \
     AND awaits IS NULL AND blocked_on <> 'cooldown' AND blocked_on <> 'quota_wait'";

impl Ledger {
    /// How many tasks wait for a person or the outside, as far as the ledger knows.
    pub async fn parked(&self) -> Result<u64, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let now = self.now_in(&mut *tx).await?;
        let request = Request::Recover {
            packet: None,
            successor: None,
        };
        let mut parked = 0;
        for row in all(&mut *tx, NEITHER_CLOCK_NOR_JUDGE, &[]).await? {
            let id = records::task_id(&row.text(0)?)?;
            let Some(loaded) = facts::load(&mut *tx, &id, None).await? else {
                continue;
            };
            let outside = Facts::default();
            let facts =
                facts::gather(&mut *tx, &self.policy, &loaded, &request, &outside, now).await?;
            parked += u64::from(is_parked(&self.policy, &loaded.task, &facts, now));
        }
        Ok(parked)
    }

    /// How many runs have each status.
    pub async fn runs_by_status(&self) -> Result<Vec<(TaskRunStatus, u64)>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut counts: Vec<(TaskRunStatus, u64)> = TaskRunStatus::ALL
            .iter()
            .map(|status| (*status, 0))
            .collect();
        for row in all(&mut *tx, BY_STATUS, &[]).await? {
            let word = row.text(0)?;
            let known = counts
                .iter_mut()
                .find(|(status, _)| status.as_str() == word);
            let (_, count) =
                known.ok_or_else(|| StoreError::Damaged(format!("a run is {word:?}")))?;
            *count = u64::try_from(row.int(1)?).unwrap_or(0);
        }
        Ok(counts)
    }

    /// How long tasks waited that could have started, against these bounds.
    pub async fn waits(&self, bounds_millis: &[u64]) -> Result<WaitTimes, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let mut waits = WaitTimes::default();
        if let Some(row) = one(&mut *tx, WAITED, &[]).await? {
            waits.runs = count(row.int(0)?);
            waits.sum_millis = count(row.int(1)?);
        }
        for bound in bounds_millis {
            let row = one(&mut *tx, WAITED_WITHIN, &[SqlArg::Int(int(*bound))]).await?;
            let within = row.map(|row| row.int(0)).transpose()?;
            waits.within.push((*bound, count(within.unwrap_or(0))));
        }
        Ok(waits)
    }

    /// How many leases ended unheard between two places of the sequence of events.
    pub async fn expiries(&self, after: i64, up_to: i64) -> Result<u64, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let args = [SqlArg::Int(after), SqlArg::Int(up_to)];
        let row = one(&mut *tx, EXPIRED, &args).await?;
        let count = row.map(|row| row.int(0)).transpose()?;
        Ok(count.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
    }

    /// The newest run of each of these tasks that has one.
    pub async fn newest_runs(&self, tasks: &[TaskId]) -> Result<Vec<TaskRun>, StoreError> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let ids: Vec<String> = tasks.iter().map(ToString::to_string).collect();
        docs(&mut *tx, NEWEST, &[SqlArg::Texts(&ids)], records::run).await
    }
}
