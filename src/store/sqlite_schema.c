/* SPDX-License-Identifier: MIT
 *
 * The schema of the SQLite store and its versions. Always true: (1) `PRAGMA user_version` is the number of
 * migrations that were applied; (2) a migration and its number are committed together; (3) a published migration is
 * never changed, a new one is added behind it; (4) a file with a higher number is left alone.
 *
 * sql/store.sqlite.sql holds the same schema for people; a unit test compares the two.
 */
#include "store/sqlite.h"

#include <string.h>

#define APPLICATION_ID 0x534B4559 /* "SKEY": tells our files from another program's */

static const char *const migrations[] = {
    /* 1: receipts, their identities and bodies, compensation tasks, the notes for purging. */
    "CREATE TABLE call(id INTEGER PRIMARY KEY, state INTEGER NOT NULL, final INTEGER NOT NULL,"
    " fence INTEGER NOT NULL, reason INTEGER NOT NULL, proof INTEGER NOT NULL, flags INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " lease_end_ms INTEGER NOT NULL, window_ms INTEGER NOT NULL, first_attempt_ms INTEGER NOT NULL,"
    " attempt_count INTEGER NOT NULL, result_status INTEGER NOT NULL, result_expires_ms INTEGER NOT NULL,"
    " key_expires_ms INTEGER NOT NULL, tombstone_expires_ms INTEGER NOT NULL, original INTEGER NOT NULL,"
    " call_digest BLOB NOT NULL, operation_digest BLOB, fingerprint_version INTEGER NOT NULL, fingerprint "
    "BLOB,"
    " credential BLOB, owner TEXT, tenant TEXT, route TEXT, scope TEXT, call_id TEXT, key TEXT, key_spelling "
    "TEXT,"
    " business_ref TEXT, trace_id TEXT, fingerprint_rules TEXT, reverses TEXT, reversed_by TEXT, attempts "
    "TEXT);"
    "CREATE TABLE unended(block INTEGER PRIMARY KEY);"
    "CREATE TABLE identity(digest BLOB PRIMARY KEY, call INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE result(id INTEGER PRIMARY KEY, headers BLOB, body BLOB);"
    "CREATE TABLE compensation(id INTEGER PRIMARY KEY, call INTEGER NOT NULL UNIQUE, status INTEGER NOT NULL,"
    " round INTEGER NOT NULL, due_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL);"
    "CREATE INDEX compensation_due ON compensation(due_ms) WHERE status IN (0, 1);"
    "CREATE TABLE due(minute INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY(minute, block)) WITHOUT "
    "ROWID;"
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;",
    /* 2: tasks that are worked on in rounds, kept requests, what people changed. */
    sqlite_tasks_schema,
    /* 3: what was asked, and what stands, in tables of their own; together they are the view `call`. Copied, so that both
     * are filled in the order of their ids. */
    "CREATE TABLE asked(id INTEGER PRIMARY KEY, state INTEGER NOT NULL, proof INTEGER NOT NULL,"
    " flags INTEGER NOT NULL, created_ms INTEGER NOT NULL, lease_end_ms INTEGER NOT NULL,"
    " window_ms INTEGER NOT NULL, first_attempt_ms INTEGER NOT NULL, attempt_count INTEGER NOT NULL,"
    " call_digest BLOB NOT NULL, operation_digest BLOB, fingerprint_version INTEGER NOT NULL, fingerprint "
    "BLOB,"
    " credential BLOB, owner TEXT, tenant TEXT, route TEXT, scope TEXT, call_id TEXT, key TEXT, key_spelling "
    "TEXT,"
    " business_ref TEXT, trace_id TEXT, fingerprint_rules TEXT, reverses TEXT);"
    "CREATE TABLE standing(id INTEGER PRIMARY KEY, state INTEGER NOT NULL, final INTEGER NOT NULL,"
    " fence INTEGER NOT NULL, reason INTEGER NOT NULL, flags INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL, lease_end_ms INTEGER NOT NULL, first_attempt_ms INTEGER NOT NULL,"
    " attempt_count INTEGER NOT NULL, result_status INTEGER NOT NULL, result_expires_ms INTEGER NOT NULL,"
    " key_expires_ms INTEGER NOT NULL, tombstone_expires_ms INTEGER NOT NULL, original INTEGER NOT NULL,"
    " owner TEXT, reversed_by TEXT, attempts TEXT, result_headers BLOB, result_body BLOB);"
    "INSERT INTO asked SELECT id, state, proof, flags, created_ms, lease_end_ms, window_ms, first_attempt_ms,"
    " attempt_count, call_digest, operation_digest, fingerprint_version, fingerprint, credential, owner, "
    "tenant,"
    " route, scope, call_id, key, key_spelling, business_ref, trace_id, fingerprint_rules, reverses FROM call"
    " ORDER BY id;"
    "INSERT INTO standing SELECT c.id, state, final, fence, reason, flags, updated_ms, ended_ms, "
    "lease_end_ms,"
    " first_attempt_ms, attempt_count, result_status, result_expires_ms, key_expires_ms, "
    "tombstone_expires_ms,"
    " original, owner, reversed_by, attempts, r.headers, r.body FROM call c LEFT JOIN result r ON r.id = c.id"
    " ORDER BY c.id;"
    "DROP TABLE call;"
    "DROP TABLE result;"
    "CREATE VIEW call AS SELECT c.id AS id, ifnull(s.state, c.state) AS state, ifnull(s.final, 0) AS final,"
    " ifnull(s.fence, 1) AS fence, ifnull(s.reason, 0) AS reason, c.proof AS proof,"
    " ifnull(s.flags, c.flags) AS flags, c.created_ms AS created_ms,"
    " ifnull(s.updated_ms, c.created_ms) AS updated_ms, ifnull(s.ended_ms, 0) AS ended_ms,"
    " ifnull(s.lease_end_ms, c.lease_end_ms) AS lease_end_ms, c.window_ms AS window_ms,"
    " ifnull(s.first_attempt_ms, c.first_attempt_ms) AS first_attempt_ms,"
    " ifnull(s.attempt_count, c.attempt_count) AS attempt_count, ifnull(s.result_status, 0) AS result_status,"
    " ifnull(s.result_expires_ms, 9223372036854775807) AS result_expires_ms, ifnull(s.key_expires_ms, "
    "9223372036854775807) AS key_expires_ms,"
    " ifnull(s.tombstone_expires_ms, 9223372036854775807) AS tombstone_expires_ms, ifnull(s.original, 0) AS "
    "original,"
    " c.call_digest AS call_digest, c.operation_digest AS operation_digest,"
    " c.fingerprint_version AS fingerprint_version, c.fingerprint AS fingerprint, c.credential AS credential,"
    " ifnull(s.owner, c.owner) AS owner, c.tenant AS tenant, c.route AS route, c.scope AS scope,"
    " c.call_id AS call_id, c.key AS key, c.key_spelling AS key_spelling, c.business_ref AS business_ref,"
    " c.trace_id AS trace_id, c.fingerprint_rules AS fingerprint_rules, c.reverses AS reverses,"
    " s.reversed_by AS reversed_by, s.attempts AS attempts, s.result_headers AS result_headers,"
    " s.result_body AS result_body FROM asked c LEFT JOIN standing s ON s.id = c.id;",
    /* Sketches of blocks of calls, for lists; and the first block that has none. */
    "CREATE TABLE sketch(block INTEGER PRIMARY KEY, made_ms INTEGER NOT NULL, bits BLOB NOT NULL);"
    "INSERT INTO meta VALUES('sketched', 0);",
    /* 5: the newer identities in a table of their own, and the hashes of all, which known_migrate() fills in. */
    "CREATE TABLE identity_recent(digest BLOB PRIMARY KEY, call INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE identity_hash(id INTEGER PRIMARY KEY, oldest INTEGER NOT NULL, newest INTEGER NOT NULL,"
    " hashes BLOB NOT NULL);",
};
#define HASHES_VERSION 4
#define SCHEMA_VERSION ((int64_t)(sizeof migrations / sizeof *migrations))

