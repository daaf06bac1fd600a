-- The first task in order that a worker may try, as before, in fewer statements. Of `more`, 1
-- says that something overlaps its scope, 4 that somebody who comes before waits for so long;
-- its dependencies are in its row.
CREATE OR REPLACE FUNCTION ledger_pick(p_owner TEXT, p_key TEXT, p_role TEXT, p_lane TEXT,
    p_now BIGINT, p_reserve BIGINT, p_repeated BOOLEAN)
RETURNS TABLE (before TEXT, doc TEXT, waits_for TEXT, woken_from TEXT, run TEXT, at BIGINT,
    paused BIGINT, more BIGINT, since BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    v_task RECORD;
    v_now BIGINT;
BEGIN
    IF p_repeated THEN
        RETURN QUERY SELECT l.task_id::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT,
            NULL::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT
            FROM leases l WHERE l.owner = p_owner AND l.claim_key = p_key;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_lane IS NULL THEN
        SELECT c.*, (SELECT COUNT(ledger_lock_line(l.line))
            FROM unnest(string_to_array(c.scope, E'\n')) l(line)) AS lines
        INTO v_task FROM (SELECT t.id, t.doc, t.waits_for, t.woken_from, t.scope, t.rank,
            t.created_at, t.ready_since FROM tasks t
            WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
            ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED) c;
    ELSE
        SELECT c.*, (SELECT COUNT(ledger_lock_line(l.line))
            FROM unnest(string_to_array(c.scope, E'\n')) l(line)) AS lines
        INTO v_task FROM (SELECT t.id, t.doc, t.waits_for, t.woken_from, t.scope, t.rank,
            t.created_at, t.ready_since FROM tasks t
            WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
                AND t.lane = p_lane
            ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED) c;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT l.task_id::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT,
            NULL::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT
            FROM leases l WHERE l.owner = p_owner AND l.claim_key = p_key;
        RETURN;
    END IF;
    v_now := COALESCE(p_now, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
    -- A statement of its own, after the locks: it sees what was written before.
    RETURN QUERY SELECT NULL::TEXT, v_task.doc::TEXT, v_task.waits_for::TEXT,
        v_task.woken_from::TEXT, (SELECT r.doc::TEXT FROM runs r WHERE r.task_id = v_task.id
            ORDER BY r.number DESC LIMIT 1),
        v_now,
        CAST(CASE WHEN EXISTS (SELECT 1 FROM flags f WHERE f.name = 'paused' AND f.value = 'true')
            THEN 1 ELSE 0 END AS BIGINT),
        CAST(CASE WHEN s.many
            OR EXISTS (SELECT 1 FROM locks h WHERE h.resource = ANY (s.names))
            OR EXISTS (SELECT 1 FROM locks h
                WHERE h.resource >= s.own || '/' AND h.resource < s.own || '0')
            OR EXISTS (SELECT 1 FROM unmerged h WHERE h.resource = ANY (s.names))
            OR EXISTS (SELECT 1 FROM unmerged h
                WHERE h.resource >= s.own || '/' AND h.resource < s.own || '0')
            THEN 1 ELSE 0 END
        + CASE WHEN (SELECT w.ready_since <= v_now - p_reserve
            AND (w.rank, w.created_at, w.id COLLATE "C")
                < (v_task.rank, v_task.created_at, v_task.id COLLATE "C") FROM (
            SELECT t.id, t.rank, t.created_at, t.ready_since FROM tasks t
            WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NOT NULL
            ORDER BY t.rank, t.created_at, t.id LIMIT 1) w)
            THEN 4 ELSE 0 END AS BIGINT),
        v_task.ready_since
    FROM ledger_scope(v_task.scope) s;
END $$;
