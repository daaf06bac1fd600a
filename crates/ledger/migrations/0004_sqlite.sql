-- What was read or remembered must still be so when it is written. A row that says otherwise
-- is refused here, and with it everything that was to be written.
CREATE TABLE ledger_compared (same BIGINT NOT NULL CHECK (same = 1));

-- Small rows that come and go lie in the index of their keys, without a second place beside
-- it: every place that is written is a page on disk.
ALTER TABLE leases RENAME TO leases_before;
CREATE TABLE leases (
    task_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    token BIGINT NOT NULL,
    purpose TEXT NOT NULL,
    claim_key TEXT NOT NULL,
    claimed_at BIGINT NOT NULL,
    last_heartbeat_at BIGINT NOT NULL,
    timeout_seconds BIGINT NOT NULL,
    heartbeat_interval_seconds BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    due_at BIGINT NOT NULL
) WITHOUT ROWID;
INSERT INTO leases SELECT task_id, run_id, owner, token, purpose, claim_key, claimed_at,
    last_heartbeat_at, timeout_seconds, heartbeat_interval_seconds, ends_at, due_at
    FROM leases_before;
DROP TABLE leases_before;
CREATE INDEX leases_due ON leases (due_at);
CREATE UNIQUE INDEX leases_claim ON leases (owner, claim_key);

ALTER TABLE locks RENAME TO locks_before;
CREATE TABLE locks (resource TEXT PRIMARY KEY, task_id TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO locks SELECT resource, task_id FROM locks_before;
DROP TABLE locks_before;
CREATE INDEX locks_task ON locks (task_id);

ALTER TABLE receipts RENAME TO receipts_before;
CREATE TABLE receipts (
    task_id TEXT NOT NULL,
    token BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (task_id, token)
) WITHOUT ROWID;
INSERT INTO receipts SELECT task_id, token, doc FROM receipts_before;
DROP TABLE receipts_before;

-- Events are never deleted, so that the next number is one more than the last: nobody else
-- has to remember it.
ALTER TABLE events RENAME TO events_before;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    to_state TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    doc TEXT NOT NULL,
    UNIQUE (task_id, version)
);
INSERT INTO events SELECT seq, task_id, version, to_state, created_at, doc FROM events_before;
DROP TABLE events_before;
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events cannot be changed'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events cannot be deleted'); END;
-- INSERT OR REPLACE deletes without asking the trigger above.
CREATE TRIGGER events_no_replace BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events
    WHERE seq = NEW.seq OR (task_id = NEW.task_id AND version = NEW.version))
BEGIN SELECT RAISE(ABORT, 'events cannot be replaced'); END;
