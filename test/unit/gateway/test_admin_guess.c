/* SPDX-License-Identifier: MIT
 *
 * Wrong tokens: the wait doubles and is bounded, forgets, belongs to one address, and the memory is bounded.
 */
#include "gateway/admin_guess.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

static struct guesses g;

static int begin(void **state)
{
    (void)state;
    memset(&g, 0, sizeof g);
    return 0;
}

static int64_t wrong(const char *peer, int64_t now_ms)
{
    int64_t wait = guess_wrong(&g, slice_text(peer), now_ms);
    guess_over(&g, slice_text(peer));
    return wait;
}

static void the_wait_doubles_to_its_bound_and_is_forgotten(void **state)
{
    (void)state;
    static const int64_t waits[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        assert_int_equal(wrong("10.0.0.1", (int64_t)i), waits[i]);
    for (int i = 0; i < 100; i++)
        assert_int_equal(wrong("10.0.0.1", 100), GUESS_WAIT_MAX_MS);
    assert_int_equal(wrong("10.0.0.2", 100), GUESS_WAIT_MS);
    assert_int_equal(wrong("10.0.0.1", 100 + GUESS_FORGET_MS), GUESS_WAIT_MAX_MS);
    assert_int_equal(wrong("10.0.0.1", 201 + 2 * GUESS_FORGET_MS), GUESS_WAIT_MS);
}

static void eight_that_wait_close_the_door_for_their_address_alone(void **state)
{
    (void)state;
    for (int i = 0; i < GUESS_WAITING_MAX; i++) {
        assert_false(guess_crowded(&g, slice_text("10.0.0.1")));
        (void)guess_wrong(&g, slice_text("10.0.0.1"), 0);
    }
    assert_true(guess_crowded(&g, slice_text("10.0.0.1")));
    assert_false(guess_crowded(&g, slice_text("10.0.0.2")));
    guess_over(&g, slice_text("10.0.0.1"));
    assert_false(guess_crowded(&g, slice_text("10.0.0.1")));
    for (int i = 0; i < 100; i++) /* more than there were: no harm */
        guess_over(&g, slice_text("10.0.0.1"));
    assert_int_equal(g.waiting, 0);
}

static void an_ipv6_line_is_one_address(void **state)
{
    (void)state;
    assert_int_equal(wrong("2001:db8:1:2::1", 0), 100);
    assert_int_equal(wrong("2001:db8:1:2:ffff::9", 0), 200);
    assert_int_equal(wrong("2001:db8:1:3::1", 0), 100);
    assert_int_equal(wrong("unix:", 0), 100);
    assert_int_equal(wrong("unix:", 0), 200);
}

static void more_addresses_than_places_push_out_the_oldest(void **state)
{
    (void)state;
    char peer[32];
    (void)wrong("10.9.9.9", 1);
    for (int i = 0; i < GUESS_ADDRESSES_MAX; i++) {
        snprintf(peer, sizeof peer, "10.1.%d.%d", i / 256, i % 256);
        assert_int_equal(wrong(peer, 2 + i), 100);
    }
    assert_int_equal(wrong("10.9.9.9", 5000), 100); /* it was forgotten */
    assert_int_equal(wrong("10.1.3.255", 5001), 200);
}

/* Whoever waits keeps their place, so that what is over is counted off where it was counted. */
static void who_waits_is_not_pushed_out(void **state)
{
    (void)state;
    char peer[32];
    for (int i = 0; i < GUESS_ADDRESSES_MAX; i++) {
        snprintf(peer, sizeof peer, "10.1.%d.%d", i / 256, i % 256);
        (void)guess_wrong(&g, slice_text(peer), i);
    }
    assert_true(guess_crowded(&g, slice_text("10.2.0.1"))); /* all places wait */
    assert_int_equal(guess_wrong(&g, slice_text("10.2.0.1"), 5000), GUESS_WAIT_MAX_MS);
    for (int i = 0; i < GUESS_ADDRESSES_MAX; i++) {
        snprintf(peer, sizeof peer, "10.1.%d.%d", i / 256, i % 256);
        guess_over(&g, slice_text(peer));
    }
    assert_int_equal(g.waiting, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_wait_doubles_to_its_bound_and_is_forgotten, begin),
        cmocka_unit_test_setup(eight_that_wait_close_the_door_for_their_address_alone, begin),
        cmocka_unit_test_setup(an_ipv6_line_is_one_address, begin),
        cmocka_unit_test_setup(more_addresses_than_places_push_out_the_oldest, begin),
        cmocka_unit_test_setup(who_waits_is_not_pushed_out, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
