/* SPDX-License-Identifier: MIT
 *
 * What nearly all operations are: claims, attempts, renewals of leases, endings. However many come together, each kind
 * is one statement over arrays, and all statements of a batch travel in one round trip, their COMMIT in a second one.
 *
 * A claim takes its callId and its key by one INSERT ... ON CONFLICT DO NOTHING: both or neither, decided by unique
 * indexes, whoever claims at the same time on whichever gateway. Claims go in by the order of their operations' digests,
 * so that two batches never wait for each other. A row's id is the database's clock and, below it, a number that this
 * process took from a sequence: by it a row that comes back is known to be this claim's.
 *
 * An operation on a row that another one of the same batch is about has to wait for the next batch (pg_many_takes).
 */
#include "store/postgres.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define STRINGS(X)                                                                                           \
    X(owner)                                                                                                 \
    X(tenant)                                                                                                \
    X(route)                                                                                                 \
    X(scope)                                                                                                 \
    X(call_id)                                                                                               \
    X(key)                                                                                                   \
    X(key_spelling) X(business_ref) X(trace_id) X(fingerprint_rules) X(reverses) X(reversed_by) X(attempts)

static const char claim_sql[] =
    "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now, refuse_before_ms FROM "
    "samekey_store.meta), w AS ("
    "INSERT INTO samekey_store.call(id, fence, created_ms, updated_ms, ended_ms, lease_end_ms, window_ms, "
    "first_attempt_ms,"
    " result_expires_ms, key_expires_ms, tombstone_expires_ms, original, attempt_count, result_status,"
    " fingerprint_version, state, reason, proof, flags, final, call_digest, operation_digest, slot_digest, "
    "fingerprint,"
    " credential, owner, tenant, route, scope, call_id, key, key_spelling, business_ref, trace_id, "
    "fingerprint_rules,"
    " reverses, reversed_by, attempts)"
    " SELECT (m.now << 20) | u.number, u.fence, m.now, m.now, CASE WHEN u.state IN (1, 2) THEN 0 ELSE m.now "
    "END,"
    " u.lease, coalesce(nullif(u.win, 0), m.now), u.first, u.result_expires, u.key_expires, "
    "u.tombstone_expires,"
    " u.original, u.attempts_begun::int, u.status::int, u.version::int, u.state::smallint, "
    "u.reason::smallint,"
    " u.proof::smallint, u.flags::smallint, u.final <> 0, u.call_digest, u.operation_digest,"
    " CASE WHEN u.slot <> 0 THEN u.operation_digest END, u.fingerprint, u.credential, u.owner, u.tenant, "
    "u.route, u.scope,"
    " u.call_id, u.key, u.key_spelling, u.business_ref, u.trace_id, u.fingerprint_rules, u.reverses, "
    "u.reversed_by,"
    " u.attempts FROM m, unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], "
    "$6::bigint[],"
    " $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],"
    " $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::uuid[],"
    " $21::uuid[], $22::bytea[], $23::bytea[], $24::bytea[], $25::bytea[], $26::bytea[], $27::bytea[], "
    "$28::bytea[],"
    " $29::bytea[], $30::bytea[], $31::bytea[], $32::bytea[], $33::bytea[], $34::bytea[], $35::bytea[], "
    "$36::bytea[])"
    " AS u(number, fence, lease, win, first, result_expires, key_expires, tombstone_expires, original, "
    "attempts_begun,"
    " status, version, state, reason, proof, flags, final, slot, id_time, call_digest, operation_digest, "
    "fingerprint,"
    " credential, owner, tenant, route, scope, call_id, key, key_spelling, business_ref, trace_id, "
    "fingerprint_rules,"
    " reverses, reversed_by, attempts)"
    /* A time below zero: refused where a suspect stands. */
    " WHERE (u.id_time = 0 OR abs(u.id_time) >= m.refuse_before_ms) AND NOT (u.id_time < 0 AND EXISTS ("
    "SELECT 1 FROM samekey_store.open_call o JOIN samekey_store.call c ON c.id = o.id WHERE o.fingerprint = "
    "u.fingerprint"
    " AND c.tenant IS NOT DISTINCT FROM u.tenant AND c.scope IS NOT DISTINCT FROM u.scope))"
    " ON CONFLICT DO NOTHING RETURNING id, created_ms, fingerprint, state),"
    " o AS (INSERT INTO samekey_store.open_call(id, fingerprint) SELECT id, fingerprint FROM w WHERE state "
    "IN (1, 2, 5))"
    " SELECT id, created_ms FROM w";

