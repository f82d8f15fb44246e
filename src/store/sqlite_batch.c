/* SPDX-License-Identifier: MIT
 *
 * The batch: operations as one transaction, what a failure means for each of them, and the batch in two halves
 * (sqlite_sync.c). sqlite.c says what is always true.
 */
#include "store/sqlite.h"

#include <assert.h>

/* True if the row stands as the operation wrote it. Only asked after a failed COMMIT. */
static int stands_as_written(struct sqlite_store *s, const struct store_op *op, int64_t id, bool *stands)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_TRACE);
    *stands = false;
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    int64_t fence = sqlite3_column_int64(stmt, 0), updated = sqlite3_column_int64(stmt, 1);
    int64_t lease = sqlite3_column_int64(stmt, 2);
    int state = sqlite3_column_int(stmt, 3), attempts = sqlite3_column_int(stmt, 4);
    switch (op->kind) {
    case STORE_ATTEMPT:
        *stands = updated == s->now && attempts == op->row.attempt_count && lease == op->row.lease_end_ms;
        break;
    case STORE_RENEW:
        *stands = updated == s->now && lease == op->row.lease_end_ms;
        break;
    case STORE_END:
        *stands = updated == s->now && state == (int)op->row.state;
        break;
    case STORE_EXPIRE:
        *stands = updated == s->now && state == STATE_UNKNOWN;
        break;
    default: /* rows.call is what was written */
        *stands = updated == s->now && fence == op->rows.call.fence && state == (int)op->rows.call.state;
    }
    return sqlite3_reset(stmt);
}

static int64_t written_id(const struct store_op *op)
{
    if (!op->done || store_op_reads(op) || op->kind == STORE_PURGE || op->kind >= STORE_TASK)
        return 0; /* nothing written, or nothing that could tell and that cannot be asked for again */
    if (op->kind == STORE_EXPIRE)
        return op->expired[0];
    return op->rows.call.id ? op->rows.call.id : op->id;
}

/* The COMMIT's answer was lost: look on a new connection for what it would have written. A transaction is there as a
 * whole or not at all, so one row that differs decides for all; of several writes to one row the last one counts. */
static enum status look_up(struct sqlite_store *s, struct store_op **ops, size_t count)
{
    bool stands = true, seen = false;
    if (sqlite_load(s) != SQLITE_OK)
        return STATUS_UNKNOWN;
    for (size_t i = count; stands && i-- > 0;) {
        int64_t id = written_id(ops[i]);
        bool later = id == 0;
        for (size_t j = i + 1; !later && j < count; j++)
            later = written_id(ops[j]) == id;
        if (later)
            continue;
        if (stands_as_written(s, ops[i], id, &stands) != SQLITE_OK)
            return STATUS_UNKNOWN;
        seen = true;
    }
    /* Not there: write over what the failed COMMIT may have left in the log. There: it was read from memory that
     * may never have reached the disk, so move it into the file, synced. */
    if (connection_run(&s->writer, SQL_PIN, 0, NULL) != SQLITE_OK || sync_now(s) != SQLITE_OK)
        return STATUS_UNKNOWN;
    if (!stands)
        return STATUS_IO;
    if (!seen)
        return STATUS_UNKNOWN;
    return sync_move_log(s) == SQLITE_OK ? STATUS_OK : STATUS_UNKNOWN;
}

static bool one_operations_fault(int rc)
{
    rc &= 0xff;
    return rc == SQLITE_CONSTRAINT || rc == SQLITE_TOOBIG || rc == SQLITE_MISMATCH || rc == SQLITE_NOMEM;
}

void sqlite_publish(struct sqlite_store *s)
{
    atomic_store_explicit(&s->rows, s->last_id - s->removed, memory_order_relaxed);
}

static void answer(struct sqlite_store *s, struct store_op *op, enum status status)
{
    if (status != STATUS_OK) {
        store_op_reset(op);
        op->status = status;
    }
    if (op->memory.failed) {
        memset(&op->rows, 0, sizeof op->rows);
        op->status = STATUS_NO_MEMORY;
    }
    rows_settle(&op->rows, &op->memory);
    op->rows.now_ms = s->now;
    op->rows.covers_since_ms = s->covers_since_ms;
    op->rows.refuse_before_ms = s->refuse_before_ms;
}

