/* SPDX-License-Identifier: MIT */
#include "gateway/run.h"

#include "core/deadline.h"
#include "core/json_value.h"
#include "core/retry_after.h"
#include "gateway/answer.h"
#include "gateway/forward.h"
#include "gateway/query.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN_ARENA_BYTES_MAX   (512u << 10) /* texts of one call: its head, its attempts' evidence */
#define RUN_RETRY_AFTER_LINES 8            /* Retry-After fields of one answer that are looked at */
#define RUN_END_RETRY_MS      500          /* an ending that could not be written is tried again after this */

/* What one attempt brought back. */
struct reply {
    int status;
    bool head;             /* a final head came */
    bool too_large;        /* more body than is kept */
    bool streaming;        /* it goes to the visit as it comes */
    bool wanted_head_only; /* nobody wants the body any more */
    bool ours;             /* a problem of a samekey below */
    bool other_call_id;
    enum outcome callee_outcome;
    int64_t retry_after_ms; /* -1: none */
    int64_t content_length;
    struct buffer lines, kept, body, held;
};

struct run {
    struct shard *shard;
    struct outlets *outlets;
    const struct lane *lane;
    struct visit *visit;
    struct arena arena;
    struct identity id;
    struct slice method, target, content_lines, principal_lines;
    bool forwards_budget;
    int64_t budget_end_ms;
    struct buffer body;
    struct call_row row;         /* as the store has it, by our own writes */
    int64_t store_now_ms, at_ms; /* the store's clock, and the monotonic instant it was read */
    int64_t covers_since_ms;
    int64_t lease_until_ms; /* monotonic */
    bool resumed, lost;
    struct call machine;
    struct call_effect effect; /* being performed */
    struct attempt attempts[ATTEMPTS_MAX];
    size_t attempt_count;
    struct pass pass;
    uint64_t client;
    bool retry_out;      /* counted in retries_in_flight */
    bool before_connect; /* the last attempt did not even connect */
    struct exchange *exchange;
    struct buffer head;
    int64_t sent_ms; /* monotonic */
    struct reply reply;
    struct query *query;
    struct net_timer timer, lease_timer;
    struct buffer attempts_text;
    int jobs;
    bool pending_stored;
    bool ending;                             /* the ending is being written */
    struct buffer result_lines, result_body; /* of a receipt */
    bool has_result;
    int result_status;
};

static void perform(struct run *run);

static int64_t now_of(const struct run *run)
{
    return net_loop_now(run->shard->loop);
}

/* The store's clock, carried on by the monotonic one. */
static int64_t store_now(const struct run *run)
{
    return run->store_now_ms + (now_of(run) - run->at_ms);
}

static void reply_clear(struct reply *r)
{
    buffer_fini(&r->lines);
    buffer_fini(&r->kept);
    buffer_fini(&r->body);
    buffer_fini(&r->held);
    memset(r, 0, sizeof *r);
    r->retry_after_ms = -1;
}

static void run_free(struct run *run)
{
    struct shard *shard = run->shard;
    assert(!run->exchange && !run->query && run->jobs == 0);
    net_timer_disarm(shard->loop, &run->timer);
    net_timer_disarm(shard->loop, &run->lease_timer);
    if (run->retry_out)
        admission_retry_done(run->lane->admission, run->client);
    admission_leave(run->lane->admission, &run->pass, now_of(run));
    metrics_add(shard->counts, METRIC_calls_running, run->lane->series, 0, -1);
    if (run->visit) {
        run->visit->run = NULL;
        visit_unlink_run(run->visit);
    }
    reply_clear(&run->reply);
    buffer_fini(&run->head);
    buffer_fini(&run->body);
    buffer_fini(&run->attempts_text);
    buffer_fini(&run->result_lines);
    buffer_fini(&run->result_body);
    arena_fini(&run->arena);
    outlets_release(run->outlets);
    shard->runs--;
    free(run);
}

static void feed(struct run *run, struct call_event *event)
{
    event->now_ms = now_of(run);
    event->random = shard_random(run->shard);
    call_step(&run->machine, event, &run->effect);
    perform(run);
}

/* ---- what the rows say -------------------------------------------------------------------------------------- */

