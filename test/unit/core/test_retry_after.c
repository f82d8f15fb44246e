/* SPDX-License-Identifier: MIT
 *
 * The fifteen values of the field case, with the clock at 2026-03-01T12:00:00Z, and their neighbours.
 */
#include "../base/check.h"

#include "core/retry_after.h"

#define NOW     INT64_C(1772366400000)
#define IGNORED INT64_C(-1)

static void the_fifteen_values(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int64_t wait_ms;
    } rows[] = {
        {"120", 120000},
        {"0", 0},
        {"-5", IGNORED},
        {"1.5", IGNORED},
        {"+30", IGNORED},
        {"  30  ", 30000},
        {"Sun, 01 Mar 2026 12:02:00 GMT", 120000},
        {"Sunday, 01-Mar-26 12:02:00 GMT", 120000},
        {"Sun Mar  1 12:02:00 2026", 120000},
        {"Sun, 01 Mar 2026 11:00:00 GMT", 0},
        {"Sun, 31 Feb 2026 12:02:00 GMT", IGNORED},
        {"99999999999999999999", INT64_MAX},
        {"", IGNORED},
        {"soon", IGNORED},
        {"200", 200000},
        /* neighbours */
        {"9223372036854775", INT64_MAX},
        {"9223372036854774", INT64_C(9223372036854774000)},
        {"922337203685477580700000000000000000000", INT64_MAX},
        {"000000000000000000000000000000120", 120000},
        {"10, 20", IGNORED},
        {"30s", IGNORED},
        {"3 0", IGNORED},
        {"0x10", IGNORED},
        {"\t7", 7000},
        {"2026-03-01T12:02:00Z", IGNORED},
        {"Sun, 01 Mar 2026 12:02:00 UTC", IGNORED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t wait = IGNORED;
        enum status status = retry_after_parse(slice_text(rows[i].value), NOW, &wait);
        if (wait != rows[i].wait_ms || (status == STATUS_OK) != (wait != IGNORED))
            fail_msg("`%s` gave %lld", rows[i].value, (long long)wait);
    }
}

static void of_several_the_longest(void **state)
{
    (void)state;
    int64_t wait = IGNORED;
    struct slice two[] = {SLICE_LITERAL("10"), SLICE_LITERAL("20")};
    struct slice mixed[] = {SLICE_LITERAL("soon"), SLICE_LITERAL("Sun, 01 Mar 2026 12:00:30 GMT"),
                            SLICE_LITERAL("10")};
    struct slice none[] = {SLICE_LITERAL("soon"), SLICE_LITERAL("-1")};
    assert_int_equal(retry_after_longest(two, 2, NOW, &wait), STATUS_OK);
    assert_int_equal(wait, 20000);
    assert_int_equal(retry_after_longest(mixed, 3, NOW, &wait), STATUS_OK);
    assert_int_equal(wait, 30000);
    assert_int_equal(retry_after_longest(none, 2, NOW, &wait), STATUS_INVALID);
    assert_int_equal(retry_after_longest(NULL, 0, NOW, &wait), STATUS_INVALID);
    assert_int_equal(wait, 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fifteen_values),
        cmocka_unit_test(of_several_the_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