static const char suspect_sql[] =
    "SELECT u.n, s.id FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[]) AS u(n, fingerprint, "
    "tenant, scope)"
    " CROSS JOIN LATERAL (SELECT o.id FROM samekey_store.open_call o JOIN samekey_store.call c ON c.id = o.id"
    " WHERE o.fingerprint = u.fingerprint AND c.tenant IS NOT DISTINCT FROM u.tenant"
    " AND c.scope IS NOT DISTINCT FROM u.scope LIMIT 1) s";

static const char attempt_sql[] =
    "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now)"
    " UPDATE samekey_store.call c SET lease_end_ms = u.lease, updated_ms = m.now, attempt_count = "
    "u.begun::int,"
    " attempts = u.attempts, flags = ((c.flags & ~2) | u.flags)::smallint,"
    " first_attempt_ms = CASE WHEN c.first_attempt_ms <> 0 THEN c.first_attempt_ms"
    " ELSE coalesce(nullif(u.first, 0), m.now) END FROM m, unnest($1::bigint[], $2::bigint[], $3::bigint[], "
    "$4::bigint[],"
    " $5::bigint[], $6::bigint[], $7::bytea[]) AS u(id, fence, lease, begun, flags, first, attempts)"
    " WHERE c.id = u.id AND c.fence = u.fence AND c.state = 2 RETURNING c.id";

static const char renew_sql[] =
    "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now)"
    " UPDATE samekey_store.call c SET lease_end_ms = u.lease, updated_ms = m.now"
    " FROM m, unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u(id, fence, lease)"
    " WHERE c.id = u.id AND c.fence = u.fence AND c.state IN (1, 2) RETURNING c.id";

/* Behind it, where bodies are kept, comes their day's INSERT. */
static const char end_sql[] =
    "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now), w AS (UPDATE samekey_store.call c SET"
    " state = u.state::smallint, final = u.final <> 0, reason = u.reason::smallint,"
    " attempts = coalesce(u.attempts, c.attempts),"
    " flags = ((CASE WHEN u.status <> 0 THEN c.flags & ~6 ELSE c.flags & ~2 END) | u.flags)::smallint,"
    " result_status = CASE WHEN u.status <> 0 THEN u.status::int ELSE c.result_status END,"
    " result_day = CASE WHEN u.status = 0 THEN c.result_day WHEN u.keep <> 0 THEN %lld ELSE 0 END,"
    " result_expires_ms = u.result_expires, key_expires_ms = u.key_expires, tombstone_expires_ms = "
    "u.tombstone_expires,"
    " updated_ms = m.now, ended_ms = CASE WHEN u.state IN (1, 2) THEN 0 ELSE m.now END, lease_end_ms = "
    "u.lease,"
    " fence = c.fence + u.outsider FROM m, unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], "
    "$5::bigint[],"
    " $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], "
    "$13::bigint[],"
    " $14::bigint[], $15::bytea[], $16::bytea[], $17::bytea[]) AS u(id, fence, outsider, from_states, state, "
    "final, reason,"
    " flags, status, keep, result_expires, key_expires, tombstone_expires, lease, attempts, headers, body)"
    " WHERE c.id = u.id AND (u.outsider <> 0 OR c.fence = u.fence) AND NOT c.final"
    " AND (1 << c.state) & u.from_states <> 0 RETURNING c.id, c.state, u.keep, u.headers, u.body),"
    " d AS (DELETE FROM samekey_store.open_call o USING w WHERE o.id = w.id AND w.state IN (3, 4))";
static const char end_bodies_sql[] =
    ", r AS (INSERT INTO samekey_store.result_%lld AS r(id, headers, body) SELECT id, headers, body FROM w "
    "WHERE keep <> 0"
    " ON CONFLICT(id) DO UPDATE SET headers = excluded.headers, body = excluded.body)";

