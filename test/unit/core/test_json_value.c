/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/json_value.h"

static const char body[] = "{\"a\":{\"b\":[{\"c\":12.50},\"x\\u00e9\\n\",true,null,[],{}]},\"e\\u0066\":\"\","
                           "\"0\":{\"1\":-0},\"big\":9007199254740993,\"\":1}";

static void values_are_found_and_written_as_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum json_kind kind;
        const char *text; /* NULL: no scalar */
    } rows[] = {
        {"a.b.0.c", JSON_NUMBER, "12.50"},
        {"a.b.1", JSON_STRING, "x\xc3\xa9\n"},
        {"a.b.2", JSON_TRUE, "true"},
        {"a.b.3", JSON_NULL, NULL},
        {"a.b.4", JSON_LIST, NULL},
        {"a.b.5", JSON_OBJECT, NULL},
        {"a.b", JSON_LIST, NULL},
        {"a", JSON_OBJECT, NULL},
        {"ef", JSON_STRING, ""},
        {"0.1", JSON_NUMBER, "-0"},
        {"big", JSON_NUMBER, "9007199254740993"},
        {"", JSON_OBJECT, NULL},
    };
    struct buffer b = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct json_value v;
        if (json_find(slice_text(body), slice_text(rows[i].path), &v) != STATUS_OK)
            fail_msg("not found: %s", rows[i].path);
        assert_int_equal(v.kind, rows[i].kind);
        assert_int_equal(json_value_text(&v, &b), rows[i].text ? STATUS_OK : STATUS_NOT_FOUND);
        check_text(&b, rows[i].text ? rows[i].text : "");
    }
    buffer_fini(&b);
}

static void what_is_not_there(void **state)
{
    (void)state;
    static const char *const paths[] = {"x",       "a.x",       "a.b.6",   "a.b.00",
                                        "a.b.-1",  "a.b.0.c.d", "a.b.x",   "A",
                                        "big.0",   "a.b.4.0",   "a.b.1.0", "a.b.99999999999999999999",
                                        "e\\u0066"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct json_value v;
        if (json_find(slice_text(body), slice_text(paths[i]), &v) != STATUS_NOT_FOUND)
            fail_msg("found: %s", paths[i]);
    }
}

static void only_in_a_text_that_is_json_to_its_end(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{\"a\":1",
        "{\"a\":1}x",
        "{\"a\":1,}",
        "{\"a\":1,\"b\":[1,}",
        "{\"b\":tru,\"a\":1}",
        "{\"a\":1,\"b\":\"\xff\"}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"a\":{\"b\":1},\"x\":0,\"a\":{}}",
        "nul",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct json_value v;
        if (json_find(slice_text(texts[i]), slice_text("a"), &v) != STATUS_INVALID)
            fail_msg("was believed: %s", texts[i]);
    }
    /* A member twice somewhere else is not on the path, and a name deeper down is another member. */
    struct json_value v;
    assert_int_equal(json_find(slice_text("{\"a\":1,\"b\":{\"a\":2}}"), slice_text("a"), &v), STATUS_OK);
    assert_int_equal(json_find(slice_text("{\"b\":{\"a\":2},\"a\":{\"a\":1}}"), slice_text("a.a"), &v),
                     STATUS_OK);
    assert_true(slice_is(v.raw, "1"));
    assert_int_equal(json_find(slice_text("{\"a\":{\"a\":1,\"a\":2}}"), slice_text("a.a"), &v),
                     STATUS_INVALID);
    assert_int_equal(json_find(slice_text("{\"a\":{},\"a\":{\"a\":2}}"), slice_text("a.a"), &v),
                     STATUS_INVALID);
}

static void the_prefix_comes_off(void **state)
{
    (void)state;
    struct slice path;
    assert_int_equal(json_path_strip(slice_text("json.a.b"), &path), STATUS_OK);
    assert_true(slice_is(path, "a.b"));
    assert_int_equal(json_path_strip(slice_text("json."), &path), STATUS_INVALID);
    assert_int_equal(json_path_strip(slice_text("jsonx.a"), &path), STATUS_INVALID);
    assert_int_equal(json_path_strip(slice_text(""), &path), STATUS_INVALID);
}

static void one_number_is_one_text(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *normal;
    } table[] = {
        {"100", "100"},
        {"1e2", "100"},
        {"100.0", "100"},
        {"10e1", "100"},
        {"1E+2", "100"},
        {"1000e-1", "100"},
        {"0", "0"},
        {"-0", "0"},
        {"0.0", "0"},
        {"-0e7", "0"},
        {"0.10", "0.1"},
        {"1e-1", "0.1"},
        {"12.50", "12.5"},
        {"-12.5", "-12.5"},
        {"0.001", "0.001"},
        {"1e-3", "0.001"},
        {"9007199254740993", "9007199254740993"},
        {"1e40", "1e40"},
        {"1e39", "1000000000000000000000000000000000000000"},
        {"12e1000000000", "12e1000000000"},
        {"1e-41", "1e-41"},
        {"0.00000000000000000000000000000000000000001", "1e-41"},
        {"120e-1", "12"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct json_value v;
        struct buffer out = {0};
        assert_int_equal(json_find(slice_text(table[i].raw), slice_of("", 0), &v), STATUS_OK);
        assert_int_equal(json_value_normal(&v, &out), STATUS_OK);
        assert_string_equal(buffer_cstring(&out), table[i].normal);
        buffer_fini(&out);
    }
    struct json_value v;
    struct buffer out = {0};
    assert_int_equal(json_find(slice_text("1e1000000000000000"), slice_of("", 0), &v), STATUS_OK);
    assert_int_equal(json_value_normal(&v, &out), STATUS_INVALID);
    assert_int_equal(out.len, 0);
    buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_and_written_as_they_are),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(only_in_a_text_that_is_json_to_its_end),
        cmocka_unit_test(the_prefix_comes_off),
        cmocka_unit_test(one_number_is_one_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
