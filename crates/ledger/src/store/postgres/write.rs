//! Whole decisions, one or several of the same kind, as one statement of PostgreSQL.
//!
//! Each part that is written is a clause of its own. All of them are written or none: a row,
//! or the lease of a heartbeat, that is no longer as it was read ends the statement. A
//! decision of the same parts is the same text, so that a handful of statements is prepared
//! once.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use crate::call::change::{LeaseWrite, ResultWrite, RunsWrite, StoreChange};
use crate::error::StoreError;
use crate::store::postgres::arguments::{ARGUMENTS, ListArgument, SqlLiterals};

/// The changes, each with its place, counted from nothing.
macro_rules! each {
    () => {
        "{each} c"
    };
}

const INSERT_ROW: &str = concat!(
    "own AS (INSERT INTO tasks (id, version, state, role, lane, queue, rank, created_at, \
     updated_at, blocked_on, retry_at, lineage, rework_of, superseded_by, awaits, doc, due_at, \
     scope, ready_since) SELECT c.id, ({numbers})[6 * c.i + 1], ({texts})[11 * c.i + 1], \
     ({texts})[11 * c.i + 2], ({texts})[11 * c.i + 3], ({texts})[11 * c.i + 4], \
     ({numbers})[6 * c.i + 2], ({numbers})[6 * c.i + 3], ({numbers})[6 * c.i + 4], \
     ({texts})[11 * c.i + 5], ({numbers})[6 * c.i + 5], ({texts})[11 * c.i + 6], \
     ({texts})[11 * c.i + 7], ({texts})[11 * c.i + 8], ({texts})[11 * c.i + 9], \
     ({texts})[11 * c.i + 10], ({numbers})[6 * c.i + 6], ({texts})[11 * c.i + 11], \
     ({numbers})[6 * c.i + 4] FROM ",
    each!(),
    " RETURNING id)"
);
const UPDATE_ROW: &str = concat!(
    "own AS (UPDATE tasks SET version = ({numbers})[6 * c.i + 1], \
     state = ({texts})[11 * c.i + 1], role = ({texts})[11 * c.i + 2], \
     lane = ({texts})[11 * c.i + 3], queue = ({texts})[11 * c.i + 4], \
     rank = ({numbers})[6 * c.i + 2], created_at = ({numbers})[6 * c.i + 3], \
     updated_at = ({numbers})[6 * c.i + 4], blocked_on = ({texts})[11 * c.i + 5], \
     retry_at = ({numbers})[6 * c.i + 5], lineage = ({texts})[11 * c.i + 6], \
     rework_of = ({texts})[11 * c.i + 7], superseded_by = ({texts})[11 * c.i + 8], \
     awaits = ({texts})[11 * c.i + 9], doc = ({texts})[11 * c.i + 10], \
     due_at = ({numbers})[6 * c.i + 6], scope = ({texts})[11 * c.i + 11], waits_for = NULL, \
     woken_from = CASE WHEN ({texts})[11 * c.i + 9] = 'work' THEN woken_from END, \
     ready_since = CASE WHEN ({texts})[11 * c.i + 9] = 'work' THEN ({numbers})[6 * c.i + 4] \
     ELSE ready_since END FROM ",
    each!(),
    " WHERE tasks.id {among} AND tasks.id = c.id \
     AND tasks.version = ({expected})[c.i + 1]{running_row} RETURNING tasks.id)"
);
/// A heartbeat locks no row of a task: what it was decided by is the lease.
const BEAT: &str = concat!(
    "own AS (UPDATE leases SET last_heartbeat_at = ({lease_numbers})[7 * c.i + 3], \
     due_at = ({lease_numbers})[7 * c.i + 7] FROM ",
    each!(),
    " WHERE leases.task_id {among} AND leases.task_id = c.id \
     AND leases.token = ({was_tokens})[c.i + 1] \
     AND leases.last_heartbeat_at = ({was_beats})[c.i + 1] RETURNING leases.task_id)"
);

