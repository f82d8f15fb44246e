/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "base/prng.h"
#include "core/budget.h"

static unsigned take_all(struct budget *b, int64_t now_ms)
{
    unsigned taken = 0;
    while (budget_has(b, now_ms)) {
        assert_true(budget_take(b, now_ms));
        taken++;
    }
    assert_false(budget_take(b, now_ms));
    return taken;
}

static void a_share_of_the_calls_and_a_floor(void **state)
{
    (void)state;
    struct budget b;
    budget_init(&b, 20, 10, 5000);
    assert_int_equal(take_all(&b, 5000), 10); /* the floor's burst */
    assert_int_equal(take_all(&b, 5099), 0);
    assert_int_equal(take_all(&b, 5100), 1);
    for (int i = 0; i < 4; i++)
        budget_call(&b, 5100);
    assert_int_equal(take_all(&b, 5100), 0);
    budget_call(&b, 5100);
    assert_int_equal(take_all(&b, 5100), 1); /* five calls are one retry */
    for (int i = 0; i < 500; i++)
        budget_call(&b, 5100);
    assert_int_equal(take_all(&b, 5100), 100);
    assert_int_equal(take_all(&b, 6100), 10);
    assert_int_equal(take_all(&b, 6600), 5);
    assert_int_equal(take_all(&b, 9000), 10);
    budget_init(&b, 20, 10, 5000);
    assert_int_equal(take_all(&b, 8000), 10); /* an idle time saves one second up, not three */
    assert_int_equal(take_all(&b, 4000), 0);  /* a clock that goes back gives nothing */
}

static void what_is_not_used_is_forgotten(void **state)
{
    (void)state;
    struct budget b;
    budget_init(&b, 20, 0, 0);
    for (int i = 0; i < 500; i++)
        budget_call(&b, 500);
    assert_true(budget_has(&b, 9999));
    assert_false(budget_has(&b, 10000));
    for (int i = 0; i < 5; i++)
        budget_call(&b, INT64_C(1) << 60);
    assert_int_equal(take_all(&b, INT64_C(1) << 60), 1);
    budget_init(&b, 0, 0, 0);
    for (int i = 0; i < 500; i++)
        budget_call(&b, 0);
    assert_int_equal(take_all(&b, 0), 0);
}

/* An outage: every attempt fails and asks for a retry. Load grows by the share and the floor, never more. */
static void an_outage_does_not_double_its_load(void **state)
{
    (void)state;
    struct budget b;
    struct prng g;
    unsigned calls = 0, retries = 0;
    prng_seed(&g, 1);
    budget_init(&b, 20, 10, 0);
    for (int64_t now = 0; now < 60000; now += 1 + (int64_t)prng_below(&g, 3)) {
        budget_call(&b, now);
        calls++;
        for (int n = 0; n < 3; n++)
            retries += budget_take(&b, now);
    }
    assert_true(retries <= calls / 5 + 10 * 61);
    assert_true(retries >= calls / 5 + 10 * 60 - 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_of_the_calls_and_a_floor),
        cmocka_unit_test(what_is_not_used_is_forgotten),
        cmocka_unit_test(an_outage_does_not_double_its_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
