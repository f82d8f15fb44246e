/* SPDX-License-Identifier: MIT
 *
 * The operations that write. Each decides by what stands in the file inside the batch's own transaction, so a claim
 * that comes later in the batch sees those before it. They return SQLite's code: anything but SQLITE_OK fails the
 * whole batch, and then nothing of it was written.
 */
#include "store/sqlite.h"

#include <assert.h>

/* Gives what stands of the asked identities; the slot of the call's own key where the asker named none. */
static int standing(struct sqlite_store *s, struct store_op *op)
{
    int64_t call, holder;
    int rc = identities_find(s, &s->writer, &op->row, &call, &holder);
    return rc == SQLITE_OK ? rows_gather(s, &s->writer, op, call, holder) : rc;
}

/* By row id, for the operations of owners. */
static int conflict(struct sqlite_store *s, struct store_op *op)
{
    op->status = STATUS_CONFLICT;
    return row_read(&s->writer, op->id, &op->rows.call, &op->memory);
}

static void note_unresolved(struct sqlite_store *s, const struct call_row *row)
{
    /* Without memory for the note a swapped key is not seen; the claim itself is as safe as ever. */
    if (!row->has_fingerprint || !state_unresolved(row->state))
        return;
    uint64_t hash = unresolved_hash(row->tenant, row->scope, &row->fingerprint);
    pthread_mutex_lock(&s->unresolved_lock);
    unresolved_remove(&s->unresolved, row->id);
    (void)unresolved_add(&s->unresolved, row->id, hash);
    pthread_mutex_unlock(&s->unresolved_lock);
}

static void note_resolved(struct sqlite_store *s, int64_t id)
{
    pthread_mutex_lock(&s->unresolved_lock);
    unresolved_remove(&s->unresolved, id);
    pthread_mutex_unlock(&s->unresolved_lock);
}

/* Inserts op->row as a new row with the store's id and times, under its callId; `slot` says whether it holds its key,
 * whose identity is the caller's to write. rows.call is the row. */
static int insert(struct sqlite_store *s, struct store_op *op, int64_t id, bool slot)
{
    struct call_row row = op->row;
    row.id = id;
    row.created_ms = row.updated_ms = s->now;
    if (!row.window_ms)
        row.window_ms = s->now;
    row.ended_ms = state_running(row.state) ? 0 : s->now;
    int rc = identity_add(s, &row.call_digest, id);
    if (rc == SQLITE_OK && state_unresolved(row.state))
        rc = unended_note(s, id);
    if (rc == SQLITE_OK)
        rc = standing_begin(s, &row, slot);
    if (rc == SQLITE_OK && op->keep)
        rc = kept_write(s, id, op->keep);
    if (rc != SQLITE_OK)
        return rc;
    assert(id == s->last_id + 1);
    s->last_id = id;
    note_unresolved(s, &row);
    rc = due_note(s, &row);
    if (rc == SQLITE_OK)
        row_take_over(&op->rows.call, &row, &op->memory);
    op->done = true;
    return rc == SQLITE_OK && op->memory.failed ? SQLITE_NOMEM : rc;
}

static int claim(struct sqlite_store *s, struct store_op *op)
{
    int64_t call, holder, id = s->last_id + 1;
    int rc = identities_find(s, &s->writer, &op->row, &call, &holder);
    if (rc != SQLITE_OK)
        return rc;
    if (call || holder)
        return rows_gather(s, &s->writer, op, call, holder);
    if (op->want_suspect)
        rc = suspect_find(s, &s->writer, op);
    bool too_old = op->id_time_ms && op->id_time_ms < s->refuse_before_ms;
    if (rc != SQLITE_OK || too_old || (op->block_suspect && op->rows.suspect.id))
        return rc;
    if (op->row.has_key)
        rc = identity_add(s, &op->row.operation_digest, id);
    return rc == SQLITE_OK ? insert(s, op, id, op->row.has_key) : rc;
}

