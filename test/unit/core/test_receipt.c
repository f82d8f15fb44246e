/* SPDX-License-Identifier: MIT
 *
 * The receipt: what may be said about a row, the document that says it (read here with a JSON reader that did not write
 * it), and what is believed of somebody else's document.
 */
#include "../base/check.h"

#include "base/prng.h"
#include "core/receipt.h"

#include <jansson.h>
#include <stdio.h>

#define NOW_MS   INT64_C(1772366400123)
#define FIRST_MS (NOW_MS - 5000)

/* ---- words ----------------------------------------------------------------------------------------------------- */

static void states_are_read_by_their_exact_names(void **state)
{
    (void)state;
    static const enum call_state states[] = {STATE_NOT_RECEIVED, STATE_RECEIVED, STATE_PROCESSING,
                                             STATE_SUCCESS,      STATE_FAILED,   STATE_UNKNOWN};
    enum call_state read;
    for (size_t i = 0; i < COUNT(states); i++) {
        assert_true(state_parse(slice_text(state_text(states[i])), &read));
        assert_int_equal(read, states[i]);
        assert_true(strlen(state_sentence(states[i])) > 10);
        assert_int_equal(state_running(states[i]),
                         states[i] == STATE_RECEIVED || states[i] == STATE_PROCESSING);
    }
    assert_true(state_parse(slice_text("NONE"), &read));
    assert_int_equal(read, STATE_NOT_RECEIVED);
    static const char *const strangers[] = {"",     "success", "Success", "SUCCESS ",
                                            "DONE", "null",    "OK",      "UNKNOWN\n"};
    for (size_t i = 0; i < COUNT(strangers); i++)
        assert_false(state_parse(slice_text(strangers[i]), &read));
    assert_string_equal(proof_text(PROOF_TRANSACTION), "transaction");
    assert_string_equal(proof_text(PROOF_BESIDE), "beside");
    assert_string_equal(proof_text(PROOF_NONE), "none");
    assert_string_equal(reason_text(REASON_FENCED), "fenced");
    assert_string_equal(reason_text(REASON_NONE), "");
    assert_true(strlen(reason_sentence(REASON_BREAKER)) > 10);
}

/* ---- what may be said -------------------------------------------------------------------------------------------- */

static struct rows rows_with(enum call_state state, bool final, enum reason reason)
{
    struct rows rows = {.now_ms = NOW_MS, .covers_since_ms = NOW_MS - 86400000};
    rows.call = (struct call_row){.id = 5,
                                  .state = state,
                                  .final = final,
                                  .reason = reason,
                                  .has_key = true,
                                  .has_fingerprint = true,
                                  .attempt_count = 1,
                                  .call_id = slice_text("ord-1"),
                                  .key = slice_text("k-1")};
    rows.holder = rows.call;
    return rows;
}