static bool keeps_body(const struct store_op *op)
{
    const struct call_row *row = &op->row;
    return row->has_result && row->result_status && !op->answer_only && row->body_kept;
}

bool pg_many_takes(const struct store_op *op)
{
    const unsigned running = 1u << STATE_RECEIVED | 1u << STATE_PROCESSING;
    switch (op->kind) {
    case STORE_CLAIM:
        return !op->peek && !op->keep;
    case STORE_ATTEMPT:
    case STORE_RENEW:
        return true;
    case STORE_END:
        return !op->make_task && !op->drop_kept && !(op->from_states & ~running);
    default:
        return false;
    }
}

int64_t pg_end_day(const struct store_op *op)
{
    /* A round and a person end calls too. */
    bool ends = op->kind == STORE_END || op->kind == STORE_TASK_ROUND || op->kind == STORE_TASK_RESOLVE;
    return ends && keeps_body(op) ? pg_day_of(op->row.result_expires_ms) : 0;
}

/* ---- asking ---- */

static void claim_args(struct pg_args *args)
{
    pg_args_clear(args);
    for (int i = 0; i < 19; i++)
        pg_arg_numbers(args);
    for (int i = 0; i < 2; i++)
        pg_arg_digests(args);
    for (int i = 0; i < 15; i++)
        pg_arg_many_bytes(args);
}

static void claim_add(struct pg_args *args, const struct call_row *row, bool slot, int64_t number,
                      int64_t id_time)
{
    int at = 0;
    bool running = state_running(row->state);
    const int64_t numbers[] = {
        number,
        row->fence,
        running ? row->lease_end_ms : 0,
        row->window_ms,
        row->first_attempt_ms,
        row->result_expires_ms,
        row->key_expires_ms,
        row->tombstone_expires_ms,
        row->original,
        row->attempt_count,
        row->has_result && !running ? row->result_status : 0,
        row->fingerprint_version,
        (int64_t)row->state,
        (int64_t)row->reason,
        (int64_t)row->proof,
        (row->call_id_made ? PG_FLAG_CALL_ID_MADE : 0) | (row->maybe_ran ? PG_FLAG_MAYBE_RAN : 0),
        row->final,
        slot,
        id_time,
    };
    for (; at < 19; at++)
        pg_add_number(args, at, numbers[at]);
    pg_add_digest(args, at++, &row->call_digest, true);
    pg_add_digest(args, at++, &row->operation_digest, row->has_key);
    pg_add_bytes(args, at++, slice_of((const char *)row->fingerprint.bytes, row->has_fingerprint ? 32 : 0));
    pg_add_digest(args, at++, &row->credential, row->has_credential);
#define TEXT(name) pg_add_bytes(args, at++, row->name);
    STRINGS(TEXT)
#undef TEXT
    assert(at == args->count);
}

/* Numbers for ids, which nobody else has. */
static enum pg_fault numbers_take(struct pg_link *l, size_t count)
{
    PGresult *result = NULL;
    assert(count <= PG_NUMBERS);
    if (l->numbers_left >= count)
        return PG_OK;
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, "SELECT nextval('samekey_store.number')", NULL, &result);
    if (fault != PG_OK)
        return fault;
    l->number = pg_number(result, 0, 0) * PG_NUMBERS;
    l->numbers_left = PG_NUMBERS;
    PQclear(result);
    return PG_OK;
}

enum pg_fault pg_numbers_ready(struct pg_link *l)
{
    return numbers_take(l, PG_GROUP);
}

static int64_t number_take(struct pg_link *l)
{
    assert(l->numbers_left);
    l->numbers_left--;
    return l->number++;
}

enum pg_fault pg_claim_one(struct pg_link *l, const struct call_row *row, bool slot, int64_t *id)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    claim_args(&args);
    claim_add(&args, row, slot, number_take(l), 0);
    enum pg_fault fault = pg_run(l, PG_SQL_CLAIM, claim_sql, &args, &result);
    pg_args_fini(&args);
    if (fault == PG_OK)
        *id = PQntuples(result) == 1 ? pg_number(result, 0, 0) : 0;
    if (fault == PG_OK && *id)
        atomic_fetch_add_explicit(&l->store->rows, 1, memory_order_relaxed);
    PQclear(result);
    return fault;
}

