/* SPDX-License-Identifier: MIT */
#include "check.h"

#include "base/duration.h"

static void durations_are_read_and_printed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
        const char *printed;
    } rows[] = {
        {"250ms", 250, "250ms"},
        {"3s", 3000, "3s"},
        {"5m", 300000, "5m"},
        {"24h", 86400000, "1d"},
        {"7d", 604800000, "7d"},
        {"0", 0, "0"},
        {"0s", 0, "0"},
        {"1500ms", 1500, "1500ms"},
        {"90s", 90000, "90s"},
        {"36500d", DURATION_MS_MAX, "36500d"},
        {"forever", DURATION_FOREVER, "forever"},
    };
    struct buffer b = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ms = -1;
        assert_int_equal(duration_parse(slice_text(rows[i].text), &ms), STATUS_OK);
        assert_int_equal(ms, rows[i].ms);
        duration_print(ms, &b);
        check_text(&b, rows[i].printed);
    }
    buffer_fini(&b);
}

static void slips_are_errors(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",    "5",    "ms",      "-1s",   "+1s",     "1.5s",
                                        "5 s", " 5s",  "5s ",     "1h30m", "5M",      "5x",
                                        "s5",  "0x5s", "Forever", "1w",    "foreverx"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int64_t ms = 77;
        assert_int_equal(duration_parse(slice_text(wrong[i]), &ms), STATUS_INVALID);
        assert_int_equal(ms, 77);
    }
    int64_t ms = 77;
    assert_int_equal(duration_parse(slice_text("36501d"), &ms), STATUS_FULL);
    assert_int_equal(duration_parse(slice_text("99999999999999999999999ms"), &ms), STATUS_FULL);
    assert_int_equal(duration_parse(slice_text("99999999999999999999999q"), &ms), STATUS_INVALID);
    assert_int_equal(duration_parse(slice_of("5s\0", 3), &ms), STATUS_INVALID);
    assert_int_equal(ms, 77);
}

static void sizes_are_read_and_printed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
        const char *printed;
    } rows[] = {
        {"64k", 65536, "64k"},
        {"1m", 1048576, "1m"},
        {"2G", INT64_C(2) << 30, "2g"},
        {"512", 512, "512"},
        {"0", 0, "0"},
        {"1024", 1024, "1k"},
        {"1025", 1025, "1025"},
        {"1048576g", SIZE_BYTES_MAX, "1048576g"},
    };
    struct buffer b = {0};
    int64_t bytes = -1;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(size_parse(slice_text(rows[i].text), &bytes), STATUS_OK);
        assert_int_equal(bytes, rows[i].bytes);
        size_print(bytes, &b);
        check_text(&b, rows[i].printed);
    }
    assert_int_equal(size_parse(slice_text("1kb"), &bytes), STATUS_INVALID);
    assert_int_equal(size_parse(slice_text("1.5m"), &bytes), STATUS_INVALID);
    assert_int_equal(size_parse(slice_text(""), &bytes), STATUS_INVALID);
    assert_int_equal(size_parse(slice_text("1048577g"), &bytes), STATUS_FULL);
    buffer_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_read_and_printed),
        cmocka_unit_test(slips_are_errors),
        cmocka_unit_test(sizes_are_read_and_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
