/* SPDX-License-Identifier: MIT */
#include "sim/agenda.h"
#include "sim/number.h"
#include "sim/progress.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void reals_are_read_whole_or_refused(void **state)
{
    (void)state;
    char message[NUMBER_MESSAGE_BYTES];
    double value = -1;
    assert_int_equal(number_real(&value, "--fail", "0.3", 0, 1, message), STATUS_OK);
    assert_true(value == 0.3);
    assert_int_equal(number_real(&value, "--fail", ".5", 0, 1, message), STATUS_OK);
    assert_int_equal(number_real(&value, "--fail", "1e-3", 0, 1, message), STATUS_OK);
    static const char *const bad[] = {"1.5", "-0.1", "",    " 0.3", "0.3 ",  "0.3x",
                                      "nan", "inf",  "0x1", "abc",  "1e400", "."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(number_real(&value, "--fail", bad[i], 0, 1, message), STATUS_INVALID);
    assert_true(value == 1e-3); /* untouched */
    number_real(&value, "--fail", "1.5", 0, 1, message);
    assert_string_equal(message, "--fail is '1.5'; it must lie in 0 to 1");
}

static void whole_numbers_use_all_64_bits(void **state)
{
    (void)state;
    char message[NUMBER_MESSAGE_BYTES];
    uint64_t value = 1;
    assert_int_equal(number_whole(&value, "--seed", "18446744073709551615", 0, UINT64_MAX, message),
                     STATUS_OK);
    assert_true(value == UINT64_MAX);
    static const char *const bad[] = {
        "18446744073709551616", "-1", "+1", " 1", "1 ", "1.0", "", "0x10", "1e3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(number_whole(&value, "--seed", bad[i], 0, UINT64_MAX, message), STATUS_INVALID);
    assert_int_equal(number_whole(&value, "--calls", "0", 1, 10, message), STATUS_INVALID);
    assert_string_equal(message, "--calls is '0'; it must be a whole number from 1 to 10");
}

static void durations_take_the_contracts_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"0.5", 0.5}, {"500ms", 0.5}, {"100ms", 0.1}, {"3s", 3},
                {"5m", 300},  {"24h", 86400}, {"7d", 604800}};
    char message[NUMBER_MESSAGE_BYTES];
    double value = -1;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(number_duration(&value, "--life", good[i].text, 0, 1e9, message), STATUS_OK);
        assert_true(value == good[i].seconds);
    }
    static const char *const bad[] = {"", "s", "1 s", "1y", "1sm", "-1s", "2000000000s", "ms"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(number_duration(&value, "--life", bad[i], 0, 1e9, message), STATUS_INVALID);
}

static void ranges_are_in_order(void **state)
{
    (void)state;
    char message[NUMBER_MESSAGE_BYTES];
    double low = -1, high = -1;
    assert_int_equal(number_range(&low, &high, "--jitter", "0.8:1.2", message), STATUS_OK);
    assert_true(low == 0.8 && high == 1.2);
    static const char *const bad[] = {"", ":", "1", "1:", ":1", "1:0.5", "0:11", "0.5:1:2", "a:b", "-1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(number_range(&low, &high, "--jitter", bad[i], message), STATUS_INVALID);
    assert_true(low == 0.8 && high == 1.2);
}

static const char *shown(struct buffer *b, double value, int decimals)
{
    buffer_clear(b);
    if (decimals < 0)
        number_exact(b, value);
    else
        number_short(b, value, decimals);
    return buffer_cstring(b);
}

static void printing_is_exact_or_short(void **state)
{
    (void)state;
    struct buffer b = {0};
    assert_string_equal(shown(&b, 0.3025, -1), "0.3025");
    assert_string_equal(shown(&b, 0.25621006164174487, -1), "0.25621006164174487");
    assert_string_equal(shown(&b, 0, -1), "0");
    assert_string_equal(shown(&b, 0.1 + 0.2, -1), "0.30000000000000004");
    assert_string_equal(shown(&b, 0.25621, 4), "0.2562");
    assert_string_equal(shown(&b, 1.5, 4), "1.5");
    assert_string_equal(shown(&b, 200, 2), "200");
    assert_string_equal(shown(&b, -0.001, 2), "0");
    buffer_fini(&b);
}

static void the_agenda_keeps_time_and_order(void **state)
{
    (void)state;
    struct agenda a = {0};
    struct agenda_event e;
    uint32_t random = 12345;
    assert_false(agenda_take(&a, &e));
    for (uint32_t i = 0; i < 5000; i++) {
        random = random * 1664525 + 1013904223;
        assert_int_equal(agenda_add(&a, (double)(random >> 24), i, i, 0),
                         STATUS_OK); /* many at the same time */
        if (i % 3 == 0)
            assert_true(agenda_take(&a, &e));
    }
    double time = -1;
    uint64_t order = 0;
    size_t left = a.count;
    for (; agenda_take(&a, &e); left--) {
        assert_true(e.time > time || (e.time == time && e.order > order));
        time = e.time;
        order = e.order;
    }
    assert_int_equal(left, 0);
    agenda_fini(&a);
    agenda_fini(&a);
}

static void the_bar_tells_the_time_left(void **state)
{
    (void)state;
    char line[120];
    progress_line(line, sizeof line, 0.5, 10);
    assert_string_equal(line, "[###############...............]  50 %  10 s left");
    progress_line(line, sizeof line, 0, 10);
    assert_string_equal(line, "[..............................]   0 %");
    progress_line(line, sizeof line, 0.1, 60);
    assert_string_equal(line, "[###...........................]  10 %  9 min left");
    progress_line(line, sizeof line, 1.5, 60);
    assert_string_equal(line, "[##############################] 100 %  0 s left");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reals_are_read_whole_or_refused),
        cmocka_unit_test(whole_numbers_use_all_64_bits),
        cmocka_unit_test(durations_take_the_contracts_units),
        cmocka_unit_test(ranges_are_in_order),
        cmocka_unit_test(printing_is_exact_or_short),
        cmocka_unit_test(the_agenda_keeps_time_and_order),
        cmocka_unit_test(the_bar_tells_the_time_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
