/* SPDX-License-Identifier: MIT */
#include "gateway/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void set(struct settings *s, struct route_settings *r, const char *name, const char *const *values,
                size_t n)
{
    struct buffer why = {0};
    struct slice texts[16];
    for (size_t i = 0; i < n; i++)
        texts[i] = slice_text(values[i]);
    enum status status = settings_set(s, r, settings_find(slice_text(name)), texts, n,
                                      (struct setting_origin){SETTING_SOURCE_FILE, 3}, &why);
    if (status != STATUS_OK)
        fail_msg("%s: %s", name, buffer_cstring(&why));
    buffer_fini(&why);
}

static struct route_settings *add(struct settings *s, const char *name, const char *mode,
                                  const char *const *paths, size_t n)
{
    struct route_settings *r = NULL;
    struct buffer why = {0};
    assert_int_equal(settings_add_route(s, slice_text(name), 1, &r, &why), STATUS_OK);
    set(s, r, "path", paths, n);
    set(s, r, "mode", &mode, 1);
    buffer_fini(&why);
    return r;
}

#define PATHS(...)                                                                                           \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* A shop: orders and files are guarded, everything else passes. */
static struct settings *shop(void)
{
    struct settings *s = NULL;
    assert_int_equal(settings_new(&s), STATUS_OK);
    add(s, "orders", "guard", PATHS("/orders", "/orders/{id}/cancel", "/orders/new/{what}", "/orders/{id}"));
    add(s, "files", "guard", PATHS("/files/{*}"));
    add(s, "watch", "observe", PATHS("/watch"));
    add(s, "rest", "off", PATHS("/{*}"));
    return s;
}

static const char *found(const struct routes *r, const char *method, const char *target,
                         struct route_match *m)
{
    static char text[200];
    if (routes_match(r, slice_text(method), slice_text(target), m) != STATUS_OK)
        return "404";
    snprintf(text, sizeof(text), "%s%.*s", m->guarded ? "guarded " : "", (int)m->scope.len, m->scope.data);
    return text;
}

static void the_most_literal_pattern_wins(void **state)
{
    (void)state;
    static const struct {
        const char *method, *target, *found;
    } table[] = {
        {"POST", "/orders", "guarded orders /orders"},
        {"POST", "/orders?x=1", "guarded orders /orders"},
        {"POST", "/orders/42", "guarded orders /orders/{id}"},
        {"POST", "/orders/42/cancel", "guarded orders /orders/{id}/cancel"},
        {"POST", "/orders/new/cancel", "guarded orders /orders/new/{what}"},
        {"POST", "/orders/new/chair", "guarded orders /orders/new/{what}"},
        {"POST", "/orders/42/other", "rest /{*}"},
        {"GET", "/orders", "orders /orders"},
        {"PUT", "/orders", "orders /orders"},
        {"POST", "/files/", "guarded files /files/{*}"},
        {"POST", "/files/a/b/c", "guarded files /files/{*}"},
        {"POST", "/watch", "guarded watch /watch"},
        {"POST", "/", "rest /{*}"},
        {"POST", "/anything/else", "rest /{*}"},
        {"POST", "/caf%C3%A9", "rest /{*}"},
        {"POST", "/a%20b", "rest /{*}"},
        {"POST", "orders", "404"},
        {"POST", "", "404"},
        {"OPTIONS", "*", "404"},
    };
    struct settings *s = shop();
    struct routes *r = NULL;
    struct route_match m;
    assert_int_equal(routes_compile(&r, s, NULL, NULL), STATUS_OK);
    assert_int_equal(routes_pattern_count(r), 7);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        assert_string_equal(found(r, table[i].method, table[i].target, &m), table[i].found);
    routes_free(r);
    settings_free(s);
}

/* Each of these reaches a guarded handler on some server; none may pass by the open route. */
static void no_spelling_walks_around_a_guard(void **state)
{
    (void)state;
    static const char *const tricks[] = {
        "//orders",
        "/orders%3fx",
        "/orders%23",
        "/;1/orders",
        "/;1/orders/;",
        "/x/../orders",
        "/./orders",
        "/orders/.",
        "/x/%2e%2e/orders",
        "/x/.%2E/orders",
        "/%6frders",
        "/ord%65rs",
        "/orders%2F",
        "/x%2f..%2forders",
        "/x/..;/orders",
        "/x/..;a=b/orders",
        "/orders;v=1",
        "/orders/42;v=1/cancel/",
        "/Orders",
        "/ORDERS",
        "/orders/",
        "/orders/;x",
        "\\orders",
        "/\\orders",
        "/x\\..\\orders",
        "/orders%00",
        "/orders%0d",
        "/orders#x",
        "/orders%",
        "/orders%4",
        "/orders%zz",
        "/x/%252e%252e/orders",
        "/orders%3bv=1",
        "/Orders/42/Cancel",
        "/orders/42/cancel/",
        "/files",
        "/FILES/a",
        "/files//a",
        "/files/../orders",
        "/orders/New/chair/",
        "/orders\x80",
        "/orders%20/../x",
    };
    struct settings *s = shop();
    struct routes *r = NULL;
    struct route_match m;
    assert_int_equal(routes_compile(&r, s, NULL, NULL), STATUS_OK);
    for (size_t i = 0; i < sizeof(tricks) / sizeof(tricks[0]); i++) {
        const char *where = found(r, "POST", tricks[i], &m);
        if (strcmp(where, "404") != 0)
            fail_msg("POST %s reached %s", tricks[i], where);
    }
    /* What dodges nothing is served as written: reading is never guarded. */
    assert_string_equal(found(r, "GET", "/orders/", &m), "rest /{*}");
    assert_string_equal(found(r, "GET", "/a%2Fb/../c", &m), "rest /{*}");
    /* Another order's id is no trick. */
    assert_string_equal(found(r, "POST", "/orders/ABC;v=1", &m), "guarded orders /orders/{id}");
    routes_free(r);
    settings_free(s);
}