static void what_each_state_tells(void **state)
{
    (void)state;
    static const struct {
        enum call_state state;
        bool final;
        enum reason reason;
        int attempts, received, executed;
        bool safe;
        const char *next;
    } table[] = {
        {STATE_RECEIVED, false, REASON_NONE, 0, 1, 0, false, "wait"},
        {STATE_PROCESSING, false, REASON_NONE, 1, 1, -1, false, "wait"},
        {STATE_SUCCESS, true, REASON_NONE, 1, 1, 1, false, "none"},
        {STATE_SUCCESS, true, REASON_REPORTED, 0, 1, 1, false, "none"},
        {STATE_FAILED, true, REASON_REJECTED, 1, 1, 0, true, "fix_request"},
        {STATE_FAILED, true, REASON_RECEIPT, 2, 1, 0, true, "none"},
        {STATE_FAILED, true, REASON_FENCED, 0, 0, 0, true, "none"},
        {STATE_FAILED, false, REASON_RETRIES, 4, 1, 0, false, "retry_same_call"},
        {STATE_UNKNOWN, false, REASON_ATTEMPT, 1, 1, -1, false, "retry_same_call"},
        {STATE_UNKNOWN, false, REASON_ACCEPTED, 1, 1, -1, false, "retry_same_call"},
        {STATE_UNKNOWN, false, REASON_LEASE_EXPIRED, 1, 1, -1, false, "retry_same_call"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct rows rows = rows_with(table[i].state, table[i].final, table[i].reason);
        struct standing s;
        rows.call.attempt_count = table[i].attempts;
        receipt_standing(&rows, &s);
        assert_int_equal(s.state, table[i].state);
        assert_int_equal(s.final, table[i].final);
        assert_int_equal(s.received, table[i].received);
        assert_int_equal(s.executed, table[i].executed);
        assert_int_equal(s.safe_new_key, table[i].safe);
        assert_string_equal(next_action_text(s.next_action), table[i].next);
    }
    struct rows none = {.now_ms = NOW_MS};
    struct standing s;
    receipt_standing(&none, &s);
    assert_int_equal(s.state, STATE_NOT_RECEIVED);
    assert_false(s.final || s.safe_new_key);
    assert_int_equal(s.received, 0);
    assert_int_equal(s.executed, 0);
    assert_string_equal(next_action_text(s.next_action), "retry_same_call");
}

/* "true only if this call is FAILED final and no call with its key is PROCESSING, UNKNOWN or SUCCESS". */
static void a_new_key_is_safe_only_over_the_whole_operation(void **state)
{
    (void)state;
    static const struct {
        enum call_state state;
        bool final;
    } states[] = {{STATE_NOT_RECEIVED, false}, {STATE_RECEIVED, false}, {STATE_PROCESSING, false},
                  {STATE_SUCCESS, true},       {STATE_FAILED, true},    {STATE_FAILED, false},
                  {STATE_UNKNOWN, false}};
    for (size_t mine = 1; mine < COUNT(states); mine++) {
        for (size_t other = 0; other < COUNT(states); other++) {
            for (int bits = 0; bits < 4; bits++) {
                struct rows rows = rows_with(states[mine].state, states[mine].final, REASON_RECEIPT);
                struct standing s;
                rows.call.has_key = bits & 1;
                rows.call.has_fingerprint = bits & 2;
                rows.holder = (struct call_row){0};
                if (states[other].state != STATE_NOT_RECEIVED)
                    rows.holder = (struct call_row){
                        .id = 6, .state = states[other].state, .final = states[other].final};
                receipt_standing(&rows, &s);
                bool alive = states[other].state == STATE_PROCESSING ||
                             states[other].state == STATE_UNKNOWN || states[other].state == STATE_SUCCESS ||
                             states[other].state == STATE_RECEIVED;
                bool safe = states[mine].state == STATE_FAILED && states[mine].final;
                if (rows.call.has_key)
                    safe = safe && !alive;
                else
                    safe =
                        safe &&
                        rows.call.has_fingerprint; /* a bare fence knows no operation, and promises nothing */
                assert_int_equal(s.safe_new_key, safe);
            }
        }
    }
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

static json_t *parse(struct buffer *b)
{
    json_error_t error;
    json_t *root = json_loadb(b->data, b->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        fail_msg("%s at %d in %s", error.text, error.position, buffer_cstring(b));
    buffer_clear(b);
    return root;
}

static const char *text_of(json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

#define RAW(text) slice_of((text), sizeof(text) - 1)

static struct slice hostile(size_t i)
{
    static const struct {
        const char *bytes;
        size_t len;
    } texts[] = {
        {"", 0},
        {"plain", 5},
        {"quote \" and \\ and /", 19},
        {"\0nul\0", 5},
        {"\x01\x02\x1f\x7f", 4},
        {"\xff\xfe\xc0\xaf\xed\xa0\x80", 7},
        {"\xf0\x9f\x8d\x8b caf\xc3\xa9", 10},
        {"\r\nX-Evil: yes\r\n", 15},
        {"\",\"state\":\"SUCCESS", 18},
        {"\xe2\x82", 2},
    };
    return slice_of(texts[i % COUNT(texts)].bytes, texts[i % COUNT(texts)].len);
}
#define HOSTILE_COUNT 10

static void every_document_is_json(void **state)
{
    (void)state;
    static const struct {
        enum call_state state;
        bool final;
    } states[] = {{STATE_RECEIVED, false}, {STATE_PROCESSING, false}, {STATE_SUCCESS, true},
                  {STATE_FAILED, true},    {STATE_FAILED, false},     {STATE_UNKNOWN, false}};
    static const char *const members[] = {
        "call_id",      "state",       "final",        "reason",       "received",         "executed",
        "key",          "route",       "business_ref", "trace_id",     "attempts",         "result",
        "reverses",     "reversed_by", "proof",        "safe_new_key", "call_id_source",   "next_action",
        "covers_since", "created_at",  "updated_at",   "expires_at",   "original_call_id",
    };
    struct buffer out = {0};
    for (size_t st = 0; st < COUNT(states); st++) {
        for (size_t i = 0; i < HOSTILE_COUNT; i++) {
            for (size_t result = 0; result < 3; result++) {
                struct slice words = hostile(i);
                struct rows rows = rows_with(states[st].state, states[st].final, (enum reason)(i + 1));
                struct call_row *row = &rows.call;
                row->call_id = row->key = row->route = row->business_ref = row->trace_id = words;
                row->original_call_id = row->reverses = row->reversed_by = words;
                row->call_id_made = i & 1;
                row->proof = (enum proof)(i % 3);
                row->created_ms = FIRST_MS;
                row->updated_ms = NOW_MS;
                row->tombstone_expires_ms = i & 1 ? INT64_MAX : NOW_MS + 1000;
                row->has_result = result > 0;
                row->body_kept = result == 1;
                row->result_status = 201;
                row->result_headers =
                    RAW("Content-Type: text/x\r\nno colon\r\nX-\"Odd\": \x01\xff\r\nLast: one");
                row->result_body = words;
                receipt_document(&out, &rows, slice_text("somebody-else"));
                json_t *root = parse(&out);
                assert_int_equal(json_object_size(root), COUNT(members));
                for (size_t m = 0; m < COUNT(members); m++)
                    assert_true(json_object_get(root, members[m]) != NULL);
                assert_string_equal(text_of(root, "state"), state_text(states[st].state));
                assert_int_equal(json_is_true(json_object_get(root, "final")), states[st].final);
                assert_string_equal(text_of(root, "call_id_source"), i & 1 ? "gateway" : "caller");
                json_t *got = json_object_get(root, "result");
                if (result == 0) {
                    assert_true(json_is_null(got));
                } else {
                    assert_int_equal(json_integer_value(json_object_get(got, "status")), 201);
                    json_t *headers = json_object_get(got, "headers");
                    assert_int_equal(json_array_size(headers), 3);
                    assert_string_equal(json_string_value(json_array_get(json_array_get(headers, 0), 0)),
                                        "content-type");
                    assert_string_equal(json_string_value(json_array_get(json_array_get(headers, 2), 1)),
                                        "one");
                    assert_int_equal(json_is_null(json_object_get(got, "body")), result == 2);
                }
                json_decref(root);
            }
        }
    }
    buffer_fini(&out);
}

static void a_document_for_no_row_echoes_the_asked_id(void **state)
{
    (void)state;
    struct buffer out = {0};
    struct rows none = {.now_ms = NOW_MS, .covers_since_ms = NOW_MS - 1};
    receipt_document(&out, &none, slice_text("ord-9"));
    json_t *root = parse(&out);
    assert_string_equal(text_of(root, "call_id"), "ord-9");
    assert_string_equal(text_of(root, "state"), "NOT_RECEIVED");
    assert_true(json_is_false(json_object_get(root, "received")));
    assert_true(json_is_false(json_object_get(root, "executed")));
    assert_true(json_is_null(json_object_get(root, "call_id_source")));
    assert_string_equal(text_of(root, "covers_since"), "2026-03-01T12:00:00.122Z");
    json_decref(root);
    static const enum reason reasons[] = {REASON_BEYOND_RETENTION, REASON_STORE_UNAVAILABLE,
                                          REASON_NOT_GUARDED};
    static const char *const words[] = {"beyond-retention", "store-unavailable", "not-guarded"};
    for (size_t i = 0; i < COUNT(reasons); i++) {
        receipt_unknown_document(&out, slice_text("ord-9"), reasons[i], NOW_MS);
        root = parse(&out);
        assert_string_equal(text_of(root, "call_id"), "ord-9");
        assert_string_equal(text_of(root, "state"), "UNKNOWN");
        assert_string_equal(text_of(root, "reason"), words[i]);
        assert_true(json_is_null(json_object_get(root, "received")));
        assert_true(json_is_null(json_object_get(root, "executed")));
        assert_true(json_is_false(json_object_get(root, "safe_new_key")));
        json_decref(root);
    }
    buffer_fini(&out);
}

/* Bytes come back as they went in: what our document says, our reader reads. */
static void a_body_of_any_bytes_comes_back(void **state)
{
    (void)state;
    struct prng r;
    struct buffer out = {0};
    prng_seed(&r, 29);
    for (int round = 0; round < 3000; round++) {
        char body[64];
        size_t len = (size_t)prng_below(&r, sizeof body);
        bool text = prng_next(&r) & 1;
        for (size_t i = 0; i < len; i++)
            body[i] = (char)(text ? 1 + prng_below(&r, 127) : prng_next(&r));
        struct rows rows = rows_with(STATE_SUCCESS, true, REASON_NONE);
        rows.call.has_result = rows.call.body_kept = true;
        rows.call.result_status = 200;
        rows.call.result_headers = RAW("Content-Type: text/plain\r\n");
        rows.call.result_body = slice_of(body, len);
        receipt_document(&out, &rows, slice_text("ord-1"));
        struct receipt_reading reading;
        receipt_read(&reading, 200, buffer_view(&out), slice_text("ord-1"), FIRST_MS, slice_text(""));
        assert_int_equal(reading.answer, RECEIPT_ANSWER_SUCCESS);
        assert_true(reading.has_result);
        assert_true(slice_equal(buffer_view(&reading.result_body), slice_of(body, len)));
        assert_true(slice_is(buffer_view(&reading.result_headers), "content-type: text/plain\r\n"));
        receipt_reading_fini(&reading);
        buffer_clear(&out);
    }
    buffer_fini(&out);
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */

static void attempts_come_back(void **state)
{
    (void)state;
    struct prng r;
    struct buffer out = {0}, memory = {0};
    struct attempt list[ATTEMPTS_MAX], read[ATTEMPTS_MAX];
    prng_seed(&r, 7);
    for (int round = 0; round < 400; round++) {
        size_t count = (size_t)prng_below(&r, ATTEMPTS_MAX + 1), got = 99;
        for (size_t i = 0; i < count; i++) {
            /* Texts that are not UTF-8 lose their broken bytes on purpose; the others must not change. */
            static const size_t whole[] = {0, 1, 2, 3, 4, 6, 7, 8};
            list[i] = (struct attempt){
                .n = (int)i + 1,
                .started_ms = NOW_MS + (int64_t)prng_below(&r, 100000),
                .ended_ms = prng_next(&r) & 1 ? NOW_MS + 200000 : 0,
                .outcome = (enum outcome)prng_below(&r, OUTCOME_COUNT),
                .status = prng_next(&r) & 1 ? 503 : 0,
                .sent_bytes = prng_next(&r) & 1 ? (uint64_t)INT64_MAX : prng_below(&r, 5000),
                .wait_before_ms = (int64_t)prng_below(&r, 5000),
                .evidence = round % 2 ? hostile(whole[prng_below(&r, COUNT(whole))]) : hostile(0),
            };
        }
        attempts_encode(&out, list, count);
        assert_int_equal(attempts_decode(buffer_view(&out), read, &got, &memory), STATUS_OK);
        assert_int_equal(got, count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(read[i].n, list[i].n);
            assert_true(read[i].started_ms == list[i].started_ms && read[i].ended_ms == list[i].ended_ms);
            assert_int_equal(read[i].outcome, list[i].outcome);
            assert_int_equal(read[i].status, list[i].status);
            assert_true(read[i].sent_bytes == list[i].sent_bytes);
            assert_true(read[i].wait_before_ms == list[i].wait_before_ms);
            assert_true(slice_equal(read[i].evidence, list[i].evidence));
        }
        buffer_clear(&out);
        buffer_fini(&memory);
    }
    buffer_fini(&out);
}

static void damaged_attempts_are_told(void **state)
{
    (void)state;
    struct attempt read[ATTEMPTS_MAX];
    struct buffer memory = {0}, many = {0};
    size_t count = 77;
    buffer_text(&memory, "before");
    static const char *const damaged[] = {"{",    "{}",     "[1]",           "[{\"n\":1}",
                                          "null", "[null]", "[{\"n\":1},3]", "[{\"n\":1}]x"};
    for (size_t i = 0; i < COUNT(damaged); i++) {
        assert_int_equal(attempts_decode(slice_text(damaged[i]), read, &count, &memory), STATUS_INVALID);
        assert_int_equal(count, 77);
        assert_int_equal(memory.len, 6);
    }
    buffer_byte(&many, '[');
    for (int i = 0; i <= ATTEMPTS_MAX; i++)
        buffer_text(&many, i ? ",{}" : "{}");
    buffer_byte(&many, ']');
    assert_int_equal(attempts_decode(buffer_view(&many), read, &count, &memory), STATUS_INVALID);
    assert_int_equal(attempts_decode(slice_text(""), read, &count, &memory), STATUS_OK);
    assert_int_equal(count, 0);
    buffer_fini(&many);
    buffer_fini(&memory);
}

/* ---- believing --------------------------------------------------------------------------------------------------- */

static void reads_as_from(struct slice body, const char *map, enum receipt_answer wanted, bool has_result)
{
    struct receipt_reading r;
    receipt_read(&r, 200, body, slice_text("ord-1"), FIRST_MS, slice_text(map));
    if (r.answer != wanted || r.has_result != has_result)
        fail_msg("%.*s is %s, not %s (%s)", (int)body.len, body.data, receipt_answer_text(r.answer),
                 receipt_answer_text(wanted), r.why);
    assert_int_equal(r.answer == RECEIPT_ANSWER_QUERY_FAILED, r.why[0] != '\0');
    if (!r.has_result)
        assert_true(r.result_body.len == 0 && r.result_headers.len == 0);
    receipt_reading_fini(&r);
    receipt_reading_fini(&r);
}

static void reads_as(const char *body, enum receipt_answer wanted)
{
    reads_as_from(slice_text(body), "", wanted, false);
}

static void a_known_state_of_the_asked_call_is_believed(void **state)
{
    (void)state;
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}", RECEIPT_ANSWER_SUCCESS);
    reads_as("{\"callId\":\"ord-1\",\"state\":\"SUCCESS\"}", RECEIPT_ANSWER_SUCCESS);
    reads_as(" \n{\"state\":\"FAILED\",\"callId\":\"ord-1\"}\n", RECEIPT_ANSWER_FAILED_FINAL);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"final\":true}", RECEIPT_ANSWER_FAILED_FINAL);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"final\":null}", RECEIPT_ANSWER_FAILED_FINAL);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"final\":false}", RECEIPT_ANSWER_FAILED_OPEN);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"RECEIVED\"}", RECEIPT_ANSWER_RUNNING);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"PROCESSING\"}", RECEIPT_ANSWER_RUNNING);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"UNKNOWN\"}", RECEIPT_ANSWER_UNKNOWN);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"NOT_RECEIVED\"}", RECEIPT_ANSWER_NOT_RECEIVED);
    reads_as("{\"call_id\":\"ord-1\",\"state\":\"NONE\"}", RECEIPT_ANSWER_NOT_RECEIVED);
    reads_as("{\"call_id\":\"ord-1\",\"callId\":\"ord-1\",\"state\":\"NONE\"}", RECEIPT_ANSWER_NOT_RECEIVED);
    /* The status decides nothing by itself. */
    struct receipt_reading r;
    for (int status = 200; status < 600; status++) {
        receipt_read(&r, status, slice_text("{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}"),
                     slice_text("ord-1"), FIRST_MS, slice_text(""));
        assert_int_equal(r.answer, RECEIPT_ANSWER_SUCCESS);
        receipt_reading_fini(&r);
    }
    receipt_read(&r, 0, slice_text("{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}"), slice_text("ord-1"),
                 FIRST_MS, slice_text(""));
    assert_int_equal(r.answer, RECEIPT_ANSWER_QUERY_FAILED);
    receipt_reading_fini(&r);
}

