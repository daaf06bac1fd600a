//! Reading long lists page by page, and following the events of all tasks.
//!
//! A page goes on where the last one ended, by a key that never changes: whatever is
//! written meanwhile, nothing that was there is passed over or told twice.

use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::run::{Lease, TaskRun};
use runner_lifecycle::{BlockReason, Task, TaskId, TaskRunStatus, TaskState, Timestamp};

use crate::call::records;
use crate::call::records::{LEASE_COLUMNS, lease_columns};
use crate::claim::context;
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::read::reads::docs;
use crate::store::engine::{SqlArg, SqlText, StoreAccess, all, one};

/// Which tasks are on a page, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// In that state.
    pub state: Option<TaskState>,
    /// Blocked with that reason.
    pub blocked_on: Option<BlockReason>,
    /// Of that role.
    pub role: Option<String>,
    /// After that id.
    pub after: Option<TaskId>,
    /// At most so many.
    pub limit: u32,
}

/// The place of a run among all runs, which never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlace {
    /// When it began.
    pub started_at: Timestamp,
    /// Its id.
    pub id: String,
}

impl RunPlace {
    /// Where that run is.
    pub fn of(run: &TaskRun) -> RunPlace {
        RunPlace {
            started_at: run.started_at,
            id: run.id.clone(),
        }
    }
}

/// Which runs are on a page, the newest first.
#[derive(Clone, Debug, Default)]
pub struct RunPage {
    /// Of that task.
    pub task: Option<TaskId>,
    /// With that status.
    pub status: Option<TaskRunStatus>,
    /// Only those that a judge claimed at least once.
    pub judged: bool,
    /// Older than that one.
    pub before: Option<RunPlace>,
    /// At most so many.
    pub limit: u32,
}

/// A lock with the lease that it ends with.
#[derive(Clone, Debug)]
pub struct HeldLock {
    /// What is held.
    pub lock: ScopeLock,
    /// By whom and until when; none where the ledger contradicts itself.
    pub lease: Option<Lease>,
}

/// An event with its place in the sequence of all events.
#[derive(Clone, Debug)]
pub struct NumberedEvent {
    /// Its place. It grows; numbers may be missing.
    pub seq: i64,
    /// The event.
    pub event: TaskEvent,
}

macro_rules! task_page {
    ($where:literal) => {
        concat!(
            "SELECT doc FROM tasks WHERE ",
            $where,
            " AND id > $1 AND (CAST($2 AS TEXT) IS NULL OR role = $2) ORDER BY id LIMIT $3"
        )
    };
}

const TASKS: &str = task_page!("version > 0");
const TASKS_IN_STATE: &str = task_page!("state = $4");
const TASKS_BLOCKED_ON: &str = task_page!("state = $4 AND blocked_on = $5");

macro_rules! run_page {
    ($where:literal) => {
        concat!(
            "SELECT doc FROM runs WHERE ",
            $where,
            " AND (started_at, id) < ($1, $2) ORDER BY started_at DESC, id DESC LIMIT $3"
        )
    };
}

const RUNS: &str = run_page!("number > 0");
const RUNS_JUDGED: &str = run_page!("judgement_version > 0");
const RUNS_WITH_STATUS: &str = run_page!("status = $4 AND judgement_version >= $5");
const RUNS_OF_TASK: &str = run_page!(
    "task_id = $4 AND judgement_version >= $5 AND (CAST($6 AS TEXT) IS NULL OR status = $6)"
);

const EVENTS_OF: &str = "SELECT doc FROM events WHERE task_id = $1 AND version > $2 \
     ORDER BY version LIMIT $3";
const EVENTS: &str = "SELECT seq, doc FROM events WHERE seq > $1 AND seq <= $2 \
     ORDER BY seq LIMIT $3";
const HELD: &str = concat!(
    "SELECT ",
    lease_columns!(),
    ", k.task_id, k.resource FROM locks k LEFT JOIN leases l ON l.task_id = k.task_id \
     ORDER BY k.resource"
);

/// The numbers after one, each with the first transaction that may not have ended when
/// this was read, and the first that had not begun: the same if nobody writes. SQLite has one writer at a time, so
/// that numbers become visible in their order.
const NUMBERS: SqlText = SqlText {
    sqlite: "SELECT seq, CAST(0 AS BIGINT), CAST(0 AS BIGINT) FROM events WHERE seq > $1 \
             ORDER BY seq DESC LIMIT 1",
    postgres: "SELECT seq, CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT), \
               CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT) \
               FROM events WHERE seq > $1 ORDER BY seq LIMIT 10000",
};

