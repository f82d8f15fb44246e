/* SPDX-License-Identifier: MIT */
#include "gateway/pass.h"

#include "gateway/answer.h"
#include "gateway/forward.h"
#include "gateway/observe.h"
#include "gateway/visit.h"

#include <stdlib.h>

struct pass_through {
    struct guest guest;
    struct shard *shard;
    struct outlets *outlets;
    const struct lane *lane;
    struct request *request; /* NULL: answered, or its caller went */
    bool request_over;       /* the server has said its last word about it */
    bool busy;               /* an event is being handled: not to be freed inside it */
    struct exchange *exchange;
    struct buffer head;
    size_t origin;
    bool begun; /* a part of the answer went out */
    bool safe, is_head, has_body, tried_again;
    struct observation *observation;
    int status;
    enum outcome callee_outcome;
};

static void pass_free_if_over(struct pass_through *p)
{
    if (p->exchange || !p->request_over || p->busy)
        return;
    buffer_fini(&p->head);
    outlets_release(p->outlets);
    p->shard->visits--;
    free(p);
}

static struct request *take_request(struct pass_through *p)
{
    struct request *request = p->request;
    p->request = NULL;
    return request;
}

/* The upstream's fields as they came, without hop-by-hop ones and the length, which the server writes. */
static void answer_lines(struct buffer *lines, const struct headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        const struct header *h = &headers->list[i];
        if (slice_is_nocase(h->name, "Content-Length") || field_is_hop(headers, h->name))
            continue;
        buffer_slice(lines, h->name);
        buffer_text(lines, ": ");
        buffer_slice(lines, h->value);
        buffer_text(lines, "\r\n");
    }
}

static void on_head(void *context, struct exchange *exchange, const struct response_head *head)
{
    struct pass_through *p = context;
    (void)exchange;
    p->status = head->status;
    bool found;
    struct slice outcome = headers_get(&head->headers, "Call-Outcome", &found);
    p->callee_outcome = found ? outcome_parse_header(outcome) : OUTCOME_NONE;
    if (!p->request)
        return;
    struct buffer lines = {0};
    answer_lines(&lines, &head->headers);
    bool has_date = headers_count(&head->headers, "Date") > 0;
    int64_t length = head->content_length >= 0 ? head->content_length : head->has_body || p->is_head ? -1 : 0;
    char reason[64];
    size_t len = head->reason.len < sizeof reason - 1 ? head->reason.len : sizeof reason - 1;
    if (len)
        memcpy(reason, head->reason.data, len);
    reason[len] = '\0';
    p->begun = true;
    request_begin(p->request, head->status, len ? reason : NULL, buffer_view(&lines), length, !has_date);
    buffer_fini(&lines);
}

static void on_piece(void *context, struct exchange *exchange, struct slice piece)
{
    struct pass_through *p = context;
    if (p->request && !request_write(p->request, piece))
        exchange_pause(exchange);
}

static void on_upstream_drain(void *context, struct exchange *exchange)
{
    struct pass_through *p = context;
    (void)exchange;
    if (p->request)
        request_resume_body(p->request);
}

static bool start(struct pass_through *p, bool fresh);

