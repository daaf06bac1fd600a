//! What a dispatcher and a cycle manager look at, always from an index.

use std::collections::BTreeMap;

use runner_lifecycle::run::Lease;
use runner_lifecycle::{Lane, LeasePurpose, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::records;
use crate::claim::context;
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::read::reads;
use crate::role::agents;
use crate::role::agents::{FleetAgent, agent_columns};
use crate::store::engine::{SqlArg, SqlText, StoreAccess, StoreTx, all, one, run};

/// The first ready task of a lane.
#[derive(Clone, Debug)]
pub struct ReadyTask {
    /// Its lane.
    pub lane: Lane,
    /// Its row.
    pub task: Task,
}

/// Work that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OngoingWork {
    /// Which.
    pub task_id: TaskId,
    /// Whose.
    pub owner: String,
    /// What for.
    pub purpose: LeasePurpose,
    /// Its lane.
    pub lane: Lane,
}

/// An account whose quota was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// How many tasks wait for its quota.
    pub waiting: u64,
    /// When it is there again, as the last one who met it was told.
    pub reset_at: Option<Timestamp>,
}

/// A base on which the guard is red.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedBase {
    /// The commit.
    pub commit: String,
    /// The task that was made to fix it.
    pub task: TaskId,
}

/// What waits for judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeQueue {
    /// When this was.
    pub now: Timestamp,
    /// Whether a result waits for a verdict.
    pub to_judge: bool,
    /// Whether an approved one waits for its merge.
    pub to_merge: bool,
    /// When the next one may be claimed that cannot be now.
    pub next_at: Option<Timestamp>,
    /// The base that was found red.
    pub red_base: Option<RedBase>,
}

/// Everything that a dispatcher must know of the fleet, at one point in time.
#[derive(Clone, Debug, Default)]
pub struct DispatchView {
    /// When this was.
    pub now: Timestamp,
    /// Whether nothing new may start.
    pub paused: bool,
    /// The agents that have not left, by name.
    pub agents: Vec<FleetAgent>,
    /// What goes on.
    pub busy: Vec<OngoingWork>,
    /// Accounts with tasks that wait for their quota.
    pub accounts: BTreeMap<String, AccountView>,
    /// The first ready task of each role and lane, in the order of the rules.
    pub ready: Vec<(String, ReadyTask)>,
    /// The base that was found red.
    pub red_base: Option<RedBase>,
}

const AGENTS_NOT_LEFT: &str = concat!(
    "SELECT ",
    agent_columns!(),
    " FROM agents a LEFT JOIN leases l ON l.owner = a.name WHERE a.left_at IS NULL \
     ORDER BY a.name, l.last_heartbeat_at DESC"
);
macro_rules! first_ready {
    ($pairs:literal) => {
        concat!(
            "SELECT (SELECT t.doc FROM tasks t WHERE t.awaits = 'work' AND t.unmet = 0 \
             AND t.waits_for IS NULL AND t.role = p.role AND t.lane = p.lane \
             ORDER BY t.rank, t.created_at, t.id LIMIT 1) FROM ",
            $pairs
        )
    };
}

const FIRST_READY: SqlText = SqlText {
    sqlite: first_ready!(
        "(SELECT r.value AS role, l.value AS lane FROM json_each($1) r \
         JOIN json_each($2) l ON l.key = r.key) p"
    ),
    postgres: first_ready!("unnest($1::text[], $2::text[]) AS p(role, lane)"),
};
const BUSY: &str = "SELECT l.task_id, l.owner, l.purpose, t.lane FROM leases l \
     JOIN tasks t ON t.id = l.task_id ORDER BY l.task_id";
const WAITING: SqlText = SqlText {
    sqlite: "SELECT COALESCE(json_extract(t.doc, '$.blocker.waits_for'), ''), COUNT(*), \
             (SELECT a.reset_at FROM accounts a \
             WHERE a.name = json_extract(t.doc, '$.blocker.waits_for')) \
             FROM tasks t WHERE t.blocked_on = 'quota_wait' GROUP BY 1",
    postgres: "SELECT w.account, COUNT(*), (SELECT a.reset_at FROM accounts a \
               WHERE a.name = w.account) FROM (SELECT \
               COALESCE(t.doc::json -> 'blocker' ->> 'waits_for', '') COLLATE \"C\" AS account \
               FROM tasks t WHERE t.blocked_on = 'quota_wait') w GROUP BY w.account",
};
const TO_RECOVER: &str = "SELECT doc FROM tasks WHERE blocked_on IS NOT NULL AND awaits IS NULL \
     AND blocked_on <> 'cooldown' AND blocked_on <> 'quota_wait' AND updated_at >= $1 \
     ORDER BY updated_at, id LIMIT $2";
