/* SPDX-License-Identifier: MIT
 *
 * The operations that only read, and the gathering of rows that all operations share.
 */
#include "store/sqlite.h"

#define SUSPECTS_COMPARED 4 /* rows read for one hash of a fingerprint; more would only be more of the same */

bool state_unresolved(enum call_state state)
{
    return state == STATE_RECEIVED || state == STATE_PROCESSING || state == STATE_UNKNOWN;
}

int suspect_find(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    if (!op->row.has_fingerprint)
        return SQLITE_OK;
    int64_t ids[SUSPECTS_COMPARED];
    uint64_t hash = unresolved_hash(op->row.tenant, op->row.scope, &op->row.fingerprint);
    pthread_mutex_lock(&s->unresolved_lock);
    size_t count = unresolved_find(&s->unresolved, hash, ids, SUSPECTS_COMPARED);
    pthread_mutex_unlock(&s->unresolved_lock);
    for (size_t i = 0; i < count; i++) {
        int rc = row_read(c, ids[i], &op->rows.suspect, &op->memory);
        if (rc != SQLITE_OK)
            return rc;
        struct rows found = op->rows;
        rows_settle(&found, &op->memory);
        const struct call_row *row = &found.suspect;
        if (row->id && state_unresolved(row->state) && row->has_fingerprint &&
            digest32_equal(&row->fingerprint, &op->row.fingerprint) &&
            slice_equal(row->tenant, op->row.tenant) && slice_equal(row->scope, op->row.scope))
            return SQLITE_OK;
        memset(&op->rows.suspect, 0, sizeof op->rows.suspect);
    }
    return SQLITE_OK;
}

/* Two callIds or keys under one digest would replay a stranger's answer: compare what was asked with what stands. */
static bool texts_agree(const struct store_op *op, const struct buffer *memory)
{
    struct rows found = op->rows;
    rows_settle(&found, memory);
    const struct call_row *asked = &op->row, *call = &found.call, *holder = &found.holder;
    if (call->id && asked->call_id.len && digest_equal(&asked->call_digest, &call->call_digest) &&
        (!slice_equal(asked->call_id, call->call_id) || !slice_equal(asked->tenant, call->tenant)))
        return false;
    return !(holder->id && asked->key.len && holder->has_key &&
             digest_equal(&asked->operation_digest, &holder->operation_digest) &&
             (!slice_equal(asked->key, holder->key) || !slice_equal(asked->scope, holder->scope) ||
              !slice_equal(asked->tenant, holder->tenant)));
}

static void refuse(struct store_op *op)
{
    memset(&op->rows.call, 0, sizeof op->rows.call);
    memset(&op->rows.holder, 0, sizeof op->rows.holder);
    op->status = STATUS_INVALID;
}

int rows_gather(struct sqlite_store *s, struct connection *c, struct store_op *op, int64_t call_id,
                int64_t holder_id)
{
    (void)s;
    int rc = row_read(c, call_id, &op->rows.call, &op->memory);
    if (rc == SQLITE_OK && holder_id && holder_id == call_id)
        op->rows.holder = op->rows.call;
    else if (rc == SQLITE_OK)
        rc = row_read(c, holder_id, &op->rows.holder, &op->memory);
    if (rc == SQLITE_OK && !texts_agree(op, &op->memory))
        refuse(op);
    return rc;
}

/* The row of `id` and who holds its key; without a row, who holds the key that was asked for. */
static int read_rows(struct sqlite_store *s, struct connection *c, struct store_op *op, int64_t id)
{
    struct call_row *call = &op->rows.call;
    int flags;
    int rc = row_read_flags(c, id, call, &op->memory, &flags);
    if (rc == SQLITE_OK && !texts_agree(op, &op->memory)) {
        refuse(op);
        return SQLITE_OK;
    }
    const struct call_row *keyed = call->id ? call : &op->row;
    if (rc != SQLITE_OK || !keyed->has_key)
        return rc;
    int64_t holder = call->id;
    if (!(flags & ROW_FLAG_SLOT)) /* otherwise the row itself says so */
        rc = identity_find(s, c, &keyed->operation_digest, &holder);
    if (rc == SQLITE_OK && holder == call->id)
        op->rows.holder = *call;
    else if (rc == SQLITE_OK && holder) {
        rc = row_read(c, holder, &op->rows.holder, &op->memory);
        if (rc == SQLITE_OK && !texts_agree(op, &op->memory))
            refuse(op);
    }
    return rc;
}

static int open_calls(struct connection *c, struct store_op *op)
{
    size_t limit = op->limit < STORE_IDS_MAX ? op->limit : STORE_IDS_MAX;
    sqlite3_stmt *stmt = connection_statement(c, SQL_OPEN_CALLS);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_int64(stmt, 1, op->id);
    sqlite3_bind_int64(stmt, 2, (int64_t)limit);
    if (op->row.owner.len)
        sqlite3_bind_text64(stmt, 3, op->row.owner.data, op->row.owner.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, 3);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW)
        op->expired[op->count++] = sqlite3_column_int64(stmt, 0);
    op->more = op->count == limit;
    return rc;
}

/* A claim that only looks. */
static int peek(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    int64_t call, holder;
    int rc = identities_find(s, c, &op->row, &call, &holder);
    if (rc == SQLITE_OK)
        rc = rows_gather(s, c, op, call, holder);
    if (rc == SQLITE_OK && op->want_suspect && !call && !holder)
        rc = suspect_find(s, c, op);
    return rc;
}

#define TENANTS_COMPARED 16 /* rows of one callId that are looked at; two are enough to be ambiguous */

/* A callId without its tenant: found where exactly one tenant has it. On the writer's connection. */
static int lookup_any(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    int64_t ids[TENANTS_COMPARED], found = 0;
    size_t count;
    struct slice call_id = op->row.call_id;
    int rc = identity_prefix(s, &op->row.call_digest, ids, TENANTS_COMPARED, &count);
    for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
        struct rows one = {0};
        struct buffer memory = {0};
        rc = row_read(c, ids[i], &one.call, &memory);
        if (rc == SQLITE_OK)
            rows_settle(&one, &memory);
        bool same = rc == SQLITE_OK && one.call.id && slice_equal(one.call.call_id, call_id);
        buffer_fini(&memory);
        if (!same || ids[i] == found)
            continue;
        if (found) {
            op->status = STATUS_CONFLICT;
            return SQLITE_OK;
        }
        found = ids[i];
    }
    if (rc != SQLITE_OK || !found)
        return rc;
    op->row.call_id.len = 0; /* compared above; the tenant is what was not known */
    rc = read_rows(s, c, op, found);
    op->row.call_id = call_id;
    return rc;
}

int sqlite_read(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    int64_t id = op->id;
    int rc = SQLITE_OK;
    if (op->kind == STORE_CLAIM)
        return peek(s, c, op);
    if (op->kind == STORE_OPEN_CALLS)
        return open_calls(c, op);
    if (op->kind == STORE_LIST)
        return sqlite_list(s, c, op);
    if (op->kind == STORE_TASK_LIST || op->kind == STORE_TASK_READ || op->kind == STORE_TASK_COUNTS ||
        op->kind == STORE_AUDIT_LIST)
        return sqlite_task_read(s, c, op);
    if (op->kind == STORE_LOOKUP && op->any_tenant)
        return lookup_any(s, c, op);
    if (op->kind == STORE_LOOKUP)
        rc = identity_find(s, c, &op->row.call_digest, &id);
    return rc == SQLITE_OK ? read_rows(s, c, op, id) : rc;
}
