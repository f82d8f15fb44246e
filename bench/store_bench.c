/* SPDX-License-Identifier: MIT
 *
 * How many receipts a second the store takes, in process: claims and endings under random callIds and keys, every
 * batch synced. `store_bench FILE [CALLS [STORED]]` prints one line for each batch size; STORED receipts are written
 * first, to see what growth costs.
 */
#include "base/prng.h"
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_MAX  256
#define BODY_BYTES 200

struct call {
    char call_id[40], key[40];
};

static struct prng prng;
static char body[BODY_BYTES];

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void name(char text[40], struct digest *digest)
{
    uint64_t words[2] = {prng_next(&prng), prng_next(&prng)};
    memcpy(digest->bytes, words, sizeof words);
    snprintf(text, 40, "%016" PRIx64 "%016" PRIx64, words[0], words[1]);
}

static void claim(struct store_op *op, struct call *call)
{
    op->kind = STORE_CLAIM;
    op->want_suspect = true;
    struct call_row *row = &op->row;
    memset(row, 0, sizeof *row);
    name(call->call_id, &row->call_digest);
    name(call->key, &row->operation_digest);
    row->has_key = row->has_fingerprint = true;
    for (size_t i = 0; i < sizeof row->fingerprint.bytes; i++)
        row->fingerprint.bytes[i] = (uint8_t)prng_next(&prng);
    row->fingerprint_version = 1;
    row->tenant = slice_text("tenant-7");
    row->route = row->scope = slice_text("orders");
    row->call_id = slice_text(call->call_id);
    row->key = slice_text(call->key);
    row->business_ref = slice_text("order-100042");
    row->trace_id = slice_text("4bf92f3577b34da6a3ce929d0e0e4736");
    row->owner = slice_text("node07:1234:1710000000000");
    row->state = STATE_PROCESSING;
    row->fence = 1;
    row->attempt_count = 1;
    row->lease_end_ms = 1800000000000;
    row->first_attempt_ms = 1710000000000;
}

static void end(struct store_op *op, int64_t id)
{
    op->kind = STORE_END;
    op->id = id;
    op->fence = 1;
    op->from_states = 1u << STATE_PROCESSING;
    struct call_row *row = &op->row;
    memset(row, 0, sizeof *row);
    row->state = STATE_SUCCESS;
    row->final = row->has_result = row->body_kept = true;
    row->result_status = 201;
    row->result_headers = slice_text("content-type: application/json\r\nlocation: /orders/100042\r\n");
    row->result_body = slice_of(body, sizeof body);
    row->attempts =
        slice_text("[{\"n\":1,\"started_ms\":1710000000000,\"ended_ms\":1710000000004,\"outcome\":1,"
                   "\"status\":201,\"sent_bytes\":412,\"wait_before_ms\":0,\"evidence\":\"\"}]");
    row->result_expires_ms = 1900000000000;
    row->key_expires_ms = 1900000000000;
    row->tombstone_expires_ms = 1950000000000;
}

static void run(struct store *store, size_t batch, size_t calls, bool report)
{
    static struct store_op ops[BATCH_MAX];
    static struct call names[BATCH_MAX];
    struct store_op *list[BATCH_MAX];
    double claiming = 0, ending = 0, slowest = 0;
    int64_t ids[BATCH_MAX];
    for (size_t done = 0; done < calls; done += batch) {
        for (size_t i = 0; i < batch; i++) {
            list[i] = &ops[i];
            claim(list[i], &names[i]);
        }
        double began = seconds();
        store_batch(store, list, batch);
        double took = seconds() - began;
        claiming += took;
        slowest = took > slowest ? took : slowest;
        for (size_t i = 0; i < batch; i++) {
            assert(ops[i].status == STATUS_OK && ops[i].done);
            ids[i] = ops[i].rows.call.id;
            end(list[i], ids[i]);
        }
        began = seconds();
        store_batch(store, list, batch);
        took = seconds() - began;
        ending += took;
        slowest = took > slowest ? took : slowest;
        for (size_t i = 0; i < batch; i++)
            assert(ops[i].status == STATUS_OK && ops[i].done);
    }
    for (size_t i = 0; i < BATCH_MAX; i++)
        store_op_fini(&ops[i]), ops[i] = (struct store_op){0};
    if (report)
        printf("batch %3zu: %7.0f claims/s, %7.0f endings/s, %7.0f calls/s, slowest commit %5.1f ms\n", batch,
               (double)calls / claiming, (double)calls / ending, (double)calls / (claiming + ending),
               slowest * 1000);
}

int main(int argc, char **argv)
{
    struct buffer error = {0}, url = {0};
    struct store *store;
    if (argc < 2) {
        fprintf(stderr, "store_bench FILE [CALLS [STORED]]\n");
        return 64;
    }
    size_t calls = argc > 2 ? strtoul(argv[2], NULL, 10) : 20000;
    size_t stored = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    prng_seed(&prng, (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec);
    memset(body, 'b', sizeof body);
    buffer_format(&url, "sqlite:%s", argv[1]);
    struct store_settings settings = {.url = buffer_cstring(&url), .owner = "bench"};
    double began = seconds();
    if (store_open(&store, &settings, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", buffer_cstring(&error));
        return 69;
    }
    printf("opened in %.1f ms\n", (seconds() - began) * 1000);
    if (stored)
        run(store, 256, stored, false);
    static const size_t sizes[] = {1, 16, 64, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run(store, sizes[i], sizes[i] == 1 ? calls / 10 + 1 : calls / sizes[i] * sizes[i], true);
    struct store_stats stats;
    store_stats(store, &stats);
    printf("%" PRId64 " receipts, %.0f bytes each on disk\n", stats.rows,
           (double)stats.bytes_on_disk / (double)stats.rows);
    store_close(store);
    buffer_fini(&url);
    buffer_fini(&error);
    return 0;
}
