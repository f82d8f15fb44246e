/* SPDX-License-Identifier: MIT
 *
 * One connection to PostgreSQL, used by one thread at a time.
 *
 * Always true:
 *  (1) No wait is without a bound, and a connection whose answer did not come in time is closed, never used again.
 *  (2) A transaction's COMMIT is sent alone, after the answers to all else were read. So a connection that breaks
 *      before it has written nothing, and one that breaks behind it leaves one question: is it there?
 *  (3) That question is asked on a new connection, of the mark that the transaction left in the writer's row. While the
 *      old transaction is still being decided it holds the lock of that row, so asking waits for it.
 *  (4) A COMMIT is never cancelled. One that warns, since its wait for a standby was cancelled by somebody else, is on
 *      one server and may be lost with it: that is not known, however often it is looked up.
 *
 * Prepared statements are used until a pooler in transaction mode shows that it does not keep them.
 */
#include "store/postgres.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CLASS_IS(state, class) (memcmp(state, class, 2) == 0)

int64_t pg_monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void notice(void *context, const PGresult *result)
{
    struct pg_link *l = context;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (l->committing && severity && strcmp(severity, "WARNING") == 0)
        l->warned = true;
}

void pg_link_drop(struct pg_link *l)
{
    if (l->conn)
        PQfinish(l->conn);
    l->conn = NULL;
    l->prepared = 0;
    l->in_transaction = l->committing = false;
}

static void remember_error(struct pg_link *l, const char *message)
{
    size_t len = message ? strcspn(message, "\n") : 0;
    if (len >= sizeof l->error)
        len = sizeof l->error - 1;
    memcpy(l->error, message ? message : "", len);
    l->error[len] = '\0';
}

static enum pg_fault lost(struct pg_link *l)
{
    if (l->conn)
        remember_error(l, PQerrorMessage(l->conn));
    pg_link_drop(l);
    return PG_LOST;
}

enum pg_fault pg_link_ready(struct pg_link *l)
{
    /* What the URL says comes later in the list and wins. */
    const char *const names[] = {"application_name",
                                 "connect_timeout",
                                 "target_session_attrs",
                                 "keepalives_idle",
                                 "keepalives_interval",
                                 "keepalives_count",
                                 "tcp_user_timeout",
                                 "dbname",
                                 NULL};
    const char *const values[] = {"samekey", PG_CONNECT_S, "read-write",  "5", "3",
                                  "3",       "10000",      l->store->url, NULL};
    if (l->conn && PQstatus(l->conn) == CONNECTION_OK)
        return PG_OK;
    pg_link_drop(l);
    int64_t now = pg_monotonic_ms();
    if (now < l->retry_at_ms)
        return PG_LOST;
    l->conn = PQconnectdbParams(names, values, 1);
    if (!l->conn || PQstatus(l->conn) != CONNECTION_OK || PQsetnonblocking(l->conn, 1) != 0) {
        l->backoff_ms = l->backoff_ms ? l->backoff_ms * 2 : PG_BACKOFF_MS;
        if (l->backoff_ms > PG_BACKOFF_MAX_MS)
            l->backoff_ms = PG_BACKOFF_MAX_MS;
        l->retry_at_ms = pg_monotonic_ms() + l->backoff_ms;
        return lost(l);
    }
    l->backoff_ms = l->retry_at_ms = 0;
    PQsetNoticeReceiver(l->conn, notice, l);
    return PG_OK;
}

/* Waits until the socket can be read or, with `writing`, written. */
static bool wait_socket(struct pg_link *l, bool writing, int64_t until_ms)
{
    struct pollfd at = {.fd = PQsocket(l->conn), .events = (short)(writing ? POLLIN | POLLOUT : POLLIN)};
    int64_t left = until_ms - pg_monotonic_ms();
    return at.fd >= 0 && left > 0 && poll(&at, 1, (int)left) > 0;
}

static bool flush(struct pg_link *l, int64_t until_ms)
{
    int rc;
    while ((rc = PQflush(l->conn)) == 1)
        if (!wait_socket(l, true, until_ms) || !PQconsumeInput(l->conn))
            return false;
    return rc == 0;
}