static void run(struct sqlite_store *s, struct store_op **ops, size_t count);

/* A batch that came to nothing. Reads have lost nothing and are run again; what one operation did must not cost its
 * neighbours their writes. */
static void run_apart(struct sqlite_store *s, struct store_op **ops, size_t count, bool only_reads,
                      enum status status)
{
    for (size_t i = 0; i < count; i++)
        if (!only_reads || (store_op_reads(ops[i]) && count > 1))
            run(s, &ops[i], 1);
        else
            answer(s, ops[i], status);
}

/* A batch while the file is gone. Nothing is written, and what is known is told: a claim looks, and is refused where it
 * would have inserted. The connection stays: it reads what was written, and its close moves the log into the file. */
static void run_unwritten(struct sqlite_store *s, struct store_op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct store_op *op = ops[i];
        bool claims = op->kind == STORE_CLAIM && !op->peek;
        if (!claims && !store_op_reads(op)) {
            answer(s, op, STATUS_IO);
            continue;
        }
        op->peek = op->peek || claims;
        run(s, &op, 1);
        if (claims)
            op->peek = false;
        if (claims && op->status == STATUS_OK && !op->rows.call.id && !op->rows.holder.id)
            answer(s, op, STATUS_IO);
    }
}

/* The operations and their COMMIT, whose sync is the caller's; of one that writes the caller says how it ended, with
 * sync_paid(). `committing`: it came to the COMMIT. */
static int transact(struct sqlite_store *s, struct store_op **ops, size_t count, bool writes,
                    bool *committing)
{
    int rc = s->loaded ? SQLITE_OK : sqlite_load(s);
    if (rc == SQLITE_OK && writes && s->read_only)
        rc = SQLITE_READONLY;
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, writes ? SQL_BEGIN_WRITE : SQL_BEGIN_READ, 0, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
        rc = sqlite_write(s, ops[i]);
    if (rc == SQLITE_OK && writes)
        rc = identity_merge(s);
    if (rc != SQLITE_OK)
        return rc;
    *committing = true;
    if (writes)
        sync_owed(s); /* from its COMMIT on readers see it */
    rc = connection_run(&s->writer, SQL_COMMIT, 0, NULL);
    if (rc == SQLITE_OK)
        identity_committed(s);
    return rc;
}

static void run(struct sqlite_store *s, struct store_op **ops, size_t count)
{
    bool writes = false;
    for (size_t i = 0; i < count; i++) {
        store_op_reset(ops[i]);
        writes = writes || !store_op_reads(ops[i]);
    }
    if (writes && atomic_load(&s->gone)) {
        run_unwritten(s, ops, count);
        return;
    }
    bool committing = false;
    if (!sync_sure(s)) {
        for (size_t i = 0; i < count; i++)
            answer(s, ops[i], STATUS_IO);
        return;
    }
    int rc = transact(s, ops, count, writes, &committing);
    if (rc == SQLITE_OK && writes)
        rc = sync_now(s);
    if (rc == SQLITE_OK) {
        if (writes)
            sync_paid(s, 1, false);
        for (size_t i = 0; i < count; i++)
            answer(s, ops[i], STATUS_OK);
        return;
    }
    if (committing) {
        sqlite_lose(s);
        enum status status = STATUS_IO;
        if (writes && (rc & 0xff) != SQLITE_FULL && (rc & 0xff) != SQLITE_BUSY)
            status = look_up(s, ops, count);
        if (status == STATUS_UNKNOWN) {
            sync_doubt(s, s->now);
            orphans_leave(s, ops, count);
        }
        if (writes)
            sync_paid(s, 1, true);
        if (status != STATUS_OK)
            run_apart(s, ops, count, true, status);
        else
            for (size_t i = 0; i < count; i++)
                answer(s, ops[i], STATUS_OK);
        return;
    }
    sqlite_lose(s);
    if (!one_operations_fault(rc))
        run_apart(s, ops, count, true, STATUS_IO);
    else if (count > 1)
        run_apart(s, ops, count, false, STATUS_OK);
    else
        answer(s, ops[0], (rc & 0xff) == SQLITE_NOMEM ? STATUS_NO_MEMORY : STATUS_INVALID);
}

