/* SPDX-License-Identifier: MIT */
#include "core/receipt.h"

#include "base/base64.h"
#include "base/civil.h"
#include "base/json_text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- words -------------------------------------------------------------------------------------------------- */

const char *state_text(enum call_state state)
{
    switch (state) {
#define STATE(name, number, text, running, sentence)                                                         \
    case STATE_##name:                                                                                       \
        return text;
#include "core/state.def"
#undef STATE
    }
    return "UNKNOWN";
}

const char *state_sentence(enum call_state state)
{
    switch (state) {
#define STATE(name, number, text, running, sentence)                                                         \
    case STATE_##name:                                                                                       \
        return sentence;
#include "core/state.def"
#undef STATE
    }
    return "";
}

bool state_parse(struct slice text, enum call_state *out)
{
    if (slice_is(text, "NONE")) {
        *out = STATE_NOT_RECEIVED;
        return true;
    }
#define STATE(name, number, word, running, sentence)                                                         \
    if (slice_is(text, word)) {                                                                              \
        *out = STATE_##name;                                                                                 \
        return true;                                                                                         \
    }
#include "core/state.def"
#undef STATE
    return false;
}

bool state_running(enum call_state state)
{
    return state == STATE_RECEIVED || state == STATE_PROCESSING;
}

const char *reason_text(enum reason reason)
{
    switch (reason) {
#define REASON(name, number, text, sentence)                                                                 \
    case REASON_##name:                                                                                      \
        return text;
#include "core/reason.def"
#undef REASON
    }
    return "";
}

const char *reason_sentence(enum reason reason)
{
    switch (reason) {
#define REASON(name, number, text, sentence)                                                                 \
    case REASON_##name:                                                                                      \
        return sentence;
#include "core/reason.def"
#undef REASON
    }
    return "";
}

const char *proof_text(enum proof proof)
{
    return proof == PROOF_TRANSACTION ? "transaction" : proof == PROOF_BESIDE ? "beside" : "none";
}

const char *next_action_text(enum next_action action)
{
    static const char *const texts[] = {"none",        "wait",        "query_receipt", "retry_same_call",
                                        "fix_request", "ask_operator"};
    return texts[action];
}

const char *receipt_answer_text(enum receipt_answer answer)
{
    static const char *const texts[] = {"query_failed", "not_received", "running", "success",
                                        "failed",       "failed_open",  "unknown"};
    return texts[answer];
}

/* ---- attempts ----------------------------------------------------------------------------------------------- */

static void time_or_null(struct buffer *out, int64_t ms)
{
    if (ms <= 0) {
        buffer_text(out, "null");
        return;
    }
    buffer_byte(out, '"');
    civil_print_rfc3339(ms, out);
    buffer_byte(out, '"');
}

void attempts_encode(struct buffer *out, const struct attempt *attempts, size_t count)
{
    buffer_byte(out, '[');
    for (size_t i = 0; i < count; i++) {
        const struct attempt *a = &attempts[i];
        buffer_text(out, i ? ",{\"n\":" : "{\"n\":");
        buffer_number(out, a->n);
        buffer_text(out, ",\"started_at\":");
        time_or_null(out, a->started_ms);
        buffer_text(out, ",\"ended_at\":");
        time_or_null(out, a->ended_ms);
        buffer_text(out, ",\"outcome\":");
        if (a->outcome == OUTCOME_NONE) {
            buffer_text(out, "null");
        } else {
            buffer_byte(out, '"');
            buffer_text(out, outcome_json(a->outcome));
            buffer_byte(out, '"');
        }
        buffer_text(out, ",\"status\":");
        if (a->status)
            buffer_number(out, a->status);
        else
            buffer_text(out, "null");
        buffer_text(out, ",\"sent_bytes\":");
        buffer_number(out, (int64_t)a->sent_bytes);
        buffer_text(out, ",\"wait_before_ms\":");
        buffer_number(out, a->wait_before_ms);
        buffer_text(out, ",\"evidence\":");
        json_text_or_null(out, a->evidence);
        buffer_byte(out, '}');
    }
    buffer_byte(out, ']');
}

static int64_t member_time(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    int64_t ms = 0;
    if (json_is_string(value))
        (void)civil_parse_rfc3339(slice_of(json_string_value(value), json_string_length(value)), &ms);
    return ms;
}

