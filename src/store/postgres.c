/* SPDX-License-Identifier: MIT
 *
 * The PostgreSQL store: receipts that several gateways share.
 *
 * Always true:
 *  (1) An operation is answered STATUS_OK only after the COMMIT of what it wrote was answered, or was found to be there
 *      on a new connection. STATUS_IO: it is not there and will not be. STATUS_UNKNOWN: nobody could find out.
 *  (2) Nothing in memory is believed about rows: other gateways write too. What is remembered (days, notes) only saves
 *      work, and being wrong about it costs a try.
 *  (3) Time is the database's: it stamps rows and judges lives and leases. store_clock_ms() follows it.
 *  (4) A connection is used by one thread at a time, and never again after it failed.
 *
 * A batch is run in parts: first what nearly all operations are (postgres_many.c), then the few others (postgres_one.c),
 * then reads. Operations of one call are not in one batch, unless a renewal comes before its ending: and it stays so.
 */
#include "store/postgres.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define ONES_MAX    16 /* of the others in one transaction */
#define PG_READS    64 /* operations that one statement reads for */
#define LOST_MAX    3  /* times a claim is tried again that lost to nobody */
#define LOOK_GAP_MS 60000
#define DROP_GAP_MS 600000

struct pg_reader {
    struct store_reader reader;
    struct pg_link link;
};

/* ---- the clock ---- */

/* When the database told its clock lies somewhere between asking and answering. Of that the late end is kept, and lowered as
 * later answers allow: this clock is never behind the database's, so what an owner believes is left of its lease never is
 * more than what is left there. */
void pg_clock_learn(struct pg_store *s, int64_t database_ms, int64_t asked_ms, int64_t answered_ms)
{
    int64_t low = database_ms - answered_ms, high = database_ms - asked_ms;
    int64_t ahead = atomic_load_explicit(&s->ahead_ms, memory_order_relaxed);
    if (!atomic_load_explicit(&s->ahead_known, memory_order_acquire) || ahead > high || ahead < low)
        ahead = high;
    atomic_store_explicit(&s->ahead_ms, ahead, memory_order_relaxed);
    atomic_store_explicit(&s->ahead_known, true, memory_order_release);
}

static int64_t pg_now(struct store *store)
{
    struct pg_store *s = (struct pg_store *)store;
    return atomic_load_explicit(&s->ahead_ms, memory_order_relaxed) + pg_monotonic_ms();
}

/* ---- a batch ---- */

static void answer(struct store_op *op, const struct pg_moment *moment)
{
    if (op->memory.failed) {
        store_op_reset(op);
        op->status = STATUS_NO_MEMORY;
    }
    op->rows.now_ms = moment->now_ms;
    op->rows.covers_since_ms = moment->covers_since_ms;
    op->rows.refuse_before_ms = moment->refuse_before_ms;
}

static void refuse(struct store_op **ops, size_t count, enum status status)
{
    for (size_t i = 0; i < count; i++) {
        store_op_reset(ops[i]);
        ops[i]->status = status;
    }
}

/* Whether the rows of its own identities, or of its id, are told after the COMMIT. */
static bool tells_rows(const struct store_op *op)
{
    if (op->status == STATUS_INVALID || op->status == STATUS_NOT_FOUND)
        return false;
    return op->kind == STORE_TAKE || op->kind == STORE_ATTACH || op->kind == STORE_FENCE ||
           op->kind == STORE_TASK || op->kind == STORE_CLAIM ||
           (op->kind == STORE_END && op->status == STATUS_CONFLICT);
}

static enum pg_fault ones_run(struct pg_link *l, struct store_op **ops, size_t count,
                              struct pg_moment *moment)
{
    enum pg_fault fault = pg_link_ready(l);
    for (size_t i = 0; fault == PG_OK && i < count; i++)
        if (ops[i]->kind == STORE_END || ops[i]->kind == STORE_TASK_RESOLVE ||
            ops[i]->kind == STORE_TASK_ROUND)
            fault = pg_day_make(l, pg_day_of(ops[i]->row.result_expires_ms));
    if (fault == PG_OK)
        fault = pg_numbers_ready(l);
    if (fault == PG_OK)
        fault = pg_transaction_begin(l, moment);
    for (size_t i = 0; fault == PG_OK && i < count; i++)
        fault = pg_one_run(l, ops[i], moment);
    if (fault == PG_OK)
        fault = pg_transaction_commit(l);
    else
        pg_transaction_abandon(l);
    if (fault == PG_TABLE)
        for (size_t i = 0; i < count; i++)
            pg_day_forget(l->store, pg_day_of(ops[i]->row.result_expires_ms));
    for (size_t i = 0; fault == PG_OK && i < count; i++) {
        struct store_op *op = ops[i];
        enum status status = op->status;
        bool done = op->done;
        enum pg_fault read = pg_link_ready(l);
        if (read == PG_OK && tells_rows(op))
            read = pg_read_run(l, op);
        else if (read == PG_OK)
            read = pg_task_told(l, op);
        op->done = done;
        if (op->status == STATUS_OK)
            op->status = status;
        if (read != PG_OK) /* it is there, and what it made of the row is not known */
            op->status = done ? STATUS_UNKNOWN : STATUS_IO;
    }
    return fault;
}

