//! Agents: who is there to work, and what each was given.

use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::watchdog::is_offline;
use runner_lifecycle::{Task, TaskId, Timestamp};

use crate::call::facts;
use crate::call::records;
use crate::call::records::{LEASE_COLUMNS, lease_columns};
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::store::engine::{SqlArg, SqlRow, StoreAccess, all, one, run};

/// An agent that says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFleetAgent {
    /// Its name: whoever comes with the same one takes its place.
    pub name: String,
    /// What it does.
    pub role: String,
    /// Where it runs.
    pub host: String,
    /// The account of the backend that its sessions use; empty: none.
    pub account: String,
    /// How often it says that it lives while it has nothing to do.
    pub interval_seconds: u32,
}

/// An agent, as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetAgent {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: String,
    /// Where it runs.
    pub host: String,
    /// The account that its sessions use.
    pub account: String,
    /// How often it says that it lives while it has nothing to do.
    pub interval_seconds: u32,
    /// Since when it is there.
    pub registered_at: Timestamp,
    /// When it was last heard, by itself or by the heartbeat of its lease.
    pub last_seen_at: Timestamp,
    /// When it said goodbye.
    pub left_at: Option<Timestamp>,
    /// What it works on.
    pub works_on: Option<TaskId>,
}

impl FleetAgent {
    /// Whether it gets nothing new: it left, or three intervals passed without a word.
    pub fn is_offline(&self, now: Timestamp) -> bool {
        self.left_at.is_some() || is_offline(self.last_seen_at, self.interval_seconds, now)
    }
}

/// What an agent was given.
#[derive(Clone, Debug)]
pub struct FleetAgentWork {
    /// The row.
    pub task: Task,
    /// The right to work on it.
    pub lease: Lease,
    /// The newest run.
    pub run: Option<TaskRun>,
    /// The newest result of the runs before, if one had any.
    pub earlier: Option<String>,
}

const REGISTER: &str = "INSERT INTO agents \
     (name, role, host, account, interval_seconds, registered_at, last_seen_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (name) DO UPDATE SET \
     role = excluded.role, host = excluded.host, account = excluded.account, \
     interval_seconds = excluded.interval_seconds, registered_at = excluded.registered_at, \
     last_seen_at = excluded.last_seen_at, left_at = NULL";
/// The columns of an agent and the two of its lease.
macro_rules! agent_columns {
    () => {
        "a.name, a.role, a.host, a.account, a.interval_seconds, a.registered_at, \
         a.last_seen_at, a.left_at, l.task_id, l.last_heartbeat_at"
    };
}
pub(crate) use agent_columns;

const AGENTS: &str = concat!(
    "SELECT ",
    agent_columns!(),
    " FROM agents a LEFT JOIN leases l ON l.owner = a.name \
     ORDER BY a.name, l.last_heartbeat_at DESC"
);
const HELD: &str = concat!(
    "SELECT ",
    lease_columns!(),
    ", t.doc, \
     (SELECT r.doc FROM runs r WHERE r.task_id = t.id ORDER BY r.number DESC LIMIT 1) \
     FROM leases l JOIN tasks t ON t.id = l.task_id WHERE l.owner = $1 \
     ORDER BY l.claimed_at, l.task_id LIMIT 1"
);

impl Ledger {
    /// Notes that an agent is there, in the place of one with the same name.
    pub async fn register(&self, agent: &NewFleetAgent) -> Result<(), StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let now = self.now_in(&mut *tx).await?;
        let args = [
            SqlArg::Text(&agent.name),
            SqlArg::Text(&agent.role),
            SqlArg::Text(&agent.host),
            SqlArg::Text(&agent.account),
            SqlArg::Int(i64::from(agent.interval_seconds)),
            SqlArg::Int(now.0),
        ];
        run(&mut *tx, REGISTER, &args).await?;
        tx.commit().await?;
        // The dispatcher may have waited for somebody.
        self.engine.announce();
        Ok(())
    }

    /// Notes that an agent lives. Nobody is told: nothing can begin by that. False: it is
    /// not registered, or has left.
    pub async fn seen(&self, name: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE agents SET last_seen_at = $2 WHERE name = $1 AND left_at IS NULL";
        self.mark(name, sql).await
    }

    /// Notes that an agent has nothing to do again, and tells the dispatcher.
    pub async fn idle(&self, name: &str) -> Result<bool, StoreError> {
        let known = self.seen(name).await?;
        self.engine.announce();
        Ok(known)
    }

    /// Notes that an agent leaves.
    pub async fn leave(&self, name: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE agents SET left_at = $2 WHERE name = $1 AND left_at IS NULL";
        self.mark(name, sql).await
    }

    async fn mark(&self, name: &str, sql: &'static str) -> Result<bool, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let now = self.now_in(&mut *tx).await?;
        let changed = run(&mut *tx, sql, &[SqlArg::Text(name), SqlArg::Int(now.0)]).await?;
        tx.commit().await?;
        Ok(changed == 1)
    }

    /// Every agent that was ever registered, by name.
    pub async fn agents(&self) -> Result<Vec<FleetAgent>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let rows = all(&mut *tx, AGENTS, &[]).await?;
        let mut agents: Vec<FleetAgent> = Vec::new();
        for row in &rows {
            let agent = read(row)?;
            // Somebody with two leases is still one agent.
            if agents.last().is_none_or(|last| last.name != agent.name) {
                agents.push(agent);
            }
        }
        Ok(agents)
    }

    /// What an agent holds a lease of; the oldest one.
    pub async fn assigned(&self, owner: &str) -> Result<Option<FleetAgentWork>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let Some(row) = one(&mut *tx, HELD, &[SqlArg::Text(owner)]).await? else {
            return Ok(None);
        };
        let Some(lease) = records::lease(&row, 0)? else {
            return Ok(None);
        };
        let task = records::task(&row.text(LEASE_COLUMNS)?)?;
        let run = row.maybe_text(LEASE_COLUMNS + 1)?;
        let earlier = facts::earlier_result(&mut *tx, &task.id).await?;
        Ok(Some(FleetAgentWork {
            run: run.as_deref().map(records::run).transpose()?,
            task,
            lease,
            earlier,
        }))
    }
}

/// Reads the columns of [`agent_columns`].
pub(crate) fn read(row: &SqlRow) -> Result<FleetAgent, StoreError> {
    let heard = row.maybe_int(9)?.unwrap_or(i64::MIN);
    let works_on = row.maybe_text(8)?;
    Ok(FleetAgent {
        name: row.text(0)?,
        role: row.text(1)?,
        host: row.text(2)?,
        account: row.text(3)?,
        interval_seconds: u32::try_from(row.int(4)?).unwrap_or(u32::MAX),
        registered_at: Timestamp(row.int(5)?),
        last_seen_at: Timestamp(row.int(6)?.max(heard)),
        left_at: row.maybe_int(7)?.map(Timestamp),
        works_on: works_on.as_deref().map(records::task_id).transpose()?,
    })
}
