/* SPDX-License-Identifier: MIT
 *
 * Times as logs write them, all of one moment, and texts that are no times.
 */
#include "forensics/moment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MOMENT_US INT64_C(1772355600250000) /* 2026-03-01T09:00:00.250Z */

static struct moment parse(const char *text, struct zone *zone)
{
    struct moment_cache cache = {0};
    struct moment m = {0};
    if (moment_parse(slice_text(text), zone, &cache, &m) != STATUS_OK)
        fail_msg("%s is a time", text);
    return m;
}

static void test_one_moment_in_every_form(void **state)
{
    static const char *const forms[] = {
        "2026-03-01T09:00:00.250Z",
        "2026-03-01 09:00:00,250Z",
        "2026-03-01T10:00:00.250+01:00",
        "2026-03-01T03:30:00.250 -0530",
        "2026/03/01 09:00:00.250000Z",
        "01/Mar/2026:09:00:00.250 +0000",
        "01/Mar/2026:10:00:00.250 +0100",
        "[01/Mar/2026:09:00:00.250 +00]",
        "1772355600.250",
        "1772355600250",
        "1772355600250000",
        "1772355600250000000",
        "2026-03-01t09:00:00.250499z",
    };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct moment m = parse(forms[i], NULL);
        if (m.us / 1000 != MOMENT_US / 1000 || !m.fine || m.local)
            fail_msg("%s: %lld", forms[i], (long long)m.us);
    }
}

static void test_what_is_no_time(void **state)
{
    static const char *const texts[] = {"",
                                        "2026-02-30T09:00:00Z",
                                        "2026-03-01",
                                        "2026-03-01T25:00:00Z",
                                        "12345",
                                        "9999999999999999999",
                                        "01/Foo/2026:09:00:00",
                                        "2026-03-01T09:00:00.250Zx",
                                        "2026-03-01T09:00",
                                        "yesterday",
                                        "31/Apr/2026:09:00:00 +0000"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct moment_cache cache = {0};
        struct moment m = {.us = 7};
        if (moment_parse(slice_text(texts[i]), NULL, &cache, &m) == STATUS_OK)
            fail_msg("%s is no time", texts[i]);
        assert_int_equal(m.us, 7);
    }
}

static void test_local_times_and_zones(void **state)
{
    struct zone berlin, fixed, utc, none = {0};
    (void)state;
    assert_int_equal(zone_parse("Europe/Berlin", &berlin), STATUS_OK);
    assert_int_equal(zone_parse("+08:00", &fixed), STATUS_OK);
    assert_int_equal(zone_parse("UTC", &utc), STATUS_OK);
    assert_int_equal(zone_parse("Europe/Nowhere", &none), STATUS_INVALID);
    assert_int_equal(zone_parse("../../etc/passwd", &none), STATUS_INVALID);
    assert_int_equal(parse("2026-03-01 10:00:00.250", &berlin).us, MOMENT_US);
    assert_int_equal(parse("2026-07-01 10:00:00", &berlin).us - parse("2026-07-01T08:00:00Z", NULL).us,
                     0); /* summer */
    assert_int_equal(parse("2026-03-29 01:59:59", &berlin).us, parse("2026-03-29T00:59:59Z", NULL).us);
    assert_int_equal(parse("2026-03-29 03:00:00", &berlin).us,
                     parse("2026-03-29T01:00:00Z", NULL).us); /* the hour that is skipped */
    assert_int_equal(parse("2026-03-01 17:00:00.250", &fixed).us, MOMENT_US);
    assert_int_equal(parse("2026-03-01 09:00:00.250", &utc).us, MOMENT_US);
    struct moment m = parse("2026-03-01 09:00:00.250", NULL);
    assert_true(m.local && m.wrong_local);
    assert_false(parse("2026-03-01T09:00:00.250Z", &berlin).local);
}

static void test_prefix_says_how_much_it_took(void **state)
{
    struct moment_cache cache = {0};
    struct moment m;
    size_t taken;
    (void)state;
    assert_int_equal(moment_prefix(slice_text("2026-03-01T09:00:00.250Z INFO x"), NULL, &cache, &m, &taken),
                     STATUS_OK);
    assert_int_equal(taken, 24);
    assert_int_equal(moment_prefix(slice_text("[2026-03-01 09:00:00,250] x"), NULL, &cache, &m, &taken),
                     STATUS_OK);
    assert_int_equal(taken, 25);
    assert_int_equal(moment_prefix(slice_text("INFO x"), NULL, &cache, &m, &taken), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_moment_in_every_form),
        cmocka_unit_test(test_what_is_no_time),
        cmocka_unit_test(test_local_times_and_zones),
        cmocka_unit_test(test_prefix_says_how_much_it_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