static void run_until(struct pg_link *l, struct store_op **ops, size_t count, bool many, int64_t until_ms);

/* A group that came to nothing. What one operation did must not cost its neighbours their writes. */
static void run_apart(struct pg_link *l, struct store_op **ops, size_t count, bool many, int64_t until_ms)
{
    if (count == 1) {
        refuse(ops, 1, STATUS_INVALID);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (pg_monotonic_ms() < until_ms)
            run_until(l, &ops[i], 1, many, until_ms);
        else
            refuse(&ops[i], 1, STATUS_IO);
    }
}

static bool lost_to_nobody(const struct store_op *op)
{
    int64_t refuse_before = op->rows.refuse_before_ms;
    return op->kind == STORE_CLAIM && op->status == STATUS_OK && !op->done && !op->rows.call.id &&
           !op->rows.holder.id && !op->rows.suspect.id && !(op->id_time_ms && op->id_time_ms < refuse_before);
}

/* What is tried again is so until then: who waits is told within a bound, whatever somebody has locked. */
static void run_until(struct pg_link *l, struct store_op **ops, size_t count, bool many, int64_t until_ms)
{
    struct pg_moment moment = {0};
    enum pg_fault fault = PG_LOST;
    int reconnects = 0;
    for (int i = 0; i < PG_TRIES; i++) {
        for (size_t j = 0; j < count; j++)
            store_op_reset(ops[j]);
        fault = many ? pg_many_run(l, ops, count, &moment) : ones_run(l, ops, count, &moment);
        if (pg_monotonic_ms() >= until_ms)
            break;
        if (fault == PG_LOST && reconnects++ == 0)
            continue; /* the server may have been gone and back for long */
        if (fault != PG_AGAIN && fault != PG_UNNAMED && fault != PG_TABLE)
            break;
        if (fault == PG_AGAIN)
            (void)poll(NULL, 0, 5 * (i + 1));
    }
    if (fault == PG_OK) {
        for (size_t i = 0; i < count; i++)
            answer(ops[i], &moment);
    } else if (fault == PG_REFUSED || ((fault == PG_AGAIN || fault == PG_BUSY) && count > 1)) {
        run_apart(l, ops, count, many, until_ms);
    } else {
        refuse(ops, count, fault == PG_UNSURE ? STATUS_UNKNOWN : STATUS_IO);
    }
}

static void run(struct pg_link *l, struct store_op **ops, size_t count, bool many)
{
    run_until(l, ops, count, many, pg_monotonic_ms() + PG_BATCH_MS);
}

/* Claims that lost, and whoever won is not there any more, or the number of the id was taken. */
static void run_lost(struct pg_link *l, struct store_op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int tries = 0; tries < LOST_MAX && lost_to_nobody(ops[i]); tries++)
            run(l, &ops[i], 1, true);
        if (lost_to_nobody(ops[i]))
            refuse(&ops[i], 1, STATUS_IO);
    }
}

/* Of one operation, or of several that one statement reads for. */
static enum pg_fault read_try(struct pg_link *l, struct store_op **ops, size_t count)
{
    enum pg_fault fault = PG_LOST;
    int64_t until = pg_monotonic_ms() + PG_BATCH_MS;
    for (int i = 0; i < 3 && fault != PG_OK; i++) {
        for (size_t j = 0; j < count; j++)
            store_op_reset(ops[j]);
        fault = pg_link_ready(l);
        if (fault == PG_OK)
            fault = count == 1 ? pg_read_run(l, ops[0]) : pg_read_many(l, ops, count);
        if ((fault != PG_OK && fault != PG_LOST && fault != PG_UNNAMED && fault != PG_AGAIN) ||
            pg_monotonic_ms() >= until)
            break;
    }
    return fault;
}

