/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "base/prng.h"
#include "core/breaker.h"

static const struct breaker_rule rule = {
    .failures_percent = 50, .calls_min = 20, .window_ms = 10000, .open_ms = 5000, .probes = 1};

/* One whole attempt at `now`; true if it was let through. */
static bool attempt(struct breaker *b, int64_t now_ms, enum breaker_verdict verdict)
{
    struct breaker_ticket ticket;
    if (!breaker_admit(b, now_ms, &ticket))
        return false;
    breaker_report(b, now_ms, ticket, verdict, 0);
    assert_true(breaker_invariant(b));
    return true;
}

static void attempts(struct breaker *b, int count, int64_t now_ms, enum breaker_verdict verdict)
{
    while (count-- > 0)
        assert_true(attempt(b, now_ms, verdict));
}

static void it_opens_at_the_share_and_not_before(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &rule, 0);
    attempts(&b, 19, 0, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_CLOSED); /* too few calls to decide */
    attempts(&b, 1, 0, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_OPEN);
    assert_false(attempt(&b, 4999, BREAKER_GOOD));
    assert_int_equal(breaker_wait_ms(&b, 1000), 4000);

    breaker_init(&b, &rule, 0);
    attempts(&b, 21, 0, BREAKER_GOOD);
    attempts(&b, 20, 0, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_CLOSED);
    attempts(&b, 1, 0, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_OPEN);

    /* A good answer that lowers the share, or a neutral one, never opens it. */
    breaker_init(&b, &rule, 0);
    attempts(&b, 19, 0, BREAKER_BAD);
    attempts(&b, 1, 0, BREAKER_GOOD);
    attempts(&b, 100, 0, BREAKER_NEUTRAL);
    assert_int_equal(b.state, BREAKER_CLOSED);
}

static void the_window_forgets(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &rule, 500);
    attempts(&b, 19, 500, BREAKER_BAD);
    attempts(&b, 1, 10500, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_CLOSED);
    attempts(&b, 18, 11000, BREAKER_BAD);
    attempts(&b, 1, 19000, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_OPEN);
}

static void a_probe_decides(void **state)
{
    (void)state;
    struct breaker b;
    struct breaker_ticket probe, other;
    breaker_init(&b, &rule, 0);
    attempts(&b, 20, 0, BREAKER_BAD);
    assert_int_equal(breaker_state_now(&b, 4999), BREAKER_OPEN);
    assert_int_equal(breaker_state_now(&b, 5000), BREAKER_HALF_OPEN);
    assert_true(breaker_admit(&b, 5000, &probe));
    assert_false(breaker_admit(&b, 5000, &other));                     /* one at a time */
    assert_false(breaker_report(&b, 5100, probe, BREAKER_NEUTRAL, 0)); /* said nothing: the next may try */
    assert_true(breaker_admit(&b, 5100, &probe));
    assert_true(breaker_report(&b, 5200, probe, BREAKER_BAD, 0.5));
    assert_int_equal(b.state, BREAKER_OPEN);
    assert_int_equal(b.open_until_ms, 5200 + 5000 + 500); /* stretched by half the jitter */
    assert_true(breaker_admit(&b, 10700, &probe));
    assert_true(breaker_report(&b, 10800, probe, BREAKER_GOOD, 0));
    assert_int_equal(b.state, BREAKER_CLOSED);
    attempts(&b, 19, 10800, BREAKER_BAD); /* the old failures are forgotten */
    assert_int_equal(b.state, BREAKER_CLOSED);
}

static void several_probes_must_all_be_good(void **state)
{
    (void)state;
    struct breaker b;
    struct breaker_rule three = rule;
    struct breaker_ticket probe[4];
    three.probes = 3;
    breaker_init(&b, &three, 0);
    attempts(&b, 20, 0, BREAKER_BAD);
    for (int i = 0; i < 3; i++)
        assert_true(breaker_admit(&b, 5000, &probe[i]));
    assert_false(breaker_admit(&b, 5000, &probe[3]));
    assert_false(breaker_report(&b, 5000, probe[0], BREAKER_GOOD, 0));
    assert_false(breaker_admit(&b, 5000, &probe[3]));
    assert_false(breaker_report(&b, 5000, probe[1], BREAKER_GOOD, 0));
    assert_true(breaker_report(&b, 5000, probe[2], BREAKER_BAD, 0));
    assert_int_equal(b.state, BREAKER_OPEN);
}

