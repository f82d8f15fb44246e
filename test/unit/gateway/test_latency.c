/* SPDX-License-Identifier: MIT
 *
 * Percentiles of a window: only what came since the oldest snapshot counts, and they lie inside the right bucket.
 */
#include "gateway/latency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct metrics *m;
static struct metrics_loop *loop;

static int begin(void **state)
{
    (void)state;
    struct settings s = {0};
    return metrics_new(&m, &s) == STATUS_OK && metrics_loop_new(m, &loop) == STATUS_OK ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    metrics_free(m);
    return 0;
}

static void observe(double seconds, int times)
{
    for (int i = 0; i < times; i++)
        metrics_observe(loop, METRIC_request_seconds, seconds);
}

static void nothing_seen_is_nothing_said(void **state)
{
    (void)state;
    struct latency l = {0};
    struct percentiles p;
    latency_read(&l, m, LATENCY_REQUEST, &p);
    assert_int_equal(p.count, 0);
    assert_true(p.p99 == 0);
}

static void percentiles_lie_in_their_buckets(void **state)
{
    (void)state;
    struct latency l = {0};
    struct percentiles p;
    observe(0.003, 90);
    observe(0.07, 8);
    observe(0.7, 2);
    latency_read(&l, m, LATENCY_REQUEST, &p);
    assert_int_equal(p.count, 100);
    assert_true(p.p50 > 0.0025 && p.p50 <= 0.005);
    assert_true(p.p95 > 0.05 && p.p95 <= 0.1);
    assert_true(p.p99 > 0.5 && p.p99 <= 1);
    latency_read(&l, m, LATENCY_COMMIT, &p);
    assert_int_equal(p.count, 0);
}

static void what_is_older_than_the_window_does_not_count(void **state)
{
    (void)state;
    struct latency l = {0};
    struct percentiles p;
    observe(10, 1000);
    for (int i = 0; i < LATENCY_SNAPSHOTS; i++)
        latency_keep(&l, m);
    observe(0.003, 10);
    latency_read(&l, m, LATENCY_REQUEST, &p);
    assert_int_equal(p.count, 10);
    assert_true(p.p99 <= 0.005);
    for (int i = 0; i < LATENCY_SNAPSHOTS - 1; i++) {
        latency_keep(&l, m);
        latency_read(&l, m, LATENCY_REQUEST, &p);
        assert_int_equal(p.count, 10); /* still inside */
    }
    latency_keep(&l, m);
    latency_read(&l, m, LATENCY_REQUEST, &p);
    assert_int_equal(p.count, 0);
}

static void what_is_above_all_bounds_is_said_to_be_the_last(void **state)
{
    (void)state;
    struct latency l = {0};
    struct percentiles p;
    observe(1000, 5);
    latency_read(&l, m, LATENCY_REQUEST, &p);
    assert_int_equal(p.count, 5);
    assert_true(p.p50 == 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_seen_is_nothing_said, begin, end),
        cmocka_unit_test_setup_teardown(percentiles_lie_in_their_buckets, begin, end),
        cmocka_unit_test_setup_teardown(what_is_older_than_the_window_does_not_count, begin, end),
        cmocka_unit_test_setup_teardown(what_is_above_all_bounds_is_said_to_be_the_last, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