static void everything_else_is_a_failed_query(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "   ",
        "null",
        "true",
        "\"SUCCESS\"",
        "SUCCESS",
        "[]",
        "[{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}]",
        "{}",
        "<html><body>404 Not Found: {\"call_id\":\"ord-1\",\"state\":\"NOT_RECEIVED\"}</body></html>",
        "404 page not found\n",
        "{\"error\":\"not found\"}",
        /* not, or not surely, the asked call */
        "{\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-2\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ORD-1\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-1 \",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-1\\u0000\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":null,\"state\":\"SUCCESS\"}",
        "{\"call_id\":1,\"state\":\"SUCCESS\"}",
        "{\"call_id\":[\"ord-1\"],\"state\":\"SUCCESS\"}",
        "{\"id\":\"ord-1\",\"state\":\"SUCCESS\"}",
        "{\"CallId\":\"ord-1\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-1\",\"callId\":\"ord-2\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-2\",\"callId\":\"ord-1\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":null,\"callId\":\"ord-1\",\"state\":\"SUCCESS\"}",
        "{\"receipt\":{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}}",
        /* no state that we know */
        "{\"call_id\":\"ord-1\"}",
        "{\"call_id\":\"ord-1\",\"state\":null}",
        "{\"call_id\":\"ord-1\",\"state\":3}",
        "{\"call_id\":\"ord-1\",\"state\":[\"SUCCESS\"]}",
        "{\"call_id\":\"ord-1\",\"state\":\"success\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"DONE\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\\u0000\"}",
        "{\"call_id\":\"ord-1\",\"status\":\"SUCCESS\"}",
        /* contradictions */
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"state\":\"FAILED\"}",
        "{\"call_id\":\"ord-2\",\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"final\":\"false\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"final\":0}",
        /* not complete JSON */
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"",
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"},",
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}{}",
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",}",
        "{'call_id':'ord-1','state':'SUCCESS'}",
        "\xEF\xBB\xBF{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"x\":\"\xff\"}",
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"x\":1e9999}",
    };
    for (size_t i = 0; i < COUNT(bodies); i++)
        reads_as(bodies[i], RECEIPT_ANSWER_QUERY_FAILED);
    reads_as_from(RAW("{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\"}\0"), "", RECEIPT_ANSWER_QUERY_FAILED,
                  false);
    reads_as_from((struct slice){0}, "", RECEIPT_ANSWER_QUERY_FAILED, false);
}