static void encode_attempts(struct run *run)
{
    buffer_clear(&run->attempts_text);
    attempts_encode(&run->attempts_text, run->attempts, run->attempt_count);
    run->row.attempts = buffer_view(&run->attempts_text);
}

static struct rows rows_of(struct run *run)
{
    struct rows rows = {.call = run->row, .now_ms = store_now(run), .covers_since_ms = run->covers_since_ms};
    if (run->row.has_key)
        rows.holder = run->row;
    return rows;
}

/* Somebody else owns the call now: nothing more is sent or written, and the visit hears what stands. */
static void lose(struct run *run, const struct rows *rows)
{
    log_event(run->shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), run->id.call_id, "ownership_lost",
              LOG_NUMBER("fence", run->row.fence), LOG_STRING("route", run->lane->s->name));
    run->lost = true;
    if (run->visit && run->visit->request) {
        if (run->reply.streaming)
            visit_stream_abort(run->visit);
        else if (rows->call.id && !state_running(rows->call.state))
            visit_answer_row(run->visit, rows, true, false);
        else
            visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN, "another process took this call over",
                                 1000, rows, true);
    }
    if (run->exchange)
        exchange_abort(run->exchange);
    else if (run->jobs == 0 && !run->query)
        run_free(run);
}

/* ---- the request for the upstream --------------------------------------------------------------------------- */

static bool copy_request(struct run *run, struct visit *visit)
{
    const struct request_head *head = request_head(visit->request);
    struct buffer lines = {0};
    forward_lines(&lines, visit->request, true);
    struct slice peer = request_peer(visit->request);
    run->client =
        visit->id.has_credential
            ? admission_client(slice_of((const char *)visit->id.credential.bytes, sizeof(struct digest)))
            : admission_client(peer);
    struct buffer principal = {0};
    query_principal_lines(&principal, run->outlets->setup, &head->headers);
    bool good = !lines.failed && !principal.failed &&
                arena_copy(&run->arena, buffer_view(&lines), &run->content_lines) &&
                arena_copy(&run->arena, buffer_view(&principal), &run->principal_lines) &&
                arena_copy(&run->arena, head->method, &run->method) &&
                arena_copy(&run->arena, head->target, &run->target);
    buffer_fini(&lines);
    buffer_fini(&principal);
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
        buffer_number(h, deadline_left(run->budget_end_ms, now_of(run)));
        buffer_text(h, "\r\n");
    }
    if (run->id.has_trace) {
        struct traceparent child;
        char text[TRACEPARENT_BYTES + 1];
        traceparent_child(&run->id.trace, prng_next(&run->shard->random), &child);
        traceparent_print(&child, text);
        line_append(h, "traceparent", slice_text(text));
    }
    buffer_text(h, "\r\n");
}

/* ---- an attempt --------------------------------------------------------------------------------------------- */