static enum pg_fault judge(struct pg_link *l, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    remember_error(l, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
    if (!state || strlen(state) != 5)
        return PG_LOST;
    if (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0)
        return PG_AGAIN;
    if (strcmp(state, "55P03") == 0)
        return PG_BUSY;
    if (strcmp(state, "26000") == 0 || strcmp(state, "42P05") == 0) {
        atomic_store(&l->store->unnamed, true);
        return PG_UNNAMED;
    }
    if (strcmp(state, "42P01") == 0)
        return PG_TABLE;
    /* The server goes, or is not the one that may be written to. */
    if (CLASS_IS(state, "08") || strcmp(state, "25006") == 0 || strcmp(state, "25P03") == 0 ||
        (CLASS_IS(state, "57") && strcmp(state, "57014") != 0))
        return PG_LOST;
    if (CLASS_IS(state, "22") || CLASS_IS(state, "23") || CLASS_IS(state, "54"))
        return PG_REFUSED;
    return PG_FAILED;
}

/* The next result, waited for. PG_OK with *out NULL: there is no further one. */
static enum pg_fault next_result(struct pg_link *l, int64_t until_ms, PGresult **out)
{
    while (PQisBusy(l->conn))
        if (!wait_socket(l, false, until_ms) || !PQconsumeInput(l->conn))
            return lost(l);
    *out = PQgetResult(l->conn);
    if (PQstatus(l->conn) != CONNECTION_OK) {
        if (*out && PQresultStatus(*out) == PGRES_FATAL_ERROR)
            remember_error(l, PQresultErrorMessage(*out));
        PQclear(*out);
        *out = NULL;
        pg_link_drop(l);
        return PG_LOST;
    }
    return PG_OK;
}

static enum pg_fault check(struct pg_link *l, PGresult **result, PGresult **out)
{
    enum pg_fault fault = PG_OK;
    ExecStatusType status = PQresultStatus(*result);
    if (status == PGRES_PIPELINE_ABORTED)
        fault = PG_FAILED;
    else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_EMPTY_QUERY)
        fault = judge(l, *result);
    if (fault == PG_OK && out)
        *out = *result;
    else
        PQclear(*result);
    *result = NULL;
    return fault;
}

/* Reads results up to the end of the command. The first fault counts. */
static enum pg_fault collect(struct pg_link *l, int64_t until_ms, PGresult **out)
{
    enum pg_fault worst = PG_OK;
    PGresult *kept = NULL;
    for (;;) {
        PGresult *result;
        enum pg_fault fault = next_result(l, until_ms, &result);
        if (fault != PG_OK) {
            PQclear(kept);
            return fault;
        }
        if (!result)
            break;
        if (PQresultStatus(result) == PGRES_COPY_IN || PQresultStatus(result) == PGRES_COPY_OUT) {
            PQclear(result);
            PQclear(kept);
            return lost(l);
        }
        PGresult *one = NULL;
        fault = check(l, &result, &one);
        if (one) {
            PQclear(kept);
            kept = one;
        }
        if (worst == PG_OK)
            worst = fault;
    }
    if (worst == PG_LOST)
        pg_link_drop(l);
    if (worst == PG_OK && out)
        *out = kept;
    else
        PQclear(kept);
    return worst;
}

/* A name says what is prepared under it, since behind a pooler somebody else may have prepared it: equal names, equal texts.
 * The serial number is of endings, whose texts change with the day. */
static void name_of(const struct pg_link *l, enum pg_statement which, const char *sql, char name[40])
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    int serial = which >= PG_SQL_END ? l->end_names[which - PG_SQL_END] : 0;
    for (; *sql; sql++)
        hash = (hash ^ (unsigned char)*sql) * 1099511628211u;
    snprintf(name, 40, "samekey_%016llx_%d", (unsigned long long)hash, serial);
}

static enum pg_fault send_query(struct pg_link *l, enum pg_statement which, const char *sql,
                                const struct pg_args *args)
{
    const char *values[PG_ARGS_MAX];
    int lengths[PG_ARGS_MAX], formats[PG_ARGS_MAX], count = args ? args->count : 0;
    char name[40];
    for (int i = 0; i < count; i++) {
        if (args->values[i].failed)
            return PG_REFUSED;
        values[i] = args->values[i].data ? args->values[i].data : "";
        lengths[i] = (int)args->values[i].len;
        formats[i] = 1;
    }
    int sent;
    if (which == PG_SQL_NONE || atomic_load_explicit(&l->store->unnamed, memory_order_relaxed)) {
        sent =
            PQsendQueryParams(l->conn, sql, count, count ? args->types : NULL, values, lengths, formats, 1);
    } else {
        name_of(l, which, sql, name);
        sent = PQsendQueryPrepared(l->conn, name, count, values, lengths, formats, 1);
    }
    return sent ? PG_OK : lost(l);
}

