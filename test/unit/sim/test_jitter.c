/* SPDX-License-Identifier: MIT */
#include "sim/jitter.h"
#include "sim/number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct jitter_result result, again;

static void calls_land_on_the_published_numbers(void **state)
{
    (void)state;
    struct jitter_parameters p;
    jitter_defaults(&p);
    p.steps = 1;
    for (p.seed = 1; p.seed <= 3; p.seed++) {
        assert_int_equal(jitter_run(&p, &result, NULL), STATUS_OK);
        for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++) {
            double published = jitter_published_calls((enum jitter_strategy)s);
            double calls = result.cell[s][0].calls;
            assert_int_equal(result.cell[s][0].clients, 100);
            if (published > 0 && fabs(calls - published) > 0.05 * published)
                fail_msg("%s: %.1f calls, published %.0f", jitter_name((enum jitter_strategy)s), calls,
                         published);
        }
        /* What the experiment is known for. */
        assert_true(result.cell[JITTER_FULL][0].calls < result.cell[JITTER_EXPONENTIAL][0].calls / 2);
        assert_true(result.cell[JITTER_EXPONENTIAL][0].completion_ms >
                    5 * result.cell[JITTER_FULL][0].completion_ms);
    }
}

static void one_client_alone_writes_once_in_four_messages(void **state)
{
    (void)state;
    struct jitter_parameters p;
    jitter_defaults(&p);
    p.clients = p.steps = 1;
    p.delay_deviation_ms = 0;
    assert_int_equal(jitter_run(&p, &result, NULL), STATUS_OK);
    for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++) {
        assert_true(result.cell[s][0].calls == 1);
        assert_true(fabs(result.cell[s][0].completion_ms - 40) < 1e-9);
    }
}

static void two_in_step_make_three_writes(void **state)
{
    (void)state;
    struct jitter_parameters p;
    jitter_defaults(&p);
    p.clients = 2;
    p.steps = 1;
    p.delay_deviation_ms = 0; /* both read version 0; one loses, waits 2 x base and wins alone */
    assert_int_equal(jitter_run(&p, &result, NULL), STATUS_OK);
    assert_true(result.cell[JITTER_EXPONENTIAL][0].calls == 3);
    assert_true(fabs(result.cell[JITTER_EXPONENTIAL][0].completion_ms - (40 + 10 + 40)) < 1e-9);
    assert_true(fabs(result.cell[JITTER_NONE][0].completion_ms - 80) < 1e-9);
}

static void a_run_repeats_and_steps_do_not_matter(void **state)
{
    (void)state;
    struct jitter_parameters p;
    jitter_defaults(&p);
    p.runs = 5;
    assert_int_equal(jitter_run(&p, &result, NULL), STATUS_OK);
    p.steps = 1;
    assert_int_equal(jitter_run(&p, &again, NULL), STATUS_OK);
    for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++)
        assert_memory_equal(&result.cell[s][9], &again.cell[s][0], sizeof result.cell[s][9]);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    struct jitter_parameters p;
    char message[NUMBER_MESSAGE_BYTES] = "";
    jitter_defaults(&p);
    assert_int_equal(jitter_check(&p, message), STATUS_OK);
    p.steps = 200;
    p.clients = 100;
    assert_int_equal(jitter_check(&p, message), STATUS_INVALID);
    assert_string_equal(message, "--steps 200 is more than --clients 100");
    jitter_defaults(&p);
    p.base_ms = 3000;
    assert_int_equal(jitter_check(&p, message), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_land_on_the_published_numbers),
        cmocka_unit_test(one_client_alone_writes_once_in_four_messages),
        cmocka_unit_test(two_in_step_make_three_writes),
        cmocka_unit_test(a_run_repeats_and_steps_do_not_matter),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
