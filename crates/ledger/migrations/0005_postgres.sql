-- What follows from changes that are written together: dependents of tasks that are done
-- are counted down, and whoever waited for what has ended is woken. `p_done` has the tasks
-- that are done, `p_reworked` those whom they succeed, `p_passed` words that are passed on
-- if what they are about has ended. Dependents are changed in the order of their ids, so
-- that two transactions do not wait for each other. The function for one task stays for
-- older programs that are still running.
CREATE FUNCTION ledger_ended(p_done TEXT[], p_reworked TEXT[], p_done_at BIGINT[],
    p_passed TEXT[], p_wake TEXT[])
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    v_key TEXT;
    v_ids TEXT[];
    v_met RECORD;
BEGIN
    -- Mostly nobody waits.
    IF cardinality(p_reworked) = 0 AND cardinality(p_passed) = 0
        AND NOT EXISTS (SELECT 1 FROM tasks WHERE waits_for = ANY (p_wake))
        AND NOT EXISTS (SELECT 1 FROM dependencies
            WHERE met = 0 AND dependency = ANY (p_done)) THEN
        RETURN;
    END IF;
    IF cardinality(p_done) > 0 THEN
        -- The tasks themselves and everybody whom they succeed: a dependency on any of them
        -- is met. Counted down and not counted anew: two dependencies may be met at the same
        -- time, and neither transaction sees what the other has done.
        WITH RECURSIVE chain(id, rework_of) AS (
            SELECT t.id, t.rework_of FROM tasks t WHERE t.id = ANY (p_reworked)
            UNION ALL
            SELECT t.id, t.rework_of FROM chain c JOIN tasks t ON t.id = c.rework_of)
        SELECT array_agg(c.id::TEXT) INTO v_ids FROM chain c;
        v_ids := v_ids || p_done;
        FOR v_met IN
            WITH met AS (UPDATE dependencies SET met = 1
                WHERE met = 0 AND dependency = ANY (v_ids) RETURNING task_id)
            SELECT m.task_id, COUNT(*) AS times FROM met m GROUP BY m.task_id ORDER BY m.task_id
        LOOP
            UPDATE tasks SET unmet = unmet - v_met.times,
                ready_since = (SELECT MAX(d.at) FROM unnest(p_done_at) d(at))
            WHERE id = v_met.task_id;
        END LOOP;
    END IF;
    FOR v_key IN SELECT DISTINCT p.key FROM unnest(p_passed) p(key) ORDER BY 1 LOOP
        IF NOT ledger_held(v_key) THEN
            PERFORM ledger_wake(v_key);
        END IF;
    END LOOP;
    FOR v_key IN SELECT DISTINCT w.key FROM unnest(p_wake) w(key) ORDER BY 1 LOOP
        PERFORM ledger_wake(v_key);
    END LOOP;
END $$;

-- The first tasks in order that workers may try, at most so many, as `ledger_pick` has one
-- of them. Their scopes are serialised line by line in path order, whosever they are: what
-- one takes for itself is not only shared.
CREATE FUNCTION ledger_pick_some(p_role TEXT, p_lane TEXT, p_now BIGINT, p_reserve BIGINT,
    p_most BIGINT)
RETURNS TABLE (before TEXT, doc TEXT, waits_for TEXT, woken_from TEXT, run TEXT, at BIGINT,
    paused BIGINT, more BIGINT, since BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    v_ids TEXT[];
    v_now BIGINT;
BEGIN
    IF p_lane IS NULL THEN
        v_ids := ARRAY(SELECT t.id FROM tasks t
            WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
            ORDER BY t.rank, t.created_at, t.id LIMIT p_most FOR UPDATE SKIP LOCKED);
    ELSE
        v_ids := ARRAY(SELECT t.id FROM tasks t
            WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
                AND t.lane = p_lane
            ORDER BY t.rank, t.created_at, t.id LIMIT p_most FOR UPDATE SKIP LOCKED);
    END IF;
    PERFORM ledger_lock_line(o.line) FROM (
        SELECT DISTINCT ON (substr(l.line, 2) COLLATE "C") l.line
        FROM tasks t, unnest(string_to_array(t.scope, E'\n')) l(line) WHERE t.id = ANY (v_ids)
        ORDER BY substr(l.line, 2) COLLATE "C", l.line COLLATE "C" DESC) o;
    v_now := COALESCE(p_now, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
    -- A statement of its own, after the locks: it sees what was written before.
    RETURN QUERY SELECT NULL::TEXT, t.doc::TEXT, t.waits_for::TEXT, t.woken_from::TEXT,
        (SELECT r.doc::TEXT FROM runs r WHERE r.task_id = t.id ORDER BY r.number DESC LIMIT 1),
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
                < (t.rank, t.created_at, t.id COLLATE "C") FROM (
            SELECT f.id, f.rank, f.created_at, f.ready_since FROM tasks f
            WHERE f.awaits = 'work' AND f.unmet = 0 AND f.waits_for IS NOT NULL
            ORDER BY f.rank, f.created_at, f.id LIMIT 1) w)
            THEN 4 ELSE 0 END AS BIGINT),
        t.ready_since
    FROM tasks t, ledger_scope(t.scope) s WHERE t.id = ANY (v_ids)
    ORDER BY t.rank, t.created_at, t.id;
END $$;