/* Prepares a statement that this connection has not had yet; outside a pipeline. */
static enum pg_fault prepare(struct pg_link *l, enum pg_statement which, const char *sql,
                             const struct pg_args *args)
{
    char name[40];
    unsigned bit = 1u << which;
    if (which == PG_SQL_NONE || (l->prepared & bit) ||
        atomic_load_explicit(&l->store->unnamed, memory_order_relaxed))
        return PG_OK;
    name_of(l, which, sql, name);
    if (!PQsendPrepare(l->conn, name, sql, args ? args->count : 0, args ? args->types : NULL))
        return lost(l);
    int64_t until = pg_monotonic_ms() + PG_ANSWER_MS;
    if (!flush(l, until))
        return lost(l);
    enum pg_fault fault = collect(l, until, NULL);
    if (fault == PG_OK)
        l->prepared |= bit;
    return fault;
}

enum pg_fault pg_run(struct pg_link *l, enum pg_statement which, const char *sql, const struct pg_args *args,
                     PGresult **out)
{
    enum pg_fault fault = prepare(l, which, sql, args);
    if (fault == PG_OK)
        fault = send_query(l, which, sql, args);
    if (fault != PG_OK)
        return fault;
    int64_t until = pg_monotonic_ms() + PG_ANSWER_MS;
    return flush(l, until) ? collect(l, until, out) : lost(l);
}

enum pg_fault pg_text(struct pg_link *l, const char *sql)
{
    return pg_text_within(l, sql, PG_ANSWER_MS);
}

enum pg_fault pg_text_within(struct pg_link *l, const char *sql, int64_t most_ms)
{
    int64_t until = pg_monotonic_ms() + most_ms;
    if (!PQsendQuery(l->conn, sql) || !flush(l, until))
        return lost(l);
    return collect(l, until, NULL);
}

/* ---- several in one round trip ---- */

enum pg_fault pg_queue_begin(struct pg_link *l)
{
    l->queue_at = l->queue_len = 0; /* of a connection that broke in the middle */
    return PQenterPipelineMode(l->conn) ? PG_OK : lost(l);
}

enum pg_fault pg_queue(struct pg_link *l, enum pg_statement which, const char *sql,
                       const struct pg_args *args)
{
    /* A statement is prepared on its way: the server takes it before the one that uses it. */
    unsigned bit = which == PG_SQL_NONE ? 0 : 1u << which;
    if (bit && !(l->prepared & bit) && !atomic_load_explicit(&l->store->unnamed, memory_order_relaxed)) {
        char name[40];
        name_of(l, which, sql, name);
        if (!PQsendPrepare(l->conn, name, sql, args ? args->count : 0, args ? args->types : NULL))
            return lost(l);
        l->preparing |= bit;
        l->prepared |= bit;
        l->queued[l->queue_len++ % PG_QUEUE_MAX] = true;
    }
    enum pg_fault fault = send_query(l, which, sql, args);
    if (fault == PG_OK)
        l->queued[l->queue_len++ % PG_QUEUE_MAX] = false;
    return fault;
}

enum pg_fault pg_queue_send(struct pg_link *l)
{
    l->until_ms = pg_monotonic_ms() + PG_ANSWER_MS;
    if (!PQpipelineSync(l->conn) || !flush(l, l->until_ms))
        return lost(l);
    return PG_OK;
}

/* One result with the NULL behind it. */
static enum pg_fault queue_result(struct pg_link *l, PGresult **out)
{
    PGresult *result = NULL, *behind = NULL, *kept = NULL;
    enum pg_fault fault = next_result(l, l->until_ms, &result);
    if (fault != PG_OK)
        return fault;
    if (!result)
        return lost(l);
    fault = check(l, &result, &kept);
    if (fault == PG_LOST) {
        pg_link_drop(l);
        return fault;
    }
    enum pg_fault end = next_result(l, l->until_ms, &behind);
    if (end != PG_OK || behind) {
        PQclear(behind);
        PQclear(kept);
        return end != PG_OK ? end : lost(l);
    }
    if (fault == PG_OK && out)
        *out = kept;
    else
        PQclear(kept);
    return fault;
}

