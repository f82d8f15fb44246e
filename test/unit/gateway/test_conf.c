/* SPDX-License-Identifier: MIT */
#include "gateway/conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define GOOD_TOP "tenant = \"{header.X-Tenant}\"\n"
#define GOOD_ROUTE                                                                                           \
    "route \"orders\" {\n path = {\"/orders\"}\n upstream = {\"http://127.0.0.1:9000\"}\n receipt = "        \
    "samekey\n"

static char file[] = "/tmp/samekey-test-conf-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state)
{
    (void)state;
    return unlink(file);
}

static void write_file(const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static enum status load(struct settings **s, const char *text, struct buffer *said)
{
    write_file(text);
    return conf_load(s, file, NULL, said);
}

static void a_file_is_read(void **state)
{
    (void)state;
    struct settings *s = NULL;
    struct buffer said = {0};
    enum status status =
        load(&s,
             "listen = {\"127.0.0.1:1\", \"unix:/run/x\"} # two\n"
             "drain = 5s  purge_every = \"2m\"\n" GOOD_TOP "/* a\ncomment */\n"
             "route \"orders\" {\n"
             "  path = {\"/orders\", \"/orders/{id}/cancel\"}\n"
             "  upstream = \"http://h:1\"\n"
             "  receipt = \"http GET /receipts/{call_id}\"\n"
             "  key_life = forever result_life = forever   retries = 2 jitter = \"0.8:1.2\"\n"
             "  ignore = {}\n"
             "}\n"
             "route items { path = {\"/items\"}, upstream = {\"http://h:1\"} receipt = none retries = 0 }\n",
             &said);
    /* A comma between settings is a slip libconfuse does not take. */
    assert_int_equal(status, STATUS_INVALID);
    assert_non_null(strstr(buffer_cstring(&said), ":13: error: route \"items\": unexpected token ','"));
    buffer_clear(&said);
    status =
        load(&s,
             "listen = {\"127.0.0.1:1\", \"unix:/run/x\"} # two\n"
             "drain = 5s  purge_every = \"2m\"\n" GOOD_TOP "/* a\ncomment */\n"
             "route \"orders\" {\n"
             "  path = {\"/orders\", \"/orders/{id}/cancel\"}\n"
             "  upstream = \"http://h:1\"\n"
             "  receipt = \"http GET /receipts/{call_id}\"\n"
             "  key_life = forever result_life = forever   retries = 2 jitter = \"0.8:1.2\"\n"
             "  ignore = {}\n"
             "}\n"
             "route items { path = {\"/items\"} upstream = {\"http://h:1\"} receipt = none retries = 0 }\n",
             &said);
    if (status != STATUS_OK)
        fail_msg("%s", buffer_cstring(&said));
    assert_string_equal(buffer_cstring(&said), "");
    assert_int_equal(s->listen.count, 2);
    assert_string_equal(s->listen.items[1], "unix:/run/x");
    assert_int_equal(s->origins[SETTING_ID_listen].line, 1);
    assert_int_equal(s->drain_ms, 5000);
    assert_int_equal(s->purge_every_ms, 120000);
    assert_int_equal(s->route_count, 2);
    const struct route_settings *r = s->routes[0];
    assert_string_equal(r->name, "orders");
    assert_int_equal(r->line, 6);
    assert_int_equal(r->path.count, 2);
    assert_int_equal(r->origins[SETTING_ID_path].line, 7);
    assert_int_equal(r->origins[SETTING_ID_path].source, SETTING_SOURCE_FILE);
    assert_int_equal(r->origins[SETTING_ID_deadline_ms].source, SETTING_SOURCE_DEFAULT);
    assert_int_equal(r->receipt.kind, RECEIPT_HTTP);
    assert_string_equal(r->receipt.method, "GET");
    assert_string_equal(r->receipt.path, "/receipts/{call_id}");
    assert_true(r->key_life_ms == DURATION_FOREVER);
    assert_int_equal(r->retries, 2);
    assert_string_equal(s->routes[1]->name, "items");
    assert_int_equal(s->routes[1]->line, 13);
    conf_free(s);
    buffer_fini(&said);
}

/* What a mistake in a file is answered with: the line after the file's name. */
static void mistakes_are_told_with_line_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } table[] = {
        {"lisen = {\"a:1\"}\n" GOOD_TOP GOOD_ROUTE "}\n",
         ":1: error: `lisen` is not a setting here; did you mean `listen`?"},
        {GOOD_TOP GOOD_ROUTE "retires = 2\n}\n",
         ":6: error: route \"orders\": `retires` is not a setting here; did you mean `retries`?"},
        {GOOD_TOP GOOD_ROUTE "listen = {\"a:1\"}\n}\n",
         ":6: error: route \"orders\": `listen` is not a setting here; it "
         "belongs to the top of the file"},
        {"retries = 2\n" GOOD_TOP GOOD_ROUTE "}\n",
         ":1: error: `retries` is not a setting here; it belongs to a route"},
        {GOOD_TOP GOOD_ROUTE "retries = 21\n}\n",
         ":6: error: route \"orders\": retries: 21 is more than allowed; choose between 0 and 20"},
        {GOOD_TOP GOOD_ROUTE "retries = 1\n\nretries = 2\n}\n",
         ":8: error: route \"orders\": retries: it is set twice, first on line 6"},
        {GOOD_TOP GOOD_ROUTE "path = {\"/b\", \"/c\"}\n}\n",
         ":6: error: route \"orders\": path: it is set twice, first on line 3"},
        {GOOD_TOP GOOD_ROUTE "path = {}\n}\n", "path: it is set twice, first on line 3"},
        {GOOD_TOP GOOD_ROUTE "methods = {}\n}\n", "methods: the list is empty"},
        {GOOD_TOP GOOD_ROUTE "}\n" GOOD_ROUTE "}\n",
         ":7: error: route \"orders\": the name is taken by the route on line 2"},
        {GOOD_TOP GOOD_ROUTE "retries = {1, 2}\n}\n",
         ":6: error: route \"orders\": unexpected token '{': this setting takes one value"},
        {GOOD_TOP GOOD_ROUTE "retries\n}\n",
         ":7: error: route \"orders\": missing equal sign after option 'retries'"},
        {GOOD_TOP GOOD_ROUTE,
         ":2: error: route \"orders\": the file ends inside this route; close it with }"},
        {GOOD_TOP GOOD_ROUTE "key = \"abc\n}\n", ":6: error: this quote is never closed"},
        {GOOD_TOP GOOD_ROUTE "}\n/* never closed", ":7: error: this comment is never closed"},
        {GOOD_TOP GOOD_ROUTE "}\n# a comment without a newline", NULL},
        {GOOD_TOP GOOD_ROUTE "}\ndrain =", "unexpected token '='"},
        {GOOD_TOP GOOD_ROUTE "}\n__end__ = 1\n", ":7: error: `__end__` is not a setting here"},
        {GOOD_TOP GOOD_ROUTE "key = \"\\999\"\n}\n", "bad escape"},
        {"# one\n/* two\n three */ // four\n\n" GOOD_TOP "# \"\n" GOOD_ROUTE
         "key = \"#//\" /* x */ retries = 99 }\n",
         ":11: error: route \"orders\": retries"},
        {GOOD_TOP "limits { a = 1 }\n", ":2: error: missing equal sign after option 'limits'"},
        {GOOD_TOP "\"route=orders|retries\" = 3\n", "2: error: "},
        {GOOD_TOP GOOD_ROUTE "__open__ = 3\n}\n",
         ":6: error: route \"orders\": `__open__` is not a setting here"},
        {GOOD_TOP GOOD_ROUTE "deadline = 10s\n}\n",
         ":6: error: route \"orders\": deadline: deadline 10s cannot hold the longest call, 18500ms"},
        {GOOD_TOP GOOD_ROUTE "key = \"{json.a}{json.b}\"\n}\n", ":6: error: route \"orders\": key: at byte "},
        {GOOD_TOP GOOD_ROUTE "path += {\"/a/{*}/b\"}\n}\n", "is not at the end"},
        {GOOD_TOP, "error: there is no route; add one"},
        {"", "error: there is no route; add one"},
        {"admin_token_file = \"/nonexistent/token\"\n" GOOD_TOP GOOD_ROUTE "}\n",
         ":1: error: admin_token_file: /nonexistent/token cannot be read: No such file"},
        {"store = \"mysql://x\"\n" GOOD_TOP GOOD_ROUTE "}\n", ":1: error: store: a store is"},
        {GOOD_TOP GOOD_ROUTE "retries = 4\n}\n",
         ":6: warning: route \"orders\": retries: retries 4 is more than 3"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct settings *s = NULL;
        struct buffer said = {0};
        enum status status = load(&s, table[i].text, &said);
        if (!table[i].said) {
            assert_string_equal(buffer_cstring(&said), "");
            conf_free(s);
            buffer_fini(&said);
            continue;
        }
        if (!strstr(buffer_cstring(&said), table[i].said))
            fail_msg("%s\nwanted \"%s\", got:\n%s", table[i].text, table[i].said, said.data);
        if (strstr(table[i].said, "warning"))
            assert_int_equal(status, STATUS_OK);
        else
            assert_int_equal(status, STATUS_INVALID);
        assert_true((s != NULL) == (status == STATUS_OK));
        conf_free(s);
        buffer_fini(&said);
    }
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static void all_mistakes_are_told_at_once_and_once(void **state)
{
    (void)state;
    struct settings *s = NULL;
    struct buffer said = {0};
    assert_int_equal(load(&s,
                          "colour = red\n"
                          "drain = 5\n"
                          "purge_batch = 0\n" GOOD_TOP "route \"orders\" {\n"
                          "  path = {\"/orders\"}\n"
                          "  upstreem = {\"http://h\", \"http://i\"}\n"
                          "  retries = many\n"
                          "  lease = 1s\n"
                          "  shape = round\n"
                          "}\n",
                          &said),
                     STATUS_INVALID);
    const char *text = buffer_cstring(&said);
    assert_int_equal(count(text, ": error: "), 8);
    assert_int_equal(count(text, "upstreem"), 1);
    assert_non_null(strstr(text, ":1: error: `colour`"));
    assert_non_null(strstr(text, ":2: error: drain: `5` is not a duration"));
    assert_non_null(strstr(text, ":3: error: purge_batch: 0 is less"));
    assert_non_null(strstr(text, ":7: error: route \"orders\": `upstreem`"));
    assert_non_null(strstr(text, "`upstream`?"));
    assert_non_null(strstr(text, ":8: error: route \"orders\": retries"));
    assert_non_null(strstr(text, ":9: error: route \"orders\": lease"));
    assert_non_null(strstr(text, ":10: error: route \"orders\": `shape`"));
    assert_non_null(strstr(text, ":5: error: route \"orders\": upstream: the route has no upstream"));
    buffer_fini(&said);
}

static void flags_alone_make_a_gateway(void **state)
{
    (void)state;
    static const struct conf_flag items[] = {{"upstream", "http://127.0.0.1:9000", "--upstream"}};
    const struct conf_flags flags = {items, 1};
    struct settings *s = NULL;
    struct buffer said = {0};
    if (conf_load(&s, NULL, &flags, &said) != STATUS_OK)
        fail_msg("%s", buffer_cstring(&said));
    assert_int_equal(s->route_count, 1);
    assert_string_equal(s->routes[0]->name, "default");
    assert_string_equal(s->routes[0]->path.items[0], "/{*}");
    assert_int_equal(s->routes[0]->key_missing, KEY_MISSING_PASS);
    assert_int_equal(s->routes[0]->receipt.kind, RECEIPT_NONE);
    assert_non_null(
        strstr(buffer_cstring(&said), "command line: warning: tenant: neither tenant nor credential"));
    conf_free(s);
    s = NULL;
    buffer_clear(&said);
    assert_int_equal(conf_load(&s, NULL, NULL, &said), STATUS_INVALID);
    assert_non_null(strstr(buffer_cstring(&said), "the route has no upstream"));
    buffer_fini(&said);
}

static void flags_win_over_the_file(void **state)
{
    (void)state;
    static const struct conf_flag items[] = {{"upstream", "http://x:1", "--upstream"},
                                             {"upstream", "http://y:1", "--upstream"},
                                             {"drain", "9s", "--set"},
                                             {"orders.retries", "1", "--set"},
                                             {"ignore", "", "--set"}};
    const struct conf_flags flags = {items, 5};
    struct settings *s = NULL;
    struct buffer said = {0}, printed = {0};
    write_file("drain = 5s\n" GOOD_TOP GOOD_ROUTE "ignore = {\"json.x\"}\n}\n"
               "route b { path = {\"/b\"} upstream = {\"http://h\"} receipt = samekey }\n");
    if (conf_load(&s, file, &flags, &said) != STATUS_OK)
        fail_msg("%s", buffer_cstring(&said));
    assert_int_equal(s->drain_ms, 9000);
    assert_int_equal(s->routes[0]->upstream.count, 2);
    assert_string_equal(s->routes[1]->upstream.items[1], "http://y:1");
    assert_int_equal(s->routes[0]->retries, 1);
    assert_int_equal(s->routes[1]->retries, 3);
    assert_int_equal(s->routes[0]->ignore.count, 0);
    settings_print(&printed, s);
    assert_non_null(strstr(buffer_cstring(&printed), "# flag\n"));
    char origin[80];
    snprintf(origin, sizeof(origin), "# %s:2\n", file);
    assert_non_null(strstr(printed.data, origin));
    conf_free(s);
    buffer_fini(&said);
    buffer_fini(&printed);
}

static void bad_flags_are_named_as_written(void **state)
{
    (void)state;
    static const struct {
        struct conf_flag flag;
        const char *said;
    } table[] = {
        {{"retires", "1", "--set"},
         "command line: error: --set retires=1: `retires` is not a setting; did you mean `retries`?"},
        {{"x.retries", "1", "--set"}, "there is no route `x`"},
        {{"default.drain", "1s", "--set"}, "`drain` is not a setting of a route; write drain=1s"},
        {{"retries", "99", "--set"},
         "command line: error: route \"default\": retries: 99 is more than allowed"},
        {{"lease", "1s", "--set"}, "command line: error: route \"default\": lease: lease 1s is shorter"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct conf_flag items[] = {{"upstream", "http://x", "--upstream"}, table[i].flag};
        const struct conf_flags flags = {items, 2};
        struct settings *s = NULL;
        struct buffer said = {0};
        assert_int_equal(conf_load(&s, NULL, &flags, &said), STATUS_INVALID);
        if (!strstr(buffer_cstring(&said), table[i].said))
            fail_msg("wanted \"%s\", got:\n%s", table[i].said, said.data);
        buffer_fini(&said);
    }
}

/* What --print-config says is a file that means the same. */
static void the_printed_configuration_reads_back(void **state)
{
    (void)state;
    struct settings *s = NULL, *again = NULL;
    struct buffer said = {0}, first = {0}, second = {0};
    assert_int_equal(load(&s,
                          GOOD_TOP GOOD_ROUTE
                          "key = \"o$:{json.a}\" jitter = \"0.125:1.000001\" key_life = 1d result_life "
                          "= 1d success_when = \"json.a = \\\"x\\\\\\\"\"\n"
                          "ignore = {\"json.x\", \"json.y\"} resend_after = 0\n}\n",
                          &said),
                     STATUS_OK);
    settings_print(&first, s);
    assert_int_equal(load(&again, buffer_cstring(&first), &said), STATUS_OK);
    for (size_t i = 0; i < SETTING_ID_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        bool in_route = row->scope == SETTING_SCOPE_ROUTE;
        buffer_clear(&first);
        buffer_clear(&second);
        settings_value_text(&first, s, in_route ? s->routes[0] : NULL, row);
        settings_value_text(&second, again, in_route ? again->routes[0] : NULL, row);
        assert_string_equal(buffer_cstring(&first), buffer_cstring(&second));
    }
    conf_free(s);
    conf_free(again);
    buffer_fini(&said);
    buffer_fini(&first);
    buffer_fini(&second);
}

/* A name that is not there would be the empty text: no token, no tenants, and no word about it. */
static void a_name_that_is_not_in_the_environment_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } table[] = {
        {"receipt_header = {\"Authorization: Bearer ${SAMEKEY_TEST_NONE}\"}\n",
         ":6: error: ${SAMEKEY_TEST_NONE}: there is no SAMEKEY_TEST_NONE in the environment"},
        {"business_ref = ${SAMEKEY_TEST_NONE}\n", ":6: error: ${SAMEKEY_TEST_NONE}: there is no"},
        {"# ${SAMEKEY_TEST_NONE}\nbusiness_ref = \"a\\\"${SAMEKEY_TEST_NONE}\"\n",
         ":7: error: ${SAMEKEY_TEST_NONE}"},
        {"business_ref = \"a${SAMEKEY_TEST_SET\" retries = 3\n", ":6: error: `${` begins the name"},
        {"business_ref = \"a${SAMEKEY_TEST_SET}${SAMEKEY_TEST_EMPTY}\"\n", NULL},
        {"business_ref = ${SAMEKEY_TEST_SET}\n", NULL},
        {"business_ref = \"${SAMEKEY_TEST_NONE:-a}\"\n", NULL},
        {"business_ref = \"a\\${SAMEKEY_TEST_NONE\"\n", ":6: error: route \"orders\": business_ref: "},
        {"key = \"header\" success_when = 'json.a = \"${SAMEKEY_TEST_NONE}\"'\n", NULL},
    };
    setenv("SAMEKEY_TEST_SET", "a", 1);
    setenv("SAMEKEY_TEST_EMPTY", "", 1);
    unsetenv("SAMEKEY_TEST_NONE");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct settings *s = NULL;
        struct buffer text = {0}, said = {0};
        buffer_format(&text, "%s" GOOD_ROUTE "%s}\n", GOOD_TOP, table[i].text);
        enum status status = load(&s, buffer_cstring(&text), &said);
        if (status != (table[i].said ? STATUS_INVALID : STATUS_OK) ||
            (table[i].said && !strstr(buffer_cstring(&said), table[i].said)))
            fail_msg("%s: wanted \"%s\", got:\n%s", table[i].text, table[i].said ? table[i].said : "nothing",
                     buffer_cstring(&said));
        conf_free(s);
        buffer_fini(&text);
        buffer_fini(&said);
    }
}