/* True where the call's own row may go (back) to PROCESSING or to a shared ending. */
static bool call_as_expected(const struct store_op *op, int64_t call_id)
{
    const struct call_row *call = &op->rows.call;
    if (call_id != op->expect_call_id)
        return false;
    if (!call_id)
        return true;
    bool open = call->state == STATE_FAILED ||
                (op->kind == STORE_TAKE && state_unresolved(call->state) && call->state != STATE_PROCESSING);
    return call->fence == op->expect_call_fence && !call->final && open;
}

static int take(struct sqlite_store *s, struct store_op *op)
{
    int64_t call_id, holder_id;
    int rc = identities_find(s, &s->writer, &op->row, &call_id, &holder_id);
    if (rc == SQLITE_OK)
        rc = rows_gather(s, &s->writer, op, call_id, holder_id);
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    const struct call_row *holder = &op->rows.holder;
    bool slot_free = holder_id == op->expect_holder_id &&
                     (!holder_id || holder_id == call_id ||
                      (holder->fence == op->expect_holder_fence && holder->state == STATE_FAILED));
    if (!slot_free || !call_as_expected(op, call_id))
        return SQLITE_OK; /* nothing written: the rows tell */
    int64_t id = call_id ? call_id : s->last_id + 1;
    if (op->row.has_key && holder_id != id)
        rc = identity_move(s, &op->row.operation_digest, holder_id, id);
    if (rc != SQLITE_OK)
        return rc;
    if (!call_id) {
        memset(&op->rows.call, 0, sizeof op->rows.call);
        struct call_row given = op->row;
        op->row.state = STATE_PROCESSING;
        rc = insert(s, op, id, op->row.has_key);
        op->row = given;
        return rc;
    }
    orphans_forget(s, id);
    rc = standing_make(s, id);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_TAKE) : NULL;
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_int64(stmt, 2, op->expect_call_fence);
    sqlite3_bind_text64(stmt, 3, op->row.owner.data, op->row.owner.len, SQLITE_STATIC, SQLITE_UTF8);
    sqlite3_bind_int64(stmt, 4, op->row.lease_end_ms);
    sqlite3_bind_int64(stmt, 5, s->now);
    sqlite3_bind_int(stmt, 6, op->row.has_key ? ROW_FLAG_SLOT : 0);
    rc = connection_step(stmt);
    if (rc != SQLITE_OK)
        return rc;
    assert(sqlite3_changes(s->writer.db) == 1);
    rc = unended_note(s, id);
    if (rc == SQLITE_OK)
        rc = row_read(&s->writer, id, &op->rows.call, &op->memory);
    if (holder_id == id)
        op->rows.holder = op->rows.call;
    op->done = rc == SQLITE_OK;
    if (rc == SQLITE_OK && op->rows.call.has_fingerprint) {
        struct rows found = op->rows;
        rows_settle(&found, &op->memory);
        note_unresolved(s, &found.call);
    }
    return rc;
}

static int attach(struct sqlite_store *s, struct store_op *op)
{
    int64_t call_id, holder_id;
    int rc = identities_find(s, &s->writer, &op->row, &call_id, &holder_id);
    if (rc == SQLITE_OK)
        rc = rows_gather(s, &s->writer, op, call_id, holder_id);
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    struct call_row holder = op->rows.holder;
    struct rows found = op->rows;
    rows_settle(&found, &op->memory);
    if (!holder_id || holder_id != op->expect_holder_id || holder_id == call_id ||
        holder.state != STATE_SUCCESS || !slice_equal(found.holder.reversed_by, op->row.reversed_by) ||
        !call_as_expected(op, call_id))
        return SQLITE_OK;
    int64_t original = holder.original ? holder.original : holder.id, id = call_id;
    if (!call_id) {
        struct call_row given = op->row;
        id = s->last_id + 1;
        op->row.state = STATE_SUCCESS;
        op->row.final = true;
        op->row.reason = REASON_SHARED;
        op->row.original = original;
        op->row.has_result = holder.has_result;
        op->row.result_status = holder.result_status;
        op->row.result_expires_ms = holder.result_expires_ms;
        op->row.key_expires_ms = holder.key_expires_ms;
        op->row.tombstone_expires_ms = holder.tombstone_expires_ms;
        rc = insert(s, op, id, false);
        op->row = given;
    } else {
        const int64_t numbers[] = {id,
                                   op->expect_call_fence,
                                   original,
                                   holder.has_result ? holder.result_status : 0,
                                   holder.result_expires_ms,
                                   holder.key_expires_ms,
                                   holder.tombstone_expires_ms,
                                   s->now,
                                   REASON_SHARED};
        rc = standing_make(s, id);
        if (rc == SQLITE_OK)
            rc = connection_run(&s->writer, SQL_ATTACH, 9, numbers);
        assert(rc != SQLITE_OK || sqlite3_changes(s->writer.db) == 1);
    }
    if (rc == SQLITE_OK)
        rc = row_read(&s->writer, id, &op->rows.call, &op->memory);
    if (rc == SQLITE_OK && call_id)
        rc = due_note(s, &op->rows.call);
    op->done = rc == SQLITE_OK;
    return rc;
}

