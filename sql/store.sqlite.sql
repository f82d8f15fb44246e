-- SPDX-License-Identifier: MIT
--
-- The schema of the SQLite store, version 4 (PRAGMA user_version). For reading: the program carries it itself, in
-- src/store/sqlite_schema.c, and a unit test compares the two.

-- What was asked: a call a row, in the order of its id, written once, at the claim. Numbers first, so that they are
-- reached without walking over texts.
--   state, proof: the numbers of src/core/state.def and receipt.h; the state, owner and lease are those of the claim
--   flags: 1 callId made by the gateway, 2 an attempt may have run, 4 the body is kept, 8 this row holds its key's one slot
--   times are unix milliseconds; a life of 9223372036854775807 never ends
CREATE TABLE asked(
    id INTEGER PRIMARY KEY, state INTEGER NOT NULL, proof INTEGER NOT NULL, flags INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, lease_end_ms INTEGER NOT NULL, window_ms INTEGER NOT NULL,
    first_attempt_ms INTEGER NOT NULL, attempt_count INTEGER NOT NULL, call_digest BLOB NOT NULL,
    operation_digest BLOB, fingerprint_version INTEGER NOT NULL, fingerprint BLOB, credential BLOB,
    owner TEXT, tenant TEXT, route TEXT, scope TEXT, call_id TEXT, key TEXT, key_spelling TEXT,
    business_ref TEXT, trace_id TEXT, fingerprint_rules TEXT, reverses TEXT
);

-- What stands, of calls of which anything has changed since the claim; a call without a row here stands as it was
-- claimed. The columns of both tables count here.
--   reason: the number of src/core/reason.def
--   owner: NULL where it is who claimed it; of a row that runs it is always named
--   original: the row whose effect and result this row shares, or 0
--   result_headers, result_body: the answer to replay
CREATE TABLE standing(
    id INTEGER PRIMARY KEY, state INTEGER NOT NULL, final INTEGER NOT NULL, fence INTEGER NOT NULL,
    reason INTEGER NOT NULL, flags INTEGER NOT NULL, updated_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,
    lease_end_ms INTEGER NOT NULL, first_attempt_ms INTEGER NOT NULL, attempt_count INTEGER NOT NULL,
    result_status INTEGER NOT NULL, result_expires_ms INTEGER NOT NULL, key_expires_ms INTEGER NOT NULL,
    tombstone_expires_ms INTEGER NOT NULL, original INTEGER NOT NULL, owner TEXT, reversed_by TEXT,
    attempts TEXT, result_headers BLOB, result_body BLOB
);

-- A receipt a row: for reading.
CREATE VIEW call AS
SELECT c.id AS id, ifnull(s.state, c.state) AS state, ifnull(s.final, 0) AS final, ifnull(s.fence, 1) AS fence,
    ifnull(s.reason, 0) AS reason, c.proof AS proof, ifnull(s.flags, c.flags) AS flags, c.created_ms AS created_ms,
    ifnull(s.updated_ms, c.created_ms) AS updated_ms, ifnull(s.ended_ms, 0) AS ended_ms,
    ifnull(s.lease_end_ms, c.lease_end_ms) AS lease_end_ms, c.window_ms AS window_ms,
    ifnull(s.first_attempt_ms, c.first_attempt_ms) AS first_attempt_ms,
    ifnull(s.attempt_count, c.attempt_count) AS attempt_count, ifnull(s.result_status, 0) AS result_status,
    ifnull(s.result_expires_ms, 9223372036854775807) AS result_expires_ms, ifnull(s.key_expires_ms, 9223372036854775807) AS key_expires_ms,
    ifnull(s.tombstone_expires_ms, 9223372036854775807) AS tombstone_expires_ms, ifnull(s.original, 0) AS original,
    c.call_digest AS call_digest, c.operation_digest AS operation_digest,
    c.fingerprint_version AS fingerprint_version, c.fingerprint AS fingerprint, c.credential AS credential,
    ifnull(s.owner, c.owner) AS owner, c.tenant AS tenant, c.route AS route, c.scope AS scope,
    c.call_id AS call_id, c.key AS key, c.key_spelling AS key_spelling, c.business_ref AS business_ref,
    c.trace_id AS trace_id, c.fingerprint_rules AS fingerprint_rules, c.reverses AS reverses,
    s.reversed_by AS reversed_by, s.attempts AS attempts, s.result_headers AS result_headers,
    s.result_body AS result_body