const EVENTS: &str = "event AS (INSERT INTO events (task_id, version, to_state, created_at, doc) \
     SELECT ({event_texts})[3 * e.i + 1], ({event_numbers})[2 * e.i + 1], \
     ({event_texts})[3 * e.i + 2], ({event_numbers})[2 * e.i + 2], ({event_texts})[3 * e.i + 3] \
     FROM generate_series(0, cardinality({event_texts}) / 3 - 1) e(i))";
const ADD_RUNS: &str = "run AS (INSERT INTO runs (id, task_id, number, status, doc, started_at, \
     judgement_version, waited_millis) \
     SELECT ({run_texts})[4 * r.i + 1], ({run_texts})[4 * r.i + 2], \
     ({run_numbers})[4 * r.i + 1], ({run_texts})[4 * r.i + 3], ({run_texts})[4 * r.i + 4], \
     ({run_numbers})[4 * r.i + 2], ({run_numbers})[4 * r.i + 3], ({run_numbers})[4 * r.i + 4] \
     FROM generate_series(0, cardinality({run_texts}) / 4 - 1) r(i){or_change_run})";
/// Some of them may be there.
const OR_CHANGE_RUN: &str = " ON CONFLICT (id) DO UPDATE SET status = excluded.status, \
     doc = excluded.doc, judgement_version = excluded.judgement_version";
/// One run for each that was there before, and goes on or ends.
const CHANGE_RUNS: &str = concat!(
    "run AS (UPDATE runs SET status = ({run_texts})[4 * c.i + 3], \
     doc = ({run_texts})[4 * c.i + 4], judgement_version = ({run_numbers})[4 * c.i + 3] FROM ",
    each!(),
    " WHERE runs.task_id {among} AND runs.task_id = c.id \
     AND runs.id = ({run_texts})[4 * c.i + 1]{running_run} RETURNING runs.id)"
);
const SET_LEASE: &str = concat!(
    "lease AS (INSERT INTO leases (task_id, run_id, owner, purpose, claim_key, token, claimed_at, \
     last_heartbeat_at, timeout_seconds, heartbeat_interval_seconds, ends_at, due_at) \
     SELECT c.id, ({lease_texts})[4 * c.i + 1], ({lease_texts})[4 * c.i + 2], \
     ({lease_texts})[4 * c.i + 3], ({lease_texts})[4 * c.i + 4], ({lease_numbers})[7 * c.i + 1], \
     ({lease_numbers})[7 * c.i + 2], ({lease_numbers})[7 * c.i + 3], \
     ({lease_numbers})[7 * c.i + 4], ({lease_numbers})[7 * c.i + 5], \
     ({lease_numbers})[7 * c.i + 6], ({lease_numbers})[7 * c.i + 7] FROM ",
    each!(),
    "{or_change_lease})"
);
/// There was one when it was read.
const OR_CHANGE_LEASE: &str = " ON CONFLICT (task_id) DO UPDATE SET run_id = excluded.run_id, \
     owner = excluded.owner, purpose = excluded.purpose, claim_key = excluded.claim_key, \
     token = excluded.token, claimed_at = excluded.claimed_at, \
     last_heartbeat_at = excluded.last_heartbeat_at, timeout_seconds = excluded.timeout_seconds, \
     heartbeat_interval_seconds = excluded.heartbeat_interval_seconds, \
     ends_at = excluded.ends_at, due_at = excluded.due_at";
const END_LEASE: &str = "lease AS (DELETE FROM leases WHERE task_id {among})";
/// Whoever ends a lease that was read: a heartbeat since then may change what is decided.
const END_READ_LEASE: &str = concat!(
    "lease AS (DELETE FROM leases USING ",
    each!(),
    " WHERE leases.task_id {among} AND leases.task_id = c.id \
     AND leases.token = ({was_tokens})[c.i + 1] \
     AND leases.last_heartbeat_at = ({was_beats})[c.i + 1] \
     AND leases.owner = ({was_owners})[c.i + 1] RETURNING leases.task_id)"
);
const TAKE: &str = "held AS (INSERT INTO locks (resource, task_id) \
     SELECT ({taken})[2 * l.i + 1], ({taken})[2 * l.i + 2] \
     FROM generate_series(0, cardinality({taken}) / 2 - 1) l(i) RETURNING resource)";
const RELEASE: &str = "gone AS (DELETE FROM locks WHERE task_id {among} \
     RETURNING resource, task_id)";
