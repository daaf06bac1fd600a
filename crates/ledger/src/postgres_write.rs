//! A whole decision as one statement of PostgreSQL.
//!
//! Each part that is written is a clause of its own, and all of them hang on the first: the
//! row, or the lease of a heartbeat, which must still be as it was read. A decision of the
//! same parts is the same text, so that a handful of statements is prepared once.

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use crate::change::Change;
use crate::error::StoreError;

const INSERT_ROW: &str = "own AS (INSERT INTO tasks (id, version, state, role, lane, queue, rank, \
     created_at, updated_at, blocked_on, retry_at, lineage, rework_of, superseded_by, awaits, \
     doc, due_at, scope, ready_since) VALUES ($1, ($4::bigint[])[1], ($3::text[])[1], \
     ($3::text[])[2], ($3::text[])[3], ($3::text[])[4], ($4::bigint[])[2], ($4::bigint[])[3], \
     ($4::bigint[])[4], ($3::text[])[5], ($4::bigint[])[5], ($3::text[])[6], ($3::text[])[7], \
     ($3::text[])[8], ($3::text[])[9], ($3::text[])[10], ($4::bigint[])[6], ($3::text[])[11], \
     ($4::bigint[])[4]) RETURNING id)";
const UPDATE_ROW: &str = "own AS (UPDATE tasks SET version = ($4::bigint[])[1], \
     state = ($3::text[])[1], role = ($3::text[])[2], lane = ($3::text[])[3], \
     queue = ($3::text[])[4], rank = ($4::bigint[])[2], created_at = ($4::bigint[])[3], \
     updated_at = ($4::bigint[])[4], blocked_on = ($3::text[])[5], retry_at = ($4::bigint[])[5], \
     lineage = ($3::text[])[6], rework_of = ($3::text[])[7], superseded_by = ($3::text[])[8], \
     awaits = ($3::text[])[9], doc = ($3::text[])[10], due_at = ($4::bigint[])[6], \
     scope = ($3::text[])[11], waits_for = NULL, \
     woken_from = CASE WHEN ($3::text[])[9] = 'work' THEN woken_from END, \
     ready_since = CASE WHEN ($3::text[])[9] = 'work' THEN ($4::bigint[])[4] \
     ELSE ready_since END WHERE id = $1 AND version = $2 \
     AND ($23::text[] IS NULL OR state = 'in_progress') RETURNING id)";
/// A heartbeat locks no row of a task: what it was decided by is the lease.
const BEAT: &str = "own AS (UPDATE leases SET last_heartbeat_at = ($13::bigint[])[3], \
     due_at = ($13::bigint[])[7] WHERE task_id = $1 AND token = $14 AND last_heartbeat_at = $15 \
     RETURNING task_id AS id)";
const NO_ROW: &str = "own AS (SELECT $1::text AS id)";

const EVENTS: &str = "event AS (INSERT INTO events (task_id, version, to_state, created_at, doc) \
     SELECT own.id, e.* FROM own, unnest($5::bigint[], $6::text[], $7::bigint[], $8::text[]) e)";
const RUNS: &str = "run AS (INSERT INTO runs (id, task_id, number, status, doc, started_at, \
     judgement_version, waited_millis) \
     SELECT ($9::text[])[3 * r.at - 2], own.id, ($10::bigint[])[4 * r.at - 3], \
     ($9::text[])[3 * r.at - 1], ($9::text[])[3 * r.at], ($10::bigint[])[4 * r.at - 2], \
     ($10::bigint[])[4 * r.at - 1], ($10::bigint[])[4 * r.at] \
     FROM own, generate_series(1, cardinality($9::text[]) / 3) r(at) \
     ON CONFLICT (id) DO UPDATE SET status = excluded.status, doc = excluded.doc, \
     judgement_version = excluded.judgement_version)";
/// One run that was there before, and goes on or ends.
const CHANGE_RUN: &str = "run AS (UPDATE runs SET status = ($9::text[])[2], \
     doc = ($9::text[])[3], judgement_version = ($10::bigint[])[3] FROM own \
     WHERE runs.id = ($9::text[])[1] AND runs.task_id = own.id \
     AND ($23::text[] IS NULL OR runs.status = 'running') RETURNING runs.id)";
