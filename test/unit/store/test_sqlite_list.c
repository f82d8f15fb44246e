/* SPDX-License-Identifier: MIT
 *
 * Lists over the SQLite store: the promises of lists.c, and what is special here: sketches of blocks whose rows were
 * purged, and readers beside the writer.
 */
#include "lists.c"
#include "scratch.h"

#include <sqlite3.h>

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("list.db"));
    struct store_settings settings = {.url = url, .owner = owner, .now_ms = test_clock};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("list.db");
}

static void a_search_reads_sketches_and_not_rows(void **state)
{
    (void)state;
    struct store_op op = {0};
    fact_count = 0;
    fill(LIST_ROWS);
    sketch(SIZE_MAX);
    memset(&list, 0, sizeof list);
    list.key = slice_text(facts[1].key);
    list.limit = 50;
    list.look_max = LIST_ROWS % 256 + 256 + 20; /* the rows not sketched, one block, five sketches */
    list_page(&op);
    assert_int_equal(list.count, 1);
    same(&facts[1], &list.rows[0]);
    store_op_fini(&op);
}

static void a_reader_serves_lists_beside_the_writer(void **state)
{
    (void)state;
    struct store_reader *reader;
    struct buffer error = {0};
    struct store_op op = {.kind = STORE_LIST, .list = &list};
    fact_count = 0;
    fill(300);
    sketch(SIZE_MAX);
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    memset(&list, 0, sizeof list);
    list.route = slice_text("seldom");
    list.limit = 10;
    store_reader_run(reader, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(list.count, 2);
    same(&facts[207], &list.rows[0]);
    same(&facts[7], &list.rows[1]);
    store_op_fini(&op);
    store_reader_free(reader);
}

/* A key that another call took over, and one whose effect another call shares, are told with the other's callId. */
static void a_shared_result_names_whose_it_is(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    ask_end(&op, a, 1, STATE_SUCCESS, "done");
    op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = INT64_MAX;
    run(&op);
    assert_true(op.done);
    ask_claim(&op, "B", "k1", "f1");
    op.kind = STORE_ATTACH;
    op.expect_holder_id = a;
    op.expect_holder_fence = 1;
    run(&op);
    assert_true(op.done);
    memset(&list, 0, sizeof list);
    list.limit = 10;
    list_page(&op);
    assert_int_equal(list.count, 2);
    assert_true(slice_is(list.rows[0].call_id, "B"));
    assert_true(slice_is(list.rows[0].original_call_id, "A"));
    assert_int_equal(list.rows[0].result_status, 201);
    assert_int_equal(list.rows[1].original_call_id.len, 0);
    store_op_fini(&op);
}

/* Rows that were purged leave their sketches behind: a look too many, and nothing that is not there. */
static void rows_that_went_are_not_listed(void **state)
{
    (void)state;
    struct store_op op = {0};
    fact_count = 0;
    fill(700);
    sketch(SIZE_MAX);
    /* Blocks 1 and 2 lose all their rows but the unclear ones, the first block some. */
    size_t left = 0;
    for (size_t i = 0; i < fact_count; i++) {
        struct fact *f = &facts[i];
        bool goes =
            i < 600 && (i > 250 || i % 3) && f->state != STATE_UNKNOWN && f->state != STATE_PROCESSING;
        if (!goes) {
            facts[left++] = *f;
            continue;
        }
        char sql[240];
        sqlite3 *db;
        snprintf(sql, sizeof sql,
                 "UPDATE standing SET result_expires_ms = 1, key_expires_ms = 1, tombstone_expires_ms = 1 "
                 "WHERE id = %lld;"
                 "INSERT INTO due VALUES(1, %lld) ON CONFLICT DO NOTHING",
                 (long long)f->id, (long long)f->id / 256);
        assert_int_equal(sqlite3_open(scratch_path("list.db"), &db), SQLITE_OK);
        sqlite3_busy_timeout(db, 1000);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
    }
    assert_true(left < fact_count / 2);
    fact_count = left;
    reopen_as("second");
    for (int i = 0; i < 20; i++) {
        op = (struct store_op){.kind = STORE_PURGE, .limit = 1000};
        run(&op);
        assert_int_equal(op.status, STATUS_OK);
        store_op_fini(&op);
    }
    for (unsigned a = 0; a < FILTERS; a++) {
        memset(&list, 0, sizeof list);
        set_filter(a, &facts[left / 2]);
        walk(200, 0);
        walk(3, 40);
    }
    memset(&list, 0, sizeof list);
    walk(50, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LISTS,
        cmocka_unit_test_setup_teardown(a_search_reads_sketches_and_not_rows, begin, finish),
        cmocka_unit_test_setup_teardown(a_reader_serves_lists_beside_the_writer, begin, finish),
        cmocka_unit_test_setup_teardown(a_shared_result_names_whose_it_is, begin, finish),
        cmocka_unit_test_setup_teardown(rows_that_went_are_not_listed, begin, finish),
    };
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
