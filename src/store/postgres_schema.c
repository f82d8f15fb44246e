/* SPDX-License-Identifier: MIT
 *
 * The schema of the PostgreSQL store, and its versions. Everything is in schema samekey_store of the database that the
 * URL names. Always true: (1) meta.version is the number of migrations that were applied; (2) a migration and its number
 * are committed together; (3) a published one is never changed; (4) a schema with a higher number is left alone. Two
 * gateways that start at once both try, one wins, the other finds the work done: no lock is taken for it.
 *
 * Why it has this shape. A call's identities (callId, and the key's one slot) are two unique indexes of one table, so
 * that one INSERT takes both or neither; a unique index over a partitioned table would have to hold the partition's key
 * and would not keep keys unique. So `call` is not partitioned: it is the tombstone, a few hundred bytes, and goes in
 * small batches. What takes the room, the bodies, lies apart in one table for each day on which they expire: result_20450
 * holds what expires on day 20450 since 1970, and is dropped whole when that day is over. No index of `call` names a
 * column that changes, so an ending writes its row and no index (HOT). Calls without an ending are few and have a small
 * table of their own, `open_call`. Texts of callers are bytes: PostgreSQL would refuse some as text.
 */
#include "store/postgres.h"

#include <poll.h>
#include <stdio.h>