/// Several ends wait for nobody: who waits with many locks in his hands may be waited for.
/// Then each goes alone.
const FREE: &str = "free_rows AS (SELECT id FROM tasks WHERE id = ANY ({ids}) \
     FOR UPDATE NOWAIT), free_locks AS (SELECT resource FROM locks WHERE task_id = ANY ({ids}) \
     FOR UPDATE NOWAIT)";
const FREE_FIRST: &str = "(SELECT COUNT(*) FROM free_rows) + (SELECT COUNT(*) FROM free_locks)";
const PUT_RESULT: &str = "result AS (INSERT INTO unmerged (task_id, resource, lineage) \
     SELECT ({results})[3 * u.i + 1], ({results})[3 * u.i + 2], ({results})[3 * u.i + 3] \
     FROM generate_series(0, cardinality({results}) / 3 - 1) u(i))";
const END_RESULT: &str = "result AS (DELETE FROM unmerged WHERE task_id {among} \
     RETURNING resource)";
const RECEIPT: &str = concat!(
    "receipt AS (INSERT INTO receipts (task_id, token, doc) \
     SELECT c.id, ({receipt_tokens})[c.i + 1], ({receipts})[c.i + 1] FROM ",
    each!(),
    ")"
);
const REQUEST: &str = concat!(
    "request AS (INSERT INTO requests (id, task_id, digest, answer) \
     SELECT ({requests})[3 * c.i + 1], c.id, ({requests})[3 * c.i + 2], \
     ({requests})[3 * c.i + 3] FROM ",
    each!(),
    ")"
);

const UNCHANGED: &str = "CASE WHEN (SELECT COUNT(*) FROM own) <> cardinality({ids}) \
     THEN ledger_conflict(({ids})[1]) END";
const LEASE_UNCHANGED: &str = "CASE WHEN (SELECT COUNT(*) FROM lease) <> cardinality({ids}) \
     THEN ledger_conflict(({ids})[1]) END";

/// What was decided from memory also wants that nothing contradicts itself, and that the
/// task has no relatives: as `LOAD_FOR_END` reads it, which says the rest.
const ALONE: &str = concat!(
    "CASE WHEN (SELECT COUNT(DISTINCT task_id) FROM gone) <> cardinality({ids}) \
     OR (SELECT COUNT(*) FROM run) <> cardinality({ids}) \
     OR EXISTS (SELECT 1 FROM ",
    each!(),
    " WHERE (SELECT e.version = ({expected})[c.i + 1] AND e.to_state = 'in_progress' \
     FROM events e WHERE e.task_id = c.id ORDER BY e.version DESC LIMIT 1) IS NOT TRUE) \
     OR EXISTS (SELECT 1 FROM locks h, unnest({alone_names}, {alone_ids}) a(name, id) \
     WHERE h.resource = ANY ({alone_names}) AND h.resource = a.name AND h.task_id <> a.id) \
     OR EXISTS (SELECT 1 FROM ",
    each!(),
    ", LATERAL (SELECT 1 FROM locks h WHERE h.task_id <> c.id \
     AND h.resource >= ({alone})[c.i + 1] || '/' AND h.resource < ({alone})[c.i + 1] || '0' \
     LIMIT 1) inside) \
     OR EXISTS (SELECT 1 FROM tasks t WHERE t.lineage {among} AND t.lineage <> t.id) \
     THEN ledger_conflict(({ids})[1]) END"
);

/// Looked at once the row is found by its id: a text that no index knows.
const RUNNING_ROW: &str = " AND tasks.state || '' = 'in_progress'";
const RUNNING_RUN: &str = " AND runs.status || '' = 'running'";

/// What is done with the row, or instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Own {
    Insert,
    Update,
    Beat,
    Nothing,
}

/// Which parts a change has. Changes of one shape can be written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct ChangeShape {
    own: Own,
    events: bool,
    runs: Option<RunsWrite>,
    lease: Option<LeaseWrite>,
    /// Whether there was a lease when it was read.
    leased: bool,
    take: bool,
    release: bool,
    result: Option<ResultWrite>,
    receipt: bool,
    request: bool,
    /// Whether others wait for what may end here.
    ends: bool,
    alone: bool,
}

