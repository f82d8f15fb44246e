/* SPDX-License-Identifier: MIT
 *
 * The operations of which there are few. Each locks the rows that it is about, decides by what stands in them, as the
 * SQLite store does, and writes; several of them share a transaction. What they found is read after the COMMIT, so that
 * an answer never shows what was not committed.
 */
#include "store/postgres.h"

#include <stdio.h>
#include <stdlib.h>

static bool state_unresolved(enum call_state state)
{
    return state == STATE_RECEIVED || state == STATE_PROCESSING || state == STATE_UNKNOWN;
}

/* Runs a statement of which only the number of rows that it gave or wrote matters. */
static enum pg_fault change(struct pg_link *l, const char *sql, struct pg_args *args, int *rows)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, sql, args, &result);
    if (fault == PG_OK && rows)
        *rows = PQntuples(result);
    PQclear(result);
    pg_args_clear(args);
    return fault;
}

static enum pg_fault change_number(struct pg_link *l, const char *sql, int64_t number)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, number);
    enum pg_fault fault = change(l, sql, &args, NULL);
    pg_args_fini(&args);
    return fault;
}

/* ---- TAKE, ATTACH, FENCE ---- */

struct stood {
    struct pg_rows found;
    const struct call_row *call, *holder;
};

static enum pg_fault stand(struct pg_link *l, struct store_op *op, struct stood *s)
{
    pg_rows_begin(&s->found);
    pg_rows_call(&s->found, &op->row.call_digest);
    if (op->row.has_key)
        pg_rows_slot(&s->found, &op->row.operation_digest);
    enum pg_fault fault = pg_rows_read(&s->found, l, true, false);
    if (fault != PG_OK)
        return fault;
    s->call = pg_rows_find_call(&s->found, &op->row.call_digest);
    s->holder = op->row.has_key ? pg_rows_find_slot(&s->found, &op->row.operation_digest) : NULL;
    if (!pg_texts_agree(&op->row, s->call, s->holder))
        op->status = STATUS_INVALID;
    return PG_OK;
}

/* True where the call's own row may go (back) to PROCESSING or to a shared ending. */
static bool call_as_expected(const struct store_op *op, const struct call_row *call)
{
    if ((call ? call->id : 0) != op->expect_call_id)
        return false;
    if (!call)
        return true;
    bool open = call->state == STATE_FAILED ||
                (op->kind == STORE_TAKE && state_unresolved(call->state) && call->state != STATE_PROCESSING);
    return call->fence == op->expect_call_fence && !call->final && open;
}

static enum pg_fault slot_move(struct pg_link *l, const struct call_row *from, int64_t to)
{
    enum pg_fault fault = PG_OK;
    if (from)
        fault = change_number(l, "UPDATE samekey_store.call SET slot_digest = NULL WHERE id = $1", from->id);
    if (fault == PG_OK && to)
        fault = change_number(l, "UPDATE samekey_store.call SET slot_digest = operation_digest WHERE id = $1",
                              to);
    return fault;
}

static enum pg_fault open_add(struct pg_link *l, int64_t id)
{
    return change_number(l,
                         "INSERT INTO samekey_store.open_call(id, fingerprint) SELECT id, fingerprint"
                         " FROM samekey_store.call WHERE id = $1 ON CONFLICT(id) DO NOTHING",
                         id);
}

