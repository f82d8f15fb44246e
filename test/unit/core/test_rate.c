/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/rate.h"

static unsigned take_all(struct rate *r, int64_t now_ms)
{
    unsigned taken = 0;
    while (rate_take(r, now_ms))
        taken++;
    return taken;
}

static void a_second_at_once_then_one_by_one(void **state)
{
    (void)state;
    struct rate r;
    rate_init(&r, 10, 1000);
    assert_int_equal(rate_wait_ms(&r, 1000), 0);
    assert_int_equal(take_all(&r, 1000), 10);
    assert_int_equal(rate_wait_ms(&r, 1000), 100);
    assert_int_equal(rate_wait_ms(&r, 1050), 50);
    assert_int_equal(take_all(&r, 1099), 0);
    assert_int_equal(take_all(&r, 1100), 1);
    assert_int_equal(take_all(&r, 1900), 8);
    assert_int_equal(take_all(&r, 1000), 0); /* the clock went back */
    assert_int_equal(take_all(&r, INT64_MAX), 10);
    rate_init(&r, 10, 1000);
    assert_int_equal(take_all(&r, 1900), 10); /* a full bucket does not overflow */
}

static void a_fast_rate_is_exact_over_time(void **state)
{
    (void)state;
    struct rate r;
    uint64_t taken = 0;
    rate_init(&r, 333, 0);
    for (int64_t now = 0; now <= 10000; now++)
        taken += take_all(&r, now);
    assert_int_equal(taken, 333 + 3330);
    rate_init(&r, RATE_A_SECOND_MAX, 0);
    assert_true(rate_take(&r, INT64_MAX));
    rate_init(&r, 3, 0);
    assert_int_equal(take_all(&r, 0), 3);
    assert_int_equal(rate_wait_ms(&r, 0), 334);
    assert_true(rate_take(&r, 334));
}

static void changes_and_no_limit(void **state)
{
    (void)state;
    struct rate r;
    rate_init(&r, 0, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(rate_take(&r, 0));
    assert_int_equal(rate_wait_ms(&r, 0), 0);
    rate_change(&r, 5, 0);
    assert_int_equal(take_all(&r, 0), 5);
    rate_change(&r, 100, 0);
    assert_int_equal(take_all(&r, 0), 0); /* what was used stays used */
    assert_int_equal(take_all(&r, 500), 50);
    rate_change(&r, 2, 1500);
    assert_int_equal(take_all(&r, 1500), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_at_once_then_one_by_one),
        cmocka_unit_test(a_fast_rate_is_exact_over_time),
        cmocka_unit_test(changes_and_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
