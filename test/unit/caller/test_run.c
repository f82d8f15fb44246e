/* SPDX-License-Identifier: MIT
 *
 * The step interface on a fake clock: case 29 row by row, the article's cases as transcripts, what an event may not do,
 * and random stories in which the service is judged from outside: at most one effect where a receipt tells the truth.
 */
#include "base/prng.h"

#include <samekey/samekey.h>

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIX_NOW INT64_C(1772366400000) /* 2026-03-01T12:00:00Z */

struct stage {
    struct samekey *handle;
    struct samekey_options options;
    struct samekey_run *run;
    struct samekey_event event;
    struct samekey_effect effect;
    int64_t now;
};

static void stage_begin(struct stage *s)
{
    memset(s, 0, sizeof *s);
    assert_int_equal(samekey_open(&s->handle, NULL), SAMEKEY_OK);
    samekey_options_init(&s->options);
    s->options.url = "http://svc.test/orders";
    s->options.key = "k-1";
    s->options.call_id = "c-1";
    s->options.receipt = "{origin}/receipts/{call_id}";
    s->effect.size = sizeof s->effect;
    s->now = 1000000;
}

static void stage_end(struct stage *s)
{
    samekey_run_free(s->run);
    samekey_close(s->handle);
}

static void begin_event(struct stage *s, int type)
{
    samekey_event_init(&s->event);
    s->event.type = type;
    s->event.random = 0.5;
}

static int give(struct stage *s)
{
    s->event.now_ms = s->now;
    s->event.unix_now_ms = UNIX_NOW + s->now - 1000000;
    assert_int_equal(samekey_run_step(s->run, &s->event, &s->effect), SAMEKEY_OK);
    return s->effect.type;
}

static int start(struct stage *s)
{
    assert_int_equal(samekey_run_new(&s->run, s->handle, &s->options), SAMEKEY_OK);
    begin_event(s, SAMEKEY_EVENT_START);
    return give(s);
}

static int answer(struct stage *s, int status, const struct samekey_header *headers, size_t count)
{
    begin_event(s, SAMEKEY_EVENT_ATTEMPT);
    s->event.end = SAMEKEY_END_ANSWER;
    s->event.sent_bytes = 100;
    s->event.request_complete = 1;
    s->event.status = status;
    s->event.headers = headers;
    s->event.header_count = count;
    return give(s);
}

static int cut(struct stage *s, int end, uint64_t sent)
{
    begin_event(s, SAMEKEY_EVENT_ATTEMPT);
    s->event.end = end;
    s->event.sent_bytes = sent;
    return give(s);
}

static int receipt(struct stage *s, const char *state)
{
    char document[200];
    begin_event(s, SAMEKEY_EVENT_ANSWER);
    if (state) {
        s->event.status = 200;
        s->event.body = document;
        s->event.body_len =
            (size_t)snprintf(document, sizeof document, "{\"callId\":\"c-1\",\"state\":\"%s\"}", state);
    }
    return give(s);
}

static int wait(struct stage *s)
{
    assert_true(s->effect.until_ms > s->now);
    s->now = s->effect.until_ms;
    begin_event(s, SAMEKEY_EVENT_TIMER);
    return give(s);
}

/* ---- case 29 ------------------------------------------------------------------------------------------------ */

static json_t *case_29(void)
{
    const char *shared = getenv("SAMEKEY_SHARED");
    char path[1000];
    snprintf(path, sizeof path, "%s%s/cases/29-retry-after-values/values.json",
             shared ? shared : SAMEKEY_SOURCE_DIR, shared ? "" : "/../shared");
    json_t *root = json_load_file(path, 0, NULL);
    if (!root)
        fail_msg("%s is missing; set SAMEKEY_SHARED to the folder that holds cases/", path);
    return root;
}