static void feed_denied(struct run *run, enum call_denial denial, int64_t retry_ms)
{
    struct call_event event = {.type = CALL_EV_DENIED, .denial = denial, .retry_in_ms = retry_ms};
    feed(run, &event);
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
    bool found;
    struct slice value = headers_get(&head->headers, "Call-Outcome", &found);
    if (found)
        r->callee_outcome = outcome_parse_header(value);
    for (size_t i = 0; i < head->headers.count; i++) {
        const struct header *h = &head->headers.list[i];
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
        exchange_pause(exchange);
}

void run_drain(struct run *run)
{
    if (run->exchange)
        exchange_resume(run->exchange);
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
        json_value_text(&value, &text) == STATUS_OK)
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

/* The problem type of a samekey below that has had its retries. */
static bool handed_on_problem(const struct reply *r)
{
    static const char type[] = "\"urn:samekey:upstream-unavailable\"";
    return r->status == 503 && r->body.len &&
           memmem(r->body.data, r->body.len, type, sizeof type - 1) != NULL;
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
        .status_is_ours = handed_on_problem(r),
        .has_callee_outcome = r->callee_outcome != OUTCOME_NONE,
        .callee_outcome = r->callee_outcome,
        .other_call_id = r->other_call_id,
        .success_when = -1,
        .took_ms = now_of(run) - run->sent_ms,
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
        .started_ms = store_now(run) - evidence.took_ms,
        .ended_ms = store_now(run),
        .outcome = outcome,
        .status = evidence.status,
        .sent_bytes = evidence.bytes_sent,
        .wait_before_ms = run->effect.waited_ms,
    };
    (void)arena_copy(&run->arena, buffer_view(&words), &a->evidence);
    buffer_fini(&words);
    metrics_add(shard->counts, METRIC_attempts, run->lane->series, (size_t)outcome, 1);
    metrics_observe(shard->counts, METRIC_upstream_seconds, (double)evidence.took_ms / 1e3);
    log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), run->id.call_id, "attempt_ended",
              LOG_NUMBER("attempt", a->n), LOG_STRING("outcome", outcome_json(outcome)),
              LOG_TEXT("evidence", a->evidence), LOG_NUMBER("status", evidence.status),
              LOG_NUMBER("took_ms", evidence.took_ms), LOG_STRING("route", run->lane->s->name));
    bool reached = evidence.end == EVIDENCE_ANSWER || outcome == OUTCOME_UNKNOWN;
    (void)admission_report(run->lane->admission, &run->pass, now_of(run),
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
    run->before_connect =
        outcome == OUTCOME_NOT_EXECUTED && evidence.end != EVIDENCE_ANSWER && !net->connected;
    struct call_event event = {
        .type = CALL_EV_ATTEMPT,
        .outcome = outcome,
        .retry_allowed = outcome_retry_allowed(&evidence),
        .before_connect = run->before_connect,
        .status = evidence.end == EVIDENCE_ANSWER ? evidence.status : 0,
        .retry_after_ms = evidence.end == EVIDENCE_ANSWER ? run->reply.retry_after_ms : -1,
    };
    feed(run, &event);
}

static const struct exchange_handlers reply_handlers = {on_reply_head, on_reply_piece, NULL, on_reply_end};

/* The attempt's number is on disk: its bytes may leave. */
static void put_on_wire(struct run *run)
{
    reply_clear(&run->reply);
    build_head(run);
    run->sent_ms = now_of(run);
    struct exchange_request request = {
        .origin = &run->lane->origins[run->pass.origin],
        .head = buffer_view(&run->head),
        .body = buffer_view(&run->body),
        .deadline_ms = run->sent_ms + run->effect.timeout_ms,
    };
    if (run->head.failed || exchange_start(&run->exchange, run->outlets->clients[run->lane->index], &request,
                                           &reply_handlers, run) != STATUS_OK) {
        run->exchange = NULL;
        feed_denied(run, CALL_DENIED_BUDGET, 1000); /* no memory: nothing was sent */
    }
}

/* ---- store operations of the owner -------------------------------------------------------------------------- */

static struct job *owner_job(struct run *run, enum store_kind kind, void (*then)(struct job *))
{
    struct job *job = job_new(run->shard, kind, run, then);
    if (!job)
        return NULL;
    run->jobs++;
    job->op.row = run->row;
    job->op.id = run->row.id;
    job->op.fence = run->row.fence;
    return job;
}

static void lease_moved(struct run *run)
{
    run->lease_until_ms = now_of(run) + run->lane->s->lease_ms;
}

static void on_lease_timer(struct net_timer *timer);

static void arm_lease(struct run *run)
{
    net_timer_arm(run->shard->loop, &run->lease_timer, now_of(run) + run->lane->s->lease_ms / 3,
                  on_lease_timer);
}

static void renewed(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (job->op.status == STATUS_OK)
        lease_moved(run);
    bool conflict = job->op.status == STATUS_CONFLICT;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange && !run->query)
            run_free(run);
    } else if (conflict && !run->ending) {
        lose(run, &job->op.rows);
    }
    job_free(job);
}

static void on_lease_timer(struct net_timer *timer)
{
    struct run *run = LIST_ENTRY(timer, struct run, lease_timer);
    if (run->lost || run->ending)
        return;
    struct job *job = owner_job(run, STORE_RENEW, renewed);
    if (job) {
        job->op.row.lease_end_ms = store_now(run) + run->lane->s->lease_ms;
        job_submit(job);
    }
    arm_lease(run);
}