void sqlite_batch(struct store *store, struct store_op **ops, size_t count)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    s->now = s->now_ms(s->context);
    file_gone(s, false);
    run(s, ops, count);
    sqlite_publish(s);
    checkpoint_look(s, false);
    known_step(s);
}

/* ---- the same in halves ---- */

/* The batch is on disk, or its sync has failed. */
static void settle(struct sqlite_store *s, struct begun *b)
{
    if (!b->synced)
        b->rc = b->asked ? sync_wait(s) : sync_now(s);
    if (b->rc == SQLITE_OK)
        b->rc = s->move_rc; /* the sync inside it may have been the one that was told of the failure */
    b->synced = true;
}

enum batch_begun sqlite_batch_begin(struct store *store, struct store_op **ops, size_t count)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    bool writes = false, committing = false;
    assert(s->begun_count < 2);
    for (size_t i = 0; i < count; i++) {
        assert(ops[i]->kind != STORE_WATCH);
        store_op_reset(ops[i]);
        writes = writes || !store_op_reads(ops[i]);
    }
    s->now = s->now_ms(s->context);
    if (!writes || file_gone(s, false) || !s->loaded || s->syncer.doubt)
        return BATCH_AGAIN;
    if (transact(s, ops, count, true, &committing) == SQLITE_OK) {
        s->begun[s->begun_count++] = (struct begun){.ops = ops, .count = count, .now = s->now};
        sqlite_publish(s);
        return BATCH_BEGUN;
    }
    /* A COMMIT that failed has shown nothing to anybody, and the next one is written over it. What the batch before has
     * in the log is synced while the log is still open. */
    if (s->begun_count)
        settle(s, &s->begun[0]);
    sqlite_lose(s);
    if (committing)
        sync_paid(s, 1, true);
    return BATCH_AGAIN;
}

void sqlite_batch_sync(struct store *store)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    struct begun *b = &s->begun[0];
    assert(s->begun_count);
    if (!b->asked && !b->synced && !b->answered)
        b->asked = sync_ask(s);
}

/* The oldest batch's sync has failed: whether it is on disk, and the one behind it, nobody knows. */
static void settle_lost(struct sqlite_store *s)
{
    enum status status = STATUS_UNKNOWN;
    sqlite_lose(s);
    s->move_rc = SQLITE_OK;
    s->now = s->begun[0].now;
    if (s->begun_count == 1)
        status = look_up(s, s->begun[0].ops, s->begun[0].count);
    for (size_t i = 0; status == STATUS_UNKNOWN && i < s->begun_count; i++)
        sync_doubt(s, s->begun[i].now);
    sync_paid(s, s->begun_count, true);
    for (size_t i = 0; i < s->begun_count; i++) {
        struct begun *b = &s->begun[i];
        s->now = b->now;
        b->answered = true;
        if (status == STATUS_UNKNOWN)
            orphans_leave(s, b->ops, b->count);
        if (status != STATUS_OK)
            run_apart(s, b->ops, b->count, true, status);
        for (size_t j = 0; status == STATUS_OK && j < b->count; j++)
            answer(s, b->ops[j], STATUS_OK);
    }
}

void sqlite_batch_end(struct store *store)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    struct begun *b = &s->begun[0];
    assert(s->begun_count);
    int64_t now = s->now;
    if (!b->answered)
        settle(s, b);
    if (!b->answered && b->rc != SQLITE_OK)
        settle_lost(s);
    if (!b->answered) {
        sync_paid(s, 1, false);
        s->now = b->now;
        for (size_t i = 0; i < b->count; i++)
            answer(s, b->ops[i], STATUS_OK);
    }
    s->now = now;
    s->begun[0] = s->begun[1];
    s->begun_count--;
    checkpoint_look(s, false);
    known_step(s);
}
