-- What the ledger keeps. The same text for both engines; `{text}` is text that sorts by
-- its bytes, `{serial}` a number that counts by itself.

CREATE TABLE tasks (
    id {text} PRIMARY KEY,
    version BIGINT NOT NULL,
    state {text} NOT NULL,
    role {text} NOT NULL,
    lane {text} NOT NULL,
    -- Role and lane: of those that wait for the same, each queue has one that is woken.
    queue {text} NOT NULL,
    -- Sorts the tasks of a store: lower starts first, and two never change places.
    rank BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    blocked_on {text},
    retry_at BIGINT,
    -- When a clock ends its block, if one does.
    due_at BIGINT,
    lineage {text} NOT NULL,
    rework_of {text},
    superseded_by {text},
    -- Which claim may come next: work, judge or merge.
    awaits {text},
    -- What a claim for work locks, in path order, a line each: `=` before what it takes
    -- for itself, `+` before what lies above that.
    scope {text} NOT NULL,
    -- The whole row as JSON. Everything above is taken from it.
    doc {text} NOT NULL,
    -- Below: what the index of ready tasks needs. Not part of the row, no event.
    -- Dependencies that are not done.
    unmet BIGINT NOT NULL DEFAULT 0,
    -- What was in the way when it was last looked at, and is still there.
    waits_for {text},
    -- What was in the way and ended: whoever takes this task out of the index passes
    -- the word on to the next one that waited for the same.
    woken_from {text},
    -- Since when nothing but locks can be in the way.
    ready_since BIGINT NOT NULL
);

CREATE INDEX tasks_ready ON tasks (role, rank, created_at, id)
    WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NULL;
CREATE INDEX tasks_ready_lane ON tasks (role, lane, rank, created_at, id)
    WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NULL;
CREATE INDEX tasks_first_waiting ON tasks (rank, created_at, id)
    WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NOT NULL;
CREATE INDEX tasks_waits ON tasks (waits_for, queue, rank, created_at, id)
    WHERE waits_for IS NOT NULL;
CREATE INDEX tasks_woken ON tasks (woken_from) WHERE woken_from IS NOT NULL;
CREATE INDEX tasks_judge ON tasks (rank, created_at, id) WHERE awaits = 'judge';
CREATE INDEX tasks_merge ON tasks (rank, created_at, id) WHERE awaits = 'merge';
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_state ON tasks (state, id);
-- A lineage is its root, which bears its name, and those that are found here.
CREATE INDEX tasks_lineage ON tasks (lineage) WHERE lineage <> id;
-- One successor for each task.
CREATE UNIQUE INDEX tasks_rework_of ON tasks (rework_of) WHERE rework_of IS NOT NULL;

-- Appended, never changed: triggers see to that.
CREATE TABLE events (
    seq {serial},
    task_id {text} NOT NULL,
    version BIGINT NOT NULL,
    to_state {text} NOT NULL,
    created_at BIGINT NOT NULL,
    doc {text} NOT NULL,
    UNIQUE (task_id, version)
);

CREATE TABLE dependencies (
    task_id {text} NOT NULL,
    dependency {text} NOT NULL,
    met BIGINT NOT NULL,
    PRIMARY KEY (task_id, dependency)
);
CREATE INDEX dependencies_open ON dependencies (dependency) WHERE met = 0;

CREATE TABLE runs (
    id {text} PRIMARY KEY,
    task_id {text} NOT NULL,
    number BIGINT NOT NULL,
    status {text} NOT NULL,
    doc {text} NOT NULL,
    UNIQUE (task_id, number)
);
CREATE UNIQUE INDEX runs_running ON runs (task_id) WHERE status = 'running';

-- A heartbeat changes a lease and nothing else.
CREATE TABLE leases (
    task_id {text} PRIMARY KEY,
    run_id {text} NOT NULL,
    owner {text} NOT NULL,
    token BIGINT NOT NULL,
    purpose {text} NOT NULL,
    claim_key {text} NOT NULL,
    claimed_at BIGINT NOT NULL,
    last_heartbeat_at BIGINT NOT NULL,
    timeout_seconds BIGINT NOT NULL,
    heartbeat_interval_seconds BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    -- When somebody must look at it.
    due_at BIGINT NOT NULL
);
CREATE INDEX leases_due ON leases (due_at);
-- A repeated claim finds its lease, and two of them at the same time do not get two.
CREATE UNIQUE INDEX leases_claim ON leases (owner, claim_key);

CREATE TABLE locks (
    resource {text} PRIMARY KEY,
    task_id {text} NOT NULL
);
CREATE INDEX locks_task ON locks (task_id);

-- The scopes of results that wait for their merge.
CREATE TABLE unmerged (
    task_id {text} NOT NULL,
    resource {text} NOT NULL,
    lineage {text} NOT NULL,
    PRIMARY KEY (resource, task_id)
);
CREATE INDEX unmerged_task ON unmerged (task_id);

-- Recorded answers: by the token of the lease that a request ended, ...
CREATE TABLE receipts (
    task_id {text} NOT NULL,
    token BIGINT NOT NULL,
    doc {text} NOT NULL,
    PRIMARY KEY (task_id, token)
);

-- ... and by the name that a caller gave its request.
CREATE TABLE requests (
    id {text} PRIMARY KEY,
    task_id {text} NOT NULL,
    digest {text} NOT NULL,
    answer {text} NOT NULL
);

CREATE TABLE flags (
    name {text} PRIMARY KEY,
    value {text} NOT NULL
);