static int attempt(struct sqlite_store *s, struct store_op *op)
{
    int rc = standing_make(s, op->id);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_ATTEMPT) : NULL;
    if (!stmt)
        return sqlite_error(s->writer.db);
    const struct call_row *row = &op->row;
    sqlite3_bind_int64(stmt, 1, op->id);
    sqlite3_bind_int64(stmt, 2, op->fence);
    sqlite3_bind_int64(stmt, 3, row->lease_end_ms);
    sqlite3_bind_int64(stmt, 4, s->now);
    sqlite3_bind_int(stmt, 5, row->attempt_count);
    if (row->attempts.len)
        sqlite3_bind_text64(stmt, 6, row->attempts.data, row->attempts.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, 6);
    sqlite3_bind_int(stmt, 7, row->maybe_ran ? ROW_FLAG_MAYBE_RAN : 0);
    sqlite3_bind_int64(stmt, 8, row->first_attempt_ms ? row->first_attempt_ms : s->now);
    rc = connection_step(stmt);
    if (rc != SQLITE_OK)
        return rc;
    op->done = sqlite3_changes(s->writer.db) == 1;
    return op->done ? SQLITE_OK : conflict(s, op);
}

static int renew(struct sqlite_store *s, struct store_op *op)
{
    const int64_t numbers[] = {op->id, op->fence, op->row.lease_end_ms, s->now};
    int rc = standing_make(s, op->id);
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_RENEW, 4, numbers);
    if (rc != SQLITE_OK)
        return rc;
    op->done = sqlite3_changes(s->writer.db) == 1;
    return op->done ? SQLITE_OK : conflict(s, op);
}

/* `changed`: the row was as the operation expects. */
static int end_row(struct sqlite_store *s, struct store_op *op, bool result, int64_t ended_ms, bool *changed)
{
    int rc = standing_end(s, op, result, ended_ms, changed);
    if (rc != SQLITE_OK || *changed)
        return rc;
    rc = standing_make(s, op->id);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_END) : NULL;
    if (!stmt)
        return sqlite_error(s->writer.db);
    const struct call_row *row = &op->row;
    bool running = state_running(row->state);
    sqlite3_bind_int64(stmt, 1, op->id);
    if (op->any_fence)
        sqlite3_bind_null(stmt, 2);
    else
        sqlite3_bind_int64(stmt, 2, op->fence);
    sqlite3_bind_int64(stmt, 3, op->from_states);
    sqlite3_bind_int(stmt, 4, (int)row->state);
    sqlite3_bind_int(stmt, 5, row->final);
    sqlite3_bind_int(stmt, 6, (int)row->reason);
    if (row->attempts.len)
        sqlite3_bind_text64(stmt, 7, row->attempts.data, row->attempts.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, 7);
    sqlite3_bind_int(stmt, 8,
                     (row->maybe_ran ? ROW_FLAG_MAYBE_RAN : 0) |
                         (result && row->body_kept ? ROW_FLAG_BODY_KEPT : 0));
    sqlite3_bind_int(stmt, 9, result ? row->result_status : 0);
    sqlite3_bind_int64(stmt, 10, row->result_expires_ms);
    sqlite3_bind_int64(stmt, 11, row->key_expires_ms);
    sqlite3_bind_int64(stmt, 12, row->tombstone_expires_ms);
    sqlite3_bind_int64(stmt, 13, s->now);
    sqlite3_bind_int64(stmt, 14, ended_ms);
    sqlite3_bind_int64(stmt, 15, running ? row->lease_end_ms : 0);
    result_bind(stmt, 16, 17, row, result && row->body_kept);
    rc = connection_step(stmt);
    *changed = rc == SQLITE_OK && sqlite3_changes(s->writer.db) == 1;
    return rc;
}

