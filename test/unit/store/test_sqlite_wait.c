/* SPDX-License-Identifier: MIT
 *
 * A look that must not wait: answered from what the system has in memory, refused where a page would have to come from the
 * disk or a row is not on disk yet; and one that may wait says when it does. The page cache is the machine's own: pages are
 * put out of it, and it is asked whether they are.
 */
#include "core/digest.h"
#include "scratch.h"
#include "store/sqlite.h"
#include "store/sqlite_wait.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/uio.h>
#include <time.h>

#include <cmocka.h>

#define ROWS  6000 /* some megabytes: more than one read brings */
#define BATCH 200
#define TRIES 2000 /* at a page that does not go, one each millisecond */
#define TEXT                                                                                                 \
    "a text that makes the row longer, so that there are many pages and few of them are read by chance "
#define NAME(i)     name_of(i)
#define READERS     6
#define READS       32
#define BODY_BYTES  60000
#define LOG_BYTES   ((int64_t)SQLITE_WAL_PAGES_LONG * SQLITE_PAGE_BYTES) /* of a long one */
#define LARGE_BYTES ((size_t)4 << 20)                                    /* of an answer */

static struct hasher hasher;
static struct store *store;
static struct store_reader *now, *patient;
static int waits;
static atomic_bool written;
static atomic_int reads;

static int64_t test_clock(void *context)
{
    (void)context;
    return 1710000000000;
}

static void on_wait(void *context)
{
    assert_ptr_equal(context, &waits);
    waits++;
}

static void open_all(void)
{
    char url[200];
    struct buffer error = {0};
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("wait.db"));
    struct store_settings settings = {.url = url, .owner = "test", .now_ms = test_clock, .tail_entries = 64};
    assert_int_equal(store_open(&store, &settings, &error), STATUS_OK);
    assert_int_equal(store_reader_open_now(&now, store, 1, &error), STATUS_OK);
    assert_int_equal(store_reader_open(&patient, store, &error), STATUS_OK);
    assert_non_null(now);
    store_reader_tell_waits(patient, on_wait, &waits);
    waits = 0;
    buffer_fini(&error);
}

static void close_all(void)
{
    store_reader_free(now);
    store_reader_free(patient);
    store_close(store);
}

static const char *name_of(int i)
{
    static char names[BATCH][24];
    char *name = names[i % BATCH];
    snprintf(name, sizeof names[0], "call-%d", i);
    return name;
}

static void ask(struct store_op *op, enum store_kind kind, int i)
{
    store_op_fini(op);
    *op = (struct store_op){.kind = kind};
    op->row.tenant = slice_text("t");
    op->row.route = slice_text(TEXT TEXT TEXT TEXT TEXT);
    op->row.call_id = slice_text(NAME(i));
    op->row.call_digest = digest_call(&hasher, op->row.tenant, op->row.call_id);
    op->row.state = STATE_PROCESSING;
    op->row.fence = 1;
}

static void fill(void)
{
    static struct store_op ops[BATCH];
    struct store_op *list[BATCH];
    for (int i = 0; i < ROWS; i += BATCH) {
        for (int k = 0; k < BATCH; k++) {
            ask(&ops[k], STORE_CLAIM, i + k);
            list[k] = &ops[k];
        }
        store_batch(store, list, BATCH);
        assert_true(ops[0].done && ops[BATCH - 1].done);
    }
    for (int k = 0; k < BATCH; k++)
        store_op_fini(&ops[k]), memset(&ops[k], 0, sizeof ops[k]);
}

/* Whether the page in the middle of the file is out of the page cache now; false: this file system does not tell or keeps
 * its files in memory. */
static bool put_out(void)
{
    int fd =
        open(scratch_path("wait.db"), O_RDONLY); /* its close drops SQLite's locks: nobody else is here */
    char byte;
    struct iovec to = {&byte, 1};
    off_t middle = lseek(fd, 0, SEEK_END) / 2;
    ssize_t got = 1;
    assert_int_equal(fsync(fd), 0);
    for (int i = 0; i < TRIES && got == 1; i++) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        got = preadv2(fd, &to, 1, middle, RWF_NOWAIT);
        if (got == 1)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    close(fd);
    return got != 1;
}

static void expect(const struct store_op *op, int i)
{
    assert_int_equal(op->status, STATUS_OK);
    assert_true(op->rows.call.id == i + 1);
    assert_true(slice_equal(op->rows.call.call_id, slice_text(NAME(i))));
    assert_true(op->rows.covers_since_ms > 0);
}