static void attempt_stored(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    enum status status = job->op.status;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange && !run->query)
            run_free(run);
    } else if (status == STATUS_OK) {
        lease_moved(run);
        run->row.attempt_count = job->op.row.attempt_count;
        run->row.first_attempt_ms = job->op.row.first_attempt_ms;
        put_on_wire(run);
    } else if (status == STATUS_CONFLICT) {
        lose(run, &job->op.rows);
    } else {
        metrics_add(run->shard->counts, METRIC_store_errors, 0, 0, 1);
        feed_denied(run, CALL_DENIED_BUDGET, 1000); /* what is not on disk is not sent */
    }
    job_free(job);
}

static bool store_attempt(struct run *run)
{
    encode_attempts(run);
    struct job *job = owner_job(run, STORE_ATTEMPT, attempt_stored);
    if (!job)
        return false;
    job->op.row.attempt_count = run->effect.attempt;
    job->op.row.maybe_ran = run->machine.maybe_ran;
    job->op.row.lease_end_ms = store_now(run) + run->lane->s->lease_ms;
    if (!job->op.row.first_attempt_ms)
        job->op.row.first_attempt_ms = store_now(run);
    job_submit(job);
    return true;
}

static void do_send(struct run *run)
{
    bool first = run->machine.sent == 1; /* of this run: it has its leave from the admission */
    if (!first || !run->pass.admitted) {
        int64_t retry_ms = -1;
        bool spare = run->before_connect && run->effect.waited_ms == 0;
        switch (admission_retry(run->lane->admission, run->client, now_of(run), &run->pass,
                                run->before_connect, !spare && !first, &retry_ms)) {
        case RETRY_YES:
            run->retry_out = true;
            metrics_add(run->shard->counts, METRIC_retries, run->lane->series, 0, 1);
            break;
        case RETRY_BUDGET:
            metrics_add(run->shard->counts, METRIC_retries_denied, run->lane->series, 0, 1);
            feed_denied(run, CALL_DENIED_BUDGET, retry_ms);
            return;
        case RETRY_BREAKER:
            feed_denied(run, CALL_DENIED_BREAKER, retry_ms);
            return;
        }
    }
    /* Before a first byte the lease must outlast the attempt, judged on a monotonic clock. */
    bool lease_holds = run->lease_until_ms >= now_of(run) + run->effect.timeout_ms;
    if (run->effect.attempt <= run->row.attempt_count && lease_holds)
        put_on_wire(run);
    else if (!store_attempt(run))
        feed_denied(run, CALL_DENIED_BUDGET, 1000);
}

/* ---- asking ------------------------------------------------------------------------------------------------- */

static void take_result(struct run *run, const struct receipt_reading *reading)
{
    buffer_clear(&run->result_lines);
    buffer_clear(&run->result_body);
    run->has_result =
        reading->has_result && (int64_t)reading->result_body.len <= run->lane->s->result_bytes_max;
    if (!run->has_result)
        return;
    run->result_status = reading->result_status;
    /* The document's header list may hold more than a replay bears. */
    struct slice lines = buffer_view(&reading->result_headers);
    while (lines.len) {
        const char *stop = memchr(lines.data, '\n', lines.len);
        size_t len = stop ? (size_t)(stop - lines.data) + 1 : lines.len;
        const char *colon = memchr(lines.data, ':', len);
        struct slice name = slice_of(lines.data, colon ? (size_t)(colon - lines.data) : 0);
        if (name.len && field_is_kept(name, &run->lane->s->replay_headers))
            buffer_append(&run->result_lines, lines.data, len);
        lines.data += len;
        lines.len -= len;
    }
    buffer_slice(&run->result_body, buffer_view(&reading->result_body));
}

static void receipt_answered(void *owner, const struct receipt_reading *reading)
{
    struct run *run = owner;
    run->query = NULL;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange)
            run_free(run);
        return;
    }
    if (reading->answer == RECEIPT_ANSWER_SUCCESS || reading->answer == RECEIPT_ANSWER_FAILED_FINAL)
        take_result(run, reading);
    struct call_event event = {.type = run->effect.type == CALL_DO_FENCE ? CALL_EV_FENCED : CALL_EV_ANSWER,
                               .answer = reading->answer};
    feed(run, &event);
}