static const char *const migrations[] = {
    /* 1 */
    "CREATE FUNCTION samekey_store.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS"
    " 'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';"
    "CREATE SEQUENCE samekey_store.number MINVALUE 0 MAXVALUE 1023 CYCLE;"
    "CREATE TABLE samekey_store.call("
    " id bigint PRIMARY KEY, fence bigint NOT NULL, created_ms bigint NOT NULL, updated_ms bigint NOT NULL,"
    " ended_ms bigint NOT NULL, lease_end_ms bigint NOT NULL, window_ms bigint NOT NULL,"
    " first_attempt_ms bigint NOT NULL, result_expires_ms bigint NOT NULL, key_expires_ms bigint NOT NULL,"
    " tombstone_expires_ms bigint NOT NULL, original bigint NOT NULL, result_day int NOT NULL DEFAULT 0,"
    " attempt_count int NOT NULL, result_status int NOT NULL, fingerprint_version int NOT NULL,"
    " state smallint NOT NULL, reason smallint NOT NULL, proof smallint NOT NULL, flags smallint NOT NULL,"
    " final boolean NOT NULL, call_digest bytea NOT NULL, operation_digest bytea, slot_digest bytea,"
    " fingerprint bytea, credential bytea, owner bytea, tenant bytea, route bytea, scope bytea, call_id "
    "bytea,"
    " key bytea, key_spelling bytea, business_ref bytea, trace_id bytea, fingerprint_rules bytea, reverses "
    "bytea,"
    " reversed_by bytea, attempts bytea) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05);"
    "CREATE UNIQUE INDEX call_digest ON samekey_store.call(call_digest);"
    "CREATE UNIQUE INDEX call_slot ON samekey_store.call(slot_digest) WHERE slot_digest IS NOT NULL;"
    "CREATE TABLE samekey_store.open_call(id bigint PRIMARY KEY, fingerprint bytea)"
    " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);"
    "CREATE INDEX open_call_suspect ON samekey_store.open_call(fingerprint);"
    "CREATE TABLE samekey_store.compensation(id bigserial PRIMARY KEY, call bigint NOT NULL UNIQUE,"
    " due_ms bigint NOT NULL, created_ms bigint NOT NULL, updated_ms bigint NOT NULL, lease_end_ms bigint "
    "NOT NULL DEFAULT 0,"
    " fence bigint NOT NULL DEFAULT 0, tell_due_ms bigint NOT NULL DEFAULT 0, round int NOT NULL DEFAULT 0,"
    " granted int NOT NULL DEFAULT 0, tell_tries int NOT NULL DEFAULT 0, status smallint NOT NULL DEFAULT 0,"
    " cause smallint NOT NULL DEFAULT 0, tell smallint NOT NULL DEFAULT 0, owner bytea, last_answer bytea);"
    "CREATE INDEX compensation_due ON samekey_store.compensation(due_ms) WHERE status IN (0, 1);"
    "CREATE INDEX compensation_open ON samekey_store.compensation(status, cause, created_ms) WHERE status IN "
    "(0, 1, 4);"
    "CREATE INDEX compensation_tell ON samekey_store.compensation(tell_due_ms) WHERE tell = 1;"
    "CREATE TABLE samekey_store.compensation_round(task bigint NOT NULL, n int NOT NULL, at_ms bigint NOT "
    "NULL,"
    " ended_ms bigint NOT NULL, asked bytea, answer bytea, ours bytea, difference bytea, decision bytea, "
    "evidence bytea,"
    " owner bytea, PRIMARY KEY(task, n));"
    "CREATE TABLE samekey_store.kept(call bigint PRIMARY KEY, method bytea, target bytea, lines bytea, body "
    "bytea,"
    " reversal bytea);"
    "CREATE TABLE samekey_store.audit(id bigserial PRIMARY KEY, at_ms bigint NOT NULL, call bigint NOT NULL,"
    " task bigint NOT NULL, who bytea, what bytea, tenant bytea, call_id bytea, evidence bytea);"
    "CREATE INDEX audit_call ON samekey_store.audit(call) WHERE call <> 0;"
    "CREATE TABLE samekey_store.due(minute bigint, block bigint, after_id bigint NOT NULL DEFAULT 0,"
    " PRIMARY KEY(minute, block));"
    "CREATE TABLE samekey_store.writer(name bytea PRIMARY KEY, batch bigint NOT NULL, seen_ms bigint NOT "
    "NULL)"
    " WITH (fillfactor = 50);"
    "UPDATE samekey_store.meta SET covers_since_ms = samekey_store.now_ms(),"
    " refuse_before_ms = samekey_store.now_ms() - 600000;"
    "CREATE VIEW samekey_store.receipt AS SELECT id, convert_from(call_id, 'SQL_ASCII') AS call_id,"
    " convert_from(key, 'SQL_ASCII') AS key, convert_from(route, 'SQL_ASCII') AS route,"
    " (ARRAY['?', 'RECEIVED', 'PROCESSING', 'SUCCESS', 'FAILED', 'UNKNOWN'])[state + 1] AS state, final,"
    " to_timestamp(created_ms / 1000.0) AS created_at, to_timestamp(nullif(ended_ms, 0) / 1000.0) AS "
    "ended_at,"
    " to_timestamp(nullif(lease_end_ms, 0) / 1000.0) AS lease_end, convert_from(owner, 'SQL_ASCII') AS "
    "owner, fence"
    " FROM samekey_store.call;",
    /* The secret of store/secret.h. */
    "ALTER TABLE samekey_store.meta ADD COLUMN secret bytea;",
    /* Digests in sixteen bytes without a length: entries of their indexes are a quarter smaller, and compared as they are.
     * It takes as long as the table is large, and nobody waits behind it longer than seconds before it has begun. */
    "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '5s';"
    "ALTER TABLE samekey_store.call ALTER call_digest TYPE uuid USING encode(call_digest, 'hex')::uuid,"
    " ALTER operation_digest TYPE uuid USING encode(operation_digest, 'hex')::uuid,"
    " ALTER slot_digest TYPE uuid USING encode(slot_digest, 'hex')::uuid;",
};
#define SCHEMA_VERSION ((int64_t)(sizeof migrations / sizeof *migrations))
#define OPEN_TRIES     40
#define OPEN_GAP_MS    100

static enum pg_fault version_read(struct pg_link *l, int64_t *version)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, "SELECT version FROM samekey_store.meta", NULL, &result);
    *version = 0;
    if (fault == PG_TABLE || (fault == PG_FAILED && strstr(l->error, "samekey_store")))
        return PG_OK; /* no such table, no such schema */
    if (fault != PG_OK)
        return fault;
    if (PQntuples(result) == 1)
        *version = pg_number(result, 0, 0);
    PQclear(result);
    return PG_OK;
}

