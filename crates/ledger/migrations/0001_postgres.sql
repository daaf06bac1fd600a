-- Events are appended, never changed.
CREATE FUNCTION events_are_appended() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'events cannot be changed or deleted'; END $$;
CREATE TRIGGER events_no_change BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION events_are_appended();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_are_appended();

-- Below: what would be many statements, one by one over the network, in one. What is
-- decided is decided by the program; these read what it must know and write what it says.

-- The time, in milliseconds.
CREATE FUNCTION ledger_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS
$$ SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) $$;

-- Whether what a task waits for is still there; then it cannot end before this
-- transaction does, and whoever ends it sees what this transaction wrote.
CREATE FUNCTION ledger_held(p_key TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    v_name TEXT := substr(p_key, strpos(p_key, ':') + 1);
BEGIN
    CASE split_part(p_key, ':', 1)
    WHEN 'lock' THEN
        PERFORM 1 FROM locks WHERE resource = v_name FOR KEY SHARE;
    WHEN 'result' THEN
        PERFORM 1 FROM unmerged WHERE task_id = v_name FOR KEY SHARE;
    WHEN 'reserved' THEN
        PERFORM 1 FROM tasks WHERE id = v_name AND waits_for IS NOT NULL
            FOR SHARE SKIP LOCKED;
    ELSE
        RETURN FALSE;
    END CASE;
    RETURN FOUND;
END $$;

-- Puts the first of each queue that waits for the key back into the index of ready tasks.
CREATE FUNCTION ledger_wake(p_key TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tasks WHERE waits_for = p_key LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Locked one by one: where the first is being changed, the next one is taken.
    WITH RECURSIVE q(queue) AS (
        SELECT (SELECT MIN(queue) FROM tasks WHERE waits_for = p_key)
        UNION ALL
        SELECT (SELECT MIN(t.queue) FROM tasks t WHERE t.waits_for = p_key AND t.queue > q.queue)
        FROM q WHERE q.queue IS NOT NULL)
    UPDATE tasks SET waits_for = NULL, woken_from = p_key
    WHERE waits_for = p_key AND id IN (
        SELECT w.id FROM q CROSS JOIN LATERAL (
            SELECT t.id FROM tasks t WHERE t.waits_for = p_key AND t.queue = q.queue
            ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE) w
        WHERE q.queue IS NOT NULL);
END $$;

-- Who holds what overlaps a scope: locks, and results that wait for their merge, which
-- have a lineage.
CREATE FUNCTION ledger_overlapping(p_scope TEXT)
RETURNS TABLE (task_id TEXT, resource TEXT, lineage TEXT) LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_lines TEXT[] := string_to_array(p_scope, E'\n');
    v_names TEXT[];
    v_line TEXT;
    v_from TEXT;
    v_until TEXT;
BEGIN
    FOREACH v_line IN ARRAY v_lines LOOP
        v_names := v_names || substr(v_line, 2);
    END LOOP;
    RETURN QUERY SELECT h.task_id::TEXT, h.resource::TEXT, NULL::TEXT FROM locks h
        WHERE h.resource = ANY (v_names);
    RETURN QUERY SELECT h.task_id::TEXT, h.resource::TEXT, h.lineage::TEXT FROM unmerged h
        WHERE h.resource = ANY (v_names);
    FOREACH v_line IN ARRAY v_lines LOOP
        CONTINUE WHEN left(v_line, 1) <> '=';
        IF v_line = '=.' THEN
            -- Every name but `.` itself and those that begin with `@`.
            RETURN QUERY SELECT h.task_id::TEXT, h.resource::TEXT, NULL::TEXT FROM locks h
                WHERE h.resource <> '.' AND (h.resource < '@' OR h.resource >= 'A');
            RETURN QUERY SELECT h.task_id::TEXT, h.resource::TEXT, h.lineage::TEXT
                FROM unmerged h
                WHERE h.resource <> '.' AND (h.resource < '@' OR h.resource >= 'A');
            CONTINUE;
        END IF;
        v_from := substr(v_line, 2) || '/';
        v_until := substr(v_line, 2) || '0'; -- `0` follows `/`
        RETURN QUERY SELECT h.task_id::TEXT, h.resource::TEXT, NULL::TEXT FROM locks h
            WHERE h.resource >= v_from AND h.resource < v_until;
        RETURN QUERY SELECT h.task_id::TEXT, h.resource::TEXT, h.lineage::TEXT FROM unmerged h
            WHERE h.resource >= v_from AND h.resource < v_until;
    END LOOP;
END $$;

-- Locks one line of a scope until the end of this transaction. Whoever tests or takes a
-- scope locks its lines in path order: shared what lies above a resource, exclusive the
-- resource itself. Two overlapping scopes meet in one of them.
CREATE FUNCTION ledger_lock_line(p_line TEXT) RETURNS VOID LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN left(p_line, 1) = '='
        THEN pg_advisory_xact_lock(hashtextextended(substr(p_line, 2), 0))
        ELSE pg_advisory_xact_lock_shared(hashtextextended(substr(p_line, 2), 0)) END
$$;

-- A scope that is one resource, with the names of everything above it, too; or `many`, if
-- it is more than that or the whole repo.
CREATE FUNCTION ledger_scope(p_scope TEXT, OUT names TEXT[], OUT own TEXT, OUT many BOOLEAN)
RETURNS SETOF RECORD LANGUAGE sql STABLE AS $$
    SELECT string_to_array(replace(replace(E'\n' || p_scope, E'\n+', E'\n'), E'\n=', E'\n'),
            E'\n'),
        split_part(E'\n' || p_scope, E'\n=', 2),
        p_scope = '=.' OR strpos(split_part(E'\n' || p_scope, E'\n=', 2), E'\n') > 0
            OR split_part(E'\n' || p_scope, E'\n=', 3) <> ''
$$;

-- The first task in order that a worker may try, locked, its scope serialised, with what a
-- claim must know about it; or the task whose lease this claim got before, by its name
-- alone. That is looked for if nothing else is found, or if it is asked for: otherwise that
-- lease keeps a second one from being written. Of `more`, 1 says that something overlaps
-- its scope, 2 that it has dependencies, 4 that somebody who comes before waits for so long.
CREATE FUNCTION ledger_pick(p_owner TEXT, p_key TEXT, p_role TEXT, p_lane TEXT, p_now BIGINT,
    p_reserve BIGINT, p_repeated BOOLEAN)
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
        SELECT t.id, t.doc, t.waits_for, t.woken_from, t.scope, t.rank, t.created_at,
            t.ready_since
        INTO v_task FROM tasks t
        WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
        ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSE
        SELECT t.id, t.doc, t.waits_for, t.woken_from, t.scope, t.rank, t.created_at,
            t.ready_since
        INTO v_task FROM tasks t
        WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
            AND t.lane = p_lane
        ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
        RETURN QUERY SELECT l.task_id::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT,
            NULL::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT
            FROM leases l WHERE l.owner = p_owner AND l.claim_key = p_key;
        RETURN;
    END IF;
    PERFORM ledger_lock_line(l.line) FROM unnest(string_to_array(v_task.scope, E'\n')) l(line);
    v_now := COALESCE(p_now, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
    -- A statement of its own, after the locks: it sees what was written before.
    RETURN QUERY SELECT NULL::TEXT, v_task.doc::TEXT, v_task.waits_for::TEXT,
        v_task.woken_from::TEXT, (SELECT r.doc::TEXT FROM runs r WHERE r.task_id = v_task.id
            ORDER BY r.number DESC LIMIT 1),
        v_now,
        (SELECT COUNT(*) FROM flags f WHERE f.name = 'paused' AND f.value = 'true'),
        CAST(CASE WHEN s.many
            OR EXISTS (SELECT 1 FROM locks h WHERE h.resource = ANY (s.names))
            OR EXISTS (SELECT 1 FROM locks h
                WHERE h.resource >= s.own || '/' AND h.resource < s.own || '0')
            OR EXISTS (SELECT 1 FROM unmerged h WHERE h.resource = ANY (s.names))
            OR EXISTS (SELECT 1 FROM unmerged h
                WHERE h.resource >= s.own || '/' AND h.resource < s.own || '0')
            THEN 1 ELSE 0 END
        + CASE WHEN EXISTS (SELECT 1 FROM dependencies e WHERE e.task_id = v_task.id)
            THEN 2 ELSE 0 END
        + CASE WHEN w.ready_since <= v_now - p_reserve
            AND (w.rank, w.created_at, w.id COLLATE "C")
                < (v_task.rank, v_task.created_at, v_task.id COLLATE "C")
            THEN 4 ELSE 0 END AS BIGINT),
        v_task.ready_since
    FROM ledger_scope(v_task.scope) s LEFT JOIN LATERAL (
        SELECT t.id, t.rank, t.created_at, t.ready_since FROM tasks t
        WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NOT NULL
        ORDER BY t.rank, t.created_at, t.id LIMIT 1) w ON TRUE;
END $$;

-- What the end of a task must know besides its row, all at one point in time. Kinds of
-- rows: 5 a member of its lineage (a: row, b: last event), 6 a run (a), 2 what overlaps
-- its scope or that of its judge.
CREATE FUNCTION ledger_lineage(p_id TEXT)
RETURNS TABLE (kind BIGINT, l_task_id TEXT, l_run_id TEXT, l_owner TEXT, l_token BIGINT,
    l_purpose TEXT, l_claim_key TEXT, l_claimed_at BIGINT, l_last_heartbeat_at BIGINT,
    l_timeout_seconds BIGINT, l_heartbeat_interval_seconds BIGINT, l_ends_at BIGINT,
    a TEXT, b TEXT, c TEXT)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_task RECORD;
    v_ids TEXT[];
    v_id TEXT;
BEGIN
    SELECT t.scope, t.lineage INTO v_task FROM tasks t WHERE t.id = p_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_ids := ARRAY(SELECT t.id FROM tasks t
        WHERE t.lineage = v_task.lineage AND t.lineage <> t.id) || v_task.lineage::TEXT;
    FOREACH v_id IN ARRAY v_ids LOOP
        SELECT 5, l.task_id, l.run_id, l.owner, l.token, l.purpose, l.claim_key, l.claimed_at,
            l.last_heartbeat_at, l.timeout_seconds, l.heartbeat_interval_seconds, l.ends_at,
            t.doc, (SELECT e.doc FROM events e WHERE e.task_id = t.id
                ORDER BY e.version DESC LIMIT 1), NULL
        INTO kind, l_task_id, l_run_id, l_owner, l_token, l_purpose, l_claim_key, l_claimed_at,
            l_last_heartbeat_at, l_timeout_seconds, l_heartbeat_interval_seconds, l_ends_at,
            a, b, c
        FROM tasks t LEFT JOIN leases l ON l.task_id = t.id WHERE t.id = v_id;
        IF FOUND THEN
            RETURN NEXT;
        END IF;
        kind := 6;
        l_task_id := NULL;
        FOR a IN SELECT r.doc FROM runs r WHERE r.task_id = v_id LOOP
            RETURN NEXT;
        END LOOP;
    END LOOP;
    kind := 2;
    FOR a, b, c IN SELECT o.task_id, o.resource, o.lineage FROM ledger_overlapping(
        v_task.scope || E'\n+@judge\n=@judge/' || p_id) o
    LOOP
        RETURN NEXT;
    END LOOP;
END $$;

-- What was read is no longer so.
CREATE FUNCTION ledger_conflict(p_id TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'task % or its lease has changed', p_id
        USING ERRCODE = 'serialization_failure';
END $$;

-- What follows from a change: dependents of a task that is done are counted down, and
-- whoever waited for what has ended is woken. `p_passed` is a word that is passed on if what
-- it is about has ended.
CREATE FUNCTION ledger_ended(p_id TEXT, p_rework_of TEXT, p_done_at BIGINT, p_passed TEXT,
    p_wake TEXT[])
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    v_key TEXT;
    v_ids TEXT[];
    v_met RECORD;
BEGIN
    -- Mostly nobody waits.
    IF p_rework_of IS NULL AND p_passed IS NULL
        AND NOT EXISTS (SELECT 1 FROM tasks WHERE waits_for = ANY (p_wake))
        AND NOT EXISTS (SELECT 1 FROM dependencies
            WHERE met = 0 AND dependency = p_id AND p_done_at IS NOT NULL) THEN
        RETURN;
    END IF;
    IF p_done_at IS NOT NULL THEN
        -- The task itself and everybody whom it succeeds: a dependency on any of them is
        -- met. Counted down and not counted anew: two dependencies may be met at the same
        -- time, and neither transaction sees what the other has done.
        WITH RECURSIVE chain(id, rework_of) AS (
            SELECT t.id, t.rework_of FROM tasks t WHERE t.id = p_rework_of
            UNION ALL
            SELECT t.id, t.rework_of FROM chain c JOIN tasks t ON t.id = c.rework_of)
        SELECT array_agg(c.id::TEXT) INTO v_ids FROM chain c;
        v_ids := v_ids || p_id;
        -- In the order of their ids, so that two transactions do not wait for each other.
        FOR v_met IN
            WITH met AS (UPDATE dependencies SET met = 1
                WHERE met = 0 AND dependency = ANY (v_ids) RETURNING task_id)
            SELECT m.task_id, COUNT(*) AS times FROM met m GROUP BY m.task_id ORDER BY m.task_id
        LOOP
            UPDATE tasks SET unmet = unmet - v_met.times, ready_since = p_done_at
            WHERE id = v_met.task_id;
        END LOOP;
    END IF;
    IF p_passed IS NOT NULL AND NOT ledger_held(p_passed) THEN
        PERFORM ledger_wake(p_passed);
    END IF;
    FOREACH v_key IN ARRAY p_wake LOOP
        PERFORM ledger_wake(v_key);
    END LOOP;
END $$;