void pg_end_args(struct pg_args *args)
{
    pg_args_clear(args);
    for (int i = 0; i < 14; i++)
        pg_arg_numbers(args);
    for (int i = 0; i < 3; i++)
        pg_arg_many_bytes(args);
}

void pg_end_add(struct pg_args *args, const struct store_op *op)
{
    const struct call_row *row = &op->row;
    bool result = row->has_result && row->result_status && !op->answer_only, keep = keeps_body(op);
    int at = 0;
    const int64_t numbers[] = {
        op->id,
        op->fence,
        op->any_fence,
        (int64_t)op->from_states,
        (int64_t)row->state,
        row->final,
        (int64_t)row->reason,
        (row->maybe_ran ? PG_FLAG_MAYBE_RAN : 0) | (keep ? PG_FLAG_BODY_KEPT : 0),
        result ? row->result_status : 0,
        keep,
        row->result_expires_ms,
        row->key_expires_ms,
        row->tombstone_expires_ms,
        state_running(row->state) ? row->lease_end_ms : 0,
    };
    for (; at < 14; at++)
        pg_add_number(args, at, numbers[at]);
    pg_add_bytes(args, at++, row->attempts);
    pg_add_kept(args, at++, keep ? row->result_headers : slice_of(NULL, 0));
    pg_add_kept(args, at, keep ? row->result_body : slice_of(NULL, 0));
}

/* The statement of a day, and under which name it is prepared. */
void pg_end_text(struct pg_link *l, int64_t day, char *sql, size_t size, enum pg_statement *which)
{
    size_t slot = 0;
    int len = snprintf(sql, size, end_sql, (long long)day);
    if (day)
        len += snprintf(sql + len, size - (size_t)len, end_bodies_sql, (long long)day);
    snprintf(sql + len, size - (size_t)len, " SELECT id FROM w");
    while (slot < PG_END_DAYS && l->end_days[slot] != day + 1)
        slot++;
    if (slot == PG_END_DAYS) {
        slot = l->end_next++ % PG_END_DAYS;
        l->end_days[slot] = day + 1;
        l->end_names[slot] = ++l->end_serial;
        l->prepared &= ~(1u << (PG_SQL_END + slot));
    }
    *which = (enum pg_statement)(PG_SQL_END + slot);
}

/* ---- one group ---- */

struct group {
    struct store_op **ops;
    size_t count;
    int64_t numbers[PG_GROUP]; /* of claims */
    int64_t suspects[PG_GROUP];
    size_t order[PG_GROUP]; /* claims, as they go in; then owners' operations by id */
    size_t claims;
    int64_t days[PG_END_DAYS];
    size_t days_count;
    bool attempts, renewals, suspected;
    struct pg_notes notes;
};

/* qsort() has no context, and groups of several writers are sorted at the same time: small enough to insert. */
static bool before(const struct store_op *a, const struct store_op *b)
{
    bool a_claims = a->kind == STORE_CLAIM, b_claims = b->kind == STORE_CLAIM;
    if (a_claims != b_claims)
        return a_claims;
    if (!a_claims)
        return a->id < b->id;
    const struct digest *x = a->row.has_key ? &a->row.operation_digest : &a->row.call_digest;
    const struct digest *y = b->row.has_key ? &b->row.operation_digest : &b->row.call_digest;
    return memcmp(x->bytes, y->bytes, sizeof x->bytes) < 0;
}

static void sort(struct group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        size_t at = i;
        while (at > 0 && before(g->ops[i], g->ops[g->order[at - 1]])) {
            g->order[at] = g->order[at - 1];
            at--;
        }
        g->order[at] = i;
    }
}