enum status attempts_decode(struct slice json, struct attempt attempts[ATTEMPTS_MAX], size_t *count,
                            struct buffer *memory)
{
    if (json.len == 0) {
        *count = 0;
        return STATUS_OK;
    }
    json_t *list = json_loadb(json.data, json.len, JSON_ALLOW_NUL, NULL);
    enum status status = STATUS_INVALID;
    size_t offsets[ATTEMPTS_MAX] = {0};
    size_t start = memory->len;
    size_t size = json_array_size(list);
    if (!json_is_array(list) || size > ATTEMPTS_MAX)
        goto done;
    for (size_t i = 0; i < size; i++) {
        json_t *item = json_array_get(list, i);
        struct attempt *a = &attempts[i];
        memset(a, 0, sizeof *a);
        if (!json_is_object(item))
            goto done;
        a->n = (int)json_integer_value(json_object_get(item, "n"));
        a->started_ms = member_time(item, "started_at");
        a->ended_ms = member_time(item, "ended_at");
        a->status = (int)json_integer_value(json_object_get(item, "status"));
        a->sent_bytes = (uint64_t)json_integer_value(json_object_get(item, "sent_bytes"));
        a->wait_before_ms = json_integer_value(json_object_get(item, "wait_before_ms"));
        const char *outcome = json_string_value(json_object_get(item, "outcome"));
        a->outcome = outcome ? outcome_parse_json(slice_text(outcome)) : OUTCOME_NONE;
        json_t *evidence = json_object_get(item, "evidence");
        offsets[i] = memory->len;
        a->evidence.len = json_string_length(evidence);
        if (a->evidence.len)
            buffer_append(memory, json_string_value(evidence), a->evidence.len);
    }
    if (memory->failed) {
        status = STATUS_NO_MEMORY;
        goto done;
    }
    *count = size;
    for (size_t i = 0; i < size; i++) {
        if (attempts[i].evidence.len)
            attempts[i].evidence.data = memory->data + offsets[i]; /* only now the buffer stands still */
    }
    status = STATUS_OK;
done:
    if (status != STATUS_OK && !memory->failed)
        memory->len = start;
    json_decref(list);
    return status;
}

/* ---- standing ----------------------------------------------------------------------------------------------- */

void receipt_standing(const struct rows *rows, struct standing *out)
{
    const struct call_row *row = &rows->call;
    out->state = row->id ? row->state : STATE_NOT_RECEIVED;
    out->final = row->id && row->final;
    out->safe_new_key = false;
    out->received = 0;
    out->executed = 0;
    out->next_action = NEXT_RETRY_SAME_CALL;
    if (!row->id)
        return;
    bool sent = row->attempt_count > 0;
    out->received = sent ? 1 : 0;
    switch (row->state) {
    case STATE_NOT_RECEIVED:
    case STATE_RECEIVED:
        out->received = 1;
        out->next_action = NEXT_WAIT;
        break;
    case STATE_PROCESSING:
        out->received = 1;
        out->executed = -1;
        out->next_action = NEXT_WAIT;
        break;
    case STATE_UNKNOWN:
        out->received = 1;
        out->executed = -1;
        /* Reading changes nothing; the same call sent again asks the service's receipt first, and sends nothing by guess. */
        out->next_action = NEXT_RETRY_SAME_CALL;
        break;
    case STATE_SUCCESS:
        out->received = out->executed = 1;
        out->next_action = NEXT_NONE;
        break;
    case STATE_FAILED:
        out->next_action = !row->final                      ? NEXT_RETRY_SAME_CALL
                           : row->reason == REASON_REJECTED ? NEXT_FIX_REQUEST
                                                            : NEXT_NONE;
        /* Over the whole operation: a fence without a key knows of no operation, and promises nothing. */
        if (row->final && row->has_key) {
            const struct call_row *holder = &rows->holder;
            bool alive = holder->id && holder->id != row->id && holder->state != STATE_FAILED;
            /* What undoes it may undo what another call does meanwhile. */
            out->safe_new_key = !alive && !row->reversed_by.len;
        }
        /* A call without a key is its own operation. */
        if (row->final && !row->has_key && row->has_fingerprint)
            out->safe_new_key = true;
        /* What a samekey below said about another call holds at this layer too (CONTRACT section 5). */
        if (row->reason == REASON_BOUND_ELSEWHERE)
            out->safe_new_key = false;
        break;
    }
}

