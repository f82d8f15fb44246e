/* SPDX-License-Identifier: MIT */
#include "sim/article.h"
#include "sim/article_call.h"
#include "sim/keeping.h"
#include "sim/number.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void the_default_run_is_the_articles_table(void **state)
{
    (void)state;
    struct article_parameters p;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    article_defaults(&p);
    assert_int_equal(article_run(&p, rows, NULL), STATUS_OK);
    struct buffer text = {0};
    article_csv(&text, &p, rows);
    assert_string_equal(
        buffer_cstring(&text),
        "strategy,confirmed,duplicates,duplicates_with_key,effective_unconfirmed,attempts,mean_wait_s\n"
        "none,114,0,0,24,200,0\n"
        "fixed,196,25,0,4,321,0.3025\n"
        "exponential_jitter,198,18,0,1,300,0.25621006164174487\n");
    buffer_clear(&text);
    article_text(&text, &p, rows);
    assert_non_null(strstr(buffer_cstring(&text), " 0.2562\n"));
    buffer_fini(&text);
}

/* The same parameters through CPython's own generator, in a loop written from the contract. */
static void compare_with_cpython(const struct article_parameters *p)
{
    char command[1000];
    snprintf(command, sizeof command,
             "/usr/bin/python3 " SAMEKEY_SOURCE_DIR "/test/unit/sim/article_reference.py '{\"calls\":%" PRIu64
             ",\"fail\":%.17g,\"timeout\":%.17g,\"attempts\":%u,\"fixed_delay\":%.17g,\"base\":%.17g,\"cap\":"
             "%.17g,"
             "\"low\":%.17g,\"high\":%.17g,\"seed\":%" PRIu64 "}'",
             p->calls, p->fail, p->timeout, p->attempts, p->fixed_delay_s, p->base_s, p->cap_s, p->jitter_low,
             p->jitter_high, p->seed);
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    assert_int_equal(article_run(p, rows, NULL), STATUS_OK);
    FILE *python = popen(command, "r");
    assert_non_null(python);
    for (size_t i = 0; i < p->strategy_count; i++) {
        char line[300], name[40];
        uint64_t confirmed = 0, duplicates = 0, unconfirmed = 0, attempts = 0;
        double wait = -1;
        assert_non_null(fgets(line, sizeof line, python));
        assert_int_equal(sscanf(line, "%39[^,],%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%lf", name,
                                &confirmed, &duplicates, &unconfirmed, &attempts, &wait),
                         6);
        assert_string_equal(name, article_name(rows[i].strategy));
        assert_int_equal(rows[i].confirmed, confirmed);
        assert_int_equal(rows[i].duplicates, duplicates);
        assert_int_equal(rows[i].effective_unconfirmed, unconfirmed);
        assert_int_equal(rows[i].attempts, attempts);
        assert_true(rows[i].mean_wait_s == wait); /* the same double, not nearly */
    }
    assert_int_equal(pclose(python), 0);
}

static void ten_other_sets_equal_cpythons_own_generator(void **state)
{
    (void)state;
    static const struct {
        uint64_t calls;
        double fail, timeout;
        unsigned attempts;
        double fixed, base, cap, low, high;
        uint64_t seed;
    } sets[] = {
        {1, 0.3, 0.1, 4, 0.5, 0.5, 4, 0.5, 1, 0},
        {1000, 0.3, 0.1, 4, 0.5, 0.5, 4, 0.5, 1, 1},
        {1000, 0.05, 0.6, 7, 0.1, 0.3, 2.5, 0, 1, 7},
        {5000, 0.9, 0.1, 3, 0.7, 0.1, 100, 0.8, 1.2, 123456789},
        {777, 0, 0, 4, 0.5, 0.5, 4, 0.5, 1, 42},
        {777, 0, 1, 5, 0.25, 0.01, 0.02, 1, 1, 42},
        {777, 1, 0, 40, 0.3, 1e-3, 1e9, 0.1, 0.3, 4294967295},
        {3000, 0.123, 0.0456, 1, 0.5, 0.5, 4, 0.5, 1, 4294967296},
        {3000, 0.3, 0.3, 12, 0.2, 3, 1, 0.5, 1.5, UINT64_C(9223372036854775808)},
        {20000, 0.5, 0.25, 1000, 0.1, 0.1, 0.1, 0.9, 0.9, UINT64_MAX},
        {313, 0.33, 0.1, 4, 0.5, 0.5, 4, 0.5, 1, 624},
    };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct article_parameters p;
        article_defaults(&p);
        p.calls = sets[i].calls;
        p.fail = sets[i].fail;
        p.timeout = sets[i].timeout;
        p.attempts = sets[i].attempts;
        p.fixed_delay_s = sets[i].fixed;
        p.base_s = sets[i].base;
        p.cap_s = sets[i].cap;
        p.jitter_low = sets[i].low;
        p.jitter_high = sets[i].high;
        p.seed = sets[i].seed;
        compare_with_cpython(&p);
    }
}

static void run_all(struct article_parameters *p, struct article_row *rows)
{
    char message[NUMBER_MESSAGE_BYTES];
    article_defaults(p);
    p->calls = 50000;
    assert_int_equal(article_strategies(p, "all", message), STATUS_OK);
    assert_int_equal(article_run(p, rows, NULL), STATUS_OK);
}

