-- SPDX-License-Identifier: MIT
--
-- samekey's guard for PostgreSQL, version 1: receipts inside the service's own transaction. `samekey schema postgres`
-- prints this file. Installing it again changes nothing and loses nothing; run it in one transaction, as the owner:
--
--     samekey schema postgres | psql -1 -v ON_ERROR_STOP=1 DATABASE
--
--   BEGIN
--     samekey.begin(...)    'run': this transaction has the call. Anything else: the handler is not run.
--     the service's own rows
--     samekey.finish(...)   SUCCESS or FAILED, with the answer to replay
--   COMMIT
--
-- Always true:
--  (1) A receipt that can be seen is committed with its effect: a call is never seen PROCESSING by another transaction,
--      and a transaction that began a call and did not finish it cannot commit.
--  (2) One unique index chooses the winner. Whoever loses waits for the winner's transaction: if that is rolled back,
--      the waiter wins; if it commits, the waiter gets its receipt.
--  (3) begin() and fence() leave the transaction usable, whatever they answer: a wait over its limit and a lost race are
--      answers, not errors. Only a wrong argument is an error.
--  (4) Nothing here commits, rolls back, listens, prepares or keeps anything in the session, so a pooler in transaction
--      mode may stand in between.
-- Decisions are those of samekey's own core (keeper); one table of cases is played against both.

DO $$
BEGIN
    -- Two installations at once would race for the same names. Held to the end of the installing transaction.
    PERFORM pg_advisory_xact_lock(hashtext('samekey schema'));
    IF to_regclass('samekey.setting') IS NOT NULL THEN
        IF (SELECT version FROM samekey.setting) > 1 THEN
            RAISE EXCEPTION 'samekey: schema samekey is newer than this file (version 1)'
                USING HINT = 'Install the schema that the newer samekey prints.';
        END IF;
    END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS samekey;

-- One row: what an operator may change. Lives count from the ending of a call.
CREATE TABLE IF NOT EXISTS samekey.setting (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    version        integer NOT NULL,
    result_life    interval NOT NULL DEFAULT '7 days',  -- the stored answer; then it is replayed without one
    key_life       interval NOT NULL DEFAULT '7 days',  -- then a new call on the key is told 'expired'
    tombstone_life interval NOT NULL DEFAULT '30 days', -- then the row goes
    covers_since   timestamptz NOT NULL DEFAULT now(),  -- everything younger is known here
    refuse_before  timestamptz NOT NULL DEFAULT '-infinity' -- a callId whose own time is before this is not run
);
INSERT INTO samekey.setting (version) VALUES (1) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS samekey.call (
    tenant           text COLLATE "C" NOT NULL,
    call_id          text COLLATE "C" NOT NULL,
    route            text COLLATE "C" NOT NULL,
    key              text COLLATE "C",
    fingerprint      text COLLATE "C",
    state            text COLLATE "C" NOT NULL CHECK (state IN ('PROCESSING', 'SUCCESS', 'FAILED')),
    final            boolean NOT NULL,
    holds            boolean NOT NULL, -- it has the key's one place
    came             boolean NOT NULL, -- false: a fence that came before its call
    reason           text,
    run              uuid NOT NULL,    -- of the transaction that began it last
    result_status    integer,
    result_headers   jsonb,            -- a list of pairs
    result_body      bytea,
    result_kept      boolean NOT NULL, -- there is an answer to replay
    original_call_id text COLLATE "C", -- the call whose effect this is, when another's
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at         timestamptz,
    key_expires_at   timestamptz,
    PRIMARY KEY (tenant, call_id)
);
-- Not IF NOT EXISTS: that waits for every open transaction before it looks, and whoever comes waits behind it.
DO $$
BEGIN
    IF to_regclass('samekey.call_key') IS NULL THEN
        CREATE UNIQUE INDEX call_key ON samekey.call (tenant, route, key) WHERE holds;
    END IF;
    IF to_regclass('samekey.call_created') IS NULL THEN
        CREATE INDEX call_created ON samekey.call (created_at);
    END IF;