static void read_all(struct pg_link *l, struct store_op **ops, size_t count)
{
    enum pg_fault fault = count ? read_try(l, ops, count) : PG_OK;
    if (fault == PG_REFUSED && count > 1) {
        for (size_t i = 0; i < count; i++)
            read_all(l, &ops[i], 1);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (fault != PG_OK)
            refuse(&ops[i], 1, STATUS_IO);
        else if (ops[i]->memory.failed)
            refuse(&ops[i], 1, STATUS_NO_MEMORY);
}

/* Whether the operation may be in one transaction with those before it. */
static bool joins(struct store_op **group, size_t count, const struct store_op *op)
{
    int64_t days[PG_END_DAYS] = {0};
    size_t days_count = 0;
    bool blocks = op->kind == STORE_CLAIM && op->block_suspect && op->row.has_fingerprint;
    if (count == PG_GROUP)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct store_op *other = group[i];
        if (op->kind != STORE_CLAIM && other->kind != STORE_CLAIM && other->id == op->id)
            return false;
        if (blocks && other->kind == STORE_CLAIM && other->row.has_fingerprint &&
            digest32_equal(&other->row.fingerprint, &op->row.fingerprint))
            return false;
        size_t at = 0;
        while (other->kind == STORE_END && at < days_count && days[at] != pg_end_day(other))
            at++;
        if (other->kind == STORE_END && at == days_count && at < PG_END_DAYS)
            days[days_count++] = pg_end_day(other);
    }
    if (op->kind != STORE_END)
        return true;
    for (size_t at = 0; at < days_count; at++)
        if (days[at] == pg_end_day(op))
            return true;
    return days_count < PG_END_DAYS;
}

static struct pg_link *link_take(struct pg_store *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy == (1u << PG_WRITERS) - 1)
        pthread_cond_wait(&s->freed, &s->lock);
    unsigned at = 0;
    while (s->busy & 1u << at)
        at++;
    s->busy |= 1u << at;
    pthread_mutex_unlock(&s->lock);
    return &s->writers[at];
}

static void link_give(struct pg_store *s, struct pg_link *l)
{
    pthread_mutex_lock(&s->lock);
    s->busy &= ~(1u << (l - s->writers));
    pthread_mutex_unlock(&s->lock);
    pthread_cond_signal(&s->freed);
}

/* How many rows there are, roughly where there are many, and how much room they take. */
static void look_at_size(struct pg_link *l)
{
    struct pg_store *s = l->store;
    PGresult *result = NULL;
    char sql[900];
    snprintf(sql, sizeof sql,
             "SELECT CASE WHEN t.reltuples > %d THEN t.reltuples::bigint ELSE (SELECT count(*) FROM"
             " (SELECT 1 FROM samekey_store.call LIMIT %d) few) END,"
             " (SELECT sum(pg_catalog.pg_total_relation_size(c.oid))::bigint FROM pg_catalog.pg_class c"
             " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'samekey_store'"
             " AND c.relkind = 'r') FROM pg_catalog.pg_class t WHERE t.oid = 'samekey_store.call'::regclass",
             PG_COUNT_ROWS, PG_COUNT_ROWS + 1);
    if (pg_link_ready(l) != PG_OK || pg_run(l, PG_SQL_NONE, sql, NULL, &result) != PG_OK)
        return;
    atomic_store(&s->rows, pg_number(result, 0, 0));
    atomic_store(&s->bytes, pg_number(result, 0, 1));
    PQclear(result);
}

/* After a step of purging: what does not belong into its transaction. */
static void tidy(struct pg_store *s, struct pg_link *l)
{
    int64_t now = pg_monotonic_ms();
    bool look = false, drop = false;
    pthread_mutex_lock(&s->lock);
    look = now >= s->looked_ms + LOOK_GAP_MS;
    drop = now >= s->dropped_ms + DROP_GAP_MS;
    if (look)
        s->looked_ms = now;
    if (drop)
        s->dropped_ms = now;
    pthread_mutex_unlock(&s->lock);
    if (look)
        look_at_size(l);
    if (drop && pg_link_ready(l) == PG_OK)
        pg_days_drop(l, pg_now(&s->store));
    if (drop && pg_link_ready(l) == PG_OK) /* marks of processes that have long been gone */
        (void)pg_run(l, PG_SQL_NONE,
                     "DELETE FROM samekey_store.writer WHERE seen_ms < samekey_store.now_ms() - 604800000",
                     NULL, NULL);
}