static enum pg_fault take(struct pg_link *l, struct store_op *op)
{
    struct stood s = {0};
    struct pg_args args = {0};
    int64_t id = 0;
    enum pg_fault fault = stand(l, op, &s);
    if (fault != PG_OK || op->status != STATUS_OK)
        goto done;
    int64_t call_id = s.call ? s.call->id : 0, holder_id = s.holder ? s.holder->id : 0;
    bool slot_free = holder_id == op->expect_holder_id &&
                     (!holder_id || holder_id == call_id ||
                      (s.holder->fence == op->expect_holder_fence && s.holder->state == STATE_FAILED));
    if (!slot_free || !call_as_expected(op, s.call))
        goto done; /* nothing written: the rows tell */
    bool moves = op->row.has_key && (!call_id || holder_id != call_id);
    if (moves)
        fault = slot_move(l, s.holder, call_id);
    if (fault == PG_OK && !call_id) {
        struct call_row row = op->row;
        row.state = STATE_PROCESSING;
        fault = pg_claim_one(l, &row, row.has_key, &id);
        if (fault == PG_OK && id && op->keep)
            fault = pg_kept_write(l, id, op->keep);
        if (fault == PG_OK && !id && holder_id) /* the callId came in beside us: the slot goes back */
            fault = slot_move(l, NULL, holder_id);
    } else if (fault == PG_OK) {
        /* What an earlier run left as an answer is not this run's. The flags keep what is known of its attempts. */
        (void)pg_arg_number(&args, call_id);
        (void)pg_arg_bytes(&args, op->row.owner);
        (void)pg_arg_number(&args, op->row.lease_end_ms);
        fault = change(
            l,
            "UPDATE samekey_store.call SET state = 2, final = false, reason = 0, fence = fence + 1, owner = "
            "$2,"
            " lease_end_ms = $3, updated_ms = samekey_store.now_ms(), ended_ms = 0, result_status = 0,"
            " result_day = 0, flags = (flags & ~4)::smallint, result_expires_ms = 0, key_expires_ms = 0,"
            " tombstone_expires_ms = 0 WHERE id = $1",
            &args, NULL);
        if (fault == PG_OK)
            fault = open_add(l, call_id);
        id = call_id;
    }
    op->done = fault == PG_OK && id;
done:
    pg_args_fini(&args);
    pg_rows_end(&s.found);
    return fault;
}

static enum pg_fault note(struct pg_link *l, const struct call_row *row, bool body, int64_t now_ms)
{
    struct pg_notes *notes = calloc(1, sizeof *notes);
    if (!notes)
        return PG_FAILED;
    pg_note_gather(l->store, notes, row, body, now_ms);
    enum pg_fault fault = pg_notes_write(l, notes);
    free(notes);
    return fault;
}

static enum pg_fault attach(struct pg_link *l, struct store_op *op, int64_t now_ms)
{
    struct stood s = {0};
    struct pg_args args = {0};
    int64_t id = 0;
    enum pg_fault fault = stand(l, op, &s);
    if (fault != PG_OK || op->status != STATUS_OK)
        goto done;
    const struct call_row *holder = s.holder;
    if (!holder || holder->id != op->expect_holder_id || (s.call && holder->id == s.call->id) ||
        holder->state != STATE_SUCCESS || !slice_equal(holder->reversed_by, op->row.reversed_by) ||
        !call_as_expected(op, s.call))
        goto done;
    struct call_row row = op->row;
    row.state = STATE_SUCCESS;
    row.final = true;
    row.reason = REASON_SHARED;
    row.original = holder->original ? holder->original : holder->id;
    row.has_result = holder->has_result;
    row.result_status = holder->result_status;
    row.result_expires_ms = holder->result_expires_ms;
    row.key_expires_ms = holder->key_expires_ms;
    row.tombstone_expires_ms = holder->tombstone_expires_ms;
    if (!s.call) {
        fault = pg_claim_one(l, &row, false, &id);
    } else {
        id = s.call->id;
        (void)pg_arg_number(&args, id);
        (void)pg_arg_number(&args, row.original);
        (void)pg_arg_number(&args, row.has_result ? row.result_status : 0);
        (void)pg_arg_number(&args, row.result_expires_ms);
        (void)pg_arg_number(&args, row.key_expires_ms);
        (void)pg_arg_number(&args, row.tombstone_expires_ms);
        (void)pg_arg_number(&args, REASON_SHARED);
        fault = change(
            l,
            "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now)"
            " UPDATE samekey_store.call SET state = 3, final = true, reason = $7::smallint, fence = fence + "
            "1,"
            " original = $2, result_status = $3::int, result_day = 0, flags = (flags & ~4)::smallint,"
            " result_expires_ms = $4, key_expires_ms = $5, tombstone_expires_ms = $6, updated_ms = m.now,"
            " ended_ms = m.now, lease_end_ms = 0 FROM m WHERE id = $1",
            &args, NULL);
    }
    row.id = id;
    if (fault == PG_OK && id)
        fault = note(l, &row, false, now_ms);
    op->done = fault == PG_OK && id;
done:
    pg_args_fini(&args);
    pg_rows_end(&s.found);
    return fault;
}