static void one_pattern_for_everything_takes_every_spelling(void **state)
{
    (void)state;
    struct settings *s = NULL;
    struct routes *r = NULL;
    struct route_match m;
    assert_int_equal(settings_new(&s), STATUS_OK);
    add(s, "default", "guard", PATHS("/{*}"));
    assert_int_equal(routes_compile(&r, s, NULL, NULL), STATUS_OK);
    assert_string_equal(found(r, "POST", "/x/../Orders%2F;v", &m), "guarded default /{*}");
    assert_int_equal(m.capture_count, 1);
    assert_true(slice_is(m.captures[0].name, "*"));
    assert_true(slice_is(m.captures[0].value, "x/../Orders%2F;v"));
    routes_free(r);
    settings_free(s);
}

static void segments_are_captured(void **state)
{
    (void)state;
    struct settings *s = NULL;
    struct routes *r = NULL;
    struct route_match m;
    assert_int_equal(settings_new(&s), STATUS_OK);
    add(s, "a", "guard", PATHS("/{shop}/orders/{id}/{*}"));
    assert_int_equal(routes_compile(&r, s, NULL, NULL), STATUS_OK);
    assert_int_equal(routes_match(r, slice_text("POST"), slice_text("/eu/orders/a%20b/x/y?q=/z"), &m),
                     STATUS_OK);
    assert_int_equal(m.capture_count, 3);
    assert_true(slice_is(m.captures[0].name, "shop") && slice_is(m.captures[0].value, "eu"));
    assert_true(slice_is(m.captures[1].name, "id") && slice_is(m.captures[1].value, "a%20b"));
    assert_true(slice_is(m.captures[2].name, "*") && slice_is(m.captures[2].value, "x/y"));
    assert_true(slice_is(m.pattern, "/{shop}/orders/{id}/{*}"));
    assert_int_equal(routes_match(r, slice_text("POST"), slice_text("//orders/1/"), &m), STATUS_NOT_FOUND);
    routes_free(r);
    settings_free(s);
}

static void long_paths_match_only_by_the_rest(void **state)
{
    (void)state;
    struct settings *s = shop();
    struct routes *r = NULL;
    struct route_match m;
    char path[4000] = "";
    for (size_t i = 0; i + 3 < sizeof(path); i += 2)
        memcpy(path + i, "/x", 3);
    assert_int_equal(routes_compile(&r, s, NULL, NULL), STATUS_OK);
    assert_string_equal(found(r, "POST", path, &m), "rest /{*}");
    routes_free(r);
    settings_free(s);
}

static void note(void *context, const struct settings_problem *p)
{
    buffer_format(context, "%s %s %d %s\n", p->code, p->route, p->line, p->message);
}

static void bad_and_ambiguous_patterns_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second, *said;
    } table[] = {
        {"/a", "/a/b", NULL},
        {"/a/{x}", "/a/{y}/c", NULL},
        {"/a/{x}", "/{y}/a", NULL},
        {"/a/{x}", "/a/{y}",
         "pattern-twice two 3 pattern `/a/{y}` means the same as `/a/{x}` of route \"one\""},
        {"/a", "/A", "pattern-alike two 3"},
        {"/a", "/a/", "pattern-alike two 3"},
        {"/ok", "/a/{*}/b", "is not at the end"},
        {"/ok", "/a/x{id}", "mixes text and braces"},
        {"/ok", "/a/{}", "has no good name"},
        {"/ok", "/a/{b c}", "has no good name"},
        {"/ok", "/a/{b}/{b}", "stands twice"},
        {"/ok", "/a//b", "empty segment"},
        {"/ok", "/a/../b", "no plain segment"},
        {"/ok", "/a/%41", "no plain segment"},
        {"/ok", "/a?b", "no plain segment"},
        {"/ok", "/a;b", "no plain segment"},
        {"/ok", "/{1}/{2}/{3}/{4}/{5}/{6}/{7}/{8}/{9}/{10}/{11}/{12}/{13}/{14}/{15}/{16}/{17}", "too many"},
        {"/ok", "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/30/31/32/33",
         "too many"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct settings *s = NULL;
        struct routes *r = NULL;
        struct buffer said = {0};
        assert_int_equal(settings_new(&s), STATUS_OK);
        add(s, "one", "guard", PATHS(table[i].first));
        add(s, "two", "guard", PATHS(table[i].second));
        enum status status = routes_compile(&r, s, note, &said);
        if (!table[i].said)
            assert_int_equal(status, STATUS_OK);
        else if (status != STATUS_INVALID || !strstr(buffer_cstring(&said), table[i].said))
            fail_msg("%s: wanted \"%s\", got \"%s\"", table[i].second, table[i].said, buffer_cstring(&said));
        routes_free(r);
        settings_free(s);
        buffer_fini(&said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_literal_pattern_wins),
        cmocka_unit_test(no_spelling_walks_around_a_guard),
        cmocka_unit_test(one_pattern_for_everything_takes_every_spelling),
        cmocka_unit_test(segments_are_captured),
        cmocka_unit_test(long_paths_match_only_by_the_rest),
        cmocka_unit_test(bad_and_ambiguous_patterns_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
