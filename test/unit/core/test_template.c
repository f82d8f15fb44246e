/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "base/prng.h"
#include "core/template.h"

#define NOW INT64_C(1772384399999) /* 2026-03-01T16:59:59.999Z */

/* What the parts stand for: label and value, ended by NULL. */
struct values {
    const char *row[8][2];
};

static const char *const source_names[] = {"json",   "header",  "path", "query", "args",
                                           "method", "call_id", "key",  "origin"};

static bool lookup(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    const struct values *v = context;
    struct buffer label = {0};
    assert_true(source < TEMPLATE_DATE);
    buffer_text(&label, source_names[source]);
    if (name.len) {
        buffer_byte(&label, '.');
        buffer_slice(&label, name);
    }
    bool found = false;
    for (size_t i = 0; i < 8 && v->row[i][0]; i++) {
        if (slice_is(buffer_view(&label), v->row[i][0])) {
            buffer_text(out, v->row[i][1]);
            found = true;
        }
    }
    buffer_fini(&label);
    return found;
}

static enum status render(const char *text, enum template_use use, const struct values *v, struct buffer *out,
                          char missing[32])
{
    struct template t = {0};
    struct template_error error;
    struct slice label = {0};
    struct template_inputs in = {lookup, (void *)(uintptr_t)v, NOW};
    if (template_compile(&t, slice_text(text), use, &error) != STATUS_OK)
        fail_msg("%s: %s at %zu", text, error.message, error.position);
    enum status status = template_render(&t, &in, out, &label);
    if (missing && status == STATUS_NOT_FOUND) {
        memcpy(missing, label.data, label.len);
        missing[label.len] = '\0';
    }
    template_fini(&t);
    return status;
}

static void parts_are_filled_in(void **state)
{
    (void)state;
    static const struct {
        enum template_use use;
        const char *text, *expected;
    } rows[] = {
        {TEMPLATE_FOR_KEY, "order:{json.order_no}:create", "order:o-71:create"},
        {TEMPLATE_FOR_KEY, "{json.order_no}", "o-71"},
        {TEMPLATE_FOR_KEY, "{header.X-Tenant}/{path.id}/{query.q}/{method}", "t%201/7/%2525/POST"},
        {TEMPLATE_FOR_KEY, "checkin:{json.user}:{date:+08:00}", "checkin:u%3A1:2026-03-02"},
        {TEMPLATE_FOR_KEY, "{json.order_no}:{date}", "o-71:2026-03-01"},
        {TEMPLATE_FOR_KEY, "{json.order_no}:{hour}", "o-71:2026-03-01T16"},
        {TEMPLATE_FOR_KEY, "{json.order_no}:{hour:-05:30}", "o-71:2026-03-01T11"},
        {TEMPLATE_FOR_KEY, "{json.order_no}:{minute}", "o-71:2026-03-01T16-59"},
        {TEMPLATE_FOR_KEY, "a{{b}}c:{method}", "a{b}c:POST"},
        {TEMPLATE_FOR_KEY, "{json.order_no}-{method}", "o%2D71-POST"},
        {TEMPLATE_FOR_TEXT, "{header.X-Tenant}", "t 1"},
        {TEMPLATE_FOR_TEXT, "{query.q}{json.user}", "%25u:1"},
        {TEMPLATE_FOR_TEXT, "fixed", "fixed"},
        {TEMPLATE_FOR_URL, "{origin}/.samekey/receipts/{call_id}", "http://a:1/.samekey/receipts/c%3A1"},
        {TEMPLATE_FOR_URL, "POST /orders/{json.order_no}/cancel?u={json.user}",
         "POST /orders/o-71/cancel?u=u%3A1"},
    };
    static const struct values v = {{{"json.order_no", "o-71"},
                                     {"header.X-Tenant", "t 1"},
                                     {"path.id", "7"},
                                     {"query.q", "%25"},
                                     {"method", "POST"},
                                     {"json.user", "u:1"},
                                     {"call_id", "c:1"},
                                     {"origin", "http://a:1"}}};
    struct buffer out = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(render(rows[i].text, rows[i].use, &v, &out, NULL), STATUS_OK);
        check_text(&out, rows[i].expected);
    }
    buffer_fini(&out);
}