const SET_LEASE: &str = "lease AS (INSERT INTO leases (task_id, run_id, owner, purpose, claim_key, \
     token, claimed_at, last_heartbeat_at, timeout_seconds, heartbeat_interval_seconds, ends_at, \
     due_at) SELECT own.id, ($12::text[])[1], ($12::text[])[2], ($12::text[])[3], \
     ($12::text[])[4], ($13::bigint[])[1], ($13::bigint[])[2], ($13::bigint[])[3], \
     ($13::bigint[])[4], ($13::bigint[])[5], ($13::bigint[])[6], ($13::bigint[])[7] FROM own \
     ON CONFLICT (task_id) DO UPDATE SET run_id = excluded.run_id, owner = excluded.owner, \
     purpose = excluded.purpose, claim_key = excluded.claim_key, token = excluded.token, \
     claimed_at = excluded.claimed_at, last_heartbeat_at = excluded.last_heartbeat_at, \
     timeout_seconds = excluded.timeout_seconds, \
     heartbeat_interval_seconds = excluded.heartbeat_interval_seconds, \
     ends_at = excluded.ends_at, due_at = excluded.due_at)";
/// Whoever ends a lease has read it: a heartbeat since then may change what is decided.
const END_LEASE: &str = "lease AS (DELETE FROM leases USING own WHERE task_id = own.id \
     AND ($14::bigint IS NULL \
     OR (token = $14 AND last_heartbeat_at = $15 AND owner = $24)) RETURNING task_id)";
const TAKE: &str = "held AS (INSERT INTO locks (resource, task_id) \
     SELECT r.name, own.id FROM own, unnest($11::text[]) r(name) RETURNING resource)";
const RELEASE: &str = "gone AS (DELETE FROM locks USING own WHERE task_id = own.id \
     RETURNING resource)";
const PUT_RESULT: &str = "result AS (INSERT INTO unmerged (task_id, resource, lineage) \
     SELECT own.id, r.name, ($3::text[])[6] FROM own, unnest($16::text[]) r(name))";
const END_RESULT: &str = "result AS (DELETE FROM unmerged USING own WHERE task_id = own.id \
     RETURNING resource)";
const RECEIPT: &str = "receipt AS (INSERT INTO receipts (task_id, token, doc) \
     SELECT own.id, $17::bigint, $18::text FROM own)";
const REQUEST: &str = "request AS (INSERT INTO requests (id, task_id, digest, answer) \
     SELECT ($19::text[])[1], own.id, ($19::text[])[2], ($19::text[])[3] FROM own)";

const UNCHANGED: &str = "CASE WHEN (SELECT COUNT(*) FROM own) = 0 THEN ledger_conflict($1) END";
const LEASE_UNCHANGED: &str = "CASE WHEN $14::bigint IS NOT NULL \
     AND (SELECT COUNT(*) FROM lease) = 0 THEN ledger_conflict($1) END";

/// What was decided from memory also wants that nothing contradicts itself, and that the
/// task has no relatives: as `LOAD_FOR_END` reads it, which says the rest.
const ALONE: &str = "CASE WHEN (SELECT COUNT(*) FROM gone) = 0 OR (SELECT COUNT(*) FROM run) = 0 \
     OR (SELECT e.version = $2 AND e.to_state = 'in_progress' FROM events e \
     WHERE e.task_id = $1 ORDER BY e.version DESC LIMIT 1) IS NOT TRUE \
     OR EXISTS (SELECT 1 FROM locks h WHERE h.task_id <> $1 \
     AND h.resource = ANY ($23::text[] || ('@judge/' || $1))) \
     OR EXISTS (SELECT 1 FROM locks h WHERE h.task_id <> $1 \
     AND h.resource >= ($23::text[])[cardinality($23::text[])] || '/' \
     AND h.resource < ($23::text[])[cardinality($23::text[])] || '0') \
     OR EXISTS (SELECT 1 FROM tasks t WHERE t.lineage = $1 AND t.lineage <> t.id) \
     THEN ledger_conflict($1) END";

/// Every argument is named somewhere, whatever the parts are: the server wants to know
/// their types.
const TYPES: &str = "$1::text, $2::bigint, $3::text[], $4::bigint[], $5::bigint[], $6::text[], \
     $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::text[], \
     $13::bigint[], $14::bigint, $15::bigint, $16::text[], $17::bigint, $18::text, $19::text[], \
     $20::text, $21::text[], $22::bigint, $23::text[], $24::text";

