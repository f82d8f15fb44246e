/* SPDX-License-Identifier: MIT */
#include "core/outcome.h"

#include <stddef.h>

static const struct {
    const char *json, *header, *sentence;
} words[OUTCOME_COUNT] = {
#define OUTCOME(name, number, json, header, proved, sentence) [number] = {json, header, sentence},
#include "core/outcome.def"
#undef OUTCOME
};

const char *outcome_json(enum outcome outcome)
{
    return words[outcome].json;
}

const char *outcome_header(enum outcome outcome)
{
    return words[outcome].header;
}

const char *outcome_sentence(enum outcome outcome)
{
    return words[outcome].sentence;
}

enum outcome outcome_parse_header(struct slice value)
{
    value = slice_trim(value);
    for (int i = OUTCOME_NOT_EXECUTED; i < OUTCOME_COUNT; i++) {
        if (slice_is_nocase(value, words[i].header))
            return (enum outcome)i;
    }
    return OUTCOME_NONE;
}

enum outcome outcome_parse_json(struct slice text)
{
    for (int i = OUTCOME_NOT_EXECUTED; i < OUTCOME_COUNT; i++) {
        if (slice_is(text, words[i].json))
            return (enum outcome)i;
    }
    return OUTCOME_NONE;
}

/* A complete answer: the callee's own word first, then the status (CONTRACT section 3). */
static enum outcome classify_answer(const struct evidence *e, const struct outcome_rules *rules)
{
    if (e->other_call_id)
        return OUTCOME_UNKNOWN; /* it speaks of somebody else's call */
    if (e->has_callee_outcome)
        return e->callee_outcome;
    int status = e->status;
    if (status == 202)
        return rules->accepted_success ? OUTCOME_SUCCESS : OUTCOME_PENDING;
    if (status >= 200 && status <= 299)
        return e->success_when == 0 ? OUTCOME_REJECTED : OUTCOME_SUCCESS;
    if (status == 303 && rules->redirect_303_success)
        return OUTCOME_SUCCESS;
    switch (status) {
    case 401: /* RFC 9110 section 15.5.2: lacks valid credentials, so it was not applied */
    case 407:
    case 417: /* section 15.5.18: the expectation could not be met */
    case 421: /* section 15.5.20: not the server for this, may be retried elsewhere */
    case 425: /* RFC 8470 section 5.2: unwilling to process a request that might be replayed */
    case 429: /* RFC 6585 section 4 */
        return OUTCOME_NOT_EXECUTED;
    case 408:
    case 409:
        return OUTCOME_UNKNOWN;
    default:
        break;
    }
    if (status >= 400 && status <= 499)
        return OUTCOME_REJECTED;
    if (status >= 500 && status <= 599 && rules->server_error_failed) {
        bool intermediary =
            status == 502 || status == 503 || status == 504 || (status >= 520 && status <= 529);
        return intermediary ? OUTCOME_UNKNOWN : OUTCOME_FAILED;
    }
    return OUTCOME_UNKNOWN;
}

enum outcome outcome_classify(const struct evidence *e, const struct outcome_rules *rules)
{
    switch (e->end) {
    case EVIDENCE_ANSWER:
        return classify_answer(e, rules);
    case EVIDENCE_NAME:
    case EVIDENCE_REFUSED:
    case EVIDENCE_CONNECT_TIMEOUT:
    case EVIDENCE_TLS:
    case EVIDENCE_TLS_CERTIFICATE:
    case EVIDENCE_OWN_REFUSAL:
        /* The name of the end says "before our first byte"; the count is what proves it. */
        return e->bytes_sent == 0 ? OUTCOME_NOT_EXECUTED : OUTCOME_UNKNOWN;
    case EVIDENCE_REFUSED_STREAM:
        return OUTCOME_NOT_EXECUTED;
    case EVIDENCE_TIMEOUT:
    case EVIDENCE_RESET:
    case EVIDENCE_EOF:
    case EVIDENCE_MALFORMED:
    case EVIDENCE_ABORTED:
        if (e->bytes_sent == 0)
            return OUTCOME_NOT_EXECUTED;
        /* The body was held back for a 100 that never came: none of it left (RFC 9110 section 10.1.1). */
        if (e->waited_continue && !e->got_continue && e->body_total > 0 && e->body_sent == 0)
            return OUTCOME_NOT_EXECUTED;
        return OUTCOME_UNKNOWN;
    case EVIDENCE_LOST:
        return OUTCOME_UNKNOWN;
    }
    return OUTCOME_UNKNOWN;
}