/// How many numbers are looked at in one go.
const NUMBERS_AT_ONCE: usize = 10_000;

/// How far back a number may be given out and not be there yet.
const START: &str = "SELECT COALESCE(MIN(seq) - 1, 0) FROM events \
     WHERE seq > (SELECT MAX(seq) - 1000 FROM events)";

/// How far the sequence of events can be read without passing over one that is still being
/// written: a server with several writers gives numbers out before their events are there.
#[derive(Clone, Copy, Debug)]
pub struct EventHead {
    seq: i64,
    /// Numbers were missing, and this transaction had not begun when that was seen.
    gap: Option<i64>,
}

impl EventHead {
    /// Every event up to this one is there for good.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// Whether something is there that cannot be told yet. Nobody may say so again when it
    /// can: look a little later.
    pub fn is_behind(&self) -> bool {
        self.gap.is_some()
    }

    /// Takes the next numbers, as they were read.
    fn take(&mut self, numbers: &[(i64, i64, i64)]) {
        for (seq, oldest_open, next) in numbers.iter().copied() {
            // Whoever took a missing number had begun when a later one was seen. Once all
            // of those have ended, it was given up.
            let nobody_writes = oldest_open == next;
            let settled = nobody_writes || self.gap.is_some_and(|seen| oldest_open >= seen);
            if seq != self.seq + 1 && !settled {
                self.gap = self.gap.or(Some(next));
                return;
            }
            self.seq = seq;
            // What was seen was about this gap, not about the next one.
            self.gap = None;
        }
    }
}