enum pg_fault pg_queue_next(struct pg_link *l, PGresult **out)
{
    enum pg_fault fault = PG_OK;
    bool preparing = true;
    while (preparing && l->conn) {
        preparing = l->queued[l->queue_at++ % PG_QUEUE_MAX];
        enum pg_fault one = queue_result(l, preparing ? NULL : out);
        if (fault == PG_OK)
            fault = one;
        if (one == PG_LOST)
            return one;
    }
    return fault;
}

enum pg_fault pg_queue_end(struct pg_link *l)
{
    enum pg_fault fault = PG_OK;
    /* What was queued and not asked for, then the mark of its end. */
    while (l->conn && l->queue_at < l->queue_len)
        (void)pg_queue_next(l, NULL);
    l->queue_at = l->queue_len = 0;
    if (!l->conn)
        return PG_LOST;
    PGresult *sync = NULL;
    fault = next_result(l, l->until_ms, &sync);
    if (fault != PG_OK)
        return fault;
    bool good = sync && PQresultStatus(sync) == PGRES_PIPELINE_SYNC;
    PQclear(sync);
    if (!good || !PQexitPipelineMode(l->conn))
        return lost(l);
    return PG_OK;
}

/* ---- transactions ---- */

/* Bounds, and plans that are made once and do not depend on what statistics said of an empty table. */
#define BOUNDS                                                                                               \
    "SELECT set_config('statement_timeout', '8000', true), set_config('lock_timeout', '2000', true),"        \
    " set_config('idle_in_transaction_session_timeout', '20000', true), set_config('jit', 'off', true),"     \
    " set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),"                \
    " set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', "     \
    "true)"

static const char opening[] =
    "WITH bound AS (" BOUNDS "),"
    " mark AS (INSERT INTO samekey_store.writer AS w(name, batch, seen_ms) VALUES($1, $2, "
    "samekey_store.now_ms())"
    " ON CONFLICT(name) DO UPDATE SET batch = excluded.batch, seen_ms = excluded.seen_ms RETURNING batch)"
    " SELECT samekey_store.now_ms(), m.covers_since_ms, m.refuse_before_ms FROM bound, mark, "
    "samekey_store.meta m";

/* Up to the mark of its end a queue is a transaction by itself, and so long the bounds hold. */
enum pg_fault pg_read(struct pg_link *l, enum pg_statement which, const char *sql, const struct pg_args *args,
                      PGresult **out)
{
    if (pg_monotonic_ms() < l->busy_until_ms)
        return PG_BUSY;
    enum pg_fault fault = pg_queue_begin(l);
    if (fault == PG_OK)
        fault = pg_queue(l, PG_SQL_BOUNDS, BOUNDS, NULL);
    if (fault == PG_OK)
        fault = pg_queue(l, which, sql, args);
    if (fault == PG_OK)
        fault = pg_queue_send(l);
    if (fault == PG_OK)
        fault = pg_queue_next(l, NULL);
    PGresult *result = NULL;
    if (fault == PG_OK)
        fault = pg_queue_next(l, &result);
    enum pg_fault end = l->conn ? pg_queue_end(l) : PG_LOST;
    if (fault == PG_OK)
        fault = end;
    if (fault == PG_OK) {
        l->preparing = 0;
        *out = result;
        return PG_OK;
    }
    PQclear(result);
    pg_transaction_abandon(l);
    if (fault == PG_BUSY)
        l->busy_until_ms = pg_monotonic_ms() + PG_BUSY_MS;
    return fault;
}

