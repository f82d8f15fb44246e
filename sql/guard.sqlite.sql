-- SPDX-License-Identifier: MIT
--
-- samekey's guard for SQLite (3.40 or later), version 1: receipts inside the service's own transaction. `samekey schema
-- sqlite` prints this file. Installing it again loses nothing (views and triggers are made anew):
--
--     samekey schema sqlite | sqlite3 -bail FILE
--
-- SQLite has no stored functions; here a row inserted into a view is the call of one, and samekey_begun holds the answer.
--
--   BEGIN IMMEDIATE
--     INSERT INTO samekey_begin(call_id, key, fingerprint, route, tenant) VALUES (?, ?, ?, ?, ?);
--     SELECT verdict, state, result_status, result_headers, result_body FROM samekey_begun;
--     'run': this transaction has the call. Anything else: the handler is not run.
--     the service's own rows
--     INSERT INTO samekey_finish(call_id, state, result_status, result_body) VALUES (?, 'SUCCESS', 201, ?);
--   COMMIT
--
-- Always true:
--  (1) One connection writes at a time, so a call that another one has begun is never seen: whoever comes waits for the
--      file (busy_timeout), and then sees the receipt, or nothing and runs.
--  (2) A transaction that began a call and did not finish it cannot commit where foreign keys are enforced (PRAGMA
--      foreign_keys = ON). Where they are not, such a receipt says UNKNOWN and the call never runs again.
--  (3) Nothing here commits or rolls back. RAISE(ABORT) undoes one statement and leaves the transaction usable.
-- Decisions are those of samekey's own core (keeper); one table of cases is played against both.
-- Texts are those of the contract; times are unix milliseconds.

CREATE TABLE IF NOT EXISTS samekey_setting(
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    result_life_ms INTEGER NOT NULL DEFAULT 604800000,     -- the stored answer
    key_life_ms INTEGER NOT NULL DEFAULT 604800000,        -- then a new call on the key is told 'expired'
    tombstone_life_ms INTEGER NOT NULL DEFAULT 2592000000, -- then the row goes
    covers_since_ms INTEGER NOT NULL,                      -- everything younger is known here
    refuse_before_ms INTEGER NOT NULL DEFAULT 0            -- a callId whose own time is before this is not run
);
INSERT INTO samekey_setting(one, version, covers_since_ms)
SELECT 1, 1, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) WHERE NOT EXISTS (SELECT 1 FROM samekey_setting);

-- A newer schema is left alone: this insertion fails, and names why.
CREATE TEMP TABLE IF NOT EXISTS samekey_installed(
    version INTEGER, CONSTRAINT "the samekey schema of this file is newer" CHECK (version <= 1));
INSERT INTO temp.samekey_installed SELECT version FROM samekey_setting;
DROP TABLE temp.samekey_installed;

-- Empty for ever: what a call that is not finished refers to.
CREATE TABLE IF NOT EXISTS samekey_never(one INTEGER PRIMARY KEY CHECK (one IS NULL));

