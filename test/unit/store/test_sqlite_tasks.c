/* SPDX-License-Identifier: MIT
 *
 * Compensation tasks are written in the commit that makes a call UNKNOWN, one for a call, and resolved in the commit
 * that settles it. Read from the file, as an operator would.
 */
#include "conformance.c"
#include "scratch.h"

#include <sqlite3.h>

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("tasks.db"));
    struct store_settings settings = {.url = url, .owner = owner, .now_ms = test_clock};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("tasks.db");
}

/* "call:status:due" of every task, due relative to now. */
static void expect_tasks(const char *text)
{
    sqlite3 *db;
    sqlite3_stmt *stmt;
    struct buffer is = {0};
    assert_int_equal(sqlite3_open(scratch_path("tasks.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT call, status, due_ms FROM compensation ORDER BY call", -1,
                                        &stmt, NULL),
                     SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW)
        buffer_format(&is, "%s%d:%d:%d", is.len ? " " : "", sqlite3_column_int(stmt, 0),
                      sqlite3_column_int(stmt, 1), (int)(sqlite3_column_int64(stmt, 2) - now_ms));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    assert_string_equal(buffer_cstring(&is), text);
    buffer_fini(&is);
}

static void an_unknown_ending_brings_its_task_and_a_settlement_resolves_it(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    ask_end(&op, a, 1, STATE_UNKNOWN, NULL);
    op.make_task = true;
    op.task_due_ms = now_ms + 30;
    run(&op);
    expect_tasks("1:0:30");
    /* The caller's own repeat leaves UNKNOWN again: still one task, as it was. */
    ask_take(&op, "A", "k1", "f1");
    op.expect_call_id = op.expect_holder_id = a;
    op.expect_call_fence = op.expect_holder_fence = 1;
    run(&op);
    assert_true(op.done);
    ask_end(&op, a, 2, STATE_UNKNOWN, NULL);
    op.make_task = true;
    op.task_due_ms = now_ms + 99;
    run(&op);
    expect_tasks("1:0:30");
    ask_end(&op, a, 0, STATE_SUCCESS, "settled");
    op.any_fence = true;
    op.from_states = IN(UNKNOWN);
    run(&op);
    assert_true(op.done);
    expect_tasks("1:2:30");
    /* A report contradicts the ending: the task is open again, and asked for twice it is one. */
    for (int i = 0; i < 2; i++) {
        store_op_fini(&op);
        op = (struct store_op){.kind = STORE_TASK, .id = a, .task_due_ms = now_ms + 5 + i};
        run(&op);
        assert_int_equal(op.status, STATUS_OK);
        assert_int_equal(op.done, i == 0);
    }
    expect_tasks("1:0:5");
    op.id = a + 100;
    run(&op);
    assert_int_equal(op.status, STATUS_NOT_FOUND);
    store_op_fini(&op);
}

static void what_an_earlier_process_left_gets_tasks(void **state)
{
    (void)state;
    claim("A", "k1", "f1");
    claim("B", "k2", "f2");
    reopen_as("second");
    struct store_op op = {.kind = STORE_EXPIRE, .limit = 10, .task_due_ms = now_ms + 7};
    run(&op);
    assert_int_equal(op.count, 2);
    expect_tasks("1:0:7 2:0:7");
    store_op_fini(&op);
}

static void a_purged_call_takes_its_task_with_it(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    ask_end(&op, a, 1, STATE_UNKNOWN, NULL);
    op.make_task = true;
    run(&op);
    ask_end(&op, a, 1, STATE_SUCCESS, "x");
    op.from_states = IN(UNKNOWN);
    run(&op);
    now_ms += 3 * LIFE_MS;
    assert_int_equal(purge(10), 1);
    expect_tasks("");
    store_op_fini(&op);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        STORY(an_unknown_ending_brings_its_task_and_a_settlement_resolves_it),
        STORY(what_an_earlier_process_left_gets_tasks),
        STORY(a_purged_call_takes_its_task_with_it),
    };
    (void)conformance;
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