static void do_ask(struct run *run)
{
    struct query_ask ask = {
        .outlets = run->outlets,
        .lane = run->lane,
        /* Another node may know what the last one does not answer. */
        .origin = (run->pass.origin + (size_t)(run->machine.queries > 0 ? run->machine.queries - 1 : 0)) %
                  run->lane->origin_count,
        .call_id = run->row.call_id,
        .key = run->row.key,
        .tenant = run->row.tenant,
        .method = run->method,
        .target = run->target,
        .header_lines = run->principal_lines,
        .first_attempt_ms = run->row.first_attempt_ms,
        .timeout_ms = run->effect.timeout_ms,
        .fence = run->effect.type == CALL_DO_FENCE,
    };
    if (query_start(&run->query, run->shard, &ask, receipt_answered, run) != STATUS_OK) {
        struct call_event event = {.type = ask.fence ? CALL_EV_FENCED : CALL_EV_ANSWER,
                                   .answer = RECEIPT_ANSWER_QUERY_FAILED};
        feed(run, &event);
    }
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

static void on_wait_over(struct net_timer *timer)
{
    struct run *run = LIST_ENTRY(timer, struct run, timer);
    if (run->lost)
        return;
    struct call_event event = {.type = CALL_EV_TIMER};
    feed(run, &event);
}

/* The callee accepted it: its 202 goes to the caller once that is on disk. */
static void pending_stored(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange && !run->query)
            run_free(run);
    } else if (job->op.status == STATUS_CONFLICT) {
        lose(run, &job->op.rows);
    } else if (run->visit && run->visit->request) {
        if (job->op.status == STATUS_OK)
            visit_answer_first(run->visit, run->reply.status, buffer_view(&run->reply.lines),
                               buffer_view(&run->reply.body), OUTCOME_PENDING);
        else
            visit_answer_problem(run->visit, PROBLEM_CALL_IN_PROGRESS, "accepted by the service", 1000, NULL,
                                 true);
    }
    job_free(job);
}

static void do_wait(struct run *run)
{
    net_timer_arm(run->shard->loop, &run->timer, run->effect.until_ms, on_wait_over);
    bool accepted =
        run->effect.pending && run->reply.head && run->reply.status >= 200 && run->reply.status <= 299;
    if (!accepted || run->pending_stored)
        return;
    run->pending_stored = true;
    encode_attempts(run);
    struct job *job = owner_job(run, STORE_ATTEMPT, pending_stored);
    if (!job)
        return;
    job->op.row.attempt_count = run->row.attempt_count;
    job->op.row.maybe_ran = true;
    job->op.row.lease_end_ms = store_now(run) + run->lane->s->lease_ms;
    job_submit(job);
    /* What is worked on elsewhere holds no place here. */
    admission_leave(run->lane->admission, &run->pass, now_of(run));
}

/* ---- the ending --------------------------------------------------------------------------------------------- */

static void set_lives(struct run *run)
{
    const struct route_settings *s = run->lane->s;
    int64_t now = store_now(run);
    run->row.ended_ms = now;
    if (run->row.state == STATE_UNKNOWN) {
        run->row.result_expires_ms = run->row.key_expires_ms = run->row.tombstone_expires_ms = INT64_MAX;
        return;
    }
    run->row.result_expires_ms = deadline_add(now, s->result_life_ms);
    run->row.key_expires_ms = deadline_add(now, s->key_life_ms);
    run->row.tombstone_expires_ms = deadline_add(now, s->tombstone_life_ms);
}

/* The answer that the ending is stored with, and replayed by. */
static void set_result(struct run *run)
{
    struct call_row *row = &run->row;
    const struct reply *r = &run->reply;
    enum reason reason = run->effect.reason;
    if (row->state == STATE_UNKNOWN)
        return;
    if (reason == REASON_RECEIPT && run->has_result) {
        row->has_result = row->body_kept = true;
        row->result_status = run->result_status;
        row->result_headers = buffer_view(&run->result_lines);
        row->result_body = buffer_view(&run->result_body);
    } else if (reason == REASON_RECEIPT || reason == REASON_FENCED_AT_CALLEE) {
        if (row->state != STATE_SUCCESS)
            return;
        /* A bare receipt said so: our own document is the answer, frozen now. */
        struct rows rows = rows_of(run);
        buffer_clear(&run->result_body);
        receipt_document(&run->result_body, &rows, row->call_id);
        row->has_result = row->body_kept = true;
        row->result_status = 200;
        row->result_headers = slice_text("Content-Type: application/json\r\n");
        row->result_body = buffer_view(&run->result_body);
    } else if (r->head) {
        row->has_result = true;
        row->body_kept = !r->too_large;
        row->result_status = r->status;
        row->result_headers = buffer_view(&r->kept);
        row->result_body = r->too_large ? slice_of("", 0) : buffer_view(&r->body);
    }
}

