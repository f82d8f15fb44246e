/* SPDX-License-Identifier: MIT */
#include "core/json_value.h"
#include "core/retry_after.h"
#include "core/deadline.h"
#include "gateway/answer.h"
#include "gateway/forward.h"
#include "gateway/run_parts.h"

#define RUN_RETRY_AFTER_LINES 8 /* Retry-After fields of one answer that are looked at */

/* ---- the request for the upstream --------------------------------------------------------------------------- */

bool run_copy_request(struct run *run, struct visit *visit)
{
    const struct request_head *head = request_head(visit->request);
    struct buffer *lines = &run->caller_lines;
    forward_lines(lines, visit->request, true);
    size_t content = lines->len;
    struct slice peer = request_peer(visit->request);
    run->client =
        visit->id.has_credential
            ? admission_client(slice_of((const char *)visit->id.credential.bytes, sizeof(struct digest)))
            : admission_client(peer);
    (void)query_principal_lines(lines, run->outlets->setup, &head->headers, &run->lane->s->receipt_header);
    if (lines->failed)
        return false;
    run->content_lines = slice_of(lines->data, content);
    run->principal_lines = slice_of(lines->data + content, lines->len - content);
    bool good = arena_copy(&run->arena, head->method, &run->method) &&
                arena_copy(&run->arena, head->target, &run->target);
    run->forwards_budget = visit->id.budget_ms != DEADLINE_NO_BUDGET;
    run->budget_end_ms = visit->budget_end_ms;
    return good;
}

static void build_head(struct run *run)
{
    struct buffer *h = &run->head;
    const struct call_row *row = &run->row;
    buffer_clear(h);
    buffer_slice(h, run->method);
    buffer_byte(h, ' ');
    buffer_slice(h, run->target);
    buffer_text(h, " HTTP/1.1\r\n");
    buffer_slice(h, run->content_lines);
    line_append(h, "X-Call-Id", row->call_id);
    if (row->call_id_made)
        line_append(h, "X-Call-Id-Source", slice_text("gateway"));
    if (row->has_key)
        line_append(h, "Idempotency-Key", row->key_spelling.len ? row->key_spelling : row->key);
    buffer_text(h, "X-Call-Attempt: ");
    buffer_number(h, run->effect.attempt);
    buffer_text(h, "\r\nX-Call-Fence: ");
    buffer_number(h, row->fence);
    buffer_text(h, "\r\nContent-Length: ");
    buffer_number(h, (int64_t)run->body.len);
    buffer_text(h, "\r\n");
    if (run->forwards_budget) {
        buffer_text(h, "X-Call-Budget-Ms: ");
        buffer_number(h, deadline_left(run->budget_end_ms, run_now(run)));
        buffer_text(h, "\r\n");
    }
    if (run->id.has_trace) {
        char text[TRACEPARENT_BYTES + 1];
        traceparent_child(&run->id.trace, prng_next(&run->shard->random), &run->attempt_span);
        traceparent_print(&run->attempt_span, text);
        line_append(h, "traceparent", slice_text(text));
    }
    buffer_text(h, "\r\n");
}

/* ---- an attempt --------------------------------------------------------------------------------------------- */

void run_feed_denied(struct run *run, enum call_denial denial, int64_t retry_ms)
{
    struct call_event event = {.type = CALL_EV_DENIED, .denial = denial, .retry_in_ms = retry_ms};
    run_feed(run, &event);
}

/* What the callee's answer means, as far as its head tells. */
static enum outcome outcome_by_head(const struct run *run)
{
    const struct reply *r = &run->reply;
    struct evidence e = {
        .end = EVIDENCE_ANSWER,
        .status = r->status,
        .has_callee_outcome = r->callee_outcome != OUTCOME_NONE,
        .callee_outcome = r->callee_outcome,
        .other_call_id = r->other_call_id,
        .success_when = -1,
        .request_complete = true,
    };
    return outcome_classify(&e, &run->lane->outcome_rules);
}