CREATE TABLE IF NOT EXISTS samekey_call(
    tenant TEXT NOT NULL, call_id TEXT NOT NULL, route TEXT NOT NULL, key TEXT, fingerprint TEXT,
    state TEXT NOT NULL CHECK (state IN ('PROCESSING', 'SUCCESS', 'FAILED')),
    final INTEGER NOT NULL,
    holds INTEGER NOT NULL,  -- it has the key's one place
    came INTEGER NOT NULL,   -- 0: a fence that came before its call
    reason TEXT,
    run TEXT NOT NULL,       -- of the transaction that began it last
    result_status INTEGER, result_headers TEXT, result_body BLOB,
    result_kept INTEGER NOT NULL, -- there is an answer to replay
    original_call_id TEXT,   -- the call whose effect this is, when another's
    created_ms INTEGER NOT NULL, ended_ms INTEGER, key_expires_ms INTEGER,
    unfinished INTEGER REFERENCES samekey_never(one) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (tenant, call_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS samekey_call_key ON samekey_call(tenant, route, key) WHERE holds;
CREATE INDEX IF NOT EXISTS samekey_call_open ON samekey_call(call_id) WHERE state = 'PROCESSING';
CREATE INDEX IF NOT EXISTS samekey_call_created ON samekey_call(created_ms);

CREATE TABLE IF NOT EXISTS samekey_outbox(
    id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL DEFAULT '', call_id TEXT,
    message_id TEXT, -- the message's own callId, the same on every sending
    topic TEXT NOT NULL, headers TEXT NOT NULL DEFAULT '{}', payload BLOB NOT NULL,
    created_ms INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), sent_ms INTEGER
);
CREATE INDEX IF NOT EXISTS samekey_outbox_unsent ON samekey_outbox(id) WHERE sent_ms IS NULL;
DROP TRIGGER IF EXISTS samekey_outbox_named;
CREATE TRIGGER samekey_outbox_named AFTER INSERT ON samekey_outbox WHEN NEW.message_id IS NULL
BEGIN
    UPDATE samekey_outbox SET message_id = substr(coalesce(NEW.call_id, 'outbox'), 1, 100) || ':' || NEW.id WHERE id = NEW.id;
END;

-- The answer of the last samekey_begin in this transaction.
CREATE TABLE IF NOT EXISTS samekey_begun(
    one INTEGER PRIMARY KEY CHECK (one = 1), move TEXT NOT NULL, moment_ms INTEGER NOT NULL,
    verdict TEXT, state TEXT, final INTEGER, reason TEXT, result_status INTEGER, result_headers TEXT, result_body BLOB,
    result_kept INTEGER, original_call_id TEXT, run TEXT
);

DROP VIEW IF EXISTS samekey_now;
CREATE VIEW samekey_now(ms) AS SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);
DROP VIEW IF EXISTS samekey_place;
CREATE VIEW samekey_place(i) AS
    WITH RECURSIVE place(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM place WHERE i < 128) SELECT i FROM place;

DROP VIEW IF EXISTS samekey_begin;
CREATE VIEW samekey_begin(call_id, key, fingerprint, route, tenant) AS
    SELECT NULL, NULL, NULL, NULL, NULL WHERE 0;