static enum pg_fault look_at(struct group *g, struct pg_link *l)
{
    enum pg_fault fault = PG_OK;
    for (size_t i = 0; fault == PG_OK && i < g->count; i++) {
        const struct store_op *op = g->ops[i];
        int64_t day = pg_end_day(op);
        size_t at = 0;
        g->suspected =
            g->suspected || (op->kind == STORE_CLAIM && op->want_suspect && op->row.has_fingerprint);
        g->claims += op->kind == STORE_CLAIM;
        g->attempts = g->attempts || op->kind == STORE_ATTEMPT;
        g->renewals = g->renewals || op->kind == STORE_RENEW;
        if (op->kind != STORE_END)
            continue;
        while (at < g->days_count && g->days[at] != day)
            at++;
        if (at == g->days_count) {
            assert(at < PG_END_DAYS);
            g->days[g->days_count++] = day;
            if (day)
                fault = pg_day_make(l, day);
        }
    }
    return fault;
}

static enum pg_fault queue_claims(struct group *g, struct pg_link *l, struct pg_args *args)
{
    enum pg_fault fault = PG_OK;
    if (g->suspected) {
        pg_args_clear(args);
        int n = pg_arg_numbers(args), fingerprint = pg_arg_many_bytes(args), tenant = pg_arg_many_bytes(args),
            scope = pg_arg_many_bytes(args);
        for (size_t i = 0; i < g->count; i++) {
            const struct call_row *row = &g->ops[i]->row;
            if (g->ops[i]->kind != STORE_CLAIM || !g->ops[i]->want_suspect || !row->has_fingerprint)
                continue;
            pg_add_number(args, n, (int64_t)i);
            pg_add_bytes(args, fingerprint,
                         slice_of((const char *)row->fingerprint.bytes, sizeof row->fingerprint.bytes));
            pg_add_bytes(args, tenant, row->tenant);
            pg_add_bytes(args, scope, row->scope);
        }
        fault = pg_queue(l, PG_SQL_SUSPECT, suspect_sql, args);
    }
    claim_args(args);
    for (size_t i = 0; i < g->count; i++)
        if (g->ops[i]->kind == STORE_CLAIM)
            g->numbers[i] = number_take(l);
    for (size_t i = 0; i < g->count; i++) {
        const struct store_op *op = g->ops[g->order[i]];
        if (op->kind != STORE_CLAIM)
            continue;
        bool blocks = op->want_suspect && op->block_suspect && op->row.has_fingerprint;
        int64_t time = op->id_time_ms > 0 ? op->id_time_ms : INT64_MAX;
        claim_add(args, &op->row, op->row.has_key, g->numbers[g->order[i]], blocks ? -time : time);
    }
    return fault == PG_OK ? pg_queue(l, PG_SQL_CLAIM, claim_sql, args) : fault;
}

static enum pg_fault queue_owners(struct group *g, struct pg_link *l, struct pg_args *args,
                                  enum store_kind kind)
{
    pg_args_clear(args);
    for (int i = 0; i < (kind == STORE_ATTEMPT ? 6 : 3); i++)
        pg_arg_numbers(args);
    if (kind == STORE_ATTEMPT)
        pg_arg_many_bytes(args);
    for (size_t i = 0; i < g->count; i++) {
        const struct store_op *op = g->ops[g->order[i]];
        if (op->kind != kind)
            continue;
        pg_add_number(args, 0, op->id);
        pg_add_number(args, 1, op->fence);
        pg_add_number(args, 2, op->row.lease_end_ms);
        if (kind == STORE_RENEW)
            continue;
        pg_add_number(args, 3, op->row.attempt_count);
        pg_add_number(args, 4, op->row.maybe_ran ? PG_FLAG_MAYBE_RAN : 0);
        pg_add_number(args, 5, op->row.first_attempt_ms);
        pg_add_bytes(args, 6, op->row.attempts);
    }
    return kind == STORE_ATTEMPT ? pg_queue(l, PG_SQL_ATTEMPT, attempt_sql, args)
                                 : pg_queue(l, PG_SQL_RENEW, renew_sql, args);
}

static enum pg_fault queue_ends(struct group *g, struct pg_link *l, struct pg_args *args, int64_t day)
{
    char sql[sizeof end_sql + sizeof end_bodies_sql + 80];
    enum pg_statement which;
    pg_end_args(args);
    for (size_t i = 0; i < g->count; i++) {
        const struct store_op *op = g->ops[g->order[i]];
        if (op->kind == STORE_END && pg_end_day(op) == day)
            pg_end_add(args, op);
    }
    pg_end_text(l, day, sql, sizeof sql, &which);
    return pg_queue(l, which, sql, args);
}

