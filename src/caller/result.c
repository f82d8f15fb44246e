/* SPDX-License-Identifier: MIT */
#include "caller/result.h"

#include "base/base64.h"
#include "base/json_text.h"

#include <stdlib.h>

struct samekey_result *result_new(void)
{
    struct samekey_result *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->state = STATE_UNKNOWN;
    r->retry_in_ms = -1;
    r->reply.body_kept = true;
    return r;
}

void samekey_result_free(struct samekey_result *r)
{
    if (!r)
        return;
    response_fini(&r->reply);
    buffer_fini(&r->texts);
    buffer_fini(&r->sentence);
    buffer_fini(&r->json);
    buffer_fini(&r->header_values);
    free(r);
}

/* ---- the record --------------------------------------------------------------------------------------------- */

void result_attempt_text(struct samekey_result *r, const struct attempt *attempt, struct slice words)
{
    size_t index = r->attempt_count < ATTEMPTS_MAX ? r->attempt_count++ : ATTEMPTS_MAX - 1;
    r->attempts[index] = *attempt;
    r->attempts[index].evidence = slice_of("", 0);
    /* Words only: memory that runs out here must not touch what is decided. */
    buffer_clear(&r->sentence);
    r->evidence_at[index] = SIZE_MAX;
    size_t at = r->texts.len;
    char *room = buffer_reserve(&r->texts, words.len + 1);
    if (!room) {
        r->texts.failed = false;
        return;
    }
    if (words.len)
        memcpy(room, words.data, words.len);
    room[words.len] = 0;
    r->texts.len += words.len + 1;
    r->evidence_at[index] = at;
}

void result_attempt(struct samekey_result *r, const struct attempt *attempt, const struct evidence *evidence)
{
    struct buffer words = {0};
    evidence_sentence(&words, evidence);
    result_attempt_text(r, attempt, words.failed ? slice_of("", 0) : buffer_view(&words));
    buffer_fini(&words);
}

const char *result_evidence(const struct samekey_result *r, size_t index)
{
    return r->evidence_at[index] == SIZE_MAX ? "" : r->texts.data + r->evidence_at[index];
}

void result_query(struct samekey_result *r, enum receipt_answer answer, int after_attempt)
{
    if (r->query_count == RESULT_QUERIES_MAX)
        return;
    r->queries[r->query_count].answer = answer;
    r->queries[r->query_count++].after_attempt = after_attempt;
}

void result_attempts_encode(const struct samekey_result *r, struct buffer *out)
{
    struct attempt list[ATTEMPTS_MAX];
    for (size_t i = 0; i < r->attempt_count; i++) {
        list[i] = r->attempts[i];
        list[i].evidence = slice_text(result_evidence(r, i));
    }
    attempts_encode(out, list, r->attempt_count);
}

/* ---- words for a person ------------------------------------------------------------------------------------- */

/* An answer in the words of the receipt's states; what is no answer has a word that no state has. */
static const char *answer_word(enum receipt_answer answer)
{
    switch (answer) {
    case RECEIPT_ANSWER_NOT_RECEIVED:
        return state_text(STATE_NOT_RECEIVED);
    case RECEIPT_ANSWER_RUNNING:
        return state_text(STATE_PROCESSING);
    case RECEIPT_ANSWER_SUCCESS:
        return state_text(STATE_SUCCESS);
    case RECEIPT_ANSWER_FAILED_FINAL:
    case RECEIPT_ANSWER_FAILED_OPEN:
        return state_text(STATE_FAILED);
    case RECEIPT_ANSWER_UNKNOWN:
        return state_text(STATE_UNKNOWN);
    case RECEIPT_ANSWER_QUERY_FAILED:
        break;
    }
    return "query_failed";
}

/* The last attempt that left the ending open, or -1. */
static int doubtful(const struct samekey_result *r)
{
    for (size_t i = r->attempt_count; i-- > 0;) {
        if (r->attempts[i].outcome == OUTCOME_UNKNOWN || r->attempts[i].outcome == OUTCOME_PENDING)
            return (int)i;
    }
    return -1;
}