CREATE TRIGGER samekey_begin_call INSTEAD OF INSERT ON samekey_begin
BEGIN
    SELECT RAISE(ABORT, 'samekey: call_id is 1 to 128 of A-Z a-z 0-9 . _ : -')
    WHERE NEW.call_id IS NULL OR length(NEW.call_id) NOT BETWEEN 1 AND 128 OR NEW.call_id GLOB '*[^A-Za-z0-9._:-]*';
    SELECT RAISE(ABORT, 'samekey: key is 1 to 255 bytes of visible ASCII')
    WHERE NEW.key IS NOT NULL AND (length(NEW.key) NOT BETWEEN 1 AND 255 OR NEW.key GLOB '*[^!-~]*');
    -- Bytes never equal the text they spell, so one key in both forms would have two places; a NUL hides what follows it.
    SELECT RAISE(ABORT, 'samekey: call_id, key, route and tenant are texts without NUL, not blobs')
    WHERE 'blob' IN (typeof(NEW.call_id), typeof(NEW.key), typeof(NEW.route), typeof(NEW.tenant))
          OR instr(NEW.call_id, char(0)) OR instr(NEW.key, char(0));
    SELECT RAISE(ABORT, 'samekey: fingerprint, route and tenant are at most 255 bytes each; for a fingerprint give a digest')
    WHERE length(CAST(NEW.fingerprint AS BLOB)) > 255 OR length(CAST(NEW.route AS BLOB)) > 255
          OR length(CAST(NEW.tenant AS BLOB)) > 255;
    DELETE FROM samekey_begun;
    -- What the rows mean; the same decisions as keeper_arrive() of samekey's core. A mismatch is told first.
    INSERT INTO samekey_begun(one, move, moment_ms, run)
    SELECT 1, CASE
        WHEN own.came AND (own.key IS NOT NEW.key OR own.route <> coalesce(NEW.route, '')
                           OR own.fingerprint <> NEW.fingerprint) THEN 'mismatch'
        WHEN own.state = 'SUCCESS' THEN 'replay'
        WHEN own.state = 'PROCESSING' THEN 'in_progress'
        WHEN own.reason = 'fenced' THEN 'fenced'
        WHEN own.final THEN 'replay'
        WHEN holder.call_id IS NOT NULL AND holder.call_id IS NOT own.call_id THEN CASE
            WHEN holder.fingerprint <> NEW.fingerprint THEN 'mismatch'
            WHEN holder.state = 'PROCESSING' THEN 'in_progress'
            WHEN holder.key_expires_ms <= now.ms THEN 'expired'
            ELSE 'attach' END
        WHEN own.call_id IS NOT NULL THEN 'take'
        WHEN setting.refuse_before_ms > 0 AND (
            SELECT CAST(substr(NEW.call_id, p.i + 1, 13) AS INTEGER) FROM samekey_place p
            WHERE p.i BETWEEN 2 AND length(NEW.call_id) - 28 AND substr(NEW.call_id, p.i, 28) GLOB
                '-[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-'
            ORDER BY p.i LIMIT 1) < setting.refuse_before_ms THEN 'expired'
        ELSE 'claim' END, now.ms, lower(hex(randomblob(16)))
    FROM samekey_now now JOIN samekey_setting setting
    LEFT JOIN samekey_call own ON own.tenant = coalesce(NEW.tenant, '') AND own.call_id = NEW.call_id
    LEFT JOIN samekey_call holder ON holder.tenant = coalesce(NEW.tenant, '') AND holder.route = coalesce(NEW.route, '')
        AND holder.key = NEW.key AND holder.holds;

    INSERT INTO samekey_call(tenant, call_id, route, key, fingerprint, state, final, holds, came, run, result_kept, created_ms,
                             unfinished)
    SELECT coalesce(NEW.tenant, ''), NEW.call_id, coalesce(NEW.route, ''), NEW.key, NEW.fingerprint, 'PROCESSING', 0,
           NEW.key IS NOT NULL, 1, b.run, 0, b.moment_ms, 1
    FROM samekey_begun b WHERE b.move = 'claim';
    UPDATE samekey_call SET state = 'PROCESSING', holds = NEW.key IS NOT NULL, run = b.run, reason = NULL,
        fingerprint = coalesce(NEW.fingerprint, fingerprint), created_ms = b.moment_ms, ended_ms = NULL, result_status = NULL,
        result_headers = NULL, result_body = NULL, result_kept = 0, unfinished = 1
    FROM (SELECT * FROM samekey_begun) b
    WHERE b.move = 'take' AND tenant = coalesce(NEW.tenant, '') AND call_id = NEW.call_id;
    -- Before another call's result is given, the asking call has its own row.
    INSERT INTO samekey_call(tenant, call_id, route, key, fingerprint, state, final, holds, came, reason, run, result_kept,
                             original_call_id, created_ms, ended_ms, key_expires_ms)
    SELECT h.tenant, NEW.call_id, h.route, NEW.key, NEW.fingerprint, 'SUCCESS', 1, 0, 1, 'shared', h.run, h.result_kept, h.call_id,
           b.moment_ms, b.moment_ms, h.key_expires_ms
    FROM samekey_begun b JOIN samekey_call h ON h.tenant = coalesce(NEW.tenant, '') AND h.route = coalesce(NEW.route, '')
        AND h.key = NEW.key AND h.holds
    WHERE b.move = 'attach'
    ON CONFLICT(tenant, call_id) DO UPDATE SET state = 'SUCCESS', final = 1, reason = 'shared', run = excluded.run,
        result_kept = excluded.result_kept, original_call_id = excluded.original_call_id, ended_ms = excluded.ended_ms,
        key_expires_ms = excluded.key_expires_ms;

    UPDATE samekey_begun SET verdict = CASE WHEN move IN ('claim', 'take') THEN 'run' WHEN move = 'attach' THEN 'replay' ELSE move END;
    UPDATE samekey_begun SET run = NULL WHERE verdict <> 'run';
    UPDATE samekey_begun SET state = c.state, final = c.final, reason = c.reason, original_call_id = c.original_call_id,
        run = c.run, result_status = r.result_status, result_headers = r.result_headers, result_body = r.result_body,
        result_kept = coalesce(r.result_kept, 0)
    FROM samekey_call c LEFT JOIN samekey_call r ON r.tenant = c.tenant AND r.call_id = coalesce(c.original_call_id, c.call_id)
    WHERE verdict = 'replay' AND c.tenant = coalesce(NEW.tenant, '') AND c.call_id = NEW.call_id;
END;