const DEAD: &str = "SELECT id, updated_at FROM tasks \
     WHERE (state = 'failed' OR state = 'canceled') AND superseded_by IS NULL \
     AND (updated_at > $1 OR (updated_at = $1 AND id > $2)) ORDER BY updated_at, id LIMIT 100";
/// Who waits for a task that ended so, or for one that it succeeds.
const WAITS_FOR_DEAD: &str = "WITH RECURSIVE chain(id, rework_of) AS ( \
     SELECT id, rework_of FROM tasks WHERE id = $1 UNION ALL \
     SELECT t.id, t.rework_of FROM chain c JOIN tasks t ON t.id = c.rework_of) \
     SELECT DISTINCT d.task_id FROM dependencies d JOIN tasks w ON w.id = d.task_id \
     WHERE d.met = 0 AND d.dependency IN (SELECT id FROM chain) AND w.state = 'todo' \
     ORDER BY d.task_id";

const JUDGE_QUEUE: &str = "SELECT \
     (SELECT id FROM tasks WHERE awaits = 'judge' AND (retry_at IS NULL OR retry_at <= $1) \
     ORDER BY rank, created_at, id LIMIT 1), \
     (SELECT id FROM tasks WHERE awaits = 'merge' AND (retry_at IS NULL OR retry_at <= $1) \
     ORDER BY rank, created_at, id LIMIT 1), \
     (SELECT MIN(retry_at) FROM tasks WHERE awaits = 'judge' AND retry_at > $1), \
     (SELECT MIN(retry_at) FROM tasks WHERE awaits = 'merge' AND retry_at > $1), \
     (SELECT value FROM flags WHERE name = 'red_base')";

