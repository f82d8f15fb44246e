/* SPDX-License-Identifier: MIT
 *
 * Rows out of PostgreSQL: those of callIds, of keys' slots and of ids, with who holds the key of each, in one statement;
 * then their bodies, from the tables of the days on which they expire. While an operation is answered its rows point into
 * the results; rows_copy() takes them over.
 */
#include "store/postgres.h"

#include <stdio.h>
#include <stdlib.h>

#define READ_TRIES 2

/* What is read, in this order: the statement and the decoder are made of it. */
#define NUMBERS(X)                                                                                           \
    X(id)                                                                                                    \
    X(fence)                                                                                                 \
    X(created_ms)                                                                                            \
    X(updated_ms)                                                                                            \
    X(ended_ms)                                                                                              \
    X(lease_end_ms)                                                                                          \
    X(window_ms)                                                                                             \
    X(first_attempt_ms)                                                                                      \
    X(result_expires_ms)                                                                                     \
    X(key_expires_ms) X(tombstone_expires_ms) X(original) X(attempt_count) X(fingerprint_version)
#define TEXTS(X)                                                                                             \
    X(owner)                                                                                                 \
    X(tenant)                                                                                                \
    X(route)                                                                                                 \
    X(scope)                                                                                                 \
    X(call_id)                                                                                               \
    X(key)                                                                                                   \
    X(key_spelling) X(business_ref) X(trace_id) X(fingerprint_rules) X(reverses) X(reversed_by) X(attempts)
#define DIGESTS(X) X(call_digest) X(operation_digest) X(fingerprint) X(credential)
#define OTHERS(X)                                                                                            \
    X(state)                                                                                                 \
    X(reason)                                                                                                \
    X(proof)                                                                                                 \
    X(flags)                                                                                                 \
    X(final)                                                                                                 \
    X(result_status)                                                                                         \
    X(slot) X(body_day) X(body_id) X(o_call_id) X(o_status) X(o_flags) X(now) X(covers) X(refuse)

enum column {
#define COLUMN(name) COL_##name,
    NUMBERS(COLUMN) TEXTS(COLUMN) DIGESTS(COLUMN) OTHERS(COLUMN)
#undef COLUMN
};

/* Of rows that are locked; reads take the shorter way below. */
#define WANTED                                                                                               \
    "c.id = ANY(ARRAY(SELECT k.id FROM samekey_store.call k WHERE k.call_digest = ANY($1)"                   \
    " UNION SELECT k.id FROM samekey_store.call k WHERE k.slot_digest = ANY($2)"                             \
    " UNION SELECT k.id FROM samekey_store.call k WHERE k.id = ANY($3)"                                      \
    " UNION SELECT h.id FROM samekey_store.call k JOIN samekey_store.call h ON h.slot_digest = "             \
    "k.operation_digest"                                                                                     \
    " WHERE k.call_digest = ANY($1)"                                                                         \
    " UNION SELECT h.id FROM samekey_store.call k JOIN samekey_store.call h ON h.slot_digest = "             \
    "k.operation_digest"                                                                                     \
    " WHERE k.id = ANY($3)))"

#define NAME(name) "c." #name ","
static const char select_rows[] = "SELECT " NUMBERS(NAME) TEXTS(NAME) DIGESTS(
    NAME) "c.state, c.reason, c.proof, c.flags, c.final, c.result_status,"
          " c.slot_digest IS NOT NULL, CASE WHEN c.original <> 0 THEN o.result_day ELSE c.result_day END,"
          " CASE WHEN c.original <> 0 THEN o.id ELSE c.id END, o.call_id, o.result_status, o.flags";
#undef NAME
/* Each row is found by one way through one index, since in a large store every further page is one that no cache holds: who
 * holds a call's key is looked for only where the call does not hold it itself. A row may be told twice. */