static enum pg_fault fence(struct pg_link *l, struct store_op *op, int64_t now_ms)
{
    struct stood s = {0};
    struct pg_args args = {0};
    int64_t id = 0;
    enum pg_fault fault = stand(l, op, &s);
    if (fault != PG_OK || op->status != STATUS_OK)
        goto done;
    struct call_row row = op->row;
    row.state = STATE_FAILED;
    row.final = true;
    row.reason = REASON_FENCED;
    row.has_result = row.body_kept = false;
    if (!s.call) {
        fault = pg_claim_one(l, &row, false, &id);
    } else if (s.call->state == STATE_RECEIVED || (s.call->state == STATE_FAILED && !s.call->final)) {
        id = s.call->id;
        (void)pg_arg_number(&args, id);
        (void)pg_arg_number(&args, REASON_FENCED);
        (void)pg_arg_number(&args, row.result_expires_ms);
        (void)pg_arg_number(&args, row.key_expires_ms);
        (void)pg_arg_number(&args, row.tombstone_expires_ms);
        fault = change(l,
                       "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now)"
                       " UPDATE samekey_store.call SET state = 4, final = true, reason = $2::smallint, fence "
                       "= fence + 1,"
                       " updated_ms = m.now, ended_ms = m.now, lease_end_ms = 0, result_expires_ms = $3, "
                       "key_expires_ms = $4,"
                       " tombstone_expires_ms = $5 FROM m WHERE id = $1",
                       &args, NULL);
        if (fault == PG_OK)
            fault = change_number(l, "DELETE FROM samekey_store.open_call WHERE id = $1", id);
        if (fault == PG_OK && op->drop_kept)
            fault = pg_kept_settle(l, id, STATE_FAILED);
    }
    row.id = id;
    if (fault == PG_OK && id)
        fault = note(l, &row, s.call && s.call->has_result, now_ms);
    op->done = fault == PG_OK && id;
done:
    pg_args_fini(&args);
    pg_rows_end(&s.found);
    return fault;
}

/* An unresolved call with the operation's fingerprint, tenant and scope, but not the row `but`; 0: none. */
static enum pg_fault suspect_find(struct pg_link *l, const struct store_op *op, int64_t but, int64_t *id)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    (void)pg_arg_bytes(&args,
                       slice_of((const char *)op->row.fingerprint.bytes, sizeof op->row.fingerprint.bytes));
    (void)pg_arg_bytes(&args, op->row.tenant);
    (void)pg_arg_bytes(&args, op->row.scope);
    (void)pg_arg_number(&args, but);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "SELECT o.id FROM samekey_store.open_call o JOIN samekey_store.call c ON c.id = o.id WHERE "
               "o.fingerprint = $1"
               " AND coalesce(c.tenant, '') = $2 AND coalesce(c.scope, '') = $3 AND o.id <> $4 LIMIT 1",
               &args, &result);
    *id = fault == PG_OK && PQntuples(result) == 1 ? pg_number(result, 0, 0) : 0;
    PQclear(result);
    pg_args_fini(&args);
    return fault;
}

/* A claim whose request is kept. */
static enum pg_fault claim_kept(struct pg_link *l, struct store_op *op, const struct pg_moment *moment)
{
    int64_t id = 0, suspect = 0;
    enum pg_fault fault = PG_OK;
    if (op->want_suspect && op->block_suspect && op->row.has_fingerprint)
        fault = suspect_find(l, op, 0, &suspect);
    if (fault != PG_OK || suspect || (op->id_time_ms && op->id_time_ms < moment->refuse_before_ms))
        return fault;
    fault = pg_claim_one(l, &op->row, op->row.has_key, &id);
    if (fault == PG_OK && id)
        fault = pg_kept_write(l, id, op->keep);
    op->done = fault == PG_OK && id;
    return fault;
}

/* ---- endings from outside, and of what was UNKNOWN ---- */

