/* SPDX-License-Identifier: MIT
 *
 * The archive's files: what is written is found again, whatever happened to the end of a file, and only whole lines are.
 */
#include "core/receipt.h"
#include "store/archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <signal.h>

#include <cmocka.h>
#include <jansson.h>

#include "scratch.h"

#define NOVEMBER_29 1795910400000 /* 2026-11-29T00:00:00Z */
#define DAY_MS      86400000

static struct buffer line, why;

static struct archive *open_as(const char *owner)
{
    struct archive *a = NULL;
    assert_int_equal(archive_open(&a, scratch, owner, &why), STATUS_OK);
    return a;
}

static struct rows ended(const char *call_id, const char *tenant, struct slice body, int64_t ended_ms)
{
    return (struct rows){.now_ms = ended_ms + 5,
                         .call = {.id = 7,
                                  .call_id = slice_text(call_id),
                                  .tenant = slice_text(tenant),
                                  .route = slice_text("pay"),
                                  .scope = slice_text("pay"),
                                  .state = STATE_SUCCESS,
                                  .final = true,
                                  .has_result = true,
                                  .body_kept = true,
                                  .result_status = 201,
                                  .result_headers = slice_text("Content-Type: text/plain\r\n"),
                                  .result_body = body,
                                  .created_ms = ended_ms - 1,
                                  .updated_ms = ended_ms,
                                  .ended_ms = ended_ms,
                                  .key_expires_ms = INT64_MAX,
                                  .tombstone_expires_ms = INT64_MAX}};
}

static enum status write_one(struct archive *a, struct rows rows, int64_t now_ms)
{
    struct archive_batch batch = {0};
    assert_true(archive_batch_add(&batch, a, &rows, now_ms));
    enum status status = archive_batch_write(&batch, a);
    archive_batch_fini(&batch);
    return status;
}

static enum status find(const char *tenant, const char *call_id, int64_t ended_ms)
{
    buffer_clear(&line), buffer_clear(&why);
    return archive_find(scratch, slice_text(tenant), slice_text(call_id), ended_ms, &line, &why);
}

/* The body of the line that was found. */
static void expect_body(struct slice body)
{
    struct receipt_reading reading;
    json_t *root = json_loadb(line.data, line.len, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    const char *id = json_string_value(json_object_get(root, "call_id"));
    assert_non_null(id);
    receipt_read(&reading, 200, buffer_view(&line), slice_text(id), 0, slice_text(""));
    assert_true(reading.has_result);
    assert_int_equal(reading.result_status, 201);
    assert_true(slice_equal(buffer_view(&reading.result_body), body));
    assert_string_equal(buffer_cstring(&reading.result_headers), "content-type: text/plain\r\n");
    receipt_reading_fini(&reading);
    json_decref(root);
}

/* Calls `each` for the files, or removes them. */
static size_t files(void (*each)(const char *path))
{
    size_t count = 0;
    DIR *folder = opendir(scratch);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, "receipts-", 9) == 0) {
            char path[400];
            snprintf(path, sizeof path, "%.90s/%.255s", scratch, entry->d_name);
            count++;
            if (each)
                each(path);
        }
    closedir(folder);
    return count;
}

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static int clean(void **state)
{
    (void)state;
    files(remove_file);
    return 0;
}

static void what_two_processes_write_is_found_by_tenant_and_call(void **state)
{
    (void)state;
    struct archive *first = open_as("n1/10/5"), *second = open_as("n2/10/5");
    assert_int_equal(write_one(first, ended("c-1", "a", slice_text("one"), NOVEMBER_29), 10), STATUS_OK);
    assert_int_equal(write_one(second, ended("c-1", "b", slice_text("two"), NOVEMBER_29), 11), STATUS_OK);
    assert_int_equal(write_one(first, ended("c-2", "a", slice_text("three"), NOVEMBER_29 + DAY_MS), 12),
                     STATUS_OK);
    assert_int_equal(files(NULL), 3);
    assert_int_equal(access(scratch_path("receipts-2026-11-30.n1-10-5.jsonl.zst"), F_OK), 0);
    assert_int_equal(find("a", "c-1", NOVEMBER_29), STATUS_OK);
    expect_body(slice_text("one"));
    assert_int_equal(find("b", "c-1", 0), STATUS_OK);
    expect_body(slice_text("two"));
    /* A day that is wrong costs a look at all files, and finds it. */
    assert_int_equal(find("a", "c-2", NOVEMBER_29), STATUS_OK);
    expect_body(slice_text("three"));
    assert_int_equal(find("c", "c-1", 0), STATUS_NOT_FOUND);
    assert_int_equal(find("a", "c", 0), STATUS_NOT_FOUND);
    assert_int_equal(why.len, 0);
    struct archive_state told;
    archive_state(first, &told);
    assert_int_equal(told.lines, 2);
    assert_false(told.fails);
    archive_close(first), archive_close(second);
}

