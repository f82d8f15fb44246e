/* SPDX-License-Identifier: MIT
 *
 * The canonical form: pairs that mean the same, pairs that do not, texts that are no JSON, and random
 * documents spelled twice.
 */
#include "../base/check.h"

#include "base/prng.h"
#include "core/canon.h"

#include <stdio.h>

static const struct canon_rules *no_rules = NULL;

/* The form of a text as an own copy. */
static enum status form_of(const char *text, size_t len, const struct canon_rules *rules, struct buffer *out,
                           struct canon_fault *fault)
{
    struct canon c = {0};
    struct slice form;
    enum status status = canon_form(&c, slice_of(text, len), rules, &form, fault);
    buffer_clear(out);
    if (status == STATUS_OK)
        buffer_slice(out, form);
    canon_fini(&c);
    return status;
}

static bool same(const char *a, const char *b, const struct canon_rules *rules)
{
    struct buffer x = {0}, y = {0};
    struct canon_fault fault = {0};
    if (form_of(a, strlen(a), rules, &x, &fault) != STATUS_OK)
        fail_msg("%s: %s at %zu", a, fault.message, fault.position);
    if (form_of(b, strlen(b), rules, &y, &fault) != STATUS_OK)
        fail_msg("%s: %s at %zu", b, fault.message, fault.position);
    bool equal = slice_equal(buffer_view(&x), buffer_view(&y));
    buffer_fini(&x);
    buffer_fini(&y);
    return equal;
}

static void one_meaning(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"1", "1.0"},
        {"1", "10e-1"},
        {"1", "0.1E+1"},
        {"1", "1e0"},
        {"100", "1e2"},
        {"100", "100.000"},
        {"0", "-0"},
        {"0", "0.00e5"},
        {"0", "-0.0E-3"},
        {"-1.50", "-15e-1"},
        {"0.001", "1e-3"},
        {"0.001", "0.1e-2"},
        {"1200.340", "120034e-2"},
        {"1e1000000000", "10e999999999"},
        {"1e1000000000", "0.001e1000000003"},
        {"1e000000000000000000000000000002", "100"},
        {"123456789012345678901234567890", "1.2345678901234567890123456789e29"},
        {"{\"a\":1,\"b\":2}", " { \"b\" : 2 ,\n\t\"a\":1.0\r} "},
        {"{\"a\":{\"x\":1,\"y\":[{\"q\":1,\"p\":2}]}}", "{\"a\":{\"y\":[{\"p\":2,\"q\":1}],\"x\":1}}"},
        {"\"\xc3\xa9\"", "\"\\u00e9\""},
        {"\"/\"", "\"\\/\""},
        {"\"\xf0\x9d\x84\x9e\"", "\"\\uD834\\udd1e\""},
        {"\"A\\\\\\\"\\b\\f\\n\\r\\t\"", "\"\\u0041\\u005c\\u0022\\u0008\\u000c\\u000a\\u000D\\u0009\""},
        {"{\"\\u0061\":1,\"B\":2}", "{\"B\":2,\"a\":1}"},
        {"[]", "[ ]"},
        {"{}", "{\n}"},
        {"null", " null "},
    };
    for (size_t i = 0; i < COUNT(pairs); i++)
        if (!same(pairs[i][0], pairs[i][1], no_rules))
            fail_msg("taken for two: %s and %s", pairs[i][0], pairs[i][1]);
}

