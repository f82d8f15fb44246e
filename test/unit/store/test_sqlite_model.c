/* SPDX-License-Identifier: MIT
 *
 * Random operations beside a model of a few arrays: after each the store must say what the model says, and now and then
 * every call and key is compared. Restarts, purges and a tail of a few identities are part of it. A failing run prints
 * its seed; SAMEKEY_SEED plays it again.
 */
#include "base/prng.h"
#include "conformance.c"
#include "scratch.h"

#include <time.h>

#define CALLS 40
#define KEYS  7
#define STEPS 6000
#define RUNS  4

static size_t tail_entries;

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("model.db"));
    struct store_settings settings = {
        .url = url, .owner = owner, .now_ms = test_clock, .tail_entries = tail_entries};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("model.db");
}

struct model_call {
    int64_t id, fence; /* id 0: no row */
    enum call_state state;
    bool final, keyed;
    int original;  /* of an attached one: the call it shares, else -1 */
    int64_t ended; /* its lives begin */
    char name[16], body[24];
};

static struct model_call calls[CALLS];
static int slot[KEYS]; /* the call that holds the key, or -1 */
static char keys[KEYS][16];
static struct prng prng;
static uint64_t first_seed; /* another one each time; printed */

static int key_of(int i)
{
    return i % KEYS;
}

static int below(int bound)
{
    return (int)prng_below(&prng, (uint64_t)bound);
}

static void forget_call(int i)
{
    if (slot[key_of(i)] == i)
        slot[key_of(i)] = -1;
    calls[i].id = 0;
}

static void born(int i, const struct store_op *op, enum call_state state, bool final)
{
    struct model_call *c = &calls[i];
    c->id = op->rows.call.id;
    c->fence = op->rows.call.fence;
    c->state = state;
    c->final = final;
    c->keyed = true;
    c->original = -1;
    c->ended = now_ms;
    c->body[0] = '\0';
    assert_true(c->id != 0);
}

static void try_claim(int i)
{
    struct store_op op = {0};
    ask_claim(&op, calls[i].name, keys[key_of(i)], "f1");
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    int holder = slot[key_of(i)];
    assert_int_equal(op.done, !calls[i].id && holder < 0);
    if (op.done)
        slot[key_of(i)] = i, born(i, &op, STATE_PROCESSING, false);
    else
        assert_int_equal(op.rows.holder.id, holder < 0 ? 0 : calls[holder].id);
    store_op_fini(&op);
}

static void try_end(int i)
{
    static const enum call_state ends[] = {STATE_SUCCESS, STATE_FAILED, STATE_FAILED, STATE_UNKNOWN};
    struct model_call *c = &calls[i];
    struct store_op op = {0};
    if (!c->id)
        return;
    enum call_state state = ends[below(4)];
    int64_t fence = below(8) ? c->fence : c->fence - 1;
    char body[24];
    snprintf(body, sizeof body, "%s@%d", c->name, below(1000));
    ask_end(&op, c->id, fence, state, body);
    op.row.final = state == STATE_SUCCESS || (state == STATE_FAILED && below(2));
    run(&op);
    bool may = c->state == STATE_PROCESSING && fence == c->fence;
    assert_int_equal(op.done, may);
    assert_int_equal(op.status, may ? STATUS_OK : STATUS_CONFLICT);
    if (may) {
        c->state = state;
        c->final = op.row.final;
        c->ended = now_ms;
        memcpy(c->body, body, sizeof body);
    }
    store_op_fini(&op);
}

static void try_take(int i)
{
    struct model_call *c = &calls[i];
    struct store_op op = {0};
    int holder = slot[key_of(i)];
    ask_take(&op, c->name, keys[key_of(i)], "f1");
    op.expect_call_id = c->id;
    op.expect_call_fence = below(8) ? c->fence : c->fence + 1;
    op.expect_holder_id = holder < 0 ? 0 : calls[holder].id;
    op.expect_holder_fence = holder < 0 ? 0 : calls[holder].fence;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    bool call_open = !c->id || (!c->final && c->fence == op.expect_call_fence && c->keyed &&
                                (c->state == STATE_FAILED || c->state == STATE_UNKNOWN));
    bool slot_free = holder < 0 || holder == i || calls[holder].state == STATE_FAILED;
    assert_int_equal(op.done, call_open && slot_free);
    if (op.done && !c->id)
        born(i, &op, STATE_PROCESSING, false);
    else if (op.done)
        c->state = STATE_PROCESSING, c->fence++, c->body[0] = '\0';
    if (op.done)
        slot[key_of(i)] = i;
    store_op_fini(&op);
}

static void try_attach(int i)
{
    struct model_call *c = &calls[i];
    struct store_op op = {0};
    int holder = slot[key_of(i)];
    ask_claim(&op, c->name, keys[key_of(i)], "f1");
    op.kind = STORE_ATTACH;
    op.expect_call_id = c->id;
    op.expect_call_fence = c->fence;
    op.expect_holder_id = holder < 0 ? 0 : calls[holder].id;
    run(&op);
    bool may = holder >= 0 && holder != i && calls[holder].state == STATE_SUCCESS &&
               (!c->id || (c->state == STATE_FAILED && !c->final));
    assert_int_equal(op.done, may);
    if (may) {
        int64_t fence = c->id ? c->fence + 1 : op.rows.call.fence;
        born(i, &op, STATE_SUCCESS, true);
        c->fence = fence;
        c->original = holder;
        c->ended = calls[holder].ended;
        memcpy(c->body, calls[holder].body, sizeof c->body);
    }
    store_op_fini(&op);
}