static void the_line_that_was_archived_last_counts(void **state)
{
    (void)state;
    struct archive *first = open_as("n1"), *second = open_as("n0");
    assert_int_equal(write_one(first, ended("c", "", slice_text("late"), NOVEMBER_29), 2000), STATUS_OK);
    assert_int_equal(write_one(first, ended("c", "", slice_text("early"), NOVEMBER_29), 1000), STATUS_OK);
    assert_int_equal(write_one(second, ended("c", "", slice_text("latest"), NOVEMBER_29), 3000), STATUS_OK);
    assert_int_equal(find("", "c", NOVEMBER_29), STATUS_OK);
    expect_body(slice_text("latest"));
    archive_close(first), archive_close(second);
}

static void bodies_come_back_byte_for_byte(void **state)
{
    (void)state;
    struct archive *a = open_as("n");
    char all[512];
    struct buffer big = {0};
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    unsigned seed = 1;
    for (size_t i = 0; i < (6u << 20); i++) /* more than a step, and nothing to be compressed */
        buffer_byte(&big, (char)((seed = seed * 1103515245 + 12345) >> 16));
    assert_int_equal(write_one(a, ended("bin", "", slice_of(all, sizeof all), NOVEMBER_29), 1), STATUS_OK);
    assert_int_equal(write_one(a, ended("big", "", buffer_view(&big), NOVEMBER_29), 1), STATUS_OK);
    assert_int_equal(write_one(a, ended("none", "", slice_of("", 0), NOVEMBER_29), 1), STATUS_OK);
    assert_int_equal(find("", "bin", NOVEMBER_29), STATUS_OK);
    expect_body(slice_of(all, sizeof all));
    assert_int_equal(find("", "big", NOVEMBER_29), STATUS_OK);
    expect_body(buffer_view(&big));
    assert_int_equal(find("", "none", NOVEMBER_29), STATUS_OK);
    expect_body(slice_of("", 0));
    buffer_fini(&big);
    archive_close(a);
}

static off_t before_last, whole;
static void tear(const char *path)
{
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    whole = facts.st_size;
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, before_last), 0);
}

static void a_frame_without_its_end_is_no_line_wherever_it_was_cut(void **state)
{
    (void)state;
    struct archive *a = open_as("n");
    assert_int_equal(write_one(a, ended("kept", "", slice_text("kept"), NOVEMBER_29), 1), STATUS_OK);
    files(tear);
    off_t first = whole;
    assert_int_equal(write_one(a, ended("torn", "", slice_text("torn"), NOVEMBER_29), 1), STATUS_OK);
    files(tear);
    for (before_last = whole - 1; before_last >= first; before_last--) {
        files(cut);
        assert_int_equal(find("", "torn", NOVEMBER_29), STATUS_NOT_FOUND);
        assert_int_equal(why.len > 0, before_last > first);
        assert_int_equal(find("", "kept", NOVEMBER_29), STATUS_OK);
        expect_body(slice_text("kept"));
    }
    archive_close(a);
}

static void scratch_byte(const char *path)
{
    int fd = open(path, O_RDWR);
    char byte;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, before_last), 1);
    byte = (char)~byte;
    assert_int_equal(pwrite(fd, &byte, 1, before_last), 1);
    close(fd);
}

static void what_is_behind_a_damaged_place_is_still_found(void **state)
{
    (void)state;
    struct archive *a = open_as("n");
    assert_int_equal(write_one(a, ended("hurt", "", slice_text("hurt"), NOVEMBER_29), 1), STATUS_OK);
    files(tear);
    off_t first = whole;
    assert_int_equal(write_one(a, ended("sound", "", slice_text("sound"), NOVEMBER_29), 1), STATUS_OK);
    for (before_last = 0; before_last < first; before_last++) {
        files(scratch_byte);
        if (find("", "hurt", NOVEMBER_29) == STATUS_OK) /* a byte that says nothing */
            expect_body(slice_text("hurt"));
        assert_int_equal(find("", "sound", NOVEMBER_29), STATUS_OK);
        expect_body(slice_text("sound"));
        files(scratch_byte);
    }
    archive_close(a);
}

