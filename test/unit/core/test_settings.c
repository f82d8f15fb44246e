/* SPDX-License-Identifier: MIT */
#include "core/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* What settings_check() said, one line a problem: "ERROR deadline-too-short deadline: message". */
static void note(void *context, const struct settings_problem *p)
{
    static const char *const words[] = {"ERROR", "WARNING", "NOTE"};
    buffer_format(context, "%s %s %s: %s\n", words[p->severity], p->code, p->row ? p->row->name : "-",
                  p->message);
}

/* A gateway with one good route. */
static struct settings *good(struct route_settings **route)
{
    struct settings *s = NULL;
    struct buffer why = {0};
    assert_int_equal(settings_new(&s), STATUS_OK);
    assert_int_equal(settings_add_route(s, slice_text("orders"), 7, route, &why), STATUS_OK);
    struct setting_origin origin = {SETTING_SOURCE_FILE, 8};
    struct slice path = slice_text("/orders"), upstream = slice_text("http://127.0.0.1:9000");
    assert_int_equal(settings_set(s, *route, settings_find(slice_text("path")), &path, 1, origin, &why),
                     STATUS_OK);
    assert_int_equal(
        settings_set(s, *route, settings_find(slice_text("upstream")), &upstream, 1, origin, &why),
        STATUS_OK);
    buffer_fini(&why);
    return s;
}

/* Sets one value wherever it belongs; lists have their items between commas. */
static enum status put(struct settings *s, struct route_settings *route, const char *name, const char *value,
                       struct buffer *why)
{
    const struct setting *row = settings_find(slice_text(name));
    struct setting_origin origin = {SETTING_SOURCE_FILE, 9};
    struct slice texts[8];
    size_t n = 0;
    char copy[400];
    assert_non_null(row);
    if (row->type == SETTING_LIST && value[0]) {
        snprintf(copy, sizeof(copy), "%s", value);
        for (char *p = copy; p && n < 8;) {
            char *comma = strchr(p, ',');
            if (comma)
                *comma++ = '\0';
            texts[n++] = slice_text(p);
            p = comma;
        }
    } else if (row->type != SETTING_LIST) {
        texts[n++] = slice_text(value);
    }
    return settings_set(s, row->scope == SETTING_SCOPE_ROUTE ? route : NULL, row, texts, n, origin, why);
}

static void defaults_are_those_of_the_design(void **state)
{
    (void)state;
    struct route_settings *r;
    struct settings *s = good(&r);
    assert_string_equal(s->listen.items[0], "0.0.0.0:8080");
    assert_string_equal(s->store, "sqlite:/var/lib/samekey/receipts.db");
    assert_int_equal(s->drain_ms, 30000);
    assert_int_equal(s->purge_batch, 2000);
    assert_int_equal(r->methods.count, 2);
    assert_string_equal(r->methods.items[1], "PATCH");
    assert_int_equal(r->mode, MODE_GUARD);
    assert_int_equal(r->attempt_timeout_ms, 3000);
    assert_int_equal(r->deadline_ms, 30000);
    assert_int_equal(r->retries, 3);
    assert_int_equal(r->key_life_ms, 7 * 86400000);
    assert_int_equal(r->body_bytes_max, 1048576);
    assert_int_equal(r->retry_budget_percent, 20);
    assert_true(r->jitter_low == 0.5 && r->jitter_high == 1.0);
    assert_int_equal(r->swapped_keys, SWAPPED_KEYS_WARN);
    assert_int_equal(r->receipt.kind, RECEIPT_NONE);
    assert_int_equal(r->resend_after_ms, r->attempt_timeout_ms);
    settings_free(s);
}

static void defaults_contradict_nothing(void **state)
{
    (void)state;
    struct route_settings *r;
    struct settings *s = good(&r);
    struct buffer said = {0};
    assert_int_equal(settings_check(s, note, &said), 0);
    assert_null(strstr(buffer_cstring(&said), "ERROR"));
    assert_non_null(strstr(said.data, "WARNING one-principal tenant"));
    assert_non_null(strstr(said.data, "WARNING retries-without-receipt receipt"));
    assert_non_null(strstr(said.data, "NOTE key-may-return tombstone_life"));
    buffer_clear(&said);
    assert_int_equal(put(s, r, "receipt", "http GET /receipts/{call_id}", &said), STATUS_OK);
    assert_int_equal(put(s, r, "tenant", "{header.X-Tenant}", &said), STATUS_OK);
    assert_int_equal(put(s, r, "key", "order:{json.no}:{date:+08:00}", &said), STATUS_OK);
    assert_int_equal(settings_check(s, note, &said), 0);
    assert_string_equal(buffer_cstring(&said), "");
    buffer_fini(&said);
    settings_free(s);
}

