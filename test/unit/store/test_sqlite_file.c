/* SPDX-License-Identifier: MIT
 *
 * Files that are taken away under the store, or were lost before it is opened: what cannot last is not written.
 */
#include "conformance.c"
#include "scratch.h"

#include <time.h>

#define LOOK_MS_MAX 5000 /* the store looks each second */

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("file.db"));
    struct store_settings settings = {.url = url, .owner = owner, .now_ms = test_clock};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("file.db");
    scratch_remove("away.db");
}

static enum status claim_status(unsigned nth)
{
    char call_id[16];
    struct store_op op = {0};
    snprintf(call_id, sizeof call_id, "more-%u", nth);
    ask_claim(&op, call_id, NULL, NULL);
    run(&op);
    enum status status = op.status;
    store_op_fini(&op);
    return status;
}

/* Claims new calls until the store answers so. */
static void comes_to(enum status wanted)
{
    static unsigned nth;
    const struct timespec pause = {0, 10 * 1000000};
    for (int ms = 0; ms < LOOK_MS_MAX; ms += 10) {
        if (claim_status(nth++) == wanted)
            return;
        nanosleep(&pause, NULL);
    }
    fail_msg("never status %d", wanted);
}

/* Whether the store still tells of the call, through the writer's connection. */
static bool knows(const char *call_id)
{
    struct store_op op = {.kind = STORE_LOOKUP};
    identify(&op.row, call_id, NULL, NULL);
    run(&op);
    bool known = op.status == STATUS_OK && op.rows.call.id;
    store_op_fini(&op);
    return known;
}

static void move(const char *from, const char *to)
{
    assert_int_equal(rename(scratch_path(from), scratch_path(to)), 0);
}

static void copy(const char *from, const char *to)
{
    char part[4096];
    size_t n;
    FILE *in = fopen(scratch_path(from), "r"), *out = fopen(scratch_path(to), "w");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(part, 1, sizeof part, in)) > 0)
        assert_int_equal(fwrite(part, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void nothing_is_written_into_a_file_that_was_removed(void **state)
{
    (void)state;
    int64_t id = claim("A", "k1", "f1");
    assert_int_equal(unlink(scratch_path("file.db")), 0);
    comes_to(STATUS_IO);
    /* All of it at once is refused, and what is known is still told. */
    struct store_op write = {0}, read = {.kind = STORE_LOOKUP};
    struct store_op *both[] = {&write, &read};
    ask_claim(&write, "B", NULL, NULL);
    identify(&read.row, "A", NULL, NULL);
    store_batch(store, both, 2);
    assert_int_equal(write.status, STATUS_IO);
    assert_int_equal(read.status, STATUS_OK);
    assert_true(read.rows.call.id != 0);
    /* A repeat of a known call writes nothing, and neither does a new call with a known key. */
    ask_claim(&write, "A", "k1", "f1");
    run(&write);
    assert_int_equal(write.status, STATUS_OK);
    assert_true(!write.done && write.rows.call.id == id);
    ask_claim(&write, "C", "k1", "f1");
    run(&write);
    assert_int_equal(write.status, STATUS_OK);
    assert_true(!write.done && !write.rows.call.id && write.rows.holder.id == id);
    ask_end(&write, id, 1, STATE_SUCCESS, "x");
    run(&write);
    assert_int_equal(write.status, STATUS_IO);
    assert_int_equal(store_raise_covers_since(store, now_ms + 1), STATUS_IO);
    store_op_fini(&write);
    store_op_fini(&read);
    /* And another file under the name is not this one. */
    FILE *other = fopen(scratch_path("file.db"), "w");
    fclose(other);
    const struct timespec a_look = {1, 100 * 1000000};
    nanosleep(&a_look, NULL);
    assert_int_equal(claim_status(9999), STATUS_IO);
}

static void a_file_that_is_back_is_written_again(void **state)
{
    (void)state;
    claim("A", "k1", "f1");
    move("file.db", "away.db");
    comes_to(STATUS_IO);
    copy("away.db", "file.db");
    const struct timespec a_look = {1, 100 * 1000000};
    nanosleep(&a_look, NULL);
    assert_int_equal(claim_status(9998), STATUS_IO);
    move("away.db", "file.db");
    comes_to(STATUS_OK);
    assert_true(knows("A"));
    reopen_as("second");
    assert_true(knows("A"));
    assert_false(knows("more-9998"));
}

static void a_log_that_was_removed_is_folded_in_at_the_stop(void **state)
{
    (void)state;
    claim("A", "k1", "f1");
    assert_int_equal(unlink(scratch_path("file.db-wal")), 0);
    comes_to(STATUS_IO);
    assert_true(knows("A"));
    reopen_as("second");
    assert_true(knows("A"));
    comes_to(STATUS_OK);
}

static void a_reader_does_not_open_another_file(void **state)
{
    (void)state;
    struct buffer error = {0};
    struct store_reader *reader;
    claim("A", "k1", "f1");
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    assert_int_equal(unlink(scratch_path("file.db")), 0);
    comes_to(STATUS_IO);
    struct store_op op = {.kind = STORE_LOOKUP};
    identify(&op.row, "A", NULL, NULL);
    store_reader_run(reader, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true(op.rows.call.id != 0);
    store_op_fini(&op);
    store_reader_free(reader);
}

static void refused(const char *words)
{
    struct buffer error = {0};
    struct store *other = NULL;
    assert_int_equal(bench_open(&other, "second", &error), STATUS_IO);
    if (!strstr(buffer_cstring(&error), words))
        fail_msg("\"%s\" does not say \"%s\"", buffer_cstring(&error), words);
    buffer_fini(&error);
}

static void an_empty_file_that_was_a_store_is_not_begun_anew(void **state)
{
    (void)state;
    store_close(store);
    store = NULL;
    assert_int_equal(truncate(scratch_path("file.db"), 0), 0);
    refused("file.db.lock shows that it was not");
    refused("restore a backup"); /* also the second time */
    assert_int_equal(unlink(scratch_path("file.db.lock")), 0);
    FILE *log = fopen(scratch_path("file.db-wal"), "w");
    fputs("frames", log);
    fclose(log);
    refused("file.db-wal shows that it was not");
    assert_int_equal(unlink(scratch_path("file.db")), 0);
    refused("is missing");
    assert_int_equal(unlink(scratch_path("file.db-wal")), 0);
    /* A file that was made for the store, and a first start that did not come to its end. */
    FILE *file = fopen(scratch_path("file.db"), "w");
    fclose(file);
    file = fopen(scratch_path("file.db.lock"), "w");
    fprintf(file, "%-23d\n", 4711);
    fclose(file);
    open_as("second");
    comes_to(STATUS_OK);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        STORY(nothing_is_written_into_a_file_that_was_removed),  STORY(a_file_that_is_back_is_written_again),
        STORY(a_log_that_was_removed_is_folded_in_at_the_stop),  STORY(a_reader_does_not_open_another_file),
        STORY(an_empty_file_that_was_a_store_is_not_begun_anew),
    };
    (void)conformance;
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