bool outcome_retry_allowed(const struct evidence *e)
{
    if (e->end == EVIDENCE_TLS_CERTIFICATE)
        return false;
    if (e->end == EVIDENCE_ANSWER) {
        /* A samekey below had its own retries: what it could not reach, we hand on. */
        if (e->status_is_ours)
            return false;
        if (e->status == 401 || e->status == 407)
            return false;
    }
    return true;
}

static void append_seconds(struct buffer *out, int64_t ms)
{
    if (ms % 1000 == 0)
        buffer_format(out, "%lld s", (long long)(ms / 1000));
    else if (ms >= 1000)
        buffer_format(out, "%lld.%03lld s", (long long)(ms / 1000), (long long)(ms % 1000));
    else
        buffer_format(out, "%lld ms", (long long)ms);
}

/* How far the request got, for the sentence. */
static const char *how_far(const struct evidence *e)
{
    if (e->bytes_sent == 0)
        return "before anything was sent";
    if (e->request_complete)
        return "after the whole request was sent";
    return e->body_sent ? "after a part of the body was sent" : "after the head was sent";
}

void evidence_sentence(struct buffer *out, const struct evidence *e)
{
    switch (e->end) {
    case EVIDENCE_ANSWER:
        buffer_format(out, "answered %d", e->status);
        if (e->has_callee_outcome)
            buffer_format(out, " with Call-Outcome %s", outcome_header(e->callee_outcome));
        if (e->other_call_id)
            buffer_text(out, ", but for another callId than the one sent");
        if (e->success_when == 0)
            buffer_text(out, ", but success_when does not hold");
        if (!e->request_complete && e->body_total)
            buffer_text(out, " before the whole request was sent");
        break;
    case EVIDENCE_NAME:
        buffer_text(out, "the name of the service was not found; nothing was sent");
        break;
    case EVIDENCE_REFUSED:
        buffer_text(out, "connection refused; nothing was sent");
        break;
    case EVIDENCE_CONNECT_TIMEOUT:
        buffer_text(out, "no connection in time; nothing was sent");
        break;
    case EVIDENCE_TLS:
        buffer_text(out, "TLS failed before anything was sent");
        break;
    case EVIDENCE_TLS_CERTIFICATE:
        buffer_text(out, "the service's certificate is not to be trusted; nothing was sent");
        break;
    case EVIDENCE_REFUSED_STREAM:
        buffer_text(out, "the service refused the stream before processing it");
        break;
    case EVIDENCE_TIMEOUT:
        buffer_text(out, e->head_complete ? "the reply was not complete within " : "no reply within ");
        append_seconds(out, e->timeout_ms);
        buffer_format(out, " %s", how_far(e));
        break;
    case EVIDENCE_RESET:
        buffer_format(out, "the connection was reset %s%s", how_far(e),
                      e->reply_bytes ? ", within the reply" : "");
        break;
    case EVIDENCE_EOF:
        buffer_format(out, "the connection was closed %s%s", how_far(e),
                      e->reply_bytes ? ", within the reply" : " with no byte of reply");
        break;
    case EVIDENCE_MALFORMED:
        buffer_format(out, "the reply is not well-formed HTTP; it came %s", how_far(e));
        break;
    case EVIDENCE_ABORTED:
        buffer_format(out, "given up by us %s", how_far(e));
        break;
    case EVIDENCE_OWN_REFUSAL:
        buffer_text(out, "refused by our own limits; nothing was sent");
        break;
    case EVIDENCE_LOST:
        buffer_text(out, "the process that worked on it stopped before it could write down the ending");
        break;
    }
    /* The transport's own words add something only where ours are general. */
    bool general = e->end != EVIDENCE_ANSWER && e->end != EVIDENCE_EOF && e->end != EVIDENCE_TIMEOUT;
    if (general && e->detail && *e->detail)
        buffer_format(out, " (%s)", e->detail);
}