static void values_keep_their_bounds_and_say_them(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *said; /* said NULL: it is taken */
    } table[] = {
        {"retries", "0", NULL},
        {"retries", "20", NULL},
        {"retries", "21", "21 is more than allowed; choose between 0 and 20"},
        {"retries", "-1", "`-1` is not a count"},
        {"retries", "three", "`three` is not a count; write a whole number"},
        {"attempt_timeout", "3", "`3` is not a duration"},
        {"attempt_timeout", "3s", NULL},
        {"attempt_timeout", "5ms", "5ms is less than allowed; choose between 10ms and 1h"},
        {"attempt_timeout", "forever", "is not a duration"},
        {"attempt_timeout", "3 s", "is not a duration"},
        {"key_life", "forever", NULL},
        {"key_life", "7d", NULL},
        {"body_bytes_max", "64k", NULL},
        {"body_bytes_max", "2g", "2g is more than allowed; choose between 0 and 64m"},
        {"body_bytes_max", "1mb", "is not a size"},
        {"retry_budget", "20%", NULL},
        {"retry_budget", "101", "choose between 0 and 100"},
        {"jitter", "0.8:1.2", NULL},
        {"jitter", "0:1", NULL},
        {"jitter", "1:0.5", "is not a jitter; write LOW:HIGH"},
        {"jitter", "0:0", "is not a jitter"},
        {"jitter", "1", "is not a jitter"},
        {"mode", "observe", NULL},
        {"mode", "gaurd", "is not one of guard, observe and off; did you mean guard?"},
        {"callee_idempotent", "yes", NULL},
        {"callee_idempotent", "maybe", "is not true or false"},
        {"listen", "127.0.0.1:8080,unix:/run/x.sock,[::1]:0", NULL},
        {"listen", "8080", "HOST:PORT"},
        {"listen", "127.0.0.1:70000", "HOST:PORT"},
        {"listen", "a:1,a:1", "stands twice"},
        {"listen", "unix:relative", "an absolute path"},
        {"upstream", "https://api.example:8443/", NULL},
        {"upstream", "http://h/path", "without a path"},
        {"upstream", "http://user@h", "without user or password"},
        {"upstream", "h:80", "http://HOST[:PORT]"},
        {"upstream", "", NULL},
        {"methods", "PUT,DELETE", NULL},
        {"methods", "GET", "GET always passes through"},
        {"methods", "post", "capital letters"},
        {"store", "postgres://x", NULL},
        {"store", "postgresql://u@a,b/receipts?target_session_attrs=read-write", NULL},
        {"store", "postgres:", "postgres://USER@HOST/DATABASE"},
        {"store", "redis://x", "Redis is a cache in front of a store"},
        {"store", "file.db", "sqlite:PATH"},
        {"receipt", "sql mysql://x", "sql postgres://USER@HOST/DATABASE"},
        {"receipt", "sql sqlite:", "sql sqlite:PATH"},
        {"receipt", "samekey", NULL},
        {"receipt", "http GET /r/{call_id}?v=1", NULL},
        {"receipt", "http GET /r", "{call_id} once"},
        {"receipt", "http DELETE /r/{call_id}", "GET or POST"},
        {"receipt", "https://x/{call_id}", "a receipt source is"},
        {"receipt_header", "Authorization: Bearer x", NULL},
        {"receipt_header", "Host: x", "set by samekey"},
        {"receipt_header", "no colon", "NAME: VALUE"},
        {"receipt_map", "DONE=SUCCESS, OPEN = PROCESSING", NULL},
        {"receipt_map", "DONE=OK", "`OK` is not a state"},
        {"receipt_map", "DONE", "write pairs"},
        {"replay_headers", "X-Version", NULL},
        {"replay_headers", "set-cookie", "never replayed"},
        {"success_when", "json.code = 0", NULL},
        {"success_when", "code is 0", "one member and its value"},
        {"success_when", "json.code=0", NULL},
        {"success_when", "json.data.state = \"in stock == yes && paid\"", NULL},
        {"success_when", "json.code == 0", "json.PATH = VALUE"},
        {"success_when", "json.code==0", "json.PATH = VALUE"},
        {"success_when", "json.code == 0 && rm", "json.PATH = VALUE"},
        {"success_when", "json.code = 0 && json.state = 1", "json.PATH = VALUE"},
        {"success_when", "json.code = \"0\" && json.state = \"1\"", "json.PATH = VALUE"},
        {"success_when", "json.code=0||json.code=1", "json.PATH = VALUE"},
        {"success_when", "json.a||json.b=1", "json.PATH = VALUE"},
        {"success_when", "json.code != 0", "json.PATH = VALUE"},
        {"success_when", "json.code!=0", "json.PATH = VALUE"},
        {"success_when", "json.code >= 0", "json.PATH = VALUE"},
        {"success_when", "json.state = in stock", "double quotes"},
        {"success_when", "json.state = 'ok'", "double quotes"},
        {"success_when", "json. = 0", "json.PATH = VALUE"},
        {"success_when", "json = 0", "json.PATH = VALUE"},
        {"success_when", "= 0", "json.PATH = VALUE"},
        {"success_when", "json.code =", "json.PATH = VALUE"},
        {"success_when", "json.code = \"\"", "json.PATH = VALUE"},
        {"node", "node07", NULL},
        {"node", "node 07", "only letters, digits"},
        {"node", "", NULL},
        {"call_id_prefix", "", "an empty text is not allowed"},
        {"admin", "127.0.0.1:1\n", "a control byte"},
        {"path", "orders", "starts with /"},
    };
    struct route_settings *r;
    struct settings *s = good(&r);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct buffer why = {0}, before = {0}, after = {0};
        const struct setting *row = settings_find(slice_text(table[i].name));
        struct route_settings *where = row->scope == SETTING_SCOPE_ROUTE ? r : NULL;
        settings_value_text(&before, s, where, row);
        enum status status = put(s, r, table[i].name, table[i].value, &why);
        settings_value_text(&after, s, where, row);
        if (!table[i].said) {
            if (status != STATUS_OK)
                fail_msg("%s = %s: %s", table[i].name, table[i].value, buffer_cstring(&why));
        } else {
            if (status != STATUS_INVALID || !strstr(buffer_cstring(&why), table[i].said))
                fail_msg("%s = %s: got \"%s\", wanted \"%s\"", table[i].name, table[i].value,
                         buffer_cstring(&why), table[i].said);
            assert_string_equal(buffer_cstring(&before), buffer_cstring(&after));
        }
        buffer_fini(&why);
        buffer_fini(&before);
        buffer_fini(&after);
    }
    settings_free(s);
}

