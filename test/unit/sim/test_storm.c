/* SPDX-License-Identifier: MIT */
#include "sim/number.h"
#include "sim/storm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct storm_run runs[STORM_STRATEGY_COUNT], other;

static void run_all(const struct storm_parameters *p)
{
    for (int s = 0; s < STORM_STRATEGY_COUNT; s++)
        assert_int_equal(storm_run(p, (enum storm_strategy)s, &runs[s]), STATUS_OK);
}

static double confirmed(enum storm_strategy s)
{
    return (double)runs[s].confirmed / (double)runs[s].calls;
}

static void the_reference_spike(void **state)
{
    (void)state;
    struct storm_parameters p;
    storm_defaults(&p);
    for (p.seed = 1; p.seed <= 5; p.seed++) {
        run_all(&p);
        assert_int_equal(runs[0].calls, 2600);
        /* Without backoff about 45 % and it stays so; with backoff and jitter about 98 %. */
        assert_true(confirmed(STORM_NO_BACKOFF) > 0.42 && confirmed(STORM_NO_BACKOFF) < 0.48);
        assert_false(runs[STORM_NO_BACKOFF].recovered);
        assert_true(runs[STORM_NO_BACKOFF].tail_success == 0);
        assert_true(confirmed(STORM_JITTER) > 0.96);
        assert_true(confirmed(STORM_TWENTY) > 0.96);
        assert_false(runs[STORM_FIXED].recovered);
        static const enum storm_strategy well[] = {STORM_EXPONENTIAL,   STORM_JITTER,      STORM_TWENTY,
                                                   STORM_BUDGET,        STORM_BREAKER,     STORM_QUEUE_LIMIT,
                                                   STORM_RECEIPT_FIRST, STORM_ALL_TOGETHER};
        for (size_t i = 0; i < sizeof well / sizeof well[0]; i++)
            if (!runs[well[i]].recovered)
                fail_msg("%s did not recover", storm_name(well[i]));
    }
}

static void a_short_backoff_only_puts_the_collapse_off(void **state)
{
    (void)state;
    struct storm_parameters p;
    storm_defaults(&p);
    p.base_s = 0.5;
    p.cap_s = 4;
    run_all(&p);
    assert_false(runs[STORM_JITTER].recovered);
    assert_false(runs[STORM_EXPONENTIAL].recovered);
    assert_true(runs[STORM_RECEIPT_FIRST].recovered);
    assert_true(runs[STORM_ALL_TOGETHER].recovered);
}

static void receipts_leave_no_duplicate_work(void **state)
{
    (void)state;
    struct storm_parameters p;
    storm_defaults(&p);
    for (int poisson = 0; poisson < 2; poisson++) {
        p.poisson = poisson;
        p.seed = 7;
        run_all(&p);
        assert_int_equal(runs[STORM_RECEIPT_FIRST].duplicates, 0);
        assert_int_equal(runs[STORM_ALL_TOGETHER].duplicates, 0);
        assert_true(runs[STORM_RECEIPT_FIRST].receipt_queries > 0);
        assert_int_equal(runs[STORM_NO_BACKOFF].receipt_queries, 0);
    }
    storm_defaults(&p);
    run_all(&p);
    assert_true(runs[STORM_NO_BACKOFF].duplicates > 1000);
    assert_int_equal(runs[STORM_QUEUE_LIMIT].duplicates, 0); /* nothing accepted is given up */
}

static void no_spike_no_storm(void **state)
{
    (void)state;
    struct storm_parameters p;
    storm_defaults(&p);
    p.spike_rate = p.rate;
    run_all(&p);
    for (int s = 0; s < STORM_STRATEGY_COUNT; s++) {
        assert_int_equal(runs[s].confirmed, runs[s].calls);
        assert_int_equal(runs[s].attempts, runs[s].calls);
        assert_int_equal(runs[s].duplicates, 0);
    }
}

static void the_seconds_add_up(void **state)
{
    (void)state;
    struct storm_parameters p;
    storm_defaults(&p);
    run_all(&p);
    for (int s = 0; s < STORM_STRATEGY_COUNT; s++) {
        double arrived = 0, served = 0;
        for (size_t i = 0; i < (size_t)p.length_s; i++) {
            arrived += runs[s].second[i].attempts;
            served += runs[s].second[i].goodput;
        }
        assert_true(arrived <= (double)runs[s].attempts);
        assert_true(served <= (double)runs[s].confirmed);
        assert_true(runs[s].second[5].goodput == 40 && runs[s].second[5].attempts == 40);
        /* The server never does more than it can; only a receipt may tell of older work. */
        for (size_t i = 0; i < (size_t)p.length_s && s != STORM_RECEIPT_FIRST && s != STORM_ALL_TOGETHER; i++)
            assert_true(runs[s].second[i].goodput <= p.capacity + 1);
    }
}

static void the_same_seed_is_the_same_storm(void **state)
{
    (void)state;
    struct storm_parameters p;
    storm_defaults(&p);
    p.poisson = true;
    for (int s = 0; s < STORM_STRATEGY_COUNT; s++) {
        assert_int_equal(storm_run(&p, (enum storm_strategy)s, &runs[s]), STATUS_OK);
        assert_int_equal(storm_run(&p, (enum storm_strategy)s, &other), STATUS_OK);
        assert_memory_equal(&runs[s], &other, sizeof other);
        assert_int_equal(runs[s].calls, runs[0].calls); /* every strategy meets the same calls */
    }
}

static void layers_multiply_and_one_owner_does_not(void **state)
{
    (void)state;
    assert_int_equal(storm_layers(3, 4, false), 64);
    assert_int_equal(storm_layers(3, 4, true), 4);
    assert_int_equal(storm_layers(1, 4, false), 4);
    assert_int_equal(storm_layers(5, 1, false), 1);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    struct storm_parameters p;
    char message[NUMBER_MESSAGE_BYTES] = "";
    storm_defaults(&p);
    assert_int_equal(storm_check(&p, message), STATUS_OK);
    p.spike_start_s = 58;
    assert_int_equal(storm_check(&p, message), STATUS_INVALID);
    assert_string_equal(message, "the spike ends at 63 s, after --length 60 s");
    storm_defaults(&p);
    p.rate = 10000;
    assert_int_equal(storm_check(&p, message), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_spike),
        cmocka_unit_test(a_short_backoff_only_puts_the_collapse_off),
        cmocka_unit_test(receipts_leave_no_duplicate_work),
        cmocka_unit_test(no_spike_no_storm),
        cmocka_unit_test(the_seconds_add_up),
        cmocka_unit_test(the_same_seed_is_the_same_storm),
        cmocka_unit_test(layers_multiply_and_one_owner_does_not),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