static int pragma(sqlite3 *db, const char *sql, int64_t *value)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW)
            *value = sqlite3_column_int64(stmt, 0), rc = SQLITE_OK;
        else if (rc == SQLITE_DONE)
            rc = SQLITE_OK;
    }
    sqlite3_finalize(stmt);
    return rc;
}

static int apply(sqlite3 *db, int64_t version, int64_t now_ms)
{
    char sql[240];
    int rc = sqlite3_exec(db, migrations[version], NULL, NULL, NULL);
    if (rc == SQLITE_OK && version == 0) {
        /* Nothing before this moment is known here. Ids made a little earlier, by a clock slightly off or while
         * the gateway was starting for the first time, are still taken. */
        sqlite3_snprintf(sizeof sql, sql,
                         "INSERT INTO meta VALUES('covers_since_ms', %lld), ('refuse_before_ms', %lld),"
                         " ('last_id', 0), ('removed', 0), ('pins', 0), ('indexed', 0)",
                         (long long)now_ms, (long long)(now_ms - SQLITE_CREATION_SKEW_MS));
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK && version == HASHES_VERSION)
        rc = known_migrate(db);
    if (rc == SQLITE_OK) {
        sqlite3_snprintf(sizeof sql, sql, "PRAGMA application_id = %d; PRAGMA user_version = %lld",
                         APPLICATION_ID, (long long)version + 1);
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    return rc;
}

int sqlite_schema_migrate(sqlite3 *db, const char *path, bool read_only, int64_t now_ms, enum status *refused,
                          struct buffer *error)
{
    int64_t version = 0, application = 0, objects = 0;
    *refused = STATUS_OK;
    int rc = pragma(db, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK)
        rc = pragma(db, "PRAGMA application_id", &application);
    if (rc == SQLITE_OK)
        rc = pragma(db, "SELECT count(*) FROM sqlite_master", &objects);
    if (rc != SQLITE_OK)
        return rc;
    if (objects && application != APPLICATION_ID) {
        buffer_format(error,
                      "%s is an SQLite database of another program: name another file in `store`; samekey "
                      "keeps its receipts in a file of their own.",
                      path);
        *refused = STATUS_INVALID;
        return SQLITE_OK;
    }
    if (version > SCHEMA_VERSION) {
        buffer_format(
            error,
            "%s has schema version %lld and this samekey knows only up to %lld: run the newer samekey "
            "that wrote it, or restore the backup made before the upgrade.",
            path, (long long)version, (long long)SCHEMA_VERSION);
        *refused = STATUS_INVALID;
        return SQLITE_OK;
    }
    if (version == SCHEMA_VERSION)
        return SQLITE_OK;
    if (read_only) {
        buffer_format(error,
                      "%s has schema version %lld, older than this samekey: let its gateway start once.",
                      path, (long long)version);
        *refused = STATUS_INVALID;
        return SQLITE_OK;
    }
    /* All receipts may be copied: not in memory. */
    rc = sqlite3_exec(db, "PRAGMA cache_spill = ON; BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (; rc == SQLITE_OK && version < SCHEMA_VERSION; version++)
        rc = apply(db, version, now_ms);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA cache_spill = OFF", NULL, NULL, NULL);
    return rc;
}