/* Each contradiction and warning: what to set (name, value pairs) and what must be said, with its numbers. */
static void contradictions_are_told_with_their_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *sets[8];
        const char *said;
    } table[] = {
        {{"deadline", "18s", "receipt", "samekey"},
         "ERROR deadline-too-short deadline: deadline 18s cannot hold the longest call, 18500ms: 4 attempts "
         "of 3s, "
         "waits of 3500ms and 3 receipt queries of 1s; raise deadline to 18500ms"},
        {{"deadline", "15s"},
         "ERROR deadline-too-short deadline: deadline 15s cannot hold the longest call, 15500ms"},
        {{"lease", "2s"}, "ERROR lease-too-short lease: lease 2s is shorter than one attempt, 3s"},
        {{"key_life", "1h"}, "ERROR key-life-too-short key_life: key_life 1h is shorter than"},
        {{"key_life", "12h"}, "WARNING key-life-short key_life: key_life 12h is under 24h"},
        {{"result_life", "1d"},
         "WARNING result-life-short result_life: result_life 1d is less than key_life 7d"},
        {{"tombstone_life", "1d"},
         "ERROR tombstone-too-short tombstone_life: tombstone_life 1d is shorter than"},
        {{"breaker_probes", "0"}, "ERROR no-probes breaker_probes: with 0 probes"},
        {{"backoff_cap", "100ms"},
         "ERROR backoff-crossed backoff_cap: backoff_cap 100ms is less than backoff_base"},
        {{"round_gap_max", "10s"}, "ERROR rounds-crossed round_gap_max"},
        {{"rounds", "2"}, "WARNING rounds-unusual rounds: rounds 2 is outside 3 to 5"},
        {{"rounds", "6"}, "WARNING rounds-unusual rounds: rounds 6 is outside 3 to 5"},
        {{"retries", "4"}, "WARNING retries-many retries: retries 4 is more than 3"},
        {{"connect_timeout", "4s"}, "ERROR connect-too-long connect_timeout: connect_timeout 4s is longer"},
        {{"archive", "/x"}, "WARNING archive-unused archive"},
        {{"on_failed", "compensate", "receipt", "none"}, "WARNING compensate-without-receipts on_failed"},
        {{"reversal", "POST /x/{json.a"}, "ERROR template-invalid reversal: at byte "},
        {{"receipt_fence", "POST /x/{call_id}", "receipt", "samekey"},
         "ERROR fence-without-receipts receipt_fence"},
        {{"notify", "https://x"}, "ERROR notify-unsigned notify"},
        {{"admin", "0.0.0.0:8081"}, "ERROR admin-open admin: the admin address 0.0.0.0:8081 can be reached"},
        {{"admin", "127.evil.example:8081"}, "ERROR admin-open admin"},
        {{"listen", "127.0.0.1:1", "admin", "127.0.0.1:1"}, "ERROR address-twice admin"},
        {{"path", ""}, "ERROR path-missing path"},
        {{"upstream", ""}, "ERROR upstream-missing upstream"},
        {{"methods", ""}, "ERROR methods-missing methods"},
        {{"listen", ""}, "ERROR listen-missing listen"},
        {{"key", "order:{uuid}"}, "ERROR template-invalid key: at byte "},
        {{"tenant", "{header.X"}, "ERROR template-invalid tenant: at byte "},
        {{"compare", "amount"}, "ERROR compare-invalid compare"},
        {{"ignore", "sent_at"}, "ERROR compare-invalid ignore"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct route_settings *r;
        struct settings *s = good(&r);
        struct buffer said = {0};
        for (size_t k = 0; k < 8 && table[i].sets[k]; k += 2)
            if (put(s, r, table[i].sets[k], table[i].sets[k + 1], &said) != STATUS_OK)
                fail_msg("%s", buffer_cstring(&said));
        settings_settle(s);
        size_t errors = settings_check(s, note, &said);
        if (!strstr(buffer_cstring(&said), table[i].said))
            fail_msg("%s = %s: wanted \"%s\", got:\n%s", table[i].sets[0], table[i].sets[1], table[i].said,
                     said.data);
        assert_int_equal(errors > 0, strncmp(table[i].said, "ERROR", 5) == 0);
        buffer_fini(&said);
        settings_free(s);
    }
}

