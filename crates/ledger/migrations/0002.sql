-- What the roles of a fleet keep beside the tasks: who is there, who holds a seat, what
-- runs cost, and when accounts have quota again. None of it decides about a task.

CREATE TABLE agents (
    name {text} PRIMARY KEY,
    role {text} NOT NULL,
    host {text} NOT NULL,
    account {text} NOT NULL,
    interval_seconds BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    -- A lease that it holds may have been heard of later.
    last_seen_at BIGINT NOT NULL,
    left_at BIGINT
);
CREATE INDEX agents_role ON agents (role, name) WHERE left_at IS NULL;

-- One holder at a time; the others stand by.
CREATE TABLE seats (
    name {text} PRIMARY KEY,
    holder {text} NOT NULL,
    -- It only grows.
    token BIGINT NOT NULL,
    renewed_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- One row for each run, whoever reports it how often.
CREATE TABLE spendings (
    run_id {text} PRIMARY KEY,
    task_id {text} NOT NULL,
    agent {text} NOT NULL,
    account {text} NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cost_micros BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL
);
CREATE INDEX spendings_task ON spendings (task_id);

-- When the quota of an account is there again, as the last one who met it was told.
CREATE TABLE accounts (
    name {text} PRIMARY KEY,
    reset_at BIGINT NOT NULL
);

CREATE INDEX tasks_counts ON tasks (state, blocked_on);
CREATE INDEX tasks_ready_since ON tasks (ready_since)
    WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NULL;
CREATE INDEX tasks_judge_at ON tasks (retry_at) WHERE awaits = 'judge';
CREATE INDEX tasks_merge_at ON tasks (retry_at) WHERE awaits = 'merge';
CREATE INDEX tasks_quota ON tasks (id) WHERE blocked_on = 'quota_wait';
-- Blocked, and neither a clock nor a judge is next.
CREATE INDEX tasks_recover ON tasks (updated_at, id)
    WHERE blocked_on IS NOT NULL AND awaits IS NULL
    AND blocked_on <> 'cooldown' AND blocked_on <> 'quota_wait';
-- Ended without being done, and nobody goes on with it.
CREATE INDEX tasks_dead ON tasks (updated_at, id)
    WHERE (state = 'failed' OR state = 'canceled') AND superseded_by IS NULL;