enum pg_fault pg_opening_queue(struct pg_link *l)
{
    struct pg_args args = {0};
    (void)pg_arg_bytes(&args, slice_text(l->name));
    (void)pg_arg_number(&args, ++l->batch);
    l->asked_ms = pg_monotonic_ms();
    enum pg_fault fault = pg_queue(l, PG_SQL_NONE, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", NULL);
    if (fault == PG_OK)
        fault = pg_queue(l, PG_SQL_BEGIN, opening, &args);
    pg_args_fini(&args);
    return fault;
}

static enum pg_fault read_moment(struct pg_link *l, PGresult *result, struct pg_moment *moment)
{
    if (PQntuples(result) != 1) {
        PQclear(result);
        remember_error(l, "table meta of schema samekey_store has no row");
        return PG_FAILED;
    }
    moment->now_ms = pg_number(result, 0, 0);
    moment->covers_since_ms = pg_number(result, 0, 1);
    moment->refuse_before_ms = pg_number(result, 0, 2);
    PQclear(result);
    pg_clock_learn(l->store, moment->now_ms, l->asked_ms, pg_monotonic_ms());
    return PG_OK;
}

enum pg_fault pg_opening_read(struct pg_link *l, struct pg_moment *moment)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_queue_next(l, NULL);
    enum pg_fault mark = l->conn ? pg_queue_next(l, &result) : PG_LOST;
    if (fault == PG_OK)
        fault = mark;
    if (fault != PG_OK) {
        PQclear(result);
        return fault;
    }
    l->in_transaction = true;
    return read_moment(l, result, moment);
}

enum pg_fault pg_transaction_begin(struct pg_link *l, struct pg_moment *moment)
{
    enum pg_fault fault = pg_link_ready(l);
    if (fault == PG_OK)
        fault = pg_queue_begin(l);
    if (fault == PG_OK)
        fault = pg_opening_queue(l);
    if (fault == PG_OK)
        fault = pg_queue_send(l);
    if (fault == PG_OK)
        fault = pg_opening_read(l, moment);
    if (l->conn) {
        enum pg_fault end = pg_queue_end(l);
        if (fault == PG_OK)
            fault = end;
    }
    if (fault != PG_OK)
        pg_transaction_abandon(l);
    return fault;
}

void pg_transaction_abandon(struct pg_link *l)
{
    if (l->conn && PQtransactionStatus(l->conn) != PQTRANS_IDLE && pg_text(l, "ROLLBACK") != PG_OK)
        pg_link_drop(l);
    /* What was on its way to be prepared may not have arrived. */
    l->prepared &= ~l->preparing;
    if (l->preparing && l->conn)
        pg_link_drop(l);
    l->preparing = 0;
    l->in_transaction = false;
}

/* On a new connection. Waits for the old transaction, which holds the lock of the writer's row as long as it lives. */
static enum pg_fault look_up(struct pg_link *l)
{
    struct pg_args args = {0};
    int64_t until = pg_monotonic_ms() + PG_LOOK_UP_MS;
    enum pg_fault fault = PG_UNSURE;
    (void)pg_arg_bytes(&args, slice_text(l->name));
    pg_link_drop(l);
    while (fault == PG_UNSURE && pg_monotonic_ms() < until) {
        PGresult *result = NULL;
        l->retry_at_ms = 0;
        if (pg_link_ready(l) == PG_OK &&
            pg_run(l, PG_SQL_NONE, "SELECT batch FROM samekey_store.writer WHERE name = $1 FOR UPDATE", &args,
                   &result) == PG_OK) {
            fault = PQntuples(result) == 1 && pg_number(result, 0, 0) == l->batch ? PG_OK : PG_LOST;
            PQclear(result);
            break;
        }
        pg_link_drop(l);
        (void)poll(NULL, 0, PG_BACKOFF_MS);
    }
    pg_args_fini(&args);
    return fault;
}

enum pg_fault pg_transaction_commit(struct pg_link *l)
{
    l->preparing = 0;
    l->committing = true;
    l->warned = false;
    int64_t until = pg_monotonic_ms() + PG_COMMIT_MS;
    enum pg_fault fault = PG_LOST;
    PGresult *result = NULL;
    if (!PQsendQuery(l->conn, "COMMIT") || !flush(l, until))
        (void)lost(l);
    else
        fault = collect(l, until, &result);
    bool committed = fault == PG_OK && result && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    PQclear(result);
    bool warned = l->warned;
    l->committing = l->in_transaction = false;
    if (warned)
        return PG_UNSURE;
    if (committed)
        return PG_OK;
    if (fault == PG_LOST)
        return look_up(l);
    pg_transaction_abandon(l);
    return fault == PG_OK ? PG_FAILED : fault;
}

enum pg_fault pg_moment_read(struct pg_link *l, struct pg_moment *moment)
{
    PGresult *result = NULL;
    l->asked_ms = pg_monotonic_ms();
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "SELECT samekey_store.now_ms(), covers_since_ms, refuse_before_ms FROM samekey_store.meta",
               NULL, &result);
    return fault == PG_OK ? read_moment(l, result, moment) : fault;
}