/* Applies one migration, if nobody else does at the same time. */
static enum pg_fault apply(struct pg_link *l, int64_t version)
{
    struct buffer sql = {0};
    buffer_text(&sql, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;");
    if (version == 0)
        buffer_text(
            &sql,
            "CREATE SCHEMA IF NOT EXISTS samekey_store;"
            "CREATE TABLE samekey_store.meta(one boolean PRIMARY KEY DEFAULT true CHECK(one),"
            " version int NOT NULL, covers_since_ms bigint NOT NULL, refuse_before_ms bigint NOT NULL);"
            "INSERT INTO samekey_store.meta(version, covers_since_ms, refuse_before_ms) VALUES(0, 0, 0);");
    /* Fails by the division where another one was first. */
    buffer_format(
        &sql,
        "WITH mine AS (UPDATE samekey_store.meta SET version = %lld WHERE version = %lld RETURNING 1)"
        " SELECT 1 / count(*) FROM mine;",
        (long long)version + 1, (long long)version);
    buffer_text(&sql, migrations[version]);
    buffer_text(&sql, "COMMIT");
    enum pg_fault fault = sql.failed ? PG_FAILED : pg_text_within(l, buffer_cstring(&sql), PG_MIGRATE_MS);
    buffer_fini(&sql);
    if (fault != PG_OK)
        pg_transaction_abandon(l);
    return fault;
}

/* What is missing is told now, and not by the first ending that finds no table for its body. */
static enum status rights_look(struct pg_link *l, struct buffer *error)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_run(l, PG_SQL_NONE,
                                 "SELECT has_schema_privilege('samekey_store', 'CREATE')"
                                 " AND has_table_privilege('samekey_store.call', 'INSERT')"
                                 " AND has_table_privilege('samekey_store.call', 'UPDATE')"
                                 " AND has_table_privilege('samekey_store.call', 'DELETE')",
                                 NULL, &result);
    bool enough = fault == PG_OK && PQntuples(result) == 1 && pg_number(result, 0, 0) != 0;
    PQclear(result);
    if (enough)
        return STATUS_OK;
    if (fault == PG_OK)
        buffer_text(error,
                    "PostgreSQL: the user of `store` may not create tables in the schema samekey_store, "
                    "or not write to its table call: let it own both, e.g. by ALTER SCHEMA "
                    "samekey_store OWNER TO it and REASSIGN OWNED, or name their owner in `store`.");
    else
        buffer_format(error, "PostgreSQL: %s", *l->error ? l->error : "no answer");
    return STATUS_IO;
}

enum status pg_schema_open(struct pg_link *l, struct buffer *error)
{
    enum pg_fault fault = PG_LOST;
    for (int i = 0; i < OPEN_TRIES; i++) {
        int64_t version = 0;
        if (i)
            (void)poll(NULL, 0, OPEN_GAP_MS);
        l->retry_at_ms = 0;
        fault = pg_link_ready(l);
        if (fault != PG_OK && i >= 3)
            break;
        if (fault == PG_OK)
            fault = version_read(l, &version);
        if (fault != PG_OK)
            continue;
        if (version > SCHEMA_VERSION) {
            buffer_format(error,
                          "The schema samekey_store has version %lld and this samekey knows only up to %lld: "
                          "run the newer "
                          "samekey that wrote it, or restore the backup made before the upgrade.",
                          (long long)version, (long long)SCHEMA_VERSION);
            return STATUS_INVALID;
        }
        if (version == SCHEMA_VERSION)
            return l->store->read_only ? STATUS_OK : rights_look(l, error);
        if (l->store->read_only) {
            buffer_text(error, "The schema samekey_store is not there or older than this samekey: let its "
                               "gateway start once.");
            return STATUS_INVALID;
        }
        fault = apply(l, version);
        if (fault == PG_FAILED && strstr(l->error, "permission denied")) {
            buffer_format(
                error,
                "PostgreSQL: %s: let the database's owner run CREATE SCHEMA samekey_store AUTHORIZATION "
                "with the user of `store`, or grant CREATE on the database.",
                l->error);
            return STATUS_IO;
        }
        /* Of several that make the schema at once all but one fail so. Bringing it up to date is work that is not begun
         * again and again where it fails, on a full disk say. */
        if (fault == PG_FAILED && version > 0)
            break;
    }
    buffer_format(error, "PostgreSQL: %s", *l->error ? l->error : "no answer");
    return STATUS_IO;
}

/* ---- the tables of bodies ---- */

int64_t pg_day_of(int64_t expires_ms)
{
    int64_t day = expires_ms / PG_DAY_MS;
    return expires_ms <= 0 || day > PG_DAY_NEVER ? PG_DAY_NEVER : day;
}

static bool known(struct pg_store *s, int64_t day)
{
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->days_known && i < PG_DAYS_KNOWN; i++)
        found = found || s->days[i] == day;
    pthread_mutex_unlock(&s->lock);
    return found;
}