impl Ledger {
    /// A page of tasks.
    pub async fn task_page(&self, page: &TaskPage) -> Result<Vec<Task>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut args = vec![
            SqlArg::Text(page.after.as_ref().map_or("", TaskId::as_str)),
            SqlArg::MaybeText(page.role.as_deref()),
            SqlArg::Int(i64::from(page.limit)),
        ];
        let sql = match (page.state, page.blocked_on) {
            // Two conditions that exclude each other.
            (Some(state), Some(_)) if state != TaskState::Blocked => return Ok(Vec::new()),
            (_, Some(reason)) => {
                args.push(SqlArg::Text(TaskState::Blocked.as_str()));
                args.push(SqlArg::Text(reason.as_str()));
                TASKS_BLOCKED_ON
            }
            (Some(state), None) => {
                args.push(SqlArg::Text(state.as_str()));
                TASKS_IN_STATE
            }
            (None, None) => TASKS,
        };
        docs(&mut *tx, sql, &args, records::task).await
    }

    /// A page of runs.
    pub async fn run_page(&self, page: &RunPage) -> Result<Vec<TaskRun>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let (at, id) = match &page.before {
            Some(place) => (place.started_at.0, place.id.as_str()),
            None => (i64::MAX, ""),
        };
        let judged = SqlArg::Int(i64::from(page.judged));
        let status = page.status.map(TaskRunStatus::as_str);
        let mut args = vec![
            SqlArg::Int(at),
            SqlArg::Text(id),
            SqlArg::Int(i64::from(page.limit)),
        ];
        let sql = match (&page.task, status) {
            (Some(task), _) => {
                args.extend([
                    SqlArg::Text(task.as_str()),
                    judged,
                    SqlArg::MaybeText(status),
                ]);
                RUNS_OF_TASK
            }
            (None, Some(status)) => {
                args.extend([SqlArg::Text(status), judged]);
                RUNS_WITH_STATUS
            }
            (None, None) if page.judged => RUNS_JUDGED,
            (None, None) => RUNS,
        };
        docs(&mut *tx, sql, &args, records::run).await
    }

    /// A run.
    pub async fn run(&self, id: &str) -> Result<Option<TaskRun>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let sql = "SELECT doc FROM runs WHERE id = $1";
        let row = one(&mut *tx, sql, &[SqlArg::Text(id)]).await?;
        row.map(|row| records::run(&row.text(0)?)).transpose()
    }

    /// The events of a task after a version, oldest first.
    pub async fn event_page(
        &self,
        task: &TaskId,
        after_version: u64,
        limit: u32,
    ) -> Result<Vec<TaskEvent>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let args = [
            SqlArg::Text(task.as_str()),
            SqlArg::Int(records::int(after_version)),
            SqlArg::Int(i64::from(limit)),
        ];
        docs(&mut *tx, EVENTS_OF, &args, records::event).await
    }

    /// The events after a place up to another one, oldest first.
    pub async fn events_between(
        &self,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Result<Vec<NumberedEvent>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let args = [
            SqlArg::Int(after),
            SqlArg::Int(up_to),
            SqlArg::Int(i64::from(limit)),
        ];
        let rows = all(&mut *tx, EVENTS, &args).await?;
        let numbered = rows.iter().map(|row| {
            Ok(NumberedEvent {
                seq: row.int(0)?,
                event: records::event(&row.text(1)?)?,
            })
        });
        numbered.collect()
    }

    /// The end of the sequence of events, as far as it can be told now.
    pub async fn event_head(&self) -> Result<EventHead, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let row = one(&mut *tx, START, &[]).await?;
        let seq = row.map(|row| row.int(0)).transpose()?;
        drop(tx);
        let mut head = EventHead {
            seq: seq.unwrap_or(0),
            gap: None,
        };
        self.follow(&mut head).await?;
        Ok(head)
    }

    /// Looks how far the sequence goes by now. True: further than before.
    pub async fn follow(&self, head: &mut EventHead) -> Result<bool, StoreError> {
        let before = head.seq;
        loop {
            let mut tx = self.engine.begin(StoreAccess::Read).await?;
            let rows = all(&mut *tx, NUMBERS, &[SqlArg::Int(head.seq)]).await?;
            let numbers: Result<Vec<(i64, i64, i64)>, StoreError> = rows
                .iter()
                .map(|row| Ok((row.int(0)?, row.int(1)?, row.int(2)?)))
                .collect();
            head.take(&numbers?);
            if rows.len() < NUMBERS_AT_ONCE || head.is_behind() {
                return Ok(head.seq > before);
            }
        }
    }

    /// The locks that are held, by their names.
    pub async fn held_locks(&self) -> Result<Vec<HeldLock>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let rows = all(&mut *tx, HELD, &[]).await?;
        let held = rows.iter().map(|row| {
            Ok(HeldLock {
                lease: records::lease(row, 0)?,
                lock: ScopeLock {
                    task_id: records::task_id(&row.text(LEASE_COLUMNS)?)?,
                    resource: context::resource(&row.text(LEASE_COLUMNS + 1)?)?,
                },
            })
        });
        held.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: i64) -> EventHead {
        EventHead { seq, gap: None }
    }

    #[test]
    fn a_number_that_is_still_being_written_is_waited_for() {
        let mut head = head(4);
        // 5 follows; 6 is missing, and transaction 90 is open.
        head.take(&[(5, 90, 92), (7, 90, 92)]);
        assert_eq!((head.seq(), head.is_behind()), (5, true));
        // Somebody who began later is open; 90 and 91 are not ended yet.
        head.take(&[(7, 91, 95)]);
        assert_eq!((head.seq(), head.is_behind()), (5, true));
        // It came after all.
        head.take(&[(6, 91, 95), (7, 91, 95)]);
        assert_eq!((head.seq(), head.is_behind()), (7, false));
    }

    #[test]
    fn a_number_that_was_given_up_is_passed() {
        let mut behind = head(1);
        behind.take(&[(3, 10, 12)]);
        assert_eq!((behind.seq(), behind.is_behind()), (1, true));
        behind.take(&[(3, 12, 14)]);
        assert_eq!((behind.seq(), behind.is_behind()), (3, false));
        // Nobody is writing: nothing can come.
        let mut quiet = head(1);
        quiet.take(&[(3, 10, 10), (4, 10, 10)]);
        assert_eq!((quiet.seq(), quiet.is_behind()), (4, false));
    }

    #[test]
    fn the_second_gap_is_waited_for_too() {
        let mut head = head(1);
        head.take(&[(3, 10, 12)]);
        // 2 was given up; 4 may still come, since 13 is open.
        head.take(&[(3, 13, 15), (5, 13, 15)]);
        assert_eq!((head.seq(), head.is_behind()), (3, true));
        head.take(&[(5, 15, 16)]);
        assert_eq!((head.seq(), head.is_behind()), (5, false));
    }

    #[test]
    fn where_there_is_one_writer_a_gap_means_nothing() {
        let mut head = head(1);
        head.take(&[(9, 0, 0)]);
        assert_eq!((head.seq(), head.is_behind()), (9, false));
    }
}
