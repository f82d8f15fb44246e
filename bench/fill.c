/* SPDX-License-Identifier: MIT
 *
 * fill: receipts in a store's file, as the gateway writes them, without the calls. Each is claimed and ended through
 * the store's own interface, in large batches and synced once at the end, so that ten million take minutes: nothing is
 * measured here. Their callIds and keys come from a seed (bench/ids.h): a load generator with the same seed can ask
 * for them.
 *
 * With UNCLEAR, so many of the calls end UNKNOWN, evenly spread, with a compensation task each; and the calls are such as
 * people look for: made over the last FILL_DAYS, with references and traces, some FAILED, some on a route that is seldom
 * used. For bench/admin_bench.
 *
 * With COUNT 0 it only makes the sketches of calls that another process wrote.
 *
 * With LIFE_S everything is over so many seconds after it was written: something to purge. The store may be in PostgreSQL.
 *
 * Says on stderr how it goes, and prints one JSON object: rows, seconds, and the bytes on disk.
 */
#include "base/buffer.h"
#include "core/digest.h"
#include "ids.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    REPORTS = 10,              /* lines on stderr while it works */
    BATCH = 2048,              /* calls of one commit: few syncs for many rows */
    IDLE_STEPS = 64,           /* store_idle() calls at the end, which move the log into the file */
    DAY_MS = 24 * 3600 * 1000, /* lives are days from now */
    FILL_DAYS = 10,
    SKETCHES = 64, /* made in one commit */
};
#define ROWS_MAX 1000000000u

/* What the gateway stores of the load generator's calls to the measuring callee, byte for byte but for the times. */
static const char answer_headers[] = "Content-Type: application/json\r\n";
static const char answer_body[] =
    "{\"status\": \"created\", \"order\": {\"state\": \"open\", \"currency\": \"EUR\", "
    "\"amount\": \"12.50\"}, \"message\": \"thank you for your order\"}\n";

struct call {
    char call_id[IDS_LENGTH + 1], key[IDS_LENGTH + 1], ref[24], trace[IDS_LENGTH + 1];
};

/* With UNCLEAR: of how many calls one is unclear, when they begin, and the store's clock. */
static struct {
    uint64_t every, count;
    int64_t begin_ms, clock_ms;
} people;

static bool is_unclear(uint64_t index)
{
    return people.every && index % people.every == people.every / 2;
}

static int64_t life_ms; /* of everything that ended; 0: days */

static struct hasher hasher;
static struct buffer attempts;

/* SQLite's syncs end here, in this program alone; main() syncs the file systems when all is written. */
int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