FROM asked c LEFT JOIN standing s ON s.id = c.id;

-- The blocks of 256 ids (block * 256 and up) that may have calls without an ending: read at the start.
CREATE TABLE unended(block INTEGER PRIMARY KEY);

-- A digest of a callId (with its tenant) or of an operation (tenant, scope, key), and its row. Rows newer than meta
-- 'indexed' are in neither table yet: the process that owns the file has them in memory and merges them in order, first
-- into the smaller one, from there into the other. A digest is in one of the two, or after a crash for a while in both, with one row.
CREATE TABLE identity(digest BLOB PRIMARY KEY, call INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE identity_recent(digest BLOB PRIMARY KEY, call INTEGER NOT NULL) WITHOUT ROWID;
-- Hashes of all digests in them, four bytes each (the last of the digest, the last first): what a process reads at its start
-- to know which digests are in neither. oldest, newest: the rows of these digests.
CREATE TABLE identity_hash(id INTEGER PRIMARY KEY, oldest INTEGER NOT NULL, newest INTEGER NOT NULL, hashes BLOB NOT NULL);

-- Tasks of calls whose ending is not clear. status: 0 PENDING, 1 RUNNING, 2 RESOLVED, 3 REVERSED, 4 MANUAL, 5 CLOSED
--   cause: 0 the call ended UNKNOWN, 1 its ending was contradicted, 2 it ended FAILED, 3 it is a reversal to be sent
--   round: rounds begun; granted: rounds beyond the route's; tell: 1 a person is still to be told, 2 told, 3 given up
CREATE TABLE compensation(
    id INTEGER PRIMARY KEY, call INTEGER NOT NULL UNIQUE, status INTEGER NOT NULL DEFAULT 0,
    cause INTEGER NOT NULL DEFAULT 0, round INTEGER NOT NULL DEFAULT 0, granted INTEGER NOT NULL DEFAULT 0,
    due_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
    lease_end_ms INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0, tell INTEGER NOT NULL DEFAULT 0,
    tell_tries INTEGER NOT NULL DEFAULT 0, tell_due_ms INTEGER NOT NULL DEFAULT 0, owner TEXT, last_answer TEXT
);
-- The tasks that are not done, by when they are due.
CREATE INDEX compensation_due ON compensation(due_ms) WHERE status IN (0, 1);
-- The open tasks, for counting; those of which a person is still to be told.
CREATE INDEX compensation_open ON compensation(status, cause, created_ms) WHERE status IN (0, 1, 4);
CREATE INDEX compensation_tell ON compensation(tell_due_ms) WHERE tell = 1;
-- What each round did, saw and decided, in words.
CREATE TABLE compensation_round(
    task INTEGER NOT NULL, n INTEGER NOT NULL, at_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,
    asked TEXT, answer TEXT, ours TEXT, difference TEXT, decision TEXT, evidence TEXT, owner TEXT,
    PRIMARY KEY(task, n)
) WITHOUT ROWID;
-- Requests that may have to be sent without their callers, with their credentials; reversals as rendered at the claim.
CREATE TABLE kept(call INTEGER PRIMARY KEY, method TEXT, target TEXT, lines BLOB, body BLOB, reversal TEXT);
-- What people changed: who, when, what, why.
CREATE TABLE audit(
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, call INTEGER NOT NULL, task INTEGER NOT NULL,
    who TEXT, what TEXT, tenant TEXT, call_id TEXT, evidence TEXT
);
CREATE INDEX audit_call ON audit(call) WHERE call <> 0;
-- "Look at the 256 rows from block * 256 in this minute (unix ms / 60000)": what purging does next.
CREATE TABLE due(minute INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY(minute, block)) WITHOUT ROWID;

-- Sketches of full blocks of 256 calls (src/store/sketch.h): which texts may be in them. For lists.
CREATE TABLE sketch(block INTEGER PRIMARY KEY, made_ms INTEGER NOT NULL, bits BLOB NOT NULL);

-- Numbers by name: covers_since_ms, refuse_before_ms, last_id, removed, indexed, pins, sketched.
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