static void what_is_in_memory_is_answered_and_what_is_not_is_refused(void **state)
{
    (void)state;
    struct store_op ops[3] = {0}, *list[] = {&ops[0], &ops[1], &ops[2]};
    int refused = 0, answered = 0;
    open_all();
    fill();
    close_all();
    open_all(); /* which reads what stands unended */
    if (!put_out()) {
        print_message("    this file system keeps its pages: skipped\n");
        close_all();
        scratch_remove("wait.db");
        skip();
    }
    for (int i = 7; i < ROWS; i += 97) {
        ask(&ops[0], STORE_LOOKUP, i);
        size_t done = store_reader_run_now(now, list, 1);
        refused += !done;
        if (!done) {
            for (int tries = 0; !done && tries < 4; tries++) { /* its pages, and those of the schema */
                store_reader_run(patient, &ops[0]);
                expect(&ops[0], i);
                done = store_reader_run_now(now, list, 1);
            }
            assert_int_equal(done, 1);
        }
        expect(&ops[0], i);
        answered++;
    }
    print_message("    %d looks, %d refused, %d waits\n", answered, refused, waits);
    assert_true(refused > 10 && waits > 10); /* a page may come between the two looks */

    /* All in memory: nobody waits, and nothing is refused. */
    int before = waits;
    for (int i = 7; i < ROWS; i += 97) {
        for (int k = 0; k < 3; k++)
            ask(&ops[k], STORE_LOOKUP, i);
        assert_int_equal(store_reader_run_now(now, list, 3), 3);
        for (int k = 0; k < 3; k++)
            expect(&ops[k], i);
        store_reader_run(patient, &ops[0]);
    }
    assert_int_equal(waits, before);
    for (int k = 0; k < 3; k++)
        store_op_fini(&ops[k]);
    close_all();
    scratch_remove("wait.db");
}

/* Of three the second has to wait: the first is answered, and the others are as they were. */
static void those_before_one_that_waits_are_answered(void **state)
{
    (void)state;
    struct store_op ops[3] = {0}, *list[] = {&ops[0], &ops[1], &ops[2]};
    open_all();
    fill();
    close_all();
    open_all();
    if (!put_out()) {
        close_all();
        scratch_remove("wait.db");
        skip();
    }
    int found = 0;
    for (int i = 40; i < ROWS && !found; i += 40) {
        ask(&ops[0], STORE_LOOKUP, i - 40);
        for (int tries = 0; tries < 4 && !store_reader_run_now(now, list, 1); tries++)
            store_reader_run(patient, &ops[0]);
        for (int k = 0; k < 3; k++)
            ask(&ops[k], STORE_LOOKUP, k == 1 ? i : i - 40);
        size_t done = store_reader_run_now(now, list, 3);
        assert_true(done == 1 || done == 3);
        expect(&ops[0], i - 40);
        found += done == 1;
        for (size_t k = done; k < 3; k++) {
            store_reader_run(patient, &ops[k]);
            expect(&ops[k], k == 1 ? i : i - 40);
        }
    }
    assert_int_equal(found, 1);
    for (int k = 0; k < 3; k++)
        store_op_fini(&ops[k]);
    close_all();
    scratch_remove("wait.db");
}

/* A loop must not be held up by a large answer either, although all of it is in memory. */
static void what_takes_long_is_refused(void **state)
{
    (void)state;
    struct store_op op = {0}, *list[] = {&op};
    char *body = calloc(1, LARGE_BYTES);
    memset(body, 'x', LARGE_BYTES);
    open_all();
    for (int i = 1; i <= 2; i++) {
        ask(&op, STORE_CLAIM, i);
        store_batch(store, list, 1);
        int64_t id = op.rows.call.id;
        ask(&op, STORE_END, i);
        op.id = id, op.fence = 1;
        op.from_states = 1u << STATE_PROCESSING;
        op.row.state = STATE_SUCCESS;
        op.row.final = op.row.has_result = op.row.body_kept = true;
        op.row.result_status = 200;
        op.row.result_body = slice_of(body, i == 1 ? LARGE_BYTES : LARGE_BYTES / 64);
        store_batch(store, list, 1);
        assert_true(op.done);
    }
    for (int i = 1; i <= 2; i++) {
        ask(&op, STORE_LOOKUP, i);
        for (int k = 0; k < 3; k++) {
            store_reader_run(patient, &op);
            assert_true(op.rows.call.result_body.len == (i == 1 ? LARGE_BYTES : LARGE_BYTES / 64));
            assert_int_equal(store_reader_run_now(now, list, 1), i == 1 ? 0 : 1);
        }
    }
    free(body);
    store_op_fini(&op);
    close_all();
    scratch_remove("wait.db");
}