/* Cut anywhere, a document proves nothing. */
static void a_cut_document_is_never_believed(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"final\":true,\"result\":{\"status\":201,"
        "\"headers\":[[\"location\",\"/o/1\"]],\"body\":\"done\",\"body_encoding\":\"utf8\"}}";
    for (size_t len = 0; len + 1 < sizeof whole; len++) {
        if (len + 2 < sizeof whole)
            reads_as_from(slice_of(whole, len), "", RECEIPT_ANSWER_QUERY_FAILED, false);
    }
    reads_as_from(RAW(whole), "", RECEIPT_ANSWER_SUCCESS, true);
    /* A nest of brackets takes no more than its depth allows. */
    struct buffer deep = {0};
    buffer_text(&deep, "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"x\":");
    for (int i = 0; i < 100000; i++)
        buffer_byte(&deep, '[');
    reads_as_from(buffer_view(&deep), "", RECEIPT_ANSWER_QUERY_FAILED, false);
    buffer_fini(&deep);
}

static void not_received_is_believed_only_of_who_remembers_long_enough(void **state)
{
    (void)state;
    static const struct {
        const char *since;
        enum receipt_answer answer;
    } table[] = {
        {"null", RECEIPT_ANSWER_NOT_RECEIVED},
        {"\"2020-01-01T00:00:00Z\"", RECEIPT_ANSWER_NOT_RECEIVED},
        {"\"2026-03-01T11:59:55.123Z\"", RECEIPT_ANSWER_NOT_RECEIVED}, /* FIRST_MS itself */
        {"\"2026-03-01T12:59:55.123+01:00\"", RECEIPT_ANSWER_NOT_RECEIVED},
        {"\"2026-03-01T11:59:55.124Z\"", RECEIPT_ANSWER_QUERY_FAILED},
        {"\"2026-03-02T00:00:00Z\"", RECEIPT_ANSWER_QUERY_FAILED},
        {"\"yesterday\"", RECEIPT_ANSWER_QUERY_FAILED},
        {"\"\"", RECEIPT_ANSWER_QUERY_FAILED},
        {"1772366400", RECEIPT_ANSWER_QUERY_FAILED},
        {"false", RECEIPT_ANSWER_QUERY_FAILED},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char body[160];
        snprintf(body, sizeof body, "{\"call_id\":\"ord-1\",\"state\":\"NOT_RECEIVED\",\"covers_since\":%s}",
                 table[i].since);
        reads_as(body, table[i].answer);
        snprintf(body, sizeof body, "{\"call_id\":\"ord-1\",\"state\":\"NONE\",\"covers_since\":%s}",
                 table[i].since);
        reads_as(body, table[i].answer);
        /* Who has the record need not remember longer than it. */
        snprintf(body, sizeof body, "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"covers_since\":%s}",
                 table[i].since);
        reads_as(body, RECEIPT_ANSWER_SUCCESS);
    }
}

