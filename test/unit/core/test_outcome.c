/* SPDX-License-Identifier: MIT
 *
 * What one attempt proves: every row of the table in CONTRACT section 3, typed out here once more from the page, so
 * that the code and the page can differ.
 */
#include "../base/check.h"

#include "core/outcome.h"

static const struct outcome_rules plain = {false, false, false};

static struct evidence answered(int status)
{
    return (struct evidence){.end = EVIDENCE_ANSWER,
                             .bytes_sent = 300,
                             .body_sent = 100,
                             .body_total = 100,
                             .request_complete = true,
                             .head_complete = true,
                             .reply_bytes = 80,
                             .status = status,
                             .success_when = -1};
}

static enum outcome of_status(int status, const struct outcome_rules *rules)
{
    struct evidence e = answered(status);
    return outcome_classify(&e, rules);
}

/* The page's rows for a complete answer without a Call-Outcome. */
static enum outcome page_says(int status, const struct outcome_rules *r)
{
    if (status == 202)
        return r->accepted_success ? OUTCOME_SUCCESS : OUTCOME_PENDING;
    if (status / 100 == 2)
        return OUTCOME_SUCCESS;
    if (status / 100 == 3)
        return status == 303 && r->redirect_303_success ? OUTCOME_SUCCESS : OUTCOME_UNKNOWN;
    if (status / 100 == 4) {
        static const int not_executed[] = {401, 407, 417, 421, 425, 429};
        for (size_t i = 0; i < COUNT(not_executed); i++) {
            if (status == not_executed[i])
                return OUTCOME_NOT_EXECUTED;
        }
        return status == 408 || status == 409 ? OUTCOME_UNKNOWN : OUTCOME_REJECTED;
    }
    if (status / 100 == 5 && r->server_error_failed) {
        /* An intermediary may have written these: they stay unknown always. */
        bool between = (status >= 502 && status <= 504) || status / 10 == 52;
        return between ? OUTCOME_UNKNOWN : OUTCOME_FAILED;
    }
    return OUTCOME_UNKNOWN;
}

static void every_status_under_every_choice(void **state)
{
    (void)state;
    for (int choice = 0; choice < 8; choice++) {
        struct outcome_rules rules = {choice & 1, choice & 2, choice & 4};
        for (int status = 0; status < 1000; status++) {
            enum outcome said = of_status(status, &rules);
            if (said != page_says(status, &rules))
                fail_msg("%d under choice %d is %s", status, choice, outcome_json(said));
        }
    }
}

