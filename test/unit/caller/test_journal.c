/* SPDX-License-Identifier: MIT
 *
 * The journal under a disk that fails and a power that goes: never a new callId for a call that had started, and nothing
 * sent that is not written.
 */
#include "caller/journal.h"

#include "../../support/faulty_vfs.c"
#include "base/prng.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[100];

static void clear(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal", ".lock"};
    char name[160];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static int set_up(void **state)
{
    (void)state;
    clear();
    faulty_vfs_arm(FAULT_NONE, 0, false);
    return 0;
}

static int set_up_all(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/samekey-journal-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/deep/er/journal.db", folder);
    faulty_vfs_register();
    return 0;
}

static int tear_down_all(void **state)
{
    char command[200];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct digest operation_of(int number)
{
    struct digest d = {{0}};
    memcpy(d.bytes, &number, sizeof number);
    return d;
}

static struct journal_entry entry_of(const char *call_id, int number)
{
    return (struct journal_entry){.call_id = slice_text(call_id),
                                  .has_key = number > 0,
                                  .operation = operation_of(number),
                                  .method = slice_text("POST"),
                                  .url = slice_text("http://svc.test/orders"),
                                  .key = slice_text("k"),
                                  .headers = slice_text("A: 1\r\n"),
                                  .policy = slice_text("{}"),
                                  .body = slice_of("bo\0dy", 5),
                                  .body_kept = true,
                                  .state = STATE_PROCESSING,
                                  .attempt_count = 1,
                                  .first_ms = 1000,
                                  .created_ms = 999};
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    struct journal *j;
    struct journal_entry e = entry_of("c-1", 1), got;
    struct arena memory;
    struct stat st;
    arena_init(&memory, JOURNAL_ENTRY_BYTES_MAX);
    assert_int_equal(journal_open(&j, path, NULL, NULL), STATUS_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(journal_write(j, &e), STATUS_OK);
    e.state = STATE_SUCCESS;
    e.final = true;
    e.reason = REASON_RECEIPT;
    e.maybe_ran = true;
    e.closed_ms = 1500;
    e.rounds = 2;
    e.attempts = slice_text("[]");
    e.has_result = true;
    e.result_status = 201;
    e.result_headers = slice_text("Location: /1\r\n");
    e.result_body = slice_of("\0\1\2", 3);
    e.result_kept = true;
    assert_int_equal(journal_write(j, &e), STATUS_OK);
    journal_close(j);
    assert_int_equal(journal_open(&j, path, NULL, NULL), STATUS_OK);
    struct digest operation = operation_of(1);
    assert_int_equal(journal_find_operation(j, &operation, &memory, &got), STATUS_OK);
    assert_true(slice_equal(got.call_id, e.call_id) && slice_equal(got.body, e.body) && got.body_kept);
    assert_true(slice_equal(got.result_body, e.result_body) &&
                slice_equal(got.result_headers, e.result_headers));
    assert_true(got.state == STATE_SUCCESS && got.final && got.reason == REASON_RECEIPT && got.maybe_ran);
    assert_true(got.attempt_count == 1 && got.first_ms == 1000 && got.closed_ms == 1500 && got.rounds == 2);
    assert_true(got.created_ms == 999 && got.updated_ms > 0 && slice_equal(got.headers, e.headers));
    assert_int_equal(journal_find_call(j, slice_text("c-2"), &memory, &got), STATUS_NOT_FOUND);
    assert_int_equal(journal_forget(j, slice_text("c-1")), STATUS_OK);
    assert_int_equal(journal_forget(j, slice_text("c-1")), STATUS_NOT_FOUND);
    journal_close(j);
    arena_fini(&memory);
}

static void of_one_operation_only_one_entry_is_open(void **state)
{
    (void)state;
    struct journal *j;
    struct journal_entry first = entry_of("c-1", 1), second = entry_of("c-2", 1),
                         same_id = entry_of("c-1", 2);
    assert_int_equal(journal_open(&j, path, NULL, NULL), STATUS_OK);
    assert_int_equal(journal_write(j, &first), STATUS_OK);
    assert_int_equal(journal_write(j, &second), STATUS_CONFLICT);
    assert_int_equal(journal_write(j, &same_id), STATUS_CONFLICT);
    first.state = STATE_FAILED;
    assert_int_equal(journal_write(j, &first), STATUS_OK);
    assert_int_equal(journal_write(j, &second), STATUS_CONFLICT); /* FAILED that may run again is open */
    first.final = true;
    assert_int_equal(journal_write(j, &first), STATUS_OK);
    assert_int_equal(journal_write(j, &second), STATUS_OK);
    struct journal_entry without_key = entry_of("c-3", 0), another = entry_of("c-4", 0);
    assert_int_equal(journal_write(j, &without_key), STATUS_OK);
    assert_int_equal(journal_write(j, &another), STATUS_OK);
    journal_close(j);
}

static bool count_entry(void *context, const struct journal_entry *e)
{
    int *count = context;
    assert_true(e->id > 0);
    return ++*count < 100;
}

static void the_open_ones_are_listed(void **state)
{
    (void)state;
    struct journal *j;
    char ids[6][8];
    int open = 0, all = 0;
    assert_int_equal(journal_open(&j, path, NULL, NULL), STATUS_OK);
    for (int i = 0; i < 6; i++) {
        snprintf(ids[i], sizeof ids[i], "c-%d", i);
        struct journal_entry e = entry_of(ids[i], i + 1);
        e.state = i % 3 == 0 ? STATE_SUCCESS : i % 3 == 1 ? STATE_UNKNOWN : STATE_FAILED;
        e.final = i == 2;
        assert_int_equal(journal_write(j, &e), STATUS_OK);
    }
    assert_int_equal(journal_each(j, true, count_entry, &open), STATUS_OK);
    assert_int_equal(journal_each(j, false, count_entry, &all), STATUS_OK);
    assert_int_equal(open, 3);
    assert_int_equal(all, 6);
    journal_close(j);
}

static void a_lock_is_one_holders_even_within_a_process(void **state)
{
    (void)state;
    struct journal *j;
    struct slot a = SLOT_NONE, b = SLOT_NONE, c = SLOT_NONE;
    struct digest one = operation_of(1), two = operation_of(2);
    assert_int_equal(journal_open(&j, path, NULL, NULL), STATUS_OK);
    assert_int_equal(journal_lock(j, &one, &a), STATUS_OK);
    assert_int_equal(journal_lock(j, &one, &b), STATUS_CONFLICT);
    assert_int_equal(journal_lock(j, &two, &c), STATUS_OK);
    slot_release(&a);
    assert_int_equal(journal_lock(j, &one, &b), STATUS_OK);
    slot_release(&b);
    slot_release(&c);
    slot_release(&c);
    journal_close(j);
}

/* ---- a disk that fails -------------------------------------------------------------------------------------- */

/* Opens, writes two steps of one call, and says how far it came: 0 not opened, 1 the first write was refused, 2 the first
 * is on disk, 3 both are. */
static int live(void)
{
    struct journal *j;
    struct journal_entry e = entry_of("c-1", 1);
    if (journal_open(&j, path, FAULTY_VFS, NULL) != STATUS_OK)
        return 0;
    int came = 1;
    if (journal_write(j, &e) == STATUS_OK) {
        came = 2;
        e.state = STATE_SUCCESS;
        e.final = true;
        if (journal_write(j, &e) == STATUS_OK)
            came = 3;
    }
    journal_close(j);
    return came;
}

/* What a later process finds: 0 nothing, 2 the call as it began, 3 its ending. */
static int found(void)
{
    struct journal *j;
    struct journal_entry got;
    struct arena memory;
    struct digest operation = operation_of(1);
    arena_init(&memory, JOURNAL_ENTRY_BYTES_MAX);
    assert_int_equal(journal_open(&j, path, NULL, NULL), STATUS_OK);
    enum status status = journal_find_operation(j, &operation, &memory, &got);
    int came = status == STATUS_NOT_FOUND ? 0 : got.state == STATE_SUCCESS ? 3 : 2;
    if (status == STATUS_OK)
        assert_true(slice_is(got.call_id, "c-1") && got.attempt_count == 1);
    journal_close(j);
    arena_fini(&memory);
    return came;
}

static void each_fault_of_the_disk_in_turn(void **state)
{
    (void)state;
    int refused = 0;
    for (int forever = 0; forever < 2; forever++) {
        for (enum fault kind = FAULT_FULL; kind < FAULT_KINDS; kind++) {
            for (int64_t n = 1; n < 400; n++) {
                clear();
                faulty_vfs_arm(kind, n, forever);
                int came = live();
                int64_t failures = faulty_vfs_failures();
                faulty_vfs_arm(FAULT_NONE, 0, false);
                int there = found();
                /* What was said to be on disk is there. More may be: a refused write may have arrived. */
                if (came >= 2 && there < came)
                    fail_msg("kind %d, number %lld: came to %d, found %d", (int)kind, (long long)n, came,
                             there);
                refused += came < 3;
                if (failures == 0)
                    break;
            }
        }
    }
    assert_true(refused > 20);
}

/* ---- the power goes ----------------------------------------------------------------------------------------- */

static void a_started_call_is_there_after_a_power_cut(void **state)
{
    (void)state;
    struct prng g;
    int lost = 0;
    prng_seed(&g, 42);
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct journal *j;
        struct journal_entry e = entry_of("c-1", 1);
        clear();
        assert_int_equal(journal_open(&j, path, FAULTY_VFS, NULL), STATUS_OK);
        /* Other calls before it, so that the cut also meets checkpoints and a log in use. */
        int others = (int)prng_below(&g, 12);
        char ids[12][16];
        for (int i = 0; i < others; i++) {
            snprintf(ids[i], sizeof ids[i], "o-%d", i);
            struct journal_entry o = entry_of(ids[i], i + 2);
            assert_int_equal(journal_write(j, &o), STATUS_OK);
        }
        assert_int_equal(journal_write(j, &e), STATUS_OK);
        /* Now the first byte may leave. The power goes at once, or during the write of the ending. */
        bool ended = seed % 2;
        if (ended) {
            e.state = STATE_SUCCESS;
            e.final = true;
            assert_int_equal(journal_write(j, &e), STATUS_OK);
        }
        faulty_vfs_power_off();
        struct journal_entry late = entry_of("late", 99);
        assert_int_not_equal(journal_write(j, &late), STATUS_OK);
        journal_close(j);
        faulty_vfs_power_on(seed);
        assert_int_equal(found(), ended ? 3 : 2);
        lost++;
    }
    assert_int_equal(lost, 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_written_is_read_back, set_up),
        cmocka_unit_test_setup(of_one_operation_only_one_entry_is_open, set_up),
        cmocka_unit_test_setup(the_open_ones_are_listed, set_up),
        cmocka_unit_test_setup(a_lock_is_one_holders_even_within_a_process, set_up),
        cmocka_unit_test_setup(each_fault_of_the_disk_in_turn, set_up),
        cmocka_unit_test_setup(a_started_call_is_there_after_a_power_cut, set_up),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