int fsync(int fd)
{
    (void)fd;
    return 0;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t people_clock(void *context)
{
    (void)context;
    return people.clock_ms;
}

/* What people look for. */
static void dress(struct call_row *row, struct call *call, uint64_t seed, uint64_t index)
{
    snprintf(call->ref, sizeof call->ref, "ref-%" PRIu64, index / 3);
    ids_write(call->trace, seed + 1, index / 4);
    row->business_ref = slice_text(call->ref);
    row->trace_id = slice_text(call->trace);
    if (index % 5000 == 17)
        row->route = slice_text("seldom");
}

static void claim(struct store_op *op, struct call *call, uint64_t seed, uint64_t index, int64_t now)
{
    ids_write(call->call_id, seed, index);
    ids_write(call->key, ~seed, index);
    op->kind = STORE_CLAIM;
    struct call_row *row = &op->row;
    *row = (struct call_row){0};
    row->call_id = slice_text(call->call_id);
    row->key = slice_text(call->key);
    row->route = slice_text("orders");
    row->scope = slice_text("orders /orders");
    row->owner = slice_text("bench/12345/1795966679152");
    row->call_digest = digest_call(&hasher, row->tenant, row->call_id);
    row->operation_digest = digest_operation(&hasher, row->tenant, row->scope, row->key);
    row->has_key = row->has_fingerprint = true;
    for (size_t i = 0; i < sizeof row->fingerprint.bytes; i += sizeof(uint64_t)) {
        uint64_t word = ids_mix(ids_mix(seed ^ index) + i);
        memcpy(row->fingerprint.bytes + i, &word, sizeof word);
    }
    row->fingerprint_version = 1;
    row->state = STATE_PROCESSING;
    row->fence = 1;
    row->attempt_count = 1;
    row->lease_end_ms = now + DAY_MS;
    row->first_attempt_ms = row->window_ms = now;
    row->result_expires_ms = row->key_expires_ms = row->tombstone_expires_ms = INT64_MAX;
    if (people.every)
        dress(row, call, seed, index);
}

static void end(struct store_op *op, int64_t id, int64_t now)
{
    op->kind = STORE_END;
    op->id = id;
    op->fence = 1;
    op->from_states = 1u << STATE_PROCESSING;
    struct call_row *row = &op->row;
    *row = (struct call_row){0};
    row->state = STATE_SUCCESS;
    row->final = row->has_result = row->body_kept = true;
    row->attempt_count = 1;
    row->result_status = 201;
    row->result_headers = slice_text(answer_headers);
    row->result_body = slice_text(answer_body);
    row->attempts = buffer_view(&attempts);
    row->result_expires_ms = row->key_expires_ms = now + (int64_t)7 * DAY_MS;
    row->tombstone_expires_ms = now + (int64_t)30 * DAY_MS;
    if (life_ms)
        row->result_expires_ms = row->key_expires_ms = row->tombstone_expires_ms = now + life_ms;
}

/* The ending of a call that people look for. */
static void end_dressed(struct store_op *op, uint64_t index, int64_t now)
{
    struct call_row *row = &op->row;
    bool unclear = is_unclear(index);
    if (!unclear && index % 1000 != 3)
        return;
    row->state = unclear ? STATE_UNKNOWN : STATE_FAILED;
    row->final = !unclear;
    row->reason = unclear ? REASON_ATTEMPT : REASON_REJECTED;
    row->maybe_ran = unclear;
    row->has_result = row->body_kept = false;
    row->result_status = 0;
    if (unclear)
        row->result_expires_ms = row->key_expires_ms = row->tombstone_expires_ms = INT64_MAX;
    op->make_task = unclear;
    op->task_due_ms = now + (int64_t)30 * DAY_MS;
}

/* One batch of `count` receipts from number `first`; false if the store refused any. */
static bool write_batch(struct store *store, uint64_t seed, uint64_t first, size_t count)
{
    static struct store_op ops[BATCH];
    static struct store_op *list[BATCH];
    static struct call calls[BATCH];
    if (people.every)
        people.clock_ms = people.begin_ms + (int64_t)(first * ((uint64_t)FILL_DAYS * DAY_MS / people.count));
    int64_t now = people.every ? people.clock_ms : now_ms();
    struct attempt attempt = {.n = 1,
                              .started_ms = now,
                              .ended_ms = now + 1,
                              .outcome = OUTCOME_SUCCESS,
                              .status = 201,
                              .sent_bytes = 465,
                              .evidence = slice_text("answered 201")};
    bool good = true;
    buffer_clear(&attempts);
    attempts_encode(&attempts, &attempt, 1);
    for (size_t i = 0; i < count; i++) {
        list[i] = &ops[i];
        claim(list[i], &calls[i], seed, first + i, now);
    }
    store_batch(store, list, count);
    for (size_t i = 0; i < count; i++) {
        good = good && ops[i].status == STATUS_OK && ops[i].done;
        end(list[i], ops[i].rows.call.id, now);
        if (people.every)
            end_dressed(list[i], first + i, now);
    }
    if (good) {
        store_batch(store, list, count);
        for (size_t i = 0; i < count; i++)
            good = good && ops[i].status == STATUS_OK && ops[i].done;
    }
    for (size_t i = 0; i < count; i++) {
        store_op_fini(&ops[i]);
        ops[i] = (struct store_op){0};
    }
    return good;
}

/* A gateway makes the sketches of full blocks as it goes, so a store that has none is not as one leaves it. Not for
 * bench/admin_bench, which measures how long that takes. */
static bool make_sketches(struct store *store)
{
    struct store_op op = {0}, *list[] = {&op};
    bool more = true, good = true;
    while (good && more) {
        op.kind = STORE_SKETCH;
        op.limit = SKETCHES;
        store_batch(store, list, 1);
        good = op.status == STATUS_OK;
        more = op.more;
        store_op_fini(&op);
        op = (struct store_op){0};
    }
    return good;
}

static uint64_t number_or_exit(const char *text, uint64_t max)
{
    char *stop;
    errno = 0;
    unsigned long long n = strtoull(text, &stop, 10);
    if (errno || stop == text || *stop || *text == '-' || n > max) {
        fprintf(stderr, "fill: '%s' is not a number up to %" PRIu64 "\n", text, max);
        exit(64);
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 6) {
        fputs("usage: bench_fill FILE|postgres://... COUNT SEED [UNCLEAR [LIFE_S]]\n", stderr);
        return 64;
    }
    uint64_t count = number_or_exit(argv[2], ROWS_MAX), seed = number_or_exit(argv[3], UINT64_MAX), done = 0;
    uint64_t unclear = argc >= 5 ? number_or_exit(argv[4], count) : 0;
    if (argc == 6)
        life_ms = (int64_t)number_or_exit(argv[5], (uint64_t)30 * DAY_MS / 1000) * 1000;
    struct buffer error = {0}, url = {0};
    struct store *store = NULL;
    int result = 69;
    buffer_format(&url, "%s%s", strstr(argv[1], "://") ? "" : "sqlite:", argv[1]);
    struct store_settings settings = {.url = buffer_cstring(&url), .owner = "bench"};
    if (unclear) {
        people.every = count / unclear;
        people.count = count;
        people.begin_ms = people.clock_ms = now_ms() - (int64_t)FILL_DAYS * DAY_MS;
        settings.now_ms = people_clock;
    }
    if (hasher_init(&hasher) != STATUS_OK) {
        fputs("fill: not enough memory\n", stderr);
        goto done;
    }
    if (store_open(&store, &settings, &error) != STATUS_OK) {
        fprintf(stderr, "fill: %s\n", buffer_cstring(&error));
        goto done;
    }
    double began = seconds(), since = began;
    uint64_t told = 0;
    while (done < count) {
        size_t batch = count - done < BATCH ? (size_t)(count - done) : BATCH;
        if (!write_batch(store, seed, done, batch)) {
            fprintf(stderr, "fill: the store refused a row after %" PRIu64 "\n", done);
            goto done;
        }
        done += batch;
        if (done - told >= count / REPORTS) {
            double now = seconds();
            fprintf(stderr, "  %" PRIu64 " receipts, %.0f a second\n", done,
                    (double)(done - told) / (now - since));
            told = done;
            since = now;
        }
    }
    if (!people.every && !make_sketches(store)) {
        fputs("fill: the store took no sketches\n", stderr);
        goto done;
    }
    for (int i = 0; i < IDLE_STEPS; i++)
        store_idle(store);
    sync();
    struct store_stats stats;
    store_stats(store, &stats);
    printf("{\"rows\": %" PRId64 ", \"seconds\": %.2f, \"bytes_on_disk\": %" PRId64 "}\n", stats.rows,
           seconds() - began, stats.bytes_on_disk);
    result = 0;
done:
    store_close(store);
    hasher_fini(&hasher);
    buffer_fini(&attempts);
    buffer_fini(&url);
    buffer_fini(&error);
    return result;
}
