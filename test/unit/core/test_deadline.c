/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/deadline.h"

static void the_lesser_of_setting_and_budget(void **state)
{
    (void)state;
    assert_int_equal(deadline_from(1000, 30000, DEADLINE_NO_BUDGET), 31000);
    assert_int_equal(deadline_from(1000, 30000, 5000), 6000);
    assert_int_equal(deadline_from(1000, 30000, 60000), 31000);
    assert_int_equal(deadline_from(1000, 30000, 0), 1000);
    assert_int_equal(deadline_from(1000, INT64_MAX, DEADLINE_NO_BUDGET), DEADLINE_NONE);
    assert_int_equal(deadline_from(1000, INT64_MAX, 5), 1005);
    assert_int_equal(deadline_from(1000, INT64_MAX - 5, DEADLINE_NO_BUDGET), DEADLINE_NONE);
}

static void sums_saturate(void **state)
{
    (void)state;
    assert_int_equal(deadline_add(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(deadline_add(INT64_MIN, -1), INT64_MIN);
    assert_int_equal(deadline_add(-5, 3), -2);
    assert_int_equal(deadline_left(5, INT64_MIN), INT64_MAX);
    assert_int_equal(deadline_left(DEADLINE_NONE, 5), DEADLINE_NONE);
    assert_int_equal(deadline_left(5, 6), 0);
    assert_int_equal(deadline_left(6, 5), 1);
}

static void what_fits(void **state)
{
    (void)state;
    assert_true(deadline_fits(100, 40, 60));
    assert_false(deadline_fits(100, 40, 61));
    assert_false(deadline_fits(100, 101, 0));
    assert_true(deadline_fits(100, 100, 0));
    assert_true(deadline_fits(DEADLINE_NONE, 5, INT64_MAX));
    assert_false(deadline_fits(100, 40, INT64_MAX));
    /* The field case: Retry-After 200 s in a call of 150 s ends at once. */
    assert_false(deadline_fits_wait(deadline_from(0, 150000, DEADLINE_NO_BUDGET), 10, 200000));
    assert_true(deadline_fits_wait(150000, 10, 149940));
    assert_false(deadline_fits_wait(150000, 10, 149941));
    assert_false(deadline_fits_wait(150000, 10, INT64_MAX));
}

static void the_last_attempt_is_shortened(void **state)
{
    (void)state;
    assert_int_equal(deadline_attempt_ms(10000, 0, 3000), 3000);
    assert_int_equal(deadline_attempt_ms(10000, 8000, 3000), 2000);
    assert_int_equal(deadline_attempt_ms(10000, 9950, 3000), 50);
    assert_int_equal(deadline_attempt_ms(10000, 9951, 3000), 0);
    assert_int_equal(deadline_attempt_ms(10000, 20000, 3000), 0);
    assert_int_equal(deadline_attempt_ms(DEADLINE_NONE, 20000, 3000), 3000);
}

static void budgets_are_digits(void **state)
{
    (void)state;
    int64_t ms = 77;
    static const char *const wrong[] = {"", " ", "-1", "+1", "1.5", "5s", "1 2", "0x1"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(deadline_parse_budget(slice_text(wrong[i]), &ms), STATUS_INVALID);
    assert_int_equal(ms, 77);
    assert_int_equal(deadline_parse_budget(slice_text(" 1500 "), &ms), STATUS_OK);
    assert_int_equal(ms, 1500);
    assert_int_equal(deadline_parse_budget(slice_text("0"), &ms), STATUS_OK);
    assert_int_equal(ms, 0);
    assert_int_equal(deadline_parse_budget(slice_text("9223372036854775807"), &ms), STATUS_OK);
    assert_int_equal(ms, INT64_MAX);
    assert_int_equal(deadline_parse_budget(slice_text("9223372036854775808000"), &ms), STATUS_OK);
    assert_int_equal(ms, INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lesser_of_setting_and_budget),
        cmocka_unit_test(sums_saturate),
        cmocka_unit_test(what_fits),
        cmocka_unit_test(the_last_attempt_is_shortened),
        cmocka_unit_test(budgets_are_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
