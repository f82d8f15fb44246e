/* SPDX-License-Identifier: MIT
 *
 * Erasing: the body goes, the ending stays and replays tell that the answer is not kept; who asked for it is written down
 * in the same commit; a call that is not final keeps what it has.
 */
#include "conformance.c"
#include "number.h"

#include <sqlite3.h>

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("erase.db"));
    struct store_settings settings = {.url = url, .owner = owner, .now_ms = test_clock};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("erase.db");
}

static void erase(struct store_op *op, struct task_work *work, int64_t id)
{
    store_op_fini(op);
    *op = (struct store_op){.kind = STORE_ERASE, .id = id, .work = work};
    *work = (struct task_work){0};
    work->audit.who = slice_text("mei");
    work->audit.what = slice_text("erase");
    work->audit.evidence = slice_text("request 17");
    run(op);
}

static void expect_number(const char *sql, int number)
{
    assert_int_equal(number_in("erase.db", sql), number);
}

static void the_body_goes_and_the_ending_stays(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    int64_t a = claim("A", "k1", "f1");
    erase(&op, &work, a);
    assert_int_equal(op.status, STATUS_CONFLICT); /* it runs */
    expect_number("SELECT count(*) FROM audit", 0);
    ask_end(&op, a, 1, STATE_SUCCESS, "the personal answer");
    op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = now_ms + LIFE_MS;
    run(&op);
    assert_true(op.done);
    for (int i = 0; i < 2; i++) {
        erase(&op, &work, a);
        assert_int_equal(op.status, STATUS_OK);
        assert_true(op.done);
        assert_true(slice_is(op.rows.call.call_id, "A") && op.rows.call.state == STATE_SUCCESS);
        assert_false(op.rows.call.body_kept);
    }
    expect_number(
        "SELECT count(*) FROM audit WHERE who = 'mei' AND what = 'erase' AND evidence = 'request 17'"
        " AND call_id = 'A' AND tenant = 't1'",
        2);
    expect_number("SELECT result_body IS NULL AND result_headers IS NULL AND result_status = 201 FROM call",
                  1);
    store_op_fini(&op);
    op = (struct store_op){.kind = STORE_READ, .id = a};
    run(&op);
    assert_true(op.rows.call.has_result && !op.rows.call.body_kept && op.rows.call.final);
    assert_int_equal(op.rows.call.result_body.len, 0);
    erase(&op, &work, 999);
    assert_int_equal(op.status, STATUS_NOT_FOUND);
    store_op_fini(&op);
}

/* The body lives in the row whose effect is shared. */
static void a_shared_answer_goes_wherever_it_is_asked_for(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    int64_t a = claim("A", "k1", "f1");
    ask_end(&op, a, 1, STATE_SUCCESS, "the personal answer");
    op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = INT64_MAX;
    run(&op);
    ask_claim(&op, "B", "k1", "f1");
    op.kind = STORE_ATTACH;
    op.expect_holder_id = a;
    op.expect_holder_fence = 1;
    run(&op);
    assert_true(op.done);
    int64_t b = op.rows.call.id;
    erase(&op, &work, b);
    assert_true(op.done);
    expect_number("SELECT count(*) FROM call WHERE result_body IS NOT NULL", 0);
    store_op_fini(&op);
}

static void a_kept_request_loses_its_content_and_keeps_its_reversal(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    struct kept_request kept = {.has = true,
                                .method = slice_text("POST"),
                                .target = slice_text("/orders"),
                                .lines = slice_text("Authorization: secret\r\n"),
                                .body = slice_text("name"),
                                .reversal = slice_text("POST /orders/42/cancel")};
    ask_claim(&op, "A", "k1", "f1");
    op.keep = &kept;
    run(&op);
    assert_true(op.done);
    int64_t a = op.rows.call.id;
    ask_end(&op, a, 1, STATE_SUCCESS, "answer");
    op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = INT64_MAX;
    run(&op);
    erase(&op, &work, a);
    assert_true(op.done);
    expect_number("SELECT lines IS NULL AND body IS NULL AND reversal = 'POST /orders/42/cancel' FROM kept",
                  1);
    store_op_fini(&op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_body_goes_and_the_ending_stays, begin, finish),
        cmocka_unit_test_setup_teardown(a_shared_answer_goes_wherever_it_is_asked_for, begin, finish),
        cmocka_unit_test_setup_teardown(a_kept_request_loses_its_content_and_keeps_its_reversal, begin,
                                        finish),
    };
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