/* The wait from the 429 to the second attempt, or -1 when the call ended instead. */
static int64_t wait_after(const struct samekey_header *headers, size_t count, int64_t deadline_ms,
                          bool receipts, int64_t *retry_in_ms)
{
    struct stage s;
    stage_begin(&s);
    s.options.backoff_base_ms = 1000;
    s.options.backoff_cap_ms = 4000;
    s.options.deadline_ms = deadline_ms;
    if (!receipts)
        s.options.receipt = "none";
    assert_int_equal(start(&s), SAMEKEY_EFFECT_SEND);
    int64_t began = s.now;
    int effect = answer(&s, 429, headers, count);
    if (receipts && effect == SAMEKEY_EFFECT_ASK)
        effect = receipt(&s, "NONE");
    while (effect == SAMEKEY_EFFECT_WAIT)
        effect = wait(&s);
    int64_t waited = s.now - began;
    if (effect == SAMEKEY_EFFECT_END) {
        const struct samekey_result *r = samekey_run_result(s.run);
        assert_int_equal(samekey_result_state(r), SAMEKEY_FAILED);
        assert_int_equal(samekey_result_final(r), 0);
        *retry_in_ms = samekey_result_retry_in_ms(r);
        assert_true(waited < 1000);
        waited = -1;
    } else {
        assert_int_equal(effect, SAMEKEY_EFFECT_SEND);
        assert_int_equal(s.effect.attempt, 2);
        assert_string_equal(s.effect.call_id, "c-1");
    }
    stage_end(&s);
    return waited;
}

static void case_29_row_by_row(void **state)
{
    (void)state;
    json_t *root = case_29(), *row;
    size_t index, played = 0;
    json_array_foreach(json_object_get(root, "rows"), index, row)
    {
        const char *value = json_string_value(json_object_get(row, "retry_after"));
        json_t *wait_s = json_object_get(row, "wait_s"), *deadline = json_object_get(row, "deadline_s");
        struct samekey_header header = {"Retry-After", value};
        for (int receipts = 0; receipts < 2; receipts++) {
            int64_t retry_in = 0;
            int64_t waited = wait_after(&header, 1, deadline ? json_integer_value(deadline) * 1000 : 1000000,
                                        receipts, &retry_in);
            const char *words = json_string_value(wait_s);
            if (deadline) {
                assert_int_equal(waited, -1);
                assert_in_range(retry_in, 199000, 200000);
            } else if (json_is_integer(wait_s)) {
                int64_t ms = json_integer_value(wait_s) * 1000;
                assert_in_range(waited, ms, ms + ms / 10 + 1000);
            } else if (strstr(words, "longest wait")) {
                assert_in_range(waited, 300000, 331000);
            } else {
                assert_non_null(strstr(words, "own backoff"));
                assert_in_range(waited, 500, 4000); /* 1 s by U(0.5, 1), never a hot loop */
            }
            played++;
        }
    }
    assert_int_equal(played, 30);
    json_decref(root);
}

static void two_headers_take_the_longer(void **state)
{
    (void)state;
    struct samekey_header two[] = {{"Retry-After", "10"}, {"retry-after", "20"}};
    int64_t retry_in;
    assert_in_range(wait_after(two, 2, 1000000, true, &retry_in), 20000, 23000);
}

/* ---- transcripts -------------------------------------------------------------------------------------------- */

static void timeout_but_done(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    assert_int_equal(start(&s), SAMEKEY_EFFECT_SEND);
    assert_string_equal(s.effect.url, "http://svc.test/orders");
    assert_string_equal(s.effect.key, "k-1");
    assert_int_equal(s.effect.timeout_ms, 3000);
    assert_int_equal(s.effect.header_count, 4);
    assert_string_equal(s.effect.headers[0].name, "X-Call-Id");
    assert_string_equal(s.effect.headers[0].value, "c-1");
    s.now += 3000;
    assert_int_equal(cut(&s, SAMEKEY_END_TIMEOUT, 100), SAMEKEY_EFFECT_ASK);
    assert_string_equal(s.effect.url, "http://svc.test/receipts/c-1");
    assert_null(samekey_run_result(s.run));
    assert_int_equal(receipt(&s, "SUCCESS"), SAMEKEY_EFFECT_END);
    const struct samekey_result *r = samekey_run_result(s.run);
    assert_int_equal(samekey_result_state(r), SAMEKEY_SUCCESS);
    assert_string_equal(samekey_result_reason(r), "receipt");
    assert_int_equal(samekey_result_attempts(r), 1);
    struct samekey_attempt a = {.size = sizeof a};
    assert_int_equal(samekey_result_attempt(r, 0, &a), SAMEKEY_OK);
    assert_int_equal(a.outcome, SAMEKEY_OUTCOME_UNKNOWN);
    assert_int_equal(samekey_result_attempt(r, 1, &a), SAMEKEY_NOT_FOUND);
    int said, after;
    assert_int_equal(samekey_result_query(r, 0, &said, &after), SAMEKEY_OK);
    assert_int_equal(said, SAMEKEY_ANSWER_SUCCESS);
    assert_int_equal(after, 1);
    stage_end(&s);
}