END
$$;

CREATE TABLE IF NOT EXISTS samekey.outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    call_id    text COLLATE "C",
    message_id text COLLATE "C" NOT NULL, -- the message's own callId, the same on every sending
    topic      text NOT NULL,
    headers    jsonb NOT NULL,
    payload    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at    timestamptz
);
DO $$
BEGIN
    IF to_regclass('samekey.outbox_unsent') IS NULL THEN
        CREATE INDEX outbox_unsent ON samekey.outbox (id) WHERE sent_at IS NULL;
    END IF;
END
$$;

-- A transaction that began a call must finish it: the last line against an effect without a receipt.
CREATE OR REPLACE FUNCTION samekey.must_be_finished() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM samekey.call c WHERE c.tenant = NEW.tenant AND c.call_id = NEW.call_id
               AND c.state = 'PROCESSING') THEN
        RAISE EXCEPTION 'samekey: call % was begun and not finished, so nothing of its transaction is committed', NEW.call_id
            USING ERRCODE = '23000', HINT = 'Call samekey.finish() before COMMIT, or roll back.';
    END IF;
    RETURN NULL;
END
$$;
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'samekey.call'::regclass AND tgname = 'call_finished') THEN
        CREATE CONSTRAINT TRIGGER call_finished AFTER INSERT OR UPDATE ON samekey.call DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.state = 'PROCESSING') EXECUTE FUNCTION samekey.must_be_finished();
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION samekey.version() RETURNS integer LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$ SELECT version FROM samekey.setting $$;

-- The time inside a callId of samekey's own form, or NULL.
CREATE OR REPLACE FUNCTION samekey.id_time(call_id text) RETURNS timestamptz LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT to_timestamp(substring($1 FROM '^[A-Za-z0-9._:-]+?-([0-9]{13})-[0-9a-f]{12}-[A-Za-z0-9._:-]')::numeric / 1000)
$$;

CREATE OR REPLACE FUNCTION samekey.check_names(call_id text, key text, fingerprint text, route text, tenant text)
RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong text;
BEGIN
    wrong := CASE
        WHEN $1 IS NULL OR $1 !~ '^[A-Za-z0-9._:-]{1,128}$' THEN 'call_id is 1 to 128 of A-Z a-z 0-9 . _ : -'
        WHEN $2 IS NOT NULL AND $2 !~ '^[!-~]{1,255}$' THEN 'key is 1 to 255 bytes of visible ASCII'
        WHEN octet_length($3) > 255 THEN 'fingerprint is at most 255 bytes; give a digest of the request'
        WHEN $4 IS NULL OR octet_length($4) > 255 THEN 'route is at most 255 bytes, and not null'
        WHEN $5 IS NULL OR octet_length($5) > 255 THEN 'tenant is at most 255 bytes, and not null'
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'samekey: %', wrong USING ERRCODE = '22023';
    END IF;
END
$$;

-- What the rows mean for a call that arrives: claim, take, attach, replay, in_progress, mismatch, fenced or expired.
-- Pure; the same decisions as keeper_arrive() of samekey's core.
CREATE OR REPLACE FUNCTION samekey.decide(own samekey.call, holder samekey.call, key text, fingerprint text, route text,
                                          forgotten boolean, moment timestamptz) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF own.call_id IS NOT NULL THEN
        -- A mismatch is told before anything else.
        IF own.came AND (own.key IS DISTINCT FROM $3 OR own.route <> $5 OR own.fingerprint <> $4) THEN
            RETURN 'mismatch';
        END IF;
        IF own.state = 'SUCCESS' THEN
            RETURN 'replay';
        ELSIF own.state = 'PROCESSING' THEN
            RETURN 'in_progress';
        ELSIF own.reason = 'fenced' THEN
            RETURN 'fenced';
        ELSIF own.final THEN
            RETURN 'replay';
        END IF;
    END IF;
    IF holder.call_id IS NOT NULL AND holder.call_id IS DISTINCT FROM own.call_id THEN
        IF holder.fingerprint <> $4 THEN
            RETURN 'mismatch';
        ELSIF holder.state = 'PROCESSING' THEN
            RETURN 'in_progress';
        ELSIF holder.key_expires_at <= moment THEN
            RETURN 'expired';
        END IF;
        RETURN 'attach';
    END IF;
    IF own.call_id IS NOT NULL THEN
        RETURN 'take'; -- FAILED, and it may run again
    ELSIF forgotten THEN
        RETURN 'expired'; -- older than what is remembered here: it may have run
    END IF;
    RETURN 'claim';
