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

-- Makes sure that nobody else tests or takes an overlapping scope before the end of this
-- transaction: in path order, shared on everything above a resource, exclusive on the
-- resource itself. Two overlapping scopes meet in one of them.
CREATE FUNCTION ledger_serialise(p_scope TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    v_line TEXT;
    v_taken BOOLEAN; -- an expression is quicker than a query
BEGIN
    FOREACH v_line IN ARRAY string_to_array(p_scope, E'\n') LOOP
        IF left(v_line, 1) = '=' THEN
            v_taken := pg_advisory_xact_lock(hashtextextended(substr(v_line, 2), 0)) IS NULL;
        ELSE
            v_taken := pg_advisory_xact_lock_shared(hashtextextended(substr(v_line, 2), 0))
                IS NULL;
        END IF;
    END LOOP;
END $$;

-- The first task in order that a worker may try, locked, its scope serialised, with what a
-- claim must know about it. Kinds of rows: 0 the lease that this claim got before (a: its
-- task), 1 the task (a: row, b, c: waits_for, woken_from, d: newest run, n: now, m: whether
-- the fleet is paused), 2 what overlaps (a: task, b: resource, c: lineage), 3 a member of a
-- dependency's chain (a: dependency, b: member, c: state, d: next, n: changed at), 4 the
-- first of those that wait, if it waited for so long and comes before (a: row).
--
-- A claim that was made before is looked for if nothing else is found, or if that is
-- asked for: otherwise its lease keeps a second one from being written.
CREATE FUNCTION ledger_pick(p_owner TEXT, p_key TEXT, p_role TEXT, p_lane TEXT, p_now BIGINT,
    p_reserve BIGINT, p_repeated BOOLEAN)
RETURNS TABLE (kind BIGINT, a TEXT, b TEXT, c TEXT, d TEXT, n BIGINT, m BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    v_task RECORD;
    v_seen RECORD;
    v_line TEXT;
    v_names TEXT[];
    v_own TEXT;
    v_taken BOOLEAN; -- an expression is quicker than a query
    v_plain BOOLEAN := TRUE;
BEGIN
    IF p_repeated THEN
        NULL;
    ELSIF p_lane IS NULL THEN
        SELECT t.id, t.doc, t.waits_for, t.woken_from, t.scope, t.rank, t.created_at
        INTO v_task FROM tasks t
        WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
        ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSE
        SELECT t.id, t.doc, t.waits_for, t.woken_from, t.scope, t.rank, t.created_at
        INTO v_task FROM tasks t
        WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NULL AND t.role = p_role
            AND t.lane = p_lane
        ORDER BY t.rank, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    IF v_task IS NULL THEN
        SELECT l.task_id INTO a FROM leases l WHERE l.owner = p_owner AND l.claim_key = p_key;
        IF FOUND THEN
            kind := 0;
            RETURN NEXT;
        ELSIF p_repeated THEN
            RETURN QUERY SELECT * FROM ledger_pick(p_owner, p_key, p_role, p_lane, p_now,
                p_reserve, FALSE);
        END IF;
        RETURN;
    END IF;
    FOREACH v_line IN ARRAY string_to_array(v_task.scope, E'\n') LOOP
        v_names := v_names || substr(v_line, 2);
        IF left(v_line, 1) = '=' THEN
            v_taken := pg_advisory_xact_lock(hashtextextended(substr(v_line, 2), 0)) IS NULL;
            v_plain := v_plain AND v_own IS NULL AND v_line <> '=.';
            v_own := substr(v_line, 2);
        ELSE
            v_taken := pg_advisory_xact_lock_shared(hashtextextended(substr(v_line, 2), 0))
                IS NULL;
        END IF;
    END LOOP;
    -- A statement of its own, after the locks: it sees what was written before.
    SELECT w.id, w.rank, w.created_at, w.ready_since,
        (SELECT r.doc FROM runs r WHERE r.task_id = v_task.id ORDER BY r.number DESC LIMIT 1)
            AS run,
        EXISTS (SELECT 1 FROM flags f WHERE f.name = 'paused' AND f.value = 'true') AS paused,
        EXISTS (SELECT 1 FROM dependencies e WHERE e.task_id = v_task.id) AS depends,
        NOT v_plain
            OR EXISTS (SELECT 1 FROM locks h WHERE h.resource = ANY (v_names))
            OR EXISTS (SELECT 1 FROM locks h
                WHERE h.resource >= v_own || '/' AND h.resource < v_own || '0')
            OR EXISTS (SELECT 1 FROM unmerged h WHERE h.resource = ANY (v_names))
            OR EXISTS (SELECT 1 FROM unmerged h
                WHERE h.resource >= v_own || '/' AND h.resource < v_own || '0') AS overlaps
    INTO v_seen FROM (SELECT 1) o LEFT JOIN LATERAL (
        SELECT t.id, t.rank, t.created_at, t.ready_since FROM tasks t
        WHERE t.awaits = 'work' AND t.unmet = 0 AND t.waits_for IS NOT NULL
        ORDER BY t.rank, t.created_at, t.id LIMIT 1) w ON TRUE;
    kind := 1;
    a := v_task.doc;
    b := v_task.waits_for;
    c := v_task.woken_from;
    d := v_seen.run;
    n := COALESCE(p_now, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
    m := v_seen.paused::INT;
    RETURN NEXT;
    IF v_seen.overlaps THEN
        RETURN QUERY SELECT 2::BIGINT, o.task_id, o.resource, o.lineage, NULL::TEXT,
            NULL::BIGINT, NULL::BIGINT FROM ledger_overlapping(v_task.scope) o;
    END IF;
    IF v_seen.depends THEN
        RETURN QUERY WITH RECURSIVE chain(root, id, state, next, ended_at) AS (
            SELECT t.id, t.id, t.state, t.superseded_by, t.updated_at
            FROM dependencies e JOIN tasks t ON t.id = e.dependency WHERE e.task_id = v_task.id
            UNION ALL
            SELECT g.root, t.id, t.state, t.superseded_by, t.updated_at
            FROM chain g JOIN tasks t ON t.id = g.next)
            SELECT 3::BIGINT, g.root::TEXT, g.id::TEXT, g.state::TEXT, g.next::TEXT, g.ended_at,
                NULL::BIGINT FROM chain g;
    END IF;
    IF v_seen.id IS NOT NULL AND n - v_seen.ready_since >= p_reserve
        AND (v_seen.rank, v_seen.created_at, v_seen.id COLLATE "C")
            < (v_task.rank, v_task.created_at, v_task.id COLLATE "C") THEN
        RETURN QUERY SELECT 4::BIGINT, t.doc::TEXT, NULL::TEXT, NULL::TEXT, NULL::TEXT,
            NULL::BIGINT, NULL::BIGINT FROM tasks t WHERE t.id = v_seen.id;
    END IF;
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

-- Writes a decision: the row, if it is still as it was read, its events, runs, lease,
-- locks and receipt, and wakes whoever waited for what ends with it.
CREATE FUNCTION ledger_write(p_id TEXT, p_expected BIGINT, p_texts TEXT[], p_numbers BIGINT[],
    p_event_versions BIGINT[], p_event_states TEXT[], p_event_times BIGINT[],
    p_event_docs TEXT[], p_runs TEXT[], p_run_numbers BIGINT[],
    p_lease TEXT, p_lease_texts TEXT[], p_lease_numbers BIGINT[],
    p_was_token BIGINT, p_was_beat BIGINT,
    p_take TEXT[], p_release BOOLEAN, p_result TEXT, p_result_scope TEXT[],
    p_receipt_token BIGINT, p_receipt TEXT, p_request TEXT[],
    p_passed TEXT, p_wake TEXT[], p_done_at BIGINT)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    v_key TEXT;
    v_ids TEXT[];
    v_met RECORD;
BEGIN
    IF p_texts IS NULL THEN
        NULL;
    ELSIF p_expected IS NULL THEN
        INSERT INTO tasks (id, version, state, role, lane, queue, rank, created_at, updated_at,
            blocked_on, retry_at, lineage, rework_of, superseded_by, awaits, doc, due_at, scope,
            ready_since)
        VALUES (p_id, p_numbers[1], p_texts[1], p_texts[2], p_texts[3], p_texts[4],
            p_numbers[2], p_numbers[3], p_numbers[4], p_texts[5], p_numbers[5], p_texts[6],
            p_texts[7], p_texts[8], p_texts[9], p_texts[10], p_numbers[6], p_texts[11],
            p_numbers[4]);
    ELSE
        UPDATE tasks SET version = p_numbers[1], state = p_texts[1], role = p_texts[2],
            lane = p_texts[3], queue = p_texts[4], rank = p_numbers[2],
            created_at = p_numbers[3], updated_at = p_numbers[4], blocked_on = p_texts[5],
            retry_at = p_numbers[5], lineage = p_texts[6], rework_of = p_texts[7],
            superseded_by = p_texts[8], awaits = p_texts[9], doc = p_texts[10],
            due_at = p_numbers[6], scope = p_texts[11], waits_for = NULL,
            woken_from = CASE WHEN p_texts[9] = 'work' THEN woken_from END,
            ready_since = CASE WHEN p_texts[9] = 'work' THEN p_numbers[4] ELSE ready_since END
        WHERE id = p_id AND version = p_expected;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'task % has no longer version %', p_id, p_expected
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    FOR i IN 1 .. cardinality(p_event_versions) LOOP
        INSERT INTO events (task_id, version, to_state, created_at, doc) VALUES (p_id,
            p_event_versions[i], p_event_states[i], p_event_times[i], p_event_docs[i]);
    END LOOP;
    FOR i IN 1 .. cardinality(p_run_numbers) LOOP
        INSERT INTO runs (id, task_id, number, status, doc) VALUES (p_runs[3 * i - 2], p_id,
            p_run_numbers[i], p_runs[3 * i - 1], p_runs[3 * i])
        ON CONFLICT (id) DO UPDATE SET status = excluded.status, doc = excluded.doc;
    END LOOP;
    IF p_lease = 'set' THEN
        INSERT INTO leases (task_id, run_id, owner, purpose, claim_key, token, claimed_at,
            last_heartbeat_at, timeout_seconds, heartbeat_interval_seconds, ends_at, due_at)
        VALUES (p_id, p_lease_texts[1], p_lease_texts[2], p_lease_texts[3], p_lease_texts[4],
            p_lease_numbers[1], p_lease_numbers[2], p_lease_numbers[3], p_lease_numbers[4],
            p_lease_numbers[5], p_lease_numbers[6], p_lease_numbers[7])
        ON CONFLICT (task_id) DO UPDATE SET run_id = excluded.run_id, owner = excluded.owner,
            purpose = excluded.purpose, claim_key = excluded.claim_key, token = excluded.token,
            claimed_at = excluded.claimed_at, last_heartbeat_at = excluded.last_heartbeat_at,
            timeout_seconds = excluded.timeout_seconds,
            heartbeat_interval_seconds = excluded.heartbeat_interval_seconds,
            ends_at = excluded.ends_at, due_at = excluded.due_at;
    ELSIF p_lease = 'beat' THEN
        -- A heartbeat locks no row of a task: what it was decided by is the lease.
        UPDATE leases SET last_heartbeat_at = p_lease_numbers[3], due_at = p_lease_numbers[7]
        WHERE task_id = p_id AND token = p_was_token AND last_heartbeat_at = p_was_beat;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the lease of task % has changed', p_id
                USING ERRCODE = 'serialization_failure';
        END IF;
    ELSIF p_lease = 'end' THEN
        DELETE FROM leases WHERE task_id = p_id
            AND (p_was_token IS NULL OR (token = p_was_token AND last_heartbeat_at = p_was_beat));
        IF NOT FOUND AND p_was_token IS NOT NULL THEN
            RAISE EXCEPTION 'the lease of task % has changed', p_id
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF p_take IS NOT NULL THEN
        FOREACH v_key IN ARRAY p_take LOOP
            INSERT INTO locks (resource, task_id) VALUES (v_key, p_id);
        END LOOP;
    ELSIF p_release THEN
        WITH gone AS (DELETE FROM locks WHERE task_id = p_id RETURNING resource)
        SELECT p_wake || array_agg('lock:' || g.resource) INTO p_wake FROM gone g;
    END IF;
    IF p_result = 'put' THEN
        FOREACH v_key IN ARRAY p_result_scope LOOP
            INSERT INTO unmerged (task_id, resource, lineage) VALUES (p_id, v_key, p_texts[6]);
        END LOOP;
    ELSIF p_result = 'end' THEN
        DELETE FROM unmerged WHERE task_id = p_id;
    END IF;
    IF p_receipt IS NOT NULL THEN
        INSERT INTO receipts (task_id, token, doc) VALUES (p_id, p_receipt_token, p_receipt);
    END IF;
    IF p_request IS NOT NULL THEN
        INSERT INTO requests (id, task_id, digest, answer)
        VALUES (p_request[1], p_id, p_request[2], p_request[3]);
    END IF;
    IF p_done_at IS NOT NULL THEN
        -- The task itself and everybody whom it succeeds: a dependency on any of them is
        -- met. Counted down and not counted anew: two dependencies may be met at the same
        -- time, and neither transaction sees what the other has done.
        v_ids := ARRAY[p_id];
        IF p_texts[7] IS NOT NULL THEN
            WITH RECURSIVE chain(id, rework_of) AS (
                SELECT t.id, t.rework_of FROM tasks t WHERE t.id = p_texts[7]
                UNION ALL
                SELECT t.id, t.rework_of FROM chain c JOIN tasks t ON t.id = c.rework_of)
            SELECT v_ids || array_agg(c.id::TEXT) INTO v_ids FROM chain c;
        END IF;
        IF EXISTS (SELECT 1 FROM dependencies WHERE met = 0 AND dependency = ANY (v_ids)) THEN
            -- In the order of their ids, so that two transactions do not wait for each other.
            FOR v_met IN
                WITH met AS (UPDATE dependencies SET met = 1
                    WHERE met = 0 AND dependency = ANY (v_ids) RETURNING task_id)
                SELECT m.task_id, COUNT(*) AS times FROM met m
                GROUP BY m.task_id ORDER BY m.task_id
            LOOP
                UPDATE tasks SET unmet = unmet - v_met.times, ready_since = p_done_at
                WHERE id = v_met.task_id;
            END LOOP;
        END IF;
    END IF;
    IF p_passed IS NOT NULL AND NOT ledger_held(p_passed) THEN
        PERFORM ledger_wake(p_passed);
    END IF;
    -- Mostly nobody waits.
    IF cardinality(p_wake) > 0
        AND EXISTS (SELECT 1 FROM tasks WHERE waits_for = ANY (p_wake)) THEN
        FOREACH v_key IN ARRAY p_wake LOOP
            PERFORM ledger_wake(v_key);
        END LOOP;
    END IF;
END $$;