static bool answer_is_own(const struct run *run)
{
    return run->effect.reason != REASON_RECEIPT && run->effect.reason != REASON_FENCED_AT_CALLEE && run->reply.head;
}

static const char *open_detail(enum reason reason)
{
    return reason_sentence(reason);
}

/* The ending is on disk. */
static void tell_visit(struct run *run)
{
    struct visit *visit = run->visit;
    if (!visit || !visit->request)
        return;
    struct rows rows = rows_of(run);
    const struct call_effect *fx = &run->effect;
    struct reply *r = &run->reply;
    if (r->streaming) {
        (void)visit_stream_write(visit, buffer_view(&r->held));
        visit_stream_end(visit);
        return;
    }
    if (fx->state == STATE_UNKNOWN) {
        visit_answer_problem(visit, PROBLEM_OUTCOME_UNKNOWN,
                             run->machine.sent ? "no answer proves how it ended, and no receipt could tell"
                                               : "its receipt still does not tell how it ended",
                             1000, &rows, run->machine.sent > 0);
        return;
    }
    bool whole = answer_is_own(run) && !r->too_large;
    if (fx->state == STATE_FAILED && !fx->final) {
        if (whole && run->attempt_count &&
            run->attempts[run->attempt_count - 1].outcome == OUTCOME_NOT_EXECUTED &&
            fx->reason != REASON_BREAKER)
            visit_answer_first(visit, r->status, buffer_view(&r->lines), buffer_view(&r->body),
                               OUTCOME_NOT_EXECUTED);
        else
            visit_answer_problem(visit, PROBLEM_UPSTREAM_UNAVAILABLE, open_detail(fx->reason),
                                 fx->retry_in_ms > 0 ? fx->retry_in_ms : 1000, &rows, false);
        return;
    }
    if (whole) {
        enum outcome outcome = fx->state == STATE_SUCCESS           ? OUTCOME_SUCCESS
                               : fx->reason == REASON_CALLEE_FAILED ? OUTCOME_FAILED
                                                                    : OUTCOME_REJECTED;
        visit_answer_first(visit, r->status, buffer_view(&r->lines), buffer_view(&r->body), outcome);
    } else {
        visit_answer_row(visit, &rows, true, true);
    }
}

static void do_end(struct run *run);

static void on_end_again(struct net_timer *timer)
{
    do_end(LIST_ENTRY(timer, struct run, timer));
}

static void ended(struct job *job)
{
    struct run *run = job->owner;
    struct shard *shard = run->shard;
    enum status status = job->op.status;
    run->jobs--;
    if (status == STATUS_OK && job->op.rows.call.id == run->row.id) {
        run->row.ended_ms = job->op.rows.call.ended_ms;
        run->row.updated_ms = job->op.rows.call.updated_ms;
    }
    if (status == STATUS_OK) {
        struct rows rows = rows_of(run);
        if (run->effect.final)
            cache_put(shard->cache, &rows, now_of(run));
        if (run->effect.state == STATE_UNKNOWN)
            metrics_add(shard->counts, METRIC_compensations, run->lane->series, 0, 1);
        log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), run->id.call_id, "call_ended",
                  LOG_STRING("state", state_text(run->effect.state)), LOG_BOOL("final", run->effect.final),
                  LOG_STRING("reason", reason_text(run->effect.reason)),
                  LOG_NUMBER("attempts", run->row.attempt_count), LOG_TEXT("key", run->row.key),
                  LOG_STRING("route", run->lane->s->name), LOG_TEXT("trace_id", run->row.trace_id));
        tell_visit(run);
        job_free(job);
        run_free(run);
        return;
    }
    if (status == STATUS_CONFLICT) {
        lose(run, &job->op.rows);
        job_free(job);
        return;
    }
    /* The ending is known and not on disk: nobody may rely on it. It is written as soon as the disk takes it. */
    metrics_add(shard->counts, METRIC_store_errors, 0, 0, 1);
    log_event(shard->log, LOG_LEVEL_ERROR, clock_wall_ms(), run->id.call_id, "ending_not_stored",
              LOG_STRING("state", state_text(run->effect.state)), LOG_STRING("route", run->lane->s->name));
    if (run->visit && run->visit->request) {
        if (run->reply.streaming)
            visit_stream_abort(run->visit);
        else
            visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN,
                                 "the ending could not be written to the store; ask its receipt", 1000, NULL,
                                 true);
    }
    run->reply.streaming = false;
    admission_leave(run->lane->admission, &run->pass, now_of(run));
    if (shard->draining) {
        job_free(job);
        run_free(run);
        return;
    }
    net_timer_arm(shard->loop, &run->timer, now_of(run) + RUN_END_RETRY_MS, on_end_again);
    job_free(job);
}