static void what_is_not_on_disk_is_not_told(void **state)
{
    (void)state;
    struct store_op op = {0}, look = {0}, *claims[] = {&op}, *looks[] = {&look};
    open_all();
    ask(&op, STORE_CLAIM, 1);
    store_batch(store, claims, 1);
    ask(&look, STORE_LOOKUP, 1);
    store_reader_run(patient, &look); /* its pages are in memory from here on */
    assert_int_equal(store_reader_run_now(now, looks, 1), 1);
    ask(&op, STORE_CLAIM, 2);
    assert_int_equal(store_batch_begin(store, claims, 1), BATCH_BEGUN);
    ask(&look, STORE_LOOKUP, 2);
    assert_int_equal(store_reader_run_now(now, looks, 1), 0);
    store_batch_end(store);
    assert_int_equal(store_reader_run_now(now, looks, 1), 1);
    assert_true(look.rows.call.id == 2);
    ask(&look, STORE_LOOKUP, 3);
    assert_int_equal(store_reader_run_now(now, looks, 1), 1);
    assert_int_equal(look.rows.call.id, 0);
    store_op_fini(&op), store_op_fini(&look);
    close_all();
    scratch_remove("wait.db");
}

/* Reads one after the other until the store has been written enough. */
static void *read_on(void *argument)
{
    struct store_reader *reader = argument;
    struct store_op ops[READS] = {0}, *list[READS];
    for (int i = 0; i < READS; i++) {
        ops[i].kind = STORE_READ;
        ops[i].id = 1 + i;
        list[i] = &ops[i];
    }
    while (!atomic_load(&written)) {
        store_reader_run_all(reader, list, READS);
        atomic_fetch_add(&reads, 1);
    }
    for (int i = 0; i < READS; i++)
        store_op_fini(&ops[i]);
    return NULL;
}

/* With readers that overlap there is nearly always one that began before the last commit: the log must end all the same. */
static void readers_do_not_keep_the_log_from_ending(void **state)
{
    (void)state;
    struct store_reader *readers[READERS];
    pthread_t threads[READERS];
    struct store_op op = {0}, *list[] = {&op};
    struct buffer error = {0};
    struct stat about;
    int64_t most = 0, all = 0;
    char *body = calloc(1, BODY_BYTES);
    memset(body, 'x', BODY_BYTES);
    atomic_store(&written, false);
    open_all();
    for (int i = 0; i < READS; i++) {
        ask(&op, STORE_CLAIM, i);
        store_batch(store, list, 1);
    }
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(store_reader_open(&readers[i], store, &error), STATUS_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, readers[i]), 0);
    }
    for (int i = READS; all < LOG_BYTES * 5; i++, all += BODY_BYTES) {
        ask(&op, STORE_CLAIM, i);
        op.row.state = STATE_SUCCESS;
        op.row.final = true;
        op.row.route = slice_of(body, BODY_BYTES);
        store_batch(store, list, 1);
        assert_true(op.done);
        if (stat(scratch_path("wait.db-wal"), &about) == 0 && about.st_size > most)
            most = about.st_size;
    }
    atomic_store(&written, true);
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        store_reader_free(readers[i]);
    }
    print_message("    %lld MiB written beside %d rounds of reads, the log %lld MiB at most\n",
                  (long long)all >> 20, atomic_load(&reads), (long long)most >> 20);
    assert_true(most < 2 * LOG_BYTES);
    store_op_fini(&op);
    free(body);
    close_all();
    scratch_remove("wait.db");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_memory_is_answered_and_what_is_not_is_refused),
        cmocka_unit_test(those_before_one_that_waits_are_answered),
        cmocka_unit_test(what_takes_long_is_refused),
        cmocka_unit_test(what_is_not_on_disk_is_not_told),
        cmocka_unit_test(readers_do_not_keep_the_log_from_ending),
    };
    scratch_make();
    if (hasher_init(&hasher) != STATUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hasher_fini(&hasher);
    scratch_clean();
    return failed;
}
