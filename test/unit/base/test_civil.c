/* SPDX-License-Identifier: MIT
 *
 * Expected unix times are from GNU date (`date -u -d ... +%s`).
 */
#include "check.h"

#include "base/civil.h"

#define NOW INT64_C(1772366400000) /* 2026-03-01T12:00:00Z */

static void rfc3339_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-03-01T12:00:00Z", NOW},
        {"2026-03-01t12:00:00z", NOW},
        {"2026-03-01 12:00:00Z", NOW},
        {"2026-03-01T20:00:00+08:00", NOW},
        {"2026-03-01T06:30:00-05:30", NOW},
        {"2026-03-01T12:00:00.25Z", NOW + 250},
        {"2026-03-01T12:00:00.2509999999999999Z", NOW + 250},
        {"2024-02-29T23:59:59.999Z", INT64_C(1709251199999)},
        {"2000-02-29T00:00:00Z", INT64_C(951782400000)},
        {"2016-12-31T23:59:60Z", INT64_C(1483228800000)}, /* a leap second is the second after it */
        {"1969-12-31T23:59:59.999Z", -1},
        {"0000-01-01T00:00:00Z", CIVIL_MS_MIN},
        {"9999-12-31T23:59:59.999Z", CIVIL_MS_MAX},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ms = 1;
        assert_int_equal(civil_parse_rfc3339(slice_text(rows[i].text), &ms), STATUS_OK);
        assert_int_equal(ms, rows[i].ms);
    }
}

static void what_is_no_time_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "2026-03-01",
        "2026-03-01T12:00:00",
        "2026-03-01T12:00Z",
        "2026-02-31T12:00:00Z",
        "2026-02-29T12:00:00Z",
        "1900-02-29T12:00:00Z",
        "2026-04-31T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-00-01T12:00:00Z",
        "2026-03-00T12:00:00Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T12:60:00Z",
        "2026-03-01T12:00:61Z",
        "2026-03-01T12:00:00.Z",
        "2026-03-01T12:00:00+8:00",
        "2026-03-01T12:00:00+0800",
        "2026-03-01T12:00:00+24:00",
        "2026-03-01T12:00:00+08:60",
        "2026-03-01T12:00:00Zx",
        " 2026-03-01T12:00:00Z",
        "26-03-01T12:00:00Z",
        "+026-03-01T12:00:00Z",
        "0000-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int64_t ms = 77;
        if (civil_parse_rfc3339(slice_text(wrong[i]), &ms) != STATUS_INVALID || ms != 77)
            fail_msg("was read: %s", wrong[i]);
    }
}

static void every_day_comes_back(void **state)
{
    (void)state;
    struct buffer b = {0};
    int64_t step = INT64_C(86400000) * 37 + 12345678, last_day = -1;
    for (int64_t ms = CIVIL_MS_MIN; ms <= CIVIL_MS_MAX; ms += step) {
        int64_t again = 0;
        struct civil t;
        civil_print_rfc3339(ms, &b);
        assert_int_equal(b.len, 24);
        assert_int_equal(civil_parse_rfc3339(buffer_view(&b), &again), STATUS_OK);
        assert_int_equal(again, ms);
        civil_from_ms(ms, &t);
        assert_in_range(t.weekday, 0, 6);
        assert_int_not_equal(t.year * 400 + t.month * 31 + t.day, last_day);
        last_day = t.year * 400 + t.month * 31 + t.day;
        buffer_clear(&b);
        civil_print_http(ms, &b);
        assert_int_equal(civil_parse_http(buffer_view(&b), 0, &again), STATUS_OK);
        assert_int_equal(again, ms - ((ms % 1000) + 1000) % 1000);
        buffer_clear(&b);
    }
    civil_print_rfc3339(INT64_MAX, &b);
    check_text(&b, "9999-12-31T23:59:59.999Z");
    civil_print_http(NOW, &b);
    check_text(&b, "Sun, 01 Mar 2026 12:00:00 GMT");
    buffer_fini(&b);
}