static void one_key_leaves_no_duplicate_and_a_new_key_leaves_them_all(void **state)
{
    (void)state;
    struct article_parameters p;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    run_all(&p, rows);
    for (size_t i = 0; i < p.strategy_count; i++) {
        const struct article_row *r = &rows[i];
        if (r->strategy == ARTICLE_SWAPPED_KEY) {
            assert_true(r->duplicates > 1000);
            assert_int_equal(r->duplicates_with_key, r->duplicates);
        } else {
            assert_int_equal(r->duplicates_with_key, 0);
        }
        if (r->strategy == ARTICLE_SAME_KEY || r->strategy == ARTICLE_RECEIPT_FIRST)
            assert_int_equal(r->duplicates, 0);
        if (r->strategy == ARTICLE_FIXED || r->strategy == ARTICLE_FULL_JITTER ||
            r->strategy == ARTICLE_EXPONENTIAL)
            assert_true(r->duplicates > 1000);
    }
}

static void asking_the_receipt_first_leaves_nobody_in_doubt(void **state)
{
    (void)state;
    struct article_parameters p;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    run_all(&p, rows);
    const struct article_row *r = &rows[p.strategy_count - 1];
    assert_int_equal(r->strategy, ARTICLE_RECEIPT_FIRST);
    assert_int_equal(r->effective_unconfirmed, 0);
    assert_true(r->receipt_queries > 0);
    /* Only four definite failures in a row end a call: 0.3^4 of them, give or take 4 deviations. */
    double failed = (double)(p.calls - r->confirmed);
    double expected = (double)p.calls * 0.3 * 0.3 * 0.3 * 0.3;
    assert_true(failed > expected - 80 && failed < expected + 80);
    /* It asks at most once for each timeout, and never more often than it sends. */
    assert_true(r->receipt_queries < r->attempts);
}

static void the_remembered_answers_are_the_keepers(void **state)
{
    (void)state;
    static const enum keeping_verdict same[KEPT_COUNT] = {
        [KEPT_NOTHING] = KEEPING_RUN,
        [KEPT_FAILED] = KEEPING_RUN,
        [KEPT_SUCCESS] = KEEPING_REPLAY,
        [KEPT_RUNNING] = KEEPING_WAIT,
    };
    for (unsigned kept = 0; kept < KEPT_COUNT; kept++) {
        enum keeping_verdict verdict = KEEPING_WAIT;
        assert_int_equal(keeping_arrive((enum kept)kept, false, &verdict), STATUS_OK);
        assert_int_equal(verdict, same[kept]);
        assert_int_equal(keeping_arrive((enum kept)kept, true, &verdict), STATUS_OK);
        assert_int_equal(verdict, KEEPING_RUN);
    }
}

static void rows_are_parsed_or_refused(void **state)
{
    (void)state;
    struct article_parameters p;
    char message[NUMBER_MESSAGE_BYTES] = "";
    article_defaults(&p);
    assert_int_equal(article_strategies(&p, "same_key, none", message), STATUS_OK);
    assert_int_equal(p.strategy_count, 2);
    assert_int_equal(p.strategies[0], ARTICLE_SAME_KEY);
    assert_int_equal(p.strategies[1], ARTICLE_NONE);
    static const char *const bad[] = {
        "",
        "none,",
        ",none",
        "nome",
        "NONE",
        "none fixed",
        "none,none,none,none,none,none,none,none,none,none,none,none,none,none,none,none,none"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(article_strategies(&p, bad[i], message), STATUS_INVALID);
        assert_int_equal(p.strategy_count, 2); /* as before */
        assert_non_null(strstr(message, "--strategies"));
    }
    p.fail = 0.95;
    p.timeout = 0.1;
    assert_int_equal(article_check(&p, message), STATUS_INVALID);
    assert_string_equal(message, "--fail 0.95 and --timeout 0.1 add up to 1.05; together at most 1");
}

static void the_json_has_the_contracts_members(void **state)
{
    (void)state;
    struct article_parameters p;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    article_defaults(&p);
    assert_int_equal(article_run(&p, rows, NULL), STATUS_OK);
    struct buffer json = {0}, again = {0};
    article_json(&json, &p, rows);
    assert_non_null(strstr(buffer_cstring(&json),
                           "{\"strategy\": \"fixed\", \"confirmed\": 196, \"duplicates\": 25, "
                           "\"duplicates_with_key\": 0, \"effective_unconfirmed\": 4, \"attempts\": 321, "
                           "\"mean_wait_s\": 0.3025}"));
    assert_int_equal(article_run(&p, rows, NULL), STATUS_OK);
    article_json(&again, &p, rows);
    assert_string_equal(buffer_cstring(&json), buffer_cstring(&again));
    buffer_fini(&json);
    buffer_fini(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_run_is_the_articles_table),
        cmocka_unit_test(ten_other_sets_equal_cpythons_own_generator),
        cmocka_unit_test(one_key_leaves_no_duplicate_and_a_new_key_leaves_them_all),
        cmocka_unit_test(asking_the_receipt_first_leaves_nobody_in_doubt),
        cmocka_unit_test(the_remembered_answers_are_the_keepers),
        cmocka_unit_test(rows_are_parsed_or_refused),
        cmocka_unit_test(the_json_has_the_contracts_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