static const char look_found[] =
    "WITH k AS MATERIALIZED (SELECT * FROM samekey_store.call WHERE call_digest = ANY($1)"
    " UNION ALL SELECT * FROM samekey_store.call WHERE id = ANY($3)),"
    " f AS NOT MATERIALIZED (SELECT * FROM k"
    " UNION ALL SELECT h.* FROM samekey_store.call h WHERE h.slot_digest = ANY($2) AND h.call_digest <> "
    "ALL($1)"
    " UNION ALL SELECT h.* FROM k JOIN samekey_store.call h ON h.slot_digest = k.operation_digest"
    " WHERE k.slot_digest IS NULL) ";
/* What the store covers comes from the same snapshot as the rows, or as their absence. */
static const char look_from[] =
    ", samekey_store.now_ms(), m.covers_since_ms, m.refuse_before_ms FROM samekey_store.meta m"
    " LEFT JOIN f c ON true LEFT JOIN samekey_store.call o ON o.id = nullif(c.original, 0)";
static const char lock_from[] =
    " FROM samekey_store.call c LEFT JOIN samekey_store.call o"
    " ON o.id = c.original AND c.original <> 0 WHERE " WANTED " ORDER BY c.id FOR UPDATE OF c";

void pg_rows_begin(struct pg_rows *r)
{
    memset(r, 0, sizeof *r);
    r->calls = pg_arg_digests(&r->args);
    r->slots = pg_arg_digests(&r->args);
    r->ids = pg_arg_numbers(&r->args);
}

void pg_rows_call(struct pg_rows *r, const struct digest *call)
{
    pg_add_digest(&r->args, r->calls, call, true);
}

void pg_rows_slot(struct pg_rows *r, const struct digest *operation)
{
    pg_add_digest(&r->args, r->slots, operation, true);
}

void pg_rows_id(struct pg_rows *r, int64_t id)
{
    pg_add_number(&r->args, r->ids, id);
}

static void forget(struct pg_rows *r)
{
    PQclear(r->found);
    for (size_t i = 0; i < r->bodies_count; i++)
        PQclear(r->bodies[i]);
    free((void *)r->bodies);
    free(r->rows);
    free(r->slot);
    r->found = NULL;
    r->bodies = NULL;
    r->rows = NULL;
    r->slot = NULL;
    r->count = r->bodies_count = 0;
}

void pg_rows_end(struct pg_rows *r)
{
    forget(r);
    pg_args_fini(&r->args);
}

static bool digest_read(const PGresult *result, int row, int column, void *bytes, size_t len)
{
    struct slice data = pg_bytes(result, row, column);
    if (data.len != len)
        return false;
    memcpy(bytes, data.data, len);
    return true;
}

static void decode(const PGresult *result, int at, struct call_row *row, bool *slot)
{
#define NUMBER(name) row->name = pg_number(result, at, COL_##name);
#define TEXT(name)   row->name = pg_bytes(result, at, COL_##name);
    row->id = pg_number(result, at, COL_id);
    row->fence = pg_number(result, at, COL_fence);
    NUMBER(created_ms)
    NUMBER(updated_ms)
    NUMBER(ended_ms)
    NUMBER(lease_end_ms)
    NUMBER(window_ms)
    NUMBER(first_attempt_ms)
    NUMBER(result_expires_ms)
    NUMBER(key_expires_ms)
    NUMBER(tombstone_expires_ms)
    NUMBER(original)
    row->attempt_count = (int)pg_number(result, at, COL_attempt_count);
    row->fingerprint_version = (int)pg_number(result, at, COL_fingerprint_version);
    TEXTS(TEXT)
#undef NUMBER
#undef TEXT
    row->state = (enum call_state)pg_number(result, at, COL_state);
    row->reason = (enum reason)pg_number(result, at, COL_reason);
    row->proof = (enum proof)pg_number(result, at, COL_proof);
    row->final = pg_number(result, at, COL_final) != 0;
    int flags = (int)pg_number(result, at, COL_flags);
    row->call_id_made = flags & PG_FLAG_CALL_ID_MADE;
    row->maybe_ran = flags & PG_FLAG_MAYBE_RAN;
    row->result_status = (int)pg_number(result, at, COL_result_status);
    if (row->original && pg_number(result, at, COL_o_status)) {
        row->result_status = (int)pg_number(result, at, COL_o_status);
        flags = (int)pg_number(result, at, COL_o_flags);
    }
    if (row->original)
        row->original_call_id = pg_bytes(result, at, COL_o_call_id);
    row->has_result = row->result_status != 0;
    row->body_kept = row->has_result && (flags & PG_FLAG_BODY_KEPT); /* until its body is not found */
    digest_read(result, at, COL_call_digest, row->call_digest.bytes, sizeof row->call_digest.bytes);
    row->has_key = digest_read(result, at, COL_operation_digest, row->operation_digest.bytes,
                               sizeof row->operation_digest.bytes);
    row->has_fingerprint =
        digest_read(result, at, COL_fingerprint, row->fingerprint.bytes, sizeof row->fingerprint.bytes);
    row->has_credential =
        digest_read(result, at, COL_credential, row->credential.bytes, sizeof row->credential.bytes);
    *slot = pg_number(result, at, COL_slot) != 0;
}