static void do_end(struct run *run)
{
    struct call_row *row = &run->row;
    const struct call_effect *fx = &run->effect;
    run->ending = true;
    net_timer_disarm(run->shard->loop, &run->lease_timer);
    row->state = fx->state;
    row->final = fx->final;
    row->reason = fx->reason;
    if (run->reply.too_large && fx->state == STATE_SUCCESS && answer_is_own(run))
        row->reason = REASON_RESULT_TOO_LARGE;
    row->maybe_ran = fx->state == STATE_UNKNOWN;
    encode_attempts(run);
    set_lives(run);
    row->updated_ms = row->ended_ms;
    set_result(run);
    struct job *job = owner_job(run, STORE_END, ended);
    if (!job) {
        net_timer_arm(run->shard->loop, &run->timer, now_of(run) + RUN_END_RETRY_MS, on_end_again);
        return;
    }
    job->op.from_states = 1u << STATE_PROCESSING;
    job->op.answer_only = fx->state == STATE_FAILED && !fx->final;
    job->op.make_task = fx->state == STATE_UNKNOWN;
    job->op.task_due_ms = store_now(run) + run->lane->s->round_gap_ms;
    job_submit(job);
}

static void perform(struct run *run)
{
    switch (run->effect.type) {
    case CALL_DO_SEND:
        do_send(run);
        break;
    case CALL_DO_ASK:
    case CALL_DO_FENCE:
        do_ask(run);
        break;
    case CALL_DO_WAIT:
        do_wait(run);
        break;
    case CALL_DO_END:
        do_end(run);
        break;
    }
}

/* ---- beginning ---------------------------------------------------------------------------------------------- */

static void copy_row(struct run *run, const struct call_row *row)
{
    run->row = *row;
    struct slice *texts[] = {&run->row.tenant,
                             &run->row.route,
                             &run->row.scope,
                             &run->row.call_id,
                             &run->row.key,
                             &run->row.business_ref,
                             &run->row.trace_id,
                             &run->row.key_spelling,
                             &run->row.owner,
                             &run->row.attempts,
                             &run->row.fingerprint_rules};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!arena_copy(&run->arena, *texts[i], texts[i]))
            *texts[i] = (struct slice){0};
    }
    run->row.result_headers = run->row.result_body = run->row.original_call_id = (struct slice){0};
    run->row.reverses = run->row.reversed_by = (struct slice){0};
    run->row.has_result = run->row.body_kept = false;
    run->row.state = STATE_PROCESSING;
}

