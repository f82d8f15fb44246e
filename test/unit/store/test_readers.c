/* SPDX-License-Identifier: MIT
 *
 * The threads that read, over a store of this file's own whose operations take as long as the test wants: one runs at a
 * time, another while it waits for a disk, and everything is given back once, also at the stop.
 */
#include "scratch.h"
#include "store/driver.h"
#include "store/readers.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

#include <cmocka.h>

enum {
    QUICK,
    SLOW,
    WAITS
}; /* an operation's `fence`: returns at once; when released; says that it waits, and the same */

#define OPS     64
#define LOOKS   50    /* at what must not happen, one each millisecond */
#define WAIT_MS 10000 /* a bound, never a wait */

static atomic_int opened, opening, inside, released, refuse, gate;
static struct store_op ops[OPS];
static atomic_int given[OPS];
static atomic_int given_all;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool reaches(atomic_int *number, int wanted)
{
    for (int i = 0; i < WAIT_MS && atomic_load(number) < wanted; i++)
        nap();
    return atomic_load(number) == wanted;
}

static enum status fake_open(struct store_reader **out, struct store *store, unsigned share,
                             struct buffer *error)
{
    (void)share, (void)error;
    *out = NULL;
    if (atomic_load(&refuse) && atomic_load(&opened)) {
        atomic_fetch_add(&opening, 1);
        while (atomic_load(&gate))
            nap();
        return STATUS_IO;
    }
    *out = calloc(1, sizeof **out);
    (*out)->driver = store->driver;
    atomic_fetch_add(&opened, 1);
    return STATUS_OK;
}

static void fake_run(struct store_reader *reader, struct store_op *op)
{
    if (op->fence == QUICK)
        return;
    if (op->fence == WAITS) {
        reader->waits(reader->waits_context);
        reader->waits(reader->waits_context); /* as often as pages are missing */
    }
    atomic_fetch_add(&inside, 1);
    while (!atomic_load(&released))
        nap();
}

static void fake_free(struct store_reader *reader)
{
    free(reader);
}

static const struct store_driver fake_driver = {
    .reader_open = fake_open, .reader_run = fake_run, .reader_free = fake_free};
static struct store fake = {.driver = &fake_driver};
static struct readers *readers;

static void give_back(void *context, struct store_op **some, size_t count)
{
    assert_ptr_equal(context, &fake);
    for (size_t i = 0; i < count; i++) {
        atomic_fetch_add(&given[some[i] - ops], 1);
        atomic_fetch_add(&given_all, 1);
    }
}

static void start(unsigned at_once)
{
    struct buffer error = {0};
    struct readers_settings settings = {.at_once = at_once, .give_back = give_back, .context = &fake};
    opened = opening = inside = released = refuse = gate = given_all = 0;
    for (int i = 0; i < OPS; i++) {
        ops[i] = (struct store_op){.kind = STORE_READ, .fence = QUICK};
        atomic_store(&given[i], 0);
    }
    assert_int_equal(readers_start(&readers, &fake, &settings, &error), STATUS_OK);
    buffer_fini(&error);
}

static void submit(int from, int count, int how)
{
    struct list list;
    list_init(&list);
    for (int i = from; i < from + count; i++) {
        ops[i].fence = how;
        list_push_back(&list, &ops[i].link);
    }
    readers_submit(readers, &list);
    assert_true(list_empty(&list));
}

static void stop(int expected)
{
    readers_stop(readers);
    for (int i = 0; i < expected; i++)
        assert_int_equal(atomic_load(&given[i]), 1);
    assert_int_equal(atomic_load(&given_all), expected);
}

static void one_that_is_busy_is_waited_for(void **state)
{
    (void)state;
    start(1);
    submit(0, 1, SLOW);
    assert_true(reaches(&inside, 1));
    submit(1, 10, QUICK);
    for (int i = 0; i < LOOKS; i++, nap())
        assert_int_equal(atomic_load(&given_all), 0);
    atomic_store(&released, 1);
    assert_true(reaches(&given_all, 11));
    assert_int_equal(atomic_load(&opened), 1);
    stop(11);
}