static void tri(struct buffer *out, int value)
{
    buffer_text(out, value < 0 ? "null" : value ? "true" : "false");
}

/* The header lines as a JSON list of pairs, names in lower case. */
static void headers_document(struct buffer *out, struct slice lines)
{
    bool first = true;
    buffer_byte(out, '[');
    while (lines.len) {
        const char *stop = memchr(lines.data, '\n', lines.len);
        size_t len = stop ? (size_t)(stop - lines.data) : lines.len;
        struct slice line = slice_of(lines.data, len && lines.data[len - 1] == '\r' ? len - 1 : len);
        lines.data += stop ? len + 1 : len;
        lines.len -= stop ? len + 1 : len;
        const char *colon = memchr(line.data, ':', line.len);
        if (!colon)
            continue;
        char name[256];
        size_t name_len = (size_t)(colon - line.data);
        if (name_len >= sizeof name)
            continue;
        for (size_t i = 0; i < name_len; i++) {
            char c = line.data[i];
            name[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        }
        buffer_text(out, first ? "[" : ",[");
        json_text(out, slice_of(name, name_len));
        buffer_byte(out, ',');
        json_text(out, slice_trim(slice_of(colon + 1, line.len - name_len - 1)));
        buffer_byte(out, ']');
        first = false;
    }
    buffer_byte(out, ']');
}

static void result_document(struct buffer *out, const struct call_row *row)
{
    if (!row->has_result) {
        buffer_text(out, "null");
        return;
    }
    buffer_text(out, "{\"status\":");
    buffer_number(out, row->result_status);
    buffer_text(out, ",\"headers\":");
    headers_document(out, row->result_headers);
    if (!row->body_kept) {
        buffer_text(out, ",\"body\":null,\"body_encoding\":null}");
        return;
    }
    bool text = utf8_valid(row->result_body);
    buffer_text(out, ",\"body\":");
    if (text) {
        json_text(out, row->result_body);
    } else {
        buffer_byte(out, '"');
        base64_encode(row->result_body, out);
        buffer_byte(out, '"');
    }
    buffer_text(out, text ? ",\"body_encoding\":\"utf8\"}" : ",\"body_encoding\":\"base64\"}");
}

static void write_document(struct buffer *out, const struct rows *rows, const struct standing *said,
                           enum reason reason, struct slice call_id)
{
    const struct call_row *row = &rows->call;
    struct standing standing = *said;
    buffer_text(out, "{\"call_id\":");
    json_text(out, row->id ? row->call_id : call_id);
    buffer_text(out, ",\"state\":\"");
    buffer_text(out, state_text(standing.state));
    buffer_text(out, "\",\"final\":");
    json_bool(out, standing.final);
    buffer_text(out, ",\"reason\":");
    json_text_or_null(out, slice_text(reason_text(reason)));
    buffer_text(out, ",\"received\":");
    tri(out, standing.received);
    buffer_text(out, ",\"executed\":");
    tri(out, standing.executed);
    buffer_text(out, ",\"key\":");
    json_text_or_null(out, row->key);
    buffer_text(out, ",\"route\":");
    json_text_or_null(out, row->route);
    buffer_text(out, ",\"business_ref\":");
    json_text_or_null(out, row->business_ref);
    buffer_text(out, ",\"trace_id\":");
    json_text_or_null(out, row->trace_id);
    buffer_text(out, ",\"call_id_source\":");
    buffer_text(out, !row->id ? "null" : row->call_id_made ? "\"gateway\"" : "\"caller\"");
    buffer_text(out, ",\"attempts\":");
    if (row->attempts.len)
        buffer_slice(out, row->attempts);
    else
        buffer_text(out, "[]");
    buffer_text(out, ",\"result\":");
    result_document(out, row);
    buffer_text(out, ",\"original_call_id\":");
    json_text_or_null(out, row->original_call_id);
    buffer_text(out, ",\"reverses\":");
    json_text_or_null(out, row->reverses);
    buffer_text(out, ",\"reversed_by\":");
    json_text_or_null(out, row->reversed_by);
    buffer_text(out, ",\"proof\":\"");
    buffer_text(out, proof_text(row->proof));
    buffer_text(out, "\",\"safe_new_key\":");
    json_bool(out, standing.safe_new_key);
    buffer_text(out, ",\"next_action\":\"");
    buffer_text(out, next_action_text(standing.next_action));
    buffer_text(out, "\",\"covers_since\":");
    time_or_null(out, rows->covers_since_ms);
    buffer_text(out, ",\"created_at\":");
    time_or_null(out, row->created_ms);
    buffer_text(out, ",\"updated_at\":");
    time_or_null(out, row->updated_ms);
    buffer_text(out, ",\"expires_at\":");
    time_or_null(out, row->tombstone_expires_ms == INT64_MAX ? 0 : row->tombstone_expires_ms);
    buffer_text(out, "}\n");
}

void receipt_document(struct buffer *out, const struct rows *rows, struct slice call_id)
{
    struct standing standing;
    receipt_standing(rows, &standing);
    write_document(out, rows, &standing, rows->call.id ? rows->call.reason : REASON_NONE, call_id);
}

void receipt_unknown_document(struct buffer *out, struct slice call_id, enum reason reason,
                              int64_t covers_since_ms)
{
    struct rows none = {.covers_since_ms = covers_since_ms};
    struct standing standing = {.state = STATE_UNKNOWN,
                                .received = -1,
                                .executed = -1,
                                .next_action = reason == REASON_STORE_UNAVAILABLE ? NEXT_QUERY_RECEIPT
                                                                                  : NEXT_ASK_OPERATOR};
    write_document(out, &none, &standing, reason, call_id);
}

/* ---- reading somebody's receipt ----------------------------------------------------------------------------- */

static void disbelieve(struct receipt_reading *out, const char *why)
{
    out->answer = RECEIPT_ANSWER_QUERY_FAILED;
    snprintf(out->why, sizeof out->why, "%s", why);
}

/* Looks a foreign state up in "DONE=SUCCESS, GONE=FAILED"; false: it is not there. */
static bool mapped_state(struct slice map, struct slice text, enum call_state *out)
{
    while (map.len) {
        const char *comma = memchr(map.data, ',', map.len);
        size_t len = comma ? (size_t)(comma - map.data) : map.len;
        struct slice pair = slice_of(map.data, len);
        map.data += comma ? len + 1 : len;
        map.len -= comma ? len + 1 : len;
        const char *equals = memchr(pair.data, '=', pair.len);
        if (!equals)
            continue;
        size_t left = (size_t)(equals - pair.data);
        if (slice_equal(slice_trim(slice_of(pair.data, left)), text))
            return state_parse(slice_trim(slice_of(equals + 1, pair.len - left - 1)), out);
    }
    return false;
}

/* Header names and values of a result that are safe to hand on as lines. */
static bool field_clean(struct slice s, bool name)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c < 0x20 || c == 0x7F || (name && (c == ':' || c == ' ' || c > 0x7E)))
            return false;
    }
    return s.len > 0 || !name;
}