static int end(struct sqlite_store *s, struct store_op *op)
{
    struct call_row *row = &op->row;
    bool result = row->has_result && row->result_status && !op->answer_only;
    bool changed = false;
    int rc = end_row(s, op, result, state_running(row->state) ? 0 : s->now, &changed);
    if (rc != SQLITE_OK)
        return rc;
    if (!changed)
        return conflict(s, op);
    if (state_unresolved(row->state) && op->from_states & 1u << STATE_FAILED)
        rc = unended_note(s, op->id);
    if (rc == SQLITE_OK && op->make_task &&
        (row->state == STATE_UNKNOWN || op->task_cause == TASK_CAUSE_FAILED))
        rc = task_add(s, op->id, op->task_due_ms, op->task_cause);
    else if (rc == SQLITE_OK && row->final && op->from_states & 1u << STATE_UNKNOWN)
        rc = task_settle(s, op->id, row->state);
    if (rc == SQLITE_OK && row->final && op->drop_kept)
        rc = kept_settle(s, op->id, row->state);
    if (rc != SQLITE_OK)
        return rc;
    if (!state_unresolved(row->state))
        note_resolved(s, op->id);
    struct call_row ended = *row;
    ended.id = op->id;
    ended.has_result = ended.body_kept =
        true; /* a note too early costs a look; a missing one keeps a body for ever */
    rc = due_note(s, &ended);
    op->done = rc == SQLITE_OK;
    return rc;
}

static int fence(struct sqlite_store *s, struct store_op *op)
{
    int rc = standing(s, op);
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    struct call_row *call = &op->rows.call;
    if (!call->id) {
        struct call_row given = op->row;
        op->row.state = STATE_FAILED;
        op->row.final = true;
        op->row.reason = REASON_FENCED;
        op->row.has_result = op->row.body_kept = false;
        rc = insert(s, op, s->last_id + 1, false);
        op->row = given;
        return rc;
    }
    int64_t holder = 0, id = call->id;
    bool open = call->state == STATE_RECEIVED || (call->state == STATE_FAILED && !call->final);
    if (open) {
        const int64_t numbers[] = {id,
                                   REASON_FENCED,
                                   s->now,
                                   op->row.result_expires_ms,
                                   op->row.key_expires_ms,
                                   op->row.tombstone_expires_ms};
        rc = standing_make(s, id);
        if (rc == SQLITE_OK)
            rc = connection_run(&s->writer, SQL_FENCE, 6, numbers);
        if (rc != SQLITE_OK)
            return rc;
        assert(sqlite3_changes(s->writer.db) == 1);
        note_resolved(s, id);
        if (op->drop_kept)
            rc = kept_settle(s, id, STATE_FAILED);
        if (rc != SQLITE_OK)
            return rc;
    }
    if (call->has_key)
        rc = identity_find(s, &s->writer, &call->operation_digest, &holder);
    if (rc == SQLITE_OK)
        rc = rows_gather(s, &s->writer, op, id, holder);
    if (rc == SQLITE_OK && open)
        rc = due_note(s, &op->rows.call);
    op->done = open && rc == SQLITE_OK;
    return rc;
}

static int expire_row(struct sqlite_store *s, struct store_op *op, int64_t id, const int64_t *fence,
                      bool *expired)
{
    *expired = false;
    int rc = standing_make(s, id);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_EXPIRE) : NULL;
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_int(stmt, 2, REASON_LEASE_EXPIRED);
    sqlite3_bind_int64(stmt, 3, s->now);
    sqlite3_bind_text(stmt, 4, s->owner, -1, SQLITE_STATIC);
    if (fence)
        sqlite3_bind_int64(stmt, 5, *fence);
    else
        sqlite3_bind_null(stmt, 5);
    rc = connection_step(stmt);
    if (rc != SQLITE_OK || sqlite3_changes(s->writer.db) != 1)
        return rc;
    *expired = true;
    op->expired[op->count++] = id;
    return task_add(s, id, op->task_due_ms, op->task_cause);
}