static void not_received_waits_for_what_may_travel_and_asks_again(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    s.options.resend_after_ms = 5000;
    start(&s);
    cut(&s, SAMEKEY_END_RESET, 1);
    int64_t closed = s.now;
    assert_int_equal(receipt(&s, "NOT_RECEIVED"), SAMEKEY_EFFECT_WAIT);
    assert_int_equal(s.effect.until_ms, closed + 5000);
    assert_int_equal(wait(&s), SAMEKEY_EFFECT_ASK);
    assert_int_equal(receipt(&s, "NOT_RECEIVED"), SAMEKEY_EFFECT_WAIT);
    assert_int_equal(wait(&s), SAMEKEY_EFFECT_SEND);
    assert_int_equal(s.effect.attempt, 2);
    assert_int_equal(answer(&s, 201, NULL, 0), SAMEKEY_EFFECT_END);
    stage_end(&s);
}

static void refused_later_does_not_clear_what_may_have_run(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    s.options.flags = SAMEKEY_CALLEE_IDEMPOTENT;
    s.options.receipt = "none";
    s.options.retries = 2;
    start(&s);
    assert_int_equal(cut(&s, SAMEKEY_END_EOF, 10), SAMEKEY_EFFECT_WAIT);
    wait(&s);
    assert_int_equal(cut(&s, SAMEKEY_END_REFUSED, 0), SAMEKEY_EFFECT_WAIT);
    wait(&s);
    assert_int_equal(cut(&s, SAMEKEY_END_REFUSED, 0), SAMEKEY_EFFECT_END);
    const struct samekey_result *r = samekey_run_result(s.run);
    assert_int_equal(samekey_result_state(r), SAMEKEY_UNKNOWN);
    assert_int_equal(samekey_result_safe_new_key(r), 0);
    stage_end(&s);
}

static void the_last_attempt_is_shortened_and_none_is_begun_past_the_deadline(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    s.options.deadline_ms = 4000;
    start(&s);
    s.now += 3000;
    assert_int_equal(cut(&s, SAMEKEY_END_CONNECT_TIMEOUT, 0), SAMEKEY_EFFECT_WAIT);
    assert_int_equal(wait(&s), SAMEKEY_EFFECT_SEND);
    assert_true(s.effect.timeout_ms <= 1000000 + 4000 - s.now);
    s.now = 1000000 + 3990;
    assert_int_equal(cut(&s, SAMEKEY_END_CONNECT_TIMEOUT, 0), SAMEKEY_EFFECT_END);
    assert_string_equal(samekey_result_reason(samekey_run_result(s.run)), "deadline");
    stage_end(&s);
}

static void cancelling_a_wait_ends_with_what_is_proved(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    start(&s);
    assert_int_equal(cut(&s, SAMEKEY_END_REFUSED, 0), SAMEKEY_EFFECT_WAIT);
    begin_event(&s, SAMEKEY_EVENT_CANCEL);
    assert_int_equal(give(&s), SAMEKEY_EFFECT_END);
    assert_int_equal(samekey_result_state(samekey_run_result(s.run)), SAMEKEY_FAILED);
    stage_end(&s);
    stage_begin(&s);
    start(&s);
    cut(&s, SAMEKEY_END_RESET, 9);
    assert_int_equal(receipt(&s, NULL), SAMEKEY_EFFECT_WAIT);
    begin_event(&s, SAMEKEY_EVENT_CANCEL);
    assert_int_equal(give(&s), SAMEKEY_EFFECT_END);
    assert_int_equal(samekey_result_state(samekey_run_result(s.run)), SAMEKEY_UNKNOWN);
    stage_end(&s);
}