/// What every connection knows by name, so that it can be said together with the end of
/// its transaction: a claim, and the look before it.
pub(crate) fn prepared() -> String {
    let claim = Change {
        expected: Some(0),
        texts: Some(Vec::new()),
        event_versions: vec![0],
        run_numbers: vec![None],
        new_runs: true,
        lease: Some("set"),
        take: Some(Vec::new()),
        ..Change::default()
    };
    format!(
        "PREPARE ledger_claim AS {}; PREPARE ledger_look(text, text, text, text, bigint, bigint, \
         boolean) AS SELECT * FROM ledger_pick($1, $2, $3, $4, $5, $6, $7)",
        statement(&claim)
    )
}

/// A claim and the end of its transaction in one message, if it is a plain one.
pub(crate) fn claim_and_commit(change: &Change) -> Result<Option<String>, StoreError> {
    let plain = change.texts.is_some()
        && change.expected.is_some()
        && !change.event_versions.is_empty()
        && !change.run_numbers.is_empty()
        && change.new_runs
        && change.lease == Some("set")
        && change.take.is_some()
        && change.result.is_none()
        && change.receipt.is_none()
        && change.request.is_none()
        && change.done_at.is_none()
        && change.passed.is_none()
        && change.wake.is_empty()
        && change.alone.is_none()
        && !change.release;
    if !plain {
        return Ok(None);
    }
    let mut message = Message("EXECUTE ledger_claim(".to_owned());
    message.text(Some(&change.id))?;
    message.number(change.expected);
    message.texts(change.texts.as_deref().unwrap_or_default())?;
    message.numbers(change.numbers.as_deref().unwrap_or_default());
    message.counts(&change.event_versions);
    message.names(&change.event_states)?;
    message.counts(&change.event_times);
    message.names(&change.event_docs)?;
    message.names(&change.runs)?;
    message.numbers(&change.run_numbers);
    message.names(change.take.as_deref().unwrap_or_default())?;
    message.names(change.lease_texts.as_deref().unwrap_or_default())?;
    message.counts(change.lease_numbers.as_deref().unwrap_or_default());
    message.number(change.was_token);
    message.number(change.was_beat);
    for _ in 16..=24 {
        message.0.push_str("NULL,");
    }
    message.0.pop();
    message.0.push_str("); COMMIT");
    Ok(Some(message.0))
}

/// Values inside a statement, each with a comma after it.
struct Message(String);

impl Message {
    fn text(&mut self, text: Option<&str>) -> Result<(), StoreError> {
        match text {
            Some(text) => push_literal(&mut self.0, text)?,
            None => self.0.push_str("NULL"),
        }
        self.0.push(',');
        Ok(())
    }

    fn number(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.0.push_str(&number.to_string()),
            None => self.0.push_str("NULL"),
        }
        self.0.push(',');
    }

    /// A list: what `each` writes for every one, and its type.
    fn list<T>(
        &mut self,
        list: &[T],
        kind: &str,
        mut each: impl FnMut(&mut Message, &T) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.0.push_str("ARRAY[");
        for one in list {
            each(self, one)?;
        }
        if !list.is_empty() {
            self.0.pop();
        }
        self.0.push_str("]::");
        self.0.push_str(kind);
        self.0.push_str("[],");
        Ok(())
    }

    fn texts(&mut self, texts: &[Option<String>]) -> Result<(), StoreError> {
        self.list(texts, "text", |message, text| message.text(text.as_deref()))
    }

    fn names(&mut self, texts: &[String]) -> Result<(), StoreError> {
        self.list(texts, "text", |message, text| message.text(Some(text)))
    }

    fn numbers(&mut self, numbers: &[Option<i64>]) {
        let wrote = self.list(numbers, "bigint", |message, number| {
            message.number(*number);
            Ok(())
        });
        debug_assert!(wrote.is_ok(), "a number can always be written");
    }

    fn counts(&mut self, numbers: &[i64]) {
        let numbers: Vec<Option<i64>> = numbers.iter().copied().map(Some).collect();
        self.numbers(&numbers);
    }
}

