/* SPDX-License-Identifier: MIT
 *
 * Who hears of a batch that has begun and is not on disk: nobody. A reader that has seen such a row waits; one that reads
 * an older row, or finds none, does not.
 */
#include "core/digest.h"
#include "scratch.h"
#include "store/store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

#include <cmocka.h>

#define LOOKS   200 /* at a reader that must not answer, one each millisecond */
#define WAIT_MS 10000

static struct hasher hasher;
static _Atomic int64_t now_ms = 1710000000000;
static struct store *store;

static int64_t test_clock(void *context)
{
    (void)context;
    return now_ms;
}

static int begin(void **state)
{
    (void)state;
    char url[200];
    struct buffer error = {0};
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("sync.db"));
    struct store_settings settings = {.url = url, .owner = "test", .now_ms = test_clock};
    enum status status = store_open(&store, &settings, &error);
    buffer_fini(&error);
    return status == STATUS_OK ? 0 : -1;
}

static int finish(void **state)
{
    (void)state;
    store_close(store);
    scratch_remove("sync.db");
    return 0;
}

static void ask(struct store_op *op, enum store_kind kind, const char *call_id)
{
    store_op_fini(op);
    *op = (struct store_op){.kind = kind};
    op->row.tenant = slice_text("t");
    op->row.call_id = slice_text(call_id);
    op->row.call_digest = digest_call(&hasher, op->row.tenant, op->row.call_id);
    op->row.state = STATE_PROCESSING;
    op->row.fence = 1;
}

struct look {
    pthread_t thread;
    struct store_reader *reader;
    struct store_op op;
    atomic_bool answered;
};

static void *read_one(void *argument)
{
    struct look *l = argument;
    store_reader_run(l->reader, &l->op);
    atomic_store(&l->answered, true);
    return NULL;
}

static void look_begin(struct look *l, const char *call_id)
{
    struct buffer error = {0};
    memset(l, 0, sizeof *l);
    assert_int_equal(store_reader_open(&l->reader, store, &error), STATUS_OK);
    ask(&l->op, STORE_LOOKUP, call_id);
    assert_int_equal(pthread_create(&l->thread, NULL, read_one, l), 0);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void look_end(struct look *l)
{
    for (int i = 0; i < WAIT_MS && !atomic_load(&l->answered); i++)
        nap();
    assert_true(atomic_load(&l->answered));
    pthread_join(l->thread, NULL);
    store_reader_free(l->reader);
}

static void a_reader_tells_of_nothing_that_is_not_on_disk(void **state)
{
    (void)state;
    struct store_op old = {0}, fresh = {0}, *ops[] = {&old};
    struct look waits, older, none;
    ask(&old, STORE_CLAIM, "old");
    store_batch(store, ops, 1);
    assert_true(old.done);
    now_ms += 1000;
    ask(&fresh, STORE_CLAIM, "fresh");
    ops[0] = &fresh;
    assert_int_equal(store_batch_begin(store, ops, 1), BATCH_BEGUN);

    look_begin(&waits, "fresh");
    look_begin(&older, "old");
    look_end(&older);
    assert_true(older.op.rows.call.id == old.rows.call.id);
    look_begin(&none, "nobody");
    look_end(&none);
    assert_int_equal(none.op.rows.call.id, 0);
    for (int i = 0; i < LOOKS; i++, nap())
        assert_false(atomic_load(&waits.answered));
    store_batch_sync(store);
    store_batch_end(store);
    assert_int_equal(fresh.status, STATUS_OK);
    assert_true(fresh.done);
    look_end(&waits);
    assert_int_equal(waits.op.status, STATUS_OK);
    assert_true(waits.op.rows.call.id == fresh.rows.call.id);
    store_op_fini(&old), store_op_fini(&fresh);
    store_op_fini(&waits.op), store_op_fini(&older.op), store_op_fini(&none.op);
}

static void a_batch_sees_the_one_before_it_and_ends_after_it(void **state)
{
    (void)state;
    struct store_op claim = {0}, again = {0}, end = {0}, look = {0};
    struct store_op *first[] = {&claim}, *second[] = {&again, &end}, *third[] = {&look};
    ask(&claim, STORE_CLAIM, "A");
    assert_int_equal(store_batch_begin(store, first, 1), BATCH_BEGUN);
    store_batch_sync(store);
    ask(&again, STORE_CLAIM, "A");
    ask(&end, STORE_END, "");
    end.id = 1, end.fence = 1;
    end.from_states = 1u << STATE_PROCESSING;
    end.row.state = STATE_SUCCESS;
    end.row.final = true;
    assert_int_equal(store_batch_begin(store, second, 2), BATCH_BEGUN);
    store_batch_end(store);
    assert_true(claim.done && claim.rows.call.id == 1);
    store_batch_end(store);
    assert_false(again.done);
    assert_int_equal(again.rows.call.state, STATE_PROCESSING); /* as it stood when its turn came */
    assert_true(end.done);

    /* Only looks are no batch of their own. */
    ask(&look, STORE_LOOKUP, "A");
    assert_int_equal(store_batch_begin(store, third, 1), BATCH_AGAIN);
    store_batch(store, third, 1);
    assert_int_equal(look.rows.call.state, STATE_SUCCESS);
    store_op_fini(&claim), store_op_fini(&again), store_op_fini(&end), store_op_fini(&look);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_reader_tells_of_nothing_that_is_not_on_disk, begin, finish),
        cmocka_unit_test_setup_teardown(a_batch_sees_the_one_before_it_and_ends_after_it, begin, finish),
    };
    scratch_make();
    if (hasher_init(&hasher) != STATUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hasher_fini(&hasher);
    scratch_clean();
    return failed;
}
