/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/key.h"

static void spellings_of_one_key(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"k-1", "k-1"},         {"\"k-1\"", "k-1"},
        {"  k-1\t", "k-1"},     {" \"k-1\" ", "k-1"},
        {"\"a\\\"b\"", "a\"b"}, {"\"a\\\\b\"", "a\\b"},
        {"a\"b", "a\"b"},       {"a\\b", "a\\b"},
        {"K-1", "K-1"},         {"order:42;create,x", "order:42;create,x"},
        {"!~", "!~"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct key k;
        const char *why = "";
        if (key_parse(slice_text(rows[i][0]), &k, &why) != STATUS_OK)
            fail_msg("%s: %s", rows[i][0], why);
        assert_string_equal(k.bytes, rows[i][1]);
        assert_int_equal(k.len, strlen(rows[i][1]));
    }
}

static void what_is_no_key(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",        " ",      "\"\"",      "\"",           "\"k",           "k 1",
        "\"k 1\"", "k\t1",   "k\x7f",     "k\x80",        "k\xc3\xa9",     "\"k\\1\"",
        "\"k\\",   "\"k\"x", "\"k\";a=1", "\"k\", \"k\"", "\"k\xc3\xa9\"", "k\n",
        "\"k\\\"",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct key k = {.len = 77};
        const char *why = NULL;
        if (key_parse(slice_text(rows[i]), &k, &why) != STATUS_INVALID || !why || k.len != 77)
            fail_msg("was read: %s", rows[i]);
    }
    struct key k;
    assert_int_equal(key_parse(slice_of("k\0", 2), &k, NULL), STATUS_INVALID);
}

static void the_longest(void **state)
{
    (void)state;
    char text[2 * KEY_BYTES_MAX + 4];
    struct key k;
    memset(text, 'k', sizeof text);
    assert_int_equal(key_parse(slice_of(text, 255), &k, NULL), STATUS_OK);
    assert_int_equal(key_parse(slice_of(text, 256), &k, NULL), STATUS_INVALID);
    text[0] = text[256] = '"';
    assert_int_equal(key_parse(slice_of(text, 257), &k, NULL), STATUS_OK);
    assert_int_equal(k.len, 255);
    text[256] = 'k';
    text[257] = '"';
    assert_int_equal(key_parse(slice_of(text, 258), &k, NULL), STATUS_INVALID);
    /* Escapes count once: 255 quotes are written in 512 bytes. */
    text[0] = '"';
    for (int i = 0; i < 255; i++) {
        text[1 + 2 * i] = '\\';
        text[2 + 2 * i] = '"';
    }
    text[511] = '"';
    assert_int_equal(key_parse(slice_of(text, 512), &k, NULL), STATUS_OK);
    assert_int_equal(k.len, 255);
}

static void a_header_sent_more_than_once(void **state)
{
    (void)state;
    struct key k;
    const char *why = NULL;
    struct slice one[] = {SLICE_LITERAL("k-1"), SLICE_LITERAL("\"k-1\""), SLICE_LITERAL(" k-1 ")};
    struct slice two[] = {SLICE_LITERAL("k-1"), SLICE_LITERAL("K-1")};
    struct slice bad[] = {SLICE_LITERAL("k-1"), SLICE_LITERAL("")};
    assert_int_equal(key_parse_all(one, 3, &k, &why), STATUS_OK);
    assert_string_equal(k.bytes, "k-1");
    assert_int_equal(key_parse_all(two, 2, &k, &why), STATUS_INVALID);
    assert_non_null(strstr(why, "two"));
    assert_int_equal(key_parse_all(bad, 2, &k, &why), STATUS_INVALID);
    assert_int_equal(key_parse_all(NULL, 0, &k, &why), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_of_one_key),
        cmocka_unit_test(what_is_no_key),
        cmocka_unit_test(the_longest),
        cmocka_unit_test(a_header_sent_more_than_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