impl ChangeShape {
    pub(crate) fn of(change: &StoreChange) -> ChangeShape {
        let wakes = change.passed.is_some() || !change.wake.is_empty();
        ChangeShape {
            own: match (&change.texts, change.expected, change.lease) {
                (Some(_), None, _) => Own::Insert,
                (Some(_), Some(_), _) => Own::Update,
                (None, _, Some(LeaseWrite::Beat)) => Own::Beat,
                (None, ..) => Own::Nothing,
            },
            events: !change.event_versions.is_empty(),
            runs: change.runs_write,
            lease: change.lease,
            leased: change.was_token.is_some(),
            take: change.take.is_some(),
            release: change.release,
            result: change.result,
            receipt: change.receipt.is_some(),
            request: change.request.is_some(),
            ends: change.release || wakes || change.done_at.is_some(),
            alone: change.alone.is_some(),
        }
    }

    /// A claim of a task that nobody holds.
    const CLAIM: ChangeShape = ChangeShape {
        own: Own::Update,
        events: true,
        runs: Some(RunsWrite::Add),
        lease: Some(LeaseWrite::Set),
        leased: false,
        take: true,
        release: false,
        result: None,
        receipt: false,
        request: false,
        ends: false,
        alone: false,
    };

    /// The text, with the names of arguments in it.
    fn text(self, many: bool) -> String {
        let (mut parts, mut answer) = (Vec::new(), Vec::new());
        if many && self.release {
            parts.push(FREE);
            answer.push(FREE_FIRST);
        }
        parts.extend(match self.own {
            Own::Insert => Some(INSERT_ROW),
            Own::Update => Some(UPDATE_ROW),
            Own::Beat => Some(BEAT),
            Own::Nothing => None,
        });
        if self.own != Own::Nothing {
            answer.push(UNCHANGED);
        }
        let mut add = |wanted: bool, part: &'static str| parts.extend(wanted.then_some(part));
        let ends_lease = self.lease == Some(LeaseWrite::End);
        add(self.events, EVENTS);
        match self.runs {
            Some(RunsWrite::Add | RunsWrite::Put) => add(true, ADD_RUNS),
            Some(RunsWrite::Change) => add(true, CHANGE_RUNS),
            None => {}
        }
        add(self.lease == Some(LeaseWrite::Set), SET_LEASE);
        add(ends_lease && self.leased, END_READ_LEASE);
        add(ends_lease && !self.leased, END_LEASE);
        add(self.take, TAKE);
        add(self.release, RELEASE);
        add(self.result == Some(ResultWrite::Put), PUT_RESULT);
        add(self.result == Some(ResultWrite::End), END_RESULT);
        add(self.receipt, RECEIPT);
        add(self.request, REQUEST);
        if ends_lease && self.leased {
            answer.push(LEASE_UNCHANGED);
        }
        if self.alone {
            debug_assert!(
                self.release && self.runs == Some(RunsWrite::Change),
                "ends what goes on"
            );
            answer.push(ALONE);
        }
        if self.ends {
            // A clause that nobody reads is run last. These come first: whoever is about to
            // wait for what ends here is seen, and what is taken here is held.
            if self.take {
                answer.push("(SELECT COUNT(*) FROM held)");
            }
            if self.result == Some(ResultWrite::End) {
                answer.push("(SELECT COUNT(*) FROM result)");
            }
            answer.push(if self.release {
                "ledger_ended({done}, {reworked}, {done_at}, {passed}, \
                 {wake} || ARRAY(SELECT 'lock:' || resource FROM gone))"
            } else {
                "ledger_ended({done}, {reworked}, {done_at}, {passed}, {wake})"
            });
        }
        if answer.is_empty() {
            answer.push("1");
        }
        let when = |wanted: bool, text: &'static str| if wanted { text } else { "" };
        format!("WITH {} SELECT {}", parts.join(", "), answer.join(", "))
            .replace(
                "{or_change_run}",
                when(self.runs == Some(RunsWrite::Put), OR_CHANGE_RUN),
            )
            .replace("{or_change_lease}", when(self.leased, OR_CHANGE_LEASE))
            .replace("{running_row}", when(self.alone, RUNNING_ROW))
            .replace("{running_run}", when(self.alone, RUNNING_RUN))
    }
}