static void try_fence(int i)
{
    struct model_call *c = &calls[i];
    struct store_op op = {0};
    ask_fence(&op, c->name);
    bool open = c->state == STATE_FAILED && !c->final;
    assert_int_equal(op.done, !c->id || open);
    if (!c->id) {
        born(i, &op, STATE_FAILED, true);
        c->keyed = false;
    } else if (open) {
        c->final = true, c->fence++;
    }
    if (op.done)
        c->ended = now_ms;
    store_op_fini(&op);
}

static void try_purge(void)
{
    now_ms += below(LIFE_MS);
    while (purge(1 + (size_t)below(50)) > 0)
        ;
    struct store_op op = {.kind = STORE_PURGE, .limit = 1000};
    do
        run(&op);
    while (op.more);
    store_op_fini(&op);
    for (int i = 0; i < CALLS; i++) {
        struct model_call *c = &calls[i];
        if (c->id && c->state == STATE_FAILED && !c->final && c->ended + LIFE_MS <= now_ms)
            c->final = true, c->fence++;
        if (c->id && c->final && c->ended + 3 * LIFE_MS <= now_ms)
            forget_call(i);
        else if (c->id && c->final && c->ended + LIFE_MS <= now_ms)
            c->body[0] = '\0';
        else if (c->id && c->state == STATE_FAILED && c->ended + LIFE_MS <= now_ms)
            c->body[0] = '\0';
    }
}

static void compare(void)
{
    struct store_op op = {0};
    for (int i = 0; i < CALLS; i++) {
        const struct model_call *c = &calls[i];
        look(&op, c->name);
        const struct call_row *row = &op.rows.call;
        assert_int_equal(row->id, c->id);
        if (!c->id)
            continue;
        assert_int_equal(row->state, c->state);
        assert_int_equal(row->final, c->final);
        assert_int_equal(row->fence, c->fence);
        if (c->body[0])
            EXPECT_TEXT(row->result_body, c->body);
        else
            assert_int_equal(row->result_body.len, 0);
        int holder = slot[key_of(i)];
        if (c->keyed)
            assert_int_equal(op.rows.holder.id, holder < 0 ? 0 : calls[holder].id);
    }
    /* Every call without an ending is listed, in order, and nothing else. */
    op.kind = STORE_OPEN_CALLS;
    op.id = 0;
    op.limit = STORE_IDS_MAX;
    memset(&op.row, 0, sizeof op.row);
    run(&op);
    size_t unended = 0;
    for (int i = 0; i < CALLS; i++)
        unended += calls[i].id && (calls[i].state == STATE_PROCESSING || calls[i].state == STATE_UNKNOWN);
    assert_int_equal(op.count, unended);
    for (size_t i = 1; i < op.count; i++)
        assert_true(op.expired[i - 1] < op.expired[i]);
    store_op_fini(&op);
}

static void the_store_does_what_the_model_says(void **state)
{
    (void)state;
    const char *given = getenv("SAMEKEY_SEED");
    for (int round = 0; round < RUNS; round++) {
        static const size_t tails[] = {1, 3, 16, 0};
        uint64_t seed = given ? strtoull(given, NULL, 10) : first_seed + (uint64_t)round;
        now_ms = 1710000000000 + (int64_t)seed;
        print_message("    seed %" PRIu64 "\n", seed);
        tail_entries = tails[seed % 4];
        prng_seed(&prng, seed);
        bench_clean();
        open_as("first");
        for (int i = 0; i < CALLS; i++) {
            memset(&calls[i], 0, sizeof calls[i]);
            snprintf(calls[i].name, sizeof calls[i].name, "call-%d", i);
        }
        for (int k = 0; k < KEYS; k++) {
            slot[k] = -1;
            snprintf(keys[k], sizeof keys[k], "key-%d", k);
        }
        for (int step = 0; step < STEPS; step++) {
            int i = below(CALLS);
            now_ms += below(50);
            switch (below(16)) {
            case 0:
            case 1:
            case 2:
            case 3:
                try_claim(i);
                break;
            case 4:
            case 5:
            case 6:
            case 7:
            case 8:
                try_end(i);
                break;
            case 9:
            case 10:
            case 11:
                try_take(i);
                break;
            case 12:
            case 13:
                try_attach(i);
                break;
            case 14:
                try_fence(i);
                break;
            default:
                if (below(2) == 0)
                    try_purge();
                else if (below(3) == 0)
                    reopen_as("first");
            }
            if (step % 25 == 0)
                compare();
        }
        compare();
        store_close(store);
        store = NULL;
    }
    bench_clean();
}

static int group_begin(void **state)
{
    (void)state;
    (void)conformance;
    return hasher_init(&hasher) == STATUS_OK ? 0 : -1;
}

static int group_end(void **state)
{
    (void)state;
    hasher_fini(&hasher);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(the_store_does_what_the_model_says)};
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    first_seed = (uint64_t)at.tv_nsec % 1000000;
    scratch_make();
    int failed = cmocka_run_group_tests(tests, group_begin, group_end);
    bench_clean();
    scratch_clean();
    return failed;
}
