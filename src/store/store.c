/* SPDX-License-Identifier: MIT
 *
 * Picks the driver of a store by the scheme of its URL. A scheme that is not built is refused by name: a gateway
 * that silently wrote its receipts somewhere else would be worse than one that does not start.
 */
#include "store/driver.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* Schemes the design names and this program does not have yet. */
static const struct {
    const char *scheme, *refusal;
} not_built[] = {
    {"redis:", "Redis is only a cache in front of a store, never the store: use store = \"sqlite:PATH\"."},
    {"memory:", "A store in memory would forget every receipt: use store = \"sqlite:PATH\"."},
};

static int64_t wall_clock(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const char *behind(const char *url, const char *scheme)
{
    size_t len = strlen(scheme);
    return strncmp(url, scheme, len) == 0 ? url + len : NULL;
}

enum status store_open(struct store **out, const struct store_settings *settings, struct buffer *error)
{
    const char *url = settings->url ? settings->url : "";
    const char *rest = behind(url, "sqlite:");
    enum status status = STATUS_NOT_FOUND;
    if (rest)
        status = sqlite_store_open(out, rest, settings, error);
    else if (behind(url, "postgres://") || behind(url, "postgresql://"))
        status = postgres_store_open(out, settings, error);
    if (status == STATUS_OK) {
        (*out)->now_ms = settings->now_ms ? settings->now_ms : wall_clock;
        (*out)->context = settings->context;
    }
    if (status != STATUS_NOT_FOUND)
        return status;
    for (size_t i = 0; i < sizeof not_built / sizeof *not_built; i++)
        if (behind(url, not_built[i].scheme)) {
            buffer_text(error, not_built[i].refusal);
            return STATUS_INVALID;
        }
    buffer_format(
        error,
        "\"%s\" does not name a store: use store = \"sqlite:PATH\" or \"postgres://USER@HOST/DATABASE\".",
        url);
    return STATUS_INVALID;
}

void store_batch(struct store *store, struct store_op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert(ops[i]->kind != STORE_WATCH);
    if (count)
        store->driver->batch(store, ops, count);
}

enum batch_begun store_batch_begin(struct store *store, struct store_op **ops, size_t count)
{
    return store->driver->batch_begin ? store->driver->batch_begin(store, ops, count) : BATCH_AGAIN;
}

void store_batch_sync(struct store *store)
{
    store->driver->batch_sync(store);
}

void store_batch_end(struct store *store)
{
    store->driver->batch_end(store);
}

enum status store_reader_open(struct store_reader **out, struct store *store, struct buffer *error)
{
    return store->driver->reader_open(out, store, 0, error);
}

enum status store_reader_open_now(struct store_reader **out, struct store *store, unsigned share,
                                  struct buffer *error)
{
    assert(share);
    *out = NULL;
    return store->driver->reader_run_now ? store->driver->reader_open(out, store, share, error) : STATUS_OK;
}

void store_reader_run(struct store_reader *reader, struct store_op *op)
{
    assert(store_op_reads(op));
    reader->driver->reader_run(reader, op);
}

void store_reader_run_all(struct store_reader *reader, struct store_op **ops, size_t count)
{
    if (count > 1 && reader->driver->reader_run_all)
        reader->driver->reader_run_all(reader, ops, count);
    else
        for (size_t i = 0; i < count; i++)
            store_reader_run(reader, ops[i]);
}

size_t store_reader_run_now(struct store_reader *reader, struct store_op **ops, size_t count)
{
    return reader->driver->reader_run_now(reader, ops, count);
}

void store_reader_free(struct store_reader *reader)
{
    if (reader)
        reader->driver->reader_free(reader);
}

void store_reader_tell_waits(struct store_reader *reader, void (*waits)(void *context), void *context)
{
    if (!reader)
        return;
    reader->waits = waits;
    reader->waits_context = context;
}

int64_t store_clock_ms(struct store *store)
{
    return store->driver->now ? store->driver->now(store) : store->now_ms(store->context);
}

bool store_shared(const struct store *store)
{
    return store->driver->reader_ended != NULL;
}

unsigned store_writers(const struct store *store)
{
    return store->driver->writers ? store->driver->writers : 1;
}

unsigned store_readers(const struct store *store)
{
    return store->driver->readers ? store->driver->readers : 1;
}

enum status store_reader_ended(struct store_reader *reader, const int64_t *ids, size_t count, int64_t *ended,
                               size_t *ended_count)
{
    assert(reader->driver->reader_ended);
    return reader->driver->reader_ended(reader, ids, count, ended, ended_count);
}

bool store_idle(struct store *store)
{
    return store->driver->idle(store);
}

void store_stats(struct store *store, struct store_stats *out)
{
    store->driver->stats(store, out);
}

enum status store_raise_covers_since(struct store *store, int64_t covers_since_ms)
{
    enum status status = store->driver->raise_covers_since(store, covers_since_ms);
    uint8_t secret[STORE_SECRET_BYTES];
    if (status == STATUS_OK && store->driver->secret) /* what was sealed before is not opened after this */
        status = store->driver->secret(store, true, secret);
    return status;
}

void store_close(struct store *store)
{
    if (store)
        store->driver->close(store);
}

bool store_op_reads(const struct store_op *op)
{
    return (op->kind == STORE_LOOKUP && !op->any_tenant) || op->kind == STORE_READ ||
           op->kind == STORE_OPEN_CALLS || op->kind == STORE_LIST || op->kind == STORE_TASK_LIST ||
           op->kind == STORE_TASK_READ || op->kind == STORE_TASK_COUNTS || op->kind == STORE_AUDIT_LIST ||
           (op->kind == STORE_CLAIM && op->peek);
}

void store_op_reset(struct store_op *op)
{
    op->status = STATUS_OK;
    op->done = false;
    op->more = false;
    op->count = 0;
    memset(&op->rows, 0, sizeof op->rows);
    buffer_clear(&op->memory);
}

void store_op_fini(struct store_op *op)
{
    if (op)
        buffer_fini(&op->memory);
}