static void one_that_waits_for_the_disk_is_not(void **state)
{
    (void)state;
    start(1);
    submit(0, 1, WAITS);
    assert_true(reaches(&inside, 1));
    submit(1, 10, QUICK);
    assert_true(reaches(&given_all, 10));
    /* And as many may wait as there are threads. */
    for (int i = 1; i < READERS_SPARE; i++) {
        submit(10 + i, 1, WAITS);
        assert_true(reaches(&inside, i + 1));
    }
    submit(10 + READERS_SPARE, 10, QUICK);
    assert_true(reaches(&given_all, 20));
    assert_int_equal(atomic_load(&opened), 1 + READERS_SPARE);
    atomic_store(&released, 1);
    assert_true(reaches(&given_all, 20 + READERS_SPARE));
    /* The disk has come back: the spare ones sleep again. */
    atomic_store(&released, 0);
    atomic_store(&inside, 0);
    submit(20 + READERS_SPARE, 1, SLOW);
    assert_true(reaches(&inside, 1));
    submit(21 + READERS_SPARE, 10, QUICK);
    for (int i = 0; i < LOOKS; i++, nap())
        assert_int_equal(atomic_load(&given_all), 20 + READERS_SPARE);
    atomic_store(&released, 1);
    assert_true(reaches(&given_all, 31 + READERS_SPARE));
    stop(31 + READERS_SPARE);
}

static void as_many_run_at_once_as_the_store_wants(void **state)
{
    (void)state;
    start(3);
    for (int i = 0; i < 3; i++) {
        submit(i, 1, SLOW);
        assert_true(reaches(&inside, i + 1));
    }
    submit(3, 5, QUICK);
    for (int i = 0; i < LOOKS; i++, nap())
        assert_int_equal(atomic_load(&given_all), 0);
    atomic_store(&released, 1);
    assert_true(reaches(&given_all, 8));
    stop(8);
}

static void a_spare_one_that_cannot_be_opened_does_no_harm(void **state)
{
    (void)state;
    start(1);
    atomic_store(&refuse, 1);
    submit(0, 1, WAITS);
    assert_true(reaches(&inside, 1));
    submit(1, 10, QUICK);
    for (int i = 0; i < LOOKS; i++, nap())
        assert_int_equal(atomic_load(&given_all), 0);
    atomic_store(&released, 1);
    assert_true(reaches(&given_all, 11));
    stop(11);
}

/* It is counted as running while it tries: what comes then, with the first one asleep, must not lie there. */
static void what_came_while_it_was_tried_is_run(void **state)
{
    (void)state;
    start(1);
    atomic_store(&refuse, 1);
    atomic_store(&gate, 1);
    submit(0, 1, WAITS);
    assert_true(reaches(&inside, 1));
    submit(1, 1, QUICK);
    assert_true(reaches(&opening, 1));
    atomic_store(&released, 1);
    assert_true(reaches(&given_all, 2));
    for (int i = 0; i < LOOKS; i++, nap())
        ; /* the first one goes to sleep; if it does not, the test shows less and does not fail */
    submit(2, 1, QUICK);
    atomic_store(&gate, 0);
    assert_true(reaches(&given_all, 3));
    stop(3);
}

static void the_stop_runs_what_is_queued(void **state)
{
    (void)state;
    start(1);
    submit(0, 1, SLOW);
    assert_true(reaches(&inside, 1));
    submit(1, OPS - 1, QUICK);
    atomic_store(&released, 1);
    stop(OPS);
    start(1);
    stop(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_busy_is_waited_for),
        cmocka_unit_test(one_that_waits_for_the_disk_is_not),
        cmocka_unit_test(as_many_run_at_once_as_the_store_wants),
        cmocka_unit_test(a_spare_one_that_cannot_be_opened_does_no_harm),
        cmocka_unit_test(what_came_while_it_was_tried_is_run),
        cmocka_unit_test(the_stop_runs_what_is_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