enum pg_fault pg_end_one(struct pg_link *l, struct store_op *op, int64_t now_ms)
{
    char sql[4096];
    enum pg_statement which;
    struct pg_args args = {0};
    struct call_row *row = &op->row;
    int rows = 0;
    /* A body that never expires is in a table that is never dropped: it goes when another ending takes its place. */
    enum pg_fault fault = PG_OK;
    if (op->from_states & 1u << STATE_UNKNOWN && row->state != STATE_UNKNOWN) {
        fault = pg_day_move(l, op);
        if (fault != PG_OK)
            return fault;
    }
    pg_end_args(&args);
    pg_end_add(&args, op);
    pg_end_text(l, pg_end_day(op), sql, sizeof sql, &which);
    PGresult *result = NULL;
    fault = pg_run(l, PG_SQL_NONE, sql, &args, &result);
    if (fault == PG_OK)
        rows = PQntuples(result);
    PQclear(result);
    pg_args_fini(&args);
    if (fault != PG_OK)
        return fault;
    if (rows != 1) {
        op->status = STATUS_CONFLICT;
        return PG_OK;
    }
    if (state_unresolved(row->state))
        fault = open_add(l, op->id);
    if (fault == PG_OK && op->make_task &&
        (row->state == STATE_UNKNOWN || op->task_cause == TASK_CAUSE_FAILED))
        fault = pg_task_add(l, op->id, op->task_due_ms, op->task_cause, NULL);
    else if (fault == PG_OK && row->final && op->from_states & 1u << STATE_UNKNOWN)
        fault = pg_task_settle(l, op->id, row->state);
    if (fault == PG_OK && row->final && op->drop_kept)
        fault = pg_kept_settle(l, op->id, row->state);
    struct call_row ended = *row;
    ended.id = op->id;
    if (fault == PG_OK)
        fault = note(l, &ended, true, now_ms);
    op->done = fault == PG_OK;
    return fault;
}

/* ---- leases ---- */

/* Rows whose lease ran out by the database's clock, whoever owned them. What another gateway has locked is being ended,
 * renewed or expired just now. */
static enum pg_fault expire(struct pg_link *l, struct store_op *op)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    size_t limit = op->limit < STORE_IDS_MAX ? op->limit : STORE_IDS_MAX;
    (void)pg_arg_number(&args, (int64_t)limit);
    (void)pg_arg_number(&args, REASON_LEASE_EXPIRED);
    (void)pg_arg_number(&args, op->task_due_ms);
    (void)pg_arg_number(&args, (int64_t)op->task_cause);
    enum pg_fault fault = pg_run(
        l, PG_SQL_NONE,
        "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now),"
        " late AS MATERIALIZED (SELECT c.id FROM m, samekey_store.open_call o JOIN samekey_store.call c ON "
        "c.id = o.id"
        " WHERE c.state = 2 AND c.lease_end_ms <= m.now ORDER BY c.id LIMIT $1 FOR UPDATE OF c SKIP LOCKED),"
        " w AS (UPDATE samekey_store.call c SET state = 5, reason = $2::smallint, flags = (c.flags | "
        "2)::smallint,"
        " fence = c.fence + 1, updated_ms = m.now, ended_ms = m.now, lease_end_ms = 0 FROM m, late WHERE "
        "c.id = late.id"
        " RETURNING c.id, m.now),"
        " t AS (INSERT INTO samekey_store.compensation AS t(call, due_ms, created_ms, updated_ms, cause)"
        " SELECT id, coalesce(nullif($3, 0), now), now, now, $4::smallint FROM w ON CONFLICT(call) DO UPDATE "
        "SET status = 0,"
        " granted = t.round, due_ms = excluded.due_ms, updated_ms = excluded.updated_ms, cause = "
        "excluded.cause, tell = 0"
        " WHERE t.status NOT IN (0, 1, 4)) SELECT id FROM w ORDER BY id",
        &args, &result);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++)
        op->expired[op->count++] = pg_number(result, i, 0);
    PQclear(result);
    pg_args_fini(&args);
    op->more = op->count == limit;
    op->done = op->count > 0;
    return fault;
}