/* What earlier owners of the call left behind. */
static void read_past(struct run *run, struct call_past *past)
{
    struct buffer memory = {0};
    size_t count = 0;
    past->attempts = run->row.attempt_count;
    past->maybe_ran = run->row.maybe_ran;
    past->age_ms = run->row.first_attempt_ms ? run->store_now_ms - run->row.first_attempt_ms : 0;
    if (past->age_ms < 0)
        past->age_ms = 0;
    int64_t last_ms = run->row.updated_ms;
    if (attempts_decode(run->row.attempts, run->attempts, &count, &memory) == STATUS_OK) {
        for (size_t i = 0; i < count; i++) {
            (void)arena_copy(&run->arena, run->attempts[i].evidence, &run->attempts[i].evidence);
            past->pending = past->pending || run->attempts[i].outcome == OUTCOME_PENDING;
        }
        run->attempt_count = count;
    }
    /* An attempt that nobody saw end was lost with its process. */
    if (past->maybe_ran && count < (size_t)run->row.attempt_count && count < ATTEMPTS_MAX) {
        struct evidence lost = {.end = EVIDENCE_LOST};
        struct buffer words = {0};
        evidence_sentence(&words, &lost);
        struct attempt *a = &run->attempts[run->attempt_count++];
        *a = (struct attempt){.n = run->row.attempt_count, .ended_ms = last_ms, .outcome = OUTCOME_UNKNOWN};
        a->started_ms = a->n == 1 ? run->row.first_attempt_ms : 0;
        (void)arena_copy(&run->arena, buffer_view(&words), &a->evidence);
        buffer_fini(&words);
    }
    buffer_fini(&memory);
    past->closed_age_ms = run->store_now_ms > last_ms ? run->store_now_ms - last_ms : 0;
}

void run_begin(struct visit *visit, const struct call_row *row, int64_t store_now_ms, int64_t covers_since_ms,
               bool resumed)
{
    struct shard *shard = visit->shard;
    struct run *run = calloc(1, sizeof *run);
    bool good = run != NULL;
    if (good) {
        run->shard = shard;
        run->outlets = outlets_hold(visit->outlets);
        run->lane = visit->lane;
        arena_init(&run->arena, RUN_ARENA_BYTES_MAX);
        run->reply.retry_after_ms = -1;
        run->store_now_ms = store_now_ms;
        run->at_ms = net_loop_now(shard->loop);
        run->covers_since_ms = covers_since_ms;
        run->resumed = resumed;
        copy_row(run, row);
        shard->runs++;
        metrics_add(shard->counts, METRIC_calls_running, run->lane->series, 0, 1);
        run->pass = visit->pass; /* taken over */
        memset(&visit->pass, 0, sizeof visit->pass);
        /* A caller that went between the claim and now leaves a call that was never sent: the body is still here, its
         * head is not. Only then is there nothing to send with. */
        good = visit->request && copy_request(run, visit);
    }
    if (!good) {
        /* Claimed, and nothing can be sent: it ends as not executed, so that its caller's repeat runs it. */
        if (!run) {
            visit_answer_problem(visit, PROBLEM_OVERLOADED, NULL, 1000, NULL, false);
            return; /* the lease frees the row */
        }
        run->id = visit->id;
        (void)arena_copy(&run->arena, visit->id.call_id, &run->id.call_id);
        struct call_policy policy = run->lane->policy;
        call_init(&run->machine, &policy);
        run->effect =
            (struct call_effect){.type = CALL_DO_END,
                                 .state = run->row.maybe_ran ? STATE_UNKNOWN : STATE_FAILED,
                                 .reason = run->row.maybe_ran ? REASON_ATTEMPT : REASON_NOT_EXECUTED,
                                 .retry_in_ms = -1};
        perform(run);
        return;
    }
    run->id = visit->id;
    struct slice *texts[] = {&run->id.tenant, &run->id.call_id, &run->id.key, &run->id.trace_id};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        (void)arena_copy(&run->arena, *texts[i], texts[i]);
    run->body = visit->body; /* taken over */
    memset(&visit->body, 0, sizeof visit->body);
    run->visit = visit;
    visit->run = run;
    visit->holds++;
    visit->phase = VISIT_RUNNING;
    visit_arm_budget(visit);
    lease_moved(run);
    arm_lease(run);

    struct call_policy policy = run->lane->policy;
    policy.has_identity = run->row.has_key || !run->row.call_id_made;
    call_init(&run->machine, &policy);
    struct call_event event = {
        .type = CALL_EV_START,
        .deadline_ms = deadline_from(now_of(run), run->lane->s->deadline_ms, run->id.budget_ms),
    };
    if (resumed)
        read_past(run, &event.past);
    feed(run, &event);
}

void run_unlink_visit(struct run *run)
{
    struct visit *visit = run->visit;
    if (!visit)
        return;
    run->visit = NULL;
    if (run->reply.streaming) {
        run->reply.streaming = false;
        run->reply.wanted_head_only = true;
        if (run->exchange)
            exchange_resume(run->exchange);
    }
    visit_unlink_run(visit);
}