/// A text inside a statement. Escaped in the one way that no setting of the server changes.
pub(crate) fn literal(text: &str) -> Result<String, StoreError> {
    let mut literal = String::new();
    push_literal(&mut literal, text)?;
    Ok(literal)
}

fn push_literal(to: &mut String, text: &str) -> Result<(), StoreError> {
    to.push_str("E'");
    for one in text.chars() {
        match one {
            '\0' => return Err(StoreError::Other("a text has a zero in it".to_owned())),
            '\'' => to.push_str("''"),
            '\\' => to.push_str("\\\\"),
            one => to.push(one),
        }
    }
    to.push('\'');
    Ok(())
}

/// The statement of a change.
pub(crate) fn statement(change: &Change) -> String {
    let own = match (&change.texts, change.expected, change.lease) {
        (Some(_), None, _) => INSERT_ROW,
        (Some(_), Some(_), _) => UPDATE_ROW,
        (None, _, Some("beat")) => BEAT,
        (None, ..) => NO_ROW,
    };
    let mut parts = vec![own];
    let mut answer = vec![UNCHANGED];
    let mut add = |wanted: bool, part: &'static str| {
        if wanted {
            parts.push(part);
        }
    };
    add(!change.event_versions.is_empty(), EVENTS);
    add(change.new_runs && !change.run_numbers.is_empty(), RUNS);
    add(
        !change.new_runs && !change.run_numbers.is_empty(),
        CHANGE_RUN,
    );
    add(change.lease == Some("set"), SET_LEASE);
    add(change.lease == Some("end"), END_LEASE);
    add(change.take.is_some(), TAKE);
    add(change.release, RELEASE);
    add(change.result == Some("put"), PUT_RESULT);
    add(change.result == Some("end"), END_RESULT);
    add(change.receipt.is_some(), RECEIPT);
    add(change.request.is_some(), REQUEST);
    if change.lease == Some("end") {
        answer.push(LEASE_UNCHANGED);
    }
    if change.alone.is_some() {
        debug_assert!(change.release && !change.new_runs, "an end of what goes on");
        answer.push(ALONE);
    }
    let wakes = change.passed.is_some() || !change.wake.is_empty();
    let gone = if change.release {
        " || ARRAY(SELECT 'lock:' || resource FROM gone)"
    } else {
        ""
    };
    let ended = format!("ledger_ended($1, ($3::text[])[7], $22, $20, $21::text[]{gone})");
    if change.release || wakes || change.done_at.is_some() {
        // A clause that nobody reads is run last. These come first: whoever is about to wait
        // for what ends here is seen, and what is taken here is held.
        if change.take.is_some() {
            answer.push("(SELECT COUNT(*) FROM held)");
        }
        if change.result == Some("end") {
            answer.push("(SELECT COUNT(*) FROM result)");
        }
        answer.push(&ended);
    }
    format!(
        "WITH {} SELECT {} FROM (SELECT {TYPES}) arguments",
        parts.join(", "),
        answer.join(", ")
    )
}

/// The arguments of a change, the same for every statement.
pub(crate) fn bind<'q>(
    query: Query<'q, Postgres, PgArguments>,
    change: &'q Change,
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(&change.id)
        .bind(change.expected)
        .bind(&change.texts)
        .bind(&change.numbers)
        .bind(&change.event_versions)
        .bind(&change.event_states)
        .bind(&change.event_times)
        .bind(&change.event_docs)
        .bind(&change.runs)
        .bind(&change.run_numbers)
        .bind(&change.take)
        .bind(&change.lease_texts)
        .bind(&change.lease_numbers)
        .bind(change.was_token)
        .bind(change.was_beat)
        .bind(&change.result_scope)
        .bind(change.receipt_token)
        .bind(&change.receipt)
        .bind(&change.request)
        .bind(&change.passed)
        .bind(&change.wake)
        .bind(change.done_at)
        .bind(&change.alone)
        .bind(&change.was_owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_ends_where_its_text_does() {
        assert_eq!(literal("w1").unwrap(), "E'w1'");
        assert_eq!(literal("it's").unwrap(), "E'it''s'");
        assert_eq!(literal(r"\'; DROP").unwrap(), r"E'\\''; DROP'");
        assert!(literal("a\0b").is_err());
    }
}
