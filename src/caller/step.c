/* SPDX-License-Identifier: MIT
 *
 * The public step interface: a run of caller/run.h in public clothes. The budget and breaker that stand between "send"
 * and a byte are asked here, those of this process, since a limits.db would be I/O.
 */
#include "caller/control.h"
#include "caller/handle.h"
#include "caller/run.h"

#include <stdlib.h>

struct samekey_run {
    struct samekey *handle;
    struct intent intent;
    struct run run;
    bool begun, ended;
    bool passing; /* an attempt is out */
    struct limits_pass pass;
    struct control control;
    struct samekey_header headers[CONTROL_HEADERS_MAX];
    struct buffer url, key;
    struct response reply;
};

void samekey_event_init_sized(struct samekey_event *event, size_t size)
{
    struct samekey_event defaults = {.size = size};
    memset(event, 0, size);
    memcpy(event, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

int samekey_run_new(struct samekey_run **out, struct samekey *handle, const struct samekey_options *options)
{
    struct samekey_error *error =
        options->size > offsetof(struct samekey_options, error) ? options->error : NULL;
    struct samekey_run *r = calloc(1, sizeof *r);
    if (!r) {
        intent_error(error, SAMEKEY_NO_MEMORY, "no memory");
        return SAMEKEY_NO_MEMORY;
    }
    enum status status = intent_make(&r->intent, options, error);
    if (status != STATUS_OK) {
        free(r);
        return status == STATUS_NO_MEMORY ? SAMEKEY_NO_MEMORY : SAMEKEY_INVALID;
    }
    /* The program sends the body itself; nothing here looks at it again. */
    r->intent.body = slice_of("", 0);
    r->handle = handle;
    *out = r;
    return SAMEKEY_OK;
}

void samekey_run_free(struct samekey_run *r)
{
    if (!r)
        return;
    if (r->passing)
        limits_leave(r->handle->process_limits, r->intent.origin, 0, &r->pass, BREAKER_NEUTRAL, 0);
    run_fini(&r->run);
    intent_fini(&r->intent);
    response_fini(&r->reply);
    buffer_fini(&r->url);
    buffer_fini(&r->key);
    free(r);
}

const struct samekey_result *samekey_run_result(const struct samekey_run *r)
{
    return r->ended ? r->run.result : NULL;
}

static bool wire_end(int end, enum evidence_end *out)
{
    static const enum evidence_end ends[] = {
        [SAMEKEY_END_NAME] = EVIDENCE_NAME,
        [SAMEKEY_END_REFUSED] = EVIDENCE_REFUSED,
        [SAMEKEY_END_CONNECT_TIMEOUT] = EVIDENCE_CONNECT_TIMEOUT,
        [SAMEKEY_END_TLS] = EVIDENCE_TLS,
        [SAMEKEY_END_TLS_CERTIFICATE] = EVIDENCE_TLS_CERTIFICATE,
        [SAMEKEY_END_REFUSED_STREAM] = EVIDENCE_REFUSED_STREAM,
        [SAMEKEY_END_ANSWER] = EVIDENCE_ANSWER,
        [SAMEKEY_END_TIMEOUT] = EVIDENCE_TIMEOUT,
        [SAMEKEY_END_RESET] = EVIDENCE_RESET,
        [SAMEKEY_END_EOF] = EVIDENCE_EOF,
        [SAMEKEY_END_MALFORMED] = EVIDENCE_MALFORMED,
        [SAMEKEY_END_ABORTED] = EVIDENCE_ABORTED,
    };
    if (end < SAMEKEY_END_NAME || end > SAMEKEY_END_ABORTED)
        return false;
    *out = ends[end];
    return true;
}

/* The answer of an event as a reply. A bound that memory sets costs the body, never the status. */
static void make_reply(struct samekey_run *r, const struct samekey_event *e)
{
    response_clear(&r->reply);
    r->reply.status = e->status;
    for (size_t i = 0; i < e->header_count && e->headers; i++) {
        buffer_text(&r->reply.headers, e->headers[i].name);
        buffer_text(&r->reply.headers, ": ");
        buffer_text(&r->reply.headers, e->headers[i].value);
        buffer_text(&r->reply.headers, "\r\n");
    }
    r->reply.body_bytes = e->body_len;
    r->reply.body_kept = e->body_len <= r->intent.result_bytes_max;
    if (r->reply.body_kept)
        buffer_append(&r->reply.body, e->body, e->body_len);
    r->reply.body_kept = r->reply.body_kept && !r->reply.body.failed;
}

static int start(struct samekey_run *r, const struct samekey_event *e)
{
    char call_id[CALLID_BYTES_MAX + 1];
    if (e->past_attempts > 0 && r->intent.call_id.len == 0)
        return SAMEKEY_MISUSE; /* a call that has begun has a callId */
    int status = handle_call_id(r->handle, &r->intent, e->unix_now_ms, call_id, NULL);
    if (status != SAMEKEY_OK)
        return status;
    if (run_init(&r->run, &r->intent, call_id) != STATUS_OK)
        return SAMEKEY_NO_MEMORY;
    r->begun = true;
    return SAMEKEY_OK;
}

/* Turns a public event into one of the run. SAMEKEY_OK, or why it cannot be. */
static int read_event(struct samekey_run *r, const struct samekey_event *e, struct run_event *ev,
                      struct evidence *evidence)
{
    *ev = (struct run_event){
        .now_ms = e->now_ms, .unix_now_ms = e->unix_now_ms, .random = e->random, .retry_in_ms = -1};
    if ((e->type == SAMEKEY_EVENT_START) == r->begun || r->ended || !(e->random >= 0 && e->random < 1))
        return SAMEKEY_MISUSE;
    switch (e->type) {
    case SAMEKEY_EVENT_START:
        ev->type = CALL_EV_START;
        ev->past = (struct call_past){.attempts = e->past_attempts,
                                      .maybe_ran = e->past_maybe_ran && e->past_attempts > 0,
                                      .age_ms = e->past_age_ms};
        return start(r, e);
    case SAMEKEY_EVENT_ATTEMPT:
        ev->type = CALL_EV_ATTEMPT;
        *evidence = (struct evidence){.bytes_sent = e->sent_bytes,
                                      .request_complete = e->request_complete,
                                      .status = e->status,
                                      .head_complete = e->status != 0,
                                      .success_when = -1,
                                      .timeout_ms = r->run.effect.timeout_ms,
                                      .detail = e->detail};
        if (!wire_end(e->end, &evidence->end) || e->outcome < 0 || e->outcome >= OUTCOME_COUNT ||
            (evidence->end == EVIDENCE_ANSWER && (e->status < 200 || e->status > 599)))
            return SAMEKEY_MISUSE;
        if (evidence->end == EVIDENCE_ANSWER)
            make_reply(r, e);
        ev->evidence = evidence;
        ev->reply = &r->reply;
        ev->outcome = (enum outcome)e->outcome;
        ev->echoed_call_id = e->echoed_call_id;
        break;
    case SAMEKEY_EVENT_ANSWER:
        ev->type = r->run.machine.phase == CALL_FENCING ? CALL_EV_FENCED : CALL_EV_ANSWER;
        ev->answer_status = e->status;
        ev->answer_body = slice_of(e->body, e->body ? e->body_len : 0);
        ev->answer_detail = e->detail;
        break;
    case SAMEKEY_EVENT_TIMER:
    case SAMEKEY_EVENT_CANCEL:
        ev->type = CALL_EV_TIMER;
        break;
    default:
        return SAMEKEY_MISUSE;
    }
    return run_expects(&r->run, ev->type) ? SAMEKEY_OK : SAMEKEY_MISUSE;
}

static void fill(struct samekey_run *r, const struct call_effect *fx, struct samekey_effect *out)
{
    static const int types[] = {[CALL_DO_SEND] = SAMEKEY_EFFECT_SEND,
                                [CALL_DO_ASK] = SAMEKEY_EFFECT_ASK,
                                [CALL_DO_WAIT] = SAMEKEY_EFFECT_WAIT,
                                [CALL_DO_FENCE] = SAMEKEY_EFFECT_FENCE,
                                [CALL_DO_END] = SAMEKEY_EFFECT_END};
    struct samekey_effect full = {.size = out->size,
                                  .type = types[fx->type],
                                  .attempt = fx->attempt,
                                  .timeout_ms = fx->timeout_ms,
                                  .until_ms = fx->until_ms,
                                  .call_id = r->run.call_id,
                                  .url = ""};
    buffer_clear(&r->url);
    buffer_clear(&r->key);
    if (r->intent.has_key) {
        buffer_slice(&r->key, r->intent.key_spelling);
        full.key = buffer_cstring(&r->key);
    }
    if (fx->type == CALL_DO_SEND) {
        control_make(&r->control, &r->intent, r->run.call_id, fx->attempt, fx->timeout_ms,
                     (uint64_t)r->run.sent_unix_ms * UINT64_C(0x9E3779B97F4A7C15));
        for (size_t i = 0; i < r->control.count; i++)
            r->headers[i] =
                (struct samekey_header){r->control.headers[i].name.data, r->control.headers[i].value.data};
        full.headers = r->headers;
        full.header_count = r->control.count;
        buffer_slice(&r->url, r->intent.url);
    } else if ((fx->type == CALL_DO_ASK || fx->type == CALL_DO_FENCE) && r->intent.url.len) {
        intent_receipt_url(&r->intent, slice_text(r->run.call_id), r->run.first_unix_ms,
                           fx->type == CALL_DO_FENCE, &r->url);
    }
    full.url = buffer_cstring(&r->url);
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
}

int samekey_run_step(struct samekey_run *r, const struct samekey_event *event, struct samekey_effect *effect)
{
    struct samekey_event e;
    struct run_event ev;
    struct evidence evidence;
    const struct call_effect *fx;
    samekey_event_init(&e);
    if (event->size < sizeof(size_t) + sizeof(int) || effect->size < sizeof(size_t) + sizeof(int))
        return SAMEKEY_MISUSE;
    memcpy(&e, event, event->size < sizeof e ? event->size : sizeof e);
    int status = read_event(r, &e, &ev, &evidence);
    if (status != SAMEKEY_OK)
        return status;
    if (e.type == SAMEKEY_EVENT_CANCEL)
        run_cancel(&r->run, e.now_ms);
    if (r->passing) {
        bool unknown = evidence.end != EVIDENCE_ANSWER && evidence.bytes_sent > 0;
        limits_leave(r->handle->process_limits, r->intent.origin, e.now_ms, &r->pass,
                     breaker_judge(evidence.end == EVIDENCE_ABORTED,
                                   evidence.end == EVIDENCE_ANSWER ? e.status : 0, unknown),
                     e.random);
        r->passing = false;
    }
    run_step(&r->run, &ev, &fx);
    if (fx->type == CALL_DO_SEND) {
        ev = (struct run_event){
            .type = CALL_EV_DENIED, .now_ms = e.now_ms, .unix_now_ms = e.unix_now_ms, .random = e.random};
        r->passing = limits_enter(r->handle->process_limits, r->intent.origin, fx->is_retry, e.now_ms,
                                  &r->pass, &ev.denial, &ev.retry_in_ms, &ev.refusal);
        if (!r->passing)
            run_step(&r->run, &ev, &fx);
    }
    r->ended = fx->type == CALL_DO_END;
    fill(r, fx, effect);
    return SAMEKEY_OK;
}
