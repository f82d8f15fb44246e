/* SPDX-License-Identifier: MIT */
#include "check.h"

#include "base/base64.h"
#include "base/hex.h"
#include "base/prng.h"

static void the_rfcs_own_rows(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xfe\xfb", "//77"},
    };
    struct buffer b = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        base64_encode(slice_text(rows[i][0]), &b);
        check_text(&b, rows[i][1]);
        assert_int_equal(base64_decode(slice_text(rows[i][1]), &b), STATUS_OK);
        check_text(&b, rows[i][0]);
    }
    buffer_fini(&b);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    struct prng g;
    struct buffer text = {0}, back = {0};
    char bytes[100];
    prng_seed(&g, 3);
    for (size_t len = 0; len < sizeof bytes; len++) {
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)prng_next(&g);
        base64_encode(slice_of(bytes, len), &text);
        assert_int_equal(base64_decode(buffer_view(&text), &back), STATUS_OK);
        assert_true(slice_equal(buffer_view(&back), slice_of(bytes, len)));
        buffer_clear(&text);
        buffer_clear(&back);
    }
    buffer_fini(&text);
    buffer_fini(&back);
}

static void loose_texts_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "Z", "Zg", "Zg=", "Zh==", "Zm9=", "====", "=AAA", "Zm=v", "Zm9v\n", "Zm9 ", "Zm-_", "Zg==Zg=="};
    struct buffer b = {0};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        if (base64_decode(slice_text(wrong[i]), &b) != STATUS_INVALID || b.len)
            fail_msg("was read: %s", wrong[i]);
    }
    buffer_fini(&b);
}

static void hex_goes_both_ways(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x00, 0x9f, 0xa0, 0xff};
    uint8_t back[4];
    char text[9] = {0};
    hex_write(text, bytes, 4);
    assert_string_equal(text, "009fa0ff");
    assert_true(hex_read(slice_text(text), back, 4));
    assert_memory_equal(back, bytes, 4);
    assert_false(hex_read(slice_text("009FA0FF"), back, 4));
    assert_false(hex_read(slice_text("009fa0f"), back, 4));
    assert_false(hex_read(slice_text("009fa0fg"), back, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rfcs_own_rows),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(loose_texts_are_refused),
        cmocka_unit_test(hex_goes_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