static void foreign_states_are_mapped(void **state)
{
    (void)state;
    static const char map[] =
        "DONE=SUCCESS, GONE=FAILED ,BUSY=PROCESSING,,bad, MISSING = NONE,ODD=NOWHERE,FAILED=UNKNOWN";
    static const struct {
        const char *word;
        enum receipt_answer answer;
    } table[] = {
        {"DONE", RECEIPT_ANSWER_SUCCESS},     {"GONE", RECEIPT_ANSWER_FAILED_FINAL},
        {"BUSY", RECEIPT_ANSWER_RUNNING},     {"MISSING", RECEIPT_ANSWER_NOT_RECEIVED},
        {"ODD", RECEIPT_ANSWER_QUERY_FAILED}, {"done", RECEIPT_ANSWER_QUERY_FAILED},
        {"bad", RECEIPT_ANSWER_QUERY_FAILED}, {"", RECEIPT_ANSWER_QUERY_FAILED},
        {"FAILED", RECEIPT_ANSWER_UNKNOWN}, /* the map is the operator's word */
        {"SUCCESS", RECEIPT_ANSWER_SUCCESS},  {"DONE=SUCCESS", RECEIPT_ANSWER_QUERY_FAILED},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"callId\":\"ord-1\",\"state\":\"%s\"}", table[i].word);
        reads_as_from(slice_text(body), map, table[i].answer, false);
    }
    reads_as_from(slice_text("{\"callId\":\"ord-1\",\"state\":\"GONE\",\"final\":false}"), map,
                  RECEIPT_ANSWER_FAILED_OPEN, false);
}