static void fail(struct pass_through *p, const struct net_evidence *e)
{
    struct request *request = take_request(p);
    if (!request)
        return;
    struct problem_facts facts = {.state = STATE_NOT_RECEIVED, .next = NEXT_NONE, .retry_after_s = -1};
    struct answer_facts own = {0};
    enum problem problem = e->bytes_sent == 0 ? PROBLEM_UPSTREAM_UNAVAILABLE : PROBLEM_UPSTREAM_FAILED;
    if (e->end == NET_END_TIMEOUT) {
        problem = PROBLEM_OUTCOME_UNKNOWN;
        facts.waited = true;
    }
    if (problem == PROBLEM_UPSTREAM_UNAVAILABLE)
        facts.retry_after_s = 1;
    facts.detail = slice_text(e->detail);
    own.outcome = problem_outcome(problem);
    metrics_add(p->shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    problem_answer(request, problem, &facts, &own);
}

static struct evidence observed(const struct pass_through *p, const struct net_evidence *e)
{
    return (struct evidence){
        .end = e->end == NET_END_COMPLETE ? EVIDENCE_ANSWER
               : e->bytes_sent            ? EVIDENCE_RESET
                                          : EVIDENCE_REFUSED,
        .bytes_sent = e->bytes_sent,
        .status = p->status,
        .has_callee_outcome = p->callee_outcome != OUTCOME_NONE,
        .callee_outcome = p->callee_outcome,
        .success_when = -1,
    };
}

static void on_end(void *context, struct exchange *exchange, const struct net_evidence *e)
{
    struct pass_through *p = context;
    (void)exchange;
    p->exchange = NULL;
    p->busy = true;
    /* A kept connection that the upstream had closed: a safe request without a body is asked once more on a fresh one
     * (RFC 9110 section 9.2.2). Nothing else is ever repeated here. */
    if (e->end != NET_END_COMPLETE && e->reused && e->reply_bytes == 0 && p->safe && !p->has_body &&
        !p->tried_again && !p->begun && p->request) {
        p->tried_again = true;
        p->busy = false;
        (void)start(p, true);
        return;
    }
    if (p->observation) {
        struct evidence evidence = observed(p, e);
        observe_end(p->observation, &evidence);
        p->observation = NULL;
    }
    if (e->end == NET_END_COMPLETE) {
        struct request *request = take_request(p);
        if (request)
            request_end(request);
    } else if (p->begun) {
        struct request *request = take_request(p);
        if (request)
            request_abort(request);
    } else {
        fail(p, e);
    }
    p->busy = false;
    pass_free_if_over(p);
}

static const struct exchange_handlers handlers = {on_head, on_piece, on_upstream_drain, on_end};

/* False: it was answered with a problem at once, and p may be gone. */
static bool start(struct pass_through *p, bool fresh)
{
    const struct request_head *head = request_head(p->request);
    struct exchange_request request = {
        .origin = &p->lane->origins[p->origin],
        .head = buffer_view(&p->head),
        .stream_body = p->has_body,
        .chunked = p->has_body && head->content_length < 0,
        .is_head = p->is_head,
        .fresh_connection = fresh,
        .deadline_ms = INT64_MAX,
        .idle_timeout_ms = (uint32_t)p->outlets->setup->settings->answer_timeout_ms,
    };
    if (p->head.failed || exchange_start(&p->exchange, p->outlets->clients[p->lane->index], &request,
                                         &handlers, p) != STATUS_OK) {
        struct net_evidence none = {.end = NET_END_REFUSED};
        p->exchange = NULL;
        if (p->observation) {
            struct evidence evidence = observed(p, &none);
            observe_end(p->observation, &evidence);
            p->observation = NULL;
        }
        fail(p, &none);
        return false;
    }
    return true;
}

/* ---- the caller's side -------------------------------------------------------------------------------------- */

static void on_body(struct guest *guest, struct slice piece)
{
    struct pass_through *p = LIST_ENTRY(guest, struct pass_through, guest);
    observe_body(p->observation, piece);
    if (p->exchange && !exchange_write(p->exchange, piece) && p->request)
        request_pause_body(p->request);
}

static void on_body_end(struct guest *guest)
{
    struct pass_through *p = LIST_ENTRY(guest, struct pass_through, guest);
    if (p->request)
        observe_arrived(p->observation, p->request);
    if (p->exchange)
        exchange_write_end(p->exchange);
}

static void on_caller_drain(struct guest *guest)
{
    struct pass_through *p = LIST_ENTRY(guest, struct pass_through, guest);
    if (p->exchange)
        exchange_resume(p->exchange);
}

static void on_finished(struct guest *guest, bool gone)
{
    struct pass_through *p = LIST_ENTRY(guest, struct pass_through, guest);
    (void)gone;
    p->request = NULL;
    p->request_over = true;
    /* Nobody wants the answer of an unrecorded passage any more. */
    if (p->exchange && !p->observation)
        exchange_abort(p->exchange);
    pass_free_if_over(p);
}

void pass_begin(struct shard *shard, struct request *request, const struct lane *lane,
                const struct route_match *match)
{
    struct pass_through *p = calloc(1, sizeof *p);
    if (!p) {
        request_abort(request);
        return;
    }
    const struct request_head *head = request_head(request);
    p->guest = (struct guest){on_body, on_body_end, on_caller_drain, on_finished};
    p->shard = shard;
    p->outlets = outlets_hold(shard->outlets);
    p->lane = lane;
    p->request = request;
    p->origin =
        lane->s->upstream_order == UPSTREAM_ORDER_ROUND ? prng_below(&shard->random, lane->origin_count) : 0;
    p->safe =
        slice_is(head->method, "GET") || slice_is(head->method, "HEAD") || slice_is(head->method, "OPTIONS");
    p->is_head = slice_is(head->method, "HEAD");
    p->has_body = head->has_body;
    shard->visits++;
    request_set_user(request, &p->guest);
    metrics_add(shard->counts, METRIC_requests, lane->series, 0, 1);
    metrics_add(shard->counts, METRIC_passed, lane->series, 0, 1);
    if (match->guarded && lane->s->mode == MODE_OBSERVE)
        p->observation = observe_begin(shard, lane, match);

    buffer_slice(&p->head, head->method);
    buffer_byte(&p->head, ' ');
    buffer_slice(&p->head, head->target);
    buffer_text(&p->head, " HTTP/1.1\r\n");
    forward_lines(&p->head, request, false);
    if (head->content_length >= 0 && p->has_body) {
        buffer_text(&p->head, "Content-Length: ");
        buffer_number(&p->head, head->content_length);
        buffer_text(&p->head, "\r\n");
    } else if (p->has_body) {
        buffer_text(&p->head, "Transfer-Encoding: chunked\r\n");
    } else if (!p->safe) {
        buffer_text(&p->head, "Content-Length: 0\r\n");
    }
    buffer_text(&p->head, "\r\n");
    if (!start(p, false))
        return;
    if (p->has_body)
        request_read_body(request);
    else
        observe_arrived(p->observation, request);
}