static void two_meanings(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"1", "-1"},
        {"1", "10"},
        {"1", "1e1"},
        {"12", "21"},
        {"0.1", "1"},
        {"9007199254740993", "9007199254740992"},
        {"0.1", "0.1000000000000000055511151231257827"},
        {"1e1000000000", "1e1000000001"},
        {"1e-1000000000", "0"},
        {"1e400", "1e401"},
        {"100", "\"100\""},
        {"true", "\"true\""},
        {"null", "\"null\""},
        {"null", "false"},
        {"[]", "{}"},
        {"[1,2]", "[2,1]"},
        {"[1,2]", "[[1],2]"},
        {"[1,2]", "[12]"},
        {"[[],[]]", "[[[]]]"},
        {"{\"a\":1}", "{\"a\":1,\"b\":null}"},
        {"{\"a\":1,\"b\":2}", "{\"a\":2,\"b\":1}"},
        {"{\"a\":\"b\"}", "{\"ab\":\"\"}"},
        {"{\"a\":{\"b\":1}}", "{\"a\":{},\"b\":1}"},
        {"{\"a\":1}", "{\"A\":1}"},
        {"\"\xc3\xa9\"", "\"e\xcc\x81\""}, /* one letter or letter and accent */
        {"\"a\\u0000\"", "\"a\""},
        {"\"a\\u0000b\"", "\"a\""},
        {"\"\"", "\" \""},
    };
    for (size_t i = 0; i < COUNT(pairs); i++)
        if (same(pairs[i][0], pairs[i][1], no_rules))
            fail_msg("taken for one: %s and %s", pairs[i][0], pairs[i][1]);
}

static void what_is_no_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t position;
    } rows[] = {
        {"", 0},
        {"  ", 2},
        {"{", 1},
        {"[1,2", 4},
        {"{\"a\":1}x", 7},
        {"{} {}", 3},
        {"[1,]", 3},
        {"[,1]", 1},
        {"{\"a\":1,}", 7},
        {"{a:1}", 1},
        {"{'a':1}", 1},
        {"{\"a\" 1}", 5},
        {"{\"a\":}", 5},
        {"[1 2]", 3},
        {"[1}", 2},
        {"{\"a\":1]", 6},
        {"]", 0},
        {"01", 0},
        {"-", 1},
        {"-a", 1},
        {"+1", 0},
        {".5", 0},
        {"1.", 2},
        {"1.e1", 2},
        {"1e", 2},
        {"1e+", 3},
        {"0x10", 1},
        {"NaN", 0},
        {"Infinity", 0},
        {"nul", 0},
        {"nulll", 4},
        {"True", 0},
        {"\"a", 2},
        {"\"a\nb\"", 2},
        {"\"\\x41\"", 1},
        {"\"\\u12g4\"", 1},
        {"\"\\u12", 1},
        {"\"\\", 2},
        {"\"\\ud834\"", 1},
        {"\"\\ud834\\u0041\"", 1},
        {"\"\\ud834\\udb50\"", 1},
        {"\"\\ud834\\ue000\"", 1},
        {"\"\\udd1e\"", 1},
        {"\"\\udd1e\\ud834\"", 1},
        {"\"\xff\"", 1},
        {"\"\xc0\xaf\"", 1},
        {"\"\xe0\x80\xaf\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"\"\xf4\x90\x80\x80\"", 1},
        {"\"\xf0\x8f\xbf\xbf\"", 1},
        {"\"\xc3\"", 1},
        {"\"\xe2\x82", 1},
        {"\xef\xbb\xbf{}", 0}, /* a byte order mark */
        {"// c\n1", 0},
        {"1 /* c */", 2},
        {"1e9999999999999999", 0},
        {"0e9999999999999999", 0},
        {"[1,1e-1000000000000000]", 3},
        {"{\"a\":1,\"a\":1}", 7},
        {"{\"a\":1,\"b\":2,\"c\":{},\"\\u0061\":1}", 20},
        {"{\"x\":{\"b\":1,\"a\":2,\"b\":3}}", 18},
    };
    struct buffer out = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct canon_fault fault = {.position = 99};
        enum status status = form_of(rows[i].text, strlen(rows[i].text), no_rules, &out, &fault);
        if (status != STATUS_INVALID || fault.position != rows[i].position || !fault.message)
            fail_msg("%s: %d at %zu: %s", rows[i].text, status, fault.position, fault.message);
    }
    struct canon_fault fault;
    assert_int_equal(form_of("1\0", 2, no_rules, &out, &fault), STATUS_INVALID);
    assert_int_equal(form_of("\"\0\"", 3, no_rules, &out, &fault), STATUS_INVALID);
    buffer_fini(&out);
}

