/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/backoff.h"

#define ALMOST_1 (1 - 0x1p-53)

static void jitter_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double low, high;
    } rows[] = {{"0.5:1", 0.5, 1}, {"0.8:1.2", 0.8, 1.2}, {"0:1", 0, 1},
                {"1:1", 1, 1},     {"0:10", 0, 10},       {"0.25:0.75", 0.25, 0.75}};
    static const char *const wrong[] = {
        "",     "0.5",   ":",      "0.5:",  ":1",    "1:0.5", "-1:1",  "0.5:1:2", "0.5 : 1",       ".5:1",
        "0.:1", "1e0:1", "0:10.1", "0,5:1", "nan:1", "0:inf", "0x1:1", "0.5.1:1", "0.1234567890:1"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        double low = -1, high = -1;
        assert_int_equal(backoff_parse_jitter(slice_text(rows[i].text), &low, &high), STATUS_OK);
        assert_true(low == rows[i].low && high == rows[i].high);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        double low = -1, high = -1;
        if (backoff_parse_jitter(slice_text(wrong[i]), &low, &high) != STATUS_INVALID || low != -1 ||
            high != -1)
            fail_msg("was read: %s", wrong[i]);
    }
}

static void waits_double_to_the_cap(void **state)
{
    (void)state;
    struct backoff none = {500, 4000, 1, 1}, half = {500, 4000, 0.5, 1};
    static const int64_t waits[] = {500, 1000, 2000, 4000, 4000};
    for (unsigned n = 0; n < COUNT(waits); n++) {
        assert_int_equal(backoff_wait_ms(&none, n, 0.7), waits[n]);
        assert_int_equal(backoff_wait_ms(&half, n, 0), waits[n] / 2);
        assert_int_equal(backoff_wait_ms(&half, n, ALMOST_1), waits[n]);
        assert_int_equal(backoff_longest_ms(&half, n), waits[n]);
        assert_true(backoff_exact_ms(&half, n, 0.25) == 0.625 * (double)waits[n]);
    }
    assert_int_equal(backoff_wait_ms(&none, 4000000000u, 0), 4000);
}

static void no_wait_is_a_hot_loop_and_none_overflows(void **state)
{
    (void)state;
    struct backoff full = {500, 4000, 0, 1}, zero = {0, 0, 1, 1}, odd = {300, 1000, 1, 1},
                   below = {500, 100, 1, 1};
    struct backoff huge = {INT64_MAX / 2 + 1, INT64_MAX, 10, 10};
    assert_int_equal(backoff_wait_ms(&full, 0, 0), 1);
    assert_int_equal(backoff_wait_ms(&full, 0, 0.0001), 1);
    assert_int_equal(backoff_wait_ms(&full, 0, 0.0021), 2); /* 1.05 ms, rounded up */
    assert_int_equal(backoff_wait_ms(&zero, 50, 0.5), 1);
    assert_int_equal(backoff_wait_ms(&odd, 2, 0), 1000);
    assert_int_equal(backoff_wait_ms(&below, 0, 0), 100);
    assert_int_equal(backoff_wait_ms(&huge, 9, 0.5), INT64_MAX);
    assert_int_equal(backoff_longest_ms(&huge, 9), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jitter_is_read),
        cmocka_unit_test(waits_double_to_the_cap),
        cmocka_unit_test(no_wait_is_a_hot_loop_and_none_overflows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