static enum pg_fault task(struct pg_link *l, struct store_op *op)
{
    struct pg_args args = {0};
    int rows = 0;
    (void)pg_arg_number(&args, op->id);
    enum pg_fault fault =
        change(l, "SELECT 1 FROM samekey_store.call WHERE id = $1 FOR UPDATE", &args, &rows);
    pg_args_fini(&args);
    if (fault == PG_OK && !rows) {
        op->status = STATUS_NOT_FOUND;
        return PG_OK;
    }
    if (fault == PG_OK)
        fault = pg_task_add(l, op->id, op->task_due_ms, op->task_cause, &rows);
    op->done = fault == PG_OK && rows == 1;
    return fault;
}

enum pg_fault pg_one_run(struct pg_link *l, struct store_op *op, const struct pg_moment *moment)
{
    switch (op->kind) {
    case STORE_TAKE:
        return take(l, op);
    case STORE_ATTACH:
        return attach(l, op, moment->now_ms);
    case STORE_FENCE:
        return fence(l, op, moment->now_ms);
    case STORE_END:
        return pg_end_one(l, op, moment->now_ms);
    case STORE_EXPIRE:
        return expire(l, op);
    case STORE_TASK:
        return task(l, op);
    case STORE_PURGE:
        return pg_purge_run(l, op, moment);
    case STORE_CLAIM:
        return claim_kept(l, op, moment);
    default:
        return pg_task_write(l, op, moment->now_ms);
    }
}

/* ---- reading ---- */

static enum pg_fault open_calls(struct pg_link *l, struct store_op *op)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    size_t limit = op->limit < STORE_IDS_MAX ? op->limit : STORE_IDS_MAX;
    (void)pg_arg_number(&args, op->id);
    (void)pg_arg_number(&args, (int64_t)limit);
    (void)pg_arg_bytes(&args, op->row.owner);
    enum pg_fault fault = pg_read(
        l, PG_SQL_NONE,
        "SELECT c.id FROM samekey_store.open_call o JOIN samekey_store.call c ON c.id = o.id WHERE o.id > $1"
        " AND c.state IN (2, 5) AND (length($3) = 0 OR c.owner = $3) ORDER BY o.id LIMIT $2",
        &args, &result);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++)
        op->expired[op->count++] = pg_number(result, i, 0);
    op->more = op->count == limit;
    PQclear(result);
    pg_args_fini(&args);
    return fault;
}

#define TENANTS_COMPARED 16 /* rows of one callId that are looked at; two are enough to be ambiguous */

/* A callId without its tenant: found where exactly one tenant has it. */
static enum pg_fault lookup_any(struct pg_link *l, struct store_op *op)
{
    struct pg_args args = {0};
    struct digest first = op->row.call_digest, last = first;
    PGresult *result = NULL;
    struct slice call_id = op->row.call_id;
    memset(first.bytes + DIGEST_CALL_PREFIX, 0, sizeof first.bytes - DIGEST_CALL_PREFIX);
    memset(last.bytes + DIGEST_CALL_PREFIX, 0xff, sizeof last.bytes - DIGEST_CALL_PREFIX);
    (void)pg_arg_digest(&args, &first);
    (void)pg_arg_digest(&args, &last);
    (void)pg_arg_bytes(&args, call_id);
    (void)pg_arg_number(&args, TENANTS_COMPARED);
    enum pg_fault fault = pg_read(
        l, PG_SQL_NONE,
        "SELECT id FROM samekey_store.call WHERE call_digest BETWEEN $1 AND $2 AND call_id = $3 LIMIT $4",
        &args, &result);
    int count = fault == PG_OK ? PQntuples(result) : 0;
    int64_t id = count == 1 ? pg_number(result, 0, 0) : 0;
    PQclear(result);
    pg_args_fini(&args);
    if (fault != PG_OK || count == 0)
        return fault;
    if (count > 1) {
        op->status = STATUS_CONFLICT;
        return PG_OK;
    }
    struct pg_rows found;
    pg_rows_begin(&found);
    pg_rows_id(&found, id);
    fault = pg_rows_read(&found, l, false, true);
    const struct call_row *call = fault == PG_OK ? pg_rows_find_id(&found, id) : NULL;
    op->row.call_id.len = 0; /* compared by the statement; the tenant is what was not known */
    if (call)
        pg_rows_answer(&found, op, call,
                       call->has_key ? pg_rows_find_slot(&found, &call->operation_digest) : NULL, NULL);
    op->row.call_id = call_id;
    pg_rows_end(&found);
    return fault;
}