/* On SQLite one process owns the file, so only rows of earlier processes can expire, and those at once: no clock
 * that jumps can take a call from its living owner. Which rows these are was read when the file was opened. And rows of
 * this process that its claims may have made without its knowing. */
static int expire(struct sqlite_store *s, struct store_op *op)
{
    size_t limit = op->limit < STORE_IDS_MAX ? op->limit : STORE_IDS_MAX;
    int rc = SQLITE_OK;
    bool expired;
    while (rc == SQLITE_OK && op->count < limit && s->foreign_next < s->foreign_count)
        rc = expire_row(s, op, s->foreign[s->foreign_next++], NULL, &expired);
    /* An orphan is forgotten when it was seen to be settled, and that has not come to nothing. */
    for (size_t i = 0; rc == SQLITE_OK && op->count < limit && i < s->orphan_count;) {
        struct orphan *orphan = &s->orphans[i];
        if (orphan->settled && !s->begun_count) {
            *orphan = s->orphans[--s->orphan_count];
            continue;
        }
        rc = expire_row(s, op, orphan->id, &orphan->fence, &expired);
        orphan->settled = rc == SQLITE_OK && !expired;
        i++;
    }
    op->more = rc == SQLITE_OK && s->foreign_next < s->foreign_count;
    op->done = op->count > 0;
    return rc;
}

static int task(struct sqlite_store *s, struct store_op *op)
{
    int rc = row_read(&s->writer, op->id, &op->rows.call, &op->memory);
    if (rc == SQLITE_OK && !op->rows.call.id) {
        op->status = STATUS_NOT_FOUND;
        return rc;
    }
    if (rc == SQLITE_OK)
        rc = task_add(s, op->id, op->task_due_ms, op->task_cause);
    op->done = rc == SQLITE_OK && sqlite3_changes(s->writer.db) == 1;
    return rc;
}

int sqlite_insert(struct sqlite_store *s, struct store_op *op, int64_t id)
{
    return insert(s, op, id, op->row.has_key);
}

int sqlite_end(struct sqlite_store *s, struct store_op *op)
{
    return end(s, op);
}

int sqlite_write(struct sqlite_store *s, struct store_op *op)
{
    switch (op->kind) {
    case STORE_CLAIM:
        return op->peek ? sqlite_read(s, &s->writer, op) : claim(s, op);
    case STORE_TAKE:
        return take(s, op);
    case STORE_ATTACH:
        return attach(s, op);
    case STORE_ATTEMPT:
        return attempt(s, op);
    case STORE_RENEW:
        return renew(s, op);
    case STORE_END:
        return end(s, op);
    case STORE_FENCE:
        return fence(s, op);
    case STORE_EXPIRE:
        return expire(s, op);
    case STORE_PURGE:
        return sqlite_purge(s, op);
    case STORE_TASK:
        return task(s, op);
    case STORE_ERASE:
        return sqlite_erase(s, op);
    case STORE_SKETCH:
        return sqlite_sketch(s, op);
    case STORE_LOOKUP:
    case STORE_READ:
    case STORE_OPEN_CALLS:
    case STORE_LIST:
        return sqlite_read(s, &s->writer, op);
    case STORE_TASK_TAKE:
    case STORE_TASK_ROUND:
    case STORE_TASK_RESOLVE:
    case STORE_TASK_RUN:
    case STORE_REVERSE:
    case STORE_TELL_TAKE:
    case STORE_TELL_DONE:
    case STORE_AUDIT:
        return sqlite_task_write(s, op);
    case STORE_TASK_LIST:
    case STORE_TASK_READ:
    case STORE_TASK_COUNTS:
    case STORE_AUDIT_LIST:
        return sqlite_task_read(s, &s->writer, op);
    case STORE_WATCH:
        break;
    }
    return SQLITE_MISUSE; /* a watch, which store_batch() refuses */
}
