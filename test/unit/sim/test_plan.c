/* SPDX-License-Identifier: MIT */
#include "sim/article.h"
#include "sim/number.h"
#include "sim/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static bool near(double value, double expected, double share)
{
    return fabs(value - expected) <= share * fabs(expected);
}

static void the_formulas_agree_with_the_simulation(void **state)
{
    (void)state;
    struct plan_parameters p;
    struct plan_result r;
    struct article_parameters a;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    char message[NUMBER_MESSAGE_BYTES];
    plan_defaults(&p);
    plan_make(&p, &r);
    article_defaults(&a);
    a.calls = 200000;
    assert_int_equal(article_strategies(&a, "receipt_first,exponential_jitter", message), STATUS_OK);
    assert_int_equal(article_run(&a, rows, NULL), STATUS_OK);
    double calls = (double)a.calls;
    assert_true(near((double)rows[0].attempts / calls, r.attempts_per_call, 0.01));
    assert_true(near((double)rows[1].attempts / calls, r.attempts_per_call_blind, 0.01));
    assert_true(near((double)rows[1].duplicates / calls * p.rate, r.duplicates_avoided_a_second, 0.02));
    assert_true(near(1 - (double)rows[0].confirmed / calls, r.failed_share, 0.1));
    /* The simulation's queries never miss. */
    assert_true(
        near((double)rows[0].receipt_queries / calls, r.queries_per_call * (1 - p.receipt_miss), 0.03));
}

static void worked_by_hand(void **state)
{
    (void)state;
    struct plan_parameters p;
    struct plan_result r;
    plan_defaults(&p);
    plan_make(&p, &r);
    assert_true(near(r.attempts_per_call, 1 + 0.3 + 0.09 + 0.027, 1e-12));
    assert_true(near(r.worst_time_s, 4 * 3 + (0.5 + 1 + 2) + 3 * 1, 1e-12));
    assert_true(r.worst_fits_deadline);
    assert_true(near(r.receipts_kept, 100 * 7 * 86400.0, 1e-12));
    assert_true(near(r.receipts_bytes, 100 * 7 * 86400.0 * (700 + 1024), 1e-12));
    assert_true(near(r.tombstones_bytes, 100 * 23 * 86400.0 * 120, 1e-12));
    assert_true(near(r.rows_a_second, 100 * 2 * 1.417, 1e-12));
    assert_true(r.shards == 1);
    p.deadline_s = 18;
    plan_make(&p, &r);
    assert_false(r.worst_fits_deadline);
}

static void the_internet_takes_shards(void **state)
{
    (void)state;
    struct plan_parameters p;
    struct plan_result r;
    plan_defaults(&p);
    p.rate = 1e5;
    plan_make(&p, &r);
    assert_true(r.shards == ceil(1e5 * 2 * 1.417 / 32 / 1000));
    assert_true(near(r.calls_a_shard * r.shards, 1e5, 1e-12));
    assert_true(r.commits_a_shard <= p.disk_commits);
    p.shards = 100;
    plan_make(&p, &r);
    assert_true(r.shards == 100 && r.calls_a_shard == 1000);
}

static void shares_are_whole(void **state)
{
    (void)state;
    struct plan_parameters p;
    struct plan_result r;
    plan_defaults(&p);
    for (p.fail = 0; p.fail <= 1; p.fail += 0.125)
        for (p.timeout = 0; p.fail + p.timeout <= 1; p.timeout += 0.125)
            for (p.receipt_miss = 0; p.receipt_miss <= 1; p.receipt_miss += 0.25) {
                plan_make(&p, &r);
                assert_true(near(r.confirmed_share + r.failed_share + r.unresolved_share, 1, 1e-9));
                assert_true(r.confirmed_share >= -1e-9 && r.attempts_per_call <= r.attempts_worst + 1e-9);
                assert_true(r.attempts_per_call <= r.attempts_per_call_blind + 1e-9);
            }
}

static void a_tombstone_outlives_its_body(void **state)
{
    (void)state;
    struct plan_parameters p;
    char message[NUMBER_MESSAGE_BYTES];
    plan_defaults(&p);
    assert_int_equal(plan_check(&p, message), STATUS_OK);
    p.tombstone_s = p.life_s - 1;
    assert_int_equal(plan_check(&p, message), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formulas_agree_with_the_simulation),
        cmocka_unit_test(worked_by_hand),
        cmocka_unit_test(the_internet_takes_shards),
        cmocka_unit_test(shares_are_whole),
        cmocka_unit_test(a_tombstone_outlives_its_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