-- Ends a call that this transaction began. FAILED with final = 0: the same call may run again.
DROP VIEW IF EXISTS samekey_finish;
CREATE VIEW samekey_finish(call_id, state, result_status, result_body, result_headers, tenant, final) AS
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 0;
CREATE TRIGGER samekey_finish_call INSTEAD OF INSERT ON samekey_finish
BEGIN
    SELECT RAISE(ABORT, 'samekey: a call ends as SUCCESS or FAILED, and SUCCESS is final')
    WHERE NEW.state IS NULL OR NEW.state NOT IN ('SUCCESS', 'FAILED') OR (NEW.state = 'SUCCESS' AND NOT coalesce(NEW.final, 1));
    SELECT RAISE(ABORT, 'samekey: a result has a status of three digits')
    WHERE NEW.result_status NOT BETWEEN 100 AND 999
          OR (NEW.result_status IS NULL AND (NEW.result_body IS NOT NULL OR NEW.result_headers IS NOT NULL));
    SELECT RAISE(ABORT, 'samekey: result_headers is a list of pairs, such as [["content-type", "application/json"]]')
    WHERE NEW.result_headers IS NOT NULL AND CASE
        WHEN NOT json_valid(NEW.result_headers) OR json_type(NEW.result_headers) <> 'array' THEN 1
        ELSE EXISTS (SELECT 1 FROM json_each(NEW.result_headers) pair WHERE pair.type <> 'array'
            OR json_array_length(NEW.result_headers, pair.fullkey) <> 2
            OR json_type(NEW.result_headers, pair.fullkey || '[0]') <> 'text'
            OR json_type(NEW.result_headers, pair.fullkey || '[1]') <> 'text') END;
    SELECT RAISE(ABORT, 'samekey: the call was not begun in this transaction, or has ended')
    WHERE NOT EXISTS (SELECT 1 FROM samekey_call c WHERE c.tenant = coalesce(NEW.tenant, '') AND c.call_id = NEW.call_id
                      AND c.state = 'PROCESSING');
    UPDATE samekey_call SET state = NEW.state, final = coalesce(NEW.final, 1), holds = holds AND NEW.state = 'SUCCESS',
        reason = CASE WHEN NEW.state = 'SUCCESS' THEN NULL WHEN coalesce(NEW.final, 1) THEN 'rejected' ELSE 'not_executed' END,
        result_status = NEW.result_status,
        result_headers = CASE WHEN NEW.result_status IS NOT NULL THEN coalesce(NEW.result_headers, '[]') END,
        result_body = CASE WHEN NEW.result_status IS NOT NULL THEN CAST(coalesce(NEW.result_body, '') AS BLOB) END,
        result_kept = NEW.result_status IS NOT NULL, unfinished = NULL, ended_ms = (SELECT ms FROM samekey_now),
        key_expires_ms = (SELECT ms FROM samekey_now) + (SELECT key_life_ms FROM samekey_setting)
    WHERE tenant = coalesce(NEW.tenant, '') AND call_id = NEW.call_id AND state = 'PROCESSING';
END;

-- Gives a call up, so that it can never run. One that has ended stays as it is, and so does one that is older than what is
-- remembered: it may have run. samekey_receipt tells.
DROP VIEW IF EXISTS samekey_fence;
CREATE VIEW samekey_fence(call_id, tenant, route, key) AS SELECT NULL, NULL, NULL, NULL WHERE 0;
CREATE TRIGGER samekey_fence_call INSTEAD OF INSERT ON samekey_fence
BEGIN
    SELECT RAISE(ABORT, 'samekey: call_id is 1 to 128 of A-Z a-z 0-9 . _ : -')
    WHERE NEW.call_id IS NULL OR length(NEW.call_id) NOT BETWEEN 1 AND 128 OR NEW.call_id GLOB '*[^A-Za-z0-9._:-]*';
    SELECT RAISE(ABORT, 'samekey: call_id, key, route and tenant are texts without NUL, not blobs')
    WHERE 'blob' IN (typeof(NEW.call_id), typeof(NEW.key), typeof(NEW.route), typeof(NEW.tenant))
          OR instr(NEW.call_id, char(0)) OR instr(NEW.key, char(0));
    INSERT INTO samekey_call(tenant, call_id, route, key, state, final, holds, came, reason, run, result_kept, created_ms, ended_ms)
    SELECT coalesce(NEW.tenant, ''), NEW.call_id, coalesce(NEW.route, ''), NEW.key, 'FAILED', 1, 0, 0, 'fenced',
           lower(hex(randomblob(16))), 0, now.ms, now.ms
    FROM samekey_now now JOIN samekey_setting setting
    WHERE EXISTS (SELECT 1 FROM samekey_call c WHERE c.tenant = coalesce(NEW.tenant, '') AND c.call_id = NEW.call_id)
        OR coalesce((
            SELECT CAST(substr(NEW.call_id, p.i + 1, 13) AS INTEGER) FROM samekey_place p
            WHERE setting.refuse_before_ms > 0 AND p.i BETWEEN 2 AND length(NEW.call_id) - 28 AND substr(NEW.call_id, p.i, 28) GLOB
                '-[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-'
            ORDER BY p.i LIMIT 1), setting.refuse_before_ms) >= setting.refuse_before_ms
    ON CONFLICT(tenant, call_id) DO UPDATE SET final = 1, reason = 'fenced', run = excluded.run, ended_ms = excluded.ended_ms
        WHERE state = 'FAILED' AND NOT final;