/* The rows that people argue about, by name. */
static void the_rows_that_matter_most(void **state)
{
    (void)state;
    static const struct {
        int status;
        enum outcome plain, failed; /* server_error = unknown, = failed */
    } rows[] = {
        {200, OUTCOME_SUCCESS, OUTCOME_SUCCESS},
        {201, OUTCOME_SUCCESS, OUTCOME_SUCCESS},
        {202, OUTCOME_PENDING, OUTCOME_PENDING},
        {204, OUTCOME_SUCCESS, OUTCOME_SUCCESS},
        {100, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {301, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {303, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {307, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {400, OUTCOME_REJECTED, OUTCOME_REJECTED},
        {401, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {403, OUTCOME_REJECTED, OUTCOME_REJECTED},
        {404, OUTCOME_REJECTED, OUTCOME_REJECTED},
        {407, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {408, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {409, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {417, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {421, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {422, OUTCOME_REJECTED, OUTCOME_REJECTED},
        {425, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {429, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {500, OUTCOME_UNKNOWN, OUTCOME_FAILED},
        {501, OUTCOME_UNKNOWN, OUTCOME_FAILED},
        {502, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {503, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {504, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {520, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {524, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
        {530, OUTCOME_UNKNOWN, OUTCOME_FAILED},
        {600, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
    };
    static const struct outcome_rules failed = {.server_error_failed = true};
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(of_status(rows[i].status, &plain), rows[i].plain);
        assert_int_equal(of_status(rows[i].status, &failed), rows[i].failed);
    }
}

/* Name not found to bad certificate: proved by the count of bytes, not by the name of the ending. */
static void silence_before_and_after_the_first_byte(void **state)
{
    (void)state;
    static const struct {
        enum evidence_end end;
        enum outcome nothing_sent, something_sent;
    } rows[] = {
        {EVIDENCE_NAME, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_REFUSED, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_CONNECT_TIMEOUT, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_TLS, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_TLS_CERTIFICATE, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_OWN_REFUSAL, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_REFUSED_STREAM, OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED},
        {EVIDENCE_TIMEOUT, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_RESET, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_EOF, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_MALFORMED, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_ABORTED, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN},
        {EVIDENCE_LOST, OUTCOME_UNKNOWN, OUTCOME_UNKNOWN},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct evidence e = {.end = rows[i].end, .success_when = -1};
        assert_int_equal(outcome_classify(&e, &plain), rows[i].nothing_sent);
        /* One byte is enough, and so is a reply that broke off after a good status. */
        e.bytes_sent = 1;
        assert_int_equal(outcome_classify(&e, &plain), rows[i].something_sent);
        e = answered(201);
        e.end = rows[i].end;
        assert_int_equal(outcome_classify(&e, &plain), rows[i].something_sent);
        /* A Call-Outcome in the head of an answer that never became whole says nothing. */
        e.has_callee_outcome = true;
        e.callee_outcome = OUTCOME_NOT_EXECUTED;
        assert_int_equal(outcome_classify(&e, &plain), rows[i].something_sent);
    }
}

/* RFC 9110 section 10.1.1: a body that was held back for a 100 and never left cannot have run. */
static void a_body_held_back_for_a_100(void **state)
{
    (void)state;
    static const enum evidence_end silences[] = {EVIDENCE_TIMEOUT, EVIDENCE_RESET, EVIDENCE_EOF,
                                                 EVIDENCE_MALFORMED, EVIDENCE_ABORTED};
    for (size_t i = 0; i < COUNT(silences); i++) {
        struct evidence held = {.end = silences[i],
                                .bytes_sent = 200,
                                .body_total = 50,
                                .waited_continue = true,
                                .success_when = -1};
        assert_int_equal(outcome_classify(&held, &plain), OUTCOME_NOT_EXECUTED);
        struct evidence e = held;
        e.got_continue = true;
        assert_int_equal(outcome_classify(&e, &plain), OUTCOME_UNKNOWN);
        e = held;
        e.body_sent = 1;
        assert_int_equal(outcome_classify(&e, &plain), OUTCOME_UNKNOWN);
        e = held;
        e.body_total = 0; /* an empty body is never held back: the head was the whole request */
        assert_int_equal(outcome_classify(&e, &plain), OUTCOME_UNKNOWN);
        e = held;
        e.waited_continue = false;
        assert_int_equal(outcome_classify(&e, &plain), OUTCOME_UNKNOWN);
    }
}

static void the_callees_own_word_decides_before_the_status(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        enum outcome outcome;
    } words[] = {
        {"success", OUTCOME_SUCCESS},           {"rejected", OUTCOME_REJECTED}, {"failed", OUTCOME_FAILED},
        {"not-executed", OUTCOME_NOT_EXECUTED}, {"pending", OUTCOME_PENDING},   {"unknown", OUTCOME_UNKNOWN},
    };
    static const int statuses[] = {200, 202, 204, 303, 400, 401, 404, 408, 409,
                                   422, 429, 500, 502, 503, 504, 524, 600};
    for (size_t w = 0; w < COUNT(words); w++) {
        assert_int_equal(outcome_parse_header(slice_text(words[w].header)), words[w].outcome);
        for (size_t s = 0; s < COUNT(statuses); s++) {
            for (int choice = 0; choice < 8; choice++) {
                struct outcome_rules rules = {choice & 1, choice & 2, choice & 4};
                struct evidence e = answered(statuses[s]);
                e.has_callee_outcome = true;
                e.callee_outcome = words[w].outcome;
                assert_int_equal(outcome_classify(&e, &rules), words[w].outcome);
                /* An answer for somebody else's call has proved nothing, whatever it says. */
                e.other_call_id = true;
                assert_int_equal(outcome_classify(&e, &rules), OUTCOME_UNKNOWN);
            }
        }
    }
    for (int status = 0; status < 700; status++) {
        struct evidence e = answered(status);
        e.other_call_id = true;
        assert_int_equal(outcome_classify(&e, &plain), OUTCOME_UNKNOWN);
    }
}

static void success_when_is_asked_of_2xx_answers_only(void **state)
{
    (void)state;
    struct evidence e = answered(200);
    e.success_when = 1;
    assert_int_equal(outcome_classify(&e, &plain), OUTCOME_SUCCESS);
    e.success_when = 0;
    assert_int_equal(outcome_classify(&e, &plain), OUTCOME_REJECTED);
    e.status = 202;
    assert_int_equal(outcome_classify(&e, &plain), OUTCOME_PENDING);
    e.status = 500;
    assert_int_equal(outcome_classify(&e, &plain), OUTCOME_UNKNOWN);
    e.status = 404;
    assert_int_equal(outcome_classify(&e, &plain), OUTCOME_REJECTED);
    /* The callee's own word stands over the route's reading of its body. */
    e.status = 200;
    e.has_callee_outcome = true;
    e.callee_outcome = OUTCOME_SUCCESS;
    assert_int_equal(outcome_classify(&e, &plain), OUTCOME_SUCCESS);
}

static void what_our_own_policy_may_repeat(void **state)
{
    (void)state;
    for (int status = 100; status < 600; status++) {
        struct evidence e = answered(status);
        assert_int_equal(outcome_retry_allowed(&e), status != 401 && status != 407);
        e.has_callee_outcome = true;
        e.callee_outcome = OUTCOME_NOT_EXECUTED;
        assert_int_equal(outcome_retry_allowed(&e), status != 401 && status != 407);
        e.status_is_ours = true; /* a samekey below has had its retries */
        assert_false(outcome_retry_allowed(&e));
    }
    for (int end = EVIDENCE_NAME; end <= EVIDENCE_LOST; end++) {
        struct evidence e = {.end = (enum evidence_end)end};
        assert_int_equal(outcome_retry_allowed(&e), end != EVIDENCE_TLS_CERTIFICATE);
    }
}

static void words_are_read_back(void **state)
{
    (void)state;
    for (int i = OUTCOME_NOT_EXECUTED; i < OUTCOME_COUNT; i++) {
        enum outcome o = (enum outcome)i;
        assert_int_equal(outcome_parse_header(slice_text(outcome_header(o))), o);
        assert_int_equal(outcome_parse_json(slice_text(outcome_json(o))), o);
        assert_true(strlen(outcome_sentence(o)) > 10);
    }
    assert_string_equal(outcome_json(OUTCOME_NOT_EXECUTED), "not_executed");
    assert_string_equal(outcome_header(OUTCOME_NOT_EXECUTED), "not-executed");
    assert_int_equal(outcome_parse_header(slice_text("  Not-Executed\t")), OUTCOME_NOT_EXECUTED);
    static const char *const strangers[] = {"",   "none",     "not_executed", "successful", "success, failed",
                                            "ok", "suc cess", "success;q=1"};
    for (size_t i = 0; i < COUNT(strangers); i++)
        assert_int_equal(outcome_parse_header(slice_text(strangers[i])), OUTCOME_NONE);
    assert_int_equal(outcome_parse_json(slice_text("not-executed")), OUTCOME_NONE);
    assert_int_equal(outcome_parse_json(slice_text("none")), OUTCOME_NONE);
    assert_int_equal(outcome_parse_json(slice_text("Success")), OUTCOME_NONE);
}

static void a_sentence_for_every_ending(void **state)
{
    (void)state;
    struct buffer out = {0};
    struct evidence e = {.end = EVIDENCE_TIMEOUT,
                         .bytes_sent = 9,
                         .request_complete = true,
                         .timeout_ms = 3000,
                         .success_when = -1};
    evidence_sentence(&out, &e);
    check_text(&out, "no reply within 3 s after the whole request was sent");
    e.timeout_ms = 1500;
    e.request_complete = false;
    evidence_sentence(&out, &e);
    check_text(&out, "no reply within 1.500 s after the head was sent");
    e.timeout_ms = 250;
    e.body_sent = 4;
    e.head_complete = true;
    evidence_sentence(&out, &e);
    check_text(&out, "the reply was not complete within 250 ms after a part of the body was sent");
    e = (struct evidence){.end = EVIDENCE_REFUSED, .success_when = -1, .detail = "10.0.0.9:80"};
    evidence_sentence(&out, &e);
    check_text(&out, "connection refused; nothing was sent (10.0.0.9:80)");
    e = answered(409);
    e.has_callee_outcome = true;
    e.callee_outcome = OUTCOME_NOT_EXECUTED;
    evidence_sentence(&out, &e);
    check_text(&out, "answered 409 with Call-Outcome not-executed");
    e = answered(200);
    e.other_call_id = true;
    evidence_sentence(&out, &e);
    check_text(&out, "answered 200, but for another callId than the one sent");
    for (int end = EVIDENCE_ANSWER; end <= EVIDENCE_LOST; end++) {
        for (int bits = 0; bits < 32; bits++) {
            e = (struct evidence){.end = (enum evidence_end)end,
                                  .bytes_sent = bits & 1,
                                  .request_complete = bits & 2,
                                  .body_sent = bits & 4 ? 1 : 0,
                                  .reply_bytes = bits & 8 ? 1 : 0,
                                  .head_complete = bits & 16,
                                  .status = 200,
                                  .success_when = -1};
            evidence_sentence(&out, &e);
            assert_true(out.len > 8);
            /* A sentence never claims that nothing was sent when something was. */
            bool says_sent = !strstr(buffer_cstring(&out), "nothing was sent") &&
                             !strstr(buffer_cstring(&out), "before anything was sent");
            if (end >= EVIDENCE_TIMEOUT && end <= EVIDENCE_ABORTED)
                assert_int_equal(says_sent, bits & 1);
            buffer_clear(&out);
        }
    }
    buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_under_every_choice),
        cmocka_unit_test(the_rows_that_matter_most),
        cmocka_unit_test(silence_before_and_after_the_first_byte),
        cmocka_unit_test(a_body_held_back_for_a_100),
        cmocka_unit_test(the_callees_own_word_decides_before_the_status),
        cmocka_unit_test(success_when_is_asked_of_2xx_answers_only),
        cmocka_unit_test(what_our_own_policy_may_repeat),
        cmocka_unit_test(words_are_read_back),
        cmocka_unit_test(a_sentence_for_every_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
