//! Figures: what was spent, how many tasks stand where, how long the first one waits.

use runner_lifecycle::{BlockReason, TaskId, TaskState, Timestamp};

use crate::call::records::int;
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::store::engine::{SqlArg, StoreAccess, all, one, run};

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendingTotals {
    /// Tokens that went in.
    pub input_tokens: u64,
    /// Tokens that came out.
    pub output_tokens: u64,
    /// What that cost, in millionths of a dollar.
    pub cost_micros: u64,
}

/// What a run used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpending {
    /// The attempt, or a session of another kind with a name of its own.
    pub run_id: String,
    /// Its task.
    pub task_id: TaskId,
    /// Who ran it.
    pub agent: String,
    /// The account that paid.
    pub account: String,
    /// How much.
    pub spending: SpendingTotals,
}

/// How many tasks stand in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCount {
    /// Their state.
    pub state: TaskState,
    /// What they wait for, if they are blocked.
    pub blocked_on: Option<BlockReason>,
    /// How many.
    pub tasks: u64,
}

const RECORD: &str = "INSERT INTO spendings (run_id, task_id, agent, account, input_tokens, \
     output_tokens, cost_micros, recorded_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
     ON CONFLICT (run_id) DO NOTHING";
const SPENT: &str = "SELECT CAST(COALESCE(SUM(input_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(cost_micros), 0) AS BIGINT) FROM spendings";
const SPENT_ON: &str = "SELECT CAST(COALESCE(SUM(input_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(output_tokens), 0) AS BIGINT), \
     CAST(COALESCE(SUM(cost_micros), 0) AS BIGINT) FROM spendings WHERE task_id = $1";
/// Blocked are those that have a reason, and no others.
const COUNTS: &str = "SELECT state, NULL, COUNT(*) FROM tasks WHERE state <> 'blocked' \
     GROUP BY state UNION ALL SELECT 'blocked', blocked_on, COUNT(*) FROM tasks \
     WHERE blocked_on IS NOT NULL GROUP BY blocked_on ORDER BY 1, 2";
const OLDEST: &str = "SELECT MIN(ready_since) FROM tasks \
     WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NULL";

impl Ledger {
    /// Notes what a run used, once. False: it was noted before.
    pub async fn record_spending(&self, spent: &RunSpending) -> Result<bool, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let now = self.now_in(&mut *tx).await?;
        let args = [
            SqlArg::Text(&spent.run_id),
            SqlArg::Text(spent.task_id.as_str()),
            SqlArg::Text(&spent.agent),
            SqlArg::Text(&spent.account),
            SqlArg::Int(int(spent.spending.input_tokens)),
            SqlArg::Int(int(spent.spending.output_tokens)),
            SqlArg::Int(int(spent.spending.cost_micros)),
            SqlArg::Int(now.0),
        ];
        let noted = run(&mut *tx, RECORD, &args).await? == 1;
        tx.commit().await?;
        Ok(noted)
    }

    /// What was spent on a task, or on everything.
    pub async fn spent(&self, task: Option<&TaskId>) -> Result<SpendingTotals, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let row = match task {
            Some(id) => one(&mut *tx, SPENT_ON, &[SqlArg::Text(id.as_str())]).await?,
            None => one(&mut *tx, SPENT, &[]).await?,
        };
        let Some(row) = row else {
            return Ok(SpendingTotals::default());
        };
        let count = |at: usize| Ok::<u64, StoreError>(u64::try_from(row.int(at)?).unwrap_or(0));
        Ok(SpendingTotals {
            input_tokens: count(0)?,
            output_tokens: count(1)?,
            cost_micros: count(2)?,
        })
    }

    /// How many tasks stand where.
    pub async fn counts(&self) -> Result<Vec<TaskCount>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let rows = all(&mut *tx, COUNTS, &[]).await?;
        let damaged = |text: &str| StoreError::Damaged(format!("{text:?} is no word"));
        rows.iter()
            .map(|row| {
                let (state, reason) = (row.text(0)?, row.maybe_text(1)?);
                let parse = |text: &String| BlockReason::parse(text).ok_or_else(|| damaged(text));
                Ok(TaskCount {
                    state: TaskState::parse(&state).ok_or_else(|| damaged(&state))?,
                    blocked_on: reason.as_ref().map(parse).transpose()?,
                    tasks: u64::try_from(row.int(2)?).unwrap_or(0),
                })
            })
            .collect()
    }

    /// Since when the oldest task that could start waits for somebody.
    pub async fn oldest_ready(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let row = one(&mut *tx, OLDEST, &[]).await?;
        let at = row.map(|row| row.maybe_int(0)).transpose()?.flatten();
        Ok(at.map(Timestamp))
    }
}