/* Fetches the bodies of one day; a table that is gone holds none. */
static enum pg_fault day_read(struct pg_rows *r, struct pg_link *l, int64_t day)
{
    char sql[120];
    struct pg_args args = {0};
    PGresult *result = NULL;
    int ids = pg_arg_numbers(&args);
    for (size_t i = 0; i < r->count; i++)
        if (r->rows[i].body_kept && pg_number(r->found, (int)i, COL_body_day) == day)
            pg_add_number(&args, ids, pg_number(r->found, (int)i, COL_body_id));
    snprintf(sql, sizeof sql, "SELECT id, headers, body FROM samekey_store.result_%lld WHERE id = ANY($1)",
             (long long)day);
    enum pg_fault fault = pg_read(l, PG_SQL_NONE, sql, &args, &result);
    pg_args_fini(&args);
    if (fault == PG_TABLE)
        return PG_OK;
    if (fault != PG_OK)
        return fault;
    PGresult **more = (PGresult **)realloc((void *)r->bodies, (r->bodies_count + 1) * sizeof(PGresult *));
    if (!more) {
        PQclear(result);
        return PG_FAILED;
    }
    r->bodies = more;
    r->bodies[r->bodies_count++] = result;
    return PG_OK;
}

static bool body_find(const struct pg_rows *r, int64_t id, struct call_row *row)
{
    for (size_t i = 0; i < r->bodies_count; i++)
        for (int j = 0; j < PQntuples(r->bodies[i]); j++)
            if (pg_number(r->bodies[i], j, 0) == id) {
                row->result_headers = pg_bytes(r->bodies[i], j, 1);
                row->result_body = pg_bytes(r->bodies[i], j, 2);
                return true;
            }
    return false;
}

static enum pg_fault bodies_read(struct pg_rows *r, struct pg_link *l)
{
    enum pg_fault fault = PG_OK;
    for (size_t i = 0; fault == PG_OK && i < r->count; i++) {
        int64_t day = pg_number(r->found, (int)i, COL_body_day);
        bool read = !r->rows[i].body_kept || !day;
        for (size_t j = 0; !read && j < i; j++)
            read = r->rows[j].body_kept && pg_number(r->found, (int)j, COL_body_day) == day;
        if (!read)
            fault = day_read(r, l, day);
    }
    for (size_t i = 0; fault == PG_OK && i < r->count; i++)
        if (r->rows[i].body_kept)
            r->rows[i].body_kept = body_find(r, pg_number(r->found, (int)i, COL_body_id), &r->rows[i]);
    return fault;
}