END;

-- A body's bytes as base64, for the document; a body of any bytes can be said in it.
DROP VIEW IF EXISTS samekey_body64;
CREATE VIEW samekey_body64(tenant, call_id, text) AS
SELECT c.tenant, c.call_id, (
    WITH RECURSIVE
        bytes(list) AS (SELECT x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff'),
        -- In parts, since every look at the column reads the whole of it: byte by byte that is quadratic.
        parts(start, part) AS (SELECT 1, substr(c.result_body, 1, 1536) WHERE length(c.result_body) > 0
                               UNION ALL SELECT start + 1536, substr(c.result_body, start + 1536, 1536) FROM parts
                               WHERE start + 1536 <= length(c.result_body)),
        three(at) AS (SELECT 1 UNION ALL SELECT at + 3 FROM three WHERE at + 3 <= 1536),
        groups(at, part, number) AS (
            SELECT at, part, (instr(list, substr(part, at, 1)) - 1) * 65536
                + CASE WHEN at + 1 <= length(part) THEN (instr(list, substr(part, at + 1, 1)) - 1) * 256 ELSE 0 END
                + CASE WHEN at + 2 <= length(part) THEN instr(list, substr(part, at + 2, 1)) - 1 ELSE 0 END
            FROM bytes CROSS JOIN parts CROSS JOIN three WHERE at <= length(part)),
        alphabet(a) AS (SELECT 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/')
    SELECT coalesce(group_concat(substr(a, number / 262144 + 1, 1) || substr(a, number / 4096 % 64 + 1, 1)
        || CASE WHEN at + 1 <= length(part) THEN substr(a, number / 64 % 64 + 1, 1) ELSE '=' END
        || CASE WHEN at + 2 <= length(part) THEN substr(a, number % 64 + 1, 1) ELSE '=' END, ''), '')
    FROM groups JOIN alphabet)
FROM samekey_call c WHERE c.result_kept;

-- Whether a body is ASCII without NUL, in a file of any encoding.
DROP VIEW IF EXISTS samekey_ascii;
CREATE VIEW samekey_ascii(tenant, call_id, only) AS
SELECT c.tenant, c.call_id, length(CAST(c.result_body AS TEXT)) = length(c.result_body)
    AND CAST(c.result_body AS TEXT) NOT GLOB '*[^' || char(1) || '-' || char(127) || ']*'
FROM samekey_call c WHERE c.result_kept;

-- The receipt document of every call there is: SELECT document FROM samekey_receipt WHERE tenant = '' AND call_id = ?.
-- No row: samekey_absent tells what its absence means.
DROP VIEW IF EXISTS samekey_receipt;
CREATE VIEW samekey_receipt(tenant, call_id, state, document) AS
SELECT c.tenant, c.call_id, said.state, json_object(
    'call_id', c.call_id, 'state', said.state, 'final', json(iif(c.final, 'true', 'false')), 'reason', c.reason,
    'received', json(iif(c.came, 'true', 'false')),
    'executed', json(CASE said.state WHEN 'SUCCESS' THEN 'true' WHEN 'FAILED' THEN 'false' ELSE 'null' END),
    'key', c.key, 'route', c.route, 'business_ref', NULL, 'trace_id', NULL, 'call_id_source', 'caller', 'attempts', json('[]'),
    'result', iif(r.result_kept, json_object('status', r.result_status, 'headers', json(r.result_headers),
        -- A body of ASCII says itself, which costs nothing; base64 made in SQL takes two seconds for a megabyte.
        'body', iif(ascii.only, CAST(r.result_body AS TEXT),
                    (SELECT b.text FROM samekey_body64 b WHERE b.tenant = r.tenant AND b.call_id = r.call_id)),
        'body_encoding', iif(ascii.only, 'utf8', 'base64')), NULL),
    'original_call_id', c.original_call_id, 'reverses', NULL, 'reversed_by', NULL, 'proof', 'transaction',
    'safe_new_key', json(iif(c.state = 'FAILED' AND c.final AND iif(c.key IS NULL, c.came, NOT EXISTS (
        SELECT 1 FROM samekey_call h WHERE h.tenant = c.tenant AND h.route = c.route AND h.key = c.key AND h.holds)),
        'true', 'false')),
    'next_action', CASE WHEN said.state = 'UNKNOWN' THEN 'ask_operator' WHEN c.state = 'FAILED' AND NOT c.final THEN 'retry_same_call'
        WHEN c.state = 'FAILED' AND c.reason = 'rejected' THEN 'fix_request' ELSE 'none' END,
    'covers_since', strftime('%Y-%m-%dT%H:%M:%fZ', s.covers_since_ms / 1000.0, 'unixepoch'),
    'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', c.created_ms / 1000.0, 'unixepoch'),
    'updated_at', strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(c.ended_ms, c.created_ms) / 1000.0, 'unixepoch'),
    'expires_at', strftime('%Y-%m-%dT%H:%M:%fZ', (c.ended_ms + s.tombstone_life_ms) / 1000.0, 'unixepoch'))