static void on_reply_head(void *context, struct exchange *exchange, const struct response_head *head)
{
    struct run *run = context;
    struct reply *r = &run->reply;
    (void)exchange;
    r->head = true;
    r->status = head->status;
    r->content_length = head->content_length;
    for (size_t i = 0; i < head->headers.count; i++) {
        const struct header *h = &head->headers.list[i];
        if (slice_is_nocase(h->name, "Call-Outcome")) {
            enum outcome said = outcome_parse_header(h->value);
            /* Two words that differ are a contradiction, which proves nothing. */
            r->callee_outcome =
                r->callee_outcome != OUTCOME_NONE && r->callee_outcome != said ? OUTCOME_UNKNOWN : said;
        }
        if (slice_is_nocase(h->name, "X-Call-Id") && !slice_equal(h->value, run->row.call_id))
            r->other_call_id = true;
    }
    struct slice waits[RUN_RETRY_AFTER_LINES];
    size_t count = 0;
    for (size_t i = 0; i < head->headers.count && count < RUN_RETRY_AFTER_LINES; i++) {
        if (slice_is_nocase(head->headers.list[i].name, "Retry-After"))
            waits[count++] = head->headers.list[i].value;
    }
    if (retry_after_longest(waits, count, clock_wall_ms(), &r->retry_after_ms) != STATUS_OK)
        r->retry_after_ms = -1;
    answer_upstream_lines(&r->lines, &head->headers);
    answer_kept_lines(&r->kept, &head->headers, &run->lane->s->replay_headers);
}

/* The answer is larger than what is kept. It goes to the caller as it comes, if it will be the ending. */
static void begin_streaming(struct run *run)
{
    struct reply *r = &run->reply;
    enum outcome outcome = outcome_by_head(run);
    bool ends = outcome == OUTCOME_SUCCESS || (outcome == OUTCOME_REJECTED && !run->machine.maybe_ran);
    r->too_large = true;
    if (!ends || run->lane->success.set || !run->visit || !run->visit->request) {
        r->wanted_head_only = true;
        buffer_fini(&r->body);
        return;
    }
    r->streaming = true;
    visit_stream_begin(run->visit, r->status, buffer_view(&r->lines), r->content_length, outcome);
    (void)visit_stream_write(run->visit, buffer_view(&r->body));
    buffer_fini(&r->body);
}

/* A streamed answer has begun in time; from there each piece has the attempt's time anew, and a caller that takes its bytes
 * slowly holds up the service's, but not the service: while the reply rests no time runs. How long a caller may take
 * nothing is bounded by answer_timeout. */
static void pause_reply(struct run *run)
{
    exchange_pause(run->exchange);
    exchange_set_deadline(run->exchange, INT64_MAX);
}

void run_resume_reply(struct run *run)
{
    if (!run->exchange)
        return;
    exchange_set_deadline(run->exchange, run_now(run) + run->effect.timeout_ms);
    exchange_resume(run->exchange);
}

static void on_reply_piece(void *context, struct exchange *exchange, struct slice piece)
{
    struct run *run = context;
    struct reply *r = &run->reply;
    if (r->wanted_head_only)
        return;
    if (!r->streaming) {
        if (piece.len <= (size_t)run->lane->s->result_bytes_max - r->body.len) {
            buffer_slice(&r->body, piece);
            return;
        }
        begin_streaming(run);
        if (!r->streaming)
            return;
    }
    /* The last piece is held until the ending is on disk. */
    bool more = true;
    if (run->visit && r->held.len)
        more = visit_stream_write(run->visit, buffer_view(&r->held));
    buffer_clear(&r->held);
    buffer_slice(&r->held, piece);
    if (!run->visit)
        r->streaming = false, r->wanted_head_only = true;
    else if (!more)
        pause_reply(run);
    else
        exchange_set_deadline(exchange, run_now(run) + run->effect.timeout_ms);
}

void run_drain(struct run *run)
{
    run_resume_reply(run);
}