static void the_three_http_dates_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", INT64_C(784111777000)},
        {"Sunday, 06-Nov-94 08:49:37 GMT", INT64_C(784111777000)},
        {"Sun Nov  6 08:49:37 1994", INT64_C(784111777000)},
        {"Sun Nov 16 08:49:37 1994", INT64_C(784975777000)},
        {"Mon, 06 Nov 1994 08:49:37 GMT", INT64_C(784111777000)},   /* the weekday is not judged */
        {"Sunday, 01-Mar-76 12:00:00 GMT", INT64_C(3350289600000)}, /* exactly 50 years ahead */
        {"Sunday, 01-Mar-76 12:00:01 GMT", INT64_C(194529601000)},  /* over 50: 1976 */
        {"Sunday, 01-Mar-77 12:00:00 GMT", INT64_C(226065600000)},
        {"Sunday, 01-Mar-75 12:00:00 GMT", INT64_C(3318667200000)},
        {"Sunday, 01-Mar-26 12:02:00 GMT", NOW + 120000},
        {"Saturday, 01-Jan-00 00:00:00 GMT", INT64_C(946684800000)},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ms = 1;
        if (civil_parse_http(slice_text(rows[i].text), NOW, &ms) != STATUS_OK || ms != rows[i].ms)
            fail_msg("%s was read as %lld", rows[i].text, (long long)ms);
    }
    /* Near the end of a century the candidates reach into the next one. */
    int64_t ms = 0, in_1999 = INT64_C(930000000000);
    assert_int_equal(civil_parse_http(slice_text("Saturday, 01-Jan-00 00:00:00 GMT"), in_1999, &ms),
                     STATUS_OK);
    assert_int_equal(ms, INT64_C(946684800000));
}

static void other_dates_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "Sun, 31 Feb 2026 12:02:00 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun,06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Xxx, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sunday, 29-Feb-25 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov 06 08:49:37 1994 GMT",
        "Sun Nov  6 08:49:37 94",
        "1994-11-06T08:49:37Z",
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int64_t ms = 77;
        if (civil_parse_http(slice_text(wrong[i]), NOW, &ms) != STATUS_INVALID || ms != 77)
            fail_msg("was read: %s", wrong[i]);
    }
}

static void offsets_are_read(void **state)
{
    (void)state;
    int minutes = 77;
    assert_int_equal(civil_parse_offset(slice_text("+08:00"), &minutes), STATUS_OK);
    assert_int_equal(minutes, 480);
    assert_int_equal(civil_parse_offset(slice_text("-03:30"), &minutes), STATUS_OK);
    assert_int_equal(minutes, -210);
    assert_int_equal(civil_parse_offset(slice_text("Z"), &minutes), STATUS_OK);
    assert_int_equal(minutes, 0);
    assert_int_equal(civil_parse_offset(slice_text("+8"), &minutes), STATUS_INVALID);
    assert_int_equal(civil_parse_offset(slice_text(""), &minutes), STATUS_INVALID);
    assert_int_equal(civil_parse_offset(slice_text("08:00"), &minutes), STATUS_INVALID);
    /* The empty slice may have no pointer. */
    int64_t ms = 0;
    assert_int_equal(civil_parse_offset(slice_of(NULL, 0), &minutes), STATUS_INVALID);
    assert_int_equal(civil_parse_rfc3339(slice_of(NULL, 0), &ms), STATUS_INVALID);
    assert_int_equal(civil_parse_http(slice_of(NULL, 0), NOW, &ms), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc3339_is_read),         cmocka_unit_test(what_is_no_time_is_refused),
        cmocka_unit_test(every_day_comes_back),    cmocka_unit_test(the_three_http_dates_are_read),
        cmocka_unit_test(other_dates_are_refused), cmocka_unit_test(offsets_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