static void a_write_that_fails_leaves_nothing_and_the_next_one_counts(void **state)
{
    (void)state;
    struct archive *a = open_as("n");
    struct archive_state told;
    char noise[20000];
    unsigned seed = 9;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)((seed = seed * 1103515245 + 12345) >> 16);
    struct slice body = slice_of(noise, sizeof noise);
    assert_int_equal(write_one(a, ended("one", "", slice_text("one"), NOVEMBER_29), 1), STATUS_OK);
    files(tear);
    off_t before = whole;
    /* A file may not grow beyond this: the write stops in the middle of the frame. */
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum status status = write_one(a, ended("two", "", body, NOVEMBER_29), 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, STATUS_IO);
    archive_state(a, &told);
    assert_true(told.fails);
    assert_int_equal(told.failures, 1);
    assert_non_null(strstr(told.why, scratch));
    files(tear);
    assert_int_equal(whole, before);
    assert_int_equal(write_one(a, ended("two", "", body, NOVEMBER_29), 1), STATUS_OK);
    archive_state(a, &told);
    assert_false(told.fails);
    assert_int_equal(find("", "two", NOVEMBER_29), STATUS_OK);
    expect_body(body);
    assert_int_equal(find("", "one", NOVEMBER_29), STATUS_OK);
    archive_close(a);
}

static void a_batch_has_bounds_and_takes_its_first_row_whatever_it_is(void **state)
{
    (void)state;
    struct archive *a = open_as("n");
    struct archive_batch batch = {0};
    struct buffer big = {0};
    memset(buffer_reserve(&big, 2 * ARCHIVE_STEP_BYTES), 'x', 2 * ARCHIVE_STEP_BYTES);
    big.len = 2 * ARCHIVE_STEP_BYTES;
    struct rows huge = ended("huge", "", buffer_view(&big), NOVEMBER_29),
                small = ended("s", "", slice_text("s"), NOVEMBER_29);
    assert_true(archive_batch_add(&batch, a, &huge, 1));
    assert_false(archive_batch_add(&batch, a, &small, 1));
    archive_batch_fini(&batch);
    size_t rows = 0;
    while (archive_batch_add(&batch, a, &small, 1))
        rows++;
    assert_int_equal(rows, ARCHIVE_STEP_ROWS);
    archive_batch_fini(&batch);
    for (int64_t day = 0; day < ARCHIVE_DAYS; day++) {
        small.call.ended_ms = NOVEMBER_29 + day * DAY_MS;
        assert_true(archive_batch_add(&batch, a, &small, 1));
    }
    small.call.ended_ms += DAY_MS;
    assert_false(archive_batch_add(&batch, a, &small, 1));
    assert_int_equal(archive_batch_write(&batch, a), STATUS_OK);
    assert_int_equal(files(NULL), ARCHIVE_DAYS);
    archive_batch_fini(&batch);
    buffer_fini(&big);
    archive_close(a);
}

static void *write_many(void *context)
{
    for (int i = 0; i < 20; i++) {
        char id[20];
        snprintf(id, sizeof id, "c-%d", i);
        if (write_one(context, ended(id, "", slice_text(id), NOVEMBER_29), 1) != STATUS_OK)
            return context;
    }
    return NULL;
}

static void threads_of_one_process_share_a_file(void **state)
{
    (void)state;
    struct archive *a = open_as("n");
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, a), 0);
    for (size_t i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    struct archive_state told;
    archive_state(a, &told);
    assert_int_equal(told.lines, 60);
    assert_int_equal(files(NULL), 1);
    assert_int_equal(find("", "c-19", NOVEMBER_29), STATUS_OK);
    expect_body(slice_text("c-19"));
    archive_close(a);
}

static void a_folder_that_cannot_be_used_is_told(void **state)
{
    (void)state;
    struct archive *a = NULL;
    buffer_clear(&why);
    assert_int_equal(archive_open(&a, scratch_path("nowhere"), "n", &why), STATUS_IO);
    assert_non_null(strstr(buffer_cstring(&why), "make the folder"));
    buffer_clear(&why);
    assert_int_equal(archive_find(scratch_path("nowhere"), slice_text(""), slice_text("c"), 0, &line, &why),
                     STATUS_IO);
    assert_non_null(strstr(buffer_cstring(&why), "nowhere"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_two_processes_write_is_found_by_tenant_and_call, clean),
        cmocka_unit_test_teardown(the_line_that_was_archived_last_counts, clean),
        cmocka_unit_test_teardown(bodies_come_back_byte_for_byte, clean),
        cmocka_unit_test_teardown(a_frame_without_its_end_is_no_line_wherever_it_was_cut, clean),
        cmocka_unit_test_teardown(what_is_behind_a_damaged_place_is_still_found, clean),
        cmocka_unit_test_teardown(a_write_that_fails_leaves_nothing_and_the_next_one_counts, clean),
        cmocka_unit_test_teardown(a_batch_has_bounds_and_takes_its_first_row_whatever_it_is, clean),
        cmocka_unit_test_teardown(threads_of_one_process_share_a_file, clean),
        cmocka_unit_test(a_folder_that_cannot_be_used_is_told),
    };
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buffer_fini(&line), buffer_fini(&why);
    scratch_clean();
    return failed;
}