static bool read_headers(struct receipt_reading *out, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *pair = json_array_get(list, i);
        json_t *name = json_array_get(pair, 0), *value = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(name) || !json_is_string(value))
            return false;
        struct slice n = slice_of(json_string_value(name), json_string_length(name));
        struct slice v = slice_of(json_string_value(value), json_string_length(value));
        if (!field_clean(n, true) || !field_clean(v, false))
            return false;
        buffer_slice(&out->result_headers, n);
        buffer_text(&out->result_headers, ": ");
        buffer_slice(&out->result_headers, v);
        buffer_text(&out->result_headers, "\r\n");
    }
    return true;
}

/* A result that is not whole is as none: the ending stands without an answer to replay. */
static void read_result(struct receipt_reading *out, json_t *result)
{
    json_t *status = json_object_get(result, "status"), *body = json_object_get(result, "body");
    json_t *headers = json_object_get(result, "headers");
    json_t *named = json_object_get(result, "body_encoding");
    const char *encoding = !named || json_is_null(named) ? "utf8" : json_string_value(named);
    if (!json_is_integer(status) || !json_is_string(body) || (headers && !json_is_array(headers)))
        return;
    json_int_t number = json_integer_value(status);
    if (number < 200 || number > 599)
        return;
    if (headers && !read_headers(out, headers))
        return;
    struct slice text = slice_of(json_string_value(body), json_string_length(body));
    if (!encoding)
        return;
    if (strcmp(encoding, "base64") == 0) {
        if (base64_decode(text, &out->result_body) != STATUS_OK)
            return;
    } else if (strcmp(encoding, "utf8") == 0) {
        buffer_slice(&out->result_body, text);
    } else {
        return; /* a spelling of bytes that we cannot read */
    }
    out->has_result = !out->result_body.failed && !out->result_headers.failed;
    out->result_status = (int)number;
}