FROM samekey_call c JOIN samekey_setting s
JOIN (SELECT 'PROCESSING' AS stored, 'UNKNOWN' AS state UNION ALL SELECT 'SUCCESS', 'SUCCESS' UNION ALL SELECT 'FAILED', 'FAILED') said
    ON said.stored = c.state
LEFT JOIN samekey_call r ON r.tenant = c.tenant AND r.call_id = coalesce(c.original_call_id, c.call_id)
LEFT JOIN samekey_ascii ascii ON ascii.tenant = r.tenant AND ascii.call_id = r.call_id;

-- covers_since of a NOT_RECEIVED, and the time before which a callId's absence says nothing.
DROP VIEW IF EXISTS samekey_absent;
CREATE VIEW samekey_absent(covers_since, covers_since_ms, refuse_before_ms) AS
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', covers_since_ms / 1000.0, 'unixepoch'), covers_since_ms, refuse_before_ms FROM samekey_setting;

-- One small step of forgetting: INSERT INTO samekey_purge(most) VALUES (1000), again and again.
DROP VIEW IF EXISTS samekey_purge;
CREATE VIEW samekey_purge(most) AS SELECT NULL WHERE 0;
CREATE TRIGGER samekey_purge_step INSTEAD OF INSERT ON samekey_purge
BEGIN
    -- First what may be forgotten is refused, then it is forgotten: both in one transaction.
    UPDATE samekey_setting SET covers_since_ms = max(covers_since_ms, now.ms - tombstone_life_ms),
        refuse_before_ms = max(refuse_before_ms, now.ms - tombstone_life_ms)
    FROM (SELECT ms FROM samekey_now) now
    WHERE EXISTS (SELECT 1 FROM samekey_call c WHERE c.created_ms < now.ms - tombstone_life_ms AND c.ended_ms < now.ms - tombstone_life_ms);
    DELETE FROM samekey_call WHERE rowid IN (SELECT c.rowid FROM samekey_call c JOIN samekey_now now JOIN samekey_setting s
        WHERE c.created_ms < now.ms - s.tombstone_life_ms AND c.ended_ms < now.ms - s.tombstone_life_ms LIMIT NEW.most);
    UPDATE samekey_call SET result_status = NULL, result_headers = NULL, result_body = NULL, result_kept = 0
    WHERE rowid IN (SELECT c.rowid FROM samekey_call c JOIN samekey_now now JOIN samekey_setting s
        WHERE c.result_kept AND c.created_ms < now.ms - s.result_life_ms AND c.ended_ms < now.ms - s.result_life_ms LIMIT NEW.most);
    UPDATE samekey_call SET final = 1, reason = 'abandoned'
    WHERE rowid IN (SELECT c.rowid FROM samekey_call c JOIN samekey_now now JOIN samekey_setting s
        WHERE c.state = 'FAILED' AND NOT c.final AND c.created_ms < now.ms - s.key_life_ms
              AND c.ended_ms < now.ms - s.key_life_ms LIMIT NEW.most);
END;