static bool wants_by_id(const struct store_op *op)
{
    return op->kind == STORE_READ || op->kind == STORE_END || op->kind == STORE_TASK;
}

static void rows_wanted(struct pg_rows *found, const struct store_op *op)
{
    if (wants_by_id(op)) {
        pg_rows_id(found, op->id);
        return;
    }
    pg_rows_call(found, &op->row.call_digest);
    if (op->row.has_key)
        pg_rows_slot(found, &op->row.operation_digest);
}

static void rows_found(const struct pg_rows *found, const struct store_op *op, const struct call_row **call,
                       const struct call_row **holder)
{
    *call = wants_by_id(op) ? pg_rows_find_id(found, op->id) : pg_rows_find_call(found, &op->row.call_digest);
    *holder = NULL;
    /* A claim asks for the key that it has; others for the key that the call has. */
    bool own = op->kind == STORE_LOOKUP || op->kind == STORE_READ || op->kind == STORE_FENCE;
    const struct call_row *keyed = own && *call ? *call : &op->row;
    if (keyed->has_key && op->kind != STORE_END && op->kind != STORE_TASK)
        *holder = pg_rows_find_slot(found, &keyed->operation_digest);
}

/* The rows of the identities, or of the id, that the operation names. */
static enum pg_fault rows_of(struct pg_link *l, struct store_op *op)
{
    struct pg_rows found, suspects;
    const struct call_row *call = NULL, *holder = NULL, *suspect = NULL;
    pg_rows_begin(&found);
    pg_rows_begin(&suspects);
    rows_wanted(&found, op);
    enum pg_fault fault = pg_rows_read(&found, l, false, true);
    if (fault != PG_OK)
        goto done;
    rows_found(&found, op, &call, &holder);
    bool alone = op->done ? call != NULL : !call && !holder;
    if (op->kind == STORE_CLAIM && op->want_suspect && op->row.has_fingerprint && alone) {
        int64_t id;
        fault = suspect_find(l, op, call ? call->id : 0, &id);
        if (fault == PG_OK && id) {
            pg_rows_id(&suspects, id);
            fault = pg_rows_read(&suspects, l, false, false);
            suspect = fault == PG_OK ? pg_rows_find_id(&suspects, id) : NULL;
        }
    }
    if (fault == PG_OK)
        pg_rows_answer(&found, op, call, holder, suspect);
done:
    pg_rows_end(&found);
    pg_rows_end(&suspects);
    return fault;
}

bool pg_read_takes(const struct store_op *op)
{
    return (op->kind == STORE_LOOKUP && !op->any_tenant) || op->kind == STORE_READ ||
           (op->kind == STORE_CLAIM && op->peek && !op->want_suspect);
}

enum pg_fault pg_read_many(struct pg_link *l, struct store_op **ops, size_t count)
{
    struct pg_rows found;
    pg_rows_begin(&found);
    for (size_t i = 0; i < count; i++)
        rows_wanted(&found, ops[i]);
    enum pg_fault fault = pg_rows_read(&found, l, false, true);
    for (size_t i = 0; fault == PG_OK && i < count; i++) {
        const struct call_row *call, *holder;
        rows_found(&found, ops[i], &call, &holder);
        pg_rows_answer(&found, ops[i], call, holder, NULL);
    }
    pg_rows_end(&found);
    return fault;
}

enum pg_fault pg_read_run(struct pg_link *l, struct store_op *op)
{
    op->rows.now_ms = store_clock_ms(&l->store->store);
    if (op->kind == STORE_OPEN_CALLS)
        return open_calls(l, op);
    if (op->kind == STORE_LOOKUP && op->any_tenant)
        return lookup_any(l, op);
    if (op->kind == STORE_LIST)
        return pg_list(l, op);
    if (op->kind == STORE_TASK_LIST || op->kind == STORE_TASK_READ || op->kind == STORE_TASK_COUNTS ||
        op->kind == STORE_AUDIT_LIST)
        return pg_task_read(l, op);
    return rows_of(l, op);
}