static enum pg_fault queue_all(struct group *g, struct pg_link *l)
{
    struct pg_args args = {0};
    enum pg_fault fault = pg_queue_begin(l);
    if (fault == PG_OK)
        fault = pg_opening_queue(l);
    if (fault == PG_OK && g->claims)
        fault = queue_claims(g, l, &args);
    if (fault == PG_OK && g->attempts)
        fault = queue_owners(g, l, &args, STORE_ATTEMPT);
    if (fault == PG_OK && g->renewals)
        fault = queue_owners(g, l, &args, STORE_RENEW);
    for (size_t i = 0; fault == PG_OK && i < g->days_count; i++)
        fault = queue_ends(g, l, &args, g->days[i]);
    if (fault == PG_OK && g->notes.count)
        fault = pg_notes_queue(l, &g->notes);
    if (fault == PG_OK)
        fault = pg_queue_send(l);
    pg_args_fini(&args);
    return fault;
}

static void claims_won(struct group *g, const PGresult *result)
{
    for (int i = 0; i < PQntuples(result); i++) {
        int64_t id = pg_number(result, i, 0);
        for (size_t j = 0; j < g->count; j++) {
            struct store_op *op = g->ops[j];
            if (op->kind != STORE_CLAIM || g->numbers[j] != (id & (PG_NUMBERS * PG_NUMBERS - 1)))
                continue;
            struct rows rows = {.call = op->row};
            rows.call.id = id;
            rows.call.created_ms = rows.call.updated_ms = pg_number(result, i, 1);
            if (!rows.call.window_ms)
                rows.call.window_ms = rows.call.created_ms;
            rows_copy(&op->rows, &op->memory, &rows);
            op->done = true;
        }
    }
}

static void owners_done(struct group *g, const PGresult *result, enum store_kind kind)
{
    for (int i = 0; i < PQntuples(result); i++)
        for (size_t j = 0; j < g->count; j++)
            if (g->ops[j]->kind == kind && g->ops[j]->id == pg_number(result, i, 0))
                g->ops[j]->done = true;
}

static enum pg_fault read_all(struct group *g, struct pg_link *l, struct pg_moment *moment)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_opening_read(l, moment);
    if (fault == PG_OK && g->suspected && (fault = pg_queue_next(l, &result)) == PG_OK) {
        for (int i = 0; i < PQntuples(result); i++)
            g->suspects[(size_t)pg_number(result, i, 0) % g->count] = pg_number(result, i, 1);
        PQclear(result);
    }
    if (fault == PG_OK && g->claims && (fault = pg_queue_next(l, &result)) == PG_OK) {
        claims_won(g, result);
        PQclear(result);
    }
    if (fault == PG_OK && g->attempts && (fault = pg_queue_next(l, &result)) == PG_OK) {
        owners_done(g, result, STORE_ATTEMPT);
        PQclear(result);
    }
    if (fault == PG_OK && g->renewals && (fault = pg_queue_next(l, &result)) == PG_OK) {
        owners_done(g, result, STORE_RENEW);
        PQclear(result);
    }
    for (size_t i = 0; fault == PG_OK && i < g->days_count; i++)
        if ((fault = pg_queue_next(l, &result)) == PG_OK) {
            owners_done(g, result, STORE_END);
            PQclear(result);
        }
    if (fault == PG_OK && g->notes.count)
        fault = pg_queue_next(l, NULL);
    return fault;
}

/* A claim of the same batch with the same request under another key, which the database could not see yet. */
static const struct call_row *suspect_beside(const struct group *g, size_t at)
{
    const struct call_row *row = &g->ops[at]->row;
    for (size_t i = 0; i < at; i++) {
        const struct store_op *other = g->ops[i];
        if (other->kind == STORE_CLAIM && other->done && other->row.has_fingerprint &&
            digest32_equal(&other->row.fingerprint, &row->fingerprint) &&
            slice_equal(other->row.tenant, row->tenant) && slice_equal(other->row.scope, row->scope))
            return &other->rows.call;
    }
    return NULL;
}