/* Whether a member names the call; `absent` is what a missing member says. */
static bool id_fits(json_t *id, struct slice call_id, bool absent)
{
    if (!id)
        return absent;
    return json_is_string(id) &&
           slice_equal(slice_of(json_string_value(id), json_string_length(id)), call_id);
}

static void read_state(struct receipt_reading *out, json_t *root, struct slice call_id,
                       int64_t first_attempt_ms, struct slice map)
{
    json_t *state = json_object_get(root, "state");
    /* Either spelling names the call; where both are there, both must. */
    bool named = id_fits(json_object_get(root, "call_id"), call_id, true) &&
                 id_fits(json_object_get(root, "callId"), call_id, true) &&
                 (id_fits(json_object_get(root, "call_id"), call_id, false) ||
                  id_fits(json_object_get(root, "callId"), call_id, false));
    if (!named) {
        disbelieve(out, "the answer does not name the asked callId");
        return;
    }
    if (!json_is_string(state)) {
        disbelieve(out, "the answer has no state");
        return;
    }
    struct slice word = slice_of(json_string_value(state), json_string_length(state));
    enum call_state known;
    if (!mapped_state(map, word, &known) && !state_parse(word, &known)) {
        disbelieve(out, "the answer's state is none that we know");
        return;
    }
    json_t *final = json_object_get(root, "final"), *since = json_object_get(root, "covers_since");
    switch (known) {
    case STATE_NOT_RECEIVED:
        if (since && !json_is_null(since)) {
            int64_t since_ms = INT64_MAX;
            if (!json_is_string(since) ||
                civil_parse_rfc3339(slice_of(json_string_value(since), json_string_length(since)),
                                    &since_ms) != STATUS_OK ||
                since_ms > first_attempt_ms) {
                disbelieve(out, "NOT_RECEIVED, but its records begin after our first attempt");
                return;
            }
        }
        out->answer = RECEIPT_ANSWER_NOT_RECEIVED;
        return;
    case STATE_RECEIVED:
    case STATE_PROCESSING:
        out->answer = RECEIPT_ANSWER_RUNNING;
        return;
    case STATE_SUCCESS:
        out->answer = RECEIPT_ANSWER_SUCCESS;
        read_result(out, json_object_get(root, "result"));
        return;
    case STATE_FAILED:
        if (final && !json_is_boolean(final) && !json_is_null(final)) {
            disbelieve(out, "FAILED, but whether for good is neither true nor false");
            return;
        }
        out->answer = json_is_false(final) ? RECEIPT_ANSWER_FAILED_OPEN : RECEIPT_ANSWER_FAILED_FINAL;
        if (out->answer == RECEIPT_ANSWER_FAILED_FINAL)
            read_result(out, json_object_get(root, "result"));
        return;
    case STATE_UNKNOWN:
        out->answer = RECEIPT_ANSWER_UNKNOWN;
        return;
    }
}

void receipt_read(struct receipt_reading *out, int http_status, struct slice body, struct slice call_id,
                  int64_t first_attempt_ms, struct slice map)
{
    memset(out, 0, sizeof *out);
    if (http_status < 200) {
        disbelieve(out, "no complete answer");
        return;
    }
    json_t *root =
        json_loadb(body.data ? body.data : "", body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json_is_object(root))
        disbelieve(out, "the answer is not a JSON object");
    else
        read_state(out, root, call_id, first_attempt_ms, map);
    if (!out->has_result) {
        buffer_fini(&out->result_headers);
        buffer_fini(&out->result_body);
    }
    json_decref(root);
}

void receipt_reading_fini(struct receipt_reading *reading)
{
    if (!reading)
        return;
    buffer_fini(&reading->result_headers);
    buffer_fini(&reading->result_body);
    reading->has_result = false;
}

bool call_was_accepted(const struct call_row *call)
{
    struct attempt attempts[ATTEMPTS_MAX];
    struct buffer memory = {0};
    size_t count = 0;
    bool pending = call->reason == REASON_ACCEPTED;
    if (attempts_decode(call->attempts, attempts, &count, &memory) == STATUS_OK)
        for (size_t i = 0; i < count; i++)
            pending = pending || attempts[i].outcome == OUTCOME_PENDING;
    buffer_fini(&memory);
    return pending;
}