static void pg_batch(struct store *store, struct store_op **ops, size_t count)
{
    struct pg_store *s = (struct pg_store *)store;
    struct store_op *group[PG_GROUP];
    struct pg_link *l = link_take(s);
    size_t grouped = 0;
    bool purged = false;
    for (size_t i = 0; i < count; i++) {
        if (!pg_many_takes(ops[i]))
            continue;
        if (!joins(group, grouped, ops[i])) {
            run(l, group, grouped, true);
            run_lost(l, group, grouped);
            grouped = 0;
        }
        group[grouped++] = ops[i];
    }
    if (grouped) {
        run(l, group, grouped, true);
        run_lost(l, group, grouped);
    }
    grouped = 0;
    for (size_t i = 0; i < count; i++) {
        struct store_op *op = ops[i];
        if (pg_many_takes(op) || store_op_reads(op) || (op->kind == STORE_LOOKUP && op->any_tenant))
            continue;
        purged = purged || op->kind == STORE_PURGE;
        group[grouped++] = op;
        if (grouped == ONES_MAX) {
            run(l, group, grouped, false);
            grouped = 0;
        }
    }
    if (grouped)
        run(l, group, grouped, false);
    for (size_t i = 0; i < count; i++)
        if (store_op_reads(ops[i]) || (ops[i]->kind == STORE_LOOKUP && ops[i]->any_tenant))
            read_all(l, &ops[i], 1);
    if (purged)
        tidy(s, l);
    link_give(s, l);
}

/* ---- readers ---- */

static enum status pg_reader_open(struct store_reader **out, struct store *store, unsigned share,
                                  struct buffer *error)
{
    (void)share; /* always 0: a server is waited for */
    struct pg_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        buffer_text(error, "There is no memory for a connection to PostgreSQL.");
        return STATUS_NO_MEMORY;
    }
    reader->reader.driver = store->driver;
    reader->link.store = (struct pg_store *)store;
    *out = &reader->reader;
    return STATUS_OK;
}

static void pg_reader_run(struct store_reader *reader, struct store_op *op)
{
    read_all(&((struct pg_reader *)reader)->link, &op, 1);
}

static void pg_reader_run_all(struct store_reader *reader, struct store_op **ops, size_t count)
{
    struct pg_link *l = &((struct pg_reader *)reader)->link;
    struct store_op *group[PG_READS];
    size_t grouped = 0;
    for (size_t i = 0; i < count; i++) {
        if (!pg_read_takes(ops[i])) {
            read_all(l, &ops[i], 1);
            continue;
        }
        group[grouped++] = ops[i];
        if (grouped == PG_READS) {
            read_all(l, group, grouped);
            grouped = 0;
        }
    }
    read_all(l, group, grouped);
}

static void pg_reader_free(struct store_reader *reader)
{
    pg_link_drop(&((struct pg_reader *)reader)->link);
    free(reader);
}

static enum status pg_reader_ended(struct store_reader *reader, const int64_t *ids, size_t count,
                                   int64_t *ended, size_t *ended_count)
{
    struct pg_link *l = &((struct pg_reader *)reader)->link;
    struct pg_args args = {0};
    PGresult *result = NULL;
    int at = pg_arg_numbers(&args);
    for (size_t i = 0; i < count; i++)
        pg_add_number(&args, at, ids[i]);
    enum pg_fault fault = PG_LOST;
    for (int i = 0; i < 2 && (fault == PG_LOST || fault == PG_UNNAMED); i++) {
        fault = pg_link_ready(l);
        if (fault == PG_OK)
            fault = pg_read(
                l, PG_SQL_ENDED,
                "SELECT u.id FROM unnest($1::bigint[]) AS u(id) LEFT JOIN samekey_store.call c ON c.id = u.id"
                " WHERE c.id IS NULL OR c.state NOT IN (1, 2)",
                &args, &result);
    }
    pg_args_fini(&args);
    if (fault != PG_OK)
        return STATUS_IO;
    *ended_count = (size_t)PQntuples(result);
    for (size_t i = 0; i < *ended_count; i++)
        ended[i] = pg_number(result, (int)i, 0);
    PQclear(result);
    return STATUS_OK;
}

/* ---- the rest ---- */

static bool pg_idle(struct store *store)
{
    (void)store;
    return false;
}

static void pg_stats(struct store *store, struct store_stats *out)
{
    struct pg_store *s = (struct pg_store *)store;
    out->rows = atomic_load(&s->rows);
    out->bytes_on_disk = atomic_load(&s->bytes);
}