static void a_missing_part_is_named(void **state)
{
    (void)state;
    static const struct values v = {{{"json.a", "1"}, {"json.empty", ""}, {"header.H", "a\nb"}}};
    struct buffer out = {0};
    char missing[32] = "";
    buffer_text(&out, "kept");
    assert_int_equal(render("{json.a}:{json.b}", TEMPLATE_FOR_KEY, &v, &out, missing), STATUS_NOT_FOUND);
    assert_string_equal(missing, "json.b");
    assert_int_equal(render("{json.a}:{json.empty}", TEMPLATE_FOR_KEY, &v, &out, missing), STATUS_NOT_FOUND);
    assert_string_equal(missing, "json.empty");
    assert_int_equal(render("{json.empty}", TEMPLATE_FOR_TEXT, &v, &out, missing), STATUS_NOT_FOUND);
    assert_int_equal(render("{header.H}", TEMPLATE_FOR_TEXT, &v, &out, missing), STATUS_INVALID);
    check_text(&out, "kept");
    assert_int_equal(render("{header.H}", TEMPLATE_FOR_KEY, &v, &out, missing), STATUS_OK);
    check_text(&out, "a%0Ab");
    buffer_fini(&out);
}

static void a_key_has_its_bound(void **state)
{
    (void)state;
    static char value[9000];
    struct values v = {{{"json.a", value}}};
    struct buffer out = {0};
    memset(value, 'v', 253);
    assert_int_equal(render("k:{json.a}", TEMPLATE_FOR_KEY, &v, &out, NULL), STATUS_OK);
    assert_int_equal(out.len, 255);
    buffer_clear(&out);
    value[0] = ':';
    assert_int_equal(render("k:{json.a}", TEMPLATE_FOR_KEY, &v, &out, NULL), STATUS_FULL);
    assert_int_equal(render("k:{json.a}", TEMPLATE_FOR_TEXT, &v, &out, NULL), STATUS_OK);
    buffer_clear(&out);
    memset(value, 'v', 8193);
    assert_int_equal(render("{json.a}", TEMPLATE_FOR_TEXT, &v, &out, NULL), STATUS_FULL);
    assert_int_equal(out.len, 0);
    buffer_fini(&out);
}

static void mistakes_are_told_with_place_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t position;
        const char *says;
    } rows[] = {
        {"", 0, "empty"},
        {"order:{json.a", 6, "never closed"},
        {"order:}", 6, "}}"},
        {"{}", 1, "there is no"},
        {"k:{jsn.a}", 3, "use json.PATH"},
        {"k:{json}", 3, "needs a name"},
        {"k:{json.}", 3, "needs a name"},
        {"k:{json:a}", 3, "needs a name"},
        {"k:{method.x}", 9, "nothing may follow"},
        {"k:{date:+8}", 7, "{date:+08:00}"},
        {"k:{date.x}", 7, "offset"},
        {"k:{uuid}", 3, "new on every attempt"},
        {"k:{timestamp}", 3, "order_no"},
        {"k:{random}", 3, "new on every attempt"},
        {"k:{call_id}", 3, "new with every call"},
        {"k:{key}", 3, "the key itself"},
        {"{json.a}{json.b}", 9, "separator is missing"},
        {"{json.a}x{json.b}", 10, "must begin"},
        {"{json.a}%{json.b}", 10, "must begin"},
        {"k {json.a}", 1, "visible ASCII"},
        {"k\xc3\xa9{json.a}", 1, "visible ASCII"},
        {"k\"{json.a}", 1, "quotes"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct template t = {.count = 77};
        struct template_error error = {0};
        enum status status = template_compile(&t, slice_text(rows[i].text), TEMPLATE_FOR_KEY, &error);
        if (status != STATUS_INVALID || error.position != rows[i].position ||
            !strstr(error.message, rows[i].says))
            fail_msg("%s: %d at %zu: %s", rows[i].text, status, error.position, error.message);
        assert_int_equal(t.count, 77);
    }
    /* Bounds: parts, bytes, and a label longer than a message. */
    struct template t = {0};
    struct template_error error = {0};
    struct buffer text = {0};
    for (int i = 0; i < 17; i++)
        buffer_text(&text, "{json.a}:");
    assert_int_equal(template_compile(&t, buffer_view(&text), TEMPLATE_FOR_KEY, &error), STATUS_FULL);
    buffer_clear(&text);
    buffer_text(&text, "{json");
    for (int i = 0; i < 2000; i++)
        buffer_byte(&text, 'x');
    buffer_byte(&text, '}');
    assert_int_equal(template_compile(&t, buffer_view(&text), TEMPLATE_FOR_KEY, &error), STATUS_INVALID);
    for (int i = 0; i < 100; i++)
        buffer_byte(&text, 'x');
    assert_int_equal(template_compile(&t, buffer_view(&text), TEMPLATE_FOR_KEY, &error), STATUS_FULL);
    buffer_fini(&text);
}

