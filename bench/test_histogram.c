/* SPDX-License-Identifier: MIT */
#include "histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static struct histogram h;

static int empty(void **state)
{
    (void)state;
    h = (struct histogram){0};
    return 0;
}

static void an_empty_one_says_zero(void **state)
{
    (void)state;
    assert_int_equal(histogram_quantile(&h, 0.5), 0);
    assert_true(fpclassify(histogram_mean(&h)) == FP_ZERO);
}

static void small_values_are_exact(void **state)
{
    (void)state;
    for (uint64_t v = 1; v <= 200; v++)
        histogram_add(&h, v);
    assert_int_equal(histogram_quantile(&h, 0.5), 100);
    assert_int_equal(histogram_quantile(&h, 0.505), 101);
    assert_int_equal(histogram_quantile(&h, 0.001), 1);
    assert_int_equal(histogram_quantile(&h, 1.0), 200);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Against a sorted list of values that spread over nine powers of ten. */
static void percentiles_are_within_their_promise(void **state)
{
    (void)state;
    enum { VALUES = 20000 };
    static uint64_t values[VALUES];
    uint64_t x = 42;
    for (size_t i = 0; i < VALUES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        values[i] = (uint64_t)pow(10, (double)(x >> 11) / (double)(1ull << 53) * 9);
        histogram_add(&h, values[i]);
    }
    qsort(values, VALUES, sizeof values[0], by_size);
    static const double quantiles[] = {0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0};
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        uint64_t want = values[(size_t)ceil(quantiles[i] * VALUES) - 1];
        double got = (double)histogram_quantile(&h, quantiles[i]);
        assert_true(fabs(got - (double)want) <= 0.004 * (double)want);
    }
}

static void the_largest_number_has_a_bucket(void **state)
{
    (void)state;
    histogram_add(&h, UINT64_MAX);
    histogram_add(&h, 255);
    histogram_add(&h, 256);
    assert_int_equal(h.buckets[HISTOGRAM_BUCKETS - 1], 1);
    assert_int_equal(h.buckets[255], 1);
    assert_int_equal(h.buckets[256], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_empty_one_says_zero, empty),
        cmocka_unit_test_setup(small_values_are_exact, empty),
        cmocka_unit_test_setup(percentiles_are_within_their_promise, empty),
        cmocka_unit_test_setup(the_largest_number_has_a_bucket, empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
