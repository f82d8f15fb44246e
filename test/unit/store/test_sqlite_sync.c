/* SPDX-License-Identifier: MIT
 *
 * Who hears of a batch that has begun and is not on disk: nobody. A reader that has seen such a row waits; one that reads
 * an older row, or finds none, does not. And what follows a sync that fails and is not told of twice, as on Linux: nothing
 * that rests on it is told.
 */
#include "core/digest.h"
#include "number.h"
#include "store/sqlite.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#define LOOKS   200 /* at a reader that must not answer, one each millisecond */
#define WAIT_MS 10000

/* Which sync of the main thread from now on fails, once; 0: none. */
static atomic_int failing;
static pthread_t main_thread;

static int sync_or_fail(int fd, long call)
{
    if (pthread_equal(pthread_self(), main_thread) && failing && --failing == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, fd);
}

/* SQLite's syncs end here, in this program alone. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    return sync_or_fail(fd, SYS_fdatasync);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    return sync_or_fail(fd, SYS_fsync);
}

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

static void begin_two(struct store_op *a, struct store_op *b)
{
    static struct store_op *first[1], *second[1];
    ask(a, STORE_CLAIM, "A");
    ask(b, STORE_CLAIM, "B");
    first[0] = a;
    second[0] = b;
    assert_int_equal(store_batch_begin(store, first, 1), BATCH_BEGUN);
    assert_int_equal(store_batch_begin(store, second, 1), BATCH_BEGUN);
}

static void expect_works_on(const char *call_id)
{
    struct store_op op = {0}, *list[] = {&op};
    ask(&op, STORE_CLAIM, call_id);
    store_batch(store, list, 1);
    assert_true(op.status == STATUS_OK && op.done);
    assert_false(((struct sqlite_store *)store)->syncer.doubt);
    store_op_fini(&op);
}

static void a_batch_lost_with_the_one_before_it_is_not_synced_again(void **state)
{
    (void)state;
    struct store_op a = {0}, b = {0};
    begin_two(&a, &b);
    failing = 1;
    store_batch_end(store);
    assert_int_equal(failing, 0);
    store_batch_sync(store); /* as a writer does while the next whole batch waits */
    store_batch_end(store);
    assert_int_equal(a.status, STATUS_UNKNOWN);
    assert_int_equal(b.status, STATUS_UNKNOWN);
    expect_works_on("C");
    store_op_fini(&a), store_op_fini(&b);
}

/* The log is moved between two batches, and its sync is the one that fails. */
static void a_failure_told_to_the_move_of_the_log_is_the_batchs_too(void **state)
{
    (void)state;
    struct sqlite_store *s = (struct sqlite_store *)store;
    struct store_op a = {0}, b = {0}, *list[] = {&a};
    char name[24];
    for (int i = 0; !s->checkpointer.asked; i++) {
        snprintf(name, sizeof name, "n%d", i);
        ask(&a, STORE_CLAIM, name);
        store_batch(store, list, 1);
    }
    for (int i = 0, state_now = 1; state_now == 1 && i < WAIT_MS; i++) { /* 1: the thread still moves pages */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&s->checkpointer.lock);
        state_now = s->checkpointer.state;
        pthread_mutex_unlock(&s->checkpointer.lock);
    }
    begin_two(&a, &b);
    failing = 2; /* the first is A's own */
    store_batch_end(store);
    assert_int_equal(failing, 0);
    assert_int_equal(a.status, STATUS_OK);
    store_batch_end(store);
    assert_int_equal(b.status, STATUS_OK);
    assert_int_equal(number_in("sync.db", "SELECT value FROM meta WHERE name = 'pins'"),
                     1); /* it was looked up */
    assert_int_equal(s->move_rc, SQLITE_OK);
    expect_works_on("C");
    store_op_fini(&a), store_op_fini(&b);
}

static void what_was_raised_is_told_when_it_is_on_disk(void **state)
{
    (void)state;
    failing = 1;
    assert_int_equal(store_raise_covers_since(store, 1710000000123), STATUS_IO);
    assert_int_equal(failing, 0);
    assert_true(((struct sqlite_store *)store)->syncer.doubt);
    assert_int_equal(store_raise_covers_since(store, 1710000000123), STATUS_OK);
    assert_false(((struct sqlite_store *)store)->syncer.doubt);
}

/* While the log is in doubt, what was not found may be in it: also for one that is asked about beside others. */
static void nothing_is_denied_in_doubt(void **state)
{
    (void)state;
    struct sqlite_store *s = (struct sqlite_store *)store;
    struct store_op old = {0}, none = {0}, *list[] = {&old, &none};
    struct store_reader *now, *patient;
    struct buffer error = {0};
    ask(&old, STORE_CLAIM, "old");
    store_batch(store, list, 1);
    assert_int_equal(store_reader_open(&patient, store, &error), STATUS_OK);
    assert_int_equal(store_reader_open_now(&now, store, 1, &error), STATUS_OK);
    sync_doubt(s, now_ms + 1000);
    for (int first = 0; first < 2; first++) {
        ask(&old, STORE_LOOKUP, "old");
        ask(&none, STORE_LOOKUP, "nobody");
        list[first] = &none, list[1 - first] = &old;
        assert_int_equal(store_reader_run_now(now, list, 2), 0);
        store_reader_run_all(patient, list, 2);
        assert_int_equal(none.status, STATUS_IO);
        assert_int_equal(old.status, STATUS_OK);
        assert_true(old.rows.call.id == 1);
        assert_int_equal(store_reader_run_now(now, &list[1 - first], 1), 1);
    }
    s->syncer.doubt = false;
    list[0] = &none, list[1] = &old;
    assert_int_equal(store_reader_run_now(now, list, 2), 2);
    assert_int_equal(none.rows.call.id, 0);
    store_reader_free(now);
    store_reader_free(patient);
    store_op_fini(&old), store_op_fini(&none);
}

int main(void)
{
    main_thread = pthread_self();
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_reader_tells_of_nothing_that_is_not_on_disk, begin, finish),
        cmocka_unit_test_setup_teardown(a_batch_sees_the_one_before_it_and_ends_after_it, begin, finish),
        cmocka_unit_test_setup_teardown(a_batch_lost_with_the_one_before_it_is_not_synced_again, begin,
                                        finish),
        cmocka_unit_test_setup_teardown(a_failure_told_to_the_move_of_the_log_is_the_batchs_too, begin,
                                        finish),
        cmocka_unit_test_setup_teardown(what_was_raised_is_told_when_it_is_on_disk, begin, finish),
        cmocka_unit_test_setup_teardown(nothing_is_denied_in_doubt, begin, finish),
    };
    scratch_make();
    if (hasher_init(&hasher) != STATUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hasher_fini(&hasher);
    scratch_clean();
    return failed;
}