/// What stands for every change in a statement, and what its id is: for one and for many.
const ONE: [(&str, &str); 2] = [
    ("{each}", "(SELECT ({ids})[1] AS id, 0 AS i)"),
    ("{among}", "= ({ids})[1]"),
];
const MANY: [(&str, &str); 2] = [
    (
        "{each}",
        "(SELECT u.id, CAST(u.i AS int) - 1 AS i FROM unnest({ids}) WITH ORDINALITY u(id, i))",
    ),
    ("{among}", "= ANY ({ids})"),
];

/// The statement of a shape, and what it wants to know, in this order.
pub(crate) struct ChangeStatement {
    sql: String,
    arguments: Vec<&'static ListArgument>,
}

impl ChangeStatement {
    fn new(shape: ChangeShape, many: bool) -> ChangeStatement {
        let (mut sql, mut arguments) = (shape.text(many), Vec::new());
        for (name, text) in if many { MANY } else { ONE } {
            sql = sql.replace(name, text);
        }
        for argument in ARGUMENTS {
            let name = format!("{{{}}}", argument.name());
            if sql.contains(&name) {
                arguments.push(argument);
                let place = format!("${}::{}[]", arguments.len(), argument.kind());
                sql = sql.replace(&name, &place);
            }
        }
        debug_assert!(!sql.contains('{'), "an argument without a name: {sql}");
        ChangeStatement { sql, arguments }
    }

    /// There is a handful of shapes, and each is asked for again and again.
    pub(crate) fn of(shape: ChangeShape, many: bool) -> &'static ChangeStatement {
        static KNOWN: OnceLock<Mutex<HashMap<(ChangeShape, bool), &'static ChangeStatement>>> =
            OnceLock::new();
        let known = KNOWN.get_or_init(Mutex::default).lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .entry((shape, many))
            .or_insert_with(|| Box::leak(Box::new(ChangeStatement::new(shape, many))))
    }

    /// With everything that these changes write.
    pub(crate) fn query(
        &'static self,
        changes: &[StoreChange],
    ) -> Query<'static, Postgres, PgArguments> {
        let query = sqlx::query(self.sql.as_str());
        let arguments = self.arguments.iter();
        arguments.fold(query, |query, argument| argument.bind(query, changes))
    }
}

/// What every connection knows by name, so that it can be said together with the beginning
/// or the end of its transaction: claims, and the look before them.
pub(crate) fn prepared() -> String {
    format!(
        "PREPARE ledger_claim AS {}; PREPARE ledger_claim_some AS {}; \
         PREPARE ledger_look(text, text, text, text, bigint, bigint, boolean) AS \
         SELECT * FROM ledger_pick($1, $2, $3, $4, $5, $6, $7); \
         PREPARE ledger_look_around(text, text, bigint, bigint, bigint) AS \
         SELECT * FROM ledger_pick_some($1, $2, $3, $4, $5)",
        ChangeStatement::of(ChangeShape::CLAIM, false).sql,
        ChangeStatement::of(ChangeShape::CLAIM, true).sql,
    )
}

/// Whether it is a claim of a task that nobody holds, and of which nobody is to be told.
pub(crate) fn is_plain_claim(change: &StoreChange) -> bool {
    ChangeShape::of(change) == ChangeShape::CLAIM
}

/// Claims and the end of their transaction in one message, if they are plain.
pub(crate) fn claim_and_commit(changes: &[StoreChange]) -> Result<Option<String>, StoreError> {
    if !changes.iter().all(is_plain_claim) {
        return Ok(None);
    }
    let many = changes.len() > 1;
    let mut values = SqlLiterals::default();
    for argument in &ChangeStatement::of(ChangeShape::CLAIM, many).arguments {
        argument.write(&mut values, changes)?;
    }
    let (some, values) = (if many { "_some" } else { "" }, values.text());
    Ok(Some(format!(
        "EXECUTE ledger_claim{some}({values}); COMMIT"
    )))
}

#[cfg(test)]
mod plans;