impl Ledger {
    /// What a dispatcher of these roles looks at.
    pub async fn dispatch_view(&self, roles: &[&str]) -> Result<DispatchView, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut dispatch_view = DispatchView {
            now: self.now_in(&mut *tx).await?,
            ..DispatchView::default()
        };
        dispatch_view.ready = first_ready(&mut *tx, roles).await?;
        dispatch_view.red_base = red_base(&mut *tx).await?;
        if dispatch_view.ready.is_empty() {
            // Nothing could start, whoever is there.
            return Ok(dispatch_view);
        }
        dispatch_view.paused = context::is_paused(&mut *tx).await?;
        for row in &all(&mut *tx, AGENTS_NOT_LEFT, &[]).await? {
            let agent = agents::read(row)?;
            let last = dispatch_view.agents.last();
            if last.is_none_or(|last: &FleetAgent| last.name != agent.name) {
                dispatch_view.agents.push(agent);
            }
        }
        for row in &all(&mut *tx, BUSY, &[]).await? {
            dispatch_view.busy.push(OngoingWork {
                task_id: records::task_id(&row.text(0)?)?,
                owner: row.text(1)?,
                purpose: word(&row.text(2)?, LeasePurpose::parse)?,
                lane: word(&row.text(3)?, Lane::parse)?,
            });
        }
        for row in &all(&mut *tx, WAITING, &[]).await? {
            let view = AccountView {
                waiting: u64::try_from(row.int(1)?).unwrap_or(0),
                reset_at: row.maybe_int(2)?.map(Timestamp),
            };
            dispatch_view.accounts.insert(row.text(0)?, view);
        }
        Ok(dispatch_view)
    }

    /// Notes when the quota of an account is there again.
    pub async fn quota_met(&self, account: &str, reset_at: Timestamp) -> Result<(), StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let sql = "INSERT INTO accounts (name, reset_at) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET reset_at = excluded.reset_at";
        run(
            &mut *tx,
            sql,
            &[SqlArg::Text(account), SqlArg::Int(reset_at.0)],
        )
        .await?;
        tx.commit().await
    }

    /// Blocked tasks that neither a clock nor a judge leads on, changed since then, oldest
    /// change first.
    pub async fn to_recover(&self, since: Timestamp, limit: u32) -> Result<Vec<Task>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let args = [SqlArg::Int(since.0), SqlArg::Int(i64::from(limit))];
        reads::docs(&mut *tx, TO_RECOVER, &args, records::task).await
    }

    /// `todo` tasks that wait for one that ended without being done since then, each with
    /// the one that is dead; at most about so many.
    pub async fn waits_for_dead(
        &self,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TaskId, TaskId)>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut found = Vec::new();
        let mut after = (since.0, String::new());
        loop {
            let args = [SqlArg::Int(after.0), SqlArg::Text(&after.1)];
            let page = all(&mut *tx, DEAD, &args).await?;
            for row in &page {
                let dead = row.text(0)?;
                let waiting = all(&mut *tx, WAITS_FOR_DEAD, &[SqlArg::Text(&dead)]).await?;
                for row in &waiting {
                    found.push((records::task_id(&row.text(0)?)?, records::task_id(&dead)?));
                }
                after = (row.int(1)?, dead);
            }
            if page.is_empty() || found.len() >= limit {
                return Ok(found);
            }
        }
    }

    /// What a judge looks at before it claims.
    pub async fn judge_queue(&self) -> Result<JudgeQueue, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let now = self.now_in(&mut *tx).await?;
        let row = one(&mut *tx, JUDGE_QUEUE, &[SqlArg::Int(now.0)]).await?;
        let row = row.ok_or_else(|| StoreError::Damaged("no answer".to_owned()))?;
        let next = [row.maybe_int(2)?, row.maybe_int(3)?];
        let red = row.maybe_text(4)?;
        let red = red.map(|text| records::parse("the red base", &text));
        Ok(JudgeQueue {
            now,
            to_judge: row.maybe_text(0)?.is_some(),
            to_merge: row.maybe_text(1)?.is_some(),
            next_at: next.into_iter().flatten().min().map(Timestamp),
            red_base: red.transpose()?.flatten(),
        })
    }

    /// The base that was found red, and who fixes it.
    pub async fn red_base(&self) -> Result<Option<RedBase>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        red_base(&mut *tx).await
    }

    /// Notes that the base is red, or no longer.
    pub async fn set_red_base(&self, red: Option<&RedBase>) -> Result<(), StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let text = records::text("the red base", &red)?;
        reads::put_flag(&mut *tx, "red_base", &text).await?;
        tx.commit().await?;
        self.engine.announce();
        Ok(())
    }

    /// Every lease.
    pub async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let everything = [SqlArg::Int(i64::MAX), SqlArg::Int(i64::MAX)];
        reads::leases(&mut *tx, &everything).await
    }
}

async fn red_base(tx: &mut dyn StoreTx) -> Result<Option<RedBase>, StoreError> {
    let sql = "SELECT value FROM flags WHERE name = 'red_base'";
    match one(tx, sql, &[]).await? {
        Some(row) => records::parse("the red base", &row.text(0)?),
        None => Ok(None),
    }
}

/// The first ready task of each role and lane, best first.
async fn first_ready(
    tx: &mut dyn StoreTx,
    roles: &[&str],
) -> Result<Vec<(String, ReadyTask)>, StoreError> {
    let mut pairs = (Vec::new(), Vec::new());
    for role in roles {
        for lane in Lane::ALL {
            pairs.0.push((*role).to_owned());
            pairs.1.push(lane.as_str().to_owned());
        }
    }
    let mut firsts = Vec::new();
    let args = [SqlArg::Texts(&pairs.0), SqlArg::Texts(&pairs.1)];
    for row in all(tx, FIRST_READY, &args).await? {
        let Some(doc) = row.maybe_text(0)? else {
            continue;
        };
        let task = records::task(&doc)?;
        let lane = task.lane;
        firsts.push((task.role.clone(), ReadyTask { lane, task }));
    }
    firsts.sort_by(|(_, one), (_, other)| {
        let key = runner_lifecycle::order::order_key;
        key(&one.task).cmp(&key(&other.task))
    });
    Ok(firsts)
}

fn word<T>(text: &str, parse: fn(&str) -> Option<T>) -> Result<T, StoreError> {
    parse(text).ok_or_else(|| StoreError::Damaged(format!("{text:?} is no word of the ledger")))
}