static void late_reports_move_nothing(void **state)
{
    (void)state;
    struct breaker b;
    struct breaker_ticket late, probe;
    breaker_init(&b, &rule, 0);
    assert_true(breaker_admit(&b, 0, &late));
    attempts(&b, 20, 0, BREAKER_BAD);
    assert_false(breaker_report(&b, 100, late, BREAKER_GOOD, 0));
    assert_int_equal(b.state, BREAKER_OPEN);
    assert_true(breaker_admit(&b, 5000, &probe));
    assert_false(breaker_report(&b, 5000, late, BREAKER_BAD, 0));
    assert_int_equal(b.state, BREAKER_HALF_OPEN);
}

static void zero_percent_is_off(void **state)
{
    (void)state;
    struct breaker b;
    struct breaker_rule off = rule;
    off.failures_percent = 0;
    breaker_init(&b, &off, 0);
    attempts(&b, 1000, 0, BREAKER_BAD);
    assert_int_equal(b.state, BREAKER_CLOSED);
}

static void what_counts(void **state)
{
    (void)state;
    static const struct {
        bool own;
        int status;
        bool unknown;
        enum breaker_verdict verdict;
    } rows[] = {
        {false, 200, false, BREAKER_GOOD}, {false, 400, false, BREAKER_GOOD},
        {false, 409, true, BREAKER_GOOD},  {false, 422, false, BREAKER_GOOD},
        {false, 202, false, BREAKER_GOOD}, {false, 500, true, BREAKER_BAD},
        {false, 500, false, BREAKER_BAD},  {false, 503, true, BREAKER_BAD},
        {false, 0, true, BREAKER_BAD},     {false, 0, false, BREAKER_BAD},
        {false, 200, true, BREAKER_BAD},   {false, 429, false, BREAKER_NEUTRAL},
        {true, 0, false, BREAKER_NEUTRAL}, {true, 503, false, BREAKER_NEUTRAL},
        {false, 408, true, BREAKER_BAD},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(breaker_judge(rows[i].own, rows[i].status, rows[i].unknown), rows[i].verdict);
}

/* Any order of admissions and reports keeps the invariant, and an open breaker lets nothing pass. */
static void the_invariant_holds(void **state)
{
    (void)state;
    struct breaker b;
    struct prng g;
    struct breaker_rule small = {30, 5, 1000, 300, 2};
    struct breaker_ticket open[50];
    size_t count = 0;
    int64_t now = 0;
    prng_seed(&g, 9);
    breaker_init(&b, &small, 0);
    for (int i = 0; i < 100000; i++) {
        now += (int64_t)prng_below(&g, 30);
        if (count < COUNT(open) && prng_below(&g, 2)) {
            bool closed = breaker_state_now(&b, now) == BREAKER_OPEN;
            bool passed = breaker_admit(&b, now, &open[count]);
            assert_false(closed && passed);
            count += passed;
        } else if (count) {
            size_t which = prng_below(&g, count);
            struct breaker_ticket ticket = open[which];
            open[which] = open[--count];
            breaker_report(&b, now, ticket, (enum breaker_verdict)prng_below(&g, 3), prng_double(&g));
        }
        assert_true(breaker_invariant(&b));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_opens_at_the_share_and_not_before),
        cmocka_unit_test(the_window_forgets),
        cmocka_unit_test(a_probe_decides),
        cmocka_unit_test(several_probes_must_all_be_good),
        cmocka_unit_test(late_reports_move_nothing),
        cmocka_unit_test(zero_percent_is_off),
        cmocka_unit_test(what_counts),
        cmocka_unit_test(the_invariant_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