static void tokens_are_whole_lines_of_some_length(void **state)
{
    (void)state;
    struct buffer token = {0}, why = {0};
    write_file("0123456789abcdef\nsecond\n");
    assert_int_equal(conf_token(file, &token, &why), STATUS_OK);
    assert_string_equal(buffer_cstring(&token), "0123456789abcdef");
    write_file("short\n");
    assert_int_equal(conf_token(file, &token, &why), STATUS_INVALID);
    write_file("");
    assert_int_equal(conf_token(file, &token, &why), STATUS_INVALID);
    assert_int_equal(conf_token("/nonexistent/x", &token, &why), STATUS_IO);
    buffer_fini(&token);
    buffer_fini(&why);
}

static void a_reload_says_what_it_cannot_take_over(void **state)
{
    (void)state;
    struct settings *before = NULL, *after = NULL;
    struct buffer said = {0}, lines = {0};
    assert_int_equal(load(&before, GOOD_TOP GOOD_ROUTE "}\n", &said), STATUS_OK);
    assert_int_equal(load(&after,
                          "loops = 2 drain = 1s\n" GOOD_TOP "route renamed { path = {\"/orders\"} upstream = "
                          "{\"http://h\"} receipt = samekey }\n",
                          &said),
                     STATUS_OK);
    assert_int_equal(conf_changes(before, after, &lines), 3);
    assert_non_null(strstr(buffer_cstring(&lines), "loops stays 0 until a restart"));
    assert_non_null(strstr(lines.data, "route \"orders\" is gone"));
    assert_non_null(strstr(lines.data, "route \"renamed\" is new"));
    conf_free(before);
    conf_free(after);
    buffer_fini(&said);
    buffer_fini(&lines);
}