END
$$;

-- Begins a call in the open transaction.
--   verdict   'run'                the call is this transaction's: do the work, then finish()
--             'replay'             it ended before: answer with result_*; state says how, result_kept whether there is one
--             'in_progress'        another transaction works on it, longer than wait_ms
--             'mismatch'           the callId or the key belongs to another request
--             'fenced'             its caller gave it up
--             'expired'            a new call on a key past its life, or a callId older than what is remembered
--             'retry_transaction'  above READ COMMITTED a race was lost: roll back and run the transaction again
--   run       names this beginning; a lost COMMIT is recognised by it
-- wait_ms bounds the wait for another transaction, and is kept below statement_timeout, which would abort the transaction.
CREATE OR REPLACE FUNCTION samekey.begin(
    call_id text, key text DEFAULT NULL, fingerprint text DEFAULT NULL, route text DEFAULT '', tenant text DEFAULT '',
    wait_ms integer DEFAULT 5000,
    OUT verdict text, OUT state text, OUT final boolean, OUT reason text, OUT result_status integer,
    OUT result_headers jsonb, OUT result_body bytea, OUT result_kept boolean, OUT original_call_id text, OUT run uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = 0 AS $$
#variable_conflict use_column
DECLARE
    own       samekey.call;
    holder    samekey.call;
    shown     samekey.call;
    moment    timestamptz := clock_timestamp();
    forgotten boolean;
    stop      timestamptz;
    left_ms   bigint;
    limit_ms  numeric := extract(epoch FROM current_setting('statement_timeout')::interval) * 1000;
BEGIN
    PERFORM samekey.check_names($1, $2, $3, $4, $5);
    IF $6 IS NULL OR $6 < 1 THEN
        RAISE EXCEPTION 'samekey: wait_ms is 1 or more' USING ERRCODE = '22023';
    END IF;
    stop := moment + least($6, CASE WHEN limit_ms > 0 THEN greatest(1, limit_ms * 0.8) ELSE $6 END) * interval '1 ms';
    SELECT samekey.id_time($1) < s.refuse_before INTO forgotten FROM samekey.setting s;
    forgotten := coalesce(forgotten, false);

    FOR turn IN 1..100 LOOP
        left_ms := greatest(1, ceil(extract(epoch FROM stop - clock_timestamp()) * 1000));
        BEGIN -- a subtransaction: what fails in it takes nothing else along
            PERFORM set_config('lock_timeout', left_ms::text, true); -- undone where this function ends
            IF NOT forgotten THEN
                INSERT INTO samekey.call AS c (tenant, call_id, route, key, fingerprint, state, final, holds, came, run, result_kept)
                VALUES ($5, $1, $4, $2, $3, 'PROCESSING', false, $2 IS NOT NULL, true, gen_random_uuid(), false)
                ON CONFLICT DO NOTHING RETURNING c.run INTO run;
                IF FOUND THEN
                    verdict := 'run';
                    RETURN;
                END IF;
            END IF;
            SELECT * INTO own FROM samekey.call c WHERE c.tenant = $5 AND c.call_id = $1;
            SELECT * INTO holder FROM samekey.call c WHERE c.tenant = $5 AND c.route = $4 AND c.key = $2 AND c.holds;
            moment := clock_timestamp();
            verdict := samekey.decide(own, holder, $2, $3, $4, forgotten, moment);
            shown := own;
            IF verdict = 'claim' THEN
                CONTINUE; -- what was in the way is gone
            ELSIF verdict = 'take' THEN
                UPDATE samekey.call c SET state = 'PROCESSING', holds = $2 IS NOT NULL, run = gen_random_uuid(), reason = NULL,
                    fingerprint = coalesce($3, c.fingerprint), created_at = moment, ended_at = NULL,
                    result_status = NULL, result_headers = NULL, result_body = NULL, result_kept = false
                WHERE c.tenant = $5 AND c.call_id = $1 AND c.state = 'FAILED' AND NOT c.final AND c.run = own.run
                RETURNING c.run INTO run;
                CONTINUE WHEN NOT FOUND;
                verdict := 'run';
                RETURN;
            ELSIF verdict = 'attach' THEN
                -- Before another call's result is given, the asking call has its own it.
                INSERT INTO samekey.call AS c (tenant, call_id, route, key, fingerprint, state, final, holds, came, reason, run,
                                               result_kept, original_call_id, ended_at, key_expires_at)
                VALUES ($5, $1, $4, $2, $3, 'SUCCESS', true, false, true, 'shared', holder.run, holder.result_kept,
                        holder.call_id, moment, holder.key_expires_at)
                ON CONFLICT (tenant, call_id) DO UPDATE SET state = 'SUCCESS', final = true, reason = 'shared',
                    run = excluded.run, result_kept = excluded.result_kept, original_call_id = excluded.original_call_id,
                    ended_at = excluded.ended_at, key_expires_at = excluded.key_expires_at
                    WHERE c.state = 'FAILED' AND NOT c.final;
                CONTINUE WHEN NOT FOUND;
                verdict := 'replay';
                SELECT * INTO shown FROM samekey.call c WHERE c.tenant = $5 AND c.call_id = $1;
            END IF;
            IF verdict = 'replay' THEN
                state := shown.state;
                final := shown.final;
                reason := shown.reason;
                original_call_id := shown.original_call_id;
                run := shown.run;
                SELECT c.result_status, c.result_headers, c.result_body, c.result_kept
                INTO result_status, result_headers, result_body, result_kept
                FROM samekey.call c WHERE c.tenant = $5 AND c.call_id = coalesce(shown.original_call_id, $1);
                result_kept := coalesce(result_kept, false);
            END IF;
            RETURN;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected THEN
                verdict := 'in_progress';
                RETURN;
            WHEN serialization_failure THEN
                verdict := 'retry_transaction';
                RETURN;
            WHEN unique_violation THEN
                NULL; -- the key's place was taken between reading and writing: look again
        END;
    END LOOP;
    verdict := 'in_progress';
END
$$;

-- Ends a call that this transaction began. FAILED says that nothing of it took effect; with final => false the same call
-- may run again. The answer to replay is kept when result_status is given.
CREATE OR REPLACE FUNCTION samekey.finish(
    call_id text, state text, result_status integer DEFAULT NULL, result_body bytea DEFAULT NULL,
    result_headers jsonb DEFAULT NULL, tenant text DEFAULT '', final boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF $2 IS NULL OR $2 NOT IN ('SUCCESS', 'FAILED') OR $7 IS NULL OR ($2 = 'SUCCESS' AND NOT $7) THEN
        RAISE EXCEPTION 'samekey: a call ends as SUCCESS or FAILED, and SUCCESS is final' USING ERRCODE = '22023';
    ELSIF $3 NOT BETWEEN 100 AND 999 OR ($3 IS NULL AND ($4 IS NOT NULL OR $5 IS NOT NULL)) THEN
        RAISE EXCEPTION 'samekey: a result has a status of three digits' USING ERRCODE = '22023';
    ELSIF $5 IS NOT NULL AND NOT (CASE WHEN jsonb_typeof($5) <> 'array' THEN false ELSE NOT EXISTS (
               SELECT FROM jsonb_array_elements($5) pair
               WHERE jsonb_typeof(pair) <> 'array' OR jsonb_path_query_array(pair, '$[*].type()') <> '["string", "string"]') END) THEN
        RAISE EXCEPTION 'samekey: result_headers is a list of pairs, such as [["content-type", "application/json"]]'
            USING ERRCODE = '22023';
    END IF;
    UPDATE samekey.call c SET state = $2, final = $7, holds = c.holds AND $2 = 'SUCCESS',
        reason = CASE WHEN $2 = 'SUCCESS' THEN NULL WHEN $7 THEN 'rejected' ELSE 'not_executed' END,
        result_status = $3, result_headers = CASE WHEN $3 IS NOT NULL THEN coalesce($5, '[]') END,
        result_body = CASE WHEN $3 IS NOT NULL THEN coalesce($4, '') END, result_kept = $3 IS NOT NULL,
        ended_at = moment, key_expires_at = moment + (SELECT s.key_life FROM samekey.setting s)
    WHERE c.tenant = $6 AND c.call_id = $1 AND c.state = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'samekey: call % was not begun in this transaction, or has ended', $1
            USING ERRCODE = '55000', HINT = 'Call samekey.begin() first, and finish() only after its verdict ''run''.';
    END IF;
END
$$;

-- Whether a place is free for sure: no row of another transaction, committed or not, stands in it. Inserts and takes the
-- insertion back. NULL: a transaction that has not ended stands there.
CREATE OR REPLACE FUNCTION samekey.free(tenant text, call_id text, route text, key text, wait_ms integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = 0 AS $$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN NULL; -- cannot be proved here
    END IF;
    PERFORM set_config('lock_timeout', greatest(1, $5)::text, true);
    INSERT INTO samekey.call (tenant, call_id, route, key, state, final, holds, came, run, result_kept)
    VALUES ($1, $2, $3, $4, 'FAILED', false, $4 IS NOT NULL, false, gen_random_uuid(), false) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'SKFRE';
    END IF;
    RETURN false;
EXCEPTION
    WHEN SQLSTATE 'SKFRE' THEN
        RETURN true;
    WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
        RETURN NULL;
END
$$;

-- What became of the transaction that began a call with `run`: committed or not_committed (both proved), or unknown: it has
-- not ended within wait_ms. For a COMMIT whose answer was lost; ask on a new connection.
CREATE OR REPLACE FUNCTION samekey.settled(call_id text, run text, tenant text DEFAULT '', wait_ms integer DEFAULT 5000)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = 0 AS $$
#variable_conflict use_column
DECLARE
    it    samekey.call;
    unused boolean;
BEGIN
    PERFORM samekey.check_names($1, NULL, NULL, '', $3);
    IF $2 IS NULL THEN -- nothing is equal to it, and that would be told as a proof
        RAISE EXCEPTION 'samekey: run is what begin() said with its verdict ''run''' USING ERRCODE = '22023';
    END IF;
    FOR turn IN 1..10 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', greatest(1, $4)::text, true);
            -- Locked: a transaction that took the call over may have written and not ended.
            SELECT * INTO it FROM samekey.call c WHERE c.tenant = $3 AND c.call_id = $1 FOR UPDATE;
            IF FOUND THEN
                RETURN CASE WHEN it.run = $2::uuid THEN 'committed' ELSE 'not_committed' END;
            END IF;
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
            RETURN 'unknown';
        END;
        unused := samekey.free($3, $1, '', NULL, $4);
        IF unused IS NULL THEN
            RETURN 'unknown';
        ELSIF unused THEN
            RETURN 'not_committed';
        END IF;
    END LOOP;
    RETURN 'unknown';
END
$$;

-- The receipt document of a row (call_id NULL in it: there is none).
CREATE OR REPLACE FUNCTION samekey.document(it samekey.call, call_id text, told text, told_reason text) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    setting samekey.setting;
    source  samekey.call := it;
    known   boolean := it.call_id IS NOT NULL;
    body    text;
    coding  text := 'utf8';
    safe    boolean := false;
    form    constant text := 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"';
BEGIN
    SELECT * INTO setting FROM samekey.setting;
    IF it.original_call_id IS NOT NULL THEN
        SELECT * INTO source FROM samekey.call c WHERE c.tenant = it.tenant AND c.call_id = it.original_call_id;
    END IF;
    IF source.result_kept THEN
        BEGIN
            body := convert_from(source.result_body, 'UTF8');
        EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character OR invalid_parameter_value THEN
            body := replace(encode(source.result_body, 'base64'), E'\n', '');
            coding := 'base64';
        END;
    END IF;
    -- Over the whole operation, and over transactions that have not ended: a new key is safe only when proved.
    IF told = 'FAILED' AND it.final THEN
        safe := CASE WHEN it.key IS NOT NULL
                    THEN coalesce(samekey.free(it.tenant, 'probe:' || gen_random_uuid(), it.route, it.key, 10), false)
                    ELSE it.came END;
    END IF;
    RETURN json_build_object(
        'call_id', call_id, 'state', told, 'final', known AND it.final, 'reason', told_reason,
        'received', CASE WHEN told = 'PROCESSING' THEN true WHEN told = 'UNKNOWN' THEN NULL ELSE known AND it.came END,
        'executed', CASE told WHEN 'SUCCESS' THEN true WHEN 'FAILED' THEN false WHEN 'NOT_RECEIVED' THEN false END,
        'key', it.key, 'route', it.route, 'business_ref', NULL, 'trace_id', NULL,
        'call_id_source', CASE WHEN known THEN 'caller' END, 'attempts', json_build_array(),
        'result', CASE WHEN source.result_kept THEN json_build_object('status', source.result_status,
            'headers', source.result_headers, 'body', body, 'body_encoding', coding) END,
        'original_call_id', it.original_call_id, 'reverses', NULL, 'reversed_by', NULL, 'proof', 'transaction',
        'safe_new_key', safe,
        'next_action', CASE WHEN told = 'NOT_RECEIVED' OR (told = 'FAILED' AND NOT it.final) THEN 'retry_same_call'
            WHEN told = 'PROCESSING' THEN 'wait' WHEN told = 'UNKNOWN' THEN 'ask_operator'
            WHEN told = 'FAILED' AND it.reason = 'rejected' THEN 'fix_request' ELSE 'none' END,
        'covers_since', to_char(setting.covers_since AT TIME ZONE 'UTC', form),
        'created_at', to_char(it.created_at AT TIME ZONE 'UTC', form),
        'updated_at', to_char(coalesce(it.ended_at, it.created_at) AT TIME ZONE 'UTC', form),
        'expires_at', to_char((it.ended_at + setting.tombstone_life) AT TIME ZONE 'UTC', form));
END
$$;

-- The receipt of a call, as the JSON document of samekey's receipt endpoint. With wait_ms over 0 a call of which nothing is
-- committed is looked for among transactions that have not ended, too, and told as PROCESSING when one has it still after
-- that time; NOT_RECEIVED then is a proof. With 0 NOT_RECEIVED says that nothing is committed. Ask outside of long
-- REPEATABLE READ transactions, whose view is old.
CREATE OR REPLACE FUNCTION samekey.receipt(call_id text, tenant text DEFAULT '', wait_ms integer DEFAULT 0) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    it    samekey.call;
    unused boolean;
BEGIN
    PERFORM samekey.check_names($1, NULL, NULL, '', $2);
    FOR turn IN 1..3 LOOP
        SELECT * INTO it FROM samekey.call c WHERE c.tenant = $2 AND c.call_id = $1;
        IF FOUND THEN
            RETURN samekey.document(it, $1, it.state, it.reason);
        END IF;
        EXIT WHEN coalesce($3, 0) <= 0;
        unused := samekey.free($2, $1, '', NULL, $3);
        EXIT WHEN unused;
        IF unused IS NULL THEN
            RETURN samekey.document(it, $1, 'PROCESSING', NULL);
        END IF;
    END LOOP;
    IF (SELECT samekey.id_time($1) < s.refuse_before FROM samekey.setting s) THEN
        RETURN samekey.document(it, $1, 'UNKNOWN', 'beyond-retention');
    END IF;
    RETURN samekey.document(it, $1, 'NOT_RECEIVED', NULL);
END
$$;

-- Gives a call up, so that it can never run: FAILED, final, reason "fenced". A call that has ended is told as it is, one
-- that a transaction works on for longer than wait_ms as PROCESSING, and nothing is changed. Effective once committed.
CREATE OR REPLACE FUNCTION samekey.fence(call_id text, tenant text DEFAULT '', route text DEFAULT NULL, key text DEFAULT NULL,
                                         wait_ms integer DEFAULT 1000) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = 0 AS $$
#variable_conflict use_column
DECLARE
    it    samekey.call;
    moment timestamptz := clock_timestamp();
BEGIN
    PERFORM samekey.check_names($1, $4, NULL, coalesce($3, ''), $2);
    IF (SELECT samekey.id_time($1) < s.refuse_before FROM samekey.setting s)
       AND NOT EXISTS (SELECT FROM samekey.call c WHERE c.tenant = $2 AND c.call_id = $1) THEN
        RETURN samekey.document(it, $1, 'UNKNOWN', 'beyond-retention'); -- it may have run, and its row is gone
    END IF;
    FOR turn IN 1..100 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', greatest(1, coalesce($5, 1000))::text, true);
            INSERT INTO samekey.call AS c (tenant, call_id, route, key, state, final, holds, came, reason, run, result_kept, ended_at)
            VALUES ($2, $1, coalesce($3, ''), $4, 'FAILED', true, false, false, 'fenced', gen_random_uuid(), false, moment)
            ON CONFLICT (tenant, call_id) DO UPDATE SET final = true, reason = 'fenced', run = excluded.run,
                ended_at = excluded.ended_at
                WHERE c.state = 'FAILED' AND NOT c.final;
            SELECT * INTO it FROM samekey.call c WHERE c.tenant = $2 AND c.call_id = $1;
            CONTINUE WHEN NOT FOUND; -- purged in between
            RETURN samekey.document(it, $1, it.state, it.reason);
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
            it := NULL;
            RETURN samekey.document(it, $1, 'PROCESSING', NULL);
        END;
    END LOOP;
    RETURN samekey.document(it, $1, 'UNKNOWN', NULL);
END
$$;

-- Writes down an event that is to be sent when, and only when, this transaction commits. Returns the message's callId.
CREATE OR REPLACE FUNCTION samekey.outbox_add(topic text, payload bytea, call_id text DEFAULT NULL, headers jsonb DEFAULT '{}',
                                              tenant text DEFAULT '') RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    number  bigint := nextval(pg_get_serial_sequence('samekey.outbox', 'id'));
    message text;
BEGIN
    PERFORM samekey.check_names(coalesce($3, 'none'), NULL, NULL, '', $5);
    message := left(coalesce($3, 'outbox'), 100) || ':' || number;
    INSERT INTO samekey.outbox (id, tenant, call_id, message_id, topic, headers, payload) OVERRIDING SYSTEM VALUE
    VALUES (number, $5, $3, message, $1, coalesce($4, '{}'), $2);
    RETURN message;
END
$$;

-- The oldest events that are not sent yet, in order, held for this transaction; another relay gets the next ones.
CREATE OR REPLACE FUNCTION samekey.outbox_unsent(most integer DEFAULT 100) RETURNS SETOF samekey.outbox
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM samekey.outbox WHERE sent_at IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
$$;
CREATE OR REPLACE FUNCTION samekey.outbox_sent(ids bigint[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE samekey.outbox SET sent_at = clock_timestamp() WHERE id = ANY ($1) AND sent_at IS NULL
$$;

-- One small step of forgetting; returns how many rows it changed, 0 when there is nothing to do. Call it again and again,
-- each time in a transaction of its own.
CREATE OR REPLACE FUNCTION samekey.purge(most integer DEFAULT 1000) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    setting samekey.setting;
    changed bigint;
    total   bigint := 0;
    edge    timestamptz;
BEGIN
    SELECT * INTO setting FROM samekey.setting;
    edge := clock_timestamp() - setting.tombstone_life;
    IF EXISTS (SELECT FROM samekey.call c WHERE c.created_at < edge AND c.ended_at < edge) THEN
        -- First what may be forgotten is refused, then it is forgotten: both in one transaction.
        UPDATE samekey.setting s SET covers_since = greatest(s.covers_since, edge), refuse_before = greatest(s.refuse_before, edge);
        DELETE FROM samekey.call c USING (SELECT d.tenant, d.call_id FROM samekey.call d
            WHERE d.created_at < edge AND d.ended_at < edge ORDER BY d.created_at LIMIT $1 FOR UPDATE SKIP LOCKED) old
        WHERE c.tenant = old.tenant AND c.call_id = old.call_id;
        GET DIAGNOSTICS total = ROW_COUNT;
    END IF;
    UPDATE samekey.call c SET result_body = NULL, result_headers = NULL, result_status = NULL, result_kept = false
    FROM (SELECT d.tenant, d.call_id FROM samekey.call d WHERE d.created_at < clock_timestamp() - setting.result_life
          AND d.ended_at < clock_timestamp() - setting.result_life AND d.result_kept
          ORDER BY d.created_at LIMIT $1 FOR UPDATE SKIP LOCKED) old
    WHERE c.tenant = old.tenant AND c.call_id = old.call_id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    total := total + changed;
    UPDATE samekey.call c SET final = true, reason = 'abandoned'
    FROM (SELECT d.tenant, d.call_id FROM samekey.call d WHERE d.created_at < clock_timestamp() - setting.key_life
          AND d.ended_at < clock_timestamp() - setting.key_life AND d.state = 'FAILED' AND NOT d.final
          ORDER BY d.created_at LIMIT $1 FOR UPDATE SKIP LOCKED) old
    WHERE c.tenant = old.tenant AND c.call_id = old.call_id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN total + changed;
END
$$;

-- Who may do what. Grant these to the roles that programs log in as.
--   samekey_service  begin, finish, settled, fence, receipt, outbox_add    the guarded service
--   samekey_gateway  receipt, fence                               receipt = "sql postgres://..." of a gateway
--   samekey_relay    outbox_unsent, outbox_sent                   who sends the events
--   samekey_reader   SELECT on the tables, receipt                reconciliation, people
REVOKE ALL ON SCHEMA samekey FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA samekey FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA samekey FROM PUBLIC;
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['samekey_service', 'samekey_gateway', 'samekey_relay', 'samekey_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION
                WHEN insufficient_privilege THEN
                    RAISE NOTICE 'samekey: role % is missing and may not be made by this user; make it and install again', name;
                    CONTINUE;
                WHEN duplicate_object OR unique_violation THEN
                    NULL; -- another database of this server was being installed at the same moment
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA samekey TO %I', name);
        EXECUTE format('GRANT EXECUTE ON FUNCTION samekey.version() TO %I', name);
        IF name <> 'samekey_relay' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION samekey.receipt(text, text, integer) TO %I', name);
        END IF;
        IF name IN ('samekey_service', 'samekey_gateway') THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION samekey.fence(text, text, text, text, integer) TO %I', name);
        END IF;
        IF name = 'samekey_service' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION samekey.begin(text, text, text, text, text, integer), '
                'samekey.finish(text, text, integer, bytea, jsonb, text, boolean), samekey.settled(text, text, text, integer), '
                'samekey.outbox_add(text, bytea, text, jsonb, text) TO %I', name);
        ELSIF name = 'samekey_relay' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION samekey.outbox_unsent(integer), samekey.outbox_sent(bigint[]) TO %I', name);
        ELSIF name = 'samekey_reader' THEN
            EXECUTE format('GRANT SELECT ON samekey.call, samekey.outbox, samekey.setting TO %I', name);
        END IF;
    END LOOP;
END
$$;
