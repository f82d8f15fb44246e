/* SPDX-License-Identifier: MIT
 *
 * Times as other people's files write them, and sums that stay within their bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "review/span.h"

static int64_t parsed(const char *text, int64_t unit_ms)
{
    int64_t ms = -1;
    return span_parse(&ms, slice_text(text), unit_ms) ? ms : -1;
}

static void spellings(void **state)
{
    (void)state;
    assert_int_equal(parsed("250ms", 0), 250);
    assert_int_equal(parsed("0.25s", 0), 250);
    assert_int_equal(parsed("1.5s", 0), 1500);
    assert_int_equal(parsed("1h30m", 0), 5400000);
    assert_int_equal(parsed("PT1.5S", 0), 1500);
    assert_int_equal(parsed("P1DT2H", 0), 93600000);
    assert_int_equal(parsed("7d", 0), 604800000);
    assert_int_equal(parsed("60", 1000), 60000);
    assert_int_equal(parsed(" 5000 ", 1), 5000);
    assert_int_equal(parsed("500us", 0), 0);
    assert_int_equal(parsed("2500us", 0), 2);
    assert_int_equal(parsed("forever", 0), SPAN_FOREVER);
}

static void refusals(void **state)
{
    static const char *const wrong[] = {"",  "s", "-1s", "1x", "1s2", "1,5s", "$T", "{{ .Values.timeout }}",
                                        ".", "P"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(parsed(wrong[i], 0), -1);
    assert_int_equal(parsed("60", 0), -1);
}

static void sums_stop_at_their_bound(void **state)
{
    int64_t n = 0;
    (void)state;
    assert_int_equal(parsed("99999999999999999999999999d", 0), SPAN_MAX_MS);
    assert_int_equal(span_add(SPAN_MAX_MS, SPAN_MAX_MS), SPAN_MAX_MS);
    assert_int_equal(span_add(1, SPAN_FOREVER), SPAN_FOREVER);
    assert_int_equal(span_multiply(SPAN_MAX_MS, 3), SPAN_MAX_MS);
    assert_int_equal(span_multiply(SPAN_FOREVER, 2), SPAN_FOREVER);
    assert_int_equal(span_multiply(0, SPAN_FOREVER), 0);
    assert_true(number_parse(&n, slice_text("-12")) && n == -12);
    assert_false(number_parse(&n, slice_text("1234567890123456789")));
    assert_false(number_parse(&n, slice_text("12a")));
    assert_int_equal(n, -12);
}

static void for_people(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {{0, "0 ms"},         {999, "999 ms"},    {1500, "1.5 s"},
                 {18625, "18.625 s"}, {90000, "90 s"},    {1800000, "30 min"},
                 {86400000, "24 h"},  {604800000, "7 d"}, {SPAN_FOREVER, "for ever"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer out = {0};
        span_text(&out, cases[i].ms);
        assert_string_equal(buffer_cstring(&out), cases[i].text);
        buffer_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(sums_stop_at_their_bound),
        cmocka_unit_test(for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