static void say_evidence(const struct samekey_result *r, struct buffer *out, int index)
{
    if (index >= 0 && *result_evidence(r, (size_t)index))
        buffer_format(out, " (attempt %d: %s)", r->attempts[index].n, result_evidence(r, (size_t)index));
}

static void say_success(const struct samekey_result *r, struct buffer *out)
{
    if (r->reason == REASON_RECEIPT) {
        buffer_text(out, "It took effect, once: the service's receipt says so");
        say_evidence(r, out, doubtful(r));
        buffer_text(out, r->has_reply ? ". The answer shown is the receipt's."
                                      : ". The receipt carries no answer to show.");
    } else {
        buffer_text(out, "It took effect, once, and the service answered in full");
        if (r->has_reply)
            buffer_format(out, " (%d)", r->reply.status);
        buffer_byte(out, '.');
    }
}

static void say_failed(const struct samekey_result *r, struct buffer *out)
{
    int last = (int)r->attempt_count - 1;
    if (!r->final) {
        if (r->refusal && r->attempt_count == 0)
            buffer_format(out, "Not sent: %s.", r->refusal);
        else if (r->refusal)
            buffer_format(out, "Nothing ran, and nothing more was sent: %s.", r->refusal);
        else
            buffer_text(out, "Nothing ran: every attempt is proved not to have been executed");
        if (!r->refusal) {
            say_evidence(r, out, last);
            buffer_byte(out, '.');
        }
        buffer_text(out, " Make the same call again, with the same key");
        if (r->retry_in_ms > 0)
            buffer_format(out, ", not before %lld s from now", (long long)((r->retry_in_ms + 999) / 1000));
        buffer_byte(out, '.');
        return;
    }
    if (r->reason == REASON_FENCED_AT_CALLEE)
        buffer_text(out, "It did not run and never will: the service gave up this callId for good");
    else if (r->reason == REASON_RECEIPT)
        buffer_text(out, "It did not take effect: the service's receipt says that it failed");
    else if (r->reason == REASON_REJECTED)
        buffer_text(out, "The service refused it for good; nothing took effect through this call");
    else
        buffer_text(out, "It failed without taking effect");
    if (r->reason != REASON_FENCED_AT_CALLEE && r->reason != REASON_RECEIPT)
        say_evidence(r, out, last);
    buffer_byte(out, '.');
    if (r->next == NEXT_FIX_REQUEST)
        buffer_text(out, " Mend the request before making a new call.");
    buffer_text(out,
                r->safe_new_key ? " A new call is safe." : " Do not use a new key for it without looking.");
}

static void say_unknown(const struct samekey_result *r, struct buffer *out)
{
    size_t failed = 0;
    for (size_t i = 0; i < r->query_count; i++)
        failed += r->queries[i].answer == RECEIPT_ANSWER_QUERY_FAILED;
    buffer_text(out, r->reason == REASON_ACCEPTED ? "The service accepted it and has not said how it ended"
                                                  : "It may or may not have taken effect");
    say_evidence(r, out, doubtful(r));
    if (r->query_count == 0)
        buffer_text(out, "; no receipt could be asked");
    else if (failed == r->query_count)
        buffer_format(out, "; %zu receipt quer%s brought no answer to be believed", failed,
                      failed == 1 ? "y" : "ies");
    else
        buffer_format(out, "; the receipt's last word was %s",
                      answer_word(r->queries[r->query_count - 1].answer));
    if (r->refusal)
        buffer_format(out, "; nothing more was sent: %s", r->refusal);
    buffer_format(out,
                  ". Do not send it under a new key. Make the same call again later to ask again, or ask the "
                  "service's people about callId %s.",
                  r->call_id);
}

