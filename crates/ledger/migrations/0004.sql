-- Fewer indexes to keep: a task is written with every step of its life, and each of them
-- costs something then.

-- Counts by state are counted from the index of states, those by reason from this one.
DROP INDEX tasks_counts;
DROP INDEX tasks_quota;
CREATE INDEX tasks_blocked ON tasks (blocked_on) WHERE blocked_on IS NOT NULL;
-- Which judge or merge may come next, if a clock must be waited for.
DROP INDEX tasks_judge_at;
DROP INDEX tasks_merge_at;
CREATE INDEX tasks_retry ON tasks (awaits, retry_at) WHERE retry_at IS NOT NULL;
-- The oldest of those that are ready is looked for among them.
DROP INDEX tasks_ready_since;