enum pg_fault pg_rows_read(struct pg_rows *r, struct pg_link *l, bool lock, bool bodies)
{
    char sql[sizeof look_found + sizeof select_rows + sizeof look_from + sizeof lock_from];
    snprintf(sql, sizeof sql, "%s%s%s", lock ? "" : look_found, select_rows, lock ? lock_from : look_from);
    forget(r);
    int64_t until = pg_monotonic_ms() + PG_BATCH_MS;
    enum pg_fault fault = lock ? pg_run(l, PG_SQL_LOCK, sql, &r->args, &r->found)
                               : pg_read(l, PG_SQL_READ, sql, &r->args, &r->found);
    /* Outside a transaction a read can be done again, and what a write found must not be lost to a pooler or a cut. */
    for (int i = 0; !lock && i < READ_TRIES && pg_monotonic_ms() < until &&
                    (fault == PG_UNNAMED || fault == PG_LOST || fault == PG_AGAIN);
         i++) {
        fault = pg_link_ready(l);
        if (fault == PG_OK)
            fault = pg_read(l, PG_SQL_READ, sql, &r->args, &r->found);
    }
    if (fault != PG_OK)
        return fault;
    size_t count = (size_t)PQntuples(r->found);
    if (!lock) {
        if (!count)
            return PG_FAILED; /* table meta is empty */
        r->moment.now_ms = pg_number(r->found, 0, COL_now);
        r->moment.covers_since_ms = pg_number(r->found, 0, COL_covers);
        r->moment.refuse_before_ms = pg_number(r->found, 0, COL_refuse);
        if (PQgetisnull(r->found, 0, COL_id))
            count = 0;
    }
    r->rows = calloc(count ? count : 1, sizeof *r->rows);
    r->slot = calloc(count ? count : 1, sizeof *r->slot);
    if (!r->rows || !r->slot)
        return PG_FAILED;
    r->count = count;
    for (size_t i = 0; i < count; i++)
        decode(r->found, (int)i, &r->rows[i], &r->slot[i]);
    return bodies ? bodies_read(r, l) : PG_OK;
}

const struct call_row *pg_rows_find_call(const struct pg_rows *r, const struct digest *call)
{
    for (size_t i = 0; i < r->count; i++)
        if (digest_equal(&r->rows[i].call_digest, call))
            return &r->rows[i];
    return NULL;
}

const struct call_row *pg_rows_find_slot(const struct pg_rows *r, const struct digest *operation)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->slot[i] && r->rows[i].has_key && digest_equal(&r->rows[i].operation_digest, operation))
            return &r->rows[i];
    return NULL;
}

const struct call_row *pg_rows_find_id(const struct pg_rows *r, int64_t id)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->rows[i].id == id)
            return &r->rows[i];
    return NULL;
}

/* Two callIds or keys under one digest would replay a stranger's answer: compare what was asked with what stands. */
bool pg_texts_agree(const struct call_row *asked, const struct call_row *call, const struct call_row *holder)
{
    if (call && asked->call_id.len && digest_equal(&asked->call_digest, &call->call_digest) &&
        (!slice_equal(asked->call_id, call->call_id) || !slice_equal(asked->tenant, call->tenant)))
        return false;
    return !(holder && asked->key.len && holder->has_key &&
             digest_equal(&asked->operation_digest, &holder->operation_digest) &&
             (!slice_equal(asked->key, holder->key) || !slice_equal(asked->scope, holder->scope) ||
              !slice_equal(asked->tenant, holder->tenant)));
}

void pg_rows_answer(const struct pg_rows *r, struct store_op *op, const struct call_row *call,
                    const struct call_row *holder, const struct call_row *suspect)
{
    struct rows rows = {.now_ms = r->moment.now_ms,
                        .covers_since_ms = r->moment.covers_since_ms,
                        .refuse_before_ms = r->moment.refuse_before_ms};
    if (!pg_texts_agree(&op->row, call, holder)) {
        op->status = STATUS_INVALID;
        op->done = false;
        return;
    }
    if (call)
        rows.call = *call;
    if (holder)
        rows.holder = *holder;
    if (suspect)
        rows.suspect = *suspect;
    buffer_clear(&op->memory);
    rows_copy(&op->rows, &op->memory, &rows);
}
