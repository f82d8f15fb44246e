-- SPDX-License-Identifier: MIT
--
-- The schema of the PostgreSQL store, version 3 (samekey_store.meta.version). For reading: the program carries it itself,
-- in src/store/postgres_schema.c, and makes and migrates it at its start; a test compares the two. docs/postgres.md says
-- why it has this shape. Texts of callers are bytes: PostgreSQL would refuse some of them as text. Times are unix
-- milliseconds by the database's clock; a life of 9223372036854775807 never ends.

CREATE SCHEMA samekey_store;

-- One row. version: migrations applied. covers_since_ms: everything younger is known here. secret: seals what gateways
-- keep in Redis.
CREATE TABLE samekey_store.meta(
    one boolean PRIMARY KEY DEFAULT true CHECK(one), version int NOT NULL, covers_since_ms bigint NOT NULL,
    refuse_before_ms bigint NOT NULL, secret bytea
);

-- The clock of all gateways; the low bits of ids.
CREATE FUNCTION samekey_store.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
    'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';
CREATE SEQUENCE samekey_store.number MINVALUE 0 MAXVALUE 1023 CYCLE;

-- A call a row, its tombstone too. Not partitioned: a unique index of a partitioned table has to hold the partition's key,
-- and then keys would not be unique any more.
--   state, proof, reason: the numbers of src/core/state.def, receipt.h and reason.def
--   flags: 1 callId made by a gateway, 2 an attempt may have run, 4 the body is kept
--   slot_digest: the operation's digest, of the row that holds its key's one slot
--   original: the row whose effect and result this row shares, or 0
--   result_day: N of the table result_N that has the answer; 0: none has
CREATE TABLE samekey_store.call(
    id bigint PRIMARY KEY, fence bigint NOT NULL, created_ms bigint NOT NULL, updated_ms bigint NOT NULL,
    ended_ms bigint NOT NULL, lease_end_ms bigint NOT NULL, window_ms bigint NOT NULL, first_attempt_ms bigint NOT NULL,
    result_expires_ms bigint NOT NULL, key_expires_ms bigint NOT NULL, tombstone_expires_ms bigint NOT NULL,
    original bigint NOT NULL, result_day int NOT NULL DEFAULT 0, attempt_count int NOT NULL, result_status int NOT NULL,
    fingerprint_version int NOT NULL, state smallint NOT NULL, reason smallint NOT NULL, proof smallint NOT NULL,
    flags smallint NOT NULL, final boolean NOT NULL, call_digest uuid NOT NULL, operation_digest uuid, slot_digest uuid,
    fingerprint bytea, credential bytea, owner bytea, tenant bytea, route bytea, scope bytea, call_id bytea, key bytea,
    key_spelling bytea, business_ref bytea, trace_id bytea, fingerprint_rules bytea, reverses bytea, reversed_by bytea,
    attempts bytea
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05);
-- What keeps a callId, and a key's effect, single. Neither names a column that an ending changes.
CREATE UNIQUE INDEX call_digest ON samekey_store.call(call_digest);
CREATE UNIQUE INDEX call_slot ON samekey_store.call(slot_digest) WHERE slot_digest IS NOT NULL;

-- The bodies that expire on day N since 1970, made when the first one comes and dropped whole; 2000000 those that do not:
--   CREATE TABLE samekey_store.result_N(id bigint PRIMARY KEY, headers bytea NOT NULL, body bytea NOT NULL);

-- The calls without an ending, by fingerprint.
CREATE TABLE samekey_store.open_call(id bigint PRIMARY KEY, fingerprint bytea)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX open_call_suspect ON samekey_store.open_call(fingerprint);

-- Tasks of calls whose ending is not clear. status: 0 PENDING, 1 RUNNING, 2 RESOLVED, 3 REVERSED, 4 MANUAL, 5 CLOSED
--   cause: 0 the call ended UNKNOWN, 1 its ending was contradicted, 2 it ended FAILED, 3 it is a reversal to be sent
--   round: rounds begun; granted: rounds beyond the route's; tell: 1 a person is still to be told, 2 told, 3 given up
CREATE TABLE samekey_store.compensation(
    id bigserial PRIMARY KEY, call bigint NOT NULL UNIQUE, due_ms bigint NOT NULL, created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL, lease_end_ms bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0,
    tell_due_ms bigint NOT NULL DEFAULT 0, round int NOT NULL DEFAULT 0, granted int NOT NULL DEFAULT 0,
    tell_tries int NOT NULL DEFAULT 0, status smallint NOT NULL DEFAULT 0, cause smallint NOT NULL DEFAULT 0,
    tell smallint NOT NULL DEFAULT 0, owner bytea, last_answer bytea
);
CREATE INDEX compensation_due ON samekey_store.compensation(due_ms) WHERE status IN (0, 1);
CREATE INDEX compensation_open ON samekey_store.compensation(status, cause, created_ms) WHERE status IN (0, 1, 4);
CREATE INDEX compensation_tell ON samekey_store.compensation(tell_due_ms) WHERE tell = 1;
-- What each round did, saw and decided, in words.
CREATE TABLE samekey_store.compensation_round(
    task bigint NOT NULL, n int NOT NULL, at_ms bigint NOT NULL, ended_ms bigint NOT NULL, asked bytea, answer bytea,
    ours bytea, difference bytea, decision bytea, evidence bytea, owner bytea, PRIMARY KEY(task, n)
);
-- Requests that may have to be sent without their callers, with their credentials; reversals as rendered at the claim.
CREATE TABLE samekey_store.kept(
    call bigint PRIMARY KEY, method bytea, target bytea, lines bytea, body bytea, reversal bytea
);
-- What people changed: who, when, what, why.
CREATE TABLE samekey_store.audit(
    id bigserial PRIMARY KEY, at_ms bigint NOT NULL, call bigint NOT NULL, task bigint NOT NULL, who bytea, what bytea,
    tenant bytea, call_id bytea, evidence bytea
);
CREATE INDEX audit_call ON samekey_store.audit(call) WHERE call <> 0;

-- "Look at this block of ids, behind after_id, in this minute (unix ms / 60000)": what purging does next. A minute of -N:
-- the archive did not take all of result_N, so that table stays.
CREATE TABLE samekey_store.due(
    minute bigint, block bigint, after_id bigint NOT NULL DEFAULT 0, PRIMARY KEY(minute, block)
);
-- The last transaction of each connection that writes: whether a COMMIT whose answer was lost is there.
CREATE TABLE samekey_store.writer(name bytea PRIMARY KEY, batch bigint NOT NULL, seen_ms bigint NOT NULL)
    WITH (fillfactor = 50);

-- A receipt a row: for reading.
CREATE VIEW samekey_store.receipt AS SELECT id, convert_from(call_id, 'SQL_ASCII') AS call_id,
    convert_from(key, 'SQL_ASCII') AS key, convert_from(route, 'SQL_ASCII') AS route,
    (ARRAY['?', 'RECEIVED', 'PROCESSING', 'SUCCESS', 'FAILED', 'UNKNOWN'])[state + 1] AS state, final,
    to_timestamp(created_ms / 1000.0) AS created_at, to_timestamp(nullif(ended_ms, 0) / 1000.0) AS ended_at,
    to_timestamp(nullif(lease_end_ms, 0) / 1000.0) AS lease_end, convert_from(owner, 'SQL_ASCII') AS owner, fence
FROM samekey_store.call;
