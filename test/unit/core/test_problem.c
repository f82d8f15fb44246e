/* SPDX-License-Identifier: MIT
 *
 * Every problem's slug, status and outcome against the table of CONTRACT section 5, and the document against a JSON
 * reader that is not ours.
 */
#include "../base/check.h"

#include "core/problem.h"

#include <jansson.h>
#include <stdio.h>

/* The page's table, in its order. */
static const struct {
    enum problem problem;
    const char *slug;
    int status;
    const char *outcome;
} page[] = {
    {PROBLEM_NO_ROUTE, "no-route", 404, "rejected"},
    {PROBLEM_CALL_ID_INVALID, "call-id-invalid", 400, "rejected"},
    {PROBLEM_KEY_MISSING, "key-missing", 400, "rejected"},
    {PROBLEM_KEY_INVALID, "key-invalid", 400, "rejected"},
    {PROBLEM_BODY_INVALID, "body-invalid", 400, "rejected"},
    {PROBLEM_TENANT_MISSING, "tenant-missing", 400, "rejected"},
    {PROBLEM_CREDENTIAL_MISSING, "credential-missing", 400, "rejected"},
    {PROBLEM_CREDENTIAL_MISMATCH, "credential-mismatch", 409, "unknown"},
    {PROBLEM_CALL_ID_REUSED, "call-id-reused", 422, "rejected"},
    {PROBLEM_KEY_REUSED, "key-reused", 422, "rejected"},
    {PROBLEM_CALL_FENCED, "call-fenced", 409, "rejected"},
    {PROBLEM_OPERATION_REVERSED, "operation-reversed", 409, "rejected"},
    {PROBLEM_KEY_EXPIRED, "key-expired", 409, "rejected"},
    {PROBLEM_CALL_IN_PROGRESS, "call-in-progress", 409, "pending"},
    {PROBLEM_OPERATION_IN_PROGRESS, "operation-in-progress", 409, "pending"},
    {PROBLEM_OUTCOME_UNKNOWN, "outcome-unknown", 409, "unknown"},
    {PROBLEM_CALL_FAILED, "call-failed", 409, "failed"},
    {PROBLEM_RESULT_NOT_KEPT, "result-not-kept", 409, "success"},
    {PROBLEM_SUSPECTED_DUPLICATE, "suspected-duplicate", 409, "rejected"},
    {PROBLEM_RATE_LIMITED, "rate-limited", 429, "not-executed"},
    {PROBLEM_OVERLOADED, "overloaded", 503, "not-executed"},
    {PROBLEM_UPSTREAM_UNAVAILABLE, "upstream-unavailable", 503, "not-executed"},
    {PROBLEM_STORE_UNAVAILABLE, "store-unavailable", 503, "not-executed"},
    {PROBLEM_BODY_TOO_LARGE, "body-too-large", 413, "rejected"},
    {PROBLEM_HEADERS_TOO_LARGE, "headers-too-large", 431, "rejected"},
};

static void the_table_is_the_pages(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(page); i++) {
        assert_string_equal(problem_slug(page[i].problem), page[i].slug);
        assert_int_equal(problem_status(page[i].problem), page[i].status);
        assert_string_equal(outcome_header(problem_outcome(page[i].problem)), page[i].outcome);
    }
    for (int a = PROBLEM_NONE + 1; a < PROBLEM_COUNT; a++) {
        for (int b = a + 1; b < PROBLEM_COUNT; b++)
            assert_string_not_equal(problem_slug((enum problem)a), problem_slug((enum problem)b));
        /* Whatever is not on the page is an error too, and promises no success. */
        assert_in_range(problem_status((enum problem)a), 400, 599);
    }
}

/* "speak about another call: safe_new_key is false with them". */
static void what_speaks_about_another_call(void **state)
{
    (void)state;
    static const char *const others[] = {"key-expired",        "key-reused",          "call-id-reused",
                                         "operation-reversed", "credential-mismatch", "suspected-duplicate"};
    for (size_t i = 0; i < COUNT(page); i++) {
        bool other = false;
        for (size_t k = 0; k < COUNT(others); k++)
            other = other || strcmp(others[k], page[i].slug) == 0;
        assert_int_equal(problem_about_other(page[i].problem), other);
    }
}