static void depth_has_a_bound(void **state)
{
    (void)state;
    char text[2 * JSON_DEPTH_MAX + 2];
    struct buffer out = {0};
    struct canon_fault fault;
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_int_equal(form_of(text, 2 * JSON_DEPTH_MAX, no_rules, &out, &fault), STATUS_OK);
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_int_equal(form_of(text, 2 * JSON_DEPTH_MAX + 2, no_rules, &out, &fault), STATUS_INVALID);
    assert_int_equal(fault.position, JSON_DEPTH_MAX);
    buffer_fini(&out);
}

/* The field case: one order and thirteen repeats of it. */
static void the_same_json_in_other_bytes(void **state)
{
    (void)state;
    static const char base[] =
        "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
        "ans\",\"zip\":\"45000\"},\"items\":[1,2]}";
    static const struct {
        const char *name, *body;
        bool same;
    } rows[] = {
        {"p01 member order",
         "{\"currency\":\"EUR\",\"amount\":100,\"items\":[1,2],\"ship\":{\"zip\":\"45000\",\"city\":"
         "\"Orl\xc3\xa9"
         "ans\"},\"order\":\"o-71\"}",
         true},
        {"p02 white space",
         "{\n  \"order\" : \"o-71\",\n  \"amount\" : 100,\n  \"currency\" : \"EUR\",\n  \"ship\" : { "
         "\"city\" : "
         "\"Orl\xc3\xa9"
         "ans\", \"zip\" : \"45000\" },\n  \"items\" : [ 1, 2 ]\n}\n",
         true},
        {"p03 escaped letter",
         "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\\u00e9ans\","
         "\"zip\":"
         "\"45000\"},\"items\":[1,2]}",
         true},
        {"p04 escaped plain letter",
         "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"E\\u0055R\",\"ship\":{\"city\":\"Orl\xc3\xa9"
         "ans\",\"zip\":\"45000\"},\"items\":[1,2]}",
         true},
        {"p05 number became text",
         "{\"order\":\"o-71\",\"amount\":\"100\",\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
         "ans\",\"zip\":\"45000\"},\"items\":[1,2]}",
         false},
        {"p06 amount one more",
         "{\"order\":\"o-71\",\"amount\":101,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
         "ans\",\"zip\":\"45000\"},\"items\":[1,2]}",
         false},
        {"p07 list order",
         "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
         "ans\",\"zip\":\"45000\"},\"items\":[2,1]}",
         false},
        {"p08 null member added",
         "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
         "ans\",\"zip\":\"45000\"},\"note\":null,\"items\":[1,2]}",
         false},
        {"p09 letter with a combining accent",
         "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orle\xcc\x81"
         "ans\",\"zip\":\"45000\"},\"items\":[1,2]}",
         false},
        {"p10 100.0 for 100",
         "{\"order\":\"o-71\",\"amount\":100.0,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
         "ans\",\"zip\":\"45000\"},\"items\":[1,2]}",
         true},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (same(base, rows[i].body, no_rules) != rows[i].same)
            fail_msg("%s", rows[i].name);
    static const char *const invalid[] = {
        "{\"order\":\"o-71\",\"amount\":1,\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":"
        "\"Orl\xc3\xa9"
        "ans\",\"zip\":\"45000\"},\"items\":[1,2]}", /* p11 a member twice */
        "{\"order\":\"o-71\",\"amount\":100,\"currency\":\"EUR\",\"ship\":{\"city\":\"Orl\xc3\xa9"
        "ans\",\"zip\":\"45000\"},\"items\":[1,2]", /* p12 not JSON */
    };
    struct buffer out = {0};
    struct canon_fault fault;
    for (size_t i = 0; i < COUNT(invalid); i++)
        assert_int_equal(form_of(invalid[i], strlen(invalid[i]), no_rules, &out, &fault), STATUS_INVALID);
    assert_false(same("{\"order\":\"o-72\",\"amount\":9007199254740992}",
                      "{\"order\":\"o-72\",\"amount\":9007199254740993}", no_rules)); /* p13 */
    buffer_fini(&out);
}

static void paths_say_what_counts(void **state)
{
    (void)state;
    struct canon_path ignore[3], compare[2];
    assert_int_equal(canon_path_parse(slice_text("sent_at"), &ignore[0]), STATUS_OK);
    assert_int_equal(canon_path_parse(slice_text("items.*.note"), &ignore[1]), STATUS_OK);
    assert_int_equal(canon_path_parse(slice_text("list.1"), &ignore[2]), STATUS_OK);
    struct canon_rules rules = {.ignore = ignore, .ignore_count = 3};
    assert_true(same("{\"a\":1,\"sent_at\":1}", "{\"sent_at\":{\"x\":[1]},\"a\":1}", &rules));
    assert_true(same("{\"a\":1,\"sent_at\":1}", "{\"a\":1}", &rules));
    assert_true(same("{\"sent_at\":1}", "{}", &rules));
    assert_false(same("{\"b\":{\"sent_at\":1}}", "{\"b\":{\"sent_at\":2}}", &rules)); /* another member */
    assert_true(same("{\"items\":[{\"note\":1,\"q\":1},{\"q\":2}]}",
                     "{\"items\":[{\"q\":1},{\"q\":2,\"note\":9}]}", &rules));
    assert_false(same("{\"items\":[{\"q\":1}]}", "{\"items\":[{\"q\":2}]}", &rules));
    assert_true(same("{\"list\":[1,2,3]}", "{\"list\":[1,\"x\",3]}", &rules));
    assert_false(
        same("{\"list\":[1,2,3]}", "{\"list\":[1,3]}", &rules)); /* the place counts, not what is there */
    assert_false(same("{\"list\":[1,2]}", "{\"list\":[1]}", &rules));
    assert_false(same("{\"list\":[1,2,3]}", "{\"list\":[2,2,3]}", &rules));

    /* What is ignored must still be JSON, and given once. */
    struct buffer out = {0};
    struct canon_fault fault;
    static const char twice[] = "{\"sent_at\":1,\"sent_at\":2}",
                      inside[] = "{\"sent_at\":{\"b\":1,\"a\":1,\"b\":1}}";
    assert_int_equal(form_of(twice, strlen(twice), &rules, &out, &fault), STATUS_INVALID);
    assert_int_equal(form_of(inside, strlen(inside), &rules, &out, &fault), STATUS_INVALID);

    assert_int_equal(canon_path_parse(slice_text("amount"), &compare[0]), STATUS_OK);
    assert_int_equal(canon_path_parse(slice_text("ship.zip"), &compare[1]), STATUS_OK);
    rules = (struct canon_rules){.compare = compare, .compare_count = 2};
    assert_true(same("{\"amount\":1,\"ship\":{\"zip\":\"1\",\"x\":1}}",
                     "{\"y\":0,\"ship\":{\"x\":2,\"zip\":\"1\"},\"amount\":1.0}", &rules));
    assert_false(
        same("{\"amount\":1,\"ship\":{\"zip\":\"1\"}}", "{\"amount\":1,\"ship\":{\"zip\":\"2\"}}", &rules));
    assert_false(same("{\"amount\":1}", "{\"ship\":{\"zip\":1}}", &rules));
    assert_false(same("{\"amount\":null}", "{}", &rules));
    assert_true(same("{\"x\":1}", "[]", &rules));
    assert_int_equal(form_of(twice, strlen(twice), &rules, &out, &fault), STATUS_INVALID);
    /* Compared, but for a part of it. */
    assert_int_equal(canon_path_parse(slice_text("ship"), &compare[1]), STATUS_OK);
    assert_int_equal(canon_path_parse(slice_text("ship.at"), &ignore[0]), STATUS_OK);
    rules = (struct canon_rules){.compare = compare, .compare_count = 2, .ignore = ignore, .ignore_count = 1};
    assert_true(same("{\"ship\":{\"zip\":1,\"at\":1}}", "{\"ship\":{\"at\":2,\"zip\":1}}", &rules));
    assert_false(same("{\"ship\":{\"zip\":1,\"at\":1}}", "{\"ship\":{\"at\":1,\"zip\":2}}", &rules));
    buffer_fini(&out);

    struct canon_path path;
    assert_int_equal(canon_path_parse(slice_text(""), &path), STATUS_INVALID);
    assert_int_equal(canon_path_parse(slice_text("a..b"), &path), STATUS_INVALID);
    assert_int_equal(canon_path_parse(slice_text(".a"), &path), STATUS_INVALID);
    assert_int_equal(canon_path_parse(slice_text("a."), &path), STATUS_INVALID);
    assert_int_equal(canon_path_parse(slice_text("a b"), &path), STATUS_INVALID);
    assert_int_equal(canon_path_parse(slice_text("1.2.3.4.5.6.7.8.9.0.1.2.3.4.5.6"), &path), STATUS_OK);
    assert_int_equal(canon_path_parse(slice_text("1.2.3.4.5.6.7.8.9.0.1.2.3.4.5.6.7"), &path), STATUS_FULL);
}

/* Ten thousand members in any order: sorted in time, one given twice is found. */
static void many_members(void **state)
{
    (void)state;
    struct buffer up = {0}, down = {0}, x = {0}, y = {0};
    struct canon_fault fault = {0};
    buffer_byte(&up, '{');
    buffer_byte(&down, '{');
    for (int i = 0; i < 10000; i++) {
        buffer_format(&up, "%s\"m%05d\":%d", i ? "," : "", i, i);
        buffer_format(&down, "%s\"m%05d\":%d.0", i ? "," : "", (9999 - i) * 7919 % 10000,
                      (9999 - i) * 7919 % 10000);
    }
    buffer_byte(&up, '}');
    assert_int_equal(form_of(up.data, up.len, no_rules, &x, &fault), STATUS_OK);
    buffer_byte(&down, '}');
    assert_int_equal(form_of(down.data, down.len, no_rules, &y, &fault), STATUS_OK);
    assert_true(slice_equal(buffer_view(&x), buffer_view(&y)));
    down.len--;
    size_t position = down.len + 1;
    buffer_text(&down, ",\"m05000\":1}");
    assert_int_equal(form_of(down.data, down.len, no_rules, &y, &fault), STATUS_INVALID);
    assert_int_equal(fault.position, position);
    buffer_fini(&up);
    buffer_fini(&down);
    buffer_fini(&x);
    buffer_fini(&y);
}

/* ---- random documents, spelled twice ---- */

static void space(struct prng *g, struct buffer *out)
{
    static const char *const spaces[] = {"", "", "", " ", "\n", "\t ", "\r\n"};
    buffer_text(out, spaces[prng_below(g, COUNT(spaces))]);
}

static void spell_text(struct prng *g, const char *text, struct buffer *out)
{
    buffer_byte(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\' || prng_below(g, 3) == 0)
            buffer_format(out, prng_below(g, 2) ? "\\u%04x" : "\\u%04X", (unsigned)*text);
        else
            buffer_byte(out, *text);
    }
    buffer_byte(out, '"');
}

/* mantissa x 10^exponent, in one of many spellings. */
static void spell_number(struct prng *g, int mantissa, int exponent, struct buffer *out)
{
    int zeros = (int)prng_below(g, 3);
    switch (prng_below(g, 3)) {
    case 0:
        buffer_format(out, "%d%.*se%d", mantissa, mantissa ? zeros : 0, "000",
                      mantissa ? exponent - zeros : exponent);
        break;
    case 1:
        buffer_format(out, "%d.%.*sE%+d", mantissa, zeros + 1, "0000", exponent);
        break;
    default:
        if (mantissa % 100 == 0 && exponent < 0 && mantissa)
            buffer_format(out, "%de%d", mantissa / 100, exponent + 2);
        else
            buffer_format(out, "%de%d", mantissa, exponent);
    }
}

static void document(struct prng *g, unsigned depth, struct buffer *a, struct buffer *b)
{
    static const char *const texts[] = {"", "a", "A", "\"\\", "order", "x y"};
    uint64_t kind = prng_below(g, depth ? 8 : 5), n = prng_below(g, 20), list = kind == 5;
    const char *text = texts[prng_below(g, COUNT(texts))];
    int mantissa = (int)prng_below(g, 20000) - 10000, exponent = (int)prng_below(g, 40) - 20;
    space(g, a);
    space(g, b);
    if (kind == 0) {
        static const char *const words[] = {"null", "true", "false"};
        const char *word = words[prng_below(g, 3)];
        buffer_text(a, word);
        buffer_text(b, word);
    } else if (kind < 3) {
        spell_text(g, text, a);
        spell_text(g, text, b);
    } else if (kind < 5) {
        spell_number(g, mantissa, exponent, a);
        spell_number(g, mantissa, exponent, b);
    } else {
        struct buffer x[20] = {0}, y[20] = {0};
        size_t order[20];
        for (size_t i = 0; i < n; i++) {
            char name[8];
            snprintf(name, sizeof name, "%c%c", (char)('a' + i % 3), (char)('A' + i));
            if (!list) {
                spell_text(g, name, &x[i]);
                spell_text(g, name, &y[i]);
                space(g, &x[i]);
                buffer_byte(&x[i], ':');
                buffer_byte(&y[i], ':');
            }
            document(g, depth - 1, &x[i], &y[i]);
            size_t at = list ? i : prng_below(g, i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        buffer_byte(a, list ? '[' : '{');
        buffer_byte(b, list ? '[' : '{');
        for (size_t i = 0; i < n; i++) {
            buffer_text(a, i ? "," : "");
            buffer_text(b, i ? "," : "");
            buffer_slice(a, buffer_view(&x[i]));
            buffer_slice(b, buffer_view(&y[order[i]]));
        }
        buffer_byte(a, list ? ']' : '}');
        buffer_byte(b, list ? ']' : '}');
        for (size_t i = 0; i < n; i++) {
            buffer_fini(&x[i]);
            buffer_fini(&y[i]);
        }
    }
    space(g, a);
    space(g, b);
}

static void random_documents_spelled_twice(void **state)
{
    (void)state;
    struct prng g;
    struct buffer a = {0}, b = {0}, x = {0}, y = {0};
    prng_seed(&g, 20260301);
    for (int round = 0; round < 3000; round++) {
        struct canon_fault fault = {0};
        buffer_clear(&a);
        buffer_clear(&b);
        document(&g, 3, &a, &b);
        if (form_of(a.data, a.len, no_rules, &x, &fault) != STATUS_OK ||
            form_of(b.data, b.len, no_rules, &y, &fault) != STATUS_OK)
            fail_msg("round %d: %s at %zu\n%s\n%s", round, fault.message, fault.position, buffer_cstring(&a),
                     buffer_cstring(&b));
        if (!slice_equal(buffer_view(&x), buffer_view(&y)))
            fail_msg("round %d:\n%s\n%s", round, buffer_cstring(&a), buffer_cstring(&b));
    }
    buffer_fini(&a);
    buffer_fini(&b);
    buffer_fini(&x);
    buffer_fini(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_meaning),
        cmocka_unit_test(two_meanings),
        cmocka_unit_test(what_is_no_json),
        cmocka_unit_test(depth_has_a_bound),
        cmocka_unit_test(the_same_json_in_other_bytes),
        cmocka_unit_test(paths_say_what_counts),
        cmocka_unit_test(many_members),
        cmocka_unit_test(random_documents_spelled_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
