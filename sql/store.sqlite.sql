-- SPDX-License-Identifier: MIT
--
-- The schema of the SQLite store, version 1 (PRAGMA user_version). For reading: the program carries it itself, in
-- src/store/sqlite_schema.c, and a unit test compares the two.

-- A receipt a row, in the order of its id. Numbers first, so that they are reached without walking over texts.
--   state, reason, proof: the numbers of src/core/state.def, reason.def and receipt.h
--   flags: 1 callId made by the gateway, 2 an attempt may have run, 4 the body is kept in `result`,
--          8 this row holds its key's one slot
--   original: the row whose effect and result this row shares, or 0
--   times are unix milliseconds; a life of 9223372036854775807 never ends
CREATE TABLE call(
    id INTEGER PRIMARY KEY, state INTEGER NOT NULL, final INTEGER NOT NULL, fence INTEGER NOT NULL,
    reason INTEGER NOT NULL, proof INTEGER NOT NULL, flags INTEGER NOT NULL, created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, lease_end_ms INTEGER NOT NULL,
    window_ms INTEGER NOT NULL, first_attempt_ms INTEGER NOT NULL, attempt_count INTEGER NOT NULL,
    result_status INTEGER NOT NULL, result_expires_ms INTEGER NOT NULL, key_expires_ms INTEGER NOT NULL,
    tombstone_expires_ms INTEGER NOT NULL, original INTEGER NOT NULL, call_digest BLOB NOT NULL,
    operation_digest BLOB, fingerprint_version INTEGER NOT NULL, fingerprint BLOB, credential BLOB,
    owner TEXT, tenant TEXT, route TEXT, scope TEXT, call_id TEXT, key TEXT, key_spelling TEXT,
    business_ref TEXT, trace_id TEXT, fingerprint_rules TEXT, reverses TEXT, reversed_by TEXT,
    attempts TEXT
);

-- The blocks of 256 ids (block * 256 and up) that may have calls without an ending: read at the start.
CREATE TABLE unended(block INTEGER PRIMARY KEY);

-- A digest of a callId (with its tenant) or of an operation (tenant, scope, key), and its row. Rows newer than meta
-- 'indexed' are not in here yet: the process that owns the file has them in memory and merges them in order.
CREATE TABLE identity(digest BLOB PRIMARY KEY, call INTEGER NOT NULL) WITHOUT ROWID;

-- The answers to replay, by the id of the row that owns them.
CREATE TABLE result(id INTEGER PRIMARY KEY, headers BLOB, body BLOB);

-- Tasks of calls whose ending is not clear. status: 0 PENDING, 1 RUNNING, 2 RESOLVED, 3 REVERSED, 4 MANUAL, 5 CLOSED
CREATE TABLE compensation(
    id INTEGER PRIMARY KEY, call INTEGER NOT NULL UNIQUE, status INTEGER NOT NULL, round INTEGER NOT NULL,
    due_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL
);

-- The tasks that are not done, by when they are due.
CREATE INDEX compensation_due ON compensation(due_ms) WHERE status IN (0, 1);

-- "Look at the 256 rows from block * 256 in this minute (unix ms / 60000)": what purging does next.
CREATE TABLE due(minute INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY(minute, block)) WITHOUT ROWID;

-- Numbers by name: covers_since_ms, refuse_before_ms, last_id, removed, indexed, pins.
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