static int success_when(const struct run *run)
{
    const struct success_rule *rule = &run->lane->success;
    if (!rule->set || run->reply.status < 200 || run->reply.status > 299)
        return -1;
    if (run->reply.too_large)
        return 0; /* it cannot be looked at, so it does not hold */
    struct json_value value;
    struct buffer text = {0};
    int holds = 0;
    if (json_find(buffer_view(&run->reply.body), rule->path, &value) == STATUS_OK &&
        json_value_normal(&value, &text) == STATUS_OK)
        holds = slice_equal(buffer_view(&text), rule->value);
    buffer_fini(&text);
    return holds;
}

static enum evidence_end end_of(const struct net_evidence *e)
{
    switch (e->end) {
    case NET_END_COMPLETE:
        return EVIDENCE_ANSWER;
    case NET_END_NAME:
        return EVIDENCE_NAME;
    case NET_END_REFUSED:
        return EVIDENCE_REFUSED;
    case NET_END_CONNECT_TIMEOUT:
        return EVIDENCE_CONNECT_TIMEOUT;
    case NET_END_TLS:
        return EVIDENCE_TLS;
    case NET_END_TLS_CERTIFICATE:
        return EVIDENCE_TLS_CERTIFICATE;
    case NET_END_TIMEOUT:
        return EVIDENCE_TIMEOUT;
    case NET_END_RESET:
        return EVIDENCE_RESET;
    case NET_END_EOF:
        return EVIDENCE_EOF;
    case NET_END_MALFORMED:
    case NET_END_TOO_LARGE:
        return EVIDENCE_MALFORMED;
    case NET_END_ABORTED:
        return EVIDENCE_ABORTED;
    }
    return EVIDENCE_RESET;
}

/* The problem that a samekey below answered with, or PROBLEM_NONE. */
enum problem reply_problem(const struct reply *r)
{
    static const char urn[] = "urn:samekey:";
    struct json_value type;
    struct buffer text = {0};
    enum problem found = PROBLEM_NONE;
    if (r->head && r->status >= 400 &&
        json_find(buffer_view(&r->body), slice_text("type"), &type) == STATUS_OK &&
        json_value_text(&type, &text) == STATUS_OK && text.len > sizeof urn - 1 &&
        memcmp(text.data, urn, sizeof urn - 1) == 0)
        found = problem_find(slice_of(text.data + sizeof urn - 1, text.len - (sizeof urn - 1)));
    buffer_fini(&text);
    return found;
}

static struct evidence read_evidence(struct run *run, const struct net_evidence *e)
{
    struct reply *r = &run->reply;
    struct evidence out = {
        .end = end_of(e),
        .bytes_sent = e->bytes_sent,
        .body_sent = e->body_sent,
        .body_total = e->body_total,
        .request_complete = e->request_complete,
        .got_continue = e->got_continue,
        .reply_bytes = e->reply_bytes,
        .head_complete = e->head_complete,
        .status = e->status,
        .status_is_ours = reply_problem(r) == PROBLEM_UPSTREAM_UNAVAILABLE,
        .has_callee_outcome = r->callee_outcome != OUTCOME_NONE,
        .callee_outcome = r->callee_outcome,
        .other_call_id = r->other_call_id,
        .success_when = -1,
        .took_ms = run_now(run) - run->sent_ms,
        .timeout_ms = run->effect.timeout_ms,
        .detail = e->detail,
    };
    if (out.end == EVIDENCE_ANSWER) {
        /* A body that ended with the connection may be cut: a success is not proved by it. */
        if (e->body_until_close)
            out.end = EVIDENCE_EOF;
        else
            out.success_when = success_when(run);
    }
    return out;
}