static void unreadable_files_are_said_so(void **state)
{
    (void)state;
    struct settings *s = NULL;
    struct buffer said = {0};
    assert_int_equal(conf_load(&s, "/nonexistent/samekey.conf", NULL, &said), STATUS_NOT_FOUND);
    assert_non_null(
        strstr(buffer_cstring(&said), "/nonexistent/samekey.conf: error: the file cannot be read: No such"));
    buffer_clear(&said);
    assert_int_equal(conf_load(&s, "/", NULL, &said), STATUS_IO);
    buffer_fini(&said);
}

static void take_code(void *context, const char *path, const struct settings_problem *p)
{
    assert_string_equal(path, file);
    buffer_format(context, "%s;", p->code);
}

static void review_tells_notes_too(void **state)
{
    (void)state;
    struct buffer said = {0};
    write_file(GOOD_TOP GOOD_ROUTE "}\n");
    assert_int_equal(conf_review(file, take_code, &said), STATUS_OK);
    assert_string_equal(buffer_cstring(&said), "key-may-return;");
    buffer_fini(&said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(mistakes_are_told_with_line_and_remedy),
        cmocka_unit_test(all_mistakes_are_told_at_once_and_once),
        cmocka_unit_test(flags_alone_make_a_gateway),
        cmocka_unit_test(flags_win_over_the_file),
        cmocka_unit_test(bad_flags_are_named_as_written),
        cmocka_unit_test(the_printed_configuration_reads_back),
        cmocka_unit_test(a_name_that_is_not_in_the_environment_is_an_error),
        cmocka_unit_test(tokens_are_whole_lines_of_some_length),
        cmocka_unit_test(a_reload_says_what_it_cannot_take_over),
        cmocka_unit_test(unreadable_files_are_said_so),
        cmocka_unit_test(review_tells_notes_too),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