static void what_a_template_needs(void **state)
{
    (void)state;
    struct template t = {0};
    struct template_error error;
    assert_int_equal(template_compile(&t, slice_text("{json.a}:{date}"), TEMPLATE_FOR_KEY, &error),
                     STATUS_OK);
    assert_true(template_has_window(&t));
    assert_true(template_uses(&t, TEMPLATE_JSON));
    assert_false(template_uses(&t, TEMPLATE_HEADER));
    template_fini(&t);
    assert_int_equal(template_compile(&t, slice_text("{header.a}"), TEMPLATE_FOR_KEY, &error), STATUS_OK);
    assert_false(template_has_window(&t));
    assert_false(template_uses(&t, TEMPLATE_JSON));
    template_fini(&t);
    template_fini(&t);
    template_fini(NULL);
}

/* Short values over an alphabet of separators, escapes and what they are made of: no two inputs render alike.
 */
static void no_two_inputs_make_one_key(void **state)
{
    (void)state;
    static const char *const templates[] = {"{json.a}:{json.b}", "x{json.a}-{json.b}y", "{json.a}::{json.b}",
                                            "{json.a}%3A{json.b}", "{json.a}_x{json.b}"};
    static const char letters[] = ":-%3A_xy\"\\ \xff";
    struct prng g;
    prng_seed(&g, 5);
    struct {
        char a[4], b[4];
        struct buffer key;
    } seen[300];
    for (size_t t = 0; t < COUNT(templates); t++) {
        struct template compiled = {0};
        struct template_error error;
        /* `%` cannot begin a separator. */
        enum status status = template_compile(&compiled, slice_text(templates[t]), TEMPLATE_FOR_KEY, &error);
        assert_int_equal(status, t == 3 ? STATUS_INVALID : STATUS_OK);
        if (status != STATUS_OK)
            continue;
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < COUNT(seen); i++) {
            for (size_t j = 0; j < 1 + prng_below(&g, 3); j++)
                seen[i].a[j] = letters[prng_below(&g, sizeof letters - 1)];
            for (size_t j = 0; j < 1 + prng_below(&g, 3); j++)
                seen[i].b[j] = letters[prng_below(&g, sizeof letters - 1)];
            struct values v = {{{"json.a", seen[i].a}, {"json.b", seen[i].b}}};
            struct template_inputs in = {lookup, &v, NOW};
            assert_int_equal(template_render(&compiled, &in, &seen[i].key, NULL), STATUS_OK);
            for (size_t j = 0; j < i; j++) {
                bool inputs = strcmp(seen[i].a, seen[j].a) == 0 && strcmp(seen[i].b, seen[j].b) == 0;
                assert_int_equal(slice_equal(buffer_view(&seen[i].key), buffer_view(&seen[j].key)), inputs);
            }
        }
        for (size_t i = 0; i < COUNT(seen); i++)
            buffer_fini(&seen[i].key);
        template_fini(&compiled);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_filled_in),   cmocka_unit_test(a_missing_part_is_named),
        cmocka_unit_test(a_key_has_its_bound),   cmocka_unit_test(mistakes_are_told_with_place_and_remedy),
        cmocka_unit_test(what_a_template_needs), cmocka_unit_test(no_two_inputs_make_one_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