/* After the COMMIT: the rows that stood in the way, and suspects. */
static enum pg_fault read_standing(struct group *g, struct pg_link *l)
{
    struct pg_rows found;
    bool any = false;
    enum pg_fault fault = PG_OK;
    pg_rows_begin(&found);
    for (size_t i = 0; i < g->count; i++) {
        const struct store_op *op = g->ops[i];
        any = any || !op->done || g->suspects[i];
        if (!op->done && op->kind == STORE_CLAIM) {
            pg_rows_call(&found, &op->row.call_digest);
            if (op->row.has_key)
                pg_rows_slot(&found, &op->row.operation_digest);
        } else if (!op->done) {
            pg_rows_id(&found, op->id);
        }
        if (g->suspects[i])
            pg_rows_id(&found, g->suspects[i]);
    }
    if (any)
        fault = pg_rows_read(&found, l, false, true);
    for (size_t i = 0; i < g->count; i++) {
        struct store_op *op = g->ops[i];
        const struct call_row *call = NULL, *holder = NULL, *suspect = NULL;
        if (fault != PG_OK) {
            if (!op->done)
                op->status = STATUS_IO;
            continue;
        }
        if (op->kind != STORE_CLAIM) {
            if (!op->done) {
                op->status = STATUS_CONFLICT;
                pg_rows_answer(&found, op, pg_rows_find_id(&found, op->id), NULL, NULL);
            }
            continue;
        }
        if (op->want_suspect && op->row.has_fingerprint) {
            suspect = g->suspects[i] ? pg_rows_find_id(&found, g->suspects[i]) : NULL;
            if (!suspect && op->done)
                suspect = suspect_beside(g, i);
            if (suspect && digest_equal(&suspect->call_digest, &op->row.call_digest))
                suspect = NULL;
        }
        if (op->done) {
            if (suspect) {
                struct rows rows = op->rows;
                struct buffer memory = {0};
                rows.suspect = *suspect;
                rows_copy(&op->rows, &memory, &rows);
                buffer_fini(&op->memory);
                op->memory = memory;
            }
            continue;
        }
        call = pg_rows_find_call(&found, &op->row.call_digest);
        holder = op->row.has_key ? pg_rows_find_slot(&found, &op->row.operation_digest) : NULL;
        pg_rows_answer(&found, op, call, holder, call || holder ? NULL : suspect);
    }
    pg_rows_end(&found);
    return fault;
}

enum pg_fault pg_many_run(struct pg_link *l, struct store_op **ops, size_t count, struct pg_moment *moment)
{
    struct group *g = calloc(1, sizeof *g);
    enum pg_fault fault = g ? pg_link_ready(l) : PG_FAILED;
    if (fault != PG_OK) {
        free(g);
        return fault;
    }
    assert(count <= PG_GROUP);
    g->ops = ops;
    g->count = count;
    fault = look_at(g, l);
    sort(g);
    if (fault == PG_OK)
        fault = numbers_take(l, g->claims);
    int64_t now = 0;
    if (fault == PG_OK)
        now = store_clock_ms(&l->store->store);
    for (size_t i = 0; i < count; i++)
        if (ops[i]->kind == STORE_END) {
            struct call_row row = ops[i]->row;
            row.id = ops[i]->id;
            pg_note_gather(l->store, &g->notes, &row, true, now);
        }
    if (fault == PG_OK)
        fault = queue_all(g, l);
    if (fault == PG_OK)
        fault = read_all(g, l, moment);
    if (l->conn) {
        enum pg_fault end = pg_queue_end(l);
        if (fault == PG_OK)
            fault = end;
    }
    if (fault == PG_OK)
        fault = pg_transaction_commit(l);
    else
        pg_transaction_abandon(l);
    if (fault == PG_OK) {
        long long won = 0;
        for (size_t i = 0; i < count; i++)
            won += ops[i]->kind == STORE_CLAIM && ops[i]->done;
        atomic_fetch_add_explicit(&l->store->rows, won, memory_order_relaxed);
        pg_notes_remember(l->store, &g->notes);
        (void)read_standing(g, l);
    } else if (fault == PG_TABLE) {
        for (size_t i = 0; i < g->days_count; i++)
            pg_day_forget(l->store, g->days[i]);
    }
    free(g);
    return fault;
}
