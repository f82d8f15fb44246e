/* SPDX-License-Identifier: MIT
 *
 * The numbers of MT19937 are CPython 3.11's: random.seed(N), then random() or getrandbits(32).
 */
#include "check.h"

#include "base/prng.h"

static void mt_is_cpythons(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        double random[3];
        uint32_t bits[3];
    } rows[] = {
        {0,
         {0x1.b0580f98a7dbep-1, 0x1.84129978f9c1ap-1, 0x1.aeaa51052e978p-2},
         {3626764237, 1654615998, 3255389356}},
        {1,
         {0x1.132d8f91b7584p-3, 0x1.b1e2d5b3584f8p-1, 0x1.870d778409f13p-1},
         {577090037, 2444712010, 3639700191}},
        {42,
         {0x1.4762f307200c5p-1, 0x1.99c6b5eeb2060p-6, 0x1.19a1491f589dcp-2},
         {2746317213, 478163327, 107420369}},
        {UINT32_MAX,
         {0x1.454d9227a7013p-1, 0x1.a0274a3720bf8p-3, 0x1.36f8c1616ef77p-1},
         {2728839433, 2661025012, 872737089}},
        {UINT64_C(1) << 32,
         {0x1.ced31cb3df170p-4, 0x1.abdb5477a4f26p-2, 0x1.1139c02ebd380p-6},
         {485306839, 1508871100, 1794561286}},
        {UINT64_MAX,
         {0x1.659799fd7f980p-6, 0x1.5a35a94f333d8p-2, 0x1.b21c0274c09a4p-3},
         {93740670, 1068495656, 1452108352}},
        {UINT64_C(0xdeadbeefcafef00d),
         {0x1.c1668eec31976p-1, 0x1.a8cb76bf91abbp-1, 0x1.a079865e7db1fp-1},
         {3769845604, 2965790136, 3563436881}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct prng_mt g;
        prng_mt_seed(&g, rows[i].seed);
        for (int n = 0; n < 3; n++)
            assert_true(prng_mt_random(&g) == rows[i].random[n]);
        prng_mt_seed(&g, rows[i].seed);
        for (int n = 0; n < 3; n++)
            assert_int_equal(prng_mt_next(&g), rows[i].bits[n]);
    }
}

static void mt_stays_cpythons_over_renewals(void **state)
{
    (void)state;
    struct prng_mt g;
    prng_mt_seed(&g, 42);
    for (int i = 0; i < 9999; i++)
        prng_mt_random(&g);
    assert_true(prng_mt_random(&g) == 0x1.2aa5ab9c7fbd0p-4);
    assert_true(prng_mt_uniform(&g, 0.5, 1) == 0.9739987982953198);
    assert_true(prng_mt_uniform(&g, 0.5, 1) == 0x1.e781c4d385224p-1);
}

static void split_streams_differ_and_repeat(void **state)
{
    (void)state;
    struct prng a, b, child[3];
    prng_seed(&a, 1);
    prng_seed(&b, 1);
    prng_split(&a, 1, &child[0]);
    prng_split(&b, 1, &child[1]);
    assert_int_equal(prng_next(&child[0]), prng_next(&child[1]));
    assert_int_equal(prng_next(&a), prng_next(&b));
    struct prng c = a;
    prng_split(&a, 1, &child[0]);
    prng_split(&c, 2, &child[1]);
    assert_int_not_equal(prng_next(&child[0]), prng_next(&child[1]));
}

static void doubles_and_bounds_are_even(void **state)
{
    (void)state;
    struct prng g;
    prng_seed(&g, 0);
    int below[7] = {0};
    double sum = 0;
    for (int i = 0; i < 70000; i++) {
        double d = prng_double(&g);
        assert_true(d >= 0 && d < 1);
        sum += d;
        below[prng_below(&g, 7)]++;
    }
    assert_true(sum > 34500 && sum < 35500);
    for (int i = 0; i < 7; i++)
        assert_in_range(below[i], 9500, 10500);
    assert_int_equal(prng_below(&g, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mt_is_cpythons),
        cmocka_unit_test(mt_stays_cpythons_over_renewals),
        cmocka_unit_test(split_streams_differ_and_repeat),
        cmocka_unit_test(doubles_and_bounds_are_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