static void a_call_of_an_earlier_process_is_asked_about_first(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    assert_int_equal(samekey_run_new(&s.run, s.handle, &s.options), SAMEKEY_OK);
    begin_event(&s, SAMEKEY_EVENT_START);
    s.event.past_attempts = 2;
    s.event.past_maybe_ran = 1;
    s.event.past_age_ms = 60000;
    assert_int_equal(give(&s), SAMEKEY_EFFECT_ASK);
    assert_int_equal(receipt(&s, "SUCCESS"), SAMEKEY_EFFECT_END);
    stage_end(&s);
}

static void an_echo_of_another_call_proves_nothing(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    start(&s);
    begin_event(&s, SAMEKEY_EVENT_ATTEMPT);
    s.event.end = SAMEKEY_END_ANSWER;
    s.event.sent_bytes = 10;
    s.event.status = 200;
    s.event.outcome = SAMEKEY_OUTCOME_SUCCESS;
    s.event.echoed_call_id = "c-2";
    assert_int_equal(give(&s), SAMEKEY_EFFECT_ASK);
    stage_end(&s);
}

/* ---- misuse ------------------------------------------------------------------------------------------------- */

static void events_that_do_not_follow_change_nothing(void **state)
{
    (void)state;
    struct stage s;
    stage_begin(&s);
    assert_int_equal(samekey_run_new(&s.run, s.handle, &s.options), SAMEKEY_OK);
    struct samekey_event e;
    samekey_event_init(&e);
    for (int type = -1; type < 8; type++) {
        if (type == SAMEKEY_EVENT_START)
            continue;
        e.type = type;
        assert_int_equal(samekey_run_step(s.run, &e, &s.effect), SAMEKEY_MISUSE);
    }
    begin_event(&s, SAMEKEY_EVENT_START);
    assert_int_equal(give(&s), SAMEKEY_EFFECT_SEND);
    for (int type = -1; type < 8; type++) {
        samekey_event_init(&e);
        e.type = type;
        e.end = type == SAMEKEY_EVENT_ATTEMPT ? 99 : 0; /* no such end */
        assert_int_equal(samekey_run_step(s.run, &e, &s.effect), SAMEKEY_MISUSE);
    }
    samekey_event_init(&e);
    e.type = SAMEKEY_EVENT_ATTEMPT;
    e.end = SAMEKEY_END_ANSWER;
    e.status = 100; /* an interim answer is none */
    assert_int_equal(samekey_run_step(s.run, &e, &s.effect), SAMEKEY_MISUSE);
    e.status = 200;
    e.random = 1;
    assert_int_equal(samekey_run_step(s.run, &e, &s.effect), SAMEKEY_MISUSE);
    assert_int_equal(answer(&s, 200, NULL, 0), SAMEKEY_EFFECT_END);
    assert_int_equal(samekey_run_step(s.run, &s.event, &s.effect), SAMEKEY_MISUSE);
    stage_end(&s);
}

static void options_that_break_a_rule_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *url, *key, *call_id, *receipt, *method, *word;
        int retries;
    } rows[] = {
        {"ftp://x/", "k", NULL, NULL, "POST", "http://", 3},
        {"http://", "k", NULL, NULL, "POST", "host", 3},
        {"http://x/ y", "k", NULL, NULL, "POST", "%20", 3},
        {"http://x/", "two words", NULL, NULL, "POST", "key", 3},
        {"http://x/", "k", "a b", NULL, "POST", "callId", 3},
        {"http://x/", "k", NULL, "{uuid}", "POST", "receipt", 3},
        {"http://x/", "k", NULL, "{origin}/", "POST", "call_id", 3},
        {"http://x/", NULL, NULL, "{key}{call_id}", "POST", "", 3},
        {"http://x/", "k", NULL, NULL, "PO ST", "method", 3},
        {"http://x/", "k", NULL, NULL, "POST", "retries", 21},
        {"http://x/", "k", NULL, NULL, "POST", "retries", -1},
        {NULL, "k", NULL, NULL, "POST", "URL", 3},
    };
    struct stage s;
    stage_begin(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct samekey_error error = {0};
        struct samekey_run *run = NULL;
        s.options.url = rows[i].url;
        s.options.key = rows[i].key;
        s.options.call_id = rows[i].call_id;
        s.options.receipt = rows[i].receipt;
        s.options.method = rows[i].method;
        s.options.retries = rows[i].retries;
        s.options.error = &error;
        assert_int_equal(samekey_run_new(&run, s.handle, &s.options), SAMEKEY_INVALID);
        assert_null(run);
        assert_int_equal(error.status, SAMEKEY_INVALID);
        if (!strstr(error.text, rows[i].word))
            fail_msg("row %zu: '%s' does not speak of %s", i, error.text, rows[i].word);
    }
    stage_end(&s);
}