static void who_waited_for_an_unknown_ending_gets_504(void **state)
{
    (void)state;
    for (int p = PROBLEM_NONE + 1; p < PROBLEM_COUNT; p++) {
        struct problem_facts facts = {.retry_after_s = -1};
        assert_int_equal(problem_answer_status((enum problem)p, &facts), problem_status((enum problem)p));
        facts.waited = true;
        bool late = p == PROBLEM_OUTCOME_UNKNOWN || p == PROBLEM_CALL_IN_PROGRESS;
        assert_int_equal(problem_answer_status((enum problem)p, &facts),
                         late ? 504 : problem_status((enum problem)p));
    }
}

static json_t *document(enum problem problem, const struct problem_facts *facts)
{
    struct buffer out = {0};
    json_error_t error;
    problem_document(&out, problem, facts);
    json_t *root = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        fail_msg("%s: %s in %s", problem_slug(problem), error.text, buffer_cstring(&out));
    buffer_fini(&out);
    return root;
}

static const char *text_of(json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

static void documents_are_json_whatever_they_say(void **state)
{
    (void)state;
    static const char *const hostile[] = {"",
                                          "plain",
                                          "a \"quote\" and a \\",
                                          "line\r\nbreak\ttab",
                                          "\x01\x1f\x7f",
                                          "\xff\xfe\xc0\xaf",
                                          "\xf0\x9f\x8d\x8b caf\xc3\xa9",
                                          "</script>",
                                          "{\"state\":\"SUCCESS\"}"};
    for (int p = PROBLEM_NONE + 1; p < PROBLEM_COUNT; p++) {
        for (size_t i = 0; i < COUNT(hostile); i++) {
            enum problem problem = (enum problem)p;
            struct problem_facts facts = {.detail = slice_text(hostile[i]),
                                          .call_id = slice_text(hostile[i]),
                                          .original_call_id = slice_text(hostile[i]),
                                          .state = STATE_FAILED,
                                          .safe_new_key = true,
                                          .next = NEXT_WAIT,
                                          .retry_after_s = i ? (int64_t)i : -1,
                                          .with_receipt = true,
                                          .waited = i & 1};
            json_t *root = document(problem, &facts);
            char type[64];
            snprintf(type, sizeof type, "urn:samekey:%s", problem_slug(problem));
            assert_string_equal(text_of(root, "type"), type);
            assert_true(strlen(text_of(root, "title")) > 8);
            assert_true(strlen(text_of(root, "detail")) > 0);
            assert_int_equal(json_integer_value(json_object_get(root, "status")),
                             problem_answer_status(problem, &facts));
            assert_int_equal(json_is_true(json_object_get(root, "safe_new_key")),
                             !problem_about_other(problem));
            assert_string_equal(text_of(root, "state"), "FAILED");
            assert_string_equal(text_of(root, "next_action"), "wait");
            json_t *after = json_object_get(root, "retry_after_s");
            assert_true(i ? json_integer_value(after) == (json_int_t)i : json_is_null(after));
            assert_int_equal(json_is_null(json_object_get(root, "call_id")), i == 0);
            /* Only a real callId has a receipt: nothing else may get into a path. */
            json_t *receipt = json_object_get(root, "receipt");
            assert_true(receipt != NULL);
            if (i == 1)
                assert_string_equal(json_string_value(receipt), "/.samekey/receipts/plain");
            else
                assert_true(json_is_null(receipt));
            json_decref(root);
        }
    }
}

static void nothing_known_is_null(void **state)
{
    (void)state;
    struct problem_facts facts = {.retry_after_s = -1};
    json_t *root = document(PROBLEM_NO_ROUTE, &facts);
    static const char *const nulls[] = {"call_id", "original_call_id", "retry_after_s", "receipt"};
    for (size_t i = 0; i < COUNT(nulls); i++)
        assert_true(json_is_null(json_object_get(root, nulls[i])));
    assert_string_equal(text_of(root, "detail"), text_of(root, "title"));
    assert_string_equal(text_of(root, "state"), "NOT_RECEIVED");
    assert_true(json_is_false(json_object_get(root, "safe_new_key")));
    assert_int_equal(json_object_size(root), 11);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_the_pages),
        cmocka_unit_test(what_speaks_about_another_call),
        cmocka_unit_test(who_waited_for_an_unknown_ending_gets_504),
        cmocka_unit_test(documents_are_json_whatever_they_say),
        cmocka_unit_test(nothing_known_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