static void what_follows_from_another_setting_follows_it(void **state)
{
    (void)state;
    struct route_settings *r;
    struct settings *s = good(&r);
    struct buffer why = {0};
    assert_int_equal(put(s, r, "attempt_timeout", "500ms", &why), STATUS_OK);
    settings_settle(s);
    assert_int_equal(r->resend_after_ms, 500);
    assert_int_equal(r->connect_timeout_ms, 500);
    assert_int_equal(put(s, r, "resend_after", "7s", &why), STATUS_OK);
    settings_settle(s);
    assert_int_equal(r->resend_after_ms, 7000);
    settings_free(s);
    buffer_fini(&why);
}

static void near_misses_are_suggested(void **state)
{
    (void)state;
    assert_string_equal(settings_suggest(slice_text("retires"), SETTING_SCOPE_ROUTE)->name, "retries");
    assert_string_equal(settings_suggest(slice_text("attempt-timeout"), SETTING_SCOPE_ROUTE)->name,
                        "attempt_timeout");
    assert_string_equal(settings_suggest(slice_text("lisen"), SETTING_SCOPE_GLOBAL)->name, "listen");
    assert_null(settings_suggest(slice_text("colour"), SETTING_SCOPE_ROUTE));
    assert_null(settings_suggest(slice_text(""), SETTING_SCOPE_ROUTE));
    char longest[400];
    memset(longest, 'x', sizeof(longest));
    assert_null(settings_suggest(slice_of(longest, sizeof(longest)), SETTING_SCOPE_ROUTE));
}

static void names_are_unique_and_every_row_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETTING_ID_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        assert_ptr_equal(settings_find(slice_text(row->name)), row);
        size_t n = strlen(row->sentence);
        assert_true(n > 20 && row->sentence[n - 1] == '.');
    }
}