static enum status pg_raise_covers_since(struct store *store, int64_t covers_since_ms)
{
    struct pg_store *s = (struct pg_store *)store;
    struct pg_link *l = link_take(s);
    struct pg_args args = {0};
    enum pg_fault fault = PG_LOST;
    (void)pg_arg_number(&args, covers_since_ms);
    for (int i = 0; i < 3 && fault != PG_OK; i++) { /* twice does no harm */
        fault = pg_link_ready(l);
        if (fault == PG_OK)
            fault = pg_run(l, PG_SQL_NONE,
                           "UPDATE samekey_store.meta SET covers_since_ms = greatest(covers_since_ms, $1),"
                           " refuse_before_ms = greatest(refuse_before_ms, covers_since_ms, $1)",
                           &args, NULL);
    }
    pg_args_fini(&args);
    link_give(s, l);
    return fault == PG_OK ? STATUS_OK : STATUS_IO;
}

/* One statement, so that gateways that ask at once all get the one that was first. */
static enum status pg_secret(struct store *store, bool anew, uint8_t secret[STORE_SECRET_BYTES])
{
    struct pg_store *s = (struct pg_store *)store;
    uint8_t made[STORE_SECRET_BYTES];
    PGresult *result = NULL;
    struct pg_args args = {0};
    enum pg_fault fault = PG_LOST;
    if (!secret_make(made))
        return STATUS_IO;
    struct pg_link *l = link_take(s);
    (void)pg_arg_bytes(&args, slice_of((const char *)made, sizeof made));
    for (int i = 0; i < 3 && fault != PG_OK; i++) { /* twice does no harm */
        fault = pg_link_ready(l);
        if (fault == PG_OK)
            fault =
                pg_run(l, PG_SQL_NONE,
                       anew ? "UPDATE samekey_store.meta SET secret = $1 RETURNING secret"
                            : "UPDATE samekey_store.meta SET secret = coalesce(secret, $1) RETURNING secret",
                       &args, &result);
    }
    struct slice kept = fault == PG_OK && PQntuples(result) == 1 ? pg_bytes(result, 0, 0) : slice_of("", 0);
    bool good = kept.len == STORE_SECRET_BYTES;
    if (good)
        memcpy(secret, kept.data, kept.len);
    PQclear(result);
    pg_args_fini(&args);
    link_give(s, l);
    return good ? STATUS_OK : STATUS_IO;
}

static void pg_close(struct store *store)
{
    struct pg_store *s = (struct pg_store *)store;
    for (size_t i = 0; i < PG_WRITERS; i++)
        pg_link_drop(&s->writers[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->freed);
    free(s->url);
    free(s->owner);
    free(s);
}

static const struct store_driver driver = {
    .batch = pg_batch,
    .reader_open = pg_reader_open,
    .reader_run = pg_reader_run,
    .reader_run_all = pg_reader_run_all,
    .reader_free = pg_reader_free,
    .reader_ended = pg_reader_ended,
    .idle = pg_idle,
    .stats = pg_stats,
    .raise_covers_since = pg_raise_covers_since,
    .secret = pg_secret,
    .now = pg_now,
    .close = pg_close,
    .writers = PG_WRITERS,
    .readers = PG_READERS,
};

enum status postgres_store_open(struct store **out, const struct store_settings *settings,
                                struct buffer *error)
{
    struct pg_store *s = calloc(1, sizeof *s);
    char *wrong = NULL;
    enum status status = STATUS_NO_MEMORY;
    if (!s)
        return status;
    s->store.driver = &driver;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->freed, NULL);
    s->url = strdup(settings->url);
    s->owner = strdup(settings->owner ? settings->owner : "");
    s->read_only = settings->read_only;
    s->archive = settings->archive;
    s->looked_ms = pg_monotonic_ms();
    s->dropped_ms = s->looked_ms - DROP_GAP_MS; /* with the first step of purging */
    PQconninfoOption *options = s->url ? PQconninfoParse(s->url, &wrong) : NULL;
    if (!options) {
        buffer_format(error, "store: %s", wrong ? wrong : "not a PostgreSQL URL");
        status = STATUS_INVALID;
        goto failed;
    }
    PQconninfoFree(options);
    if (!s->owner)
        goto failed;
    for (size_t i = 0; i < PG_WRITERS; i++) {
        s->writers[i].store = s;
        snprintf(s->writers[i].name, sizeof s->writers[i].name, "%.140s#%zu", s->owner, i);
    }
    status = pg_schema_open(&s->writers[0], error);
    if (status != STATUS_OK)
        goto failed;
    struct pg_moment moment;
    if (pg_moment_read(&s->writers[0], &moment) != PG_OK) {
        buffer_format(error, "PostgreSQL: %s", s->writers[0].error);
        status = STATUS_IO;
        goto failed;
    }
    look_at_size(&s->writers[0]);
    *out = &s->store;
    return STATUS_OK;
failed:
    PQfreemem(wrong);
    pg_close(&s->store);
    return status;
}
