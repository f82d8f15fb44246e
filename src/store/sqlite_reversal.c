/* SPDX-License-Identifier: MIT
 *
 * Requests that are kept because they may have to be sent without their callers, and the reversal of an operation, which
 * is made of one. That an operation has one reversal at most rests on `reversed_by` of the call whose effect it is: it
 * is looked at and set in the transaction that inserts the reversal.
 */
#include "store/sqlite_tasks.h"

/* ---- kept requests ------------------------------------------------------------------------------------------ */

int kept_write(struct sqlite_store *s, int64_t call, const struct kept_request *kept)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_KEPT_WRITE);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, call);
    text_bind(stmt, 2, kept->method);
    text_bind(stmt, 3, kept->target);
    text_bind(stmt, 4, kept->lines);
    if (kept->has)
        sqlite3_bind_blob64(stmt, 5, kept->body.len ? kept->body.data : "", kept->body.len, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, 5);
    text_bind(stmt, 6, kept->reversal);
    return connection_step(stmt);
}

int kept_settle(struct sqlite_store *s, int64_t call, enum call_state state)
{
    if (state == STATE_FAILED)
        return connection_run(&s->writer, SQL_KEPT_DELETE, 1, &call);
    int rc = connection_run(&s->writer, SQL_KEPT_SETTLE_REST, 1, &call);
    return rc == SQLITE_OK ? connection_run(&s->writer, SQL_KEPT_SETTLE, 1, &call) : rc;
}

int kept_read(struct connection *c, int64_t call, struct kept_request *kept, struct buffer *memory)
{
    memset(kept, 0, sizeof *kept);
    sqlite3_stmt *stmt = connection_statement(c, SQL_KEPT_READ);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_int64(stmt, 1, call);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    kept->method = text_column(stmt, 0, memory);
    kept->target = text_column(stmt, 1, memory);
    kept->lines = text_column(stmt, 2, memory);
    kept->has = sqlite3_column_type(stmt, 3) != SQLITE_NULL;
    kept->body = text_column(stmt, 3, memory);
    kept->reversal = text_column(stmt, 4, memory);
    return sqlite3_reset(stmt);
}

void kept_point(struct kept_request *kept, const struct buffer *memory)
{
    struct slice *texts[] = {&kept->method, &kept->target, &kept->lines, &kept->body, &kept->reversal};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        text_point(texts[i], memory);
}

/* ---- reversal ----------------------------------------------------------------------------------------------- */

static int set_reversed(struct sqlite_store *s, int64_t id, struct slice reversed_by)
{
    int rc = standing_make(s, id);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_REVERSED) : NULL;
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    text_bind(stmt, 2, reversed_by);
    sqlite3_bind_int64(stmt, 3, s->now);
    return connection_step(stmt);
}

/* What was kept of the effect's own call, made the request of its reversal: its header lines, no body. `memory` is its. */
static int reversal_kept(struct sqlite_store *s, int64_t effect, struct kept_request *out,
                         struct buffer *memory)
{
    int rc = kept_read(&s->writer, effect, out, memory);
    if (rc != SQLITE_OK)
        return rc;
    if (memory->failed)
        return SQLITE_NOMEM;
    kept_point(out, memory);
    const char *space = out->reversal.len ? memchr(out->reversal.data, ' ', out->reversal.len) : NULL;
    out->has = space != NULL;
    if (space) {
        out->method = slice_of(out->reversal.data, (size_t)(space - out->reversal.data));
        out->target = slice_of(space + 1, out->reversal.len - out->method.len - 1);
    }
    out->body = out->reversal = slice_of(NULL, 0);
    return SQLITE_OK;
}

/* Writes the reversal's row, its request and its task, and names it in the two rows it is about. */
static int reversal_write(struct sqlite_store *s, struct store_op *op, int64_t effect, int64_t asked)
{
    int64_t id = s->last_id + 1;
    struct call_row given = op->row;
    op->row.state = STATE_RECEIVED;
    int rc = op->row.has_key ? identity_add(s, &op->row.operation_digest, id) : SQLITE_OK;
    if (rc == SQLITE_OK)
        rc = sqlite_insert(s, op, id);
    op->row = given;
    op->done = false;
    if (rc == SQLITE_OK)
        rc = task_add(s, id, s->now, TASK_CAUSE_REVERSAL);
    if (rc == SQLITE_OK)
        rc = set_reversed(s, effect, given.call_id);
    if (rc == SQLITE_OK && asked != effect)
        rc = set_reversed(s, asked, given.call_id);
    return rc;
}

/* Whether the key of a call that FAILED is another's by now: what undoes the one would undo the other. */
static int key_taken(struct sqlite_store *s, const struct call_row *effect, bool *taken)
{
    int64_t holder = 0;
    int rc = effect->state == STATE_FAILED && effect->has_key
                 ? identity_find(s, &s->writer, &effect->operation_digest, &holder)
                 : SQLITE_OK;
    *taken = holder && holder != effect->id;
    return rc;
}

int reversal_make(struct sqlite_store *s, struct store_op *op)
{
    bool taken = false;
    struct rows found = {0};
    struct buffer memory = {0}, kept_memory = {0};
    struct kept_request kept;
    const struct kept_request *asked = op->keep;
    int64_t call = 0, holder = 0;
    int rc = row_read(&s->writer, op->id, &found.call, &memory);
    if (rc == SQLITE_OK && found.call.id)
        rc = row_read(&s->writer, found.call.original ? found.call.original : found.call.id, &found.holder,
                      &memory);
    if (rc == SQLITE_OK)
        rc = identities_find(s, &s->writer, &op->row, &call, &holder);
    if (rc != SQLITE_OK)
        goto done;
    rows_settle(&found, &memory);
    const struct call_row *effect = &found.holder;
    if (!effect->id) {
        op->status = STATUS_NOT_FOUND;
        goto done;
    }
    rc = key_taken(s, effect, &taken);
    if (rc != SQLITE_OK)
        goto done;
    if (effect->reversed_by.len) {
        if (!found.call.reversed_by.len)
            rc = set_reversed(s, found.call.id, effect->reversed_by);
    } else if (1u << effect->state & op->from_states && !call && !holder && !taken) {
        if (!asked) {
            rc = reversal_kept(s, effect->id, &kept, &kept_memory);
            if (rc != SQLITE_OK || !kept.has) {
                op->status = rc == SQLITE_OK ? STATUS_NOT_FOUND : op->status;
                goto done;
            }
            op->keep = &kept;
        }
        rc = reversal_write(s, op, effect->id, found.call.id);
        op->keep = asked;
        op->done = rc == SQLITE_OK;
    }
    buffer_clear(&op->memory);
    memset(&op->rows, 0, sizeof op->rows);
    if (rc == SQLITE_OK)
        rc = task_call(s, &s->writer, op, op->id);
done:
    buffer_fini(&memory);
    buffer_fini(&kept_memory);
    return rc;
}