/* ---- random stories ----------------------------------------------------------------------------------------- */

/* A service without deduplication whose receipt tells the truth, behind a network that loses requests and replies and
 * delays none of them past the timeout. */
static void no_story_has_two_effects(void **state)
{
    (void)state;
    struct prng g;
    int successes = 0, unknown = 0, resent = 0;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct stage s;
        int effects = 0, sends = 0;
        bool asked_since = true, doubt = false;
        stage_begin(&s);
        s.options.retries = 3;
        prng_seed(&g, seed);
        int effect = start(&s);
        while (effect != SAMEKEY_EFFECT_END) {
            double r = prng_double(&g);
            s.now += 1 + (int64_t)(prng_double(&g) * 100);
            if (effect == SAMEKEY_EFFECT_SEND) {
                assert_true(!doubt || asked_since);
                sends++;
                asked_since = false;
                if (r < 0.2) {
                    effect = cut(&s, SAMEKEY_END_REFUSED, 0);
                } else if (r < 0.5) {
                    effects += r < 0.35;
                    doubt = true;
                    effect = cut(&s, r < 0.4 ? SAMEKEY_END_RESET : SAMEKEY_END_TIMEOUT, 50);
                } else if (r < 0.6) {
                    effect = answer(&s, 429, NULL, 0);
                } else if (r < 0.7) {
                    effects += r < 0.65;
                    doubt = true;
                    effect = answer(&s, 502, NULL, 0);
                } else {
                    effects++;
                    effect = answer(&s, 201, NULL, 0);
                }
            } else if (effect == SAMEKEY_EFFECT_ASK) {
                asked_since = true;
                effect = receipt(&s, r < 0.3 ? NULL : r < 0.35 ? "UNKNOWN" : effects ? "SUCCESS" : "NONE");
            } else {
                assert_int_equal(effect, SAMEKEY_EFFECT_WAIT);
                effect = wait(&s);
            }
        }
        const struct samekey_result *r = samekey_run_result(s.run);
        int end = samekey_result_state(r);
        if (effects > 1 || (end == SAMEKEY_SUCCESS && effects != 1) ||
            (end == SAMEKEY_FAILED && effects != 0))
            fail_msg("seed %llu: %d effects, %s", (unsigned long long)seed, effects, samekey_result_json(r));
        successes += end == SAMEKEY_SUCCESS;
        unknown += end == SAMEKEY_UNKNOWN;
        resent += sends > 1;
        stage_end(&s);
    }
    assert_true(successes > 10000 && unknown > 10 && resent > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_29_row_by_row),
        cmocka_unit_test(two_headers_take_the_longer),
        cmocka_unit_test(timeout_but_done),
        cmocka_unit_test(not_received_waits_for_what_may_travel_and_asks_again),
        cmocka_unit_test(refused_later_does_not_clear_what_may_have_run),
        cmocka_unit_test(the_last_attempt_is_shortened_and_none_is_begun_past_the_deadline),
        cmocka_unit_test(cancelling_a_wait_ends_with_what_is_proved),
        cmocka_unit_test(a_call_of_an_earlier_process_is_asked_about_first),
        cmocka_unit_test(an_echo_of_another_call_proves_nothing),
        cmocka_unit_test(events_that_do_not_follow_change_nothing),
        cmocka_unit_test(options_that_break_a_rule_are_told),
        cmocka_unit_test(no_story_has_two_effects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