static void a_result_is_taken_whole_or_not_at_all(void **state)
{
    (void)state;
    static const struct {
        const char *result;
        bool taken;
    } table[] = {
        {"{\"status\":201,\"body\":\"x\"}", true},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[]}", true},
        {"{\"status\":201,\"body\":\"\",\"headers\":[[\"a\",\"\"]],\"body_encoding\":null}", true},
        {"{\"status\":201,\"body\":\"eA==\",\"body_encoding\":\"base64\"}", true},
        {"{\"status\":422,\"body\":\"x\",\"body_encoding\":\"utf8\"}", true},
        {"null", false},
        {"[]", false},
        {"\"x\"", false},
        {"{}", false},
        {"{\"status\":201}", false},
        {"{\"status\":201,\"body\":null}", false},
        {"{\"status\":201,\"body\":{}}", false},
        {"{\"status\":\"201\",\"body\":\"x\"}", false},
        {"{\"status\":201.0,\"body\":\"x\"}", false},
        {"{\"status\":100,\"body\":\"x\"}", false},
        {"{\"status\":199,\"body\":\"x\"}", false},
        {"{\"status\":600,\"body\":\"x\"}", false},
        {"{\"status\":-1,\"body\":\"x\"}", false},
        {"{\"status\":4294967496,\"body\":\"x\"}", false},
        {"{\"status\":201,\"body\":\"eA=\",\"body_encoding\":\"base64\"}", false},
        {"{\"status\":201,\"body\":\"x y\",\"body_encoding\":\"base64\"}", false},
        {"{\"status\":201,\"body\":\"x\",\"body_encoding\":\"gzip\"}", false},
        {"{\"status\":201,\"body\":\"x\",\"body_encoding\":7}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":{\"a\":\"b\"}}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[\"a\",\"b\"]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a\",\"b\",\"c\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a\",1]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"\",\"b\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a b\",\"c\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a:\",\"c\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a\",\"b\\r\\nX-Evil: 1\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a\\nb\",\"c\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"a\",\"b\\u0000\"]]}", false},
        {"{\"status\":201,\"body\":\"x\",\"headers\":[[\"good\",\"1\"],[\"\\u00e9\",\"c\"]]}", false},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"call_id\":\"ord-1\",\"state\":\"SUCCESS\",\"result\":%s}",
                 table[i].result);
        reads_as_from(slice_text(body), "", RECEIPT_ANSWER_SUCCESS, table[i].taken);
        snprintf(body, sizeof body, "{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"result\":%s}",
                 table[i].result);
        reads_as_from(slice_text(body), "", RECEIPT_ANSWER_FAILED_FINAL, table[i].taken);
        /* What is not an ending has no result. */
        snprintf(body, sizeof body, "{\"call_id\":\"ord-1\",\"state\":\"PROCESSING\",\"result\":%s}",
                 table[i].result);
        reads_as_from(slice_text(body), "", RECEIPT_ANSWER_RUNNING, false);
        snprintf(body, sizeof body,
                 "{\"call_id\":\"ord-1\",\"state\":\"FAILED\",\"final\":false,\"result\":%s}",
                 table[i].result);
        reads_as_from(slice_text(body), "", RECEIPT_ANSWER_FAILED_OPEN, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_read_by_their_exact_names),
        cmocka_unit_test(what_each_state_tells),
        cmocka_unit_test(a_new_key_is_safe_only_over_the_whole_operation),
        cmocka_unit_test(every_document_is_json),
        cmocka_unit_test(a_document_for_no_row_echoes_the_asked_id),
        cmocka_unit_test(a_body_of_any_bytes_comes_back),
        cmocka_unit_test(attempts_come_back),
        cmocka_unit_test(damaged_attempts_are_told),
        cmocka_unit_test(a_known_state_of_the_asked_call_is_believed),
        cmocka_unit_test(everything_else_is_a_failed_query),
        cmocka_unit_test(a_cut_document_is_never_believed),
        cmocka_unit_test(not_received_is_believed_only_of_who_remembers_long_enough),
        cmocka_unit_test(foreign_states_are_mapped),
        cmocka_unit_test(a_result_is_taken_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