void pg_day_forget(struct pg_store *s, int64_t day)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->days_known && i < PG_DAYS_KNOWN; i++)
        if (s->days[i] == day)
            s->days[i] = 0;
    pthread_mutex_unlock(&s->lock);
}

enum pg_fault pg_day_make(struct pg_link *l, int64_t day)
{
    char sql[200];
    struct pg_store *s = l->store;
    if (known(s, day))
        return PG_OK;
    enum pg_fault fault = pg_link_ready(l);
    for (int i = 0; fault == PG_OK && i < PG_TRIES; i++) {
        snprintf(sql, sizeof sql,
                 "CREATE TABLE IF NOT EXISTS samekey_store.result_%lld(id bigint PRIMARY KEY, headers bytea "
                 "NOT NULL,"
                 " body bytea NOT NULL)",
                 (long long)day);
        fault = pg_text(l, sql);
        if (fault != PG_REFUSED) /* two at once meet in the catalogue's unique index */
            break;
        fault = PG_OK;
    }
    if (fault != PG_OK)
        return fault;
    pthread_mutex_lock(&s->lock);
    s->days[s->days_known++ % PG_DAYS_KNOWN] = day;
    pthread_mutex_unlock(&s->lock);
    return PG_OK;
}

enum pg_fault pg_day_move(struct pg_link *l, const struct store_op *op)
{
    char sql[700];
    struct pg_args args = {0};
    PGresult *result = NULL;
    int64_t day = pg_day_of(op->row.result_expires_ms);
    bool replaces = op->row.has_result && op->row.result_status && !op->answer_only;
    (void)pg_arg_number(&args, op->id);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "SELECT fence, state, final, result_day FROM samekey_store.call WHERE id = $1 FOR UPDATE",
               &args, &result);
    bool there = fault == PG_OK && PQntuples(result) == 1;
    bool moves = there && (op->any_fence || pg_number(result, 0, 0) == op->fence) &&
                 (1u << pg_number(result, 0, 1)) & op->from_states && !pg_number(result, 0, 2) &&
                 pg_number(result, 0, 3) == PG_DAY_NEVER && day != PG_DAY_NEVER;
    PQclear(result);
    if (moves) {
        int len = snprintf(sql, sizeof sql,
                           "WITH d AS (DELETE FROM samekey_store.result_%d WHERE id = $1 RETURNING *)",
                           PG_DAY_NEVER);
        if (replaces)
            snprintf(sql + len, sizeof sql - (size_t)len, " SELECT 1 FROM d");
        else
            snprintf(sql + len, sizeof sql - (size_t)len,
                     ", i AS (INSERT INTO samekey_store.result_%lld SELECT * FROM d ON CONFLICT DO NOTHING)"
                     " UPDATE samekey_store.call SET result_day = %lld WHERE id = $1",
                     (long long)day, (long long)day);
        fault = pg_run(l, PG_SQL_NONE, sql, &args, NULL);
    }
    pg_args_fini(&args);
    return fault;
}

void pg_days_drop(struct pg_link *l, int64_t now_ms)
{
    PGresult *result = NULL;
    struct pg_args args = {0};
    /* A day longer than the day itself, so that nobody still writes into it or reads from it. */
    (void)pg_arg_number(&args, now_ms / PG_DAY_MS - 1);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "SELECT t.day FROM (SELECT substr(c.relname, 8)::bigint AS day FROM pg_catalog.pg_class c"
               " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'samekey_store'"
               " AND c.relkind = 'r' AND c.relname ~ '^result_[0-9]{1,8}$') t WHERE t.day < $1 ORDER BY "
               "t.day LIMIT 8",
               &args, &result);
    pg_args_fini(&args);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++) {
        char sql[160];
        int64_t day = pg_number(result, i, 0);
        bool over = true;
        if (l->store->archive)
            fault = pg_archive_day_over(l, day, &over);
        if (fault != PG_OK || !over)
            continue;
        pg_day_forget(l->store, day);
        /* Whoever reads a body just now is waited for shortly; next time it is tried again. */
        snprintf(
            sql, sizeof sql,
            "BEGIN; SET LOCAL lock_timeout = 100; DROP TABLE IF EXISTS samekey_store.result_%lld; COMMIT",
            (long long)day);
        fault = pg_text(l, sql);
        if (fault != PG_OK)
            pg_transaction_abandon(l);
    }
    PQclear(result);
}