static void on_reply_end(void *context, struct exchange *exchange, const struct net_evidence *net)
{
    struct run *run = context;
    struct shard *shard = run->shard;
    (void)exchange;
    run->exchange = NULL;
    if (run->lost) {
        if (run->jobs == 0 && !run->query)
            run_free(run);
        return;
    }
    struct evidence evidence = read_evidence(run, net);
    enum outcome outcome = outcome_classify(&evidence, &run->lane->outcome_rules);
    struct buffer words = {0};
    evidence_sentence(&words, &evidence);
    if (run->attempt_count == ATTEMPTS_MAX) {
        memmove(run->attempts, run->attempts + 1, (ATTEMPTS_MAX - 1) * sizeof *run->attempts);
        run->attempt_count--;
    }
    struct attempt *a = &run->attempts[run->attempt_count++];
    *a = (struct attempt){
        .n = run->effect.attempt,
        .started_ms = run_store_now(run) - evidence.took_ms,
        .ended_ms = run_store_now(run),
        .outcome = outcome,
        .status = evidence.status,
        .sent_bytes = evidence.bytes_sent,
        .wait_before_ms = run->effect.waited_ms,
    };
    (void)arena_copy(&run->arena, buffer_view(&words), &a->evidence);
    buffer_fini(&words);
    metrics_add(shard->counts, METRIC_attempts, run->lane->series, (size_t)outcome, 1);
    metrics_observe(shard->counts, METRIC_upstream_seconds,
                    (double)(clock_monotonic_us() - run->sent_us) / 1e6);
    /* A first attempt that simply succeeded is told by the line of the ending. */
    bool plain = outcome == OUTCOME_SUCCESS && a->n == 1;
    log_event(shard->log, plain ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, clock_wall_ms(), run->id.call_id,
              "attempt_ended", LOG_NUMBER("attempt", a->n), LOG_STRING("outcome", outcome_json(outcome)),
              LOG_TEXT("evidence", a->evidence), LOG_NUMBER("status", evidence.status),
              LOG_NUMBER("took_ms", evidence.took_ms), LOG_TEXT("key", run->row.key),
              LOG_STRING("route", run->lane->s->name), LOG_TEXT("trace_id", run->id.trace_id));
    run_trace_attempt(run, a);
    bool reached = evidence.end == EVIDENCE_ANSWER || outcome == OUTCOME_UNKNOWN;
    (void)admission_report(run->lane->admission, &run->pass, run_now(run),
                           evidence.end == EVIDENCE_ABORTED ? BREAKER_NEUTRAL
                           : reached
                               ? breaker_judge(false, evidence.end == EVIDENCE_ANSWER ? evidence.status : 0,
                                               outcome == OUTCOME_UNKNOWN && evidence.status != 409)
                               : BREAKER_BAD,
                           shard_random(shard));
    if (run->retry_out) {
        run->retry_out = false;
        admission_retry_done(run->lane->admission, run->client);
    }
    if (run->reply.streaming && evidence.end != EVIDENCE_ANSWER && run->visit) {
        visit_stream_abort(run->visit); /* cut: the caller must not take it for whole */
        run->reply.streaming = false;
    }
    /* A limit (429) and an unwanted expectation (417) would be the same elsewhere. */
    run->try_next = outcome == OUTCOME_NOT_EXECUTED;
    bool elsewhere = run->try_next && evidence.status != 429 && evidence.status != 417;
    struct call_event event = {
        .type = CALL_EV_ATTEMPT,
        .outcome = outcome,
        .retry_allowed = outcome_retry_allowed(&evidence),
        .elsewhere = elsewhere,
        .status = evidence.end == EVIDENCE_ANSWER ? evidence.status : 0,
        .retry_after_ms = evidence.end == EVIDENCE_ANSWER ? run->reply.retry_after_ms : -1,
    };
    run_feed(run, &event);
}

static const struct exchange_handlers reply_handlers = {on_reply_head, on_reply_piece, NULL, on_reply_end};

/* The attempt's number is on disk: its bytes may leave. */
void run_put_on_wire(struct run *run)
{
    reply_clear(&run->reply);
    build_head(run);
    run->sent_ms = run_now(run);
    run->sent_us = clock_monotonic_us();
    struct exchange_request request = {
        .origin = &run->lane->origins[run->pass.origin],
        .head = buffer_view(&run->head),
        .body = buffer_view(&run->body),
        .deadline_ms = run->sent_ms + run->effect.timeout_ms,
    };
    if (run->head.failed || exchange_start(&run->exchange, run->outlets->clients[run->lane->index], &request,
                                           &reply_handlers, run) != STATUS_OK) {
        run->exchange = NULL;
        run_feed_denied(run, CALL_DENIED_BUDGET, 1000); /* no memory: nothing was sent */
    }
}