const char *samekey_result_sentence(const struct samekey_result *result)
{
    struct samekey_result *r = (struct samekey_result *)result; /* the words are made when first asked for */
    if (r->sentence.len)
        return buffer_cstring(&r->sentence);
    buffer_clear(&r->sentence);
    if (r->state == STATE_SUCCESS)
        say_success(r, &r->sentence);
    else if (r->state == STATE_FAILED)
        say_failed(r, &r->sentence);
    else if (r->state == STATE_PROCESSING)
        buffer_format(&r->sentence,
                      "Another process still works on this call (%s). Wait for it, or make the same "
                      "call again to get its ending.",
                      r->call_id);
    else
        say_unknown(r, &r->sentence);
    return buffer_cstring(&r->sentence);
}

/* ---- the document ------------------------------------------------------------------------------------------- */

static void json_reply(const struct samekey_result *r, struct buffer *out)
{
    if (!r->has_reply) {
        buffer_text(out, "null");
        return;
    }
    buffer_format(out, "{\"status\":%d,\"headers\":[", r->reply.status);
    struct slice rest = buffer_view(&r->reply.headers);
    bool first = true;
    while (rest.len) {
        const char *stop = memchr(rest.data, '\n', rest.len);
        size_t len = stop ? (size_t)(stop - rest.data) + 1 : rest.len;
        struct slice line = slice_of(rest.data, len);
        rest.data += len;
        rest.len -= len;
        while (line.len && (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r'))
            line.len--;
        const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
        if (!colon)
            continue;
        buffer_text(out, first ? "[" : ",[");
        size_t name = (size_t)(colon - line.data);
        struct buffer lower = {0};
        for (size_t i = 0; i < name; i++)
            buffer_byte(&lower, (char)(line.data[i] >= 'A' && line.data[i] <= 'Z' ? line.data[i] + 32
                                                                                  : line.data[i]));
        json_text(out, buffer_view(&lower));
        out->failed = out->failed || lower.failed;
        buffer_fini(&lower);
        buffer_byte(out, ',');
        json_text(out, slice_trim(slice_of(colon + 1, line.len - name - 1)));
        buffer_byte(out, ']');
        first = false;
    }
    buffer_text(out, "],\"body\":");
    if (!r->reply.body_kept) {
        buffer_text(out, "null,\"body_encoding\":null}");
        return;
    }
    struct slice body = buffer_view(&r->reply.body);
    bool text = utf8_valid(body);
    if (text) {
        json_text(out, body);
    } else {
        buffer_byte(out, '"');
        base64_encode(body, out);
        buffer_byte(out, '"');
    }
    buffer_format(out, ",\"body_encoding\":\"%s\"}", text ? "utf8" : "base64");
}

const char *samekey_result_json(const struct samekey_result *result)
{
    struct samekey_result *r = (struct samekey_result *)result;
    struct buffer *out = &r->json;
    if (out->len && !out->failed)
        return buffer_cstring(out);
    buffer_clear(out);
    buffer_text(out, "{\"call_id\":");
    json_text(out, slice_text(r->call_id));
    buffer_text(out, ",\"key\":");
    json_text_or_null(out, slice_text(r->key));
    buffer_format(out, ",\"state\":\"%s\",\"final\":", state_text(r->state));
    json_bool(out, r->final);
    buffer_text(out, ",\"reason\":");
    json_text_or_null(out, slice_text(reason_text(r->reason)));
    buffer_text(out, ",\"safe_new_key\":");
    json_bool(out, r->safe_new_key);
    buffer_format(out, ",\"next_action\":\"%s\",\"retry_in_ms\":", next_action_text(r->next));
    if (r->retry_in_ms < 0)
        buffer_text(out, "null");
    else
        buffer_number(out, r->retry_in_ms);
    buffer_text(out, ",\"sentence\":");
    json_text(out, slice_text(samekey_result_sentence(r)));
    buffer_text(out, ",\"elapsed_ms\":");
    buffer_number(out, r->elapsed_ms);
    buffer_text(out, ",\"resumed\":");
    json_bool(out, r->resumed);
    buffer_format(out, ",\"rounds\":%d,\"attempts\":[", r->rounds);
    for (size_t i = 0; i < r->attempt_count; i++) {
        const struct attempt *a = &r->attempts[i];
        buffer_format(out, "%s{\"n\":%d,\"outcome\":\"%s\",\"evidence\":", i ? "," : "", a->n,
                      outcome_json(a->outcome));
        json_text(out, slice_text(result_evidence(r, i)));
        buffer_text(out, ",\"status\":");
        if (a->status)
            buffer_number(out, a->status);
        else
            buffer_text(out, "null");
        buffer_format(out, ",\"sent_bytes\":%llu,\"wait_before_ms\":%lld}", (unsigned long long)a->sent_bytes,
                      (long long)a->wait_before_ms);
    }
    buffer_text(out, "],\"receipt_queries\":[");
    for (size_t i = 0; i < r->query_count; i++)
        buffer_format(out, "%s{\"answer\":\"%s\",\"after_attempt\":%d}", i ? "," : "",
                      answer_word(r->queries[i].answer), r->queries[i].after_attempt);
    buffer_text(out, "],\"result\":");
    json_reply(r, out);
    buffer_text(out, "}\n");
    return buffer_cstring(out);
}

/* ---- getters ------------------------------------------------------------------------------------------------ */

int samekey_result_state(const struct samekey_result *r)
{
    return (int)r->state;
}

int samekey_result_final(const struct samekey_result *r)
{
    return r->final;
}

const char *samekey_result_reason(const struct samekey_result *r)
{
    return reason_text(r->reason);
}

const char *samekey_result_call_id(const struct samekey_result *r)
{
    return r->call_id;
}

const char *samekey_result_key(const struct samekey_result *r)
{
    return r->key;
}

int samekey_result_safe_new_key(const struct samekey_result *r)
{
    return r->safe_new_key;
}

int samekey_result_next_action(const struct samekey_result *r)
{
    return (int)r->next;
}

int64_t samekey_result_retry_in_ms(const struct samekey_result *r)
{
    return r->retry_in_ms;
}

int64_t samekey_result_elapsed_ms(const struct samekey_result *r)
{
    return r->elapsed_ms;
}

int samekey_result_resumed(const struct samekey_result *r)
{
    return r->told_before ? 2 : r->resumed;
}

int samekey_result_journal_failed(const struct samekey_result *r)
{
    return r->journal_failed;
}

int samekey_result_rounds(const struct samekey_result *r)
{
    return r->rounds;
}

int samekey_result_status(const struct samekey_result *r)
{
    return r->has_reply ? r->reply.status : 0;
}

const void *samekey_result_body(const struct samekey_result *r, size_t *len)
{
    bool there = r->has_reply && r->reply.body_kept && r->reply.body.data;
    if (len)
        *len = there ? r->reply.body.len : 0;
    return there ? r->reply.body.data : "";
}

int samekey_result_body_kept(const struct samekey_result *r)
{
    return !r->has_reply || r->reply.body_kept;
}

const char *samekey_result_header(const struct samekey_result *result, const char *name, size_t n)
{
    struct samekey_result *r = (struct samekey_result *)result;
    struct slice value;
    if (!r->has_reply || !response_header(&r->reply, name, n, &value))
        return "";
    /* A copy of the lines in which every line's end is a NUL gives values that live as long as the result. */
    if (r->header_values.len != r->reply.headers.len) {
        buffer_clear(&r->header_values);
        buffer_slice(&r->header_values, buffer_view(&r->reply.headers));
        if (r->header_values.failed)
            return "";
    }
    char *copy = r->header_values.data + (value.data - r->reply.headers.data);
    copy[value.len] = 0; /* a CR, an LF or the white space before them */
    return copy;
}

size_t samekey_result_attempts(const struct samekey_result *r)
{
    return r->attempt_count;
}

int samekey_result_attempt(const struct samekey_result *r, size_t index, struct samekey_attempt *out)
{
    if (index >= r->attempt_count)
        return SAMEKEY_NOT_FOUND;
    const struct attempt *a = &r->attempts[index];
    struct samekey_attempt full = {.size = out->size,
                                   .n = a->n,
                                   .outcome = (int)a->outcome,
                                   .status = a->status,
                                   .sent_bytes = a->sent_bytes,
                                   .wait_before_ms = a->wait_before_ms,
                                   .started_unix_ms = a->started_ms,
                                   .evidence = result_evidence(r, index)};
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return SAMEKEY_OK;
}

size_t samekey_result_queries(const struct samekey_result *r)
{
    return r->query_count;
}

int samekey_result_query(const struct samekey_result *r, size_t index, int *answer, int *after_attempt)
{
    if (index >= r->query_count)
        return SAMEKEY_NOT_FOUND;
    *answer = (int)r->queries[index].answer;
    *after_attempt = r->queries[index].after_attempt;
    return SAMEKEY_OK;
}

/* ---- words -------------------------------------------------------------------------------------------------- */

const char *samekey_version(void)
{
    return SAMEKEY_VERSION;
}

const char *samekey_state_text(int state)
{
    return state >= SAMEKEY_PROCESSING && state <= SAMEKEY_UNKNOWN ? state_text((enum call_state)state) : "";
}

const char *samekey_outcome_text(int outcome)
{
    return outcome >= 0 && outcome < OUTCOME_COUNT ? outcome_json((enum outcome)outcome) : "";
}

const char *samekey_next_text(int next)
{
    return next >= NEXT_NONE && next <= NEXT_ASK_OPERATOR ? next_action_text((enum next_action)next) : "";
}

const char *samekey_answer_text(int answer)
{
    return answer >= RECEIPT_ANSWER_QUERY_FAILED && answer <= RECEIPT_ANSWER_UNKNOWN
               ? answer_word((enum receipt_answer)answer)
               : "";
}

const char *samekey_status_text(int status)
{
    static const char *const texts[] = {"ok",         "invalid",   "no memory", "journal",
                                        "key reused", "not found", "transport", "misuse"};
    return status >= 0 && status <= SAMEKEY_MISUSE ? texts[status] : "";
}

_Static_assert((int)SAMEKEY_PROCESSING == STATE_PROCESSING && (int)SAMEKEY_SUCCESS == STATE_SUCCESS &&
                   (int)SAMEKEY_FAILED == STATE_FAILED && (int)SAMEKEY_UNKNOWN == STATE_UNKNOWN,
               "the public states are the core's");
_Static_assert((int)SAMEKEY_OUTCOME_UNKNOWN == OUTCOME_UNKNOWN &&
                   (int)SAMEKEY_OUTCOME_REJECTED == OUTCOME_REJECTED &&
                   (int)SAMEKEY_OUTCOME_PENDING == OUTCOME_PENDING &&
                   (int)SAMEKEY_OUTCOME_FAILED == OUTCOME_FAILED &&
                   (int)SAMEKEY_OUTCOME_SUCCESS == OUTCOME_SUCCESS &&
                   (int)SAMEKEY_OUTCOME_NOT_EXECUTED == OUTCOME_NOT_EXECUTED,
               "the public outcomes are the core's");
_Static_assert((int)SAMEKEY_ANSWER_UNKNOWN == RECEIPT_ANSWER_UNKNOWN &&
                   (int)SAMEKEY_ANSWER_FAILED_OPEN == RECEIPT_ANSWER_FAILED_OPEN &&
                   (int)SAMEKEY_ANSWER_FAILED_FINAL == RECEIPT_ANSWER_FAILED_FINAL &&
                   (int)SAMEKEY_ANSWER_SUCCESS == RECEIPT_ANSWER_SUCCESS &&
                   (int)SAMEKEY_ANSWER_RUNNING == RECEIPT_ANSWER_RUNNING &&
                   (int)SAMEKEY_ANSWER_NOT_RECEIVED == RECEIPT_ANSWER_NOT_RECEIVED,
               "the public answers are the core's");
_Static_assert((int)SAMEKEY_NEXT_ASK_OPERATOR == NEXT_ASK_OPERATOR &&
                   (int)SAMEKEY_NEXT_FIX_REQUEST == NEXT_FIX_REQUEST &&
                   (int)SAMEKEY_NEXT_RETRY_SAME_CALL == NEXT_RETRY_SAME_CALL,
               "the public next actions are the core's");