static void route_names_are_bounded(void **state)
{
    (void)state;
    struct route_settings *r;
    struct settings *s = good(&r);
    struct buffer why = {0};
    char name[SETTINGS_ROUTE_NAME_MAX + 2];
    memset(name, 'n', sizeof(name));
    assert_int_equal(settings_add_route(s, slice_text("orders"), 20, &r, &why), STATUS_CONFLICT);
    assert_non_null(strstr(buffer_cstring(&why), "line 7"));
    assert_int_equal(settings_add_route(s, slice_text(""), 20, &r, &why), STATUS_INVALID);
    assert_int_equal(settings_add_route(s, slice_text("a b"), 20, &r, &why), STATUS_INVALID);
    assert_int_equal(settings_add_route(s, slice_of(name, SETTINGS_ROUTE_NAME_MAX + 1), 20, &r, &why),
                     STATUS_INVALID);
    assert_int_equal(settings_add_route(s, slice_of(name, SETTINGS_ROUTE_NAME_MAX), 20, &r, &why), STATUS_OK);
    assert_int_equal(s->route_count, 2);
    settings_free(s);
    buffer_fini(&why);
}

static void foreign_states_are_mapped(void **state)
{
    (void)state;
    struct route_settings *r;
    struct settings *s = good(&r);
    struct buffer why = {0};
    struct slice got;
    assert_int_equal(put(s, r, "receipt_map", "DONE=SUCCESS, GONE = NOT_RECEIVED", &why), STATUS_OK);
    assert_int_equal(settings_receipt_state(r, slice_text("GONE"), &got), STATUS_OK);
    assert_true(slice_is(got, "NOT_RECEIVED"));
    assert_int_equal(settings_receipt_state(r, slice_text("done"), &got), STATUS_NOT_FOUND);
    settings_free(s);
    buffer_fini(&why);
}

static void print_hides_what_authenticates(void **state)
{
    (void)state;
    struct route_settings *r;
    struct settings *s = good(&r);
    struct buffer out = {0};
    assert_int_equal(put(s, r, "receipt_header", "Authorization: Bearer s3cret", &out), STATUS_OK);
    settings_print(&out, s);
    assert_null(strstr(buffer_cstring(&out), "s3cret"));
    assert_non_null(strstr(out.data, "Authorization: (hidden)"));
    assert_non_null(strstr(out.data, "route \"orders\" {"));
    assert_non_null(strstr(out.data, "# default"));
    buffer_fini(&out);
    settings_free(s);
}

static void passwords_in_urls_are_hidden(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"redis://127.0.0.1:6379/1", "redis://127.0.0.1:6379/1"},
        {"redis://:hidden@h:1/2", "redis://:***@h:1/2"},
        {"\"sql postgres://u:hid@den@h:5432/db?a=b\"", "\"sql postgres://u:***@h:5432/db?a=b\""},
        {"unix://u:hidden@/s?db=1", "unix://u:***@/s?db=1"},
        {"postgres://u@h/db?password=hidden&a=b", "postgres://u@h/db?password=***&a=b"},
        {"\"postgres://u:hidden@h/db?a=b&password=hidden\"", "\"postgres://u:***@h/db?a=b&password=***\""},
        {"postgres://u@h:5432/db", "postgres://u@h:5432/db"},
        {"https://h:8443/hook@v1", "https://h:8443/hook@v1"},
        {"a:b@c", "a:b@c"},
        {"://", "://"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer out = {0};
        settings_url_shown(&out, slice_text(rows[i][0]));
        assert_string_equal(buffer_cstring(&out), rows[i][1]);
        buffer_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passwords_in_urls_are_hidden),
        cmocka_unit_test(defaults_are_those_of_the_design),
        cmocka_unit_test(defaults_contradict_nothing),
        cmocka_unit_test(values_keep_their_bounds_and_say_them),
        cmocka_unit_test(contradictions_are_told_with_their_numbers),
        cmocka_unit_test(what_follows_from_another_setting_follows_it),
        cmocka_unit_test(near_misses_are_suggested),
        cmocka_unit_test(names_are_unique_and_every_row_is_whole),
        cmocka_unit_test(route_names_are_bounded),
        cmocka_unit_test(foreign_states_are_mapped),
        cmocka_unit_test(print_hides_what_authenticates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
